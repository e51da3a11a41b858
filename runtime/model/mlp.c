// SPDX-License-Identifier: Apache-2.0
/*
 * mlp.c - an MLP of a layer, or of experts that all rows have
 *
 * The gate, if there is one, is the activation of one projection times another.  The
 * workspace has room for the widest one.
 */
#include "runtime/model/internal.h"

void mlp_activate(struct model *model, u32 m, u32 width, float alpha)
{
	const struct model_config *cfg = &model->cfg;
	struct model_work *w = &model->work;

	if (alpha)
		model->ops->swiglu(model->ctx, w->gate, w->up, 0, m, width,
				   alpha, cfg->moe.limit, w->gate);
	else if (cfg->gated && cfg->act == KERN_SILU)
		model->ops->silu_mul(model->ctx, w->gate, w->up, 0, m, width,
				     w->gate);
	else if (cfg->gated)
		model->ops->act(model->ctx, cfg->act, w->gate, w->up, 0, m,
				width, w->gate);
	else
		model->ops->act(model->ctx, cfg->act, w->up, NULL, 0, m, width,
				w->gate);
	settle(model, w->gate, (u64)m * width);
}

void mlp_run(struct model *model, u32 layer, const struct model_mlp *mlp, u32 width,
	     float alpha, const float *x, u32 m, float *y)
{
	const bool gated = model->cfg.gated || alpha;
	struct model_work *w = &model->work;
	const u32 hidden = model->cfg.hidden;

	if (gated)
		project_many(model, x, (struct kern_gemm_out[]){
			{ &mlp->gate, mlp->gate_bias, w->gate, 0 },
			{ &mlp->up, mlp->up_bias, w->up, 0 },
		}, 2, m);
	else
		project(model, x, &mlp->up, mlp->up_bias, m, w->up);
	adapt(model, layer, x, hidden, (struct adapt_out[]){
		{ ADAPTER_UP, w->up, width },
		{ ADAPTER_GATE, w->gate, width },
	}, gated ? 2 : 1, m);
	mlp_activate(model, m, width, alpha);
	project_sum(model, w->gate, &mlp->down, mlp->down_bias, m, y);
	adapt(model, layer, w->gate, width,
	      &(struct adapt_out){ ADAPTER_DOWN, y, hidden }, 1, m);
}
