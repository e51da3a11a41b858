// SPDX-License-Identifier: Apache-2.0
/*
 * overlap_client.c - steps of one sequence, and promotions of another
 *
 * The work of a step reads memory that the caches do not hold, as a decode step does.
 * The promoted sequence keeps its host slots, so it is sent out without a copy, and
 * nearly all of the time is promotion.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/bench/overlap.h"

#define NR_PROMPT	(OV_BLOCKS * OV_TOKENS)
#define WORK_BYTES	(8ull << 20)	/* read in a step */
#define WORK_MEMORY	(8 * WORK_BYTES)
#define LONGEST		512u		/* tokens of the sequence that steps */
#define LIMIT_NS	20000000000ull

static void must(struct ov_client *c, int err, const char *what)
{
	if (err)
		bench_die("%s: %s (%s)", what, strerror(-err),
			  c->k ? kvmm_strerror_attach(c->k) : "");
}

void ov_attach(struct ov_client *c, const char *socket, const char *domain)
{
	static const u8 identity[KVMM_IDENTITY_LEN] = { 1, 2, 3 };
	const struct kvmm_params p = {
		.socket = socket, .domain = domain, .identity = identity,
		.block_tokens = OV_TOKENS,
		.group[0] = { .layers = OV_LAYERS, .kv_heads = OV_HEADS,
			   .k_bytes = OV_HEAD_BYTES, .v_bytes = OV_HEAD_BYTES },
		.max_bytes = KVMM_LIMIT_MAX, .max_seqs = 8,
	};
	char text[256];

	memset(c, 0, sizeof(*c));
	if (kvmm_attach(&p, &c->k, text))
		bench_die("%s", text);
}

static u32 state_of(struct ov_client *c, u64 seq, struct kvmm_seq_status *st)
{
	must(c, kvmm_seq_status(c->k, seq, st), "status");
	if (st->state == KVMM_SEQ_FAILED || st->state == KVMM_SEQ_RECOMPUTE)
		bench_die("a sequence lost its memory");
	return st->state;
}

static void await(struct ov_client *c, u64 seq, u32 state)
{
	const u64 end = bench_now() + LIMIT_NS;
	struct kvmm_seq_status st;

	while (state_of(c, seq, &st) != state) {
		(void)kvmm_wait(c->k, 1000000);
		if (bench_now() > end)
			bench_die("a sequence stays in state %u", st.state);
	}
}

/* Open a sequence with a prompt of @nr made-up ids, and wait until it is READY. */
static u64 open_seq(struct ov_client *c, u32 nr)
{
	static u32 ids[NR_PROMPT];
	const struct kvmm_open_arg arg = {
		.prompt_len = nr, .max_tokens = NR_PROMPT,
		.flags = KVMM_OPEN_NO_MATCH | KVMM_OPEN_NO_INDEX,
	};
	struct kvmm_open_res res;

	must(c, kvmm_seq_open(c->k, &arg, 1, &res), "SEQ_OPEN");
	must(c, res.status, "open");
	kvmm_release(c->k);
	must(c, kvmm_seq_match(c->k, res.seq, ids, nr), "SEQ_MATCH");
	kvmm_release(c->k);
	await(c, res.seq, KVMM_SEQ_READY);
	return res.seq;
}

/* ---- a step ---- */

static void do_work(void)
{
	static u64 *memory;
	static u64 at;
	u64 sum = 0, i;

	if (!memory) {
		memory = malloc(WORK_MEMORY);
		if (!memory)
			bench_die("no memory");
		memset(memory, 1, WORK_MEMORY);
	}
	for (i = 0; i < WORK_BYTES / 8; i += 8)
		sum += memory[at + i];
	at = (at + WORK_BYTES / 8) % (WORK_MEMORY / 8);
	__asm__ volatile("" : : "r"(sum));
}

/* A step of @nr tokens.  Return: nanoseconds that it waited for its answers. */
static u64 step(struct ov_client *c, u64 seq, u32 nr, bool work)
{
	static u32 ids[NR_PROMPT];
	struct kvmm_seq_status st;
	struct kvmm_begin_arg b = { .seq = seq, .max_tokens = nr };
	struct kvmm_end_arg e = { .seq = seq, .nr_ids = nr };
	struct kvmm_begin_res br;
	struct kvmm_end_res er;
	u64 start, waited;

	state_of(c, seq, &st);
	b.seq_epoch = st.seq_epoch;
	b.start = st.valid_len;
	e.valid_len = st.valid_len + nr;
	start = bench_now();
	must(c, kvmm_step_begin(c->k, ++c->step, &b, 1, &br), "STEP_BEGIN");
	waited = bench_now() - start;
	must(c, br.status, "grant");
	kvmm_release(c->k);
	if (work)
		do_work();
	start = bench_now();
	must(c, kvmm_step_end(c->k, c->step, 1000, 0, &e, 1, ids, &er), "STEP_END");
	waited += bench_now() - start;
	must(c, er.status, "end of a step");
	kvmm_release(c->k);
	return waited;
}

/* A sequence has room for its next token. */
static void step_seq(struct ov_client *c)
{
	struct kvmm_seq_status st;

	if (c->seq && state_of(c, c->seq, &st) == KVMM_SEQ_READY &&
	    st.valid_len < LONGEST)
		return;
	if (c->seq) {
		must(c, kvmm_seq_close(c->k, &c->seq, 1), "SEQ_CLOSE");
		kvmm_release(c->k);
	}
	c->seq = open_seq(c, 1);
	step(c, c->seq, 1, true);
}

/* ---- promotions ---- */

static void advise(struct ov_client *c, u32 advice)
{
	struct kvmm_advise_arg *arg;
	struct kvmm_done done;
	void *args;
	int got;

	if (!kvmm_prep(c->k, KVMM_OP_SEQ_ADVISE, 1, sizeof(*arg), &args))
		bench_die("the ring is full");
	arg = args;
	*arg = (struct kvmm_advise_arg){ .seq = c->promoted, .advice = advice };
	kvmm_submit(c->k);
	while (!(got = kvmm_reap(c->k, &done)))
		(void)kvmm_wait(c->k, 10000000);
	must(c, got < 0 ? got : done.status, "ADVISE");
	must(c, ((const struct kvmm_seq_res *)done.results)->status, "advice");
	kvmm_release(c->k);
}

void ov_promoted_open(struct ov_client *c)
{
	u32 at;

	c->promoted = open_seq(c, NR_PROMPT);
	for (at = 0; at < NR_PROMPT; at += 93)
		step(c, c->promoted, 93, false);
	advise(c, KVMM_ADV_PAGEOUT);
	await(c, c->promoted, KVMM_SEQ_SWAPPED);
	c->state = KVMM_SEQ_READY;
}

void ov_promote(struct ov_client *c)
{
	struct kvmm_seq_status st;
	const u32 state = state_of(c, c->promoted, &st);

	if (state == KVMM_SEQ_READY && c->state != KVMM_SEQ_READY) {
		c->count++;
		c->state = state;
		advise(c, KVMM_ADV_PAGEOUT);
	} else if (state == KVMM_SEQ_SWAPPED && c->state != KVMM_SEQ_SWAPPED) {
		c->state = state;
		c->order_ns -= bench_now();
		advise(c, KVMM_ADV_WILLNEED);
		c->order_ns += bench_now();
	}
}

/* ---- a series ---- */

static void percentiles(struct bench_samples *s, double *out)
{
	struct bench_series series = { 0 };

	bench_round(&series, s);
	out[0] = series.p50[0];
	out[1] = series.p99[0];
}

void ov_steps(struct ov_client *c, u64 ns, bool promote, struct ov_steps *out)
{
	const double per_ns = 1 / bench_tick_ns();
	const u64 end = bench_now() + ns;
	struct bench_samples whole, wait;
	u64 began, waited;

	bench_samples_init(&whole, OV_SAMPLES);
	bench_samples_init(&wait, OV_SAMPLES);
	while (bench_now() < end) {
		step_seq(c);
		began = bench_ticks();
		waited = step(c, c->seq, 1, true);
		bench_add(&whole, bench_ticks() - began);
		bench_add(&wait, (u64)((double)waited * per_ns));
		if (promote)
			ov_promote(c);
	}
	out->nr = whole.nr;
	percentiles(&whole, out->whole);
	percentiles(&wait, out->wait);
	bench_samples_free(&whole);
	bench_samples_free(&wait);
}
