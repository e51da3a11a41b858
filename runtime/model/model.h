/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model.h - a checkpoint folder, loaded and ready to run
 *
 * This is the interface of the model layer: load a folder, describe it, run
 * batches of tokens over paged KV, feed its identity to a digest.  The engine
 * above knows sequences and blocks but no tensors; the kernels below know
 * tensors but no checkpoint.  This layer does not know the daemon: the memory
 * of the KV, and the tables that map it, come with every call.
 *
 * One thread uses a model at a time.  Kernels use their own threads inside a
 * call; they are idle when the call has returned.
 */
#ifndef RUNTIME_MODEL_H
#define RUNTIME_MODEL_H

#include <kvmm/types.h>

#include "kernels/draw.h"

struct model;

/* One line for a person: the file, the key, the problem, the remedy. */
struct model_error {
	char text[768];
};

/*
 * Type of activations.  Weights keep the type of the file and are widened on
 * use.  BF16 means bf16 arithmetic: results passed from op to op are rounded to
 * bf16, sums inside an op are f32.  AUTO is BF16 for a model in bf16, else F32;
 * with it the KV of a model in f16 is f16, unless another type is asked for.
 */
enum model_dtype {
	MODEL_F32,
	MODEL_BF16,
	MODEL_DTYPE_AUTO,
};

/*
 * Type of KV, in the order of the names of --kv-cache-dtype; AUTO is the type
 * of activations.  FP8 is e4m3.  FP8 and INT8 have an f32 scale for each head
 * and token, computed when KV is written (see kernels.h).
 */
enum model_kv_type {
	MODEL_KV_AUTO,
	MODEL_KV_F32,
	MODEL_KV_BF16,
	MODEL_KV_F16,
	MODEL_KV_FP8,
	MODEL_KV_INT8,
};

/* Name of a type other than AUTO: "f32", "fp8". */
const char *model_kv_name(enum model_kv_type type);

/*
 * FAST may give any result within tolerance: a factor of bf16 weights or KV in
 * a product may be rounded to bf16 first (see kernels.h).  EXACT gives the same
 * bits for a token with any cut of its sequence into chunks and any other
 * sequences in the batch.
 */
enum model_mode {
	MODEL_FAST,
	MODEL_EXACT,
};

/*
 * Where weights in bf16 and in blocks are used: mapped, so that processes of one model
 * share them, or packed into memory of this process, which is faster.  AUTO packs in
 * fast mode if the kernels can, and if some weights are in blocks, or if there are huge
 * pages and the weights have at least MODEL_PACK_MIN bytes; but not made-up weights,
 * which would be in memory twice.
 */
enum model_weights_use {
	MODEL_WEIGHTS_AUTO,
	MODEL_WEIGHTS_PACKED,
	MODEL_WEIGHTS_MAPPED,
};

/*
 * Types into which the matrices of a folder are quantized while it is loaded.  The
 * embedding and the output matrix get Q8_0 with each of them.
 */
enum model_quantization {
	MODEL_QUANT_NONE,
	MODEL_QUANT_Q8_0,
	MODEL_QUANT_Q4_K,
	MODEL_QUANT_FP8,
	MODEL_QUANT_INT8,
};

/*
 * Smaller models are fast enough when mapped, and start at once and share
 * memory.
 */
#define MODEL_PACK_MIN		(64ull << 20)

/*
 * Logits of fast mode differ from those of exact mode by at most this share of
 * the row's largest magnitude, and the likeliest token differs only where the
 * two best tokens of exact mode are closer to each other than this.  With
 * activations in bf16 each mode rounds its own values, and both are that far
 * from f32.
 */
#define MODEL_FAST_TOL		2e-2
#define MODEL_FAST_TOL_BF16	4e-2

/**
 * struct model_progress - receiver of a long load's progress
 * @fn:		called now and then, the last time with @done == @total; not
 *		called for short loads
 * @arg:	for @fn
 */
struct model_progress {
	void	(*fn)(void *arg, u64 done, u64 total);
	void	*arg;
};

static inline void model_progress_tell(const struct model_progress *p,
				       u64 done, u64 total)
{
	if (p && p->fn)
		p->fn(p->arg, done, total);
}

/**
 * struct model_link - how the ranks of a split model exchange numbers
 * @rank:    number of this rank, from 0
 * @nr:      ranks, at least 2
 * @bytes:   size of a room
 * @room:    where this rank writes what it shares next, on 64 bytes
 * @share:   wait until all ranks have written; 0, or an error, which all later calls
 *	     return, too
 * @of:      what a rank has shared last; valid until the next call but one of @share
 * @failure: one line about the error of @share
 * @arg:     for all of them
 *
 * All ranks call model_forward() and model_copy_blocks() with the same arguments, each with
 * its own pool.
 */
struct model_link {
	u32		rank;
	u32		nr;
	u64		bytes;
	void		*(*room)(void *arg);
	int		(*share)(void *arg);
	const void	*(*of)(void *arg, u32 rank);
	const char	*(*failure)(void *arg);
	void		*arg;
};

/**
 * struct model_opts - how to load and run; all zero is a valid choice
 * @dtype:	activations; the info of a loaded model has the chosen type
 * @kv_type:	KV; refused if the kernel does not take it
 * @mode:	numeric mode
 * @kernel:	implementation by name ("ref", "cpu:avx2"); NULL and "cpu" take
 *		the best one of @mode, "cuda" that of @mode on a GPU; an
 *		implementation that is not exact is refused in exact mode;
 *		"null" computes nothing: see model_forward()
 * @device:	which GPU
 * @no_graphs:	launch every step op by op, for comparing
 * @no_draws:	leave drawing to the caller, even if the device could draw
 * @weights:	where weights are used; PACKED is refused if the kernels cannot
 * @quantization: quantize the matrices while loading; refused for a folder that is
 *		quantized
 * @nr_threads:	compute threads, 0: one a core
 * @max_len:	longest sequence in tokens, 0: the model's own limit; more than
 *		that limit is refused
 * @max_rows:	most tokens in one model_forward(), 0 for MODEL_MAX_ROWS
 * @max_seqs:	most sequences in one model_forward(), 0 for @max_rows
 * @window_group: layers with a window are a layer group of their own, if there are
 *		others, too, and sequences can be longer than the window; see struct
 *		model_group
 * @max_rank:	largest rank of adapters (adapter.h); 0: a batch can have none
 * @dummy:	make the weights up, even if there are files
 * @judge:	read and check everything, but copy, make up and start nothing:
 *		the model can be described, but cannot run
 * @link:	load the part of one rank; must outlive the model.  NULL: the whole model
 * @progress:	progress of reading weights, in bytes; also for model_identity()
 */
struct model_opts {
	enum model_dtype	dtype;
	enum model_kv_type	kv_type;
	enum model_mode		mode;
	const char		*kernel;
	u32			device;
	bool			no_graphs;
	bool			no_draws;
	enum model_weights_use	weights;
	enum model_quantization	quantization;
	u32			nr_threads;
	u32			max_len;
	u32			max_rows;
	u32			max_seqs;
	u32			max_rank;
	bool			window_group;
	bool			dummy;
	bool			judge;
	const struct model_link	*link;
	struct model_progress	progress;
};

#define MODEL_MAX_ROWS	512u
#define MODEL_MAX_EOS	16u

/* Values of generation_config.json; @has says which are set, as MODEL_GEN_*. */
enum {
	MODEL_GEN_DO_SAMPLE		= BIT(0),
	MODEL_GEN_TEMPERATURE		= BIT(1),
	MODEL_GEN_TOP_P			= BIT(2),
	MODEL_GEN_TOP_K			= BIT(3),
	MODEL_GEN_MIN_P			= BIT(4),
	MODEL_GEN_REPETITION_PENALTY	= BIT(5),
	MODEL_GEN_MAX_NEW_TOKENS	= BIT(6),
};

struct model_generation {
	u32	has;
	bool	do_sample;
	double	temperature;
	double	top_p;
	u32	top_k;
	double	min_p;
	double	repetition_penalty;
	u32	max_new_tokens;
};

#define MODEL_MAX_GROUPS	2u

/**
 * struct model_group - layers whose KV is in blocks of their own
 * @layers:	how many; a block has them in the order of the model
 * @window:	positions that a token sees in them, itself included; 0: all
 * @units:	of recurrent layers: units of state in a layer; 0: they have K and V
 * @unit_bytes:	bytes of such a unit
 *
 * Group 0 has no window: either all layers are in it, or those that see everything, and
 * the others are group 1.  Blocks of group 1 that lie before the window of every token
 * to come are not needed any more.
 *
 * Recurrent layers are the last group, and group 0 has all others.  Their blocks hold
 * records, as kernels/state.h defines them.
 */
struct model_group {
	u32	layers;
	u32	window;
	u32	units;
	u32	unit_bytes;
};

/**
 * struct model_info - facts for the layers above, fixed at load
 * @arch:	architecture as config.json names it, "LlamaForCausalLM"
 * @dir:	the folder it was loaded from
 * @kernel:	implementation in use, "cpu"
 * @variant:	the kernel's variant on this machine, e.g. by instruction set
 * @device:	GPU in use, by its driver's name; empty: none
 * @device_uuid: UUID of that GPU, NULL: none
 * @draws:	model_forward_draw() can draw
 * @dtype:	as in the options
 * @kv_type:	type of KV in force, never AUTO
 * @mode:	as in the options
 * @nr_vocab:	floats in a row of logits
 * @nr_layers:	decoder layers
 * @nr_groups:	layer groups
 * @group:	[@nr_groups]
 * @hidden:	width of the residual stream
 * @nr_heads:	query heads
 * @nr_kv_heads: KV heads
 * @head_dim:	elements of one head
 * @max_position: the model's own limit in tokens
 * @max_len:	the limit in force, at most @max_position
 * @max_rows:	the limits of one model_forward() in force
 * @max_seqs:	ditto
 * @bos_id:	token that starts a text, -1 if there is none
 * @eos_ids:	tokens that end a text, @nr_eos of them; from
 *		generation_config.json, or else from config.json
 * @k_bytes:	bytes of K of one token in one KV head
 * @v_bytes:	bytes of V, ditto; 0 with latent vectors, which have one scale
 * @scale_bytes: bytes of the scale of either, ditto; 0 without scales
 * @heads_bytes: with latent vectors, bytes that K and V of all heads would take of one
 *		token in one layer; else 0
 * @nr_ranks:	ranks that share the model, 0: it is whole.  Then heads are those of one
 *		rank, and so are the sizes of memory
 * @same_bits:	in exact mode the ranks compute the bits that one rank would
 * @nr_params:	elements in all tensors
 * @nr_tensors:	how many
 * @nr_files:	in how many files
 * @weight_bytes: bytes of all tensors as stored
 * @copy_bytes:	bytes of the copies of tensors that cannot be used in place
 * @mapped_bytes: bytes of the other tensors
 * @packed_bytes: bytes of packed copies; packed tensors are in neither of the
 *		two members above, unless they are made up
 * @device_bytes: bytes of the GPU's memory, for weights and workspace; uploaded
 *		weights are in none of the three members above
 * @made_bytes:	bytes of tensors of blocks that loading has made, of a quantized folder or by
 *		the quantization of model_opts; they are part of @weight_bytes
 * @made_of:	bytes of the tensors that they were made of
 * @made_ns:	time that this took
 * @work_bytes:	bytes of the workspace
 * @gen:	generation defaults
 */
struct model_info {
	const char		*arch;
	const char		*dir;
	const char		*kernel;
	const char		*variant;
	const char		*device;
	const u8		*device_uuid;
	bool			draws;
	enum model_dtype	dtype;
	enum model_kv_type	kv_type;
	enum model_mode		mode;
	u32			nr_vocab;
	u32			nr_layers;
	u32			nr_groups;
	struct model_group	group[MODEL_MAX_GROUPS];
	u32			hidden;
	u32			nr_heads;
	u32			nr_kv_heads;
	u32			head_dim;
	u32			max_position;
	u32			max_len;
	u32			max_rows;
	u32			max_seqs;
	s32			bos_id;
	u32			nr_eos;
	u32			eos_ids[MODEL_MAX_EOS];
	u32			k_bytes;
	u32			v_bytes;
	u32			scale_bytes;
	u64			heads_bytes;
	u32			nr_ranks;
	bool			same_bits;
	u64			nr_params;
	u32			nr_tensors;
	u32			nr_files;
	u64			weight_bytes;
	u64			copy_bytes;
	u64			mapped_bytes;
	u64			packed_bytes;
	u64			device_bytes;
	u64			made_bytes;
	u64			made_of;
	u64			made_ns;
	u64			work_bytes;
	struct model_generation	gen;
};

/* Bytes of KV of one token in one layer, scales included. */
static inline u64 model_layer_bytes(const struct model_info *info)
{
	return (u64)info->nr_kv_heads *
	       (info->k_bytes + info->v_bytes +
		(info->v_bytes ? 2 : 1) * info->scale_bytes);
}

/* The same in all layers that have KV. */
static inline u64 model_token_bytes(const struct model_info *info)
{
	u64 layers = 0;
	u32 g;

	for (g = 0; g < info->nr_groups; g++)
		layers += info->group[g].units ? 0 : info->group[g].layers;
	return layers * model_layer_bytes(info);
}

/**
 * struct model_kv - where the blocks are
 * @base:	start of the pool in this process
 * @unit:	bytes that one count of a table entry stands for
 * @layer_stride: bytes from one layer of a block to the next, for each layer group
 * @block_tokens: tokens a block holds, for each layer group; of recurrent layers: tokens
 *		between two records
 * @block_bytes: bytes of a block; only a group of recurrent layers needs it
 *
 * Layer l of a group, in the block of a table entry e, starts at @base + e * @unit + l *
 * @layer_stride and holds [K|V][kv head][token][dim], then the scales [K|V][kv
 * head][token], that is @block_tokens * model_layer_bytes() bytes.
 */
struct model_kv {
	void	*base;
	u64	unit;
	u64	layer_stride[MODEL_MAX_GROUPS];
	u32	block_tokens[MODEL_MAX_GROUPS];
	u64	block_bytes;
};

struct adapter_place;

/**
 * struct model_seq_in - the part of one sequence that runs now
 * @tokens:	ids of positions @start .. @start + @nr_tokens - 1
 * @nr_tokens:	how many, at least 1
 * @start:	position of the first; the KV of all earlier positions that are
 *		seen is in place
 * @table:	block table of each layer group; entry i maps positions from i *
 *		block_tokens, and entries exist up to the last position that runs.
 *		In a group with a window the entries of blocks that end before
 *		@start + 1 - window are not read, and may be anything.  In that of
 *		recurrent layers block_tokens tokens have kern_state_blocks() entries;
 *		those of records before the one that token @start reads may be anything
 * @want_logits: rows of logits wanted: those of the last @want_logits tokens; 0
 *		for none, 1 for the next token
 * @adapter:	the adapter of these tokens (adapter.h); NULL: none
 */
struct model_seq_in {
	const u32	*tokens;
	u32		nr_tokens;
	u32		start;
	const u32	*table[MODEL_MAX_GROUPS];
	u32		want_logits;
	const struct adapter_place *adapter;
};

/**
 * model_load() - read a checkpoint folder and make it ready to run
 * @dir:	folder with config.json and model.safetensors, or
 *		model.safetensors.index.json and the files it names;
 *		generation_config.json if there is one
 * @opts:	options; NULL: defaults
 * @out:	the model; untouched on failure
 * @err:	set on failure
 *
 * Weights are mapped, or copied if packed: the files must not change.  Unknown
 * keys and tensors are refused by name, never guessed.
 *
 * Return: 0; -ENOENT (a file is missing), -EINVAL (a file is invalid, or an
 * option makes no sense), -EOPNOTSUPP (valid, but with a feature that is not
 * supported), -ENOMEM, or the error of open(), read() or mmap().
 */
int __must_check model_load(const char *dir, const struct model_opts *opts,
			    struct model **out, struct model_error *err);

/* NULL is allowed. */
void model_free(struct model *model);

const struct model_info *model_info(const struct model *model);

/**
 * model_line() - "3.8 M parameters, bf16, KV bf16, fast, kernels cpu (avx2)"
 * Return: @buf.
 */
const char *model_line(const struct model *model, char *buf, size_t len);

/*
 * Counters of layers with experts since the model was loaded: type, name and meaning.
 * Bytes are those of the elements, without the rest of a packed matrix.
 */
#define MODEL_STATS(x)							\
	x(u64,	expert_layers,	"layers with experts that steps ran")	\
	x(u64,	expert_rows,	"rows that chose experts in these layers") \
	x(u64,	experts_touched, "experts that rows of a step chose in these layers, each counted once a layer") \
	x(double, experts_uniform, "mean of the same number if each row chose any experts with equal chances") \
	x(u64,	expert_products, "products of a matrix of an expert with the rows that chose it") \
	x(u64,	expert_bytes,	"bytes of these matrices, counted for each product")

struct model_stats {
#define x(type, name, text) type name;
	MODEL_STATS(x)
#undef x
};

/* The counters now; all zero without layers with experts. */
void model_get_stats(const struct model *model, struct model_stats *st);

/**
 * model_experts_line() - the means of the counters, for a person
 *
 * "experts touched per layer and step: 41.0 of 64 by 8.0 rows (uniform choice: 42.0),
 * 15.36 MiB read"
 *
 * Return: @buf; NULL if no layer with experts has run.
 */
const char *model_experts_line(const struct model *model, char *buf, size_t len);

/**
 * model_describe() - describe the switches in words, for a person
 * @model:	the model
 * @add:	receives each line, in a readable order; @text is valid only
 *		until it returns
 * @arg:	for @add
 */
void model_describe(const struct model *model,
		    void (*add)(void *arg, const char *what,
				const char *text),
		    void *arg);

/**
 * model_identity() - all facts that change the meaning of KV, for a digest
 * @model:	the model
 * @add:	receives every part, always in the same order; @tag names @data
 * @arg:	for @add
 *
 * The parts are architecture and switches, position-encoding settings, every
 * tensor's name, type, shape and bytes (for a quantized matrix those of the
 * tensors that it was made of), the types of activations and of KV, the
 * kernel with its variant and numerics version, whether weights are packed, and
 * the mode.  Two models may share KV if and only if they feed the same parts.
 * The consumer must keep parts apart (hash the lengths too).  The call reads
 * all weights once.
 */
void model_identity(const struct model *model,
		    void (*add)(void *arg, const char *tag, const void *data,
				size_t len),
		    void *arg);

/**
 * model_fingerprint() - facts that tell two models apart, without reading their weights
 * @model:	the model, which may be judged only
 * @add:	receives every part, as in model_identity()
 * @arg:	for @add
 *
 * The parts are switches, and names, types, shapes and first bytes of the tensors.
 */
void model_fingerprint(const struct model *model,
		       void (*add)(void *arg, const char *tag, const void *data, size_t len),
		       void *arg);

/**
 * model_forward() - run one batch over paged KV
 * @model:	the model
 * @kv:		the blocks; written at the positions that run, read at all
 *		positions up to them
 * @seqs:	the batch; no two entries may be of one sequence
 * @nr_seqs:	how many, at most max_seqs
 * @logits:	f32 [sum of want_logits][nr_vocab], rows in order of @seqs; may
 *		be NULL if that sum is 0
 *
 * The call allocates nothing.  A refused batch has written nothing.  With the
 * kernels "null" no KV is read or written, and a row of logits names a token
 * made up from its position; the caller must not change rows between calls.
 *
 * Return: 0; -E2BIG if there are more rows than max_rows or more sequences than
 * max_seqs; -EINVAL if a token is outside the vocabulary, a position outside
 * max_len, or an entry makes no sense; -EIO if the device failed: then every
 * later call fails, and model_failure() gives the reason.
 */
int __must_check model_forward(struct model *model, const struct model_kv *kv,
			       const struct model_seq_in *seqs, u32 nr_seqs,
			       float *logits);

/**
 * struct model_draws - tokens to draw in the device's memory
 * @draws:	[@nr], in the order of their rows, which count the batch's rows
 *		of logits
 * @nr:		how many, may be 0
 * @drawn:	[@nr], gets the results
 * @top:	[@nr][@top_stride], gets the likeliest tokens
 * @top_stride:	at least the largest nr_top; may be 0
 * @travels:	[rows of logits], nonzero: copy the row to the caller; such a
 *		row must have no draw that edits it
 *
 * @drawn and @top are best allocated with model_host_alloc().
 */
struct model_draws {
	const struct kern_draw	*draws;
	u32			nr;
	struct kern_drawn	*drawn;
	struct kern_top		*top;
	u32			top_stride;
	const u8		*travels;
};

/**
 * model_forward_draw() - model_forward(), and draw
 * @draws:	NULL: as model_forward(); else only with info.draws
 * @logits:	rows that are not copied are left alone
 *
 * The logits of draws stay on the device.  The tokens are the same that
 * runtime/sampler draws from the same logits.
 *
 * Return: as model_forward(); -EINVAL also if the draws are not in order.
 */
int __must_check model_forward_draw(struct model *model,
				    const struct model_kv *kv,
				    const struct model_seq_in *seqs,
				    u32 nr_seqs,
				    const struct model_draws *draws,
				    float *logits);

/**
 * model_host_alloc() - pinned memory for results of the device
 *
 * Return: the memory, to be freed with model_host_free() before the model; NULL
 * if there is none, or no device: any memory will do, and is slower.
 */
void *model_host_alloc(struct model *model, size_t bytes);

/**
 * model_put() - write to memory that the kernels read
 * @to:   @bytes in the pool: an address of the device, if the kernels run on one
 * @from: host memory
 *
 * Return: 0, or a failure of the device.
 */
int __must_check model_put(struct model *model, void *to, const void *from, u64 bytes);

/* NULL is allowed. */
void model_host_free(struct model *model, void *p);

/* The error of a failed device, one line; NULL if there is none. */
const char *model_failure(struct model *model);

/**
 * model_copy_blocks() - copy blocks, all layers of a group
 * @model:	the model
 * @kv:		the blocks
 * @group:	number of the layer group
 * @from:	table entries to copy from
 * @to:		table entries to copy to; none is also in @from
 * @tokens:	leading tokens of each block to copy; blocks of recurrent layers are
 *		copied whole, and it is not read
 * @nr:		how many copies
 *
 * The copies are complete when the call returns.  If a device failed, the next
 * model_forward() reports it.
 */
void model_copy_blocks(struct model *model, const struct model_kv *kv,
		       u32 group, const u32 *from, const u32 *to, const u32 *tokens,
		       u32 nr);

#endif /* RUNTIME_MODEL_H */
