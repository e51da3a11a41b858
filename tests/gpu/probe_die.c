// SPDX-License-Identifier: Apache-2.0
/*
 * probe_die.c - memory that lives on when a process dies
 *
 * die   the exporter is killed while a kernel of another process reads and
 *       writes the exported memory
 * back  a client is killed in mid kernel: when is its memory free again
 * park  only a process without CUDA holds the descriptors: are the bytes there
 *       when another process imports them
 */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/gpu/probe.h"

#define SEED	0

static void nap(u32 ms)
{
	struct timespec t = { ms / 1000, ms % 1000 * 1000000l };

	nanosleep(&t, NULL);
}

/* ---- roles ---- */

/* Makes and fills a chunk of arg[0] bytes, sends it, and stays. */
static void maker_role(int sock)
{
	struct role_msg m;
	struct gpu_chunk c;
	struct gpu g;
	int fd;

	probe_open(&g);
	if (!role_recv(sock, &m, NULL, 60000))
		return;
	gpu_chunk_make(&g, m.arg[0], &c);
	probe_fill(&g, c.va, c.bytes, SEED);
	fd = gpu_chunk_export(&g, &c);
	role_send(sock, &m, fd);
	close(fd);
	role_recv(sock, &m, NULL, 600000);
}

/* Imports a chunk and compares it: arg[1] counts wrong words. */
static void reader_role(int sock)
{
	struct gpu_chunk c;
	struct role_msg m;
	struct gpu g;
	u64 not_zero;
	int fd;

	probe_open(&g);
	if (!role_recv(sock, &m, &fd, 60000))
		return;
	m.what = gpu_chunk_import(&g, fd, m.arg[0], CU_MEM_ACCESS_READWRITE,
				  &c);
	if (!m.what)
		probe_check(&g, c.va, c.bytes, SEED, &m.arg[1], &not_zero);
	role_send(sock, &m, -1);
}

/*
 * A client: imports a chunk, allocates arg[1] bytes, and runs a kernel over both
 * for arg[2] ms.
 */
static void client_role(int sock)
{
	struct p_spin_args a = { 0 };
	struct gpu_chunk c;
	struct role_msg m;
	struct gpu g;
	CUdeviceptr own;
	int fd;

	probe_open(&g);
	if (!role_recv(sock, &m, &fd, 60000))
		return;
	GPU_DO(gpu_chunk_import(&g, fd, m.arg[0], CU_MEM_ACCESS_READWRITE, &c));
	own = probe_device(&g, m.arg[1]);
	GPU_DO(g.cu->MemsetD8Async(own, 1, m.arg[1], g.stream));
	GPU_DO(g.cu->StreamSynchronize(g.stream));
	a.ns = m.arg[2] * 1000000;
	a.words = (u64 *)(uintptr_t)c.va;
	a.nr_words = c.bytes / 8;
	a.wrong = (u64 *)(uintptr_t)own;
	role_send(sock, &m, -1);
	probe_spin(&g, g.stream, &a);
	GPU_DO(g.cu->StreamSynchronize(g.stream));
	role_recv(sock, &m, NULL, 600000);
}

/* ---- die ---- */

static void get_chunk(struct role *r, u64 bytes, int *fd)
{
	struct role_msg m = { .arg = { bytes } };

	role_start(r, "maker", NULL);
	role_send(r->sock, &m, -1);
	if (!role_recv(r->sock, &m, fd, 60000) || *fd < 0)
		gpu_die("the process that makes a chunk sent none");
}

void part_die(void)
{
	const u64 bytes = probe_bytes(256 * GPU_MIB);
	struct p_spin_args a = { .ns = gpu_tiny ? 2000000 : 2000000000ull };
	u64 wrong, not_zero, counted = 0;
	struct gpu_chunk c;
	struct role maker;
	struct gpu g;
	CUdeviceptr count;
	CUresult r;
	int fd;

	probe_open(&g);
	get_chunk(&maker, bytes, &fd);
	GPU_DO(gpu_chunk_import(&g, fd, bytes, CU_MEM_ACCESS_READWRITE, &c));
	count = probe_device(&g, 8);
	GPU_DO(g.cu->MemsetD8Async(count, 0, 8, g.stream));
	a.words = (u64 *)(uintptr_t)c.va;
	a.nr_words = bytes / 8;
	a.wrong = (u64 *)(uintptr_t)count;
	probe_spin(&g, g.stream, &a);
	nap(gpu_tiny ? 1 : 300);
	gpu_fact(role_kill(&maker), "us", "SIGKILL to pidfd, with a context",
		 "die.exporter_gone");
	r = g.cu->StreamSynchronize(g.stream);
	gpu_fact(!r, "true", gpu_result(r), "die.kernel_ended_well");
	GPU_DO(g.cu->MemcpyDtoHAsync(&counted, count, 8, g.stream));
	GPU_DO(g.cu->StreamSynchronize(g.stream));
	gpu_fact((double)counted, "words", "read otherwise than written",
		 "die.wrong_during");
	probe_check(&g, c.va, bytes, SEED, &wrong, &not_zero);
	gpu_fact((double)wrong, "words", "of 256 MiB, afterwards",
		 "die.wrong_after");
	probe_fill(&g, c.va, bytes, SEED + 1);
	probe_check(&g, c.va, bytes, SEED + 1, &wrong, &not_zero);
	gpu_fact(!wrong, "true", NULL, "die.still_writable");
}

/* ---- back ---- */

/*
 * Milliseconds until @want bytes are free, less what a driver may keep for
 * itself; -1: not in 20 s.
 */
#define KEPT	(gpu_tiny ? 0 : 64 * GPU_MIB)

static double until_free(struct gpu *g, u64 want)
{
	const double start = gpu_now_us();
	u64 bytes = 0, total;

	do {
		gpu_mem_info(g, &bytes, &total);
		if (bytes + KEPT >= want)
			return (gpu_now_us() - start) / 1e3;
		nap(1);
	} while (gpu_now_us() - start < 20e6);
	return -1;
}

static void back_once(struct gpu *g, u64 own, double *gone, double *back,
		      double *shared)
{
	const u64 bytes = probe_bytes(256 * GPU_MIB);
	struct role_msg m = { .arg = { bytes, own, 20000 } };
	u64 before, between, total;
	struct gpu_chunk c;
	struct role client;
	int fd;

	gpu_mem_info(g, &before, &total);
	gpu_chunk_make(g, bytes, &c);
	probe_fill(g, c.va, bytes, SEED);
	gpu_mem_info(g, &between, &total);
	fd = gpu_chunk_export(g, &c);
	role_start(&client, "client", NULL);
	role_ask(&client, &m, fd);
	close(fd);
	nap(gpu_tiny ? 1 : 300);
	*gone = role_kill(&client) / 1e3;
	*back = until_free(g, between);
	gpu_chunk_free(g, &c);
	*shared = until_free(g, before);
}

void part_back(void)
{
	static const u32 gib[] = { 1, 16, 48 };
	const struct gpu_line ms = { .unit = "ms" };
	double gone[3], back[3], shared[3];
	u64 bytes, total, own;
	struct gpu g;
	u32 i, k;

	probe_open(&g);
	for (i = 0; i < 3; i++) {
		own = gpu_tiny ? 4 * GPU_MIB : gib[i] * GPU_GIB;
		gpu_mem_info(&g, &bytes, &total);
		if (own + 2 * GPU_GIB > bytes && !gpu_tiny) {
			gpu_skipped("too little memory", "back.%uG", gib[i]);
			continue;
		}
		for (k = 0; k < 3; k++)
			back_once(&g, own, &gone[k], &back[k], &shared[k]);
		gpu_emit(&ms, gone, 3, "back.%uG.process_gone", gib[i]);
		gpu_emit(&ms, back, 3, "back.%uG.memory_back_after_that",
			 gib[i]);
		gpu_emit(&ms, shared, 3, "back.%uG.shared_chunk_released",
			 gib[i]);
	}
}

/* ---- park ---- */

/* Processes that have a descriptor of the driver open; there should be none. */
static u32 users_of_gpu(void)
{
	char path[320], to[64];
	struct dirent *e, *f;
	DIR *proc = opendir("/proc"), *d;
	u32 nr = 0;
	ssize_t n;
	bool hit;

	while (proc && (e = readdir(proc))) {
		if (e->d_name[0] < '0' || e->d_name[0] > '9')
			continue;
		snprintf(path, sizeof(path), "/proc/%s/fd", e->d_name);
		d = opendir(path);
		hit = false;
		while (d && (f = readdir(d))) {
			n = readlinkat(dirfd(d), f->d_name, to, sizeof(to) - 1);
			to[n > 0 ? n : 0] = '\0';
			hit = hit || !strncmp(to, "/dev/nvidia", 11);
		}
		if (d)
			closedir(d);
		nr += hit;
	}
	if (proc)
		closedir(proc);
	return nr;
}

static void park_once(u64 bytes, u32 wait_ms)
{
	struct role_msg m = { .arg = { bytes } };
	struct role maker, reader;
	CUresult r;
	int fd;

	get_chunk(&maker, bytes, &fd);
	role_kill(&maker);
	nap(wait_ms);
	/* This process may count: it holds an exported descriptor. */
	gpu_fact(users_of_gpu(), "processes",
		 "have the GPU open; this one by the exported descriptor alone",
		 "park.%ums.users", wait_ms);
	role_start(&reader, "reader", NULL);
	role_ask(&reader, &m, fd);
	r = (CUresult)m.what;
	close(fd);
	role_end(&reader);
	gpu_fact(!r, "true", gpu_result(r), "park.%ums.import", wait_ms);
	if (!r)
		gpu_fact((double)m.arg[1], "words", "not as they were",
			 "park.%ums.wrong", wait_ms);
}

/* The first word of machine.settings says whether the driver keeps the GPU on. */
void part_park(void)
{
	const u64 bytes = probe_bytes(256 * GPU_MIB);

	park_once(bytes, 100);
	if (!gpu_tiny)
		park_once(bytes, 10000);
}

const struct role_entry die_roles[] = {
	{ "maker", maker_role },
	{ "reader", reader_role },
	{ "client", client_role },
	{ 0 }
};
