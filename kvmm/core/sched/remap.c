// SPDX-License-Identifier: Apache-2.0
/*
 * remap.c - SEQ_REMAP: sequences of a family exchange tables, for beam search
 *
 * A request has entries {child := other} for many children at once, of many
 * families.  All entries read the state before the request, so they may permute
 * and duplicate as they like.  A child gets the table and the length of the
 * other sequence, and the number of its tokens that were lost before
 * (kv_seq.lost_len, for psi.c).  It keeps its own handle, epoch, priority and
 * age, and of its reservation the part that it still needs.
 *
 * The entries are edges from children to the sequences that they read, one from
 * each child.  A child that no other entry still reads is overwritten.  That may
 * release the sequence that it read, and so on.  What remains are circles, in
 * which each table has exactly one reader.  Circles exchange whole tables,
 * without looking at table entries.
 *
 * Two members of a family have the same beginning.  If both tables have the same
 * block at an index, all tokens before it are the same, too.  So tables are
 * compared from the end back to the first index at which they agree, and only
 * the entries after it are changed.
 *
 * The entries of a family take effect together or not at all.  One entry that is
 * wrong, or that names a sequence with an open step or one that is not READY,
 * leaves the whole family unchanged, with its error for all.  If the client's
 * table pages do not suffice, no entry of the request takes effect.
 */
#include "kvmm/core/sched/sched.h"

/* ---- checks ---- */

/* Set @err for all entries of the family that have no error; 0 clears it. */
static void family_fail(struct core *c, struct kv_seq *s, int err)
{
	const struct kv_seq *m;

	for_each_relative(c, s, m)
		if (!seq_scan(c, m)->plan_err || !err)
			seq_scan(c, m)->plan_err = err;
}

static int remap_check(const struct core *c, const struct kv_seq *child,
		       const struct kv_seq *other)
{
	if (!child || !other)
		return -ENOENT;
	if (seq_scan(c, child)->plan || child->family != other->family)
		return -EINVAL;
	if (child->nr_steps || other->nr_steps)
		return -EBUSY;
	if (child->state != KVMM_SEQ_READY || other->state != KVMM_SEQ_READY)
		return -ESTALE;
	return 0;
}

/*
 * Look up and check the sequences of all entries.  An error is noted for the families
 * of both.  Return: true when an entry is wrong.
 */
static bool remap_judge(struct core *c, u32 client,
			const struct kvmm_remap_arg *a, u32 nr)
{
	bool wrong = false;
	u32 i;

	for (i = 0; i < nr; i++) {
		struct kv_seq *child = seq_find(c, client, a[i].child);
		struct kv_seq *other = seq_find(c, client, a[i].other);
		int err = remap_check(c, child, other);

		c->remaps[i] = (struct kv_remap){
			.child = child ? seq_index(c, child) : CORE_NONE,
			.other = other ? seq_index(c, other) : CORE_NONE,
			.err = err,
		};
		if (child && !seq_scan(c, child)->plan)
			seq_scan(c, child)->plan = i + 1;
		if (!err)
			continue;
		wrong = true;
		if (child)
			family_fail(c, child, err);
		if (other)
			family_fail(c, other, err);
	}
	return wrong;
}

/* An error of one entry becomes the error of its family. */
static void remap_spread(struct core *c, u32 nr)
{
	u32 i;

	for (i = 0; i < nr; i++) {
		struct kv_remap *r = &c->remaps[i];

		if (!r->err)
			r->err = c->seq_scans[r->child].plan_err;
	}
}

/* ---- order ---- */

static bool remap_is_live(const struct kv_remap *r)
{
	return !r->err && r->child != r->other;
}

/* The entry with child @seq, if it is carried out. */
static struct kv_remap *remap_of(const struct core *c, u32 seq)
{
	struct kv_remap *r;

	if (!c->seq_scans[seq].plan)
		return NULL;
	r = &c->remaps[c->seq_scans[seq].plan - 1];
	KV_BUG_ON(c->seq_scans[seq].plan > CORE_MAX_BATCH);
	return r->child == seq && remap_is_live(r) ? r : NULL;
}

/*
 * Write the order in which children are overwritten into ->order.  Children of
 * circles keep one reader and are not among them.
 * Return: number of children.
 */
static u32 remap_order(struct core *c, u32 nr)
{
	struct kv_remap *r;
	u32 i, done, found = 0;

	for (i = 0; i < nr; i++) {
		r = remap_is_live(&c->remaps[i]) ?
		    remap_of(c, c->remaps[i].other) : NULL;
		if (r)
			r->readers++;
	}
	for (i = 0; i < nr; i++)
		if (remap_is_live(&c->remaps[i]) && !c->remaps[i].readers)
			c->remaps[found++].order = i;
	for (done = 0; done < found; done++) {
		r = remap_of(c, c->remaps[c->remaps[done].order].other);
		if (r && !--r->readers)
			c->remaps[found++].order = (u32)(r - c->remaps);
	}
	return found;
}

/* Table pages for children that grow; pages that others free do not count. */
static u32 remap_pages(const struct core *c, u32 found)
{
	u32 i, pages = 0;

	for (i = 0; i < found; i++) {
		const struct kv_remap *r = &c->remaps[c->remaps[i].order];
		const struct kv_seq *other = &c->seqs[r->other];
		const struct kv_tab *t;

		KV_BUG_ON(c->seqs[r->child].client != other->client);
		for_each_tab(c, &c->seqs[r->child], t) {
			u32 has = table_pages(t->nr_blocks);
			u32 wants = table_pages(seq_tab(c, other, t->group)->nr_blocks);

			pages += wants > has ? wants - has : 0;
		}
	}
	return pages;
}

/* ---- execution ---- */

/*
 * First index after which the two tables have no equal entry.  Below it they
 * have the same content, though not always in the same block: one of the two
 * sequences may have changed to another block before (merge.c).
 */
static u32 remap_parts(const struct core *c, const struct kv_tab *a,
			 const struct kv_tab *b)
{
	u32 i = min(a->nr_blocks, b->nr_blocks);
	u32 low = max(a->trimmed, b->trimmed);

	while (i > low && table_pte(c, a, i - 1).val !=
			  table_pte(c, b, i - 1).val)
		i--;
	return i;
}

static void remap_entry(struct core *c, struct kv_tab *t, u32 idx,
			kv_pte_t pte)
{
	kv_pte_t old = table_pte(c, t, idx);

	if (pte.val == old.val)
		return;
	KV_BUG_ON(pte_is_entry(pte) || pte_is_entry(old));
	KV_BUG_ON(pte_is_present(pte) && !c->blocks[pte_block(pte)].nr_map);
	if (pte_is_present(pte)) {
		block_map(c, pte_block(pte));
		table_set(c, t, idx, pte_block(pte));
	} else {
		table_set_none(c, t, idx);
	}
	if (pte_is_present(old))
		block_unmap(c, pte_block(old));
}

/* Make the table entries of @s from @from on those of @other. */
static void remap_entries(struct core *c, struct kv_tab *t,
			  const struct kv_tab *other, u32 from)
{
	u32 i;

	KV_BUG_ON(t == other || from > other->nr_blocks);
	if (t->nr_blocks > other->nr_blocks)
		tab_unmap_from(c, t, other->nr_blocks);
	for (i = from; i < t->nr_blocks; i++)
		remap_entry(c, t, i, table_pte(c, other, i));
	for (; i < other->nr_blocks; i++) {
		kv_pte_t pte = table_pte(c, other, i);
		u32 blk = pte_is_present(pte) ? pte_block(pte) : CORE_NONE;

		KV_BUG_ON(t->nr_blocks != i || pte_is_entry(pte));
		if (table_push(c, t, blk))
			KV_BUG_ON(true);
		if (blk != CORE_NONE)
			block_map(c, blk);
		else
			table_set_none(c, t, i);
	}
}

/* Copy the entries at indices that only one of the two has trimmed. */
static void remap_trimmed(struct core *c, struct kv_tab *t,
			  const struct kv_tab *other)
{
	u32 i = min(t->trimmed, other->trimmed);
	u32 end = min(max(t->trimmed, other->trimmed),
		      min(t->nr_blocks, other->nr_blocks));

	if (i < end && t->trimmed > other->trimmed)
		t->dirty = min(t->dirty, i);
	for (; i < end; i++)
		remap_entry(c, t, i, table_pte(c, other, i));
}

/* Fields that a table gets with the entries of another one. */
struct tab_rest {
	u32	trimmed;
	u64	trim_hash[2];
};

/* Fields that a sequence gets with the tables of another one. */
struct remap_rest {
	u32	valid_len;
	u32	lost_len;
	u32	flags;
	struct tab_rest tab[KVMM_MAX_GROUPS];
};

static struct remap_rest rest_of(const struct core *c, const struct kv_seq *s)
{
	struct remap_rest rest = {
		.valid_len = s->valid_len, .lost_len = s->lost_len,
		.flags = s->flags & SEQF_PREEMPTED,
	};
	const struct kv_tab *t;

	for_each_tab(c, s, t)
		rest.tab[t->group] = (struct tab_rest){
			.trimmed = t->trimmed,
			.trim_hash = { t->trim_hash[0], t->trim_hash[1] },
		};
	return rest;
}

static void tab_rest_take(struct kv_tab *t, const struct tab_rest *rest, u32 keep)
{
	KV_BUG_ON(rest->trimmed > t->nr_blocks);
	t->trimmed = rest->trimmed;
	t->trim_want = rest->trimmed;
	memcpy(t->trim_hash, rest->trim_hash, sizeof(t->trim_hash));
	tab_promise_put(t, keep);
}

/* @keep: reservation that each table keeps */
static void rest_take(struct core *c, struct kv_seq *s,
		      const struct remap_rest *rest, const u32 *keep)
{
	struct kv_tab *t;

	KV_BUG_ON(s->nr_steps || s->state != KVMM_SEQ_READY);
	s->valid_len = rest->valid_len;
	s->cover = rest->valid_len;
	s->lost_len = rest->lost_len;
	s->flags |= rest->flags;
	for_each_tab(c, s, t)
		tab_rest_take(t, &rest->tab[t->group], keep[t->group]);
	seq_publish(c, s);
	core_count(c, CORE_EV_seq_remap, 1);
	/* The tail that it mapped before may have only one sharer left now. */
	domain_kick(seq_domain(c, s));
	/* Entries that it shares now are no growth to commit to. */
	if (core_cfg(c)->overcommit == CORE_OVERCOMMIT_NEVER)
		core_kick(c);
}

static void remap_overwrite(struct core *c, struct kv_seq *s,
			    const struct kv_seq *from)
{
	struct remap_rest rest = rest_of(c, from);
	u32 keep[KVMM_MAX_GROUPS], parts;
	struct kv_tab *t;

	KV_BUG_ON(s->domain != from->domain || s->nr_steps);
	for_each_tab(c, s, t) {
		const struct kv_tab *other = seq_tab(c, from, t->group);

		parts = remap_parts(c, t, other);
		keep[t->group] = tab_promise_take(c, t, other->nr_blocks);
		t->dirty = min(t->dirty, parts);
		remap_trimmed(c, t, other);
		remap_entries(c, t, other, parts);
		KV_BUG_ON(t->nr_blocks != other->nr_blocks);
	}
	rest_take(c, s, &rest, keep);
	seq_share_tails(c, s);
}

/*
 * Set which entries clients must read again, before the tables of the circle
 * move.  Whole tables move, so entries with another block of the same content
 * count, too.
 */
static void rotate_dirty(struct core *c, const struct kv_remap *r)
{
	u32 start = r->child;
	struct kv_tab *t;

	do {
		for_each_tab(c, &c->seqs[r->child], t) {
			const struct kv_tab *other;

			other = seq_tab(c, &c->seqs[r->other], t->group);
			t->dirty = min(t->dirty, table_differs(c, t, other,
					max(t->trimmed, other->trimmed)));
			if (t->trimmed > other->trimmed)
				t->dirty = min(t->dirty, other->trimmed);
		}
		r = remap_of(c, r->other);
	} while (r->child != start);
}

/* The sequence is about to get tables with the lengths of those of @from. */
static void rotate_promises(struct core *c, struct kv_seq *s,
			    const struct kv_seq *from, u32 *keep)
{
	struct kv_tab *t;

	for_each_tab(c, s, t)
		keep[t->group] = tab_promise_take(c, t,
				seq_tab(c, from, t->group)->nr_blocks);
}

/*
 * Rotate the tables of a circle that begins with @r: each child gets the tables
 * of the sequence that it reads.  The tables of the first child move along, and
 * end up with their reader.
 */
static void remap_rotate(struct core *c, struct kv_remap *r)
{
	struct kv_seq *s = &c->seqs[r->child], *other;
	struct remap_rest first = rest_of(c, s), rest;
	u32 start = r->child, keep[KVMM_MAX_GROUPS];
	struct kv_tab *t;

	rotate_dirty(c, r);
	while (r->other != start) {
		other = &c->seqs[r->other];
		rotate_promises(c, s, other, keep);
		KV_BUG_ON(r->readers != 1 || s->domain != other->domain);
		rest = rest_of(c, other);
		for_each_tab(c, s, t)
			table_swap(c, t, seq_tab(c, other, t->group));
		rest_take(c, s, &rest, keep);
		r->readers = 0;
		r = remap_of(c, r->other);
		s = other;
	}
	/* @s has the tables of the first child, which it is to get. */
	rotate_promises(c, s, s, keep);
	rest_take(c, s, &first, keep);
	r->readers = 0;
}

static void remap_clear(struct core *c, u32 nr, bool wrong)
{
	u32 i;

	for (i = 0; i < nr; i++) {
		const struct kv_remap *r = &c->remaps[i];

		if (r->child != CORE_NONE)
			c->seq_scans[r->child].plan = 0;
		if (wrong && r->child != CORE_NONE)
			family_fail(c, &c->seqs[r->child], 0);
		if (wrong && r->other != CORE_NONE)
			family_fail(c, &c->seqs[r->other], 0);
	}
}

/**
 * seq_remap() - carry out all entries of a SEQ_REMAP
 * @a:   @nr entries, at most CORE_MAX_BATCH
 * @res: as many records: 0; -ENOENT; -EINVAL: not of one family, or a child
 *       that is named twice; -EBUSY: a step is open; -ESTALE: not READY;
 *       -ENOSPC: the client's table pages do not suffice
 */
void seq_remap(struct core *c, u32 client, const struct kvmm_remap_arg *a,
	       u32 nr, struct kvmm_seq_res *res)
{
	bool wrong = remap_judge(c, client, a, nr);
	u32 i, found, pages;

	if (wrong)
		remap_spread(c, nr);
	found = remap_order(c, nr);
	pages = remap_pages(c, found);
	if (pages && !table_has_pages(c, &c->seqs[c->remaps[
				      c->remaps[0].order].child], pages)) {
		for (i = 0; i < nr; i++)
			if (!c->remaps[i].err)
				c->remaps[i].err = -ENOSPC;
		found = 0;
	}
	for (i = 0; i < found; i++) {
		const struct kv_remap *r = &c->remaps[c->remaps[i].order];

		remap_overwrite(c, &c->seqs[r->child], &c->seqs[r->other]);
	}
	for (i = 0; i < nr; i++)
		if (remap_is_live(&c->remaps[i]) && c->remaps[i].readers)
			remap_rotate(c, &c->remaps[i]);
	for (i = 0; i < nr; i++) {
		const struct kv_remap *r = &c->remaps[i];

		res[i].status = r->err;
		if (r->child != CORE_NONE)
			res[i].valid_len = c->seqs[r->child].valid_len;
	}
	remap_clear(c, nr, wrong);
}
