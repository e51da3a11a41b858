// SPDX-License-Identifier: Apache-2.0
/*
 * io.c - requests from the ring to their completion
 *
 *	ring -> io_take() -> lane -> io_next() -> engine -> transfer_end() -> ring
 *
 * This file has the code that is common to the engines.  A request lies in the
 * table at the tag of its id, so the table cannot overflow, and the kernel's
 * completion is enough to find it again.  pick.c chooses the waiting requests.
 *
 * Each request of a shared transfer has its own header, sums, judgement and
 * completion.  If the kernel did only a part of the transfer, the requests that
 * it did in whole are over; the others are tried once more, each alone, so a
 * fault of the disk costs only the slots that have it.
 *
 * The slot of a request belongs to swapd from io_take() to the store that
 * publishes its completion, the last access of all.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <sysexits.h>

#include <kvmm/clock.h>
#include <kvmm/fault.h>
#include <kvmm/log.h>
#include <kvmm/probes.h>

#include "swapd/daemon.h"
#include "swapd/shim.h"
#include "swapd/slot.h"

void io_count(struct swapd *s, enum swapd_counter c, u64 n)
{
	__atomic_fetch_add(&s->ctl->counter[c], n, __ATOMIC_RELAXED);
}

static void area_count(struct swapd *s, u32 area, enum swapd_area_counter c,
		       u64 n)
{
	__atomic_fetch_add(&s->ctl->area[area][c], n, __ATOMIC_RELAXED);
}

/* kvmm broke the contract: nothing sensible can follow. */
void sd_broken(const char *what)
{
	pr_err("%s: swapd and kvmm are not of one version: install both anew",
	       what);
	exit(EX_PROTOCOL);
}

int io_init(struct swapd *s)
{
	s->io = calloc(s->entries, sizeof(*s->io));
	if (!s->io)
		return -ENOMEM;
	pick_init(s);
	pthread_mutex_init(&s->lock, NULL);
	pthread_mutex_init(&s->cpl_lock, NULL);
	pthread_cond_init(&s->more, NULL);
	return 0;
}

void io_rings_begin(struct swapd *s)
{
	ring_cons_init(&s->req, s->entries, 0, &s->ctl->req_head,
		       &s->ctl->req_tail);
	ring_prod_init(&s->cpl, s->entries, 0, &s->ctl->cpl_tail,
		       &s->ctl->cpl_head);
}

/* ---- completions ---- */

static void io_complete(struct swapd *s, u64 id, int status)
{
	const struct swapd_cpl cpl = { .id = id, .status = status };

	pthread_mutex_lock(&s->cpl_lock);
	if (!ring_prod_room(&s->cpl) &&
	    (ring_prod_look(&s->cpl) < 0 || !ring_prod_room(&s->cpl)))
		sd_broken("more requests than the ring has entries");
	shared_copy_out(&s->cpls[ring_prod_slot(&s->cpl)], &cpl, sizeof(cpl));
	ring_prod_advance(&s->cpl);
	ring_prod_publish(&s->cpl);
	pthread_mutex_unlock(&s->cpl_lock);
}

/* After completions: wake kvmm once for all of them, if it sleeps. */
static void kvmm_wake(struct swapd *s)
{
	const u64 one = 1;

	if (ring_sleeper_waits(&s->ctl->kvmm_sleeps) &&
	    write((int)s->opt.completion_fd, &one, sizeof(one)) < 0)
		pr_debug("kvmm cannot be woken: %s", strerror(errno));
}

/* ---- taking ---- */

static int req_judge(const struct swapd *s, const struct swapd_req *r)
{
	const u64 all = r->host_off | r->area_off | r->len;

	if (r->op != SWAPD_READ && r->op != SWAPD_WRITE)
		return -EINVAL;
	if (r->resv || r->resv2[0] || r->resv2[1] || r->resv2[2])
		return -EINVAL;
	if (all & (SWAPD_ALIGN - 1) || r->len <= SWAPD_HEADER_BYTES ||
	    r->len > SWAPD_LEN_MAX ||
	    r->payload_len > r->len - SWAPD_HEADER_BYTES)
		return -EINVAL;
	if (r->host_off > s->pool_bytes ||
	    r->len > s->pool_bytes - r->host_off)
		return -EINVAL;
	return r->area < SWAPD_AREAS ? 0 : -ENXIO;
}

/* Return: 0, or the error that the request ends with. */
static int req_take(struct swapd *s, const struct swapd_req *r)
{
	u32 tag = SWAPD_ID_TAG(r->id);
	struct sd_io *io;
	int err = req_judge(s, r);

	if (tag >= s->entries)
		return -EPROTO;
	if (err)
		return err;
	io = &s->io[tag];
	pthread_mutex_lock(&s->lock);
	if (io->state == SD_IO_FREE) {
		io->req = *r;
		io->xfer = (struct sd_xfer){
			.area_off = r->area_off, .len = r->len,
			.kind = SHIM_NONE,
		};
		io->due = 0;
		io->alone = false;
		WRITE_ONCE(io->slow, false);
		WRITE_ONCE(s->unfinished, s->unfinished + 1);
		pick_add(s, tag, false);
	} else {
		err = -EPROTO;
	}
	pthread_mutex_unlock(&s->lock);
	return err;
}

u32 io_take(struct swapd *s)
{
	struct swapd_req req;
	int nr = ring_cons_look(&s->req), i, err;

	if (nr < 0)
		sd_broken("the request ring runs over");
	for (i = 0; i < nr; i++) {
		shared_copy_in(&req, &s->reqs[ring_cons_slot(&s->req)],
			       sizeof(req));
		ring_cons_advance(&s->req);
		ring_cons_publish(&s->req);
		kv_fault_die(KV_FAULT_swapd_die_taken);
		err = req_take(s, &req);
		if (err) {
			io_count(s, SWAPD_CNT_refused, 1);
			io_complete(s, req.id, err);
			kvmm_wake(s);
		}
	}
	return (u32)nr;
}

/* ---- to the kernel ---- */

/* Frees the tag first: kvmm may use it again when it sees the completion. */
static void io_release(struct swapd *s, struct sd_io *io, int status)
{
	u64 id = io->req.id;

	pthread_mutex_lock(&s->lock);
	io->state = SD_IO_FREE;
	WRITE_ONCE(s->unfinished, s->unfinished - 1);
	pthread_mutex_unlock(&s->lock);
	io_complete(s, id, status);
	kv_fault_die(KV_FAULT_swapd_die_published);
}

/* Return: 0, or the error because of which it cannot be issued. */
static int io_prepare(struct swapd *s, struct sd_io *io)
{
	const struct swapd_req *r = &io->req;
	const struct sd_area *a = &s->area[r->area];

	if (!area_get(s, r->area))
		return -ENXIO;
	if (r->area_off < a->usable_off || r->len > a->usable_bytes ||
	    r->area_off - a->usable_off > a->usable_bytes - r->len) {
		area_put(s, r->area);
		return -EINVAL;
	}
	if (r->op == SWAPD_WRITE)
		slot_seal(s->pool + r->host_off, r, a->uuid);
	else
		slot_blank(s->pool + r->host_off);
	return 0;
}

static void io_refuse(struct swapd *s, struct sd_io *io, int err)
{
	io_count(s, SWAPD_CNT_refused, 1);
	io_release(s, io, err);
	kvmm_wake(s);
}

/*
 * A request of the transfer cannot be issued: queue each one alone, so that only
 * the wrong one is refused.
 */
static void transfer_undo(struct swapd *s, struct sd_io *lead,
			  const struct sd_io *wrong)
{
	const u32 area = lead->req.area;
	struct sd_io *io, *next;
	bool held = true;

	for (io = lead; io; io = next) {
		next = sd_mate(s, io);
		held &= io != wrong;
		if (held)
			area_put(s, area);
		pick_alone(s, io);
	}
}

/* Return: can it be issued?  If not, its requests were refused or queued. */
static bool transfer_prepare(struct swapd *s, struct sd_io *lead)
{
	struct sd_io *io;
	int err;

	for (io = lead; io; io = sd_mate(s, io)) {
		err = io_prepare(s, io);
		if (!err)
			continue;
		pick_landed(s, lead);
		if (lead->go.nr == 1)
			io_refuse(s, io, err);
		else
			transfer_undo(s, lead, io);
		return false;
	}
	return true;
}

struct sd_io *io_next(struct swapd *s, bool wait)
{
	struct sd_io *lead;

	do {
		lead = pick_next(s, wait);
		if (!lead)
			return NULL;
	} while (!transfer_prepare(s, lead));
	__atomic_fetch_add(&s->inflight, 1, __ATOMIC_RELAXED);
	io_count(s, SWAPD_CNT_transfers, 1);
	if (lead->go.nr > 1)
		io_count(s, SWAPD_CNT_merged, lead->go.nr);
	KV_PROBE(swapd, submit, lead->req.area, lead->req.op == SWAPD_WRITE,
		 lead->req.area_off, lead->go.len, lead->go.nr);
	return lead;
}

/* ---- from the kernel ---- */

static const char * const counter_text[NR_SWAPD_COUNTERS] = {
#define x(name, text) [SWAPD_CNT_##name] = text,
	SWAPD_COUNTERS(x)
#undef x
};
static_assert(NR_SWAPD_COUNTERS <= 32, "a bit of sd_area.told for each");

/* Count an error; the log has each cause once for each area. */
static void wrong_count(struct swapd *s, const struct swapd_req *r,
			enum swapd_counter cause, int err)
{
	u32 *told = &s->area[r->area].told;

	io_count(s, cause, 1);
	if (__atomic_fetch_or(told, BIT(cause), __ATOMIC_RELAXED) & BIT(cause))
		return;
	pr_warn("area %u has %s, the first at %" PRIu64 ": %s: told once, counted in swapstat",
		r->area, counter_text[cause], r->area_off, strerror(-err));
}

static int transfer_failed(struct swapd *s, const struct swapd_req *r, s64 res)
{
	area_count(s, r->area, SWAPD_AREA_CNT_errors, 1);
	if (res >= 0) {
		wrong_count(s, r, SWAPD_CNT_io_short, -EIO);
		return -EIO;
	}
	if (res == -ENOSPC || res == -EDQUOT || res == -EFBIG) {
		wrong_count(s, r, SWAPD_CNT_io_nospace, (int)res);
		io_count(s, SWAPD_CNT_io_errors, 1);
	} else {
		wrong_count(s, r, SWAPD_CNT_io_errors, (int)res);
	}
	/*
	 * kvmm must not take a failed transfer for one to try again as it is,
	 * or for a request to a missing area.
	 */
	return res == -EAGAIN || res == -EINTR || res == -ECANCELED ||
	       res == -ENXIO || res == -ENODEV ? -EIO : (int)res;
}

static int io_judge(struct swapd *s, const struct swapd_req *r, s64 res)
{
	enum swapd_counter wrong;

	if (res != (s64)r->len)
		return transfer_failed(s, r, res);
	if (r->op == SWAPD_WRITE) {
		io_count(s, SWAPD_CNT_writes, 1);
		io_count(s, SWAPD_CNT_write_bytes, r->len);
		return 0;
	}
	if (slot_check(s->pool + r->host_off, r, s->area[r->area].uuid,
		       &wrong)) {
		wrong_count(s, r, wrong, -EBADMSG);
		area_count(s, r->area, SWAPD_AREA_CNT_bad, 1);
		return -EBADMSG;
	}
	io_count(s, SWAPD_CNT_reads, 1);
	io_count(s, SWAPD_CNT_read_bytes, r->len);
	return 0;
}

static void io_account(struct swapd *s, const struct swapd_req *r, u64 ns)
{
	const bool wr = r->op == SWAPD_WRITE;

	area_count(s, r->area, wr ? SWAPD_AREA_CNT_wr_ios :
				    SWAPD_AREA_CNT_rd_ios, 1);
	area_count(s, r->area, wr ? SWAPD_AREA_CNT_wr_bytes :
				    SWAPD_AREA_CNT_rd_bytes, r->len);
	area_count(s, r->area, wr ? SWAPD_AREA_CNT_wr_ns :
				    SWAPD_AREA_CNT_rd_ns, ns);
}

void io_landed(struct swapd *s, const struct sd_io *lead)
{
	__atomic_fetch_sub(&s->inflight, 1, __ATOMIC_RELAXED);
	pick_landed(s, lead);
}

/* A request has ended; the shim may change its result. */
static void io_finish(struct swapd *s, struct sd_io *io, s64 res)
{
	const u64 ns = kv_now_ns() - io->issued_ns;
	const u32 area = io->req.area;
	int status;

	if (shim_on)
		res = shim_end(s, io, res);
	status = io_judge(s, &io->req, res);

	io_account(s, &io->req, ns);
	if (ns > s->opt.slow_ms * 1000000ull && !READ_ONCE(io->slow))
		io_count(s, SWAPD_CNT_slow, 1);
	if (status)
		pr_debug("request %" PRIx64 " on area %u at %" PRIu64 ": %s",
			 io->req.id, area, io->req.area_off, strerror(-status));
	KV_PROBE(swapd, done, area, io->req.op == SWAPD_WRITE, io->req.area_off,
		 io->req.len, -status, ns / 1000);
	area_put(s, area);
	io_release(s, io, status);
}

/* A shared transfer failed: end the requests that it did, queue others alone. */
static void transfer_split(struct swapd *s, struct sd_io *lead, s64 res)
{
	struct sd_io *io, *next;
	s64 at = 0;

	io_count(s, SWAPD_CNT_split, 1);
	for (io = lead; io; io = next) {
		next = sd_mate(s, io);
		at += io->req.len;
		if (at <= res) {
			io_finish(s, io, io->req.len);
			continue;
		}
		area_put(s, io->req.area);
		pick_alone(s, io);
	}
}

void transfer_end(struct swapd *s, struct sd_io *lead, s64 res)
{
	struct sd_io *io, *next;

	if (lead->go.nr == 1) {
		io_finish(s, lead, res);
	} else if (res != (s64)lead->go.len || lead->go.fails) {
		transfer_split(s, lead, res);
	} else {
		for (io = lead; io; io = next) {
			/* Once published, its tag belongs to kvmm again. */
			next = sd_mate(s, io);
			io_finish(s, io, io->xfer.len);
		}
	}
	kvmm_wake(s);
}

void io_look_slow(struct swapd *s)
{
	const u64 now = kv_now_ns(), limit = s->opt.slow_ms * 1000000ull;
	u32 i;

	pthread_mutex_lock(&s->lock);
	for (i = 0; i < s->entries; i++) {
		struct sd_io *io = &s->io[i];
		struct sd_area *a = &s->area[io->req.area];

		if ((io->state != SD_IO_ISSUED && io->state != SD_IO_HELD) ||
		    io->slow ||
		    now - io->issued_ns <= limit || now < io->issued_ns)
			continue;
		WRITE_ONCE(io->slow, true);
		io_count(s, SWAPD_CNT_slow, 1);
		if (!a->slow_told)
			pr_warn("area %u: a %s at %" PRIu64 " takes longer than %u ms",
				io->req.area,
				io->req.op == SWAPD_READ ? "read" : "write",
				io->req.area_off, s->opt.slow_ms);
		a->slow_told = true;
	}
	pthread_mutex_unlock(&s->lock);
}
