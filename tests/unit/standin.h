/* SPDX-License-Identifier: Apache-2.0 */
/*
 * standin.h - a stream of the stand-in's driver, for its own tests
 *
 * A test uses the driver only in a child process: the environment sets the
 * driver's behaviour, and a fault ends the process.
 */
#ifndef TESTS_UNIT_STANDIN_H
#define TESTS_UNIT_STANDIN_H

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kvmm/cudrv.h>

#include "tests/standin/planted.h"

static const struct cu_api *cu;
static CUstream stream;
static CUmodule module;

#define MIB	(1ull << 20)

#define OK(call)							\
do {									\
	const CUresult r_ = cu->call;					\
									\
	ck_assert_msg(!r_, "%s: %s", #call, cudrv_name(r_));		\
} while (0)
#define FAILS(result, call)	ck_assert_int_eq(cu->call, (result))

/* The driver, a context and a stream; libcheck must not fork (CK_NOFORK). */
static inline void standin_open(void)
{
	char lib[512], why[256];
	CUcontext ctx;

	snprintf(lib, sizeof(lib), "%s/tests/standin/libcuda.so.1",
		 getenv("KVMM_BUILD"));
	setenv("KVMM_LIBCUDA", lib, 1);
	cu = cudrv_open(why, sizeof(why));
	ck_assert_msg(cu, "%s", why);
	OK(DevicePrimaryCtxRetain(&ctx, 0));
	OK(CtxSetCurrent(ctx));
	OK(StreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0));
	OK(ModuleLoadData(&module, "the stand-in has its own"));
}

static inline CUresult standin_launch(const char *name, u32 blocks, u32 threads,
				      u32 smem, const struct planted_args *a)
{
	void *params[] = { (void *)(uintptr_t)a };
	CUfunction fn;

	OK(ModuleGetFunction(&fn, module, name));
	return cu->LaunchKernel(fn, blocks, 1, 1, threads, 1, 1, smem, stream,
				params, NULL);
}

static inline CUdeviceptr standin_alloc(u64 bytes)
{
	CUdeviceptr p;

	OK(MemAlloc(&p, bytes));
	return p;
}

static inline void *pinned(u64 bytes)
{
	void *p;

	OK(MemHostAlloc(&p, bytes, 0));
	return p;
}

static const struct cu_mem_prop prop = {
	.type = CU_MEM_ALLOCATION_TYPE_PINNED,
	.handle_types = CU_MEM_HANDLE_TYPE_FD,
	.location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 },
};
static const struct cu_mem_access rw = {
	{ CU_MEM_LOCATION_TYPE_DEVICE, 0 }, CU_MEM_ACCESS_READWRITE,
};

/* ---- rules ---- */

/**
 * struct law - a rule of the driver that must hold
 * @var: environment variable that is set to @value
 * @opens: it opens the driver itself
 * @dies: it ends by abort(), with this text
 */
struct law {
	const char *name;
	void (*run)(void);
	const char *var, *value;
	bool opens;
	const char *dies;
};

static const char *law_dir;

static inline void in_law(const struct law *l, u32 seed, int err)
{
	char text[16];

	dup2(err, STDERR_FILENO);
	snprintf(text, sizeof(text), "%u", seed);
	setenv("KVMM_SHIM_SEED", text, 1);
	setenv("KVMM_STANDIN_MEM", "64M", 1);
	if (l->var)
		setenv(l->var, l->value, 1);
	if (!l->opens)
		standin_open();
	l->run();
	_exit(0);
}

/* Run one rule with one seed in a child. */
static inline void check_law(const struct law *l, u32 seed)
{
	char said[4096], path[600];
	int fd, status;
	ssize_t n;
	pid_t pid;

	snprintf(path, sizeof(path), "%s/said", law_dir);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	ck_assert_int_ge(fd, 0);
	fflush(NULL);
	pid = fork();
	if (!pid)
		in_law(l, seed, fd);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	n = pread(fd, said, sizeof(said) - 1, 0);
	said[n > 0 ? n : 0] = '\0';
	close(fd);
	if (l->dies)
		ck_assert_msg(WIFSIGNALED(status) && strstr(said, l->dies),
			      "%s, seed %u: status %#x: %s", l->name, seed,
			      (u32)status, said);
	else
		ck_assert_msg(!status, "%s, seed %u: status %#x: %s", l->name,
			      seed, (u32)status, said);
}

#endif /* TESTS_UNIT_STANDIN_H */
