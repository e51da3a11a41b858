/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weights.h - the tensors of a checkpoint in the decoder's places
 */
#ifndef RUNTIME_MODEL_WEIGHTS_H
#define RUNTIME_MODEL_WEIGHTS_H

#include "kernels/kernels.h"
#include "runtime/model/checkpoint.h"
#include "runtime/model/config.h"

/* One decoder layer; what a switch turns off is NULL. */
struct model_layer {
	const float		*attn_norm;	/* [hidden] */
	const float		*attn_norm_bias;
	const float		*attn_post;	/* [hidden], behind attention */
	const float		*mlp_norm;	/* [hidden] */
	const float		*mlp_norm_bias;
	const float		*mlp_post;	/* [hidden], behind the MLP */
	const float		*q_norm;	/* [head_dim] */
	const float		*k_norm;	/* [head_dim] */
	const float		*q_bias;	/* [heads * head_dim] */
	const float		*k_bias;	/* [kv_heads * head_dim] */
	const float		*v_bias;	/* [kv_heads * head_dim] */
	const float		*o_bias;	/* [hidden] */
	const float		*gate_bias;	/* [inter] */
	const float		*up_bias;	/* [inter] */
	const float		*down_bias;	/* [hidden] */
	const float		*qkv_bias;	/* as @qkv */
	struct kern_weight	qkv;		/* [heads][q, k, v of a head] */
	struct kern_weight	q;		/* these three, unless @qkv */
	struct kern_weight	k;
	struct kern_weight	v;
	struct kern_weight	o;
	struct kern_weight	gate;
	struct kern_weight	up;
	struct kern_weight	down;
};

/**
 * struct model_weights - all parameters
 * @embed:	[vocab][hidden]
 * @head:	[vocab][hidden]; @embed again if tied
 * @pos:	[positions][hidden], of learned positions
 * @norm:	[hidden], before the head
 * @norm_bias:	[hidden]
 * @layers:	one a decoder layer
 * @owned:	copies of tensors that could not be used where they are mapped
 * @nr_owned:	how many
 * @owned_bytes: their size
 * @mapped_bytes: of the tensors that are used where they are mapped
 */
struct model_weights {
	struct kern_weight	embed;
	struct kern_weight	head;
	struct kern_weight	pos;
	const float		*norm;
	const float		*norm_bias;
	struct model_layer	*layers;
	void			**owned;
	u32			nr_owned;
	u64			owned_bytes;
	u64			mapped_bytes;
};

/**
 * struct weight_place - one tensor that a configuration asks for
 * @name:	as in the file
 * @rows:	of the tensor as the file has it
 * @cols:	0 for a vector
 * @is_norm:	the weight of a norm
 * @plus_one:	to which the decoder adds 1
 */
struct weight_place {
	const char	*name;
	u64		rows;
	u64		cols;
	bool		is_norm;
	bool		plus_one;
};

/**
 * weights_bind() - find, check and place every tensor
 * @w:		filled in; weights_free() is due in every case
 * @c:		the checkpoint; must outlive @w, which points into its files
 * @cfg:	says which tensors there are, and their shapes
 * @judge:	check and count only; nothing is placed or copied
 * @err:	set on failure
 *
 * Return: 0; -EINVAL if a tensor is missing, has the wrong shape, or is one
 * that @cfg does not ask for; -EOPNOTSUPP for a type that is not supported;
 * -ENOMEM.
 */
int __must_check weights_bind(struct model_weights *w, struct ckpt *c,
			      const struct model_config *cfg, bool judge,
			      struct model_error *err);
void weights_free(struct model_weights *w);

/**
 * weights_each() - every tensor that a configuration asks for
 * @cfg:	the configuration
 * @fn:		called for each; not 0 ends the walk
 * @arg:	for @fn
 *
 * Return: 0, or what @fn returned.
 */
int weights_each(const struct model_config *cfg,
		 int (*fn)(void *arg, const struct weight_place *p),
		 void *arg);

#endif /* RUNTIME_MODEL_WEIGHTS_H */
