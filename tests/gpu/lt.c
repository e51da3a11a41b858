// SPDX-License-Identifier: Apache-2.0
/*
 * lt.c - cuBLASLt by dlopen; the used part of its interface is declared here
 *
 * Its matrices are column-major: y[m][n] of rows is its n x m matrix, w its
 * k x n to be transposed, x its k x m.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/lt.h"

enum {
	LT_R_32F = 0, LT_R_16BF = 14,
	LT_COMPUTE_32F = 68,
	LT_OP_T = 1,
	LT_DESC_TRANSA = 3,
	LT_PREF_WORKSPACE = 1,
};

/* cublasLtMatmulHeuristicResult_t */
struct lt_choice {
	u64	algo[8];
	size_t	workspace;
	int	state;
	float	waves;
	int	resv[4];
};

#define LT_FUNCTIONS(x)							\
	x(Create, (void **))						\
	x(MatmulDescCreate, (void **, int, int))			\
	x(MatmulDescSetAttribute, (void *, int, const void *, size_t))	\
	x(MatrixLayoutCreate, (void **, int, u64, u64, s64))		\
	x(MatmulPreferenceCreate, (void **))				\
	x(MatmulPreferenceSetAttribute,					\
	  (void *, int, const void *, size_t))				\
	x(MatmulAlgoGetHeuristic,					\
	  (void *, void *, void *, void *, void *, void *, void *, int,	\
	   struct lt_choice *, int *))					\
	x(Matmul, (void *, void *, const void *, const void *, void *,	\
		   const void *, void *, const void *, const void *,	\
		   void *, void *, void *, const void *, void *, size_t,\
		   CUstream))

struct lt {
#define x(name, args)	int (*name) args;
	LT_FUNCTIONS(x)
#undef x
	void			*handle;
	void			*desc;
	void			*a, *b, *d;
	struct lt_choice	choice;
	CUdeviceptr		work;
	u64			work_bytes;
};

static void *find_library(void)
{
	static const char *const names[] = {
		"libcublasLt.so.13", "/usr/local/cuda/lib64/libcublasLt.so.13",
		"libcublasLt.so.12", "/usr/local/cuda/lib64/libcublasLt.so.12",
		"libcublasLt.so",
	};
	const char *own = getenv("KVMM_CUBLASLT");
	void *lib = NULL;
	u32 i;

	if (own && *own)
		return dlopen(own, RTLD_NOW | RTLD_LOCAL);
	/* With a stand-in for the driver it would find no device. */
	if (!gpu_is_real())
		return NULL;
	for (i = 0; !lib && i < sizeof(names) / sizeof(*names); i++)
		lib = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
	return lib;
}

struct lt *lt_open(void)
{
	void *lib = find_library();
	struct lt *lt;

	if (!lib)
		return NULL;
	lt = calloc(1, sizeof(*lt));
	if (!lt)
		return NULL;
#define x(name, args)							\
	lt->name = (int (*) args)(uintptr_t)dlsym(lib, "cublasLt" #name); \
	if (!lt->name)							\
		goto out_free;
	LT_FUNCTIONS(x)
#undef x
	if (lt->Create(&lt->handle))
		goto out_free;
	return lt;

out_free:
	free(lt);
	return NULL;
}

bool lt_plan(struct lt *lt, u64 m, u64 n, u64 k, bool wide, CUdeviceptr work,
	     u64 work_bytes)
{
	const int out = wide ? LT_R_32F : LT_R_16BF;
	const int op = LT_OP_T;
	void *pref = NULL;
	int got = 0;

	lt->work = work;
	lt->work_bytes = work_bytes;
	return !lt->MatmulDescCreate(&lt->desc, LT_COMPUTE_32F, LT_R_32F) &&
	       !lt->MatmulDescSetAttribute(lt->desc, LT_DESC_TRANSA, &op,
					   sizeof(op)) &&
	       !lt->MatrixLayoutCreate(&lt->a, LT_R_16BF, k, n, k) &&
	       !lt->MatrixLayoutCreate(&lt->b, LT_R_16BF, k, m, k) &&
	       !lt->MatrixLayoutCreate(&lt->d, out, n, m, n) &&
	       !lt->MatmulPreferenceCreate(&pref) &&
	       !lt->MatmulPreferenceSetAttribute(pref, LT_PREF_WORKSPACE,
						 &work_bytes,
						 sizeof(work_bytes)) &&
	       !lt->MatmulAlgoGetHeuristic(lt->handle, lt->desc, lt->a, lt->b,
					   lt->d, lt->d, pref, 1, &lt->choice,
					   &got) &&
	       got == 1 && !lt->choice.state;
}

void lt_put(struct lt *lt, CUdeviceptr x, CUdeviceptr w, CUdeviceptr y,
	    CUstream s)
{
	const float one = 1, zero = 0;
	void *d = (void *)(uintptr_t)y;
	int r;

	r = lt->Matmul(lt->handle, lt->desc, &one, (void *)(uintptr_t)w, lt->a,
		       (void *)(uintptr_t)x, lt->b, &zero, d, lt->d, d, lt->d,
		       lt->choice.algo, (void *)(uintptr_t)lt->work,
		       lt->work_bytes, s);
	if (r)
		gpu_die("cublasLtMatmul: status %d", r);
}
