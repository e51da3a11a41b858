// SPDX-License-Identifier: Apache-2.0
/*
 * v_act.c - activations, scaling and soft caps: ops of single elements
 *
 * There are no reductions.  A remainder is padded to a register and takes the
 * steps of a full one, so an element's bits depend only on the element, not on
 * its place in a row nor on the number of rows.
 *
 * The erf form of GELU is written as x * h(|x|) or x * (1 - h(|x|)), with h the
 * small tail, computed directly; the tanh form as x / (1 + exp()).  So no digits
 * are lost where 1 + erf() or 1 + tanh() would cancel.
 */
#include "kernels/cpu/vec.h"

struct act_job {
	enum kern_act	act;
	const float	*gate;
	const float	*up;
	float		*y;
	u64		ld;
	u32		m;
	u32		d;
	u32		rows;		/* of an item */
};

static __inline_always vf act_silu(vf x)
{
	return x / (vf_set(1.0f) + vf_exp(-x));
}

/*
 * Half of erfc(a) for a >= 0, with a relative error below 1e-6: exp(-a^2) times a
 * polynomial in 1 / (1 + a / 2) (minimax on 0 <= a <= 6.5, 3e-7; beyond, the
 * exponential is below 1e-18).
 */
static __inline_always vf half_erfc(vf a)
{
	const vf t = vf_set(1.0f) / vf_fma(vf_set(0.5f), a, vf_set(1.0f));
	vf p;

	p = vf_fma(vf_set(-0x1.17ac10p-5f), t, vf_set(0x1.0782b0p-2f));
	p = vf_fma(p, t, vf_set(-0x1.6abcdep-1f));
	p = vf_fma(p, t, vf_set(0x1.93fd62p-1f));
	p = vf_fma(p, t, vf_set(-0x1.dd271ap-3f));
	p = vf_fma(p, t, vf_set(0x1.92a9bcp-2f));
	p = vf_fma(p, t, vf_set(0x1.003c00p-2f));
	p = vf_fma(p, t, vf_set(0x1.24d454p-2f));
	p = vf_fma(p, t, vf_set(-0x1.a5bae4p-13f));
	return p * vf_exp(-(a * a)) * 0.5f;
}

static __inline_always vf act_gelu(vf x)
{
	const vf a = (vf)((vi)x & 0x7fffffff);
	const vf h = half_erfc(a * 0x1.6a09e6p-1f);

	return x * vf_select(x < vf_set(0.0f), h, vf_set(1.0f) - h);
}

/* (1 + tanh(u)) / 2 is 1 / (1 + exp(-2u)). */
static __inline_always vf act_gelu_tanh(vf x)
{
	const vf u = x * vf_fma(x * x, vf_set(0x1.6e4e26p-5f), vf_set(1.0f));

	return x / (vf_set(1.0f) + vf_exp(u * -0x1.988454p+0f));
}

static __inline_always vf act_relu(vf x)
{
	return vf_max(vf_set(0.0f), x);
}

/* A compiled copy of a row's loop for each activation. */
#define ACT_ROW(name)							\
static __attribute__((noinline)) void					\
row_##name(const float *gate, const float *up, u32 d, float *y)		\
{									\
	vf v;								\
	u32 i;								\
									\
	for (i = 0; i + VW <= d; i += VW) {				\
		v = act_##name(vf_load(gate + i));			\
		vf_store(y + i, up ? v * vf_load(up + i) : v);		\
	}								\
	if (i < d) {							\
		v = act_##name(vf_load_part(gate, i, d - i, KERN_F32));	\
		if (up)							\
			v = v * vf_load_part(up, i, d - i, KERN_F32);	\
		vf_store_part(y + i, v, d - i);				\
	}								\
}

ACT_ROW(silu)
ACT_ROW(gelu)
ACT_ROW(gelu_tanh)
ACT_ROW(relu)

static void act_row(enum kern_act act, const float *gate, const float *up,
		    u32 d, float *y)
{
	switch (act) {
	case KERN_SILU:
		row_silu(gate, up, d, y);
		break;
	case KERN_GELU:
		row_gelu(gate, up, d, y);
		break;
	case KERN_GELU_TANH:
		row_gelu_tanh(gate, up, d, y);
		break;
	case KERN_RELU:
		row_relu(gate, up, d, y);
		break;
	}
}

static void act_item(void *arg, u32 i)
{
	const struct act_job *j = arg;
	u32 r, end = min(j->m, (i + 1) * j->rows);

	for (r = i * j->rows; r < end; r++)
		act_row(j->act, j->gate + r * j->ld,
			j->up ? j->up + r * j->ld : NULL, j->d,
			j->y + (u64)r * j->d);
}

void KERN_FN(act)(struct kern_ctx *ctx, enum kern_act act, const float *gate,
		  const float *up, u64 ld, u32 m, u32 d, float *y)
{
	struct act_job j = {
		.act = act, .gate = gate, .up = up, .y = y, .m = m, .d = d,
		.ld = ld ? ld : d,
		.rows = max((u64)1, KERN_PARALLEL_MIN / 8 / max(d, 1u)),
	};

	if ((u64)m * d < KERN_PARALLEL_MIN / 2)
		ctx = NULL;
	kern_parallel(ctx, DIV_ROUND_UP(m, j.rows), act_item, &j);
}

#define PIECE	(KERN_PARALLEL_MIN / 8)

struct map_job {
	float	*x;
	float	by;
	u64	n;
};

static void scale_item(void *arg, u32 item)
{
	const struct map_job *j = arg;
	u64 i = (u64)item * PIECE, end = min(j->n, i + PIECE);

	for (; i < end; i++)
		j->x[i] *= j->by;
}

void KERN_FN(scale)(struct kern_ctx *ctx, float *x, float by, u64 n)
{
	struct map_job j = { .x = x, .by = by, .n = n };

	if (n < KERN_PARALLEL_MIN / 2)
		ctx = NULL;
	kern_parallel(ctx, DIV_ROUND_UP(n, PIECE), scale_item, &j);
}

/* Rounded to bf16, ties to even; NaN stays as it is. */
static __inline_always vf settled(vf x)
{
	const vi bits = (vi)x, nan = (bits & 0x7fffffff) > 0x7f800000;
	const vi rounded = (bits + 0x7fff + (bits >> 16 & 1)) &
			   vi_set((s32)0xffff0000);

	return (vf)((bits & nan) | (rounded & ~nan));
}

static void settle_item(void *arg, u32 item)
{
	const struct map_job *j = arg;
	u64 i = (u64)item * PIECE, end = min(j->n, i + PIECE);

	for (; i + VW <= end; i += VW)
		vf_store(j->x + i, settled(vf_load(j->x + i)));
	if (i < end)
		vf_store_part(j->x + i,
			      settled(vf_load_part(j->x, i, end - i, KERN_F32)),
			      end - i);
}

void KERN_FN(settle)(struct kern_ctx *ctx, float *x, u64 n)
{
	struct map_job j = { .x = x, .n = n };

	if (n < KERN_PARALLEL_MIN / 2)
		ctx = NULL;
	kern_parallel(ctx, DIV_ROUND_UP(n, PIECE), settle_item, &j);
}

static __inline_always vf softcap(vf x, float cap)
{
	return vf_tanh(x / vf_set(cap)) * cap;
}

static void softcap_item(void *arg, u32 item)
{
	const struct map_job *j = arg;
	u64 i = (u64)item * PIECE, end = min(j->n, i + PIECE);

	for (; i + VW <= end; i += VW)
		vf_store(j->x + i, softcap(vf_load(j->x + i), j->by));
	if (i < end)
		vf_store_part(j->x + i,
			      softcap(vf_load_part(j->x, i, end - i, KERN_F32),
				      j->by), end - i);
}

void KERN_FN(softcap)(struct kern_ctx *ctx, float *x, float cap, u64 n)
{
	struct map_job j = { .x = x, .by = cap, .n = n };

	if (n < KERN_PARALLEL_MIN / 2)
		ctx = NULL;
	kern_parallel(ctx, DIV_ROUND_UP(n, PIECE), softcap_item, &j);
}
