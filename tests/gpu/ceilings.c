// SPDX-License-Identifier: Apache-2.0
/*
 * ceilings.c - limits of this GPU, measured by the plainest means
 *
 * Other figures are shares of these, measured in the same run: the rates of
 * reading memory, of copying it, of multiplying matrices and of the bus, and the
 * cost of a launch and of a node of a graph.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/lt.h"
#include "tests/gpu/probe.h"

#define REPEATS		9
#define NODES		1000u

struct job {
	struct gpu	*g;
	CUdeviceptr	a, b, c;
	u64		bytes;
	u32		grid;
	u32		times;
	CUfunction	fn;
	CUgraphExec	graph;
	struct lt	*lt;
	void		*host;
};

static double gb_per_s(struct job *j, void (*put)(void *), u64 bytes,
		       double *gbs)
{
	double us[REPEATS];
	u32 i;

	gpu_time_us(j->g, j->g->stream, put, j, us, REPEATS);
	for (i = 0; i < REPEATS; i++)
		gbs[i] = bytes / us[i] / 1e3;
	return gpu_median(gbs, REPEATS);
}

/* ---- memory ---- */

static void put_read(void *arg)
{
	struct job *j = arg;
	struct p_read_args a = {
		.from = (const u8 *)(uintptr_t)j->a, .quads = j->bytes / 16,
		.out = (u32 *)(uintptr_t)j->a,
	};
	u32 i;

	for (i = 0; i < j->times; i++)
		gpu_launch(j->g, j->fn, j->grid, 1, 256, j->g->stream, &a);
}

static double best_read(struct gpu *g, double *best)
{
	static const u32 per_sm[] = { 2, 4, 6, 8 };
	double gbs[REPEATS], rate, most = 0;
	struct job j = { .g = g, .times = 1 };
	u32 i;

	j.bytes = probe_bytes(4 * GPU_GIB);
	j.a = probe_device(g, j.bytes);
	j.fn = gpu_kernel(g, "p_read");
	probe_fill(g, j.a, j.bytes, 5);
	for (i = 0; i < 4; i++) {
		j.grid = gpu_tiny ? 2 : per_sm[i] * g->sms;
		rate = gb_per_s(&j, put_read, j.bytes, gbs);
		if (rate > most) {
			most = rate;
			memcpy(best, gbs, sizeof(gbs));
		}
	}
	GPU_DO(g->cu->MemFree(j.a));
	return most;
}

double ceiling_read(struct gpu *g)
{
	double gbs[REPEATS];

	return best_read(g, gbs);
}

static void read_l2(struct gpu *g)
{
	struct job j = { .g = g, .times = 100 };
	double gbs[REPEATS];

	j.bytes = probe_bytes(16 * GPU_MIB);
	j.a = probe_device(g, j.bytes);
	j.fn = gpu_kernel(g, "p_read");
	j.grid = gpu_tiny ? 1 : 8 * g->sms;
	j.times = gpu_tiny ? 1 : j.times;
	gb_per_s(&j, put_read, j.bytes * j.times, gbs);
	gpu_emit(&(struct gpu_line){ "GB/s", NULL, 0, "16 MiB, 100 times" },
		 gbs, REPEATS, "ceilings.read_l2");
	GPU_DO(g->cu->MemFree(j.a));
}

static void put_copy(void *arg)
{
	struct job *j = arg;

	GPU_DO(j->g->cu->MemcpyDtoDAsync(j->b, j->a, j->bytes, j->g->stream));
}

static double copy_rate(struct gpu *g, double *gbs)
{
	struct job j = { .g = g };
	double rate;

	j.bytes = probe_bytes(4 * GPU_GIB);
	j.a = probe_device(g, j.bytes);
	j.b = probe_device(g, j.bytes);
	probe_fill(g, j.a, j.bytes, 6);
	rate = gb_per_s(&j, put_copy, 2 * j.bytes, gbs);
	GPU_DO(g->cu->MemFree(j.a));
	GPU_DO(g->cu->MemFree(j.b));
	return rate;
}

double ceiling_copy(struct gpu *g)
{
	double gbs[REPEATS];

	return copy_rate(g, gbs);
}

static void put_set(void *arg)
{
	struct job *j = arg;

	GPU_DO(j->g->cu->MemsetD32Async(j->a, 0x5a5a5a5a, j->bytes / 4,
					j->g->stream));
}

static void put_to_device(void *arg)
{
	struct job *j = arg;

	GPU_DO(j->g->cu->MemcpyHtoDAsync(j->a, j->host, j->bytes,
					 j->g->stream));
}

static void put_to_host(void *arg)
{
	struct job *j = arg;

	GPU_DO(j->g->cu->MemcpyDtoHAsync(j->host, j->a, j->bytes,
					 j->g->stream));
}

static void memory_figures(struct gpu *g)
{
	const struct gpu_line l = { .unit = "GB/s" };
	struct job j = { .g = g };
	double gbs[REPEATS];

	best_read(g, gbs);
	gpu_emit(&l, gbs, REPEATS, "ceilings.read");
	read_l2(g);
	copy_rate(g, gbs);
	gpu_emit(&(struct gpu_line){ "GB/s", NULL, 0, "read and written" },
		 gbs, REPEATS, "ceilings.copy");
	j.bytes = probe_bytes(256 * GPU_MIB);
	j.a = probe_device(g, j.bytes);
	j.host = probe_host(g, j.bytes);
	gb_per_s(&j, put_set, j.bytes, gbs);
	gpu_emit(&l, gbs, REPEATS, "ceilings.memset");
	gb_per_s(&j, put_to_device, j.bytes, gbs);
	gpu_emit(&l, gbs, REPEATS, "ceilings.H2D");
	gb_per_s(&j, put_to_host, j.bytes, gbs);
	gpu_emit(&l, gbs, REPEATS, "ceilings.D2H");
	GPU_DO(g->cu->MemFree(j.a));
	GPU_DO(g->cu->MemFreeHost(j.host));
}

/* ---- launches ---- */

static void put_empty(void *arg)
{
	struct p_empty_args a = { 0 };
	struct job *j = arg;
	u32 i;

	for (i = 0; i < j->times; i++)
		gpu_launch(j->g, j->fn, 1, 1, 32, j->g->stream, &a);
}

static void put_graph(void *arg)
{
	struct job *j = arg;

	GPU_DO(j->g->cu->GraphLaunch(j->graph, j->g->stream));
}

static void launch_figures(struct gpu *g)
{
	struct job j = { .g = g, .times = gpu_tiny ? 10 : NODES };
	double host[REPEATS], us[REPEATS];
	u32 i;

	j.fn = gpu_kernel(g, "p_empty");
	gpu_time_us(g, g->stream, put_empty, &j, us, REPEATS);
	for (i = 0; i < REPEATS; i++) {
		us[i] /= j.times;
		host[i] = gpu_now_us();
		put_empty(&j);
		host[i] = (gpu_now_us() - host[i]) / j.times;
		GPU_DO(g->cu->StreamSynchronize(g->stream));
	}
	gpu_emit(&(struct gpu_line){ "us", NULL, 0, "on the device" }, us,
		 REPEATS, "ceilings.launch");
	gpu_emit(&(struct gpu_line){ "us", NULL, 0, "the call" }, host, REPEATS,
		 "ceilings.launch_call");
}

static double node_us(struct gpu *g, double *us)
{
	struct job j = { .g = g, .times = gpu_tiny ? 10 : NODES };
	CUgraph graph;
	u32 i;

	j.fn = gpu_kernel(g, "p_empty");
	put_empty(&j);
	GPU_DO(g->cu->StreamSynchronize(g->stream));
	GPU_DO(g->cu->StreamBeginCapture(g->stream, CU_CAPTURE_THREAD_LOCAL));
	put_empty(&j);
	GPU_DO(g->cu->StreamEndCapture(g->stream, &graph));
	GPU_DO(g->cu->GraphInstantiate(&j.graph, graph, 0));
	gpu_time_us(g, g->stream, put_graph, &j, us, REPEATS);
	GPU_DO(g->cu->GraphExecDestroy(j.graph));
	GPU_DO(g->cu->GraphDestroy(graph));
	for (i = 0; i < REPEATS; i++)
		us[i] /= j.times;
	return gpu_median(us, REPEATS);
}

double ceiling_node(struct gpu *g)
{
	double us[REPEATS];

	return node_us(g, us);
}

/* ---- products ---- */

static void put_gemm(void *arg)
{
	struct job *j = arg;

	lt_put(j->lt, j->a, j->b, j->c, j->g->stream);
}

static double gemm_rate(struct gpu *g, double *tflops)
{
	const u64 n = gpu_tiny ? 64 : 8192, work = probe_bytes(64 * GPU_MIB);
	struct job j = { .g = g, .lt = lt_open() };
	CUdeviceptr scratch;
	double us[REPEATS];
	u32 i;

	if (!j.lt)
		return 0;
	j.a = probe_device(g, n * n * 2);
	j.b = probe_device(g, n * n * 2);
	j.c = probe_device(g, n * n * 4);
	scratch = probe_device(g, work);
	probe_fill_bf16(g, j.a, n * n, 1);
	probe_fill_bf16(g, j.b, n * n, 2);
	if (!lt_plan(j.lt, n, n, n, gpu_tiny, scratch, work))
		return 0;
	gpu_time_us(g, g->stream, put_gemm, &j, us, REPEATS);
	GPU_DO(g->cu->MemFree(j.a));
	GPU_DO(g->cu->MemFree(j.b));
	GPU_DO(g->cu->MemFree(j.c));
	GPU_DO(g->cu->MemFree(scratch));
	for (i = 0; i < REPEATS; i++)
		tflops[i] = 2.0 * n * n * n / us[i] / 1e6;
	return gpu_median(tflops, REPEATS);
}

double ceiling_gemm(struct gpu *g)
{
	double tflops[REPEATS];

	return gemm_rate(g, tflops);
}

void part_ceilings(void)
{
	double v[REPEATS];
	struct gpu g;

	probe_open(&g);
	memory_figures(&g);
	launch_figures(&g);
	node_us(&g, v);
	gpu_emit(&(struct gpu_line){ .unit = "us" }, v, REPEATS,
		 "ceilings.graph_node");
	if (gemm_rate(&g, v))
		gpu_emit(&(struct gpu_line){ .unit = "TFLOP/s" }, v, REPEATS,
			 "ceilings.gemm_bf16");
	else
		gpu_skipped("cuBLASLt is not here", "ceilings.gemm_bf16");
}
