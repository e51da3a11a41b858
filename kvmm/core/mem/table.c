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

static u32 tab_client(const struct core *c, const struct kv_tab *t)
{
	return tab_seq(c, t)->client;
}

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

static void shadow_set(struct core *c, const struct kv_tab *t, u32 page,
		       u32 slot, u32 blk)
{
	struct kvmm_table_page *sh = shadow(c, tab_client(c, t), page);

	if (!sh)
		return;
	WRITE_ONCE(sh->entry[slot], blk == CORE_NONE ? KVMM_NO_INDEX :
		   block_entry(c, blk));
}

/*
 * Link a new last page to those before it: back[i + 1] is back[i] of back[i].
 */
static void page_link_back(const struct core *c, const struct kv_tab *t,
			   u32 page)
{
	struct kv_tpage *pg = tpage(c, tab_client(c, t), page);
	u32 before = t->last_page, i;

	for (i = 0; i < CORE_TABLE_HOPS && before != CORE_NONE; i++) {
		pg->back[i] = before;
		before = tpage(c, tab_client(c, t), before)->back[i];
	}
	for (; i < CORE_TABLE_HOPS; i++)
		pg->back[i] = CORE_NONE;
}

/* Begin the shadow of a new last page, whose first table index is @first. */
static void shadow_begin(struct core *c, const struct kv_tab *t, u32 page,
			 u32 first)
{
	struct kvmm_table_page *sh = shadow(c, tab_client(c, t), page);

	if (!sh)
		return;
	WRITE_ONCE(sh->seq, seq_handle(c, tab_seq(c, t)));
	WRITE_ONCE(sh->group, t->group);
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

	if (cl->nr_free_pages < cl->promised + d->nr_groups *
				pages_of(domain_capacity(c, d)))
		domain_kick(d);
}

static u32 page_get(struct core *c, struct kv_tab *t)
{
	struct kv_client *cl = &c->clients[tab_client(c, t)];
	struct kv_tpage *pg;
	u32 page = cl->free_page;

	if (page != CORE_NONE)
		cl->free_page = tpage(c, tab_client(c, t), page)->next;
	else if (cl->unused_page < core_cfg(c)->nr_tables)
		page = cl->unused_page++;
	else
		return CORE_NONE;
	KV_BUG_ON(!cl->nr_free_pages || t->nr_blocks % KVMM_TABLE_ENTRIES);
	pg = tpage(c, tab_client(c, t), page);
	cl->nr_free_pages--;
	pages_fewer(c, tab_client(c, t));
	pg->next = CORE_NONE;
	pg->first = t->nr_blocks;
	page_link_back(c, t, page);
	shadow_begin(c, t, page, t->nr_blocks);
	return page;
}

static void page_clear(struct core *c, const struct kv_tab *t, u32 page)
{
	struct kvmm_table_page *sh = shadow(c, tab_client(c, t), page);
	u32 i;

	for (i = 0; sh && i < KVMM_TABLE_ENTRIES; i++)
		WRITE_ONCE(sh->entry[i], KVMM_NO_INDEX);
}

/* Append a page that page_get() returned to the chain. */
static void page_append(struct core *c, struct kv_tab *t, u32 page)
{
	KV_BUG_ON((t->first_page == CORE_NONE) != (t->last_page == CORE_NONE));
	if (t->first_page == CORE_NONE) {
		t->first_page = page;
	} else {
		tpage(c, tab_client(c, t), t->last_page)->next = page;
		shadow_next(c, tab_client(c, t), t->last_page, page);
	}
	t->last_page = page;
}

static void page_put(struct core *c, struct kv_tab *t, u32 page)
{
	struct kv_client *cl = &c->clients[tab_client(c, t)];

	shadow_name(c, tab_client(c, t), page, 0);
	tpage(c, tab_client(c, t), page)->next = cl->free_page;
	cl->free_page = page;
	KV_BUG_ON(cl->nr_free_pages >= core_cfg(c)->nr_tables);
	cl->nr_free_pages++;
	domain_kick(tab_domain(c, t));
}

/* The page that is @far before the last one. */
static __attribute__((noinline)) u32 page_before(const struct core *c,
						 const struct kv_tab *t, u32 far)
{
	u32 page = t->last_page, hop;

	while (far) {
		hop = min(31u - (u32)__builtin_clz(far), CORE_TABLE_HOPS - 1u);
		page = tpage(c, tab_client(c, t), page)->back[hop];
		far -= 1u << hop;
	}
	return page;
}

/* The page of a table index below nr_blocks; most often the last one. */
static inline u32 page_of(const struct core *c, const struct kv_tab *t, u32 idx)
{
	u32 first;

	KV_BUG_ON(idx >= t->nr_blocks);
	first = tpage(c, tab_client(c, t), t->last_page)->first;
	if (idx >= first)
		return t->last_page;
	return page_before(c, t, (first - idx + KVMM_TABLE_ENTRIES - 1) /
			   KVMM_TABLE_ENTRIES);
}

/* The entry at a table index below nr_blocks. */
kv_pte_t table_pte(const struct core *c, const struct kv_tab *t, u32 idx)
{
	const struct kv_tpage *pg = tpage(c, tab_client(c, t), page_of(c, t, idx));

	return pg->pte[idx - pg->first];
}

/* The first index from @idx on at which two tables differ or one ends. */
u32 table_differs(const struct core *c, const struct kv_tab *a,
		  const struct kv_tab *b, u32 idx)
{
	u32 end = min(a->nr_blocks, b->nr_blocks);
	const struct kv_tpage *ta, *tb;

	if (idx >= end)
		return end;
	ta = tpage(c, tab_client(c, a), page_of(c, a, idx));
	tb = tpage(c, tab_client(c, b), page_of(c, b, idx));
	for (; idx < end; idx++) {
		if (idx - ta->first == KVMM_TABLE_ENTRIES) {
			ta = tpage(c, tab_client(c, a), ta->next);
			tb = tpage(c, tab_client(c, b), tb->next);
		}
		if (ta->pte[idx - ta->first].val != tb->pte[idx - tb->first].val)
			break;
	}
	return idx;
}

/* The first index from @idx on, with a block that has BLKF_VISITED, or nr_blocks. */
u32 table_find_visited(const struct core *c, const struct kv_tab *t, u32 idx)
{
	const struct kv_tpage *pg;
	u32 page;

	if (idx >= t->nr_blocks)
		return t->nr_blocks;
	page = page_of(c, t, idx);
	pg = tpage(c, tab_client(c, t), page);
	for (; idx < t->nr_blocks; idx++) {
		kv_pte_t pte;

		if (idx - pg->first == KVMM_TABLE_ENTRIES)
			pg = tpage(c, tab_client(c, t), pg->next);
		pte = pg->pte[idx - pg->first];
		if (pte_is_present(pte) &&
		    (c->blocks[pte_block(pte)].flags & BLKF_VISITED))
			return idx;
	}
	return idx;
}

/* The block at a table index below nr_blocks of a running sequence. */
u32 table_get(const struct core *c, const struct kv_tab *t, u32 idx)
{
	kv_pte_t pte = table_pte(c, t, idx);

	KV_BUG_ON(!pte_is_present(pte));
	return pte_block(pte);
}

/* The content of the block at an index moved to a lower tier. */
void table_set_entry(struct core *c, struct kv_tab *t, u32 idx, u32 entry)
{
	u32 page = page_of(c, t, idx);
	struct kv_tpage *pg = tpage(c, tab_client(c, t), page);

	KV_BUG_ON(c->entries_low[entry].domain != tab_seq(c, t)->domain);
	pg->pte[idx - pg->first] = pte_entry(entry);
	shadow_set(c, t, page, idx - pg->first, CORE_NONE);
}

/* The block at an index was trimmed. */
void table_set_none(struct core *c, struct kv_tab *t, u32 idx)
{
	u32 page = page_of(c, t, idx);
	struct kv_tpage *pg = tpage(c, tab_client(c, t), page);

	pg->pte[idx - pg->first] = pte_none();
	shadow_set(c, t, page, idx - pg->first, CORE_NONE);
}

/* Replace the entry at a table index below nr_blocks. */
void table_set(struct core *c, struct kv_tab *t, u32 idx, u32 blk)
{
	u32 page = page_of(c, t, idx);
	struct kv_tpage *pg = tpage(c, tab_client(c, t), page);

	pg->pte[idx - pg->first] = pte_present(blk);
	shadow_set(c, t, page, idx - pg->first, blk);
}

/* Number of pages of a table with so many entries. */
u32 table_pages(u32 blocks)
{
	return pages_of(blocks);
}

/* Pages that are reserved for a table with its blocks, and not yet taken. */
static u32 tab_promised(const struct kv_tab *t)
{
	return t->resv_blocks > t->nr_blocks ?
	       pages_of(t->resv_blocks) - pages_of(t->nr_blocks) : 0;
}

/* The same for all tables of a sequence. */
u32 table_promised(const struct core *c, const struct kv_seq *s)
{
	const struct kv_tab *t;
	u32 nr = 0;

	for_each_tab(c, s, t)
		nr += tab_promised(t);
	return nr;
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
	return !nr || (u64)nr + table_promised(c, s) <= pages_left(c, s);
}

/* Can the tables of @s be copied @nr times? */
bool table_has_fork_room(const struct core *c, const struct kv_seq *s, u32 nr)
{
	const struct kv_tab *t;
	u64 pages = 0;

	for_each_tab(c, s, t)
		pages += (u64)nr * pages_of(t->nr_blocks);
	return pages <= 0xffffffffu && table_has_pages(c, s, (u32)pages);
}

/**
 * table_has_room() - can entries be pushed without reserved pages of other sequences?
 * @nr: number of entries, for each group
 */
bool table_has_room(const struct core *c, const struct kv_seq *s, const u32 *nr)
{
	const struct kv_tab *t;
	u64 need = 0;
	u32 more = 0, pages;

	for_each_tab(c, s, t) {
		pages = pages_of(t->nr_blocks + nr[t->group]) - pages_of(t->nr_blocks);
		more += pages;
		need += max(pages, tab_promised(t));
	}
	return !more || need <= pages_left(c, s);
}

/* Append an entry; -ENOSPC when the client's pages are used up. */
int table_push(struct core *c, struct kv_tab *t, u32 blk)
{
	u32 slot = t->nr_blocks % KVMM_TABLE_ENTRIES;
	u32 page;

	if (!slot) {
		page = page_get(c, t);
		if (page == CORE_NONE)
			return -ENOSPC;
		page_clear(c, t, page);
		page_append(c, t, page);
	}
	KV_BUG_ON(blk != CORE_NONE && (c->blocks[blk].domain != tab_seq(c, t)->domain ||
					 c->blocks[blk].group != t->group));
	tpage(c, tab_client(c, t), t->last_page)->pte[slot] = pte_present(blk);
	shadow_set(c, t, t->last_page, slot, blk);
	t->nr_blocks++;
	core_crash(c, CORE_CRASH_table_push);
	return 0;
}

/* Remove the last entry, of any type. */
kv_pte_t table_pop_pte(struct core *c, struct kv_tab *t)
{
	u32 slot = (t->nr_blocks - 1) % KVMM_TABLE_ENTRIES;
	u32 page = t->last_page;
	struct kv_tpage *pg = tpage(c, tab_client(c, t), page);
	kv_pte_t pte = pg->pte[slot];

	KV_BUG_ON(!t->nr_blocks);
	pg->pte[slot] = pte_none();
	shadow_set(c, t, page, slot, CORE_NONE);
	t->nr_blocks--;
	if (slot)
		return pte;

	KV_BUG_ON(pg->first != t->nr_blocks);
	t->last_page = pg->back[0];
	if (t->last_page == CORE_NONE) {
		t->first_page = CORE_NONE;
	} else {
		tpage(c, tab_client(c, t), t->last_page)->next = CORE_NONE;
		shadow_next(c, tab_client(c, t), t->last_page, KVMM_NO_INDEX);
	}
	page_put(c, t, page);
	return pte;
}

/**
 * table_share() - @nr more sequences are about to map the table of @s
 *
 * One pass over the blocks, for any @nr.
 */
void table_share(struct core *c, const struct kv_tab *t, u32 nr)
{
	u32 page = t->first_page, left = t->nr_blocks, i;

	for (; left; left -= i) {
		const struct kv_tpage *pg = tpage(c, tab_client(c, t), page);

		i = min(left, (u32)KVMM_TABLE_ENTRIES);
		block_map_many(c, tab_domain(c, t), pg->pte, i, nr);
		page = pg->next;
	}
}

/**
 * table_copy() - give @to, which has no table, a copy of the table of @from
 *
 * table_has_fork_room() said that there are enough pages, and table_share()
 * counted the references.  Shadows are copied, too.
 */
void table_copy(struct core *c, const struct kv_tab *from, struct kv_tab *to)
{
	struct kvmm_table_page *sh = c->bind[tab_client(c, to)].tables;
	u32 page = from->first_page, left = from->nr_blocks, take, copy;

	KV_BUG_ON(to->nr_blocks || tab_client(c, from) != tab_client(c, to));
	KV_BUG_ON(tab_seq(c, from)->domain != tab_seq(c, to)->domain);
	for (; left; left -= take) {
		const struct kv_tpage *pg = tpage(c, tab_client(c, from), page);

		take = min(left, (u32)KVMM_TABLE_ENTRIES);
		copy = page_get(c, to);
		KV_BUG_ON(copy == CORE_NONE);
		/*
		 * The client does not know the page yet: no need to write word
		 * by word.
		 */
		memcpy(tpage(c, tab_client(c, to), copy)->pte, pg->pte, sizeof(pg->pte));
		if (sh)
			memcpy(sh[copy].entry, sh[page].entry,
			       sizeof(sh->entry));
		page_append(c, to, copy);
		to->nr_blocks += take;
		page = pg->next;
	}
}

/* Tell the client the new owner of the pages of a chain. */
static void pages_rename(struct core *c, const struct kv_tab *t)
{
	u32 page = t->first_page;

	for (; page != CORE_NONE; page = tpage(c, tab_client(c, t), page)->next)
		shadow_name(c, tab_client(c, t), page, seq_handle(c, tab_seq(c, t)));
}

/* Two sequences of a client exchange their tables; entries stay. */
void table_swap(struct core *c, struct kv_tab *a, struct kv_tab *b)
{
	u32 first = a->first_page, last = a->last_page, nr = a->nr_blocks;

	KV_BUG_ON(tab_client(c, a) != tab_client(c, b));
	KV_BUG_ON(tab_seq(c, a)->domain != tab_seq(c, b)->domain);
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
void table_publish(struct core *c, const struct kv_tab *t)
{
	u32 page = t->first_page, i;
	const struct kv_tpage *pg = NULL;

	for (i = 0; i < t->nr_blocks; i++) {
		u32 slot = i % KVMM_TABLE_ENTRIES;

		if (!slot) {
			if (pg) {
				shadow_next(c, tab_client(c, t), page, pg->next);
				page = pg->next;
			}
			pg = tpage(c, tab_client(c, t), page);
			shadow_begin(c, t, page, i);
			page_clear(c, t, page);
		}
		shadow_set(c, t, page, slot, pte_is_present(pg->pte[slot]) ?
			   pte_block(pg->pte[slot]) : CORE_NONE);
	}
}
