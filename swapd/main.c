// SPDX-License-Identifier: Apache-2.0
/*
 * main.c - swapd: moves slots between the host pool and the swap areas
 *
 * swapd is a process, so that a disk that hangs, or a bug here, costs kvmm a few
 * blocks and not its life.  swapd decides nothing: each request says which slot
 * goes where.  It promises two things: a READ brings exactly the bytes that the
 * named WRITE took, or it fails; and swapd does not touch a slot after the
 * completion of its request.
 *
 * kvmm-hold starts it and passes descriptors by number: the shared memory
 * with the rings (include/kvmm/swapd.h has the contract), the host pool, two
 * eventfds, the control socket, and a fresh io_uring.  It may be killed at any
 * time: nothing needs an orderly end.
 *
 * Threads: this one takes requests and, with io_uring, submits and reaps; the
 * control thread adds and removes areas; the engine for machines without
 * io_uring has workers.  daemon.h says which data each thread may touch.
 *
 * swapd drops its rights when the pool is registered, before its first thread.
 * It sets the filter when all threads run (include/kvmm/sandbox.h).
 *
 * The main loop never waits for a transfer.  It sleeps in poll() on the request
 * eventfd and the ring, after it set its sleep flag and looked once more.
 */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include <kvmm/clock.h>
#include <kvmm/fault.h>
#include <kvmm/log.h>
#include <kvmm/sandbox.h>

#include "swapd/crc32c.h"
#include "swapd/daemon.h"
#include "swapd/probe.h"
#include "swapd/shim.h"

#define SLOW_LOOK_MS	100
#define HELD_LOOK_MS	2

static const struct kv_opt option_table[] = {
#define x(...) OPT_ENTRY(struct swapd_options, __VA_ARGS__)
	SWAPD_OPTIONS(x)
#undef x
};

static const struct kv_exit exit_table[] = {
	{ 0, "kvmm has ended, or --help, --version" },
	{ EX_USAGE, "a wrong option, or started by hand" },
	{ EX_UNAVAILABLE, "the engine asked for cannot be had" },
	{ EX_OSERR, "the system refused memory or threads" },
	{ EX_NOINPUT, "--probe: what is named cannot be measured" },
	{ EX_PROTOCOL, "kvmm is of another version" },
};

static const struct kv_program program = {
	.name = "swapd",
	.brief = "moves blocks of kvmm to and from swap areas",
	.man = 8,
	.about = "Moves blocks between the host pool and swap areas.  kvmm-hold starts it and passes it descriptors that nobody else has: it is not started by hand, but for --probe.",
	.opts = option_table,
	.nr_opts = ARRAY_SIZE(option_table),
	.exits = exit_table,
	.nr_exits = ARRAY_SIZE(exit_table),
};

/* ---- start ---- */

static int map_ctl(struct swapd *s)
{
	const int fd = (int)s->opt.ctl_fd;
	struct stat st;
	void *p;

	if (fstat(fd, &st) || st.st_size < (off_t)SWAPD_CTL_BYTES)
		return -EBADF;
	p = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED,
		 fd, 0);
	if (p == MAP_FAILED)
		return -errno;
	s->ctl = p;
	s->entries = s->ctl->entries;
	if (s->ctl->magic != SWAPD_MAGIC || s->ctl->version != SWAPD_VERSION ||
	    !is_power_of_2(s->entries) || s->entries < SWAPD_ENTRIES_MIN ||
	    s->entries > SWAPD_ENTRIES_MAX ||
	    (off_t)swapd_shm_bytes(s->entries) > st.st_size)
		sd_broken("the shared memory has another shape");
	s->reqs = swapd_shm_reqs(s->ctl);
	s->cpls = swapd_shm_cpls(s->ctl, s->entries);
	s->carriers = swapd_shm_carriers(s->ctl, s->entries);
	return 0;
}

static int map_pool(struct swapd *s)
{
	const int fd = (int)s->opt.pool_fd;
	struct stat st;
	void *p;

	if (fstat(fd, &st) || st.st_size <= 0)
		return -EBADF;
	p = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED,
		 fd, 0);
	if (p == MAP_FAILED)
		return -errno;
	/* A core file of the pool would contain conversations of users. */
	(void)madvise(p, (size_t)st.st_size, MADV_DONTDUMP);
	s->pool = p;
	s->pool_bytes = (u64)st.st_size;
	return 0;
}

static void catch_nothing(void)
{
	/* These reach the whole process group; swapd ends after kvmm. */
	signal(SIGINT, SIG_IGN);
	signal(SIGTERM, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	/* The write then fails with EFBIG, which can be reported. */
	signal(SIGXFSZ, SIG_IGN);
}

static struct sandbox box = { .who = SANDBOX_swapd, .dflt = "kvmm-swapd" };

static int drop_rights(char *text, size_t len)
{
	int err = sandbox_drop(&box);

	if (err)
		snprintf(text, len, "rights cannot be given up");
	return err;
}

/*
 * Drop the rights as soon as nothing needs them: with io_uring after it pinned
 * the pool, with the other engine before its threads start.
 */
static int start_engine(struct swapd *s, char *text, size_t len)
{
	char why[128] = "";
	int err;

	if (s->opt.engine != SWAPD_ENGINE_SYNC) {
		s->engine = &engine_uring;
		err = engine_uring.start(s, text, len);
		if (!err)
			return drop_rights(text, len);
		if (s->opt.engine == SWAPD_ENGINE_URING)
			return err;
		snprintf(why, sizeof(why), " (%.120s)", text);
	}
	err = drop_rights(text, len);
	if (err)
		return err;
	s->engine = &engine_sync;
	err = engine_sync.start(s, text, len);
	if (!err)
		snprintf(text + strlen(text), len - strlen(text), "%s", why);
	return err;
}

static int start(struct swapd *s)
{
	char text[192] = "";
	int err;

	crc32c_init(s->opt.plain_crc);
	err = map_ctl(s);
	if (!err)
		err = map_pool(s);
	if (err) {
		pr_err("its descriptors are not those of kvmm-hold: swapd is not started by hand");
		return EX_USAGE;
	}
	err = io_init(s);
	if (err)
		goto out_oserr;
	err = start_engine(s, text, sizeof(text));
	if (err) {
		pr_err("%s: give --swap-engine auto", text);
		return EX_UNAVAILABLE;
	}
	pr_info("engine: %s; sums by %s", text, crc32c_name());
	if (control_hello(s, text) || control_wait_start(s))
		return 0;
	io_rings_begin(s);
	err = control_start(s);
	if (!err)
		err = sandbox_filter(&box);
	if (!err)
		return -1;

out_oserr:
	pr_err("cannot start: %s", strerror(-err));
	return EX_OSERR;
}

/* ---- the loop ---- */

static void sleep_until_work(struct swapd *s)
{
	struct pollfd p[] = {
		{ .fd = (int)s->opt.request_fd, .events = POLLIN },
		{ .fd = s->engine->poll_fd(s), .events = POLLIN },
	};
	u64 n;

	ring_sleep_prepare(&s->ctl->swapd_sleeps);
	if (ring_cons_look(&s->req) == 0) {
		io_count(s, SWAPD_CNT_sleeps, 1);
		(void)poll(p, ARRAY_SIZE(p),
			   READ_ONCE(s->held) ? HELD_LOOK_MS :
			   READ_ONCE(s->unfinished) ? SLOW_LOOK_MS : -1);
	}
	ring_sleep_finish(&s->ctl->swapd_sleeps);
	if ((p[0].revents & POLLIN) &&
	    read((int)s->opt.request_fd, &n, sizeof(n)) < 0)
		pr_debug("request eventfd: %s", strerror(errno));
}

static void __noreturn loop(struct swapd *s)
{
	u64 look = 0, now;
	u32 work;

	for (;;) {
		work = io_take(s);
		if (READ_ONCE(s->held))
			pick_look_held(s);
		work += s->engine->kick(s);
		work += s->engine->reap(s);
		now = kv_now_ns();
		if (now - look > SLOW_LOOK_MS * 1000000ull) {
			look = now;
			io_look_slow(s);
		}
		if (!work)
			sleep_until_work(s);
	}
}

int main(int argc, char **argv)
{
	static struct swapd s;
	char text[256];
	int n, code;

	kv_log_init("swapd", KV_LOG_INFO);
	kv_log_never_wait();
	n = kv_opts_parse(&program, &s.opt, argc, argv, text, sizeof(text));
	if (n == -ECANCELED)
		return 0;
	if (n) {
		pr_err("%s", n < 0 ? text : "operands are not taken");
		return EX_USAGE;
	}
	kv_log_init("swapd", (enum kv_log_level)s.opt.log_level);
	kv_log_format((enum kv_log_format)s.opt.log_format);
	if (kv_fault_env(text, sizeof(text)) || shim_env(text, sizeof(text))) {
		pr_err("%s", text);
		return EX_USAGE;
	}
	if (s.opt.probe)
		return probe_run(s.opt.probe, s.opt.depth) ? EX_NOINPUT : 0;
	if (!s.opt.ctl_fd || !s.opt.pool_fd || !s.opt.request_fd ||
	    !s.opt.completion_fd || !s.opt.control_fd) {
		pr_err("swapd is not started by hand: start kvmm-hold");
		return EX_USAGE;
	}
	box.mode = s.opt.sandbox;
	box.user = s.opt.user;
	code = sandbox_prepare(&box);
	if (code)
		return code == -EINVAL ? EX_USAGE : EX_OSERR;
	if (shim_on)
		pr_warn(SHIM_ENV " is set: requests are made to fail, and data to be lost: for tests alone");
	catch_nothing();
	code = start(&s);
	if (code >= 0)
		return code;
	loop(&s);
}
