// SPDX-License-Identifier: Apache-2.0
/*
 * groups.c - the layer groups of a model, as the daemon gets them
 *
 * The runtime's part of libkvmm's layer groups is here: their shapes, and the memory
 * that a sequence takes in each.  A model with one group has the block size that the
 * caller wants, and nothing else.
 */
#include "runtime/engine/internal.h"

#define GROUPS_DEF_BLOCK	16u
#define GROUPS_DEF_STATE	256u	/* tokens between two records */
#define GROUPS_HIT_STEPS	16u	/* a prefix hit is a multiple of so many blocks at most */

u32 engine_state_tokens(const struct engine_opts *o)
{
	return o->state_tokens ? o->state_tokens : GROUPS_DEF_STATE;
}

static struct kvmm_group state_group(const struct model_group *g, u32 tokens)
{
	return (struct kvmm_group){
		.layers = g->layers, .kv_heads = g->units,
		.k_bytes = g->unit_bytes, .kind = KVMM_GROUP_STATE,
		.block_tokens = tokens,
	};
}

/*
 * Tokens of a block of KV.  Beside records hits are multiples of the tokens of a record
 * anyway, and larger blocks hold its units with less padding.
 */
static u32 kv_tokens(const struct model_info *info, const struct engine_opts *o)
{
	u32 g;

	if (o->block_tokens)
		return o->block_tokens;
	for (g = 0; g < info->nr_groups; g++)
		if (info->group[g].units)
			return engine_state_tokens(o);
	return GROUPS_DEF_BLOCK;
}

int engine_groups(const struct model_info *info, const struct engine_opts *o,
		  struct kvmm_group *group)
{
	const u32 tokens = kv_tokens(info, o);
	u32 g;

	for (g = 0; g < info->nr_groups; g++) {
		if (info->group[g].units) {
			group[g] = state_group(&info->group[g],
					       engine_state_tokens(o));
			continue;
		}
		group[g] = (struct kvmm_group){
			.layers = info->group[g].layers,
			.kv_heads = info->nr_kv_heads,
			.k_bytes = info->k_bytes,
			.v_bytes = info->v_bytes,
			.scale_bytes = info->scale_bytes,
			.window = info->group[g].window,
			.block_tokens = tokens,
		};
	}
	if (info->nr_groups == 1)
		return (int)tokens;
	return kvmm_group_tokens(group, info->nr_groups, tokens,
				 min(tokens * GROUPS_HIT_STEPS,
				     (u32)KVMM_MAX_BLOCK_TOKENS));
}

u32 engine_table_entries(const struct kvmm_group *g, u64 block_bytes)
{
	return g->kind == KVMM_GROUP_STATE ? kvmm_state_blocks(g, block_bytes) : 1;
}

/*
 * A window and a step are in neighbouring positions, which begin anywhere in a block.  A
 * step writes the records of its positions, and reads the one before.
 */
u64 engine_group_blocks(const struct kvmm_group *g, u64 block_bytes, u32 step,
			u64 len)
{
	const u64 all = DIV_ROUND_UP(len, (u64)g->block_tokens);
	const u64 seen = (u64)g->window + step - 1;
	const u64 most = DIV_ROUND_UP((u64)step - 1, (u64)g->block_tokens) + 2;

	if (g->kind == KVMM_GROUP_STATE)
		return min(all, most) * engine_table_entries(g, block_bytes);
	if (!g->window)
		return all;
	return min(all, DIV_ROUND_UP(seen - 1, (u64)g->block_tokens) + 1);
}

u64 engine_seq_blocks(const struct kvmm_group *group, u32 nr, u64 block_bytes,
		      u32 step, u64 len)
{
	u64 blocks = 0;
	u32 g;

	for (g = 0; g < nr; g++)
		blocks += engine_group_blocks(&group[g], block_bytes, step, len);
	return blocks;
}
