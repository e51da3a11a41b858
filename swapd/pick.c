// SPDX-License-Identifier: Apache-2.0
/*
 * pick.c - which requests the kernel gets next, and which of them together
 *
 * Each area has a lane: two queues, in the order in which requests came.
 * Lanes take turns.  In a lane reads go first, since sequences wait for them, but
 * one transfer in FAIR is a write, so that a stream of reads does not keep memory
 * from being freed.  The kernel has no more writes of an area than depth.c
 * allows, so other writes wait here, behind the next read.  depth.c bounds reads
 * in the kernel, too, so that the oldest end first.
 *
 * Neighbouring requests share a transfer.  They are adjacent in the area and, in
 * the same direction, on the host, so one piece of memory moves.  kvmm lays out
 * the blocks of a sequence in this way, and few large transfers suit a disk
 * better than many small ones.  A shared transfer is no longer than --merge-kib
 * and does not cross a seam of the pool, since a transfer can name one registered
 * buffer.  Neighbours are searched among the LOOK oldest waiting requests and
 * joined at either side, so the order in which kvmm sends a run does not matter.
 * Requests of a failed shared transfer go alone.
 *
 * Context: any thread that submits; the queues are under swapd.lock.
 */
#include <kvmm/clock.h>

#include "swapd/daemon.h"
#include "swapd/shim.h"

#define FAIR	4	/* while a write waits, one transfer of so many is a write */
#define LOOK	64	/* requests looked at for a neighbour */

void pick_init(struct swapd *s)
{
	u32 i;

	for (i = 0; i < SWAPD_AREAS; i++) {
		s->lane[i].pending[0].first = SD_NIL;
		s->lane[i].pending[1].first = SD_NIL;
		/* io_next() has to get requests without an area, to refuse them. */
		s->lane[i].depth.limit = 1;
	}
}

/* ---- depth ---- */

static void depth_tell(struct swapd *s, u32 area)
{
	WRITE_ONCE(s->ctl->area[area][SWAPD_AREA_CNT_wr_depth],
		   (u64)s->lane[area].depth.limit);
}

void pick_area(struct swapd *s, u32 area)
{
	struct sd_depth *d = &s->lane[area].depth;
	const struct sd_depth before = *d;
	const bool fixed = s->opt.fixed_depth;
	const u32 most = s->opt.depth;

	depth_init(d, fixed ? most : s->opt.depth_min, most,
		   s->opt.write_ms * 1000000ull,
		   fixed ? 0 : (u64)s->opt.read_mib << 20);
	/* Requests that are about to be refused. */
	depth_inherit(d, &before);
	depth_tell(s, area);
}

void pick_landed(struct swapd *s, const struct sd_io *lead)
{
	const u32 area = lead->req.area;
	struct sd_depth *d = &s->lane[area].depth;
	const u64 now = kv_now_ns();
	u32 was;

	pthread_mutex_lock(&s->lock);
	was = d->limit;
	if (depth_landed(d, lead->req.op == SWAPD_WRITE, lead->go.bytes,
			 now - lead->go.issued_ns, now)) {
		depth_tell(s, area);
		if (d->limit < was)
			__atomic_fetch_add(&s->ctl->area[area][SWAPD_AREA_CNT_wr_lowered],
					   1, __ATOMIC_RELAXED);
	}
	if (s->ready)
		pthread_cond_signal(&s->more);
	pthread_mutex_unlock(&s->lock);
}

/* ---- queues ---- */

void pick_add(struct swapd *s, u32 tag, bool first)
{
	const struct swapd_req *r = &s->io[tag].req;
	struct sd_queue *q =
		&s->lane[r->area].pending[r->op == SWAPD_WRITE];

	s->io[tag].state = SD_IO_PENDING;
	s->io[tag].next = first ? q->first : SD_NIL;
	if (q->first == SD_NIL || !first) {
		if (q->first == SD_NIL)
			q->first = tag;
		else
			s->io[q->last].next = tag;
		q->last = tag;
	} else {
		q->first = tag;
	}
	q->nr++;
	s->ready |= BIT(r->area);
}

/* Take the request behind @prev from the queue; SD_NIL: the first one. */
static u32 queue_take(struct swapd *s, struct sd_queue *q, u32 prev)
{
	u32 tag = prev == SD_NIL ? q->first : s->io[prev].next;

	if (prev == SD_NIL)
		q->first = s->io[tag].next;
	else
		s->io[prev].next = s->io[tag].next;
	if (q->last == tag)
		q->last = prev;
	q->nr--;
	return tag;
}

/* ---- turns of lanes ---- */

/* The queue that may go on; NULL: other transfers must end first. */
static struct sd_queue *lane_turn(struct sd_lane *l)
{
	struct sd_queue *reads = &l->pending[0], *writes = &l->pending[1];
	const bool fair = l->reads_in_row < FAIR - 1;
	const bool may_read = reads->nr && depth_allows_read(&l->depth);

	if (may_read && (!writes->nr || fair)) {
		l->reads_in_row++;
		return reads;
	}
	if (writes->nr && depth_allows_write(&l->depth)) {
		l->reads_in_row = 0;
		return writes;
	}
	return may_read ? reads : NULL;
}

/* The queue of the next lane that may go on, after the lane of the last turn. */
static struct sd_queue *lane_next(struct swapd *s, u32 *area)
{
	u32 left = s->ready, later;
	struct sd_queue *q;

	while (left) {
		later = left & ~(BIT(s->turn) - 1);
		*area = (u32)__builtin_ctz(later ? later : left);
		left &= ~BIT(*area);
		q = lane_turn(&s->lane[*area]);
		if (!q)
			continue;
		s->turn = (*area + 1) % SWAPD_AREAS;
		return q;
	}
	return NULL;
}

static void lane_settle(struct swapd *s, u32 area)
{
	const struct sd_lane *l = &s->lane[area];

	if (!l->pending[0].nr && !l->pending[1].nr)
		s->ready &= ~BIT(area);
}

/* Mark a request issued.  Return: false if the shim holds it back instead. */
static bool io_issue(struct swapd *s, struct sd_io *io)
{
	io->mate = SD_NIL;
	io->state = SD_IO_ISSUED;
	if (io->due || io->alone)
		return true;
	io->issued_ns = kv_now_ns();
	if (!shim_on)
		return true;
	shim_plan(s, io);
	if (!io->due)
		return true;
	WRITE_ONCE(s->held, s->held + 1);
	io->state = SD_IO_HELD;
	return false;
}

/* ---- neighbours ---- */

static bool same_piece(u64 off, u32 len)
{
	return off / SWAPD_SEAM == (off + len - 1) / SWAPD_SEAM;
}

/* Does a request begin at the end of the transfer, in the area and on the host? */
static bool fits_behind(const struct sd_transfer *t, const struct swapd_req *r)
{
	return r->area_off == t->area_off + t->bytes &&
	       r->host_off == t->host_off + t->bytes &&
	       same_piece(t->host_off, t->bytes + r->len);
}

static bool fits_before(const struct sd_transfer *t, const struct swapd_req *r)
{
	return r->area_off + r->len == t->area_off &&
	       r->host_off + r->len == t->host_off &&
	       same_piece(r->host_off, t->bytes + r->len);
}

static bool may_join(const struct swapd *s, const struct sd_transfer *t,
		     const struct sd_io *io)
{
	return !io->alone &&
	       t->bytes + (u64)io->req.len <= (u64)s->opt.merge_kib << 10 &&
	       (fits_behind(t, &io->req) || fits_before(t, &io->req));
}

/* Add a request to a transfer.  Return: the first request of the transfer now. */
static struct sd_io *join(struct swapd *s, struct sd_io *lead, u32 tag)
{
	struct sd_io *io = &s->io[tag];

	if (fits_behind(&lead->go, &io->req)) {
		s->io[lead->go.last].mate = tag;
		lead->go.last = tag;
	} else {
		io->mate = (u32)(lead - s->io);
		io->go = lead->go;
		io->go.area_off = io->req.area_off;
		io->go.host_off = io->req.host_off;
		lead = io;
	}
	lead->go.bytes += io->req.len;
	lead->go.len = lead->go.bytes;
	lead->go.nr++;
	return lead;
}

static struct sd_io *join_neighbours(struct swapd *s, struct sd_queue *q,
				     struct sd_io *lead)
{
	u32 prev = SD_NIL, tag = q->first, next, n;

	if (lead->alone)
		return lead;
	for (n = 0; tag != SD_NIL && n < LOOK; n++, tag = next) {
		struct sd_io *io = &s->io[tag];

		next = io->next;
		if (!may_join(s, &lead->go, io)) {
			prev = tag;
			continue;
		}
		(void)queue_take(s, q, prev);
		if (io_issue(s, io))
			lead = join(s, lead, tag);
	}
	return lead;
}

static void transfer_begin(struct sd_io *io, u32 tag)
{
	io->go = (struct sd_transfer){
		.host_off = io->req.host_off, .area_off = io->req.area_off,
		.len = io->req.len, .bytes = io->req.len, .nr = 1, .last = tag,
	};
}

/* The oldest request that the shim lets go, with its neighbours; NULL: none. */
static struct sd_io *pick(struct swapd *s)
{
	struct sd_io *lead;
	struct sd_queue *q;
	u32 tag, area;

	while ((q = lane_next(s, &area))) {
		tag = queue_take(s, q, SD_NIL);
		lead = &s->io[tag];
		if (io_issue(s, lead)) {
			transfer_begin(lead, tag);
			lead = join_neighbours(s, q, lead);
			lead->go.issued_ns = kv_now_ns();
			depth_issued(&s->lane[area].depth,
				     lead->req.op == SWAPD_WRITE,
				     lead->go.bytes, lead->go.issued_ns);
			lane_settle(s, area);
			return lead;
		}
		lane_settle(s, area);
	}
	return NULL;
}

struct sd_io *pick_next(struct swapd *s, bool wait)
{
	struct sd_io *lead;

	pthread_mutex_lock(&s->lock);
	while (!(lead = pick(s)) && wait)
		pthread_cond_wait(&s->more, &s->lock);
	pthread_mutex_unlock(&s->lock);
	if (lead && shim_on)
		shim_join(s, lead);
	return lead;
}

void pick_alone(struct swapd *s, struct sd_io *io)
{
	pthread_mutex_lock(&s->lock);
	io->alone = true;
	pick_add(s, (u32)(io - s->io), true);
	pthread_cond_signal(&s->more);
	pthread_mutex_unlock(&s->lock);
}

void pick_look_held(struct swapd *s)
{
	const u64 now = kv_now_ns();
	u32 i;

	pthread_mutex_lock(&s->lock);
	for (i = 0; s->held && i < s->entries; i++) {
		struct sd_io *io = &s->io[i];

		if (io->state != SD_IO_HELD || now < io->due)
			continue;
		WRITE_ONCE(s->held, s->held - 1);
		pick_add(s, i, false);
	}
	pthread_mutex_unlock(&s->lock);
}

/* ---- names of transfers, for hold and kvmm ---- */

u64 transfer_name(const struct sd_io *lead)
{
	return lead->req.id | (lead->alone ? SWAPD_ALONE : 0);
}

void transfer_carry(struct swapd *s, const struct sd_io *lead)
{
	const u64 name = transfer_name(lead);
	const struct sd_io *io;
	u32 off = 0;

	for (io = lead; io; io = sd_mate(s, io)) {
		struct swapd_carrier *c = &s->carriers[io - s->io];

		/* After a death in between, no request has this id. */
		WRITE_ONCE(c->id, 0);
		ring_fence_release();
		WRITE_ONCE(c->transfer, name);
		WRITE_ONCE(c->off, off);
		WRITE_ONCE(c->nr, lead->go.nr);
		store_release(&c->id, io->req.id);
		off += io->req.len;
	}
}
