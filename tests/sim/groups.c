// SPDX-License-Identifier: Apache-2.0
/*
 * groups.c - layer groups of simulated domains
 *
 * Some seeds have domains with several layer groups, with windows or without, or with
 * records that each token changes.  The first cell of each block of a record holds the
 * hash of the last token mixed with the group and the part of the record.  Each other
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

/* Tokens of the smallest block of a group. */
u32 groups_least(const struct sim *w, const struct sim_client *cl)
{
	u32 g, least = group_tokens(w, cl, 0);

	for (g = 1; g < groups_of(w, cl); g++)
		least = min(least, group_tokens(w, cl, g) / group_width(w, cl, g));
	return least;
}

/* Tokens of which a hit has a whole number: the blocks of all groups divide them. */
u32 groups_unit(const struct sim *w, const struct sim_client *cl)
{
	u32 g, unit = 1, more;

	for (g = 0; g < groups_of(w, cl); g++)
		for (more = unit; unit % group_tokens(w, cl, g);)
			unit += more;
	return unit;
}

u64 group_value(u64 hash, u32 g)
{
	return hash ^ (g * 0xd1b54a32d192ed03ull);
}

/* ---- groups of records ---- */

bool group_is_state(const struct sim *w, const struct sim_client *cl, u32 g)
{
	return w->dom[cl->dom].req.group[g].kind == KVMM_GROUP_STATE;
}

bool groups_have_state(const struct sim *w, const struct sim_client *cl)
{
	u32 g;

	for (g = 0; g < groups_of(w, cl); g++)
		if (group_is_state(w, cl, g))
			return true;
	return false;
}

/* Blocks of a record; 1 in other groups. */
u32 group_width(const struct sim *w, const struct sim_client *cl, u32 g)
{
	const struct kvmm_group *gr = &w->dom[cl->dom].req.group[g];

	if (!group_is_state(w, cl, g))
		return 1;
	return (u32)DIV_ROUND_UP((u64)gr->layers * gr->kv_heads,
				 cl->info.block_bytes / cl->info.stride[g]);
}

/* Tokens that a token needs: that of a record holds all before it. */
static u32 group_window(const struct sim *w, const struct sim_client *cl, u32 g)
{
	return group_is_state(w, cl, g) ? 2 : w->dom[cl->dom].req.group[g].window;
}

/* The first table index of the block or record that the sequence writes for @pos. */
u32 group_at(const struct sim *w, const struct sim_client *cl, const struct sim_seq *q,
	     u32 g, u32 pos)
{
	return pos / group_tokens(w, cl, g) * group_width(w, cl, g) + q->shift[g];
}

/* The first table index of the record that has the state behind @upto tokens. */
static u32 record_of(const struct sim *w, const struct sim_client *cl,
		     const struct sim_seq *q, u32 g, u32 upto)
{
	return group_at(w, cl, q, g, upto - 1) - (upto <= q->shift_at ? q->shift[g] : 0);
}

/* Each block of a record has a value of its own. */
u32 group_part(u32 g, u32 part)
{
	return g + part * KVMM_MAX_GROUPS;
}

/* Law 5: the record holds the state behind @upto tokens, in each of its blocks. */
void groups_verify_state(struct sim *w, struct sim_client *cl, const struct sim_seq *q,
			 u32 g, u32 upto, const char *why)
{
	u32 i, entry;

	/* A later step may have changed the record since. */
	if (q->dev_len > upto && upto % group_tokens(w, cl, g))
		return;
	for (i = 0; upto && i < group_width(w, cl, g); i++) {
		entry = q->table[g][record_of(w, cl, q, g, upto) + i];
		LAW(w, mem_has(w, cl, mem_block(w, cl, entry, why),
			       group_value(q->hash[upto - 1], group_part(g, i))),
		    "law 5: client %u: sequence %llx: %s: group %u: block %u of the record behind %u tokens (entry %u) holds something else",
		    cl->id, (unsigned long long)q->handle, why, g, i, upto, entry);
	}
}

/* A grant names the record to read and the first to write: the same, or the next. */
void groups_grant_state(struct sim *w, struct sim_client *cl, struct sim_seq *q, u32 g,
			const struct kvmm_begin_arg *a, const struct kvmm_begin_res *res)
{
	u32 from = a->start ? record_of(w, cl, q, g, a->start) : KVMM_NO_INDEX;
	u32 to = group_at(w, cl, q, g, a->start);
	bool shifts = a->start % group_tokens(w, cl, g) && !q->shift[g] &&
		     res->copy_to == to + group_width(w, cl, g);

	if (!a->max_tokens) {
		to = KVMM_NO_INDEX;
		shifts = false;
	}
	LAW(w, res->copy_from == from && (res->copy_to == to || shifts) && !res->copy_tokens,
	    "client %u: sequence %llx: group %u: a step at %u reads the record at %u and writes that at %u, not %u and %u",
	    cl->id, (unsigned long long)q->handle, g, a->start, res->copy_from,
	    res->copy_to, from, to);
	if (!shifts)
		return;
	q->shift[g] = group_width(w, cl, g);
	q->shift_at = a->start;
	cover_note("records left to their other readers");
}

/* A step ended: a shared record before that of the sequence is in its table no more. */
void groups_settle(const struct sim *w, struct sim_client *cl, struct sim_seq *q)
{
	u32 g;

	for (g = 0; g < groups_of(w, cl); g++)
		if (!q->nr_steps || seq_cover(cl, q) <= q->shift_at)
			q->shift[g] = 0;
}

/* ---- windows ---- */

/* The first position that a step at @at attends to in group @g. */
u32 group_low(const struct sim *w, const struct sim_client *cl, u32 g, u32 at)
{
	u32 window = group_window(w, cl, g);

	return window && at >= window ? at - window + 1 : 0;
}

/* The most tokens of a sequence that a step writes, as said at the attach. */
u32 groups_step(const struct sim *w, const struct sim_client *cl)
{
	const struct kvmm_attach_req *req = &w->dom[cl->dom].req;
	u32 g, most = UINT32_MAX;

	for (g = 0; g < req->nr_groups; g++)
		if (group_window(w, cl, g))
			most = min(most, req->step_tokens ?: group_window(w, cl, g));
	return most;
}

/* The most blocks of group @g that a sequence of @tokens holds at once. */
static u64 group_most(const struct sim *w, const struct sim_client *cl, u32 g,
		      u64 tokens)
{
	const struct kvmm_attach_req *req = &w->dom[cl->dom].req;
	u32 bt = group_tokens(w, cl, g), window = group_window(w, cl, g);
	u64 all = DIV_ROUND_UP(tokens, (u64)bt), seen;

	seen = (u64)window + (req->step_tokens ?: window);
	if (window)
		all = min(all, DIV_ROUND_UP(seen, (u64)bt) + 1);
	return all * group_width(w, cl, g);
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
		entries = DIV_ROUND_UP(tokens, (u64)group_tokens(w, cl, g)) *
			  group_width(w, cl, g);
		if (group_is_state(w, cl, g))
			entries += group_width(w, cl, g);
		nr += DIV_ROUND_UP(entries, (u64)KVMM_TABLE_ENTRIES);
	}
	return nr;
}

/* Is all of a prompt of @tokens reserved at its admission? */
bool groups_reserve(const struct sim *w, const struct sim_client *cl, u32 tokens)
{
	u32 g;

	for (g = 0; g < groups_of(w, cl); g++)
		if (group_window(w, cl, g) && tokens > group_window(w, cl, g))
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
		window = group_window(w, cl, g);
		first = max(group_is_state(w, cl, g) ? 0 : q->trim_want,
			    group_low(w, cl, g, q->kept_at)) / bt * bt;
		if (group_is_state(w, cl, g) && len % bt && len != q->valid)
			return false;
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

/* Make a group one of records, of one block or of several. */
static void state_draw(struct rng *r, const struct kvmm_attach_req *req,
		       struct kvmm_group *g)
{
	const struct kvmm_group *kv = &req->group[0];
	u32 bytes = kv->layers * kv->kv_heads * (kv->k_bytes + kv->v_bytes) *
		    req->block_tokens;

	*g = (struct kvmm_group){
		.kind = KVMM_GROUP_STATE, .layers = PICK(r, 1, 1, 2),
		.kv_heads = PICK(r, 1, 2, 2),
		.k_bytes = max(bytes / PICK(r, 1, 2, 5) / 128 * 128, 100u),
		.block_tokens = g->block_tokens,
	};
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
	if (rng_chance(&r, 500))
		state_draw(&r, req, &req->group[rng_range(&r, 1, req->nr_groups - 1)]);
	/* A client that writes one token in a step would not get on. */
	req->step_tokens = PICK(&r, 48, 64, 96, 160);
}
