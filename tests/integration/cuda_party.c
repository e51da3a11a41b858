// SPDX-License-Identifier: Apache-2.0
/*
 * cuda_party.c - a client of a node whose pool is on the stand-in's GPU
 *
 * The client writes and reads its blocks through the mapped pool, as a kernel
 * would: the stand-in's device memory is host memory.  Each word names its
 * party, so that a wrong word shows where it came from.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/integration/cuda_party.h"

#define MIX		0x9e3779b97f4a7c15ull
#define UNMIX		0xf1de83e19937733dull	/* MIX * UNMIX == 1 */

struct rig rig;
char cuda_dir[128], cuda_counts[RIG_PATH];

/* ---- clients ---- */

void party_join(struct party *p, const char *tenant, u64 byte)
{
	static u8 identity[KVMM_IDENTITY_LEN] = "it_cuda";
	char path[RIG_PATH + 64], text[256];
	const struct kvmm_params params = {
		.socket = path, .domain = "it", .identity = identity,
		.block_tokens = TOKENS, .max_bytes = KVMM_LIMIT_MAX,
		.group[0] = { .layers = 2, .kv_heads = 2, .k_bytes = 512,
			   .v_bytes = 512 },
		.attach_timeout_ms = WAIT_MS,
	};

	memset(p, 0, sizeof(*p));
	p->byte = byte;
	snprintf(path, sizeof(path), "%s%s%s/attach.sock", rig.dir,
		 tenant ? "/" : "", tenant ? tenant : "");
	ck_assert_msg(!kvmm_attach(&params, &p->k, text), "%s", text);
	ck_assert_uint_eq(kvmm_backend(p->k), KVMM_MEMORY_CUDA);
}

u32 state_of(const struct party *p, u32 i)
{
	struct kvmm_seq_status st;

	MUST(!kvmm_seq_status(p->k, p->seq[i], &st));
	return st.state;
}

void turn(struct party *p)
{
	MUST(kvmm_wait(p->k, 2000000) != -ECONNRESET);
}

bool await_state(struct party *p, u32 i, u32 state)
{
	const u64 end = now_ms() + WAIT_MS * time_scale();

	while (state_of(p, i) != state && now_ms() < end)
		turn(p);
	return state_of(p, i) == state;
}

static u64 word(const struct party *p, u32 i, u32 b, u32 n)
{
	return (p->byte << 48 | (u64)i << 40 | (u64)b << 32 | n) * MIX;
}

/* Is the word 0, or one that @p wrote before it lost the block? */
static bool is_own(const struct party *p, u64 found)
{
	return !found || found * UNMIX >> 48 == p->byte;
}

static u64 *block(struct party *p, u32 i, u32 b)
{
	u32 entry;

	MUST(!kvmm_seq_table(p->k, p->seq[i], 0, b, 1, &entry));
	return (u64 *)((char *)kvmm_pool(p->k) +
		       (u64)entry * kvmm_info(p->k)->unit);
}

static void words_write(struct party *p, u32 i)
{
	u32 b, n;

	for (b = 0; b < LEN / TOKENS; b++) {
		u64 *at = block(p, i, b);

		for (n = 0; n < BLOCK_WORDS; n++) {
			if (!is_own(p, at[n]))
				fprintf(stderr, "sequence %u, block %u, word %u was %llx, of %llx\n",
					i, b, n, (unsigned long long)at[n],
					(unsigned long long)(at[n] * UNMIX));
			MUST(is_own(p, at[n]));
			at[n] = word(p, i, b, n);
		}
	}
}

void words_check(struct party *p, u32 i)
{
	u32 b, n;

	for (b = 0; b < LEN / TOKENS; b++) {
		const u64 *at = block(p, i, b);

		for (n = 0; n < BLOCK_WORDS; n++)
			ck_assert_msg(at[n] == word(p, i, b, n),
				      "sequence %u, block %u, word %u: %llx",
				      i, b, n, (unsigned long long)at[n]);
	}
}

/* Open one more sequence and wait until it is READY.  Return: false: it waits. */
bool seq_open(struct party *p)
{
	struct kvmm_open_arg open = {
		.prompt_len = LEN, .max_tokens = 1, .salt = p->nr + 1,
		.flags = KVMM_OPEN_NO_INDEX,
	};
	struct kvmm_open_res opened;
	u32 ids[LEN], n;

	for (n = 0; n < LEN; n++)
		ids[n] = p->nr * LEN + n;
	MUST(!kvmm_seq_open(p->k, &open, 1, &opened) && !opened.status);
	p->seq[p->nr++] = opened.seq;
	return !kvmm_seq_match(p->k, opened.seq, ids, LEN);
}

/* Begin the only step of a sequence; the step stays open unless @ends. */
void seq_fill(struct party *p, u32 i, bool ends)
{
	struct kvmm_begin_arg begin = { .seq = p->seq[i], .max_tokens = LEN };
	struct kvmm_end_arg end = { .seq = p->seq[i], .valid_len = LEN,
				    .nr_ids = LEN };
	struct kvmm_begin_res begun;
	struct kvmm_end_res ended;
	struct kvmm_seq_status st;
	u32 ids[LEN], n;

	for (n = 0; n < LEN; n++)
		ids[n] = i * LEN + n;
	MUST(!kvmm_seq_status(p->k, p->seq[i], &st));
	begin.seq_epoch = st.seq_epoch;
	MUST(!kvmm_step_begin(p->k, ++p->step, &begin, 1, &begun) &&
	     !begun.status);
	words_write(p, i);
	if (!ends)
		return;
	MUST(!kvmm_step_end(p->k, p->step, 1000, LEN, &end, 1, ids, &ended) &&
	     !ended.status);
}

void seq_make(struct party *p)
{
	MUST(seq_open(p));
	MUST(await_state(p, p->nr - 1, KVMM_SEQ_READY));
	seq_fill(p, p->nr - 1, true);
}

int advise(struct party *p, u32 i, u32 advice)
{
	struct kvmm_advise_arg *a;
	struct kvmm_done done;
	int got, status;
	void *args;

	MUST(kvmm_prep(p->k, KVMM_OP_SEQ_ADVISE, 1, sizeof(*a), &args));
	a = args;
	*a = (struct kvmm_advise_arg){ .seq = p->seq[i], .advice = advice };
	MUST(!kvmm_submit(p->k));
	while (!(got = kvmm_reap(p->k, &done)))
		turn(p);
	MUST(got == 1);
	status = done.status;
	if (!status)
		status = ((const struct kvmm_seq_res *)done.results)->status;
	kvmm_release(p->k);
	return status;
}

void leave(struct party *p)
{
	ck_assert_int_eq(kvmm_seq_close(p->k, p->seq, p->nr), 0);
	kvmm_detach(p->k);
}

/* ---- the node ---- */

char *node_log(void)
{
	static char *log;
	char path[RIG_PATH + 32];

	snprintf(path, sizeof(path), "%s/job-0.err", rig.dir);
	free(log);
	log = slurp(path);
	return log;
}

void await_logged(const char *what)
{
	const u64 end = now_ms() + WAIT_MS * time_scale();

	while (!strstr(node_log(), what)) {
		ck_assert_msg(now_ms() < end, "not said: %s\n%s", what,
			      node_log());
		nap_ms(10);
	}
}

void cuda_setup(void)
{
	const char *tmp = getenv("TMPDIR");

	setenv("KVMM_LIBCUDA", build_path("tests/standin/libcuda.so.1"), 1);
	setenv("KVMM_STANDIN_GRAN", "65536", 1);
	snprintf(cuda_dir, sizeof(cuda_dir), "%.60s/cuda.XXXXXX", tmp ? tmp : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(cuda_dir));
	/* A directory for the stand-in's account, which no other test fills. */
	setenv("TMPDIR", cuda_dir, 1);
	snprintf(cuda_counts, sizeof(cuda_counts), "%s/counts", cuda_dir);
	setenv("KVMM_STANDIN_COUNT", cuda_counts, 1);
}

void cuda_teardown(void)
{
	char cmd[RIG_PATH];

	snprintf(cmd, sizeof(cmd), "rm -rf '%s'", cuda_dir);
	ck_assert_int_eq(system(cmd), 0);
}
