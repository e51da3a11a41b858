// SPDX-License-Identifier: Apache-2.0
/*
 * checkpoint.c - the tensors of a model folder as one sorted list
 *
 * Small models are one file, model.safetensors.  Big ones are shards, and
 * model.safetensors.index.json says which tensor is in which file.  The index
 * is checked against the shards in both directions: a tensor in the index must
 * be in the file that the index names, and a tensor in a shard must be in the
 * index for that shard.  Otherwise half of a new download over an old one would
 * run, and write nonsense.
 *
 * Tensors are marked when taken, so that the loader can refuse the remaining
 * ones: a tensor that no part of the decoder needs belongs to a feature that
 * the decoder does not have.
 */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/lib/gguf.h"
#include "runtime/model/checkpoint.h"
#include "runtime/model/json.h"

#define CKPT_SINGLE	"model.safetensors"
#define CKPT_INDEX	"model.safetensors.index.json"

/* The format of weights before safetensors. */
#define CKPT_PICKLE		"pytorch_model.bin"
#define CKPT_PICKLE_INDEX	"pytorch_model.bin.index.json"

static int ckpt_cmp(const void *pa, const void *pb)
{
	const struct st_tensor * const *a = pa, * const *b = pb;

	return strcmp((*a)->name, (*b)->name);
}

static s64 ckpt_find(const struct ckpt *c, const char *name)
{
	const struct st_tensor key = { .name = (char *)name }, *pkey = &key;
	const struct st_tensor **hit;

	hit = bsearch(&pkey, c->tensors, c->nr_tensors, sizeof(*c->tensors),
		      ckpt_cmp);
	return hit ? hit - c->tensors : -1;
}

/* The file's last path component. */
static const char *ckpt_base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static int ckpt_add_file(struct ckpt *c, const char *name,
			 struct model_error *err)
{
	struct st_file **files;
	char *path;
	int ret;

	files = realloc(c->files, (c->nr_files + 1) * sizeof(*files));
	if (!files)
		return model_fail_errno(err, -ENOMEM, c->dir, name);
	c->files = files;
	if (asprintf(&path, "%s/%s", c->dir, name) < 0)
		return model_fail_errno(err, -ENOMEM, c->dir, name);
	ret = st_open(path, &files[c->nr_files], err);
	free(path);
	if (!ret)
		c->nr_files++;
	return ret;
}

void ckpt_sort(struct ckpt *c)
{
	qsort(c->tensors, c->nr_tensors, sizeof(*c->tensors), ckpt_cmp);
}

/* Make the sorted list; refuse a name that is in two files. */
static int ckpt_collect(struct ckpt *c, struct model_error *err)
{
	u32 i, j, n = 0;

	for (i = 0; i < c->nr_files; i++)
		n += c->files[i]->nr_tensors;
	c->tensors = calloc(n + 1, sizeof(*c->tensors));
	c->used = calloc(n + 1, sizeof(*c->used));
	c->copied = calloc(n + 1, sizeof(*c->copied));
	if (!c->tensors || !c->used || !c->copied)
		return model_fail_errno(err, -ENOMEM, c->dir, "tensors");
	for (i = 0; i < c->nr_files; i++)
		for (j = 0; j < c->files[i]->nr_tensors; j++)
			c->tensors[c->nr_tensors++] = &c->files[i]->tensors[j];
	ckpt_sort(c);
	for (i = 1; i < n; i++) {
		if (ckpt_cmp(&c->tensors[i - 1], &c->tensors[i]))
			continue;
		return model_fail(err, -EINVAL, "%s: tensor " MODEL_NAME_FMT
				  ": is also in %s: copy the model again",
				  c->tensors[i]->path, c->tensors[i]->name,
				  ckpt_base_name(c->tensors[i - 1]->path));
	}
	return 0;
}

static bool ckpt_has_file(const struct ckpt *c, const char *name)
{
	u32 i;

	for (i = 0; i < c->nr_files; i++)
		if (!strcmp(ckpt_base_name(c->files[i]->path), name))
			return true;
	return false;
}

/* Open every file of the map, once. */
static int ckpt_open_shards(struct ckpt *c, struct mj_file *f, json_t *map)
{
	const char *name, *file;
	json_t *v;

	json_object_foreach(map, name, v) {
		file = json_string_value(v);
		if (!file)
			return mj_fail(f, -EINVAL, name, "names no file: copy "
				       "the file again");
		if (!file[0] || strchr(file, '/') || file[0] == '.')
			return mj_fail(f, -EINVAL, name, "file name \"%.80s\" "
				       "leads out of the folder: copy the "
				       "file again", file);
		if (strlen(file) > NAME_MAX)
			return mj_fail(f, -EINVAL, name, "names a file with "
				       "more than %u bytes: copy the file "
				       "again", NAME_MAX);
		if (ckpt_has_file(c, file))
			continue;
		f->ret = ckpt_add_file(c, file, f->err);
		if (f->ret)
			return f->ret;
	}
	return 0;
}

/* Check that the index and the shards agree. */
static int ckpt_check_index(const struct ckpt *c, struct mj_file *f,
			    json_t *map)
{
	const char *name, *file;
	json_t *v;
	s64 at;
	u32 i;

	json_object_foreach(map, name, v) {
		at = ckpt_find(c, name);
		file = json_string_value(v);
		if (at < 0 || strcmp(ckpt_base_name(c->tensors[at]->path), file))
			return mj_fail(f, -EINVAL, name, "is not in %.80s: copy "
				       "the whole model again", file);
	}
	for (i = 0; i < c->nr_tensors; i++)
		if (!json_object_get(map, c->tensors[i]->name))
			return mj_fail(f, -EINVAL, c->tensors[i]->name,
				       "is in %.80s but not in the index: copy "
				       "the whole model again",
				       ckpt_base_name(c->tensors[i]->path));
	return 0;
}

static int ckpt_open_sharded(struct ckpt *c, struct model_error *err)
{
	struct mj_file f;
	json_t *map;
	int ret;

	ret = mj_open(&f, c->dir, CKPT_INDEX, JSON_DECODE_INT_AS_REAL, err);
	if (ret)
		goto out_close;
	map = json_object_get(f.root, "weight_map");
	if (!json_is_object(map) || !json_object_size(map)) {
		ret = mj_fail(&f, -EINVAL, "weight_map", "is missing or "
			      "empty: copy the file again");
		goto out_close;
	}
	ret = ckpt_open_shards(c, &f, map);
	if (ret)
		goto out_close;
	ret = ckpt_collect(c, err);
	if (ret)
		goto out_close;
	ret = ckpt_check_index(c, &f, map);
out_close:
	mj_close(&f);
	return ret;
}

/* Whether the folder has a file of that name; a dangling link counts. */
static bool ckpt_exists(const struct ckpt *c, const char *name)
{
	char *path;
	bool there;

	if (asprintf(&path, "%s/%s", c->dir, name) < 0)
		return false;
	there = !faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW);
	free(path);
	return there;
}

static int ckpt_open_files(struct ckpt *c, struct model_error *err)
{
	int ret;

	if (ckpt_exists(c, CKPT_SINGLE)) {
		ret = ckpt_add_file(c, CKPT_SINGLE, err);
		return ret ? ret : ckpt_collect(c, err);
	}
	if (ckpt_exists(c, CKPT_INDEX))
		return ckpt_open_sharded(c, err);
	if (ckpt_exists(c, CKPT_PICKLE) || ckpt_exists(c, CKPT_PICKLE_INDEX))
		return model_fail(err, -EOPNOTSUPP, "%s: " CKPT_PICKLE " is "
				  "not supported, it holds a program: save the "
				  "model as safetensors", c->dir);
	return model_fail(err, -ENOENT, "%s: neither " CKPT_SINGLE " nor "
			  CKPT_INDEX " is there: name a folder with "
			  "safetensors weights, or give --load-format dummy",
			  c->dir);
}

int ckpt_open(const char *dir, struct ckpt **out, struct model_error *err)
{
	struct ckpt *c;
	int ret;

	c = calloc(1, sizeof(*c));
	if (!c)
		return model_fail_errno(err, -ENOMEM, dir, "open");
	c->dir = strdup(dir);
	if (!c->dir)
		ret = model_fail_errno(err, -ENOMEM, dir, "open");
	else
		ret = ckpt_open_files(c, err);
	if (ret) {
		ckpt_close(c);
		return ret;
	}
	*out = c;
	return 0;
}

void ckpt_close(struct ckpt *c)
{
	u32 i;

	if (!c)
		return;
	for (i = 0; c->made && c->made[i].name; i++) {
		free(c->made[i].name);
		free(c->made[i].order);
	}
	free(c->made);
	free(c->sources);
	if (c->made_map)
		munmap(c->made_map, c->made_bytes);
	free(c->copied);
	for (i = 0; i < c->nr_gguf; i++)
		free(c->gguf_tensors[i].name);
	free(c->gguf_tensors);
	gguf_close(c->gguf);
	for (i = 0; i < c->nr_files; i++)
		st_close(c->files[i]);
	free(c->files);
	free(c->tensors);
	free(c->used);
	free(c->dir);
	free(c);
}

const struct st_tensor *ckpt_take(struct ckpt *c, const char *name)
{
	const s64 at = ckpt_find(c, name);

	if (at < 0)
		return NULL;
	c->used[at] = true;
	return c->tensors[at];
}

bool ckpt_has(const struct ckpt *c, const char *name)
{
	return ckpt_find(c, name) >= 0;
}

void ckpt_replace(struct ckpt *c, const struct st_tensor *part)
{
	c->tensors[ckpt_find(c, part->name)] = part;
}

/* Advise the kernel about the whole pages of mapped bytes. */
static void advise(const void *data, u64 bytes, int advice)
{
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	const uintptr_t from = ALIGN_UP((uintptr_t)data, page);
	const uintptr_t to = ((uintptr_t)data + bytes) & ~(page - 1);

	if (to > from)
		(void)!madvise((void *)from, to - from, advice);
}

void ckpt_drop_range(const void *data, u64 bytes)
{
	advise(data, bytes, MADV_DONTNEED);
}

/*
 * Advise about a tensor.  The content of a made-up one would be lost, so there is no
 * advice about it.  That of one which was made of others may be lost: only its copy is
 * used from then on.  It is only a hint: without it loading costs more time or memory.
 */
static void ckpt_advise(const struct ckpt *c, const struct st_tensor *t,
			int advice)
{
	const struct st_tensor *whole = t->whole ? t->whole : t;

	if (!ckpt_is_made(c, whole) || (whole->straight && c->made_map))
		advise(t->data, t->nr_bytes, advice);
}

void ckpt_drop(struct ckpt *c, const struct st_tensor *t)
{
	const s64 at = ckpt_find(c, t->name);

	if (at < 0)
		return;
	if (c->copied)
		c->copied[at] = true;
	/* @t may be a changed copy, with data that is not mapped. */
	ckpt_advise(c, c->tensors[at], MADV_DONTNEED);
}

void ckpt_give_back(const struct ckpt *c, const struct st_tensor *t)
{
	ckpt_advise(c, t, MADV_DONTNEED);
}

void ckpt_want(const struct ckpt *c, u32 i)
{
	if (i < c->nr_tensors)
		ckpt_advise(c, c->tensors[i], MADV_WILLNEED);
}

void ckpt_done(const struct ckpt *c, u32 i)
{
	if (c->copied && c->copied[i])
		ckpt_advise(c, c->tensors[i], MADV_DONTNEED);
}

void ckpt_done_source(const struct ckpt *c, u32 i)
{
	ckpt_advise(c, c->sources[i], MADV_DONTNEED);
}

const struct st_tensor *ckpt_unused(const struct ckpt *c)
{
	u32 i;

	for (i = 0; i < c->nr_tensors; i++)
		if (!c->used[i])
			return c->tensors[i];
	return NULL;
}
