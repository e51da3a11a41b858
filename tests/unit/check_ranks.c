// SPDX-License-Identifier: Apache-2.0
/*
 * check_ranks.c - a group of ranks over threads
 *
 * A thread is a rank.  Exchange, messages, gather, and the failures that threads can have:
 * a rank that never comes, one that leaves, one that gives up.  it_mpi_ranks has processes.
 */
#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "runtime/ranks/ranks.h"

#define MAX		4u
#define LONG_MS		60000u
#define SHORT_MS	300u
#define ROOM		4096u

struct player {
	struct ranks	*r;
	u32		rounds;
	u64		bad;	/* words that were wrong */
	int		ret;
	u64		ms;
	pthread_t	thread;
};

static struct ranks *group[MAX];
static struct player player[MAX];

static u64 now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (u64)ts.tv_sec * 1000 + (u64)ts.tv_nsec / 1000000;
}

/* Each rank of a new group runs @fn on a thread of its own. */
static void play(u32 nr, u64 room, u32 timeout_ms, u32 rounds, void *(*fn)(void *))
{
	u32 i;

	ck_assert_int_eq(ranks_threads(nr, room, timeout_ms, group), 0);
	for (i = 0; i < nr; i++) {
		player[i] = (struct player) { .r = group[i], .rounds = rounds };
		ck_assert_int_eq(pthread_create(&player[i].thread, NULL, fn, &player[i]), 0);
	}
	for (i = 0; i < nr; i++)
		pthread_join(player[i].thread, NULL);
}

/* ---- exchange ---- */

static u64 word_of(u32 rank, u32 round, u32 i)
{
	return (((u64)rank << 32) + round) * 0x9e3779b97f4a7c15ull + i;
}

/* Number of words of @room, a room of @rank in @round, that are wrong. */
static u64 judge(const u64 *room, u32 rank, u32 round, u32 words)
{
	u64 bad = 0;
	u32 i;

	for (i = 0; i < words; i++)
		bad += room[i] != word_of(rank, round, i);
	return bad;
}

static void fill(u64 *room, u32 rank, u32 round, u32 words)
{
	u32 i;

	for (i = 0; i < words; i++)
		room[i] = word_of(rank, round, i);
}

/*
 * Words at both ends of the room would be too few for a part that begins in another; 8 a
 * line are checked in all lines of a small room.
 */
static void *exchange(void *arg)
{
	struct player *p = arg;
	const u32 self = ranks_number(p->r), nr = ranks_nr(p->r);
	const u32 words = 256 / sizeof(u64);
	const u64 *before[MAX] = { NULL };
	u32 round, i;

	for (round = 0; round < p->rounds && !p->ret; round++) {
		p->bad += (uintptr_t)ranks_room(p->r) % 64;
		fill(ranks_room(p->r), self, round, words);
		p->ret = ranks_share(p->r);
		for (i = 0; i < nr && !p->ret; i++) {
			/* The room that of() gave in the round before is still there. */
			if (before[i])
				p->bad += judge(before[i], i, round - 1, words);
			before[i] = ranks_of(p->r, i);
			p->bad += judge(before[i], i, round, words);
		}
	}
	ranks_close(p->r);
	return NULL;
}

static void check_exchange(u32 nr, u32 rounds)
{
	u32 i;

	play(nr, 256, LONG_MS, rounds, exchange);
	for (i = 0; i < nr; i++) {
		ck_assert_int_eq(player[i].ret, 0);
		ck_assert_uint_eq(player[i].bad, 0);
	}
}

START_TEST(two_ranks_exchange)
{
	check_exchange(2, 100000);
}
END_TEST

START_TEST(four_ranks_exchange)
{
	check_exchange(4, 10000);
}
END_TEST

START_TEST(one_rank_exchanges_with_itself)
{
	check_exchange(1, 100);
}
END_TEST

/* ---- messages ---- */

static const u64 lengths[] = {
	0, 1, 63, 4096, 262143, 262144, 262145, 0, 3 << 20, 524288, 5000001, 7,
};

static u8 byte_of(u64 message, u64 i)
{
	return (u8)((message * 131 + i) * 2654435761u >> 13);
}

static void send_all(struct player *p, u8 *buf)
{
	u64 m, i;

	for (m = 0; m < ARRAY_SIZE(lengths) && !p->ret; m++) {
		for (i = 0; i < lengths[m]; i++)
			buf[i] = byte_of(m, i);
		p->ret = ranks_send(p->r, buf, lengths[m]);
	}
}

static void recv_all(struct player *p, u8 *buf, u64 size)
{
	u64 m, i, bytes;

	for (m = 0; m < ARRAY_SIZE(lengths); m++) {
		bytes = ~0ull;
		p->ret = ranks_recv(p->r, buf, size, &bytes, LONG_MS);
		if (p->ret)
			return;
		p->bad += bytes != lengths[m];
		for (i = 0; i < bytes; i++)
			p->bad += buf[i] != byte_of(m, i);
	}
	/* Then the leader closes: that is no failure. */
	p->bad += ranks_recv(p->r, buf, size, &bytes, LONG_MS) != -EPIPE;
	p->bad += ranks_failure(p->r) != NULL;
}

static void *messages(void *arg)
{
	struct player *p = arg;
	const u64 size = 5000001;
	u8 *buf = malloc(size);

	if (ranks_number(p->r))
		recv_all(p, buf, size);
	else
		send_all(p, buf);
	free(buf);
	ranks_close(p->r);
	return NULL;
}

START_TEST(messages_of_all_lengths)
{
	u32 i;

	play(3, 0, LONG_MS, 0, messages);
	for (i = 0; i < 3; i++) {
		ck_assert_int_eq(player[i].ret, 0);
		ck_assert_uint_eq(player[i].bad, 0);
	}
}
END_TEST

START_TEST(message_beyond_the_buffer_stays)
{
	u64 bytes = 0;
	char buf[8];

	ck_assert_int_eq(ranks_threads(2, 0, SHORT_MS, group), 0);
	ck_assert_int_eq(ranks_recv(group[1], buf, 8, &bytes, 0), -EAGAIN);
	ck_assert_int_eq(ranks_recv(group[1], buf, 8, &bytes, 20), -EAGAIN);
	ck_assert_int_eq(ranks_send(group[0], "twelve bytes", 12), 0);
	ck_assert_int_eq(ranks_recv(group[1], buf, 8, &bytes, 0), -EMSGSIZE);
	ck_assert_uint_eq(bytes, 12);
	/* Nothing was taken: the next message waits for it. */
	ck_assert_int_eq(ranks_send(group[0], "x", 1), -ETIMEDOUT);
	ranks_close(group[0]);
	ranks_close(group[1]);

	ck_assert_int_eq(ranks_threads(2, 0, SHORT_MS, group), 0);
	ck_assert_int_eq(ranks_send(group[1], "x", 1), -EINVAL);
	ck_assert_int_eq(ranks_recv(group[0], buf, 8, &bytes, 0), -EINVAL);
	ck_assert_int_eq(ranks_send(group[0], "eight...", 8), 0);
	ck_assert_int_eq(ranks_recv(group[1], NULL, 0, &bytes, 0), -EMSGSIZE);
	ck_assert_int_eq(ranks_recv(group[1], buf, 8, &bytes, 0), 0);
	ck_assert_mem_eq(buf, "eight...", 8);
	ck_assert_int_eq(ranks_send(group[0], NULL, 0), 0);
	ck_assert_int_eq(ranks_recv(group[1], NULL, 0, &bytes, 0), 0);
	ck_assert_uint_eq(bytes, 0);
	ranks_abort(group[0], "the end");
	ranks_close(group[0]);
	ranks_close(group[1]);
}
END_TEST

/* ---- gather ---- */

static void *gathers(void *arg)
{
	static const u32 sizes[] = { 0, 4, 4095, 4096, 4097, 100001 };
	struct player *p = arg;
	const u32 self = ranks_number(p->r), nr = ranks_nr(p->r);
	u8 *mine = malloc(100001), *all = malloc(MAX * 100001);
	u32 s, i, k;

	for (s = 0; s < ARRAY_SIZE(sizes) && !p->ret; s++) {
		for (i = 0; i < sizes[s]; i++)
			mine[i] = byte_of(self * 10 + s, i);
		p->ret = ranks_gather(p->r, mine, sizes[s], all);
		for (k = 0; k < nr && !p->ret; k++)
			for (i = 0; i < sizes[s]; i++)
				p->bad += all[(u64)k * sizes[s] + i] != byte_of(k * 10 + s, i);
	}
	free(mine);
	free(all);
	ranks_close(p->r);
	return NULL;
}

START_TEST(all_have_the_bytes_of_all)
{
	u32 i;

	play(4, ROOM, LONG_MS, 0, gathers);
	for (i = 0; i < 4; i++) {
		ck_assert_int_eq(player[i].ret, 0);
		ck_assert_uint_eq(player[i].bad, 0);
	}
}
END_TEST

/* ---- failures ---- */

/* Rank 2 never comes. */
static void *without_rank_2(void *arg)
{
	struct player *p = arg;
	const u64 start = now_ms();

	if (ranks_number(p->r) != 2) {
		p->ret = ranks_share(p->r);
		p->ms = now_ms() - start;
		/* Later calls fail at once. */
		p->bad = ranks_share(p->r) != p->ret || ranks_check(p->r) != p->ret ||
			 now_ms() - start - p->ms > SHORT_MS / 2;
	}
	return NULL;
}

START_TEST(rank_that_never_comes_is_named)
{
	char line[80];
	u32 i;

	play(4, ROOM, SHORT_MS, 0, without_rank_2);
	snprintf(line, sizeof(line), "rank 2 (pid %d) did not answer in 300 ms", getpid());
	ck_assert_ptr_null(ranks_failure(group[2]));
	ck_assert_int_eq(ranks_share(group[2]), -ETIMEDOUT);
	for (i = 0; i < 4; i++) {
		ck_assert_str_eq(ranks_failure(group[i]), line);
		ck_assert(i == 2 || player[i].ret == -ETIMEDOUT);
		ck_assert_uint_eq(player[i].bad, 0);
		/* The first of them waits so long; the others hear of it. */
		ck_assert_uint_le(player[i].ms, SHORT_MS + 1000);
		ranks_close(group[i]);
	}
	ck_assert_uint_ge(max(player[0].ms, max(player[1].ms, player[3].ms)), SHORT_MS);
}
END_TEST

/* The leader waits for rank 2, and rank 1 for the leader: rank 2 is late. */
static void *in_a_row(void *arg)
{
	struct player *p = arg;
	const u32 self = ranks_number(p->r);

	if (self == 1)
		p->ret = ranks_share(p->r);
	if (self == 0) {
		usleep(100000);
		p->ret = ranks_send(p->r, "a", 1);
		if (!p->ret)
			p->ret = ranks_send(p->r, "b", 1);
	}
	return NULL;
}

START_TEST(rank_at_the_end_of_the_waits_is_named)
{
	u64 bytes;
	char c;
	u32 i;

	ck_assert_int_eq(ranks_threads(3, ROOM, SHORT_MS, group), 0);
	for (i = 0; i < 3; i++)
		player[i] = (struct player) { .r = group[i] };
	/* Rank 1 takes the first message, so that the second waits for rank 2 alone. */
	ck_assert_int_eq(ranks_send(group[0], "0", 1), 0);
	ck_assert_int_eq(ranks_recv(group[1], &c, 1, &bytes, 0), 0);
	for (i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_create(&player[i].thread, NULL, in_a_row, &player[i]), 0);
	for (i = 0; i < 2; i++) {
		pthread_join(player[i].thread, NULL);
		ck_assert_int_eq(player[i].ret, -ETIMEDOUT);
		ck_assert_ptr_nonnull(strstr(ranks_failure(group[i]), "rank 2 "));
	}
	for (i = 0; i < 3; i++)
		ranks_close(group[i]);
}
END_TEST

START_TEST(rank_that_gives_up_ends_all)
{
	u64 bytes;

	ck_assert_int_eq(ranks_threads(2, ROOM, LONG_MS, group), 0);
	ck_assert_int_eq(ranks_check(group[0]), 0);
	ranks_abort(group[1], "its weights cannot be read");
	ck_assert_int_eq(ranks_check(group[0]), -EPIPE);
	ck_assert_ptr_nonnull(strstr(ranks_failure(group[0]), "rank 1 (pid "));
	ck_assert_ptr_nonnull(strstr(ranks_failure(group[0]), ") gave up: its weights cannot be read"));
	ck_assert_int_eq(ranks_send(group[0], "x", 1), -EPIPE);
	ck_assert_int_eq(ranks_recv(group[1], NULL, 0, &bytes, LONG_MS), -EPIPE);
	ck_assert_int_eq(ranks_gather(group[0], "x", 1, (char [2]) { 0 }), -EPIPE);
	ranks_close(group[0]);
	ranks_close(group[1]);
}
END_TEST

static void *leaves_early(void *arg)
{
	struct player *p = arg;

	if (!ranks_number(p->r)) {
		p->ret = ranks_share(p->r);
		p->bad = !strstr(ranks_failure(p->r), "rank 1 (pid ") ||
			 !strstr(ranks_failure(p->r), ") has left the group");
	}
	ranks_close(p->r);
	return NULL;
}

START_TEST(rank_that_left_does_not_come)
{
	const u64 start = now_ms();

	play(2, ROOM, LONG_MS, 0, leaves_early);
	ck_assert_int_eq(player[0].ret, -EPIPE);
	ck_assert_uint_eq(player[0].bad, 0);
	ck_assert_uint_lt(now_ms() - start, LONG_MS / 2);
}
END_TEST

START_TEST(wrong_numbers_are_refused)
{
	const struct ranks_opts one = { 1, ROOM, SHORT_MS };
	struct ranks *r = NULL;
	char why[256] = "";

	ck_assert_int_eq(ranks_threads(0, ROOM, SHORT_MS, group), -EINVAL);
	ck_assert_int_eq(ranks_threads(RANKS_MAX + 1, ROOM, SHORT_MS, group), -EINVAL);
	ck_assert_int_eq(ranks_threads(2, ROOM, 0, group), -EINVAL);
	ck_assert_int_eq(ranks_open(&one, &r, why, sizeof(why)), -EINVAL);
	ck_assert_str_eq(why, "a group has 2 to 64 ranks, not 1");
	ranks_close(NULL);
}
END_TEST

/* ---- launch ---- */

static void clear_launchers(void)
{
	static const char *const names[] = {
		"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS", "PMIX_RANK", "PMI_RANK",
		"SLURM_PROCID", "SLURM_STEP_NUM_TASKS",
	};
	u32 i;

	for (i = 0; i < ARRAY_SIZE(names); i++)
		unsetenv(names[i]);
}

START_TEST(launchers_are_known)
{
	char *argv[] = { NULL };
	char why[256] = "";

	clear_launchers();
	ck_assert_uint_eq(ranks_launched(), 0);
	setenv("SLURM_PROCID", "0", 1);
	ck_assert_uint_eq(ranks_launched(), 0);
	setenv("SLURM_STEP_NUM_TASKS", "1", 1);
	ck_assert_uint_eq(ranks_launched(), 0);
	setenv("SLURM_STEP_NUM_TASKS", "8", 1);
	ck_assert_uint_eq(ranks_launched(), 8);
	clear_launchers();
	setenv("PMIX_RANK", "0", 1);
	ck_assert_uint_eq(ranks_launched(), 1);
	setenv("PMI_SIZE", "4", 1);
	ck_assert_uint_eq(ranks_launched(), 4);
	clear_launchers();
	setenv("OMPI_COMM_WORLD_SIZE", "3", 1);
	ck_assert_uint_eq(ranks_launched(), 3);
	/* A rank launches nothing, nor does a program of one rank. */
	ck_assert_int_eq(ranks_launch(2, argv, why, sizeof(why)), 0);
	clear_launchers();
	ck_assert_int_eq(ranks_launch(1, argv, why, sizeof(why)), 0);
	ck_assert_int_eq(ranks_launch(0, argv, why, sizeof(why)), 0);
	setenv("PATH", "/nonexistent", 1);
	ck_assert_int_eq(ranks_launch(2, argv, why, sizeof(why)), -ENOENT);
	ck_assert_str_eq(why, "no mpiexec in PATH: install openmpi-bin, or another MPI");
}
END_TEST

static TCase *exchanges(void)
{
	TCase *tc = tcase_create("exchange");

	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, two_ranks_exchange);
	tcase_add_test(tc, four_ranks_exchange);
	tcase_add_test(tc, one_rank_exchanges_with_itself);
	tcase_add_test(tc, messages_of_all_lengths);
	tcase_add_test(tc, message_beyond_the_buffer_stays);
	tcase_add_test(tc, all_have_the_bytes_of_all);
	return tc;
}

static TCase *failures(void)
{
	TCase *tc = tcase_create("failures");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, rank_that_never_comes_is_named);
	tcase_add_test(tc, rank_at_the_end_of_the_waits_is_named);
	tcase_add_test(tc, rank_that_gives_up_ends_all);
	tcase_add_test(tc, rank_that_left_does_not_come);
	tcase_add_test(tc, wrong_numbers_are_refused);
	tcase_add_test(tc, launchers_are_known);
	return tc;
}

int main(void)
{
	Suite *s = suite_create("ranks");
	SRunner *sr;
	int failed;

	suite_add_tcase(s, exchanges());
	suite_add_tcase(s, failures());
	sr = srunner_create(s);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
