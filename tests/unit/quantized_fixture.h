/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quantized_fixture.h - the cases of tests/data/quantized as folders
 *
 * tensors.txt of a case has a line for each tensor: name, type, rule, argument, shape.
 * The rules are those of make_quantized.py there.
 */
#ifndef TESTS_QUANTIZED_FIXTURE_H
#define TESTS_QUANTIZED_FIXTURE_H

#include "tests/unit/golden_fixture.h"

#define MAX_TENSORS	256u

/* One line, and the bytes that it makes. */
struct line {
	char	name[128];
	char	dtype[16];
	char	rule[16];
	long	arg;
	u64	shape[ST_MAX_DIMS];
	u32	nr_dims;
	u64	nr;		/* elements */
	u64	size;		/* bytes of an element */
	u8	*bytes;
};

static struct line lines[MAX_TENSORS];
static u32 nr_lines;

static inline u64 rule_mix(u64 x)
{
	x += 0x9e3779b97f4a7c15ull;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

static inline u64 rule_random(const struct line *l, u64 i)
{
	u64 h = 0xcbf29ce484222325ull;
	const char *c;

	for (c = l->name; *c; c++)
		h = (h ^ (u8)*c) * 0x100000001b3ull;
	return rule_mix(h + i);
}

static inline u64 type_size(const char *dtype)
{
	if (!strcmp(dtype, "I64"))
		return 8;
	if (!strcmp(dtype, "I32") || !strcmp(dtype, "F32"))
		return 4;
	return !strcmp(dtype, "BF16") || !strcmp(dtype, "F16") ? 2 : 1;
}

static inline void line_parse(struct line *l, char *text)
{
	char *at = NULL, *word;

	memset(l, 0, sizeof(*l));
	snprintf(l->name, sizeof(l->name), "%s", strtok_r(text, " \n", &at));
	snprintf(l->dtype, sizeof(l->dtype), "%s", strtok_r(NULL, " \n", &at));
	snprintf(l->rule, sizeof(l->rule), "%s", strtok_r(NULL, " \n", &at));
	l->arg = strtol(strtok_r(NULL, " \n", &at), NULL, 10);
	l->nr = 1;
	while ((word = strtok_r(NULL, " \n", &at))) {
		l->shape[l->nr_dims] = strtoull(word, NULL, 10);
		l->nr *= l->shape[l->nr_dims++];
	}
	l->size = type_size(l->dtype);
}

static inline float rule_float(const struct line *l, u64 i)
{
	const int k = (int)(rule_random(l, i) >> 57) - 64;

	if (!strcmp(l->rule, "norm"))
		return 1 + (float)(k >> 1) / 128;
	return ldexpf((float)(!strcmp(l->rule, "scale") ? (k & 63) | 64 : k),
		      (int)l->arg - 6);
}

/* A random group for each column, from the rank of a random number. */
static inline s32 rule_group(const struct line *l, u64 i)
{
	const u64 own = rule_random(l, i);
	s32 rank = 0;
	u64 j;

	for (j = 0; j < l->nr; j++)
		rank += rule_random(l, j) < own;
	return rank / (s32)l->arg;
}

static inline void put_float(FILE *f, const struct line *l, float v)
{
	tiny_put(f, !strcmp(l->dtype, "F32") ? TINY_F32 :
		 !strcmp(l->dtype, "F16") ? TINY_F16 : TINY_BF16, v);
}

static inline void line_put(FILE *f, const struct line *l, u64 i)
{
	const u32 word = (u32)l->arg;
	const s64 pair = i ? (s64)l->shape[0] : l->arg;
	s32 group;

	if (!strcmp(l->rule, "word")) {
		fwrite(&word, sizeof(word), 1, f);
	} else if (!strcmp(l->rule, "pair")) {
		fwrite(&pair, sizeof(pair), 1, f);
	} else if (!strcmp(l->rule, "groups")) {
		group = rule_group(l, i);
		fwrite(&group, sizeof(group), 1, f);
	} else if (!strcmp(l->rule, "byte")) {
		fputc((int)(l->arg + (rule_random(l, i) >> 57 & 3)), f);
	} else {
		put_float(f, l, rule_float(l, i));
	}
}

/* Make the bytes of a line. */
static inline void line_make(struct line *l)
{
	const bool near = !strcmp(l->rule, "near");
	const u64 nr = !strcmp(l->rule, "pair") ? 2 : l->nr;
	size_t size = 0;
	char *bytes = NULL;
	FILE *f = open_memstream(&bytes, &size);
	u64 i;
	u8 b;

	ck_assert_ptr_nonnull(f);
	if (near || !strcmp(l->rule, "bits")) {
		for (i = 0; i < nr * l->size; i++) {
			b = rule_random(l, i) >> 56;
			b = near ? (b & 0x33) + l->arg : b & l->arg;
			fwrite(&b, 1, 1, f);
		}
	} else {
		for (i = 0; i < nr; i++)
			line_put(f, l, i);
	}
	ck_assert_int_eq(fclose(f), 0);
	ck_assert_uint_eq(size, nr * l->size);
	l->bytes = (u8 *)bytes;
	if (!strcmp(l->rule, "pair")) {
		l->nr = l->shape[0] = 2;
		l->nr_dims = 1;
	}
}

static inline void lines_free(void)
{
	while (nr_lines)
		free(lines[--nr_lines].bytes);
}

/* Read a case: its golden numbers, and its tensors into @lines. */
static inline void quantized_read(const char *name)
{
	const char *top = getenv("KVMM_TOP");
	char path[384], text[512];
	json_t *o;
	FILE *f;

	snprintf(case_dir, sizeof(case_dir), "%s/tests/data/quantized/%s",
		 top ? top : ".", name);
	snprintf(path, sizeof(path), "%s/golden.json", case_dir);
	o = json_load_file(path, 0, NULL);
	ck_assert_msg(o != NULL, "%s", path);
	read_list(o, "prompt", golden.tokens, NR_PROMPT);
	read_list(o, "tokens", golden.tokens + NR_PROMPT, NR_NEW);
	read_list(o, "keep", golden.keep, NR_KEEP);
	json_decref(o);
	snprintf(path, sizeof(path), "%s/golden.f32", case_dir);
	f = fopen(path, "r");
	ck_assert_ptr_nonnull(f);
	ck_assert_uint_eq(fread(golden.f32, sizeof(golden.f32), 1, f), 1);
	fclose(f);
	snprintf(path, sizeof(path), "%s/tensors.txt", case_dir);
	f = fopen(path, "r");
	ck_assert_ptr_nonnull(f);
	lines_free();
	while (fgets(text, sizeof(text), f)) {
		ck_assert_uint_lt(nr_lines, MAX_TENSORS);
		line_parse(&lines[nr_lines], text);
		line_make(&lines[nr_lines++]);
	}
	fclose(f);
}

static inline struct line *line_find(const char *name)
{
	u32 i;

	for (i = 0; i < nr_lines; i++)
		if (!strcmp(lines[i].name, name))
			return &lines[i];
	ck_abort_msg("no tensor %s", name);
}

/* Write the tensors to model.safetensors; those without bytes are left out. */
static inline void quantized_write(void)
{
	static char head[65536];
	char shape[64];
	u64 at = 0, n = 0;
	FILE *f;
	u32 i;

	for (i = 0; i < nr_lines; i++) {
		const struct line *l = &lines[i];

		if (!l->bytes)
			continue;
		n += snprintf(head + n, sizeof(head) - n, "%c\"%s\":{\"dtype\":\"%s\",\"shape\":%s,"
			     "\"data_offsets\":[%llu,%llu]}", n ? ',' : '{',
			     l->name, l->dtype,
			     st_shape_str(l->shape, l->nr_dims, shape,
					  sizeof(shape)), (unsigned long long)at,
			     (unsigned long long)(at + l->nr * l->size));
		at += l->nr * l->size;
		ck_assert_uint_lt(n, sizeof(head) - 512);
	}
	head[n++] = '}';
	while (n % 8)
		head[n++] = ' ';
	f = dir_open("model.safetensors", "w");
	fwrite(&n, sizeof(n), 1, f);
	fwrite(head, 1, n, f);
	for (i = 0; i < nr_lines; i++)
		if (lines[i].bytes)
			fwrite(lines[i].bytes, lines[i].size, lines[i].nr, f);
	ck_assert_int_eq(fclose(f), 0);
}

#endif /* TESTS_QUANTIZED_FIXTURE_H */
