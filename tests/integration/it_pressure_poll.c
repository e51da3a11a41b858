// SPDX-License-Identifier: Apache-2.0
/*
 * it_pressure_poll.c - poll() of pressure files works as on those of the kernel
 *
 * Real clients of a real daemon stall: one sequence fills the pool, another one
 * waits for it, until the first is closed.  A trigger fires meanwhile, at most
 * once a window, and never otherwise: through the mount, by kvctl wait, and on
 * a connection to the daemon.  The daemon refuses the same triggers as the
 * kernel.  A connection that is not read is closed.  Another tenant may watch
 * the files that it may read, with a limited number of triggers.  Triggers of
 * the mount survive the death of kvmm.  Where mounting is impossible, that half
 * is skipped with the reason.
 *
 * budget: 40 s
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include <kvmm/view.h>
#include <libkvmm.h>

#include "tests/integration/harness.h"

#define PROC_UID	"4545"
#define OTHER_UID	4646
#define LIMIT_MS	(20000 * (int)time_scale())
#define WINDOW_MS	500		/* the shortest possible */
#define TRIGGER		"some 50000 500000"
#define WAITS_USER	4		/* of kvmm/ipc/view/wait.c */
#define TOKENS		16
#define POOL_TOKENS	(32 * TOKENS)	/* 1 MiB in blocks of 32 KiB */

static struct rig rig;
static char proc_dir[RIG_PATH + 16];
static char view[RIG_PATH + 16];
static bool mounts;

/* For children, too: a failure ends them. */
#define MUST(cond)							\
do {									\
	if (!(cond)) {							\
		fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__,	\
			#cond, strerror(errno));			\
		abort();						\
	}								\
} while (0)

static const char *proc_path(const char *name)
{
	static char path[3 * RIG_PATH];

	snprintf(path, sizeof(path), "%s/%s", proc_dir, name);
	return path;
}

static void await_mount(void)
{
	const u64 end = now_ms() + (u64)LIMIT_MS;

	while (access(proc_path("version"), F_OK)) {
		ck_assert_msg(now_ms() < end, "no mount: %s", strerror(errno));
		nap_ms(5);
	}
}

static void start(void)
{
	rig_start(&rig, "--pool-size", "1M", "--extent-size", "256K",
		  "--socket-mode", "0666", "--proc", mounts ? "on" : "off",
		  "--proc-user", PROC_UID, NULL);
	snprintf(proc_dir, sizeof(proc_dir), "%s/proc", rig.dir);
	snprintf(view, sizeof(view), "%s/view.sock", rig.dir);
	if (mounts)
		await_mount();
}

/* ---- stall ---- */

/**
 * struct stall - a client with two sequences, one of which waits for the other
 * @k: attached, and otherwise idle, so that the second one waits on
 */
struct stall {
	struct kvmm	*k;
	u64		big;
	u64		small;
};

static struct kvmm *attach(const char *path, const char *domain)
{
	static const u8 identity[KVMM_IDENTITY_LEN] = "it_pressure_poll";
	const struct kvmm_params p = {
		.socket = path, .domain = domain, .identity = identity,
		.block_tokens = TOKENS,
		.group[0] = { .layers = 1, .kv_heads = 1, .k_bytes = 1024,
			   .v_bytes = 1024 },
		.max_bytes = KVMM_LIMIT_MAX, .attach_timeout_ms = 20000,
	};
	struct kvmm *k = NULL;
	char text[256] = "";

	if (kvmm_attach(&p, &k, text))
		fprintf(stderr, "attach: %s\n", text);
	return k;
}

static u64 open_seq(struct kvmm *k, u32 nr, u32 seed)
{
	struct kvmm_open_arg arg = { .prompt_len = nr };
	struct kvmm_open_res res;
	static u32 ids[POOL_TOKENS];
	u32 i;

	for (i = 0; i < nr; i++)
		ids[i] = seed + i;
	MUST(!kvmm_seq_open(k, &arg, 1, &res) && !res.status);
	MUST(!kvmm_seq_match(k, res.seq, ids, nr));
	return res.seq;
}

static void await_state(struct kvmm *k, u64 seq, u32 state)
{
	const u64 end = now_ms() + (u64)LIMIT_MS;
	struct kvmm_seq_status st;

	for (;;) {
		MUST(!kvmm_seq_status(k, seq, &st));
		if (st.state == state)
			return;
		MUST(now_ms() < end);
		MUST(kvmm_wait(k, 10000000) != -ECONNRESET);
	}
}

static void stall_attach(struct stall *s)
{
	char path[RIG_PATH + 16];

	snprintf(path, sizeof(path), "%s/attach.sock", rig.dir);
	s->k = attach(path, "it");
	ck_assert_ptr_nonnull(s->k);
}

/* From now on the second sequence waits, and none runs. */
static void stall_begin(struct stall *s)
{
	s->big = open_seq(s->k, POOL_TOKENS - 2 * TOKENS, 0);
	await_state(s->k, s->big, KVMM_SEQ_READY);
	s->small = open_seq(s->k, 8 * TOKENS, 1000000);
	await_state(s->k, s->small, KVMM_SEQ_WAITING);
}

static void stall_end(struct stall *s)
{
	ck_assert(!kvmm_seq_close(s->k, &s->big, 1));
	await_state(s->k, s->small, KVMM_SEQ_READY);
	ck_assert(!kvmm_seq_close(s->k, &s->small, 1));
}

static void stop(struct stall *s)
{
	kvmm_detach(s->k);
	rig_walk(&rig);
	rig_stop(&rig);
}

/* ---- a direct connection ---- */

static int subscribe(const char *path, const char *req, int want)
{
	struct seq_file text;
	int fd = -1, status = -1, err;

	seq_init(&text, 4096);
	err = kv_view_wait(path, req, (u32)LIMIT_MS, &status, &text, &fd);
	ck_assert_msg(!err && status == want, "%s: %d %d %s", req, err, status,
		      seq_text(&text));
	seq_free(&text);
	return fd;
}

static bool is_ready(int fd, short events, int ms)
{
	struct pollfd p = { .fd = fd, .events = events };

	return poll(&p, 1, ms) == 1 && (p.revents & events);
}

/* Count the lines of the next @windows windows. */
static u32 count_lines_of(int fd, u32 windows)
{
	const u64 end = now_ms() + windows * WINDOW_MS;
	u32 nr = 0;
	int n;

	while (now_ms() < end)
		if (is_ready(fd, POLLIN, (int)(end - now_ms()) + 1)) {
			n = kv_view_fired(fd);
			ck_assert_int_ge(n, 0);
			nr += (u32)n;
		}
	return nr;
}

/* A trigger fires only during a stall, and at most once a window. */
START_TEST(test_socket)
{
	struct stall s;
	int mem, io;
	u64 began, windows;
	u32 nr;

	start();
	stall_attach(&s);
	mem = subscribe(view, "wait pressure/memory " TRIGGER, 0);
	io = subscribe(view, "wait domain/it/io.pressure " TRIGGER, 0);
	ck_assert_uint_eq(count_lines_of(mem, 1), 0);
	began = now_ms();
	stall_begin(&s);
	ck_assert(is_ready(mem, POLLIN, LIMIT_MS));
	nr = count_lines_of(mem, 3);
	ck_assert_uint_ge(nr, 2);
	stall_end(&s);
	/* The window in which the stall ended may still fire. */
	nr += count_lines_of(mem, 2);
	windows = (now_ms() - began) / WINDOW_MS;
	ck_assert_msg(nr <= windows + 1, "%u in %u windows", nr, (u32)windows);
	ck_assert_uint_eq(count_lines_of(mem, 1), 0);
	/* No sequence waited for I/O. */
	ck_assert_int_eq(kv_view_fired(io), 0);
	close(mem);
	close(io);
	ck_assert_int_eq(rig_value(&rig, "vmstat", "psi_trigger"), nr);
	stop(&s);
}
END_TEST

/* Files and triggers that are refused, and the limit on their number. */
START_TEST(test_refused)
{
	static const struct {
		const char *req;
		int	err;
	} bad[] = {
		{ "wait pressure/memory", EINVAL },
		{ "wait pressure/memory some 50000", EINVAL },
		{ "wait pressure/memory most 50000 500000", EINVAL },
		{ "wait pressure/memory some 0 500000", EINVAL },
		{ "wait pressure/memory some 500001 500000", EINVAL },
		{ "wait pressure/memory some 50000 499999", EINVAL },
		{ "wait pressure/memory some 50000 10000001", EINVAL },
		{ "wait pressure/memory some -1 4294967295", EINVAL },
		{ "wait pressure/disk some 50000 500000", ENOENT },
		{ "wait pressure some 50000 500000", EISDIR },
		{ "wait meminfo some 50000 500000", EOPNOTSUPP },
		{ "wait domain/none/memory.pressure some 50000 500000",
		  ENOENT },
		{ "as 4646 wait pressure/memory some 50000 500000", ENOENT },
		{ "as 4646 wait domain/it/memory.pressure some 50000 500000",
		  ENOENT },
		{ "set pressure/memory some", ENOENT },
	};
	struct stall s;
	int fd[65];
	u32 i, nr;

	start();
	stall_attach(&s);
	for (i = 0; i < ARRAY_SIZE(bad); i++)
		(void)subscribe(view, bad[i].req, bad[i].err);
	/* All triggers that there are; a closed one makes room for another. */
	for (nr = 0; nr < 64; nr++)
		fd[nr] = subscribe(view, "wait pressure/cpu full 500000 500000",
				   0);
	(void)subscribe(view, "wait pressure/io " TRIGGER, EUSERS);
	/* They take no place from readers. */
	ck_assert_int_ge(rig_value(&rig, "vmstat", "nr_clients"), 1);
	close(fd[--nr]);
	while (nr < 64) {
		struct seq_file text;
		int status;

		seq_init(&text, 4096);
		ck_assert(!kv_view_wait(view, "wait pressure/io " TRIGGER,
					5000, &status, &text, &fd[nr]));
		seq_free(&text);
		nr += !status;
	}
	while (nr)
		close(fd[--nr]);
	stop(&s);
}
END_TEST

/* A connection that is not read is closed; the other one goes on. */
START_TEST(test_hung)
{
	const u64 end = now_ms() + 3 * (u64)LIMIT_MS;
	int hung, good, nr;
	struct stall s;

	start();
	stall_attach(&s);
	hung = subscribe(view, "wait pressure/memory " TRIGGER, 0);
	good = subscribe(view, "wait pressure/memory " TRIGGER, 0);
	stall_begin(&s);
	while (!is_ready(hung, POLLHUP, 0)) {
		ck_assert_msg(now_ms() < end, "it is never closed");
		ck_assert(is_ready(good, POLLIN, LIMIT_MS));
		ck_assert_int_gt(kv_view_fired(good), 0);
	}
	ck_assert(is_ready(good, POLLIN, LIMIT_MS));
	nr = kv_view_fired(hung);
	ck_assert_int_gt(nr, 0);
	ck_assert_int_lt(nr, 64);
	ck_assert_int_eq(kv_view_fired(hung), -ECONNABORTED);
	close(hung);
	close(good);
	stall_end(&s);
	stop(&s);
}
END_TEST

/* ---- kvctl ---- */

static int kvctl_code(const char *path, const char *trigger, const char *option)
{
	struct job j = job_start(&rig, "kvctl", "wait", path, trigger, option,
				 NULL);
	int code = job_wait(&j, 60 * time_scale());

	unlink(j.out);
	unlink(j.err);
	return code;
}

START_TEST(test_kvctl)
{
	struct stall s;
	struct job j;

	start();
	stall_attach(&s);
	ck_assert_int_eq(kvctl_code("pressure/memory", TRIGGER, "--timeout=1"),
			 EX_TEMPFAIL);
	ck_assert_int_eq(kvctl_code("pressure/memory", "some 1", NULL),
			 EXIT_FAILURE);
	ck_assert_int_eq(kvctl_code("meminfo", TRIGGER, NULL), EXIT_FAILURE);
	ck_assert_int_eq(kvctl_code("pressure/memory", NULL, NULL), EX_USAGE);
	stall_begin(&s);
	ck_assert_int_eq(kvctl_code("pressure/memory", TRIGGER, NULL), 0);
	ck_assert_int_eq(kvctl_code("domain/it/memory.pressure",
				    "full 50000 500000", NULL), 0);
	stall_end(&s);
	/* The daemon ends while kvctl waits. */
	j = job_start(&rig, "kvctl", "wait", "--timeout", "60", "pressure/cpu",
		      "full 500000 500000", NULL);
	nap_ms(50);
	kvmm_detach(s.k);
	rig_stop(&rig);
	ck_assert_int_eq(job_wait(&j, 60), EX_UNAVAILABLE);
}
END_TEST

/* ---- the mount ---- */

static int set_trigger(int fd, const char *text)
{
	const ssize_t len = (ssize_t)strlen(text) + 1;

	/* With the zero byte, as the kernel's documentation does it. */
	return write(fd, text, (size_t)len) == len ? 0 : -errno;
}

static int open_trigger(const char *name, const char *text)
{
	int fd = open(proc_path(name), O_RDWR | O_NONBLOCK | O_CLOEXEC);

	ck_assert_msg(fd >= 0, "%s: %s", name, strerror(errno));
	ck_assert_msg(!set_trigger(fd, text), "%s: %s", name, strerror(errno));
	return fd;
}

/* Result of poll() for @events within @ms. */
static short polled(int fd, short events, int ms)
{
	struct pollfd p = { .fd = fd, .events = events };
	int n = poll(&p, 1, ms);

	ck_assert_int_ge(n, 0);
	return n ? p.revents : 0;
}

START_TEST(test_mount)
{
	struct epoll_event ev = { .events = EPOLLPRI };
	int fd, full, io, ep;
	struct stall s;
	char text[256];
	u64 began;
	u32 nr = 0;

	start();
	stall_attach(&s);
	fd = open_trigger("pressure/memory", TRIGGER);
	full = open_trigger("domain/it/memory.pressure", "full 50000 500000\n");
	io = open_trigger("pressure/io", TRIGGER);
	ep = epoll_create1(EPOLL_CLOEXEC);
	ck_assert(ep >= 0 && !epoll_ctl(ep, EPOLL_CTL_ADD, full, &ev));
	ck_assert_int_eq(polled(fd, POLLPRI, WINDOW_MS), 0);
	began = now_ms();
	stall_begin(&s);
	ck_assert_int_eq(polled(fd, POLLPRI, LIMIT_MS), POLLPRI);
	/* The event was delivered and does not come again before the next window. */
	ck_assert_int_eq(polled(fd, POLLIN | POLLPRI, 0) & POLLIN, POLLIN);
	while (now_ms() < began + 3 * WINDOW_MS)
		nr += polled(fd, POLLPRI, WINDOW_MS / 5) == POLLPRI;
	ck_assert_uint_ge(nr, 1);
	ck_assert_uint_le(nr, (now_ms() - began) / WINDOW_MS + 1);
	ck_assert_int_eq(epoll_wait(ep, &ev, 1, LIMIT_MS), 1);
	ck_assert_uint_eq(ev.events, EPOLLPRI);
	/* The file can still be read. */
	ck_assert_int_gt(pread(fd, text, sizeof(text), 0), 60);
	ck_assert(!strncmp(text, "some avg10=", 11));
	stall_end(&s);
	ck_assert_int_eq(polled(io, POLLPRI, 0), 0);
	close(fd);
	close(full);
	close(io);
	close(ep);
	stop(&s);
}
END_TEST

START_TEST(test_mount_refused)
{
	static const char * const bad[] = {
		"", "some", "some 1", "x 50000 500000", "some 0 500000",
		"some 500001 500000", "some 50000 499999",
		"some 50000 10000001", "some 50000 0",
	};
	struct stall s;
	int fd;
	u32 i;

	start();
	stall_attach(&s);
	fd = open(proc_path("pressure/memory"), O_RDWR | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	/* Like a file of the kernel without a trigger. */
	ck_assert_int_eq(polled(fd, POLLPRI, 0), POLLPRI | POLLERR);
	for (i = 0; i < ARRAY_SIZE(bad); i++)
		ck_assert_msg(set_trigger(fd, bad[i]) == -EINVAL, "'%s': %s",
			      bad[i], strerror(errno));
	ck_assert_int_eq(set_trigger(fd, TRIGGER), 0);
	ck_assert_int_eq(set_trigger(fd, TRIGGER), -EBUSY);
	ck_assert_int_eq(polled(fd, POLLPRI, 0), 0);
	close(fd);
	/* Files of other kinds behave like any file. */
	fd = open(proc_path("meminfo"), O_RDONLY | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(polled(fd, POLLIN | POLLPRI, 0), POLLIN);
	close(fd);
	fd = open(proc_path("domain/it/memory.max"), O_WRONLY | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(set_trigger(fd, TRIGGER), -EINVAL);
	close(fd);
	stop(&s);
}
END_TEST

/* A process that writes wrong triggers, one after the other. */
static pid_t pest_start(void)
{
	int fd = open(proc_path("pressure/memory"), O_RDWR | O_CLOEXEC);
	pid_t pid = fork();

	ck_assert(fd >= 0 && pid >= 0);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;) {
			MUST(set_trigger(fd, "none") < 0);
			nap_ms(5);
		}
	}
	close(fd);
	return pid;
}

/* kvmm dies: the next one fires the triggers of pollers, despite a pest. */
START_TEST(test_mount_restart)
{
	const u64 end = now_ms() + (u64)LIMIT_MS;
	struct stall s;
	pid_t kvmm, pest;
	int fd;

	start();
	stall_attach(&s);
	fd = open_trigger("pressure/memory", TRIGGER);
	pest = pest_start();
	kvmm = rig_daemon(&rig);
	kvmm_detach(s.k);
	kill(kvmm, SIGKILL);
	while (rig_daemon(&rig) == kvmm || !rig_daemon(&rig)) {
		ck_assert(now_ms() < end);
		nap_ms(5);
	}
	await_mount();
	stall_attach(&s);
	stall_begin(&s);
	ck_assert_int_eq(polled(fd, POLLPRI, LIMIT_MS), POLLPRI);
	kill(pest, SIGKILL);
	ck_assert_int_eq(waitpid(pest, NULL, 0), pest);
	stall_end(&s);
	close(fd);
	stop(&s);
}
END_TEST

/* A user may watch its own domain, with few triggers; others are invisible. */
static void other_main(void)
{
	int dir = open(proc_dir, O_PATH | O_DIRECTORY), sock, fd, i;
	char path[RIG_PATH + 16];

	snprintf(path, sizeof(path), "%s/attach.sock", rig.dir);
	sock = open(path, O_PATH);
	MUST(dir >= 0 && sock >= 0 && !setgid(OTHER_UID) &&
	     !setuid(OTHER_UID));
	prctl(PR_SET_DUMPABLE, 1);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", sock);
	MUST(attach(path, "mine"));
	MUST(openat(dir, "pressure/memory", O_RDWR) < 0 && errno == ENOENT);
	MUST(openat(dir, "domain/it/memory.pressure", O_RDWR) < 0 &&
	     errno == ENOENT);
	for (i = 0; i < WAITS_USER; i++) {
		fd = openat(dir, "domain/mine/memory.pressure", O_RDWR);
		MUST(fd >= 0 && !set_trigger(fd, TRIGGER));
	}
	/* A stall of another domain does not fire it. */
	MUST(!polled(fd, POLLPRI, 2 * WINDOW_MS));
	fd = openat(dir, "domain/mine/io.pressure", O_RDWR);
	MUST(fd >= 0 && set_trigger(fd, TRIGGER) == -EUSERS);
	_exit(0);
}

START_TEST(test_mount_other)
{
	int status, fd;
	struct stall s;
	pid_t pid;

	start();
	stall_attach(&s);
	fd = open_trigger("domain/it/memory.pressure", TRIGGER);
	stall_begin(&s);
	fflush(stdout);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid)
		other_main();
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	ck_assert_int_eq(polled(fd, POLLPRI, LIMIT_MS), POLLPRI);
	close(fd);
	stall_end(&s);
	stop(&s);
}
END_TEST

/* ---- the CPU ---- */

static u64 cpu_total(const char *kind)
{
	struct job j = job_start(&rig, "kvctl", "cat", "pressure/cpu", NULL);
	unsigned long long total = 0;
	char *text, *p;

	ck_assert_int_eq(job_wait(&j, 30 * time_scale()), 0);
	text = slurp(j.out);
	p = strstr(text, kind);
	ck_assert_ptr_nonnull(p);
	p = strstr(p, "total=");
	ck_assert(p && sscanf(p, "total=%llu", &total) == 1);
	free(text);
	unlink(j.out);
	unlink(j.err);
	return total;
}

/* Clients that ask all the time wait for each other; an idle client does not wait. */
START_TEST(test_cpu)
{
	const u64 end = now_ms() + 2 * (u64)LIMIT_MS;
	pid_t pid[3];
	struct stall s;
	u32 i;

	start();
	stall_attach(&s);
	for (i = 0; i < ARRAY_SIZE(pid); i++) {
		fflush(stdout);
		pid[i] = fork();
		ck_assert_int_ge(pid[i], 0);
		if (!pid[i]) {
			char path[RIG_PATH + 16];
			struct kvmm *k;

			prctl(PR_SET_PDEATHSIG, SIGKILL);
			snprintf(path, sizeof(path), "%s/attach.sock", rig.dir);
			k = attach(path, "it");
			MUST(k);
			while (!kvmm_nop(k))
				;
			_exit(1);
		}
	}
	while (cpu_total("some") < 2000) {
		ck_assert_msg(now_ms() < end, "nobody waits");
		nap_ms(10);
	}
	ck_assert_uint_le(cpu_total("full"), cpu_total("some"));
	for (i = 0; i < ARRAY_SIZE(pid); i++) {
		kill(pid[i], SIGKILL);
		ck_assert_int_eq(waitpid(pid[i], NULL, 0), pid[i]);
	}
	stop(&s);
}
END_TEST

int main(void)
{
	const char *why = mount_hindrance();
	Suite *s = suite_create("pressure_poll");
	TCase *tc = tcase_create("poll");
	SRunner *sr;
	int failed;

	mounts = !why;
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, test_socket);
	tcase_add_test(tc, test_refused);
	tcase_add_test(tc, test_hung);
	tcase_add_test(tc, test_kvctl);
	tcase_add_test(tc, test_cpu);
	if (why) {
		printf("note: %s: the mount is not tried\n", why);
	} else {
		tcase_add_test(tc, test_mount);
		tcase_add_test(tc, test_mount_refused);
		tcase_add_test(tc, test_mount_restart);
		tcase_add_test(tc, test_mount_other);
	}
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
