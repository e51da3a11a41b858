// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_check.c - the walkers find wrong records; the core never allocates
 *
 * The walkers pass in every other test.  Here one record after the other is
 * made wrong, of the device and of the tiers below, and each time the walkers
 * must report it.  The last test runs sequences from open to death with
 * malloc() interposed.
 */
#include "tests/unit/core_shell.h"
#include "kvmm/core/node/node.h"

static u32 cl;
static u64 seq, kid;
static struct kv_seq *s;
static struct kv_block *tail, *sealed, *cached;
static struct kv_domain *d;
static struct core *c;

/* A pool with records of every kind. */
static void setup(void)
{
	u64 other;
	u32 i;

	sh_config(8);
	sh_start();
	cl = sh_attach(1, "a");
	sh_warm(cl);
	other = sh_ready(cl, 32, 0, 9000);
	sh_compute(cl, other, 0, 32, 9000);
	ck_assert_int_eq(sh_close(cl, other), 0);
	seq = sh_ready(cl, 60, 40, 0);
	sh_compute(cl, seq, 0, 20, 0);
	ck_assert_int_eq(sh_fork(cl, seq, 1, &kid), 0);
	ck_assert_int_eq(sh_begin(cl, seq, 20, 20), 0);
	other = sh_open(cl, 500, 0);
	ck_assert_int_eq(sh_match(cl, other, 500, 7000), 0);

	c = sh.core;
	s = &c->seqs[KVMM_SEQ_INDEX(seq)];
	d = &c->domains[0];
	sealed = &c->blocks[table_get(c, &s->tab, 0)];
	tail = &c->blocks[table_get(c, &s->tab, 1)];
	cached = NULL;
	for (i = 0; i < core_sizes(c)->nr_blocks; i++)
		if (c->blocks[i].state == BLK_CACHED &&
		    c->nodes[c->blocks[i].node].parent != CORE_NONE)
			cached = &c->blocks[i];
	ck_assert_ptr_nonnull(cached);
	sh_check();
}

static void teardown(void)
{
	sh_stop();
}

static u32 blk_of(const struct kv_block *b)
{
	return (u32)(b - c->blocks);
}

#define SPOIL(name, ...)	static void spoil_##name(void) { __VA_ARGS__; }

SPOIL(mapped, sealed->nr_map++)
SPOIL(mapped_lost, sealed->nr_map--)
SPOIL(indexed_lost, sealed->flags &= (u8)~BLKF_INDEXED)
SPOIL(indexed_more, tail->flags |= BLKF_INDEXED)
SPOIL(nr_map, tail->nr_map++)
SPOIL(state, tail->state = BLK_SEALED)
SPOIL(block_domain, tail->domain = 1)
SPOIL(index_lost, cached->flags = 0)
SPOIL(hash, cached->hash[0] ^= 1)
SPOIL(reserved, d->dev.reserved++)
SPOIL(seq_reserved, s->tab.reserved--)
SPOIL(free_count, d->dev.nr[BLK_FREE]++)
SPOIL(cached_count, d->dev.nr[BLK_CACHED]--)
SPOIL(indexed, d->nr_indexed++)
SPOIL(shared, d->nr_shared++)
SPOIL(running, d->nr_running++)
SPOIL(growth, d->growth++)
SPOIL(waiting, d->nr_waiting--)
SPOIL(marked, d->nr_marked++)
SPOIL(cover, s->cover++)
SPOIL(nr_blocks, s->tab.nr_blocks--)
SPOIL(valid, s->valid_len += 16)
SPOIL(seq_state, s->state = KVMM_SEQ_WAITING)
SPOIL(family, s->fam_next = KVMM_SEQ_INDEX(seq))
SPOIL(nr_steps, s->nr_steps++)
SPOIL(lru, cached->prev = blk_of(sealed))
SPOIL(lru_list, lru_list(c, blk_of(cached))->head = CORE_NONE)
SPOIL(lru_tail, lru_list(c, blk_of(cached))->tail = CORE_NONE)
SPOIL(lru_used, c->lrus[0].used[lru_tier(0, 0)] = 0)
SPOIL(lru_tier, c->nodes[cached->node].hits += 4)
SPOIL(lru_kind, c->nodes[cached->node].flags = NODEF_INNER)
SPOIL(lru_class, c->nodes[cached->node].retain ^= 1)
SPOIL(lru_no_class, c->nodes[sealed->node].retain = RETAIN_NR)
SPOIL(lru_busy, c->lrus[0].busy ^= BIT_ULL(RETAIN_HIGH * LRU_NR_TIERS))
SPOIL(lru_nr, c->lrus[0].nr[0]++)
SPOIL(lru_kept, c->lrus[0].nr_kept++)
SPOIL(lru_term, c->lrus[0].term[3].nr++)
SPOIL(node_ref, c->nodes[cached->node].ref = blk_of(sealed))
SPOIL(node_parent, c->nodes[cached->node].parent = sealed->node)
SPOIL(node_lost, c->nodes[cached->node].ref = CORE_NONE)
SPOIL(node_kid, c->nodes[c->nodes[cached->node].parent].kid = CORE_NONE)
SPOIL(node_circle, c->nodes[cached->node].prev ^= 1)
SPOIL(node_free, c->head->nr_free_nodes--)
SPOIL(span_free, c->spans[block_span(c, blk_of(tail))].nr_free++)
SPOIL(span_cached, c->spans[block_span(c, blk_of(cached))].nr_cached--)
SPOIL(span_class, c->spans[block_span(c, blk_of(tail))].class ^= 1)
SPOIL(span_list, c->spans[block_span(c, blk_of(tail))].free_head = CORE_NONE)
SPOIL(span_classes, d->dev.classes ^= BIT(CORE_CLASS_EMPTY - 1))
SPOIL(span_open, c->spans[block_span(c, blk_of(tail))].nr_open++)
SPOIL(isolated_free, d->dev.isolated_free++)
SPOIL(isolated_cached, d->dev.isolated_cached++)
SPOIL(isolated, c->spans[block_span(c, blk_of(tail))].class = CORE_CLASS_ISOLATED)
SPOIL(extent_tenant, c->extents[0].tenant++)
SPOIL(extent_backed, c->extents[0].backed = 0)
SPOIL(extent_mapped, c->extents[0].mapped |= BIT_ULL(40))
SPOIL(extent_sent, c->extents[0].sent |= BIT_ULL(40))
SPOIL(pool_size, c->head->zones[0].nr_extents++)
SPOIL(table, table_set(c, &s->tab, 1, table_get(c, &s->tab, 0)))
SPOIL(shadow, sh.cl[cl].tables[s->tab.first_page].entry[1]++)
SPOIL(shadow_seq, sh.cl[cl].tables[s->tab.first_page].seq++)
SPOIL(peak, d->dev.peak = 0)
SPOIL(close_waits, d->close_waits = 1)
SPOIL(wait_back, c->seqs[d->wait_head].prev = 0)
SPOIL(run_back, c->seqs[d->run_tail].prev = CORE_NONE)
SPOIL(run_tail, d->run_tail = d->run_head)
SPOIL(nr_copy, sealed->nr_copy++)
SPOIL(soon, d->soon++)
SPOIL(age, d->age_head = CORE_NONE)
SPOIL(swapped, d->nr_swapped++)
SPOIL(fill_on, s->fill_on = 0)
SPOIL(loose, c->head->zones[0].loose++)
SPOIL(loose_host, c->head->pools[1].loose++)
SPOIL(tails, d->tails--)
SPOIL(promised, c->clients[cl].promised++)
SPOIL(cl_marked, c->clients[cl].nr_marked++)
SPOIL(ready_root, d->ready_root = CORE_NONE)
SPOIL(oldest, c->seqs[d->ready_root].oldest--)
SPOIL(wait_root, d->wait_root = CORE_NONE)
SPOIL(ready_flag, s->flags &= ~SEQF_IN_READY)
SPOIL(refused, s->refused = c->now)
SPOIL(refused_flag, s->flags |= SEQF_IN_REFUSED)

#define CASE(name)	{ #name, spoil_##name }

static const struct {
	const char *what;
	void (*spoil)(void);
} cases[] = {
	CASE(mapped), CASE(mapped_lost), CASE(nr_map), CASE(state),
	CASE(indexed_lost), CASE(indexed_more),
	CASE(block_domain), CASE(index_lost), CASE(hash),
	CASE(reserved), CASE(seq_reserved), CASE(free_count),
	CASE(cached_count), CASE(indexed), CASE(shared), CASE(running),
	CASE(growth), CASE(waiting), CASE(marked), CASE(cover), CASE(nr_blocks),
	CASE(valid), CASE(seq_state), CASE(family), CASE(nr_steps), CASE(lru),
	CASE(lru_list), CASE(lru_tail), CASE(lru_used), CASE(lru_tier),
	CASE(lru_nr), CASE(lru_kept), CASE(lru_term), CASE(lru_kind),
	CASE(lru_class), CASE(lru_no_class), CASE(lru_busy), CASE(node_ref),
	CASE(node_parent), CASE(node_lost),
	CASE(node_kid), CASE(node_circle), CASE(node_free),
	CASE(span_free), CASE(span_cached), CASE(span_class), CASE(span_list),
	CASE(span_classes),
	CASE(span_open), CASE(isolated_free), CASE(isolated_cached), CASE(isolated),
	CASE(extent_tenant), CASE(extent_backed), CASE(extent_mapped),
	CASE(extent_sent), CASE(pool_size), CASE(table), CASE(shadow),
	CASE(shadow_seq), CASE(peak), CASE(close_waits), CASE(wait_back),
	CASE(run_back), CASE(run_tail), CASE(nr_copy), CASE(soon), CASE(tails), CASE(promised),
	CASE(cl_marked), CASE(ready_root), CASE(oldest), CASE(wait_root), CASE(ready_flag),
	CASE(refused), CASE(refused_flag), CASE(loose), CASE(loose_host),
	CASE(swapped), CASE(fill_on), CASE(age),
};

static void must_see(const char *what)
{
	struct core_report r;

	ck_assert_msg(core_check(c, &r) == -EUCLEAN && r.nr_faults,
		      "%s is not seen", what);
	ck_assert_uint_gt(strlen(r.text), 10);
}

START_TEST(test_walkers_see)
{
	cases[_i].spoil();
	must_see(cases[_i].what);
}
END_TEST

/* ---- lower tiers ---- */

static struct core_copy copies[16];
static u32 nr_copies;
static struct kv_pool *areas;		/* two */
static struct kv_part *host;		/* the domain's part in the host pool */
static struct kv_entry *ent;

static void on_copy(const struct core_copy *cp)
{
	copies[nr_copies++] = *cp;
}

static void on_io(const struct core_io *io)
{
}

static void advise(u64 which, u32 advice)
{
	struct kvmm_advise_arg *a = (struct kvmm_advise_arg *)sh.args;

	*a = (struct kvmm_advise_arg){ .seq = which, .advice = advice };
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_SEQ_ADVISE, 1, 0, sizeof(*a)),
			 0);
	ck_assert_int_eq(sh_seq_res(0), 0);
	sh_settle();
}

/* A sequence of @nr blocks that is being paged out; its copies have begun. */
static u64 paged_out(u32 nr)
{
	struct kvmm_open_arg a = {
		.prompt_len = nr * SH_BT, .max_tokens = 8,
		.flags = KVMM_OPEN_NO_INDEX | KVMM_OPEN_NO_MATCH,
	};
	u64 out;

	ck_assert_int_eq(sh_open_as(cl, &a, &out), 0);
	ck_assert_int_eq(sh_match(cl, out, nr * SH_BT, 7), 0);
	sh_compute(cl, out, 0, nr * SH_BT, 7);
	advise(out, KVMM_ADV_PAGEOUT);
	return out;
}

static void do_copies(void)
{
	while (nr_copies)
		SH_CORE(core_copy_done(sh.core, sh.now,
				       copies[--nr_copies].id, 0));
	sh_settle();
}

/* Two writes to each of two areas, one block on its way in and one out. */
static void setup_tiers(void)
{
	u32 i, index;

	sh_on_copy = on_copy;
	sh_on_io = on_io;
	nr_copies = 0;
	sh_config(16);
	sh.cfg.host_bytes = 5 * 2 * SH_EXTENT;
	sh.cfg.area_bytes = 16 * SH_EXTENT;
	sh.cfg.swappiness = 200;
	sh_start();
	c = sh.core;
	cl = sh_attach(1, "a");
	for (i = 0; i < 2; i++)
		ck_assert_int_eq(core_area_add(c, sh.now, sh.cfg.area_bytes, 0,
					       &index), 0);
	paged_out(3);
	do_copies();
	seq = paged_out(1);
	do_copies();
	advise(seq, KVMM_ADV_WILLNEED);
	paged_out(1);
	areas = core_pool(c, CORE_POOL_AREA);
	host = part_at(c, part_index(c, 0, CORE_POOL_HOST));
	d = &c->domains[0];
	ent = c->entries_low;
	ck_assert_uint_eq(nr_copies, 2);
	ck_assert_uint_eq(areas[0].nr_ios, 2);
	ck_assert_uint_eq(areas[1].nr_ios, 2);
	ck_assert_uint_eq(d->nr_filling, 1);
	sh_check();
}

static void swap_u32(u32 *a, u32 *b)
{
	u32 was = *a;

	*a = *b;
	*b = was;
}

SPOIL(io_back, ent[areas[0].io_tail].io_prev = CORE_NONE)
SPOIL(io_order, ent[areas[0].io_head].started++)
SPOIL(io_pool, swap_u32(&areas[0].io_head, &areas[1].io_head);
	swap_u32(&areas[0].io_tail, &areas[1].io_tail))
SPOIL(io_tail, areas[1].io_tail = areas[1].io_head)
SPOIL(io_lost, ent[areas[1].io_head].io_next = CORE_NONE;
	areas[1].io_tail = areas[1].io_head)
SPOIL(nr_ios, areas[1].nr_ios--)
SPOIL(overdue, areas[0].nr_overdue++)
SPOIL(copies, c->head->nr_copies--)
SPOIL(filling, d->nr_filling--)
SPOIL(free_entries, c->head->nr_free_entries++)
SPOIL(free_entry, c->head->free_entry = ent[c->head->free_entry].next)
SPOIL(free_entry_used, ent[c->head->free_entry].domain = 0)
SPOIL(host_back, ent[host->lru_tail].prev = CORE_NONE)
SPOIL(host_tail, host->lru_tail = ent[host->lru_tail].prev)
SPOIL(host_lost, host->lru_head = ent[host->lru_head].next;
	ent[host->lru_head].prev = CORE_NONE)
SPOIL(host_flag, ent[host->lru_head].flags &= (u8)~ENTF_LRU)
SPOIL(low_empty, host->nr_empty++)
SPOIL(low_spans, host->nr_spans--)
SPOIL(low_needed, host->nr_needed++)
SPOIL(low_list, host->class[0] = c->spans[host->class[0]].next;
	c->spans[host->class[0]].prev = CORE_NONE)
SPOIL(low_back, c->spans[host->class[0]].prev = 0)
SPOIL(low_class, c->spans[host->class[0]].class++)
SPOIL(low_nr_free, c->spans[host->class[0]].nr_free++)
SPOIL(low_free, c->spans[host->class[0]].free_head = ent[0].host)
SPOIL(low_owner, c->extents[block_span(c, ent[0].host)].span++)
SPOIL(low_extent, c->extents[host->class[0]].state = EXT_BACKED)
SPOIL(slot_state, c->blocks[ent[0].area].state = BLK_SEALED)
SPOIL(entry_refs, ent[0].refs++)
SPOIL(entry_io, ent[host->lru_head].io = ENT_IDLE)

static const struct {
	const char *what;
	void (*spoil)(void);
} low_cases[] = {
	CASE(io_back), CASE(io_order), CASE(io_pool), CASE(io_tail),
	CASE(io_lost), CASE(nr_ios), CASE(overdue), CASE(copies),
	CASE(filling), CASE(free_entries), CASE(free_entry),
	CASE(free_entry_used), CASE(host_back), CASE(host_tail),
	CASE(host_lost), CASE(host_flag), CASE(low_empty), CASE(low_spans),
	CASE(low_needed),
	CASE(low_list), CASE(low_back), CASE(low_class), CASE(low_nr_free),
	CASE(low_free), CASE(low_owner), CASE(low_extent), CASE(slot_state),
	CASE(entry_refs), CASE(entry_io),
};

START_TEST(test_tiers_seen)
{
	low_cases[_i].spoil();
	must_see(low_cases[_i].what);
}
END_TEST

/* ---- no allocation after core_init() ---- */

static volatile u32 allocations;	/* made by the core */

/* Sanitizers bring their own allocator. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t nr, size_t size);
void *__libc_realloc(void *p, size_t size);
void __libc_free(void *p);

void *malloc(size_t size)
{
	if (sh_in_core)
		allocations++;
	return __libc_malloc(size);
}

void *calloc(size_t nr, size_t size)
{
	if (sh_in_core)
		allocations++;
	return __libc_calloc(nr, size);
}

void *realloc(void *p, size_t size)
{
	if (sh_in_core)
		allocations++;
	return __libc_realloc(p, size);
}

void free(void *p)
{
	if (sh_in_core)
		allocations++;
	__libc_free(p);
}
#endif

START_TEST(test_watching_works)
{
	void *volatile p;

	SH_CORE(p = malloc(1));
	SH_CORE(free(p));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	ck_assert_uint_eq(allocations, 2);
#endif
}
END_TEST

/* Open, match, fork, step, preempt and die without an allocation. */
START_TEST(test_no_allocation)
{
	u64 other, more[3];
	u32 second;

	second = sh_attach(1, "b");
	other = sh_ready(second, 100, 100, 50);
	sh_compute(second, other, 0, 100, 50);
	(void)sh_fork(second, other, 3, more);
	(void)sh_begin(second, other, 100, 100);
	sh_tick(200);
	sh_tick(2000);
	(void)sh_end(cl, seq, 20, 40, 0);
	(void)sh_begin(cl, kid, 20, 80);
	(void)sh_close(cl, kid);
	SH_CORE(core_client_eproto(sh.core, sh.now, second));
	sh_quiet(second);
	sh_die(cl);
	sh_quiet(cl);
	SH_CORE(core_shutdown(sh.core, sh.now));
	ck_assert_uint_eq(allocations, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("core_check");
	TCase *tc = tcase_create("walkers");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, test_walkers_see, 0, ARRAY_SIZE(cases));
	suite_add_tcase(suite, tc);

	tc = tcase_create("tiers");
	tcase_add_checked_fixture(tc, setup_tiers, teardown);
	tcase_add_loop_test(tc, test_tiers_seen, 0, ARRAY_SIZE(low_cases));
	suite_add_tcase(suite, tc);

	tc = tcase_create("allocation");
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_watching_works);
	tcase_add_test(tc, test_no_allocation);
	suite_add_tcase(suite, tc);
	return sh_run(suite);
}
