// SPDX-License-Identifier: Apache-2.0
/*
 * bench_kernels.c - the CPU kernels as a share of what the machine can do
 *
 * Two limits are measured in the same run, with the same threads: the rate of
 * reading an array far larger than the caches (what binds decode) and of
 * multiply-adds in registers (what binds prefill).  Then matrix products and
 * attention at shapes of 8B models, and whole decode and prefill steps of a
 * small and of a 1B model, each the best of some repeats beside the limit
 * that binds it.  Weights and KV are pseudo-random; one layer's weights serve
 * for all layers, as they are larger than the caches where that matters.
 *
 * Usage: bench_kernels [NAME [THREADS]], as kern_get() and kern_ctx_create()
 * take them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernels/cpu/internal.h"

#define READ_BYTES	(256ull << 20)
#define HUGE_PAGE	(2ull << 20)
#define REPEATS		5

static struct kern_ctx *ctx;
static const struct kern_ops *ops;
static FILE *figures;
static double read_gbs;
static double peak_gflops;

/* With one thread its CPU time, which others on the machine disturb less. */
static double now(void)
{
	bool one = kern_ctx_nr_threads(ctx) == 1;
	struct timespec ts;

	clock_gettime(one ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + 1e-9 * ts.tv_nsec;
}

static void report(const char *name, double value, const char *unit,
		   const char *peer, double limit)
{
	printf("%-44s %10.1f %-8s %5.2f of %s\n", name, value, unit,
	       value / limit, peer);
	if (figures)
		fprintf(figures,
			"{\"name\": \"kernels %s\", \"value\": %.6g, "
			"\"unit\": \"%s\", \"peer\": \"%s\", "
			"\"peer_value\": %.6g, \"ratio\": %.4f}\n",
			name, value, unit, peer, limit, value / limit);
}

/* Pseudo-random elements in [-1, 1), on huge pages where there are any. */
static void *filled(u64 n, enum kern_dtype type)
{
	u64 bytes = ALIGN_UP(n * kern_dtype_size(type), HUGE_PAGE), i;
	u32 r = 1;
	float *f = aligned_alloc(HUGE_PAGE, bytes);
	u16 *h = (u16 *)f;

	if (!f)
		exit(EXIT_FAILURE);
	madvise(f, bytes, MADV_HUGEPAGE);
	for (i = 0; i < n; i++) {
		r = r * 1664525 + 1013904223;
		if (type == KERN_BF16)
			h[i] = kern_f32_to_bf16((s32)r / 2147483648.0f);
		else
			f[i] = (s32)r / 2147483648.0f;
	}
	return f;
}

/* ------------------------------------------------------------- the limits */

#define READ_ITEMS	64

u64 read_sums[READ_ITEMS];	/* global, so that the reads stay */

typedef u64 v8u __attribute__((vector_size(64)));

static void read_item(void *arg, u32 i)
{
	u64 n = READ_BYTES / READ_ITEMS / sizeof(v8u), k;
	const v8u *p = (const v8u *)arg + i * n;
	v8u a = { }, b = { };

	for (k = 0; k < n; k += 2) {
		a += p[k];
		b += p[k + 1];
	}
	a += b;
	read_sums[i] = a[0] + a[1] + a[2] + a[3] + a[4] + a[5] + a[6] + a[7];
}

static void measure_read(void)
{
	void *data = filled(READ_BYTES / 4, KERN_F32);
	double best = 1e9, t;
	u32 r;

	for (r = 0; r < REPEATS; r++) {
		t = now();
		kern_parallel(ctx, READ_ITEMS, read_item, data);
		best = min(best, now() - t);
	}
	read_gbs = READ_BYTES / best / 1e9;
	free(data);
}

#define FMA_ROUNDS	200000
#define FMA_CHAINS	10

float fma_sums[64];

#define FMA_BODY(type, set, fma)					\
	type acc[FMA_CHAINS], x = set(0.999f);				\
	u32 k, c;							\
									\
	for (c = 0; c < FMA_CHAINS; c++)				\
		acc[c] = set(1.0f + c + i);				\
	for (k = 0; k < FMA_ROUNDS; k++)				\
		for (c = 0; c < FMA_CHAINS; c++)			\
			acc[c] = fma(acc[c], x, x);			\
	for (c = 1; c < FMA_CHAINS; c++)				\
		acc[0] += acc[c];					\
	fma_sums[i % 64] = acc[0][0]

#if defined(__x86_64__)
static __attribute__((target("avx512f"), optimize("O3")))
void fma_item_avx512(void *arg, u32 i)
{
	FMA_BODY(__m512, _mm512_set1_ps, _mm512_fmadd_ps);
}

static __attribute__((target("avx2,fma"), optimize("O3")))
void fma_item_avx2(void *arg, u32 i)
{
	FMA_BODY(__m256, _mm256_set1_ps, _mm256_fmadd_ps);
}
#endif

typedef float v4f __attribute__((vector_size(16)));

#define BASE_SET(x)		((x) - (v4f){ 0 })
#define BASE_FMA(a, b, c)	((a) * (b) + (c))

static __attribute__((optimize("O3"))) void fma_item_base(void *arg, u32 i)
{
	FMA_BODY(v4f, BASE_SET, BASE_FMA);
}

/* Multiply-adds in registers, as wide as the variant's. */
static void measure_peak(void)
{
	void (*item)(void *arg, u32 i) = fma_item_base;
	double best = 1e9, t;
	u32 lanes = 4, r, n = 4 * kern_ctx_nr_threads(ctx);

#if defined(__x86_64__)
	if (!strcmp(ops->variant, "avx512")) {
		item = fma_item_avx512;
		lanes = 16;
	} else if (!strcmp(ops->variant, "avx2")) {
		item = fma_item_avx2;
		lanes = 8;
	}
#endif
	for (r = 0; r < REPEATS; r++) {
		t = now();
		kern_parallel(ctx, n, item, NULL);
		best = min(best, now() - t);
	}
	peak_gflops = 2.0 * n * FMA_ROUNDS * FMA_CHAINS * lanes / best / 1e9;
}

/* ------------------------------------------------------------- single ops */

static void bench_gemm(u32 m, u32 n, u32 k, enum kern_dtype type)
{
	struct kern_weight w = { filled((u64)n * k, type), type, n, k };
	float *x = filled((u64)m * k, KERN_F32);
	float *y = filled((u64)m * n, KERN_F32);
	double best = 1e9, t, flops = 2.0 * m * n * k;
	double gb = (double)n * k * kern_dtype_size(type) / 1e9;
	char name[64];
	u32 r;

	for (r = 0; r < REPEATS; r++) {
		t = now();
		ops->gemm(ctx, x, 0, &w, NULL, m, y, 0);
		best = min(best, now() - t);
	}
	snprintf(name, sizeof(name), "gemm %s %ux%ux%u",
		 type == KERN_BF16 ? "bf16" : "f32", m, n, k);
	if (gb / read_gbs > flops / 1e9 / peak_gflops)
		report(name, gb / best, "GB/s", "read", read_gbs);
	else
		report(name, flops / best / 1e9, "GFLOP/s", "peak",
		       peak_gflops);
	free((void *)w.data);
	free(x);
	free(y);
}

struct attn_bench {
	struct kern_kv		kv;
	struct kern_attn	a;
	struct kern_attn_seq	seqs[32];
	u32			*table;
	u64			kv_bytes;
};

/* Blocks of 16 tokens, block-major, each sequence's scattered over the pool. */
static void attn_setup(struct attn_bench *b, u32 nr, u32 rows, u32 len,
		       u32 heads, u32 kv_heads, u32 hd)
{
	u32 blocks = DIV_ROUND_UP(len, 16), s, i;
	u64 n = (u64)blocks * nr, layer;

	b->kv = (struct kern_kv){ .unit = 64, .block_tokens = 16,
				  .nr_layers = 1, .kv_heads = kv_heads,
				  .head_dim = hd, .dtype = KERN_BF16 };
	layer = kern_kv_layer_bytes(&b->kv);
	b->kv.layer_stride = layer;
	b->kv_bytes = n * layer;
	b->kv.base = filled(n * layer / 2, KERN_BF16);
	b->table = calloc(n, sizeof(*b->table));
	for (i = 0; i < n; i++)
		b->table[i] = i * 7919ull % n * layer / 64;
	for (s = 0; s < nr; s++)
		b->seqs[s] = (struct kern_attn_seq){
			b->table + (u64)s * blocks, rows, s * rows, len - rows
		};
	b->a = (struct kern_attn){
		.kv = &b->kv, .nr_seqs = nr, .seqs = b->seqs,
		.q = filled((u64)nr * rows * heads * hd, KERN_F32),
		.out = filled((u64)nr * rows * heads * hd, KERN_F32),
		.heads = heads, .scale = 0.1f,
	};
}

static void attn_free(struct attn_bench *b)
{
	free(b->kv.base);
	free(b->table);
	free((void *)b->a.q);
	free(b->a.out);
}

static void bench_attn(u32 nr, u32 rows, u32 len, u32 heads, u32 kv_heads,
		       u32 hd)
{
	double best = 1e9, t, flops = 0;
	struct attn_bench b;
	char name[64];
	u32 r, i;

	attn_setup(&b, nr, rows, len, heads, kv_heads, hd);
	for (i = 0; i < rows; i++)
		flops += 4.0 * nr * heads * hd * (len - rows + i + 1);
	for (r = 0; r < REPEATS; r++) {
		t = now();
		ops->attention(ctx, &b.a);
		best = min(best, now() - t);
	}
	snprintf(name, sizeof(name), "attn %u seqs %u rows ctx %u %u/%ux%u",
		 nr, rows, len, heads, kv_heads, hd);
	if (rows == 1)
		report(name, b.kv_bytes / best / 1e9, "GB/s", "read", read_gbs);
	else
		report(name, flops / best / 1e9, "GFLOP/s", "peak",
		       peak_gflops);
	attn_free(&b);
}

/* ------------------------------------------------------------ whole steps */

struct shape {
	const char	*name;
	u32		layers;
	u32		dim;
	u32		heads;
	u32		kv_heads;
	u32		hd;
	u32		ff;
	u32		vocab;
};

static const struct shape shapes[] = {
	{ "4M", 6, 192, 6, 3, 32, 512, 4096 },
	{ "1B", 16, 2048, 32, 8, 64, 8192, 128256 },
};

struct step {
	const struct shape	*s;
	u32			m;
	struct kern_weight	qkv, o, gate_up, down, head;
	struct attn_bench	attn;
	float			*x, *h, *big, *wide, *table, *norm;
	double			bytes;		/* of weights, read in a step */
	double			flops;
};

/* Used @times times a step, by @m rows. */
static struct kern_weight weight(struct step *st, u32 rows, u32 cols, u32 times,
				 u32 m)
{
	st->bytes += 2.0 * rows * cols * times;
	st->flops += 2.0 * rows * cols * times * m;
	return (struct kern_weight){ filled((u64)rows * cols, KERN_BF16),
				     KERN_BF16, rows, cols };
}

static void step_setup(struct step *st, const struct shape *s, u32 m, u32 len)
{
	u32 qkv = (s->heads + 2 * s->kv_heads) * s->hd, i, *pos;
	u32 widest = max(max(qkv, 2 * s->ff), s->vocab);
	float *inv = filled(s->hd / 2, KERN_F32);

	memset(st, 0, sizeof(*st));
	st->s = s;
	st->m = m;
	st->qkv = weight(st, qkv, s->dim, s->layers, m);
	st->o = weight(st, s->dim, s->heads * s->hd, s->layers, m);
	st->gate_up = weight(st, 2 * s->ff, s->dim, s->layers, m);
	st->down = weight(st, s->dim, s->ff, s->layers, m);
	st->head = weight(st, s->vocab, s->dim, 1, 1);
	attn_setup(&st->attn, 1, m, len, s->heads, s->kv_heads, s->hd);
	st->x = filled((u64)m * s->dim, KERN_F32);
	st->h = filled((u64)m * s->dim, KERN_F32);
	st->big = filled((u64)m * widest, KERN_F32);
	st->wide = filled((u64)m * s->ff, KERN_F32);
	st->norm = filled(s->dim, KERN_F32);
	st->table = filled((u64)m * s->hd, KERN_F32);
	pos = calloc(m, sizeof(*pos));
	for (i = 0; i < m; i++)
		pos[i] = len - m + i;
	ops->rope_table(ctx, inv, s->hd / 2, pos, m, st->table);
	free(pos);
	free(inv);
}

static void step_layer(struct step *st)
{
	const struct shape *s = st->s;
	u32 m = st->m, q = s->heads * s->hd, kv = s->kv_heads * s->hd;
	u64 ld = q + 2 * kv;
	struct kern_attn a = st->attn.a;
	struct kern_kv_append app = {
		.kv = &st->attn.kv, .nr_seqs = 1, .seqs = st->attn.seqs,
		.k = st->big + q, .k_ld = ld, .v = st->big + q + kv, .v_ld = ld,
	};

	ops->rmsnorm(ctx, st->x, st->norm, m, s->dim, 1e-5f, st->h);
	ops->gemm(ctx, st->h, 0, &st->qkv, NULL, m, st->big, 0);
	ops->rope(ctx, st->big, ld, m, s->heads + s->kv_heads, s->hd,
		  s->hd / 2, st->table);
	ops->kv_write(ctx, &app);
	a.q = st->big;
	a.q_ld = ld;
	ops->attention(ctx, &a);
	ops->gemm(ctx, a.out, 0, &st->o, NULL, m, st->h, 0);
	ops->add(ctx, st->x, st->h, (u64)m * s->dim);
	ops->rmsnorm(ctx, st->x, st->norm, m, s->dim, 1e-5f, st->h);
	ops->gemm(ctx, st->h, 0, &st->gate_up, NULL, m, st->big, 0);
	ops->silu_mul(ctx, st->big, st->big + s->ff, 2ull * s->ff, m, s->ff,
		      st->wide);
	ops->gemm(ctx, st->wide, 0, &st->down, NULL, m, st->h, 0);
	ops->add(ctx, st->x, st->h, (u64)m * s->dim);
}

static void bench_step(const struct shape *s, u32 m, u32 len)
{
	double best = 1e9, t, limit;
	struct step st;
	char name[64];
	u32 r, l;

	step_setup(&st, s, m, len);
	for (r = 0; r < REPEATS; r++) {
		t = now();
		for (l = 0; l < s->layers; l++)
			step_layer(&st);
		/* Logits of the last row alone. */
		ops->gemm(ctx, st.x + (u64)(m - 1) * s->dim, 0, &st.head, NULL,
			  1, st.big, 0);
		best = min(best, now() - t);
	}
	if (m == 1) {
		limit = read_gbs * 1e9 /
			(st.bytes + st.attn.kv_bytes * s->layers);
		snprintf(name, sizeof(name), "decode %s ctx %u", s->name, len);
	} else {
		st.flops += 4.0 * s->heads * s->hd * s->layers * m *
			    (len - m / 2.0);
		limit = m * peak_gflops * 1e9 / st.flops;
		snprintf(name, sizeof(name), "prefill %s %u tokens", s->name,
			 m);
	}
	report(name, m / best, "tokens/s", m == 1 ? "read" : "peak", limit);
	free((void *)st.qkv.data);
	free((void *)st.o.data);
	free((void *)st.gate_up.data);
	free((void *)st.down.data);
	free((void *)st.head.data);
	attn_free(&st.attn);
	free(st.x);
	free(st.h);
	free(st.big);
	free(st.wide);
	free(st.norm);
	free(st.table);
}

static void bench_all(void)
{
	u32 m;

	for (m = 1; m <= 64; m *= 2)
		bench_gemm(m, 14336, 4096, KERN_BF16);
	bench_gemm(1, 14336, 4096, KERN_F32);
	bench_gemm(512, 4096, 4096, KERN_BF16);
	bench_gemm(512, 4096, 4096, KERN_F32);
	bench_attn(1, 1, 8192, 32, 8, 128);
	bench_attn(8, 1, 8192, 32, 8, 128);
	bench_attn(32, 1, 1024, 32, 8, 128);
	bench_attn(1, 512, 512, 32, 8, 128);
	bench_attn(1, 512, 4096, 32, 8, 128);
	for (m = 0; m < ARRAY_SIZE(shapes); m++) {
		bench_step(&shapes[m], 1, 512);
		bench_step(&shapes[m], 256, 256);
	}
}

int main(int argc, char **argv)
{
	const char *out = getenv("KVMM_BENCH_OUT");
	u32 threads = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;

	ops = kern_get(argc > 1 ? argv[1] : NULL);
	if (!ops) {
		fprintf(stderr, "bench_kernels: no kernels called %s here\n",
			argv[1]);
		return EXIT_FAILURE;
	}
	if (kern_ctx_create(threads, &ctx))
		return EXIT_FAILURE;
	figures = out ? fopen(out, "a") : NULL;
	measure_read();
	measure_peak();
	printf("%s:%s, %u threads: read %.1f GB/s, peak %.0f GFLOP/s\n",
	       ops->name, ops->variant, kern_ctx_nr_threads(ctx), read_gbs,
	       peak_gflops);
	bench_all();
	if (figures)
		fclose(figures);
	kern_ctx_destroy(ctx);
	return EXIT_SUCCESS;
}
