/* SPDX-License-Identifier: Apache-2.0 */
/*
 * internal.h - the window that ranks share, and a rank's view of it
 *
 * The window begins with struct ranks_window.  Behind its slots lie the parts of the two
 * exchanges: first the small ones of ranks_gather(), then the rooms of ranks_share().
 * An exchange has RANKS_PARTS parts a rank, which take turns.  With three of them the part
 * that a rank reads after round n is written again only when all have entered round n + 2.
 */
#ifndef RUNTIME_RANKS_INTERNAL_H
#define RUNTIME_RANKS_INTERNAL_H

#include "runtime/ranks/mpi_plugin.h"
#include "runtime/ranks/ranks.h"

#define RANKS_PARTS	3u
#define RANKS_LINE	64u
#define RANKS_PIECE	(256u << 10)	/* bytes of a message that the window holds */
#define RANKS_GATHER	4096u		/* bytes that one round of a gather gives */
#define RANKS_SLICE_MS	50u		/* a sleep, between looks at the other ranks */
#define RANKS_TEXT	200u

/* Counters of a rank that others wait for.  The first two count rounds of an exchange. */
enum ranks_which {
	RANKS_W_SHARE,
	RANKS_W_GATHER,
	RANKS_W_SENT,		/* pieces of messages in the window: of the leader */
	RANKS_W_TAKEN,		/* pieces that this rank has taken */
	RANKS_W_CLOSED,		/* 1: the rank has left the group */
	RANKS_W_NR,
};

#define RANKS_EXCHANGES	2u

/**
 * struct ranks_word - a counter, in a cache line of its own
 * @count:	a futex word; only its rank raises it
 * @sleepers:	ranks that sleep on @count
 */
struct ranks_word {
	u32	count;
	u32	sleepers;
} __attribute__((aligned(64)));

/**
 * struct ranks_slot - the words of one rank to the others
 * @word:	its counters
 * @waits_for:	1 + the rank that it waits for; 0: it does not wait
 * @beat_ms:	when it last looked while it waited
 * @pid:	in the namespace @pidns
 * @cpus:	CPUs that it may use
 */
struct ranks_slot {
	struct ranks_word	word[RANKS_W_NR];
	u32			waits_for;
	u64			beat_ms;
	u32			pid;
	u64			pidns;
	u64			cpus[16];
} __attribute__((aligned(64)));

enum ranks_reason {
	RANKS_R_NONE,
	RANKS_R_ENDED,
	RANKS_R_LATE,
	RANKS_R_CLOSED,
	RANKS_R_ABORT,
};

/**
 * struct ranks_failed - the first failure of the group
 * @claimed:	1: a rank fills the record
 * @set:	1: the record is complete
 * @told:	1: a rank prints the line
 * @rank:	the rank that failed
 * @reason:	enum ranks_reason
 * @text:	words of ranks_abort()
 */
struct ranks_failed {
	u32	claimed;
	u32	set;
	u32	told;
	u32	rank;
	u32	reason;
	char	text[RANKS_TEXT];
} __attribute__((aligned(64)));

/**
 * struct ranks_piece - the piece of a message that the window holds
 * @total:	bytes of the message
 * @offset:	of the piece in the message
 * @bytes:	of the piece
 */
struct ranks_piece {
	u64	total;
	u64	offset;
	u32	bytes;
	u8	data[RANKS_PIECE] __attribute__((aligned(64)));
} __attribute__((aligned(64)));

struct ranks_window {
	u32			nr;
	u64			room;
	struct ranks_failed	failed;
	struct ranks_piece	piece;
	struct ranks_slot	slot[];
};

/* A window of threads: freed with its last rank. */
struct ranks_home {
	u32	refs;
	u64	bytes;
};

/**
 * struct ranks_exchange - a rank's view of one exchange
 * @parts:	the first part of rank 0
 * @bytes:	of a part, a multiple of RANKS_LINE
 * @round:	completed rounds; it wraps
 * @turn:	which of its parts a rank writes in the next round
 */
struct ranks_exchange {
	u8	*parts;
	u64	bytes;
	u32	round;
	u32	turn;
};

struct ranks {
	struct ranks_window	*w;
	struct ranks_exchange	x[RANKS_EXCHANGES];
	u32			self;
	u32			nr;
	u32			timeout_ms;
	u32			pieces;		/* sent by the leader, or taken */
	u32			spin_ns;
	int			error;		/* the group has failed */
	char			failure[RANKS_TEXT + 80];
	int			pidfd[RANKS_MAX];
	struct ranks_home	*home;		/* of threads */
	const struct kvrt_mpi	*mpi;		/* of processes */
};

/* Bytes of the window of a group. */
u64 ranks_window_bytes(u32 nr, u64 room);

/* Fill the window's first part; one rank does it before the others look. */
void ranks_window_init(struct ranks_window *w, u32 nr, u64 room);

/* A rank's view of the window; it fills the slot of @self. */
struct ranks *ranks_view(struct ranks_window *w, u32 self, u32 timeout_ms) __must_check;

/* All slots are filled: learn of the other ranks. */
void ranks_meet(struct ranks *r);

/* Free the view, and nothing of the window. */
void ranks_view_free(struct ranks *r);

/* One round of an exchange, and the parts of it. */
int ranks_round(struct ranks *r, enum ranks_which x) __must_check;
u8 *ranks_part_next(const struct ranks *r, enum ranks_which x);
const u8 *ranks_part_of(const struct ranks *r, enum ranks_which x, u32 rank);

/* Raise the own counter @which to @count, and wake the ranks that wait for it. */
void ranks_raise(struct ranks *r, enum ranks_which which, u32 count);

/**
 * ranks_await() - wait until counter @which of @rank has reached @count
 *
 * @ms:	the longest wait; reduced by the time it took
 *
 * Return: 0; -ETIME: not within @ms; -ESHUTDOWN: the rank has closed before; another
 * error: the group has failed.
 */
int ranks_await(struct ranks *r, u32 rank, enum ranks_which which, u32 count, u32 *ms)
	__must_check;

/* The same for all other ranks within timeout_ms; any other end is a failure. */
int ranks_await_all(struct ranks *r, enum ranks_which which, u32 count) __must_check;

/* The group fails because of @rank, unless it failed before.  Return: its error. */
int ranks_fail(struct ranks *r, u32 rank, enum ranks_reason reason, const char *text);

/* The group fails with @ret, which ranks_await() returned for @rank. */
int ranks_fail_wait(struct ranks *r, u32 rank, int ret);

/* Take over the failure that is in the window.  Return: 0: there is none. */
int ranks_failed(struct ranks *r);

/* ---- parent.c ---- */

/*
 * Run mpiexec with the arguments @line, which starts @nr ranks, pass signals on to rank 0,
 * and end as that does.  Returns only if it cannot be run: a negative errno.
 */
int parent_run(u32 nr, char **line);

/* Connect to the parent, if there is one. */
void parent_find(void);

/* Let it know that this process is @rank. */
void parent_tell(u32 rank);

/* Let it know that this process has met all ranks. */
void parent_joined(void);

#endif /* RUNTIME_RANKS_INTERNAL_H */
