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

static void upload_matrix(struct uploader *u, const struct weight_spec *s,
			  const struct st_tensor *t, void *base)
{
	struct weight_part parts[WEIGHT_PARTS];
	const u32 nr = weight_parts(u->cfg, s, parts);
	const void *from = NULL;
	struct kern_weight *m;
	u32 i;

	for (i = 0; i < nr; i++) {
		m = (void *)((u8 *)base + parts[i].offset);
		if (!i)
			from = m->data;
		m->data = upload(u, m->data, (u64)m->rows * m->cols *
				 kern_dtype_size(m->dtype));
	}
	give_back(u, t, from);
}

/* Count the bytes of upload_matrix(), also for weights that are only judged. */
static void count_matrix(struct uploader *u, const struct weight_spec *s,
			 const struct st_tensor *t, bool turned)
{
	struct weight_part parts[WEIGHT_PARTS];
	const u32 nr = weight_parts(u->cfg, s, parts);
	u32 i;

	for (i = 0; i < nr; i++)
		upload(u, NULL, parts[i].rows * weight_dim(u->cfg, s->cols) *
		       weight_elem_bytes(t, turned, true));
}

static void upload_vector(struct uploader *u, const struct weight_spec *s,
			  const struct st_tensor *t, void *base)
{
	const u64 q = weight_dim(u->cfg, DIM_Q), kv = weight_dim(u->cfg, DIM_KV);
	const float **at = (const float **)((u8 *)base + s->offset), *from, *v;
	struct model_layer *l = base;

	from = s->how == HOW_QKV ? l->q_bias : *at;
	v = upload(u, from, t->nr_elems * sizeof(*v));
	if (s->how == HOW_QKV) {
		l->q_bias = v;
		l->k_bias = v + q;
		l->v_bias = v + q + kv;
	} else {
		*at = v;
	}
	give_back(u, t, from);
}

static void upload_tensor(struct uploader *u, const struct weight_spec *s,
			  const char *name, bool transposed, void *base)
{
	const bool matrix = s->cols != DIM_NONE;
	const struct st_tensor *t;

	if (!weight_needed(u->cfg, s->need))
		return;
	t = ckpt_take(u->c, name);
	if (u->model && matrix)
		upload_matrix(u, s, t, base);
	else if (u->model)
		upload_vector(u, s, t, base);
	else if (matrix)
		count_matrix(u, s, t, transposed);
	else
		upload(u, NULL, t->nr_elems * sizeof(float));
}

static void upload_walk(struct uploader *u)
{
	const struct weight_names *names = weight_names_of(u->cfg->layout);
	char name[WEIGHT_NAME_MAX];
	u32 layer, i;

	for (i = 0; i < names->nr_top; i++) {
		weight_top_name(names, u->w->prefix, &names->top[i], name);
		upload_tensor(u, &names->top[i], name, false, u->w);
	}
	if (u->model && u->cfg->tied)
		u->w->head = u->w->embed;
	for (layer = 0; layer < u->cfg->layers; layer++) {
		for (i = 0; i < names->nr_layer; i++) {
			weight_layer_name(names, u->w->prefix, layer,
					  &names->layer[i], name);
			upload_tensor(u, &names->layer[i], name,
				      names->transposed,
				      &u->w->layers[layer]);
		}
	}
}

u64 weights_upload_cost(struct model_weights *w, struct ckpt *c,
			const struct model_config *cfg)
{
	struct uploader u = { .w = w, .c = c, .cfg = cfg };

	upload_walk(&u);
	return u.bytes;
}

int weights_upload(struct model *m)
{
	struct uploader u = {
		.model = m, .w = &m->w, .c = m->ckpt, .cfg = &m->cfg,
		.total = weights_upload_cost(&m->w, m->ckpt, &m->cfg),
	};

	m->w.device = m->ops->mem_alloc(m->ctx, u.total);
	if (!m->w.device)
		return -ENOMEM;
	u.to = m->w.device;
	upload_walk(&u);
	return m->ops->wait(m->ctx);
}
