// SPDX-License-Identifier: Apache-2.0
/*
 * fuzz_gguf_model.c - GGUF files as models
 *
 * The input is a file.  A refusal must be one line that names the file.  Of a file that is
 * accepted, every tensor of the layout must have all of its bytes, and names are in order.
 * New inputs are small models of some architectures, with values, names, types and sizes
 * that are changed here and there.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/model/error.h"
#include "runtime/model/gguf_model.h"
#include "tests/fuzz/fuzz.h"

static int fd = -1;
static u64 nr_taken;
static volatile u8 sum;

static void check_tensors(const struct ckpt *c)
{
	const struct st_tensor *t;
	u64 i, k;

	for (i = 0; i < c->nr_tensors; i++) {
		t = c->tensors[i];
		FUZZ_LAW(!i || strcmp(c->tensors[i - 1]->name, t->name) < 0,
			 "%s", t->name);
		for (k = 0; k < t->nr_bytes; k++)
			sum += ((const u8 *)t->data)[k];
	}
}

static void check_line(int ret, const struct model_error *err, const char *path)
{
	FUZZ_LAW((ret == -EINVAL || ret == -EOPNOTSUPP) &&
		 strstr(err->text, path) && !strchr(err->text, '\n'), "%d: %s",
		 ret, err->text);
}

/* All of the loader, without memory for work; then the tensors with their copies. */
static void load(const char *path)
{
	const struct model_opts o = { .judge = true, .nr_threads = 1 };
	struct model_error err = { "" };
	struct model_config cfg;
	struct model *model;
	struct ckpt *c;
	int ret;

	ret = model_load(path, &o, &model, &err);
	if (ret) {
		check_line(ret, &err, path);
	} else {
		model_free(model);
		nr_taken++;
	}
	if (model_config_read(path, &cfg, &err))
		return;
	ret = gguf_ckpt_open(path, &cfg, false, &c, &err);
	if (ret) {
		check_line(ret, &err, path);
		return;
	}
	check_tensors(c);
	ckpt_close(c);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	char path[40];

	if (fd < 0)
		fd = memfd_create("fuzz", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, 0) ||
	    pwrite(fd, data, size, 0) != (ssize_t)size)
		abort();
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	/* Another file is no folder, which the reader of folders says. */
	if (size > 4 && !memcmp(data, "GGUF", 4))
		load(path);
	return 0;
}

#ifndef FUZZ_LIB
/* ---- new models ---- */

/* The last two have LayerNorm. */
static const char * const archs[] = {
	"llama", "granite", "granitehybrid", "gemma", "gemma2", "smollm3",
	"qwen3", "qwen3moe", "deepseek2", "stablelm", "cohere2",
};

static const struct {
	const char	*name;
	u32		kind;
	u32		value;
} keys[] = {
	{ "block_count", GGUF_U32, 1 }, { "embedding_length", GGUF_U32, 32 },
	{ "feed_forward_length", GGUF_U32, 32 },
	{ "context_length", GGUF_U32, 64 },
	{ "attention.head_count", GGUF_U32, 2 },
	{ "attention.head_count_kv", GGUF_U32, 2 },
};

/* Keys that are there now and then. */
static const char * const more[] = {
	"rope.freq_base", "rope.dimension_count", "rope.scaling.factor",
	"rope.scaling.attn_factor", "rope.scaling.finetuned",
	"rope.scaling.original_context_length", "attention.scale",
	"attention.sliding_window", "attention.sliding_window_pattern",
	"attention.key_length", "attention.value_length", "expert_count",
	"expert_used_count", "expert_feed_forward_length", "ssm.inner_size",
	"ssm.conv_kernel", "ssm.state_size", "ssm.group_count",
	"ssm.time_step_rank", "attention.kv_lora_rank", "logit_scale",
	"leading_dense_block_count", "use_parallel_residual",
};

static const struct {
	const char	*name;
	u32		rows;		/* 0: a vector */
} tensors[] = {
	{ "token_embd.weight", 32 }, { "output_norm.weight", 0 },
	{ "blk.0.attn_norm.weight", 0 }, { "blk.0.ffn_norm.weight", 0 },
	{ "blk.0.attn_q.weight", 32 }, { "blk.0.attn_k.weight", 32 },
	{ "blk.0.attn_v.weight", 32 }, { "blk.0.attn_output.weight", 32 },
	{ "blk.0.ffn_gate.weight", 32 }, { "blk.0.ffn_up.weight", 32 },
	{ "blk.0.ffn_down.weight", 32 },
};

/* Tensors that are there now and then. */
static const char * const rare[] = {
	"output.weight", "blk.0.attn_q_norm.weight", "blk.0.attn_k_norm.weight",
	"blk.0.attn_qkv.weight", "blk.0.ffn_gate_exps.weight",
	"blk.0.ffn_gate_inp.weight", "blk.0.ssm_a", "blk.0.ssm_d",
	"blk.0.ssm_conv1d.weight", "rope_freqs.weight", "blk.0.attn_q.bias",
	"rope_factors_long.weight", "blk.0.post_ffw_norm.weight",
	"blk.0.post_attention_norm.weight", "blk.1.ffn_up.weight",
};

static const u64 odd[] = {
	0, 1, 2, 3, 4, 8, 16, 31, 32, 33, 64, 255, 4096, 1u << 20, INT32_MAX,
	UINT32_MAX, 1ull << 40, UINT64_MAX, 0x3f800000, 0x7fc00000,
};

static size_t put(u8 *buf, size_t len, u64 v, u32 bytes)
{
	memcpy(buf + len, &v, bytes);
	return len + bytes;
}

static size_t put_text(u8 *buf, size_t len, const char *a, const char *b)
{
	char text[80];

	snprintf(text, sizeof(text), "%s%s%s", a, *a ? "." : "", b);
	len = put(buf, len, strlen(text), 8);
	memcpy(buf + len, text, strlen(text));
	return len + strlen(text);
}

/* A number, or now and then another one. */
static u64 near(u64 v)
{
	return fuzz_draw(200) ? v : odd[fuzz_draw(ARRAY_SIZE(odd))];
}

/* A number, or now and then a list of numbers. */
static size_t put_value(u8 *buf, size_t len, u32 kind, u64 v)
{
	u32 nr = 1;

	if (!fuzz_draw(60)) {
		nr = fuzz_draw(4);
		len = put(buf, len, GGUF_ARRAY, 4);
		len = put(buf, len, kind, 4);
		len = put(buf, len, nr, 8);
	} else {
		len = put(buf, len, kind, 4);
	}
	for (; nr; nr--)
		len = put(buf, len, near(v), kind == GGUF_BOOL ? 1 : 4);
	return len;
}

static size_t put_keys(u8 *buf, size_t len, u32 *nr)
{
	static const u32 kinds[] = { GGUF_U32, GGUF_F32, GGUF_BOOL };
	const u32 of = fuzz_draw(ARRAY_SIZE(archs));
	const char *arch = archs[of];
	u32 i;

	len = put_text(buf, len, "general", "architecture");
	len = put(buf, len, GGUF_STRING, 4);
	len = put_text(buf, len, "", arch);
	len = put_text(buf, len, arch, of + 2 < ARRAY_SIZE(archs) ?
		       "attention.layer_norm_rms_epsilon" :
		       "attention.layer_norm_epsilon");
	len = put_value(buf, len, GGUF_F32, 0x3727c5ac);
	*nr = 2;
	for (i = 0; i < ARRAY_SIZE(keys); i++) {
		len = put_text(buf, len, arch, keys[i].name);
		len = put_value(buf, len, keys[i].kind, keys[i].value);
		++*nr;
	}
	for (i = fuzz_draw(3 * ARRAY_SIZE(more)); i < ARRAY_SIZE(more);
	     i += 1 + fuzz_draw(40)) {
		len = put_text(buf, len, arch, more[i]);
		len = put_value(buf, len, kinds[fuzz_draw(3)],
				odd[fuzz_draw(ARRAY_SIZE(odd))]);
		++*nr;
	}
	return len;
}

/* The record of a tensor, of F16 or of Q8_0; *@at becomes the end of its data. */
static size_t put_tensor(u8 *buf, size_t len, const char *name, u32 rows, u64 *at)
{
	const u32 type = !rows ? 0 : fuzz_draw(20) ? 8 : 1;

	len = put_text(buf, len, "", name);
	len = put(buf, len, rows ? 2 : 1, 4);
	len = put(buf, len, near(32), 8);
	if (rows)
		len = put(buf, len, near(rows), 8);
	len = put(buf, len, near(type), 4);
	len = put(buf, len, *at, 8);
	*at = ALIGN_UP(*at + (type == 8 ? rows * 34 : type ? rows * 64 : 128),
		       32ull);
	return len;
}

static size_t whole(u8 *buf, size_t max)
{
	u32 i, nr_keys, nr = 0;
	size_t len;
	u64 at = 0;

	memcpy(buf, "GGUF", 4);
	put(buf, 4, 3, 4);
	len = put_keys(buf, 24, &nr_keys);
	for (i = 0; i < ARRAY_SIZE(tensors); i++) {
		if (!fuzz_draw(100))
			continue;
		len = put_tensor(buf, len, tensors[i].name, tensors[i].rows, &at);
		nr++;
	}
	for (i = fuzz_draw(2 * ARRAY_SIZE(rare)); i < ARRAY_SIZE(rare);
	     i += 1 + fuzz_draw(20), nr++)
		len = put_tensor(buf, len, rare[i], fuzz_draw(2) * 32, &at);
	put(buf, 8, nr, 8);
	put(buf, 16, nr_keys, 8);
	while (len % 32)
		buf[len++] = 0;
	memset(buf + len, 0x35, at);
	return min(len + at, max);
}

/* Change one number of the metadata or of a record. */
static size_t mutate(u8 *buf, size_t len, size_t max)
{
	const u64 v = odd[fuzz_draw(ARRAY_SIZE(odd))];
	const size_t at = fuzz_draw(8) ? fuzz_draw(2048) : fuzz_draw((u32)len);

	if (fuzz_draw(3) || at + 8 > len)
		return len;
	return fuzz_put(buf, len, max, at, 1u << fuzz_draw(4), &v,
			1u << fuzz_draw(4));
}

const struct fuzz_own fuzz_own = {
	.max = 32768, .words = archs, .nr_words = ARRAY_SIZE(archs),
	.begin = whole, .mutate = mutate, .changes = 2, .taken = &nr_taken,
};
#endif
