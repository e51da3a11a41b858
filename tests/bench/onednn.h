/* SPDX-License-Identifier: Apache-2.0 */
/*
 * onednn.h - matrix products of oneDNN, where its library is installed
 */
#ifndef TESTS_BENCH_ONEDNN_H
#define TESTS_BENCH_ONEDNN_H

#include <kvmm/types.h>

struct onednn_gemm;

/*
 * Find the library and make its engine.  Return: NULL, or one line with the
 * reason why there is none and the remedy.
 */
const char *onednn_open(void);

/* Threads of the products that run from now on. */
void onednn_threads(u32 nr);

/**
 * onednn_gemm_create() - y[m][n] = x[m][k] * w[n][k]^T, y in f32
 * @bf16:   x and w are bf16, else f32
 * @packed: w in the form that the library likes best, packed beforehand (its
 *	values are made up), else as a checkpoint has it, @w
 *
 * Return: the product, or NULL if the library does not have it.
 */
struct onednn_gemm *onednn_gemm_create(u32 m, u32 n, u32 k, bool bf16,
				       bool packed, const void *x,
				       const void *w, float *y);
void onednn_gemm_run(struct onednn_gemm *g);
void onednn_gemm_destroy(struct onednn_gemm *g);

#endif /* TESTS_BENCH_ONEDNN_H */
