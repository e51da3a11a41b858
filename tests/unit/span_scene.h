/* SPDX-License-Identifier: Apache-2.0 */
/*
 * span_scene.h - a pool, and a string that gives its spans to domains
 *
 * The pool has eight extents, and each is a span of four blocks.  A string says
 * which domain has which span: "aAb" is a span of cache of "a", a span of "a" with
 * a running sequence, and a span of cache of "b".  The domain "t" takes.  Tests
 * call functions of the core between two events, so each has one scan.
 */
#ifndef SPAN_SCENE_H
#define SPAN_SCENE_H

#include "kvmm/core/node/node.h"
#include "tests/unit/core_shell.h"

#include <ctype.h>

#define EXTENTS	8u
#define LOOK	2u			/* work of a look at one extent */
#define SCAN	(EXTENTS * LOOK)	/* work of a look at all of them */

static struct core *c;
static u32 t;
static u32 owner[128];	/* client, by the letter of its domain */
static u64 runs[SH_EXTENTS];	/* the sequence that runs in a span, by extent */

static void __maybe_unused start(u32 extents, u32 floor)
{
	sh_config(extents);
	sh.cfg.starve_ns = 1ull << 40;
	sh.cfg.step_deadline_ns = 1ull << 60;
	sh.cfg.watermark_scale_factor = 0;
	sh.cfg.cache_floor = floor;
	sh_start();
	c = sh.core;
	t = sh_attach(1, "t");
	owner['t'] = t;
}

static void __maybe_unused restart(u32 extents, u32 floor)
{
	sh_stop();
	start(extents, floor);
}

static void __maybe_unused setup(void)
{
	start(EXTENTS, 0);
}

/*
 * A domain @letter of @tenant with spans of @nr extents: of one extent four
 * blocks, of two extents one block, of three extents four blocks.
 */
static void __maybe_unused domain(char letter, u64 tenant, u32 nr)
{
	static const u16 layers[] = { [1] = 1, [2] = 8, [3] = 3 };
	struct kvmm_attach_req req = sh_attach_req((char []){ letter, 0 });
	int cl;

	req.group[0].layers = layers[nr];
	cl = sh_attach_as(tenant, &req);
	ck_assert_int_ge(cl, 0);
	ck_assert_uint_eq(sh.cl[cl].info.span_extents, nr);
	sh_settle();
	owner[(int)letter] = (u32)cl;
}

static u32 __maybe_unused dom_of(char letter)
{
	return sh.cl[owner[tolower(letter)]].info.domain;
}

static struct kv_domain *__maybe_unused d_of(char letter)
{
	return &c->domains[dom_of(letter)];
}

/* Protect @nr blocks of the domain, as memory.min would. */
static void __maybe_unused protect(char letter, u32 nr)
{
	d_of(letter)->emin = nr;
	d_of(letter)->elow = nr;
}

/* Evict the last @nr cached blocks of a span. */
static void __maybe_unused thin(u32 span, u32 nr)
{
	struct kv_domain *d = &c->domains[c->spans[span].domain];
	u32 blk = span * SH_PER + d->dev.span_blocks;

	d->dev.keep_spans = 1;
	while (nr--)
		SH_CORE(index_evict(c, --blk));
	d->dev.keep_spans = 0;
	sh_check();
}

/* A sequence of the domain runs in the span at @e, and writes its last block. */
static void __maybe_unused run_in(char letter, u32 e, u32 seed)
{
	u32 cl = owner[tolower(letter)];
	u32 tokens = (d_of(letter)->dev.span_blocks - 1) * SH_BT + 1;

	thin(e, 1);
	runs[e] = sh_ready(cl, tokens, SH_BT - 1, seed);
	sh_compute(cl, runs[e], sh_status(cl, runs[e])->cached_len, tokens,
		   seed);
	ck_assert_uint_eq(c->spans[e].nr_free + c->spans[e].nr_cached, 0);
}

/* Fill an empty span of the domain with cache.  Return: its first extent. */
static u32 __maybe_unused fill_one(char letter, u32 seed)
{
	u32 cl = owner[tolower(letter)], e;
	u32 nr = d_of(letter)->dev.span_blocks * SH_BT;
	u64 seq = sh_ready(cl, nr, 0, seed);

	sh_compute(cl, seq, 0, nr, seed);
	e = block_span(c, table_get(c, &seq_find(c, cl, seq)->tab, 0));
	ck_assert_int_eq(sh_close(cl, seq), 0);
	ck_assert_uint_eq(c->spans[e].nr_cached, c->spans[e].nr_blocks);
	return e;
}

/*
 * Give the whole pool to domains, as @spans says.  The spans are made first:
 * a running sequence would have its domain take some ahead.
 */
static void __maybe_unused layout(const char *spans)
{
	u32 i, e = 0, seed[SH_EXTENTS];

	for (i = 0; spans[i]; i++) {
		SH_CORE(extent_run_make(c, dom_of(spans[i]), e));
		sh_settle();
		e += d_of(spans[i])->dev.span_extents;
	}
	ck_assert_uint_eq(e, core_sizes(c)->nr_extents);
	for (i = 0; spans[i]; i++)
		seed[fill_one(spans[i], 1000 * (i + 1))] = 1000 * (i + 1);
	for (i = e = 0; spans[i]; e += c->spans[e].nr_extents, i++)
		if (isupper(spans[i]))
			run_in(spans[i], e, seed[e]);
	/* From now on nothing is given back but by a test. */
	for (i = 0; i < SH_CLIENTS; i++)
		sh.cl[i].stubborn = true;
}

/* Evict a span of cache and give it back: it is memory in no span. */
static void __maybe_unused release(u32 span)
{
	thin(span, c->spans[span].nr_cached);
	SH_CORE(span_release(c, span));
	sh_check();
}

static char __maybe_unused letter_of(const struct kv_extent *x)
{
	const struct kv_span *sp = &c->spans[x->span];
	char letter = c->domains[sp->domain].name[0];

	if (x->state == EXT_REVOKING)
		return '!';
	if (x->state != EXT_SPAN)
		return x->want ? '+' : '.';
	if (sp->nr_free == sp->nr_blocks)
		return strchr("gt", letter) ? '.' : '_';
	return sp->nr_free + sp->nr_cached == sp->nr_blocks ? letter :
							      (char)toupper(letter);
}

/*
 * The spans as a string: '_' is an empty one, '.' one of the taker "t" or "g", or
 * memory in no span; '!' is asked back, '+' waits for the rest of its run.
 */
static const char *__maybe_unused map(void)
{
	static char text[SH_EXTENTS + 1];
	u32 e;

	for (e = 0; e < core_sizes(c)->nr_extents; e++)
		text[e] = letter_of(&c->extents[e]);
	text[e] = 0;
	return text;
}

static void __maybe_unused set(char letter, u32 which, u64 value)
{
	int err;

	SH_CORE(err = core_domain_set(c, sh.now, dom_of(letter), which, value));
	ck_assert_int_eq(err, 0);
	sh_check();
}

static void __maybe_unused set_blocks(char letter, u32 which, u32 blocks)
{
	set(letter, which, blocks * SH_BLOCK);
}

/* Time passes, and no event comes. */
static void __maybe_unused wait_long(void)
{
	sh.now += 2 * sh.cfg.starve_ns;
	c->now = sh.now;
}

/* The sequence that runs in the span at @e. */
static struct kv_seq __maybe_unused *seq_at(u32 e)
{
	return seq_find(c, owner[(int)c->domains[c->spans[e].domain].name[0]],
			runs[e]);
}

static u32 __maybe_unused state_at(char letter, u32 e)
{
	return sh_state(owner[(int)letter], runs[e]);
}

/* Two sequences become one family, as if one were a fork of the other. */
static void __maybe_unused make_family(struct kv_seq *a, struct kv_seq *b)
{
	sh_unchecked = true;
	b->family = a->family;
	a->fam_next = a->fam_prev = seq_index(c, b);
	b->fam_next = b->fam_prev = seq_index(c, a);
}

/* ---- steal.c ---- */

static bool __maybe_unused steal_with(char letter, bool back, struct run_look *l)
{
	bool ok;

	c->now = sh.now;
	c->work = 0;
	SH_CORE(ok = span_steal(c, dom_of(letter), back, l));
	sh_check();
	return ok;
}

/* Take one run, by a scan of its own. */
static bool __maybe_unused steal(char letter, bool back)
{
	struct run_look l = { .nr = 0 };

	return steal_with(letter, back, &l);
}

/* Take one run, and make spans of it: a free run would be the cheapest for ever. */
static void __maybe_unused expect_steal(char letter, const char *after)
{
	ck_assert(steal(letter, false));
	while (extent_run_take(c, dom_of(letter)) >= 0)
		;
	sh_settle();
	ck_assert_str_eq(map(), after);
}

static void __maybe_unused expect_no_steal(char letter)
{
	char before[SH_EXTENTS + 1];

	strcpy(before, map());
	ck_assert(!steal(letter, false));
	ck_assert_str_eq(map(), before);
}

#endif /* SPAN_SCENE_H */
