// SPDX-License-Identifier: Apache-2.0
/*
 * fuzz_swapd.c - writes of a compromised swapd, to the real kvmm
 *
 * kvmm has written blocks of sequences to an area, or is about to, and swapd is
 * the input.  It writes any index, any completion and any carrier into the shared
 * memory, answers on the control socket with any message, dies and is buried by
 * hold, comes again.  tiers/swap.c and kvmm/ipc/swap are the daemon's; the core
 * below orders the requests by itself.
 *
 * Laws: a request is over once, and only one that is open; the core's records of
 * the area stay consistent; when swapd is gone and all requests are drained, none
 * is left unfinished and all memory comes back.
 */
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <kvmm/clock.h>

#include "tests/fuzz/inproc.h"
#include "tests/fuzz/shell.h"

#define EVENTS	64u
#define SEQS	6u

static struct {
	struct kvmm_daemon_ctl		ctl;
	struct kvmm_seq_status		seqs[INPROC_SEQS];
	struct kvmm_extent_status	extents[INPROC_EXTENTS];
	struct kvmm_table_page		tables[16];
	struct kvmm_event		events[16];
} seg;

static struct client client;
static u32 want[INPROC_EXTENTS];
static u64 dirty[1], number, handles[SEQS];
static int swapd = -1;		/* its end of the control socket */
static u32 generation;

/* ---- an honest client ---- */

static int ask(u16 op, u32 nr, u64 step, const void *args, u32 len,
	       void *results)
{
	const struct kvmm_sqe sqe = {
		.op = op, .nr = nr, .step = step, .number = ++number,
		.arg_len = len,
	};
	struct core_req req;

	FUZZ_LAW(!core_req_check(inproc->setup.core, 0, &sqe, args, len, &req),
		 "verb %u", op);
	return core_req_execute(inproc->setup.core, kv_now_ns(), 0, &req, results);
}

static void map_all(void)
{
	struct kvmm_ack_arg a[INPROC_EXTENTS];
	u64 res[INPROC_EXTENTS];
	u32 e, nr = 0;

	memset(a, 0, sizeof(a));
	for (e = 0; e < INPROC_EXTENTS; e++) {
		bool back = seg.extents[e].state == KVMM_EXTENT_REVOKE;

		if (!back && !(dirty[0] & BIT_ULL(e)))
			continue;
		a[nr].extent = e;
		a[nr].what = back ? KVMM_ACK_REVOKE : KVMM_ACK_MAP;
		a[nr++].generation = back ? seg.extents[e].generation : want[e];
	}
	dirty[0] = 0;
	if (nr)
		(void)ask(KVMM_OP_EXTENT_ACK, nr, 0, a,
			  nr * (u32)sizeof(a[0]), res);
}

static void settle(void)
{
	u32 i;

	for (i = 0; i < 8; i++) {
		inproc_threads(0);
		inproc_turn();
		map_all();
	}
}

/* Compute a sequence of 40 tokens, three blocks. */
static void compute(u32 i)
{
	struct kvmm_open_arg open = { .prompt_len = 40, .max_tokens = 8 };
	struct {
		struct kvmm_match_arg	a;
		u32			ids[40];
	} match = { .a = { .nr_ids = 40, .flags = KVMM_MATCH_LAST } };
	struct kvmm_begin_arg begin = { .max_tokens = 40 };
	struct {
		struct kvmm_end_arg	a;
		u32			ids[40];
	} end = { .a = { .valid_len = 40, .nr_ids = 40 } };
	struct kvmm_open_res opened;
	struct kvmm_begin_res begun;
	struct kvmm_end_res ended;
	struct kvmm_seq_res res;
	u32 n;

	for (n = 0; n < 40; n++)
		match.ids[n] = end.ids[n] = 100 * i + n;
	(void)ask(KVMM_OP_SEQ_OPEN, 1, 0, &open, sizeof(open), &opened);
	handles[i] = opened.seq;
	match.a.seq = begin.seq = end.a.seq = opened.seq;
	(void)ask(KVMM_OP_SEQ_MATCH, 1, 0, &match, sizeof(match), &res);
	settle();
	(void)ask(KVMM_OP_STEP_BEGIN, 1, i + 1, &begin, sizeof(begin), &begun);
	FUZZ_LAW(!begun.status, "step %u: %d", i, begun.status);
	(void)ask(KVMM_OP_STEP_END, 1, i + 1, &end, sizeof(end), &ended);
	settle();
}

static void setup(void)
{
	struct core_bind bind = {
		.ctl = &seg.ctl, .seqs = seg.seqs, .extents = seg.extents,
		.tables = seg.tables, .events = seg.events, .nr_events = 16,
	};
	struct swap_mm *sw = &inproc->swap;
	u8 secret[CORE_SECRET_LEN] = { 0 };
	struct core_attach_info info;
	struct kvmm_attach_req req;
	u32 i;

	FUZZ_LAW(!swap_init(&inproc->swap, inproc->mm.epoll, &inproc->link.shm), "no swap");
	inproc->link.wanted = true;
	shell_attach_req(&req, 0);
	FUZZ_LAW(!core_client_attach(inproc->setup.core, kv_now_ns(), 1, secret, &req,
				     &info), "%s", info.text);
	client.mm.want = want;
	client.mm.dirty = dirty;
	inproc->clients.by_id[0] = &client;
	mm_introduce(&inproc->mm, &client.mm);
	core_client_bind(inproc->setup.core, 0, &bind);
	for (i = 0; i < SEQS; i++)
		compute(i);
	inproc_keep(&seg, sizeof(seg));
	inproc_keep(&number, sizeof(number));
	inproc_keep(dirty, sizeof(dirty));
	inproc_keep(want, sizeof(want));
	inproc_keep(sw->ctl, swapd_shm_bytes(SWAP_ENTRIES));
	inproc_keep(sw->io, SWAP_ENTRIES * sizeof(*sw->io));
}

/* ---- hold and swapd, as they should be ---- */

static void swapd_comes(void)
{
	struct hold_record r = { .kind = HOLD_SWAPD_UP, .value = 77 };
	int sock[2];

	if (swapd >= 0)
		return;
	r.generation = ++generation;
	inproc_pair(SOCK_SEQPACKET, sock);
	swapd = sock[1];
	link_told(&inproc->link, &r, &sock[0]);
}

static void swapd_goes(u64 status, bool again)
{
	const struct hold_record r = {
		.kind = HOLD_SWAPD_DOWN, .generation = generation,
		.value = status, .index = again,
	};
	int fd = -1;

	if (swapd < 0)
		return;
	link_told(&inproc->link, &r, &fd);
	close(swapd);
	swapd = -1;
}

static void hold_says(u32 kind, u32 gen, u64 id, s32 res)
{
	const struct hold_record r = {
		.op = HOLD_TELL, .kind = kind, .generation = gen,
		.value = id, .index = (u32)res,
	};
	int fd = -1;

	link_told(&inproc->link, &r, &fd);
	link_told_all(&inproc->link);
}

static void answer(const struct swapd_answer *a)
{
	if (swapd < 0)
		return;
	(void)!send(swapd, a, sizeof(*a), MSG_DONTWAIT | MSG_NOSIGNAL);
	if (inproc->link.sock.fn)
		inproc->link.sock.fn(&inproc->link, &inproc->link.sock, EPOLLIN);
	inproc_drain(swapd);
}

static void answer_right(u32 op, u32 area)
{
	const struct swapd_answer a = {
		.magic = SWAPD_MAGIC, .op = op, .area = area,
		.usable_off = SWAPD_RESERVED_BYTES,
		.usable_bytes = inproc->setup.cfg.area_bytes, .text = "fuzz",
	};

	answer(&a);
}

static void start(void)
{
	generation = 0;
	swapd_comes();
	answer_right(SWAPD_HELLO, 0);
	area_on(&inproc->link, NULL, inproc_some_fd(1), 0, 1, false, "/a");
	answer_right(SWAPD_AREA_ADD, 0);
}

/* ---- acts of a compromised swapd ---- */

static void ev_answer(struct fuzz *f)
{
	static const u32 ops[] = {
		SWAPD_HELLO, SWAPD_AREA_ADD, SWAPD_AREA_DEL, 0,
	};
	struct swapd_answer a = {
		.magic = SWAPD_MAGIC, .op = ops[fuzz_u8(f) & 3],
		.area = fuzz_u8(f) % 5, .usable_off = SWAPD_RESERVED_BYTES,
		.usable_bytes = inproc->setup.cfg.area_bytes,
	};

	if (fuzz_u8(f) & 1)
		a.status = -(s32)fuzz_u8(f);
	if (a.area == 4)
		a.area = fuzz_number(f);
	fuzz_scar(f, &a, sizeof(a));
	answer(&a);
}

/* The id of a request: open, finished, or never used. */
static u64 some_id(struct fuzz *f)
{
	const struct swap_mm *sw = &inproc->swap;
	u8 b = fuzz_u8(f);

	if (b < 200)
		return sw->io[b % 24].id;
	if (b < 240)
		return SWAPD_ID(sw->serial - b % 8, b % 40);
	return fuzz_u64(f);
}

static s32 some_status(struct fuzz *f)
{
	u8 b = fuzz_u8(f);

	return b < 160 ? 0 : b < 230 ? -(s32)b + 150 : (s32)fuzz_u32(f);
}

/* Ids of all completions of this input. */
static u64 said[4 * EVENTS + 1];
static u32 nr_said;

static bool was_said(u64 id)
{
	u32 i;

	for (i = 0; i < nr_said; i++)
		if (said[i] == id)
			return true;
	return false;
}

static void ev_complete(struct fuzz *f)
{
	struct swap_mm *sw = &inproc->swap;
	u32 n = 1 + fuzz_u8(f) % 4, tail = sw->ctl->cpl_tail;

	while (n--) {
		said[nr_said] = some_id(f);
		sw->cpls[tail++ % SWAP_ENTRIES] = (struct swapd_cpl){
			.id = said[nr_said++], .status = some_status(f),
			.resv = fuzz_u8(f),
		};
	}
	sw->ctl->cpl_tail = tail;
}

static void ev_index(struct fuzz *f)
{
	struct swapd_ctl *ctl = inproc->swap.ctl;
	u8 b = fuzz_u8(f);
	u32 v = fuzz_number(f);

	switch (b & 7) {
	case 0:
		ctl->cpl_tail += v;
		break;
	case 1:
		ctl->req_head += v;
		break;
	case 2:
		ctl->cpl_head = v;
		break;
	case 3:
		ctl->req_tail = v;
		break;
	case 4:
		ctl->swapd_sleeps = v;
		break;
	case 5:
		/* It has done all requests that it found. */
		ctl->req_head = ctl->req_tail;
		break;
	default:
		fuzz_scar(f, ctl, sizeof(*ctl));
	}
}

static void ev_carrier(struct fuzz *f)
{
	struct swap_mm *sw = &inproc->swap;
	u64 id = some_id(f);

	sw->carriers[SWAPD_ID_TAG(id) % SWAP_ENTRIES] = (struct swapd_carrier){
		.id = fuzz_u8(f) < 200 ? id : some_id(f),
		.transfer = fuzz_u8(f) < 200 ? id : some_id(f),
		.off = fuzz_u8(f) < 200 ? 0 : fuzz_number(f),
		.nr = fuzz_u8(f) < 200 ? 1 : fuzz_number(f),
	};
}

static void ev_order(struct fuzz *f)
{
	const u8 b = fuzz_u8(f);
	const struct kvmm_advise_arg a = {
		.seq = handles[b % SEQS],
		.advice = b & 64 ? KVMM_ADV_WILLNEED : KVMM_ADV_PAGEOUT,
	};
	struct kvmm_seq_res res;

	(void)ask(KVMM_OP_SEQ_ADVISE, 1, 0, &a, sizeof(a), &res);
	inproc_threads(0);
	inproc_turn();
	inproc_threads(0);
	inproc_turn();
}

static void ev_hold(struct fuzz *f)
{
	u8 b = fuzz_u8(f);
	u32 gen = generation - (b >> 5 & 1);

	if ((b & 7) == 0)
		swapd_goes(9, true);
	else if ((b & 7) == 1)
		swapd_goes(256, false);
	else if ((b & 7) < 4)
		swapd_comes();
	else if (gen != generation || swapd < 0)
		/* Only for a dead swapd, as hold does. */
		hold_says(b & 1 ? HOLD_SWAP_OLD_CQE : HOLD_SWAP_DRAINED, gen,
			  some_id(f), b & 16 ? some_status(f) :
			  (s32)fuzz_number(f));
}

/* A turn of kvmm: a request that swapd has ends only by a completion with its id. */
static void turn(void)
{
	static u64 issued[SWAP_ENTRIES];
	const struct swap_mm *sw = &inproc->swap;
	u32 i, most = min(sw->nr_open, SWAP_ENTRIES);

	for (i = 0; i < 64; i++)
		issued[i] = sw->io[i].state == SWAP_IO_ISSUED ? sw->io[i].id :
								0;
	FUZZ_LAW(most == sw->nr_open, "%u open", sw->nr_open);
	inproc_turn();
	for (i = 0; i < 64; i++)
		FUZZ_LAW(!issued[i] || was_said(issued[i]) ||
			 (sw->io[i].state == SWAP_IO_ISSUED &&
			  sw->io[i].id == issued[i]),
			 "request %llx is over", (unsigned long long)issued[i]);
}

static void play(struct fuzz *f)
{
	u8 b = fuzz_u8(f);

	if (b < 60)
		ev_order(f);
	else if (b < 120)
		ev_complete(f);
	else if (b < 140)
		ev_index(f);
	else if (b < 160)
		ev_carrier(f);
	else if (b < 190)
		ev_answer(f);
	else if (b < 230)
		ev_hold(f);
	else if (b < 240)
		(void)area_timers(&inproc->link, kv_now_ns() + b * NSEC_PER_SEC);
	turn();
	link_check(&inproc->link);
}

static void end_all(void)
{
	struct core_pool_view v;
	u32 g, i;

	swapd_goes(256, false);
	for (g = generation + 1; g--; )
		hold_says(HOLD_SWAP_DRAINED, g, 0, 0);
	inproc->swap.gone = true;
	core_client_dead(inproc->setup.core, kv_now_ns(), 0);
	core_client_quiet(inproc->setup.core, kv_now_ns(), 0);
	for (i = 0; i < 16; i++) {
		inproc_threads(0);
		inproc_turn();
	}
	inproc_check();
	FUZZ_LAW(!inproc->swap.nr_orphans && !inproc->swap.nr_issued,
		 "%u orphans, %u issued", inproc->swap.nr_orphans,
		 inproc->swap.nr_issued);
	core_get_pool(inproc->setup.core, &v);
	FUZZ_LAW(!v.open && !v.sealed && !v.quiescing && !v.limbo &&
		 !v.committed, "memory did not come back");
	area_exit_all(&inproc->link);
	watch_close(&inproc->loop, &inproc->link.sock);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	struct fuzz f = { .p = data, .left = min(size, (size_t)FUZZ_MAX) };
	u32 i, fds;

	inproc_clients = inproc_domains = 1;
	inproc_begin(setup);
	close(inproc_some_fd(0));
	fds = fuzz_count_fds(0);
	nr_said = 0;
	start();
	for (i = 0; f.left && i < EVENTS; i++)
		play(&f);
	inproc_check();
	end_all();
	FUZZ_LAW(fuzz_count_fds(0) == fds, "%u descriptors, not %u",
		 fuzz_count_fds(0), fds);
	return 0;
}
