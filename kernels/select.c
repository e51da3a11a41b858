// SPDX-License-Identifier: Apache-2.0
/*
 * select.c - choose an implementation of the kernels
 *
 * The reference, the variants for CPUs (kernels/cpu/variants.c) and those for
 * a GPU are tables of the same operations.  The default is the widest variant
 * of a numeric mode that this CPU runs.  A name can force another, for tests
 * and to make two unlike machines compute the same bits.
 */
#include "kernels/impl.h"

const struct kern_ops *kern_at(u32 i)
{
	return i ? kern_cpu_at(i - 1) : &kern_ops_ref;
}

const struct kern_ops *kern_get(const char *name)
{
	const struct kern_ops *ops;
	u32 i;

	if (!name || !strcmp(name, "cpu"))
		return kern_cpu_widest(KERN_MODE_EXACT);
	if (!strcmp(name, "cpu-fast"))
		return kern_cpu_widest(KERN_MODE_FAST);
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
	for (i = 0; (ops = kern_cpu_at(i)); i++)
		if (!strcmp(name + 4, ops->variant))
			return ops;
	for (i = 0; (ops = kern_cpu_ints_at(i)); i++)
		if (!strcmp(name + 4, ops->variant))
			return ops;
	return NULL;
}

/* Dims of heads, and the rank. */
static bool dims_fit(const struct kern_kv *kv)
{
	const u32 most = kv->rank ? KERN_MAX_LATENT_DIM : KERN_MAX_HEAD_DIM;
	const u32 align = kv->rank ? KERN_DIM_ALIGN : KERN_HEAD_ALIGN;

	if (!kv->head_dim || kv->head_dim % align || kv->head_dim > most)
		return false;
	return !kv->rank || (kv->kv_heads == 1 && kv->rank <= KERN_MAX_RANK &&
			     kv->rank < kv->head_dim &&
			     !(kv->rank % KERN_DIM_ALIGN));
}

int kern_kv_check(const struct kern_kv *kv)
{
	u32 align = kern_dtype_scaled(kv->dtype) ? sizeof(float) :
		    kern_dtype_size(kv->dtype);

	if (kv->dtype > KERN_I8)
		return -EINVAL;
	if (!kv->block_tokens || kv->block_tokens % KERN_BLOCK_MIN ||
	    kv->block_tokens > KERN_BLOCK_MAX)
		return -EINVAL;
	if (!dims_fit(kv))
		return -EINVAL;
	if (!kv->nr_layers || !kv->kv_heads || !kv->unit)
		return -EINVAL;
	if (kv->unit % align || kv->layer_stride % align)
		return -EINVAL;
	if (kv->nr_layers > 1 && kv->layer_stride < kern_kv_layer_bytes(kv))
		return -EINVAL;
	return 0;
}

static bool state_dim(u32 n)
{
	return n && !(n % KERN_DIM_ALIGN) && n <= KERN_MAX_HEAD_DIM;
}

int kern_state_check(const struct kern_state *s)
{
	if (!state_dim(s->head_dim) || !state_dim(s->d_state) ||
	    s->conv < 2 || s->conv > KERN_MAX_CONV)
		return -EINVAL;
	if (!s->groups || !s->heads || s->heads % s->groups || !s->nr_layers)
		return -EINVAL;
	if (!s->tokens || s->tokens % KERN_BLOCK_MIN || s->tokens > KERN_BLOCK_MAX)
		return -EINVAL;
	if (!s->unit || s->unit % sizeof(float) ||
	    s->block_bytes < kern_state_stride(s))
		return -EINVAL;
	return 0;
}

int kern_kv_check_ops(const struct kern_ops *ops, const struct kern_kv *kv)
{
	int err = kern_kv_check(kv);

	if (err)
		return err;
	if (!(ops->kv_types & KERN_TYPE_BIT(kv->dtype)))
		return -EOPNOTSUPP;
	if (ops->kv_row && kv->head_dim * kern_dtype_size(kv->dtype) % ops->kv_row)
		return -EOPNOTSUPP;
	return 0;
}
