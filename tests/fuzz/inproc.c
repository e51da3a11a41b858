// SPDX-License-Identifier: Apache-2.0
/*
 * inproc.c - the daemon's shell in this process, without its threads
 *
 * struct daemon, the core and its arena are copied when they are set up, and
 * put back for the next input.  The queues between threads are empty then, so
 * their slots need no copy.  Descriptors that the daemon has from its start
 * stay open; an input must close those that it opens, and a target counts them.
 */
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <kvmm/clock.h>

#include "kvmm/core/trace.h"
#include "tests/fuzz/inproc.h"

#define KEEPS	16
#define SEGMENTS	16	/* kept for the next segment_create() */

struct daemon *inproc;
bool inproc_no_memory;
u32 inproc_clients = 3, inproc_domains = 3;

static struct {
	void	*p;
	void	*fresh;
	size_t	bytes;
} keeps[KEEPS];
static u32 nr_keeps;

/* ---- calls that the linker redirects ---- */

int __wrap_mm_call(struct mm *m, void (*fn)(struct core *core, void *arg),
		   void *arg);
int __wrap_segment_create(struct segment *s, size_t bytes, const char *name,
			  bool client_writes);
void __wrap_segment_destroy(struct segment *s);

int __wrap_mm_call(struct mm *m, void (*fn)(struct core *core, void *arg),
		   void *arg)
{
	fn(m->setup->core, arg);
	m->wake = 0;
	return 0;
}

static struct {
	char	*base;
	size_t	bytes;
} segments[SEGMENTS];

static char *segment_take(size_t bytes)
{
	char *base;
	u32 i;

	for (i = 0; i < SEGMENTS; i++) {
		if (segments[i].bytes != bytes)
			continue;
		base = segments[i].base;
		segments[i].bytes = 0;
		return base;
	}
	base = aligned_alloc(4096, bytes);
	FUZZ_LAW(base, "no memory");
	/* Zeroed, as a new segment is; a used one need not be. */
	memset(base, 0, bytes);
	return base;
}

int __wrap_segment_create(struct segment *s, size_t bytes, const char *name,
			  bool client_writes)
{
	FUZZ_LAW(bytes && bytes % 4096 == 0 && bytes <= 64u << 20,
		 "%zu bytes of a segment", bytes);
	if (inproc_no_memory)
		return -ENOMEM;
	s->base = segment_take(bytes);
	s->bytes = bytes;
	s->guard = -1;
	s->fd = inproc_some_fd(0);
	return 0;
}

void __wrap_segment_destroy(struct segment *s)
{
	u32 i;

	if (!s->base)
		return;
	segment_close_fd(s);
	for (i = 0; i < SEGMENTS && segments[i].bytes; i++)
		;
	if (i < SEGMENTS) {
		segments[i].base = s->base;
		segments[i].bytes = s->bytes;
	} else {
		free(s->base);
	}
	s->base = NULL;
}

/* ---- a device that has no memory ---- */

static int dev_create(struct kvmm_dev *dev, u32 extent, u32 generation, int *fd)
{
	return -ENOMEM;
}

static int dev_revoke(struct kvmm_dev *dev, u32 extent, int fd)
{
	return 0;
}

static void dev_release(struct kvmm_dev *dev, u32 extent, int fd)
{
}

static const struct kvmm_dev_ops dev_ops = {
	.name = "fuzz", .extent_create = dev_create,
	.extent_revoke = dev_revoke, .extent_release = dev_release,
};

/* ---- begin ---- */

static void make_config(struct daemon *d)
{
	d->setup.cfg = (struct core_config){
		.pool_bytes	= INPROC_EXTENTS * INPROC_EXTENT,
		.extent_size	= INPROC_EXTENT,
		.min_token_bytes = 64,
		.max_tenants	= 3,
		.max_domains	= inproc_domains,
		.max_clients	= inproc_clients,
		.max_seqs	= INPROC_SEQS,
		.nr_tables	= 16,
		.nr_idpages	= 24,
		.max_steps	= KVMM_MAX_STEPS,
		.step_deadline_ns = NSEC_PER_SEC,
		.quiet_deadline_ns = NSEC_PER_SEC,
		.starve_ns	= NSEC_PER_SEC,
		.host_bytes	= 20 * INPROC_EXTENT,
		.area_bytes	= 20 * INPROC_EXTENT,
		.swappiness	= 100,
	};
	d->setup.pool_size = d->setup.cfg.pool_bytes;
	d->setup.host_size = d->setup.cfg.host_bytes;
	d->setup.nr_extents = INPROC_EXTENTS;
	d->setup.arena_bytes = core_arena_size(&d->setup.cfg);
	d->setup.opt.tenant_clients = 2;
	d->setup.opt.step_deadline_ms = 1000;
	d->setup.opt.quiet_deadline_ms = 1000;
	d->clients.send_batch = 8;
	d->setup.epoch = 1;
	d->setup.dev.ops = &dev_ops;
	d->setup.dev.extent_size = INPROC_EXTENT;
}

/* Fixed secrets: random ones would make each run of an input different. */
static void make_tenants(struct daemon *d)
{
	u32 i;

	d->clients.tenants = calloc(d->setup.cfg.max_tenants, sizeof(*d->clients.tenants));
	FUZZ_LAW(d->clients.tenants, "no memory");
	for (i = 0; i < INPROC_UIDS; i++) {
		d->clients.tenants[i].used = true;
		d->clients.tenants[i].key = i;
	}
	inproc_keep(d->clients.tenants, d->setup.cfg.max_tenants * sizeof(*d->clients.tenants));
}

static void inproc_make(void)
{
	struct daemon *d = daemon_alloc();
	u32 i;

	FUZZ_LAW(d, "no memory");
	inproc = d;
	for (i = 0; i < CORE_MAX_AREAS; i++)
		d->link.area[i].fd = -1;
	d->loop.epoll = epoll_create1(EPOLL_CLOEXEC);
	FUZZ_LAW(d->loop.epoll >= 0, "epoll");
	make_config(d);
	make_tenants(d);
	FUZZ_LAW(!keep_make(&d->deposit), "no memory");
	inproc_keep(d->deposit.keep, sizeof(*d->deposit.keep));
	FUZZ_LAW(!core_make(&d->adoption), "no core");
	FUZZ_LAW(!mm_init(&d->mm) && !mapper_init(&d->mapper) &&
		 !copier_init(&d->copier),
		 "the daemon does not begin");
	d->mm.stop = 0;
	d->setup.start_ns = kv_now_ns();
	inproc_keep(d, sizeof(*d));
	inproc_keep(d->mm.ghost_ends, d->setup.cfg.max_tenants);
	inproc_keep(d->setup.core, core_struct_size());
	inproc_keep(d->setup.arena, d->setup.arena_bytes);
	/* The records behind the head are not read before they are written. */
	inproc_keep(d->mm.trace, sizeof(struct core_trace));
	inproc_keep(d->extents.table, d->setup.nr_extents * sizeof(*d->extents.table));
}

void inproc_keep(void *p, size_t bytes)
{
	FUZZ_LAW(nr_keeps < KEEPS, "KEEPS");
	keeps[nr_keeps].p = p;
	keeps[nr_keeps].bytes = bytes;
	keeps[nr_keeps].fresh = malloc(bytes);
	FUZZ_LAW(keeps[nr_keeps++].fresh, "no memory");
}

void inproc_begin(void (*setup)(void))
{
	u32 i;

	if (!inproc) {
		inproc_make();
		if (setup)
			setup();
		for (i = 0; i < nr_keeps; i++)
			memcpy(keeps[i].fresh, keeps[i].p, keeps[i].bytes);
	}
	inproc_no_memory = false;
	for (i = 0; i < nr_keeps; i++)
		memcpy(keeps[i].p, keeps[i].fresh, keeps[i].bytes);
}

/* ---- the other threads ---- */

bool inproc_threads(int status)
{
	struct daemon *d = inproc;
	struct copy_done done;
	struct core_copy cp;
	struct map_msg msg;
	bool any = false;

	while (queue_pop(&d->mapper.todo, &msg)) {
		any = true;
		if (msg.op != MAP_CREATE)
			continue;
		msg.status = status;
		FUZZ_LAW(queue_push(&d->mapper.done, &msg), "full");
	}
	while (queue_pop(&d->copier.todo, &cp)) {
		any = true;
		done = (struct copy_done){ .id = cp.id, .status = status };
		FUZZ_LAW(queue_push(&d->copier.done, &done), "full");
	}
	return any;
}

void inproc_turn(void)
{
	struct daemon *d = inproc;
	u64 now = kv_now_ns();

	(void)mapper_collect(&d->mapper, now);
	(void)copier_collect(&d->copier, now);
	(void)swap_collect(&d->swap, now);
	(void)core_poll(d->setup.core, now);
	core_tick(d->setup.core, now);
	(void)swap_pump(&d->swap, now);
	d->mm.wake = 0;
	d->mm.kick_due = false;
}

void inproc_check(void)
{
	struct core_report r;

	FUZZ_LAW(!core_check(inproc->setup.core, &r), "%s", r.text);
}

/* ---- sockets ---- */

void inproc_pair(int type, int sock[2])
{
	FUZZ_LAW(!socketpair(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0,
			     sock), "socketpair: %s", strerror(errno));
}

static void close_received(struct msghdr *msg)
{
	struct cmsghdr *cm;
	size_t n, i;
	int fd;

	for (cm = CMSG_FIRSTHDR(msg); cm; cm = CMSG_NXTHDR(msg, cm)) {
		if (cm->cmsg_level != SOL_SOCKET || cm->cmsg_type != SCM_RIGHTS)
			continue;
		n = (cm->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (i = 0; i < n; i++) {
			memcpy(&fd, CMSG_DATA(cm) + i * sizeof(int),
			       sizeof(fd));
			close(fd);
		}
	}
}

u32 inproc_drain(int sock)
{
	union {
		char		buf[CMSG_SPACE(KVMM_MAP_BATCH * sizeof(int))];
		struct cmsghdr	align;
	} control;
	static char buf[65536];
	struct iovec iov = { .iov_base = buf, .iov_len = sizeof(buf) };
	u32 nr = 0;

	for (;;) {
		struct msghdr msg = {
			.msg_iov = &iov, .msg_iovlen = 1,
			.msg_control = control.buf,
			.msg_controllen = sizeof(control.buf),
		};

		if (recvmsg(sock, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) <= 0)
			return nr;
		close_received(&msg);
		nr++;
	}
}

int inproc_some_fd(u32 kind)
{
	static int fds[3] = { -1, -1, -1 };
	u32 i;

	if (fds[0] < 0) {
		fds[0] = open("/dev/null", O_RDWR | O_CLOEXEC);
		fds[1] = memfd_create("fuzz", MFD_CLOEXEC);
		fds[2] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		for (i = 0; i < ARRAY_SIZE(fds); i++)
			FUZZ_LAW(fds[i] >= 0, "descriptors");
		FUZZ_LAW(!ftruncate(fds[1], 1 << 20), "memfd");
	}
	return fcntl(fds[kind % ARRAY_SIZE(fds)], F_DUPFD_CLOEXEC, 3);
}

void inproc_send(int sock, const void *buf, size_t len, u32 nr_fds)
{
	union {
		char		buf[CMSG_SPACE(16 * sizeof(int))];
		struct cmsghdr	align;
	} control;
	struct iovec iov = { .iov_base = (void *)buf, .iov_len = len };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct cmsghdr *cm;
	int fds[16];
	u32 i;

	nr_fds = min(nr_fds, 16u);
	for (i = 0; i < nr_fds; i++)
		fds[i] = inproc_some_fd(i);
	if (nr_fds) {
		memset(&control, 0, sizeof(control));
		msg.msg_control = control.buf;
		msg.msg_controllen = CMSG_SPACE(nr_fds * sizeof(int));
		cm = CMSG_FIRSTHDR(&msg);
		cm->cmsg_level = SOL_SOCKET;
		cm->cmsg_type = SCM_RIGHTS;
		cm->cmsg_len = CMSG_LEN(nr_fds * sizeof(int));
		memcpy(CMSG_DATA(cm), fds, nr_fds * sizeof(int));
	}
	/* Descriptors of a refused message go nowhere. */
	if (sendmsg(sock, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		errno = 0;
	for (i = 0; i < nr_fds; i++)
		close(fds[i]);
}
