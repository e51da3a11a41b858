// SPDX-License-Identifier: Apache-2.0
/*
 * gguf.c - a model in one GGUF file, or in several parts
 *
 * The first part has the metadata.  All parts say how many there are (split.count),
 * their own number from 0 on (split.no), and the tensors of all of them together
 * (split.tensors.count).  Their names end in -00001-of-00003.gguf, counted from 1.
 * Metadata that a later part repeats must be the same.  Otherwise a part belongs to
 * another model.
 */
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/lib/folder.h"
#include "runtime/lib/gguf_part.h"

#define KEY_NO		"split.no"
#define KEY_COUNT	"split.count"
#define KEY_TENSORS	"split.tensors.count"

/* Bytes of "-00001-of-00003.gguf" */
#define TAIL_LEN	20u

/**
 * struct gguf - a model's files
 * @parts:	the files; the first one has the metadata
 * @nr_parts:	how many
 * @tensors:	those of all files, sorted by name
 * @nr_tensors:	how many
 */
struct gguf {
	struct gguf_part		*parts;
	u32				nr_parts;
	const struct gguf_tensor	**tensors;
	u32				nr_tensors;
};

/*
 * Make a message one line: control characters become '?', and so do all bytes behind
 * the path that are not ASCII, since a key may be cut inside of a character.
 */
static void clean_line(char *s)
{
	const char *behind = strstr(s, ": ");

	for (; *s; s++)
		if ((u8)*s < 0x20 || *s == 0x7f ||
		    ((u8)*s >= 0x80 && behind && s > behind))
			*s = '?';
}

int gguf_fail(const struct gguf_err *err, int code, const char *fmt, ...)
{
	va_list ap;

	if (!err->size)
		return code;
	va_start(ap, fmt);
	vsnprintf(err->text, err->size, fmt, ap);
	va_end(ap);
	clean_line(err->text);
	return code;
}

static int no_memory(const struct gguf_err *err, const char *path)
{
	return gguf_fail(err, -ENOMEM, "%s: no memory: stop other programs",
			 path);
}

bool gguf_is_file(const char *path)
{
	const size_t len = strlen(path);
	struct stat st;
	char magic[4];
	bool is;
	u64 size;
	int fd;

	if (!stat(path, &st) && S_ISDIR(st.st_mode))
		return false;
	if (len >= 5 && !strcasecmp(path + len - 5, ".gguf"))
		return true;
	fd = folder_open(path, &size);
	if (fd < 0)
		return false;
	is = pread(fd, magic, 4, 0) == 4 && !memcmp(magic, "GGUF", 4);
	close(fd);
	return is;
}

const struct gguf_part *gguf_first(const struct gguf *g)
{
	return &g->parts[0];
}

/* ---- parts ---- */

/* Length of the name before "-00001-of-00003.gguf" of @count parts; 0: no such name. */
static size_t split_stem(const char *path, u64 no, u64 count)
{
	const size_t len = strlen(path);
	char tail[64];

	snprintf(tail, sizeof(tail), "-%05llu-of-%05llu.gguf",
		 (unsigned long long)no + 1, (unsigned long long)count);
	if (len <= TAIL_LEN || strcmp(path + len - TAIL_LEN, tail))
		return 0;
	return len - TAIL_LEN;
}

static bool part_u64(const struct gguf_part *part, const char *key, u64 *out)
{
	const struct gguf_value *v = gguf_part_find(part, key);

	return v && gguf_scalar_u64(v->kind, v->at, out);
}

/* Does a key differ between the parts of a model? */
static bool is_own_key(const char *key)
{
	return !strcmp(key, KEY_NO) || !strcmp(key, "general.alignment");
}

/* Check metadata that a later part repeats. */
static int part_check_values(const struct gguf_part *part,
			     const struct gguf_part *first,
			     const struct gguf_err *err)
{
	const struct gguf_value *v, *w;
	u32 i;

	for (i = 0; i < part->nr_values; i++) {
		v = &part->values[i];
		if (is_own_key(v->key))
			continue;
		w = gguf_part_find(first, v->key);
		if (!w || w->kind != v->kind || w->items != v->items ||
		    w->nr_bytes != v->nr_bytes ||
		    memcmp(w->at, v->at, v->nr_bytes))
			return gguf_fail(err, -EINVAL, "%s: " GGUF_NAME_FMT
					 ": the first part says something "
					 "else: copy all parts again",
					 part->path, v->key);
	}
	return 0;
}

/* Check that @part is part @no of @count. */
static int part_check(const struct gguf_part *part, u64 no, u64 count,
		      const struct gguf_err *err)
{
	u64 is_no = 0, is_count = 0;

	if (!part_u64(part, KEY_COUNT, &is_count) || is_count != count)
		return gguf_fail(err, -EINVAL, "%s: " KEY_COUNT ": is not "
				 "%llu: copy all parts again", part->path,
				 (unsigned long long)count);
	if (!part_u64(part, KEY_NO, &is_no) || is_no != no)
		return gguf_fail(err, -EINVAL, "%s: " KEY_NO ": is not %llu: "
				 "copy all parts again", part->path,
				 (unsigned long long)no);
	return 0;
}

/* Open part @no of @count beside the part that was named. */
static int split_open_part(struct gguf *g, const char *path, size_t stem,
			   u64 no, u64 count, const struct gguf_err *err)
{
	struct gguf_part *part = &g->parts[no];
	int ret;

	if (asprintf(&part->path, "%.*s-%05llu-of-%05llu.gguf", (int)stem,
		     path, (unsigned long long)no + 1,
		     (unsigned long long)count) < 0) {
		part->path = NULL;
		return no_memory(err, path);
	}
	g->nr_parts++;
	ret = gguf_part_open(part, err);
	if (!ret)
		ret = part_check(part, no, count, err);
	if (!ret && no)
		ret = part_check_values(part, &g->parts[0], err);
	return ret;
}

/* Open all parts of the model whose part @named has been read. */
static int split_open(struct gguf *g, struct gguf_part *named, u64 count,
		      const struct gguf_err *err)
{
	u64 no = UINT64_MAX, total = 0, nr = 0;
	size_t stem;
	int ret = 0;

	if (!part_u64(named, KEY_NO, &no) || no >= count ||
	    !part_u64(named, KEY_TENSORS, &total))
		return gguf_fail(err, -EINVAL, "%s: " KEY_NO " or " KEY_TENSORS
				 " is missing, or makes no sense beside "
				 KEY_COUNT ": copy all parts again",
				 named->path);
	stem = split_stem(named->path, no, count);
	if (!stem)
		return gguf_fail(err, -EINVAL, "%s: part %llu of %llu has "
				 "another name: call it NAME-%05llu-of-"
				 "%05llu.gguf", named->path,
				 (unsigned long long)no + 1,
				 (unsigned long long)count,
				 (unsigned long long)no + 1,
				 (unsigned long long)count);
	g->parts = calloc(count, sizeof(*g->parts));
	if (!g->parts)
		return no_memory(err, named->path);
	for (no = 0; !ret && no < count; no++) {
		ret = split_open_part(g, named->path, stem, no, count, err);
		nr += g->parts[no].nr_tensors;
	}
	if (!ret && nr != total)
		ret = gguf_fail(err, -EINVAL, "%s: " KEY_TENSORS ": says %llu, "
				"the parts have %llu: copy all parts again",
				named->path, (unsigned long long)total,
				(unsigned long long)nr);
	return ret;
}

/* ---- tensors ---- */

static int tensor_cmp_name(const void *pa, const void *pb)
{
	const struct gguf_tensor * const *a = pa, * const *b = pb;

	return strcmp((*a)->name, (*b)->name);
}

static int gguf_collect(struct gguf *g, const struct gguf_err *err)
{
	u64 nr = 0;
	u32 i, j;

	for (i = 0; i < g->nr_parts; i++)
		nr += g->parts[i].nr_tensors;
	g->tensors = nr < UINT32_MAX ? calloc(nr + 1, sizeof(*g->tensors)) :
				       NULL;
	if (!g->tensors)
		return no_memory(err, g->parts[0].path);
	for (i = 0; i < g->nr_parts; i++)
		for (j = 0; j < g->parts[i].nr_tensors; j++)
			g->tensors[g->nr_tensors++] = &g->parts[i].tensors[j];
	qsort(g->tensors, g->nr_tensors, sizeof(*g->tensors), tensor_cmp_name);
	for (i = 1; i < g->nr_tensors; i++)
		if (!tensor_cmp_name(&g->tensors[i - 1], &g->tensors[i]))
			return gguf_fail(err, -EINVAL, "%s: tensor "
					 GGUF_NAME_FMT ": is there twice: "
					 GGUF_AGAIN, g->tensors[i]->path,
					 g->tensors[i]->name);
	return 0;
}

/* Take the file as the only part. */
static int gguf_take_one(struct gguf *g, struct gguf_part *one,
			 const struct gguf_err *err)
{
	g->parts = calloc(1, sizeof(*g->parts));
	if (!g->parts)
		return no_memory(err, one->path);
	g->parts[0] = *one;
	g->nr_parts = 1;
	memset(one, 0, sizeof(*one));
	return 0;
}

static int gguf_open_parts(struct gguf *g, const char *path,
			   const struct gguf_err *err)
{
	struct gguf_part named = { .path = strdup(path) };
	u64 count = 1;
	int ret;

	if (!named.path)
		return no_memory(err, path);
	ret = gguf_part_open(&named, err);
	if (!ret && gguf_part_find(&named, KEY_COUNT) &&
	    (!part_u64(&named, KEY_COUNT, &count) || count > UINT16_MAX))
		ret = gguf_fail(err, -EINVAL, "%s: " KEY_COUNT ": is no number "
				"of parts: " GGUF_AGAIN, path);
	if (!ret)
		ret = count > 1 ? split_open(g, &named, count, err) :
				  gguf_take_one(g, &named, err);
	gguf_part_close(&named);
	return ret;
}

int gguf_open(const char *path, struct gguf **out, char *err, size_t size)
{
	const struct gguf_err e = { .text = err, .size = size };
	struct gguf *g = calloc(1, sizeof(*g));
	int ret;

	if (!g)
		return no_memory(&e, path);
	ret = gguf_open_parts(g, path, &e);
	if (!ret)
		ret = gguf_collect(g, &e);
	if (ret) {
		gguf_close(g);
		return ret;
	}
	*out = g;
	return 0;
}

void gguf_close(struct gguf *g)
{
	u32 i;

	if (!g)
		return;
	for (i = 0; i < g->nr_parts; i++)
		gguf_part_close(&g->parts[i]);
	free(g->parts);
	free(g->tensors);
	free(g);
}

const char *gguf_path(const struct gguf *g)
{
	return g->parts[0].path;
}

u32 gguf_nr_files(const struct gguf *g)
{
	return g->nr_parts;
}

u32 gguf_nr_tensors(const struct gguf *g)
{
	return g->nr_tensors;
}

const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, u32 i)
{
	return g->tensors[i];
}
