// SPDX-License-Identifier: Apache-2.0
/*
 * check_libkvmm_io.c - requests, completions and events of libkvmm
 *
 * The daemon is a thread with rings of 16 entries and areas of 4 KiB, so that
 * they wrap many times.  Later tests let it lie.  budget: 30 s
 */
#include "runtime/libkvmm/internal.h"
#include "tests/unit/libkvmm_fixture.h"

/* ------------------------------------------------------------------ */
/* Requests                                                            */

START_TEST(test_calls_in_a_row)
{
	u32 i;

	kvmm_detach(k);
	attach_spinning(spins[_i]);
	for (i = 0; i < 1000; i++)
		ck_assert_int_eq(kvmm_nop(k), 0);
	ck_assert_uint_eq(fake_ops(&f, KVMM_OP_NOP), 1000);
}
END_TEST

START_TEST(test_every_call)
{
	struct kvmm_open_arg open_arg[3] = {
		{ .prompt_len = 1 }, { .prompt_len = 2 }, { .prompt_len = 3 },
	};
	struct kvmm_open_res open_res[3], child[2];
	struct kvmm_begin_arg begin_arg[2];
	struct kvmm_begin_res begin_res[2];
	struct kvmm_end_arg end_arg[2];
	struct kvmm_end_res end_res[2];
	const u32 ids[5] = { 10, 11, 12, 13, 14 };
	u64 seqs[3], nr, sum;

	ck_assert_int_eq(kvmm_seq_open(k, open_arg, 3, open_res), 0);
	ck_assert_uint_eq(KVMM_SEQ_INDEX(open_res[2].seq), 2);
	ck_assert_int_eq(kvmm_seq_match(k, open_res[0].seq, ids, 5), 0);
	fake_ids(&f, &nr, &sum);
	ck_assert_uint_eq(nr, 5);
	ck_assert_int_eq(kvmm_seq_fork(k, open_res[0].seq, 2, child), 0);
	ck_assert_uint_eq(KVMM_SEQ_INDEX(child[1].seq), 4);

	begin_arg[0] = (struct kvmm_begin_arg) { .seq = 1, .start = 40 };
	begin_arg[1] = (struct kvmm_begin_arg) { .seq = 2, .start = 50 };
	ck_assert_int_eq(kvmm_step_begin(k, 1, begin_arg, 2, begin_res), 0);
	ck_assert_uint_eq(begin_res[0].valid_len, 40);
	ck_assert_uint_eq(begin_res[1].valid_len, 50);

	end_arg[0] = (struct kvmm_end_arg) { 1, 42, 2 };
	end_arg[1] = (struct kvmm_end_arg) { 2, 53, 3 };
	ck_assert_int_eq(kvmm_step_end(k, 1, 99, 5, end_arg, 2, ids, end_res),
			 0);
	ck_assert_uint_eq(end_res[1].valid_len, 53);

	seqs[0] = open_res[0].seq;
	seqs[1] = open_res[1].seq;
	seqs[2] = 5;		/* generation 0: not a handle of ours */
	ck_assert_int_eq(kvmm_seq_close(k, seqs, 2), 0);
	ck_assert_int_eq(kvmm_seq_close(k, seqs, 3), -ENOENT);
}
END_TEST

/* Entries and records arrive unchanged. */
START_TEST(test_sharing_calls)
{
	const struct kvmm_remap_arg pair[2] = {
		{ KVMM_SEQ(1, 1), KVMM_SEQ(7, 3) }, { 2, KVMM_SEQ(8, 3) },
	};
	const struct kvmm_len_arg len[2] = {
		{ KVMM_SEQ(1, 1), 33, 0 }, { 2, 44, 0 },
	};
	struct kvmm_seq_res res[2];
	u32 i;

	for (i = 0; i < 3; i++) {
		const u32 want = i ? 33 : 7;

		memset(res, 0xff, sizeof(res));
		ck_assert_int_eq(i == 0 ? kvmm_seq_remap(k, pair, 2, res) :
				 i == 1 ? kvmm_seq_truncate(k, len, 2, res) :
					  kvmm_seq_trim(k, len, 2, res), 0);
		ck_assert_int_eq(res[0].status, 0);
		ck_assert_uint_eq(res[0].valid_len, want);
		ck_assert_int_eq(res[1].status, -ENOENT);
		ck_assert_uint_eq(res[1].valid_len, i ? 44 : 8);
		ck_assert_uint_eq(f.ops[i == 0 ? KVMM_OP_SEQ_REMAP :
					i == 1 ? KVMM_OP_SEQ_TRUNCATE :
						 KVMM_OP_SEQ_TRIM], 1);
	}
}
END_TEST

START_TEST(test_match_in_pieces)
{
	const u32 nr = 100001;
	u64 sum = 0, seen, seen_sum;
	u32 *ids, i;

	ids = malloc(nr * sizeof(*ids));
	ck_assert_ptr_nonnull(ids);
	for (i = 0; i < nr; i++) {
		ids[i] = i * 2654435761u;
		sum = sum * 31 + ids[i];
	}
	ck_assert_int_eq(kvmm_seq_match(k, KVMM_SEQ(1, 1), ids, nr), 0);
	fake_ids(&f, &seen, &seen_sum);
	ck_assert_uint_eq(seen, nr);
	ck_assert(seen_sum == sum);
	ck_assert(fake_match_is_last(&f));
	ck_assert_int_eq(kvmm_seq_match(k, KVMM_SEQ(999, 1), ids, 10), -ENOENT);
	ck_assert_int_eq(kvmm_seq_match(k, KVMM_SEQ(1, 1), ids, 0), -EINVAL);
	free(ids);
}
END_TEST

/* Arguments of all sizes, so that gaps appear at the end of the area. */
START_TEST(test_arguments_wrap)
{
	struct kvmm_open_arg arg[64];
	struct kvmm_open_res res[64];
	u32 i, n, next = 0;

	memset(arg, 0, sizeof(arg));
	for (i = 0; i < 2000; i++) {
		n = 1 + i * 37 % 64;
		ck_assert_int_eq(kvmm_seq_open(k, arg, n, res), 0);
		next += n;
		ck_assert_uint_eq(KVMM_SEQ_INDEX(res[n - 1].seq),
				  (next - 1) % FAKE_SEQS);
	}
}
END_TEST

START_TEST(test_pipeline)
{
	struct kvmm_done done;
	struct kvmm_sqe *sqe;
	u64 sent = 0, got = 0;
	void *args;
	int ret;

	while (got < 5000) {
		while (sent - got < 12 && (sqe = kvmm_prep(k, KVMM_OP_SEQ_OPEN,
				3, 3 * sizeof(struct kvmm_open_arg), &args))) {
			memset(args, 0, 3 * sizeof(struct kvmm_open_arg));
			sqe->user_data = ~sent++;
		}
		ck_assert_int_eq(kvmm_submit(k), 0);
		ck_assert_int_eq(kvmm_wait(k, 1000000000), 0);
		while ((ret = kvmm_reap(k, &done)) > 0) {
			ck_assert(done.user_data == ~got++);
			ck_assert_int_eq(done.status, 0);
			ck_assert_uint_eq(done.nr, 3);
			ck_assert_uint_eq(KVMM_SEQ_INDEX(
				((const struct kvmm_open_res *)
				 done.results)[0].seq), (got - 1) * 3 % FAKE_SEQS);
		}
		ck_assert_int_eq(ret, 0);
		kvmm_release(k);
	}
}
END_TEST

START_TEST(test_full)
{
	struct kvmm_done done;
	void *args;
	u32 i;

	/* One entry more than the ring has. */
	for (i = 0; i < FAKE_RING; i++)
		ck_assert_ptr_nonnull(kvmm_prep(k, KVMM_OP_NOP, 0, 0, &args));
	ck_assert_ptr_null(kvmm_prep(k, KVMM_OP_NOP, 0, 0, &args));
	ck_assert_int_eq(kvmm_submit(k), 0);
	for (i = 0; i < FAKE_RING; i++) {
		while (!kvmm_reap(k, &done))
			ck_assert_int_eq(kvmm_wait(k, 1000000000), 0);
	}
	/* A reaped completion still has its room until the release. */
	ck_assert_ptr_null(kvmm_prep(k, KVMM_OP_NOP, 0, 0, &args));
	ck_assert_int_eq(kvmm_nop(k), -EBUSY);
	kvmm_release(k);
	ck_assert_int_eq(kvmm_nop(k), 0);

	/* The argument area: all of it, more than it, and none left. */
	ck_assert_ptr_null(kvmm_prep(k, KVMM_OP_NOP, 0, FAKE_ARG_BYTES + 1,
				     &args));
	ck_assert_ptr_null(kvmm_prep(k, KVMM_OP_NOP, 0, 0xffffffff, &args));
	ck_assert_ptr_nonnull(kvmm_prep(k, KVMM_OP_NOP, 0, 8, &args));
	ck_assert_ptr_null(kvmm_prep(k, KVMM_OP_NOP, 0, FAKE_ARG_BYTES, &args));
	ck_assert_int_eq(kvmm_submit(k), 0);
	while (!kvmm_reap(k, &done))
		ck_assert_int_eq(kvmm_wait(k, 1000000000), 0);
	kvmm_release(k);
	ck_assert_ptr_nonnull(kvmm_prep(k, KVMM_OP_NOP, 0, FAKE_ARG_BYTES,
					&args));
	ck_assert_ptr_null(kvmm_prep(k, KVMM_OP_NOP, 0, 1, &args));
	ck_assert_ptr_nonnull(kvmm_prep(k, KVMM_OP_NOP, 0, 0, &args));
	ck_assert_int_eq(kvmm_submit(k), 0);
}
END_TEST

START_TEST(test_too_large)
{
	static struct kvmm_open_arg arg[65];
	struct kvmm_open_res res[65];

	ck_assert_int_eq(kvmm_seq_open(k, arg, 65, res), -E2BIG);
	ck_assert_uint_eq(fake_ops(&f, KVMM_OP_SEQ_OPEN), 0);
}
END_TEST

/* A call between requests in flight does not consume their completions. */
START_TEST(test_call_amid_requests)
{
	struct kvmm_done done;
	struct kvmm_sqe *sqe;
	void *args;
	u32 i, round;

	for (round = 0; round < 200; round++) {
		for (i = 0; i < 3; i++) {
			sqe = kvmm_prep(k, KVMM_OP_NOP, 0, 0, &args);
			ck_assert_ptr_nonnull(sqe);
			sqe->user_data = 100 + i;
		}
		ck_assert_int_eq(kvmm_nop(k), 0);
		ck_assert_int_eq(kvmm_nop(k), 0);
		for (i = 0; i < 3; i++) {
			ck_assert_int_eq(kvmm_reap(k, &done), 1);
			ck_assert_uint_eq(done.user_data, 100 + i);
			ck_assert_int_eq(kvmm_nop(k), 0);
		}
		ck_assert_int_eq(kvmm_reap(k, &done), 0);
		kvmm_release(k);
	}
}
END_TEST

/* Nor does a call release completions that the caller still reads. */
START_TEST(test_call_releases_nothing)
{
	struct kvmm_done done;
	void *args;

	ck_assert_ptr_nonnull(kvmm_prep(k, KVMM_OP_NOP, 0, 0, &args));
	ck_assert_int_eq(kvmm_nop(k), 0);
	ck_assert_int_eq(kvmm_reap(k, &done), 1);
	ck_assert_int_eq(kvmm_nop(k), 0);
	ck_assert_uint_eq(READ_ONCE(f.ctl->cq_head), 0);
	kvmm_release(k);
	ck_assert_uint_eq(READ_ONCE(f.ctl->cq_head), 3);
}
END_TEST

START_TEST(test_wait_times_out)
{
	struct kvmm_done done;
	void *args;

	kvmm_detach(k);
	attach_spinning(spins[_i]);
	ck_assert_int_eq(kvmm_wait(k, 0), -ETIMEDOUT);
	ck_assert_int_eq(kvmm_wait(k, 3000000), -ETIMEDOUT);
	ck_assert_ptr_nonnull(kvmm_prep(k, KVMM_OP_NOP, 0, 0, &args));
	ck_assert_int_eq(kvmm_submit(k), 0);
	ck_assert_int_eq(kvmm_wait(k, 1000000000), 0);
	ck_assert_int_eq(kvmm_wait(k, 0), 0);
	ck_assert_int_eq(kvmm_reap(k, &done), 1);
	ck_assert_int_eq(kvmm_wait(k, 0), -ETIMEDOUT);
}
END_TEST

/* A waiting client checks soon that the daemon lives, then less and less often. */
START_TEST(test_looks_while_an_answer_is_due)
{
	void *args;
	s64 before;

	kvmm_detach(k);
	attach_spinning(0);
	fake_hold(&f, 1);
	ck_assert_ptr_nonnull(kvmm_prep(k, KVMM_OP_NOP, 0, 0, &args));
	ck_assert_int_eq(kvmm_submit(k), 0);
	before = k->looked;
	ck_assert_int_eq(kvmm_wait(k, LK_LOOK_NS / 4), -ETIMEDOUT);
	ck_assert_int_ge(k->looked - before, LK_LOOK_NS / 10);
	fake_hold(&f, 0);
	ck_assert_int_eq(kvmm_wait(k, -1), 0);
}
END_TEST

/* ------------------------------------------------------------------ */
/* Lying daemons                                                       */

static void lie_number(struct kvmm_cqe *c) { c->number++; }
static void lie_offset(struct kvmm_cqe *c) { c->result_off = 1u << 30; }
static void lie_skew(struct kvmm_cqe *c) { c->result_off += 4; }
static void lie_count(struct kvmm_cqe *c) { c->nr = 0xffffffff; }
static void lie_more(struct kvmm_cqe *c) { c->nr = 2; }

static const struct {
	void		(*spoil)(struct kvmm_cqe *cqe);
	const char	*says;
} lies[] = {
	{ lie_number,	"when 1 was due" },
	{ lie_offset,	"outside their area" },
	{ lie_skew,	"outside their area" },
	{ lie_count,	"outside their area" },
	{ lie_more,	"2 results for 1 entries" },
};

START_TEST(test_lying_completion)
{
	struct kvmm_open_arg arg = { .prompt_len = 1 };
	struct kvmm_open_res res;

	fake_lie(&f, lies[_i].spoil, 0);
	ck_assert_int_eq(kvmm_seq_open(k, &arg, 1, &res), -ECONNRESET);
	check_ended(lies[_i].says);
}
END_TEST

START_TEST(test_short_results)
{
	struct kvmm_open_arg arg[2] = { { .prompt_len = 1 } };
	struct kvmm_open_res res[2];

	fake_lie(&f, NULL, 1);
	ck_assert_int_eq(kvmm_seq_open(k, arg, 2, res), -ECONNRESET);
	check_ended("1 results for 2 entries");
}
END_TEST

START_TEST(test_completion_of_nothing)
{
	struct kvmm_done done;

	store_release(&f.dctl->cq_tail, _i ? 1u : 0x90000000u);
	ck_assert_int_eq(kvmm_reap(k, &done), -ECONNRESET);
	check_ended("never made");
}
END_TEST

START_TEST(test_forged_progress)
{
	void *args;
	u32 i;

	fake_hold(&f, 1);
	for (i = 0; i < FAKE_RING; i++)
		ck_assert_ptr_nonnull(kvmm_prep(k, KVMM_OP_NOP, 0, 0, &args));
	ck_assert_int_eq(kvmm_submit(k), 0);
	/* The daemon claims more room than was used: the completion ring still limits. */
	store_release(&f.dctl->sq_head, 0x40000000u);
	ck_assert_ptr_null(kvmm_prep(k, KVMM_OP_NOP, 0, 0, &args));
	store_release(&f.dctl->sq_head, 0);
	fake_hold(&f, 0);
}
END_TEST

/* ------------------------------------------------------------------ */
/* Events                                                              */

START_TEST(test_events)
{
	struct kvmm_event ev;
	u32 i;

	ck_assert_int_eq(kvmm_next_event(k, &ev), 0);
	fake_event(&f, KVMM_EV_READY, 5);
	fake_event(&f, KVMM_EV_PRESSURE, 6);
	ck_assert_int_eq(kvmm_wait(k, -1), 0);
	ck_assert_int_eq(kvmm_next_event(k, &ev), 1);
	ck_assert_uint_eq(ev.type, KVMM_EV_READY);
	ck_assert_uint_eq(ev.index, 5);
	/* One event is left, so the wait returns at once. */
	ck_assert_int_eq(kvmm_wait(k, 0), 0);
	ck_assert_int_eq(kvmm_next_event(k, &ev), 1);
	ck_assert_int_eq(kvmm_next_event(k, &ev), 0);
	ck_assert_int_eq(kvmm_wait(k, 0), -ETIMEDOUT);

	for (i = 0; i < 3 * FAKE_EVENTS; i++)
		fake_event(&f, KVMM_EV_READY, i);
	ck_assert_int_eq(kvmm_wait(k, -1), 0);
	ck_assert_int_eq(kvmm_next_event(k, &ev), -EOVERFLOW);
	for (i = 2 * FAKE_EVENTS + 1; i < 3 * FAKE_EVENTS; i++) {
		ck_assert_int_eq(kvmm_next_event(k, &ev), 1);
		ck_assert_uint_eq(ev.index, i);
	}
	ck_assert_int_eq(kvmm_next_event(k, &ev), 0);
}
END_TEST

/* A client that reads no events is woken once for each, and does not spin. */
START_TEST(test_events_ignored)
{
	fake_event(&f, KVMM_EV_READY, 1);
	ck_assert_int_eq(kvmm_wait(k, -1), 0);
	ck_assert_int_eq(kvmm_wait(k, 1000000), -ETIMEDOUT);
	fake_event(&f, KVMM_EV_READY, 2);
	ck_assert_int_eq(kvmm_wait(k, -1), 0);
	ck_assert_int_eq(kvmm_wait(k, 0), -ETIMEDOUT);
}
END_TEST

static void *late_event(void *arg)
{
	usleep(30000);
	fake_event(&f, KVMM_EV_READY, 1);
	return NULL;
}

START_TEST(test_event_wakes)
{
	struct kvmm_event ev;
	pthread_t thread;

	kvmm_detach(k);
	attach_spinning(spins[_i]);
	ck_assert_int_eq(pthread_create(&thread, NULL, late_event, NULL), 0);
	ck_assert_int_eq(kvmm_wait(k, 90000000), 0);
	ck_assert_int_eq(kvmm_next_event(k, &ev), 1);
	pthread_join(thread, NULL);
}
END_TEST

static void add_requests(TCase *tc)
{
	tcase_add_loop_test(tc, test_calls_in_a_row, 0, ARRAY_SIZE(spins));
	tcase_add_test(tc, test_every_call);
	tcase_add_test(tc, test_sharing_calls);
	tcase_add_test(tc, test_match_in_pieces);
	tcase_add_test(tc, test_arguments_wrap);
	tcase_add_test(tc, test_pipeline);
	tcase_add_test(tc, test_full);
	tcase_add_test(tc, test_too_large);
	tcase_add_test(tc, test_call_amid_requests);
	tcase_add_test(tc, test_call_releases_nothing);
	tcase_add_loop_test(tc, test_wait_times_out, 0, ARRAY_SIZE(spins));
	tcase_add_test(tc, test_looks_while_an_answer_is_due);
	tcase_add_loop_test(tc, test_lying_completion, 0, ARRAY_SIZE(lies));
	tcase_add_test(tc, test_short_results);
	tcase_add_loop_test(tc, test_completion_of_nothing, 0, 2);
	tcase_add_test(tc, test_forged_progress);
	tcase_add_test(tc, test_events);
	tcase_add_test(tc, test_events_ignored);
	tcase_add_loop_test(tc, test_event_wakes, 0, ARRAY_SIZE(spins));
}

int main(void)
{
	Suite *s = suite_create("libkvmm-io");
	TCase *tc = new_case("requests");

	add_requests(tc);
	suite_add_tcase(s, tc);
	return run_suite(s);
}
