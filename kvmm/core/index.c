// SPDX-License-Identifier: Apache-2.0
/*
 * index.c - the prefix index: full blocks by what was computed in them
 *
 * A full block is named by a chained 128-bit hash over (parent's hash, its
 * token ids), whose root is made of the model identity and the salt, keyed
 * with a secret of the tenant.  So one name stands for a whole prefix, a
 * lookup walks a prompt block by block until the first miss, and a client
 * cannot make names: it never sends hashes and does not know the secret.
 * Fields enter the hash typed and length-prefixed.  A hit compares the ids of
 * the block too; a collision along the chain would need equal keyed 128-bit
 * hashes for different prefixes.
 *
 * The index holds one reference to each of its blocks.  A block that no
 * resident sequence maps is CACHED and on its domain's LRU list, oldest
 * first.  Sequences give their blocks back from the last to the first, so a
 * prefix's leaves are older than its root and go first.
 *
 * The hash is XXH3-128 with secret (xxHash, Yann Collet).
 */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "kvmm/core/internal.h"

#define FIELD_IDENTITY	1u
#define FIELD_SALT	2u
#define FIELD_PARENT	3u
#define FIELD_IDS	4u
#define FIELD_MAX	(4 * 64)	/* bytes: ids of the largest block */

struct hash_input {
	u32	len;
	u8	bytes[4 * 8 + 16 + FIELD_MAX];
};

static void hash_field(struct hash_input *in, u32 type, const void *data,
		       u32 len)
{
	u32 head[2] = { type, len };

	KV_BUG_ON(in->len + sizeof(head) + len > sizeof(in->bytes));
	memcpy(in->bytes + in->len, head, sizeof(head));
	memcpy(in->bytes + in->len + sizeof(head), data, len);
	in->len += (u32)sizeof(head) + len;
}

static void hash_final(const struct core *c, const struct kv_domain *d,
		       const struct hash_input *in, u64 *hash)
{
	XXH128_hash_t h;

	h = XXH3_128bits_withSecret(in->bytes, in->len,
				    c->tenants[d->tenant].secret,
				    CORE_SECRET_LEN);
	hash[0] = h.low64;
	hash[1] = h.high64;
}

/* Root of the chains of one (domain, salt). */
void index_root(const struct core *c, const struct kv_domain *d, u64 salt,
		u64 *hash)
{
	struct hash_input in = { .len = 0 };

	hash_field(&in, FIELD_IDENTITY, d->identity, sizeof(d->identity));
	hash_field(&in, FIELD_SALT, &salt, sizeof(salt));
	hash_final(c, d, &in, hash);
}

/* Name of the block that holds @ids after the prefix named @parent. */
void index_chain(const struct core *c, const struct kv_domain *d,
		 const u64 *parent, const u32 *ids, u64 *hash)
{
	struct hash_input in = { .len = 0 };

	hash_field(&in, FIELD_PARENT, parent, 16);
	hash_field(&in, FIELD_IDS, ids, 4 * d->block_tokens);
	hash_final(c, d, &in, hash);
}

static u32 *index_bucket(const struct core *c, const u64 *hash)
{
	return &c->buckets[hash[0] & (core_sizes(c)->nr_buckets - 1)];
}

/* ---- what a reference says, of either kind ---- */

static u32 *ref_next(const struct core *c, u32 ref)
{
	if (ref & REF_ENTRY)
		return &c->entries_low[ref & ~REF_ENTRY].hash_next;
	return &c->blocks[ref].hash_next;
}

static const u64 *ref_hash(const struct core *c, u32 ref)
{
	if (ref & REF_ENTRY)
		return c->entries_low[ref & ~REF_ENTRY].hash;
	return c->blocks[ref].hash;
}

static u32 ref_domain(const struct core *c, u32 ref)
{
	if (ref & REF_ENTRY)
		return c->entries_low[ref & ~REF_ENTRY].domain;
	return c->blocks[ref].domain;
}

/* The ids lie beside the content, wherever that is. */
static const u32 *ref_ids(const struct core *c, u32 ref)
{
	const struct kv_entry *e;

	if (!(ref & REF_ENTRY))
		return block_ids(c, ref);
	e = &c->entries_low[ref & ~REF_ENTRY];
	return block_ids(c, e->host != CORE_NONE ? e->host : e->area);
}

/**
 * index_lookup() - the block of @dom that holds exactly this prefix
 * @hash: its name
 * @ids:  block_tokens ids, compared
 *
 * Return: the block, or REF_ENTRY and the entry when the content is on the
 * lower tiers only, or CORE_NONE.
 */
u32 index_lookup(const struct core *c, u32 dom, const u64 *hash,
		 const u32 *ids)
{
	u32 ref = *index_bucket(c, hash);

	for (; ref != CORE_NONE; ref = *ref_next(c, ref)) {
		const u64 *h = ref_hash(c, ref);

		if (ref_domain(c, ref) == dom && h[0] == hash[0] &&
		    h[1] == hash[1] && !memcmp(ref_ids(c, ref), ids,
					4 * c->domains[dom].block_tokens))
			return ref;
	}
	return CORE_NONE;
}

/* Put a reference at the head of its bucket. */
void index_link(struct core *c, u32 ref)
{
	u32 *bucket = index_bucket(c, ref_hash(c, ref));

	*ref_next(c, ref) = *bucket;
	*bucket = ref;
}

/* Take a reference out of its bucket. */
void index_unlink(struct core *c, u32 ref)
{
	u32 *p = index_bucket(c, ref_hash(c, ref));

	while (*p != ref) {
		KV_BUG_ON(*p == CORE_NONE);
		p = ref_next(c, *p);
	}
	*p = *ref_next(c, ref);
	*ref_next(c, ref) = CORE_NONE;
}

/* Enter a sealed block whose hash is set; the index takes a reference. */
void index_insert(struct core *c, u32 blk)
{
	struct kv_block *b = &c->blocks[blk];

	KV_BUG_ON(b->flags & BLKF_INDEXED);
	b->flags |= BLKF_INDEXED;
	b->refcount++;
	index_link(c, blk);
	c->domains[b->domain].nr_indexed++;
	c->domains[b->domain].retry = 1;	/* one that waits may need less */
	core_count(c, CORE_EV_prefix_insert, 1);
}

/* Take a block out of the index and drop the reference. */
void index_remove(struct core *c, u32 blk)
{
	index_unlink(c, blk);
	c->domains[c->blocks[blk].domain].nr_indexed--;
	block_put_index(c, blk);
}

/* Newest end of the LRU list. */
void lru_add(struct core *c, u32 blk)
{
	struct kv_domain *d = &c->domains[c->blocks[blk].domain];

	list_add_tail_idx(c->blocks, d->lru_head, d->lru_tail, blk);
}

void lru_del(struct core *c, u32 blk)
{
	struct kv_domain *d = &c->domains[c->blocks[blk].domain];

	list_del_idx(c->blocks, d->lru_head, d->lru_tail, blk);
}

/**
 * index_evict() - take a cached block's memory
 *
 * If a lower tier has the content, or is about to, the index refers to that
 * from now on and nothing is lost; else it can be computed again.
 */
void index_evict(struct core *c, u32 blk)
{
	struct kv_block *b = &c->blocks[blk];
	u32 e = b->entry;

	KV_BUG_ON(b->state != BLK_CACHED);
	lru_del(c, blk);
	index_unlink(c, blk);
	c->domains[b->domain].nr_indexed--;
	if (e != CORE_NONE && entry_is_there(c, e)) {
		entry_index(c, e);
		core_count(c, CORE_EV_demote_free, 1);
	} else {
		core_count(c, CORE_EV_prefix_evict, 1);
	}
	block_put_index(c, blk);
}
