// SPDX-License-Identifier: Apache-2.0
/*
 * it_faults.c - a disk that fails, tears, misdirects, forgets and flips bits
 *
 * Scenes of swap_faults.c: a real kvmm-hold and swapd under a fake kvmm that
 * knows every block.  Then the real kvmm and two runtimes, which must print the
 * same text as without swap: faults_load.c.
 *
 * budget: 75 s, full 400 s
 * from: full
 */
#include <check.h>

#include "tests/integration/faults_load.h"
#include "tests/integration/scene_drive.h"
#include "tests/integration/swap_scenes.h"

#include "swapd/shim.h"

/* Results of the scenes of one campaign; FAULTS_TALLY has the same order. */
struct tally {
	unsigned long long	done;
	u32			requests;
	u32			right;
	u32			bad;
	u32			failed;
	u32			again;
	u32			deaths;
};

/* Names and numbers of the lines "faults done:" and "faults found:". */
#define MAX_NAMES	32

struct names {
	u32	nr;
	struct {
		char			name[24];
		unsigned long long	n;
	} of[MAX_NAMES];
};

static void names_add(struct names *all, const char *log, const char *head)
{
	const char *p = strstr(log, head);
	unsigned long long n;
	char name[24];
	int used;
	u32 i;

	ck_assert_msg(p != NULL, "no '%s':\n%s", head, log);
	p += strlen(head);
	while (sscanf(p, " %23[a-z_] %llu%n", name, &n, &used) == 2) {
		p += used;
		for (i = 0; i < all->nr && strcmp(all->of[i].name, name); i++)
			;
		ck_assert_uint_lt(i, MAX_NAMES);
		if (i == all->nr)
			snprintf(all->of[all->nr++].name, sizeof(name), "%s",
				 name);
		all->of[i].n += n;
		if (*p == '\n')
			break;
	}
}

static unsigned long long names_get(const struct names *all, const char *name)
{
	u32 i;

	for (i = 0; i < all->nr; i++)
		if (!strcmp(all->of[i].name, name))
			return all->of[i].n;
	ck_abort_msg("%s is not counted", name);
	return 0;
}

static void names_print(const struct names *all, const char *head)
{
	u32 i;

	printf("total: %s", head);
	for (i = 0; i < all->nr; i++)
		printf(" %s %llu", all->of[i].name, all->of[i].n);
	printf("\n");
}

static struct names did, found;

static void tally_add(struct tally *t)
{
	char *log = scene_log();
	struct tally one;

	ck_assert_msg(strstr(log, FAULTS_TALLY_HEAD) &&
		      sscanf(strstr(log, FAULTS_TALLY_HEAD), FAULTS_TALLY,
			     &one.done, &one.requests, &one.right, &one.bad,
			     &one.failed, &one.again, &one.deaths) == 7,
		      "no tally:\n%s", log);
	t->done += one.done;
	t->requests += one.requests;
	t->right += one.right;
	t->bad += one.bad;
	t->failed += one.failed;
	t->again += one.again;
	t->deaths += one.deaths;
	names_add(&did, log, "faults done:");
	names_add(&found, log, "faults found:");
	free(log);
}

static void tally_print(const struct tally *t, const char *what)
{
	printf("total: %s: %llu faults in %u requests, swapd killed %u times: %u reads right, %u bad, %u failed transfers, %u blocks lost and computed again: 0 wrong blocks, 0 hangs, 0 slots leaked\n",
	       what, t->done, t->requests, t->deaths, t->right, t->bad,
	       t->failed, t->again);
}

/* Remove the files of a scene before the next one. */
static void forget(void)
{
	char cmd[600];

	snprintf(cmd, sizeof(cmd), "rm -f '%s/area' '%s/log' '%s/tally'",
		 scene_dir, scene_dir, scene_dir);
	ck_assert_int_eq(system(cmd), 0);
}

/* ---- the shim ---- */

static void shim_run_kinds(struct tally *t, u32 engine, u32 faults, u32 rate,
			   u32 delay, const char *kinds)
{
	char spec[400], path[200];

	snprintf(path, sizeof(path), "%s/tally", scene_dir);
	snprintf(spec, sizeof(spec), "seed=%u,rate=%u,delay=%u,tally=%s%s%s",
		 random_below(1000000000), rate, delay, path,
		 kinds ? ",kinds=" : "", kinds ? kinds : "");
	setenv(SHIM_ENV, spec, 1);
	setenv("SCENE_TALLY", path, 1);
	scene_run("faults", engine, faults);
	unsetenv(SHIM_ENV);
	tally_add(t);
	forget();
}

static void shim_run(struct tally *t, u32 engine, u32 faults, u32 rate,
		     u32 delay)
{
	shim_run_kinds(t, engine, faults, rate, delay, NULL);
}

/* Each kind of fault took place, and each check found one. */
static void expect_all_kinds(void)
{
	static const char * const finds[] = {
		"io_errors", "io_short", "io_nospace", "bad_magic",
		"bad_header_crc", "bad_offset", "bad_generation",
		"bad_payload_crc",
	};
	u32 i;

	for (i = 0; i < NR_SHIM_KINDS; i++)
		ck_assert_msg(names_get(&did, shim_kind_name(i)) > 0,
			      "%s never took place", shim_kind_name(i));
	for (i = 0; i < ARRAY_SIZE(finds); i++)
		ck_assert_msg(names_get(&found, finds[i]) > 0,
			      "%s never found any", finds[i]);
	names_print(&did, "done:");
	names_print(&found, "found:");
}

/* Many faults: half of all requests. */
START_TEST(test_many_faults)
{
	const u32 faults = by_level(1000 / time_scale(), 158500, 450000);
	struct tally t = { 0 };

	shim_run(&t, scene_engine(0), faults, 500, 10);
	shim_run(&t, scene_engine(1), faults, 500, 10);
	expect_all_kinds();
	tally_print(&t, "a disk that lies");
}
END_TEST

/* Few faults, so that most reads are right; late requests are slow. */
START_TEST(test_rare_faults)
{
	const u32 faults = by_level(100, 3000, 20000);
	struct tally t = { 0 };

	shim_run(&t, scene_engine(0), faults, 30, 1200);
	shim_run(&t, scene_engine(1), faults, 30, 1200);
	ck_assert_uint_gt(t.right, 10 * t.bad);
	ck_assert_uint_gt(names_get(&found, "slow"), 0);
	tally_print(&t, "a disk that lies now and then");
}
END_TEST

/* Requests end in any order, some of them twice: no block may be wrong. */
START_TEST(test_overtaken)
{
	const u32 faults = by_level(200, 8000, 60000);
	struct tally t = { 0 };

	shim_run_kinds(&t, scene_engine(0), faults, 150, 30, "delay+twice");
	shim_run_kinds(&t, scene_engine(1), faults, 150, 30, "delay+twice");
	ck_assert_uint_eq(t.bad, 0);
	ck_assert_uint_eq(t.failed, 0);
	ck_assert_uint_gt(t.right, 0);
	tally_print(&t, "a disk that is late");
}
END_TEST

/* swapd dies among the faults. */
START_TEST(test_faults_and_deaths)
{
	const u32 faults = by_level(150, 5000, 30000);
	struct tally t = { 0 };

	setenv("SCENE_KILLS", "1", 1);
	shim_run(&t, scene_engine(0), faults, 200, 20);
	shim_run(&t, scene_engine(1), faults, 200, 20);
	unsetenv("SCENE_KILLS");
	ck_assert_uint_gt(t.deaths, 0);
	tally_print(&t, "a disk that lies, and deaths");
}
END_TEST

/* ---- under the real kvmm ---- */

static void seen_print(const struct faults_seen *s, const char *what,
		       unsigned long long faults)
{
	printf("total: %s: %llu faults under two runtimes: pswpout %lld, pswpin %lld, %lld reads and %lld writes failed, %lld late, %lld blocks lost, %u areas went by themselves, %u in the end unread: %u pairs of texts the same, the daemon answered within %u ms, 0 slots leaked\n",
	       what, faults, (long long)s->out, (long long)s->in,
	       (long long)s->read_errors, (long long)s->write_errors,
	       (long long)s->late, (long long)s->lost, s->gone, s->cut_off, s->texts,
	       s->answer_ms);
}

static struct shim_tally *tally_map(char *path, size_t len)
{
	const char *tmp = getenv("TMPDIR");
	struct shim_tally *t;
	int fd;

	snprintf(path, len, "%.100s/tally.%d", tmp ? tmp : "/tmp",
		 (int)getpid());
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, sizeof(*t)), 0);
	t = mmap(NULL, sizeof(*t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert(t != MAP_FAILED);
	close(fd);
	return t;
}

static unsigned long long tally_sum(const struct shim_tally *t)
{
	unsigned long long n = 0;
	u32 i;

	for (i = 0; i < NR_SHIM_KINDS; i++)
		n += READ_ONCE(t->done[i]);
	return n;
}

static bool any_failed(void)
{
	return rig_value(&faults_rig, "vmstat", "swap_read_error") &&
	       rig_value(&faults_rig, "vmstat", "swap_write_error");
}

/*
 * The text stays the same on a disk that lies.  Then the disk is honest, and
 * the area works like a new one.
 */
START_TEST(test_text_on_a_disk_that_lies)
{
	static const char * const rate[] = { "80", "400" };
	struct faults_seen seen = { 0 };
	unsigned long long faults = 0;
	char path[160], spec[300];
	struct shim_tally *t = tally_map(path, sizeof(path));
	s64 before;
	u32 i, n;

	for (i = 0; i < 2; i++) {
		memset(t, 0, sizeof(*t));
		snprintf(spec, sizeof(spec),
			 "seed=%u,rate=%s,delay=600,tally=%s",
			 random_below(1000000000), rate[i], path);
		setenv(SHIM_ENV, spec, 1);
		faults_start(NULL, i ? "sync" : "auto");
		unsetenv(SHIM_ENV);
		/*
		 * The number of reads depends on timing: go on until some of
		 * them failed.
		 */
		for (n = 0; n < by_level(1, 6, 60) ||
		     (n < 20 && !any_failed()); n++)
			faults_load(&seen, NULL);
		faults += tally_sum(t);
		WRITE_ONCE(t->off, 1);
		faults_settle();
		faults_area_off();
		faults_area_on();
		before = rig_value(&faults_rig, "vmstat", "swap_read_error") +
			 rig_value(&faults_rig, "vmstat", "swap_write_error");
		faults_load(&seen, NULL);
		ck_assert_int_eq(rig_value(&faults_rig, "vmstat",
					   "swap_read_error") +
				 rig_value(&faults_rig, "vmstat",
					   "swap_write_error"), before);
		ck_assert_int_gt(rig_value(&faults_rig, "meminfo",
					   "SwapTotal"), 0);
		faults_end(&seen);
	}
	unlink(path);
	ck_assert_int_gt(seen.read_errors, 0);
	ck_assert_int_gt(seen.write_errors, 0);
	seen_print(&seen, "a disk that lies", faults);
}
END_TEST

/* Faults, and the line of swapd about the first of them. */
static const struct {
	const char *kinds;
	const char *says;
	const char *what;
	bool cut_off;
} ways[] = {
	{ "eio", "the kernel failed, the first at", "a disk that fails", false },
	{ "enospc", "found no room, the first at", "a disk that is full", false },
	{ "hollow", "found no header, the first at", "a disk that cannot read",
	  true },
};

/* All requests fail: the daemon writes a line at each step and removes the area. */
START_TEST(test_area_goes_by_itself)
{
	struct faults_seen seen = { 0 };
	char path[160], spec[300];
	struct shim_tally *t = tally_map(path, sizeof(path));
	u32 rounds = 0;

	snprintf(spec, sizeof(spec), "rate=1000,kinds=%s,tally=%s",
		 ways[_i].kinds, path);
	setenv(SHIM_ENV, spec, 1);
	faults_start(NULL, "auto");
	unsetenv(SHIM_ENV);
	/* The load adds the area again, and the daemon removes it again. */
	while (faults_logged(FAULTS_GOES) < 2 ||
	       (ways[_i].cut_off && !faults_logged(FAULTS_CUT_OFF))) {
		ck_assert_msg(rounds++ < 20, "it never goes");
		faults_load(&seen, NULL);
	}
	faults_settle();
	/* One line for each area, not one for each request. */
	ck_assert_uint_gt(faults_logged(ways[_i].says), 0);
	ck_assert_uint_le(faults_logged(ways[_i].says),
			  faults_logged("bytes for slots"));
	t->off = 1;
	faults_area_off();
	faults_area_on();
	faults_load(&seen, NULL);
	ck_assert_int_gt(rig_value(&faults_rig, "meminfo", "SwapTotal"), 0);
	faults_end(&seen);
	unlink(path);
	seen_print(&seen, ways[_i].what, tally_sum(t));
}
END_TEST

static Suite *faults_suite(void)
{
	Suite *s = suite_create("faults");
	TCase *tc = tcase_create("shim");

	tcase_set_timeout(tc, 900);
	tcase_add_checked_fixture(tc, scene_setup, scene_teardown);
	tcase_add_test(tc, test_many_faults);
	tcase_add_test(tc, test_rare_faults);
	tcase_add_test(tc, test_overtaken);
	tcase_add_test(tc, test_faults_and_deaths);
	suite_add_tcase(s, tc);
	tc = tcase_create("load");
	tcase_set_timeout(tc, 900);
	tcase_add_unchecked_fixture(tc, faults_find_truth, faults_forget_truth);
	tcase_add_test(tc, test_text_on_a_disk_that_lies);
	tcase_add_loop_test(tc, test_area_goes_by_itself, 0,
			    ARRAY_SIZE(ways));
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
	sr = srunner_create(faults_suite());
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	scene_sweep();
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
