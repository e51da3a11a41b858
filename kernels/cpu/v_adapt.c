// SPDX-License-Identifier: Apache-2.0
/*
 * v_adapt.c - add the products of adapters
 *
 * There are two phases, with one start of the threads each: t = x * a^T, then y += scale *
 * t * b.  The work of a phase is cut into units of up to four rows of a part: by four rows of
 * a, or by UP_COLS columns of b.  Units of all parts are in one line, and an item is a piece
 * of that line.  So threads have equal shares for one row and for many, for one part and for
 * thousands.
 *
 * Neighbours in the line use the same part of a or b, which stays in the caches.  With one row
 * a part's units are in the order of memory, so each a and b is read once, from beginning to
 * end.  With more rows a widened number of a or b serves all rows of the unit.
 *
 * A sum of t runs over the columns in parts of K_PART, in order, each as vec.h describes; a
 * sum of y over j, in rising order, in one lane.  No sum is split among units, and rows of a
 * unit take the same steps as a row alone.  So a row's bits depend on the row and its adapter.
 */
#include "kernels/cpu/vec.h"

#define K_PART		1024u
/* Rows of a unit, rows of a, and those side by side with the same rows of x. */
#define ROWS		4u
#define DOWN_ROWS	4u
#define SLAB		4u
/* Columns of b. */
#define UP_COLS		256u
/* With one row: elements of a and of b that are brought into the caches ahead. */
#define DOWN_AHEAD	1024u
#define UP_AHEAD	256u
/* Items for each thread. */
#define ITEMS		8u

/**
 * struct adapt_job - one phase
 * @a:	 the call
 * @unit: compute unit @u of part @p
 * @up:	 it is the second phase
 * @per: weight of an item
 * @t:	 place of each part's sums in t
 * @at:	 weight of the units of all parts before each, and of all parts
 */
struct adapt_job {
	const struct kern_adapt	*a;
	void			(*unit)(const struct adapt_job *j, u32 p, u64 u);
	bool			up;
	u64			per;
	u64			t[KERN_MAX_ADAPT_PARTS];
	u64			at[KERN_MAX_ADAPT_PARTS + 1];
};

/* Bring element @i into the second-level cache; it may lie behind the matrix. */
static __inline_always void ahead(const void *p, u64 i, const enum kern_dtype type)
{
	__builtin_prefetch((const u8 *)p + i * (type == KERN_F32 ? 4 : 2), 0, 2);
}

/* ------------------------------------------------------------ t = x * a^T */

/* Rows of x, the first row of a, and the sums: those of a row are @rank apart. */
struct down {
	const float	*x[ROWS];
	const void	*a;
	float		*t;
	u32		rank;
	u32		cols;
};

/* Sums over @len columns from @k on; lanes from mr * nr on are zero. */
static __inline_always vf down_sums(const struct down *d, const u32 mr, const u32 nr,
				    const enum kern_dtype type, u64 j, u32 k, u32 len)
{
	const u32 end = k + len;
	vf acc[VW] = { }, x[ROWS], a;
	u32 i, m, n, left;

	for (i = k; i < end; i += VW) {
		left = end - i;
#pragma GCC unroll 4
		for (m = 0; m < mr; m++)
			x[m] = left >= VW ? vf_load(d->x[m] + i) :
			       vf_load_part(d->x[m], i, left, KERN_F32);
#pragma GCC unroll 4
		for (n = 0; n < nr; n++) {
			a = left >= VW ?
			    vf_load_as(d->a, (j + n) * d->cols + i, type) :
			    vf_load_part(d->a, (j + n) * d->cols + i, left, type);
			if (mr == 1)
				ahead(d->a, (j + n) * d->cols + i + DOWN_AHEAD, type);
#pragma GCC unroll 4
			for (m = 0; m < mr; m++)
				acc[m * nr + n] = vf_fma(x[m], a, acc[m * nr + n]);
		}
	}
	return vf_sum_each(acc);
}

static __inline_always void down_tile(const struct down *d, const u32 mr, const u32 nr,
				      const enum kern_dtype type, u32 j)
{
	vf sums = { }, part;
	float f[VW];
	u32 k, m, n;

	for (k = 0; k < d->cols; k += K_PART) {
		part = down_sums(d, mr, nr, type, j, k, min(d->cols - k, K_PART));
		sums = k ? sums + part : part;
	}
	vf_store(f, sums);
	for (m = 0; m < mr; m++)
		for (n = 0; n < nr; n++)
			d->t[(u64)m * d->rank + j + n] = f[m * nr + n];
}

/* A compiled copy for each number of rows and type: @nr rows of a. */
#define DOWN(mr, type)							\
static __attribute__((noinline)) void					\
down_##mr##_##type(const struct down *d, u32 nr)			\
{									\
	const u32 step = VW / (mr) < DOWN_ROWS ? VW / (mr) : DOWN_ROWS;	\
	u32 j;								\
									\
	for (j = 0; j + step <= nr; j += step)				\
		down_tile(d, mr, step, type, j);			\
	for (; j < nr; j++)						\
		down_tile(d, mr, 1, type, j);				\
}

/* -------------------------------------------------- y += scale * t * b */

/* Sums of rows, as above; b at the first column; rows of y. */
struct up {
	const float	*t;
	const void	*b;
	float		*y[ROWS];
	u32		rank;
	u32		outs;
	float		scale;
};

/* @nv registers of columns from @n on, or the first @left columns of one. */
static __inline_always void up_tile(const struct up *u, const u32 mr, const u32 nv,
				    const enum kern_dtype type, u32 n, u32 left)
{
	vf acc[ROWS * 4] = { }, b[4], y;
	u32 j, m, v;
	u64 at;

	for (j = 0; j < u->rank; j++) {
		at = (u64)j * u->outs + n;
#pragma GCC unroll 4
		for (v = 0; v < nv; v++)
			b[v] = left >= VW ? vf_load_as(u->b, at + v * VW, type) :
			       vf_load_part(u->b, at, left, type);
#pragma GCC unroll 4
		for (v = 0; v < nv && mr == 1; v++)
			ahead(u->b, at + UP_AHEAD + v * VW, type);
#pragma GCC unroll 4
		for (m = 0; m < mr; m++)
#pragma GCC unroll 4
			for (v = 0; v < nv; v++)
				acc[m * nv + v] = vf_fma(vf_set(u->t[(u64)m * u->rank + j]),
							 b[v], acc[m * nv + v]);
	}
#pragma GCC unroll 4
	for (m = 0; m < mr; m++)
#pragma GCC unroll 4
		for (v = 0; v < nv; v++) {
			y = left >= VW ? vf_load(u->y[m] + n + v * VW) :
			    vf_load_part(u->y[m], n, left, KERN_F32);
			y = vf_fma(vf_set(u->scale), acc[m * nv + v], y);
			if (left >= VW)
				vf_store(u->y[m] + n + v * VW, y);
			else
				vf_store_part(u->y[m] + n, y, left);
		}
}

/* A compiled copy for each number of rows and type: columns @n to @end - 1. */
#define UP(mr, type)							\
static __attribute__((noinline)) void					\
up_##mr##_##type(const struct up *u, u32 n, u32 end)			\
{									\
	const u32 nv = VW == 16 || (mr) <= 2 ? 4 : 2;			\
									\
	for (; n + nv * VW <= end; n += nv * VW)			\
		up_tile(u, mr, nv, type, n, VW);			\
	for (; n + VW <= end; n += VW)					\
		up_tile(u, mr, 1, type, n, VW);				\
	if (n < end)							\
		up_tile(u, mr, 1, type, n, end - n);			\
}

#define ALL(x)								\
	x(1, KERN_F32) x(2, KERN_F32) x(3, KERN_F32) x(4, KERN_F32)	\
	x(1, KERN_BF16) x(2, KERN_BF16) x(3, KERN_BF16) x(4, KERN_BF16)

ALL(DOWN)
ALL(UP)

/* By type and rows. */
static void (* const down_of[2][ROWS])(const struct down *d, u32 nr) = {
#define x(mr, type)	[type == KERN_BF16][(mr) - 1] = down_##mr##_##type,
	ALL(x)
#undef x
};

static void (* const up_of[2][ROWS])(const struct up *u, u32 n, u32 end) = {
#define x(mr, type)	[type == KERN_BF16][(mr) - 1] = up_##mr##_##type,
	ALL(x)
#undef x
};

/* ------------------------------------------------------------------ units */

static u64 row_tiles(const struct kern_adapt_part *p)
{
	return DIV_ROUND_UP(p->m, ROWS);
}

/*
 * Units of a part are in the order of slabs of up to SLAB times DOWN_ROWS rows of a, then of
 * rows of x, then of rows of a.
 */
static void down_unit(const struct adapt_job *j, u32 part, u64 unit)
{
	const struct kern_adapt *a = j->a;
	const struct kern_adapt_part *p = &a->parts[part];
	const u64 tiles = row_tiles(p), slab = unit / (SLAB * tiles);
	const u64 in_slab = min(DIV_ROUND_UP(p->rank, DOWN_ROWS) - slab * SLAB, (u64)SLAB);
	const u64 left = unit % (SLAB * tiles), row = left / in_slab * ROWS;
	const u32 first = (slab * SLAB + left % in_slab) * DOWN_ROWS;
	const u32 rows = min(p->m - row, (u64)ROWS);
	struct down d = {
		.a = (const u8 *)p->a + (u64)first * a->cols * kern_dtype_size(a->dtype),
		.t = a->t + j->t[part] + row * p->rank + first,
		.rank = p->rank, .cols = a->cols,
	};
	u32 m;

	for (m = 0; m < rows; m++)
		d.x[m] = a->x + p->rows[row + m] * (a->x_ld ? a->x_ld : a->cols);
	down_of[a->dtype == KERN_BF16][rows - 1](&d, min(p->rank - first, DOWN_ROWS));
}

/* Units of a part are in the order of columns, then of rows. */
static void up_unit(const struct adapt_job *j, u32 part, u64 unit)
{
	const struct kern_adapt *a = j->a;
	const struct kern_adapt_part *p = &a->parts[part];
	const u64 tiles = row_tiles(p), row = unit % tiles * ROWS;
	const u32 rows = min(p->m - row, (u64)ROWS), n = unit / tiles * UP_COLS;
	struct up u = {
		.t = a->t + j->t[part] + row * p->rank, .b = p->b,
		.rank = p->rank, .outs = p->outs, .scale = p->scale,
	};
	u32 m;

	for (m = 0; m < rows; m++)
		u.y[m] = p->y + p->rows[row + m] * (p->y_ld ? p->y_ld : p->outs);
	up_of[a->dtype == KERN_BF16][rows - 1](&u, n, min(p->outs, n + UP_COLS));
}

/* The weight of a part's unit in the line. */
static u64 weight_of(const struct adapt_job *j, u32 part)
{
	return j->up ? j->a->parts[part].rank : 1;
}

/* The last part that begins at or before @at. */
static u32 part_at(const struct adapt_job *j, u64 at)
{
	u32 low = 0, high = j->a->nr, mid;

	while (high - low > 1) {
		mid = (low + high) / 2;
		if (j->at[mid] <= at)
			low = mid;
		else
			high = mid;
	}
	return low;
}

/* All units that begin in the piece of this item. */
static void run_item(void *arg, u32 i)
{
	const struct adapt_job *j = arg;
	const u64 from = i * j->per, end = from + j->per;
	u32 p = part_at(j, from);
	u64 u = DIV_ROUND_UP(from - j->at[p], weight_of(j, p)), w;

	for (; p < j->a->nr && j->at[p] < end; p++, u = 0) {
		w = weight_of(j, p);
		for (; j->at[p] + u * w < min(j->at[p + 1], end); u++)
			j->unit(j, p, u);
	}
}

static void run_phase(struct kern_ctx *ctx, struct adapt_job *j)
{
	const struct kern_adapt *a = j->a;
	const struct kern_adapt_part *p;
	u64 units, work = 0;
	u32 i;

	for (i = 0; i < a->nr; i++) {
		p = &a->parts[i];
		units = row_tiles(p) * (j->up ? DIV_ROUND_UP(p->outs, UP_COLS) :
						DIV_ROUND_UP(p->rank, DOWN_ROWS));
		j->at[i + 1] = j->at[i] + units * weight_of(j, i);
		work += (u64)p->rank * (j->up ? p->outs : a->cols) *
			max(p->m, kern_dtype_size(a->dtype));
	}
	if (work < KERN_PARALLEL_MIN)
		ctx = NULL;
	j->unit = j->up ? up_unit : down_unit;
	j->per = DIV_ROUND_UP(j->at[a->nr], ctx ? (u64)ITEMS * kern_ctx_nr_threads(ctx) : 1);
	kern_parallel(ctx, DIV_ROUND_UP(j->at[a->nr], j->per), run_item, j);
}

void KERN_FN(adapt)(struct kern_ctx *ctx, const struct kern_adapt *a)
{
	struct adapt_job j;
	u32 i;

	if (!a->nr)
		return;
	j.a = a;
	j.at[0] = 0;
	j.t[0] = 0;
	for (i = 0; i + 1 < a->nr; i++)
		j.t[i + 1] = j.t[i] + (u64)a->parts[i].m * a->parts[i].rank;
	for (i = 0; i < 2; i++) {
		j.up = i;
		run_phase(ctx, &j);
	}
}
