// SPDX-License-Identifier: Apache-2.0
/*
 * weights.c - from tensor names to the decoder's places
 *
 * Two tables say which tensor goes where, with which shape, under which
 * switch.  Matrices in bf16 and f32 are used where they are mapped: a
 * checkpoint costs no memory beyond the page cache, and two runtimes of one
 * model share it.  What the kernels cannot read in place is copied as f32,
 * which holds all three types exactly: f16 matrices, vectors (norms and
 * biases are f32 by contract), and tensors that lie unaligned, as old writers
 * left them.
 *
 * What is left when all places are filled belongs to no part of the decoder.
 * Two kinds of such tensor are known to be harmless, a stored table of rotary
 * frequencies and a second copy of a tied matrix; any other is refused.
 */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/model/error.h"
#include "runtime/model/weights.h"

/* A size that a configuration gives. */
enum weight_dim {
	DIM_NONE,	/* a vector has no columns */
	DIM_VOCAB,
	DIM_HIDDEN,
	DIM_INTER,
	DIM_Q,		/* all query heads */
	DIM_KV,		/* all KV heads */
	DIM_HEAD,	/* one head */
};

/* The switch that a tensor depends on. */
enum weight_need {
	NEED_ALWAYS,
	NEED_UNTIED,
	NEED_QKV_BIAS,
	NEED_QK_NORM,
};

/* @offset is that of a struct kern_weight, or of a float * for a vector. */
struct weight_spec {
	const char		*name;
	size_t			offset;
	enum weight_dim		rows;
	enum weight_dim		cols;
	enum weight_need	need;
};

#define LAYER(field)	offsetof(struct model_layer, field)
#define TOP(field)	offsetof(struct model_weights, field)

static const struct weight_spec top_specs[] = {
	{ "model.embed_tokens.weight", TOP(embed), DIM_VOCAB, DIM_HIDDEN,
	  NEED_ALWAYS },
	{ "model.norm.weight", TOP(norm), DIM_HIDDEN, DIM_NONE, NEED_ALWAYS },
	{ "lm_head.weight", TOP(head), DIM_VOCAB, DIM_HIDDEN, NEED_UNTIED },
};

/* Names behind "model.layers.N.". */
static const struct weight_spec layer_specs[] = {
	{ "input_layernorm.weight", LAYER(attn_norm), DIM_HIDDEN, DIM_NONE,
	  NEED_ALWAYS },
	{ "self_attn.q_proj.weight", LAYER(q), DIM_Q, DIM_HIDDEN,
	  NEED_ALWAYS },
	{ "self_attn.k_proj.weight", LAYER(k), DIM_KV, DIM_HIDDEN,
	  NEED_ALWAYS },
	{ "self_attn.v_proj.weight", LAYER(v), DIM_KV, DIM_HIDDEN,
	  NEED_ALWAYS },
	{ "self_attn.o_proj.weight", LAYER(o), DIM_HIDDEN, DIM_Q,
	  NEED_ALWAYS },
	{ "self_attn.q_proj.bias", LAYER(q_bias), DIM_Q, DIM_NONE,
	  NEED_QKV_BIAS },
	{ "self_attn.k_proj.bias", LAYER(k_bias), DIM_KV, DIM_NONE,
	  NEED_QKV_BIAS },
	{ "self_attn.v_proj.bias", LAYER(v_bias), DIM_KV, DIM_NONE,
	  NEED_QKV_BIAS },
	{ "self_attn.q_norm.weight", LAYER(q_norm), DIM_HEAD, DIM_NONE,
	  NEED_QK_NORM },
	{ "self_attn.k_norm.weight", LAYER(k_norm), DIM_HEAD, DIM_NONE,
	  NEED_QK_NORM },
	{ "post_attention_layernorm.weight", LAYER(mlp_norm), DIM_HIDDEN,
	  DIM_NONE, NEED_ALWAYS },
	{ "mlp.gate_proj.weight", LAYER(gate), DIM_INTER, DIM_HIDDEN,
	  NEED_ALWAYS },
	{ "mlp.up_proj.weight", LAYER(up), DIM_INTER, DIM_HIDDEN,
	  NEED_ALWAYS },
	{ "mlp.down_proj.weight", LAYER(down), DIM_HIDDEN, DIM_INTER,
	  NEED_ALWAYS },
};

/* What one binding works on; keeps argument lists short. */
struct binder {
	struct model_weights		*w;
	struct ckpt			*c;
	const struct model_config	*cfg;
	struct model_error		*err;
};

static u64 weight_dim(const struct model_config *cfg, enum weight_dim dim)
{
	switch (dim) {
	case DIM_VOCAB:
		return cfg->vocab;
	case DIM_HIDDEN:
		return cfg->hidden;
	case DIM_INTER:
		return cfg->inter;
	case DIM_Q:
		return (u64)cfg->heads * cfg->head_dim;
	case DIM_KV:
		return (u64)cfg->kv_heads * cfg->head_dim;
	case DIM_HEAD:
		return cfg->head_dim;
	case DIM_NONE:
		break;
	}
	return 0;
}

static bool weight_needed(const struct model_config *cfg,
			  enum weight_need need)
{
	switch (need) {
	case NEED_UNTIED:
		return !cfg->tied;
	case NEED_QKV_BIAS:
		return cfg->qkv_bias;
	case NEED_QK_NORM:
		return cfg->qk_norm;
	case NEED_ALWAYS:
		break;
	}
	return true;
}

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

/* A copy of a tensor in f32, owned by the weights; NULL without memory. */
static const float *weight_widen(struct binder *b, const struct st_tensor *t)
{
	void **owned;
	float *copy;
	u64 i;

	owned = realloc(b->w->owned, (b->w->nr_owned + 1) * sizeof(*owned));
	if (!owned)
		return NULL;
	b->w->owned = owned;
	copy = malloc(t->nr_elems * sizeof(*copy));
	if (!copy)
		return NULL;
	owned[b->w->nr_owned++] = copy;
	for (i = 0; i < t->nr_elems; i++)
		copy[i] = weight_elem(t, i);
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

static int weight_place_matrix(struct binder *b, const struct st_tensor *t,
			       struct kern_weight *m)
{
	const size_t size = t->dtype == ST_F32 ? 4 : 2;

	m->rows = t->shape[0];
	m->cols = t->shape[1];
	if (t->dtype != ST_F16 && !((uintptr_t)t->data % size)) {
		m->data = t->data;
		m->dtype = t->dtype == ST_F32 ? KERN_F32 : KERN_BF16;
		return 0;
	}
	m->data = weight_widen(b, t);
	m->dtype = KERN_F32;
	return m->data ? 0 : model_fail_errno(b->err, -ENOMEM, t->path,
					      t->name);
}

static int weight_place(struct binder *b, const struct weight_spec *s,
			const char *name, void *base)
{
	const u64 shape[2] = {
		weight_dim(b->cfg, s->rows), weight_dim(b->cfg, s->cols),
	};
	void *place = (u8 *)base + s->offset;
	const struct st_tensor *t;
	int ret;

	if (!weight_needed(b->cfg, s->need))
		return 0;
	t = ckpt_take(b->c, name);
	if (!t)
		return model_fail(b->err, -EINVAL, "%s: tensor %s is missing: "
				  "download the whole model again",
				  b->c->dir, name);
	ret = weight_check(b, t, shape, s->cols == DIM_NONE ? 1 : 2);
	if (ret)
		return ret;
	if (s->cols != DIM_NONE)
		return weight_place_matrix(b, t, place);
	*(const float **)place = weight_widen(b, t);
	return *(const float **)place ? 0 :
	       model_fail_errno(b->err, -ENOMEM, t->path, t->name);
}

static int weights_place_layer(struct binder *b, u32 layer)
{
	char name[96];
	size_t i;
	int ret;

	for (i = 0; i < ARRAY_SIZE(layer_specs); i++) {
		snprintf(name, sizeof(name), "model.layers.%u.%s", layer,
			 layer_specs[i].name);
		ret = weight_place(b, &layer_specs[i], name,
				   &b->w->layers[layer]);
		if (ret)
			return ret;
	}
	return 0;
}

static bool ends_with(const char *s, const char *end)
{
	const size_t len = strlen(s), elen = strlen(end);

	return len >= elen && !strcmp(s + len - elen, end);
}

/* A second copy of a tied matrix that says the same. */
static bool weight_is_tied_copy(struct binder *b, const struct st_tensor *t)
{
	const struct st_tensor *e;

	if (!b->cfg->tied || strcmp(t->name, "lm_head.weight"))
		return false;
	e = ckpt_take(b->c, "model.embed_tokens.weight");
	return e->dtype == t->dtype && e->nr_bytes == t->nr_bytes &&
	       !memcmp(e->data, t->data, t->nr_bytes);
}

static int weights_refuse_rest(struct binder *b)
{
	const struct st_tensor *t;

	while ((t = ckpt_unused(b->c))) {
		if (!ends_with(t->name, ".rotary_emb.inv_freq") &&
		    !weight_is_tied_copy(b, t))
			return model_fail(b->err, -EINVAL, "%s: tensor "
					  MODEL_NAME_FMT ": config.json does "
					  "not ask for it: copy the whole "
					  "model again", t->path, t->name);
		ckpt_take(b->c, t->name);
	}
	return 0;
}

int weights_bind(struct model_weights *w, struct ckpt *c,
		 const struct model_config *cfg, struct model_error *err)
{
	struct binder b = { .w = w, .c = c, .cfg = cfg, .err = err };
	size_t i;
	u32 layer;
	int ret;

	memset(w, 0, sizeof(*w));
	w->layers = calloc(cfg->layers, sizeof(*w->layers));
	if (!w->layers)
		return model_fail_errno(err, -ENOMEM, c->dir, "layers");
	for (i = 0; i < ARRAY_SIZE(top_specs); i++) {
		ret = weight_place(&b, &top_specs[i], top_specs[i].name, w);
		if (ret)
			return ret;
	}
	if (cfg->tied)
		w->head = w->embed;
	for (layer = 0; layer < cfg->layers; layer++) {
		ret = weights_place_layer(&b, layer);
		if (ret)
			return ret;
	}
	return weights_refuse_rest(&b);
}

void weights_free(struct model_weights *w)
{
	u32 i;

	for (i = 0; i < w->nr_owned; i++)
		free(w->owned[i]);
	free(w->owned);
	free(w->layers);
	memset(w, 0, sizeof(*w));
}
