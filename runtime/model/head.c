// SPDX-License-Identifier: Apache-2.0
/*
 * head.c - from the last layer to logits, and from logits to tokens
 *
 * The wanted rows go through the last norm and the head.  On a CPU they are
 * written where the caller wants them.  On a device they stay in its memory, as
 * many at once as there is room for.  Tokens are drawn from a row there, or the
 * row is copied to the host, or both.  A row of logits is half a megabyte, and
 * a token is only an id.
 *
 * Draws and copies are queued after the head, or after the graph with the head,
 * and are complete when the step has been waited for.
 */
#include "runtime/model/internal.h"

bool head_check(const struct model *model, const struct model_draws *d,
		u32 wanted)
{
	u32 i, row = 0;

	if (!model->info.draws)
		return false;
	for (i = 0; i < d->nr; i++) {
		if (d->draws[i].row < row || d->draws[i].row >= wanted ||
		    d->draws[i].nr_top > d->top_stride)
			return false;
		row = d->draws[i].row;
	}
	return true;
}

/* Make the input of the output matrix, for @m rows; returns its place. */
static const float *head_input(struct model *model, const u32 *rows, u32 m)
{
	const u32 hidden = model->cfg.hidden;
	struct model_work *w = &model->work;

	model->ops->gather(model->ctx, w->x, rows, m, hidden, w->h);
	if (!model->cfg.no_final_norm)
		normalise(model, w->h, model->w.norm, model->w.norm_bias, m,
			  hidden, w->h);
	if (!model->w.project_out.data)
		return w->h;
	project(model, w->h, &model->w.project_out, NULL, m, w->side);
	return w->side;
}

/* Logits of @m rows, for the ids that this process has. */
static void head_fill(struct model *model, const float *x, u32 m, float *logits)
{
	model->ops->gemm(model->ctx, x, 0, &model->w.head, model->w.head_bias,
			 m, logits, 0);
	if (model->cfg.logits_scale != 1.0f)
		model->ops->scale(model->ctx, logits, model->cfg.logits_scale,
				  (u64)m * model->cfg.vocab);
	if (model->cfg.final_cap)
		model->ops->softcap(model->ctx, logits, model->cfg.final_cap,
				    (u64)m * model->cfg.vocab);
}

/* Compute the logits of @m rows. */
static void head_piece(struct model *model, const u32 *rows, u32 m,
		       float *logits)
{
	const float *x = head_input(model, rows, m);

	settles(model, false);
	if (model->link)
		exchange_logits(model, x, m, logits, head_fill);
	else
		head_fill(model, x, m, logits);
	settles(model, true);
}

/* Draw from those of the rows @at to @end, in w->logits, that have draws. */
static void head_draw(struct model *model, const struct model_draws *d, u32 at,
		      u32 end)
{
	u32 from = 0, to;

	while (from < d->nr && d->draws[from].row < at)
		from++;
	for (to = from; to < d->nr && d->draws[to].row < end; to++)
		;
	model->ops->sample(model->ctx, &(struct kern_sample){
		.logits = model->work.logits, .vocab = model->cfg.vocab,
		.first_row = at, .draws = d->draws + from, .nr = to - from,
		.drawn = d->drawn + from, .top_stride = d->top_stride,
		.top = d->top + (u64)from * d->top_stride,
	});
}

/* Copy the rows that the host wants, neighbours in one copy. */
static void head_fetch(struct model *model, const struct head_out *out, u32 at,
		       u32 end)
{
	const u8 *travels = out->draws ? out->draws->travels : NULL;
	const u64 vocab = model->cfg.vocab;
	u32 i, n;

	for (i = at; i < end; i += n) {
		const bool wanted = !travels || travels[i];

		for (n = 1; i + n < end && travels &&
		     !travels[i + n] == !wanted; n++)
			;
		if (!travels)
			n = end - at;
		if (wanted)
			model->ops->mem_fetch(model->ctx,
					      out->logits + i * vocab,
					      model->work.logits +
					      (i - at) * vocab,
					      n * vocab * sizeof(float));
	}
}

void head_take(struct model *model, const struct head_out *out, u32 at, u32 n)
{
	if (out->draws && out->draws->nr)
		head_draw(model, out->draws, at, at + n);
	head_fetch(model, out, at, at + n);
}

void head_logits(struct model *model, const struct kern_rows *rows, u32 wanted,
		 const struct head_out *out)
{
	struct model_work *w = &model->work;
	u32 at, n;

	if (!wanted)
		return;
	if (!w->max_logits) {
		head_piece(model, rows->wanted, wanted, out->logits);
		return;
	}
	if (rows->recorded) {
		head_piece(model, rows->wanted, rows->nr_wanted, w->logits);
		return;
	}
	for (at = 0; at < wanted; at += n) {
		n = min(wanted - at, w->max_logits);
		head_piece(model, rows->wanted + at, n, w->logits);
		head_take(model, out, at, n);
	}
}
