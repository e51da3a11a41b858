// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_config.c - configurations that are refused, and sizes of tables
 *
 * config_settle() checks a configuration, fills in values that are 0, and
 * computes the sizes of all tables from it.  A fresh core has all its records on
 * free lists.
 */
#include "kvmm/core/node/node.h"
#include "tests/unit/core_shell.h"

#define DEV	8u	/* extents */
#define HOST	2u
#define AREA	3u

static struct core_config base(void)
{
	sh_config(DEV);
	sh.cfg.host_bytes = HOST * SH_EXTENT;
	sh.cfg.area_bytes = AREA * SH_EXTENT;
	return sh.cfg;
}

/* A pool in extents of 64 GiB, of which nothing is touched. */
static struct core_config large(u64 pool)
{
	sh_config(1);
	sh.cfg.pool_bytes = pool;
	sh.cfg.extent_size = 64ull << 30;
	sh.cfg.min_token_bytes = 1u << 28;
	return sh.cfg;
}

static int settle(const struct core_config *cfg)
{
	struct core_config full;
	struct core_sizes s;
	int err = config_settle(cfg, &full, &s);

	/* The size of an arena is 0 for the same configurations. */
	ck_assert_int_eq(!err, core_arena_size(cfg) != 0);
	return err;
}

#define change(member, value)						\
({									\
	struct core_config cfg_ = base();				\
	cfg_.member = value;						\
	settle(&cfg_);							\
})

#define refused(member, value)						\
	ck_assert_int_eq(change(member, value), -EINVAL)
#define accepted(member, value)						\
	ck_assert_int_eq(change(member, value), 0)

/* ---- bounds ---- */

START_TEST(test_bytes)
{
	accepted(pool_bytes, SH_EXTENT);
	refused(pool_bytes, 0);
	refused(pool_bytes, SH_EXTENT + 1);
	refused(pool_bytes, SH_EXTENT - 1);
	refused(pool_bytes, CORE_POOL_LIMIT);
	accepted(extent_size, SH_EXTENT);
	refused(extent_size, 3 * SH_EXTENT);
	refused(extent_size, 2048);
	refused(extent_size, 0);
	accepted(host_bytes, 0);
	refused(host_bytes, SH_EXTENT + 64);
	refused(area_bytes, SH_EXTENT + 64);
	accepted(min_token_bytes, 256);
	refused(min_token_bytes, 512);
	refused(min_token_bytes, 96);
	refused(min_token_bytes, 0);
}
END_TEST

START_TEST(test_numbers_of_records)
{
	refused(max_clients, 0);
	accepted(max_clients, 1);
	accepted(max_clients, 64);
	refused(max_clients, 65);
	refused(max_seqs, 0);
	/* A block counts the sequences that map it. */
	accepted(max_seqs, BIT(BLOCK_MAP_BITS) / SH_CLIENTS);
	refused(max_seqs, BIT(BLOCK_MAP_BITS) / SH_CLIENTS + 1);
	refused(max_seqs, ~0u);
	accepted(max_seqs, 1);
	refused(max_domains, 0);
	accepted(max_domains, 1);
	refused(max_domains, 0x10000);
	refused(max_domains, 0xffff);	/* with a part in each pool */
	accepted(max_domains, 0xffff / CORE_NR_POOLS);
	refused(max_domains, 0xffff / CORE_NR_POOLS + 1);
	refused(named_tenants, 4);
	accepted(named_tenants, 3);
	refused(max_steps, 0);
	accepted(max_steps, 1);
	accepted(max_steps, KVMM_MAX_STEPS);
	refused(max_steps, KVMM_MAX_STEPS + 1);
}
END_TEST

START_TEST(test_tunables)
{
	accepted(swappiness, 200);
	refused(swappiness, 201);
	accepted(watermark_scale_factor, 1000);
	refused(watermark_scale_factor, 1001);
	accepted(cache_floor, 100);
	refused(cache_floor, 101);
	accepted(overcommit, 2);
	refused(overcommit, 1);
	refused(overcommit, 3);
	accepted(overcommit_ratio, 100);
	refused(overcommit_ratio, 101);
}
END_TEST

/* Numbers of entries share 32 bits with the ids of moves and of blocks. */
START_TEST(test_most_entries)
{
	const u64 most = (1ull << 30) * SH_BLOCK;
	struct core_config cfg = base();

	cfg.area_bytes = 0;
	cfg.host_bytes = most;
	ck_assert_int_eq(settle(&cfg), -EINVAL);
	cfg.host_bytes = most - SH_EXTENT;
	ck_assert_int_eq(settle(&cfg), 0);
	cfg.host_bytes = 4 * most;
	ck_assert_int_eq(settle(&cfg), -EINVAL);
}
END_TEST

/* ---- values that are filled in ---- */

START_TEST(test_defaults)
{
	struct core_config cfg = base(), full;
	struct core_sizes s;

	cfg.nr_idpages = 0;
	cfg.area_bytes = AREA * SH_EXTENT;
	ck_assert_int_eq(config_settle(&cfg, &full, &s), 0);
	ck_assert_uint_eq(full.overcommit_ratio, 100);
	ck_assert_uint_eq(full.event_work, 32768);
	ck_assert_uint_eq(full.lease_ms, 600000);
	ck_assert_uint_eq(full.lease_percent, 50);
	ck_assert_uint_eq(full.revoke_deadline_ns, 2000000000ull);
	/* Two pages a sequence, and twice what the whole pool needs. */
	ck_assert_uint_eq(full.nr_tables, 2 * SH_SEQS + 2);
	ck_assert_uint_eq(full.nr_idpages, 1040 * SH_CLIENTS);
	ck_assert_uint_eq(s.nr_idpages, full.nr_idpages);
	cfg.pool_bytes = 256 * SH_EXTENT;
	ck_assert_int_eq(config_settle(&cfg, &full, &s), 0);
	ck_assert_uint_eq(full.nr_tables, 2 * SH_SEQS +
			  2 * (256 * SH_PER / KVMM_TABLE_ENTRIES + 1));
	/* Without a host pool there are no areas. */
	cfg.host_bytes = 0;
	ck_assert_int_eq(config_settle(&cfg, &full, &s), 0);
	ck_assert_uint_eq(full.area_bytes, 0);
	ck_assert_uint_eq(s.all_extents, 256);
	ck_assert_uint_eq(s.nr_entries, 0);
}
END_TEST

START_TEST(test_values_that_are_given)
{
	struct core_config cfg = base(), full;
	struct core_sizes s;

	cfg.overcommit_ratio = 50;
	cfg.lease_ms = 3;
	cfg.lease_percent = 5;
	cfg.event_work = 7;
	cfg.revoke_deadline_ns = 9;
	cfg.nr_tables = 11;
	cfg.nr_idpages = 13;
	ck_assert_int_eq(config_settle(&cfg, &full, &s), 0);
	ck_assert_mem_eq(&full, &cfg, sizeof(cfg));
	ck_assert_uint_eq(s.nr_idpages, 13);
	ck_assert_uint_eq(s.nr_tpages, 11 * SH_CLIENTS);
}
END_TEST

/* ---- sizes ---- */

START_TEST(test_sizes)
{
	const u32 low = HOST + CORE_MAX_AREAS * AREA;
	struct core_config cfg = base(), full;
	struct core_sizes s;

	ck_assert_int_eq(config_settle(&cfg, &full, &s), 0);
	ck_assert_uint_eq(s.nr_extents, DEV);
	ck_assert_uint_eq(s.all_extents, DEV + low);
	ck_assert_uint_eq(s.ids_per_extent, 64);
	ck_assert_uint_eq(s.blocks_per_extent, SH_PER);
	ck_assert_uint_eq(s.block_shift, 2);
	ck_assert_uint_eq(s.nr_blocks, (DEV + low) * SH_PER);
	ck_assert_uint_eq(s.nr_ids, (DEV + low) * 64);
	ck_assert_uint_eq(s.nr_buckets, s.nr_blocks - s.nr_blocks / 4);
	ck_assert_uint_eq(s.nr_parts, 6 * CORE_NR_POOLS);
	ck_assert_uint_eq(s.nr_entries, low * SH_PER);
	ck_assert_uint_eq(s.nr_nodes, DEV * SH_PER + s.nr_entries);
	ck_assert_uint_eq(s.nr_holds, 64);
	ck_assert_uint_eq(s.nr_ghosts, DEV * SH_PER);
	ck_assert_uint_eq(s.nr_seqs, SH_CLIENTS * SH_SEQS);
	ck_assert_uint_eq(s.nr_steps, SH_CLIENTS * KVMM_MAX_STEPS);
	ck_assert_uint_eq(s.nr_step_entries,
			  s.nr_steps * (u64)CORE_MAX_STEP_ENTRIES);
	cfg.pool_bytes = 1023 * SH_EXTENT;
	ck_assert_int_eq(config_settle(&cfg, &full, &s), 0);
	ck_assert_uint_eq(s.nr_holds, 1023 * SH_PER / 32);
	cfg.pool_bytes = 3 * SH_EXTENT;
	ck_assert_int_eq(config_settle(&cfg, &full, &s), 0);
	ck_assert_uint_eq(s.nr_ghosts, ALIGN_UP(3 * SH_PER, GHOST_WAYS));
}
END_TEST

/* ---- a fresh core ---- */

/* Table entries are 32 bits wide; the unit grows with the pool. */
START_TEST(test_units)
{
	static const struct {
		u64	pool;
		u32	unit;
	} pools[] = {
		{ 64ull << 30, 64 },
		{ 192ull << 30, 64 },
		{ 256ull << 30, 128 },
		{ 448ull << 30, 128 },
		{ 512ull << 30, 256 },
		{ 1ull << 40, 512 },
		{ 8ull << 40, 4096 },
		{ CORE_POOL_LIMIT - (64ull << 30), 4096 },
	};
	struct core_config full;
	struct core_sizes s;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(pools); i++) {
		struct core_config cfg = large(pools[i].pool);

		ck_assert_int_eq(config_settle(&cfg, &full, &s), 0);
		ck_assert_uint_eq(1ull << s.unit_shift, pools[i].unit);
	}
	(void)large(CORE_POOL_LIMIT);
	ck_assert_int_eq(settle(&sh.cfg), -EINVAL);
	/* Numbers of extents that no 32 bits hold. */
	(void)large(1ull << 40);
	sh.cfg.host_bytes = 1ull << 49;
	sh.cfg.extent_size = 4096;
	sh.cfg.min_token_bytes = 256;
	ck_assert_int_eq(settle(&sh.cfg), -EINVAL);
}
END_TEST

/* All blocks of a pool of 1 TiB have entries of their own, which name them. */
START_TEST(test_large_pool)
{
	const u32 unit = 512;
	struct kvmm_attach_req req = sh_attach_req("large");
	struct core_attach_info *info;
	u32 cl, i, k, nr;
	bool seen[256] = { false };
	u64 seq, at, span;

	(void)large(1ull << 40);
	sh_start();
	/* 131064 bytes a layer: without rounding, blocks end in the middle of a unit. */
	req.group[0].k_bytes = 65528;
	req.group[0].v_bytes = 65536;
	req.group[0].layers = 4095;
	cl = (u32)sh_attach_as(1, &req);
	info = &sh.cl[cl].info;
	ck_assert_uint_eq(info->unit, unit);
	ck_assert_uint_eq(info->block_bytes, 131064ull * SH_BT * 4095 / unit *
			  unit + unit);
	span = info->span_extents * sh.cfg.extent_size;
	nr = info->nr_extents / info->span_extents * info->span_blocks;
	ck_assert(nr >= 100 && nr <= ARRAY_SIZE(seen));
	seq = sh_ready(cl, nr * SH_BT, 0, 1);
	sh_compute(cl, seq, 0, nr * SH_BT, 1);
	for (i = 0; i < nr; i++) {
		at = (u64)sh_table(cl, seq, i) * unit;
		ck_assert_uint_eq(at % span % info->block_bytes, 0);
		k = (u32)(at / span * info->span_blocks +
			  at % span / info->block_bytes);
		ck_assert(k < nr && !seen[k]);
		seen[k] = true;
	}
	sh_stop();
}
END_TEST

static void setup(void)
{
	(void)base();
	sh_start();
}

static void teardown(void)
{
	sh_stop();
}

/* Each free list has every record, in order. */
START_TEST(test_free_lists)
{
	const struct core *c = sh.core;
	const struct core_sizes *s = core_sizes(c);
	u32 i, n;

	for (i = c->head->free_hold, n = 0; i != CORE_NONE; i = c->holds[i].next)
		ck_assert_uint_eq(i, n++);
	ck_assert_uint_eq(n, s->nr_holds);
	for (i = c->head->free_node, n = 0; i != CORE_NONE; i = c->nodes[i].next)
		ck_assert_uint_eq(i, n++);
	ck_assert_uint_eq(n, s->nr_nodes);
	ck_assert_uint_eq(c->head->nr_free_nodes, n);
	for (i = c->head->free_entry, n = 0; i != CORE_NONE; i = c->entries_low[i].next)
		ck_assert_uint_eq(i, n++);
	ck_assert_uint_eq(n, s->nr_entries);
	ck_assert_uint_eq(c->head->nr_free_entries, n);
	for (i = c->head->free_idpage, n = 0; i != CORE_NONE; i = c->idpages[i].next)
		ck_assert_uint_eq(i, n++);
	ck_assert_uint_eq(n, s->nr_idpages);
	ck_assert_uint_eq(c->head->nr_free_idpages, n);
}
END_TEST

START_TEST(test_records_are_unused)
{
	const struct core *c = sh.core;
	const struct core_sizes *s = core_sizes(c);
	u32 i;

	for (i = 0; i < s->nr_buckets; i++)
		ck_assert_uint_eq(c->buckets[i], CORE_NONE);
	for (i = 0; i < s->nr_ghosts; i++)
		ck_assert_uint_eq(c->ghosts[i].domain, GHOST_UNUSED);
	for (i = 0; i < s->nr_nodes; i++)
		ck_assert_uint_eq(c->nodes[i].ref, CORE_NONE);
	for (i = 0; i < s->nr_entries; i++)
		ck_assert_uint_eq(c->entries_low[i].domain, ENTRY_UNUSED);
	for (i = 0; i < CORE_MAX_EVACS; i++)
		ck_assert_uint_eq(c->head->evacs[i].span, CORE_NONE);
	for (i = 0; i < s->all_extents; i++)
		ck_assert_uint_eq(c->extents[i].domain, CORE_NONE);
	ck_assert_uint_eq(c->head->zones[0].nr_online, DEV);
	ck_assert_uint_eq(c->head->arrival, 1);
	ck_assert_uint_eq(c->head->bytes, core_arena_size(&sh.cfg));
}
END_TEST

/* Pools lie one after another; the host pool alone has memory from the start. */
START_TEST(test_pools)
{
	const struct core *c = sh.core;
	u32 i, e, first = 0;

	for (i = 0; i < CORE_NR_POOLS; i++) {
		const struct kv_pool *p = core_pool(c, i);

		ck_assert_uint_eq(p->first, first);
		ck_assert_uint_eq(p->nr_extents, i == CORE_POOL_DEV ? DEV :
				  i == CORE_POOL_HOST ? HOST : 0);
		ck_assert_uint_eq(p->online, i < CORE_POOL_AREA);
		ck_assert_uint_eq(p->loose, i ? p->nr_extents : 0);
		ck_assert_uint_eq(p->io_head, CORE_NONE);
		ck_assert_uint_eq(p->io_tail, CORE_NONE);
		first += i < CORE_POOL_AREA ? p->nr_extents : AREA;
	}
	ck_assert_uint_eq(c->head->zones[0].loose, DEV);
	for (e = 0; e < core_sizes(c)->all_extents; e++) {
		bool host = e >= DEV && e < DEV + HOST;

		ck_assert_uint_eq(c->extents[e].backed, host);
		ck_assert_uint_eq(c->extents[e].state, host ? EXT_BACKED : EXT_ABSENT);
	}
}
END_TEST

/* Without lower tiers there is no record of an entry. */
START_TEST(test_device_pool_alone)
{
	sh_stop();
	sh_config(DEV);
	sh_start();
	ck_assert_uint_eq(sh.core->head->free_entry, CORE_NONE);
	ck_assert_uint_eq(sh.core->head->nr_free_entries, 0);
	ck_assert_uint_eq(core_pool(sh.core, CORE_POOL_HOST)->online, 0);
}
END_TEST

START_TEST(test_small_arena)
{
	struct core_config cfg = sh.cfg;
	u64 bytes = core_arena_size(&cfg);
	struct core *c = calloc(1, core_struct_size());
	void *arena = aligned_alloc(64, ALIGN_UP(bytes, 64ull));

	memset(arena, 0, bytes);
	ck_assert_int_eq(core_init(c, arena, bytes - 1, &cfg, &sh_ops, NULL), -ENOSPC);
	ck_assert_int_eq(core_init(c, arena, bytes, &cfg, &sh_ops, NULL), 0);
	cfg.max_seqs = 0;
	ck_assert_int_eq(core_init(c, arena, bytes, &cfg, &sh_ops, NULL), -EINVAL);
	free(arena);
	free(c);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_config");
	TCase *tc = tcase_create("settle");

	tcase_add_test(tc, test_bytes);
	tcase_add_test(tc, test_numbers_of_records);
	tcase_add_test(tc, test_tunables);
	tcase_add_test(tc, test_most_entries);
	tcase_add_test(tc, test_defaults);
	tcase_add_test(tc, test_values_that_are_given);
	tcase_add_test(tc, test_sizes);
	tcase_add_test(tc, test_units);
	tcase_add_test(tc, test_large_pool);
	suite_add_tcase(s, tc);
	tc = tcase_create("fresh");
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_free_lists);
	tcase_add_test(tc, test_records_are_unused);
	tcase_add_test(tc, test_pools);
	tcase_add_test(tc, test_device_pool_alone);
	tcase_add_test(tc, test_small_arena);
	suite_add_tcase(s, tc);
	return sh_run(s);
}
