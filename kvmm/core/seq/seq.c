// SPDX-License-Identifier: Apache-2.0
/*
 * seq.c - the life of a sequence
 *
 *	OPEN -> WAITING -(admitted)-> RESTORING -(filled)-> READY -> CLOSED
 *	           ^                   ^  |                   |
 *	       (matched)      (admitted)  (lost)           (victim)
 *	           |                   |  |                   v
 *	           |   +---------- SWAPPED <-(it pays)----- MARKED
 *	           |   |                  |                   |
 *	           |   (lost)             |                (else)
 *	           |   v                  v                   |
 *	           RECOMPUTE <------------+-------------------+
 *
 * RESTORING ends at once if nothing has to be copied, and MARKED if no open step
 * names the family.  A sequence can be closed in every state, and one that can
 * never be admitted is FAILED.
 *
 * Each client has its own share of sequence records; a handle is an index
 * into that share and a generation.  Children of a fork join the family of
 * their parent, a circle through fam_next.  A client sees only the status record
 * of a sequence in segment D, written under a sequence count; events only hint
 * that a record changed.
 *
 * A sequence that an open step names is not torn down under it: CLOSE is
 * remembered and takes effect when its last step ends.
 */
#include "kvmm/core/seq/seq.h"

#define WORK_CLOSE	64u	/* see core_work() */

static const char * const seq_state_names[] = {
	[KVMM_SEQ_CLOSED]	= "closed",
	[KVMM_SEQ_WAITING]	= "waiting",
	[KVMM_SEQ_READY]	= "ready",
	[KVMM_SEQ_MARKED]	= "marked",
	[KVMM_SEQ_SWAPPED]	= "swapped",
	[KVMM_SEQ_RECOMPUTE]	= "recompute",
	[KVMM_SEQ_RESTORING]	= "restoring",
	[KVMM_SEQ_FAILED]	= "failed",
	[CORE_SEQ_LEASED]	= "leased",
};

const char *core_seq_state_name(u32 state)
{
	return state < ARRAY_SIZE(seq_state_names) ? seq_state_names[state] : "unknown";
}

/* The sequence of a handle; NULL if the handle is stale or the sequence is closing. */
struct kv_seq *seq_find(const struct core *c, u32 client, u64 handle)
{
	struct kv_seq *s;

	if (KVMM_SEQ_INDEX(handle) >= c->clients[client].max_seqs)
		return NULL;
	s = &c->seqs[client * core_cfg(c)->max_seqs + KVMM_SEQ_INDEX(handle)];
	if (s->state == KVMM_SEQ_CLOSED || (s->flags & SEQF_CLOSING) ||
	    s->generation != KVMM_SEQ_GEN(handle))
		return NULL;
	return s;
}

void seq_event(struct core *c, const struct kv_seq *s, u32 type)
{
	event_post(c, s->client, type, seq_number(c, s), seq_handle(c, s));
}

/*
 * seq_show_again() - write the status record of a sequence that seq_show() wrote before
 *
 * Readers retry while seqcount is odd or changed.  The tables of groups that the domain
 * does not have stay: they are KVMM_NO_INDEX.
 */
void seq_show_again(struct core *c, const struct kv_seq *s)
{
	struct kvmm_seq_status *st = c->bind[s->client].seqs;
	const struct kv_tab *t;
	u32 count;

	if (!st)
		return;
	st += seq_number(c, s);
	count = st->seqcount;
	WRITE_ONCE(st->seqcount, count + 1);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	WRITE_ONCE(st->generation, s->generation);
	WRITE_ONCE(st->state, s->state);
	WRITE_ONCE(st->reason, s->reason);
	WRITE_ONCE(st->limiting_pool, s->limiting_pool);
	WRITE_ONCE(st->valid_len, s->valid_len);
	WRITE_ONCE(st->seq_epoch, s->epoch);
	WRITE_ONCE(st->cached_len, s->cached_len);
	for_each_tab(c, s, t)
		WRITE_ONCE(st->table[t->group], t->first_page);
	/* Pairs with the acquire load of seqcount in the client. */
	store_release(&st->seqcount, count + 2);
}

/* Write the whole status record of a sequence. */
void seq_show(struct core *c, const struct kv_seq *s)
{
	struct kvmm_seq_status *st = c->bind[s->client].seqs;
	u32 g;

	if (!st)
		return;
	/* No reader asks for the tables of groups that the domain does not have. */
	for (g = seq_groups(c, s); g < KVMM_MAX_GROUPS; g++)
		WRITE_ONCE(st[seq_number(c, s)].table[g], KVMM_NO_INDEX);
	seq_show_again(c, s);
}

/* Write the status record after a change of state, which may count as pressure. */
void seq_publish(struct core *c, struct kv_seq *s)
{
	seq_show(c, s);
	seq_tally(c, s);
	psi_task(c, s);
}

static_assert(!offsetof(struct kv_seq, generation), "it is never cleared");

/* Give a sequence an empty table in each group. */
void seq_tabs_init(struct core *c, struct kv_seq *s)
{
	u32 g;

	for (g = 0; g < seq_groups(c, s); g++)
		*seq_tab(c, s, g) = (struct kv_tab){
			.seq = seq_index(c, s), .group = g,
			.first_page = CORE_NONE, .last_page = CORE_NONE,
			.dirty = CORE_NONE,
		};
}

static struct kv_seq *seq_alloc(struct core *c, u32 client)
{
	struct kv_client *cl = &c->clients[client];
	struct kv_seq *s;
	u32 i;

	if (cl->free_seq == CORE_NONE)
		return NULL;
	i = client * core_cfg(c)->max_seqs + cl->free_seq;
	s = &c->seqs[i];
	KV_BUG_ON(cl->free_seq >= cl->max_seqs || cl->nr_seqs >= cl->max_seqs);
	KV_BUG_ON(s->state != KVMM_SEQ_CLOSED);
	cl->free_seq = s->next;
	cl->nr_seqs++;

	memset(&s->generation + 1, 0, sizeof(*s) - sizeof(s->generation));
	s->client = client;
	s->domain = cl->domain;
	s->fam_prev = i;
	s->fam_next = i;
	s->id_head = CORE_NONE;
	s->id_tail = CORE_NONE;
	s->prev = CORE_NONE;
	s->next = CORE_NONE;
	s->limiting_pool = KVMM_NO_POOL;
	s->fill_on = CORE_NONE;
	seq_tabs_init(c, s);
	s->rank = order_rank(c, s);
	s->born = cl->last_number;
	return s;
}

static void seq_free(struct core *c, struct kv_seq *s)
{
	struct kv_client *cl = &c->clients[s->client];

	KV_BUG_ON(s->state != KVMM_SEQ_CLOSED || !cl->nr_seqs);
	KV_BUG_ON(seq_entries(c, s) || s->tab.first_page != CORE_NONE);
	KV_BUG_ON(c->seqs[s->fam_prev].fam_next != seq_index(c, s) ||
		  c->seqs[s->fam_next].fam_prev != seq_index(c, s));
	c->seqs[s->fam_prev].fam_next = s->fam_next;
	c->seqs[s->fam_next].fam_prev = s->fam_prev;
	if (!++s->generation)
		s->generation = 1;
	s->flags = 0;
	s->next = cl->free_seq;
	cl->free_seq = seq_number(c, s);
	cl->nr_seqs--;
}

/*
 * The most table pages of a sequence of so many tokens.  A shared record may stand before
 * its successor.
 */
u32 seq_pages_most(const struct kv_domain *d, u32 tokens)
{
	u32 g, nr = 0;

	for (g = 0; g < d->nr_groups; g++)
		nr += table_pages(group_blocks(d, g, tokens) +
				  (d->group[g].kind == KVMM_GROUP_STATE ? d->width[g] : 0));
	return nr;
}

static int open_check(const struct core *c, u32 client,
		      const struct kv_domain *d, const struct kvmm_open_arg *a)
{
	u64 tokens = (u64)a->prompt_len + a->max_tokens;

	if (!a->prompt_len || (a->flags & ~CORE_OPEN_FLAGS))
		return -EINVAL;
	if (device_is_lost(c, d))
		return -ENODEV;
	if (drain_of_client(c, client))
		return -ESHUTDOWN;
	if (tokens > (u64)ids_share(c) * CORE_ID_PAGE ||
	    domain_most(d, (u32)tokens) > domain_capacity(c, d) ||
	    seq_pages_most(d, (u32)tokens) > core_cfg(c)->nr_tables ||
	    commit_never(c, d, tokens))
		return -E2BIG;
	return 0;
}

/**
 * seq_make() - a sequence with the facts that it is opened with, not yet known
 *
 * The caller gives it a state, or takes it back with seq_unmake().
 * Return: NULL: the client has no sequence left.
 */
struct kv_seq *seq_make(struct core *c, u32 client, const struct kvmm_open_arg *a)
{
	struct kv_seq *s = seq_alloc(c, client);

	if (!s)
		return NULL;
	s->open_flags = a->flags;
	s->priority = a->priority;
	s->salt = a->salt;
	s->prompt_len = a->prompt_len;
	s->max_tokens = a->max_tokens;
	s->arrival = c->head->arrival++;
	s->family = c->head->family++;
	s->since = c->now;
	s->opened = c->now;
	return s;
}

/* Take back a sequence that never became known; it has no table. */
void seq_unmake(struct core *c, struct kv_seq *s)
{
	seq_free(c, s);
}

/* Make the sequence; with @from it begins with the tokens of that lease. */
static int open_one(struct core *c, u32 client, const struct kvmm_open_arg *a,
		    const struct kv_seq *from, struct kvmm_open_res *res)
{
	struct kv_seq *s = seq_make(c, client, a);

	if (!s)
		return -ENOSPC;
	if (from && !lease_copy(c, from, s)) {
		seq_unmake(c, s);
		return -ENOSPC;
	}
	core_crash(c, CORE_CRASH_seq_make);
	s->state = from ? KVMM_SEQ_SWAPPED : KVMM_SEQ_WAITING;
	core_crash(c, CORE_CRASH_seq_made);
	res->seq = seq_handle(c, s);
	seq_publish(c, s);
	if (from)
		wait_add(c, s);
	core_count(c, CORE_EV_seq_open, 1);
	return 0;
}

/**
 * seq_open() - one entry of SEQ_OPEN
 * Return: 0 or an error, also in @res->status: -EINVAL; -ENOENT: the domain has no such
 * lease; -E2BIG: the sequence can never fit; -ENOSPC: the client has no sequence or table
 * page left; -ENODEV: the pool is lost; -ESHUTDOWN: the node, the tenant or the client is
 * drained (operate.c).
 */
int seq_open(struct core *c, u32 client, const struct kvmm_open_arg *a,
	     struct kvmm_open_res *res)
{
	u32 dom = c->clients[client].domain;
	const struct kv_seq *from = lease_find(c, dom, a->lease);
	int err;

	res->seq = 0;
	res->limiting_pool = KVMM_NO_POOL;
	err = open_check(c, client, &c->domains[dom], a);
	if (err == -E2BIG)
		res->limiting_pool = 0;
	if (!err && a->lease)
		err = !from ? -ENOENT : a->prompt_len < from->valid_len ? -EINVAL : 0;
	if (!err)
		err = open_one(c, client, a, a->lease ? from : NULL, res);
	res->status = err;
	return err;
}

static void fork_table(struct core *c, const struct kv_tab *from, struct kv_tab *to)
{
	table_copy(c, from, to);
	to->trimmed = from->trimmed;
	to->trim_want = from->trimmed;
	to->dirty = from->dirty;
	memcpy(to->trim_hash, from->trim_hash, sizeof(to->trim_hash));
}

/* Make one child.  It has a record and pages, and its blocks count it already. */
static void fork_one(struct core *c, struct kv_seq *s, struct kvmm_open_res *res)
{
	struct kv_seq *k = seq_alloc(c, s->client);
	const struct kv_tab *t;

	KV_BUG_ON(!k);
	KV_BUG_ON(k->domain != s->domain || c->seqs[s->fam_next].fam_prev !=
						      seq_index(c, s));
	for_each_tab(c, s, t)
		fork_table(c, t, seq_tab(c, k, t->group));
	k->fam_next = s->fam_next;
	k->fam_prev = seq_index(c, s);
	c->seqs[s->fam_next].fam_prev = seq_index(c, k);
	s->fam_next = seq_index(c, k);

	k->open_flags = s->open_flags;
	k->priority = s->priority;
	k->salt = s->salt;
	k->prompt_len = s->prompt_len;
	k->max_tokens = s->max_tokens;
	k->arrival = s->arrival;
	k->family = s->family;
	k->since = s->since;
	k->admitted = s->admitted;
	k->active = c->now;
	k->valid_len = s->valid_len;
	k->cover = s->valid_len;
	k->flags |= s->flags & SEQF_RETAIN;
	k->nr_retains = s->nr_retains;
	memcpy(k->retains, s->retains, sizeof(k->retains));
	core_crash(c, CORE_CRASH_seq_make);
	k->state = KVMM_SEQ_READY;
	core_crash(c, CORE_CRASH_seq_made);
	run_add(c, k);
	res->seq = seq_handle(c, k);
	seq_show(c, k);		/* run_add() tallied it, and it has made no progress yet */
	core_count(c, CORE_EV_seq_fork, 1);
}

/* The open tails are shared now: the next append of any sharer copies them. */
void seq_share_tails(struct core *c, const struct kv_seq *s)
{
	const struct kv_tab *t;
	u32 blk, i;

	for_each_tab(c, s, t) {
		for (i = 0; i < tab_width(c, t) && tab_live(t); i++) {
			blk = table_get(c, t, t->nr_blocks - 1 - i);
			if (c->blocks[blk].state == BLK_OPEN)
				c->blocks[blk].flags |= BLKF_SHARED;
		}
	}
}

static int fork_check(const struct core *c, u32 client, const struct kv_seq *s,
		      const struct kvmm_fork_arg *a)
{
	const struct kv_client *cl = &c->clients[client];

	if (a->resv)
		return -EINVAL;
	if (!s)
		return -ENOENT;
	if (s->nr_steps)
		return -EBUSY;
	if (s->state != KVMM_SEQ_READY)
		return -ESTALE;
	if (a->nr_children > cl->max_seqs - cl->nr_seqs ||
	    !table_has_fork_room(c, s, a->nr_children))
		return -ENOSPC;
	return 0;
}

/**
 * seq_fork() - one entry of SEQ_FORK: all children or none
 * @res: nr_children records
 */
void seq_fork(struct core *c, u32 client, const struct kvmm_fork_arg *a,
	      struct kvmm_open_res *res)
{
	struct kv_seq *s = seq_find(c, client, a->seq);
	int err = fork_check(c, client, s, a);
	const struct kv_tab *t;
	u32 i;

	if (!err)
		for_each_tab(c, s, t)
			table_share(c, t, a->nr_children);
	for (i = 0; i < a->nr_children; i++) {
		if (!err)
			fork_one(c, s, &res[i]);
		res[i].status = err;
		res[i].limiting_pool = KVMM_NO_POOL;
	}
	if (!err)
		seq_share_tails(c, s);
}

/* Give back table entries from @idx on, the last one first. */
void tab_unmap_from(struct core *c, struct kv_tab *t, u32 idx)
{
	struct kv_domain *d = tab_domain(c, t);
	kv_pte_t pte;
	u32 lost;

	while (t->nr_blocks > idx) {
		/* A block that came from the reservation goes back to it. */
		if (t->nr_blocks <= t->resv_blocks) {
			t->reserved++;
			d->dev.reserved++;
		}
		pte = table_pop_pte(c, t);
		if (pte_is_entry(pte))
			entry_put_ref(c, pte_block(pte));
		else if (pte_is_present(pte))
			block_unmap(c, pte_block(pte));
	}
	/* The next result need not tell of an entry that is gone. */
	if (t->dirty >= t->nr_blocks)
		t->dirty = CORE_NONE;
	/* Blocks that no free block covers yet are granted as growth later, if at all. */
	lost = span_cover_promises(c, tab_seq(c, t)->domain);
	KV_BUG_ON(lost > t->reserved || lost > t->resv_blocks);
	t->reserved -= lost;
	t->resv_blocks -= lost;
	d->dev.reserved -= lost;
}

/* Give back all tables. */
void seq_unmap(struct core *c, struct kv_seq *s)
{
	struct kv_tab *t;

	for_each_tab(c, s, t)
		tab_unmap_from(c, t, 0);
}

void seq_drop_reservation(struct core *c, struct kv_seq *s)
{
	u32 nr = seq_reserved(c, s);
	struct kv_tab *t;

	KV_BUG_ON(seq_domain(c, s)->dev.reserved < nr);
	seq_domain(c, s)->dev.reserved -= nr;
	if (nr)
		core_kick(c);	/* spans that covered it may go */
	for_each_tab(c, s, t) {
		t->reserved = 0;
		t->resv_blocks = 0;
		t->prompt_blocks = 0;
	}
	s->flags &= ~SEQF_COPY;
}

/**
 * tab_promise_take() - the table is about to have @nr entries, not by growth
 *
 * The reservation stays as far as the prompt still lacks blocks.  It never grows:
 * a block that is given back may go to any sequence.
 * Return: the reservation, for tab_promise_put() after the table has changed.
 */
u32 tab_promise_take(struct core *c, struct kv_tab *t, u32 nr)
{
	u32 lack = t->resv_blocks > nr ? t->resv_blocks - nr : 0;
	u32 keep = min(t->reserved, lack);

	KV_BUG_ON(tab_domain(c, t)->dev.reserved < t->reserved);
	if (keep < t->reserved) {
		tab_domain(c, t)->dev.reserved -= t->reserved - keep;
		core_kick(c);	/* spans that covered it may go */
	}
	t->reserved = keep;
	t->resv_blocks = 0;
	t->prompt_blocks = 0;
	tab_seq(c, t)->flags &= ~SEQF_COPY;
	return keep;
}

void tab_promise_put(struct kv_tab *t, u32 keep)
{
	KV_BUG_ON(t->reserved != keep || t->resv_blocks);
	if (keep)
		t->resv_blocks = t->nr_blocks + keep;
	if (t->dirty >= t->nr_blocks)
		t->dirty = CORE_NONE;
}

/* Give back blocks beyond the tokens that are valid or covered by an open step. */
void seq_trim_to_cover(struct core *c, struct kv_seq *s)
{
	struct kv_tab *t;
	u32 want, nr = 0;

	KV_BUG_ON(s->valid_len > s->cover);
	for_each_tab(c, s, t) {
		/* No token came behind a shared record: it is the last again. */
		if (t->shift && s->cover <= t->shift_at)
			t->shift = 0;
		want = tab_blocks(c, t, s->cover);
		if (t->nr_blocks <= want)
			continue;
		nr += t->nr_blocks - want;
		tab_unmap_from(c, t, want);
	}
	if (!nr)
		return;
	core_count(c, CORE_EV_pgrollback, nr);
	seq_tally(c, s);
	if (!s->tab.nr_blocks)
		seq_publish(c, s);	/* it has no table now */
}

/* Take all blocks and the reservation of the sequence; it is resident no more. */
void seq_strip(struct core *c, struct kv_seq *s)
{
	if (s->flags & SEQF_RUNNING)
		run_del(c, s);
	if (s->flags & SEQF_QUEUED)
		wait_del(c, s);
	if (s->state == KVMM_SEQ_MARKED) {
		KV_BUG_ON(!seq_domain(c, s)->nr_marked);
		seq_domain(c, s)->nr_marked--;
		core_kick(c);	/* the sequence that it was taken for waits */
	}
	if (s->flags & SEQF_LEASE)
		lease_leave(c, s);
	fill_wait_end(c, s);
	seq_drop_reservation(c, s);
	seq_unmap(c, s);
	seq_drop_ids(c, s);
	s->valid_len = 0;
	s->cover = 0;
	seq_tabs_init(c, s);
	core_crash(c, CORE_CRASH_seq_strip);
}

/* End the sequence; no step names it. */
void seq_close_now(struct core *c, struct kv_seq *s)
{
	KV_BUG_ON(s->nr_steps);
	core_work(c, WORK_CLOSE);
	advise_close(c, s);
	seq_strip(c, s);
	s->state = KVMM_SEQ_CLOSED;
	core_crash(c, CORE_CRASH_seq_closed);
	seq_publish(c, s);
	seq_free(c, s);
	core_count(c, CORE_EV_seq_close, 1);
}

int seq_close(struct core *c, struct kv_seq *s)
{
	if (s->nr_steps) {
		s->flags |= SEQF_CLOSING;
		domain_kick(seq_domain(c, s));	/* it grows no more */
		seq_tally(c, s);
		psi_task(c, s);
	} else {
		seq_close_now(c, s);
	}
	return 0;
}
