// SPDX-License-Identifier: Apache-2.0
/*
 * fuzz_quantized.c - quantized folders of any configuration and any tensors
 *
 * The input is three texts, each up to a NUL: the value of "quantization_config"; the
 * tensors, as "name dtype dimension,dimension;"; and bytes, which are repeated as the
 * content of all tensors.  The file of tensors is always valid, so that inputs reach
 * the code behind it.  A refusal must be one line that names the folder.  Of a folder
 * that is accepted, the made tensors must have all of their bytes, and the others must
 * be as they were.
 */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/model/error.h"
#include "runtime/model/quantized.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/tensors.h"

static u64 nr_taken;

static void config_write(const char *text)
{
	FILE *f = file_open("config.json");

	fprintf(f, "{\"quantization_config\":%s}", text);
	fclose(f);
}

/* The laws of an accepted folder. */
static void check_taken(const struct ckpt *c)
{
	const struct st_tensor *t;
	volatile u8 sum = 0;
	u64 i, k, cols;

	for (i = 0; i < c->nr_tensors; i++) {
		t = c->tensors[i];
		FUZZ_LAW(!i || strcmp(c->tensors[i - 1]->name, t->name) < 0, "%s",
			 t->name);
		if (!ckpt_is_made(c, t))
			continue;
		cols = t->shape[t->nr_dims - 1];
		FUZZ_LAW(t->nr_elems && t->nr_bytes == kern_row_bytes(t->blocks,
			 t->nr_elems), "%s: %llu bytes", t->name,
			 (unsigned long long)t->nr_bytes);
		FUZZ_LAW(t->nr_bytes <= 64ull * FILE_MAX, "%s: %llu bytes", t->name,
			 (unsigned long long)t->nr_bytes);
		for (k = 0; k < t->nr_bytes; k++)
			sum += ((const u8 *)t->data)[k];
		for (k = 0; t->order && k < cols; k++)
			FUZZ_LAW(t->order[k] < cols, "column %u", t->order[k]);
		nr_taken++;
	}
}

static void run(void)
{
	const struct quantized_opts o = { .nr_threads = 1 };
	struct model_error err = { "" };
	struct ckpt *c;
	int ret;

	if (ckpt_open(dir, &c, &err))
		return;
	ret = quantized_open(c, &o, &err);
	if (!ret)
		check_taken(c);
	else
		FUZZ_LAW((ret == -EINVAL || ret == -EOPNOTSUPP) &&
			 strstr(err.text, dir) && !strchr(err.text, '\n'), "%d: %s",
			 ret, err.text);
	ckpt_close(c);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	char *text = malloc(size + 2);
	const char *config = text;
	size_t first, second;

	memcpy(text, data, size);
	text[size] = text[size + 1] = '\0';
	first = strlen(config) + 1;
	second = first < size ? first + strlen(text + first) + 1 : size;
	config_write(config);
	if (first < size &&
	    tensors_write("model.safetensors", text + first, data + min(second, size),
			  size - min(second, size)))
		run();
	free(text);
	return 0;
}

#ifndef FUZZ_LIB
/* ---- own mutations ---- */

static const char * const words[] = {
	"0", "1", "-1", "2", "4", "8", "16", "32", "64", "128", "4294967296", "null",
	"true", "false", "{", "}", "[", "]", ",", ":", "\"", ";", "a.qweight I32 4,64;",
	"a.scales F16 1,64;", "a.qzeros I32 1,8;", "a.g_idx I32 32;",
	"a.weight_packed I32 8,4;", "a.weight_shape I64 2;", "a.weight_scale F32 8,1;",
	"a.weight F8_E4M3 8,32;", "a.weight I8 8,32;", "a.weight_zero_point I32 1,1;",
	"a_blocks U8 2,4,1,16;", "a_scales U8 2,4,1;", "\"bits\":8,", "\"bits\":4,",
	"\"group_size\":32,", "\"group_size\":-1,", "\"desc_act\":true,",
	"\"weight_block_size\":[128,128],", "\"re:.*[a-z]+\"", "F16", "BF16", "F32", "I32",
};

static const struct {
	const char	*config;
	const char	*tensors;
} starts[] = {
	{ "{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":32}",
	  "a.qweight I32 8,8;a.scales F16 2,8;a.qzeros I32 2,1;a.g_idx I32 64;" },
	{ "{\"quant_method\":\"gptq\",\"bits\":8,\"group_size\":-1}",
	  "a.qweight I32 8,8;a.scales F16 1,8;a.qzeros I32 1,2;" },
	{ "{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":64}",
	  "a.qweight I32 64,1;a.scales F16 1,8;a.qzeros I32 1,1;" },
	{ "{\"quant_method\":\"compressed-tensors\",\"format\":\"pack-quantized\","
	  "\"config_groups\":{\"g\":{\"targets\":[\"Linear\"],\"weights\":{\"num_bits\":4,"
	  "\"strategy\":\"group\",\"group_size\":32,\"symmetric\":false,"
	  "\"actorder\":\"group\"}}}}",
	  "a.weight_packed I32 8,8;a.weight_scale F16 8,2;a.weight_shape I64 2;"
	  "a.weight_zero_point I32 1,2;a.weight_g_idx I32 64;" },
	{ "{\"quant_method\":\"compressed-tensors\",\"format\":\"int-quantized\","
	  "\"config_groups\":{\"g\":{\"targets\":[\"re:a.*\"],\"weights\":{\"num_bits\":8,"
	  "\"strategy\":\"channel\"}},\"h\":{\"targets\":[\"b\"],\"weights\":{\"num_bits\""
	  ":8,\"type\":\"float\"}}}}",
	  "a.weight I8 8,32;a.weight_scale BF16 8,1;b.weight F8_E4M3 8,40;"
	  "b.weight_scale F32 ;" },
	{ "{\"quant_method\":\"fp8\",\"weight_block_size\":[128,128]}",
	  "a.weight F8_E4M3 8,160;a.weight_scale_inv F32 1,2;" },
	{ "{\"quant_method\":\"mxfp4\"}",
	  "a.gate_up_proj_blocks U8 2,4,1,16;a.gate_up_proj_scales U8 2,4,1;" },
};

/* An input that was read, or a new one. */
static size_t begin(u8 *buf, size_t max)
{
	const u32 n = fuzz_draw(ARRAY_SIZE(starts));
	size_t len, i;
	const u8 *data = fuzz_input(&len);

	if (len && !fuzz_draw(3)) {
		len = min(len, max);
		memcpy(buf, data, len);
		return len;
	}
	len = (size_t)snprintf((char *)buf, max, "%s%c%s", starts[n].config, 0,
			       starts[n].tensors) + 1;
	for (i = 0; i < 32 && len < max; i++)
		buf[len++] = fuzz_draw(2) ? 0 : (u8)fuzz_draw(256);
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
	.mutate = mutate, .changes = 2, .taken = &nr_taken,
};
#endif
