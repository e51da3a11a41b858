// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_tier.c - lower tiers under random load, with real contents
 *
 * budget: 40 s, full 200 s
 *
 * A seed draws a pool, a host pool and areas of a few slots, three clients in
 * two domains, and sequences with common prefixes that are stepped, forked,
 * remapped, cut at either end, paged out and closed.  Copies and I/O are
 * carried out late, in any order, on real memory; with some seeds they fail.
 * Every position below a step's start is read through the shadow table and must
 * hold the content computed for exactly that prefix; every slot that is read
 * must be the one that was written.  Areas are added and removed.  Some worlds
 * live off their areas, which stall: for a while, and during all of the end, no
 * I/O is answered, and then late.  The walkers run after every event.  At the
 * end no sequence is opened any more, and every sequence must be able to run to
 * its own end: none waits for ever.  Then no memory is in use.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "kvmm/core/node/node.h"
#include "tests/level.h"

#define EXTENT		65536ull
#define BT		16	/* tokens of a block */
#define NR_SEQS		24
#define NR_CLIENTS	3
#define MAX_IDS		1024
#define QUEUE		4096

struct test_seq {
	u64	handle;
	u32	client;
	u32	domain;
	u32	ids[MAX_IDS];
	u32	nr;		/* ids that the sequence should have */
	u32	prompt;
	u32	room;		/* prompt and possible tokens after it */
	u32	family;
	u32	trimmed;	/* positions below it were given back */
	bool	live;
};

static struct core *core;
static void *arena;
static u8 *dev, *host, *area[CORE_MAX_AREAS];
static struct core_bind bind[8];
static u64 number[8], step, now, rng;
static u32 family;
static bool failing, stalling, stuck;
static struct test_seq seqs[NR_SEQS];
static u32 client[NR_CLIENTS];
static u64 totals[NR_CORE_EVENTS];

/* Orders of the core that have not been answered. */
static struct {
	u32			nr_create, nr_send, nr_copy, nr_io;
	u32			create[QUEUE];
	struct kvmm_ack_arg	send[QUEUE];
	u32			send_to[QUEUE];
	struct core_copy	copy[QUEUE];
	struct core_io		io[QUEUE];
} todo;

static u32 below(u32 n)
{
	rng = rng * 6364136223846793005ull + 1442695040888963407ull;
	return (u32)((rng >> 33) % n);
}

static u32 nr_failed(u32 cl)
{
	u32 first = cl * core_get_config(core)->max_seqs, n = 0, i;
	struct core_seq_view s;

	for (i = 0; i < core_get_config(core)->max_seqs; i++)
		n += !core_get_seq(core, first + i, &s) &&
		     s.state == KVMM_SEQ_FAILED;
	return n;
}

/* The operator's counts: every sequence once, the same in both tables. */
static void walk_counts(const char *after)
{
	u32 i, running[8] = { 0 }, waiting[8] = { 0 };
	struct core_client_view c;
	struct core_domain_view d;

	for (i = 0; i < core_get_config(core)->max_clients; i++) {
		if (core_get_client(core, i, &c))
			continue;
		ck_assert_msg(c.nr_running + c.nr_waiting + nr_failed(i) ==
			      c.nr_seqs, "after %s: client %u: %u running, %u waiting, of %u",
			      after, i, c.nr_running, c.nr_waiting, c.nr_seqs);
		running[c.domain] += c.nr_running;
		waiting[c.domain] += c.nr_waiting;
	}
	for (i = 0; i < core_get_config(core)->max_domains; i++) {
		if (core_get_domain(core, i, &d))
			continue;
		ck_assert_msg(d.nr_running == running[i] &&
			      d.nr_waiting == waiting[i],
			      "after %s: domain %u: %u running, %u waiting; its clients: %u, %u",
			      after, i, d.nr_running, d.nr_waiting, running[i],
			      waiting[i]);
	}
}

static void walk(const char *after)
{
	struct core_report r;

	if (core_check(core, &r))
		ck_abort_msg("after %s: %s", after, r.text);
	walk_counts(after);
}

/* ---- commands ---- */

static void on_create(void *arg, u32 extent, u32 generation)
{
	todo.create[todo.nr_create++] = extent;
}

static void on_release(void *arg, u32 extent)
{
}

static void on_send(void *arg, u32 cl, u32 extent, u32 generation)
{
	todo.send_to[todo.nr_send] = cl;
	todo.send[todo.nr_send++] = (struct kvmm_ack_arg){
		.extent = extent, .generation = generation,
		.what = KVMM_ACK_MAP };
}

static void on_wake(void *arg, u32 cl)
{
}

static void on_kill(void *arg, u32 cl, int reason)
{
	ck_abort_msg("client %u is to be killed: %d", cl, reason);
}

static void on_copy(void *arg, const struct core_copy *cp)
{
	todo.copy[todo.nr_copy++] = *cp;
}

static void on_io(void *arg, const struct core_io *io)
{
	todo.io[todo.nr_io++] = *io;
}

static const struct core_ops ops = {
	.extent_create	= on_create,
	.extent_release	= on_release,
	.extent_send	= on_send,
	.wake		= on_wake,
	.kill		= on_kill,
	.copy		= on_copy,
	.io		= on_io,
};

static int request(u32 cl, u16 op, u64 nr_step, u32 nr, const void *args,
		   u32 len, void *results)
{
	static u64 in[QUEUE], out[QUEUE];
	struct kvmm_sqe sqe = { .op = op, .nr = nr, .number = ++number[cl],
				.step = nr_step, .arg_len = len };
	struct core_req req;
	int err;

	memcpy(in, args, len);
	if (op == KVMM_OP_STEP_END) {
		sqe.param[0] = 1000000;
		sqe.param[1] = 100;
	}
	err = core_req_check(core, cl, &sqe, in, len, &req);
	if (err)
		return err;
	err = core_req_execute(core, now += 1000, cl, &req, out);
	if (results)
		memcpy(results, out, (size_t)req.nr_results * req.result_size);
	walk("a request");
	return err;
}

/* ---- answers, late and in any order ---- */

static void answer_copy(u32 i)
{
	struct core_copy cp = todo.copy[i];
	bool bad = failing && !below(40);

	todo.copy[i] = todo.copy[--todo.nr_copy];
	if (!bad && cp.within)
		memcpy(dev + cp.dev_to, dev + cp.dev_off, cp.bytes);
	else if (!bad && cp.to_host)
		memcpy(host + cp.host_off, dev + cp.dev_off, cp.bytes);
	else if (!bad)
		memcpy(dev + cp.dev_off, host + cp.host_off, cp.bytes);
	core_copy_done(core, now += 3000, cp.id, bad ? -EIO : 0);
	walk("a copy");
}

/* The header names the slot; a read must find the slot as it was written. */
static void transfer(const struct core_io *io)
{
	u64 want[4] = { io->domain, io->hash[0], io->generation,
			io->area_off };
	u8 *slot = host + io->host_off, *disk = area[io->area] + io->area_off;

	if (io->write) {
		memcpy(slot, want, sizeof(want));
		memcpy(disk, slot, io->len);
	} else {
		memcpy(slot, disk, io->len);
		if (memcmp(slot, want, sizeof(want)))
			ck_abort_msg("a slot is read that holds something else");
	}
}

static void answer_io(u32 i)
{
	struct core_io io = todo.io[i];
	bool bad = failing && !below(60);

	todo.io[i] = todo.io[--todo.nr_io];
	if (!bad)
		transfer(&io);
	core_io_done(core, now += 3000, io.id, bad ? -EIO : 0);
	walk("I/O");
}

static void answer_send(void)
{
	u32 i = --todo.nr_send;
	struct kvmm_seq_res res;

	request(todo.send_to[i], KVMM_OP_EXTENT_ACK, 0, 1, &todo.send[i],
		sizeof(todo.send[i]), &res);
	ck_assert_int_eq(res.status, 0);
}

static void answer_one(void)
{
	u32 kind = below(4);

	if (kind == 0 && todo.nr_create) {
		core_extent_created(core, now += 500,
				    todo.create[--todo.nr_create], 0);
		walk("an extent");
	} else if (kind == 1 && todo.nr_send) {
		answer_send();
	} else if (kind == 2 && todo.nr_copy) {
		answer_copy(below(todo.nr_copy));
	} else if (kind == 3 && todo.nr_io && !stuck) {
		answer_io(below(todo.nr_io));
	}
}

static void answer_some(u32 most)
{
	u32 n = below(most);

	while (n--)
		answer_one();
}

static void answer_all(void)
{
	u32 i;

	for (i = 0; i < 40000 && (todo.nr_create || todo.nr_copy ||
	     (todo.nr_io && !stuck) || todo.nr_send); i++)
		answer_one();
	ck_assert(!todo.nr_copy && (!todo.nr_io || stuck));
}

/* ---- contents ---- */

static struct kvmm_seq_status *status(const struct test_seq *s)
{
	return &bind[s->client].seqs[KVMM_SEQ_INDEX(s->handle)];
}

/* The content of a position: a word made of all the ids up to it. */
static u64 content(const struct test_seq *s, u32 nr)
{
	u64 h = s->domain * 77 + 1;
	u32 i;

	for (i = 0; i < nr; i++)
		h = (h ^ s->ids[i]) * 0x9e3779b97f4a7c15ull + i;
	return h;
}

static u64 *cell(const struct test_seq *s, u32 pos)
{
	const struct kvmm_table_page *tables = bind[s->client].tables;
	u32 page = status(s)->table[0], idx = pos / BT, entry;

	for (; idx >= KVMM_TABLE_ENTRIES; idx -= KVMM_TABLE_ENTRIES)
		page = tables[page].next;
	entry = tables[page].entry[idx];
	if (entry == KVMM_NO_INDEX)
		ck_abort_msg("position %u has no block", pos);
	return (u64 *)(dev + (u64)entry * CORE_UNIT + pos % BT * 8);
}

static void verify(const struct test_seq *s, u32 upto)
{
	u32 i;

	for (i = s->trimmed; i < upto; i++)
		if (*cell(s, i) != content(s, i + 1))
			ck_abort_msg("position %u of %u is not what was computed",
				     i, upto);
}

/* ---- actions of clients ---- */

static int match(struct test_seq *s)
{
	struct {
		struct kvmm_match_arg	a;
		u32			ids[MAX_IDS];
	} x = { .a = { .seq = s->handle, .nr_ids = s->nr,
		       .flags = KVMM_MATCH_LAST } };
	struct kvmm_seq_res res;
	int err;

	s->trimmed = 0;
	memcpy(x.ids, s->ids, 4 * s->nr);
	err = request(s->client, KVMM_OP_SEQ_MATCH, 0, 1, &x,
		      sizeof(x.a) + 4 * s->nr, &res);
	return err ? err : res.status;
}

static void open_seq(struct test_seq *s)
{
	struct kvmm_open_arg a = { .prompt_len = 1 + below(150),
				   .max_tokens = below(100),
				   .priority = below(3) };
	struct kvmm_open_res res;
	u32 root = below(4), i;

	memset(s, 0, sizeof(*s));
	s->client = client[below(NR_CLIENTS)];
	s->domain = s->client == client[2];
	s->nr = a.prompt_len;
	s->prompt = s->nr;
	s->room = a.prompt_len + a.max_tokens;
	s->family = ++family;
	for (i = 0; i < s->nr; i++)
		s->ids[i] = i < 64 ? root * 1000 + i : below(3);
	request(s->client, KVMM_OP_SEQ_OPEN, 0, 1, &a, sizeof(a), &res);
	if (res.status)
		return;
	s->handle = res.seq;
	s->live = true;
	match(s);
}

static void close_seq(struct test_seq *s)
{
	struct kvmm_seq_arg a = { .seq = s->handle };

	request(s->client, KVMM_OP_SEQ_CLOSE, 0, 1, &a, sizeof(a), NULL);
	s->live = false;
}

static void advise_seq(struct test_seq *s)
{
	static const u32 retention[] = { KVMM_ADV_COLD, KVMM_ADV_KEEP_UNTIL,
					 KVMM_ADV_DONTNEED };
	struct kvmm_advise_arg a = { .seq = s->handle,
				     .advice = KVMM_ADV_PAGEOUT };

	if (below(2)) {
		a.advice = retention[below(3)];
		if (a.advice == KVMM_ADV_KEEP_UNTIL)
			a.value = now + below(200) * 10000000ull;
		request(s->client, KVMM_OP_SEQ_ADVISE, 0, 1, &a, sizeof(a),
			NULL);
		return;
	}

	request(s->client, KVMM_OP_SEQ_ADVISE, 0, 1, &a, sizeof(a), NULL);
	answer_some(4);
	a.advice = KVMM_ADV_WILLNEED;
	request(s->client, KVMM_OP_SEQ_ADVISE, 0, 1, &a, sizeof(a), NULL);
}

static void fork_seq(struct test_seq *s)
{
	struct kvmm_fork_arg a = { .seq = s->handle, .nr_children = 1 };
	struct kvmm_open_res res;
	u32 i;

	for (i = 0; i < NR_SEQS && seqs[i].live; i++)
		;
	if (i == NR_SEQS)
		return;
	request(s->client, KVMM_OP_SEQ_FORK, 0, 1, &a, sizeof(a), &res);
	if (res.status)
		return;
	seqs[i] = *s;
	seqs[i].handle = res.seq;
}

/* Members of the family of @s become each other, at random. */
static void remap_seq(const struct test_seq *s)
{
	static struct test_seq was[NR_SEQS];
	struct kvmm_remap_arg a[NR_SEQS];
	struct kvmm_seq_res res[NR_SEQS];
	u32 who[NR_SEQS], from[NR_SEQS], nr = 0, i;

	memcpy(was, seqs, sizeof(was));
	for (i = 0; i < NR_SEQS; i++)
		if (seqs[i].live && seqs[i].family == s->family)
			who[nr++] = i;
	for (i = 0; i < nr; i++) {
		from[i] = who[below(nr)];
		a[i].child = seqs[who[i]].handle;
		a[i].other = seqs[from[i]].handle;
	}
	ck_assert_int_eq(request(s->client, KVMM_OP_SEQ_REMAP, 0, nr, a,
				 nr * (u32)sizeof(*a), res), 0);
	for (i = 0; i < nr; i++) {
		struct test_seq *q = &seqs[who[i]];

		ck_assert_int_eq(!res[i].status, !res[0].status);
		if (res[i].status)
			continue;
		*q = was[from[i]];
		q->handle = was[who[i]].handle;
		ck_assert_uint_eq(res[i].valid_len, status(q)->valid_len);
		verify(q, res[i].valid_len);
	}
}

static void truncate_seq(struct test_seq *s)
{
	u32 valid = status(s)->valid_len;
	struct kvmm_len_arg a = { .seq = s->handle };
	struct kvmm_seq_res res;

	a.len = s->trimmed + below(valid - s->trimmed + 1);
	request(s->client, KVMM_OP_SEQ_TRUNCATE, 0, 1, &a, sizeof(a), &res);
	ck_assert_int_eq(res.status, 0);
	ck_assert_uint_eq(status(s)->valid_len, a.len);
	if (below(2))
		s->nr = max(a.len, s->prompt);
}

static void trim_seq(struct test_seq *s)
{
	struct kvmm_len_arg a = { .seq = s->handle,
				  .len = below(status(s)->valid_len + 1) };
	struct kvmm_seq_res res;

	request(s->client, KVMM_OP_SEQ_TRIM, 0, 1, &a, sizeof(a), &res);
	ck_assert_int_eq(res.status, 0);
	s->trimmed = max(s->trimmed, a.len / BT * BT);
}

static void share_seq(struct test_seq *s)
{
	u32 kind = below(8);

	if (kind < 5)
		remap_seq(s);
	else if (kind < 7)
		truncate_seq(s);
	else
		trim_seq(s);
}

/* The device runs a step: the copies first, then the positions that it appends. */
static u32 run_step(struct test_seq *s, u32 valid, u32 nr,
		    const struct kvmm_begin_res *res)
{
	u32 done = below(nr + 1), i;

	if (res->copy_tokens)
		memcpy(dev + (u64)res->copy_to * CORE_UNIT,
		       dev + (u64)res->copy_from * CORE_UNIT,
		       8ull * res->copy_tokens);
	answer_some(3);
	verify(s, valid);
	for (i = valid; i < valid + nr; i++) {
		if (i >= s->nr)
			s->ids[i] = below(3);
		*cell(s, i) = content(s, i + 1);
	}
	answer_some(3);
	verify(s, valid + nr);
	s->nr = max(s->nr, valid + done);
	return done;
}

static void step_seq(struct test_seq *s)
{
	u32 valid = status(s)->valid_len, done = 0;
	u32 nr = min(1 + below(valid < s->nr ? 60 : 3), s->room - valid);
	struct kvmm_begin_arg a = { .seq = s->handle, .start = valid,
				    .seq_epoch = status(s)->seq_epoch,
				    .max_tokens = nr };
	struct {
		struct kvmm_end_arg	a;
		u32			ids[MAX_IDS];
	} x = { .a = { .seq = s->handle } };
	struct kvmm_begin_res res;
	struct kvmm_end_res end = { 0 };

	if (!nr) {
		close_seq(s);
		return;
	}
	ck_assert_int_eq(request(s->client, KVMM_OP_STEP_BEGIN, ++step, 1, &a,
				 sizeof(a), &res), 0);
	if (!res.status)
		done = run_step(s, valid, nr, &res);
	x.a.valid_len = valid + done;
	x.a.nr_ids = done;
	memcpy(x.ids, s->ids + valid, 4 * done);
	ck_assert_int_eq(request(s->client, KVMM_OP_STEP_END, step,
				 !res.status, &x, res.status ? 0 :
				 (u32)sizeof(x.a) + 4 * done, &end), 0);
	ck_assert_int_eq(end.status, 0);
}

static void act(struct test_seq *s)
{
	u32 state;

	if (!s->live) {
		open_seq(s);
		return;
	}
	state = status(s)->state;
	if (state == KVMM_SEQ_FAILED || !below(60))
		close_seq(s);
	else if (state == KVMM_SEQ_RECOMPUTE)
		match(s);
	else if (state != KVMM_SEQ_READY)
		return;
	else if (!below(40))
		advise_seq(s);
	else if (!below(25))
		fork_seq(s);
	else if (!below(25))
		share_seq(s);
	else
		step_seq(s);
}

/* Remove an area, as far as possible; a removed one is added again. */
static void move_area(void)
{
	u32 i = below(CORE_MAX_AREAS), index;
	struct core_tier_view v;

	if (!core_get_config(core)->area_bytes)
		return;
	if (!core_get_tier(core, CORE_POOL_AREA + i, &v))
		(void)!core_area_del(core, now += 1000, i);
	else if (below(2))
		(void)!core_area_add(core, now += 1000,
				     core_get_config(core)->area_bytes,
				     (int)below(2), &index);
	walk("an area");
}

/* Read all sequences as operators do, in any state. */
static void look(void)
{
	struct core_seq_view v;
	u32 i;

	for (i = 0; core_get_seq(core, i, &v) != -ERANGE; i++)
		;
}

/* ---- one world ---- */

static u32 attach(const char *name)
{
	struct kvmm_attach_req req = { .block_tokens = BT, .nr_shards = 1,
				       .nr_groups = 1, .max_steps = 2,
				       .max_seqs = 64,
				       .identity = { (u8)name[0] } };
	u8 secret[CORE_SECRET_LEN];
	struct core_attach_info info;
	struct core_bind *b;
	u32 i;

	/* With a secret of zeros different ids have the same hash. */
	for (i = 0; i < sizeof(secret); i++)
		secret[i] = (u8)(0x9e3779b97f4a7c15ull * (i + 1) >> 40);
	strcpy(req.domain, name);
	req.group[0] = (struct kvmm_group){ .layers = 4, .kv_heads = 2,
					    .k_bytes = 64, .v_bytes = 64 };
	req.limits[0].max = KVMM_LIMIT_MAX;
	ck_assert_int_eq(core_client_attach(core, now, 7, secret, &req, &info),
			 0);
	b = &bind[info.client];
	b->ctl = calloc(1, sizeof(*b->ctl));
	b->seqs = calloc(info.max_seqs, sizeof(*b->seqs));
	b->extents = calloc(info.nr_extents, sizeof(*b->extents));
	b->tables = calloc(info.nr_tables, sizeof(*b->tables));
	b->events = calloc(256, sizeof(*b->events));
	b->nr_events = 256;
	core_client_bind(core, info.client, b);
	return info.client;
}

/* A world of sequences that live off their areas. */
static void config_stalling(struct core_config *cfg)
{
	cfg->pool_bytes = (8 + below(8)) * EXTENT;
	cfg->host_bytes = (3 + below(6)) * EXTENT;
	cfg->area_bytes = 64 * EXTENT;
	cfg->swappiness = 200;
	cfg->io_deadline_ns = 50000000;
}

static void world_start(u64 seed)
{
	static const u32 swappiness[] = { 100, 200, 200, 0 };
	static const u32 host_extents[] = { 0, 3, 5, 8, 16, 32 };
	struct core_config cfg = {
		.extent_size = EXTENT, .min_token_bytes = 512,
		.max_tenants = 4, .max_domains = 4, .max_clients = 8,
		.max_seqs = 64, .max_steps = 4,
		.step_deadline_ns = 5000000000ull,
		.quiet_deadline_ns = 1000000000ull, .starve_ns = 1000000000ull,
	};
	u32 i, index;
	u64 size;

	rng = seed * 7919 + 13;
	failing = seed % 3 == 0;
	stuck = false;
	now = 1;
	step = 0;
	memset(number, 0, sizeof(number));
	memset(&todo, 0, sizeof(todo));
	memset(seqs, 0, sizeof(seqs));
	cfg.pool_bytes = (8 + below(24)) * EXTENT;
	cfg.host_bytes = host_extents[below(6)] * EXTENT;
	cfg.area_bytes = below(2) * 64 * EXTENT;
	cfg.swappiness = swappiness[below(4)];
	if (stalling)
		config_stalling(&cfg);
	size = core_arena_size(&cfg);
	ck_assert_uint_ne(size, 0);
	arena = aligned_alloc(64, ALIGN_UP(size, 64ul));
	memset(arena, 0, size);
	core = calloc(1, core_struct_size());
	ck_assert_int_eq(core_init(core, arena, size, &cfg, &ops, NULL), 0);
	dev = calloc(1, cfg.pool_bytes);
	host = calloc(1, cfg.host_bytes + 1);
	for (i = 0; i < CORE_MAX_AREAS; i++)
		area[i] = calloc(1, cfg.area_bytes + 1);
	for (i = 0; i < NR_CLIENTS; i++)
		client[i] = attach(i == 2 ? "b" : "a");
	if (!cfg.area_bytes || !cfg.host_bytes)
		return;
	ck_assert_int_eq(core_area_add(core, now, cfg.area_bytes, 0, &index),
			 0);
	if (below(2))
		ck_assert_int_eq(core_area_add(core, now, cfg.area_bytes / 2,
					       (int)below(2), &index), 0);
}

/* Let the sequence run to its end.  Return: whether it still lives. */
static bool act_last(struct test_seq *s)
{
	u32 state;

	if (!s->live)
		return false;
	state = status(s)->state;
	if (state == KVMM_SEQ_FAILED)
		close_seq(s);
	else if (state == KVMM_SEQ_RECOMPUTE)
		match(s);
	else if (state == KVMM_SEQ_READY)
		step_seq(s);
	return s->live;
}

/* No new sequence comes any more: all of them end, in bounded time. */
static void world_drain(void)
{
	u32 rounds, i, left;

	for (rounds = 0; rounds < 3000; rounds++) {
		for (i = 0, left = 0; i < NR_SEQS; i++)
			left += act_last(&seqs[i]);
		if (!left)
			return;
		answer_all();
		core_tick(core, now += 20000000);
		walk("a tick");
	}
	for (i = 0; i < NR_SEQS; i++)
		if (seqs[i].live)
			ck_abort_msg("%u sequences wait for ever, one in state %s",
				     left, core_seq_state_name(status(&seqs[i])->state));
}

/* Drop some of the cache, at any time. */
static void drop_some(void)
{
	ck_assert_int_ge(core_drop_caches(core, now, below(2), 1 + below(8)),
			 0);
	walk("a drop of some cache");
}

/* Drop all of the cache, on every tier. */
static void drop_all(void)
{
	struct core_tier_view low;
	struct core_pool_view v;
	u32 i;

	for (i = 0; i < 2; i++)
		ck_assert_int_ge(core_drop_caches(core, now, i, ~0u >> 1), 0);
	walk("a drop of the cache");
	core_get_pool(core, &v);
	ck_assert_uint_eq(v.cached, 0);
	for (i = CORE_POOL_HOST; i < CORE_NR_POOLS; i++)
		if (!core_get_tier(core, i, &low))
			ck_assert_uint_eq(low.used, 0);
}

/* All sequences and clients end; all memory is free or cached. */
static void world_end(void)
{
	struct core_pool_view v;
	u64 events[NR_CORE_EVENTS];
	u32 i;

	stuck = false;
	answer_all();
	ck_assert_uint_eq(core_get_stalled(core), 0);
	for (i = 0; i < NR_SEQS; i++)
		if (seqs[i].live)
			close_seq(&seqs[i]);
	answer_all();
	for (i = 0; i < NR_CLIENTS; i++) {
		core_client_dead(core, now, client[i]);
		core_client_quiet(core, now, client[i]);
		walk("a death");
	}
	answer_all();
	core_get_pool(core, &v);
	ck_assert_uint_eq(v.free + v.free_extents + v.cached + v.tails,
			  v.total);
	drop_all();
	core_get_events(core, events);
	for (i = 0; i < NR_CORE_EVENTS; i++)
		totals[i] += events[i];
	for (i = 0; i < NR_CLIENTS; i++) {
		free(bind[client[i]].ctl);
		free(bind[client[i]].seqs);
		free(bind[client[i]].extents);
		free(bind[client[i]].tables);
		free(bind[client[i]].events);
	}
	for (i = 0; i < CORE_MAX_AREAS; i++)
		free(area[i]);
	free(host);
	free(dev);
	free(core);
	free(arena);
}

/* Events that must have happened, over the seeds of the level. */
static const enum core_event must_happen[] = {
	CORE_EV_preempt_swap, CORE_EV_swap_restore, CORE_EV_swap_fallback,
	CORE_EV_pgdemote, CORE_EV_pgpromote, CORE_EV_pgclean,
	CORE_EV_demote_free, CORE_EV_pswpout, CORE_EV_pswpin,
	CORE_EV_swap_lost, CORE_EV_host_drop, CORE_EV_preempt_recompute,
	CORE_EV_seq_remap, CORE_EV_seq_truncate, CORE_EV_pgtrim,
	CORE_EV_pgmerge, CORE_EV_prefix_partial_tokens,
};

static void worlds_run(u64 seeds)
{
	const char *one = getenv("KVMM_TEST_SEED");
	u64 seed = one ? strtoull(one, NULL, 10) : 1;
	u64 last = one ? seed : level_is_check() ? seeds : 100 * seeds;
	u32 i;

	for (; seed <= last; seed++) {
		printf("replay: KVMM_TEST_SEED=%llu\r",
		       (unsigned long long)seed);
		fflush(stdout);
		world_start(seed);
		for (i = 0; i < 4000; i++) {
			if (stalling && !below(stuck ? 200 : 400))
				stuck = !stuck;
			answer_some(4);
			act(&seqs[below(NR_SEQS)]);
			if (!below(150))
				move_area();
			if (!below(500))
				drop_some();
			if (below(20))
				continue;
			look();
			core_tick(core, now += 20000000);
			walk("a tick");
		}
		stuck = stalling;
		world_drain();
		world_end();
	}
	printf("\n");
	for (i = 0; !one && i < ARRAY_SIZE(must_happen); i++)
		ck_assert_msg(totals[must_happen[i]], "event %u never happened",
			      must_happen[i]);
}

START_TEST(test_random_worlds)
{
	worlds_run(6);
}
END_TEST

START_TEST(test_stalling_worlds)
{
	stalling = true;
	worlds_run(3);
	ck_assert_msg(getenv("KVMM_TEST_SEED") ||
		      (totals[CORE_EV_swap_stall] && totals[CORE_EV_swap_late]),
		      "no request was ever late");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_tier");
	TCase *tc = tcase_create("random");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 600);
	tcase_add_test(tc, test_random_worlds);
	tcase_add_test(tc, test_stalling_worlds);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
