// SPDX-License-Identifier: Apache-2.0
/*
 * step.c - steps: blocks before the kernels run, results after
 *
 * STEP_BEGIN asks for blocks to write positions [start, start + max_tokens) of
 * each entry's sequence; the ids are not known yet.  Each entry is granted by
 * itself, all or nothing, in the order given, without waiting.  A granted step
 * is open until the client saw its device finish and sent STEP_END.  Open steps
 * end in order.
 *
 * An open step pins the sequences that it names: their blocks are not taken,
 * their tables do not change under it, and a victim among them is only marked.
 * A block is appended to in place if and only if it is OPEN and its refcount is
 * 1.  A shared tail is replaced by a new block, and the client is told to copy.
 * Of N sharers N - 1 copy; the last one finds refcount 1 and writes in place.
 * The source of a copy stays readable until the step ends, even if its last
 * mapping goes meanwhile (kv_block.nr_src).
 *
 * STEP_END gives the new valid lengths and ids.  Full blocks are sealed and
 * entered into the index, or replaced by an indexed block of the same content
 * (merge.c).  Positions that the step covered, and that are neither valid nor
 * covered by another open step, are rolled back.
 */
#include "kvmm/core/sched/sched.h"

/* ---- begin ---- */

/* The blocks that an entry of a step takes in one group. */
struct tab_grant {
	u32	first;		/* table index of the block at start */
	u32	tail;		/* the last block of those at start that the table has */
	u32	nr_new;		/* blocks to append to the table */
	bool	copy;		/* the block at @first is to be replaced */
	bool	state;		/* the table has records */
	bool	shifts;		/* the record at @first stays, and one behind it is written */
};

/* The blocks that an entry of a step takes, computed before anything changes. */
struct grant {
	struct tab_grant tab[KVMM_MAX_GROUPS];
	u32	new[KVMM_MAX_GROUPS];	/* tab_grant.nr_new of each */
	u32	nr_new;		/* blocks to append, in all groups */
	u32	nr_shifted;	/* of @nr_new, those in place of a shared record */
	u32	nr_copies;	/* blocks to replace */
	u32	nr_promised;	/* blocks of these that the reservation covers */
	bool	pays_copy;	/* and admission reserved a block for the copy */
};

/*
 * A tail in a span that is being emptied, in no open step, is copied by its
 * client, if there is a free block for that.  So it does not delay the span.
 */
static bool tail_should_leave(const struct core *c, const struct kv_seq *s,
			      u32 blk, u32 nr_new)
{
	const struct kv_domain *d = seq_domain(c, s);

	return span_is_isolated(&c->spans[block_span(c, blk)]) &&
	       !s->nr_steps && !c->clients[s->client].nr_unacked &&
	       domain_slack(d) > nr_new && (u64)domain_used(d) + d->dev.reserved +
	       nr_new < d->dev.max_blocks;
}

/* Must the step leave the block or record at @tg->first as it is?  It sets @tg->tail. */
static bool tail_is_kept(const struct core *c, const struct kv_seq *s, const struct kv_tab *t,
			 struct tab_grant *tg, u32 width, u32 nr_new)
{
	u32 i;

	for (i = tg->first; i < tg->first + width && i < t->nr_blocks; i++) {
		tg->tail = table_get(c, t, i);
		if (!block_writable(c, tg->tail) || tail_should_leave(c, s, tg->tail, nr_new))
			return true;
	}
	return false;
}

static void grant_work_out(const struct core *c, const struct kv_seq *s,
			   const struct kvmm_begin_arg *a, struct grant *g)
{
	const struct kv_domain *d = seq_domain(c, s);
	const struct kv_tab *t;

	for_each_tab(c, s, t) {
		struct tab_grant *tg = &g->tab[t->group];
		u32 bt = d->group[t->group].block_tokens, width = d->width[t->group];
		u32 before = a->start / bt, end = a->start % bt + a->max_tokens;
		u32 want = (before + (end <= bt ? 1 : DIV_ROUND_UP(end, bt))) * width + t->shift;
		bool kept;

		tg->first = before * width + t->shift;
		tg->nr_new = want > t->nr_blocks ? want - t->nr_blocks : 0;
		kept = tail_is_kept(c, s, t, tg, width, g->nr_new + tg->nr_new);
		tg->state = d->group[t->group].kind == KVMM_GROUP_STATE;
		tg->copy = kept && !tg->state;
		tg->shifts = kept && tg->state;
		if (tg->shifts) {
			tg->nr_new += width;
			g->nr_shifted += width;
		}
		g->new[t->group] = tg->nr_new;
		g->nr_new += tg->nr_new;
		g->nr_copies += tg->copy;
		g->nr_promised += min(tg->nr_new, t->reserved -
						  ((s->flags & SEQF_COPY) != 0));
	}
	g->pays_copy = g->nr_copies && (s->flags & SEQF_COPY);
	g->nr_promised += g->pays_copy;
}

/* Does the state of the sequence allow to grant the entry? */
static int begin_check(const struct core *c, const struct kv_seq *s, u64 step,
		       const struct kvmm_begin_arg *a)
{
	u64 end = (u64)a->start + a->max_tokens;

	if (!s)
		return -ENOENT;
	if (s->state == KVMM_SEQ_FAILED)
		return s->reason;
	if (s->epoch != a->seq_epoch || s->state == KVMM_SEQ_MARKED ||
	    s->state == KVMM_SEQ_RECOMPUTE)
		return -ESTALE;
	if (s->state != KVMM_SEQ_READY)
		return -EAGAIN;
	if (a->resv || (!a->max_tokens && !a->start) || s->last_step == step)
		return -EINVAL;
	if (a->start < s->valid_len || a->start > s->cover ||
	    (a->start < s->cover && seq_domain(c, s)->has_records) ||
	    end > (u64)s->prompt_len + s->max_tokens)
		return -EINVAL;
	return 0;
}

/* There is no room now: later sequences wait until this one has some. */
static void grant_refused(struct core *c, struct kv_seq *s)
{
	if (!s->again)
		s->again = c->now;
	s->refused = c->now;
	seq_tally(c, s);
}

/*
 * A request may have a thousand entries, and each may scan the whole node for
 * memory.  After enough scans in an event the other entries are refused, unless
 * their domain has free or cached blocks for them.
 */
static bool too_much_looked(const struct core *c, const struct kv_domain *d,
			    u32 nr)
{
	return c->work >= core_cfg(c)->event_work &&
	       domain_slack(d) + domain_cached(d) < nr;
}

/* Find room for @nr blocks beside the reservations; it may preempt a family. */
static bool grant_find_room(struct core *c, struct kv_seq *s, u32 nr)
{
	bool looked = too_much_looked(c, seq_domain(c, s), nr);
	enum verdict verdict = ROOM_MOVED;

	if (!looked)
		verdict = room_plan(c, s->domain, nr, 0);
	if (verdict == ROOM_NOW)
		verdict = room_evict(c, s->domain, nr);
	if (verdict == ROOM_NOW)
		return true;
	if (verdict == ROOM_MADE)
		return false;
	grant_refused(c, s);
	return verdict == ROOM_NONE && room_preempt(c, s, nr);
}

/* Make sure that the blocks of @g can be taken. */
static int grant_make_room(struct core *c, struct kv_seq *s,
			   const struct grant *g)
{
	const struct kv_domain *d = seq_domain(c, s);
	u32 need = g->nr_new + g->nr_copies;
	u32 nr = need - g->nr_promised;

	if (!ranks_have_mapped(c, s->client))
		return -EAGAIN;
	/* An open step reads the tail, and its entries of the table stay. */
	if (g->nr_copies && s->nr_steps)
		return -EAGAIN;
	if (g->nr_new && seq_live(c, s) + g->nr_new - g->nr_shifted > domain_capacity(c, d)) {
		/* Blocks behind the windows come back when its open steps end. */
		if (d->nr_groups > 1 && s->nr_steps)
			return -EAGAIN;
		oom_note(c, s, need, CORE_OOM_failed, CORE_CAUSE_itself, NULL);
		family_mark(c, s, CORE_CAUSE_itself, s);
		return -EDQUOT;
	}
	if (g->nr_new && !pages_preempt(c, s, g->new))
		return -EAGAIN;
	if (nr && !grant_find_room(c, s, nr))
		return -EAGAIN;
	return span_acked_free(c, d, s->client) < need ? -EAGAIN : 0;
}

/* Replace a tail that has other readers; the client copies @tokens of it. */
static void grant_copy_tail(struct core *c, struct kv_tab *t, u32 idx,
			    u32 tokens, struct kv_step_entry *e,
			    struct kvmm_begin_res *res)
{
	const struct kv_seq *s = tab_seq(c, t);
	u32 from = table_get(c, t, idx);
	u32 to = block_alloc(c, s->domain, s->client, t->group);

	KV_BUG_ON(to == CORE_NONE);
	KV_BUG_ON(c->blocks[to].state != BLK_OPEN || c->blocks[to].nr_map);
	KV_BUG_ON(!c->blocks[from].nr_map || tokens > c->blocks[from].nr_ids);
	memcpy(block_ids(c, to), block_ids(c, from), 4 * tokens);
	block_set_ids(&c->blocks[to], tokens);
	block_map(c, to);
	table_set(c, t, idx, to);
	if (tokens) {
		res->copy_from = block_entry(c, from);
		res->copy_to = block_entry(c, to);
		res->copy_tokens = tokens;
		e->src[t->group] = from;
		KV_BUG_ON(e->end <= e->start);
		block_src_get(c, from);
	}
	block_unmap(c, from);
	domain_kick(seq_domain(c, s));	/* the tail may have only one sharer left now */
	core_count(c, CORE_EV_pgcow, 1);
}

/* A reserved block was taken. */
static void promise_use(struct core *c, struct kv_tab *t)
{
	struct kv_domain *d = tab_domain(c, t);

	KV_BUG_ON(!t->reserved || !d->dev.reserved);
	t->reserved--;
	/* The last reservation is used: any empty span may be released. */
	if (!--d->dev.reserved)
		core_kick(c);
}

static void grant_append(struct core *c, struct kv_tab *t)
{
	const struct kv_seq *s = tab_seq(c, t);
	u32 blk = block_alloc(c, s->domain, s->client, t->group);

	KV_BUG_ON(blk == CORE_NONE);
	block_map(c, blk);
	if (table_push(c, t, blk))
		KV_BUG_ON(true);
	if (t->nr_blocks <= t->resv_blocks)
		promise_use(c, t);
}

/* A tail that a fork shared has one sharer left, which writes it in place. */
static void grant_reuse_tail(struct core *c, u32 blk)
{
	struct kv_block *b = &c->blocks[blk];

	if (!(b->flags & BLKF_SHARED))
		return;
	b->flags &= (u8)~BLKF_SHARED;
	core_count(c, CORE_EV_pgreuse, 1);
}

/* The tail is written in place: a move of it in flight is void. */
static void grant_in_place(struct core *c, u32 blk)
{
	grant_reuse_tail(c, blk);
	move_written(c, blk);
}

/*
 * Tell where the record before @start is, and the one that the step writes first.  A
 * record that has other readers, or is to leave its span, is read where it is, and the
 * next one is written in its place: so nothing is copied.
 */
static void grant_record(struct core *c, struct kv_tab *t, u32 start,
			 const struct tab_grant *tg, struct kvmm_begin_res *res)
{
	const u32 nr = tab_width(c, t);
	u32 i;

	KV_BUG_ON(tg->shifts && t->shift);
	res->copy_from = start ? tab_at(c, t, start - 1) : KVMM_NO_INDEX;
	if (tg->shifts) {
		t->shift = nr;
		t->shift_at = start;
		core_count(c, CORE_EV_pgcow, nr);
	} else {
		for (i = tg->first; i < tg->first + nr && i < t->nr_blocks; i++)
			grant_in_place(c, table_get(c, t, i));
	}
	res->copy_to = tab_at(c, t, start);
}

/* The record that stands behind a shared one has the same first ids. */
static void grant_shifted_ids(struct core *c, const struct kv_tab *t, u32 start)
{
	const u32 nr = tab_width(c, t), len = start % tab_tokens(c, t);
	const u32 to = tab_at(c, t, start);
	u32 i, blk;

	KV_BUG_ON(!len || to < nr);
	for (i = to; i < to + nr; i++) {
		blk = table_get(c, t, i);
		memcpy(block_ids(c, blk), block_ids(c, table_get(c, t, i - nr)), 4 * len);
		block_set_ids(&c->blocks[blk], len);
	}
}

/* Take the blocks of one group. */
static void grant_take_tab(struct core *c, struct kv_tab *t, u32 start,
			   const struct grant *g, struct kv_step_entry *e,
			   struct kvmm_begin_res *res)
{
	const struct tab_grant *tg = &g->tab[t->group];
	u32 had = t->nr_blocks, i;

	/*
	 * Take the block of the copy first: unmapping its source may free it, and
	 * an append of the same entry must not get it.
	 */
	if (tg->state)
		grant_record(c, t, start, tg, res);
	else if (tg->copy)
		grant_copy_tail(c, t, tg->first, start % tab_tokens(c, t), e, res);
	else if (tg->first < had)
		grant_in_place(c, tg->tail);
	if (g->pays_copy) {
		tab_seq(c, t)->flags &= ~SEQF_COPY;
		promise_use(c, t);
	}
	for (i = 0; i < tg->nr_new; i++)
		grant_append(c, t);
	if (tg->shifts)
		grant_shifted_ids(c, t, start);
	if (tg->copy)
		res->table_lo = tg->first;
	else if (tg->nr_new)
		res->table_lo = had;
	res->table_lo = min(res->table_lo, t->dirty);
	t->dirty = CORE_NONE;
}

/* A step that only reads needs no block; no copy is made, and no record begins. */
static void grant_read(const struct core *c, struct kv_tab *t, u32 start,
		       struct kvmm_begin_res *res)
{
	if (tab_is_state(c, t)) {
		res->copy_from = tab_at(c, t, start - 1);
		res->copy_to = KVMM_NO_INDEX;
	}
	res->table_lo = t->dirty;
	t->dirty = CORE_NONE;
}

/* There is room for everything: take it. */
static void grant_take(struct core *c, struct kv_seq *s,
		       const struct kvmm_begin_arg *a, const struct grant *g,
		       struct kv_step_entry *e, struct kvmm_begin_res *res)
{
	bool had = s->tab.nr_blocks;
	struct kv_tab *t;

	KV_BUG_ON(!(s->flags & SEQF_RUNNING) || s->state != KVMM_SEQ_READY);
	KV_BUG_ON(g->pays_copy && seq_groups(c, s) > 1);
	e->seq = seq_index(c, s);
	e->start = a->start;
	e->end = a->start + a->max_tokens;
	for_each_tab(c, s, t) {
		e->src[t->group] = CORE_NONE;
		if (a->max_tokens)
			grant_take_tab(c, t, a->start, g, e, &res[t->group]);
		else
			grant_read(c, t, a->start, &res[t->group]);
	}
	s->cover = max(s->cover, e->end);
	s->again = 0;
	s->refused = 0;
	s->active = c->now;
	if (g->nr_new || g->nr_copies || (s->flags & SEQF_IN_REFUSED))
		seq_tally(c, s);
	if (!had)
		seq_show(c, s);	/* its first table pages */
}

/* The facts of the sequence that each result of an entry tells. */
static void begin_tell(struct core *c, const struct kv_seq *s, int err,
		       u32 nr_groups, struct kvmm_begin_res *res)
{
	u32 g;

	for (g = 0; g < nr_groups; g++) {
		res[g].status = err;
		if (err == -EAGAIN || err == -EDQUOT)
			res[g].limiting_pool = 0;
		if (!s)
			continue;
		res[g].valid_len = s->valid_len;
		res[g].seq_epoch = s->epoch;
	}
}

static int begin_entry(struct core *c, u32 client, u64 step, u32 slot,
		       const struct kvmm_begin_arg *a,
		       struct kv_step_entry *e, struct kvmm_begin_res *res)
{
	struct kv_seq *s = seq_find(c, client, a->seq);
	const u32 nr_groups = c->domains[c->clients[client].domain].nr_groups;
	struct grant g;
	u32 n;
	int err;

	for (n = 0; n < nr_groups; n++)
		res[n] = (struct kvmm_begin_res){ .table_lo = KVMM_NO_INDEX,
						  .limiting_pool = KVMM_NO_POOL };
	err = begin_check(c, s, step, a);
	g.nr_new = 0;
	g.nr_copies = 0;
	g.nr_shifted = 0;
	g.nr_promised = 0;
	g.pays_copy = false;
	if (!err && !a->max_tokens) {
		err = ranks_have_mapped(c, client) ? 0 : -EAGAIN;
	} else if (!err) {
		grant_work_out(c, s, a, &g);
		err = grant_make_room(c, s, &g);
	}
	if (!err) {
		grant_take(c, s, a, &g, e, res);
		core_crash(c, CORE_CRASH_grant);
		s->nr_steps++;
		s->last_step = step;
		s->start[slot] = e->start;
		s->end[slot] = e->end;
		s->flags &= ~SEQF_REFUSED;
		psi_task(c, s);
		core_tell(c, grant, SAID_SEQ(c, s), .start = a->start,
			  .tokens = a->max_tokens, .blocks = g.nr_new + g.nr_copies,
			  .step = step, .copied = res->copy_tokens);
	} else if (err == -EAGAIN || err == -EDQUOT) {
		c->clients[client].again = c->now;
		s->flags |= SEQF_REFUSED;
		psi_task(c, s);
		core_tell(c, refuse, SAID_SEQ(c, s), .start = a->start,
			  .tokens = a->max_tokens, .error = (u64)err,
			  .step = step, .blocks = g.nr_new + g.nr_copies);
	} else if (err == -ESTALE) {
		core_tell(c, refuse_stale, SAID_SEQ(c, s), .step = step,
			  .error = (u64)err, .blocks = g.nr_new + g.nr_copies);
	} else if (s) {
		core_tell(c, refuse_bad, SAID_SEQ(c, s), .step = step,
			  .error = (u64)err, .blocks = g.nr_new + g.nr_copies);
	}
	begin_tell(c, s, err, nr_groups, res);
	return err;
}

/**
 * step_begin() - open a step and grant its entries
 * @req: checked; its entries are struct kvmm_begin_arg
 * @res: one record for each entry and group, group fastest
 *
 * Return: 0: the step is open, even if no entry was granted; -EBUSY: the client
 * has its maximum of open steps; -EINVAL: the step's number does not rise.
 */
int step_begin(struct core *c, u32 client, const struct core_req *req,
	       struct kvmm_begin_res *res)
{
	const struct kvmm_begin_arg *a = req->args;
	struct kv_client *cl = &c->clients[client];
	const u32 nr_groups = c->domains[cl->domain].nr_groups;
	struct kv_step_entry *e;
	struct kv_step *st;
	u32 slot, i;

	if (req->sqe.step <= cl->last_step)
		return -EINVAL;
	if (cl->nr_steps >= cl->max_steps)
		return -EBUSY;

	slot = (cl->step_head + cl->nr_steps) % KVMM_MAX_STEPS;
	st = step_at(c, client, cl->nr_steps, &e);
	KV_BUG_ON(cl->state != CLI_ALIVE || slot >= KVMM_MAX_STEPS);
	KV_BUG_ON(cl->step_head >= KVMM_MAX_STEPS);
	st->number = req->sqe.step;
	st->begun = c->now;
	st->nr = 0;
	st->held = CORE_NONE;
	c->taker = cl->domain;
	cl->last_step = st->number;
	cl->nr_steps++;
	cl->begun++;

	for (i = 0; i < req->sqe.nr; i++)
		if (!begin_entry(c, client, st->number, slot, &a[i],
				 &e[st->nr], &res[i * nr_groups]))
			st->nr++;
	KV_BUG_ON(!cl->nr_steps || st->nr > CORE_MAX_STEP_ENTRIES);
	room_ahead(c, cl->domain);
	core_tell(c, step_begin, .client = client, .step = st->number,
		  .entries = req->sqe.nr, .granted = st->nr);
	return 0;
}

/* ---- end ---- */

/* The node of a block's content in the index, or CORE_NONE. */
static u32 name_of(const struct core *c, const struct kv_tab *t, u32 idx)
{
	u32 blk = table_get(c, t, idx), ref = blk;

	KV_BUG_ON(c->blocks[blk].domain != tab_seq(c, t)->domain);
	if (!(c->blocks[blk].flags & BLKF_INDEXED))
		ref = index_lookup(c, c->blocks[blk].domain, t->group,
				   c->blocks[blk].hash, block_ids(c, blk));
	return ref == CORE_NONE ? CORE_NONE : index_node(c, ref);
}

/* Tokens of the prompt that were not cached, and had not been in the index. */
static u32 seq_fresh(const struct kv_seq *s)
{
	u32 known = s->cached_len + s->known_len;

	return max(s->prompt_len, known) - known;
}

/* Enter one block into the index.  Return: its node. */
static u32 seal_enter(struct core *c, struct kv_tab *t, u32 idx, u32 parent)
{
	struct kv_seq *s = tab_seq(c, t);
	u32 blk = table_get(c, t, idx);
	u32 bt = tab_tokens(c, t);

	KV_BUG_ON(c->blocks[blk].nr_ids != bt || !c->blocks[blk].nr_map);
	if (index_insert(c, blk, parent, seq_fresh(s), retain_class(c, t, idx)) &&
	    !t->group)
		s->known_len += bt;
	demote_through(c, s->domain, blk);
	return c->blocks[blk].node;
}

/*
 * Enter a block into the index, under its parent.  The parent may have been
 * there as another block, evicted meanwhile: then the sequence's own block is
 * entered, too.  If the name of the last trimmed block is gone, no block is
 * entered: no lookup could reach it.  Names of a group with a window have no parents.
 */
static void seal_index(struct core *c, struct kv_tab *t, u32 idx)
{
	u32 parent = CORE_NONE, i;

	if (tab_window(c, t)) {
		seal_enter(c, t, idx, CORE_NONE);
		return;
	}
	for (i = idx; i > t->trimmed; i--) {
		parent = name_of(c, t, i - 1);
		if (parent != CORE_NONE)
			break;
	}
	if (i && i == t->trimmed) {
		parent = index_find_node(c, tab_seq(c, t)->domain, t->trim_hash);
		if (parent == CORE_NONE)
			return;
	}
	for (; i <= idx; i++)
		parent = seal_enter(c, t, i, parent);
}

/*
 * tab_name_before() - name of the block or record that the one at index @idx follows
 *
 * A shared record that is not full may stand between the two.
 */
void tab_name_before(const struct core *c, const struct kv_tab *t, u32 idx, u64 *hash)
{
	const u32 nr = tab_width(c, t);
	u32 i, blk;

	for (i = idx; i > t->trimmed; i -= nr) {
		blk = table_get(c, t, i - nr);
		if (c->blocks[blk].nr_ids < tab_tokens(c, t))
			continue;
		memcpy(hash, c->blocks[blk].hash, sizeof(c->blocks[blk].hash));
		return;
	}
	if (t->trimmed)
		memmove(hash, t->trim_hash, sizeof(t->trim_hash));
	else
		index_root(c, tab_domain(c, t), tab_seq(c, t)->salt, t->group, hash);
}

/* The block at @idx has the name @name and is full: seal it, and enter it into the index. */
static void seal(struct core *c, struct kv_tab *t, u32 idx, u32 blk, const u64 *name)
{
	const struct kv_seq *s = tab_seq(c, t);
	const struct kv_domain *d = seq_domain(c, s);
	struct kv_block *b = &c->blocks[blk];
	u32 ref;

	KV_BUG_ON(b->nr_ids != d->group[t->group].block_tokens);
	KV_BUG_ON(b->state != BLK_OPEN || b->nr_map != 1);
	KV_BUG_ON(b->flags & BLKF_INDEXED);
	memcpy(b->hash, name, sizeof(b->hash));
	core_crash(c, CORE_CRASH_block_named);
	block_set_state(c, blk, BLK_SEALED);
	core_count(c, CORE_EV_pgseal, 1);

	if (s->open_flags & KVMM_OPEN_NO_INDEX)
		return;
	ref = index_lookup(c, s->domain, t->group, b->hash, block_ids(c, blk));
	if (ref == CORE_NONE) {
		seal_index(c, t, idx);
	} else if ((ref & REF_ENTRY) &&
		   c->entries_low[ref & ~REF_ENTRY].dev == CORE_NONE) {
		entry_adopt(c, ref & ~REF_ENTRY, blk);
		lru_retain(c, b->node, retain_class(c, t, idx), false);
	} else {
		core_count(c, CORE_EV_prefix_duplicate, 1);
		if (!(ref & REF_ENTRY) && !block_leaves(c, ref))
			seq_merge(c, t, idx, ref);
	}
}

/* The name of block @i of the record with the name @name. */
static void record_part(u32 group, const u64 *name, u32 i, u64 *part)
{
	memcpy(part, name, sizeof(*part) * 2);
	if (!i)
		return;
	index_mix(group, part);
	index_mix(part_code(group, i), part);
}

/* The record with the name @name is not the last full one of the sequence any more. */
static void record_passed(struct core *c, const struct kv_tab *t, const u64 *name)
{
	u64 part[2];
	u32 i, node;

	for (i = 0; i < tab_width(c, t); i++) {
		record_part(t->group, name, i, part);
		node = index_find_node(c, tab_seq(c, t)->domain, part);
		if (node != CORE_NONE)
			lru_pass(c, node);
	}
}

/* The block or record at @idx is full: name it and seal its blocks. */
static void seal_whole(struct core *c, struct kv_tab *t, u32 idx)
{
	const struct kv_domain *d = tab_domain(c, t);
	u32 blk = table_get(c, t, idx), i;
	u64 parent[2], name[2], part[2];

	tab_name_before(c, t, idx, parent);
	index_chain(c, d, t->group, parent, block_ids(c, blk), name);
	seal(c, t, idx, blk, name);
	for (i = 1; i < d->width[t->group]; i++) {
		record_part(t->group, name, i, part);
		seal(c, t, idx + i, table_get(c, t, idx + i), part);
	}
	if (tab_is_state(c, t))
		record_passed(c, t, parent);
}

/* Write the ids of the tokens from @at to before @len into the blocks of one group. */
static void tab_advance(struct core *c, struct kv_tab *t, u32 at, u32 len,
			const u32 *ids)
{
	const struct kv_domain *d = tab_domain(c, t);
	u32 bt = d->group[t->group].block_tokens, width = d->width[t->group], i;

	while (at < len) {
		u32 idx = at / bt * width + t->shift, off = at % bt;
		u32 take = min(len - at, bt - off);

		for (i = idx; i < idx + width; i++) {
			u32 blk = table_get(c, t, i);

			KV_BUG_ON(!block_writable(c, blk));
			memcpy(block_ids(c, blk) + off, ids, 4 * take);
			block_set_ids(&c->blocks[blk], off + take);
		}
		at += take;
		ids += take;
		if (off + take == bt)
			seal_whole(c, t, idx);
	}
}

/* Make the tokens up to @len valid; @ids are the new ones. */
static void seq_advance(struct core *c, struct kv_seq *s, u32 len,
			const u32 *ids)
{
	struct kv_tab *t;

	for_each_tab(c, s, t)
		tab_advance(c, t, s->valid_len, len, ids);
	s->valid_len = len;
	if (!s->back && s->valid_len > s->lost_len)
		s->back = c->now;
	core_crash(c, CORE_CRASH_advance);
}

static struct kv_step_entry *entry_find(struct kv_step *st,
					struct kv_step_entry *e, u32 seq,
					u32 *hint)
{
	u32 n, i = *hint;

	/* No division here: it would be a tenth of the time of an entry. */
	for (n = 0; n < st->nr; n++, i++) {
		if (i >= st->nr)
			i = 0;
		if (e[i].seq == seq) {
			*hint = i + 1;
			return &e[i];
		}
	}
	return NULL;
}

/* Count the tokens from @from to before @to, for readers. */
static void work_count(struct core *c, struct kv_seq *s, u32 from, u32 to)
{
	struct core_work *w = &seq_domain(c, s)->work;
	const u32 prompt = s->prompt_len, had = max(s->lost_len, prompt);

	w->prompt += min(to, prompt) - min(from, prompt);
	w->output += max(to, had) - max(from, had);
	if (to < prompt || !s->opened)
		return;
	w->first++;
	w->first_ns += c->now > s->opened ? c->now - s->opened : 0;
	s->opened = 0;
}

static int end_entry(struct core *c, struct kv_seq *s,
		     const struct kvmm_end_arg *a,
		     const struct kv_step_entry *e, const u32 *ids)
{
	if (!s)
		return -ENOENT;
	if (!e)
		return -EINVAL;
	if (a->valid_len < s->valid_len ||
	    a->nr_ids != a->valid_len - s->valid_len)
		return -EINVAL;
	if (a->nr_ids && (a->valid_len > e->end || s->valid_len < e->start))
		return -EINVAL;
	work_count(c, s, s->valid_len, a->valid_len);
	seq_advance(c, s, a->valid_len, ids);
	return 0;
}

/* End of the positions that open steps cover, at least the valid length. */
static u32 seq_cover(const struct kv_seq *s)
{
	u32 cover = s->valid_len, i;

	for (i = 0; i < KVMM_MAX_STEPS; i++)
		cover = max(cover, s->end[i]);
	return cover;
}

static void step_release(struct core *c, struct kv_step_entry *e, u32 slot,
			 u64 number)
{
	struct kv_seq *s = &c->seqs[e->seq];
	const u32 nr_groups = seq_groups(c, s);
	u32 cover, g;

	KV_BUG_ON(!s->nr_steps || s->end[slot] != e->end);
	for (g = 0; g < nr_groups; g++)
		if (e->src[g] != CORE_NONE)
			block_src_put(c, e->src[g]);
	s->nr_steps--;
	s->end[slot] = 0;
	cover = seq_cover(s);
	if (cover != s->cover) {
		s->cover = cover;
		seq_trim_to_cover(c, s);
	}
	if (nr_groups > 1 || s->tab.trim_want > s->tab.trimmed)
		seq_trim_settle(c, s, number);
	if (nr_groups > 1)
		seq_trim_windows(c, s);
	psi_task(c, s);
	if (s->nr_steps)
		return;
	if (s->flags & SEQF_CLOSING) {
		u32 kin = s->fam_next;

		seq_close_now(c, s);
		s = &c->seqs[kin];
	}
	if (seq_domain(c, s)->nr_marked)
		family_settle(c, s);
}

/* Remove the oldest step of a client, and drop its pins. */
static void step_finish(struct core *c, u32 client)
{
	struct kv_client *cl = &c->clients[client];
	struct kv_step_entry *e;
	struct kv_step *st = step_at(c, client, 0, &e);
	u32 slot = cl->step_head;
	u32 i;

	KV_BUG_ON(cl->state == CLI_FREE || !cl->nr_steps);
	KV_BUG_ON(slot >= KVMM_MAX_STEPS || st->nr > CORE_MAX_STEP_ENTRIES);
	cl->step_head = (cl->step_head + 1) % KVMM_MAX_STEPS;
	cl->nr_steps--;
	core_crash(c, CORE_CRASH_step_end);
	core_tell(c, step_end, .client = client, .step = st->number,
		  .entries = st->nr, .us = (c->now - st->begun) / 1000);
	for (i = 0; i < st->nr; i++)
		step_release(c, &e[i], slot, st->number);
	step_let_go(c, st);
	/* Blocks that this step covered are no longer needed for growth. */
	domain_kick(&c->domains[cl->domain]);
	/* Waiting sequences within memory.min need not leave them, either. */
	for (i = 0; i < core_cfg(c)->max_domains &&
	     c->tenants[cl->tenant].nr_domains > 1; i++)
		if (c->domains[i].promised && c->domains[i].nr_waiting)
			domain_kick(&c->domains[i]);
}

/*
 * Prefill time of a token in the domain: a hint of its client, clamped to
 * 10 ns..1 s.  Domains of other tenants lose nothing by it: it decides what of this domain
 * is copied, and how the tenant's own domains share cache (limit_keeps()).
 */
static void prefill_measure(struct kv_domain *d, u64 ns, u64 tokens)
{
	u64 *rate = &d->prefill_ns_token;
	u64 one;

	if (tokens < 8 || !ns)
		return;
	one = min(max(ns / tokens, 10ull), 1000000000ull);
	*rate = *rate ? (*rate * 7 + one) / 8 : one;
}

/**
 * step_end() - the client saw its device finish the step
 * @req: checked; entries are struct kvmm_end_arg, then their ids
 * @res: one record for each entry
 *
 * An entry that is refused made no progress; the step ends all the same.
 * Return: 0; -EINVAL: not the oldest open step.
 */
int step_end(struct core *c, u32 client, const struct core_req *req,
	     struct kvmm_end_res *res)
{
	const struct kvmm_end_arg *a = req->args;
	const u32 *ids = (const u32 *)(a + req->sqe.nr);
	struct kv_step_entry *entries, *e;
	struct kv_step *st = step_at(c, client, 0, &entries);
	u32 i, hint = 0;

	if (!c->clients[client].nr_steps || st->number != req->sqe.step)
		return -EINVAL;

	prefill_measure(&c->domains[c->clients[client].domain],
			req->sqe.param[0], req->sqe.param[1]);
	demote_judge(c, c->clients[client].domain);
	for (i = 0; i < req->sqe.nr; i++) {
		struct kv_seq *s = seq_find(c, client, a[i].seq);

		e = s ? entry_find(st, entries, seq_index(c, s), &hint) : NULL;
		res[i] = (struct kvmm_end_res){ 0 };
		res[i].status = end_entry(c, s, &a[i], e, ids);
		ids += a[i].nr_ids;
		if (!s)
			continue;
		res[i].valid_len = s->valid_len;
		res[i].seq_epoch = s->epoch;
		seq_show_again(c, s);	/* psi_task() is called when the step is released */
	}
	step_finish(c, client);
	return 0;
}

/* step_drop_all() - end all steps of a dead client without progress; its device is quiet */
void step_drop_all(struct core *c, u32 client)
{
	while (c->clients[client].nr_steps)
		step_finish(c, client);
}
