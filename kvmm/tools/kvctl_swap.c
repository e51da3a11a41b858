// SPDX-License-Identifier: Apache-2.0
/*
 * kvctl_swap.c - swapon, swapoff, drop_caches
 *
 * kvctl opens the file with the rights of its user and sends the descriptor to the
 * daemon.  So the daemon needs no right to the path, and a link that is changed
 * later has no effect.  If kvctl made the file and the daemon refuses it, kvctl
 * removes it again.
 */
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sysexits.h>
#include <unistd.h>

#include <kvmm/admin.h>
#include <kvmm/area_opt.h>
#include <kvmm/log.h>

#include "kvmm/tools/ask.h"
#include "kvmm/tools/kvctl.h"

static void show_progress(const char *text)
{
	/* For a person at a terminal; a script gets the answer alone. */
	if (isatty(STDERR_FILENO))
		pr_info("%s", text);
}

static int admin_failed(const struct kv_admin *a, int err)
{
	char why[KV_VIEW_PATH_MAX + 160];

	switch (err) {
	case -ENOENT:
	case -ECONNREFUSED:
		pr_err("%s: no daemon is here: start kvmm-hold, or name its directory with --socket",
		       a->path);
		return EX_UNAVAILABLE;
	case -EACCES:
	case -EPERM:
		tool_refused(a->path, true, why, sizeof(why));
		pr_err("%s", why);
		return EX_NOPERM;
	case -ETIMEDOUT:
		pr_err("%s: no answer for %u s: see the daemon's log, or give --timeout",
		       a->path, a->timeout_ms / 1000);
		return EX_UNAVAILABLE;
	case -ECONNABORTED:
		pr_err("%s: the daemon went away, or does not serve this user: see its log",
		       a->path);
		return EX_PROTOCOL;
	default:
		pr_err("%s: %s: cannot ask the daemon", a->path,
		       strerror(-err));
		return EX_PROTOCOL;
	}
}

/* @refused: takes whether the daemon certainly did nothing */
int kvctl_ask_admin(const struct kvctl *k, const char *req, int fd,
		     bool *refused)
{
	static struct kv_admin a;
	char path[KV_VIEW_PATH_MAX];
	int err;

	if (kv_admin_path(k->path, path, sizeof(path))) {
		pr_err("the path of the socket is too long: name a shorter one with --socket");
		return EX_USAGE;
	}
	a.path = path;
	a.fd = fd;
	a.progress = show_progress;
	/* The daemon sends progress every second; allow for some delay. */
	a.timeout_ms = (k->opts.timeout + 5) * 1000;
	err = kv_admin_ask(&a, req);
	*refused = err ? err != -ETIMEDOUT && err != -ECONNABORTED : a.status;
	if (err)
		return admin_failed(&a, err);
	if (a.status) {
		pr_err("%s", a.text);
		return EXIT_FAILURE;
	}
	if (k->opts.json)
		return kvctl_print_json(json_pack("{s:o}", "done",
				kvctl_json_string(a.text, strlen(a.text))));
	printf("%s\n", a.text);
	return fflush(stdout) ? EX_IOERR : EXIT_SUCCESS;
}

static bool in_memory(int fd)
{
	struct statfs fs;

	return !fstatfs(fd, &fs) && (fs.f_type == TMPFS_MAGIC ||
				     fs.f_type == RAMFS_MAGIC ||
				     fs.f_type == HUGETLBFS_MAGIC);
}

/* Other users could read the content of sequences. */
static void warn_readable(const char *path, int fd)
{
	struct stat st;

	if (!fstat(fd, &st) && S_ISREG(st.st_mode) && (st.st_mode & 0077))
		pr_warn("%s: others may read it (mode %04o): 0600 is suggested",
			path, st.st_mode & 07777);
}

/*
 * Make the absolute path, for the daemon's files and log.  If the file was removed,
 * its directory usually exists still.
 */
static int full_path(const char *path, char *full, size_t len)
{
	const char *slash = strrchr(path, '/');
	const char *name = slash ? slash + 1 : path;
	char *real = realpath(path, NULL), *dir;
	int n;

	if (real) {
		n = snprintf(full, len, "%s", real);
	} else {
		dir = slash ? strndup(path, (size_t)(name - path)) : strdup(".");
		real = dir ? realpath(dir, NULL) : NULL;
		free(dir);
		n = snprintf(full, len, "%s%s%s", real ? real : "",
			     real && real[1] ? "/" : "", real ? name : path);
	}
	free(real);
	if (n >= 0 && (size_t)n < len)
		return 0;
	pr_err("%.60s...: the path is too long", path);
	return EX_USAGE;
}

int cmd_swapon(struct kvctl *k, char **argv)
{
	char req[KV_ADMIN_REQ], full[4096], why[4352];
	bool made, refused = true;
	int ret, fd;

	fd = area_file_open(argv[0], k->opts.size, &made, why, sizeof(why));
	if (fd < 0) {
		pr_err("%s", why);
		return EXIT_FAILURE;
	}
	warn_readable(argv[0], fd);
	ret = full_path(argv[0], full, sizeof(full));
	if (!ret) {
		snprintf(req, sizeof(req), "swapon %" PRIu64 " %u %u %s",
			 k->opts.size, k->opts.priority, k->opts.force, full);
		ret = kvctl_ask_admin(k, req, fd, &refused);
	}
	if (!ret && in_memory(fd))
		pr_warn("%s: lies in memory (tmpfs): the area takes as much memory as it holds: name a file on a disk",
			argv[0]);
	if (ret && made && refused && unlink(argv[0]))
		pr_warn("%s: is left: %s", argv[0], strerror(errno));
	close(fd);
	return ret;
}

int cmd_swapoff(struct kvctl *k, char **argv)
{
	char req[KV_ADMIN_REQ], full[4096];
	u64 dev = 0, ino = 0;
	struct stat st;
	bool refused;
	int ret;

	ret = full_path(argv[0], full, sizeof(full));
	if (ret)
		return ret;
	/* A removed file is known by its name alone. */
	if (!stat(argv[0], &st)) {
		dev = S_ISBLK(st.st_mode) ? st.st_rdev : st.st_dev;
		ino = S_ISBLK(st.st_mode) ? 0 : st.st_ino;
	}
	snprintf(req, sizeof(req), "swapoff %u %" PRIu64 " %" PRIu64 " %s",
		 k->opts.timeout * 1000, dev, ino, full);
	return kvctl_ask_admin(k, req, -1, &refused);
}

int cmd_drop_caches(struct kvctl *k, char **argv)
{
	char req[KV_ADMIN_REQ];
	bool refused;
	int n;

	n = snprintf(req, sizeof(req), *argv ? "drop_caches %s" : "drop_caches",
		     *argv);
	if ((size_t)n < sizeof(req))
		return kvctl_ask_admin(k, req, -1, &refused);
	pr_err("%.60s...: the name is too long: see kvctl ls domain", *argv);
	return EX_USAGE;
}
