// SPDX-License-Identifier: Apache-2.0
/*
 * model.c - load a model
 *
 * The model layer turns a checkpoint folder into struct model.  Loading goes
 * down this list and stops at the first error, with one line that names the
 * file, the key, the reason and the remedy:
 *
 *	config.c	config.json -> switches, sizes, ids
 *	checkpoint.c	model.safetensors or its shards -> tensors by name
 *	safetensors.c	one file, not trusted
 *	gguf_*.c	a GGUF file in place of a folder
 *	quantized.c	several tensors that describe a quantized matrix -> one; or
 *			quantize matrices
 *	weights.c	tensors -> places in the decoder; none may be left over
 *	pack.c		weights in memory of their own, where that is faster
 *	upload.c	weights in the memory of a device
 *	rope.c		position settings -> inverse frequencies
 *	work.c		the workspace
 *	batch.c		a batch as rows
 *	split.c		the part of a rank, if ranks share the model
 *	cut.c		its parts of tensors
 *	decoder.c	the forward pass
 *	exchange.c	numbers that it exchanges with other ranks
 *	latent.c	its attention with latent vectors
 *	mlp.c		its MLPs
 *	experts.c	its layers with experts
 *	recurrent.c	a recurrent layer of it
 *	geometry.c	where blocks have their elements; copies of blocks
 *	identity.c	facts that change bits of KV
 *	null.c		a forward pass that computes nothing
 *
 * After loading no text is parsed, no name is looked up and no memory is
 * allocated.  The model knows no sequence and no block: both come with each
 * call, so all state of a conversation is in the blocks.
 */
#include <stdio.h>
#include <stdlib.h>

#include <kvmm/clock.h>

#include "runtime/lib/gguf.h"
#include "runtime/model/dummy.h"
#include "runtime/model/error.h"
#include "runtime/model/gguf_model.h"
#include "runtime/model/internal.h"
#include "runtime/model/quantized.h"

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
	if (o->kv_type > MODEL_KV_INT8)
		return model_fail(err, -EINVAL, "%s: no such type of KV: choose "
				  "f32, bf16, f16, fp8 or int8", m->dir);
	if (o->weights > MODEL_WEIGHTS_MAPPED)
		return model_fail(err, -EINVAL, "%s: no such use of weights: "
				  "choose packed or mapped", m->dir);
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
	if (o->max_rank > ADAPTER_MAX_RANK)
		return model_fail(err, -EINVAL, "%s: a rank of %u is too large for "
				  "adapters: choose at most %u", m->dir,
				  o->max_rank, ADAPTER_MAX_RANK);
	if (o->nr_threads > MODEL_THREADS_LIMIT)
		return model_fail(err, -EINVAL, "%s: %u threads are too many: "
				  "choose at most %u", m->dir, o->nr_threads,
				  MODEL_THREADS_LIMIT);
	return 0;
}

static const struct {
	const char	*name;
	enum kern_dtype	type;
} kv_types[] = {
	[MODEL_KV_F32]	= { "f32", KERN_F32 },
	[MODEL_KV_BF16]	= { "bf16", KERN_BF16 },
	[MODEL_KV_F16]	= { "f16", KERN_F16 },
	[MODEL_KV_FP8]	= { "fp8", KERN_E4M3 },
	[MODEL_KV_INT8]	= { "int8", KERN_I8 },
};

const char *model_kv_name(enum model_kv_type type)
{
	return kv_types[type].name;
}

static void model_fill_kv(struct model *m, const struct model_opts *o)
{
	struct model_info *i = &m->info;

	i->kv_type = o->kv_type;
	if (!i->kv_type)
		i->kv_type = o->dtype == MODEL_BF16 ? MODEL_KV_BF16 :
						      MODEL_KV_F32;
	m->kv_type = kv_types[i->kv_type].type;
	i->k_bytes = config_kv_dim(&m->cfg) * kern_dtype_size(m->kv_type);
	i->v_bytes = m->cfg.latent.rank ? 0 : i->k_bytes;
	i->scale_bytes = kern_dtype_scaled(m->kv_type) ? sizeof(float) : 0;
	if (m->cfg.latent.rank)
		i->heads_bytes = config_heads_kv(&m->cfg) *
				 kern_dtype_size(m->kv_type) +
				 2ull * m->cfg.heads * i->scale_bytes;
}

/* The recurrent layers, if there are any, are the last group. */
static void model_fill_state(struct model *m)
{
	const struct kern_state s = config_states(&m->cfg);
	struct model_info *i = &m->info;

	if (!s.nr_layers)
		return;
	i->group[0].layers -= s.nr_layers;
	i->group[i->nr_groups++] = (struct model_group){
		.layers = s.nr_layers, .units = kern_state_units(&s),
		.unit_bytes = kern_state_floats(&s) * (u32)sizeof(float),
	};
}

/* Sort the layers into groups. */
static void model_fill_groups(struct model *m, const struct model_opts *o)
{
	const struct model_config *c = &m->cfg;
	struct model_info *i = &m->info;
	u32 layer, local = 0;

	for (layer = 0; layer < c->layers; layer++)
		local += c->window && config_is_local(c, layer);
	i->nr_groups = 1;
	i->group[0].layers = c->layers;
	model_fill_state(m);
	if (!o->window_group || !local || local == c->layers ||
	    c->window >= i->max_len)
		return;
	i->nr_groups = 2;
	i->group[0].layers -= local;
	i->group[1] = (struct model_group){
		.layers = local, .window = c->window,
	};
}

/* Sorted tensors of a GGUF file are copies, and not mapped. */
static void model_count_made(struct model *m)
{
	struct model_info *i = &m->info;
	u32 n;

	if (!m->ckpt->gguf)
		return;
	i->copy_bytes += m->ckpt->made_bytes;
	for (n = 0; n < m->ckpt->nr_made; n++)
		if (m->ckpt->made[n].nr_dims > 1)
			i->mapped_bytes -= min(i->mapped_bytes,
					       m->ckpt->made[n].nr_bytes);
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
	i->nr_vocab = c->part.nr ? c->part.vocab : c->vocab;
	i->nr_ranks = c->part.nr;
	i->same_bits = split_same_bits(c);
	i->nr_layers = c->layers;
	i->hidden = c->hidden;
	i->nr_heads = c->heads;
	i->nr_kv_heads = c->kv_heads;
	i->head_dim = c->head_dim;
	i->max_position = c->max_position;
	i->max_len = o->max_len ? o->max_len : c->max_position;
	i->max_rows = o->max_rows ? o->max_rows : MODEL_MAX_ROWS;
	i->max_seqs = o->max_seqs ? o->max_seqs : i->max_rows;
	m->max_rank = o->max_rank;
	i->bos_id = c->bos_id;
	i->nr_eos = c->nr_eos;
	memcpy(i->eos_ids, c->eos_ids, sizeof(i->eos_ids));
	model_fill_kv(m, o);
	model_fill_groups(m, o);
	i->nr_tensors = m->ckpt->nr_tensors;
	i->nr_files = m->ckpt->gguf ? gguf_nr_files(m->ckpt->gguf) :
				      m->ckpt->nr_files;
	i->copy_bytes = m->w.owned_bytes;
	i->mapped_bytes = m->w.mapped_bytes;
	model_count_made(m);
	for (n = 0; n < m->ckpt->nr_tensors; n++) {
		i->nr_params += m->ckpt->tensors[n]->nr_elems;
		i->weight_bytes += m->ckpt->tensors[n]->nr_bytes;
	}
}

static const char *kernel_name(const struct model_opts *o)
{
	const bool fast = o->mode == MODEL_FAST;

	if (!o->kernel || !strcmp(o->kernel, "cpu"))
		return fast ? "cpu-fast" : "cpu";
	if (!strcmp(o->kernel, "cuda"))
		return fast ? "cuda-fast" : "cuda";
	return o->kernel;
}

static int model_start_kernels(struct model *m, const struct model_opts *o,
			       struct model_error *err)
{
	const struct kern_opts ko = {
		.device = o->device, .graphs = !o->no_graphs,
	};
	const char *name = kernel_name(o);
	char why[256] = "";
	int ret;

	if (!m->ops)
		return model_fail(err, -EINVAL, "kernel \"%.40s\" is unknown "
				  "or this CPU cannot run it: choose ref or "
				  "cpu", name);
	if (o->mode == MODEL_EXACT && m->ops->mode != KERN_MODE_EXACT)
		return model_fail(err, -EINVAL, "kernel \"%.40s\" is not "
				  "exact: choose fast mode, or cpu", name);
	ret = kern_open(m->ops, o->nr_threads, &ko, &m->ctx, why, sizeof(why));
	if (ret)
		return model_fail(err, ret, "%s: %s", m->dir, why);
	kern_describe(m->ops, m->ctx, &m->device);
	m->info.kernel = m->ops->name;
	m->info.variant = m->device.variant;
	m->info.device = m->device.name;
	m->info.device_uuid = model_on_device(m) ? m->device.uuid : NULL;
	m->info.draws = model_on_device(m) && m->ops->sample && !o->no_draws;
	return 0;
}

/* Do the kernels take KV of this type, with heads of this size? */
static int model_check_kv(const struct model *m, const struct model_opts *o,
			  struct model_error *err)
{
	struct kern_kv kv = {
		.unit = 64, .block_tokens = 16, .nr_layers = m->cfg.layers,
		.kv_heads = m->cfg.kv_heads,
		.head_dim = config_kv_dim(&m->cfg), .rank = m->cfg.latent.rank,
		.dtype = m->kv_type,
	};

	kv.layer_stride = kern_kv_layer_bytes(&kv);
	if (!m->ops || !kern_kv_check_ops(m->ops, &kv))
		return 0;
	return model_fail(err, -EOPNOTSUPP, "%s: kernel \"%.40s\" takes no KV "
			  "in %s with heads of %u: choose another "
			  "--kv-cache-dtype, or other kernels", m->dir,
			  kernel_name(o), model_kv_name(m->info.kv_type),
			  kv.head_dim);
}

/* Put the weights into the memory of the device. */
static int model_upload(struct model *m, const struct model_opts *o,
			struct model_error *err)
{
	const bool pack = m->ops->pack && o->weights != MODEL_WEIGHTS_MAPPED;
	u64 packed;
	const u64 bytes = weights_upload_cost(&m->w, m->ckpt, &m->cfg, m->ops,
					      pack, &packed);
	int ret = m->judged ? 0 : weights_upload(m, pack);

	if (ret == -ENOMEM)
		return model_fail(err, ret, "%s: %llu MB of weights do not fit "
				  "into the %llu MB that are free on %s: end "
				  "what uses it, make the pool smaller, or "
				  "choose --backend host", m->dir,
				  (unsigned long long)(bytes >> 20),
				  (unsigned long long)(m->device.free >> 20),
				  m->device.name);
	if (ret)
		return model_fail(err, ret, "%s: %s", m->dir,
				  m->ops->failure(m->ctx));
	m->info.device_bytes = bytes + m->work.bytes;
	m->info.packed_bytes = packed;
	m->info.copy_bytes = 0;
	m->info.mapped_bytes = 0;
	return 0;
}

/* Are packed weights asked for, and worth it? */
static bool model_wants_packed(const struct model_opts *o,
			       const struct weight_cost *cost)
{
	if (o->weights != MODEL_WEIGHTS_AUTO)
		return o->weights == MODEL_WEIGHTS_PACKED;
	if (o->mode != MODEL_FAST || o->dummy)
		return false;
	return cost->blocks ||
	       (cost->packed >= MODEL_PACK_MIN && weights_huge_pages());
}

/* Pack the weights into memory of their own; for a judged model only count. */
static int model_pack(struct model *m, const struct model_opts *o,
		      struct model_error *err)
{
	const struct kern_ops *ops = m->ops;
	struct weight_cost cost = { 0 };

	/* A device packs in its own memory: see model_upload(). */
	if (ops && ops->pack && !model_on_device(m))
		cost = weights_pack_cost(&m->w, m->ckpt, &m->cfg, ops);
	else if (o->weights == MODEL_WEIGHTS_PACKED)
		return model_fail(err, -EINVAL, "%s: kernel \"%.40s\" packs no "
				  "weights on this CPU: choose fast mode, or "
				  "mapped weights",
				  m->dir, kernel_name(o));
	if (!cost.packed || !model_wants_packed(o, &cost))
		return 0;
	if (!m->judged && weights_pack(&m->w, m->ckpt, &m->cfg, ops, m->ctx,
				       &m->progress))
		return model_fail(err, -ENOMEM, "%s: no memory for %llu MB of "
				  "packed weights: choose mapped weights",
				  m->dir,
				  (unsigned long long)(cost.packed >> 20));
	m->info.packed_bytes = cost.packed;
	m->info.copy_bytes -= cost.owned;
	if (!o->dummy)
		m->info.mapped_bytes -= cost.mapped;
	return 0;
}

static u64 ckpt_bytes(const struct ckpt *c)
{
	u64 bytes = 0;
	u32 i;

	for (i = 0; i < c->nr_tensors; i++)
		bytes += c->tensors[i]->nr_bytes;
	return bytes;
}

/* Note the tensors that loading has made, of @before bytes of tensors. */
static void model_fill_made(struct model *m, u64 before, u64 ns)
{
	struct model_info *i = &m->info;
	u32 n;

	for (n = 0; n < m->ckpt->nr_made; n++)
		i->made_bytes += m->ckpt->made[n].nr_bytes;
	i->made_of = before + i->made_bytes - ckpt_bytes(m->ckpt);
	i->made_ns = ns;
}

/* Make the matrices of a quantized folder, or quantize those of another one. */
static int model_make_tensors(struct model *m, const struct model_opts *o,
			      struct model_error *err)
{
	const struct quantized_opts q = {
		.judge = o->judge, .nr_threads = o->nr_threads,
		.progress = &o->progress,
	};
	const u64 before = ckpt_bytes(m->ckpt), begin = kv_now_ns();
	int ret;

	ret = quantized_open(m->ckpt, &q, err);
	if (!ret && o->quantization)
		ret = quantized_make(m->ckpt, &m->cfg, o->quantization, &q, err);
	if (!ret && m->ckpt->nr_made)
		model_fill_made(m, before, kv_now_ns() - begin);
	return ret;
}

/* The tensors of the folder or file, as the rest of the loader wants them. */
static int model_read_tensors(struct model *m, const struct model_opts *o,
			      struct model_error *err)
{
	const bool folder = !o->dummy && !gguf_is_file(m->dir);
	int ret;

	if (o->quantization && !folder)
		return model_fail(err, -EINVAL, "%s: only the weights of a folder "
				  "can be quantized: leave out --quantization",
				  m->dir);
	if (o->dummy)
		return dummy_open(m->dir, &m->cfg, &o->progress, o->judge,
				  &m->ckpt, err);
	if (!folder)
		return gguf_ckpt_open(m->dir, &m->cfg, o->judge, &m->ckpt, err);
	ret = ckpt_open(m->dir, &m->ckpt, err);
	return ret ? ret : model_make_tensors(m, o, err);
}

static u32 weight_types(const struct model *m)
{
	return m->ops ? m->ops->weight_types : KERN_PLAIN_WEIGHTS;
}

/* Are there features that ranks do not have? */
static int model_check_split(const struct model *m, const struct model_opts *o,
			     struct model_error *err)
{
	if (model_on_device(m))
		return model_fail(err, -EOPNOTSUPP, "%s: ranks need kernels of the CPU: "
				  "give --backend host, or leave out --tensor-parallel",
				  m->dir);
	if (o->max_rank)
		return model_fail(err, -EOPNOTSUPP, "%s: ranks have no adapters: leave "
				  "out --enable-lora, or --tensor-parallel", m->dir);
	return 0;
}

/* Check the whole model, and go on with the part of a rank. */
static int model_split(struct model *m, const struct model_opts *o,
		       struct model_error *err)
{
	struct model_config *whole;
	int ret = model_check_split(m, o, err);

	if (ret)
		return ret;
	ret = weights_bind(&m->w, m->ckpt, &m->cfg, true, weight_types(m), err);
	weights_free(&m->w);
	whole = malloc(sizeof(*whole));
	if (!ret && !whole)
		ret = model_fail_errno(err, -ENOMEM, m->dir, "ranks");
	if (!ret) {
		*whole = m->cfg;
		ret = split_config(&m->cfg, m->link, o->mode == MODEL_EXACT, m->dir, err);
	}
	if (!ret && m->link->bytes < exchange_least(&m->cfg))
		ret = model_fail(err, -EINVAL, "%s: a room of ranks needs %llu bytes", m->dir,
				 (unsigned long long)exchange_least(&m->cfg));
	if (!ret)
		ret = cut_open(m->ckpt, whole, &m->cfg, o->judge, &m->cut, err);
	free(whole);
	return ret;
}

/* Read everything from the folder. */
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
	ret = model_read_tensors(m, o, err);
	if (!ret && m->link)
		ret = model_split(m, o, err);
	if (ret)
		return ret;
	ret = weights_bind(&m->w, m->ckpt, &m->cfg, o->judge, weight_types(m), err);
	if (ret || o->judge || m->cfg.part.max_parts < 2)
		return ret;
	ret = split_sort(&m->w, &m->cfg);
	return ret ? model_fail_errno(err, ret, m->dir, "ranks") : 0;
}

static int model_build_rope(struct model *m, struct model_error *err)
{
	const u32 turns = config_rotary(&m->cfg), half = turns / 2;

	/* Never empty, so that NULL means no memory. */
	m->inv_freq = calloc(2 * half + 1, sizeof(*m->inv_freq));
	if (!m->inv_freq)
		return model_fail_errno(err, -ENOMEM, m->dir, "rope");
	m->inv_local = m->inv_freq + half;
	rope_fit(&m->cfg.rope, m->info.max_len);
	rope_fit(&m->cfg.rope_local, m->info.max_len);
	rope_inv_freq(&m->cfg.rope, turns, m->inv_freq);
	rope_inv_freq(&m->cfg.rope_local, turns, m->inv_local);
	return 0;
}

/* Build everything that is not read. */
static int model_build(struct model *m, const struct model_opts *o,
		       struct model_error *err)
{
	int ret;

	ret = model_check_opts(m, o, err);
	if (ret)
		return ret;
	model_fill_info(m, o);
	ret = model_check_kv(m, o, err);
	if (ret)
		return ret;
	ret = model_build_rope(m, err);
	if (ret)
		return ret;
	if (!m->judged)
		ret = model_start_kernels(m, o, err);
	if (ret)
		return ret;
	ret = work_create(m);
	if (ret)
		return model_fail(err, ret, "%s: no memory for a workspace of "
				  "%llu MB: choose fewer rows a batch", m->dir,
				  (unsigned long long)(m->work.bytes >> 20));
	m->info.work_bytes = m->work.bytes + m->work.host_bytes;
	ret = model_pack(m, o, err);
	return ret || !model_on_device(m) ? ret : model_upload(m, o, err);
}

int model_load(const char *dir, const struct model_opts *opts,
	       struct model **out, struct model_error *err)
{
	struct model_opts chosen = { 0 };
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
	if (opts)
		chosen = *opts;
	opts = &chosen;
	m->progress = opts->progress;
	m->judged = opts->judge;
	m->link = opts->link;
	m->ops = kern_get(kernel_name(opts));
	ret = model_read(m, opts, err);
	if (ret)
		goto out_free;
	model_choose_types(m, &chosen);
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
	work_destroy(m);
	if (m->ctx && m->w.device)
		m->ops->mem_free(m->ctx, m->w.device);
	kern_close(m->ops, m->ctx);
	free(m->inv_freq);
	weights_free(&m->w);
	ckpt_close(m->ckpt);
	cut_close(m->cut);
	free(m->dir);
	free(m);
}

const struct model_info *model_info(const struct model *model)
{
	return &model->info;
}

void model_get_stats(const struct model *model, struct model_stats *st)
{
	*st = model->stats;
}
