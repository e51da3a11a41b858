// SPDX-License-Identifier: Apache-2.0
/*
 * capacity.c - does the device pool of a model's domain hold its sequences?
 *
 * In a layer group with a window a sequence has the blocks of the window and of a step.
 *
 * The domain has its memory in one device pool, so other pools do not count.  All of
 * that pool counts, since a model gets the memory of others if it needs it and no
 * guarantee protects it.  Blocks are cut from spans of extents, so some bytes of a pool
 * hold no block.
 *
 * An operator may have limited the domain to less than --memory-max.  The answer to
 * the attachment does not tell that, so the daemon's view is asked.  If the user of
 * the server may not look there, --memory-max alone counts.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvmm/log.h>
#include <kvmm/opts.h>
#include <kvmm/view.h>
#include <uapi/kvmm.h>

#include "runtime/server/capacity.h"

#define VIEW_MS		500u	/* longest silence of the daemon's view */
#define VIEW_MAX	65536u	/* bytes of a file of the view */
#define POOL_TEXT	64u	/* name and size of a device pool */
#define DOMAIN_MAX	300u	/* a name as in paths, with its NUL */

/**
 * struct capacity - memory of one model, in sequences
 * @domain:  the operator's limit of this domain counts; "": it does not
 * @limited: --memory-max, or that limit, is less than the pool
 * @group:   layer groups, @nr_groups of them
 * @block_bytes: bytes of a block
 * @step:    most tokens of a sequence in a step
 * @tokens:  that fit the pool, or the limit; with several groups in sequences of the full
 *           length, and one shorter
 * @needed:  blocks of the longest sequence
 * @seqs:    longest sequences that fit at once
 */
struct capacity {
	char		domain[DOMAIN_MAX];
	bool		limited;
	struct kvmm_group group[MODEL_MAX_GROUPS];
	u32		nr_groups;
	u64		block_bytes;
	u32		step;
	unsigned long long tokens;
	u64		needed;
	unsigned long long seqs;
};

/* Read a file of the daemon's view.  Return: its text, or NULL. */
static const char *view_cat(const char *path, const char *file,
			    struct seq_file *text)
{
	char req[DOMAIN_MAX + 64];
	int status;

	snprintf(req, sizeof(req), "cat %s", file);
	return kv_view_ask(path, req, VIEW_MS, &status, text) || status ?
	       NULL : seq_text(text);
}

/*
 * Ask for memory.max of the domain of @client, as the daemon keeps it.
 *
 * @domain gets its name.  Return: bytes; KVMM_LIMIT_MAX: none, or it is not told.
 */
static u64 domain_max(const char *socket, u32 client, char *domain)
{
	const char *where = socket ? socket : getenv("KVMM_SOCKET"), *text;
	char path[KV_VIEW_PATH_MAX], file[DOMAIN_MAX + 32];
	struct seq_file m;
	u64 most = KVMM_LIMIT_MAX;

	if (kv_view_path(where && *where ? where : NULL, path))
		return most;
	seq_init(&m, VIEW_MAX);
	snprintf(file, sizeof(file), "client/%u/status", client);
	text = view_cat(path, file, &m);
	text = text ? strstr(text, "\nDomain:\t") : NULL;
	if (text && sscanf(text, " Domain: %299s", domain) == 1) {
		snprintf(file, sizeof(file), "domain/%s/memory.max", domain);
		text = view_cat(path, file, &m);
		/* "host 8388608", or "host max" */
		if (!text || sscanf(text, "%*s %" SCNu64, &most) != 1)
			most = KVMM_LIMIT_MAX;
	}
	seq_free(&m);
	return most;
}

/* The longest sequence, of @max_len tokens at most, that fits @blocks. */
static u64 fitting_tokens(const struct capacity *c, u64 blocks, u32 max_len)
{
	u64 fits = 0, not = (u64)max_len + 1, mid;

	while (fits + 1 < not) {
		mid = (fits + not) / 2;
		if (engine_seq_blocks(c->group, c->nr_groups, c->block_bytes,
				      c->step, mid) <= blocks)
			fits = mid;
		else
			not = mid;
	}
	return fits;
}

/* Tokens that fit @blocks. */
static u64 tokens_of(const struct capacity *c, u64 blocks, u32 max_len)
{
	if (c->nr_groups == 1)
		return blocks * c->group[0].block_tokens;
	return blocks / c->needed * max_len +
	       fitting_tokens(c, blocks % c->needed, max_len);
}

/* Return: 0, or the error of engine_groups(). */
static int capacity_of(struct capacity *c, const struct kvmm_attach_rep *rep,
		       const struct model_info *info, const struct engine_opts *o)
{
	const u64 pool = (u64)rep->pool_extents / rep->span_extents *
			 rep->span_blocks;
	u64 most = o->limits.max ? o->limits.max / rep->block_bytes : pool, set;
	int ret;

	*c = (struct capacity){
		.nr_groups = info->nr_groups,
		.block_bytes = rep->block_bytes,
		.step = o->chunk ? min(o->chunk, info->max_rows) : info->max_rows,
	};
	ret = engine_groups(info, o, c->group);
	if (ret < 0)
		return ret;
	c->needed = engine_seq_blocks(c->group, c->nr_groups, c->block_bytes,
				      c->step, info->max_len);
	set = domain_max(o->socket, rep->client, c->domain) / rep->block_bytes;
	if (set < min(most, pool))
		most = set;
	else
		c->domain[0] = '\0';
	c->limited = most < pool;
	c->tokens = tokens_of(c, min(most, pool), info->max_len);
	c->seqs = min(most, pool) / c->needed;
	return 0;
}

/* The device pool of the domain; its name where there are several: "pool gpu1 of 64M". */
static const char *pool_text(const struct kvmm_attach_rep *rep, char *buf)
{
	char size[32];

	kv_format_size(rep->pool_extents * rep->extent_size, size, sizeof(size));
	if (rep->nr_pools > 1)
		snprintf(buf, POOL_TEXT, "pool gpu%u of %s", rep->pool, size);
	else
		snprintf(buf, POOL_TEXT, "pool of %s", size);
	return buf;
}

/* The option that makes this pool larger, up to the size: "the daemon --pool-size ". */
static void pool_option(const struct kvmm_attach_rep *rep, char *buf, size_t len)
{
	if (rep->nr_pools > 1)
		snprintf(buf, len, "another --pool, or, for gpu%u, the daemon --pool %s:",
			 rep->pool, rep->memory == KVMM_MEMORY_HOST ? "host" : "cuda");
	else
		snprintf(buf, len, "the daemon --pool-size ");
}

/* Say that the longest sequence does not fit, and what would. */
static void say_short(const struct capacity *c, const struct kvmm_attach_rep *rep,
		      u32 max_len, const char *name, char *why, size_t len)
{
	const u64 spans = DIV_ROUND_UP(c->needed, (u64)rep->span_blocks);
	const u64 least = c->limited ? c->needed * rep->block_bytes :
			  spans * rep->span_extents * rep->extent_size;
	char pool[POOL_TEXT], need[32], part[DOMAIN_MAX + 32], more[DOMAIN_MAX + 40];

	snprintf(part, sizeof(part), "the daemon's %s", pool_text(rep, pool));
	pool_option(rep, more, sizeof(more));
	if (c->limited) {
		snprintf(part, sizeof(part), "--memory-max");
		snprintf(more, sizeof(more), "--memory-max ");
	}
	if (*c->domain) {
		snprintf(part, sizeof(part), "memory.max of domain %s", c->domain);
		snprintf(more, sizeof(more), "kvctl set domain/%s/memory.max ",
			 c->domain);
	}
	snprintf(why, len, "%s: %s holds %llu tokens, less than one sequence of %u: give --max-model-len %llu, %s%s%s",
		 name, part, c->tokens, max_len, c->tokens,
		 c->limited || rep->nr_pools == 1 ? "or " : "", more,
		 kv_format_size(least, need, sizeof(need)));
}

/* The memory that is counted, in words. */
static void format_part(const struct capacity *c, const struct kvmm_attach_rep *rep,
			char *buf, size_t len)
{
	char pool[POOL_TEXT];

	pool_text(rep, pool);
	if (*c->domain)
		snprintf(buf, len, "memory.max of domain %s, of the %s", c->domain,
			 pool);
	else
		snprintf(buf, len, "%sthe %s", c->limited ? "--memory-max of " : "",
			 pool);
}

/* The blocks of each group, in words. */
static void format_blocks(const struct capacity *c, char *buf, size_t len)
{
	if (c->nr_groups == 1)
		snprintf(buf, len, "blocks of %u tokens", c->group[0].block_tokens);
	else if (c->group[1].kind == KVMM_GROUP_STATE)
		snprintf(buf, len, "blocks of %u tokens, and a record of %u blocks each %u tokens for %u recurrent layers",
			 c->group[0].block_tokens,
			 engine_table_entries(&c->group[1], c->block_bytes),
			 c->group[1].block_tokens, c->group[1].layers);
	else
		snprintf(buf, len, "blocks of %u tokens, and of %u tokens for %u layers with a window of %u",
			 c->group[0].block_tokens, c->group[1].block_tokens,
			 c->group[1].layers, c->group[1].window);
}

int capacity_tell(const struct kvmm_attach_rep *rep, const struct model *model,
		  const struct engine_opts *o, const char *name, char *why,
		  size_t len)
{
	const u32 max_len = model_info(model)->max_len;
	char line[256], part[DOMAIN_MAX + 64], blocks[128];
	struct capacity c;
	int ret = capacity_of(&c, rep, model_info(model), o);

	if (ret) {
		snprintf(why, len, "%s: the layer groups are refused: %s", name,
			 strerror(-ret));
		return ret;
	}
	if (!c.seqs) {
		say_short(&c, rep, max_len, name, why, len);
		return -EDQUOT;
	}
	format_blocks(&c, blocks, sizeof(blocks));
	pr_info("%s: %s, %s", name, model_line(model, line, sizeof(line)), blocks);
	format_part(&c, rep, part, sizeof(part));
	pr_info("%s: %s, shared with all other models, holds %llu tokens: %llu request%s of %u tokens, the full length, at once",
		name, part, c.tokens, c.seqs, c.seqs == 1 ? "" : "s", max_len);
	return 0;
}
