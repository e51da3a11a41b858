/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint.h - all tensors of a model folder, whatever files they are in
 */
#ifndef RUNTIME_MODEL_CHECKPOINT_H
#define RUNTIME_MODEL_CHECKPOINT_H

#include "runtime/model/safetensors.h"

/**
 * struct ckpt - an open checkpoint
 * @dir:	the folder
 * @files:	the open files
 * @nr_files:	how many
 * @tensors:	every tensor of every file, sorted by name; no name twice
 * @used:	one a tensor, set when it was asked for
 * @nr_tensors:	how many
 */
struct ckpt {
	char			*dir;
	struct st_file		**files;
	u32			nr_files;
	const struct st_tensor	**tensors;
	bool			*used;
	u32			nr_tensors;
};

/**
 * ckpt_open() - open model.safetensors, or the shards that
 *		 model.safetensors.index.json names
 * @dir:	the folder
 * @out:	the checkpoint
 * @err:	set on failure
 *
 * Return: 0; -ENOENT if neither is there or a shard is missing; -EINVAL if a
 * file or the index is not sound; -ENOMEM; an error of open() or mmap().
 */
int __must_check ckpt_open(const char *dir, struct ckpt **out,
			   struct model_error *err);

/* NULL is allowed. */
void ckpt_close(struct ckpt *c);

/* The tensor of that name, now used, or NULL. */
const struct st_tensor *ckpt_take(struct ckpt *c, const char *name);

/* The first tensor that nobody took, or NULL. */
const struct st_tensor *ckpt_unused(const struct ckpt *c);

#endif /* RUNTIME_MODEL_CHECKPOINT_H */
