// SPDX-License-Identifier: Apache-2.0
/*
 * swap_ring.c - transfers that a dead swapd left to the kernel
 *
 * The death of swapd does not stop a transfer: for seconds it may go on to read or
 * overwrite memory that looks free.  The ring shows when it is over, if the ring
 * outlives swapd.  So hold makes the ring, keeps a descriptor and a mapping, and
 * reads, after swapd has died:
 *
 *   sq.head   entries that the kernel consumed, counted from 0.  It moves only
 *             inside the submitter's system calls, so it stands still now.
 *             Entries between it and the tail were never issued.
 *   cq.tail   completions posted, counted from 0.  Every entry posts one.
 *   cq.head   completions that swapd took.  From now on hold moves it.
 *
 * sq.head less cq.tail transfers are in flight.  Hold never enters the ring: that
 * would issue entries that the dead swapd had prepared.
 *
 * The ring has no flags that make it cheaper: with DEFER_TASKRUN the completions
 * of a dead task are never posted, and with SINGLE_ISSUER only the maker of the
 * ring may submit.
 *
 * A filter on system calls does not see the entries of a ring, which could open
 * files and sockets.  So the ring of swapd takes only reads and writes, for good.
 */
#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <kvmm/fault.h>

#include "kvmm/hold/swap_ring.h"

/* liburing of Debian 12 declares functions for these two, but lacks them. */
static int ring_register(const struct io_uring *ring, u32 what,
			 const void *arg, u32 nr)
{
	return syscall(SYS_io_uring_register, ring->ring_fd, what, arg, nr) ?
		-errno : 0;
}

static int ring_restrict(const struct io_uring *ring)
{
	static const u8 ops[] = {
		IORING_OP_NOP, IORING_OP_READ, IORING_OP_WRITE,
		IORING_OP_READ_FIXED, IORING_OP_WRITE_FIXED,
	};
	static const u8 regs[] = {
		IORING_REGISTER_BUFFERS, IORING_REGISTER_FILES,
		IORING_REGISTER_FILES_UPDATE, IORING_REGISTER_PROBE,
	};
	struct io_uring_restriction r[ARRAY_SIZE(ops) + ARRAY_SIZE(regs) + 1];
	u32 n = 0, i;
	int err;

	memset(r, 0, sizeof(r));
	for (i = 0; i < ARRAY_SIZE(ops); i++, n++) {
		r[n].opcode = IORING_RESTRICTION_SQE_OP;
		r[n].sqe_op = ops[i];
	}
	for (i = 0; i < ARRAY_SIZE(regs); i++, n++) {
		r[n].opcode = IORING_RESTRICTION_REGISTER_OP;
		r[n].register_op = regs[i];
	}
	r[n].opcode = IORING_RESTRICTION_SQE_FLAGS_ALLOWED;
	r[n++].sqe_flags = IOSQE_FIXED_FILE;
	err = ring_register(ring, IORING_REGISTER_RESTRICTIONS, r, n);
	return err ? err : ring_register(ring, IORING_REGISTER_ENABLE_RINGS,
					 NULL, 0);
}

int swap_ring_make(struct swap_ring *r, u32 depth, int *params)
{
	struct io_uring_params p;
	int err;

	memset(r, 0, sizeof(*r));
	memset(&p, 0, sizeof(p));
	*params = -1;
	if (kv_fault(KV_FAULT_hold_ring))
		return -EPERM;
	p.flags = IORING_SETUP_R_DISABLED;
	/* The kernel makes the completion queue twice as long. */
	err = io_uring_queue_init_params((u32)roundup_pow_of_two(depth),
					 &r->ring, &p);
	if (err)
		return err;
	err = ring_restrict(&r->ring);
	if (err)
		goto out_ring;
	*params = memfd_create("kvmm-ring-params", MFD_CLOEXEC);
	if (*params < 0) {
		err = -errno;
		goto out_ring;
	}
	if (write(*params, &p, sizeof(p)) != sizeof(p)) {
		err = -EIO;
		goto out_params;
	}
	r->has = true;
	return 0;

out_params:
	close(*params);
	*params = -1;
out_ring:
	io_uring_queue_exit(&r->ring);
	return err;
}

void swap_ring_settle(struct swap_ring *r)
{
	if (r->has)
		r->head = *r->ring.cq.khead;
}

bool swap_ring_peek(const struct swap_ring *r, u64 *id, s32 *res)
{
	const struct io_uring_cqe *cqe;

	/* Pairs with the kernel's release of the tail. */
	if (!r->has || load_acquire(r->ring.cq.ktail) == r->head)
		return false;
	cqe = &r->ring.cq.cqes[r->head & (r->ring.cq.ring_entries - 1)];
	*id = cqe->user_data;
	*res = cqe->res;
	return true;
}

void swap_ring_take(struct swap_ring *r)
{
	/* poll() then reports further completions. */
	store_release(r->ring.cq.khead, ++r->head);
}

u32 swap_ring_left(const struct swap_ring *r)
{
	return r->has ? load_acquire(r->ring.sq.khead) - r->head : 0;
}

void swap_ring_close(struct swap_ring *r)
{
	if (r->has)
		io_uring_queue_exit(&r->ring);
	r->has = false;
}
