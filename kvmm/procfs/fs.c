// SPDX-License-Identifier: Apache-2.0
/*
 * fs.c - the file system that the kernel mounts
 *
 * This file has no list of the files.  Each name, list and text comes from the
 * daemon when the kernel asks for it, for the user of the system call.  No answer
 * is kept for the next call, which may be another user's, with other files.  So
 * the kernel caches no names, no modes and no content.
 *
 * As in /proc a file has no size, and its text is made when it is opened: all
 * reads of an open file see one text.  A second read from the beginning gets a
 * new text.  A write is a whole value, at the beginning; a refused write changes
 * nothing.  A write to a file that all users may write sets a trigger for this
 * open file (trigger.c); poll() of the file returns when the trigger fires.
 *
 * The kernel checks by owner and mode which files a user may open
 * (default_permissions); the daemon decides which files a user sees.  A text stays
 * in memory until its file is closed, so texts are bounded in all.  Each user
 * but root and the owner has a smaller bound, and all of these users together may use
 * half of the total.
 *
 * Context: PF_THREADS threads.
 */
#define FUSE_USE_VERSION 31
#include <fcntl.h>
#include <fuse.h>
#include <fuse_lowlevel.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <kvmm/list.h>
#include <kvmm/log.h>
#include <kvmm/view.h>

#include "kvmm/procfs/procfs.h"

#define VALUE_MAX	64	/* bytes of a written value */
#define FILES_MAX	1024	/* files open at once */
#define FILES_USER	64	/* of these, for one user but the owner and root */
#define BYTES_MAX	((size_t)512 << 20)
#define BYTES_USER	((size_t)32 << 20)

/**
 * struct file - one open file
 * @uid:   user of the open()
 * @bytes: size of its text, as it was counted
 * @used:  a read was served: the next read from the beginning fetches a new text
 * @trigger: trigger that was written to it, or PF_NO_TRIGGER
 */
struct file {
	struct list	node;
	pthread_mutex_t	lock;
	uid_t		uid;
	mode_t		mode;
	size_t		bytes;
	bool		used;
	u32		trigger;
	struct seq_file	text;
	char		path[];
};

static pthread_mutex_t files_lock = PTHREAD_MUTEX_INITIALIZER;
static struct list files = { &files, &files };

static struct procfs *fs_self(void)
{
	return fuse_get_context()->private_data;
}

/* The user that makes the system call, which waits for the answer. */
static struct pf_user fs_caller(void)
{
	const struct fuse_context *c = fuse_get_context();

	return (struct pf_user){ .uid = c->uid, .pid = c->pid };
}

/*
 * The user of an open file, with the groups of the process that uses it now: the
 * daemon gives them no rights if that is another user.
 */
static struct pf_user fs_user(uid_t uid)
{
	return (struct pf_user){ .uid = uid, .pid = fs_caller().pid };
}

/* Ask `VERB PATH` for a user. */
static int fs_ask(struct pf_user user, const char *verb, const char *path,
		  struct seq_file *text)
{
	char req[PF_PATH + 16];

	if ((size_t)snprintf(req, sizeof(req), "%s %s", verb, path) >=
	    sizeof(req))
		return -ENAMETOOLONG;
	return pf_ask(fs_self(), user, req, text);
}

static int fs_mode(struct pf_user user, const char *path, mode_t *mode)
{
	struct seq_file text;
	unsigned int m;
	int err;

	seq_init(&text, 4096);
	err = fs_ask(user, "stat", path, &text);
	if (!err && sscanf(seq_text(&text), "%o", &m) != 1)
		err = -EIO;
	if (!err)
		*mode = m;
	seq_free(&text);
	return err;
}

/* ---- names ---- */

static int fs_getattr(const char *path, struct stat *st,
		      struct fuse_file_info *fi)
{
	int err = 0;

	memset(st, 0, sizeof(*st));
	/* The mount point exists even if the daemon does not answer. */
	if (fi)
		st->st_mode = ((struct file *)(uintptr_t)fi->fh)->mode;
	else if (!strcmp(path, "/"))
		st->st_mode = S_IFDIR | 0555;
	else
		err = fs_mode(fs_caller(), path, &st->st_mode);
	st->st_nlink = S_ISDIR(st->st_mode) ? 2 : 1;
	st->st_uid = fs_self()->owner;
	clock_gettime(CLOCK_REALTIME, &st->st_mtim);
	st->st_atim = st->st_mtim;
	st->st_ctim = st->st_mtim;
	return err;
}

static void fs_list(char *names, void *buf, fuse_fill_dir_t fill)
{
	struct stat st = { .st_nlink = 1 };
	char *name, *save = NULL;
	size_t len;

	for (name = strtok_r(names, "\n", &save); name;
	     name = strtok_r(NULL, "\n", &save)) {
		len = strlen(name);
		st.st_mode = S_IFREG;
		if (len && name[len - 1] == '/') {
			name[len - 1] = '\0';
			st.st_mode = S_IFDIR;
		}
			/* No real name begins with a dot: a domain called `..` is escaped. */
		if (*name && *name != '.' && fill(buf, name, &st, 0, 0))
			return;
	}
}

/* Keep the path of the directory: with nullpath_ok later calls do not have it. */
static int fs_opendir(const char *path, struct fuse_file_info *fi)
{
	char *copy = strdup(path);

	fi->fh = (uintptr_t)copy;
	return copy ? 0 : -ENOMEM;
}

static int fs_releasedir(const char *path, struct fuse_file_info *fi)
{
	free((char *)(uintptr_t)fi->fh);
	return 0;
}

static int fs_readdir(const char *path, void *buf, fuse_fill_dir_t fill,
		      off_t at, struct fuse_file_info *fi,
		      enum fuse_readdir_flags flags)
{
	const char *dir = (const char *)(uintptr_t)fi->fh;
	struct seq_file text;
	int err;

	seq_init(&text, KV_VIEW_TEXT_MAX);
	err = fs_ask(fs_caller(), "ls", dir, &text);
	if (!err) {
		fill(buf, ".", NULL, 0, 0);
		fill(buf, "..", NULL, 0, 0);
		if (text.count)
			fs_list(text.buf, buf, fill);
	}
	seq_free(&text);
	return err;
}

/* ---- open files ---- */

/* May @uid open @nr more files, with @bytes more text? */
static bool files_room(uid_t uid, u32 nr, size_t bytes)
{
	const bool own = !uid || uid == fs_self()->owner;
	size_t all = bytes, user = bytes;
	u32 nr_all = nr, nr_user = nr;
	const struct list *l;

	for (l = files.next; l != &files; l = l->next) {
		const struct file *f = list_entry(l, struct file, node);

		nr_all++;
		all += f->bytes;
		if (f->uid == uid) {
			nr_user++;
			user += f->bytes;
		}
	}
	return own ? nr_all <= FILES_MAX && all <= BYTES_MAX :
		     nr_user <= FILES_USER && user <= BYTES_USER &&
		     nr_all <= FILES_MAX / 2 && all <= BYTES_MAX / 2;
}

/* Fetch a new text; @f is locked, or no other thread has it yet. */
static int file_fetch(struct file *f)
{
	struct seq_file text;
	int err;

	seq_init(&text, KV_VIEW_TEXT_MAX);
	err = fs_ask(fs_user(f->uid), "cat", f->path, &text);
	pthread_mutex_lock(&files_lock);
	f->bytes = 0;
	if (!err && !files_room(f->uid, 0, text.size))
		err = -ENFILE;
	if (!err)
		f->bytes = text.size;
	pthread_mutex_unlock(&files_lock);
	if (err) {
		seq_free(&text);
		seq_reset(&f->text);
	} else {
		seq_free(&f->text);
		f->text = text;
	}
	f->used = false;
	return err;
}

static void file_free(struct file *f)
{
	pthread_mutex_lock(&files_lock);
	list_del(&f->node);
	pthread_mutex_unlock(&files_lock);
	pf_trigger_end(f->trigger);
	pthread_mutex_destroy(&f->lock);
	seq_free(&f->text);
	free(f);
}

static struct file *file_new(const char *path)
{
	struct file *f = calloc(1, sizeof(*f) + strlen(path) + 1);

	if (!f)
		return NULL;
	strcpy(f->path, path);
	f->uid = fs_caller().uid;
	f->trigger = PF_NO_TRIGGER;
	seq_init(&f->text, KV_VIEW_TEXT_MAX);
	pthread_mutex_init(&f->lock, NULL);
	pthread_mutex_lock(&files_lock);
	if (!files_room(f->uid, 1, 0)) {
		pthread_mutex_unlock(&files_lock);
		pthread_mutex_destroy(&f->lock);
		free(f);
		errno = ENFILE;
		return NULL;
	}
	list_add_tail(&files, &f->node);
	pthread_mutex_unlock(&files_lock);
	return f;
}

static int fs_open(const char *path, struct fuse_file_info *fi)
{
	struct file *f = file_new(path);
	int err;

	if (!f)
		return -errno;
	err = fs_mode(fs_user(f->uid), path, &f->mode);
	if (!err && (fi->flags & O_ACCMODE) != O_WRONLY)
		err = file_fetch(f);
	if (err) {
		file_free(f);
		return err;
	}
	fi->direct_io = 1;
	fi->fh = (uintptr_t)f;
	return 0;
}

static int fs_read(const char *path, char *buf, size_t size, off_t at,
		   struct fuse_file_info *fi)
{
	struct file *f = (struct file *)(uintptr_t)fi->fh;
	size_t n = 0;
	int err = 0;

	pthread_mutex_lock(&f->lock);
	if (!at && f->used)
		err = file_fetch(f);
	f->used = true;
	if (!err && (size_t)at < f->text.count) {
		n = min(size, f->text.count - (size_t)at);
		memcpy(buf, f->text.buf + at, n);
	}
	pthread_mutex_unlock(&f->lock);
	return err ? err : (int)n;
}

/* Only files that take triggers have this mode. */
static bool takes_trigger(const struct file *f)
{
	return f->mode & S_IWOTH;
}

/* As in the kernel: one trigger per file, any offset, text up to a zero byte. */
static int fs_write_trigger(struct file *f, const char *buf, size_t size)
{
	char text[VALUE_MAX + 1];
	int err = -EBUSY;

	snprintf(text, sizeof(text), "%.*s", (int)min(size, sizeof(text)), buf);
	text[strcspn(text, "\n")] = '\0';
	pthread_mutex_lock(&f->lock);
	if (f->trigger == PF_NO_TRIGGER)
		err = pf_trigger_set(fs_self(), fs_user(f->uid), f->path, text,
				     &f->trigger);
	pthread_mutex_unlock(&f->lock);
	return err ? err : (int)size;
}

static int fs_write(const char *path, const char *buf, size_t size, off_t at,
		    struct fuse_file_info *fi)
{
	struct file *f = (struct file *)(uintptr_t)fi->fh;
	char req[PF_PATH + VALUE_MAX + 2];
	struct seq_file text;
	size_t len = size;
	int err;

	if (takes_trigger(f))
		return fs_write_trigger(f, buf, size);
	while (len && (buf[len - 1] == '\n' || buf[len - 1] == ' '))
		len--;
	if (at || !len || len > VALUE_MAX || memchr(buf, '\0', len))
		return -EINVAL;
	snprintf(req, sizeof(req), "%s %.*s", f->path, (int)len, buf);
	seq_init(&text, KV_VIEW_TEXT_MAX);
	err = fs_ask(fs_user(f->uid), "set", req, &text);
	seq_free(&text);
	return err ? err : (int)size;
}

/* A shell's `>` truncates before it writes: there is no content to cut. */
static int fs_truncate(const char *path, off_t size, struct fuse_file_info *fi)
{
	return 0;
}

static int fs_create(const char *path, mode_t mode, struct fuse_file_info *fi)
{
	return -ENOENT;
}

/* As in the kernel: a file without trigger reports an error, a firing one event. */
static int fs_poll(const char *path, struct fuse_file_info *fi,
		   struct fuse_pollhandle *ph, unsigned int *events)
{
	struct file *f = (struct file *)(uintptr_t)fi->fh;
	u32 trigger;

	pthread_mutex_lock(&f->lock);
	trigger = f->trigger;
	pthread_mutex_unlock(&f->lock);
	*events = POLLIN | POLLRDNORM | POLLOUT | POLLWRNORM;
	if (trigger != PF_NO_TRIGGER) {
		*events |= pf_trigger_poll(trigger, ph);
		return 0;
	}
	if (takes_trigger(f))
		*events |= POLLERR | POLLPRI;
	if (ph)
		fuse_pollhandle_destroy(ph);
	return 0;
}

static int fs_release(const char *path, struct fuse_file_info *fi)
{
	file_free((struct file *)(uintptr_t)fi->fh);
	return 0;
}

/* ---- the session ---- */

static void *fs_init(struct fuse_conn_info *conn, struct fuse_config *cfg)
{
	/* No splice: the system call filter does not allow its pipes. */
	conn->want &= ~(unsigned int)(FUSE_CAP_SPLICE_READ |
				      FUSE_CAP_SPLICE_WRITE |
				      FUSE_CAP_SPLICE_MOVE);
	cfg->entry_timeout = 0;
	cfg->attr_timeout = 0;
	cfg->negative_timeout = 0;
	cfg->direct_io = 1;
	cfg->nullpath_ok = 1;
	return fs_self();
}

static const struct fuse_operations fs_ops = {
	.init		= fs_init,
	.getattr	= fs_getattr,
	.opendir	= fs_opendir,
	.readdir	= fs_readdir,
	.releasedir	= fs_releasedir,
	.open		= fs_open,
	.read		= fs_read,
	.write		= fs_write,
	.truncate	= fs_truncate,
	.create		= fs_create,
	.poll		= fs_poll,
	.release	= fs_release,
};

static __printf(2, 0) void fs_log(enum fuse_log_level level, const char *fmt,
				  va_list ap)
{
	char line[256];

	vsnprintf(line, sizeof(line), fmt, ap);
	line[strcspn(line, "\n")] = '\0';
	pr_debug("%s", line);
}

struct fuse *pf_fs_new(struct procfs *pf)
{
	char *argv[] = {
		(char *)"kvmm-proc", (char *)"-o",
		(char *)"fsname=kvmm,subtype=kvmm-proc,default_permissions",
		(char *)"-o", (char *)"allow_other", NULL,
	};
	/* Without allow_other: fuse.conf may forbid it to users other than root. */
	struct fuse_args args = FUSE_ARGS_INIT(geteuid() ? 3 : 5, argv);
	struct fuse *fuse;

	fuse_set_log_func(fs_log);
	fuse = fuse_new(&args, &fs_ops, sizeof(fs_ops), pf);
	fuse_opt_free_args(&args);
	if (!fuse)
		pr_err("libfuse3 refuses its options");
	return fuse;
}

void pf_fs_work(struct fuse *fuse)
{
	struct fuse_session *se = fuse_get_session(fuse);
	struct fuse_buf buf = { .mem = NULL };
	int n;

	while (!fuse_session_exited(se)) {
		n = fuse_session_receive_buf(se, &buf);
		if (n == -EINTR || n == -EAGAIN)
			continue;
		if (n <= 0)
			break;
		fuse_session_process_buf(se, &buf);
	}
	free(buf.mem);
}
