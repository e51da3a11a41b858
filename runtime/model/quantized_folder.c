// SPDX-License-Identifier: Apache-2.0
/*
 * quantized_folder.c - the matrices of a quantized folder
 *
 * A tensor with codes names a module, and the scheme of that module says which other
 * tensors there must be, and their shapes.  Nothing is used before all shapes were
 * checked against each other.  The checkpoint's other checks follow: the shape of the
 * matrix against the configuration, and tensors that are left.
 *
 * Scales are repeated where a block has fewer columns than share a scale.  If the
 * group of each column is given (g_idx), columns are sorted by group, and the matrix gets
 * the order.  A matrix that no type of blocks holds becomes f32: one with columns that
 * are no multiple of 32, one of 8 bits with zero points, and one with groups of different
 * sizes.
 */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/model/names.h"
#include "runtime/model/quantized_internal.h"

#define AGAIN		"copy the whole model again"
#define NAME_MAX_LEN	256u

/**
 * struct quant_folder - state of reading
 * @q:		the configuration
 * @l:		tensors to make
 * @err:	for failures
 * @codes:	the tensor with codes at hand
 * @len:	length of the name of its module
 */
struct quant_folder {
	struct quant_config	q;
	struct quant_list	l;
	struct model_error	*err;
	const struct st_tensor	*codes;
	u32			len;
};

static int folder_fail(struct quant_folder *f, const struct st_tensor *t,
		       const char *why)
{
	return model_fail(f->err, -EINVAL, "%s: tensor " MODEL_NAME_FMT ": %s: "
			  AGAIN, t->path, t->name, why);
}

/* Another tensor of the module, or NULL. */
static const struct st_tensor *part_of(struct quant_folder *f, const char *end)
{
	char name[2 * NAME_MAX_LEN];

	snprintf(name, sizeof(name), "%.*s%s", (int)f->len, f->codes->name, end);
	return quant_list_take(&f->l, name);
}

static int need_part(struct quant_folder *f, const char *end,
		     const struct st_tensor **t)
{
	*t = part_of(f, end);
	if (*t)
		return 0;
	return model_fail(f->err, -EINVAL, "%s: tensor " MODEL_NAME_FMT ": its "
			  "\"%s\" is missing: " AGAIN, f->codes->path,
			  f->codes->name, end + 1);
}

static bool is_number(const struct st_tensor *t)
{
	return t->dtype == ST_F32 || t->dtype == ST_F16 || t->dtype == ST_BF16;
}

/* Does @t have the shape [@a][@b]? */
static bool has_shape(const struct st_tensor *t, u64 a, u64 b)
{
	return t->nr_dims == 2 && t->shape[0] == a && t->shape[1] == b;
}

static int check_shape(struct quant_folder *f, const struct st_tensor *t, u64 a,
		       u64 b)
{
	char has[160];

	if (has_shape(t, a, b))
		return 0;
	return model_fail(f->err, -EINVAL, "%s: tensor " MODEL_NAME_FMT ": shape "
			  "is %s, its matrix and quantization_config ask for "
			  "[%llu, %llu]: " AGAIN, t->path, t->name,
			  st_shape_str(t->shape, t->nr_dims, has, sizeof(has)),
			  (unsigned long long)a, (unsigned long long)b);
}

static int check_type(struct quant_folder *f, const struct st_tensor *t, bool ok)
{
	if (ok)
		return 0;
	return model_fail(f->err, -EOPNOTSUPP, "%s: tensor " MODEL_NAME_FMT
			  ": dtype %s is not supported here: use a model in "
			  "another form", t->path, t->name, st_type_name(t));
}

/* ---- matrices of codes ---- */

/* The sizes of the matrix that the codes make. */
static int codes_sizes(struct quant_folder *f, struct quant_make *m)
{
	const struct st_tensor *t = m->codes, *shape;
	const u32 per = 32 / m->s->bits;
	s64 sizes[2];
	int ret;

	if (m->s->how == QUANT_AWQ) {
		m->rows = t->shape[1] * per;
		m->cols = t->shape[0];
	} else if (m->s->how == QUANT_GPTQ) {
		m->rows = t->shape[1];
		m->cols = t->shape[0] * per;
	} else if (m->s->how == QUANT_PLAIN) {
		m->rows = t->shape[0];
		m->cols = t->shape[1];
	} else {
		ret = need_part(f, ".weight_shape", &shape);
		if (ret)
			return ret;
		if (shape->dtype != ST_I64 || shape->nr_elems != 2)
			return folder_fail(f, shape, "it is no shape");
		memcpy(sizes, shape->data, sizeof(sizes));
		m->rows = sizes[0];
		m->cols = sizes[1];
		if (m->rows != t->shape[0] || m->cols > t->shape[1] * per ||
		    m->cols + per <= t->shape[1] * per)
			return folder_fail(f, shape, "it is not that of the "
					   "elements");
	}
	if (!m->rows || !m->cols || m->rows > UINT32_MAX || m->cols > UINT32_MAX)
		return folder_fail(f, t, "the matrix is empty or too large");
	return 0;
}

/* Scales and zero points of AWQ and GPTQ. */
static int parts_by_group(struct quant_folder *f, struct quant_make *m)
{
	const u64 per = 32 / m->s->bits;
	int ret;

	ret = need_part(f, ".scales", &m->scales);
	if (!ret)
		ret = check_shape(f, m->scales, m->groups, m->rows);
	if (!ret)
		ret = need_part(f, ".qzeros", &m->zeros);
	if (!ret)
		ret = check_type(f, m->zeros, m->zeros->dtype == ST_I32);
	if (!ret)
		ret = check_shape(f, m->zeros, m->groups,
				  DIV_ROUND_UP(m->rows, per));
	m->g_idx = m->s->sorted ? part_of(f, ".g_idx") : NULL;
	if (!ret && !m->g_idx && m->s->needs_idx && m->groups > 1)
		ret = need_part(f, ".g_idx", &m->g_idx);
	return ret;
}

/* Which rows share a scale?  A single scale may have any shape. */
static int scales_by_row(struct quant_folder *f, struct quant_make *m)
{
	const struct st_tensor *t = m->scales;
	const u64 rows = m->s->block_rows ?
			 DIV_ROUND_UP(m->rows, (u64)m->s->block_rows) : m->rows;
	const bool list = t->nr_dims == 1 && m->groups == 1 && t->shape[0] == rows;

	m->row_share = m->s->block_rows ? m->s->block_rows : 1;
	if (list)
		return 0;
	if (t->nr_elems == 1 && !m->s->per_row && !m->s->block_rows) {
		m->row_share = UINT64_MAX;
		return 0;
	}
	return check_shape(f, t, rows, m->groups);
}

static int zeros_by_row(struct quant_folder *f, struct quant_make *m)
{
	const struct st_tensor *zeros = part_of(f, ".weight_zero_point");
	const u64 per = 32 / m->s->bits;
	int ret;

	if (!m->s->zeros)
		return 0;
	if (!zeros)
		return need_part(f, ".weight_zero_point", &m->zeros);
	m->zeros = zeros;
	if (m->s->how == QUANT_PLAIN) {
		ret = check_type(f, zeros, zeros->dtype == ST_I8);
		if (!ret && zeros->nr_elems != m->scales->nr_elems)
			ret = folder_fail(f, zeros, "it has another shape than "
					  "the scales");
		return ret;
	}
	ret = check_type(f, zeros, zeros->dtype == ST_I32);
	return ret ? ret : check_shape(f, zeros, DIV_ROUND_UP(m->rows, per),
				       m->groups);
}

/* Scales and zero points of the others. */
static int parts_by_row(struct quant_folder *f, struct quant_make *m)
{
	int ret;

	m->scales = part_of(f, ".weight_scale_inv");
	ret = m->scales ? 0 : need_part(f, ".weight_scale", &m->scales);
	if (!ret)
		ret = scales_by_row(f, m);
	if (!ret)
		ret = zeros_by_row(f, m);
	m->g_idx = m->s->how == QUANT_PACKED ? part_of(f, ".weight_g_idx") : NULL;
	return ret;
}

static s32 group_at(const struct quant_make *m, u64 c)
{
	s32 g;

	memcpy(&g, (const u8 *)m->g_idx->data + c * 4, sizeof(g));
	return g;
}

/*
 * Check the list of groups.  It is dropped if columns are in order.  A negative number
 * says the same in compressed-tensors, whose lists begin with -1.
 */
static int check_groups(struct quant_folder *f, struct quant_make *m)
{
	const struct st_tensor *t = m->g_idx;
	bool ordered = true;
	u64 c;

	if (!t)
		return 0;
	if (t->dtype != ST_I32 || t->nr_elems != m->cols)
		return folder_fail(f, t, "it has not one group for each column");
	for (c = 0; c < m->cols; c++) {
		if (group_at(m, c) < 0 && m->s->how == QUANT_PACKED)
			break;
		if (group_at(m, c) < 0 || (u64)group_at(m, c) >= m->groups)
			return model_fail(f->err, -EINVAL, "%s: tensor "
					  MODEL_NAME_FMT ": column %llu is in "
					  "group %d, there are %llu: " AGAIN,
					  t->path, t->name, (unsigned long long)c,
					  group_at(m, c),
					  (unsigned long long)m->groups);
		ordered &= (u64)group_at(m, c) == c / (m->cols / m->groups);
	}
	if (ordered || c < m->cols)
		m->g_idx = NULL;
	return 0;
}

/* Are all groups of one size? */
static bool groups_are_even(const struct quant_make *m, u64 *at)
{
	const u64 size = m->cols / m->groups;
	u64 c, g;

	for (c = 0; c < m->cols; c++)
		at[group_at(m, c)]++;
	for (g = 0; g < m->groups; g++) {
		if (at[g] != size)
			return false;
		at[g] = g * size;
	}
	return true;
}

/*
 * Sort the columns by group, those of one group by number.  *@order stays NULL if groups
 * have different sizes.
 */
static int sort_columns(const struct quant_make *m, u32 **order)
{
	u64 *at = calloc(m->groups, sizeof(*at)), c;

	*order = NULL;
	if (!at)
		return -ENOMEM;
	if (groups_are_even(m, at)) {
		*order = malloc(m->cols * sizeof(**order));
		if (!*order) {
			free(at);
			return -ENOMEM;
		}
		for (c = 0; c < m->cols; c++)
			(*order)[at[group_at(m, c)]++] = c;
	}
	free(at);
	return 0;
}

/* Have all groups the zero point 128? */
static bool zeros_are_middle(const struct quant_make *m)
{
	const u64 rows = m->scales->nr_elems / m->groups;
	u64 row, g;

	for (row = 0; m->zeros && row < rows; row++)
		for (g = 0; g < m->groups; g++)
			if (quant_zero(m, m->row_share == 1 ? row :
				       row * min(m->row_share, m->rows), g) != 128)
				return false;
	return true;
}

/* The type with the largest blocks that have one scale each. */
static enum kern_dtype type_of(const struct quant_make *m)
{
	static const enum kern_dtype types[3][3] = {
		{ KERN_W4_128, KERN_W4_64, KERN_W4_32 },
		{ KERN_W8_128, KERN_W8_32, KERN_W8_32 },
		{ KERN_F8_128, KERN_F8_32, KERN_F8_32 },
	};
	const u64 share = m->s->group ? m->s->group : m->cols;
	const enum kern_dtype *t = types[m->s->is_float ? 2 : m->s->bits == 8];
	u32 i, n;

	for (i = 0; i < 3; i++) {
		n = kern_block_elems(t[i]);
		if (m->cols % n == 0 && share % n == 0)
			return t[i];
	}
	return KERN_F32;
}

/* Add the matrix of @part, which has been checked. */
static int add_matrix(struct quant_folder *f, const struct quant_make *part)
{
	const u64 shape[2] = { part->rows, part->cols };
	enum kern_dtype type = type_of(part);
	char name[2 * NAME_MAX_LEN];
	u32 *order = NULL;
	struct quant_make *m;

	if (part->g_idx && sort_columns(part, &order))
		return model_fail_errno(f->err, -ENOMEM, f->l.c->dir, "tensors");
	if (part->g_idx && !order)
		type = KERN_F32;
	if (!part->s->is_float && part->s->bits == 8 && !zeros_are_middle(part))
		type = KERN_F32;
	snprintf(name, sizeof(name), "%.*s.weight", (int)f->len, f->codes->name);
	m = quant_list_add(&f->l, name, type, shape, 2);
	if (!m) {
		free(order);
		return model_fail_errno(f->err, -ENOMEM, f->l.c->dir, "tensors");
	}
	if (type == KERN_F32) {
		free(order);
		order = NULL;
	}
	m->t->order = order;
	m->s = part->s;
	m->codes = part->codes;
	m->scales = part->scales;
	m->zeros = part->zeros;
	m->g_idx = part->g_idx;
	m->groups = part->groups;
	m->row_share = part->row_share;
	m->zero = part->zero;
	m->fill = quant_fill_codes;
	return 0;
}

/* Take the tensors of activations and KV; they are not used. */
static void take_others(struct quant_folder *f)
{
	static const char * const ends[] = {
		".input_scale", ".input_zero_point", ".output_scale",
		".output_zero_point", ".activation_scale", ".input_scale_ub",
	};
	u32 i;

	for (i = 0; i < ARRAY_SIZE(ends); i++)
		part_of(f, ends[i]);
}

static int codes_type(struct quant_folder *f, const struct quant_make *m)
{
	const enum st_dtype want = m->s->how != QUANT_PLAIN ? ST_I32 :
				   m->s->is_float ? ST_F8_E4M3 : ST_I8;

	if (m->codes->nr_dims != 2)
		return folder_fail(f, m->codes, "it is no matrix");
	return check_type(f, m->codes, m->codes->dtype == want);
}

/* The matrix of the codes f->codes. */
static int read_matrix(struct quant_folder *f, const struct quant_scheme *s)
{
	struct quant_make m = {
		.s = s, .codes = f->codes, .row_share = 1,
		.zero = 1u << (s->bits - 1),
	};
	int ret;

	part_of(f, f->codes->name + f->len);
	ret = codes_type(f, &m);
	if (!ret)
		ret = codes_sizes(f, &m);
	if (ret)
		return ret;
	m.groups = s->group ? DIV_ROUND_UP(m.cols, (u64)s->group) : 1;
	if (s->group && m.cols % s->group && !s->block_rows)
		return folder_fail(f, f->codes, "its columns are no multiple of "
				   "the group size");
	ret = s->how == QUANT_AWQ || s->how == QUANT_GPTQ ?
	      parts_by_group(f, &m) : parts_by_row(f, &m);
	if (!ret)
		ret = check_type(f, m.scales, is_number(m.scales));
	if (!ret)
		ret = check_groups(f, &m);
	if (ret)
		return ret;
	take_others(f);
	return add_matrix(f, &m);
}

/* ---- experts in MXFP4 ---- */

static int read_mxfp4(struct quant_folder *f, const struct quant_scheme *s)
{
	const struct st_tensor *t = f->codes, *scales;
	u64 shape[3];
	struct quant_make *m;
	char name[NAME_MAX_LEN];
	int ret;

	part_of(f, "_blocks");
	ret = need_part(f, "_scales", &scales);
	if (ret)
		return ret;
	if (t->dtype != ST_U8 || t->nr_dims != 4 || !t->nr_elems ||
	    t->shape[3] != 16 || scales->dtype != ST_U8 || scales->nr_dims != 3 ||
	    memcmp(t->shape, scales->shape, 3 * sizeof(*shape)))
		return folder_fail(f, t, "it is not bytes of [experts, rows, "
				   "groups, 16] with bytes of scales");
	memcpy(shape, t->shape, sizeof(shape));
	shape[2] *= 32;
	snprintf(name, sizeof(name), "%.*s", (int)f->len, t->name);
	m = quant_list_add(&f->l, name, KERN_MXFP4, shape, 3);
	if (!m)
		return model_fail_errno(f->err, -ENOMEM, f->l.c->dir, "tensors");
	m->s = s;
	m->codes = t;
	m->scales = scales;
	m->groups = t->shape[2];
	m->half = name_ends(name, ".gate_up_proj") ? t->shape[1] / 2 : 0;
	m->fill = quant_fill_mxfp4;
	if (m->half && t->shape[1] % 2)
		return folder_fail(f, t, "it has an odd number of rows");
	return 0;
}

/* ---- all of them ---- */

static const struct {
	enum quant_how	how;
	const char	*end;
} codes_of[] = {
	{ QUANT_AWQ,	".qweight" },
	{ QUANT_GPTQ,	".qweight" },
	{ QUANT_PACKED,	".weight_packed" },
	{ QUANT_PLAIN,	".weight" },
	{ QUANT_MXFP4,	"_blocks" },
};

/* The scheme of a tensor with codes; NULL: it is an ordinary tensor. */
static const struct quant_scheme *scheme_of(struct quant_folder *f,
					    const struct st_tensor *t)
{
	const bool plain = t->dtype == ST_I8 || t->dtype == ST_F8_E4M3;
	const struct quant_scheme *s;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(codes_of); i++) {
		if (!name_ends(t->name, codes_of[i].end) ||
		    (codes_of[i].how == QUANT_PLAIN && !plain))
			continue;
		f->codes = t;
		f->len = strlen(t->name) - strlen(codes_of[i].end);
		if (f->len >= NAME_MAX_LEN - 1)
			continue;
		s = quant_scheme_of(&f->q, codes_of[i].how, t->name, f->len);
		if (s)
			return s;
	}
	return NULL;
}

static int read_all(struct quant_folder *f)
{
	const struct ckpt *c = f->l.c;
	const struct quant_scheme *s;
	int ret = 0;
	u32 i;

	for (i = 0; i < c->nr_tensors && !ret; i++) {
		s = scheme_of(f, c->tensors[i]);
		if (f->q.f.ret)
			return f->q.f.ret;
		if (s)
			ret = s->how == QUANT_MXFP4 ? read_mxfp4(f, s) :
						      read_matrix(f, s);
	}
	return ret;
}

static int folder_make(struct quant_folder *f, struct ckpt *c,
		       const struct quantized_opts *o)
{
	int ret;

	ret = quant_list_open(&f->l, c);
	ret = ret ? model_fail_errno(f->err, ret, c->dir, "tensors") : read_all(f);
	if (!ret)
		ret = quant_list_run(&f->l, o, f->err);
	quant_list_close(&f->l);
	return ret;
}

int quantized_open(struct ckpt *c, const struct quantized_opts *o,
		   struct model_error *err)
{
	struct quant_folder f = { .err = err };
	int ret;

	ret = quant_config_open(&f.q, c->dir, err);
	if (!ret && f.q.there)
		ret = folder_make(&f, c, o);
	quant_config_close(&f.q);
	return ret;
}
