/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cublaslt.h - settings and counts of the stand-in of cuBLASLt, for tests
 */
#ifndef TESTS_STANDIN_CUBLASLT_H
#define TESTS_STANDIN_CUBLASLT_H

#include <kvmm/types.h>

enum fake_lt_call {
	FAKE_Create,
	FAKE_MatmulDescCreate,
	FAKE_MatmulDescSetAttribute,
	FAKE_MatrixLayoutCreate,
	FAKE_MatmulPreferenceCreate,
	FAKE_MatmulPreferenceSetAttribute,
	FAKE_MatmulAlgoGetHeuristic,
	FAKE_Matmul,
	FAKE_NR_CALLS
};

/**
 * struct fake_lt - its one variable, "fake_lt", found by dlsym()
 * @calls:   of each function so far
 * @fail_at: the call of that number fails; 0: none
 * @fail_always: all calls fail
 * @by:      products by each algorithm
 * @objects: made and not yet destroyed
 * @strict:  algorithms take only the M that they were proposed for
 */
struct fake_lt {
	u32	calls[FAKE_NR_CALLS];
	u32	fail_at[FAKE_NR_CALLS];
	bool	fail_always[FAKE_NR_CALLS];
	u32	by[3];
	s32	objects;
	bool	strict;
};

#endif /* TESTS_STANDIN_CUBLASLT_H */
