// SPDX-License-Identifier: Apache-2.0
/*
 * fail_nth.c - let the Nth call that may fail return an error
 *
 * Preloaded into the daemons or a client, this library intercepts the
 * allocations and system calls of CALLS.  While the page that it shares with
 * the test is armed, it counts each such call of all threads and processes.
 * The target call is not made and returns the error of its row.  So a test that
 * counts up sees each of them fail once.
 *
 * It does not count calls that cannot fail (close, clocks), calls that wait
 * (poll, epoll_wait), and lines for the log, which have to report the other
 * failures.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <liburing.h>

#include "tests/preload/fail_nth.h"

#define FROM	((u64)(uintptr_t)__builtin_return_address(0))

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t nr, size_t size);
void *__libc_realloc(void *p, size_t size);
void *__libc_memalign(size_t align, size_t size);

static struct fail_page *page;
static u64 program;		/* load address of the program */

static int program_is_first(struct dl_phdr_info *info, size_t size, void *arg)
{
	program = info->dlpi_addr;
	return 1;
}

static __attribute__((constructor)) void fail_init(void)
{
	const char *path = getenv(FAIL_ENV);
	long fd, at;

	fd = path ? syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0) :
		    -1;
	if (fd < 0)
		return;
	dl_iterate_phdr(program_is_first, NULL);
	at = syscall(SYS_mmap, NULL, sizeof(*page), PROT_READ | PROT_WRITE,
		     MAP_SHARED, fd, 0l);
	syscall(SYS_close, fd);
	if (at != -1)
		page = (struct fail_page *)at;
}

static void fail_note(const char *call, u64 from, int error)
{
	FILE *f;

	page->error = (u64)error;
	page->from = from - program;
	strncpy(page->call, call, sizeof(page->call) - 1);
	__atomic_store_n(&page->failed, 1, __ATOMIC_RELEASE);
	f = fopen("/proc/self/comm", "re");
	if (f) {
		if (!fgets(page->program, sizeof(page->program), f))
			page->program[0] = 0;
		page->program[strcspn(page->program, "\n")] = 0;
		fclose(f);
	}
}

/* Is this call the target? */
static bool fails(const char *call, u64 from, int error)
{
	if (!page || !__atomic_load_n(&page->armed, __ATOMIC_ACQUIRE))
		return false;
	if (__atomic_add_fetch(&page->nr, 1, __ATOMIC_RELAXED) !=
	    __atomic_load_n(&page->target, __ATOMIC_RELAXED))
		return false;
	fail_note(call, from, error);
	errno = error;
	return true;
}

/* ---- the heap ---- */

void *malloc(size_t size)
{
	return fails("malloc", FROM, ENOMEM) ? NULL : __libc_malloc(size);
}

void *calloc(size_t nr, size_t size)
{
	return fails("calloc", FROM, ENOMEM) ? NULL : __libc_calloc(nr, size);
}

void *realloc(void *p, size_t size)
{
	return fails("realloc", FROM, ENOMEM) ? NULL :
	       __libc_realloc(p, size);
}

void *aligned_alloc(size_t align, size_t size)
{
	return fails("aligned_alloc", FROM, ENOMEM) ? NULL :
	       __libc_memalign(align, size);
}

int posix_memalign(void **p, size_t align, size_t size)
{
	void *at;

	if (fails("posix_memalign", FROM, ENOMEM))
		return ENOMEM;
	at = __libc_memalign(align, size);
	if (!at)
		return ENOMEM;
	*p = at;
	return 0;
}

/* ---- calls that are passed on unchanged ---- */

/*
 * x(type, name, error, failure, (parameters), (arguments))
 * The failure is its return value then: -1, NULL, or the error itself.
 */
#define CALLS(x)							\
	x(void *, mmap, ENOMEM, MAP_FAILED,				\
	  (void *a, size_t n, int p, int f, int fd, off_t o),		\
	  (a, n, p, f, fd, o))						\
	x(int, madvise, ENOMEM, -1, (void *a, size_t n, int w),		\
	  (a, n, w))							\
	x(int, mlock, ENOMEM, -1, (const void *a, size_t n), (a, n))	\
	x(int, memfd_create, EMFILE, -1, (const char *n, unsigned f),	\
	  (n, f))							\
	x(int, ftruncate, EIO, -1, (int fd, off_t n), (fd, n))		\
	x(int, fallocate, ENOSPC, -1, (int fd, int m, off_t o, off_t n), \
	  (fd, m, o, n))						\
	x(int, fstat, EIO, -1, (int fd, struct stat *st), (fd, st))	\
	x(int, stat, EACCES, -1, (const char *p, struct stat *st),	\
	  (p, st))							\
	x(int, lstat, EACCES, -1, (const char *p, struct stat *st),	\
	  (p, st))							\
	x(int, fstatvfs, EIO, -1, (int fd, struct statvfs *st),		\
	  (fd, st))							\
	x(int, mkdir, EACCES, -1, (const char *p, mode_t m), (p, m))	\
	x(int, chmod, EPERM, -1, (const char *p, mode_t m), (p, m))	\
	x(int, flock, EWOULDBLOCK, -1, (int fd, int op), (fd, op))	\
	x(int, fdatasync, EIO, -1, (int fd), (fd))			\
	x(FILE *, fopen, EMFILE, NULL, (const char *p, const char *m),	\
	  (p, m))							\
	x(ssize_t, read, EIO, -1, (int fd, void *b, size_t n),		\
	  (fd, b, n))							\
	x(ssize_t, pread, EIO, -1, (int fd, void *b, size_t n, off_t o), \
	  (fd, b, n, o))						\
	x(ssize_t, pwrite, EIO, -1,					\
	  (int fd, const void *b, size_t n, off_t o), (fd, b, n, o))	\
	x(int, socket, EMFILE, -1, (int d, int t, int p), (d, t, p))	\
	x(int, socketpair, EMFILE, -1, (int d, int t, int p, int v[2]),	\
	  (d, t, p, v))							\
	x(int, bind, EACCES, -1,					\
	  (int fd, const struct sockaddr *a, socklen_t n), (fd, a, n))	\
	x(int, listen, ENOMEM, -1, (int fd, int n), (fd, n))		\
	x(int, connect, EACCES, -1,					\
	  (int fd, const struct sockaddr *a, socklen_t n), (fd, a, n))	\
	x(int, accept4, EMFILE, -1,					\
	  (int fd, struct sockaddr *a, socklen_t *n, int f),		\
	  (fd, a, n, f))						\
	x(int, getsockopt, ENOMEM, -1,					\
	  (int fd, int l, int o, void *v, socklen_t *n),		\
	  (fd, l, o, v, n))						\
	x(int, setsockopt, ENOMEM, -1,					\
	  (int fd, int l, int o, const void *v, socklen_t n),		\
	  (fd, l, o, v, n))						\
	x(ssize_t, send, ENOBUFS, -1,					\
	  (int fd, const void *b, size_t n, int f), (fd, b, n, f))	\
	x(ssize_t, sendmsg, ENOBUFS, -1,				\
	  (int fd, const struct msghdr *m, int f), (fd, m, f))		\
	x(ssize_t, recv, ENOMEM, -1, (int fd, void *b, size_t n, int f), \
	  (fd, b, n, f))						\
	x(ssize_t, recvmsg, ENOMEM, -1,					\
	  (int fd, struct msghdr *m, int f), (fd, m, f))		\
	x(int, eventfd, EMFILE, -1, (unsigned v, int f), (v, f))	\
	x(int, epoll_create1, EMFILE, -1, (int f), (f))			\
	x(int, epoll_ctl, ENOMEM, -1,					\
	  (int e, int op, int fd, struct epoll_event *ev),		\
	  (e, op, fd, ev))						\
	x(int, signalfd, EMFILE, -1, (int fd, const sigset_t *s, int f), \
	  (fd, s, f))							\
	x(int, sigaction, EINVAL, -1,					\
	  (int s, const struct sigaction *a, struct sigaction *o),	\
	  (s, a, o))							\
	x(int, setrlimit, EPERM, -1,					\
	  (__rlimit_resource_t r, const struct rlimit *l), (r, l))	\
	x(ssize_t, getrandom, EAGAIN, -1, (void *b, size_t n, unsigned f),	\
	  (b, n, f))							\
	x(int, fork, EAGAIN, -1, (void), ())				\
	x(int, execv, ENOMEM, -1, (const char *p, char *const a[]),	\
	  (p, a))							\
	x(int, pthread_create, EAGAIN, EAGAIN,				\
	  (pthread_t *t, const pthread_attr_t *a, void *(*f)(void *),	\
	   void *v), (t, a, f, v))					\
	x(int, timer_create, EAGAIN, -1,				\
	  (clockid_t c, struct sigevent *e, timer_t *t), (c, e, t))	\
	x(int, io_uring_queue_init_params, ENOMEM, -ENOMEM,		\
	  (unsigned n, struct io_uring *r, struct io_uring_params *p),	\
	  (n, r, p))							\
	x(int, io_uring_queue_mmap, ENOMEM, -ENOMEM,			\
	  (int fd, struct io_uring_params *p, struct io_uring *r),	\
	  (fd, p, r))							\
	x(int, io_uring_register_buffers, ENOMEM, -ENOMEM,		\
	  (struct io_uring *r, const struct iovec *v, unsigned n),	\
	  (r, v, n))							\
	x(int, io_uring_register_files, EMFILE, -EMFILE,		\
	  (struct io_uring *r, const int *f, unsigned n), (r, f, n))	\
	x(int, io_uring_register_files_update, ENOMEM, -ENOMEM,		\
	  (struct io_uring *r, unsigned o, const int *f, unsigned n),	\
	  (r, o, f, n))							\
	x(int, io_uring_submit, EAGAIN, -EAGAIN, (struct io_uring *r), (r))

#define x(type, name, error, failure, params, args)			\
type name params							\
{									\
	static type (*next) params;					\
									\
	if (!next)							\
		*(void **)&next = dlsym(RTLD_NEXT, #name);		\
	return fails(#name, FROM, error) ? (type)failure : next args;	\
}
CALLS(x)
#undef x

/* ---- calls with extra code ---- */

ssize_t write(int fd, const void *b, size_t n)
{
	if (fd > 2 && fails("write", FROM, EIO))
		return -1;
	return syscall(SYS_write, fd, b, n);
}

int open(const char *path, int flags, ...)
{
	va_list ap;
	int mode;

	va_start(ap, flags);
	mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(ap, int) : 0;
	va_end(ap);
	if (fails("open", FROM, EMFILE))
		return -1;
	return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int fcntl(int fd, int cmd, ...)
{
	va_list ap;
	long arg;

	va_start(ap, cmd);
	arg = va_arg(ap, long);
	va_end(ap);
	if (fails("fcntl", FROM, EINVAL))
		return -1;
	return (int)syscall(SYS_fcntl, fd, cmd, arg);
}

int ioctl(int fd, unsigned long cmd, ...)
{
	va_list ap;
	long arg;

	va_start(ap, cmd);
	arg = va_arg(ap, long);
	va_end(ap);
	if (fails("ioctl", FROM, EIO))
		return -1;
	return (int)syscall(SYS_ioctl, fd, cmd, arg);
}
