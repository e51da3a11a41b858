/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cublaslt_layout.h - kernels/cuda/blaslt.h beside the toolkit's cublasLt.h
 *
 * The list of functions is read once more with the toolkit's types under our
 * names, so a parameter that differs does not compile.
 */
#ifndef CUBLASLT_LAYOUT_H
#define CUBLASLT_LAYOUT_H

#include <cublasLt.h>

#define SAME(a, b)	_Static_assert((long)(a) == (long)(b), #a " is not " #b)

SAME(LT_SUCCESS, CUBLAS_STATUS_SUCCESS);
SAME(LT_R_32F, CUDA_R_32F);
SAME(LT_R_16BF, CUDA_R_16BF);
SAME(LT_COMPUTE_32F, CUBLAS_COMPUTE_32F);
SAME(LT_OP_T, CUBLAS_OP_T);
SAME(LT_DESC_TRANSA, CUBLASLT_MATMUL_DESC_TRANSA);
SAME(LT_PREF_MAX_WORKSPACE, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
SAME(sizeof(lt_enum), sizeof(cudaDataType_t));
SAME(sizeof(lt_enum), sizeof(cublasComputeType_t));
SAME(sizeof(lt_enum), sizeof(cublasOperation_t));
SAME(sizeof(lt_enum), sizeof(cublasLtMatmulDescAttributes_t));
SAME(sizeof(lt_enum), sizeof(cublasLtMatmulPreferenceAttributes_t));
SAME(sizeof(lt_status), sizeof(cublasStatus_t));
SAME(sizeof(struct lt_algo), sizeof(cublasLtMatmulAlgo_t));
SAME(sizeof(struct lt_result), sizeof(cublasLtMatmulHeuristicResult_t));
SAME(offsetof(struct lt_result, workspace),
	offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
SAME(offsetof(struct lt_result, state),
	offsetof(cublasLtMatmulHeuristicResult_t, state));

#define lt_status	cublasStatus_t
#define lt_compute	cublasComputeType_t
#define lt_type		cudaDataType_t
#define lt_desc_attr	cublasLtMatmulDescAttributes_t
#define lt_pref_attr	cublasLtMatmulPreferenceAttributes_t
#define lt_stream	cudaStream_t
#undef LT_HANDLE
#define LT_HANDLE	cublasLtHandle_t
#undef LT_DESC
#define LT_DESC	cublasLtMatmulDesc_t
#undef LT_LAYOUT
#define LT_LAYOUT	cublasLtMatrixLayout_t
#undef LT_PREF
#define LT_PREF	cublasLtMatmulPreference_t
#undef LT_ALGO
#define LT_ALGO	cublasLtMatmulAlgo_t
#undef LT_RESULT
#define LT_RESULT	cublasLtMatmulHeuristicResult_t

#define x(name, args)							\
	_Static_assert(__builtin_types_compatible_p(			\
			__typeof__(&cublasLt##name), lt_status (*) args), \
		       "cublasLt" #name);
BLASLT_FUNCTIONS(x)
#undef x

#undef lt_status
#undef lt_compute
#undef lt_type
#undef lt_desc_attr
#undef lt_pref_attr
#undef lt_stream

static const char *cublaslt_layout(void)
{
	return NULL;
}

#endif /* CUBLASLT_LAYOUT_H */
