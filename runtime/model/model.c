// SPDX-License-Identifier: Apache-2.0
/*
 * model.c - from a folder to something that runs
 *
 * The model layer turns a checkpoint folder into struct model.  Loading goes
 * down this list and stops at the first thing that is not right, with one
 * line that names the file, the key, the reason and the remedy:
 *
 *	config.c	config.json -> switches, sizes, ids
 *	checkpoint.c	model.safetensors or its shards -> tensors by name
 *	safetensors.c	one file, checked as if a stranger had made it
 *	weights.c	tensors -> places in the decoder; nothing left over
 *	rope.c		position settings -> inverse frequencies
 *	decoder.c	the workspace, and the forward pass
 *
 * After loading nothing is parsed, looked up by name or allocated again.  The
 * model knows no sequence and no block: both come with each call, so all
 * state that a conversation has lies in the blocks.
 *
 * Identity.  KV of one model fed to another is silent garbage, and blocks
 * outlive the process that wrote them.  So model_identity() hands out every
 * fact that decides a bit of KV; it is here, beside the loader, since who
 * adds a switch must add it there.
 */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/model/dummy.h"
#include "runtime/model/error.h"
#include "runtime/model/internal.h"

#define MODEL_ROWS_LIMIT	65536u
#define MODEL_THREADS_LIMIT	1024u

static int model_check_opts(const struct model *m,
			    const struct model_opts *o,
			    struct model_error *err)
{
	if (o->dtype > MODEL_BF16 || o->mode > MODEL_EXACT)
		return model_fail(err, -EINVAL, "%s: no such dtype or numeric "
				  "mode: choose f32 or bf16, fast or exact",
				  m->dir);
	if (o->max_len > m->cfg.max_position)
		return model_fail(err, -EINVAL, "%s: a length of %u is above "
				  "the model's max_position_embeddings, %u: "
				  "choose at most that", m->dir, o->max_len,
				  m->cfg.max_position);
	if (o->max_rows > MODEL_ROWS_LIMIT || o->max_seqs > MODEL_ROWS_LIMIT)
		return model_fail(err, -EINVAL, "%s: a batch of %u rows is "
				  "too large: choose at most %u", m->dir,
				  max(o->max_rows, o->max_seqs),
				  MODEL_ROWS_LIMIT);
	if (o->nr_threads > MODEL_THREADS_LIMIT)
		return model_fail(err, -EINVAL, "%s: %u threads are too many: "
				  "choose at most %u", m->dir, o->nr_threads,
				  MODEL_THREADS_LIMIT);
	return 0;
}

static void model_fill_info(struct model *m, const struct model_opts *o)
{
	const struct model_config *c = &m->cfg;
	struct model_info *i = &m->info;
	u32 n;

	i->arch = c->arch;
	i->dir = m->dir;
	i->dtype = o->dtype;
	i->mode = o->mode;
	i->nr_vocab = c->vocab;
	i->nr_layers = c->layers;
	i->hidden = c->hidden;
	i->nr_heads = c->heads;
	i->nr_kv_heads = c->kv_heads;
	i->head_dim = c->head_dim;
	i->max_position = c->max_position;
	i->max_len = o->max_len ? o->max_len : c->max_position;
	i->max_rows = o->max_rows ? o->max_rows : MODEL_MAX_ROWS;
	i->max_seqs = o->max_seqs ? o->max_seqs : i->max_rows;
	i->bos_id = c->bos_id;
	i->nr_eos = c->nr_eos;
	memcpy(i->eos_ids, c->eos_ids, sizeof(i->eos_ids));
	i->k_bytes = c->head_dim * (o->dtype == MODEL_BF16 ? 2 : 4);
	i->v_bytes = i->k_bytes;
	i->nr_tensors = m->ckpt->nr_tensors;
	i->nr_files = m->ckpt->nr_files;
	i->copy_bytes = m->w.owned_bytes;
	i->mapped_bytes = m->w.mapped_bytes;
	for (n = 0; n < m->ckpt->nr_tensors; n++) {
		i->nr_params += m->ckpt->tensors[n]->nr_elems;
		i->weight_bytes += m->ckpt->tensors[n]->nr_bytes;
	}
}

static int model_start_kernels(struct model *m, const struct model_opts *o,
			       struct model_error *err)
{
	int ret;

	m->ops = kern_get(o->kernel);
	if (!m->ops)
		return model_fail(err, -EINVAL, "kernel \"%.40s\" is unknown "
				  "or this CPU cannot run it: choose ref or "
				  "cpu", o->kernel ? o->kernel : "");
	ret = kern_ctx_create(o->nr_threads, &m->ctx);
	if (ret)
		return model_fail_errno(err, ret, m->dir,
					"cannot start compute threads");
	m->info.kernel = m->ops->name;
	m->info.variant = m->ops->variant;
	return 0;
}

/* Everything that is read from the folder. */
static int model_read(struct model *m, const struct model_opts *o,
		      struct model_error *err)
{
	int ret;

	ret = model_config_read(m->dir, &m->cfg, err);
	if (ret)
		return ret;
	ret = model_config_generation(m->dir, &m->cfg, &m->info.gen, err);
	if (ret)
		return ret;
	if (o->dummy)
		ret = dummy_open(m->dir, &m->cfg, &o->progress, o->judge,
				 &m->ckpt, err);
	else
		ret = ckpt_open(m->dir, &m->ckpt, err);
	if (ret)
		return ret;
	return weights_bind(&m->w, m->ckpt, &m->cfg, o->judge, err);
}

static int model_build_rope(struct model *m, struct model_error *err)
{
	const u32 turns = config_rotary(&m->cfg), half = turns / 2;

	/* Never empty, so that NULL means no memory. */
	m->inv_freq = calloc(3 * half + 1, sizeof(*m->inv_freq));
	if (!m->inv_freq)
		return model_fail_errno(err, -ENOMEM, m->dir, "rope");
	m->inv_local = m->inv_freq + half;
	m->inv_now = m->inv_local + half;
	rope_inv_freq(&m->cfg.rope, turns, m->inv_freq);
	rope_inv_freq(&m->cfg.rope_local, turns, m->inv_local);
	return 0;
}

/* Everything that is made. */
static int model_build(struct model *m, const struct model_opts *o,
		       struct model_error *err)
{
	int ret;

	ret = model_check_opts(m, o, err);
	if (ret)
		return ret;
	model_fill_info(m, o);
	ret = model_build_rope(m, err);
	if (ret)
		return ret;
	ret = decoder_create(m);
	if (ret)
		return model_fail(err, ret, "%s: no memory for a workspace of "
				  "%llu MB: choose fewer rows a batch", m->dir,
				  (unsigned long long)(m->work.bytes >> 20));
	m->info.work_bytes = m->work.bytes;
	if (m->judged)
		return 0;
	return model_start_kernels(m, o, err);
}

int model_load(const char *dir, const struct model_opts *opts,
	       struct model **out, struct model_error *err)
{
	const struct model_opts defaults = { 0 };
	struct model *m;
	int ret;

	m = calloc(1, sizeof(*m));
	if (!m)
		return model_fail_errno(err, -ENOMEM, dir, "load");
	m->dir = strdup(dir);
	if (!m->dir) {
		ret = model_fail_errno(err, -ENOMEM, dir, "load");
		goto out_free;
	}
	if (!opts)
		opts = &defaults;
	m->progress = opts->progress;
	m->judged = opts->judge;
	ret = model_read(m, opts, err);
	if (ret)
		goto out_free;
	ret = model_build(m, opts, err);
	if (ret)
		goto out_free;
	*out = m;
	return 0;

out_free:
	model_free(m);
	return ret;
}

void model_free(struct model *m)
{
	if (!m)
		return;
	kern_ctx_destroy(m->ctx);
	decoder_destroy(m);
	free(m->inv_freq);
	weights_free(&m->w);
	ckpt_close(m->ckpt);
	free(m->dir);
	free(m);
}

const struct model_info *model_info(const struct model *model)
{
	return &model->info;
}

/* Who receives an identity. */
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

static void identity_switches(const struct model_config *c,
			      const struct identity *id)
{
	identity_u32(id, "config.layout", c->layout);
	identity_u32(id, "config.layer_norm", c->layer_norm);
	identity_u32(id, "config.norm_plus_one", c->norm_plus_one);
	identity_u32(id, "config.post_norms", c->post_norms);
	identity_u32(id, "config.parallel", c->parallel);
	identity_u32(id, "config.tied", c->tied);
	identity_u32(id, "config.qkv_bias", c->qkv_bias);
	identity_u32(id, "config.o_bias", c->o_bias);
	identity_u32(id, "config.mlp_bias", c->mlp_bias);
	identity_u32(id, "config.qk_norm", c->qk_norm);
	identity_u32(id, "config.gated", c->gated);
	identity_u32(id, "config.act", c->act);
	identity_f32(id, "config.embed_scale", c->embed_scale);
	identity_f32(id, "config.attn_scale", c->attn_scale);
	identity_f32(id, "config.attn_cap", c->attn_cap);
	identity_f32(id, "config.final_cap", c->final_cap);
	identity_u32(id, "config.window", c->window);
	id->add(id->arg, "config.local", c->local, sizeof(c->local));
	identity_u32(id, "config.learned", c->learned);
	identity_u32(id, "config.learned_from", c->learned_from);
	identity_u32(id, "config.two_ropes", c->two_ropes);
}

/* The numbers themselves, and what makes others of them in long contexts. */
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
 * Shapes of matrices follow from the tensors, but not how heads share them.
 * Limits and ids are left out: they decide how long KV may be, not its bits.
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
	identity_rope(&c->rope, m->inv_freq, config_rotary(c), id);
	identity_rope(&c->rope_local, m->inv_local, config_rotary(c), id);
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
		identity_str(id, "tensor.dtype", st_dtype_name(t->dtype));
		id->add(id->arg, "tensor.shape", t->shape,
			t->nr_dims * sizeof(*t->shape));
		id->add(id->arg, "tensor.data", t->data, t->nr_bytes);
		ckpt_done(m->ckpt, i);
		done += t->nr_bytes;
		model_progress_tell(&m->progress, done, m->info.weight_bytes);
	}
}

void model_identity(const struct model *model,
		    void (*add)(void *arg, const char *tag, const void *data,
				size_t len),
		    void *arg)
{
	const struct identity id = { .add = add, .arg = arg };

	identity_config(model, &id);
	identity_tensors(model, &id);
	identity_str(&id, "kv.dtype",
		     model->info.dtype == MODEL_BF16 ? "bf16" : "f32");
	identity_str(&id, "kernel.name", model->ops->name);
	identity_str(&id, "kernel.variant", model->ops->variant);
	identity_u32(&id, "kernel.version", model->ops->version);
	identity_str(&id, "mode",
		     model->info.mode == MODEL_EXACT ? "exact" : "fast");
}
