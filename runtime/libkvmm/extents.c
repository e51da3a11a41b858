// SPDX-License-Identifier: Apache-2.0
/*
 * extents.c - the pool's address range and the extents mapped in it
 *
 * The whole range is reserved at attach, without access and without memory.
 * Extent i is mapped at i * extent_size when its descriptor arrives on the
 * socket, and unmapped when the daemon revokes it.  Both are answered with
 * EXTENT_ACK; the daemon names no block of an extent before that.
 *
 * Events are only hints: MAP says that descriptors are due, REVOKE says that
 * the records should be read.  The records in segment D and the socket decide,
 * so a lost event costs time, never a mapping.
 *
 * A child inherits no mapping: a forked process must not keep memory of the
 * daemon alive.
 *
 * A pool on a GPU is mapped the same way through its driver: device.c.
 */
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "runtime/libkvmm/internal.h"

#define HUGE_SIZE	(2ull << 20)

/* Map an empty range: no access, no inheritance, no core dump. */
static int map_nothing(void *at, size_t bytes, int fixed, void **out)
{
	void *p = mmap(at, bytes, PROT_NONE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | fixed,
		       -1, 0);

	if (p == MAP_FAILED)
		return -errno;
	if (madvise(p, bytes, MADV_DONTFORK) ||
	    madvise(p, bytes, MADV_DONTDUMP)) {
		/* Keep a hole made in the range: the range is still ours. */
		int err = -errno;

		if (!fixed)
			munmap(p, bytes);
		return err;
	}
	*out = p;
	return 0;
}

static int host_reserve(struct kvmm *k)
{
	const size_t bytes = k->info.pool_bytes;
	size_t front, back;
	void *p;
	int ret;

	ret = map_nothing(NULL, bytes + HUGE_SIZE, 0, &p);
	if (ret)
		return ret;
	k->pool = (char *)ALIGN_UP((uintptr_t)p, HUGE_SIZE);
	front = (size_t)(k->pool - (char *)p);
	back = HUGE_SIZE - front;
	if (front)
		munmap(p, front);
	if (back)
		munmap(k->pool + bytes, back);
	return 0;
}

/**
 * lk_pool_reserve() - reserve the pool's range, on a huge page boundary
 * @text: LK_TEXT_LEN bytes for the reason of a failure
 */
int lk_pool_reserve(struct kvmm *k, char *text)
{
	int ret;

	if (k->info.memory != KVMM_MEMORY_HOST)
		return lk_device_reserve(k, text);
	ret = host_reserve(k);
	if (ret)
		snprintf(text, LK_TEXT_LEN,
			 "cannot reserve %llu MiB of addresses for the pool: %s: raise the address space limit (ulimit -v)",
			 (unsigned long long)k->info.pool_bytes >> 20,
			 strerror(-ret));
	return ret;
}

void lk_pool_release(struct kvmm *k)
{
	if (k->cu)
		lk_device_release(k);
	else if (k->pool)
		munmap(k->pool, k->info.pool_bytes);
	k->pool = NULL;
}

static void ack_later(struct kvmm *k, struct lk_extent *e, u8 what)
{
	if (!e->ack)
		k->nr_acks++;
	e->ack = what;
}

/* Should @m still be mapped?  A late message may be of an older generation. */
static bool is_due(const struct kvmm *k, const struct kvmm_map_entry *m)
{
	const struct kvmm_extent_status *st = &k->ext_status[m->extent];

	return load_acquire(&st->state) == KVMM_EXTENT_MAP &&
	       READ_ONCE(st->generation) == m->generation;
}

static int host_map(struct kvmm *k, u32 extent, int fd)
{
	const size_t size = k->info.extent_size;
	char *at = k->pool + extent * size;

	if (mmap(at, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
		 0) == MAP_FAILED)
		return lk_end(k, "cannot map extent %u: %s: raise vm.max_map_count and the address space limit (ulimit -v)",
			      extent, strerror(errno));
	if (madvise(at, size, MADV_DONTFORK) || madvise(at, size, MADV_DONTDUMP))
		return lk_end(k, "cannot keep extent %u from children: %s",
			      extent, strerror(errno));
	return 0;
}

static int host_unmap(struct kvmm *k, u32 extent)
{
	const size_t size = k->info.extent_size;
	void *at;
	int ret = map_nothing(k->pool + extent * size, size, MAP_FIXED, &at);

	return ret ? lk_end(k, "cannot unmap extent %u: %s", extent,
			    strerror(-ret)) : 0;
}

/* Map one extent; the caller closes @fd. */
static int map_extent(struct kvmm *k, const struct kvmm_map_entry *m, int fd)
{
	struct lk_extent *e;
	struct stat st;
	int ret;

	if (m->extent >= k->info.nr_extents)
		return lk_end(k, "kvmm sent extent %u of %u", m->extent,
			      k->info.nr_extents);
	/* A driver checks the size itself. */
	if (!k->cu && (fstat(fd, &st) ||
		       (u64)st.st_size < k->info.extent_size))
		return lk_end(k, "extent %u is shorter than %llu bytes",
			      m->extent,
			      (unsigned long long)k->info.extent_size);
	/* Detaching: the range is no longer reserved. */
	if (!k->pool)
		return 0;
	/*
	 * The extent was revoked before it came: unmap_revoked() acknowledges
	 * that, or has done so.
	 */
	if (!is_due(k, m))
		return 0;
	e = &k->extent[m->extent];
	/*
	 * An adopted daemon sends extents again that may already be mapped
	 * here.
	 */
	ret = k->cu ? lk_device_unmap(k, m->extent) : 0;
	if (!ret)
		ret = k->cu ? lk_device_map(k, m->extent, fd) :
			      host_map(k, m->extent, fd);
	if (ret)
		return ret;
	e->generation = m->generation;
	e->mapped = true;
	k->nr_mapped++;
	ack_later(k, e, KVMM_ACK_MAP);
	return 0;
}

/* Collect the descriptors of @msg.  Return: their number. */
static int take_fds(struct msghdr *msg, int *fds, u32 max)
{
	struct cmsghdr *c;
	size_t n;
	u32 nr = 0;

	for (c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		n = min(n, (size_t)(max - nr));
		memcpy(fds + nr, CMSG_DATA(c), n * sizeof(int));
		nr += (u32)n;
	}
	return (int)nr;
}

static int map_message(struct kvmm *k, const struct kvmm_map_msg *m,
		       size_t bytes, const int *fds, u32 nr_fds)
{
	u32 i;

	if (bytes < offsetof(struct kvmm_map_msg, entry) ||
	    m->magic != KVMM_MAP_MAGIC || m->nr > KVMM_MAP_BATCH ||
	    bytes != offsetof(struct kvmm_map_msg, entry) +
		     m->nr * sizeof(m->entry[0]) || m->nr != nr_fds)
		return lk_end(k, "kvmm sent something that is no map message");
	for (i = 0; i < m->nr; i++) {
		if (map_extent(k, &m->entry[i], fds[i]))
			return k->ended;
	}
	return 0;
}

/* A message of the daemon: @n bytes and @nr_fds descriptors. */
struct lk_message {
	struct kvmm_map_msg	m;
	int			fds[KVMM_MAP_BATCH];
	int			nr_fds;
	ssize_t			n;
	bool			cut;
};

static void message_close(struct lk_message *in)
{
	while (in->nr_fds > 0)
		close(in->fds[--in->nr_fds]);
}

/*
 * Look at the next message without removing it.
 * Return: 0; -EAGAIN: there is none; -EMFILE: the process had no room for all
 * of its descriptors, and none was kept; -ECONNRESET.
 */
static int peek_message(struct kvmm *k, struct lk_message *in)
{
	union {
		struct cmsghdr	head;
		char		room[CMSG_SPACE(KVMM_MAP_BATCH * sizeof(int))];
	} control;
	struct iovec iov = { .iov_base = &in->m, .iov_len = sizeof(in->m) };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = &control, .msg_controllen = sizeof(control),
	};

	in->n = recvmsg(k->sock, &msg,
			MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	in->nr_fds = 0;
	if (in->n < 0 && (errno == EAGAIN || errno == EINTR))
		return -EAGAIN;
	if (in->n <= 0)
		return -ECONNRESET;
	in->nr_fds = take_fds(&msg, in->fds, KVMM_MAP_BATCH);
	in->cut = msg.msg_flags & MSG_TRUNC;
	if (!(msg.msg_flags & MSG_CTRUNC))
		return 0;
	message_close(in);
	return -EMFILE;
}

/* Use the spare descriptors when the process has no others left. */
static int peek_with_spare(struct kvmm *k, struct lk_message *in)
{
	const struct timespec nap = { .tv_nsec = 1000000 };
	int ret = peek_message(k, in);

	if (ret != -EMFILE)
		return ret;
	lk_spare_give(k);
	ret = peek_message(k, in);
	if (ret == -EMFILE)
		nanosleep(&nap, NULL);
	return ret;
}

/* Take one message.  Return: 1; 0: there is none; -ECONNRESET. */
static int look_message(struct kvmm *k)
{
	struct lk_message in;
	int ret = peek_with_spare(k, &in);

	if (ret == -ECONNRESET) {
		if (lk_check_state(k))
			return k->ended;
		if (lk_resume_begin(k))
			return 0;
		return lk_end(k, "the kvmm daemon died; kvmm-hold starts it again");
	}
	if (ret) {
		lk_spare_take(k);
		return 0;
	}
	/* Remove the message; its descriptors are already here. */
	(void)!recv(k->sock, &in.m, 0, MSG_DONTWAIT | MSG_TRUNC);
	if (in.cut)
		ret = lk_end(k, "kvmm sent something that is no map message");
	else
		ret = map_message(k, &in.m, (size_t)in.n, in.fds,
				  (u32)in.nr_fds);
	message_close(&in);
	lk_spare_take(k);
	return ret ? ret : 1;
}

/* Is the descriptor of a promised extent still due? */
static bool maps_missing(const struct kvmm *k)
{
	const struct lk_extent *e = k->extent;
	u32 i;

	for (i = 0; i < k->info.nr_extents; i++, e++) {
		if (READ_ONCE(k->ext_status[i].state) == KVMM_EXTENT_MAP &&
		    !(e->mapped && e->generation ==
		      READ_ONCE(k->ext_status[i].generation)))
			return true;
	}
	return false;
}

/* Unmap revoked extents. */
static int unmap_revoked(struct kvmm *k)
{
	struct lk_extent *e = k->extent;
	u32 i, gen;
	int ret = 0;

	for (i = 0; i < k->info.nr_extents; i++, e++) {
		if (load_acquire(&k->ext_status[i].state) != KVMM_EXTENT_REVOKE)
			continue;
		gen = READ_ONCE(k->ext_status[i].generation);
		if (!e->mapped && e->generation == gen)
			continue;
		if (k->pool)
			ret = k->cu ? lk_device_unmap(k, i) : host_unmap(k, i);
		if (ret)
			return ret;
		e->mapped = false;
		e->generation = gen;
		ack_later(k, e, KVMM_ACK_REVOKE);
	}
	return 0;
}

/**
 * lk_look_socket() - handle descriptors, revocations and the socket's end
 * Return: 0 or -ECONNRESET.
 */
int lk_look_socket(struct kvmm *k)
{
	int ret;

	if (k->away && lk_resume(k))
		return k->ended;
	if (k->away)
		return 0;
	do {
		ret = look_message(k);
	} while (ret > 0);
	if (k->away)
		return 0;
	if (ret < 0 || unmap_revoked(k))
		return k->ended;
	k->maps_due = maps_missing(k);
	if (k->nr_acks)
		lk_send_acks(k);
	return k->ended;
}

/**
 * lk_look_events() - look for events that the library handles
 * Return: 0 or -ECONNRESET.
 */
int lk_look_events(struct kvmm *k)
{
	struct kvmm_event ev __attribute__((aligned(8)));
	bool look = false;
	int ret;

	if (READ_ONCE(k->dctl->event_tail) == k->event_scan)
		return 0;
	do {
		ret = ring_event_get(k->event, k->info.event_entries,
				     &k->dctl->event_tail, &k->event_scan, &ev);
		if (ret < 0 || (ret && (ev.type == KVMM_EV_MAP ||
					ev.type == KVMM_EV_REVOKE)))
			look = true;
	} while (ret);
	return look ? lk_look_socket(k) : 0;
}

/**
 * lk_send_acks() - acknowledge extents that were mapped or unmapped
 *
 * Does nothing while the caller has prepared requests that it did not submit,
 * or while the ring is full.  It is called again at every occasion.
 */
void lk_send_acks(struct kvmm *k)
{
	struct lk_extent *e = k->extent;
	struct kvmm_ack_arg *arg;
	void *args;
	u32 i, n = 0, nr;

	if (k->ended || k->submitted != k->sub.tail)
		return;
	nr = min(k->nr_acks, k->info.max_batch);
	nr = min(nr, k->info.arg_bytes / 2 / (u32)sizeof(*arg));
	if (!nr || !lk_prep(k, KVMM_OP_EXTENT_ACK, nr, nr * sizeof(*arg),
			    LK_OWN, &args))
		return;
	for (arg = args, i = 0; n < nr; i++) {
		if (!e[i].ack)
			continue;
		arg[n++] = (struct kvmm_ack_arg) {
			.extent = i,
			.generation = e[i].generation,
			.what = e[i].ack,
		};
		e[i].ack = 0;
	}
	k->nr_acks -= nr;
	lk_publish(k);
}

int kvmm_poll_extents(struct kvmm *k)
{
	const u32 before = k->nr_mapped;

	if (lk_look_events(k) || lk_look_around(k, lk_now()))
		return k->ended;
	lk_collect(k);
	return (int)(k->nr_mapped - before);
}

u32 kvmm_mapped(const struct kvmm *k)
{
	return k->nr_mapped;
}
