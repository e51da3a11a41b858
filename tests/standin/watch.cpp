// SPDX-License-Identifier: Apache-2.0
/*
 * watch.cpp - check accesses to shared memory for races and other defects
 *
 * The laws are in shim_shared.h.  shim_die() reports a defect with the kernel, the
 * block, the thread, the array, the index and the line.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/standin/shim_private.h"

#define COPIES	64u
#define STATICS	1024u

/* A copy under way: to a shared array, from memory or of zeros. */
struct copy {
	u8 *to;
	struct shim_shadow *shadow;
	u32 granules;
	u32 group;
	const void *from;
	bool there;
};

/* Copies of one thread, in order; @open: the number of the open group. */
struct copies {
	struct copy *c;
	u32 nr, room;
	u32 open;
};

const u32 shim_gran[9] = { 0, 1, 2, 3, 4, 5, 6, 7, 8 };

static u8 dynamic[SHIM_SMEM_MAX] __attribute__((aligned(128)));
static struct shim_shadow dynamic_shadow[SHIM_SMEM_MAX];
static struct copies copies[SHIM_MAX_THREADS];
static u32 nr_copies;		/* in the block, of all threads */
static struct {
	const struct shim_kernel *kernel;
	struct shim_shadow *shadow;
	u32 nr;
} statics[STATICS];		/* arrays with a size, by kernel */
static u32 nr_statics;

/* ---- reports ---- */

static void say_who(char *line, size_t len)
{
	snprintf(line, len, "standin: %s: block (%u,%u,%u) thread %u: ",
		 shim_now.kernel ? shim_now.kernel->name : "no kernel",
		 shim_block.x, shim_block.y, shim_block.z, shim_now.me);
}

void shim_die(struct shim_where at, const char *fmt, ...)
{
	char line[1024];
	size_t n;
	va_list ap;

	say_who(line, sizeof(line));
	n = strlen(line);
	va_start(ap, fmt);
	vsnprintf(line + n, sizeof(line) - n, fmt, ap);
	va_end(ap);
	n = strlen(line);
	if (at.file)
		snprintf(line + n, sizeof(line) - n, ": %s:%u", at.file, at.line);
	n = strlen(line);
	line[n] = '\n';		/* a handler may come here: no stdio streams */
	(void)!write(STDERR_FILENO, line, n + 1);
	abort();
}

/* Report lanes that a warp waits for; else threads that miss at the barrier. */
void shim_stuck(void)
{
	const u32 nr = (shim_launched->threads + 31) / 32;
	u32 i, at_barrier = 0;

	for (i = 0; i < nr; i++) {
		const struct shim_warp_state *w = &shim_warps[i];
		const struct shim_group *g = &w->group[0];

		at_barrier += (u32)__builtin_popcount(w->at_barrier);
		if (!w->nr_groups)
			continue;
		shim_now.me = i * 32 + (u32)__builtin_ctz(g->arrived);
		shim_die(g->at, "lanes %08x wait with mask %08x for lanes %08x, which do not come",
			 g->arrived, g->mask, g->mask & ~g->arrived);
	}
	for (i = 0; i < nr; i++)
		if (shim_warps[i].ended) {
			shim_now.me = i * 32 +
				(u32)__builtin_ctz(shim_warps[i].ended);
			break;
		}
	shim_die(shim_barrier_at,
		 "ended, while %u of %u threads wait at a barrier",
		 at_barrier, shim_launched->threads);
}

/* ---- shared memory ---- */

/* The first granule of elements @i to @i + @nr; @count: how many there are. */
static struct shim_shadow *granules(const struct shim_span *s, s64 i, u32 nr,
				    u32 *count, struct shim_where at)
{
	const u32 shift = *s->gran;

	if (i < 0 || (u64)i + nr > s->nr)
		shim_die(at, "%s[%lld] is outside: it has %lld elements",
			 s->name, (long long)(s->base + (i < 0 ? i : i + nr - 1)),
			 (long long)(s->base + s->nr));
	*count = nr * s->size >> shift;
	return s->shadow + (i * s->size >> shift);
}

static s64 index_of(const struct shim_span *s, const struct shim_shadow *e)
{
	return s->base + ((e - s->shadow) << *s->gran) / s->size;
}

/* Was an access of thread @by at time @when ordered before one of the caller now? */
static bool ordered(u32 by, u32 when)
{
	const u32 warp = by / 32;

	if (by == shim_now.me || when < shim_now.epoch)
		return true;
	return warp == shim_now.warp && when < shim_now.warp_sync[warp];
}

/* The same for the last write, which may have been an atomic operation. */
static bool write_ordered(const struct shim_shadow *e)
{
	if (e->wr_by < SHIM_ATOMIC)
		return ordered(e->wr_by, e->wr_at);
	if (e->wr_at < shim_now.epoch)
		return true;
	return e->wr_by == (SHIM_ATOMIC | shim_now.warp) &&
	       e->wr_at < shim_now.warp_sync[shim_now.warp];
}

/* The same for all reads. */
static bool reads_ordered(const struct shim_shadow *e)
{
	if (e->rd_at < shim_now.epoch)
		return true;
	if (e->rd_who == SHIM_ONE)
		return ordered(e->rd_by, e->rd_at);
	return e->rd_who == SHIM_SOME && e->rd_by / 32 == shim_now.warp &&
	       e->rd_at < shim_now.warp_sync[shim_now.warp];
}

static void die_race(const struct shim_span *s, const struct shim_shadow *e,
		     const char *now, bool after_write, struct shim_where at)
{
	char who[48];

	if (after_write && e->wr_by >= SHIM_ATOMIC)
		snprintf(who, sizeof(who), "an atomic operation");
	else if (!after_write && e->rd_who == SHIM_MANY)
		snprintf(who, sizeof(who), "reads by several threads");
	else
		snprintf(who, sizeof(who), "a %s by thread %u",
			 after_write ? "write" : "read",
			 after_write ? e->wr_by : e->rd_by);
	shim_die(at, "%s[%lld]: a %s after %s without a barrier between them",
		 s->name, (long long)index_of(s, e), now, who);
}

static void die_pending(const struct shim_span *s, const struct shim_shadow *e,
			struct shim_where at)
{
	shim_die(at, "%s[%lld] is touched before the copy of thread %u into it was waited for",
		 s->name, (long long)index_of(s, e), e->pending_by);
}

/* Was it written in this block, before its last barrier or by the thread itself? */
static inline bool plainly_there(const struct shim_shadow *e)
{
	return SHIM_LIKELY(e->wr_at >= shim_now.born && !e->pending &&
			   (e->wr_at < shim_now.epoch ||
			    e->wr_by == shim_now.me));
}

static void check_read(const struct shim_span *s, struct shim_shadow *e,
		       struct shim_where at)
{
	if (e->wr_at < shim_now.born && !e->pending)
		shim_die(at, "%s[%lld] is read and was never written",
			 s->name, (long long)index_of(s, e));
	if (e->pending)
		die_pending(s, e, at);
	if (!write_ordered(e))
		die_race(s, e, "read", true, at);
}

/* Note a read; of earlier reads keep those that could still be part of a race. */
static inline void note_read(struct shim_shadow *e)
{
	const u32 warp = shim_now.warp;

	if (e->rd_at < shim_now.epoch) {
		e->rd_who = SHIM_ONE;
		e->rd_by = (u16)shim_now.me;
	} else if (e->rd_who == SHIM_MANY || e->rd_by / 32 != warp) {
		e->rd_who = SHIM_MANY;
	} else if (e->rd_at < shim_now.warp_sync[warp]) {
		e->rd_who = SHIM_ONE;
		e->rd_by = (u16)shim_now.me;
	} else if (e->rd_by != shim_now.me) {
		e->rd_who = SHIM_SOME;
	}
	e->rd_at = shim_now.clock;
}

void shim_read(const struct shim_span *s, s64 i, u32 nr, struct shim_where at)
{
	struct shim_shadow *e;
	u32 n;

	for (e = granules(s, i, nr, &n, at); n; n--, e++) {
		if (!plainly_there(e))
			check_read(s, e, at);
		note_read(e);
	}
}

void shim_read_warp(const struct shim_span *s, s64 i, u32 nr,
		    struct shim_where at)
{
	struct shim_shadow *e;
	u32 n;

	for (e = granules(s, i, nr, &n, at); n; n--, e++) {
		check_read(s, e, at);
		/* The other lanes get the value, too, so the thread's own write is not enough. */
		if (e->wr_by == shim_now.me && e->wr_at >= shim_now.epoch &&
		    e->wr_at >= shim_now.warp_sync[shim_now.warp])
			die_race(s, e, "read by the warp", true, at);
		note_read(e);
		if (e->rd_who == SHIM_ONE)
			e->rd_who = SHIM_SOME;
	}
}

static void check_write(const struct shim_span *s, struct shim_shadow *e,
			struct shim_where at)
{
	if (e->wr_at >= shim_now.born && !write_ordered(e))
		die_race(s, e, "write", true, at);
	if (e->rd_at >= shim_now.born && !reads_ordered(e))
		die_race(s, e, "write", false, at);
	if (e->pending)
		die_pending(s, e, at);
}

void shim_write(const struct shim_span *s, s64 i, u32 nr, struct shim_where at)
{
	struct shim_shadow *e;
	u32 n;

	for (e = granules(s, i, nr, &n, at); n; n--, e++) {
		check_write(s, e, at);
		e->wr_at = shim_now.clock;
		e->wr_by = (u16)shim_now.me;
	}
}

void shim_atomic(const struct shim_span *s, s64 i, struct shim_where at)
{
	const u32 mine = SHIM_ATOMIC | shim_now.warp;
	struct shim_shadow *e;
	u32 n;

	for (e = granules(s, i, 1, &n, at); n; n--, e++) {
		const bool plain = e->wr_by < SHIM_ATOMIC;

		if (plain || e->pending || e->wr_at < shim_now.born)
			check_read(s, e, at);
		if (e->rd_at >= shim_now.born && !reads_ordered(e))
			die_race(s, e, "atomic operation", false, at);
		e->wr_by = (u16)(plain || e->wr_by == mine ||
				 e->wr_at < shim_now.epoch ?
				 mine : SHIM_ATOMIC_ALL);
		e->wr_at = shim_now.clock;
	}
}

void shim_aligned(const void *p, const char *what, struct shim_where at)
{
	if ((uintptr_t)p % 16)
		shim_die(at, "%s: 16 bytes at once at an address that is not aligned to them (%u too far)",
			 what, (u32)((uintptr_t)p % 16));
}

/* A smaller element than before: split each granule. */
static void refine(struct shim_kernel *k, u32 gran)
{
	const u32 split = 1u << (k->gran - gran);
	u32 i;

	for (i = SHIM_SMEM_MAX >> gran; i-- > 0; )
		dynamic_shadow[i] = dynamic_shadow[i / split];
	k->gran = gran;
}

struct shim_span shim_dynamic(const char *name, u32 size)
{
	struct shim_kernel *k = shim_now.kernel;
	const u32 gran = (u32)__builtin_ctz(size);

	if (gran < k->gran)
		refine(k, gran);
	return shim_span{dynamic, dynamic_shadow, shim_launched->smem / size,
			 size, &k->gran, name, 0};
}

void shim_static(struct shim_shadow *shadow, u32 nr, u32 bytes)
{
	struct shim_kernel *k = shim_now.kernel;
	u32 i;

	for (i = 0; i < nr_statics; i++)
		if (statics[i].kernel == k && statics[i].shadow == shadow)
			return;
	if (i == STATICS)
		shim_die({}, "too many SHARED() arrays");
	statics[nr_statics++] = { k, shadow, nr };
	k->static_bytes += (bytes + 15) & ~15u;
	if (k->static_bytes > SHIM_SMEM_PLAIN)
		shim_die({}, "%u bytes of shared memory in SHARED() arrays: %u at most",
			 k->static_bytes, SHIM_SMEM_PLAIN);
	if (k->static_bytes + shim_launched->smem > SHIM_SMEM_MAX)
		shim_die({}, "%u + %u bytes of shared memory: %u at most",
			 k->static_bytes, shim_launched->smem, SHIM_SMEM_MAX);
}

/* ---- copies beside the caller ---- */

static void copy_room(struct copies *c)
{
	if (c->nr < c->room)
		return;
	c->room = c->room ? 2 * c->room : COPIES;
	c->c = (struct copy *)realloc(c->c, c->room * sizeof(*c->c));
	if (!c->c)
		shim_die({}, "no memory for copies");
}

void shim_copy_async(const struct shim_span *s, s64 i, const void *from,
		     bool there, struct shim_where at)
{
	struct copies *c = &copies[shim_now.me];
	struct shim_shadow *e;
	struct copy *n;
	u32 count, k;

	e = granules(s, i, 16 / s->size, &count, at);
	shim_aligned(s->data + i * s->size, s->name, at);
	copy_room(c);
	n = &c->c[c->nr++];
	*n = { s->data + i * s->size, e, count, c->open, from, there };
	for (k = 0; k < count; k++) {
		check_write(s, &e[k], at);
		e[k].pending = 1;
		e[k].pending_by = (u16)shim_now.me;
		e[k].wr_at = shim_now.clock;
		e[k].wr_by = (u16)shim_now.me;
	}
	memset(n->to, 0xff, 16);
	nr_copies++;
	if (!there)
		return;
	shim_aligned(from, "global memory", at);
	(void)*(const volatile u8 *)from;	/* an address outside faults here */
}

void shim_copy_commit(void)
{
	copies[shim_now.me].open++;
}

void shim_copy_wait(u32 left)
{
	struct copies *c = &copies[shim_now.me];
	u32 done, i, k;

	for (done = 0; done < c->nr; done++) {
		struct copy *n = &c->c[done];

		if (n->group + left >= c->open)
			break;
		if (n->there)
			memcpy(n->to, n->from, 16);
		else
			memset(n->to, 0, 16);
		for (k = 0; k < n->granules; k++) {
			n->shadow[k].pending = 0;
			n->shadow[k].wr_at = shim_now.clock;
			n->shadow[k].wr_by = (u16)shim_now.me;
		}
	}
	for (i = done; i < c->nr; i++)
		c->c[i - done] = c->c[i];
	c->nr -= done;
}

/* ---- blocks ---- */

/* Copies that no thread waited for end with the block. */
static void drop_copies(void)
{
	u32 i, k, g;

	for (i = 0; i < SHIM_MAX_THREADS; i++) {
		for (k = 0; k < copies[i].nr; k++)
			for (g = 0; g < copies[i].c[k].granules; g++)
				copies[i].c[k].shadow[g].pending = 0;
		copies[i].nr = 0;
	}
	nr_copies = 0;
}

/* Before the clock wraps and old times look new: forget all. */
static void restart_clock(void)
{
	u32 i;

	memset(dynamic_shadow, 0, sizeof(dynamic_shadow));
	for (i = 0; i < nr_statics; i++)
		memset(statics[i].shadow, 0,
		       statics[i].nr * sizeof(struct shim_shadow));
	shim_now.clock = 0;
}

void shim_watch_block(void)
{
	if (nr_copies)
		drop_copies();
	if (shim_now.clock > 0xf0000000)
		restart_clock();
	shim_now.born = shim_now.epoch = ++shim_now.clock;
	memset(shim_now.warp_sync, 0, sizeof(shim_now.warp_sync));
}
