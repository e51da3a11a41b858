// SPDX-License-Identifier: Apache-2.0
/*
 * weights.c - bind tensors to the decoder's places
 *
 * The tables of layout.c say which tensor goes where.  Matrices in bf16 and f32
 * are used where they are mapped, also as slices of a joined tensor: a
 * checkpoint costs no memory beyond the page cache, and two runtimes of one
 * model share it.  Tensors that the kernels cannot read in place are copied:
 * f16 matrices as f32, which holds them exactly; matrices that are stored
 * transposed; vectors (norms and biases are f32 by contract); and unaligned
 * tensors of old writers.  The mapped pages of a copied tensor are given back
 * at once, one tensor after the other, so there are never two copies of the
 * weights in memory.  pack.c comes later.
 *
 * A tensor that is left when all places are filled belongs to no part of the
 * decoder.  Known to be harmless are second copies of a tied matrix and, by the
 * end of their names, tables that a program once stored beside the weights.
 * Any other tensor is refused.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "runtime/model/error.h"
#include "runtime/model/layout.h"

/* State of one binding; keeps argument lists short. */
struct binder {
	struct model_weights		*w;
	struct ckpt			*c;
	const struct model_config	*cfg;
	const struct weight_names	*names;
	u32				prefix;
	bool				judge;
	bool				f16;
	struct model_error		*err;
};

/* Exact: every f16 value is an f32 value. */
static float f16_to_f32(u16 h)
{
	const u32 sign = (u32)(h & 0x8000) << 16;
	const u32 exp = (h >> 10) & 31, man = h & 1023;
	u32 bits;
	float f;

	if (exp == 31)
		bits = sign | 0x7f800000u | man << 13;
	else if (exp)
		bits = sign | (exp + 112) << 23 | man << 13;
	else
		bits = 0;
	memcpy(&f, &bits, sizeof(f));
	if (!exp) {
		f = man * 0x1p-24f;
		return sign ? -f : f;
	}
	return f;
}

static float weight_elem(const struct st_tensor *t, u64 i)
{
	u32 bits;
	float f;
	u16 h;

	if (t->dtype == ST_F32) {
		memcpy(&f, (const u8 *)t->data + i * 4, 4);
		return f;
	}
	memcpy(&h, (const u8 *)t->data + i * 2, 2);
	if (t->dtype == ST_F16)
		return f16_to_f32(h);
	bits = (u32)h << 16;
	memcpy(&f, &bits, sizeof(f));
	return f;
}

/* Memory for a copy of @t with @size bytes an element; NULL: no memory. */
static void *weight_own(struct binder *b, const struct st_tensor *t,
			size_t size)
{
	void **owned, *copy;

	owned = realloc(b->w->owned, (b->w->nr_owned + 1) * sizeof(*owned));
	if (!owned)
		return NULL;
	b->w->owned = owned;
	copy = malloc(t->nr_elems * size);
	if (!copy)
		return NULL;
	owned[b->w->nr_owned++] = copy;
	b->w->owned_bytes += t->nr_elems * size;
	return copy;
}

/* A copy of a tensor in f32, owned by the weights; NULL: no memory. */
static float *weight_widen(struct binder *b, const struct st_tensor *t)
{
	float *copy = weight_own(b, t, sizeof(*copy));
	u64 i;

	for (i = 0; copy && i < t->nr_elems; i++)
		copy[i] = weight_elem(t, i);
	ckpt_drop(b->c, t);
	return copy;
}

#define TURN_TILE	32u

/* Copy elements (r, c) of [rows][cols] to (c, r), one tile. */
static void turn_tile(const struct st_tensor *t, u8 *to, u64 r, u64 c)
{
	const u64 rows = t->shape[0], cols = t->shape[1];
	const u64 r_end = min(rows, r + TURN_TILE);
	const u64 c_end = min(cols, c + TURN_TILE), c_from = c;
	float f;

	for (; r < r_end; r++) {
		for (c = c_from; c < c_end; c++) {
			if (t->dtype == ST_BF16) {
				memcpy(to + (c * rows + r) * 2,
				       (const u8 *)t->data +
				       (r * cols + c) * 2, 2);
				continue;
			}
			f = weight_elem(t, r * cols + c);
			memcpy(to + (c * rows + r) * 4, &f, 4);
		}
	}
}

/* A copy of a matrix with rows and columns exchanged. */
static void *weight_turn(struct binder *b, const struct st_tensor *t)
{
	u8 *copy = weight_own(b, t, t->dtype == ST_BF16 ? 2 : 4);
	u64 r, c;

	if (!copy)
		return NULL;
	for (r = 0; r < t->shape[0]; r += TURN_TILE)
		for (c = 0; c < t->shape[1]; c += TURN_TILE)
			turn_tile(t, copy, r, c);
	ckpt_drop(b->c, t);
	return copy;
}

static int weight_check(struct binder *b, const struct st_tensor *t,
			const u64 *want, u32 nr_want)
{
	char has[160], wants[64];

	if (t->nr_dims != nr_want ||
	    memcmp(t->shape, want, nr_want * sizeof(*want)))
		return model_fail(b->err, -EINVAL, "%s: tensor " MODEL_NAME_FMT
				  ": shape is %s, config.json asks for %s: "
				  "copy the whole model again", t->path,
				  t->name, st_shape_str(t->shape, t->nr_dims,
							has, sizeof(has)),
				  st_shape_str(want, nr_want, wants,
					       sizeof(wants)));
	if (t->dtype != ST_BF16 && t->dtype != ST_F16 && t->dtype != ST_F32)
		return model_fail(b->err, -EOPNOTSUPP, "%s: tensor "
				  MODEL_NAME_FMT ": dtype %s is not supported: "
				  "use a model in BF16, F16 or F32", t->path,
				  t->name, st_dtype_name(t->dtype));
	return 0;
}

bool weight_in_place(const struct st_tensor *t, bool transposed, bool f16)
{
	const size_t size = t->dtype == ST_F32 ? 4 : 2;

	return !transposed && (t->dtype != ST_F16 || f16) &&
	       !((uintptr_t)t->data % size);
}

u32 weight_elem_bytes(const struct st_tensor *t, bool transposed, bool f16)
{
	if (weight_in_place(t, transposed, f16))
		return t->dtype == ST_F32 ? 4 : 2;
	return transposed && t->dtype == ST_BF16 ? 2 : 4;
}

/* Count the cost of placing a tensor. */
static void weight_count(struct binder *b, const struct st_tensor *t,
			 bool vector, bool transposed)
{
	const size_t size = vector ? sizeof(float) :
			    weight_elem_bytes(t, transposed, b->f16);

	if (!vector && weight_in_place(t, transposed, b->f16))
		b->w->mapped_bytes += t->nr_bytes;
	else if (b->judge)
		b->w->owned_bytes += t->nr_elems * size;
}

static int weight_matrix(struct binder *b, const struct st_tensor *t,
			 bool transposed, struct kern_weight *m)
{
	m->packed = false;
	m->rows = t->shape[transposed];
	m->cols = t->shape[!transposed];
	m->dtype = t->dtype == ST_BF16 ? KERN_BF16 : KERN_F32;
	if (transposed) {
		m->data = weight_turn(b, t);
	} else if (weight_in_place(t, false, b->f16)) {
		m->data = t->data;
		if (t->dtype == ST_F16)
			m->dtype = KERN_F16;
	} else {
		m->data = weight_widen(b, t);
		m->dtype = KERN_F32;
	}
	return m->data ? 0 : model_fail_errno(b->err, -ENOMEM, t->path,
					      t->name);
}

/* Rows from @first on, @rows of them. */
static struct kern_weight weight_slice(const struct kern_weight *m, u64 first,
				       u64 rows)
{
	struct kern_weight part = *m;

	part.data = (const u8 *)m->data +
		    first * m->cols * kern_dtype_size(m->dtype);
	part.rows = rows;
	return part;
}

static void weight_set_matrix(struct binder *b, const struct weight_spec *s,
			      const struct kern_weight *m, void *base)
{
	struct weight_part parts[WEIGHT_PARTS];
	const u32 nr = weight_parts(b->cfg, s, parts);
	u64 row = 0;
	u32 i;

	for (i = 0; i < nr; row += parts[i++].rows)
		*(struct kern_weight *)((u8 *)base + parts[i].offset) =
			weight_slice(m, row, parts[i].rows);
}

static void weight_set_vector(struct binder *b, const struct weight_spec *s,
			      float *v, u64 n, void *base)
{
	const u64 q = weight_dim(b->cfg, DIM_Q), kv = weight_dim(b->cfg, DIM_KV);
	struct model_layer *l = base;
	u64 i;

	if (s->how == HOW_QKV) {
		l->q_bias = v;
		l->k_bias = v + q;
		l->v_bias = v + q + kv;
		return;
	}
	for (i = 0; s->how == HOW_NORM && b->cfg->norm_plus_one && i < n; i++)
		v[i] += 1.0f;
	*(const float **)((u8 *)base + s->offset) = v;
}

static int weight_place(struct binder *b, const struct weight_spec *s,
			const char *name, bool transposed, void *base)
{
	const u64 rows = weight_dim(b->cfg, s->rows);
	const u64 cols = weight_dim(b->cfg, s->cols);
	const bool turned = transposed && cols;
	const u64 shape[2] = { turned ? cols : rows, turned ? rows : cols };
	const struct st_tensor *t;
	struct kern_weight m;
	float *v;
	int ret;

	if (!weight_needed(b->cfg, s->need))
		return 0;
	t = ckpt_take(b->c, name);
	if (!t)
		return model_fail(b->err, -EINVAL, "%s: tensor %s is missing: "
				  "download the whole model again",
				  b->c->dir, name);
	ret = weight_check(b, t, shape, cols ? 2 : 1);
	if (ret)
		return ret;
	weight_count(b, t, !cols, turned);
	if (b->judge)
		return 0;
	if (cols) {
		ret = weight_matrix(b, t, turned, &m);
		if (!ret)
			weight_set_matrix(b, s, &m, base);
		return ret;
	}
	v = weight_widen(b, t);
	if (!v)
		return model_fail_errno(b->err, -ENOMEM, t->path, t->name);
	weight_set_vector(b, s, v, rows, base);
	return 0;
}

static int weights_place_layer(struct binder *b, u32 layer)
{
	char name[WEIGHT_NAME_MAX];
	u32 i;
	int ret;

	for (i = 0; i < b->names->nr_layer; i++) {
		weight_layer_name(b->names, b->prefix, layer,
				  &b->names->layer[i], name);
		ret = weight_place(b, &b->names->layer[i], name,
				   b->names->transposed,
				   &b->w->layers[layer]);
		if (ret)
			return ret;
	}
	return 0;
}

static int weights_place_top(struct binder *b)
{
	char name[WEIGHT_NAME_MAX];
	u32 i;
	int ret;

	for (i = 0; i < b->names->nr_top; i++) {
		weight_top_name(b->names, b->prefix, &b->names->top[i], name);
		ret = weight_place(b, &b->names->top[i], name, false, b->w);
		if (ret)
			return ret;
	}
	if (b->cfg->tied)
		b->w->head = b->w->embed;
	return 0;
}

/* Choose the second prefix if the file has the first tensor only under it. */
static u32 weights_prefix(struct binder *b)
{
	char name[2][WEIGHT_NAME_MAX];

	if (!b->names->prefixes[1])
		return 0;
	weight_top_name(b->names, 0, &b->names->top[0], name[0]);
	weight_top_name(b->names, 1, &b->names->top[0], name[1]);
	return !ckpt_has(b->c, name[0]) && ckpt_has(b->c, name[1]);
}

static bool ends_with(const char *s, const char *end)
{
	const size_t len = strlen(s), elen = strlen(end);

	return len >= elen && !strcmp(s + len - elen, end);
}

/* Is it a second copy of a tied matrix, with the same content? */
static bool weight_is_tied_copy(struct binder *b, const struct st_tensor *t)
{
	char name[WEIGHT_NAME_MAX];
	const struct st_tensor *e;

	if (!b->cfg->tied || strcmp(t->name, b->names->head))
		return false;
	weight_top_name(b->names, b->prefix, &b->names->top[0], name);
	e = ckpt_take(b->c, name);
	return e->dtype == t->dtype && e->nr_bytes == t->nr_bytes &&
	       !memcmp(e->data, t->data, t->nr_bytes);
}

static bool weight_is_leftover(struct binder *b, const struct st_tensor *t)
{
	u32 i;

	for (i = 0; b->names->leftovers[i]; i++)
		if (ends_with(t->name, b->names->leftovers[i]))
			return true;
	return weight_is_tied_copy(b, t);
}

static int weights_refuse_rest(struct binder *b)
{
	const struct st_tensor *t;

	while ((t = ckpt_unused(b->c))) {
		if (!weight_is_leftover(b, t))
			return model_fail(b->err, -EINVAL, "%s: tensor "
					  MODEL_NAME_FMT ": config.json does "
					  "not ask for it: copy the whole "
					  "model again", t->path, t->name);
		ckpt_take(b->c, t->name);
	}
	return 0;
}

int weights_bind(struct model_weights *w, struct ckpt *c,
		 const struct model_config *cfg, bool judge, bool f16,
		 struct model_error *err)
{
	struct binder b = {
		.w = w, .c = c, .cfg = cfg, .judge = judge, .f16 = f16,
		.err = err,
		.names = weight_names_of(cfg->layout),
	};
	u32 layer;
	int ret;

	memset(w, 0, sizeof(*w));
	w->layers = calloc(cfg->layers, sizeof(*w->layers));
	if (!w->layers)
		return model_fail_errno(err, -ENOMEM, c->dir, "layers");
	b.prefix = w->prefix = weights_prefix(&b);
	ret = weights_place_top(&b);
	for (layer = 0; !ret && layer < cfg->layers; layer++)
		ret = weights_place_layer(&b, layer);
	return ret ? ret : weights_refuse_rest(&b);
}

bool weights_owned_free(struct model_weights *w, const void *data)
{
	u32 i;

	for (i = 0; i < w->nr_owned; i++) {
		if (w->owned[i] != data)
			continue;
		free(w->owned[i]);
		w->owned[i] = NULL;
		return true;
	}
	return false;
}

void weights_free(struct model_weights *w)
{
	u32 i;

	for (i = 0; i < w->nr_owned; i++)
		free(w->owned[i]);
	free(w->owned);
	if (w->pack_map)
		munmap(w->pack_map, w->pack_size);
	free(w->layers);
	memset(w, 0, sizeof(*w));
}

/* Call @fn for one tensor of @s. */
static int each_spec(const struct model_config *cfg,
		     const struct weight_spec *s, const char *name,
		     bool transposed,
		     int (*fn)(void *arg, const struct weight_place *p),
		     void *arg)
{
	const u64 rows = weight_dim(cfg, s->rows);
	const u64 cols = weight_dim(cfg, s->cols);
	const bool turned = transposed && cols;
	const struct weight_place p = {
		.name = name,
		.rows = turned ? cols : rows,
		.cols = turned ? rows : cols,
		.is_norm = s->how == HOW_NORM,
		.plus_one = s->how == HOW_NORM && cfg->norm_plus_one,
	};

	return weight_needed(cfg, s->need) ? fn(arg, &p) : 0;
}

int weights_each(const struct model_config *cfg,
		 int (*fn)(void *arg, const struct weight_place *p), void *arg)
{
	const struct weight_names *n = weight_names_of(cfg->layout);
	char name[WEIGHT_NAME_MAX];
	u32 i, layer;
	int ret = 0;

	for (i = 0; i < n->nr_top && !ret; i++) {
		weight_top_name(n, 0, &n->top[i], name);
		ret = each_spec(cfg, &n->top[i], name, false, fn, arg);
	}
	for (layer = 0; layer < cfg->layers; layer++) {
		for (i = 0; i < n->nr_layer && !ret; i++) {
			weight_layer_name(n, 0, layer, &n->layer[i], name);
			ret = each_spec(cfg, &n->layer[i], name,
					n->transposed, fn, arg);
		}
	}
	return ret;
}
