// SPDX-License-Identifier: Apache-2.0
/*
 * watch_alloc.c - count allocations on the mm thread
 *
 * Preloaded into a daemon, this library intercepts malloc() and its relatives,
 * free(), and the system calls that change the address space.  A call by the
 * thread called WATCH_THREAD, once it has this name, is counted in a page that
 * the test has mapped too; then the call is made as usual.
 *
 * The flag that says "this thread" is in the thread's static storage, so that
 * reading it needs no memory.  The allocator itself is called by glibc's
 * internal names, so that no lookup is needed, which would allocate.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/preload/watch_alloc.h"

#define FROM	((u64)(uintptr_t)__builtin_return_address(0))

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t nr, size_t size);
void *__libc_realloc(void *p, size_t size);
void *__libc_memalign(size_t align, size_t size);
void __libc_free(void *p);

static struct watch_page *page;
static u64 program;		/* load address of the program */
static __thread bool watched __attribute__((tls_model("initial-exec")));

static void watch_note(const char *what, u64 from, u64 bytes)
{
	u64 i = __atomic_fetch_add(&page->nr_calls, 1, __ATOMIC_RELAXED);

	if (i >= WATCH_CALLS)
		return;
	page->call[i] = (struct watch_call){
		.from = from - program, .bytes = bytes };
	strncpy(page->call[i].what, what, sizeof(page->call[i].what) - 1);
}

static inline void watch(const char *what, u64 from, u64 bytes)
{
	if (!page)
		return;
	if (watched)
		watch_note(what, from, bytes);
	else
		__atomic_fetch_add(&page->nr_elsewhere, 1, __ATOMIC_RELAXED);
}

static int program_is_first(struct dl_phdr_info *info, size_t size, void *arg)
{
	program = info->dlpi_addr;
	return 1;
}

static __attribute__((constructor)) void watch_init(void)
{
	const char *path = getenv(WATCH_ENV);
	int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
	long at;

	if (fd < 0)
		return;
	dl_iterate_phdr(program_is_first, NULL);
	at = syscall(SYS_mmap, NULL, sizeof(*page), PROT_READ | PROT_WRITE,
		     MAP_SHARED, fd, 0l);
	close(fd);
	if (at != -1)
		page = (struct watch_page *)at;
}

/* ---- name of the thread ---- */

int pthread_setname_np(pthread_t thread, const char *name)
{
	static int (*next)(pthread_t thread, const char *name);

	if (!next)
		*(void **)&next = dlsym(RTLD_NEXT, "pthread_setname_np");
	if (page && pthread_equal(thread, pthread_self()) &&
	    !strcmp(name, WATCH_THREAD)) {
		watched = true;
		__atomic_fetch_add(&page->nr_threads, 1, __ATOMIC_RELAXED);
	}
	return next(thread, name);
}

/* ---- the heap ---- */

void *malloc(size_t size)
{
	watch("malloc", FROM, size);
	return __libc_malloc(size);
}

void *calloc(size_t nr, size_t size)
{
	watch("calloc", FROM, nr * size);
	return __libc_calloc(nr, size);
}

void *realloc(void *p, size_t size)
{
	watch("realloc", FROM, size);
	return __libc_realloc(p, size);
}

void free(void *p)
{
	watch("free", FROM, 0);
	__libc_free(p);
}

void *memalign(size_t align, size_t size)
{
	watch("memalign", FROM, size);
	return __libc_memalign(align, size);
}

void *aligned_alloc(size_t align, size_t size)
{
	watch("aligned_alloc", FROM, size);
	return __libc_memalign(align, size);
}

int posix_memalign(void **p, size_t align, size_t size)
{
	void *at;

	watch("posix_memalign", FROM, size);
	at = __libc_memalign(align, size);
	if (!at)
		return ENOMEM;
	*p = at;
	return 0;
}

/* ---- the address space ---- */

void *mmap(void *at, size_t len, int prot, int flags, int fd, off_t off)
{
	watch("mmap", FROM, len);
	return (void *)syscall(SYS_mmap, at, len, prot, flags, fd, off);
}

int munmap(void *at, size_t len)
{
	watch("munmap", FROM, len);
	return (int)syscall(SYS_munmap, at, len);
}

int mprotect(void *at, size_t len, int prot)
{
	watch("mprotect", FROM, len);
	return (int)syscall(SYS_mprotect, at, len, prot);
}

int madvise(void *at, size_t len, int advice)
{
	watch("madvise", FROM, len);
	return (int)syscall(SYS_madvise, at, len, advice);
}
