/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ring.h - both ends of the shared rings, written once
 *
 * Submission and completion rings have one producer and one consumer, in two
 * processes that share no lock and no trust.  An end keeps its own index
 * privately, runs it freely over 32 bits and masks it on use.  Shared memory has
 * a published copy of the index, which one side writes and the other only checks:
 * an index that claims more than the ring holds, or that went backwards, is
 * -EPROTO, never followed.
 *
 * Publishing is a release store, looking is an acquire load; every pair is
 * named at both ends.  Entries from the other side are copied once by 8-byte
 * relaxed loads (shared_copy_in) and only the copy is used afterwards, since
 * the original may change at any instant.
 *
 * Sleeping.  A side that finds nothing to do says so in its flag
 * (kvmm_client_ctl.need_wake, kvmm_daemon_ctl.need_doorbell), fences, looks
 * at its rings once more, then sleeps.  The other side publishes, fences,
 * then reads the flag.  The two fences forbid that both miss each other:
 *
 *   sleeper                          waker
 *   flag = 1                         publish the index
 *   smp_mb()  -- pairs with --       smp_mb()
 *   look at the index                look at the flag
 *   sleep if nothing is there        wake if it is set
 *
 * The client sleeps on the futex word kvmm_daemon_ctl.wake, which it read
 * before it raised its flag and which the daemon changes before it wakes, so
 * a wake that comes early makes FUTEX_WAIT return at once.  The daemon sleeps
 * on its eventfd, which remembers.
 *
 * ring.pml beside this file is a model of all that, checked by spin with x86's
 * store buffers (tests/scripts/spin.sh).  It lists the faults that a missing step
 * causes.  Keep both files the same.
 *
 * Every function here works on private state that belongs to one thread, and
 * on shared words.  None blocks but ring_futex_wait().
 */
#ifndef KVMM_RING_H
#define KVMM_RING_H

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <kvmm/types.h>

/* A word that may alias anything: shared memory is bytes to both sides. */
typedef u64 __attribute__((__may_alias__)) ring_word;

static inline void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ __volatile__("yield" ::: "memory");
#else
	__asm__ __volatile__("" ::: "memory");
#endif
}

/*
 * ThreadSanitizer does not model fences, and gcc says so at every one.  The
 * data accesses around ours are ordered by acquire and release as well, so
 * its reports stay exact.
 */
#if defined(__SANITIZE_THREAD__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wtsan"
#define RING_TSAN_PRAGMA
#endif

static inline void ring_fence_full(void)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static inline void ring_fence_acquire(void)
{
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
}

static inline void ring_fence_release(void)
{
	__atomic_thread_fence(__ATOMIC_RELEASE);
}

#ifdef RING_TSAN_PRAGMA
#pragma GCC diagnostic pop
#undef RING_TSAN_PRAGMA
#endif

/**
 * shared_copy_in() - copy from memory that another process may be writing
 * @to:    private, 8-byte aligned, room for @bytes rounded up to 8
 * @from:  shared, 8-byte aligned
 * @bytes: rounded up to 8; the area @from must hold that much
 *
 * Every word is loaded exactly once.
 */
static inline void shared_copy_in(void *to, const void *from, size_t bytes)
{
	const ring_word *src = (const ring_word *)from;
	ring_word *dst = (ring_word *)to;
	size_t i;

	for (i = 0; i < (bytes + 7) / 8; i++)
		dst[i] = __atomic_load_n(&src[i], __ATOMIC_RELAXED);
}

/**
 * shared_copy_out() - copy to memory that another process may be reading
 * @to:    shared, 8-byte aligned, room for @bytes rounded up to 8
 * @from:  private, 8-byte aligned, @bytes rounded up to 8 long
 * @bytes: rounded up to 8
 */
static inline void shared_copy_out(void *to, const void *from, size_t bytes)
{
	const ring_word *src = (const ring_word *)from;
	ring_word *dst = (ring_word *)to;
	size_t i;

	for (i = 0; i < (bytes + 7) / 8; i++)
		__atomic_store_n(&dst[i], src[i], __ATOMIC_RELAXED);
}

/* ------------------------------------------------------------------ */
/* The producing end                                                   */

/**
 * struct ring_prod - the producer's private half
 * @tail:        entries filled so far; those past the published tail are ours
 * @head:        consumer's head as last judged
 * @entries:     size of the ring, a power of two
 * @shared_tail: published by this side
 * @shared_head: published by the consumer, not trusted
 */
struct ring_prod {
	u32		tail;
	u32		head;
	u32		entries;
	u32		*shared_tail;
	const u32	*shared_head;
};

/* @first: value of both indices at the start: 0, or as agreed at a resume. */
static inline void ring_prod_init(struct ring_prod *p, u32 entries, u32 first,
				  u32 *shared_tail, const u32 *shared_head)
{
	p->tail = first;
	p->head = first;
	p->entries = entries;
	p->shared_tail = shared_tail;
	p->shared_head = shared_head;
}

/**
 * ring_prod_look() - take over the consumer's progress
 *
 * Return: entries consumed since the last look, or -EPROTO when the published
 * head is one that no honest consumer can have.
 */
static inline int ring_prod_look(struct ring_prod *p)
{
	/* Pairs with the release in ring_cons_publish(). */
	u32 head = __atomic_load_n(p->shared_head, __ATOMIC_ACQUIRE);
	u32 moved = head - p->head;

	if (moved > p->tail - p->head)
		return -EPROTO;
	p->head = head;
	return (int)moved;
}

/* Free entries, as of the last ring_prod_look(). */
static inline u32 ring_prod_room(const struct ring_prod *p)
{
	return p->entries - (p->tail - p->head);
}

/* Slot of the next entry to fill; there must be room. */
static inline u32 ring_prod_slot(const struct ring_prod *p)
{
	return p->tail & (p->entries - 1);
}

/* The entry at ring_prod_slot() is filled; the consumer does not see it yet. */
static inline void ring_prod_advance(struct ring_prod *p)
{
	p->tail++;
}

/* Show the consumer all entries that are filled. */
static inline void ring_prod_publish(struct ring_prod *p)
{
	/* Pairs with the acquire in ring_cons_look(). */
	__atomic_store_n(p->shared_tail, p->tail, __ATOMIC_RELEASE);
}

/* ------------------------------------------------------------------ */
/* The consuming end                                                   */

/**
 * struct ring_cons - the consumer's private half
 * @head:        entries consumed so far
 * @tail:        producer's tail as last judged
 * @entries:     size of the ring, a power of two
 * @shared_head: published by this side
 * @shared_tail: published by the producer, not trusted
 */
struct ring_cons {
	u32		head;
	u32		tail;
	u32		entries;
	u32		*shared_head;
	const u32	*shared_tail;
};

static inline void ring_cons_init(struct ring_cons *c, u32 entries, u32 first,
				  u32 *shared_head, const u32 *shared_tail)
{
	c->head = first;
	c->tail = first;
	c->entries = entries;
	c->shared_head = shared_head;
	c->shared_tail = shared_tail;
}

/**
 * ring_cons_look() - see how far the producer is
 *
 * Return: entries that wait, at most the size of the ring, or -EPROTO when
 * the published tail overruns the ring or went backwards.
 */
static inline int ring_cons_look(struct ring_cons *c)
{
	/* Pairs with the release in ring_prod_publish(). */
	u32 tail = __atomic_load_n(c->shared_tail, __ATOMIC_ACQUIRE);
	u32 avail = tail - c->head;

	if (avail > c->entries || avail < c->tail - c->head)
		return -EPROTO;
	c->tail = tail;
	return (int)avail;
}

/* Entries that wait, as of the last ring_cons_look(). */
static inline u32 ring_cons_avail(const struct ring_cons *c)
{
	return c->tail - c->head;
}

/* Slot of the next entry to read; one must wait. */
static inline u32 ring_cons_slot(const struct ring_cons *c)
{
	return c->head & (c->entries - 1);
}

/* The entry at ring_cons_slot() was copied; its slot is still ours. */
static inline void ring_cons_advance(struct ring_cons *c)
{
	c->head++;
}

/* Give the producer back all slots that were read. */
static inline void ring_cons_publish(struct ring_cons *c)
{
	/* Pairs with the acquire in ring_prod_look(). */
	__atomic_store_n(c->shared_head, c->head, __ATOMIC_RELEASE);
}

/* ------------------------------------------------------------------ */
/* Sleeping and waking                                                 */

/**
 * ring_sleep_prepare() - say that this side is about to sleep
 * @flag: need_wake of a client, need_doorbell of the daemon
 *
 * The caller then looks at every ring once more, and sleeps only if all are empty.
 */
static inline void ring_sleep_prepare(u32 *flag)
{
	__atomic_store_n(flag, 1, __ATOMIC_RELAXED);
	/* Pairs with the fence in ring_sleeper_waits(). */
	ring_fence_full();
}

/* Awake again, or not asleep after all. */
static inline void ring_sleep_finish(u32 *flag)
{
	__atomic_store_n(flag, 0, __ATOMIC_RELAXED);
}

/**
 * ring_sleeper_waits() - after publishing: must the other side be woken?
 * @flag: the other side's; any value but 0 says yes
 */
static inline bool ring_sleeper_waits(const u32 *flag)
{
	/* Pairs with the fence in ring_sleep_prepare(). */
	ring_fence_full();
	return __atomic_load_n(flag, __ATOMIC_RELAXED) != 0;
}

/* Read the futex word before ring_sleep_prepare(), for ring_futex_wait(). */
static inline u32 ring_wake_read(const u32 *wake)
{
	return __atomic_load_n(wake, __ATOMIC_ACQUIRE);
}

/**
 * ring_futex_wait() - sleep while *@word is @value
 * @word:       in a shared mapping; a read-only one will do
 * @timeout_ns: relative; negative: no limit
 *
 * Return: 0 after a wake or when *@word differed, -ETIMEDOUT, -EINTR, or
 * another negative errno that says the word cannot be waited on.
 */
static inline int ring_futex_wait(const u32 *word, u32 value, s64 timeout_ns)
{
	struct timespec ts;
	struct timespec *tsp = NULL;

	if (timeout_ns >= 0) {
		ts.tv_sec = (time_t)(timeout_ns / 1000000000);
		ts.tv_nsec = (long)(timeout_ns % 1000000000);
		tsp = &ts;
	}
	if (!syscall(SYS_futex, word, FUTEX_WAIT, value, tsp, NULL, 0))
		return 0;
	return errno == EAGAIN ? 0 : -errno;
}

static inline void ring_futex_wake(const u32 *word)
{
	(void)syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/**
 * ring_wake_client() - after publishing to a client: wake it if it sleeps
 * @wake:      kvmm_daemon_ctl.wake; only this side writes it
 * @need_wake: kvmm_client_ctl.need_wake; only a hint
 *
 * Return: true when a system call was made.
 */
static inline bool ring_wake_client(u32 *wake, const u32 *need_wake)
{
	/* Pairs with the acquire in ring_wake_read(). */
	__atomic_store_n(wake, __atomic_load_n(wake, __ATOMIC_RELAXED) + 1,
			 __ATOMIC_RELEASE);
	if (!ring_sleeper_waits(need_wake))
		return false;
	ring_futex_wake(wake);
	return true;
}

/* ------------------------------------------------------------------ */
/* Sequence counts: records of segment D that a client reads            */

/* The writer alone changes the count; odd means that the record changes. */
static inline void ring_write_begin(u32 *seqcount)
{
	u32 s = __atomic_load_n(seqcount, __ATOMIC_RELAXED);

	__atomic_store_n(seqcount, s + 1, __ATOMIC_RELAXED);
	/* Pairs with the fence in ring_read_retry(). */
	ring_fence_release();
}

static inline void ring_write_end(u32 *seqcount)
{
	u32 s = __atomic_load_n(seqcount, __ATOMIC_RELAXED);

	/* Pairs with the acquire in ring_read_begin(). */
	__atomic_store_n(seqcount, s + 1, __ATOMIC_RELEASE);
}

/* Return: the count to give to ring_read_retry(); an odd one is retried. */
static inline u32 ring_read_begin(const u32 *seqcount)
{
	/* Pairs with the release in ring_write_end(). */
	return __atomic_load_n(seqcount, __ATOMIC_ACQUIRE);
}

/* After the copy by relaxed loads: true when it may be torn. */
static inline bool ring_read_retry(const u32 *seqcount, u32 begin)
{
	/* Pairs with the fence in ring_write_begin(). */
	ring_fence_acquire();
	return (begin & 1) ||
		__atomic_load_n(seqcount, __ATOMIC_RELAXED) != begin;
}

/* ------------------------------------------------------------------ */
/* The event ring: a hint that overwrites its oldest entries            */

#define RING_EVENT_BYTES	16	/* of a struct kvmm_event */

/**
 * ring_event_put() - add an event; the producer never waits
 * @ring:        slots of RING_EVENT_BYTES, @entries of them
 * @entries:     a power of two
 * @shared_tail: events produced so far; only this side writes it
 * @event:       RING_EVENT_BYTES, 8-byte aligned
 */
static inline void ring_event_put(void *ring, u32 entries, u32 *shared_tail,
				  const void *event)
{
	u32 tail = __atomic_load_n(shared_tail, __ATOMIC_RELAXED);
	char *slot = (char *)ring +
		     (size_t)(tail & (entries - 1)) * RING_EVENT_BYTES;

	/* Pairs with the fence in ring_event_get(): the old tail goes first. */
	ring_fence_release();
	shared_copy_out(slot, event, RING_EVENT_BYTES);
	/* Pairs with the acquire in ring_event_get(). */
	__atomic_store_n(shared_tail, tail + 1, __ATOMIC_RELEASE);
}

/**
 * ring_event_get() - take the oldest event that is still whole
 * @head:  events taken so far; private to this side
 * @event: room for RING_EVENT_BYTES, 8-byte aligned
 *
 * Return: 1; 0: none; -EOVERFLOW when the producer lapped this side: @head
 * then stands at the oldest event that can still be read.
 */
static inline int ring_event_get(const void *ring, u32 entries,
				 const u32 *shared_tail, u32 *head,
				 void *event)
{
	/* Pairs with the release in ring_event_put(). */
	u32 tail = __atomic_load_n(shared_tail, __ATOMIC_ACQUIRE);
	const char *slot = (const char *)ring +
			   (size_t)(*head & (entries - 1)) * RING_EVENT_BYTES;

	if (tail == *head)
		return 0;
	shared_copy_in(event, slot, RING_EVENT_BYTES);
	/* Pairs with the fence in ring_event_put(). */
	ring_fence_acquire();
	tail = __atomic_load_n(shared_tail, __ATOMIC_RELAXED);
	/* At a distance of @entries the slot may be half overwritten. */
	if (tail - *head >= entries) {
		*head = tail - entries + 1;
		return -EOVERFLOW;
	}
	(*head)++;
	return 1;
}

#endif /* KVMM_RING_H */
