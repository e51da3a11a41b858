// SPDX-License-Identifier: Apache-2.0
/*
 * adapters_step.c - adapters stay in place while a forward reads them
 *
 * The engine's step names sequences with KV.  A second step, of the attachment of the adapters,
 * names the adapters of its entries and writes nothing.
 */
#include "runtime/engine/internal.h"

/* The adapters of the running entries, each once. */
static u32 step_slots(struct adapters *a, const struct step *st)
{
	u32 i, j, nr = 0;

	for (i = 0; i < st->nr; i++) {
		struct slot *s = st->entries[i].runs ? st->entries[i].seq->req->slot : NULL;

		for (j = 0; s && j < nr && a->used[j] != s; j++)
			;
		if (!s || j < nr)
			continue;
		s->granted = false;
		if (s->state == SLOT_HELD && nr < a->max)
			a->used[nr++] = s;
	}
	return nr;
}

/* Look again where blocks are if the daemon may have moved them: 0 or -EAGAIN. */
static int slot_moved(struct adapters *a, struct slot *s, const struct kvmm_begin_res *res)
{
	return s->located && res->table_lo >= s->nr_blocks ? 0 : slot_locate(a, s);
}

/* Is there no adapter, or one that the step keeps in place? */
static bool entry_is_served(const struct entry *en)
{
	const struct slot *s = en->seq->req->slot;

	return !s || s->granted;
}

int adapters_begin(struct engine *e, struct step *st)
{
	struct adapters *a = &e->adapters;
	const u32 nr = a->k ? step_slots(a, st) : 0;
	u32 i;
	int ret;

	for (i = 0; i < nr; i++)
		a->begin[i] = (struct kvmm_begin_arg){
			.seq = a->used[i]->seq, .seq_epoch = a->used[i]->epoch,
			.start = a->used[i]->nr_blocks * ADAPTERS_IDS };
	if (nr) {
		ret = kvmm_step_begin(a->k, ++a->step, a->begin, nr, a->res);
		if (ret == -ECONNRESET)
			return ret;
		a->open = !ret;
		(void)kvmm_resumed(a->k, &a->salvaged);
	}
	for (i = 0; i < nr && a->open; i++)
		a->used[i]->granted = !a->res[i].status && !slot_moved(a, a->used[i], &a->res[i]);
	for (i = 0; i < st->nr; i++)
		st->entries[i].runs = st->entries[i].runs && entry_is_served(&st->entries[i]);
	return 0;
}

int adapters_end(struct engine *e, struct step *st)
{
	struct adapters *a = &e->adapters;
	u32 salvaged = 0, i;
	int ret;

	if (!a->open)
		return 0;
	a->open = false;
	ret = kvmm_confirm(a->k);
	if (ret)
		return ret;
	(void)kvmm_resumed(a->k, &salvaged);
	for (i = 0; salvaged != a->salvaged && i < st->nr; i++) {
		struct entry *en = &st->entries[i];

		if (!en->runs || !en->seq->req->slot)
			continue;
		en->runs = false;
		entry_void(e, en);
	}
	ret = kvmm_step_end(a->k, a->step, 0, 0, NULL, 0, NULL, NULL);
	return ret == -ECONNRESET ? ret : 0;
}
