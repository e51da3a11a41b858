/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout.h - the tensors of a checkpoint by layout, as tables
 */
#ifndef RUNTIME_MODEL_LAYOUT_H
#define RUNTIME_MODEL_LAYOUT_H

#include "runtime/model/weights.h"

/* A size from the configuration. */
enum weight_dim {
	DIM_NONE,	/* a vector has no columns */
	DIM_VOCAB,
	DIM_HIDDEN,
	DIM_INTER,
	DIM_Q,		/* all query heads */
	DIM_KV,		/* all KV heads */
	DIM_QKV,	/* all heads */
	DIM_HEAD,	/* one head */
	DIM_Q_NORM,	/* weights of the norm of q */
	DIM_K_NORM,
	DIM_EMBED,	/* width of the embedding */
	DIM_HEADS,	/* one number for each query head */
	DIM_TWO_INTER,	/* gate and up */
	DIM_POSITIONS,	/* rows of learned positions */
	DIM_EXPERTS,	/* the router's outputs */
	DIM_EXPERT,	/* width of an expert */
	DIM_TWO_EXPERT,	/* its gate and up */
	DIM_SHARED,	/* width of the shared expert */
	DIM_ONE,
	DIM_Q_RANK,	/* input of queries */
	DIM_RANK,	/* a latent vector */
	DIM_KV_A,	/* a latent vector and the rotated part of keys */
	DIM_KV_B,	/* K and V of all heads, of a latent vector */
	DIM_NOPE,	/* dimensions of a head that are not rotated */
	DIM_ABSORB,	/* a latent vector for each head */
	DIM_ATTN_OUT,	/* all values */
	DIM_STATE_HEADS,	/* heads of a recurrent layer */
	DIM_INNER,	/* all of these heads */
	DIM_STATE_NORM,	/* weights of the norm of them */
	DIM_CONV,	/* channels of the convolution */
	DIM_STATE_IN,	/* z, those channels, and dt of each head */
};

/* The switch that a tensor depends on. */
enum weight_need {
	NEED_ALWAYS,
	NEED_UNTIED,
	NEED_HEAD_BIAS,
	NEED_PROJECTED,		/* the embedding has a width of its own */
	NEED_QKV_BIAS,
	NEED_O_BIAS,
	NEED_MLP_BIAS,
	NEED_PRE_NORM,		/* a norm before attention */
	NEED_PRE_BIAS,		/* and its bias */
	NEED_MLP_NORM,		/* a norm before the MLP, where outputs have none */
	NEED_MLP_NORM_BIAS,
	NEED_BOTH_NORMS,	/* a norm before the MLP, where outputs have some */
	NEED_POST_NORMS,	/* norms of outputs */
	NEED_SUM_NORM,		/* norms of the residual stream after additions */
	NEED_SUM_BIAS,
	NEED_FINAL_NORM,
	NEED_FINAL_BIAS,
	NEED_QK_NORM,		/* of any kind */
	NEED_QK_NORM_BIAS,
	NEED_SINKS,
	NEED_DENSE,		/* the layer has no experts */
	NEED_DENSE_BIAS,	/* the same, and the MLP has biases */
	NEED_SPARSE,		/* the layer has experts */
	NEED_ROUTER_BIAS,
	NEED_EXPERT_BIAS,
	NEED_SHARED,		/* the layer has an expert of all rows, without a gate */
	NEED_GATED,		/* the same, with a gate */
	NEED_Q_RANK,		/* queries are made of an input of their own */
	NEED_NO_Q_RANK,
	NEED_ATTENTION,		/* the layer attends */
	NEED_ATTENTION_BIAS,
	NEED_RECURRENT,		/* the layer is recurrent */
	NEED_CONV_BIAS,
};

/* How a tensor fills its place. */
enum weight_how {
	HOW_WHOLE,
	HOW_NORM,	/* and 1 is added, if the family adds it */
	HOW_HEAD_NORM,	/* the same, of q or k; with QK_NORM_EACH [heads][head] */
	HOW_F32,	/* in f32, so that no mode rounds its factors */
	HOW_QKV,	/* its rows are the rows of q, k and v */
	HOW_GATE_UP,	/* its rows are the rows of gate and up */
	HOW_PAIRS,	/* as HOW_GATE_UP, in turn: gate, up, gate, up...; only turned */
	HOW_KV_A,	/* its rows are a latent vector, and the rotated part of keys */
	HOW_KV_B,	/* for each head, rows of keys, and rows of values */
	HOW_STATE_IN,	/* its rows are the rows of z, xbc and dt */
	HOW_STATE,	/* a vector of a recurrent layer that is no norm and no bias */
	HOW_TAPS,	/* [channels][1][taps], which becomes [taps][channels] */
};

/* The owner of a tensor. */
enum weight_of {
	OF_LAYER,	/* the layer's, or the model's */
	OF_EXPERT,	/* one expert's; its number is in the name */
	OF_EXPERTS,	/* those of all experts of the layer, one after the other */
	OF_Q_HEAD,	/* one query head's; its number is in the name.  They become one */
	OF_KV_HEAD,	/* one KV head's, likewise */
};

/*
 * @offset is the place of a struct kern_weight, or of a float * for a vector, in
 * struct model_weights, struct model_layer or, for experts, struct model_mlp.
 * HOW_QKV, HOW_KV_A, HOW_KV_B and HOW_STATE_IN do not use it; of HOW_GATE_UP and
 * HOW_PAIRS it is the place of a struct model_mlp.  With @turned the matrix is stored
 * as [columns][rows].
 */
struct weight_spec {
	const char		*name;
	size_t			offset;
	enum weight_dim		rows;
	enum weight_dim		cols;
	enum weight_need	need;
	enum weight_how		how;
	enum weight_of		of;
	bool			turned;
};

/**
 * struct weight_names - one layout
 * @prefixes:	before every name but the head's; files of some families have
 *		the second prefix
 * @layers:	between prefix and number of a layer
 * @head:	name of the output matrix, without prefix
 * @head_bias:	name of its bias, without prefix
 * @top:	tensors outside of layers
 * @nr_top:	how many
 * @layer:	tensors of a layer; their names follow its number
 * @nr_layer:	how many
 * @leftovers:	ends of names that may be there without meaning, up to NULL
 * @transposed:	matrices of layers are stored as [columns][rows]
 */
struct weight_names {
	const char			*prefixes[2];
	const char			*layers;
	const char			*head;
	const char			*head_bias;
	const struct weight_spec	*top;
	u32				nr_top;
	const struct weight_spec	*layer;
	u32				nr_layer;
	const char			*leftovers[4];
	bool				transposed;
};

const struct weight_names *weight_names_of(enum weight_layout layout);

u64 weight_dim(const struct model_config *cfg, enum weight_dim dim);

#define WEIGHT_PARTS	3

/*
 * The place of some rows of a matrix, a struct kern_weight at @offset, or of some
 * elements of a vector, a float * there.
 */
struct weight_part {
	size_t	offset;
	u64	rows;
};

/* The places of a tensor's rows, in order; returns how many. */
u32 weight_parts(const struct model_config *cfg, const struct weight_spec *s,
		 struct weight_part parts[WEIGHT_PARTS]);

#define WEIGHT_NAME_MAX	128

/* Is a tensor one of several, of one head each, that become one? */
static inline bool weight_of_head(const struct weight_spec *s)
{
	return s->of == OF_Q_HEAD || s->of == OF_KV_HEAD;
}

/* Full name of a tensor outside of layers, into WEIGHT_NAME_MAX bytes. */
void weight_top_name(const struct weight_names *n, u32 prefix,
		     const struct weight_spec *s, char *name);

#define WEIGHT_TOP	(~0u)

/**
 * struct weight_at - one tensor of a walk
 * @spec:	its row of the table
 * @name:	full name
 * @layer:	WEIGHT_TOP outside of layers
 * @expert:	the expert of the tensor, with OF_EXPERT, or the head, with OF_Q_HEAD and
 *		OF_KV_HEAD; else 0
 * @first:	the first such expert or head that the process has
 * @heads:	heads whose tensors become one, with OF_Q_HEAD and OF_KV_HEAD; else 1
 * @stack:	matrices or vectors that it has: all experts' with OF_EXPERTS, else 1
 * @rows:	rows of one of them
 * @cols:	columns; 0: vectors
 * @turned:	matrices are stored as [columns][rows]
 */
struct weight_at {
	const struct weight_spec	*spec;
	const char			*name;
	u32				layer;
	u32				expert;
	u32				first;
	u32				heads;
	u32				stack;
	u64				rows;
	u64				cols;
	bool				turned;
};

/* Which of the prefixes of @n the names of @c have; 0 if none of them is there. */
u32 weights_prefix(const struct ckpt *c, const struct weight_names *n);

/**
 * weights_walk() - walk all tensors that a configuration asks for
 * @cfg:	the configuration
 * @prefix:	which of the layout's prefixes the names have
 * @fn:		called for each; a nonzero result ends the walk
 * @arg:	for @fn
 *
 * Return: 0, or what @fn returned.
 */
int weights_walk(const struct model_config *cfg, u32 prefix,
		 int (*fn)(void *arg, const struct weight_at *at), void *arg);

/* The place of @part of matrix or vector number @i of the tensor. */
void *weight_place_of(struct model_weights *w, const struct weight_at *at,
		      u32 i, const struct weight_part *part);

/* Type of the elements as kernels see them; only for types of weights. */
enum kern_dtype weight_type(const struct st_tensor *t);

/* All elements of @t as f32. */
void weight_numbers(const struct st_tensor *t, float *to);

/* Can @t be used where it is mapped?  @types as for weights_bind(). */
bool weight_in_place(const struct weight_at *at, const struct st_tensor *t,
		     u32 types);

/* Is it the matrix of the embedding? */
bool weight_is_embed(const struct weight_at *at);

/* Do products read the matrix, in a type that @ops can pack? */
bool weight_is_packed(const struct weight_at *at, const struct st_tensor *t,
		      const struct model_config *cfg, const struct kern_ops *ops);

/* Type of matrix @t in use: its own, or that of its copy. */
enum kern_dtype weight_type_used(const struct weight_at *at,
				 const struct st_tensor *t, u32 types);

#endif /* RUNTIME_MODEL_LAYOUT_H */
