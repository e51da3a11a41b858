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
 * A box is some panels of W by all rows of x.  A panel stays in a cache close by while up
 * to TILE_M rows at a time are multiplied by it.
 */
#include "kernels/cpu/gemm.h"

#ifdef KERN_INTS

#include "kernels/cpu/ints_vec.h"
#include "kernels/cpu/unroll.h"

#define TILE_M		8u
/* A part of K, and the rows of x from which on K is cut. */
#define K_PART		1024u
#define PARTS_MIN	8u
/* Distance of the prefetch in bytes, into the second-level cache: see ask_codes(). */
#define AHEAD		6144u

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
 * struct ints_job - one product
 * @j:		it; its rows are integers, and behind those of a row are its groups
 * @chunk:	columns of a chunk of W
 * @panel:	bytes of a panel
 */
struct ints_job {
	const struct gemm_job	*j;
	u32			chunk;
	u64			panel;
};

static const u8 nl_codes[16] = {
	1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241,
};
static const u8 fp4_codes[16] = {
	12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0,
};

/* ---- rows of x ---- */

#define GROUP_VECS	(INT_COLS / VW)

typedef s8 vb __attribute__((vector_size(VW), aligned(1), may_alias));

/* The largest lane, none of which is negative, and the sum of lanes. */
#if VW == 16
static __inline_always u32 vi_most(vi v)
{
	return _mm512_reduce_max_epu32((__m512i)v);
}

static __inline_always s32 vi_sum(vi v)
{
	return _mm512_reduce_add_epi32((__m512i)v);
}
#else
static __inline_always u32 vi_most(vi v)
{
	s32 most = v[0];
	u32 i;

	for (i = 1; i < VW; i++)
		most = max(most, v[i]);
	return most;
}

static __inline_always s32 vi_sum(vi v)
{
	s32 sum = 0;
	u32 i;

	for (i = 0; i < VW; i++)
		sum += v[i];
	return sum;
}
#endif

/* The largest magnitude, as bits, so that a NaN is larger than all numbers. */
static __inline_always u32 largest(const vf *x)
{
	vi most = { 0 }, bits, more;
	u32 i;

KERN_UNROLL(4)
	for (i = 0; i < GROUP_VECS; i++) {
		bits = (vi)x[i] & 0x7fffffff;
		more = bits > most;
		most = (bits & more) | (most & ~more);
	}
	return vi_most(most);
}

/* The sum of integers of columns from @i * VW on, @n vectors. */
static __inline_always s32 sum_of(const vi *q, u32 i, u32 n)
{
	vi sum = { 0 };

	for (; n; n--)
		sum += q[i++];
	return vi_sum(sum);
}

/*
 * The integers of a group, at @to.  Adding 1.5 * 2^23 rounds to an integer, which the low bits
 * then are.
 *
 * Return: their scale.
 */
static __inline_always float group_round(const float *from, vi *q, s8 *to)
{
	const float magic = 0x1.8p23f;
	vf x[GROUP_VECS], by;
	float most;
	u32 bits, i;
	bool none;

KERN_UNROLL(4)
	for (i = 0; i < GROUP_VECS; i++)
		x[i] = vf_load(from + i * VW);
	bits = largest(x);
	memcpy(&most, &bits, sizeof(most));
	/* Too small for a quotient in f32: 0.  No number: all results are none. */
	none = bits >= 0x7f800000u || !(most > 1e-30f);
	by = vf_set(none ? 0.0f : 127.0f / most);
KERN_UNROLL(4)
	for (i = 0; i < GROUP_VECS; i++) {
		q[i] = (vi)(x[i] * by + vf_set(magic)) - (vi)vf_set(magic);
		q[i] = none ? vi_set(0) : q[i];
		*(vb *)(to + i * VW) = __builtin_convertvector(q[i], vb);
	}
	if (bits >= 0x7f800000u)
		return __builtin_nanf("");
	return none ? 0.0f : most / 127.0f;
}

/* All of one row of x. */
static void ints_round(const struct gemm_job *j, u32 row, void *to)
{
	const struct int_form form = int_form_of(j->type);
	const float *x = j->x + row * j->x_ld;
	const s32 zero = INT_SIGNED && form.zero == 128 ? 0 : form.zero;
	s8 *q = to;
	struct group *g = (struct group *)(q + j->k);
	const u32 half = form.groups == 16 ? GROUP_VECS / 2 : GROUP_VECS;
	vi n[GROUP_VECS];
	s32 sums[2];
	u32 k;

	for (k = 0; k < j->k; k += INT_COLS, q += INT_COLS, g++) {
		g->scale = group_round(x + k, n, q);
		sums[0] = sum_of(n, 0, half);
		sums[1] = sum_of(n, half, GROUP_VECS - half);
		g->from[0] = -zero * sums[0];
		g->from[1] = -zero * sums[1];
		g->less[0] = -g->scale * (float)sums[0];
		g->less[1] = -g->scale * (float)sums[1];
	}
}

static u64 ints_row_bytes(const struct gemm_job *j)
{
	return ALIGN_UP(j->k + j->k / INT_COLS * sizeof(struct group), 64ull) + 64;
}

/* ---- units of W ---- */

/* Bits above those that @w has, from a plane of 2 bits or of 1 bit. */
static __inline_always void add_pairs(const u8 *p, const u32 up, vq *w)
{
	u32 i, s;

KERN_UNROLL(2)
	for (i = 0; i < 2; i++) {
		const vq v = vq_load(p + 64 * i);

KERN_UNROLL(4)
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

KERN_UNROLL(8)
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

KERN_UNROLL(4)
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

static __inline_always vy load_scale(const struct int_form f, const u8 *p)
{
	if (f.scale == INT_SCALE_E8M0)
		return vy_half_e8m0(p);
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

KERN_UNROLL(8)
	for (m = 0; m < mr; m++)
		acc[m] = vq_set(zero ? group_of(at, m)->from[half] : 0);
KERN_UNROLL(8)
	for (i = v; i < v + nr; i++) {
KERN_UNROLL(8)
		for (m = 0; m < mr; m++) {
			memcpy(&x, at->q + m * at->bytes + 4 * i, sizeof(x));
			acc[m] = vq_dot(acc[m], w[i], x, f.zero == 128);
		}
	}
KERN_UNROLL(8)
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

/* A tile: a panel, its first row of x, and a part of K. */
struct tile_at {
	u32	p;
	u32	row;
	u32	k;
	u32	k_end;
};

/* The place of row @m of the tile in y. */
static __inline_always float *sums_at(const struct ints_job *i,
				      const struct tile_at *at, u32 m)
{
	return i->j->y + (at->row + m) * i->j->y_ld + at->p * INT_ROWS;
}

/* Write the sums of row @m; behind the last part of K, with the bias. */
static __inline_always void sums_store(const struct ints_job *i,
				       const struct tile_at *at, u32 m, vy sums)
{
	const struct gemm_job *j = i->j;
	const u32 n = at->p * INT_ROWS, nr = min(j->n - n, INT_ROWS);

	if (j->bias && at->k_end == j->k)
		sums = vy_add(sums, vy_load_part(j->bias + n, nr));
	vy_store_part(sums_at(i, at, m), sums, nr);
}

/*
 * Ask for the codes that are needed soon: of this part, then of the next panel.
 *
 * The second-level cache waits for more lines at a time than the first-level one.  With two
 * threads on Zen 4, decode read Q4_K at 0.71 of the memory's bandwidth with _MM_HINT_T0,
 * and at 0.94 with _MM_HINT_T1 and ask_scales().
 */
static __inline_always void ask_codes(const struct int_form f, const u8 *codes,
				      const u8 *end, u64 panel, u64 part)
{
	const u8 *ask = codes + AHEAD;
	u32 a;

	if (ask >= end)
		ask += panel - part;
KERN_UNROLL(8)
	for (a = 0; a < f.bits; a++)
		_mm_prefetch(ask + 64 * a, _MM_HINT_T1);
}

/* Ask for the same scales of the next panel. */
static __inline_always void ask_scales(const u8 *scales, u64 panel, u64 bytes)
{
	u64 a;

	for (a = 0; a < bytes; a += 64)
		_mm_prefetch(scales + panel + a, _MM_HINT_T1);
}

/* @mr rows of x and one panel. */
static __inline_always void tile(const struct int_form f,
				 const struct ints_job *i,
				 const struct tile_at *t, const u32 mr)
{
	const struct gemm_job *j = i->j;
	const u64 unit = f.bits * 64u, bytes = int_chunk_bytes(&f);
	const u64 part = (t->k_end - t->k) / INT_COLS * unit;
	const u8 *panel = (const u8 *)j->w + t->p * i->panel;
	const u8 *codes = panel + t->k / INT_COLS * unit, *end = codes + part;
	const u8 *scales = panel + j->k / INT_COLS * unit +
			   t->k / i->chunk * bytes;
	const u8 *x = (const u8 *)j->rows + t->row * j->row_bytes;
	struct rows_at at = {
		.q = (const s8 *)x + t->k, .bytes = j->row_bytes,
		.g = (const struct group *)(x + j->k) + t->k / INT_COLS,
	};
	struct scales block;
	vy y[TILE_M];
	u32 u, m;

KERN_UNROLL(8)
	for (m = 0; m < mr; m++)
		y[m] = !t->k ? vy_zero() :
		       vy_load_part(sums_at(i, t, m),
				    min(j->n - t->p * INT_ROWS, INT_ROWS));
	for (; codes < end; scales += bytes) {
		block = load_scales(f, scales);
		ask_scales(scales, i->panel, bytes);
		for (u = 0; u < i->chunk / INT_COLS; u++, codes += unit,
		     at.q += INT_COLS, at.g++) {
			ask_codes(f, codes, end, i->panel, part);
			unit_add(f, codes, &block, u, &at, mr, y);
		}
	}
KERN_UNROLL(8)
	for (m = 0; m < mr; m++)
		sums_store(i, t, m, y[m]);
}

/* A compiled copy for each form and some numbers of rows. */
#define TILE(id, mr, ...)						\
static __attribute__((noinline)) void					\
tile_##mr##_##id(const struct ints_job *i, const struct tile_at *t)	\
{									\
	tile(INT_FORM(id, __VA_ARGS__), i, t, mr);			\
}
#define TILES(id, ...)							\
	TILE(id, 8, __VA_ARGS__)					\
	TILE(id, 4, __VA_ARGS__)					\
	TILE(id, 2, __VA_ARGS__)					\
	TILE(id, 1, __VA_ARGS__)
INT_KINDS(TILES)

typedef void tile_fn(const struct ints_job *i, const struct tile_at *t);

#define TILES_OF(id)	{ tile_1_##id, tile_2_##id, tile_4_##id, tile_8_##id }

static tile_fn * const tiles[NR_KERN_DTYPES][4] = {
#define x(id, ...)	[KERN_##id] = TILES_OF(id),
	INT_KINDS(x)
#undef x
	/* The length of a block is no constant. */
	[KERN_W4_64] = TILES_OF(W4_32), [KERN_W4_128] = TILES_OF(W4_32),
	[KERN_W8_128] = TILES_OF(W8_32),
};

/* All rows of x, by one part of K of one panel. */
static void panel_mul(const struct ints_job *i, struct tile_at t)
{
	tile_fn * const *fns = tiles[i->j->type];
	u32 size;

	for (; t.row < i->j->m; t.row += 1u << size) {
		size = min(31 - __builtin_clz(i->j->m - t.row), 3);
		fns[size](i, &t);
	}
}

/*
 * Some panels.  If reading W is the limit, they are read from beginning to end; else parts
 * of rows of x stay in the first-level cache.
 */
static void ints_mul(const struct gemm_job *j, const struct gemm_box *b)
{
	const struct int_form form = int_form_of(j->type);
	const u32 chunk = kern_block_elems(j->type);
	const u32 len = j->m < PARTS_MIN ? j->k : K_PART;
	const struct ints_job i = {
		.j = j, .chunk = chunk,
		.panel = int_panel_bytes(&form, j->k, chunk),
	};
	struct tile_at t = { .p = b->p };

	for (; t.k < j->k; t.k = t.k_end) {
		t.k_end = min(j->k, t.k + len);
		for (t.p = b->p; t.p < b->p_end; t.p++)
			panel_mul(&i, t);
	}
}

const struct gemm_kind KERN_FN(kind_ints) = {
	.w_rows = INT_ROWS, .m_rows = GEMM_ALL, .step_min = 2, .step_max = GEMM_ALL,
	.row_bytes = ints_row_bytes, .round = ints_round, .mul = ints_mul,
};

#endif /* KERN_INTS */
