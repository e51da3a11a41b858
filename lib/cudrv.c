// SPDX-License-Identifier: Apache-2.0
/*
 * cudrv.c - open the CUDA driver's library and find its functions
 *
 * A driver that lacks one function of the list is too old, and is not used at all.
 * The library is never closed, since the driver has its own threads in it.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include <kvmm/cudrv.h>

static struct cu_api api;
static bool usable;
static char reason[256];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void *find(void *lib, const char *symbol)
{
	void *p = dlsym(lib, symbol);

	if (!p && !*reason)
		snprintf(reason, sizeof(reason),
			 "the driver has no %s: install one of CUDA 12 or later",
			 symbol);
	return p;
}

static void load(void)
{
	const char *name = secure_getenv("KVMM_LIBCUDA");
	CUresult r;
	void *lib;

	lib = dlopen(name && *name ? name : CUDRV_SONAME, RTLD_NOW | RTLD_LOCAL);
	if (!lib) {
		snprintf(reason, sizeof(reason), "no CUDA driver: %s",
			 dlerror());
		return;
	}
#define x(fn, symbol, args)						\
	api.fn = (CUresult (*) args)(uintptr_t)find(lib, symbol);
	CUDRV_FUNCTIONS(x)
#undef x
	if (*reason)
		return;
	r = api.Init(0);
	usable = !r;
	if (r)
		snprintf(reason, sizeof(reason),
			 "the CUDA driver cannot be started: %s",
			 cudrv_name(r));
}

const struct cu_api *cudrv_open(char *why, size_t len)
{
	pthread_once(&once, load);
	if (usable)
		return &api;
	if (why && len)
		snprintf(why, len, "%s", reason);
	return NULL;
}

const char *cudrv_name(CUresult r)
{
	const char *name = NULL;

	if (api.GetErrorName && !api.GetErrorName(r, &name) && name)
		return name;
	return r == CUDA_ERROR_NO_DEVICE ? "CUDA_ERROR_NO_DEVICE" :
					   "an unknown error";
}

int cudrv_errno(CUresult r)
{
	switch (r) {
	case CUDA_SUCCESS:
		return 0;
	case CUDA_ERROR_OUT_OF_MEMORY:
		return -ENOMEM;
	case CUDA_ERROR_NO_DEVICE:
	case CUDA_ERROR_NOT_INITIALIZED:
	case CUDA_ERROR_DEINITIALIZED:
		return -ENODEV;
	case CUDA_ERROR_INVALID_VALUE:
	case CUDA_ERROR_INVALID_HANDLE:
	case CUDA_ERROR_NOT_FOUND:
		return -EINVAL;
	case CUDA_ERROR_NOT_READY:
		return -EAGAIN;
	case CUDA_ERROR_INVALID_IMAGE:
	case CUDA_ERROR_NO_BINARY_FOR_GPU:
		return -ENOEXEC;
	default:
		return -EIO;
	}
}
