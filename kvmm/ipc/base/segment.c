// SPDX-License-Identifier: Apache-2.0
/*
 * segment.c - memory shared with a client, and the handler for its failures
 *
 * Both segments of a client are memfds.  The daemon makes, sizes, fills and
 * seals each before it sends the descriptor; it can neither shrink nor grow.
 * The client may write C, and may punch holes in it: the daemon then reads
 * zeros.  D is sealed against future writers after the daemon made its own
 * writable mapping, so the client can map it read-only alone.
 *
 * One failure is left: the kernel cannot bring a page back, because memory has
 * run out or is broken, and sends SIGBUS to the thread that touched the page.
 * The handler finds the segment by the address, maps private zeros in its
 * place and counts the fault.  The thread goes on with the zeros, and the mm
 * thread expels the client at the end of its turn.  A SIGBUS in an extent that
 * the copier copies ends that copy (dev_copy_fault()).  A SIGBUS at any other
 * address is a failure of the daemon's own memory, and ends it.
 *
 * The control thread writes the table of guarded ranges; the handler reads it
 * on any thread.  A range is published by its length and withdrawn before the
 * segment is unmapped.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>

#include <kvmm/fault.h>

#include "kvmm/dev/dev.h"
#include "kvmm/ipc/base/base.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE	0x0010
#endif

#define NR_GUARDS	(2 * (MAX_CLIENTS + MAX_GREETING))

struct guard {
	u64	base;
	u64	bytes;		/* 0: unused */
	u32	faulted;
};

static struct guard guards[NR_GUARDS];
static u32 guard_faults;

static void guard_fault(int sig, siginfo_t *si, void *ctx)
{
	u64 addr = (u64)(uintptr_t)si->si_addr;
	static const char text[] = "kvmm: error: memory of its own cannot be reached (SIGBUS): look for errors of the machine's memory; kvmm-hold starts another\n";
	int i, saved = errno;
	void *p;

	for (i = 0; i < NR_GUARDS; i++) {
		/* Pairs with the release in guard_add(). */
		u64 bytes = load_acquire(&guards[i].bytes);
		u64 base = READ_ONCE(guards[i].base);

		if (addr - base >= bytes)
			continue;
		p = mmap((void *)(uintptr_t)base, bytes,
			 PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		if (p == MAP_FAILED)
			break;
		WRITE_ONCE(guards[i].faulted, 1);
		__atomic_fetch_add(&guard_faults, 1, __ATOMIC_RELEASE);
		errno = saved;
		return;
	}
	/* Does not return if a copy of this thread met memory of a client. */
	dev_copy_fault(si->si_addr);
	/* It is no segment.  The sandbox forbids to replace the handler. */
	if (write(STDERR_FILENO, text, sizeof(text) - 1) < 0)
		errno = saved;
	raise(SIGKILL);
}

int segment_guard_init(void)
{
	struct sigaction sa = {
		.sa_sigaction	= guard_fault,
		.sa_flags	= SA_SIGINFO | SA_ONSTACK,
	};

	sigemptyset(&sa.sa_mask);
	return sigaction(SIGBUS, &sa, NULL) ? -errno : 0;
}

u32 segment_fault_count(void)
{
	return load_acquire(&guard_faults);
}

bool segment_faulted(int guard)
{
	return guard >= 0 && READ_ONCE(guards[guard].faulted);
}

static int guard_add(const char *base, size_t bytes)
{
	int i;

	for (i = 0; i < NR_GUARDS; i++) {
		if (guards[i].bytes)
			continue;
		WRITE_ONCE(guards[i].base, (u64)(uintptr_t)base);
		WRITE_ONCE(guards[i].faulted, 0);
		/* Pairs with the acquire in guard_fault(). */
		store_release(&guards[i].bytes, bytes);
		return i;
	}
	return -ENOSPC;
}

static void guard_del(int guard)
{
	store_release(&guards[guard].bytes, 0);
}

/* The memfd: sized, filled, not yet sealed. */
static int segment_memfd(const char *name, size_t bytes)
{
	int err = dev_memory_admit(bytes);
	int fd;

	if (err)
		return err;
	fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -errno;
	if (ftruncate(fd, (off_t)bytes) || fallocate(fd, 0, 0, (off_t)bytes)) {
		err = errno == ENOSPC ? -ENOMEM : -errno;
		close(fd);
		return err;
	}
	return fd;
}

/**
 * segment_create() - make memory to be shared with one client
 * @s:             filled in
 * @bytes:         a multiple of the page size
 * @client_writes: segment C, else segment D
 *
 * Context: control thread.
 * Return: 0, or a negative errno with nothing left behind.
 */
int segment_create(struct segment *s, size_t bytes, const char *name,
		   bool client_writes)
{
	int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	int err;

	if (kv_fault(KV_FAULT_segment_create))
		return -ENOMEM;
	s->bytes = bytes;
	s->fd = segment_memfd(name, bytes);
	if (s->fd < 0)
		return s->fd;
	s->base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
		       s->fd, 0);
	if (s->base == MAP_FAILED) {
		err = -errno;
		goto out_close;
	}
	(void)madvise(s->base, bytes, MADV_DONTDUMP);
	/* From here on a new mapping cannot write; the one above can. */
	if (!client_writes)
		seals |= F_SEAL_FUTURE_WRITE;
	if (fcntl(s->fd, F_ADD_SEALS, seals)) {
		err = -errno;
		goto out_unmap;
	}
	s->guard = guard_add(s->base, bytes);
	if (s->guard < 0) {
		err = s->guard;
		goto out_unmap;
	}
	return 0;

out_unmap:
	munmap(s->base, bytes);
out_close:
	close(s->fd);
	s->base = NULL;
	s->fd = -1;
	return err;
}

/* segment_close_fd() - the client has a duplicate, the daemon its mapping */
void segment_close_fd(struct segment *s)
{
	if (s->fd >= 0)
		close(s->fd);
	s->fd = -1;
}

void segment_destroy(struct segment *s)
{
	if (!s->base)
		return;
	segment_close_fd(s);
	guard_del(s->guard);
	munmap(s->base, s->bytes);
	s->base = NULL;
}
