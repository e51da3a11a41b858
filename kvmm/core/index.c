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

/**
 * index_lookup() - the block of @dom that holds exactly this prefix
 * @hash: its name
 * @ids:  block_tokens ids, compared
 *
 * Return: the block or CORE_NONE.
 */
u32 index_lookup(const struct core *c, u32 dom, const u64 *hash,
		 const u32 *ids)
{
	u32 blk = *index_bucket(c, hash);

	for (; blk != CORE_NONE; blk = c->blocks[blk].hash_next) {
		const struct kv_block *b = &c->blocks[blk];

		if (b->domain == dom && b->hash[0] == hash[0] &&
		    b->hash[1] == hash[1] &&
		    !memcmp(block_ids(c, blk), ids,
			    4 * c->domains[dom].block_tokens))
			return blk;
	}
	return CORE_NONE;
}

/* Enter a sealed block whose hash is set; the index takes a reference. */
void index_insert(struct core *c, u32 blk)
{
	struct kv_block *b = &c->blocks[blk];
	u32 *bucket = index_bucket(c, b->hash);

	KV_BUG_ON(b->state != BLK_SEALED || (b->flags & BLKF_INDEXED));
	b->flags |= BLKF_INDEXED;
	b->refcount++;
	b->hash_next = *bucket;
	*bucket = blk;
	c->domains[b->domain].nr_indexed++;
	c->domains[b->domain].retry = 1;	/* one that waits may need less */
	core_count(c, CORE_EV_prefix_insert, 1);
}

/* Take a block out of the index and drop the reference. */
void index_remove(struct core *c, u32 blk)
{
	struct kv_block *b = &c->blocks[blk];
	u32 *p = index_bucket(c, b->hash);

	while (*p != blk) {
		KV_BUG_ON(*p == CORE_NONE);
		p = &c->blocks[*p].hash_next;
	}
	*p = b->hash_next;
	b->hash_next = CORE_NONE;
	c->domains[b->domain].nr_indexed--;
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

/* Forget a cached block: its content is lost, it can be computed again. */
void index_evict(struct core *c, u32 blk)
{
	KV_BUG_ON(c->blocks[blk].state != BLK_CACHED);
	lru_del(c, blk);
	core_count(c, CORE_EV_prefix_evict, 1);
	index_remove(c, blk);
}
