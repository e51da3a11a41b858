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
 * @copied:	one a tensor, set when ckpt_drop() gave its pages back
 * @nr_tensors:	how many
 * @made:	tensors that were made up instead of read, else NULL
 * @made_map:	their memory
 * @made_bytes:	its size
 */
struct ckpt {
	char			*dir;
	struct st_file		**files;
	u32			nr_files;
	const struct st_tensor	**tensors;
	bool			*used;
	bool			*copied;
	u32			nr_tensors;
	struct st_tensor	*made;
	void			*made_map;
	u64			made_bytes;
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

/* Whether there is one of that name; that does not use it. */
bool ckpt_has(const struct ckpt *c, const char *name);

/*
 * The tensor was copied, its bytes are not needed soon: give its pages back.
 * Reading them again brings them back from the file.
 */
void ckpt_drop(struct ckpt *c, const struct st_tensor *t);

/* Tensor number @i will be read soon, from its first byte to its last. */
void ckpt_want(const struct ckpt *c, u32 i);

/* Tensor number @i was read; if it was copied before, drop it again. */
void ckpt_done(const struct ckpt *c, u32 i);

/* Put @c->tensors in order. */
void ckpt_sort(struct ckpt *c);

/* The first tensor that nobody took, or NULL. */
const struct st_tensor *ckpt_unused(const struct ckpt *c);

#endif /* RUNTIME_MODEL_CHECKPOINT_H */
