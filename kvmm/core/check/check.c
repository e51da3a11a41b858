// SPDX-License-Identifier: Apache-2.0
/*
 * check.c - the walkers: they verify every law from the facts
 *
 * The walkers trust no count and no list.  References are counted anew from the
 * tables, the index and the open steps.  Lists are followed, and their members
 * counted against the states.  The partition of the pool is added up in bytes.
 * Shadows are compared with the tables.  Tests run the walkers after every event,
 * an operator with `kvctl check`.  The lower tiers are walked in check_tiers.c,
 * sums over running sequences in check_tally.c.
 *
 * Not walked: the free lists of table pages, of pages of ids and of sequences,
 * and how many of each a client has.
 *
 * A walk takes time in proportion to the arena and is bounded: a list that does
 * not end is a fault, not a hang.  The first fault is described, the others are
 * counted.
 */
#include "kvmm/core/check/check.h"

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

/* Record a fault of @what number @i: its value is @have, but must be @want. */
void walk_fault(struct walk *w, const char *law, const char *what, u64 i,
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

/* ---- references, counted from tables and steps ---- */

/* Compare a field of a shadow; clients that are away have no shadow. */
static void walk_shadow(struct walk *w, const char *what, u32 i,
			const u32 *have, u32 want)
{
	if (have)
		expect(w, "shadow", what, i, *have, want);
}

/* Check one table entry: count its reference, compare its shadow. */
static void walk_pte(struct walk *w, const struct kv_tab *tab, u32 idx,
		     kv_pte_t pte, const u32 *shadow)
{
	const struct core *c = w->c;
	const struct kv_seq *s = tab_seq(c, tab);
	u32 i = pte_block(pte);

	if (idx < tab->trimmed) {
		expect(w, "tables", "trimmed entry of seq", seq_index(c, s),
		       pte.val, PTE_NONE);
		walk_shadow(w, "trimmed entry", idx, shadow, KVMM_NO_INDEX);
		return;
	}
	if (pte_is_entry(pte)) {
		expect(w, "swap", "table names an entry of seq",
		       seq_index(c, s), s->state, KVMM_SEQ_SWAPPED);
		expect(w, "law 2", "domain of entry", i,
		       c->entries_low[i].domain, s->domain);
		expect(w, "groups", "group of entry", i, c->entries_low[i].group,
		       tab->group);
		walk_shadow(w, "swapped entry", i, shadow, KVMM_NO_INDEX);
		c->walked[i]++;
		return;
	}
	if (!pte_is_present(pte)) {
		walk_fault(w, "tables", "hole in seq", seq_index(c, s), 0, 1);
		return;
	}
	c->scratch[i]++;
	expect(w, "law 2", "domain of block", i, c->blocks[i].domain,
	       s->domain);
	expect(w, "groups", "group of block", i, c->blocks[i].group, tab->group);
	walk_shadow(w, "entry of block", i, shadow, block_entry(c, i));
}

/* Walk one table; count its mappings into scratch. */
static void walk_table(struct walk *w, const struct kv_tab *tab)
{
	const struct core *c = w->c;
	const struct kv_seq *s = tab_seq(c, tab);
	const struct kvmm_table_page *sh = c->bind[s->client].tables;
	u32 i, si = seq_index(c, s), page = tab->first_page, last = CORE_NONE;
	const struct kv_tpage *t = NULL;

	for (i = 0; i < tab->nr_blocks; i++) {
		if (i % KVMM_TABLE_ENTRIES == 0) {
			if (page == CORE_NONE) {
				walk_fault(w, "tables", "pages of seq", si, i,
					   0);
				return;
			}
			t = &c->tpages[(u64)s->client * core_cfg(c)->nr_tables +
				       page];
			expect(w, "tables", "first of page", page, t->first, i);
			expect(w, "tables", "page before page", page,
			       t->back[0], last);
			last = page;
			if (sh)
				expect(w, "shadow", "handle of page", page,
				       sh[page].seq, seq_handle(c, s));
			if (sh)
				expect(w, "shadow", "group of page", page,
				       sh[page].group, tab->group);
		}
		walk_pte(w, tab, i, t->pte[i - t->first],
			 sh ? &sh[page].entry[i - t->first] : NULL);
		if (i - t->first == KVMM_TABLE_ENTRIES - 1)
			page = t->next;
	}
}

/* The blocks that an open step writes must belong to its sequence alone. */
static void walk_step_tab(struct walk *w, const struct kv_step_entry *e,
			  const struct kv_tab *t)
{
	const struct core *c = w->c;
	u32 idx, blk;

	if (e->start == e->end)
		return;
	for (idx = tab_at(c, t, max(e->start, tab_seq(c, t)->valid_len));
	     tab_pos(c, t, idx) < e->end; idx++) {
		if (idx >= t->nr_blocks) {
			walk_fault(w, "law 3", "seq in a step lacks blocks",
				   e->seq, t->nr_blocks, idx + 1);
			return;
		}
		blk = table_get(c, t, idx);
		expect(w, "law 3", "writers of block", blk,
		       block_refcount(&c->blocks[blk]), 1);
		if (c->blocks[blk].state != BLK_OPEN &&
		    c->blocks[blk].state != BLK_QUARANTINE)
			walk_fault(w, "law 3", "state of written block", blk,
				   c->blocks[blk].state, BLK_OPEN);
	}
}

static void walk_step_entry(struct walk *w, const struct kv_step_entry *e)
{
	const struct kv_tab *t;

	for_each_tab(w->c, &w->c->seqs[e->seq], t)
		walk_step_tab(w, e, t);
}

/* Count the blocks that a step holds; no sequence of it maps them any more. */
static void walk_held(struct walk *w, const struct kv_step *st)
{
	const struct core *c = w->c;
	u32 i = st->held, n;

	for (n = 0; i != CORE_NONE && n <= core_sizes(c)->nr_holds; n++) {
		expect(w, "law 3", "held block is free:", c->holds[i].blk,
		       c->blocks[c->holds[i].blk].state == BLK_FREE, 0);
		c->scratch[c->holds[i].blk]++;
		i = c->holds[i].next;
	}
	expect(w, "steps", "end of what is held by", st->number, i,
	       CORE_NONE);
}

/* The steps' references to each block must be those counted in nr_src. */
static void walk_sources(struct walk *w)
{
	const struct core *c = w->c;
	u32 i;

	for (i = 0; i < core_sizes(c)->nr_blocks; i++)
		expect(w, "law 3", "steps that need block", i,
		       c->blocks[i].nr_src, c->scratch[i]);
}

/* Count the blocks that the tails of an entry are copied from. */
static void walk_src(const struct walk *w, const struct kv_step_entry *e)
{
	const struct core *c = w->c;
	u32 g;

	for (g = 0; g < seq_groups(c, &c->seqs[e->seq]); g++)
		if (e->src[g] != CORE_NONE)
			c->scratch[e->src[g]]++;
}

static void walk_steps(struct walk *w)
{
	const struct core *c = w->c;
	u32 i, n, k, named;

	for (i = 0; i < core_sizes(c)->nr_blocks; i++)
		c->scratch[i] = 0;
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
				walk_src(w, &e[k]);
			}
			walk_held(w, st);
			named += st->nr;
		}
		for (n = 0; n < cl->max_seqs; n++)
			named -= c->seqs[i * core_cfg(c)->max_seqs + n].nr_steps;
		expect(w, "steps", "entries of client", i, named, 0);
	}
	walk_sources(w);
}

/* ---- sequences ---- */

/* One table of a sequence.  @running: the sequence is resident */
static void walk_tab(struct walk *w, const struct kv_tab *t, bool running)
{
	const struct core *c = w->c;
	const struct kv_seq *s = tab_seq(c, t);
	u32 i = seq_index(c, s), bt = tab_tokens(c, t);
	bool copy = s->flags & SEQF_COPY;

	walk_table(w, t);
	expect(w, "seq", "table length of", i, t->nr_blocks, tab_blocks(c, t, s->cover));
	if (!running && s->state != KVMM_SEQ_SWAPPED) {
		expect(w, "seq", "waits but holds blocks", i, t->nr_blocks, 0);
		expect(w, "seq", "waits but holds promises", i, t->reserved, 0);
	}
	expect(w, "seq", "trimmed of", i, tab_pos(c, t, t->trimmed) <=
	       s->valid_len && t->trimmed <= t->trim_want, 1);
	expect(w, "seq", "more to be trimmed of", i, t->trim_more &&
	       (t->trim_want == t->trimmed || t->trim_more <= t->trim_want), 0);
	if (t->trim_want > t->trimmed)
		expect(w, "seq", "will be trimmed in no step", i,
		       !s->nr_steps, 0);
	expect(w, "seq", "shared record before that of", i, t->shift &&
	       (!s->nr_steps || !tab_is_state(c, t) || t->shift != tab_width(c, t) ||
		t->shift_at > s->cover), 0);
	expect(w, "seq", "promises of", i, t->reserved,
	       (t->resv_blocks > t->nr_blocks ? t->resv_blocks - t->nr_blocks : 0) +
	       copy);
	if (copy)
		expect(w, "seq", "state of the tail to be copied of", i,
		       c->blocks[table_get(c, t, t->nr_blocks - 1)].state,
		       BLK_SEALED);
	if (running && s->state != KVMM_SEQ_RESTORING && s->valid_len % bt)
		expect(w, "seq", "ids in the tail of", i,
		       c->blocks[table_get(c, t, tab_tail(c, t, s->valid_len))].nr_ids >=
		       s->valid_len % bt, 1);
}

static void walk_seq(struct walk *w, const struct kv_seq *s)
{
	const struct core *c = w->c;
	const struct kv_tab *t;
	bool running = s->state == KVMM_SEQ_READY ||
		       s->state == KVMM_SEQ_MARKED ||
		       s->state == KVMM_SEQ_RESTORING;
	bool swapped = s->state == KVMM_SEQ_SWAPPED;
	u32 i = seq_index(c, s), cover = s->valid_len, n;

	for_each_tab(c, s, t)
		walk_tab(w, t, running);
	if (device_is_lost(c, seq_domain(c, s)) && s->state != KVMM_SEQ_FAILED)
		expect(w, "device", "lives on a lost device: seq", i,
		       s->state == KVMM_SEQ_MARKED, 1);
	for (n = 0; n < KVMM_MAX_STEPS; n++)
		cover = max(cover, s->end[n]);
	expect(w, "seq", "cause of preemption of", i, s->cause < NR_CORE_CAUSES,
	       1);
	expect(w, "seq", "cover of", i, s->cover, cover);
	expect(w, "seq", "residence of", i, !!(s->flags & SEQF_RUNNING),
	       running);
	expect(w, "seq", "waiting of", i, !!(s->flags & SEQF_QUEUED),
	       (s->state == KVMM_SEQ_WAITING && (s->flags & SEQF_MATCHED)) ||
	       (swapped && !(s->flags & SEQF_PAGEDOUT)));
	expect(w, "seq", "scratch of", i, seq_scan(c, s)->plan ||
	       seq_scan(c, s)->plan_err, 0);
	expect(w, "seq", "family ring of", i,
	       c->seqs[s->fam_next].fam_prev, i);
}

static void walk_seqs(struct walk *w)
{
	const struct core *c = w->c;
	u32 i;

	for (i = 0; i < core_sizes(c)->nr_blocks; i++)
		c->scratch[i] = 0;
	for (i = 0; i < core_sizes(c)->nr_entries; i++)
		c->walked[i] = 0;
	for (i = 0; i < core_sizes(c)->nr_seqs; i++)
		if (c->seqs[i].state != KVMM_SEQ_CLOSED)
			walk_seq(w, &c->seqs[i]);
}

/* ---- blocks and spans ---- */

/* Does the index refer to the block?  Its flag is not used. */
static bool found_in_index(const struct core *c, u32 blk)
{
	const struct kv_block *b = &c->blocks[blk];

	return b->nr_ids == block_tokens(c, blk) &&
	       index_lookup(c, b->domain, b->group, b->hash, block_ids(c, blk)) == blk;
}

static void walk_block(struct walk *w, u32 blk)
{
	const struct core *c = w->c;
	const struct kv_block *b = &c->blocks[blk];
	bool indexed = b->flags & BLKF_INDEXED;
	bool used = b->state != BLK_FREE && b->state != BLK_QUIESCING &&
		    b->state != BLK_POISON;
	bool copies = block_is_filled(c, blk) || (b->entry != CORE_NONE &&
		      c->entries_low[b->entry].io == ENT_OUT);

	expect(w, "law 3", "mappings of block", blk, b->nr_map,
	       c->scratch[blk]);
	expect(w, "law 3", "refcount of block", blk, block_refcount(b),
	       (u64)c->scratch[blk] + found_in_index(c, blk) + copies);
	if (b->entry != CORE_NONE)
		expect(w, "swap", "entry of block", blk,
		       c->entries_low[b->entry].dev, blk);
	expect(w, "swap", "copies of block", blk, b->nr_copy,
	       copies);
	expect(w, "block", "held though nobody needs it", blk, used,
	       block_refcount(b) || (b->flags & (BLKF_MOVING | BLKF_SALVAGED)));
	if (b->flags & BLKF_SALVAGED)
		expect(w, "adopt", "state of what old steps may write:", blk,
		       b->state, BLK_QUARANTINE);
	if (b->domain < core_cfg(c)->max_domains &&
	    device_is_lost(c, &c->domains[b->domain]))
		expect(w, "device", "to be had of a lost device: block", blk,
		       b->state == BLK_FREE || b->state == BLK_CACHED, 0);
	if (b->state == BLK_CACHED)
		expect(w, "block", "cached but mapped", blk, b->nr_map, 0);
	if (b->state == BLK_SEALED)
		expect(w, "block", "sealed but unmapped", blk, !b->nr_map, 0);
	if (b->state == BLK_QUIESCING) {
		expect(w, "block", "quiescing for no step", blk, !b->nr_src, 0);
		expect(w, "swap", "entry of quiescing block", blk, b->entry,
		       CORE_NONE);
	}
	if (indexed && b->state != BLK_SEALED && b->state != BLK_CACHED)
		walk_fault(w, "block", "indexed in state", blk, b->state,
			   BLK_SEALED);
	if (indexed)
		expect(w, "index", "lookup of block", blk,
		       index_lookup(c, b->domain, b->group, b->hash,
				    block_ids(c, blk)),
		       blk);
	if (indexed)
		check_chain(w, blk, block_ids(c, blk));
}

/* The free blocks of a span in any pool, and the class of the span. */
void walk_span_free(struct walk *w, u32 first, u32 nr_free)
{
	const struct core *c = w->c;
	const struct kv_span *sp = &c->spans[first];
	u32 i, n, prev = CORE_NONE;

	expect(w, "span", "free blocks of", first, sp->nr_free, nr_free);
	for (i = sp->free_head, n = 0; i != CORE_NONE && n <= sp->nr_blocks;
	     i = c->blocks[i].next, n++) {
		expect(w, "span", "state on the free list", i,
		       c->blocks[i].state, BLK_FREE);
		expect(w, "span", "free list that has block", i,
		       block_span(c, i), first);
		if (part_pool(c, sp->domain))
			expect(w, "span", "back link of free slot", i,
			       c->blocks[i].prev, prev);
		prev = i;
	}
	expect(w, "span", "free list of", first, n, sp->nr_free);
	if (span_is_isolated(sp)) {
		expect(w, "span", "isolated and empty, not released:", first,
		       nr_free == sp->nr_blocks, 0);
		return;
	}
	expect(w, "span", "class of an empty one", first,
	       sp->class == CORE_CLASS_EMPTY, nr_free == sp->nr_blocks);
	expect(w, "span", "class of a full one", first, !sp->class, !nr_free);
}

/* One span: its blocks, free list and class; adds its blocks to the counts. */
static void walk_span(struct walk *w, u32 first, u32 *nr)
{
	const struct core *c = w->c;
	const struct kv_span *sp = &c->spans[first];
	u32 base = first * core_sizes(c)->blocks_per_extent;
	u32 state[NR_BLK_STATES] = { 0 };
	u32 i;

	for (i = base; i < base + sp->nr_blocks; i++) {
		walk_block(w, i);
		state[c->blocks[i].state]++;
		expect(w, "span", "owner of block", i, c->blocks[i].domain,
		       sp->domain);
		expect(w, "span", "span of block", i, block_span(c, i), first);
	}
	walk_span_free(w, first, state[BLK_FREE]);
	expect(w, "span", "open blocks of", first, sp->nr_open,
	       state[BLK_OPEN]);
	expect(w, "span", "cached blocks of", first, sp->nr_cached,
	       state[BLK_CACHED]);
	for (i = 0; i < NR_BLK_STATES; i++)
		nr[i] += state[i];
}

/* A span has all of its extents, in each device pool of its domain: never a part. */
static void walk_shards(struct walk *w, u32 first)
{
	const struct core *c = w->c;
	const struct kv_span *sp = &c->spans[first];
	u32 e, n;

	expect(w, "span", "device pool of", first, zone_of(c, first),
	       c->domains[sp->domain].zone);
	for_each_span_extent(c, e, n, first) {
		expect(w, "span", "state of its extent", e, c->extents[e].state, EXT_SPAN);
		expect(w, "span", "first extent of that of extent", e, c->extents[e].span,
		       first);
		expect(w, "span", "owner of extent", e, c->extents[e].domain, sp->domain);
	}
}

/* ---- domains ---- */

/* The spans of a part, by fullness. */
void walk_classes(struct walk *w, u32 dom)
{
	const struct core *c = w->c;
	const struct kv_part *p = part_at(c, dom);
	u32 i, n, class, prev, empty = 0, free = 0, cached = 0, some = 0;

	for (class = 0, n = 0; class < CORE_NR_CLASSES; class++) {
		prev = CORE_NONE;
		some |= p->class[class] == CORE_NONE ? 0 : BIT(class);
		for (i = p->class[class]; i != CORE_NONE && n <= p->nr_spans;
		     i = c->spans[i].next, n++) {
			expect(w, "span", "class of", i, c->spans[i].class,
			       class);
			expect(w, "span", "domain of", i, c->spans[i].domain,
			       dom);
			expect(w, "span", "back link of", i, c->spans[i].prev,
			       prev);
			prev = i;
			empty += class == CORE_CLASS_EMPTY;
			if (class != CORE_CLASS_ISOLATED)
				continue;
			free += c->spans[i].nr_free;
			cached += c->spans[i].nr_cached;
		}
	}
	expect(w, "span", "list lengths in domain", dom, n, p->nr_spans);
	expect(w, "span", "classes that are not empty of domain", dom,
	       p->classes, some);
	expect(w, "span", "empty ones of domain", dom, p->nr_empty, empty);
	expect(w, "span", "free blocks in isolated ones of domain", dom,
	       p->isolated_free, free);
	expect(w, "span", "cached blocks in isolated ones of domain", dom,
	       p->isolated_cached, cached);
}

/* The wait list or the run list: sequences with @flag, @nr of them. */
static void walk_seq_list(struct walk *w, const char *law, u32 dom, u32 head,
			  u32 tail, u32 flag, u32 nr)
{
	const struct core *c = w->c;
	u32 i, n, prev = CORE_NONE;

	for (i = head, n = 0; i != CORE_NONE && n <= nr;
	     i = c->seqs[i].next, n++) {
		expect(w, law, "flag of seq", i, !!(c->seqs[i].flags & flag),
		       1);
		expect(w, law, "domain of seq", i, c->seqs[i].domain, dom);
		expect(w, law, "back link of seq", i, c->seqs[i].prev, prev);
		prev = i;
	}
	expect(w, law, "length in domain", dom, n, nr);
	expect(w, law, "tail in domain", dom, tail, prev);
}

static void walk_lists(struct walk *w, u32 dom)
{
	const struct core *c = w->c;
	const struct kv_domain *d = &c->domains[dom];

	walk_classes(w, dom);
	walk_seq_list(w, "wait list", dom, d->wait_head, d->wait_tail,
		      SEQF_QUEUED, d->nr_waiting);
	walk_seq_list(w, "run list", dom, d->run_head, d->run_tail,
		      SEQF_RUNNING, d->nr_running);
}

static void walk_domain_seqs(struct walk *w, u32 dom)
{
	const struct core *c = w->c;
	const struct kv_domain *d = &c->domains[dom];
	u32 i, reserved = 0, marked = 0, running = 0, growth = 0;

	for (i = 0; i < core_sizes(c)->nr_seqs; i++) {
		const struct kv_seq *s = &c->seqs[i];

		if (s->state == KVMM_SEQ_CLOSED || s->domain != dom)
			continue;
		reserved += seq_reserved(c, s);
		marked += s->state == KVMM_SEQ_MARKED;
		running += !!(s->flags & SEQF_RUNNING);
		if (s->flags & SEQF_RUNNING)
			growth += commit_growth(c, s);
	}
	expect(w, "commit", "growth of domain", dom, d->growth, growth);
	expect(w, "law 1", "promises of domain", dom, d->dev.reserved, reserved);
	expect(w, "domain", "marked in", dom, d->nr_marked, marked);
	expect(w, "domain", "running in", dom, d->nr_running, running);
	if (domain_free(d) < d->dev.reserved)
		walk_fault(w, "law 1", "free blocks behind promises of domain",
			   dom, domain_free(d), d->dev.reserved);
}

static void walk_domain_pressure(struct walk *w, u32 dom)
{
	const struct core *c = w->c;
	u32 nr[PSI_NR_CLASSES] = { 0 }, max = core_cfg(c)->max_seqs, i, n;

	for (i = 0; i < core_cfg(c)->max_clients; i++) {
		if (c->clients[i].state == CLI_FREE ||
		    c->clients[i].domain != dom)
			continue;
		for (n = i * max; n < (i + 1) * max; n++)
			nr[c->seqs[n].psi_domain]++;
	}
	for (i = PSI_STALLED; i < PSI_NR_CLASSES; i++)
		expect(w, "pressure", "of its class in domain", dom,
		       c->domains[dom].psi.nr[i], nr[i]);
}

/*
 * Count stalled and productive sequences anew.  Whether only a domain's own limit
 * stops a sequence may have changed since psi_task(), so that is not compared.
 */
static void walk_pressure(struct walk *w)
{
	const struct core *c = w->c;
	u32 nr[PSI_NR_CLASSES] = { 0 }, dom, i;

	for (i = 0; i < core_sizes(c)->nr_seqs; i++) {
		const struct kv_seq *s = &c->seqs[i];
		bool own;

		expect(w, "pressure", "class of seq", i, s->psi_domain,
		       s->state == KVMM_SEQ_CLOSED ? PSI_IDLE :
		       psi_class_of(c, s, &own));
		if (s->psi_node != PSI_IDLE)
			expect(w, "pressure", "class in node of seq", i,
			       s->psi_node, s->psi_domain);
		nr[s->psi_node]++;
	}
	for (i = PSI_STALLED; i < PSI_NR_CLASSES; i++)
		expect(w, "pressure", "sequences of class", i,
		       c->head->psi.nr[i], nr[i]);
	for_each_domain(c, dom)
		walk_domain_pressure(w, dom);
}

static void walk_domain(struct walk *w, u32 dom)
{
	const struct core *c = w->c;
	const struct kv_domain *d = &c->domains[dom];
	u32 nr[NR_BLK_STATES] = { 0 };
	u32 i, indexed = 0, shared = 0, filling = 0, blk, salvaged = 0;

	for (i = 0; i < core_sizes(c)->nr_extents; i++) {
		const struct kv_span *sp = &c->spans[i];
		u32 base = i * core_sizes(c)->blocks_per_extent;

		if (!sp->nr_extents || sp->domain != dom)
			continue;
		walk_span(w, i, nr);
		walk_shards(w, i);
		for (blk = base; blk < base + sp->nr_blocks; blk++) {
			indexed += c->blocks[blk].flags & BLKF_INDEXED;
			shared += c->blocks[blk].nr_map > 1;
			filling += block_is_filled(c, blk);
			salvaged += !!(c->blocks[blk].flags & BLKF_SALVAGED);
		}
	}
	for (i = 0; i < NR_BLK_STATES; i++)
		expect(w, "law 1", core_block_state_name(i), dom, d->dev.nr[i],
		       nr[i]);
	expect(w, "domain", "indexed blocks of", dom, d->nr_indexed, indexed);
	expect(w, "domain", "shared blocks of", dom, d->nr_shared, shared);
	expect(w, "adopt", "blocks that old steps may write of", dom,
	       d->salvaged, salvaged);
	expect(w, "swap", "blocks on the way in of", dom, d->nr_filling,
	       filling);
	expect(w, "domain", "held up by no shrink:", dom,
	       d->close_waits && !domain_resizes(c, d), 0);
	if (domain_used(d) > d->dev.peak)
		walk_fault(w, "domain", "peak of", dom, d->dev.peak,
			   domain_used(d));
	walk_lists(w, dom);
	check_lru(w, dom);
	walk_domain_seqs(w, dom);
}

/* ---- the pool ---- */

/* A client maps extents of its own tenant, and of the device pool of its domain. */
static void expect_holder(struct walk *w, u32 e, u32 client)
{
	const struct core *c = w->c;
	const struct kv_client *cl = &c->clients[client];

	expect(w, "law 2", "tenant that maps extent", e, cl->tenant,
	       c->extents[e].tenant);
	expect(w, "pool", "device pool of a client that maps extent", e,
	       client_maps(c, client, e), 1);
}

/* Extents that the client itself has not mapped though it was sent them. */
static u32 unacked_own(const struct core *c, u32 client)
{
	u32 e, nr = 0;

	for (e = 0; e < core_sizes(c)->nr_extents; e++)
		nr += c->extents[e].state != EXT_REVOKING &&
		      (c->extents[e].sent & ~c->extents[e].mapped & BIT_ULL(client));
	return nr;
}

/* A client that ended has no sequences but those of its open steps. */
static void walk_ended(struct walk *w, u32 client)
{
	const struct core *c = w->c;
	const struct kv_client *cl = &c->clients[client];
	const struct kv_seq *s = &c->seqs[client * core_cfg(c)->max_seqs];
	u32 i, nr = 0;

	for (i = 0; i < cl->max_seqs; i++)
		nr += s[i].state != KVMM_SEQ_CLOSED && !(s[i].flags & SEQF_CLOSING);
	expect(w, "client", "sequences that go on of ended client", client, nr, 0);
	if (cl->state == CLI_DETACHED)
		expect(w, "client", "processes that detached of tenant", cl->tenant,
		       c->tenants[cl->tenant].ghosts != 0, 1);
}

/* The clients that map shards for a leader, and the extents not mapped yet. */
static void walk_client(struct walk *w, u32 client)
{
	const struct core *c = w->c;
	const struct kv_client *cl = &c->clients[client];
	u32 nr = unacked_own(c, client), i, by;

	if (cl->state == CLI_DETACHED || cl->state == CLI_DEAD)
		walk_ended(w, client);
	/* Of a client that is quiet no extents are known. */
	if (cl->state == CLI_FREE || cl->quiet)
		return;
	for (i = 0; i < core_cfg(c)->max_clients && cl->leader == client; i++)
		if (i != client && c->clients[i].state != CLI_FREE &&
		    c->clients[i].leader == client)
			nr += c->clients[i].nr_unacked;
	for (i = 0; i < c->domains[cl->domain].shards && cl->leader == client; i++) {
		by = cl->member[i];
		nr += by == CORE_NONE || c->clients[by].joining;
		if (by != CORE_NONE)
			expect(w, "ranks", "client that maps a shard for", client,
			       c->clients[by].state != CLI_FREE &&
			       c->clients[by].leader == client &&
			       (c->clients[by].shards & BIT(i)), 1);
	}
	expect(w, "ranks", "extents not mapped of client", client, cl->nr_unacked, nr);
}

static void walk_extents(struct walk *w)
{
	const struct core *c = w->c;
	u64 alive = 0;
	u32 i;

	for (i = 0; i < core_cfg(c)->max_clients; i++) {
		if (c->clients[i].state != CLI_FREE)
			alive |= BIT_ULL(i);
		walk_client(w, i);
	}
	for (i = 0; i < core_sizes(c)->nr_extents; i++) {
		const struct kv_extent *x = &c->extents[i];
		u32 n;

		if (x->state == EXT_SPAN) {
			expect(w, "extent", "memory behind", i, x->backed, 1);
			expect(w, "law 2", "tenant of extent", i, x->tenant,
			       c->domains[x->domain].tenant);
			expect(w, "pool", "span that has extent", i,
			       run_has(c, x->span, c->spans[x->span].nr_extents,
				       part_shards(c, x->domain), i) &&
			       c->spans[x->span].domain == x->domain, 1);
		}
		expect(w, "extent", "mapped but not sent", i,
		       x->mapped & ~x->sent, 0);
		expect(w, "extent", "owed and not sent, or mapped", i,
		       x->owed & (~x->sent | x->mapped), 0);
		expect(w, "extent", "holders that are gone", i,
		       x->sent & ~alive, 0);
		for (n = 0; n < core_cfg(c)->max_clients; n++)
			if (x->sent & BIT_ULL(n))
				expect_holder(w, i, n);
	}
}

/* Each claimed run has its extents, and no other extent is claimed. */
static void walk_revokes(struct walk *w)
{
	const struct core *c = w->c;
	u32 i, e, n, nr = 0, claimed = 0, wanted = 0, mine;
	const struct kv_zone *z;

	for (i = 0; i < CORE_MAX_REVOKES; i++) {
		const struct kv_revoke *rv = &c->head->revokes[i];

		nr += rv->nr != 0;
		claimed += rv->nr * rv->shards;
		if (rv->nr && rv->dom != CORE_NONE)
			expect(w, "extent", "device pools of claimed run", i, rv->shards,
			       c->domains[rv->dom].shards);
		for_each_run_extent(c, e, n, rv->first, rv->nr, rv->shards)
			expect(w, "extent", "claim of", e, c->extents[e].want,
			       i + 1);
	}
	for (e = 0; e < core_sizes(c)->nr_extents; e++) {
		const struct kv_extent *x = &c->extents[e];

		wanted += x->want && x->want != EXT_WANT_SIZE;
		if (x->want == EXT_WANT_SIZE)
			expect(w, "extent", "asked back and not revoked:", e,
			       x->state, EXT_REVOKING);
		if (x->state == EXT_OFFLINE)
			expect(w, "extent", "memory of offline", e, x->backed,
			       0);
		z = extent_zone(c, e);
		if ((x->state == EXT_OFFLINE) != (e >= zone_end(z)))
			expect(w, "extent", "on its way out:", e,
			       z->resizing &&
			       x->state != EXT_OFFLINE, 1);
		if (x->state == EXT_REVOKING)
			expect(w, "extent", "revoked for nobody:", e, !x->want,
			       0);
	}
	expect(w, "extent", "claimed runs", 0, c->head->nr_revokes, nr);
	expect(w, "extent", "claimed", 0, wanted, claimed);
	for (i = 0; i < core_cfg(c)->max_domains; i++) {
		for (mine = 0, e = 0; e < CORE_MAX_REVOKES; e++)
			mine += c->head->revokes[e].nr &&
				c->head->revokes[e].dom == i;
		expect(w, "extent", "runs claimed for domain", i,
		       c->domains[i].used ? c->domains[i].nr_revokes : 0, mine);
	}
}

static void walk_pools(struct walk *w)
{
	struct core_pool_view v;
	u32 i;

	for (i = 0; !core_get_zone(w->c, i, &v); i++) {
		u64 sum = 0;

#define x(name, text) sum += v.name;
		CORE_POOL_PARTS(x)
#undef x
		expect(w, "law 1", "bytes of pool", i, sum, v.total);
	}
}

/**
 * core_check() - run all walkers
 * @report: gets the faults
 *
 * Return: 0, or -EUCLEAN with the first fault described.
 */
int core_check(const struct core *c, struct core_report *report)
{
	struct walk w = { .c = c, .r = report };
	u32 i;

	memset(report, 0, sizeof(*report));
	walk_seqs(&w);
	for_each_domain(c, i)
		walk_domain(&w, i);
	walk_tiers(&w);
	check_nodes(&w);
	walk_steps(&w);
	check_moves(&w);
	walk_extents(&w);
	walk_revokes(&w);
	walk_pools(&w);
	walk_pressure(&w);
	check_tally(&w);
	check_leases(&w);
	return report->nr_faults ? -EUCLEAN : 0;
}
