// SPDX-License-Identifier: Apache-2.0
/*
 * step.c - upload the batch of a step
 *
 * The batch is one piece of memory: counts, sequences, each row's sequence, position
 * and token, the rows with wanted logits, and the tables, one after the other.  The
 * host lays it out and uploads it in one copy.  The offset of a part depends on the
 * numbers of rows and sequences that the piece is laid out for.  In recorded and
 * replayed steps these are the graph's numbers, so a graph finds the parts of every
 * batch at the same addresses.  Tables come last, since their length may change
 * from step to step.
 *
 * A model with several layer groups has several tables for a sequence.  Its sequences are
 * there once for each group, one group after the other, and differ in their tables.
 *
 * Rows that only fill a graph up belong to no sequence (~0), have token 0 at
 * position 0, and write no KV; their results are not used.
 *
 * Invariant: c->batch describes the batch on the device, in stream order, and the
 * sequences of group g begin at c->batch.seqs + g * c->room.
 */
#include <stdlib.h>

#include "kernels/cuda/internal.h"

#define PART_ALIGN	64u
#define STEP_BYTES_MIN	(64u << 10)

/* Offsets of the parts. */
struct parts {
	u64	seqs;
	u64	row_seq;
	u64	row_pos;
	u64	ids;
	u64	positions;
	u64	wanted;
	u64	entries;
	u64	end;
};

static u64 part(u64 *at, u64 bytes)
{
	const u64 from = *at;

	*at = ALIGN_UP(from + bytes, (u64)PART_ALIGN);
	return from;
}

static struct parts parts_of(u64 seqs, u64 rows, u64 wanted, u64 entries)
{
	const u64 row = sizeof(u32);
	struct parts p;
	u64 at = 0;

	part(&at, sizeof(struct dev_step));
	p.seqs = part(&at, seqs * sizeof(struct dev_seq));
	p.row_seq = part(&at, rows * row);
	p.row_pos = part(&at, rows * row);
	p.ids = part(&at, rows * row);
	p.positions = part(&at, rows * row);
	p.wanted = part(&at, wanted * row);
	p.entries = part(&at, entries * row);
	p.end = at;
	return p;
}

static u32 seq_entries(const struct kern_attn_seq *s, const struct kern_kv *kv)
{
	return DIV_ROUND_UP(s->start_pos + s->nr_rows, kv->block_tokens) *
	       max(kv->record_blocks, 1u);
}

/* Counts of a batch; *@entries: the entries of all its tables. */
static struct dev_step count(const struct kern_step *st, u64 *entries)
{
	struct dev_step n = { .nr_seqs = st->nr_seqs };
	const struct kern_attn_seq *s;
	u32 g;

	*entries = 0;
	for (s = st->seqs; s < st->seqs + st->nr_seqs; s++) {
		n.nr_rows = max(n.nr_rows, s->first_row + s->nr_rows);
		n.max_rows_seq = max(n.max_rows_seq, s->nr_rows);
		n.max_len = max(n.max_len, s->start_pos + s->nr_rows);
		for (g = 0; g < st->nr_groups; g++)
			*entries += seq_entries(s, &st->kv[g]);
	}
	return n;
}

void cuda_step_exit(struct cuda_ctx *c)
{
	if (c->dev)
		(void)!c->cu->MemFree((CUdeviceptr)(uintptr_t)c->dev);
	free(c->host);
	c->dev = NULL;
	c->host = NULL;
	c->dev_bytes = 0;
}

/* Make room for @bytes; drops all graphs if the address changes. */
static bool make_room(struct cuda_ctx *c, u64 bytes)
{
	struct kern_ctx *ctx = (struct kern_ctx *)(void *)c;

	if (bytes <= c->dev_bytes)
		return !c->err;
	cuda_graph_drop_all(c);
	cuda_mem_free(ctx, c->dev);
	free(c->host);
	bytes = roundup_pow_of_two(max(bytes, (u64)STEP_BYTES_MIN));
	c->dev = cuda_mem_alloc(ctx, bytes);
	c->host = malloc(bytes);
	c->dev_bytes = c->dev && c->host ? bytes : 0;
	if (!c->dev_bytes)
		cuda_fail(c, "no memory for the batch of a step",
			  CUDA_ERROR_OUT_OF_MEMORY);
	return c->dev_bytes;
}

/* Lay out the sequences of group @g and their tables from entry @at on, in c->host. */
static u32 lay_group(struct cuda_ctx *c, const struct parts *p,
		     const struct kern_step *st, u32 g, u32 at)
{
	struct dev_seq *to = (struct dev_seq *)(void *)(c->host + p->seqs) +
			     (u64)g * c->room;
	const struct kern_attn_seq *s = st->seqs + (u64)g * st->nr_seqs;
	u32 *entries = (void *)(c->host + p->entries);
	u32 i, n;

	for (i = 0; i < st->nr_seqs; i++, s++) {
		to[i] = (struct dev_seq){
			.table = at, .nr_rows = s->nr_rows,
			.first_row = s->first_row, .start_pos = s->start_pos,
		};
		n = seq_entries(s, &st->kv[g]);
		memcpy(entries + at, s->table, n * sizeof(*entries));
		at += n;
	}
	return at;
}

/* Lay out sequences, their rows and tables in c->host. */
static void lay_seqs(struct cuda_ctx *c, const struct parts *p, u32 rows,
		     const struct kern_step *st)
{
	u32 *row_seq = (void *)(c->host + p->row_seq);
	u32 *row_pos = (void *)(c->host + p->row_pos);
	u32 i, j, at = 0;

	memset(row_seq, 0xff, rows * sizeof(*row_seq));
	memset(row_pos, 0, rows * sizeof(*row_pos));
	for (i = 0; i < st->nr_seqs; i++) {
		const struct kern_attn_seq *s = &st->seqs[i];

		for (j = 0; j < s->nr_rows; j++) {
			row_seq[s->first_row + j] = i;
			row_pos[s->first_row + j] = s->start_pos + j;
		}
	}
	for (i = 0; i < st->nr_groups; i++)
		at = lay_group(c, p, st, i, at);
}

/* Copy @nr words of @from, and pad them with zeros to @room words. */
static void lay_words(u32 *to, const u32 *from, u32 nr, u32 room)
{
	if (nr)
		memcpy(to, from, nr * sizeof(*to));
	memset(to + nr, 0, (room - nr) * sizeof(*to));
}

/* Upload c->host, and point c->batch to it. */
static void publish(struct cuda_ctx *c, const struct parts *p,
		    const struct dev_step *counts)
{
	memcpy(c->host, counts, sizeof(*counts));
	cuda_mem_put((struct kern_ctx *)(void *)c, c->dev, c->host, p->end);
	c->batch = (struct dev_batch){
		.step = (void *)c->dev,
		.seqs = (void *)(c->dev + p->seqs),
		.entries = (void *)(c->dev + p->entries),
		.row_seq = (void *)(c->dev + p->row_seq),
		.row_pos = (void *)(c->dev + p->row_pos),
	};
	c->max_entries = (p->end - p->entries) / sizeof(u32);
}

/* Upload a batch for one call; it has one group. */
static void lay_call(struct cuda_ctx *c, const struct kern_step *st)
{
	struct dev_step counts;
	struct parts p;
	u64 entries;

	if (!cuda_enter(c))
		return;
	counts = count(st, &entries);
	p = parts_of(st->nr_seqs, counts.nr_rows, 0, entries);
	if (!make_room(c, p.end))
		return;
	c->room = st->nr_seqs;
	lay_seqs(c, &p, counts.nr_rows, st);
	publish(c, &p, &counts);
	c->bound = counts;
}

struct dev_batch cuda_batch_of(struct cuda_ctx *c,
			       const struct kern_attn_seq *seqs, u32 nr_seqs,
			       const struct kern_kv *kv)
{
	const struct kern_step call = {
		.kv = kv, .nr_groups = 1, .seqs = seqs, .nr_seqs = nr_seqs,
	};
	struct dev_batch b;

	if (c->step == CUDA_STEP_NONE) {
		lay_call(c, &call);
		return c->batch;
	}
	b = c->batch;
	b.seqs += (u64)kv->group * c->room;
	return b;
}

/* Rows that the ops of this step run: with a graph, those of the graph. */
static struct kern_rows rows_of(const struct cuda_ctx *c,
				const struct kern_step *s)
{
	const bool whole = c->current;
	const u32 rows = whole ? c->current->rows : s->nr_rows;

	return (struct kern_rows){
		.nr_rows = rows,
		.nr_wanted = whole && s->nr_wanted ? rows : s->nr_wanted,
		.recorded = whole,
		.replayed = c->step == CUDA_STEP_REPLAY,
	};
}

static void step_lay(struct cuda_ctx *c, const struct kern_step *s,
		     const struct dev_step *counts, u64 entries,
		     struct kern_rows *rows)
{
	const u32 seqs = rows->recorded ? rows->nr_rows : s->nr_seqs;
	const struct parts p = parts_of((u64)seqs * s->nr_groups, rows->nr_rows,
					rows->nr_wanted, entries);

	c->room = seqs;
	lay_seqs(c, &p, rows->nr_rows, s);
	lay_words((void *)(c->host + p.ids), s->ids, s->nr_rows,
		  rows->nr_rows);
	lay_words((void *)(c->host + p.positions), s->positions, s->nr_rows,
		  rows->nr_rows);
	lay_words((void *)(c->host + p.wanted), s->wanted, s->nr_wanted,
		  rows->nr_wanted);
	publish(c, &p, counts);
	rows->ids = (void *)(c->dev + p.ids);
	rows->positions = (void *)(c->dev + p.positions);
	rows->wanted = (void *)(c->dev + p.wanted);
}

int cuda_step_begin(struct kern_ctx *ctx, const struct kern_step *s,
		    struct kern_rows *rows)
{
	struct cuda_ctx *c = cuda_of(ctx);
	struct dev_step counts;
	u32 most;
	u64 entries;

	c->step = CUDA_STEP_NONE;
	c->short_of = 0;
	if (!cuda_enter(c))
		return c->err;
	counts = count(s, &entries);
	/* Room as for a recorded step, so that the choice does not change it. */
	most = cuda_bucket(s->nr_rows);
	if (!make_room(c, parts_of((u64)max(most, s->nr_seqs) * s->nr_groups,
				   most, most, entries).end))
		return c->err;
	cuda_graph_choose(c, s, &counts);
	*rows = rows_of(c, s);
	step_lay(c, s, &counts, entries, rows);
	c->bound = counts;
	if (rows->recorded)
		c->bound = (struct dev_step){
			.nr_seqs = rows->nr_rows, .nr_rows = rows->nr_rows,
			.max_rows_seq = 1, .max_len = c->current->len,
		};
	if (c->step == CUDA_STEP_RECORD)
		cuda_graph_begin(c);
	return c->err;
}

int cuda_step_end(struct kern_ctx *ctx)
{
	struct cuda_ctx *c = cuda_of(ctx);
	const enum cuda_step step = c->step;

	if (step == CUDA_STEP_RECORD || step == CUDA_STEP_REPLAY)
		return cuda_graph_end(c);
	c->step = CUDA_STEP_NONE;
	return c->err;
}
