// SPDX-License-Identifier: Apache-2.0
/*
 * capacity.c - does the daemon's pool hold the sequences of a model?
 *
 * The whole pool counts, since a model gets the memory of others if it needs it and
 * no guarantee protects it.  Blocks are cut from spans of extents, so some bytes of a
 * pool hold no block.
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

#define DEF_BLOCK	16u	/* tokens, as the engine's default */
#define VIEW_MS		500u	/* longest silence of the daemon's view */
#define VIEW_MAX	65536u	/* bytes of a file of the view */
#define DOMAIN_MAX	300u	/* a name as in paths, with its NUL */

/**
 * struct capacity - memory of one model, in sequences
 * @domain:  the operator's limit of this domain counts; "": it does not
 * @limited: --memory-max, or that limit, is less than the pool
 * @tokens:  that fit the pool, or the limit
 * @needed:  blocks of the longest sequence
 * @seqs:    longest sequences that fit at once
 */
struct capacity {
	char		domain[DOMAIN_MAX];
	bool		limited;
	unsigned int	block_tokens;
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

static void capacity_of(struct capacity *c, const struct kvmm_attach_rep *rep,
			u32 max_len, const struct engine_opts *o)
{
	const u32 tokens = o->block_tokens ? o->block_tokens : DEF_BLOCK;
	const u64 pool = (u64)rep->nr_extents / rep->span_extents *
			 rep->span_blocks;
	const u64 needed = DIV_ROUND_UP((u64)max_len, (u64)tokens);
	u64 most = o->limits.max ? o->limits.max / rep->block_bytes : pool, set;

	*c = (struct capacity){ .block_tokens = tokens, .needed = needed };
	set = domain_max(o->socket, rep->client, c->domain) / rep->block_bytes;
	if (set < min(most, pool))
		most = set;
	else
		c->domain[0] = '\0';
	c->limited = most < pool;
	c->tokens = min(most, pool) * tokens;
	c->seqs = min(most, pool) / needed;
}

/* Say that the longest sequence does not fit, and what would. */
static void say_short(const struct capacity *c, const struct kvmm_attach_rep *rep,
		      u32 max_len, const char *name, char *why, size_t len)
{
	const u64 spans = DIV_ROUND_UP(c->needed, (u64)rep->span_blocks);
	const u64 least = c->limited ? c->needed * rep->block_bytes :
			  spans * rep->span_extents * rep->extent_size;
	char pool[32], need[32], part[DOMAIN_MAX + 32], more[DOMAIN_MAX + 40];

	kv_format_size(rep->pool_bytes, pool, sizeof(pool));
	snprintf(part, sizeof(part), "the daemon's pool of %s", pool);
	snprintf(more, sizeof(more), "the daemon --pool-size");
	if (c->limited) {
		snprintf(part, sizeof(part), "--memory-max");
		snprintf(more, sizeof(more), "--memory-max");
	}
	if (*c->domain) {
		snprintf(part, sizeof(part), "memory.max of domain %s", c->domain);
		snprintf(more, sizeof(more), "kvctl set domain/%s/memory.max",
			 c->domain);
	}
	snprintf(why, len, "%s: %s holds %llu tokens, less than one sequence of %u: give --max-model-len %llu, or %s %s",
		 name, part, c->tokens, max_len, c->tokens, more,
		 kv_format_size(least, need, sizeof(need)));
}

/* The memory that is counted, in words. */
static void format_part(const struct capacity *c, const struct kvmm_attach_rep *rep,
			char *buf, size_t len)
{
	char pool[32];

	kv_format_size(rep->pool_bytes, pool, sizeof(pool));
	if (*c->domain)
		snprintf(buf, len, "memory.max of domain %s, of the pool of %s",
			 c->domain, pool);
	else
		snprintf(buf, len, "%s %s", c->limited ?
			 "--memory-max of the pool of" : "the pool of", pool);
}

int capacity_tell(const struct kvmm_attach_rep *rep, const struct model *model,
		  const struct engine_opts *o, const char *name, char *why,
		  size_t len)
{
	const u32 max_len = model_info(model)->max_len;
	char line[256], part[DOMAIN_MAX + 64];
	struct capacity c;

	capacity_of(&c, rep, max_len, o);
	if (!c.seqs) {
		say_short(&c, rep, max_len, name, why, len);
		return -EDQUOT;
	}
	pr_info("%s: %s, blocks of %u tokens", name,
		model_line(model, line, sizeof(line)), c.block_tokens);
	format_part(&c, rep, part, sizeof(part));
	pr_info("%s: %s, shared with all other models, holds %llu tokens: %llu request%s of %u tokens, the full length, at once",
		name, part, c.tokens, c.seqs, c.seqs == 1 ? "" : "s", max_len);
	return 0;
}
