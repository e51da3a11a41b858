// SPDX-License-Identifier: Apache-2.0
/*
 * match.c - ids of waiting sequences, the wait list, the prefix found
 *
 * A client sends the ids of a prompt; the core keeps them while the sequence
 * waits, in pages of a fixed pool, and hashes them itself.  Once the ids are
 * complete the sequence stands on its domain's wait list, by priority, then
 * by the daemon's own arrival stamp (order.c finds its place), so that a
 * preempted sequence comes back before later ones.  What becomes of those who
 * wait: admit.c.
 */
#include "kvmm/core/internal.h"

/* ---- lists ---- */

/* Its place among those who wait, by priority and arrival. */
static void wait_link(struct core *c, struct kv_seq *s)
{
	struct kv_domain *d = seq_domain(c, s);
	u32 i = seq_index(c, s);
	u32 after = order_prev(c, d->wait_root, s, NODE_ORDER);

	order_add(c, &d->wait_root, i, NODE_ORDER);
	s->prev = after;
	s->next = after == CORE_NONE ? d->wait_head : c->seqs[after].next;
	if (s->prev == CORE_NONE)
		d->wait_head = i;
	else
		c->seqs[s->prev].next = i;
	if (s->next == CORE_NONE)
		d->wait_tail = i;
	else
		c->seqs[s->next].prev = i;
}

static void wait_unlink(struct core *c, struct kv_seq *s)
{
	struct kv_domain *d = seq_domain(c, s);

	order_del(c, &d->wait_root, seq_index(c, s), NODE_ORDER);
	list_del_idx(c->seqs, d->wait_head, d->wait_tail, seq_index(c, s));
}

/* It waits since now. */
void wait_add(struct core *c, struct kv_seq *s)
{
	struct kv_domain *d = seq_domain(c, s);
	u32 i = seq_index(c, s);

	wait_link(c, s);
	s->age_next = CORE_NONE;
	s->age_prev = d->age_tail;
	if (d->age_tail == CORE_NONE)
		d->age_head = i;
	else
		c->seqs[d->age_tail].age_next = i;
	d->age_tail = i;
	s->flags |= SEQF_QUEUED;
	d->nr_swapped += !!(s->flags & SEQF_SWAPPED);
	d->nr_waiting++;
	domain_kick(d);
	psi_task(c, s);
}

void wait_del(struct core *c, struct kv_seq *s)
{
	struct kv_domain *d = seq_domain(c, s);

	wait_unlink(c, s);
	if (s->age_prev == CORE_NONE)
		d->age_head = s->age_next;
	else
		c->seqs[s->age_prev].age_next = s->age_next;
	if (s->age_next == CORE_NONE)
		d->age_tail = s->age_prev;
	else
		c->seqs[s->age_next].age_prev = s->age_prev;
	s->flags &= ~SEQF_QUEUED;
	d->nr_swapped -= !!(s->flags & SEQF_SWAPPED);
	d->nr_waiting--;
	domain_kick(d);
}

/* seq_set_priority() - its place in whatever list and trees it is in changes */
void seq_set_priority(struct core *c, struct kv_seq *s, u32 priority)
{
	if (s->priority == priority)
		return;
	if (s->flags & SEQF_QUEUED) {
		wait_unlink(c, s);
		s->priority = priority;
		wait_link(c, s);
		domain_kick(seq_domain(c, s));
	} else {
		seq_untally(c, s);
		s->priority = priority;
		seq_tally(c, s);
	}
}

void run_add(struct core *c, struct kv_seq *s)
{
	struct kv_domain *d = seq_domain(c, s);
	u32 i = seq_index(c, s);

	list_add_tail_idx(c->seqs, d->run_head, d->run_tail, i);
	s->flags |= SEQF_RUNNING;
	d->nr_running++;
	d->growth += commit_growth(c, s);
	seq_tally(c, s);
}

void run_del(struct core *c, struct kv_seq *s)
{
	struct kv_domain *d = seq_domain(c, s);

	list_del_idx(c->seqs, d->run_head, d->run_tail, seq_index(c, s));
	s->flags &= ~SEQF_RUNNING;
	d->nr_running--;
	d->touched = c->head->touched;
	d->growth -= commit_growth(c, s);
	domain_kick(d);
	seq_tally(c, s);
	if (core_cfg(c)->overcommit == CORE_OVERCOMMIT_NEVER)
		core_kick(c);	/* others were waiting for it too */
}

/* ---- ids ---- */

void seq_drop_ids(struct core *c, struct kv_seq *s)
{
	struct core_head *h = c->head;
	u32 page = s->id_head, next;

	for (; page != CORE_NONE; page = next) {
		c->clients[s->client].nr_idpages--;
		next = c->idpages[page].next;
		c->idpages[page].next = h->free_idpage;
		h->free_idpage = page;
		h->nr_free_idpages++;
	}
	s->id_head = CORE_NONE;
	s->id_tail = CORE_NONE;
	s->nr_ids = 0;
	s->found = 0;
}

static u32 id_page_get(struct core *c, struct kv_seq *s)
{
	struct core_head *h = c->head;
	u32 page = h->free_idpage;

	h->free_idpage = c->idpages[page].next;
	h->nr_free_idpages--;
	c->clients[s->client].nr_idpages++;
	c->idpages[page].next = CORE_NONE;
	c->idpages[page].nr = 0;
	if (s->id_tail == CORE_NONE)
		s->id_head = page;
	else
		c->idpages[s->id_tail].next = page;
	s->id_tail = page;
	return page;
}

/*
 * Pages that a client may still take.  Each client has an equal share for
 * itself alone; nobody's prompts can keep another's from being matched.
 */
u32 ids_share(const struct core *c)
{
	return core_sizes(c)->nr_idpages / core_cfg(c)->max_clients;
}

static u32 ids_left(const struct core *c, u32 client)
{
	u32 used = c->clients[client].nr_idpages;

	return used < ids_share(c) ? ids_share(c) - used : 0;
}

static int ids_append(struct core *c, struct kv_seq *s, const u32 *ids, u32 nr)
{
	u32 room = 0, take, page = s->id_tail;

	if (page != CORE_NONE)
		room = CORE_ID_PAGE - c->idpages[page].nr;
	if (nr > room && DIV_ROUND_UP(nr - room, CORE_ID_PAGE) >
	    ids_left(c, s->client))
		return -EAGAIN;

	while (nr) {
		struct kv_idpage *p;

		if (!room) {
			page = id_page_get(c, s);
			room = CORE_ID_PAGE;
		}
		p = &c->idpages[page];
		take = min(nr, room);
		memcpy(p->id + p->nr, ids, 4 * take);
		p->nr += take;
		s->nr_ids += take;
		ids += take;
		nr -= take;
		room -= take;
	}
	return 0;
}

/* Reads ids of a sequence in order. */
struct id_cursor {
	u32	page;
	u32	pos;
};

static void ids_next(const struct core *c, struct id_cursor *cur, u32 *out,
		     u32 nr)
{
	while (nr) {
		const struct kv_idpage *p = &c->idpages[cur->page];
		u32 take = min(nr, p->nr - cur->pos);

		memcpy(out, p->id + cur->pos, 4 * take);
		out += take;
		nr -= take;
		cur->pos += take;
		if (cur->pos == p->nr) {
			cur->page = p->next;
			cur->pos = 0;
		}
	}
}

/**
 * seq_match() - one entry of SEQ_MATCH
 * @a:   names the piece
 * @ids: its ids
 *
 * Return: 0; -EINVAL; -ENOENT; -ESTALE: it does not wait for ids; -EAGAIN: no
 * page is free for them now, nothing changed.
 */
int seq_match(struct core *c, u32 client, const struct kvmm_match_arg *a,
	      const u32 *ids)
{
	struct kv_seq *s = seq_find(c, client, a->seq);
	u64 total = (u64)a->start + a->nr_ids;
	int err;

	if (a->resv || (a->flags & ~KVMM_MATCH_LAST))
		return -EINVAL;
	if (!s)
		return -ENOENT;
	if ((s->state != KVMM_SEQ_WAITING && s->state != KVMM_SEQ_RECOMPUTE) ||
	    (s->flags & SEQF_MATCHED))
		return -ESTALE;
	if (a->start && a->start != s->nr_ids)
		return -EINVAL;
	if (total > (u64)s->prompt_len + s->max_tokens)
		return -EINVAL;
	if ((a->flags & KVMM_MATCH_LAST) && (total < s->prompt_len ||
	    (!(s->flags & SEQF_PREEMPTED) && total != s->prompt_len)))
		return -EINVAL;

	if (!a->start) {
		/* Refused, it leaves what was there before. */
		if (DIV_ROUND_UP(a->nr_ids, CORE_ID_PAGE) >
		    ids_left(c, client) +
		    DIV_ROUND_UP(s->nr_ids, CORE_ID_PAGE))
			return -EAGAIN;
		seq_drop_ids(c, s);
	}
	err = ids_append(c, s, ids, a->nr_ids);
	if (err || !(a->flags & KVMM_MATCH_LAST))
		return err;

	s->flags |= SEQF_MATCHED;
	s->state = KVMM_SEQ_WAITING;
	s->since = c->now;
	seq_publish(c, s);
	wait_add(c, s);
	return 0;
}

/* ---- the prefix that is there already ---- */

#define WORK_HASH	20u	/* a block's ids, and a look into the index */
#define WORK_KNOWN	3u	/* a block that was found before */

/* Can a hit be had now, by mapping or by one copy from the host? */
static bool ref_usable(const struct core *c, u32 ref)
{
	const struct kv_entry *e;

	/* Who mapped what a run that is claimed holds would lose it at once. */
	if (!(ref & REF_ENTRY))
		return !block_is_claimed(c, ref) && !block_leaves(c, ref);
	e = &c->entries_low[ref & ~REF_ENTRY];
	if (e->flags & ENTF_LOST)
		return false;
	if (e->dev != CORE_NONE)
		return !block_leaves(c, e->dev) &&
		       (e->io == ENT_IN || (e->flags & ENTF_BESIDE));
	return e->flags & ENTF_HOST;
}

static void hits_count(const struct core *c, struct hits *h, u32 blk, int n)
{
	h->cached += (u32)n;
	if (span_is_isolated(&c->spans[block_span(c, blk)]))
		h->going += (u32)n;
}

static void hits_add(struct core *c, struct hits *h, u32 at, u32 ref)
{
	c->scratch[at] = ref;
	if (ref & REF_ENTRY)
		h->low += c->entries_low[ref & ~REF_ENTRY].dev == CORE_NONE;
	else if (c->blocks[ref].state == BLK_CACHED)
		hits_count(c, h, ref, 1);
}

/*
 * Is there a block after the prefix @hash, whose node is @node, that begins as
 * the prompt goes on?  @ids are the next @nr of the prompt.
 */
static void hits_find_part(struct core *c, const struct kv_seq *s,
			   struct hits *h, u32 node, const u64 *hash,
			   const u32 *ids, u32 nr)
{
	u32 blk = kid_find(c, s->domain, node, hash, ids, nr, &h->part);

	if (blk != CORE_NONE && block_is_claimed(c, blk))
		h->part = 0;
	else if (blk != CORE_NONE)
		hits_add(c, h, h->whole, blk);
}

void hits_drop_part(const struct core *c, struct hits *h)
{
	u32 blk = c->scratch[h->whole];

	if (c->blocks[blk].state == BLK_CACHED)
		hits_count(c, h, blk, -1);
	h->part = 0;
}

/* Go on where an earlier look at the same ids stopped: pages are full. */
static void ids_skip(const struct core *c, struct id_cursor *cur, u32 nr)
{
	while (nr && nr >= c->idpages[cur->page].nr) {
		nr -= c->idpages[cur->page].nr;
		cur->page = c->idpages[cur->page].next;
	}
	cur->pos = nr;
}

/*
 * The part of the prefix that an earlier look found is there still if its last
 * name is: no name goes before those that follow it.  The blocks may be other
 * ones, and of use or not.
 *
 * Return: the last node; CORE_NONE: nothing is known.
 */
static u32 hits_known(struct core *c, const struct kv_seq *s,
		      struct hits *h)
{
	u32 last, node, i;

	if (!s->found)
		return CORE_NONE;
	last = index_find_node(c, s->domain, s->found_hash);
	for (i = s->found, node = last; i && node != CORE_NONE;
	     node = c->nodes[node].parent) {
		if (!ref_usable(c, c->nodes[node].ref))
			break;
		hits_add(c, h, --i, c->nodes[node].ref);
	}
	if (i) {
		*h = (struct hits){ 0 };
		return CORE_NONE;
	}
	h->whole = s->found;
	return last;
}

/* What was found so far need not be hashed again. */
static void hits_note(struct kv_seq *s, const struct hits *h, const u64 *hash)
{
	s->found = h->whole;
	memcpy(s->found_hash, hash, sizeof(s->found_hash));
}

/**
 * prefix_find() - longest cached prefix of the ids
 *
 * A long prompt is hashed in slices between other events, as far as there is
 * something cached: an event that has done a lot leaves the rest to the next.
 *
 * Return: 0; -EINTR: there is more, and @h says nothing.
 */
int prefix_find(struct core *c, struct kv_seq *s, struct hits *h)
{
	const struct kv_domain *d = seq_domain(c, s);
	struct id_cursor cur = { .page = s->id_head };
	u32 ids[64], left = s->nr_ids - 1, bt = d->block_tokens, ref, node;
	u64 hash[2], next[2];

	*h = (struct hits){ 0 };
	if (s->open_flags & KVMM_OPEN_NO_MATCH)
		return 0;
	core_work(c, WORK_KNOWN * s->found);
	node = hits_known(c, s, h);
	index_root(c, d, s->salt, hash);
	if (h->whole) {
		memcpy(hash, s->found_hash, sizeof(hash));
		ids_skip(c, &cur, h->whole * bt);
		left -= h->whole * bt;
	}
	for (; left >= bt; left -= bt) {
		core_work(c, WORK_HASH);
		ids_next(c, &cur, ids, bt);
		index_chain(c, d, hash, ids, next);
		ref = index_lookup(c, s->domain, next, ids);
		if (ref == CORE_NONE || !ref_usable(c, ref)) {
			hits_note(s, h, hash);
			hits_find_part(c, s, h, node, hash, ids, bt);
			return 0;
		}
		hits_add(c, h, h->whole++, ref);
		node = index_node(c, ref);
		memcpy(hash, next, sizeof(hash));
		if (c->work >= core_cfg(c)->event_work && left >= 2 * bt) {
			hits_note(s, h, hash);
			return -EINTR;
		}
	}
	hits_note(s, h, hash);
	ids_next(c, &cur, ids, left);
	hits_find_part(c, s, h, node, hash, ids, left);
	return 0;
}
