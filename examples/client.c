// SPDX-License-Identifier: Apache-2.0
/*
 * client.c - a client of kvmm that computes nothing, and shows every verb
 *
 *	cc client.c $(pkg-config --cflags --libs libkvmm) -o client && ./client
 *
 * The "KV" of a token is its id, written into the first bytes of its place in the block.
 * A real client runs kernels there.  Each call is explained in libkvmm.h.
 */
#include <libkvmm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKENS	16u		/* of a block */
#define PROMPT	40u
#define ANSWER	24u

static struct kvmm *kv;
static u64 step;

/* End with a line when a call failed. */
static void must(long err, const char *what)
{
	if (!err)
		return;
	fprintf(stderr, "%s: %s%s\n", what, strerror((int)-err),
		kv && !kvmm_alive(kv) ? kvmm_strerror_attach(kv) : "");
	exit(1);
}

static void attach(void)
{
	struct kvmm_params p = { .domain = "example", .block_tokens = TOKENS,
				 .max_bytes = KVMM_LIMIT_MAX };
	struct kvmm_identity id;
	u8 digest[KVMM_IDENTITY_LEN];
	char text[256];

	/* All that decides the bits of the KV. */
	kvmm_identity_init(&id);
	kvmm_identity_add(&id, "model", "example 1", 9);
	kvmm_identity_final(&id, digest);
	p.identity = digest;
	p.group[0] = (struct kvmm_group){ .layers = 2, .kv_heads = 2,
					  .k_bytes = 128, .v_bytes = 128 };
	if (kvmm_attach(&p, &kv, text)) {
		fprintf(stderr, "%s\n", text);
		exit(1);
	}
}

/* Open a sequence for a prompt, and wait until it has memory. */
static u64 admit(const u32 *ids, u32 nr, struct kvmm_seq_status *st)
{
	struct kvmm_open_arg arg = { .prompt_len = nr, .max_tokens = ANSWER };
	struct kvmm_open_res res;

	must(kvmm_seq_open(kv, &arg, 1, &res), "SEQ_OPEN");
	must(res.status, "SEQ_OPEN");
	must(kvmm_seq_match(kv, res.seq, ids, nr), "SEQ_MATCH");
	while (must(kvmm_seq_status(kv, res.seq, st), "status"), st->state != KVMM_SEQ_READY) {
		if (st->state == KVMM_SEQ_FAILED)
			must(st->reason, "admission");
		if (kvmm_wait(kv, 100000000) == -ECONNRESET)
			must(-ECONNRESET, "wait");
	}
	return res.seq;
}

/* A step: take blocks for the tokens from @from to before @to, write them, and say so. */
static void compute(u64 seq, u32 from, u32 to, const u32 *ids)
{
	struct kvmm_begin_arg b = { .seq = seq, .start = from, .max_tokens = to - from };
	struct kvmm_end_arg e = { .seq = seq, .valid_len = to, .nr_ids = to - from };
	struct kvmm_seq_status st;
	struct kvmm_begin_res res;
	struct kvmm_end_res end;
	u32 entry, at;

	must(kvmm_seq_status(kv, seq, &st), "status");
	b.seq_epoch = st.seq_epoch;
	must(kvmm_step_begin(kv, ++step, &b, 1, &res), "STEP_BEGIN");
	must(res.status, "STEP_BEGIN");	/* -EAGAIN: no memory now; -ESTALE: preempted */
	if (res.copy_tokens)		/* the block is shared: copy before writing */
		memcpy(kvmm_block(kv, res.copy_to, 0), kvmm_block(kv, res.copy_from, 0),
		       kvmm_info(kv)->block_bytes);
	for (at = from; at < to; at++) {
		must(kvmm_seq_table(kv, seq, 0, at / TOKENS, 1, &entry), "table");
		memcpy((char *)kvmm_block(kv, entry, 0) + at % TOKENS * 256, &ids[at], 4);
	}
	must(kvmm_confirm(kv), "confirm");
	must(kvmm_step_end(kv, step, 0, 0, &e, 1, ids + from, &end), "STEP_END");
	must(end.status, "STEP_END");
}

int main(void)
{
	struct kvmm_open_res kids[2];
	struct kvmm_seq_status st;
	struct kvmm_lease_res lease;
	struct kvmm_seq_res res;
	struct kvmm_found found;
	u32 ids[PROMPT + ANSWER], i;
	u64 seq, kid, other, held;

	for (i = 0; i < PROMPT + ANSWER; i++)
		ids[i] = 1000 + i;
	attach();
	must(kvmm_nop(kv), "NOP");
	seq = admit(ids, PROMPT, &st);
	printf("cached %u of %u tokens\n", st.cached_len, PROMPT);
	compute(seq, st.valid_len, PROMPT, ids);

	/* Two samples of one prompt share its blocks; the second becomes the first again. */
	must(kvmm_seq_fork(kv, seq, 2, kids), "SEQ_FORK");
	must(kids[0].status ?: kids[1].status, "SEQ_FORK");
	kid = kids[0].seq;
	other = kids[1].seq;
	compute(kid, PROMPT, PROMPT + ANSWER, ids);
	must(kvmm_seq_remap(kv, &(struct kvmm_remap_arg){ other, kid }, 1, &res), "SEQ_REMAP");
	printf("the other sample has %u tokens\n", res.valid_len);
	must(kvmm_seq_truncate(kv, &(struct kvmm_len_arg){ .seq = other, .len = PROMPT }, 1, &res),
	     "SEQ_TRUNCATE");
	must(kvmm_seq_trim(kv, &(struct kvmm_len_arg){ .seq = kid, .len = TOKENS }, 1, &res),
	     "SEQ_TRIM");
	must(kvmm_seq_advise(kv, &(struct kvmm_advise_arg){ .seq = kid, .advice = KVMM_ADV_COLD },
			     1, &res), "SEQ_ADVISE");
	must(kvmm_seq_close(kv, (u64[]){ seq, kid, other }, 3), "SEQ_CLOSE");

	/* The prompt is cached now.  A lease keeps it. */
	must(kvmm_lookup(kv, 0, ids, PROMPT, &found), "SEQ_LOOKUP");
	must(kvmm_lease(kv, 0, &found, 60000, "example", &lease), "SEQ_LEASE");
	printf("found %u tokens, and keep %u for a minute\n", found.found, lease.held);
	held = lease.seq;
	must(kvmm_seq_close(kv, &held, 1), "SEQ_CLOSE");
	kvmm_detach(kv);
	return 0;
}
