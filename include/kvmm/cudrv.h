/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cudrv.h - the CUDA driver, found at run time
 *
 * Nothing of the project is linked to CUDA: a program that can use a GPU opens
 * the driver's library, and a machine without it runs the same binary.  So this
 * file declares the part of the driver's interface that is used, each function
 * once, in one list; a build needs no headers or libraries of the toolkit.  A test
 * compares every declaration with cuda.h where that is installed.
 *
 * $KVMM_LIBCUDA names another library: tests put one there that runs on a CPU.
 *
 * Names are the driver's without "cu": cu->MemCreate() is cuMemCreate().
 */
#ifndef KVMM_CUDRV_H
#define KVMM_CUDRV_H

#include <kvmm/types.h>

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUarray_st *CUarray;
typedef unsigned long long CUmemGenericAllocationHandle;

/* Results that callers tell apart. */
enum {
	CUDA_SUCCESS			= 0,
	CUDA_ERROR_INVALID_VALUE	= 1,
	CUDA_ERROR_OUT_OF_MEMORY	= 2,
	CUDA_ERROR_NOT_INITIALIZED	= 3,
	CUDA_ERROR_DEINITIALIZED	= 4,
	CUDA_ERROR_NO_DEVICE		= 100,
	CUDA_ERROR_INVALID_IMAGE	= 200,
	CUDA_ERROR_INVALID_CONTEXT	= 201,
	CUDA_ERROR_NO_BINARY_FOR_GPU	= 209,
	CUDA_ERROR_ECC_UNCORRECTABLE	= 214,
	CUDA_ERROR_INVALID_HANDLE	= 400,
	CUDA_ERROR_NOT_FOUND		= 500,
	CUDA_ERROR_NOT_READY		= 600,
	CUDA_ERROR_ILLEGAL_ADDRESS	= 700,
	CUDA_ERROR_LAUNCH_TIMEOUT	= 702,
	CUDA_ERROR_CONTEXT_IS_DESTROYED	= 709,
	CUDA_ERROR_ILLEGAL_INSTRUCTION	= 715,
	CUDA_ERROR_MISALIGNED_ADDRESS	= 716,
	CUDA_ERROR_INVALID_ADDRESS_SPACE = 717,
	CUDA_ERROR_INVALID_PC		= 718,
	CUDA_ERROR_LAUNCH_FAILED	= 719,
	CUDA_ERROR_NOT_PERMITTED	= 800,
	CUDA_ERROR_NOT_SUPPORTED	= 801,
	CUDA_ERROR_UNKNOWN		= 999,
};

/* cuDeviceGetAttribute() */
enum {
	CU_DEV_MAX_SHARED_PER_BLOCK_OPTIN	= 97,
	CU_DEV_MULTIPROCESSOR_COUNT		= 16,
	CU_DEV_INTEGRATED			= 18,
	CU_DEV_UNIFIED_ADDRESSING		= 41,
	CU_DEV_PCI_BUS_ID			= 33,
	CU_DEV_PCI_DEVICE_ID			= 34,
	CU_DEV_PCI_DOMAIN_ID			= 50,
	CU_DEV_L2_CACHE_SIZE			= 38,
	CU_DEV_ASYNC_ENGINE_COUNT		= 40,
	CU_DEV_COMPUTE_CAPABILITY_MAJOR		= 75,
	CU_DEV_COMPUTE_CAPABILITY_MINOR		= 76,
	CU_DEV_VMM_SUPPORTED			= 102,
	CU_DEV_HANDLE_TYPE_FD_SUPPORTED		= 103,
	CU_DEV_HOST_NUMA_ID			= 134,
};

enum {
	CU_MEM_ALLOCATION_TYPE_PINNED	= 1,
	CU_MEM_HANDLE_TYPE_FD		= 1,
	CU_MEM_LOCATION_TYPE_DEVICE	= 1,
	CU_MEM_ACCESS_READ		= 1,
	CU_MEM_ACCESS_READWRITE		= 3,
	CU_MEM_GRANULARITY_MINIMUM	= 0,
	CU_MEM_GRANULARITY_RECOMMENDED	= 1,
	CU_MEMORYTYPE_HOST		= 1,
	CU_MEMORYTYPE_DEVICE		= 2,
	CU_STREAM_NON_BLOCKING		= 1,
	CU_EVENT_BLOCKING_SYNC		= 1,
	CU_EVENT_DISABLE_TIMING		= 2,
	CU_HOST_ALLOC_PORTABLE		= 1,
	CU_MEMHOSTREGISTER_PORTABLE	= 1,
	CU_CAPTURE_THREAD_LOCAL		= 1,
	CU_FUNC_MAX_DYNAMIC_SHARED	= 8,
	CU_MEM_ATTACH_GLOBAL		= 1,
};

struct cu_mem_location {
	int		type;
	int		id;
};

/* CUmemAllocationProp */
struct cu_mem_prop {
	int			type;
	int			handle_types;
	struct cu_mem_location	location;
	void			*win32;
	u8			flags[8];
};

/* CUmemAccessDesc */
struct cu_mem_access {
	struct cu_mem_location	location;
	int			flags;
};

/* CUDA_MEMCPY2D */
struct cu_memcpy2d {
	size_t		src_x, src_y;
	int		src_type;
	const void	*src_host;
	CUdeviceptr	src_dev;
	CUarray		src_array;
	size_t		src_pitch;
	size_t		dst_x, dst_y;
	int		dst_type;
	void		*dst_host;
	CUdeviceptr	dst_dev;
	CUarray		dst_array;
	size_t		dst_pitch;
	size_t		width, height;
};

/* CUuuid */
struct cu_uuid {
	char		bytes[16];
};

/*
 * x(name, symbol, (parameters)): all of them return CUresult.  The symbol is
 * that of the ABI that the parameters describe.
 */
#define CUDRV_FUNCTIONS(x)						\
	x(Init, "cuInit", (unsigned int))				\
	x(DriverGetVersion, "cuDriverGetVersion", (int *))		\
	x(GetErrorName, "cuGetErrorName", (CUresult, const char **))	\
	x(GetErrorString, "cuGetErrorString", (CUresult, const char **)) \
	x(DeviceGetCount, "cuDeviceGetCount", (int *))			\
	x(DeviceGet, "cuDeviceGet", (CUdevice *, int))			\
	x(DeviceGetName, "cuDeviceGetName", (char *, int, CUdevice))	\
	x(DeviceGetUuid, "cuDeviceGetUuid_v2", (struct cu_uuid *, CUdevice)) \
	x(DeviceGetAttribute, "cuDeviceGetAttribute",			\
	  (int *, int, CUdevice))					\
	x(DeviceTotalMem, "cuDeviceTotalMem_v2", (size_t *, CUdevice))	\
	x(DevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain",		\
	  (CUcontext *, CUdevice))					\
	x(DevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2",	\
	  (CUdevice))							\
	x(CtxSetCurrent, "cuCtxSetCurrent", (CUcontext))		\
	x(CtxSynchronize, "cuCtxSynchronize", (void))			\
	x(MemGetInfo, "cuMemGetInfo_v2", (size_t *, size_t *))		\
	x(MemGetAllocationGranularity, "cuMemGetAllocationGranularity",	\
	  (size_t *, const struct cu_mem_prop *, int))			\
	x(MemCreate, "cuMemCreate",					\
	  (CUmemGenericAllocationHandle *, size_t,			\
	   const struct cu_mem_prop *, unsigned long long))		\
	x(MemRelease, "cuMemRelease", (CUmemGenericAllocationHandle))	\
	x(MemExportToShareableHandle, "cuMemExportToShareableHandle",	\
	  (void *, CUmemGenericAllocationHandle, int,			\
	   unsigned long long))						\
	x(MemImportFromShareableHandle, "cuMemImportFromShareableHandle", \
	  (CUmemGenericAllocationHandle *, void *, int))		\
	x(MemAddressReserve, "cuMemAddressReserve",			\
	  (CUdeviceptr *, size_t, size_t, CUdeviceptr,			\
	   unsigned long long))						\
	x(MemAddressFree, "cuMemAddressFree", (CUdeviceptr, size_t))	\
	x(MemMap, "cuMemMap",						\
	  (CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle,	\
	   unsigned long long))						\
	x(MemUnmap, "cuMemUnmap", (CUdeviceptr, size_t))		\
	x(MemSetAccess, "cuMemSetAccess",				\
	  (CUdeviceptr, size_t, const struct cu_mem_access *, size_t))	\
	x(MemAlloc, "cuMemAlloc_v2", (CUdeviceptr *, size_t))		\
	x(MemAllocManaged, "cuMemAllocManaged",				\
	  (CUdeviceptr *, size_t, unsigned int))			\
	x(MemFree, "cuMemFree_v2", (CUdeviceptr))			\
	x(MemHostAlloc, "cuMemHostAlloc",				\
	  (void **, size_t, unsigned int))				\
	x(MemFreeHost, "cuMemFreeHost", (void *))			\
	x(MemHostRegister, "cuMemHostRegister_v2",			\
	  (void *, size_t, unsigned int))				\
	x(MemHostUnregister, "cuMemHostUnregister", (void *))		\
	x(MemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2",			\
	  (CUdeviceptr, const void *, size_t, CUstream))		\
	x(MemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2",			\
	  (void *, CUdeviceptr, size_t, CUstream))			\
	x(MemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2",			\
	  (CUdeviceptr, CUdeviceptr, size_t, CUstream))			\
	x(Memcpy2DAsync, "cuMemcpy2DAsync_v2",				\
	  (const struct cu_memcpy2d *, CUstream))			\
	x(MemsetD8Async, "cuMemsetD8Async",				\
	  (CUdeviceptr, unsigned char, size_t, CUstream))		\
	x(MemsetD32Async, "cuMemsetD32Async",				\
	  (CUdeviceptr, unsigned int, size_t, CUstream))		\
	x(StreamCreateWithPriority, "cuStreamCreateWithPriority",	\
	  (CUstream *, unsigned int, int))				\
	x(StreamDestroy, "cuStreamDestroy_v2", (CUstream))		\
	x(StreamSynchronize, "cuStreamSynchronize", (CUstream))		\
	x(StreamQuery, "cuStreamQuery", (CUstream))			\
	x(StreamWaitEvent, "cuStreamWaitEvent",				\
	  (CUstream, CUevent, unsigned int))				\
	x(StreamBeginCapture, "cuStreamBeginCapture_v2", (CUstream, int)) \
	x(StreamEndCapture, "cuStreamEndCapture", (CUstream, CUgraph *)) \
	x(GraphInstantiate, "cuGraphInstantiateWithFlags",		\
	  (CUgraphExec *, CUgraph, unsigned long long))			\
	x(GraphLaunch, "cuGraphLaunch", (CUgraphExec, CUstream))	\
	x(GraphExecDestroy, "cuGraphExecDestroy", (CUgraphExec))	\
	x(GraphDestroy, "cuGraphDestroy", (CUgraph))			\
	x(EventCreate, "cuEventCreate", (CUevent *, unsigned int))	\
	x(EventDestroy, "cuEventDestroy_v2", (CUevent))			\
	x(EventRecord, "cuEventRecord", (CUevent, CUstream))		\
	x(EventQuery, "cuEventQuery", (CUevent))			\
	x(EventSynchronize, "cuEventSynchronize", (CUevent))		\
	x(EventElapsedTime, "cuEventElapsedTime",			\
	  (float *, CUevent, CUevent))					\
	x(ModuleLoadData, "cuModuleLoadData", (CUmodule *, const void *)) \
	x(ModuleUnload, "cuModuleUnload", (CUmodule))			\
	x(ModuleGetFunction, "cuModuleGetFunction",			\
	  (CUfunction *, CUmodule, const char *))			\
	x(FuncSetAttribute, "cuFuncSetAttribute", (CUfunction, int, int)) \
	x(OccupancyMaxActiveBlocks,					\
	  "cuOccupancyMaxActiveBlocksPerMultiprocessor",		\
	  (int *, CUfunction, int, size_t))				\
	x(LaunchKernel, "cuLaunchKernel",				\
	  (CUfunction, unsigned int, unsigned int, unsigned int,	\
	   unsigned int, unsigned int, unsigned int, unsigned int,	\
	   CUstream, void **, void **))

/* struct cu_api - the functions of the driver, all of them there */
struct cu_api {
#define x(name, symbol, args)	CUresult (*name) args;
	CUDRV_FUNCTIONS(x)
#undef x
};

/* The driver's library, unless $KVMM_LIBCUDA names one. */
#define CUDRV_SONAME	"libcuda.so.1"

/**
 * cudrv_open() - load the driver, once a process
 * @why: @len bytes for one line with the reason of a failure; may be NULL
 *
 * Opens the library, finds every function and calls cuInit().  A failure is
 * final: the driver is not opened again.
 *
 * Return: the functions, valid for ever, or NULL.
 *
 * Context: slow, and the driver starts threads: before a sandbox closes.  Not
 * on a thread that may not wait.
 */
const struct cu_api *cudrv_open(char *why, size_t len);

/* cudrv_name() - a result in words: "CUDA_ERROR_OUT_OF_MEMORY" */
const char *cudrv_name(CUresult r);

/**
 * cudrv_errno() - a result as -errno
 *
 * Return: 0, -ENOMEM, -ENODEV, -EINVAL, -EAGAIN (not ready), -ENOEXEC (no code
 * for this GPU), -EIO (the device failed, and its context with it).
 */
int cudrv_errno(CUresult r);

/*
 * cudrv_tag() - a device in one word, by which two processes find the same one
 *
 * Ordinals differ with CUDA_VISIBLE_DEVICES; this does not.  Never 0.
 */
static inline u32 cudrv_tag(const struct cu_uuid *id)
{
	u32 h = 2166136261u, i;

	for (i = 0; i < sizeof(id->bytes); i++)
		h = (h ^ (u8)id->bytes[i]) * 16777619u;
	return h ? h : 1;
}

#endif /* KVMM_CUDRV_H */
