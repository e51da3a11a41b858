// SPDX-License-Identifier: Apache-2.0
/*
 * apply.c - requests of the file of options to a kvmm that runs
 *
 * Swap areas are opened, and changed keys of the file are made known, as by an
 * operator: over the admin socket.  kvmm-hold may not wait for kvmm, so a child makes
 * the requests, one after the other.  The child opens the files of areas with the
 * rights of kvmm-hold; kvmm has no right to a path.
 *
 * A request that fails is one line of the log, and the next one is made.  If kvmm
 * dies in between, the child asks the next kvmm.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

#include <kvmm/admin.h>
#include <kvmm/area_opt.h>
#include <kvmm/config.h>
#include <kvmm/log.h>
#include <kvmm/rundir.h>

#include "kvmm/hold/apply.h"

#define TRIES		50
#define PAUSE_NS	(200 * 1000 * 1000)
#define SILENCE_MS	60000	/* of kvmm; while an area is added it tells progress */
#define AREA_VERB	"area "

void apply_init(struct apply *a, const char *dir, const sigset_t *old_mask)
{
	*a = (struct apply){ .dir = dir, .old_mask = old_mask, .pidfd = -1 };
}

void apply_add(struct apply *a, const char *verb, const char *rest)
{
	char **more = realloc(a->req, (a->nr + 1) * sizeof(*more));

	if (more)
		a->req = more;
	if (!more || asprintf(&a->req[a->nr], "%s %s", verb, rest) < 0)
		pr_err("%s %s: no memory: not done", verb, rest);
	else
		a->nr++;
}

static void forget_requests(struct apply *a)
{
	while (a->nr)
		free(a->req[--a->nr]);
}

/* ---- in the child ---- */

/* Ask until a kvmm answers. */
static int ask_some_kvmm(struct kv_admin *admin, const char *req, u32 *tries)
{
	const struct timespec pause = { .tv_nsec = PAUSE_NS };
	int err = kv_admin_ask(admin, req);

	while (err && err != -EPERM && err != -EACCES && ++*tries < TRIES) {
		nanosleep(&pause, NULL);
		err = kv_admin_ask(admin, req);
	}
	return err;
}

static void make_request(struct kv_admin *admin, const char *req)
{
	u32 tries = 0;
	int err;

	admin->fd = -1;
	err = ask_some_kvmm(admin, req, &tries);
	if (err)
		pr_warn("%s: not done: %s: give the value with kvctl set once kvmm answers",
			req, strerror(-err));
	else if (admin->status)
		pr_warn("%s: not done", admin->text);
}

/*
 * May root open the file of an area?  Not if another user can put another file, or a
 * link, in its place.  Return: whether it may; else @why is filled.
 */
static bool way_is_safe(const char *path, char *why, size_t len)
{
	char dir[AREA_PATH_MAX];
	struct stat st;
	int err;

	if (geteuid())
		return true;
	snprintf(dir, sizeof(dir), "%s", path);
	strrchr(dir, '/')[1] = '\0';
	err = kv_config_way(dir, why, len);
	if (err == -EPERM)
		return false;
	/* A missing directory is told when the file is opened. */
	if (err && err != -ENOENT) {
		snprintf(why, len, "%s: %s", dir, strerror(-err));
		return false;
	}
	if (lstat(path, &st) || !st.st_uid)
		return true;
	snprintf(why, len, "%s belongs to another user, who could read it or put a link there: chown root it",
		 path);
	return false;
}

static void open_area(struct kv_admin *admin, const char *spec)
{
	char req[KV_ADMIN_REQ], why[KV_ADMIN_TEXT + AREA_PATH_MAX];
	static struct area_opt a;
	u32 tries = 0;
	bool made;
	int err;

	if (area_opt_parse(&a, spec, why, sizeof(why)))
		goto not_open;
	if (!way_is_safe(a.path, why, sizeof(why)))
		goto not_open;
	admin->fd = area_file_open(a.path, a.keys.size, &made, why, sizeof(why));
	if (admin->fd < 0)
		goto not_open;
	snprintf(req, sizeof(req), "swapon %" PRIu64 " %u 0 %s", a.keys.size,
		 a.keys.priority, a.path);
	err = ask_some_kvmm(admin, req, &tries);
	close(admin->fd);
	/* An operator, or a request to a kvmm that died, may have added it before. */
	if (!err && (!admin->status || admin->status == EALREADY))
		return;
	snprintf(why, sizeof(why), "%s%s%s", err ? a.path : "",
		 err ? ": " : "", err ? strerror(-err) : admin->text);
	if (made && !err)
		(void)!unlink(a.path);
not_open:
	pr_warn("area = %s: is not in use: %s. Mend this, then give kvctl swapon",
		spec, why);
}

static void __noreturn child_run(const struct apply *a, pid_t parent)
{
	static struct kv_admin admin = { .timeout_ms = SILENCE_MS };
	char path[AREA_PATH_MAX];
	u32 i;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(EX_OSERR);
	sigprocmask(SIG_SETMASK, a->old_mask, NULL);
	snprintf(path, sizeof(path), "%s/%s", a->dir, KV_ADMIN_SOCKET);
	admin.path = path;
	for (i = 0; i < a->nr; i++) {
		if (!strncmp(a->req[i], AREA_VERB, strlen(AREA_VERB)))
			open_area(&admin, a->req[i] + strlen(AREA_VERB));
		else
			make_request(&admin, a->req[i]);
	}
	_exit(0);
}

/* ---- in kvmm-hold ---- */

static void child_reap(struct apply *a, int options)
{
	if (waitpid(a->pid, NULL, options) != a->pid)
		return;
	close(a->pidfd);
	a->pidfd = -1;
}

static void child_start(struct apply *a)
{
	const pid_t parent = getpid();

	a->pid = fork();
	if (!a->pid)
		child_run(a, parent);
	if (a->pid > 0)
		a->pidfd = (int)syscall(SYS_pidfd_open, a->pid, 0);
	if (a->pid > 0 && a->pidfd < 0) {
		kill(a->pid, SIGKILL);
		waitpid(a->pid, NULL, 0);
	}
	if (a->pidfd < 0)
		pr_err("areas and changed options are not made known to kvmm: %s: give them with kvctl swapon and kvctl set",
		       strerror(errno));
	forget_requests(a);
}

void apply_work(struct apply *a, bool serves)
{
	if (a->pidfd >= 0)
		child_reap(a, WNOHANG);
	if (a->pidfd < 0 && a->nr && serves)
		child_start(a);
}

void apply_exit(struct apply *a)
{
	if (a->pidfd >= 0) {
		kill(a->pid, SIGKILL);
		child_reap(a, 0);
	}
	forget_requests(a);
	free(a->req);
	a->req = NULL;
}
