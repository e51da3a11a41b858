/* SPDX-License-Identifier: Apache-2.0 */
/*
 * args.h - arguments of the kernels, for host and device code
 *
 * Plain structures of numbers and device addresses, with the same layout in C
 * and in CUDA: one for each kernel, passed by value, at most 4 KiB.  Addresses
 * are typed pointers that only device code dereferences.
 */
#ifndef KERNELS_CUDA_ARGS_H
#define KERNELS_CUDA_ARGS_H

#include "kernels/dtype.h"

#ifdef __CUDACC__
typedef unsigned char		u8;
typedef signed char		s8;
typedef unsigned short		u16;
typedef unsigned int		u32;
typedef unsigned long long	u64;
typedef int			s32;
typedef long long		s64;
#else
#include <kvmm/types.h>
#endif

/*
 * Counts of a step (struct kern_step), which the host uploads once a step.  Every
 * attention and append of the step reads them, also when the step is replayed
 * from a graph.  So counts that change from step to step are here and not in the
 * arguments of kernels.
 *
 * @nr_seqs:  sequences that have rows
 * @nr_rows:  rows of the step; a graph may run more rows, which write no KV
 * @max_rows_seq: most rows of one sequence
 * @max_len:  most positions that a row sees
 */
struct dev_step {
	u32	nr_seqs;
	u32	nr_rows;
	u32	max_rows_seq;
	u32	max_len;
};

/*
 * One sequence of a step, like struct kern_attn_seq.
 * @table: index of its first entry in the step's entries
 */
struct dev_seq {
	u32	table;
	u32	nr_rows;
	u32	first_row;
	u32	start_pos;
};

/*
 * The batch.  A graph keeps these addresses from step to step.
 * @step:     the counts
 * @seqs:     [nr_seqs]
 * @entries:  tables, one after the other
 * @row_seq:  [rows] sequence of a row; ~0: none, and the row writes no KV
 * @row_pos:  [rows] absolute position
 */
struct dev_batch {
	const struct dev_step	*step;
	const struct dev_seq	*seqs;
	const u32		*entries;
	const u32		*row_seq;
	const u32		*row_pos;
};

/* struct kern_kv, with the pool's address on the device. */
struct dev_kv {
	u8	*base;
	u64	unit;
	u64	layer_stride;
	u32	block_tokens;
	u32	nr_layers;
	u32	kv_heads;
	u32	head_dim;
	u32	dtype;		/* enum kern_dtype */
	u32	rank;
};

/* With @settle every result of an op is rounded to bf16. */

/* ---- rows: row.cu, norm.cu, rope.cu, act.cu ---- */

/*
 * x[i] += y[i] (add); x[i] *= @by, x[i] = by * tanh(x[i] / by), or only rounding
 * (map).
 */
struct k_add_args {
	float		*x;
	const float	*y;
	u64		n;
	u32		settle;
	u32		vec;		/* addresses are multiples of 16 */
};

struct k_map_args {
	float		*x;
	u64		n;
	float		by;
	u32		settle;
	u32		vec;
	u32		resv;
};

/*
 * x[i] = table[rows[i]], @m rows of @d elements of @dtype.  An index that is not
 * below @nr_rows belongs to a row that only fills a graph up, and counts as 0.
 */
struct k_take_args {
	const void	*table;
	const u32	*rows;
	float		*x;
	u32		m;
	u32		d;
	u32		nr_rows;	/* of @table */
	u32		dtype;
	u32		settle;
	u32		vec;
};

/*
 * A matrix in blocks (kernels/quant.h): type, elements and bytes of a block, bytes of a
 * row.
 */
struct dev_blocks {
	u32	type;
	u32	elems;
	u32	bytes;
	u32	resv;
	u64	row;
};

/* As k_take_args, of a table in blocks. */
struct k_take_blocks_args {
	const void		*table;
	const u32		*rows;
	float			*x;
	struct dev_blocks	blocks;
	u32			m;
	u32			d;
	u32			nr_rows;
	u32			settle;
	u32			vec;
	u32			resv;
};

/* [m][heads][q|k|v][hd] into three of [m][heads][hd]. */
struct k_split_heads_args {
	const float	*from;
	float		*q;
	float		*k;
	float		*v;
	u64		heads;		/* of all rows */
	u32		head_dim;
	u32		vec;
};

/*
 * y = norm(x) of @m rows of @d elements; with @add x += add comes first.  @threads,
 * the threads of a row, depend only on @d.  The rows use @sets weights in turn.
 */
struct k_norm_args {
	float		*x;		/* written only with @add */
	const float	*add;
	const float	*w;
	const float	*bias;		/* may be NULL */
	float		*y;
	u32		m;
	u32		d;
	u32		sets;
	float		eps;
	u32		settle;
	u32		vec;
	u32		threads;
};

struct k_rope_table_args {
	const float	*inv_freq;
	const u32	*positions;
	float		*table;
	u32		m;
	u32		half;
};

struct k_rope_args {
	float		*x;
	const float	*table;
	u64		ld;
	u32		m;
	u32		heads;
	u32		head_dim;
	u32		half;
	u32		settle;
	u32		vec;
};

/* struct kern_rope_pairs */
struct k_rope_pairs_args {
	const float	*x;
	float		*y;
	const float	*table;
	u64		x_ld;
	u64		x_step;
	u64		y_ld;
	u64		y_step;
	u32		m;
	u32		heads;
	u32		half;
	u32		settle;
};

/* y = act(gate) * up, rows of gate and up @ld apart; @up may be NULL. */
struct k_act_args {
	const float	*gate;
	const float	*up;
	float		*y;
	u64		ld;
	u32		m;
	u32		d;
	u32		act;		/* enum kern_act */
	u32		settle;
	u32		vec;
	u32		resv;
};

/* y = g * sigmoid(alpha * g) * (u + 1), both clamped by @limit; rows as above. */
struct k_swiglu_args {
	const float	*gate;
	const float	*up;
	float		*y;
	u64		ld;
	u32		m;
	u32		d;
	float		alpha;
	float		limit;
	u32		settle;
	u32		vec;
};

/* ---- experts: moe.cu ---- */

/* struct kern_route */
struct k_route_args {
	const float	*logits;
	u32		*ids;
	float		*shares;
	u32		m;
	u32		experts;
	u32		chosen;
	u32		groups;
	u32		groups_chosen;
	u32		over_chosen;
	float		scale;
	u32		settle;
};

/* struct kern_blend */
struct k_blend_args {
	const float	*y;
	const u32	*slots;
	const float	*shares;
	const float	*base;		/* may be NULL */
	const float	*gates;		/* likewise */
	float		*out;
	u32		m;
	u32		chosen;
	u32		d;
	u32		settle;
	u32		vec;
	u32		resv;
};

/* ---- adapters: adapt.cu ---- */

/* Rows of x of a block, rows of a (one a warp), and columns of b (one a thread). */
#define ADAPT_ROWS	4u
#define ADAPT_DOWN	8u
#define ADAPT_UP	256u

/*
 * struct kern_adapt_part
 * @t:    number of its first sum
 * @down: number of its first block of k_adapt_down
 * @up:   likewise, of k_adapt_up
 * @vec:  rows of @a are aligned to 16
 */
struct dev_adapt {
	const void	*a;
	const void	*b;
	const u32	*rows;
	float		*y;
	u64		y_ld;
	u64		t;
	u32		rank;
	u32		m;
	u32		outs;
	float		scale;
	u32		down;
	u32		up;
	u32		vec;
	u32		resv;
};

/* Of k_adapt_down and k_adapt_up; @vec: rows of x are aligned to 16. */
struct k_adapt_args {
	const float		*x;
	float			*t;
	const struct dev_adapt	*parts;
	u64			x_ld;
	u32			nr;
	u32			cols;
	u32			dtype;
	u32			vec;
};

/* ---- kv.cu ---- */

/* Also of k_latent_write: @k has the latent vectors, @v the rest of the keys. */
struct k_kv_write_args {
	struct dev_kv	 kv;
	struct dev_batch batch;
	const float	*k;
	const float	*v;
	u64		k_ld;
	u64		v_ld;
	u32		layer;
	u32		rows;
	u32		vec;		/* rows of k and v are aligned to 16 */
	u32		kv_vec;		/* layers of the pool are, too */
};

/* Rotate q and k in place, and append k and v. */
struct k_rope_write_args {
	struct k_kv_write_args	w;
	float			*q;
	float			*k;	/* w.k, writable */
	const float		*table;
	u64			q_ld;
	u32			heads;
	u32			half;
	u32			settle;
	u32			vec;	/* rows of q are aligned to 16 */
};

struct dev_kv_copy {
	u32	from;
	u32	to;
	u32	tokens;
};

/* Descriptors of one launch; none of them reads or writes another's target. */
#define KV_COPY_MAX	256u

struct k_kv_copy_args {
	struct dev_kv		kv;
	u32			nr;
	u32			vec;	/* layers are aligned to 16 */
	struct dev_kv_copy	c[KV_COPY_MAX];
};

/* ---- state.cu ---- */

#define STATE_MAX_CONV	8u

/*
 * struct kern_state, and sizes that follow from it.
 * @stride: bytes from a unit to the next in its block
 * @layer:  the layer of the call
 * @blocks: table entries of a record
 * @per:    units of a block
 * @units:  units of a layer
 * @shared: channels of a shared unit
 */
struct dev_state {
	u8	*base;
	u64	unit;
	u64	stride;
	u32	tokens;
	u32	layer;
	u32	blocks;
	u32	per;
	u32	units;
	u32	shared;
	u32	channels;
	u32	heads;
	u32	head_dim;
	u32	d_state;
	u32	groups;
	u32	conv;
};

struct k_conv_args {
	struct dev_state	s;
	struct dev_batch	batch;
	const float		*x;
	const float		*w;
	const float		*bias;	/* may be NULL */
	float			*y;
	u32			settle;
	u32			resv;
};

struct k_gated_norm_args {
	const float	*x;
	const float	*z;
	const float	*w;
	float		*y;
	u32		d;
	u32		groups;
	float		eps;
	u32		settle;
};

/* @parts: threads that share a dimension of a head */
struct k_scan_args {
	struct dev_state	s;
	struct dev_batch	batch;
	const float		*x;
	const float		*dt;
	const float		*dt_bias;
	const float		*a_log;
	const float		*d;
	float			*y;
	u32			parts;
	u32			settle;
};

/* ---- sample.cu ---- */

/*
 * A token with penalties.  The repetition penalty applies to all tokens of the
 * list, the others only if @count is not 0.
 */
struct dev_sample_count {
	u32	id;
	u32	count;		/* in the text, without the prompt */
};

struct dev_sample_bias {
	u32	id;
	float	bias;
};

/*
 * struct dev_draw - one draw, with the parameters of struct sampling_params
 * @seed, @position, @sample: the key of its random number
 * @row:       row of the logits; draws of one row have the same edits
 * @adjusts:   make the edits below; set in at most one draw of a row
 * @nr_top:    report this many of the likeliest tokens, at most SAMPLE_TOP_MAX
 * @logprobs:  report logprob and rank of the drawn token, and @nr_top
 * @saved:     index of this draw's room in the saved logits, one number for each
 *	       entry of @masked, @biases and @counts; ~0: it makes no edits
 * @allowed:   one bit for each token, from bit 0 of word 0; NULL: all may be drawn
 * @masked:    tokens that may not be drawn
 * @biases:    numbers to add to logits, each token at most once
 * @counts:    tokens of prompt and text, each once
 */
struct dev_draw {
	u64				seed;
	u64				position;
	u32				sample;
	u32				row;
	float				temperature;
	float				top_p;
	float				min_p;
	u32				top_k;
	float				repetition;
	float				presence;
	float				frequency;
	u32				adjusts;
	u32				logprobs;
	u32				nr_top;
	u32				saved;
	u32				nr_masked;
	u32				nr_biases;
	u32				nr_counts;
	const u32			*allowed;
	const u32			*masked;
	const struct dev_sample_bias	*biases;
	const struct dev_sample_count	*counts;
};

#define SAMPLE_TOP_MAX	128u

struct dev_top {
	u32	id;
	float	logprob;
};

/*
 * struct dev_drawn - result of a draw
 * @id:      the token, or one of SAMPLE_* below
 * @rank:    its rank among the likeliest, from 1
 * @logprob: its logprob in the model's row, without edits
 * @nr_top:  number of its entries in struct k_sample_args' @top
 */
struct dev_drawn {
	s32	id;
	u32	rank;
	float	logprob;
	u32	nr_top;
};

/* As sampler_sample(): -EDOM, -ERANGE, -ENODATA. */
#define SAMPLE_NAN	(-33)
#define SAMPLE_INF	(-34)
#define SAMPLE_NOTHING	(-61)

struct k_sample_args {
	float			*logits;
	const struct dev_draw	*draws;
	struct dev_drawn	*drawn;
	struct dev_top		*top;	/* [draws][top_stride] */
	float			*saved;
	u64			ld;	/* from a row of logits to the next */
	u32			vocab;
	u32			nr;
	u32			top_stride;
	u32			restore;	/* k_sample_adjust: undo the edits */
};

/* ---- products, gemm*.cu ---- */

/* Matrices that one launch can multiply with the same x. */
#define GEMM_PARTS	4

/* Products of one shape that one launch of k_group_* does, each with its own x. */
#define GEMM_GROUP	64

/* Outputs of a block of k_gemm_skinny*, and columns of K that it loads at once. */
#define GEMM_SKINNY_N	64
#define GEMM_SKINNY_K	128

/* Outputs and rows of a block of k_gemm_tile. */
#define GEMM_TILE_M	128
#define GEMM_TILE_N	128

/* Elements of K in one chain of sums in exact mode; part of the numerics. */
#define GEMM_RUN	64

/*
 * One matrix of a launch: y[m][n] = x * w^T.
 * @first: number of its first block in the launch, counted along N
 */
struct gemm_part {
	const void	*w;
	const float	*bias;
	float		*y;
	u64		y_ld;
	u32		n;
	u32		first;
};

/*
 * Arguments of all products.
 * @x:      f32; bf16 for k_gemm_tile
 * @dtype:  type of all weights
 * @blocks: the same if it is a type of blocks
 * @x_vec, @w_vec: each row begins at a multiple of 16 bytes
 */
struct gemm_args {
	struct gemm_part	part[GEMM_PARTS];
	const void		*x;
	u64			x_ld;
	u32			nr_parts;
	u32			nr_blocks;
	u32			m;
	u32			k;
	u32			dtype;
	u32			settle;
	u32			x_vec;
	u32			w_vec;
	struct dev_blocks	blocks;
};

struct k_gemm_exact1_f32_args { struct gemm_args g; };
struct k_gemm_exact1_bf16_args { struct gemm_args g; };
struct k_gemm_exact1_f16_args { struct gemm_args g; };
struct k_gemm_exact4_f32_args { struct gemm_args g; };
struct k_gemm_exact4_bf16_args { struct gemm_args g; };
struct k_gemm_exact4_f16_args { struct gemm_args g; };
struct k_gemm_exact1_blocks_args { struct gemm_args g; };
struct k_gemm_exact4_blocks_args { struct gemm_args g; };
struct k_gemm_exact_mid_blocks_args { struct gemm_args g; };
struct k_gemm_exact_tile_blocks_args { struct gemm_args g; };
struct k_gemm_exact_mid_args { struct gemm_args g; };
struct k_gemm_exact_tile_args { struct gemm_args g; };

/*
 * @chunk:   columns of x in shared memory at once
 * @range:   columns of K that one block sums up; like @chunk a multiple of
 *	     GEMM_SKINNY_K
 * @partial: [splits][m][nr_blocks * GEMM_SKINNY_N], if K is split
 * @ticket:  [nr_blocks] counters, 0 before and after the launch
 */
struct gemm_skinny_args {
	struct gemm_args	g;
	u32			chunk;
	u32			range;
	u32			splits;
	float			*partial;
	u32			*ticket;
};

struct k_gemm_skinny8_args { struct gemm_skinny_args s; };
struct k_gemm_skinny16_args { struct gemm_skinny_args s; };

/* A product of a group, where it differs from the others; @m: its rows of x. */
struct gemm_group_part {
	const void	*x;
	const void	*w;
	const float	*bias;
	float		*y;
	u32		m;
	u32		resv;
};

/*
 * The products of a group.  What they have in common is in struct gemm_args: @m is the
 * most rows of one of them there, and @part has one entry.
 * @per: blocks along N of each
 */
struct gemm_group {
	u32			nr;
	u32			per;
	struct gemm_group_part	part[GEMM_GROUP];
};

/* The part is z of the grid. */
struct group_exact_args {
	struct gemm_args	g;
	struct gemm_group	group;
};

struct k_group_exact1_f32_args { struct group_exact_args a; };
struct k_group_exact1_bf16_args { struct group_exact_args a; };
struct k_group_exact1_f16_args { struct group_exact_args a; };
struct k_group_exact1_blocks_args { struct group_exact_args a; };
struct k_group_exact4_f32_args { struct group_exact_args a; };
struct k_group_exact4_bf16_args { struct group_exact_args a; };
struct k_group_exact4_f16_args { struct group_exact_args a; };
struct k_group_exact4_blocks_args { struct group_exact_args a; };

/* Blocks along N are numbered through all parts, @per a part, for the tickets. */
struct group_skinny_args {
	struct gemm_skinny_args	s;
	struct gemm_group	group;
};

struct k_group_skinny8_args { struct group_skinny_args a; };
struct k_group_skinny16_args { struct group_skinny_args a; };

/* ---- packed weights: gemm_packed.cu, gemm_pack.cu ---- */

/* Rows of a panel, and columns of a unit. */
#define PACKED_ROWS	16u
#define PACKED_COLS	64u

/* Most rows of x of a block of k_gemm_packed*. */
#define PACKED_M	64u

/* The kinds of codes. */
enum packed_codes {
	PACKED_U4,		/* an integer without a sign, less @zero */
	PACKED_FP4,		/* twice e2m1 */
	PACKED_S8,
	PACKED_E4M3,
	NR_PACKED_CODES,
};

/* The kinds of words with scales. */
enum packed_scale {
	PACKED_F32,		/* a factor in f32 */
	PACKED_HALVES,		/* a factor and a number to add, in f16 */
	PACKED_SUPER,		/* Q4_K: two f16, then bytes to multiply them by */
	PACKED_ZERO,		/* a factor in f32 without its last eight bits, and a zero */
};

/*
 * How a type of blocks is packed; see packed.cuh.
 * @codes: enum packed_codes
 * @zero:  what is taken from codes
 * @scale: enum packed_scale
 * @group: columns with one scale: 16, 32 or 64
 * @unit:  bytes of a unit: its codes, and behind them its scales
 * @panel: bytes of PACKED_ROWS rows
 */
struct dev_packed {
	u32	codes;
	u32	zero;
	u32	scale;
	u32	group;
	u32	unit;
	u32	resv;
	u64	panel;
};

struct gemm_packed_args {
	struct gemm_skinny_args	s;
	struct dev_packed	p;
};

struct k_gemm_packed8_args { struct gemm_packed_args a; };
struct k_gemm_packed16_args { struct gemm_packed_args a; };
struct k_gemm_packed32_args { struct gemm_packed_args a; };
struct k_gemm_packed64_args { struct gemm_packed_args a; };

/* As struct group_skinny_args; no part has more than PACKED_M rows. */
struct group_packed_args {
	struct gemm_packed_args	p;
	struct gemm_group	group;
};

struct k_group_packed8_args { struct group_packed_args a; };
struct k_group_packed16_args { struct group_packed_args a; };
struct k_group_packed32_args { struct group_packed_args a; };
struct k_group_packed64_args { struct group_packed_args a; };

/* Pack @n rows of @k columns. */
struct k_gemm_pack_args {
	const void		*w;
	u8			*to;
	struct dev_blocks	blocks;
	struct dev_packed	p;
	u32			n;
	u32			k;
};

/* to[@n][@k] = packed W in bf16 */
struct k_gemm_unpack_args {
	const u8		*w;
	u32			*to;
	struct dev_packed	p;
	u32			n;
	u32			k;
};

struct k_gemm_tile_args { struct gemm_args g; };

/* to[m][to_ld] = x[m][k] in bf16, zeros from column k on. */
struct k_gemm_narrow_args {
	const float	*x;
	u64		x_ld;
	u32		*to;
	u32		to_ld;		/* even */
	u32		m;
	u32		k;
};

/* y = y + bias, rounded if @settle */
struct k_gemm_finish_args {
	float		*y;
	const float	*bias;
	u64		y_ld;
	u32		m;
	u32		n;
	u32		settle;
};

/* ---- attention (attn*.cu) ---- */

/*
 * One call for one layer; all its kernels take the same arguments.
 * @sinks:  [heads] or NULL, as in struct kern_attn
 * @part:   memory for partial results
 * @part_floats: its size
 * @group:  query heads of a KV head
 * @block_shift: how often the tokens of a block can be halved
 * @block_inverse: 2^32 divided by the result, rounded up; 0 where that is 2^32
 * @unit_shift: log2 of the positions of a unit of work of decoding
 * @ctas:   blocks of threads that share the work, x of their grid
 */
struct k_attn_args {
	struct dev_batch batch;
	struct dev_kv	kv;
	const float	*q;
	u64		q_ld;
	float		*out;
	u64		out_ld;
	const float	*sinks;
	float		*part;
	u64		part_floats;
	u32		layer;
	u32		heads;
	u32		group;
	u32		window;
	float		scale;
	float		softcap;
	u32		block_shift;
	u32		block_inverse;
	u32		unit_shift;
	u32		ctas;
	u32		settle;
	u32		resv;
};

#endif /* KERNELS_CUDA_ARGS_H */
