// SPDX-License-Identifier: Apache-2.0
/*
 * lead.c - the leader of ranks, and its orders
 *
 * An order is on its way before the leader starts the same work, and the exchanges of the
 * model keep all ranks at the same layer.  A failed rank shows there, too: then the step
 * fails as one of a failed device does, and this file needs to report nothing.
 */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/engine/internal.h"
#include "runtime/engine/orders.h"
#include "runtime/engine/ranked.h"
#include "runtime/ranks/ranks.h"

/* Make room for a message of @bytes. */
static void *order_take(struct lead *l, size_t bytes)
{
	void *buf = l->buf;

	if (bytes > l->size) {
		buf = realloc(l->buf, 2 * bytes);
		if (!buf)
			return NULL;
		l->buf = buf;
		l->size = 2 * bytes;
	}
	return buf;
}

static int order_send(struct lead *l, const void *data, size_t bytes)
{
	return ranks_send(l->ranks, data, bytes);
}

void lead_init(struct engine *e, const struct engine_opts *o)
{
	e->lead.ranks = o->ranks;
	if (o->ranks)
		ranks_bound(o->ranks, o->rank_timeout_ms);
}

int lead_attach(struct engine *e, struct engine_error *err)
{
	const struct order o = {
		.kind = ORDER_ATTACH, .value = kvmm_info(e->k)->client,
	};
	int ret;

	if (!e->lead.ranks)
		return 0;
	ret = order_send(&e->lead, &o, sizeof(o));
	if (ret)
		return engine_refuse(err, ret, "%s", ranks_why(e->lead.ranks));
	e->lead.attached = true;
	return ranks_report(e->lead.ranks, 0, NULL, err);
}

void lead_detach(struct engine *e)
{
	const struct order o = { .kind = ORDER_DETACH };
	struct engine_error err;

	/* A failed rank is reported elsewhere, or the group ends. */
	if (e->lead.attached && !order_send(&e->lead, &o, sizeof(o)))
		(void)!ranks_report(e->lead.ranks, 0, NULL, &err);
	free(e->lead.buf);
	e->lead = (struct lead){ .ranks = e->lead.ranks };
}

int lead_check(struct engine *e)
{
	if (!e->lead.ranks || !ranks_check(e->lead.ranks))
		return 0;
	snprintf(e->why, sizeof(e->why), "%s", ranks_why(e->lead.ranks));
	return -ENOTRECOVERABLE;
}

void lead_copy(struct engine *e, u32 group, const u32 *from, const u32 *to,
	       const u32 *tokens, u32 nr)
{
	const size_t bytes = nr * sizeof(u32), all = (tokens ? 3 : 2) * bytes;
	struct order *o;
	u32 *words;

	if (!e->lead.ranks)
		return;
	o = order_take(&e->lead, sizeof(*o) + all);
	if (!o)
		return ranks_abort(e->lead.ranks, "no memory for the copies of a step");
	*o = (struct order){
		.kind = ORDER_COPY, .nr = nr, .value = group, .tokens = tokens != NULL,
	};
	words = (u32 *)(o + 1);
	memcpy(words, from, bytes);
	memcpy(words + nr, to, bytes);
	if (tokens)
		memcpy(words + 2 * nr, tokens, bytes);
	/* A failure shows in the exchanges of the step. */
	(void)!order_send(&e->lead, o, sizeof(*o) + all);
	e->lead.copies = true;
}

int lead_settle(struct engine *e)
{
	const struct order o = { .kind = ORDER_SYNC };
	struct engine_error err = { "" };

	if (!e->lead.copies)
		return 0;
	e->lead.copies = false;
	if (!order_send(&e->lead, &o, sizeof(o)) &&
	    !ranks_report(e->lead.ranks, 0, NULL, &err))
		return 0;
	snprintf(e->why, sizeof(e->why), "%s", ranks_why(e->lead.ranks));
	return -ENOTRECOVERABLE;
}

/* Table entries of a group that the step may read. */
static u32 step_entries(const struct engine *e, const struct model_seq_in *in, u32 g)
{
	return DIV_ROUND_UP(in->start + in->nr_tokens, e->kv.block_tokens[g]) *
	       e->entries[g];
}

static size_t step_words(const struct engine *e, u32 nr, u32 *tokens)
{
	size_t words = 0;
	u32 i, g;

	*tokens = 0;
	for (i = 0; i < nr; i++) {
		*tokens += e->ins[i].nr_tokens;
		for (g = 0; g < e->info->nr_groups; g++)
			words += step_entries(e, &e->ins[i], g);
	}
	return words + *tokens + nr * (sizeof(struct order_seq) / sizeof(u32));
}

static void step_fill(const struct engine *e, u32 nr, struct order_seq *seqs)
{
	u32 *words = (u32 *)(seqs + nr), i, g;
	const struct model_seq_in *in;

	for (i = 0; i < nr; i++) {
		in = &e->ins[i];
		seqs[i] = (struct order_seq){
			.nr_tokens = in->nr_tokens, .start = in->start,
			.want_logits = in->want_logits,
		};
		memcpy(words, in->tokens, in->nr_tokens * sizeof(u32));
		words += in->nr_tokens;
	}
	for (i = 0; i < nr; i++) {
		for (g = 0; g < e->info->nr_groups; g++) {
			seqs[i].entries[g] = step_entries(e, &e->ins[i], g);
			memcpy(words, e->ins[i].table[g],
			       seqs[i].entries[g] * sizeof(u32));
			words += seqs[i].entries[g];
		}
	}
}

void lead_step(struct engine *e, u32 nr)
{
	struct order *o;
	size_t bytes;
	u32 tokens;

	if (!e->lead.ranks)
		return;
	bytes = sizeof(*o) + step_words(e, nr, &tokens) * sizeof(u32);
	o = order_take(&e->lead, bytes);
	if (!o)
		return ranks_abort(e->lead.ranks, "no memory for the tables of a step");
	*o = (struct order){ .kind = ORDER_STEP, .nr = nr, .tokens = tokens };
	step_fill(e, nr, (struct order_seq *)(o + 1));
	(void)!order_send(&e->lead, o, bytes);
	/* Its exchanges wait for all orders before. */
	e->lead.copies = false;
}

void engine_ranks_end(struct ranks *r)
{
	const struct order o = { .kind = ORDER_END };

	/* A rank that has failed needs no order. */
	(void)!ranks_send(r, &o, sizeof(o));
}
