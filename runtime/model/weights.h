/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weights.h - the tensors of a checkpoint in the decoder's places
 */
#ifndef RUNTIME_MODEL_WEIGHTS_H
#define RUNTIME_MODEL_WEIGHTS_H

#include "kernels/kernels.h"
#include "runtime/model/checkpoint.h"
#include "runtime/model/config.h"
#include "runtime/model/model.h"

/* An MLP: that of a layer, or an expert. */
struct model_mlp {
	struct kern_weight	gate;		/* [width][hidden] */
	struct kern_weight	up;
	struct kern_weight	down;		/* [hidden][width] */
	const float		*gate_bias;	/* [width] */
	const float		*up_bias;
	const float		*down_bias;	/* [hidden] */
};

/* One decoder layer; members of features that are switched off are NULL. */
struct model_layer {
	const float		*attn_norm;	/* [hidden] */
	const float		*attn_norm_bias;
	const float		*attn_post;	/* [hidden], after attention */
	const float		*attn_post_bias;
	const float		*mlp_norm;	/* [hidden] */
	const float		*mlp_norm_bias;
	const float		*mlp_post;	/* [hidden], after the MLP */
	const float		*mlp_post_bias;
	const float		*q_norm;	/* [head_dim]; latent: [q_rank]; whole or
						 * each: [heads * head_dim] */
	const float		*q_norm_bias;	/* [head_dim] */
	const float		*k_norm;	/* [head_dim]; latent: [rank]; whole or
						 * each: [kv_heads * head_dim] */
	const float		*k_norm_bias;
	const float		*q_bias;	/* [heads * head_dim] */
	const float		*k_bias;	/* [kv_heads * head_dim] */
	const float		*v_bias;	/* [kv_heads * head_dim] */
	const float		*o_bias;	/* [hidden] */
	const float		*qkv_bias;	/* as @qkv */
	const float		*sinks;		/* [heads] */
	const float		*router_bias;	/* [experts] */
	const float		*conv;		/* of a recurrent layer: [taps][channels] */
	const float		*conv_bias;	/* [channels] */
	const float		*dt_bias;	/* [heads of the state], as the next two */
	const float		*a_log;
	const float		*skip;
	const float		*state_norm;	/* [all these heads] */
	struct kern_weight	z;		/* and @xbc, @dt: inputs of the layer */
	struct kern_weight	xbc;
	struct kern_weight	dt;
	struct kern_weight	qkv;		/* [heads][q, k, v of a head] */
	struct kern_weight	q;		/* these three, unless @qkv is set */
	struct kern_weight	k;		/* latent: [rank][hidden] */
	struct kern_weight	v;		/* latent: [rope][hidden] */
	struct kern_weight	q_a;		/* [q_rank][hidden] */
	struct kern_weight	absorb;		/* [heads][rank][nope] */
	struct kern_weight	values;		/* [heads][value][rank] */
	struct kern_weight	o;		/* also of a recurrent layer */
	struct model_mlp	mlp;		/* without experts */
	struct kern_weight	router;		/* [experts][hidden] */
	struct model_mlp	shared;		/* the expert of all rows */
	struct kern_weight	shared_gate;	/* [1][hidden], of that expert */
	struct model_mlp	*experts;	/* [experts] */
};

/**
 * struct model_weights - all parameters
 * @embed:	[vocab][width of embeddings]
 * @head:	the same shape; @embed again if tied
 * @head_bias:	[vocab]
 * @project_in:	[hidden][width of embeddings], if that is not hidden
 * @project_out: [width of embeddings][hidden], likewise
 * @pos:	[positions][hidden], the table of learned positions
 * @norm:	[hidden], the last norm
 * @norm_bias:	[hidden]
 * @layers:	one a decoder layer
 * @experts:	memory of all layers' experts
 * @owned:	copies of tensors that could not be used where they are mapped
 * @nr_owned:	how many
 * @owned_bytes: their size
 * @prefix:	index of the prefix of tensor names
 * @pack_map:	memory of packed matrices, NULL: none
 * @pack_size:	its size
 * @device:	device memory with all parameters, NULL: none
 * @mapped_bytes: bytes of the tensors that are used where they are mapped, if
 *		no tensor is packed
 */
struct model_weights {
	struct kern_weight	embed;
	struct kern_weight	head;
	const float		*head_bias;
	struct kern_weight	project_in;
	struct kern_weight	project_out;
	struct kern_weight	pos;
	const float		*norm;
	const float		*norm_bias;
	struct model_layer	*layers;
	struct model_mlp	*experts;
	void			**owned;
	u32			nr_owned;
	u64			owned_bytes;
	u64			mapped_bytes;
	u32			prefix;
	void			*pack_map;
	u64			pack_size;
	void			*device;
};

/**
 * struct weight_cost - cost and gain of packing, in bytes
 * @packed:	memory of packed matrices
 * @mapped:	packed part of @mapped_bytes
 * @owned:	packed part of @owned_bytes
 * @blocks:	matrices in blocks are among them: their products are slow unless packed
 */
struct weight_cost {
	u64	packed;
	u64	mapped;
	u64	owned;
	bool	blocks;
};

/**
 * struct weight_place - one tensor of a configuration
 * @name:	name in the file
 * @stack:	matrices or vectors, one after the other; 0: one without this
 *		dimension
 * @rows:	rows of each in the file
 * @cols:	0 for a vector
 * @taps:	the tensor in the file is [rows][1][@taps]; 0: it is not
 * @is_norm:	the weight of a norm
 * @is_state:	another vector of a recurrent layer, neither norm nor bias
 * @plus_one:	the decoder adds 1 to it
 */
struct weight_place {
	const char	*name;
	u64		stack;
	u64		rows;
	u64		cols;
	u32		taps;
	bool		is_norm;
	bool		is_state;
	bool		plus_one;
};

/**
 * weights_bind() - find, check and place every tensor
 * @w:		filled in; call weights_free() in every case
 * @c:		the checkpoint; must outlive @w, which points into its files
 * @cfg:	says which tensors there are, and their shapes
 * @judge:	check and count only; nothing is placed or copied
 * @types:	KERN_TYPE_BIT() of types that matrices can keep
 * @err:	set on failure
 *
 * Return: 0; -EINVAL if a tensor is missing, has the wrong shape, or is one
 * that @cfg does not ask for; -EOPNOTSUPP for a type that is not supported;
 * -ENOMEM.
 */
int __must_check weights_bind(struct model_weights *w, struct ckpt *c,
			      const struct model_config *cfg, bool judge,
			      u32 types, struct model_error *err);

/* Memory that weights_free() frees; NULL: there is none. */
void *weights_own(struct model_weights *w, u64 bytes);

/* Free all but device memory. */
void weights_free(struct model_weights *w);

/* Free the copy that begins at @data; false if there is none. */
bool weights_owned_free(struct model_weights *w, const void *data);

/* The cost of weights_pack() with @ops, which can pack. */
struct weight_cost weights_pack_cost(struct model_weights *w, struct ckpt *c,
				     const struct model_config *cfg,
				     const struct kern_ops *ops);

/**
 * weights_pack() - copy matrices into the order that @ops read fastest
 * @w:		bound, not judged
 * @c:		the checkpoint; pages of packed tensors are given back
 * @cfg:	its configuration
 * @ops:	kernels that can pack
 * @ctx:	their threads
 * @progress:	gets the progress, in bytes
 *
 * Return: 0 or -ENOMEM, which leaves @w as it was.
 */
int __must_check weights_pack(struct model_weights *w, struct ckpt *c,
			      const struct model_config *cfg,
			      const struct kern_ops *ops,
			      struct kern_ctx *ctx,
			      const struct model_progress *progress);

/* Does this system give huge pages to processes that ask for them? */
bool weights_huge_pages(void);

/**
 * weights_each() - walk every tensor of a configuration
 * @cfg:	the configuration
 * @fn:		called for each; a nonzero result ends the walk
 * @arg:	for @fn
 *
 * Return: 0, or what @fn returned.
 */
int weights_each(const struct model_config *cfg,
		 int (*fn)(void *arg, const struct weight_place *p),
		 void *arg);

#endif /* RUNTIME_MODEL_WEIGHTS_H */
