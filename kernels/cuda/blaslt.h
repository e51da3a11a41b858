/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blaslt.h - the functions of cuBLASLt in use, loaded at run time
 *
 * This file declares the functions in use, so neither headers nor libraries of the
 * toolkit are needed.  If cublasLt.h is installed, a test compares the list with
 * it.  Functions are named without "cublasLt".
 */
#ifndef KERNELS_CUDA_BLASLT_H
#define KERNELS_CUDA_BLASLT_H

#include "kernels/cuda/internal.h"

enum {
	LT_SUCCESS		= 0,	/* CUBLAS_STATUS_SUCCESS */
	LT_R_32F		= 0,	/* CUDA_R_32F */
	LT_R_16BF		= 14,	/* CUDA_R_16BF */
	LT_COMPUTE_32F		= 68,	/* CUBLAS_COMPUTE_32F */
	LT_OP_T			= 1,	/* CUBLAS_OP_T */
	LT_DESC_TRANSA		= 3,	/* CUBLASLT_MATMUL_DESC_TRANSA */
	LT_PREF_MAX_WORKSPACE	= 1,	/* ..PREF_MAX_WORKSPACE_BYTES */
};

typedef int lt_status;
typedef int lt_enum;
typedef lt_enum lt_compute;
typedef lt_enum lt_type;
typedef lt_enum lt_desc_attr;
typedef lt_enum lt_pref_attr;
typedef CUstream lt_stream;

struct lt_handle;
struct lt_desc;
struct lt_layout;
struct lt_pref;

/* cublasLtMatmulAlgo_t */
struct lt_algo {
	u64	data[8];
};

/* cublasLtMatmulHeuristicResult_t */
struct lt_result {
	struct lt_algo	algo;
	size_t		workspace;
	lt_status	state;
	float		waves;
	int		reserved[4];
};

/* The types in the list; a test replaces them by the toolkit's. */
#define LT_HANDLE	struct lt_handle *
#define LT_DESC		struct lt_desc *
#define LT_LAYOUT	struct lt_layout *
#define LT_PREF		struct lt_pref *
#define LT_ALGO		struct lt_algo
#define LT_RESULT	struct lt_result

/* x(name, (parameters)): all of them return lt_status. */
#define BLASLT_FUNCTIONS(x)						\
	x(Create, (LT_HANDLE *))					\
	x(Destroy, (LT_HANDLE))						\
	x(MatmulDescCreate, (LT_DESC *, lt_compute, lt_type))		\
	x(MatmulDescDestroy, (LT_DESC))					\
	x(MatmulDescSetAttribute,					\
	  (LT_DESC, lt_desc_attr, const void *, size_t))		\
	x(MatrixLayoutCreate,						\
	  (LT_LAYOUT *, lt_type, uint64_t, uint64_t, int64_t))		\
	x(MatrixLayoutDestroy, (LT_LAYOUT))				\
	x(MatmulPreferenceCreate, (LT_PREF *))				\
	x(MatmulPreferenceDestroy, (LT_PREF))				\
	x(MatmulPreferenceSetAttribute,					\
	  (LT_PREF, lt_pref_attr, const void *, size_t))		\
	x(MatmulAlgoGetHeuristic,					\
	  (LT_HANDLE, LT_DESC, LT_LAYOUT, LT_LAYOUT, LT_LAYOUT,		\
	   LT_LAYOUT, LT_PREF, int, LT_RESULT *, int *))		\
	x(Matmul,							\
	  (LT_HANDLE, LT_DESC, const void *, const void *, LT_LAYOUT,	\
	   const void *, LT_LAYOUT, const void *, const void *,		\
	   LT_LAYOUT, void *, LT_LAYOUT, const LT_ALGO *, void *,	\
	   size_t, lt_stream))

struct blaslt;

/**
 * struct blaslt_gemm - y[m][n] = x[m][k] * w[n][k]^T
 * @x: bf16, rows @x_ld apart; every row of @x, @w and @y begins at a multiple of
 *	16 bytes
 * @w: bf16, dense
 * @y: f32, rows @y_ld apart
 */
struct blaslt_gemm {
	const void	*x;
	u64		x_ld;
	const void	*w;
	float		*y;
	u64		y_ld;
	u32		m;
	u32		n;
	u32		k;
};

/**
 * blaslt_open() - open a handle of the library for @c
 *
 * $KVMM_CUBLASLT names the library to use; with "none" no library is used.  A
 * missing library or function is logged once a process.
 *
 * Return: NULL if the library is missing or cannot be used; products then use
 * kernels of our own.
 */
struct blaslt *blaslt_open(struct cuda_ctx *c);
void blaslt_close(struct cuda_ctx *c, struct blaslt *lt);

/**
 * blaslt_gemm() - put a product into the stream of @c
 *
 * Return: false if the library cannot compute it; the caller must then do so.
 */
bool blaslt_gemm(struct cuda_ctx *c, struct blaslt *lt,
		 const struct blaslt_gemm *g);

/* For tests: number of shapes with an algorithm, and of those that were timed. */
void blaslt_count(const struct blaslt *lt, u32 *chosen, u32 *timed);

#endif /* KERNELS_CUDA_BLASLT_H */
