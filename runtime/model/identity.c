// SPDX-License-Identifier: Apache-2.0
/*
 * identity.c - all facts that change a bit of KV
 *
 * KV of one model fed to another is silent garbage, and blocks outlive the process that
 * wrote them.  So model_identity() gives out every fact that changes a bit of KV.  A new
 * switch of the decoder must be added here, too.
 */
#include "runtime/model/internal.h"
#include "runtime/model/quantized.h"

#define FINGERPRINT_BYTES	256u	/* of each tensor */

/* Receiver of an identity. */
struct identity {
	void	(*add)(void *arg, const char *tag, const void *data,
		       size_t len);
	void	*arg;
};

static void identity_str(const struct identity *id, const char *tag,
			 const char *s)
{
	id->add(id->arg, tag, s, strlen(s));
}

static void identity_u32(const struct identity *id, const char *tag, u32 v)
{
	id->add(id->arg, tag, &v, sizeof(v));
}

static void identity_f32(const struct identity *id, const char *tag, float v)
{
	id->add(id->arg, tag, &v, sizeof(v));
}

/* Sizes of recurrent layers; the shapes of tensors do not say all of them. */
static void identity_state(const struct model_config *c,
			   const struct identity *id)
{
	const struct config_state *s = &c->state;

	id->add(id->arg, "config.recurrent", c->recurrent, sizeof(c->recurrent));
	identity_u32(id, "state.heads", s->heads);
	identity_u32(id, "state.head_dim", s->head_dim);
	identity_u32(id, "state.d_state", s->d_state);
	identity_u32(id, "state.groups", s->groups);
	identity_u32(id, "state.conv", s->conv);
	identity_u32(id, "state.conv_bias", s->conv_bias);
}

/* The part of a rank; the numbers of ranks that share the model change bits of KV. */
static void identity_part(const struct model_config *c, const struct identity *id)
{
	if (!c->part.nr)
		return;
	identity_u32(id, "part.rank", c->part.rank);
	identity_u32(id, "part.ranks", c->part.nr);
	identity_u32(id, "part.max_parts", c->part.max_parts);
}

/* Which norms there are, and of which kind. */
static void identity_norms(const struct model_config *c,
			   const struct identity *id)
{
	identity_u32(id, "config.norm_bias", c->norm_bias);
	identity_u32(id, "config.plain_norms", c->plain_norms);
	identity_u32(id, "config.norm_plus_one", c->norm_plus_one);
	identity_u32(id, "config.no_pre_norms", c->no_pre_norms);
	identity_u32(id, "config.post_norms", c->post_norms);
	identity_u32(id, "config.norm_sums", c->norm_sums);
	identity_u32(id, "config.no_final_norm", c->no_final_norm);
	identity_u32(id, "config.shared_norm", c->shared_norm);
	identity_u32(id, "config.qk_norm", c->qk_norm);
}

static void identity_switches(const struct model_config *c,
			      const struct identity *id)
{
	identity_u32(id, "config.layout", c->layout);
	identity_u32(id, "config.layer_norm", c->layer_norm);
	identity_norms(c, id);
	identity_u32(id, "config.parallel", c->parallel);
	identity_u32(id, "config.tied", c->tied);
	identity_u32(id, "config.qkv_bias", c->qkv_bias);
	identity_u32(id, "config.o_bias", c->o_bias);
	identity_u32(id, "config.mlp_bias", c->mlp_bias);
	identity_u32(id, "config.head_bias", c->head_bias);
	identity_u32(id, "config.embed_dim", c->embed_dim);
	identity_u32(id, "config.sinks", c->sinks);
	identity_u32(id, "config.gated", c->gated);
	identity_u32(id, "config.act", c->act);
	identity_f32(id, "config.embed_scale", c->embed_scale);
	identity_u32(id, "config.embed_exact", c->embed_exact);
	identity_f32(id, "config.residual_scale", c->residual_scale);
	identity_f32(id, "config.logits_scale", c->logits_scale);
	identity_f32(id, "config.attn_scale", c->attn_scale);
	identity_u32(id, "config.attn_by_layer", c->attn_by_layer);
	identity_f32(id, "config.attn_cap", c->attn_cap);
	identity_f32(id, "config.final_cap", c->final_cap);
	identity_u32(id, "config.window", c->window);
	id->add(id->arg, "config.local", c->local, sizeof(c->local));
	identity_u32(id, "config.learned", c->learned);
	identity_u32(id, "config.learned_from", c->learned_from);
	identity_u32(id, "config.two_ropes", c->two_ropes);
	identity_u32(id, "config.unplaced", c->unplaced);
	id->add(id->arg, "config.unturned", c->unturned, sizeof(c->unturned));
	identity_u32(id, "config.turn_pairs", c->turn_pairs);
	identity_state(c, id);
}

static void identity_experts(const struct moe_config *c,
			     const struct identity *id)
{
	identity_u32(id, "moe.experts", c->experts);
	if (!c->experts)
		return;
	identity_u32(id, "moe.chosen", c->chosen);
	identity_u32(id, "moe.inter", c->inter);
	identity_u32(id, "moe.shared_inter", c->shared_inter);
	identity_u32(id, "moe.shared_gate", c->shared_gate);
	identity_u32(id, "moe.groups", c->groups);
	identity_u32(id, "moe.groups_chosen", c->groups_chosen);
	identity_u32(id, "moe.over_chosen", c->over_chosen);
	identity_f32(id, "moe.scale", c->scale);
	identity_u32(id, "moe.router_bias", c->router_bias);
	identity_u32(id, "moe.expert_bias", c->expert_bias);
	identity_f32(id, "moe.alpha", c->alpha);
	identity_f32(id, "moe.limit", c->limit);
	id->add(id->arg, "moe.sparse", c->sparse, sizeof(c->sparse));
}

static void identity_latent(const struct latent_config *c,
			    const struct identity *id)
{
	identity_u32(id, "latent.rank", c->rank);
	if (!c->rank)
		return;
	identity_u32(id, "latent.q_rank", c->q_rank);
	identity_u32(id, "latent.nope", c->nope);
	identity_u32(id, "latent.rope", c->rope);
	identity_u32(id, "latent.value", c->value);
	identity_f32(id, "latent.eps", c->eps);
}

/* The frequencies, and the parameters that change them in long contexts. */
static void identity_rope(const struct rope_config *r, const float *inv_freq,
			  u32 turns, const struct identity *id)
{
	identity_str(id, "rope.type", rope_type_name(r->type));
	id->add(id->arg, "rope.inv_freq", inv_freq,
		turns / 2 * sizeof(*inv_freq));
	identity_f32(id, "rope.gain", r->gain);
	if (!rope_is_dynamic(r))
		return;
	identity_f32(id, "rope.theta", r->theta);
	identity_f32(id, "rope.factor", r->factor);
	identity_u32(id, "rope.original", r->original);
}

/*
 * The shapes of matrices follow from the tensors, but not how heads share them.
 * Limits and ids are left out: they change how long KV may be, but not its
 * bits.
 */
static void identity_config(const struct model *m, const struct identity *id)
{
	const struct model_config *c = &m->cfg;

	identity_str(id, "config.arch", c->arch);
	identity_u32(id, "config.vocab", c->vocab);
	identity_u32(id, "config.hidden", c->hidden);
	identity_u32(id, "config.inter", c->inter);
	identity_u32(id, "config.layers", c->layers);
	identity_u32(id, "config.heads", c->heads);
	identity_u32(id, "config.kv_heads", c->kv_heads);
	identity_u32(id, "config.head_dim", c->head_dim);
	identity_f32(id, "config.norm_eps", c->norm_eps);
	identity_switches(c, id);
	identity_latent(&c->latent, id);
	identity_experts(&c->moe, id);
	identity_part(c, id);
	identity_rope(&c->rope, m->inv_freq, config_rotary(c), id);
	identity_rope(&c->rope_local, m->inv_local, config_rotary(c), id);
}

/* The tensors of which quantized matrices were made. */
static void identity_sources(const struct model *m, const struct identity *id)
{
	const struct st_tensor *t;
	u32 i;

	for (i = 0; i < m->ckpt->nr_sources; i++) {
		t = m->ckpt->sources[i];
		identity_str(id, "source.name", t->name);
		identity_str(id, "source.dtype", st_type_name(t));
		id->add(id->arg, "source.shape", t->shape,
			t->nr_dims * sizeof(*t->shape));
		id->add(id->arg, "source.data", t->data, t->nr_bytes);
		ckpt_done_source(m->ckpt, i);
	}
	if (i)
		identity_u32(id, "quantized.version", QUANTIZED_VERSION);
}

/* A piece of a rank's part of a tensor. */
static void identity_piece(void *arg, const void *data, u64 bytes)
{
	const struct identity *id = arg;

	id->add(id->arg, "tensor.part", data, bytes);
}

static void identity_tensors(const struct model *m, const struct identity *id)
{
	const struct st_tensor *t;
	u64 done = 0;
	u32 i;

	ckpt_want(m->ckpt, 0);
	for (i = 0; i < m->ckpt->nr_tensors; i++) {
		t = m->ckpt->tensors[i];
		ckpt_want(m->ckpt, i + 1);
		identity_str(id, "tensor.name", t->name);
		identity_str(id, "tensor.dtype", st_type_name(t));
		id->add(id->arg, "tensor.shape", t->shape,
			t->nr_dims * sizeof(*t->shape));
		/* A tensor made of others may be gone; it follows from them. */
		if (!(t->whole ? t->whole : t)->straight &&
		    !cut_each(m->cut, t, identity_piece, (void *)id))
			id->add(id->arg, "tensor.data", t->data, t->nr_bytes);
		ckpt_done(m->ckpt, i);
		done += t->nr_bytes;
		model_progress_tell(&m->progress, done, m->info.weight_bytes);
	}
	identity_sources(m, id);
}

void model_identity(const struct model *model,
		    void (*add)(void *arg, const char *tag, const void *data,
				size_t len),
		    void *arg)
{
	const struct identity id = { .add = add, .arg = arg };

	identity_config(model, &id);
	identity_tensors(model, &id);
	identity_str(&id, "dtype",
		     model->info.dtype == MODEL_BF16 ? "bf16" : "f32");
	identity_str(&id, "kv.dtype", model_kv_name(model->info.kv_type));
	identity_str(&id, "kernel.name", model->ops->name);
	identity_str(&id, "kernel.variant", model->device.variant);
	identity_u32(&id, "kernel.version", model->ops->version);
	identity_str(&id, "weights",
		     model->info.packed_bytes ? "packed" : "mapped");
	identity_str(&id, "mode",
		     model->info.mode == MODEL_EXACT ? "exact" : "fast");
}

/* Of a tensor: the first bytes, if the file has them. */
static void fingerprint_tensor(const struct st_tensor *t, const struct identity *id)
{
	identity_str(id, "tensor.name", t->name);
	identity_str(id, "tensor.dtype", st_type_name(t));
	id->add(id->arg, "tensor.shape", t->shape, t->nr_dims * sizeof(*t->shape));
	id->add(id->arg, "tensor.begin", t->data, min(t->nr_bytes, (u64)FINGERPRINT_BYTES));
}

void model_fingerprint(const struct model *model,
		       void (*add)(void *arg, const char *tag, const void *data, size_t len),
		       void *arg)
{
	const struct identity id = { .add = add, .arg = arg };
	const struct ckpt *c = model->ckpt;
	u32 i;

	identity_config(model, &id);
	for (i = 0; i < c->nr_tensors; i++)
		if (!ckpt_is_made(c, c->tensors[i]))
			fingerprint_tensor(c->tensors[i], &id);
	for (i = 0; i < c->nr_sources; i++)
		fingerprint_tensor(c->sources[i], &id);
}
