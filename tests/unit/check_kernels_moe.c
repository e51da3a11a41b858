// SPDX-License-Identifier: Apache-2.0
/*
 * check_kernels_moe.c - the ops of layers with experts
 *
 * For each variant that this CPU runs and for kernels of a device, against the
 * reference: odd sizes, groups of experts, equal logits, logits that are no numbers,
 * values at which activations are clamped.  The reference itself is compared with a
 * sort of the logits.  A row's bits must be those of the row alone, wherever the
 * outputs of its experts are; and rounding to bf16 by a device's op must equal
 * rounding its result.
 */
#include "cuda_fixture.h"

#define ALPHA	1.702f
#define LIMIT	7.0f

static const struct kern_ops *ref;
static struct kern_ctx *ctx;
static struct rng rng;

static void setup(void)
{
	ref = kern_get("ref");
	rng.s = 77;
	ck_assert_int_eq(kern_ctx_create(2, &ctx), 0);
}

static void teardown(void)
{
	kern_ctx_destroy(ctx);
}

/* A random number at or beyond the points where swiglu changes. */
static float odd_float(u32 i)
{
	static const float edge[] = {
		0, -0.0f, LIMIT, -LIMIT, 7.0001f, -7.0001f, 6.9999f, 1e-30f,
		-50, -60, 1e30f, -1e30f, -1, 104,
	};

	return i % 5 ? rng_float(&rng) * 12 :
		       edge[i / 5 % ARRAY_SIZE(edge)];
}

static void try_swiglu(const struct kern_ops *ops, u32 m, u32 d, u32 gap)
{
	const u32 ld = d + gap, n = m * d;
	float *gate = poisoned(m * ld), *up = poisoned(m * ld);
	float *got = poisoned(n), *want = poisoned(n), *alone = poisoned(d);
	u32 i, at;

	for (i = 0; i < m * ld; i++) {
		gate[i] = odd_float(i);
		up[i] = odd_float(i + i / 5 % 13);
	}
	ref->swiglu(NULL, gate, up, ld, m, d, ALPHA, LIMIT, want);
	ops->swiglu(ctx, gate, up, ld, m, d, ALPHA, LIMIT, got);
	for (i = 0; i < n; i++) {
		at = i / d * ld + i % d;
		assert_close("swiglu", got[i], want[i], fabs((double)gate[at]) *
			     (fabs((double)up[at]) + 1) + 1e-30);
	}
	ops->swiglu(NULL, gate + (m - 1) * ld, up + (m - 1) * ld, 0, 1, d,
		    ALPHA, LIMIT, alone);
	ck_assert_bits_eq(got + (m - 1) * d, alone, d);
	free(gate);
	free(up);
	free(got);
	free(want);
	free(alone);
}

START_TEST(test_swiglu)
{
	const struct kern_ops *ops;
	float y;
	u32 v;

	/* By hand: 2 * sigmoid(3.404) * (0.5 + 1); both clamped. */
	ref->swiglu(NULL, (float[]){ 2 }, (float[]){ 0.5f }, 0, 1, 1, ALPHA,
		    LIMIT, &y);
	ck_assert_float_eq_tol(y, 2.9034879f, 1e-6f);
	ref->swiglu(NULL, (float[]){ 9 }, (float[]){ -8 }, 0, 1, 1, ALPHA,
		    LIMIT, &y);
	ck_assert_float_eq_tol(y, -41.9997196f, 1e-5f);
	for (v = 0; (ops = hosted_at(v)); v++) {
		try_swiglu(ops, 1, 1, 0);
		try_swiglu(ops, 5, 77, 3);
		try_swiglu(ops, 3, 1100, 0);
		if (!hosted_is_device(ops))
			try_swiglu(ops, 300, 1030, 0);
	}
}
END_TEST

/* ---------------------------------------------------------------- routing */

struct shape {
	u32	m;
	u32	experts;
	u32	chosen;
	u32	groups;
	u32	groups_chosen;
};

static const struct shape shapes[] = {
	{ 1, 1, 1, 1, 1 }, { 9, 4, 2, 1, 1 }, { 33, 32, 4, 1, 1 },
	{ 40, 128, 8, 1, 1 }, { 17, 60, 6, 1, 1 }, { 21, 160, 6, 8, 3 },
	{ 5, 12, 4, 6, 2 }, { 7, 16, 16, 4, 4 }, { 2, 1024, 32, 64, 5 },
};

/* Few values, so that many are equal. */
static float *make_logits(const struct shape *s, bool equal)
{
	float *l = rng_floats(&rng, s->m * s->experts);
	u32 i;

	for (i = 0; i < s->m * s->experts; i++)
		l[i] = equal ? floorf(l[i] * 4) : l[i] * 20;
	return l;
}

static struct kern_route route_of(const struct shape *s, const float *logits,
				  bool over_chosen, u32 *ids, float *shares)
{
	return (struct kern_route){
		.logits = logits, .m = s->m, .experts = s->experts,
		.chosen = s->chosen, .groups = s->groups,
		.groups_chosen = s->groups_chosen, .over_chosen = over_chosen,
		.scale = 2.5f, .ids = ids, .shares = shares,
	};
}

struct expert {
	double	key;
	u32	id;
};

static int by_key(const void *pa, const void *pb)
{
	const struct expert *a = pa, *b = pb;

	if (a->key != b->key)
		return a->key < b->key ? 1 : -1;
	return a->id < b->id ? -1 : 1;
}

/* The reference's ids are those of a sort; its shares those of one division. */
static void check_row(const struct shape *s, const float *l, bool over_chosen,
		      const u32 *ids, const float *shares)
{
	const u32 size = s->experts / s->groups;
	struct expert e[KERN_MAX_EXPERTS], g[KERN_MAX_EXPERT_GROUPS];
	double sum = 0;
	u32 i, j;

	for (i = 0; i < s->groups; i++) {
		g[i] = (struct expert){ -INFINITY, i };
		for (j = 0; j < size; j++)
			g[i].key = fmax(g[i].key, l[i * size + j]);
	}
	qsort(g, s->groups, sizeof(*g), by_key);
	for (i = 0; i < s->experts; i++) {
		e[i] = (struct expert){ -INFINITY, i };
		for (j = 0; j < s->groups_chosen; j++)
			if (g[j].id == i / size)
				e[i].key = l[i];
		sum += over_chosen ? 0 : exp(l[i]);
	}
	qsort(e, s->experts, sizeof(*e), by_key);
	for (i = 0; over_chosen && i < s->chosen; i++)
		sum += exp(e[i].key);
	for (i = 0; i < s->chosen; i++) {
		ck_assert_uint_eq(ids[i], e[i].id);
		ck_assert_double_eq_tol(shares[i], 2.5 * exp(e[i].key) / sum,
					1e-6);
	}
}

static void try_route(const struct kern_ops *ops, const struct shape *s,
		      bool over_chosen, bool equal)
{
	const u32 n = s->m * s->chosen;
	float *l = make_logits(s, equal), *got = poisoned(n);
	float *want = poisoned(n), alone[KERN_MAX_CHOSEN];
	u32 *ids = (u32 *)poisoned(n), *want_ids = (u32 *)poisoned(n), i;
	u32 alone_ids[KERN_MAX_CHOSEN];
	struct shape last = *s;
	struct kern_route r;

	r = route_of(s, l, over_chosen, want_ids, want);
	ref->route(NULL, &r);
	r = route_of(s, l, over_chosen, ids, got);
	ops->route(ctx, &r);
	for (i = 0; i < s->m && ops == ref; i++)
		check_row(s, l + i * s->experts, over_chosen,
			  ids + i * s->chosen, got + i * s->chosen);
	ck_assert_bits_eq(ids, want_ids, n);
	for (i = 0; i < n; i++)
		assert_close("route", got[i], want[i], 2.5);
	last.m = 1;
	r = route_of(&last, l + (s->m - 1) * s->experts, over_chosen, alone_ids,
		     alone);
	ops->route(NULL, &r);
	ck_assert_bits_eq(ids + n - s->chosen, alone_ids, s->chosen);
	ck_assert_bits_eq(got + n - s->chosen, alone, s->chosen);
	free(l);
	free(got);
	free(want);
	free(ids);
	free(want_ids);
}

START_TEST(test_route)
{
	const struct kern_ops *ops;
	u32 v, i;

	for (v = 0; (ops = hosted_at(v)); v++)
		for (i = 0; i < ARRAY_SIZE(shapes); i++) {
			try_route(ops, &shapes[i], true, false);
			try_route(ops, &shapes[i], false, false);
			try_route(ops, &shapes[i], true, true);
		}
}
END_TEST

/* Ids are safe to use whatever the logits are. */
START_TEST(test_route_nan)
{
	static const struct shape s = { 4, 8, 4, 2, 1 };
	const struct kern_ops *ops;
	float l[32], shares[16];
	u32 ids[16], v, i, seen[4];
	struct kern_route r;

	for (i = 0; i < 32; i++)
		l[i] = i < 8 ? NAN : i < 16 ? INFINITY : i < 24 ? -INFINITY :
		       i % 3 ? NAN : rng_float(&rng);
	for (v = 0; (ops = hosted_at(v)); v++) {
		memset(ids, 0xff, sizeof(ids));
		memset(seen, 0, sizeof(seen));
		r = route_of(&s, l, _i, ids, shares);
		ops->route(ctx, &r);
		for (i = 0; i < 16; i++) {
			ck_assert_uint_lt(ids[i], 8);
			ck_assert_uint_eq(seen[i / 4] >> ids[i] & 1, 0);
			seen[i / 4] |= 1u << ids[i];
		}
	}
}
END_TEST

/* --------------------------------------------------------------- blending */

struct blend {
	struct kern_blend	b;
	float			*y;
	u32			*slots;
	float			*shares;
	float			*base;
	float			*gates;
};

enum { NO_BASE, BASE, GATED };

/* Every slot is used once, in a random order. */
static struct blend blend_create(u32 m, u32 chosen, u32 d, u32 base)
{
	const u32 n = m * chosen;
	struct blend b = {
		.y = rng_floats(&rng, n * d), .shares = rng_floats(&rng, n),
		.base = base ? rng_floats(&rng, m * d) : NULL,
		.gates = base == GATED ? rng_floats(&rng, m) : NULL,
		.slots = (u32 *)poisoned(n),
	};
	u32 i, j;

	for (i = 0; i < n; i++) {
		j = rng_next(&rng) % (i + 1);
		b.slots[i] = b.slots[j];
		b.slots[j] = i;
	}
	b.b = (struct kern_blend){
		.y = b.y, .slots = b.slots, .shares = b.shares, .base = b.base,
		.gates = b.gates, .m = m, .chosen = chosen, .d = d,
		.out = poisoned(m * d),
	};
	return b;
}

static void blend_destroy(struct blend *b)
{
	free(b->y);
	free(b->slots);
	free(b->shares);
	free(b->base);
	free(b->gates);
	free(b->b.out);
}

static double blend_scale(const struct kern_blend *b, u32 row, u32 col)
{
	double scale = b->base ? fabs((double)b->base[row * b->d + col]) : 0;
	u32 i, at;

	for (i = 0; i < b->chosen; i++) {
		at = row * b->chosen + i;
		scale += fabs((double)b->shares[at] *
			      (double)b->y[b->slots[at] * b->d + col]);
	}
	return scale;
}

/* The last row by itself, with its outputs at the start of y. */
static void blend_alone(const struct kern_ops *ops, const struct kern_blend *b)
{
	const u32 row = b->m - 1, d = b->d;
	float *y = poisoned(b->chosen * d), *out = poisoned(d);
	struct kern_blend one = *b;
	u32 slots[KERN_MAX_CHOSEN], i;

	for (i = 0; i < b->chosen; i++) {
		slots[i] = i;
		memcpy(y + i * d, b->y + b->slots[row * b->chosen + i] * d,
		       d * sizeof(*y));
	}
	one.m = 1;
	one.y = y;
	one.slots = slots;
	one.shares = b->shares + row * b->chosen;
	one.base = b->base ? b->base + row * d : NULL;
	one.gates = b->gates ? b->gates + row : NULL;
	one.out = out;
	ops->blend(NULL, &one);
	ck_assert_bits_eq(b->out + row * d, out, d);
	free(y);
	free(out);
}

static void try_blend(const struct kern_ops *ops, u32 m, u32 chosen, u32 d,
		      u32 base)
{
	struct blend b = blend_create(m, chosen, d, base);
	float *want = poisoned(m * d);
	struct kern_blend as = b.b;
	u32 i;

	as.out = want;
	ref->blend(NULL, &as);
	ops->blend(ctx, &b.b);
	for (i = 0; i < m * d; i++)
		assert_close("blend", b.b.out[i], want[i],
			     blend_scale(&b.b, i / d, i % d));
	blend_alone(ops, &b.b);
	free(want);
	blend_destroy(&b);
}

START_TEST(test_blend)
{
	const struct kern_ops *ops;
	float y;
	u32 v;

	ref->blend(NULL, &(struct kern_blend){
		.y = (float[]){ 3, 5, 7 }, .slots = (u32[]){ 2, 0 },
		.shares = (float[]){ 0.5f, 2 }, .base = (float[]){ 1 }, .m = 1,
		.chosen = 2, .d = 1, .out = &y,
	});
	ck_assert(y == 10.5f);
	ref->blend(NULL, &(struct kern_blend){
		.y = (float[]){ 3 }, .slots = (u32[]){ 0 },
		.shares = (float[]){ 2 }, .base = (float[]){ 5 },
		.gates = (float[]){ 0 }, .m = 1, .chosen = 1, .d = 1, .out = &y,
	});
	ck_assert(y == 8.5f);
	for (v = 0; (ops = hosted_at(v)); v++) {
		try_blend(ops, 1, 1, 1, NO_BASE);
		try_blend(ops, 5, 2, 77, BASE);
		try_blend(ops, 5, 2, 77, GATED);
		try_blend(ops, 9, 8, 128, NO_BASE);
		try_blend(ops, 3, 4, 2880, GATED);
		if (!hosted_is_device(ops))
			try_blend(ops, 300, 4, 515, BASE);
	}
}
END_TEST

/* ------------------------------------------- rounding by the device's ops */

static void dev_setup(void)
{
	setup();
	dev_open();
}

static void dev_teardown(void)
{
	dev_close();
	teardown();
}

/* The results of @n numbers in y, with rounding and without. */
static void check_settled(const char *what, const float *plain,
			  const float *rounded, u32 n)
{
	float *p = dev_result(plain, n), *r = dev_result(rounded, n);

	round_all(p, n);
	assert_same(what, r, p, n);
	free(p);
	free(r);
}

START_TEST(test_settles)
{
	static const struct shape s = { 5, 16, 3, 1, 1 };
	const u32 d = _i ? 37 : 64, n = 15 * d, skew = _i;
	float *x = rng_floats(&rng, n), *dx = dev_floats(x, n, skew);
	float *l = make_logits(&s, false), *out[2], *act[2], *shares[2];
	struct blend b = blend_create(5, 3, d, BASE);
	struct kern_route r;
	u32 i, *ids = dev_alloc(15 * sizeof(*ids));

	for (i = 0; i < 2; i++) {
		out[i] = dev_poison(5 * d, skew);
		act[i] = dev_poison(n, skew);
		shares[i] = dev_poison(15, 0);
		dev.ops->settles(dev.ctx, i);
		dev.ops->swiglu(dev.ctx, dx, dx, 0, 15, d, ALPHA, LIMIT,
				act[i]);
		r = route_of(&s, dev_floats(l, 80, 0), true, ids, shares[i]);
		dev.ops->route(dev.ctx, &r);
		b.b.y = dx;
		b.b.slots = dev_put(b.slots, 15 * sizeof(*b.slots));
		b.b.shares = dev_floats(b.shares, 15, 0);
		b.b.base = dev_floats(b.base, 5 * d, skew);
		free(i ? NULL : b.b.out);
		b.b.out = out[i];
		dev.ops->blend(dev.ctx, &b.b);
	}
	dev.ops->settles(dev.ctx, false);
	check_settled("swiglu", act[0], act[1], n);
	check_settled("route", shares[0], shares[1], 15);
	check_settled("blend", out[0], out[1], 5 * d);
	b.b.out = NULL;
	blend_destroy(&b);
	free(x);
	free(l);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("kernels-moe");
	TCase *tc = tcase_create("against-reference");
	TCase *on = tcase_create("device");
	SRunner *sr;
	int failed;

	tcase_set_tags(tc, "unit kernels");
	tcase_set_timeout(tc, 120);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_swiglu);
	tcase_add_test(tc, test_route);
	tcase_add_loop_test(tc, test_route_nan, 0, 2);
	tcase_add_test(tc, test_blend);
	suite_add_tcase(s, tc);
	tcase_set_tags(on, "unit kernels cuda");
	tcase_set_timeout(on, 120);
	tcase_add_checked_fixture(on, dev_setup, dev_teardown);
	tcase_add_loop_test(on, test_settles, 0, 2);
	suite_add_tcase(s, on);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
