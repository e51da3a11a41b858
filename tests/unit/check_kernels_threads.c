// SPDX-License-Identifier: Apache-2.0
/*
 * check_kernels_threads.c - the threads that ops spread their items over
 *
 * Each item of a job runs once, whichever threads sleep, wake late or are told
 * to rest; contexts come and go in any state; pinned threads have a CPU each.
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

#include "check_kernels.h"

#include "kernels/cpu/internal.h"

static struct kern_ctx *two, *four;

static void setup(void)
{
	ck_assert_int_eq(kern_ctx_create(2, &two), 0);
	ck_assert_int_eq(kern_ctx_create(4, &four), 0);
}

static void teardown(void)
{
	kern_ctx_destroy(two);
	kern_ctx_destroy(four);
}

#define COUNT_ITEMS	37

struct count_job {
	u32	times[COUNT_ITEMS];
};

static void count_item(void *arg, u32 i)
{
	struct count_job *job = arg;

	__atomic_add_fetch(&job->times[i], 1, __ATOMIC_RELAXED);
}

/* Jobs of changing size in quick succession, some after a pause. */
static void *count_many(void *arg)
{
	struct kern_ctx *ctx = arg;
	struct count_job job;
	uintptr_t bad = 0;
	u32 round, nr, i;

	for (round = 0; round < 3000; round++) {
		memset(&job, 0, sizeof(job));
		nr = round % (COUNT_ITEMS + 1);
		kern_parallel(ctx, nr, count_item, &job);
		for (i = 0; i < COUNT_ITEMS; i++)
			bad += job.times[i] != (i < nr);
		if (round % 500 == 499)
			usleep(2000);
	}
	return (void *)bad;
}

/* Two contexts at once, like two models on the same cores. */
START_TEST(test_every_item_once)
{
	pthread_t other;
	void *bad;

	ck_assert_int_eq(pthread_create(&other, NULL, count_many, four), 0);
	ck_assert_ptr_null(count_many(two));
	pthread_join(other, &bad);
	ck_assert_ptr_null(bad);
}
END_TEST

/* Contexts are created and destroyed while workers start, spin or sleep. */
START_TEST(test_ctx_lifetime)
{
	struct count_job job = { };
	struct kern_ctx *ctx;
	u32 i;

	for (i = 0; i < 50; i++) {
		ck_assert_int_eq(kern_ctx_create(i % 5, &ctx), 0);
		ck_assert_uint_ge(kern_ctx_nr_threads(ctx), 1);
		if (i % 5)
			ck_assert_uint_eq(kern_ctx_nr_threads(ctx), i % 5);
		if (i & 1)
			kern_parallel(ctx, COUNT_ITEMS, count_item, &job);
		if (i % 3 == 2)
			usleep(1000);
		kern_ctx_destroy(ctx);
	}
	for (i = 0; i < COUNT_ITEMS; i++)
		ck_assert_uint_eq(job.times[i], 25);
	kern_ctx_destroy(NULL);
}
END_TEST

/* A worker that was told to rest, or fell asleep, takes the next job. */
START_TEST(test_ctx_rest)
{
	struct count_job job = { };
	u32 i;

	kern_ctx_rest(NULL);
	for (i = 0; i < 200; i++) {
		kern_parallel(four, COUNT_ITEMS, count_item, &job);
		if (i & 1)
			kern_ctx_rest(four);
		if (i % 10 == 9)
			usleep(500);
	}
	for (i = 0; i < COUNT_ITEMS; i++)
		ck_assert_uint_eq(job.times[i], 200);
}
END_TEST

struct where_job {
	u32	nr;
	int	cpus[4];
};

static void where_item(void *arg, u32 i)
{
	struct where_job *job = arg;
	cpu_set_t set;

	/* Wait for the others, so that each thread takes one item. */
	__atomic_add_fetch(&job->nr, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&job->nr, __ATOMIC_SEQ_CST) < 2)
		sched_yield();
	sched_getaffinity(0, sizeof(set), &set);
	job->cpus[i] = CPU_COUNT(&set) == 1 ? sched_getcpu() : -1;
}

/* Pinned threads have a CPU each; a context of another size is not pinned. */
START_TEST(test_ctx_pin)
{
	struct where_job job = { };
	struct kern_ctx *ctx;
	cpu_set_t set, some;
	u32 cpu, n = 0;

	ck_assert_int_eq(sched_getaffinity(0, sizeof(set), &set), 0);
	if (CPU_COUNT(&set) < 2) {
		printf("one CPU only: pinning is not tested\n");
		return;
	}
	CPU_ZERO(&some);
	for (cpu = 0; n < 2; cpu++) {
		if (!CPU_ISSET(cpu, &set))
			continue;
		CPU_SET(cpu, &some);
		n++;
	}
	ck_assert_int_eq(sched_setaffinity(0, sizeof(some), &some), 0);
	ck_assert_int_eq(kern_ctx_pin(four), -EINVAL);
	ck_assert_int_eq(kern_ctx_create(0, &ctx), 0);
	ck_assert_uint_eq(kern_ctx_nr_threads(ctx), 2);
	ck_assert_int_eq(kern_ctx_pin(ctx), 0);
	kern_parallel(ctx, 2, where_item, &job);
	ck_assert(CPU_ISSET(job.cpus[0], &some));
	ck_assert(CPU_ISSET(job.cpus[1], &some));
	ck_assert_int_ne(job.cpus[0], job.cpus[1]);
	kern_ctx_destroy(ctx);
}
END_TEST

static Suite *kernels_threads_suite(void)
{
	Suite *s = suite_create("kernels-threads");
	TCase *tc = tcase_create("threads");

	tcase_set_tags(tc, "unit kernels");
	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_every_item_once);
	tcase_add_test(tc, test_ctx_lifetime);
	tcase_add_test(tc, test_ctx_rest);
	tcase_add_test(tc, test_ctx_pin);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	SRunner *sr = srunner_create(kernels_threads_suite());
	int failed;

	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
