// SPDX-License-Identifier: Apache-2.0
/*
 * check_standin.c - rules of a driver that hosts rely on, with the stand-in
 *
 * Order and lateness of streams, events, recording and replay, faults that the
 * environment asks for, threads.  Each rule runs in separate processes, with
 * several seeds.
 */
#include "tests/unit/standin.h"

#include <pthread.h>

/* A pinned buffer is read when the copy runs, a plain one at the call. */
static void law_lazy(void)
{
	const CUdeviceptr d = standin_alloc(4096);
	u64 *h = pinned(4096), plain = 1, seen = 0, i;
	bool late = false;

	for (i = 0; i < 64; i++) {
		h[0] = 7;
		OK(MemcpyHtoDAsync(d, h, 8, stream));
		h[0] = 9;
		OK(StreamSynchronize(stream));
		OK(MemcpyDtoHAsync(&seen, d, 8, stream));
		late |= seen == 9;
		ck_assert(seen == 7 || seen == 9);
		OK(MemcpyHtoDAsync(d, &plain, 8, stream));
		plain++;
		OK(MemcpyDtoHAsync(h + 1, d, 8, stream));
		OK(StreamSynchronize(stream));
		ck_assert_uint_eq(h[1], plain - 1);
	}
	ck_assert(late);
	/* Queries come to an end, and an early answer is "not yet" at least once. */
	for (i = 0, late = false; i < 64; i++) {
		OK(MemcpyHtoDAsync(d, h, 8, stream));
		while (cu->StreamQuery(stream) == CUDA_ERROR_NOT_READY)
			late = true;
		OK(MemcpyHtoDAsync(d, h, 8, stream));
		OK(MemcpyHtoDAsync(d, h, 8, stream));
		while (cu->StreamQuery(stream) == CUDA_ERROR_NOT_READY)
			late = true;
	}
	ck_assert(late);
}

/* Another stream waits for an event; an event stands for its last record. */
static void law_events(void)
{
	const CUdeviceptr d = standin_alloc(4096);
	u64 *h = pinned(64), i;
	CUstream other;
	CUevent e, f;
	float ms;

	OK(StreamCreateWithPriority(&other, CU_STREAM_NON_BLOCKING, 0));
	OK(EventCreate(&e, 0));
	OK(EventCreate(&f, 0));
	ck_assert_int_eq(cu->EventQuery(e), CUDA_SUCCESS);
	for (i = 0; i < 50; i++) {
		h[0] = i;
		OK(EventRecord(f, stream));
		OK(MemcpyHtoDAsync(d, h, 8, stream));
		OK(EventRecord(e, stream));
		OK(StreamWaitEvent(other, e, 0));
		OK(MemcpyDtoHAsync(h + 1, d, 8, other));
		OK(StreamSynchronize(other));
		ck_assert_uint_eq(h[1], i);
		ck_assert_int_eq(cu->EventQuery(e), CUDA_SUCCESS);
	}
	OK(EventSynchronize(e));
	OK(EventElapsedTime(&ms, f, e));
	ck_assert(ms >= 0);
	OK(EventDestroy(f));
	OK(EventCreate(&f, CU_EVENT_DISABLE_TIMING));
	OK(EventRecord(f, stream));
	FAILS(CUDA_ERROR_INVALID_HANDLE, EventElapsedTime(&ms, f, e));
	OK(EventDestroy(e));
	OK(EventDestroy(f));
	OK(StreamDestroy(other));
	FAILS(CUDA_ERROR_INVALID_HANDLE, StreamSynchronize(other));
}

/* Recorded work runs at each replay, with the same addresses and arguments. */
static void law_graphs(void)
{
	struct planted_args a = { .n = 0 };
	const CUdeviceptr d = standin_alloc(16384);
	u32 *h = pinned(16384), i;
	CUgraphExec exec;
	CUgraph graph;
	CUdeviceptr p;
	CUevent e;

	a.out = (u32 *)(uintptr_t)d;
	OK(MemsetD8Async(d, 0, 16384, stream));
	OK(StreamBeginCapture(stream, CU_CAPTURE_THREAD_LOCAL));
	OK(MemcpyHtoDAsync(d + 4096, h, 4, stream));
	ck_assert_int_eq(standin_launch("p_grid", 8, 32, 0, &a), 0);
	memset(&a, 0, sizeof(a));
	FAILS(900, MemAlloc(&p, 64));
	OK(StreamEndCapture(stream, &graph));
	OK(GraphInstantiate(&exec, graph, 0));
	OK(GraphDestroy(graph));
	for (i = 1; i <= 5; i++) {
		h[0] = 100 + i;
		OK(GraphLaunch(exec, stream));
		OK(MemcpyDtoHAsync(h + 8, d, 32, stream));
		OK(MemcpyDtoHAsync(h + 16, d + 4096, 4, stream));
		OK(StreamSynchronize(stream));
		ck_assert_uint_eq(h[8 + 3], 4 * i);
		ck_assert_uint_eq(h[16], 100 + i);
	}
	OK(GraphLaunch(exec, stream));
	OK(GraphExecDestroy(exec));
	OK(StreamSynchronize(stream));
	/* A wait for the recording stream is an error, and ends the recording. */
	OK(StreamBeginCapture(stream, CU_CAPTURE_THREAD_LOCAL));
	FAILS(900, StreamSynchronize(stream));
	FAILS(901, StreamEndCapture(stream, &graph));
	OK(StreamSynchronize(stream));
	/* So is a wait for an event that was not recorded in it. */
	OK(EventCreate(&e, 0));
	OK(EventRecord(e, stream));
	OK(StreamBeginCapture(stream, CU_CAPTURE_THREAD_LOCAL));
	FAILS(905, StreamWaitEvent(stream, e, 0));
	FAILS(901, StreamEndCapture(stream, &graph));
}

/* A stream joins a recording by an event, and the recording must wait for it. */
static void law_forks(void)
{
	struct planted_args a = { .out = (u32 *)(uintptr_t)standin_alloc(4096) };
	CUstream other, first = stream;
	CUgraph graph;
	CUevent e, f;

	OK(EventCreate(&e, 0));
	OK(EventCreate(&f, 0));
	OK(StreamCreateWithPriority(&other, CU_STREAM_NON_BLOCKING, 0));
	OK(StreamBeginCapture(first, CU_CAPTURE_THREAD_LOCAL));
	OK(EventRecord(e, first));
	OK(StreamWaitEvent(other, e, 0));
	stream = other;
	ck_assert_int_eq(standin_launch("p_grid", 1, 32, 0, &a), 0);
	OK(EventRecord(f, other));
	OK(StreamWaitEvent(first, f, 0));
	OK(StreamEndCapture(first, &graph));
	OK(GraphDestroy(graph));
	OK(StreamBeginCapture(first, CU_CAPTURE_THREAD_LOCAL));
	OK(EventRecord(e, first));
	OK(StreamWaitEvent(other, e, 0));
	ck_assert_int_eq(standin_launch("p_grid", 1, 32, 0, &a), 0);
	FAILS(904, StreamEndCapture(first, &graph));
	stream = first;
}

/* Rows of a picture inside a larger one, to and from the device. */
static void law_2d(void)
{
	const CUdeviceptr d = standin_alloc(1024);
	u8 *h = pinned(256);
	struct cu_memcpy2d c = {
		.src_type = CU_MEMORYTYPE_HOST, .src_host = h, .src_pitch = 8,
		.dst_type = CU_MEMORYTYPE_DEVICE, .dst_dev = d,
		.dst_pitch = 64, .dst_x = 4, .dst_y = 1, .width = 8,
		.height = 4,
	};
	u32 i;

	for (i = 0; i < 32; i++)
		h[i] = (u8)i;
	OK(MemsetD8Async(d, 0xee, 1024, stream));
	OK(Memcpy2DAsync(&c, stream));
	OK(MemcpyDtoHAsync(h + 64, d + 64, 192, stream));
	OK(StreamSynchronize(stream));
	for (i = 0; i < 192; i++)
		ck_assert_uint_eq(h[64 + i], i % 64 >= 4 && i % 64 < 12 ?
				  i / 64 * 8 + i % 64 - 4 : 0xee);
	c.height = 16;
	FAILS(CUDA_ERROR_INVALID_VALUE, Memcpy2DAsync(&c, stream));
}

static void *no_context(void *arg)
{
	CUdeviceptr p;

	*(CUresult *)arg = cu->MemAlloc(&p, 64);
	return NULL;
}

/* A thread without a context; a child after fork(). */
static void law_who(void)
{
	pthread_t t;
	CUresult r = 0;
	CUdeviceptr p;
	int status;
	pid_t pid;

	ck_assert_int_eq(pthread_create(&t, NULL, no_context, &r), 0);
	ck_assert_int_eq(pthread_join(t, NULL), 0);
	ck_assert_int_eq(r, CUDA_ERROR_INVALID_CONTEXT);
	pid = fork();
	if (!pid)
		_exit(cu->MemAlloc(&p, 64) != CUDA_ERROR_NOT_INITIALIZED);
	waitpid(pid, &status, 0);
	ck_assert_int_eq(status, 0);
}

/* The third call fails, and the fifth with its own result; then a fault. */
static void law_failures(void)
{
	struct planted_args a = { 0 };
	CUmemGenericAllocationHandle m;
	CUdeviceptr p;
	u64 *h;
	int i;

	setenv("KVMM_STANDIN_FAULT", "launch:2", 1);
	standin_open();
	p = standin_alloc(4096);
	for (i = 1; i <= 7; i++)
		ck_assert_int_eq(cu->MemCreate(&m, 2 * MIB, &prop, 0),
				 i == 3 ? CUDA_ERROR_OUT_OF_MEMORY :
				 i == 5 ? CUDA_ERROR_UNKNOWN : 0);
	a.out = (u32 *)(uintptr_t)p;
	h = pinned(8);
	for (i = 1; i <= 2; i++) {
		h[0] = 5;
		ck_assert_int_eq(standin_launch("p_grid", 1, 32, 0, &a), 0);
		ck_assert_int_eq(cu->MemcpyDtoHAsync(h, p, 8, stream), 0);
		ck_assert_int_eq(cu->StreamSynchronize(stream),
				 i == 2 ? CUDA_ERROR_LAUNCH_FAILED : 0);
		ck_assert_int_eq(h[0] == 5, i == 2);
	}
	FAILS(CUDA_ERROR_LAUNCH_FAILED, MemFree(p));
	FAILS(CUDA_ERROR_LAUNCH_FAILED, StreamQuery(stream));
}

static void *many(void *arg)
{
	const u32 n = *(u32 *)arg;
	CUstream s;
	CUcontext ctx;
	CUevent e;
	u64 *h;
	CUdeviceptr d;
	u32 i;

	OK(DevicePrimaryCtxRetain(&ctx, 0));
	OK(CtxSetCurrent(ctx));
	OK(StreamCreateWithPriority(&s, CU_STREAM_NON_BLOCKING, 0));
	OK(EventCreate(&e, CU_EVENT_DISABLE_TIMING));
	h = pinned(1024);
	d = standin_alloc(1024);
	for (i = 0; i < 200; i++) {
		h[0] = n + i;
		OK(MemcpyHtoDAsync(d, h, 8, s));
		OK(MemcpyDtoHAsync(h + 1, d, 8, s));
		OK(EventRecord(e, s));
		if (i % 2)
			OK(EventSynchronize(e));
		while (cu->EventQuery(e) == CUDA_ERROR_NOT_READY)
			;
		ck_assert_uint_eq(h[1], n + i);
	}
	OK(StreamDestroy(s));
	return NULL;
}

static void law_threads(void)
{
	u32 n[4] = { 1000, 2000, 3000, 4000 };
	pthread_t t[4];
	u32 i;

	for (i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&t[i], NULL, many, &n[i]), 0);
	for (i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_join(t[i], NULL), 0);
}

/* A copy takes time: a query does not wait for it, and a synchronize does. */
static void law_delay(void)
{
	const CUdeviceptr d = standin_alloc(64);
	u64 *h = pinned(64);
	CUevent a, b;
	float ms;
	u32 asked = 0;

	OK(EventCreate(&a, 0));
	OK(EventCreate(&b, 0));
	OK(EventRecord(a, stream));
	OK(MemcpyHtoDAsync(d, h, 8, stream));
	OK(EventRecord(b, stream));
	while (cu->EventQuery(b) == CUDA_ERROR_NOT_READY)
		asked++;
	ck_assert_uint_gt(asked, 1);
	OK(EventElapsedTime(&ms, a, b));
	ck_assert(ms >= 1.9f);
}

static const struct law laws[] = {
	{ "lazy", law_lazy, NULL, NULL, false, NULL },
	{ "events", law_events, NULL, NULL, false, NULL },
	{ "graphs", law_graphs, NULL, NULL, false, NULL },
	{ "forks", law_forks, NULL, NULL, false, NULL },
	{ "2d", law_2d, NULL, NULL, false, NULL },
	{ "who", law_who, NULL, NULL, false, NULL },
	{ "failures", law_failures, "KVMM_STANDIN_FAIL",
	  "MemCreate:3,cuMemCreate:5=999", true, NULL },
	{ "threads", law_threads, NULL, NULL, false, NULL },
	{ "delay", law_delay, "KVMM_STANDIN_COPY_US", "2000", false, NULL },
};

START_TEST(test_laws)
{
	u32 seed;

	for (seed = 1; seed <= 4; seed++)
		check_law(&laws[_i], seed);
}
END_TEST

/* ---- counts at the end ---- */

START_TEST(test_counts)
{
	char path[600], line[8192];
	int status;
	pid_t pid;
	FILE *f;

	snprintf(path, sizeof(path), "%s/counts", law_dir);
	fflush(NULL);
	pid = fork();
	if (!pid) {
		CUmemGenericAllocationHandle h;

		setenv("KVMM_STANDIN_COUNT", path, 1);
		standin_open();
		standin_alloc(64);
		OK(MemCreate(&h, 2 * MIB, &prop, 0));
		OK(MemRelease(h));
		exit(0);
	}
	waitpid(pid, &status, 0);
	f = fopen(path, "r");
	ck_assert(f && fgets(line, sizeof(line), f));
	fclose(f);
	ck_assert_msg(strstr(line, " created=1 ") && strstr(line, " alloc=1 ") &&
		      strstr(line, " released=1 ") &&
		      strstr(line, " free=0 ") && strstr(line, " cuMemCreate=1"),
		      "%s", line);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("standin");
	TCase *tc = tcase_create("standin");
	SRunner *sr;
	int failed;

	law_dir = getenv("TMPDIR");
	if (!law_dir)
		law_dir = "/tmp";
	suite_add_tcase(s, tc);
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, test_laws, 0, ARRAY_SIZE(laws));
	tcase_add_test(tc, test_counts);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
