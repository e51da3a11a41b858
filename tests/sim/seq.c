// SPDX-License-Identifier: Apache-2.0
/*
 * seq.c - simulated sequences: status, tables, tokens
 *
 * All tokens that a sequence will ever have are decided when it is opened or
 * forked.  The tokens of a prompt follow from choices at a few branches, so
 * prompts share beginnings, and the same ids come after different beginnings
 * too.  A later token follows from the hash of all before it, so that equal
 * prefixes go on equally.  The cell of each position must hold the hash of
 * (domain, salt, tokens up to here), whichever sequence wrote it.
 *
 * A client learns the state of its sequences only from their status records,
 * which it reads before it uses a sequence; laws.c judges events.  The client
 * refreshes its copy of a block table from table_lo on, as an engine does.  The
 * copy is compared with the shadow while a step is open.
 */
#include "tests/sim/sim.h"

/* End of the range that open steps may write, or the valid length. */
u32 seq_cover(const struct sim_client *cl, const struct sim_seq *q)
{
	u32 cover = q->valid, i, n;

	if (!q->nr_steps)
		return cover;
	for (i = 0; i < cl->nr_steps; i++) {
		const struct sim_step *st =
			&cl->steps[(cl->step_head + i) % KVMM_MAX_STEPS];

		for (n = 0; n < st->nr; n++)
			if (st->e[n].slot == q->slot)
				cover = max(cover, st->e[n].end);
	}
	return cover;
}

u32 seq_blocks(const struct sim *w, const struct sim_client *cl, const struct sim_seq *q,
	       u32 g, u32 tokens)
{
	return DIV_ROUND_UP(tokens, group_tokens(w, cl, g)) * group_width(w, cl, g) +
	       q->shift[g];
}

/* ---- tables ---- */

/* The @idx-th shadow page of a sequence's chain in a group. */
static const struct kvmm_table_page *shadow_page(struct sim *w,
						 struct sim_client *cl,
						 struct sim_seq *q, u32 g, u32 idx)
{
	u32 page = cl->status[q->slot].table[g], i;

	for (i = 0; ; i++) {
		LAW(w, page < cl->info.nr_tables,
		    "client %u: table of sequence %llx ends at page %u of %u",
		    cl->id, (unsigned long long)q->handle, i, idx);
		if (i == idx)
			break;
		page = cl->tables[page].next;
	}
	LAW(w, cl->tables[page].seq == q->handle &&
	    cl->tables[page].group == g &&
	    cl->tables[page].first == idx * KVMM_TABLE_ENTRIES,
	    "client %u: page %u is not the table of sequence %llx from %u on",
	    cl->id, page, (unsigned long long)q->handle,
	    idx * KVMM_TABLE_ENTRIES);
	return &cl->tables[page];
}

static u32 shadow_entry(struct sim *w, struct sim_client *cl,
			struct sim_seq *q, u32 g, u32 idx)
{
	return shadow_page(w, cl, q, g, idx / KVMM_TABLE_ENTRIES)
		->entry[idx % KVMM_TABLE_ENTRIES];
}

/*
 * The entry of position @pos as the core has it now: the block may have moved
 * since the client read its table.
 */
u32 seq_entry_now(struct sim *w, struct sim_client *cl, struct sim_seq *q,
		  u32 g, u32 pos)
{
	u32 idx = group_at(w, cl, q, g, pos);

	if (cl->status[q->slot].state != KVMM_SEQ_READY ||
	    idx >= seq_blocks(w, cl, q, g, seq_cover(cl, q)))
		return KVMM_NO_INDEX;
	return shadow_entry(w, cl, q, g, idx);
}

/* Behind the last entry the table must say that it ends. */
static void shadow_ends(struct sim *w, struct sim_client *cl,
			struct sim_seq *q, u32 g, u32 nr)
{
	const struct kvmm_table_page *t;
	u32 i = nr % KVMM_TABLE_ENTRIES;

	if (!nr) {
		LAW(w, cl->status[q->slot].table[g] == KVMM_NO_INDEX,
		    "client %u: sequence %llx has no blocks but a table at page %u",
		    cl->id, (unsigned long long)q->handle,
		    cl->status[q->slot].table[g]);
		return;
	}
	t = shadow_page(w, cl, q, g, (nr - 1) / KVMM_TABLE_ENTRIES);
	LAW(w, t->next == KVMM_NO_INDEX,
	    "client %u: table of sequence %llx goes on after %u entries",
	    cl->id, (unsigned long long)q->handle, nr);
	for (; i && i < KVMM_TABLE_ENTRIES; i++)
		LAW(w, t->entry[i] == KVMM_NO_INDEX,
		    "client %u: sequence %llx: table entry %u behind the last is %u",
		    cl->id, (unsigned long long)q->handle, i, t->entry[i]);
}

/* Read entries @from to @nr - 1 of the shadow into the client's copy. */
void seq_refresh_group(struct sim *w, struct sim_client *cl, struct sim_seq *q,
		       u32 g, u32 from, u32 nr)
{
	u32 i;

	LAW(w, nr <= SIM_BLOCKS, "a table of %u entries", nr);
	for (i = from; i < nr; i++)
		q->table[g][i] = shadow_entry(w, cl, q, g, i);
	q->nr_table[g] = nr;
	shadow_ends(w, cl, q, g, nr);
}

/* Read all tables, which hold @tokens. */
void seq_refresh(struct sim *w, struct sim_client *cl, struct sim_seq *q, u32 tokens)
{
	u32 g;

	for (g = 0; g < groups_of(w, cl); g++)
		seq_refresh_group(w, cl, q, g, 0, seq_blocks(w, cl, q, g, tokens));
}

/* The tables hold @tokens now, and no entry before their end has changed. */
void seq_cut(struct sim *w, struct sim_client *cl, struct sim_seq *q, u32 tokens)
{
	u32 g, nr;

	for (g = 0; g < groups_of(w, cl); g++) {
		nr = seq_blocks(w, cl, q, g, tokens);
		seq_refresh_group(w, cl, q, g, nr, nr);
	}
}

static void compare_group(struct sim *w, struct sim_client *cl, struct sim_seq *q,
			  u32 g, u32 from, u32 nr)
{
	const struct kvmm_table_page *t = NULL;
	u32 low = max(group_is_state(w, cl, g) ? 0 : q->trim_want,
		      group_low(w, cl, g, q->kept_at)), i;

	low = group_at(w, cl, q, g, low);
	LAW(w, nr <= q->nr_table[g],
	    "client %u: sequence %llx covers %u blocks, its table has %u",
	    cl->id, (unsigned long long)q->handle, nr, q->nr_table[g]);
	for (i = 0; i < nr; i++) {
		if (i % KVMM_TABLE_ENTRIES == 0)
			t = shadow_page(w, cl, q, g, i / KVMM_TABLE_ENTRIES);
		LAW(w, i < from || i < low ||
		    q->table[g][i] == t->entry[i % KVMM_TABLE_ENTRIES],
		    "client %u: sequence %llx: group %u: table entry %u changed from %u to %u under an open step",
		    cl->id, (unsigned long long)q->handle, g, i, q->table[g][i],
		    t->entry[i % KVMM_TABLE_ENTRIES]);
	}
}

/*
 * The copy must be the same as the shadow, from the block of position @from on to that
 * before @upto.  Before it a full block may have been replaced by another one of the
 * same content; blocks that an open step reads there must be in place all the same.
 */
void seq_compare(struct sim *w, struct sim_client *cl, struct sim_seq *q,
		 u32 from, u32 upto)
{
	u32 g;

	for (g = 0; g < groups_of(w, cl); g++)
		compare_group(w, cl, q, g, group_at(w, cl, q, g, from),
			      seq_blocks(w, cl, q, g, upto));
}

/**
 * seq_verify() - law 5: a client reads the values that were computed
 * @upto: positions below it are read, through the client's tables; those in the window
 *        of a group that has one
 */
void seq_verify(struct sim *w, struct sim_client *cl, struct sim_seq *q,
		u32 upto, const char *why)
{
	const u64 *cell;
	u32 g, bt, p;

	for (g = 0; g < groups_of(w, cl); g++) {
		bt = group_tokens(w, cl, g);
		if (group_is_state(w, cl, g)) {
			groups_verify_state(w, cl, q, g, upto, why);
			continue;
		}
		cell = NULL;
		for (p = max(q->trim / bt * bt, group_low(w, cl, g, upto)); p < upto; p++) {
			if (!cell || p % bt == 0)
				cell = mem_block(w, cl, q->table[g][p / bt], why);
			LAW(w, mem_has(w, cl, &cell[p % bt], group_value(q->hash[p], g)),
			    "law 5: client %u: sequence %llx: %s: group %u: position %u of %u (entry %u) holds something else",
			    cl->id, (unsigned long long)q->handle, why, g, p, upto,
			    q->table[g][p / bt]);
		}
	}
}

/* ---- status ---- */

/* seq_lost() - no token of the sequence is valid any more: match it again */
void seq_lost(struct sim_seq *q)
{
	if (q->resident || q->swapped)
		q->ids_total = min(max(q->prompt_len, q->valid + 1),
				   q->prompt_len + q->max_tokens);
	q->resident = false;
	q->swapped = false;
	q->paged_out = false;
	q->ids_done = false;
	q->rewind = false;
	q->refused = false;
	q->ids_sent = 0;
	q->valid = 0;
	q->dev_len = 0;
	memset(q->nr_table, 0, sizeof(q->nr_table));
	memset(q->shift, 0, sizeof(q->shift));
	q->kept_at = 0;
	q->resv = 0;
	q->trim_want = 0;
	q->trim = 0;
	q->stale = false;
}

/* A hit ends inside a block only if the client can use that. */
static void seq_hit(struct sim *w, const struct sim_client *cl,
		    const struct sim_seq *q, const struct kvmm_seq_status *st)
{
	u32 bt = w->dom[cl->dom].req.block_tokens;

	if (bt > 64 && st->valid_len >= bt)
		cover_note("hits of blocks of more than 64 tokens");
	if (bt > 64 && st->valid_len % bt)
		cover_note("hits that end inside one of these");
	if (!(q->flags & KVMM_OPEN_WHOLE_BLOCKS))
		return;
	LAW(w, st->valid_len % bt == 0,
	    "client %u: sequence %llx wants whole blocks of %u tokens, and hit %u",
	    cl->id, (unsigned long long)q->handle, bt, st->valid_len);
	if (st->valid_len)
		cover_note("hits of whole blocks alone");
}

/* The most tokens that a match of the sequence finds. */
static u32 seq_most_found(const struct sim_seq *q)
{
	return q->ids_total - !(q->flags & KVMM_OPEN_WHOLE_PROMPT);
}

static void seq_arrived(struct sim *w, struct sim_client *cl,
			struct sim_seq *q, const struct kvmm_seq_status *st)
{
	LAW(w, q->ids_done, "client %u: sequence %llx is READY and was never matched",
	    cl->id, (unsigned long long)q->handle);
	LAW(w, st->valid_len <= seq_most_found(q) &&
	    (st->cached_len == st->valid_len || st->seq_epoch != q->arrived),
	    "client %u: sequence %llx of %u ids is READY with %u valid, %u cached",
	    cl->id, (unsigned long long)q->handle, q->ids_total,
	    st->valid_len, st->cached_len);
	LAW(w, !(q->flags & KVMM_OPEN_NO_MATCH) || !st->valid_len,
	    "client %u: sequence %llx was matched against its will",
	    cl->id, (unsigned long long)q->handle);
	seq_hit(w, cl, q, st);
	if (st->valid_len == q->ids_total)
		cover_note("hits of all of a prompt");
	q->resident = true;
	q->valid = st->valid_len;
	q->dev_len = q->valid;
	/* If it was swapped since, no room is reserved for it. */
	q->resv = st->seq_epoch == q->arrived &&
		  groups_reserve(w, cl, q->ids_total) ? q->ids_total : 0;
	q->kept_at = q->valid;
	seq_refresh(w, cl, q, q->valid);
	seq_verify(w, cl, q, q->valid, "matched prefix");
}

/* The sequence lost its memory, but its valid tokens are not lost. */
static void seq_swapped(struct sim *w, struct sim_client *cl,
			struct sim_seq *q)
{
	LAW(w, !q->nr_steps, "law 3: client %u: sequence %llx was swapped inside an open step",
	    cl->id, (unsigned long long)q->handle);
	q->resident = false;
	q->swapped = true;
	q->dev_len = q->valid;
	q->resv = 0;
}

/* The sequence was restored, in other blocks. */
static void seq_returned(struct sim *w, struct sim_client *cl,
			 struct sim_seq *q, const struct kvmm_seq_status *st)
{
	LAW(w, !q->paged_out, "client %u: sequence %llx came back against its advice",
	    cl->id, (unsigned long long)q->handle);
	LAW(w, st->valid_len == q->valid, "client %u: sequence %llx left with %u valid tokens and came back with %u",
	    cl->id, (unsigned long long)q->handle, q->valid, st->valid_len);
	q->resident = true;
	q->swapped = false;
	seq_refresh(w, cl, q, q->valid);
	seq_verify(w, cl, q, q->valid, "a restored sequence");
	cover_note("sequences seen to be swapped and restored");
}

/*
 * Was the sequence swapped since the last look, even if it is restored by now?
 * Marking raises the epoch once; a marked sequence always loses its memory.
 */
static bool seq_was_swapped(const struct sim_seq *q,
			    const struct kvmm_seq_status *st)
{
	u32 rise = st->seq_epoch - q->epoch;

	switch (st->state) {
	case KVMM_SEQ_SWAPPED:
	case KVMM_SEQ_RESTORING:
		return true;
	case KVMM_SEQ_READY:
		return rise || q->marked;
	case KVMM_SEQ_MARKED:
		return rise > 1 || (rise && q->marked);
	default:
		return false;
	}
}

/**
 * seq_look() - read the status record of a sequence and follow it
 *
 * Return: the record.
 */
const struct kvmm_seq_status *seq_look(struct sim *w, struct sim_client *cl,
				       struct sim_seq *q)
{
	const struct kvmm_seq_status *st = &cl->status[q->slot];

	LAW(w, st->generation == KVMM_SEQ_GEN(q->handle),
	    "client %u: record %u has generation %u, the handle %u",
	    cl->id, q->slot, st->generation, KVMM_SEQ_GEN(q->handle));
	if (q->resident && seq_was_swapped(q, st))
		seq_swapped(w, cl, q);
	q->epoch = st->seq_epoch;
	q->marked = st->state == KVMM_SEQ_MARKED;
	LAW(w, st->state != KVMM_SEQ_FAILED, "law 6: client %u: sequence %llx failed with %d though it can fit",
	    cl->id, (unsigned long long)q->handle, st->reason);
	if (!q->resident && (st->state == KVMM_SEQ_READY ||
			     st->state == KVMM_SEQ_MARKED)) {
		if (q->swapped)
			seq_returned(w, cl, q, st);
		else
			seq_arrived(w, cl, q, st);
	}
	if (st->state == KVMM_SEQ_RECOMPUTE && (q->resident || q->ids_done))
		seq_lost(q);
	if (q->resident || q->swapped)
		LAW(w, st->valid_len == q->valid,
		    "client %u: sequence %llx has %u valid tokens, its record says %u",
		    cl->id, (unsigned long long)q->handle, q->valid,
		    st->valid_len);
	return st;
}

/* A sequence that is in use and not being closed, or NULL. */
struct sim_seq *seq_random(struct sim *w, struct sim_client *cl)
{
	u32 i, at = rng_below(&w->rng, SIM_SEQS);

	for (i = 0; i < SIM_SEQS; i++) {
		struct sim_seq *q = &cl->seqs[(at + i) % SIM_SEQS];

		if (q->used && !q->closing)
			return q;
	}
	return NULL;
}

void seq_gone(struct sim *w, struct sim_client *cl, struct sim_seq *q)
{
	q->used = false;
	cl->nr_seqs--;
	w->nr_finished++;
}

/* ---- tokens ---- */

static void tokens_draw(struct sim *w, struct sim_client *cl,
			struct sim_seq *q)
{
	struct rng *r = &w->rng;
	u64 h = mix2(w->dom[cl->dom].uid, q->salt);
	u64 branch = rng_below(r, w->plan.nr_roots);
	u32 p;

	for (p = 0; p < q->prompt_len + q->max_tokens; p++) {
		if (p % w->plan.branch_every == w->plan.branch_every - 1 &&
		    p < q->prompt_len)
			branch = rng_chance(r, 750) ? 0 : rng_range(r, 1, 2);
		if (p < q->prompt_len)
			q->tok[p] = (u32)mix2(branch, p) & 0xffff;
		else
			q->tok[p] = (u32)mix2(h, q->variant) & 0xffff;
		h = mix2(h, q->tok[p]);
		q->hash[p] = h;
	}
}

/* A fork differs from its parent after its valid tokens, but not in the prompt. */
void seq_fork_tokens(const struct sim_seq *from, struct sim_seq *q)
{
	u32 all = q->prompt_len + q->max_tokens;
	u32 p = max(q->valid, q->prompt_len);
	u64 h = from->hash[p - 1];

	memcpy(q->tok, from->tok, p * sizeof(*q->tok));
	memcpy(q->hash, from->hash, p * sizeof(*q->hash));
	for (; p < all; p++) {
		q->tok[p] = (u32)mix2(h, q->variant) & 0xffff;
		h = mix2(h, q->tok[p]);
		q->hash[p] = h;
	}
}

/* The record for a handle that the core just gave out. */
static struct sim_seq *seq_new(struct sim *w, struct sim_client *cl, u64 handle)
{
	u32 slot = KVMM_SEQ_INDEX(handle);
	struct sim_seq *q;

	LAW(w, slot < cl->info.max_seqs, "client %u: handle %llx is out of range",
	    cl->id, (unsigned long long)handle);
	q = &cl->seqs[slot];
	LAW(w, !q->used && q->handle != handle,
	    "client %u: handle %llx is given out again", cl->id,
	    (unsigned long long)handle);
	memset(q, 0, sizeof(*q));
	q->used = true;
	q->slot = slot;
	q->handle = handle;
	q->family = handle;
	q->tok = w->tok[cl->id][slot];
	q->hash = w->hash[cl->id][slot];
	cl->nr_seqs++;
	return q;
}

/* ---- OPEN ---- */

/* Can a sequence of @tokens be alone in @blocks? */
static bool tokens_fit(const struct sim *w, const struct sim_client *cl, u64 tokens,
		       u64 blocks)
{
	return groups_most(w, cl, tokens) <= blocks &&
	       groups_pages(w, cl, tokens) <= cl->info.nr_tables;
}

/* Most tokens of a sequence of the client. */
u64 seq_tokens_most(const struct sim *w, const struct sim_client *cl)
{
	const struct kvmm_attach_req *req = &w->dom[cl->dom].req;
	u32 extents = cl->info.shards > 1 ? min(w->zone_online[0], w->zone_online[1]) :
					    w->zone_online[cl->info.pool];
	u64 blocks = (u64)(extents / cl->info.span_extents) * cl->info.span_blocks;
	u64 low = 0, high = (u64)(w->cfg.nr_idpages / w->cfg.max_clients) * 126, mid;

	blocks = min(blocks, req->limits[0].max / cl->info.block_bytes);
	if (w->cfg.overcommit == CORE_OVERCOMMIT_NEVER)
		blocks = blocks * w->cfg.overcommit_ratio / 100;
	while (low < high) {
		mid = (low + high + 1) / 2;
		if (tokens_fit(w, cl, mid, blocks))
			low = mid;
		else
			high = mid - 1;
	}
	return low;
}

static void open_draw(struct sim *w, const struct sim_client *cl,
		      struct kvmm_open_arg *a)
{
	const u32 table = SIM_BLOCKS * groups_least(w, cl);
	const struct sim_plan *p = &w->plan;
	struct rng *r = &w->rng;

	memset(a, 0, sizeof(*a));
	a->prompt_len = rng_chance(r, 300) ? rng_range(r, 1, 40)
					   : rng_range(r, 1, min(p->max_prompt, table - 100));
	/* Small steps would take too long for a long prompt that is preempted. */
	if (groups_of(w, cl) > 1)
		a->prompt_len = (u32)min((u64)a->prompt_len, 6ull * groups_step(w, cl));
	a->max_tokens = min(rng_range(r, 0, p->max_gen), table - a->prompt_len);
	a->salt = rng_below(r, p->nr_salts);
	/* One priority of each class of retention. */
	a->priority = p->prios ? 80 * rng_below(r, 3) : 0;
	if (rng_chance(r, p->flags))
		a->flags |= KVMM_OPEN_NO_MATCH;
	if (rng_chance(r, p->flags))
		a->flags |= KVMM_OPEN_NO_INDEX;
	if (p->whole && rng_chance(r, p->whole))
		a->flags |= KVMM_OPEN_WHOLE_BLOCKS;
	if (rng_chance(r, p->flags))
		a->flags |= KVMM_OPEN_WHOLE_PROMPT;
}

/* A sequence that was opened with a lease: its tokens begin with the leased ones. */
struct sim_seq *seq_begin_leased(struct sim *w, struct sim_client *cl, u64 handle,
				 const struct kvmm_open_arg *a,
				 const struct sim_lease *l)
{
	struct sim_seq *q = seq_new(w, cl, handle);
	u64 h = mix2(w->dom[cl->dom].uid, l->salt);
	u32 p;

	q->prompt_len = a->prompt_len;
	q->max_tokens = a->max_tokens;
	q->salt = l->salt;
	q->flags = a->flags;
	q->priority = a->priority;
	q->ids_total = q->prompt_len;
	q->ids_done = true;
	q->target = q->prompt_len + rng_below(&w->rng, q->max_tokens + 1);
	q->variant = rng_below(&w->rng, 2);
	q->swapped = true;
	q->valid = l->held;
	q->kept_at = l->held;
	q->leased = l->held;
	q->dev_len = l->held;
	tokens_draw(w, cl, q);
	memcpy(q->tok, l->tok, l->held * sizeof(*q->tok));
	for (p = 0; p < q->prompt_len + q->max_tokens; p++) {
		h = mix2(h, q->tok[p]);
		q->hash[p] = h;
	}
	return q;
}

static void open_done(struct sim *w, struct sim_client *cl,
		      const struct kvmm_open_arg *a,
		      const struct kvmm_open_res *res)
{
	u64 most = seq_tokens_most(w, cl);
	bool fits = (u64)a->prompt_len + a->max_tokens <= most;
	bool full = cl->nr_seqs + cl->nr_leases == cl->info.max_seqs;
	int want = !fits ? -E2BIG : full ? -ENOSPC : 0;
	struct sim_seq *q;

	LAW(w, res->status == want, "client %u: OPEN of %u+%u tokens (%llu at most, %u sequences of %u): %d",
	    cl->id, a->prompt_len, a->max_tokens, (unsigned long long)most,
	    cl->nr_seqs, cl->info.max_seqs, res->status);
	cover_entry(KVMM_OP_SEQ_OPEN, res->status);
	if (res->status)
		return;
	q = seq_new(w, cl, res->seq);
	q->prompt_len = a->prompt_len;
	q->max_tokens = a->max_tokens;
	q->salt = a->salt;
	q->flags = a->flags;
	q->priority = a->priority;
	q->ids_total = q->prompt_len;
	q->target = q->prompt_len + rng_below(&w->rng, q->max_tokens + 1);
	q->variant = rng_below(&w->rng, 2);
	tokens_draw(w, cl, q);
	LOG(w, "  sequence %llx: %u+%u tokens, priority %u, salt %llu, flags %u",
	    (unsigned long long)q->handle, q->prompt_len, q->max_tokens,
	    q->priority, (unsigned long long)q->salt, q->flags);
}

void seq_act_open(struct sim *w, struct sim_client *cl)
{
	struct kvmm_open_arg *a = (struct kvmm_open_arg *)w->args;
	const struct kvmm_open_res *res = (const void *)w->results;
	u32 nr = rng_range(&w->rng, 1, 3), i;
	int err;

	for (i = 0; i < nr; i++)
		open_draw(w, cl, &a[i]);
	LOG(w, "client %u: OPEN %u", cl->id, nr);
	err = shell_submit(w, cl, KVMM_OP_SEQ_OPEN, nr, 0, nr * sizeof(*a));
	LAW(w, !err, "client %u: OPEN: %d", cl->id, err);
	for (i = 0; i < nr; i++)
		open_done(w, cl, &a[i], &res[i]);
}
