// SPDX-License-Identifier: Apache-2.0
/*
 * describe.c - the switches of a model in words
 *
 * Text for people about a folder's model.  Each line is a name and a text.
 * Features that a model does not have are left out, except those that people
 * look for.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "runtime/model/internal.h"

/* Receiver of the lines. */
struct words {
	void	(*add)(void *arg, const char *what, const char *text);
	void	*arg;
};

static void __printf(3, 4) say(const struct words *w, const char *what,
			       const char *fmt, ...)
{
	char text[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	w->add(w->arg, what, text);
}

static const char *act_name(enum kern_act act)
{
	static const char * const names[] = {
		[KERN_SILU]		= "silu",
		[KERN_GELU]		= "gelu",
		[KERN_GELU_TANH]	= "gelu (tanh)",
		[KERN_RELU]		= "relu",
	};

	return names[act];
}

static void say_rope(const struct words *w, const char *what,
		     const struct model_config *c,
		     const struct rope_config *r)
{
	char part[80] = "", stretch[64] = "";

	if (c->turn_pairs)
		snprintf(part, sizeof(part), ", neighbours turn");
	else if (config_rotary(c) != c->head_dim && !c->latent.rank)
		snprintf(part, sizeof(part), ", %u of %u dimensions turn",
			 config_rotary(c), c->head_dim);
	if (r->type == ROPE_LONGROPE)
		snprintf(stretch, sizeof(stretch), ", factors of %s than %u "
			 "tokens", memcmp(r->factors, r->long_factors,
					  sizeof(r->factors)) ?
			 "no more" : "more", r->original);
	else if (r->type != ROPE_DEFAULT)
		snprintf(stretch, sizeof(stretch), ", factor %g of %u tokens",
			 r->factor, r->original);
	say(w, what, "rotary, %s, theta %g%s%s", rope_type_name(r->type),
	    r->theta, stretch, part);
}

static void say_unturned(const struct words *w, const struct model_config *c)
{
	u32 i, nr = 0;

	for (i = 0; i < c->layers; i++)
		nr += config_is_unturned(c, i);
	if (nr)
		say(w, "not rotated", "%u of %u layers", nr, c->layers);
}

static void say_positions(const struct words *w, const struct model_config *c)
{
	if (c->unplaced) {
		say(w, "positions", "none");
		return;
	}
	if (c->learned) {
		say(w, "positions", "learned, from row %u", c->learned_from);
		return;
	}
	say_rope(w, "positions", c, &c->rope);
	say_unturned(w, c);
	if (c->two_ropes)
		say_rope(w, "local positions", c, &c->rope_local);
}

/* KV of a token, beside that of heads with K and V of their own. */
static void say_latent(const struct words *w, const struct model_config *c)
{
	const struct latent_config *l = &c->latent;
	char q[48] = "";

	if (l->q_rank)
		snprintf(q, sizeof(q), ", queries of %u numbers", l->q_rank);
	say(w, "attention", "%u heads of %u, values of %u%s", c->heads,
	    c->head_dim, l->value, q);
	say(w, "latent vectors", "%u numbers, %u with the rotated part of keys; "
	    "K and V of all heads would be %llu", l->rank, l->rank + l->rope,
	    (unsigned long long)config_heads_kv(c));
	say(w, "window", "none");
}

static void say_recurrent(const struct words *w, const struct model_config *c)
{
	const struct config_state *s = &c->state;

	if (s->layers)
		say(w, "recurrent", "%u of %u layers, %u heads of %u in %u group%s, %u rows of state, convolution of %u taps",
		    s->layers, c->layers, s->heads, s->head_dim, s->groups,
		    s->groups == 1 ? "" : "s", s->d_state, s->conv);
}

static const char *norm_name(const struct model_config *c)
{
	if (!c->layer_norm)
		return "RMSNorm";
	return c->plain_norms ? "LayerNorm without weights" :
	       c->norm_bias ? "LayerNorm with bias" : "LayerNorm without bias";
}

static const char *norm_places(const struct model_config *c)
{
	if (c->norm_sums)
		return ", of the residual stream behind each addition";
	if (c->no_pre_norms)
		return ", after";
	if (c->shared_norm)
		return ", before, one a layer";
	return c->post_norms ? ", before and after" : ", before";
}

static const char *qk_norm_name(const struct model_config *c)
{
	static const char * const names[] = {
		[QK_NORM_NONE]		= "",
		[QK_NORM_SHARED]	= ", q and k normalised",
		[QK_NORM_WHOLE]		= ", q and k normalised as a whole",
		[QK_NORM_EACH]		= ", q and k normalised, with weights of each head",
	};

	return names[c->qk_norm];
}

static void say_attention(const struct words *w, const struct model_config *c)
{
	u32 i, local = 0;

	if (c->latent.rank) {
		say_latent(w, c);
		return;
	}
	for (i = 0; i < c->layers; i++)
		local += config_is_local(c, i);
	say(w, "attention", "%u heads of %u, %u of K and V%s%s%s%s", c->heads,
	    c->head_dim, c->kv_heads, c->qkv_bias ? ", biases" : "",
	    c->o_bias ? ", also behind" : "",
	    qk_norm_name(c),
	    c->sinks ? ", sinks" : "");
	if (local && c->window)
		say(w, "window", "%u tokens in %u of %u layers", c->window,
		    local, c->layers);
	else
		say(w, "window", "none");
	if (c->attn_cap || c->final_cap)
		say(w, "soft caps", "scores %g, logits %g", c->attn_cap,
		    c->final_cap);
}

static void say_mlp(const struct words *w, const struct model_config *c)
{
	u32 i, sparse = 0;

	for (i = 0; i < c->layers; i++)
		sparse += config_is_sparse(c, i);
	if (sparse < c->layers)
		say(w, "mlp", "%u wide, %s%s%s%s", c->inter, act_name(c->act),
		    c->gated ? ", gated" : "", c->mlp_bias ? ", biases" : "",
		    sparse ? ", in the other layers" : "");
}

/* Layers that have experts. */
static u32 sparse_layers(const struct model_config *c)
{
	u32 i, nr = 0;

	for (i = 0; i < c->layers; i++)
		nr += config_is_sparse(c, i);
	return nr;
}

/* Before say_mlp(), which tells of the other layers. */
static void say_experts(const struct words *w, const struct model_config *c)
{
	const struct moe_config *m = &c->moe;
	char shared[56] = "", groups[48] = "";
	const u32 sparse = sparse_layers(c);

	if (!sparse)
		return;
	if (m->shared_inter)
		snprintf(shared, sizeof(shared), ", one for all %u wide%s",
			 m->shared_inter, m->shared_gate ? " with a gate" : "");
	if (m->groups > 1)
		snprintf(groups, sizeof(groups), ", of %u of %u groups",
			 m->groups_chosen, m->groups);
	say(w, "experts", "%u of %u%s in %u of %u layers, %u wide%s, %s%s%s",
	    m->chosen, m->experts, groups, sparse, c->layers, m->inter, shared,
	    m->alpha ? "clamped silu" : act_name(c->act),
	    c->gated || m->alpha ? ", gated" : "",
	    m->expert_bias ? ", biases" : "");
	say(w, "router", "softmax over %s experts%s, factor %g",
	    m->over_chosen ? "the chosen" : "all",
	    m->router_bias ? ", bias" : "", m->scale);
}

/* Bytes of tensors with @part in their names. */
static u64 bytes_named(const struct ckpt *c, const char *part)
{
	u64 bytes = 0;
	u32 i;

	for (i = 0; i < c->nr_tensors; i++)
		if (strstr(c->tensors[i]->name, part))
			bytes += c->tensors[i]->nr_bytes;
	return bytes;
}

/*
 * The weights of a mixture that tokens need.  A step reads each chosen expert once.  It
 * reads only some rows of embeddings that are not the output matrix too.
 */
static void say_active(const struct words *w, const struct model *m)
{
	static const u32 batches[] = { 1, 8, 32, 64 };
	const struct model_config *c = &m->cfg;
	const struct moe_config *moe = &c->moe;
	const double experts = bytes_named(m->ckpt, ".experts.");
	const double params = (double)sparse_layers(c) * moe->experts * c->hidden *
			      moe->inter * (c->gated || moe->alpha ? 3 : 2);
	const double rest = m->info.weight_bytes - experts -
			    (c->tied ? 0 : bytes_named(m->ckpt, "embed_tokens."));
	double touched;
	char name[24];
	u32 i;

	if (!params)
		return;
	say(w, "active", "%.4g M of %.4g M parameters for a token",
	    (m->info.nr_params - params * (1 - config_share_touched(moe, 1))) / 1e6,
	    m->info.nr_params / 1e6);
	for (i = 0; i < ARRAY_SIZE(batches); i++) {
		touched = config_share_touched(moe, batches[i]);
		snprintf(name, sizeof(name), "step of %u", batches[i]);
		say(w, name, "reads %.4g MiB of weights, %.1f of %u experts a "
		    "layer, if all are as likely", (rest + experts * touched) / (1 << 20),
		    touched * moe->experts, moe->experts);
	}
}

/* Bytes of the tensors of one type; each type is counted at its first tensor. */
static u64 type_bytes(const struct ckpt *c, u32 first)
{
	const char *type = st_type_name(c->tensors[first]);
	u64 bytes = 0;
	u32 i;

	for (i = 0; i < c->nr_tensors; i++) {
		if (strcmp(st_type_name(c->tensors[i]), type))
			continue;
		if (i < first)
			return 0;
		bytes += c->tensors[i]->nr_bytes;
	}
	return bytes;
}

/* The types of a GGUF file's tensors, with their shares of the bytes. */
static void say_types(const struct words *w, const struct model *m)
{
	const struct ckpt *c = m->ckpt;
	char text[200] = "";
	size_t len = 0;
	u64 bytes;
	u32 i;

	for (i = 0; i < c->nr_tensors && len < sizeof(text); i++) {
		bytes = type_bytes(c, i);
		if (bytes)
			len += (size_t)snprintf(text + len, sizeof(text) - len,
						"%s%s %.1f %%", len ? ", " : "",
						st_type_name(c->tensors[i]),
						100.0 * (double)bytes /
						(double)m->info.weight_bytes);
	}
	say(w, "types", "%s", text);
}

const char *model_line(const struct model *model, char *buf, size_t len)
{
	const struct model_info *i = &model->info;
	char ranks[48] = "";

	if (i->nr_ranks)
		snprintf(ranks, sizeof(ranks), " (of rank %u of %u)",
			 model->cfg.part.rank, i->nr_ranks);
	snprintf(buf, len, "%.1f M parameters%s, %s, KV %s, %s, kernels %s (%s)",
		 (double)i->nr_params / 1e6, ranks,
		 i->dtype == MODEL_BF16 ? "bf16" : "f32",
		 model_kv_name(i->kv_type),
		 i->mode == MODEL_EXACT ? "exact" : "fast", i->kernel,
		 i->variant);
	return buf;
}

const char *model_experts_line(const struct model *model, char *buf, size_t len)
{
	const struct model_stats *st = &model->stats;
	const double layers = (double)st->expert_layers;

	if (!st->expert_layers)
		return NULL;
	snprintf(buf, len, "experts touched per layer and step: %.1f of %u by %.1f rows (uniform choice: %.1f), %.4g MiB read",
		 (double)st->experts_touched / layers, model->cfg.moe.experts,
		 (double)st->expert_rows / layers, st->experts_uniform / layers,
		 (double)st->expert_bytes / layers / (1 << 20));
	return buf;
}

void model_describe(const struct model *model,
		    void (*add)(void *arg, const char *what,
				const char *text), void *arg)
{
	const struct model_config *c = &model->cfg;
	const struct words w = { .add = add, .arg = arg };

	say(&w, "residual stream", "%u wide, %u layers, attention and MLP %s",
	    c->hidden, c->layers,
	    c->parallel ? "side by side" : "one after the other");
	say_attention(&w, c);
	say_recurrent(&w, c);
	say_positions(&w, c);
	say(&w, "norm", "%s%s%s, epsilon %g",
	    norm_name(c), c->norm_plus_one ? " of 1 + weight" : "",
	    norm_places(c), c->norm_eps);
	say_experts(&w, c);
	say_active(&w, model);
	say_mlp(&w, c);
	if (c->residual_scale != 1.0f || c->logits_scale != 1.0f)
		say(&w, "factors", "%g on what is added to the residual stream, %g on logits",
		    c->residual_scale, c->logits_scale);
	if (c->embed_dim != c->hidden)
		say(&w, "embeddings", "%u wide, projected", c->embed_dim);
	say(&w, "vocabulary", "%u, output matrix %s%s%s", c->vocab,
	    c->tied ? "tied" : "of its own", c->head_bias ? ", bias" : "",
	    c->embed_scale != 1.0f ? ", embeddings scaled" : "");
	if (model->ckpt->gguf)
		say_types(&w, model);
}
