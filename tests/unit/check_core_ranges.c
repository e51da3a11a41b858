// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_ranges.c - an arena with one wrong field is not adopted
 *
 * A core has two clients with sequences in each state, an open step, a fork,
 * cache, content on lower tiers.  Each test sets one field after another to a
 * value just beyond its bound.  The arena is refused, and the report names the
 * record.  It is adopted with the field as it was, or at its bound.
 */
#include "kvmm/core/node/node.h"
#include "tests/unit/core_shell.h"

#define SLOT	(2 * SH_EXTENT)
#define MOST	64u	/* copies in flight */

static struct core *c, *next;
static void *copy;
static u64 bytes, seq, kid, waiter, out;
static u32 cl, other;
static struct core_copy copies[MOST];
static u32 nr_copies, nr_ios;

static void on_copy(const struct core_copy *cp)
{
	ck_assert_uint_lt(nr_copies, MOST);
	copies[nr_copies++] = *cp;
}

static void on_io(const struct core_io *io)
{
	nr_ios++;
}

static void copies_done(void)
{
	while (nr_copies) {
		u64 id = copies[--nr_copies].id;

		SH_CORE(core_copy_done(c, sh.now, id, 0));
		sh_settle();
	}
}

static void pageout(u64 s)
{
	struct kvmm_advise_arg *a = (struct kvmm_advise_arg *)sh.args;

	*a = (struct kvmm_advise_arg){ .seq = s, .advice = KVMM_ADV_PAGEOUT };
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_SEQ_ADVISE, 1, 0, sizeof(*a)), 0);
	ck_assert_int_eq(sh_seq_res(0), 0);
	sh_settle();
	copies_done();
	ck_assert_int_ge(core_evict(c, sh.now, 0, 32), 2);
	sh_tick(1);
	ck_assert_uint_eq(nr_ios, 2);
}

static u64 computed(u32 tokens, u32 more, u32 seed)
{
	u64 s = sh_ready(cl, tokens, more, seed);

	sh_compute(cl, s, 0, tokens, seed);
	return s;
}

static void setup(void)
{
	u32 area;

	sh_on_copy = on_copy;
	sh_on_io = on_io;
	nr_copies = 0;
	nr_ios = 0;
	sh_config(8);
	sh.cfg.host_bytes = 2 * SLOT;
	sh.cfg.area_bytes = 8 * SLOT;
	sh.cfg.swappiness = 200;
	sh_start();
	c = sh.core;
	cl = sh_attach(1, "a");
	other = sh_attach(2, "b");
	ck_assert_int_eq(core_area_add(c, sh.now, sh.cfg.area_bytes, 0, &area), 0);
	ck_assert_int_eq(sh_close(cl, computed(3 * SH_BT, 0, 500)), 0);
	out = computed(2 * SH_BT, 8, 1000);
	pageout(out);
	seq = computed(40, 40, 2000);
	ck_assert_int_eq(sh_fork(cl, seq, 1, &kid), 0);
	ck_assert_int_eq(sh_begin(cl, kid, 40, 1), 0);
	waiter = sh_open(cl, 31 * SH_BT, 0);
	ck_assert_int_eq(sh_match(cl, waiter, 31 * SH_BT, 3000), 0);
	ck_assert_uint_eq(sh_state(cl, waiter), KVMM_SEQ_WAITING);
	bytes = core_arena_size(&sh.cfg);
	copy = aligned_alloc(64, ALIGN_UP(bytes, 64ull));
	next = calloc(1, core_struct_size());
}

static void teardown(void)
{
	free(copy);
	free(next);
	sh_stop();
}

/* Adopt a copy of the arena; @text: the report must have it, NULL: no fault. */
static void try(const char *text, const char *what)
{
	struct core_report r;
	int how;

	memcpy(copy, sh.arena, bytes);
	how = core_adopt(next, copy, bytes, &sh.cfg, &sh_ops, NULL, sh.now, &r);
	if (!text)
		ck_assert_msg(how == CORE_ADOPT_WHOLE, "%s: %d: %s", what, how, r.text);
	else
		ck_assert_msg(how == -EUCLEAN && strstr(r.text, text),
			      "%s: %d: %s", what, how, r.text);
}

#define with(text, field, value)					\
do {									\
	u64 was_ = field;						\
									\
	field = value;							\
	try(text, #field " = " #value);					\
	field = was_;							\
} while (0)

#define refused(text, field, value)	with(text, field, value)
#define accepted(field, value)		with(NULL, field, value)

static struct kv_seq *rec(u64 s)
{
	return seq_find(c, cl, s);
}

static struct kv_block *block_of(u64 s, u32 idx)
{
	return &c->blocks[table_get(c, &rec(s)->tab, idx)];
}

START_TEST(test_head)
{
	struct core_head *h = c->head;
	const u32 nr = core_sizes(c)->nr_extents;

	try(NULL, "nothing");
	refused("extents in use", h->zones[0].nr_online, 0);
	refused("extents in use", h->zones[0].nr_online, nr + 1);
	refused("first extent of device pool", h->zones[0].first, 1);
	refused("extents of device pool", h->zones[0].nr_extents, nr - 1);
	refused("extents of device pool", h->zones[1].nr_extents, 1);
	refused("device pools of the arena", h->nr_zones, 2);
	refused("device pools of the arena", h->nr_zones, 0);
	refused("time of the arena", h->ticked, sh.now + 1);
	accepted(h->ticked, sh.now);
	refused("rest of an event", h->more, 3);
	accepted(h->more, 2);
	refused("claim", h->revokes[0].nr, CORE_SPAN_MAX + 1);
	h->revokes[1].nr = 1;
	h->revokes[1].shards = 1;
	refused("device pools of claim", h->revokes[1].shards, 2);
	refused("device pools of claim", h->revokes[1].shards, 0);
	refused("end of claim", h->revokes[1].first, nr);
	refused("domain of claim", h->revokes[1].dom, sh.cfg.max_domains);
	h->revokes[1].nr = 0;
	refused("span of evacuation", h->evacs[1].span, nr);
	h->evacs[1].nr = 1;
	refused("domain of evacuation", h->evacs[1].dom, sh.cfg.max_domains);
	h->evacs[1].nr = 0;
	refused("state of move", h->moves[1].state, MOVE_FAILED + 1);
	h->moves[1].state = MOVE_COPIED;
	refused("blocks of move", h->moves[1].evac, CORE_MAX_EVACS);
	refused("blocks of move", h->moves[1].from, core_sizes(c)->nr_blocks);
	refused("blocks of move", h->moves[1].to, core_sizes(c)->nr_blocks);
	h->moves[1].state = MOVE_UNUSED;
	try(NULL, "as it was");
}
END_TEST

START_TEST(test_pools)
{
	struct kv_pool *p = core_pool(c, (u32)_i);
	const u32 nr = core_sizes(c)->nr_entries;

	refused("first extent of pool", p->first, p->first + 1);
	refused("extents of pool", p->nr_extents, p->nr_extents + 1);
	refused("of pool", p->online, 0);
	refused("requests of pool", p->io_head, nr);
	refused("requests of pool", p->io_tail, nr);
	refused("place in pool", p->move_at, nr);
	accepted(p->move_at, nr - 1);
}
END_TEST

START_TEST(test_domains)
{
	const struct core_sizes *s = core_sizes(c);
	struct kv_domain *d = &c->domains[0];
	struct kv_lru *l = &c->lrus[0];

	refused("use of tenant", c->tenants[0].used, 2);
	refused("use of domain", d->used, 2);
	refused("tenant of domain", d->tenant, sh.cfg.max_tenants);
	refused("tenant of domain", d->tenant, 2);
	refused("shape of domain", d->dev.span_extents, 2);
	refused("shape of domain", d->dev.span_blocks, 3);
	refused("shape of domain", d->dev.span_tail, 1);
	refused("shape of domain", d->dev.block_bytes, 512);
	refused("shape of domain", d->stride[0], d->stride[0] + 1);
	refused("shape of domain", d->base_tokens, ~0u);
	refused("shape of domain", d->hit_tokens, 0);
	refused("shape of domain", d->ids_tokens, ~0u);
	refused("sequences of domain", d->wait_head, s->nr_seqs);
	refused("sequences of domain", d->wait_tail, s->nr_seqs);
	refused("sequences of domain", d->run_head, s->nr_seqs);
	refused("sequences of domain", d->run_tail, s->nr_seqs);
	refused("sequences of domain", d->age_head, s->nr_seqs);
	refused("sequences of domain", d->age_tail, s->nr_seqs);
	refused("spans of domain", d->dev.class[0], s->all_extents);
	refused("spans of domain", d->dev.class[CORE_NR_CLASSES - 1], s->all_extents);
	refused("host slots of domain", d->dev.lru_head, s->nr_entries);
	refused("host slots of domain", d->dev.lru_tail, s->nr_entries);
	refused("host slots of domain", d->dev.write_next, s->nr_entries);
	refused("slots of domain", d->dev.slot_out, s->nr_blocks);
	refused("slots of domain", d->dev.slot_last, s->nr_blocks);
	refused("names of domain", d->roots, s->nr_nodes);
	refused("clock of the cache", l->step, 0);
	refused("clock of the cache", l->min_gen, (u32)(l->clock >> 16) + 1);
	refused("clock of the cache", l->min_gen,
		(u32)(l->clock >> 16) - LRU_NR_GENS);
	refused("cache of domain", l->inner.head, s->nr_blocks);
	refused("cache of domain", l->term[0].list.head, s->nr_blocks);
	refused("cache of domain", l->term[LRU_NR_TERMS - 1].list.head, s->nr_blocks);
	refused("cache of domain", l->list[0][0].head, s->nr_blocks);
	refused("cache of domain", l->list[LRU_NR_KINDS - 1][LRU_NR_GENS - 1].head,
		s->nr_blocks);
	refused("kinds of cache", l->busy, 1ull << LRU_NR_KINDS);
}
END_TEST

START_TEST(test_parts)
{
	struct kv_part *p = part_at(c, part_index(c, 0, (u32)_i));
	const struct core_sizes *s = core_sizes(c);

	refused("shape of part", p->span_extents, p->span_extents + 1);
	refused("shape of part", p->span_blocks, p->span_blocks + 1);
	refused("shape of part", p->block_bytes, p->block_bytes + 1);
	refused("spans of domain", p->class[1], s->all_extents);
	refused("host slots of domain", p->lru_tail, s->nr_entries);
	refused("slots of domain", p->slot_last, s->nr_blocks);
}
END_TEST

START_TEST(test_extents)
{
	const struct core_sizes *s = core_sizes(c);
	u32 e = block_span(c, table_get(c, &rec(seq)->tab, 0));
	struct kv_extent *x = &c->extents[e];
	struct kv_span *sp = &c->spans[e];

	refused("state of extent", x->state, EXT_OFFLINE + 1);
	refused("memory of extent", x->backed, 2);
	refused("span of extent", x->span, s->all_extents);
	refused("span of extent", x->span, e + 1);
	refused("domain of extent", x->domain, s->nr_parts);
	refused("claim of extent", x->want, CORE_MAX_REVOKES + 1);
	refused("tenant of extent", x->tenant, sh.cfg.max_tenants);
	refused("tenant of extent", x->tenant, 2);
	refused("list of span", sp->prev, s->all_extents);
	refused("list of span", sp->next, s->all_extents);
	refused("class of span", sp->class, CORE_NR_CLASSES);
	refused("free blocks of span", sp->free_head, s->nr_blocks);
	refused("span", sp->nr_extents, 2);
	refused("blocks of span", sp->nr_blocks, SH_PER + 1);
}
END_TEST

/* Memory that is being made is for a run of its domain. */
START_TEST(test_memory_in_the_making)
{
	struct kv_extent *x = c->extents;

	while (x->state != EXT_ABSENT)
		x++;
	x->state = EXT_CREATING;
	x->domain = 0;
	x->span = (u32)(x - c->extents);
	refused("run of extent", x->span, x->span + 1);
	refused("run of extent", x->span, x->span - 1);
	refused("run of extent", x->domain, 3);
	refused("tenant of extent", x->tenant, 3);
}
END_TEST

START_TEST(test_blocks)
{
	const struct core_sizes *s = core_sizes(c);
	struct kv_block *b = block_of(seq, 0);
	u32 e;

	refused("domain of block", b->domain, 1);
	refused("state of block", b->state, NR_BLK_STATES);
	refused("ids of block", b->nr_ids, SH_BT + 1);
	refused("list of block", b->next, s->nr_blocks);
	refused("list of block", b->prev, s->nr_blocks);
	refused("entry of block", b->entry, s->nr_entries);
	refused("node of block", b->node, s->nr_nodes);
	refused("marks of block", b->flags, b->flags | BLKF_VISITED);
	for (e = 0; c->extents[e].state == EXT_SPAN; e++)
		;
	refused("marks of block", c->blocks[e * SH_PER].flags, BLKF_SHARED);
}
END_TEST

START_TEST(test_entries)
{
	const struct core_sizes *s = core_sizes(c);
	struct kv_entry *e = c->entries_low;

	while (e->domain == ENTRY_UNUSED || e->dev != CORE_NONE ||
	       e->host == CORE_NONE)
		e++;
	refused("domain of entry", e->domain, sh.cfg.max_domains);
	refused("domain of entry", e->domain, 2);
	refused("requests of entry", e->io, ENT_READ + 1);
	refused("ids of entry", e->nr_ids, SH_BT + 1);
	refused("slots of entry", e->host, 0);
	refused("slots of entry", e->area, 0);
	refused("slots of entry", e->dev, e->host);
	refused("flags of entry", e->host, CORE_NONE);
	refused("transfers of entry", e->area, CORE_NONE);
	refused("requests of entry", e->io_prev, s->nr_entries);
	refused("requests of entry", e->io_next, s->nr_entries);
	refused("node of entry", e->node, s->nr_nodes);
	refused("copies of entry", e->io, ENT_OUT);
	refused("copies of entry", e->io, ENT_IN);
	refused("list of entry", e->prev, s->nr_entries);
	refused("list of entry", e->next, s->nr_entries);
	refused("waiters of entry", e->waiters, s->nr_seqs);
}
END_TEST

START_TEST(test_nodes)
{
	const struct core_sizes *s = core_sizes(c);
	struct kv_node *n = &c->nodes[block_of(seq, 0)->node];

	refused("content of node", n->ref, s->nr_blocks);
	refused("content of node", n->ref, REF_ENTRY | s->nr_entries);
	refused("content of node", n->ref, table_get(c, &rec(seq)->tab, 1));
	refused("links of node", n->prev, s->nr_nodes);
	refused("links of node", n->next, s->nr_nodes);
	refused("links of node", n->parent, s->nr_nodes);
	refused("links of node", n->kid, s->nr_nodes);
	refused("class of node", n->retain, RETAIN_NR);
	refused("class of node", n->flags, 3);
	refused("class of node", n->term, LRU_NR_TERMS + 1);
	n->hits = 0;
	refused("class of node", n->interval, LRU_TIER_FOUND);
	refused("age of node", n->stamp, lru_units(&c->lrus[0]) + 1);
}
END_TEST

START_TEST(test_clients)
{
	struct kv_client *k = &c->clients[cl];
	struct kv_step_entry *e;
	struct kv_step *st = step_at(c, cl, 0, &e);

	refused("facts of client", k->state, CLI_DEAD + 1);
	refused("facts of client", k->domain, sh.cfg.max_domains);
	refused("facts of client", k->domain, 2);
	refused("facts of client", k->tenant, 1);
	refused("facts of client", k->max_steps, 0);
	refused("facts of client", k->max_steps, sh.cfg.max_steps + 1);
	refused("facts of client", k->max_seqs, 0);
	refused("facts of client", k->max_seqs, SH_SEQS + 1);
	refused("facts of client", k->nr_steps, k->max_steps + 1);
	refused("facts of client", k->step_head, KVMM_MAX_STEPS);
	refused("facts of client", k->away, AWAY_SALVAGED + 1);
	refused("facts of client", k->committed, k->last_number + 1);
	refused("sequences of client", k->nr_seqs, k->nr_seqs + 1);
	refused("entries of a step", st->nr, CORE_MAX_STEP_ENTRIES + 1);
	refused("entry of a step", e->seq, SH_SEQS);
	refused("entry of a step", e->seq, SH_SEQS - 1);
	refused("entry of a step", e->start, e->end + 1);
	refused("entry of a step", e->src[0], core_sizes(c)->nr_blocks);
	refused("what a step holds", st->held, core_sizes(c)->nr_holds);
	c->holds[0].next = 0;
	refused("what a step holds", st->held, 0);
}
END_TEST

START_TEST(test_sequences)
{
	const u32 nr = core_sizes(c)->nr_seqs;
	struct kv_seq *s = rec(seq), *w = rec(waiter), *o = rec(out);

	refused("pressure of seq", s->psi_domain, PSI_NR_CLASSES);
	refused("pressure of seq", s->psi_node, PSI_NR_CLASSES);
	refused("facts of seq", s->state, KVMM_NR_SEQ_STATES);
	refused("facts of seq", s->client, other);
	refused("facts of seq", s->domain, 1);
	refused("facts of seq", s->nr_retains, SEQ_RETAINS + 1);
	refused("facts of seq", s->generation, 0);
	refused("facts of seq", s->cause, NR_CORE_CAUSES);
	refused("links of seq", s->prev, nr);
	refused("links of seq", s->next, nr);
	refused("links of seq", s->fam_prev, SH_SEQS);
	refused("links of seq", s->fam_next, SH_SEQS);
	refused("links of seq", s->fam_next, SH_SEQS - 1);
	refused("links of seq", w->age_prev, nr);
	refused("links of seq", w->age_next, nr);
	refused("links of seq", s->fill_on, core_sizes(c)->nr_entries);
	refused("table of seq", s->tab.nr_blocks, s->tab.nr_blocks + 1);
	refused("table of seq", s->tab.nr_blocks, s->tab.nr_blocks - 1);
	refused("table of seq", s->valid_len, s->cover + 1);
	refused("table of seq", s->tab.trimmed, s->tab.nr_blocks + 1);
	refused("table of seq", s->tab.trim_want, s->tab.nr_blocks + 1);
	refused("table of seq", s->max_tokens, 122 * 80 * SH_BT);
	refused("table of seq", w->flags, w->flags | SEQF_COPY);
	refused("table of seq", o->flags, o->flags & ~SEQF_SWAPPED);
	refused("table of seq", s->flags, s->flags | SEQF_SWAPPED);
}
END_TEST

START_TEST(test_tables_and_ids)
{
	struct kv_seq *s = rec(seq), *w = rec(waiter);
	kv_pte_t *pte = c->tpages[cl * core_cfg(c)->nr_tables + s->tab.first_page].pte;
	kv_pte_t *low = c->tpages[cl * core_cfg(c)->nr_tables +
				  rec(out)->tab.first_page].pte;

	refused("page of the table", s->tab.first_page, core_cfg(c)->nr_tables);
	refused("page of the table", s->tab.first_page, rec(out)->tab.first_page);
	refused("last page of seq", s->tab.last_page, s->tab.last_page + 1);
	refused("last page of seq", w->tab.first_page, s->tab.last_page + 1);
	refused("entry of the table", pte[0].val, pte_present(core_sizes(c)->nr_blocks).val);
	refused("entry of the table", pte[2].val, pte_none().val);
	refused("entry of the table", pte[1].val, pte_entry(0).val);
	refused("entry of the table", low[0].val, pte_entry(core_sizes(c)->nr_entries).val);
	refused("entry of the table", low[1].val, pte_present(0).val);
	refused("pages of ids", w->id_head, core_sizes(c)->nr_idpages);
	refused("pages of ids", c->idpages[w->id_head].nr, 0);
	refused("pages of ids", c->idpages[w->id_head].nr, CORE_ID_PAGE + 1);
	refused("ids of seq", w->nr_ids, w->nr_ids + 1);
	refused("ids of seq", w->id_tail, w->id_tail + 1);
	refused("ids of seq", s->id_tail, 0);
}
END_TEST

/* ---- lists that are made anew ---- */

/* The next core has as many free records as the first one. */
START_TEST(test_free_records)
{
	const struct core_head *h = c->head;
	u32 i, n;

	try(NULL, "nothing");
	ck_assert_uint_eq(next->head->nr_free_idpages, h->nr_free_idpages);
	ck_assert_uint_eq(next->head->nr_free_nodes, h->nr_free_nodes);
	ck_assert_uint_eq(next->head->nr_free_entries, h->nr_free_entries);
	for (i = next->head->free_idpage, n = 0; i != CORE_NONE;
	     i = next->idpages[i].next, n++)
		ck_assert_uint_eq(next->idpages[i].nr, 0);
	ck_assert_uint_eq(n, h->nr_free_idpages);
	for (i = next->head->free_hold, n = 0; i != CORE_NONE; i = next->holds[i].next)
		n++;
	ck_assert_uint_eq(n, core_sizes(c)->nr_holds);
	for (i = 0; i < 2; i++) {
		ck_assert_uint_eq(next->clients[i].nr_free_pages,
				  c->clients[i].nr_free_pages);
		ck_assert_uint_eq(next->clients[i].nr_idpages, c->clients[i].nr_idpages);
	}
	for (i = next->clients[cl].free_page, n = 0; i != CORE_NONE;
	     i = next->tpages[cl * core_cfg(c)->nr_tables + i].next)
		n++;
	ck_assert_uint_eq(n, c->clients[cl].nr_free_pages);
	for (i = next->clients[cl].free_seq, n = 0; i != CORE_NONE;
	     i = next->seqs[cl * SH_SEQS + i].next)
		n++;
	ck_assert_uint_eq(n, SH_SEQS - c->clients[cl].nr_seqs);
}
END_TEST

/* A step holds a block: its record is in use, and no other step may have it. */
START_TEST(test_holds)
{
	struct kv_step_entry *e;
	struct kv_step *st = step_at(c, cl, 0, &e);
	u32 i, n = 0;

	c->head->free_hold = 1;
	c->holds[0].next = CORE_NONE;
	c->holds[0].blk = table_get(c, &rec(seq)->tab, 0);
	block_of(seq, 0)->nr_src++;
	st->held = 0;
	try(NULL, "a hold");
	for (i = next->head->free_hold; i != CORE_NONE; i = next->holds[i].next)
		ck_assert_uint_eq(i, ++n);
	ck_assert_uint_eq(n, core_sizes(c)->nr_holds - 1);
	refused("block that a step holds", c->holds[0].blk, core_sizes(c)->nr_blocks);
}
END_TEST

/* Requests in flight begin again at the time of the adoption. */
START_TEST(test_requests_begin_again)
{
	u32 i, nr = 0;

	sh.now += 5 * MS;
	try(NULL, "requests");
	for (i = 0; i < core_sizes(c)->nr_entries; i++) {
		const struct kv_entry *k = &next->entries_low[i];

		if (k->domain == ENTRY_UNUSED || k->io == ENT_IDLE)
			continue;
		ck_assert_uint_eq(k->started, sh.now);
		ck_assert_uint_eq(k->again, AGAIN_IO);
		nr++;
	}
	ck_assert_uint_eq(nr, 2);
	ck_assert_uint_eq(core_pool(next, CORE_POOL_AREA)->moved, sh.now);
	ck_assert_uint_eq(next->again, 1);
}
END_TEST

/* Records that are only hints are dropped where they are wrong. */
START_TEST(test_hints)
{
	const u32 blocks = rec(waiter)->nr_ids / SH_BT;

	c->ghosts[0].domain = 0;
	c->ghosts[1].domain = 4;
	c->ghosts[2].domain = (u16)sh.cfg.max_domains;
	rec(waiter)->found = blocks;
	try(NULL, "found of all ids");
	ck_assert_uint_eq(next->ghosts[0].domain, 0);
	ck_assert_uint_eq(next->ghosts[1].domain, GHOST_UNUSED);
	ck_assert_uint_eq(next->ghosts[2].domain, GHOST_UNUSED);
	ck_assert_uint_eq(next->seqs[KVMM_SEQ_INDEX(waiter)].found, blocks);
	rec(waiter)->found++;
	try(NULL, "found beyond the ids");
	ck_assert_uint_eq(next->seqs[KVMM_SEQ_INDEX(waiter)].found, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_ranges");
	TCase *tc = tcase_create("ranges");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_head);
	tcase_add_loop_test(tc, test_pools, 0, CORE_POOL_AREA + 1);
	tcase_add_test(tc, test_domains);
	tcase_add_loop_test(tc, test_parts, CORE_POOL_HOST, CORE_POOL_AREA + 1);
	tcase_add_test(tc, test_extents);
	tcase_add_test(tc, test_memory_in_the_making);
	tcase_add_test(tc, test_blocks);
	tcase_add_test(tc, test_entries);
	tcase_add_test(tc, test_nodes);
	tcase_add_test(tc, test_clients);
	tcase_add_test(tc, test_sequences);
	tcase_add_test(tc, test_tables_and_ids);
	tcase_add_test(tc, test_free_records);
	tcase_add_test(tc, test_holds);
	tcase_add_test(tc, test_requests_begin_again);
	tcase_add_test(tc, test_hints);
	suite_add_tcase(s, tc);
	return sh_run(s);
}
