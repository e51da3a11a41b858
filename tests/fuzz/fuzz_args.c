// SPDX-License-Identifier: Apache-2.0
/*
 * fuzz_args.c - segment C, and a client that writes it while it is read
 *
 * The real serve.c, from the rings through the core and back, on segments of
 * ordinary memory.  serve.c reads a client's memory only by atomic loads.  It is
 * compiled into this file with a hook before each of them: an input says before
 * which load which bytes of C change (entries, arguments and indices alike).  So
 * a second thread of the client is as fast as it likes, and every input is the
 * same each time.
 *
 * Laws: no word of an entry or of its arguments is loaded twice for one
 * request, no index twice in one turn; as many answers as requests; results lie
 * inside their area and not over others that are not consumed; at the end all
 * memory comes back.  Other loads are left to the sanitizers: C and the copy of
 * the arguments end where their heap blocks do.
 */
#include <kvmm/clock.h>
#include <kvmm/types.h>

static void before_load(const volatile void *p);

#define __atomic_load_n(p, o)	(before_load(p), __atomic_load_n((p), (o)))
#include "kvmm/ipc/mm/serve.c"
#undef __atomic_load_n

#include "tests/fuzz/inproc.h"
#include "tests/fuzz/shell.h"

#define CLIENTS		2u
#define SQES		16u
#define CQES		(2 * SQES)
#define ARGS		SHELL_ARGS
#define SQE_OFF		256u
#define ARG_OFF		(SQE_OFF + SQES * (u32)sizeof(struct kvmm_sqe))
#define C_BYTES		(ARG_OFF + ARGS)
/* A FORK reserves all of it, so results collide soon. */
#define RESULTS		(16u << 10)
#define TURNS		64u
#define CHANGES		8u
#define OPS		64u

/* Segment D, and the state of the client that reads it. */
struct other {
	struct kvmm_daemon_ctl	dctl;
	struct kvmm_cqe		cqes[CQES];
	struct kvmm_seq_status	seqs[INPROC_SEQS];
	struct kvmm_extent_status extents[INPROC_EXTENTS];
	struct kvmm_table_page	tables[16];
	struct kvmm_event	events[16];
	u64			number;
	u64			step;
	u64			handles[SHELL_HANDLES];
	u32			nr_handles;
	u32			tail;
	u32			taken;		/* completions looked at */
	u32			consumed;	/* and given back */
	u16			op[OPS];	/* by number */
	struct {
		u32		off;
		u32		bytes;
	} result[CQES];
};

static struct mm_client clients[CLIENTS];
static struct other others[CLIENTS];
static char *c_of[CLIENTS], *results_of[CLIENTS];
static u32 want_of[CLIENTS][INPROC_EXTENTS];
static u64 dirty_of[CLIENTS][1];

/* ---- loads ---- */

/* Segment C of the client that is served, or NULL. */
static char *watched;
static u32 loads;
static u32 request;		/* number of the present one in this input */
static u32 slot;		/* slot of its entry */
static u32 seen[C_BYTES / 8];	/* number of the request that loaded the word last */
static u32 index_loads[2];

static struct {
	u32	load;
	u32	at;
	u8	bytes;
	u64	value;
} changes[CHANGES];
static u32 nr_changes, next_change;

static void judge_load(u32 off)
{
	u32 head;

	if (off < SQE_OFF) {
		head = off == offsetof(struct kvmm_client_ctl, cq_head);
		if (head || off == offsetof(struct kvmm_client_ctl, sq_tail))
			FUZZ_LAW(!index_loads[head]++, "%s is loaded twice",
				 head ? "cq_head" : "sq_tail");
		return;
	}
	/* Entries of one turn are in order: another slot is another request. */
	if (off < ARG_OFF && (off - SQE_OFF) / sizeof(struct kvmm_sqe) != slot) {
		slot = (off - SQE_OFF) / (u32)sizeof(struct kvmm_sqe);
		request++;
	}
	FUZZ_LAW(seen[off / 8] != request, "word %u of C is loaded twice", off);
	seen[off / 8] = request;
}

static void before_load(const volatile void *p)
{
	u64 off = (u64)((const volatile char *)p - watched);

	if (!watched || off >= C_BYTES)
		return;
	judge_load((u32)off);
	loads++;
	while (next_change < nr_changes && changes[next_change].load <= loads) {
		memcpy(watched + changes[next_change].at,
		       &changes[next_change].value,
		       changes[next_change].bytes);
		next_change++;
	}
}

/* Read the numbers of the loads before which C changes; they rise. */
static void changes_read(struct fuzz *f)
{
	u32 load = 0, i;

	nr_changes = fuzz_u8(f);
	nr_changes = nr_changes < 96 ? 0 : nr_changes % (CHANGES + 1);
	next_change = 0;
	for (i = 0; i < nr_changes; i++) {
		u8 how = fuzz_u8(f);

		load += how >> 3;
		changes[i].load = load;
		changes[i].bytes = (u8)(1u << (how & 3));
		changes[i].at = (u32)fuzz_u16(f) % (C_BYTES - 8);
		/* Mostly entries. */
		if (how & 4)
			changes[i].at = SQE_OFF + changes[i].at %
					(ARG_OFF - SQE_OFF);
		changes[i].at &= ~(changes[i].bytes - 1u);
		changes[i].value = fuzz_number(f);
	}
}

/* ---- set-up ---- */

static void client_request(struct kvmm_attach_req *req, u32 i)
{
	shell_attach_req(req, i);
	/* Extents cannot be sent here: one domain is enough. */
	req->domain[0] = 'a';
}

static void client_setup(u32 i)
{
	struct mm_client *c = &clients[i];
	struct other *o = &others[i];
	struct client_ring *r = &c->ring;
	struct core_attach_info info;
	struct kvmm_attach_req req;
	u8 secret[CORE_SECRET_LEN] = { 1 };
	struct core_bind bind = {
		.ctl = &o->dctl, .seqs = o->seqs, .extents = o->extents,
		.tables = o->tables, .events = o->events,
		.nr_events = ARRAY_SIZE(o->events),
	};

	client_request(&req, i);
	FUZZ_LAW(!core_client_attach(inproc->setup.core, kv_now_ns(), 1, secret, &req,
				     &info), "%s", info.text);
	FUZZ_LAW(info.client == i, "client %u", info.client);
	c_of[i] = aligned_alloc(64, C_BYTES);
	results_of[i] = aligned_alloc(64, RESULTS);
	FUZZ_LAW(c_of[i] && results_of[i], "no memory");
	c->id = i;
	c->pidfd = c->bell = -1;
	c->want = want_of[i];
	c->dirty = dirty_of[i];
	r->ctl = (struct kvmm_client_ctl *)c_of[i];
	r->dctl = &o->dctl;
	r->sqes = (const struct kvmm_sqe *)(c_of[i] + SQE_OFF);
	r->args = c_of[i] + ARG_OFF;
	r->arg_bytes = ARGS;
	r->cqes = o->cqes;
	r->results = results_of[i];
	r->result_bytes = RESULTS;
	r->res_end = calloc(CQES, sizeof(*r->res_end));
	r->guards[0] = r->guards[1] = -1;
	ring_cons_init(&r->sq, SQES, 0, &o->dctl.sq_head, &r->ctl->sq_tail);
	ring_prod_init(&r->cq, CQES, 0, &o->dctl.cq_tail, &r->ctl->cq_head);
	mm_introduce(&inproc->mm, c);
	inproc->mm.active |= BIT_ULL(i);
	core_client_bind(inproc->setup.core, i, &bind);
}

static void setup(void)
{
	u32 i;

	/*
	 * As large as the copy of a client's arguments, and no larger.  The
	 * mapping that it replaces is not freed.
	 */
	inproc->mm.args = aligned_alloc(8, ARGS);
	FUZZ_LAW(inproc->mm.args, "no memory");
	for (i = 0; i < CLIENTS; i++)
		client_setup(i);
	inproc_turn();
	inproc_keep(clients, sizeof(clients));
	inproc_keep(others, sizeof(others));
	inproc_keep(want_of, sizeof(want_of));
	inproc_keep(dirty_of, sizeof(dirty_of));
}

static bool is_active(u32 i)
{
	return inproc->mm.active & BIT_ULL(i);
}

/* ---- acts of clients ---- */

static void put(u32 i, const struct kvmm_sqe *sqe, u32 arg_off)
{
	struct other *o = &others[i];
	u32 at = o->tail++ % SQES;

	o->op[sqe->number % OPS] = sqe->op;
	memcpy(c_of[i] + SQE_OFF + at * sizeof(*sqe), sqe, sizeof(*sqe));
}

static void ev_put(struct fuzz *f, u32 i)
{
	u64 args[ARGS / 8];
	struct other *o = &others[i];
	struct kvmm_sqe sqe;
	u32 len, at;

	fuzz_request(f, o->seqs, INPROC_SEQS, o->handles, o->nr_handles,
		     &o->step, &sqe, args);
	len = min(sqe.arg_len, ARGS);
	at = (u32)fuzz_u8(f) * 8 % (ARGS - ALIGN_UP(len, 8u) + 8);
	sqe.number = ++o->number;
	sqe.arg_off = at;
	fuzz_scar(f, &sqe, sizeof(sqe));
	memcpy(c_of[i] + ARG_OFF + at, args, min(ALIGN_UP(len, 8u),
						 ARGS - at));
	put(i, &sqe, at);
}

/* Acknowledge extents that were sent or revoked, as an honest client does. */
static void ev_ack(u32 i)
{
	struct kvmm_ack_arg *a =
		(struct kvmm_ack_arg *)(c_of[i] + ARG_OFF);
	struct other *o = &others[i];
	struct kvmm_sqe sqe = { .op = KVMM_OP_EXTENT_ACK };
	u32 e;

	for (e = 0; e < INPROC_EXTENTS; e++) {
		bool back = o->extents[e].state == KVMM_EXTENT_REVOKE;

		if (!back && !(dirty_of[i][0] & BIT_ULL(e)))
			continue;
		a[sqe.nr] = (struct kvmm_ack_arg){
			.extent = e,
			.what = back ? KVMM_ACK_REVOKE : KVMM_ACK_MAP,
			.generation = back ? o->extents[e].generation :
					     want_of[i][e],
		};
		sqe.nr++;
	}
	dirty_of[i][0] = 0;
	if (!sqe.nr)
		return;
	sqe.number = ++o->number;
	sqe.arg_len = sqe.nr * (u32)sizeof(*a);
	put(i, &sqe, 0);
}

static void ev_scribble(struct fuzz *f, u32 i)
{
	u32 at = (u32)fuzz_u16(f) % (C_BYTES - 8);

	fuzz_bytes(f, c_of[i] + at, 1 + fuzz_u8(f) % 8);
}

/* ---- a turn of the mm thread, for one client ---- */

static void take_handles(struct other *o, const struct kvmm_cqe *q,
			 const char *results)
{
	const struct kvmm_open_res *res =
		(const struct kvmm_open_res *)(results + q->result_off);
	u16 op = o->op[q->number % OPS];
	u32 n;

	if (q->status || (op != KVMM_OP_SEQ_OPEN && op != KVMM_OP_SEQ_FORK))
		return;
	for (n = 0; n < q->nr && n < SHELL_HANDLES; n++)
		if (!res[n].status)
			o->handles[o->nr_handles++ % SHELL_HANDLES] =
				res[n].seq;
}

static void judge_result(struct other *o, u32 i, u32 at, u32 off, u32 bytes)
{
	u32 n;

	FUZZ_LAW(off <= RESULTS && bytes <= RESULTS - off,
		 "results at %u, %u bytes", off, bytes);
	for (n = o->consumed; n != o->taken; n++) {
		u32 b = o->result[n % CQES].off, s = o->result[n % CQES].bytes;

		FUZZ_LAW(!bytes || !s || off + bytes <= b || b + s <= off,
			 "client %u: results at %u lie over those at %u", i,
			 off, b);
	}
	o->result[at].off = off;
	o->result[at].bytes = bytes;
}

static void take_answers(u32 i)
{
	struct other *o = &others[i];
	u32 size, at;

	for (; o->taken != o->dctl.cq_tail; o->taken++) {
		const struct kvmm_cqe *q = &o->cqes[at = o->taken % CQES];

		FUZZ_LAW(q->status <= 0 && q->nr <= CORE_MAX_BATCH,
			 "status %d, %u records", q->status, q->nr);
		/* Results have at least the size of the smallest record. */
		size = q->nr * (u32)sizeof(struct kvmm_seq_res);
		judge_result(o, i, at, q->result_off, size);
		take_handles(o, q, results_of[i]);
	}
}

static void ev_turn(struct fuzz *f, u32 i)
{
	struct mm_client *c = &clients[i];
	struct other *o = &others[i];
	u8 how = fuzz_u8(f);

	if (!is_active(i))
		return;
	/* An honest reader has consumed all results; others none, or they lie. */
	if (how & 1) {
		o->consumed = o->taken;
		c->ring.ctl->cq_head = o->consumed;
	}
	c->ring.ctl->sq_tail = o->tail;
	if (how >= 240)
		c->ring.ctl->sq_tail += fuzz_number(f);
	if (how >= 248)
		c->ring.ctl->cq_head += fuzz_number(f);
	changes_read(f);
	if (!serve_due(c))
		return;
	watched = c_of[i];
	loads = index_loads[0] = index_loads[1] = 0;
	slot = SQES;
	request++;
	(void)serve_client(&inproc->mm, c, kv_now_ns());
	watched = NULL;
	FUZZ_LAW(c->ring.sq.head == c->ring.cq.tail, "%u requests, %u answers",
		 c->ring.sq.head, c->ring.cq.tail);
	FUZZ_LAW(o->dctl.cq_tail == c->ring.cq.tail, "unpublished answers");
	/* Results that it reports as consumed may be overwritten. */
	o->consumed = c->ring.cq.head;
	take_answers(i);
}

static void play(struct fuzz *f)
{
	u8 b = fuzz_u8(f);
	u32 i = b % CLIENTS;

	b /= CLIENTS;
	if (b < 56) {
		ev_put(f, i);
	} else if (b < 96) {
		ev_turn(f, i);
	} else if (b < 108) {
		inproc_threads(b & 7 ? 0 : -EIO);
		inproc_turn();
		ev_ack(i);
	} else if (b < 116) {
		ev_scribble(f, i);
	} else if (b < 124) {
		inproc_turn();
	} else if (b == 127 && is_active(i)) {
		mm_deactivate(&inproc->mm, &clients[i]);
		core_client_dead(inproc->setup.core, kv_now_ns(), i);
	}
}

static void end_all(void)
{
	struct core_pool_view v;
	u32 i;

	for (i = 0; i < CLIENTS; i++) {
		core_client_dead(inproc->setup.core, kv_now_ns(), i);
		core_client_quiet(inproc->setup.core, kv_now_ns(), i);
		mm_forget(&inproc->mm, &clients[i]);
	}
	for (i = 0; i < 64 && inproc_threads(0); i++)
		inproc_turn();
	core_get_pool(inproc->setup.core, &v);
	FUZZ_LAW(!v.open && !v.sealed && !v.quiescing && !v.quarantine &&
		 !v.limbo && !v.committed, "memory did not come back");
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	struct fuzz f = { .p = data, .left = min(size, (size_t)FUZZ_MAX) };
	u32 i;

	inproc_clients = CLIENTS;
	inproc_domains = 1;
	inproc_begin(setup);
	for (i = 0; i < CLIENTS; i++)
		memset(c_of[i], 0, C_BYTES);
	memset(seen, 0, sizeof(seen));
	request = 0;
	for (i = 0; f.left && i < TURNS; i++)
		play(&f);
	/* Check before the end, or after it: a check costs as much as all else. */
	if (size % 4)
		inproc_check();
	end_all();
	if (size % 4 == 0)
		inproc_check();
	return 0;
}
