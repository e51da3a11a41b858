/* SPDX-License-Identifier: Apache-2.0 */
/*
 * internal.h - declarations shared by the host files of the CUDA kernels
 *
 * Host code is C, and calls the driver through <kvmm/cudrv.h>.  An op fills in the
 * arguments of a kernel and launches it.  No op waits or allocates while a step is
 * recorded.
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

/* Pinned staging buffers for uploads, used in turn. */
#define CUDA_STAGINGS		4u
#define CUDA_STAGING_BYTES	(4u << 20)

/**
 * struct cuda_staging - one staging buffer
 * @mem:  pinned memory of CUDA_STAGING_BYTES
 * @done: event after the last copy from it
 * @used: @done was recorded
 */
struct cuda_staging {
	void	*mem;
	CUevent	done;
	bool	used;
};

/*
 * Steps of at most CUDA_GRAPH_ROWS rows, one for each sequence, are recorded.  Each
 * graph has one number of rows (cuda_bucket()) and one bound of lengths.
 */
#define CUDA_GRAPH_ROWS		512u
#define CUDA_MAX_GRAPHS		64u

/**
 * struct cuda_graph - the recorded ops of steps of one size
 * @rows:    number of rows that it runs
 * @len:     length of the longest sequence that it may run
 * @wanted:  logits of all rows, or of none
 * @exec:    NULL until the size has come twice
 * @used:    number of the last step that used it
 */
struct cuda_graph {
	u32		rows;
	u32		len;
	bool		wanted;
	CUgraphExec	exec;
	u64		used;
};

/* How a step runs its ops. */
enum cuda_step {
	CUDA_STEP_NONE,		/* no step is open */
	CUDA_STEP_RUN,		/* ops are launched one by one */
	CUDA_STEP_RECORD,	/* ops are recorded, and run at the end */
	CUDA_STEP_REPLAY,	/* a graph has the ops */
};

#define CUDA_MAX_MODULES	48u	/* files of device code */

/**
 * struct cuda_ctx - the stream of one model; struct kern_ctx of the CUDA kernels
 * @cu:        the driver
 * @device:    the GPU
 * @context:   its primary context
 * @stream:    runs all ops of this model, in order
 * @module:    [@nr_modules] the device code
 * @fn:        [CUDA_NR_KERNELS]
 * @sms:       multiprocessors
 * @smem_max:  bytes of shared memory that a block can have
 * @arch:      10 * major + minor of the compute capability
 * @exact:     numeric mode
 * @settle:    results of ops are rounded to bf16
 * @batch:     batch of the open step, with the tables of group 0, or of the last call
 *	outside of a step
 * @room:      sequences that @batch has room for in each group
 * @bound:     upper bounds of the counts in @batch; if a step is recorded, also of
 *	those of all steps that replay it.  Grids are sized by them
 * @max_entries: entries that @batch has room for
 * @scratch:   memory for one op, valid until the next op
 * @scratch_bytes: its size
 * @err:       the first failure, -errno; sticky, since it ended the context
 * @why:       the text of that failure
 *
 * Only ctx.c, mem.c, step.c, graph.c, gemm*.c, draw.c and adapt.c use the other members:
 * @id:        unique among all contexts of the process
 * @opened:    cuda_open() is done: a failure is an error of a step from now on
 * @graphs:    steps may be recorded
 * @step:      state of the open step
 * @recording: launches into the stream are recorded, and uploads are not allowed
 * @staging:   pinned memory for uploads
 * @next:      index of the next staging buffer
 * @host:      the batch of a step in host memory, uploaded to @dev
 * @dev:       the same on the device; @dev_bytes each
 * @kv:        [@nr_groups] geometry that @graph was recorded for
 * @graph:     the @nr_graphs graphs
 * @current:   graph of this step, which is filled up to the graph's size; or NULL
 * @steps:     number of steps so far
 * @short_of:  bytes of scratch that an op lacked while a step was recorded
 * @replays:   number of steps that were replayed from a graph
 * @gemm:      state of gemm.c
 * @draw_host: draws in host memory, uploaded to @draw_dev (draw.c)
 * @draw_dev:  the same on the device, and their results; @draw_bytes each
 * @adapt_host: parts of adapters and their rows in host memory, uploaded to @adapt_dev
 *	(adapt.c)
 * @adapt_dev: the same on the device; @adapt_bytes each
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
	u32			room;
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
	struct kern_kv		kv[KERN_MAX_GROUPS];
	u32			nr_groups;
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
	u8			*adapt_host;
	u8			*adapt_dev;
	u64			adapt_bytes;
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
 * After a failure it does nothing.
 */
void cuda_launch(struct cuda_ctx *c, enum cuda_kernel k, struct cuda_grid g,
		 const void *args);

/**
 * cuda_scratch() - memory on the device for one op
 *
 * The old contents are lost.  If it must grow, all graphs are dropped.  So ask for
 * the most bytes that the shape can need, not for the need of this step.
 *
 * Return: the memory, 256-byte aligned; NULL after a failure, or if a recorded step
 * lacks scratch.  Launches do nothing then.
 */
void *cuda_scratch(struct cuda_ctx *c, u64 bytes);

/* cuda_fail() - note the first failure; always -errno */
int cuda_fail(struct cuda_ctx *c, const char *what, CUresult r);

/**
 * cuda_batch_of() - the rows of @seqs on the device, with the tables of @kv's group
 *
 * In a step they are there already, and @seqs is the step's.  Otherwise this
 * uploads them, in stream order, and sets c->bound.
 */
struct dev_batch cuda_batch_of(struct cuda_ctx *c,
			       const struct kern_attn_seq *seqs, u32 nr_seqs,
			       const struct kern_kv *kv);

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

/* Rows of the graph for @rows rows. */
u32 cuda_bucket(u32 rows);

/**
 * cuda_graph_choose() - choose to run, record or replay this step
 * @s:      the step
 * @counts: its counts
 *
 * Sets c->step and c->current.
 */
void cuda_graph_choose(struct cuda_ctx *c, const struct kern_step *s,
		       const struct dev_step *counts);
void cuda_graph_begin(struct cuda_ctx *c);

/* End a recording, if any, and launch the graph; returns as kern_step_end(). */
int cuda_graph_end(struct cuda_ctx *c);

/* Drop all graphs: an address or a size in them has changed. */
void cuda_graph_drop_all(struct cuda_ctx *c);

/* A matrix in blocks for device code; all zeros for other types. */
static inline struct dev_blocks cuda_blocks(const struct kern_weight *w)
{
	if (!kern_is_blocks(w->dtype))
		return (struct dev_blocks){ 0 };
	return (struct dev_blocks){
		.type = w->dtype, .elems = kern_block_elems(w->dtype),
		.bytes = kern_block_bytes(w->dtype),
		.row = kern_row_bytes(w->dtype, w->cols),
	};
}

/* row.c: ops of struct kern_ops */
void cuda_embed(struct kern_ctx *ctx, const struct kern_weight *w,
		const u32 *ids, u32 m, float *x);
void cuda_rmsnorm(struct kern_ctx *ctx, const float *x, const float *w, u32 m,
		  u32 d, float eps, float *y);
void cuda_layernorm_heads(struct kern_ctx *ctx, const float *x, const float *w,
			  u32 m, u32 heads, u32 d, float eps, float *y);
void cuda_layernorm(struct kern_ctx *ctx, const float *x, const float *w,
		    const float *bias, u32 m, u32 d, float eps, float *y);
void cuda_rope_table(struct kern_ctx *ctx, const float *inv_freq, u32 half,
		     const u32 *positions, u32 m, float *table);
void cuda_rope(struct kern_ctx *ctx, float *x, u64 ld, u32 m, u32 heads,
	       u32 head_dim, u32 half, const float *table);
void cuda_rope_pairs(struct kern_ctx *ctx, const struct kern_rope_pairs *r);
void cuda_silu_mul(struct kern_ctx *ctx, const float *gate, const float *up,
		   u64 ld, u32 m, u32 d, float *y);
void cuda_act(struct kern_ctx *ctx, enum kern_act act, const float *gate,
	      const float *up, u64 ld, u32 m, u32 d, float *y);
void cuda_swiglu(struct kern_ctx *ctx, const float *gate, const float *up,
		 u64 ld, u32 m, u32 d, float alpha, float limit, float *y);
void cuda_route(struct kern_ctx *ctx, const struct kern_route *r);
void cuda_blend(struct kern_ctx *ctx, const struct kern_blend *b);
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
void cuda_attn_latent(struct kern_ctx *ctx, const struct kern_attn *a);

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
 * @a:     K and V to append; k is rotated in place
 * @q:     [rows][@heads][hd], rows @q_ld apart (0 means dense); rotated in place
 * @half:  as for rope()
 * @table: from rope_table(), one table row for each row
 *
 * The bits are the same as for the three ops.
 */
void cuda_rope_write(struct kern_ctx *ctx, const struct kern_kv_append *a,
		     float *q, u64 q_ld, u32 heads, u32 half,
		     const float *table);

/* state.c */
void cuda_conv(struct kern_ctx *ctx, const struct kern_conv *a);
void cuda_scan(struct kern_ctx *ctx, const struct kern_scan *a);
void cuda_gated_norm(struct kern_ctx *ctx, const struct kern_gated_norm *a);

/* cuda_kv() - convert a geometry for device code */
struct dev_kv cuda_kv(const struct kern_kv *kv);

/* sample.c */

/**
 * struct cuda_sample - draw tokens from logits on the device
 * @logits:   [rows][vocab], rows @ld apart (0 means dense); edits change it, and are
 *	undone before logprobs are computed
 * @draws:    [nr], on the device, like the lists that they name
 * @drawn:    [nr], gets the results
 * @top:      [nr][@top_stride], gets the likeliest tokens; may be NULL if no
 *	draw has @nr_top
 * @saved:    room for all draws' saved logits; NULL if none is saved
 * @ld:       0 means dense
 * @vocab:    1 to 2^30
 * @nr:       number of draws
 * @top_stride: at least the largest @nr_top
 * @adjusts:  at least one draw has @adjusts
 * @logprobs: at least one draw has @logprobs
 *
 * The launches may be recorded: none waits, and only @drawn and @top must be copied
 * to the host.
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

/* adapt.c */
void cuda_adapt(struct kern_ctx *ctx, const struct kern_adapt *a);
void cuda_adapt_exit(struct cuda_ctx *c);

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
 * exact mode the bits are the same as for single calls.
 */
void cuda_gemm_many(struct kern_ctx *ctx, const float *x, u64 x_ld,
		    const struct kern_gemm_out *out, u32 nr, u32 m);

/**
 * cuda_gemm_parts() - as cuda_gemm() for each of @nr products
 * @parts: outputs may not overlap, nor be another product's x; no rows: nothing to do
 *
 * Products of few rows that have shape and type of the weights in common are one launch, up
 * to GEMM_GROUP of them; gemm_group.c has the rules.  In exact mode the bits are the same as
 * for single calls.  In fast mode K is split by the load of the whole launch.
 */
void cuda_gemm_parts(struct kern_ctx *ctx, const struct kern_gemm_part *parts,
		     u32 nr);

/* pack.c: pack_bytes() and pack() of fast mode, on the device */
size_t cuda_pack_bytes(const struct kern_weight *w);
void cuda_pack(struct kern_ctx *ctx, struct kern_weight *w, void *to);

/* The layout of a packed matrix. */
struct dev_packed cuda_packed(enum kern_dtype type, u32 cols);

/* Columns of K for each block of k_gemm_skinny*: all of K or a part. */
u32 cuda_gemm_range(u32 blocks, u32 k, u32 sms);

struct blaslt;

/* For tests: cuBLASLt's handle; NULL without the library. */
struct blaslt *cuda_gemm_lt(struct cuda_ctx *c);

#endif /* KERNELS_CUDA_INTERNAL_H */
