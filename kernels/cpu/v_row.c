// SPDX-License-Identifier: Apache-2.0
/*
 * v_row.c - the small ops of a decoder: norms, rotation, SiLU, residual
 *
 * Rows and elements are independent, so the threads share out rows in pieces of
 * about KERN_PARALLEL_MIN / 8 elements, and the bits stay the same.  Only the
 * means of a norm are reductions, in the order of vec.h.
 *
 * Invariant: an element takes the same sequence of rounded operations in a full
 * register and in a remainder.
 */
#include "kernels/cpu/vec.h"

struct row_job {
	const float	*a;
	const float	*b;
	const float	*bias;
	float		*y;
	u64		ld;
	u32		m;
	u32		d;
	u32		heads;
	u32		half;
	float		eps;
	u32		rows;		/* of an item */
};

/* Share out @j->m rows of @d elements in items of @j->rows. */
static void rows_parallel(struct kern_ctx *ctx, struct row_job *j, u64 d,
			  void (*fn)(void *arg, u32 i))
{
	j->rows = max((u64)1, KERN_PARALLEL_MIN / 8 / max(d, (u64)1));
	if (j->m * d < KERN_PARALLEL_MIN / 2)
		ctx = NULL;
	kern_parallel(ctx, DIV_ROUND_UP(j->m, j->rows), fn, j);
}

static float sum_of_squares(const float *x, u32 d)
{
	vf v, acc = { };
	u32 i;

	for (i = 0; i + VW <= d; i += VW) {
		v = vf_load(x + i);
		acc = vf_fma(v, v, acc);
	}
	if (i < d) {
		v = vf_load_part(x, i, d - i, KERN_F32);
		acc = vf_fma(v, v, acc);
	}
	return vf_sum(acc);
}

static void rmsnorm_row(const float *x, const float *w, u32 d, float eps,
			float *y)
{
	float inv = 1.0f / __builtin_sqrtf(sum_of_squares(x, d) / d + eps);
	u32 i;

	for (i = 0; i + VW <= d; i += VW)
		vf_store(y + i, vf_load(x + i) * inv * vf_load(w + i));
	for (; i < d; i++)
		y[i] = x[i] * inv * w[i];
}

static void rmsnorm_item(void *arg, u32 i)
{
	const struct row_job *j = arg;
	u32 r, end = min(j->m, (i + 1) * j->rows);

	for (r = i * j->rows; r < end; r++)
		rmsnorm_row(j->a + (u64)r * j->d, j->b, j->d, j->eps,
			    j->y + (u64)r * j->d);
}

void KERN_FN(rmsnorm)(struct kern_ctx *ctx, const float *x, const float *w,
		      u32 m, u32 d, float eps, float *y)
{
	struct row_job j = {
		.a = x, .b = w, .y = y, .m = m, .d = d, .eps = eps,
	};

	rows_parallel(ctx, &j, d, rmsnorm_item);
}

static float sum_of(const float *x, u32 d)
{
	vf acc = { };
	u32 i;

	for (i = 0; i + VW <= d; i += VW)
		acc += vf_load(x + i);
	if (i < d)
		acc += vf_load_part(x, i, d - i, KERN_F32);
	return vf_sum(acc);
}

/* Like sum_of_squares() of x - mean; what pads a remainder adds nothing. */
static float sum_of_deviations(const float *x, float mean, u32 d)
{
	vf v, acc = { };
	float rest[VW];
	u32 i, n;

	for (i = 0; i + VW <= d; i += VW) {
		v = vf_load(x + i) - mean;
		acc = vf_fma(v, v, acc);
	}
	if (i < d) {
		for (n = 0; n < VW; n++)
			rest[n] = i + n < d ? x[i + n] : mean;
		v = vf_load(rest) - mean;
		acc = vf_fma(v, v, acc);
	}
	return vf_sum(acc);
}

static void layernorm_row(const struct row_job *j, const float *x,
			  const float *w, float *y)
{
	const u32 d = j->d;
	const float mean = sum_of(x, d) / d;
	const float inv = 1.0f / __builtin_sqrtf(
		sum_of_deviations(x, mean, d) / d + j->eps);
	const float *bias = j->bias;
	float v;
	u32 i;

	for (i = 0; i < d; i++) {
		v = (x[i] - mean) * inv * w[i];
		y[i] = bias ? v + bias[i] : v;
	}
}

static void layernorm_item(void *arg, u32 i)
{
	const struct row_job *j = arg;
	u32 r, end = min(j->m, (i + 1) * j->rows);

	for (r = i * j->rows; r < end; r++)
		layernorm_row(j, j->a + (u64)r * j->d, j->b +
			      (u64)(r % j->heads) * j->d,
			      j->y + (u64)r * j->d);
}

void KERN_FN(layernorm)(struct kern_ctx *ctx, const float *x, const float *w,
			const float *bias, u32 m, u32 d, float eps, float *y)
{
	struct row_job j = {
		.a = x, .b = w, .bias = bias, .y = y, .m = m, .d = d,
		.heads = 1, .eps = eps,
	};

	rows_parallel(ctx, &j, d, layernorm_item);
}

void KERN_FN(layernorm_heads)(struct kern_ctx *ctx, const float *x,
			      const float *w, u32 m, u32 heads, u32 d,
			      float eps, float *y)
{
	struct row_job j = {
		.a = x, .b = w, .y = y, .m = m * heads, .d = d,
		.heads = heads, .eps = eps,
	};

	rows_parallel(ctx, &j, d, layernorm_item);
}

/* Plain products and sums: the same bits in a register and outside. */
static void rope_head(float *x, const float *cosine, const float *sine,
		      u32 half)
{
	float *lo = x, *hi = x + half, a, b;
	vf va, vb, vc, vs;
	u32 i;

	for (i = 0; i + VW <= half; i += VW) {
		va = vf_load(lo + i);
		vb = vf_load(hi + i);
		vc = vf_load(cosine + i);
		vs = vf_load(sine + i);
		vf_store(lo + i, va * vc - vb * vs);
		vf_store(hi + i, vb * vc + va * vs);
	}
	for (; i < half; i++) {
		a = lo[i];
		b = hi[i];
		lo[i] = a * cosine[i] - b * sine[i];
		hi[i] = b * cosine[i] + a * sine[i];
	}
}

static void rope_item(void *arg, u32 i)
{
	const struct row_job *j = arg;
	u32 r, h, end = min(j->m, (i + 1) * j->rows);
	const float *table;

	for (r = i * j->rows; r < end; r++) {
		table = j->a + 2ull * r * j->half;
		for (h = 0; h < j->heads; h++)
			rope_head(j->y + r * j->ld + (u64)h * j->d, table,
				  table + j->half, j->half);
	}
}

void KERN_FN(rope)(struct kern_ctx *ctx, float *x, u64 ld, u32 m, u32 heads,
		   u32 head_dim, u32 half, const float *table)
{
	struct row_job j = {
		.a = table, .y = x, .m = m, .d = head_dim, .heads = heads,
		.half = half, .ld = ld ? ld : (u64)heads * head_dim,
	};

	rows_parallel(ctx, &j, (u64)heads * head_dim, rope_item);
}

struct pairs_job {
	const struct kern_rope_pairs	*r;
	u32				rows;		/* of an item */
};

static void pairs_item(void *arg, u32 item)
{
	const struct pairs_job *job = arg;
	const struct kern_rope_pairs *r = job->r;
	u32 i, h, j, end = min(r->m, (item + 1) * job->rows);
	const float *x, *cosine, *sine;
	float *y;

	for (i = item * job->rows; i < end; i++) {
		cosine = r->table + 2ull * i * r->half;
		sine = cosine + r->half;
		for (h = 0; h < r->heads; h++) {
			x = r->x + i * r->x_ld + h * r->x_step;
			y = r->y + i * r->y_ld + h * r->y_step;
			for (j = 0; j < r->half; j++) {
				y[j] = x[2 * j] * cosine[j] -
				       x[2 * j + 1] * sine[j];
				y[j + r->half] = x[2 * j + 1] * cosine[j] +
						 x[2 * j] * sine[j];
			}
		}
	}
}

void KERN_FN(rope_pairs)(struct kern_ctx *ctx, const struct kern_rope_pairs *r)
{
	const u64 d = 2ull * r->heads * r->half;
	const struct pairs_job job = {
		.r = r,
		.rows = max((u64)1, KERN_PARALLEL_MIN / 8 / max(d, (u64)1)),
	};

	if (r->m * d < KERN_PARALLEL_MIN / 2)
		ctx = NULL;
	kern_parallel(ctx, DIV_ROUND_UP(r->m, job.rows), pairs_item,
		      (void *)(uintptr_t)&job);
}

static __inline_always vf silu(vf g)
{
	return g / (vf_set(1.0f) + vf_exp(-g));
}

static void silu_mul_row(const float *gate, const float *up, u32 d, float *y)
{
	vf g, u;
	u32 i;

	for (i = 0; i + VW <= d; i += VW)
		vf_store(y + i, silu(vf_load(gate + i)) * vf_load(up + i));
	if (i < d) {
		g = vf_load_part(gate, i, d - i, KERN_F32);
		u = vf_load_part(up, i, d - i, KERN_F32);
		vf_store_part(y + i, silu(g) * u, d - i);
	}
}

static void silu_mul_item(void *arg, u32 i)
{
	const struct row_job *j = arg;
	u32 r, end = min(j->m, (i + 1) * j->rows);

	for (r = i * j->rows; r < end; r++)
		silu_mul_row(j->a + r * j->ld, j->b + r * j->ld, j->d,
			     j->y + (u64)r * j->d);
}

void KERN_FN(silu_mul)(struct kern_ctx *ctx, const float *gate,
		       const float *up, u64 ld, u32 m, u32 d, float *y)
{
	struct row_job j = {
		.a = gate, .b = up, .y = y, .m = m, .d = d,
		.ld = ld ? ld : d,
	};

	rows_parallel(ctx, &j, d, silu_mul_item);
}

#define ADD_PIECE	(KERN_PARALLEL_MIN / 8)

struct add_job {
	float		*x;
	const float	*y;
	u64		n;
};

static void add_item(void *arg, u32 item)
{
	const struct add_job *j = arg;
	u64 i = (u64)item * ADD_PIECE;
	u64 end = min(j->n, i + ADD_PIECE);

	for (; i + VW <= end; i += VW)
		vf_store(j->x + i, vf_load(j->x + i) + vf_load(j->y + i));
	for (; i < end; i++)
		j->x[i] += j->y[i];
}

void KERN_FN(add)(struct kern_ctx *ctx, float *x, const float *y, u64 n)
{
	struct add_job j = { .x = x, .y = y, .n = n };

	if (n < KERN_PARALLEL_MIN / 2)
		ctx = NULL;
	kern_parallel(ctx, DIV_ROUND_UP(n, ADD_PIECE), add_item, &j);
}
