// SPDX-License-Identifier: Apache-2.0
/*
 * check.c - the walkers: every law, worked out again from the facts
 *
 * Nothing here trusts a count or a list.  References are counted anew from
 * the tables, the index and the open steps; lists are followed and their
 * members counted against the states; the partition of the pool is added up
 * in bytes; shadows are compared with the truth.  Tests run it after every
 * event, an operator with `kvctl check`.
 *
 * A walk takes time in proportion to the arena and is bounded: a list that
 * does not end is a fault, not a hang.  The first fault is described, the
 * others are counted.
 */
#include "kvmm/core/internal.h"

struct walk {
	const struct core *c;
	struct core_report *r;
};

static void text_add(struct core_report *r, const char *s)
{
	size_t len = strnlen(r->text, sizeof(r->text));

	while (*s && len + 1 < sizeof(r->text))
		r->text[len++] = *s++;
	r->text[len] = '\0';
}

static void text_add_u64(struct core_report *r, u64 n)
{
	char buf[24];
	char *p = buf + sizeof(buf) - 1;

	*p = '\0';
	do {
		*--p = (char)('0' + n % 10);
		n /= 10;
	} while (n);
	text_add(r, p);
}

/* Record a fault of @what number @i: found @have, should be @want. */
static void fault(struct walk *w, const char *law, const char *what, u64 i,
		  u64 have, u64 want)
{
	if (w->r->nr_faults++)
		return;
	text_add(w->r, law);
	text_add(w->r, ": ");
	text_add(w->r, what);
	text_add(w->r, " ");
	text_add_u64(w->r, i);
	text_add(w->r, ": found ");
	text_add_u64(w->r, have);
	text_add(w->r, ", should be ");
	text_add_u64(w->r, want);
}

static void expect(struct walk *w, const char *law, const char *what, u64 i,
		   u64 have, u64 want)
{
	if (have != want)
		fault(w, law, what, i, have, want);
}

/* ---- references, counted from tables and steps ---- */

/* One entry of a table: count the reference, compare the shadow. */
static void walk_pte(struct walk *w, const struct kv_seq *s, kv_pte_t pte,
		     u32 shadow)
{
	const struct core *c = w->c;
	u32 i = pte_block(pte);

	if (pte_is_entry(pte)) {
		expect(w, "swap", "table names an entry of seq",
		       seq_index(c, s), s->state, KVMM_SEQ_SWAPPED);
		expect(w, "law 2", "domain of entry", i,
		       c->entries_low[i].domain, s->domain);
		expect(w, "shadow", "swapped entry", i, shadow, KVMM_NO_INDEX);
		c->entries_low[i].walked++;
		return;
	}
	if (!pte_is_present(pte)) {
		fault(w, "tables", "hole in seq", seq_index(c, s), 0, 1);
		return;
	}
	c->scratch[i]++;
	expect(w, "law 2", "domain of block", i, c->blocks[i].domain,
	       s->domain);
	expect(w, "shadow", "entry of block", i, shadow, block_entry(c, i));
}

/* Walk one table; count its mappings into scratch. */
static void walk_table(struct walk *w, const struct kv_seq *s)
{
	const struct core *c = w->c;
	const struct core_bind *bind = &c->bind[s->client];
	u32 i, si = seq_index(c, s), page = s->first_page;
	const struct kv_tpage *t = NULL;

	for (i = 0; i < s->nr_blocks; i++) {
		if (i % KVMM_TABLE_ENTRIES == 0) {
			if (page == CORE_NONE) {
				fault(w, "tables", "pages of seq", si, i, 0);
				return;
			}
			t = &c->tpages[(u64)s->client * core_cfg(c)->nr_tables +
				       page];
			expect(w, "tables", "first of page", page, t->first, i);
			expect(w, "shadow", "handle of page", page,
			       bind->tables[page].seq, seq_handle(c, s));
		}
		walk_pte(w, s, t->pte[i - t->first],
			 bind->tables[page].entry[i - t->first]);
		if (i - t->first == KVMM_TABLE_ENTRIES - 1)
			page = t->next;
	}
}

/* The range that an open step writes belongs to its sequence alone. */
static void walk_step_entry(struct walk *w, const struct kv_step_entry *e)
{
	const struct core *c = w->c;
	const struct kv_seq *s = &c->seqs[e->seq];
	u32 bt = seq_domain(c, s)->block_tokens;
	u32 idx, blk;

	for (idx = max(e->start, s->valid_len) / bt; (u64)idx * bt < e->end;
	     idx++) {
		if (idx >= s->nr_blocks) {
			fault(w, "law 3", "seq in a step lacks blocks", e->seq,
			      s->nr_blocks, idx + 1);
			return;
		}
		blk = table_get(c, s, idx);
		expect(w, "law 3", "writers of block", blk,
		       c->blocks[blk].refcount, 1);
		if (c->blocks[blk].state != BLK_OPEN &&
		    c->blocks[blk].state != BLK_QUARANTINE)
			fault(w, "law 3", "state of written block", blk,
			      c->blocks[blk].state, BLK_OPEN);
	}
}

static void walk_steps(struct walk *w)
{
	const struct core *c = w->c;
	u32 i, n, k, named;

	for (i = 0; i < core_cfg(c)->max_clients; i++) {
		const struct kv_client *cl = &c->clients[i];

		if (cl->state == CLI_FREE)
			continue;
		expect(w, "steps", "open of client over limit", i,
		       cl->nr_steps > cl->max_steps, 0);
		named = 0;
		for (n = 0; n < cl->nr_steps; n++) {
			struct kv_step_entry *e;
			const struct kv_step *st = step_at(c, i, n, &e);

			for (k = 0; k < st->nr; k++) {
				walk_step_entry(w, &e[k]);
				if (e[k].src != CORE_NONE &&
				    !c->blocks[e[k].src].nr_src)
					fault(w, "law 3", "source of a copy",
					      e[k].src, 0, 1);
			}
			named += st->nr;
		}
		for (n = 0; n < cl->max_seqs; n++)
			named -= c->seqs[i * core_cfg(c)->max_seqs + n].nr_steps;
		expect(w, "steps", "entries of client", i, named, 0);
	}
}

/* ---- sequences ---- */

static void walk_seq(struct walk *w, const struct kv_seq *s)
{
	const struct core *c = w->c;
	const struct kv_domain *d = seq_domain(c, s);
	bool running = s->state == KVMM_SEQ_READY ||
		       s->state == KVMM_SEQ_MARKED ||
		       s->state == KVMM_SEQ_RESTORING;
	bool swapped = s->state == KVMM_SEQ_SWAPPED;
	u32 i = seq_index(c, s), cover = s->valid_len, n;

	walk_table(w, s);
	for (n = 0; n < KVMM_MAX_STEPS; n++)
		cover = max(cover, s->end[n]);
	expect(w, "seq", "cover of", i, s->cover, cover);
	expect(w, "seq", "table length of", i, s->nr_blocks,
	       tokens_to_blocks(d, s->cover));
	expect(w, "seq", "residence of", i, !!(s->flags & SEQF_RUNNING),
	       running);
	expect(w, "seq", "waiting of", i, !!(s->flags & SEQF_QUEUED),
	       (s->state == KVMM_SEQ_WAITING && (s->flags & SEQF_MATCHED)) ||
	       (swapped && !(s->flags & SEQF_PAGEDOUT)));
	if (!running && !swapped) {
		expect(w, "seq", "waits but holds blocks", i, s->nr_blocks, 0);
		expect(w, "seq", "waits but holds promises", i, s->reserved, 0);
	}
	expect(w, "seq", "promises of", i, s->reserved,
	       s->resv_blocks > s->nr_blocks ? s->resv_blocks - s->nr_blocks
					     : 0);
	expect(w, "seq", "family ring of", i,
	       c->seqs[s->fam_next].fam_prev, i);
	if (running && s->state != KVMM_SEQ_RESTORING &&
	    s->valid_len % d->block_tokens)
		expect(w, "seq", "ids in the tail of", i,
		       c->blocks[table_get(c, s, s->valid_len /
					   d->block_tokens)].nr_ids >=
		       s->valid_len % d->block_tokens, 1);
}

static void walk_seqs(struct walk *w)
{
	const struct core *c = w->c;
	u32 i;

	for (i = 0; i < core_sizes(c)->nr_blocks; i++)
		c->scratch[i] = 0;
	for (i = 0; i < core_sizes(c)->nr_entries; i++)
		c->entries_low[i].walked = 0;
	for (i = 0; i < core_sizes(c)->nr_seqs; i++)
		if (c->seqs[i].state != KVMM_SEQ_CLOSED)
			walk_seq(w, &c->seqs[i]);
}

/* ---- blocks and spans ---- */

static void walk_block(struct walk *w, u32 blk)
{
	const struct core *c = w->c;
	const struct kv_block *b = &c->blocks[blk];
	bool indexed = b->flags & BLKF_INDEXED;
	bool used = b->state != BLK_FREE && b->state != BLK_QUIESCING;

	expect(w, "law 3", "mappings of block", blk, b->nr_map,
	       c->scratch[blk]);
	expect(w, "law 3", "refcount of block", blk, b->refcount,
	       (u64)c->scratch[blk] + indexed + b->nr_copy);
	if (b->entry != CORE_NONE)
		expect(w, "swap", "entry of block", blk,
		       c->entries_low[b->entry].dev, blk);
	expect(w, "block", "held though nobody needs it", blk, used,
	       b->refcount != 0);
	if (b->state == BLK_CACHED)
		expect(w, "block", "cached but mapped", blk, b->nr_map, 0);
	if (b->state == BLK_SEALED)
		expect(w, "block", "sealed but unmapped", blk, !b->nr_map, 0);
	if (b->state == BLK_QUIESCING)
		expect(w, "block", "quiescing for no step", blk, !b->nr_src, 0);
	if (indexed && b->state != BLK_SEALED && b->state != BLK_CACHED)
		fault(w, "block", "indexed in state", blk, b->state,
		      BLK_SEALED);
	if (indexed)
		expect(w, "index", "lookup of block", blk,
		       index_lookup(c, b->domain, b->hash, block_ids(c, blk)),
		       blk);
}

/* One span: its blocks, its free list, its class; adds to the counts. */
static void walk_span(struct walk *w, u32 first, u32 *nr)
{
	const struct core *c = w->c;
	const struct kv_span *sp = &c->spans[first];
	u32 base = first * core_sizes(c)->blocks_per_extent;
	u32 state[NR_BLK_STATES] = { 0 };
	u32 i, n;

	for (i = base; i < base + sp->nr_blocks; i++) {
		walk_block(w, i);
		state[c->blocks[i].state]++;
		expect(w, "span", "owner of block", i, c->blocks[i].domain,
		       sp->domain);
		expect(w, "span", "span of block", i, c->blocks[i].span, first);
	}
	expect(w, "span", "free blocks of", first, sp->nr_free,
	       state[BLK_FREE]);
	expect(w, "span", "cached blocks of", first, sp->nr_cached,
	       state[BLK_CACHED]);
	for (i = sp->free_head, n = 0; i != CORE_NONE && n <= sp->nr_blocks;
	     i = c->blocks[i].next, n++)
		expect(w, "span", "state on the free list", i,
		       c->blocks[i].state, BLK_FREE);
	expect(w, "span", "free list of", first, n, sp->nr_free);
	for (i = 0; i < NR_BLK_STATES; i++)
		nr[i] += state[i];
}

/* ---- domains ---- */

static void walk_lists(struct walk *w, u32 dom)
{
	const struct core *c = w->c;
	const struct kv_domain *d = &c->domains[dom];
	u32 i, n, class, prev = CORE_NONE;

	for (i = d->lru_head, n = 0; i != CORE_NONE &&
	     n <= d->nr[BLK_CACHED]; i = c->blocks[i].next, n++) {
		expect(w, "lru", "state of block", i, c->blocks[i].state,
		       BLK_CACHED);
		expect(w, "lru", "back link of block", i, c->blocks[i].prev,
		       prev);
		prev = i;
	}
	expect(w, "lru", "length in domain", dom, n, d->nr[BLK_CACHED]);

	for (class = 0, n = 0; class < CORE_NR_CLASSES; class++)
		for (i = d->class[class]; i != CORE_NONE && n <= d->nr_spans;
		     i = c->spans[i].next, n++)
			expect(w, "span", "class of", i, c->spans[i].class,
			       class);
	expect(w, "span", "list lengths in domain", dom, n, d->nr_spans);
	for (i = d->class[CORE_NR_CLASSES - 1], n = 0; i != CORE_NONE &&
	     n <= d->nr_spans; i = c->spans[i].next)
		n++;
	expect(w, "span", "empty ones of domain", dom, n, d->nr_empty);

	for (i = d->wait_head, n = 0; i != CORE_NONE && n <= d->nr_waiting;
	     i = c->seqs[i].next, n++)
		expect(w, "wait list", "flag of seq", i,
		       !!(c->seqs[i].flags & SEQF_QUEUED), 1);
	expect(w, "wait list", "length in domain", dom, n, d->nr_waiting);

	for (i = d->run_head, n = 0; i != CORE_NONE && n <= d->nr_running;
	     i = c->seqs[i].next, n++)
		expect(w, "run list", "flag of seq", i,
		       !!(c->seqs[i].flags & SEQF_RUNNING), 1);
	expect(w, "run list", "length in domain", dom, n, d->nr_running);
}

static void walk_domain_seqs(struct walk *w, u32 dom)
{
	const struct core *c = w->c;
	const struct kv_domain *d = &c->domains[dom];
	u32 i, reserved = 0, marked = 0, running = 0;

	for (i = 0; i < core_sizes(c)->nr_seqs; i++) {
		const struct kv_seq *s = &c->seqs[i];

		if (s->state == KVMM_SEQ_CLOSED || s->domain != dom)
			continue;
		reserved += s->reserved;
		marked += s->state == KVMM_SEQ_MARKED;
		running += !!(s->flags & SEQF_RUNNING);
	}
	expect(w, "law 1", "promises of domain", dom, d->reserved, reserved);
	expect(w, "domain", "marked in", dom, d->nr_marked, marked);
	expect(w, "domain", "running in", dom, d->nr_running, running);
	if (d->nr[BLK_FREE] < d->reserved)
		fault(w, "law 1", "free blocks behind promises of domain", dom,
		      d->nr[BLK_FREE], d->reserved);
}

static void walk_domain(struct walk *w, u32 dom)
{
	const struct core *c = w->c;
	const struct kv_domain *d = &c->domains[dom];
	u32 nr[NR_BLK_STATES] = { 0 };
	u32 i, indexed = 0, shared = 0, blk;

	for (i = 0; i < core_sizes(c)->nr_extents; i++) {
		const struct kv_span *sp = &c->spans[i];
		u32 base = i * core_sizes(c)->blocks_per_extent;

		if (!sp->nr_extents || sp->domain != dom)
			continue;
		walk_span(w, i, nr);
		for (blk = base; blk < base + sp->nr_blocks; blk++) {
			indexed += c->blocks[blk].flags & BLKF_INDEXED;
			shared += c->blocks[blk].nr_map > 1;
		}
	}
	for (i = 0; i < NR_BLK_STATES; i++)
		expect(w, "law 1", core_block_state_name(i), dom, d->nr[i],
		       nr[i]);
	expect(w, "domain", "indexed blocks of", dom, d->nr_indexed, indexed);
	expect(w, "domain", "shared blocks of", dom, d->nr_shared, shared);
	if (domain_used(d) > d->peak)
		fault(w, "domain", "peak of", dom, d->peak, domain_used(d));
	walk_lists(w, dom);
	walk_domain_seqs(w, dom);
}

/* ---- lower tiers ---- */

/* A slot that an entry names: in the right part, in the right state. */
static void walk_slot(struct walk *w, u32 entry, u32 slot, u32 pool, bool valid)
{
	const struct core *c = w->c;
	const struct kv_entry *e = &c->entries_low[entry];
	const struct kv_block *b = &c->blocks[slot];

	expect(w, "swap", "part of the slot of entry", entry, b->domain % core_cfg(c)->max_domains,
	       e->domain);
	expect(w, "swap", "pool of the slot of entry", entry,
	       part_pool(c, b->domain) >= pool, 1);
	expect(w, "swap", "state of the slot of entry", entry, b->state,
	       valid ? BLK_SEALED : BLK_LIMBO);
	c->scratch[slot]++;
}

static void walk_entry(struct walk *w, u32 i)
{
	const struct core *c = w->c;
	const struct kv_entry *e = &c->entries_low[i];

	expect(w, "swap", "references of entry", i, e->refs, e->walked);
	expect(w, "swap", "needed by nobody: entry", i, e->refs ||
	       (e->flags & ENTF_INDEXED) || e->dev != CORE_NONE ||
	       e->io != ENT_IDLE, 1);
	if (e->dev != CORE_NONE)
		expect(w, "swap", "upper copy of entry", i,
		       c->blocks[e->dev].entry, i);
	if (e->host != CORE_NONE)
		walk_slot(w, i, e->host, CORE_POOL_HOST,
			  e->flags & ENTF_HOST);
	if (e->area != CORE_NONE)
		walk_slot(w, i, e->area, CORE_POOL_AREA,
			  e->flags & ENTF_AREA);
	expect(w, "swap", "host list of entry", i, !!(e->flags & ENTF_LRU),
	       !!(e->flags & ENTF_HOST));
	expect(w, "stall", "request beside a write of entry", i,
	       (e->flags & ENTF_BESIDE) && e->io != ENT_WRITE &&
	       e->io != ENT_IN, 0);
	if (e->flags & ENTF_OVERDUE)
		expect(w, "stall", "overdue request of entry", i,
		       e->io == ENT_WRITE || (e->io == ENT_READ &&
		       (e->flags & ENTF_LOST) && e->dev == CORE_NONE), 1);
	if (e->flags & ENTF_INDEXED)
		expect(w, "index", "lookup of entry", i,
		       index_lookup(c, e->domain, e->hash, block_ids(c,
				    e->host != CORE_NONE ? e->host : e->area)),
		       REF_ENTRY | i);
}

/* Slots in use are those that entries name. */
static void walk_part(struct walk *w, u32 part)
{
	const struct core *c = w->c;
	const struct kv_domain *d = &c->domains[part];
	const struct kv_pool *p = core_pool(c, part_pool(c, part));
	u32 nr[NR_BLK_STATES] = { 0 };
	u32 i, n, spans = 0;

	for (i = p->first; i < p->first + p->nr_extents; i++) {
		u32 base = i * core_sizes(c)->blocks_per_extent;

		if (!c->spans[i].nr_extents || c->spans[i].domain != part)
			continue;
		spans++;
		for (n = base; n < base + c->spans[i].nr_blocks; n++) {
			u32 state = c->blocks[n].state;

			nr[state]++;
			expect(w, "swap", "owners of slot", n, c->scratch[n],
			       state == BLK_SEALED || state == BLK_LIMBO);
		}
	}
	expect(w, "swap", "spans of part", part, d->nr_spans, spans);
	for (i = 0; i < NR_BLK_STATES; i++)
		expect(w, "law 1", core_block_state_name(i), part, d->nr[i],
		       nr[i]);
}

/* Requests in flight, counted from the entries and from the lists. */
static void walk_ios(struct walk *w)
{
	const struct core *c = w->c;
	u32 nr[CORE_NR_POOLS] = { 0 }, late[CORE_NR_POOLS] = { 0 };
	u32 i, n, pool, copies = 0;

	for (i = 0; i < core_sizes(c)->nr_entries; i++) {
		const struct kv_entry *e = &c->entries_low[i];

		if (e->domain == ENTRY_UNUSED)
			continue;
		copies += e->io == ENT_OUT || e->io == ENT_IN ||
			  (e->flags & ENTF_BESIDE);
		if (e->io != ENT_READ && e->io != ENT_WRITE)
			continue;
		pool = part_pool(c, c->blocks[e->area].domain);
		nr[pool]++;
		late[pool] += !!(e->flags & ENTF_OVERDUE);
	}
	expect(w, "stall", "copies in flight", 0, c->head->nr_copies, copies);
	for (i = CORE_POOL_AREA; i < CORE_NR_POOLS; i++) {
		const struct kv_pool *p = core_pool(c, i);

		expect(w, "stall", "requests of pool", i, p->nr_ios, nr[i]);
		expect(w, "stall", "overdue in pool", i, p->nr_overdue,
		       late[i]);
		expect(w, "stall", "stalled area", i - CORE_POOL_AREA,
		       !!(c->head->stalled & BIT(i - CORE_POOL_AREA)),
		       p->nr_overdue != 0);
		for (n = 0, pool = p->io_head; pool != CORE_NONE &&
		     n <= p->nr_ios; pool = c->entries_low[pool].io_next)
			n++;
		expect(w, "stall", "moving in pool", i, n, nr[i] - late[i]);
		nr[0] += nr[i];
		late[0] += late[i];
	}
	expect(w, "stall", "requests", 0, c->head->nr_ios, nr[0]);
	expect(w, "stall", "overdue", 0, c->head->nr_overdue, late[0]);
}

static void walk_tiers(struct walk *w)
{
	const struct core *c = w->c;
	u32 i, n;

	walk_ios(w);
	for (i = 0; i < core_sizes(c)->nr_entries; i++)
		if (c->entries_low[i].domain != ENTRY_UNUSED)
			walk_entry(w, i);
	for (i = 0; i < core_cfg(c)->max_domains; i++)
		for (n = CORE_POOL_HOST; n < CORE_NR_POOLS; n++)
			if (c->domains[i].used &&
			    c->domains[part_index(c, i, n)].used)
				walk_part(w, part_index(c, i, n));
}

/* ---- the pool ---- */

static void walk_extents(struct walk *w)
{
	const struct core *c = w->c;
	u64 alive = 0;
	u32 i;

	for (i = 0; i < core_cfg(c)->max_clients; i++)
		if (c->clients[i].state != CLI_FREE)
			alive |= BIT_ULL(i);
	for (i = 0; i < core_sizes(c)->nr_extents; i++) {
		const struct kv_extent *x = &c->extents[i];
		u32 n;

		if (x->state == EXT_SPAN) {
			expect(w, "extent", "memory behind", i, x->backed, 1);
			expect(w, "law 2", "tenant of extent", i, x->tenant,
			       c->domains[x->domain].tenant);
		}
		expect(w, "extent", "mapped but not sent", i,
		       x->mapped & ~x->sent, 0);
		expect(w, "extent", "holders that are gone", i,
		       x->sent & ~alive, 0);
		for (n = 0; n < core_cfg(c)->max_clients; n++)
			if (x->sent & BIT_ULL(n))
				expect(w, "law 2", "tenant that maps extent", i,
				       c->clients[n].tenant, x->tenant);
	}
}

static void walk_pool(struct walk *w)
{
	struct core_pool_view v;
	u64 sum = 0;

	core_get_pool(w->c, &v);
#define x(name, text) sum += v.name;
	CORE_POOL_PARTS(x)
#undef x
	expect(w, "law 1", "bytes of pool", 0, sum, v.total);
}

/**
 * core_check() - walk everything
 * @report: what was found
 *
 * Return: 0, or -EUCLEAN with the first fault described.
 */
int core_check(const struct core *c, struct core_report *report)
{
	struct walk w = { .c = c, .r = report };
	u32 i;

	memset(report, 0, sizeof(*report));
	walk_seqs(&w);
	for (i = 0; i < core_cfg(c)->max_domains; i++)
		if (c->domains[i].used)
			walk_domain(&w, i);
	walk_tiers(&w);
	walk_steps(&w);
	walk_extents(&w);
	walk_pool(&w);
	return report->nr_faults ? -EUCLEAN : 0;
}
