/* SPDX-License-Identifier: Apache-2.0 */
/*
 * daemon.h - state of swapd, and the threads that may touch each part
 *
 *	main thread	the request ring, @lane, the engine's submissions
 *	control thread	the control socket, the states of areas
 *	workers		(engine sync) take from @lane, complete
 *
 * @lane and the states of requests are under @lock; the completion ring is
 * under @cpl_lock.  A request holds its area from the moment it is taken from
 * its lane until it has ended; see area_get().  The thread that has a transfer
 * owns its requests.
 */
#ifndef SWAPD_DAEMON_H
#define SWAPD_DAEMON_H

#include <pthread.h>

#include <kvmm/ring.h>
#include <kvmm/swapd_options.h>

#include "swapd/depth.h"

enum sd_area_state {
	SD_AREA_FREE,
	SD_AREA_LIVE,
	SD_AREA_DYING,		/* accepts no request; waits for @inflight */
};

/**
 * struct sd_area - one area
 * @state:     changed by the control thread alone
 * @inflight:  requests that hold the area
 * @fd:        for transfers
 * @del:       cookie of the waiting AREA_DEL
 * @usable_off, @usable_bytes: where slots may lie
 * @dev, @ino: of the file, to refuse it a second time
 * @slow_told: a slow request of this area was logged
 * @told:      errors that were logged for this area: bits of counters
 */
struct sd_area {
	u32	state;
	u32	inflight;
	int	fd;
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
 * struct sd_xfer - the transfer of a request, if it shares none
 * @area_off: that of the request, unless the shim wants another
 * @len:      likewise; 0: no transfer, and its result is 0
 * @kind:     enum shim_kind
 * @throw:    number of the request for the shim's dice
 */
struct sd_xfer {
	u64	area_off;
	u32	len;
	u32	kind;
	u64	throw;
};

/**
 * struct sd_transfer - one transfer of the kernel
 * @host_off: of the first request
 * @area_off: where the kernel transfers
 * @len:      bytes to transfer; 0: no transfer, and the result is 0
 * @nr:       requests: neighbours in the area and on the host, in order
 * @last:     tag of the last one
 * @bytes:    of all requests
 * @issued_ns: time of issue
 * @fails:    the shim makes it fail, although the kernel transfers all of @len
 */
struct sd_transfer {
	u64	issued_ns;
	u64	host_off;
	u64	area_off;
	u32	len;
	u32	nr;
	u32	last;
	u32	bytes;
	bool	fails;
};

/**
 * struct sd_io - one unfinished request; its index is the tag of its id
 * @go:    valid only in the first request of a transfer
 * @due:   time until which the shim holds the request; 0: it does not
 * @mate:  the next request of its transfer; SD_NIL: it is the last
 * @alone: its shared transfer failed: it never shares one again
 */
struct sd_io {
	struct swapd_req	req;
	struct sd_xfer		xfer;
	struct sd_transfer	go;
	u64			issued_ns;
	u64			due;
	u32			state;
	u32			next;		/* in its lane */
	u32			mate;
	bool			alone;
	bool			slow;
};

struct sd_queue {
	u32	first;
	u32	last;
	u32	nr;
};

/**
 * struct sd_lane - requests that wait for one area
 * @pending:     reads, writes
 * @reads_in_row: turns of reads since the last write
 * @depth:        of the area's transfers in the kernel
 */
struct sd_lane {
	struct sd_queue	pending[2];
	u32		reads_in_row;
	struct sd_depth	depth;
};

struct swapd;

/**
 * struct sd_engine - how transfers are made
 * @start:     0 or a negative errno with the reason in @text
 * @area_add:  make the file of a new area usable; 0 or a negative errno
 * @area_del:  forget an area that has no transfer in flight
 * @kick:      requests were put into lanes; give some to the kernel
 * @reap:      end the transfers that the kernel finished; returns their number
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
	struct swapd_carrier	*carriers;
	u32			entries;
	u8			*pool;
	u64			pool_bytes;
	const struct sd_engine	*engine;
	u32			hello;		/* flags of HELLO */
	struct ring_cons	req;
	struct ring_prod	cpl;
	struct sd_area		area[SWAPD_AREAS];

	pthread_mutex_t		lock;
	pthread_cond_t		more;		/* a lane has requests */
	struct sd_lane		lane[SWAPD_AREAS];
	u32			ready;		/* lanes with requests, a bit each */
	u32			turn;		/* the lane to look at first */
	u32			inflight;	/* transfers in the kernel */
	u32			unfinished;	/* requests taken, not completed */
	u32			held;		/* of these, held by the shim */
	struct sd_io		*io;		/* @entries */

	pthread_mutex_t		cpl_lock;
};

/* ---- io.c ---- */

/* Tables and rings of @entries.  Return: 0 or a negative errno. */
int __must_check io_init(struct swapd *s);

/* Begin with both indices of each ring at 0, as kvmm set them before START. */
void io_rings_begin(struct swapd *s);

/* Take requests from the ring; complete invalid ones at once.
 * Return: number of requests taken.
 */
u32 io_take(struct swapd *s);

/**
 * io_next() - the next transfer to give to the kernel
 * @wait: wait until there is one
 *
 * Requests of the transfer hold their area; headers and sums of WRITEs are made.
 * Requests that name no live area are completed on the way.
 *
 * Return: the first request, with the transfer in @go; NULL: there is none now.
 */
struct sd_io *io_next(struct swapd *s, bool wait);

/* The kernel is done with a transfer; transfer_end() follows. */
void io_landed(struct swapd *s, const struct sd_io *lead);

/**
 * transfer_end() - a transfer has ended: judge, count, complete its requests
 * @lead: the first of them
 * @res:  bytes, or a negative errno
 *
 * Requests that a shared transfer did not do are pending again, each alone.
 */
void transfer_end(struct swapd *s, struct sd_io *lead, s64 res);

/* Look for requests that take too long. */
void io_look_slow(struct swapd *s);

void io_count(struct swapd *s, enum swapd_counter c, u64 n);
void __noreturn sd_broken(const char *what);

/* ---- pick.c ---- */

void pick_init(struct swapd *s);

/* Set up the depth of an area that becomes live.  Context: under the lock. */
void pick_area(struct swapd *s, u32 area);

/* Queue a request in its lane; with @first before all others.
 * Context: under the lock.
 */
void pick_add(struct swapd *s, u32 tag, bool first);

/**
 * pick_next() - the oldest request of the next lane, and its neighbours
 * @wait: wait until there is one
 *
 * Return: the first request of a transfer, all of them SD_IO_ISSUED, or NULL.
 */
struct sd_io *pick_next(struct swapd *s, bool wait);

/* The kernel is done with a transfer. */
void pick_landed(struct swapd *s, const struct sd_io *lead);

/* Queue a request again, before all others; it never shares a transfer again. */
void pick_alone(struct swapd *s, struct sd_io *io);

/* Queue again the requests that the shim held until now. */
void pick_look_held(struct swapd *s);

/* The name that the kernel's completion carries: see struct swapd_carrier. */
u64 transfer_name(const struct sd_io *lead);

/* Note the requests of a transfer as carriers, before the kernel gets it. */
void transfer_carry(struct swapd *s, const struct sd_io *lead);

/* The request that follows in its transfer, or NULL. */
static inline struct sd_io *sd_mate(struct swapd *s, const struct sd_io *io)
{
	return io->mate == SD_NIL ? NULL : &s->io[io->mate];
}

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
