/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quantized.h - quantized model folders, and quantizing while loading
 */
#ifndef RUNTIME_MODEL_QUANTIZED_H
#define RUNTIME_MODEL_QUANTIZED_H

#include "runtime/model/checkpoint.h"
#include "runtime/model/config.h"

/* Counts changes of the numbers that are made of the same files. */
#define QUANTIZED_VERSION	1u

/**
 * struct quantized_opts - how tensors are made
 * @judge:	check and count only; tensors that are made have no memory
 * @nr_threads:	0: one a core
 * @progress:	may be NULL
 */
struct quantized_opts {
	bool				judge;
	u32				nr_threads;
	const struct model_progress	*progress;
};

/**
 * quantized_open() - make matrices of blocks of a quantized folder's tensors
 * @c:		the checkpoint; its list of tensors is changed
 * @o:		how
 * @err:	set on failure
 *
 * If config.json has a "quantization_config", each group of tensors that describes one
 * matrix is replaced by one tensor of blocks, which has the name that the matrix has
 * in a folder without quantization.  The pages of the group are given back, matrix
 * after matrix.  A folder without that key is left as it is.
 *
 * Return: 0; -EINVAL if tensors are missing or do not fit together; -EOPNOTSUPP for
 * methods and variants that are not supported; -ENOMEM.
 */
int __must_check quantized_open(struct ckpt *c, const struct quantized_opts *o,
				struct model_error *err);

/**
 * quantized_make() - quantize the matrices of a folder
 * @c:		the checkpoint; its list of tensors is changed
 * @cfg:	its configuration
 * @to:		the type; see enum model_quantization
 * @o:		how
 * @err:	set on failure
 *
 * Return: 0; -EINVAL if the folder is quantized already, or if a matrix has a number that is
 * NaN, infinite or above the range of f16 (not found if @o->judge); -ENOMEM.
 */
int __must_check quantized_make(struct ckpt *c, const struct model_config *cfg,
				enum model_quantization to,
				const struct quantized_opts *o,
				struct model_error *err);

#endif /* RUNTIME_MODEL_QUANTIZED_H */
