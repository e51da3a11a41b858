/* SPDX-License-Identifier: Apache-2.0 */
/*
 * driver.h - declarations that the files of the stand-in's driver share
 *
 * A function of the interface is drv_NAME() in C and has the driver's symbol in
 * the library, with its type from cudrv.h.  One lock, drv_lock, covers all state;
 * it is dropped while bytes are copied and while a kernel runs.
 */
#ifndef TESTS_STANDIN_DRIVER_H
#define TESTS_STANDIN_DRIVER_H

#include <pthread.h>

#include <kvmm/cudrv.h>

#include "tests/standin/standin.h"

#define x(name, symbol, args)						\
	__attribute__((visibility("default")))				\
	CUresult drv_##name args __asm__(symbol);
CUDRV_FUNCTIONS(x)
#undef x

enum drv_fn {
#define x(name, symbol, args)	FN_##name,
	CUDRV_FUNCTIONS(x)
#undef x
	FN_NR
};

/* Results that only the stand-in gives. */
enum {
	CUDA_ERROR_INVALID_DEVICE		= 101,
	CUDA_ERROR_ALREADY_MAPPED		= 208,
	CUDA_ERROR_NOT_MAPPED			= 211,
	CUDA_ERROR_HOST_ALREADY_REGISTERED	= 712,
	CUDA_ERROR_HOST_NOT_REGISTERED		= 713,
	CUDA_ERROR_CAPTURE_UNSUPPORTED		= 900,
	CUDA_ERROR_CAPTURE_INVALIDATED		= 901,
	CUDA_ERROR_CAPTURE_UNMATCHED		= 903,
	CUDA_ERROR_CAPTURE_UNJOINED		= 904,
	CUDA_ERROR_CAPTURE_ISOLATION		= 905,
};

/* Conditions that a function needs. */
enum {
	DRV_PLAIN	= 0,
	DRV_INIT	= 1,	/* cuInit() was called, and not before a fork */
	DRV_CONTEXT	= 2,	/* the calling thread has a context */
	DRV_NO_CAPTURE	= 4,	/* the calling thread records nothing */
};

extern pthread_mutex_t drv_lock;
extern pthread_cond_t drv_done;

/**
 * drv_enter() - a call of the interface begins
 *
 * Counts it, fails it if $KVMM_STANDIN_FAIL says so, and checks @needs.
 *
 * Return: 0 with drv_lock taken, else the result of the call.
 */
CUresult drv_enter(enum drv_fn fn, int needs);
/* The call ends; the lock is dropped. */
CUresult drv_leave(CUresult r);

#define ENTER(name, needs)						\
do {									\
	CUresult enter_ = drv_enter(FN_##name, (needs));		\
									\
	if (enter_)							\
		return enter_;						\
} while (0)

/* A random number; a number of the environment, or @or. */
u64 drv_draw(void);
u64 drv_env(const char *name, u64 or);
/* The device failed: from now on every call that needs a context returns @r. */
void drv_fault(CUresult r);
bool drv_faulted(void);
/* For a wrong use that has no result: print one line, and end the process. */
void drv_die(const char *fmt, ...) __printf(1, 2) __noreturn;
/* Must this launch (or copy) end the context?  Counts it. */
bool drv_fault_now(bool launch);
/* One more stream of this thread records (or, with -1, one less). */
void drv_capturing(int by);

/* Counters of $KVMM_STANDIN_COUNT. */
enum drv_count {
	COUNT_CREATED, COUNT_IMPORTED, COUNT_EXPORTED, COUNT_RELEASED,
	COUNT_MAPPED, COUNT_UNMAPPED, COUNT_ALLOC, COUNT_FREE,
	COUNT_PINNED, COUNT_UNPINNED, COUNT_STREAMS, COUNT_STREAMS_GONE,
	COUNT_EVENTS, COUNT_EVENTS_GONE, COUNT_GRAPHS, COUNT_GRAPHS_GONE,
	COUNT_LAUNCHES, COUNT_COPIES, COUNT_COPIED_BYTES,
	COUNT_NR
};
extern u64 drv_count[COUNT_NR];

/* ---- account.c: one device for all processes ---- */

/* Open the account; 0 or -errno.  Call it before a sandbox closes. */
int account_open(void);
/* Count @bytes more (or less) without handle.  Return: -ENOMEM: the device is full. */
int account_plain(s64 bytes);
/* This process holds the memory of the memfd with inode @id, or drops it. */
int account_hold(u64 id, u64 bytes);
void account_drop(u64 id);
bool account_room(u64 bytes);
u64 account_total(void);
u64 account_used(void);

/* ---- mem.c ---- */

enum range_kind {
	RANGE_MAP	= 1,	/* a handle, mapped */
	RANGE_ALLOC	= 2,
	RANGE_MANAGED	= 4,
	RANGE_HOST	= 8,	/* cuMemHostAlloc() */
	RANGE_PINNED	= 16,	/* cuMemHostRegister() */
};
/* Ranges that only device code and copies may touch. */
#define RANGE_CLOSED	(RANGE_MAP | RANGE_ALLOC)
#define RANGE_DEVICE	(RANGE_MAP | RANGE_ALLOC | RANGE_MANAGED)
#define RANGE_LOCKED	(RANGE_HOST | RANGE_PINNED | RANGE_MANAGED)

struct handle;

/**
 * struct range - addresses of one piece of memory
 * @base, @bytes: the mapping, with guard pages, if it is larger
 * @access: device code may use it
 */
struct range {
	u64 addr, size;
	enum range_kind kind;
	struct handle *handle;
	u64 base, bytes;
	bool access;
	int prot;		/* protection for @access */
};

/* Do ranges of @kinds that may be used cover all of @addr .. @addr + @size? */
bool range_covers(u64 addr, u64 size, u32 kinds);
bool range_overlaps(u64 addr, u64 size);
/* The range with @addr, or NULL. */
struct range *range_at(u64 addr);
int range_add(const struct range *r);
void range_del(struct range *r);
/* Die if the part of a driver's allocation behind its size was written. */
void range_check(const struct range *r);
void range_check_all(void);
/*
 * With $KVMM_STANDIN_CLOSED=1 device memory is closed to the host: it is open
 * while an op runs, and is closed when the call that ran the op ends.
 */
void range_open(void);
void range_close(void);
/* Set the protection of a range that was added or changed. */
void range_protect(const struct range *r);
/* Fill with a pattern that is neither a usual number nor zero. */
void mem_poison(void *p, u64 bytes);

/* ---- stream.c ---- */

enum op_type {
	OP_COPY, OP_COPY2D, OP_SET, OP_LAUNCH, OP_RECORD, OP_WAIT, OP_GRAPH,
	OP_CALL,
};

struct graph;

/**
 * struct op - one task of a stream
 * @seq: its number in its stream
 * @started: ns when it became the first, 0: it is not
 */
struct op {
	struct op *next;
	u64 seq;
	u64 started;
	enum op_type type;
	union {
		struct { u64 to, from, bytes; bool to_dev, from_dev; } copy;
		struct cu_memcpy2d copy2d;
		struct { u64 to, nr; u32 value, width; } set;
		struct {
			struct shim_launch l;
			u8 *args;
		} launch;
		CUevent record;
		struct { CUstream stream; u64 seq; } wait;
		struct graph *graph;
		struct { void (*fn)(void *); u64 data[14]; } call;
	};
};

struct CUstream_st {
	struct CUstream_st *next;	/* of all */
	struct op *head, **tail;
	u64 issued, done;
	bool alive;
	bool running;		/* a thread runs the first op */
	bool blocking;		/* ordered with the stream NULL */
	struct graph *capture;
	u32 cap_last;		/* ops in the graph after this stream's last one */
};

struct CUevent_st {
	u32 refs;
	u32 flags;
	bool dead;
	CUstream stream;	/* of the last record; NULL: none */
	u64 seq;
	u64 time;		/* ns when the record was reached */
	struct graph *capture;	/* recorded in this graph, ... */
	u32 cap_at;		/* ... after this many ops */
	CUstream cap_stream;
};

/* A graph, or an executable one: ops in an order in which they may run. */
struct graph {
	u32 refs;
	struct op *head, **tail;
	u32 nr;
	bool broken;
	CUstream origin;
};

/* The state of stream @s, or NULL if it is not alive; @s may be NULL, a stream too. */
CUstream stream_of(CUstream s);
/* Add a copy of @o to @s, or to the graph that @s records. */
CUresult stream_put(CUstream s, const struct op *o);
/* Run all ops up to @seq; the lock may be dropped meanwhile. */
void stream_run(CUstream s, u64 seq);
/* Run some ops, without waiting. */
void stream_poke(CUstream s);
void stream_run_all(void);
/* Does any thread run an op? */
bool stream_busy(void);
extern struct CUstream_st *drv_streams;

/* Copy an op, with references to all that it uses; drop such a copy. */
struct op *op_copy(const struct op *o);
void op_drop(struct op *o);

/* op.c: run @o; the lock is dropped meanwhile. */
void op_run(struct op *o);
/* ns until a copy may end. */
u64 op_wait_ns(struct op *o);
u64 drv_now(void);

/* graph.c */
void graph_put(struct graph *g);
CUresult graph_add(CUstream s, const struct op *o);
CUresult graph_wait(CUstream s, CUevent e);

#endif /* TESTS_STANDIN_DRIVER_H */
