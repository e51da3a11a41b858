// SPDX-License-Identifier: Apache-2.0
/*
 * follow.c - the work of a rank that does not lead
 *
 * The rank has its part of the model, and its part of each block.  It maps the extents of
 * its pool and acknowledges them between two orders: the leader's sequences get no memory
 * until it has.  Table entries name the first part of a block, and the rank's part lies at
 * the same distance behind it for all blocks.
 *
 * If the daemon ends the attachment, the leader's ends as well.  The rank then waits for
 * the order to detach.
 */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/engine/internal.h"
#include "runtime/engine/orders.h"
#include "runtime/engine/ranked.h"
#include "runtime/ranks/ranks.h"

#define FOLLOW_WAIT_MS	5u	/* between two looks for extents */

struct follow {
	struct model			*model;
	const struct model_info		*info;
	const struct engine_opts	*opts;
	struct ranks			*ranks;
	struct kvmm			*k;
	struct model_kv			kv;
	struct model_seq_in		*ins;	/* [max_seqs] */
	u8				*buf;
	u64				size;
	u64				bytes;	/* of the order in @buf */
};

/* Report to the leader.  Return: 0, or the error of the exchange. */
static int tell(struct follow *f, int err, const char *text)
{
	struct engine_error ignored;

	/* The leader prints the error of a report. */
	(void)!ranks_report(f->ranks, err, text, &ignored);
	return ranks_check(f->ranks);
}

static void place_kv(struct follow *f)
{
	const struct kvmm_attach_rep *rep = kvmm_info(f->k);
	u32 g;

	f->kv.base = (u8 *)kvmm_pool(f->k) + rep->shard_off[ranks_number(f->ranks)];
	f->kv.unit = rep->unit;
	f->kv.block_bytes = rep->block_bytes;
	for (g = 0; g < f->info->nr_groups; g++)
		f->kv.layer_stride[g] = rep->stride[g];
}

static int attach(struct follow *f, u32 client)
{
	struct kvmm_group group[MODEL_MAX_GROUPS];
	char name[KVMM_NAME_LEN], text[256] = "";
	struct engine_error err = { "" };
	struct kvmm_params p;
	u32 g;
	int ret;

	ret = engine_params(f->info, f->opts, name, group, &p, &err);
	if (ret < 0)
		return tell(f, ret, err.text);
	for (g = 0; g < f->info->nr_groups; g++)
		f->kv.block_tokens[g] = group[g].block_tokens;
	p.identity = f->opts->identity;
	p.shard = ranks_number(f->ranks) + 1;
	p.leader = client + 1;
	ret = kvmm_attach(&p, &f->k, text);
	if (!ret)
		place_kv(f);
	return tell(f, ret, text);
}

static int detach(struct follow *f)
{
	kvmm_detach(f->k);
	f->k = NULL;
	return tell(f, 0, "");
}

static int copy(struct follow *f, const struct order *o)
{
	const u32 *words = (const u32 *)(o + 1);
	const u64 parts = o->tokens ? 3 : 2;

	if (!f->k || o->value >= f->info->nr_groups ||
	    f->bytes != sizeof(*o) + parts * o->nr * sizeof(u32))
		return -EBADMSG;
	model_copy_blocks(f->model, &f->kv, o->value, words, words + o->nr,
			  o->tokens ? words + 2 * o->nr : NULL, o->nr);
	return 0;
}

/* Are the parts of the order as long as they say? */
static bool step_fits(const struct follow *f, const struct order *o)
{
	const struct order_seq *seqs = (const void *)(o + 1);
	u64 bytes = sizeof(*o) + o->nr * sizeof(*seqs), tokens = 0;
	u32 i, g;

	if (!f->k || o->nr > f->info->max_seqs || f->bytes < bytes)
		return false;
	for (i = 0; i < o->nr; i++) {
		tokens += seqs[i].nr_tokens;
		for (g = 0; g < f->info->nr_groups; g++)
			bytes += seqs[i].entries[g] * sizeof(u32);
	}
	return tokens == o->tokens && f->bytes == bytes + tokens * sizeof(u32);
}

/* Arguments that are wrong here are wrong at the leader, too, which says so. */
static int step(struct follow *f, const struct order *o)
{
	const struct order_seq *seqs = (const void *)(o + 1);
	const u32 *tokens = (const u32 *)(seqs + o->nr), *entries = tokens + o->tokens;
	u32 i, g;
	int err;

	if (!step_fits(f, o))
		return -EBADMSG;
	for (i = 0; i < o->nr; i++) {
		f->ins[i] = (struct model_seq_in){
			.tokens = tokens, .nr_tokens = seqs[i].nr_tokens,
			.start = seqs[i].start, .want_logits = seqs[i].want_logits,
		};
		tokens += seqs[i].nr_tokens;
		for (g = 0; g < f->info->nr_groups; g++) {
			f->ins[i].table[g] = entries;
			entries += seqs[i].entries[g];
		}
	}
	err = model_forward(f->model, &f->kv, f->ins, o->nr, NULL);
	return err == -EIO ? -EPIPE : 0;
}

/* Return: 0; 1: the leader has ended; -EPIPE, -ETIMEDOUT. */
static int obey(struct follow *f)
{
	const struct order *o = (const void *)f->buf;

	if (f->bytes < sizeof(*o))
		return -EBADMSG;
	switch (o->kind) {
	case ORDER_ATTACH:
		return attach(f, o->value);
	case ORDER_DETACH:
		return detach(f);
	case ORDER_COPY:
		return copy(f, o);
	case ORDER_STEP:
		return step(f, o);
	case ORDER_SYNC:
		return tell(f, 0, "");
	case ORDER_END:
		return 1;
	default:
		return -EBADMSG;
	}
}

/* The next order is in f->buf: 0; -EAGAIN: there is none yet. */
static int receive(struct follow *f)
{
	u8 *more;
	int err;

	err = ranks_recv(f->ranks, f->buf, f->size, &f->bytes, FOLLOW_WAIT_MS);
	if (err != -EMSGSIZE)
		return err;
	more = realloc(f->buf, 2 * f->bytes);
	if (!more)
		return -ENOMEM;
	f->buf = more;
	f->size = 2 * f->bytes;
	return -EAGAIN;
}

static int run(struct follow *f)
{
	int err;

	do {
		/* The leader's attachment ends, too, and it says so. */
		if (f->k)
			(void)!kvmm_poll_extents(f->k);
		err = receive(f);
		if (!err)
			err = obey(f);
	} while (!err || err == -EAGAIN);
	return err;
}

int engine_follow(struct model *model, const struct engine_opts *opts,
		  struct engine_error *err)
{
	struct follow f = {
		.model = model, .info = model_info(model), .opts = opts,
		.ranks = opts->ranks, .size = 4096,
	};
	int ret = -ENOMEM;

	ranks_bound(opts->ranks, opts->rank_timeout_ms);
	f.ins = calloc(f.info->max_seqs, sizeof(*f.ins));
	f.buf = malloc(f.size);
	if (f.ins && f.buf)
		ret = run(&f);
	kvmm_detach(f.k);
	free(f.ins);
	free(f.buf);
	if (ret == 1)
		return 0;
	if (ret == -EBADMSG)
		return engine_refuse(err, ret, "an order of rank 0 is malformed");
	/* The leader may have ended without an order, by a signal for example. */
	if (ret == -EPIPE && !ranks_failure(opts->ranks))
		return 0;
	return engine_refuse(err, ret, "%s", ret == -ENOMEM ? "no memory for orders" :
			     ranks_failure(opts->ranks) ? ranks_failure(opts->ranks) :
			     strerror(-ret));
}
