// SPDX-License-Identifier: Apache-2.0
/*
 * keep_pair.c - a daemon and two kvrt serve with the demo model
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kvmm/swapd.h>

#include "tests/bench/keep_http.h"

#define BLOCK		32768u		/* bytes: 4 layers, 2 heads, bf16 */
#define SLOT		(BLOCK + SWAPD_HEADER_BYTES)
#define SPAN_SLOTS	16u		/* in a span of 9 extents */
#define AREA_HEAD	(1u << 20)

const char * const keep_model[KEEP_MODELS] = { "one", "two" };

static void start_kvrt(struct keep_pair *n, u32 i)
{
	const char *top = getenv("KVMM_TOP");
	const char *const args[] = {
		"--domain", keep_model[i], "--served-model-name", keep_model[i],
		"--threads", "1", "--kv-cache-dtype", "bf16", NULL,
	};
	char dir[512];

	snprintf(dir, sizeof(dir), "%s/tests/data/demo-model", top ? top : ".");
	bench_kvrt_start_model(&n->kvrt[i], &n->d, keep_model[i], dir, args);
}

void keep_pair_start(struct keep_pair *n, const struct keep_tiers *t, bool tiers)
{
	char pool[32], host[32], area[32], cmd[256];
	const char *const args[] = {
		"--backend", "host", "--pool-size", pool, "--extent-size", "64K",
		"--host-size", host, "--area-max", area,
		"--min-token-bytes", "2048", "--max-clients", "4", NULL,
	};
	const u64 slots = (u64)t->area * SLOT;
	const char *where = getenv("AREA_DIR");
	struct keep_ask q = { .nr = KEEP_TOKENS, .answer = 1 };	/* the first is slow */
	struct keep_answer a;
	u32 i;

	n->tiers = tiers;
	snprintf(pool, sizeof(pool), "%u", t->dev * BLOCK);
	snprintf(host, sizeof(host), "%u", tiers ? t->host * SLOT : 0);
	snprintf(area, sizeof(area), "%llu", tiers ? (unsigned long long)slots :
							 0);
	bench_hold_start(&n->d, args);
	snprintf(cmd, sizeof(cmd), "swapon '%s/keep_area.%d' --size %llu",
		 where ? where : n->d.dir, (int)getpid(),
		 (unsigned long long)slots + AREA_HEAD);
	if (tiers && slots && bench_kvctl(&n->d, cmd))
		bench_die("no area: room in %s?", n->d.dir);
	for (i = 0; i < KEEP_MODELS; i++) {
		start_kvrt(n, i);
		q.port = n->kvrt[i].port;
		q.model = keep_model[i];
		keep_ask(&q, &a);
	}
}

void keep_pair_stop(struct keep_pair *n)
{
	u32 i;

	for (i = 0; i < KEEP_MODELS; i++)
		bench_kvrt_stop(&n->kvrt[i]);
	bench_daemon_stop(&n->d);
}

u32 keep_pair_slots(const struct keep_pair *n, const char *key)
{
	const u64 bytes = bench_file_value(&n->d, "meminfo", key) * 1024;

	return (u32)(bytes / (SPAN_SLOTS * SLOT)) * SPAN_SLOTS;
}
