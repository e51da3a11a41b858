// SPDX-License-Identifier: Apache-2.0
/*
 * check_swapd_merge.c - requests that share a transfer, and its failures
 *
 * The test plays kvmm at one end of the rings and the kernel at the other: it
 * takes transfers from io_next() and ends them in any way.  The pool has two
 * pieces with a seam between them; only used pages exist.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "swapd/crc32c.h"
#include "swapd/daemon.h"
#include "swapd/shim.h"

#define ENTRIES		64u
#define AREA		2u
#define LEN		(16u << 10)
#define SLOTS		64u
#define POOL		(SWAPD_SEAM + (4u << 20))

static struct swapd sd;
static struct ring_prod req;
static struct ring_cons cpl;
static u32 tags;
static u64 sent[ENTRIES];	/* id, by slot number */
static char text[256];

static void area_make(u32 i)
{
	struct sd_area *a = &sd.area[i];

	a->fd = memfd_create("area", MFD_CLOEXEC);
	a->usable_off = SWAPD_RESERVED_BYTES;
	a->usable_bytes = SLOTS * LEN;
	ck_assert_int_eq(ftruncate(a->fd, (off_t)(a->usable_off +
						  a->usable_bytes)), 0);
}

static void setup(void)
{
	memset(&sd, 0, sizeof(sd));
	crc32c_init(false);
	ck_assert_int_eq(shim_init(NULL, text, sizeof(text)), 0);
	sd.entries = ENTRIES;
	sd.opt.merge_kib = 2048;
	sd.opt.slow_ms = 60000;
	sd.ctl = aligned_alloc(4096, swapd_shm_bytes(ENTRIES));
	ck_assert_ptr_nonnull(sd.ctl);
	memset(sd.ctl, 0, swapd_shm_bytes(ENTRIES));
	swapd_shm_init(sd.ctl, ENTRIES);
	sd.reqs = swapd_shm_reqs(sd.ctl);
	sd.cpls = swapd_shm_cpls(sd.ctl, ENTRIES);
	sd.carriers = swapd_shm_carriers(sd.ctl, ENTRIES);
	sd.pool_bytes = POOL;
	sd.pool = mmap(NULL, POOL, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	ck_assert_ptr_ne(sd.pool, MAP_FAILED);
	area_make(AREA);
	area_make(AREA + 3);
	ck_assert_int_eq(io_init(&sd), 0);
	sd.opt.depth = 64;
	sd.opt.write_ms = 20;
	sd.opt.depth_min = 1;
	area_live(&sd, AREA);
	area_live(&sd, AREA + 3);
	io_rings_begin(&sd);
	ring_prod_init(&req, ENTRIES, 0, &sd.ctl->req_tail, &sd.ctl->req_head);
	ring_cons_init(&cpl, ENTRIES, 0, &sd.ctl->cpl_head, &sd.ctl->cpl_tail);
	tags = 0;
}

static void teardown(void)
{
	close(sd.area[AREA].fd);
	close(sd.area[AREA + 3].fd);
	munmap(sd.pool, POOL);
	free(sd.io);
	free(sd.ctl);
}

/* Send a request for slot @n of the area, from or to @host_off in the pool. */
static void send_to(u32 area, u32 op, u32 n, u64 host_off, u32 len)
{
	struct swapd_req r = {
		.id = SWAPD_ID(tags + 1, tags), .op = op, .area = area,
		.host_off = host_off,
		.area_off = SWAPD_RESERVED_BYTES + (u64)n * LEN,
		.len = len, .payload_len = len - SWAPD_HEADER_BYTES,
		.hash = { n, ~0ull }, .generation = 1,
	};

	ck_assert_uint_lt(tags, ENTRIES);
	sent[n] = r.id;
	tags++;
	sd.reqs[ring_prod_slot(&req)] = r;
	ring_prod_advance(&req);
	ring_prod_publish(&req);
}

static void send(u32 op, u32 n)
{
	send_to(AREA, op, n, (u64)n * LEN, LEN);
}

/* The next transfer covers these slots of the area, with @nr requests and no more. */
static struct sd_io *expect(u32 first, u32 nr)
{
	struct sd_io *lead = io_next(&sd, false), *io;
	u32 n = 0;

	ck_assert_ptr_nonnull(lead);
	ck_assert_uint_eq(lead->go.nr, nr);
	ck_assert_uint_eq(lead->go.area_off,
			  SWAPD_RESERVED_BYTES + (u64)first * LEN);
	ck_assert_uint_eq(lead->go.host_off, lead->req.host_off);
	for (io = lead; io; io = sd_mate(&sd, io), n++)
		ck_assert_uint_eq(io->req.area_off,
				  SWAPD_RESERVED_BYTES + (u64)(first + n) * LEN);
	ck_assert_uint_eq(n, nr);
	return lead;
}

/* The table of carriers describes the transfer. */
static void expect_carried(struct sd_io *lead)
{
	const u64 name = lead->req.id | (lead->alone ? SWAPD_ALONE : 0);
	struct swapd_carrier c;
	struct sd_io *io;
	u32 off = 0;

	transfer_carry(&sd, lead);
	ck_assert_uint_eq(transfer_name(lead), name);
	for (io = lead; io; io = sd_mate(&sd, io)) {
		ck_assert(swapd_carrier_read(sd.carriers, io->req.id, &c));
		ck_assert_uint_eq(c.transfer, name);
		ck_assert_uint_eq(c.off, off);
		ck_assert_uint_eq(c.nr, lead->go.nr);
		/* The next request with the same tag is in no transfer. */
		ck_assert(!swapd_carrier_read(sd.carriers, io->req.id +
					      SWAPD_ID(1, 0), &c));
		off += io->req.len;
	}
}

/* Do the transfer as the kernel does it. */
static void transfer(struct sd_io *lead)
{
	const struct sd_transfer *go = &lead->go;
	const int fd = sd.area[lead->req.area].fd;
	s64 res = 0;

	expect_carried(lead);
	if (go->len)
		res = lead->req.op == SWAPD_READ ?
		      pread(fd, sd.pool + go->host_off, go->len,
			    (off_t)go->area_off) :
		      pwrite(fd, sd.pool + go->host_off, go->len,
			     (off_t)go->area_off);
	io_landed(&sd, lead);
	transfer_end(&sd, lead, res);
}

static void end(struct sd_io *lead, s64 res)
{
	expect_carried(lead);
	io_landed(&sd, lead);
	transfer_end(&sd, lead, res);
}

/* The completion of slot @n has arrived, with @status. */
static void expect_done(u32 n, int status)
{
	int nr = ring_cons_look(&cpl);
	const struct swapd_cpl *c;

	ck_assert_int_gt(nr, 0);
	c = &sd.cpls[ring_cons_slot(&cpl)];
	ck_assert_uint_eq(c->id, sent[n]);
	ck_assert_int_eq(c->status, status);
	ring_cons_advance(&cpl);
	ring_cons_publish(&cpl);
}

static u32 take_statuses(int *status)
{
	int nr = ring_cons_look(&cpl), i;
	u32 n;

	for (i = 0; i < nr; i++) {
		const struct swapd_cpl *c = &sd.cpls[ring_cons_slot(&cpl)];

		for (n = 0; n < SLOTS && sent[n] != c->id; n++)
			;
		ck_assert_uint_lt(n, SLOTS);
		status[n] = c->status;
		ring_cons_advance(&cpl);
	}
	ring_cons_publish(&cpl);
	return (u32)nr;
}

static u64 count(enum swapd_counter c)
{
	return sd.ctl->counter[c];
}

/* ---- requests that share a transfer ---- */

/* A run of eight requests, in any order that leaves no gap. */
static const u32 orders[][8] = {
	{ 0, 1, 2, 3, 4, 5, 6, 7 }, { 7, 6, 5, 4, 3, 2, 1, 0 },
	{ 3, 4, 2, 5, 1, 6, 0, 7 }, { 4, 5, 6, 7, 3, 2, 1, 0 },
};

START_TEST(test_run)
{
	u32 op, i;

	for (op = SWAPD_WRITE; op >= SWAPD_READ; op--) {
		for (i = 0; i < 8; i++)
			send(op, 8 + orders[_i][i]);
		ck_assert_uint_eq(io_take(&sd), 8);
		if (op == SWAPD_READ)
			memset(sd.pool + 8 * LEN, 0x77, 8 * LEN);
		transfer(expect(8, 8));
		for (i = 0; i < 8; i++)
			expect_done(8 + i, 0);
		ck_assert_ptr_null(io_next(&sd, false));
	}
	ck_assert_uint_eq(count(SWAPD_CNT_transfers), 2);
	ck_assert_uint_eq(count(SWAPD_CNT_merged), 16);
	ck_assert_uint_eq(count(SWAPD_CNT_split), 0);
	ck_assert_uint_eq(count(SWAPD_CNT_writes), 8);
	ck_assert_uint_eq(count(SWAPD_CNT_reads), 8);
	ck_assert_uint_eq(sd.area[AREA].inflight, 0);
	ck_assert_uint_eq(sd.inflight, 0);
	ck_assert_uint_eq(sd.unfinished, 0);
}
END_TEST

/* Other requests may stand between neighbours; those come later, in their order. */
START_TEST(test_between)
{
	send(SWAPD_WRITE, 4);
	send(SWAPD_WRITE, 20);
	send(SWAPD_WRITE, 5);
	send(SWAPD_WRITE, 30);
	send(SWAPD_WRITE, 21);
	io_take(&sd);
	transfer(expect(4, 2));
	send(SWAPD_WRITE, 31);
	io_take(&sd);
	transfer(expect(20, 2));
	transfer(expect(30, 2));
	ck_assert_ptr_null(io_next(&sd, false));
	ck_assert_uint_eq(sd.ready, 0);
}
END_TEST

/* Two requests that differ in one respect from neighbours. */
START_TEST(test_apart)
{
	const u64 host = (u64)7 * LEN;
	u32 i;

	send_to(AREA, SWAPD_WRITE, 7, host, LEN);
	switch (_i) {
	case 0:			/* a gap in the area */
		send_to(AREA, SWAPD_WRITE, 9, host + LEN, LEN);
		break;
	case 1:			/* a gap in the host pool */
		send_to(AREA, SWAPD_WRITE, 8, host + 2 * LEN, LEN);
		break;
	case 2:			/* the reverse order in the host pool */
		send_to(AREA, SWAPD_WRITE, 8, host - LEN, LEN);
		break;
	case 3:			/* another area */
		send_to(AREA + 3, SWAPD_WRITE, 8, host + LEN, LEN);
		break;
	case 4:			/* another direction */
		send_to(AREA, SWAPD_READ, 8, host + LEN, LEN);
		break;
	case 5:			/* too long together */
		sd.opt.merge_kib = 2 * LEN / 1024 - 1;
		send_to(AREA, SWAPD_WRITE, 8, host + LEN, LEN);
		break;
	case 6:			/* merging is off */
		sd.opt.merge_kib = 0;
		send_to(AREA, SWAPD_WRITE, 8, host + LEN, LEN);
		break;
	case 7:			/* the first is shorter than its slot */
		sd.reqs[ring_prod_slot(&req) - 1].len -= SWAPD_ALIGN;
		sd.reqs[ring_prod_slot(&req) - 1].payload_len -= SWAPD_ALIGN;
		send_to(AREA, SWAPD_WRITE, 8, host + LEN, LEN);
		break;
	}
	io_take(&sd);
	for (i = 0; i < 2; i++) {
		struct sd_io *lead = io_next(&sd, false);

		ck_assert_ptr_nonnull(lead);
		ck_assert_uint_eq(lead->go.nr, 1);
		end(lead, -EIO);
	}
	ck_assert_ptr_null(io_next(&sd, false));
	ck_assert_uint_eq(count(SWAPD_CNT_merged), 0);
}
END_TEST

/* Two requests lie before the seam of the pool and two after it. */
START_TEST(test_seam)
{
	u32 i;

	for (i = 0; i < 4; i++) {
		u32 n = _i ? 3 - i : i;

		send_to(AREA, SWAPD_WRITE, n, SWAPD_SEAM - 2 * LEN +
			(u64)n * LEN, LEN);
	}
	io_take(&sd);
	transfer(expect(_i ? 2 : 0, 2));
	transfer(expect(_i ? 0 : 2, 2));
	ck_assert_uint_eq(count(SWAPD_CNT_writes), 4);
}
END_TEST

/* Requests of different lengths, up to the bound. */
START_TEST(test_bound)
{
	u32 i;

	sd.opt.merge_kib = 5 * LEN / 1024;
	send_to(AREA, SWAPD_WRITE, 0, 0, 2 * LEN);
	send_to(AREA, SWAPD_WRITE, 2, 2 * LEN, 3 * LEN);
	for (i = 5; i < 12; i++)
		send(SWAPD_WRITE, i);
	io_take(&sd);
	transfer(io_next(&sd, false));
	expect_done(0, 0);
	expect_done(2, 0);
	ck_assert_int_eq(ring_cons_look(&cpl), 0);
	transfer(expect(5, 5));
	transfer(expect(10, 2));
	ck_assert_ptr_null(io_next(&sd, false));
}
END_TEST

/* ---- turns ---- */

/* Reads go first, with one write in four; areas take turns. */
START_TEST(test_turns)
{
	static const u32 op[] = {
		SWAPD_READ, SWAPD_READ, SWAPD_READ, SWAPD_WRITE,
		SWAPD_READ, SWAPD_READ, SWAPD_WRITE, SWAPD_WRITE,
	};
	struct sd_io *io;
	u32 i;

	for (i = 0; i < 3; i++)
		send(SWAPD_WRITE, 2 * i);
	for (i = 0; i < 5; i++)
		send(SWAPD_READ, 20 + 2 * i);
	io_take(&sd);
	for (i = 0; i < 8; i++) {
		io = io_next(&sd, false);
		ck_assert_uint_eq(io->req.op, op[i]);
		end(io, -EIO);
	}
	for (i = 0; i < 6; i++)
		send_to(i < 3 ? AREA : AREA + 3, SWAPD_WRITE, 2 * i,
			(u64)i * LEN, LEN);
	io_take(&sd);
	for (i = 0; i < 6; i++) {
		io = io_next(&sd, false);
		ck_assert_uint_eq(io->req.area, i % 2 ? AREA : AREA + 3);
		end(io, -EIO);
	}
}
END_TEST

/* ---- transfers that fail ---- */

static const struct {
	s64	res;
	u32	done;
} ends[] = {
	{ 5 * LEN, 5 }, { 5 * LEN - 1, 4 }, { 2 * LEN + 4096, 2 }, { LEN, 1 },
	{ LEN - 1, 0 }, { 0, 0 }, { -EIO, 0 }, { -ENOSPC, 0 }, { -EAGAIN, 0 },
};

START_TEST(test_split)
{
	const u32 done = ends[_i].done;
	int status[SLOTS];
	struct sd_io *io;
	u32 i;

	for (i = 0; i < 5; i++)
		send(SWAPD_WRITE, i);
	io_take(&sd);
	end(expect(0, 5), ends[_i].res);
	for (i = 0; i < done; i++)
		expect_done(i, 0);
	ck_assert_int_eq(ring_cons_look(&cpl), 0);
	ck_assert_uint_eq(sd.area[AREA].inflight, 0);
	ck_assert_uint_eq(count(SWAPD_CNT_split), done < 5);
	/* Each request goes alone, and slot 4 has the fault. */
	for (i = done; i < 5; i++) {
		io = io_next(&sd, false);
		ck_assert_ptr_nonnull(io);
		ck_assert_uint_eq(io->go.nr, 1);
		ck_assert(io->alone);
		end(io, io->req.hash[0] == 4 ? -EIO : (s64)LEN);
	}
	ck_assert_ptr_null(io_next(&sd, false));
	ck_assert_uint_eq(take_statuses(status), 5 - done);
	for (i = done; i < 5; i++)
		ck_assert_int_eq(status[i], i == 4 ? -EIO : 0);
	ck_assert_uint_eq(count(SWAPD_CNT_io_errors), done < 5);
	ck_assert_uint_eq(count(SWAPD_CNT_io_short), 0);
	ck_assert_uint_eq(sd.unfinished, 0);
	/* The tag is used again, and its request shares a transfer as before. */
	tags = 0;
	send(SWAPD_WRITE, 1);
	send(SWAPD_WRITE, 2);
	io_take(&sd);
	transfer(expect(1, 2));
}
END_TEST

/* One request lies outside of the area, or the area is removed: each is judged alone. */
START_TEST(test_refused)
{
	int status[SLOTS];
	struct sd_io *io;
	u32 i, n = 0;

	if (!_i)
		sd.area[AREA].usable_bytes = 3 * LEN;
	for (i = 0; i < 4; i++)
		send(SWAPD_WRITE, i);
	io_take(&sd);
	if (_i)
		sd.area[AREA].state = SD_AREA_DYING;
	while ((io = io_next(&sd, false))) {
		ck_assert_uint_eq(io->go.nr, 1);
		transfer(io);
		n++;
	}
	ck_assert_uint_eq(n, _i ? 0 : 3);
	ck_assert_uint_eq(take_statuses(status), 4);
	for (i = 0; i < 4; i++)
		ck_assert_int_eq(status[i], _i ? -ENXIO : i == 3 ? -EINVAL : 0);
	ck_assert_uint_eq(sd.area[AREA].inflight, 0);
	ck_assert_uint_eq(count(SWAPD_CNT_refused), _i ? 4 : 1);
}
END_TEST

/* An area that never existed: writes are refused, not kept for later. */
START_TEST(test_no_area)
{
	int status[SLOTS];
	u32 i;

	for (i = 0; i < 4; i++)
		send_to(AREA + 9, i % 2 ? SWAPD_WRITE : SWAPD_READ, 2 * i,
			2 * i * LEN, LEN);
	io_take(&sd);
	ck_assert_ptr_null(io_next(&sd, false));
	ck_assert_uint_eq(take_statuses(status), 4);
	for (i = 0; i < 4; i++)
		ck_assert_int_eq(status[2 * i], -ENXIO);
}
END_TEST

/* The kernel gets no more writes than the limit; a read is not held up. */
START_TEST(test_depth)
{
	struct sd_io *lead[8];
	u32 i, n;

	sd.lane[AREA].depth.limit = 2;
	for (i = 0; i < 4; i++)
		send(SWAPD_WRITE, 2 * i);
	io_take(&sd);
	for (n = 0; (lead[n] = io_next(&sd, false)); n++)
		;
	ck_assert_uint_eq(n, 2);
	/* Another area is not held up, nor are reads. */
	send_to(AREA + 3, SWAPD_WRITE, 40, 40 * LEN, LEN);
	send(SWAPD_READ, 20);
	io_take(&sd);
	for (; (lead[n] = io_next(&sd, false)); n++)
		;
	ck_assert_uint_eq(n, 4);
	for (i = 0; i < n; i++)
		end(lead[i], -EIO);
	for (n = 0; (lead[n] = io_next(&sd, false)); n++)
		;
	ck_assert_uint_eq(n, 2);
	end(lead[0], -EIO);
	end(lead[1], -EIO);
	ck_assert_uint_eq(sd.unfinished, 0);
	ck_assert_uint_eq(sd.lane[AREA].depth.moving[0], 0);
	ck_assert_uint_eq(sd.lane[AREA].depth.moving[1], 0);
}
END_TEST

/* The kernel gets reads up to the limit in bytes, the oldest first; writes go on. */
START_TEST(test_read_depth)
{
	struct sd_io *lead[32];
	u32 i, n;

	sd.lane[AREA].depth.read_bytes = 24 * LEN;
	for (i = 0; i < 15; i++) {
		send_to(AREA, SWAPD_READ, 4 * i, 4 * i * LEN, LEN);
		send_to(AREA, SWAPD_READ, 4 * i + 1, (4 * i + 1) * LEN, LEN);
	}
	io_take(&sd);
	for (n = 0; n < 12; n++)
		lead[n] = expect(4 * n, 2);
	ck_assert_ptr_null(io_next(&sd, false));
	/* Another area has its own limit, and writes need not wait. */
	send_to(AREA + 3, SWAPD_READ, 62, 62 * LEN, LEN);
	send_to(AREA, SWAPD_WRITE, 2, 2 * LEN, LEN);
	io_take(&sd);
	end(expect(62, 1), -EIO);
	end(expect(2, 1), -EIO);
	ck_assert_ptr_null(io_next(&sd, false));
	/* A read that ends makes room for another. */
	io_landed(&sd, lead[5]);
	transfer_end(&sd, lead[5], 2 * LEN);
	lead[5] = expect(48, 2);
	ck_assert_ptr_null(io_next(&sd, false));
	for (i = 0; i < 12; i++) {
		io_landed(&sd, lead[i]);
		transfer_end(&sd, lead[i], 2 * LEN);
	}
	for (n = 0; n < 2; n++)
		lead[n] = expect(52 + 4 * n, 2);
	ck_assert_ptr_null(io_next(&sd, false));
	for (n = 0; n < 2; n++) {
		io_landed(&sd, lead[n]);
		transfer_end(&sd, lead[n], 2 * LEN);
	}
	ck_assert_uint_eq(sd.unfinished, 0);
	ck_assert_uint_eq(sd.lane[AREA].depth.reading, 0);
}
END_TEST

/* One slot of five is damaged: the others are good. */
START_TEST(test_one_is_bad)
{
	int status[SLOTS];
	u8 x = 0x55;
	u32 i;

	for (i = 0; i < 5; i++)
		send(SWAPD_WRITE, i);
	io_take(&sd);
	transfer(expect(0, 5));
	ck_assert_uint_eq(take_statuses(status), 5);
	ck_assert_int_eq(pwrite(sd.area[AREA].fd, &x, 1, SWAPD_RESERVED_BYTES +
				3 * LEN + 5000), 1);
	for (i = 0; i < 5; i++)
		send(SWAPD_READ, i);
	io_take(&sd);
	transfer(expect(0, 5));
	ck_assert_uint_eq(take_statuses(status), 5);
	for (i = 0; i < 5; i++)
		ck_assert_int_eq(status[i], i == 3 ? -EBADMSG : 0);
	ck_assert_uint_eq(count(SWAPD_CNT_split), 0);
}
END_TEST

/* ---- a disk that lies ---- */

/* The outcome of five requests of one transfer, if all have the fault. */
static const struct {
	const char	*kind;
	u32		op;
	u32		split;
	u32		failed;		/* reported at once */
	u32		bad;		/* found by a read */
} lies[] = {
	{ "eio",	SWAPD_WRITE,	1, 5, 5 },
	{ "enospc",	SWAPD_WRITE,	1, 5, 5 },
	{ "cut",	SWAPD_WRITE,	1, 5, 5 },
	{ "torn",	SWAPD_WRITE,	0, 0, 5 },
	{ "lost",	SWAPD_WRITE,	0, 0, 5 },
	{ "twice",	SWAPD_WRITE,	0, 0, 0 },
	{ "rot_header",	SWAPD_WRITE,	0, 0, 5 },
	{ "rot_payload", SWAPD_WRITE,	0, 0, 5 },
	{ "eio",	SWAPD_READ,	1, 5, 0 },
	{ "cut",	SWAPD_READ,	1, 5, 0 },
	{ "hollow",	SWAPD_READ,	0, 5, 0 },
	{ "flip_header", SWAPD_READ,	0, 5, 0 },
	{ "flip_payload", SWAPD_READ,	0, 5, 0 },
	{ "astray_read", SWAPD_READ,	0, 5, 0 },
};

/* Send five requests, with the disk as it is now.  Return: number of failures. */
static u32 five(u32 op, bool one)
{
	int status[SLOTS];
	struct sd_io *io;
	u32 i, failed = 0;

	if (op == SWAPD_WRITE)
		memset(sd.pool, 0x5a, 5 * LEN);
	for (i = 0; i < 5; i++)
		send(op, i);
	io_take(&sd);
	io = io_next(&sd, false);
	if (one)
		ck_assert_uint_eq(io->go.nr, 5);
	do {
		transfer(io);
	} while ((io = io_next(&sd, false)));
	ck_assert_uint_eq(take_statuses(status), 5);
	for (i = 0; i < 5; i++)
		failed += status[i] != 0;
	return failed;
}

START_TEST(test_lies)
{
	const u32 op = lies[_i].op;
	char spec[64];

	/* Write the slots; a test of writes begins with zeros again. */
	ck_assert_uint_eq(five(SWAPD_WRITE, true), 0);
	if (op == SWAPD_WRITE)
		ck_assert_int_eq(ftruncate(sd.area[AREA].fd, 0), 0);
	ck_assert_int_eq(ftruncate(sd.area[AREA].fd, (off_t)
				   (SWAPD_RESERVED_BYTES + SLOTS * LEN)), 0);
	/* With this seed not every wrong place is outside of the area. */
	snprintf(spec, sizeof(spec), "seed=4,rate=1000,kinds=%s", lies[_i].kind);
	ck_assert_int_eq(shim_init(spec, text, sizeof(text)), 0);
	ck_assert_uint_eq(five(op, true), lies[_i].failed);
	ck_assert_uint_eq(count(SWAPD_CNT_split), lies[_i].split);
	ck_assert_int_eq(shim_init(NULL, text, sizeof(text)), 0);
	ck_assert_uint_eq(five(SWAPD_READ, true), lies[_i].bad);
}
END_TEST

/* A write to a wrong place goes there as a whole, inside the area. */
START_TEST(test_astray)
{
	struct sd_io *io;
	u32 i, n, gone = 0;

	ck_assert_int_eq(shim_init("seed=1,rate=1000,kinds=astray_write", text,
				   sizeof(text)), 0);
	for (n = 0; n < 10; n++) {
		tags = 0;
		for (i = 0; i < 5; i++)
			send(SWAPD_WRITE, i);
		io_take(&sd);
		io = io_next(&sd, false);
		ck_assert_uint_eq(io->go.nr, 5);
		ck_assert_uint_eq(io->go.len, 5 * LEN);
		ck_assert_uint_ge(io->go.area_off, SWAPD_RESERVED_BYTES);
		ck_assert_uint_le(io->go.area_off + io->go.len,
				  SWAPD_RESERVED_BYTES + SLOTS * LEN);
		gone += io->go.area_off != SWAPD_RESERVED_BYTES;
		transfer(io);
		for (i = 0; i < 5; i++)
			expect_done(i, 0);
	}
	ck_assert_uint_gt(gone, 5);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("swapd-merge");
	TCase *tc = tcase_create("transfers");
	SRunner *sr;
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, test_run, 0, ARRAY_SIZE(orders));
	tcase_add_test(tc, test_between);
	tcase_add_loop_test(tc, test_apart, 0, 8);
	tcase_add_loop_test(tc, test_seam, 0, 2);
	tcase_add_test(tc, test_bound);
	tcase_add_test(tc, test_turns);
	tcase_add_loop_test(tc, test_split, 0, ARRAY_SIZE(ends));
	tcase_add_loop_test(tc, test_refused, 0, 2);
	tcase_add_test(tc, test_no_area);
	tcase_add_test(tc, test_depth);
	tcase_add_test(tc, test_read_depth);
	tcase_add_test(tc, test_one_is_bad);
	tcase_add_loop_test(tc, test_lies, 0, ARRAY_SIZE(lies));
	tcase_add_test(tc, test_astray);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
