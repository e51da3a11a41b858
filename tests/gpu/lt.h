/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lt.h - cuBLASLt, as a ceiling and as a peer
 */
#ifndef TESTS_GPU_LT_H
#define TESTS_GPU_LT_H

#include "tests/gpu/gpu.h"

struct lt;

/* NULL if the library is not found; $KVMM_CUBLASLT names one. */
struct lt *lt_open(void);

/**
 * lt_plan() - choose how y[m][n] = x[m][k] * w[n][k]^T is computed
 * @wide: y is f32, else bf16; x and w are bf16
 *
 * Return: false when the library has no algorithm.
 */
bool lt_plan(struct lt *lt, u64 m, u64 n, u64 k, bool wide, CUdeviceptr work,
	     u64 work_bytes);

/* Put the product into @s; a failure ends the process. */
void lt_put(struct lt *lt, CUdeviceptr x, CUdeviceptr w, CUdeviceptr y,
	    CUstream s);

#endif /* TESTS_GPU_LT_H */
