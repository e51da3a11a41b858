// SPDX-License-Identifier: Apache-2.0
/*
 * ref.c - the plain reference of every op: the oracle
 *
 * Loops that follow the definition directly, sums in double, functions of the C
 * library, one thread.  It is slow and obviously right.  Every other
 * implementation is compared with it, and a change here needs a better reason
 * than speed.  It is exact in the sense of kernels.h: a row's result never
 * depends on its neighbours.
 *
 * It shares no code with the implementations that it checks.
 */
#include <math.h>

#include "kernels/ref/internal.h"
#include "kernels/impl.h"

/* Element @i of an array of bf16. */
static double from_bf16(const void *p, u64 i)
{
	u32 bits = (u32)((const u16 *)p)[i] << 16;
	float f;

	memcpy(&f, &bits, sizeof(f));
	return f;
}

double kern_ref_load(const void *p, enum kern_dtype type, u64 i)
{
	switch (type) {
	case KERN_F32:
		return ((const float *)p)[i];
	case KERN_BF16:
		return from_bf16(p, i);
	case KERN_F16:
		return kern_ref_small(((const u16 *)p)[i], 5, 10);
	case KERN_E4M3:
		return kern_ref_small(((const u8 *)p)[i], 4, 3);
	default:
		return ((const s8 *)p)[i];
	}
}

/* Elements of a row of weights that are read at once: whole blocks. */
#define REF_PART	KERN_BLOCK_MAX_ELEMS

/* Elements @k to @k + @n - 1 of row @row. */
static void ref_weights(const struct kern_weight *w, u64 row, u32 k, u32 n,
			float *to)
{
	const u8 *p = (const u8 *)w->data + row * kern_row_bytes(w->dtype, w->cols) +
		      kern_row_bytes(w->dtype, k);
	u32 i;

	if (kern_is_blocks(w->dtype)) {
		kern_dequant(w->dtype, p, n, to);
		return;
	}
	for (i = 0; i < n; i++)
		to[i] = kern_ref_load(p, w->dtype, i);
}

/* The nearer of the two neighbours in bf16; ties to even. */
static u16 round_to_bf16(float x)
{
	u32 bits, low;
	u16 h;

	memcpy(&bits, &x, sizeof(bits));
	h = bits >> 16;
	low = bits & 0xffff;
	if (isnan(x))
		return h | 0x40;
	if (low > 0x8000 || (low == 0x8000 && (h & 1)))
		h++;
	return h;
}

void kern_ref_store(void *p, enum kern_dtype type, u64 i, float x)
{
	switch (type) {
	case KERN_F32:
		((float *)p)[i] = x;
		break;
	case KERN_BF16:
		((u16 *)p)[i] = round_to_bf16(x);
		break;
	case KERN_F16:
		((u16 *)p)[i] = kern_ref_round_small(x, 5, 10);
		break;
	case KERN_E4M3:
		((u8 *)p)[i] = kern_ref_round_small(x, 4, 3);
		break;
	default:
		((s8 *)p)[i] = rint(x);
		break;
	}
}

static void ref_embed(struct kern_ctx *ctx, const struct kern_weight *w,
		      const u32 *ids, u32 m, float *x)
{
	u32 i;

	for (i = 0; i < m; i++)
		ref_weights(w, ids[i], 0, w->cols, x + (u64)i * w->cols);
}

static void ref_rmsnorm(struct kern_ctx *ctx, const float *x, const float *w,
			u32 m, u32 d, float eps, float *y)
{
	double sum, inv;
	u32 i, j;

	for (i = 0; i < m; i++, x += d, y += d) {
		sum = 0;
		for (j = 0; j < d; j++)
			sum += (double)x[j] * x[j];
		inv = 1 / sqrt(sum / d + eps);
		for (j = 0; j < d; j++)
			y[j] = x[j] * inv * w[j];
	}
}

static void ref_layernorm(struct kern_ctx *ctx, const float *x, const float *w,
			  const float *bias, u32 m, u32 d, float eps, float *y)
{
	double mean, var, inv;
	u32 i, j;

	for (i = 0; i < m; i++, x += d, y += d) {
		mean = 0;
		for (j = 0; j < d; j++)
			mean += x[j];
		mean /= d;
		var = 0;
		for (j = 0; j < d; j++)
			var += (x[j] - mean) * (x[j] - mean);
		inv = 1 / sqrt(var / d + eps);
		for (j = 0; j < d; j++)
			y[j] = (x[j] - mean) * inv * w[j] +
			       (bias ? bias[j] : 0);
	}
}

static void ref_layernorm_heads(struct kern_ctx *ctx, const float *x,
				const float *w, u32 m, u32 heads, u32 d,
				float eps, float *y)
{
	u32 i;

	for (i = 0; i < m * heads; i++)
		ref_layernorm(ctx, x + (u64)i * d, w + (u64)(i % heads) * d,
			      NULL, 1, d, eps, y + (u64)i * d);
}

/* The product of a row of x and a row of weights, added to @sum. */
static double ref_dot(const float *x, const struct kern_weight *w, u64 row,
		      double sum)
{
	float part[REF_PART];
	u32 k, i, n;

	for (k = 0; k < w->cols; k += n) {
		n = min(w->cols - k, REF_PART);
		ref_weights(w, row, k, n, part);
		for (i = 0; i < n; i++)
			sum += x[w->order ? w->order[k + i] : k + i] *
			       (double)part[i];
	}
	return sum;
}

static void ref_gemm(struct kern_ctx *ctx, const float *x, u64 x_ld,
		     const struct kern_weight *w, const float *bias, u32 m,
		     float *y, u64 y_ld)
{
	u32 i, n;

	x_ld = x_ld ? x_ld : w->cols;
	y_ld = y_ld ? y_ld : w->rows;
	for (i = 0; i < m; i++)
		for (n = 0; n < w->rows; n++)
			y[i * y_ld + n] = ref_dot(x + i * x_ld, w, n,
						  bias ? bias[n] : 0);
}

static void ref_rope_table(struct kern_ctx *ctx, const float *inv_freq,
			   u32 half, const u32 *positions, u32 m, float *table)
{
	float angle;
	u32 i, j;

	for (i = 0; i < m; i++) {
		for (j = 0; j < half; j++) {
			angle = (float)positions[i] * inv_freq[j];
			table[(2ull * i) * half + j] = cos(angle);
			table[(2ull * i + 1) * half + j] = sin(angle);
		}
	}
}

static void ref_rope(struct kern_ctx *ctx, float *x, u64 ld, u32 m, u32 heads,
		     u32 head_dim, u32 half, const float *table)
{
	double a, b, c, s;
	float *head;
	u32 i, h, j;

	ld = ld ? ld : (u64)heads * head_dim;
	for (i = 0; i < m; i++) {
		for (h = 0; h < heads; h++) {
			head = x + i * ld + (u64)h * head_dim;
			for (j = 0; j < half; j++) {
				a = head[j];
				b = head[j + half];
				c = table[(2ull * i) * half + j];
				s = table[(2ull * i + 1) * half + j];
				head[j] = a * c - b * s;
				head[j + half] = b * c + a * s;
			}
		}
	}
}

static void ref_rope_pairs(struct kern_ctx *ctx,
			   const struct kern_rope_pairs *r)
{
	double a, b, c, s;
	const float *x;
	float *y;
	u32 i, h, j;

	for (i = 0; i < r->m; i++) {
		for (h = 0; h < r->heads; h++) {
			x = r->x + i * r->x_ld + h * r->x_step;
			y = r->y + i * r->y_ld + h * r->y_step;
			for (j = 0; j < r->half; j++) {
				a = x[2 * j];
				b = x[2 * j + 1];
				c = r->table[(2ull * i) * r->half + j];
				s = r->table[(2ull * i + 1) * r->half + j];
				y[j] = a * c - b * s;
				y[j + r->half] = b * c + a * s;
			}
		}
	}
}

static void ref_silu_mul(struct kern_ctx *ctx, const float *gate,
			 const float *up, u64 ld, u32 m, u32 d, float *y)
{
	double g;
	u32 i, j;

	ld = ld ? ld : d;
	for (i = 0; i < m; i++) {
		for (j = 0; j < d; j++) {
			g = gate[i * ld + j];
			y[(u64)i * d + j] = g / (1 + exp(-g)) * up[i * ld + j];
		}
	}
}

static double ref_act_of(enum kern_act act, double x)
{
	switch (act) {
	case KERN_SILU:
		return x / (1 + exp(-x));
	case KERN_GELU:
		return x / 2 * erfc(-x / M_SQRT2);
	case KERN_GELU_TANH:
		return x / 2 * (1 + tanh(sqrt(2 / M_PI) *
					 (x + 0.044715 * x * x * x)));
	case KERN_RELU:
		break;
	}
	return x < 0 ? 0 : x;
}

static void ref_act(struct kern_ctx *ctx, enum kern_act act, const float *gate,
		    const float *up, u64 ld, u32 m, u32 d, float *y)
{
	u32 i, j;

	ld = ld ? ld : d;
	for (i = 0; i < m; i++)
		for (j = 0; j < d; j++)
			y[(u64)i * d + j] = ref_act_of(act, gate[i * ld + j]) *
					    (up ? up[i * ld + j] : 1);
}

static void ref_scale(struct kern_ctx *ctx, float *x, float by, u64 n)
{
	u64 i;

	for (i = 0; i < n; i++)
		x[i] = x[i] * by;
}

static void ref_softcap(struct kern_ctx *ctx, float *x, float cap, u64 n)
{
	u64 i;

	for (i = 0; i < n; i++)
		x[i] = cap * tanh((double)x[i] / cap);
}

static void ref_add(struct kern_ctx *ctx, float *x, const float *y, u64 n)
{
	u64 i;

	for (i = 0; i < n; i++)
		x[i] = x[i] + y[i];
}

static void ref_settle(struct kern_ctx *ctx, float *x, u64 n)
{
	u64 i;
	u16 h;

	for (i = 0; i < n; i++) {
		kern_ref_store(&h, KERN_BF16, 0, x[i]);
		x[i] = kern_ref_load(&h, KERN_BF16, 0);
	}
}

static void ref_gather(struct kern_ctx *ctx, const float *x, const u32 *rows,
		       u32 m, u32 d, float *y)
{
	u32 i, j;

	for (i = 0; i < m; i++)
		for (j = 0; j < d; j++)
			y[(u64)i * d + j] = x[(u64)rows[i] * d + j];
}

static void ref_split_heads(struct kern_ctx *ctx, const float *qkv, u32 m,
			    u32 heads, u32 head_dim, float *q, float *k,
			    float *v)
{
	float *to[] = { q, k, v };
	u64 head, part, j;

	for (head = 0; head < (u64)m * heads; head++)
		for (part = 0; part < 3; part++)
			for (j = 0; j < head_dim; j++)
				to[part][head * head_dim + j] =
					qkv[(head * 3 + part) * head_dim + j];
}

const struct kern_ops kern_ops_ref = {
	.name		= "ref",
	.variant	= "base",
	.version	= KERN_NUMERICS_VERSION,
	.kv_types	= KERN_TYPE_BIT(KERN_F32) | KERN_TYPE_BIT(KERN_BF16) |
			  KERN_TYPE_BIT(KERN_F16) | KERN_TYPE_BIT(KERN_E4M3) |
			  KERN_TYPE_BIT(KERN_I8),
	.weight_types	= KERN_ORDER_WEIGHTS | KERN_PLAIN_WEIGHTS | KERN_TYPE_BIT(KERN_F16) |
			  KERN_BLOCK_WEIGHTS,
	.settle		= ref_settle,
	.gather		= ref_gather,
	.split_heads	= ref_split_heads,
	.embed		= ref_embed,
	.rmsnorm	= ref_rmsnorm,
	.layernorm	= ref_layernorm,
	.layernorm_heads = ref_layernorm_heads,
	.gemm		= ref_gemm,
	.rope_table	= ref_rope_table,
	.rope		= ref_rope,
	.rope_pairs	= ref_rope_pairs,
	.kv_write	= kern_ref_kv_write,
	.attention	= kern_ref_attention,
	.attn_latent	= kern_ref_attention,
	.kv_copy	= kern_ref_kv_copy,
	.silu_mul	= ref_silu_mul,
	.act		= ref_act,
	.swiglu		= kern_ref_swiglu,
	.route		= kern_ref_route,
	.blend		= kern_ref_blend,
	.add		= ref_add,
	.scale		= ref_scale,
	.softcap	= ref_softcap,
	.adapt		= kern_ref_adapt,
	.conv		= kern_ref_conv,
	.scan		= kern_ref_scan,
	.gated_norm	= kern_ref_gated_norm,
};
