// SPDX-License-Identifier: Apache-2.0
/*
 * fuzz_adapter.c - adapters of any configuration and any tensors
 *
 * The input is three texts, each up to a NUL: adapter_config.json; the tensors, as
 * "name dtype dimension,dimension;", where a leading @ stands for the prefix of PEFT and a
 * layer; and bytes, which are repeated as the content of all tensors.  The file of tensors
 * is always valid, so that inputs reach the code behind it.  A refusal must be one line that
 * names the folder.  All blocks of an adapter that is accepted must be written, and all
 * pairs must lie in them.
 */
#include "runtime/model/adapter.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/tensors.h"

#define MAX_RANK	32u

static struct model *model;
static u64 block_bytes;
static u64 nr_taken;

/* A small Phi-3, which has joined matrices. */
static void model_make(void)
{
	const struct model_opts o = { .dtype = MODEL_BF16, .dummy = true, .judge = true };
	struct model_error err;
	FILE *f = file_open("config.json");

	fputs("{\"architectures\":[\"Phi3ForCausalLM\"],\"vocab_size\":64,\"hidden_size\":16,"
	      "\"intermediate_size\":24,\"num_hidden_layers\":2,\"num_attention_heads\":2,"
	      "\"num_key_value_heads\":1,\"max_position_embeddings\":64,\"rms_norm_eps\":1e-5,"
	      "\"original_max_position_embeddings\":64,\"tie_word_embeddings\":false,"
	      "\"hidden_act\":\"silu\",\"rope_theta\":10000}", f);
	fclose(f);
	if (model_load(dir, &o, &model, &err)) {
		fprintf(stderr, "%s\n", err.text);
		abort();
	}
	block_bytes = adapter_block_bytes(model, MAX_RANK, &err);
	if (!block_bytes)
		abort();
}

/* A matrix lies in a block, at a multiple of 64 bytes. */
static void check_place(const void *m, u8 *blocks, u32 nr)
{
	const u64 at = (u64)((const u8 *)m - blocks);

	FUZZ_LAW(at < nr * block_bytes && !(at % 64), "offset %llu", (unsigned long long)at);
}

/* The laws of an accepted adapter. */
static void check_taken(const struct adapter *a)
{
	const u32 nr = adapter_blocks(a, block_bytes), pairs = adapter_pairs(model);
	struct adapter_place place = { calloc(pairs, sizeof(*place.pair)) };
	u8 *blocks = aligned_alloc(64, nr * block_bytes);
	void **list = calloc(nr, sizeof(*list));
	u32 i, sites = 0;

	for (i = 0; i < nr; i++) {
		list[i] = blocks + i * block_bytes;
		FUZZ_LAW(!adapter_write(a, block_bytes, i, list[i]), "block %u", i);
	}
	adapter_locate(a, block_bytes, list, &place);
	for (i = 0; i < pairs; i++) {
		const struct adapter_pair *p = &place.pair[i];

		if (!p->rank)
			continue;
		sites++;
		FUZZ_LAW(p->rank <= adapter_info(a)->rank && p->rank <= MAX_RANK, "rank %u",
			 p->rank);
		FUZZ_LAW(p->scale - p->scale == 0, "scale %g", (double)p->scale);
		check_place(p->a, blocks, nr);
		check_place(p->b, blocks, nr);
	}
	FUZZ_LAW(sites && sites == adapter_info(a)->sites, "%u sites", sites);
	free(place.pair);
	free(list);
	free(blocks);
	nr_taken++;
}

static void run(void)
{
	struct model_error err = { "" };
	struct adapter *a = NULL;
	const int ret = adapter_load(model, dir, MAX_RANK, &a, &err);

	if (!ret)
		check_taken(a);
	else
		FUZZ_LAW(!a && (ret == -EINVAL || ret == -EOPNOTSUPP) &&
			 strstr(err.text, dir) && !strchr(err.text, '\n'), "%d: %s", ret, err.text);
	adapter_free(a);
}

/* Write the text with the prefix in place of each @. */
static char *expand(const char *text)
{
	char *out = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&out, &len);

	for (; *text; text++)
		if (*text == '@')
			fputs("base_model.model.model.layers.", f);
		else
			fputc(*text, f);
	fclose(f);
	return out;
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	char *text = malloc(size + 2), *tensors;
	size_t first, second;
	FILE *f;

	if (!model)
		model_make();
	memcpy(text, data, size);
	text[size] = text[size + 1] = '\0';
	first = strlen(text) + 1;
	second = first < size ? first + strlen(text + first) + 1 : size;
	f = file_open("adapter_config.json");
	fputs(text, f);
	fclose(f);
	tensors = expand(first < size ? text + first : "");
	if (tensors_write("adapter_model.safetensors", tensors, data + min(second, size),
			  size - min(second, size)))
		run();
	free(tensors);
	free(text);
	return 0;
}

#ifndef FUZZ_LIB
/* ---- own mutations ---- */

static const char * const words[] = {
	"0", "1", "-1", "2", "4", "8", "16", "32", "33", "1e30", "null", "true", "false", "{", "}",
	"[", "]", ",", ":", "\"", ";", "@", "@0.self_attn.qkv_proj", "@1.self_attn.o_proj",
	"@1.mlp.gate_up_proj", "@0.mlp.down_proj", "lm_head", ".lora_A.weight", ".lora_B.weight",
	".lora_A.default.weight", " F32 4,16;", " BF16 32,4;", " F16 16,4;", " F16 48,4;", "F32",
	"BF16", "F16", "I32", "\"rank_pattern\":{\"o_proj\":2}", "\"alpha_pattern\":{\"^a\\\\.b\":0}",
	"\"use_rslora\":true", "\"use_dora\":true", "\"a\":1", "99",
};

static const char config[] = "{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":8}";

static const char * const starts[] = {
	"@0.self_attn.qkv_proj.lora_A.weight F32 4,16;@0.self_attn.qkv_proj.lora_B.weight F16 32,4;"
	"@1.self_attn.o_proj.lora_A.weight BF16 4,16;@1.self_attn.o_proj.lora_B.weight F32 16,4;",
	"@1.mlp.gate_up_proj.lora_A.weight F32 4,16;@1.mlp.gate_up_proj.lora_B.weight F32 48,4;",
	"@1.mlp.down_proj.lora_A.x.weight F16 4,24;@1.mlp.down_proj.lora_B.x.weight BF16 16,4;",
};

/* An input that was read, or a new one. */
static size_t begin(u8 *buf, size_t max)
{
	size_t len, i;
	const u8 *data = fuzz_input(&len);

	if (len && !fuzz_draw(3)) {
		len = min(len, max);
		memcpy(buf, data, len);
		return len;
	}
	len = (size_t)snprintf((char *)buf, max, "%s%c%s", config, 0,
			       starts[fuzz_draw(ARRAY_SIZE(starts))]) + 1;
	for (i = 0; i < 32 && len < max; i++)
		buf[len++] = fuzz_draw(2) ? 0 : (u8)fuzz_draw(120);
	return len;
}

static size_t mutate(u8 *buf, size_t len, size_t max)
{
	const char *w = words[fuzz_draw(ARRAY_SIZE(words))];
	const size_t at = fuzz_draw((u32)len + 1);

	if (!fuzz_draw(3)) {
		if (at < len)
			buf[at] = (u8)fuzz_draw(256);
		return len;
	}
	return fuzz_put(buf, len, max, at, fuzz_draw(8), w, strlen(w));
}

const struct fuzz_own fuzz_own = {
	.words = words, .nr_words = ARRAY_SIZE(words), .begin = begin,
	.mutate = mutate, .changes = 1, .taken = &nr_taken,
};
#endif
