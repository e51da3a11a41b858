// SPDX-License-Identifier: Apache-2.0
/*
 * lease.c - leases: content that was looked up stays for a while
 *
 * Between a lookup and the match for which it was made, cache may be dropped.  A
 * lease prevents that: until its deadline the content that it holds is on some tier.
 * It holds up no other sequence: it holds content on the lower tiers alone.  A block
 * that only the device has is copied to the host pool, and is ordinary cache
 * afterwards.  All leases together hold at most lease_percent of the lower tiers, of
 * which each tenant has an equal part, and those of a domain at most lease_percent of
 * the slots that the domain could have.
 *
 * Where no slot can be had, the lease ends before the block, and says why.  The blocks
 * after it are kept as with KVMM_ADV_KEEP_UNTIL (advise.c): they are evicted last.
 *
 * A lease belongs to its client, ends with it, and takes one of its sequences and
 * table pages.  Any client of the domain can open a sequence with the number of a
 * lease (../seq/leases.c): it has the leased tokens, and is restored like a swapped
 * sequence.
 *
 * A domain with several layer groups: lease_groups.c.
 */
#include "kvmm/core/sched/sched.h"

#define COPIES_MOST	1024u	/* copies in flight beside which a lease begins another */
#define WORK_HOLD	32u	/* of a block that is held, see core_work() */
#define WORK_WALK	3u	/* of a step up the prefix index */

/* ---- what a lease may hold ---- */

/* Slots of one lower pool that a domain could have. */
static u64 slots_of(const struct core *c, u32 dom, u32 pool)
{
	const struct kv_part *p = part_at(c, part_index(c, dom, pool));
	u64 all;

	if (!p->used || !core_pool(c, pool)->online)
		return 0;
	all = (u64)core_pool(c, pool)->nr_extents / p->span_extents * p->span_blocks;
	return min(all, (u64)p->max_blocks);
}

/* Bytes in slots that the leases of all domains of a tenant hold. */
static u64 tenant_leased(const struct core *c, u32 tenant)
{
	u64 bytes = 0;
	u32 i;

	for_each_domain(c, i)
		if (c->domains[i].tenant == tenant)
			bytes += c->domains[i].leased * host_part(c, i)->block_bytes;
	return bytes;
}

/**
 * lease_room() - blocks that the domain's leases may hold beside those that they hold
 *
 * Tenants share the bytes for leases equally, whichever of them has some.
 */
u32 lease_room(const struct core *c, u32 dom)
{
	const u64 slot = host_part(c, dom)->block_bytes, percent = core_cfg(c)->lease_percent;
	const struct kv_domain *d = &c->domains[dom];
	u64 slots = 0, mine = 0, held = tenant_leased(c, d->tenant);
	u32 i;

	if (!host_part(c, dom)->used)
		return 0;
	for (i = CORE_POOL_HOST; i < CORE_NR_POOLS; i++) {
		slots += core_pool(c, i)->online ? core_pool(c, i)->nr_extents *
			 core_cfg(c)->extent_size / slot : 0;
		mine += slots_of(c, dom, i);
	}
	slots = slots * percent / 100 / c->head->nr_tenants;
	mine = mine * percent / 100;
	slots = min(slots - min(slots, held / slot), mine - min(mine, (u64)d->leased));
	return (u32)min(slots, (u64)CORE_NONE - 1);
}

/* Printable ASCII without spaces, then zeros. */
static bool label_is_sane(const char *label)
{
	u32 i = 0;

	while (i < KVMM_LABEL_LEN && label[i] > ' ' && label[i] < 0x7f)
		i++;
	while (i < KVMM_LABEL_LEN && !label[i])
		i++;
	return i == KVMM_LABEL_LEN;
}

static int lease_check(const struct core *c, u32 client, const struct kv_domain *d,
		       const struct kvmm_lease_arg *a)
{
	if (a->flags || a->resv0 || !a->ms || !a->len ||
	    a->len % d->hit_tokens || !label_is_sane(a->label))
		return -EINVAL;
	if (a->ms > core_cfg(c)->lease_ms)
		return -ERANGE;
	if (device_is_lost(c, d))
		return -ENODEV;
	return drain_of_client(c, client) ? -ESHUTDOWN : 0;
}

/* lease_can_hold() - can the content be held, whichever tier has it? */
bool lease_can_hold(const struct core *c, u32 ref)
{
	const struct kv_entry *e;

	if (!(ref & REF_ENTRY))
		return c->blocks[ref].state == BLK_SEALED ||
		       c->blocks[ref].state == BLK_CACHED;
	e = &c->entries_low[ref & ~REF_ENTRY];
	return !(e->flags & ENTF_LOST) &&
	       ((e->flags & ENTF_HOST) || e->dev != CORE_NONE ||
		!area_stalled(c, e->area));
}

/*
 * Collect the references of a prefix of @nr blocks in c->scratch, the first @most of
 * them.  Return: those that can be held, from the beginning on; 0: it is not cached.
 */
static u32 prefix_refs(struct core *c, u32 dom, const u64 *name, u32 nr, u32 most)
{
	u32 node = index_find_node(c, dom, name), i;

	for (i = nr; i && node != CORE_NONE; node = c->nodes[node].parent)
		if (--i < most)
			c->scratch[i] = c->nodes[node].ref;
	core_work(c, WORK_WALK * (nr - i));
	if (i || node != CORE_NONE)
		return 0;
	for (i = 0; i < min(nr, most) && lease_can_hold(c, c->scratch[i]); i++)
		;
	return i;
}

/* ---- making one ---- */

/* The lower-tier entry of the reference's content; CORE_NONE: it needs a copy. */
static u32 ref_entry(const struct core *c, u32 ref)
{
	u32 entry = ref & REF_ENTRY ? ref & ~REF_ENTRY : c->blocks[ref].entry;

	return entry != CORE_NONE && entry_is_there(c, entry) ? entry : CORE_NONE;
}

/**
 * lease_push() - push @nr references to a table
 *
 * A block without a copy is mapped, so that nothing takes it until lease_hold() is done
 * with it.
 */
void lease_push(struct core *c, struct kv_tab *t, const u32 *refs, u32 nr)
{
	u32 i, ref, entry, idx = t->nr_blocks;
	int err;

	for (i = 0; i < nr; i++, idx++) {
		ref = refs[i];
		entry = ref_entry(c, ref);
		err = table_push(c, t, CORE_NONE);
		KV_BUG_ON(err || (entry == CORE_NONE && (ref & REF_ENTRY)));
		if (entry != CORE_NONE) {
			table_set_entry(c, t, idx, entry);
			entry_get_ref(c, entry);
		} else {
			block_map(c, ref);
			table_set(c, t, idx, ref);
		}
	}
	core_work(c, WORK_HOLD * nr);
}

/* Begin a copy of a mapped block.  Return: its entry; else a negative errno. */
static s64 block_hold(struct core *c, u32 blk)
{
	const struct kv_block *b = &c->blocks[blk];
	enum demote slot;
	u32 entry;

	if (b->entry != CORE_NONE)
		return entry_is_there(c, b->entry) ? (s64)b->entry : -EAGAIN;
	if (!host_part(c, b->domain)->used)
		return -ENOSPC;
	if (device_is_down(c, &c->domains[b->domain]) || b->nr_copy ||
	    c->now < c->head->clean_after ||
	    c->head->nr_copies >= COPIES_MOST)
		return -EAGAIN;
	if (!host_free(c, b->domain)) {
		slot = demote_slot(c, b->domain, b->node);
		if (slot != DEMOTE_DONE)
			return slot == DEMOTE_WAITS ? -EAGAIN : -ENOSPC;
	}
	entry = entry_out(c, blk, 0);
	return entry == CORE_NONE ? -ENOSPC : (s64)entry;
}

/* Hold one table entry.  Return: 0: a lower tier has the content, or gets it. */
static int entry_hold(struct core *c, struct kv_tab *t, u32 i)
{
	kv_pte_t pte = table_pte(c, t, i);
	s64 entry;
	u32 blk;

	if (pte_is_entry(pte))
		return 0;
	blk = pte_block(pte);
	entry = block_hold(c, blk);
	if (entry < 0)
		return (int)entry;
	c->blocks[blk].flags |= BLKF_VISITED;
	entry_get_ref(c, (u32)entry);
	table_set_entry(c, t, i, (u32)entry);
	core_crash(c, CORE_CRASH_lease_hold);
	return 0;
}

/**
 * lease_hold() - copy the mapped blocks of the tables down, from the beginning on
 * @reason: why not all
 *
 * They stay mapped, marked with BLKF_VISITED.
 * Return: table entries that are held, those of group 0 first.
 */
u32 lease_hold(struct core *c, struct kv_seq *s, s32 *reason)
{
	u32 room = lease_room(c, s->domain), held = 0, i;
	struct kv_tab *t;
	int err;

	for_each_pte(c, s, t, i) {
		if (held == room)
			err = host_part(c, s->domain)->used ? -EDQUOT : -ENOSPC;
		else
			err = entry_hold(c, t, i);
		if (err) {
			*reason = err;
			return held;
		}
		held++;
	}
	return held;
}

/**
 * lease_keep_block() - evict a block of the device last
 * @until: the end of the lease; the block is kept no longer
 *
 * Return: false: it is not cached, or too many are kept.
 */
bool lease_keep_block(struct core *c, u32 blk, u64 until)
{
	u32 node = index_node(c, blk);
	bool kept;

	if (node == CORE_NONE || !lease_can_hold(c, blk))
		return false;
	block_map(c, blk);	/* only a name in use can get a term */
	kept = lru_keep(c, node, until);
	block_unmap(c, blk);
	return kept;
}

/* The blocks from @i on are evicted last.  Return: number of them. */
static u32 lease_keep(struct core *c, const struct kv_seq *s, u32 i)
{
	u32 first = i, blk;

	for (; i < s->tab.nr_blocks; i++) {
		kv_pte_t pte = table_pte(c, &s->tab, i);

		blk = pte_is_entry(pte) ? c->entries_low[pte_block(pte)].dev :
					  pte_block(pte);
		if (blk == CORE_NONE || !lease_keep_block(c, blk, s->until))
			break;
	}
	return i - first;
}

static void tab_unhold(struct core *c, const struct kv_tab *t)
{
	u32 i, blk;

	for (i = t->nr_blocks; i-- > t->trimmed;) {
		kv_pte_t pte = table_pte(c, t, i);

		if (!pte_is_entry(pte))
			continue;
		blk = c->entries_low[pte_block(pte)].dev;
		if (blk == CORE_NONE || !(c->blocks[blk].flags & BLKF_VISITED))
			continue;
		c->blocks[blk].flags &= (u8)~BLKF_VISITED;
		block_unmap(c, blk);
	}
}

/*
 * lease_unmap() - unmap the blocks that lease_hold() copied
 *
 * From the end, so that in the cache children are older than parents.
 */
void lease_unmap(struct core *c, const struct kv_seq *s)
{
	const struct kv_tab *t;

	for_each_tab(c, s, t)
		tab_unhold(c, t);
}

/* lease_begin() - the sequence is a lease from now on; @res tells the client */
void lease_begin(struct core *c, struct kv_seq *s, struct kvmm_lease_res *res)
{
	s->valid_len = s->tab.nr_blocks * seq_domain(c, s)->group[0].block_tokens;
	s->cover = s->valid_len;
	s->prompt_len = s->valid_len;
	s->flags |= SEQF_SWAPPED | SEQF_PAGEDOUT | SEQF_PREEMPTED | SEQF_MATCHED;
	lease_enter(c, s);
	core_crash(c, CORE_CRASH_seq_make);
	s->state = KVMM_SEQ_SWAPPED;
	core_crash(c, CORE_CRASH_seq_made);
	seq_publish(c, s);
	core_count(c, CORE_EV_seq_open, 1);
	core_count(c, CORE_EV_lease, 1);
	res->held = s->valid_len;
	res->seq = seq_handle(c, s);
	res->number = lease_number(c, s);
	res->until = s->until;
}

/* lease_new() - a sequence for the lease, not yet known; NULL: the client has none left */
struct kv_seq *lease_new(struct core *c, u32 client, const struct kvmm_lease_arg *a)
{
	const struct kvmm_open_arg open = { .prompt_len = a->len, .salt = a->salt };
	struct kv_seq *s = seq_make(c, client, &open);

	if (!s)
		return NULL;
	s->until = c->now + a->ms * 1000000ull;
	memcpy(s->label, a->label, sizeof(s->label));
	return s;
}

/* Hold the first @nr references of c->scratch with the new sequence @s. */
static int lease_hold_some(struct core *c, struct kv_seq *s, u32 nr,
			   struct kvmm_lease_res *res)
{
	u32 held, pages;

	/* The client's largest sequence must still find pages. */
	pages = table_pages(nr) + table_pages(domain_capacity(c, seq_domain(c, s)));
	if (!table_has_pages(c, s, pages)) {
		seq_unmake(c, s);
		return -ENOSPC;
	}
	lease_push(c, &s->tab, c->scratch, nr);
	held = lease_hold(c, s, &res->reason);
	res->kept = lease_keep(c, s, held) * seq_domain(c, s)->group[0].block_tokens;
	tab_unmap_from(c, &s->tab, held);
	lease_unmap(c, s);
	if (held) {
		lease_begin(c, s, res);
		return 0;
	}
	seq_unmake(c, s);
	return res->reason;
}

/* Lease the prefix with this name in a domain with one group. */
static int lease_make(struct core *c, u32 client, const struct kvmm_lease_arg *a,
		      const u64 *name, struct kvmm_lease_res *res)
{
	u32 dom = c->clients[client].domain, all, most, nr;
	struct kv_seq *s;

	all = a->len / c->domains[dom].group[0].block_tokens;
	most = domain_capacity(c, &c->domains[dom]);
	nr = prefix_refs(c, dom, name, all, most);
	if (!nr)
		return -ENOENT;
	if (nr < all)
		res->reason = nr == most ? -E2BIG : -EAGAIN;
	s = lease_new(c, client, a);
	return s ? lease_hold_some(c, s, nr, res) : -ENOSPC;
}

/**
 * seq_lease() - one entry of SEQ_LEASE
 * @res: the answer, zeroed
 *
 * Return: 0: something is held; -EINVAL; -ERANGE: longer than lease_ms; -ENOENT: the
 * prefix is not cached, or the cookie names none; -EDQUOT: the domain's leases hold all
 * that they may; -ENOSPC: no slot on a lower tier, or the client has no sequence or
 * table page left; -EAGAIN: a copy cannot begin now; -ENODEV; -ESHUTDOWN.  As a reason
 * also -E2BIG: a sequence of the domain cannot be longer.
 */
int seq_lease(struct core *c, u32 client, const struct kvmm_lease_arg *a,
	      struct kvmm_lease_res *res)
{
	const struct kv_domain *d = &c->domains[c->clients[client].domain];
	const u64 cookie[2] = { a->cookie[0], a->cookie[1] };
	u64 root[2], name[2];
	int err = d->has_records ? -EOPNOTSUPP : lease_check(c, client, d, a);

	if (err == -ERANGE)
		res->until = c->now + core_cfg(c)->lease_ms * 1000000ull;
	if (err)
		return err;
	index_root(c, d, a->salt, 0, root);
	cookie_read(c, d, root, cookie, a->len, name);
	err = d->nr_groups > 1 ? lease_make_groups(c, client, a, name, res) :
				 lease_make(c, client, a, name, res);
	core_count(c, CORE_EV_lease_refused, err && err != -ENOENT);
	return err;
}
