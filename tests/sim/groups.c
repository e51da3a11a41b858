// SPDX-License-Identifier: Apache-2.0
/*
 * groups.c - layer groups of simulated domains
 *
 * Some seeds have domains with several layer groups, with windows or without.  Each
 * cell holds the hash of its position mixed with its group, so that a block that one
 * group reads and another one wrote is noticed.
 */
#include "tests/sim/sim.h"

u32 groups_of(const struct sim *w, const struct sim_client *cl)
{
	return w->dom[cl->dom].req.nr_groups;
}

/* Tokens of a block of group @g. */
u32 group_tokens(const struct sim *w, const struct sim_client *cl, u32 g)
{
	const struct kvmm_attach_req *req = &w->dom[cl->dom].req;

	return req->group[g].block_tokens ?: req->block_tokens;
}

u64 group_value(u64 hash, u32 g)
{
	return hash ^ (g * 0xd1b54a32d192ed03ull);
}

/* The first position that a step at @at attends to in group @g. */
u32 group_low(const struct sim *w, const struct sim_client *cl, u32 g, u32 at)
{
	u32 window = w->dom[cl->dom].req.group[g].window;

	return window && at >= window ? at - window + 1 : 0;
}

/* The most tokens of a sequence that a step writes, as said at the attach. */
u32 groups_step(const struct sim *w, const struct sim_client *cl)
{
	const struct kvmm_attach_req *req = &w->dom[cl->dom].req;
	u32 g, most = UINT32_MAX;

	for (g = 0; g < req->nr_groups; g++)
		if (req->group[g].window)
			most = min(most, req->step_tokens ?: req->group[g].window);
	return most;
}

/* The most blocks of group @g that a sequence of @tokens holds at once. */
static u64 group_most(const struct sim *w, const struct sim_client *cl, u32 g,
		      u64 tokens)
{
	const struct kvmm_attach_req *req = &w->dom[cl->dom].req;
	u32 bt = group_tokens(w, cl, g), window = req->group[g].window;
	u64 all = DIV_ROUND_UP(tokens, (u64)bt);
	u64 seen = (u64)window + (req->step_tokens ?: window);

	return window ? min(all, DIV_ROUND_UP(seen, (u64)bt) + 1) : all;
}

/* The most blocks that a sequence of @tokens holds at once. */
u64 groups_most(const struct sim *w, const struct sim_client *cl, u64 tokens)
{
	u64 nr = 0;
	u32 g;

	for (g = 0; g < groups_of(w, cl); g++)
		nr += group_most(w, cl, g, tokens);
	return nr;
}

/* Table pages of a sequence of @tokens. */
u64 groups_pages(const struct sim *w, const struct sim_client *cl, u64 tokens)
{
	u64 nr = 0, entries;
	u32 g;

	for (g = 0; g < groups_of(w, cl); g++) {
		entries = DIV_ROUND_UP(tokens, (u64)group_tokens(w, cl, g));
		nr += DIV_ROUND_UP(entries, (u64)KVMM_TABLE_ENTRIES);
	}
	return nr;
}

/* Is all of a prompt of @tokens reserved at its admission? */
bool groups_reserve(const struct sim *w, const struct sim_client *cl, u32 tokens)
{
	u32 g;

	for (g = 0; g < groups_of(w, cl); g++)
		if (w->dom[cl->dom].req.group[g].window &&
		    tokens > w->dom[cl->dom].req.group[g].window)
			return false;
	return true;
}

/* The shortest length that the sequence's tables still serve. */
bool groups_reach(const struct sim *w, const struct sim_client *cl,
		  const struct sim_seq *q, u32 len)
{
	u32 g, bt, first, window;

	for (g = 0; g < groups_of(w, cl); g++) {
		bt = group_tokens(w, cl, g);
		window = w->dom[cl->dom].req.group[g].window;
		first = max(q->trim_want, group_low(w, cl, g, q->kept_at)) / bt * bt;
		if (len < first || (first && window && len - first < window - 1))
			return false;
	}
	return true;
}

/* A step ended: the core has trimmed behind the windows before this position. */
void groups_trim(struct sim_client *cl, struct sim_seq *q)
{
	u32 at = q->valid, i, n;

	for (i = 0; i < cl->nr_steps; i++) {
		const struct sim_step *st =
			&cl->steps[(cl->step_head + i) % KVMM_MAX_STEPS];

		for (n = 0; n < st->nr; n++)
			if (st->e[n].slot == q->slot)
				at = min(at, st->e[n].start);
	}
	q->kept_at = max(q->kept_at, at);
}

/* Give a domain more groups, in some seeds, of other numbers than the rest of the plan. */
void groups_draw(struct sim *w, u32 dom)
{
	struct kvmm_attach_req *req = &w->dom[dom].req;
	struct rng r;
	u32 g;

	rng_seed(&r, mix2(w->seed, 4000 + dom));
	if (mix2(w->seed, 12) % 3 || w->plan.wide || rng_chance(&r, 250))
		return;
	req->nr_groups = rng_range(&r, 2, SIM_GROUPS);
	for (g = 1; g < req->nr_groups; g++) {
		req->group[g] = req->group[0];
		req->group[g].block_tokens = PICK(&r, 0, 16, 16, 32, 48);
		req->group[g].window = PICK(&r, 0, 1, 5, 16, 17, 33, 64, 100);
		/* A block must not have more tokens than ids have room for. */
		if (req->group[g].block_tokens > req->block_tokens)
			req->group[g].block_tokens = 0;
	}
	/* A client that writes one token in a step would not get on. */
	req->step_tokens = PICK(&r, 48, 64, 96, 160);
}
