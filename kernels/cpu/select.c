// SPDX-License-Identifier: Apache-2.0
/*
 * select.c - which implementation of the kernels to run
 *
 * The variants are the same source compiled for wider instruction sets; the
 * widest one that the CPU has of a numeric mode is the default of that mode.
 * Exact mode has one everywhere; where fast mode has none, the widest exact
 * one serves, which is within its tolerance.  A name can force another, for
 * tests and to make two unlike machines compute the same bits.
 *
 * Invariant: a table is handed out only if every instruction in it runs here.
 */
#include "kernels/cpu/internal.h"

struct variant {
	const struct kern_ops	*ops;
	bool			(*runs_here)(void);
};

static bool base_runs_here(void)
{
	return true;
}

#if defined(__x86_64__)
static bool avx2_runs_here(void)
{
	return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static bool avx512_runs_here(void)
{
	return avx2_runs_here() && __builtin_cpu_supports("avx512f") &&
	       __builtin_cpu_supports("avx512bw") &&
	       __builtin_cpu_supports("avx512dq") &&
	       __builtin_cpu_supports("avx512vl");
}

static bool avx512bf16_runs_here(void)
{
	return avx512_runs_here() && __builtin_cpu_supports("avx512bf16");
}
#endif

static const struct variant variants[] = {
#define x(v)	{ .ops = &kern_ops_##v, .runs_here = v##_runs_here },
	KERN_VARIANTS(x)
#undef x
};

const struct kern_ops *kern_at(u32 i)
{
	u32 v;

	if (i == 0)
		return &kern_ops_ref;
	for (v = 0; v < ARRAY_SIZE(variants); v++)
		if (variants[v].runs_here() && --i == 0)
			return variants[v].ops;
	return NULL;
}

/* The last of a mode is the widest; @mode is a wish, and exact always is. */
static const struct kern_ops *cpu_widest(enum kern_mode mode)
{
	const struct kern_ops *ops, *best = NULL;
	u32 i;

	for (i = 1; (ops = kern_at(i)); i++)
		if (ops->mode == KERN_MODE_EXACT || ops->mode == mode)
			best = ops;
	return best;
}

const struct kern_ops *kern_get(const char *name)
{
	const struct kern_ops *ops;
	u32 i;

	if (!name || !strcmp(name, "cpu"))
		return cpu_widest(KERN_MODE_EXACT);
	if (!strcmp(name, "cpu-fast"))
		return cpu_widest(KERN_MODE_FAST);
	if (!strcmp(name, "ref"))
		return &kern_ops_ref;
	if (!strcmp(name, "null"))
		return &kern_ops_null;
	if (!strcmp(name, "cuda"))
		return &kern_ops_cuda;
	if (!strcmp(name, "cuda-fast"))
		return &kern_ops_cuda_fast;
	if (strncmp(name, "cpu:", 4))
		return NULL;
	for (i = 1; (ops = kern_at(i)); i++)
		if (!strcmp(name + 4, ops->variant))
			return ops;
	return NULL;
}

int kern_kv_check(const struct kern_kv *kv)
{
	u32 align = kern_dtype_scaled(kv->dtype) ? sizeof(float) :
		    kern_dtype_size(kv->dtype);

	if (kv->dtype > KERN_I8)
		return -EINVAL;
	if (kv->block_tokens != 16 && kv->block_tokens != 32 &&
	    kv->block_tokens != 64)
		return -EINVAL;
	if (!kv->head_dim || kv->head_dim % KERN_DIM_ALIGN ||
	    kv->head_dim > KERN_MAX_HEAD_DIM)
		return -EINVAL;
	if (!kv->nr_layers || !kv->kv_heads || !kv->unit)
		return -EINVAL;
	if (kv->unit % align || kv->layer_stride % align)
		return -EINVAL;
	if (kv->nr_layers > 1 && kv->layer_stride < kern_kv_layer_bytes(kv))
		return -EINVAL;
	return 0;
}

int kern_kv_check_ops(const struct kern_ops *ops, const struct kern_kv *kv)
{
	int err = kern_kv_check(kv);

	if (err)
		return err;
	return ops->kv_types & KERN_TYPE_BIT(kv->dtype) ? 0 : -EOPNOTSUPP;
}
