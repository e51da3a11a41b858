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
 *	IDLE --> ASKED --> FILLING --> HELD
 *	           ^----------+---------+	the daemon has taken its memory
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

#define BLOCK_IDS	KVMM_MIN_BLOCK_TOKENS
#define K_BYTES		65536u		/* most bytes of K of a token and head */
#define ADAPTERS_ASKED	2u		/* adapters that wait for memory at once */
#define ADAPTERS_MAX	256u		/* adapters that are held at once */
#define SLOT_POLLS	2u		/* times seen waiting: memory is short */
#define FILL_BYTES	(4u << 20)	/* written between two steps */

static_assert(ADAPTER_DIGEST_LEN / 4 < BLOCK_IDS, "a digest and a number fit into a block's ids");

/* ---- the attachment ---- */

/* A block is BLOCK_IDS tokens of one layer, with K alone. */
static struct kvmm_group adapters_layout(u64 block_bytes)
{
	const u64 token = block_bytes / BLOCK_IDS;
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
		.block_tokens = BLOCK_IDS, .nr_groups = 1,
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
		ids = s->ids + (size_t)i * BLOCK_IDS;
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
	s->ids = calloc((size_t)s->nr_blocks * BLOCK_IDS, sizeof(*s->ids));
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

/* An adapter that was asked for stays asked for. */
void adapters_look(struct engine *e)
{
	struct list *it, *tmp;

	list_for_each(&e->adapters.slots, it, tmp) {
		struct slot *s = list_entry(it, struct slot, list);

		s->wanted &= s->state == SLOT_ASKED || s->state == SLOT_FILLING;
		s->offered = s->state == SLOT_HELD;
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

/* End all requests that name the adapter. */
static void slot_fail(struct engine *e, struct slot *s, int err, const char *what)
{
	const char *dir = adapter_info(s->adapter)->dir;
	struct engine_done why = { .reason = ENGINE_ERROR, .err = err };
	char text[400];
	struct request *r;

	snprintf(text, sizeof(text), "adapter %.200s: %s", dir, what);
	why.text = text;
	while ((r = request_of_slot(e, s)))
		request_over(e, r, &why);
	s->wanted = false;
}

/* ---- the next step of a slot ---- */

/* The sequence is closed; blocks with content stay as cache. */
static int slot_close(struct adapters *a, struct slot *s)
{
	const struct kvmm_advise_arg drop = { .seq = s->seq, .advice = KVMM_ADV_DONTNEED,
					      .value = KVMM_DONTNEED_FOUND };
	struct kvmm_seq_res res;
	int ret;

	if (a->drop)
		(void)!kvmm_seq_advise(a->k, &drop, 1, &res);
	ret = kvmm_seq_close(a->k, &s->seq, 1);

	s->state = SLOT_IDLE;
	s->waits = 0;
	s->seq = 0;
	return ret == -ECONNRESET ? ret : 0;
}

static int slot_match(struct adapters *a, struct slot *s)
{
	const int ret = kvmm_seq_match(a->k, s->seq, s->ids, s->nr_blocks * BLOCK_IDS);

	/* -EAGAIN: the daemon has no room for the ids now. */
	s->matched = !ret;
	return ret == -ECONNRESET ? ret : 0;
}

/* Why the daemon refuses an adapter memory, as seq_refused() says it of KV. */
static const char *slot_refusal(int err)
{
	switch (err) {
	case -E2BIG:
		return "it can never fit: give the domain of the adapters or the pool more";
	case -EDQUOT:
		return "it no longer fits: give the domain of the adapters or the pool more";
	case -ENODEV:
		return "kvmm has lost what the GPU's memory held: see its log";
	case -ESHUTDOWN:
		return "kvmm is being drained: nothing new begins until its operator ends that";
	default:
		return strerror(-err);
	}
}

static int slot_open(struct engine *e, struct slot *s)
{
	struct adapters *a = &e->adapters;
	const struct kvmm_open_arg arg = {
		.prompt_len = s->nr_blocks * BLOCK_IDS, .priority = UINT32_MAX,
		.flags = KVMM_OPEN_WHOLE_BLOCKS | KVMM_OPEN_WHOLE_PROMPT,
	};
	struct kvmm_open_res res = { 0 };
	int ret = kvmm_seq_open(a->k, &arg, 1, &res);

	if (ret == -ECONNRESET)
		return ret;
	ret = ret ? ret : res.status;
	if (ret == -EAGAIN || ret == -ENOSPC || ret == -EBUSY)
		return 0;
	if (ret) {
		slot_fail(e, s, ret, slot_refusal(ret));
		return 0;
	}
	s->seq = res.seq;
	s->state = SLOT_ASKED;
	return slot_match(a, s);
}

/* The sequence is READY: take over its valid blocks. */
static void slot_adopt(struct engine *e, struct slot *s, const struct kvmm_seq_status *st)
{
	s->epoch = st->seq_epoch;
	s->waits = 0;
	s->valid = min(st->valid_len / BLOCK_IDS, s->nr_blocks);
	e->stats.adapter_blocks_found += s->valid;
	s->state = SLOT_FILLING;
}

/* Where its blocks are: 0 or -EAGAIN. */
static int slot_locate(struct adapters *a, struct slot *s)
{
	u32 i;

	s->located = false;
	if (kvmm_seq_table(a->k, s->seq, 0, 0, s->nr_blocks, s->table))
		return -EAGAIN;
	for (i = 0; i < s->nr_blocks; i++)
		s->blocks[i] = kvmm_block(a->k, s->table[i], 0);
	adapter_locate(s->adapter, a->block_bytes, s->blocks, &s->place);
	s->located = true;
	return 0;
}

static int slot_write(struct engine *e, const struct slot *s, u32 block, u32 entry)
{
	struct adapters *a = &e->adapters;
	void *to = kvmm_block(a->k, entry, 0);
	int ret;

	if (!to)
		return -EIO;
	ret = adapter_write(s->adapter, a->block_bytes, block, a->buffer ? a->buffer : to);
	if (!ret && a->buffer)
		ret = model_put(e->model, to, a->buffer, a->block_bytes);
	return ret;
}

/* Write @nr blocks of the step that is open. */
static int slot_write_some(struct engine *e, struct slot *s, u32 nr)
{
	int ret;
	u32 i;

	if (kvmm_seq_table(e->adapters.k, s->seq, 0, s->valid, nr, s->table + s->valid))
		return -EAGAIN;
	for (i = 0; i < nr; i++) {
		ret = slot_write(e, s, s->valid + i, s->table[s->valid + i]);
		if (ret)
			return ret;
	}
	return 0;
}

/*
 * End the step that has written @nr blocks in @ns; 0: none of them counts.  So the daemon
 * learns the cost of loading a block, as it learns that of computing a token of KV.
 */
static int slot_written(struct engine *e, struct slot *s, u32 nr, u64 ns)
{
	struct adapters *a = &e->adapters;
	const struct kvmm_end_arg arg = { .seq = s->seq, .valid_len = (s->valid + nr) * BLOCK_IDS,
					  .nr_ids = nr * BLOCK_IDS };
	struct kvmm_end_res res = { 0 };
	int ret = kvmm_step_end(a->k, a->step, ns, nr * BLOCK_IDS, &arg, nr ? 1 : 0,
				s->ids + (size_t)s->valid * BLOCK_IDS, &res);

	if (ret == -ECONNRESET)
		return ret;
	if (ret || res.status || !nr) {
		s->state = SLOT_ASKED;
		return 0;
	}
	s->valid += nr;
	e->stats.adapter_blocks_read += nr;
	return 0;
}

/* Write some blocks that have no content yet. */
static int slot_fill(struct engine *e, struct slot *s)
{
	struct adapters *a = &e->adapters;
	const u32 nr = min(s->nr_blocks - s->valid, max((u32)(FILL_BYTES / a->block_bytes), 1u));
	const struct kvmm_begin_arg arg = { .seq = s->seq, .seq_epoch = s->epoch,
					    .start = s->valid * BLOCK_IDS,
					    .max_tokens = nr * BLOCK_IDS };
	const s64 begun = engine_now();
	struct kvmm_begin_res res = { 0 };
	int ret = kvmm_step_begin(a->k, ++a->step, &arg, 1, &res), err;

	if (ret)
		return ret == -ECONNRESET ? ret : 0;
	err = res.status ? -EAGAIN : slot_write_some(e, s, nr);
	ret = slot_written(e, s, err ? 0 : nr, (u64)(engine_now() - begun));
	if (!ret && err && err != -EAGAIN) {
		slot_fail(e, s, err, err == -EIO ? "its file was cut or changed while it was served" :
			  strerror(-err));
		return slot_close(a, s);
	}
	return ret;
}

static int slot_poll(struct engine *e, struct slot *s)
{
	struct adapters *a = &e->adapters;
	struct kvmm_seq_status st;
	int ret = kvmm_seq_status(a->k, s->seq, &st);

	if (ret == -ECONNRESET || ret == -EAGAIN)
		return 0;	/* the next daemon rewrites the record */
	if (ret) {
		s->state = SLOT_IDLE;
		s->waits = 0;
		return 0;
	}
	switch (st.state) {
	case KVMM_SEQ_READY:
		if (s->state == SLOT_ASKED || s->epoch != st.seq_epoch)
			slot_adopt(e, s, &st);
		return 0;
	case KVMM_SEQ_FAILED:
		slot_fail(e, s, st.reason, slot_refusal(st.reason));
		return slot_close(a, s);
	case KVMM_SEQ_RECOMPUTE:
		s->state = SLOT_ASKED;
		return slot_match(a, s);
	case KVMM_SEQ_WAITING:
		s->state = SLOT_ASKED;
		s->waits++;
		return s->matched ? 0 : slot_match(a, s);
	default:
		s->state = SLOT_ASKED;
		return 0;
	}
}

/*
 * Has a request use for it?  If it is held, and the queue has opened none of its requests,
 * it stands in the way of others.
 */
static bool slot_is_wanted(const struct slot *s)
{
	return s->alive || (s->wanted && !(s->state == SLOT_HELD && s->offered));
}

static void slot_hold(struct slot *s)
{
	s->state = SLOT_HELD;
	s->offered = false;
}

static int slot_advance(struct engine *e, struct slot *s, u32 *asked)
{
	struct adapters *a = &e->adapters;
	int ret = 0;

	if (!slot_is_wanted(s))
		return s->state == SLOT_IDLE ? 0 : slot_close(a, s);
	if (s->state == SLOT_IDLE) {
		if (*asked >= ADAPTERS_ASKED && !s->alive)
			return 0;
		ret = slot_open(e, s);
	}
	if (!ret && s->state != SLOT_IDLE)
		ret = slot_poll(e, s);
	if (!ret && s->state == SLOT_FILLING && s->valid < s->nr_blocks)
		ret = slot_fill(e, s);
	if (!ret && s->state == SLOT_FILLING && s->valid == s->nr_blocks && !slot_locate(a, s))
		slot_hold(s);
	*asked += s->state == SLOT_ASKED || s->state == SLOT_FILLING;
	return ret;
}

int adapters_advance(struct engine *e)
{
	struct adapters *a = &e->adapters;
	struct list *it, *tmp;
	u32 asked = 0;
	int ret;

	if (!a->k || list_empty(&a->slots))
		return 0;
	ret = kvmm_poll_extents(a->k);
	if (ret < 0)
		return ret;
	list_for_each(&a->slots, it, tmp) {
		ret = slot_advance(e, list_entry(it, struct slot, list), &asked);
		if (ret)
			return ret;
	}
	return 0;
}

bool adapters_wait(const struct engine *e)
{
	struct list *it, *tmp;

	list_for_each(&e->adapters.slots, it, tmp)
		if (list_entry(it, struct slot, list)->waits > SLOT_POLLS)
			return true;
	return false;
}

bool adapters_come(const struct engine *e)
{
	struct list *it, *tmp;

	list_for_each(&e->adapters.slots, it, tmp) {
		const struct slot *s = list_entry(it, struct slot, list);

		if (slot_is_wanted(s) && s->state != SLOT_HELD)
			return true;
	}
	return false;
}

/* ---- steps ---- */

/* The adapters of the running entries, each once. */
static u32 step_slots(struct adapters *a, const struct step *st)
{
	u32 i, j, nr = 0;

	for (i = 0; i < st->nr; i++) {
		struct slot *s = st->entries[i].runs ? st->entries[i].seq->req->slot : NULL;

		for (j = 0; s && j < nr && a->used[j] != s; j++)
			;
		if (!s || j < nr)
			continue;
		s->granted = false;
		if (s->state == SLOT_HELD && nr < a->max)
			a->used[nr++] = s;
	}
	return nr;
}

/* Look again where blocks are if the daemon may have moved them: 0 or -EAGAIN. */
static int slot_moved(struct adapters *a, struct slot *s, const struct kvmm_begin_res *res)
{
	return s->located && res->table_lo >= s->nr_blocks ? 0 : slot_locate(a, s);
}

/* Is there no adapter, or one that the step keeps in place? */
static bool entry_is_served(const struct entry *en)
{
	const struct slot *s = en->seq->req->slot;

	return !s || s->granted;
}

int adapters_begin(struct engine *e, struct step *st)
{
	struct adapters *a = &e->adapters;
	const u32 nr = a->k ? step_slots(a, st) : 0;
	u32 i;
	int ret;

	for (i = 0; i < nr; i++)
		a->begin[i] = (struct kvmm_begin_arg){
			.seq = a->used[i]->seq, .seq_epoch = a->used[i]->epoch,
			.start = a->used[i]->nr_blocks * BLOCK_IDS };
	if (nr) {
		ret = kvmm_step_begin(a->k, ++a->step, a->begin, nr, a->res);
		if (ret == -ECONNRESET)
			return ret;
		a->open = !ret;
		(void)kvmm_resumed(a->k, &a->salvaged);
	}
	for (i = 0; i < nr && a->open; i++)
		a->used[i]->granted = !a->res[i].status && !slot_moved(a, a->used[i], &a->res[i]);
	for (i = 0; i < st->nr; i++)
		st->entries[i].runs = st->entries[i].runs && entry_is_served(&st->entries[i]);
	return 0;
}

int adapters_end(struct engine *e, struct step *st)
{
	struct adapters *a = &e->adapters;
	u32 salvaged = 0, i;
	int ret;

	if (!a->open)
		return 0;
	a->open = false;
	ret = kvmm_confirm(a->k);
	if (ret)
		return ret;
	(void)kvmm_resumed(a->k, &salvaged);
	for (i = 0; salvaged != a->salvaged && i < st->nr; i++) {
		struct entry *en = &st->entries[i];

		if (!en->runs || !en->seq->req->slot)
			continue;
		en->runs = false;
		entry_void(e, en);
	}
	ret = kvmm_step_end(a->k, a->step, 0, 0, NULL, 0, NULL, NULL);
	return ret == -ECONNRESET ? ret : 0;
}
