// SPDX-License-Identifier: Apache-2.0
/*
 * bench_kernels.c - the CPU kernels as a share of the machine's limits
 *
 * Two limits are measured in the same run, with the same threads: the rate of
 * reading an array far larger than the caches (it binds decode) and the rate of
 * multiply-adds in registers (it binds prefill).  Then matrix products and
 * attention run at shapes of 8B models; each figure is the best of some repeats
 * beside the limit that binds it.  bench_decode measures whole steps.
 *
 * Usage: bench_kernels [NAME [THREADS]], as kern_get() and kern_ctx_create()
 * take them.
 */
#include <stdlib.h>

#include "tests/bench/kern_bench.h"

#define REPEATS		5

static double read_gbs;
static double peak_gflops;

static void report(const char *name, double value, const char *unit,
		   const char *peer, double limit)
{
	printf("%-44s %10.1f %-8s %5.2f of %s\n", name, value, unit,
	       value / limit, peer);
	if (kb.figures)
		fprintf(kb.figures,
			"{\"name\": \"kernels %s\", \"value\": %.6g, "
			"\"unit\": \"%s\", \"peer\": \"%s\", "
			"\"peer_value\": %.6g, \"ratio\": %.4f}\n",
			name, value, unit, peer, limit, value / limit);
}

/* ------------------------------------------------------------- single ops */

static void bench_gemm(u32 m, u32 n, u32 k, enum kern_dtype type)
{
	struct kern_weight w = {
		.data = limit_filled((u64)n * k, type), .dtype = type,
		.rows = n, .cols = k,
	};
	float *x = limit_filled((u64)m * k, KERN_F32);
	float *y = limit_filled((u64)m * n, KERN_F32);
	double best = 1e9, t, flops = 2.0 * m * n * k;
	double gb = (double)n * k * kern_dtype_size(type) / 1e9;
	char name[64];
	u32 r;

	for (r = 0; r < REPEATS; r++) {
		t = kb_now();
		kb.ops->gemm(kb.ctx, x, 0, &w, NULL, m, y, 0);
		best = min(best, kb_now() - t);
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

static void bench_attn(u32 nr, u32 rows, u32 len, u32 heads, u32 kv_heads,
		       u32 hd, enum kern_dtype type)
{
	static const char * const names[] = {
		[KERN_F32] = "f32", [KERN_BF16] = "bf16", [KERN_F16] = "f16",
		[KERN_E4M3] = "e4m3", [KERN_I8] = "int8",
	};
	double best = 1e9, t, flops = 0;
	struct attn_bench b;
	char name[64];
	u32 r, i;

	attn_bench_setup(&b, nr, rows, len, heads, kv_heads, hd, type);
	for (i = 0; i < rows; i++)
		flops += 4.0 * nr * heads * hd * (len - rows + i + 1);
	for (r = 0; r < REPEATS; r++) {
		t = kb_now();
		kb.ops->attention(kb.ctx, &b.a);
		best = min(best, kb_now() - t);
	}
	snprintf(name, sizeof(name), "attn %s %u seqs %u rows ctx %u %u/%ux%u",
		 names[type], nr, rows, len, heads, kv_heads, hd);
	if (rows == 1)
		report(name, b.kv_bytes / best / 1e9, "GB/s", "read", read_gbs);
	else
		report(name, flops / best / 1e9, "GFLOP/s", "peak",
		       peak_gflops);
	attn_bench_free(&b);
}

/* Latent vectors of DeepSeek-V2-Lite, in decode and prefill. */
static void bench_latent(u32 nr, u32 rows, u32 len, enum kern_dtype type)
{
	const u32 heads = 16, rank = 512, hd = 576;
	double best = 1e9, t, flops = 0;
	struct attn_bench b;
	char name[64];
	u32 r, i;

	attn_bench_setup(&b, nr, rows, len, heads, 1, hd, type);
	b.kv.rank = rank;
	for (i = 0; i < rows; i++)
		flops += 2.0 * nr * heads * (hd + rank) * (len - rows + i + 1);
	for (r = 0; r < REPEATS; r++) {
		t = kb_now();
		kb.ops->attn_latent(kb.ctx, &b.a);
		best = min(best, kb_now() - t);
	}
	snprintf(name, sizeof(name), "latent %s %u seqs %u rows ctx %u",
		 type == KERN_BF16 ? "bf16" : "f32", nr, rows, len);
	report(name, flops / best / 1e9, "GFLOP/s", "peak", peak_gflops);
	attn_bench_free(&b);
}

static void bench_all(void)
{
	enum kern_dtype type;
	u32 m;

	for (m = 1; m <= 64; m *= 2)
		bench_gemm(m, 14336, 4096, KERN_BF16);
	bench_gemm(1, 14336, 4096, KERN_F32);
	bench_gemm(512, 4096, 4096, KERN_BF16);
	bench_gemm(512, 4096, 4096, KERN_F32);
	bench_attn(1, 1, 8192, 32, 8, 128, KERN_BF16);
	bench_attn(32, 1, 1024, 32, 8, 128, KERN_BF16);
	bench_attn(1, 512, 512, 32, 8, 128, KERN_BF16);
	bench_latent(1, 1, 8192, KERN_BF16);
	bench_latent(8, 1, 4096, KERN_BF16);
	bench_latent(1, 128, 2048, KERN_BF16);
	bench_latent(1, 1, 8192, KERN_F32);
	for (type = KERN_F32; type <= KERN_I8; type++) {
		bench_attn(8, 1, 8192, 32, 8, 128, type);
		bench_attn(1, 512, 4096, 32, 8, 128, type);
	}
}

int main(int argc, char **argv)
{
	u32 threads = argc > 2 ? strtoul(argv[2], NULL, 10) : 0, r;

	if (kb_open(argc > 1 ? argv[1] : NULL, threads))
		return EXIT_FAILURE;
	for (r = 0; r < REPEATS; r++) {
		read_gbs = max(read_gbs, kb_read());
		peak_gflops = max(peak_gflops, kb_peak());
	}
	printf("%s:%s, %u threads: read %.1f GB/s, peak %.0f GFLOP/s\n",
	       kb.ops->name, kb.ops->variant, kern_ctx_nr_threads(kb.ctx),
	       read_gbs, peak_gflops);
	bench_all();
	kb_close();
	return EXIT_SUCCESS;
}
