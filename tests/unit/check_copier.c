// SPDX-License-Identifier: Apache-2.0
/*
 * check_copier.c - copies of blocks between extents and the host pool
 *
 * The real thread over real extents; the test plays the mm thread.
 *
 * The first copy of a piece of an extent is by system calls, the second maps its
 * pages, and later ones use the mapping (kvmm/dev/host_map.c).  So most tests run
 * three times, after no, one and two copies of the whole pool.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <kvmm/fault.h>

#define TF_EXTENT	(1u << 20)	/* parts of blocks long enough to be streamed */

#include "kvmm/dev/host.h"
#include "tests/unit/tiers_fixture.h"

#define BLOCK	(24u << 10)
#define VISITS	3		/* copies until the mapping is used */
#define LARGE	(700u << 10)	/* streamed */

static char pattern[TF_EXTENT * 2], back[TF_EXTENT * 2];

static void setup(void)
{
	struct hostpool_ask ask = { .epoch = 1, .near = -1, .stop = -1 };
	u32 i;

	tf_setup();
	td->setup.dev.ops = &host_dev_ops;
	td->setup.dev.extent_size = TF_EXTENT;
	ck_assert_int_eq(segment_guard_init(), 0);
	ck_assert_int_eq(mapper_init(&td->mapper), 0);
	ck_assert_int_eq(host_reserve(&td->setup.dev, td->setup.cfg.pool_bytes), 0);
	for (i = 0; i < TF_EXTENTS; i++)
		ck_assert_int_eq(host_dev_ops.extent_create(&td->setup.dev, i, 1,
				 &td->extents.table[i].fd), 0);
	ask.bytes = td->setup.cfg.host_bytes;
	ck_assert_int_eq(hostpool_create(&td->setup.host, &ask), 0);
	ck_assert_int_eq(copier_init(&td->copier), 0);
	ck_assert_int_eq(copier_start(&td->copier), 0);
	for (i = 0; i < sizeof(pattern); i++)
		pattern[i] = (char)(i * 7 + i / 251);
}

static void teardown(void)
{
	ck_assert(copier_stop(&td->copier));
	copier_exit(&td->copier);
	hostpool_destroy(&td->setup.host);
	mapper_exit(&td->mapper);
	host_close(&td->setup.dev);
	tf_teardown();
}

static void arm(const char *spec)
{
	char text[128];

	ck_assert_int_eq(kv_fault_init(spec, text, sizeof(text)), 0);
}

/* Order a copy and wait for it.  Return: its status. */
static int copy(u64 id, bool to_host, u64 dev_off, u64 host_off, u64 bytes)
{
	const struct core_copy cp = {
		.nr_shards = 1,
		.id = id, .to_host = to_host, .dev_off = dev_off,
		.host_off = host_off, .bytes = bytes,
	};
	struct copy_done done;

	copier_push(&td->copier, &cp);
	while (!queue_pop(&td->copier.done, &done))
		usleep(100);
	ck_assert_uint_eq(done.id, id);
	return done.status;
}

/* Copy the whole pool @visits times, and leave the host pool zeroed. */
static void visit(int visits)
{
	u32 e;

	while (visits--)
		for (e = 0; e < TF_EXTENTS; e++)
			ck_assert_int_eq(copy(e, true, e * TF_EXTENT, 0, TF_EXTENT), 0);
	memset(td->setup.host.base, 0, TF_EXTENT);
}

static void extent_write(u32 extent, u64 off, const char *p, u64 len)
{
	ck_assert_int_eq(pwrite(td->extents.table[extent].fd, p, len, (off_t)off),
			 (ssize_t)len);
}

static void extent_read(u32 extent, u64 off, char *p, u64 len)
{
	ck_assert_int_eq(pread(td->extents.table[extent].fd, p, len, (off_t)off),
			 (ssize_t)len);
}

/* Another file in place of an extent. */
static void extent_replace(u32 extent, int fd)
{
	td->setup.dev.ops->extent_release(&td->setup.dev, extent,
					  td->extents.table[extent].fd);
	td->extents.table[extent].fd = fd;
}

START_TEST(test_out_and_in)
{
	visit(_i);
	extent_write(2, 4096, pattern, BLOCK);
	ck_assert_int_eq(copy(1, true, 2 * TF_EXTENT + 4096, 8192, BLOCK), 0);
	ck_assert_mem_eq(td->setup.host.base + 8192, pattern, BLOCK);
	ck_assert_int_eq(td->setup.host.base[8191], 0);
	ck_assert_int_eq(td->setup.host.base[8192 + BLOCK], 0);
	ck_assert_int_eq(copy(2, false, 5 * TF_EXTENT, 8192, BLOCK), 0);
	extent_read(5, 0, back, BLOCK + 16);
	ck_assert_mem_eq(back, pattern, BLOCK);
	ck_assert_int_eq(back[BLOCK], 0);
}
END_TEST

/* A slot goes to a disk in whole pages, so the rest of the last page is zeroed. */
START_TEST(test_last_page)
{
	const u64 odd = BLOCK - 4096 + 384, end = ALIGN_UP(odd, 4096ull);

	visit(_i);
	memset(td->setup.host.base, 'o', 2 * BLOCK);
	extent_write(2, 0, pattern, BLOCK);
	ck_assert_int_eq(copy(1, true, 2 * TF_EXTENT, 4096, odd), 0);
	ck_assert_mem_eq(td->setup.host.base + 4096, pattern, odd);
	memset(back, 0, sizeof(back));
	ck_assert_mem_eq(td->setup.host.base + 4096 + odd, back, end - odd);
	ck_assert_int_eq(td->setup.host.base[4095], 'o');
	ck_assert_int_eq(td->setup.host.base[4096 + end], 'o');
	/*
	 * The other way changes neither the host pool nor bytes behind the
	 * block.
	 */
	ck_assert_int_eq(copy(2, false, 5 * TF_EXTENT, 8192, odd), 0);
	extent_read(5, odd, back, 4096);
	ck_assert_int_eq(back[0], 0);
	ck_assert_int_eq(td->setup.host.base[4096 + end], 'o');
}
END_TEST

static int move(u64 id, u64 from, u64 to, u64 bytes)
{
	const struct core_copy cp = {
		.nr_shards = 1,
		.id = id, .within = true, .dev_off = from, .dev_to = to,
		.bytes = bytes,
	};
	struct copy_done done;

	copier_push(&td->copier, &cp);
	while (!queue_pop(&td->copier.done, &done))
		usleep(100);
	ck_assert_uint_eq(done.id, id);
	return done.status;
}

/* Each kind of copy has its own sums; a failed copy adds no bytes. */
START_TEST(test_counts)
{
	struct copy_counts n;

	ck_assert_int_eq(copy(1, true, 0, 0, BLOCK), 0);
	ck_assert_int_eq(copy(2, true, 0, 0, BLOCK), 0);
	ck_assert_int_eq(copy(3, false, 0, 0, BLOCK), 0);
	ck_assert_int_eq(move(4, 0, TF_EXTENT, 4096), 0);
	copier_get_counts(&td->copier, &n);
	ck_assert_uint_eq(n.copy_out_bytes, 2 * BLOCK);
	ck_assert_uint_eq(n.copy_in_bytes, BLOCK);
	ck_assert_uint_eq(n.copy_move_bytes, 4096);
	ck_assert_uint_gt(n.copy_out_ns, 0);
	ck_assert_uint_gt(n.copy_in_ns, 0);
	ck_assert_uint_gt(n.copy_move_ns, 0);
	arm("copy_in_eio");
	ck_assert_int_eq(copy(5, false, 0, 0, BLOCK), -EIO);
	copier_get_counts(&td->copier, &n);
	ck_assert_uint_eq(n.copy_in_bytes, BLOCK);
}
END_TEST

/* A move within the pool from across one extent's end to across another's. */
START_TEST(test_within)
{
	const u64 first = 5000, to = 2 * TF_EXTENT - 777;

	visit(_i);
	extent_write(3, TF_EXTENT - first, pattern, first);
	extent_write(4, 0, pattern + first, BLOCK - first);
	ck_assert_int_eq(move(1, 4 * TF_EXTENT - first, to, BLOCK), 0);
	extent_read(1, TF_EXTENT - 777, back, 777);
	extent_read(2, 0, back + 777, BLOCK - 777 + 1);
	ck_assert_mem_eq(back, pattern, BLOCK);
	ck_assert_int_eq(back[BLOCK], 0);
	extent_read(3, TF_EXTENT - first, back, first);
	ck_assert_mem_eq(back, pattern, first);
	ck_assert_int_eq(move(2, 0, td->setup.cfg.pool_bytes - 1, 2), -EFAULT);
	ck_assert_int_eq(move(3, td->setup.cfg.pool_bytes, 0, 1), -EFAULT);
	arm("copy_move_eio:1");
	ck_assert_int_eq(move(4, 0, TF_EXTENT, BLOCK), -EIO);
	ck_assert_int_eq(move(5, 0, TF_EXTENT, BLOCK), 0);
}
END_TEST

/* A block of a span begins in one extent and ends in another. */
START_TEST(test_across_extents)
{
	const u64 first = 5000, off = 3 * TF_EXTENT + TF_EXTENT - first;

	visit(_i);
	extent_write(3, TF_EXTENT - first, pattern, first);
	extent_write(4, 0, pattern + first, BLOCK - first);
	ck_assert_int_eq(copy(1, true, off, 4096, BLOCK), 0);
	ck_assert_mem_eq(td->setup.host.base + 4096, pattern, BLOCK);
	ck_assert_int_eq(copy(2, false, TF_EXTENT - 1, 4096, TF_EXTENT + 2), 0);
	extent_read(0, TF_EXTENT - 1, back, 1);
	extent_read(1, 0, back + 1, TF_EXTENT);
	extent_read(2, 0, back + 1 + TF_EXTENT, 1);
	ck_assert_mem_eq(back, td->setup.host.base + 4096, TF_EXTENT + 2);
}
END_TEST

/*
 * A client punched a hole: the copy has zeros, and neither fails nor gets a
 * signal.
 */
START_TEST(test_hole)
{
	visit(_i);
	extent_write(1, 0, pattern, BLOCK);
	ck_assert_int_eq(fallocate(td->extents.table[1].fd,
				   FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				   4096, 4096), 0);
	ck_assert_int_eq(copy(1, true, TF_EXTENT, 0, BLOCK), 0);
	ck_assert_mem_eq(td->setup.host.base, pattern, 4096);
	ck_assert_mem_eq(td->setup.host.base + 8192, pattern + 8192, BLOCK - 8192);
	memset(back, 0, 4096);
	ck_assert_mem_eq(td->setup.host.base + 4096, back, 4096);
}
END_TEST

START_TEST(test_errors)
{
	visit(_i);
	arm("copy_out_eio:2,copy_in_eio:1");
	ck_assert_int_eq(copy(1, true, 0, 0, BLOCK), 0);
	ck_assert_int_eq(copy(2, true, 0, 0, BLOCK), -EIO);
	ck_assert_int_eq(copy(3, false, 0, 0, BLOCK), -EIO);
	ck_assert_int_eq(copy(4, false, 0, 0, BLOCK), 0);
	/* Copies that no core would order. */
	ck_assert_int_eq(copy(5, true, td->setup.cfg.pool_bytes - 1, 0, 2), -EFAULT);
	ck_assert_int_eq(copy(6, true, 0, td->setup.host.bytes, 1), -EFAULT);
	ck_assert_int_eq(copy(7, true, ~0ull, ~0ull, BLOCK), -EFAULT);
	/* An extent without a descriptor. */
	close(td->extents.table[7].fd);
	td->extents.table[7].fd = -1;
	ck_assert_int_eq(copy(8, true, 7 * TF_EXTENT, 0, BLOCK), -EIO);
}
END_TEST

/* A file that ends early is an error; the copy brings no garbage. */
START_TEST(test_short)
{
	int fd = memfd_create("short", MFD_CLOEXEC);

	ck_assert_int_eq(ftruncate(fd, BLOCK - 1), 0);
	extent_replace(7, fd);
	ck_assert_int_eq(copy(1, true, 7 * TF_EXTENT, 0, BLOCK), -EIO);
}
END_TEST

/* Odd places and lengths of a block that is streamed, both ways. */
START_TEST(test_large)
{
	const u64 to = 6 * TF_EXTENT - LARGE / 2;
	u32 at;

	visit(_i);
	for (at = 0; at < 70; at += 23) {
		extent_write(2, at, pattern, LARGE - at);
		ck_assert_int_eq(copy(1, true, 2 * TF_EXTENT + at, 4096 + 7, LARGE - at), 0);
		ck_assert_mem_eq(td->setup.host.base + 4096 + 7, pattern, LARGE - at);
		ck_assert_int_eq(copy(2, false, to + at, 4096 + 7, LARGE - at), 0);
		extent_read(5, TF_EXTENT - LARGE / 2 + at, back, LARGE / 2 - at);
		extent_read(6, 0, back + LARGE / 2 - at, LARGE / 2 + 1);
		ck_assert_mem_eq(back, pattern, LARGE - at);
		ck_assert_int_eq(back[LARGE - at], 0);
	}
}
END_TEST

/* ---- mappings of extents ---- */

/* Lines with @word in a file of /proc/self, behind a line that names an extent. */
static u32 extent_lines(const char *file, const char *word)
{
	FILE *f = fopen(file, "r");
	bool ours = false;
	char line[512];
	u32 nr = 0;

	ck_assert_ptr_nonnull(f);
	while (fgets(line, sizeof(line), f)) {
		if (strchr(line, '/') || strchr(line, '['))
			ours = strstr(line, DEV_EXTENT_PREFIX);
		nr += ours && strstr(line, word);
	}
	fclose(f);
	return nr;
}

static u32 mapped_extents(void)
{
	return extent_lines("/proc/self/maps", DEV_EXTENT_PREFIX);
}

/*
 * An extent is mapped by its second copy, in no core dump, and until it is
 * released.  The next one of its number is another file, and so is its mapping.
 */
START_TEST(test_mapping)
{
	struct kvmm_dev *dev = &td->setup.dev;
	const int old = td->extents.table[2].fd;
	int fd = -1;

	ck_assert_int_eq(copy(1, true, 2 * TF_EXTENT, 0, BLOCK), 0);
	ck_assert_uint_eq(mapped_extents(), 0);
	ck_assert_int_eq(copy(2, false, 2 * TF_EXTENT, 0, BLOCK), 0);
	ck_assert_uint_eq(mapped_extents(), 1);
	ck_assert_uint_eq(extent_lines("/proc/self/smaps", " dd "), 1);
	visit(VISITS);
	ck_assert_uint_eq(mapped_extents(), TF_EXTENTS);
	extent_write(2, 0, pattern, BLOCK);

	ck_assert_int_eq(dev->ops->extent_revoke(dev, 2, old), 0);
	ck_assert_uint_eq(mapped_extents(), TF_EXTENTS - 1);
	dev->ops->extent_release(dev, 2, old);
	ck_assert_int_eq(dev->ops->extent_create(dev, 2, 2, &fd), 0);
	td->extents.table[2].fd = fd;
	visit(VISITS);
	memset(td->setup.host.base, 'o', BLOCK);
	ck_assert_int_eq(copy(3, true, 2 * TF_EXTENT, 0, BLOCK), 0);
	memset(back, 0, BLOCK);
	ck_assert_mem_eq(td->setup.host.base, back, BLOCK);
	ck_assert_uint_eq(mapped_extents(), TF_EXTENTS);
}
END_TEST

/* One thread maps an extent while another unmaps a second one; for make D=tsan. */
START_TEST(test_two_threads)
{
	struct kvmm_dev *dev = &td->setup.dev;
	struct core_copy cp = { .to_host = true, .dev_off = TF_EXTENT, .bytes = BLOCK,
				.nr_shards = 1 };
	struct copy_done done;
	u32 i, n;

	for (i = 0; i < 200; i++) {
		ck_assert_int_eq(copy(1, true, 2 * TF_EXTENT, 0, BLOCK), 0);
		ck_assert_int_eq(copy(2, true, 2 * TF_EXTENT, 0, BLOCK), 0);
		ck_assert_uint_eq(mapped_extents(), 1);
		copier_push(&td->copier, &cp);
		copier_push(&td->copier, &cp);
		host_map_forget(dev, 2);
		for (n = 0; n < 2; n += queue_pop(&td->copier.done, &done))
			;
		ck_assert_uint_eq(mapped_extents(), 1);
		host_map_forget(dev, 1);
	}
	ck_assert_uint_eq(mapped_extents(), 0);
}
END_TEST

/* Without mappings, calls copy as before. */
START_TEST(test_no_mapping)
{
	arm("extent_map");
	visit(VISITS);
	extent_write(2, 0, pattern, LARGE);
	ck_assert_int_eq(copy(1, true, 2 * TF_EXTENT, 0, LARGE), 0);
	ck_assert_int_eq(copy(2, false, 5 * TF_EXTENT, 0, LARGE), 0);
	extent_read(5, 0, back, LARGE);
	ck_assert_mem_eq(back, pattern, LARGE);
	ck_assert_uint_eq(mapped_extents(), 0);
	/* A table that was never made is no mapping either. */
	host_close(&td->setup.dev);
	ck_assert_int_eq(copy(3, true, 2 * TF_EXTENT, 8192, LARGE), 0);
	ck_assert_mem_eq(td->setup.host.base + 8192, pattern, LARGE);
}
END_TEST

/* A client punches holes all the time: its copies have its bytes or zeros. */
START_TEST(test_holes_meanwhile)
{
	const int fd = td->extents.table[1].fd;
	u32 i, k;

	visit(VISITS);
	memset(back, 'x', LARGE);
	for (i = 0; i < 200; i++) {
		struct core_copy cp = { .id = i, .to_host = i & 1, .dev_off = TF_EXTENT,
					.nr_shards = 1,
					.bytes = LARGE };
		struct copy_done done;

		copier_push(&td->copier, &cp);
		for (k = 0; !queue_pop(&td->copier.done, &done); k++)
			ck_assert_int_eq(fallocate(fd, FALLOC_FL_PUNCH_HOLE |
				FALLOC_FL_KEEP_SIZE, k % 64 * 4096, 64 * 4096), 0);
		ck_assert_int_eq(done.status, 0);
		extent_write(1, 0, back, LARGE);
	}
	for (i = 0; i < LARGE; i++)
		ck_assert(!td->setup.host.base[i] || td->setup.host.base[i] == 'x');
}
END_TEST

/*
 * The kernel has no page for an access to a mapped extent: that copy fails, the
 * next one works, and the thread gets as many such signals as come.  A file that
 * is cut short stands for memory that is gone.
 */
START_TEST(test_page_lost)
{
	const int fd = memfd_create("cut", MFD_CLOEXEC);
	int i;

	ck_assert_int_eq(ftruncate(fd, TF_EXTENT), 0);
	extent_replace(7, fd);
	visit(VISITS);
	for (i = 0; i < 3; i++) {
		ck_assert_int_eq(ftruncate(fd, 8192), 0);
		ck_assert_int_eq(copy(1, true, 7 * TF_EXTENT, 0, LARGE), -EIO);
		ck_assert_int_eq(copy(2, false, 7 * TF_EXTENT, 0, BLOCK), -EIO);
		ck_assert_int_eq(ftruncate(fd, TF_EXTENT), 0);
		extent_write(7, 0, pattern, LARGE);
		ck_assert_int_eq(copy(3, true, 7 * TF_EXTENT, 0, LARGE), 0);
		ck_assert_mem_eq(td->setup.host.base, pattern, LARGE);
	}
}
END_TEST

/* While more copies wait, the mm thread is woken now and then; after the last, too. */
START_TEST(test_wakes)
{
	struct core_copy cp = { .nr_shards = 1, .to_host = true, .bytes = 512 };
	const u32 nr = 2000;
	struct copy_done done;
	u64 n, wakes = 0;

	visit(VISITS);
	td->mm.bell = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	WRITE_ONCE(td->mm.asleep, 1);
	/* The first keeps the thread busy until all are queued. */
	arm("copy_delay:1");
	for (n = 0; n < nr; n++) {
		cp.id = n;
		copier_push(&td->copier, &cp);
	}
	for (n = 0; n < nr; n += queue_pop(&td->copier.done, &done))
		;
	usleep(20000);
	ck_assert_int_eq(read(td->mm.bell, &wakes, 8), 8);
	ck_assert_uint_ge(wakes, 1);
	ck_assert_msg(wakes < nr / 4, "%llu wakes", (unsigned long long)wakes);
	/* One after the other: each wakes, however soon after the last. */
	for (n = 0; n < 50; n++) {
		struct pollfd p = { .fd = td->mm.bell, .events = POLLIN };

		copier_push(&td->copier, &cp);
		ck_assert_int_eq(poll(&p, 1, 5000), 1);
		ck_assert_int_eq(read(td->mm.bell, &wakes, 8), 8);
		ck_assert(queue_pop(&td->copier.done, &done));
	}
	WRITE_ONCE(td->mm.asleep, 0);
	close(td->mm.bell);
	td->mm.bell = -1;
}
END_TEST

/* Many copies at once end in order, each once. */
START_TEST(test_many)
{
	struct core_copy cp = { .nr_shards = 1, .to_host = true, .bytes = 512 };
	struct copy_done done;
	u64 n, seen = 0;

	for (n = 0; n < 200; n++) {
		cp.id = n;
		cp.dev_off = n * 512;
		cp.host_off = n * 512;
		copier_push(&td->copier, &cp);
	}
	while (seen < 200) {
		if (!queue_pop(&td->copier.done, &done)) {
			usleep(100);
			continue;
		}
		ck_assert_uint_eq(done.id, seen++);
		ck_assert_int_eq(done.status, 0);
	}
	ck_assert(!copier_waits(&td->copier));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("copier");
	TCase *tc = tcase_create("copies");
	SRunner *sr;
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, test_out_and_in, 0, VISITS);
	tcase_add_loop_test(tc, test_last_page, 0, VISITS);
	tcase_add_test(tc, test_counts);
	tcase_add_loop_test(tc, test_within, 0, VISITS);
	tcase_add_loop_test(tc, test_across_extents, 0, VISITS);
	tcase_add_loop_test(tc, test_hole, 0, VISITS);
	tcase_add_loop_test(tc, test_errors, 0, VISITS);
	tcase_add_test(tc, test_short);
	tcase_add_test(tc, test_many);
	tcase_add_loop_test(tc, test_large, 0, VISITS);
	tcase_add_test(tc, test_mapping);
	tcase_add_test(tc, test_two_threads);
	tcase_add_test(tc, test_no_mapping);
	tcase_add_test(tc, test_holes_meanwhile);
	tcase_add_test(tc, test_page_lost);
	tcase_add_test(tc, test_wakes);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
