// SPDX-License-Identifier: Apache-2.0
/*
 * logits.c - the logits of every token of a text, for families.py, dense.py and
 * adapter_texts.py here
 *
 *	logits MODEL TOKENS OUT CHUNK [MAX_LEN [KERNEL [stored [DTYPE [ADAPTER]]]]]
 *
 * TOKENS holds ids, 4 bytes each; OUT gets a row of 4-byte floats for each of them.  The
 * weights are made up, unless "stored" asks for those of MODEL.  The arithmetic is in exact
 * mode, of type f32, unless DTYPE is "bf16".  The text is cut into chunks of CHUNK tokens,
 * which all have ADAPTER, if it is given.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/model/adapter.h"

#define MAX_TOKENS	4096u
#define BLOCK		16u

static u32 tokens[MAX_TOKENS];

static u32 read_tokens(const char *path)
{
	FILE *f = fopen(path, "r");
	u32 n;

	if (!f)
		return 0;
	n = (u32)fread(tokens, sizeof(*tokens), MAX_TOKENS, f);
	fclose(f);
	return n;
}

/* The adapter in @dir, in memory that the process keeps. */
static int place_adapter(const struct model *model, const char *dir, struct adapter_place *place,
			 struct model_error *err)
{
	const u64 bytes = adapter_block_bytes(model, ADAPTER_DEF_RANK, err);
	struct adapter *a;
	void **blocks;
	u32 i, nr;
	int ret;

	ret = adapter_load(model, dir, ADAPTER_DEF_RANK, &a, err);
	if (ret)
		return ret;
	nr = adapter_blocks(a, bytes);
	blocks = calloc(nr, sizeof(*blocks));
	place->pair = calloc(adapter_pairs(model), sizeof(*place->pair));
	for (i = 0; i < nr && !ret; i++) {
		blocks[i] = aligned_alloc(64, bytes);
		ret = adapter_write(a, bytes, i, blocks[i]);
	}
	if (!ret)
		adapter_locate(a, bytes, blocks, place);
	free(blocks);
	adapter_free(a);
	return ret;
}

/* K and V of all tokens, in blocks that lie in reverse order. */
static bool run(struct model *model, const struct adapter_place *adapter, u32 nr, u32 chunk,
		float *out)
{
	const struct model_info *info = model_info(model);
	const u64 layer = BLOCK * model_layer_bytes(info);
	const u32 blocks = DIV_ROUND_UP(nr, BLOCK);
	u32 table[MAX_TOKENS / BLOCK], i, n;
	struct model_seq_in in = { .table = { table }, .adapter = adapter };
	struct model_kv kv = {
		.unit = 64, .block_tokens = { BLOCK }, .layer_stride = { layer },
	};
	bool ok = true;

	kv.base = aligned_alloc(64, layer * info->nr_layers * blocks);
	if (!kv.base)
		return false;
	for (i = 0; i < blocks; i++)
		table[i] = (u32)((blocks - 1 - i) * layer * info->nr_layers / 64);
	for (in.start = 0; ok && in.start < nr; in.start += n) {
		n = min(chunk, nr - in.start);
		in.tokens = tokens + in.start;
		in.nr_tokens = in.want_logits = n;
		ok = !model_forward(model, &kv, &in, 1,
				    out + in.start * (u64)info->nr_vocab);
	}
	free(kv.base);
	return ok;
}

static struct model_opts options(int argc, char **argv)
{
	return (struct model_opts){
		.dtype = argc > 8 && !strcmp(argv[8], "bf16") ? MODEL_BF16 : MODEL_F32,
		.mode = MODEL_EXACT,
		.nr_threads = 1,
		.max_len = argc > 5 ? (u32)atoi(argv[5]) : 0,
		.kernel = argc > 6 ? argv[6] : NULL,
		.dummy = argc < 8,
		.max_rank = argc > 9 ? ADAPTER_DEF_RANK : 0,
	};
}

int main(int argc, char **argv)
{
	const struct model_opts opts = options(argc, argv);
	struct adapter_place place = { NULL };
	struct model_error err = { "" };
	struct model *model;
	float *out;
	u64 all;
	u32 nr;
	FILE *f;

	if (argc < 5) {
		fprintf(stderr, "usage: logits MODEL TOKENS OUT CHUNK [MAX_LEN [KERNEL [stored [DTYPE "
			"[ADAPTER]]]]]\n");
		return 64;
	}
	if (model_load(argv[1], &opts, &model, &err) ||
	    (argc > 9 && place_adapter(model, argv[9], &place, &err))) {
		fprintf(stderr, "%s\n", err.text);
		return 1;
	}
	nr = read_tokens(argv[2]);
	all = nr * (u64)model_info(model)->nr_vocab;
	out = calloc(all, sizeof(*out));
	if (!nr || !out || !run(model, argc > 9 ? &place : NULL, nr, (u32)atoi(argv[4]), out))
		return 1;
	f = fopen(argv[3], "w");
	if (!f || fwrite(out, sizeof(*out), all, f) != all || fclose(f))
		return 1;
	free(out);
	model_free(model);
	return 0;
}
