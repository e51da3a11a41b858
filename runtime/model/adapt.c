// SPDX-License-Identifier: Apache-2.0
/*
 * adapt.c - products of the adapters of a batch
 *
 * The rows of a batch are listed once, those of one adapter after those of another.  After
 * a product of the model, each adapter adds its own to its rows: one op for all adapters,
 * and for all products that share their input.  A row's sums depend on its own numbers
 * alone, so adapters change nothing about the bits of other rows.
 *
 * The op needs memory for a row of @rank sums for each row and product.  A call that needs
 * more than there is becomes several.
 */
#include "runtime/model/internal.h"

static u32 adapts_find(const struct model_work *w, const struct adapter_place *place)
{
	u32 i;

	for (i = 0; i < w->nr_adapts && w->adapts[i].place != place; i++)
		;
	return i;
}

/* List the adapters of the batch, with the number of rows of each. */
static void adapts_count(struct model_work *w, const struct model_seq_in *seqs, u32 nr_seqs)
{
	u32 i, at;

	w->nr_adapts = 0;
	for (i = 0; i < nr_seqs; i++) {
		if (!seqs[i].adapter)
			continue;
		at = adapts_find(w, seqs[i].adapter);
		if (at == w->nr_adapts)
			w->adapts[w->nr_adapts++] = (struct adapt_rows){
				.place = seqs[i].adapter };
		w->adapts[at].nr += seqs[i].nr_tokens;
	}
}

void adapts_pack(struct model *model, const struct model_seq_in *seqs, u32 nr_seqs)
{
	struct model_work *w = &model->work;
	struct adapt_rows *a;
	u32 i, j, row = 0, first = 0;

	if (!w->t_len)
		return;
	adapts_count(w, seqs, nr_seqs);
	for (i = 0; i < w->nr_adapts; i++) {
		w->adapts[i].rows = w->adapt_rows + first;
		first += w->adapts[i].nr;
		w->adapts[i].nr = 0;
	}
	for (i = 0; i < nr_seqs; i++) {
		if (seqs[i].adapter) {
			a = &w->adapts[adapts_find(w, seqs[i].adapter)];
			for (j = 0; j < seqs[i].nr_tokens; j++)
				a->rows[a->nr++] = row + j;
		}
		row += seqs[i].nr_tokens;
	}
}

/* The parts that are listed, as one op; then there are none. */
static void parts_run(struct model *model, struct kern_adapt *k)
{
	if (k->nr)
		model->ops->adapt(model->ctx, k);
	k->nr = 0;
	k->t_len = 0;
}

/* Add the product of one pair to @n rows of @y. */
static void parts_add(struct model *model, struct kern_adapt *k, const struct adapter_pair *pair,
		      const struct adapt_rows *rows, const struct adapt_out *out)
{
	struct model_work *w = &model->work;
	u32 at, n;

	for (at = 0; at < rows->nr; at += n) {
		n = min(rows->nr - at, (u32)((w->t_len - k->t_len) / pair->rank));
		if (!n || k->nr == w->max_adapt_parts) {
			parts_run(model, k);
			n = 0;
			continue;
		}
		w->adapt_parts[k->nr++] = (struct kern_adapt_part){
			.a = pair->a, .b = pair->b, .rank = pair->rank, .scale = pair->scale,
			.rows = rows->rows + at, .m = n, .outs = out->outs, .y = out->y,
		};
		k->t_len += (u64)n * pair->rank;
	}
}

void adapt(struct model *model, u32 layer, const float *x, u32 cols,
	   const struct adapt_out *out, u32 nr, u32 m)
{
	struct model_work *w = &model->work;
	struct kern_adapt k = {
		.x = x, .cols = cols, .parts = w->adapt_parts, .t = w->adapt_t,
		.dtype = adapter_dtype(model),
	};
	const struct adapter_pair *pair;
	u32 i, o;

	if (!w->nr_adapts || layer == ADAPT_NOWHERE)
		return;
	for (i = 0; i < w->nr_adapts; i++) {
		for (o = 0; o < nr; o++) {
			pair = w->adapts[i].place->pair + (u64)layer * NR_ADAPTER_SITES +
			       out[o].site;
			if (pair->rank)
				parts_add(model, &k, pair, &w->adapts[i], &out[o]);
		}
	}
	parts_run(model, &k);
	for (o = 0; in_bf16(model) && o < nr; o++)
		model->ops->settle(model->ctx, out[o].y, (u64)m * out[o].outs);
}
