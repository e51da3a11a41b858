// SPDX-License-Identifier: Apache-2.0
/*
 * ctx.c - open, describe and close a GPU, and launch kernels on it
 *
 * Each model has its own context: a stream in the device's primary context, which
 * the whole process shares, the modules with the device code, and scratch memory.
 * Ops are put into the stream, and no op waits.
 *
 * Failures.  After an error of a kernel the driver's context is lost for the
 * whole process, so only the first failure counts: its code and text are kept, and
 * from then on nothing is launched or copied.  Ops return nothing; the functions
 * that wait for results return the failure.
 *
 * Threads.  One thread at a time uses a context, but not always the same thread.
 * The driver needs its context to be current on each of them; cuda_enter() makes
 * it so.
 */
#include <stdio.h>
#include <stdlib.h>

#include "kernels/cuda/internal.h"

/* From image.S: the image of each file of device code, then NULL. */
extern const void *const kern_cuda_images[];

static const struct {
	const char	*name;
	u32		smem;
} kernels[CUDA_NR_KERNELS] = {
#define x(name, smem)	{ #name, smem },
	CUDA_KERNELS(x)
#undef x
};

/* The id of the context that is current on this thread. */
static __thread u64 entered;

int cuda_fail(struct cuda_ctx *c, const char *what, CUresult r)
{
	if (!c->err) {
		c->err = c->opened ? -EIO : cudrv_errno(r);
		snprintf(c->why, sizeof(c->why), "%s: %s", what,
			 cudrv_name(r));
	}
	return c->err;
}

bool cuda_enter(struct cuda_ctx *c)
{
	CUresult r;

	if (c->err)
		return false;
	if (entered == c->id)
		return true;
	r = c->cu->CtxSetCurrent(c->context);
	if (r) {
		cuda_fail(c, "the GPU's context cannot be used", r);
		return false;
	}
	entered = c->id;
	return true;
}

void cuda_launch(struct cuda_ctx *c, enum cuda_kernel k, struct cuda_grid g,
		 const void *args)
{
	void *params[] = { (void *)(uintptr_t)args };
	CUresult r;

	if (!g.x || !g.y || !g.z || c->short_of || !cuda_enter(c))
		return;
	r = c->cu->LaunchKernel(c->fn[k], g.x, g.y, g.z, g.threads, 1, 1,
				g.smem, c->stream, params, NULL);
	if (r)
		cuda_fail(c, kernels[k].name, r);
}

void *cuda_scratch(struct cuda_ctx *c, u64 bytes)
{
	struct kern_ctx *ctx = (struct kern_ctx *)(void *)c;

	bytes = max(bytes, (u64)1);
	if (bytes <= c->scratch_bytes)
		return c->err ? NULL : c->scratch;
	if (c->step == CUDA_STEP_RECORD) {
		/* A recording cannot allocate: the step will be run again. */
		c->short_of = max(c->short_of, bytes);
		return NULL;
	}
	bytes = roundup_pow_of_two(bytes);
	cuda_graph_drop_all(c);
	cuda_mem_free(ctx, c->scratch);
	c->scratch = cuda_mem_alloc(ctx, bytes);
	c->scratch_bytes = c->scratch ? bytes : 0;
	if (!c->scratch)
		cuda_fail(c, "no memory on the GPU for an op",
			  CUDA_ERROR_OUT_OF_MEMORY);
	return c->scratch;
}

static int open_fail(struct cuda_ctx *c, char *why, size_t len)
{
	const int err = c->err;

	snprintf(why, len, "%s", c->why);
	return err;
}

static u32 attribute(struct cuda_ctx *c, int which)
{
	int v = 0;
	CUresult r = c->err ? CUDA_SUCCESS :
		     c->cu->DeviceGetAttribute(&v, which, c->device);

	if (r)
		cuda_fail(c, "the GPU cannot be asked what it is", r);
	return v;
}

static int device_get(struct cuda_ctx *c, u32 number)
{
	int nr = 0;
	CUresult r = c->cu->DeviceGetCount(&nr);

	if (r)
		return cuda_fail(c, "GPUs cannot be counted", r);
	if (number >= (u32)nr) {
		cuda_fail(c, "", CUDA_ERROR_NO_DEVICE);
		snprintf(c->why, sizeof(c->why), nr ?
			 "there is no GPU %u: there are %d" :
			 "there is no GPU", number, nr);
		return c->err;
	}
	r = c->cu->DeviceGet(&c->device, number);
	if (r)
		return cuda_fail(c, "the GPU cannot be found", r);
	c->arch = 10 * attribute(c, CU_DEV_COMPUTE_CAPABILITY_MAJOR) +
		  attribute(c, CU_DEV_COMPUTE_CAPABILITY_MINOR);
	c->sms = attribute(c, CU_DEV_MULTIPROCESSOR_COUNT);
	c->smem_max = attribute(c, CU_DEV_MAX_SHARED_PER_BLOCK_OPTIN);
	return c->err;
}

/* Find kernel @k in the modules. */
static int function_get(struct cuda_ctx *c, u32 k)
{
	CUresult r = CUDA_ERROR_NOT_FOUND;
	char what[128];
	u32 i;

	for (i = 0; r == CUDA_ERROR_NOT_FOUND && i < c->nr_modules; i++)
		r = c->cu->ModuleGetFunction(&c->fn[k], c->module[i],
					     kernels[k].name);
	/* Static arrays count towards the default limit, too: always raise it. */
	if (!r && kernels[k].smem)
		r = c->cu->FuncSetAttribute(c->fn[k],
					    CU_FUNC_MAX_DYNAMIC_SHARED,
					    min(kernels[k].smem, c->smem_max));
	snprintf(what, sizeof(what), "the kernel %s cannot be loaded",
		 kernels[k].name);
	return r ? cuda_fail(c, what, r) : 0;
}

static int module_load(struct cuda_ctx *c, const void *image, const char *what)
{
	CUresult r;

	if (c->nr_modules == CUDA_MAX_MODULES)
		return cuda_fail(c, "there are too many images of kernels",
				 CUDA_ERROR_INVALID_IMAGE);
	r = c->cu->ModuleLoadData(&c->module[c->nr_modules], image);
	if (r)
		return cuda_fail(c, what, r);
	c->nr_modules++;
	return 0;
}

/*
 * Without an image the driver of a GPU fails to load the module.  Only the tests'
 * stand-in, which has its own code, accepts that.
 */
static int modules_load(struct cuda_ctx *c)
{
	u32 i;

	if (!kern_cuda_images[0])
		module_load(c, "none",
			    "this program was built without nvcc and has no code for GPUs");
	for (i = 0; !c->err && kern_cuda_images[i]; i++)
		module_load(c, kern_cuda_images[i],
			    "the GPU does not take the kernels");
	for (i = 0; !c->err && i < CUDA_NR_KERNELS; i++)
		function_get(c, i);
	return c->err;
}

static int context_make(struct cuda_ctx *c)
{
	static u64 ids;
	CUresult r = c->cu->DevicePrimaryCtxRetain(&c->context, c->device);

	if (r)
		return cuda_fail(c, "the GPU's context cannot be made", r);
	c->id = __atomic_add_fetch(&ids, 1, __ATOMIC_RELAXED);
	if (!cuda_enter(c))
		return c->err;
	r = c->cu->StreamCreateWithPriority(&c->stream, CU_STREAM_NON_BLOCKING,
					    0);
	return r ? cuda_fail(c, "the GPU's stream cannot be made", r) : 0;
}

int cuda_open(const struct kern_opts *opts, bool exact, struct kern_ctx **ret,
	      char *why, size_t len)
{
	const struct cu_api *cu = cudrv_open(why, len);
	struct cuda_ctx *c;
	int err;

	if (!cu)
		return -ENODEV;
	c = calloc(1, sizeof(*c));
	if (!c) {
		snprintf(why, len, "no memory");
		return -ENOMEM;
	}
	c->cu = cu;
	c->exact = exact;
	c->graphs = opts->graphs;
	if (device_get(c, opts->device) || context_make(c) || modules_load(c) ||
	    cuda_mem_init(c) || cuda_gemm_init(c)) {
		err = open_fail(c, why, len);
		cuda_close((struct kern_ctx *)(void *)c);
		return err;
	}
	c->opened = true;
	*ret = (struct kern_ctx *)(void *)c;
	return 0;
}

/* Errors are ignored: after a failure of the context the driver frees the rest. */
void cuda_close(struct kern_ctx *ctx)
{
	struct cuda_ctx *c = cuda_of(ctx);

	if (!c)
		return;
	if (c->context) {
		/* Also after a failure: free as much as possible. */
		(void)!c->cu->CtxSetCurrent(c->context);
		if (c->stream)
			(void)!c->cu->StreamSynchronize(c->stream);
		cuda_graph_drop_all(c);
		cuda_step_exit(c);
		cuda_draw_exit(c);
		cuda_adapt_exit(c);
		cuda_gemm_exit(c);
		cuda_mem_exit(c);
		while (c->nr_modules)
			(void)!c->cu->ModuleUnload(c->module[--c->nr_modules]);
		if (c->stream)
			(void)!c->cu->StreamDestroy(c->stream);
		(void)!c->cu->CtxSetCurrent(NULL);
		entered = 0;
		(void)!c->cu->DevicePrimaryCtxRelease(c->device);
	}
	free(c);
}

void cuda_describe(struct kern_ctx *ctx, struct kern_device *dev)
{
	struct cuda_ctx *c = cuda_of(ctx);
	size_t free_bytes = 0, bytes = 0;
	struct cu_uuid uuid = { 0 };

	/* Fields that the driver does not report stay 0. */
	if (c->cu->DeviceGetName(dev->name, sizeof(dev->name), c->device))
		dev->name[0] = 0;
	snprintf(dev->variant, sizeof(dev->variant), "sm_%u", c->arch);
	if (!c->cu->DeviceGetUuid(&uuid, c->device))
		memcpy(dev->uuid, uuid.bytes, sizeof(dev->uuid));
	if (cuda_enter(c) && !c->cu->MemGetInfo(&free_bytes, &bytes)) {
		dev->bytes = bytes;
		dev->free = free_bytes;
	}
}
