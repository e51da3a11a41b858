/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.h - what config.json says, as switches of one decoder
 */
#ifndef RUNTIME_MODEL_CONFIG_H
#define RUNTIME_MODEL_CONFIG_H

#include "runtime/model/model.h"

/* How inverse frequencies are derived from theta; the text is HF's name. */
#define ROPE_TYPES(x)							\
	x(DEFAULT,	"default")					\
	x(LINEAR,	"linear")					\
	x(LLAMA3,	"llama3")

enum rope_type {
#define x(name, text)	ROPE_##name,
	ROPE_TYPES(x)
#undef x
	NR_ROPE_TYPES
};

/**
 * struct rope_config - rotary position encoding
 * @type:	which derivation
 * @theta:	base
 * @factor:	LINEAR, LLAMA3: stretch of the context
 * @low_freq:	LLAMA3: wavelengths above @original / @low_freq are stretched
 * @high_freq:	LLAMA3: wavelengths below @original / @high_freq are kept
 * @original:	LLAMA3: context before stretching, tokens
 */
struct rope_config {
	enum rope_type	type;
	double		theta;
	double		factor;
	double		low_freq;
	double		high_freq;
	u32		original;
};

/**
 * struct model_config - the decoder's switches
 * @arch:	architecture, a constant string
 * @vocab:	rows of the embedding
 * @hidden:	width of the residual stream
 * @inter:	width of the MLP
 * @layers:	decoder layers
 * @heads:	query heads
 * @kv_heads:	KV heads; divides @heads
 * @head_dim:	elements of a head; @heads * @head_dim need not be @hidden
 * @max_position: longest sequence in tokens
 * @norm_eps:	of every RMSNorm
 * @tied:	the output matrix is the embedding
 * @qkv_bias:	q, k and v have a bias
 * @qk_norm:	q and k are RMS-normalised a head before rotation
 * @window:	positions a token sees, 0 for all
 * @rope:	position encoding
 * @bos_id:	-1 if there is none
 * @eos_ids:	@nr_eos of them
 */
struct model_config {
	const char		*arch;
	u32			vocab;
	u32			hidden;
	u32			inter;
	u32			layers;
	u32			heads;
	u32			kv_heads;
	u32			head_dim;
	u32			max_position;
	float			norm_eps;
	bool			tied;
	bool			qkv_bias;
	bool			qk_norm;
	u32			window;
	struct rope_config	rope;
	s32			bos_id;
	u32			nr_eos;
	u32			eos_ids[MODEL_MAX_EOS];
};

/**
 * model_config_read() - read DIR/config.json
 * @dir:	the folder
 * @cfg:	filled in
 * @err:	set on failure
 *
 * Return: 0; -ENOENT; -EINVAL if a key is missing or makes no sense;
 * -EOPNOTSUPP if the architecture or a feature it asks for is not supported;
 * the error of open() or read().
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

/* Fill @inv_freq[@head_dim / 2]. */
void rope_inv_freq(const struct rope_config *rope, u32 head_dim,
		   float *inv_freq);

#endif /* RUNTIME_MODEL_CONFIG_H */
