// SPDX-License-Identifier: Apache-2.0
/*
 * kern_bench.c - helpers of the benchmarks of the CPU kernels; see the header
 */
#include <stdlib.h>

#include "tests/bench/kern_bench.h"

struct kern_bench kb;

int kb_open(const char *name, u32 threads)
{
	const char *out = getenv("KVMM_BENCH_OUT");

	kb.ops = kern_get(name);
	if (!kb.ops) {
		fprintf(stderr, "bench: no kernels called %s here\n", name);
		return -1;
	}
	if (kern_ctx_create(threads, &kb.ctx))
		return -1;
	if (!kb.figures && out)
		kb.figures = fopen(out, "a");
	return 0;
}

void kb_close(void)
{
	kern_ctx_destroy(kb.ctx);
}

/* Blocks of 16 tokens, block-major; those of a sequence are scattered over the pool. */
void attn_bench_setup(struct attn_bench *b, u32 nr, u32 rows, u32 len,
		       u32 heads, u32 kv_heads, u32 hd, enum kern_dtype type)
{
	u32 blocks = DIV_ROUND_UP(len, 16), s, i;
	u64 n = (u64)blocks * nr, layer;

	b->kv = (struct kern_kv){ .unit = 64, .block_tokens = 16,
				  .nr_layers = 1, .kv_heads = kv_heads,
				  .head_dim = hd, .dtype = type };
	layer = kern_kv_layer_bytes(&b->kv);
	b->kv.layer_stride = layer;
	b->kv_bytes = n * layer;
	b->kv.base = limit_filled(n * layer / 2, KERN_BF16);
	b->table = calloc(n, sizeof(*b->table));
	for (i = 0; i < n; i++)
		b->table[i] = i * 7919ull % n * layer / 64;
	for (s = 0; s < nr; s++)
		b->seqs[s] = (struct kern_attn_seq){
			b->table + (u64)s * blocks, rows, s * rows, len - rows
		};
	b->a = (struct kern_attn){
		.kv = &b->kv, .nr_seqs = nr, .seqs = b->seqs,
		.q = limit_filled((u64)nr * rows * heads * hd, KERN_F32),
		.out = limit_filled((u64)nr * rows * heads * hd, KERN_F32),
		.heads = heads, .scale = 0.1f,
	};
}

void attn_bench_free(struct attn_bench *b)
{
	free(b->kv.base);
	free(b->table);
	free((void *)b->a.q);
	free(b->a.out);
}
