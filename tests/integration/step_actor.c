// SPDX-License-Identifier: Apache-2.0
/*
 * step_actor.c - a client that derives every byte from its tokens
 *
 * An actor is an attachment, a step number, and sequences.  The ids of a
 * sequence follow from a salt and a position, and every byte of its KV follows
 * from them.  So an actor that finds blocks of another client in the cache can
 * check that they hold the values of those tokens, even if that client died
 * while writing.
 *
 * It may be ended at any instruction: it takes no lock and writes no file.
 * Errors are written to the shared page.
 */
#include <stdarg.h>
#include <stdio.h>

#include "tests/integration/harness.h"
#include "tests/integration/step_actor.h"

#define TOKEN_BYTES	512u		/* of a layer: 2 heads, K and V of 128 */
#define READY_NS	(20 * 1000000ll)
#define READY_TRIES	500

bool actor_wrong(struct actor *a, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(a->p->why, sizeof(a->p->why), fmt, ap);
	va_end(ap);
	return false;
}

/* Check that an answer is 0. */
bool actor_good(struct actor *a, const char *what, int err)
{
	return !err || actor_wrong(a, "%s: %s", what, strerror(-err));
}

static u32 id_at(u32 salt, u32 pos)
{
	return pos < ACTOR_SHARED ? 500 + pos : 10000 + 100 * salt + pos;
}

static u8 byte_at(u32 salt, u32 pos, u32 layer)
{
	return (u8)(id_at(salt, pos) * 7 + pos * 13 + layer + 1);
}

void actor_ids(u32 *ids, u32 salt, u32 from, u32 nr)
{
	u32 i;

	for (i = 0; i < nr; i++)
		ids[i] = id_at(salt, from + i);
}

/* ---- memory ---- */

/* Layer @layer of the block that holds @pos; NULL if there is no block. */
static char *block_at(struct actor *a, u32 s, u32 pos, u32 layer)
{
	const struct kvmm_attach_rep *r = kvmm_info(a->k);
	u32 entry;

	if (kvmm_seq_table(a->k, a->seq[s], 0, pos / ACTOR_TOKENS, 1, &entry) ||
	    entry == KVMM_NO_INDEX)
		return NULL;
	return (char *)kvmm_pool(a->k) + (u64)entry * r->unit +
	       layer * r->stride[0];
}

bool actor_write(struct actor *a, u32 s, u32 from, u32 to)
{
	u32 layer, pos;
	char *at = NULL;

	for (layer = 0; layer < ACTOR_LAYERS; layer++) {
		for (pos = from; pos < to; pos++) {
			if (pos == from || !(pos % ACTOR_TOKENS))
				at = block_at(a, s, pos, layer);
			if (!at)
				return actor_wrong(a, "no block at %u", pos);
			memset(at + pos % ACTOR_TOKENS * TOKEN_BYTES,
			       byte_at(a->salt, pos, layer), TOKEN_BYTES);
		}
	}
	return true;
}

bool actor_check(struct actor *a, u32 s, u32 to)
{
	u32 layer, pos, i;
	const char *at = NULL;

	for (layer = 0; layer < ACTOR_LAYERS; layer++) {
		for (pos = 0; pos < to; pos++) {
			if (!(pos % ACTOR_TOKENS))
				at = block_at(a, s, pos, layer);
			if (!at)
				return actor_wrong(a, "no block at %u", pos);
			for (i = 0; i < TOKEN_BYTES; i++)
				if ((u8)at[pos % ACTOR_TOKENS * TOKEN_BYTES + i] !=
				    byte_at(a->salt, pos, layer))
					return actor_wrong(a, "salt %u, position %u of %u, layer %u, byte %u is %02x, not %02x",
						     a->salt, pos, to, layer, i,
						     (u8)at[pos % ACTOR_TOKENS *
							    TOKEN_BYTES + i],
						     byte_at(a->salt, pos,
							     layer));
		}
	}
	return true;
}

/* Make the copies that a grant asks for. */
static void run_copy(struct actor *a, const struct kvmm_begin_res *res)
{
	const struct kvmm_attach_rep *r = kvmm_info(a->k);
	char *pool = kvmm_pool(a->k);
	u32 layer;

	for (layer = 0; res->copy_tokens && layer < ACTOR_LAYERS; layer++)
		memcpy(pool + (u64)res->copy_to * r->unit +
		       layer * r->stride[0],
		       pool + (u64)res->copy_from * r->unit +
		       layer * r->stride[0], res->copy_tokens * TOKEN_BYTES);
}

/* ---- verbs ---- */

/* Send one request that libkvmm has no call for. */
int actor_ask(struct actor *a, u16 op, const void *arg, u32 bytes)
{
	struct kvmm_done done = { .status = -EIO };
	void *at;
	int got = 0;

	if (!kvmm_prep(a->k, op, 1, bytes, &at))
		return -EBUSY;
	memcpy(at, arg, bytes);
	if (kvmm_submit(a->k))
		return -ECONNRESET;
	while (!(got = kvmm_reap(a->k, &done)))
		if (kvmm_wait(a->k, -1))
			return -ECONNRESET;
	if (got > 0 && !done.status)
		done.status = ((const struct kvmm_seq_res *)
			       done.results)->status;
	kvmm_release(a->k);
	return got < 0 ? got : done.status;
}

int actor_advise(struct actor *a, u32 s, u32 advice, u32 retain, u64 value)
{
	const struct kvmm_advise_arg arg = {
		.seq = a->seq[s], .advice = advice, .retain = retain,
		.value = value,
	};

	a->p->advice |= 1u << advice;
	return actor_ask(a, KVMM_OP_SEQ_ADVISE, &arg, sizeof(arg));
}

/* Wait until the sequence is READY; its cached tokens are in a->len. */
bool actor_ready(struct actor *a, u32 s)
{
	struct kvmm_seq_status st;
	u32 tries;

	for (tries = 0; tries < READY_TRIES; tries++) {
		if (kvmm_seq_status(a->k, a->seq[s], &st))
			return actor_wrong(a, "a record cannot be read");
		if (st.state == KVMM_SEQ_READY) {
			a->len[s] = st.valid_len;
			return true;
		}
		if (st.state == KVMM_SEQ_FAILED ||
		    st.state == KVMM_SEQ_RECOMPUTE)
			return actor_wrong(a, "state %u: %s", st.state,
				     strerror(-st.reason));
		if (kvmm_wait(a->k, READY_NS) == -ECONNRESET)
			return actor_wrong(a, "%s", kvmm_strerror_attach(a->k));
	}
	return actor_wrong(a, "never ready, state %u", st.state);
}

/* Begin a step of sequences @first to @last, @ahead of their lengths. */
bool actor_begin(struct actor *a, u32 first, u32 last, u32 ahead, u32 tokens)
{
	struct kvmm_begin_arg arg[4] = { { 0 } };
	struct kvmm_begin_res res[4];
	struct kvmm_seq_status st;
	u32 i, n = 0;
	int ret;

	for (i = first; i <= last; i++, n++) {
		if (kvmm_seq_status(a->k, a->seq[i], &st))
			return actor_wrong(a, "a record cannot be read");
		arg[n].seq = a->seq[i];
		arg[n].seq_epoch = st.seq_epoch;
		arg[n].start = a->len[i] + ahead;
		arg[n].max_tokens = tokens ? tokens : ACTOR_PROMPT - a->len[i];
	}
	ret = kvmm_step_begin(a->k, ++a->step, arg, n, res);
	for (i = 0; !ret && i < n; i++)
		ret = res[i].status;
	for (i = 0; !ret && i < n; i++)
		run_copy(a, &res[i]);
	return actor_good(a, "STEP_BEGIN", ret);
}

/* End step @step: the lengths of sequences @first to @last are a->len. */
bool actor_end(struct actor *a, u64 step, u32 first, u32 last, u32 tokens)
{
	struct kvmm_end_arg arg[4] = { { 0 } };
	struct kvmm_end_res res[4];
	u32 ids[4 * ACTOR_PROMPT] = { 0 }, i, n = 0, at = 0;
	int ret;

	for (i = first; i <= last; i++, n++) {
		const u32 to = tokens ? a->len[i] + tokens : ACTOR_PROMPT;

		arg[n].seq = a->seq[i];
		arg[n].valid_len = to;
		arg[n].nr_ids = to - a->len[i];
		actor_ids(ids + at, a->salt, a->len[i], arg[n].nr_ids);
		at += arg[n].nr_ids;
		a->len[i] = to;
	}
	ret = kvmm_step_end(a->k, step, 1000, at, arg, n, ids, res);
	for (i = 0; !ret && i < n; i++)
		ret = res[i].status;
	return actor_good(a, "STEP_END", ret);
}
