// SPDX-License-Identifier: Apache-2.0
/*
 * check_standin_mem.c - device memory of the stand-in: owners and release
 *
 * Handles, addresses and their mistakes; one device for two processes, one of
 * which dies; memory of the host.  Each rule runs in separate processes, with
 * several seeds, on a device of 64 MiB.
 */
#include "tests/unit/standin.h"

#include <signal.h>
#include <sys/socket.h>

static u64 number(const void *p)
{
	u64 n;

	memcpy(&n, p, sizeof(n));
	return n;
}

static CUdeviceptr map_at(CUdeviceptr at, u64 bytes,
			  CUmemGenericAllocationHandle h)
{
	OK(MemMap(at, bytes, 0, h, 0));
	OK(MemSetAccess(at, bytes, &rw, 1));
	return at;
}

static u64 room(void)
{
	size_t left, all;

	OK(MemGetInfo(&left, &all));
	ck_assert_uint_eq(all, 64 * MIB);
	return left;
}

/* Handles, addresses, and the time at which memory is free again. */
static void law_memory(void)
{
	const u64 all = room();
	CUmemGenericAllocationHandle h[32], again;
	CUdeviceptr area, d;
	u64 *host = pinned(64);
	size_t gran;
	int fd, i;

	OK(MemGetAllocationGranularity(&gran, &prop, 0));
	ck_assert_uint_eq(gran, 2 * MIB);
	OK(MemAddressReserve(&area, 64 * MIB, 0, 0, 0));
	FAILS(CUDA_ERROR_INVALID_VALUE, MemCreate(&h[0], MIB, &prop, 0));
	for (i = 0; room() >= 2 * MIB; i++)
		OK(MemCreate(&h[i], 2 * MIB, &prop, 0));
	ck_assert_int_ge(i, 31);
	FAILS(CUDA_ERROR_OUT_OF_MEMORY, MemCreate(&again, 2 * MIB, &prop, 0));
	FAILS(CUDA_ERROR_OUT_OF_MEMORY, MemAlloc(&d, 2 * MIB));
	map_at(area, 2 * MIB, h[0]);
	FAILS(208, MemMap(area, 2 * MIB, 0, h[1], 0));
	FAILS(CUDA_ERROR_INVALID_VALUE, MemMap(area + MIB, 2 * MIB, 0, h[1], 0));
	/* New memory is not zero, since a GPU does not promise it. */
	OK(MemcpyDtoHAsync(host, area, 8, stream));
	OK(StreamSynchronize(stream));
	ck_assert_uint_ne(host[0], 0);
	/*
	 * Memory stays after a release while it is mapped; imported, it is the
	 * same memory.
	 */
	OK(MemExportToShareableHandle(&fd, h[0], CU_MEM_HANDLE_TYPE_FD, 0));
	OK(MemRelease(h[0]));
	OK(MemImportFromShareableHandle(&again, (void *)(intptr_t)fd,
					CU_MEM_HANDLE_TYPE_FD));
	close(fd);
	map_at(area + 8 * MIB, 2 * MIB, again);
	OK(MemsetD32Async(area, 0x1234, 2, stream));
	OK(MemcpyDtoHAsync(host, area + 8 * MIB, 8, stream));
	OK(StreamSynchronize(stream));
	ck_assert_uint_eq(number(host), 0x123400001234);
	FAILS(CUDA_ERROR_INVALID_VALUE, MemAddressFree(area, 64 * MIB));
	OK(MemUnmap(area, 2 * MIB));
	FAILS(CUDA_ERROR_INVALID_VALUE, MemUnmap(area, 2 * MIB));
	FAILS(CUDA_ERROR_INVALID_VALUE, MemsetD8Async(area, 0, 1, stream));
	ck_assert_uint_lt(room(), 2 * MIB);
	OK(MemUnmap(area + 8 * MIB, 2 * MIB));
	OK(MemRelease(again));
	ck_assert_uint_ge(room(), 2 * MIB);
	OK(MemAddressFree(area, 64 * MIB));
	while (--i > 0)
		OK(MemRelease(h[i]));
	FAILS(CUDA_ERROR_INVALID_VALUE, MemRelease(h[1]));
	ck_assert_uint_eq(room(), all);
}

static void send_fd(int sock, int fd)
{
	union { struct cmsghdr h; char room[CMSG_SPACE(sizeof(int))]; } c = { 0 };
	char byte = 0;
	struct iovec io = { &byte, 1 };
	struct msghdr m = { .msg_iov = &io, .msg_iovlen = 1,
			    .msg_control = &c, .msg_controllen = sizeof(c) };

	c.h.cmsg_level = SOL_SOCKET;
	c.h.cmsg_type = SCM_RIGHTS;
	c.h.cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(&c.h), &fd, sizeof(int));
	ck_assert_int_eq(sendmsg(sock, &m, 0), 1);
}

static int receive_fd(int sock)
{
	union { struct cmsghdr h; char room[CMSG_SPACE(sizeof(int))]; } c = { 0 };
	char byte;
	struct iovec io = { &byte, 1 };
	struct msghdr m = { .msg_iov = &io, .msg_iovlen = 1,
			    .msg_control = &c, .msg_controllen = sizeof(c) };
	int fd;

	ck_assert_int_eq(recvmsg(sock, &m, 0), 1);
	memcpy(&fd, CMSG_DATA(&c.h), sizeof(int));
	return fd;
}

/* The other process: it holds memory, exports some, and dies in the middle. */
static void neighbour(int sock)
{
	CUmemGenericAllocationHandle h;
	CUdeviceptr area;
	char byte;
	int fd;

	standin_open();
	standin_alloc(10 * MIB);
	OK(MemAddressReserve(&area, 4 * MIB, 0, 0, 0));
	OK(MemCreate(&h, 4 * MIB, &prop, 0));
	map_at(area, 4 * MIB, h);
	OK(MemsetD32Async(area, 0xabcd, 1, stream));
	OK(StreamSynchronize(stream));
	OK(MemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_FD, 0));
	send_fd(sock, fd);
	ck_assert_int_eq(read(sock, &byte, 1), 1);
	raise(SIGKILL);
}

/* Both processes count; shared memory counts once; a dead process gives its memory back. */
static void law_neighbours(int sock, pid_t other)
{
	CUmemGenericAllocationHandle h;
	CUdeviceptr area;
	u64 *host = pinned(64);
	int fd = receive_fd(sock);

	ck_assert_uint_eq(room(), 50 * MIB);
	OK(MemImportFromShareableHandle(&h, (void *)(intptr_t)fd,
					CU_MEM_HANDLE_TYPE_FD));
	close(fd);
	ck_assert_uint_eq(room(), 50 * MIB);
	ck_assert_int_eq(write(sock, "", 1), 1);
	ck_assert_int_eq(waitpid(other, NULL, 0), other);
	ck_assert_uint_eq(room(), 60 * MIB);
	OK(MemAddressReserve(&area, 4 * MIB, 0, 0, 0));
	map_at(area, 4 * MIB, h);
	OK(MemcpyDtoHAsync(host, area, 4, stream));
	OK(StreamSynchronize(stream));
	ck_assert_uint_eq(host[0] & 0xffffffff, 0xabcd);
	OK(MemUnmap(area, 4 * MIB));
	OK(MemRelease(h));
	ck_assert_uint_eq(room(), 64 * MIB);
}

static void law_two_processes(void)
{
	int sock[2];
	pid_t pid;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, sock), 0);
	pid = fork();
	if (!pid) {
		close(sock[1]);
		neighbour(sock[0]);
	}
	close(sock[0]);
	standin_open();
	law_neighbours(sock[1], pid);
}

static void law_registered(void)
{
	static u8 memory[8192];
	const CUdeviceptr d = standin_alloc(64);
	CUdeviceptr m;

	OK(MemHostRegister(memory, sizeof(memory), 0));
	FAILS(712, MemHostRegister(memory + 4096, 4096, 0));
	OK(MemcpyHtoDAsync(d, memory, 64, stream));
	OK(MemHostUnregister(memory));
	FAILS(713, MemHostUnregister(memory));
	OK(MemAllocManaged(&m, 4096, CU_MEM_ATTACH_GLOBAL));
	*(volatile u8 *)(uintptr_t)m = 3;
	OK(MemFree(m));
	FAILS(CUDA_ERROR_INVALID_VALUE, MemFree(m));
}

/* A write behind an allocation is reported when it is freed. */
static void law_overrun(void)
{
	const CUdeviceptr d = standin_alloc(101);
	struct planted_args a = { .out = (u32 *)(uintptr_t)d };

	ck_assert_int_eq(standin_launch("p_grid", 26, 32, 0, &a), 0);
	OK(MemFree(d));
}

/* The host cannot use a device address, neither before nor after a kernel used it. */
static void law_closed(void)
{
	const CUdeviceptr d = standin_alloc(4096);
	struct planted_args a = { .out = (u32 *)(uintptr_t)d };
	int p[2];

	ck_assert_int_eq(pipe(p), 0);
	/*
	 * The system checks memory as the program may use it: EFAULT instead of
	 * a signal.
	 */
	ck_assert_int_eq(write(p[1], (void *)(uintptr_t)d, 8), -1);
	ck_assert_int_eq(standin_launch("p_grid", 8, 32, 0, &a), 0);
	OK(StreamSynchronize(stream));
	ck_assert_int_eq(write(p[1], (void *)(uintptr_t)d, 8), -1);
	ck_assert_int_eq(errno, EFAULT);
}

static void law_given_back(void)
{
	CUmemGenericAllocationHandle h;
	CUdeviceptr area;
	u64 *host = pinned(64);
	u32 i;

	for (i = 0; i < 100; i++) {
		OK(MemAddressReserve(&area, 2 * MIB, 0, 0, 0));
		OK(MemCreate(&h, 2 * MIB, &prop, 0));
		map_at(area, 2 * MIB, h);
		OK(MemcpyDtoHAsync(host, area, 8, stream));
		OK(MemcpyDtoHAsync(host, area, 8, stream));
		OK(MemUnmap(area, 2 * MIB));
		OK(MemRelease(h));
		OK(StreamSynchronize(stream));
	}
}

static const struct law laws[] = {
	{ "memory", law_memory, NULL, NULL, false, NULL },
	{ "two processes", law_two_processes, NULL, NULL, true, NULL },
	{ "registered", law_registered, NULL, NULL, false, NULL },
	{ "overrun", law_overrun, NULL, NULL, false,
	  "byte 0 behind the 101 of an allocation was written" },
	{ "closed", law_closed, "KVMM_STANDIN_CLOSED", "1", false, NULL },
	{ "given back", law_given_back, NULL, NULL, false,
	  "after its device memory" },
};

START_TEST(test_laws)
{
	u32 seed;

	for (seed = 1; seed <= 4; seed++)
		check_law(&laws[_i], seed);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("standin_mem");
	TCase *tc = tcase_create("standin_mem");
	SRunner *sr;
	int failed;

	law_dir = getenv("TMPDIR");
	if (!law_dir)
		law_dir = "/tmp";
	suite_add_tcase(s, tc);
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, test_laws, 0, ARRAY_SIZE(laws));
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
