// SPDX-License-Identifier: Apache-2.0
/*
 * it_sandbox.c - the running processes have the documented rights and no more
 *
 * The test compares /proc/PID/status of every thread of kvmm and swapd, and of
 * kvmm-hold: user, groups, capabilities, no_new_privs, the filter.  With
 * separate users both do their work, are started again after a death, end a
 * client of a third user that keeps its memory, and leave no file behind.  A
 * forbidden call ends kvmm with a line that names the call.  On a kernel
 * without filters and Landlock the daemon works, with a warning.  Without root
 * there are no users to change to, and a note says so.  budget: 60 s
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include <kvmm/sandbox.h>
#include <libkvmm.h>

#include "tests/integration/harness.h"
#include "tests/tmp.h"

#define KVMM_UID	4242
#define SWAPD_UID	4343
#define SWAPD_GID	4344
#define CLIENT_UID	65534

static struct rig rig;

/* ---- rights of a thread ---- */

struct rights {
	u32	uid[4];
	u32	gid[4];
	u64	caps[4];	/* permitted, effective, bounding, ambient */
	u32	nnp;
	u32	mode;
};

static void rights_read(const char *path, struct rights *r)
{
	static const char * const cap[] = {
		"\nCapPrm:", "\nCapEff:", "\nCapBnd:", "\nCapAmb:",
	};
	char *text = slurp(path), *p;
	u32 i;

	memset(r, 0xff, sizeof(*r));
	p = strstr(text, "\nUid:");
	ck_assert_msg(p && sscanf(p, "\nUid: %u %u %u %u", &r->uid[0],
				  &r->uid[1], &r->uid[2], &r->uid[3]) == 4,
		      "%s: %s", path, text);
	p = strstr(text, "\nGid:");
	ck_assert(p && sscanf(p, "\nGid: %u %u %u %u", &r->gid[0], &r->gid[1],
			      &r->gid[2], &r->gid[3]) == 4);
	for (i = 0; i < ARRAY_SIZE(cap); i++) {
		p = strstr(text, cap[i]);
		ck_assert_ptr_nonnull(p);
		r->caps[i] = strtoull(p + strlen(cap[i]), NULL, 16);
	}
	p = strstr(text, "\nNoNewPrivs:");
	ck_assert(p && sscanf(p, "\nNoNewPrivs: %u", &r->nnp) == 1);
	p = strstr(text, "\nSeccomp:");
	ck_assert(p && sscanf(p, "\nSeccomp: %u", &r->mode) == 1);
	free(text);
}

/* Capabilities of root here; a container may lack some. */
static u64 caps_here(void)
{
	struct rights r;

	rights_read("/proc/self/status", &r);
	return r.caps[0] & r.caps[2];
}

static u64 caps_kept(u32 who)
{
	u64 caps = 0;
	u32 i;

	for (i = 0; i < sandbox_nr_caps; i++)
		if (sandbox_caps[i].keeps & who)
			caps |= BIT_ULL(sandbox_caps[i].nr);
	return geteuid() ? 0 : caps & caps_here();
}

static void want_thread(const char *path, u32 who, u32 uid, u32 gid)
{
	struct rights r;
	u32 i;

	rights_read(path, &r);
	for (i = 0; i < 4; i++) {
		ck_assert_uint_eq(r.uid[i], uid);
		ck_assert_uint_eq(r.gid[i], gid);
	}
	ck_assert_uint_eq(r.caps[0], caps_kept(who));
	ck_assert_uint_eq(r.caps[1], caps_kept(who));
	ck_assert_uint_eq(r.caps[3], 0);
	/* Only root can empty the bounding set; with no_new_privs it has no effect. */
	if (!geteuid())
		ck_assert_uint_eq(r.caps[2], 0);
	ck_assert_uint_eq(r.nnp, 1);
	ck_assert_uint_eq(r.mode, 2);
}

/* Check every thread of the process.  Return: number of threads. */
static u32 want_rights(pid_t pid, u32 who, u32 uid, u32 gid)
{
	char path[64 + 256];
	struct dirent *e;
	u32 nr = 0;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	d = opendir(path);
	ck_assert_msg(d != NULL, "%s", path);
	while ((e = readdir(d))) {
		if (e->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "/proc/%d/task/%s/status",
			 (int)pid, e->d_name);
		want_thread(path, who, uid, gid);
		nr++;
	}
	closedir(d);
	return nr;
}

static void want_hold(void)
{
	char path[64];
	u64 all = 0;
	struct rights r;
	u32 i;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)rig.hold);
	rights_read(path, &r);
	ck_assert_uint_eq(r.uid[0], geteuid());
	if (geteuid())
		return;
	for (i = 0; i < sandbox_nr_caps; i++)
		if (sandbox_caps[i].starts & SANDBOX_both)
			all |= BIT_ULL(sandbox_caps[i].nr);
	ck_assert_uint_eq(r.caps[0], all & caps_here());
	ck_assert_uint_eq(r.caps[1], caps_kept(SANDBOX_hold));
	ck_assert_uint_eq(r.caps[2], all & caps_here());
}

/* ---- work ---- */

static char *hold_log(void)
{
	char path[RIG_PATH + 32];

	snprintf(path, sizeof(path), "%s/job-0.err", rig.dir);
	return slurp(path);
}

static void want_logged(const char *word)
{
	u64 end = now_ms() + 20000 * time_scale();
	char *text = hold_log();

	while (!strstr(text, word)) {
		ck_assert_msg(now_ms() < end, "no '%s' in: %s", word, text);
		free(text);
		nap_ms(10);
		text = hold_log();
	}
	free(text);
}

static void want_job(struct job j, int code)
{
	int got = job_wait(&j, 60 * time_scale());

	ck_assert_msg(got == code, "%d: %s", got, slurp(j.err));
	unlink(j.out);
	unlink(j.err);
}

static void swapon(void)
{
	char path[RIG_PATH + 32];

	snprintf(path, sizeof(path), "%s/area", rig.dir);
	want_job(job_start(&rig, "kvctl", "swapon", path, "--size", "32M",
			   NULL), 0);
}

/* Wait for another swapd or kvmm than @old. */
static pid_t another(pid_t (*find)(struct rig *r), pid_t old)
{
	u64 end = now_ms() + 20000 * time_scale();
	pid_t pid;

	while (!(pid = find(&rig)) || pid == old) {
		ck_assert(now_ms() < end);
		nap_ms(5);
	}
	return pid;
}

/* A process gives up rights a moment after its start. */
static void wait_boxed(pid_t pid)
{
	u64 end = now_ms() + 20000 * time_scale();
	struct rights r;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	for (rights_read(path, &r); r.mode != 2; rights_read(path, &r)) {
		ck_assert_msg(now_ms() < end, "no filter");
		nap_ms(5);
	}
}

/* The texts do not fit in the pool, so that blocks are paged out and in. */
static void generate(void)
{
	want_job(job_start(&rig, KVRT_GENERATE, demo_model(), "-n", "6",
			   "--max-tokens", "120", "In the beginning",
			   "Holmes leaned back", NULL), 0);
	rig_walk(&rig);
}

/* ---- the default ---- */

START_TEST(test_default)
{
	rig_start(&rig, "--pool-size", "4M", "--extent-size", "1M",
		  "--min-token-bytes", "4096", "--host-size", "8M",
		  "--swap-engine", _i ? "sync" : "auto", NULL);
	want_logged("swapd: sandbox: ");
	swapon();
	generate();
	ck_assert_uint_ge(want_rights(rig_daemon(&rig), SANDBOX_kvmm,
				      geteuid(), getegid()), 5);
	ck_assert_uint_ge(want_rights(rig_swapd(&rig), SANDBOX_swapd,
				      geteuid(), getegid()), 2);
	want_hold();
	rig_stop(&rig);
}
END_TEST

/* ---- users ---- */

static void want_all_rights(void)
{
	want_rights(rig_daemon(&rig), SANDBOX_kvmm, KVMM_UID, KVMM_UID);
	want_rights(rig_swapd(&rig), SANDBOX_swapd, SWAPD_UID, SWAPD_GID);
	want_hold();
}

START_TEST(test_users)
{
	pid_t kvmm, swapd;

	if (geteuid()) {
		printf("note: not root: no users to change to, not tried\n");
		return;
	}
	rig_start(&rig, "--pool-size", "4M", "--extent-size", "1M",
		  "--min-token-bytes", "4096", "--host-size", "8M",
		  "--swap-engine", _i ? "sync" : "auto", "--user", "4242",
		  "--swapd-user", "4343:4344", NULL);
	want_logged("swapd: sandbox: ");
	swapon();
	generate();
	want_all_rights();
	swapd = rig_swapd(&rig);
	kill(swapd, SIGKILL);
	swapd = another(rig_swapd, swapd);
	generate();
	kvmm = rig_daemon(&rig);
	kill(kvmm, SIGKILL);
	another(rig_daemon, kvmm);
	wait_boxed(another(rig_swapd, swapd));
	generate();
	want_all_rights();
	/* hold removes the files that kvmm itself may not remove. */
	rig_stop(&rig);
}
END_TEST

/* ---- the mounted files ---- */

START_TEST(test_proc)
{
	const u64 end = now_ms() + 20000 * time_scale();
	char path[RIG_PATH + 32], *text;
	struct rights r;

	if (geteuid() || access("/dev/fuse", R_OK | W_OK)) {
		printf("note: not root, or no /dev/fuse: kvmm-proc not tried\n");
		return;
	}
	rig_start(&rig, "--pool-size", "16M", "--user", "4242", "--proc", "on",
		  "--proc-user", "4545:4546", NULL);
	text = hold_log();
	while (!strstr(text, "kvmm-proc: the files are in") &&
	       !strstr(text, "cannot be mounted")) {
		ck_assert(now_ms() < end);
		nap_ms(10);
		free(text);
		text = hold_log();
	}
	if (strstr(text, "cannot be mounted")) {
		printf("note: nothing may be mounted here: not tried\n");
	} else {
		ck_assert_uint_ge(want_rights(rig_proc(&rig), SANDBOX_proc, 4545,
					      4546), 8);
		snprintf(path, sizeof(path), "%s/proc/meminfo", rig.dir);
		ck_assert_ptr_nonnull(strstr(slurp(path), "GpuTotal:"));
	}
	free(text);
	/* hold itself does not use the right to mount. */
	snprintf(path, sizeof(path), "/proc/%d/status", (int)rig.hold);
	rights_read(path, &r);
	ck_assert_uint_eq(r.caps[1], caps_kept(SANDBOX_hold));
	rig_stop(&rig);
}
END_TEST

/* ---- a client of another user ---- */

#define MUST(cond)							\
do {									\
	if (!(cond)) {							\
		fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond); \
		_exit(1);						\
	}								\
} while (0)

/* A client gets memory of the pool, tells the test, and never answers again. */
static void client_main(int up)
{
	static const u8 identity[KVMM_IDENTITY_LEN] = "it_sandbox";
	char path[RIG_PATH + 32], text[256];
	const struct kvmm_params p = {
		.socket = path, .domain = "it", .identity = identity,
		.block_tokens = 16,
		.group[0] = { .layers = 1, .kv_heads = 1, .k_bytes = 2048,
			   .v_bytes = 2048 },
		.max_bytes = KVMM_LIMIT_MAX, .attach_timeout_ms = 20000,
	};
	struct kvmm_open_arg arg = { .prompt_len = 64 };
	struct kvmm_seq_status st;
	struct kvmm_open_res res;
	u32 ids[64] = { 1, 2, 3 };
	struct kvmm *k;
	int fd;

	snprintf(path, sizeof(path), "%s/attach.sock", rig.dir);
	fd = open(path, O_PATH);
	MUST(fd >= 0 && !setgid(CLIENT_UID) && !setuid(CLIENT_UID));
	prctl(PR_SET_DUMPABLE, 1);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	MUST(!kvmm_attach(&p, &k, text));
	MUST(!kvmm_seq_open(k, &arg, 1, &res) && !res.status);
	MUST(!kvmm_seq_match(k, res.seq, ids, 64));
	do {
		MUST(kvmm_wait(k, 10000000) != -ECONNRESET);
		MUST(!kvmm_seq_status(k, res.seq, &st));
	} while (st.state != KVMM_SEQ_READY);
	MUST(write(up, "x", 1) == 1);
	for (;;)
		pause();
}

/*
 * kvmm dies, and the client of a third user keeps its memory: the next kvmm,
 * whose user is neither root nor that one, finds the client and ends it.
 */
START_TEST(test_old_client)
{
	int up[2], status;
	pid_t kvmm, pid;
	char byte;

	if (geteuid()) {
		printf("note: not root: no clients of others, not tried\n");
		return;
	}
	rig_start(&rig, "--adopt", "off", "--pool-size", "4M",
		  "--extent-size", "1M",
		  "--socket-mode", "0666", "--user", "4242",
		  "--quiet-deadline-ms", "300", NULL);
	ck_assert(!pipe(up));
	fflush(stdout);
	pid = fork();
	if (!pid)
		client_main(up[1]);
	close(up[1]);
	ck_assert_int_eq(read(up[0], &byte, 1), 1);
	close(up[0]);
	kvmm = rig_daemon(&rig);
	kill(kvmm, SIGKILL);
	another(rig_daemon, kvmm);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL,
		      "%x", status);
	want_logged("still holds its memory: killed");
	rig_stop(&rig);
}
END_TEST

/* ---- a forbidden call ---- */

START_TEST(test_forbidden)
{
	char *text;

	setenv("KVMM_FAULT", "forbidden_call:2", 1);
	rig_start(&rig, "--pool-size", "16M", NULL);
	unsetenv("KVMM_FAULT");
	want_job(job_start(&rig, KVRT_GENERATE, demo_model(),
			   "--max-tokens", "4", "In", NULL), 0);
	want_job(job_start(&rig, KVRT_GENERATE, demo_model(),
			   "--max-tokens", "4", "In", NULL), EX_TEMPFAIL);
	want_logged("kvmm was ended by signal 31");
	/* hold starts the next kvmm. */
	want_job(job_start(&rig, "kvctl", "wait", "--timeout", "20", NULL), 0);
	want_job(job_start(&rig, KVRT_GENERATE, demo_model(),
			   "--max-tokens", "4", "In", NULL), 0);
	text = hold_log();
	ck_assert_msg(strstr(text, "(personality)"), "%s", text);
	free(text);
	rig_stop(&rig);
}
END_TEST

START_TEST(test_off)
{
	struct rights r, mine;
	char path[64];

	rig_start(&rig, "--pool-size", "16M", "--sandbox", "off", NULL);
	snprintf(path, sizeof(path), "/proc/%d/status",
		 (int)rig_daemon(&rig));
	rights_read(path, &r);
	rights_read("/proc/self/status", &mine);
	ck_assert_uint_eq(r.mode, mine.mode);
	ck_assert_uint_eq(r.nnp, mine.nnp);
	ck_assert_uint_eq(r.caps[1], mine.caps[1]);
	ck_assert_uint_eq(r.caps[2], mine.caps[2]);
	want_logged("sandbox: off");
	rig_stop(&rig);
}
END_TEST

/* Like a container without Landlock and filters. */
static void take_away(void)
{
	scmp_filter_ctx f = seccomp_init(SCMP_ACT_ALLOW);

	ck_assert_ptr_nonnull(f);
	ck_assert(!seccomp_rule_add(f, SCMP_ACT_ERRNO(EPERM),
				    SCMP_SYS(seccomp), 0));
	ck_assert(!seccomp_rule_add(f, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(prctl),
				    1, SCMP_A0(SCMP_CMP_EQ, PR_SET_SECCOMP)));
	ck_assert(!seccomp_rule_add(f, SCMP_ACT_ERRNO(ENOSYS),
				    SCMP_SYS(landlock_create_ruleset), 0));
	ck_assert(!seccomp_rule_add(f, SCMP_ACT_ERRNO(ENOSYS),
				    SCMP_SYS(io_uring_setup), 0));
	ck_assert(!seccomp_load(f));
	seccomp_release(f);
}

START_TEST(test_bare)
{
	take_away();
	rig_start(&rig, "--pool-size", "4M", "--extent-size", "1M",
		  "--min-token-bytes", "4096", "--host-size", "8M", NULL);
	want_logged("swapd: warning: system calls are not filtered: ");
	want_logged("kvmm: warning: system calls are not filtered: ");
	want_logged("no Landlock here; calls not filtered");
	swapon();
	generate();
	rig_stop(&rig);
}
END_TEST

START_TEST(test_no_such_user)
{
	struct job j;
	char *text;

	memset(&rig, 0, sizeof(rig));
	ck_assert_ptr_nonnull(mkdtemp(tmp_name(rig.dir, sizeof(rig.dir), "rig")));
	j = job_start(&rig, "kvmm-hold", "--user", "no-such-user", NULL);
	ck_assert_int_eq(job_wait(&j, 20), EX_USAGE);
	text = slurp(j.err);
	ck_assert_msg(strstr(text, "no-such-user"), "%s", text);
	ck_assert_uint_eq(count_lines(text), 1);
	free(text);
	unlink(j.out);
	unlink(j.err);
	ck_assert_int_eq(rmdir(rig.dir), 0);
}
END_TEST

int main(void)
{
	const char *san = getenv("KVMM_SANITIZER");
	TCase *tc;
	SRunner *sr;
	Suite *s;
	int failed;

	if (san && *san && strcmp(san, "ubsan")) {
		printf("the sandbox is off in builds with %s\n", san);
		return 77;
	}
	s = suite_create("sandbox");
	tc = tcase_create("sandbox");
	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, test_default, 0, 2);
	tcase_add_loop_test(tc, test_users, 0, 2);
	tcase_add_test(tc, test_proc);
	tcase_add_test(tc, test_old_client);
	tcase_add_test(tc, test_forbidden);
	tcase_add_test(tc, test_off);
	tcase_add_test(tc, test_bare);
	tcase_add_test(tc, test_no_such_user);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
