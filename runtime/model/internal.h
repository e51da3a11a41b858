/* SPDX-License-Identifier: Apache-2.0 */
/*
 * internal.h - the loaded model, shared by the files that run it
 */
#ifndef RUNTIME_MODEL_INTERNAL_H
#define RUNTIME_MODEL_INTERNAL_H

#include "runtime/model/adapter.h"
#include "runtime/model/split.h"
#include "runtime/model/weights.h"

#define MODEL_TOLD_NONE	0xffffffffu

/**
 * struct adapt_rows - rows of a batch that have one adapter
 * @rows: [@nr], rising
 */
struct adapt_rows {
	const struct adapter_place	*place;
	u32				*rows;
	u32				nr;
};

/**
 * struct model_work - memory of a forward, carved from two pieces
 * @mem:	memory of the ops, on a device if they run there; 64-byte
 *		aligned
 * @bytes:	its size
 * @host:	memory of the program
 * @host_bytes:	its size
 * @x:		[rows][hidden], the residual stream
 * @h:		[rows][hidden], input and output of projections
 * @side:	[rows][hidden], output of attention
 * @q:		[rows][heads * head_dim]
 * @k:		[rows][kv_heads * head_dim]; latent vectors: [rows][rank]
 * @v:		[rows][kv_heads * head_dim]; the rest of keys: [rows][rope]
 * @attn:	[rows][outputs of all heads]
 * @q_turned:	[rows][heads * head_dim], @q with neighbours rotated, if they are
 * @k_turned:	[rows][kv_heads * head_dim], @k likewise
 * @ones:	[hidden] ones, in place of the weights of norms that have none
 * @q_a:	[rows][q_rank], input of queries; this and the next three only with
 *		latent vectors
 * @k_rope:	[rows][rope], @v rotated
 * @absorbed:	[rows][heads][rank + rope], queries of latent vectors
 * @mixed:	[rows][heads][rank], sums of latent vectors
 * @qkv:	[rows][heads][3 * head_dim], if the layout joins them
 * @z:		[rows][inner], of recurrent layers, inner = heads * head_dim
 * @xbc:	[rows][channels], the input of the convolution
 * @conv:	[rows][channels], its result
 * @dt:		[rows][heads]
 * @scanned:	[rows][inner], the result of the scan
 * @gate:	[rows][width of the widest MLP]
 * @up:		[rows][the same]
 * @logits_of_experts: [rows][experts], output of the router; this and the next ones
 *		only in models with experts
 * @shares:	[rows][chosen]
 * @chosen:	[rows][chosen] numbers of experts
 * @slots:	[rows][chosen] rows of @made
 * @from:	[slots] the row that each slot belongs to
 * @gathered:	[rows][hidden], input of a group of experts, one expert after the other
 * @made:	[slots][hidden], outputs of all experts, one expert after the other
 * @shared:	[rows][hidden], output of the expert of all rows
 * @shared_gates: [rows], its gate, if it has one
 * @rope:	[rows][2][rotary / 2]
 * @rope_local:	the same for local layers; equals @rope unless they differ
 * @inv_freq:	[rotary / 2] inverse frequencies
 * @inv_local:	those of local layers
 * @inv_rows:	[rows][rotary / 2], if rows may have their own
 * @logits:	[max_logits][vocab], on a device
 * @max_logits:	rows of logits at once; 0 on a CPU, which needs none here
 * @all_heads:	[rows][all heads of the whole model], if ranks normalise them together
 * @all_states: [2][rows][heads of recurrent layers of all ranks], likewise
 * @ids:	[rows], on the host like all members below
 * @ids_mine:	[rows] those that this rank has, with others replaced, if there are ranks
 * @positions:	[rows]
 * @wanted:	[rows] rows whose logits are wanted
 * @seqs:	[groups][max_seqs], used as [groups][sequences of the batch]
 * @inv_host:	as @inv_rows
 * @told:	[rows] the token that a row of logits named last, with the
 *		"null" kernels; MODEL_TOLD_NONE before
 * @adapts:	[max_seqs] adapters of the batch and their rows, @nr_adapts
 * @adapt_rows:	[rows] the rows of all of them
 * @adapt_parts: [@max_adapt_parts] arguments of an op
 * @adapt_t:	[@t_len] sums of it; @t_len is 0 if no row can have an adapter
 * @chosen_host, @slots_host, @from_host: as @chosen, @slots and @from
 */
struct model_work {
	void			*mem;
	u64			bytes;
	void			*host;
	u64			host_bytes;
	float			*x;
	float			*h;
	float			*side;
	float			*q;
	float			*k;
	float			*v;
	float			*attn;
	float			*q_turned;
	float			*k_turned;
	float			*ones;
	float			*q_a;
	float			*k_rope;
	float			*absorbed;
	float			*mixed;
	float			*qkv;
	float			*z;
	float			*xbc;
	float			*conv;
	float			*dt;
	float			*scanned;
	float			*gate;
	float			*up;
	float			*logits_of_experts;
	float			*shares;
	u32			*chosen;
	u32			*slots;
	u32			*from;
	float			*gathered;
	float			*made;
	float			*shared;
	float			*shared_gates;
	float			*rope;
	float			*rope_local;
	float			*inv_freq;
	float			*inv_local;
	float			*inv_rows;
	float			*logits;
	u32			max_logits;
	float			*all_heads;
	float			*all_states;
	u32			*ids;
	u32			*ids_mine;
	u32			*positions;
	u32			*wanted;
	struct kern_attn_seq	*seqs;
	float			*inv_host;
	u32			*told;
	struct adapt_rows	*adapts;
	u32			nr_adapts;
	u32			max_adapt_parts;
	u32			*adapt_rows;
	struct kern_adapt_part	*adapt_parts;
	float			*adapt_t;
	u64			t_len;
	u32			*chosen_host;
	u32			*slots_host;
	u32			*from_host;
};

struct model {
	struct model_info	info;
	struct model_config	cfg;
	struct ckpt		*ckpt;
	struct model_weights	w;
	float			*inv_freq;	/* [rotary / 2] */
	float			*inv_local;	/* of local layers */
	const struct kern_ops	*ops;		/* NULL: judged, kernels unknown */
	struct kern_ctx		*ctx;
	struct kern_device	device;
	enum kern_dtype		kv_type;	/* the kernels' name of it */
	struct model_work	work;
	u32			max_rank;	/* of adapters; 0: there are none */
	struct model_stats	stats;
	struct model_progress	progress;
	bool			judged;		/* checked only, cannot run */
	const struct model_link	*link;		/* NULL: the model is whole */
	int			link_err;	/* of an exchange */
	struct cut		*cut;		/* parts of the tensors of @ckpt */
	char			*dir;
};

/* ---- choose.c ---- */

/* Put types that fit the model in the place of MODEL_DTYPE_AUTO. */
void model_choose_types(const struct model *m, struct model_opts *o);

/* ---- work.c ---- */

/*
 * Allocate @model->work for info.max_rows and info.max_seqs; 0 or -ENOMEM.  For
 * a model that was only judged, compute the sizes alone.
 */
int __must_check work_create(struct model *model);
void work_destroy(struct model *model);

/* May rows of @cfg have their own inverse frequencies, from @r->original on? */
static inline bool work_has_inv_rows(const struct model_config *cfg)
{
	return !cfg->learned && (rope_is_dynamic(&cfg->rope) ||
				 (cfg->two_ropes &&
				  rope_is_dynamic(&cfg->rope_local)));
}

/* ---- batch.c ---- */

/**
 * batch_check() - check the whole batch
 * @rows:   gets its rows
 * @wanted: gets its rows of logits
 *
 * Return: as model_forward().
 */
int __must_check batch_check(const struct model *model,
			     const struct model_seq_in *seqs, u32 nr_seqs,
			     u32 *rows, u32 *wanted);

/* Lay the batch out as rows, in the host's part of @model->work. */
void batch_pack(struct model *model, const struct model_seq_in *seqs,
		u32 nr_seqs);

/* ---- decoder.c ---- */

static inline bool in_bf16(const struct model *model)
{
	return model->info.dtype == MODEL_BF16;
}

/* End of an op: with bf16 arithmetic, round its result unless the op did so. */
static inline void settle(const struct model *model, float *x, u64 n)
{
	if (in_bf16(model) && !model->ops->settles)
		model->ops->settle(model->ctx, x, n);
}

/* From now on results are (or are not) read by other ops. */
static inline void settles(const struct model *model, bool on)
{
	if (in_bf16(model) && model->ops->settles)
		model->ops->settles(model->ctx, on);
}

/* y[m][rows of w] = x * w + bias */
void project(struct model *model, const float *x, const struct kern_weight *w,
	     const float *bias, u32 m, float *y);

/* Several of project(), all from @x. */
void project_many(struct model *model, const float *x,
		  const struct kern_gemm_out *out, u32 nr, u32 m);

/* Normalise @m rows of @d; @y may be @x. */
void normalise(struct model *model, const float *x, const float *w,
	       const float *bias, u32 m, u32 d, float *y);

/**
 * struct layer_kv - where K and V, or states, of a layer are
 * @kv:      geometry of its group
 * @seqs:    [@nr_seqs] the sequences with the tables of that group
 * @at:      number of the layer among those of the group
 */
struct layer_kv {
	const struct kern_kv		*kv;
	const struct kern_attn_seq	*seqs;
	u32				nr_seqs;
	u32				at;
};

/* ---- adapt.c ---- */

/*
 * Type of the numbers of adapters.  Fast mode may round factors to bf16, and so halves the
 * memory of adapters.
 */
static inline enum kern_dtype adapter_dtype(const struct model *model)
{
	return in_bf16(model) || model->info.mode == MODEL_FAST ? KERN_BF16 : KERN_F32;
}

/* List the rows of adapters.  For the batch that is packed. */
void adapts_pack(struct model *model, const struct model_seq_in *seqs, u32 nr_seqs);

#define ADAPT_NOWHERE	0xffffffffu	/* no layer: products without adapters */

/**
 * struct adapt_out - a product of the model that adapters add to
 * @y:    [rows][@outs]
 */
struct adapt_out {
	enum adapter_site	site;
	float			*y;
	u32			outs;
};

/**
 * adapt() - add the products of adapters to those of the model
 * @layer: its number, or ADAPT_NOWHERE
 * @x:     [@m][@cols], the input of all products in @out
 */
void adapt(struct model *model, u32 layer, const float *x, u32 cols,
	   const struct adapt_out *out, u32 nr, u32 m);

/* ---- latent.c ---- */

/* From @m normalised rows of work.h to outputs of heads in work.attn, by latent vectors. */
void latent_attend(struct model *model, const struct layer_kv *lkv,
		   const struct model_layer *l, u32 m);

/* ---- mlp.c ---- */

/**
 * mlp_run() - run an MLP
 * @layer:  whose adapters count, or ADAPT_NOWHERE
 * @mlp:    its matrices
 * @width:  rows of its gate
 * @alpha:  not 0: its gate is clamped, with this factor in its sigmoid
 * @x:      [m][hidden], normalised
 * @y:      [m][hidden], may be @x
 */
void mlp_run(struct model *model, u32 layer, const struct model_mlp *mlp, u32 width,
	     float alpha, const float *x, u32 m, float *y);

/* @m rows of work.gate = act(gate) * up, or act(up); @alpha as of mlp_run(). */
void mlp_activate(struct model *model, u32 m, u32 width, float alpha);

/* ---- experts.c ---- */

/*
 * The @m rows of work.h choose experts of @l, whose outputs replace them there.  The
 * step may not be recorded.
 */
void experts_run(struct model *model, const struct model_layer *l, u32 m);

/* ---- exchange.c ---- */

/* Bytes that a room needs at least. */
u64 exchange_least(const struct model_config *cfg);

/* As project(), of a matrix that ranks share by columns: the sum of all ranks. */
void project_sum(struct model *model, const float *x, const struct kern_weight *w,
		 const float *bias, u32 m, float *y);

/* Embeddings of @m rows, of which each rank has some. */
void exchange_embed(struct model *model, const u32 *ids, u32 m, float *to);

/* Complete work.made; @first is that of experts_run(). */
void exchange_slots(struct model *model, const u32 *first);

/*
 * Logits of @m rows: @fill computes those of this rank for some of them.  Only rank 0 gets
 * all of them in @logits.
 */
void exchange_logits(struct model *model, const float *x, u32 m, float *logits,
		     void (*fill)(struct model *model, const float *x, u32 m, float *to));

/*
 * Normalise @m rows of @x, the @heads heads of this rank, with those of all ranks
 * together, which are @all.
 */
void exchange_norm(struct model *model, float *x, const float *weights, u32 heads, u32 all,
		   u32 m);

/* @n, of the heads of this rank, together with those of the other ranks. */
void exchange_gated_norm(struct model *model, const struct kern_gated_norm *n);

/* ---- recurrent.c ---- */

/* From normalised h to side, in a recurrent layer. */
void layer_recurrent(struct model *model, const struct layer_kv *lkv, u32 layer,
		     u32 m);

/* ---- geometry.c ---- */

/* The geometry of all groups.  Return: do the kernels take it? */
bool geometries(const struct model *model, const struct model_kv *kv,
		struct kern_kv *g);

/* The geometry of the states of recurrent layers. */
struct kern_state state_geometry(const struct model *model,
				 const struct model_kv *kv);

/* ---- head.c ---- */

/**
 * struct head_out - where a step's logits go
 * @logits: [wanted][vocab], the caller's
 * @draws:  NULL: all rows go to @logits
 */
struct head_out {
	float				*logits;
	const struct model_draws	*draws;
};

/*
 * Are these draws of @wanted rows valid and in order, and can they be made
 * here?
 */
bool head_check(const struct model *model, const struct model_draws *d,
		u32 wanted);

/*
 * Compute the logits of the @wanted rows.  A device holds as many at once as
 * there is room for, and draws from them or copies them.  In a recorded step
 * head_take() does that after the step was begun.
 */
void head_logits(struct model *model, const struct kern_rows *rows, u32 wanted,
		 const struct head_out *out);

/* Draw from rows @at .. @at + @n - 1, which the device holds, or copy them. */
void head_take(struct model *model, const struct head_out *out, u32 at, u32 n);

/* ---- upload.c ---- */

/**
 * weights_upload_cost() - bytes that weights_upload() needs
 * @ops:    of the device
 * @pack:   as for weights_upload()
 * @packed: gets the bytes of packed matrices, which are part of the result
 */
u64 weights_upload_cost(struct model_weights *w, struct ckpt *c,
			const struct model_config *cfg, const struct kern_ops *ops,
			bool pack, u64 *packed);

/**
 * weights_upload() - put all parameters into the device's memory
 * @model: bound, its context open
 * @pack:  pack the matrices that the kernels can pack
 *
 * Return: 0, -ENOMEM, or a failure of the device.
 */
int __must_check weights_upload(struct model *model, bool pack);

/* null.c: kernels that compute nothing */
static inline bool model_is_null(const struct model *model)
{
	return !model->ops->gemm;
}

static inline bool model_on_device(const struct model *model)
{
	return model->ops && kern_is_device(model->ops);
}

/* Make up the wanted rows of logits; @seqs has been checked. */
void null_logits(struct model *model, const struct model_seq_in *seqs,
		 u32 nr_seqs, float *logits);

#endif /* RUNTIME_MODEL_INTERNAL_H */
