// SPDX-License-Identifier: Apache-2.0
/*
 * index.c - the prefix index, which finds full blocks by their prefix
 *
 * The name of a full block is a chained 128-bit hash of (its parent's hash, its
 * token ids).  The root of a chain is made of the model identity and the salt.
 * The hash is keyed with a secret of the tenant.  So one name stands for a whole
 * prefix, and a lookup walks a prompt block by block until the first miss.  A
 * client cannot make names: it sends no hashes, only cookies, which are
 * enciphered (cookie.c), and does not know the secret.
 * Fields enter the hash with type and length.  A hit compares the ids of the
 * block, too; a collision along the chain would need equal keyed 128-bit hashes
 * for different prefixes.
 *
 * With several layer groups the prefix has one chain, of base_tokens ids a link.  The
 * name of a block is that of the prefix that ends with it, mixed with the number of
 * its group, and of its part of the record if the group has records.  Blocks of a group
 * with a window have no parents: a hit needs only the last window, so those before it
 * may be dropped first.
 *
 * The index holds one reference to each of its blocks.  A block that no running
 * sequence maps is CACHED; lru.c decides the order in which these are evicted.
 *
 * Names are nodes of a tree: the parent of a name is the prefix that is one
 * block shorter.  The tree is closed: with a name all its ancestors are in the
 * index, on some tier, since a lookup stops at the first gap.  So a name is
 * dropped together with all its descendants, the leaves first; lru.c makes it
 * rare that one of them is in use.  A name keeps its node when its content moves
 * between tiers.  The children of a node are a circle: those on the device
 * before the others, and the newest first.  So the first child tells whether the
 * device has any.  The roots of a domain are such a circle, too, for all salts.
 *
 * The hash is XXH3-128 with secret (xxHash, Yann Collet).
 */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "kvmm/core/mem/mem.h"

#define FIELD_IDENTITY	1u
#define FIELD_SALT	2u
#define FIELD_PARENT	3u
#define FIELD_IDS	4u

#define GROUP_MIX	0x9e3779b97f4a7c15ull	/* 0 for group 0 */

/* A field is its type, its length in bytes, and these bytes. */
struct root_input {
	u32	identity_head[2];
	u8	identity[KVMM_IDENTITY_LEN];
	u32	salt_head[2];
	u64	salt;
};
static_assert(sizeof(struct root_input) == 56, "hashed without holes");

/* A name's input without the ids themselves, which follow. */
struct chain_input {
	u32	parent_head[2];
	u64	parent[2];
	u32	ids_head[2];
};
static_assert(sizeof(struct chain_input) == 32, "hashed without holes");

/* Hash @head, then @ids where they are: a block may have many. */
static void hash_pair(const struct core *c, const struct kv_domain *d,
		      const void *head, u32 len, const u32 *ids, u32 nr, u64 *hash)
{
	const u8 *secret = c->tenants[d->tenant].secret;
	XXH128_hash_t h;
	XXH3_state_t st;

	XXH3_INITSTATE(&st);
	XXH3_128bits_reset_withSecret(&st, secret, CORE_SECRET_LEN);
	XXH3_128bits_update(&st, head, len);
	XXH3_128bits_update(&st, ids, 4 * nr);
	h = XXH3_128bits_digest(&st);
	hash[0] = h.low64;
	hash[1] = h.high64;
}

/*
 * index_mix() - make the name of a prefix that of the group's block which ends there,
 * or the other way round
 * @code: part_code() of the block; the group, where blocks are no parts of records
 */
void index_mix(u32 code, u64 *hash)
{
	hash[0] ^= code * GROUP_MIX;
}

/* Root of the hash chains of a (domain, salt) in a group. */
void index_root(const struct core *c, const struct kv_domain *d, u64 salt,
		u32 group, u64 *hash)
{
	struct root_input in = {
		.identity_head = { FIELD_IDENTITY, sizeof(in.identity) },
		.salt_head = { FIELD_SALT, sizeof(salt) }, .salt = salt,
	};

	memcpy(in.identity, d->identity, sizeof(in.identity));
	hash_pair(c, d, &in, sizeof(in), NULL, 0, hash);
	index_mix(group, hash);
}

/* Name of the prefix that has base_tokens @ids after the prefix named @parent. */
void index_base(const struct core *c, const struct kv_domain *d, const u64 *parent,
		const u32 *ids, u64 *hash)
{
	struct chain_input in = {
		.parent_head = { FIELD_PARENT, sizeof(in.parent) },
		.parent = { parent[0], parent[1] },
		.ids_head = { FIELD_IDS, 4 * d->base_tokens },
	};

	hash_pair(c, d, &in, sizeof(in), ids, d->base_tokens, hash);
}

/* Name of the block of a group that holds @ids after the block named @parent. */
void index_chain(const struct core *c, const struct kv_domain *d, u32 group,
		 const u64 *parent, const u32 *ids, u64 *hash)
{
	u32 nr = d->group[group].block_tokens, i;

	/* The names of group 0 are those of prefixes, see index_mix(). */
	if (!group && nr == d->base_tokens) {
		index_base(c, d, parent, ids, hash);
		return;
	}
	memcpy(hash, parent, 2 * sizeof(*hash));
	index_mix(group, hash);
	for (i = 0; i < nr; i += d->base_tokens)
		index_base(c, d, hash, ids + i, hash);
	index_mix(group, hash);
}

static u32 *index_bucket(const struct core *c, const u64 *hash)
{
	return &c->buckets[(hash[0] >> 32) * core_sizes(c)->nr_buckets >> 32];
}

/* ---- references: a block, or REF_ENTRY and a lower-tier entry ---- */

/* The node of a block or entry; CORE_NONE: it is not in the index. */
u32 index_node(const struct core *c, u32 ref)
{
	const struct kv_entry *e;

	if (!(ref & REF_ENTRY))
		return c->blocks[ref].flags & BLKF_INDEXED ?
		       c->blocks[ref].node : CORE_NONE;
	e = &c->entries_low[ref & ~REF_ENTRY];
	return e->flags & ENTF_INDEXED ? e->node : CORE_NONE;
}

static u32 *ref_next(const struct core *c, u32 ref)
{
	if (ref & REF_ENTRY)
		return &c->entries_low[ref & ~REF_ENTRY].hash_next;
	return &c->blocks[ref].hash_next;
}

const u64 *index_name(const struct core *c, u32 ref)
{
	if (ref & REF_ENTRY)
		return c->entries_low[ref & ~REF_ENTRY].hash;
	return c->blocks[ref].hash;
}

u32 index_domain(const struct core *c, u32 ref)
{
	if (ref & REF_ENTRY)
		return c->entries_low[ref & ~REF_ENTRY].domain;
	return c->blocks[ref].domain;
}

u32 index_group(const struct core *c, u32 ref)
{
	if (ref & REF_ENTRY)
		return c->entries_low[ref & ~REF_ENTRY].group;
	return c->blocks[ref].group;
}

/* The ids are stored beside the content, on its tier. */
const u32 *index_ids(const struct core *c, u32 ref)
{
	const struct kv_entry *e;

	if (!(ref & REF_ENTRY))
		return block_ids(c, ref);
	e = &c->entries_low[ref & ~REF_ENTRY];
	return block_ids(c, e->host != CORE_NONE ? e->host : e->area);
}

/**
 * index_lookup() - the block of a group of @dom that holds exactly this prefix
 * @hash: its name
 * @ids:  block_tokens ids of the group, compared
 *
 * Return: the block, or REF_ENTRY and the entry when the content is on the
 * lower tiers only, or CORE_NONE.
 */
u32 index_lookup(const struct core *c, u32 dom, u32 group, const u64 *hash,
		 const u32 *ids)
{
	const u32 bytes = 4 * c->domains[dom].group[group].block_tokens;
	u32 ref = *index_bucket(c, hash);

	for (; ref != CORE_NONE; ref = *ref_next(c, ref)) {
		const u64 *h = index_name(c, ref);

		if (index_domain(c, ref) == dom && h[0] == hash[0] &&
		    h[1] == hash[1] && index_group(c, ref) == group &&
		    !memcmp(index_ids(c, ref), ids, bytes))
			return ref;
	}
	return CORE_NONE;
}

/**
 * index_find_node() - the node of @dom with this name
 *
 * For a prefix whose ids are no longer known.  The node only becomes the parent
 * of a name that was made from it, so comparing ids would add nothing.
 * Return: CORE_NONE: the name is not in the index.
 */
u32 index_find_node(const struct core *c, u32 dom, const u64 *hash)
{
	u32 ref = *index_bucket(c, hash);

	for (; ref != CORE_NONE; ref = *ref_next(c, ref)) {
		const u64 *h = index_name(c, ref);

		if (index_domain(c, ref) == dom && h[0] == hash[0] &&
		    h[1] == hash[1])
			return index_node(c, ref);
	}
	return CORE_NONE;
}

/* ---- the tree ---- */

bool index_on_device(const struct core *c, u32 node)
{
	return !(c->nodes[node].ref & REF_ENTRY);
}

bool index_kid_on_device(const struct core *c, u32 node)
{
	u32 kid = c->nodes[node].kid;

	return kid != CORE_NONE && index_on_device(c, kid);
}

/* The head of the circle that a node is in, or enters. */
static u32 *kids_of(const struct core *c, const struct kv_node *n)
{
	if (n->parent != CORE_NONE)
		return &c->nodes[n->parent].kid;
	return &c->domains[index_domain(c, n->ref)].roots;
}

/* Enter the circle of children: device nodes first, the others last. */
static void kid_add(struct core *c, u32 node)
{
	struct kv_node *n = &c->nodes[node], *first;
	u32 *head = kids_of(c, n);

	KV_BUG_ON(n->parent != CORE_NONE &&
		  c->nodes[n->parent].ref == CORE_NONE);
	n->prev = node;
	n->next = node;
	if (*head != CORE_NONE) {
		first = &c->nodes[*head];
		KV_BUG_ON(c->nodes[first->prev].next != *head);
		n->next = *head;
		n->prev = first->prev;
		c->nodes[first->prev].next = node;
		first->prev = node;
	}
	if (*head == CORE_NONE || index_on_device(c, node))
		*head = node;
	if (n->parent != CORE_NONE)
		lru_settle(c, n->parent);
}

static void kid_del(struct core *c, u32 node)
{
	struct kv_node *n = &c->nodes[node];
	u32 *head = kids_of(c, n);

	KV_BUG_ON(*head == CORE_NONE);
	KV_BUG_ON(c->nodes[n->prev].next != node);
	KV_BUG_ON(c->nodes[n->next].prev != node);
	if (*head == node)
		*head = n->next == node ? CORE_NONE : n->next;
	c->nodes[n->prev].next = n->next;
	c->nodes[n->next].prev = n->prev;
	if (n->parent != CORE_NONE)
		lru_settle(c, n->parent);
}

static u32 node_new(struct core *c, u32 ref, u32 parent)
{
	u32 i = c->head->free_node;
	struct kv_node *n = &c->nodes[i];

	KV_BUG_ON(i == CORE_NONE);	/* one for each block and entry */
	KV_BUG_ON(!c->head->nr_free_nodes || n->ref != CORE_NONE);
	c->head->free_node = n->next;
	c->head->nr_free_nodes--;
	*n = (struct kv_node){ .parent = parent, .kid = CORE_NONE,
			       .ref = CORE_NONE };
	core_order();
	n->ref = ref;
	return i;
}

static void node_free(struct core *c, u32 node)
{
	KV_BUG_ON(c->nodes[node].kid != CORE_NONE);
	KV_BUG_ON(c->nodes[node].ref == CORE_NONE || c->nodes[node].flags);
	c->nodes[node].ref = CORE_NONE;
	c->nodes[node].next = c->head->free_node;
	c->head->free_node = node;
	c->head->nr_free_nodes++;
}

/* ---- insert, move between tiers, drop ---- */

/* Put a reference at the head of its bucket. */
static void ref_link(struct core *c, u32 ref)
{
	u32 *bucket = index_bucket(c, index_name(c, ref));
	struct kv_block *b;

	KV_BUG_ON(*ref_next(c, ref) != CORE_NONE || *bucket == ref);
	*ref_next(c, ref) = *bucket;
	*bucket = ref;
	if (ref & REF_ENTRY)
		return;
	b = &c->blocks[ref];
	KV_BUG_ON(b->flags & BLKF_INDEXED);
	b->flags |= BLKF_INDEXED;
	c->domains[b->domain].nr_indexed++;
	domain_kick(&c->domains[b->domain]);	/* a waiting sequence may need fewer blocks */
	core_count(c, CORE_EV_prefix_insert, 1);
}

/* index_rehash() - put the reference of a node into its bucket */
void index_rehash(struct core *c, u32 node)
{
	u32 ref = c->nodes[node].ref;
	u32 *bucket = index_bucket(c, index_name(c, ref));

	*ref_next(c, ref) = *bucket;
	*bucket = ref;
}

/*
 * index_relink() - put an unlinked node into its bucket and circle
 *
 * The fields of its block are complete but for BLKF_INDEXED.
 */
void index_relink(struct core *c, u32 node)
{
	ref_link(c, c->nodes[node].ref);
	kid_add(c, node);
}

/* Take a reference out of its bucket. */
static void ref_unlink(struct core *c, u32 ref)
{
	u32 *p = index_bucket(c, index_name(c, ref));

	while (*p != ref) {
		KV_BUG_ON(*p == CORE_NONE);
		p = ref_next(c, *p);
	}
	*p = *ref_next(c, ref);
	*ref_next(c, ref) = CORE_NONE;
	if (ref & REF_ENTRY)
		return;
	KV_BUG_ON(!c->domains[c->blocks[ref].domain].nr_indexed);
	c->domains[c->blocks[ref].domain].nr_indexed--;
}

/**
 * index_insert() - enter a sealed block; the index takes a reference
 * @blk:    its hash is set, and no block in the index has the same
 * @parent: node of the prefix before it; CORE_NONE: it is the first block
 * @fresh:  new tokens that its sequence computes
 * @retain: retention class
 *
 * Return: true when a ghost says that the name had been in the index before.
 */
bool index_insert(struct core *c, u32 blk, u32 parent, u32 fresh,
		  u32 retain)
{
	u32 node = node_new(c, blk, parent);
	bool known;

	KV_BUG_ON(c->blocks[blk].state != BLK_SEALED);
	KV_BUG_ON(parent != CORE_NONE && c->blocks[blk].domain !=
		  index_domain(c, c->nodes[parent].ref));
	core_crash(c, CORE_CRASH_index_insert);
	ref_link(c, blk);
	c->blocks[blk].node = node;
	known = lru_enter(c, node, fresh, retain);
	kid_add(c, node);
	names_settle(c, node);
	return known;
}

/**
 * index_move() - another tier holds the content of a name from now on
 * @from: old holder; a block keeps its reference until block_put_index()
 * @to:   new holder, of the same name
 */
void index_move(struct core *c, u32 from, u32 to)
{
	u32 node = index_node(c, from);

	KV_BUG_ON(node == CORE_NONE);
	KV_BUG_ON(index_domain(c, from) != index_domain(c, to));
	ref_unlink(c, from);
	ref_link(c, to);
	kid_del(c, node);
	if (to & REF_ENTRY)
		c->entries_low[to & ~REF_ENTRY].node = node;
	else
		c->blocks[to].node = node;
	core_order();
	c->nodes[node].ref = to;
	core_crash(c, CORE_CRASH_index_move);
	kid_add(c, node);
	names_settle(c, node);
}

static void name_drop(struct core *c, u32 ref)
{
	u32 node = index_node(c, ref);

	names_gone(c, node);
	lru_leave(c, node);
	ref_unlink(c, ref);
	kid_del(c, node);
	node_free(c, node);
	core_crash(c, CORE_CRASH_index_drop);
}

/* Trace an eviction.  @kept: a lower tier has the content. */
static void evict_tell(struct core *c, u32 blk, bool kept)
{
	u32 dom = c->blocks[blk].domain;

	core_tell(c, evict, .domain = dom, .block = blk, .kept = kept,
		  .taker = c->taker, .used = domain_used(&c->domains[dom]));
}

/* Drop a name without children, on any tier. */
static void leaf_drop(struct core *c, u32 node)
{
	u32 ref = c->nodes[node].ref;

	KV_BUG_ON(ref == CORE_NONE);
	if (ref & REF_ENTRY) {
		entry_drop(c, ref & ~REF_ENTRY);
		return;
	}
	if (c->blocks[ref].state == BLK_CACHED) {
		evict_tell(c, ref, false);
		lru_del(c, ref);
	}
	name_drop(c, ref);
	core_count(c, CORE_EV_prefix_evict, 1);
	block_put_index(c, ref);
}

/**
 * index_drop() - drop a name and all its descendants
 *
 * The caller drops the reference that the index held to @ref.
 */
void index_drop(struct core *c, u32 ref)
{
	u32 top = index_node(c, ref), i = top, parent;

	KV_BUG_ON(top == CORE_NONE);
	while (c->nodes[top].kid != CORE_NONE) {
		while (c->nodes[i].kid != CORE_NONE)
			i = c->nodes[i].kid;
		parent = c->nodes[i].parent;
		leaf_drop(c, i);
		i = parent;
	}
	name_drop(c, ref);
}

/**
 * index_evict_cost() - cached blocks that evicting @blk would free
 *
 * Its descendants are evicted with it, unless a lower tier keeps its name.
 */
u32 index_evict_cost(const struct core *c, u32 blk)
{
	u32 top = index_node(c, blk), i = top, nr = 0, e = c->blocks[blk].entry;

	if (e != CORE_NONE && entry_is_there(c, e))
		return 1;
	for (;;) {
		u32 ref = c->nodes[i].ref;

		nr += !(ref & REF_ENTRY) && c->blocks[ref].state == BLK_CACHED;
		if (c->nodes[i].kid != CORE_NONE) {
			i = c->nodes[i].kid;
			continue;
		}
		/* The last child of its parent: go back up. */
		while (i != top &&
		       c->nodes[i].next == c->nodes[c->nodes[i].parent].kid)
			i = c->nodes[i].parent;
		if (i == top)
			return nr;
		i = c->nodes[i].next;
	}
}

/**
 * index_evict() - free the memory of a cached block
 *
 * If a lower tier has the content, or is getting it, the index refers to that
 * copy from now on, and nothing is lost.  Else it must be computed again.
 */
void index_evict(struct core *c, u32 blk)
{
	struct kv_block *b = &c->blocks[blk];
	u32 e = b->entry;
	bool kept = e != CORE_NONE && entry_is_there(c, e);

	KV_BUG_ON(b->state != BLK_CACHED);
	KV_BUG_ON(b->nr_map);
	lru_del(c, blk);
	if (kept) {
		entry_index(c, e);
		/* The leaf leaves first, and is the first to be dropped below, too. */
		entry_touch(c, e);
		core_count(c, CORE_EV_demote_free, 1);
	} else {
		index_drop(c, blk);
		core_count(c, CORE_EV_prefix_evict, 1);
	}
	evict_tell(c, blk, kept);
	block_put_index(c, blk);
}
