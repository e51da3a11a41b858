/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cache_probe.h - ask the prefix cache for a prompt, as one of several users
 *
 * A client of a small model that writes no KV: only the answers about prompts
 * matter, and their times.  Prompts have numbers; the same number means the
 * same ids for every client.  A call that fails ends the process with a line.
 */
#ifndef TESTS_CACHE_PROBE_H
#define TESTS_CACHE_PROBE_H

#include <stdio.h>
#include <stdlib.h>

#include <libkvmm.h>

#define CP_TOKENS	16u
#define CP_LEN		(32u * CP_TOKENS + 1)

#define CP_MUST(cond)							\
do {									\
	if (!(cond)) {							\
		fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond); \
		exit(1);						\
	}								\
} while (0)

static inline struct kvmm *cp_attach(const char *socket)
{
	static const u8 identity[KVMM_IDENTITY_LEN] = "one model for all";
	const struct kvmm_params p = {
		.socket = socket, .domain = "same", .identity = identity,
		.block_tokens = CP_TOKENS,
		.group[0] = { .layers = 1, .kv_heads = 1, .k_bytes = 32,
			   .v_bytes = 32 },
		.max_bytes = KVMM_LIMIT_MAX, .attach_timeout_ms = 20000,
		.spin = 1000,
	};
	struct kvmm *k = NULL;
	char text[256];

	if (kvmm_attach(&p, &k, text)) {
		fprintf(stderr, "attach: %s\n", text);
		exit(1);
	}
	return k;
}

static inline const u32 *cp_prompt(u32 number)
{
	static u32 ids[CP_LEN];
	u64 x = number * 0x9e3779b97f4a7c15ull + 1;
	u32 i;

	for (i = 0; i < CP_LEN; i++) {
		x = x * 6364136223846793005ull + 1442695040888963407ull;
		ids[i] = (u32)(x >> 40);
	}
	return ids;
}

static inline u64 cp_open(struct kvmm *k, u64 salt)
{
	const struct kvmm_open_arg arg = {
		.prompt_len = CP_LEN, .max_tokens = 1, .salt = salt,
	};
	struct kvmm_open_res res;

	CP_MUST(!kvmm_seq_open(k, &arg, 1, &res) && !res.status);
	return res.seq;
}

/* Match the ids and wait until it is READY.  Return: tokens that were found. */
static inline u32 cp_match(struct kvmm *k, u64 seq, const u32 *ids,
			   struct kvmm_seq_status *st)
{
	CP_MUST(!kvmm_seq_match(k, seq, ids, CP_LEN));
	for (;;) {
		CP_MUST(!kvmm_seq_status(k, seq, st));
		if (st->state == KVMM_SEQ_READY)
			return st->cached_len;
		CP_MUST(kvmm_wait(k, 1000000) != -ECONNRESET);
	}
}

/* Number of a prompt's tokens that are cached; the sequence is closed again. */
static inline u32 cp_ask(struct kvmm *k, u32 number, u64 salt)
{
	u64 seq = cp_open(k, salt);
	struct kvmm_seq_status st;
	u32 found = cp_match(k, seq, cp_prompt(number), &st);

	CP_MUST(!kvmm_seq_close(k, &seq, 1));
	return found;
}

/* Compute a prompt, so that it is in the cache. */
static inline void cp_fill(struct kvmm *k, u32 number, u64 salt)
{
	static u64 step;
	u64 seq = cp_open(k, salt);
	struct kvmm_seq_status st;
	u32 found = cp_match(k, seq, cp_prompt(number), &st);
	struct kvmm_begin_arg begin = {
		.seq = seq, .seq_epoch = st.seq_epoch, .start = found,
		.max_tokens = CP_LEN - found,
	};
	struct kvmm_end_arg end = {
		.seq = seq, .valid_len = CP_LEN, .nr_ids = CP_LEN - found,
	};
	struct kvmm_begin_res bres;
	struct kvmm_end_res eres;

	CP_MUST(!kvmm_step_begin(k, ++step, &begin, 1, &bres) && !bres.status);
	CP_MUST(!kvmm_step_end(k, step, 1000, CP_LEN, &end, 1,
			       cp_prompt(number) + found, &eres) &&
		!eres.status);
	CP_MUST(!kvmm_seq_close(k, &seq, 1));
}

#endif /* TESTS_CACHE_PROBE_H */
