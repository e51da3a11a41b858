// SPDX-License-Identifier: Apache-2.0
/*
 * evict_peers.c - LRU, LFU, ARC and Belady's optimum over a tree of blocks
 *
 * All caches evict leaves first and never a block of the present request.  LRU,
 * LFU and the optimum keep the leaves on a heap, and evict the one with the least
 * key.  For LRU it was used longest ago.  For LFU it was used least often while
 * held, then longest ago.  For the optimum its next use, by any request that
 * passes it, is the latest (a parent is always used again before its kids, so
 * leaves have the least key anyway).  ARC is after Megiddo and Modha, with lists:
 * of blocks seen once and more often, and of the names evicted from either.
 */
#include "tests/bench/bench.h"
#include "tests/bench/evict.h"

#include <stdlib.h>

/* ---- a cache whose leaves are on a heap ---- */

struct tree {
	const struct ev_trace *t;
	u32	cap;
	u32	nr;
	u32	now;
	bool	*held;
	u32	*kids;		/* held kids */
	u32	*busy;		/* number of the last request that passed it */
	u64	*key;		/* the least is evicted first */
	u32	*place;		/* on the heap, from 1; 0: not there */
	u32	*heap;
	u32	nr_heap;
};

static void *need(size_t nr, size_t size)
{
	void *p = calloc(nr, size);

	if (!p)
		bench_die("no memory for a cache");
	return p;
}

static void tree_init(struct tree *c, const struct ev_trace *t, u32 cap)
{
	memset(c, 0, sizeof(*c));
	c->t = t;
	c->cap = cap;
	c->held = need(t->nr_blocks, sizeof(*c->held));
	c->kids = need(t->nr_blocks, sizeof(*c->kids));
	c->busy = need(t->nr_blocks, sizeof(*c->busy));
	c->key = need(t->nr_blocks, sizeof(*c->key));
	c->place = need(t->nr_blocks, sizeof(*c->place));
	c->heap = need(t->nr_blocks + 1, sizeof(*c->heap));
}

static void tree_free(struct tree *c)
{
	free(c->held);
	free(c->kids);
	free(c->busy);
	free(c->key);
	free(c->place);
	free(c->heap);
}

static void heap_set(struct tree *c, u32 i, u32 b)
{
	c->heap[i] = b;
	c->place[b] = i;
}

static void heap_sift(struct tree *c, u32 i)
{
	u32 b = c->heap[i], kid;

	for (; i > 1 && c->key[c->heap[i / 2]] > c->key[b]; i /= 2)
		heap_set(c, i, c->heap[i / 2]);
	for (; (kid = 2 * i) <= c->nr_heap; i = kid) {
		if (kid < c->nr_heap &&
		    c->key[c->heap[kid + 1]] < c->key[c->heap[kid]])
			kid++;
		if (c->key[c->heap[kid]] >= c->key[b])
			break;
		heap_set(c, i, c->heap[kid]);
	}
	heap_set(c, i, b);
}

static void heap_add(struct tree *c, u32 b)
{
	c->heap[++c->nr_heap] = b;
	heap_sift(c, c->nr_heap);
}

static void heap_del(struct tree *c, u32 b)
{
	u32 i = c->place[b], last = c->heap[c->nr_heap--];

	c->place[b] = 0;
	if (last == b)
		return;
	c->heap[i] = last;
	heap_sift(c, i);
}

static void tree_evict(struct tree *c)
{
	u32 b = c->heap[1], up = c->t->parent[b];

	if (!c->nr_heap)
		bench_die("a cache of %u blocks is too small", c->cap);
	heap_del(c, b);
	c->held[b] = false;
	c->nr--;
	if (up != EV_NONE && !--c->kids[up] && c->busy[up] != c->now)
		heap_add(c, up);
}

static void tree_hold(struct tree *c, u32 b)
{
	u32 up = c->t->parent[b];

	if (c->nr == c->cap)
		tree_evict(c);
	c->held[b] = true;
	c->nr++;
	if (up != EV_NONE)
		c->kids[up]++;
}

/*
 * Run a trace.  @key: key of a block after its use by request @req; @held: the
 * cache had it before.
 */
static u64 tree_run(struct tree *c, u64 (*key)(struct tree *c,
				 u32 block, u32 req, bool held))
{
	const struct ev_trace *t = c->t;
	u32 path[EV_PATH_MAX], i, n, req;
	u64 found = 0;

	for (req = 0; req < t->nr_reqs; req++) {
		c->now = req + 1;
		n = ev_path(t, t->reqs[req].prompt, path);
		for (i = 0; i < n && c->held[path[i]]; i++)
			found++;
		n = ev_path(t, t->reqs[req].end, path);
		for (i = 0; i < n; i++) {
			c->busy[path[i]] = c->now;
			if (c->place[path[i]])
				heap_del(c, path[i]);
		}
		for (i = 0; i < n; i++) {
			bool held = c->held[path[i]];

			if (!held)
				tree_hold(c, path[i]);
			c->key[path[i]] = key(c, path[i], req, held);
		}
		/* Only the end of a path can be a leaf. */
		if (!c->kids[path[n - 1]])
			heap_add(c, path[n - 1]);
	}
	return found;
}

/* ---- LRU and LFU ---- */

static u64 key_lru(struct tree *c, u32 block, u32 req, bool held)
{
	return req;
}

u64 ev_run_lru(const struct ev_trace *t, u32 cap)
{
	struct tree c;
	u64 r;

	tree_init(&c, t, cap);
	r = tree_run(&c, key_lru);
	tree_free(&c);
	return r;
}

static u64 key_lfu(struct tree *c, u32 block, u32 req, bool held)
{
	u64 times = held ? (c->key[block] >> 32) + 1 : 1;

	return times << 32 | req;
}

u64 ev_run_lfu(const struct ev_trace *t, u32 cap)
{
	struct tree c;
	u64 r;

	tree_init(&c, t, cap);
	r = tree_run(&c, key_lfu);
	tree_free(&c);
	return r;
}

/* ---- the optimum ---- */

/* For each use of each block, in order: the request that uses it next. */
static u32 *use_next, *use_at;

static void uses_find(const struct ev_trace *t)
{
	u32 *later = need(t->nr_blocks, sizeof(*later)), i, n;
	u32 path[EV_PATH_MAX];
	u64 total = 0;

	use_at = need(t->nr_reqs, sizeof(*use_at));
	for (i = 0; i < t->nr_reqs; i++) {
		use_at[i] = (u32)total;
		total += t->depth[t->reqs[i].end];
	}
	use_next = need(total, sizeof(*use_next));
	for (i = 0; i < t->nr_blocks; i++)
		later[i] = EV_NONE;
	for (i = t->nr_reqs; i-- > 0;) {
		n = ev_path(t, t->reqs[i].end, path);
		while (n--) {
			use_next[use_at[i] + n] = later[path[n]];
			later[path[n]] = i;
		}
	}
	free(later);
}

static u64 key_belady(struct tree *c, u32 block, u32 req, bool held)
{
	return EV_NONE - use_next[use_at[req] + c->t->depth[block] - 1];
}

u64 ev_run_belady(const struct ev_trace *t, u32 cap)
{
	struct tree c;
	u64 r;

	uses_find(t);
	tree_init(&c, t, cap);
	r = tree_run(&c, key_belady);
	tree_free(&c);
	free(use_next);
	free(use_at);
	return r;
}

/* ---- ARC ---- */

enum arc_where { ARC_NOWHERE, ARC_T1, ARC_T2, ARC_B1, ARC_B2, ARC_NR };

struct arc {
	const struct ev_trace *t;
	u32	cap;
	u32	want;		/* of T1 */
	u32	now;
	u8	*where;
	u32	*busy;
	u32	*kids;
	u32	*prev;
	u32	*next;
	u32	head[ARC_NR];	/* used longest ago */
	u32	tail[ARC_NR];
	u32	nr[ARC_NR];
};

static void arc_move(struct arc *a, u32 b, enum arc_where to)
{
	enum arc_where from = a->where[b];

	if (from != ARC_NOWHERE) {
		if (a->prev[b] != EV_NONE)
			a->next[a->prev[b]] = a->next[b];
		else
			a->head[from] = a->next[b];
		if (a->next[b] != EV_NONE)
			a->prev[a->next[b]] = a->prev[b];
		else
			a->tail[from] = a->prev[b];
		a->nr[from]--;
	}
	a->where[b] = (u8)to;
	if (to == ARC_NOWHERE)
		return;
	a->prev[b] = a->tail[to];
	a->next[b] = EV_NONE;
	if (a->tail[to] != EV_NONE)
		a->next[a->tail[to]] = b;
	else
		a->head[to] = b;
	a->tail[to] = b;
	a->nr[to]++;
}

static bool arc_held(const struct arc *a, u32 b)
{
	return a->where[b] == ARC_T1 || a->where[b] == ARC_T2;
}

static void arc_hold(struct arc *a, u32 b, enum arc_where to)
{
	u32 up = a->t->parent[b];

	if (!arc_held(a, b) && up != EV_NONE)
		a->kids[up]++;
	arc_move(a, b, to);
}

/* The leaf of a list that was used longest ago, EV_NONE: none may be evicted. */
static u32 arc_leaf(const struct arc *a, enum arc_where list)
{
	u32 b = a->head[list];

	while (b != EV_NONE && (a->kids[b] || a->busy[b] == a->now))
		b = a->next[b];
	return b;
}

static void arc_replace(struct arc *a, bool in_b2)
{
	bool once = a->nr[ARC_T1] && (a->nr[ARC_T1] > a->want ||
		    (in_b2 && a->nr[ARC_T1] == a->want));
	u32 b = arc_leaf(a, once ? ARC_T1 : ARC_T2);

	if (b == EV_NONE) {
		once = !once;
		b = arc_leaf(a, once ? ARC_T1 : ARC_T2);
	}
	if (b == EV_NONE)
		bench_die("a cache of %u blocks is too small", a->cap);
	if (a->t->parent[b] != EV_NONE)
		a->kids[a->t->parent[b]]--;
	arc_move(a, b, once ? ARC_B1 : ARC_B2);
}

static void arc_use(struct arc *a, u32 b)
{
	u32 b1 = max(a->nr[ARC_B1], 1u), b2 = max(a->nr[ARC_B2], 1u);
	enum arc_where at = a->where[b];
	u32 once = a->nr[ARC_T1] + a->nr[ARC_B1];

	if (at == ARC_T1 || at == ARC_T2) {
		arc_move(a, b, ARC_T2);
		return;
	}
	if (at == ARC_B1)
		a->want = min(a->cap, a->want + max(b2 / b1, 1u));
	if (at == ARC_B2)
		a->want -= min(a->want, max(b1 / b2, 1u));
	if (a->nr[ARC_T1] + a->nr[ARC_T2] >= a->cap)
		arc_replace(a, at == ARC_B2);
	if (at == ARC_NOWHERE && once >= a->cap && a->nr[ARC_B1])
		arc_move(a, a->head[ARC_B1], ARC_NOWHERE);
	else if (at == ARC_NOWHERE && a->nr[ARC_B2] && once + a->nr[ARC_T2] +
		 a->nr[ARC_B2] >= 2 * a->cap)
		arc_move(a, a->head[ARC_B2], ARC_NOWHERE);
	arc_hold(a, b, at == ARC_NOWHERE ? ARC_T1 : ARC_T2);
}

static u64 arc_run(struct arc *a)
{
	const struct ev_trace *t = a->t;
	u32 path[EV_PATH_MAX], i, n, req;
	u64 found = 0;

	for (req = 0; req < t->nr_reqs; req++) {
		a->now = req + 1;
		n = ev_path(t, t->reqs[req].prompt, path);
		for (i = 0; i < n && arc_held(a, path[i]); i++)
			found++;
		n = ev_path(t, t->reqs[req].end, path);
		for (i = 0; i < n; i++)
			a->busy[path[i]] = a->now;
		/* The root last, so that it counts as used last. */
		while (n--)
			arc_use(a, path[n]);
	}
	return found;
}

u64 ev_run_arc(const struct ev_trace *t, u32 cap)
{
	struct arc a = { .t = t, .cap = cap };
	u64 r;
	u32 i;

	a.where = need(t->nr_blocks, sizeof(*a.where));
	a.busy = need(t->nr_blocks, sizeof(*a.busy));
	a.kids = need(t->nr_blocks, sizeof(*a.kids));
	a.prev = need(t->nr_blocks, sizeof(*a.prev));
	a.next = need(t->nr_blocks, sizeof(*a.next));
	for (i = 0; i < ARC_NR; i++) {
		a.head[i] = EV_NONE;
		a.tail[i] = EV_NONE;
	}
	r = arc_run(&a);
	free(a.where);
	free(a.busy);
	free(a.kids);
	free(a.prev);
	free(a.next);
	return r;
}
