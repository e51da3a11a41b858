/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adapter_internal.h - the parts of adapters that share their structures
 */
#ifndef RUNTIME_MODEL_ADAPTER_INTERNAL_H
#define RUNTIME_MODEL_ADAPTER_INTERNAL_H

#include <libkvmm.h>

#include "runtime/model/adapter.h"
#include "runtime/model/internal.h"
#include "runtime/model/json.h"
#include "runtime/model/layout.h"

#define ADAPTER_CONFIG	"adapter_config.json"
#define ADAPTER_TENSORS	"adapter_model.safetensors"
#define ADAPTER_PREFIX	"base_model.model."

#define ADAPTER_ALIGN	64u	/* of matrices in blocks */

/**
 * struct adapter_matrix - a matrix, as it is in the file
 * @at:    offset of its first number in the file
 * @dtype: of the file
 * @rows:  rows in the file
 * @cols:  columns in the file
 * @turn:  in blocks it is [cols][rows]
 * @sum:   hash of its numbers after conversion
 */
struct adapter_matrix {
	u64		at;
	enum st_dtype	dtype;
	u64		rows;
	u64		cols;
	bool		turn;
	u64		sum;
};

/* A site that has a pair. */
struct adapter_spot {
	u32			layer;
	enum adapter_site	site;
	u32			rank;
	float			scale;
	struct adapter_matrix	m[2];	/* A, B */
};

/**
 * struct adapter - an adapter
 * @dir:   its folder
 * @fd:    the file of numbers
 * @type:  of numbers in blocks, KERN_F32 or KERN_BF16
 * @pairs: pairs of a place
 * @spots: sorted by layer and site
 * @nr:    how many
 * @info:  for others
 */
struct adapter {
	char			*dir;
	int			fd;
	enum kern_dtype		type;
	u32			pairs;
	struct adapter_spot	*spots;
	u32			nr;
	struct adapter_info	info;
};

/* ---- adapter_config.c ---- */

/**
 * struct adapter_config - adapter_config.json
 * @f:      the open file; the next two belong to it
 * @ranks:  ranks by names of modules; NULL: none
 * @alphas: likewise
 * @rank:   of the other modules
 * @alpha:  of the other modules
 * @root:   alpha is divided by the square root of the rank
 */
struct adapter_config {
	struct mj_file	f;
	json_t		*ranks;
	json_t		*alphas;
	u32		rank;
	double		alpha;
	bool		root;
};

/* Read DIR/adapter_config.json.  Call adapter_config_close() in every case. */
int __must_check adapter_config_open(struct adapter_config *c, const char *dir,
				     struct model_error *err);
void adapter_config_close(struct adapter_config *c);

/* The rank and the scale of a module, by its name without ADAPTER_PREFIX. */
u32 adapter_config_rank(const struct adapter_config *c, const char *module);
float adapter_config_scale(const struct adapter_config *c, const char *module, u32 rank);

/* ---- adapter_modules.c ---- */

/**
 * struct adapter_module - a matrix of the model, by its name in folders
 * @name: without the end ".weight"
 * @spec: its row of the layout
 * @layer: its layer
 * @rows: rows that the decoder sees
 * @cols: columns, likewise
 * @t:    tensors of the adapter: A, B
 */
struct adapter_module {
	char				name[WEIGHT_NAME_MAX];
	const struct weight_spec	*spec;
	u32				layer;
	u64				rows;
	u64				cols;
	const struct st_tensor		*t[2];
};

/* The matrices of all layers, sorted by name. */
struct adapter_modules {
	const struct model_config	*cfg;
	struct adapter_module		*list;
	u32				nr;
	u32				room;
};

/* List the matrices of layers.  Return: 0 or -ENOMEM; free @m->list in every case. */
int __must_check adapter_modules_list(const struct model_config *cfg,
				      struct adapter_modules *m);

/* Find the places of all tensors of @file. */
int __must_check adapter_modules_bind(struct adapter_modules *m, const struct st_file *file,
				      struct model_error *err);

/* The sites that a matrix of a layer fills; returns how many, 0: it takes no adapter. */
u32 adapter_sites(const struct model_config *cfg, const struct weight_spec *spec, u32 layer,
		  enum adapter_site sites[WEIGHT_PARTS], u64 rows[WEIGHT_PARTS]);

/* ---- adapter_data.c ---- */

/* Where a number is that is not finite. */
#define ADAPTER_ALL_FINITE	(~0ull)

/**
 * adapter_matrix_read() - read all numbers of a matrix and convert them
 * @to:     the matrix as in blocks; NULL: not needed
 * @id:     gets the converted numbers; NULL: not needed
 * @sum:    gets their hash
 * @bad:    gets the number of the first element that is not finite, or ADAPTER_ALL_FINITE
 *
 * Return: 0; -EIO if the file is too short; the error of pread().
 */
int __must_check adapter_matrix_read(const struct adapter *a, const struct adapter_matrix *m,
				     void *to, struct kvmm_identity *id, u64 *sum, u64 *bad);

static inline u64 adapter_matrix_bytes(const struct adapter *a,
				       const struct adapter_matrix *m)
{
	return m->rows * m->cols * (a->type == KERN_BF16 ? 2 : 4);
}

#endif /* RUNTIME_MODEL_ADAPTER_INTERNAL_H */
