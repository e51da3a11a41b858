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
	const float		*mlp_norm;	/* [hidden] */
	const float		*q_norm;	/* [head_dim] */
	const float		*k_norm;	/* [head_dim] */
	const float		*q_bias;	/* [heads * head_dim] */
	const float		*k_bias;	/* [kv_heads * head_dim] */
	const float		*v_bias;	/* [kv_heads * head_dim] */
	struct kern_weight	q;
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
 * @norm:	[hidden], before the head
 * @layers:	one a decoder layer
 * @owned:	copies of tensors that could not be used where they are mapped
 * @nr_owned:	how many
 */
struct model_weights {
	struct kern_weight	embed;
	struct kern_weight	head;
	const float		*norm;
	struct model_layer	*layers;
	void			**owned;
	u32			nr_owned;
};

/**
 * weights_bind() - find, check and place every tensor
 * @w:		filled in; weights_free() is due in every case
 * @c:		the checkpoint; must outlive @w, which points into its files
 * @cfg:	says which tensors there are, and their shapes
 * @err:	set on failure
 *
 * Return: 0; -EINVAL if a tensor is missing, has the wrong shape, or is one
 * that @cfg does not ask for; -EOPNOTSUPP for a type that is not supported;
 * -ENOMEM.
 */
int __must_check weights_bind(struct model_weights *w, struct ckpt *c,
			      const struct model_config *cfg,
			      struct model_error *err);
void weights_free(struct model_weights *w);

#endif /* RUNTIME_MODEL_WEIGHTS_H */
