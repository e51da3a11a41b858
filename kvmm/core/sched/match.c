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
	KV_BUG_ON(s->tab.nr_blocks || s->nr_steps || s->nr_ids != total);
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

static void hits_add(const struct core *c, struct hits *h, u32 ref)
{
	if (ref & REF_ENTRY)
		entry_hit(c, h, &c->entries_low[ref & ~REF_ENTRY], ref);
	else if (c->blocks[ref].state == BLK_CACHED)
		hits_count(c, h, ref, 1);
}

static void hits_put(struct core *c, struct hits *h, u32 at, u32 ref)
{
	c->scratch[at] = ref;
	hits_add(c, h, ref);
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
		hits_put(c, h, h->whole[0], blk);
}

/**
 * hits_drop_part() - the prefix ends with whole blocks
 *
 * The block of which a part was found is counted no more.
 */
void hits_drop_part(const struct core *c, struct hits *h)
{
	u32 blk = c->scratch[h->whole[0]];

	if (!h->part)
		return;
	KV_BUG_ON(blk & REF_ENTRY);
	if (c->blocks[blk].state == BLK_CACHED)
		hits_count(c, h, blk, -1);
	h->part = 0;
}

/* Places of the references of a group, and the first and last of them. */
#define for_each_hit(d, h, g, i)					\
	for ((g) = 0; (g) < (d)->nr_groups; (g)++)			\
		for ((i) = (h)->at[g] + (h)->first[g];			\
		     (i) < (h)->at[g] + (h)->whole[g]; (i)++)

/* hits_blocks() - table entries that the prefix fills */
u32 hits_blocks(const struct kv_domain *d, const struct hits *h)
{
	u32 g, nr = 0;

	for (g = 0; g < d->nr_groups; g++)
		nr += h->whole[g] - h->first[g];
	return nr;
}

/**
 * hits_drop_reads() - end the prefix before the first block that must be read
 *
 * With several groups it ends before the first block.
 */
void hits_drop_reads(const struct core *c, const struct kv_seq *s, struct hits *h)
{
	if (seq_groups(c, s) > 1) {
		*h = (struct hits){ 0 };
		return;
	}
	hits_drop_part(c, h);
	while (h->reads) {
		u32 ref = c->scratch[--h->whole[0]];

		h->len -= seq_domain(c, s)->hit_tokens;
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
static void hits_pin(struct core *c, const struct kv_domain *d, const struct hits *h,
		     bool pin)
{
	u32 g, i;

	for_each_hit(d, h, g, i) {
		u32 ref = c->scratch[i];

		if (!(ref & REF_ENTRY))
			continue;
		if (pin)
			entry_get_ref(c, ref & ~REF_ENTRY);
		else
			entry_drop_ref(c, ref & ~REF_ENTRY);
	}
}

static u32 hits_count_reads(const struct core *c, const struct kv_domain *d,
			    const struct hits *h)
{
	u32 g, i, nr = 0;

	for_each_hit(d, h, g, i)
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
	const struct kv_domain *d = &c->domains[dom];
	bool room = false;
	u32 tries;

	*waits = false;
	hits_pin(c, d, h, true);
	for (tries = 0; tries < 8; tries++) {
		h->reads = hits_count_reads(c, d, h);
		room = host_free(c, dom) >= h->reads;
		if (room || !demote_room(c, dom, h->reads, waits))
			break;
	}
	hits_pin(c, d, h, false);
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
		hits_put(c, h, --i, c->nodes[node].ref);
	}
	if (i) {
		*h = (struct hits){ 0 };
		return CORE_NONE;
	}
	h->whole[0] = s->found;
	return last;
}

/* Remember the prefix found so far, so that it is not hashed again. */
static void hits_note(struct kv_seq *s, const struct hits *h, const u64 *hash)
{
	s->found = h->whole[0];
	memcpy(s->found_hash, hash, sizeof(s->found_hash));
}

/* The most tokens that a hit has: the last one is computed, unless the client needs none. */
static u32 hits_most(const struct kv_seq *s)
{
	return s->nr_ids - !(s->open_flags & KVMM_OPEN_WHOLE_PROMPT);
}

/* prefix_find() for a domain with one group */
static bool prefix_find_one(struct core *c, struct kv_seq *s, struct hits *h)
{
	const struct kv_domain *d = seq_domain(c, s);
	struct id_cursor cur = { .page = s->id_head };
	u32 *ids = c->prompt, left = hits_most(s), bt = d->hit_tokens, ref, node;
	u32 most = host_slots_max(c, s->domain) / 4 * 3;
	u64 hash[2], next[2];

	core_work(c, WORK_KNOWN * s->found);
	node = hits_known(c, s, h);
	index_root(c, d, s->salt, 0, hash);
	if (h->whole[0]) {
		memcpy(hash, s->found_hash, sizeof(hash));
		KV_BUG_ON(h->whole[0] * bt > left);
		ids_skip(c, &cur, h->whole[0] * bt);
		left -= h->whole[0] * bt;
	}
	for (; left >= bt; left -= bt) {
		core_work(c, work_name(bt));
		ids_next(c, &cur, ids, bt);
		index_chain(c, d, 0, hash, ids, next);
		ref = index_lookup(c, s->domain, 0, next, ids);
		if (ref == CORE_NONE || !ref_usable(c, ref) ||
		    (ref_is_read(c, ref) && h->reads >= most)) {
			h->leaves = ref_leaves(c, ref);
			hits_note(s, h, hash);
			hits_find_part(c, s, h, node, hash, ids, bt);
			return true;
		}
		hits_put(c, h, h->whole[0]++, ref);
		node = index_node(c, ref);
		memcpy(hash, next, sizeof(hash));
		if (c->work >= core_cfg(c)->event_work && left >= 2 * bt) {
			hits_note(s, h, hash);
			return false;
		}
	}
	hits_note(s, h, hash);
	if (!left)
		return true;
	ids_next(c, &cur, ids, left);
	hits_find_part(c, s, h, node, hash, ids, left);
	return true;
}

/* ---- several groups ---- */

/*
 * Look up one block that ends with the prefix named @name: part @part of the record in
 * a group of records, else 0.  @ids: those of the block or record.
 */
static u32 group_look(const struct core *c, const struct kv_seq *s, struct hits *h,
		      u32 g, u32 part, const u64 *name, const u32 *ids)
{
	u64 hash[2] = { name[0], name[1] };
	u32 ref;

	index_mix(part_code(g, part), hash);
	ref = index_lookup(c, s->domain, g, hash, ids);
	h->leaves |= ref_leaves(c, ref);
	return ref != CORE_NONE && ref_usable(c, ref) ? ref : CORE_NONE;
}

/*
 * Look up the blocks that end @to tokens into a piece of hit_tokens ids, whose prefix
 * is named @name.  @at: tokens before the piece.  A block that cannot be used is
 * CORE_NONE in c->scratch.
 * Return: false: a group without a window lacks its block, so no longer prefix exists.
 */
static bool groups_look(struct core *c, const struct kv_seq *s, struct hits *h,
			u32 at, u32 to, const u64 *name)
{
	const struct kv_domain *d = seq_domain(c, s);
	u32 g, i, *refs;

	for (g = 0; g < d->nr_groups; g++) {
		u32 bt = d->group[g].block_tokens, nr = d->width[g];

		if (to % bt)
			continue;
		refs = c->scratch + h->at[g] + group_whole(d, g, at + to) - nr;
		for (i = 0; i < nr; i++)
			refs[i] = group_look(c, s, h, g, i, name, c->prompt + to - bt);
		if (refs[0] == CORE_NONE && !d->window[g])
			return false;
	}
	return true;
}

/* Does each group with a window have it before @len? */
static bool groups_reach(const struct core *c, const struct kv_domain *d,
			 const struct hits *h, u32 len)
{
	u32 g, i;

	for (g = 0; g < d->nr_groups; g++) {
		if (!d->window[g])
			continue;
		for (i = group_whole(d, g, len); i-- > group_first(d, g, len);)
			if (c->scratch[h->at[g] + i] == CORE_NONE)
				return false;
	}
	return true;
}

/* The prefix has @len tokens: count the blocks that it needs. */
static void groups_count(const struct core *c, const struct kv_domain *d,
			 struct hits *h, u32 len)
{
	u32 g, i;

	h->len = len;
	for (g = 0; g < d->nr_groups; g++) {
		h->whole[g] = group_whole(d, g, len);
		h->first[g] = group_first(d, g, len);
	}
	for_each_hit(d, h, g, i)
		hits_add(c, h, c->scratch[i]);
}

/*
 * The longest prefix that all groups have.  Names are made once for all groups, of
 * base_tokens ids at a time.
 */
static void prefix_find_groups(struct core *c, struct kv_seq *s, struct hits *h)
{
	const struct kv_domain *d = seq_domain(c, s);
	struct id_cursor cur = { .page = s->id_head };
	u32 most = hits_most(s) / d->hit_tokens * d->hit_tokens;
	u32 at, to, g, nr = 0, best = 0;
	u64 hash[2];

	for (g = 0; g < d->nr_groups; g++) {
		h->at[g] = nr;
		nr += group_whole(d, g, most);
	}
	KV_BUG_ON(nr > core_sizes(c)->nr_scratch);
	index_root(c, d, s->salt, 0, hash);
	for (at = 0; at < most; at += d->hit_tokens) {
		ids_next(c, &cur, c->prompt, d->hit_tokens);
		for (to = d->base_tokens; to <= d->hit_tokens; to += d->base_tokens) {
			core_work(c, work_name(d->base_tokens));
			index_base(c, d, hash, c->prompt + to - d->base_tokens, hash);
			if (!groups_look(c, s, h, at, to, hash))
				goto out;
		}
		if (groups_reach(c, d, h, at + d->hit_tokens))
			best = at + d->hit_tokens;
	}
out:
	h->leaves &= best < most;
	groups_count(c, d, h, best);
	if (h->reads > host_slots_max(c, s->domain) / 4 * 3)
		*h = (struct hits){ 0 };
}

/**
 * hits_name() - the name of the first tokens of a prefix that was found
 * @len:  tokens, whole blocks of a group
 * @hash: takes the name, as group 0 has it
 *
 * The blocks of group 0 tell it, since a hit has all of them.
 */
void hits_name(const struct core *c, const struct kv_seq *s, const struct hits *h,
	       u32 len, u64 *hash)
{
	const struct kv_domain *d = seq_domain(c, s);
	u32 bt = d->group[0].block_tokens, i;
	const u32 *refs = c->scratch + h->at[0], *ids;

	KV_BUG_ON(len > h->len || len % d->base_tokens);
	if (len < bt)
		index_root(c, d, s->salt, 0, hash);
	else
		memcpy(hash, index_name(c, refs[len / bt - 1]), 2 * sizeof(*hash));
	if (len % bt == 0)
		return;
	ids = index_ids(c, refs[len / bt]);
	for (i = 0; i < len % bt; i += d->base_tokens)
		index_base(c, d, hash, ids + i, hash);
}

/**
 * prefix_find() - longest cached prefix of the ids
 *
 * A long prompt with a long cached prefix is hashed in slices between other
 * events: an event that has done a lot leaves the rest to the next.  With several
 * groups it is hashed at once.
 *
 * Return: true: @h is complete; false: there is more to hash, @h has no meaning.
 */
bool prefix_find(struct core *c, struct kv_seq *s, struct hits *h)
{
	bool done;

	*h = (struct hits){ 0 };
	KV_BUG_ON(!s->nr_ids || !(s->flags & SEQF_QUEUED));
	if (s->open_flags & KVMM_OPEN_NO_MATCH)
		return true;
	if (seq_groups(c, s) > 1) {
		prefix_find_groups(c, s, h);
		return true;
	}
	done = prefix_find_one(c, s, h);
	h->len = h->whole[0] * seq_domain(c, s)->hit_tokens;
	return done;
}
