// SPDX-License-Identifier: Apache-2.0
/*
 * match.c - ids of waiting sequences, and their cached prefix
 *
 * A client sends the ids of a prompt.  While the sequence waits, the core keeps
 * them in pages of a fixed pool, and hashes them itself.  When the ids are
 * complete the sequence is put on its domain's wait list, by priority, then by
 * the daemon's own arrival stamp.  So a preempted sequence comes back before
 * later ones.  admit.c admits waiting sequences.
 */
#include "kvmm/core/sched/sched.h"

/**
 * seq_match() - one entry of SEQ_MATCH
 * @a:   position and number of the ids in this piece
 * @ids: the ids
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
		/* A refusal must not change the ids that are there. */
		if (DIV_ROUND_UP(a->nr_ids, CORE_ID_PAGE) >
		    ids_left(c, client) +
		    DIV_ROUND_UP(s->nr_ids, CORE_ID_PAGE))
			return -EAGAIN;
		seq_drop_ids(c, s);
	}
	err = ids_append(c, s, ids, a->nr_ids);
	if (err || !(a->flags & KVMM_MATCH_LAST))
		return err;

	KV_BUG_ON(s->flags & (SEQF_QUEUED | SEQF_RUNNING | SEQF_SWAPPED));
	KV_BUG_ON(s->nr_blocks || s->nr_steps || s->nr_ids != total);
	s->flags |= SEQF_MATCHED;
	s->state = KVMM_SEQ_WAITING;
	s->since = c->now;
	seq_publish(c, s);
	wait_add(c, s);
	return 0;
}

/* ---- the cached prefix ---- */

#define WORK_KNOWN	3u	/* a block that was found by an earlier lookup */

/* Is the content only in an area? */
static bool ref_is_read(const struct core *c, u32 ref)
{
	const struct kv_entry *e = &c->entries_low[ref & ~REF_ENTRY];

	return (ref & REF_ENTRY) && e->dev == CORE_NONE &&
	       !(e->flags & ENTF_HOST);
}

/* Can the content of an area be read, and does that pay? */
static bool read_usable(const struct core *c, const struct kv_entry *e)
{
	return (e->flags & ENTF_AREA) && !area_stalled(c, e->area) &&
	       area_read_pays(c, e->domain, e->area);
}

/* Can the content be used now: by a mapping, a copy from the host pool, or a read? */
static bool ref_usable(const struct core *c, u32 ref)
{
	const struct kv_entry *e;

	/*
	 * A sequence that mapped a block of a claimed run would lose it at
	 * once.
	 */
	if (!(ref & REF_ENTRY))
		return !block_is_claimed(c, ref) && !block_leaves(c, ref);
	e = &c->entries_low[ref & ~REF_ENTRY];
	KV_BUG_ON(e->flags & ENTF_LOST);
	if (e->dev != CORE_NONE)
		return !block_leaves(c, e->dev) &&
		       (e->io == ENT_IN || (e->flags & ENTF_BESIDE));
	return (e->flags & ENTF_HOST) || read_usable(c, e);
}

/* The content is on its way to the host pool. */
static bool ref_leaves(const struct core *c, u32 ref)
{
	return ref != CORE_NONE && (ref & REF_ENTRY) &&
	       c->entries_low[ref & ~REF_ENTRY].io == ENT_OUT;
}

static void hits_count(const struct core *c, struct hits *h, u32 blk, int n)
{
	KV_BUG_ON(n < 0 && !h->cached);
	KV_BUG_ON(c->blocks[blk].state != BLK_CACHED);
	h->cached += (u32)n;
	if (span_is_isolated(&c->spans[block_span(c, blk)]))
		h->going += (u32)n;
}

static void entry_hit(const struct core *c, struct hits *h, const struct kv_entry *e,
		      u32 ref)
{
	h->low += e->dev == CORE_NONE;
	h->reads += ref_is_read(c, ref);
}

static void hits_add(struct core *c, struct hits *h, u32 at, u32 ref)
{
	c->scratch[at] = ref;
	if (ref & REF_ENTRY)
		entry_hit(c, h, &c->entries_low[ref & ~REF_ENTRY], ref);
	else if (c->blocks[ref].state == BLK_CACHED)
		hits_count(c, h, ref, 1);
}

/*
 * Find a block after the prefix @hash, of node @node, that begins like the rest
 * of the prompt.  @ids are the next @nr ids of the prompt.  A client that cannot
 * use a part of a block gets none.
 */
static void hits_find_part(struct core *c, const struct kv_seq *s,
			   struct hits *h, u32 node, const u64 *hash,
			   const u32 *ids, u32 nr)
{
	u32 blk;

	if (s->open_flags & KVMM_OPEN_WHOLE_BLOCKS)
		return;
	core_work(c, nr / 16);
	blk = kid_find(c, s->domain, node, hash, ids, nr, &h->part);
	if (blk != CORE_NONE && block_is_claimed(c, blk))
		h->part = 0;
	else if (blk != CORE_NONE)
		hits_add(c, h, h->whole, blk);
}

void hits_drop_part(const struct core *c, struct hits *h)
{
	u32 blk = c->scratch[h->whole];

	if (!h->part)
		return;
	KV_BUG_ON(blk & REF_ENTRY);
	if (c->blocks[blk].state == BLK_CACHED)
		hits_count(c, h, blk, -1);
	h->part = 0;
}

/**
 * hits_drop_reads() - end the prefix before the first block that must be read
 */
void hits_drop_reads(const struct core *c, struct hits *h)
{
	hits_drop_part(c, h);
	while (h->reads) {
		u32 ref = c->scratch[--h->whole];

		if (!(ref & REF_ENTRY)) {
			if (c->blocks[ref].state == BLK_CACHED)
				hits_count(c, h, ref, -1);
			continue;
		}
		h->reads -= ref_is_read(c, ref);
		h->low -= c->entries_low[ref & ~REF_ENTRY].dev == CORE_NONE;
	}
}

/* Keep the entries of the prefix, or no longer. */
static void hits_pin(struct core *c, const struct hits *h, bool pin)
{
	u32 i;

	for (i = 0; i < h->whole; i++) {
		u32 ref = c->scratch[i];

		if (!(ref & REF_ENTRY))
			continue;
		if (pin)
			entry_get_ref(c, ref & ~REF_ENTRY);
		else
			entry_drop_ref(c, ref & ~REF_ENTRY);
	}
}

static u32 hits_count_reads(const struct core *c, const struct hits *h)
{
	u32 i, nr = 0;

	for (i = 0; i < h->whole; i++)
		nr += ref_is_read(c, c->scratch[i]);
	return nr;
}

/**
 * hits_room() - get host slots for the blocks of the prefix that must be read
 * @waits: takes whether slots will be free when writes have ended
 *
 * Getting slots may drop host slots of other blocks of the prefix that an area has,
 * too, so they are counted again until nothing changes.
 * Return: whether they are free now.
 */
bool hits_room(struct core *c, u32 dom, struct hits *h, bool *waits)
{
	bool room = false;
	u32 tries;

	*waits = false;
	hits_pin(c, h, true);
	for (tries = 0; tries < 8; tries++) {
		h->reads = hits_count_reads(c, h);
		room = host_free(c, dom) >= h->reads;
		if (room || !demote_room(c, dom, h->reads, waits))
			break;
	}
	hits_pin(c, h, false);
	return room;
}

/*
 * The prefix that an earlier lookup found is still in the index if its last name
 * is, because a name is never dropped before its descendants.  Its blocks may be
 * others now, and may be unusable.
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
		KV_BUG_ON(index_domain(c, c->nodes[node].ref) != s->domain);
		hits_add(c, h, --i, c->nodes[node].ref);
	}
	if (i) {
		*h = (struct hits){ 0 };
		return CORE_NONE;
	}
	h->whole = s->found;
	return last;
}

/* Remember the prefix found so far, so that it is not hashed again. */
static void hits_note(struct kv_seq *s, const struct hits *h, const u64 *hash)
{
	s->found = h->whole;
	memcpy(s->found_hash, hash, sizeof(s->found_hash));
}

/**
 * prefix_find() - longest cached prefix of the ids
 *
 * A long prompt with a long cached prefix is hashed in slices between other
 * events: an event that has done a lot leaves the rest to the next.
 *
 * Return: true: @h is complete; false: there is more to hash, @h has no meaning.
 */
bool prefix_find(struct core *c, struct kv_seq *s, struct hits *h)
{
	const struct kv_domain *d = seq_domain(c, s);
	struct id_cursor cur = { .page = s->id_head };
	u32 *ids = c->prompt, left = s->nr_ids - 1, bt = d->block_tokens, ref, node;
	u32 most = host_slots_max(c, s->domain) / 4 * 3;
	u64 hash[2], next[2];

	*h = (struct hits){ 0 };
	KV_BUG_ON(!s->nr_ids || !(s->flags & SEQF_QUEUED));
	if (s->open_flags & KVMM_OPEN_NO_MATCH)
		return true;
	core_work(c, WORK_KNOWN * s->found);
	node = hits_known(c, s, h);
	index_root(c, d, s->salt, hash);
	if (h->whole) {
		memcpy(hash, s->found_hash, sizeof(hash));
		KV_BUG_ON(h->whole * bt > left);
		ids_skip(c, &cur, h->whole * bt);
		left -= h->whole * bt;
	}
	for (; left >= bt; left -= bt) {
		core_work(c, work_name(bt));
		ids_next(c, &cur, ids, bt);
		index_chain(c, d, hash, ids, next);
		ref = index_lookup(c, s->domain, next, ids);
		if (ref == CORE_NONE || !ref_usable(c, ref) ||
		    (ref_is_read(c, ref) && h->reads >= most)) {
			h->leaves = ref_leaves(c, ref);
			hits_note(s, h, hash);
			hits_find_part(c, s, h, node, hash, ids, bt);
			return true;
		}
		hits_add(c, h, h->whole++, ref);
		node = index_node(c, ref);
		memcpy(hash, next, sizeof(hash));
		if (c->work >= core_cfg(c)->event_work && left >= 2 * bt) {
			hits_note(s, h, hash);
			return false;
		}
	}
	hits_note(s, h, hash);
	ids_next(c, &cur, ids, left);
	hits_find_part(c, s, h, node, hash, ids, left);
	return true;
}
