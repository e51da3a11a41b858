// SPDX-License-Identifier: Apache-2.0
/*
 * check_swapd_shim.c - the disk that lies: its rules and their effects
 *
 * it_faults.c tests that swapd finds all faults.  Here each kind of fault must
 * have the effect of its name, inside the area, and no effect if the shim is
 * off.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <kvmm/clock.h>

#include "swapd/daemon.h"
#include "swapd/shim.h"
#include "swapd/slot.h"
#include "tests/unit/page.h"

#define LEN	(16u << 10)
#define SLOTS	8u

static struct swapd sd;
static struct sd_io io;
static char text[256];
static u8 pool[LEN] __attribute__((aligned(4096)));
static u8 disk[LEN] __attribute__((aligned(4096)));

static void setup(void)
{
	struct sd_area *a = &sd.area[2];

	memset(&sd, 0, sizeof(sd));
	sd.pool = pool;
	sd.pool_bytes = sizeof(pool);
	a->state = SD_AREA_LIVE;
	a->fd = memfd_create("area", MFD_CLOEXEC);
	a->usable_off = SWAPD_RESERVED_BYTES;
	a->usable_bytes = SLOTS * LEN;
	ck_assert_int_eq(ftruncate(a->fd, (off_t)(a->usable_off +
						  a->usable_bytes)), 0);
}

static void teardown(void)
{
	close(sd.area[2].fd);
}

static int arm(const char *fmt, const char *kind)
{
	char spec[128];

	snprintf(spec, sizeof(spec), fmt, kind);
	text[0] = '\0';
	return shim_init(spec, text, sizeof(text));
}

/* A request for slot @n, as io.c hands it over. */
static void order(u32 op, u32 n)
{
	const u64 off = SWAPD_RESERVED_BYTES + (u64)n * LEN;

	memset(&io, 0, sizeof(io));
	io.req = (struct swapd_req){
		.op = op, .area = 2, .area_off = off, .len = LEN,
		.payload_len = LEN - SWAPD_HEADER_BYTES,
	};
	io.xfer = (struct sd_xfer){
		.area_off = off, .len = LEN, .kind = SHIM_NONE,
	};
	if (shim_on)
		shim_plan(&sd, &io);
}

/* Do the planned transfer as the kernel would. */
static s64 transfer(void)
{
	const struct sd_xfer *x = &io.xfer;
	const int fd = sd.area[2].fd;
	s64 n = 0;

	if (x->len)
		n = io.req.op == SWAPD_READ ?
		    pread(fd, pool, x->len, (off_t)x->area_off) :
		    pwrite(fd, pool, x->len, (off_t)x->area_off);
	return shim_end(&sd, &io, n);
}

static s64 go(u32 op, u32 n)
{
	order(op, n);
	return transfer();
}

/* Number of bits in which the disk's slot differs from the pool's. */
static u32 bits_off(u32 n, u32 from, u32 to)
{
	u32 i, bits = 0;

	ck_assert_int_eq(pread(sd.area[2].fd, disk, LEN,
			       (off_t)(SWAPD_RESERVED_BYTES + n * LEN)), LEN);
	for (i = from; i < to; i++)
		bits += (u32)__builtin_popcount(disk[i] ^ pool[i]);
	return bits;
}

static void fill(u8 with)
{
	memset(pool, with, sizeof(pool));
}

START_TEST(test_off)
{
	ck_assert_int_eq(shim_init(NULL, text, sizeof(text)), 0);
	ck_assert(!shim_on);
	ck_assert_int_eq(shim_init("", text, sizeof(text)), 0);
	ck_assert(!shim_on);
}
END_TEST

static const char * const wrong[] = {
	"nonsense", "rate=1001", "rate=", "rate=-1", "seed=x", "kinds=",
	"kinds=eio+", "kinds=eoi", "delay=0", "eio", "tally=/nowhere/at/all",
	"seed=1,,rate=2,x=3", "area=32", "rate=1;rate=1001", ";;x",
};

START_TEST(test_wrong)
{
	/* An empty name in a list is ignored. */
	if (!strcmp(wrong[_i], "kinds=eio+")) {
		ck_assert_int_eq(arm("%s", wrong[_i]), 0);
		return;
	}
	ck_assert_int_eq(arm("%s", wrong[_i]), -EINVAL);
	ck_assert_ptr_nonnull(strstr(text, SHIM_ENV));
	ck_assert(!shim_on);
}
END_TEST

START_TEST(test_rate)
{
	u32 i, n = 0;

	ck_assert_int_eq(arm("seed=3,rate=250,kinds=%s", "eio"), 0);
	for (i = 0; i < 4000; i++)
		n += go(SWAPD_WRITE, i % SLOTS) == -EIO;
	ck_assert_uint_gt(n, 850);
	ck_assert_uint_lt(n, 1150);
	ck_assert_int_eq(arm("seed=3,rate=0,kinds=%s", "eio"), 0);
	for (i = 0; i < 1000; i++)
		ck_assert_int_eq(go(SWAPD_WRITE, i % SLOTS), LEN);
}
END_TEST

/* The same seed draws the same faults. */
START_TEST(test_seed)
{
	u32 kind[2][200], i, n;

	for (n = 0; n < 2; n++) {
		ck_assert_int_eq(arm("seed=11,rate=500%s", ""), 0);
		for (i = 0; i < 200; i++) {
			order(SWAPD_WRITE, i % SLOTS);
			kind[n][i] = io.xfer.kind;
		}
	}
	ck_assert_mem_eq(kind[0], kind[1], sizeof(kind[0]));
}
END_TEST

START_TEST(test_told)
{
	ck_assert_int_eq(arm("rate=1000,kinds=%s", "eio"), 0);
	ck_assert_int_eq(go(SWAPD_READ, 1), -EIO);
	ck_assert_int_eq(arm("rate=1000,kinds=%s", "enospc"), 0);
	ck_assert_int_eq(go(SWAPD_WRITE, 1), -ENOSPC);
	/* A read never fails with ENOSPC. */
	ck_assert_int_eq(go(SWAPD_READ, 1), LEN);
	ck_assert_int_eq(arm("rate=1000,kinds=%s", "cut"), 0);
	ck_assert_int_gt(go(SWAPD_READ, 1), 0);
	ck_assert_int_lt(go(SWAPD_READ, 1), LEN);
}
END_TEST

START_TEST(test_lost)
{
	fill(1);
	ck_assert_int_eq(arm("rate=0%s", ""), 0);
	go(SWAPD_WRITE, 1);
	fill(2);
	ck_assert_int_eq(arm("rate=1000,kinds=%s", "lost"), 0);
	ck_assert_int_eq(go(SWAPD_WRITE, 1), LEN);
	ck_assert_uint_eq(bits_off(1, 0, LEN), 2 * LEN);
	ck_assert_int_eq(arm("rate=1000,kinds=%s", "torn"), 0);
	ck_assert_int_eq(go(SWAPD_WRITE, 1), LEN);
	ck_assert_uint_eq(bits_off(1, 0, 4096), 0);
	ck_assert_uint_eq(bits_off(1, LEN - 4096, LEN), 2 * 4096);
	ck_assert_int_eq(arm("rate=1000,kinds=%s", "hollow"), 0);
	fill(3);
	ck_assert_int_eq(go(SWAPD_READ, 1), LEN);
	ck_assert_uint_eq(pool[0], 3);
}
END_TEST

/* A wrong place is on the grid and in the area; each place but the right one occurs. */
START_TEST(test_astray)
{
	u32 i, n, hit[SLOTS] = { 0 };

	ck_assert_int_eq(arm("rate=1000,kinds=%s",
			     _i ? "astray_read" : "astray_write"), 0);
	for (i = 0; i < 1000; i++) {
		order(_i ? SWAPD_READ : SWAPD_WRITE, 3);
		n = (u32)(io.xfer.area_off - SWAPD_RESERVED_BYTES) / LEN;
		ck_assert_uint_ge(io.xfer.area_off, SWAPD_RESERVED_BYTES);
		ck_assert_uint_eq(io.xfer.area_off % LEN,
				  SWAPD_RESERVED_BYTES % LEN);
		ck_assert_uint_lt(n, SLOTS);
		hit[n]++;
	}
	for (i = 0; i < SLOTS; i++)
		ck_assert_int_eq(hit[i] > 0, i != 3);
	/* If there is no other place the request goes to the right one. */
	sd.area[2].usable_bytes = LEN;
	order(_i ? SWAPD_READ : SWAPD_WRITE, 0);
	ck_assert_uint_eq(io.xfer.area_off, SWAPD_RESERVED_BYTES);
	ck_assert_uint_eq(io.xfer.kind, SHIM_NONE);
}
END_TEST

START_TEST(test_flip)
{
	u32 i;

	for (i = 0; i < 50; i++) {
		fill((u8)i);
		ck_assert_int_eq(arm("rate=1000,kinds=%s", "rot_header"), 0);
		ck_assert_int_eq(go(SWAPD_WRITE, 1), LEN);
		ck_assert_uint_eq(bits_off(1, 0, 4096), 1);
		ck_assert_uint_eq(bits_off(1, 4096, LEN), 0);
		ck_assert_int_eq(arm("rate=1000,kinds=%s", "rot_payload"), 0);
		ck_assert_int_eq(go(SWAPD_WRITE, 1), LEN);
		ck_assert_uint_eq(bits_off(1, 0, 4096), 0);
		ck_assert_uint_eq(bits_off(1, 4096, LEN), 1);
		ck_assert_int_eq(arm("rate=1000,kinds=%s", "flip_header"), 0);
		ck_assert_int_eq(go(SWAPD_READ, 1), LEN);
		ck_assert_uint_eq(bits_off(1, 0, 4096), 1);
		ck_assert_int_eq(arm("rate=1000,kinds=%s", "flip_payload"), 0);
		ck_assert_int_eq(go(SWAPD_READ, 1), LEN);
		ck_assert_uint_eq(bits_off(1, 4096, LEN), 1);
	}
}
END_TEST

/* The older write overwrites the newer one, once, and no other slot. */
START_TEST(test_late)
{
	ck_assert_int_eq(arm("rate=1000,kinds=%s", "late"), 0);
	fill(1);
	ck_assert_int_eq(go(SWAPD_WRITE, 1), LEN);
	ck_assert_uint_eq(bits_off(1, 0, LEN), 0);
	fill(3);
	ck_assert_int_eq(go(SWAPD_WRITE, 2), LEN);
	ck_assert_uint_eq(bits_off(2, 0, LEN), 0);
	ck_assert_int_eq(go(SWAPD_WRITE, 1), LEN);
	fill(1);
	ck_assert_uint_eq(bits_off(1, 0, LEN), 0);
}
END_TEST

START_TEST(test_delay)
{
	const u64 now = kv_now_ns();

	ck_assert_int_eq(arm("rate=1000,delay=7,kinds=%s", "delay"), 0);
	order(SWAPD_READ, 1);
	ck_assert_uint_gt(io.due, now);
	ck_assert_uint_lt(io.due, kv_now_ns() + 7000001);
	ck_assert_int_eq(transfer(), LEN);
}
END_TEST

/* The first rule that names the area counts; an area that no rule names is honest. */
START_TEST(test_areas)
{
	static const char * const spec[] = {
		"area=1,rate=1000,kinds=eio;area=2,rate=1000,kinds=%s",
		"area=2,area=3,rate=1000,kinds=%s;rate=1000,kinds=eio",
	};

	ck_assert_int_eq(arm(spec[_i], "hollow"), 0);
	order(SWAPD_READ, 1);
	ck_assert_uint_eq(io.xfer.kind, SHIM_hollow);
	ck_assert_int_eq(arm("area=1,rate=1000,kinds=%s", "hollow"), 0);
	order(SWAPD_READ, 1);
	ck_assert_uint_eq(io.xfer.kind, SHIM_NONE);
}
END_TEST

/* Requests outside of the area are refused elsewhere; the shim leaves them as they are. */
START_TEST(test_outside)
{
	ck_assert_int_eq(arm("rate=1000,kinds=%s", "astray_write"), 0);
	order(SWAPD_WRITE, SLOTS);
	ck_assert_uint_eq(io.xfer.kind, SHIM_NONE);
	sd.area[2].state = SD_AREA_DYING;
	order(SWAPD_WRITE, 1);
	ck_assert_uint_eq(io.xfer.kind, SHIM_NONE);
}
END_TEST

/* Documentation/swapd.md has a row for every kind. */
START_TEST(test_doc)
{
	char *page = page_read("swapd.md"), row[512];
	const u32 i = (u32)_i;

	snprintf(row, sizeof(row), "| `%s` | %s | %s |\n", shim_kind_name(i),
		 shim_kind_text(i), shim_kind_found(i));
	ck_assert_row(page, "swapd.md", row);
	ck_assert_ptr_null(shim_kind_name(NR_SHIM_KINDS));
	free(page);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("swapd-shim");
	TCase *tc = tcase_create("shim");
	SRunner *sr;
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_off);
	tcase_add_loop_test(tc, test_wrong, 0, ARRAY_SIZE(wrong));
	tcase_add_test(tc, test_rate);
	tcase_add_test(tc, test_seed);
	tcase_add_test(tc, test_told);
	tcase_add_test(tc, test_lost);
	tcase_add_loop_test(tc, test_astray, 0, 2);
	tcase_add_test(tc, test_flip);
	tcase_add_test(tc, test_late);
	tcase_add_test(tc, test_delay);
	tcase_add_loop_test(tc, test_areas, 0, 2);
	tcase_add_test(tc, test_outside);
	tcase_add_loop_test(tc, test_doc, 0, NR_SHIM_KINDS);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
