/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint.h - all tensors of a model folder, from one file or many
 */
#ifndef RUNTIME_MODEL_CHECKPOINT_H
#define RUNTIME_MODEL_CHECKPOINT_H

#include "runtime/model/safetensors.h"

struct gguf;

/**
 * struct ckpt - an open checkpoint
 * @dir:	the folder
 * @files:	the open files
 * @nr_files:	how many
 * @tensors:	every tensor of every file, sorted by name; no name twice
 * @used:	one a tensor, set when it was taken
 * @copied:	one a tensor, set when ckpt_drop() gave its pages back
 * @nr_tensors:	how many
 * @made:	tensors that are not read from files as they are: made up, or made of others;
 *		NULL: none
 * @nr_made:	how many
 * @sources:	tensors of the files that those of @made were made of, sorted by name
 * @nr_sources:	how many
 * @made_map:	their memory
 * @made_bytes:	its size
 * @gguf:	the open GGUF file, in place of @files; NULL: none
 * @gguf_tensors: its tensors that are used where they are mapped
 * @nr_gguf:	how many
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
	u32			nr_made;
	const struct st_tensor	**sources;
	u32			nr_sources;
	void			*made_map;
	u64			made_bytes;
	struct gguf		*gguf;
	struct st_tensor	*gguf_tensors;
	u32			nr_gguf;
};

/**
 * ckpt_open() - open model.safetensors, or the shards that
 *		 model.safetensors.index.json names
 * @dir:	the folder
 * @out:	the checkpoint
 * @err:	set on failure
 *
 * Return: 0; -ENOENT if there is neither or a shard is missing; -EINVAL if a
 * file or the index is invalid; -ENOMEM; an error of open() or mmap().
 */
int __must_check ckpt_open(const char *dir, struct ckpt **out,
			   struct model_error *err);

/* NULL is allowed. */
void ckpt_close(struct ckpt *c);

/* Take the tensor of that name, or NULL. */
const struct st_tensor *ckpt_take(struct ckpt *c, const char *name);

/* Is there a tensor of that name?  This does not take it. */
bool ckpt_has(const struct ckpt *c, const char *name);

/* Is @t one of @c->made? */
static inline bool ckpt_is_made(const struct ckpt *c, const struct st_tensor *t)
{
	return c->nr_made && t >= c->made && t < c->made + c->nr_made;
}

/* Put a part of a tensor in its place. */
void ckpt_replace(struct ckpt *c, const struct st_tensor *part);

/* Give the pages of mapped bytes back. */
void ckpt_drop_range(const void *data, u64 bytes);

/*
 * Give the pages of a copied tensor back.  Reading them again loads them from
 * the file; those of a tensor that was made of others are gone.
 */
void ckpt_drop(struct ckpt *c, const struct st_tensor *t);

/* The same for now: the tensor in use is another one, which was made of it. */
void ckpt_give_back(const struct ckpt *c, const struct st_tensor *t);

/* Tensor number @i will be read soon, from its first byte to its last. */
void ckpt_want(const struct ckpt *c, u32 i);

/*
 * Tensor number @i has been read; if it was copied before, drop its pages
 * again.
 */
void ckpt_done(const struct ckpt *c, u32 i);

/* A source has been read. */
void ckpt_done_source(const struct ckpt *c, u32 i);

/* Sort @c->tensors. */
void ckpt_sort(struct ckpt *c);

/* The first tensor that was not taken, or NULL. */
const struct st_tensor *ckpt_unused(const struct ckpt *c);

#endif /* RUNTIME_MODEL_CHECKPOINT_H */
