// SPDX-License-Identifier: Apache-2.0
/*
 * swap.c - requests to swapd, from the core's order to the core's answer
 *
 *	core -> backlog -> table and request ring -> swapd
 *	core <- table <- completion ring <- swapd
 *
 * The table has a place for every request that is open outside; the place is
 * the tag of the request's id.  Orders of the core beyond that, or while there
 * is no swapd, wait in the backlog, which has room for as many as the core can
 * have at once: each has a slot of the host pool to itself.
 *
 * swapd may die at any time, and the transfers that it gave to the kernel go
 * on.  Then every request that it had is an orphan.  The core hears nothing of
 * an orphan, so its slots are not reused, until kvmm-hold tells how it ended.
 * hold names transfers; swapd's table of carriers, which is read when that
 * swapd is dead, says which requests were in one:
 *
 *   its transfer is over and was a write of all its bytes: done, since header
 *	and sums were in it;
 *   its transfer failed: failed; one that it shared: tried again, since
 *	another request's part may have failed;
 *   its transfer is over and was a read: the content that came was not
 *	compared with its sums, so the next swapd reads it again, into the
 *	same slot.  The same for a short transfer;
 *   all of that swapd is over and the request was in no transfer that was
 *	named: it moves nothing; the next swapd gets it.
 *
 * A request that is issued again gets a new id, so a late message about the old
 * id finds no request.  A request that met the death of several swapds may be
 * the cause: it is issued alone, and after SWAP_TRIES deaths it fails.
 *
 * Context: mm thread, except swap_init() and swap_exit().  Nothing blocks or
 * allocates; the two eventfds are written without waiting.
 */
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include <kvmm/log.h>
#include <kvmm/probes.h>

#include "kvmm/ipc/tiers/tiers.h"

#define NIL	UINT32_MAX

/* Requests that the core can have open at once: each has a host slot. */
static u32 ios_max(const struct setup *s)
{
	return (u32)(s->cfg.host_bytes / (16ull * s->cfg.min_token_bytes +
					  CORE_SLOT_HEADER)) + 1;
}

/* swap_bytes() - memory that the backlog takes */
u64 swap_bytes(const struct setup *s)
{
	return queue_bytes(sizeof(struct core_io), ios_max(s));
}

/* ---- the table ---- */

static struct swap_io *io_get(struct swap_mm *sw)
{
	struct swap_io *io = &sw->io[sw->free];

	sw->free = io->next;
	sw->nr_open++;
	return io;
}

static void io_put(struct swap_mm *sw, struct swap_io *io)
{
	io->state = SWAP_IO_FREE;
	io->next = sw->free;
	sw->free = (u32)(io - sw->io);
	sw->nr_open--;
}

/* May the request be the cause of the deaths? */
static bool io_is_suspect(const struct swap_io *io)
{
	return io->tries >= SWAP_CAREFUL;
}

/* The request is over: free its place, then tell the core. */
static void io_finish(struct swap_mm *sw, u64 now, struct swap_io *io, int status)
{
	u64 id = io->io.id;

	sw->nr_orphans -= io->state == SWAP_IO_ORPHAN;
	if (io->state == SWAP_IO_ISSUED) {
		sw->nr_issued--;
		sw->suspect &= !io_is_suspect(io);
		busy_end(sw, io->io.area, now);
	}
	KV_PROBE(kvmm, swap_done, io->id, io->io.area, io->io.write,
		 io->io.domain, -status,
		 io->issued ? (now - io->issued) / 1000 : 0);
	io_put(sw, io);
	core_io_done(sw->setup->core, now, id, status);
}

/* A disk failed a request: the control thread counts how often. */
static void note_failure(struct swap_mm *sw)
{
	WRITE_ONCE(sw->failed, sw->failed + 1);
	sw->kick = true;
}

/* No swapd has the request and no transfer of it is left: the next gets it. */
static void io_again(struct swap_mm *sw, u64 now, struct swap_io *io)
{
	u32 tag = (u32)(io - sw->io);

	if (++io->tries >= SWAP_TRIES) {
		sw->count.given_up++;
		io_finish(sw, now, io, -EIO);
		return;
	}
	sw->nr_orphans--;
	sw->count.again++;
	io->state = SWAP_IO_AGAIN;
	io->next = NIL;
	if (sw->again[0] == NIL)
		sw->again[0] = tag;
	else
		sw->io[sw->again[1]].next = tag;
	sw->again[1] = tag;
}

/* Is there a request that may be issued now?  A suspect one goes alone. */
static bool io_may_go(const struct swap_mm *sw)
{
	if (sw->again[0] != NIL)
		return sw->gone || !sw->nr_issued ||
		       (!sw->suspect && !io_is_suspect(&sw->io[sw->again[0]]));
	return sw->free != NIL && !queue_empty(&sw->backlog) &&
	       (sw->gone || !sw->suspect);
}

static struct swap_io *again_pop(struct swap_mm *sw)
{
	struct swap_io *io = &sw->io[sw->again[0]];

	sw->again[0] = io->next;
	return io;
}

/* The issued request with this id, or NULL. */
static struct swap_io *io_find(struct swap_mm *sw, u64 id)
{
	u32 tag = SWAPD_ID_TAG(id);
	struct swap_io *io = tag < SWAP_ENTRIES ? &sw->io[tag] : NULL;

	return io && io->state == SWAP_IO_ISSUED && io->id == id ? io : NULL;
}

/* ---- out ---- */

void swap_push(struct swap_mm *sw, const struct core_io *io)
{
	if (!queue_push(&sw->backlog, io))
		pr_err("the backlog of swap is full: request %llx is lost",
		       (unsigned long long)io->id);
}

static void io_issue(struct swap_mm *sw, struct swap_io *io, u64 now)
{
	const struct core_io *c = &io->io;
	struct swapd_req req = {
		.op		= c->write ? SWAPD_WRITE : SWAPD_READ,
		.area		= sw->area[c->area].index,
		.host_off	= c->host_off,
		.area_off	= sw->area[c->area].off + c->area_off,
		.len		= c->len,
		.payload_len	= c->payload,
		.domain		= c->domain,
		.hash		= { c->hash[0], c->hash[1] },
		.generation	= c->generation,
	};

	io->state = SWAP_IO_ISSUED;
	sw->nr_issued++;
	sw->suspect |= io_is_suspect(io);
	busy_begin(sw, c->area, now);
	io->generation = sw->generation;
	io->issued = now;
	io->id = SWAPD_ID(++sw->serial, io - sw->io);
	req.id = io->id;
	shared_copy_out(&sw->reqs[ring_prod_slot(&sw->req)], &req, sizeof(req));
	ring_prod_advance(&sw->req);
	KV_PROBE(kvmm, swap_submit, io->id, c->area, c->write, c->domain, c->len);
}

/* Next request to be issued, in the table; NULL when there is none. */
static struct swap_io *io_next(struct swap_mm *sw)
{
	struct swap_io *io;

	if (!io_may_go(sw))
		return NULL;
	if (sw->again[0] != NIL)
		return again_pop(sw);
	io = io_get(sw);
	io->tries = 0;
	io->id = 0;
	io->issued = 0;
	if (queue_pop(&sw->backlog, &io->io))
		return io;
	io_put(sw, io);
	return NULL;
}

static void req_publish(struct swap_mm *sw)
{
	u64 one = 1;

	ring_prod_publish(&sw->req);
	if (!ring_sleeper_waits(&sw->ctl->swapd_sleeps))
		return;
	/* Fails only when the count is full, and then it is awake. */
	if (write(sw->req_bell, &one, sizeof(one)) < 0)
		return;
}

/* Is there a place in the ring? */
static bool req_room(struct swap_mm *sw)
{
	if (ring_prod_room(&sw->req))
		return true;
	if (ring_prod_look(&sw->req) < 0)
		WRITE_ONCE(sw->broken, 1);
	return ring_prod_room(&sw->req);
}

/**
 * swap_pump() - issue waiting requests; fail them if no swapd will come
 * Return: whether anything was done.
 */
bool swap_pump(struct swap_mm *sw, u64 now)
{
	struct swap_io *io;
	bool any = false, issued = false;

	if (!sw->ctl || (!sw->up && !sw->gone))
		return false;
	while ((sw->gone || req_room(sw)) && (io = io_next(sw))) {
		any = true;
		if (sw->gone || !sw->area[io->io.area].live) {
			sw->count.given_up++;
			io_finish(sw, now, io, -ENODEV);
		} else {
			io_issue(sw, io, now);
			issued = true;
		}
	}
	if (issued)
		req_publish(sw);
	return any;
}

/* ---- in ---- */

static bool cpl_collect(struct swap_mm *sw, u64 now)
{
	int nr = ring_cons_look(&sw->cpl), i;
	struct swapd_cpl cpl;
	struct swap_io *io;
	bool works = false, failed = false;

	if (nr < 0) {
		WRITE_ONCE(sw->broken, 1);
		return false;
	}
	for (i = 0; i < nr; i++) {
		shared_copy_in(&cpl, &sw->cpls[ring_cons_slot(&sw->cpl)],
			       sizeof(cpl));
		ring_cons_advance(&sw->cpl);
		io = io_find(sw, cpl.id);
		if (io)
			io_finish(sw, now, io, cpl.status);
		else
			sw->count.strays++;
		works |= io && !cpl.status;
		failed |= io && cpl.status;
	}
	if (failed)
		note_failure(sw);
	if (works && sw->works != sw->generation) {
		WRITE_ONCE(sw->works, sw->generation);
		sw->kick = true;
	}
	if (nr)
		ring_cons_publish(&sw->cpl);
	return nr;
}

/**
 * swap_collect() - tell the core of completions
 * Return: whether there was anything.
 */
bool swap_collect(struct swap_mm *sw, u64 now)
{
	bool any;

	if (!sw->joined || READ_ONCE(sw->broken))
		return false;
	any = cpl_collect(sw, now);
	if (READ_ONCE(sw->broken))
		sw->kick = true;
	return any;
}

/* swap_waits() - is there a completion, or a request to be issued? */
bool swap_waits(const struct swap_mm *sw)
{

	if (!sw->ctl || READ_ONCE(sw->broken))
		return false;
	if (sw->joined && READ_ONCE(sw->ctl->cpl_tail) != sw->cpl.head)
		return true;
	if (!sw->up && !sw->gone)
		return false;
	return io_may_go(sw);
}

/* swap_note_stalls() - have the control thread log areas that stall */
void swap_note_stalls(struct swap_mm *sw)
{
	u32 stalled = core_get_stalled(sw->setup->core);

	if (stalled == sw->stalled)
		return;
	WRITE_ONCE(sw->stalled, stalled);
	sw->kick = true;
}

/* ---- one swapd after the other; inside mm_call() ---- */

/* swap_join() - a new swapd, which has touched nothing: empty rings */
void swap_join(struct swap_mm *sw, u32 generation)
{

	swapd_shm_reset(sw->ctl);
	ring_prod_init(&sw->req, SWAP_ENTRIES, 0, &sw->ctl->req_tail,
		       &sw->ctl->req_head);
	ring_cons_init(&sw->cpl, SWAP_ENTRIES, 0, &sw->ctl->cpl_head,
		       &sw->ctl->cpl_tail);
	sw->generation = generation;
	sw->joined = true;
	sw->broken = 0;
	sw->gone = false;
}

/* swap_leave() - it is dead: take its completions, orphan its requests */
void swap_leave(struct swap_mm *sw, u64 now, u32 generation)
{
	u32 i;

	sw->up = false;
	sw->count.deaths++;
	if (!sw->joined || sw->generation != generation)
		return;
	if (!sw->broken)
		cpl_collect(sw, now);
	sw->joined = false;
	sw->suspect = false;
	for (i = 0; i < SWAP_ENTRIES; i++) {
		if (sw->io[i].state != SWAP_IO_ISSUED)
			continue;
		sw->io[i].state = SWAP_IO_ORPHAN;
		if (!swapd_carrier_read(sw->carriers, sw->io[i].id,
					&sw->io[i].carrier))
			sw->io[i].carrier.nr = 0;
		sw->nr_issued--;
		busy_end(sw, sw->io[i].io.area, now);
		sw->nr_orphans++;
		sw->count.orphans++;
	}
}

/* Was the transfer stopped by the death of its task, not by the disk? */
static bool res_is_of_death(s32 res)
{
	return res == -ECANCELED || res == -EINTR || res == -EAGAIN;
}

static void orphan_ended(struct swap_mm *sw, u64 now, struct swap_io *io, s32 res)
{
	res = swapd_carrier_share(&io->carrier, io->io.len, res);
	if (io->io.write && res == (s32)io->io.len) {
		sw->count.orphans_done++;
		io_finish(sw, now, io, 0);
	} else if (res >= 0 || res_is_of_death(res) || io->carrier.nr > 1) {
		io_again(sw, now, io);
	} else {
		io_finish(sw, now, io, res);
		note_failure(sw);
	}
}

/* swap_hear() - hold tells how a transfer of a dead swapd ended, or that all did */
void swap_hear(struct swap_mm *sw, u64 now, const struct swap_tale *tale)
{
	struct swap_io *io;
	u32 i;

	for (i = 0; i < SWAP_ENTRIES && sw->nr_orphans; i++) {
		io = &sw->io[i];
		if (io->state != SWAP_IO_ORPHAN ||
		    io->generation != tale->generation)
			continue;
		if (tale->kind == HOLD_SWAP_DRAINED)
			io_again(sw, now, io);
		else if (io->carrier.nr && io->carrier.transfer == tale->id)
			orphan_ended(sw, now, io, tale->res);
	}
}

/* ---- start and end ---- */

static int shm_make(struct swap_mm *sw, int *shm)
{
	u32 bytes = swapd_shm_bytes(SWAP_ENTRIES);
	int err;

	*shm = memfd_create("kvmm-swapd", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (*shm < 0)
		return -errno;
	if (ftruncate(*shm, bytes) || fallocate(*shm, 0, 0, bytes) ||
	    fcntl(*shm, F_ADD_SEALS,
		  F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)) {
		err = -errno;
		goto out_close;
	}
	sw->ctl = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, *shm,
		       0);
	if (sw->ctl == MAP_FAILED) {
		err = -errno;
		sw->ctl = NULL;
		goto out_close;
	}
	swapd_shm_init(sw->ctl, SWAP_ENTRIES);
	sw->reqs = swapd_shm_reqs(sw->ctl);
	sw->cpls = swapd_shm_cpls(sw->ctl, SWAP_ENTRIES);
	sw->carriers = swapd_shm_carriers(sw->ctl, SWAP_ENTRIES);
	return 0;

out_close:
	close(*shm);
	*shm = -1;
	return err;
}

/**
 * swap_init() - the table, the shared memory, the bells
 * @mm_epoll: in which the mm thread sleeps
 * @shm:      takes the descriptor of the shared memory
 *
 * Context: before the mm thread runs.
 * Return: 0 or a negative errno; swap_exit() gives back what was made.
 */
int swap_init(struct swap_mm *sw, int mm_epoll, int *shm)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLET };
	int err;
	u32 i;

	sw->io = calloc(SWAP_ENTRIES, sizeof(*sw->io));
	if (!sw->io)
		return -ENOMEM;
	for (i = 0; i < SWAP_ENTRIES; i++)
		sw->io[i].next = i + 1 < SWAP_ENTRIES ? i + 1 : NIL;
	sw->free = 0;
	sw->again[0] = NIL;
	err = queue_init(&sw->backlog, sizeof(struct core_io), ios_max(sw->setup));
	if (err)
		return err;
	sw->req_bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	sw->cpl_bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (sw->req_bell < 0 || sw->cpl_bell < 0 ||
	    epoll_ctl(mm_epoll, EPOLL_CTL_ADD, sw->cpl_bell, &ev))
		return -errno;
	return shm_make(sw, shm);
}

void swap_exit(struct swap_mm *sw)
{

	if (sw->ctl)
		munmap(sw->ctl, swapd_shm_bytes(SWAP_ENTRIES));
	if (sw->req_bell >= 0)
		close(sw->req_bell);
	if (sw->cpl_bell >= 0)
		close(sw->cpl_bell);
	queue_exit(&sw->backlog);
	free(sw->io);
}
