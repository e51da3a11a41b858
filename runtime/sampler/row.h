/* SPDX-License-Identifier: Apache-2.0 */
/*
 * row.h - the largest of a row of logits
 */
#ifndef RUNTIME_SAMPLER_ROW_H
#define RUNTIME_SAMPLER_ROW_H

#include <kvmm/types.h>

/**
 * struct row_best - what row_best() found
 * @value: the largest that is no NaN; -infinity where all are or none is there
 * @at:    the first that has it, 0 where all are NaN
 * @nan:   some are
 */
struct row_best {
	float	value;
	u32	at;
	bool	nan;
};

struct row_best row_best(const float *row, u32 n);

/* row_error() - 0, or why such a row cannot be drawn from */
int row_error(const struct row_best *best);

#endif /* RUNTIME_SAMPLER_ROW_H */
