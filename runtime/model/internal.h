/* SPDX-License-Identifier: Apache-2.0 */
/*
 * internal.h - the loaded model, shared by model.c and decoder.c alone
 */
#ifndef RUNTIME_MODEL_INTERNAL_H
#define RUNTIME_MODEL_INTERNAL_H

#include "runtime/model/weights.h"

/**
 * struct model_work - everything one forward needs, carved from one piece
 * @mem:	the piece; what follows points into it
 * @bytes:	its size
 * @x:		[rows][hidden], the residual stream
 * @h:		[rows][hidden], what enters and leaves a projection
 * @side:	[rows][hidden], what attention gave
 * @q:		[rows][heads * head_dim]
 * @k:		[rows][kv_heads * head_dim]
 * @v:		[rows][kv_heads * head_dim]
 * @attn:	[rows][heads * head_dim]
 * @qkv:	[rows][heads][3 * head_dim], if the layout joins them
 * @gate:	[rows][inter]
 * @up:		[rows][inter]
 * @rope:	[rows][2][rotary / 2]
 * @rope_local:	the same for local layers; equals @rope unless they differ
 * @ids:	[rows]
 * @positions:	[rows]
 * @seqs:	[max_seqs]
 */
struct model_work {
	void			*mem;
	u64			bytes;
	float			*x;
	float			*h;
	float			*side;
	float			*q;
	float			*k;
	float			*v;
	float			*attn;
	float			*qkv;
	float			*gate;
	float			*up;
	float			*rope;
	float			*rope_local;
	u32			*ids;
	u32			*positions;
	struct kern_attn_seq	*seqs;
};

struct model {
	struct model_info	info;
	struct model_config	cfg;
	struct ckpt		*ckpt;
	struct model_weights	w;
	float			*inv_freq;	/* [rotary / 2] */
	float			*inv_local;	/* of local layers */
	float			*inv_now;	/* of one token */
	const struct kern_ops	*ops;
	struct kern_ctx		*ctx;
	struct model_work	work;
	struct model_progress	progress;
	bool			judged;		/* and cannot run */
	char			*dir;
};

/*
 * Size @model->work by info.max_rows and info.max_seqs; 0 or -ENOMEM.  Of a
 * model that was only judged, the size alone.
 */
int __must_check decoder_create(struct model *model);
void decoder_destroy(struct model *model);

#endif /* RUNTIME_MODEL_INTERNAL_H */
