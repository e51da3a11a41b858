/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.h - config.json as switches of one decoder
 */
#ifndef RUNTIME_MODEL_CONFIG_H
#define RUNTIME_MODEL_CONFIG_H

#include "kernels/kernels.h"
#include "runtime/model/model.h"

/*
 * How inverse frequencies are derived from theta; the text is Hugging Face's
 * name.
 */
#define ROPE_TYPES(x)							\
	x(DEFAULT,	"default")					\
	x(LINEAR,	"linear")					\
	x(DYNAMIC,	"dynamic")					\
	x(LLAMA3,	"llama3")					\
	x(YARN,		"yarn")						\
	x(LONGROPE,	"longrope")

enum rope_type {
#define x(name, text)	ROPE_##name,
	ROPE_TYPES(x)
#undef x
	NR_ROPE_TYPES
};

/* Pairs of dimensions of a head that can be rotated. */
#define ROPE_MAX_PAIRS	(KERN_MAX_HEAD_DIM / 2)

/**
 * struct rope_config - rotary position encoding
 * @type:	which derivation
 * @theta:	base
 * @part:	share of a head's dimensions that is rotated, the leading ones
 * @factor:	stretch of the context
 * @low_freq:	LLAMA3: wavelengths above @original / @low_freq are stretched
 * @high_freq:	LLAMA3: wavelengths below @original / @high_freq are kept
 * @beta_fast:	YARN: pairs with more turns in @original are kept
 * @beta_slow:	YARN: pairs with fewer turns in @original are stretched
 * @truncate:	YARN: these bounds are rounded to whole pairs
 * @gain:	YARN, LONGROPE: factor on cosines and sines; 1 for the other types
 * @mscale_all:	YARN: mscale_all_dim
 * @original:	DYNAMIC, LLAMA3, YARN, LONGROPE: context before stretching, in tokens
 * @nr_factors:	DEFAULT, LONGROPE: pairs with a divisor in @factors, all or none
 * @factors:	divisors of frequencies; LONGROPE: those of sequences up to @original
 *		tokens, until rope_fit() has put @long_factors there
 * @long_factors: LONGROPE: the same for longer sequences
 */
struct rope_config {
	enum rope_type	type;
	double		theta;
	double		part;
	double		factor;
	double		low_freq;
	double		high_freq;
	double		beta_fast;
	double		beta_slow;
	bool		truncate;
	double		gain;
	double		mscale_all;
	u32		original;
	u32		nr_factors;
	float		factors[ROPE_MAX_PAIRS];
	float		long_factors[ROPE_MAX_PAIRS];
};

#define MODEL_MAX_LAYERS	4096u

/**
 * struct latent_config - attention with one latent vector for all heads
 * @rank:	numbers of a latent vector; 0: heads have K and V of their own
 * @q_rank:	numbers that queries are made of; 0: the residual stream
 * @nope:	dimensions of a head that are not rotated, the leading ones
 * @rope:	dimensions that are; the keys of all heads have the same ones
 * @value:	dimensions of a value
 * @eps:	epsilon of the norms of latent vectors and of the input of queries
 */
struct latent_config {
	u32	rank;
	u32	q_rank;
	u32	nope;
	u32	rope;
	u32	value;
	float	eps;
};

/**
 * struct moe_config - layers with experts
 * @experts:	experts of a layer; 0: no layer has any
 * @chosen:	experts that a token chooses
 * @inter:	width of an expert
 * @shared_inter: width of the expert of all tokens, 0 for none.  Several of them are
 *		one with the sum of their widths
 * @shared_gate: its output is multiplied by the sigmoid of one number of each token
 * @groups:	groups of experts, of one size; 1: no groups
 * @groups_chosen: a token chooses among the experts of so many groups
 * @over_chosen: shares are a softmax over the chosen experts, else over all
 * @scale:	factor on shares
 * @router_bias: the router has a bias
 * @expert_bias: the projections of experts have biases
 * @alpha:	experts have a clamped gate, with this factor in its sigmoid; 0: the
 *		activation of other MLPs
 * @limit:	bound of the clamped gate
 * @sparse:	one bit a layer: the layer has experts instead of an MLP
 */
struct moe_config {
	u32	experts;
	u32	chosen;
	u32	inter;
	u32	shared_inter;
	bool	shared_gate;
	u32	groups;
	u32	groups_chosen;
	bool	over_chosen;
	float	scale;
	bool	router_bias;
	bool	expert_bias;
	float	alpha;
	float	limit;
	u64	sparse[MODEL_MAX_LAYERS / 64];
};

/**
 * struct config_part - the part of a model that a rank has (split.c)
 * @rank:	its number
 * @nr:		ranks; 0: the model is whole
 * @heads:	query heads of the whole model, like the next ones
 * @kv_heads:	KV heads
 * @vocab:	ids
 * @inter:	width of the MLP
 * @shared_inter: width of the shared expert
 * @first_head:	the first query head of the rank, like the next ones
 * @first_kv_head: KV head
 * @first_id:	id
 * @first_inter: column of the MLP
 * @first_shared: column of the shared expert
 * @first_expert: expert
 * @experts:	experts of the rank
 * @state_heads: heads of a recurrent layer of the whole model
 * @state_groups: groups of them
 * @first_state_head: the first one of the rank
 * @first_state_group: likewise; several ranks may have the same group
 * @max_parts:	most sums that all ranks give away for one number
 */
struct config_part {
	u32	rank;
	u32	nr;
	u32	heads;
	u32	kv_heads;
	u32	vocab;
	u32	inter;
	u32	shared_inter;
	u32	first_head;
	u32	first_kv_head;
	u32	first_id;
	u32	first_inter;
	u32	first_shared;
	u32	first_expert;
	u32	experts;
	u32	state_heads;
	u32	state_groups;
	u32	first_state_head;
	u32	first_state_group;
	u32	max_parts;
};

/* How tensors are named and laid out in the file; see weights.c. */
enum weight_layout {
	LAYOUT_LLAMA,		/* one tensor a projection */
	LAYOUT_PHI3,		/* q, k and v are joined, gate and up, too */
	LAYOUT_GPT2,		/* q, k and v are joined; all matrices transposed */
	LAYOUT_OPT,
	LAYOUT_NEOX,		/* q, k and v are joined, head by head */
	LAYOUT_GPT_OSS,		/* experts are joined, and turned; sinks */
	LAYOUT_LATENT,		/* k and v are made of a latent vector */
	LAYOUT_GRANITE,		/* gate and up are joined; recurrent layers */
	LAYOUT_BAMBA,		/* recurrent layers */
	LAYOUT_PHI,		/* one norm a layer; the output matrix has a bias */
	LAYOUT_STARCODER2,
	LAYOUT_STABLELM,	/* one norm for each head of q and k */
	LAYOUT_GPT2_ROWS,	/* as GPT2, and no matrix is transposed */
	LAYOUT_GPT_OSS_EACH,	/* as GPT_OSS, with one tensor a matrix of an expert */
	LAYOUT_LATENT_TWO,	/* as LATENT, with matrices of keys and of values */
	LAYOUT_MIXTRAL,		/* as LLAMA, with other names of experts */
};

/* How q and k are normalised before rotation. */
enum config_qk_norm {
	QK_NORM_NONE,
	QK_NORM_SHARED,		/* head by head, with one weight for all heads */
	QK_NORM_WHOLE,		/* all heads together, as one vector */
	QK_NORM_EACH,		/* head by head, each with a weight of its own */
};

/**
 * struct config_state - recurrent layers (Mamba-2); all zero without
 * @layers:	how many
 * @heads:	heads of a layer; a multiple of @groups
 * @head_dim:	elements of a head
 * @d_state:	rows of a head's state
 * @groups:	groups of heads that share B and C
 * @conv:	taps of the convolution
 * @conv_bias:	it has a bias
 */
struct config_state {
	u32	layers;
	u32	heads;
	u32	head_dim;
	u32	d_state;
	u32	groups;
	u32	conv;
	bool	conv_bias;
};

/**
 * struct model_config - the decoder's switches
 * @arch:	architecture, a constant string
 * @layout:	layout of the checkpoint
 * @vocab:	rows of the embedding
 * @hidden:	width of the residual stream
 * @inter:	width of the MLP
 * @layers:	decoder layers
 * @heads:	query heads
 * @kv_heads:	KV heads; divides @heads; 1 with latent vectors
 * @head_dim:	elements of a query head; @heads * @head_dim need not be @hidden
 * @max_position: longest sequence in tokens
 * @norm_eps:	epsilon of every norm
 * @layer_norm:	norms are LayerNorm, else RMSNorm
 * @norm_bias:	norms have a bias
 * @plain_norms: norms have neither weight nor bias
 * @norm_plus_one: norms multiply by 1 + weight
 * @no_pre_norms: attention and MLP read the residual stream as it is
 * @post_norms:	outputs of attention and MLP are normalised
 * @norm_sums:	the residual stream is normalised after each addition
 * @no_final_norm: logits are made of the residual stream as it is
 * @parallel:	attention and MLP both read the layer's input
 * @shared_norm: with @parallel: they read the same norm of it
 * @tied:	the output matrix is the embedding
 * @qkv_bias:	q, k and v have a bias
 * @o_bias:	the projection after attention has a bias
 * @mlp_bias:	the projections of the MLP have biases
 * @head_bias:	the output matrix has a bias
 * @qk_norm:	how q and k are normalised before rotation
 * @sinks:	heads have a sink in their softmax
 * @gated:	the MLP is act(gate) * up, else act(up)
 * @act:	activation
 * @latent:	latent vectors in place of K and V
 * @moe:	layers with experts
 * @embed_dim:	width of the embedding; if it is not @hidden, a matrix makes the
 *		residual stream of it, and another one the input of the output matrix
 * @embed_scale: factor on embeddings
 * @embed_exact: that factor is not rounded to the type of activations
 * @residual_scale: factor on what is added to the residual stream
 * @logits_scale: factor on logits
 * @attn_scale:	factor on q.k
 * @attn_by_layer: that factor is divided by the number of the layer, from 1 on
 * @attn_cap:	soft cap of attention scores, 0 for none
 * @final_cap:	soft cap of logits, 0 for none
 * @window:	positions that a token sees in local layers, 0 for all
 * @local:	one bit a layer: the layer is local
 * @learned:	positions are rows of a table that is added to embeddings, and
 *		heads are not rotated
 * @learned_from: row of position 0
 * @unplaced:	no position encoding at all
 * @unturned:	one bit a layer: its heads are not rotated
 * @turn_pairs:	a dimension is rotated with its neighbour, else with the one half a
 *		head away
 * @two_ropes:	local layers have a different position encoding
 * @rope:	position encoding
 * @rope_local:	the same for local layers; equals @rope without @two_ropes
 * @recurrent:	one bit a layer: the layer is recurrent
 * @state:	sizes of recurrent layers
 * @part:	the part of a rank; then other members have the sizes of that part, but
 *		@moe.experts counts all experts
 * @type:	type that the file names, if @says_type: f32, bf16 or f16
 * @file_type:	type of weights in the file, for made-up weights
 * @init_range:	spread of made-up weights
 * @bos_id:	id of the token that starts a text, -1: none
 * @eos_ids:	ids that end a text, @nr_eos of them
 */
struct model_config {
	const char		*arch;
	enum weight_layout	layout;
	u32			vocab;
	u32			hidden;
	u32			inter;
	u32			layers;
	u32			heads;
	u32			kv_heads;
	u32			head_dim;
	u32			max_position;
	float			norm_eps;
	bool			layer_norm;
	bool			norm_bias;
	bool			plain_norms;
	bool			norm_plus_one;
	bool			no_pre_norms;
	bool			post_norms;
	bool			norm_sums;
	bool			no_final_norm;
	bool			parallel;
	bool			shared_norm;
	bool			tied;
	bool			qkv_bias;
	bool			o_bias;
	bool			mlp_bias;
	bool			head_bias;
	enum config_qk_norm	qk_norm;
	bool			sinks;
	bool			gated;
	enum kern_act		act;
	struct latent_config	latent;
	struct moe_config	moe;
	u32			embed_dim;
	float			embed_scale;
	bool			embed_exact;
	float			residual_scale;
	float			logits_scale;
	float			attn_scale;
	bool			attn_by_layer;
	float			attn_cap;
	float			final_cap;
	u32			window;
	u64			local[MODEL_MAX_LAYERS / 64];
	bool			learned;
	u32			learned_from;
	bool			unplaced;
	u64			unturned[MODEL_MAX_LAYERS / 64];
	bool			turn_pairs;
	bool			two_ropes;
	struct rope_config	rope;
	struct rope_config	rope_local;
	u64			recurrent[MODEL_MAX_LAYERS / 64];
	struct config_state	state;
	struct config_part	part;
	enum kern_dtype		type;
	bool			says_type;
	enum kern_dtype		file_type;
	float			init_range;
	s32			bos_id;
	u32			nr_eos;
	u32			eos_ids[MODEL_MAX_EOS];
};

static inline bool config_is_local(const struct model_config *cfg, u32 layer)
{
	return cfg->local[layer / 64] >> (layer % 64) & 1;
}

static inline bool config_is_sparse(const struct model_config *cfg, u32 layer)
{
	return cfg->moe.sparse[layer / 64] >> (layer % 64) & 1;
}

/* The mean share of a layer's experts that @rows choose, if all choices are as likely. */
double config_share_touched(const struct moe_config *moe, u32 rows);

/* Experts that this process has, from part.first_expert on. */
static inline u32 config_experts(const struct model_config *cfg)
{
	return cfg->part.nr ? cfg->part.experts : cfg->moe.experts;
}

static inline bool config_is_unturned(const struct model_config *cfg, u32 layer)
{
	return cfg->unturned[layer / 64] >> (layer % 64) & 1;
}

/* Numbers that KV of a token has for each KV head, K apart from V. */
static inline u32 config_kv_dim(const struct model_config *cfg)
{
	return cfg->latent.rank ? cfg->latent.rank + cfg->latent.rope :
				  cfg->head_dim;
}

/* With latent vectors: numbers of K and V of a token, if heads had their own. */
static inline u64 config_heads_kv(const struct model_config *cfg)
{
	return (u64)cfg->heads * (cfg->head_dim + cfg->latent.value);
}

/* All outputs of attention, those of all heads. */
static inline u64 config_attn_out(const struct model_config *cfg)
{
	return (u64)cfg->heads * (cfg->latent.rank ? cfg->latent.value :
						     cfg->head_dim);
}

/* Do several ranks share a group of heads of recurrent layers, which is normalised as one? */
static inline bool config_shares_group(const struct model_config *cfg)
{
	return cfg->part.nr && cfg->part.state_groups % cfg->part.nr;
}

static inline bool config_is_recurrent(const struct model_config *cfg, u32 layer)
{
	return cfg->recurrent[layer / 64] >> (layer % 64) & 1;
}

/* The geometry of its states, without a pool. */
static inline struct kern_state config_states(const struct model_config *cfg)
{
	const struct config_state *s = &cfg->state;

	return (struct kern_state){
		.nr_layers = s->layers, .heads = s->heads,
		.head_dim = s->head_dim, .d_state = s->d_state,
		.groups = s->groups, .conv = s->conv,
	};
}

/* Rotated dimensions of a head; even. */
static inline u32 config_rotary(const struct model_config *cfg)
{
	if (cfg->latent.rank)
		return cfg->latent.rope;
	return cfg->learned || cfg->unplaced ? 0 :
	       (u32)(cfg->head_dim * cfg->rope.part);
}

/**
 * model_config_read() - read DIR/config.json
 * @dir:	the folder
 * @cfg:	filled in
 * @err:	set on failure
 *
 * Return: 0; -ENOENT; -EINVAL if a key is missing or makes no sense;
 * -EOPNOTSUPP if the architecture, a feature of it or a key is unknown; the
 * error of open() or read().
 */
int __must_check model_config_read(const char *dir, struct model_config *cfg,
			     struct model_error *err);

/**
 * model_config_generation() - read DIR/generation_config.json
 * @dir:	the folder
 * @cfg:	its bos and eos replace those of config.json if the file has any
 * @gen:	defaults; all unset if there is no such file
 * @err:	set on failure
 *
 * Return: 0, also if there is no such file; -EINVAL; the error of open() or
 * read().
 */
int __must_check model_config_generation(const char *dir,
					struct model_config *cfg,
					struct model_generation *gen,
					struct model_error *err);

const char *rope_type_name(enum rope_type type);

/*
 * Choose factors for sequences of up to @len tokens.  With LONGROPE, these decide the
 * frequencies of every token.
 */
void rope_fit(struct rope_config *rope, u32 len);

/* Fill @inv_freq[@dim / 2]; @dim is the number of rotated dimensions. */
void rope_inv_freq(const struct rope_config *rope, u32 dim, float *inv_freq);

/*
 * The same for the token that makes a sequence @len tokens long: with DYNAMIC
 * the frequencies differ once @len exceeds the original context.
 */
void rope_inv_freq_at(const struct rope_config *rope, u32 dim, u32 len,
		      float *inv_freq);

/* May tokens of a sequence have different frequencies? */
static inline bool rope_is_dynamic(const struct rope_config *rope)
{
	return rope->type == ROPE_DYNAMIC;
}

#endif /* RUNTIME_MODEL_CONFIG_H */
