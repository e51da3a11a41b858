// SPDX-License-Identifier: Apache-2.0
/*
 * check_swapd.c - sums, slot headers, superblocks, devices in use, old rings
 *
 * it_swapd.c tests them in swapd under a real kvmm-hold.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "kvmm/hold/swap_ring.h"
#include "swapd/crc32c.h"
#include "swapd/inuse.h"
#include "swapd/slot.h"
#include "swapd/super.h"

#define PAYLOAD	30000

static u64 rng = 12345;

static u32 below(u32 n)
{
	rng = rng * 6364136223846793005ull + 1442695040888963407ull;
	return (u32)((rng >> 33) % n);
}

static void fill(u8 *p, size_t len)
{
	size_t i;

	for (i = 0; i < len; i++)
		p[i] = (u8)below(256);
}

/* Bit by bit, by the definition of the polynomial. */
static u32 crc_slow(const u8 *p, size_t len)
{
	u32 crc = ~0u, k;

	for (; len; p++, len--) {
		crc ^= *p;
		for (k = 0; k < 8; k++)
			crc = crc & 1 ? 0x82f63b78u ^ (crc >> 1) : crc >> 1;
	}
	return ~crc;
}

/* ---- sums ---- */

/* The examples of RFC 3720, and the usual check value. */
START_TEST(test_crc_known)
{
	u8 b[32];
	u32 i;

	crc32c_init(_i);
	ck_assert_uint_eq(crc32c(0, "123456789", 9), 0xe3069283);
	ck_assert_uint_eq(crc32c(0, "", 0), 0);
	memset(b, 0, sizeof(b));
	ck_assert_uint_eq(crc32c(0, b, sizeof(b)), 0x8a9136aa);
	memset(b, 0xff, sizeof(b));
	ck_assert_uint_eq(crc32c(0, b, sizeof(b)), 0x62a8ab43);
	for (i = 0; i < 32; i++)
		b[i] = (u8)i;
	ck_assert_uint_eq(crc32c(0, b, sizeof(b)), 0x46dd794e);
	for (i = 0; i < 32; i++)
		b[i] = (u8)(31 - i);
	ck_assert_uint_eq(crc32c(0, b, sizeof(b)), 0x113fdb5c);
}
END_TEST

/* Every length around the sizes of pieces, every alignment, any cut. */
START_TEST(test_crc_shapes)
{
	static u8 b[64 << 10];
	u32 i;

	crc32c_init(_i);
	fill(b, sizeof(b));
	for (i = 0; i < 3000; i++) {
		u32 at = below(64);
		u32 len = i < 1600 ? i : below(sizeof(b) - 64);
		u32 cut = below(len + 1), whole = crc_slow(b + at, len);

		ck_assert_uint_eq(crc32c(0, b + at, len), whole);
		ck_assert_uint_eq(crc32c(crc32c(0, b + at, cut), b + at + cut,
					 len - cut), whole);
	}
}
END_TEST

/* ---- slots ---- */

static u8 slot[SWAPD_HEADER_BYTES + PAYLOAD + 8]
	__attribute__((aligned(SWAPD_ALIGN)));
static const u8 uuid[SWAPD_UUID_LEN] = "0123456789abcde";

static struct swapd_req request(void)
{
	return (struct swapd_req){
		.op = SWAPD_WRITE, .area_off = 8 << 20, .len = 64 << 10,
		.payload_len = PAYLOAD, .domain = 3, .hash = { 11, 12 },
		.generation = 77,
	};
}

static int judge(const struct swapd_req *r, const u8 *id)
{
	enum swapd_counter c = NR_SWAPD_COUNTERS;
	int err = slot_check(slot, r, id, &c);

	ck_assert_int_eq(err, c == NR_SWAPD_COUNTERS ? 0 : -EBADMSG);
	return c == NR_SWAPD_COUNTERS ? -1 : (int)c;
}

static void sealed(struct swapd_req *r)
{
	crc32c_init(false);
	*r = request();
	fill(slot, sizeof(slot));
	slot_seal(slot, r, uuid);
	ck_assert_int_eq(judge(r, uuid), -1);
}

START_TEST(test_slot_bits)
{
	struct swapd_req r;
	u32 i, at;
	u8 bit;

	sealed(&r);
	for (i = 0; i < SWAPD_HEADER_BYTES + 4000; i++) {
		at = i < SWAPD_HEADER_BYTES ? i :
		     SWAPD_HEADER_BYTES + below(PAYLOAD);
		bit = (u8)(1u << below(8));
		slot[at] ^= bit;
		ck_assert_int_eq(judge(&r, uuid), at < 8 ? SWAPD_CNT_bad_magic :
				 at < SWAPD_HEADER_BYTES ?
				 SWAPD_CNT_bad_header_crc :
				 SWAPD_CNT_bad_payload_crc);
		slot[at] ^= bit;
	}
	/* Bytes after the payload are not checked. */
	slot[SWAPD_HEADER_BYTES + PAYLOAD] ^= 1;
	ck_assert_int_eq(judge(&r, uuid), -1);
}
END_TEST

START_TEST(test_slot_identity)
{
	const u8 other[SWAPD_UUID_LEN] = "0123456789abcdf";
	struct swapd_req r, q;

	sealed(&r);
	ck_assert_int_eq(judge(&r, other), SWAPD_CNT_bad_area);
	q = r;
	q.area_off += SWAPD_ALIGN;
	ck_assert_int_eq(judge(&q, uuid), SWAPD_CNT_bad_offset);
	q = r;
	q.domain = 0;
	ck_assert_int_eq(judge(&q, uuid), SWAPD_CNT_bad_domain);
	q = r;
	q.generation++;
	ck_assert_int_eq(judge(&q, uuid), SWAPD_CNT_bad_generation);
	q = r;
	q.hash[0]++;
	ck_assert_int_eq(judge(&q, uuid), SWAPD_CNT_bad_hash);
	q = r;
	q.hash[1]++;
	ck_assert_int_eq(judge(&q, uuid), SWAPD_CNT_bad_hash);
	q = r;
	q.payload_len--;
	ck_assert_int_eq(judge(&q, uuid), SWAPD_CNT_bad_length);
	slot_blank(slot);
	ck_assert_int_eq(judge(&r, uuid), SWAPD_CNT_bad_magic);
}
END_TEST

/* A header of another version, with a correct sum. */
START_TEST(test_slot_version)
{
	struct slot_header *h = (void *)slot;
	struct swapd_req r;

	sealed(&r);
	h->version = 99;
	h->header_crc = 0;
	h->header_crc = crc_slow(slot, SWAPD_HEADER_BYTES);
	ck_assert_int_eq(judge(&r, uuid), SWAPD_CNT_bad_version);
}
END_TEST

/* ---- superblocks ---- */

START_TEST(test_super)
{
	static struct sd_super a, b;
	u8 *p = (u8 *)&a;
	u32 i;

	crc32c_init(false);
	ck_assert_int_eq(super_make(&a, 1 << 30, 5), 0);
	ck_assert_int_eq(super_make(&b, 1 << 30, 5), 0);
	ck_assert_int_eq(super_check(&a), 0);
	ck_assert_uint_eq(a.bytes, 1 << 30);
	ck_assert_uint_eq(a.epoch, 5);
	ck_assert_uint_eq(a.data_off, SWAPD_RESERVED_BYTES);
	ck_assert(memcmp(a.uuid, b.uuid, sizeof(a.uuid)));
	for (i = 0; i < SUPER_BYTES; i++) {
		p[i] ^= 4;
		ck_assert_int_eq(super_check(&a), i < 8 ? -ENOENT : -EBADMSG);
		p[i] ^= 4;
	}
	a.version = 2;
	a.crc = 0;
	a.crc = crc_slow(p, SUPER_BYTES);
	ck_assert_int_eq(super_check(&a), -EPROTONOSUPPORT);
}
END_TEST

/* ---- devices ---- */

static bool root_is_mounted(void)
{
	char line[4096], dir[4096];
	FILE *f = fopen("/proc/self/mounts", "r");
	bool found = false;

	while (f && !found && fgets(line, sizeof(line), f))
		found = sscanf(line, "%*s %4095s", dir) == 1 &&
			!strcmp(dir, "/");
	if (f)
		fclose(f);
	return found;
}

START_TEST(test_device_in_use)
{
	char who[128] = "";
	struct stat st;

	ck_assert_int_eq(stat("/", &st), 0);
	/*
	 * A root without a device has the major number 0; the root of a chroot
	 * may be in no table of mounts.
	 */
	if (root_is_mounted())
		ck_assert(device_in_use(st.st_dev, who, sizeof(who)) ||
			  !major(st.st_dev));
	else
		printf("not checked: / is in no table of mounts (chroot)\n");
	if (who[0])
		ck_assert_ptr_nonnull(strstr(who, "mounted on /"));
	ck_assert(!device_in_use(makedev(4095, 12345), who, sizeof(who)));
}
END_TEST

/* ---- the ring of a dead swapd ---- */

/*
 * Three entries are consumed, and one completion was taken; two more entries
 * are prepared.
 */
START_TEST(test_old_ring)
{
	struct swap_ring r;
	int params, i;
	u64 id;
	s32 res;

	i = swap_ring_make(&r, 5, &params);
	if (i) {
		printf("note: no io_uring here: %s\n", strerror(-i));
		ck_assert_int_eq(params, -1);
		ck_assert(!swap_ring_peek(&r, &id, &res));
		ck_assert_uint_eq(swap_ring_left(&r), 0);
		return;
	}
	for (i = 0; i < 5; i++) {
		struct io_uring_sqe *sqe = io_uring_get_sqe(&r.ring);

		io_uring_prep_nop(sqe);
		sqe->user_data = 100 + (u64)i;
		if (i == 2)
			ck_assert_int_eq(io_uring_submit(&r.ring), 3);
		r.ring.sq.array[i] = (unsigned int)i;
	}
	store_release(r.ring.sq.ktail, 5u);
	io_uring_cq_advance(&r.ring, 1);

	swap_ring_settle(&r);
	for (i = 1; i < 3; i++) {
		ck_assert_uint_eq(swap_ring_left(&r), 3 - (u32)i);
		ck_assert(swap_ring_peek(&r, &id, &res));
		ck_assert_uint_eq(id, 100 + (u64)i);
		ck_assert_int_eq(res, 0);
		swap_ring_take(&r);
	}
	ck_assert_uint_eq(swap_ring_left(&r), 0);
	ck_assert(!swap_ring_peek(&r, &id, &res));
	swap_ring_close(&r);
	ck_assert_uint_eq(swap_ring_left(&r), 0);
	close(params);
}
END_TEST

/* The ring itself refuses all but transfers, which the filter on system calls cannot do. */
START_TEST(test_ring_refuses)
{
	int params, err, fd = -1;
	struct io_uring_sqe *sqe;
	struct io_uring_cqe *cqe;
	struct swap_ring r;

	if (swap_ring_make(&r, 5, &params)) {
		printf("note: no io_uring here: not tried\n");
		return;
	}
	sqe = io_uring_get_sqe(&r.ring);
	switch (_i) {
	case 0:
		io_uring_prep_openat(sqe, -1, "/etc/passwd", O_RDONLY, 0);
		break;
	case 1:
		io_uring_prep_connect(sqe, 0, NULL, 0);
		break;
	case 2:
		io_uring_prep_nop(sqe);
		sqe->flags |= IOSQE_IO_LINK;
		break;
	default:
		io_uring_prep_nop(sqe);
		break;
	}
	ck_assert_int_eq(io_uring_submit(&r.ring), 1);
	ck_assert_int_eq(io_uring_wait_cqe(&r.ring, &cqe), 0);
	ck_assert_int_eq(cqe->res, _i < 3 ? -EACCES : 0);
	io_uring_cqe_seen(&r.ring, cqe);
	err = io_uring_register_eventfd(&r.ring, fd);
	ck_assert_int_eq(err, -EACCES);
	swap_ring_close(&r);
	close(params);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("swapd");
	TCase *tc = tcase_create("parts");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 30);
	tcase_add_loop_test(tc, test_crc_known, 0, 2);
	tcase_add_loop_test(tc, test_crc_shapes, 0, 2);
	tcase_add_test(tc, test_slot_bits);
	tcase_add_test(tc, test_slot_identity);
	tcase_add_test(tc, test_slot_version);
	tcase_add_test(tc, test_super);
	tcase_add_test(tc, test_device_in_use);
	tcase_add_test(tc, test_old_ring);
	tcase_add_loop_test(tc, test_ring_refuses, 0, 4);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
