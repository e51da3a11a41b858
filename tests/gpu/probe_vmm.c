// SPDX-License-Identifier: Apache-2.0
/*
 * probe_vmm.c - memory by handles: cost, protection and old content
 *
 * cost   granularity, and create, export, import, map, set-access, unmap and
 *        release at 2, 32 and 256 MiB, idle and beside a running kernel
 * guard  does a mapping for reading stop a write, and can its owner widen it
 * fresh  is new memory zero, after this process or another had it
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/gpu/probe.h"

#define CALLS_MAX	32

/* ---- cost ---- */

/* The timed calls: the owner makes the first five before those of the importer. */
enum { CREATE, RESERVE, MAP, ACCESS, EXPORT, UNMAP, RELEASE, UNRESERVE, NR_OWN };
static const char *const own_names[NR_OWN] = {
	"create", "reserve", "map", "set_access", "export", "unmap",
	"release", "unreserve",
};

enum { IMPORT, I_MAP, I_ACCESS, I_UNMAP, I_RELEASE, NR_IMPORT };
static const char *const import_names[NR_IMPORT] = {
	"import", "import_map", "import_set_access", "import_unmap",
	"import_release",
};

static double since(double *t)
{
	const double now = gpu_now_us(), us = now - *t;

	*t = now;
	return us;
}

/* The other process: imports a descriptor, reports the times of its calls. */
static void importer_role(int sock)
{
	CUmemGenericAllocationHandle h;
	struct role_msg m;
	struct gpu g;
	CUdeviceptr va;
	double t;
	int fd;

	gpu_open(&g);
	while (role_recv(sock, &m, &fd, 60000)) {
		if (fd < 0) {
			role_send(sock, &m, -1);
			continue;
		}
		GPU_DO(g.cu->MemAddressReserve(&va, m.arg[0], 0, 0, 0));
		t = gpu_now_us();
		m.what = g.cu->MemImportFromShareableHandle(&h,
				(void *)(uintptr_t)fd, CU_MEM_HANDLE_TYPE_FD);
		close(fd);
		if (!m.what) {
			m.v[IMPORT] = since(&t);
			GPU_DO(g.cu->MemMap(va, m.arg[0], 0, h, 0));
			m.v[I_MAP] = since(&t);
			GPU_DO(gpu_set_access(&g, va, m.arg[0],
					      CU_MEM_ACCESS_READWRITE));
			m.v[I_ACCESS] = since(&t);
			GPU_DO(g.cu->MemUnmap(va, m.arg[0]));
			m.v[I_UNMAP] = since(&t);
			GPU_DO(g.cu->MemRelease(h));
			m.v[I_RELEASE] = since(&t);
		}
		GPU_DO(g.cu->MemAddressFree(va, m.arg[0]));
		role_send(sock, &m, -1);
	}
}

/* Make, share and free a handle; microseconds of each call. */
static void one_life(struct gpu *g, u64 bytes, struct role *peer, double *own,
		     double *imported)
{
	struct role_msg m = { .arg = { bytes } };
	CUmemGenericAllocationHandle h;
	CUdeviceptr va;
	double t = gpu_now_us();
	int fd = -1;

	GPU_DO(gpu_handle_create(g, bytes, &h));
	own[CREATE] = since(&t);
	GPU_DO(g->cu->MemAddressReserve(&va, bytes, 0, 0, 0));
	own[RESERVE] = since(&t);
	GPU_DO(g->cu->MemMap(va, bytes, 0, h, 0));
	own[MAP] = since(&t);
	GPU_DO(gpu_set_access(g, va, bytes, CU_MEM_ACCESS_READWRITE));
	own[ACCESS] = since(&t);
	GPU_DO(g->cu->MemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_FD,
						 0));
	own[EXPORT] = since(&t);
	if (peer) {
		role_ask(peer, &m, fd);
		if (m.what)
			gpu_die("import: %s", gpu_result((CUresult)m.what));
		memcpy(imported, m.v, NR_IMPORT * sizeof(*imported));
	}
	close(fd);
	t = gpu_now_us();
	GPU_DO(g->cu->MemUnmap(va, bytes));
	own[UNMAP] = since(&t);
	GPU_DO(g->cu->MemRelease(h));
	own[RELEASE] = since(&t);
	GPU_DO(g->cu->MemAddressFree(va, bytes));
	own[UNRESERVE] = since(&t);
}

static void lives(struct gpu *g, u64 bytes, struct role *peer, u32 nr,
		  const char *when)
{
	static double own[NR_OWN][CALLS_MAX], imported[NR_IMPORT][CALLS_MAX];
	const struct gpu_line l = { .unit = "us" };
	const u32 mib = bytes / GPU_MIB;
	double a[NR_OWN], b[NR_IMPORT] = { 0 };
	u32 i, k;

	for (i = 0; i < nr; i++) {
		one_life(g, bytes, peer, a, b);
		for (k = 0; k < NR_OWN; k++)
			own[k][i] = a[k];
		for (k = 0; k < NR_IMPORT; k++)
			imported[k][i] = b[k];
	}
	for (k = 0; k < NR_OWN; k++)
		gpu_emit(&l, own[k], nr, "cost.%uM.%s%s", mib,
			 own_names[k], when);
	for (k = 0; peer && k < NR_IMPORT; k++)
		gpu_emit(&l, imported[k], nr, "cost.%uM.%s%s", mib,
			 import_names[k], when);
}

static void granularity(struct gpu *g)
{
	static const char *const names[] = { "minimum", "recommended" };
	struct cu_mem_prop p = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.handle_types = CU_MEM_HANDLE_TYPE_FD,
		.location = { CU_MEM_LOCATION_TYPE_DEVICE, g->dev },
	};
	size_t bytes;
	int k;

	for (k = CU_MEM_GRANULARITY_MINIMUM;
	     k <= CU_MEM_GRANULARITY_RECOMMENDED; k++) {
		GPU_DO(g->cu->MemGetAllocationGranularity(&bytes, &p, k));
		gpu_fact((double)bytes / GPU_MIB, "MiB", NULL,
			 "cost.granularity.%s", names[k]);
	}
}

/* Do the calls of one thread wait for the kernels of the same process? */
static void beside_a_kernel(struct gpu *g)
{
	struct p_spin_args a = { .ns = gpu_tiny ? 1000000 : 400000000 };
	double start = gpu_now_us();

	probe_spin(g, g->stream, &a);
	lives(g, probe_bytes(32 * GPU_MIB), NULL, gpu_tiny ? 2 : 8,
	      ".beside_kernel");
	gpu_fact(g->cu->StreamQuery(g->stream) == CUDA_ERROR_NOT_READY,
		 "true", "the 400 ms kernel still ran when 8 lives were over",
		 "cost.calls_do_not_wait_for_kernels");
	GPU_DO(g->cu->StreamSynchronize(g->stream));
	gpu_fact((gpu_now_us() - start) / 1e3, "ms", "with the 400 ms kernel",
		 "cost.beside_kernel.all");
}

void part_cost(void)
{
	static const u32 sizes[] = { 2, 32, 256 };
	struct gpu g;
	struct role peer;
	CUdeviceptr va;
	u64 bytes;
	double t;
	u32 i;

	probe_open(&g);
	role_start(&peer, "importer", NULL);
	role_ask(&peer, &(struct role_msg){ 0 }, -1);
	granularity(&g);
	for (i = 0; i < 3; i++) {
		bytes = sizes[i] * GPU_MIB;
		if (!gpu_tiny || i < 2)
			lives(&g, bytes, &peer, gpu_tiny ? 2 : i ? 16 : 32, "");
	}
	beside_a_kernel(&g);
	t = gpu_now_us();
	GPU_DO(g.cu->MemAddressReserve(&va, 128 * GPU_GIB, 0, 0, 0));
	gpu_fact(since(&t), "us", NULL, "cost.reserve_128G");
	GPU_DO(g.cu->MemAddressFree(va, 128 * GPU_GIB));
	role_end(&peer);
}

/* ---- guard ---- */

/*
 * A process with a mapping for reading that writes through it, by a kernel; it
 * widens the mapping first if arg[1] says so.  Answers with the result of the
 * widening in arg[2] and that of the kernel in arg[3].
 */
static void guard_role(int sock)
{
	struct gpu_chunk c = { 0 };
	struct p_fill_args a = { .n = 1024, .seed = 7, .mask = ~0ull };
	struct role_msg m;
	struct gpu g;
	int fd;

	probe_open(&g);
	if (!role_recv(sock, &m, &fd, 60000))
		return;
	if (fd < 0) {
		gpu_chunk_make(&g, m.arg[0], &c);
		GPU_DO(gpu_set_access(&g, c.va, c.bytes, CU_MEM_ACCESS_READ));
	} else {
		GPU_DO(gpu_chunk_import(&g, fd, m.arg[0], CU_MEM_ACCESS_READ,
					&c));
	}
	if (m.arg[1])
		m.arg[2] = (u64)gpu_set_access(&g, c.va, c.bytes,
					       CU_MEM_ACCESS_READWRITE);
	a.to = (u64 *)(uintptr_t)c.va;
	gpu_launch(&g, gpu_kernel(&g, "p_fill"), 1, 1, 256, g.stream, &a);
	m.arg[3] = (u64)g.cu->StreamSynchronize(g.stream);
	role_send(sock, &m, -1);
	role_recv(sock, &m, NULL, 1000);
}

static void guard_case(struct gpu *g, struct gpu_chunk *c, bool imported,
		       bool widen)
{
	struct role_msg m = { .arg = { c->bytes, widen } };
	const char *who = imported ? "importer" : "owner";
	u64 wrong, not_zero;
	struct role r;
	bool answered;
	int fd = -1;

	probe_fill(g, c->va, c->bytes, 1);
	role_start(&r, "guard", NULL);
	if (imported)
		fd = gpu_chunk_export(g, c);
	role_send(r.sock, &m, fd);
	answered = role_recv(r.sock, &m, NULL, 30000);
	if (fd >= 0)
		close(fd);
	role_end(&r);
	if (!answered) {
		gpu_failed("its process ended", "guard.%s%s", who,
			   widen ? ".widened" : "");
		return;
	}
	if (widen)
		gpu_fact(!m.arg[2], "true", gpu_result((CUresult)m.arg[2]),
			 "guard.%s.widening_allowed", who);
	gpu_fact(m.arg[3] != 0, "true", gpu_result((CUresult)m.arg[3]),
		 "guard.%s.write_faults%s", who, widen ? ".widened" : "");
	probe_check(g, c->va, c->bytes, 1, &wrong, &not_zero);
	if (imported)
		gpu_fact(wrong != 0, "true", "the owner's bytes changed",
			 "guard.importer.write_lands%s",
			 widen ? ".widened" : "");
}

void part_guard(void)
{
	struct gpu_chunk c;
	struct gpu g;
	u32 i;

	probe_open(&g);
	gpu_chunk_make(&g, 2 * GPU_MIB, &c);
	for (i = 0; i < 4; i++)
		guard_case(&g, &c, i & 1, i & 2);
	gpu_fact(!g.cu->CtxSynchronize(), "true",
		 "the owner's context works after another process's fault",
		 "guard.owner_survives");
}

/* ---- fresh ---- */

/* Create handles of @want bytes together, if possible.  Return: how many. */
static u32 take(struct gpu *g, struct gpu_chunk *c, u32 max, u64 each, u64 want)
{
	u32 nr = 0;

	while (nr < max && nr * each < want) {
		c[nr].bytes = each;
		if (gpu_handle_create(g, each, &c[nr].handle))
			break;
		GPU_DO(g->cu->MemAddressReserve(&c[nr].va, each, 0, 0, 0));
		GPU_DO(gpu_handle_map(g, c[nr].va, each, c[nr].handle,
				      CU_MEM_ACCESS_READWRITE));
		nr++;
	}
	return nr;
}

#define FRESH_MAX	1024
#define FRESH_SEED	0x5eed1

/* Create handles of most of the free memory.  Return: how many. */
static u32 take_most(struct gpu *g, struct gpu_chunk *c)
{
	const u64 each = probe_bytes(256 * GPU_MIB);
	u64 bytes, total;

	gpu_mem_info(g, &bytes, &total);
	if (gpu_tiny)
		bytes = 16 * GPU_MIB;
	return take(g, c, FRESH_MAX, each, bytes - bytes / 16);
}

static void dirty_role(int sock)
{
	static struct gpu_chunk c[FRESH_MAX];
	struct role_msg m = { 0 };
	struct gpu g;
	u32 i, nr;

	probe_open(&g);
	nr = take_most(&g, c);
	for (i = 0; i < nr; i++)
		probe_fill(&g, c[i].va, c[i].bytes, FRESH_SEED);
	m.arg[0] = nr;
	role_send(sock, &m, -1);
	/* The end of the process frees its memory. */
	role_recv(sock, &m, NULL, 60000);
}

static void look(struct gpu *g, struct gpu_chunk *c, u32 nr, const char *after)
{
	u64 wrong, not_zero, dirty = 0, old = 0, all = 0;
	u32 i;

	for (i = 0; i < nr; i++) {
		probe_check(g, c[i].va, c[i].bytes, FRESH_SEED, &wrong,
			    &not_zero);
		dirty += not_zero;
		old += c[i].bytes / 8 - wrong;
		all += c[i].bytes;
	}
	gpu_fact(all / 1e9, "GB", "looked at", "fresh.%s.all", after);
	gpu_fact(8.0 * dirty, "bytes", "words that are not zero",
		 "fresh.%s.not_zero", after);
	gpu_fact(8.0 * old, "bytes", "as the one before left them",
		 "fresh.%s.old", after);
}

void part_fresh(void)
{
	static struct gpu_chunk c[FRESH_MAX];
	struct role_msg m;
	struct role r;
	struct gpu g;
	u32 i, nr;

	role_start(&r, "dirty", NULL);
	if (!role_recv(r.sock, &m, NULL, 60000))
		gpu_die("no process filled the memory");
	role_end(&r);
	probe_open(&g);
	nr = take_most(&g, c);
	look(&g, c, nr, "other_process");
	for (i = 0; i < nr; i++) {
		probe_fill(&g, c[i].va, c[i].bytes, FRESH_SEED);
		gpu_chunk_free(&g, &c[i]);
	}
	nr = take_most(&g, c);
	look(&g, c, nr, "same_process");
}

const struct role_entry vmm_roles[] = {
	{ "importer", importer_role },
	{ "guard", guard_role },
	{ "dirty", dirty_role },
	{ 0 }
};
