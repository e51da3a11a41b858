// SPDX-License-Identifier: Apache-2.0
/*
 * gguf_tensors.c - the tensors of a GGUF file as those of a layout
 *
 * Most tensors only get another name and shape, and are used where they are mapped.
 * A tensor of all experts becomes one for each, in place.  Four kinds are copied: q and
 * k, if rows that are rotated together are neighbours; joined rows of q, k and v in
 * another order; two tensors that the layout has as one; and -exp(x), of which x is
 * wanted.  A row is whole bytes in every type, so rows are copied as they are.
 *
 * The copies lie in one piece of memory that is reserved when the file is opened.
 * With a judged model it is never touched, and so costs nothing.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "runtime/model/error.h"
#include "runtime/model/gguf_model.h"
#include "runtime/model/layout.h"

/**
 * struct gguf_copy - rows of a tensor that are copied
 * @t:		the tensor
 * @how:	their order
 * @to:		index of the tensor that is made
 */
struct gguf_copy {
	const struct gguf_tensor	*t;
	enum gguf_how			how;
	u32				to;
};

/**
 * struct gguf_loading - the state of opening
 * @g:		the file
 * @arch:	its architecture
 * @cfg:	its configuration
 * @c:		the checkpoint
 * @copies:	tensors with rows that are copied
 * @nr_copies:	how many
 * @bytes:	bytes of tensors that are made
 * @err:	where failures are reported
 */
struct gguf_loading {
	const struct gguf		*g;
	const struct gguf_arch		*arch;
	const struct model_config	*cfg;
	struct ckpt			*c;
	struct gguf_copy		*copies;
	u32				nr_copies;
	u64				bytes;
	struct model_error		*err;
};

static int bad_tensor(const struct gguf_loading *o, const struct gguf_tensor *t,
		      const char *why)
{
	return model_fail(o->err, -EINVAL, "%s: tensor " MODEL_NAME_FMT
			  ": %s: copy the whole model again", t->path, t->name,
			  why);
}

static int no_memory(const struct gguf_loading *o)
{
	return model_fail_errno(o->err, -ENOMEM, o->c->dir, "tensors");
}

static bool is_copied(enum gguf_how how)
{
	return how == GGUF_Q_PAIRS || how == GGUF_K_PAIRS ||
	       how == GGUF_QKV || how == GGUF_FIRST || how == GGUF_SECOND ||
	       how == GGUF_LOG;
}

/* Tensors of the layout that @t becomes at most. */
static u64 nr_of(const struct gguf_tensor *t, const struct gguf_name *n)
{
	return n && n->how == GGUF_EXPERTS ? t->dims[t->nr_dims - 1] : 1;
}

/* ---- names and shapes ---- */

/* The type of elements; types of blocks keep theirs. */
static void set_type(struct st_tensor *to, u32 type)
{
	to->dtype = type == 0 ? ST_F32 : type == 1 ? ST_F16 :
		    type == 30 ? ST_BF16 : ST_BLOCKS;
	if (to->dtype == ST_BLOCKS)
		to->blocks = kern_dtype_of_gguf(type);
}

/* Dimensions in the other order, the contiguous one last. */
static void set_shape(struct st_tensor *to, const struct gguf_tensor *t,
		      enum gguf_how how)
{
	const u32 last = how == GGUF_EXPERTS ? 1 : 0;
	u32 i;

	to->nr_elems = t->nr_elems;
	for (i = t->nr_dims; i-- > 0;)
		if (!last || i + last < t->nr_dims)
			to->shape[to->nr_dims++] = t->dims[i];
	if (last)
		to->nr_elems /= t->dims[t->nr_dims - 1];
	if (how == GGUF_FLAT || how == GGUF_LOG) {
		to->nr_dims = 1;
		to->shape[0] = t->nr_elems;
	} else if (how == GGUF_ROWS) {
		to->nr_dims = 2;
		to->shape[0] = t->nr_elems / t->dims[0];
		to->shape[1] = t->dims[0];
	} else if (how == GGUF_TAPS && to->nr_dims == 2) {
		to->nr_dims = 3;
		to->shape[2] = to->shape[1];
		to->shape[1] = 1;
	}
}

/* The name in the layout; that of a tensor without one is kept. */
static char *name_in_layout(const struct gguf_loading *o,
			    const struct gguf_tensor *t,
			    const struct gguf_name *n, u32 layer, u32 expert)
{
	const char *mark = n ? strstr(n->to, "%u") : NULL;
	char *name = NULL;
	int len;

	if (!n)
		return strdup(t->name);
	if (layer == UINT32_MAX)
		return strdup(n->to);
	if (mark)
		len = asprintf(&name, "%s%u.%.*s%u%s", o->arch->layers, layer,
			       (int)(mark - n->to), n->to, expert, mark + 2);
	else
		len = asprintf(&name, "%s%u.%s", o->arch->layers, layer, n->to);
	return len < 0 ? NULL : name;
}

/* Tensor number @expert of @t, used in place. */
static int add_mapped(struct gguf_loading *o, const struct gguf_tensor *t,
		      const struct gguf_name *n, u32 layer, u32 expert)
{
	struct ckpt *c = o->c;
	struct st_tensor *to = &c->gguf_tensors[c->nr_gguf];

	to->name = name_in_layout(o, t, n, layer, expert);
	if (!to->name)
		return no_memory(o);
	c->nr_gguf++;
	to->path = t->path;
	set_type(to, t->type);
	set_shape(to, t, n ? n->how : GGUF_SAME);
	to->nr_bytes = t->nr_bytes / nr_of(t, n);
	to->data = (const u8 *)t->data + expert * to->nr_bytes;
	c->tensors[c->nr_tensors++] = to;
	return 0;
}

/* ---- copies ---- */

/* Rows of @t; each number of a vector is one. */
static u64 rows_of(const struct gguf_tensor *t)
{
	return t->nr_dims == 1 ? t->dims[0] : t->nr_elems / t->dims[0];
}

/* Heads whose rows are sorted. */
static u32 heads_of(const struct gguf_loading *o, enum gguf_how how)
{
	return how == GGUF_K_PAIRS ? o->cfg->kv_heads : o->cfg->heads;
}

/* Can the rows of @t be sorted so? */
static int check_copied(const struct gguf_loading *o, const struct gguf_tensor *t,
			enum gguf_how how)
{
	const u64 rows = rows_of(t);
	const u64 part = how == GGUF_QKV ? 3 : 2;

	if (t->nr_dims > 2)
		return bad_tensor(o, t, "has more than two dimensions");
	if (t->nr_dims == 1 && t->type > 1 && t->type != 30)
		return bad_tensor(o, t, "is a vector in blocks");
	if (how == GGUF_LOG && t->type)
		return bad_tensor(o, t, "is not in F32");
	if ((how == GGUF_Q_PAIRS || how == GGUF_K_PAIRS || how == GGUF_QKV) &&
	    rows % (part * heads_of(o, how)))
		return bad_tensor(o, t, "its rows are not those of all heads");
	return 0;
}

/* Copy @n rows of @row bytes, from row @from on, to row @at of the copy. */
static void rows_copy(const struct gguf_tensor *t, u64 row, u64 from, u64 n,
		      u8 *to, u64 at)
{
	memcpy(to + at * row, (const u8 *)t->data + from * row, n * row);
}

/* Rows of pairs become the first halves of all pairs, then the second ones. */
static void copy_pairs(const struct gguf_tensor *t, u64 row, u32 heads, u8 *to)
{
	const u64 half = rows_of(t) / heads / 2;
	u64 h, i;

	for (h = 0; h < heads; h++) {
		for (i = 0; i < half; i++) {
			const u64 from = 2 * (h * half + i);

			rows_copy(t, row, from, 1, to, 2 * h * half + i);
			rows_copy(t, row, from + 1, 1, to,
				  2 * h * half + half + i);
		}
	}
}

/* Rows of q, k and v of all heads become those of each head. */
static void copy_qkv(const struct gguf_tensor *t, u64 row, u32 heads, u8 *to)
{
	const u64 dim = rows_of(t) / heads / 3;
	u64 h, part;

	for (h = 0; h < heads; h++)
		for (part = 0; part < 3; part++)
			rows_copy(t, row, (part * heads + h) * dim, dim, to,
				  (h * 3 + part) * dim);
}

/* The x of -exp(x). */
static void copy_logs(const struct gguf_tensor *t, u8 *to)
{
	float v;
	u64 i;

	for (i = 0; i < t->nr_elems; i++) {
		memcpy(&v, (const u8 *)t->data + i * 4, 4);
		v = (float)log(-(double)v);
		memcpy(to + i * 4, &v, 4);
	}
}

static void fill_one(const struct gguf_loading *o, const struct gguf_copy *copy)
{
	const struct gguf_tensor *t = copy->t;
	const struct st_tensor *made = &o->c->made[copy->to];
	const u64 row = t->nr_bytes / rows_of(t);
	u8 *to = (u8 *)o->c->made_map + made->begin;

	switch (copy->how) {
	case GGUF_Q_PAIRS:
	case GGUF_K_PAIRS:
		copy_pairs(t, row, heads_of(o, copy->how), to);
		break;
	case GGUF_QKV:
		copy_qkv(t, row, o->cfg->heads, to);
		break;
	case GGUF_LOG:
		copy_logs(t, to);
		break;
	case GGUF_SECOND:
		memcpy(to + t->nr_bytes, t->data, t->nr_bytes);
		break;
	default:
		memcpy(to, t->data, t->nr_bytes);
		break;
	}
}

/* Memory of all tensors that are made. */
static int made_place(struct gguf_loading *o, bool judge)
{
	struct ckpt *c = o->c;
	u32 i;

	if (!o->bytes)
		return 0;
	c->made_map = mmap(NULL, o->bytes, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (c->made_map == MAP_FAILED) {
		c->made_map = NULL;
		return model_fail(o->err, -ENOMEM, "%s: no memory for %llu MB "
				  "of sorted weights: stop other programs",
				  c->dir, (unsigned long long)(o->bytes >> 20));
	}
	c->made_bytes = o->bytes;
	for (i = 0; i < c->nr_made; i++)
		c->made[i].data = (u8 *)c->made_map + c->made[i].begin;
	for (i = 0; i < o->nr_copies && !judge; i++) {
		fill_one(o, &o->copies[i]);
		ckpt_drop_range(o->copies[i].t->data, o->copies[i].t->nr_bytes);
	}
	return 0;
}

/* A tensor that @t makes alone, or together with a second one. */
static void new_made(struct gguf_loading *o, const struct gguf_tensor *t,
		     enum gguf_how how, char *name)
{
	struct st_tensor *to = &o->c->made[o->c->nr_made++];

	to->name = name;
	to->path = t->path;
	set_type(to, t->type);
	set_shape(to, t, how);
	to->nr_bytes = t->nr_bytes;
	to->begin = o->bytes;
	o->bytes += ALIGN_UP(to->nr_bytes, 64ull);
	o->c->tensors[o->c->nr_tensors++] = to;
}

/* Add the rows of @t to the tensor that was made last: names of the file are sorted. */
static int join_made(struct gguf_loading *o, const struct gguf_tensor *t,
		     const char *name)
{
	struct st_tensor like = { .name = NULL }, *to;

	to = o->c->nr_made ? &o->c->made[o->c->nr_made - 1] : &like;
	set_type(&like, t->type);
	set_shape(&like, t, GGUF_SECOND);
	if (!to->name || strcmp(to->name, name) || to->dtype != like.dtype ||
	    to->blocks != like.blocks || to->nr_dims != like.nr_dims ||
	    memcmp(to->shape, like.shape, sizeof(like.shape)))
		return bad_tensor(o, t, "has no tensor of its type and shape to "
				  "be joined with");
	to->shape[0] *= 2;
	to->nr_elems *= 2;
	to->nr_bytes *= 2;
	o->bytes = to->begin + ALIGN_UP(to->nr_bytes, 64ull);
	return 0;
}

static int add_copied(struct gguf_loading *o, const struct gguf_tensor *t,
		      const struct gguf_name *n, u32 layer)
{
	char *name = name_in_layout(o, t, n, layer, 0);
	int ret;

	if (!name)
		return no_memory(o);
	ret = check_copied(o, t, n->how);
	if (!ret && n->how == GGUF_SECOND) {
		ret = join_made(o, t, name);
	} else if (!ret) {
		new_made(o, t, n->how, name);
		name = NULL;
	}
	free(name);
	o->copies[o->nr_copies++] = (struct gguf_copy){
		t, n->how, o->c->nr_made - 1,
	};
	return ret;
}

/* ---- the file ---- */

static int add_tensor(struct gguf_loading *o, const struct gguf_tensor *t)
{
	const struct gguf_name *n;
	u32 layer, i;
	int ret = 0;

	n = gguf_name_of(o->arch, t->name, &layer);
	if (n && n->how == GGUF_CONFIG)
		return 0;
	if (n && is_copied(n->how))
		return add_copied(o, t, n, layer);
	for (i = 0; !ret && i < nr_of(t, n); i++)
		ret = add_mapped(o, t, n, layer, i);
	return ret;
}

/* Memory of all lists; every tensor is counted as mapped and as copied. */
static int make_lists(struct gguf_loading *o)
{
	struct ckpt *c = o->c;
	const u32 files = gguf_nr_tensors(o->g);
	const struct gguf_name *n;
	u64 nr = files;
	u32 i, layer;

	for (i = 0; i < files; i++) {
		const struct gguf_tensor *t = gguf_tensor_at(o->g, i);

		n = gguf_name_of(o->arch, t->name, &layer);
		if (nr_of(t, n) > KERN_MAX_EXPERTS)
			return bad_tensor(o, t, "has more experts than any "
					  "model");
		nr += nr_of(t, n);
	}
	c->gguf_tensors = calloc(nr + 1, sizeof(*c->gguf_tensors));
	c->made = calloc(files + 1, sizeof(*c->made));
	o->copies = calloc(files + 1, sizeof(*o->copies));
	c->tensors = calloc(nr + 1, sizeof(*c->tensors));
	c->used = calloc(nr + 1, sizeof(*c->used));
	c->copied = calloc(nr + 1, sizeof(*c->copied));
	if (!c->gguf_tensors || !c->made || !o->copies || !c->tensors ||
	    !c->used || !c->copied)
		return no_memory(o);
	return 0;
}

/* A name of the layout may have been made of two names of the file. */
static int check_names(const struct gguf_loading *o)
{
	const struct ckpt *c = o->c;
	u32 i;

	for (i = 1; i < c->nr_tensors; i++)
		if (!strcmp(c->tensors[i - 1]->name, c->tensors[i]->name))
			return model_fail(o->err, -EINVAL, "%s: tensor "
					  MODEL_NAME_FMT ": is there under two "
					  "names: copy the whole model again",
					  c->tensors[i]->path,
					  c->tensors[i]->name);
	return 0;
}

static int open_all(struct gguf_loading *o, bool judge)
{
	u32 i;
	int ret;

	ret = make_lists(o);
	for (i = 0; !ret && i < gguf_nr_tensors(o->g); i++)
		ret = add_tensor(o, gguf_tensor_at(o->g, i));
	if (ret)
		return ret;
	ckpt_sort(o->c);
	ret = check_names(o);
	return ret ? ret : made_place(o, judge);
}

int gguf_ckpt_open(const char *path, const struct model_config *cfg,
		   bool judge, struct ckpt **out, struct model_error *err)
{
	struct gguf_loading o = { .cfg = cfg, .err = err };
	char why[GGUF_ERR_MAX] = "";
	int ret;

	o.c = calloc(1, sizeof(*o.c));
	if (!o.c)
		return model_fail_errno(err, -ENOMEM, path, "open");
	o.c->dir = strdup(path);
	ret = o.c->dir ? gguf_open(path, &o.c->gguf, why, sizeof(why)) : -ENOMEM;
	if (ret)
		model_fail(err, ret, "%s", *why ? why : "no memory");
	o.g = o.c->gguf;
	if (!ret) {
		o.arch = gguf_arch_of(o.g, err);
		ret = o.arch ? open_all(&o, judge) : -EOPNOTSUPP;
	}
	free(o.copies);
	if (ret) {
		ckpt_close(o.c);
		return ret;
	}
	*out = o.c;
	return 0;
}
