// SPDX-License-Identifier: Apache-2.0
/*
 * logits.c - the logits of every token of a text, for families.py and dense.py here
 *
 *	logits MODEL TOKENS OUT CHUNK [MAX_LEN [KERNEL [stored]]]
 *
 * TOKENS holds ids, 4 bytes each; OUT gets a row of 4-byte floats for each of them.  The
 * weights are made up, unless "stored" asks for those of MODEL.  The arithmetic is f32 in
 * exact mode.  The text is cut into chunks of CHUNK tokens.
 */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/model/model.h"

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

/* K and V of all tokens, in blocks that lie in reverse order. */
static bool run(struct model *model, u32 nr, u32 chunk, float *out)
{
	const struct model_info *info = model_info(model);
	const u64 layer = BLOCK * model_layer_bytes(info);
	const u32 blocks = DIV_ROUND_UP(nr, BLOCK);
	u32 table[MAX_TOKENS / BLOCK], i, n;
	struct model_seq_in in = { .table = { table } };
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

int main(int argc, char **argv)
{
	struct model_opts opts = {
		.dtype = MODEL_F32, .dummy = true, .nr_threads = 1,
		.mode = MODEL_EXACT,
	};
	struct model_error err;
	struct model *model;
	float *out;
	u64 all;
	u32 nr;
	FILE *f;

	if (argc < 5) {
		fprintf(stderr, "usage: logits MODEL TOKENS OUT CHUNK [MAX_LEN [KERNEL [stored]]]\n");
		return 64;
	}
	opts.max_len = argc > 5 ? (u32)atoi(argv[5]) : 0;
	opts.kernel = argc > 6 ? argv[6] : NULL;
	opts.dummy = argc < 8;
	if (model_load(argv[1], &opts, &model, &err)) {
		fprintf(stderr, "%s\n", err.text);
		return 1;
	}
	nr = read_tokens(argv[2]);
	all = nr * (u64)model_info(model)->nr_vocab;
	out = calloc(all, sizeof(*out));
	if (!nr || !out || !run(model, nr, (u32)atoi(argv[4]), out))
		return 1;
	f = fopen(argv[3], "w");
	if (!f || fwrite(out, sizeof(*out), all, f) != all || fclose(f))
		return 1;
	free(out);
	model_free(model);
	return 0;
}
