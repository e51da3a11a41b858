// SPDX-License-Identifier: Apache-2.0
/*
 * run_plan.c - the sizes of a private daemon
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <kvmm/cudrv.h>

#include "runtime/cli/cli.h"
#include "runtime/cli/run.h"

#define MIB			(1ull << 20)
#define HOST_EXTENT		(8 * MIB)
#define GPU_EXTENT		(64 * MIB)
#define POOL_LEAST		(256 * MIB)	/* so that several chats stay cached */
#define TOKENS_LEAST		64u
#define BLOCK_TOKENS		16u
#define EXTENT_BLOCKS		4u	/* blocks that an extent has at least */
#define SPARE_EXTENTS		2u

/* The largest power of two up to @v; @v is not 0. */
static u64 power_below(u64 v)
{
	return 1ull << (63 - __builtin_clzll(v));
}

bool run_sizes(const struct run_need *n, u64 room, u64 pool, struct run_plan *p)
{
	const u64 block = n->token_bytes * BLOCK_TOKENS;
	const u64 blocks = DIV_ROUND_UP(n->len, (u64)BLOCK_TOKENS);
	const u64 weights = min(n->weight_bytes, room);
	/* The other half of host memory is for all the rest. */
	const u64 most = p->gpu ? room - weights : (room - weights) / 2;
	u64 extent = p->gpu ? GPU_EXTENT : HOST_EXTENT, each, want, fits, least, spare;

	while (extent < EXTENT_BLOCKS * block)
		extent *= 2;
	each = extent / block;
	spare = SPARE_EXTENTS + DIV_ROUND_UP(n->adapter_bytes, extent);
	want = (DIV_ROUND_UP(blocks, each) + spare) * extent;
	if (!pool)
		pool = min(max(want, p->gpu ? 0 : POOL_LEAST), most);
	pool -= pool % extent;
	fits = max(pool / extent, spare) - spare;
	fits *= each * BLOCK_TOKENS;
	p->extent_bytes = extent;
	p->pool_bytes = pool;
	p->max_len = (u32)min(fits, n->len);
	/* A token of a smaller type takes an eighth of this at least. */
	least = power_below(n->least_bytes ? n->least_bytes : n->token_bytes) / 8;
	p->min_token_bytes = min(max(least, (u64)64), (u64)1 << 20);
	return p->max_len >= min((u64)TOKENS_LEAST, n->len);
}

/* MemAvailable, in bytes. */
static u64 host_room(void)
{
	FILE *f = fopen("/proc/meminfo", "re");
	unsigned long long kib = 0;
	char line[128];

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "MemAvailable: %llu", &kib) == 1)
			break;
	if (f)
		fclose(f);
	return kib << 10;
}

/* Memory of the first GPU that a model may use, in bytes; 0 after one line. */
static u64 gpu_room(void)
{
	char why[256] = "it does not tell its memory";
	const struct cu_api *cu = cudrv_open(why, sizeof(why));
	size_t total = 0;
	CUdevice dev;

	if (!cu || cu->DeviceGet(&dev, 0) || cu->DeviceTotalMem(&total, dev)) {
		pr_err("--backend cuda cannot be had: %s: give --backend host for the CPU, or install the driver of the GPU",
		       why);
		return 0;
	}
	/* Contexts and the workspace of the model take the rest. */
	return total - total / 8;
}

static int judge(const char *dir, u32 max_len, struct run_need *n)
{
	const struct model_opts mo = {
		.dtype = MODEL_F32, .max_len = max_len, .judge = true,
		.window_group = true,
	};
	const struct model_info *info;
	struct model_error err;
	struct model *model;
	u32 g;
	int ret;

	ret = model_load(dir, &mo, &model, &err);
	if (ret) {
		pr_err("%s", err.text);
		return ret == -EACCES ? EX_NOINPUT : cli_exit_of(ret);
	}
	info = model_info(model);
	*n = (struct run_need){
		.token_bytes = model_token_bytes(info),
		.least_bytes = model_token_bytes(info),
		.len = info->max_len, .weight_bytes = info->weight_bytes,
	};
	for (g = 0; g < info->nr_groups; g++)
		n->least_bytes = min(n->least_bytes, info->group[g].layers *
						     model_layer_bytes(info));
	model_free(model);
	return 0;
}

/*
 * Memory of an adapter: its file, widened from bf16 to f32, and room that its blocks
 * leave.  A folder without that file is refused later, with the reason.
 */
static u64 adapter_room(const char *dir)
{
	char path[PATH_MAX];
	struct stat st;

	if (!dir)
		return 0;
	snprintf(path, sizeof(path), "%s/adapter_model.safetensors", dir);
	return stat(path, &st) ? 0 : 2 * (u64)st.st_size + MIB;
}

int run_plan(const char *dir, const struct run_wish *w, struct run_plan *p)
{
	struct model_opts mo = { 0 };
	char pool[32];
	struct run_need n;
	u64 room;
	int ret;

	ret = judge(dir, w->max_len, &n);
	if (ret)
		return ret;
	n.adapter_bytes = adapter_room(w->lora);
	cli_backend_judged(w->backend, &mo);
	p->gpu = mo.kernel;
	room = p->gpu ? gpu_room() : host_room();
	if (p->gpu && !room)
		return EX_UNAVAILABLE;
	if (!run_sizes(&n, room, w->pool_bytes, p)) {
		pr_err("a pool of %s holds no %u tokens of this model, which takes %llu bytes a token: end other programs, or give a larger --pool-size",
		       kv_format_size(p->pool_bytes, pool, sizeof(pool)),
		       TOKENS_LEAST, (unsigned long long)n.token_bytes);
		return EX_OSERR;
	}
	if (p->max_len < n.len)
		pr_warn("the context is %u of %llu tokens, since more does not fit the pool of %s: give a larger --pool-size for more",
			p->max_len, (unsigned long long)n.len,
			kv_format_size(p->pool_bytes, pool, sizeof(pool)));
	return 0;
}
