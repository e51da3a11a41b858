/* SPDX-License-Identifier: Apache-2.0 */
/*
 * daemon.h - one swapd, and who of its threads may touch what
 *
 *	main thread	the request ring, @pending, the engine's submissions
 *	control thread	the control socket, the states of areas
 *	workers		(engine sync) take from @pending, complete
 *
 * @pending and the states of requests are under @lock; the completion ring is
 * under @cpl_lock.  An area is held by a request from the moment it is taken
 * from @pending until it has ended; see area_get().
 */
#ifndef SWAPD_DAEMON_H
#define SWAPD_DAEMON_H

#include <pthread.h>

#include <kvmm/opts.h>
#include <kvmm/ring.h>
#include <kvmm/swapd.h>

#define SWAPD_OPTIONS(x)						\
	x(uint, generation, "generation", "0", 0, UINT32_MAX, "N",	\
	  "which start this is")					\
	x(uint, ctl_fd, "ctl-fd", "0", 0, INT32_MAX, "FD",		\
	  "shared memory")						\
	x(uint, pool_fd, "pool-fd", "0", 0, INT32_MAX, "FD",		\
	  "host pool")							\
	x(uint, request_fd, "request-fd", "0", 0, INT32_MAX, "FD",	\
	  "eventfd that wakes swapd")					\
	x(uint, completion_fd, "completion-fd", "0", 0, INT32_MAX, "FD", \
	  "eventfd that wakes kvmm")					\
	x(uint, control_fd, "control-fd", "0", 0, INT32_MAX, "FD",	\
	  "control socket")						\
	x(uint, ring_fd, "ring-fd", "0", 0, INT32_MAX, "FD",		\
	  "io_uring made for this start; 0: there is none")		\
	x(uint, params_fd, "params-fd", "0", 0, INT32_MAX, "FD",	\
	  "its struct io_uring_params")					\
	x(choice, engine, "engine", "auto", 0, 0, "auto|uring|sync",	\
	  "io_uring, or threads with pread and pwrite")			\
	x(uint, depth, "depth", "64", 1, SWAPD_DEPTH_MAX, "N",		\
	  "requests given to the kernel at once")			\
	x(uint, threads, "threads", "4", 1, 64, "N",			\
	  "threads of the engine sync")					\
	x(uint, slow_ms, "slow-ms", "1000", 1, 3600000, "N",		\
	  "a request that takes longer is told")			\
	x(flag, plain_crc, "plain-crc", NULL, 0, 0, NULL,		\
	  "sums by tables, as on processors without the instruction")	\
	x(choice, log_level, "log-level", "info", 0, 0,			\
	  "err|warn|info|debug", "what is told on stderr")

struct swapd_options {
#define x OPT_FIELD
	SWAPD_OPTIONS(x)
#undef x
};

enum sd_area_state {
	SD_AREA_FREE,
	SD_AREA_LIVE,
	SD_AREA_DYING,		/* takes nothing new; waits for @inflight */
};

/**
 * struct sd_area - one area
 * @state:     changed by the control thread alone
 * @inflight:  requests that hold it
 * @fd:        for transfers
 * @claim:     exclusive open of a block device, or -1
 * @del:       cookie of the AREA_DEL that waits
 * @usable_off, @usable_bytes: where slots may lie
 * @dev, @ino: of the file, to find it given twice
 * @slow_told: it was said that this area is slow
 * @told:      of what it was said that it happened: bits of counters
 */
struct sd_area {
	u32	state;
	u32	inflight;
	int	fd;
	int	claim;
	u64	del;
	u64	usable_off;
	u64	usable_bytes;
	u64	dev;
	u64	ino;
	bool	slow_told;
	u32	told;
	u8	uuid[SWAPD_UUID_LEN];
};

enum sd_io_state {
	SD_IO_FREE,
	SD_IO_PENDING,
	SD_IO_ISSUED,
	SD_IO_HELD,		/* by the shim */
};

/**
 * struct sd_xfer - what the kernel is given for a request
 * @area_off: that of the request, unless the shim wants another
 * @len:      likewise; 0: no transfer, and its result is 0
 * @kind:     enum shim_kind
 * @throw:    of the shim's dice
 */
struct sd_xfer {
	u64	area_off;
	u32	len;
	u32	kind;
	u64	throw;
};

/**
 * struct sd_io - one unfinished request; its place is the tag of its id
 * @due: the shim holds it back until then; 0: it does not
 */
struct sd_io {
	struct swapd_req	req;
	struct sd_xfer		xfer;
	u64			issued_ns;
	u64			due;
	u32			state;
	u32			next;		/* in @pending */
	bool			slow;
};

struct sd_queue {
	u32	first;
	u32	last;
	u32	nr;
};

struct swapd;

/**
 * struct sd_engine - how transfers are made
 * @start:     0 or a negative errno with the reason in @text
 * @area_add:  make the file of a new area usable; 0 or a negative errno
 * @area_del:  nothing of it is in flight
 * @kick:      requests were put into @pending; give some to the kernel
 * @reap:      finish what the kernel finished; returns how many
 * @poll_fd:   readable when reap() would find something; -1: never
 */
struct sd_engine {
	const char	*name;
	u32		id;
	int		(*start)(struct swapd *s, char *text, size_t len);
	int		(*area_add)(struct swapd *s, u32 area, int fd);
	void		(*area_del)(struct swapd *s, u32 area);
	u32		(*kick)(struct swapd *s);
	u32		(*reap)(struct swapd *s);
	int		(*poll_fd)(struct swapd *s);
};

extern const struct sd_engine engine_uring;
extern const struct sd_engine engine_sync;

#define SD_NIL	UINT32_MAX

struct swapd {
	struct swapd_options	opt;
	struct swapd_ctl	*ctl;
	struct swapd_req	*reqs;
	struct swapd_cpl	*cpls;
	u32			entries;
	u8			*pool;
	u64			pool_bytes;
	const struct sd_engine	*engine;
	struct ring_cons	req;
	struct ring_prod	cpl;
	struct sd_area		area[SWAPD_AREAS];

	pthread_mutex_t		lock;
	pthread_cond_t		more;		/* @pending is not empty */
	struct sd_queue		pending[2];	/* reads, writes */
	u32			reads_in_row;
	u32			inflight;	/* given to the kernel */
	u32			unfinished;	/* taken and not completed */
	u32			held;		/* of these, by the shim */
	struct sd_io		*io;		/* @entries */

	pthread_mutex_t		cpl_lock;
};

/* ---- io.c ---- */

/* Tables and rings of @entries.  Return: 0 or a negative errno. */
int __must_check io_init(struct swapd *s);

/* Both ends at 0, as kvmm left them before START. */
void io_rings_begin(struct swapd *s);

/* Take requests from the ring; those that are wrong are completed at once.
 * Return: how many were taken.
 */
u32 io_take(struct swapd *s);

/**
 * io_next() - the next request to give to the kernel
 *
 * It holds its area; a WRITE's header and sums are made.  What names no live
 * area is completed on the way.
 *
 * Return: NULL when nothing is pending.
 */
struct sd_io *io_next(struct swapd *s);

/* The kernel is done with @nr transfers; io_end() of each follows. */
void io_landed(struct swapd *s, u32 nr);

/**
 * io_end() - a transfer has ended: judge it, count it, complete it
 * @res: bytes, or a negative errno
 */
void io_end(struct swapd *s, struct sd_io *io, s64 res);

/* Requests whose time has come are pending again. */
void io_look_held(struct swapd *s);

/* Look for requests that take too long. */
void io_look_slow(struct swapd *s);

void io_count(struct swapd *s, enum swapd_counter c, u64 n);
u64 sd_now_ns(void);
void __noreturn sd_broken(const char *what);

/* ---- area.c ---- */

/**
 * area_open() - judge a file, make it an area
 * @fd:  taken over on success
 * @ans: status, text, offsets and uuid are filled
 *
 * The area is not live yet.
 */
void area_open(struct swapd *s, const struct swapd_msg *msg, int fd,
	       struct swapd_answer *ans);
void area_live(struct swapd *s, u32 area);
void area_close(struct sd_area *a);

/* Hold an area for a request: false when it is not live. */
bool area_get(struct swapd *s, u32 area);
void area_put(struct swapd *s, u32 area);

/* ---- control.c ---- */

int __must_check control_hello(struct swapd *s, const char *text);

/* Wait for START.  Return: 0, or -EPIPE: kvmm is gone. */
int __must_check control_wait_start(struct swapd *s);

/* Thread: serve areas; ends the process when kvmm hangs up. */
int __must_check control_start(struct swapd *s);

#endif /* SWAPD_DAEMON_H */
