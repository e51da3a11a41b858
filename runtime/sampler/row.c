// SPDX-License-Identifier: Apache-2.0
/*
 * row.c - the largest logit of a row
 *
 * A greedy draw looks once at each logit, and with a fast model that is most of
 * the time outside the model.  So the row is read in vectors of the machine, in
 * parts.  The position of the largest logit is searched only in the first part
 * that has it.
 *
 * Comparisons with a NaN are false, so a NaN never becomes the largest.
 * Whether there was one is collected separately.
 */
#include <math.h>

#include "runtime/sampler/row.h"

#define LANES	4u	/* lanes that every machine has */
#define STEP	(4 * LANES)
#define PART	512u	/* a multiple of STEP */

typedef float lanes __attribute__((vector_size(LANES * sizeof(float))));
typedef s32 mask __attribute__((vector_size(LANES * sizeof(s32))));

static inline lanes larger(lanes a, lanes b)
{
	const mask more = a > b;

	return (lanes)(((mask)a & more) | ((mask)b & ~more));
}

/* Take LANES more of the row into *@best; *@bad collects NaNs. */
static inline void take(const float *row, lanes *best, mask *bad)
{
	lanes a;

	memcpy(&a, row, sizeof(a));
	*bad |= a != a;
	*best = larger(a, *best);
}

/* The largest of @n, a multiple of STEP; *@nan collects NaNs. */
static float part_max(const float *row, u32 n, s32 *nan)
{
	lanes a = (lanes){ 0 } - INFINITY, b = a, c = a, d = a;
	float value = -INFINITY;
	mask bad = { 0 };
	u32 i;

	/* Four chains that do not wait for each other. */
	for (i = 0; i < n; i += STEP) {
		take(row + i, &a, &bad);
		take(row + i + LANES, &b, &bad);
		take(row + i + 2 * LANES, &c, &bad);
		take(row + i + 3 * LANES, &d, &bad);
	}
	a = larger(larger(a, b), larger(c, d));
	for (i = 0; i < LANES; i++) {
		value = a[i] > value ? a[i] : value;
		*nan |= bad[i];
	}
	return value;
}

struct row_best row_best(const float *row, u32 n)
{
	struct row_best r = { .value = -INFINITY };
	u32 i, end, part = 0;
	s32 nan = 0;
	float v;

	for (i = 0; i < n; i = end) {
		end = min(i + PART, n);
		end -= (end - i) % STEP;
		if (end == i) {		/* the remaining ones, one by one */
			v = row[end++];
			nan |= isnan(v);
		} else {
			v = part_max(row + i, end - i, &nan);
		}
		if (v > r.value) {
			r.value = v;
			part = i;
		}
	}
	r.nan = nan;
	/* If all are -infinity or NaN, the first -infinity counts. */
	for (r.at = part; r.at < n && !(row[r.at] == r.value); r.at++)
		;
	if (r.at == n)
		r.at = 0;
	return r;
}

int row_error(const struct row_best *best)
{
	if (best->nan)
		return -EDOM;
	if (best->value == INFINITY)
		return -ERANGE;
	return best->value == -INFINITY ? -ENODATA : 0;
}
