// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_remap.c - REMAP, TRUNCATE and TRIM of sequences
 *
 * A beam is a family of a few sequences.  The test keeps the expected state
 * beside each sequence: its length and its table as the client reads it.
 */
#include "tests/unit/core_shell.h"

#define WIDTH	6

static u32 cl;
static u64 beam[WIDTH];

static struct core_seq_view view_of(u64 seq)
{
	struct core_seq_view v;

	ck_assert_int_eq(core_get_seq(sh.core, KVMM_SEQ_INDEX(seq), &v), 0);
	return v;
}

/* Member i has the prompt of 40 tokens and 3 * i tokens of its own. */
static void setup(void)
{
	u32 i;

	sh_config(32);
	sh_start();
	cl = sh_attach(1, "a");
	sh_warm(cl);
	beam[0] = sh_ready(cl, 40, 200, 0);
	sh_compute(cl, beam[0], 0, 40, 0);
	ck_assert_int_eq(sh_fork(cl, beam[0], WIDTH - 1, beam + 1), 0);
	for (i = 1; i < WIDTH; i++)
		sh_compute(cl, beam[i], 40, 40 + 3 * i, 1000 * i);
}

static void teardown(void)
{
	sh_stop();
}

/* ---- REMAP ---- */

static int remap(const u64 (*pairs)[2], u32 nr)
{
	int err;

	memcpy(sh.args, pairs, nr * sizeof(*pairs));
	err = sh_submit(cl, KVMM_OP_SEQ_REMAP, nr, 0, nr * sizeof(*pairs));
	sh_settle();
	return err;
}

/* A longer table, of blocks that another sequence has, commits to less growth. */
START_TEST(test_waits_for_the_commitment)
{
	const u64 pair[1][2] = { { beam[0], beam[1] } };
	struct core_domain_view v;
	u64 seq, left;

	/* Both share all their blocks, so that no block is freed later. */
	sh_compute(cl, beam[1], 43, 3 * SH_BT, 1000);
	ck_assert_int_eq(remap(pair, 1), 0);
	sh_compute(cl, beam[1], 3 * SH_BT, 8 * SH_BT, 1000);
	SH_CORE(ck_assert_int_eq(core_tune(sh.core, sh.now, CORE_TUNE_overcommit,
					   CORE_OVERCOMMIT_NEVER), 0));
	v = sh_domain(cl);
	left = v.commit_limit - v.committed_as;
	seq = sh_open(cl, SH_BT, (u32)(left + 1) * SH_BT);
	ck_assert_int_eq(sh_match(cl, seq, SH_BT, 90000), 0);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_WAITING);
	ck_assert_int_eq(remap(pair, 1), 0);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
}
END_TEST

/* A sequence as its client reads it. */
struct picture {
	u32	len;
	u32	nr;
	u32	entry[64];
};

static struct picture picture_of(u64 seq)
{
	struct picture p = { .len = sh_status(cl, seq)->valid_len,
			     .nr = view_of(seq).nr_blocks };
	u32 i;

	for (i = 0; i < p.nr; i++)
		p.entry[i] = sh_table(cl, seq, i);
	return p;
}

static void expect_picture(u64 seq, const struct picture *want)
{
	struct picture have = picture_of(seq);

	ck_assert_uint_eq(have.len, want->len);
	ck_assert_uint_eq(have.nr, want->nr);
	ck_assert_mem_eq(have.entry, want->entry, 4 * want->nr);
}

/* Member i becomes map[i]. */
static const u32 maps[][WIDTH] = {
	{ 0, 1, 2, 3, 4, 5 },	/* nothing */
	{ 1, 0, 2, 3, 4, 5 },	/* two change places */
	{ 1, 2, 3, 4, 5, 0 },	/* a circle of all */
	{ 5, 0, 1, 2, 3, 4 },	/* the other way round */
	{ 3, 3, 3, 3, 3, 3 },	/* one survives */
	{ 1, 2, 0, 0, 1, 2 },	/* a circle that others become, too */
	{ 1, 2, 3, 4, 5, 5 },	/* a chain */
	{ 1, 0, 3, 2, 5, 4 },	/* three pairs */
	{ 0, 0, 1, 1, 2, 2 },
	{ 5, 5, 4, 4, 3, 3 },
};

START_TEST(test_remap)
{
	const u32 *map = maps[_i];
	struct picture before[WIDTH];
	u64 pairs[WIDTH][2], count = sh_count(CORE_EV_seq_remap);
	u32 i, changed = 0;

	for (i = 0; i < WIDTH; i++) {
		before[i] = picture_of(beam[i]);
		pairs[i][0] = beam[i];
		pairs[i][1] = beam[map[i]];
		changed += map[i] != i;
	}
	ck_assert_int_eq(remap((const u64 (*)[2])pairs, WIDTH), 0);
	for (i = 0; i < WIDTH; i++) {
		const struct kvmm_seq_res *res = (const void *)sh.results;

		ck_assert_int_eq(res[i].status, 0);
		ck_assert_uint_eq(res[i].valid_len, before[map[i]].len);
		ck_assert_uint_eq(view_of(beam[i]).seq, beam[i]);
		expect_picture(beam[i], &before[map[i]]);
	}
	ck_assert_uint_eq(sh_count(CORE_EV_seq_remap), count + changed);
	/* Each member continues from there; members that share a tail copy it. */
	for (i = 0; i < WIDTH; i++)
		sh_compute(cl, beam[i], before[map[i]].len,
			   before[map[i]].len + 20, 7000 + 100 * i);
	for (i = 0; i < WIDTH; i++)
		ck_assert_int_eq(sh_close(cl, beam[i]), 0);
	ck_assert_uint_eq(sh_pool().open + sh_pool().sealed, 0);
}
END_TEST

/* The next grant tells the index from which the table is to be read again. */
START_TEST(test_remap_tells_from_where)
{
	const u64 pairs[][2] = { { beam[4], beam[5] } };
	struct kvmm_begin_arg a;
	struct kvmm_begin_res res;

	ck_assert_int_eq(remap(pairs, 1), 0);
	a = sh_entry(cl, beam[4], 55, 1);
	ck_assert_int_eq(sh_begin_all(cl, &a, 1, &res), 0);
	ck_assert_int_eq(res.status, 0);
	/* Blocks 0 and 1 belong to the prompt; block 2 differed and 3 is new. */
	ck_assert_uint_eq(res.table_lo, 2);
	ck_assert_int_eq(sh_end(cl, beam[4], 55, 56, 0), 0);
	a = sh_entry(cl, beam[4], 56, 1);
	ck_assert_int_eq(sh_begin_all(cl, &a, 1, &res), 0);
	ck_assert_uint_eq(res.table_lo, KVMM_NO_INDEX);
}
END_TEST

/* A circle leaves entries alone, but each member's table reads differently. */
START_TEST(test_rotation_tells_from_where)
{
	const u64 pairs[][2] = { { beam[3], beam[4] }, { beam[4], beam[5] },
				 { beam[5], beam[3] } };
	struct kvmm_begin_arg a[3];
	struct kvmm_begin_res res[3];
	u32 i;

	ck_assert_int_eq(remap(pairs, 3), 0);
	for (i = 0; i < 3; i++)
		a[i] = sh_entry(cl, beam[3 + i],
				sh_status(cl, beam[3 + i])->valid_len, 1);
	ck_assert_int_eq(sh_begin_all(cl, a, 3, res), 0);
	for (i = 0; i < 3; i++) {
		ck_assert_int_eq(res[i].status, 0);
		ck_assert_uint_eq(res[i].table_lo, 2);
	}
}
END_TEST

/* Two families in one request, one of them in a step: only that one is refused. */
START_TEST(test_remap_is_by_family)
{
	u64 other[2], pairs[4][2];
	struct picture was, will;
	u64 closed = sh_ready(cl, 4, 4, 77);

	other[0] = sh_ready(cl, 40, 40, 50000);
	sh_compute(cl, other[0], 0, 40, 50000);
	ck_assert_int_eq(sh_fork(cl, other[0], 1, other + 1), 0);
	sh_compute(cl, other[1], 40, 45, 60000);
	will = picture_of(other[1]);
	was = picture_of(beam[0]);

	/* The families are interleaved, and the wrong entry comes last. */
	memcpy(pairs[0], (u64[2]){ beam[0], beam[1] }, 16);
	memcpy(pairs[1], (u64[2]){ other[0], other[1] }, 16);
	memcpy(pairs[2], (u64[2]){ beam[2], beam[3] }, 16);
	memcpy(pairs[3], (u64[2]){ closed, closed }, 16);
	ck_assert_int_eq(sh_close(cl, closed), 0);
	ck_assert_int_eq(sh_begin(cl, beam[3], 49, 1), 0);
	ck_assert_int_eq(remap((const u64 (*)[2])pairs, 4), 0);
	ck_assert_int_eq(sh_seq_res(0), -EBUSY);
	ck_assert_int_eq(sh_seq_res(1), 0);
	ck_assert_int_eq(sh_seq_res(2), -EBUSY);
	ck_assert_int_eq(sh_seq_res(3), -ENOENT);
	expect_picture(beam[0], &was);
	expect_picture(other[0], &will);
	ck_assert_int_eq(sh_end(cl, beam[3], 49, 50, 0), 0);
	ck_assert_int_eq(remap((const u64 (*)[2])pairs, 3), 0);
	ck_assert_int_eq(sh_seq_res(0), 0);
}
END_TEST

/* Each case has one fault: the second entry is right and has no effect. */
START_TEST(test_remap_refused)
{
	u64 pairs[2][2] = { { beam[0], beam[1] }, { beam[2], beam[3] } };
	u64 stranger = sh_ready(cl, 20, 20, 90000), waiting;
	struct picture was = picture_of(beam[2]);
	int want = -ENOENT;

	switch (_i) {
	case 0:
		pairs[0][0] += 1ull << 32;
		break;
	case 1:
		pairs[0][1] = KVMM_SEQ(SH_SEQS, 1);
		break;
	case 2:
		pairs[0][1] = stranger;
		want = -EINVAL;
		break;
	case 3:
		pairs[0][0] = beam[2];
		want = -EINVAL;
		break;
	case 4:
		ck_assert_int_eq(sh_begin(cl, beam[0], 40, 1), 0);
		want = -EBUSY;
		break;
	case 5:
		ck_assert_int_eq(sh_begin(cl, beam[1], 43, 1), 0);
		want = -EBUSY;
		break;
	case 6:
		/* A family of one sequence that is not READY. */
		waiting = sh_open(cl, 20, 20);
		pairs[0][0] = waiting;
		pairs[0][1] = waiting;
		want = -ESTALE;
		break;
	}
	ck_assert_int_eq(remap((const u64 (*)[2])pairs, 2), 0);
	ck_assert_int_eq(sh_seq_res(0), want);
	if (_i != 6) {
		ck_assert_int_eq(sh_seq_res(1), want);
		expect_picture(beam[2], &was);
	}
}
END_TEST

/* A request gets all its table pages or none. */
START_TEST(test_remap_without_pages)
{
	u64 a, kid, last, pairs[1][2];

	sh_stop();
	sh_config(64);
	sh.cfg.nr_tables = 4;
	sh_start();
	cl = sh_attach(1, "a");
	sh_warm(cl);
	a = sh_ready(cl, 121 * SH_BT, 64, 0);
	sh_compute(cl, a, 0, 121 * SH_BT, 0);
	ck_assert_int_eq(sh_fork(cl, a, 1, &kid), 0);
	sh_compute(cl, kid, 121 * SH_BT, 123 * SH_BT, 9);
	pairs[0][0] = a;
	pairs[0][1] = kid;
	last = sh_ready(cl, 20, 20, 5000);
	ck_assert_int_eq(remap((const u64 (*)[2])pairs, 1), 0);
	ck_assert_int_eq(sh_seq_res(0), -ENOSPC);
	ck_assert_uint_eq(sh_status(cl, a)->valid_len, 121 * SH_BT);
	ck_assert_int_eq(sh_close(cl, last), 0);
	ck_assert_int_eq(remap((const u64 (*)[2])pairs, 1), 0);
	ck_assert_int_eq(sh_seq_res(0), 0);
	ck_assert_uint_eq(sh_status(cl, a)->valid_len, 123 * SH_BT);
}
END_TEST

/* A sequence keeps the reservation of its admission, as far as it lacks blocks. */
START_TEST(test_remap_in_prefill)
{
	u64 seq = sh_ready(cl, 10 * SH_BT, 64, 3000), kid, pairs[2][2];
	u64 promised;

	sh_compute(cl, seq, 0, 3 * SH_BT + 4, 3000);
	promised = sh_pool().committed;
	ck_assert_uint_eq(promised, 6 * SH_BLOCK);
	ck_assert_int_eq(sh_fork(cl, seq, 1, &kid), 0);
	sh_compute(cl, kid, 3 * SH_BT + 4, 6 * SH_BT, 4000);
	memcpy(pairs[0], (u64[2]){ seq, kid }, 16);
	memcpy(pairs[1], (u64[2]){ kid, seq }, 16);
	ck_assert_int_eq(remap((const u64 (*)[2])pairs, 2), 0);
	ck_assert_uint_eq(sh_pool().committed, 4 * SH_BLOCK);
	ck_assert_uint_eq(sh_status(cl, kid)->valid_len, 3 * SH_BT + 4);
	/* Its prompt can be completed, and its reservation falls to zero. */
	sh_compute(cl, seq, 6 * SH_BT, 10 * SH_BT, 3000);
	ck_assert_uint_eq(sh_pool().committed, 0);
}
END_TEST

/* ---- TRUNCATE, TRIM ---- */

static int len_verb(u16 op, u64 seq, u32 len, u32 resv)
{
	struct kvmm_len_arg *a = (struct kvmm_len_arg *)sh.args;
	int err;

	*a = (struct kvmm_len_arg){ .seq = seq, .len = len, .resv = resv };
	ck_assert_int_eq(sh_submit(cl, op, 1, 0, sizeof(*a)), 0);
	err = sh_seq_res(0);
	sh_settle();
	return err;
}

static int truncate_to(u64 seq, u32 len)
{
	return len_verb(KVMM_OP_SEQ_TRUNCATE, seq, len, 0);
}

static int trim(u64 seq, u32 pos)
{
	return len_verb(KVMM_OP_SEQ_TRIM, seq, pos, 0);
}

/*
 * Every length of 70 tokens: inside a tail, at a block's end, inside sealed
 * blocks.
 */
START_TEST(test_truncate)
{
	u64 seq = sh_ready(cl, 70, 100, 2000), indexed;
	u32 len = (u32)_i, first;
	struct kvmm_begin_arg a;
	struct kvmm_begin_res res;

	sh_compute(cl, seq, 0, 70, 2000);
	indexed = sh_pool().indexed;
	first = len ? sh_table(cl, seq, (len - 1) / SH_BT) : 0;
	ck_assert_int_eq(truncate_to(seq, len), 0);
	ck_assert_uint_eq(sh_status(cl, seq)->valid_len, len);
	ck_assert_uint_eq(view_of(seq).nr_blocks, (len + SH_BT - 1) / SH_BT);
	ck_assert_uint_eq(sh_pool().indexed, indexed);

	a = sh_entry(cl, seq, len, 30);
	ck_assert_int_eq(sh_begin_all(cl, &a, 1, &res), 0);
	ck_assert_int_eq(res.status, 0);
	ck_assert_uint_eq(res.copy_tokens, len < 64 ? len % SH_BT : 0);
	if (res.copy_tokens) {
		ck_assert_uint_eq(res.copy_from, first);
		ck_assert_uint_eq(res.copy_to,
				  sh_table(cl, seq, len / SH_BT));
		ck_assert_uint_eq(res.table_lo, len / SH_BT);
	}
	ck_assert_int_eq(sh_end(cl, seq, len, len + 30, 8000), 0);
	/* Blocks that were cut off can still be found. */
	if (len >= 32)
		ck_assert_uint_eq(sh_status(cl, sh_ready(cl, 65, 0, 2000))
				  ->valid_len, 64);
}
END_TEST

START_TEST(test_truncate_of_a_promise)
{
	u64 seq = sh_ready(cl, 10 * SH_BT, 64, 3000);

	sh_compute(cl, seq, 0, 5 * SH_BT, 3000);
	ck_assert_uint_eq(sh_pool().committed, 5 * SH_BLOCK);
	ck_assert_int_eq(truncate_to(seq, 2 * SH_BT + 3), 0);
	ck_assert_uint_eq(sh_pool().committed, 5 * SH_BLOCK);
	sh_compute(cl, seq, 2 * SH_BT + 3, 10 * SH_BT, 3000);
	ck_assert_uint_eq(sh_pool().committed, 0);
}
END_TEST

/* One of the owners of a shared tail is truncated. */
START_TEST(test_truncate_of_a_shared_tail)
{
	u64 kid;

	ck_assert_int_eq(sh_fork(cl, beam[5], 1, &kid), 0);
	ck_assert_int_eq(truncate_to(kid, 50), 0);
	sh_compute(cl, kid, 50, 60, 4444);
	ck_assert_uint_ne(sh_table(cl, kid, 3), sh_table(cl, beam[5], 3));
	ck_assert_uint_eq(sh_status(cl, beam[5])->valid_len, 55);
	sh_compute(cl, beam[5], 55, 60, 5000);
}
END_TEST

static const struct {
	u32	len;
	u32	resv;
	u64	handle;
	int	truncated;
	int	trimmed;
} bad_len[] = {
	{ 10, 1, 0, -EINVAL, -EINVAL },
	{ 41, 0, 0, -EINVAL, -EINVAL },
	{ 10, 0, 1ull << 32, -ENOENT, -ENOENT },
};

START_TEST(test_len_refused)
{
	struct picture was = picture_of(beam[0]);
	u64 seq = beam[0] + bad_len[_i].handle;
	u32 len = bad_len[_i].len, resv = bad_len[_i].resv;

	ck_assert_int_eq(len_verb(KVMM_OP_SEQ_TRUNCATE, seq, len, resv),
			 bad_len[_i].truncated);
	ck_assert_int_eq(len_verb(KVMM_OP_SEQ_TRIM, seq, len, resv),
			 bad_len[_i].trimmed);
	expect_picture(beam[0], &was);
}
END_TEST

START_TEST(test_len_states)
{
	u64 waiting = sh_open(cl, 20, 20);

	ck_assert_int_eq(truncate_to(waiting, 0), -ESTALE);
	ck_assert_int_eq(trim(waiting, 0), -ESTALE);
	ck_assert_int_eq(sh_begin(cl, beam[0], 40, 1), 0);
	ck_assert_int_eq(truncate_to(beam[0], 10), -EBUSY);
	ck_assert_int_eq(sh_end(cl, beam[0], 40, 41, 0), 0);
	ck_assert_int_eq(trim(beam[0], 32), 0);
	ck_assert_int_eq(truncate_to(beam[0], 31), -EINVAL);
	ck_assert_int_eq(truncate_to(beam[0], 32), 0);
}
END_TEST

/* The index base stays, sealed blocks become cache, the next seal is named. */
START_TEST(test_trim)
{
	u64 seq = sh_ready(cl, 70, 100, 2000);

	sh_compute(cl, seq, 0, 70, 2000);
	ck_assert_int_eq(trim(seq, 16 * (u32)_i + 15), 0);
	ck_assert_uint_eq(sh_count(CORE_EV_pgtrim), (u32)_i);
	ck_assert_uint_eq(sh_pool().cached, (u32)_i * SH_BLOCK);
	if (_i)
		ck_assert_uint_eq(sh_table(cl, seq, (u32)_i - 1),
				  KVMM_NO_INDEX);
	ck_assert_uint_ne(sh_table(cl, seq, (u32)_i), KVMM_NO_INDEX);
	ck_assert_uint_eq(sh_status(cl, seq)->valid_len, 70);
	/* A TRIM to a lower position has no effect. */
	ck_assert_int_eq(trim(seq, 10), 0);
	ck_assert_uint_eq(sh_count(CORE_EV_pgtrim), (u32)_i);
	sh_compute(cl, seq, 70, 100, 2000);
	ck_assert_uint_eq(sh_status(cl, sh_ready(cl, 97, 0, 2000))->valid_len,
			  96);
	ck_assert_int_eq(sh_close(cl, seq), 0);
}
END_TEST

/* TRIM of all valid tokens: the next block is named after one that is gone. */
START_TEST(test_trim_of_all)
{
	u64 seq = sh_ready(cl, 64, 100, 2000), kid;

	sh_compute(cl, seq, 0, 64, 2000);
	ck_assert_int_eq(trim(seq, 64), 0);
	ck_assert_int_eq(sh_fork(cl, seq, 1, &kid), 0);
	ck_assert_int_eq(sh_close(cl, seq), 0);
	sh_compute(cl, kid, 64, 96, 2000);
	ck_assert_uint_eq(sh_status(cl, sh_ready(cl, 97, 0, 2000))->valid_len,
			  96);
}
END_TEST

/* A dropped name is forgotten: blocks after it do not enter the index any more. */
START_TEST(test_trim_of_a_lost_name)
{
	u64 seq = sh_ready(cl, 64, 100, 2000), other;
	u32 indexed = (u32)sh_pool().indexed;

	sh_compute(cl, seq, 0, 64, 2000);
	ck_assert_int_eq(trim(seq, 64), 0);
	ck_assert_int_eq(core_drop_caches(sh.core, sh.now, 0, 100), 4);
	sh_compute(cl, seq, 64, 120, 2000);
	ck_assert_uint_eq(sh_pool().indexed, indexed);
	/*
	 * When another sequence computes the prefix, it and the blocks after it
	 * are found.
	 */
	other = sh_ready(cl, 120, 100, 2000);
	ck_assert_uint_eq(sh_status(cl, other)->valid_len, 0);
	sh_compute(cl, other, 0, 64, 2000);
	sh_compute(cl, seq, 120, 130, 2000);
	ck_assert_uint_eq(sh_status(cl, sh_ready(cl, 129, 0, 2000))->valid_len,
			  128);
}
END_TEST

/* TRIM waits for the steps that are open, not for steps begun later. */
START_TEST(test_trim_in_a_step)
{
	u64 seq = sh_ready(cl, 64, 100, 2000), step;

	sh_compute(cl, seq, 0, 64, 2000);
	ck_assert_int_eq(sh_begin(cl, seq, 64, 1), 0);
	step = sh.cl[cl].step;
	ck_assert_int_eq(trim(seq, 32), 0);
	ck_assert_uint_ne(sh_table(cl, seq, 0), KVMM_NO_INDEX);
	ck_assert_int_eq(sh_begin(cl, seq, 65, 1), 0);
	ck_assert_int_eq(sh_end_step(cl, step, seq, 64, 65, 2000), 0);
	ck_assert_uint_eq(sh_table(cl, seq, 1), KVMM_NO_INDEX);
	ck_assert_uint_ne(sh_table(cl, seq, 2), KVMM_NO_INDEX);
	ck_assert_int_eq(sh_end(cl, seq, 65, 66, 2000), 0);
}
END_TEST

/* A TRIM in each of overlapping steps: the release of blocks keeps up. */
START_TEST(test_trim_in_every_step)
{
	u64 seq = sh_ready(cl, 64, 200, 2000);
	u32 i, at = 64;

	sh_compute(cl, seq, 0, 64, 2000);
	ck_assert_int_eq(sh_begin(cl, seq, at, SH_BT), 0);
	for (i = 0; i < 8; i++) {
		ck_assert_int_eq(sh_begin(cl, seq, at + SH_BT, SH_BT), 0);
		ck_assert_int_eq(trim(seq, at - SH_BT), 0);
		ck_assert_int_eq(sh_end_step(cl, sh.cl[cl].step - 1, seq, at,
					     at + SH_BT, 2000), 0);
		at += SH_BT;
		if (i)
			ck_assert_uint_ge(sh_count(CORE_EV_pgtrim), i + 1);
	}
	ck_assert_int_eq(sh_end(cl, seq, at, at + SH_BT, 2000), 0);
	ck_assert_uint_eq(sh_count(CORE_EV_pgtrim), 10);
}
END_TEST

/* Members that were trimmed differently become each other. */
START_TEST(test_remap_of_trimmed)
{
	static const u32 at[][2] = { { 32, 0 }, { 0, 32 }, { 16, 32 },
				     { 48, 16 } };
	u64 pairs[2][2];
	struct picture was[2];
	u32 i;

	beam[4] = sh_ready(cl, 64, 64, 30000);
	sh_compute(cl, beam[4], 0, 64, 30000);
	ck_assert_int_eq(sh_fork(cl, beam[4], 1, beam + 5), 0);
	sh_compute(cl, beam[5], 64, 90, 40000);
	for (i = 0; i < 2; i++)
		ck_assert_int_eq(trim(beam[4 + i], at[_i / 3][i]), 0);
	for (i = 0; i < 2; i++)
		was[i] = picture_of(beam[4 + i]);
	for (i = 0; i < 2; i++) {
		pairs[i][0] = beam[4 + i];
		pairs[i][1] = beam[5 - i];
	}
	/* One way, the other way, or both at once. */
	ck_assert_int_eq(remap((const u64 (*)[2])(_i % 3 == 1 ? pairs + 1 :
						  pairs), _i % 3 ? 1 : 2), 0);
	if (_i % 3 != 1)
		expect_picture(beam[4], &was[1]);
	if (_i % 3 != 2)
		expect_picture(beam[5], &was[0]);
	for (i = 0; i < 2; i++)
		sh_compute(cl, beam[4 + i],
			   sh_status(cl, beam[4 + i])->valid_len, 110, 5);
}
END_TEST

/* A member without tokens and one that released all blocks become each other. */
START_TEST(test_remap_of_nothing)
{
	u64 pair[1][2];

	beam[4] = sh_ready(cl, 64, 64, 30000);
	sh_compute(cl, beam[4], 0, 64, 30000);
	ck_assert_int_eq(sh_fork(cl, beam[4], 1, beam + 5), 0);
	ck_assert_int_eq(trim(beam[4], 64), 0);
	ck_assert_int_eq(truncate_to(beam[5], 0), 0);
	pair[0][0] = beam[4 + _i];
	pair[0][1] = beam[5 - _i];
	ck_assert_int_eq(remap((const u64 (*)[2])pair, 1), 0);
	ck_assert_uint_eq(sh_status(cl, beam[4 + _i])->valid_len, 64 * _i);
	sh_compute(cl, beam[4 + _i], 64 * (u32)_i, 110, 30000);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_remap");
	TCase *tc = tcase_create("remap");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_waits_for_the_commitment);
	tcase_add_loop_test(tc, test_remap, 0, ARRAY_SIZE(maps));
	tcase_add_test(tc, test_remap_tells_from_where);
	tcase_add_test(tc, test_rotation_tells_from_where);
	tcase_add_test(tc, test_remap_is_by_family);
	tcase_add_loop_test(tc, test_remap_refused, 0, 7);
	tcase_add_test(tc, test_remap_without_pages);
	tcase_add_test(tc, test_remap_in_prefill);
	tcase_add_loop_test(tc, test_truncate, 0, 71);
	tcase_add_test(tc, test_truncate_of_a_promise);
	tcase_add_test(tc, test_truncate_of_a_shared_tail);
	tcase_add_loop_test(tc, test_len_refused, 0, ARRAY_SIZE(bad_len));
	tcase_add_test(tc, test_len_states);
	tcase_add_loop_test(tc, test_trim, 0, 4);
	tcase_add_test(tc, test_trim_of_all);
	tcase_add_test(tc, test_trim_of_a_lost_name);
	tcase_add_test(tc, test_trim_in_a_step);
	tcase_add_test(tc, test_trim_in_every_step);
	tcase_add_loop_test(tc, test_remap_of_trimmed, 0, 12);
	tcase_add_loop_test(tc, test_remap_of_nothing, 0, 2);
	suite_add_tcase(s, tc);
	return sh_run(s);
}
