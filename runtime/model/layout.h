/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout.h - the tensors of a checkpoint by layout, as tables
 */
#ifndef RUNTIME_MODEL_LAYOUT_H
#define RUNTIME_MODEL_LAYOUT_H

#include "runtime/model/weights.h"

/* A size from the configuration. */
enum weight_dim {
	DIM_NONE,	/* a vector has no columns */
	DIM_VOCAB,
	DIM_HIDDEN,
	DIM_INTER,
	DIM_Q,		/* all query heads */
	DIM_KV,		/* all KV heads */
	DIM_QKV,	/* all heads */
	DIM_HEAD,	/* one head */
	DIM_TWO_INTER,	/* gate and up */
	DIM_POSITIONS,	/* rows of learned positions */
};

/* The switch that a tensor depends on. */
enum weight_need {
	NEED_ALWAYS,
	NEED_UNTIED,
	NEED_QKV_BIAS,
	NEED_O_BIAS,
	NEED_MLP_BIAS,
	NEED_QK_NORM,
	NEED_POST_NORMS,
	NEED_NO_POST_NORMS,
};

/* How a tensor fills its place. */
enum weight_how {
	HOW_WHOLE,
	HOW_NORM,	/* and 1 is added, if the family adds it */
	HOW_QKV,	/* its rows are the rows of q, k and v */
	HOW_GATE_UP,	/* its rows are the rows of gate and up */
};

/*
 * @offset is the place of a struct kern_weight, or of a float * for a vector;
 * HOW_QKV and HOW_GATE_UP do not use it.
 */
struct weight_spec {
	const char		*name;
	size_t			offset;
	enum weight_dim		rows;
	enum weight_dim		cols;
	enum weight_need	need;
	enum weight_how		how;
};

/**
 * struct weight_names - one layout
 * @prefixes:	before every name but the head's; files of some families have
 *		the second prefix
 * @layers:	between prefix and number of a layer
 * @head:	name of the output matrix, without prefix
 * @top:	tensors outside of layers
 * @nr_top:	how many
 * @layer:	tensors of a layer; their names follow its number
 * @nr_layer:	how many
 * @leftovers:	ends of names that may be there without meaning, up to NULL
 * @transposed:	matrices of layers are stored as [columns][rows]
 */
struct weight_names {
	const char			*prefixes[2];
	const char			*layers;
	const char			*head;
	const struct weight_spec	*top;
	u32				nr_top;
	const struct weight_spec	*layer;
	u32				nr_layer;
	const char			*leftovers[4];
	bool				transposed;
};

const struct weight_names *weight_names_of(enum weight_layout layout);

/* The size of @dim; and whether the tensor is needed at all. */
u64 weight_dim(const struct model_config *cfg, enum weight_dim dim);
bool weight_needed(const struct model_config *cfg, enum weight_need need);

#define WEIGHT_PARTS	3

/* The place of some rows of a matrix: a struct kern_weight at @offset. */
struct weight_part {
	size_t	offset;
	u64	rows;
};

/* The places of a matrix's rows, in order; returns how many. */
u32 weight_parts(const struct model_config *cfg, const struct weight_spec *s,
		 struct weight_part parts[WEIGHT_PARTS]);

#define WEIGHT_NAME_MAX	128

/* Full names, into WEIGHT_NAME_MAX bytes. */
void weight_top_name(const struct weight_names *n, u32 prefix,
		     const struct weight_spec *s, char *name);
void weight_layer_name(const struct weight_names *n, u32 prefix, u32 layer,
		       const struct weight_spec *s, char *name);

#endif /* RUNTIME_MODEL_LAYOUT_H */
