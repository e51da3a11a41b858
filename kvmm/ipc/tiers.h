/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tiers.h - the lower tiers as the daemon's shell sees them
 *
 *   copier.c	 copies of blocks			mm and copier thread
 *   copier_many.c many at once, by the device		copier thread
 *   swap.c	 requests to swapd			mm thread
 *   swap_busy.c how long areas were busy		mm thread
 *   swap_link.c talk with kvmm-hold and swapd		control thread
 *   swap_area.c areas come and go			control thread
 *   swap_area_time.c what happens to them after a while	control thread
 *   swap_area_fail.c what happens when they fail	control thread
 *
 * The control thread changes what belongs to the mm thread by mm_call() only.
 */
#ifndef KVMM_IPC_TIERS_H
#define KVMM_IPC_TIERS_H

#include <pthread.h>
#include <semaphore.h>

#include <kvmm/ring.h>
#include <kvmm/swapd.h>

#include "kvmm/core/core.h"
#include "kvmm/dev/hostpool.h"
#include "kvmm/ipc/base/queue.h"
#include "kvmm/proc/proc.h"

struct daemon;
struct admin;

/* ---- copier ---- */

struct copy_done {
	u64	id;
	s32	status;
	u32	resv;
};

/* What it copied: the thread's; others read it. */
struct copy_counts {
#define x(name, text) u64 name;
	PROC_COPIER_COUNTERS(x)
#undef x
};

/**
 * struct copier - the thread that moves blocks of one device
 * @todo:   struct core_copy, mm to copier
 * @done:   struct copy_done, copier to mm
 * @since:  when the copy under way began, or 0
 * @warned: the control thread told of the copy that began then
 * @count:  what was copied
 */
struct copier {
	struct queue	todo;
	struct queue	done;
	sem_t		bell;
	u32		stop;
	u64		since;
	u64		warned;
	pthread_t	thread;
	struct copy_counts count;
};

/* ---- requests to swapd ---- */

#define SWAP_ENTRIES	1024u	/* unfinished requests at most */
#define SWAP_TRIES	8	/* deaths of swapd that a request lives through */
#define SWAP_CAREFUL	2	/* after so many it goes alone */

enum swap_io_state {
	SWAP_IO_FREE,
	SWAP_IO_ISSUED,		/* swapd has it */
	SWAP_IO_ORPHAN,		/* that swapd is dead; its transfer may go on */
	SWAP_IO_AGAIN,		/* nobody has it; for the next swapd */
};

/**
 * struct swap_io - one unfinished request; its place is the tag of its id
 * @id:         under which swapd knows it
 * @carrier:    of an orphan: its transfer; @nr 0: it is in none
 * @generation: of that swapd
 * @next:       free list, or list of those to be given again
 */
struct swap_io {
	struct core_io	io;
	u64		id;
	struct swapd_carrier carrier;
	u32		generation;
	u32		state;
	u32		tries;
	u32		next;
	u64		issued;		/* last, ns */
};

/* What happened to requests; the mm thread's. */
struct swap_counts {
#define x(name, text) u64 name;
	PROC_SWAP_COUNTERS(x)
#undef x
};

/**
 * struct swap_mm - the mm thread's half
 * @ctl:        the shared memory, NULL: there is no swap
 * @req:        producing end of the requests
 * @cpl:        consuming end of the completions
 * @req_bell:   wakes swapd
 * @cpl_bell:   wakes the mm thread
 * @io:         SWAP_ENTRIES
 * @free:       first free one
 * @again:      first and last to be given again
 * @nr_open:    not free
 * @nr_orphans: of these, SWAP_IO_ORPHAN
 * @nr_issued:  of these, SWAP_IO_ISSUED
 * @suspect:    one of the issued met SWAP_CAREFUL deaths: it is the only one
 * @serial:     of the last request
 * @backlog:    struct core_io that wait for a free entry or for swapd
 * @generation: of the swapd whose rings these are
 * @joined:     the rings are in use
 * @up:         its areas are there: it takes requests
 * @works:      last generation that did a request
 * @gone:       there is no swapd and will be none
 * @broken:     it forged an index
 * @stalled:    areas of the core that are stalled, a bit each
 * @failed:     rises when requests failed
 * @area:       by the core's index; @index and @off as swapd counts; @nr of its
 *              requests were issued and are not over, since @since there is
 *              one; before that there was for @busy_ns
 */
struct swap_mm {
	struct swapd_ctl	*ctl;
	struct swapd_req	*reqs;
	struct swapd_cpl	*cpls;
	struct swapd_carrier	*carriers;
	struct ring_prod	req;
	struct ring_cons	cpl;
	int			req_bell;
	int			cpl_bell;
	struct swap_io		*io;
	u32			free;
	u32			again[2];
	u32			nr_open;
	u32			nr_orphans;
	u32			nr_issued;
	bool			suspect;
	u64			serial;
	struct queue		backlog;
	u32			generation;
	bool			joined;
	bool			up;
	bool			gone;
	u32			broken;
	u32			stalled;
	u32			failed;
	u32			works;
	struct swap_counts	count;
	struct {
		bool	live;
		u32	index;
		u64	off;
		u32	nr;
		u64	since;
		u64	busy_ns;
	} area[CORE_MAX_AREAS];
};

/* Something that hold tells of a dead swapd. */
struct swap_tale {
	u32	kind;
	u32	generation;
	s32	res;
	u64	id;
};

#define SWAP_TALES	64	/* told to the mm thread at once */

/* ---- areas ---- */

enum swap_area_state {
	AREA_FREE,
	AREA_ADDING,		/* swapd judges it, or will */
	AREA_LIVE,
	AREA_DRAINING,		/* the core empties it */
	AREA_REMOVING,		/* swapd lets go of it */
};

/**
 * struct swap_area - a file or device; its place is swapd's index
 * @known:  the swapd that runs has it, or is being asked to
 * @awaited: that swapd gets no requests before it has answered for it
 * @lost:   swapd does not take it any more
 * @failed: too many requests failed: it is not read any more
 * @stalled: it was told that requests to it are overdue
 * @late:   it was told that no swapd comes
 * @given_up: what is left in it is not waited for any more
 * @core:   the core's index, from AREA_LIVE on
 * @tries:  deaths of swapd while it was judged
 * @waiter: who asked, or NULL
 * @until:  when it takes too long, and @waiter is told; a swapd that judges
 *	    the file gets 60 s more
 * @tell:   when @waiter is told how far it is
 * @told:   when that was last, and @left: what was left then
 * @asked:  size that the operator asked for, 0: as it is
 * @path:   as the operator wrote it, absolute
 */
struct swap_area {
	u32		state;
	bool		known;
	bool		awaited;
	bool		lost;
	bool		failed;
	bool		stalled;
	bool		late;
	bool		given_up;
	bool		device;
	u32		core;
	u32		tries;
	int		fd;
	s32		priority;
	u32		flags;
	u64		bytes;
	u64		dev;
	u64		ino;
	u64		usable_off;
	u64		usable_bytes;
	u8		uuid[SWAPD_UUID_LEN];
	struct admin	*waiter;
	u64		until;
	u64		tell;
	u64		told;
	u64		left;
	u64		asked;
	char		path[4096];
};

/**
 * struct swap_link - the control thread's half
 * @wanted:     there is a host pool and room for areas
 * @run:        generation of the HOLD_SWAP_RUN that was put last
 * @generation: of the swapd that runs, 0: none
 * @works:      last generation of which hold was told that it works
 * @pid:        its process
 * @hello:      it said so
 * @up:         it takes requests
 * @waiting:    areas that it must answer before it does
 * @failed:     swap_mm.failed when areas were judged last
 * @ended:      it ended by itself: @status says how
 * @engine:     enum swapd_engine, of the last HELLO
 * @registered: that HELLO said SWAPD_HELLO_REGISTERED
 */
struct swap_link {
	bool			wanted;
	bool			hello;
	bool			up;
	bool			ended;
	u32			run;
	u32			generation;
	u32			works;
	u32			waiting;
	u32			failed;
	pid_t			pid;
	int			status;
	int			shm;
	u32			engine;
	bool			registered;
	struct swap_area	area[CORE_MAX_AREAS];
};

/* ---- copier.c ---- */

u64 copier_bytes(const struct daemon *d);
int __must_check copier_init(struct daemon *d);
int __must_check copier_judge(const struct daemon *d,
			      const struct core_copy *cp);
void copier_clear_tail(const struct daemon *d, const struct core_copy *cp);
int __must_check copier_fault(const struct core_copy *cp);
void copier_finish(struct daemon *d, const struct core_copy *cp, u64 ns,
		   int status);
void copier_many(struct daemon *d);
int __must_check copier_start(struct daemon *d);
bool copier_stop(struct daemon *d);
void copier_exit(struct daemon *d);
void copier_push(struct daemon *d, const struct core_copy *cp);
bool copier_collect(struct daemon *d, u64 now);
void copier_get_counts(const struct daemon *d, struct copy_counts *count);
void copier_watchdog(struct daemon *d, u64 now);

static inline bool copier_waits(const struct copier *c)
{
	return c->done.slot && !queue_empty(&c->done);
}

/* ---- swap.c: mm thread, but for init and exit ---- */

u64 swap_bytes(const struct daemon *d);
int __must_check swap_init(struct daemon *d, int *shm);
void swap_exit(struct daemon *d);
void swap_push(struct daemon *d, const struct core_io *io);
bool swap_collect(struct daemon *d, u64 now);
bool swap_pump(struct daemon *d, u64 now);
bool swap_waits(const struct daemon *d);
void swap_note_stalls(struct daemon *d);
void swap_join(struct daemon *d, u32 generation);
void swap_leave(struct daemon *d, u64 now, u32 generation);
void swap_hear(struct daemon *d, u64 now, const struct swap_tale *tale);

/* ---- swap_busy.c: mm thread ---- */

void busy_begin(struct swap_mm *sw, u32 area, u64 now);
void busy_end(struct swap_mm *sw, u32 area, u64 now);
u64 busy_ns(const struct swap_mm *sw, u32 area, u64 now);

/* ---- swap_link.c ---- */

int __must_check link_start(struct daemon *d);
void link_stop(struct daemon *d);
void link_run(struct daemon *d);
void link_area_answered(struct daemon *d);
void link_log(struct daemon *d);
int __must_check link_send(struct daemon *d, const struct swapd_msg *m, int fd);
void link_check(struct daemon *d);
int link_get_info(void *arg, struct proc_swap_info *info);

/* ---- swap_area.c ---- */

void area_on(struct daemon *d, struct admin *adm, int fd, u64 bytes,
	     s32 priority, bool force, const char *path);
void area_off(struct daemon *d, struct admin *adm, u64 timeout_ms, u64 dev,
	      u64 ino, const char *path);
void area_adopt(struct daemon *d, u32 index, int fd, u64 value);
void area_resume(struct daemon *d, u32 index, int fd);
u32 area_offer_all(struct daemon *d);
void area_answer(struct daemon *d, const struct swapd_answer *a);
void area_link_down(struct daemon *d);

/* for swap_area_time.c */
#define AREA_JOIN_NS	(10 * 1000000000ull)	/* for swapd to come */
#define AREA_TELL_NS	1000000000ull		/* to who waits, how far it is */

__printf(4, 5)
void area_tell(struct daemon *d, struct swap_area *a, int err,
	       const char *fmt, ...);
int __must_check area_empty(struct daemon *d, struct swap_area *a, u64 *left);
void area_forget(struct daemon *d, struct swap_area *a);
void area_remove(struct daemon *d, struct swap_area *a);
void area_free(struct daemon *d, struct swap_area *a);

/* for swap_area_fail.c */
void area_drain_begin(struct daemon *d, struct swap_area *a, u64 limit_ns);

/* ---- swap_area_fail.c ---- */

void area_judge_all(struct daemon *d);

/* ---- swap_area_time.c ---- */

void area_forget_waiter(struct daemon *d, const struct admin *adm);
void area_tell_stalls(struct daemon *d);
u64 area_timers(struct daemon *d, u64 now);
void area_exit_all(struct daemon *d);
int area_get_info(void *arg, u32 i, struct proc_swap_area *info);

#endif /* KVMM_IPC_TIERS_H */
