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
 * A device with kernels that pack gets matrices in blocks packed: each is uploaded into
 * one piece of memory, which is free again when the last one is packed, and packed from
 * there to its place.  The embedding reads blocks as they are stored, so a tied matrix has
 * two places, as in pack.c.
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
	const struct kern_ops		*ops;
	bool				pack;
	u64				total;
	u8				*to;
	u64				bytes;
	u64				packed;		/* part of @bytes */
	void				*raw;		/* for a matrix to be packed */
	u64				raw_bytes;
};

/* The next @bytes of memory. */
static u8 *upload_take(struct uploader *u, u64 bytes)
{
	u8 *to = u->to + u->bytes;

	u->bytes += ALIGN_UP(bytes, (u64)UPLOAD_ALIGN);
	return to;
}

/* Upload @bytes from @from; returns their place. */
static void *upload(struct uploader *u, const void *from, u64 bytes)
{
	u8 *to = upload_take(u, bytes);

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

/* Pack @m, which is on the device. */
static void upload_pack(struct uploader *u, struct kern_weight *m)
{
	const u64 bytes = u->ops->pack_bytes(m);
	void *to = upload_take(u, bytes);

	u->packed += ALIGN_UP(bytes, (u64)UPLOAD_ALIGN);
	if (!u->model)
		return;
	u->ops->pack(u->model->ctx, m, to);
	model_progress_tell(&u->model->progress, u->bytes, u->total);
}

/* Upload @m to the piece for raw matrices, and pack it from there. */
static void upload_packed(struct uploader *u, struct kern_weight *m)
{
	const u64 bytes = m->rows * kern_row_bytes(m->dtype, m->cols);

	u->raw_bytes = max(u->raw_bytes, bytes);
	if (u->model) {
		u->ops->mem_put(u->model->ctx, u->raw, m->data, bytes);
		m->data = u->raw;
	}
	upload_pack(u, m);
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

/* Upload, or only count, part @part of matrix @i of a tensor. */
static void upload_one(struct uploader *u, const struct weight_at *at,
		       enum kern_dtype type, bool pack, u32 i,
		       const struct weight_part *part)
{
	const u64 size = at->cols ? kern_row_bytes(type, at->cols) :
				    sizeof(float);
	struct kern_weight counted = {
		.dtype = type, .rows = part->rows, .cols = at->cols,
	};
	void *place = u->model ? weight_place_of(u->w, at, i, part) : &counted;

	if (pack && !weight_is_embed(at)) {
		upload_packed(u, place);
		return;
	}
	if (u->model)
		upload_part(u, at, place, part->rows);
	else
		upload(u, NULL, part->rows * size);
	if (!pack)
		return;
	/* Tied: products read a packed copy. */
	counted = *(struct kern_weight *)place;
	upload_pack(u, &counted);
	if (u->model)
		u->w->head = counted;
}

/* Upload a tensor, or count its bytes, also if weights are only judged. */
static int upload_tensor(void *arg, const struct weight_at *at)
{
	struct uploader *u = arg;
	const struct st_tensor *t = ckpt_take(u->c, at->name);
	const enum kern_dtype type = weight_type_used(at, t,
						      u->ops->weight_types);
	const bool pack = u->pack && weight_is_packed(at, t, u->cfg, u->ops);
	struct weight_part parts[WEIGHT_PARTS];
	const u32 nr = weight_parts(u->cfg, at->spec, parts);
	const void *from = u->model ? upload_source(u, at, &parts[0]) : NULL;
	u32 i, j;

	/* The vectors of heads are one copy, which comes with the first. */
	if (at->expert != at->first && weight_of_head(at->spec))
		return 0;
	parts[0].rows *= at->heads;

	for (i = 0; i < at->stack; i++)
		for (j = 0; j < nr; j++)
			upload_one(u, at, type, pack, i, &parts[j]);
	if (u->model)
		give_back(u, t, from);
	return 0;
}

static void upload_walk(struct uploader *u)
{
	weights_walk(u->cfg, u->w->prefix, upload_tensor, u);
	if (u->model && u->cfg->tied && !u->w->head.packed)
		u->w->head = u->w->embed;
}

u64 weights_upload_cost(struct model_weights *w, struct ckpt *c,
			const struct model_config *cfg, const struct kern_ops *ops,
			bool pack, u64 *packed)
{
	struct uploader u = {
		.w = w, .c = c, .cfg = cfg, .ops = ops, .pack = pack,
	};

	upload_walk(&u);
	*packed = u.packed;
	return u.bytes;
}

int weights_upload(struct model *m, bool pack)
{
	struct uploader u = {
		.w = &m->w, .c = m->ckpt, .cfg = &m->cfg, .ops = m->ops,
		.pack = pack,
	};
	int err = -ENOMEM;

	upload_walk(&u);
	m->w.device = m->ops->mem_alloc(m->ctx, u.bytes);
	if (u.raw_bytes && m->w.device)
		u.raw = m->ops->mem_alloc(m->ctx, u.raw_bytes);
	if (m->w.device && (u.raw || !u.raw_bytes)) {
		u.model = m;
		u.total = u.bytes;
		u.to = m->w.device;
		u.bytes = 0;
		upload_walk(&u);
		err = m->ops->wait(m->ctx);
	}
	if (u.raw)
		m->ops->mem_free(m->ctx, u.raw);
	return err;
}
