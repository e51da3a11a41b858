// SPDX-License-Identifier: Apache-2.0
/*
 * waste.c - the parts that the pool of a simulated node has
 *
 * No request finds a token of another, so that a block has one sequence, or the
 * samples of a request.  A token is counted once in each group.
 */
#include "kvmm/core/node/node.h"
#include "tests/bench/waste.h"

/* Bytes of a token in the blocks of a group. */
static double token_bytes(const struct kv_domain *d, u32 g)
{
	return (double)d->dev.block_bytes / d->group[g].block_tokens;
}

/* Bytes of the tokens in blocks in use. */
static double bytes_known(const struct core *c, u32 dom)
{
	const struct kv_domain *d = &c->domains[dom];
	u64 tokens[KVMM_MAX_GROUPS] = { 0 };
	double bytes = 0;
	u32 i;

	for (i = 0; i < core_sizes(c)->nr_blocks; i++) {
		const struct kv_block *b = &c->blocks[i];

		if ((b->state == BLK_OPEN || b->state == BLK_SEALED) &&
		    b->domain == dom)
			tokens[b->group] += b->nr_ids;
	}
	for (i = 0; i < d->nr_groups; i++)
		bytes += (double)tokens[i] * token_bytes(d, i);
	return bytes;
}

/* Bytes of tokens behind the window of the next step, in blocks of the sequence. */
static double bytes_behind(const struct core *c, const struct kv_seq *s)
{
	const struct kv_domain *d = seq_domain(c, s);
	const struct kv_tab *t;
	double bytes = 0;

	for_each_tab(c, s, t) {
		u32 window = d->group[t->group].window, low, first;

		if (!window || s->valid_len < window || !tab_live(t))
			continue;
		low = s->valid_len - window + 1;
		first = t->trimmed * d->group[t->group].block_tokens;
		if (low > first)
			bytes += (low - first) * token_bytes(d, t->group);
	}
	return bytes;
}

/* Bytes that an open step writes. */
static double bytes_written(const struct core *c, const struct kv_seq *s)
{
	const struct kv_domain *d = seq_domain(c, s);
	double bytes = 0;
	u32 g;

	for (g = 0; g < d->nr_groups; g++)
		bytes += (s->cover - s->valid_len) * token_bytes(d, g);
	return bytes;
}

/* Add the parts of the sequences of a domain, and count them and their blocks. */
static void sequences(const struct core *c, u32 dom, double *part, struct use *u)
{
	const struct kv_domain *d = &c->domains[dom];
	double behind = 0, written = 0, live, in_use;
	u32 i;

	for (i = d->run_head; i != CORE_NONE; i = c->seqs[i].next) {
		behind += bytes_behind(c, &c->seqs[i]);
		written += bytes_written(c, &c->seqs[i]);
		u->mapped += seq_live(c, &c->seqs[i]);
		u->seqs++;
	}
	in_use = d->dev.nr[BLK_OPEN] + d->dev.nr[BLK_SEALED];
	u->distinct += in_use;
	live = bytes_known(c, dom) + written - behind;
	part[LIVE] += live;
	part[BEHIND] += behind;
	part[TAILS] += in_use * (double)d->dev.block_bytes - live - behind;
}

/* Note which steps of which requests are measured. */
static void note_steps(const struct nd_engine *e, struct use *u)
{
	u32 i;

	for (i = 0; i < ND_SEQS; i++) {
		const struct nd_seq *s = &e->seqs[i];
		struct span *span = &u->spans[s->req];

		if (!s->handle || s->sub || s->valid < s->prompt)
			continue;
		span->to = s->valid - s->prompt;
		if (!span->seen)
			span->from = span->to;
		span->seen = true;
	}
}

/* Add the parts of a domain's spans.  Return: their extents. */
static u32 domain_parts(const struct core *c, u32 dom, double *part, struct use *u)
{
	const struct kv_domain *d = &c->domains[dom];
	double block = (double)d->dev.block_bytes;
	double free = (d->dev.nr[BLK_FREE] - d->dev.reserved) * block;

	sequences(c, dom, part, u);
	part[SPANS] += (double)d->dev.nr_spans * (double)d->dev.span_tail;
	part[CACHE] += d->dev.nr[BLK_CACHED] * block;
	part[FREE] += free;
	u->in_spans += free;
	return d->dev.nr_spans * d->dev.span_extents;
}

void use_measure(struct nd_node *n, u32 engine)
{
	const struct core *c = n->core;
	double extent = (double)core_cfg(c)->extent_size;
	double part[NR_PARTS] = { 0 }, sum = 0;
	u32 i, dom, in_spans = 0, least = n->nr_extents;
	struct use *u = n->arg;

	for (i = 0; i < n->nr; i++) {
		dom = n->e[i]->info.domain;
		in_spans += domain_parts(c, dom, part, u);
		least = min(least, (u32)c->domains[dom].dev.span_extents);
	}
	/* No domain can make a span of these extents. */
	part[SPANS] += n->nr_extents % least * extent;
	part[FREE] += (n->nr_extents - n->nr_extents % least - in_spans) * extent;
	for (i = 0; i < NR_PARTS; i++)
		sum += part[i];
	part[HELD] = n->nr_extents * extent - sum;
	for (i = 0; i < NR_PARTS; i++)
		u->part[i] += part[i];
	u->total += n->nr_extents * extent;
	u->steps++;
	if (u->spans)
		note_steps(n->e[engine], u);
}

double use_percent(const struct use *u, enum part p)
{
	return 100 * u->part[p] / u->total;
}

double use_live_of_held(const struct use *u)
{
	return 100 * u->part[LIVE] /
	       (u->total - u->part[FREE] - u->part[CACHE]);
}
