// SPDX-License-Identifier: Apache-2.0
/*
 * upload.c - weights in the memory of a device
 *
 * Every tensor is uploaded once, from the place that weights.c gave it: a
 * mapped file, or a copy of a tensor that the kernels cannot read as stored.
 * That source is given back before the next tensor: pages of the file, or the
 * copy.  So a host needs memory for one tensor, for models of any size.  All of
 * them are in one piece of device memory.  Only made-up weights also stay on
 * the host, since they are nowhere else.
 *
 * The walk is that of weights.c, by the tables of layout.c, as in pack.c.
 */
#include "runtime/model/internal.h"
#include "runtime/model/layout.h"

#define UPLOAD_ALIGN	256u

/* State of a walk; it counts, and uploads if @model is not NULL. */
struct uploader {
	struct model			*model;
	struct model_weights		*w;
	struct ckpt			*c;
	const struct model_config	*cfg;
	u32				types;
	u64				total;
	u8				*to;
	u64				bytes;
};

/* Upload @bytes from @from; returns their place. */
static void *upload(struct uploader *u, const void *from, u64 bytes)
{
	u8 *to = u->to + u->bytes;

	u->bytes += ALIGN_UP(bytes, (u64)UPLOAD_ALIGN);
	if (!u->model)
		return NULL;
	u->model->ops->mem_put(u->model->ctx, to, from, bytes);
	model_progress_tell(&u->model->progress, u->bytes, u->total);
	return to;
}

/* The tensor is uploaded: free its source. */
static void give_back(struct uploader *u, const struct st_tensor *t,
		      const void *from)
{
	if (!weights_owned_free(u->w, from))
		ckpt_drop(u->c, t);
}

/* Upload some rows of a matrix, or some elements of a vector. */
static void upload_part(struct uploader *u, const struct weight_at *at,
			void *place, u64 rows)
{
	struct kern_weight *m = place;
	const float **v = place;

	if (at->cols)
		m->data = upload(u, m->data, m->rows *
				 kern_row_bytes(m->dtype, m->cols));
	else
		*v = upload(u, *v, rows * sizeof(**v));
}

/* Where the tensor is now. */
static const void *upload_source(struct uploader *u, const struct weight_at *at,
				 const struct weight_part *part)
{
	const void *place = weight_place_of(u->w, at, 0, part);

	return at->cols ? ((const struct kern_weight *)place)->data :
			  *(const float *const *)place;
}

/* Upload a tensor, or count its bytes, also if weights are only judged. */
static int upload_tensor(void *arg, const struct weight_at *at)
{
	struct uploader *u = arg;
	const struct st_tensor *t = ckpt_take(u->c, at->name);
	const enum kern_dtype type = weight_type_used(at, t, u->types);
	const u64 size = at->cols ? kern_row_bytes(type, at->cols) :
				    sizeof(float);
	struct weight_part parts[WEIGHT_PARTS];
	const u32 nr = weight_parts(u->cfg, at->spec, parts);
	const void *from = u->model ? upload_source(u, at, &parts[0]) : NULL;
	u32 i, j;

	/* The vectors of heads are one copy, which comes with the first. */
	if (at->expert && weight_of_head(at->spec))
		return 0;
	parts[0].rows *= at->heads;

	for (i = 0; i < at->stack; i++) {
		for (j = 0; j < nr; j++) {
			if (u->model)
				upload_part(u, at,
					    weight_place_of(u->w, at, i,
							    &parts[j]),
					    parts[j].rows);
			else
				upload(u, NULL, parts[j].rows * size);
		}
	}
	if (u->model)
		give_back(u, t, from);
	return 0;
}

static void upload_walk(struct uploader *u)
{
	weights_walk(u->cfg, u->w->prefix, upload_tensor, u);
	if (u->model && u->cfg->tied)
		u->w->head = u->w->embed;
}

u64 weights_upload_cost(struct model_weights *w, struct ckpt *c,
			const struct model_config *cfg, u32 types)
{
	struct uploader u = { .w = w, .c = c, .cfg = cfg, .types = types };

	upload_walk(&u);
	return u.bytes;
}

int weights_upload(struct model *m)
{
	struct uploader u = {
		.model = m, .w = &m->w, .c = m->ckpt, .cfg = &m->cfg,
		.types = m->ops->weight_types,
		.total = weights_upload_cost(&m->w, m->ckpt, &m->cfg,
					     m->ops->weight_types),
	};

	m->w.device = m->ops->mem_alloc(m->ctx, u.total);
	if (!m->w.device)
		return -ENOMEM;
	u.to = m->w.device;
	upload_walk(&u);
	return m->ops->wait(m->ctx);
}
