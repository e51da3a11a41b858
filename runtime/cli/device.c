// SPDX-License-Identifier: Apache-2.0
/*
 * device.c - choose CPU or GPU
 *
 * Kernels must run where the blocks are: on a GPU if the daemon's pool is on
 * one, else on the CPU.  So --backend auto asks the daemon, and takes the GPU
 * that it names.  If no daemon answers yet, it makes the choice that the daemon
 * will make: the GPU, if there is one.  A mismatch is refused here, before
 * weights are read and before a domain changes hands.  It is checked again when
 * the engine attaches, since the guess may be wrong.
 */
#include <stdio.h>

#include <kvmm/cudrv.h>
#include <libkvmm.h>

#include "runtime/cli/cli.h"

enum { BACKEND_AUTO, BACKEND_HOST, BACKEND_CUDA };

/*
 * Find the number of GPU @tag, 0: the first one; true if there is such a GPU.
 * @why is also set on a machine without a driver.
 */
static bool gpu_find(u32 tag, u32 *number, char *why, size_t len)
{
	const struct cu_api *cu = cudrv_open(why, len);
	struct cu_uuid id;
	int nr = 0, i;
	CUdevice dev;

	if (!cu)
		return false;
	if (cu->DeviceGetCount(&nr) || !nr) {
		snprintf(why, len, "there is no GPU");
		return false;
	}
	*number = 0;
	for (i = 0; tag && i < nr; i++) {
		if (cu->DeviceGet(&dev, i) || cu->DeviceGetUuid(&id, dev) ||
		    cudrv_tag(&id) != tag)
			continue;
		*number = i;
		return true;
	}
	if (tag)
		snprintf(why, len,
			 "the daemon's pool is on a GPU that this process does not see: see CUDA_VISIBLE_DEVICES");
	return !tag;
}

static int take_gpu(struct model_opts *mo, u32 tag, bool must)
{
	char why[256];

	if (gpu_find(tag, &mo->device, why, sizeof(why))) {
		mo->kernel = "cuda";
		return 0;
	}
	if (!must)
		return 0;
	pr_err("--backend cuda cannot be had: %s: give --backend host for the CPU, or install the driver of the GPU",
	       why);
	return EX_UNAVAILABLE;
}

/* Are kernels named?  These run on the CPU, or compute nothing. */
static bool cpu_named(const struct model_opts *mo)
{
	return mo->kernel;
}

/*
 * Report a pool that CPU kernels cannot reach, or that GPU kernels cannot
 * reach.
 */
static int refuse(bool pool_on_gpu)
{
	pr_err("%s", pool_on_gpu ?
	       "the daemon's pool is on a GPU, where kernels of the CPU cannot reach it: leave --backend and --kernels out, or start kvmm with --backend host" :
	       "the daemon's pool is in host memory, where kernels of a GPU cannot reach it: leave --backend out, or start kvmm with --backend cuda");
	return EX_UNAVAILABLE;
}

/* The daemon has answered: the memory type of its pool decides. */
static int choose(u32 choice, u32 memory, u32 tag, struct model_opts *mo)
{
	const bool gpu = memory == KVMM_MEMORY_CUDA;
	const bool cpu = choice == BACKEND_HOST || cpu_named(mo);
	char why[256];
	u32 number;

	if (cpu || choice == BACKEND_CUDA) {
		if (mo->kernel && !strcmp(mo->kernel, "null"))
			return 0;
		if (cpu == gpu)
			return refuse(gpu);
	}
	if (gpu)
		return take_gpu(mo, tag, true);
	if (!cpu && gpu_find(0, &number, why, sizeof(why)))
		pr_info("the daemon's pool is in host memory: the model runs on the CPU, not on the GPU");
	return 0;
}

int cli_backend(u32 choice, const char *socket, struct model_opts *mo)
{
	u32 memory = KVMM_MEMORY_HOST, tag = 0;
	char text[256];

	if (choice == BACKEND_CUDA && cpu_named(mo)) {
		pr_err("--backend cuda has kernels of its own: leave --kernels out");
		return EX_USAGE;
	}
	/*
	 * If no daemon answers, the engine reports the reason when it attaches.
	 */
	if (!kvmm_ask(socket, &memory, &tag, text))
		return choose(choice, memory, tag, mo);
	if (choice == BACKEND_HOST || cpu_named(mo))
		return 0;
	return take_gpu(mo, 0, choice == BACKEND_CUDA);
}

void cli_backend_judged(u32 choice, struct model_opts *mo)
{
	char why[256];
	u32 number;

	if (choice == BACKEND_CUDA ||
	    (choice == BACKEND_AUTO && gpu_find(0, &number, why, sizeof(why))))
		mo->kernel = "cuda";
}
