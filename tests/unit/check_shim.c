// SPDX-License-Identifier: Apache-2.0
/*
 * check_shim.c - the shim of device code finds planted faults, and no more
 *
 * Each kernel of tests/standin/planted.cu runs in a separate process, with and
 * without its fault, in several orders of threads.  A fault must end the
 * process with one line that has the kernel, a thread, the error, and a line of
 * the source that is marked there.  Without a fault the results are compared
 * with those of plain C.
 */
#include "tests/unit/standin.h"

#include <math.h>
#include <signal.h>
#include <time.h>

#include "kernels/cuda/list.h"

#define T	PLANTED_THREADS
#define SEEDS	6

static char source[64 << 10];
static u32 input[1024];
static u32 out[4096];
static float flt[4096];
static struct planted_args args;

static void read_source(void)
{
	char path[512];
	FILE *f;

	snprintf(path, sizeof(path), "%s/tests/standin/planted.cu",
		 getenv("KVMM_TOP"));
	f = fopen(path, "r");
	ck_assert_msg(f, "%s", path);
	ck_assert_uint_gt(fread(source, 1, sizeof(source) - 1, f), 0);
	fclose(f);
}

/* Does the line of planted.cu have a comment with @kernel and @fault? */
static bool marked(u32 line, const char *kernel, u32 fault)
{
	const char *p = source, *end, *c;
	char text[256], mark[80];

	while (--line && p)
		p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL;
	if (!p)
		return false;
	end = strchr(p, '\n');
	snprintf(text, sizeof(text), "%.*s", (int)(end - p), p);
	snprintf(mark, sizeof(mark), "/* %s ", kernel);
	c = strstr(text, mark);
	return c && strchr(c + strlen(mark), (int)('0' + fault));
}

static void set_input(void)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(input); i++)
		input[i] = i * 2654435761u >> 8;
}

/* Run @kernel and fetch its output. */
static void run_kernel(const char *kernel, u32 blocks, u32 threads, u32 smem)
{
	OK(MemcpyHtoDAsync((CUdeviceptr)(uintptr_t)args.in, input,
			   sizeof(input), stream));
	OK(MemsetD8Async((CUdeviceptr)(uintptr_t)args.out, 0, sizeof(out),
			 stream));
	OK(MemsetD8Async((CUdeviceptr)(uintptr_t)args.f, 0, sizeof(flt),
			 stream));
	ck_assert_int_eq(standin_launch(kernel, blocks, threads, smem, &args),
			 CUDA_SUCCESS);
	OK(MemcpyDtoHAsync(out, (CUdeviceptr)(uintptr_t)args.out, sizeof(out),
			   stream));
	OK(MemcpyDtoHAsync(flt, (CUdeviceptr)(uintptr_t)args.f, sizeof(flt),
			   stream));
}

static void open_device(u32 fault, u32 n)
{
	standin_open();
	args.fault = fault;
	args.n = n;
	args.in = (const u32 *)(uintptr_t)standin_alloc(sizeof(input));
	args.out = (u32 *)(uintptr_t)standin_alloc(sizeof(out));
	args.f = (float *)(uintptr_t)standin_alloc(sizeof(flt));
	set_input();
}

/* Run in a child.  Return: its wait status; its standard error in @said. */
static int in_child(void (*run)(const void *), const void *arg, u32 seed,
		    char *said, size_t len)
{
	int p[2], status;
	size_t n = 0;
	ssize_t got;
	pid_t pid;
	char text[16];

	ck_assert_int_eq(pipe(p), 0);
	fflush(NULL);
	pid = fork();
	if (!pid) {
		dup2(p[1], STDERR_FILENO);
		close(p[0]);
		close(p[1]);
		snprintf(text, sizeof(text), "%u", seed);
		setenv("KVMM_SHIM_SEED", text, 1);
		run(arg);
		_exit(0);
	}
	close(p[1]);
	while ((got = read(p[0], said + n, len - 1 - n)) > 0)
		n += (size_t)got;
	said[n] = '\0';
	close(p[0]);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	return status;
}

static const struct fault {
	const char *kernel;
	u32 fault;
	const char *what;
	u32 n, threads, smem;
} faults[] = {
	{ "p_barrier", 1, "", 0, T, 0 },
	{ "p_behind", 1, "without a barrier between them", 0, T, 0 },
	{ "p_behind", 2, "without a barrier between them", 0, T, 0 },
	{ "p_warp_sync", 1, "", 0, T, 0 },
	{ "p_warp_sync", 2, "", 0, T, 0 },
	{ "p_warp_sync", 3, "without a barrier between them", 0, T, 0 },
	{ "p_index", 1, "tile[64] is outside: it has 64 elements", 0, T, 0 },
	{ "p_index", 2, "tile[4294967295] is outside", 0, T, 0 },
	{ "p_dynamic", 1, "words[32] is outside: it has 32", 33, T, 128 },
	{ "p_dynamic", 2, "is outside: it has 16 elements", 16, T, 64 },
	{ "p_dynamic", 4, "without a barrier between them", 16, T, 256 },
	{ "p_poison", 1, "tile[5] is read and was never written", 0, T, 0 },
	{ "p_mask", 1, "lanes", 0, T, 0 },
	{ "p_mask", 2, "mask fffffff7 does not name the lane itself, 3", 0, T,
	  0 },
	{ "p_mask", 3, "which do not come", 0, T, 0 },
	{ "p_mask", 4, "from lane 20, which is not in the mask 0000ffff", 0, T,
	  0 },
	{ "p_diverge", 1, "", 0, T, 0 },
	{ "p_diverge", 2, "a barrier that others pass by", 0, T, 0 },
	{ "p_diverge", 3, "ended, while 63 of 64 threads wait", 0, T, 0 },
	{ "p_async", 1, "before the copy of thread", 0, T, 0 },
	{ "p_async", 2, "before the copy of thread", 0, T, 0 },
	{ "p_async", 3, "", 0, T, 0 },
	{ "p_align", 1, "global memory: 16 bytes at once", 0, T, 0 },
	{ "p_align", 2, "tile: 16 bytes at once", 0, T, 0 },
	{ "p_global", 1, "outside of every allocation", 1024, T, 0 },
	{ "p_global", 2, "outside of every allocation", 4096, T, 0 },
	{ "p_local", 1, "a local array", 0, T, 0 },
	{ "p_local", 2, "not aligned to its type", 0, T, 0 },
	{ "p_local", 3, "a shift by too much", 40, T, 0 },
	{ "p_atomic", 1, "without a barrier between them", 0, T, 0 },
	{ "p_mma", 1, "tile[", 0, 32, 0 },
};

static void run_fault(const void *arg)
{
	const struct fault *f = arg;

	open_device(f->fault, f->n);
	run_kernel(f->kernel, 1, f->threads, f->smem);
}

/* "standin: KERNEL: block (0,0,0) thread N: ...: FILE:LINE" */
static void check_told(const struct fault *f, u32 seed, const char *said)
{
	const char *colon;
	char start[96];
	u32 line;

	snprintf(start, sizeof(start), "standin: %s: block (0,0,0) thread ",
		 f->kernel);
	ck_assert_msg(!strncmp(said, start, strlen(start)) &&
		      strchr(said, '\n') == said + strlen(said) - 1 &&
		      strstr(said, f->what), "%s %u, seed %u: it said '%s'",
		      f->kernel, f->fault, seed, said);
	colon = strrchr(said, ':');
	ck_assert_msg(colon && strstr(said, "planted.cu:"),
		      "%s %u: no line: '%s'", f->kernel, f->fault, said);
	line = (u32)strtoul(colon + 1, NULL, 10);
	ck_assert_msg(marked(line, f->kernel, f->fault),
		      "%s %u, seed %u: line %u is not marked: '%s'", f->kernel,
		      f->fault, seed, line, said);
}

START_TEST(test_faults)
{
	const struct fault *f = &faults[_i];
	char said[4096];
	u32 seed;

	for (seed = 1; seed <= SEEDS; seed++) {
		const int s = in_child(run_fault, f, seed, said, sizeof(said));

		ck_assert_msg(WIFSIGNALED(s) && WTERMSIG(s) == SIGABRT,
			      "%s %u, seed %u: status %#x: '%s'", f->kernel,
			      f->fault, seed, s, said);
		check_told(f, seed, said);
	}
}
END_TEST

/* ---- launches that are not allowed ---- */

static const struct launch {
	const char *kernel;
	u32 threads, smem;
	const char *what;
} launches[] = {
	{ "p_barrier", T + 1, 0, "launched with 65 threads: KERNEL() says 64" },
	{ "p_dynamic", T, 1028, "launched with 1028 bytes of shared memory: list.h says 1024" },
	{ "p_big", T, 49156, "49152 without cuFuncSetAttribute()" },
};

static void run_launch(const void *arg)
{
	const struct launch *l = arg;

	open_device(0, 16);
	run_kernel(l->kernel, 1, l->threads, l->smem);
}

START_TEST(test_launches)
{
	const struct launch *l = &launches[_i];
	char said[4096];
	const int s = in_child(run_launch, l, 1, said, sizeof(said));

	ck_assert_msg(WIFSIGNALED(s) && WTERMSIG(s) == SIGABRT &&
		      strstr(said, l->what) && strstr(said, l->kernel),
		      "%s: status %#x: '%s'", l->kernel, s, said);
}
END_TEST

/* ---- without a fault ---- */

static float bf16(u32 i)
{
	const u32 b = input[i] << 16;
	float f;

	memcpy(&f, &b, sizeof(f));
	return f;
}

static void check_plain(void)
{
	u32 t;

	run_kernel("p_barrier", 1, T, 0);
	for (t = 0; t < T; t++)
		ck_assert_uint_eq(out[t], input[(t + 1) % T]);
	run_kernel("p_behind", 1, T, 0);
	for (t = 0; t < T; t++)
		ck_assert_uint_eq(out[t], 3 * input[T - 1 - t] + 3);
	run_kernel("p_warp_sync", 1, T, 0);
	for (t = 0; t < T; t++)
		ck_assert_uint_eq(out[t], input[t] + 1);
	run_kernel("p_index", 1, T, 0);
	for (t = 0; t < T; t++)
		ck_assert_uint_eq(out[t], input[t]);
	run_kernel("p_poison", 1, T, 0);
	run_kernel("p_mask", 1, T, 0);
	for (t = 0; t < T; t++)
		ck_assert_uint_eq(out[t], input[t ^ 1]);
	run_kernel("p_diverge", 1, T, 0);
	run_kernel("p_global", 1, T, 0);
	run_kernel("p_local", 1, T, 0);
	run_kernel("p_block", 1, T, 0);
	for (t = 0; t < T; t++)
		ck_assert_uint_eq(out[t], 103);
}

static void check_copies(void)
{
	u32 t;

	run_kernel("p_async", 1, T, 0);
	for (t = 0; t < T; t++)
		ck_assert_uint_eq(out[t], input[(4 * t + 4) % (4 * T)]);
	run_kernel("p_align", 1, T, 0);
	for (t = 0; t < T; t++) {
		const u32 *q = &input[(4 * t + 4) % (4 * T)];

		ck_assert_uint_eq(out[t], q[0] + q[1] + q[2] + q[3]);
	}
	args.n = 16;
	run_kernel("p_dynamic", 1, T, 256);
	args.fault = 3;
	run_kernel("p_dynamic", 1, T, 256);
	args.fault = 0;
}

static u32 shuffled(u32 t)
{
	const u32 *v = &input[t / 32 * 32];
	const u32 l = t % 32;

	return v[5] + 3 * v[l ? l - 1 : 0] + 5 * v[l < 30 ? l + 2 : l] +
	       7 * v[l ^ 16] + 11 * v[l / 8 * 8 + 1] + 13 * 0x49249249u +
	       (l < 8 ? 19 * v[l ^ 4] : 23 * v[l ^ 1]);
}

static void check_warps(void)
{
	u32 t, i;

	run_kernel("p_warp", 1, T, 0);
	for (t = 0; t < T; t++) {
		float max = 0, part[32];
		u32 step;

		for (i = 0; i < 32; i++) {
			part[i] = (float)input[t / 32 * 32 + i];
			max = fmaxf(max, part[i]);
		}
		for (step = 16; step; step /= 2)
			for (i = 0; i < step; i++)
				part[i] += part[i + step];
		ck_assert_uint_eq(out[t], shuffled(t));
		ck_assert(flt[t] == part[0] + 0.25f * max);
	}
	run_kernel("p_atomic", 3, T, 0);
	for (i = 0; i < 16; i++) {
		u32 n = 0;

		for (t = 0; t < T; t++)
			n += input[t] % 16 == i;
		ck_assert_uint_eq(out[i], 3 * n);
	}
	ck_assert_uint_eq(out[16], input[0]);
	ck_assert(flt[0] == 1.5f);
}

/* Small numbers, so that every sum is exact. */
static void check_mma(bool f16)
{
	u32 i, k, n;

	for (i = 0; i < 384; i++)
		input[i] = f16 ? 0x3c00u + (i * 7 % 5 << 10) :
				 0x3f80u + (i * 7 % 5 << 7);
	args.n = f16;
	run_kernel("p_mma", 1, 32, 0);
	for (i = 0; i < 16; i++)
		for (n = 0; n < 8; n++) {
			float sum = 1.0f;

			for (k = 0; k < 16; k++) {
				const u32 ea = (i * 16 + k) * 7 % 5;
				const u32 eb = (256 + k * 8 + n) * 7 % 5;

				ck_assert(f16 || bf16(i * 16 + k) ==
						 (float)(1u << ea));
				sum += (float)(1u << (ea + eb));
			}
			ck_assert(flt[i * 8 + n] == sum);
		}
}

static void run_good(const void *arg)
{
	u32 i;

	open_device(0, 0);
	check_plain();
	check_copies();
	args.n = 0;
	check_warps();
	run_kernel("p_grid", 300, 5, 0);
	for (i = 0; i < 300; i++)
		ck_assert_uint_eq(out[i], i + 1);
	check_mma(false);
	check_mma(true);
	OK(CtxSynchronize());
}

START_TEST(test_good)
{
	char said[4096];
	u32 seed;

	for (seed = 1; seed <= SEEDS; seed++) {
		const int s = in_child(run_good, NULL, seed, said,
				       sizeof(said));

		ck_assert_msg(!s, "seed %u: status %#x: '%s'", seed, s, said);
	}
}
END_TEST

/* ---- numbers ---- */

static void run_speed(const void *arg)
{
	struct timespec a, b;

	open_device(0, 200);
	clock_gettime(CLOCK_MONOTONIC, &a);
	run_kernel("p_speed", 20, 256, 0);
	clock_gettime(CLOCK_MONOTONIC, &b);
	printf("20 blocks of 256 threads, 200 rounds of 2 barriers and 5 shuffles: %.0f ms\n",
	       (double)(b.tv_sec - a.tv_sec) * 1e3 +
	       (double)(b.tv_nsec - a.tv_nsec) / 1e6);
	fflush(stdout);
}

START_TEST(test_speed)
{
	char said[4096];

	ck_assert_msg(!in_child(run_speed, NULL, 1, said, sizeof(said)), "%s",
		      said);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("shim");
	TCase *tc = tcase_create("shim");
	SRunner *sr;
	int failed;

	suite_add_tcase(s, tc);
	tcase_add_checked_fixture(tc, read_source, NULL);
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, test_faults, 0, ARRAY_SIZE(faults));
	tcase_add_loop_test(tc, test_launches, 0, ARRAY_SIZE(launches));
	tcase_add_test(tc, test_good);
	tcase_add_test(tc, test_speed);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
