// SPDX-License-Identifier: Apache-2.0
/*
 * v_gemm_parts.c - run products, one or several at once
 *
 * Threads share out the items of all products together.  So many small products, of
 * experts for instance, cost one start of the threads and one end.  An item is a box of
 * one output: some rows of x by some panels of W.
 *
 * A kind of product that takes rows of x in a form of its own has them rounded first, as
 * many as fit the room.  Neighbours with the same x share the rounded rows.  More products
 * than fit are several batches; a product alone that does not fit is cut by rows.
 *
 * No item changes the order of a sum.  So bits do not depend on the other products.
 */
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/packed.h"

/* Items for each thread. */
#define ITEMS		16u
#define BATCH		256u
/* Less rounding than this many elements is not worth the threads. */
#define ROUND_MIN	(KERN_PARALLEL_MIN / 8)
/* Room for rows of x without a context: one row of the longest fits. */
#define ALONE_BYTES	(2 * PACK_MAX_COLS + 4096)

/**
 * struct batch - products that run together
 * @jobs:	them
 * @kinds:	of each
 * @nr:		how many
 * @row:	the number of the first row that is rounded for each, and behind them the
 *		number of rows
 * @item:	the number of the first item of each, and behind them the number of items
 */
struct batch {
	struct gemm_job		*jobs;
	const struct gemm_kind	*kinds[BATCH];
	u32			nr;
	u32			row[BATCH + 1];
	u32			item[BATCH + 1];
};

/* NULL: a product that runs alone, by itself. */
static const struct gemm_kind *kind_of(const struct gemm_job *j)
{
#ifdef KERN_INTS
	if (j->packed && kern_is_blocks(j->type))
		return &KERN_FN(kind_ints);
#endif
#ifdef KERN_FAST
	if (j->type == KERN_BF16)
		return j->packed ? &KERN_FN(kind_packed) : NULL;
#endif
	return &KERN_FN(kind_plain);
}

/* The last one of @nr with a first number of at most @i. */
static u32 find(const u32 *first, u32 nr, u32 i)
{
	u32 low = 0, mid;

	while (nr - low > 1) {
		mid = (low + nr) / 2;
		if (first[mid] <= i)
			low = mid;
		else
			nr = mid;
	}
	return low;
}

static void round_row(void *arg, u32 i)
{
	const struct batch *b = arg;
	const u32 at = find(b->row, b->nr, i), row = i - b->row[at];
	const struct gemm_job *j = &b->jobs[at];

	b->kinds[at]->round(j, row, (u8 *)j->rows + row * j->row_bytes);
}

static void run_box(void *arg, u32 i)
{
	const struct batch *b = arg;
	const u32 at = find(b->item, b->nr, i);
	const struct gemm_job *j = &b->jobs[at];
	const struct gemm_kind *kind = b->kinds[at];
	const u32 left = i - b->item[at];
	struct gemm_box box = {
		.m = left / j->n_items * kind->m_rows,
		.p = left % j->n_items * j->n_step,
	};

	box.nr = min(j->m - box.m, kind->m_rows);
	box.p_end = min(DIV_ROUND_UP(j->n, kind->w_rows), box.p + j->n_step);
	kind->mul(j, &box);
}

/* Has @j the same rounded rows as the product before it? */
static bool same_rows(const struct batch *b, const struct gemm_job *j)
{
	const struct gemm_job *last = b->nr ? j - 1 : NULL;

	return last && j->row_bytes && j->x == last->x && j->x_ld == last->x_ld &&
	       j->m == last->m && j->k == last->k && j->type == last->type &&
	       j->packed == last->packed;
}

/*
 * Append the product behind the others, with its rows at @*room.
 *
 * Return: false, the rows do not fit.
 */
static bool batch_add(struct batch *b, u8 **room, u64 *left)
{
	struct gemm_job *j = &b->jobs[b->nr];
	const struct gemm_kind *kind = kind_of(j);
	const bool same = same_rows(b, j);
	const u64 bytes = same ? 0 : j->m * j->row_bytes;

	if (bytes > *left)
		return false;
	b->kinds[b->nr] = kind;
	b->row[b->nr + 1] = b->row[b->nr] + (bytes ? j->m : 0);
	j->rows = same ? b->jobs[b->nr - 1].rows : *room;
	*room += bytes;
	*left -= bytes;
	b->nr++;
	return true;
}

static u32 panels_of(const struct batch *b, u32 at)
{
	return DIV_ROUND_UP(b->jobs[at].n, b->kinds[at]->w_rows);
}

static u32 boxes_of_m(const struct batch *b, u32 at)
{
	return DIV_ROUND_UP(b->jobs[at].m, b->kinds[at]->m_rows);
}

/* Cut all outputs into boxes. */
static void batch_cut(struct batch *b, u32 threads)
{
	u64 panels = 0, step;
	struct gemm_job *j;
	u32 i;

	for (i = 0; i < b->nr; i++)
		panels += (u64)panels_of(b, i) * boxes_of_m(b, i);
	step = panels / (ITEMS * threads);
	for (i = 0; i < b->nr; i++) {
		j = &b->jobs[i];
		j->n_step = min(max(step, (u64)b->kinds[i]->step_min),
				(u64)b->kinds[i]->step_max);
		j->n_items = DIV_ROUND_UP(panels_of(b, i), j->n_step);
		b->item[i + 1] = b->item[i] + j->n_items * boxes_of_m(b, i);
	}
}

static void batch_run(struct kern_ctx *ctx, struct batch *b)
{
	u64 work = 0, rounded = 0;
	u32 i;

	for (i = 0; i < b->nr; i++) {
		work += (u64)b->jobs[i].m * b->jobs[i].n * b->jobs[i].k;
		rounded += (u64)(b->row[i + 1] - b->row[i]) * b->jobs[i].k;
	}
	if (work < KERN_PARALLEL_MIN)
		ctx = NULL;
	batch_cut(b, ctx ? kern_ctx_nr_threads(ctx) : 1);
	kern_parallel(rounded < ROUND_MIN ? NULL : ctx, b->row[b->nr], round_row, b);
	kern_parallel(ctx, b->item[b->nr], run_box, b);
}

/* A product whose rows do not fit together. */
static void job_slices(struct kern_ctx *ctx, struct gemm_job j, u8 *room, u64 bytes)
{
	const u32 m = j.m, fit = bytes / j.row_bytes;
	struct batch b = { .jobs = &j, .row = { 0 }, .item = { 0 } };
	u8 *to;
	u64 left;
	u32 done;

	for (done = 0; done < m; done += j.m) {
		j.m = min(m - done, fit);
		to = room;
		left = bytes;
		b.nr = 0;
		batch_add(&b, &to, &left);
		batch_run(ctx, &b);
		j.x += j.m * j.x_ld;
		j.y += j.m * j.y_ld;
	}
}

/* As many products as run together; returns their number. */
static u32 jobs_next(struct kern_ctx *ctx, struct gemm_job *jobs, u32 nr, u8 *room,
		     u64 bytes)
{
	struct batch b = { .jobs = jobs, .row = { 0 }, .item = { 0 } };
	u8 *to = room;
	u64 left = bytes;

	while (b.nr < min(nr, BATCH) && batch_add(&b, &to, &left))
		;
	if (b.nr)
		batch_run(ctx, &b);
	else
		job_slices(ctx, jobs[0], room, bytes);
	return max(b.nr, 1u);
}

static void jobs_run(struct kern_ctx *ctx, struct gemm_job *jobs, u32 nr, u8 *room,
		     u64 bytes)
{
	u32 i;

	for (i = 0; i < nr; i++)
		if (kind_of(&jobs[i])->row_bytes)
			jobs[i].row_bytes = kind_of(&jobs[i])->row_bytes(&jobs[i]);
	for (i = 0; i < nr;)
		i += jobs_next(ctx, jobs + i, nr - i, room, bytes);
}

static __attribute__((noinline)) void jobs_alone(struct gemm_job *jobs, u32 nr)
{
	u8 room[ALONE_BYTES] __attribute__((aligned(64)));

	jobs_run(NULL, jobs, nr, room, sizeof(room));
}

bool KERN_FN(gemm_jobs)(struct kern_ctx *ctx, struct gemm_job *jobs, u32 nr)
{
	u32 i;

	for (i = 0; i < nr; i++)
		if (!kind_of(&jobs[i]))
			return false;
	if (ctx)
		jobs_run(ctx, jobs, nr, (u8 *)kern_ctx_room(ctx) + KERN_ROOM,
			 KERN_ROOM);
	else
		jobs_alone(jobs, nr);
	return true;
}

/* Products that cannot run together run one by one. */
static void parts_apart(struct kern_ctx *ctx, const struct kern_gemm_part *p, u32 nr)
{
	for (; nr; nr--, p++)
		KERN_FN(gemm)(ctx, p->x, p->x_ld, p->w, p->bias, p->m, p->y, p->y_ld);
}

static void parts_batch(struct kern_ctx *ctx, const struct kern_gemm_part *parts,
			u32 nr)
{
	struct gemm_job jobs[BATCH];
	bool ordered = false;
	u32 i;

	for (i = 0; i < nr; i++) {
		jobs[i] = gemm_job_of(&parts[i]);
		ordered |= parts[i].w->order != NULL;
	}
	if (ordered || !KERN_FN(gemm_jobs)(ctx, jobs, nr))
		parts_apart(ctx, parts, nr);
}

void KERN_FN(gemm_parts)(struct kern_ctx *ctx, const struct kern_gemm_part *parts,
			 u32 nr)
{
	u32 i, some;

	for (i = 0; i < nr; i += some) {
		some = min(nr - i, BATCH);
		parts_batch(ctx, parts + i, some);
	}
}
