// SPDX-License-Identifier: Apache-2.0
/*
 * api.c - the frame around every call; device, context, modules, launches
 *
 * The environment decides which calls fail:
 *   $KVMM_STANDIN_FAIL   NAME:N[+][=RESULT],..: the Nth call of NAME (cuNAME,
 *                        or * for all together) fails, with + all after it
 *                        too; RESULT is 2, out of memory, by default
 *   $KVMM_STANDIN_FAULT  launch:N or copy:N: the Nth that runs fails the
 *                        context, and with it every call after it; =RESULT
 *                        behind it chooses the result
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/standin/driver.h"

#define MAX_RULES	16

static const char *const names[FN_NR] = {
#define x(name, symbol, args)	[FN_##name] = #name,
	CUDRV_FUNCTIONS(x)
#undef x
};

static struct rule {
	int fn;			/* -1: all */
	u64 nr;
	bool on;		/* and all after */
	CUresult r;
} rules[MAX_RULES];
static u32 nr_rules;

struct CUctx_st {
	u32 retained;
};

struct CUfunc_st {
	struct CUfunc_st *next;
	const struct shim_kernel *kernel;
	u32 smem_max;
};

struct CUmod_st {
	struct CUfunc_st *fns;
};

pthread_mutex_t drv_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t drv_done = PTHREAD_COND_INITIALIZER;
u64 drv_count[COUNT_NR];

static struct CUctx_st primary;
static bool initialized, forked;
static CUresult sticky;
static u64 lot;
static u64 calls[FN_NR], all_calls;
static u64 fault_launch, fault_copy;
static CUresult fault_result;
static __thread CUcontext current;
static __thread int capturing;
static __thread int entered;		/* needs of the call that runs */

u64 drv_env(const char *name, u64 or)
{
	const char *s = getenv(name);
	char *end;
	u64 n;

	if (!s || !*s)
		return or;
	n = strtoull(s, &end, 0);
	switch (*end) {
	case 'G': n <<= 10; fallthrough;
	case 'M': n <<= 10; fallthrough;
	case 'K': n <<= 10; break;
	default: break;
	}
	return n;
}

u64 drv_draw(void)
{
	if (!lot)
		lot = shim_seed();
	return shim_draw(&lot) >> 16;
}

void drv_die(const char *fmt, ...)
{
	char line[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	dprintf(STDERR_FILENO, "standin: %s\n", line);
	abort();
}

void drv_fault(CUresult r)
{
	sticky = fault_result ? fault_result : r;
}

bool drv_faulted(void)
{
	return sticky;
}

void drv_capturing(int by)
{
	capturing += by;
}

/* One NAME:N[+][=RESULT]. */
static void read_rule(const char *s)
{
	struct rule *r = &rules[nr_rules];
	char name[64];
	char *end;
	int i;

	if (nr_rules == MAX_RULES || sscanf(s, "%63[^:]:", name) != 1 ||
	    !strchr(s, ':'))
		drv_die("KVMM_STANDIN_FAIL: no NAME:N: %s", s);
	*r = (struct rule){ .fn = -1, .r = CUDA_ERROR_OUT_OF_MEMORY };
	for (i = 0; i < FN_NR; i++)
		if (!strcmp(name + (strncmp(name, "cu", 2) ? 0 : 2), names[i]))
			r->fn = i;
	if (r->fn < 0 && strcmp(name, "*"))
		drv_die("KVMM_STANDIN_FAIL: no function %s", name);
	r->nr = strtoull(strchr(s, ':') + 1, &end, 10);
	r->on = *end == '+';
	end += r->on;
	if (*end == '=')
		r->r = atoi(end + 1);
	nr_rules++;
}

static void read_env(void)
{
	const char *fault = getenv("KVMM_STANDIN_FAULT");
	char *copy = getenv("KVMM_STANDIN_FAIL"), *save, *s;

	if (fault && !strncmp(fault, "launch:", 7))
		fault_launch = strtoull(fault + 7, NULL, 10);
	if (fault && !strncmp(fault, "copy:", 5))
		fault_copy = strtoull(fault + 5, NULL, 10);
	if (fault && strchr(fault, '='))
		fault_result = atoi(strchr(fault, '=') + 1);
	if (!copy || !*copy)
		return;
	copy = strdup(copy);
	for (s = strtok_r(copy, ",", &save); s; s = strtok_r(NULL, ",", &save))
		read_rule(s);
	free(copy);
}

/* Is this the launch, or the copy, that must end the context? */
bool drv_fault_now(bool launch)
{
	const enum drv_count c = launch ? COUNT_LAUNCHES : COUNT_COPIES;

	return ++drv_count[c] == (launch ? fault_launch : fault_copy);
}

/* The result that a rule orders for this call. */
static CUresult planned(enum drv_fn fn)
{
	const u64 mine = ++calls[fn], all = ++all_calls;
	u32 i;

	for (i = 0; i < nr_rules; i++) {
		const struct rule *r = &rules[i];
		const u64 nr = r->fn < 0 ? all : mine;

		if (r->fn >= 0 && r->fn != (int)fn)
			continue;
		if (nr == r->nr || (r->on && nr > r->nr))
			return r->r;
	}
	return CUDA_SUCCESS;
}

static CUresult allowed(int needs)
{
	if (needs && (!initialized || forked))
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!(needs & DRV_CONTEXT))
		return CUDA_SUCCESS;
	if (!current || !primary.retained)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (sticky)
		return sticky;
	if ((needs & DRV_NO_CAPTURE) && capturing)
		return CUDA_ERROR_CAPTURE_UNSUPPORTED;
	return CUDA_SUCCESS;
}

CUresult drv_enter(enum drv_fn fn, int needs)
{
	CUresult r;

	pthread_mutex_lock(&drv_lock);
	r = needs ? planned(fn) : 0;
	if (!r)
		r = allowed(needs);
	entered = needs;
	if (r)
		pthread_mutex_unlock(&drv_lock);
	return r;
}

CUresult drv_leave(CUresult r)
{
	if (!r && (entered & DRV_CONTEXT))
		r = sticky;
	if (!stream_busy())
		range_close();
	pthread_mutex_unlock(&drv_lock);
	return r;
}

static void in_child(void)
{
	forked = true;
}

/* ---- the device ---- */

CUresult drv_Init(unsigned int flags)
{
	CUresult r = flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
	int err;

	pthread_mutex_lock(&drv_lock);
	if (forked)
		r = CUDA_ERROR_NOT_INITIALIZED;
	if (!r && !initialized) {
		read_env();
		r = planned(FN_Init);
		err = r ? 0 : account_open();
		if (err) {
			fprintf(stderr, "standin: no account: %s\n",
				strerror(-err));
			r = CUDA_ERROR_UNKNOWN;
		}
		initialized = !r;
		if (initialized)
			pthread_atfork(NULL, NULL, in_child);
	}
	pthread_mutex_unlock(&drv_lock);
	return r;
}

CUresult drv_DriverGetVersion(int *version)
{
	*version = 12040;
	return CUDA_SUCCESS;
}

static const struct {
	CUresult r;
	const char *name;
} results[] = {
#define x(name)	{ name, #name }
	x(CUDA_SUCCESS), x(CUDA_ERROR_INVALID_VALUE),
	x(CUDA_ERROR_OUT_OF_MEMORY), x(CUDA_ERROR_NOT_INITIALIZED),
	x(CUDA_ERROR_DEINITIALIZED), x(CUDA_ERROR_NO_DEVICE),
	x(CUDA_ERROR_INVALID_DEVICE), x(CUDA_ERROR_INVALID_IMAGE),
	x(CUDA_ERROR_INVALID_CONTEXT), x(CUDA_ERROR_ALREADY_MAPPED),
	x(CUDA_ERROR_NO_BINARY_FOR_GPU), x(CUDA_ERROR_NOT_MAPPED),
	x(CUDA_ERROR_INVALID_HANDLE), x(CUDA_ERROR_NOT_FOUND),
	x(CUDA_ERROR_NOT_READY), x(CUDA_ERROR_ILLEGAL_ADDRESS),
	x(CUDA_ERROR_LAUNCH_FAILED), x(CUDA_ERROR_NOT_PERMITTED),
	x(CUDA_ERROR_NOT_SUPPORTED), x(CUDA_ERROR_UNKNOWN),
#undef x
	{ CUDA_ERROR_HOST_ALREADY_REGISTERED,
	  "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED" },
	{ CUDA_ERROR_HOST_NOT_REGISTERED,
	  "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED" },
	{ CUDA_ERROR_CAPTURE_UNSUPPORTED,
	  "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED" },
	{ CUDA_ERROR_CAPTURE_INVALIDATED,
	  "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED" },
	{ CUDA_ERROR_CAPTURE_UNMATCHED,
	  "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED" },
	{ CUDA_ERROR_CAPTURE_UNJOINED, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED" },
	{ CUDA_ERROR_CAPTURE_ISOLATION,
	  "CUDA_ERROR_STREAM_CAPTURE_ISOLATION" },
};

CUresult drv_GetErrorName(CUresult r, const char **name)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(results); i++)
		if (results[i].r == r) {
			*name = results[i].name;
			return CUDA_SUCCESS;
		}
	*name = NULL;
	return CUDA_ERROR_INVALID_VALUE;
}

CUresult drv_GetErrorString(CUresult r, const char **text)
{
	return drv_GetErrorName(r, text);
}

CUresult drv_DeviceGetCount(int *nr)
{
	ENTER(DeviceGetCount, DRV_INIT);
	*nr = (int)drv_env("KVMM_STANDIN_DEVICES", 1);
	return drv_leave(CUDA_SUCCESS);
}

CUresult drv_DeviceGet(CUdevice *dev, int nr)
{
	ENTER(DeviceGet, DRV_INIT);
	*dev = nr;
	return drv_leave(nr == 0 && drv_env("KVMM_STANDIN_DEVICES", 1) ?
			 CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE);
}

CUresult drv_DeviceGetName(char *name, int len, CUdevice dev)
{
	ENTER(DeviceGetName, DRV_INIT);
	snprintf(name, (size_t)len, "a stand-in on a CPU");
	return drv_leave(dev ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS);
}

CUresult drv_DeviceGetUuid(struct cu_uuid *uuid, CUdevice dev)
{
	ENTER(DeviceGetUuid, DRV_INIT);
	memcpy(uuid->bytes, "kvmm-stand-in-00", 16);
	return drv_leave(dev ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS);
}

CUresult drv_DeviceGetAttribute(int *value, int attr, CUdevice dev)
{
	const int arch = (int)drv_env("KVMM_STANDIN_ARCH", 90);
	const int kib = arch >= 90 ? 227 : arch == 80 ? 163 : 99;

	ENTER(DeviceGetAttribute, DRV_INIT);
	switch (attr) {
	case CU_DEV_COMPUTE_CAPABILITY_MAJOR: *value = arch / 10; break;
	case CU_DEV_COMPUTE_CAPABILITY_MINOR: *value = arch % 10; break;
	case CU_DEV_MAX_SHARED_PER_BLOCK_OPTIN: *value = kib << 10; break;
	case CU_DEV_MULTIPROCESSOR_COUNT:
		*value = (int)drv_env("KVMM_STANDIN_SMS", 4);
		break;
	case CU_DEV_L2_CACHE_SIZE: *value = 4 << 20; break;
	case CU_DEV_ASYNC_ENGINE_COUNT: *value = 2; break;
	case CU_DEV_UNIFIED_ADDRESSING:
	case CU_DEV_VMM_SUPPORTED:
	case CU_DEV_HANDLE_TYPE_FD_SUPPORTED: *value = 1; break;
	case CU_DEV_INTEGRATED:
	case CU_DEV_PCI_BUS_ID:
	case CU_DEV_PCI_DEVICE_ID:
	case CU_DEV_PCI_DOMAIN_ID: *value = 0; break;
	case CU_DEV_HOST_NUMA_ID: *value = -1; break;
	default: return drv_leave(CUDA_ERROR_INVALID_VALUE);
	}
	return drv_leave(dev ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS);
}

CUresult drv_DeviceTotalMem(size_t *bytes, CUdevice dev)
{
	ENTER(DeviceTotalMem, DRV_INIT);
	*bytes = account_total();
	return drv_leave(dev ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS);
}

CUresult drv_DevicePrimaryCtxRetain(CUcontext *ctx, CUdevice dev)
{
	ENTER(DevicePrimaryCtxRetain, DRV_INIT);
	primary.retained++;
	*ctx = &primary;
	return drv_leave(dev ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS);
}

CUresult drv_DevicePrimaryCtxRelease(CUdevice dev)
{
	ENTER(DevicePrimaryCtxRelease, DRV_INIT);
	if (dev || !primary.retained)
		return drv_leave(CUDA_ERROR_INVALID_CONTEXT);
	if (!sticky)
		stream_run_all();
	if (!--primary.retained)
		sticky = 0;
	return drv_leave(CUDA_SUCCESS);
}

CUresult drv_CtxSetCurrent(CUcontext ctx)
{
	ENTER(CtxSetCurrent, DRV_INIT);
	if (ctx && ctx != &primary)
		return drv_leave(CUDA_ERROR_INVALID_CONTEXT);
	current = ctx;
	return drv_leave(CUDA_SUCCESS);
}

CUresult drv_CtxSynchronize(void)
{
	ENTER(CtxSynchronize, DRV_INIT | DRV_CONTEXT | DRV_NO_CAPTURE);
	stream_run_all();
	range_check_all();
	return drv_leave(CUDA_SUCCESS);
}

/* ---- modules: each has every kernel that was compiled ---- */

CUresult drv_ModuleLoadData(CUmodule *module, const void *image)
{
	ENTER(ModuleLoadData, DRV_INIT | DRV_CONTEXT | DRV_NO_CAPTURE);
	*module = calloc(1, sizeof(**module));
	return drv_leave(!image ? CUDA_ERROR_INVALID_VALUE :
			 *module ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

CUresult drv_ModuleUnload(CUmodule module)
{
	struct CUfunc_st *f;

	ENTER(ModuleUnload, DRV_INIT | DRV_CONTEXT | DRV_NO_CAPTURE);
	stream_run_all();
	while ((f = module->fns)) {
		module->fns = f->next;
		free(f);
	}
	free(module);
	return drv_leave(CUDA_SUCCESS);
}

CUresult drv_ModuleGetFunction(CUfunction *fn, CUmodule module,
			       const char *name)
{
	const struct shim_kernel *k = shim_find(name);
	struct CUfunc_st *f;

	ENTER(ModuleGetFunction, DRV_INIT | DRV_CONTEXT);
	if (!k)
		return drv_leave(CUDA_ERROR_NOT_FOUND);
	for (f = module->fns; f && f->kernel != k; f = f->next)
		;
	if (!f) {
		f = calloc(1, sizeof(*f));
		if (!f)
			return drv_leave(CUDA_ERROR_OUT_OF_MEMORY);
		*f = (struct CUfunc_st){ module->fns, k, 48 << 10 };
		module->fns = f;
	}
	*fn = f;
	return drv_leave(CUDA_SUCCESS);
}

CUresult drv_FuncSetAttribute(CUfunction fn, int attr, int value)
{
	const int arch = (int)drv_env("KVMM_STANDIN_ARCH", 90);
	const int kib = arch >= 90 ? 227 : arch == 80 ? 163 : 99;

	ENTER(FuncSetAttribute, DRV_INIT | DRV_CONTEXT);
	if (attr != CU_FUNC_MAX_DYNAMIC_SHARED || value < 0 ||
	    value > kib << 10)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	if (value > 48 << 10)
		fn->smem_max = (u32)value;
	return drv_leave(CUDA_SUCCESS);
}

CUresult drv_OccupancyMaxActiveBlocks(int *blocks, CUfunction fn, int threads,
				      size_t smem)
{
	const u64 by_smem = (228 << 10) / (smem + 1024);
	u64 by_threads;

	ENTER(OccupancyMaxActiveBlocks, DRV_INIT | DRV_CONTEXT);
	if (threads <= 0)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	by_threads = 2048 / ALIGN_UP((u64)threads, 32);
	*blocks = (int)min(min(by_smem, by_threads), (u64)32);
	return drv_leave(CUDA_SUCCESS);
}

CUresult drv_LaunchKernel(CUfunction fn, unsigned int gx, unsigned int gy,
			  unsigned int gz, unsigned int bx, unsigned int by,
			  unsigned int bz, unsigned int smem, CUstream stream,
			  void **params, void **extra)
{
	struct op o = { .type = OP_LAUNCH };

	ENTER(LaunchKernel, DRV_INIT | DRV_CONTEXT);
	if (!fn || !stream_of(stream) || !params || extra || !gx || !gy ||
	    !gz || gx > 0x7fffffff || gy > 65535 || gz > 65535 || !bx ||
	    bx > 1024 || by != 1 || bz != 1)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	o.launch.l = (struct shim_launch){
		.kernel = fn->kernel, .args = params[0],
		.grid = { gx, gy, gz }, .threads = bx, .smem = smem,
		.smem_max = fn->smem_max,
	};
	return drv_leave(stream_put(stream_of(stream), &o));
}

/* ---- the report at the end ---- */

static const char *const count_names[COUNT_NR] = {
	"created", "imported", "exported", "released", "mapped", "unmapped",
	"alloc", "free", "pinned", "unpinned", "streams", "streams_gone",
	"events", "events_gone", "graphs", "graphs_gone", "launches", "copies",
	"copied_bytes",
};

__attribute__((destructor)) static void report(void)
{
	const char *path = getenv("KVMM_STANDIN_COUNT");
	FILE *f;
	u32 i;

	if (!path || !*path || !initialized || forked)
		return;
	f = fopen(path, "a");
	if (!f)
		return;
	fprintf(f, "pid %d", (int)getpid());
	for (i = 0; i < COUNT_NR; i++)
		fprintf(f, " %s=%llu", count_names[i],
			(unsigned long long)drv_count[i]);
	for (i = 0; i < FN_NR; i++)
		if (calls[i])
			fprintf(f, " cu%s=%llu", names[i],
				(unsigned long long)calls[i]);
	fprintf(f, "\n");
	fclose(f);
}
