/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adapter_fixture.h - adapters of made-up numbers, written to the test's folder
 *
 * An adapter is a list of tensors.  A number follows from the name of its tensor and its
 * place, so a test knows all of them without the file.
 */
#ifndef TESTS_ADAPTER_FIXTURE_H
#define TESTS_ADAPTER_FIXTURE_H

#include <math.h>

#include "runtime/model/adapter.h"
#include "runtime/model/safetensors.h"
#include "tests/unit/golden_fixture.h"

#define PEFT		"base_model.model."
#define MAX_LORA	128u

/**
 * struct lora - a tensor of an adapter
 * @name:  all of it
 * @type:  in the file
 * @rows:  0: a scalar
 * @cols:  0: a vector
 * @odd:   number of an element that is @value, UINT32_MAX: none
 * @value: see @odd
 */
struct lora {
	char		name[200];
	enum tiny_type	type;
	u32		rows;
	u32		cols;
	u32		odd;
	float		value;
};

static struct lora loras[MAX_LORA];
static u32 nr_loras;
static struct model *model;
static struct adapter *adapter;
static struct model_error failure;

/* A number between -1 and 1; bf16 does not hold it exactly, f16 neither. */
static inline float lora_number(const char *name, u32 i)
{
	u32 h = 2166136261u;

	for (; *name; name++)
		h = (h ^ (u8)*name) * 16777619u;
	h = (h ^ i) * 2654435761u;
	h = (h ^ h >> 15) * 2246822519u;
	h ^= h >> 13;
	return ((s32)(h >> 8) - (1 << 23)) * 0x1p-23f;
}

/* @v with @bits bits behind the leading one, ties to even. */
static inline float keep_bits(float v, int bits)
{
	int exp;

	if (v == 0)
		return v;
	frexp(v, &exp);
	return (float)ldexp(rint(ldexp(v, bits + 1 - exp)), exp - bits - 1);
}

/* The number that the file has: f16 begins to lose bits at 2^-14. */
static inline float lora_stored(const struct lora *l, u32 i)
{
	const float v = i == l->odd ? l->value : lora_number(l->name, i);

	if (l->type == TINY_F32 || !isfinite(v))
		return v;
	if (l->type == TINY_BF16)
		return keep_bits(v, 7);
	return fabsf(v) < 0x1p-14f ? (float)(rint(v * 0x1p24) * 0x1p-24) : keep_bits(v, 10);
}

/* The number that the model computes with. */
static inline float lora_used(const struct lora *l, u32 i)
{
	const float v = lora_stored(l, i);

	return model_info(model)->dtype == MODEL_BF16 ? keep_bits(v, 7) : v;
}

static inline struct lora *lora_add(const char *name, enum tiny_type type, u32 rows, u32 cols)
{
	struct lora *l = &loras[nr_loras++];

	ck_assert_uint_le(nr_loras, MAX_LORA);
	*l = (struct lora){ .type = type, .rows = rows, .cols = cols, .odd = UINT32_MAX };
	snprintf(l->name, sizeof(l->name), "%s", name);
	return l;
}

/* A pair of module @name, which has no prefix of PEFT. */
static inline void lora_pair(const char *name, enum tiny_type type, u32 rows, u32 cols, u32 rank)
{
	char full[200];

	snprintf(full, sizeof(full), PEFT "%s.lora_A.weight", name);
	lora_add(full, type, rank, cols);
	snprintf(full, sizeof(full), PEFT "%s.lora_B.weight", name);
	lora_add(full, type, rows, rank);
}

static inline const struct lora *lora_find(const char *module, char which)
{
	char full[200];
	u32 i;

	snprintf(full, sizeof(full), PEFT "%s.lora_%c.weight", module, which);
	for (i = 0; i < nr_loras; i++)
		if (!strcmp(loras[i].name, full))
			return &loras[i];
	ck_abort_msg("%s", full);
	return NULL;
}

static inline u32 lora_elems(const struct lora *l)
{
	return (l->rows ? l->rows : 1) * (l->cols ? l->cols : 1);
}

static inline void lora_put(FILE *f, const struct lora *l, u32 i)
{
	const float v = lora_stored(l, i);
	u16 half;

	if (l->type != TINY_F16 || isfinite(v)) {
		tiny_put(f, l->type, v);
		return;
	}
	half = isnan(v) ? 0x7e00 : 0x7c00;
	fwrite(&half, 2, 1, f);
}

/* Write adapter_model.safetensors. */
static inline void lora_write(void)
{
	static const char * const types[] = { "F32", "BF16", "F16" };
	static char head[MAX_LORA * 320];
	u64 at = 0, n = 0, end;
	FILE *f = dir_open("adapter_model.safetensors", "w");
	u32 i, j;

	for (i = 0; i < nr_loras; i++, at = end) {
		const struct lora *l = &loras[i];

		end = at + lora_elems(l) * (l->type == TINY_F32 ? 4ull : 2ull);
		n += sprintf(head + n, "%c\"%s\":{\"dtype\":\"%s\",\"shape\":", i ? ',' : '{',
			     l->name, types[l->type]);
		n += l->cols ? sprintf(head + n, "[%u,%u]", l->rows, l->cols) :
		     l->rows ? sprintf(head + n, "[%u]", l->rows) : sprintf(head + n, "[]");
		n += sprintf(head + n, ",\"data_offsets\":[%llu,%llu]}",
			     (unsigned long long)at, (unsigned long long)end);
	}
	n += sprintf(head + n, nr_loras ? "}" : "{}");
	fwrite(&n, sizeof(n), 1, f);
	fwrite(head, 1, n, f);
	for (i = 0; i < nr_loras; i++)
		for (j = 0; j < lora_elems(&loras[i]); j++)
			lora_put(f, &loras[i], j);
	ck_assert_int_eq(fclose(f), 0);
}

/* Write adapter_config.json with one key changed; @key NULL: none, @value NULL: without it. */
static inline void lora_config(u32 rank, const char *key, const char *value)
{
	char path[200];
	json_t *o = json_pack("{ss ss si si sf ss sb sb s[ss] sn s{} s{} sn ss sb}",
			      "peft_type", "LORA", "task_type", "CAUSAL_LM", "r", (int)rank,
			      "lora_alpha", 16, "lora_dropout", 0.05, "bias", "none",
			      "fan_in_fan_out", 0, "use_dora", 0, "target_modules", "q_proj",
			      "v_proj", "modules_to_save", "rank_pattern", "alpha_pattern",
			      "layers_to_transform", "base_model_name_or_path", "a/b",
			      "inference_mode", 1);

	ck_assert_ptr_nonnull(o);
	if (value)
		ck_assert_int_eq(json_object_set_new(o, key, json_loads(value, JSON_DECODE_ANY,
									NULL)), 0);
	else if (key)
		json_object_del(o, key);
	snprintf(path, sizeof(path), "%s/adapter_config.json", fixture_dir);
	ck_assert_int_eq(json_dump_file(o, path, 0), 0);
	json_decref(o);
}

static inline void open_model(const char *name, enum model_dtype dtype)
{
	const struct model_opts o = {
		.dtype = dtype, .mode = MODEL_EXACT, .judge = true, .dummy = true,
	};

	golden_read(name);
	ck_assert_msg(!model_load(case_dir, &o, &model, &failure), "%s", failure.text);
}

static inline int load_most(u32 max_rank)
{
	memset(&failure, 0, sizeof(failure));
	return adapter_load(model, fixture_dir, max_rank, &adapter, &failure);
}

static inline int load(void)
{
	return load_most(64);
}

/* A refusal: one line that names the folder and has @words. */
static inline void assert_refused(int ret, int want, const char *words)
{
	ck_assert_msg(ret == want, "%d, %s: %s", ret, words, failure.text);
	ck_assert_msg(strstr(failure.text, words) != NULL, "%s: %s", words, failure.text);
	ck_assert_ptr_nonnull(strstr(failure.text, fixture_dir));
	ck_assert_ptr_null(strchr(failure.text, '\n'));
	ck_assert_ptr_null(adapter);
}

/* An adapter in memory. */
struct laid {
	u64			block;
	u32			nr;
	void			**blocks;
	struct adapter_place	place;
};

static inline struct laid lay(u64 block)
{
	struct laid l = { .block = block, .nr = adapter_blocks(adapter, block) };
	u32 i;

	l.blocks = calloc(l.nr, sizeof(*l.blocks));
	l.place.pair = malloc(adapter_pairs(model) * sizeof(*l.place.pair));
	memset(l.place.pair, 0xff, adapter_pairs(model) * sizeof(*l.place.pair));
	for (i = 0; i < l.nr; i++) {
		l.blocks[i] = aligned_alloc(64, block);
		memset(l.blocks[i], 0xff, block);
		ck_assert_int_eq(adapter_write(adapter, block, i, l.blocks[i]), 0);
	}
	adapter_locate(adapter, block, l.blocks, &l.place);
	return l;
}

static inline void lift(struct laid *l)
{
	while (l->nr)
		free(l->blocks[--l->nr]);
	free(l->blocks);
	free(l->place.pair);
}

static inline float laid_number(const void *m, u64 i)
{
	u32 w;
	float f;

	if (model_info(model)->dtype != MODEL_BF16)
		return ((const float *)m)[i];
	w = (u32)((const u16 *)m)[i] << 16;
	memcpy(&f, &w, sizeof(f));
	return f;
}

/* Two pairs of a Llama. */
#define Q(n)	"model.layers." #n ".self_attn.q_proj"

static inline void write_q(u32 rank0, u32 rank1)
{
	nr_loras = 0;
	lora_pair(Q(0), TINY_F32, 64, 64, rank0);
	lora_pair(Q(1), TINY_F32, 64, 64, rank1);
	lora_write();
}

#endif /* TESTS_ADAPTER_FIXTURE_H */
