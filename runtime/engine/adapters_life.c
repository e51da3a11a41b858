// SPDX-License-Identifier: Apache-2.0
/*
 * adapters_life.c - adapters get memory and content, and give it back
 *
 *	IDLE --> ASKED --> FILLING --> HELD
 *	           ^----------+---------+	the daemon has taken its memory
 *
 * Each iteration lets each slot do the next thing possible.  Nothing here waits: the status
 * record of a slot's sequence says whether it has its memory.
 */
#include <stdio.h>

#include "runtime/engine/internal.h"

#define ADAPTERS_ASKED	2u		/* adapters that wait for memory at once */
#define SLOT_POLLS	2u		/* times seen waiting: memory is short */
#define FILL_BYTES	(4u << 20)	/* written between two steps */

/* End all requests that name the adapter. */
static void slot_fail(struct engine *e, struct slot *s, int err, const char *what)
{
	const char *dir = adapter_info(s->adapter)->dir;
	struct engine_done why = { .reason = ENGINE_ERROR, .err = err };
	char text[400];
	struct request *r;

	snprintf(text, sizeof(text), "adapter %.200s: %s", dir, what);
	why.text = text;
	while ((r = request_of_slot(e, s)))
		request_over(e, r, &why);
	s->wanted = false;
}

/* The sequence is closed; blocks with content stay as cache. */
static int slot_close(struct adapters *a, struct slot *s)
{
	const struct kvmm_advise_arg drop = { .seq = s->seq, .advice = KVMM_ADV_DONTNEED,
					      .value = KVMM_DONTNEED_FOUND };
	struct kvmm_seq_res res;
	int ret;

	if (a->drop)
		(void)!kvmm_seq_advise(a->k, &drop, 1, &res);
	ret = kvmm_seq_close(a->k, &s->seq, 1);

	s->state = SLOT_IDLE;
	s->waits = 0;
	s->seq = 0;
	return ret == -ECONNRESET ? ret : 0;
}

static int slot_match(struct adapters *a, struct slot *s)
{
	const int ret = kvmm_seq_match(a->k, s->seq, s->ids, s->nr_blocks * ADAPTERS_IDS);

	/* -EAGAIN: the daemon has no room for the ids now. */
	s->matched = !ret;
	return ret == -ECONNRESET ? ret : 0;
}

/* The reason why the daemon refuses memory for an adapter; seq_refused() has those for KV. */
static const char *slot_refusal(int err)
{
	switch (err) {
	case -E2BIG:
		return "it can never fit: give the domain of the adapters or the pool more";
	case -EDQUOT:
		return "it no longer fits: give the domain of the adapters or the pool more";
	case -ENODEV:
		return "kvmm has lost what the GPU's memory held: see its log";
	case -ESHUTDOWN:
		return "kvmm is being drained: nothing new begins until its operator ends that";
	default:
		return strerror(-err);
	}
}

static int slot_open(struct engine *e, struct slot *s)
{
	struct adapters *a = &e->adapters;
	const struct kvmm_open_arg arg = {
		.prompt_len = s->nr_blocks * ADAPTERS_IDS, .priority = UINT32_MAX,
		.flags = KVMM_OPEN_WHOLE_BLOCKS | KVMM_OPEN_WHOLE_PROMPT,
	};
	struct kvmm_open_res res = { 0 };
	int ret = kvmm_seq_open(a->k, &arg, 1, &res);

	if (ret == -ECONNRESET)
		return ret;
	ret = ret ? ret : res.status;
	if (ret == -EAGAIN || ret == -ENOSPC || ret == -EBUSY)
		return 0;
	if (ret) {
		slot_fail(e, s, ret, slot_refusal(ret));
		return 0;
	}
	s->seq = res.seq;
	s->state = SLOT_ASKED;
	return slot_match(a, s);
}

/* The sequence is READY: take over its valid blocks. */
static void slot_adopt(struct engine *e, struct slot *s, const struct kvmm_seq_status *st)
{
	s->epoch = st->seq_epoch;
	s->waits = 0;
	s->valid = min(st->valid_len / ADAPTERS_IDS, s->nr_blocks);
	e->stats.adapter_blocks_found += s->valid;
	s->state = SLOT_FILLING;
}

/* Where its blocks are: 0 or -EAGAIN. */
int slot_locate(struct adapters *a, struct slot *s)
{
	u32 i;

	s->located = false;
	if (kvmm_seq_table(a->k, s->seq, 0, 0, s->nr_blocks, s->table))
		return -EAGAIN;
	for (i = 0; i < s->nr_blocks; i++)
		s->blocks[i] = kvmm_block(a->k, s->table[i], 0);
	adapter_locate(s->adapter, a->block_bytes, s->blocks, &s->place);
	s->located = true;
	return 0;
}

static int slot_write(struct engine *e, const struct slot *s, u32 block, u32 entry)
{
	struct adapters *a = &e->adapters;
	void *to = kvmm_block(a->k, entry, 0);
	int ret;

	if (!to)
		return -EIO;
	ret = adapter_write(s->adapter, a->block_bytes, block, a->buffer ? a->buffer : to);
	if (!ret && a->buffer)
		ret = model_put(e->model, to, a->buffer, a->block_bytes);
	return ret;
}

/* Write @nr blocks of the step that is open. */
static int slot_write_some(struct engine *e, struct slot *s, u32 nr)
{
	int ret;
	u32 i;

	if (kvmm_seq_table(e->adapters.k, s->seq, 0, s->valid, nr, s->table + s->valid))
		return -EAGAIN;
	for (i = 0; i < nr; i++) {
		ret = slot_write(e, s, s->valid + i, s->table[s->valid + i]);
		if (ret)
			return ret;
	}
	return 0;
}

/*
 * End the step that has written @nr blocks in @ns; 0: none of them counts.  So the daemon
 * learns the cost of loading a block, as it learns that of computing a token of KV.
 */
static int slot_written(struct engine *e, struct slot *s, u32 nr, u64 ns)
{
	struct adapters *a = &e->adapters;
	const struct kvmm_end_arg arg = {
		.seq = s->seq, .valid_len = (s->valid + nr) * ADAPTERS_IDS,
		.nr_ids = nr * ADAPTERS_IDS,
	};
	struct kvmm_end_res res = { 0 };
	int ret = kvmm_step_end(a->k, a->step, ns, nr * ADAPTERS_IDS, &arg, nr ? 1 : 0,
				s->ids + (size_t)s->valid * ADAPTERS_IDS, &res);

	if (ret == -ECONNRESET)
		return ret;
	if (ret || res.status || !nr) {
		s->state = SLOT_ASKED;
		return 0;
	}
	s->valid += nr;
	e->stats.adapter_blocks_read += nr;
	return 0;
}

/* Write some blocks that have no content yet. */
static int slot_fill(struct engine *e, struct slot *s)
{
	struct adapters *a = &e->adapters;
	const u32 nr = min(s->nr_blocks - s->valid, max((u32)(FILL_BYTES / a->block_bytes), 1u));
	const struct kvmm_begin_arg arg = { .seq = s->seq, .seq_epoch = s->epoch,
					    .start = s->valid * ADAPTERS_IDS,
					    .max_tokens = nr * ADAPTERS_IDS };
	const s64 begun = engine_now();
	struct kvmm_begin_res res = { 0 };
	int ret = kvmm_step_begin(a->k, ++a->step, &arg, 1, &res), err;

	if (ret)
		return ret == -ECONNRESET ? ret : 0;
	err = res.status ? -EAGAIN : slot_write_some(e, s, nr);
	ret = slot_written(e, s, err ? 0 : nr, (u64)(engine_now() - begun));
	if (!ret && err && err != -EAGAIN) {
		slot_fail(e, s, err, err == -EIO ? "its file was cut or changed while it was served" :
			  strerror(-err));
		return slot_close(a, s);
	}
	return ret;
}

static int slot_poll(struct engine *e, struct slot *s)
{
	struct adapters *a = &e->adapters;
	struct kvmm_seq_status st;
	int ret = kvmm_seq_status(a->k, s->seq, &st);

	if (ret == -ECONNRESET || ret == -EAGAIN)
		return 0;	/* the next daemon rewrites the record */
	if (ret) {
		s->state = SLOT_IDLE;
		s->waits = 0;
		return 0;
	}
	switch (st.state) {
	case KVMM_SEQ_READY:
		if (s->state == SLOT_ASKED || s->epoch != st.seq_epoch)
			slot_adopt(e, s, &st);
		return 0;
	case KVMM_SEQ_FAILED:
		slot_fail(e, s, st.reason, slot_refusal(st.reason));
		return slot_close(a, s);
	case KVMM_SEQ_RECOMPUTE:
		s->state = SLOT_ASKED;
		return slot_match(a, s);
	case KVMM_SEQ_WAITING:
		s->state = SLOT_ASKED;
		s->waits++;
		return s->matched ? 0 : slot_match(a, s);
	default:
		s->state = SLOT_ASKED;
		return 0;
	}
}

static bool slot_is_wanted(const struct slot *s)
{
	return s->alive || s->wanted;
}

static int slot_advance(struct engine *e, struct slot *s, u32 *asked)
{
	struct adapters *a = &e->adapters;
	int ret = 0;

	if (!slot_is_wanted(s))
		return s->state == SLOT_IDLE ? 0 : slot_close(a, s);
	if (s->state == SLOT_IDLE) {
		if (*asked >= ADAPTERS_ASKED && !s->alive)
			return 0;
		ret = slot_open(e, s);
	}
	if (!ret && s->state != SLOT_IDLE)
		ret = slot_poll(e, s);
	if (!ret && s->state == SLOT_FILLING && s->valid < s->nr_blocks)
		ret = slot_fill(e, s);
	if (!ret && s->state == SLOT_FILLING && s->valid == s->nr_blocks && !slot_locate(a, s))
		s->state = SLOT_HELD;
	*asked += s->state == SLOT_ASKED || s->state == SLOT_FILLING;
	return ret;
}

int adapters_advance(struct engine *e)
{
	struct adapters *a = &e->adapters;
	struct list *it, *tmp;
	u32 asked = 0;
	int ret;

	if (!a->k || list_empty(&a->slots))
		return 0;
	ret = kvmm_poll_extents(a->k);
	if (ret < 0)
		return ret;
	list_for_each(&a->slots, it, tmp) {
		ret = slot_advance(e, list_entry(it, struct slot, list), &asked);
		if (ret)
			return ret;
	}
	return 0;
}

bool adapters_wait(const struct engine *e)
{
	struct list *it, *tmp;

	list_for_each(&e->adapters.slots, it, tmp)
		if (list_entry(it, struct slot, list)->waits > SLOT_POLLS)
			return true;
	return false;
}

bool adapters_come(const struct engine *e)
{
	struct list *it, *tmp;

	list_for_each(&e->adapters.slots, it, tmp) {
		const struct slot *s = list_entry(it, struct slot, list);

		if (slot_is_wanted(s) && s->state != SLOT_HELD)
			return true;
	}
	return false;
}
