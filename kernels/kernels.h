/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels.h - the contract between a decoder and its compute kernels
 *
 * A table of operations, struct kern_ops, is all that a model sees.  "ref" is
 * the plain oracle, "cpu" the one to run; both take the same arguments and
 * the same tests run both.
 *
 * Shapes.  Activations are f32, row-major.  M counts rows of a batch, one row
 * a token, of whatever mix of sequences, prefill and decode.  H is the number
 * of query heads, KVH that of KV heads (KVH divides H, query head h reads KV
 * head h / (H / KVH)), hd the head dimension.  Lengths are in elements unless
 * they say bytes.  A leading dimension ("ld", elements from one row to the
 * next) of 0 means dense.  Outputs may not overlap inputs unless an op says
 * so.  Pointers need the natural alignment of their element type alone.
 *
 * Tolerance.  Against "ref" (which accumulates in double) every element of a
 * result differs by at most KERN_TOL times its scale.  The scale is
 *   gemm		sum |x||w| + |bias|
 *   attention	max |v| * (1 + scale * max sum |q||k|), over what the row sees,
 *		whether or not scores are capped
 *   rope		|x[j]| + |x[j + half]|; its table: 1
 *   layernorm	(|x| + max |x| of the row) / deviation * |w| + |bias|
 *   act		|gate|, times |up|; RELU: bit-equal
 *   softcap	|x|
 *   the others	the result itself, at least 1e-30
 * What is stored in bf16, copied or widened is bit-equal in all of them.
 *
 * Determinism (exact mode, which all of these are).  The bits of a row's
 * result depend on the row's own input, its absolute position, the KV it may
 * see, and on shapes of the model (K, hd): never on M, on the row's place in
 * the batch, on its neighbours, on where a prefill was cut into chunks, on
 * which blocks hold the KV, nor on the number of threads.  Reductions over
 * KV run in chunks of KERN_CHUNK absolute positions, in order.  Between
 * variants ("base", "avx2", "avx512") bits may differ, so name, variant and
 * version all belong to a model's identity.
 *
 * Memory.  Positions of a block that were never written may hold anything,
 * NaN included: what a row may not see contributes exactly nothing, and table
 * entries wholly outside a row's view are not read.
 *
 * Trust.  Arguments come from the caller's own program and are not checked
 * here: ids below the table's rows, entries inside the pool, and a geometry
 * that kern_kv_check() accepted are the caller's duty.
 */
#ifndef KERNELS_H
#define KERNELS_H

#include <kvmm/types.h>

/*
 * Raised by every change that may alter one bit of any result: KV computed by
 * another version must not be reused.
 */
#define KERN_NUMERICS_VERSION	1

/* See "Tolerance" above. */
#define KERN_TOL		2e-6

/* Positions in one step of the online softmax; a power of two. */
#define KERN_CHUNK		64

/* Largest head dimension; it must also be a multiple of KERN_DIM_ALIGN. */
#define KERN_MAX_HEAD_DIM	256
#define KERN_DIM_ALIGN		16

enum kern_dtype {
	KERN_F32,
	KERN_BF16,
};

/* Activations, by their definitions; GELU_TANH is the approximation. */
enum kern_act {
	KERN_SILU,		/* x / (1 + exp(-x)) */
	KERN_GELU,		/* x / 2 * (1 + erf(x / sqrt(2))) */
	KERN_GELU_TANH,		/* x / 2 * (1 + tanh(sqrt(2 / pi) *
				 *	    (x + 0.044715 x^3))) */
	KERN_RELU,		/* max(x, 0) */
};

/* Bytes of one element. */
static inline u32 kern_dtype_size(enum kern_dtype t)
{
	return t == KERN_BF16 ? 2 : 4;
}

/**
 * struct kern_weight - a matrix of parameters, row-major and dense
 * @data:  rows * cols elements; may be a mapped file, never written
 * @dtype: type of the elements
 * @rows:  N, the output features (or the vocabulary, of an embedding)
 * @cols:  K, the input features
 */
struct kern_weight {
	const void	*data;
	enum kern_dtype	dtype;
	u32		rows;
	u32		cols;
};

/**
 * struct kern_kv - where the elements of paged KV lie
 * @base:         the pool's base in this process
 * @unit:         bytes per unit of a table entry (64 by default)
 * @layer_stride: bytes from a layer to the next inside a block
 * @block_tokens: 16, 32 or 64
 * @nr_layers:    layers of a block (kv_copy copies all of them)
 * @kv_heads:     KVH
 * @head_dim:     hd
 * @dtype:        type of K and V elements
 *
 * Inside one layer of a block: [K|V][kv_head][token][dim].  kern_kv_addr() is
 * the definition.  Nothing else is assumed, so block-major and layer-major
 * pools differ in @layer_stride and the entries alone.
 */
struct kern_kv {
	u8		*base;
	u64		unit;
	u64		layer_stride;
	u32		block_tokens;
	u32		nr_layers;
	u32		kv_heads;
	u32		head_dim;
	enum kern_dtype	dtype;
};

/* Address of dim 0 of (@entry, @layer, K=0 or V=1, @head, @token). */
static inline u8 *kern_kv_addr(const struct kern_kv *kv, u32 entry, u32 layer,
			       u32 is_v, u32 head, u32 token)
{
	u64 row = ((u64)is_v * kv->kv_heads + head) * kv->block_tokens + token;

	return kv->base + kv->unit * entry + layer * kv->layer_stride +
	       row * kv->head_dim * kern_dtype_size(kv->dtype);
}

/* Bytes of one layer of one block. */
static inline u64 kern_kv_layer_bytes(const struct kern_kv *kv)
{
	return 2ull * kv->kv_heads * kv->block_tokens * kv->head_dim *
	       kern_dtype_size(kv->dtype);
}

/**
 * struct kern_attn_seq - the rows of a batch that belong to one sequence
 * @table:     block table; entry i covers positions from i * block_tokens on
 * @nr_rows:   how many rows, at least 1; consecutive rows, rising positions
 * @first_row: the first of them in the batch
 * @start_pos: absolute position of @first_row
 */
struct kern_attn_seq {
	const u32	*table;
	u32		nr_rows;
	u32		first_row;
	u32		start_pos;
};

/**
 * struct kern_attn - arguments of one attention call (one layer)
 * @kv:      geometry of the pool
 * @layer:   which layer
 * @nr_seqs: length of @seqs
 * @seqs:    rows and tables; prefill and decode rows may be mixed
 * @q:       [M][H][hd], rows @q_ld apart; already rotated
 * @q_ld:    0 means H * hd
 * @out:     [M][H][hd], rows @out_ld apart; only rows named in @seqs are written
 * @out_ld:  0 means H * hd
 * @heads:   H
 * @window:  a row at p sees positions p - window + 1 .. p; 0 means all
 * @scale:   factor on q.k before the softmax, usually 1 / sqrt(hd)
 * @softcap: if not 0, a score s becomes softcap * tanh(s / softcap)
 *
 * K and V of every position a row sees must have been written before.
 */
struct kern_attn {
	const struct kern_kv		*kv;
	u32				layer;
	u32				nr_seqs;
	const struct kern_attn_seq	*seqs;
	const float			*q;
	u64				q_ld;
	float				*out;
	u64				out_ld;
	u32				heads;
	u32				window;
	float				scale;
	float				softcap;
};

/**
 * struct kern_kv_append - arguments of one kv_write call (one layer)
 * @kv:      geometry of the pool
 * @layer:   which layer
 * @nr_seqs: length of @seqs
 * @seqs:    rows and tables, as for attention
 * @k:       [M][KVH][hd], rows @k_ld apart; already rotated
 * @k_ld:    0 means KVH * hd
 * @v:       [M][KVH][hd], rows @v_ld apart
 * @v_ld:    0 means KVH * hd
 *
 * No two rows of a call may name the same slot of the pool.
 */
struct kern_kv_append {
	const struct kern_kv		*kv;
	u32				layer;
	u32				nr_seqs;
	const struct kern_attn_seq	*seqs;
	const float			*k;
	u64				k_ld;
	const float			*v;
	u64				v_ld;
};

/* One copy-on-write descriptor: the first @tokens tokens, all layers. */
struct kern_kv_copy {
	u32	from;
	u32	to;
	u32	tokens;
};

struct kern_ctx;

/**
 * struct kern_ops - one implementation of the kernels
 * @name:    "ref" or "cpu"
 * @variant: "base", "avx2", "avx512": instruction set it was compiled for
 * @version: KERN_NUMERICS_VERSION it was compiled with
 *
 * @embed: x[i][:] = w[ids[i]][:] for @m rows; x is [M][w->cols].
 *
 * @rmsnorm: y = x / sqrt(mean(x^2) + eps) * w over rows of @d; w is f32 [d].
 *	y may be x.  Norms of heads are the same with m = M * H, d = hd.
 *
 * @layernorm: y = (x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) * w + bias
 *	over rows of @d; w and bias are f32 [d], bias may be NULL.  y may be x.
 *
 * @gemm: y[M][N] = x[M][K] * W[N][K]^T (+ bias[N], f32, unless NULL).
 *	@y_ld and @x_ld: rows apart, 0 means dense (N and K).
 *
 * @rope_table: cosines and sines of one step's positions, shared by all of
 *	its layers: table is [M][2][half], cos then sin of the f32 product
 *	(float)positions[i] * inv_freq[j].
 *
 * @rope: rotate in place @heads heads of @m rows (x is [M][heads][hd], rows
 *	@ld apart, 0 means dense) by @table, "rotate half": with r = 2 * half
 *	<= hd, for j < half
 *	  x'[j]        = x[j] * cos - x[j + half] * sin
 *	  x'[j + half] = x[j + half] * cos + x[j] * sin
 *	and dimensions from r on unchanged.
 *
 * @kv_write: append K and V of rows to the pool; see struct kern_kv_append.
 *
 * @attention: paged, causal, grouped-query; see struct kern_attn.
 *
 * @kv_copy: carry out @nr descriptors in the order given, for all layers.
 *
 * @silu_mul: y[i] = gate[i] / (1 + exp(-gate[i])) * up[i] over @m rows of @d;
 *	rows of gate and up @ld apart (0 means dense), y dense.  y may be gate
 *	if dense.
 *
 * @act: y[i] = act(gate[i]) * up[i] over @m rows of @d; without the factor if
 *	@up is NULL.  Rows and aliases as for silu_mul, which is the same as
 *	KERN_SILU within tolerance.
 *
 * @add: x[i] += y[i] for @n elements.
 *
 * @scale: x[i] *= @by for @n elements.
 *
 * @softcap: x[i] = cap * tanh(x[i] / cap) for @n elements, cap > 0.
 *
 * Context: one op at a time per struct kern_ctx; several contexts may run at
 * once.  Nothing here fails or allocates.
 */
struct kern_ops {
	const char	*name;
	const char	*variant;
	u32		version;

	void (*embed)(struct kern_ctx *ctx, const struct kern_weight *w,
		      const u32 *ids, u32 m, float *x);
	void (*rmsnorm)(struct kern_ctx *ctx, const float *x, const float *w,
			u32 m, u32 d, float eps, float *y);
	void (*layernorm)(struct kern_ctx *ctx, const float *x, const float *w,
			  const float *bias, u32 m, u32 d, float eps,
			  float *y);
	void (*gemm)(struct kern_ctx *ctx, const float *x, u64 x_ld,
		     const struct kern_weight *w, const float *bias, u32 m,
		     float *y, u64 y_ld);
	void (*rope_table)(struct kern_ctx *ctx, const float *inv_freq,
			   u32 half, const u32 *positions, u32 m,
			   float *table);
	void (*rope)(struct kern_ctx *ctx, float *x, u64 ld, u32 m, u32 heads,
		     u32 head_dim, u32 half, const float *table);
	void (*kv_write)(struct kern_ctx *ctx, const struct kern_kv_append *a);
	void (*attention)(struct kern_ctx *ctx, const struct kern_attn *a);
	void (*kv_copy)(struct kern_ctx *ctx, const struct kern_kv *kv,
			const struct kern_kv_copy *copies, u32 nr);
	void (*silu_mul)(struct kern_ctx *ctx, const float *gate,
			 const float *up, u64 ld, u32 m, u32 d, float *y);
	void (*act)(struct kern_ctx *ctx, enum kern_act act, const float *gate,
		    const float *up, u64 ld, u32 m, u32 d, float *y);
	void (*add)(struct kern_ctx *ctx, float *x, const float *y, u64 n);
	void (*scale)(struct kern_ctx *ctx, float *x, float by, u64 n);
	void (*softcap)(struct kern_ctx *ctx, float *x, float cap, u64 n);
};

/**
 * kern_get() - find an implementation by name
 * @name: "ref"; "cpu" or NULL for the widest variant this CPU runs; or
 *	"cpu:base", "cpu:avx2", "cpu:avx512" for one of them
 *
 * Return: the table, valid for ever; NULL if the name is unknown or this CPU
 * cannot run it.
 */
const struct kern_ops *kern_get(const char *name);

/**
 * kern_at() - enumerate what kern_get() can return on this CPU
 * @i: 0 is "ref", then the variants of "cpu", narrowest first
 *
 * Return: the table, or NULL past the last.
 */
const struct kern_ops *kern_at(u32 i);

/**
 * kern_kv_check() - is a KV geometry one that the kernels take?
 * @kv: the geometry; @base is not looked at
 *
 * Return: 0, or -EINVAL (head_dim not a multiple of KERN_DIM_ALIGN or above
 * KERN_MAX_HEAD_DIM, block_tokens not 16, 32 or 64, layers overlapping or
 * not aligned to elements, an empty dimension).
 */
int __must_check kern_kv_check(const struct kern_kv *kv);

/**
 * kern_ctx_create() - make the threads that ops run on
 * @nr_threads: the caller included; 0 means one per CPU this process may use
 * @ret: the context
 *
 * Idle threads sleep in the kernel, so contexts of several models share the
 * cores.  Results do not depend on @nr_threads.
 *
 * Return: 0, -ENOMEM or the error of pthread_create().
 */
int __must_check kern_ctx_create(u32 nr_threads, struct kern_ctx **ret);

/* Ends the threads; @ctx may be NULL.  No op may be running. */
void kern_ctx_destroy(struct kern_ctx *ctx);

/* Threads of @ctx, the caller's included. */
u32 kern_ctx_nr_threads(const struct kern_ctx *ctx);

#endif /* KERNELS_H */
