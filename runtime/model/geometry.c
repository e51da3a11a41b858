// SPDX-License-Identifier: Apache-2.0
/*
 * geometry.c - where the blocks have their elements, and copies of blocks
 *
 * The shape of K and V, or of states, comes from the model; the places come from the
 * caller, with every call.
 */
#include "runtime/model/internal.h"

static struct kern_kv geometry(const struct model *model,
			       const struct model_kv *kv, u32 group)
{
	return (struct kern_kv){
		.base = kv->base,
		.unit = kv->unit,
		.layer_stride = kv->layer_stride[group],
		.block_tokens = kv->block_tokens[group],
		.nr_layers = model->info.group[group].layers,
		.group = group,
		.kv_heads = model->cfg.kv_heads,
		.head_dim = config_kv_dim(&model->cfg),
		.rank = model->cfg.latent.rank,
		.dtype = model->kv_type,
	};
}

struct kern_state state_geometry(const struct model *model,
				 const struct model_kv *kv)
{
	struct kern_state s = config_states(&model->cfg);

	s.base = kv->base;
	s.unit = kv->unit;
	s.block_bytes = kv->block_bytes;
	/* It is the last group. */
	s.group = model->info.nr_groups - 1;
	s.tokens = kv->block_tokens[s.group];
	return s;
}

bool geometries(const struct model *model, const struct model_kv *kv,
		struct kern_kv *g)
{
	struct kern_state s;
	u32 i;

	for (i = 0; i < model->info.nr_groups; i++) {
		if (model->info.group[i].units) {
			s = state_geometry(model, kv);
			if (kern_state_check(&s))
				return false;
			g[i] = kern_state_kv(&s);
			continue;
		}
		g[i] = geometry(model, kv, i);
		if (kern_kv_check(&g[i]))
			return false;
	}
	return true;
}

/*
 * A block of states as one of K and V that has the same bytes: a layer for each unit of
 * state, and one token.
 */
static struct kern_kv block_geometry(const struct model *model,
				     const struct model_kv *kv)
{
	const struct kern_state s = state_geometry(model, kv);
	const u64 stride = kern_state_stride(&s);

	return (struct kern_kv){
		.base = kv->base, .unit = kv->unit, .layer_stride = stride,
		.block_tokens = 1, .nr_layers = kern_state_per(&s),
		.group = s.group, .kv_heads = 1, .dtype = KERN_F32,
		.head_dim = (u32)(stride / 2 / sizeof(float)),
	};
}

void model_copy_blocks(struct model *model, const struct model_kv *kv,
		       u32 group, const u32 *from, const u32 *to,
		       const u32 *tokens, u32 nr)
{
	const bool whole = model->info.group[group].units;
	const struct kern_kv g = whole ? block_geometry(model, kv) :
					 geometry(model, kv, group);
	struct kern_kv_copy copies[64];
	u32 done, i, n;

	if (model_is_null(model))
		return;
	for (done = 0; done < nr; done += n) {
		n = min(nr - done, (u32)ARRAY_SIZE(copies));
		for (i = 0; i < n; i++)
			copies[i] = (struct kern_kv_copy){
				.from = from[done + i],
				.to = to[done + i],
				.tokens = whole ? 1 : tokens[done + i],
			};
		model->ops->kv_copy(model->ctx, &g, copies, n);
	}
	/* A failure is kept, so the next step reports it, too. */
	if (model_on_device(model))
		(void)model->ops->wait(model->ctx);
}
