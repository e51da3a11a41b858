// SPDX-License-Identifier: Apache-2.0
/*
 * cut.c - the parts of tensors that a rank has
 *
 * After all tensors of a checkpoint are checked, the parts of one rank take their places.
 * Then the checkpoint is that of a smaller model, and the rest of the loader needs to know
 * nothing about ranks.  A part is some rows, columns or experts of a tensor, in the order
 * and the type of the file.  If a part cannot keep its type, because it begins inside of a
 * block or because its columns have an order, it becomes numbers in f32.
 *
 * The walk is that of weights.c, by the tables of layout.c.
 */
#include <stdlib.h>
#include <sys/mman.h>

#include "runtime/model/error.h"
#include "runtime/model/layout.h"
#include "runtime/model/split.h"

#define MAX_SPANS	5u
#define COPY_ALIGN	64u

/* Rows or columns of a part, in the order of the file. */
struct spans {
	struct span	at[MAX_SPANS];
	u32		nr;
	u64		all;	/* those of the tensor */
};

/**
 * struct cut_part - a part of a tensor
 * @t:       in the place of the tensor, which is its @whole
 * @rows:    rows of the file; of all matrices one after the other
 * @cols:    columns of the file
 * @numbers: it becomes numbers
 */
struct cut_part {
	struct st_tensor	t;
	struct spans		rows;
	struct spans		cols;
	bool			numbers;
};

struct cut {
	struct ckpt			*c;
	const struct model_config	*whole;
	const struct model_config	*mine;
	bool				judge;
	struct cut_part			*parts;
	u32				nr;
	u8				*map;	/* of copies */
	u64				bytes;
};

static u64 spans_sum(const struct spans *s)
{
	u64 sum = 0;
	u32 i;

	for (i = 0; i < s->nr; i++)
		sum += s->at[i].nr;
	return sum;
}

static bool spans_whole(const struct spans *s)
{
	return s->nr == 1 && s->at[0].nr == s->all;
}

static void spans_add(struct spans *s, u64 first, u64 nr)
{
	s->at[s->nr++] = (struct span){ first, nr };
}

/* @all is the same number for each head. */
static void spans_heads(const struct cut *cut, u64 from, u64 all, bool kv, struct spans *s)
{
	const struct config_part *p = &cut->mine->part;
	const u64 each = all / (kv ? p->kv_heads : p->heads);

	spans_add(s, from + each * (kv ? p->first_kv_head : p->first_head),
		  each * (kv ? cut->mine->kv_heads : cut->mine->heads));
}

/* Rows of q, k and v of all heads. */
static void spans_qkv(const struct cut *cut, const struct weight_spec *spec,
		      struct spans *s)
{
	const u64 q = weight_dim(cut->whole, DIM_Q), kv = weight_dim(cut->whole, DIM_KV);

	if (spec->how != HOW_QKV) {
		spans_heads(cut, 0, s->all, false, s);
		return;
	}
	spans_heads(cut, 0, q, false, s);
	spans_heads(cut, q, kv, true, s);
	spans_heads(cut, q + kv, kv, true, s);
}

/* Heads of recurrent layers with @each numbers, from @from on. */
static void spans_state(const struct cut *cut, u64 from, u64 each, struct spans *s)
{
	spans_add(s, from + each * cut->mine->part.first_state_head,
		  each * cut->mine->state.heads);
}

/* Channels of the convolution: all heads, then B and then C of the groups. */
static void spans_conv(const struct cut *cut, u64 from, struct spans *s)
{
	const struct config_state *whole = &cut->whole->state;
	const u64 n = whole->d_state, inner = (u64)whole->heads * whole->head_dim;
	const u64 first = n * cut->mine->part.first_state_group;
	const u64 nr = n * cut->mine->state.groups;

	spans_state(cut, from, whole->head_dim, s);
	spans_add(s, from + inner + first, nr);
	spans_add(s, from + inner + n * whole->groups + first, nr);
}

/* Rows of z, of these channels, and of dt. */
static void spans_state_in(const struct cut *cut, struct spans *s)
{
	const u64 inner = weight_dim(cut->whole, DIM_INNER);

	spans_state(cut, 0, cut->whole->state.head_dim, s);
	spans_conv(cut, inner, s);
	spans_state(cut, inner + weight_dim(cut->whole, DIM_CONV), 1, s);
}

/* The share of a rank in a dimension. */
static struct spans spans_of(const struct cut *cut, const struct weight_spec *spec,
			     enum weight_dim dim)
{
	const struct config_part *p = &cut->mine->part;
	const bool each = cut->whole->qk_norm == QK_NORM_EACH;
	struct spans s = { .all = weight_dim(cut->whole, dim) };

	switch (dim) {
	case DIM_VOCAB:
		spans_add(&s, p->first_id, cut->mine->vocab);
		return s;
	case DIM_TWO_INTER:
		spans_add(&s, p->first_inter, cut->mine->inter);
		spans_add(&s, p->inter + p->first_inter, cut->mine->inter);
		return s;
	case DIM_INTER:
		spans_add(&s, p->first_inter, cut->mine->inter);
		return s;
	case DIM_SHARED:
		spans_add(&s, p->first_shared, cut->mine->moe.shared_inter);
		return s;
	case DIM_QKV:
		spans_qkv(cut, spec, &s);
		return s;
	case DIM_Q:
	case DIM_HEADS:
	case DIM_ATTN_OUT:
	case DIM_ABSORB:
	case DIM_KV_B:
		spans_heads(cut, 0, s.all, false, &s);
		return s;
	case DIM_KV:
		spans_heads(cut, 0, s.all, true, &s);
		return s;
	case DIM_STATE_HEADS:
		spans_state(cut, 0, 1, &s);
		return s;
	case DIM_INNER:
		spans_state(cut, 0, cut->whole->state.head_dim, &s);
		return s;
	case DIM_CONV:
		spans_conv(cut, 0, &s);
		return s;
	case DIM_STATE_IN:
		spans_state_in(cut, &s);
		return s;
	case DIM_STATE_NORM:
		if (!config_shares_group(cut->mine)) {
			spans_state(cut, 0, cut->whole->state.head_dim, &s);
			return s;
		}
		break;
	case DIM_Q_NORM:
	case DIM_K_NORM:
		if (each) {
			spans_heads(cut, 0, s.all, dim == DIM_K_NORM, &s);
			return s;
		}
		break;
	default:
		break;
	}
	spans_add(&s, 0, s.all);
	return s;
}

/* Of a tensor of all experts: the rows of the rank's experts. */
static void spans_experts(const struct cut *cut, u64 each, struct spans *s)
{
	const struct config_part *p = &cut->mine->part;

	*s = (struct spans){ .all = each * cut->whole->moe.experts };
	spans_add(s, each * p->first_expert, each * p->experts);
}

/* Can blocks be cut at these columns? */
static bool spans_fit(const struct spans *s, u32 elems)
{
	u32 i;

	for (i = 0; i < s->nr; i++)
		if (s->at[i].first % elems ||
		    (s->at[i].nr % elems && s->at[i].first + s->at[i].nr != s->all))
			return false;
	return true;
}

/* Does the part need a copy? */
static bool part_copies(const struct cut_part *part)
{
	return part->numbers || part->rows.nr > 1 || !spans_whole(&part->cols);
}

static u64 row_bytes(const struct cut_part *part, u64 cols)
{
	const struct st_tensor *t = part->t.whole;

	if (part->numbers)
		return cols * sizeof(float);
	if (t->dtype == ST_BLOCKS)
		return kern_row_bytes(t->blocks, cols);
	return cols * (t->nr_bytes / t->nr_elems);
}

/* Copy from @from, which has whole rows, to @to. */
static void part_copy(const struct cut_part *part, const u8 *from, u8 *to)
{
	const u64 ld = row_bytes(part, part->cols.all);
	const struct span *rows, *cols;
	u64 r, bytes;
	u32 i, j;

	for (i = 0; i < part->rows.nr; i++) {
		rows = &part->rows.at[i];
		for (r = rows->first; r < rows->first + rows->nr; r++) {
			for (j = 0; j < part->cols.nr; j++, to += bytes) {
				cols = &part->cols.at[j];
				bytes = row_bytes(part, cols->nr);
				memcpy(to, from + r * ld + row_bytes(part, cols->first),
				       bytes);
			}
		}
	}
}

static int part_numbers(const struct cut_part *part, u8 *to)
{
	float *all = malloc(part->t.whole->nr_elems * sizeof(*all));

	if (!all)
		return -ENOMEM;
	weight_numbers(part->t.whole, all);
	part_copy(part, (const u8 *)all, to);
	free(all);
	return 0;
}

/* The shape of the part: of matrices, or of vectors. */
static void part_shape(struct cut_part *part, u64 rows, u64 cols, u32 stack)
{
	struct st_tensor *t = &part->t;
	const u32 last = t->nr_dims - 1;

	t->nr_elems = rows * cols;
	t->nr_bytes = rows * row_bytes(part, cols);
	if (part->cols.all == 1) {	/* a vector, maybe of heads or of experts */
		t->shape[0] = last ? rows / t->shape[last] : rows;
		return;
	}
	if (stack > 1)
		t->shape[0] = rows / t->shape[1];
	else
		t->shape[0] = rows;
	t->shape[last] = cols;
}

/* Rows and columns of the file that the rank has. */
static void part_spans(const struct cut *cut, const struct weight_at *at,
		       struct cut_part *part)
{
	const bool turned = at->turned && !part->t.whole->straight;
	const struct weight_spec *s = at->spec;
	struct spans rows = spans_of(cut, s, s->rows);
	struct spans cols = { .all = 1, .nr = 1, .at = { { 0, 1 } } };

	if (at->cols)
		cols = spans_of(cut, s, s->cols);
	else if (s->how == HOW_TAPS)
		cols.all = cols.at[0].nr = cut->whole->state.conv;
	part->rows = turned ? cols : rows;
	part->cols = turned ? rows : cols;
	if (s->of == OF_EXPERTS)
		spans_experts(cut, at->cols ? part->rows.all : rows.all, &part->rows);
}

static int cut_tensor(void *arg, const struct weight_at *at)
{
	struct cut *cut = arg;
	struct cut_part *part = &cut->parts[cut->nr];
	const struct st_tensor *whole = ckpt_take(cut->c, at->name);
	u64 rows, cols;

	part->t = *whole;
	part->t.whole = whole;
	part_spans(cut, at, part);
	if (spans_whole(&part->rows) && spans_whole(&part->cols))
		return 0;
	part->numbers = whole->dtype == ST_BLOCKS && !spans_whole(&part->cols) &&
			(whole->order ||
			 !spans_fit(&part->cols, kern_block_elems(whole->blocks)));
	rows = spans_sum(&part->rows);
	cols = spans_sum(&part->cols);
	part_shape(part, rows, cols, at->spec->of == OF_EXPERTS ? 2 : 1);
	if (part->numbers) {
		part->t.dtype = ST_F32;
		part->t.order = NULL;
	}
	if (!part_copies(part)) {
		part->t.data = (const u8 *)whole->data +
			       part->rows.at[0].first * row_bytes(part, part->cols.all);
	} else {
		part->t.straight |= !at->turned;
		part->t.begin = cut->bytes;
		cut->bytes += ALIGN_UP(part->t.nr_bytes, (u64)COPY_ALIGN);
	}
	cut->nr++;
	return 0;
}

static int count_tensor(void *arg, const struct weight_at *at)
{
	(void)at;
	(*(u32 *)arg)++;
	return 0;
}

/* Make the copies, one tensor after the other. */
static int cut_copy(struct cut *cut)
{
	struct cut_part *part;
	int ret = 0;
	u32 i;
	u8 *to;

	cut->map = mmap(NULL, cut->bytes + 1, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (cut->map == MAP_FAILED) {
		cut->map = NULL;
		return -ENOMEM;
	}
	for (i = 0; i < cut->nr && !ret; i++) {
		part = &cut->parts[i];
		if (!part_copies(part))
			continue;
		to = cut->map + part->t.begin;
		if (part->numbers)
			ret = part_numbers(part, to);
		else
			part_copy(part, part->t.whole->data, to);
		part->t.data = to;
		ckpt_give_back(cut->c, part->t.whole);
	}
	return ret;
}

int cut_open(struct ckpt *c, const struct model_config *whole,
	     const struct model_config *mine, bool judge, struct cut **out,
	     struct model_error *err)
{
	const u32 prefix = weights_prefix(c, weight_names_of(whole->layout));
	struct cut *cut = calloc(1, sizeof(*cut));
	u32 i, nr = 0;

	if (!cut)
		return model_fail_errno(err, -ENOMEM, c->dir, "ranks");
	*cut = (struct cut){ .c = c, .whole = whole, .mine = mine, .judge = judge };
	*out = cut;
	weights_walk(whole, prefix, count_tensor, &nr);
	cut->parts = calloc(nr + 1, sizeof(*cut->parts));
	if (!cut->parts)
		return model_fail_errno(err, -ENOMEM, c->dir, "ranks");
	weights_walk(whole, prefix, cut_tensor, cut);
	if (!judge && cut_copy(cut))
		return model_fail(err, -ENOMEM, "%s: no memory for %llu MB of a rank's "
				  "columns: free memory, or use a smaller model", c->dir,
				  (unsigned long long)(cut->bytes >> 20));
	for (i = 0; i < cut->nr; i++)
		ckpt_replace(c, &cut->parts[i].t);
	/* The configurations belong to the caller's call. */
	cut->whole = cut->mine = NULL;
	return 0;
}

void cut_close(struct cut *cut)
{
	if (!cut)
		return;
	if (cut->map)
		munmap(cut->map, cut->bytes + 1);
	free(cut->parts);
	free(cut);
}

bool cut_each(const struct cut *cut, const struct st_tensor *t,
	      void (*add)(void *arg, const void *data, u64 bytes), void *arg)
{
	const struct cut_part *part;
	const struct span *rows, *cols;
	const u8 *row;
	u32 i, j;
	u64 r, ld;

	if (!cut || !cut->nr || t < &cut->parts[0].t || t > &cut->parts[cut->nr - 1].t)
		return false;
	part = container_of(t, struct cut_part, t);
	ld = part->t.whole->nr_bytes / part->rows.all;
	for (i = 0; i < part->rows.nr; i++) {
		rows = &part->rows.at[i];
		for (r = rows->first; r < rows->first + rows->nr; r++) {
			row = (const u8 *)part->t.whole->data + r * ld;
			for (j = 0; j < part->cols.nr && !part->numbers; j++) {
				cols = &part->cols.at[j];
				add(arg, row + row_bytes(part, cols->first),
				    row_bytes(part, cols->nr));
			}
			if (part->numbers)
				add(arg, row, ld);
		}
	}
	return true;
}
