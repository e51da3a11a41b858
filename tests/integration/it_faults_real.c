// SPDX-License-Identifier: Apache-2.0
/*
 * it_faults_real.c - files and devices that really fail, under a real swapd
 *
 * A FUSE server of the test keeps the area's file and lies, with and without a
 * loop device over it.  A small file system fills up while its area is sparse.
 * A file is cut, and the file of a loop device.  The server of a file ends in
 * the middle, and with it the disk.  Each scene runs first under a fake kvmm
 * that knows every block, then under the real one with two runtimes.
 *
 * A note tells which scenes this machine cannot run.
 *
 * budget: 60 s, full 300 s
 * from: full
 */
#include <check.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/integration/faults_load.h"
#include "tests/integration/scene_drive.h"
#include "tests/integration/swap_scenes.h"
#include "tests/integration/throttle.h"

#include "swapd/shim.h"

#define AREA_BYTES	(16u << 20)

static char path[200];		/* of the file that fails */
static struct throttle disk = { .how = "", .loop = -1 };
static struct shim_tally *tally;

/* ---- disks ---- */

static void tally_make(void)
{
	char name[200];
	int fd;

	snprintf(name, sizeof(name), "%s/tally", scene_dir);
	fd = open(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, sizeof(*tally)), 0);
	tally = mmap(NULL, sizeof(*tally), PROT_READ | PROT_WRITE, MAP_SHARED,
		     fd, 0);
	ck_assert(tally != MAP_FAILED);
	close(fd);
	setenv("SCENE_TALLY", name, 1);
}

/* Hide the mounts of this test from other processes, where that is possible. */
static void mounts_own(void)
{
	if (unshare(CLONE_NEWNS) ||
	    mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL))
		printf("note: mounts are seen by all (chroot, or not root)\n");
}

static bool file_make(const char *name, u64 bytes)
{
	int fd;
	bool ok;

	snprintf(path, sizeof(path), "%s/%s", scene_dir, name);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	ok = fd >= 0 && !ftruncate(fd, (off_t)bytes);
	if (fd >= 0)
		close(fd);
	return ok;
}

static void file_leave(void)
{
	if (disk.loop >= 0)
		close(disk.loop);
	disk.loop = -1;
	umount2(path, MNT_DETACH);
	if (disk.server > 0) {
		kill(disk.server, SIGKILL);
		waitpid(disk.server, NULL, 0);
	}
	disk.server = 0;
}

/*
 * Serve a file that lies, with or without a loop device over it.  Return: path
 * for the area; NULL, after a note, where this machine does not allow it.
 */
static const char *file_serve(u32 rate, u32 delay_ms, u64 room, bool loop)
{
	struct bad_file bad;

	tally_make();
	bad = (struct bad_file){
		.tally = tally, .rate = rate, .delay_ms = delay_ms,
		.room = room,
	};
	mounts_own();
	if (file_make("fuse", 0))
		disk.server = bad_file_serve(path, AREA_BYTES, &bad);
	if (disk.server <= 0) {
		printf("note: a FUSE file that fails is not tried: /dev/fuse, or the right to mount, is missing\n");
		return NULL;
	}
	if (!loop)
		return path;
	if (throttle_loop(&disk, path))
		return disk.device;
	printf("note: a loop device over FUSE is not tried: there is no loop device\n");
	file_leave();
	return NULL;
}

static unsigned long long tally_sum(void)
{
	unsigned long long n = 0;
	u32 i;

	for (i = 0; i < NR_SHIM_KINDS; i++)
		n += READ_ONCE(tally->done[i]);
	return n;
}

static void seen_print(const struct faults_seen *s, const char *what)
{
	printf("total: %s, under two runtimes: pswpout %lld, pswpin %lld, %lld reads and %lld writes failed, %lld blocks lost, %u areas went by themselves, %u in the end unread: %u pairs of texts the same, the daemon answered within %u ms, 0 slots leaked\n",
	       what, (long long)s->out, (long long)s->in,
	       (long long)s->read_errors, (long long)s->write_errors,
	       (long long)s->lost, s->gone, s->cut_off, s->texts,
	       s->answer_ms);
}

/* ---- a fake kvmm, that knows every block ---- */

static const struct {
	u32	engine;
	bool	loop;
} scenes[] = { { 0, false }, { 1, false }, { 0, true }, { 1, true } };

START_TEST(test_file_lies)
{
	const u32 faults = by_level(30 / time_scale(), 2000, 5000);
	const bool loop = scenes[_i].loop;
	const char *area = file_serve(150, 20, 0, loop);
	char *log, *line;

	if (!area)
		return;
	setenv(SCENE_AREA, area, 1);
	scene_run("faults", scene_engine((int)scenes[_i].engine), faults);
	unsetenv(SCENE_AREA);
	log = scene_log();
	line = strstr(log, FAULTS_TALLY_HEAD);
	ck_assert(line);
	printf("total: %s over FUSE, engine %u: %.*s\n",
	       loop ? "loop device" : "file", scenes[_i].engine,
	       (int)strcspn(line, "\n"), line);
	free(log);
	ck_assert_uint_gt(tally->done[SHIM_eio], 0);
	ck_assert_uint_gt(tally->done[SHIM_torn], 0);
	ck_assert_uint_gt(tally->done[SHIM_lost], 0);
	ck_assert_uint_gt(tally->done[SHIM_flip_payload], 0);
	file_leave();
}
END_TEST

/* ---- the real kvmm ---- */

/* The text is the same on a file that lies, and on a device over it. */
START_TEST(test_text_on_a_file_that_lies)
{
	const char *area = file_serve(80, 500, 0, _i);
	struct faults_seen seen = { 0 };
	unsigned long long faults;
	u32 n;

	if (!area)
		return;
	faults_start(area, _i ? "sync" : "auto");
	for (n = 0; n < by_level(1, 6, 30) || !tally_sum(); n++)
		faults_load(&seen, NULL);
	faults = tally_sum();
	tally->off = 1;
	faults_end(&seen);
	file_leave();
	printf("  %llu faults\n", faults);
	seen_print(&seen, _i ? "a loop device over a FUSE file that lies" :
			  "a FUSE file that lies");
}
END_TEST

/* The area is sparse, and the disk below it fills up. */
START_TEST(test_file_fills_up)
{
	const char *area = file_serve(0, 1, 3u << 20, false);
	struct faults_seen seen = { .dead = true };

	if (!area)
		return;
	faults_start(area, "auto");
	while (!faults_logged(FAULTS_GOES) && seen.texts < 20)
		faults_load(&seen, NULL);
	ck_assert_uint_gt(tally->done[SHIM_enospc], 0);
	ck_assert_uint_eq(faults_logged("found no room, the first at"), 1);
	ck_assert_uint_eq(faults_logged(FAULTS_GOES), 1);
	faults_end(&seen);
	file_leave();
	seen_print(&seen, "a FUSE file without room for its area");
}
END_TEST

/* The same on a file system without preallocation: other files fill it. */
START_TEST(test_small_file_system)
{
	struct faults_seen seen = { .dead = true };
	char cmd[1000], area[200];

	mounts_own();
	snprintf(path, sizeof(path), "%s/mnt", scene_dir);
	snprintf(area, sizeof(area), "%s/mnt/area", scene_dir);
	snprintf(cmd, sizeof(cmd),
		 "cd '%s' && truncate -s 20M disk && mkfs.ext2 -q -F -m 0 disk 2>/dev/null && mkdir mnt && mount -o loop disk mnt 2>/dev/null",
		 scene_dir);
	if (system(cmd)) {
		printf("note: a small file system is not tried: mkfs.ext2, a loop device or the right to mount is missing\n");
		return;
	}
	faults_start(area, "auto");
	ck_assert_uint_eq(faults_logged("cannot reserve room"), 2);
	snprintf(cmd, sizeof(cmd), "cat /dev/zero >'%s/filler' 2>/dev/null",
		 path);
	ck_assert_int_ne(system(cmd), 0);
	while (!faults_logged(FAULTS_GOES) && seen.texts < 20)
		faults_load(&seen, NULL);
	ck_assert_uint_eq(faults_logged("found no room, the first at"), 1);
	ck_assert_uint_eq(faults_logged(FAULTS_GOES), 1);
	faults_end(&seen);
	ck_assert_int_eq(umount(path), 0);
	seen_print(&seen, "an ext2 that others fill");
}
END_TEST

static u32 cuts;

/* Every 150 ms the file, or the file under the device, loses its content. */
static void cut(u32 ms)
{
	if (ms / 150 <= cuts)
		return;
	cuts++;
	ck_assert_int_eq(truncate(path, 1u << 20), 0);
	if (disk.loop >= 0)
		ck_assert_int_eq(truncate(path, AREA_BYTES), 0);
}

START_TEST(test_file_is_cut)
{
	struct faults_seen seen = { 0 };

	ck_assert(file_make("cut", AREA_BYTES));
	if (_i && !throttle_loop(&disk, path)) {
		printf("note: a loop device whose file is cut is not tried: there is none here\n");
		return;
	}
	faults_start(_i ? disk.device : path, "auto");
	do {
		cuts = 0;
		faults_load(&seen, cut);
	} while (!rig_value(&faults_rig, "vmstat", "swap_read_error") &&
		 seen.texts < 20);
	faults_end(&seen);
	if (disk.loop >= 0)
		close(disk.loop);
	ck_assert_int_gt(seen.read_errors, 0);
	printf("  cut %u times\n", cuts);
	seen_print(&seen, _i ? "a loop device whose file is cut" :
			  "a file that is cut");
}
END_TEST

/* The disk vanishes once it is in use. */
static void vanish(u32 ms)
{
	if (disk.server <= 0 ||
	    rig_value(&faults_rig, "vmstat", "pswpout") < 20)
		return;
	kill(disk.server, SIGKILL);
	waitpid(disk.server, NULL, 0);
	disk.server = 0;
}

START_TEST(test_disk_vanishes)
{
	const char *area = file_serve(0, 1, 0, _i);
	struct faults_seen seen = { .dead = true };

	if (!area)
		return;
	faults_start(area, "auto");
	while (!faults_logged(FAULTS_GOES) && seen.texts < 20)
		faults_load(&seen, vanish);
	ck_assert_int_eq(disk.server, 0);
	ck_assert_uint_eq(faults_logged(FAULTS_GOES), 1);
	ck_assert_uint_eq(faults_logged("the kernel failed, the first at"), 1);
	/* The daemon drops the area: one on a sound disk takes its place. */
	faults_end_of_disk(&seen);
	file_leave();
	seen_print(&seen, _i ? "a loop device that vanishes" :
			  "a disk that vanishes");
}
END_TEST

static Suite *real_suite(void)
{
	Suite *s = suite_create("faults-real");
	TCase *tc = tcase_create("scenes");

	tcase_set_timeout(tc, 600);
	tcase_add_checked_fixture(tc, scene_setup, scene_teardown);
	tcase_add_loop_test(tc, test_file_lies, 0, ARRAY_SIZE(scenes));
	suite_add_tcase(s, tc);
	tc = tcase_create("load");
	tcase_set_timeout(tc, 900);
	tcase_add_unchecked_fixture(tc, faults_find_truth, faults_forget_truth);
	tcase_add_checked_fixture(tc, scene_setup, scene_teardown);
	tcase_add_loop_test(tc, test_text_on_a_file_that_lies, 0, 2);
	tcase_add_test(tc, test_file_fills_up);
	tcase_add_test(tc, test_small_file_system);
	tcase_add_loop_test(tc, test_file_is_cut, 0, 2);
	tcase_add_loop_test(tc, test_disk_vanishes, 0, 2);
	suite_add_tcase(s, tc);
	return s;
}

int main(int argc, char **argv)
{
	SRunner *sr;
	int failed;

	if (argc > 1 && !strcmp(argv[1], SCENE_OPTION))
		return scene_main(argc, argv);
	scene_drive_init();
	sr = srunner_create(real_suite());
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	scene_sweep();
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
