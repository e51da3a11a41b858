/* SPDX-License-Identifier: Apache-2.0 */
/*
 * procfs.h - interfaces of the files of kvmm-proc
 */
#ifndef KVMM_PROCFS_PROCFS_H
#define KVMM_PROCFS_PROCFS_H

#include <sys/types.h>

#include <kvmm/addr.h>
#include <kvmm/log.h>
#include <kvmm/opts.h>
#include <kvmm/sandbox.h>
#include <kvmm/seq.h>

#define PF_THREADS	8	/* requests of the kernel answered at once */
#define PF_PATH		4096
#define PF_MOUNT	"proc"	/* in the directory of the sockets */
#define PF_FSTYPE	"fuse.kvmm-proc"

#define PROCFS_OPTIONS(x)						\
	x(str, dir, "dir", NULL, 0, 0, "DIR",				\
	  "directory of the daemon's view.sock, where the files appear below proc/ (default $KVMM_RUNDIR, else $XDG_RUNTIME_DIR/kvmm, else /run/kvmm for root and /tmp/kvmm-UID for others)") \
	x(str, snapshot, "snapshot", NULL, 0, 0, "DIR",			\
	  "mount nothing: copy the files to this directory, which is made if it is not there") \
	x(uint, interval_ms, "interval-ms", "0", 0, 3600000, "N",	\
	  "copy them again after this, until a signal; 0: once")	\
	x(choice, mount, "mount", "on", 0, 0, "on|off",			\
	  "whether the files are mounted")				\
	x(str, metrics, "metrics", "off", 0, 0, "off|[ADDR:]PORT",	\
	  "serve the file metrics over HTTP, as /metrics, to all that can connect: at a port of 127.0.0.1, or of this address, [ADDR]:PORT for IPv6") \
	x(flag, unmount, "unmount", NULL, 0, 0, NULL,			\
	  "take away the mount of a kvmm-proc that is dead, and end")	\
	x(str, user, "user", NULL, 0, 0, "USER",			\
	  "who it becomes when root started it: a name, or UID:GID (default kvmm-proc if there is such a user, else it stays uid 0 without capabilities)") \
	x(choice, sandbox, "sandbox", "on", 0, 0, SANDBOX_WORDS,	\
	  "as for kvmm")						\
	x(choice, log_level, "log-level", "info", 0, 0, "err|warn|info|debug", \
	  "what is told on stderr")					\
	KV_LOG_FORMAT_OPT(x)

enum pf_mount {
	PF_MOUNT_ON,
	PF_MOUNT_OFF,
};

struct procfs_options {
#define x OPT_FIELD
	PROCFS_OPTIONS(x)
#undef x
};

/**
 * struct procfs - state of this program
 * @dir:   directory of the sockets, without symbolic links
 * @mount: mount point of the files
 * @view:  path of the view socket, valid after the user was changed
 * @owner: user of the daemon; owns the files
 * @http:  socket that listens for readers of the metrics; -1: none
 * @addr:  its address
 */
struct procfs {
	struct procfs_options	opt;
	char			dir[PF_PATH];
	char			mount[PF_PATH + 8];
	char			view[108];
	uid_t			owner;
	int			http;
	struct kv_addr		addr;
};

/**
 * struct pf_user - the user of a system call
 * @pid: process or thread that made it, for its groups; 0: not known
 */
struct pf_user {
	uid_t	uid;
	pid_t	pid;
};

/* ---- ask.c ---- */

/**
 * pf_ask() - send one request to the daemon, for a user
 * @req:  as for the view socket
 * @text: made by seq_init(); takes the answer
 *
 * The time is bounded: a daemon that does not answer costs the caller some
 * seconds, and most callers nothing while the daemon is known to be away.
 *
 * Context: any thread.
 * Return: 0; the daemon's -errno; -EAGAIN: the daemon is away.
 */
int __must_check pf_ask(struct procfs *pf, struct pf_user user, const char *req,
			struct seq_file *text);

/* pf_ask_fd() - the same for `wait`: @fd takes the connection, which stays open */
int __must_check pf_ask_fd(struct procfs *pf, struct pf_user user, const char *req,
			   struct seq_file *text, int *fd);

/* ---- trigger.c ---- */

struct fuse;
struct fuse_pollhandle;

#define PF_NO_TRIGGER	(~0u)

/* Call it before threads are started. */
int __must_check pf_trigger_init(struct procfs *pf);
/* The thread that waits for triggers to fire; @arg: struct procfs. */
void *pf_trigger_main(void *arg);

/**
 * pf_trigger_set() - set a pressure trigger for an open file
 * @user: user of the write()
 * @path: path of the file
 * @text: `some THRESHOLD WINDOW`
 * @slot: takes the trigger's number
 *
 * Return: 0; the daemon's -errno; -EAGAIN: the daemon is away; -EUSERS.
 */
int __must_check pf_trigger_set(struct procfs *pf, struct pf_user user,
				const char *path, const char *text, u32 *slot);

/* Remove the trigger: its file is closed. */
void pf_trigger_end(u32 slot);

/**
 * pf_trigger_poll() - did the trigger fire since the last call?
 * @ph: handle to notify when it fires, or NULL; taken over
 *
 * Return: POLLPRI: it fired; POLLPRI and POLLERR: the trigger no longer exists.
 */
unsigned int pf_trigger_poll(u32 slot, struct fuse_pollhandle *ph);

/* ---- fs.c ---- */

/* Return: the file system, or NULL; the error was logged. */
struct fuse *pf_fs_new(struct procfs *pf);

/* pf_fs_work() - answer the kernel until the files are unmounted */
void pf_fs_work(struct fuse *fuse);

/* ---- mount.c ---- */

/* Unmount the file system that a dead kvmm-proc left at pf->mount. */
int __must_check pf_clean(const struct procfs *pf);
/* Mount the files; an error was logged. */
int __must_check pf_mount(const struct procfs *pf, struct fuse *fuse);
/* pf_clean(), then remove the mount point. */
int __must_check pf_unmount(const struct procfs *pf);

/* ---- http.c ---- */

/* Listen at pf->addr; an error was logged. */
int __must_check pf_http_listen(struct procfs *pf);

/* pf_http_work() - answer connections, for ever */
void __noreturn pf_http_work(struct procfs *pf);

/* ---- page.c ---- */

/**
 * struct page - a page that is sent to one or more connections
 * @users: connections, and struct pages while it may hand the page out again
 */
struct page {
	u32		users;
	struct seq_file	text;
};

/**
 * struct pages - the metrics that were read last
 * @last:  handed out again for a while; NULL: none
 * @since: time in ms at which @last was read
 * @bytes: size of all pages that are still being sent
 */
struct pages {
	struct procfs	*pf;
	struct page	*last;
	u64		since;
	size_t		bytes;
};

/**
 * pages_get() - get the current page for one more connection
 * @now: in ms
 *
 * However many connections ask, the daemon is asked a few times a second.
 *
 * Return: 0, or an error of pf_ask().
 */
int __must_check pages_get(struct pages *ps, u64 now, struct page **page);
/* Put the page of a connection; NULL: the connection had none. */
void pages_put(struct pages *ps, struct page *page);

/* ---- snapshot.c ---- */

/* Return: exit code. */
int pf_snapshot(struct procfs *pf);

#endif /* KVMM_PROCFS_PROCFS_H */
