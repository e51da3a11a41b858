// SPDX-License-Identifier: Apache-2.0
/*
 * objects.c - a store of objects, made of the verbs for sequences
 *
 * An object is a prompt of KVMM_MIN_BLOCK_TOKENS ids: the words of its key, and zeros.
 * The domain has blocks of as many tokens.  The daemon compares all ids when it finds a
 * block, so keys are compared, not hashes of them.
 *
 * A held object is a sequence in an open step, since only that keeps its block in place:
 * one that only reads for kvmm_objects_get(), one that writes for kvmm_objects_create().  An
 * array of objects is one step.
 */
#include <uapi/kvmm.h>
#include <libkvmm_objects.h>

#include "runtime/libkvmm/internal.h"

#define TOKENS		KVMM_MIN_BLOCK_TOKENS	/* of an object */
#define KEY_WORDS	(KVMM_KEY_LEN / 4)
#define FIND_BATCH	32u		/* keys of one request */
#define K_BYTES		65536u		/* most bytes of K of a token and head */
#define HEADS		4096u
#define RETRY_NS	2000000		/* between two tries of a step */

static_assert(KEY_WORDS <= TOKENS, "a key fits into a block's ids");

static void key_ids(const struct kvmm_key *key, u32 *ids)
{
	memset(ids, 0, TOKENS * sizeof(*ids));
	memcpy(ids, key->byte, KVMM_KEY_LEN);
}

int kvmm_objects_layout(struct kvmm_params *p, u64 bytes)
{
	u64 token = bytes / TOKENS, k;

	if (!bytes || bytes % 4096 || token > (u64)K_BYTES * HEADS)
		return -EINVAL;
	/* One head of the largest power of two that divides the bytes of a token. */
	k = min(token & -token, (u64)K_BYTES);
	if (token / k > HEADS)
		return -EINVAL;
	p->block_tokens = TOKENS;
	p->nr_groups = 1;
	p->step_tokens = TOKENS;
	p->group[0] = (struct kvmm_group){ .layers = 1, .kv_heads = (u32)(token / k),
					   .k_bytes = (u32)k };
	return 0;
}

/* ---- find ---- */

static int find_some(struct kvmm *k, const struct kvmm_key *keys, u32 nr, u8 *tier)
{
	struct kvmm_lookup_res res[FIND_BATCH];
	struct kvmm_lookup_arg *arg;
	struct lk_verb v;
	u32 i, *ids;
	int ret;

	ret = lk_verb_prep(k, &v, KVMM_OP_SEQ_LOOKUP, nr,
			   nr * (sizeof(*arg) + TOKENS * sizeof(u32)));
	if (ret)
		return ret;
	arg = v.args;
	ids = (u32 *)(arg + nr);
	for (i = 0; i < nr; i++) {
		arg[i] = (struct kvmm_lookup_arg){ .nr_ids = TOKENS, .flags = KVMM_LOOKUP_LAST };
		key_ids(&keys[i], ids + i * TOKENS);
	}
	ret = lk_verb_run(k, &v, res, nr);
	for (i = 0; !ret && i < nr; i++) {
		ret = res[i].status;
		tier[i] = !ret && res[i].found == TOKENS ? (u8)res[i].run[0].tier : KVMM_TIER_NONE;
	}
	return ret;
}

int kvmm_objects_find(struct kvmm *k, const struct kvmm_key *keys, u32 nr, u8 *tier)
{
	int ret = 0;
	u32 i, n;

	for (i = 0; !ret && i < nr; i += n) {
		n = min(nr - i, FIND_BATCH);
		ret = find_some(k, keys + i, n, tier + i);
	}
	return ret;
}

int kvmm_object_lease(struct kvmm *k, const struct kvmm_key *key, u32 ms, const char *label,
		      struct kvmm_lease_res *res)
{
	struct kvmm_found found;
	u32 ids[TOKENS];
	int ret;

	key_ids(key, ids);
	ret = kvmm_lookup(k, 0, ids, TOKENS, &found);
	if (!ret && found.found != TOKENS)
		ret = -ENOENT;
	return ret ? ret : kvmm_lease(k, 0, &found, ms, label, res);
}

/* ---- sequences ---- */

/* Close the sequence of each object whose @status is not 0, or of all. */
static int close_some(struct kvmm *k, struct kvmm_object *obj, u32 nr, bool all)
{
	u64 seqs[KVMM_OBJECTS_MAX];
	u32 i, n = 0;
	int ret;

	for (i = 0; i < nr; i++) {
		if (!obj[i].seq || (!all && !obj[i].status))
			continue;
		seqs[n++] = obj[i].seq;
		obj[i].seq = 0;
		obj[i].addr = NULL;
	}
	ret = n ? kvmm_seq_close(k, seqs, n) : 0;
	return ret == -ECONNRESET ? ret : 0;
}

/* Open a sequence for each object with @status 0. */
static int open_some(struct kvmm *k, struct kvmm_object *obj, u32 nr)
{
	struct kvmm_open_arg arg[KVMM_OBJECTS_MAX];
	struct kvmm_open_res res[KVMM_OBJECTS_MAX];
	u32 i, n = 0;
	int ret;

	for (i = 0; i < nr; i++)
		if (!obj[i].status)
			arg[n++] = (struct kvmm_open_arg){
				.prompt_len = TOKENS,
				.flags = KVMM_OPEN_WHOLE_BLOCKS | KVMM_OPEN_WHOLE_PROMPT };
	ret = n ? kvmm_seq_open(k, arg, n, res) : 0;
	for (i = 0, n = 0; !ret && i < nr; i++) {
		if (obj[i].status)
			continue;
		obj[i].seq = res[n].status ? 0 : res[n].seq;
		obj[i].status = res[n].status == -ENOSPC ? -EAGAIN : res[n].status;
		n++;
	}
	return ret;
}

/* Send the ids of the open ones. */
static int match_some(struct kvmm *k, struct kvmm_object *obj, u32 nr)
{
	struct kvmm_seq_res res[KVMM_OBJECTS_MAX];
	struct kvmm_match_arg *arg;
	struct lk_verb v;
	u32 i, n = 0, at = 0, *ids;
	int ret;

	for (i = 0; i < nr; i++)
		n += !obj[i].status;
	if (!n)
		return 0;
	ret = lk_verb_prep(k, &v, KVMM_OP_SEQ_MATCH, n,
			   n * (sizeof(*arg) + TOKENS * sizeof(u32)));
	if (ret)
		return ret;
	arg = v.args;
	ids = (u32 *)(arg + n);
	for (i = 0; i < nr; i++) {
		if (obj[i].status)
			continue;
		arg[at] = (struct kvmm_match_arg){ .seq = obj[i].seq, .nr_ids = TOKENS,
						   .flags = KVMM_MATCH_LAST };
		key_ids(&obj[i].key, ids + at++ * TOKENS);
	}
	ret = lk_verb_run(k, &v, res, n);
	for (i = 0, at = 0; !ret && i < nr; i++)
		if (!obj[i].status)
			obj[i].status = res[at++].status;
	return ret;
}

/* Wait until the sequence has its memory and content.  @status: -EAGAIN: not in time. */
static int await_one(struct kvmm *k, struct kvmm_object *o, s64 until, struct kvmm_seq_status *st)
{
	s64 left;
	int ret;

	for (;;) {
		ret = kvmm_seq_status(k, o->seq, st);
		if (ret == -ENOENT) {	/* the daemon died, and did not keep it */
			o->status = -EAGAIN;
			return 0;
		}
		if (ret)
			return ret;
		if (st->state == KVMM_SEQ_READY)
			return 0;
		left = until - lk_now();
		if (left <= 0 || (st->state != KVMM_SEQ_WAITING &&
				  st->state != KVMM_SEQ_RESTORING)) {
			o->status = st->state == KVMM_SEQ_FAILED ? st->reason : -EAGAIN;
			return 0;
		}
		ret = kvmm_wait(k, min(left, (s64)RETRY_NS * 5));
		if (ret && ret != -ETIMEDOUT)
			return ret;
	}
}

/* Open, match and await all; with @found the objects are to be there, else not. */
static int admit_some(struct kvmm *k, struct kvmm_object *obj, u32 nr, s64 until, bool found)
{
	struct kvmm_seq_status st;
	u32 i;
	int ret;

	ret = open_some(k, obj, nr);
	if (!ret)
		ret = match_some(k, obj, nr);
	for (i = 0; !ret && i < nr; i++) {
		if (obj[i].status)
			continue;
		ret = await_one(k, &obj[i], until, &st);
		if (ret || obj[i].status)
			continue;
		if ((st.valid_len == TOKENS) != found)
			obj[i].status = found ? -ENOENT : -EEXIST;
		obj[i].mark = st.seq_epoch;	/* until the step is begun */
	}
	return ret;
}

/* ---- steps ---- */

static bool is_over(const struct kvmm *k, u64 step)
{
	u32 i;

	for (i = 0; i < k->nr_over; i++)
		if (k->over[i] == step)
			return true;
	return false;
}

/*
 * A step that writes nothing is over; 0: another one was ended.  The daemon ends steps in
 * their order, so it is ended after those that began before it.  After a salvage the library
 * knows of no old step.
 */
static int step_over(struct kvmm *k, u64 step)
{
	u64 over[KVMM_MAX_STEPS];
	u32 i, nr = 0;
	int ret = 0;

	for (i = 0; i < k->nr_steps; i++)
		if (k->step[i] == step || is_over(k, k->step[i]))
			over[nr++] = k->step[i];
	memcpy(k->over, over, nr * sizeof(*over));
	k->nr_over = nr;
	while (!ret && k->nr_steps && is_over(k, k->step[0]))
		ret = kvmm_step_end(k, k->step[0], 0, 0, NULL, 0, NULL, NULL);
	return ret;
}

/* One step for the objects that have no address yet.  Return: how many it has. */
static int begin_some(struct kvmm *k, struct kvmm_object *obj, u32 nr, bool reads, u32 *held)
{
	struct kvmm_begin_arg arg[KVMM_OBJECTS_MAX];
	struct kvmm_begin_res res[KVMM_OBJECTS_MAX];
	u32 i, n = 0, entry, salvaged;
	int ret;

	for (i = 0; i < nr; i++)
		if (!obj[i].status)
			arg[n++] = (struct kvmm_begin_arg){
				.seq = obj[i].seq, .seq_epoch = obj[i].mark,
				.start = reads ? TOKENS : 0, .max_tokens = reads ? 0 : TOKENS };
	if (!n)
		return 0;
	ret = kvmm_step_begin(k, ++k->object_step, arg, n, res);
	for (i = 0, n = 0; !ret && i < nr; i++) {
		if (obj[i].status)
			continue;
		obj[i].status = res[n].status ? -EAGAIN : 0;
		n++;
		if (obj[i].status)
			continue;
		(void)kvmm_resumed(k, &salvaged);
		obj[i].mark = salvaged;
		obj[i].step = k->object_step;
		ret = kvmm_seq_table(k, obj[i].seq, 0, 0, 1, &entry);
		obj[i].addr = ret ? NULL : kvmm_block(k, entry, 0);
		(*held)++;
	}
	/* A step without an entry is open, too. */
	if (!ret && !*held)
		ret = step_over(k, k->object_step);
	return ret;
}

/* Has the daemon given the memory of the array away since the step began? */
static int still_held(struct kvmm *k, const struct kvmm_object *obj, u32 nr)
{
	u32 salvaged, i;
	int ret = kvmm_confirm(k);

	(void)kvmm_resumed(k, &salvaged);
	for (i = 0; !ret && i < nr; i++)
		if (obj[i].seq && obj[i].step && obj[i].mark != salvaged)
			ret = -ESTALE;
	return ret;
}

/* The step is void.  Return: 0 for a writer, which reads @status; -ESTALE for a reader. */
static int lost_all(struct kvmm_object *obj, u32 nr, bool write)
{
	u32 i;

	for (i = 0; i < nr; i++)
		if (obj[i].seq && !obj[i].status)
			obj[i].status = -ESTALE;
	return write ? 0 : -ESTALE;
}

static int end_some(struct kvmm *k, struct kvmm_object *obj, u32 nr, bool write)
{
	struct kvmm_end_arg arg[KVMM_OBJECTS_MAX];
	struct kvmm_end_res res[KVMM_OBJECTS_MAX];
	u32 ids[KVMM_OBJECTS_MAX * TOKENS], i, n = 0;
	u64 step = 0;
	int ret;

	for (i = 0; i < nr; i++) {
		step = obj[i].seq ? obj[i].step : step;
		if (!write || !obj[i].seq || obj[i].status)
			continue;
		arg[n] = (struct kvmm_end_arg){ .seq = obj[i].seq, .valid_len = TOKENS,
						.nr_ids = TOKENS };
		key_ids(&obj[i].key, ids + n++ * TOKENS);
	}
	if (!step)
		return 0;
	if (write && n && k->nr_steps && k->step[0] != step)
		return -EBUSY;
	ret = still_held(k, obj, nr);
	if (ret == -ESTALE)
		return lost_all(obj, nr, write);
	if (!ret && n)
		ret = kvmm_step_end(k, step, 0, 0, arg, n, ids, res);
	if (!ret)
		ret = step_over(k, n ? 0 : step);
	for (i = 0, n = 0; !ret && write && i < nr; i++)
		if (obj[i].seq && !obj[i].status)
			obj[i].status = res[n++].status ? -ESTALE : 0;
	return ret;
}

/* End the step of the array, and close its sequences. */
static int let_go(struct kvmm *k, struct kvmm_object *obj, u32 nr, bool write)
{
	int ret = nr > KVMM_OBJECTS_MAX ? -E2BIG : end_some(k, obj, nr, write), err;

	if (ret == -E2BIG || ret == -EBUSY)
		return ret;
	err = close_some(k, obj, nr, true);
	return ret ? ret : err;
}

/* Hold the objects, or give all back. */
static int hold_some(struct kvmm *k, struct kvmm_object *obj, u32 nr, s64 timeout_ns, bool reads)
{
	const s64 until = lk_now() + max(timeout_ns, (s64)0);
	u32 held = 0, i;
	int ret;

	ret = admit_some(k, obj, nr, until, reads);
	if (!ret)
		ret = close_some(k, obj, nr, false);
	if (!ret)
		ret = begin_some(k, obj, nr, reads, &held);
	if (!ret)
		ret = close_some(k, obj, nr, false);
	if (!ret && held)
		return (int)held;
	for (i = 0; ret && i < nr; i++)
		obj[i].status = obj[i].status ? obj[i].status : ret;
	(void)!kvmm_objects_put(k, obj, nr);
	return ret;
}

static int objects_check(struct kvmm *k, struct kvmm_object *obj, u32 nr)
{
	u32 i;

	if (nr > KVMM_OBJECTS_MAX)
		return -E2BIG;
	if (k->nr_steps >= k->info.max_steps)
		return -EBUSY;
	for (i = 0; i < nr; i++)
		obj[i] = (struct kvmm_object){ .key = obj[i].key };
	return 0;
}

int kvmm_objects_get(struct kvmm *k, struct kvmm_object *obj, u32 nr, s64 timeout_ns)
{
	struct kvmm_key keys[KVMM_OBJECTS_MAX] = { 0 };
	u8 tier[KVMM_OBJECTS_MAX];
	int ret = objects_check(k, obj, nr);
	u32 i;

	if (ret || !nr)
		return ret;
	for (i = 0; i < nr; i++)
		keys[i] = obj[i].key;
	/* A sequence for an object that is not there would wait for memory. */
	ret = kvmm_objects_find(k, keys, nr, tier);
	if (ret)
		return ret;
	for (i = 0; i < nr; i++)
		obj[i].status = tier[i] == KVMM_TIER_NONE ? -ENOENT : 0;
	return hold_some(k, obj, nr, timeout_ns, true);
}

int kvmm_objects_create(struct kvmm *k, struct kvmm_object *obj, u32 nr, s64 timeout_ns)
{
	int ret = objects_check(k, obj, nr);
	u32 i, n;

	if (ret)
		return ret;
	for (i = 0; i < nr; i++)
		for (n = 0; n < i; n++)
			if (!memcmp(&obj[i].key, &obj[n].key, sizeof(obj[i].key)))
				obj[i].status = -EINVAL;
	return hold_some(k, obj, nr, timeout_ns, false);
}

int kvmm_objects_commit(struct kvmm *k, struct kvmm_object *obj, u32 nr)
{
	return let_go(k, obj, nr, true);
}

int kvmm_objects_put(struct kvmm *k, struct kvmm_object *obj, u32 nr)
{
	return let_go(k, obj, nr, false);
}

int kvmm_objects_delete(struct kvmm *k, struct kvmm_object *obj, u32 nr)
{
	struct kvmm_advise_arg arg[KVMM_OBJECTS_MAX];
	struct kvmm_seq_res res[KVMM_OBJECTS_MAX];
	u32 i, n = 0;
	int ret, err;

	ret = kvmm_objects_get(k, obj, nr, 1000000000);
	if (ret < 0)
		return ret;
	for (i = 0; i < nr; i++)
		if (obj[i].seq)
			arg[n++] = (struct kvmm_advise_arg){ .seq = obj[i].seq,
							     .advice = KVMM_ADV_DONTNEED,
							     .value = KVMM_DONTNEED_FOUND };
	ret = n ? kvmm_seq_advise(k, arg, n, res) : 0;
	err = kvmm_objects_put(k, obj, nr);
	return ret ? ret : err;
}
