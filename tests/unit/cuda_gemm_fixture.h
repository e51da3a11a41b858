/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_gemm_fixture.h - products on the stand-in of the driver
 *
 * A product is made up on the host, with gaps between its rows and with odd
 * addresses, and put on the device.  Its results are compared with sums in
 * double.  Outputs are poisoned, and the bytes between their rows and behind
 * them must stay.
 */
#ifndef CUDA_GEMM_FIXTURE_H
#define CUDA_GEMM_FIXTURE_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "check_kernels.h"
#include "kernels/cuda/internal.h"

struct gpu {
	const struct kern_ops	*ops;
	struct kern_ctx		*ctx;
};

/* $@name is build/tests/standin/@file, unless the variable is set. */
static inline void standin_env(const char *name, const char *file)
{
	const char *build = getenv("KVMM_BUILD");
	char path[512];

	snprintf(path, sizeof(path), "%s/tests/standin/%s",
		 build ? build : "build", file);
	ck_assert_msg(getenv(name) || !access(path, R_OK), "no %s", path);
	setenv(name, path, 0);
}

static inline struct gpu gpu_open(const char *name)
{
	struct gpu g = { .ops = kern_get(name) };
	char why[256] = "";

	standin_env("KVMM_LIBCUDA", "libcuda.so.1");
	ck_assert_ptr_nonnull(g.ops);
	ck_assert_msg(!kern_open(g.ops, 0, NULL, &g.ctx, why, sizeof(why)),
		      "%s: %s", name, why);
	return g;
}

static inline void gpu_close(struct gpu *g)
{
	ck_assert_msg(!g->ops->failure(g->ctx), "%s", g->ops->failure(g->ctx));
	kern_close(g->ops, g->ctx);
}

/* Copy @bytes of host memory to the device, @shift bytes off alignment. */
static inline void *gpu_put(struct gpu *g, const void *from, u64 bytes,
			    u32 shift)
{
	u8 *p = g->ops->mem_alloc(g->ctx, bytes + shift + 16);

	ck_assert_ptr_nonnull(p);
	g->ops->mem_put(g->ctx, p + shift, from, bytes);
	return p + shift;
}

static inline void gpu_drop(struct gpu *g, const void *p, u32 shift)
{
	g->ops->mem_free(g->ctx, (u8 *)(uintptr_t)p - shift);
}

/**
 * struct product - one product, on the host
 * @x_gap, @y_gap: elements between rows
 * @x_shift, @w_shift: bytes off alignment on the device
 */
struct product {
	u32			m, n, k;
	enum kern_dtype		type;
	u32			x_gap, y_gap;
	u32			x_shift, w_shift;
	bool			has_bias;
	bool			settle;
	float			*x;
	float			*bias;
	struct kern_weight	w;
	float			*y;
};

/* A random f16 with a medium exponent: no infinities, no subnormals. */
static inline u16 f16_random(struct rng *r)
{
	return (rng_next(r) & 0x83ff) | (8 + rng_next(r) % 8) << 10;
}

static inline float f16_to(u16 h)
{
	const float f = ldexpf(1024 + (h & 0x3ff), (h >> 10 & 31) - 25);

	return h & 0x8000 ? -f : f;
}

static inline float product_w(const struct product *p, u32 n, u32 k)
{
	if (p->type == KERN_F16)
		return f16_to(((const u16 *)p->w.data)[(u64)n * p->k + k]);
	return weight_at(&p->w, n, k);
}

static inline void product_make(struct product *p, struct rng *r)
{
	const u64 nx = (u64)p->m * (p->k + p->x_gap);
	const u64 ny = (u64)p->m * (p->n + p->y_gap);
	u64 i;

	p->x = rng_floats(r, nx);
	for (i = 0; i < nx; i++)
		if (i % (p->k + p->x_gap) >= p->k)
			p->x[i] = NAN;
	p->w = rng_weight(r, p->n, p->k, p->type);
	p->w.dtype = p->type;
	if (p->type == KERN_F16)
		for (i = 0; i < (u64)p->n * p->k; i++)
			((u16 *)(uintptr_t)p->w.data)[i] = f16_random(r);
	p->bias = rng_floats(r, p->n);
	p->y = poisoned(ny + 8);
}

static inline void product_free(struct product *p)
{
	free(p->x);
	free((void *)(uintptr_t)p->w.data);
	free(p->bias);
	free(p->y);
}

/* Run the product for rows @row to @row + @m of x alone, into @y (like p->y). */
static inline void product_run(struct gpu *g, const struct product *p, u32 row,
			       u32 m, float *y)
{
	const u64 x_ld = p->k + p->x_gap, y_ld = p->n + p->y_gap;
	const u64 wbytes = (u64)p->n * p->k * kern_dtype_size(p->type);
	float *x = gpu_put(g, p->x + row * x_ld, m * x_ld * 4, p->x_shift);
	float *bias = gpu_put(g, p->bias, p->n * 4ull, 4);
	float *out = gpu_put(g, y, (m * y_ld + 8) * 4, 0);
	float *back = malloc(m * x_ld * 4);
	struct kern_weight w = p->w;

	ck_assert_ptr_nonnull(back);
	w.data = gpu_put(g, p->w.data, wbytes, p->w_shift);
	g->ops->settles(g->ctx, p->settle);
	g->ops->gemm(g->ctx, x, p->x_gap ? x_ld : 0, &w,
		     p->has_bias ? bias : NULL, m, out, p->y_gap ? y_ld : 0);
	ck_assert_int_eq(g->ops->mem_get(g->ctx, y, out, (m * y_ld + 8) * 4),
			 0);
	ck_assert_int_eq(g->ops->mem_get(g->ctx, back, x, m * x_ld * 4), 0);
	ck_assert_msg(!memcmp(back, p->x + row * x_ld, m * x_ld * 4),
		      "x was written");
	gpu_drop(g, x, p->x_shift);
	gpu_drop(g, bias, 4);
	gpu_drop(g, out, 0);
	gpu_drop(g, w.data, p->w_shift);
	free(back);
}

/* All bytes that are no output must be unchanged: poisoned() fills with ones. */
static inline void product_gaps(const struct product *p)
{
	const u64 ld = p->n + p->y_gap;
	u64 i;
	u32 bits;

	for (i = 0; i < p->m * ld + 8; i++) {
		if (i < p->m * ld && i % ld < p->n)
			continue;
		memcpy(&bits, p->y + i, sizeof(bits));
		ck_assert_msg(bits == ~0u, "written beside y, at %llu",
			      (unsigned long long)i);
	}
}

/* Every element is within @tol of its scale. */
static inline void product_close(const struct product *p, double tol)
{
	double want, scale, t;
	u32 m, n, k;
	float got;

	for (m = 0; m < p->m; m++) {
		for (n = 0; n < p->n; n++) {
			want = p->has_bias ? p->bias[n] : 0;
			scale = fabs(want);
			for (k = 0; k < p->k; k++) {
				t = (double)p->x[m * (p->k + p->x_gap) + k] *
				    product_w(p, n, k);
				want += t;
				scale += fabs(t);
			}
			got = p->y[m * (p->n + p->y_gap) + n];
			t = tol * scale + 1e-30;
			if (p->settle) {
				ck_assert(bf16_to(bf16_of(got)) == got);
				t += fabs(want) * 0x1p-8;
			}
			ck_assert_msg(fabs(got - want) <= t,
				      "%ux%ux%u type %u: (%u, %u) is %g, not %g; %g off, of %g",
				      p->m, p->n, p->k, p->type, m, n, got,
				      want, fabs(got - want), t);
		}
	}
	product_gaps(p);
}

#endif /* CUDA_GEMM_FIXTURE_H */
