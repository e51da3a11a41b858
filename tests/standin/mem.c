// SPDX-License-Identifier: Apache-2.0
/*
 * mem.c - device memory: handles of memfds, addresses, allocations
 *
 * A device address is an address of this process.  A handle is a memfd with a
 * size that is sealed; it lives as long as a caller holds it or has it mapped,
 * and an exported handle is a copy of the file descriptor.  Memory of cuMemAlloc()
 * ends at a guard page; the bytes from its size up to there, less than 256, have a
 * pattern that is checked when it is freed.
 *
 * New memory is full of a pattern, which the seed chooses: callers must not rely
 * on zeros.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/standin/driver.h"

#define ALIGN	256u
#define SLACK	0x5au

struct handle {
	struct handle *next;
	u64 id;			/* as callers know it */
	u64 inode;
	u64 size;
	int fd;
	u32 refs;		/* of callers */
	u32 maps;
	bool exportable;
};

struct reserved {
	struct reserved *next;
	u64 addr, size;
};

static struct handle *handles;
static struct reserved *areas;
static u64 next_id = 0x1000;

static u64 granularity(void)
{
	return drv_env("KVMM_STANDIN_GRAN", 2 << 20);
}

static u64 page_size(void)
{
	return (u64)sysconf(_SC_PAGESIZE);
}

/* NaN in every type, huge as an index, and not zero. */
void mem_poison(void *p, u64 bytes)
{
	static const u32 patterns[] = {
		0xffffffff, 0x7fc17fc1, 0xff81ff81, 0x7fbadbad,
	};
	const u32 w = patterns[(shim_seed() >> 32) % ARRAY_SIZE(patterns)];
	u32 *to = p;
	u64 i;

	for (i = 0; i < bytes / 4; i++)
		to[i] = w;
	memset((u8 *)p + bytes / 4 * 4, 0xff, bytes % 4);
}

/* ---- handles ---- */

static struct handle *handle_of(u64 id)
{
	struct handle *h;

	for (h = handles; h; h = h->next)
		if (h->id == id && h->refs)
			return h;
	return NULL;
}

/* Does another handle of this process name the same memory? */
static bool inode_held(const struct handle *but)
{
	const struct handle *h;

	for (h = handles; h; h = h->next)
		if (h != but && h->inode == but->inode)
			return true;
	return false;
}

static void handle_gone(struct handle *h)
{
	struct handle **p;

	if (h->refs || h->maps)
		return;
	for (p = &handles; *p != h; p = &(*p)->next)
		;
	*p = h->next;
	close(h->fd);
	if (!inode_held(h))
		account_drop(h->inode);
	free(h);
}

/* Takes @fd over, also when it fails. */
static CUresult handle_add(u64 *id, int fd, u64 size, bool exportable)
{
	struct handle *h = calloc(1, sizeof(*h));
	struct stat st;

	if (!h || fstat(fd, &st) || account_hold((u64)st.st_ino, size)) {
		free(h);
		close(fd);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*h = (struct handle){ handles, next_id++, (u64)st.st_ino, size, fd, 1,
			      0, exportable };
	handles = h;
	*id = h->id;
	return CUDA_SUCCESS;
}

static bool prop_good(const struct cu_mem_prop *p)
{
	return p && p->type == CU_MEM_ALLOCATION_TYPE_PINNED &&
	       p->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
	       !p->location.id &&
	       !(p->handle_types & ~CU_MEM_HANDLE_TYPE_FD);
}

static int new_memfd(u64 size)
{
	int fd = memfd_create("kvmm-standin", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	void *p;

	if (fd < 0)
		return -1;
	if (ftruncate(fd, (off_t)size))
		goto fail;
	p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		goto fail;
	mem_poison(p, size);
	munmap(p, size);
	if (!fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		return fd;
fail:
	close(fd);
	return -1;
}

CUresult drv_MemGetAllocationGranularity(size_t *bytes,
					 const struct cu_mem_prop *prop,
					 int option)
{
	ENTER(MemGetAllocationGranularity, DRV_INIT);
	*bytes = granularity();
	return drv_leave(prop_good(prop) && option >= 0 && option <= 1 ?
			 CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult drv_MemCreate(CUmemGenericAllocationHandle *handle, size_t size,
		       const struct cu_mem_prop *prop, unsigned long long flags)
{
	u64 id = 0;
	CUresult r;
	int fd;

	ENTER(MemCreate, DRV_INIT);
	if (flags || !size || size % granularity() || !prop_good(prop))
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	if (!account_room(size))
		return drv_leave(CUDA_ERROR_OUT_OF_MEMORY);
	fd = new_memfd(size);
	if (fd < 0)
		return drv_leave(CUDA_ERROR_OUT_OF_MEMORY);
	r = handle_add(&id, fd, size, prop->handle_types);
	if (!r)
		drv_count[COUNT_CREATED]++;
	*handle = id;
	return drv_leave(r);
}

CUresult drv_MemRelease(CUmemGenericAllocationHandle handle)
{
	struct handle *h;

	ENTER(MemRelease, DRV_INIT);
	h = handle_of(handle);
	if (!h)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	h->refs--;
	handle_gone(h);
	drv_count[COUNT_RELEASED]++;
	return drv_leave(CUDA_SUCCESS);
}

CUresult drv_MemExportToShareableHandle(void *to,
					CUmemGenericAllocationHandle handle,
					int type, unsigned long long flags)
{
	struct handle *h;
	int fd;

	ENTER(MemExportToShareableHandle, DRV_INIT);
	h = handle_of(handle);
	if (!h || flags || type != CU_MEM_HANDLE_TYPE_FD || !h->exportable)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	fd = fcntl(h->fd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		return drv_leave(CUDA_ERROR_UNKNOWN);
	*(int *)to = fd;
	drv_count[COUNT_EXPORTED]++;
	return drv_leave(CUDA_SUCCESS);
}

CUresult drv_MemImportFromShareableHandle(CUmemGenericAllocationHandle *handle,
					  void *from, int type)
{
	const int theirs = (int)(intptr_t)from;
	const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	struct stat st;
	u64 id = 0;
	CUresult r;
	int fd;

	ENTER(MemImportFromShareableHandle, DRV_INIT);
	if (type != CU_MEM_HANDLE_TYPE_FD || fstat(theirs, &st) ||
	    fcntl(theirs, F_GET_SEALS) != seals || !st.st_size ||
	    (u64)st.st_size % granularity())
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	fd = fcntl(theirs, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		return drv_leave(CUDA_ERROR_UNKNOWN);
	r = handle_add(&id, fd, (u64)st.st_size, true);
	if (!r)
		drv_count[COUNT_IMPORTED]++;
	*handle = id;
	return drv_leave(r);
}

/* ---- addresses ---- */

static struct reserved **area_of(u64 addr, u64 size)
{
	struct reserved **p;

	for (p = &areas; *p; p = &(*p)->next)
		if (addr >= (*p)->addr &&
		    addr + size <= (*p)->addr + (*p)->size)
			return p;
	return NULL;
}

CUresult drv_MemAddressReserve(CUdeviceptr *addr, size_t size, size_t align,
			       CUdeviceptr wish, unsigned long long flags)
{
	const u64 gran = granularity();
	const u64 to = align > gran ? align : gran;
	struct reserved *a;
	u64 at;
	u8 *m;

	ENTER(MemAddressReserve, DRV_INIT);
	if (flags || !size || size % gran || !is_power_of_2(to))
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	a = calloc(1, sizeof(*a));
	/* One more page at the end, so that no other memory follows. */
	m = mmap((void *)(uintptr_t)wish, size + to + page_size(), PROT_NONE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (!a || m == MAP_FAILED) {
		free(a);
		return drv_leave(CUDA_ERROR_OUT_OF_MEMORY);
	}
	at = ALIGN_UP((u64)(uintptr_t)m, to);
	if (at > (u64)(uintptr_t)m)
		munmap(m, at - (u64)(uintptr_t)m);
	munmap((void *)(uintptr_t)(at + size + page_size()),
	       (u64)(uintptr_t)m + to - at);
	*a = (struct reserved){ areas, at, size };
	areas = a;
	*addr = at;
	return drv_leave(CUDA_SUCCESS);
}

CUresult drv_MemAddressFree(CUdeviceptr addr, size_t size)
{
	struct reserved **p, *a;

	ENTER(MemAddressFree, DRV_INIT);
	p = area_of(addr, size);
	if (!p || (*p)->addr != addr || (*p)->size != size ||
	    range_overlaps(addr, size))
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	a = *p;
	*p = a->next;
	munmap((void *)(uintptr_t)addr, size + page_size());
	free(a);
	return drv_leave(CUDA_SUCCESS);
}

CUresult drv_MemMap(CUdeviceptr addr, size_t size, size_t offset,
		    CUmemGenericAllocationHandle handle,
		    unsigned long long flags)
{
	struct handle *h;
	struct range r;

	ENTER(MemMap, DRV_INIT);
	h = handle_of(handle);
	if (!h || flags || offset || !size || size % granularity() ||
	    addr % granularity() || size > h->size || !area_of(addr, size))
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	if (range_overlaps(addr, size))
		return drv_leave(CUDA_ERROR_ALREADY_MAPPED);
	r = (struct range){ .addr = addr, .size = size, .kind = RANGE_MAP,
			    .handle = h, .base = addr, .bytes = size };
	if (mmap((void *)(uintptr_t)addr, size, PROT_NONE,
		 MAP_SHARED | MAP_FIXED, h->fd, 0) == MAP_FAILED ||
	    range_add(&r))
		return drv_leave(CUDA_ERROR_OUT_OF_MEMORY);
	h->maps++;
	drv_count[COUNT_MAPPED]++;
	return drv_leave(CUDA_SUCCESS);
}

CUresult drv_MemUnmap(CUdeviceptr addr, size_t size)
{
	struct handle *h;
	struct range *r;

	ENTER(MemUnmap, DRV_INIT);
	r = range_at(addr);
	if (!r || r->kind != RANGE_MAP || r->addr != addr || r->size != size)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	if (mmap((void *)(uintptr_t)addr, size, PROT_NONE, MAP_PRIVATE |
		 MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) ==
	    MAP_FAILED)
		return drv_leave(CUDA_ERROR_UNKNOWN);
	h = r->handle;
	range_del(r);
	h->maps--;
	handle_gone(h);
	drv_count[COUNT_UNMAPPED]++;
	return drv_leave(CUDA_SUCCESS);
}

CUresult drv_MemSetAccess(CUdeviceptr addr, size_t size,
			  const struct cu_mem_access *access, size_t nr)
{
	struct range *r;
	int prot;
	u64 at;

	ENTER(MemSetAccess, DRV_INIT);
	if (nr != 1 || access->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
	    access->location.id || !size)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	prot = access->flags == CU_MEM_ACCESS_READWRITE ?
		PROT_READ | PROT_WRITE :
		access->flags == CU_MEM_ACCESS_READ ? PROT_READ : PROT_NONE;
	for (at = addr; at < addr + size; at = r->addr + r->size) {
		r = range_at(at);
		if (!r || r->kind != RANGE_MAP ||
		    r->addr + r->size > addr + size || (at == addr &&
							r->addr != addr))
			return drv_leave(CUDA_ERROR_INVALID_VALUE);
	}
	for (at = addr; at < addr + size; at = r->addr + r->size) {
		r = range_at(at);
		r->access = prot != PROT_NONE;
		r->prot = prot;
		range_protect(r);
	}
	return drv_leave(CUDA_SUCCESS);
}

/* ---- allocations ---- */

/* @size bytes that end at a guard page, rounded up to the alignment. */
static CUresult new_range(u64 *addr, u64 size, enum range_kind kind)
{
	const u64 page = page_size();
	const u64 whole = ALIGN_UP(size, (u64)ALIGN);
	const u64 bytes = ALIGN_UP(whole, page);
	struct range r = { .size = size, .kind = kind, .access = true,
			   .prot = PROT_READ | PROT_WRITE };
	u8 *m;

	m = mmap(NULL, bytes + 2 * page, PROT_NONE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (m == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r.base = (u64)(uintptr_t)m;
	r.bytes = bytes + 2 * page;
	r.addr = r.base + page + bytes - whole;
	if (mprotect(m + page, bytes, PROT_READ | PROT_WRITE) ||
	    range_add(&r)) {
		munmap(m, r.bytes);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	mem_poison((void *)(uintptr_t)r.addr, size);
	memset((void *)(uintptr_t)(r.addr + size), SLACK, whole - size);
	range_protect(&r);
	*addr = r.addr;
	return CUDA_SUCCESS;
}

void range_check(const struct range *r)
{
	const u64 whole = ALIGN_UP(r->size, (u64)ALIGN);
	const u8 *p = (const u8 *)(uintptr_t)r->addr;
	u64 i;

	if (!(r->kind & (RANGE_ALLOC | RANGE_MANAGED | RANGE_HOST)))
		return;
	range_open();
	for (i = r->size; i < whole; i++)
		if (p[i] != SLACK)
			drv_die("byte %llu behind the %llu of an allocation was written",
				(unsigned long long)(i - r->size),
				(unsigned long long)r->size);
}

static CUresult alloc(u64 *addr, u64 size, enum range_kind kind)
{
	CUresult r;

	if (!size)
		return CUDA_ERROR_INVALID_VALUE;
	if (account_plain((s64)ALIGN_UP(size, (u64)ALIGN)))
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = new_range(addr, size, kind);
	if (r)
		account_plain(-(s64)ALIGN_UP(size, (u64)ALIGN));
	else
		drv_count[COUNT_ALLOC]++;
	return r;
}

CUresult drv_MemAlloc(CUdeviceptr *addr, size_t size)
{
	u64 at = 0;
	CUresult r;

	ENTER(MemAlloc, DRV_INIT | DRV_CONTEXT | DRV_NO_CAPTURE);
	r = alloc(&at, size, RANGE_ALLOC);
	*addr = at;
	return drv_leave(r);
}

CUresult drv_MemAllocManaged(CUdeviceptr *addr, size_t size,
			     unsigned int flags)
{
	u64 at = 0;
	CUresult r;

	ENTER(MemAllocManaged, DRV_INIT | DRV_CONTEXT | DRV_NO_CAPTURE);
	r = flags == CU_MEM_ATTACH_GLOBAL ? alloc(&at, size, RANGE_MANAGED) :
					    CUDA_ERROR_INVALID_VALUE;
	*addr = at;
	return drv_leave(r);
}

/* Waits for all running ops, as the driver does. */
CUresult drv_MemFree(CUdeviceptr addr)
{
	struct range *r;

	ENTER(MemFree, DRV_INIT | DRV_CONTEXT | DRV_NO_CAPTURE);
	if (!addr)
		return drv_leave(CUDA_SUCCESS);
	stream_run_all();
	r = range_at(addr);
	if (!r || r->addr != addr || !(r->kind & (RANGE_ALLOC | RANGE_MANAGED)))
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	range_check(r);
	munmap((void *)(uintptr_t)r->base, r->bytes);
	account_plain(-(s64)ALIGN_UP(r->size, (u64)ALIGN));
	range_del(r);
	drv_count[COUNT_FREE]++;
	return drv_leave(CUDA_SUCCESS);
}

CUresult drv_MemGetInfo(size_t *room, size_t *all)
{
	u64 used;

	ENTER(MemGetInfo, DRV_INIT | DRV_CONTEXT);
	used = account_used();
	*all = account_total();
	*room = used < *all ? *all - used : 0;
	return drv_leave(CUDA_SUCCESS);
}

/* ---- memory of the host ---- */

CUresult drv_MemHostAlloc(void **p, size_t size, unsigned int flags)
{
	u64 at = 0;
	CUresult r;

	ENTER(MemHostAlloc, DRV_INIT | DRV_CONTEXT | DRV_NO_CAPTURE);
	r = size && !(flags & ~7u) ? new_range(&at, size, RANGE_HOST) :
				     CUDA_ERROR_INVALID_VALUE;
	*p = (void *)(uintptr_t)at;
	drv_count[COUNT_PINNED] += !r;
	return drv_leave(r);
}

CUresult drv_MemFreeHost(void *p)
{
	struct range *r;

	ENTER(MemFreeHost, DRV_INIT | DRV_CONTEXT | DRV_NO_CAPTURE);
	stream_run_all();
	r = range_at((u64)(uintptr_t)p);
	if (!r || r->kind != RANGE_HOST || r->addr != (u64)(uintptr_t)p)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	range_check(r);
	munmap((void *)(uintptr_t)r->base, r->bytes);
	range_del(r);
	drv_count[COUNT_UNPINNED]++;
	return drv_leave(CUDA_SUCCESS);
}

CUresult drv_MemHostRegister(void *p, size_t size, unsigned int flags)
{
	struct range r = { .addr = (u64)(uintptr_t)p, .size = size,
			   .kind = RANGE_PINNED, .access = true };

	ENTER(MemHostRegister, DRV_INIT | DRV_CONTEXT | DRV_NO_CAPTURE);
	if (!p || !size || (flags & ~0xfu))
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	if (range_overlaps(r.addr, size))
		return drv_leave(CUDA_ERROR_HOST_ALREADY_REGISTERED);
	if (range_add(&r))
		return drv_leave(CUDA_ERROR_OUT_OF_MEMORY);
	drv_count[COUNT_PINNED]++;
	return drv_leave(CUDA_SUCCESS);
}

CUresult drv_MemHostUnregister(void *p)
{
	struct range *r;

	ENTER(MemHostUnregister, DRV_INIT | DRV_CONTEXT | DRV_NO_CAPTURE);
	r = range_at((u64)(uintptr_t)p);
	if (!r || r->kind != RANGE_PINNED || r->addr != (u64)(uintptr_t)p)
		return drv_leave(CUDA_ERROR_HOST_NOT_REGISTERED);
	stream_run_all();
	range_del(range_at((u64)(uintptr_t)p));
	drv_count[COUNT_UNPINNED]++;
	return drv_leave(CUDA_SUCCESS);
}
