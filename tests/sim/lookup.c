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

#define SLOTS	2048u	/* of the table of hashes: a power of two */

/* The place of a cell in which a hash was found. */
#define IN_DEVICE	BIT(KVMM_TIER_DEVICE)
#define IN_HOST		BIT(KVMM_TIER_HOST)
#define IN_AREA		BIT(KVMM_TIER_AREA)

/**
 * struct mark - a block that an answer needs
 * @hash:  content of a cell at its end
 * @at:    tokens before the block of the answer that it is in
 * @extra: it is of a group with a window
 * @where: places in which its hash is
 */
struct mark {
	u64	hash;
	u32	at;
	bool	extra;
	u32	where;
};

/**
 * struct lookup - a lookup under way
 * @nr:    tokens of the prompt
 * @unit:  tokens of a block of the answer
 * @found: tokens found, and in each tier
 * @hit:   the longest hit
 * @from:  tokens before the piece in which the hit ends
 * @ready: tokens before the first block that is not on the device or in the host
 *         pool
 * @hash:  content of a cell, without its group, at each position
 * @tier:  of each block of the answer
 * @slot:  marks by hash, plus one
 */
struct lookup {
	u64	salt;
	u32	nr;
	u32	unit;
	u32	found;
	u32	hit;
	u32	from;
	u32	ready;
	u64	cookie[2];
	u32	tok[SIM_TOKENS];
	u64	hash[SIM_TOKENS];
	u32	tier[SIM_BLOCKS];
	u32	slot[SLOTS];
	u32	nr_marks;
	struct mark mark[SIM_BLOCKS * SIM_GROUPS];
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
	look.unit = groups_unit(w, cl);
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
		look.hash[i] = h;
	}
}

/* Add an answer to a piece of @nr tokens.  Return: whether there is more to ask. */
static bool lookup_add(struct sim *w, const struct sim_client *cl, u32 nr)
{
	const struct kvmm_lookup_res *res = (const void *)w->results;
	u32 tokens[KVMM_NR_LOOKUP_TIERS] = { 0 }, i, b, at = look.found / look.unit;
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
		tokens[run->tier] += run->blocks * look.unit;
		for (b = 0; b < run->blocks && at < SIM_BLOCKS; b++)
			look.tier[at++] = run->tier;
	}
	LAW(w, !memcmp(tokens, res->tokens, sizeof(tokens)) &&
	    at * look.unit == look.found + res->found && res->found <= nr &&
	    (!more || (res->found && res->found + look.unit <= nr)),
	    "client %u: LOOKUP: %u of %u tokens found, runs say %u, flags %x",
	    cl->id, res->found, nr, at * look.unit - look.found, res->flags);
	LAW(w, res->hit % look.unit == 0 && res->hit <= look.found + res->found &&
	    (!res->hit || res->hit > look.found) &&
	    (groups_of(w, cl) > 1 || !res->found || res->hit == look.found + res->found),
	    "client %u: LOOKUP: %u tokens found after %u, and a hit of %u", cl->id,
	    res->found, look.found, res->hit);
	if (res->hit) {
		look.hit = res->hit;
		look.from = look.found;
	}
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

	if (rng_chance(&w->rng, 300) && left > look.unit)
		nr = rng_range(&w->rng, 1, left / look.unit) * look.unit;
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

	while (look.slot[at] && look.mark[look.slot[at] - 1].hash != hash)
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
			look.mark[b - 1].where |= place;
	}
}

/* Note the blocks of a group that the answer needs: of a window, those of the last one. */
static void marks_add(const struct sim *w, const struct sim_client *cl, u32 g)
{
	const u32 bt = group_tokens(w, cl, g);
	const bool window = w->dom[cl->dom].req.group[g].window;
	u32 at = window ? group_low(w, cl, g, look.hit) / bt * bt : 0;
	u32 end = window ? look.hit : look.found;

	for (; at < end; at += bt) {
		struct mark *m = &look.mark[look.nr_marks++];

		*m = (struct mark){
			.hash = group_value(look.hash[at + bt - 1], g),
			.at = at / look.unit * look.unit, .extra = window,
		};
		look.slot[slot_of(m->hash)] = look.nr_marks;
	}
}

static void lookup_search(struct sim *w, const struct sim_client *cl)
{
	const u64 token = w->cfg.min_token_bytes;
	u32 i;

	for (i = 0; i < groups_of(w, cl); i++)
		marks_add(w, cl, i);
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

/* The places in which a block may be whose tier is named, or a faster one. */
static const u32 faster[KVMM_NR_LOOKUP_TIERS] = {
	IN_DEVICE, IN_DEVICE | IN_HOST, IN_DEVICE | IN_HOST | IN_AREA,
	IN_DEVICE | IN_HOST | IN_AREA,
};

/*
 * A block of a group without a window must be in the tier that the answer names or in a
 * faster one.  So must one of a window, if the answer that has the hit has its tier.
 */
static void mark_judge(struct sim *w, const struct sim_client *cl, const struct mark *m)
{
	u32 tier = look.tier[m->at / look.unit];
	bool known = !m->extra || m->at >= look.from;

	if (w->plan.damage && (!known || tier >= KVMM_TIER_AREA))
		return;
	LAW(w, known ? m->where & faster[tier] : m->where,
	    "client %u: LOOKUP found a block after token %u of %u in tier %u, and it is in %x",
	    cl->id, m->at, look.found, tier, m->where);
}

/* One of the blocks must be in the tier that the answer names. */
static void unit_judge(struct sim *w, const struct sim_client *cl, u32 at)
{
	static const u32 places[KVMM_NR_LOOKUP_TIERS] = {
		IN_DEVICE, IN_HOST, IN_AREA, IN_DEVICE | IN_HOST | IN_AREA,
	};
	u32 tier = look.tier[at / look.unit], i;

	/* An earlier piece may have had another hit. */
	if (at < look.from || (w->plan.damage && tier >= KVMM_TIER_AREA))
		return;
	for (i = 0; i < look.nr_marks; i++)
		if (look.mark[i].at == at && (look.mark[i].where & places[tier]))
			return;
	sim_fail(w, "client %u: LOOKUP found no block after token %u of %u in tier %u", cl->id,
		 at, look.found, tier);
}

/*
 * Each block must be where the answer says, unless content moved since; two equal hashes
 * are one block.
 */
static void lookup_judge(struct sim *w, const struct sim_client *cl, bool moved)
{
	bool ready = true;
	u32 i, at;

	for (at = 0; at < look.found; at += look.unit) {
		u32 tier = look.tier[at / look.unit];

		ready = ready && (tier == KVMM_TIER_DEVICE || tier == KVMM_TIER_HOST);
		look.ready += ready ? look.unit : 0;
	}
	if (moved || !look.found)
		return;
	lookup_search(w, cl);
	for (i = 0; i < look.nr_marks; i++)
		mark_judge(w, cl, &look.mark[i]);
	for (at = 0; at < look.found; at += look.unit)
		unit_judge(w, cl, at);
	if (groups_of(w, cl) > 1)
		cover_note(look.hit ? "lookups in several groups that found a hit" :
				      "lookups in several groups without a hit");
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
	u32 whole = (look.nr - !(q->flags & KVMM_OPEN_WHOLE_PROMPT)) / look.unit * look.unit;
	const bool many = groups_of(w, cl) > 1;
	u64 dropped = nr_dropped(w);

	if (!seq_act_match_whole(w, cl, q) || moved || nr_dropped(w) != dropped ||
	    (st->state != KVMM_SEQ_READY && st->state != KVMM_SEQ_RESTORING))
		return;
	cover_note("matches right after a lookup");
	/* With several groups a shorter hit may lack the window that a longer one has. */
	if (!many || (look.hit <= whole && look.ready >= look.hit && !look.from))
		LAW(w, st->cached_len >= min(look.ready, many ? look.hit : whole),
		    "client %u: LOOKUP found %u of %u tokens, %u of them ready; MATCH found %u",
		    cl->id, look.hit, look.nr, look.ready, st->cached_len);
	LAW(w, st->cached_len / look.unit <= look.hit / look.unit,
	    "client %u: LOOKUP found %u of %u tokens, MATCH found %u", cl->id,
	    look.hit, look.nr, st->cached_len);
}

/* A sequence that is swapped out, or waits for ids, or any. */
static struct sim_seq *lookup_whom(struct sim *w, struct sim_client *cl)
{
	u32 i, at = rng_below(&w->rng, SIM_SEQS), kind = rng_below(&w->rng, 3);

	/* Domains with a group of records refuse it. */
	if (groups_have_state(w, cl))
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
