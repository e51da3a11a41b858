// SPDX-License-Identifier: Apache-2.0
/*
 * ranges_seq.c - clients and sequences of an arena that is adopted whole
 *
 * Checks as in ranges.c.  Then the lists that no walker follows are made anew:
 * the free lists of sequences, of table pages and of pages of ids, with each
 * page in at most one table; the links back in tables; the trees of order.c;
 * the buckets of the index.
 */
#include "kvmm/core/adopt/adopt.h"

#define PAGE_FREE	0xfffffffeu	/* in the last field of kv_tpage.back, here only */
#define IDS_USED	0x80000000u	/* in kv_idpage.nr, here only */

static void must(struct walk *w, const char *what, u32 i, bool is)
{
	expect(w, "adopt", what, i, is, 1);
}

static bool none_or(u32 i, u32 most)
{
	return i == CORE_NONE || i < most;
}

/* ---- clients and steps ---- */

static bool sources_are_sane(const struct core *c, const struct kv_step_entry *e)
{
	u32 dom = c->clients[e->seq / core_cfg(c)->max_seqs].domain, g;

	for (g = 0; g < c->domains[dom].nr_groups; g++)
		if (e->src[g] != CORE_NONE && salvage_in_span(c, e->src[g]) != dom)
			return false;
	return true;
}

static void step_ranges(struct walk *w, u32 client, u32 i)
{
	const struct core *c = w->c;
	struct kv_step_entry *e;
	const struct kv_step *st = step_at(c, client, i, &e);
	u32 max = core_cfg(c)->max_seqs, n, h;

	must(w, "entries of a step of client", client,
	     st->nr <= CORE_MAX_STEP_ENTRIES);
	for (n = 0; n < st->nr && !w->r->nr_faults; n++)
		must(w, "entry of a step of client", client,
		     e[n].seq / max == client &&
		     c->seqs[e[n].seq].state != KVMM_SEQ_CLOSED &&
		     e[n].start <= e[n].end && sources_are_sane(c, &e[n]));
	for (h = st->held, n = 0; h != CORE_NONE && !w->r->nr_faults; n++) {
		must(w, "what a step holds of client", client,
		     h < core_sizes(c)->nr_holds && n < core_sizes(c)->nr_holds);
		if (w->r->nr_faults)
			return;
		must(w, "block that a step holds of client", client,
		     salvage_in_span(c, c->holds[h].blk) <
		     core_cfg(c)->max_domains);
		h = c->holds[h].next;
	}
}

static void client_ranges(struct walk *w, u32 i)
{
	const struct core *c = w->c;
	const struct core_config *cfg = core_cfg(c);
	const struct kv_client *cl = &c->clients[i];
	u32 n;

	if (cl->state == CLI_FREE)
		return;
	for (n = 0; n < CORE_MAX_ZONES; n++)
		must(w, "client of a shard of client", i,
		     none_or(cl->member[n], cfg->max_clients));
	must(w, "facts of client", i, cl->state <= CLI_DEAD &&
	     cl->domain < cfg->max_domains && c->domains[cl->domain].used &&
	     cl->tenant == c->domains[cl->domain].tenant && cl->max_steps &&
	     cl->max_steps <= cfg->max_steps && cl->max_seqs &&
	     cl->max_seqs <= cfg->max_seqs && cl->nr_steps <= cl->max_steps &&
	     cl->step_head < KVMM_MAX_STEPS && cl->away <= AWAY_SALVAGED &&
	     cl->committed <= cl->last_number && rank_is_sane(c, i));
}

/* ---- sequences ---- */

static bool links_are(const struct core *c, const struct kv_seq *s)
{
	u32 nr = core_sizes(c)->nr_seqs, max = core_cfg(c)->max_seqs;

	return none_or(s->prev, nr) && none_or(s->next, nr) &&
	       (!(s->flags & SEQF_QUEUED) || (none_or(s->age_prev, nr) &&
					      none_or(s->age_next, nr))) &&
	       s->fam_prev / max == s->client &&
	       s->fam_next / max == s->client &&
	       c->seqs[s->fam_next].state != KVMM_SEQ_CLOSED &&
	       (s->fill_on == CORE_NONE || (none_or(s->fill_prev, nr) &&
					    none_or(s->fill_next, nr) &&
		s->fill_on < core_sizes(c)->nr_entries &&
		c->entries_low[s->fill_on].domain == s->domain &&
		s->fill_group < seq_groups(c, s) &&
		s->fill < seq_tab(c, s, s->fill_group)->nr_blocks));
}

/*
 * Are whole records trimmed, and at once?  The one behind a shared record begins inside a
 * record, and the shared one is trimmed as soon as a token is valid behind it.
 */
static bool records_are_sane(const struct core *c, const struct kv_seq *s,
			     const struct kv_tab *t)
{
	if (!tab_is_state(c, t))
		return !t->shift;
	if (t->trimmed % tab_width(c, t) || t->trim_want != t->trimmed || t->trim_more)
		return false;
	return !t->shift || (s->nr_steps && t->shift == tab_width(c, t) &&
			     t->shift_at % tab_tokens(c, t) && t->shift_at <= s->valid_len &&
			     (t->shift_at == s->valid_len || t->trimmed >= t->shift));
}

static bool tab_is_sane(const struct core *c, const struct kv_seq *s, u32 g)
{
	const struct kv_tab *t = seq_tab(c, s, g);
	u64 most = (u64)core_cfg(c)->nr_tables * KVMM_TABLE_ENTRIES;
	u32 tokens = s->prompt_len + s->max_tokens;

	return t->seq == seq_index(c, s) && t->group == g && t->nr_blocks <= most &&
	       records_are_sane(c, s, t) &&
	       t->nr_blocks == tab_blocks(c, t, s->cover) &&
	       t->nr_blocks <= tab_blocks(c, t, tokens) &&
	       t->trimmed <= t->nr_blocks && t->trim_want <= t->nr_blocks;
}

static bool tables_are_sane(const struct core *c, const struct kv_seq *s)
{
	const struct kv_domain *d = seq_domain(c, s);
	u64 most = (u64)core_cfg(c)->nr_tables * KVMM_TABLE_ENTRIES;
	u32 g;

	if (s->valid_len > s->cover ||
	    (u64)s->prompt_len + s->max_tokens > most * d->group[0].block_tokens ||
	    ((s->flags & SEQF_SWAPPED) != 0) != (s->state == KVMM_SEQ_SWAPPED))
		return false;
	for (g = 0; g < d->nr_groups; g++)
		if (!tab_is_sane(c, s, g))
			return false;
	return !(s->flags & SEQF_COPY) || tab_live(&s->tab);
}

static bool lease_is_sane(const struct core *c, const struct kv_seq *s)
{
	const u32 flags = SEQF_SWAPPED | SEQF_PAGEDOUT;

	if (!(s->flags & SEQF_LEASE))
		return !(s->flags & SEQF_PROMOTE);
	return (s->flags & flags) == flags && !s->tab.trimmed && s->tab.nr_blocks &&
	       s->promote_at <= seq_live(c, s) &&
	       s->valid_len % seq_domain(c, s)->hit_tokens == 0;
}

static void seq_ranges(struct walk *w, u32 i)
{
	const struct core *c = w->c;
	const struct kv_seq *s = &c->seqs[i];
	const struct kv_client *cl;

	must(w, "pressure of seq", i, s->psi_domain < PSI_NR_CLASSES &&
	     s->psi_node < PSI_NR_CLASSES);
	if (s->state == KVMM_SEQ_CLOSED)
		return;
	cl = &c->clients[i / core_cfg(c)->max_seqs];
	must(w, "facts of seq", i, s->state < KVMM_NR_SEQ_STATES &&
	     s->client == i / core_cfg(c)->max_seqs &&
	     i % core_cfg(c)->max_seqs < cl->max_seqs &&
	     cl->state != CLI_FREE && s->domain == cl->domain &&
	     s->nr_retains <= SEQ_RETAINS && s->generation &&
	     s->cause < NR_CORE_CAUSES);
	if (w->r->nr_faults)
		return;
	must(w, "table of seq", i, tables_are_sane(c, s));
	must(w, "links of seq", i, links_are(c, s));
	must(w, "lease", i, lease_is_sane(c, s));
}

/**
 * seqs_ranges() - check the records of clients, their steps and sequences
 */
void seqs_ranges(struct walk *w, struct core *c)
{
	u32 i, n;

	for (i = 0; i < core_cfg(c)->max_clients; i++)
		client_ranges(w, i);
	for (i = 0; i < core_sizes(c)->nr_seqs && !w->r->nr_faults; i++)
		seq_ranges(w, i);
	for (i = 0; i < core_cfg(c)->max_clients; i++)
		for (n = 0; c->clients[i].state != CLI_FREE &&
		     !w->r->nr_faults && n < c->clients[i].nr_steps; n++)
			step_ranges(w, i, n);
}

/* ---- tables ---- */

static struct kv_tpage *page_at(const struct core *c, u32 client, u32 page)
{
	KV_BUG_ON(page >= core_cfg(c)->nr_tables);
	return &c->tpages[(u64)client * core_cfg(c)->nr_tables + page];
}

static bool pte_is_sane(const struct core *c, const struct kv_tab *t, u32 idx,
			kv_pte_t pte)
{
	const struct kv_seq *s = tab_seq(c, t);
	u32 i = pte_block(pte);

	if (idx < t->trimmed)
		return pte.val == PTE_NONE;
	if (s->flags & SEQF_SWAPPED)
		return pte_is_entry(pte) && i < core_sizes(c)->nr_entries &&
		       c->entries_low[i].domain == s->domain &&
		       c->entries_low[i].group == t->group;
	return pte_is_present(pte) && salvage_in_span(c, i) == s->domain &&
	       c->blocks[i].group == t->group;
}

/* Link a page back to the pages before it; @last is the one before. */
static void page_links(struct core *c, u32 client, struct kv_tpage *t, u32 last)
{
	u32 i;

	for (i = 0; i < CORE_TABLE_HOPS && last != CORE_NONE; i++) {
		t->back[i] = last;
		last = page_at(c, client, last)->back[i];
	}
	for (; i < CORE_TABLE_HOPS; i++)
		t->back[i] = CORE_NONE;
}

static void table_adopt(struct walk *w, struct core *c, struct kv_tab *t)
{
	u32 i, page = t->first_page, last = CORE_NONE;
	u32 client = tab_seq(c, t)->client;
	struct kv_tpage *pg = NULL;

	for (i = 0; i < t->nr_blocks && !w->r->nr_faults; i++) {
		if (i % KVMM_TABLE_ENTRIES == 0) {
			page = pg ? pg->next : page;
			must(w, "page of the table of seq", t->seq,
			     page < core_cfg(c)->nr_tables &&
			     page_at(c, client, page)->back
			     [CORE_TABLE_HOPS - 1] == PAGE_FREE);
			if (w->r->nr_faults)
				return;
			pg = page_at(c, client, page);
			page_links(c, client, pg, last);
			pg->first = i;
			last = page;
		}
		must(w, "entry of the table of seq", t->seq,
		     pte_is_sane(c, t, i, pg->pte[i % KVMM_TABLE_ENTRIES]));
	}
	must(w, "last page of seq", t->seq, t->last_page == last &&
	     (t->nr_blocks || t->first_page == CORE_NONE));
	if (pg)
		pg->next = CORE_NONE;
}

static void tables_adopt(struct walk *w, struct core *c, u32 client)
{
	struct kv_client *cl = &c->clients[client];
	u32 nr = core_cfg(c)->nr_tables, i;
	struct kv_seq *s = &c->seqs[client * core_cfg(c)->max_seqs];
	struct kv_tab *t;

	for (i = 0; i < nr; i++)
		page_at(c, client, i)->back[CORE_TABLE_HOPS - 1] = PAGE_FREE;
	for (i = 0; i < cl->max_seqs && !w->r->nr_faults; i++)
		if (s[i].state != KVMM_SEQ_CLOSED)
			for_each_tab(c, &s[i], t)
				table_adopt(w, c, t);
	cl->unused_page = nr;
	cl->nr_free_pages = 0;
	cl->free_page = CORE_NONE;
	for (i = nr; i--;) {
		struct kv_tpage *pg = page_at(c, client, i);

		if (pg->back[CORE_TABLE_HOPS - 1] != PAGE_FREE)
			continue;
		pg->next = cl->free_page;
		cl->free_page = i;
		cl->nr_free_pages++;
	}
	KV_BUG_ON(cl->nr_free_pages > nr);
}

/* ---- ids ---- */

static void ids_adopt(struct walk *w, struct core *c, struct kv_seq *s)
{
	u32 page = s->id_head, last = CORE_NONE, nr = 0;

	while (page != CORE_NONE && !w->r->nr_faults) {
		struct kv_idpage *p;

		must(w, "pages of ids of seq", seq_index(c, s),
		     page < core_sizes(c)->nr_idpages &&
		     c->idpages[page].nr - 1 < CORE_ID_PAGE);
		if (w->r->nr_faults)
			return;
		p = &c->idpages[page];
		KV_BUG_ON(p->nr & IDS_USED);
		nr += p->nr;
		p->nr |= IDS_USED;
		c->clients[s->client].nr_idpages++;
		last = page;
		page = p->next;
	}
	must(w, "ids of seq", seq_index(c, s), s->nr_ids == nr &&
	     s->id_tail == last && (nr || !(s->flags & SEQF_QUEUED) ||
				    (s->flags & SEQF_SWAPPED)));
	if (s->found > nr / seq_domain(c, s)->group[0].block_tokens)
		s->found = 0;
}

static void ids_free(struct core *c)
{
	struct core_head *h = c->head;
	u32 i;

	h->free_idpage = CORE_NONE;
	h->nr_free_idpages = 0;
	for (i = core_sizes(c)->nr_idpages; i--;) {
		struct kv_idpage *p = &c->idpages[i];

		if (p->nr & IDS_USED) {
			p->nr &= ~IDS_USED;
			continue;
		}
		KV_BUG_ON(h->nr_free_idpages >= core_sizes(c)->nr_idpages);
		p->nr = 0;
		p->next = h->free_idpage;
		h->free_idpage = i;
		h->nr_free_idpages++;
	}
}

/* ---- trees and free records ---- */

/* Add a sequence to the trees that its flags name. */
static void order_adopt(struct core *c, u32 i)
{
	struct kv_seq *s = &c->seqs[i];
	struct kv_domain *d = seq_domain(c, s);

	KV_BUG_ON(s->domain != c->clients[s->client].domain);
	KV_BUG_ON(s->state == KVMM_SEQ_CLOSED);
	s->rank = order_rank(c, s);
	if (s->flags & SEQF_QUEUED)
		order_add(c, &d->wait_root, i, NODE_ORDER);
	else if (s->flags & SEQF_IN_READY)
		order_add(c, &d->ready_root, i, NODE_ORDER);
	if (s->flags & SEQF_IN_REFUSED)
		order_add(c, &d->refused_root, i, NODE_REFUSED);
}

static void client_adopt(struct walk *w, struct core *c, u32 client)
{
	struct kv_client *cl = &c->clients[client];
	struct kv_seq *s = &c->seqs[client * core_cfg(c)->max_seqs];
	u32 i, nr = 0, *free = &cl->free_seq;

	cl->nr_idpages = 0;
	for (i = 0; i < cl->max_seqs && !w->r->nr_faults; i++) {
		if (s[i].state == KVMM_SEQ_CLOSED) {
			KV_BUG_ON(i >= core_cfg(c)->max_seqs);
			*free = i;
			free = &s[i].next;
			continue;
		}
		nr++;
		ids_adopt(w, c, &s[i]);
		order_adopt(c, client * core_cfg(c)->max_seqs + i);
	}
	*free = CORE_NONE;
	expect(w, "adopt", "sequences of client", client, cl->nr_seqs, nr);
}

/* Records of holds: those that no step uses are free. */
static void holds_adopt(struct walk *w, struct core *c)
{
	u32 i, n, h;

	for (i = 0; i < core_sizes(c)->nr_holds; i++)
		c->scratch[i] = 0;
	for (i = 0; i < core_cfg(c)->max_clients; i++)
		for (n = 0; c->clients[i].state != CLI_FREE &&
		     n < c->clients[i].nr_steps; n++) {
			struct kv_step_entry *e;

			h = step_at(c, i, n, &e)->held;
			for (; h != CORE_NONE; h = c->holds[h].next) {
				KV_BUG_ON(h >= core_sizes(c)->nr_holds);
				must(w, "what steps hold", h, !c->scratch[h]);
				c->scratch[h] = 1;
			}
		}
	c->head->free_hold = CORE_NONE;
	for (i = core_sizes(c)->nr_holds; i--;)
		if (!c->scratch[i]) {
			c->holds[i].next = c->head->free_hold;
			c->head->free_hold = i;
		}
}

/**
 * adopt_seqs() - make the lists of clients and sequences that no walker follows
 */
int adopt_seqs(struct core *c, struct walk *w)
{
	u32 i;

	for (i = 0; i < core_cfg(c)->max_domains; i++) {
		c->domains[i].wait_root = CORE_NONE;
		c->domains[i].ready_root = CORE_NONE;
		c->domains[i].refused_root = CORE_NONE;
	}
	for (i = 0; i < core_cfg(c)->max_clients && !w->r->nr_faults; i++)
		if (c->clients[i].state != CLI_FREE) {
			tables_adopt(w, c, i);
			client_adopt(w, c, i);
		}
	ids_free(c);
	if (!w->r->nr_faults)
		leases_adopt(c);
	if (!w->r->nr_faults)
		holds_adopt(w, c);
	return w->r->nr_faults ? -EUCLEAN : 0;
}

/**
 * adopt_index() - make the buckets of the index and the lists of free records
 */
void adopt_index(struct core *c)
{
	struct core_head *h = c->head;
	u32 i;

	for (i = 0; i < core_cfg(c)->max_domains; i++)
		c->lrus[i].told = (struct kv_told){ .node = CORE_NONE };
	for (i = 0; i < core_sizes(c)->nr_ghosts; i++)
		if (c->ghosts[i].domain >= core_cfg(c)->max_domains ||
		    !c->domains[c->ghosts[i].domain].used ||
		    c->ghosts[i].left >= LRU_NR_AGES ||
		    lru_tier(c->ghosts[i].hits, c->ghosts[i].interval) >= LRU_NR_TIERS)
			c->ghosts[i].domain = GHOST_UNUSED;
	for (i = 0; i < core_sizes(c)->nr_buckets; i++)
		c->buckets[i] = CORE_NONE;
	h->free_node = CORE_NONE;
	h->nr_free_nodes = 0;
	for (i = core_sizes(c)->nr_nodes; i--;) {
		if (c->nodes[i].ref != CORE_NONE) {
			index_rehash(c, i);
			continue;
		}
		c->nodes[i].next = h->free_node;
		h->free_node = i;
		h->nr_free_nodes++;
	}
	h->free_entry = CORE_NONE;
	h->nr_free_entries = 0;
	for (i = core_sizes(c)->nr_entries; i--;) {
		if (c->entries_low[i].domain != ENTRY_UNUSED)
			continue;
		c->entries_low[i].next = h->free_entry;
		h->free_entry = i;
		h->nr_free_entries++;
	}
	KV_BUG_ON(h->nr_free_nodes > core_sizes(c)->nr_nodes);
	KV_BUG_ON(h->nr_free_entries > core_sizes(c)->nr_entries);
}
