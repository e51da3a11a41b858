// SPDX-License-Identifier: Apache-2.0
/*
 * lease_groups.c - leases in a domain with several layer groups
 *
 * A lease holds a hit: all blocks of the groups without a window, and of the others the
 * last window.  The entries of the table before that are as if they had been trimmed.
 * So a sequence that is opened with the lease has the tables of a hit of that length.
 *
 * A part of these blocks would be no hit.  So where not all can be held, a shorter hit is
 * looked for, and then all of its blocks are held, or there is no lease.  Blocks of the
 * longer one are kept as with KVMM_ADV_KEEP_UNTIL.
 */
#include "kvmm/core/sched/sched.h"

#define WORK_LOOK	3u	/* of a block that is looked at, see core_work() */

/* Blocks that a lease of so many tokens holds. */
static u32 blocks_of(const struct kv_domain *d, u32 len)
{
	u32 g, nr = 0;

	for (g = 0; g < d->nr_groups; g++)
		nr += len / d->group[g].block_tokens - group_first(d, g, len);
	return nr;
}

/* The longest length up to @len at which a lease holds at most @most blocks. */
static u32 len_within(struct core *c, const struct kv_domain *d, u32 len, u32 most)
{
	/* Group 0 has no window. */
	len = (u32)min((u64)len, (u64)most * d->group[0].block_tokens);
	for (len -= len % d->hit_tokens; len && blocks_of(d, len) > most;
	     len -= d->hit_tokens)
		core_work(c, 1);
	return len;
}

/* The longest sequence of the domain that has pages in a client's share. */
static u32 largest_len(const struct core *c, const struct kv_domain *d)
{
	u32 low = 0, high = UINT32_MAX, mid;

	while (high - low > 1) {
		mid = low + (high - low) / 2;
		if (domain_most(d, mid) <= domain_capacity(c, d) &&
		    seq_pages_most(d, mid) <= core_cfg(c)->nr_tables)
			low = mid;
		else
			high = mid;
	}
	return low;
}

/*
 * Find the blocks of the groups without a window of the prefix with @name, which has
 * @all tokens: those before @len get a place.
 * Return: false: it is not cached.  @whole: tokens before the first block that cannot be
 * held.
 */
static bool lease_climb(struct core *c, const struct prefix *p, const u64 *name, u32 all,
			u32 len, u32 *whole)
{
	const struct kv_domain *d = &c->domains[p->dom];
	u32 g, i, bt;

	for (g = 0; g < d->nr_groups; g++)
		if (!d->group[g].window &&
		    !prefix_climb(c, p, g, name, all, 0, len / d->group[g].block_tokens))
			return false;
	for (g = 0; g < d->nr_groups; g++) {
		bt = d->group[g].block_tokens;
		if (d->group[g].window)
			continue;
		core_work(c, WORK_LOOK * (len / bt));
		for (i = 0; i < len / bt; i++)
			if (!p->usable(c, c->scratch[p->at[g] + i]))
				len = i * bt / d->hit_tokens * d->hit_tokens;
	}
	*whole = len;
	return true;
}

/*
 * Choose the length of a lease of the prefix with @name, which has @all tokens, so that
 * it holds at most @most blocks.  Their references are in c->scratch.
 * Return: 0: there is none; @reason: why it is not @all.
 */
static u32 lease_choose(struct core *c, struct prefix *p, const u64 *name, u32 all,
			u32 most, s32 *reason)
{
	const struct kv_domain *d = &c->domains[p->dom];
	u32 len = len_within(c, d, all, domain_capacity(c, d)), whole, fits;

	while (len && seq_pages_most(d, len) > core_cfg(c)->nr_tables)
		len -= d->hit_tokens;
	*reason = len < all ? -E2BIG : -ENOENT;
	/* A table of so many entries has places in c->scratch. */
	KV_BUG_ON(prefix_places(c, p, 0, len) != len);
	if (!lease_climb(c, p, name, all, len, &whole)) {
		*reason = -ENOENT;
		return 0;
	}
	if (whole < len)
		*reason = -EAGAIN;
	len = whole;
	if (len && blocks_of(d, len) > most) {
		*reason = host_part(c, p->dom)->used ? -EDQUOT : -ENOSPC;
		len = len_within(c, d, len, most);
	}
	for (; len; len = len_within(c, d, fits, most)) {
		prefix_windows(c, p, len);
		fits = prefix_reach(c, p, len);
		if (fits == len)
			return len;
		/* A lookup found the window of this length, and it was dropped since. */
		if (len == all || core_worked(c))
			return 0;
	}
	return 0;
}

/* Push the references of a prefix of @len tokens to the tables. */
static void push_all(struct core *c, struct kv_seq *s, const struct prefix *p, u32 len)
{
	struct kv_tab *t;
	u32 first;

	for_each_tab(c, s, t) {
		first = group_first(seq_domain(c, s), t->group, len);
		while (t->nr_blocks < first) {
			if (table_push(c, t, CORE_NONE))
				KV_BUG_ON(true);
			table_set_none(c, t, t->nr_blocks - 1);
		}
		if (first) {
			prefix_name(c, p, first * tab_tokens(c, t), t->trim_hash);
			index_mix(t->group, t->trim_hash);
		}
		t->trimmed = first;
		t->trim_want = first;
		lease_push(c, t, c->scratch + (p->at[t->group] + first),
			   tab_blocks(c, t, len) - first);
	}
}

/* Get host slots for the blocks of the tables.  Return: 0; @lack: slots that cannot be had. */
static int get_slots(struct core *c, const struct kv_seq *s, u32 *lack)
{
	enum demote got = DEMOTE_DONE;
	const struct kv_tab *t;
	u32 i, nr = 0;

	for_each_pte(c, s, t, i)
		nr += pte_is_present(table_pte(c, t, i));
	core_work(c, WORK_LOOK * seq_live(c, s));
	while (host_free(c, s->domain) < nr && got == DEMOTE_DONE)
		got = demote_slot(c, s->domain, CORE_NONE);
	if (got == DEMOTE_DONE)
		return 0;
	*lack = nr - host_free(c, s->domain);
	return got == DEMOTE_WAITS ? -EAGAIN : -ENOSPC;
}

/*
 * Hold all blocks of a prefix of @len tokens, or none.
 * Return: 0; else a negative errno.  @held: blocks that could be held.
 */
static int lease_try(struct core *c, struct kv_seq *s, const struct prefix *p, u32 len,
		     u32 *held)
{
	u32 pages = seq_pages_most(seq_domain(c, s), len) +
		    seq_pages_most(seq_domain(c, s), largest_len(c, seq_domain(c, s)));
	u32 lack = 0;
	s32 err;

	*held = 0;
	/* The client's largest sequence must still find pages. */
	if (!table_has_pages(c, s, pages))
		return -ENOSPC;
	push_all(c, s, p, len);
	err = get_slots(c, s, &lack);
	*held = err ? seq_live(c, s) - lack : lease_hold(c, s, &err);
	lease_unmap(c, s);
	if (!err)
		return 0;
	seq_unmap(c, s);
	seq_tabs_init(c, s);
	return err;
}

/* The blocks from @i to @end of a group are evicted last.  Return: false: not all. */
static bool keep_blocks(struct core *c, const struct prefix *p, u32 g, u32 i, u32 end,
			u64 until)
{
	u32 ref, blk;

	for (; i < end; i++) {
		ref = c->scratch[p->at[g] + i];
		if (ref == CORE_NONE)
			return false;
		blk = ref & REF_ENTRY ? c->entries_low[ref & ~REF_ENTRY].dev : ref;
		if (blk == CORE_NONE || !lease_keep_block(c, blk, until))
			return false;
	}
	return true;
}

/*
 * The blocks of a prefix that the lease of its first @held tokens lacks are evicted last.
 * Return: tokens behind @held that are, all or none.
 */
static u32 keep_rest(struct core *c, struct prefix *p, const struct kvmm_lease_arg *a,
		     const u64 *name, u32 held)
{
	const struct kv_domain *d = &c->domains[p->dom];
	u64 until = c->now + a->ms * 1000000ull;
	u32 g, bt, from, whole;

	if (held == a->len || prefix_places(c, p, 0, a->len) < a->len ||
	    !lease_climb(c, p, name, a->len, a->len, &whole) || whole < a->len)
		return 0;
	prefix_windows(c, p, a->len);
	for (g = 0; g < d->nr_groups; g++) {
		bt = d->group[g].block_tokens;
		from = max(held / bt, group_first(d, g, a->len));
		if (!keep_blocks(c, p, g, from, a->len / bt, until))
			return 0;
	}
	return a->len - held;
}

/* Make the lease: a shorter one if not all can be held. */
static int lease_groups(struct core *c, struct kv_seq *s, struct prefix *p,
			const u64 *name, u32 len, u32 all, struct kvmm_lease_res *res)
{
	s32 why = res->reason;
	u32 held;
	int err;

	for (;;) {
		err = lease_try(c, s, p, len, &held);
		if (!err)
			break;
		why = err;
		/* The blocks of a shorter one may need slots, too, so it is smaller. */
		len = err == -EAGAIN || !held || core_worked(c) ? 0 :
		      lease_choose(c, p, name, all, held, &why);
		if (!len) {
			seq_unmake(c, s);
			return err;
		}
		why = err;
	}
	lease_begin(c, s, res);
	res->reason = why;
	return 0;
}

/**
 * lease_make_groups() - lease the prefix with this name in a domain with several groups
 * @a:   entry of SEQ_LEASE
 * @res: takes the lease
 *
 * Return: as seq_lease().
 */
int lease_make_groups(struct core *c, u32 client, const struct kvmm_lease_arg *a,
		      const u64 *name, struct kvmm_lease_res *res)
{
	struct prefix p = {
		.dom = c->clients[client].domain, .salt = a->salt,
		.usable = lease_can_hold,
	};
	u32 len = lease_choose(c, &p, name, a->len, lease_room(c, p.dom), &res->reason);
	int err = res->reason;
	struct kv_seq *s;

	if (len == a->len)
		res->reason = 0;
	if (len) {
		s = lease_new(c, client, a);
		err = s ? lease_groups(c, s, &p, name, len, a->len, res) : -ENOSPC;
	}
	if (err)
		res->reason = err;
	if (err != -ENOENT)
		res->kept = keep_rest(c, &p, a, name, res->held);
	return err;
}
