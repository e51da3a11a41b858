// SPDX-License-Identifier: Apache-2.0
/*
 * graph.c - record steps, and replay each in one call
 *
 * A decode step launches hundreds of small kernels, and launching them one by
 * one takes the CPU longer than the GPU needs to run them.  Steps in which every
 * sequence has one row differ only in the batch, which the kernels read from
 * memory.  So such a step is recorded as a graph, for a number of rows that it is
 * filled up to (cuda_bucket()) and a bound of its lengths.  Later steps of that
 * size replay the graph: one upload and one call a step.
 *
 * The first step of a size is launched op by op, filled up like later ones.  That
 * grows scratch memory to the needs of the size, and makes the driver load code
 * that it loads at first use.  The second step is recorded.  If an op lacks scratch
 * even then, the recording is discarded and the step is run again, by -EAGAIN.
 *
 * A recording has the same launches with the same arguments, so in exact mode the
 * bits are the same: rows that fill a graph up are rows like others.
 *
 * A graph contains the addresses of scratch, of the batch and of the pool.  When
 * one of them changes, all graphs are dropped, and each is recorded again when its
 * size comes again.  The model's own memory keeps its address as long as the
 * context exists.
 */
#include <kvmm/log.h>

#include "kernels/cuda/internal.h"

#define LEN_MIN		1024u
#define LEN_STEP	4u

u32 cuda_bucket(u32 rows)
{
	if (rows <= 8)
		return roundup_pow_of_two(rows);
	if (rows <= 64)
		return ALIGN_UP(rows, 8u);
	if (rows <= 256)
		return ALIGN_UP(rows, 16u);
	return ALIGN_UP(rows, 32u);
}

/* A bound of lengths.  There are few, so a sequence seldom grows past its bound. */
static u32 len_bucket(u32 len)
{
	u64 b = LEN_MIN;

	while (b < len)
		b *= LEN_STEP;
	return min(b, (u64)UINT32_MAX);
}

static void graph_drop(struct cuda_ctx *c, struct cuda_graph *g)
{
	if (g->exec)
		(void)!c->cu->GraphExecDestroy(g->exec);
	g->exec = NULL;
}

void cuda_graph_drop_all(struct cuda_ctx *c)
{
	u32 i;

	/* A graph may be running. */
	if (c->nr_graphs && cuda_enter(c))
		cuda_wait((struct kern_ctx *)(void *)c);
	for (i = 0; i < c->nr_graphs; i++)
		graph_drop(c, &c->graph[i]);
}

static bool kv_is(const struct kern_kv *a, const struct kern_kv *b)
{
	return a->base == b->base && a->unit == b->unit &&
	       a->layer_stride == b->layer_stride &&
	       a->block_tokens == b->block_tokens &&
	       a->nr_layers == b->nr_layers && a->group == b->group &&
	       a->kv_heads == b->kv_heads &&
	       a->head_dim == b->head_dim && a->rank == b->rank &&
	       a->dtype == b->dtype && a->record_blocks == b->record_blocks;
}

/* Are all groups those that the graphs were recorded for? */
static bool groups_are(const struct cuda_ctx *c, const struct kern_step *s)
{
	u32 g;

	for (g = 0; g < s->nr_groups && g < c->nr_groups; g++)
		if (!kv_is(&c->kv[g], &s->kv[g]))
			return false;
	return c->nr_groups == s->nr_groups;
}

/* The graph of this size, or NULL. */
static struct cuda_graph *graph_find(struct cuda_ctx *c, u32 rows, u32 len,
				     bool wanted)
{
	struct cuda_graph *g;

	for (g = c->graph; g < c->graph + c->nr_graphs; g++)
		if (g->rows == rows && g->len == len && g->wanted == wanted)
			return g;
	return NULL;
}

/* A place for another size: a new one, or that of the least recently used graph. */
static struct cuda_graph *graph_place(struct cuda_ctx *c)
{
	struct cuda_graph *g, *old = c->graph;

	if (c->nr_graphs < CUDA_MAX_GRAPHS)
		return &c->graph[c->nr_graphs++];
	for (g = c->graph; g < c->graph + c->nr_graphs; g++)
		if (g->used < old->used)
			old = g;
	cuda_wait((struct kern_ctx *)(void *)c);
	graph_drop(c, old);
	return old;
}

static bool recordable(const struct cuda_ctx *c, const struct kern_step *s,
		       u32 rows)
{
	return c->graphs && !s->once && s->nr_seqs == s->nr_rows &&
	       rows <= CUDA_GRAPH_ROWS &&
	       (!s->nr_wanted || rows <= s->max_wanted);
}

void cuda_graph_choose(struct cuda_ctx *c, const struct kern_step *s,
		       const struct dev_step *counts)
{
	const u32 rows = min(cuda_bucket(s->nr_rows), s->max_rows);
	const u32 len = len_bucket(counts->max_len);
	struct cuda_graph *g;

	c->steps++;
	c->step = CUDA_STEP_RUN;
	c->current = NULL;
	if (!recordable(c, s, rows))
		return;
	if (!groups_are(c, s)) {
		cuda_graph_drop_all(c);
		c->nr_groups = s->nr_groups;
		memcpy(c->kv, s->kv, s->nr_groups * sizeof(*c->kv));
	}
	g = graph_find(c, rows, len, s->nr_wanted);
	if (g) {
		c->step = g->exec ? CUDA_STEP_REPLAY : CUDA_STEP_RECORD;
	} else {
		g = graph_place(c);
		*g = (struct cuda_graph){
			.rows = rows, .len = len, .wanted = s->nr_wanted,
		};
	}
	g->used = c->steps;
	c->current = g;
}

/* Run steps op by op from now on: slower, but with the same results. */
static void give_up(struct cuda_ctx *c, CUresult r)
{
	pr_warn("steps cannot be recorded on the GPU (%s): each is launched op by op, which is slower",
		cudrv_name(r));
	c->graphs = false;
}

void cuda_graph_begin(struct cuda_ctx *c)
{
	CUresult r = c->err ? CUDA_SUCCESS :
		     c->cu->StreamBeginCapture(c->stream,
					       CU_CAPTURE_THREAD_LOCAL);

	c->recording = !r && !c->err;
	if (!r)
		return;
	/* The batch is uploaded, filled up to a graph's size: its ops can run. */
	give_up(c, r);
	c->step = CUDA_STEP_RUN;
}

/* End the recording, as c->current->exec; false: there is no graph. */
static bool graph_take(struct cuda_ctx *c)
{
	CUgraph graph = NULL;
	CUresult r;

	if (!c->recording)
		return false;
	c->recording = false;
	r = c->cu->StreamEndCapture(c->stream, &graph);
	/* If the call had no effect, the stream still records. */
	if (r)
		(void)!c->cu->StreamEndCapture(c->stream, &graph);
	if (!r && !c->err && !c->short_of)
		r = c->cu->GraphInstantiate(&c->current->exec, graph, 0);
	if (r) {
		c->current->exec = NULL;
		if (!c->err)
			give_up(c, r);
	}
	if (graph)
		(void)!c->cu->GraphDestroy(graph);
	return c->current->exec;
}

int cuda_graph_end(struct cuda_ctx *c)
{
	const bool record = c->step == CUDA_STEP_RECORD;
	const bool there = !record || graph_take(c);
	const u64 short_of = c->short_of;
	CUresult r;

	c->step = CUDA_STEP_NONE;
	c->short_of = 0;
	if (short_of && !c->err)
		cuda_scratch(c, short_of);
	if (c->err)
		return c->err;
	if (!there)
		return -EAGAIN;
	c->replays += !record;
	r = c->cu->GraphLaunch(c->current->exec, c->stream);
	return r ? cuda_fail(c, "a recorded step cannot be run", r) : 0;
}
