// SPDX-License-Identifier: Apache-2.0
/*
 * bench.c - performance of the kernels and the runtime on a GPU
 *
 *	make gpu-bench [PART='attn step']
 *
 * Each part alone ends in less than nine minutes; Documentation/gpu.md has the
 * calls that go together.  --tiny runs every line once, on shapes that mean
 * nothing, also with the tests' library in the place of the driver.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/bench.h"

u32 bench_repeats(u32 of)
{
	return gpu_tiny ? 2 : of;
}

const char *bench_build(void)
{
	const char *dir = getenv("KVMM_BUILD");

	return dir && *dir ? dir : "build";
}

void bench_ok(struct bench *b)
{
	if (b->ops->wait(b->ctx))
		gpu_die("%s: %s", b->ops->name, b->ops->failure(b->ctx));
}

void bench_current(struct bench *b)
{
	GPU_DO(b->g.cu->CtxSetCurrent(b->g.context));
}

void bench_mode(struct bench *b, const char *mode)
{
	const struct kern_opts opts = { .graphs = true };
	char why[256] = "";

	if (b->ctx)
		kern_close(b->ops, b->ctx);
	b->mode = mode;
	b->ops = kern_get(strcmp(mode, "fast") ? "cuda" : "cuda-fast");
	if (!b->ops)
		gpu_die("this build has no kernels for GPUs");
	if (kern_open(b->ops, 0, &opts, &b->ctx, why, sizeof(why)))
		gpu_die("%s", why);
	bench_current(b);
	b->c = cuda_of(b->ctx);
}

void bench_open(struct bench *b, const char *part, const char *mode)
{
	memset(b, 0, sizeof(*b));
	probe_open(&b->g);
	b->read = ceiling_read(&b->g);
	gpu_fact(b->read, "GB/s", "plain reads, in this process",
		 "%s.ceiling.read", part);
	b->flush_bytes = gpu_tiny ? 65536 : 256 * GPU_MIB;
	b->flush = probe_device(&b->g, b->flush_bytes);
	bench_mode(b, mode);
}

void bench_flush(struct bench *b)
{
	struct p_read_args a = {
		.from = (const u8 *)(uintptr_t)b->flush,
		.quads = b->flush_bytes / 16,
		.out = (u32 *)(uintptr_t)b->flush,
	};

	gpu_launch(&b->g, gpu_kernel(&b->g, "p_read"),
		   gpu_tiny ? 2 : 8 * b->g.sms, 1, 256, b->c->stream, &a);
}

void bench_op_us(struct bench *b, void (*put)(void *), void *arg, double *us,
		 u32 nr)
{
	const struct cu_api *cu = b->g.cu;
	CUevent from, to;
	float ms;
	u32 i;

	GPU_DO(cu->EventCreate(&from, 0));
	GPU_DO(cu->EventCreate(&to, 0));
	put(arg);
	bench_ok(b);
	for (i = 0; i < nr; i++) {
		bench_flush(b);
		GPU_DO(cu->EventRecord(from, b->c->stream));
		put(arg);
		GPU_DO(cu->EventRecord(to, b->c->stream));
		bench_ok(b);
		GPU_DO(cu->EventElapsedTime(&ms, from, to));
		us[i] = 1e3 * ms;
	}
	GPU_DO(cu->EventDestroy(from));
	GPU_DO(cu->EventDestroy(to));
}

static const struct gpu_part parts[] = {
	{ "machine", 10, gpu_machine, "what this is" },
	{ "ceilings", 60, part_ceilings, "memory, bus, launches, products" },
	{ "attn", 240, part_attn, "decode attention, cold, replayed" },
	{ "prefill", 120, part_prefill, "causal attention of prompts" },
	{ "gemm", 240, part_gemm, "products, beside cuBLASLt" },
	{ "step", 400, part_step, "whole decode steps of Llama-3-8B's shape" },
	{ "swap", 120, part_swap, "decoding beside copies both ways" },
	{ "oversub", 480, part_oversub, "serving more than fits" },
	{ "two", 480, part_two, "two runtimes on one GPU" },
	{ 0 }
};

int main(int argc, char **argv)
{
	static const struct gpu_program bench = { "gpu-bench", parts };

	return gpu_main(&bench, argc, argv);
}
