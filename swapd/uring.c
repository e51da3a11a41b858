// SPDX-License-Identifier: Apache-2.0
/*
 * uring.c - the engine on io_uring
 *
 * kvmm-hold made the ring, and keeps a duplicate and a mapping of it: when swapd
 * dies, hold takes the completions of the transfers that go on.  hold relies on
 * three rules:
 *
 *   - every entry that the kernel consumes gives exactly one completion (no
 *     links, no polls, no multishot, no tags), so the entries consumed less
 *     those completed are in flight;
 *   - the user_data is the name of the transfer.  No two unfinished transfers
 *     have the same name.  The table of carriers lists the requests of a transfer
 *     before the kernel gets it, so one completion settles them all.  A request
 *     that is tried again alone has another name by then;
 *   - the head of the completion queue moves only after kvmm got the completions.
 *     So after a death a completion may reach kvmm twice, but is never lost.
 *
 * At most --depth transfers are in flight.  At most REAP_BATCH or --depth others,
 * whichever is less, are over but still in the completion queue, which has twice
 * the depth: it cannot overflow.
 *
 * Only the main thread submits.  It gives entries to the kernel in batches: when
 * the device has waited for the sums of writes for about as long as a system call
 * takes, or when nothing more is pending.  Finished transfers are first replaced
 * in the device's queue, and their sums are checked then.
 */
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <kvmm/fault.h>
#include <kvmm/log.h>

#include "swapd/daemon.h"

#define BATCH_BYTES	(2u << 20)
#define REAP_BATCH	8u

static struct {
	struct io_uring	ring;
	u32		depth;
	bool		buffers;	/* the pool is registered */
	bool		files;		/* areas are registered */
	int		fd[SWAPD_AREAS];
} u;

static int read_params(int fd, struct io_uring_params *p)
{
	return pread(fd, p, sizeof(*p), 0) == sizeof(*p) ? 0 : -EINVAL;
}

static bool ring_has_ops(void)
{
	struct io_uring_probe *p = io_uring_get_probe_ring(&u.ring);
	bool has = p && io_uring_opcode_supported(p, IORING_OP_READ_FIXED) &&
		   io_uring_opcode_supported(p, IORING_OP_WRITE_FIXED) &&
		   io_uring_opcode_supported(p, IORING_OP_READ) &&
		   io_uring_opcode_supported(p, IORING_OP_WRITE);

	if (p)
		io_uring_free_probe(p);
	return has;
}

/* Register the pool, so that its pages are pinned once, not for every transfer. */
static void register_pool(struct swapd *s)
{
	const u32 nr = (u32)DIV_ROUND_UP(s->pool_bytes, SWAPD_SEAM);
	struct rlimit lim = { RLIM_INFINITY, RLIM_INFINITY };
	struct iovec *iov = calloc(nr, sizeof(*iov));
	int err = -ENOMEM;
	u32 i;

	for (i = 0; iov && i < nr; i++) {
		iov[i].iov_base = s->pool + i * SWAPD_SEAM;
		iov[i].iov_len = min(SWAPD_SEAM,
				     s->pool_bytes - i * SWAPD_SEAM);
	}
	(void)setrlimit(RLIMIT_MEMLOCK, &lim);
	if (iov && !kv_fault(KV_FAULT_swapd_register))
		err = io_uring_register_buffers(&u.ring, iov, nr);
	free(iov);
	u.buffers = !err;
	s->hello = err ? 0 : SWAPD_HELLO_REGISTERED;
	if (err)
		pr_warn("the host pool cannot be registered (%s), each transfer pins its pages itself: raise the locked-memory limit (ulimit -l)",
			strerror(-err));
}

static void register_areas(void)
{
	int none[SWAPD_AREAS], i, err;

	for (i = 0; i < SWAPD_AREAS; i++)
		none[i] = -1;
	err = io_uring_register_files(&u.ring, none, SWAPD_AREAS);
	u.files = !err;
	if (err)
		pr_debug("areas are not registered: %s", strerror(-err));
}

static int uring_start(struct swapd *s, char *text, size_t len)
{
	struct io_uring_params p;
	int err;

	if (!s->opt.ring_fd) {
		snprintf(text, len, "io_uring is not to be had here");
		return -ENOSYS;
	}
	err = read_params((int)s->opt.params_fd, &p);
	if (!err)
		err = io_uring_queue_mmap((int)s->opt.ring_fd, &p, &u.ring);
	if (err) {
		snprintf(text, len, "the io_uring cannot be mapped: %s",
			 strerror(-err));
		return err;
	}
	if (!ring_has_ops()) {
		snprintf(text, len,
			 "this kernel's io_uring is too old: 5.6 has what it takes");
		return -ENOSYS;
	}
	u.depth = min(s->opt.depth, min((u32)p.sq_entries,
					(u32)p.cq_entries / 2));
	s->opt.depth = u.depth;
	register_pool(s);
	register_areas();
	snprintf(text, len, "io_uring, depth %u%s%s", u.depth,
		 u.buffers ? "" : ", pool not registered",
		 u.files ? "" : ", areas not registered");
	return 0;
}

/* Context: control thread, as in uring_area_del(). */
static int uring_area_add(struct swapd *s, u32 area, int fd)
{
	int n;

	u.fd[area] = fd;
	if (!u.files)
		return 0;
	n = io_uring_register_files_update(&u.ring, area, &fd, 1);
	return n < 0 ? n : 0;
}

static void uring_area_del(struct swapd *s, u32 area)
{
	int none = -1;

	if (u.files)
		(void)io_uring_register_files_update(&u.ring, area, &none, 1);
}

/* An entry is free: at most u.depth transfers are in flight or unsubmitted. */
static void uring_queue(struct swapd *s, struct sd_io *lead)
{
	const struct swapd_req *r = &lead->req;
	const struct sd_transfer *go = &lead->go;
	struct io_uring_sqe *sqe = io_uring_get_sqe(&u.ring);
	int fd = u.files ? (int)r->area : u.fd[r->area];
	void *slots = s->pool + go->host_off;
	int buf = (int)(go->host_off / SWAPD_SEAM);
	/* A transfer can name only one registered piece of the pool. */
	bool fixed = u.buffers && (go->host_off + go->bytes - 1) / SWAPD_SEAM ==
				  go->host_off / SWAPD_SEAM;

	if (!sqe)
		sd_broken("the io_uring has fewer entries than it said");
	if (!go->len)
		io_uring_prep_nop(sqe);
	else if (fixed && r->op == SWAPD_READ)
		io_uring_prep_read_fixed(sqe, fd, slots, go->len, go->area_off,
					 buf);
	else if (fixed)
		io_uring_prep_write_fixed(sqe, fd, slots, go->len,
					  go->area_off, buf);
	else if (r->op == SWAPD_READ)
		io_uring_prep_read(sqe, fd, slots, go->len, go->area_off);
	else
		io_uring_prep_write(sqe, fd, slots, go->len, go->area_off);
	if (u.files && go->len)
		sqe->flags |= IOSQE_FIXED_FILE;
	transfer_carry(s, lead);
	sqe->user_data = transfer_name(lead);
}

static void uring_submit(struct swapd *s)
{
	static bool told;
	int n;

	if (!io_uring_sq_ready(&u.ring))
		return;
	kv_fault_die(KV_FAULT_swapd_die_queued);
	n = io_uring_submit(&u.ring);
	io_count(s, SWAPD_CNT_submits, 1);
	kv_fault_die(KV_FAULT_swapd_die_submitted);
	if (n < 0 && n != -EINTR && !told) {
		told = true;
		pr_warn("io_uring takes nothing (%s): tried again",
			strerror(-n));
	}
}

static u32 uring_kick(struct swapd *s)
{
	struct sd_io *io;
	u32 nr = 0, bytes = 0;

	while (READ_ONCE(s->inflight) < u.depth && (io = io_next(s, false))) {
		uring_queue(s, io);
		nr++;
		if (io->req.op == SWAPD_WRITE)
			bytes += io->go.bytes;
		if (bytes >= BATCH_BYTES) {
			uring_submit(s);
			bytes = 0;
		}
	}
	/* Also entries that an earlier call could not submit. */
	uring_submit(s);
	return nr;
}

static struct sd_io *uring_lead(struct swapd *s, const struct io_uring_cqe *cqe)
{
	u32 tag = SWAPD_ID_TAG(cqe->user_data & ~SWAPD_ALONE);

	if (tag >= s->entries || transfer_name(&s->io[tag]) != cqe->user_data)
		sd_broken("io_uring completed what was not asked for");
	return &s->io[tag];
}

/* End a few at a time, so that the device gets new requests in between. */
static u32 uring_reap(struct swapd *s)
{
	struct io_uring_cqe *cqe[REAP_BATCH];
	struct sd_io *lead[REAP_BATCH];
	u32 nr, i;

	nr = io_uring_peek_batch_cqe(&u.ring, cqe, min(u.depth, REAP_BATCH));
	if (!nr)
		return 0;
	for (i = 0; i < nr; i++) {
		lead[i] = uring_lead(s, cqe[i]);
		io_landed(s, lead[i]);
	}
	uring_kick(s);
	for (i = 0; i < nr; i++)
		transfer_end(s, lead[i], cqe[i]->res);
	/* kvmm got them; hold forwards completions behind the head. */
	io_uring_cq_advance(&u.ring, nr);
	return nr;
}

static int uring_poll_fd(struct swapd *s)
{
	return u.ring.ring_fd;
}

const struct sd_engine engine_uring = {
	.name		= "io_uring",
	.id		= SWAPD_ENGINE_URING,
	.start		= uring_start,
	.area_add	= uring_area_add,
	.area_del	= uring_area_del,
	.kick		= uring_kick,
	.reap		= uring_reap,
	.poll_fd	= uring_poll_fd,
};
