/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu.h - helpers of the programs that measure a GPU
 *
 * A program is a list of parts.  Each part runs in a process and process group of
 * its own, for a limited time.  Its figures so far count even if it is ended,
 * crashes or loses its context.  A figure is one line of a table for people and
 * one JSON object in the form of `make bench` for programs; a failure is a figure
 * as well, never the end of the run.
 *
 * These programs need only libc and the driver, by <kvmm/cudrv.h>: they run on
 * machines where little is installed.
 */
#ifndef TESTS_GPU_H
#define TESTS_GPU_H

#include <stdio.h>

#include <kvmm/cudrv.h>

#define GPU_MIB		(1ull << 20)
#define GPU_GIB		(1ull << 30)
#define GPU_REPEATS_MAX	64

/* ---- figures ---- */

/**
 * struct gpu_line - unit, peer and note of a figure
 * @unit:       "us", "GB/s"
 * @peer:       name of the peer, or NULL
 * @peer_value: the peer's figure, in the same unit
 * @note:       text, or NULL
 */
struct gpu_line {
	const char	*unit;
	const char	*peer;
	double		peer_value;
	const char	*note;
};

/* A figure: the median of @nr values, with the smallest and the largest. */
void gpu_emit(const struct gpu_line *l, const double *v, u32 nr,
	      const char *name, ...) __printf(4, 5);

/* A figure of one value, without spread. */
void gpu_fact(double value, const char *unit, const char *note,
	      const char *name, ...) __printf(4, 5);

/* A figure that could not be measured, and the reason; the part goes on. */
void gpu_failed(const char *why, const char *name, ...) __printf(2, 3);

/* The same for a figure that this machine cannot give or that was not asked for. */
void gpu_skipped(const char *why, const char *name, ...) __printf(2, 3);

/* Median of @nr values, which do not change. */
double gpu_median(const double *v, u32 nr);

/* The value that @percent of them do not exceed. */
double gpu_percentile(const double *v, u32 nr, double percent);

/* ---- parts ---- */

/**
 * struct gpu_part - one part of a program
 * @name:    as in $PART and --part=
 * @seconds: after this time it is ended
 * @run:     runs in its own process; returning is success
 * @what:    a line for people
 */
struct gpu_part {
	const char	*name;
	u32		seconds;
	void		(*run)(void);
	const char	*what;
};

/**
 * struct gpu_program - the program, for gpu_main()
 * @name:  names the file of figures, NAME.json
 * @parts: ends with an entry without name
 */
struct gpu_program {
	const char		*name;
	const struct gpu_part	*parts;
};

/* Tiny run: sizes are so small that every line runs, and figures mean nothing. */
extern bool gpu_tiny;

/**
 * gpu_main() - run the parts that the arguments name
 *
 * --part=A,B    only these parts
 * --tiny        sets gpu_tiny
 * --out=DIR     directory of NAME.json; else $OUT, else build/gpu
 * --list        print the parts
 *
 * Return: the exit status: 0 when all parts came to their end, 1 when one did
 * not, 2 for unknown arguments, 77 without a GPU.
 */
int gpu_main(const struct gpu_program *p, int argc, char **argv);

/* A part: name, memory, driver, settings, date and command, as figures. */
void gpu_machine(void);

/* ---- the GPU ---- */

struct gpu_more;

/**
 * struct gpu - a device, as a part uses it
 * @cu:      the driver
 * @more:    functions that not every driver has, each may be NULL
 * @dev:     device 0
 * @context: its primary context, current
 * @stream:  the part's stream
 * @module:  after gpu_load()
 * @sms:     multiprocessors
 * @l2:      bytes of its cache
 * @arch:    10 * major + minor
 */
struct gpu {
	const struct cu_api	*cu;
	const struct gpu_more	*more;
	CUdevice		dev;
	CUcontext		context;
	CUstream		stream;
	CUmodule		module;
	u32			sms;
	u64			l2;
	u32			arch;
};

/* CUmemcpyAttributes */
struct gpu_copy_attrs {
	int			order;
	struct cu_mem_location	from;
	struct cu_mem_location	to;
	unsigned int		flags;
};

#define GPU_MORE_FUNCTIONS(x)						\
	x(StreamWaitValue64, "cuStreamWaitValue64_v2",			\
	  (CUstream, CUdeviceptr, unsigned long long, unsigned int))	\
	x(StreamWriteValue64, "cuStreamWriteValue64_v2",		\
	  (CUstream, CUdeviceptr, unsigned long long, unsigned int))	\
	x(MemHostGetDevicePointer, "cuMemHostGetDevicePointer_v2",	\
	  (CUdeviceptr *, void *, unsigned int))			\
	x(MemcpyBatchAsync, "cuMemcpyBatchAsync_v2",			\
	  (CUdeviceptr *, CUdeviceptr *, size_t *, size_t,		\
	   struct gpu_copy_attrs *, size_t *, size_t, CUstream))

struct gpu_more {
#define x(name, symbol, args)	CUresult (*name) args;
	GPU_MORE_FUNCTIONS(x)
#undef x
};

/* Open device 0; on an error print a line and end the process. */
void gpu_open(struct gpu *g);

/* Load device code. */
void gpu_load(struct gpu *g, const void *image);

/* A kernel of the loaded code; if there is none end the process. */
CUfunction gpu_kernel(struct gpu *g, const char *name);

/* Put a kernel with one argument by value into @s. */
void gpu_launch(struct gpu *g, CUfunction f, u32 x, u32 y, u32 threads,
		CUstream s, const void *args);

/* "success", or the name of the result; its number if no driver is open. */
const char *gpu_result(CUresult r);

/* Unless @r is success print a line and end the process. */
void gpu_must(CUresult r, const char *what, const char *file, int line);
#define GPU_DO(call)	gpu_must((call), #call, __FILE__, __LINE__)

/* Is the driver the real one, and not a library named by $KVMM_LIBCUDA? */
bool gpu_is_real(void);

/* Microseconds of the monotonic clock. */
double gpu_now_us(void);

/**
 * gpu_time_us() - device time of the work that @fn puts into @s
 *
 * One run before is not counted.
 */
void gpu_time_us(struct gpu *g, CUstream s, void (*fn)(void *), void *arg,
		 double *us, u32 nr);

/* ---- memory ---- */

/* Free and all bytes of device memory. */
void gpu_mem_info(struct gpu *g, u64 *free_bytes, u64 *total);

/* Device memory as kvmm makes it: exportable, pinned, on device 0. */
CUresult gpu_handle_create(struct gpu *g, u64 bytes,
			   CUmemGenericAllocationHandle *h);

/* Map @h at @va; @access: CU_MEM_ACCESS_READ or _READWRITE */
CUresult gpu_handle_map(struct gpu *g, CUdeviceptr va, u64 bytes,
			CUmemGenericAllocationHandle h, int access);
CUresult gpu_set_access(struct gpu *g, CUdeviceptr va, u64 bytes, int access);

/* One mapped handle; a lack of memory ends the process. */
struct gpu_chunk {
	CUmemGenericAllocationHandle	handle;
	CUdeviceptr			va;
	u64				bytes;
};
void gpu_chunk_make(struct gpu *g, u64 bytes, struct gpu_chunk *c);
void gpu_chunk_free(struct gpu *g, struct gpu_chunk *c);

/* Make a descriptor of the chunk. */
int gpu_chunk_export(struct gpu *g, const struct gpu_chunk *c);

/* Map the memory of another process's descriptor, and close the descriptor. */
CUresult gpu_chunk_import(struct gpu *g, int fd, u64 bytes, int access,
			  struct gpu_chunk *c);

/* Print a line to standard error, and end the part. */
void __noreturn gpu_die(const char *fmt, ...) __printf(1, 2);

#endif /* TESTS_GPU_H */
