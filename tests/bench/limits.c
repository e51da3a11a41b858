// SPDX-License-Identifier: Apache-2.0
/*
 * limits.c - limits of this machine, measured beside the kernels
 *
 * Two limits bind a kernel: the rate of reading memory (decode) and the rate of
 * multiply-adds (prefill).  Each call measures once; the caller takes several
 * rounds, in turn with the kernels.
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernels/cpu/internal.h"
#include "tests/bench/bench.h"
#include "tests/bench/limits.h"

#define READ_BYTES	(256ull << 20)
#define READ_ITEMS	64
#define HUGE_PAGE	(2ull << 20)
#define FMA_ROUNDS	200000
#define FMA_CHAINS	12

typedef u64 v8u __attribute__((vector_size(64)));
typedef float v4f __attribute__((vector_size(16)));

/* Global, so that the compiler keeps the computation. */
u64 limit_sums[READ_ITEMS];
float limit_fma_sums[64];

void *limit_filled(u64 n, enum kern_dtype type)
{
	u64 bytes = ALIGN_UP(n * kern_dtype_size(type), HUGE_PAGE), i;
	u32 r = 1;
	float *f = aligned_alloc(HUGE_PAGE, bytes);
	u16 *h = (u16 *)f;

	if (!f)
		bench_die("no memory for %llu MB",
			  (unsigned long long)(bytes >> 20));
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

double limit_now(struct kern_ctx *ctx)
{
	bool one = kern_ctx_nr_threads(ctx) == 1;
	struct timespec ts;

	clock_gettime(one ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + 1e-9 * ts.tv_nsec;
}

/* Loads must be wide, or their number limits reading. */
#define READ_BODY							\
	u64 n = READ_BYTES / READ_ITEMS / sizeof(v8u), k;		\
	const v8u *p = (const v8u *)arg + i * n;			\
	v8u a = { }, b = { }, c = { }, d = { };				\
									\
	for (k = 0; k < n; k += 4) {					\
		a += p[k];						\
		b += p[k + 1];						\
		c += p[k + 2];						\
		d += p[k + 3];						\
	}								\
	a += b + c + d;							\
	limit_sums[i] = a[0] + a[1] + a[2] + a[3] + a[4] + a[5] + a[6] + a[7]

static void read_item(void *arg, u32 i)
{
	READ_BODY;
}

#if defined(__x86_64__)
static __attribute__((target("avx512f"))) void read_item_512(void *arg, u32 i)
{
	READ_BODY;
}
#endif

static void (*read_fn(void))(void *arg, u32 i)
{
#if defined(__x86_64__)
	if (__builtin_cpu_supports("avx512f"))
		return read_item_512;
#endif
	return read_item;
}

double limit_read(struct kern_ctx *ctx)
{
	static void *data;
	double t;

	if (!data)
		data = limit_filled(READ_BYTES / 4, KERN_F32);
	t = limit_now(ctx);
	kern_parallel(ctx, READ_ITEMS, read_fn(), data);
	return READ_BYTES / (limit_now(ctx) - t) / 1e9;
}

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
	limit_fma_sums[i % 64] = acc[0][0]

#if defined(__x86_64__)
#define DP(a, b, c)	_mm512_dpbf16_ps(a, (__m512bh)(b), (__m512bh)(c))

static __attribute__((target("avx512f,avx512bf16"), optimize("O3")))
void fma_item_avx512bf16(void *arg, u32 i)
{
	FMA_BODY(__m512, _mm512_set1_ps, DP);
}

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

#define BASE_SET(x)		((x) - (v4f){ 0 })
#define BASE_FMA(a, b, c)	((a) * (b) + (c))

static __attribute__((optimize("O3"))) void fma_item_base(void *arg, u32 i)
{
	FMA_BODY(v4f, BASE_SET, BASE_FMA);
}

/* Multiply-adds of one instruction, by variant. */
static const struct {
	const char	*variant;
	void		(*item)(void *arg, u32 i);
	u32		lanes;
} peaks[] = {
	{ "base", fma_item_base, 4 },
#if defined(__x86_64__)
	{ "avx2", fma_item_avx2, 8 },
	{ "avx512", fma_item_avx512, 16 },
	{ "avx512bf16", fma_item_avx512bf16, 32 },
#endif
};

double limit_peak(struct kern_ctx *ctx, const struct kern_ops *ops)
{
	u32 n = 4 * kern_ctx_nr_threads(ctx), i = 0;
	double t;

	while (i < ARRAY_SIZE(peaks) - 1 &&
	       strcmp(peaks[i].variant, ops->variant))
		i++;
	t = limit_now(ctx);
	kern_parallel(ctx, n, peaks[i].item, NULL);
	return 2.0 * n * FMA_ROUNDS * FMA_CHAINS * peaks[i].lanes /
	       (limit_now(ctx) - t) / 1e9;
}
