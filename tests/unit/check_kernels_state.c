// SPDX-License-Identifier: Apache-2.0
/*
 * check_kernels_state.c - the ops of recurrent layers
 *
 * Every implementation against the recurrence in double precision, which knows no record
 * and no block; and in exact mode the same bits for all cuts of a sequence, tokens
 * between records, sizes of blocks, neighbours in the batch, and threads.  Blocks lie at
 * shuffled places, and are full of NaN until they are written.  Records before the one
 * that is read have no block.  budget: 60 s
 */
#include <stdio.h>

#include "check_kernels.h"
#include "tests/level.h"

#define LEN		70u	/* tokens of a sequence */
#define LAYERS		2u
#define NR_SEQS		2u
#define NO_ENTRY	0x7fffffffu

/* Sizes of a layer. */
struct shape {
	u32	heads, head_dim, d_state, groups, conv;
};

static const struct shape shapes[] = {
	{ 4, 16, 16, 1, 4 },
	{ 4, 64, 32, 2, 4 },
	{ 6, 48, 16, 3, 2 },
	{ 2, 32, 128, 1, 8 },
	{ 1, 80, 48, 1, 3 },
	{ 2, 256, 16, 1, 4 },
};

/* Inputs of a layer, for LEN tokens; @mid is what scan gets. */
struct layer {
	float	*x, *mid, *dt;			/* [LEN][..] */
	float	*w, *bias, *dt_bias, *a_log, *d;
};

/* Results of an op on a layer, and the scales of their errors. */
struct result {
	double	*y, *scale;			/* [LEN][..] */
};

/* Results of both ops. */
struct both {
	float	*conv, *scan;
};

static struct kern_state state;
static u32 channels, width;
static struct layer layers[LAYERS];
static struct kern_ctx *ctx;
static struct rng rng;

/* The pool. */
static u8 *mem;
static u32 nr_blocks, *places, nr_free;
static u64 unit_apart;

static void shape_make(const struct shape *s)
{
	u32 l, i;

	state = (struct kern_state){
		.unit = 64, .nr_layers = LAYERS, .heads = s->heads,
		.head_dim = s->head_dim, .d_state = s->d_state,
		.groups = s->groups, .conv = s->conv,
	};
	channels = kern_state_channels(&state);
	width = s->heads * s->head_dim;
	for (l = 0; l < LAYERS; l++) {
		layers[l] = (struct layer){
			.x = rng_floats(&rng, (u64)LEN * channels),
			.mid = rng_floats(&rng, (u64)LEN * channels),
			.dt = rng_floats(&rng, (u64)LEN * s->heads),
			.w = rng_floats(&rng, (u64)s->conv * channels),
			.bias = l ? rng_floats(&rng, channels) : NULL,
			.dt_bias = rng_floats(&rng, s->heads),
			.a_log = rng_floats(&rng, s->heads),
			.d = rng_floats(&rng, s->heads),
		};
		/* From slow decay to fast. */
		for (i = 0; i < s->heads; i++)
			layers[l].dt_bias[i] = 6 * layers[l].dt_bias[i] - 2;
		for (i = 0; i < (u64)LEN * s->heads; i++)
			layers[l].dt[i] *= i % 37 ? 2 : 40;
	}
}

static void shape_free(void)
{
	u32 l;

	for (l = 0; l < LAYERS; l++) {
		free(layers[l].x);
		free(layers[l].mid);
		free(layers[l].dt);
		free(layers[l].w);
		free(layers[l].bias);
		free(layers[l].dt_bias);
		free(layers[l].a_log);
		free(layers[l].d);
	}
}

/* ---- in double precision, over the whole sequence ---- */

static struct result result_make(u32 d)
{
	const struct result r = {
		.y = calloc((size_t)LEN * d, sizeof(*r.y)),
		.scale = calloc((size_t)LEN * d, sizeof(*r.scale)),
	};

	ck_assert(r.y && r.scale);
	return r;
}

static void result_free(struct result *r)
{
	free(r->y);
	free(r->scale);
}

static struct result true_conv(const struct layer *in)
{
	struct result r = result_make(channels);
	double sum, mag, v;
	u32 t, c, j;

	for (t = 0; t < LEN; t++)
		for (c = 0; c < channels; c++) {
			sum = in->bias ? in->bias[c] : 0;
			mag = fabs(sum);
			for (j = 0; j < state.conv; j++) {
				if (t + j + 1 < state.conv)
					continue;
				v = (double)in->w[j * channels + c] *
				    in->x[(t + j + 1 - state.conv) * channels + c];
				sum += v;
				mag += fabs(v);
			}
			r.y[t * channels + c] = sum / (1 + exp(-sum));
			r.scale[t * channels + c] = mag;
		}
	return r;
}

/* One dimension of one head. */
static void true_dim(const struct layer *in, u32 h, u32 p, struct result *r)
{
	const float *x = in->mid;
	const u32 g = h / (state.heads / state.groups), n_all = state.d_state;
	const u32 b = width + g * n_all, c = b + state.groups * n_all;
	double s[KERN_MAX_HEAD_DIM] = { 0 }, m[KERN_MAX_HEAD_DIM] = { 0 };
	double at, dt, decay, sum, mag, v, by;
	u32 t, n;

	for (t = 0; t < LEN; t++, x += channels) {
		v = x[h * state.head_dim + p];
		at = (double)in->dt[t * state.heads + h] + in->dt_bias[h];
		dt = log1p(exp(at));
		decay = exp(-exp(in->a_log[h]) * dt);
		sum = in->d[h] * v;
		mag = fabs(sum);
		for (n = 0; n < n_all; n++) {
			by = dt * x[b + n] * v;
			s[n] = decay * s[n] + by;
			m[n] = decay * m[n] + fabs(by) * (1 + fabs(at) / 4);
			sum += x[c + n] * s[n];
			mag += fabs(x[c + n]) * m[n];
		}
		r->y[t * width + h * state.head_dim + p] = sum;
		r->scale[t * width + h * state.head_dim + p] =
			mag * (1 + t / 4.0);
	}
}

static struct result true_scan(const struct layer *in)
{
	struct result r = result_make(width);
	u32 h, p;

	for (h = 0; h < state.heads; h++)
		for (p = 0; p < state.head_dim; p++)
			true_dim(in, h, p, &r);
	return r;
}

/* ---- in records ---- */

/* A pool of blocks that hold @units units, and of records every @tokens tokens. */
static void pool_make(u32 tokens, u32 units)
{
	u32 i, j, t;

	state.tokens = tokens;
	/* A block is a little larger than its units. */
	state.block_bytes = units * kern_state_stride(&state) + 64;
	ck_assert_uint_eq(kern_state_per(&state), units);
	unit_apart = state.block_bytes / state.unit;
	nr_blocks = 4 * NR_SEQS * kern_state_blocks(&state) *
		    DIV_ROUND_UP(LEN, tokens);
	mem = aligned_alloc(64, nr_blocks * state.block_bytes);
	places = calloc(nr_blocks, sizeof(*places));
	ck_assert(mem && places);
	memset(mem, 0xff, nr_blocks * state.block_bytes);
	state.base = mem;
	ck_assert_int_eq(kern_state_check(&state), 0);
	hosted_pool(mem, nr_blocks * state.block_bytes);
	for (i = 0; i < nr_blocks; i++)
		places[i] = i * unit_apart;
	for (i = nr_blocks; i-- > 1;) {
		j = rng_next(&rng) % (i + 1);
		t = places[i];
		places[i] = places[j];
		places[j] = t;
	}
	nr_free = nr_blocks;
}

struct seq {
	u32	table[1024];
	u32	nr;		/* entries */
	u32	at;
};

/* Give @s the records that @n tokens need, and take the old ones. */
static void seq_prepare(struct seq *s, u32 n)
{
	const u32 blocks = kern_state_blocks(&state);
	const u32 old = s->at ? kern_state_before(&state, s->at) * blocks : 0;
	const u32 nr = DIV_ROUND_UP(s->at + n, state.tokens) * blocks;
	u32 i;

	ck_assert_uint_le(nr, ARRAY_SIZE(s->table));
	for (i = 0; i < old; i++) {
		if (s->table[i] == NO_ENTRY)
			continue;
		memset(mem + s->table[i] * state.unit, 0xff, state.block_bytes);
		places[nr_free++] = s->table[i];
		s->table[i] = NO_ENTRY;
	}
	while (s->nr < nr) {
		ck_assert_uint_gt(nr_free, 0);
		s->table[s->nr++] = places[--nr_free];
	}
}

/* The rows of a batch, gathered from @from, [LEN][@d]. */
static float *batch_rows(const float *from, u32 d, const struct kern_attn_seq *seqs,
			 u32 nr)
{
	float *to = poisoned((u64)NR_SEQS * LEN * d);
	u32 i;

	for (i = 0; i < nr; i++)
		memcpy(to + (u64)seqs[i].first_row * d,
		       from + (u64)seqs[i].start_pos * d,
		       (size_t)seqs[i].nr_rows * d * sizeof(*to));
	return to;
}

/* Scatter the rows of a batch to @to, [LEN][@d]; both sequences have the same ones. */
static void batch_back(float *rows, u32 d, const struct kern_attn_seq *seqs, u32 nr,
		       float *to)
{
	const float *from;
	float *at;
	u32 i;

	for (i = 0; i < nr; i++) {
		from = rows + (u64)seqs[i].first_row * d;
		at = to + (u64)seqs[i].start_pos * d;
		if (i && seqs[i].start_pos + seqs[i].nr_rows <= seqs[0].start_pos)
			ck_assert_msg(!memcmp(at, from,
					      (size_t)seqs[i].nr_rows * d * sizeof(*at)),
				      "two sequences of the same tokens differ");
		memcpy(at, from, (size_t)seqs[i].nr_rows * d * sizeof(*at));
	}
	free(rows);
}

/* One step of layer @l. */
static void step_layer(const struct kern_ops *ops, u32 l,
		       const struct kern_attn_seq *seqs, u32 nr, struct both *y)
{
	const struct layer *in = &layers[l];
	float *x = batch_rows(in->x, channels, seqs, nr);
	float *dt = batch_rows(in->dt, state.heads, seqs, nr);
	float *mid = batch_rows(in->mid, channels, seqs, nr);
	float *conv = poisoned((u64)NR_SEQS * LEN * channels);
	float *scan = poisoned((u64)NR_SEQS * LEN * width);

	ops->conv(ctx, &(struct kern_conv){
		.state = &state, .layer = l, .nr_seqs = nr, .seqs = seqs,
		.x = x, .w = in->w, .bias = in->bias, .y = conv,
	});
	ops->scan(ctx, &(struct kern_scan){
		.state = &state, .layer = l, .nr_seqs = nr, .seqs = seqs,
		.x = mid, .dt = dt, .dt_bias = in->dt_bias,
		.a_log = in->a_log, .d = in->d, .y = scan,
	});
	batch_back(conv, channels, seqs, nr, y->conv);
	batch_back(scan, width, seqs, nr, y->scan);
	free(x);
	free(dt);
	free(mid);
}

/* Fill in the batch: up to @most tokens of each sequence.  Return: its sequences. */
static u32 batch_make(struct seq *s, u32 most, struct kern_attn_seq *seqs)
{
	u32 i, nr = 0, row = 0, n;

	for (i = 0; i < NR_SEQS; i++) {
		n = most >= LEN ? LEN : rng_range(&rng, 1, most);
		n = min(n, LEN - s[i].at);
		if (!n)
			continue;
		seq_prepare(&s[i], n);
		seqs[nr++] = (struct kern_attn_seq){
			.table = s[i].table, .nr_rows = n, .first_row = row,
			.start_pos = s[i].at,
		};
		row += n;
		s[i].at += n;
	}
	return nr;
}

/* All tokens in cuts of up to @most; each sequence has its own. */
static void run(const struct kern_ops *ops, u32 tokens, u32 units, u32 most,
		struct both y[LAYERS])
{
	struct seq *s = calloc(NR_SEQS, sizeof(*s));
	struct kern_attn_seq seqs[NR_SEQS];
	u32 l, nr;

	pool_make(tokens, units);
	for (l = 0; l < LAYERS; l++)
		y[l] = (struct both){
			.conv = poisoned((u64)LEN * channels),
			.scan = poisoned((u64)LEN * width),
		};
	while ((nr = batch_make(s, most, seqs)))
		for (l = 0; l < LAYERS; l++)
			step_layer(ops, l, seqs, nr, &y[l]);
	free(s);
	free(mem);
	free(places);
}

static void both_free(struct both y[LAYERS])
{
	u32 l;

	for (l = 0; l < LAYERS; l++) {
		free(y[l].conv);
		free(y[l].scan);
	}
}

static void assert_result(const struct kern_ops *ops, const char *what, u32 d,
			  const float *y, const struct result *r)
{
	u32 i;

	for (i = 0; i < LEN * d; i++)
		if (!(fabs(y[i] - r->y[i]) <= KERN_TOL * r->scale[i]))
			ck_abort_msg("%s:%s: %s, token %u, element %u: got %.9g, want %.9g, scale %.3g",
				     ops->name, ops->variant, what, i / d, i % d,
				     y[i], r->y[i], r->scale[i]);
}

static void setup(void)
{
	ck_assert_int_eq(kern_ctx_create(2, &ctx), 0);
}

static void teardown(void)
{
	kern_ctx_destroy(ctx);
}

START_TEST(test_near)
{
	const struct kern_ops *ops;
	struct result conv[LAYERS], scan[LAYERS];
	struct both y[LAYERS];
	u32 i, l;

	rng.s = _i + 1;
	shape_make(&shapes[_i]);
	for (l = 0; l < LAYERS; l++) {
		conv[l] = true_conv(&layers[l]);
		scan[l] = true_scan(&layers[l]);
	}
	for (i = 0; (ops = hosted_at(i)); i++) {
		if (hosted_is_device(ops) && _i >= hosted_rounds(2, ARRAY_SIZE(shapes)))
			continue;
		run(ops, 32, 3, 20, y);
		for (l = 0; l < LAYERS; l++) {
			assert_result(ops, "conv", channels, y[l].conv, &conv[l]);
			assert_result(ops, "scan", width, y[l].scan, &scan[l]);
		}
		both_free(y);
	}
	for (l = 0; l < LAYERS; l++) {
		result_free(&conv[l]);
		result_free(&scan[l]);
	}
	shape_free();
}
END_TEST

static const struct {
	u32	tokens, units, most;
} cuts[] = {
	{ 16, 1, 1 }, { 16, 2, 30 }, { 64, 5, LEN }, { 48, 64, 7 }, { 16, 3, LEN },
};

START_TEST(test_bits)
{
	const struct kern_ops *ops;
	struct both want[LAYERS], got[LAYERS];
	u32 i, j, l;

	rng.s = _i + 100;
	shape_make(&shapes[_i]);
	for (i = 0; (ops = hosted_at(i)); i++) {
		if (ops->mode != KERN_MODE_EXACT)
			continue;
		/* A stand-in is slow. */
		if (hosted_is_device(ops) && _i >= hosted_rounds(2, ARRAY_SIZE(shapes)))
			continue;
		run(ops, 4096, 8, LEN, want);
		for (j = 0; j < ARRAY_SIZE(cuts); j++) {
			if (hosted_is_device(ops) && cuts[j].most == 1 && _i)
				continue;
			run(ops, cuts[j].tokens, cuts[j].units, cuts[j].most, got);
			for (l = 0; l < LAYERS; l++) {
				ck_assert_bits_eq(got[l].conv, want[l].conv,
						  (size_t)LEN * channels);
				ck_assert_bits_eq(got[l].scan, want[l].scan,
						  (size_t)LEN * width);
			}
			both_free(got);
		}
		both_free(want);
	}
	shape_free();
}
END_TEST

#define NORM_ROWS	5u

/* Lengths of a part, and parts of a row. */
static const struct {
	u32	each, groups;
} norms[] = {
	{ 16, 1 }, { 48, 2 }, { 33, 3 }, { 512, 1 }, { 700, 2 },
};

static void near_norm(const struct kern_ops *ops, const struct kern_gated_norm *n)
{
	const u32 each = n->d / n->groups;
	double sum, g, want;
	u32 i, j, k;

	for (i = 0; i < n->m * n->groups; i++) {
		for (sum = 0, j = 0; j < each; j++) {
			k = i * each + j;
			g = n->x[k] * (n->z[k] / (1 + exp(-(double)n->z[k])));
			sum += g * g;
		}
		for (j = 0; j < each; j++) {
			k = i * each + j;
			g = n->x[k] * (n->z[k] / (1 + exp(-(double)n->z[k])));
			want = g / sqrt(sum / each + n->eps) * n->w[k % n->d];
			if (!(fabs(n->y[k] - want) <= KERN_TOL * fabs(want) + 1e-30))
				ck_abort_msg("%s:%s: row %u, element %u: got %.9g, want %.9g",
					     ops->name, ops->variant, k / n->d,
					     k % n->d, n->y[k], want);
		}
	}
}

/* Near the definition; and each row as it is alone, in place. */
START_TEST(test_gated_norm)
{
	const u32 d = norms[_i].each * norms[_i].groups, n = NORM_ROWS * d;
	const struct kern_ops *ops;
	struct kern_gated_norm a = {
		.m = NORM_ROWS, .d = d, .groups = norms[_i].groups, .eps = 1e-5f,
	};
	float *x, *w, *z, *y;
	u32 i, r;

	rng.s = _i + 1;
	x = rng_floats(&rng, n);
	z = rng_floats(&rng, n);
	w = rng_floats(&rng, d);
	for (i = 0; i < n; i++)
		z[i] *= 10;
	for (i = 0; (ops = hosted_at(i)); i++) {
		y = poisoned(n);
		a.x = x;
		a.z = z;
		a.w = w;
		a.y = y;
		a.m = NORM_ROWS;
		ops->gated_norm(ctx, &a);
		near_norm(ops, &a);
		a.m = 1;
		for (r = 0; r < NORM_ROWS; r++) {
			float *row = malloc(d * sizeof(*row));

			memcpy(row, x + r * d, d * sizeof(*row));
			a.x = a.y = row;
			a.z = z + r * d;
			ops->gated_norm(ctx, &a);
			ck_assert_bits_eq(row, y + r * d, d);
			free(row);
		}
		free(y);
	}
	free(x);
	free(z);
	free(w);
}
END_TEST

static const struct kern_state good = {
	.unit = 64, .block_bytes = 32768, .tokens = 16, .nr_layers = 2, .heads = 4,
	.head_dim = 16, .d_state = 16, .groups = 2, .conv = 4,
};

START_TEST(test_check)
{
	struct kern_state s = good;

	ck_assert_int_eq(kern_state_check(&s), 0);
	switch (_i) {
	case 0: s.unit = 0; break;
	case 1: s.block_bytes = kern_state_stride(&s) - 1; break;
	case 2: s.tokens = 24; break;
	case 3: s.tokens = 0; break;
	case 4: s.nr_layers = 0; break;
	case 5: s.heads = 0; break;
	case 6: s.heads = 3; break;
	case 7: s.head_dim = 24; break;
	case 8: s.d_state = 0; break;
	case 9: s.d_state = 272; break;
	case 10: s.groups = 0; break;
	case 11: s.conv = 1; break;
	case 12: s.conv = KERN_MAX_CONV + 1; break;
	case 13: s.tokens = 8192; break;
	case 14: s.unit = 2; break;
	}
	ck_assert_int_eq(kern_state_check(&s), -EINVAL);
}
END_TEST

/* Each unit has a place of its own, and all channels have one. */
START_TEST(test_layout)
{
	const u32 tables[] = { 0, 100, 200, 300, 400, 500, 600, 700, 800, 900 };
	struct kern_state s = good;
	u32 l, u, per;
	float *last = NULL, *at;
	u8 base[64];

	s.base = base;
	s.unit = 4096;
	s.block_bytes = 3 * kern_state_stride(&s) + 64;
	per = kern_state_per(&s);
	ck_assert_uint_eq(per, 3);
	ck_assert_uint_eq(kern_state_floats(&s), 16 * 19);
	ck_assert_uint_eq(kern_state_shared(&s), 96);
	/* 4 heads, and 64 channels that heads share, in one unit. */
	ck_assert_uint_eq(kern_state_units(&s), 5);
	ck_assert_uint_eq(kern_state_blocks(&s), 4);
	for (l = 0; l < s.nr_layers; l++)
		for (u = 0; u < kern_state_units(&s); u++, last = at) {
			at = kern_state_at(&s, tables, 1, l, u);
			ck_assert_ptr_eq(at, base + 4096ull *
					 tables[4 + (l * 5 + u) / per] +
					 (l * 5 + u) % per * kern_state_stride(&s));
			ck_assert(at > last);
		}
	ck_assert_uint_eq(kern_state_before(&s, 1), 0);
	ck_assert_uint_eq(kern_state_before(&s, 16), 0);
	ck_assert_uint_eq(kern_state_before(&s, 17), 1);
	ck_assert_uint_eq(kern_state_before(&s, 32), 1);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("kernels_state");
	TCase *tc = tcase_create("state");
	SRunner *sr;
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, test_near, 0, ARRAY_SIZE(shapes));
	tcase_add_loop_test(tc, test_bits, 0, ARRAY_SIZE(shapes));
	tcase_add_loop_test(tc, test_gated_norm, 0, ARRAY_SIZE(norms));
	tcase_add_loop_test(tc, test_check, 0, 15);
	tcase_add_test(tc, test_layout);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
