// SPDX-License-Identifier: Apache-2.0
/*
 * config_latent.c - keys of attention with latent vectors
 *
 * A token has one latent vector, of which the heads' keys and values are made, and
 * one rotated part of all keys.  So the KV of a token is that of one head.
 */
#include <math.h>

#include "runtime/model/config_read.h"

/* Every file of these models was trained with it, whatever rms_norm_eps says. */
#define LATENT_EPS	1e-6f

#define LATENT_MAX_DIM	1024u
#define LATENT_MAX_Q	(1u << 16)

/* A size in dimensions, which kernels take by KERN_DIM_ALIGN. */
static void latent_read_dim(struct mj_file *f, const char *key, u32 most,
			    u32 *dim)
{
	mj_need_u32(f, f->root, key, 1, LATENT_MAX_Q, dim);
	if (!f->ret && (*dim % KERN_DIM_ALIGN || *dim > most))
		mj_fail(f, -EOPNOTSUPP, key, "%u is not supported: use a model "
			"with a multiple of %u, at most %u", *dim,
			KERN_DIM_ALIGN, most);
}

/* A key that other keys imply; it may be missing. */
static void latent_check(struct mj_file *f, const char *key, u32 want,
			 const char *because)
{
	u32 has = want;

	mj_u32(f, f->root, key, 1, LATENT_MAX_Q, &has);
	if (!f->ret && has != want)
		mj_fail(f, -EINVAL, key, "%u is not %s, %u: correct it", has,
			because, want);
}

void config_read_latent(struct mj_file *f, struct model_config *cfg)
{
	struct latent_config *l = &cfg->latent;

	latent_read_dim(f, "kv_lora_rank", KERN_MAX_RANK, &l->rank);
	latent_read_dim(f, "qk_rope_head_dim", KERN_MAX_LATENT_DIM -
			KERN_MAX_RANK, &l->rope);
	latent_read_dim(f, "qk_nope_head_dim", LATENT_MAX_DIM, &l->nope);
	latent_read_dim(f, "v_head_dim", LATENT_MAX_DIM, &l->value);
	mj_u32(f, f->root, "q_lora_rank", 1, LATENT_MAX_Q, &l->q_rank);
	l->eps = LATENT_EPS;
	cfg->head_dim = l->nope + l->rope;
	latent_check(f, "head_dim", l->rope, "qk_rope_head_dim");
	latent_check(f, "qk_head_dim", cfg->head_dim, "qk_nope_head_dim and "
		     "qk_rope_head_dim together");
	if (!f->ret && cfg->kv_heads != cfg->heads)
		mj_fail(f, -EINVAL, "num_key_value_heads", "%u is not "
			"num_attention_heads, %u, of which each has keys of "
			"its own: correct it", cfg->kv_heads, cfg->heads);
	cfg->kv_heads = 1;
}

void config_latent_scale(struct model_config *cfg)
{
	const struct rope_config *r = &cfg->rope;
	double scale = 1.0 / sqrt(cfg->head_dim), gain;

	if (r->mscale_all) {
		gain = config_yarn_gain(r->factor, r->mscale_all);
		scale *= gain * gain;
	}
	cfg->attn_scale = (float)scale;
}
