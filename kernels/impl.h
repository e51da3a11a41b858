/* SPDX-License-Identifier: Apache-2.0 */
/*
 * impl.h - the implementations of the kernels, for select.c
 *
 * Each folder beside this file defines its own tables.
 */
#ifndef KERNELS_IMPL_H
#define KERNELS_IMPL_H

#include "kernels/kernels.h"

extern const struct kern_ops kern_ops_ref;
extern const struct kern_ops kern_ops_null;
extern const struct kern_ops kern_ops_cuda;
extern const struct kern_ops kern_ops_cuda_fast;

/**
 * kern_cpu_at() - enumerate the variants that this CPU runs
 * @i: 0 for the narrowest
 *
 * Return: a table, NULL past the last.
 */
const struct kern_ops *kern_cpu_at(u32 i);

/* The same of the variants that share their code with others; see kern_get(). */
const struct kern_ops *kern_cpu_ints_at(u32 i);

/**
 * kern_cpu_widest() - the widest variant that this CPU runs
 * @mode: numeric mode wanted; without a variant of it, the widest exact one
 *
 * Return: a table, never NULL.
 */
const struct kern_ops *kern_cpu_widest(enum kern_mode mode);

#endif /* KERNELS_IMPL_H */
