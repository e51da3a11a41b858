// SPDX-License-Identifier: Apache-2.0
/*
 * it_swapd.c - a real kvmm-hold and a real swapd under a fake kvmm
 *
 * This program is the driver of the tests.  Started again by kvmm-hold under
 * the name kvmm, it is the fake kvmm: tests/swapd_client.h.  The fake kvmm
 * plays a scene of swap_scenes.c or swap_death.c; hold ends with its exit code,
 * so a test passes when hold ends with 0.
 *
 * budget: 60 s, full 300 s
 */
#include <check.h>
#include <liburing.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sysexits.h>

#include "tests/integration/harness.h"
#include "tests/integration/scene_drive.h"
#include "tests/integration/swap_scenes.h"
#include "tests/integration/throttle.h"

#define SLOW_BYTES	(72u << 20)	/* enough for any scene */

START_TEST(test_roundtrip)
{
	scene_run("roundtrip", scene_engine(_i), 64);
}
END_TEST

START_TEST(test_damage)
{
	scene_run("damage", scene_engine(_i), 0);
}
END_TEST

START_TEST(test_refused)
{
	scene_run("refused", scene_engine(_i), 0);
}
END_TEST

START_TEST(test_seam)
{
	/* With io_uring it pins a complete GiB, which takes seconds. */
	if (_i == 0 && by_level(1, 0, 0))
		return;
	scene_run("seam", scene_engine(_i), 0);
}
END_TEST

START_TEST(test_areas)
{
	scene_run("areas", scene_engine(_i), 0);
}
END_TEST

START_TEST(test_del)
{
	scene_run("del", scene_engine(_i), by_level(3, 40, 200));
}
END_TEST

/* ---- a full disk ---- */

START_TEST(test_file_limit)
{
	struct rlimit was, low;

	ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &was), 0);
	low = was;
	low.rlim_cur = 32u << 20;
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &low), 0);
	scene_run("full", SWAPD_ENGINE_AUTO, 0);
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &was), 0);
}
END_TEST

START_TEST(test_full_disk)
{
	char small[300];

	snprintf(small, sizeof(small), "%s/small", scene_dir);
	ck_assert_int_eq(mkdir(small, 0700), 0);
	if (unshare(CLONE_NEWNS) ||
	    mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("none", small, "tmpfs", 0, "size=16m")) {
		printf("note: no small file system: %s\n", strerror(errno));
		return;
	}
	scene_run("full", SWAPD_ENGINE_AUTO, 1);
	ck_assert_int_eq(umount2(small, MNT_DETACH), 0);
}
END_TEST

/* ---- block devices ---- */

static char loop[64];

/* A loop device on a file of 8 MiB; false if there is none. */
static bool loop_make(const char *mkfs)
{
	char cmd[800];
	FILE *p;

	snprintf(cmd, sizeof(cmd),
		 "truncate -s 8M '%s/disk' && %s '%s/disk' >'%s/mkfs' 2>&1 && losetup -f --show '%s/disk' 2>/dev/null",
		 scene_dir, mkfs, scene_dir, scene_dir, scene_dir);
	p = popen(cmd, "r");
	loop[0] = '\0';
	if (!p || !fgets(loop, sizeof(loop), p))
		loop[0] = '\0';
	if (p)
		pclose(p);
	loop[strcspn(loop, "\n")] = '\0';
	if (!loop[0])
		printf("note: no loop device here\n");
	return loop[0];
}

static void loop_free(void)
{
	char cmd[128];

	snprintf(cmd, sizeof(cmd), "losetup -d %s", loop);
	if (loop[0])
		ck_assert_int_eq(system(cmd), 0);
	loop[0] = '\0';
}

START_TEST(test_device)
{
	if (!loop_make(":"))
		return;
	setenv("SCENE_DEVICE", loop, 1);
	scene_run("device", scene_engine(_i), 0);
	loop_free();
}
END_TEST

/*
 * Mount the loop device in a namespace of this process, at "mnt".
 * Return: false if that is impossible; the device is freed.
 */
static bool loop_mount(char *at, size_t len)
{
	if (!loop_make("mkfs.ext4"))
		return false;
	snprintf(at, len, "%s/mnt", scene_dir);
	ck_assert_int_eq(mkdir(at, 0700), 0);
	ck_assert_int_eq(unshare(CLONE_NEWNS), 0);
	if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL)) {
		printf("note: / is no mount of its own (chroot): a mounted device is not tried\n");
		loop_free();
		return false;
	}
	ck_assert_int_eq(mount(loop, at, "ext4", 0, NULL), 0);
	return true;
}

START_TEST(test_device_mounted)
{
	char at[300];

	if (!loop_mount(at, sizeof(at)))
		return;
	setenv("SCENE_DEVICE", loop, 1);
	scene_run("device", SWAPD_ENGINE_AUTO, 1);
	ck_assert_int_eq(umount(at), 0);
	loop_free();
}
END_TEST

START_TEST(test_full_disk_holes)
{
	char at[300];

	if (!loop_mount(at, sizeof(at)))
		return;
	scene_run("holes", SWAPD_ENGINE_AUTO, 0);
	ck_assert_int_eq(umount2(at, MNT_DETACH), 0);
	loop_free();
}
END_TEST

/* ---- death ---- */

static const char * const die_at[] = {
	"swapd_die_taken:1", "swapd_die_taken:40", "swapd_die_queued:1",
	"swapd_die_queued:4", "swapd_die_submitted:1",
	"swapd_die_submitted:5", "swapd_die_published:1",
	"swapd_die_published:30",
};

START_TEST(test_die_at)
{
	setenv("KVMM_FAULT", die_at[_i], 1);
	scene_run("storm", SWAPD_ENGINE_AUTO, by_level(3, 20, 100));
	unsetenv("KVMM_FAULT");
}
END_TEST

START_TEST(test_reborn)
{
	scene_run("reborn", scene_engine(_i), 2);
}
END_TEST

START_TEST(test_deaf)
{
	scene_run("deaf", scene_engine(_i), 0);
}
END_TEST

/* As a user whose rings count as locked memory, those of the old swapd too. */
START_TEST(test_deaf_limited)
{
	const struct rlimit lim = { 8u << 20, 8u << 20 };

	if (!have_uring()) {
		printf("note: this machine has no io_uring\n");
		return;
	}
	ck_assert_int_eq(setrlimit(RLIMIT_MEMLOCK, &lim), 0);
	/* A process without root's rights has no capability to drop. */
	(void)prctl(PR_CAPBSET_DROP, CAP_IPC_LOCK);
	scene_run("deaf", SWAPD_ENGINE_URING, 0);
}
END_TEST

START_TEST(test_ended)
{
	scene_run("ended", SWAPD_ENGINE_AUTO, 0);
	ck_assert(scene_logged("swapd: error:"));
	ck_assert(scene_logged("it is not started again"));
}
END_TEST

/* io_uring is forbidden, or the pool cannot be registered. */
START_TEST(test_without)
{
	setenv("KVMM_FAULT", _i ? "swapd_register" : "hold_ring", 1);
	scene_run("roundtrip", SWAPD_ENGINE_AUTO, 32);
	unsetenv("KVMM_FAULT");
	ck_assert(scene_logged(_i ? "cannot be registered" : "pread and pwrite"));
}
END_TEST

/* ---- a slow disk ---- */

static struct throttle slow;
static char *groups;	/* of this process, before it entered the slow group */

/* Return: false, after a note, if no disk can be made slow. */
static bool slow_enter(u32 mib)
{
	free(groups);
	groups = slurp("/proc/self/cgroup");
	if (!throttle_enter(&slow, scene_dir, mib, SLOW_BYTES))
		return false;
	if (slow.device[0])
		setenv(SCENE_AREA, slow.device, 1);
	return true;
}

static void slow_leave(void)
{
	char *now;

	throttle_leave(&slow);
	unsetenv(SCENE_AREA);
	now = slurp("/proc/self/cgroup");
	ck_assert_str_eq(now, groups);
	free(now);
}

static bool scene_run_slow(const char *scene, u32 engine, u32 n, u32 mib)
{
	if (!slow_enter(mib))
		return false;
	scene_run(scene, engine, n);
	slow_leave();
	return true;
}

START_TEST(test_reborn_slow)
{
	/* At the death 8 MiB are in flight, so 0.4 s must pass. */
	setenv("SCENE_WAITS_MS", _i ? "0" : "250", 1);
	scene_run_slow("reborn", scene_engine(_i), 1, 20);
	unsetenv("SCENE_WAITS_MS");
}
END_TEST

START_TEST(test_slow)
{
	if (scene_run_slow("slow", scene_engine(_i), 0, 3))
		ck_assert(scene_logged("takes longer than 500 ms"));
}
END_TEST

/* ---- reads among writes ---- */

/* Replace swapd by a script that runs it with one option more. */
static void swapd_with(const char *option)
{
	const char *build = getenv("KVMM_BUILD");
	char path[300], real[4096];
	FILE *f;

	ck_assert_ptr_nonnull(realpath(build ? build : "build", real));
	snprintf(path, sizeof(path), "%s/swapd", scene_dir);
	ck_assert_int_eq(unlink(path), 0);
	f = fopen(path, "we");
	ck_assert_ptr_nonnull(f);
	fprintf(f, "#!/bin/sh\nexec '%s/swapd' %s \"$@\"\n", real, option);
	ck_assert_int_eq(fchmod(fileno(f), 0700), 0);
	ck_assert_int_eq(fclose(f), 0);
}

struct depth {
	u32	reads, p50, p99, rate, limit, lowered;
};

static struct depth depth_run(const char *option)
{
	struct depth d = { 0 };
	char path[300], *log;

	swapd_with(option);
	scene_run("depth", SWAPD_ENGINE_AUTO, by_level(1000, 6000, 20000));
	log = scene_log();
	ck_assert_msg(strstr(log, DEPTH_TALLY_HEAD) &&
		      sscanf(strstr(log, DEPTH_TALLY_HEAD), DEPTH_TALLY,
			     &d.reads, &d.p50, &d.p99, &d.rate, &d.limit,
			     &d.lowered) == 6, "no tally:\n%s", log);
	free(log);
	snprintf(path, sizeof(path), "%s/area", scene_dir);
	unlink(path);
	snprintf(path, sizeof(path), "%s/log", scene_dir);
	unlink(path);
	return d;
}

/*
 * On a slow disk the kernel gets few writes at once, so a read waits for few,
 * and the throughput stays the same.
 */
START_TEST(test_depth)
{
	struct depth fixed, adapts;

	if (!have_uring()) {
		printf("note: this machine has no io_uring: few threads, few writes\n");
		return;
	}
	/* Control groups would throttle reads and writes separately. */
	setenv("KVMM_THROTTLE", "fuse", 1);
	if (!slow_enter(60))
		return;
	fixed = depth_run("--fixed-depth");
	adapts = depth_run("");
	printf("total: reads among writes on a disk of 60 MiB/s (%s): p50 %.1f -> %.1f ms, p99 %.1f -> %.1f ms, %.1f -> %.1f MiB/s; %u -> %u writes at once\n",
	       slow.how, fixed.p50 / 1e3, adapts.p50 / 1e3, fixed.p99 / 1e3,
	       adapts.p99 / 1e3, fixed.rate / 1024.0, adapts.rate / 1024.0,
	       fixed.limit, adapts.limit);
	fflush(stdout);
	slow_leave();
	unsetenv("KVMM_THROTTLE");
	ck_assert_uint_eq(fixed.lowered, 0);
	ck_assert_uint_eq(fixed.limit, 32);
	ck_assert_uint_gt(adapts.lowered, 0);
	ck_assert_uint_lt(adapts.limit, fixed.limit);
	ck_assert_uint_lt(adapts.p50 * 2, fixed.p50);
	/* A hundred reads beside other tests show no more than that. */
	if (by_level(1, 0, 0))
		return;
	ck_assert_uint_lt(adapts.p99 * 2, fixed.p99);
	ck_assert_uint_gt(adapts.rate * 100, fixed.rate * 90);
}
END_TEST

/* ---- the campaign: swapd is killed at random under load ---- */

/* Results of the storms of one campaign; STORM_TALLY has the same order. */
struct tally {
	u32	kills;
	u32	requests;
	u32	limbo;
	u32	hosts;
	u32	slots;
	u32	shared;
	u32	merged;
};

static void tally_add(struct tally *t)
{
	char path[300], *log;
	struct tally one;

	log = scene_log();
	ck_assert_msg(strstr(log, STORM_TALLY_HEAD) &&
		      sscanf(strstr(log, STORM_TALLY_HEAD), STORM_TALLY,
			     &one.kills, &one.requests, &one.limbo, &one.hosts,
			     &one.slots, &one.shared, &one.merged) == 7,
		      "no tally:\n%s", log);
	t->kills += one.kills;
	t->requests += one.requests;
	t->limbo += one.limbo;
	t->hosts += one.hosts;
	t->slots += one.slots;
	t->shared += one.shared;
	t->merged += one.merged;
	free(log);
	/* The next storm has new files. */
	snprintf(path, sizeof(path), "%s/area", scene_dir);
	unlink(path);
	snprintf(path, sizeof(path), "%s/log", scene_dir);
	unlink(path);
}

static void storms_run(struct tally *t, u32 kills)
{
	u32 i;

	for (i = 0; i < 2; i++) {
		scene_run("storm", scene_engine((int)i), kills);
		tally_add(t);
	}
}

/*
 * Storms on a slow disk: there transfers go on long after the death of their swapd.
 * Whether hold ends a transfer that requests share depends on the moment of a kill,
 * so there are more storms until it has.
 */
static void storms_run_late(struct tally *t, u32 kills)
{
	u32 i;

	for (i = 0; i < 10 && (!i || (have_uring() && !t->shared)); i++)
		storms_run(t, kills);
	ck_assert_uint_gt(t->limbo, 0);
	if (have_uring())
		ck_assert_uint_gt(t->shared, 0);
}

START_TEST(test_storm)
{
	const u32 kills = by_level(5, 34, 250);
	struct tally fast = { 0 }, late = { 0 };
	char how[32] = "none here";

	storms_run(&fast, kills);
	if (slow_enter(60)) {
		snprintf(how, sizeof(how), "%s", slow.how);
		storms_run_late(&late, kills);
		slow_leave();
	} else {
		storms_run(&fast, kills);
	}
	ck_assert_uint_gt(fast.hosts, 0);
	ck_assert_uint_gt(fast.slots, 0);
	ck_assert_uint_gt(fast.merged, 0);
	printf("total: swapd killed %u times under load (%u on a throttled disk: %s): %u requests, %u in limbo at a death; %u host and %u area slots of those reused and watched; %u requests shared a transfer, %u of these ended by the word of hold: 0 late writes, 0 lost\n",
	       fast.kills + late.kills, late.kills, how,
	       fast.requests + late.requests, fast.limbo + late.limbo,
	       fast.hosts + late.hosts, fast.slots + late.slots,
	       fast.merged + late.merged, fast.shared + late.shared);
}
END_TEST

/* ---- started by hand ---- */

static int by_hand(const char *args)
{
	char cmd[900];
	int status;

	snprintf(cmd, sizeof(cmd), "'%s/swapd' %s >'%s/log' 2>&1", scene_dir, args,
		 scene_dir);
	status = system(cmd);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

START_TEST(test_by_hand)
{
	ck_assert_int_eq(by_hand("--help"), 0);
	ck_assert(scene_logged("not started by hand"));
	ck_assert_int_eq(by_hand(""), EX_USAGE);
	ck_assert(scene_logged("start kvmm-hold"));
	ck_assert_int_eq(by_hand("--ctl-fd 5 --pool-fd 5 --request-fd 5 --completion-fd 5 --control-fd 5"),
			 EX_USAGE);
	ck_assert(scene_logged("not started by hand"));
	ck_assert_int_eq(by_hand("--nonsense"), EX_USAGE);
	ck_assert_int_eq(by_hand("stray"), EX_USAGE);
}
END_TEST

/* An operator probes a disk with it, without a running swapd. */
START_TEST(test_probe)
{
	char args[400], path[300];
	FILE *f;

	if (!have_uring()) {
		printf("note: this machine has no io_uring\n");
		return;
	}
	snprintf(args, sizeof(args), "--depth 4 --probe '%s'", scene_dir);
	if (by_hand(args) == EX_NOINPUT) {
		printf("note: no scratch file with O_DIRECT here\n");
		return;
	}
	ck_assert(scene_logged("registered  read"));
	ck_assert(scene_logged("registered  write"));
	ck_assert(scene_logged("SQPOLL      write"));
	ck_assert(scene_logged("IOPOLL      read"));
	/* A file is only read, not written. */
	snprintf(path, sizeof(path), "%s/file", scene_dir);
	f = fopen(path, "we");
	ck_assert_ptr_nonnull(f);
	ck_assert_int_eq(ftruncate(fileno(f), 4 << 20), 0);
	fclose(f);
	snprintf(args, sizeof(args), "--depth 4 --probe '%s'", path);
	ck_assert_int_eq(by_hand(args), 0);
	ck_assert(scene_logged("plain       read"));
	ck_assert(!scene_logged("write "));
	ck_assert_int_eq(by_hand("--probe /nowhere"), EX_NOINPUT);
	ck_assert(scene_logged("name a directory"));
}
END_TEST

static Suite *swapd_suite(void)
{
	Suite *s = suite_create("swapd");
	TCase *tc = tcase_create("scenes");

	tcase_set_timeout(tc, 120);
	tcase_add_checked_fixture(tc, scene_setup, scene_teardown);
	tcase_add_loop_test(tc, test_roundtrip, 0, 2);
	tcase_add_loop_test(tc, test_damage, 0, 2);
	tcase_add_loop_test(tc, test_refused, 0, 2);
	tcase_add_loop_test(tc, test_seam, 0, 2);
	tcase_add_loop_test(tc, test_areas, 0, 2);
	tcase_add_loop_test(tc, test_del, 0, 2);
	tcase_add_test(tc, test_file_limit);
	tcase_add_test(tc, test_full_disk);
	tcase_add_test(tc, test_full_disk_holes);
	tcase_add_loop_test(tc, test_device, 0, 2);
	tcase_add_test(tc, test_device_mounted);
	tcase_add_loop_test(tc, test_die_at, 0, ARRAY_SIZE(die_at));
	tcase_add_loop_test(tc, test_reborn, 0, 2);
	tcase_add_loop_test(tc, test_deaf, 0, 2);
	tcase_add_test(tc, test_deaf_limited);
	tcase_add_test(tc, test_ended);
	tcase_add_loop_test(tc, test_without, 0, 2);
	tcase_add_loop_test(tc, test_reborn_slow, 0, 2);
	tcase_add_loop_test(tc, test_slow, 0, 2);
	tcase_add_test(tc, test_depth);
	tcase_add_test(tc, test_by_hand);
	tcase_add_test(tc, test_probe);
	suite_add_tcase(s, tc);
	tc = tcase_create("storm");
	tcase_set_timeout(tc, 1800);
	tcase_add_checked_fixture(tc, scene_setup, scene_teardown);
	tcase_add_test(tc, test_storm);
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
	sr = srunner_create(swapd_suite());
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	scene_sweep();
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
