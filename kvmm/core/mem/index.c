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
 * resident sequence maps is CACHED; lru.c says which of those goes next.
 *
 * Names are nodes of a tree: a name's parent is the prefix that is one block
 * shorter.  The tree is closed: whatever is in the index, all that comes
 * before it is too, on one tier or another, for a lookup that finds a gap
 * never gets behind it.  So what is dropped takes with it whatever it has
 * below, the leaves first; lru.c sees to it that this is seldom anything that
 * is in use.  A name keeps its node when its content moves between tiers.
 * The kids of a node are a circle, those on the device before the others and
 * the newest first, so that one look at the first tells whether the device has
 * any.  So are the roots of a domain, whatever their salt.
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
	return &c->buckets[(hash[0] >> 32) * core_sizes(c)->nr_buckets >> 32];
}

/* ---- what a reference says, of either kind ---- */

/* The name of what a reference refers to, CORE_NONE: not in the index. */
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

/* The ids lie beside the content, wherever that is. */
const u32 *index_ids(const struct core *c, u32 ref)
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
		const u64 *h = index_name(c, ref);

		if (index_domain(c, ref) == dom && h[0] == hash[0] &&
		    h[1] == hash[1] && !memcmp(index_ids(c, ref), ids,
					4 * c->domains[dom].block_tokens))
			return ref;
	}
	return CORE_NONE;
}

/**
 * index_find_node() - the node of @dom with this name
 *
 * For a prefix whose ids nobody has any more.  It is only to be the parent of
 * a name that was made of it, so ids would tell nothing more.
 * Return: CORE_NONE: the name is not in the index, or no more.
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

/* The first of the circle that a node is in, or enters. */
static u32 *kids_of(const struct core *c, const struct kv_node *n)
{
	if (n->parent != CORE_NONE)
		return &c->nodes[n->parent].kid;
	return &c->domains[index_domain(c, n->ref)].roots;
}

/* Enter the circle of its parent's kids, at the end that its tier wants. */
static void kid_add(struct core *c, u32 node)
{
	struct kv_node *n = &c->nodes[node], *first;
	u32 *head = kids_of(c, n);

	n->prev = node;
	n->next = node;
	if (*head != CORE_NONE) {
		first = &c->nodes[*head];
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
	c->nodes[node].ref = CORE_NONE;
	c->nodes[node].next = c->head->free_node;
	c->head->free_node = node;
	c->head->nr_free_nodes++;
}

/* ---- in, between tiers, out ---- */

/* Put a reference at the head of its bucket. */
static void ref_link(struct core *c, u32 ref)
{
	u32 *bucket = index_bucket(c, index_name(c, ref));
	struct kv_block *b;

	*ref_next(c, ref) = *bucket;
	*bucket = ref;
	if (ref & REF_ENTRY)
		return;
	b = &c->blocks[ref];
	KV_BUG_ON(b->flags & BLKF_INDEXED);
	b->flags |= BLKF_INDEXED;
	c->domains[b->domain].nr_indexed++;
	domain_kick(&c->domains[b->domain]);	/* one that waits may need less */
	core_count(c, CORE_EV_prefix_insert, 1);
}

/* index_rehash() - put what a node stands for into its bucket */
void index_rehash(struct core *c, u32 node)
{
	u32 ref = c->nodes[node].ref;
	u32 *bucket = index_bucket(c, index_name(c, ref));

	*ref_next(c, ref) = *bucket;
	*bucket = ref;
}

/*
 * index_relink() - put a node that is in nothing into its bucket and circle
 *
 * What it stands for has all but BLKF_INDEXED.
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
	if (!(ref & REF_ENTRY))
		c->domains[c->blocks[ref].domain].nr_indexed--;
}

/**
 * index_insert() - enter a sealed block; the index takes a reference
 * @blk:    its hash is set, and no block has the same
 * @parent: node of the prefix before it, CORE_NONE: it is the first
 * @fresh:  tokens that its sequence computes and that are new
 * @retain: class of retention
 *
 * Return: whether the name had been in the index before, as far as is known.
 */
bool index_insert(struct core *c, u32 blk, u32 parent, u32 fresh,
		  u32 retain)
{
	u32 node = node_new(c, blk, parent);
	bool known;

	core_crash(c, CORE_CRASH_index_insert);
	ref_link(c, blk);
	c->blocks[blk].node = node;
	known = lru_enter(c, node, fresh, retain);
	kid_add(c, node);
	return known;
}

/**
 * index_move() - another tier stands for a name from now on
 * @from: who did; a block keeps its reference until block_put_index()
 * @to:   who does; equal in name
 */
void index_move(struct core *c, u32 from, u32 to)
{
	u32 node = index_node(c, from);

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
}

static void name_drop(struct core *c, u32 ref)
{
	u32 node = index_node(c, ref);

	lru_leave(c, node);
	ref_unlink(c, ref);
	kid_del(c, node);
	node_free(c, node);
	core_crash(c, CORE_CRASH_index_drop);
}

/* Whoever looks is told: a cached block goes.  @kept: a lower tier has it. */
static void evict_tell(struct core *c, u32 blk, bool kept)
{
	u32 dom = c->blocks[blk].domain;

	core_trace(c, evict, dom, blk, kept);
	KV_PROBE(kvmm, evict, dom, c->taker, blk, kept,
		 domain_used(&c->domains[dom]));
}

/* Forget a name that has no kids, whoever has its content. */
static void leaf_drop(struct core *c, u32 node)
{
	u32 ref = c->nodes[node].ref;

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
 * index_drop() - forget a name and all that it has below
 *
 * The caller lets go of the reference that the index had.
 */
void index_drop(struct core *c, u32 ref)
{
	u32 top = index_node(c, ref), i = top, parent;

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
 * Those after it go with it, unless a lower tier keeps its name.
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
		/* The last of a circle of kids: back to their parent. */
		while (i != top &&
		       c->nodes[i].next == c->nodes[c->nodes[i].parent].kid)
			i = c->nodes[i].parent;
		if (i == top)
			return nr;
		i = c->nodes[i].next;
	}
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
	bool kept = e != CORE_NONE && entry_is_there(c, e);

	KV_BUG_ON(b->state != BLK_CACHED);
	lru_del(c, blk);
	if (kept) {
		entry_index(c, e);
		core_count(c, CORE_EV_demote_free, 1);
	} else {
		index_drop(c, blk);
		core_count(c, CORE_EV_prefix_evict, 1);
	}
	evict_tell(c, blk, kept);
	block_put_index(c, blk);
}
