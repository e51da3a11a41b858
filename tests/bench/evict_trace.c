// SPDX-License-Identifier: Apache-2.0
/*
 * evict_trace.c - traces of prompts, from a seed
 *
 *	chats		Conversations over a few system prompts of very unequal
 *			popularity.  Each turn comes some time after the one
 *			before and repeats all of it; most conversations are
 *			short, and no request tells which turn is the last.
 *	chats + scans	The same with long prompts among them that come once:
 *			a document, a repository; half of them under a system
 *			prompt.  They bring in most of the blocks.
 *	zipf + drift	Prompts out of many, by Zipf's law, half of them in
 *			groups with a common beginning, each with a question of
 *			its own.  The ranks change all the time.
 *
 * Numbers come from splitmix64 only, so a seed is a trace on every machine.
 */
#include "tests/bench/bench.h"
#include "tests/bench/evict.h"

#include <math.h>
#include <stdlib.h>

#define SYSTEMS		24u
#define CHATS		400u		/* going on at once */
#define CHAT_REQS	8000u
#define HIGH_CHATS	20u		/* percent of high priority */
#define ZIPF_PROMPTS	2000u
#define ZIPF_GROUPS	40u
#define ZIPF_REQS	12000u

struct ev_rng {
	u64	s;
};

static u64 rng_u64(struct ev_rng *r)
{
	u64 x = r->s += 0x9e3779b97f4a7c15ull;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

/* From @lo to @hi, both included. */
static u32 rng_in(struct ev_rng *r, u32 lo, u32 hi)
{
	return lo + (u32)(rng_u64(r) % (hi - lo + 1));
}

/* From 0 to 1, both excluded. */
static double rng_unit(struct ev_rng *r)
{
	return ((double)(rng_u64(r) >> 11) + 0.5) / 9007199254740992.0;
}

static bool rng_percent(struct ev_rng *r, u32 percent)
{
	return rng_in(r, 1, 100) <= percent;
}

/* ---- building ---- */

void ev_trace_init(struct ev_trace *t, u32 nr_reqs)
{
	memset(t, 0, sizeof(*t));
	t->max_reqs = nr_reqs;
	t->max_blocks = 1 << 21;
	t->reqs = calloc(nr_reqs, sizeof(*t->reqs));
	t->parent = calloc(t->max_blocks, sizeof(*t->parent));
	t->depth = calloc(t->max_blocks, sizeof(*t->depth));
	if (!t->reqs || !t->parent || !t->depth)
		bench_die("no memory for a trace");
}

void ev_trace_free(struct ev_trace *t)
{
	free(t->reqs);
	free(t->parent);
	free(t->depth);
}

/* Add a path of @nr new blocks after @at.  Return: the last one. */
u32 ev_trace_grow(struct ev_trace *t, u32 at, u32 nr)
{
	while (nr--) {
		if (t->nr_blocks == t->max_blocks)
			bench_die("a trace of too many blocks");
		t->parent[t->nr_blocks] = at;
		t->depth[t->nr_blocks] = at == EV_NONE ? 1 : t->depth[at] + 1;
		at = t->nr_blocks++;
	}
	return at;
}

void ev_trace_ask(struct ev_trace *t, u32 prompt, u32 end, bool high)
{
	t->reqs[t->nr_reqs++] = (struct ev_req){ .prompt = prompt, .end = end,
						 .high = high };
	t->longest = max(t->longest, t->depth[end]);
	if (t->longest > EV_PATH_MAX)
		bench_die("a trace with too long a path");
}

u32 ev_path(const struct ev_trace *t, u32 end, u32 *path)
{
	u32 n = t->depth[end], i = n;

	for (; end != EV_NONE; end = t->parent[end])
		path[--i] = end;
	return n;
}

u32 ev_working_set(const struct ev_trace *t)
{
	u8 *uses = calloc(t->nr_blocks, 1);
	u32 i, b, nr = 0;

	if (!uses)
		bench_die("no memory for a trace");
	for (i = 0; i < t->nr_reqs; i++)
		for (b = t->reqs[i].end; b != EV_NONE; b = t->parent[b]) {
			nr += uses[b] == 1;
			uses[b] = uses[b] ? 2 : 1;
		}
	free(uses);
	return nr;
}

static u64 findable(const struct ev_trace *t, bool all)
{
	bool *seen = calloc(t->nr_blocks, sizeof(*seen));
	u64 nr = 0;
	u32 i, b;

	if (!seen)
		bench_die("no memory for a trace");
	for (i = 0; i < t->nr_reqs; i++) {
		for (b = t->reqs[i].prompt; b != EV_NONE; b = t->parent[b])
			nr += seen[b] && (all || t->reqs[i].high);
		for (b = t->reqs[i].end; b != EV_NONE; b = t->parent[b])
			seen[b] = true;
	}
	free(seen);
	return nr;
}

u64 ev_asked(const struct ev_trace *t)
{
	u64 nr = 0;
	u32 i;

	for (i = 0; i < t->nr_reqs; i++)
		nr += t->depth[t->reqs[i].prompt];
	return nr;
}

u64 ev_findable(const struct ev_trace *t)
{
	return findable(t, true);
}

u64 ev_findable_high(const struct ev_trace *t)
{
	return findable(t, false);
}

/* ---- Zipf ---- */

struct zipf {
	double	sum[ZIPF_PROMPTS];
	u32	nr;
};

static void zipf_init(struct zipf *z, u32 nr, double exponent)
{
	double sum = 0;
	u32 i;

	z->nr = nr;
	for (i = 0; i < nr; i++) {
		sum += pow(i + 1, -exponent);
		z->sum[i] = sum;
	}
}

static u32 zipf_draw(const struct zipf *z, struct ev_rng *r)
{
	double x = rng_unit(r) * z->sum[z->nr - 1];
	u32 lo = 0, hi = z->nr - 1;

	while (lo < hi) {
		u32 mid = (lo + hi) / 2;

		if (z->sum[mid] < x)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* ---- chats ---- */

struct chat {
	double	next;		/* time of its next turn */
	u32	at;		/* last block of the conversation */
	bool	high;
};

struct chats {
	struct ev_rng	r;
	struct ev_rng	highs;	/* a second generator, so that other traces do not change */
	struct zipf	z;
	u32		system[SYSTEMS];
	struct chat	chat[CHATS];
};

static double chat_pause(struct chats *c)
{
	return -log(rng_unit(&c->r));
}

static void chat_begin(struct chats *c, struct chat *chat, double now)
{
	chat->at = c->system[zipf_draw(&c->z, &c->r)];
	chat->next = now + chat_pause(c);
	chat->high = rng_percent(&c->highs, HIGH_CHATS);
}

static void chat_turn(struct ev_trace *t, struct chats *c)
{
	struct chat *chat = &c->chat[0];
	u32 i, prompt;
	double now;

	for (i = 1; i < CHATS; i++)
		if (c->chat[i].next < chat->next)
			chat = &c->chat[i];
	now = chat->next;
	prompt = ev_trace_grow(t, chat->at, rng_in(&c->r, 2, 20));
	chat->at = ev_trace_grow(t, prompt, rng_in(&c->r, 4, 24));
	ev_trace_ask(t, prompt, chat->at, chat->high);
	chat->next = now + chat_pause(c);
	/* A chat that ends is followed by a new one. */
	if (rng_percent(&c->r, 20) || t->depth[chat->at] > 1000)
		chat_begin(c, chat, now);
}

static void one_shot(struct ev_trace *t, struct chats *c)
{
	u32 at = EV_NONE;

	if (rng_percent(&c->r, 50))
		at = c->system[zipf_draw(&c->z, &c->r)];
	at = ev_trace_grow(t, at, rng_in(&c->r, 200, 800));
	ev_trace_ask(t, at, ev_trace_grow(t, at, rng_in(&c->r, 4, 24)), false);
}

void ev_trace_chats(struct ev_trace *t, const struct ev_shape *shape, u64 seed)
{
	static struct chats c;
	u32 i;

	ev_trace_init(t, CHAT_REQS);
	c.r.s = seed;
	c.highs.s = ~seed;
	zipf_init(&c.z, SYSTEMS, shape->exponent);
	for (i = 0; i < SYSTEMS; i++)
		c.system[i] = ev_trace_grow(t, EV_NONE, rng_in(&c.r, 16, 128));
	for (i = 0; i < CHATS; i++)
		chat_begin(&c, &c.chat[i], 0);
	while (t->nr_reqs < t->max_reqs) {
		if (rng_percent(&c.r, shape->scans))
			one_shot(t, &c);
		else
			chat_turn(t, &c);
	}
}

/* ---- Zipf, with drift ---- */

void ev_trace_zipf(struct ev_trace *t, const struct ev_shape *shape, u64 seed)
{
	static u32 prompt[ZIPF_PROMPTS], group[ZIPF_GROUPS];
	struct ev_rng r = { seed };
	static struct zipf z;
	u32 i, a, b, at;

	ev_trace_init(t, ZIPF_REQS);
	zipf_init(&z, ZIPF_PROMPTS, shape->exponent);
	for (i = 0; i < ZIPF_GROUPS; i++)
		group[i] = ev_trace_grow(t, EV_NONE, rng_in(&r, 16, 64));
	for (i = 0; i < ZIPF_PROMPTS; i++) {
		at = rng_percent(&r, 50) ? group[rng_in(&r, 0, ZIPF_GROUPS - 1)]
					 : EV_NONE;
		prompt[i] = ev_trace_grow(t, at, rng_in(&r, 8, 96));
	}
	while (t->nr_reqs < t->max_reqs) {
		if (rng_percent(&r, shape->drift)) {
			a = zipf_draw(&z, &r);
			b = rng_in(&r, 0, ZIPF_PROMPTS - 1);
			at = prompt[a];
			prompt[a] = prompt[b];
			prompt[b] = at;
		}
		at = ev_trace_grow(t, prompt[zipf_draw(&z, &r)], rng_in(&r, 1, 6));
		ev_trace_ask(t, at, ev_trace_grow(t, at, rng_in(&r, 2, 8)), false);
	}
}
