// SPDX-License-Identifier: Apache-2.0
/*
 * kvctl_save.c - save: write the running state into the file of options
 *
 * kvctl writes the file, with the rights of its user: the daemon may open no file.  The
 * daemon's file `config` says where the file is, and the lines that are to be in it.
 * The new text is written beside the file, reaches the disk, and takes the file's
 * name.  So the file is the old one or the new one, also when a step fails.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include <kvmm/config.h>
#include <kvmm/log.h>

#include "kvmm/tools/kvctl.h"
#include "kvmm/tools/kvctl_merge.h"

#define FILE_HEAD	"# file: "

/**
 * struct save - one run
 * @path: of the file, all links followed
 * @st:   of the file when it was read; without a link count: it is not there
 * @old:  its text
 * @new:  text to be written
 * @diff: lines that change
 */
struct save {
	char		path[4096];
	struct stat	st;
	struct seq_file	old;
	struct seq_file	new;
	struct seq_file	diff;
};

static int refuse(const struct save *s, const char *what, int err)
{
	pr_err("%s: %s: %s: nothing is changed", s->path, what, strerror(err));
	if (err == EACCES || err == EPERM || err == EROFS)
		pr_err("kvctl save --print shows the text: write it as a user who may");
	return err == EACCES || err == EPERM ? EX_NOPERM : EXIT_FAILURE;
}

/* Take the path from the first line.  Return: exit code. */
static int take_path(struct save *s, const char *text, bool print)
{
	const size_t n = strcspn(text, "\n"), head = strlen(FILE_HEAD);
	char *real;

	if (n <= head || n - head >= sizeof(s->path) ||
	    strncmp(text, FILE_HEAD, head)) {
		pr_err("the daemon does not say where its file of options is: it is of another release");
		return EX_PROTOCOL;
	}
	memcpy(s->path, text + head, n - head);
	s->path[n - head] = '\0';
	/* The daemon writes a blank and other marks as \040. */
	if (strchr(s->path, '\\') && !print) {
		pr_err("%s: a blank or another mark in the path of the file of options: kvctl save --print shows the text, to be written by hand",
		       s->path);
		return EX_DATAERR;
	}
	if (!strcmp(s->path, KV_CONFIG_NONE) && !print) {
		pr_err("the daemon was started without a file of options: start it with --config PATH; kvctl save --print shows the text");
		return EXIT_FAILURE;
	}
	/* The file that a link names is replaced, not the link. */
	real = realpath(s->path, NULL);
	if (real)
		snprintf(s->path, sizeof(s->path), "%s", real);
	free(real);
	return 0;
}

/*
 * May root follow the word of this daemon?  A user can listen at a socket in any
 * directory that he may write.  So no other user than root may change the way to the
 * socket, nor the way to the file that the daemon names.  Return: exit code.
 */
static int judge_way(const char *path)
{
	char why[4096 + 200] = "";
	int err = geteuid() ? 0 : kv_config_way(path, why, sizeof(why));

	if (!err || err == -ENOENT)
		return 0;
	pr_err("%s; as root, save trusts no daemon and no file of another user: give the command as the user of that daemon",
	       *why ? why : strerror(-err));
	return EX_NOPERM;
}

/* In a directory like /tmp the socket may be of any user. */
static int judge_daemon(const struct kvctl *k)
{
	char dir[KV_VIEW_PATH_MAX];
	struct stat st;
	char *slash;
	int err;

	snprintf(dir, sizeof(dir), "%s", k->path);
	slash = strrchr(dir, '/');
	if (slash)
		slash[slash == dir] = '\0';
	err = judge_way(slash ? dir : ".");
	if (err || geteuid() || lstat(k->path, &st) || !st.st_uid)
		return err;
	pr_err("%s belongs to user %u; as root, save trusts no daemon of another user: give the command as that user",
	       k->path, st.st_uid);
	return EX_NOPERM;
}

/* Read the file, if it is there.  Return: exit code. */
static int read_old(struct save *s, bool print)
{
	char buf[4096];
	struct stat link;
	ssize_t n;
	int fd, err;

	if (!strcmp(s->path, KV_CONFIG_NONE))
		return 0;
	err = judge_way(s->path);
	if (err)
		return err;
	fd = open(s->path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	/*
	 * The daemon's word alone makes no file for root: any user may run a daemon.
	 * Nor does it replace a link that leads nowhere.
	 */
	if (fd < 0 && errno == ENOENT && geteuid() && lstat(s->path, &link))
		return 0;
	if (fd < 0 && errno == ENOENT && !print) {
		pr_err("%s: is not there: make it as an empty file, then give the command again",
		       s->path);
		return EX_NOINPUT;
	}
	if (fd < 0)
		return errno == ENOENT ? 0 : refuse(s, "cannot be read", errno);
	if (fstat(fd, &s->st) || !S_ISREG(s->st.st_mode)) {
		close(fd);
		return refuse(s, "is no file", EINVAL);
	}
	while ((n = read(fd, buf, sizeof(buf))) > 0)
		seq_write(&s->old, buf, (size_t)n);
	close(fd);
	if (n || seq_error(&s->old))
		return refuse(s, "cannot be read", n < 0 ? errno : EFBIG);
	if (!kvctl_is_options(seq_text(&s->old), s->old.count))
		return refuse(s, "has lines that are no options", EINVAL);
	return 0;
}

/* Lines that no file can have are comments in the daemon's text. */
static void warn_left_out(const char *text)
{
	for (; *text; text += strcspn(text, "\n"), text += *text == '\n')
		if (!strncmp(text, "# ", 2) && strncmp(text, FILE_HEAD, strlen(FILE_HEAD)))
			pr_warn("%.*s", (int)strcspn(text, "\n") - 2, text + 2);
}

/* ---- writing ---- */

static bool is_changed(const struct save *s)
{
	struct stat st;

	if (stat(s->path, &st))
		return s->st.st_nlink;
	return st.st_ino != s->st.st_ino || st.st_size != s->st.st_size ||
	       st.st_mtim.tv_sec != s->st.st_mtim.tv_sec ||
	       st.st_mtim.tv_nsec != s->st.st_mtim.tv_nsec;
}

/* The new file has owner and mode of the old one.  Return: 0 or an errno. */
static int write_all(const struct save *s, int fd)
{
	const char *p = seq_text(&s->new);
	size_t left = s->new.count;
	ssize_t n;

	if (s->st.st_nlink && fchown(fd, s->st.st_uid, s->st.st_gid) && !geteuid())
		return errno;
	if (fchmod(fd, s->st.st_nlink ? s->st.st_mode & 07777 : 0644))
		return errno;
	for (; left; left -= (size_t)n, p += n) {
		n = write(fd, p, left);
		if (n <= 0)
			return n ? errno : EIO;
	}
	return fsync(fd) ? errno : 0;
}

/* The name, too, must reach the disk; if it cannot, the file is right all the same. */
static void sync_dir(const char *path)
{
	char dir[4096], *slash;
	int fd;

	snprintf(dir, sizeof(dir), "%s", path);
	slash = strrchr(dir, '/');
	if (slash)
		slash[slash == dir] = '\0';
	fd = open(slash ? dir : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || fsync(fd))
		pr_debug("%s: %s", dir, strerror(errno));
	if (fd >= 0)
		close(fd);
}

/* Return: exit code. */
static int write_new(const struct save *s)
{
	char temp[4096 + 16];
	int fd, err;

	/* A write beyond a limit on files fails instead, and leaves no file. */
	signal(SIGXFSZ, SIG_IGN);
	/* A file that its owner closed to writing is not replaced either. */
	if (s->st.st_nlink && access(s->path, W_OK))
		return refuse(s, "cannot be written", errno);
	snprintf(temp, sizeof(temp), "%s.XXXXXX", s->path);
	fd = mkostemp(temp, O_CLOEXEC);
	if (fd < 0)
		return refuse(s, "no file can be made beside it", errno);
	err = write_all(s, fd);
	if (close(fd) && !err)
		err = errno;
	if (!err && is_changed(s)) {
		unlink(temp);
		pr_err("%s: another program changed it meanwhile: nothing is changed: give the command again",
		       s->path);
		return EXIT_FAILURE;
	}
	if (!err && rename(temp, s->path))
		err = errno;
	if (err) {
		unlink(temp);
		return refuse(s, "cannot be written", err);
	}
	sync_dir(s->path);
	return 0;
}

/* ---- the command ---- */

static int print_text(const struct kvctl *k, const char *text, size_t len)
{
	if (k->opts.json)
		return kvctl_print_json(kvctl_json_string(text, len));
	return fwrite(text, 1, len, stdout) != len || fflush(stdout) ?
	       EX_IOERR : EXIT_SUCCESS;
}

static int save_done(const struct kvctl *k, const struct save *s)
{
	char text[4096 + 64];

	snprintf(text, sizeof(text), s->diff.count ? "%s: is written" :
		 "%s: says all of this already", s->path);
	if (k->opts.json)
		return kvctl_print_json(json_pack("{s:o, s:o}", "done",
				kvctl_json_string(text, strlen(text)), "changes",
				kvctl_json_string(seq_text(&s->diff), s->diff.count)));
	printf("%s%s\n", seq_text(&s->diff), text);
	return fflush(stdout) ? EX_IOERR : EXIT_SUCCESS;
}

static int save_run(struct kvctl *k, struct save *s)
{
	int err = judge_daemon(k);

	if (!err)
		err = kvctl_read(k, "cat", "config");
	if (!err)
		err = take_path(s, seq_text(&k->text), k->opts.print);
	if (!err)
		err = read_old(s, k->opts.print);
	if (err)
		return err;
	warn_left_out(seq_text(&k->text));
	err = kvctl_merge(seq_text(&s->old), seq_text(&k->text), &s->new,
			  &s->diff);
	if (err) {
		pr_err("%s: the text would have more than %u domains or %u bytes, which no file of options has: set fewer limits",
		       s->path, KV_LIST_MAX, KV_CONFIG_MAX);
		return EXIT_FAILURE;
	}
	if (k->opts.print)
		return print_text(k, seq_text(&s->new), s->new.count);
	err = s->diff.count ? write_new(s) : 0;
	return err ? err : save_done(k, s);
}

int cmd_save(struct kvctl *k, char **argv)
{
	static struct save s;
	int ret;

	/* --all runs the command once for each daemon. */
	memset(&s, 0, sizeof(s));
	seq_init(&s.old, KV_CONFIG_MAX);
	seq_init(&s.new, KV_CONFIG_MAX);
	seq_init(&s.diff, KV_CONFIG_MAX);
	ret = save_run(k, &s);
	seq_free(&s.old);
	seq_free(&s.new);
	seq_free(&s.diff);
	return ret;
}
