// SPDX-License-Identifier: Apache-2.0
/*
 * split.c - the part of a model that a rank has
 *
 * Heads, the width of MLPs, experts and the vocabulary are shared out among ranks.  So a
 * rank's part is a smaller model with the same layers, and the rest of the loader and the
 * decoder see only its configuration.  The residual stream is whole in each rank, and so
 * are norms, routers, latent vectors and learned positions.
 *
 *	q, k, v, gate, up	rows: the heads, or the columns of the MLP, of a rank
 *	o, down			columns; the ranks' sums are added (exchange.c)
 *	embedding, head		rows: tokens of the vocabulary
 *	experts			whole experts
 *
 * With more ranks than KV heads, neighbouring ranks have the same KV head, and each writes
 * its KV to its own blocks.  Likewise B and C of recurrent layers are in all ranks that share
 * a group of heads.
 *
 * Bits.  Exact kernels sum columns in parts of SPLIT_PART, and add the parts in order.  A
 * rank gives away the sums of its parts one by one, and they are added in the order that
 * one rank would have.  So the bits are those of one rank if shares begin at such parts.
 * If they do not, the sums are still added in a fixed order.
 */
#include "runtime/model/error.h"
#include "runtime/model/split.h"
#include "runtime/model/weights.h"

static int refuse_ranks(const char *dir, u32 nr, const char *what, u64 has,
			struct model_error *err)
{
	return model_fail(err, -EINVAL, "%s: %u ranks cannot share %llu %s: choose a "
			  "--tensor-parallel that divides them", dir, nr,
			  (unsigned long long)has, what);
}

static int check_heads(const struct model_config *cfg, u32 nr, const char *dir,
		       struct model_error *err)
{
	if (cfg->heads % nr)
		return refuse_ranks(dir, nr, "attention heads", cfg->heads, err);
	if (cfg->kv_heads % nr && nr % cfg->kv_heads)
		return refuse_ranks(dir, nr, "KV heads", cfg->kv_heads, err);
	if (cfg->state.heads % nr)
		return refuse_ranks(dir, nr, "heads of recurrent layers",
				    cfg->state.heads, err);
	if (cfg->state.layers && cfg->state.groups % nr && nr % cfg->state.groups)
		return refuse_ranks(dir, nr, "groups of heads of recurrent layers",
				    cfg->state.groups, err);
	return 0;
}

static int check_sizes(const struct model_config *cfg, u32 nr, const char *dir,
		       struct model_error *err)
{
	const struct moe_config *moe = &cfg->moe;
	const u64 least = min(cfg->vocab, cfg->inter);

	if (least < nr)
		return refuse_ranks(dir, nr, "columns of its MLP or ids of its vocabulary",
				    least, err);
	if (moe->experts && moe->experts < nr)
		return refuse_ranks(dir, nr, "experts", moe->experts, err);
	if (moe->shared_inter && moe->shared_inter < nr)
		return refuse_ranks(dir, nr, "columns of its shared expert",
				    moe->shared_inter, err);
	return 0;
}

/* Shares of columns begin at multiples of it; 256 suits all types of blocks. */
static u64 unit_of(u64 all, u32 nr, bool exact)
{
	static const u32 units[] = { SPLIT_PART, 256, 32 };
	u32 i;

	for (i = exact ? 0 : 1; i < ARRAY_SIZE(units); i++)
		if (all >= (u64)units[i] * nr)
			return units[i];
	return 1;
}

static struct span columns_of(u64 all, const struct model_link *l, bool exact)
{
	return split_span(all, unit_of(all, l->nr, exact), l->rank, l->nr);
}

static void split_sizes(struct model_config *cfg, const struct model_link *l, bool exact)
{
	struct config_part *p = &cfg->part;
	struct moe_config *moe = &cfg->moe;
	struct span s;

	s = columns_of(cfg->inter, l, exact);
	p->first_inter = s.first;
	cfg->inter = s.nr;
	s = split_ids(p, l->rank);
	p->first_id = s.first;
	cfg->vocab = s.nr;
	if (moe->experts) {
		s = split_span(moe->experts, 1, l->rank, l->nr);
		p->first_expert = s.first;
		p->experts = s.nr;
	}
	if (moe->shared_inter) {
		s = columns_of(moe->shared_inter, l, exact);
		p->first_shared = s.first;
		moe->shared_inter = s.nr;
	}
}

/* The most parts of a matrix that ranks share by columns. */
static u32 most_parts(const struct model_config *cfg)
{
	const u64 inner = (u64)cfg->state.heads * cfg->state.head_dim;
	const u64 most = max(max(config_attn_out(cfg), inner),
			     max((u64)cfg->inter, (u64)cfg->moe.shared_inter));

	return DIV_ROUND_UP(most, SPLIT_PART);
}

int split_config(struct model_config *cfg, const struct model_link *l, bool exact,
		 const char *dir, struct model_error *err)
{
	struct config_part *p = &cfg->part;
	int ret;

	ret = check_heads(cfg, l->nr, dir, err);
	if (!ret)
		ret = check_sizes(cfg, l->nr, dir, err);
	if (ret)
		return ret;
	*p = (struct config_part){
		.rank = l->rank, .nr = l->nr, .heads = cfg->heads,
		.kv_heads = cfg->kv_heads, .vocab = cfg->vocab, .inter = cfg->inter,
		.shared_inter = cfg->moe.shared_inter, .max_parts = exact ? most_parts(cfg) : 1,
		.first_head = cfg->heads / l->nr * l->rank,
		.first_kv_head = cfg->kv_heads * l->rank / l->nr,
		.state_heads = cfg->state.heads, .state_groups = cfg->state.groups,
		.first_state_head = cfg->state.heads / l->nr * l->rank,
		.first_state_group = cfg->state.groups * l->rank / l->nr,
	};
	split_sizes(cfg, l, exact);
	cfg->state.heads /= l->nr;
	if (cfg->state.layers)
		cfg->state.groups = max(cfg->state.groups / l->nr, 1u);
	cfg->heads /= l->nr;
	cfg->kv_heads = max(cfg->kv_heads / l->nr, 1u);
	return 0;
}

/* Do shares of @all columns begin at parts, in exact mode? */
static bool is_aligned(u64 all, u32 nr)
{
	return !all || all >= (u64)SPLIT_PART * nr;
}

bool split_same_bits(const struct model_config *cfg)
{
	const struct config_part *p = &cfg->part;
	const u64 inner = (u64)cfg->state.heads * cfg->state.head_dim;

	return !p->nr || (!(config_attn_out(cfg) % SPLIT_PART) && !(inner % SPLIT_PART) &&
			  is_aligned(p->inter, p->nr) && is_aligned(p->shared_inter, p->nr));
}

/* Copy the columns of one part of all rows. */
static void part_copy(const struct kern_weight *m, u64 first, u64 cols, u8 *to)
{
	const u64 ld = kern_row_bytes(m->dtype, m->cols);
	const u64 bytes = kern_row_bytes(m->dtype, cols);
	const u8 *from = (const u8 *)m->data + kern_row_bytes(m->dtype, first);
	u64 r;

	for (r = 0; r < m->rows; r++)
		memcpy(to + r * bytes, from + r * ld, bytes);
}

static int sort_matrix(struct model_weights *w, struct kern_weight *m)
{
	const u64 bytes = m->rows * kern_row_bytes(m->dtype, m->cols);
	u64 first, cols;
	u8 *copy;

	if (m->cols <= SPLIT_PART)
		return 0;
	copy = weights_own(w, bytes);
	if (!copy)
		return -ENOMEM;
	for (first = 0; first < m->cols; first += cols) {
		cols = min((u64)SPLIT_PART, m->cols - first);
		part_copy(m, first, cols,
			  copy + m->rows * kern_row_bytes(m->dtype, first));
	}
	if (weights_owned_free(w, m->data))
		w->owned_bytes -= bytes;
	else
		ckpt_drop_range(m->data, bytes);	/* a copy that cut.c has made */
	m->data = copy;
	return 0;
}

int split_sort(struct model_weights *w, const struct model_config *cfg)
{
	struct model_layer *l;
	int ret = 0;
	u32 i;

	for (i = 0; i < cfg->layers && !ret; i++) {
		l = &w->layers[i];
		ret = sort_matrix(w, &l->o);
		if (!ret && l->mlp.down.data)
			ret = sort_matrix(w, &l->mlp.down);
		if (!ret && l->shared.down.data)
			ret = sort_matrix(w, &l->shared.down);
	}
	return ret;
}
