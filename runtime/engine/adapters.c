// SPDX-License-Identifier: Apache-2.0
/*
 * adapters.c - adapters in the memory of the daemon
 *
 * An adapter that is in use needs memory where the kernels read it.  It gets blocks of the
 * daemon's pool, in a domain of its own beside that of the model.  To the daemon an adapter is
 * a prompt: 16 ids for each block, which are the digest of its numbers and the number of the
 * block.  So everything that is true of KV is true of adapters:
 *
 * - While requests run that name it, the adapter has an open sequence, and its blocks count as
 *   used.  Otherwise its blocks are cache.  They give way to KV of any domain that needs the
 *   memory, go down the tiers and come back.
 * - A runtime that is started again, or another one of the same model, finds it by its ids.
 * - The domain has limits and protection of its own, and the files of the daemon show it.
 *
 * Blocks that are not found are written from the adapter's file, a few between two steps, as
 * prompts are computed in chunks.
 *
 * A request is opened when its adapter is held.  So a request that waits for its adapter
 * has no memory yet, and an adapter never waits for the memory of its own requests.  An
 * adapter that is held and not used at once is closed, so that adapters that wait for memory
 * do not wait for each other.
 * The sequence of an adapter has the highest priority: it is never preempted for a request,
 * only for the domain's limits and by the sequence that has waited longest.  At most
 * ADAPTERS_ASKED adapters wait at once.
 *
 * A forward reads an adapter only while a step of this attachment is open that names it: only
 * then does the daemon leave its blocks in place.
 */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/engine/internal.h"

#define K_BYTES		65536u		/* most bytes of K of a token and head */
#define ADAPTERS_MAX	256u		/* adapters that are held at once */

static_assert(ADAPTER_DIGEST_LEN / 4 < ADAPTERS_IDS, "a digest and a number fit into a block's ids");

/* ---- the attachment ---- */

/* A block is ADAPTERS_IDS tokens of one layer, with K alone. */
static struct kvmm_group adapters_layout(u64 block_bytes)
{
	const u64 token = block_bytes / ADAPTERS_IDS;
	const u64 k = min(token, (u64)K_BYTES);

	return (struct kvmm_group){ .layers = 1, .kv_heads = (u32)(token / k), .k_bytes = (u32)k };
}

/* Content of one domain has one type and one size of blocks. */
static void adapters_identity(const struct engine *e, u64 block_bytes, u8 *out)
{
	const u32 type[2] = { e->info->dtype, e->info->mode };
	struct kvmm_identity id;

	kvmm_identity_init(&id);
	kvmm_identity_add(&id, "adapters", &block_bytes, sizeof(block_bytes));
	kvmm_identity_add(&id, "type", type, sizeof(type));
	kvmm_identity_final(&id, out);
}

static int adapters_attach(struct engine *e, const struct engine_opts *o, const char *domain,
			   struct engine_error *err)
{
	const struct engine_limits *l = &o->adapter_limits;
	struct adapters *a = &e->adapters;
	u8 identity[KVMM_IDENTITY_LEN];
	char name[KVMM_NAME_LEN], text[256] = "";
	struct kvmm_params p = {
		.socket = o->socket, .domain = name, .identity = identity,
		.block_tokens = ADAPTERS_IDS, .nr_groups = 1,
		.group = { adapters_layout(a->block_bytes) },
		.min_bytes = l->min, .low_bytes = l->low, .high_bytes = l->high,
		.max_bytes = l->max ? l->max : KVMM_LIMIT_MAX,
		.swap_max_bytes = l->swap_max, .weight = l->weight,
		.pool = l->pool ? l->pool : o->limits.pool,
		.max_seqs = ADAPTERS_MAX, .max_steps = 1, .spin = o->spin,
	};
	int ret;

	adapters_identity(e, a->block_bytes, identity);
	snprintf(name, sizeof(name), "%.*s" ADAPTERS_SUFFIX,
		 (int)(sizeof(name) - sizeof(ADAPTERS_SUFFIX)), domain);
	ret = kvmm_attach(&p, &a->k, text);
	if (ret == -EEXIST && !p.pool)
		return engine_refuse(err, ret, "domain %s is in use by adapters of another size: end what uses it, or give the same --max-lora-rank and --dtype",
				     name);
	return ret ? engine_refuse(err, ret, "%s", text) : 0;
}

int adapters_create(struct engine *e, const struct engine_opts *o, const char *domain,
		    struct engine_error *err)
{
	struct adapters *a = &e->adapters;
	struct model_error why;
	int ret;

	if (!o->max_rank)
		return 0;
	a->drop = o->drop_adapters;
	a->block_bytes = adapter_block_bytes(e->model, o->max_rank, &why);
	if (!a->block_bytes)
		return engine_refuse(err, -EOPNOTSUPP, "%s", why.text);
	ret = adapters_attach(e, o, domain, err);
	if (ret)
		return ret;
	a->max = min(kvmm_info(a->k)->max_seqs, kvmm_info(a->k)->max_batch);
	a->begin = calloc(a->max, sizeof(*a->begin));
	a->res = calloc(a->max, sizeof(*a->res));
	a->used = calloc(a->max, sizeof(*a->used));
	a->buffer = e->info->device_uuid ? malloc(a->block_bytes) : NULL;
	if (!a->begin || !a->res || !a->used || (e->info->device_uuid && !a->buffer))
		return engine_refuse(err, -ENOMEM, "no memory for adapters");
	return 0;
}

bool adapters_dead(const struct engine *e)
{
	return e->adapters.k && !kvmm_alive(e->adapters.k);
}

/* ---- slots ---- */

static void slot_free(struct slot *s)
{
	list_del(&s->list);
	free(s->place.pair);
	free(s->blocks);
	free(s->table);
	free(s->ids);
	free(s);
}

void adapters_free(struct engine *e)
{
	struct adapters *a = &e->adapters;
	struct list *it, *tmp;

	list_for_each(&a->slots, it, tmp)
		slot_free(list_entry(it, struct slot, list));
	kvmm_detach(a->k);
	free(a->buffer);
	free(a->used);
	free(a->res);
	free(a->begin);
}

static struct slot *slot_find(const struct adapters *a, const struct adapter *ad)
{
	struct list *it, *tmp;

	list_for_each(&a->slots, it, tmp) {
		struct slot *s = list_entry(it, struct slot, list);

		if (s->adapter == ad)
			return s;
	}
	return NULL;
}

/* The names of all blocks. */
static void slot_name(struct slot *s)
{
	const u8 *digest = adapter_info(s->adapter)->digest;
	u32 i, *ids;

	for (i = 0; i < s->nr_blocks; i++) {
		ids = s->ids + (size_t)i * ADAPTERS_IDS;
		memcpy(ids, digest, ADAPTER_DIGEST_LEN);
		ids[ADAPTER_DIGEST_LEN / 4] = i;
	}
}

static struct slot *slot_create(struct engine *e, struct adapter *ad)
{
	struct adapters *a = &e->adapters;
	struct slot *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	list_add_tail(&a->slots, &s->list);
	s->adapter = ad;
	s->nr_blocks = adapter_blocks(ad, a->block_bytes);
	s->ids = calloc((size_t)s->nr_blocks * ADAPTERS_IDS, sizeof(*s->ids));
	s->blocks = calloc(s->nr_blocks, sizeof(*s->blocks));
	s->table = calloc(s->nr_blocks, sizeof(*s->table));
	s->place.pair = calloc(adapter_pairs(e->model), sizeof(*s->place.pair));
	if (s->ids && s->blocks && s->table && s->place.pair) {
		slot_name(s);
		return s;
	}
	slot_free(s);
	return NULL;
}

/* Prompts of one adapter are found by its own requests alone. */
static u64 slot_salt(const struct slot *s, u64 salt)
{
	const u8 *digest = adapter_info(s->adapter)->digest;
	u8 out[KVMM_IDENTITY_LEN];
	struct kvmm_identity id;

	kvmm_identity_init(&id);
	kvmm_identity_add(&id, "adapter", digest, ADAPTER_DIGEST_LEN);
	kvmm_identity_add(&id, "salt", &salt, sizeof(salt));
	kvmm_identity_final(&id, out);
	memcpy(&salt, out, sizeof(salt));
	return salt + !salt;
}

int adapters_get(struct engine *e, struct request *r)
{
	struct slot *s;

	if (!r->c.adapter)
		return 0;
	s = slot_find(&e->adapters, r->c.adapter);
	if (!s)
		s = slot_create(e, r->c.adapter);
	if (!s)
		return -ENOMEM;
	s->nr++;
	r->slot = s;
	r->c.salt = slot_salt(s, r->c.salt);
	return 0;
}

void adapters_put(struct engine *e, struct request *r)
{
	struct slot *s = r->slot;

	if (!s)
		return;
	r->slot = NULL;
	s->nr--;
	s->alive -= r->holds;
	s->wanted &= s->nr > s->alive;
}

void adapters_opened(struct request *r)
{
	if (!r->slot)
		return;
	r->holds = true;
	r->slot->alive++;
}

/*
 * An adapter that was asked for stays asked for.  One that is held, and of which the queue opens
 * no request now, would stand in the way of others.
 */
void adapters_look(struct engine *e)
{
	struct list *it, *tmp;

	list_for_each(&e->adapters.slots, it, tmp) {
		struct slot *s = list_entry(it, struct slot, list);

		s->wanted &= s->state == SLOT_ASKED || s->state == SLOT_FILLING;
	}
}

void adapters_want(struct request *r)
{
	r->slot->wanted = true;
}

bool adapters_hold(const struct request *r)
{
	return !r->slot || r->slot->state == SLOT_HELD;
}

int engine_adapter_forget(struct engine *e, struct adapter *ad)
{
	struct slot *s = slot_find(&e->adapters, ad);

	if (!s)
		return 0;
	if (s->nr)
		return -EBUSY;
	if (s->state != SLOT_IDLE)
		(void)!kvmm_seq_close(e->adapters.k, &s->seq, 1);
	slot_free(s);
	return 0;
}
