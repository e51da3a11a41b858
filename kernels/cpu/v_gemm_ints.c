// SPDX-License-Identifier: Apache-2.0
/*
 * v_gemm_ints.c - products with packed weights in blocks, in fast mode
 *
 * Rows of x become integers first: each group of INT_COLS neighbours has a scale of its
 * own, its largest magnitude divided by 127.  A product of bytes then adds up four columns
 * of 16 rows of W in one instruction (ints.h), a unit of 32 columns is a whole number, and
 * only that is multiplied by both scales, in f32.
 *
 * W has codes without a sign.  A zero that all blocks of a type share is subtracted in
 * whole numbers: sums begin with -zero times the sum of the group of x.  A min of a block
 * is multiplied by the sum of x in f32.
 *
 * A sum runs over K in the order of units, in one lane, for any number of rows of x.  So
 * an element's bits do not depend on the company of its row.
 *
 * An item is some panels of W by all rows of x that fit the buffer.  A panel stays in a
 * cache close by while up to TILE_M rows at a time are multiplied by it.
 */
#include "kernels/cpu/gemm.h"

#ifdef KERN_INTS

#include "kernels/cpu/ints_vec.h"

#define TILE_M		8u
/* Distance of the prefetch in bytes. */
#define AHEAD		4096u
/* Items for each thread; least panels of an item. */
#define ITEMS		16
#define STEP_MIN	2ull
/* Bytes for rows of x without threads: one row of INT_MAX_COLS fits. */
#define ALONE_BYTES	(256u << 10)

/**
 * struct group - INT_COLS neighbours of a row of x
 * @scale:	an element is its integer times this
 * @less:	the sum of each half, as it is multiplied by a min
 * @from:	the start of the sum of each half: -zero times the sum of integers
 *
 * With scales of INT_COLS columns in W the first half is the whole.
 */
struct group {
	float	scale;
	float	less[2];
	s32	from[2];
};

/**
 * struct ints_job - one product, or some rows of it
 * @j:		the product
 * @form:	of W
 * @chunk:	columns of a chunk of W
 * @panel:	bytes of a panel
 * @x:		rows of integers, and behind each its groups
 * @x_bytes:	bytes from a row to the next
 * @m:		first row of y
 * @nr:		rows
 */
struct ints_job {
	struct gemm_job		*j;
	struct int_form		form;
	u32			chunk;
	u64			panel;
	u8			*x;
	u64			x_bytes;
	u32			m;
	u32			nr;
};

static const u8 nl_codes[16] = {
	1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241,
};
static const u8 fp4_codes[16] = {
	12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0,
};

/* ---- rows of x ---- */

/* The largest magnitude, as bits, so that a NaN is larger than all numbers. */
static u32 largest(const float *x)
{
	u32 bits[INT_COLS], i, most = 0;

	memcpy(bits, x, sizeof(bits));
	for (i = 0; i < INT_COLS; i++)
		bits[i] &= 0x7fffffff;
	for (i = 0; i < INT_COLS; i++)
		most = max(most, bits[i]);
	return most;
}

/* The integers of a group; returns their scale. */
static float group_round(const float *x, s8 *q)
{
	const u32 bits = largest(x);
	float most, by;
	u32 i;

	memcpy(&most, &bits, sizeof(most));
	/* Too small for a quotient in f32: 0.  No number: all results are none. */
	if (!(most > 1e-30f) || bits >= 0x7f800000u) {
		memset(q, 0, INT_COLS);
		return bits >= 0x7f800000u ? __builtin_nanf("") : 0.0f;
	}
	by = 127.0f / most;
	for (i = 0; i < INT_COLS; i++) {
		/* Adding it rounds to an integer. */
		const float r = x[i] * by + 0x1.8p23f;
		s32 n;

		memcpy(&n, &r, sizeof(n));
		q[i] = (s8)n;
	}
	return most / 127.0f;
}

static s32 sum_of(const s8 *q, u32 n)
{
	s32 sum = 0;
	u32 i;

	for (i = 0; i < n; i++)
		sum += q[i];
	return sum;
}

/* All of one row of x. */
static void row_round(const struct ints_job *i, u32 row)
{
	const struct gemm_job *j = i->j;
	const float *x = j->x + (i->m + row) * j->x_ld;
	const s32 zero = INT_SIGNED && i->form.zero == 128 ? 0 : i->form.zero;
	s8 *q = (s8 *)(i->x + row * i->x_bytes);
	struct group *g = (struct group *)(q + j->k);
	u32 k, half = i->form.groups == 16 ? INT_COLS / 2 : INT_COLS;
	s32 sums[2];

	for (k = 0; k < j->k; k += INT_COLS, q += INT_COLS, g++) {
		g->scale = group_round(x + k, q);
		sums[0] = sum_of(q, half);
		sums[1] = sum_of(q + half, INT_COLS - half);
		g->from[0] = -zero * sums[0];
		g->from[1] = -zero * sums[1];
		g->less[0] = -g->scale * (float)sums[0];
		g->less[1] = -g->scale * (float)sums[1];
	}
}

static void round_item(void *arg, u32 row)
{
	row_round(arg, row);
}

/* ---- units of W ---- */

/* Bits above those that @w has, from a plane of 2 bits or of 1 bit. */
static __inline_always void add_pairs(const u8 *p, const u32 up, vq *w)
{
	u32 i, s;

#pragma GCC unroll 2
	for (i = 0; i < 2; i++) {
		const vq v = vq_load(p + 64 * i);

#pragma GCC unroll 4
		for (s = 0; s < 4; s++) {
			const s32 at = (s32)up - 2 * (s32)s;
			const vq moved = at >= 0 ? vq_left(v, at) :
						   vq_right(v, -at);

			w[i + 2 * s] = vq_or(w[i + 2 * s],
					     vq_and(moved, vq_set8(3 << up)));
		}
	}
}

static __inline_always void add_bits(const u8 *p, const u32 up, vq *w)
{
	const vq v = vq_load(p);
	u32 i;

#pragma GCC unroll 8
	for (i = 0; i < INT_VECS; i++) {
		const s32 at = (s32)up - (s32)i;
		const vq moved = at >= 0 ? vq_left(v, at) : vq_right(v, -at);

		w[i] = vq_or(w[i], vq_and(moved, vq_set8(1 << up)));
	}
}

static __inline_always void load_halves(const u8 *p, vq *w)
{
	const vq low = vq_set8(15);
	u32 i;

#pragma GCC unroll 4
	for (i = 0; i < 4; i++) {
		const vq v = vq_load(p + 64 * i);

		w[i] = vq_and(v, low);
		w[i + 4] = vq_and(vq_right(v, 4), low);
	}
}

/* The codes of a unit as bytes. */
static __inline_always void load_codes(const struct int_form f, const u8 *p,
				       vq *w)
{
	u32 i;

	if (f.bits >= 4 && f.bits < 8)
		load_halves(p, w);
	for (i = 0; f.bits < 4 && i < INT_VECS; i++)
		w[i] = vq_set(0);
	for (i = 0; f.bits == 8 && i < INT_VECS; i++)
		w[i] = vq_load(p + 64 * i);
	if (f.bits < 4)
		add_pairs(p, 0, w);
	if (f.bits == 6)
		add_pairs(p + 256, 4, w);
	if (f.bits == 5)
		add_bits(p + 256, 4, w);
	if (f.bits == 3)
		add_bits(p + 128, 2, w);
	for (i = 0; f.codes != INT_CODES_PLAIN && i < INT_VECS; i++)
		w[i] = vq_look(f.codes == INT_CODES_NL ? nl_codes : fp4_codes,
			       w[i]);
}

/* The scales of one block of each row, and where those of its groups are. */
struct scales {
	vy		scale;
	vy		min;
	const u8	*groups;
};

/* Halves of the powers of two of e8m0: exponents of f32.  The smallest one becomes 0. */
static __inline_always vy load_e8m0(const u8 *p)
{
	const vy half = vy_set(0.5f);

	return vy_mul(vy_exponent(p), half);
}

static __inline_always vy load_scale(const struct int_form f, const u8 *p)
{
	if (f.scale == INT_SCALE_E8M0)
		return load_e8m0(p);
	return f.scale == INT_SCALE_F16 ? vy_load_f16(p) :
					  vy_load((const float *)(const void *)p);
}

static __inline_always struct scales load_scales(const struct int_form f,
						 const u8 *p)
{
	const u32 bytes = INT_ROWS * (f.scale == INT_SCALE_F16 ? 2 :
				      f.scale == INT_SCALE_F32 ? 4 : 1);
	struct scales s = { .scale = load_scale(f, p), .min = vy_zero() };

	p += bytes;
	if (f.min) {
		s.min = load_scale(f, p);
		p += bytes;
	}
	if (f.is_zero) {
		s.min = vy_mul(s.scale, vy_load_u8(p));
		p += INT_ROWS;
	}
	s.groups = p;
	return s;
}

/* The scales of a unit, or of one of its halves, @g groups into a block. */
static __inline_always struct scales group_scales(const struct int_form f,
						  const struct scales *s, u32 g)
{
	const u8 *p = s->groups + g * INT_ROWS * (f.min ? 2 : 1);
	struct scales of = *s;

	if (!f.groups)
		return of;
	of.scale = vy_mul(s->scale, vy_load_s8(p));
	if (f.min)
		of.min = vy_mul(s->min, vy_load_u8(p + INT_ROWS));
	return of;
}

/* ---- products ---- */

/* Rows of x, from one unit on. */
struct rows_at {
	const s8		*q;
	const struct group	*g;
	u64			bytes;		/* from a row to the next, of both */
};

static __inline_always const struct group *group_of(const struct rows_at *at, u32 m)
{
	return (const void *)((const u8 *)at->g + m * at->bytes);
}

/* Sums of whole numbers of a row as they count, with both scales. */
static __inline_always vy part_end(const struct int_form f, vq acc,
				   const struct scales *s,
				   const struct group *g, const u32 half, vy y)
{
	y = vy_fma(vy_of(acc), vy_mul(s->scale, vy_set(g->scale)), y);
	/* A min of Q4_1 and Q5_1 is added, others are subtracted. */
	if (f.min && !f.groups)
		y = vy_fma(s->min, vy_set(-g->less[half]), y);
	else if (f.min || f.is_zero)
		y = vy_fma(s->min, vy_set(g->less[half]), y);
	return y;
}

/* Some columns of a unit, from vector @v on, and @mr rows of x. */
static __inline_always void part_add(const struct int_form f, const vq *w,
				     const u32 v, const u32 nr,
				     const struct scales *s,
				     const struct rows_at *at, const u32 half,
				     const u32 mr, vy *y)
{
	const bool zero = f.zero && !(INT_SIGNED && f.zero == 128);
	vq acc[TILE_M];
	u32 i, m;
	s32 x;

#pragma GCC unroll 8
	for (m = 0; m < mr; m++)
		acc[m] = vq_set(zero ? group_of(at, m)->from[half] : 0);
#pragma GCC unroll 8
	for (i = v; i < v + nr; i++) {
#pragma GCC unroll 8
		for (m = 0; m < mr; m++) {
			memcpy(&x, at->q + m * at->bytes + 4 * i, sizeof(x));
			acc[m] = vq_dot(acc[m], w[i], x, f.zero == 128);
		}
	}
#pragma GCC unroll 8
	for (m = 0; m < mr; m++)
		y[m] = part_end(f, acc[m], s, group_of(at, m), half, y[m]);
}

/* One unit and @mr rows of x. */
static __inline_always void unit_add(const struct int_form f, const u8 *codes,
				     const struct scales *block, u32 u,
				     const struct rows_at *at, const u32 mr,
				     vy *y)
{
	const bool halves = f.groups == 16;
	const struct scales a = group_scales(f, block, halves ? 2 * u : u);
	struct scales b;
	vq w[INT_VECS];

	load_codes(f, codes, w);
	part_add(f, w, 0, halves ? 4 : 8, &a, at, 0, mr, y);
	if (halves) {
		b = group_scales(f, block, 2 * u + 1);
		part_add(f, w, 4, 4, &b, at, 1, mr, y);
	}
}

/* Write sums of a row, with the bias. */
static __inline_always void sums_store(const struct gemm_job *j, u32 m, u32 n,
				       vy sums)
{
	const u32 nr = min(j->n - n, INT_ROWS);
	float *y = j->y + m * j->y_ld + n;

	if (j->bias)
		sums = vy_add(sums, vy_load_part(j->bias + n, nr));
	vy_store_part(y, sums, nr);
}

/* @mr rows of x, from row @row of the buffer on, and one panel. */
static __inline_always void tile(const struct int_form f,
				 const struct ints_job *i, u32 p, u32 row,
				 const u32 mr)
{
	const struct gemm_job *j = i->j;
	const u64 unit = f.bits * 64u, bytes = int_chunk_bytes(&f);
	const u8 *codes = (const u8 *)j->w + p * i->panel;
	const u8 *scales = codes + j->k / INT_COLS * unit;
	const u8 *x = i->x + row * i->x_bytes;
	struct rows_at at = {
		.q = (const s8 *)x, .bytes = i->x_bytes,
		.g = (const struct group *)(x + j->k),
	};
	struct scales block;
	vy y[TILE_M];
	u32 k, u, m, a;

#pragma GCC unroll 8
	for (m = 0; m < mr; m++)
		y[m] = vy_zero();
	for (k = 0; k < j->k; scales += bytes) {
		block = load_scales(f, scales);
		for (u = 0; u < i->chunk / INT_COLS; u++, k += INT_COLS,
		     at.q += INT_COLS, at.g++) {
#pragma GCC unroll 8
			for (a = 0; a < f.bits; a++)
				_mm_prefetch(codes + AHEAD + 64 * a,
					     _MM_HINT_T0);
			unit_add(f, codes, &block, u, &at, mr, y);
			codes += unit;
		}
	}
#pragma GCC unroll 8
	for (m = 0; m < mr; m++)
		sums_store(j, i->m + row + m, p * INT_ROWS, y[m]);
}

/* A compiled copy for each form and some numbers of rows. */
#define TILE(id, mr, ...)						\
static __attribute__((noinline)) void					\
tile_##mr##_##id(const struct ints_job *i, u32 p, u32 row)		\
{									\
	tile(INT_FORM(id, __VA_ARGS__), i, p, row, mr);			\
}
#define TILES(id, ...)							\
	TILE(id, 8, __VA_ARGS__)					\
	TILE(id, 4, __VA_ARGS__)					\
	TILE(id, 2, __VA_ARGS__)					\
	TILE(id, 1, __VA_ARGS__)
INT_KINDS(TILES)

typedef void tile_fn(const struct ints_job *i, u32 p, u32 row);

#define TILES_OF(id)	{ tile_1_##id, tile_2_##id, tile_4_##id, tile_8_##id }

static tile_fn * const tiles[NR_KERN_DTYPES][4] = {
#define x(id, ...)	[KERN_##id] = TILES_OF(id),
	INT_KINDS(x)
#undef x
	/* The length of a block is no constant. */
	[KERN_W4_64] = TILES_OF(W4_32), [KERN_W4_128] = TILES_OF(W4_32),
	[KERN_W8_128] = TILES_OF(W8_32),
};

/* Some panels and all rows of the buffer. */
static void panels_item(void *arg, u32 item)
{
	const struct ints_job *i = arg;
	tile_fn * const *fns = tiles[i->j->type];
	u32 p = item * i->j->n_step, row, size;
	const u32 end = min(p + i->j->n_step, DIV_ROUND_UP(i->j->n, INT_ROWS));

	for (; p < end; p++) {
		for (row = 0; row < i->nr; row += 1u << size) {
			size = min(31 - __builtin_clz(i->nr - row), 3);
			fns[size](i, p, row);
		}
	}
}

/* The rows of x of @i. */
static void rows_mul(struct kern_ctx *ctx, struct ints_job *i)
{
	u32 row;

	if ((u64)i->nr * i->j->k >= KERN_PARALLEL_MIN / 8)
		kern_parallel(ctx, i->nr, round_item, i);
	else
		for (row = 0; row < i->nr; row++)
			row_round(i, row);
	kern_parallel(ctx, i->j->n_items, panels_item, i);
}

void KERN_FN(gemm_ints)(struct kern_ctx *ctx, struct gemm_job *j)
{
	u8 alone[ALONE_BYTES] __attribute__((aligned(64)));
	const struct int_form form = int_form_of(j->type);
	const u32 chunk = kern_block_elems(j->type), threads = ctx ?
			  kern_ctx_nr_threads(ctx) : 1;
	struct ints_job i = {
		.j = j, .form = form, .chunk = chunk,
		.panel = int_panel_bytes(&form, j->k, chunk),
		.x = ctx ? (u8 *)kern_ctx_room(ctx) + KERN_ROOM : alone,
		.x_bytes = ALIGN_UP(j->k + j->k / INT_COLS *
				    sizeof(struct group), 64ull) + 64,
	};
	const u32 panels = DIV_ROUND_UP(j->n, INT_ROWS);
	const u32 fit = (ctx ? KERN_ROOM : ALONE_BYTES) / i.x_bytes;

	j->n_step = max((u64)panels / (ITEMS * threads), STEP_MIN);
	j->n_items = DIV_ROUND_UP(panels, j->n_step);
	for (; i.m < j->m; i.m += i.nr) {
		i.nr = min(j->m - i.m, fit);
		rows_mul(ctx, &i);
	}
}

#endif /* KERN_INTS */
