/* SPDX-License-Identifier: Apache-2.0 */
/*
 * row.h - the largest logit of a row
 */
#ifndef RUNTIME_SAMPLER_ROW_H
#define RUNTIME_SAMPLER_ROW_H

#include <kvmm/types.h>

/**
 * struct row_best - the largest logit of a row
 * @value: the largest that is no NaN; -infinity if all are NaN or there is none
 * @at:    the first position with it, 0 if all are NaN
 * @nan:   there are NaNs
 */
struct row_best {
	float	value;
	u32	at;
	bool	nan;
};

struct row_best row_best(const float *row, u32 n);

/* row_error() - 0, or the reason why no token can be drawn from such a row */
int row_error(const struct row_best *best);

#endif /* RUNTIME_SAMPLER_ROW_H */
