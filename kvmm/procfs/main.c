// SPDX-License-Identifier: Apache-2.0
/*
 * main.c - kvmm-proc: the operator's files, mounted
 *
 * An unprivileged process that carries text between the kernel's FUSE and the
 * daemon's view socket.  Names, modes and texts come from the daemon, which also
 * decides which user sees which file (kvmm/ipc/view/ask.c).  A user's actions in
 * the mount end here and do not reach kvmm: a reader that hangs, a thousand
 * readers, or a fault in libfuse cost only the view, which kvmm-hold starts again.
 *
 * The process begins as root if kvmm-hold did.  It removes the mount that a dead
 * kvmm-proc left, mounts, and opens the view socket.  Then it gives its rights up:
 * user, capabilities, all files, all but some system calls (sandbox.h).  From then
 * on it can answer the kernel, connect to Unix sockets as a user whose group may
 * open one of them, and write its log.  It cannot unmount: kvmm-hold starts it
 * once more for that.
 *
 * With --metrics it also accepts connections of any peer, and serves one of the
 * files, with the rights of the daemon's owner (http.c).  It binds before it gives
 * its rights up, and cannot listen at another address afterwards.
 *
 * Threads: PF_THREADS alike, each of which takes a request of the kernel and
 * answers it (fs.c); one that waits for pressure triggers (trigger.c); one for
 * HTTP.  No thread starts or ends later.
 *
 * With --snapshot it mounts nothing and is an ordinary program (snapshot.c).
 */
#define FUSE_USE_VERSION 31
#include <fcntl.h>
#include <fuse.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include <kvmm/config.h>
#include <kvmm/log.h>
#include <kvmm/rundir.h>
#include <kvmm/view.h>

#include "kvmm/procfs/procfs.h"

static const struct kv_opt option_table[] = {
#define x(...) OPT_ENTRY(struct procfs_options, __VA_ARGS__)
	PROCFS_OPTIONS(x)
#undef x
};

static const struct kv_exit exit_table[] = {
	{ 0, "unmounted, or the snapshot is made, or --help, --version" },
	{ EX_USAGE, "a wrong option" },
	{ EX_UNAVAILABLE, "nothing can be mounted here, nor the address for metrics be had, or no daemon answers" },
	{ EX_OSERR, "the system refused memory or threads" },
	{ EX_CANTCREAT, "--snapshot: the directory is not its own" },
	{ EX_IOERR, "--snapshot: a file cannot be written" },
};

static const struct kv_program program = {
	.name = "kvmm-proc",
	.brief = "the files of a kvmm, mounted or copied",
	.man = 8,
	.about = "Shows the files that kvctl cat prints as files, in proc/ beside the daemon's sockets, and the metrics over HTTP.  kvmm-hold starts it (--proc, --metrics); by hand it copies them: --snapshot.",
	.opts = option_table,
	.nr_opts = ARRAY_SIZE(option_table),
	.exits = exit_table,
	.nr_exits = ARRAY_SIZE(exit_table),
};

static struct sandbox box = { .who = SANDBOX_proc, .dflt = "kvmm-proc" };

static int find_dir(struct procfs *pf)
{
	char dir[PF_PATH];
	int err = 0;

	if (pf->opt.dir)
		snprintf(dir, sizeof(dir), "%s", pf->opt.dir);
	else
		err = kv_rundir(dir, sizeof(dir));
	if (err || !realpath(dir, pf->dir)) {
		pr_err("%s: %s", dir, strerror(errno));
		return -ENOENT;
	}
	snprintf(pf->mount, sizeof(pf->mount), "%s/" PF_MOUNT, pf->dir);
	return 0;
}

/*
 * Open the socket: its directory may be closed to the user of the sandbox.  The
 * owner may connect to the socket, and so may the sandbox's group, of which no
 * other process is a member; or all users may, and the daemon checks each.
 */
static int find_view(struct procfs *pf)
{
	char path[PF_PATH + 16];
	struct stat st;
	int fd;

	snprintf(path, sizeof(path), "%s/" KV_VIEW_SOCKET, pf->dir);
	fd = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0) {
		pr_err("%s: %s: no daemon is there", path, strerror(errno));
		return -errno;
	}
	/* Only a socket may be given to the group. */
	if (fstat(fd, &st) || !S_ISSOCK(st.st_mode)) {
		pr_err("%s: is no socket", path);
		return -ENOTSOCK;
	}
	snprintf(pf->view, sizeof(pf->view), "/proc/self/fd/%d", fd);
	if (box.change && !(st.st_mode & 0002) &&
	    (fchownat(fd, "", (uid_t)-1, box.gid,
		      AT_EMPTY_PATH) ||
	     chmod(pf->view, 0660))) {
		pr_err("%s: cannot be opened to group %u: %s", path,
		       (unsigned int)box.gid, strerror(errno));
		return -EPERM;
	}
	return 0;
}

static void *http_worker(void *arg)
{
	pthread_setname_np(pthread_self(), "kvmm-http");
	pf_http_work(arg);
}

static void *worker(void *arg)
{
	pf_fs_work(arg);
	return NULL;
}

/* Start all threads but the calling one, which does the rest of the work. */
static int start_threads(struct procfs *pf, struct fuse *fuse)
{
	pthread_t t;
	int err = pf_trigger_init(pf), i;

	if (!err && fuse)
		err = -pthread_create(&t, NULL, pf_trigger_main, pf);
	for (i = 1; fuse && i < PF_THREADS && !err; i++)
		err = -pthread_create(&t, NULL, worker, fuse);
	if (!err && fuse && pf->http >= 0)
		err = -pthread_create(&t, NULL, http_worker, pf);
	return err;
}

/* Root serves a directory only if no other user can replace a part of its path. */
static int judge_dir(const struct procfs *pf)
{
	char text[256] = "";
	int err = geteuid() ? 0 : kv_config_way(pf->dir, text, sizeof(text));

	if (err)
		pr_err("%s: nothing is served from there: %s", pf->dir,
		       *text ? text : strerror(-err));
	return err;
}

/* Return: exit code; the error was logged. */
static int start_mount(struct procfs *pf, struct fuse **fuse)
{
	*fuse = pf_fs_new(pf);
	if (!*fuse)
		return EX_OSERR;
	if (!pf_mount(pf, *fuse))
		return 0;
	*fuse = NULL;
	return EX_UNAVAILABLE;
}

/* The work after the start.  Return: exit code, when the work is over. */
static int work(struct procfs *pf, struct fuse *fuse)
{
	char addr[KV_ADDR_TEXT];

	if (pf->http >= 0)
		pr_info("metrics are at http://%s/metrics",
			kv_addr_format(&pf->addr, addr));
	if (!fuse)
		pf_http_work(pf);
	pr_info("the files are in %s", pf->mount);
	pf_fs_work(fuse);
	pr_info("%s was unmounted: %s", pf->mount, pf->http < 0 ? "ended" :
		"metrics are served on");
	/* Other threads may still be ending: nothing is freed. */
	while (pf->http >= 0)
		poll(NULL, 0, -1);
	return 0;
}

/* Serve files, metrics or both; one that cannot be served was logged. */
static int serve(struct procfs *pf)
{
	const bool mounts = pf->opt.mount == PF_MOUNT_ON;
	int code = mounts ? 0 : EX_UNAVAILABLE, err;
	struct fuse *fuse = NULL;

	if (judge_dir(pf))
		return EX_UNAVAILABLE;
	if (mounts && pf_clean(pf))
		code = EX_UNAVAILABLE;
	if (find_view(pf))
		return EX_UNAVAILABLE;
	if (!code)
		code = start_mount(pf, &fuse);
	if (pf->addr.len && pf_http_listen(pf) && !fuse)
		return EX_UNAVAILABLE;
	if (code && pf->http < 0)
		return code;
	err = sandbox_drop(&box);
	if (!err)
		err = start_threads(pf, fuse);
	if (!err)
		err = sandbox_filter(&box);
	if (err) {
		pr_err("cannot start: %s", strerror(-err));
		return EX_OSERR;
	}
	return work(pf, fuse);
}

static void catch_signals(void)
{
	/* These signals go to the whole process group; kvmm-hold ends this process. */
	signal(SIGINT, SIG_IGN);
	signal(SIGTERM, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
}

/* Return: exit code. */
static int judge_options(struct procfs *pf)
{
	if (kv_addr_parse(pf->opt.metrics, &pf->addr)) {
		pr_err("--metrics: '%.80s' is no address: give off, a port, 127.0.0.1:PORT or [::1]:PORT, in numbers",
		       pf->opt.metrics);
		return EX_USAGE;
	}
	if (pf->opt.mount == PF_MOUNT_OFF && !pf->addr.len &&
	    !pf->opt.snapshot && !pf->opt.unmount) {
		pr_err("--mount off: then there is nothing to do: give --metrics or --snapshot");
		return EX_USAGE;
	}
	return 0;
}

static int run(struct procfs *pf)
{
	int err = judge_options(pf);

	if (err)
		return err;
	if (find_dir(pf))
		return EX_UNAVAILABLE;
	if (pf->opt.unmount)
		return pf_unmount(pf) ? EX_UNAVAILABLE : 0;
	if (pf->opt.snapshot) {
		if (kv_view_path(pf->dir, pf->view))
			return EX_USAGE;
		return pf_snapshot(pf);
	}
	if (pf->addr.len)
		box.who |= SANDBOX_http;
	box.mode = pf->opt.sandbox;
	box.user = pf->opt.user;
	err = sandbox_prepare(&box);
	if (err)
		return err == -EINVAL ? EX_USAGE : EX_OSERR;
	catch_signals();
	return serve(pf);
}

int main(int argc, char **argv)
{
	static struct procfs pf;
	char text[256];
	int n;

	kv_log_init("kvmm-proc", KV_LOG_INFO);
	kv_log_never_wait();
	/* To shrink arenas of threads glibc opens a file, and the filter kills for it. */
	mallopt(M_ARENA_MAX, 1);
	n = kv_opts_parse(&program, &pf.opt, argc, argv, text, sizeof(text));
	if (n == -ECANCELED)
		return 0;
	if (n) {
		pr_err("%s", n < 0 ? text : "operands are not taken");
		return EX_USAGE;
	}
	kv_log_init("kvmm-proc", (enum kv_log_level)pf.opt.log_level);
	kv_log_format((enum kv_log_format)pf.opt.log_format);
	pf.owner = geteuid();
	pf.http = -1;
	n = run(&pf);
	/* No exit(): its handlers would run while other threads work. */
	fflush(NULL);
	_exit(n);
}
