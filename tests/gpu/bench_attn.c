// SPDX-License-Identifier: Apache-2.0
/*
 * bench_attn.c - paged attention, decode and prefill, as shares of ceilings
 *
 * attn     one row a sequence; sequences 1 to 128, context 1k to 32k, 64 or 32
 *          query heads over 8 of KV, bf16, blocks of 16 tokens in random
 *          order.  Replayed from a graph as in a runtime, with cold caches; the
 *          figure is the rate of reading KV, beside plain reads.
 * prefill  one sequence of 1k to 16k tokens, causal; TFLOP/s of the products
 *          that the mask leaves, beside the ceiling of products.
 * swap     decode attention while copy engines, or a kernel, move blocks to
 *          the host and back
 */
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/bench.h"

#define KV_HEADS	8u
#define HEAD_DIM	128u
#define TOKENS		16u
#define UNIT		64u
#define MAX_ROWS	512u
#define REPEATS		15u
#define TRIES		6u		/* steps at most until one is replayed */

/* One layer's KV of a batch, and the batch. */
struct scene {
	struct bench		*b;
	struct kern_kv		kv;
	struct kern_attn_seq	*seqs;
	u32			*tables;
	u32			*ids;
	struct kern_attn	attn;
	struct kern_step	step;
	u32			rows;	/* rows that have room */
	double			bytes;	/* of KV that a step reads */
};

static u32 random_below(u64 *state, u32 n)
{
	*state = *state * 6364136223846793005ull + 1442695040888963407ull;
	return (u32)((*state >> 33) % n);
}

/* Tables of @nr sequences with all blocks of a pool in random order. */
static void make_tables(struct scene *s, u32 nr, u32 blocks)
{
	const u32 per_block = (u32)(kern_kv_layer_bytes(&s->kv) / UNIT);
	u64 seed = 1;
	u32 i, k, swap;

	s->tables = malloc((u64)nr * blocks * sizeof(u32));
	s->seqs = calloc(nr, sizeof(*s->seqs));
	s->ids = calloc(MAX_ROWS > s->rows ? MAX_ROWS : s->rows, sizeof(u32));
	if (!s->tables || !s->seqs || !s->ids)
		gpu_die("no memory for the tables");
	for (i = 0; i < nr * blocks; i++)
		s->tables[i] = i * per_block;
	for (i = nr * blocks; i > 1; i--) {
		k = random_below(&seed, i);
		swap = s->tables[i - 1];
		s->tables[i - 1] = s->tables[k];
		s->tables[k] = swap;
	}
}

/* @nr sequences of @ctx tokens each, of which the last @rows are rows. */
static bool scene_make(struct bench *b, struct scene *s, u32 nr, u32 ctx,
		       u32 rows, u32 heads)
{
	const u32 blocks = (ctx + TOKENS - 1) / TOKENS;
	u64 bytes, free_bytes, total, q_bytes;
	u32 i;

	memset(s, 0, sizeof(*s));
	s->b = b;
	s->rows = rows * nr > MAX_ROWS ? rows * nr : MAX_ROWS;
	s->kv = (struct kern_kv){
		.unit = UNIT, .block_tokens = TOKENS, .nr_layers = 1,
		.kv_heads = KV_HEADS, .head_dim = HEAD_DIM, .dtype = KERN_BF16,
	};
	s->kv.layer_stride = kern_kv_layer_bytes(&s->kv);
	bytes = (u64)nr * blocks * s->kv.layer_stride;
	q_bytes = 4ull * s->rows * heads * HEAD_DIM;
	gpu_mem_info(&b->g, &free_bytes, &total);
	if (!gpu_tiny && bytes + 2 * q_bytes + GPU_GIB > free_bytes)
		return false;
	s->kv.base = (u8 *)(uintptr_t)probe_device(&b->g, bytes);
	probe_fill_bf16(&b->g, (CUdeviceptr)(uintptr_t)s->kv.base, bytes / 2, 1);
	make_tables(s, nr, blocks);
	for (i = 0; i < nr; i++)
		s->seqs[i] = (struct kern_attn_seq){
			.table = s->tables + (u64)i * blocks, .nr_rows = rows,
			.first_row = i * rows, .start_pos = ctx - rows,
		};
	s->attn = (struct kern_attn){
		.kv = &s->kv, .nr_seqs = nr, .seqs = s->seqs, .heads = heads,
		.scale = 0.0883883476f,
		.q = (float *)(uintptr_t)probe_device(&b->g, q_bytes),
		.out = (float *)(uintptr_t)probe_device(&b->g, q_bytes),
	};
	probe_fill_bf16(&b->g, (CUdeviceptr)(uintptr_t)s->attn.q, q_bytes / 2, 2);
	s->step = (struct kern_step){
		.kv = &s->kv, .nr_groups = 1, .seqs = s->seqs, .nr_seqs = nr,
		.nr_rows = nr * rows, .ids = s->ids, .positions = s->ids,
		.max_rows = s->rows, .max_wanted = 0, .once = rows > 1,
	};
	s->bytes = (double)nr * ctx * KV_HEADS * HEAD_DIM * 2 * 2;
	return true;
}

static void scene_free(struct scene *s)
{
	const struct cu_api *cu = s->b->g.cu;

	bench_ok(s->b);
	GPU_DO(cu->MemFree((CUdeviceptr)(uintptr_t)s->kv.base));
	GPU_DO(cu->MemFree((CUdeviceptr)(uintptr_t)s->attn.q));
	GPU_DO(cu->MemFree((CUdeviceptr)(uintptr_t)s->attn.out));
	free(s->tables);
	free(s->seqs);
	free(s->ids);
}

/*
 * Run one step of attention alone.  If it is replayed, or not to be recorded,
 * the events @from and @to lie around its work on the device.
 *
 * Return: true if a graph was replayed.
 */
static bool one_step(struct scene *s, CUevent from, CUevent to)
{
	struct bench *b = s->b;
	struct kern_rows rows;
	bool timed;
	int err;

	do {
		bench_flush(b);
		if (kern_step_begin(b->ops, b->ctx, &s->step, &rows))
			gpu_die("%s", b->ops->failure(b->ctx));
		timed = rows.replayed || !rows.recorded;
		if (timed)
			GPU_DO(b->g.cu->EventRecord(from, b->c->stream));
		if (!rows.replayed)
			b->ops->attention(b->ctx, &s->attn);
		err = kern_step_end(b->ops, b->ctx);
	} while (err == -EAGAIN);
	if (timed)
		GPU_DO(b->g.cu->EventRecord(to, b->c->stream));
	bench_ok(b);
	return rows.replayed;
}

/* Microseconds of @nr steps.  Return: false if they were not replayed. */
static bool steps_us(struct scene *s, double *us, u32 nr)
{
	const struct cu_api *cu = s->b->g.cu;
	bool replayed = false;
	CUevent from, to;
	float ms;
	u32 i;

	GPU_DO(cu->EventCreate(&from, 0));
	GPU_DO(cu->EventCreate(&to, 0));
	for (i = 0; i < TRIES && !replayed; i++)
		replayed = one_step(s, from, to);
	for (i = 0; i < nr; i++) {
		one_step(s, from, to);
		GPU_DO(cu->EventElapsedTime(&ms, from, to));
		us[i] = 1e3 * ms;
	}
	GPU_DO(cu->EventDestroy(from));
	GPU_DO(cu->EventDestroy(to));
	return replayed;
}

static void attn_case(struct bench *b, u32 nr, u32 ctx, u32 heads)
{
	struct gpu_line l = { "GB/s", "plain reads", b->read, NULL };
	const u32 repeats = bench_repeats(REPEATS);
	double us[REPEATS], gbs[REPEATS];
	struct scene s;
	char text[48];
	u32 i;

	snprintf(text, sizeof(text), "attn.%s.%u-8.B%u.%uk", b->mode, heads, nr,
		 ctx / 1024);
	if (!scene_make(b, &s, nr, ctx, 1, heads)) {
		gpu_skipped("too little memory", "%s", text);
		return;
	}
	if (!steps_us(&s, us, repeats))
		l.note = "not replayed";
	for (i = 0; i < repeats; i++)
		gbs[i] = s.bytes / us[i] / 1e3;
	gpu_emit(&(struct gpu_line){ .unit = "us" }, us, repeats, "%s.time",
		 text);
	gpu_emit(&l, gbs, repeats, "%s", text);
	scene_free(&s);
}

static bool has_attention(struct bench *b, const char *part)
{
	if (b->ops->attention)
		return true;
	gpu_skipped("this build has no attention for GPUs", "%s", part);
	return false;
}

void part_attn(void)
{
	static const u32 batch[] = { 1, 8, 32, 64, 128 };
	static const u32 ctx[] = { 1024, 8192, 32768 };
	static const char *const modes[] = { "fast", "exact" };
	struct bench b;
	u32 m, h, i, k;

	bench_open(&b, "attn", modes[0]);
	if (!has_attention(&b, "attn"))
		return;
	for (m = 0; m < 2; m++) {
		if (m)
			bench_mode(&b, modes[m]);
		for (h = 32; h <= 64; h += 32)
			for (i = 0; i < (gpu_tiny ? 2 : 5); i++)
				for (k = 0; k < (gpu_tiny ? 1 : 3); k++)
					attn_case(&b, gpu_tiny ? i + 1 : batch[i],
						  gpu_tiny ? 100 : ctx[k],
						  gpu_tiny ? h / 4 : h);
	}
}

/* ---- prefill ---- */

static void prefill_case(struct bench *b, u32 rows, double gemm)
{
	/* Causal: half of rows * rows pairs; a product for scores, one for V. */
	const double flop = 4.0 * 32 * HEAD_DIM * rows * (rows + 1.0) / 2;
	const struct gpu_line l = {
		"TFLOP/s", gemm ? "a product of 8192 cubed" : NULL, gemm, NULL
	};
	const u32 repeats = bench_repeats(rows > 8192 ? 5 : 9);
	double us[REPEATS], rate[REPEATS];
	struct scene s;
	u32 i;

	if (!scene_make(b, &s, 1, rows, rows, 32)) {
		gpu_skipped("too little memory", "prefill.%s.%u", b->mode,
			    rows);
		return;
	}
	steps_us(&s, us, repeats);
	for (i = 0; i < repeats; i++)
		rate[i] = flop / us[i] / 1e6;
	gpu_emit(&l, rate, repeats, "prefill.%s.%u", b->mode, rows);
	scene_free(&s);
}

void part_prefill(void)
{
	static const u32 rows[] = { 1024, 2048, 4096, 8192, 16384 };
	static const char *const modes[] = { "fast", "exact" };
	struct bench b;
	double gemm;
	u32 m, i;

	bench_open(&b, "prefill", modes[0]);
	if (!has_attention(&b, "prefill"))
		return;
	gemm = ceiling_gemm(&b.g);
	for (m = 0; m < 2; m++) {
		if (m)
			bench_mode(&b, modes[m]);
		for (i = 0; i < (gpu_tiny ? 1 : 5); i++)
			prefill_case(&b, gpu_tiny ? 40 : rows[i], gemm);
	}
}

/* ---- swap ---- */

/* Moves blocks of 2 MiB to the host and back, until told to stop. */
struct mover {
	struct gpu	*g;
	CUstream	stream[2];
	CUdeviceptr	dev[2];
	u8		*host[2];
	CUevent		done[2];
	u64		bytes;
	u64		moved;
	double		start;
};

#define MOVE_BLOCK	(2 * GPU_MIB)

static void mover_open(struct mover *m, struct gpu *g)
{
	u32 i;

	memset(m, 0, sizeof(*m));
	m->g = g;
	m->bytes = probe_bytes(64 * GPU_MIB);
	for (i = 0; i < 2; i++) {
		m->dev[i] = probe_device(g, m->bytes);
		m->host[i] = probe_host(g, m->bytes);
		GPU_DO(g->cu->StreamCreateWithPriority(&m->stream[i],
						CU_STREAM_NON_BLOCKING, 0));
		GPU_DO(g->cu->EventCreate(&m->done[i], CU_EVENT_DISABLE_TIMING));
	}
}

static void mover_put(struct mover *m, u32 i)
{
	const struct cu_api *cu = m->g->cu;
	u64 at;

	for (at = 0; at < m->bytes; at += MOVE_BLOCK) {
		if (i)
			GPU_DO(cu->MemcpyDtoHAsync(m->host[i] + at,
						   m->dev[i] + at, MOVE_BLOCK,
						   m->stream[i]));
		else
			GPU_DO(cu->MemcpyHtoDAsync(m->dev[i] + at,
						   m->host[i] + at, MOVE_BLOCK,
						   m->stream[i]));
	}
	GPU_DO(cu->EventRecord(m->done[i], m->stream[i]));
}

/* Keep both directions busy: refill a stream that has run dry. */
static void mover_poll(struct mover *m)
{
	u32 i;

	for (i = 0; i < 2; i++) {
		if (m->g->cu->EventQuery(m->done[i]))
			continue;
		m->moved += m->bytes;
		mover_put(m, i);
	}
}

static double mover_rate(struct mover *m)
{
	const double us = gpu_now_us() - m->start;
	const double gbs = m->moved / us / 1e3;

	m->moved = 0;
	m->start = gpu_now_us();
	return gbs;
}

static void swap_case(struct bench *b, struct mover *m, u32 nr, u32 ctx)
{
	const u32 repeats = bench_repeats(30);
	double alone[BENCH_REPEATS_MAX], beside[BENCH_REPEATS_MAX];
	struct scene s;
	double gbs;
	u32 i;

	if (!scene_make(b, &s, nr, ctx, 1, 32)) {
		gpu_skipped("too little memory", "swap.B%u.%uk", nr, ctx / 1024);
		return;
	}
	steps_us(&s, alone, repeats);
	mover_put(m, 0);
	mover_put(m, 1);
	mover_rate(m);
	for (i = 0; i < repeats; i++) {
		mover_poll(m);
		steps_us(&s, &beside[i], 1);
	}
	gbs = mover_rate(m);
	GPU_DO(b->g.cu->StreamSynchronize(m->stream[0]));
	GPU_DO(b->g.cu->StreamSynchronize(m->stream[1]));
	gpu_emit(&(struct gpu_line){ "us", "without copies",
				     gpu_median(alone, repeats), NULL },
		 beside, repeats, "swap.B%u.%uk.attention", nr, ctx / 1024);
	gpu_fact(gbs, "GB/s", "both ways together, while steps ran",
		 "swap.B%u.%uk.copies", nr, ctx / 1024);
	scene_free(&s);
}

void part_swap(void)
{
	struct mover m;
	struct bench b;
	double gbs;

	bench_open(&b, "swap", "fast");
	if (!has_attention(&b, "swap"))
		return;
	mover_open(&m, &b.g);
	mover_put(&m, 0);
	mover_put(&m, 1);
	mover_rate(&m);
	while (gpu_now_us() - m.start < (gpu_tiny ? 1e4 : 2e6))
		mover_poll(&m);
	gbs = mover_rate(&m);
	gpu_fact(gbs, "GB/s", "both ways together, alone", "swap.copies_alone");
	GPU_DO(b.g.cu->StreamSynchronize(m.stream[0]));
	GPU_DO(b.g.cu->StreamSynchronize(m.stream[1]));
	swap_case(&b, &m, gpu_tiny ? 2 : 32, gpu_tiny ? 100 : 8192);
	if (!gpu_tiny)
		swap_case(&b, &m, 128, 32768);
}
