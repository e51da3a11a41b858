// SPDX-License-Identifier: Apache-2.0
/*
 * ctx.c - a small pool of threads that ops spread their items over
 *
 * One job at a time: nr items, claimed one by one through a single 64-bit
 * word {generation, items left}.  A thread reads the job's fields, then claims by
 * compare-and-swap.  So a worker that wakes late, or is preempted for seconds in
 * between, can never take an item of another job than the one that it read:
 * while items are left the fields do not change, and once none is left no swap
 * succeeds until the next generation is published.  The caller works too and
 * waits only for items that workers have claimed, never for a worker to wake.
 *
 * Idle workers look for the next job for CTX_WARM_NS, yielding the CPU to other
 * runnable threads, and then sleep on a futex.  So they stay awake between the
 * ops of one step.  When the caller ends the step by kern_ctx_rest(), they sleep
 * at once, so that runtimes of several models can share the cores.
 *
 * Threads are pinned only if the program calls kern_ctx_pin().  As a rule several
 * runtimes share a machine: a worker that has begun an item and must wait behind
 * another runtime's thread keeps its caller waiting, and a pinned worker cannot
 * move to a free CPU.
 *
 * No result depends on the thread that ran an item: items own disjoint outputs,
 * and no reduction is ever split over items.
 *
 * Only the caller writes the job's fields, while left == 0; everything else is
 * atomic.
 */
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <kvmm/clock.h>

#include "kernels/cpu/internal.h"

/*
 * Time for which a waiting thread stays awake: longer than the caller's own work
 * between two ops of a step, shorter than a step.  The thread yields after each
 * look at the word, which takes some 0.3 us if no other thread is runnable.
 */
#define CTX_WARM_NS	100000
#define CTX_MAX_THREADS	1024
#define CTX_STACK	(1u << 20)

struct kern_ctx {
	/* {generation, items left}: the only way to get an item. */
	u64		claim __attribute__((aligned(64)));
	u32		pending __attribute__((aligned(64)));	/* not finished */
	u32		caller_sleeps;
	u32		wake __attribute__((aligned(64)));	/* workers' futex */
	u32		nr_sleeping;
	u32		stop;
	u32		resting;	/* the step is over: do not wait */

	void		(*fn)(void *arg, u32 i);
	void		*arg;
	u32		nr;

	void		*room;		/* see kern_ctx_room() */
	u32		nr_threads;
	u32		nr_started;
	pthread_t	threads[];
};

static void futex_wait(u32 *addr, u32 val)
{
	syscall(SYS_futex, addr, FUTEX_WAIT_PRIVATE, val, NULL, NULL, 0);
}

static void futex_wake(u32 *addr, u32 nr)
{
	syscall(SYS_futex, addr, FUTEX_WAKE_PRIVATE, nr, NULL, NULL, 0);
}

static u32 claim_left(u64 claim)
{
	return (u32)claim;
}

/* Run items until none is left. */
static void ctx_work(struct kern_ctx *ctx)
{
	/* Pairs with the release store of ->claim in kern_parallel(). */
	u64 claim = load_acquire(&ctx->claim);
	void (*fn)(void *arg, u32 i);
	void *arg;
	u32 nr;

	while (claim_left(claim)) {
		fn = READ_ONCE(ctx->fn);
		arg = READ_ONCE(ctx->arg);
		nr = READ_ONCE(ctx->nr);
		/* Success proves that the fields read are of this job. */
		if (!__atomic_compare_exchange_n(&ctx->claim, &claim, claim - 1,
						 false, __ATOMIC_ACQ_REL,
						 __ATOMIC_ACQUIRE))
			continue;
		fn(arg, nr - claim_left(claim));
		/* Pairs with the acquire loads in ctx_wait_done(). */
		if (__atomic_sub_fetch(&ctx->pending, 1, __ATOMIC_SEQ_CST) == 0 &&
		    __atomic_load_n(&ctx->caller_sleeps, __ATOMIC_SEQ_CST))
			futex_wake(&ctx->pending, 1);
		claim = load_acquire(&ctx->claim);
	}
}

static void ctx_wait_done(struct kern_ctx *ctx)
{
	u64 until = kv_now_ns() + CTX_WARM_NS;
	u32 pending;

	do {
		if (!load_acquire(&ctx->pending))
			return;
		sched_yield();
	} while (kv_now_ns() < until);
	__atomic_store_n(&ctx->caller_sleeps, 1, __ATOMIC_SEQ_CST);
	for (;;) {
		pending = __atomic_load_n(&ctx->pending, __ATOMIC_SEQ_CST);
		if (!pending)
			break;
		futex_wait(&ctx->pending, pending);
	}
	WRITE_ONCE(ctx->caller_sleeps, 0);
}

void kern_parallel(struct kern_ctx *ctx, u32 nr,
		   void (*fn)(void *arg, u32 i), void *arg)
{
	u64 gen;
	u32 i;

	if (!ctx || nr < 2 || !ctx->nr_started) {
		for (i = 0; i < nr; i++)
			fn(arg, i);
		return;
	}
	WRITE_ONCE(ctx->fn, fn);
	WRITE_ONCE(ctx->arg, arg);
	WRITE_ONCE(ctx->nr, nr);
	WRITE_ONCE(ctx->pending, nr);
	WRITE_ONCE(ctx->resting, 0);
	gen = (READ_ONCE(ctx->claim) >> 32) + 1;
	/* Pairs with the acquire loads of ->claim in ctx_work(). */
	__atomic_store_n(&ctx->claim, gen << 32 | nr, __ATOMIC_SEQ_CST);

	/* A worker counts itself asleep, then looks at ->claim once more. */
	if (__atomic_load_n(&ctx->nr_sleeping, __ATOMIC_SEQ_CST)) {
		__atomic_add_fetch(&ctx->wake, 1, __ATOMIC_SEQ_CST);
		futex_wake(&ctx->wake, min(nr - 1, ctx->nr_started));
	}
	ctx_work(ctx);
	ctx_wait_done(ctx);
}

static void ctx_sleep(struct kern_ctx *ctx)
{
	u32 wake = __atomic_load_n(&ctx->wake, __ATOMIC_SEQ_CST);

	__atomic_add_fetch(&ctx->nr_sleeping, 1, __ATOMIC_SEQ_CST);
	if (!claim_left(__atomic_load_n(&ctx->claim, __ATOMIC_SEQ_CST)) &&
	    !__atomic_load_n(&ctx->stop, __ATOMIC_SEQ_CST))
		futex_wait(&ctx->wake, wake);
	__atomic_sub_fetch(&ctx->nr_sleeping, 1, __ATOMIC_SEQ_CST);
}

/* Is there a job, before it is time to sleep? */
static bool ctx_wait_job(struct kern_ctx *ctx)
{
	u64 until = kv_now_ns() + CTX_WARM_NS;

	do {
		if (claim_left(READ_ONCE(ctx->claim)))
			return true;
		sched_yield();
	} while (!READ_ONCE(ctx->resting) && !load_acquire(&ctx->stop) &&
		 kv_now_ns() < until);
	return false;
}

static void *ctx_worker(void *arg)
{
	struct kern_ctx *ctx = arg;

	while (!load_acquire(&ctx->stop)) {
		if (ctx_wait_job(ctx))
			ctx_work(ctx);
		else
			ctx_sleep(ctx);
	}
	return NULL;
}

void kern_ctx_rest(struct kern_ctx *ctx)
{
	if (ctx)
		WRITE_ONCE(ctx->resting, 1);
}

static u32 cpus_allowed(void)
{
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set))
		return 1;
	return CPU_COUNT(&set);
}

/* The @i-th CPU of @set alone. */
static cpu_set_t cpu_alone(const cpu_set_t *set, u32 i)
{
	cpu_set_t one;
	int cpu = 0;

	while (!CPU_ISSET(cpu, set) || i--)
		cpu++;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	return one;
}

int kern_ctx_pin(struct kern_ctx *ctx)
{
	cpu_set_t set, one;
	u32 i;
	int err;

	if (sched_getaffinity(0, sizeof(set), &set))
		return -errno;
	if ((u32)CPU_COUNT(&set) != ctx->nr_threads)
		return -EINVAL;
	for (i = 0; i < ctx->nr_started; i++) {
		one = cpu_alone(&set, i + 1);
		err = pthread_setaffinity_np(ctx->threads[i], sizeof(one),
					     &one);
		if (err)
			return -err;
	}
	one = cpu_alone(&set, 0);
	return -pthread_setaffinity_np(pthread_self(), sizeof(one), &one);
}

/*
 * Workers take no signals: handlers belong to the program's own threads.  But a fault must
 * reach its handler: a file of weights that is cut while it is used ends in SIGBUS.
 */
static int ctx_start(struct kern_ctx *ctx)
{
	sigset_t all, old;
	pthread_attr_t attr;
	int err;

	err = pthread_attr_init(&attr);
	if (err)
		return -err;
	pthread_attr_setstacksize(&attr, CTX_STACK);
	sigfillset(&all);
	sigdelset(&all, SIGBUS);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	while (!err && ctx->nr_started + 1 < ctx->nr_threads) {
		err = pthread_create(&ctx->threads[ctx->nr_started], &attr,
				     ctx_worker, ctx);
		if (!err)
			ctx->nr_started++;
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	return -err;
}

int kern_ctx_create(u32 nr_threads, struct kern_ctx **ret)
{
	struct kern_ctx *ctx;
	size_t size;
	int err;

	if (!nr_threads)
		nr_threads = cpus_allowed();
	nr_threads = min(nr_threads, (u32)CTX_MAX_THREADS);
	size = sizeof(*ctx) + nr_threads * sizeof(ctx->threads[0]);
	ctx = aligned_alloc(64, ALIGN_UP(size, 64));
	if (!ctx)
		return -ENOMEM;
	memset(ctx, 0, size);
	ctx->nr_threads = nr_threads;
	/* Pages that no op writes take no memory. */
	ctx->room = mmap(NULL, 2 * KERN_ROOM, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (ctx->room == MAP_FAILED) {
		free(ctx);
		return -ENOMEM;
	}

	err = ctx_start(ctx);
	if (err) {
		kern_ctx_destroy(ctx);
		return err;
	}
	*ret = ctx;
	return 0;
}

void kern_ctx_destroy(struct kern_ctx *ctx)
{
	u32 i;

	if (!ctx)
		return;
	__atomic_store_n(&ctx->stop, 1, __ATOMIC_SEQ_CST);
	__atomic_add_fetch(&ctx->wake, 1, __ATOMIC_SEQ_CST);
	futex_wake(&ctx->wake, CTX_MAX_THREADS);
	for (i = 0; i < ctx->nr_started; i++)
		pthread_join(ctx->threads[i], NULL);
	munmap(ctx->room, 2 * KERN_ROOM);
	free(ctx);
}

void *kern_ctx_room(struct kern_ctx *ctx)
{
	return ctx->room;
}

u32 kern_ctx_nr_threads(const struct kern_ctx *ctx)
{
	return ctx->nr_threads;
}
