/* SPDX-License-Identifier: Apache-2.0 */
/*
 * golden_fixture.h - the cases of tests/data/families, for tests of the model
 *
 * Tiny configurations, one for each family and position encoding, with made-up
 * weights; the results of another implementation (see make_families.py there);
 * and functions that write such weights to files.
 */
#ifndef TESTS_GOLDEN_FIXTURE_H
#define TESTS_GOLDEN_FIXTURE_H

#include <jansson.h>
#include <math.h>

#include "kernels/kernels.h"
#include "runtime/model/dummy.h"
#include "tests/unit/model_fixture.h"

#define NR_PROMPT	24u
#define NR_NEW		128u
#define NR_ALL		(NR_PROMPT + NR_NEW - 1)
#define NR_KEEP		8u
#define VOCAB		256u

static const char * const cases[] = {
	"llama", "llama-head24", "llama-linear", "llama-dynamic",
	"llama-llama3", "llama-head40", "mistral-head120", "llama-yarn",
	"mistral", "qwen2", "qwen2-window", "qwen3", "qwen3-moe",
	"phi3",
	"deepseek2", "deepseek2-yarn", "deepseek2-moe", "deepseek2-groups-moe",
	"gemma2", "gemma3", "gpt2", "opt", "neox", "neox-sequential",
	"gpt-oss", "qwen3-moe-all", "granite", "granite-rope", "bamba",
	"granite3", "olmo2", "smollm3", "smollm3-window", "cohere",
	"cohere-qk-norm", "cohere2", "gemma1", "phi", "phi-qk-norm",
	"starcoder2", "starcoder2-plain", "stablelm", "stablelm-qk-norm",
	"mistral-one-dynamic", "phi3-long", "phi3-short", "opt-behind", "opt-plain", "gpt2-layers",
	"qwen2-moe", "mixtral", "olmoe",
};

/*
 * Does every logit follow a small change of KV?  Where tokens choose experts, one
 * that is nearly indifferent chooses another, and its logits jump.
 */
static inline bool case_is_smooth(const char *name)
{
	const char *slash = strrchr(name, '/');

	name = slash ? slash : name;
	return !strstr(name, "moe") && !strstr(name, "gpt-oss") &&
	       !strstr(name, "mixtral");
}

/* The content of a case's file. */
struct golden {
	u32	tokens[NR_PROMPT + NR_NEW];
	u32	keep[NR_KEEP];
	float	f32[NR_KEEP][VOCAB];
	float	half[NR_KEEP][VOCAB];	/* weights of half the size, in f32 */
	float	bf16[NR_KEEP][VOCAB];	/* the same weights, in bf16 */
};

static struct golden golden;
static char case_dir[256];

static inline void read_list(const json_t *o, const char *key, u32 *out, u32 nr)
{
	json_t *list = json_object_get(o, key);
	u32 i;

	ck_assert_uint_eq(json_array_size(list), nr);
	for (i = 0; i < nr; i++)
		out[i] = json_integer_value(json_array_get(list, i));
}

static inline void golden_read(const char *name)
{
	const char *top = getenv("KVMM_TOP");
	char path[320];
	json_t *o;
	FILE *f;

	snprintf(case_dir, sizeof(case_dir), "%s/tests/data/families/%s",
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
	ck_assert_msg(f != NULL, "%s", path);
	ck_assert_uint_eq(fread(golden.f32, sizeof(golden.f32), 1, f), 1);
	ck_assert_uint_eq(fread(golden.half, sizeof(golden.half), 1, f), 1);
	ck_assert_uint_eq(fread(golden.bf16, sizeof(golden.bf16), 1, f), 1);
	fclose(f);
}

/* Write the configuration of the case to the test's folder, with @key changed. */
static inline void config_write(const char *key, json_t *value)
{
	char path[320];
	json_t *o;

	snprintf(path, sizeof(path), "%s/config.json", case_dir);
	o = json_load_file(path, 0, NULL);
	ck_assert_ptr_nonnull(o);
	if (key)
		json_object_set_new(o, key, value);
	snprintf(path, sizeof(path), "%s/config.json", fixture_dir);
	ck_assert_int_eq(json_dump_file(o, path, 0), 0);
	json_decref(o);
}

/* Change another key in the test's folder. */
static inline void config_add(const char *key, json_t *value)
{
	char path[320];
	json_t *o;

	snprintf(path, sizeof(path), "%s/config.json", fixture_dir);
	o = json_load_file(path, 0, NULL);
	ck_assert_ptr_nonnull(o);
	json_object_set_new(o, key, value);
	ck_assert_int_eq(json_dump_file(o, path, 0), 0);
	json_decref(o);
}

static inline void config_write_half(void)
{
	const char *key = strstr(case_dir, "/opt") ? "init_std" :
						     "initializer_range";
	char path[320];
	double range;
	json_t *o;

	snprintf(path, sizeof(path), "%s/config.json", case_dir);
	o = json_load_file(path, 0, NULL);
	ck_assert_ptr_nonnull(o);
	range = json_real_value(json_object_get(o, key));
	json_decref(o);
	config_write(key, json_real(range / 2));
}

/*
 * The kernels that run case @nr: each one of this machine.  Sanitized code takes several
 * times as long and computes the same.  There it is one of them, and the next case has the
 * next one; check_kernels* runs all of them sanitized.
 */
static inline const struct kern_ops *kern_of_case(u32 nr, u32 i)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	u32 all = 0;

	while (kern_at(all))
		all++;
	return i ? NULL : kern_at(nr % all);
#else
	(void)nr;
	return kern_at(i);
#endif
}

/* Run all tokens as chunks of @chunk; returns the logits of every row. */
static inline float *run_chunks(struct model *model, u32 chunk)
{
	float *logits = calloc(NR_ALL, VOCAB * sizeof(*logits));
	struct model_seq_in in = { 0 };
	struct pool pool;
	u32 at, n;

	pool_create(&pool, model_info(model), 12, 16, chunk % 2, chunk);
	pool_tables(&pool, NR_ALL, &in);
	for (at = 0; at < NR_ALL; at += n) {
		n = min(chunk, NR_ALL - at);
		in.tokens = golden.tokens + at;
		in.nr_tokens = in.want_logits = n;
		in.start = at;
		ck_assert_int_eq(model_forward(model, &pool.kv, &in, 1,
					       logits + at * VOCAB), 0);
	}
	pool_destroy(&pool);
	return logits;
}

static inline void assert_near(const char *what, const float *logits,
			const float (*want)[VOCAB], double most)
{
	double diff, size, off;
	u32 i, j;

	for (i = 0; i < NR_KEEP; i++) {
		diff = size = 0;
		for (j = 0; j < VOCAB; j++) {
			off = fabs(logits[golden.keep[i] * VOCAB + j] -
				   want[i][j]);
			diff = off <= diff ? diff : off;
			size = fmax(size, fabs(want[i][j]));
		}
		if (!(diff / size < most))
			ck_abort_msg("%s, %s: logits of position %u are off by %g",
				     case_dir, what, golden.keep[i],
				     diff / size);
	}
}

static inline void put(FILE *f, enum tiny_type type, const struct st_tensor *t)
{
	const float *v = t->data;
	u64 i;

	for (i = 0; i < t->nr_elems; i++)
		tiny_put(f, type, v[i]);
}

/* Write every @nr-th tensor of a checkpoint in f32, from @first on, to a file. */
static inline void shard_write(const struct ckpt *c, u32 first, u32 nr,
			enum tiny_type type, const char *file)
{
	static const char * const dtype[] = { "F32", "BF16", "F16" };
	const u32 size = type == TINY_F32 ? 4 : 2;
	static char head[65536];
	char shape[64];
	u64 at = 0, n = 0, end;
	FILE *f;
	u32 i;

	for (i = first; i < c->nr_tensors; i += nr, at = end) {
		end = at + c->tensors[i]->nr_elems * size;
		n += sprintf(head + n, "%c\"%s\":{\"dtype\":\"%s\",\"shape\":"
			     "%s,\"data_offsets\":[%llu,%llu]}", at ? ',' : '{',
			     c->tensors[i]->name, dtype[type],
			     st_shape_str(c->tensors[i]->shape,
					  c->tensors[i]->nr_dims, shape,
					  sizeof(shape)),
			     (unsigned long long)at, (unsigned long long)end);
		ck_assert_uint_lt(n, sizeof(head) - 512);
	}
	n += sprintf(head + n, "}");
	while (n % 8)
		head[n++] = ' ';
	f = dir_open(file, "w");
	fwrite(&n, sizeof(n), 1, f);
	fwrite(head, 1, n, f);
	for (i = first; i < c->nr_tensors; i += nr)
		put(f, type, c->tensors[i]);
	ck_assert_int_eq(fclose(f), 0);
}

static inline void shards_write(const struct ckpt *c, u32 nr, enum tiny_type type)
{
	char name[40];
	FILE *f;
	u32 i;

	if (nr == 1) {
		shard_write(c, 0, 1, type, "model.safetensors");
		return;
	}
	f = dir_open("model.safetensors.index.json", "w");
	fprintf(f, "{\"metadata\":{},\"weight_map\":");
	for (i = 0; i < c->nr_tensors; i++)
		fprintf(f, "%c\"%s\":\"model-%u.safetensors\"",
			i ? ',' : '{', c->tensors[i]->name, i % nr);
	fprintf(f, "}}");
	ck_assert_int_eq(fclose(f), 0);
	for (i = 0; i < nr; i++) {
		snprintf(name, sizeof(name), "model-%u.safetensors", i);
		shard_write(c, i, nr, type, name);
	}
}

#endif /* TESTS_GOLDEN_FIXTURE_H */
