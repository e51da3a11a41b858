/* SPDX-License-Identifier: Apache-2.0 */
/*
 * procfs.h - kvmm-proc: the operator's files as files
 */
#ifndef KVMM_PROCFS_PROCFS_H
#define KVMM_PROCFS_PROCFS_H

#include <sys/types.h>

#include <kvmm/addr.h>
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
	  "what is told on stderr")

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
 * struct procfs - this program
 * @dir:   where the sockets are, without symbolic links
 * @mount: where the files are
 * @view:  path of the view socket, good after the user was changed
 * @owner: who started the daemon; owns the files
 * @http:  listens for who reads the metrics; -1: nothing does
 * @addr:  where that is
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

/* ---- ask.c ---- */

/**
 * pf_ask() - one request to the daemon, for @uid
 * @req:  as for the view socket
 * @text: of seq_init(); takes the answer
 *
 * Bounded in time: a daemon that does not answer costs the caller some
 * seconds, and while it is known to be away most callers nothing.
 *
 * Context: any thread.
 * Return: 0; -errno as the daemon said; -EAGAIN: it is away.
 */
int __must_check pf_ask(struct procfs *pf, uid_t uid, const char *req,
			struct seq_file *text);

/* pf_ask_fd() - the same for `wait`: @fd takes the connection that stays */
int __must_check pf_ask_fd(struct procfs *pf, uid_t uid, const char *req,
			   struct seq_file *text, int *fd);

/* ---- trigger.c ---- */

struct fuse;
struct fuse_pollhandle;

#define PF_NO_TRIGGER	(~0u)

/* Before threads exist. */
int __must_check pf_trigger_init(struct procfs *pf);
/* The thread that is told; @pf. */
void *pf_trigger_main(void *arg);

/**
 * pf_trigger_set() - set a pressure trigger for an open file
 * @uid:  who opened it
 * @path: of the file
 * @text: `some THRESHOLD WINDOW`
 * @slot: takes its number
 *
 * Return: 0; -errno as the daemon said; -EAGAIN: it is away; -EUSERS.
 */
int __must_check pf_trigger_set(struct procfs *pf, uid_t uid, const char *path,
				const char *text, u32 *slot);

/* The file is closed. */
void pf_trigger_end(u32 slot);

/**
 * pf_trigger_poll() - did it fire since it was asked last?
 * @ph: whom to tell when it does, or NULL; taken over
 *
 * Return: POLLPRI: it did; POLLERR too: it is no more.
 */
unsigned int pf_trigger_poll(u32 slot, struct fuse_pollhandle *ph);

/* ---- fs.c ---- */

/* Return: the file system, or NULL after a line. */
struct fuse *pf_fs_new(struct procfs *pf);

/* pf_fs_work() - answer the kernel, until the mount is gone */
void pf_fs_work(struct fuse *fuse);

/* ---- mount.c ---- */

/* Make way: whatever a dead one left mounted at pf->mount is taken away. */
int __must_check pf_clean(const struct procfs *pf);
/* Mount; it told why not. */
int __must_check pf_mount(const struct procfs *pf, struct fuse *fuse);
/* pf_clean(), and the directory goes too. */
int __must_check pf_unmount(const struct procfs *pf);

/* ---- http.c ---- */

/* Listen at pf->addr; it told why not. */
int __must_check pf_http_listen(struct procfs *pf);

/* pf_http_work() - answer who connects, for ever */
void __noreturn pf_http_work(struct procfs *pf);

/* ---- page.c ---- */

/**
 * struct page - a page that is being sent, perhaps to several
 * @users: connections, and the one who gives it to the next
 */
struct page {
	u32		users;
	struct seq_file	text;
};

/**
 * struct pages - the metrics as they were last read
 * @last:  to be given again for a while; NULL: none
 * @since: in ms, when that was read
 * @bytes: of all that are still being sent
 */
struct pages {
	struct procfs	*pf;
	struct page	*last;
	u64		since;
	size_t		bytes;
};

/**
 * pages_get() - the page of now, for one more user
 * @now: in ms
 *
 * However many ask, the daemon is asked a few times a second.
 *
 * Return: 0, or what pf_ask() says.
 */
int __must_check pages_get(struct pages *ps, u64 now, struct page **page);
/* The page of a user that is done with it; NULL: it had none. */
void pages_put(struct pages *ps, struct page *page);

/* ---- snapshot.c ---- */

/* Return: exit code. */
int pf_snapshot(struct procfs *pf);

#endif /* KVMM_PROCFS_PROCFS_H */
