/* SPDX-License-Identifier: Apache-2.0 */
/*
 * internal.h - what the host's files of the CUDA kernels share
 *
 * Host code here is C, and talks to the driver by <kvmm/cudrv.h>.  An op makes
 * up the arguments of a kernel and launches it; nothing waits, nothing
 * allocates while a step is recorded.
 */
#ifndef KERNELS_CUDA_INTERNAL_H
#define KERNELS_CUDA_INTERNAL_H

#include <kvmm/cudrv.h>

#include "kernels/cuda/args.h"
#include "kernels/cuda/list.h"
#include "kernels/kernels.h"

enum cuda_kernel {
#define x(name, smem)	CUDA_##name,
	CUDA_KERNELS(x)
#undef x
	CUDA_NR_KERNELS
};

/* Stagings of pinned memory that uploads go through, in turn. */
#define CUDA_STAGINGS		4u
#define CUDA_STAGING_BYTES	(4u << 20)

/**
 * struct cuda_staging - one of them
 * @mem:  pinned, CUDA_STAGING_BYTES
 * @done: the copy that was last made from it is over
 * @used: @done was recorded
 */
struct cuda_staging {
	void	*mem;
	CUevent	done;
	bool	used;
};

/*
 * Steps of at most so many rows, one a sequence, are recorded; each graph is
 * of one number of rows (cuda_bucket()) and one bound of lengths.
 */
#define CUDA_GRAPH_ROWS		512u
#define CUDA_MAX_GRAPHS		64u

/**
 * struct cuda_graph - the recorded ops of steps of one size
 * @rows:    rows it runs
 * @len:     longest sequence it is good for
 * @wanted:  rows of logits, all of them or none
 * @exec:    NULL until the size has come twice
 * @used:    when it was asked for last, in steps
 */
struct cuda_graph {
	u32		rows;
	u32		len;
	bool		wanted;
	CUgraphExec	exec;
	u64		used;
};

/* What a step does with its ops. */
enum cuda_step {
	CUDA_STEP_NONE,		/* no step is open */
	CUDA_STEP_RUN,		/* ops are launched one by one */
	CUDA_STEP_RECORD,	/* ops are recorded, and run at the end */
	CUDA_STEP_REPLAY,	/* a graph has the ops */
};

#define CUDA_MAX_MODULES	48u	/* files of device code */

/**
 * struct cuda_ctx - one model's stream; what struct kern_ctx is here
 * @cu:        the driver
 * @device:    which GPU
 * @context:   its primary context
 * @stream:    where all ops of this model run, in order
 * @module:    [@nr_modules] the device code
 * @fn:        [CUDA_NR_KERNELS]
 * @sms:       multiprocessors
 * @smem_max:  bytes of shared memory that a block can have
 * @arch:      10 * major + minor of the compute capability
 * @exact:     numeric mode
 * @settle:    results of ops are rounded to bf16
 * @batch:     of the step that runs, or of the last call with other rows
 * @bound:     at least the counts in @batch, of this step and of all that a
 *	graph which is being recorded will be played for: what grids are made by
 * @max_entries: entries that @batch has room for
 * @scratch:   memory of one op, good until the next
 * @scratch_bytes: its size
 * @err:       the first failure, -errno; sticky, since it ended the context
 * @why:       it in words
 *
 * The rest is of ctx.c, mem.c, step.c and graph.c alone:
 * @id:        never that of another context
 * @opened:    what fails from now on is an error of a step
 * @graphs:    steps may be recorded
 * @step:      what the step that is open does
 * @recording: what is put into the stream is recorded, and uploads are not
 * @staging:   pinned memory for uploads
 * @next:      staging that is next
 * @host:      what a step uploads, @dev as the host makes it up
 * @dev:       the same on the device; @dev_bytes each
 * @kv:        geometry that @graph was recorded for
 * @graph:     @nr_graphs of them
 * @current:   the one of this step, which is filled up to its size; or NULL
 * @steps:     how many there were
 * @short_of:  scratch that was missing while a step was recorded
 * @replays:   steps that were played from a graph
 * @gemm:      of gemm.c
 * @draw_host: what draws upload, @draw_dev as the host makes it up (draw.c)
 * @draw_dev:  the same on the device, and their results; @draw_bytes each
 */
struct cuda_ctx {
	const struct cu_api	*cu;
	CUdevice		device;
	CUcontext		context;
	CUstream		stream;
	CUmodule		module[CUDA_MAX_MODULES];
	u32			nr_modules;
	CUfunction		fn[CUDA_NR_KERNELS];
	u32			sms;
	u32			smem_max;
	u32			arch;
	bool			exact;
	bool			settle;
	struct dev_batch	batch;
	struct dev_step		bound;
	u32			max_entries;
	void			*scratch;
	u64			scratch_bytes;
	int			err;
	char			why[192];

	u64			id;
	bool			opened;
	bool			graphs;
	enum cuda_step		step;
	bool			recording;
	struct cuda_staging	staging[CUDA_STAGINGS];
	u32			next;
	u8			*host;
	u8			*dev;
	u64			dev_bytes;
	struct kern_kv		kv;
	struct cuda_graph	graph[CUDA_MAX_GRAPHS];
	u32			nr_graphs;
	struct cuda_graph	*current;
	u64			steps;
	u64			short_of;
	u64			replays;
	struct cuda_gemm	*gemm;
	u8			*draw_host;
	u8			*draw_dev;
	u64			draw_bytes;
};

static inline struct cuda_ctx *cuda_of(struct kern_ctx *ctx)
{
	return (struct cuda_ctx *)(void *)ctx;
}

/* Blocks in up to three dimensions, threads of each, bytes of shared memory. */
struct cuda_grid {
	u32	x, y, z;
	u32	threads;
	u32	smem;
};

/**
 * cuda_launch() - put a kernel into the stream
 * @args: its structure of args.h
 *
 * After a failure nothing is launched any more.
 */
void cuda_launch(struct cuda_ctx *c, enum cuda_kernel k, struct cuda_grid g,
		 const void *args);

/**
 * cuda_scratch() - memory on the device for one op
 *
 * What lay there is gone.  Grows when it must, which ends what was recorded:
 * ask for the most that the shape can need, not for what this step needs.
 *
 * Return: 256-byte aligned; NULL after a failure, and launching does nothing.
 */
void *cuda_scratch(struct cuda_ctx *c, u64 bytes);

/* cuda_fail() - note the first failure; always -errno */
int cuda_fail(struct cuda_ctx *c, const char *what, CUresult r);

/**
 * cuda_batch_of() - have the rows of @seqs as c->batch, in stream order
 *
 * In a step they are there already, and @seqs is the step's; else they are
 * uploaded.  Sets @bound either way.
 */
void cuda_batch_of(struct cuda_ctx *c, const struct kern_attn_seq *seqs,
		   u32 nr_seqs, u32 block_tokens);

/* ctx.c */
int cuda_open(const struct kern_opts *opts, bool exact, struct kern_ctx **ret,
	      char *why, size_t len);
void cuda_close(struct kern_ctx *ctx);
void cuda_describe(struct kern_ctx *ctx, struct kern_device *dev);

/**
 * cuda_enter() - may this thread call the driver for @c?
 *
 * Makes the context current.  Return: false after a failure.
 */
bool cuda_enter(struct cuda_ctx *c);

/* mem.c */
int cuda_mem_init(struct cuda_ctx *c);
void cuda_mem_exit(struct cuda_ctx *c);
void *cuda_mem_alloc(struct kern_ctx *ctx, u64 bytes);
void cuda_mem_free(struct kern_ctx *ctx, void *p);
void cuda_mem_put(struct kern_ctx *ctx, void *to, const void *from, u64 bytes);
int cuda_mem_get(struct kern_ctx *ctx, void *to, const void *from, u64 bytes);
void cuda_mem_fetch(struct kern_ctx *ctx, void *to, const void *from,
		    u64 bytes);
void *cuda_host_alloc(struct kern_ctx *ctx, u64 bytes);
void cuda_host_free(struct kern_ctx *ctx, void *p);
int cuda_wait(struct kern_ctx *ctx);
const char *cuda_failure(struct kern_ctx *ctx);

/* step.c */
int cuda_step_begin(struct kern_ctx *ctx, const struct kern_step *s,
		    struct kern_rows *rows);
int cuda_step_end(struct kern_ctx *ctx);
void cuda_step_exit(struct cuda_ctx *c);

/* graph.c */

/* Rows that a graph for @rows has. */
u32 cuda_bucket(u32 rows);

/**
 * cuda_graph_choose() - should this step be recorded, or played?
 * @s:      the step
 * @counts: its counts
 *
 * Sets c->step and c->current.
 */
void cuda_graph_choose(struct cuda_ctx *c, const struct kern_step *s,
		       const struct dev_step *counts);
void cuda_graph_begin(struct cuda_ctx *c);

/* Play it, or end the recording and play that; as kern_step_end(). */
int cuda_graph_end(struct cuda_ctx *c);

/* Addresses or sizes that graphs have in them have changed. */
void cuda_graph_drop_all(struct cuda_ctx *c);

/* row.c: as struct kern_ops has them */
void cuda_embed(struct kern_ctx *ctx, const struct kern_weight *w,
		const u32 *ids, u32 m, float *x);
void cuda_rmsnorm(struct kern_ctx *ctx, const float *x, const float *w, u32 m,
		  u32 d, float eps, float *y);
void cuda_layernorm(struct kern_ctx *ctx, const float *x, const float *w,
		    const float *bias, u32 m, u32 d, float eps, float *y);
void cuda_rope_table(struct kern_ctx *ctx, const float *inv_freq, u32 half,
		     const u32 *positions, u32 m, float *table);
void cuda_rope(struct kern_ctx *ctx, float *x, u64 ld, u32 m, u32 heads,
	       u32 head_dim, u32 half, const float *table);
void cuda_silu_mul(struct kern_ctx *ctx, const float *gate, const float *up,
		   u64 ld, u32 m, u32 d, float *y);
void cuda_act(struct kern_ctx *ctx, enum kern_act act, const float *gate,
	      const float *up, u64 ld, u32 m, u32 d, float *y);
void cuda_add(struct kern_ctx *ctx, float *x, const float *y, u64 n);
void cuda_scale(struct kern_ctx *ctx, float *x, float by, u64 n);
void cuda_softcap(struct kern_ctx *ctx, float *x, float cap, u64 n);
void cuda_settle(struct kern_ctx *ctx, float *x, u64 n);
void cuda_gather(struct kern_ctx *ctx, const float *x, const u32 *rows, u32 m,
		 u32 d, float *y);
void cuda_split_heads(struct kern_ctx *ctx, const float *qkv, u32 m, u32 heads,
		      u32 head_dim, float *q, float *k, float *v);

/* attn.c */
void cuda_attention(struct kern_ctx *ctx, const struct kern_attn *a);

/* x += y; h = norm of x: the bits of the two ops; @h may be @y */
void cuda_add_rmsnorm(struct kern_ctx *ctx, float *x, const float *y,
		      const float *w, u32 m, u32 d, float eps, float *h);
void cuda_add_layernorm(struct kern_ctx *ctx, float *x, const float *y,
			const float *w, const float *bias, u32 m, u32 d,
			float eps, float *h);

/* kv.c */
void cuda_kv_write(struct kern_ctx *ctx, const struct kern_kv_append *a);
void cuda_kv_copy(struct kern_ctx *ctx, const struct kern_kv *kv,
		  const struct kern_kv_copy *copies, u32 nr);

/**
 * cuda_rope_write() - rope of q and of k, and kv_write, in one launch
 * @a:     what is appended; k of it is turned in place
 * @q:     [rows][@heads][hd], rows @q_ld apart (0 means dense)
 * @half:  as of rope()
 * @table: of rope_table(), a row each row
 *
 * The bits are those of the three ops.
 */
void cuda_rope_write(struct kern_ctx *ctx, const struct kern_kv_append *a,
		     float *q, u64 q_ld, u32 heads, u32 half,
		     const float *table);

/* cuda_kv() - a geometry as device code has it */
struct dev_kv cuda_kv(const struct kern_kv *kv);

/* sample.c */

/**
 * struct cuda_sample - draw tokens where the logits are
 * @logits:   [rows][vocab], rows @ld apart (0 means dense); edits are made in
 *	it, and taken back for logprobs
 * @draws:    [nr], on the device, as are the lists that they name
 * @drawn:    [nr], gets the results
 * @top:      [nr][@top_stride], gets the likeliest tokens; may be NULL if no
 *	draw has @nr_top
 * @saved:    room for all draws' saved logits; NULL if none has any
 * @ld:       0 means dense
 * @vocab:    1 to 2^30
 * @nr:       draws
 * @top_stride: at least the largest @nr_top
 * @adjusts:  any of them does
 * @logprobs: any of them wants them
 *
 * All of it may be recorded: nothing waits, and only @drawn and @top need to
 * come to the host.
 */
struct cuda_sample {
	float			*logits;
	const struct dev_draw	*draws;
	struct dev_drawn	*drawn;
	struct dev_top		*top;
	float			*saved;
	u64			ld;
	u32			vocab;
	u32			nr;
	u32			top_stride;
	bool			adjusts;
	bool			logprobs;
};

void cuda_sample(struct kern_ctx *ctx, const struct cuda_sample *s);

/* draw.c */
void cuda_draw(struct kern_ctx *ctx, const struct kern_sample *s);
void cuda_draw_exit(struct cuda_ctx *c);

/* gemm.c */
int cuda_gemm_init(struct cuda_ctx *c);
void cuda_gemm_exit(struct cuda_ctx *c);
void cuda_gemm(struct kern_ctx *ctx, const float *x, u64 x_ld,
	       const struct kern_weight *w, const float *bias, u32 m, float *y,
	       u64 y_ld);

/**
 * cuda_gemm_many() - as cuda_gemm() for each of @nr matrices, in one launch
 * @out: with the same cols; outputs may not overlap
 *
 * For projections that share their input: Q, K and V, or gate and up.  In
 * exact mode the bits are those of one after the other.
 */
void cuda_gemm_many(struct kern_ctx *ctx, const float *x, u64 x_ld,
		    const struct kern_gemm_out *out, u32 nr, u32 m);

/* Columns of K for each block of k_gemm_skinny*, all of them or a part. */
u32 cuda_gemm_range(u32 blocks, u32 k, u32 sms);

struct blaslt;

/* For tests; NULL without the library. */
struct blaslt *cuda_gemm_lt(struct cuda_ctx *c);

#endif /* KERNELS_CUDA_INTERNAL_H */
