// SPDX-License-Identifier: Apache-2.0
/*
 * lookup.c - LOOKUP, and a check of its answer
 *
 * A client looks up the tokens of one of its sequences, in pieces of any length,
 * with its salt or another one, now and then with a token that differs.  Each
 * block that is found must be in the memory of the tier that the answer names:
 * the world searches its cells for the hash of (domain, salt, tokens up to the
 * block's end).  A slot of an area may be damaged without the core knowing it.
 *
 * In some lookups all views must be the same before and after it.  In others the
 * sequence is matched at once.  If it is admitted in the same event, and nothing
 * was dropped for that or after the lookup, it has the tokens that the lookup found
 * on the device and in the host pool, and no block that the lookup did not find.
 */
#include "tests/sim/sim.h"

#define SLOTS	512u	/* of the table of hashes: a power of two */

/* The place of a cell in which a hash was found. */
#define IN_DEVICE	BIT(KVMM_TIER_DEVICE)
#define IN_HOST		BIT(KVMM_TIER_HOST)
#define IN_AREA		BIT(KVMM_TIER_AREA)

/**
 * struct lookup - a lookup under way
 * @nr:    tokens of the prompt
 * @found: tokens found, and in each tier
 * @ready: tokens before the first block that is not on the device or in the host
 *         pool
 * @hash:  content of a cell at the end of each block
 * @tier:  of each block that was found
 * @slot:  blocks by hash, plus one
 * @where: for each block, places in which its hash is
 */
struct lookup {
	u64	salt;
	u32	nr;
	u32	bt;
	u32	found;
	u32	ready;
	u64	cookie[2];
	u32	tok[SIM_TOKENS];
	u64	hash[SIM_BLOCKS];
	u32	tier[SIM_BLOCKS];
	u32	slot[SLOTS];
	u32	where[SIM_BLOCKS];
};

static struct lookup look;

/* ---- the request ---- */

static void lookup_draw(struct sim *w, const struct sim_client *cl,
			const struct sim_seq *q, bool plain)
{
	struct rng *r = &w->rng;
	u32 most = q->prompt_len + q->max_tokens, i;
	u64 h;

	memset(&look, 0, sizeof(look));
	look.bt = w->dom[cl->dom].req.block_tokens;
	look.salt = q->salt;
	look.nr = plain ? q->ids_total : rng_range(r, 1, most);
	memcpy(look.tok, q->tok, look.nr * sizeof(*look.tok));
	if (!plain && rng_chance(r, 200))
		look.salt = rng_below(r, w->plan.nr_salts + 1);
	if (!plain && rng_chance(r, 200))
		look.tok[rng_below(r, look.nr)] ^= 1;
	h = mix2(w->dom[cl->dom].uid, look.salt);
	for (i = 0; i < look.nr; i++) {
		h = mix2(h, look.tok[i]);
		if (i % look.bt == look.bt - 1)
			look.hash[i / look.bt] = h;
	}
}

/* Add an answer to a piece of @nr tokens.  Return: whether there is more to ask. */
static bool lookup_add(struct sim *w, const struct sim_client *cl, u32 nr)
{
	const struct kvmm_lookup_res *res = (const void *)w->results;
	u32 tokens[KVMM_NR_LOOKUP_TIERS] = { 0 }, i, b, at = look.found / look.bt;
	bool more = res->flags & KVMM_LOOKUP_MORE;

	LAW(w, !res->status && res->nr_runs <= KVMM_LOOKUP_RUNS &&
	    !(res->flags & ~KVMM_LOOKUP_MORE),
	    "client %u: LOOKUP: %d, %u runs, flags %x", cl->id, res->status,
	    res->nr_runs, res->flags);
	for (i = 0; i < res->nr_runs; i++) {
		const struct kvmm_lookup_run *run = &res->run[i];

		LAW(w, run->tier < KVMM_NR_LOOKUP_TIERS && run->blocks &&
		    (!i || run[-1].tier != run->tier),
		    "client %u: LOOKUP: run %u of tier %u has %u blocks", cl->id, i,
		    run->tier, run->blocks);
		tokens[run->tier] += run->blocks * look.bt;
		for (b = 0; b < run->blocks && at < SIM_BLOCKS; b++)
			look.tier[at++] = run->tier;
	}
	LAW(w, !memcmp(tokens, res->tokens, sizeof(tokens)) &&
	    at * look.bt == look.found + res->found && res->found <= nr &&
	    (!more || (res->found && res->found + look.bt <= nr)),
	    "client %u: LOOKUP: %u of %u tokens found, runs say %u, flags %x",
	    cl->id, res->found, nr, at * look.bt - look.found, res->flags);
	look.found += res->found;
	look.cookie[0] = res->cookie[0];
	look.cookie[1] = res->cookie[1];
	if (more)
		cover_note("lookups that the core did not finish");
	return more || (res->found == nr && look.found < look.nr);
}

/* Ask for one piece.  Return: whether there is more to ask. */
static bool lookup_piece(struct sim *w, struct sim_client *cl)
{
	struct kvmm_lookup_arg *a = (struct kvmm_lookup_arg *)w->args;
	u32 left = look.nr - look.found, nr = left;
	int err;

	if (rng_chance(&w->rng, 300) && left > look.bt)
		nr = rng_range(&w->rng, 1, left / look.bt) * look.bt;
	*a = (struct kvmm_lookup_arg){
		.salt = look.salt, .start = look.found, .nr_ids = nr,
		.cookie = { look.cookie[0], look.cookie[1] },
		.flags = nr == left ? KVMM_LOOKUP_LAST : 0,
	};
	memcpy(a + 1, look.tok + look.found, nr * sizeof(*look.tok));
	err = shell_submit(w, cl, KVMM_OP_SEQ_LOOKUP, 1, 0,
			   (u32)sizeof(*a) + 4 * nr);
	LAW(w, !err, "client %u: LOOKUP: %d", cl->id, err);
	cover_entry(KVMM_OP_SEQ_LOOKUP, 0);
	return lookup_add(w, cl, nr);
}

/* ---- the memory ---- */

static u32 slot_of(u64 hash)
{
	u32 at = (u32)hash % SLOTS;

	while (look.slot[at] && look.hash[look.slot[at] - 1] != hash)
		at = (at + 1) % SLOTS;
	return at;
}

static void cells_search(const u64 *cell, u64 nr, u32 place)
{
	u64 i;
	u32 b;

	for (i = 0; i < nr; i++) {
		b = look.slot[slot_of(cell[i])];
		if (b)
			look.where[b - 1] |= place;
	}
}

static void lookup_search(struct sim *w)
{
	const u64 token = w->cfg.min_token_bytes;
	u32 i;

	for (i = 0; i < look.found / look.bt; i++)
		look.slot[slot_of(look.hash[i])] = i + 1;
	cells_search(w->cell, w->cfg.pool_bytes / token, IN_DEVICE);
	cells_search(w->host, w->cfg.host_bytes / token, IN_HOST);
	for (i = 0; i < w->plan.nr_files; i++)
		cells_search(w->file[i].cell, w->cfg.area_bytes / token, IN_AREA);
}

/*
 * A number that changes when content moves.  The request of a lookup is an event, and
 * after it the core goes on with sequences that wait.
 */
static u64 nr_moves(const struct sim *w)
{
	struct core_tier_view v;
	u64 ev[NR_CORE_EVENTS];

	core_get_events(w->core, ev);
	if (core_get_tier(w->core, CORE_POOL_HOST, &v))
		v = (struct core_tier_view){ 0 };
	return ev[CORE_EV_admit] + ev[CORE_EV_swap_restore] + ev[CORE_EV_demote_free] +
	       ev[CORE_EV_prefix_evict] + ev[CORE_EV_host_drop] +
	       (v.used << 20) + (v.limbo << 40);
}

/*
 * Each block must be where the answer says, unless content moved since; two equal hashes
 * are one block.
 */
static void lookup_judge(struct sim *w, const struct sim_client *cl, bool moved)
{
	static const u32 places[KVMM_NR_LOOKUP_TIERS] = {
		IN_DEVICE, IN_HOST, IN_AREA, IN_DEVICE | IN_HOST | IN_AREA,
	};
	bool ready = true;
	u32 i;

	if (look.found)
		lookup_search(w);
	for (i = 0; i < look.found / look.bt; i++) {
		u32 tier = look.tier[i];

		ready = ready && (tier == KVMM_TIER_DEVICE || tier == KVMM_TIER_HOST);
		look.ready += ready ? look.bt : 0;
		if (moved || (w->plan.damage && tier >= KVMM_TIER_AREA))
			continue;
		LAW(w, look.where[i] & places[tier],
		    "client %u: LOOKUP found block %u of %u in tier %u, and it is in %x",
		    cl->id, i, look.found / look.bt, tier, look.where[i]);
	}
}

/* ---- a match at once ---- */

static bool wants_ids(struct sim *w, struct sim_client *cl, struct sim_seq *q)
{
	const struct kvmm_seq_status *st;

	if (q->closing || q->ids_done || (q->flags & KVMM_OPEN_NO_MATCH))
		return false;
	st = seq_look(w, cl, q);
	return st->state == KVMM_SEQ_WAITING || st->state == KVMM_SEQ_RECOMPUTE;
}

/* Number of times that content left a tier, or the device's work failed. */
static u64 nr_dropped(const struct sim *w)
{
	u64 ev[NR_CORE_EVENTS];

	core_get_events(w->core, ev);
	return ev[CORE_EV_prefix_evict] + ev[CORE_EV_host_drop] +
	       ev[CORE_EV_reclaim_direct] + ev[CORE_EV_demote_free] +
	       ev[CORE_EV_pgdemote] + ev[CORE_EV_preempt_recompute] +
	       ev[CORE_EV_preempt_swap] + ev[CORE_EV_span_isolate] +
	       ev[CORE_EV_extent_revoke];
}

/* @moved: content moved since the lookup was answered, so its answer is no measure. */
static void lookup_match(struct sim *w, struct sim_client *cl, struct sim_seq *q,
			 bool moved)
{
	const struct kvmm_seq_status *st = &cl->status[q->slot];
	u32 whole = (look.nr - 1) / look.bt * look.bt;
	u64 dropped = nr_dropped(w);

	if (!seq_act_match_whole(w, cl, q) || moved || nr_dropped(w) != dropped ||
	    (st->state != KVMM_SEQ_READY && st->state != KVMM_SEQ_RESTORING))
		return;
	cover_note("matches right after a lookup");
	LAW(w, st->cached_len >= min(look.ready, whole),
	    "client %u: LOOKUP found %u of %u tokens, %u of them ready; MATCH found %u",
	    cl->id, look.found, look.nr, look.ready, st->cached_len);
	LAW(w, st->cached_len / look.bt <= look.found / look.bt,
	    "client %u: LOOKUP found %u of %u tokens, MATCH found %u", cl->id,
	    look.found, look.nr, st->cached_len);
}

/* A sequence that is swapped out, or waits for ids, or any. */
static struct sim_seq *lookup_whom(struct sim *w, struct sim_client *cl)
{
	u32 i, at = rng_below(&w->rng, SIM_SEQS), kind = rng_below(&w->rng, 3);

	/* Domains with several groups refuse it. */
	if (groups_of(w, cl) > 1)
		return NULL;
	for (i = 0; i < SIM_SEQS && kind; i++) {
		struct sim_seq *q = &cl->seqs[(at + i) % SIM_SEQS];

		if (q->used && !q->closing &&
		    (kind == 1 ? q->swapped : wants_ids(w, cl, q)))
			return q;
	}
	return seq_random(w, cl);
}

/*
 * Look up the tokens of @q; @still: all views stay the same.
 * Return: whether content moved meanwhile.
 */
static bool lookup_run(struct sim *w, struct sim_client *cl, const struct sim_seq *q,
		       bool still, bool match)
{
	u64 before = still ? laws_settled_digest(w, cl) : 0, moves = nr_moves(w);
	bool moved;

	lookup_draw(w, cl, q, match);
	LOG(w, "client %u: LOOKUP of %u tokens of %llx%s", cl->id, look.nr,
	    (unsigned long long)q->handle, match ? ", then MATCH" : "");
	while (lookup_piece(w, cl))
		;
	LAW(w, !still || laws_digest(w) == before,
	    "client %u: a LOOKUP changed something", cl->id);
	moved = nr_moves(w) != moves;
	lookup_judge(w, cl, moved);
	return moved;
}

/* Look up the tokens of some sequence.  Return: false: there is none. */
bool lookup_act(struct sim *w, struct sim_client *cl)
{
	struct sim_seq *q = lookup_whom(w, cl);
	bool still = rng_chance(&w->rng, 200), match, moved;

	if (!q)
		return false;
	match = !still && wants_ids(w, cl, q);
	moved = lookup_run(w, cl, q, still, match);
	if (match)
		lookup_match(w, cl, q, moved);
	return true;
}

/*
 * While an area has content, which is rare, look up more often: not instead of
 * another act, but after it.
 */
void lookup_area(struct sim *w, struct sim_client *cl)
{
	struct core_tier_view v;
	struct sim_seq *q;
	bool used = false;
	u32 i;

	for (i = CORE_POOL_AREA; w->plan.nr_files && i < CORE_NR_POOLS; i++)
		used |= !core_get_tier(w->core, i, &v) && v.used;
	if (!used || cl->state != SIM_ALIVE || !rng_chance(&w->rng, 300))
		return;
	q = lookup_whom(w, cl);
	if (q)
		(void)lookup_run(w, cl, q, false, false);
}
