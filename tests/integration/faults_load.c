// SPDX-License-Identifier: Apache-2.0
/*
 * faults_load.c - two runtimes in a small pool, on a disk that fails
 *
 * The truth is the text that two runtimes print in a pool that fits everything.
 * Then they live off a swap area whose disk lies or fails.  They must print the
 * truth, and the daemon must answer all the time.  An area that fails too often
 * is removed by the daemon and added again by the test, as an operator would.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/integration/faults_load.h"

#define TOKENS		"144"
#define HANG_MS		100000
#define DEAF_MS		10000
#define AGAIN_MS	200	/* until an operator adds an area again */

static struct load_text truth;
static char area[RIG_PATH + 64];

struct rig faults_rig;

void faults_find_truth(void)
{
	struct load l;

	rig_start(&faults_rig, "--pool-size", "128M", "--extent-size", "1M",
		  NULL);
	load_start(&l, &faults_rig, TOKENS, "f32");
	load_finish(&l, &truth);
	rig_stop(&faults_rig);
}

void faults_forget_truth(void)
{
	load_text_free(&truth);
}

/* Run kvctl with the area.  Return: its exit code; its stderr in @says. */
static int kvctl(const char *verb, const char *arg1, const char *arg2,
		 char *says, size_t len)
{
	struct job j = job_start(&faults_rig, "kvctl", verb, area, arg1, arg2,
				 NULL);
	int code = job_wait(&j, 90);
	char *err = slurp(j.err);

	snprintf(says, len, "%s", err);
	free(err);
	unlink(j.out);
	unlink(j.err);
	return code;
}

int faults_area_try(void)
{
	char says[400];

	return kvctl("swapon", "--size", "16M", says, sizeof(says));
}

void faults_area_on(void)
{
	char says[400];

	if (kvctl("swapon", "--size", "16M", says, sizeof(says)))
		ck_abort_msg("swapon: %s", says);
}

/* The daemon may have removed the area a moment ago. */
void faults_area_off(void)
{
	char says[400];

	if (kvctl("swapoff", "--timeout", "60", says, sizeof(says)))
		ck_assert_msg(strstr(says, "is no swap area"), "swapoff: %s",
			      says);
	ck_assert_int_eq(rig_value(&faults_rig, "meminfo", "SwapTotal"), 0);
}

bool faults_try_start(const char *path, const char *engine)
{
	rig_start(&faults_rig, "--pool-size", "2M", "--extent-size", "256K",
		  "--host-size", "1M", "--area-max", "32M", "--swappiness",
		  "200", "--swap-engine", engine, "--swap-deadline-ms", "300",
		  NULL);
	if (path)
		snprintf(area, sizeof(area), "%s", path);
	else
		snprintf(area, sizeof(area), "%s/area", faults_rig.dir);
	if (!faults_area_try())
		return true;
	rig_stop(&faults_rig);
	return false;
}

void faults_start(const char *path, const char *engine)
{
	ck_assert_msg(faults_try_start(path, engine), "%s is refused", area);
}

u32 faults_logged(const char *what)
{
	char path[RIG_PATH + 16], *text, *p;
	u32 n = 0;

	snprintf(path, sizeof(path), "%s/job-0.err", faults_rig.dir);
	text = slurp(path);
	for (p = text; (p = strstr(p, what)); p++)
		n++;
	free(text);
	return n;
}

void faults_load(struct faults_seen *seen, void (*meanwhile)(u32 ms))
{
	u64 began = now_ms(), added = began, asked;
	struct load l;

	load_start(&l, &faults_rig, TOKENS, "f32");
	while (!load_ended(&l)) {
		ck_assert_msg(now_ms() < began + HANG_MS * time_scale(),
			      "runtimes wait for ever");
		if (!seen->dead && now_ms() > added + AGAIN_MS &&
		    !rig_value(&faults_rig, "meminfo", "SwapTotal")) {
			faults_area_try();
			added = now_ms();
		}
		asked = now_ms();
		rig_walk(&faults_rig);
		seen->answer_ms = max(seen->answer_ms,
				      (u32)(now_ms() - asked));
		if (meanwhile)
			meanwhile((u32)(now_ms() - began));
		nap_ms(25);
	}
	load_judge(&l, &truth);
	seen->texts++;
	/* A bad disk must not hold up the daemon. */
	ck_assert_uint_lt(seen->answer_ms, DEAF_MS * time_scale());
}

/* No request is under way; every slot is used, free or retired. */
void faults_settle(void)
{
	u64 end = now_ms() + 20000 * time_scale();

	while (rig_value(&faults_rig, "swapstat", "nr_open") ||
	       rig_value(&faults_rig, "swapstat", "nr_backlog") ||
	       rig_value(&faults_rig, "meminfo", "HostLimbo") ||
	       rig_value(&faults_rig, "meminfo", "SwapLimbo")) {
		ck_assert_msg(now_ms() < end, "slots stay in limbo");
		nap_ms(20);
	}
	rig_walk(&faults_rig);
	ck_assert_int_eq(rig_value(&faults_rig, "swapstat", "strays"), 0);
	ck_assert_int_eq(rig_value(&faults_rig, "meminfo", "HostFree") +
			 rig_value(&faults_rig, "meminfo", "HostUsed"),
			 rig_value(&faults_rig, "meminfo", "HostTotal"));
}

void faults_end_of_disk(struct faults_seen *seen)
{
	u64 end = now_ms() + 20000 * time_scale();

	while (rig_value(&faults_rig, "meminfo", "SwapTotal")) {
		ck_assert_msg(now_ms() < end, "the area stays");
		nap_ms(20);
	}
	snprintf(area, sizeof(area), "%s/area", faults_rig.dir);
	faults_area_on();
	faults_load(seen, NULL);
	faults_end(seen);
}

void faults_end(struct faults_seen *seen)
{
	faults_settle();
	faults_area_off();
	rig_walk(&faults_rig);
	ck_assert_int_eq(rig_value(&faults_rig, "meminfo", "SwapUsed"), 0);
	ck_assert_int_eq(rig_value(&faults_rig, "meminfo", "SwapBad"), 0);
	seen->gone += faults_logged(FAULTS_GOES);
	seen->cut_off += faults_logged(FAULTS_CUT_OFF);
	seen->out += rig_value(&faults_rig, "vmstat", "pswpout");
	seen->in += rig_value(&faults_rig, "vmstat", "pswpin");
	seen->read_errors += rig_value(&faults_rig, "vmstat",
				       "swap_read_error");
	seen->write_errors += rig_value(&faults_rig, "vmstat",
					"swap_write_error");
	seen->lost += rig_value(&faults_rig, "vmstat", "swap_lost");
	seen->late += rig_value(&faults_rig, "vmstat", "swap_late");
	rig_stop(&faults_rig);
}
