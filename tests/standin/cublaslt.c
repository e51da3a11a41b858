// SPDX-License-Identifier: Apache-2.0
/*
 * cublaslt.c - a cuBLASLt that computes on the CPU, and fails when told to
 *
 * Made into a library of its own for tests ($KVMM_CUBLASLT).  It accepts only
 * products that the project asks the real one for: A transposed, bf16 times bf16
 * into f32, addresses and rows at multiples of 16 bytes.  It proposes three
 * algorithms: one that needs more memory than it may have, a slow one and a fast
 * one, told apart by their first word.  With @fake_lt.strict an algorithm takes
 * only the shape that it was proposed for.
 *
 * Products go into the stream by the stand-in of the driver, whose device
 * memory is memory of this process.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/cuda/blaslt.h"
#include "tests/standin/cublaslt.h"

#define EXPORT		__attribute__((visibility("default")))
#define x(name, args)	EXPORT lt_status cublasLt##name args;
BLASLT_FUNCTIONS(x)
#undef x

#define INVALID		7	/* CUBLAS_STATUS_INVALID_VALUE */
#define UNSUPPORTED	15	/* CUBLAS_STATUS_NOT_SUPPORTED */
#define SLOW_NS		3000000l

struct lt_handle {
	u32	magic;
};

struct lt_desc {
	lt_compute	compute;
	lt_type		scale;
	int		trans_a;
};

struct lt_layout {
	lt_type		type;
	u64		rows;
	u64		cols;
	s64		ld;
};

struct lt_pref {
	size_t		workspace;
};

/* A product that lies in a stream. */
struct product {
	const u16	*a;
	const u16	*b;
	float		*d;
	u64		m, n, k;	/* of the library: d is m rows by n */
	s64		lda, ldb, ldd;
	bool		slow;
};

EXPORT extern struct fake_lt fake_lt;
struct fake_lt fake_lt;

static bool told_to_fail(enum fake_lt_call call)
{
	return ++fake_lt.calls[call] == fake_lt.fail_at[call] ||
	       fake_lt.fail_always[call];
}

static void *object(enum fake_lt_call call, size_t bytes)
{
	void *p = told_to_fail(call) ? NULL : calloc(1, bytes);

	fake_lt.objects += p != NULL;
	return p;
}

static lt_status drop(void *p)
{
	fake_lt.objects--;
	free(p);
	return LT_SUCCESS;
}

lt_status cublasLtCreate(struct lt_handle **ret)
{
	*ret = object(FAKE_Create, sizeof(**ret));
	return *ret ? LT_SUCCESS : 1;
}

lt_status cublasLtDestroy(struct lt_handle *h)
{
	return drop(h);
}

lt_status cublasLtMatmulDescCreate(struct lt_desc **ret, lt_compute compute,
				   lt_type scale)
{
	*ret = object(FAKE_MatmulDescCreate, sizeof(**ret));
	if (!*ret)
		return INVALID;
	**ret = (struct lt_desc){ .compute = compute, .scale = scale };
	return LT_SUCCESS;
}

lt_status cublasLtMatmulDescDestroy(struct lt_desc *d)
{
	return drop(d);
}

lt_status cublasLtMatmulDescSetAttribute(struct lt_desc *d, lt_desc_attr attr,
				     const void *buf, size_t bytes)
{
	if (told_to_fail(FAKE_MatmulDescSetAttribute) ||
	    attr != LT_DESC_TRANSA || bytes != sizeof(d->trans_a))
		return INVALID;
	memcpy(&d->trans_a, buf, bytes);
	return LT_SUCCESS;
}

lt_status cublasLtMatrixLayoutCreate(struct lt_layout **ret, lt_type type,
				uint64_t rows,
				 uint64_t cols, int64_t ld)
{
	*ret = object(FAKE_MatrixLayoutCreate, sizeof(**ret));
	if (!*ret)
		return INVALID;
	**ret = (struct lt_layout){ type, rows, cols, ld };
	return LT_SUCCESS;
}

lt_status cublasLtMatrixLayoutDestroy(struct lt_layout *l)
{
	return drop(l);
}

lt_status cublasLtMatmulPreferenceCreate(struct lt_pref **ret)
{
	*ret = object(FAKE_MatmulPreferenceCreate, sizeof(**ret));
	return *ret ? LT_SUCCESS : INVALID;
}

lt_status cublasLtMatmulPreferenceDestroy(struct lt_pref *p)
{
	return drop(p);
}

lt_status cublasLtMatmulPreferenceSetAttribute(struct lt_pref *p,
				lt_pref_attr attr,
					   const void *buf, size_t bytes)
{
	if (told_to_fail(FAKE_MatmulPreferenceSetAttribute) ||
	    attr != LT_PREF_MAX_WORKSPACE || bytes != sizeof(p->workspace))
		return INVALID;
	memcpy(&p->workspace, buf, bytes);
	return LT_SUCCESS;
}

lt_status cublasLtMatmulAlgoGetHeuristic(struct lt_handle *h, struct lt_desc *d,
					 struct lt_layout *a,
					 struct lt_layout *b,
					 struct lt_layout *c,
					 struct lt_layout *y,
					 struct lt_pref *pref, int most,
					 struct lt_result *r, int *nr)
{
	const size_t needs[] = { pref->workspace + 1, 0, pref->workspace };
	int i, first = most > 1 ? 0 : 1;

	(void)h;
	(void)d;
	(void)b;
	(void)c;
	(void)a;
	*nr = 0;
	if (told_to_fail(FAKE_MatmulAlgoGetHeuristic))
		return UNSUPPORTED;
	for (i = first; i < 3 && *nr < most; i++)
		r[(*nr)++] = (struct lt_result){
			.algo.data = { i + 1, y->cols }, .workspace = needs[i],
		};
	return LT_SUCCESS;
}

static float widen(u16 h)
{
	const u32 bits = (u32)h << 16;
	float f;

	memcpy(&f, &bits, sizeof(f));
	return f;
}

/* d, columns first: d[i + j * ldd] = sum of a[k + i * lda] * b[k + j * ldb]. */
static void compute(void *arg)
{
	const struct product *p = arg;
	const struct timespec slow = { 0, SLOW_NS };
	u64 i, j, k;
	double sum;

	if (p->slow)
		nanosleep(&slow, NULL);
	for (j = 0; j < p->n; j++) {
		for (i = 0; i < p->m; i++) {
			sum = 0;
			for (k = 0; k < p->k; k++)
				sum += (double)widen(p->a[k + i * p->lda]) *
				       widen(p->b[k + j * p->ldb]);
			p->d[i + j * p->ldd] = sum;
		}
	}
}

/* Put the product into the stream through the stand-in of the driver. */
static lt_status enqueue(lt_stream stream, const struct product *p)
{
	static int (*call)(CUstream, void (*)(void *), const void *, size_t);
	const char *name = getenv("KVMM_LIBCUDA");
	void *lib = call || !name ? NULL :
		    dlopen(name, RTLD_NOW | RTLD_NOLOAD);

	if (lib)
		call = (int (*)(CUstream, void (*)(void *), const void *,
				size_t))(uintptr_t)dlsym(lib, "standin_call");
	if (!call)
		return INVALID;
	return call(stream, compute, p, sizeof(*p)) ? INVALID : LT_SUCCESS;
}

static bool aligned(const void *p, s64 row_bytes)
{
	return !((uintptr_t)p % 16) && !(row_bytes % 16);
}

static bool is_taken(const struct lt_desc *d, const struct lt_layout *a,
		     const struct lt_layout *b, const struct lt_layout *y)
{
	return d->compute == LT_COMPUTE_32F && d->scale == LT_R_32F &&
	       d->trans_a == LT_OP_T && a->type == LT_R_16BF &&
	       b->type == LT_R_16BF && y->type == LT_R_32F &&
	       a->rows == b->rows && a->cols == y->rows &&
	       b->cols == y->cols;
}

lt_status cublasLtMatmul(struct lt_handle *h, struct lt_desc *d,
			 const void *alpha, const void *pa,
			 struct lt_layout *a, const void *pb,
			 struct lt_layout *b, const void *beta, const void *pc,
			 struct lt_layout *c, void *pd, struct lt_layout *y,
			 const struct lt_algo *algo, void *workspace,
			 size_t bytes, lt_stream stream)
{
	const struct product p = {
		pa, pb, pd, a->cols, b->cols, a->rows, a->ld, b->ld, y->ld,
		algo->data[0] == 2,
	};

	if (told_to_fail(FAKE_Matmul))
		return INVALID;
	if (!h || !is_taken(d, a, b, y) || pc != pd || c != y ||
	    *(const float *)alpha != 1 || *(const float *)beta != 0 ||
	    !aligned(pa, 2 * a->ld) || !aligned(pb, 2 * b->ld) ||
	    !aligned(pd, 4 * y->ld))
		return INVALID;
	if (algo->data[0] == 1 || algo->data[0] > 3 ||
	    (algo->data[0] == 3 && !workspace && bytes) ||
	    (fake_lt.strict && algo->data[1] != y->cols))
		return UNSUPPORTED;
	fake_lt.by[algo->data[0] - 1]++;
	return enqueue(stream, &p);
}
