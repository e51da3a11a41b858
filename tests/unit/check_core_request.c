// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_request.c - one test for each field that is refused
 *
 * Each case is a request with one fault.  A refused request leaves the pool
 * unchanged and is counted.
 */
#include "tests/unit/core_shell.h"

static u32 cl;
static u64 seq;			/* READY, with 20 tokens, in no step */

static void setup(void)
{
	sh_config(8);
	sh_start();
	cl = sh_attach(1, "a");
	sh_warm(cl);
	seq = sh_ready(cl, 20, 64, 0);
	sh_compute(cl, seq, 0, 20, 0);
}

static void teardown(void)
{
	sh_stop();
}

/* ---- the entry itself ---- */

#define ARG(type)	sizeof(struct kvmm_##type##_arg)

static const struct {
	const char	*what;
	struct kvmm_sqe	sqe;
	u32		len;
	int		error;
} bad_sqe[] = {
	{ "verb", { .op = KVMM_NR_OPS }, 0, -EINVAL },
	{ "verb, far off", { .op = 0xffff }, 0, -EINVAL },
	{ "flags", { .flags = 1 }, 0, -EINVAL },
	{ "resv", { .resv = 1 }, 0, -EINVAL },
	{ "step of a NOP", { .step = 1 }, 0, -EINVAL },
	{ "param[0] of a NOP", { .param[0] = 1 }, 0, -EINVAL },
	{ "param[1] of a NOP", { .param[1] = 1 }, 0, -EINVAL },
	{ "nr of a NOP", { .nr = 1 }, 0, -EINVAL },
	{ "arguments of a NOP", { .nr = 0 }, 8, -EINVAL },
	{ "no entries", { .op = KVMM_OP_SEQ_OPEN }, 0, -EINVAL },
	{ "too many entries", { .op = KVMM_OP_SEQ_OPEN,
	  .nr = CORE_MAX_BATCH + 1 }, 0, -E2BIG },
	{ "OPEN too short", { .op = KVMM_OP_SEQ_OPEN, .nr = 1 },
	  ARG(open) - 8, -EINVAL },
	{ "OPEN too long", { .op = KVMM_OP_SEQ_OPEN, .nr = 1 },
	  ARG(open) + 8, -EINVAL },
	{ "step of an OPEN", { .op = KVMM_OP_SEQ_OPEN, .nr = 1, .step = 1 },
	  ARG(open), -EINVAL },
	{ "MATCH too short", { .op = KVMM_OP_SEQ_MATCH, .nr = 2 },
	  ARG(match), -EINVAL },
	{ "LOOKUP too short", { .op = KVMM_OP_SEQ_LOOKUP, .nr = 2 },
	  ARG(lookup), -EINVAL },
	{ "step of a LOOKUP", { .op = KVMM_OP_SEQ_LOOKUP, .nr = 1, .step = 1 },
	  ARG(lookup), -EINVAL },
	{ "BEGIN without a step", { .op = KVMM_OP_STEP_BEGIN, .nr = 1 },
	  ARG(begin), -EINVAL },
	{ "BEGIN without entries", { .op = KVMM_OP_STEP_BEGIN, .step = 9 },
	  0, -EINVAL },
	{ "param of a BEGIN", { .op = KVMM_OP_STEP_BEGIN, .nr = 1, .step = 9,
	  .param[0] = 1 }, ARG(begin), -EINVAL },
	{ "END without a step", { .op = KVMM_OP_STEP_END }, 0, -EINVAL },
	{ "FORK too long", { .op = KVMM_OP_SEQ_FORK, .nr = 1 },
	  ARG(fork) + 4, -EINVAL },
	{ "CLOSE too short", { .op = KVMM_OP_SEQ_CLOSE, .nr = 1 }, 4,
	  -EINVAL },
	{ "SETPRIO too short", { .op = KVMM_OP_SEQ_SETPRIO, .nr = 1 }, 8,
	  -EINVAL },
	{ "ACK too short", { .op = KVMM_OP_EXTENT_ACK, .nr = 1 }, 8, -EINVAL },
	{ "DETACH with entries", { .op = KVMM_OP_DETACH, .nr = 1 }, 0,
	  -EINVAL },
	{ "REMAP too short", { .op = KVMM_OP_SEQ_REMAP, .nr = 1 },
	  ARG(remap) - 8, -EINVAL },
	{ "REMAP without entries", { .op = KVMM_OP_SEQ_REMAP }, 0, -EINVAL },
	{ "step of a REMAP", { .op = KVMM_OP_SEQ_REMAP, .nr = 1, .step = 1 },
	  ARG(remap), -EINVAL },
	{ "TRUNCATE too long", { .op = KVMM_OP_SEQ_TRUNCATE, .nr = 1 },
	  ARG(len) + 8, -EINVAL },
	{ "param of a TRUNCATE", { .op = KVMM_OP_SEQ_TRUNCATE, .nr = 1,
	  .param[0] = 1 }, ARG(len), -EINVAL },
	{ "TRIM too short", { .op = KVMM_OP_SEQ_TRIM, .nr = 2 }, ARG(len),
	  -EINVAL },
};

START_TEST(test_request_refused)
{
	struct kvmm_sqe sqe = bad_sqe[_i].sqe;
	struct core_pool_view before = sh_pool(), after;
	u64 refused = sh_count(CORE_EV_req_refused);
	int err;

	memset(sh.args, 0, sizeof(sh.args));
	sqe.number = ++sh.cl[cl].number;
	err = sh_send(cl, &sqe, bad_sqe[_i].len);
	ck_assert_msg(err == bad_sqe[_i].error, "%s: %d", bad_sqe[_i].what,
		      err);
	after = sh_pool();
	ck_assert_mem_eq(&before, &after, sizeof(before));
	ck_assert_uint_eq(sh_count(CORE_EV_req_refused), refused + 1);
	sh_check();
}
END_TEST

/* Numbers rise strictly, by any amount; a refused request uses up its number. */
START_TEST(test_numbers_rise)
{
	struct kvmm_sqe sqe = { .op = KVMM_OP_NOP };

	sqe.number = sh.cl[cl].number + 1000;
	ck_assert_int_eq(sh_send(cl, &sqe, 0), 0);
	ck_assert_uint_eq(sh.cl[cl].ctl.committed, sqe.number);
	ck_assert_int_eq(sh_send(cl, &sqe, 0), -EPROTO);
	sqe.number--;
	ck_assert_int_eq(sh_send(cl, &sqe, 0), -EPROTO);
	sqe.number += 2;
	sqe.flags = 1;
	ck_assert_int_eq(sh_send(cl, &sqe, 0), -EINVAL);
	sqe.flags = 0;
	ck_assert_int_eq(sh_send(cl, &sqe, 0), -EPROTO);
}
END_TEST

/* ---- entries ---- */

static const struct {
	const char	*what;
	struct kvmm_open_arg arg;
	int		error;
} bad_open[] = {
	{ "no prompt", { .max_tokens = 4 }, -EINVAL },
	{ "flags", { .prompt_len = 4, .flags = KVMM_OPEN_WHOLE_PROMPT << 1 }, -EINVAL },
	{ "no such lease", { .prompt_len = 4, .lease = KVMM_SEQ(0, 1) }, -ENOENT },
	{ "one token too many", { .prompt_len = 500, .max_tokens = 13 },
	  -E2BIG },
	{ "far too many", { .prompt_len = 0xffffffff,
			    .max_tokens = 0xffffffff }, -E2BIG },
};

START_TEST(test_open_refused)
{
	u64 opened = sh_count(CORE_EV_seq_open), none;
	const struct kvmm_open_res *res = (const void *)sh.results;
	int err = sh_open_as(cl, &bad_open[_i].arg, &none);

	ck_assert_msg(err == bad_open[_i].error, "%s: %d", bad_open[_i].what,
		      err);
	ck_assert_uint_eq(none, 0);
	ck_assert_uint_eq(res->limiting_pool,
			  err == -E2BIG ? 0 : KVMM_NO_POOL);
	ck_assert_uint_eq(sh_count(CORE_EV_seq_open), opened);
}
END_TEST

START_TEST(test_open_of_all_that_fits)
{
	ck_assert_uint_ne(sh_open(cl, 500, 12), 0);
}
END_TEST

static const struct {
	const char	*what;
	u64		seq;
	u32		start;
	u32		nr;
	u32		flags;
	u32		resv;
	int		error;
} bad_match[] = {
	{ "generation", 1ull << 32, 0, 20, KVMM_MATCH_LAST, 0, -ENOENT },
	{ "index", SH_SEQS, 0, 20, KVMM_MATCH_LAST, 0, -ENOENT },
	{ "flags", 0, 0, 20, KVMM_MATCH_LAST | 2, 0, -EINVAL },
	{ "resv", 0, 0, 20, KVMM_MATCH_LAST, 1, -EINVAL },
	{ "a gap", 0, 5, 15, KVMM_MATCH_LAST, 0, -EINVAL },
	{ "too few", 0, 0, 19, KVMM_MATCH_LAST, 0, -EINVAL },
	{ "more than the prompt", 0, 0, 21, KVMM_MATCH_LAST, 0, -EINVAL },
	{ "more than all", 0, 0, 85, 0, 0, -EINVAL },
};

START_TEST(test_match_refused)
{
	u64 waiting = sh_open(cl, 20, 64);
	struct kvmm_match_arg *a = (struct kvmm_match_arg *)sh.args;
	u32 nr = bad_match[_i].nr;
	int err;

	memset(sh.args, 0, sizeof(*a) + 4 * nr);
	*a = (struct kvmm_match_arg){ .seq = waiting + bad_match[_i].seq,
				      .start = bad_match[_i].start,
				      .nr_ids = nr,
				      .flags = bad_match[_i].flags,
				      .resv = bad_match[_i].resv };
	err = sh_submit(cl, KVMM_OP_SEQ_MATCH, 1, 0,
			(u32)sizeof(*a) + 4 * nr);
	ck_assert_int_eq(err, 0);
	ck_assert_msg(sh_seq_res(0) == bad_match[_i].error, "%s: %d",
		      bad_match[_i].what, sh_seq_res(0));
	/* The refused request left no trace. */
	ck_assert_int_eq(sh_match(cl, waiting, 20, 50), 0);
	ck_assert_uint_eq(sh_state(cl, waiting), KVMM_SEQ_READY);
}
END_TEST

START_TEST(test_match_of_one_that_does_not_wait)
{
	u64 other = sh_ready(cl, 20, 64, 0);

	ck_assert_int_eq(sh_match(cl, other, 20, 0), -ESTALE);
	ck_assert_uint_eq(sh_state(cl, other), KVMM_SEQ_READY);
}
END_TEST

static const struct {
	const char	*what;
	u64		seq;
	u32		nr;
	u32		resv;
	int		request;
	int		error;
} bad_fork[] = {
	{ "generation", 1ull << 32, 1, 0, 0, -ENOENT },
	{ "resv", 0, 1, 1, 0, -EINVAL },
	{ "no children", 0, 0, 0, -EINVAL, 0 },
	{ "more than a batch", 0, CORE_MAX_BATCH + 1, 0, -E2BIG, 0 },
	{ "more than there is room for", 0, SH_SEQS, 0, 0, -ENOSPC },
};

START_TEST(test_fork_refused)
{
	struct kvmm_fork_arg *a = (struct kvmm_fork_arg *)sh.args;
	u64 closed = sh_count(CORE_EV_seq_close);
	struct kvmm_seq_status before = *sh_status(cl, seq + 1);
	int err;

	*a = (struct kvmm_fork_arg){ .seq = seq + bad_fork[_i].seq,
				     .nr_children = bad_fork[_i].nr,
				     .resv = bad_fork[_i].resv };
	err = sh_submit(cl, KVMM_OP_SEQ_FORK, 1, 0, sizeof(*a));
	ck_assert_msg(err == bad_fork[_i].request, "%s: %d",
		      bad_fork[_i].what, err);
	if (!err)
		ck_assert_msg(sh_seq_res(0) == bad_fork[_i].error, "%s: %d",
			      bad_fork[_i].what, sh_seq_res(0));
	ck_assert_uint_eq(sh_count(CORE_EV_seq_fork), 0);
	ck_assert_uint_eq(sh_count(CORE_EV_seq_close), closed);
	/* No record of a child was touched. */
	ck_assert_mem_eq(&before, sh_status(cl, seq + 1), sizeof(before));
	sh_check();
}
END_TEST

START_TEST(test_setprio_refused)
{
	struct kvmm_prio_arg *a = (struct kvmm_prio_arg *)sh.args;

	*a = (struct kvmm_prio_arg){ .seq = seq + (1ull << 32) };
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_SEQ_SETPRIO, 1, 0,
				   sizeof(*a)), 0);
	ck_assert_int_eq(sh_seq_res(0), -ENOENT);
	*a = (struct kvmm_prio_arg){ .seq = seq, .resv = 1 };
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_SEQ_SETPRIO, 1, 0,
				   sizeof(*a)), 0);
	ck_assert_int_eq(sh_seq_res(0), -EINVAL);
}
END_TEST

START_TEST(test_close_of_nothing)
{
	ck_assert_int_eq(sh_close(cl, 0), -ENOENT);
	ck_assert_int_eq(sh_close(cl, seq + (1ull << 32)), -ENOENT);
	ck_assert_int_eq(sh_close(cl, seq + SH_SEQS), -ENOENT);
	ck_assert_int_eq(sh_close(cl, KVMM_SEQ(0xffffffff, 1)), -ENOENT);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
}
END_TEST

/* Entries are judged one by one: the valid ones take effect. */
START_TEST(test_batch_of_right_and_wrong)
{
	struct kvmm_seq_arg *a = (struct kvmm_seq_arg *)sh.args;
	u64 other = sh_open(cl, 4, 4);

	a[0].seq = seq;
	a[1].seq = seq;
	a[2].seq = other;
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_SEQ_CLOSE, 3, 0, 3 * sizeof(*a)),
			 0);
	ck_assert_int_eq(sh_seq_res(0), 0);
	ck_assert_int_eq(sh_seq_res(1), -ENOENT);
	ck_assert_int_eq(sh_seq_res(2), 0);
}
END_TEST

/* ---- results ---- */

#define RES(type)	sizeof(struct kvmm_##type##_res)

static const struct {
	struct kvmm_sqe	sqe;
	u32		entry;
	u32		result;
} verb_sizes[] = {
	{ { .op = KVMM_OP_NOP }, 0, 0 },
	{ { .op = KVMM_OP_SEQ_OPEN, .nr = 3 }, ARG(open), RES(open) },
	{ { .op = KVMM_OP_SEQ_MATCH, .nr = 3 }, ARG(match), RES(seq) },
	{ { .op = KVMM_OP_STEP_BEGIN, .nr = 3, .step = 9 }, ARG(begin), RES(begin) },
	{ { .op = KVMM_OP_STEP_END, .nr = 3, .step = 9,
	    .param = { 7, 8 } }, ARG(end), RES(end) },
	{ { .op = KVMM_OP_STEP_END, .step = 9 }, 0, RES(end) },
	{ { .op = KVMM_OP_SEQ_REMAP, .nr = 3 }, ARG(remap), RES(seq) },
	{ { .op = KVMM_OP_SEQ_CLOSE, .nr = 3 }, ARG(seq), RES(seq) },
	{ { .op = KVMM_OP_SEQ_TRUNCATE, .nr = 3 }, ARG(len), RES(seq) },
	{ { .op = KVMM_OP_SEQ_TRIM, .nr = 3 }, ARG(len), RES(seq) },
	{ { .op = KVMM_OP_SEQ_ADVISE, .nr = 3 }, ARG(advise), RES(seq) },
	{ { .op = KVMM_OP_SEQ_SETPRIO, .nr = 3 }, ARG(prio), RES(seq) },
	{ { .op = KVMM_OP_EXTENT_ACK, .nr = 3 }, ARG(ack), RES(seq) },
	{ { .op = KVMM_OP_DETACH }, 0, 0 },
	{ { .op = KVMM_OP_SEQ_LOOKUP, .nr = 3 }, ARG(lookup), RES(lookup) },
};

static int check_req(struct kvmm_sqe sqe, u32 len, struct core_req *req)
{
	sqe.number = ++sh.cl[cl].number;
	return core_req_check(sh.core, cl, &sqe, sh.args, len, req);
}

/* Each verb has entries and results of one size, and a result for each entry. */
START_TEST(test_sizes_of_verb)
{
	struct kvmm_sqe sqe = verb_sizes[_i].sqe;
	u32 len = sqe.nr * verb_sizes[_i].entry;
	struct core_req req;

	memset(sh.args, 0, sizeof(sh.args));
	ck_assert_int_eq(check_req(sqe, len, &req), 0);
	ck_assert_uint_eq(req.nr_results, sqe.nr);
	ck_assert_uint_eq(req.result_size, verb_sizes[_i].result);
	ck_assert_ptr_eq(req.args, sh.args);
	ck_assert_int_eq(check_req(sqe, len + 4, &req), -EINVAL);
	if (len)
		ck_assert_int_eq(check_req(sqe, len - 4, &req), -EINVAL);
}
END_TEST

/* Ids follow the entries: as many as all entries say together. */
START_TEST(test_ids_are_counted)
{
	struct kvmm_sqe sqe = { .op = _i ? KVMM_OP_STEP_END : KVMM_OP_SEQ_MATCH,
				.nr = 2, .step = _i ? 9 : 0 };
	struct kvmm_match_arg *m = (struct kvmm_match_arg *)sh.args;
	struct kvmm_end_arg *e = (struct kvmm_end_arg *)sh.args;
	u32 len = 2 * (u32)(_i ? sizeof(*e) : sizeof(*m)), i;
	struct core_req req;

	memset(sh.args, 0, sizeof(sh.args));
	for (i = 0; i < 2; i++)
		*(_i ? &e[i].nr_ids : &m[i].nr_ids) = 3 + i;
	ck_assert_int_eq(check_req(sqe, len + 4 * 7, &req), 0);
	ck_assert_uint_eq(req.nr_results, 2);
	ck_assert_int_eq(check_req(sqe, len + 4 * 6, &req), -EINVAL);
	ck_assert_int_eq(check_req(sqe, len + 4 * 8, &req), -EINVAL);
	/* So many ids that their bytes exceed 32 bits. */
	*(_i ? &e[0].nr_ids : &m[0].nr_ids) = 1u << 30;
	ck_assert_int_eq(check_req(sqe, len + 4 * 4, &req), -EINVAL);
}
END_TEST

/* A fork has a result for each child, and a batch has a largest size. */
START_TEST(test_children_are_counted)
{
	struct kvmm_sqe sqe = { .op = KVMM_OP_SEQ_FORK, .nr = 2 };
	struct kvmm_fork_arg *a = (struct kvmm_fork_arg *)sh.args;
	struct core_req req;

	memset(sh.args, 0, sizeof(sh.args));
	a[0].nr_children = 1;
	a[1].nr_children = CORE_MAX_BATCH - 1;
	ck_assert_int_eq(check_req(sqe, 2 * sizeof(*a), &req), 0);
	ck_assert_uint_eq(req.nr_results, CORE_MAX_BATCH);
	ck_assert_uint_eq(req.result_size, sizeof(struct kvmm_open_res));
	a[0].nr_children = 2;
	ck_assert_int_eq(check_req(sqe, 2 * sizeof(*a), &req), -E2BIG);
	a[0].nr_children = 0;
	ck_assert_int_eq(check_req(sqe, 2 * sizeof(*a), &req), -EINVAL);
	sqe.op = KVMM_OP_SEQ_CLOSE;
	sqe.nr = CORE_MAX_BATCH;
	ck_assert_int_eq(check_req(sqe, sqe.nr * (u32)ARG(seq), &req), 0);
}
END_TEST

/* The records of a refused request are zero. */
START_TEST(test_results_of_refused_request)
{
	struct kvmm_end_arg *a = (struct kvmm_end_arg *)sh.args;
	const u8 zero[2 * sizeof(struct kvmm_end_res)] = { 0 };
	const u8 *res = (const u8 *)sh.results;

	memset(sh.args, 0, sizeof(sh.args));
	memset(sh.results, 0xff, sizeof(sh.results));
	a[0].seq = seq;
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_STEP_END, 2, 99, 2 * sizeof(*a)),
			 -EINVAL);
	ck_assert_mem_eq(res, zero, sizeof(zero));
	ck_assert_uint_eq(res[sizeof(zero)], 0xff);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_request");
	TCase *tc = tcase_create("refusals");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, test_request_refused, 0, ARRAY_SIZE(bad_sqe));
	tcase_add_test(tc, test_numbers_rise);
	tcase_add_loop_test(tc, test_open_refused, 0, ARRAY_SIZE(bad_open));
	tcase_add_test(tc, test_open_of_all_that_fits);
	tcase_add_loop_test(tc, test_match_refused, 0, ARRAY_SIZE(bad_match));
	tcase_add_test(tc, test_match_of_one_that_does_not_wait);
	tcase_add_loop_test(tc, test_fork_refused, 0, ARRAY_SIZE(bad_fork));
	tcase_add_test(tc, test_setprio_refused);
	tcase_add_test(tc, test_close_of_nothing);
	tcase_add_test(tc, test_batch_of_right_and_wrong);
	suite_add_tcase(s, tc);
	tc = tcase_create("results");
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, test_sizes_of_verb, 0, ARRAY_SIZE(verb_sizes));
	tcase_add_loop_test(tc, test_ids_are_counted, 0, 2);
	tcase_add_test(tc, test_children_are_counted);
	tcase_add_test(tc, test_results_of_refused_request);
	suite_add_tcase(s, tc);
	return sh_run(s);
}
