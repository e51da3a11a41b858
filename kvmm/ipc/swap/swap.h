/* SPDX-License-Identifier: Apache-2.0 */
/*
 * swap.h - swapd and the swap areas, as the control thread sees them
 *
 *	link.c		messages to swapd, and when it takes requests
 *	area.c		one area: in the core, in swapd, its end
 *	request.c	an operator adds or removes an area; areas of the last daemon
 *	answer.c	swapd answers for an area, or dies
 *	fail.c		areas with a failing disk
 *	time.c		what happens to areas after a while
 *	hear.c		messages of swapd, and of kvmm-hold about it
 *	info.c		for the files of operators
 *
 * Context: control thread, but for functions handed to mm_call().
 */
#ifndef KVMM_IPC_SWAP_H
#define KVMM_IPC_SWAP_H

#include <kvmm/swapd.h>

#include "kvmm/ipc/conn/conn.h"
#include "kvmm/ipc/deposit/deposit.h"
#include "kvmm/ipc/mm/mm.h"
#include "kvmm/ipc/tiers/tiers.h"

#define SWAP_TALES	64	/* told to the mm thread at once */
#define AREA_JOIN_NS	(10 * NSEC_PER_SEC)	/* for swapd to come */
#define AREA_TELL_NS	NSEC_PER_SEC	/* between two lines of progress */

enum swap_area_state {
	AREA_FREE,
	AREA_ADDING,		/* swapd judges it, or will */
	AREA_LIVE,
	AREA_DRAINING,		/* the core empties it */
	AREA_REMOVING,		/* swapd closes it */
};

/**
 * struct swap_area - a file or device; its place is swapd's index
 * @known:    the swapd that runs has it, or is being asked to
 * @awaited:  that swapd gets no requests before it has answered for it
 * @lost:     swapd does not take it any more
 * @failed:   too many requests failed: it is not read any more
 * @stalled:  it was logged that requests to it are overdue
 * @late:     it was logged that no swapd comes
 * @deleted:  its file has no name any more, which was logged
 * @given_up: the rest of its content is not waited for any more
 * @core:     the core's index, from AREA_LIVE on
 * @tries:    deaths of swapd while it was judged
 * @waiter:   the operator that asked, or NULL
 * @until:    when it takes too long, and @waiter is told; a swapd that judges
 *	      the file gets 60 s more
 * @tell:     when @waiter is told how far it is
 * @told:     when that was last, and @left: bytes that were left then
 * @asked:    size that the operator asked for, 0: as it is
 * @path:     as the operator wrote it, absolute
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
	bool		deleted;
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
 * struct swap_link - the control thread's half of swap
 * @swap:        the mm thread's half
 * @sock:        control socket of the swapd that runs
 * @wanted:      there is a host pool and room for areas
 * @run:         generation of the HOLD_SWAP_RUN that was put last
 * @generation:  of the swapd that runs, 0: none
 * @works:       last generation of which hold was told that it works
 * @pid:         its process
 * @hello:       it said so
 * @up:          it takes requests
 * @waiting:     areas that it must answer for before it does
 * @failed:      swap_mm.failed when areas were judged last
 * @ended:       it ended by itself: @status says how
 * @log_set:     an operator set the log level while this daemon runs
 * @engine:      enum swapd_engine, of the last HELLO
 * @registered:  that HELLO said SWAPD_HELLO_REGISTERED
 * @drain_next:  when areas that are draining are looked at again
 * @drain_pause: from there to the next look
 * @tales:       messages of hold that the mm thread is yet to hear
 */
struct swap_link {
	struct setup		*setup;
	struct loop		*loop;
	struct deposit		*deposit;
	struct copier		*copier;
	struct swap_mm		*swap;
	struct mm		*mm;
	struct watch		sock;
	bool			wanted;
	bool			hello;
	bool			up;
	bool			ended;
	bool			log_set;
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
	u64			look_next;
	u64			drain_next;
	u64			drain_pause;
	struct swap_tale	tales[SWAP_TALES];
	u32			nr_tales;
	struct swap_area	area[CORE_MAX_AREAS];
};

/* link.c */
void link_run(struct swap_link *l);
int __must_check link_send(struct swap_link *l, const struct swapd_msg *m,
			   int fd);
void link_log(struct swap_link *l);
void link_try_up(struct swap_link *l);
void link_area_answered(struct swap_link *l, struct swap_area *a);

/* area.c */
u32 area_index(const struct swap_link *l, const struct swap_area *a);
int __must_check area_add(struct swap_link *l, struct swap_area *a);
int __must_check area_empty(struct swap_link *l, struct swap_area *a,
			    u64 *left);
void area_forget(struct swap_link *l, struct swap_area *a);
void area_use(struct swap_link *l, struct swap_area *a);
__printf(4, 5)
void area_tell(struct swap_link *l, struct swap_area *a, int err,
	       const char *fmt, ...);
void area_offer(struct swap_link *l, struct swap_area *a);
void area_remove(struct swap_link *l, struct swap_area *a);
void area_free(struct swap_link *l, struct swap_area *a);
void area_drain_begin(struct swap_link *l, struct swap_area *a, u64 limit_ns);

/* request.c */
void area_on(struct swap_link *l, struct admin *adm, int fd, u64 bytes,
	     s32 priority, bool force, const char *path);
void area_off(struct swap_link *l, struct admin *adm, u64 timeout_ms, u64 dev,
	      u64 ino, const char *path);
void area_forget_waiter(struct swap_link *l, const struct admin *adm);
void area_of_last(struct swap_link *l, u32 index);

/* answer.c */
void area_answer(struct swap_link *l, const struct swapd_answer *a);
u32 area_offer_all(struct swap_link *l);
void area_link_down(struct swap_link *l);

/* fail.c */
void area_judge_all(struct swap_link *l);

/* time.c */
void area_tell_stalls(struct swap_link *l);
u64 area_timers(struct swap_link *l, u64 now);
void area_exit_all(struct swap_link *l);

/* hear.c */
void link_told(struct swap_link *l, const struct hold_record *r, int *fd);
void link_told_all(struct swap_link *l);
void link_check(struct swap_link *l);
void link_start(struct swap_link *l);
void link_stop(struct swap_link *l);

/* info.c */
int link_get_info(struct swap_link *l, struct proc_swap_info *info);
int area_get_info(const struct swap_link *l, u32 i,
		  struct proc_swap_area *info);

#endif /* KVMM_IPC_SWAP_H */
