// SPDX-License-Identifier: Apache-2.0
/*
 * bench_gemm.c - products of Llama-3-8B's shapes, from one row to a prompt's
 *
 * A product of few rows reads all weights for little arithmetic: the figure is
 * the rate of reading weights, beside plain reads.  A product of many rows is
 * arithmetic: TFLOP/s, beside a product of 8192 cubed by cuBLASLt.  Each has the
 * same product by cuBLASLt's first choice beside it, from bf16 to f32.  That is a
 * little less work than ours, which take rows of x in f32.  Caches are cold.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/bench.h"
#include "tests/gpu/lt.h"

#define REPEATS		15u
#define WORK_BYTES	(64 * GPU_MIB)
#define MANY_ROWS	256u		/* from here on arithmetic counts */

struct shape {
	const char	*name;
	u32		n;
	u32		k;
};

static const struct shape shapes[] = {
	{ "qkv", 6144, 4096 },
	{ "o", 4096, 4096 },
	{ "gate_up", 28672, 4096 },
	{ "down", 4096, 14336 },
	{ "head", 128256, 4096 },
};

struct product {
	struct bench		*b;
	struct kern_weight	w;
	float			*x, *y;
	CUdeviceptr		x16;
	u32			m;
	struct lt		*lt;
};

static void put_ours(void *arg)
{
	struct product *p = arg;

	p->b->ops->gemm(p->b->ctx, p->x, 0, &p->w, NULL, p->m, p->y, 0);
}

static void put_lt(void *arg)
{
	struct product *p = arg;

	lt_put(p->lt, p->x16, (CUdeviceptr)(uintptr_t)p->w.data,
	       (CUdeviceptr)(uintptr_t)p->y, p->b->c->stream);
}

/* Rate of the product of @put: GB/s of weights, or TFLOP/s. */
static u32 rate_of(struct product *p, void (*put)(void *), double *v)
{
	const u32 repeats = bench_repeats(REPEATS);
	const double mn = (double)p->w.rows * p->w.cols;
	double us[REPEATS];
	u32 i;

	bench_op_us(p->b, put, p, us, repeats);
	for (i = 0; i < repeats; i++)
		v[i] = p->m >= MANY_ROWS ? 2 * p->m * mn / us[i] / 1e6 :
					   2 * mn / us[i] / 1e3;
	return repeats;
}

static void product_case(struct product *p, const struct shape *s, double gemm,
			 CUdeviceptr work)
{
	const bool many = p->m >= MANY_ROWS;
	struct gpu_line l = {
		many ? "TFLOP/s" : "GB/s",
		many ? "a product of 8192 cubed" : "plain reads",
		many ? gemm : p->b->read, NULL
	};
	double ours[REPEATS], theirs[REPEATS];
	u32 nr;

	nr = rate_of(p, put_ours, ours);
	gpu_emit(&l, ours, nr, "gemm.%s.%s.M%u", p->b->mode, s->name, p->m);
	if (!p->lt || !strcmp(p->b->mode, "exact"))
		return;
	if (!lt_plan(p->lt, p->m, p->w.rows, p->w.cols, true, work,
		     WORK_BYTES)) {
		gpu_skipped("cuBLASLt has no way", "gemm.cublaslt.%s.M%u",
			    s->name, p->m);
		return;
	}
	nr = rate_of(p, put_lt, theirs);
	gpu_emit(&l, theirs, nr, "gemm.cublaslt.%s.M%u", s->name, p->m);
	l.peer = "cuBLASLt";
	l.peer_value = gpu_median(theirs, nr);
	gpu_emit(&l, ours, nr, "gemm.%s.%s.M%u.peer", p->b->mode, s->name,
		 p->m);
}

static void shape_cases(struct bench *b, const struct shape *s, struct lt *lt,
			double gemm, CUdeviceptr work)
{
	static const u32 rows[] = { 1, 4, 8, 16, 32, 64, 128, 256, 512, 4096 };
	const u32 most = gpu_tiny ? 20 : 4096;
	struct product p = { .b = b, .lt = lt };
	u32 i;

	p.w = (struct kern_weight){
		.dtype = KERN_BF16, .rows = gpu_tiny ? 64 : s->n,
		.cols = gpu_tiny ? 128 : s->k,
	};
	p.w.data = (void *)(uintptr_t)probe_device(&b->g,
					2ull * p.w.rows * p.w.cols);
	p.x = (void *)(uintptr_t)probe_device(&b->g, 4ull * most * p.w.cols);
	p.y = (void *)(uintptr_t)probe_device(&b->g, 4ull * most * p.w.rows);
	p.x16 = (CUdeviceptr)(uintptr_t)p.x;
	probe_fill_bf16(&b->g, (CUdeviceptr)(uintptr_t)p.w.data,
			(u64)p.w.rows * p.w.cols, 1);
	probe_fill_bf16(&b->g, p.x16, 2ull * most * p.w.cols, 2);
	for (i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		p.m = rows[i];
		/* The head is computed for the last rows alone. */
		if (p.m <= most && (p.w.rows < 100000 || p.m <= 256))
			product_case(&p, s, gemm, work);
	}
	GPU_DO(b->g.cu->MemFree((CUdeviceptr)(uintptr_t)p.w.data));
	GPU_DO(b->g.cu->MemFree(p.x16));
	GPU_DO(b->g.cu->MemFree((CUdeviceptr)(uintptr_t)p.y));
}

void part_gemm(void)
{
	static const char *const modes[] = { "fast", "exact" };
	struct lt *lt = lt_open();
	CUdeviceptr work;
	struct bench b;
	double gemm;
	u32 m, i;

	bench_open(&b, "gemm", modes[0]);
	if (!b.ops->gemm) {
		gpu_skipped("this build has no products for GPUs", "gemm");
		return;
	}
	gemm = ceiling_gemm(&b.g);
	work = probe_device(&b.g, WORK_BYTES);
	for (m = 0; m < 2; m++) {
		if (m)
			bench_mode(&b, modes[m]);
		for (i = 0; i < (gpu_tiny ? 1 : 5); i++)
			shape_cases(&b, &shapes[i], lt, gemm, work);
	}
}
