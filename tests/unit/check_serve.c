// SPDX-License-Identifier: Apache-2.0
/*
 * check_serve.c - an entry that changes while it is read
 *
 * serve.c is compiled into this file with every atomic load announced first: it
 * reads memory that a client can write in no other way.  For every verb, every
 * byte of its entry and of its arguments is changed in two ways before each
 * load of a turn.  The outcome must be that of the unchanged entry if the
 * byte's word was loaded before, and that of the changed one if not: the daemon
 * uses only the words that it loaded, once.
 */
#include <kvmm/types.h>

static void before_load(const volatile void *p);

#define __atomic_load_n(p, o)	(before_load(p), __atomic_load_n((p), (o)))
#include "kvmm/ipc/mm/serve.c"
#undef __atomic_load_n

#include <check.h>
#include <stdlib.h>

#define SQES		16u
#define SQE_OFF		256u
#define ARG_OFF		(SQE_OFF + SQES * (u32)sizeof(struct kvmm_sqe))
#define ARGS		512u
#define C_BYTES		(ARG_OFF + ARGS)
#define RESULTS		(2 * CORE_MAX_BATCH * RESULT_MAX)
#define EXTENTS		8u
#define SEQS		8u
#define LOADS		96u
#define NOW		1000000ull

/* Everything that a turn can change, but for the core. */
struct world {
	struct mm_client	client;
	struct kvmm_daemon_ctl	ctl;
	struct kvmm_cqe		cqes[2 * SQES];
	struct kvmm_seq_status	seqs[SEQS];
	struct kvmm_extent_status extents[EXTENTS];
	struct kvmm_table_page	tables[16];
	struct kvmm_event	events[16];
	u64			res_end[2 * SQES];
	u64			number;
	u64			seq;		/* READY, in no step */
	u64			stepping;	/* in the open step 1 */
	u32			creating[EXTENTS];
	u32			pending[EXTENTS];
};

static struct mm *m;
static struct setup su;
static struct world w, w_fresh;
static void *core_fresh, *arena_fresh;
static u64 c_mem[C_BYTES / 8], args_mem[ARGS / 8];
static char results[RESULTS];

/* ---- loads ---- */

static bool watching;
static u32 nr_loads, loaded[LOADS];	/* offsets in C, in order */
static u32 change_at, change_off;	/* number of the load, offset in C */
static u8 change_by;

static void before_load(const volatile void *p)
{
	u64 off = (u64)((const volatile char *)p - (const char *)c_mem);

	if (!watching || off >= C_BYTES)
		return;
	if (change_by && nr_loads == change_at)
		((u8 *)c_mem)[change_off] ^= change_by;
	if (nr_loads < LOADS)
		loaded[nr_loads] = (u32)off;
	nr_loads++;
}

/* ---- a core with a client ---- */

static void op_create(void *arg, u32 extent, u32 generation)
{
	w.creating[extent] = generation;
}

static void op_release(void *arg, u32 extent)
{
}

static void op_send(void *arg, u32 client, u32 extent, u32 generation)
{
	w.pending[extent] = generation;
}

static void op_wake(void *arg, u32 client)
{
}

static void op_kill(void *arg, u32 client, int reason)
{
}

static const struct core_ops ops = {
	.extent_create = op_create, .extent_release = op_release,
	.extent_send = op_send, .wake = op_wake, .kill = op_kill,
};

static int ask(u16 op, u32 nr, u64 step, const void *args, u32 len, void *res)
{
	const struct kvmm_sqe sqe = {
		.op = op, .nr = nr, .step = step, .number = ++w.number,
		.arg_len = len,
	};
	struct core_req req;

	ck_assert_int_eq(core_req_check(su.core, 0, &sqe, args, len, &req), 0);
	return core_req_execute(su.core, NOW, 0, &req, res);
}

static void settle(void)
{
	struct kvmm_seq_res res;
	u32 e;

	for (e = 0; e < EXTENTS; e++) {
		struct kvmm_ack_arg a = {
			.extent = e, .what = KVMM_ACK_MAP,
		};

		if (w.creating[e])
			core_extent_created(su.core, NOW, e, 0);
		w.creating[e] = 0;
		a.generation = w.pending[e];
		if (a.generation)
			(void)ask(KVMM_OP_EXTENT_ACK, 1, 0, &a, sizeof(a),
				  &res);
		w.pending[e] = 0;
	}
}

static u64 seq_ready(u32 salt)
{
	struct kvmm_open_arg open = { .prompt_len = 20, .max_tokens = 20 };
	struct {
		struct kvmm_match_arg	a;
		u32			ids[20];
	} match = { .a = { .nr_ids = 20, .flags = KVMM_MATCH_LAST } };
	struct kvmm_open_res got;
	struct kvmm_seq_res res;
	u32 i;

	ck_assert_int_eq(ask(KVMM_OP_SEQ_OPEN, 1, 0, &open, sizeof(open),
			     &got), 0);
	for (i = 0; i < 20; i++)
		match.ids[i] = salt + i;
	match.a.seq = got.seq;
	ck_assert_int_eq(ask(KVMM_OP_SEQ_MATCH, 1, 0, &match, sizeof(match), &res), 0);
	settle();
	settle();
	return got.seq;
}

static void make_core(void)
{
	su.cfg = (struct core_config){
		.pool_bytes = EXTENTS * 4096, .extent_size = 4096,
		.min_token_bytes = 64, .max_tenants = 1, .max_domains = 1,
		.max_clients = 1, .max_seqs = SEQS, .nr_tables = 16,
		.nr_idpages = 8, .max_steps = 2,
		.step_deadline_ns = NSEC_PER_SEC,
		.quiet_deadline_ns = NSEC_PER_SEC, .starve_ns = NSEC_PER_SEC,
	};
	su.arena_bytes = core_arena_size(&su.cfg);
	su.core = calloc(1, core_struct_size());
	su.arena = calloc(1, su.arena_bytes);
	core_fresh = malloc(core_struct_size());
	arena_fresh = malloc(su.arena_bytes);
	ck_assert(su.core && su.arena && core_fresh && arena_fresh);
	ck_assert_int_eq(core_init(su.core, su.arena,
				   su.arena_bytes, &su.cfg,
				   &ops, m), 0);
}

static void make_client(void)
{
	struct kvmm_attach_req req = {
		.domain = "a", .block_tokens = 16, .nr_shards = 1,
		.nr_groups = 1, .max_steps = 2, .weight = 100,
		.group[0] = { .layers = 1, .kv_heads = 1, .k_bytes = 32,
			      .v_bytes = 32 },
		.limits[0] = { .max = KVMM_LIMIT_MAX },
	};
	const struct core_bind bind = {
		.ctl = &w.ctl, .seqs = w.seqs, .extents = w.extents,
		.tables = w.tables, .events = w.events, .nr_events = 16,
	};
	u8 secret[CORE_SECRET_LEN] = { 0 };
	struct client_ring *r = &w.client.ring;
	struct core_attach_info info;

	ck_assert_int_eq(core_client_attach(su.core, NOW, 1, secret, &req,
					    &info), 0);
	core_client_bind(su.core, 0, &bind);
	w.client.bell = -1;
	r->ctl = (struct kvmm_client_ctl *)c_mem;
	r->dctl = &w.ctl;
	r->sqes = (const struct kvmm_sqe *)((char *)c_mem + SQE_OFF);
	r->args = (const char *)c_mem + ARG_OFF;
	r->arg_bytes = ARGS;
	r->cqes = w.cqes;
	r->results = results;
	r->result_bytes = RESULTS;
	r->res_end = w.res_end;
	r->guards[0] = r->guards[1] = -1;
	ring_cons_init(&r->sq, SQES, 0, &w.ctl.sq_head, &r->ctl->sq_tail);
	ring_prod_init(&r->cq, 2 * SQES, 0, &w.ctl.cq_tail, &r->ctl->cq_head);
}

static void setup(void)
{
	struct kvmm_begin_arg begin = { .max_tokens = 20 };
	struct kvmm_begin_res res;

	m = calloc(1, sizeof(*m));
	ck_assert_ptr_nonnull(m);
	memset(&su, 0, sizeof(su));
	m->setup = &su;
	memset(&w, 0, sizeof(w));
	m->epoll = -1;
	m->args = args_mem;
	make_core();
	make_client();
	w.seq = seq_ready(0);
	begin.seq = w.stepping = seq_ready(500);
	ck_assert_int_eq(ask(KVMM_OP_STEP_BEGIN, 1, 1, &begin, sizeof(begin),
			     &res), 0);
	ck_assert_int_eq(res.status, 0);
	memcpy(core_fresh, su.core, core_struct_size());
	memcpy(arena_fresh, su.arena, su.arena_bytes);
	w_fresh = w;
}

static void teardown(void)
{
	free(su.core);
	free(su.arena);
	free(core_fresh);
	free(arena_fresh);
	free(m);
}

/* ---- one turn ---- */

/* A valid request of each verb; its arguments in @args. */
static struct kvmm_sqe request(u16 op, u32 *args)
{
	struct kvmm_sqe q = { .op = op, .nr = 1, .number = w.number + 1,
			      .user_data = 77, .arg_off = 16, };

	memset(args, 0, ARGS / 2);
	memcpy(args, op == KVMM_OP_STEP_END ? &w.stepping : &w.seq, 8);
	q.arg_len = 16;
	switch (op) {
	case KVMM_OP_NOP:
		q.nr = q.arg_len = 0;
		break;
	case KVMM_OP_DETACH:
		q.nr = q.arg_len = 0;
		break;
	case KVMM_OP_SEQ_OPEN:
		q.arg_len = sizeof(struct kvmm_open_arg);
		memset(args, 0, 8);
		args[0] = 30;
		args[1] = 5;
		break;
	case KVMM_OP_SEQ_MATCH:
		q.arg_len = sizeof(struct kvmm_match_arg) + 8;
		args[3] = 2;
		break;
	case KVMM_OP_SEQ_LOOKUP:
		q.arg_len = sizeof(struct kvmm_lookup_arg) + 8;
		memset(args, 0, 8);
		args[7] = 2;
		args[8] = KVMM_LOOKUP_LAST;
		break;
	case KVMM_OP_SEQ_LEASE:
		q.arg_len = sizeof(struct kvmm_lease_arg);
		args[6] = 16;
		args[7] = 1000;
		args[8] = 0;
		break;
	case KVMM_OP_STEP_BEGIN:
		q.arg_len = sizeof(struct kvmm_begin_arg);
		q.step = 2;
		args[4] = 3;
		break;
	case KVMM_OP_STEP_END:
		q.arg_len = sizeof(struct kvmm_end_arg) + 12;
		q.step = 1;
		q.param[0] = 500;
		args[2] = args[3] = 3;
		break;
	case KVMM_OP_SEQ_FORK:
		args[2] = 2;
		break;
	case KVMM_OP_SEQ_CLOSE:
		q.arg_len = 8;
		break;
	case KVMM_OP_SEQ_ADVISE:
		q.arg_len = sizeof(struct kvmm_advise_arg);
		args[2] = KVMM_ADV_COLD;
		break;
	case KVMM_OP_SEQ_SETPRIO:
		args[2] = 5;
		break;
	case KVMM_OP_EXTENT_ACK:
		memset(args, 0, 16);
		args[2] = KVMM_ACK_MAP;
		args[1] = 1;
		break;
	}
	return q;
}

static u64 mix(u64 h, const void *p, size_t n)
{
	const u8 *b = p;

	while (n--)
		h = (h ^ *b++) * 0x100000001b3ull;
	return h;
}

/*
 * The outcome of a request of @op if byte @off of C changes by @by before load
 * @at: a hash of the answer, its results, and the client's state.
 */
static u64 outcome(u16 op, u32 off, u8 by, u32 at)
{
	const struct kvmm_cqe *q = &w.cqes[0];
	u32 args[ARGS / 4];
	struct kvmm_sqe sqe;
	u64 h = 14695981039346656037ull;

	memcpy(su.core, core_fresh, core_struct_size());
	memcpy(su.arena, arena_fresh, su.arena_bytes);
	w = w_fresh;
	m->active = 1;
	memset(c_mem, 0, sizeof(c_mem));
	memset(args_mem, 0xee, sizeof(args_mem));
	memset(results, 0xdd, 4096);
	sqe = request(op, args);
	memcpy((char *)c_mem + SQE_OFF, &sqe, sizeof(sqe));
	memcpy((char *)c_mem + ARG_OFF + 16, args, ARGS / 2);
	w.client.ring.ctl->sq_tail = 1;
	change_off = off;
	change_by = by;
	change_at = at;
	nr_loads = 0;
	watching = true;
	(void)serve_client(m, &w.client, NOW);
	watching = false;
	h = mix(h, &w.ctl.state, sizeof(w.ctl.state));
	h = mix(h, &w.ctl.cq_tail, sizeof(w.ctl.cq_tail));
	h = mix(h, &w.ctl.committed, sizeof(w.ctl.committed));
	h = mix(h, q, sizeof(*q));
	return mix(h, results, 2048);
}

/* Number of the load that reads the word of @off; LOADS: none does. */
static u32 load_of(u32 off)
{
	u32 i;

	for (i = 0; i < min(nr_loads, LOADS); i++)
		if (loaded[i] == (off & ~7u))
			return i;
	return LOADS;
}

static void try_byte(u16 op, u32 off, u8 by, u32 loads, u32 mine, u64 same)
{
	u64 other = outcome(op, off, by, 0), got;
	u32 at;

	for (at = 1; at < loads; at++) {
		got = outcome(op, off, by, at);
		ck_assert_msg(got == (at <= mine ? other : same),
			      "verb %u: byte %u changed by %02x before load %u, its word is load %u: neither the old entry nor the new",
			      op, off, by, at, mine);
	}
}

START_TEST(test_changed_while_read)
{
	u64 same = outcome((u16)_i, 0, 0, 0);
	u32 loads = nr_loads, off, where[C_BYTES / 8], words;
	const u32 end = ARG_OFF + 16 + ((const struct kvmm_sqe *)
			((char *)c_mem + SQE_OFF))->arg_len;

	/* The two indices, the entry, and its arguments: each is loaded once. */
	words = 2 + 8 + DIV_ROUND_UP(end - ARG_OFF - 16, 8);
	ck_assert_uint_eq(loads, words);
	ck_assert_uint_eq(w.cqes[0].number, w.number + 1);
	ck_assert_int_eq(w.cqes[0].status, _i == KVMM_OP_DETACH ? -EBUSY : 0);
	for (off = SQE_OFF; off < end; off += 8)
		where[off / 8] = load_of(off);
	for (off = SQE_OFF; off < end; off++) {
		if (off >= SQE_OFF + sizeof(struct kvmm_sqe) &&
		    off < ARG_OFF + 16)
			continue;
		try_byte((u16)_i, off, 0x01, loads, where[off / 8], same);
		try_byte((u16)_i, off, 0x80, loads, where[off / 8], same);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("serve");
	TCase *tc = tcase_create("double fetch");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, test_changed_while_read, 0, KVMM_NR_OPS);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
