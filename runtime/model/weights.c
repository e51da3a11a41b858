// SPDX-License-Identifier: Apache-2.0
/*
 * weights.c - bind tensors to the decoder's places
 *
 * The tables of layout.c say which tensor goes where.  Matrices in bf16 and f32
 * are used where they are mapped, also as slices of a joined tensor: a
 * checkpoint costs no memory beyond the page cache, and two runtimes of one
 * model share it.  Tensors that the kernels cannot read in place are copied:
 * types that the kernels lack as f32, which holds them exactly; matrices that are stored
 * transposed; vectors (norms and biases are f32 by contract); and unaligned
 * tensors of old writers.  The mapped pages of a copied tensor are given back
 * at once, one tensor after the other, so there are never two copies of the
 * weights in memory.  Matrices in blocks (kernels/quant.h) are used where they are,
 * too, if the kernels take them; otherwise their numbers are copied as f32.  pack.c
 * comes later.
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
#include "runtime/model/names.h"

/* State of one binding; keeps argument lists short. */
struct binder {
	struct model_weights		*w;
	struct ckpt			*c;
	const struct model_config	*cfg;
	const struct weight_names	*names;
	u32				prefix;
	bool				judge;
	u32				types;
	struct model_error		*err;
};

/* The numbers of a matrix of blocks, each in its column. */
static void weight_order(const struct st_tensor *t, float *to)
{
	const u64 cols = t->shape[t->nr_dims - 1];
	const u32 n = kern_block_elems(t->blocks);
	float part[KERN_BLOCK_MAX_ELEMS];
	const u8 *from = t->data;
	u64 i, k;

	for (i = 0; i < t->nr_elems; i += n, from += kern_block_bytes(t->blocks)) {
		kern_dequant(t->blocks, from, n, part);
		for (k = 0; k < n; k++)
			to[i / cols * cols + t->order[i % cols + k]] = part[k];
	}
}

void weight_numbers(const struct st_tensor *t, float *to)
{
	u64 i;

	if (t->order) {
		weight_order(t, to);
		return;
	}
	if (t->dtype == ST_BLOCKS) {
		kern_dequant(t->blocks, t->data, t->nr_elems, to);
		return;
	}
	for (i = 0; i < t->nr_elems; i++)
		to[i] = st_number(t, i);
}

static bool weight_is_norm(const struct weight_spec *s)
{
	return s->how == HOW_NORM || s->how == HOW_HEAD_NORM;
}

void *weights_own(struct model_weights *w, u64 bytes)
{
	void **owned, *copy;

	owned = realloc(w->owned, (w->nr_owned + 1) * sizeof(*owned));
	if (!owned)
		return NULL;
	w->owned = owned;
	copy = malloc(bytes);
	if (!copy)
		return NULL;
	owned[w->nr_owned++] = copy;
	w->owned_bytes += bytes;
	return copy;
}

/* Memory for a copy of @t with @size bytes an element; NULL: no memory. */
static void *weight_own(struct binder *b, const struct st_tensor *t,
			size_t size)
{
	return weights_own(b->w, t->nr_elems * size);
}

/* A copy of a tensor in f32, owned by the weights; NULL: no memory. */
static float *weight_widen(struct binder *b, const struct st_tensor *t)
{
	float *copy = weight_own(b, t, sizeof(*copy));

	if (copy)
		weight_numbers(t, copy);
	ckpt_drop(b->c, t);
	return copy;
}

/* Copy element @from of @t to element @to of the copy. */
static void elem_copy(const struct st_tensor *t, u64 from, u8 *copy, u64 to)
{
	float f;

	if (t->dtype == ST_BF16) {
		memcpy(copy + to * 2, (const u8 *)t->data + from * 2, 2);
		return;
	}
	f = st_number(t, from);
	memcpy(copy + to * 4, &f, 4);
}

#define TURN_TILE	32u

/**
 * struct turn - a matrix that is copied with rows and columns exchanged
 * @t:     the tensor that has it
 * @first: number of its first element there
 * @to:    the copy
 * @rows:  rows in the file, columns of the copy
 * @cols:  columns in the file
 * @pairs: columns are those of two matrices in turn, whose rows follow one another
 *	   in the copy
 */
struct turn {
	const struct st_tensor	*t;
	u64			first;
	u8			*to;
	u64			rows;
	u64			cols;
	bool			pairs;
};

/* The row of the copy that column @c becomes. */
static u64 turned_row(const struct turn *m, u64 c)
{
	return m->pairs ? c / 2 + (c % 2 ? m->cols / 2 : 0) : c;
}

/* Copy one tile, from element (r, c). */
static void turn_tile(const struct turn *m, u64 r, u64 c)
{
	const u64 r_end = min(m->rows, r + TURN_TILE);
	const u64 c_end = min(m->cols, c + TURN_TILE), c_from = c;
	u64 from, to;

	for (; r < r_end; r++) {
		for (c = c_from; c < c_end; c++) {
			from = m->first + r * m->cols + c;
			to = turned_row(m, c) * m->rows + r;
			elem_copy(m->t, from, m->to, to);
		}
	}
}

/* A copy of matrices with rows and columns exchanged. */
static void *weight_turn(struct binder *b, const struct weight_at *at,
			 const struct st_tensor *t)
{
	const u32 size = t->dtype == ST_BF16 ? 2 : 4;
	u8 *copy = weight_own(b, t, size);
	struct turn m = {
		.t = t, .rows = at->cols, .cols = at->rows,
		.pairs = at->spec->how == HOW_PAIRS,
	};
	u64 r, c;
	u32 i;

	for (i = 0; copy && i < at->stack; i++) {
		m.first = i * m.rows * m.cols;
		m.to = copy + m.first * size;
		for (r = 0; r < m.rows; r += TURN_TILE)
			for (c = 0; c < m.cols; c += TURN_TILE)
				turn_tile(&m, r, c);
	}
	if (copy)
		ckpt_drop(b->c, t);
	return copy;
}

/*
 * A copy of the matrix that makes keys and values of all heads.  First the rows of
 * keys of each head, with rows and columns exchanged, then those of values.
 */
static void *weight_sort_heads(struct binder *b, const struct st_tensor *t)
{
	const struct latent_config *l = &b->cfg->latent;
	const u64 both = l->nope + l->value, heads = b->cfg->heads;
	u8 *copy = weight_own(b, t, t->dtype == ST_BF16 ? 2 : 4);
	u64 row, h, r, c, to;

	for (row = 0; copy && row < heads * both; row++) {
		h = row / both;
		r = row % both;
		for (c = 0; c < l->rank; c++) {
			to = (h * l->rank + c) * l->nope + r;
			if (r >= l->nope)
				to = (heads * l->nope + h * l->value + r -
				      l->nope) * l->rank + c;
			elem_copy(t, row * l->rank + c, copy, to);
		}
	}
	if (copy)
		ckpt_drop(b->c, t);
	return copy;
}

/* Where the configuration was read, for messages. */
static const char *config_place(const struct binder *b)
{
	return b->c->gguf ? "the metadata" : "config.json";
}

static int weight_check(struct binder *b, const struct st_tensor *t,
			const u64 *want, u32 nr_want)
{
	char has[160], wants[64];

	if (t->nr_dims != nr_want ||
	    memcmp(t->shape, want, nr_want * sizeof(*want)))
		return model_fail(b->err, -EINVAL, "%s: tensor " MODEL_NAME_FMT
				  ": shape is %s, %s asks for %s: "
				  "copy the whole model again", t->path,
				  t->name, st_shape_str(t->shape, t->nr_dims,
							has, sizeof(has)),
				  config_place(b),
				  st_shape_str(want, nr_want, wants,
					       sizeof(wants)));
	if (t->dtype != ST_BF16 && t->dtype != ST_F16 && t->dtype != ST_F32 &&
	    t->dtype != ST_BLOCKS)
		return model_fail(b->err, -EOPNOTSUPP, "%s: tensor "
				  MODEL_NAME_FMT ": dtype %s is not supported: "
				  "use a model in BF16, F16 or F32", t->path,
				  t->name, st_type_name(t));
	return 0;
}

/* Count the cost of placing a tensor. */
static void weight_count(struct binder *b, const struct weight_at *at,
			 const struct st_tensor *t)
{
	const enum kern_dtype type = !at->cols ? KERN_F32 :
				     weight_type_used(at, t, b->types);

	if (at->cols && weight_in_place(at, t, b->types))
		*(t->straight ? &b->w->owned_bytes : &b->w->mapped_bytes) +=
			t->nr_bytes;
	else if (b->judge)
		b->w->owned_bytes += kern_row_bytes(type, t->nr_elems);
}

/* The same, of blocks: they are numbers in between. */
static void *weight_sort_blocks(struct binder *b, const struct weight_at *at,
				const struct st_tensor *t)
{
	float *numbers = malloc(t->nr_elems * sizeof(*numbers));
	struct st_tensor plain = *t;
	void *copy;

	if (!numbers)
		return NULL;
	weight_numbers(t, numbers);
	plain.dtype = ST_F32;
	plain.data = numbers;
	copy = at->turned ? weight_turn(b, at, &plain) :
			    weight_sort_heads(b, &plain);
	free(numbers);
	return copy;
}

/* Make one matrix of all rows of all matrices of a tensor. */
static int weight_matrix(struct binder *b, const struct weight_at *at,
			 const struct st_tensor *t, struct kern_weight *m)
{
	const bool sorted = at->turned || at->spec->how == HOW_KV_B;

	m->packed = false;
	m->rows = at->stack * at->rows;
	m->cols = at->cols;
	m->dtype = weight_type_used(at, t, b->types);
	m->order = NULL;
	if (weight_in_place(at, t, b->types)) {
		m->data = t->data;
		m->order = t->order;
	} else if (sorted && t->dtype == ST_BLOCKS) {
		m->data = weight_sort_blocks(b, at, t);
	} else if (at->turned) {
		m->data = weight_turn(b, at, t);
	} else if (sorted) {
		m->data = weight_sort_heads(b, t);
	} else {
		m->data = weight_widen(b, t);
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
		    first * kern_row_bytes(m->dtype, m->cols);
	part.rows = rows;
	return part;
}

/* Its rows were columns. */
static void weight_shape_heads(struct binder *b, struct kern_weight *absorb)
{
	absorb->rows = b->cfg->heads * b->cfg->latent.rank;
	absorb->cols = b->cfg->latent.nope;
}

static int weight_set_matrix(struct binder *b, const struct weight_at *at,
			     const struct st_tensor *t)
{
	struct weight_part parts[WEIGHT_PARTS];
	const u32 nr = weight_parts(b->cfg, at->spec, parts);
	struct kern_weight m;
	u64 row = 0;
	u32 i, j;
	int ret;

	ret = weight_matrix(b, at, t, &m);
	for (i = 0; !ret && i < at->stack; i++)
		for (j = 0; j < nr; row += parts[j++].rows)
			*(struct kern_weight *)weight_place_of(b->w, at, i,
							       &parts[j]) =
				weight_slice(&m, row, parts[j].rows);
	if (!ret && at->spec->how == HOW_KV_B)
		weight_shape_heads(b, &b->w->layers[at->layer].absorb);
	return ret;
}

/* Sort @n numbers of two vectors in turn into the first one and the second one. */
static int weight_part_pairs(float *v, u64 n)
{
	float *in_turn = malloc(n * sizeof(*v));
	u64 i;

	if (!in_turn)
		return -ENOMEM;
	memcpy(in_turn, v, n * sizeof(*v));
	for (i = 0; i < n; i++)
		v[i / 2 + (i % 2 ? n / 2 : 0)] = in_turn[i];
	free(in_turn);
	return 0;
}

/* Order the taps of all channels by tap. */
static int weight_turn_taps(float *v, u64 channels, u32 taps)
{
	float *copy = malloc(channels * taps * sizeof(*v));
	u64 c;
	u32 j;

	if (!copy)
		return -ENOMEM;
	memcpy(copy, v, channels * taps * sizeof(*v));
	for (c = 0; c < channels; c++)
		for (j = 0; j < taps; j++)
			v[j * channels + c] = copy[c * taps + j];
	free(copy);
	return 0;
}

/* Change the numbers of a vector to those that the decoder uses. */
static int weight_turn_vector(struct binder *b, const struct weight_at *at,
			      float *v)
{
	const bool plus_one = weight_is_norm(at->spec) &&
			      b->cfg->norm_plus_one;
	u64 i;
	int ret = 0;

	for (i = 0; plus_one && i < at->rows; i++)
		v[i] += 1.0f;
	for (i = 0; !ret && at->spec->how == HOW_PAIRS && i < at->stack; i++)
		ret = weight_part_pairs(v + i * at->rows, at->rows);
	if (at->spec->how == HOW_TAPS)
		ret = weight_turn_taps(v, at->rows, b->cfg->state.conv);
	return ret;
}

/* The vectors of heads follow one another in one copy, which the first one makes. */
static int weight_set_head(struct binder *b, const struct weight_at *at,
			   const struct st_tensor *t)
{
	const struct weight_part whole = { at->spec->offset, at->rows };
	float **place = weight_place_of(b->w, at, 0, &whole);
	const u32 head = at->expert - at->first;
	u64 i;

	if (!head)
		*place = weights_own(b->w, at->heads * at->rows *
				     sizeof(**place));
	if (!*place)
		return model_fail_errno(b->err, -ENOMEM, t->path, t->name);
	for (i = 0; i < at->rows; i++)
		(*place)[head * at->rows + i] = st_number(t, i);
	ckpt_drop(b->c, t);
	return 0;
}

static int weight_set_vector(struct binder *b, const struct weight_at *at,
			     const struct st_tensor *t)
{
	struct weight_part parts[WEIGHT_PARTS];
	const u32 nr = weight_parts(b->cfg, at->spec, parts);
	float *v = weight_widen(b, t);
	u32 i, j;

	if (!v || weight_turn_vector(b, at, v))
		return model_fail_errno(b->err, -ENOMEM, t->path, t->name);
	for (i = 0; i < at->stack; i++)
		for (j = 0; j < nr; v += parts[j++].rows)
			*(const float **)weight_place_of(b->w, at, i,
							 &parts[j]) = v;
	return 0;
}

/* Heads of a vector that is stored as [heads][head]; 0: it is not. */
static u32 weight_head_rows(const struct model_config *cfg,
			    const struct weight_at *at)
{
	return at->spec->how == HOW_HEAD_NORM && cfg->qk_norm == QK_NORM_EACH ?
	       (u32)(at->rows / cfg->head_dim) : 0;
}

/* The shape that the file must have; returns how many dimensions. */
static u32 weight_shape(const struct binder *b, const struct weight_at *at,
			u64 shape[3])
{
	u32 nr = 0;

	if (at->spec->of == OF_EXPERTS)
		shape[nr++] = at->stack;
	if (weight_head_rows(b->cfg, at))
		shape[nr++] = weight_head_rows(b->cfg, at);
	shape[nr++] = (at->turned ? at->cols : at->rows) /
		      max(weight_head_rows(b->cfg, at), 1u);
	if (at->cols)
		shape[nr++] = at->turned ? at->rows : at->cols;
	if (at->spec->how == HOW_TAPS) {
		shape[nr++] = 1;
		shape[nr++] = b->cfg->state.conv;
	}
	return nr;
}

static int weight_place(void *arg, const struct weight_at *of)
{
	struct weight_at now = *of, *at = &now;
	struct binder *b = arg;
	const struct st_tensor *t;
	u64 shape[3];
	u32 nr;
	int ret;

	t = ckpt_take(b->c, at->name);
	if (!t)
		return model_fail(b->err, -EINVAL, "%s: tensor %s is missing: "
				  "download the whole model again",
				  b->c->dir, at->name);
	at->turned &= !t->straight;
	nr = weight_shape(b, at, shape);
	ret = weight_check(b, t, shape, nr);
	if (ret)
		return ret;
	weight_count(b, at, t);
	if (b->judge)
		return 0;
	if (weight_of_head(at->spec))
		return weight_set_head(b, at, t);
	return at->cols ? weight_set_matrix(b, at, t) :
			  weight_set_vector(b, at, t);
}

u32 weights_prefix(const struct ckpt *c, const struct weight_names *n)
{
	char name[2][WEIGHT_NAME_MAX];

	if (!n->prefixes[1])
		return 0;
	weight_top_name(n, 0, &n->top[0], name[0]);
	weight_top_name(n, 1, &n->top[0], name[1]);
	return !ckpt_has(c, name[0]) && ckpt_has(c, name[1]);
}

/* Is it a second copy of a tied matrix, with the same content? */
static bool weight_is_tied_copy(struct binder *b, const struct st_tensor *t)
{
	char name[WEIGHT_NAME_MAX];
	const struct st_tensor *e;

	if (!b->cfg->tied || strcmp(t->name, b->names->head) ||
	    ckpt_is_made(b->c, t))
		return false;
	weight_top_name(b->names, b->prefix, &b->names->top[0], name);
	e = ckpt_take(b->c, name);
	return !ckpt_is_made(b->c, e) && e->dtype == t->dtype &&
	       e->nr_bytes == t->nr_bytes &&
	       !memcmp(e->data, t->data, t->nr_bytes);
}

static bool weight_is_leftover(struct binder *b, const struct st_tensor *t)
{
	u32 i;

	for (i = 0; b->names->leftovers[i]; i++)
		if (name_ends(t->name, b->names->leftovers[i]))
			return true;
	return weight_is_tied_copy(b, t);
}

static int weights_refuse_rest(struct binder *b)
{
	const struct st_tensor *t;

	while ((t = ckpt_unused(b->c))) {
		if (!weight_is_leftover(b, t))
			return model_fail(b->err, -EINVAL, "%s: tensor "
					  MODEL_NAME_FMT ": %s does not ask "
					  "for it: copy the whole model again",
					  t->path, t->name, config_place(b));
		ckpt_take(b->c, t->name);
	}
	return 0;
}

/* Memory for the layers, and for the experts of those that have some. */
static int weights_make_layers(struct model_weights *w,
			       const struct model_config *cfg)
{
	struct model_mlp *next;
	u64 nr = 0;
	u32 i;

	for (i = 0; i < cfg->layers; i++)
		nr += config_is_sparse(cfg, i) ? cfg->moe.experts : 0;
	w->layers = calloc(cfg->layers, sizeof(*w->layers));
	w->experts = calloc(nr + 1, sizeof(*w->experts));
	if (!w->layers || !w->experts)
		return -ENOMEM;
	next = w->experts;
	for (i = 0; i < cfg->layers; i++) {
		if (!config_is_sparse(cfg, i))
			continue;
		w->layers[i].experts = next;
		next += cfg->moe.experts;
	}
	return 0;
}

int weights_bind(struct model_weights *w, struct ckpt *c,
		 const struct model_config *cfg, bool judge, u32 types,
		 struct model_error *err)
{
	struct binder b = {
		.w = w, .c = c, .cfg = cfg, .judge = judge, .types = types,
		.err = err,
		.names = weight_names_of(cfg->layout),
	};
	int ret;

	memset(w, 0, sizeof(*w));
	if (weights_make_layers(w, cfg))
		return model_fail_errno(err, -ENOMEM, c->dir, "layers");
	b.prefix = w->prefix = weights_prefix(c, b.names);
	ret = weights_walk(cfg, b.prefix, weight_place, &b);
	if (cfg->tied)
		w->head = w->embed;
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
	free(w->experts);
	memset(w, 0, sizeof(*w));
}

/* The receiver of weights_each(). */
struct each {
	const struct model_config	*cfg;
	int				(*fn)(void *arg,
					      const struct weight_place *p);
	void				*arg;
};

static int each_one(void *arg, const struct weight_at *at)
{
	const bool norm = weight_is_norm(at->spec);
	const struct each *e = arg;
	const u32 heads = weight_head_rows(e->cfg, at);
	const struct weight_place p = {
		.name = at->name,
		.stack = at->spec->of == OF_EXPERTS ? at->stack : heads,
		.rows = (at->turned ? at->cols : at->rows) / max(heads, 1u),
		.cols = at->turned ? at->rows : at->cols,
		.taps = at->spec->how == HOW_TAPS ? e->cfg->state.conv : 0,
		.is_norm = norm,
		.is_state = at->spec->how == HOW_STATE,
		.plus_one = norm && e->cfg->norm_plus_one,
	};

	return e->fn(e->arg, &p);
}

int weights_each(const struct model_config *cfg,
		 int (*fn)(void *arg, const struct weight_place *p), void *arg)
{
	struct each e = { .cfg = cfg, .fn = fn, .arg = arg };

	return weights_walk(cfg, 0, each_one, &e);
}
