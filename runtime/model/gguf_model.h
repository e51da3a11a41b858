/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gguf_model.h - models in GGUF files
 *
 * A GGUF file names its tensors and sizes in its own way, and its writers change some
 * tensors.  Here such a file becomes the configuration and the tensors of a folder in
 * Hugging Face's format, which the rest of the loader reads by its own rules.
 */
#ifndef RUNTIME_MODEL_GGUF_MODEL_H
#define RUNTIME_MODEL_GGUF_MODEL_H

#include "runtime/lib/gguf.h"
#include "runtime/model/checkpoint.h"
#include "runtime/model/families.h"
#include "runtime/model/json.h"

/* How a tensor of the file becomes one or several of the layout. */
enum gguf_how {
	GGUF_SAME,	/* as it is */
	GGUF_FLAT,	/* all dimensions become one */
	GGUF_ROWS,	/* all but the contiguous one become one */
	GGUF_TAPS,	/* [channels][taps] becomes [channels][1][taps] */
	GGUF_EXPERTS,	/* the last dimension counts experts: one tensor for each */
	GGUF_Q_PAIRS,	/* rows that are rotated together are neighbours, of q */
	GGUF_K_PAIRS,	/* the same, of k */
	GGUF_QKV,	/* rows of q, k and v of all heads become those head by head */
	GGUF_FIRST,	/* the first rows of a joined tensor */
	GGUF_SECOND,	/* the last ones */
	GGUF_LOG,	/* -exp(x), of which x is wanted */
	GGUF_CONFIG,	/* the configuration has read it */
};

/**
 * struct gguf_name - a tensor's name in the file and in the layout
 * @from:	in the file, behind "blk.N." for one of a layer
 * @to:		in the layout: full, or behind the number of the layer; %u is an expert
 * @how:	how it becomes the other
 */
struct gguf_name {
	const char	*from;
	const char	*to;
	enum gguf_how	how;
};

#define GGUF_NAME_LISTS	5u

struct gguf_conf;

/**
 * struct gguf_arch - one architecture of GGUF files
 * @name:	"general.architecture"
 * @hf:		name of the family in the other format
 * @layout:	layout of the tensors, if @other_layout; else the family's own
 * @top:	names outside of layers, lists that end with an empty row
 * @layers:	name of a layer up to its number, in the layout
 * @layer:	names of a layer's tensors
 * @act:	activation, which no key of the file says
 * @more:	sets keys that only this architecture has; NULL: none
 */
struct gguf_arch {
	const char			*name;
	const char			*hf;
	enum weight_layout		layout;
	bool				other_layout;
	const char			*layers;
	const struct gguf_name		*top;
	const struct gguf_name		*layer[GGUF_NAME_LISTS];
	const char			*act;
	void				(*more)(struct gguf_conf *c);
};

/* The row of the file's architecture; NULL, and @err is set, if there is none. */
const struct gguf_arch *gguf_arch_of(const struct gguf *g,
				     struct model_error *err);

/* The row for a tensor's name, or NULL; *layer: its layer, or UINT32_MAX. */
const struct gguf_name *gguf_name_of(const struct gguf_arch *arch,
				     const char *name, u32 *layer);

/* Does the file have a tensor of that name? */
bool gguf_has_tensor(const struct gguf *g, const char *name);

/* The tensor of that name, or NULL. */
const struct gguf_tensor *gguf_tensor(const struct gguf *g, const char *name);

/**
 * gguf_config_open() - the configuration of a file as JSON
 * @path:	the file
 * @f:		set up for getters, with the keys of a config.json
 * @arch:	gets the row of its architecture
 * @out:	gets the open file, to be closed by the caller, also on failure
 * @err:	receives this and every later failure, by the keys of the file
 *
 * Return: 0, or the error of gguf_open() or of a key.  Call mj_close() in every case.
 */
int __must_check gguf_config_open(const char *path, struct mj_file *f,
				  const struct gguf_arch **arch,
				  struct gguf **out, struct model_error *err);

/* Switches that the writers of GGUF files have applied to the tensors already. */
void gguf_config_finish(struct mj_file *f, const struct gguf_arch *arch,
			const struct gguf *g, struct model_config *cfg);

/**
 * gguf_ckpt_open() - the tensors of a GGUF file by the names of the layout
 * @path:	the file
 * @cfg:	its configuration
 * @judge:	names, types and shapes only: made tensors are not filled
 * @out:	the checkpoint
 * @err:	set on failure
 *
 * Tensors are used where they are mapped, if they only need another name or shape.
 * Those whose rows are in another order are copied.
 *
 * Return: 0, the error of gguf_open(), -EINVAL, -ENOMEM.
 */
int __must_check gguf_ckpt_open(const char *path, const struct model_config *cfg,
				bool judge, struct ckpt **out,
				struct model_error *err);

#endif /* RUNTIME_MODEL_GGUF_MODEL_H */
