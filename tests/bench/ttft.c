// SPDX-License-Identifier: Apache-2.0
/*
 * ttft.c - a kvrt serve, and prompts that are sent down the tiers
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/bench/ttft.h"

#define EXTENT		(1ull << 20)
#define SLOT		(TTFT_BLOCK + SWAPD_HEADER_BYTES)
#define AREA_BYTES	(2ull << 30)

static void make_model(const char *dir)
{
	const char *top = getenv("KVMM_TOP");
	char cmd[600], path[200];
	FILE *f;

	snprintf(cmd, sizeof(cmd),
		 "mkdir '%s' && cp '%s'/tests/data/demo-model/tokenizer*.json '%s'",
		 dir, top ? top : ".", dir);
	if (system(cmd))
		bench_die("%s cannot be made", dir);
	snprintf(path, sizeof(path), "%s/config.json", dir);
	f = fopen(path, "w");
	if (!f)
		bench_die("%s: %s", path, strerror(errno));
	fprintf(f, "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", "
		"\"hidden_size\": 768, \"num_hidden_layers\": %u, "
		"\"intermediate_size\": 2048, \"num_attention_heads\": %u, "
		"\"num_key_value_heads\": %u, \"head_dim\": 64, "
		"\"vocab_size\": 4096, \"max_position_embeddings\": 4096, "
		"\"rms_norm_eps\": 1e-05, \"rope_theta\": 500000.0, "
		"\"hidden_act\": \"silu\", \"tie_word_embeddings\": true, "
		"\"attention_bias\": false, \"mlp_bias\": false, "
		"\"initializer_range\": 0.02, \"torch_dtype\": \"bfloat16\", "
		"\"bos_token_id\": 0, \"eos_token_id\": 0}\n",
		TTFT_LAYERS, TTFT_HEADS, TTFT_HEADS);
	fclose(f);
}

/* Bytes in whole extents. */
static u64 extents(u64 bytes)
{
	return ALIGN_UP(bytes, EXTENT);
}

void ttft_start(struct ttft_node *n, u32 nr_pool, u32 nr_host)
{
	char pool[32], host[32], area[32], dir[160], cmd[256];
	const char *const args[] = {
		"--backend", "host", "--pool-size", pool, "--extent-size", "1M",
		"--host-size", host, "--area-max", area,
		"--min-token-bytes", "32768", "--max-clients", "4", NULL,
	};
	const char *const options[] = {
		"--dtype", "bf16", "--load-format", "dummy", "--domain", "ttft",
		"--served-model-name", "ttft", NULL,
	};

	snprintf(pool, sizeof(pool), "%llu",
		 (unsigned long long)extents(nr_pool * TTFT_BLOCK));
	snprintf(host, sizeof(host), "%llu",
		 (unsigned long long)extents(nr_host * SLOT));
	snprintf(area, sizeof(area), "%llu", (unsigned long long)AREA_BYTES);
	bench_hold_start(&n->hold, args);
	snprintf(cmd, sizeof(cmd), "swapon '%s/area' --size %llu", n->hold.dir,
		 (unsigned long long)AREA_BYTES);
	if (bench_kvctl(&n->hold, cmd))
		bench_die("no area: room in %s?", n->hold.dir);
	snprintf(dir, sizeof(dir), "%s/model", n->hold.dir);
	make_model(dir);
	bench_kvrt_start_model(&n->server, &n->hold, "ttft", dir, options);
}

void ttft_stop(struct ttft_node *n)
{
	bench_kvrt_stop(&n->server);
	bench_daemon_stop(&n->hold);
}

void ttft_ask(const struct ttft_node *n, u32 prompt, u32 nr, struct keep_answer *a)
{
	const struct keep_ask q = { .port = n->server.port, .model = "ttft",
				    .seed = prompt, .nr = nr, .answer = 1 };

	keep_stream(&q, a);
}

static void set_max(const struct ttft_node *n, const char *value)
{
	char cmd[128];

	snprintf(cmd, sizeof(cmd), "set domain/ttft/memory.max %s", value);
	if (bench_kvctl(&n->hold, cmd))
		bench_die("memory.max cannot be set to %s", value);
}

void ttft_send_down(const struct ttft_node *n, u32 round)
{
	struct keep_answer a;
	char value[32];

	snprintf(value, sizeof(value), "%llu",
		 (unsigned long long)(TTFT_LEFT * TTFT_BLOCK));
	set_max(n, value);
	ttft_ask(n, 1000000 + round, TTFT_TOKENS / 2, &a);
	set_max(n, "max");
	usleep(100000);
}

u64 ttft_counter(const struct ttft_node *n, const char *key)
{
	return bench_file_value(&n->hold, "vmstat", key);
}
