// SPDX-License-Identifier: Apache-2.0
/*
 * it_areas.c - areas that differ in speed, come, go and fail under full load
 *
 * budget: 35 s, full 160 s
 * from: full
 *
 * Three areas serve two runtimes in a pool that is much too small.  The shim in
 * swapd makes the second area slow, and the third one slower still, or failing.
 * The runtimes must print the same text as without swap, whatever happens to
 * the areas: no request is lost, none waits for ever, and in the end no slot is
 * in use.  The test reads in swapareas how much went to each area.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <kvmm/admin.h>
#include <kvmm/view.h>

#include "tests/integration/load.h"

#include "swapd/shim.h"

#define TOKENS		"96"
#define AREAS		3
#define AREA_MAX	"16M"

static struct load_text truth;
static struct rig rig;

static void find_truth(void)
{
	struct load l;

	rig_start(&rig, "--pool-size", "128M", "--extent-size", "1M", NULL);
	load_start(&l, &rig, TOKENS, "f32");
	load_finish(&l, &truth);
	rig_stop(&rig);
}

static void forget_truth(void)
{
	load_text_free(&truth);
}

/* ---- areas ---- */

static const char *area_path(u32 i)
{
	static char path[RIG_PATH + 16];

	snprintf(path, sizeof(path), "%s/area-%u", rig.dir, i);
	return path;
}

/* Run kvctl with area @i.  Return: its exit code; its stderr in @says. */
static int kvctl(u32 i, const char *verb, const char *arg1, const char *arg2,
		 const char *arg3, const char *arg4, char *says, size_t len)
{
	struct job j = job_start(&rig, "kvctl", verb, area_path(i), arg1, arg2,
				 arg3, arg4, NULL);
	int code = job_wait(&j, 90);
	char *out = slurp(j.out), *err = slurp(j.err);

	snprintf(says, len, "%s%s", out, err);
	free(out);
	free(err);
	unlink(j.out);
	unlink(j.err);
	return code;
}

/* The line of one area in swapareas. */
struct row {
	char			state[16];
	long long		prio, total, used;
	unsigned long long	failed, rd_kb_s, wr_kb_s, rd, wr, depth;
	bool			there;
};

static struct row area_row(u32 i)
{
	struct job j = job_start(&rig, "kvctl", "cat", "swapareas", NULL);
	struct row r = { .there = false };
	char *text, *line, *rest = NULL;

	ck_assert_int_eq(job_wait(&j, 20), 0);
	text = slurp(j.out);
	for (line = strtok_r(text, "\n", &rest); line;
	     line = strtok_r(NULL, "\n", &rest)) {
		if (!strstr(line, area_path(i)))
			continue;
		r.there = sscanf(line, "%*u %15s %lld %lld %lld %*u %*u %*u %llu %llu %llu %llu %*u %*u %llu %*u %*u %*u %*u %llu",
				 r.state, &r.prio, &r.total, &r.used,
				 &r.failed, &r.rd_kb_s, &r.wr_kb_s, &r.rd,
				 &r.wr, &r.depth) == 10;
		ck_assert_msg(r.there, "%s", line);
	}
	free(text);
	unlink(j.out);
	unlink(j.err);
	return r;
}

static void area_on(u32 i, const char *size, const char *prio)
{
	char says[600];

	if (kvctl(i, "swapon", "--size", size, "--priority", prio, says,
		  sizeof(says)))
		ck_abort_msg("swapon: %s", says);
	/* swapd measured the depth when it took the area; no block was written yet. */
	ck_assert_uint_gt(area_row(i).depth, 0);
}

/* ---- rigs ---- */

static struct shim_tally *tally;
static char tally_path[160];

/* A rig without areas; @lies: rules for the shim. */
static void small_start(const char *lies)
{
	char spec[500];
	int fd;

	snprintf(tally_path, sizeof(tally_path), "%.100s/areas-tally.%d",
		 getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp", (int)getpid());
	fd = open(tally_path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, sizeof(*tally)), 0);
	tally = mmap(NULL, sizeof(*tally), PROT_READ | PROT_WRITE, MAP_SHARED,
		     fd, 0);
	ck_assert(tally != MAP_FAILED);
	close(fd);
	snprintf(spec, sizeof(spec), "seed=%u,tally=%s,%s",
		 random_below(1000000000), tally_path, lies);
	setenv(SHIM_ENV, spec, 1);
	rig_start(&rig, "--pool-size", "2M", "--extent-size", "256K",
		  "--host-size", "1M", "--area-max", AREA_MAX, "--swappiness",
		  "200", "--swap-deadline-ms", "2000", NULL);
	unsetenv(SHIM_ENV);
}

/* Wait until no request is open and no slot in limbo; then run the walkers. */
static void settle(void)
{
	u64 end = now_ms() + 20000 * time_scale();

	while (rig_value(&rig, "swapstat", "nr_open") ||
	       rig_value(&rig, "swapstat", "nr_backlog") ||
	       rig_value(&rig, "meminfo", "HostLimbo") ||
	       rig_value(&rig, "meminfo", "SwapLimbo")) {
		ck_assert_msg(now_ms() < end, "slots stay in limbo");
		nap_ms(20);
	}
	rig_walk(&rig);
	ck_assert_int_eq(rig_value(&rig, "swapstat", "strays"), 0);
	ck_assert_int_eq(rig_value(&rig, "meminfo", "HostFree") +
			 rig_value(&rig, "meminfo", "HostUsed"),
			 rig_value(&rig, "meminfo", "HostTotal"));
}

/* Remove every area; no slot may be left. */
static void small_stop(void)
{
	char says[600];
	u32 i;

	settle();
	for (i = 0; i < AREAS; i++)
		if (kvctl(i, "swapoff", "--timeout", "60", NULL, NULL, says,
			  sizeof(says)))
			ck_assert_msg(strstr(says, "is no swap area"),
				      "swapoff: %s", says);
	settle();
	ck_assert_int_eq(rig_value(&rig, "meminfo", "SwapTotal"), 0);
	ck_assert_int_eq(rig_value(&rig, "meminfo", "SwapUsed"), 0);
	ck_assert_int_eq(rig_value(&rig, "meminfo", "SwapBad"), 0);
	rig_stop(&rig);
	munmap(tally, sizeof(*tally));
	unlink(tally_path);
}

static void drop_caches(void)
{
	struct job j = job_start(&rig, "kvctl", "drop_caches", NULL);

	ck_assert_int_eq(job_wait(&j, 30), 0);
	unlink(j.out);
	unlink(j.err);
}

/* Run loads until that much was written; @drop: drop caches, which fill the areas. */
static void load_until(s64 written, bool drop)
{
	struct load l;
	u32 n;

	for (n = 0; n < 30 + written / 10; n++) {
		load_start(&l, &rig, TOKENS, "f32");
		load_judge(&l, &truth);
		if (drop)
			drop_caches();
		if (rig_value(&rig, "vmstat", "pswpout") >= written)
			return;
	}
	ck_abort_msg("only %lld slots were written",
		     (long long)rig_value(&rig, "vmstat", "pswpout"));
}

/* ---- choice of an area ---- */

START_TEST(test_by_speed)
{
	static const u32 delay[AREAS] = { 16, 48, 200 };
	struct row r[AREAS];
	char faults[256];
	int len = 0;
	u32 i;

	/* The delays are long beside the processor's time for a write. */
	for (i = 0; i < AREAS; i++)
		len += snprintf(faults + len, sizeof(faults) - (size_t)len,
				"%sarea=%u,rate=1000,delay=%u,kinds=delay",
				i ? ";" : "", i, delay[i] * time_scale());
	small_start(faults);
	for (i = 0; i < AREAS; i++)
		area_on(i, "16M", "0");
	load_until(by_level(40, 600, 1000), true);
	for (i = 0; i < AREAS; i++)
		r[i] = area_row(i);
	printf("  written %llu, %llu, %llu slots at %llu, %llu, %llu KiB/s\n",
	       r[0].wr, r[1].wr, r[2].wr, r[0].wr_kb_s, r[1].wr_kb_s,
	       r[2].wr_kb_s);
	fflush(stdout);
	ck_assert_uint_gt(r[2].wr, 0);
	/*
	 * Compare with the measured speeds: on a busy machine they differ from
	 * the delays of the shim.
	 */
	ck_assert_uint_gt(r[0].wr, r[1].wr);
	ck_assert_uint_gt(r[0].wr, 4 * r[2].wr);
	ck_assert_uint_gt(r[0].wr * r[1].wr_kb_s,
			  r[1].wr * r[0].wr_kb_s * 6 / 10);
	ck_assert_uint_gt(r[0].wr_kb_s, r[1].wr_kb_s);
	ck_assert_uint_gt(r[1].wr_kb_s, r[2].wr_kb_s);
	small_stop();
}
END_TEST

/* The slow one first, for its priority; the others when it is full. */
START_TEST(test_by_priority)
{
	struct row r[AREAS];
	u32 i;

	small_start("area=0,rate=1000,delay=8,kinds=delay");
	area_on(0, "2M", "7");
	area_on(1, "16M", "3");
	area_on(2, "16M", "0");
	load_until(by_level(30, 300, 1000), false);
	for (i = 0; i < AREAS; i++)
		r[i] = area_row(i);
	printf("  written %llu, %llu, %llu slots by priority\n", r[0].wr,
	       r[1].wr, r[2].wr);
	ck_assert_uint_gt(r[0].wr, 0);
	ck_assert_uint_eq(r[2].wr, 0);
	if (r[1].wr)
		ck_assert_int_ge(r[0].used * 2, r[0].total);
	small_stop();
}
END_TEST

/* ---- coming, going, failing ---- */

struct seen {
	u32	offs;
	u32	ons;
	u32	by_itself;
	u32	texts;
	u64	longest_ms;
};

/* Remove one area and add it again. */
static void area_turn(struct seen *s, u32 i)
{
	const char *seconds = random_below(4) ? "30" : "1";
	u64 began = now_ms();
	char says[600];

	if (!kvctl(i, "swapoff", "--timeout", seconds, NULL, NULL, says,
		   sizeof(says))) {
		s->offs++;
	} else {
		ck_assert_msg(strstr(says, "is no swap area"), "swapoff: %s",
			      says);
		s->by_itself++;
	}
	s->longest_ms = max(s->longest_ms, now_ms() - began);
	nap_ms(random_below(50));
	area_on(i, "16M", "0");
	s->ons++;
}

static void seen_print(const struct seen *s)
{
	unsigned long long faults = 0;
	u32 i;

	for (i = 0; i < NR_SHIM_KINDS; i++)
		faults += i == SHIM_delay ? 0 : READ_ONCE(tally->done[i]);
	printf("total: %u swapoffs and %u swapons of three areas under two runtimes, the longest %llu ms, one area %u times gone by itself, %llu faults: pswpout %lld, pswpin %lld, %lld moved, %lld reads failed and %lld tried again, %lld writes failed, %lld sequences lost a block: %u pairs of texts the same, 0 slots lost\n",
	       s->offs, s->ons, (unsigned long long)s->longest_ms,
	       s->by_itself, faults,
	       (long long)rig_value(&rig, "vmstat", "pswpout"),
	       (long long)rig_value(&rig, "vmstat", "pswpin"),
	       (long long)rig_value(&rig, "vmstat", "swap_move"),
	       (long long)rig_value(&rig, "vmstat", "swap_read_error"),
	       (long long)rig_value(&rig, "vmstat", "swap_read_retry"),
	       (long long)rig_value(&rig, "vmstat", "swap_write_error"),
	       (long long)rig_value(&rig, "vmstat", "swap_lost"), s->texts);
}

START_TEST(test_come_and_go)
{
	const u32 turns = by_level(4, 34, 100);
	struct seen s = { 0 };
	u64 wait;
	struct load l;
	u32 n, i;

	small_start("area=1,rate=1000,delay=10,kinds=delay;area=2,rate=300,delay=20,kinds=delay+eio+torn+hollow+flip_payload");
	for (i = 0; i < AREAS; i++)
		area_on(i, "16M", "0");
	load_start(&l, &rig, TOKENS, "f32");
	for (n = 0; n < turns || !rig_value(&rig, "vmstat", "swap_move"); n++) {
		ck_assert_msg(n < turns + 100, "nothing was ever moved");
		for (wait = now_ms() + 50 + random_below(300);
		     now_ms() < wait;) {
			nap_ms(10);
			if (!load_ended(&l))
				continue;
			load_judge(&l, &truth);
			s.texts++;
			load_start(&l, &rig, TOKENS, "f32");
		}
		area_turn(&s, n % AREAS);
	}
	load_judge(&l, &truth);
	s.texts++;
	seen_print(&s);
	ck_assert_uint_lt(s.longest_ms, 40000 * time_scale());
	small_stop();
}
END_TEST

/* Add the area anew, and wait until blocks were written to it. */
static void area_fill(struct load *l)
{
	s64 before = rig_value(&rig, "vmstat", "pswpout");

	area_on(0, "16M", "0");
	while (rig_value(&rig, "vmstat", "pswpout") < before + 8) {
		nap_ms(20);
		if (!load_ended(l))
			continue;
		load_judge(l, &truth);
		load_start(l, &rig, TOKENS, "f32");
	}
}

/* A swapoff goes on when its kvctl dies; another kvctl can wait for it. */
START_TEST(test_interrupted)
{
	char says[600];
	struct load l;
	struct job j;

	small_start("rate=1000,delay=40,kinds=delay");
	load_start(&l, &rig, TOKENS, "f32");
	area_fill(&l);
	area_on(1, "16M", "0");
	j = job_start(&rig, "kvctl", "swapoff", area_path(0), "--timeout",
		      "60", NULL);
	nap_ms(30);
	job_kill(&j, SIGKILL);
	(void)job_wait(&j, 10);
	unlink(j.out);
	unlink(j.err);
	if (kvctl(0, "swapoff", "--timeout", "60", NULL, NULL, says,
		  sizeof(says)))
		ck_assert_msg(strstr(says, "is no swap area"), "%s", says);
	ck_assert(!area_row(0).there);
	ck_assert(area_row(1).there);
	load_judge(&l, &truth);
	small_stop();
}
END_TEST

static u32 nr_told;

static void on_progress(const char *text)
{
	nr_told += strstr(text, " are left") && strstr(text, area_path(0));
}

/* Ask for swapoff of area 0 as kvctl does, within @ms; it must succeed. */
static void ask_swapoff(u32 ms)
{
	static struct kv_admin a;
	char req[KV_ADMIN_REQ], view[RIG_PATH + 16], path[RIG_PATH + 32];

	snprintf(view, sizeof(view), "%s/view.sock", rig.dir);
	ck_assert_int_eq(kv_admin_path(view, path, sizeof(path)), 0);
	snprintf(req, sizeof(req), "swapoff %u 0 0 %s", ms, area_path(0));
	a = (struct kv_admin){
		.path = path, .fd = -1, .timeout_ms = 60000 * time_scale(),
		.progress = on_progress,
	};
	ck_assert_int_eq(kv_admin_ask(&a, req), 0);
	ck_assert_msg(!a.status, "%s", a.text);
}

static u32 log_count(const char *what)
{
	char path[RIG_PATH + 16], *text, *p;
	u32 n = 0;

	snprintf(path, sizeof(path), "%s/job-0.err", rig.dir);
	text = slurp(path);
	for (p = text; (p = strstr(p, what)); p++)
		n++;
	free(text);
	return n;
}

/*
 * Removing a slow area: a patient caller is told the progress; for an impatient
 * one the remaining slots are given up.
 */
START_TEST(test_slow_swapoff)
{
	struct load l;
	u32 n;

	small_start("rate=1000,delay=1800,kinds=delay");
	load_start(&l, &rig, TOKENS, "f32");
	for (nr_told = 0, n = 0; !nr_told; n++) {
		ck_assert_msg(n < 20, "nobody tells how far it is");
		area_fill(&l);
		ask_swapoff(60000);
	}
	for (n = 0; !log_count("were not moved elsewhere in time"); n++) {
		ck_assert_msg(n < 20, "nothing is ever given up");
		area_fill(&l);
		ask_swapoff(50);
	}
	load_judge(&l, &truth);
	small_stop();
}
END_TEST

/* The next swapd does not find the superblock: the daemon removes the area. */
START_TEST(test_superblock_gone)
{
	const u64 end = now_ms() + 60000 * time_scale();
	char junk[512] = "not an area";
	struct load l;
	int fd;

	small_start("rate=0");
	load_start(&l, &rig, TOKENS, "f32");
	area_fill(&l);
	fd = open(area_path(0), O_RDWR | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(pwrite(fd, junk, sizeof(junk), 0), sizeof(junk));
	ck_assert_int_eq(fdatasync(fd), 0);
	close(fd);
	ck_assert_int_gt(rig_swapd(&rig), 0);
	kill(rig_swapd(&rig), SIGKILL);
	while (rig_value(&rig, "meminfo", "SwapTotal")) {
		ck_assert_msg(now_ms() < end, "the area stays");
		nap_ms(20);
	}
	ck_assert_uint_eq(log_count("is lost: "), 1);
	load_judge(&l, &truth);
	ck_assert_int_eq(rig_value(&rig, "meminfo", "SwapBad"), 0);
	small_stop();
}
END_TEST

static void file_sparse(const char *path, off_t bytes)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, bytes), 0);
	close(fd);
}

/*
 * An empty area is removed while the next swapd opens it: the other areas still
 * get their requests.
 */
START_TEST(test_gone_at_start)
{
	u32 n, up, runs, tries = by_level(3, 30, 300);
	u64 end;

	rig_start(&rig, "--pool-size", "2M", "--extent-size", "256K",
		  "--host-size", "1M", "--area-max", AREA_MAX, "--log-level",
		  "debug", NULL);
	for (n = 1; n <= AREAS; n++)
		area_on(n, "8M", "0");
	for (n = 0; n < tries; n++) {
		/* swapd opens this area last. */
		area_on(0, "8M", "0");
		runs = log_count(" runs as ");
		up = log_count(" takes requests");
		ck_assert_int_eq(kill(rig_swapd(&rig), SIGKILL), 0);
		end = now_ms() + 20000 * time_scale();
		while (log_count(" runs as ") == runs)
			ck_assert_msg(now_ms() < end, "there is no swapd");
		ask_swapoff(5000);
		while (log_count(" takes requests") == up) {
			ck_assert_msg(now_ms() < end, "round %u: swapd gets nothing",
				      n);
			nap_ms(5);
		}
	}
	rig_stop(&rig);
}
END_TEST

/*
 * A size that no area may have is refused, and leaves no file.  Of a longer file no
 * more room is taken on the disk than its slots can use.
 */
START_TEST(test_size)
{
	char says[600];
	struct stat st;

	small_start("rate=0");
	ck_assert_int_eq(kvctl(0, "swapon", "--size", "1T", NULL, NULL, says,
			       sizeof(says)), 1);
	ck_assert_msg(strstr(says, "1T is more than the 17M that an area may have: give a smaller --size, or start kvmm with a larger --area-max (it is 16M)"),
		      "%s", says);
	ck_assert_int_eq(stat(area_path(0), &st), -1);
	ck_assert_int_eq(kvctl(0, "swapon", "--size", "17M", NULL, NULL, says,
			       sizeof(says)), 0);
	ck_assert_msg(strstr(says, "swap area of 16M, of 17M"), "%s", says);
	ck_assert_int_eq(stat(area_path(0), &st), 0);
	ck_assert_int_eq(st.st_size, 17 << 20);
	file_sparse(area_path(1), 64 << 20);
	ck_assert_int_eq(kvctl(1, "swapon", "--priority", "0", NULL, NULL,
			       says, sizeof(says)), 0);
	ck_assert_msg(strstr(says, "swap area of 16M, of 64M: no more is used (--area-max)"),
		      "%s", says);
	ck_assert_int_eq(stat(area_path(1), &st), 0);
	ck_assert_int_le(st.st_blocks * 512, 18 << 20);
	small_stop();
}
END_TEST

/* Text of a file of the daemon, to be freed. */
static char *file_text(const char *name)
{
	struct job j = job_start(&rig, "kvctl", "cat", name, NULL);
	char *text;

	ck_assert_int_eq(job_wait(&j, 30), 0);
	text = slurp(j.out);
	unlink(j.out);
	unlink(j.err);
	return text;
}

/* A deleted file is shown and logged once, and its area goes on until swapoff. */
START_TEST(test_deleted)
{
	const u64 end = now_ms() + 20000 * time_scale();
	char want[300], *text;

	small_start("rate=0");
	area_on(0, "8M", "0");
	snprintf(want, sizeof(want), "%s\\040(deleted) ", area_path(0));
	text = file_text("swaps");
	ck_assert_ptr_null(strstr(text, "deleted"));
	free(text);
	ck_assert_int_eq(unlink(area_path(0)), 0);
	while (!log_count("was deleted: it is used until swapoff")) {
		ck_assert_msg(now_ms() < end, "the log does not say it");
		nap_ms(20);
	}
	text = file_text("swaps");
	ck_assert_msg(strstr(text, want), "%s", text);
	free(text);
	text = file_text("swapareas");
	ck_assert_msg(strstr(text, " deleted "), "%s", text);
	free(text);
	/* The control thread has looked again meanwhile. */
	nap_ms(1200);
	ck_assert_uint_eq(log_count("was deleted: it is used until swapoff"), 1);
	small_stop();
}
END_TEST

static Suite *areas_suite(void)
{
	Suite *s = suite_create("areas");
	TCase *tc = tcase_create("load");

	tcase_set_timeout(tc, 1800);
	tcase_add_unchecked_fixture(tc, find_truth, forget_truth);
	tcase_add_test(tc, test_by_speed);
	tcase_add_test(tc, test_by_priority);
	tcase_add_test(tc, test_come_and_go);
	suite_add_tcase(s, tc);
	tc = tcase_create("swapoff");
	tcase_set_timeout(tc, 600);
	tcase_add_unchecked_fixture(tc, find_truth, forget_truth);
	tcase_add_test(tc, test_interrupted);
	tcase_add_test(tc, test_slow_swapoff);
	tcase_add_test(tc, test_superblock_gone);
	tcase_add_test(tc, test_size);
	tcase_add_test(tc, test_deleted);
	suite_add_tcase(s, tc);
	tc = tcase_create("start");
	tcase_set_timeout(tc, 600);
	tcase_add_test(tc, test_gone_at_start);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	SRunner *sr = srunner_create(areas_suite());
	int failed;

	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
