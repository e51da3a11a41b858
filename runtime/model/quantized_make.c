// SPDX-License-Identifier: Apache-2.0
/*
 * quantized_make.c - quantize a folder while loading it
 *
 * Matrices of layers get the chosen type, the embedding and the output matrix q8_0.  A
 * type with blocks that do not divide a row gives way to one with shorter blocks.
 * Routers, positions, and matrices that are sorted by head stay as they are, and so do
 * vectors.  Matrices that files store with rows and columns exchanged, or with gate and
 * up in turn, become the decoder's on the way.
 */
#include <math.h>

#include "kernels/quantize.h"
#include "runtime/model/layout.h"
#include "runtime/model/quantized_internal.h"

/* State of a walk. */
struct quant_maker {
	struct quant_list		l;
	struct ckpt			*c;
	const struct model_config	*cfg;
	enum model_quantization		to;
	struct model_error		*err;
};

/* Rows of a file that has them as columns, @turned in each matrix. */
static void read_turned(const struct quant_make *m, u64 row, u32 nr, float *to)
{
	u64 from, first, c;
	u32 i;

	for (c = 0; c < m->cols; c++) {
		for (i = 0; i < nr; i++) {
			from = quant_source_row(m, row + i);
			first = from / m->turned * m->turned * m->cols +
				from % m->turned;
			to[i * m->cols + c] = st_number(m->codes, first +
							c * m->turned);
		}
	}
}

static void read_rows(const struct quant_make *m, u64 row, u32 nr, float *to)
{
	u64 from, c;
	u32 i;

	if (m->turned) {
		read_turned(m, row, nr, to);
		return;
	}
	for (i = 0; i < nr; i++, to += m->cols) {
		from = quant_source_row(m, row + i) * m->cols;
		for (c = 0; c < m->cols; c++)
			to[c] = st_number(m->codes, from + c);
	}
}

static bool fill_rows(const struct quant_make *m, u64 row, u32 nr, void *room)
{
	const enum kern_dtype type = m->t->blocks;
	const float *numbers = room;
	bool good = true;
	u64 i;

	read_rows(m, row, nr, room);
	for (i = 0; i < nr * m->cols; i++)
		good &= fabsf(numbers[i]) <= QUANT_MOST;
	if (good)
		kern_quantize(type, numbers, nr * m->cols, (u8 *)m->t->data +
			      row * kern_row_bytes(type, m->cols));
	return good;
}

/* The type with the longest blocks that divide a row, or NR_KERN_DTYPES. */
static enum kern_dtype type_for(enum model_quantization to, bool layer, u64 cols)
{
	static const enum kern_dtype types[][2] = {
		[MODEL_QUANT_Q8_0]	= { KERN_Q8_0, KERN_Q8_0 },
		[MODEL_QUANT_Q4_K]	= { KERN_Q4_K, KERN_Q8_0 },
		[MODEL_QUANT_FP8]	= { KERN_F8_128, KERN_F8_32 },
		[MODEL_QUANT_INT8]	= { KERN_W8_128, KERN_W8_32 },
	};
	const enum kern_dtype *t = types[layer ? to : MODEL_QUANT_Q8_0];
	u32 i;

	for (i = 0; i < 2; i++)
		if (cols % kern_block_elems(t[i]) == 0)
			return t[i];
	return NR_KERN_DTYPES;
}

/* Is it a matrix that products read, or the embedding? */
static bool is_wanted(const struct weight_at *at)
{
	if (!at->cols || at->spec->how == HOW_F32 || at->spec->how == HOW_KV_B)
		return false;
	return at->layer != WEIGHT_TOP ||
	       at->spec->offset != offsetof(struct model_weights, pos);
}

/* Does the file have the shape of the walk?  Others are the binder's to refuse. */
static bool fits(const struct weight_at *at, const struct st_tensor *t)
{
	const u32 nr = at->spec->of == OF_EXPERTS ? 3 : 2;
	const u64 rows = at->turned ? at->cols : at->rows;

	return (t->dtype == ST_BF16 || t->dtype == ST_F16 ||
		t->dtype == ST_F32) && t->nr_dims == nr && t->nr_elems &&
	       (nr == 2 || t->shape[0] == at->stack) &&
	       t->shape[nr - 2] == rows &&
	       t->shape[nr - 1] == (at->turned ? at->rows : at->cols);
}

/*
 * The second copy of a tied matrix would no longer be equal to the first one.  It is
 * left out if it is equal now.
 */
static void drop_tied_copy(struct quant_maker *k, const struct st_tensor *embed)
{
	const char *head = weight_names_of(k->cfg->layout)->head;
	u32 i;

	for (i = 0; k->cfg->tied && i < k->c->nr_tensors; i++) {
		const struct st_tensor *t = k->c->tensors[i];

		if (!strcmp(t->name, head) && t->dtype == embed->dtype &&
		    t->nr_bytes == embed->nr_bytes &&
		    !memcmp(t->data, embed->data, t->nr_bytes))
			k->l.gone[i] = true;
	}
}

static int make_tensor(void *arg, const struct weight_at *at)
{
	const u64 shape[3] = { at->stack, at->rows, at->cols };
	const bool stacked = at->spec->of == OF_EXPERTS;
	struct quant_maker *k = arg;
	const struct st_tensor *t;
	enum kern_dtype type;
	struct quant_make *m;

	if (!is_wanted(at) || !ckpt_has(k->c, at->name))
		return 0;
	t = ckpt_take(k->c, at->name);
	type = type_for(k->to, at->layer != WEIGHT_TOP, at->cols);
	if (!fits(at, t) || type == NR_KERN_DTYPES)
		return 0;
	quant_list_take(&k->l, at->name);
	m = quant_list_add(&k->l, at->name, type, stacked ? shape : shape + 1,
			   stacked ? 3 : 2);
	if (!m)
		return model_fail_errno(k->err, -ENOMEM, k->c->dir, "tensors");
	m->codes = t;
	m->turned = at->turned ? at->rows : 0;
	m->half = at->spec->how == HOW_PAIRS ? at->rows / 2 : 0;
	m->fill = fill_rows;
	if (at->layer == WEIGHT_TOP &&
	    at->spec->offset == offsetof(struct model_weights, embed))
		drop_tied_copy(k, t);
	return 0;
}

int quantized_make(struct ckpt *c, const struct model_config *cfg,
		   enum model_quantization to, const struct quantized_opts *o,
		   struct model_error *err)
{
	struct quant_maker k = { .c = c, .cfg = cfg, .to = to, .err = err };
	const u32 prefix = weights_prefix(c, weight_names_of(cfg->layout));
	int ret;

	if (c->nr_made)
		return model_fail(err, -EINVAL, "%s: the weights are quantized "
				  "already: leave out --quantization", c->dir);
	ret = quant_list_open(&k.l, c);
	ret = ret ? model_fail_errno(err, ret, c->dir, "tensors") :
		    weights_walk(cfg, prefix, make_tensor, &k);
	if (!ret) {
		memset(c->used, 0, c->nr_tensors * sizeof(*c->used));
		ret = quant_list_run(&k.l, o, err);
	}
	quant_list_close(&k.l);
	return ret;
}
