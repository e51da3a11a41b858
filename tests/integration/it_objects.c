// SPDX-License-Identifier: Apache-2.0
/*
 * it_objects.c - a store of objects in the memory of the daemon
 *
 * Objects of 64 KiB, more than the device pool holds: the rest lies in the host pool and in
 * an area.  Two clients share them.  Lies, limits, and the death of kvmm.  budget: 60 s
 */
#include <stdio.h>
#include <stdlib.h>

#include <libkvmm_objects.h>

#include "tests/integration/census.h"

#define BYTES	65536u
#define MANY	160u			/* 10 MiB, in a pool of 4 and a host pool of 16 */
#define BATCH	16u
#define SECOND	1000000000ll

static struct rig rig;
static u8 identity[KVMM_IDENTITY_LEN] = "it_objects";
static struct kvmm *kv;
static char text[256];

static struct kvmm *attach_with(u64 max_bytes)
{
	char path[RIG_PATH + 32];
	struct kvmm_params p = { .socket = path, .domain = "objects", .identity = identity,
				 .max_bytes = max_bytes, .attach_timeout_ms = 20000 };
	struct kvmm *k;

	snprintf(path, sizeof(path), "%s/attach.sock", rig.dir);
	ck_assert_int_eq(kvmm_objects_layout(&p, BYTES), 0);
	ck_assert_msg(!kvmm_attach(&p, &k, text), "%s", text);
	ck_assert_uint_eq(kvmm_info(k)->block_bytes, BYTES);
	return k;
}

static void setup(void)
{
	rig_start(&rig, "--pool-size", "4M", "--extent-size", "1M", "--host-size", "16M", NULL);
	kv = attach_with(KVMM_LIMIT_MAX);
}

static void teardown(void)
{
	kvmm_detach(kv);
	rig_walk(&rig);
	rig_stop(&rig);
}

static struct kvmm_key key_of(u32 n)
{
	struct kvmm_key key = { { 0 } };

	memcpy(key.byte, &n, sizeof(n));
	memset(key.byte + KVMM_KEY_LEN - 4, 0xff, 4);	/* any byte may be in a key */
	return key;
}

static void name_all(struct kvmm_object *obj, u32 first, u32 nr)
{
	u32 i;

	for (i = 0; i < nr; i++)
		obj[i].key = key_of(first + i);
}

static void write_one(const struct kvmm_object *o, u32 n)
{
	u32 *word = o->addr, i;

	for (i = 0; i < BYTES / 4; i++)
		word[i] = n * 2654435761u + i;
}

static void check_one(const struct kvmm_object *o, u32 n)
{
	const u32 *word = o->addr;
	u32 i;

	for (i = 0; i < BYTES / 4; i++)
		if (word[i] != n * 2654435761u + i)
			ck_abort_msg("object %u has a wrong word %u", n, i);
}

/* Store objects from @first on.  Return: how many are new. */
static u32 store(struct kvmm *k, u32 first, u32 nr)
{
	struct kvmm_object obj[BATCH];
	u32 i, at, n, new = 0;
	int ret;

	for (at = 0; at < nr; at += n) {
		n = min(nr - at, BATCH);
		name_all(obj, first + at, n);
		ret = kvmm_objects_create(k, obj, n, 5 * SECOND);
		ck_assert_int_ge(ret, 0);
		new += (u32)ret;
		for (i = 0; i < n; i++) {
			ck_assert(!obj[i].status || obj[i].status == -EEXIST);
			if (!obj[i].status)
				write_one(&obj[i], first + at + i);
		}
		ck_assert_int_eq(kvmm_objects_commit(k, obj, n), 0);
	}
	return new;
}

/* Load objects from @first on, and check them.  Return: how many are there. */
static u32 load(struct kvmm *k, u32 first, u32 nr)
{
	struct kvmm_object obj[BATCH];
	u32 i, at, n, found = 0;
	int ret;

	for (at = 0; at < nr; at += n) {
		n = min(nr - at, BATCH);
		name_all(obj, first + at, n);
		ret = kvmm_objects_get(k, obj, n, 5 * SECOND);
		ck_assert_int_ge(ret, 0);
		found += (u32)ret;
		for (i = 0; i < n; i++) {
			ck_assert(!obj[i].status == !!obj[i].addr);
			if (!obj[i].status)
				check_one(&obj[i], first + at + i);
		}
		ck_assert_int_eq(kvmm_objects_put(k, obj, n), 0);
	}
	return found;
}

START_TEST(test_store)
{
	struct kvmm_key keys[3] = { key_of(1), key_of(40), key_of(2) };
	struct kvmm *other = attach_with(KVMM_LIMIT_MAX);
	u8 tier[3];

	ck_assert_uint_eq(load(kv, 0, 4), 0);
	ck_assert_uint_eq(store(kv, 0, 20), 20);
	ck_assert_uint_eq(store(kv, 10, 20), 10);
	ck_assert_uint_eq(load(kv, 0, 40), 30);
	ck_assert_uint_eq(load(other, 0, 40), 30);
	ck_assert_int_eq(kvmm_objects_find(other, keys, 3, tier), 0);
	ck_assert_uint_eq(tier[0], KVMM_TIER_DEVICE);
	ck_assert_uint_eq(tier[1], KVMM_TIER_NONE);
	ck_assert_uint_eq(tier[2], KVMM_TIER_DEVICE);
	kvmm_detach(other);
}
END_TEST

/* More than the device pool holds: nothing is forgotten while the host pool has room. */
START_TEST(test_tiers)
{
	u32 n;

	for (n = 0; n < 2; n++)
		ck_assert_uint_eq(store(kv, 0, MANY), n ? 0 : MANY);
	for (n = 0; n < 3; n++)
		ck_assert_uint_eq(load(kv, 0, MANY), MANY);
}
END_TEST

START_TEST(test_delete_and_lease)
{
	struct kvmm_object obj[2] = { { .key = key_of(3) }, { .key = key_of(300) } };
	const struct kvmm_key key = key_of(5), no = key_of(500);
	struct kvmm_lease_res lease;
	u64 held;

	store(kv, 0, 8);
	ck_assert_int_eq(kvmm_objects_delete(kv, obj, 2), 0);
	ck_assert_int_eq(obj[0].status, 0);
	ck_assert_int_eq(obj[1].status, -ENOENT);
	ck_assert_uint_eq(load(kv, 0, 8), 7);
	ck_assert_int_eq(kvmm_object_lease(kv, &no, 60000, "it", &lease), -ENOENT);
	ck_assert_int_eq(kvmm_object_lease(kv, &key, 60000, "it", &lease), 0);
	store(kv, 1000, 400);		/* more than all tiers hold */
	ck_assert_uint_lt(load(kv, 0, 8), 8);
	ck_assert_uint_eq(load(kv, 5, 1), 1);
	held = lease.seq;
	ck_assert_int_eq(kvmm_seq_close(kv, &held, 1), 0);
}
END_TEST

/* Objects that are held stay where they are, whatever others take. */
START_TEST(test_held)
{
	struct kvmm *other = attach_with(KVMM_LIMIT_MAX);
	struct kvmm_object obj[BATCH];
	u32 i;

	store(kv, 0, BATCH);
	name_all(obj, 0, BATCH);
	ck_assert_int_eq(kvmm_objects_get(kv, obj, BATCH, SECOND), (int)BATCH);
	store(other, 1000, MANY);
	for (i = 0; i < BATCH; i++)
		check_one(&obj[i], i);
	ck_assert_int_eq(kvmm_objects_delete(other, obj + 1, 1), 0);
	check_one(&obj[0], 0);
	name_all(obj, 0, BATCH);
	ck_assert_int_eq(kvmm_objects_put(kv, obj, BATCH), 0);
	kvmm_detach(other);
}
END_TEST

START_TEST(test_bad)
{
	struct kvmm_object obj[KVMM_OBJECTS_MAX + 1] = { { .status = 0 } };
	struct kvmm_object two[2] = { { .key = key_of(9) }, { .key = key_of(9) } };
	struct kvmm_object held[2][1] = { { { .key = key_of(1) } }, { { .key = key_of(2) } } };
	struct kvmm_params p = { .domain = "x" };

	ck_assert_int_eq(kvmm_objects_layout(&p, 0), -EINVAL);
	ck_assert_int_eq(kvmm_objects_layout(&p, 4095), -EINVAL);
	ck_assert_int_eq(kvmm_objects_layout(&p, 8ull << 30), -EINVAL);
	ck_assert_int_eq(kvmm_objects_get(kv, obj, KVMM_OBJECTS_MAX + 1, 0), -E2BIG);
	ck_assert_int_eq(kvmm_objects_get(kv, obj, 0, 0), 0);
	ck_assert_int_eq(kvmm_objects_create(kv, two, 2, SECOND), 1);
	ck_assert_int_eq(two[1].status, -EINVAL);
	/* It is given up, so it is not there. */
	ck_assert_int_eq(kvmm_objects_put(kv, two, 2), 0);
	ck_assert_uint_eq(load(kv, 9, 1), 0);
	/* More than the pool holds at once. */
	name_all(obj, 0, KVMM_OBJECTS_MAX);
	ck_assert_int_gt(kvmm_objects_create(kv, obj, KVMM_OBJECTS_MAX, SECOND / 10), 0);
	ck_assert_int_eq(obj[KVMM_OBJECTS_MAX - 1].status, 0);
	ck_assert_int_eq(kvmm_objects_create(kv, held[0], 1, SECOND / 10), 0);
	ck_assert_int_eq(held[0][0].status, -EAGAIN);
	ck_assert_int_eq(kvmm_objects_put(kv, obj, KVMM_OBJECTS_MAX), 0);
	/* As many arrays as steps. */
	ck_assert_int_eq(kvmm_objects_create(kv, held[0], 1, SECOND), 1);
	ck_assert_int_eq(kvmm_objects_create(kv, held[1], 1, SECOND), 1);
	ck_assert_int_eq(kvmm_objects_create(kv, two, 1, SECOND), -EBUSY);
	/* In their order alone they are committed; they are put in any. */
	ck_assert_int_eq(kvmm_objects_commit(kv, held[1], 1), -EBUSY);
	ck_assert_ptr_nonnull(held[1][0].addr);
	ck_assert_int_eq(kvmm_objects_put(kv, held[1], 1), 0);
	ck_assert_int_eq(kvmm_objects_create(kv, two, 1, SECOND), -EBUSY);
	write_one(&held[0][0], 1);
	ck_assert_int_eq(kvmm_objects_commit(kv, held[0], 1), 0);
	ck_assert_uint_eq(load(kv, 1, 2), 1);
	ck_assert_int_eq(kvmm_objects_create(kv, two, 1, SECOND), 1);
	ck_assert_int_eq(kvmm_objects_put(kv, two, 1), 0);
}
END_TEST

/* kvmm is killed while objects are held for reading and for writing. */
START_TEST(test_death)
{
	struct kvmm_object old[BATCH], new[BATCH];
	u32 i, n;

	for (n = 0; n < 4; n++) {
		store(kv, 0, BATCH);
		name_all(old, 0, BATCH);
		name_all(new, 100 + n * BATCH, BATCH);
		ck_assert_int_eq(kvmm_objects_get(kv, old, BATCH, SECOND), (int)BATCH);
		ck_assert_int_eq(kvmm_objects_create(kv, new, BATCH, SECOND), (int)BATCH);
		ck_assert_int_eq(kill(rig_daemon(&rig), SIGKILL), 0);
		for (i = 0; i < BATCH; i++)
			write_one(&new[i], 100 + n * BATCH + i);
		ck_assert_int_eq(kvmm_confirm(kv), 0);
		for (i = 0; i < BATCH; i++)
			check_one(&old[i], i);
		ck_assert_msg(!kvmm_objects_put(kv, old, BATCH), "%s",
			      kvmm_strerror_attach(kv));
		ck_assert_int_eq(kvmm_objects_commit(kv, new, BATCH), 0);
		for (i = 0; i < BATCH; i++)
			ck_assert_int_eq(new[i].status, 0);
		ck_assert_uint_eq(load(kv, 100 + n * BATCH, BATCH), BATCH);
		/* A daemon that dies at once again is not adopted for ever. */
		nap_ms(700);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("it_objects");
	TCase *tc = tcase_create("objects");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_store);
	tcase_add_test(tc, test_tiers);
	tcase_add_test(tc, test_delete_and_lease);
	tcase_add_test(tc, test_held);
	tcase_add_test(tc, test_bad);
	tcase_add_test(tc, test_death);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
