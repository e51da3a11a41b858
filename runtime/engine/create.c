// SPDX-License-Identifier: Apache-2.0
/*
 * create.c - attach and size, detach and free
 *
 * This file allocates all memory that does not depend on requests: tables of
 * steps and arguments for the largest batch that model, daemon and caller all
 * allow.  The identity of the model decides which cached KV a client may read.
 * So it is computed here from the loaded weights, and never taken from a file
 * or an option.
 */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/engine/internal.h"
#include "runtime/lib/gguf.h"

#define ENGINE_GOODBYE_NS	2000000000ll
#define ENGINE_MATCH_IDS	4096u
#define ENGINE_DEF_SEQS		256u
#define ENGINE_SCORES_MAX	64u
#define ENGINE_SCORE_BYTES	(32u << 20)	/* bytes of logits for scores, about */

static void identity_add(void *arg, const char *tag, const void *data,
			 size_t len)
{
	kvmm_identity_add(arg, tag, data, len);
}

/*
 * The last part of the model's path, cut to the length of a domain's name.  A GGUF file
 * that is a link has the name of the link: that of a blob of a cache is a hash.
 */
static void domain_name(const struct model_info *info, char *name)
{
	char *path = gguf_is_file(info->dir) ? NULL : realpath(info->dir, NULL);
	const char *from = path ? path : info->dir;
	const char *base = strrchr(from, '/');

	base = base ? base + 1 : from;
	snprintf(name, KVMM_NAME_LEN, "%.*s", KVMM_NAME_LEN - 1,
		 *base ? base : "model");
	free(path);
}

int engine_identity(const struct model *model, u8 *out)
{
	struct kvmm_identity *digest = malloc(sizeof(*digest));

	if (!digest)
		return -ENOMEM;
	kvmm_identity_init(digest);
	model_identity(model, identity_add, digest);
	kvmm_identity_final(digest, out);
	free(digest);
	return 0;
}

/*
 * Kernels can reach only a pool in memory of their own kind; "null" kernels
 * reach none.
 */
static int engine_check_pool(const struct engine *e, struct engine_error *err)
{
	const bool gpu = kvmm_backend(e->k) == KVMM_MEMORY_CUDA;

	if (gpu == !!e->info->device_uuid ||
	    (e->info->kernel && !strcmp(e->info->kernel, "null")))
		return 0;
	return engine_refuse(err, -EINVAL, gpu ?
			     "the daemon's pool is on a GPU, the model's kernels run on the CPU: give --backend cuda, or start kvmm with --backend host" :
			     "the model is on a GPU, the daemon's pool in host memory: give --backend host, or start kvmm with --backend cuda");
}

static u32 seqs_wanted(const struct engine_opts *o)
{
	return o->max_seqs ? o->max_seqs : ENGINE_DEF_SEQS;
}

/* Most prompt tokens of one sequence in a step. */
static u32 chunk_of(const struct model_info *info, const struct engine_opts *o)
{
	return o->chunk ? min(o->chunk, info->max_rows) : info->max_rows;
}

/* Put the layer groups into the parameters. */
static void params_group(const struct model_info *info, const struct engine_opts *o,
			 const struct kvmm_group *group, struct kvmm_params *p)
{
	u32 g;

	p->nr_groups = info->nr_groups;
	p->block_tokens = group[0].block_tokens;
	for (g = 0; g < p->nr_groups; g++)
		p->group[g] = group[g];
	/* The daemon takes those of the parameters. */
	p->group[0].block_tokens = 0;
	if (p->nr_groups > 1)
		p->step_tokens = chunk_of(info, o);
}

int engine_params(const struct model_info *info, const struct engine_opts *o, char *name,
		  struct kvmm_group *group, struct kvmm_params *p,
		  struct engine_error *err)
{
	const int hit = engine_groups(info, o, group);

	if (hit < 0)
		return engine_refuse(err, hit, "a block of the model's layer groups is larger than any pool: give a smaller --block-tokens");
	*p = (struct kvmm_params){
		.socket = o->socket,
		.domain = o->domain ? o->domain : name,
		.min_bytes = o->limits.min,
		.low_bytes = o->limits.low,
		.high_bytes = o->limits.high,
		.max_bytes = o->limits.max ? o->limits.max : KVMM_LIMIT_MAX,
		.swap_max_bytes = o->limits.swap_max,
		.pool = o->limits.pool,
		.nr_shards = info->nr_ranks,
		.weight = o->limits.weight,
		.max_seqs = seqs_wanted(o) + o->max_leases,
		.max_steps = ENGINE_MAX_STEPS,
		.spin = o->spin,
	};
	domain_name(info, name);
	params_group(info, o, group, p);
	return hit;
}

static int engine_attach(struct engine *e, const struct engine_opts *o,
			 struct engine_error *err)
{
	u8 identity[KVMM_IDENTITY_LEN];
	char name[KVMM_NAME_LEN], text[256] = "";
	struct kvmm_params p;
	u32 g;
	int ret;

	if (!o->identity && engine_identity(e->model, identity))
		return engine_refuse(err, -ENOMEM, "no memory for the model's identity");
	ret = engine_params(e->info, o, name, e->group, &p, err);
	if (ret < 0)
		return ret;
	e->hit_tokens = (u32)ret;
	for (g = 0; g < p.nr_groups; g++)
		e->kv.block_tokens[g] = e->group[g].block_tokens;
	p.identity = o->identity ? o->identity : identity;
	p.shard = o->ranks ? 1 : 0;
	ret = kvmm_attach(&p, &e->k, text);
	if (ret == -EEXIST && !p.pool)
		return engine_refuse(err, ret, "domain %s is in use by another model identity (model, dtype, type of KV, layer groups, mode, block size or number of ranks): end what uses it, give the same --kv-groups and other options, or give another --domain",
				     p.domain);
	if (ret)
		return engine_refuse(err, ret, "%s", text);
	ret = engine_check_pool(e, err);
	if (!ret)
		ret = lead_attach(e, err);
	return ret ? ret : adapters_create(e, o, p.domain, err);
}

/* Set sizes to what model, daemon and caller all allow. */
static void engine_size(struct engine *e, const struct engine_opts *o)
{
	const struct kvmm_attach_rep *rep = kvmm_info(e->k);
	const u32 steps = o->max_steps ? o->max_steps : ENGINE_MAX_STEPS;
	u32 g;

	e->kv.base = kvmm_pool(e->k);
	e->kv.unit = rep->unit;
	e->kv.block_bytes = rep->block_bytes;
	for (g = 0; g < e->info->nr_groups; g++) {
		e->kv.layer_stride[g] = rep->stride[g];
		e->entries[g] = engine_table_entries(&e->group[g], rep->block_bytes);
	}
	/* Of fewer sequences than asked for, most are for requests. */
	e->max_handles = rep->max_seqs < seqs_wanted(o) + o->max_leases ?
			 min(o->max_leases, rep->max_seqs / 8) : o->max_leases;
	e->max_seqs = rep->max_seqs - e->max_handles;
	e->max_blocks = o->limits.max ? o->limits.max / rep->block_bytes :
					UINT64_MAX;
	e->rows = e->info->max_rows;
	e->chunk = chunk_of(e->info, o);
	e->max_batch = least(e->info->max_seqs, rep->max_batch, e->rows);
	e->max_batch = least(e->max_batch, e->max_seqs,
			     o->max_batch ? o->max_batch : UINT32_MAX);
	e->max_scores = within(ENGINE_SCORE_BYTES / sizeof(float) /
			       e->info->nr_vocab, 1, ENGINE_SCORES_MAX);
	e->lookahead = least(steps, rep->max_steps, ENGINE_MAX_STEPS);
	e->match_ids = min(ENGINE_MATCH_IDS, rep->arg_bytes / 16);
}

static int engine_alloc(struct engine *e, const struct engine_opts *o)
{
	const size_t batch = e->max_batch;
	const size_t rows = batch + e->max_scores;
	u32 i;

	e->live = calloc(e->max_seqs, sizeof(*e->live));
	e->ins = calloc(batch, sizeof(*e->ins));
	e->copy = calloc(3 * batch, sizeof(*e->copy));
	e->row = malloc(e->info->nr_vocab * sizeof(*e->row));
	e->top = calloc(rows * ENGINE_TOP_MAX, sizeof(*e->top));
	e->scores = calloc(e->max_scores, sizeof(*e->scores));
	if (queue_init(e, o) || !e->live || !e->ins || !e->copy || !e->row ||
	    !e->top || !e->scores || draws_create(e, rows))
		return -ENOMEM;
	for (i = 0; i < ENGINE_STEP_SLOTS; i++) {
		e->steps[i].entries = calloc(batch, sizeof(struct entry));
		if (!e->steps[i].entries)
			return -ENOMEM;
	}
	return sampler_ws_create(e->info->nr_vocab, &e->sampler);
}

static void engine_free(struct engine *e)
{
	u32 i;

	leases_end(e, -ECANCELED);
	adapters_free(e);
	lead_detach(e);
	kvmm_detach(e->k);
	for (i = 0; i < ENGINE_STEP_SLOTS; i++)
		free(e->steps[i].entries);
	sampler_ws_free(e->sampler);
	free(e->scores);
	free(e->top);
	free(e->row);
	draws_free(e);
	free(e->copy);
	free(e->ins);
	free(e->live);
	free(e->due);
	free(e->chains);
	queue_free(e);
	free(e);
}

int engine_create(struct model *model, const struct engine_opts *opts,
		  struct engine **out, struct engine_error *err)
{
	static const struct engine_opts defaults;
	struct engine *e;
	int ret;

	if (!opts)
		opts = &defaults;
	e = calloc(1, sizeof(*e));
	if (!e)
		return engine_refuse(err, -ENOMEM, "no memory for the engine");
	e->model = model;
	e->info = model_info(model);
	lead_init(e, opts);
	list_init(&e->hints);
	list_init(&e->held);
	list_init(&e->adapters.slots);
	ret = engine_attach(e, opts, err);
	if (ret)
		goto out_free;
	engine_size(e, opts);
	ret = engine_alloc(e, opts);
	if (ret) {
		engine_refuse(err, ret, "no memory for batches of %u sequences",
		     e->max_batch);
		goto out_free;
	}
	*out = e;
	return 0;

out_free:
	engine_free(e);
	return ret;
}

void engine_destroy(struct engine *e)
{
	static const struct engine_done why = { .reason = ENGINE_CANCELLED };
	s64 end;

	if (!e)
		return;
	e->closing = true;
	engine_cancel_all(e, &why);
	end = engine_now() + ENGINE_GOODBYE_NS;
	while (engine_now() < end && engine_step(e, ENGINE_IDLE_NS) > 0)
		;
	if (!e->ended && e->nr_live)
		engine_die(e, -ECONNRESET);
	engine_free(e);
}
