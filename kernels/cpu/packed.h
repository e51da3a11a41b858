/* SPDX-License-Identifier: Apache-2.0 */
/*
 * packed.h - layout of a packed matrix
 *
 * W is cut into panels of PACK_ROWS rows.  A panel interleaves its rows: for each
 * pair of columns, in order, it holds the pairs of all its rows.  So a register
 * holds one pair of columns of 16 rows, and a product needs no sums across lanes.
 * The last panel and an odd last column are padded with zeros.
 */
#ifndef KERNELS_CPU_PACKED_H
#define KERNELS_CPU_PACKED_H

#include "kernels/cpu/internal.h"

#define PACK_ROWS	32u

/* More columns are not packed: a row of x would not fit its buffer. */
#define PACK_MAX_COLS	(128u << 10)

/* Elements of one panel. */
static inline u64 pack_panel(const struct kern_weight *w)
{
	return ALIGN_UP((u64)w->cols, 2ull) * PACK_ROWS;
}

/* Index of element (@row, 0); (@row, i) is i / 2 * 2 * PACK_ROWS + i % 2 after it. */
static inline u64 pack_row(const struct kern_weight *w, u32 row)
{
	return row / PACK_ROWS * pack_panel(w) + row % PACK_ROWS * 2;
}

size_t kern_pack_bytes(const struct kern_weight *w);
void kern_pack(struct kern_ctx *ctx, struct kern_weight *w, void *to);

#endif /* KERNELS_CPU_PACKED_H */
