// SPDX-License-Identifier: Apache-2.0
/*
 * adapter_pairs.c - the pairs of an adapter as kvmm lays them out, for adapters.py here
 *
 *	adapter_pairs MODEL ADAPTER OUT
 *
 * Prints a line for each pair: layer, site, rank, scale, columns of A, columns of the turned
 * B.  OUT gets the numbers of both, 4-byte floats, in the same order.  The arithmetic is f32.
 */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/model/adapter.h"
#include "runtime/model/adapter_internal.h"

static const char * const sites[NR_ADAPTER_SITES] = {
	[ADAPTER_Q] = "q", [ADAPTER_K] = "k", [ADAPTER_V] = "v", [ADAPTER_QKV] = "qkv",
	[ADAPTER_O] = "o", [ADAPTER_GATE] = "gate", [ADAPTER_UP] = "up", [ADAPTER_DOWN] = "down",
};

static bool print_pairs(const struct adapter *a, u64 block_bytes, FILE *out)
{
	const u32 nr = adapter_blocks(a, block_bytes);
	struct adapter_place place = { calloc(a->pairs, sizeof(*place.pair)) };
	void **blocks = calloc(nr, sizeof(*blocks));
	u32 i;

	for (i = 0; i < nr; i++) {
		blocks[i] = aligned_alloc(64, block_bytes);
		if (!blocks[i] || adapter_write(a, block_bytes, i, blocks[i]))
			return false;
	}
	adapter_locate(a, block_bytes, blocks, &place);
	for (i = 0; i < a->nr; i++) {
		const struct adapter_spot *s = &a->spots[i];
		const struct adapter_pair *p = &place.pair[s->layer * NR_ADAPTER_SITES + s->site];
		const u64 in = s->m[0].cols, rows = s->m[1].rows;

		printf("%u %s %u %.9g %llu %llu\n", s->layer, sites[s->site], p->rank, p->scale,
		       (unsigned long long)in, (unsigned long long)rows);
		if (fwrite(p->a, 4 * in, p->rank, out) != p->rank ||
		    fwrite(p->b, 4 * rows, p->rank, out) != p->rank)
			return false;
	}
	return true;
}

int main(int argc, char **argv)
{
	const struct model_opts opts = {
		.dtype = MODEL_F32, .mode = MODEL_EXACT, .dummy = true, .judge = true,
	};
	struct model_error err;
	struct adapter *a;
	struct model *model;
	u64 block_bytes;
	FILE *out;

	if (argc != 4) {
		fprintf(stderr, "usage: adapter_pairs MODEL ADAPTER OUT\n");
		return 64;
	}
	if (model_load(argv[1], &opts, &model, &err) ||
	    adapter_load(model, argv[2], ADAPTER_DEF_RANK, &a, &err)) {
		fprintf(stderr, "%s\n", err.text);
		return 1;
	}
	block_bytes = adapter_block_bytes(model, ADAPTER_DEF_RANK, &err);
	out = fopen(argv[3], "w");
	return !out || !print_pairs(a, block_bytes, out) || fclose(out);
}
