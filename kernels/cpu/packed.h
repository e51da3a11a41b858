/* SPDX-License-Identifier: Apache-2.0 */
/*
 * packed.h - how a packed matrix lies in memory
 *
 * Rows of W go by panels of PACK_ROWS.  A panel is its rows side by side: for
 * each pair of columns, in order, the pairs of all its rows.  A register so
 * holds one pair of 16 rows, and a product needs no sums across its lanes.
 * Rows and columns that W does not have are zeros.
 */
#ifndef KERNELS_CPU_PACKED_H
#define KERNELS_CPU_PACKED_H

#include "kernels/cpu/internal.h"

#define PACK_ROWS	32u

/* Elements of one panel. */
static inline u64 pack_panel(const struct kern_weight *w)
{
	return ALIGN_UP((u64)w->cols, 2ull) * PACK_ROWS;
}

/* The place of element (@row, 0); (@row, i) is i / 2 * 2 * PACK_ROWS + i % 2 on. */
static inline u64 pack_row(const struct kern_weight *w, u32 row)
{
	return row / PACK_ROWS * pack_panel(w) + row % PACK_ROWS * 2;
}

size_t kern_pack_bytes(const struct kern_weight *w);
void kern_pack(struct kern_ctx *ctx, struct kern_weight *w, void *to);

#endif /* KERNELS_CPU_PACKED_H */
