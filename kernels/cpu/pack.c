// SPDX-License-Identifier: Apache-2.0
/*
 * pack.c - reorder weights of a checkpoint as packed.h defines
 *
 * It only moves bits, so one compilation serves all variants.  An item is a
 * panel, so threads write to separate memory.  A panel is read one cache line of
 * each row at a time, since rows are often a power of two apart and would evict
 * each other from the first-level cache.  It is written from beginning to end.
 */
#include "kernels/cpu/ints.h"
#include "kernels/cpu/packed.h"

/* Columns of one line. */
#define BLOCK	32u

struct pack_job {
	const struct kern_weight	*w;
	u16				*to;
};

size_t kern_pack_bytes(const struct kern_weight *w)
{
	if (kern_is_blocks(w->dtype))
		return kern_int_pack_bytes(w);
	if (w->dtype != KERN_BF16 || w->packed || w->cols > PACK_MAX_COLS)
		return 0;
	return DIV_ROUND_UP(w->rows, PACK_ROWS) * pack_panel(w) * 2;
}

/* Copy @len columns of one row to their places in the panel. */
static void pack_line(const u16 *from, u16 *to, u32 len)
{
	u32 pair, i;

	for (i = 0; i + 2 <= len; i += 2) {
		memcpy(&pair, from + i, sizeof(pair));
		memcpy(to + (u64)i * PACK_ROWS, &pair, sizeof(pair));
	}
	if (i < len) {
		to[(u64)i * PACK_ROWS] = from[i];
		to[(u64)i * PACK_ROWS + 1] = 0;
	}
}

static void pack_panel_of(void *arg, u32 p)
{
	const struct pack_job *job = arg;
	const struct kern_weight *w = job->w;
	const u16 *from = w->data;
	u32 rows = min(w->rows - p * PACK_ROWS, PACK_ROWS), r, k, len;
	u16 *to = job->to + p * pack_panel(w);

	if (rows < PACK_ROWS)
		memset(to, 0, pack_panel(w) * sizeof(*to));
	from += (u64)p * PACK_ROWS * w->cols;
	for (k = 0; k < w->cols; k += len) {
		len = min(w->cols - k, BLOCK);
		for (r = 0; r < rows; r++)
			pack_line(from + (u64)r * w->cols + k,
				  to + (u64)k * PACK_ROWS + 2 * r, len);
	}
}

void kern_pack(struct kern_ctx *ctx, struct kern_weight *w, void *to)
{
	struct pack_job job = { .w = w, .to = to };

	if (kern_is_blocks(w->dtype)) {
		kern_int_pack(ctx, w, to);
		return;
	}
	kern_parallel(ctx, DIV_ROUND_UP(w->rows, PACK_ROWS), pack_panel_of,
		      &job);
	w->data = to;
	w->packed = true;
}
