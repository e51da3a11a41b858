// SPDX-License-Identifier: Apache-2.0
/*
 * fuzz_swapio.c - writes of a compromised kvmm, to the real swapd
 *
 * An input is a list of events around the shared rings: plausible requests with
 * some bytes changed, any index, transfers that the kernel ends in any way and
 * order, areas that come and go.  io.c, pick.c, depth.c and slot.c are swapd's;
 * the disk is the input.
 *
 * Laws: no transfer leaves the host pool or its area; a request is over once;
 * when kvmm breaks the contract swapd may only end.  The host pool ends where its
 * heap block does, so the sanitizers see accesses past it.
 */
#include "swapd/crc32c.h"
#include "swapd/daemon.h"
#include "swapd/slot.h"
#include "tests/fuzz/process.h"

#define ENTRIES		16u
#define POOL_BYTES	(96u << 12)
#define AREA_BYTES	(128ull << 12)
#define AREAS		3u
#define EVENTS		96u
#define INFLIGHT	16u

static struct swapd s;
static struct sd_io *inflight[INFLIGHT];
static u32 nr_inflight;
static u64 serial;

static void make(void)
{
	s.entries = ENTRIES;
	s.pool_bytes = POOL_BYTES;
	s.pool = aligned_alloc(4096, POOL_BYTES);
	s.ctl = aligned_alloc(4096, swapd_shm_bytes(ENTRIES));
	FUZZ_LAW(s.pool && s.ctl, "no memory");
	FUZZ_LAW(!io_init(&s), "no memory");
	crc32c_init(false);
	memset(s.pool, 1, POOL_BYTES);
	s.reqs = swapd_shm_reqs(s.ctl);
	s.cpls = swapd_shm_cpls(s.ctl, ENTRIES);
	s.carriers = swapd_shm_carriers(s.ctl, ENTRIES);
	s.opt.depth = 8;
	s.opt.depth_min = 1;
	s.opt.write_ms = 20;
	s.opt.read_mib = 1;
	s.opt.merge_kib = 64;
	s.opt.slow_ms = 1000;
	s.opt.completion_fd = UINT32_MAX;
}

/* The state after START, with all areas. */
static void begin(void)
{
	u32 i;

	if (!s.entries)
		make();
	memset(s.io, 0, ENTRIES * sizeof(*s.io));
	memset(s.ctl, 0, swapd_shm_bytes(ENTRIES));
	memset(s.lane, 0, sizeof(s.lane));
	memset(s.area, 0, sizeof(s.area));
	swapd_shm_init(s.ctl, ENTRIES);
	s.ready = s.turn = s.inflight = s.unfinished = s.held = 0;
	pthread_mutex_init(&s.lock, NULL);
	pthread_mutex_init(&s.cpl_lock, NULL);
	pick_init(&s);
	io_rings_begin(&s);
	for (i = 0; i < AREAS; i++) {
		s.area[i].state = SD_AREA_LIVE;
		s.area[i].fd = -1;
		s.area[i].usable_off = SWAPD_RESERVED_BYTES;
		s.area[i].usable_bytes = AREA_BYTES;
		pick_area(&s, i);
	}
	nr_inflight = 0;
	serial = 0;
}

/* ---- kvmm ---- */

static void ev_request(struct fuzz *f)
{
	u8 slot = fuzz_u8(f), how = (u8)(serial++, fuzz_u8(f));
	struct swapd_req r = {
		.id = SWAPD_ID(serial, how & 1 ? fuzz_u8(f) :
			       serial % ENTRIES),
		.op = how & 2 ? SWAPD_WRITE : SWAPD_READ,
		.area = (how >> 2) % 4,
		.host_off = (u64)(slot % 49) * 8192,
		.area_off = SWAPD_RESERVED_BYTES + (u64)(slot % 64) * 8192,
		.len = 8192, .payload_len = 4000 + (how & 15),
		.domain = how & 1, .hash = { slot, how }, .generation = how,
	};

	fuzz_scar(f, &r, sizeof(r));
	s.reqs[s.ctl->req_tail % ENTRIES] = r;
	s.ctl->req_tail++;
}

static void ev_index(struct fuzz *f)
{
	u8 b = fuzz_u8(f);

	switch (b & 3) {
	case 0:
		s.ctl->req_tail += fuzz_number(f);
		break;
	case 1:
		s.ctl->cpl_head += fuzz_number(f);
		break;
	case 2:
		s.ctl->kvmm_sleeps = b;
		break;
	default:
		fuzz_scar(f, s.ctl, swapd_shm_bytes(ENTRIES));
	}
}

/* ---- the disk ---- */

static void judge(const struct sd_io *lead)
{
	const struct sd_transfer *t = &lead->go;
	const struct sd_area *a = &s.area[lead->req.area];

	FUZZ_LAW(lead->req.area < AREAS && t->nr && t->nr <= ENTRIES,
		 "area %u, %u requests", lead->req.area, t->nr);
	FUZZ_LAW(t->host_off <= POOL_BYTES &&
		 t->bytes <= POOL_BYTES - t->host_off, "host %llu, %u bytes",
		 (unsigned long long)t->host_off, t->bytes);
	FUZZ_LAW(t->area_off >= a->usable_off && t->bytes <= a->usable_bytes &&
		 t->area_off - a->usable_off <= a->usable_bytes - t->bytes,
		 "area %llu, %u bytes", (unsigned long long)t->area_off,
		 t->bytes);
}

static void kernel_takes(void)
{
	struct sd_io *lead;

	while (nr_inflight < INFLIGHT && (lead = io_next(&s, false))) {
		judge(lead);
		transfer_carry(&s, lead);
		inflight[nr_inflight++] = lead;
	}
}

static void ev_ends(struct fuzz *f)
{
	u8 b = fuzz_u8(f);
	struct sd_io *lead;
	s64 res;
	u32 n;

	if (!nr_inflight)
		return;
	n = b % nr_inflight;
	lead = inflight[n];
	inflight[n] = inflight[--nr_inflight];
	res = b < 160 ? (s64)lead->go.len : b < 200 ? -EIO :
	      b < 220 ? -ENOSPC : (s64)(fuzz_u16(f) % (lead->go.len + 1));
	/* A read brings any bytes, now and then a right slot. */
	if (lead->req.op == SWAPD_READ && b & 1)
		slot_seal(s.pool + lead->req.host_off, &lead->req,
			  s.area[lead->req.area].uuid);
	io_landed(&s, lead);
	transfer_end(&s, lead, res);
}

static void play(struct fuzz *f)
{
	u8 b = fuzz_u8(f);

	if (b < 110)
		ev_request(f);
	else if (b < 190)
		ev_ends(f);
	else if (b < 200)
		ev_index(f);
	else if (b < 206)
		s.area[b % AREAS].state = SD_AREA_DYING;
	else if (b < 236)
		/* kvmm has consumed all answers. */
		s.ctl->cpl_head = s.ctl->cpl_tail;
	else
		io_look_slow(&s);
	(void)io_take(&s);
	kernel_takes();
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	struct fuzz f = { .p = data, .left = min(size, (size_t)FUZZ_MAX) };
	struct fuzz none = { .p = data };
	jmp_buf broken;
	u32 i;

	begin();
	fuzz_exit = &broken;
	if (!setjmp(broken)) {
		for (i = 0; f.left && i < EVENTS; i++)
			play(&f);
		for (i = 0; nr_inflight && i < 1000; i++) {
			s.ctl->cpl_head = s.ctl->cpl_tail;
			ev_ends(&none);
			kernel_takes();
		}
		FUZZ_LAW(!s.unfinished && !s.inflight, "%u unfinished, %u in flight",
			 s.unfinished, s.inflight);
	}
	fuzz_exit = NULL;
	return 0;
}
