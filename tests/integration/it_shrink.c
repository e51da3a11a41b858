// SPDX-License-Identifier: Apache-2.0
/*
 * it_shrink.c - kvctl shrink_cost foretells the loss of a smaller pool
 *
 * A client fills the pool with cache, keeps two sequences open, and is idle.  kvctl
 * tells the cost of half of the pool; then the pool shrinks, and the daemon's counters
 * must rise by just that: without a lower tier, with a host pool that has room, and
 * with one that needs a swap area.  No block is evicted ahead of need: the background
 * reclaimer would evict blocks that have a copy, too.
 * budget: 40 s
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <libkvmm.h>

#include "tests/integration/harness.h"

#define BT		16u	/* tokens of a block */
#define BLOCK_KB	16
#define PROMPT		12u	/* blocks of a prompt */
#define NS_TOKEN	10000000ull	/* a copy costs less, however busy the disk */

static struct rig rig;
static struct kvmm *kv;
static u64 step;

/* ---- the client ---- */

static void attach(void)
{
	static const u8 identity[KVMM_IDENTITY_LEN] = "it_shrink";
	char path[RIG_PATH + 32], text[256];
	const struct kvmm_params p = {
		.socket = path, .domain = "cache", .identity = identity,
		.block_tokens = BT, .max_bytes = KVMM_LIMIT_MAX,
		.group[0] = { .layers = 1, .kv_heads = 1, .k_bytes = 512, .v_bytes = 512 },
		.attach_timeout_ms = 20000,
	};

	snprintf(path, sizeof(path), "%s/attach.sock", rig.dir);
	ck_assert_msg(!kvmm_attach(&p, &kv, text), "%s", text);
	step = 0;
}

/* A sequence with @blocks blocks, all computed; those before @same are of @seed 0. */
static u64 computed(u32 blocks, u32 same, u32 seed)
{
	const struct kvmm_open_arg open = { .prompt_len = blocks * BT };
	u32 ids[64 * BT], len = blocks * BT, i;
	struct kvmm_open_res opened;
	struct kvmm_begin_res began;
	struct kvmm_end_res ended;
	struct kvmm_seq_status st;

	for (i = 0; i < len; i++)
		ids[i] = i < same * BT ? i : seed * 10000 + i;
	ck_assert(!kvmm_seq_open(kv, &open, 1, &opened) && !opened.status);
	ck_assert(!kvmm_seq_match(kv, opened.seq, ids, len));
	for (;;) {
		ck_assert_int_ne(kvmm_wait(kv, 5000000), -ECONNRESET);
		ck_assert(!kvmm_seq_status(kv, opened.seq, &st));
		if (st.state == KVMM_SEQ_READY)
			break;
	}
	i = st.valid_len;
	ck_assert(!kvmm_step_begin(kv, ++step, &(struct kvmm_begin_arg){
		.seq = opened.seq, .seq_epoch = st.seq_epoch, .start = i,
		.max_tokens = len - i }, 1, &began) && !began.status);
	ck_assert(!kvmm_step_end(kv, step, (len - i) * NS_TOKEN, len - i,
		&(struct kvmm_end_arg){ .seq = opened.seq, .valid_len = len,
		.nr_ids = len - i }, 1, ids + i, &ended) && !ended.status);
	return opened.seq;
}

/* Fill the pool of 256 blocks: two sequences stay, the rest is cache. */
static void fill(void)
{
	u64 seq;
	u32 i;

	for (i = 0; i < 24; i++) {
		seq = computed(PROMPT, i % 3 * 4, i + 1);
		if (i != 9 && i != 23)
			ck_assert(!kvmm_seq_close(kv, &seq, 1));
	}
	for (i = 0; i < 20; i++)
		(void)kvmm_wait(kv, 5000000);
}

/* ---- kvctl ---- */

static char *kvctl(int code, const char *a, const char *b, const char *c)
{
	struct job j = job_start(&rig, "kvctl", a, b, c, NULL);
	int rc = job_wait(&j, 30);
	char *out = slurp(j.out), *err = slurp(j.err);

	ck_assert_msg(rc == code, "kvctl %s %s: %d: %s", a, b ? b : "", rc, err);
	free(err);
	unlink(j.out);
	unlink(j.err);
	return out;
}

/* The first row of `kvctl --json shrink_cost`, or that of a domain. */
static json_t *cost(const char *size, u32 *rows)
{
	char *out = kvctl(0, "--json", "shrink_cost", size);
	json_t *all = json_loads(out, 0, NULL);

	ck_assert_msg(json_is_array(all), "%s", out);
	free(out);
	*rows = (u32)json_array_size(all);
	return all;
}

static s64 num(const json_t *row, const char *key)
{
	const json_t *v = json_object_get(row, key);

	ck_assert_msg(json_is_integer(v), "no %s", key);
	return json_integer_value(v);
}

struct counters {
	s64	lost;
	s64	kept;
	s64	moved;
	s64	preempted;
};

static struct counters counters(void)
{
	return (struct counters){
		.lost = rig_value(&rig, "vmstat", "prefix_evict") +
			rig_value(&rig, "vmstat", "host_drop"),
		.kept = rig_value(&rig, "vmstat", "demote_free"),
		.moved = rig_value(&rig, "vmstat", "pgmigrate_success"),
		.preempted = rig_value(&rig, "vmstat", "resize_preempt"),
	};
}

/* Shrink the pool to half of it, while the client answers. */
static void shrink(void)
{
	const u64 end = now_ms() + 20000 * time_scale();

	free(kvctl(0, "set", "pool/gpu0/size", "2M"));
	while (rig_value(&rig, "meminfo", "GpuOffline") != 2048) {
		ck_assert_msg(now_ms() < end, "the pool does not shrink");
		ck_assert_int_ne(kvmm_wait(kv, 5000000), -ECONNRESET);
	}
}

static void shrinks_as_foretold(void)
{
	struct counters a, b;
	json_t *all, *node;
	u32 rows;

	attach();
	fill();
	a = counters();
	all = cost("2M", &rows);
	ck_assert_uint_eq(rows, 2);
	node = json_array_get(all, 0);
	ck_assert(json_is_null(json_object_get(node, "domain")));
	ck_assert_str_eq(json_string_value(json_object_get(node, "answer")), "ok");
	ck_assert_int_eq(num(node, "bound"), 0);
	ck_assert_int_eq(num(json_array_get(all, 1), "lost_kb"), num(node, "lost_kb"));
	b = counters();
	ck_assert(!memcmp(&a, &b, sizeof(a)));
	shrink();
	b = counters();
	printf("lost %lld of %lld, kept %lld of %lld, moved %lld of %lld blocks\n",
	       (long long)(b.lost - a.lost), (long long)num(node, "lost_kb") / BLOCK_KB,
	       (long long)(b.kept - a.kept),
	       (long long)(num(node, "host_kb") + num(node, "areas_kb")) / BLOCK_KB,
	       (long long)(b.moved - a.moved), (long long)num(node, "moved_kb") / BLOCK_KB);
	ck_assert_int_eq((b.lost - a.lost) * BLOCK_KB, num(node, "lost_kb"));
	ck_assert_int_eq((b.lost - a.lost) * BT, num(node, "lost_tokens"));
	ck_assert_int_eq((b.kept - a.kept) * BLOCK_KB,
			 num(node, "host_kb") + num(node, "areas_kb"));
	ck_assert_int_ge((b.moved - a.moved) * BLOCK_KB, num(node, "moved_kb"));
	ck_assert_int_eq(b.preempted - a.preempted, 0);
	ck_assert_int_eq(num(node, "swapped") + num(node, "recomputed"), 0);
	json_decref(all);
}

static const struct {
	const char	*host;
	const char	*area;
} tiers[] = { { "0", NULL }, { "16M", NULL }, { "1M", "16M" } };

START_TEST(test_foretold)
{
	char path[RIG_PATH + 32], size[32];

	rig_start(&rig, "--pool-size", "4M", "--extent-size", "256K", "--host-size",
		  tiers[_i].host, "--area-max", "16M",
		  "--watermark-scale-factor", "0", NULL);
	snprintf(path, sizeof(path), "%s/area", rig.dir);
	if (tiers[_i].area) {
		snprintf(size, sizeof(size), "--size=%s", tiers[_i].area);
		free(kvctl(0, size, "swapon", path));
	}
	shrinks_as_foretold();
	rig_walk(&rig);
	kvmm_detach(kv);
	if (tiers[_i].area) {
		free(kvctl(0, "swapoff", path, NULL));
		unlink(path);
	}
	rig_stop(&rig);
}
END_TEST

/* Without a size: four of them; sizes that the pool cannot have are refused. */
START_TEST(test_sizes)
{
	u32 rows;
	char *out;

	rig_start(&rig, "--pool-size", "4M", "--extent-size", "256K", NULL);
	attach();
	fill();
	json_decref(cost(NULL, &rows));
	ck_assert_uint_eq(rows, 8);
	out = kvctl(0, "shrink_cost", NULL, NULL);
	ck_assert_ptr_nonnull(strstr(out, "(all)\n"));
	ck_assert_ptr_nonnull(strstr(out, "1.0M "));
	ck_assert_uint_ge(count_lines(out), 5);
	free(out);
	out = kvctl(0, "ls", "pool/gpu0/shrink", NULL);
	ck_assert_str_eq(out, "3670016\n3145728\n2097152\n1048576\n");
	free(out);
	free(kvctl(1, "shrink_cost", "8M", NULL));
	free(kvctl(1, "shrink_cost", "1K", NULL));
	free(kvctl(64, "shrink_cost", "much", NULL));
	free(kvctl(1, "cat", "pool/gpu0/shrink/much", NULL));
	kvmm_detach(kv);
	rig_stop(&rig);
}
END_TEST

/* Two sequences do not fit into one extent together; none fits alone. */
START_TEST(test_sequences)
{
	json_t *all, *node;
	u32 rows;

	rig_start(&rig, "--pool-size", "4M", "--extent-size", "256K", "--host-size", "0",
		  NULL);
	attach();
	fill();
	free(kvctl(0, "set", "domain/cache/memory.min", "3M"));
	all = cost("256K", &rows);
	node = json_array_get(all, 0);
	ck_assert_int_ge(num(node, "recomputed"), 1);
	ck_assert_int_eq(num(node, "recompute_tokens"),
			 num(node, "recomputed") * PROMPT * BT);
	ck_assert_int_eq(num(node, "too_large"), 0);
	ck_assert_int_eq(num(node, "bound"), 1);
	ck_assert_int_eq(num(node, "min_kb"), 3072);
	json_decref(all);
	kvmm_detach(kv);
	rig_stop(&rig);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("shrink");
	TCase *tc = tcase_create("shrink");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 300);
	tcase_add_loop_test(tc, test_foretold, 0, (int)ARRAY_SIZE(tiers));
	tcase_add_test(tc, test_sizes);
	tcase_add_test(tc, test_sequences);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
