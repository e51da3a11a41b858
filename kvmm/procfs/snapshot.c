// SPDX-License-Identifier: Apache-2.0
/*
 * snapshot.c - the files copied to a directory, where nothing can be mounted
 *
 * A file is replaced whole: the text is written beside it, under a name that
 * begins with a dot, and renamed.  A file that the daemon no longer has is
 * removed.  This is done only in a directory that this program made, which it
 * knows by the file .kvmm-snapshot.
 *
 * The program runs with the rights of its user and gives none up.
 */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

#include <kvmm/log.h>
#include <kvmm/view.h>

#include "kvmm/procfs/procfs.h"

#define MARK	".kvmm-snapshot"
#define DEPTH	8

/* One directory of the daemon, and its copy. */
struct copy {
	struct procfs	*pf;
	int		dir;
	u32		depth;
	char		path[PF_PATH];
};

static int copy_dir(const struct copy *c);

static int ask(const struct copy *c, const char *verb, const char *name,
	       struct seq_file *text)
{
	char req[2 * PF_PATH];

	snprintf(req, sizeof(req), "%s %s/%s", verb, c->path, name);
	seq_init(text, KV_VIEW_TEXT_MAX);
	return pf_ask(c->pf, (struct pf_user){ .uid = c->pf->owner }, req, text);
}

static int write_all(int fd, const char *p, size_t len)
{
	while (len) {
		ssize_t n = write(fd, p, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

static int copy_file(const struct copy *c, const char *name)
{
	struct seq_file text;
	char tmp[512];
	int fd, err;

	err = ask(c, "cat", name, &text);
	/* A file that has just been removed is deleted by the next copy. */
	if (err) {
		seq_free(&text);
		return err == -ENOENT ? 0 : err;
	}
	snprintf(tmp, sizeof(tmp), ".%.400s", name);
	fd = openat(c->dir, tmp, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW |
		    O_CLOEXEC, 0444);
	err = fd < 0 ? -errno : write_all(fd, seq_text(&text), text.count);
	if (fd >= 0)
		close(fd);
	if (!err && renameat(c->dir, tmp, c->dir, name))
		err = -errno;
	if (err)
		(void)unlinkat(c->dir, tmp, 0);
	seq_free(&text);
	return err;
}

static int copy_sub(const struct copy *c, const char *name)
{
	struct copy sub = { .pf = c->pf, .depth = c->depth + 1 };
	int err;

	if (sub.depth > DEPTH ||
	    (size_t)snprintf(sub.path, sizeof(sub.path), "%s/%s", c->path,
			     name) >= sizeof(sub.path))
		return -ENAMETOOLONG;
	if (mkdirat(c->dir, name, 0755) && errno != EEXIST)
		return -errno;
	sub.dir = openat(c->dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW |
			 O_CLOEXEC);
	if (sub.dir < 0)
		return -errno;
	err = copy_dir(&sub);
	close(sub.dir);
	return err == -ENOENT ? 0 : err;
}

/* Remove all files of @dir that @keep does not list; NULL: all files. */
static void remove_others(int dir, const char *keep)
{
	DIR *d = fdopendir(dup(dir));
	struct dirent *e;
	char line[300];
	int sub;

	if (!d)
		return;
	rewinddir(d);
	while ((e = readdir(d))) {
		if (e->d_name[0] == '.')
			continue;
		/* @keep begins with a newline, and each line of it ends with one. */
		snprintf(line, sizeof(line), "\n%.255s\n", e->d_name);
		if (keep && strstr(keep, line))
			continue;
		snprintf(line, sizeof(line), "\n%.255s/\n", e->d_name);
		if (keep && strstr(keep, line))
			continue;
		sub = openat(dir, e->d_name, O_RDONLY | O_DIRECTORY |
			     O_NOFOLLOW | O_CLOEXEC);
		if (sub >= 0) {
			remove_others(sub, NULL);
			close(sub);
		}
		(void)unlinkat(dir, e->d_name, sub >= 0 ? AT_REMOVEDIR : 0);
	}
	closedir(d);
}

static int copy_dir(const struct copy *c)
{
	struct seq_file text, keep;
	char *name, *save = NULL;
	int err = ask(c, "ls", "", &text);

	if (err) {
		seq_free(&text);
		return err;
	}
	seq_init(&keep, KV_VIEW_TEXT_MAX);
	seq_printf(&keep, "\n%s", seq_text(&text));
	for (name = text.count ? strtok_r(text.buf, "\n", &save) : NULL;
	     name && !err; name = strtok_r(NULL, "\n", &save)) {
		const size_t len = strlen(name);

		/* No real name begins with a dot: a domain called `..` is escaped. */
		if (*name == '.')
			continue;
		if (name[len - 1] != '/') {
			err = copy_file(c, name);
			continue;
		}
		name[len - 1] = '\0';
		err = copy_sub(c, name);
	}
	if (!err)
		remove_others(c->dir, seq_text(&keep));
	seq_free(&keep);
	seq_free(&text);
	return err;
}

static bool is_empty(int dir)
{
	DIR *d = fdopendir(dup(dir));
	struct dirent *e;
	bool empty = d;

	while (d && (e = readdir(d)))
		empty = empty && (!strcmp(e->d_name, ".") ||
				  !strcmp(e->d_name, ".."));
	if (d)
		closedir(d);
	return empty;
}

/* Return: the directory, or -errno; the error was logged. */
static int open_target(const char *path)
{
	int dir, fd;

	if (mkdir(path, 0755) && errno != EEXIST) {
		pr_err("%s: cannot be made: %s", path, strerror(errno));
		return -EIO;
	}
	dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0) {
		pr_err("%s: %s", path, strerror(errno));
		return -EIO;
	}
	if (!faccessat(dir, MARK, F_OK, 0))
		return dir;
	fd = is_empty(dir) ? openat(dir, MARK, O_WRONLY | O_CREAT | O_CLOEXEC,
				    0444) : -1;
	if (fd < 0) {
		pr_err("%s: is not empty, and not of kvmm-proc: name another directory",
		       path);
		close(dir);
		return -EEXIST;
	}
	close(fd);
	return dir;
}

int pf_snapshot(struct procfs *pf)
{
	struct copy c = { .pf = pf, .dir = open_target(pf->opt.snapshot) };
	const u32 ms = pf->opt.interval_ms;
	const struct timespec pause = {
		.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000,
	};
	int err;

	if (c.dir < 0)
		return EX_CANTCREAT;
	do {
		err = copy_dir(&c);
		if (err)
			pr_warn("%s: %s", pf->opt.snapshot, err == -EAGAIN ?
				"no daemon answers" : strerror(-err));
	} while (ms && !nanosleep(&pause, NULL));
	close(c.dir);
	return err == -EAGAIN ? EX_UNAVAILABLE : err ? EX_IOERR : 0;
}
