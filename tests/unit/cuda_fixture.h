/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_fixture.h - a context on the GPU, or on its stand-in
 *
 * Tests of the CUDA kernels run on the library that $KVMM_LIBCUDA names, and
 * without it on the stand-in of the build, which needs no GPU.  Arguments of an
 * op are copied to the device, and its results are copied back.  Outputs are
 * NaN first, and have NaN behind them that must stay.
 */
#ifndef CUDA_FIXTURE_H
#define CUDA_FIXTURE_H

#include <stdio.h>

#include "check_kernels.h"
#include "kernels/cuda/internal.h"

/* Floats behind each output, which an op must not touch. */
#define DEV_GUARD	8u
#define DEV_MAX		256u

static struct {
	const struct kern_ops	*ops;
	struct kern_ctx		*ctx;
	void			*mem[DEV_MAX];
	u32			nr;
} dev;

/* @name: "cuda" or "cuda-fast" */
static inline void dev_open_as(const char *name)
{
	const char *build = getenv("KVMM_BUILD");
	char path[512], why[256] = "";
	int err;

	snprintf(path, sizeof(path), "%s/tests/standin/libcuda.so.1",
		 build ? build : "build");
	ck_assert_int_eq(setenv("KVMM_LIBCUDA", path, 0), 0);
	ck_assert_int_eq(setenv("KVMM_CUBLASLT", "none", 0), 0);
	dev.ops = kern_get(name);
	ck_assert_ptr_nonnull(dev.ops);
	err = kern_open(dev.ops, 1, NULL, &dev.ctx, why, sizeof(why));
	ck_assert_msg(!err, "%s: %s", name, why);
}

static inline void dev_open(void)
{
	dev_open_as("cuda");
}

static inline void *dev_alloc(u64 bytes)
{
	void *p = dev.ops->mem_alloc(dev.ctx, bytes);

	ck_assert_ptr_nonnull(p);
	if (dev.nr == DEV_MAX)
		ck_abort_msg("too many allocations");
	dev.mem[dev.nr++] = p;
	return p;
}

/* Free all allocations but the first @nr. */
static inline void dev_free_to(u32 nr)
{
	while (dev.nr > nr)
		dev.ops->mem_free(dev.ctx, dev.mem[--dev.nr]);
}

static inline void dev_close(void)
{
	dev_free_to(0);
	kern_close(dev.ops, dev.ctx);
}

/* A copy on the device, @skew bytes after an aligned address. */
static inline void *dev_put_at(const void *from, u64 bytes, u32 skew)
{
	u8 *p = (u8 *)dev_alloc(bytes + skew) + skew;

	dev.ops->mem_put(dev.ctx, p, from, bytes);
	return p;
}

static inline void *dev_put(const void *from, u64 bytes)
{
	return dev_put_at(from, bytes, 0);
}

static inline float *dev_floats(const float *from, u64 n, u32 skew)
{
	return dev_put_at(from, n * sizeof(*from), skew * sizeof(*from));
}

/* @n floats that no op wrote, and a guard. */
static inline float *dev_poison(u64 n, u32 skew)
{
	float *f = poisoned(n + DEV_GUARD), *p;

	p = dev_floats(f, n + DEV_GUARD, skew);
	free(f);
	return p;
}

static inline void dev_get(void *to, const void *from, u64 bytes)
{
	int err = dev.ops->mem_get(dev.ctx, to, from, bytes);

	ck_assert_msg(!err, "%s", dev.ops->failure(dev.ctx));
}

/* @n results in memory from malloc(); no op may have written behind them. */
static inline float *dev_result(const float *from, u64 n)
{
	float *f = malloc((n + DEV_GUARD) * sizeof(*f));
	u32 i;

	ck_assert_ptr_nonnull(f);
	dev_get(f, from, (n + DEV_GUARD) * sizeof(*f));
	for (i = 0; i < DEV_GUARD; i++)
		if (!isnan(f[n + i]))
			ck_abort_msg("wrote behind its %llu results",
				     (unsigned long long)n);
	return f;
}

/* A copy of @n floats with a guard behind it, for ops that work in place. */
static inline float *dev_inout(const float *from, u64 n, u32 skew)
{
	float *p = dev_poison(n, skew);

	dev.ops->mem_put(dev.ctx, p, from, n * sizeof(*from));
	return p;
}

/* Round @n results to bf16, as an op does in bf16 arithmetic. */
static inline void round_all(float *f, u64 n)
{
	u64 i;

	for (i = 0; i < n; i++)
		if (!isnan(f[i]))
			f[i] = bf16_to(bf16_of(f[i]));
}

static inline void assert_same(const char *what, const float *got,
			       const float *want, u64 n)
{
	u64 i;

	for (i = 0; i < n; i++)
		if (memcmp(&got[i], &want[i], sizeof(*got)))
			ck_abort_msg("%s: element %llu of %llu is %a, not %a",
				     what, (unsigned long long)i,
				     (unsigned long long)n, (double)got[i],
				     (double)want[i]);
}

static inline void assert_close(const char *what, double got, double want,
				double scale)
{
	if (got == want || fabs(got - want) <= KERN_TOL * scale)
		return;
	ck_abort_msg("%s: got %.9g, want %.9g, off by %.3g of its scale %.3g",
		     what, got, want, fabs(got - want) / scale, scale);
}

#endif /* CUDA_FIXTURE_H */
