// SPDX-License-Identifier: Apache-2.0
/*
 * recurrent.c - a recurrent layer (Mamba-2)
 *
 * One projection gives the gate z, the inputs x, B and C of the convolution, and a time
 * step dt for each head.  The kernels keep the state: conv the last inputs, scan the state
 * of each head.  Then the result is gated, normalised over each group of heads, and
 * projected back.
 *
 * With bf16 arithmetic nothing is rounded from the scan to the norm, as in the programs
 * that trained the models: only the norm's result is.
 */
#include "runtime/model/internal.h"

/* scanned = norm(scanned * silu(z)), over each group of heads */
static void gate_and_norm(struct model *model, const float *w, u32 m)
{
	const struct config_state *s = &model->cfg.state;
	const struct kern_gated_norm n = {
		.x = model->work.scanned, .z = model->work.z, .w = w,
		.y = model->work.scanned, .m = m, .d = s->heads * s->head_dim,
		.groups = s->groups, .eps = model->cfg.norm_eps,
	};

	settles(model, true);
	if (config_shares_group(&model->cfg))
		exchange_gated_norm(model, &n);
	else
		model->ops->gated_norm(model->ctx, &n);
	settle(model, n.y, (u64)m * n.d);
}

void layer_recurrent(struct model *model, const struct layer_kv *lkv, u32 layer,
		     u32 m)
{
	const struct model_layer *l = &model->w.layers[layer];
	struct kern_state state = config_states(&model->cfg);
	struct model_work *w = &model->work;

	state.base = lkv->kv->base;
	state.unit = lkv->kv->unit;
	state.block_bytes = lkv->kv->layer_stride;
	state.tokens = lkv->kv->block_tokens;
	state.group = lkv->kv->group;
	project_many(model, w->h, (struct kern_gemm_out[]){
		{ &l->z, NULL, w->z, 0 },
		{ &l->xbc, NULL, w->xbc, 0 },
		{ &l->dt, NULL, w->dt, 0 },
	}, 3, m);
	model->ops->conv(model->ctx, &(struct kern_conv){
		.state = &state, .layer = lkv->at, .nr_seqs = lkv->nr_seqs,
		.seqs = lkv->seqs, .x = w->xbc, .w = l->conv,
		.bias = l->conv_bias, .y = w->conv,
	});
	settle(model, w->conv, (u64)m * kern_state_channels(&state));
	settles(model, false);
	model->ops->scan(model->ctx, &(struct kern_scan){
		.state = &state, .layer = lkv->at, .nr_seqs = lkv->nr_seqs,
		.seqs = lkv->seqs, .x = w->conv, .dt = w->dt,
		.dt_bias = l->dt_bias, .a_log = l->a_log, .d = l->skip,
		.y = w->scanned,
	});
	gate_and_norm(model, l->state_norm, m);
	project_sum(model, w->scanned, &l->o, NULL, m, w->side);
}
