// SPDX-License-Identifier: Apache-2.0
/*
 * check_model_adapter.c - adapters in PEFT's format
 *
 * Adapters with made-up numbers for models of several families: every number of a block is
 * computed anew from the name of its tensor.  Files that are cut or
 * changed.
 */
#include <check.h>
#include <errno.h>
#include <unistd.h>

#include "tests/unit/adapter_fixture.h"
#include "tests/unit/gguf_fixture.h"

/* ---- numbers ---- */

/* A part of a module, which is a site of its own. */
struct part {
	const char		*model;
	const char		*module;
	u32			rows;
	u32			cols;
	enum adapter_site	site;
	u32			first;
	u32			nr;
};

/* All modules of layer 1.  The first ones of a model have all rows of a module. */
static const struct part parts[] = {
	{ "llama", "model.layers.1.self_attn.q_proj", 64, 64, ADAPTER_Q, 0, 64 },
	{ "llama", "model.layers.1.self_attn.k_proj", 32, 64, ADAPTER_K, 0, 32 },
	{ "llama", "model.layers.1.self_attn.v_proj", 32, 64, ADAPTER_V, 0, 32 },
	{ "llama", "model.layers.1.self_attn.o_proj", 64, 64, ADAPTER_O, 0, 64 },
	{ "llama", "model.layers.1.mlp.gate_proj", 96, 64, ADAPTER_GATE, 0, 96 },
	{ "llama", "model.layers.1.mlp.up_proj", 96, 64, ADAPTER_UP, 0, 96 },
	{ "llama", "model.layers.1.mlp.down_proj", 64, 96, ADAPTER_DOWN, 0, 64 },
	{ "phi3", "model.layers.1.self_attn.qkv_proj", 128, 64, ADAPTER_Q, 0, 64 },
	{ "phi3", "model.layers.1.self_attn.qkv_proj", 128, 64, ADAPTER_K, 64, 32 },
	{ "phi3", "model.layers.1.self_attn.qkv_proj", 128, 64, ADAPTER_V, 96, 32 },
	{ "phi3", "model.layers.1.self_attn.o_proj", 64, 64, ADAPTER_O, 0, 64 },
	{ "phi3", "model.layers.1.mlp.gate_up_proj", 192, 64, ADAPTER_GATE, 0, 96 },
	{ "phi3", "model.layers.1.mlp.gate_up_proj", 192, 64, ADAPTER_UP, 96, 96 },
	{ "phi3", "model.layers.1.mlp.down_proj", 64, 96, ADAPTER_DOWN, 0, 64 },
	{ "gpt2", "transformer.h.1.attn.c_attn", 192, 64, ADAPTER_Q, 0, 64 },
	{ "gpt2", "transformer.h.1.attn.c_attn", 192, 64, ADAPTER_K, 64, 64 },
	{ "gpt2", "transformer.h.1.attn.c_attn", 192, 64, ADAPTER_V, 128, 64 },
	{ "gpt2", "transformer.h.1.attn.c_proj", 64, 64, ADAPTER_O, 0, 64 },
	{ "gpt2", "transformer.h.1.mlp.c_fc", 256, 64, ADAPTER_UP, 0, 256 },
	{ "gpt2", "transformer.h.1.mlp.c_proj", 64, 256, ADAPTER_DOWN, 0, 64 },
	{ "neox", "gpt_neox.layers.1.attention.query_key_value", 192, 64, ADAPTER_QKV, 0, 192 },
	{ "neox", "gpt_neox.layers.1.attention.dense", 64, 64, ADAPTER_O, 0, 64 },
	{ "neox", "gpt_neox.layers.1.mlp.dense_h_to_4h", 128, 64, ADAPTER_UP, 0, 128 },
	{ "neox", "gpt_neox.layers.1.mlp.dense_4h_to_h", 64, 128, ADAPTER_DOWN, 0, 64 },
};

#define RANK	6u

/* Write all pairs of a model. */
static void write_model(const char *name, enum tiny_type type)
{
	u32 i;

	nr_loras = 0;
	for (i = 0; i < ARRAY_SIZE(parts); i++)
		if (!strcmp(parts[i].model, name) && !parts[i].first)
			lora_pair(parts[i].module, type, parts[i].rows, parts[i].cols, RANK);
	lora_write();
	lora_config(RANK, NULL, NULL);
}

/* Compare a pair with the numbers of its tensors. */
static void assert_pair(const struct laid *l, const struct part *p, u32 layer, u32 rank)
{
	const struct adapter_pair *pair = &l->place.pair[layer * NR_ADAPTER_SITES + p->site];
	const struct lora *a = lora_find(p->module, 'A'), *b = lora_find(p->module, 'B');
	u32 i, r, bad = 0;

	ck_assert_uint_eq(pair->rank, rank);
	ck_assert_uint_eq((uintptr_t)pair->a % 64, 0);
	ck_assert_uint_eq((uintptr_t)pair->b % 64, 0);
	for (i = 0; i < rank * p->cols; i++)
		bad += laid_number(pair->a, i) != lora_used(a, i);
	for (r = 0; r < rank; r++)
		for (i = 0; i < p->nr; i++)
			bad += laid_number(pair->b, r * p->nr + i) !=
			       lora_used(b, (p->first + i) * rank + r);
	ck_assert_msg(!bad, "%s, site %u: %u numbers", p->module, p->site, bad);
}

static const char * const models[] = { "llama", "phi3", "gpt2", "neox" };

/* Types of the file times types of the model. */
#define NR_KINDS	6

START_TEST(test_numbers)
{
	const char *name = models[_i / NR_KINDS];
	const enum tiny_type type = _i % NR_KINDS / 2;
	struct laid l;
	u32 i, sites = 0;

	open_model(name, _i % 2 ? MODEL_BF16 : MODEL_F32);
	write_model(name, type);
	ck_assert_msg(!load(), "%s", failure.text);
	l = lay(1 << 16);
	for (i = 0; i < ARRAY_SIZE(parts); i++) {
		if (strcmp(parts[i].model, name))
			continue;
		assert_pair(&l, &parts[i], 1, RANK);
		ck_assert_float_eq(l.place.pair[NR_ADAPTER_SITES + parts[i].site].scale,
				   (float)(16.0 / RANK));
		sites++;
	}
	ck_assert_uint_eq(adapter_info(adapter)->sites, sites);
	ck_assert_uint_eq(adapter_info(adapter)->rank, RANK);
	for (i = 0; i < adapter_pairs(model); i++)
		sites -= l.place.pair[i].rank != 0;
	ck_assert_uint_eq(sites, 0);
	lift(&l);
}
END_TEST

/* A family, and a module of it with a single site. */
static const struct {
	const char		*model;
	const char		*module;
	u32			rows;
	u32			cols;
	enum adapter_site	site;
	u32			layer;
} others[] = {
	{ "opt", "model.decoder.layers.0.self_attn.out_proj", 64, 64, ADAPTER_O, 0 },
	{ "opt", "decoder.layers.0.fc1", 0, 64, ADAPTER_UP, 0 },
	{ "phi", "model.layers.1.self_attn.dense", 0, 0, ADAPTER_O, 1 },
	{ "phi", "model.layers.1.mlp.fc2", 0, 0, ADAPTER_DOWN, 1 },
	{ "starcoder2", "model.layers.1.mlp.c_fc", 0, 0, ADAPTER_UP, 1 },
	{ "stablelm", "model.layers.1.self_attn.k_proj", 0, 0, ADAPTER_K, 1 },
	{ "gemma3", "model.layers.0.mlp.gate_proj", 0, 0, ADAPTER_GATE, 0 },
	{ "qwen3-moe", "model.layers.1.self_attn.v_proj", 0, 0, ADAPTER_V, 1 },
	{ "mixtral", "model.layers.1.self_attn.q_proj", 0, 0, ADAPTER_Q, 1 },
	{ "gpt-oss", "model.layers.1.self_attn.o_proj", 0, 0, ADAPTER_O, 1 },
	{ "gpt2", "h.1.attn.c_proj", 0, 0, ADAPTER_O, 1 },
};

/* The shape that the refusal of a wrong one names. */
static void learn_shape(const char *module, u32 *rows, u32 *cols)
{
	const char *says;

	nr_loras = 0;
	lora_pair(module, TINY_F32, 3, 5, 2);
	lora_write();
	assert_refused(load(), -EINVAL, "lora_A.weight: shape is [2, 5], the model asks for [2, ");
	says = strstr(failure.text, "asks for [2, ");
	ck_assert_int_eq(sscanf(says, "asks for [2, %u]", cols), 1);
	nr_loras = 0;
	lora_pair(module, TINY_F32, 3, *cols, 2);
	lora_write();
	assert_refused(load(), -EINVAL, "lora_B.weight: shape is [3, 2], the model asks for [");
	says = strstr(failure.text, "asks for [");
	ck_assert_int_eq(sscanf(says, "asks for [%u, 2]: this adapter is for another model", rows),
			 1);
}

START_TEST(test_families)
{
	u32 rows, cols;
	struct part p;
	struct laid l;

	open_model(others[_i].model, MODEL_F32);
	lora_config(2, NULL, NULL);
	learn_shape(others[_i].module, &rows, &cols);
	if (others[_i].rows)
		ck_assert_uint_eq(rows, others[_i].rows);
	if (others[_i].cols)
		ck_assert_uint_eq(cols, others[_i].cols);
	nr_loras = 0;
	lora_pair(others[_i].module, TINY_F32, rows, cols, 2);
	lora_write();
	ck_assert_msg(!load(), "%s", failure.text);
	l = lay(1 << 16);
	p = (struct part){ others[_i].model, others[_i].module, rows, cols, others[_i].site, 0,
			   rows };
	assert_pair(&l, &p, others[_i].layer, 2);
	ck_assert_uint_eq(adapter_info(adapter)->sites, 1);
	lift(&l);
}
END_TEST

/* The case as a GGUF file in place of its folder. */
static void open_gguf(const char *name)
{
	const struct model_opts o = { .dtype = MODEL_F32, .mode = MODEL_EXACT, .judge = true };
	struct model_config config;
	struct ckpt *c = NULL;
	char path[200];
	struct gw *w;

	golden_read(name);
	config_write(NULL, NULL);
	ck_assert_int_eq(model_config_read(fixture_dir, &config, &failure), 0);
	ck_assert_int_eq(dummy_open(fixture_dir, &config, NULL, false, &c, &failure), 0);
	w = gw_make(c);
	gw_file(w, "m.gguf", 0, 1, 0);
	gw_free(w);
	ckpt_close(c);
	snprintf(path, sizeof(path), "%s/m.gguf", fixture_dir);
	ck_assert_msg(!model_load(path, &o, &model, &failure), "%s", failure.text);
}

/* A GGUF file takes the adapters of the folder, with the same result. */
START_TEST(test_gguf)
{
	u8 digest[ADAPTER_DIGEST_LEN];

	open_model(models[_i], MODEL_F32);
	write_model(models[_i], TINY_F32);
	ck_assert_msg(!load(), "%s", failure.text);
	memcpy(digest, adapter_info(adapter)->digest, sizeof(digest));
	adapter_free(adapter);
	adapter = NULL;
	model_free(model);
	open_gguf(models[_i]);
	ck_assert_msg(!load(), "%s", failure.text);
	ck_assert_mem_eq(digest, adapter_info(adapter)->digest, sizeof(digest));
}
END_TEST

/* ---- ranks and scales ---- */

static const struct {
	const char	*key;
	const char	*value;
	u32		rank[2];
	double		scale[2];
} scales[] = {
	{ NULL, NULL, { 4, 4 }, { 4, 4 } },
	{ "use_rslora", "true", { 4, 4 }, { 8, 8 } },
	{ "lora_alpha", "6.5", { 4, 4 }, { 1.625, 1.625 } },
	{ "lora_alpha", "0", { 4, 4 }, { 0, 0 } },
	{ "rank_pattern", "{\"layers.1.self_attn.q_proj\": 8}", { 4, 8 }, { 4, 2 } },
	{ "rank_pattern", "{\"q_proj\": 2, \"layers.1.self_attn.q_proj\": 8}", { 2, 2 }, { 8, 8 } },
	{ "rank_pattern", "{\"proj\": 2, \"_proj\": 2, \"elf_attn.q_proj\": 2, \"q_pro\": 2}", { 4, 4 },
	  { 4, 4 } },
	{ "rank_pattern", "{\"^model.layers.0.self_attn.q_proj\": 1, \"^layers.1.self_attn.q_proj\": "
	  "2}", { 1, 4 }, { 16, 4 } },
	{ "rank_pattern", "{\"model\\\\.layers\\\\.0\\\\.self_attn\\\\.q_proj\": 3}", { 3, 4 },
	  { 16 / 3.0, 4 } },
	{ "alpha_pattern", "{\"0.self_attn.q_proj\": 1.5}", { 4, 4 }, { 0.375, 4 } },
	{ "alpha_pattern", "{\"q_proj\": -8}", { 4, 4 }, { -2, -2 } },
};

START_TEST(test_scales)
{
	struct laid l;
	u32 i;

	open_model("llama", MODEL_F32);
	write_q(scales[_i].rank[0], scales[_i].rank[1]);
	lora_config(4, scales[_i].key, scales[_i].value);
	ck_assert_msg(!load(), "%s", failure.text);
	l = lay(1 << 16);
	for (i = 0; i < 2; i++) {
		ck_assert_uint_eq(l.place.pair[i * NR_ADAPTER_SITES].rank, scales[_i].rank[i]);
		ck_assert_float_eq(l.place.pair[i * NR_ADAPTER_SITES].scale,
				   (float)scales[_i].scale[i]);
	}
	ck_assert_uint_eq(adapter_info(adapter)->rank, max(scales[_i].rank[0], scales[_i].rank[1]));
	lift(&l);
}
END_TEST

/* Keys that change nothing, or have a feature's off value. */
static const struct {
	const char	*key;
	const char	*value;
} fine[] = {
	{ "task_type", "null" },
	{ "task_type", NULL },
	{ "bias", NULL },
	{ "modules_to_save", "[]" },
	{ "target_modules", "\"all-linear\"" },
	{ "layers_to_transform", "[0, 1]" },
	{ "layers_pattern", "\"layers\"" },
	{ "fan_in_fan_out", "true" },
	{ "lora_dropout", "0.5" },
	{ "init_lora_weights", "true" },
	{ "init_lora_weights", "\"gaussian\"" },
	{ "init_lora_weights", "\"eva\"" },
	{ "eva_config", "{\"rho\": 2.0}" },
	{ "megatron_core", "\"megatron.core\"" },
	{ "megatron_config", "null" },
	{ "loftq_config", "{}" },
	{ "qalora_group_size", "16" },
	{ "use_qalora", "false" },
	{ "lora_bias", "false" },
	{ "unsloth_fixed", "true" },
	{ "peft_version", "\"0.21.2\"" },
	{ "revision", "\"main\"" },
	{ "a_key_of_later", "false" },
	{ "a_key_of_later", "0" },
	{ "a_key_of_later", "\"\"" },
	{ "a_key_of_later", "null" },
};

START_TEST(test_fine)
{
	open_model("llama", MODEL_F32);
	write_q(4, 4);
	lora_config(4, fine[_i].key, fine[_i].value);
	ck_assert_msg(!load(), "%s", failure.text);
}
END_TEST

/* Names with that of the adapter. */
START_TEST(test_named)
{
	u32 i;

	open_model("llama", MODEL_F32);
	write_q(4, 4);
	lora_config(4, NULL, NULL);
	for (i = 0; i < nr_loras; i++)
		strcpy(strstr(loras[i].name, ".weight"), ".default.weight");
	lora_write();
	ck_assert_msg(!load(), "%s", failure.text);
	ck_assert_uint_eq(adapter_info(adapter)->sites, 2);
}
END_TEST

/* ---- files that are cut or changed ---- */

static u8 *read_tensors(size_t *len)
{
	FILE *f = dir_open("adapter_model.safetensors", "r");
	u8 *bytes = malloc(1 << 20);

	*len = fread(bytes, 1, 1 << 20, f);
	fclose(f);
	return bytes;
}

static void write_tensors(const u8 *bytes, size_t len)
{
	FILE *f = dir_open("adapter_model.safetensors", "w");

	ck_assert_uint_eq(fwrite(bytes, 1, len, f), len);
	ck_assert_int_eq(fclose(f), 0);
}

START_TEST(test_cut)
{
	size_t len, n;
	u8 *bytes;

	open_model("llama", MODEL_F32);
	write_q(4, 4);
	lora_config(4, NULL, NULL);
	bytes = read_tensors(&len);
	for (n = 0; n < len; n += 97) {
		write_tensors(bytes, n);
		assert_refused(load(), -EINVAL, "/adapter_model.safetensors: ");
	}
	write_tensors(bytes, len);
	ck_assert_int_eq(load(), 0);
	free(bytes);
}
END_TEST

/* Flip bits of the header: a refusal of one line, or an adapter whose numbers can be read. */
START_TEST(test_flipped)
{
	u32 i, taken = 0;
	size_t len, head;
	struct laid l;
	u8 *bytes;
	int ret;

	open_model("llama", MODEL_BF16);
	write_q(4, 4);
	lora_config(4, NULL, NULL);
	bytes = read_tensors(&len);
	head = 8 + bytes[0] + bytes[1] * 256;
	for (i = 0; i < head; i++) {
		bytes[i] ^= 1 << i % 7;
		write_tensors(bytes, len);
		bytes[i] ^= 1 << i % 7;
		ret = load();
		if (ret) {
			assert_refused(ret, ret == -EOPNOTSUPP ? ret : -EINVAL, "/adapter_model");
			continue;
		}
		l = lay(1 << 16);
		lift(&l);
		adapter_free(adapter);
		adapter = NULL;
		taken++;
	}
	ck_assert_uint_lt(taken, head / 4);
	free(bytes);
}
END_TEST

/* Numbers that change behind the loader's back are an error, and so are numbers that go. */
START_TEST(test_changed)
{
	char path[200];
	size_t len;
	u8 *bytes, *block = malloc(1 << 16);

	open_model("llama", MODEL_F32);
	write_q(4, 4);
	lora_config(4, NULL, NULL);
	bytes = read_tensors(&len);
	ck_assert_int_eq(load(), 0);
	ck_assert_int_eq(adapter_write(adapter, 1 << 16, 0, block), 0);
	bytes[len - 1] ^= 1;
	write_tensors(bytes, len);
	ck_assert_int_eq(adapter_write(adapter, 1 << 16, 0, block), -EIO);
	bytes[len - 1] ^= 1;
	write_tensors(bytes, len);
	ck_assert_int_eq(adapter_write(adapter, 1 << 16, 0, block), 0);
	snprintf(path, sizeof(path), "%s/adapter_model.safetensors", fixture_dir);
	ck_assert_int_eq(truncate(path, len - 1), 0);
	ck_assert_int_eq(adapter_write(adapter, 1 << 16, 0, block), -EIO);
	ck_assert_int_eq(truncate(path, 0), 0);
	ck_assert_int_eq(adapter_write(adapter, 1 << 16, 0, block), -EIO);
	/* Another file of that name does not matter. */
	write_tensors(bytes, len);
	ck_assert_int_eq(unlink(path), 0);
	write_q(8, 8);
	ck_assert_int_eq(adapter_write(adapter, 1 << 16, 0, block), 0);
	free(bytes);
	free(block);
}
END_TEST

/* ---- blocks ---- */

/* Matrices in the order of layers, sites, A, B; aligned, in one block each, zeros between. */
START_TEST(test_blocks)
{
	u64 at = 0, bytes = 0, i, k;
	const struct adapter_pair *p;
	struct laid l;
	u32 block = 0;

	open_model("llama", MODEL_F32);
	write_model("llama", TINY_F32);
	lora_config(RANK, NULL, NULL);
	ck_assert_int_eq(load(), 0);
	l = lay(4096);
	for (i = NR_ADAPTER_SITES; i < 2 * NR_ADAPTER_SITES; i++) {
		p = &l.place.pair[i];
		for (k = 0; k < 2 && p->rank; k++) {
			const u8 *m = k ? p->b : p->a;
			u64 size = 0, j;

			for (j = 0; j < ARRAY_SIZE(parts); j++)
				if (!strcmp(parts[j].model, "llama") &&
				    parts[j].site == i - NR_ADAPTER_SITES)
					size = RANK * 4ull * (k ? parts[j].rows : parts[j].cols);
			at = ALIGN_UP(at, 64ull);
			if (at + size > 4096) {
				for (; at < 4096; at++)
					ck_assert_uint_eq(((u8 *)l.blocks[block])[at], 0);
				block++;
				at = 0;
			}
			ck_assert_ptr_eq(m, (u8 *)l.blocks[block] + at);
			at += size;
			bytes += ALIGN_UP(size, 64ull);
		}
	}
	ck_assert_uint_eq(block + 1, l.nr);
	ck_assert_uint_gt(l.nr, 3);
	for (; at < 4096; at++)
		ck_assert_uint_eq(((u8 *)l.blocks[block])[at], 0);
	ck_assert_uint_eq(adapter_info(adapter)->bytes, bytes);
	lift(&l);
}
END_TEST

START_TEST(test_same)
{
	u8 digest[ADAPTER_DIGEST_LEN];
	struct laid l, again;
	u32 i;

	open_model("phi3", MODEL_BF16);
	write_model("phi3", TINY_F32);
	ck_assert_int_eq(load(), 0);
	l = lay(4096);
	memcpy(digest, adapter_info(adapter)->digest, sizeof(digest));
	adapter_free(adapter);
	adapter = NULL;
	ck_assert_int_eq(load(), 0);
	ck_assert_mem_eq(digest, adapter_info(adapter)->digest, sizeof(digest));
	again = lay(4096);
	ck_assert_uint_eq(l.nr, again.nr);
	for (i = 0; i < l.nr; i++)
		ck_assert_mem_eq(l.blocks[i], again.blocks[i], 4096);
	lift(&l);
	lift(&again);
}
END_TEST

static void digest_of(u8 *out)
{
	ck_assert_msg(!load(), "%s", failure.text);
	memcpy(out, adapter_info(adapter)->digest, ADAPTER_DIGEST_LEN);
	adapter_free(adapter);
	adapter = NULL;
}

/* The digest follows numbers, scales, sites and the type, and nothing else. */
START_TEST(test_digest)
{
	u8 first[ADAPTER_DIGEST_LEN], other[ADAPTER_DIGEST_LEN];

	open_model("llama", MODEL_F32);
	nr_loras = 0;
	lora_pair(Q(0), TINY_BF16, 64, 64, 4);
	lora_write();
	lora_config(4, NULL, NULL);
	digest_of(first);
	lora_config(4, "lora_dropout", "0.5");
	digest_of(other);
	ck_assert_mem_eq(first, other, sizeof(first));
	lora_config(4, "lora_alpha", "17");
	digest_of(other);
	ck_assert_mem_ne(first, other, sizeof(first));
	lora_config(4, NULL, NULL);
	loras[1].odd = 255;
	loras[1].value = 0.5f;
	lora_write();
	digest_of(other);
	ck_assert_mem_ne(first, other, sizeof(first));
	loras[1].odd = UINT32_MAX;
	lora_write();
	digest_of(other);
	ck_assert_mem_eq(first, other, sizeof(first));
	model_free(model);
	open_model("llama", MODEL_BF16);
	digest_of(other);
	ck_assert_mem_ne(first, other, sizeof(first));
}
END_TEST

START_TEST(test_block_bytes)
{
	open_model("llama", MODEL_F32);
	ck_assert_uint_eq(adapter_block_bytes(model, 1, &failure), 64 << 10);
	ck_assert_uint_eq(adapter_block_bytes(model, 16, &failure), 64 << 10);
	/* 96 * 512 * 4 bytes */
	ck_assert_uint_eq(adapter_block_bytes(model, 512, &failure), 256 << 10);
	ck_assert_uint_eq(adapter_pairs(model), 2 * NR_ADAPTER_SITES);
	model_free(model);
	open_model("llama", MODEL_BF16);
	ck_assert_uint_eq(adapter_block_bytes(model, 512, &failure), 128 << 10);
	model_free(model);
	open_model("deepseek2", MODEL_F32);
	ck_assert_uint_eq(adapter_block_bytes(model, 8, &failure), 0);
	ck_assert_ptr_nonnull(strstr(failure.text, "DeepseekV2ForCausalLM takes no adapters"));
}
END_TEST

static void setup(void)
{
	dir_create();
	model = NULL;
	adapter = NULL;
	nr_loras = 0;
}

static void teardown(void)
{
	adapter_free(adapter);
	model_free(model);
	dir_destroy();
}

static Suite *adapter_suite(void)
{
	Suite *s = suite_create("model_adapter");
	TCase *tc = tcase_create("files");

	tcase_set_tags(tc, "unit model");
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, test_numbers, 0, ARRAY_SIZE(models) * NR_KINDS);
	tcase_add_loop_test(tc, test_families, 0, ARRAY_SIZE(others));
	tcase_add_loop_test(tc, test_gguf, 0, ARRAY_SIZE(models));
	tcase_add_loop_test(tc, test_scales, 0, ARRAY_SIZE(scales));
	tcase_add_loop_test(tc, test_fine, 0, ARRAY_SIZE(fine));
	tcase_add_test(tc, test_named);
	tcase_add_test(tc, test_cut);
	tcase_add_test(tc, test_flipped);
	tcase_add_test(tc, test_changed);
	tcase_add_test(tc, test_blocks);
	tcase_add_test(tc, test_same);
	tcase_add_test(tc, test_digest);
	tcase_add_test(tc, test_block_bytes);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	SRunner *sr = srunner_create(adapter_suite());
	int failed;

	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
