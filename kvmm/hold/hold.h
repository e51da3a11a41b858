/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hold.h - the messages between kvmm and kvmm-hold
 *
 * A seqpacket socketpair joins them; the child finds its end in the
 * environment.  Every message is one struct hold_record, with at most one
 * file descriptor.  kvmm puts records; hold keeps them for the next kvmm and
 * hands them over at its start, HOLD_END last.  Hold interprets op, kind and
 * index, the records for swapd, and the names of lock and listening sockets, which
 * it may have to unlink.
 *
 * swapd.  kvmm asks for a swapd with the records HOLD_SWAP_SHM to HOLD_SWAP_CPL
 * and then HOLD_SWAP_RUN.  Hold starts it, and again whenever a signal ended it,
 * until kvmm drops HOLD_SWAP_RUN or puts one with another generation.  Hold
 * reports starts and ends of swapd in records with HOLD_TELL, at any time;
 * include/kvmm/swapd.h explains them.  When kvmm dies, hold drops these records,
 * but not those of areas, and kills its swapd.  The next kvmm starts when no
 * transfer of that swapd is in flight, or HOLD_DRAIN_MS later: HOLD_LIFE, the
 * first record of every kvmm, says which.
 *
 * Adoption.  In the records HOLD_ARENA to HOLD_GHOST a kvmm deposits all that the
 * next one needs to go on where it died (ipc/start/adopt.c).  A record that the
 * socket took counts as kept: hold reads all of them before it starts another
 * kvmm.  If hold cannot keep a record, the next start is a cold one.
 */
#ifndef KVMM_HOLD_HOLD_H
#define KVMM_HOLD_HOLD_H

#include <kvmm/types.h>

#define HOLD_ENV	"KVMM_HOLD_FD"
#define HOLD_MAGIC	0x31444c4f484d4d56ull
#define HOLD_RECORDS	512		/* kept at most, beside extents */
#define HOLD_EXTENTS	(1u << 20)	/* likewise */
#define HOLD_DRAIN_MS	5000		/* for transfers of a dead swapd to end */

/* Exit code of a kvmm that makes room for another, which hold starts at once. */
#define HOLD_EXIT_UPGRADE	111

enum hold_op {
	HOLD_PUT = 1,	/* keep; replaces a record of the same kind and index */
	HOLD_DROP,	/* drop the record */
	HOLD_END,	/* hold to kvmm: this was the last record */
	HOLD_TELL,	/* hold to kvmm: a report, which is not kept */
	HOLD_ASK,	/* kvmm to hold: answered by a TELL of the same kind */
};

enum hold_kind {
	HOLD_LOCK = 1,		/* the instance lock */
	HOLD_LISTEN,		/* listening socket; index 0 attach, 1 view,
				 * 2 admin, then attach and view of each
				 * --tenant; at first index 0 comes last */
	HOLD_CLIENT,		/* pidfd of a client */
	HOLD_EPOCH,		/* no descriptor; value: last daemon epoch */

	/* For swapd. */
	HOLD_SWAP_SHM,		/* memfd with struct swapd_ctl */
	HOLD_SWAP_POOL,		/* memfd of the host pool */
	HOLD_SWAP_REQ,		/* eventfd that wakes swapd */
	HOLD_SWAP_CPL,		/* eventfd that wakes kvmm */
	HOLD_SWAP_RUN,		/* no descriptor; value: HOLD_SWAP_VALUE() */
	HOLD_SWAP_WORKS,	/* no descriptor; generation: of a start that did
				 * some work: if it dies, hold starts the next
				 * at once */
	HOLD_SWAP_AREA,		/* file of area @index, for the next kvmm */

	/*
	 * Reports on swapd; @generation is that of the start.
	 *
	 * HOLD_SWAPD_UP: with kvmm's end of the control socket; value: pid.
	 * HOLD_SWAPD_DOWN: no thread of it is left; value: its wait status;
	 * index: 1 when it will be started again, 0 when it ended by itself
	 * and logged the reason.
	 * HOLD_SWAP_OLD_CQE: after DOWN, a transfer is over; value: its name,
	 * as in struct swapd_carrier; index: the kernel's result, as s32.
	 * HOLD_SWAP_DRAINED: after DOWN and the last OLD_CQE: none of its
	 * transfers is in flight any more.
	 */
	HOLD_SWAPD_UP,
	HOLD_SWAPD_DOWN,
	HOLD_SWAP_OLD_CQE,
	HOLD_SWAP_DRAINED,

	HOLD_SIZE,		/* no descriptor; value: bytes that a share or
				 * auto came to in the first life; index 0
				 * device pool, 1 host pool */

	HOLD_LIFE,		/* hold to kvmm, before all others, no
				 * descriptor; index: HOLD_LIFE_*; value: number
				 * of records that follow */
	HOLD_WORKS,		/* no descriptor: this kvmm does its work; if it
				 * dies, hold starts the next at once */

	/* For adoption. */
	HOLD_ARENA,		/* memfd of the core's arena */
	HOLD_KEEP,		/* memfd with struct keep (ipc/deposit/keep.h) */
	HOLD_HOST,		/* memfd of the host pool */
	HOLD_EXTENT,		/* memory of extent @index, of @generation */
	HOLD_GHOST,		/* pidfd; value: GHOST_VALUE() of ipc/clients/ghost.c */

	HOLD_SYNC,		/* ASK: were all records before this taken? */
	HOLD_UPGRADE,		/* ASK, with a program's file: start that program
				 * when this kvmm ends with HOLD_EXIT_UPGRADE;
				 * index: 1: with any layout; value: layout of
				 * this kvmm.  TELL: index: 0 or errno; value:
				 * layout of the program; generation: as in ASK */

	HOLD_DOOR,		/* directory of the sockets of --tenant @index;
				 * before the attach socket; not handed on */
	HOLD_SERVES,		/* no descriptor: clients come from here on, and
				 * hold takes only records that change with
				 * them, see store.h; not handed on */
	HOLD_READY,		/* no descriptor: kvmm answers clients; not
				 * handed on */
};

/*
 * Records that the next kvmm gets, and why it may trust them: x(kind, text).  If
 * the last kvmm was compromised, it chose every record, and other processes may
 * have every descriptor.
 */
#define HOLD_KEPT(x)							\
	x(ARENA,	"copied before it is checked; only the copy is checked and used, and it replaces the old one in kvmm-hold") \
	x(KEEP,		"the same; numbers are checked before use, names are terminated") \
	x(HOST,		"content of blocks, which kvmm moves and never interprets; another holder can go on to read and write it") \
	x(EXTENT,	"the same; its pages are punched out for all holders before another tenant gets it") \
	x(LISTEN,	"kept before kvmm serves; its name is compared; the kernel tells the peer. Another holder could accept clients in kvmm's place") \
	x(LOCK,		"its place is checked; nothing is read") \
	x(CLIENT,	"a pidfd: its pid is looked up; kvmm sends it SIGKILL only") \
	x(GHOST,	"the same")					\
	x(SWAP_AREA,	"swapd checks each block that it reads: checksum, area and name") \
	x(EPOCH,	"a number, kept before kvmm serves, compared")				\
	x(SIZE,		"a number, kept before kvmm serves, checked like the option that it was")

/* HOLD_LIFE, index */
#define HOLD_LIFE_NEXT		BIT(0)	/* there was a kvmm before */
#define HOLD_LIFE_IN_FLIGHT	BIT(1)	/* its swapd's transfers are in flight */
#define HOLD_LIFE_UPGRADE	BIT(2)	/* it made room on purpose */

/**
 * HOLD_SWAP_VALUE() - options of swapd; 0 in any of them: its default
 * @depth:   requests given to the kernel at once, below 65536
 * @engine:  enum swapd_engine
 * @threads: of the engine sync, below 256
 * @slow_ms: a request that takes longer is logged
 */
#define HOLD_SWAP_VALUE(depth, engine, threads, slow_ms)		\
	((u64)(u16)(depth) | (u64)(u8)(engine) << 16 |			\
	 (u64)(u8)(threads) << 24 | (u64)(u32)(slow_ms) << 32)

/**
 * struct hold_record - one message
 * @kind:       enum hold_kind
 * @index:      among its kind
 * @generation: of the index
 * @value:      a number, where the kind has one
 */
struct hold_record {
	u64	magic;
	u32	op;
	u32	kind;
	u32	index;
	u32	generation;
	u64	value;
};

#endif /* KVMM_HOLD_HOLD_H */
