// SPDX-License-Identifier: Apache-2.0
/*
 * check_admin_act.c - eviction ends even while clients refill the cache
 *
 * This file compiles admin/act.c and replaces the mm thread, the names and the
 * eviction that it calls: they model a domain whose client can fill the cache
 * as fast as it is emptied.
 */
#include <check.h>
#include <stdlib.h>

#define mm_call		fake_call
#define link_log	fake_link_log
#define tenant_by_name	fake_tenant_by_name
#define core_evict	fake_evict
#define admin_name_init	fake_name_init
#define admin_name_find	fake_name_find
#define admin_name_refuse fake_name_refuse
#define admin_act	act_do
#define admin_acts	act_is
#include "kvmm/ipc/admin/act.c"

#define BLOCKS	1000u		/* of the domain */
#define BLOCK	65536ull	/* bytes */
#define CALLS	100u		/* after which the loop counts as endless */

static struct operators *d;
static char text[ADMIN_TEXT];
static u32 nr_calls, cached;
static u64 evicted;
static bool refills;

void link_log(struct swap_link *l) {}

bool tenant_by_name(const struct sockets *s, const char *name, u64 *key)
{
	return false;
}

int mm_call(struct mm *mm, void (*fn)(struct core *core, void *arg), void *arg)
{
	if (nr_calls++ == CALLS)
		return -ESHUTDOWN;
	fn(NULL, arg);
	return 0;
}

int core_evict(struct core *core, u64 now, u32 dom, u32 most)
{
	u32 nr = min(most, cached);

	evicted += nr;
	if (!refills)
		cached -= nr;
	return (int)nr;
}

void admin_name_init(struct proc *proc, struct admin_name *n,
		     const char *name)
{
	*n = (struct admin_name){ .name = name };
}

bool admin_name_find(struct core *core, struct admin_name *n)
{
	n->nr_named = 1;
	n->view.block_bytes = BLOCK;
	n->view.current_bytes = BLOCK * BLOCKS;
	return true;
}

int admin_name_refuse(const struct admin_name *n, char *why)
{
	return 0;
}

static void setup(void)
{
	d = calloc(1, sizeof(*d));
	ck_assert_ptr_nonnull(d);
	nr_calls = 0;
	evicted = 0;
	cached = BLOCKS;
	refills = false;
}

static void teardown(void)
{
	free(d);
}

static int evict(u64 bytes)
{
	char req[64];

	snprintf(req, sizeof(req), "evict %llu it", (unsigned long long)bytes);
	ck_assert(act_is(req));
	return act_do(d, req, text);
}

START_TEST(test_all)
{
	ck_assert_int_eq(evict(0), 0);
	ck_assert_uint_eq(evicted, BLOCKS);
}
END_TEST

START_TEST(test_so_much)
{
	ck_assert_int_eq(evict(300 * BLOCK - 1), 0);
	ck_assert_uint_eq(evicted, 300);
	ck_assert_int_eq(evict(701 * BLOCK), -EAGAIN);
	ck_assert_uint_eq(evicted, BLOCKS);
}
END_TEST

/* A request for more than the cache evicts all of the cache. */
START_TEST(test_too_much)
{
	ck_assert_int_eq(evict(UINT64_MAX), -EAGAIN);
	ck_assert_uint_eq(evicted, BLOCKS);
}
END_TEST

START_TEST(test_filled_again)
{
	refills = true;
	ck_assert_int_eq(evict(0), 0);
	ck_assert_uint_eq(evicted, BLOCKS);
	ck_assert_int_eq(evict(UINT64_MAX), -EAGAIN);
	ck_assert_uint_eq(evicted, 2 * BLOCKS);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("admin-act");
	TCase *tc = tcase_create("evict");
	SRunner *sr;
	int failed;

	tcase_set_tags(tc, "unit ipc");
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_all);
	tcase_add_test(tc, test_so_much);
	tcase_add_test(tc, test_too_much);
	tcase_add_test(tc, test_filled_again);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? 1 : 0;
}
