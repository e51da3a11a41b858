// SPDX-License-Identifier: Apache-2.0
/*
 * bench_records.c - prefix hits of a model with recurrent layers
 *
 * A record of state is kept as cache every --state-tokens tokens, and a hit ends at a
 * record.  Many records give long hits, but fill the cache.  A record of today's models has
 * as many bytes as the KV of 3,000 to 10,000 tokens: Qwen3-Next 3,100, Granite 4.0 Tiny
 * 6,900, Bamba 10,000.  So the choice is measured with chats (evict_trace.c), as bench_evict
 * does: the tokens found, in percent of those that an unbounded cache of blocks of 16 tokens
 * would find.  The size of the pool is told in GiB for a model with 16 KiB of KV a token.
 *
 * Deterministic: no figure depends on the machine.
 */
#include "tests/bench/bench.h"
#include "tests/bench/evict.h"

#define KV_TOKEN	(16ull << 10)	/* bytes of KV of a token */
#define GIB		(1ull << 30)

static const u32 every[] = { 64, 128, 256, 512, 1024, 2048 };
static const u32 record[] = { 3072, 10240 };
static const u32 pool[] = { 16, 64, 256 };

/* Blocks of EV_TOKENS in a pool. */
static u32 pool_blocks(u32 gib)
{
	return (u32)(gib * GIB / KV_TOKEN / EV_TOKENS);
}

static void sweep(const char *name, const struct ev_shape *shape, u64 seed)
{
	struct ev_trace t;
	u32 r, p, i;

	ev_trace_chats(&t, shape, seed);
	for (r = 0; r < ARRAY_SIZE(record); r++)
		for (p = 0; p < ARRAY_SIZE(pool); p++) {
			printf("| %s | %u | %u GiB |", name, record[r], pool[p]);
			for (i = 0; i < ARRAY_SIZE(every); i++) {
				const struct ev_records rec = { every[i], record[r] };
				u64 found = ev_run_records(&t, pool_blocks(pool[p]), &rec);

				printf(" %.1f |", 100.0 * (double)found / (double)ev_findable(&t));
				fflush(stdout);
			}
			printf("\n");
		}
	ev_trace_free(&t);
}

int main(void)
{
	u32 i;

	printf("| trace | record, in tokens of KV | pool |");
	for (i = 0; i < ARRAY_SIZE(every); i++)
		printf(" every %u |", every[i]);
	printf("\n");
	sweep("chats", &(struct ev_shape){ 1.0, 0, 0 }, 1);
	sweep("chats-scans", &(struct ev_shape){ 1.0, 20, 0 }, 1);
	return 0;
}
