// SPDX-License-Identifier: Apache-2.0
/*
 * table.c - block tables and their shadows
 *
 * The table of a sequence is a chain of fixed pages from its client's share.
 * The core's own page is private.  Its entries have a type, so that an entry can
 * also name content on a lower tier.  The client reads a shadow of the page in
 * segment D.  A shadow entry has the form that kernels use: the block's offset in
 * units, or KVMM_NO_INDEX.  A page and its shadow have the same index.  The
 * shadow is written right after the page and never read.
 *
 * Tables grow and shrink only at the end.  table_set() and table_set_entry()
 * replace an entry where a block is copied, moved, merged or swapped.
 *
 * A page also knows the pages 1, 2, 4, ... before it in its chain.  They do not
 * change while the page exists, since pages come and go at the end.  So an index
 * is found from the last page with one hop for each bit of the distance: none
 * for the page that is written, at most 5 in a table of 4,096 blocks.
 */
#include "kvmm/core/mem/mem.h"

static struct kv_tpage *tpage(const struct core *c, u32 client, u32 page)
{
	return &c->tpages[(u64)client * core_cfg(c)->nr_tables + page];
}

/* The shadow of a page; NULL where the client is away. */
static struct kvmm_table_page *shadow(const struct core *c, u32 client,
				      u32 page)
{
	struct kvmm_table_page *sh = c->bind[client].tables;

	return sh ? sh + page : NULL;
}

static void shadow_set(struct core *c, const struct kv_seq *s, u32 page,
		       u32 slot, u32 blk)
{
	struct kvmm_table_page *sh = shadow(c, s->client, page);

	if (!sh)
		return;
	WRITE_ONCE(sh->entry[slot], blk == CORE_NONE ? KVMM_NO_INDEX :
		   block_entry(c, blk));
}

/*
 * Link a new last page to those before it: back[i + 1] is back[i] of back[i].
 */
static void page_link_back(const struct core *c, const struct kv_seq *s,
			   u32 page)
{
	struct kv_tpage *t = tpage(c, s->client, page);
	u32 before = s->last_page, i;

	for (i = 0; i < CORE_TABLE_HOPS && before != CORE_NONE; i++) {
		t->back[i] = before;
		before = tpage(c, s->client, before)->back[i];
	}
	for (; i < CORE_TABLE_HOPS; i++)
		t->back[i] = CORE_NONE;
}

/* Begin the shadow of a new last page, whose first table index is @first. */
static void shadow_begin(struct core *c, const struct kv_seq *s, u32 page,
			 u32 first)
{
	struct kvmm_table_page *sh = shadow(c, s->client, page);

	if (!sh)
		return;
	WRITE_ONCE(sh->seq, seq_handle(c, s));
	WRITE_ONCE(sh->group, 0u);
	WRITE_ONCE(sh->first, first);
	WRITE_ONCE(sh->next, KVMM_NO_INDEX);
}

static void shadow_next(struct core *c, u32 client, u32 page, u32 next)
{
	struct kvmm_table_page *sh = shadow(c, client, page);

	if (sh)
		WRITE_ONCE(sh->next, next);
}

static void shadow_name(struct core *c, u32 client, u32 page, u64 handle)
{
	struct kvmm_table_page *sh = shadow(c, client, page);

	if (sh)
		WRITE_ONCE(sh->seq, handle);
}

static u32 pages_of(u32 blocks)
{
	return DIV_ROUND_UP(blocks, KVMM_TABLE_ENTRIES);
}

/*
 * The client has one free page less.  If a waiting sequence of the client lacks
 * pages now, it no longer holds up the sequences behind it, so try those.  No
 * sequence lacks pages while as many are free as a table of the domain can take.
 */
static void pages_fewer(struct core *c, u32 client)
{
	const struct kv_client *cl = &c->clients[client];
	struct kv_domain *d = &c->domains[cl->domain];

	if (cl->nr_free_pages < cl->promised + pages_of(domain_capacity(c, d)))
		domain_kick(d);
}

static u32 page_get(struct core *c, struct kv_seq *s)
{
	struct kv_client *cl = &c->clients[s->client];
	struct kv_tpage *t;
	u32 page = cl->free_page;

	if (page != CORE_NONE)
		cl->free_page = tpage(c, s->client, page)->next;
	else if (cl->fresh_page < core_cfg(c)->nr_tables)
		page = cl->fresh_page++;
	else
		return CORE_NONE;
	KV_BUG_ON(!cl->nr_free_pages || s->nr_blocks % KVMM_TABLE_ENTRIES);
	t = tpage(c, s->client, page);
	cl->nr_free_pages--;
	pages_fewer(c, s->client);
	t->next = CORE_NONE;
	t->first = s->nr_blocks;
	page_link_back(c, s, page);
	shadow_begin(c, s, page, s->nr_blocks);
	return page;
}

static void page_clear(struct core *c, const struct kv_seq *s, u32 page)
{
	struct kvmm_table_page *sh = shadow(c, s->client, page);
	u32 i;

	for (i = 0; sh && i < KVMM_TABLE_ENTRIES; i++)
		WRITE_ONCE(sh->entry[i], KVMM_NO_INDEX);
}

/* Append a page that page_get() returned to the chain. */
static void page_append(struct core *c, struct kv_seq *s, u32 page)
{
	KV_BUG_ON((s->first_page == CORE_NONE) != (s->last_page == CORE_NONE));
	if (s->first_page == CORE_NONE) {
		s->first_page = page;
	} else {
		tpage(c, s->client, s->last_page)->next = page;
		shadow_next(c, s->client, s->last_page, page);
	}
	s->last_page = page;
}

static void page_put(struct core *c, struct kv_seq *s, u32 page)
{
	struct kv_client *cl = &c->clients[s->client];

	shadow_name(c, s->client, page, 0);
	tpage(c, s->client, page)->next = cl->free_page;
	cl->free_page = page;
	KV_BUG_ON(cl->nr_free_pages >= core_cfg(c)->nr_tables);
	cl->nr_free_pages++;
	domain_kick(seq_domain(c, s));
}

static u32 page_of(const struct core *c, const struct kv_seq *s, u32 idx)
{
	u32 page = s->last_page, far, hop;

	KV_BUG_ON(idx >= s->nr_blocks);
	far = (s->nr_blocks - 1) / KVMM_TABLE_ENTRIES - idx / KVMM_TABLE_ENTRIES;
	while (far) {
		hop = min(31u - (u32)__builtin_clz(far), CORE_TABLE_HOPS - 1u);
		page = tpage(c, s->client, page)->back[hop];
		far -= 1u << hop;
	}
	return page;
}

/* The entry at a table index below nr_blocks. */
kv_pte_t table_pte(const struct core *c, const struct kv_seq *s, u32 idx)
{
	const struct kv_tpage *t = tpage(c, s->client, page_of(c, s, idx));

	return t->pte[idx - t->first];
}

/* The first index from @idx on at which two tables differ or one ends. */
u32 table_differs(const struct core *c, const struct kv_seq *a,
		  const struct kv_seq *b, u32 idx)
{
	u32 end = min(a->nr_blocks, b->nr_blocks);
	const struct kv_tpage *ta, *tb;

	if (idx >= end)
		return end;
	ta = tpage(c, a->client, page_of(c, a, idx));
	tb = tpage(c, b->client, page_of(c, b, idx));
	for (; idx < end; idx++) {
		if (idx - ta->first == KVMM_TABLE_ENTRIES) {
			ta = tpage(c, a->client, ta->next);
			tb = tpage(c, b->client, tb->next);
		}
		if (ta->pte[idx - ta->first].val != tb->pte[idx - tb->first].val)
			break;
	}
	return idx;
}

/* The first index from @idx on, with a block that has BLKF_VISITED, or nr_blocks. */
u32 table_find_visited(const struct core *c, const struct kv_seq *s, u32 idx)
{
	const struct kv_tpage *t;
	u32 page;

	if (idx >= s->nr_blocks)
		return s->nr_blocks;
	page = page_of(c, s, idx);
	t = tpage(c, s->client, page);
	for (; idx < s->nr_blocks; idx++) {
		kv_pte_t pte;

		if (idx - t->first == KVMM_TABLE_ENTRIES)
			t = tpage(c, s->client, t->next);
		pte = t->pte[idx - t->first];
		if (pte_is_present(pte) &&
		    (c->blocks[pte_block(pte)].flags & BLKF_VISITED))
			return idx;
	}
	return idx;
}

/* The block at a table index below nr_blocks of a running sequence. */
u32 table_get(const struct core *c, const struct kv_seq *s, u32 idx)
{
	kv_pte_t pte = table_pte(c, s, idx);

	KV_BUG_ON(!pte_is_present(pte));
	return pte_block(pte);
}

/* The content of the block at an index moved to a lower tier. */
void table_set_entry(struct core *c, struct kv_seq *s, u32 idx, u32 entry)
{
	u32 page = page_of(c, s, idx);
	struct kv_tpage *t = tpage(c, s->client, page);

	KV_BUG_ON(c->entries_low[entry].domain != s->domain);
	t->pte[idx - t->first] = pte_entry(entry);
	shadow_set(c, s, page, idx - t->first, CORE_NONE);
}

/* The block at an index was trimmed. */
void table_set_none(struct core *c, struct kv_seq *s, u32 idx)
{
	u32 page = page_of(c, s, idx);
	struct kv_tpage *t = tpage(c, s->client, page);

	t->pte[idx - t->first] = pte_none();
	shadow_set(c, s, page, idx - t->first, CORE_NONE);
}

/* Replace the entry at a table index below nr_blocks. */
void table_set(struct core *c, struct kv_seq *s, u32 idx, u32 blk)
{
	u32 page = page_of(c, s, idx);
	struct kv_tpage *t = tpage(c, s->client, page);

	t->pte[idx - t->first] = pte_present(blk);
	shadow_set(c, s, page, idx - t->first, blk);
}

/* Number of pages of a table with so many entries. */
u32 table_pages(u32 blocks)
{
	return pages_of(blocks);
}

/* Pages that are reserved for a sequence with its blocks, and not yet taken. */
u32 table_promised(const struct kv_seq *s)
{
	return s->resv_blocks > s->nr_blocks ?
	       pages_of(s->resv_blocks) - pages_of(s->nr_blocks) : 0;
}

/* Pages of the client of @s that are not reserved for other sequences. */
static u32 pages_left(const struct core *c, const struct kv_seq *s)
{
	const struct kv_client *cl = &c->clients[s->client];
	u32 promised = cl->promised - s->in_pages;

	KV_BUG_ON(cl->promised < s->in_pages);
	return cl->nr_free_pages > promised ? cl->nr_free_pages - promised : 0;
}

/* Are @nr pages free beside the reserved ones of the client? */
bool table_has_pages(const struct core *c, const struct kv_seq *s, u32 nr)
{
	return !nr || (u64)nr + table_promised(s) <= pages_left(c, s);
}

/* Can the table of @s be copied @nr times? */
bool table_has_fork_room(const struct core *c, const struct kv_seq *s, u32 nr)
{
	u64 pages = (u64)nr * pages_of(s->nr_blocks);

	return pages <= 0xffffffffu && table_has_pages(c, s, (u32)pages);
}

/* Can @nr entries be pushed without using reserved pages of other sequences? */
bool table_has_room(const struct core *c, const struct kv_seq *s, u32 nr)
{
	u32 need = pages_of(s->nr_blocks + nr) - pages_of(s->nr_blocks);

	return !need || need <= pages_left(c, s);
}

/* Append an entry; -ENOSPC when the client's pages are used up. */
int table_push(struct core *c, struct kv_seq *s, u32 blk)
{
	u32 slot = s->nr_blocks % KVMM_TABLE_ENTRIES;
	u32 page;

	if (!slot) {
		page = page_get(c, s);
		if (page == CORE_NONE)
			return -ENOSPC;
		page_clear(c, s, page);
		page_append(c, s, page);
	}
	KV_BUG_ON(blk != CORE_NONE && c->blocks[blk].domain != s->domain);
	tpage(c, s->client, s->last_page)->pte[slot] = pte_present(blk);
	shadow_set(c, s, s->last_page, slot, blk);
	s->nr_blocks++;
	core_crash(c, CORE_CRASH_table_push);
	if (s->flags & SEQF_RUNNING)
		seq_domain(c, s)->growth--;
	return 0;
}

/* Remove the last entry, of any type. */
kv_pte_t table_pop_pte(struct core *c, struct kv_seq *s)
{
	u32 slot = (s->nr_blocks - 1) % KVMM_TABLE_ENTRIES;
	u32 page = s->last_page;
	struct kv_tpage *t = tpage(c, s->client, page);
	kv_pte_t pte = t->pte[slot];

	KV_BUG_ON(!s->nr_blocks);
	t->pte[slot] = pte_none();
	shadow_set(c, s, page, slot, CORE_NONE);
	s->nr_blocks--;
	if (s->flags & SEQF_RUNNING)
		seq_domain(c, s)->growth++;
	if (slot)
		return pte;

	KV_BUG_ON(t->first != s->nr_blocks);
	s->last_page = t->back[0];
	if (s->last_page == CORE_NONE) {
		s->first_page = CORE_NONE;
	} else {
		tpage(c, s->client, s->last_page)->next = CORE_NONE;
		shadow_next(c, s->client, s->last_page, KVMM_NO_INDEX);
	}
	page_put(c, s, page);
	return pte;
}

/**
 * table_share() - @nr more sequences are about to map the table of @s
 *
 * One pass over the blocks, for any @nr.
 */
void table_share(struct core *c, const struct kv_seq *s, u32 nr)
{
	u32 page = s->first_page, left = s->nr_blocks, i;

	for (; left; left -= i) {
		const struct kv_tpage *t = tpage(c, s->client, page);

		i = min(left, (u32)KVMM_TABLE_ENTRIES);
		block_map_many(c, seq_domain(c, s), t->pte, i, nr);
		page = t->next;
	}
}

/**
 * table_copy() - give @to, which has no table, a copy of the table of @from
 *
 * table_has_fork_room() said that there are enough pages, and table_share()
 * counted the references.  Shadows are copied, too.
 */
void table_copy(struct core *c, const struct kv_seq *from, struct kv_seq *to)
{
	struct kvmm_table_page *sh = c->bind[to->client].tables;
	u32 page = from->first_page, left = from->nr_blocks, take, copy;

	KV_BUG_ON(to->nr_blocks || from->client != to->client);
	KV_BUG_ON(from->domain != to->domain);
	for (; left; left -= take) {
		const struct kv_tpage *t = tpage(c, from->client, page);

		take = min(left, (u32)KVMM_TABLE_ENTRIES);
		copy = page_get(c, to);
		KV_BUG_ON(copy == CORE_NONE);
		/*
		 * The client does not know the page yet: no need to write word
		 * by word.
		 */
		memcpy(tpage(c, to->client, copy)->pte, t->pte, sizeof(t->pte));
		if (sh)
			memcpy(sh[copy].entry, sh[page].entry,
			       sizeof(sh->entry));
		page_append(c, to, copy);
		to->nr_blocks += take;
		page = t->next;
	}
}

/* Tell the client the new owner of the pages of a chain. */
static void pages_rename(struct core *c, const struct kv_seq *s)
{
	u32 page = s->first_page;

	for (; page != CORE_NONE; page = tpage(c, s->client, page)->next)
		shadow_name(c, s->client, page, seq_handle(c, s));
}

/* Two sequences of a client exchange their tables; entries stay. */
void table_swap(struct core *c, struct kv_seq *a, struct kv_seq *b)
{
	u32 first = a->first_page, last = a->last_page, nr = a->nr_blocks;

	KV_BUG_ON(a->client != b->client);
	KV_BUG_ON(a->domain != b->domain);
	a->first_page = b->first_page;
	a->last_page = b->last_page;
	a->nr_blocks = b->nr_blocks;
	b->first_page = first;
	b->last_page = last;
	b->nr_blocks = nr;
	pages_rename(c, a);
	pages_rename(c, b);
}

/**
 * table_publish() - write the whole shadow of a table into new segments
 */
void table_publish(struct core *c, const struct kv_seq *s)
{
	u32 page = s->first_page, i;
	const struct kv_tpage *t = NULL;

	for (i = 0; i < s->nr_blocks; i++) {
		u32 slot = i % KVMM_TABLE_ENTRIES;

		if (!slot) {
			if (t) {
				shadow_next(c, s->client, page, t->next);
				page = t->next;
			}
			t = tpage(c, s->client, page);
			shadow_begin(c, s, page, i);
			page_clear(c, s, page);
		}
		shadow_set(c, s, page, slot, pte_is_present(t->pte[slot]) ?
			   pte_block(t->pte[slot]) : CORE_NONE);
	}
}
