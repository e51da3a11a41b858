// SPDX-License-Identifier: Apache-2.0
/*
 * check_proc_shards.c - files of a domain that has two shards
 *
 * The domain "wide" is in both device pools, "low" in the first, "high" in the second
 * one.  A block of each domain has 4608 bytes in each of its pools.
 */
#include "tests/unit/proc_fixture.h"

#define BLOCK	4608
#define TENANT	7

static u32 client;
static u64 seq;

static u32 attach(const char *domain, u32 pool, u32 shards)
{
	struct kvmm_attach_req req;
	u32 id = CORE_NONE;

	fx_attach_req(&req, domain);
	req.pool = pool;
	req.nr_shards = shards;
	ck_assert_int_eq(fx_attach_as(&fx, TENANT, &req, &id), 0);
	return id;
}

/* 40 tokens: 3 blocks. */
static void setup(void)
{
	fx_setup_pools(8, 4, 0, 0);
	client = attach("wide", 0, 2);
	seq = fx_prefill(&fx, client, 40, 1);
	attach("low", 1, 1);
	fx_prefill(&fx, attach("high", 2, 1), 20, 1);
}

static void want(const char *path, const char *part)
{
	const char *text = fx_cat(path);

	ck_assert_msg(strstr(text, part), "%s: no '%s' in:\n%s", path, part, text);
}

START_TEST(test_status)
{
	char sum[64];

	want("domain/wide/status", "\nPool:\tgpu0-gpu1\nShards:\t2\nBlockTokens:\t16\nBlockBytes:\t4608\n");
	want("domain/wide/status", "\nKvCurrent:\t      13 kB\n");
	snprintf(sum, sizeof(sum), "\nKvAllPools:\t%8u kB\n", 2 * 3 * BLOCK >> 10);
	want("domain/wide/status", sum);
	want("domain/low/status", "\nPool:\tgpu0\nBlockTokens:\t16\n");
	want("domain/high/status", "\nPool:\tgpu1\nBlockTokens:\t16\n");
	ck_assert_ptr_null(strstr(fx_cat("domain/high/status"), "Shards"));
	ck_assert_ptr_null(strstr(fx_cat("domain/high/status"), "AllPools"));
}
END_TEST

START_TEST(test_tables)
{
	want("domains", " gpu0-gpu1 wide\n");
	want("domains", "  gpu0 low\n");
	want("domains", "  gpu1 high\n");
	/* Columns total, online, free, cached, used, committed, limit, domains, clients. */
	want("pools", "gpu0            512          512          497            0           13 ");
	want("pools", "gpu1            256          256          231            0           22 ");
	want("pools", "          512       2       2 works\ngpu1 ");
	want("pools", "          256       2       2 works\n");
}
END_TEST

/* The parts of each pool, and the pools of each domain. */
START_TEST(test_metrics)
{
	want("metrics", "\nkvmm_domain_clients{domain=\"wide\",tenant=\"");
	want("metrics", ",pool=\"gpu0-gpu1\"} 1\n");
	want("metrics", ",pool=\"gpu1\",state=\"sealed\"} ");
	want("metrics", "\nkvmm_pool_bytes{pool=\"gpu0\",part=\"sealed\"} ");
	want("metrics", "\nkvmm_pool_bytes{pool=\"gpu1\",part=\"free_extents\"} ");
	want("metrics", "\nkvmm_memory_gpu_total_bytes 786432\n");
}
END_TEST

/* The cost of a smaller pool has the domains in it alone. */
START_TEST(test_shrink)
{
	const char *text = fx_cat("pool/gpu1/shrink/256K");

	ck_assert_msg(strstr(text, " wide\n") && strstr(text, " high\n"), "%s", text);
	ck_assert_ptr_null(strstr(text, " low\n"));
	text = fx_cat("pool/gpu0/shrink/512K");
	ck_assert_msg(strstr(text, " wide\n") && strstr(text, " low\n"), "%s", text);
	ck_assert_ptr_null(strstr(text, " high\n"));
}
END_TEST

/* Each limit and each figure has a line for each pool. */
START_TEST(test_memory)
{
	ck_assert_str_eq(fx_cat("domain/wide/memory.max"), "gpu0 max\ngpu1 max\n");
	ck_assert_str_eq(fx_cat("domain/wide/memory.current"), "gpu0 13824\ngpu1 13824\n");
	ck_assert_str_eq(fx_cat("domain/wide/memory.capacity"), "gpu0 524288\ngpu1 262144\n");
	ck_assert_str_eq(fx_cat("domain/low/memory.current"), "gpu0 0\n");
	ck_assert_str_eq(fx_cat("domain/high/memory.capacity"), "gpu1 262144\n");
}
END_TEST

START_TEST(test_maps)
{
	char path[64];

	snprintf(path, sizeof(path), "client/%u/seq/%u/maps", client, KVMM_SEQ_INDEX(seq));
	want(path, " [gpu0-gpu1]\n");
}
END_TEST

/* Attach to "wide" for @shard from 1 on, as a rank of client @leader - 1 unless 0. */
static u32 attach_shard(u32 shard, u32 leader)
{
	struct kvmm_attach_req req;
	u32 id = CORE_NONE;

	fx_attach_req(&req, "wide");
	req.nr_shards = 2;
	req.shard = shard;
	req.leader = leader;
	ck_assert_int_eq(fx_attach_as(&fx, TENANT, &req, &id), 0);
	return id;
}

/* Of each client its leader and its shards, also of a rank that has detached. */
START_TEST(test_clients)
{
	u32 lead, rank;

	fx_teardown();
	fx_setup_pools(8, 4, 0, 0);
	attach("wide", 0, 2);
	lead = attach_shard(1, 0);
	rank = attach_shard(2, lead + 1);
	ck_assert_uint_eq(rank, 2);
	want("clients", "       no      0   0-1 kvrt\n");
	want("clients", "       no      1     0 my\\040engine\n");
	want("clients", "       no      1     1 -\n");
	want("client/2/status", "\nLeader:\t1\nShard:\t1\n");
	ck_assert_int_eq(fx_execute(&fx, rank, (struct kvmm_sqe){ .op = KVMM_OP_DETACH },
				    NULL, 0, NULL), 0);
	want("client/2/status", "\nLeader:\t-\nShard:\t1\n");
	want("clients", "       no      -     1 -\n");
}
END_TEST

/* A sequence waits for the shard that no client maps. */
START_TEST(test_explain)
{
	char path[64];
	u32 lead = attach_shard(1, 0);

	seq = fx_open(&fx, lead, 20, 4);
	fx_match(&fx, lead, seq, 20, 500);
	snprintf(path, sizeof(path), "client/%u/seq/%u/explain", lead,
		 KVMM_SEQ_INDEX(seq));
	want(path, "\nWaits:\tmaps\nWhy:\tits client or a rank of it: ");
	want(path, "\nShards:\t2\nShardsMapped:\t1\nNeedsBlocks:\t");
}
END_TEST

/* The memory of a tenant counts in all pools: 3 blocks in two pools, and 2 in one. */
START_TEST(test_tenant)
{
	struct core_tenant_view v;
	u32 i = 0;

	while (core_get_tenant(fx.core, i, &v) || v.key != TENANT)
		i++;
	ck_assert_uint_eq(v.current_bytes, (2 * 3 + 2) * BLOCK);
	ck_assert_uint_ge(v.backed_bytes, v.current_bytes);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("proc-shards");
	TCase *tc = tcase_create("two");
	SRunner *sr;
	int failed;

	tcase_set_tags(tc, "unit proc");
	tcase_add_checked_fixture(tc, setup, fx_teardown);
	tcase_add_test(tc, test_status);
	tcase_add_test(tc, test_tables);
	tcase_add_test(tc, test_metrics);
	tcase_add_test(tc, test_shrink);
	tcase_add_test(tc, test_memory);
	tcase_add_test(tc, test_maps);
	tcase_add_test(tc, test_clients);
	tcase_add_test(tc, test_explain);
	tcase_add_test(tc, test_tenant);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
