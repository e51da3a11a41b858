// SPDX-License-Identifier: Apache-2.0
/*
 * check_engine_follow.c - orders of the leader of ranks
 *
 * The rank is a thread, and the test is its leader.  A malformed order, and one that comes
 * before the rank has an attachment, end the rank with one line.  An order to end, and a
 * leader that leaves, are orderly ends.  A step without a forward ends when all ranks have
 * done its copies, and waits for nothing if it had none.
 */
#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/engine/internal.h"
#include "runtime/engine/orders.h"
#include "runtime/engine/ranked.h"
#include "runtime/ranks/ranks.h"

#define WORDS	16u

/* An order, and the result of the rank. */
static const struct {
	struct order	o;
	u32		bytes;	/* that are sent */
	int		ret;
} cases[] = {
	{ { .kind = ORDER_END }, sizeof(struct order), 0 },
	{ { .kind = ORDER_END + 1 }, sizeof(struct order), -EBADMSG },
	{ { .kind = ORDER_END }, sizeof(struct order) - 1, -EBADMSG },
	{ { .kind = ORDER_STEP }, sizeof(struct order), -EBADMSG },
	{ { .kind = ORDER_STEP, .nr = 0xffffffff }, sizeof(struct order), -EBADMSG },
	{ { .kind = ORDER_COPY, .nr = 1, .tokens = 1 },
	  sizeof(struct order) + 3 * sizeof(u32), -EBADMSG },
	{ { 0 }, 0, 0 },	/* the leader leaves without an order */
};

static struct ranks *pair[2];
static struct model *model;
static struct engine_error why;

static void *follow(void *arg)
{
	const struct engine_opts o = { .ranks = pair[1], .rank_timeout_ms = 2000 };

	*(int *)arg = engine_follow(model, &o, &why);
	ranks_close(pair[1]);
	return NULL;
}

/* A model that computes nothing. */
static void load(void)
{
	const struct model_opts o = { .dummy = true, .kernel = "null" };
	const char *top = getenv("KVMM_TOP");
	struct model_error err;
	char path[512];

	snprintf(path, sizeof(path), "%s/tests/data/demo-model", top ? top : ".");
	ck_assert_msg(!model_load(path, &o, &model, &err), "%s", err.text);
}

START_TEST(test_orders)
{
	u8 text[sizeof(struct order) + WORDS * sizeof(u32)] = { 0 };
	pthread_t thread;
	int ret = 1;

	load();
	ck_assert(!ranks_threads(2, 4096, 2000, pair));
	ck_assert(!pthread_create(&thread, NULL, follow, &ret));
	memcpy(text, &cases[_i].o, sizeof(cases[_i].o));
	if (cases[_i].bytes)
		ck_assert(!ranks_send(pair[0], text, cases[_i].bytes));
	ranks_close(pair[0]);
	ck_assert(!pthread_join(thread, NULL));
	ck_assert_int_eq(ret, cases[_i].ret);
	if (ret)
		ck_assert_str_eq(why.text, "an order of rank 0 is malformed");
	model_free(model);
}
END_TEST

/* ---- a step without a forward ---- */

#define SLOW_US	200000u	/* for the copies of the rank */

static u32 copied;

static void *copy_slowly(void *arg)
{
	struct engine_error none;
	struct order o[8];
	u64 bytes;

	ck_assert(!ranks_recv(pair[1], o, sizeof(o), &bytes, 2000));
	ck_assert_uint_eq(o->kind, ORDER_COPY);
	ck_assert_uint_eq(bytes, sizeof(*o) + 2 * sizeof(u32));
	usleep(SLOW_US);
	__atomic_store_n(&copied, 1, __ATOMIC_RELEASE);
	ck_assert(!ranks_recv(pair[1], o, sizeof(o), &bytes, 2000));
	ck_assert_uint_eq(o->kind, ORDER_SYNC);
	ck_assert(!ranks_report(pair[1], 0, NULL, &none));
	return arg;
}

START_TEST(test_settle)
{
	static struct engine e;
	const u32 from = 3, to = 5;
	pthread_t thread;

	ck_assert(!ranks_threads(2, 4096, 5000, pair));
	e.lead.ranks = pair[0];
	/* No rank answers here. */
	ck_assert(!lead_settle(&e));
	ck_assert(!pthread_create(&thread, NULL, copy_slowly, NULL));
	lead_copy(&e, 0, &from, &to, NULL, 1);
	ck_assert(!lead_settle(&e));
	ck_assert(__atomic_load_n(&copied, __ATOMIC_ACQUIRE));
	ck_assert(!lead_settle(&e));
	ck_assert(!pthread_join(thread, NULL));
	free(e.lead.buf);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("engine_follow");
	TCase *tc = tcase_create("orders");
	SRunner *sr;
	int failed;

	tcase_set_tags(tc, "unit engine");
	tcase_add_loop_test(tc, test_orders, 0, ARRAY_SIZE(cases));
	tcase_add_test(tc, test_settle);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
