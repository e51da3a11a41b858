// SPDX-License-Identifier: Apache-2.0
/*
 * config_open.c - open a file of options safely
 *
 * The file decides what a program of root's does, and the program prints wrong lines
 * of it.  So root reads it only if no other user could have written it, or put
 * another file of root's in its place.  Each directory on its path must belong to
 * root, and other users may not write to it, unless it is sticky like /tmp, where
 * they cannot replace root's entries.  Each link on the path must belong to root.
 * So no other user can replace the file after the check.
 *
 * Other users read a file that belongs to them or to root, and that is not writable
 * for all users.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <kvmm/config.h>

#define LINKS_MOST	16

/**
 * struct walk - the path to a file while it is checked
 * @done:  the part that was checked, "" or without a slash at the end
 * @rest:  the part that is left
 * @links: number of links that were followed
 */
struct walk {
	char	done[4096];
	char	rest[4096];
	u32	links;
};

static bool owner_is_trusted(const struct stat *st)
{
	return !st->st_uid || st->st_uid == geteuid();
}

static int refuse(char *text, size_t len, const char *path, const char *what)
{
	snprintf(text, len, "%s %s", path, what);
	return -EPERM;
}

/* Follow a link: put its target before the rest of the path. */
static int walk_link(struct walk *w, const char *name)
{
	char target[4096], rest[4096];
	ssize_t n = readlink(name, target, sizeof(target) - 1);

	if (n <= 0)
		return -errno;
	target[n] = '\0';
	if (++w->links > LINKS_MOST)
		return -ELOOP;
	n = snprintf(rest, sizeof(rest), "%s/%s", target, w->rest);
	if (n < 0 || (size_t)n >= sizeof(rest))
		return -ENAMETOOLONG;
	memcpy(w->rest, rest, sizeof(rest));
	if (target[0] == '/')
		w->done[0] = '\0';
	return 0;
}

/* Check one name.  Return: 0 or a negative errno; @text is set for -EPERM. */
static int walk_step(struct walk *w, const char *part, char *text, size_t len)
{
	char name[4096];
	struct stat st;
	int n = snprintf(name, sizeof(name), "%s/%s", w->done, part);

	if (n < 0 || (size_t)n >= sizeof(name))
		return -ENAMETOOLONG;
	if (lstat(name, &st))
		return -errno;
	if (!owner_is_trusted(&st))
		return refuse(text, len, name, "belongs to another user, who could change the options: chown root it");
	if (S_ISLNK(st.st_mode))
		return walk_link(w, name);
	if ((st.st_mode & (S_IWGRP | S_IWOTH)) &&
	    !(S_ISDIR(st.st_mode) && (st.st_mode & S_ISVTX)))
		return refuse(text, len, name, "may be written by others, who could change the options: chmod go-w it");
	memcpy(w->done, name, sizeof(name));
	return 0;
}

int kv_config_way(const char *path, char *text, size_t len)
{
	struct walk w = { .links = 0 };
	char part[4096];
	int n, err = 0;
	size_t part_len;

	if (*path != '/' && !getcwd(part, sizeof(part)))
		return -errno;
	n = snprintf(w.rest, sizeof(w.rest), "%s/%s", *path == '/' ? "" : part,
		     path);
	if (n < 0 || (size_t)n >= sizeof(w.rest))
		return -ENAMETOOLONG;
	/* The root directory. */
	err = walk_step(&w, ".", text, len);
	w.done[0] = '\0';
	while (!err && w.rest[0]) {
		part_len = strcspn(w.rest, "/");
		memcpy(part, w.rest, part_len);
		part[part_len] = '\0';
		part_len += w.rest[part_len] == '/';
		memmove(w.rest, w.rest + part_len, strlen(w.rest + part_len) + 1);
		if (part[0])
			err = walk_step(&w, part, text, len);
	}
	return err;
}

static int judge(int fd, const char *path, char *text, size_t len)
{
	struct stat st;

	if (fstat(fd, &st))
		return -errno;
	if (!S_ISREG(st.st_mode))
		return refuse(text, len, path, "is no regular file: name one");
	if (!owner_is_trusted(&st))
		return refuse(text, len, path, "belongs to another user: make it your own");
	if (st.st_mode & (geteuid() ? S_IWOTH : S_IWGRP | S_IWOTH))
		return refuse(text, len, path, "may be written by others: chmod go-w it");
	return 0;
}

int kv_config_open(const char *path, char *text, size_t len)
{
	int fd = -1, err;

	text[0] = '\0';
	err = geteuid() ? 0 : kv_config_way(path, text, len);
	if (!err) {
		/* Without O_NONBLOCK open() would wait for a FIFO. */
		fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
		err = fd < 0 ? -errno : judge(fd, path, text, len);
	}
	if (!err)
		return fd;
	if (fd >= 0)
		close(fd);
	if (!text[0])
		snprintf(text, len, "%s: cannot be read: %s", path,
			 strerror(-err));
	return err;
}

const char *kv_config_default_path(const char *name, char *buf, size_t len)
{
	const char *xdg = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");

	if (!geteuid())
		snprintf(buf, len, "/etc/kvmm/%s", name);
	else if (xdg && *xdg == '/')
		snprintf(buf, len, "%s/kvmm/%s", xdg, name);
	else if (home && *home == '/')
		snprintf(buf, len, "%s/.config/kvmm/%s", home, name);
	else
		*buf = '\0';
	return buf;
}
