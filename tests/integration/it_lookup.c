// SPDX-License-Identifier: Apache-2.0
/*
 * it_lookup.c - lookups of a real daemon while its pool is overcommitted
 *
 * Sequences hold the pool, and others wait for twice as much.  Another client of
 * the domain looks up prompts: it gets its answers at once, and the others go on
 * waiting.  Then lookups whose lengths lie are refused, and hold nothing.
 * budget: 30 s
 */
#include <stdio.h>
#include <stdlib.h>

#include <kvmm/clock.h>
#include <libkvmm.h>

#include "runtime/libkvmm/internal.h"
#include "tests/integration/harness.h"

#define TOKENS		16u		/* of a block */
#define PROMPT		2000u
#define NR_HELD		8u		/* prompts that fill the pool of 1,024 blocks */
#define NR_WAIT		16u		/* three times the pool in all */
#define NR_LOOKUPS	2000u
#define LONG		12000u
#define FOUND		(PROMPT / TOKENS * TOKENS)

static struct rig rig;
static u64 step_number;

static void setup_with(const char *host)
{
	rig_start(&rig, "--pool-size", "1M", "--extent-size", "64K",
		  "--min-token-bytes", "64", "--host-size", host,
		  "--starve-ms", "3600000", NULL);
}

static void setup(void)
{
	setup_with("0");
}

static void setup_host(void)
{
	setup_with("2M");
}

static void teardown(void)
{
	rig_walk(&rig);
	rig_stop(&rig);
}

static struct kvmm *attach(void)
{
	static const u8 identity[KVMM_IDENTITY_LEN] = "it_lookup";
	char path[RIG_PATH + 32], text[256];
	const struct kvmm_params p = {
		.socket = path, .domain = "it", .identity = identity,
		.block_tokens = TOKENS,
		.group[0] = { .layers = 1, .kv_heads = 1, .k_bytes = 32, .v_bytes = 32 },
		.max_bytes = KVMM_LIMIT_MAX, .attach_timeout_ms = 20000, .spin = 200,
	};
	struct kvmm *k;

	snprintf(path, sizeof(path), "%s/attach.sock", rig.dir);
	ck_assert_msg(!kvmm_attach(&p, &k, text), "%s", text);
	return k;
}

/* ---- sequences ---- */

static const u32 *prompt(u32 number)
{
	static u32 ids[LONG];
	u32 i;

	for (i = 0; i < LONG; i++)
		ids[i] = number * 100000 + i;
	return ids;
}

static u32 state_of(struct kvmm *k, u64 seq, struct kvmm_seq_status *st)
{
	ck_assert_int_eq(kvmm_seq_status(k, seq, st), 0);
	return st->state;
}

static u64 begin(struct kvmm *k, u32 number, u32 len)
{
	const struct kvmm_open_arg arg = { .prompt_len = len };
	struct kvmm_open_res res;

	ck_assert_int_eq(kvmm_seq_open(k, &arg, 1, &res), 0);
	ck_assert_int_eq(res.status, 0);
	ck_assert_int_eq(kvmm_seq_match(k, res.seq, prompt(number), len), 0);
	return res.seq;
}

/* Compute a prompt.  Return: its sequence. */
static u64 hold(struct kvmm *k, u32 number, u32 len)
{
	u64 seq = begin(k, number, len);
	struct kvmm_begin_arg b = { .seq = seq, .max_tokens = len };
	struct kvmm_end_arg e = { .seq = seq, .valid_len = len, .nr_ids = len };
	struct kvmm_seq_status st;
	struct kvmm_begin_res bres;
	struct kvmm_end_res eres;

	while (state_of(k, seq, &st) != KVMM_SEQ_READY)
		ck_assert_int_ne(kvmm_wait(k, 1000000), -ECONNRESET);
	ck_assert_uint_eq(st.valid_len, 0);
	b.seq_epoch = st.seq_epoch;
	ck_assert_int_eq(kvmm_step_begin(k, ++step_number, &b, 1, &bres), 0);
	ck_assert_int_eq(bres.status, 0);
	ck_assert_int_eq(kvmm_step_end(k, step_number, 1000, len, &e, 1,
				       prompt(number), &eres), 0);
	ck_assert_int_eq(eres.status, 0);
	return seq;
}

static struct kvmm_found look(struct kvmm *k, u32 number, u32 len)
{
	struct kvmm_found found;

	ck_assert_int_eq(kvmm_lookup(k, 0, prompt(number), len, &found), 0);
	return found;
}

/* The next completion. */
static struct kvmm_done reap(struct kvmm *k)
{
	struct kvmm_done done;
	int ret;

	while (!(ret = kvmm_reap(k, &done)))
		ck_assert_int_eq(kvmm_wait(k, -1), 0);
	ck_assert_int_eq(ret, 1);
	return done;
}

/* ---- answers ---- */

START_TEST(test_overcommitted)
{
	struct kvmm *k = attach(), *looker = attach();
	u64 waiting[NR_WAIT], began;
	struct kvmm_seq_status st;
	s64 admitted;
	u32 i, n;

	for (i = 0; i < NR_HELD; i++)
		(void)hold(k, i, PROMPT);
	for (i = 0; i < NR_WAIT; i++)
		waiting[i] = begin(k, NR_HELD + i, PROMPT);
	rig_await(&rig, "vmstat", "admit_stall", 1, 10);
	admitted = rig_value(&rig, "vmstat", "admit");
	began = kv_now_ns();
	for (i = 0; i < NR_LOOKUPS; i++) {
		n = i % (NR_HELD + NR_WAIT);
		ck_assert_uint_eq(look(looker, n, PROMPT).ready, n < NR_HELD ? FOUND : 0);
	}
	/* Each of them took far less than a wait for memory would. */
	ck_assert_uint_lt((kv_now_ns() - began) / NR_LOOKUPS,
			  1000000ull * time_scale());
	for (i = 0; i < NR_WAIT; i++)
		ck_assert_uint_eq(state_of(k, waiting[i], &st), KVMM_SEQ_WAITING);
	ck_assert_int_eq(rig_value(&rig, "vmstat", "admit"), admitted);
	ck_assert_int_eq(rig_value(&rig, "vmstat", "lookup"), NR_LOOKUPS);
	ck_assert_int_eq(rig_value(&rig, "vmstat", "lookup_tokens"),
			 NR_LOOKUPS * PROMPT);
	kvmm_detach(looker);
	kvmm_detach(k);
}
END_TEST

/* A prompt in many pieces, and one that ends inside a block. */
START_TEST(test_pieces)
{
	struct kvmm *k = attach();

	(void)hold(k, 0, LONG - 5);
	ck_assert_uint_eq(look(k, 0, LONG).found, (LONG - 5) / TOKENS * TOKENS);
	k->info.arg_bytes = 4096;	/* less than the real size, for more pieces */
	ck_assert_uint_eq(look(k, 0, LONG).found, (LONG - 5) / TOKENS * TOKENS);
	ck_assert_uint_eq(look(k, 0, 31).found, TOKENS);
	ck_assert_uint_eq(look(k, 1, LONG).found, 0);
	kvmm_detach(k);
}
END_TEST

static void page_out(struct kvmm *k, u64 seq)
{
	struct kvmm_advise_arg *a;
	struct kvmm_done done;
	void *args;

	ck_assert_ptr_nonnull(kvmm_prep(k, KVMM_OP_SEQ_ADVISE, 1, sizeof(*a), &args));
	a = args;
	*a = (struct kvmm_advise_arg){ .seq = seq, .advice = KVMM_ADV_PAGEOUT };
	ck_assert_int_eq(kvmm_submit(k), 0);
	done = reap(k);
	ck_assert_int_eq(done.status, 0);
	ck_assert_int_eq(((const struct kvmm_seq_res *)done.results)->status, 0);
	kvmm_release(k);
}

/* A prompt is copied to the host pool, and others take its blocks on the device. */
START_TEST(test_host_pool)
{
	struct kvmm *k = attach();
	struct kvmm_found found;
	u32 i;

	page_out(k, hold(k, 0, PROMPT));
	rig_await(&rig, "vmstat", "pgdemote", FOUND / TOKENS, 10);
	found = look(k, 0, PROMPT);
	ck_assert_uint_eq(found.tokens[KVMM_TIER_DEVICE], FOUND);
	for (i = 1; i <= NR_HELD; i++)
		(void)hold(k, i, PROMPT);
	found = look(k, 0, PROMPT);
	ck_assert_uint_eq(found.found, FOUND);
	ck_assert_uint_eq(found.ready, FOUND);
	ck_assert_uint_gt(found.tokens[KVMM_TIER_HOST], 0);
	ck_assert_uint_eq(found.tokens[KVMM_TIER_HOST] +
			  found.tokens[KVMM_TIER_DEVICE], FOUND);
	kvmm_detach(k);
}
END_TEST

/* ---- the ring ---- */

/* Prepare a lookup of @nr ids of prompt 0; @says: the ids that it claims to have. */
static struct kvmm_lookup_arg *prepare(struct kvmm *k, u32 nr, u32 says)
{
	struct kvmm_lookup_arg *a;
	void *args;

	ck_assert_ptr_nonnull(kvmm_prep(k, KVMM_OP_SEQ_LOOKUP, 1,
					(u32)sizeof(*a) + 4 * nr, &args));
	a = args;
	*a = (struct kvmm_lookup_arg){ .nr_ids = says, .flags = KVMM_LOOKUP_LAST };
	memcpy(a + 1, prompt(0), 4 * nr);
	return a;
}

/* Lookups in flight with other requests, answered in order. */
START_TEST(test_in_flight)
{
	struct kvmm *k = attach();
	u32 i;

	(void)hold(k, 0, PROMPT);
	for (i = 0; i < 32; i++) {
		(void)prepare(k, i * TOKENS, i * TOKENS);
		ck_assert_ptr_nonnull(kvmm_prep(k, KVMM_OP_NOP, 0, 0, NULL));
	}
	ck_assert_int_eq(kvmm_submit(k), 0);
	for (i = 0; i < 32; i++) {
		const struct kvmm_done done = reap(k);
		const struct kvmm_lookup_res *res = done.results;

		ck_assert_int_eq(done.status, 0);
		ck_assert_uint_eq(done.nr, 1);
		ck_assert_int_eq(res->status, 0);
		ck_assert_uint_eq(res->found, i * TOKENS);
		ck_assert_int_eq(reap(k).status, 0);
	}
	kvmm_release(k);
	kvmm_detach(k);
}
END_TEST

/* Lengths that lie: the request is refused, or its entry. */
START_TEST(test_lies)
{
	static const struct {
		u32	nr, says, start, flags;
		int	request, entry;
	} lies[] = {
		{ 16, 32, 0, KVMM_LOOKUP_LAST, -EINVAL, 0 },
		{ 16, 0xffffffff, 0, KVMM_LOOKUP_LAST, -EINVAL, 0 },
		{ 16, 0x40000000, 0, KVMM_LOOKUP_LAST, -EINVAL, 0 },
		{ 16, 15, 0, KVMM_LOOKUP_LAST, -EINVAL, 0 },
		{ 16, 16, 0xfffffff0, KVMM_LOOKUP_LAST, 0, -EINVAL },
		{ 16, 16, 8, KVMM_LOOKUP_LAST, 0, -EINVAL },
		{ 16, 16, 0, 0x80000000, 0, -EINVAL },
		{ 17, 17, 0, 0, 0, -EINVAL },
		{ 16, 16, 32, KVMM_LOOKUP_LAST, 0, 0 },	/* a cookie made up */
	};
	struct kvmm *k = attach();
	struct kvmm_lookup_arg *a;
	u32 i;

	(void)hold(k, 0, PROMPT);
	for (i = 0; i < 100 * ARRAY_SIZE(lies); i++) {
		const u32 n = i % ARRAY_SIZE(lies);
		struct kvmm_done done;

		a = prepare(k, lies[n].nr, lies[n].says);
		a->start = lies[n].start;
		a->cookie[1] = a->start ? i + 1 : 0;
		a->flags = lies[n].flags;
		ck_assert_int_eq(kvmm_submit(k), 0);
		done = reap(k);
		ck_assert_int_eq(done.status, lies[n].request);
		if (!done.status) {
			const struct kvmm_lookup_res *res = done.results;

			ck_assert_int_eq(res->status, lies[n].entry);
			ck_assert_uint_eq(res->found, 0);
		}
		kvmm_release(k);
	}
	ck_assert_int_eq(rig_value(&rig, "vmstat", "lookup"), 100);
	ck_assert_uint_eq(look(k, 0, PROMPT).found, FOUND);
	kvmm_detach(k);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("lookup-real");
	TCase *tc = tcase_create("lookup");
	SRunner *sr;
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 30);
	tcase_add_test(tc, test_overcommitted);
	tcase_add_test(tc, test_pieces);
	tcase_add_test(tc, test_in_flight);
	tcase_add_test(tc, test_lies);
	suite_add_tcase(s, tc);
	tc = tcase_create("host pool");
	tcase_add_checked_fixture(tc, setup_host, teardown);
	tcase_set_timeout(tc, 30);
	tcase_add_test(tc, test_host_pool);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
