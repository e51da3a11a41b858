/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandbox.h - rights that each process keeps once it has started
 *
 * The two lists here are the only ones: the filter, the capabilities, the
 * tables in Documentation/security.md and the tests are made from them.
 *
 * A program calls sandbox_prepare() when its options are read, sandbox_drop()
 * when it needs no more rights and before its first lasting thread,
 * sandbox_filter() when all its threads run.  kvctl, kvrt and libkvmm have no
 * rights of their own and do not link this.
 */
#ifndef KVMM_SANDBOX_H
#define KVMM_SANDBOX_H

#include <sys/types.h>

#include <kvmm/types.h>

/* Processes, as bits. */
#define SANDBOX_hold	BIT(0)
#define SANDBOX_kvmm	BIT(1)
#define SANDBOX_swapd	BIT(2)
#define SANDBOX_both	(SANDBOX_kvmm | SANDBOX_swapd)
#define SANDBOX_cuda	BIT(3)	/* with kvmm: a CUDA driver runs in it */
#define SANDBOX_proc	BIT(4)	/* kvmm-proc */
#define SANDBOX_http	BIT(5)	/* with proc: it serves metrics */
#define SANDBOX_mount	BIT(6)	/* with proc: it mounts; only for capabilities */
#define SANDBOX_events	BIT(7)	/* with kvmm: it publishes events by ZeroMQ */
#define SANDBOX_all	(SANDBOX_both | SANDBOX_proc)

/*
 * Capabilities, for root alone: x(name, keeps, starts with, why).  hold and its
 * children have no others.  A process that keeps one has it effective until its
 * end; a process that starts with one has it until sandbox_drop().
 */
#define SANDBOX_CAPS(x)							\
	x(KILL, hold | kvmm, both,					\
	  "end clients of other users; hold: end its children, which have users of their own") \
	x(DAC_OVERRIDE, hold, all,					\
	  "make and remove sockets, lock and mount point in the directory of another user") \
	x(IPC_LOCK, hold, both,						\
	  "lock the host pool, pin it for io_uring, beyond the limit of the user") \
	x(SYS_RESOURCE, none, both,					\
	  "raise the limits on descriptors and locked memory")		\
	x(SYS_PTRACE, none, both,					\
	  "kvmm: open files that clients of the last daemon map")		\
	x(SYS_ADMIN, none, mount, "mount and unmount the files, where --proc has them mounted") \
	x(CHOWN, none, kvmm | proc, "give the sockets of --tenant to their owner, admin.sock to --admin-group; view.sock to the group of kvmm-proc") \
	x(SETUID, none, all, "change the user")				\
	x(SETGID, none, all, "change the groups")			\
	x(SETPCAP, none, all, "give capabilities up for good")

/* Rules for the arguments of a call: x(name, text). */
#define SANDBOX_RULES(x)						\
	x(any,		"any")						\
	x(rdonly,	"for reading alone, nothing is made")		\
	x(noexec,	"never executable")				\
	x(self,		"to itself alone")				\
	x(sigkill,	"SIGKILL alone")				\
	x(setname,	"the name of a thread alone")			\
	x(unix,		"Unix sockets alone")				\
	x(blksize,	"size of a block device and of its sectors alone")

/*
 * System calls after sandbox_filter(): x(process, name, rule, why).  Any other call
 * ends the process with a line that names it.
 */
#define SANDBOX_CALLS(x)						\
	/* memory */							\
	x(all, mmap, noexec, "extents, segments, malloc")			\
	x(all, mprotect, noexec, "malloc of threads")			\
	x(all, munmap, any, "the same, given back")			\
	x(all, mremap, any, "realloc")					\
	x(all, brk, any, "malloc")					\
	x(all, madvise, any, "memory that is not dumped, huge pages, malloc") \
	x(kvmm, memfd_create, any, "extents and segments of clients")	\
	x(both, ftruncate, any, "the size of these; of an area that did not fit") \
	x(both, fallocate, any, "memory of an extent, made and punched out; room for an area") \
	x(kvmm, munlock, any, "the host pool at the end")		\
	/* threads and time */						\
	x(all, futex, any, "locks, semaphores, conditions")		\
	x(all, sched_yield, any, "a thread that spins")		\
	x(both, sched_getaffinity, any, "number of processors")		\
	x(all, set_robust_list, any, "a thread that just began")	\
	x(all, rseq, any, "the same")					\
	x(all, prctl, setname, "the same")				\
	x(all, gettid, any, "log lines of failures")				\
	x(all, getpid, any, "log lines of failures; status")			\
	x(both, getuid, any, "the file status")				\
	x(both, geteuid, any, "checks of users on the admin socket")	\
	x(all, clock_gettime, any, "deadlines, where no vDSO has the clock") \
	x(all, gettimeofday, any, "the same")				\
	x(all, clock_nanosleep, any, "short waits")			\
	x(all, nanosleep, any, "the same")				\
	x(kvmm, timer_create, any, "out of a close that hangs")		\
	x(kvmm, timer_settime, any, "the same")				\
	x(kvmm, timer_delete, any, "the same")				\
	x(both, pause, any, "a fault point that died, until it is dead")	\
	x(all, restart_syscall, any, "a wait that was interrupted by a stop") \
	/* signals and the end */					\
	x(all, rt_sigreturn, any, "the end of a signal handler")	\
	x(all, rt_sigprocmask, any, "abort")				\
	x(all, tgkill, self, "abort, and the end after a forbidden call") \
	x(both, kill, self, "fault points that die")			\
	x(kvmm, pidfd_open, any, "a client, by number where the kernel has no SO_PEERPIDFD") \
	x(kvmm, pidfd_send_signal, sigkill, "end a client that keeps memory") \
	x(all, exit, any, "the end of a thread")			\
	x(all, exit_group, any, "the end")				\
	/* descriptors */						\
	x(all, read, any, "eventfds, signals, files of /proc and /sys") \
	x(all, write, any, "eventfds, the log")			\
	x(both, pread64, any, "blocks; transfers of the engine without io_uring; superblocks") \
	x(both, pwrite64, any, "the same")				\
	x(all, close, any, "descriptors that are not needed any more")				\
	x(both, fcntl, any, "seals, O_DIRECT, duplicates")		\
	x(both, flock, any, "the lock of an area")			\
	x(both, lseek, any, "files of /proc, read again")		\
	x(both, fdatasync, any, "a superblock")				\
	x(all, poll, any, "waiting; room for the log")			\
	x(all, ppoll, any, "the same, where the machine has no poll")	\
	x(kvmm, epoll_wait, any, "the control thread and the mm thread wait") \
	x(kvmm, epoll_pwait, any, "the same, where the machine has no epoll_wait") \
	x(kvmm, epoll_ctl, any, "clients come and go")			\
	x(kvmm, eventfd2, any, "doorbells of clients")			\
	x(swapd, ioctl, blksize, "an area on a block device")		\
	x(swapd, io_uring_enter, any, "transfers, on the ring that hold made, which takes no others") \
	x(swapd, io_uring_register, any, "areas come and go")		\
	/* names */							\
	x(both, openat, rdonly, "files of /proc and /sys")		\
	x(both, open, rdonly, "the same, where libc calls it")		\
	x(both, newfstatat, any, "the same; which user a process has")	\
	x(both, fstat, any, "the type of a descriptor")			\
	x(both, stat, any, "the same as newfstatat, in older libc")	\
	x(both, lstat, any, "the same")					\
	x(both, statx, any, "the same, in newer libc")			\
	x(both, fstatfs, any, "free space on the disk of an area") \
	x(both, readlink, any, "the name of an area, for people")	\
	x(both, readlinkat, any, "the same, where the machine has no readlink") \
	x(swapd, access, any, "partitions of a block device")		\
	x(swapd, faccessat, any, "the same, where the machine has no access") \
	x(swapd, getdents64, any, "the same")				\
	x(both, sysinfo, any, "memory of the machine")			\
	x(kvmm, unlink, any, "its sockets and lock at the end")		\
	x(kvmm, unlinkat, any, "the same, where the machine has no unlink") \
	/* sockets, all made before */				\
	x(kvmm, listen, any, "from then on there are clients")		\
	x(kvmm, accept4, any, "clients and operators connect")		\
	x(kvmm, accept, any, "the same, in the thread that closes")	\
	x(all, recvfrom, any, "requests and answers")			\
	x(both, recvmsg, any, "the same; areas come with their descriptor") \
	x(all, sendto, any, "the same")				\
	x(both, sendmsg, any, "extents go out to their clients")	\
	x(kvmm, shutdown, any, "a connection that is over")		\
	x(kvmm, getsockopt, any, "the user and process that connected")			\
	x(kvmm, setsockopt, any, "buffers and deadlines of a connection") \
	x(kvmm, getsockname, any, "which socket it is")			\
	x(kvmm, getrandom, any, "secrets of a tenant, for its hashes")	\
	x(proc, socket, unix, "to the view socket")			\
	x(proc, connect, any, "the same")				\
	x(proc, setsockopt, any, "how long it waits there")		\
	x(proc, writev, any, "answers to the kernel's FUSE")		\
	x(http, accept4, any, "readers of the metrics connect")		\
	x(http, shutdown, any, "an answer is whole")			\
	x(events, getpeername, any, "ZeroMQ: the subscriber that connected") \
	/* only beside a CUDA driver; the needs of a real one were not measured */ \
	x(cuda, ioctl, any, "the driver's devices")			\
	x(cuda, openat, any, "the same, as far as Landlock lets it")	\
	x(cuda, open, any, "the same")					\
	x(cuda, clone, any, "threads of the driver")			\
	x(cuda, clone3, any, "the same")				\
	x(cuda, sched_setaffinity, any, "the same")			\
	x(cuda, mlock, any, "memory that the device reads")		\
	x(cuda, mincore, any, "the same")				\
	x(cuda, get_mempolicy, any, "the same")				\
	x(cuda, set_mempolicy, any, "the same")				\
	x(cuda, mbind, any, "the same")					\
	x(cuda, pipe2, any, "between threads of the driver")		\
	x(cuda, uname, any, "which kernel this is")			\
	x(cuda, access, any, "files of the driver")			\
	x(cuda, faccessat, any, "the same, where the machine has no access") \
	x(cuda, getdents64, any, "memory nodes and processors in /sys")	\
	x(swapd, getrandom, any, "the uuid of an area")

enum sandbox_rule {
#define x(name, text) SANDBOX_RULE_##name,
	SANDBOX_RULES(x)
#undef x
	NR_SANDBOX_RULES
};

/* --sandbox, in the order of its words. */
enum sandbox_mode {
	SANDBOX_ON,
	SANDBOX_LOG,
	SANDBOX_OFF,
};
#define SANDBOX_WORDS	"on|log|off"

struct sandbox_call {
	u32			who;
	const char		*name;
	enum sandbox_rule	rule;
	const char		*why;
};

struct sandbox_cap {
	const char	*name;
	u32		nr;
	u32		keeps;
	u32		starts;
	const char	*why;
};

extern const struct sandbox_call sandbox_calls[];
extern const u32 sandbox_nr_calls;
extern const struct sandbox_cap sandbox_caps[];
extern const u32 sandbox_nr_caps;
extern const char * const sandbox_rule_text[];

/**
 * struct sandbox - the rights of a program; the caller fills in the first block
 * @who:     one of SANDBOX_hold, _kvmm, _swapd, _proc; kvmm perhaps with
 *           _cuda and _events, proc with _http
 * @devices: the files of a GPU can be opened
 * @mode:    enum sandbox_mode; sandbox_prepare() may turn it off
 * @user:    name, or UID[:GID]; NULL: @dflt if there is one
 * @dflt:    name of the dedicated user; NULL: the user stays
 * @unlinks: directory in which it must be able to remove files; NULL: none
 * @hindered: reason why the sandbox is off though it was asked for, or NULL
 * @uid, @gid: to change to, if @change
 * @name:    of the user, if it has one: for its other groups
 * @root:    it began as root and gave its rights up
 * @landlock: ABI of the Landlock in force, 0: none
 * @text:    the rights in force, for the log
 */
struct sandbox {
	u32		who;
	u32		mode;
	const char	*user;
	const char	*dflt;
	const char	*unlinks;
	bool		devices;

	const char	*hindered;
	bool		change;
	bool		root;
	int		landlock;
	uid_t		uid;
	gid_t		gid;
	char		name[64];
	char		text[256];
};

/**
 * sandbox_prepare() - decide on the rights, change nothing
 *
 * Context: before there are threads: it forks, see filter.c.
 * Return: 0; -EINVAL: @user does not exist or cannot be used; another negative
 * errno: there is no filter.  The reason was logged.
 */
int __must_check sandbox_prepare(struct sandbox *sb);

/**
 * sandbox_drop() - become the user, give capabilities up, no new privileges,
 * Landlock
 *
 * Context: rights belong to threads: the calling one, and those that it will
 * start.
 * Return: 0 or a negative errno, which was logged.
 */
int __must_check sandbox_drop(struct sandbox *sb);

/**
 * sandbox_filter() - permit only the calls of the list from now on, in all threads
 *
 * A kernel without such a filter is logged, and is no failure.
 * Return: 0 or a negative errno, which was logged.
 */
int __must_check sandbox_filter(struct sandbox *sb);

/**
 * sandbox_shed() - change to a user, without capabilities and ways to get any
 * @user: as in struct sandbox
 * @dflt: the same
 *
 * Context: a child of hold, before it executes a program that is not trusted yet.
 * Return: 0 or a negative errno, which was logged.
 */
int __must_check sandbox_shed(const char *user, const char *dflt);

/* ---- the parts, for sandbox.c and for tests ---- */

/* Make all permitted capabilities effective. */
int __must_check sandbox_raise_caps(void);

/* Fill in the user to change to.  Return: 0, or -EINVAL after a log line. */
int __must_check sandbox_find_user(struct sandbox *sb);
/* Change to that user, with its groups, for good. */
int __must_check sandbox_change_user(const struct sandbox *sb);
/* Set the bounding set: capabilities that the processes @gives start with; 0: none. */
int __must_check sandbox_keep_bounds(u32 gives);
/* Keep the capabilities of a process; hold also permits those that @gives start with. */
int __must_check sandbox_keep_caps(u32 who, u32 gives);
/*
 * @unlinks: descriptor of the directory in which files can be removed, or -1.
 * @devices: the files of a GPU can be opened for reading and writing
 * Return: ABI that holds now, 0 when there is none, or a negative errno.
 */
int sandbox_landlock(int unlinks, bool signals, bool devices);
/*
 * Make the filter, in a child; nothing changes.  Before there are threads.
 * sandbox_install() will report a kernel without such filters.  Return: 0 or a
 * negative errno.
 */
int __must_check sandbox_compile(u32 who, bool only_log);
/*
 * Install the filter, for every thread.  Return: 0, or a negative errno: this
 * kernel or this place has no filter.
 */
int __must_check sandbox_install(bool only_log);

#endif /* KVMM_SANDBOX_H */
