// SPDX-License-Identifier: Apache-2.0
/*
 * variants.c - the variants of the CPU kernels that this CPU runs
 *
 * The variants are the same source compiled for wider instruction sets.  The
 * default of a numeric mode is the widest variant of that mode that the CPU
 * runs.  Every CPU runs a variant of exact mode.  If it runs none of fast mode,
 * the widest exact one serves, which is within the tolerance of fast mode.
 *
 * Invariant: a table is returned only if this CPU runs every instruction in it.
 */
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "kernels/cpu/internal.h"
#include "kernels/impl.h"

struct variant {
	const struct kern_ops	*ops;
	bool			(*runs_here)(void);
};

static bool base_runs_here(void)
{
	return true;
}

#if defined(__x86_64__)
/* Not all compilers know this name of a feature. */
static bool has_f16c(void)
{
	u32 a, b, c = 0, d;

	return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static bool avx2_runs_here(void)
{
	return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
	       has_f16c();
}

static bool avx512_runs_here(void)
{
	return avx2_runs_here() && __builtin_cpu_supports("avx512f") &&
	       __builtin_cpu_supports("avx512bw") &&
	       __builtin_cpu_supports("avx512dq") &&
	       __builtin_cpu_supports("avx512vl");
}

static bool avx512vnni_runs_here(void)
{
	return avx512_runs_here() && __builtin_cpu_supports("avx512vnni");
}

static bool avx512bf16_runs_here(void)
{
	return avx512vnni_runs_here() && __builtin_cpu_supports("avx512bf16");
}
#endif

static const struct variant variants[] = {
#define x(v)	{ .ops = &kern_ops_##v, .runs_here = v##_runs_here },
	KERN_VARIANTS(x)
#undef x
};

/*
 * Variants of fast mode that are another one with packed integers.  The variant that is
 * wider in exact mode is wider here.
 */
static const struct variant ints[] = {
#if defined(__x86_64__)
	{ .ops = &kern_ops_ints_avx2, .runs_here = avx2_runs_here },
	{ .ops = &kern_ops_ints_avx512, .runs_here = avx512vnni_runs_here },
#endif
};

const struct kern_ops *kern_cpu_ints_at(u32 i)
{
	u32 v;

	for (v = 0; v < ARRAY_SIZE(ints); v++)
		if (ints[v].runs_here() && i-- == 0)
			return ints[v].ops;
	return NULL;
}

const struct kern_ops *kern_cpu_at(u32 i)
{
	u32 v;

	for (v = 0; v < ARRAY_SIZE(variants); v++)
		if (variants[v].runs_here() && i-- == 0)
			return variants[v].ops;
	return NULL;
}

/* The last variant of a mode is the widest. */
const struct kern_ops *kern_cpu_widest(enum kern_mode mode)
{
	const struct kern_ops *ops, *best = NULL;
	u32 i;

	for (i = 0; (ops = kern_cpu_at(i)); i++)
		if (ops->mode == KERN_MODE_EXACT || ops->mode == mode)
			best = ops;
	if (best->mode == mode)
		return best;
	for (i = 0; (ops = kern_cpu_ints_at(i)); i++)
		best = ops;
	return best;
}
