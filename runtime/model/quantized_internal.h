/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quantized_internal.h - parts of the reader of quantized folders
 */
#ifndef RUNTIME_MODEL_QUANTIZED_INTERNAL_H
#define RUNTIME_MODEL_QUANTIZED_INTERNAL_H

#include "runtime/model/error.h"
#include "runtime/model/json.h"
#include "runtime/model/quantized.h"

/* ---- quantized_config.c ---- */

/* Names and order of the tensors of a matrix. */
enum quant_how {
	QUANT_AWQ,	/* qweight [columns][rows / 8], qzeros, scales */
	QUANT_GPTQ,	/* qweight [columns / 8][rows], qzeros, scales, g_idx */
	QUANT_PACKED,	/* weight_packed [rows][columns / 8], weight_scale, .. */
	QUANT_PLAIN,	/* weight in int8 or e4m3, weight_scale or weight_scale_inv */
	QUANT_MXFP4,	/* NAME_blocks, NAME_scales, of all experts */
};

/**
 * struct quant_scheme - how some matrices are quantized
 * @how:	names and order of tensors
 * @bits:	of an element
 * @is_float:	elements are e4m3, else whole numbers
 * @per_row:	each row has scales of its own
 * @group:	columns that share a scale; 0: all
 * @block_rows:	rows that share a scale; 0: see @per_row
 * @zeros:	there are zero points
 * @zero_less_one: they are stored less 1
 * @sorted:	columns of a group may lie apart, as g_idx says
 * @needs_idx:	they do, so g_idx must be there
 * @targets:	modules, a list of strings; NULL: all
 */
struct quant_scheme {
	enum quant_how	how;
	u32		bits;
	bool		is_float;
	bool		per_row;
	u32		group;
	u32		block_rows;
	bool		zeros;
	bool		zero_less_one;
	bool		sorted;
	bool		needs_idx;
	json_t		*targets;
};

#define QUANT_MAX_SCHEMES	32u

/**
 * struct quant_config - a "quantization_config"
 * @f:		config.json; owns the targets
 * @there:	there is one
 * @schemes:	its schemes
 * @nr_schemes:	how many
 */
struct quant_config {
	struct mj_file		f;
	bool			there;
	struct quant_scheme	schemes[QUANT_MAX_SCHEMES];
	u32			nr_schemes;
};

/* Call quant_config_close() in every case. */
int __must_check quant_config_open(struct quant_config *q, const char *dir,
				   struct model_error *err);
void quant_config_close(struct quant_config *q);

/*
 * The scheme of tensors of kind @how of module @name, @len characters long; NULL: none
 * matches.  Sets q->f.ret if a target cannot be understood.
 */
const struct quant_scheme *quant_scheme_of(struct quant_config *q,
					   enum quant_how how, const char *name,
					   u32 len);

/* ---- quantized.c ---- */

/**
 * struct quant_make - one tensor to make
 * @t:		the tensor
 * @s:		scheme of a quantized folder
 * @codes:	source of elements
 * @scales:	source of scales
 * @zeros:	source of zero points; NULL: none
 * @g_idx:	group of each column; NULL: columns of a group are neighbours
 * @rows:	rows of all matrices
 * @cols:	columns
 * @groups:	scales of a row
 * @row_share:	rows that share scales
 * @zero:	zero point of all elements, without @zeros
 * @half:	rows of gate in one matrix, as many as of up, if the source has them in
 *		turn; 0: rows stay in order
 * @turned:	rows of one matrix, if the source has rows and columns exchanged; else 0
 * @fill:	write rows @row to @row + @nr - 1; @room is for one thread.  False: a number
 *		of the source is NaN, or above QUANT_MOST, and cannot be quantized
 */
struct quant_make {
	struct st_tensor		*t;
	const struct quant_scheme	*s;
	const struct st_tensor		*codes;
	const struct st_tensor		*scales;
	const struct st_tensor		*zeros;
	const struct st_tensor		*g_idx;
	u64				rows;
	u64				cols;
	u64				groups;
	u64				row_share;
	u32				zero;
	u64				half;
	u64				turned;
	bool (*fill)(const struct quant_make *m, u64 row, u32 nr, void *room);
};

/* The largest magnitude that is quantized: scales are f16.  No real weight is near it. */
#define QUANT_MOST	65504.0f
#define QUANT_ROWS	16u	/* rows that a call of fill() writes at most */

/* Bytes of @room for a row. */
#define QUANT_ROOM(cols)	((cols) * sizeof(float))

/**
 * struct quant_list - tensors to make
 * @c:		the checkpoint
 * @makes:	the list
 * @nr:		how many
 * @gone:	[c->nr_tensors], true for sources of a made tensor
 * @bytes:	memory of the made tensors
 */
struct quant_list {
	struct ckpt		*c;
	struct quant_make	*makes;
	u32			nr;
	bool			*gone;
	u64			bytes;
};

int __must_check quant_list_open(struct quant_list *l, struct ckpt *c);
void quant_list_close(struct quant_list *l);

/* The tensor of that name, which is then one of the sources; NULL: there is none. */
const struct st_tensor *quant_list_take(struct quant_list *l, const char *name);

/*
 * A new entry for tensor @name of @nr_dims dimensions and type @type, which may be
 * KERN_F32.  Rows are those of all matrices.  NULL: no memory.
 */
struct quant_make *quant_list_add(struct quant_list *l, const char *name,
				  enum kern_dtype type, const u64 *shape,
				  u32 nr_dims);

/* Make all tensors of @l, and put them into the list of the checkpoint. */
int __must_check quant_list_run(struct quant_list *l,
				const struct quantized_opts *o,
				struct model_error *err);

/* ---- quantized_fill.c ---- */

bool quant_fill_codes(const struct quant_make *m, u64 row, u32 nr, void *room);
bool quant_fill_mxfp4(const struct quant_make *m, u64 row, u32 nr, void *room);

/* The row of the source that becomes row @row. */
u64 quant_source_row(const struct quant_make *m, u64 row);

/* Zero point of a group of a row. */
u32 quant_zero(const struct quant_make *m, u64 row, u64 group);

#endif /* RUNTIME_MODEL_QUANTIZED_INTERNAL_H */
