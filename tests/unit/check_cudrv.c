// SPDX-License-Identifier: Apache-2.0
/*
 * check_cudrv.c - the driver's interface as we declare it
 *
 * The declarations of cudrv.h are compared with cuda.h by a compiler, where
 * the toolkit is installed: types of functions, sizes and offsets of
 * structures, values of names.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <kvmm/cudrv.h>

static const char *dir;

static const struct value {
	const char *theirs;
	long ours;
} values[] = {
#define x(name)	{ #name, name }
	x(CUDA_SUCCESS), x(CUDA_ERROR_INVALID_VALUE),
	x(CUDA_ERROR_OUT_OF_MEMORY), x(CUDA_ERROR_NOT_INITIALIZED),
	x(CUDA_ERROR_DEINITIALIZED), x(CUDA_ERROR_NO_DEVICE),
	x(CUDA_ERROR_INVALID_IMAGE), x(CUDA_ERROR_INVALID_CONTEXT),
	x(CUDA_ERROR_NO_BINARY_FOR_GPU), x(CUDA_ERROR_INVALID_HANDLE),
	x(CUDA_ERROR_NOT_FOUND), x(CUDA_ERROR_NOT_READY),
	x(CUDA_ERROR_ILLEGAL_ADDRESS), x(CUDA_ERROR_LAUNCH_FAILED),
	x(CUDA_ERROR_NOT_PERMITTED), x(CUDA_ERROR_NOT_SUPPORTED),
	x(CUDA_ERROR_UNKNOWN), x(CU_MEM_ALLOCATION_TYPE_PINNED),
	x(CU_MEM_LOCATION_TYPE_DEVICE), x(CU_MEMORYTYPE_HOST),
	x(CU_MEMORYTYPE_DEVICE), x(CU_STREAM_NON_BLOCKING),
	x(CU_EVENT_BLOCKING_SYNC), x(CU_EVENT_DISABLE_TIMING),
	x(CU_MEM_ATTACH_GLOBAL),
#undef x
	{ "CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR", CU_MEM_HANDLE_TYPE_FD },
	{ "CU_MEM_ACCESS_FLAGS_PROT_READ", CU_MEM_ACCESS_READ },
	{ "CU_MEM_ACCESS_FLAGS_PROT_READWRITE", CU_MEM_ACCESS_READWRITE },
	{ "CU_MEM_ALLOC_GRANULARITY_MINIMUM", CU_MEM_GRANULARITY_MINIMUM },
	{ "CU_MEM_ALLOC_GRANULARITY_RECOMMENDED",
	  CU_MEM_GRANULARITY_RECOMMENDED },
	{ "CU_MEMHOSTALLOC_PORTABLE", CU_HOST_ALLOC_PORTABLE },
	{ "CU_MEMHOSTREGISTER_PORTABLE", CU_MEMHOSTREGISTER_PORTABLE },
	{ "CU_STREAM_CAPTURE_MODE_THREAD_LOCAL", CU_CAPTURE_THREAD_LOCAL },
	{ "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES",
	  CU_FUNC_MAX_DYNAMIC_SHARED },
#define x(name)	{ "CU_DEVICE_ATTRIBUTE_" #name, CU_DEV_##name }
	x(MULTIPROCESSOR_COUNT), x(INTEGRATED), x(UNIFIED_ADDRESSING),
	x(PCI_BUS_ID), x(PCI_DEVICE_ID), x(PCI_DOMAIN_ID), x(L2_CACHE_SIZE),
	x(ASYNC_ENGINE_COUNT), x(COMPUTE_CAPABILITY_MAJOR),
	x(COMPUTE_CAPABILITY_MINOR), x(HOST_NUMA_ID),
#undef x
	{ "CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN",
	  CU_DEV_MAX_SHARED_PER_BLOCK_OPTIN },
	{ "CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED",
	  CU_DEV_VMM_SUPPORTED },
	{ "CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED",
	  CU_DEV_HANDLE_TYPE_FD_SUPPORTED },
};

static const struct member {
	const char *type, *member;
	size_t offset, size;
} members[] = {
#define x(type, member, s, f)						\
	{ #type, #member, offsetof(struct s, f), sizeof(((struct s *)0)->f) }
	x(CUmemAllocationProp, type, cu_mem_prop, type),
	x(CUmemAllocationProp, requestedHandleTypes, cu_mem_prop,
	  handle_types),
	x(CUmemAllocationProp, location, cu_mem_prop, location),
	x(CUmemAllocationProp, location.id, cu_mem_prop, location.id),
	x(CUmemAllocationProp, win32HandleMetaData, cu_mem_prop, win32),
	x(CUmemAllocationProp, allocFlags, cu_mem_prop, flags),
	x(CUmemAccessDesc, location, cu_mem_access, location),
	x(CUmemAccessDesc, flags, cu_mem_access, flags),
	x(CUDA_MEMCPY2D, srcXInBytes, cu_memcpy2d, src_x),
	x(CUDA_MEMCPY2D, srcY, cu_memcpy2d, src_y),
	x(CUDA_MEMCPY2D, srcMemoryType, cu_memcpy2d, src_type),
	x(CUDA_MEMCPY2D, srcHost, cu_memcpy2d, src_host),
	x(CUDA_MEMCPY2D, srcDevice, cu_memcpy2d, src_dev),
	x(CUDA_MEMCPY2D, srcArray, cu_memcpy2d, src_array),
	x(CUDA_MEMCPY2D, srcPitch, cu_memcpy2d, src_pitch),
	x(CUDA_MEMCPY2D, dstXInBytes, cu_memcpy2d, dst_x),
	x(CUDA_MEMCPY2D, dstY, cu_memcpy2d, dst_y),
	x(CUDA_MEMCPY2D, dstMemoryType, cu_memcpy2d, dst_type),
	x(CUDA_MEMCPY2D, dstHost, cu_memcpy2d, dst_host),
	x(CUDA_MEMCPY2D, dstDevice, cu_memcpy2d, dst_dev),
	x(CUDA_MEMCPY2D, dstArray, cu_memcpy2d, dst_array),
	x(CUDA_MEMCPY2D, dstPitch, cu_memcpy2d, dst_pitch),
	x(CUDA_MEMCPY2D, WidthInBytes, cu_memcpy2d, width),
	x(CUDA_MEMCPY2D, Height, cu_memcpy2d, height),
	x(CUuuid, bytes, cu_uuid, bytes),
#undef x
};

static const struct {
	const char *type;
	size_t size;
} sizes[] = {
	{ "CUmemAllocationProp", sizeof(struct cu_mem_prop) },
	{ "CUmemAccessDesc", sizeof(struct cu_mem_access) },
	{ "CUDA_MEMCPY2D", sizeof(struct cu_memcpy2d) },
	{ "CUuuid", sizeof(struct cu_uuid) },
	{ "CUdeviceptr", sizeof(CUdeviceptr) },
	{ "CUmemGenericAllocationHandle",
	  sizeof(CUmemGenericAllocationHandle) },
	{ "CUdevice", sizeof(CUdevice) },
	{ "CUresult", sizeof(CUresult) },
};

/* Our types of parameters that have another name in cuda.h. */
static const char *const renamed[][2] = {
	{ "struct cu_mem_prop", "CUmemAllocationProp" },
	{ "struct cu_mem_access", "CUmemAccessDesc" },
	{ "struct cu_memcpy2d", "CUDA_MEMCPY2D" },
	{ "struct cu_uuid", "CUuuid" },
};

static const struct {
	const char *symbol, *args;
} functions[] = {
#define x(name, symbol, args)	{ symbol, #args },
	CUDRV_FUNCTIONS(x)
#undef x
};

/* Parameters that are int here and an enumeration in cuda.h. */
static const char *const enums[][3] = {
	{ "cuGetErrorName", "CUresult", "CUresult" },
	{ "cuDeviceGetAttribute", "int,", "CUdevice_attribute," },
	{ "cuMemGetAllocationGranularity", "int)",
	  "CUmemAllocationGranularity_flags)" },
	{ "cuMemExportToShareableHandle", "int,", "CUmemAllocationHandleType," },
	{ "cuMemImportFromShareableHandle", "int)",
	  "CUmemAllocationHandleType)" },
	{ "cuStreamBeginCapture_v2", "int)", "CUstreamCaptureMode)" },
	{ "cuFuncSetAttribute", "int,", "CUfunction_attribute," },
};

static void replace(char *text, size_t len, const char *from, const char *to)
{
	char rest[512];
	char *p = strstr(text, from);

	while (p) {
		snprintf(rest, sizeof(rest), "%s", p + strlen(from));
		snprintf(p, len - (size_t)(p - text), "%s%s", to, rest);
		p = strstr(p + strlen(to), from);
	}
}

static void write_functions(FILE *f)
{
	char args[512];
	u32 i, k;

	for (i = 0; i < ARRAY_SIZE(functions); i++) {
		snprintf(args, sizeof(args), "%s", functions[i].args);
		for (k = 0; k < ARRAY_SIZE(renamed); k++)
			replace(args, sizeof(args), renamed[k][0],
				renamed[k][1]);
		for (k = 0; k < ARRAY_SIZE(enums); k++)
			if (!strcmp(functions[i].symbol, enums[k][0]))
				replace(args, sizeof(args), enums[k][1],
					enums[k][2]);
		/* Two functions of the same type are not told apart by this. */
		fprintf(f, "CUresult (*const f%u)%s = %s;\n", i, args,
			functions[i].symbol);
	}
}

static void write_unit(const char *path)
{
	FILE *f = fopen(path, "w");
	u32 i;

	ck_assert_ptr_nonnull(f);
	fprintf(f, "#include <stddef.h>\n#include <cuda.h>\n");
	for (i = 0; i < ARRAY_SIZE(values); i++)
		fprintf(f, "_Static_assert((long)%s == %ld, \"%s\");\n",
			values[i].theirs, values[i].ours, values[i].theirs);
	for (i = 0; i < ARRAY_SIZE(sizes); i++)
		fprintf(f, "_Static_assert(sizeof(%s) == %zu, \"%s\");\n",
			sizes[i].type, sizes[i].size, sizes[i].type);
	for (i = 0; i < ARRAY_SIZE(members); i++) {
		const struct member *m = &members[i];

		fprintf(f, "_Static_assert(offsetof(%s, %s) == %zu && sizeof(((%s *)0)->%s) == %zu, \"%s.%s\");\n",
			m->type, m->member, m->offset, m->type, m->member,
			m->size, m->type, m->member);
	}
	write_functions(f);
	fclose(f);
}

START_TEST(test_declarations)
{
	const char *cc = getenv("CC");
	char path[600], cmd[1500];

	if (access("/usr/local/cuda/include/cuda.h", R_OK)) {
		printf("SKIP: declarations against cuda.h: no /usr/local/cuda/include/cuda.h\n");
		return;
	}
	snprintf(path, sizeof(path), "%s/cudrv-decl.c", dir);
	write_unit(path);
	snprintf(cmd, sizeof(cmd), "%s -std=gnu11 -Wall -Werror -fsyntax-only -I/usr/local/cuda/include '%s'",
		 cc && *cc ? cc : "gcc", path);
	ck_assert_msg(!system(cmd), "%s", cmd);
	/* The comparison can fail: one declaration with another type does. */
	snprintf(cmd, sizeof(cmd), "sed -i 's/CUdeviceptr, const void/CUdeviceptr, const int/' '%s' && ! %s -std=gnu11 -Wall -Werror -fsyntax-only -I/usr/local/cuda/include '%s' 2>/dev/null",
		 path, cc && *cc ? cc : "gcc", path);
	ck_assert_msg(!system(cmd), "%s", cmd);
	unlink(path);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cudrv");
	TCase *tc = tcase_create("cudrv");
	SRunner *sr;
	int failed;

	dir = getenv("TMPDIR");
	if (!dir)
		dir = "/tmp";
	suite_add_tcase(s, tc);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, test_declarations);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
