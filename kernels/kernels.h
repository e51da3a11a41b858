/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels.h - the contract between a decoder and its compute kernels
 *
 * A table of operations, struct kern_ops, is all that a model sees.  "ref" is
 * the plain oracle, "cpu" the implementation to run; both take the same
 * arguments, and the same tests run both.
 *
 * Shapes.  Activations are f32, row-major.  M counts rows of a batch, one row a
 * token, in any mix of sequences, prefill and decode.  H is the number of query
 * heads, KVH that of KV heads (KVH divides H, and query head h reads KV head
 * h / (H / KVH)), hd the head dimension.  Lengths are in elements unless they
 * are called bytes.  A leading dimension ("ld", elements from one row to the
 * next) of 0 means dense.  Outputs may not overlap inputs unless an op allows
 * it.  Pointers only need the natural alignment of their element type.
 *
 * Modes.  An implementation has one numeric mode, its field @mode.  In exact
 * mode every product is of the numbers given, rounded to f32.  In fast mode, if
 * weights or KV are bf16, the other factor (rows of x, queries, weights of the
 * softmax) may be rounded to bf16 first, once and to nearest even; sums stay
 * f32.
 *
 * Tolerance.  Against "ref" (which accumulates in double) every element of a
 * result differs by at most KERN_TOL times its scale, and in fast mode by
 * KERN_TOL_FAST in gemm and attention over bf16.  The scale is
 *   gemm		sum |x||w| + |bias|
 *   attention	max |v| * (1 + scale * max sum |q||k|), over what the row sees,
 *		whether or not scores are capped
 *   attn_latent	the same, with |k| and |v| of the stored vectors
 *   rope		|x[j]| + |x[j + half]|; its table: 1
 *   rope_pairs	|x[2j]| + |x[2j + 1]|
 *   layernorm	(|x| + max |x| of the row) / deviation * |w| + |bias|
 *   act		|gate|, times |up|; RELU: bit-equal
 *   swiglu	|gate| * (|up| + 1)
 *   route	the scale of its shares; the ids are equal
 *   blend	|base| + sum |share||y|
 *   softcap	|x|
 *   adapt	|y| + |scale| * sum_j (sum_k |x||a|) * |b|
 *   conv	sum |w||x| + |bias|
 *   scan	(1 + t / 4) * (sum |C||S| + |D||x|) for row t of a sequence in the call,
 *		where |S| is the state that magnitudes alone would give, with
 *		1 + |dt + dt_bias| / 4 times what each row adds
 *   the others	the result itself, at least 1e-30
 * Results that are stored in bf16, copied or widened are bit-equal in all of
 * them, except that a device may turn a rounded NaN into another NaN.
 *
 * Over f16, e4m3 and int8 KV fast mode has the tolerance of bf16; the other
 * factor may be rounded to f16 under a common power of two instead.
 *
 * gemm in fast mode over packed weights in blocks: in each group of 32 neighbours of x the
 * numbers may be rounded to multiples of the largest magnitude divided by 127.  Sums of codes
 * and sums of minima are rounded separately.  So the scale has the largest |w| of the row in
 * place of each |w|.
 *
 * On a device x is rounded to bf16 there, as for weights in bf16, and factors of the W4 types
 * to 16 bits of significand; products have KERN_TOL_FAST times the scale of gemm, and sums of
 * codes and of minima have 4 KERN_TOL of the scale with the row's largest |w|.
 * Long batches may round w to bf16 as well: 2 KERN_TOL_FAST.
 *
 * Determinism (a promise of exact mode).  The bits of a row's result depend on
 * the row's own input, its absolute position, the KV it may see, and on shapes
 * of the model (K, hd).  They never depend on M, on the row's place in the
 * batch, on its neighbours, on the cuts of a prefill into chunks, on the blocks
 * that hold the KV, nor on the number of threads.  Reductions over KV run in
 * chunks of KERN_CHUNK absolute positions, in order.  Between variants ("base",
 * "avx2", "avx512", "avx512bf16") bits may differ, so name, variant and version
 * all belong to a model's identity.
 *
 * Memory.  Positions of a block that were never written may hold anything, NaN
 * included: positions that a row may not see contribute exactly nothing, and
 * table entries wholly outside a row's view are not read.
 *
 * Trust.  Arguments come from the caller's own program and are not checked
 * here: ids below the table's rows, entries inside the pool, and a geometry
 * that kern_kv_check() accepted are the caller's duty.
 *
 * Devices.  With an implementation that has mem_alloc() every pointer argument
 * of an op points to memory from it, also weights, ids and positions; only
 * tables and rows of sequences (struct kern_attn_seq), lists of copies and the
 * structures that hold pointers are in host memory.  The pool is mapped for the
 * device at the address in struct kern_kv.  Ops are queued in order, and only
 * mem_get(), wait() and mem_free() wait.  An op that fails on a device reports
 * nothing: the first failure is kept, ops do nothing from then on, and
 * step_end(), wait() and mem_get() return it.
 *
 * Steps.  One run of a model over a batch is a step, from kern_step_begin() to
 * kern_step_end().  A device may record it and replay it.
 */
#ifndef KERNELS_H
#define KERNELS_H

#include <kvmm/types.h>

#include "kernels/draw.h"
#include "kernels/dtype.h"
#include "kernels/quant.h"
#include "kernels/state.h"

/*
 * Raised by every change that may alter one bit of any result: KV computed by
 * another version must not be reused.
 */
#define KERN_NUMERICS_VERSION	1

/* See "Tolerance" above. */
#define KERN_TOL		2e-6

/*
 * bf16 has 8 bits of significand, so rounding to it moves a number by at most
 * u = 2^-8 of itself.  gemm: each |x||w| moves by u of itself, and the sum by
 * at most u * sum |x||w|.  Attention: scores move by d <= u * scale * sum
 * |q||k|, which moves the weights, whose sum is 1, by at most d in sum of
 * magnitudes; rounding the weights moves them by u more; so the result moves
 * by at most max |v| * u * (1 + scale * sum |q||k|).  Both are u times the
 * scale above, and u = 3.91e-3 leaves room for KERN_TOL.
 */
#define KERN_TOL_FAST		4e-3

/* Positions in one step of the online softmax; a power of two. */
#define KERN_CHUNK		64

/* Largest head dimension; it must also be a multiple of KERN_HEAD_ALIGN. */
#define KERN_MAX_HEAD_DIM	256
#define KERN_HEAD_ALIGN		8

/* Dims of latent vectors (struct kern_kv with a @rank) and of states are multiples of this. */
#define KERN_DIM_ALIGN		16

/* The largest dimension of KV with a @rank, and the largest rank. */
#define KERN_MAX_LATENT_DIM	576
#define KERN_MAX_RANK		512

/* Tokens of a block: a multiple of the first, at most the second. */
#define KERN_BLOCK_MIN		16u
#define KERN_BLOCK_MAX		4096u

/* Most layer groups of a model; each has tables and a geometry of its own. */
#define KERN_MAX_GROUPS		8u

/* See "Modes" above. */
enum kern_mode {
	KERN_MODE_EXACT,
	KERN_MODE_FAST,
};

/* Bytes of one element; not for types of blocks. */
static inline u32 kern_dtype_size(enum kern_dtype t)
{
	return t == KERN_F32 ? 4 : t == KERN_BF16 || t == KERN_F16 ? 2 : 1;
}

/* Do elements of this type of KV have scales? */
static inline bool kern_dtype_scaled(enum kern_dtype t)
{
	return t == KERN_E4M3 || t == KERN_I8;
}

/* A set of types, for kv_types and weight_types of struct kern_ops. */
#define KERN_TYPE_BIT(t)	(1u << (t))

/* Types of weights that all implementations take, and all types of blocks. */
#define KERN_PLAIN_WEIGHTS	(KERN_TYPE_BIT(KERN_F32) | KERN_TYPE_BIT(KERN_BF16))
#define KERN_BLOCK_WEIGHTS	(KERN_TYPE_BIT(NR_KERN_DTYPES) - KERN_TYPE_BIT(KERN_FIRST_BLOCKS))

/* In weight_types: products take weights with an order of columns. */
#define KERN_ORDER_WEIGHTS	(1u << 31)

/* The most columns of weights with an order: rows of x are sorted in memory at hand. */
#define KERN_MAX_ORDER		65536u

/*
 * The largest element of a scaled type; a scale is the largest magnitude
 * divided by it.
 */
#define KERN_E4M3_MAX		448.0f
#define KERN_I8_MAX		127.0f

/**
 * struct kern_weight - a matrix of parameters, row-major and dense
 * @data:   rows * cols elements; may be a mapped file, never written
 * @dtype:  type of the elements; with a type of blocks @cols are whole blocks
 * @rows:   N, the output features (or the vocabulary, of an embedding)
 * @cols:   K, the input features
 * @order:  element k of a row belongs to number order[k] of a row of x; NULL: to number k.
 *	Only for products, with at most KERN_MAX_ORDER columns and KERN_ORDER_WEIGHTS
 * @packed: @data was written by pack() of struct kern_ops, in that
 *	implementation's own order; only implementations with a pack() take it
 */
struct kern_weight {
	const void	*data;
	enum kern_dtype	dtype;
	u32		rows;
	u32		cols;
	const u32	*order;
	bool		packed;
};

/**
 * struct kern_kv - places of the elements of paged KV
 * @base:         the pool's base in this process
 * @unit:         bytes per unit of a table entry (64 by default)
 * @layer_stride: bytes from a layer to the next inside a block
 * @block_tokens: a multiple of KERN_BLOCK_MIN, at most KERN_BLOCK_MAX
 * @nr_layers:    layers of a block (kv_copy copies all of them)
 * @group:        number of the layer group; 0 if all layers are one group
 * @kv_heads:     KVH; 1 with @rank
 * @head_dim:     hd
 * @rank:         0: K and V are stored.  Else only K is stored, and the first @rank
 *	numbers of K are V, too
 * @dtype:        type of K and V elements
 * @record_blocks: table entries for each block_tokens tokens, of a group of states (see
 *	kern_state_kv()); 0 of a group of K and V, which has one
 *
 * Inside one layer of a block: [K|V][kv_head][token][dim], and after that, for
 * types with scales, [K|V][kv_head][token] in f32; with @rank there is no V.
 * kern_kv_addr() and kern_kv_scale_addr() are the definition.  Nothing else is
 * assumed, so block-major and layer-major pools differ only in @layer_stride and
 * the entries.  The elements of a layer take a multiple of 256 bytes and its
 * scales one of 128 (with @rank 256 and 64), so that dense layers keep the
 * alignment of a block.  A head whose size is no multiple of 16 is not padded.
 *
 * Latent attention (@rank is not 0).  A token has one vector of hd numbers for all
 * query heads: its latent vector of @rank numbers, and behind it the rotated part
 * of the key.  A score is the product of a query with all hd numbers, and the
 * result is the weighted sum of latent vectors.  So the model multiplies queries
 * by the matrix that makes keys of latent vectors, and results by the matrix that
 * makes values, and K and V of heads are never computed.
 *
 * Scaled types.  A number is its element times the scale of its head and token.
 * kv_write computes both from the hd numbers x of a K or V head, all in f32,
 * rounding to nearest, ties to even:
 *   amax    = max |x[d]|
 *   scale   = amax / 448 (e4m3), amax / 127 (int8)
 *   element = x[d] / scale, rounded to the type; never beyond +-448, +-127
 * If the scale is 0, all elements are (with no sign).  If a number is not
 * finite, the scale is the NaN 0x7fc00000 and all elements are 0.
 */
struct kern_kv {
	u8		*base;
	u64		unit;
	u64		layer_stride;
	u32		block_tokens;
	u32		nr_layers;
	u32		group;
	u32		kv_heads;
	u32		head_dim;
	u32		rank;
	enum kern_dtype	dtype;
	u32		record_blocks;
};

/*
 * The group of @s as one of struct kern_step.  Only its tables are meant: it has no K
 * and V.
 */
static inline struct kern_kv kern_state_kv(const struct kern_state *s)
{
	return (struct kern_kv){
		.base = s->base, .unit = s->unit,
		.layer_stride = s->block_bytes, .block_tokens = s->tokens,
		.nr_layers = s->nr_layers, .group = s->group,
		.record_blocks = kern_state_blocks(s),
	};
}

/* Address of dim 0 of (@entry, @layer, K=0 or V=1, @head, @token). */
static inline u8 *kern_kv_addr(const struct kern_kv *kv, u32 entry, u32 layer,
			       u32 is_v, u32 head, u32 token)
{
	u64 row = ((u64)is_v * kv->kv_heads + head) * kv->block_tokens + token;

	return kv->base + kv->unit * entry + layer * kv->layer_stride +
	       row * kv->head_dim * kern_dtype_size(kv->dtype);
}

/* Vectors of a token and head: K and V, or K alone. */
static inline u32 kern_kv_sides(const struct kern_kv *kv)
{
	return kv->rank ? 1 : 2;
}

/*
 * Bytes of the elements of one layer of one block; its scales begin after them.
 */
static inline u64 kern_kv_data_bytes(const struct kern_kv *kv)
{
	return (u64)kern_kv_sides(kv) * kv->kv_heads * kv->block_tokens * kv->head_dim *
	       kern_dtype_size(kv->dtype);
}

/* Address of the scale for kern_kv_addr()'s element; only for scaled types. */
static inline float *kern_kv_scale_addr(const struct kern_kv *kv, u32 entry,
					u32 layer, u32 is_v, u32 head,
					u32 token)
{
	u64 row = ((u64)is_v * kv->kv_heads + head) * kv->block_tokens + token;

	return (float *)(void *)(kv->base + kv->unit * entry +
				 layer * kv->layer_stride +
				 kern_kv_data_bytes(kv)) + row;
}

/* Bytes of one layer of one block. */
static inline u64 kern_kv_layer_bytes(const struct kern_kv *kv)
{
	u64 rows = (u64)kern_kv_sides(kv) * kv->kv_heads * kv->block_tokens;

	return kern_kv_data_bytes(kv) +
	       (kern_dtype_scaled(kv->dtype) ? rows * sizeof(float) : 0);
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
 * struct kern_attn - arguments of one attention or attn_latent call (one layer)
 * @kv:      geometry of the pool
 * @layer:   which layer
 * @nr_seqs: length of @seqs
 * @seqs:    rows and tables; prefill and decode rows may be mixed
 * @q:       [M][H][hd], rows @q_ld apart; already rotated
 * @q_ld:    0 means H * hd
 * @out:     [M][H][hd], rows @out_ld apart; only rows named in @seqs are written.
 *	With the KV's rank: [M][H][rank]
 * @out_ld:  0 means dense
 * @heads:   H
 * @window:  a row at position p sees positions p - window + 1 .. p; 0 means all
 * @scale:   factor on q.k before the softmax, usually 1 / sqrt(hd)
 * @softcap: if not 0, a score s becomes softcap * tanh(s / softcap)
 * @sinks:   [H] a score of each head that is in every row's softmax as if it had a
 *	position with V = 0; neither scaled nor capped, and finite.  NULL: none
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
	const float			*sinks;
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
 * With the KV's rank @k is [M][rank], the latent vectors, and @v is
 * [M][hd - rank], the part of the keys behind them.  Both are dense if their ld is
 * 0, and have one scale.
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

/**
 * struct kern_rope_pairs - arguments of one rope_pairs call
 * @x:      [@m][@heads] parts of 2 * @half numbers: row i, head h begins at
 *	i * @x_ld + h * @x_step
 * @x_ld:   elements from a row to the next
 * @x_step: elements from a head to the next
 * @y:      gets the rotated numbers, likewise at i * @y_ld + h * @y_step; no part
 *	may overlap @x
 * @table:  from rope_table(), one table row for each row
 */
struct kern_rope_pairs {
	const float	*x;
	u64		x_ld;
	u64		x_step;
	float		*y;
	u64		y_ld;
	u64		y_step;
	u32		m;
	u32		heads;
	u32		half;
	const float	*table;
};

/* One of several matrices that are multiplied by the same x. */
struct kern_gemm_out {
	const struct kern_weight	*w;
	const float			*bias;
	float				*y;
	u64				y_ld;
};

/**
 * struct kern_gemm_part - one of several products
 * @x:    [@m] rows, @x_ld apart
 * @x_ld: 0: columns of @w
 * @w:    its matrix
 * @bias: NULL, or one number for each row of @w
 * @m:    rows, at least 1
 * @y:    [@m] rows, @y_ld apart
 * @y_ld: 0: rows of @w
 */
struct kern_gemm_part {
	const float			*x;
	u64				x_ld;
	const struct kern_weight	*w;
	const float			*bias;
	u32				m;
	float				*y;
	u64				y_ld;
};

/**
 * struct kern_add_norm - arguments of kern_add_norm()
 * @x:      [@m][@d], becomes x + y
 * @y:      [@m][@d]
 * @h:      [@m][@d], gets the norm of the new x; may be @y
 * @w:      weight of the norm
 * @bias:   bias of a layernorm; may be NULL
 * @layer:  layernorm, else rmsnorm
 * @settle: round both results with settle(), unless the ops do so themselves
 */
struct kern_add_norm {
	float		*x;
	const float	*y;
	float		*h;
	const float	*w;
	const float	*bias;
	u32		m;
	u32		d;
	float		eps;
	bool		layer;
	bool		settle;
};

/**
 * struct kern_rope_write - arguments of kern_rope_write()
 * @append: K and V to append; its k is rotated in place first, and is dense
 * @m:      rows of the batch
 * @q:      [@m][@heads][hd], rotated in place
 * @heads:  H
 * @half:   as for rope()
 * @table:  from rope_table(), one table row for each row
 * @settle: as in struct kern_add_norm
 */
struct kern_rope_write {
	struct kern_kv_append	append;
	u32			m;
	float			*q;
	u32			heads;
	u32			half;
	const float		*table;
	bool			settle;
};

/* Most experts of a layer, groups of them, and experts that a row chooses. */
#define KERN_MAX_EXPERTS	1024u
#define KERN_MAX_EXPERT_GROUPS	64u
#define KERN_MAX_CHOSEN		32u

/**
 * struct kern_route - arguments of one route call: rows choose their experts
 * @logits:  [@m][@experts]
 * @m:       rows
 * @experts: at most KERN_MAX_EXPERTS
 * @chosen:  experts that each row chooses, at most KERN_MAX_CHOSEN
 * @groups:  experts are this many groups of neighbours, all of one size; 1: no
 *	groups.  At most KERN_MAX_EXPERT_GROUPS
 * @groups_chosen: only experts of this many groups can be chosen, those with the
 *	largest logits.  They have at least @chosen experts
 * @over_chosen: the softmax is over the chosen experts, so that the shares of a
 *	row have the sum @scale (the same as to divide by their sum).  Otherwise it
 *	is over all experts of the layer
 * @scale:   factor on shares
 * @ids:     [@m][@chosen] gets the experts, the one with the largest logit first;
 *	of equal logits the lower number comes first.  The ids of a row differ and are
 *	below @experts, also if logits are no numbers
 * @shares:  [@m][@chosen] gets the shares of the experts
 */
struct kern_route {
	const float	*logits;
	u32		m;
	u32		experts;
	u32		chosen;
	u32		groups;
	u32		groups_chosen;
	bool		over_chosen;
	float		scale;
	u32		*ids;
	float		*shares;
};

/**
 * struct kern_blend - arguments of one blend call: the outputs of chosen experts
 * @y:      rows of @d, those that the chosen experts made
 * @slots:  [@m][@chosen] row of @y
 * @shares: [@m][@chosen]
 * @base:   [@m][@d], added first; may be NULL
 * @gates:  [@m], a row of base is multiplied by the sigmoid of its gate, 1 / (1 + exp(-gate));
 *	    NULL: by nothing
 * @m:      rows
 * @chosen: as in struct kern_route
 * @d:      elements of a row
 * @out:    [@m][@d] = base + the sum of share * y, in the order of @slots
 */
struct kern_blend {
	const float	*y;
	const u32	*slots;
	const float	*shares;
	const float	*base;
	const float	*gates;
	u32		m;
	u32		chosen;
	u32		d;
	float		*out;
};

/* One copy-on-write descriptor: the first @tokens tokens, all layers. */
struct kern_kv_copy {
	u32	from;
	u32	to;
	u32	tokens;
};

/* The largest rank of an adapter, and most parts of one adapt call. */
#define KERN_MAX_ADAPT_RANK	512u
#define KERN_MAX_ADAPT_PARTS	4096u

/**
 * struct kern_adapt_part - rows of one adapter in one product
 * @a:     [@rank][cols], row-major and dense
 * @b:     [@rank][@outs], row-major and dense: column n belongs to output n
 * @rank:  1 to KERN_MAX_ADAPT_RANK
 * @scale: factor on the product
 * @rows:  [@m] numbers of rows of x and of @y, rising
 * @m:     at least 1
 * @outs:  outputs of the product
 * @y:     rows @y_ld apart
 * @y_ld:  0: @outs
 */
struct kern_adapt_part {
	const void	*a;
	const void	*b;
	u32		rank;
	float		scale;
	const u32	*rows;
	u32		m;
	u32		outs;
	float		*y;
	u64		y_ld;
};

/**
 * struct kern_adapt - arguments of one adapt call: adapters of some rows
 * @x:     rows of @cols, @x_ld apart
 * @x_ld:  0: @cols
 * @cols:  columns of each @a
 * @dtype: type of each @a and @b: KERN_F32 or KERN_BF16
 * @parts: [@nr] parts; no two of them have a row of the same y
 * @nr:    at most KERN_MAX_ADAPT_PARTS
 * @t:     [@t_len] memory for sums, in the memory of the ops; at least the sum of
 *	m * rank over all parts
 *
 * For each part, each of its rows i and each output n
 *   y[i][n] += scale * sum_j t[j] * b[j][n] with t[j] = sum_k x[i][k] * a[j][k]
 */
struct kern_adapt {
	const float			*x;
	u64				x_ld;
	u32				cols;
	enum kern_dtype			dtype;
	const struct kern_adapt_part	*parts;
	u32				nr;
	float				*t;
	u64				t_len;
};

struct kern_ctx;

/**
 * struct kern_opts - options of a context; all zero is a valid choice
 * @device: number of the device, if there are several
 * @graphs: steps may be recorded and replayed
 */
struct kern_opts {
	u32	device;
	bool	graphs;
};

/**
 * struct kern_device - the device of a context
 * @name:    the driver's name of it
 * @variant: code that it runs, "sm_90"; part of a model's identity
 * @uuid:    its UUID
 * @bytes:   bytes of its memory
 * @free:    bytes of these that are free
 */
struct kern_device {
	char	name[96];
	char	variant[16];
	u8	uuid[16];
	u64	bytes;
	u64	free;
};

/**
 * struct kern_step - the batch of one step, in host memory
 * @kv:        [@nr_groups] geometry of each layer group, in the order of their numbers
 * @nr_groups: 1 to KERN_MAX_GROUPS
 * @seqs:      [@nr_groups][@nr_seqs] all rows of the batch, in order, with the tables of
 *	each group; groups differ in their tables alone
 * @nr_seqs:   sequences, at least 1
 * @nr_rows:   rows of all of them
 * @ids:       [nr_rows] token of each row
 * @positions: [nr_rows] number for the position of each row: rope_table() takes
 *	it, or embed() where positions are learned
 * @wanted:    [nr_wanted] rows whose logits are wanted
 * @nr_wanted: how many, may be 0
 * @max_rows:  most rows that fit into the ops' memory
 * @max_wanted: most rows of logits, likewise
 * @once:      do not record it: the ops depend on more than the batch
 *
 * Valid until kern_step_begin() has returned, except for @seqs and its tables:
 * attention and kv_write of the step get those of the layer's group again.
 */
struct kern_step {
	const struct kern_kv		*kv;
	u32				nr_groups;
	const struct kern_attn_seq	*seqs;
	u32				nr_seqs;
	u32				nr_rows;
	const u32			*ids;
	const u32			*positions;
	const u32			*wanted;
	u32				nr_wanted;
	u32				max_rows;
	u32				max_wanted;
	bool				once;
};

/**
 * struct kern_rows - the batch of one step, as its ops take it
 * @ids:       [nr_rows], in memory that ops read
 * @positions: [nr_rows]
 * @wanted:    [nr_wanted]
 * @nr_rows:   rows to run, at least those of the batch.  More rows may follow
 *	as filling, with harmless ids and positions; they write no KV
 * @nr_wanted: likewise, filled up with an existing row
 * @recorded:  the ops are the same for every batch of this size, and nothing
 *	may wait or allocate between begin and end
 * @replayed:  the ops are recorded: leave them out
 */
struct kern_rows {
	const u32	*ids;
	const u32	*positions;
	const u32	*wanted;
	u32		nr_rows;
	u32		nr_wanted;
	bool		recorded;
	bool		replayed;
};

/**
 * struct kern_ops - one implementation of the kernels
 * @name:    "ref", "cpu", "cuda" or "cuda-fast"; "null" has no operations, all
 *	are NULL
 * @variant: "base", "avx2", "avx512", "avx512bf16": instruction set it was
 *	compiled for, "avx2int8" and "avx512vnni" with packed weights in blocks; for a
 *	device see struct kern_device
 * @version: KERN_NUMERICS_VERSION it was compiled with
 * @mode:    numeric mode; see above
 * @kv_types: KERN_TYPE_BIT() of the supported types of KV
 * @kv_row:   bytes of a head of K or V are a multiple of this; 0: any head is taken
 * @weight_types: KERN_TYPE_BIT() of the supported types of weights, and KERN_ORDER_WEIGHTS
 *
 * @open, @close, @describe: contexts of a device; NULL where a context is
 *	threads.  Called by kern_open(), kern_close(), kern_describe().
 *
 * @mem_alloc: allocate @bytes of device memory, 256-byte aligned; NULL if there
 *	is none.  This and the following members up to @sample are NULL if ops
 *	work in the memory of the program.
 *
 * @mem_free: free it; may be NULL; waits for ops that use it.
 *
 * @mem_put: copy @bytes from the host to @to, in order with the ops; @from may
 *	be used again at once.
 *
 * @mem_get: copy @bytes to the host when the earlier ops have run; waits.
 *	Return: 0, or the first failure as -errno.
 *
 * @mem_fetch: as mem_get(), but @to is valid only after wait().  It is fast,
 *	and runs beside later ops, if @to is from host_alloc().
 *
 * @host_alloc: allocate @bytes of host memory that the device can access itself
 *	(pinned); NULL if there is none.
 *
 * @host_free: free it; may be NULL; no queued op may use it.
 *
 * @wait: wait until all ops have run; 0 or as mem_get().
 *
 * @failure: one line about the error of mem_get(); NULL without failure
 *
 * @sample: draw tokens, see struct kern_sample; not in a recorded step.
 *
 * @step_begin, @step_end: see kern_step_begin(); NULL if a step is only its ops.
 *
 * @settles: from now on results of embed, rmsnorm, layernorm, layernorm_heads, gemm,
 *	rope, rope_pairs, attention, attn_latent, silu_mul, act, swiglu, route (its shares),
 *	blend, add, scale, conv, scan and gated_norm are (or are not) rounded to bf16
 *	by the op that makes them, as settle() would.  NULL: call settle().
 *
 * @settle: round @n elements to bf16, nearest even, in place; NaN stays NaN.
 *
 * @gather: y[i][:] = x[rows[i]][:] for @m rows of @d.
 *
 * @split_heads: [m][heads][3 * hd], q, k and v of a head side by side, into
 *	three of [m][heads][hd].
 *
 * @pack_bytes: bytes of @w when packed; 0 if it cannot be packed, or is already.
 *	NULL in implementations that do not pack.
 *
 * @pack: write @w packed to @to, pack_bytes() bytes at an address that is a
 *	multiple of 64, and make @w the packed weight.  On a device both are in
 *	its memory.  The old data is not needed any more.  Products with it have
 *	the tolerance and the determinism of others, but other bits.  NULL as above.
 *
 * @embed: x[i][:] = w[ids[i]][:] for @m rows; x is [M][w->cols].
 *
 * @rmsnorm: y = x / sqrt(mean(x^2) + eps) * w over rows of @d; w is f32 [d].
 *	y may be x.  Norms of heads are the same with m = M * H, d = hd.
 *
 * @layernorm: y = (x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) * w + bias
 *	over rows of @d; w and bias are f32 [d], bias may be NULL.  y may be x.
 *
 * @layernorm_heads: layernorm() without bias of @heads heads of @d elements in each
 *	of @m rows.  Head h has the weight w[h]; w is f32 [heads][d].  y may be x.
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
 * @rope_pairs: rotate numbers whose partners are their neighbours, and sort the
 *	result as rope() has it: for j < half
 *	  y[j]        = x[2j] * cos - x[2j + 1] * sin
 *	  y[j + half] = x[2j + 1] * cos + x[2j] * sin
 *	See struct kern_rope_pairs.
 *
 * @kv_write: append K and V of rows to the pool; see struct kern_kv_append.
 *
 * @attention: paged, causal, grouped-query; see struct kern_attn.
 *
 * @attn_latent: the same over KV with a rank, without window, soft cap and sinks;
 *	see "Latent attention" at struct kern_kv.
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
 * @swiglu: y[i] = g / (1 + exp(-@alpha * g)) * (u + 1) over @m rows of @d, with
 *	g = min(gate[i], @limit) and u = max(-@limit, min(up[i], @limit)).  Rows
 *	and aliases as for silu_mul.
 *
 * @route: the experts of each row; see struct kern_route.
 *
 * @blend: the weighted sum of their outputs; see struct kern_blend.
 *
 * @add: x[i] += y[i] for @n elements.
 *
 * @scale: x[i] *= @by for @n elements.
 *
 * @softcap: x[i] = cap * tanh(x[i] / cap) for @n elements, cap > 0.
 *
 * @adapt: add the products of adapters; see struct kern_adapt.  Sums are in f32, also of
 *	bf16 matrices, and x is not rounded.  In a device @rows of parts is in host
 *	memory, as the parts are; not in a recorded step.
 *
 * @conv: causal convolution of each channel, and SiLU: y = silu(bias + sum w[j] *
 *	x[p - conv + 1 + j]) for the row at position p, from the oldest input on; zeros
 *	stand before position 0.  See struct kern_conv.
 *
 * @scan: for each row and head, with the state S of the head,
 *	  dt' = softplus(dt + dt_bias)
 *	  S[n][p] = exp(-exp(a_log) * dt') * S[n][p] + dt' * B[n] * x[p]
 *	  y[p] = sum C[n] * S[n][p] + d * x[p]
 *	See struct kern_scan.  conv of the same layer comes first.
 *
 * @gated_norm: with g = x * z / (1 + exp(-z)), y = g / sqrt(mean(g^2) + eps) * w over each
 *	part of a row; see struct kern_gated_norm.
 *
 * @gemm_many, @gemm_parts, @add_rmsnorm, @add_layernorm, @rope_write: several
 *	ops in one launch; see kern_gemm_many(), kern_gemm_parts(),
 *	kern_add_norm(), kern_rope_write().  NULL: these call the ops one by one.
 *
 * Context: one op at a time per struct kern_ctx; several contexts may run at
 * once.  No function fails or allocates unless its text says so.
 */
struct kern_ops {
	const char	*name;
	const char	*variant;
	u32		version;
	enum kern_mode	mode;
	u32		kv_types;
	u32		kv_row;
	u32		weight_types;

	int (*open)(const struct kern_opts *opts, struct kern_ctx **ret,
		    char *why, size_t len);
	void (*close)(struct kern_ctx *ctx);
	void (*describe)(struct kern_ctx *ctx, struct kern_device *dev);

	void *(*mem_alloc)(struct kern_ctx *ctx, u64 bytes);
	void (*mem_free)(struct kern_ctx *ctx, void *p);
	void (*mem_put)(struct kern_ctx *ctx, void *to, const void *from,
			u64 bytes);
	int (*mem_get)(struct kern_ctx *ctx, void *to, const void *from,
		       u64 bytes);
	void (*mem_fetch)(struct kern_ctx *ctx, void *to, const void *from,
			  u64 bytes);
	void *(*host_alloc)(struct kern_ctx *ctx, u64 bytes);
	void (*host_free)(struct kern_ctx *ctx, void *p);
	int (*wait)(struct kern_ctx *ctx);
	const char *(*failure)(struct kern_ctx *ctx);
	void (*sample)(struct kern_ctx *ctx, const struct kern_sample *s);

	int (*step_begin)(struct kern_ctx *ctx, const struct kern_step *s,
			  struct kern_rows *rows);
	int (*step_end)(struct kern_ctx *ctx);
	void (*settles)(struct kern_ctx *ctx, bool on);

	void (*settle)(struct kern_ctx *ctx, float *x, u64 n);
	void (*gather)(struct kern_ctx *ctx, const float *x, const u32 *rows,
		       u32 m, u32 d, float *y);
	void (*split_heads)(struct kern_ctx *ctx, const float *qkv, u32 m,
			    u32 heads, u32 head_dim, float *q, float *k,
			    float *v);

	size_t (*pack_bytes)(const struct kern_weight *w);
	void (*pack)(struct kern_ctx *ctx, struct kern_weight *w, void *to);
	void (*embed)(struct kern_ctx *ctx, const struct kern_weight *w,
		      const u32 *ids, u32 m, float *x);
	void (*rmsnorm)(struct kern_ctx *ctx, const float *x, const float *w,
			u32 m, u32 d, float eps, float *y);
	void (*layernorm)(struct kern_ctx *ctx, const float *x, const float *w,
			  const float *bias, u32 m, u32 d, float eps,
			  float *y);
	void (*layernorm_heads)(struct kern_ctx *ctx, const float *x,
				const float *w, u32 m, u32 heads, u32 d,
				float eps, float *y);
	void (*gemm)(struct kern_ctx *ctx, const float *x, u64 x_ld,
		     const struct kern_weight *w, const float *bias, u32 m,
		     float *y, u64 y_ld);
	void (*rope_table)(struct kern_ctx *ctx, const float *inv_freq,
			   u32 half, const u32 *positions, u32 m,
			   float *table);
	void (*rope)(struct kern_ctx *ctx, float *x, u64 ld, u32 m, u32 heads,
		     u32 head_dim, u32 half, const float *table);
	void (*rope_pairs)(struct kern_ctx *ctx,
			   const struct kern_rope_pairs *r);
	void (*kv_write)(struct kern_ctx *ctx, const struct kern_kv_append *a);
	void (*attention)(struct kern_ctx *ctx, const struct kern_attn *a);
	void (*attn_latent)(struct kern_ctx *ctx, const struct kern_attn *a);
	void (*kv_copy)(struct kern_ctx *ctx, const struct kern_kv *kv,
			const struct kern_kv_copy *copies, u32 nr);
	void (*silu_mul)(struct kern_ctx *ctx, const float *gate,
			 const float *up, u64 ld, u32 m, u32 d, float *y);
	void (*act)(struct kern_ctx *ctx, enum kern_act act, const float *gate,
		    const float *up, u64 ld, u32 m, u32 d, float *y);
	void (*swiglu)(struct kern_ctx *ctx, const float *gate,
		       const float *up, u64 ld, u32 m, u32 d, float alpha,
		       float limit, float *y);
	void (*route)(struct kern_ctx *ctx, const struct kern_route *r);
	void (*blend)(struct kern_ctx *ctx, const struct kern_blend *b);
	void (*add)(struct kern_ctx *ctx, float *x, const float *y, u64 n);
	void (*scale)(struct kern_ctx *ctx, float *x, float by, u64 n);
	void (*softcap)(struct kern_ctx *ctx, float *x, float cap, u64 n);
	void (*adapt)(struct kern_ctx *ctx, const struct kern_adapt *a);

	void (*conv)(struct kern_ctx *ctx, const struct kern_conv *a);
	void (*scan)(struct kern_ctx *ctx, const struct kern_scan *a);
	void (*gated_norm)(struct kern_ctx *ctx, const struct kern_gated_norm *a);

	void (*gemm_many)(struct kern_ctx *ctx, const float *x, u64 x_ld,
			  const struct kern_gemm_out *out, u32 nr, u32 m);
	void (*gemm_parts)(struct kern_ctx *ctx,
			   const struct kern_gemm_part *parts, u32 nr);
	void (*add_rmsnorm)(struct kern_ctx *ctx, float *x, const float *y,
			    const float *w, u32 m, u32 d, float eps, float *h);
	void (*add_layernorm)(struct kern_ctx *ctx, float *x, const float *y,
			      const float *w, const float *bias, u32 m, u32 d,
			      float eps, float *h);
	void (*rope_write)(struct kern_ctx *ctx,
			   const struct kern_kv_append *a, float *q, u64 q_ld,
			   u32 heads, u32 half, const float *table);
};

/**
 * kern_get() - find an implementation by name
 * @name: "ref"; "cpu" or NULL for the widest variant of exact mode that this
 *	CPU runs; "cpu-fast" for the widest of fast mode, or the same as "cpu"
 *	if this CPU runs none; or "cpu:base", "cpu:avx2", "cpu:avx512",
 *	"cpu:avx2int8", "cpu:avx512vnni", "cpu:avx512bf16" for one of them; "null" for a
 *	table without operations, for measuring everything else; "cuda" and "cuda-fast" for
 *	a GPU's.  kern_at() leaves "null" and those of a GPU out, and "avx2int8" and
 *	"avx512vnni": they are "avx2" and "avx512" but for packed weights.
 *
 * kern_open() reports whether there is a GPU.
 *
 * Return: the table, valid for ever; NULL if the name is unknown or this CPU
 * cannot run it.
 */
const struct kern_ops *kern_get(const char *name);

/**
 * kern_at() - enumerate the tables of kern_get() on this CPU
 * @i: 0 is "ref", then the variants of "cpu", narrowest first, exact before
 *	fast
 *
 * Return: the table, or NULL past the last.
 */
const struct kern_ops *kern_at(u32 i);

/**
 * kern_kv_check() - do the kernels support a KV geometry?
 * @kv: the geometry; @base is not checked
 *
 * Return: 0, or -EINVAL (head_dim not a multiple of KERN_HEAD_ALIGN or above
 * KERN_MAX_HEAD_DIM; with a rank not one of KERN_DIM_ALIGN or above KERN_MAX_LATENT_DIM; a
 * rank above KERN_MAX_RANK or not below head_dim, block_tokens out of range, layers
 * overlapping or not aligned to elements and scales, an empty dimension).
 */
int __must_check kern_kv_check(const struct kern_kv *kv);

/**
 * kern_kv_check_ops() - does an implementation support a KV geometry?
 * @ops: the implementation
 * @kv:  the geometry
 *
 * Return: 0; -EINVAL as above; -EOPNOTSUPP if @ops lacks the type, or heads of this size
 * in this type.
 */
int __must_check kern_kv_check_ops(const struct kern_ops *ops,
				   const struct kern_kv *kv);

/**
 * kern_state_check() - do the kernels support a geometry of states?
 * @s: the geometry; @base is not checked
 *
 * Return: 0; -EINVAL: a size is out of its range, or no unit fits a block.
 */
int __must_check kern_state_check(const struct kern_state *s);

/**
 * kern_ctx_create() - start the threads that run the ops
 * @nr_threads: the caller included; 0 means one per CPU this process may use
 * @ret: the context
 *
 * Idle threads sleep in the kernel, so contexts of several models share the
 * cores.  Results do not depend on @nr_threads.
 *
 * Return: 0, -ENOMEM or the error of pthread_create().
 */
int __must_check kern_ctx_create(u32 nr_threads, struct kern_ctx **ret);

/**
 * kern_ctx_pin() - give each thread its own CPU, for good
 * @ctx: the context; it has as many threads as this process may use CPUs
 *
 * For a program that has the machine to itself; runtimes that share one must
 * not.  The caller is pinned, too: it is the thread that runs the ops.
 *
 * Return: 0, -EINVAL if the numbers differ, or the error of the system call.
 */
int __must_check kern_ctx_pin(struct kern_ctx *ctx);

/**
 * kern_ctx_rest() - no op will follow soon: let idle threads sleep
 * @ctx: may be NULL
 *
 * Between ops threads stay awake for a short while, since the next op of a step
 * comes within microseconds.  Call this at a step's end.  The next op wakes the
 * threads.
 *
 * Context: the thread that runs the ops; does not wait.
 */
void kern_ctx_rest(struct kern_ctx *ctx);

/* End the threads; @ctx may be NULL.  No op may be running. */
void kern_ctx_destroy(struct kern_ctx *ctx);

/* Threads of @ctx, the caller's included. */
u32 kern_ctx_nr_threads(const struct kern_ctx *ctx);

/**
 * kern_open() - create a context for @ops, of threads or of a device
 * @ops:        the implementation
 * @nr_threads: as for kern_ctx_create(), if a context is threads
 * @opts:       NULL for defaults
 * @ret:        the context; ops of other tables do not take it
 * @why:        @len bytes for one line with the error
 *
 * Return: 0, -ENODEV (no such device, no driver, or it has no code for it),
 * -ENOMEM, or the error of pthread_create().
 */
int __must_check kern_open(const struct kern_ops *ops, u32 nr_threads,
			   const struct kern_opts *opts, struct kern_ctx **ret,
			   char *why, size_t len);

/* Close a context of kern_open(), and free its memory; @ctx may be NULL. */
void kern_close(const struct kern_ops *ops, struct kern_ctx *ctx);

/*
 * Describe the device of @ctx.  For threads the name is empty, and the variant
 * is that of the table.
 */
void kern_describe(const struct kern_ops *ops, struct kern_ctx *ctx,
		   struct kern_device *dev);

/* Does @ops work in its own memory? */
static inline bool kern_is_device(const struct kern_ops *ops)
{
	return ops->mem_alloc;
}

/**
 * kern_step_begin() - begin a step with the batch for the next ops
 * @s:    the batch
 * @rows: the batch as the ops take it
 *
 * If a step is only its ops, @rows is @s.
 *
 * Return: 0, or a failure of the device.
 */
int __must_check kern_step_begin(const struct kern_ops *ops,
				 struct kern_ctx *ctx,
				 const struct kern_step *s,
				 struct kern_rows *rows);

/**
 * kern_step_end() - end a step: all its ops are named
 *
 * They may not have run yet: see wait() and mem_get().
 *
 * Return: 0; -EAGAIN: no op was run, begin the step once more; or a failure of
 * the device.
 */
int __must_check kern_step_end(const struct kern_ops *ops,
			       struct kern_ctx *ctx);

/**
 * kern_gemm_many() - gemm() of @nr matrices with the same @x
 * @out: with the same cols; outputs may not overlap
 *
 * For products that share their input: Q, K and V, or gate and up.  In exact
 * mode the bits are the same as for single calls; in fast mode one launch may
 * split K differently from several.
 */
void kern_gemm_many(const struct kern_ops *ops, struct kern_ctx *ctx,
		    const float *x, u64 x_ld, const struct kern_gemm_out *out,
		    u32 nr, u32 m);

/**
 * kern_gemm_parts() - gemm() of each of @nr products
 *
 * For products of rows that chose different experts.  Outputs may not overlap, nor may
 * one product's output be another one's @x.  In exact mode the bits are the same as for
 * single calls; in fast mode one launch may split K differently from several.
 */
void kern_gemm_parts(const struct kern_ops *ops, struct kern_ctx *ctx,
		     const struct kern_gemm_part *parts, u32 nr);

/**
 * kern_add_norm() - the residual and the norm after it
 *
 * The bits are those of add() and rmsnorm() or layernorm(), in every mode.
 */
void kern_add_norm(const struct kern_ops *ops, struct kern_ctx *ctx,
		   const struct kern_add_norm *n);

/**
 * kern_rope_write() - rope() of q and of k, and kv_write()
 *
 * The bits are the same as for the three calls, in every mode.
 */
void kern_rope_write(const struct kern_ops *ops, struct kern_ctx *ctx,
		     const struct kern_rope_write *r);

#endif /* KERNELS_H */
