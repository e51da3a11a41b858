// SPDX-License-Identifier: Apache-2.0
/*
 * it_adopt_io.c - kvmm dies while a slow disk still writes and reads
 *
 * budget: 60 s, full 200 s
 *
 * A client writes its own words into every block of some sequences, more than
 * the host pool holds, and has them paged out.  The rest goes to an area on a
 * disk so slow that requests queue.  kvmm is killed while it writes the blocks,
 * and again while it reads them back: the next one issues all requests anew.
 * An unfinished write still has its source, and an unfinished read only delays
 * its sequence.  No sequence may have to be recomputed, and each must come back
 * with all its words.  In the end all slots must be free.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <libkvmm.h>

#include "tests/integration/adopt_scene.h"
#include "tests/integration/throttle.h"

#define NR_SEQS		6u
#define LEN		40u	/* tokens, in three blocks of 16 */
#define TOKEN_BYTES	4096u
#define HALF		(TOKEN_BYTES / 2)	/* K, and V */
#define SLOW_MIB	1
#define TRIES		5u

static struct throttle slow = { .how = "", .loop = -1 };
static struct kvmm *kv;
static u64 seqs[NR_SEQS];
static char area[RIG_PATH + 16];

/* ---- the client ---- */

static void attach(void)
{
	static u8 identity[KVMM_IDENTITY_LEN] = "it_adopt_io";
	char path[RIG_PATH + 32], text[256];
	const struct kvmm_params p = {
		.socket = path, .domain = "io", .identity = identity,
		.block_tokens = 16, .max_bytes = KVMM_LIMIT_MAX, .spin = 0,
		.group[0] = { .layers = 2, .kv_heads = 2, .k_bytes = 512,
			   .v_bytes = 512 },
		.attach_timeout_ms = 20000,
	};

	snprintf(path, sizeof(path), "%s/attach.sock", adopt_rig.dir);
	ck_assert_msg(!kvmm_attach(&p, &kv, text), "%s", text);
}

static u32 state_of(u32 i)
{
	struct kvmm_seq_status st;

	ck_assert_int_eq(kvmm_seq_status(kv, seqs[i], &st), 0);
	return st.state;
}

static void wait_a_bit(void)
{
	ck_assert_int_ne(kvmm_wait(kv, 5000000), -ECONNRESET);
}

/* Did kvmm die inside an event?  Then its sequences are to be matched again. */
static bool salvaged(void)
{
	return adopt_logged(": salvaged,");
}

/* No sequence may ever have to be recomputed, unless kvmm died inside an event. */
static void await_state(u32 i, u32 state)
{
	const u64 end = now_ms() + ADOPT_WAIT_MS * time_scale();

	while (state_of(i) != state && !salvaged()) {
		ck_assert_msg(state_of(i) != KVMM_SEQ_RECOMPUTE &&
			      state_of(i) != KVMM_SEQ_FAILED,
			      "sequence %u is lost:\n%s", i, adopt_log_end());
		ck_assert_msg(now_ms() < end, "sequence %u is %u, not %u:\n%s",
			      i, state_of(i), state, adopt_log_end());
		wait_a_bit();
	}
}

/* Write, or compare, every word of a sequence. */
static void words(u32 i, bool write)
{
	const u32 per_block = 16 * TOKEN_BYTES / 8;
	u32 entry[DIV_ROUND_UP(LEN, 16)], b, n;

	ck_assert_int_eq(kvmm_seq_table(kv, seqs[i], 0, 0, ARRAY_SIZE(entry),
					entry), 0);
	for (b = 0; b < ARRAY_SIZE(entry); b++) {
		u64 *p = (u64 *)((char *)kvmm_pool(kv) +
				 (u64)entry[b] * kvmm_info(kv)->unit);

		for (n = 0; n < per_block; n++) {
			const u64 word = ((u64)i << 40 | (u64)b << 32 | n) *
					 0x9e3779b97f4a7c15ull;

			/* Words behind the last token have no defined content. */
			if (b * 16 + n * 8 % (16 * HALF) / HALF >= LEN)
				continue;
			if (write)
				p[n] = word;
			ck_assert_msg(p[n] == word,
				      "sequence %u, block %u, word %u: %llx, not %llx",
				      i, b, n, (unsigned long long)p[n],
				      (unsigned long long)word);
		}
	}
}

static void seq_make(u32 i)
{
	struct kvmm_open_arg open = {
		.prompt_len = LEN, .max_tokens = 1, .salt = i + 1,
		.flags = KVMM_OPEN_NO_INDEX,
	};
	struct kvmm_begin_arg begin = { .max_tokens = LEN };
	struct kvmm_end_arg end = { .valid_len = LEN, .nr_ids = LEN };
	struct kvmm_open_res opened;
	struct kvmm_begin_res begun;
	struct kvmm_end_res ended;
	struct kvmm_seq_status st;
	u32 ids[LEN], n;

	for (n = 0; n < LEN; n++)
		ids[n] = i * LEN + n;
	ck_assert_int_eq(kvmm_seq_open(kv, &open, 1, &opened), 0);
	ck_assert_int_eq(opened.status, 0);
	seqs[i] = opened.seq;
	ck_assert_int_eq(kvmm_seq_match(kv, seqs[i], ids, LEN), 0);
	await_state(i, KVMM_SEQ_READY);
	ck_assert_int_eq(kvmm_seq_status(kv, seqs[i], &st), 0);
	begin.seq = seqs[i];
	begin.seq_epoch = st.seq_epoch;
	end.seq = seqs[i];
	ck_assert_int_eq(kvmm_step_begin(kv, i + 1, &begin, 1, &begun), 0);
	ck_assert_int_eq(begun.status, 0);
	words(i, true);
	ck_assert_int_eq(kvmm_step_end(kv, i + 1, 1000, LEN, &end, 1, ids,
				       &ended), 0);
	ck_assert_int_eq(ended.status, 0);
}

static int advise(u32 i, u32 advice)
{
	struct kvmm_advise_arg *a;
	struct kvmm_done done;
	void *args;
	int got, status;

	ck_assert_ptr_nonnull(kvmm_prep(kv, KVMM_OP_SEQ_ADVISE, 1, sizeof(*a),
					&args));
	a = args;
	*a = (struct kvmm_advise_arg){ .seq = seqs[i], .advice = advice };
	ck_assert_int_eq(kvmm_submit(kv), 0);
	while (!(got = kvmm_reap(kv, &done)))
		wait_a_bit();
	ck_assert_int_eq(got, 1);
	status = done.status;
	if (!status)
		status = ((const struct kvmm_seq_res *)done.results)->status;
	kvmm_release(kv);
	return status;
}

/* ---- the disk ---- */

static void area_on(void)
{
	struct job j;

	snprintf(area, sizeof(area), "%s/area", adopt_rig.dir);
	if (!slow.device[0])
		return;
	j = job_start(&adopt_rig, "kvctl", "swapoff", area, NULL);
	ck_assert_int_eq(job_wait(&j, 30), 0);
	snprintf(area, sizeof(area), "%s", slow.device);
	j = job_start(&adopt_rig, "kvctl", "swapon", area, "--size", "32M",
		      "--force", NULL);
	ck_assert_msg(!job_wait(&j, 30), "%s", slurp(j.err));
}

static void area_off(void)
{
	struct job j = job_start(&adopt_rig, "kvctl", "swapoff", area, NULL);

	ck_assert_msg(!job_wait(&j, 60), "%s", slurp(j.err));
}

/* Kill kvmm while requests are under way.  Return: their number. */
static u32 kill_in_flight(void)
{
	const u64 end = now_ms() + ADOPT_WAIT_MS * time_scale();
	s64 nr;

	while ((nr = rig_value(&adopt_rig, "swapstat", "nr_open")) < 2) {
		ck_assert_msg(now_ms() < end, "nothing is under way");
		wait_a_bit();
	}
	adopt_kill();
	return (u32)nr;
}

/* ---- all of it ---- */

/* Page out all sequences.  Return: requests that were under way at the death. */
static u32 all_out(void)
{
	const u64 end = now_ms() + ADOPT_WAIT_MS * time_scale();
	u32 i, nr = 0;

	for (i = 0; i < NR_SEQS && !salvaged(); i++) {
		while (state_of(i) != KVMM_SEQ_SWAPPED &&
		       advise(i, KVMM_ADV_PAGEOUT)) {
			ck_assert_msg(now_ms() < end, "sequence %u stays", i);
			wait_a_bit();
		}
		/* The host pool is full: further blocks have to be written. */
		if (i == NR_SEQS / 2)
			nr = kill_in_flight();
	}
	for (i = 0; i < NR_SEQS; i++)
		await_state(i, KVMM_SEQ_SWAPPED);
	return nr;
}

static u32 all_back(void)
{
	u32 i, nr;

	for (i = 0; i < NR_SEQS; i++)
		ck_assert_int_eq(advise(i, KVMM_ADV_WILLNEED), 0);
	nr = kill_in_flight();
	for (i = 0; i < NR_SEQS && !salvaged(); i++) {
		await_state(i, KVMM_SEQ_READY);
		if (!salvaged())
			words(i, false);
	}
	return nr;
}

static void expect_nothing_lost(void)
{
	static const char * const none[] = {
		"swap_lost", "swap_read_error", "swap_write_error",
		"preempt_recompute",
	};
	u32 i;

	for (i = 0; i < ARRAY_SIZE(none); i++)
		ck_assert_msg(!rig_value(&adopt_rig, "vmstat", none[i]),
			      "%s is not 0", none[i]);
	ck_assert_int_gt(rig_value(&adopt_rig, "vmstat", "pswpout"), 0);
	ck_assert_int_gt(rig_value(&adopt_rig, "vmstat", "pswpin"), 0);
	rig_walk(&adopt_rig);
}

/* Return: whether neither death was inside an event. */
static bool one_round(void)
{
	u32 i, out, in;

	adopt_world("on", "60000", "--host-size", "512K", NULL);
	area_on();
	attach();
	for (i = 0; i < NR_SEQS; i++)
		seq_make(i);
	out = all_out();
	in = salvaged() ? 0 : all_back();
	if (salvaged()) {
		printf("  a death inside an event: once more\n");
		kvmm_detach(kv);
		adopt_world_stop();
		return false;
	}
	expect_nothing_lost();
	printf("  kvmm killed with %u requests of writing under way, and with %u of reading, on a disk of %u MiB/s (%s): every word is there\n",
	       out, in, SLOW_MIB, slow.how);
	ck_assert_uint_eq(adopt_logged(": whole,"), 2);
	ck_assert_uint_eq(kvmm_resumed(kv, NULL), 2);
	ck_assert_int_eq(kvmm_seq_close(kv, seqs, NR_SEQS), 0);
	kvmm_detach(kv);
	area_off();
	ck_assert_int_eq(rig_value(&adopt_rig, "meminfo", "SwapUsed"), 0);
	adopt_world_stop();
	return true;
}

START_TEST(test_in_flight)
{
	const u32 rounds = by_level(1, 5, 20);
	const char *tmp = getenv("TMPDIR");
	u32 n = 0, tries = 0;

	if (!throttle_enter(&slow, tmp ? tmp : "/tmp", SLOW_MIB, 40u << 20)) {
		printf("note: no disk can be made slow here: not tried\n");
		return;
	}
	while (n < rounds) {
		ck_assert_uint_lt(tries++, rounds + TRIES);
		n += one_round();
	}
	throttle_leave(&slow);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("adopt-io");
	TCase *tc = tcase_create("flight");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 600);
	tcase_add_test(tc, test_in_flight);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	throttle_sweep();
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
