/* SPDX-License-Identifier: Apache-2.0 */
/*
 * swap.h - swapd and the swap areas, as the control thread sees them
 */
#ifndef KVMM_IPC_SWAP_H
#define KVMM_IPC_SWAP_H

#include <kvmm/swapd.h>

#include "kvmm/core/core.h"
#include "kvmm/proc/proc.h"

struct daemon;
struct admin;

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

#endif /* KVMM_IPC_SWAP_H */
