// SPDX-License-Identifier: Apache-2.0
/*
 * bench_blocks.c - products of quantized weights beside reading, and beside bf16
 *
 * A layer of a 1.1B model, each type of weights, from one row (decode) to 512 (prefill).
 * As many matrices as take MATRIX_BYTES are multiplied in turn, so that none is found in a
 * cache.  A round runs, in turn: a read of memory, the product in exact mode with weights
 * as they are stored, the same packed in fast mode, and a packed product of bf16.  The
 * table shows the median of the rounds: GB/s of weights beside the read of the same round,
 * and the time beside that of bf16.
 *
 * Usage: bench_blocks [TYPE [M]]
 */
#include <stdlib.h>
#include <sys/mman.h>

#include "tests/bench/bench.h"
#include "tests/bench/limits.h"

#define ROUNDS		5
#define THREADS		2u
#define SHAPE_N		5632u
#define SHAPE_K		2048u
#define MATRIX_BYTES	(192ull << 20)
#define AIM_READ	0.9
#define AIM_READ_4	0.75

/* Matrices of one type, stored and packed. */
struct matrices {
	u32			nr;
	struct kern_weight	*stored;
	struct kern_weight	*packed;
	u8			*packs;
	size_t			bytes;		/* of a packed one */
};

enum { READ, EXACT, FAST, BF16, NR };

struct bench {
	struct kern_ctx	*ctx;
	const float	*x;
	float		*y;
	u32		m;
	double		t[NR][ROUNDS];		/* READ: GB/s; else seconds */
};

static const struct kern_ops *exact, *fast;

/* Pages of memory, huge ones if there are any. */
static u8 *pages(u64 bytes)
{
	u8 *p = aligned_alloc(2u << 20, ALIGN_UP(bytes, 2ull << 20));

	if (!p)
		bench_die("no memory for %llu MB",
			  (unsigned long long)(bytes >> 20));
	madvise(p, bytes, MADV_HUGEPAGE);
	return p;
}

/* Random bytes, but scales in f16 and f32 that are small numbers. */
static void fill(u8 *to, u64 bytes)
{
	u64 state = bytes, i;

	for (i = 0; i < bytes; i++) {
		state = state * 6364136223846793005ull + 1442695040888963407ull;
		to[i] = state >> 40 & 0x3b;
	}
}

static struct matrices matrices_make(struct kern_ctx *ctx, enum kern_dtype type)
{
	struct kern_weight w = {
		.dtype = type, .rows = SHAPE_N, .cols = SHAPE_K,
	};
	const u64 stored = SHAPE_N * kern_row_bytes(type, SHAPE_K);
	struct matrices of = { .nr = MATRIX_BYTES / stored + 1 };
	u32 i;

	of.stored = calloc(of.nr, sizeof(w));
	of.packed = calloc(of.nr, sizeof(w));
	of.bytes = fast->pack_bytes ? fast->pack_bytes(&w) : 0;
	of.packs = pages(of.nr * max(of.bytes, (size_t)1));
	w.data = pages(of.nr * stored);
	fill((u8 *)w.data, of.nr * stored);
	for (i = 0; i < of.nr; i++) {
		of.packed[i] = of.stored[i] = w;
		if (of.bytes)
			fast->pack(ctx, &of.packed[i], of.packs + i * of.bytes);
		w.data = (const u8 *)w.data + stored;
	}
	return of;
}

static void matrices_free(struct matrices *of)
{
	free((void *)of->stored[0].data);
	free(of->packs);
	free(of->stored);
	free(of->packed);
}

/* Seconds of a product, in the mean over all matrices. */
static double seconds(const struct bench *b, const struct kern_ops *ops,
		      const struct kern_weight *w, u32 nr)
{
	const u32 used = b->m > 64 ? min(nr, 4u) : nr;
	double t = limit_now(b->ctx);
	u32 i;

	for (i = 0; i < used; i++)
		ops->gemm(b->ctx, b->x, 0, &w[i], NULL, b->m, b->y, 0);
	return (limit_now(b->ctx) - t) / used;
}

static void show(const struct bench *b, const struct matrices *of)
{
	const enum kern_dtype type = of->stored[0].dtype;
	const double size = of->bytes ? (double)of->bytes :
			    (double)SHAPE_N * kern_row_bytes(type, SHAPE_K);
	double rates[ROUNDS], shares[ROUNDS], times[ROUNDS];
	char name[64];
	struct bench_figure f = {
		.name = name, .unit = "GB/s", .peer = "read",
		.min_ratio = type == KERN_Q8_0 || type == KERN_BF16 ? AIM_READ :
			     type == KERN_Q4_0 || type == KERN_Q4_K ? AIM_READ_4 : 0,
	};
	u32 r;

	for (r = 0; r < ROUNDS; r++) {
		rates[r] = size / 1e9 / b->t[FAST][r];
		shares[r] = rates[r] / b->t[READ][r];
		times[r] = b->t[BF16][r] / b->t[FAST][r];
	}
	printf("%-7s %4u | exact %8.3f ms | fast %8.3f ms, %5.1f GB/s, %4.2f of read | %4.2f x bf16\n",
	       kern_dtype_name(type), b->m,
	       1e3 * bench_median((double *)b->t[EXACT], ROUNDS),
	       1e3 * bench_median((double *)b->t[FAST], ROUNDS),
	       bench_median(rates, ROUNDS), bench_median(shares, ROUNDS),
	       bench_median(times, ROUNDS));
	fflush(stdout);
	snprintf(name, sizeof(name), "decode of %s, of read", kern_dtype_name(type));
	f.value = bench_median(rates, ROUNDS);
	f.peer_value = bench_median((double *)b->t[READ], ROUNDS);
	if (b->m == 1)
		bench_report(&f);
}

static void bench_type(struct bench *b, enum kern_dtype type,
		       const struct matrices *bf16, u32 only)
{
	static const u32 rows[] = { 1, 4, 16, 32, 64, 512 };
	struct matrices of = matrices_make(b->ctx, type);
	u32 i, r;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		b->m = rows[i];
		if (only && b->m != only)
			continue;
		for (r = 0; r < ROUNDS; r++) {
			b->t[READ][r] = limit_read(b->ctx);
			b->t[EXACT][r] = seconds(b, exact, of.stored, of.nr);
			b->t[FAST][r] = seconds(b, fast, of.packed, of.nr);
			b->t[BF16][r] = seconds(b, fast, bf16->packed, bf16->nr);
		}
		show(b, &of);
	}
	matrices_free(&of);
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : NULL;
	const u32 only = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;
	struct bench b = {
		.x = limit_filled(512ull * SHAPE_K, KERN_F32),
		.y = limit_filled(512ull * SHAPE_N, KERN_F32),
	};
	struct matrices bf16;
	u32 t;

	exact = kern_get("cpu");
	fast = kern_get("cpu-fast");
	if (kern_ctx_create(THREADS, &b.ctx))
		bench_die("cannot start %u threads", THREADS);
	bf16 = matrices_make(b.ctx, KERN_BF16);
	printf("%u threads, %s and %s, %u x %u\n", THREADS, exact->variant,
	       fast->variant, SHAPE_N, SHAPE_K);
	for (t = KERN_F32; t < NR_KERN_DTYPES; t++)
		if ((t == KERN_BF16 || t == KERN_F16 || kern_is_blocks(t)) &&
		    (!name || !strcmp(name, kern_dtype_name(t))))
			bench_type(&b, t, &bf16, only);
	matrices_free(&bf16);
	kern_ctx_destroy(b.ctx);
	return EXIT_SUCCESS;
}
