// SPDX-License-Identifier: Apache-2.0
/*
 * probe_layout.c - cost of the place of blocks in a pool for a reader
 *
 * Decode attention of Llama-3-8B reads, layer by layer, K and V of every block
 * of every sequence.  The sweep does only these reads, over pools of several
 * sizes, with blocks of 16, 32 and 64 tokens in random order:
 *
 *	block	all layers of a block are neighbours
 *	layer	within an extent, all blocks of a layer are neighbours
 *
 * and over memory of handles as kvmm makes it, 64 MiB each, and of one
 * allocation.  Each figure is the rate of one whole step of 32 launches, beside
 * the rate of plain reads of as many bytes from the same pool.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/probe.h"

#define LAYERS		32u
#define HEADS		8u
#define ROW_BYTES	256u		/* 128 elements of bf16 */
#define UNIT		64u
#define EXTENT		(64 * GPU_MIB)
#define REPEATS		7u

struct pool {
	CUdeviceptr			base;
	u64				bytes;
	CUmemGenericAllocationHandle	*handles;	/* NULL: one allocation */
};

struct sweep {
	struct gpu		*g;
	const struct pool	*pool;
	CUfunction		layout;
	CUfunction		read;
	CUdeviceptr		entries;
	u32			nr;
	u32			tokens;
	bool			layer_major;
	u64			step_bytes;
};

static u64 random_next(u64 *state)
{
	*state = *state * 6364136223846793005ull + 1442695040888963407ull;
	return *state >> 33;
}

static bool pool_make(struct gpu *g, u64 bytes, bool handles, struct pool *p)
{
	u32 i, nr = bytes / EXTENT;

	memset(p, 0, sizeof(*p));
	p->bytes = bytes;
	if (!handles)
		return !g->cu->MemAlloc(&p->base, bytes);
	p->handles = calloc(nr, sizeof(*p->handles));
	GPU_DO(g->cu->MemAddressReserve(&p->base, bytes, 0, 0, 0));
	for (i = 0; i < nr; i++) {
		if (gpu_handle_create(g, EXTENT, &p->handles[i]))
			break;
		GPU_DO(g->cu->MemMap(p->base + i * EXTENT, EXTENT, 0,
				     p->handles[i], 0));
	}
	if (i == nr) {
		GPU_DO(gpu_set_access(g, p->base, bytes,
				      CU_MEM_ACCESS_READWRITE));
		return true;
	}
	while (i--) {
		GPU_DO(g->cu->MemUnmap(p->base + i * EXTENT, EXTENT));
		GPU_DO(g->cu->MemRelease(p->handles[i]));
	}
	GPU_DO(g->cu->MemAddressFree(p->base, bytes));
	free(p->handles);
	return false;
}

static void pool_free(struct gpu *g, struct pool *p)
{
	u32 i;

	if (!p->handles) {
		GPU_DO(g->cu->MemFree(p->base));
		return;
	}
	for (i = 0; i < p->bytes / EXTENT; i++) {
		GPU_DO(g->cu->MemUnmap(p->base + i * EXTENT, EXTENT));
		GPU_DO(g->cu->MemRelease(p->handles[i]));
	}
	GPU_DO(g->cu->MemAddressFree(p->base, p->bytes));
	free(p->handles);
}

static u64 layer_bytes(const struct sweep *s)
{
	return 2ull * HEADS * s->tokens * ROW_BYTES;
}

static u64 blocks_of_extent(const struct sweep *s)
{
	return EXTENT / (LAYERS * layer_bytes(s));
}

static u64 layer_stride(const struct sweep *s)
{
	return s->layer_major ? blocks_of_extent(s) * layer_bytes(s) :
				layer_bytes(s);
}

static u64 place_of(const struct sweep *s, u64 block)
{
	const u64 per = blocks_of_extent(s);

	return block / per * EXTENT + block % per *
	       (s->layer_major ? layer_bytes(s) : LAYERS * layer_bytes(s));
}

/* Choose table entries of @s->nr different blocks, from all over the pool. */
static void choose_blocks(struct sweep *s)
{
	const u64 all = s->pool->bytes / EXTENT * blocks_of_extent(s);
	u32 *order = malloc(all * sizeof(*order));
	u64 seed = 42, i, k;
	u32 swap;

	if (!order)
		gpu_die("no memory for a table");
	for (i = 0; i < all; i++)
		order[i] = (u32)i;
	if (s->nr > all)
		s->nr = (u32)all;
	for (i = 0; i < s->nr; i++) {
		k = i + random_next(&seed) % (all - i);
		swap = order[i];
		order[i] = order[k];
		order[k] = swap;
	}
	for (i = 0; i < s->nr; i++)
		order[i] = (u32)(place_of(s, order[i]) / UNIT);
	GPU_DO(s->g->cu->MemcpyHtoDAsync(s->entries, order,
					 s->nr * sizeof(*order), s->g->stream));
	GPU_DO(s->g->cu->StreamSynchronize(s->g->stream));
	free(order);
}

static u32 log2_of(u32 v)
{
	u32 n = 0;

	while (v > 1u << n)
		n++;
	return n;
}

static void put_step(void *arg)
{
	struct sweep *s = arg;
	const u32 parts = gpu_tiny ? 2 : s->g->sms;
	struct p_layout_args a = {
		.base = (const u8 *)(uintptr_t)s->pool->base,
		.unit = UNIT,
		.v_off = layer_bytes(s) / 2,
		.entries = (const u32 *)(uintptr_t)s->entries,
		.nr_entries = s->nr,
		.run_quads_log2 = log2_of(s->tokens * ROW_BYTES / 16),
		.out = (u32 *)(uintptr_t)s->entries,
	};
	u32 layer;

	for (layer = 0; layer < LAYERS; layer++) {
		a.layer_off = layer * layer_stride(s);
		gpu_launch(s->g, s->layout, parts, HEADS, 256, s->g->stream,
			   &a);
	}
}

/* Read as many bytes in as many launches, but one after the other. */
static void put_plain(void *arg)
{
	struct sweep *s = arg;
	const u64 each = s->step_bytes / LAYERS;
	struct p_read_args a = {
		.quads = each / 16, .out = (u32 *)(uintptr_t)s->entries,
	};
	u32 layer;

	for (layer = 0; layer < LAYERS; layer++) {
		a.from = (const u8 *)(uintptr_t)(s->pool->base + layer * each);
		gpu_launch(s->g, s->read, gpu_tiny ? 2 : 8 * s->g->sms, 1, 256,
			   s->g->stream, &a);
	}
}

static u32 repeats(void)
{
	return gpu_tiny ? 1 : REPEATS;
}

static double rate(struct sweep *s, void (*put)(void *), double *gbs)
{
	double us[REPEATS];
	u32 i;

	gpu_time_us(s->g, s->g->stream, put, s, us, repeats());
	for (i = 0; i < repeats(); i++)
		gbs[i] = s->step_bytes / us[i] / 1e3;
	return gpu_median(gbs, repeats());
}

static void sweep_pool(struct gpu *g, const struct pool *p, const char *kind)
{
	const u64 want = gpu_tiny ? 8 * GPU_MIB : 6 * GPU_GIB;
	struct sweep s = {
		.g = g, .pool = p,
		.layout = gpu_kernel(g, "p_layout"),
		.read = gpu_kernel(g, "p_read"),
	};
	struct gpu_line l = { "GB/s", "plain reads", 0, NULL };
	const u32 gib = p->bytes / GPU_GIB;
	double gbs[REPEATS];

	s.entries = probe_device(g, want / (LAYERS * 4096 * 16) * 4 + 4096);
	s.step_bytes = want;
	l.peer_value = rate(&s, put_plain, gbs);
	gpu_emit(&(struct gpu_line){ .unit = "GB/s" }, gbs, repeats(),
		 "layout.%uG.%s.plain", gib, kind);
	for (s.tokens = 16; s.tokens <= 64; s.tokens *= 2) {
		for (s.layer_major = false;; s.layer_major = true) {
			s.nr = want / (LAYERS * layer_bytes(&s));
			choose_blocks(&s);
			s.step_bytes = s.nr * LAYERS * layer_bytes(&s);
			rate(&s, put_step, gbs);
			gpu_emit(&l, gbs, repeats(), "layout.%uG.%s.%u.%s",
				 gib, kind, s.tokens,
				 s.layer_major ? "layer" : "block");
			if (s.layer_major)
				break;
		}
	}
	GPU_DO(g->cu->MemFree(s.entries));
}

void part_layout(void)
{
	static const u32 gib[] = { 8, 32, 64, 100, 120 };
	u64 bytes, free_bytes, total;
	struct pool p;
	struct gpu g;
	u32 i, handles;

	probe_open(&g);
	for (i = 0; i < (gpu_tiny ? 1 : 5); i++) {
		bytes = gpu_tiny ? EXTENT : gib[i] * GPU_GIB;
		for (handles = 0; handles < 2; handles++) {
			gpu_mem_info(&g, &free_bytes, &total);
			if ((!gpu_tiny && bytes + GPU_GIB > free_bytes) ||
			    !pool_make(&g, bytes, handles, &p)) {
				gpu_skipped("too little memory",
					    "layout.%uG.%s", gib[i],
					    handles ? "handles" : "one");
				continue;
			}
			probe_fill(&g, p.base, probe_bytes(p.bytes), 9);
			sweep_pool(&g, &p, handles ? "handles" : "one");
			pool_free(&g, &p);
		}
	}
}
