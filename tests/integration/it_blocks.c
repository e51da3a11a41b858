// SPDX-License-Identifier: Apache-2.0
/*
 * it_blocks.c - a daemon whose clients have blocks of 784 and 1600 tokens
 *
 * budget: 30 s
 *
 * A client writes its own words into all tokens of some sequences.  Prompts that
 * begin alike find the full blocks, with KVMM_OPEN_WHOLE_BLOCKS no part of one,
 * also after kvmm was killed and adopted.  Sequences that the host pool does not
 * hold are paged out to an area, and come back with all their words.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <libkvmm.h>

#include "tests/integration/adopt_scene.h"

#define NR_SEQS		3u
#define TOKEN_BYTES	1024u	/* in two layers, of K and V */
#define LAYERS		2u
#define PIECE		(TOKEN_BYTES / LAYERS / 2)	/* K or V of a layer */
#define NS_TOKEN	100000ull	/* so computing again costs more than a transfer */
#define MORE		17u	/* tokens after two full blocks */

/* A host pool that holds the three blocks of one sequence. */
static const struct {
	u32		tokens;
	const char	*host;
} sizes[] = { { 784, "3M" }, { 1600, "6M" } };

static struct kvmm *kv;
static u32 bt;
static u64 step;

/* ---- the client ---- */

static int attach(u32 tokens, struct kvmm **to, char *text)
{
	static u8 identity[KVMM_IDENTITY_LEN] = "it_blocks";
	char path[RIG_PATH + 32];
	const struct kvmm_params p = {
		.socket = path, .domain = "large", .identity = identity,
		.block_tokens = tokens, .max_bytes = KVMM_LIMIT_MAX,
		.group[0] = { .layers = LAYERS, .kv_heads = 1, .k_bytes = PIECE,
			   .v_bytes = PIECE },
		.attach_timeout_ms = 20000,
	};

	snprintf(path, sizeof(path), "%s/attach.sock", adopt_rig.dir);
	return kvmm_attach(&p, to, text);
}

static void await_state(u64 seq, u32 state)
{
	const u64 end = now_ms() + ADOPT_WAIT_MS * time_scale();
	struct kvmm_seq_status st;

	for (;;) {
		ck_assert_int_eq(kvmm_seq_status(kv, seq, &st), 0);
		if (st.state == state)
			return;
		ck_assert_msg(now_ms() < end, "a sequence is %u, not %u:\n%s",
			      st.state, state, adopt_log_end());
		ck_assert_int_ne(kvmm_wait(kv, 5000000), -ECONNRESET);
	}
}

/* Open a sequence of @len tokens and match it.  @hit gets the tokens that are there. */
static u64 ready(u32 len, u32 seed, u32 flags, u32 *hit)
{
	const struct kvmm_open_arg open = { .prompt_len = len, .flags = flags };
	struct kvmm_open_res opened;
	struct kvmm_seq_status st;
	u32 *ids = malloc(len * sizeof(*ids)), i;

	for (i = 0; i < len; i++)
		ids[i] = seed + i;
	ck_assert_int_eq(kvmm_seq_open(kv, &open, 1, &opened), 0);
	ck_assert_int_eq(opened.status, 0);
	ck_assert_int_eq(kvmm_seq_match(kv, opened.seq, ids, len), 0);
	free(ids);
	await_state(opened.seq, KVMM_SEQ_READY);
	ck_assert_int_eq(kvmm_seq_status(kv, opened.seq, &st), 0);
	*hit = st.valid_len;
	return opened.seq;
}

/* The words of K (@v is 0) or V of token @t in layer @l. */
static u64 *piece(const u32 *entry, u32 t, u32 l, u32 v)
{
	const struct kvmm_attach_rep *info = kvmm_info(kv);

	return (u64 *)((char *)kvmm_pool(kv) + (u64)entry[t / bt] * info->unit +
		       l * info->stride[0] + ((u64)v * bt + t % bt) * PIECE);
}

/* Write, or compare, the words of the tokens of a sequence before @len. */
static void words(u64 seq, u32 seed, u32 len, bool write)
{
	u32 entry[3], t, i, n;

	ck_assert_int_eq(kvmm_seq_table(kv, seq, 0, 0, DIV_ROUND_UP(len, bt), entry), 0);
	for (t = 0; t < len; t++) {
		for (i = 0; i < 2 * LAYERS; i++) {
			u64 *p = piece(entry, t, i / 2, i % 2);

			for (n = 0; n < PIECE / 8; n++) {
				const u64 word = ((u64)(seed + t) << 16 | i << 8 | n) *
						 0x9e3779b97f4a7c15ull;

				if (write)
					p[n] = word;
				else if (p[n] != word)
					ck_abort_msg("token %u, piece %u, word %u", t, i, n);
			}
		}
	}
}

/* Compute the tokens of a READY sequence from @from to @len in one step. */
static void compute(u64 seq, u32 seed, u32 from, u32 len)
{
	struct kvmm_begin_arg begin = { .seq = seq, .start = from, .max_tokens = len - from };
	struct kvmm_end_arg end = { .seq = seq, .valid_len = len, .nr_ids = len - from };
	struct kvmm_begin_res begun;
	struct kvmm_end_res ended;
	struct kvmm_seq_status st;
	u32 *ids = malloc(len * sizeof(*ids)), i;

	for (i = from; i < len; i++)
		ids[i - from] = seed + i;
	ck_assert_int_eq(kvmm_seq_status(kv, seq, &st), 0);
	begin.seq_epoch = st.seq_epoch;
	ck_assert_int_eq(kvmm_step_begin(kv, ++step, &begin, 1, &begun), 0);
	ck_assert_int_eq(begun.status, 0);
	words(seq, seed, len, true);
	ck_assert_int_eq(kvmm_step_end(kv, step, len * NS_TOKEN, len, &end, 1, ids,
				       &ended), 0);
	ck_assert_int_eq(ended.status, 0);
	free(ids);
}

static int advise(u64 seq, u32 advice)
{
	struct kvmm_advise_arg *a;
	struct kvmm_done done;
	void *args;
	int got, status;

	ck_assert_ptr_nonnull(kvmm_prep(kv, KVMM_OP_SEQ_ADVISE, 1, sizeof(*a), &args));
	a = args;
	*a = (struct kvmm_advise_arg){ .seq = seq, .advice = advice };
	ck_assert_int_eq(kvmm_submit(kv), 0);
	while (!(got = kvmm_reap(kv, &done)))
		ck_assert_int_ne(kvmm_wait(kv, 5000000), -ECONNRESET);
	ck_assert_int_eq(got, 1);
	status = done.status;
	if (!status)
		status = ((const struct kvmm_seq_res *)done.results)->status;
	kvmm_release(kv);
	return status;
}

/* ---- hits ---- */

static void expect_hit(u32 len, u32 flags, u32 want)
{
	u32 hit;
	u64 seq = ready(len, 7, flags, &hit);

	ck_assert_msg(hit == want, "%u of %u tokens with flags %u, not %u", hit, len,
		      flags, want);
	words(seq, 7, hit, false);
	ck_assert_int_eq(kvmm_seq_close(kv, &seq, 1), 0);
}

static void expect_hits(void)
{
	const u32 whole = KVMM_OPEN_WHOLE_BLOCKS;

	expect_hit(2 * bt + MORE, 0, 2 * bt);
	expect_hit(2 * bt + MORE, whole, 2 * bt);
	expect_hit(2 * bt, 0, 2 * bt - 1);
	expect_hit(2 * bt, whole, bt);
	expect_hit(bt + bt / 2, 0, bt + bt / 2 - 1);
	expect_hit(bt + bt / 2, whole, bt);
	expect_hit(bt, whole, 0);
}

/* ---- swapping ---- */

/* Page out more than the host pool holds, and have it back. */
static void swap_all(void)
{
	const u64 end = now_ms() + ADOPT_WAIT_MS * time_scale();
	u64 seq[NR_SEQS];
	u32 i, hit;

	for (i = 0; i < NR_SEQS; i++) {
		seq[i] = ready(2 * bt + MORE, 10000 * (i + 1), KVMM_OPEN_WHOLE_BLOCKS |
			       KVMM_OPEN_NO_INDEX, &hit);
		ck_assert_uint_eq(hit, 0);
		compute(seq[i], 10000 * (i + 1), 0, 2 * bt + MORE);
	}
	for (i = 0; i < NR_SEQS; i++) {
		while (advise(seq[i], KVMM_ADV_PAGEOUT)) {
			ck_assert_msg(now_ms() < end, "sequence %u stays", i);
			nap_ms(2);
		}
		await_state(seq[i], KVMM_SEQ_SWAPPED);
	}
	for (i = 0; i < NR_SEQS; i++) {
		ck_assert_int_eq(advise(seq[i], KVMM_ADV_WILLNEED), 0);
		await_state(seq[i], KVMM_SEQ_READY);
		words(seq[i], 10000 * (i + 1), 2 * bt + MORE, false);
	}
	ck_assert_int_gt(rig_value(&adopt_rig, "vmstat", "pswpout"), 0);
	ck_assert_int_gt(rig_value(&adopt_rig, "vmstat", "pswpin"), 0);
	ck_assert_int_eq(rig_value(&adopt_rig, "vmstat", "preempt_recompute"), 0);
	ck_assert_int_eq(kvmm_seq_close(kv, seq, NR_SEQS), 0);
}

START_TEST(test_large_blocks)
{
	char text[256];
	u32 hit;
	u64 seq;

	adopt_world("on", "60000", "--pool-size", "32M", "--extent-size", "1M",
		    "--host-size", sizes[_i].host, NULL);
	bt = sizes[_i].tokens;
	step = 0;
	ck_assert_msg(!attach(bt, &kv, text), "%s", text);
	ck_assert_uint_eq(kvmm_info(kv)->block_bytes, bt * TOKEN_BYTES);
	ck_assert_int_eq(rig_value(&adopt_rig, "domain/large/status", "BlockTokens"), bt);

	seq = ready(2 * bt + MORE, 7, KVMM_OPEN_WHOLE_BLOCKS, &hit);
	ck_assert_uint_eq(hit, 0);
	compute(seq, 7, 0, bt / 3);
	compute(seq, 7, bt / 3, 2 * bt + MORE);
	ck_assert_int_eq(kvmm_seq_close(kv, &seq, 1), 0);
	expect_hits();
	swap_all();
	expect_hits();
	rig_walk(&adopt_rig);
	adopt_kill();
	expect_hits();
	kvmm_detach(kv);
	adopt_world_stop();
}
END_TEST

/* Other numbers are refused, and the line says which are right. */
START_TEST(test_refused)
{
	static const u32 bad[] = { 0, 8, 17, 4104, 4112, 65536, 65552 };
	char text[256];
	u32 i;

	adopt_world("off", "60000", NULL);
	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		ck_assert_int_eq(attach(bad[i], &kv, text), -EINVAL);
		ck_assert_msg(strstr(text, "a multiple of 16, and at most 4096"),
			      "%u: %s", bad[i], text);
		ck_assert_ptr_null(strchr(text, '\n'));
	}
	adopt_world_stop();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("blocks");
	TCase *tc = tcase_create("blocks");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 300);
	tcase_add_loop_test(tc, test_large_blocks, 0, ARRAY_SIZE(sizes));
	tcase_add_test(tc, test_refused);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
