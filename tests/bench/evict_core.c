// SPDX-License-Identifier: Apache-2.0
/*
 * evict_core.c - kvmm's core as the cache of a trace
 *
 * The smallest shell: one client, one sequence at a time, through open, match,
 * step and close.  Hits are the blocks that the core reports as cached.  A
 * prompt has one token more than its blocks, since the last token is never taken
 * from the cache.  That token needs a block, so the pool has a few more than the
 * peers' caches.
 */
#include "kvmm/core/core.h"
#include "tests/bench/bench.h"
#include "tests/bench/evict.h"

#include <stdlib.h>

#define EXTENT		65536ull
#define BLOCK		1024u
#define NORMAL		100u	/* priority */
#define PER_EXTENT	((u32)(EXTENT / BLOCK))
#define SLOT		8192u	/* bytes of a block in a lower tier, with its header */
#define TOKENS_MAX	((EV_PATH_MAX + 1) * EV_TOKENS)
#define ORDERS		8192u	/* copies and I/O that the core ordered, at most */
#define ORDER_IO	BIT_ULL(63)
#define WAIT_NS		1000000ull
#define TRIES		100000u
#define CHUNK		2048u	/* tokens of a step of a model with records */

struct shell {
	struct core		*core;
	void			*arena;
	u32			nr_extents;
	u32			*create;	/* generations asked for */
	u32			*send;
	u64			order[ORDERS];	/* ids, bit 63: of I/O */
	u32			nr_orders;
	u64			number;
	u64			step;
	u64			now;
	u32			chunk;		/* tokens of a step, at most */
	struct core_attach_info	info;
	struct kvmm_daemon_ctl	ctl;
	struct kvmm_seq_status	*seqs;
	struct kvmm_extent_status *extents;
	struct kvmm_table_page	*tables;
	struct kvmm_event	events[64];
	u64			args[TOKENS_MAX / 2 + 64];
	u64			results[64];
};

static void op_create(void *arg, u32 extent, u32 generation)
{
	((struct shell *)arg)->create[extent] = generation;
}

static void op_release(void *arg, u32 extent)
{
}

static void op_send(void *arg, u32 client, u32 extent, u32 generation)
{
	((struct shell *)arg)->send[extent] = generation;
}

static void op_wake(void *arg, u32 client)
{
}

static void op_kill(void *arg, u32 client, int reason)
{
	bench_die("the core kills its only client: %s", strerror(-reason));
}

static void order(struct shell *s, u64 id)
{
	if (s->nr_orders == ORDERS)
		bench_die("the core orders more than %u copies at once", ORDERS);
	s->order[s->nr_orders++] = id;
}

static void op_copy(void *arg, const struct core_copy *cp)
{
	order(arg, cp->id);
}

static void op_io(void *arg, const struct core_io *io)
{
	if (io->id & ORDER_IO)
		bench_die("the core uses all bits of an id");
	order(arg, io->id | ORDER_IO);
}

static const struct core_ops shell_ops = {
	.extent_create	= op_create,
	.extent_release	= op_release,
	.extent_send	= op_send,
	.wake		= op_wake,
	.kill		= op_kill,
	.copy		= op_copy,
	.io		= op_io,
};

/* Carry out the orders of the core, in their order. */
static void carry_out(struct shell *s)
{
	u32 i;

	for (i = 0; i < s->nr_orders; i++) {
		u64 id = s->order[i] & ~ORDER_IO;

		if (s->order[i] & ORDER_IO)
			core_io_done(s->core, s->now, id, 0);
		else
			core_copy_done(s->core, s->now, id, 0);
	}
	s->nr_orders = 0;
}

/* Send a request of one entry; a refusal of the request ends the benchmark. */
static void submit(struct shell *s, u16 op, u64 step, u32 len)
{
	struct kvmm_sqe sqe = { .op = op, .nr = 1, .step = step,
				.number = ++s->number, .arg_len = len };
	struct core_req req;

	s->now += 1000;
	if (core_req_check(s->core, 0, &sqe, s->args, len, &req) ||
	    core_req_execute(s->core, s->now, 0, &req, s->results))
		bench_die("the core refuses request %u", op);
	core_tick(s->core, s->now);	/* let the reclaimer run as often as possible */
	carry_out(s);
}

/* Make and acknowledge the extents that the core asked for. */
static void settle(struct shell *s)
{
	struct kvmm_ack_arg *a = (struct kvmm_ack_arg *)s->args;
	u32 i;

	for (i = 0; i < s->nr_extents; i++) {
		if (s->create[i]) {
			s->create[i] = 0;
			core_extent_created(s->core, s->now, i, 0);
		}
		if (!s->send[i])
			continue;
		*a = (struct kvmm_ack_arg){ .extent = i, .what = KVMM_ACK_MAP,
					    .generation = s->send[i] };
		s->send[i] = 0;
		submit(s, KVMM_OP_EXTENT_ACK, 0, sizeof(*a));
	}
}

/* Let @ns pass. */
static void idle(struct shell *s, u64 ns)
{
	settle(s);
	s->now += ns;
	core_tick(s->core, s->now);
	carry_out(s);
}

/* ---- a request ---- */

/* Token @i of a block: no two blocks have a token in common. */
static u32 token_of(u32 block, u32 i)
{
	return block * EV_TOKENS + i;
}

static void tokens_of(const u32 *path, u32 nr, u32 *ids)
{
	u32 i, n;

	for (i = 0; i < nr; i++)
		for (n = 0; n < EV_TOKENS; n++)
			*ids++ = token_of(path[i], n);
	*ids = EV_NONE;		/* the extra token, if the answer has no block */
}

static u64 open_seq(struct shell *s, u32 prompt, u32 more, u32 flags,
		    u32 priority)
{
	const struct kvmm_open_res *res = (const void *)s->results;
	struct kvmm_open_arg *a = (struct kvmm_open_arg *)s->args;

	*a = (struct kvmm_open_arg){ .prompt_len = prompt, .max_tokens = more,
				     .flags = flags, .priority = priority };
	submit(s, KVMM_OP_SEQ_OPEN, 0, sizeof(*a));
	if (res->status)
		bench_die("a prompt of %u tokens cannot be opened: %s", prompt,
			  strerror(-res->status));
	return res->seq;
}

static void match_piece(struct shell *s, u64 seq, const u32 *ids, u32 from,
			u32 nr, bool last)
{
	struct kvmm_match_arg *a = (struct kvmm_match_arg *)s->args;

	*a = (struct kvmm_match_arg){ .seq = seq, .start = from, .nr_ids = nr,
				      .flags = last ? KVMM_MATCH_LAST : 0 };
	memcpy(a + 1, ids + from, 4 * nr);
	submit(s, KVMM_OP_SEQ_MATCH, 0, (u32)sizeof(*a) + 4 * nr);
}

static const struct kvmm_seq_status *match(struct shell *s, u64 seq,
					   const u32 *ids, u32 nr)
{
	const struct kvmm_seq_status *st = &s->seqs[KVMM_SEQ_INDEX(seq)];
	u32 tries = 0;

	match_piece(s, seq, ids, 0, nr, true);
	while (st->state != KVMM_SEQ_READY && st->state != KVMM_SEQ_FAILED &&
	       tries++ < TRIES)
		idle(s, WAIT_NS);
	if (st->state != KVMM_SEQ_READY)
		bench_die("a prompt of %u tokens is not admitted", nr);
	return st;
}

static void compute(struct shell *s, u64 seq, u32 from, u32 to, const u32 *ids)
{
	const struct kvmm_begin_res *res = (const void *)s->results;
	struct kvmm_begin_arg *b = (struct kvmm_begin_arg *)s->args;
	struct kvmm_end_arg *e = (struct kvmm_end_arg *)s->args;
	u32 tries = 0;

	do {
		*b = (struct kvmm_begin_arg){ .seq = seq, .start = from,
					      .max_tokens = to - from };
		submit(s, KVMM_OP_STEP_BEGIN, ++s->step, sizeof(*b));
		if (res->status != -EAGAIN)
			break;
		*e = (struct kvmm_end_arg){ .seq = seq, .valid_len = from };
		submit(s, KVMM_OP_STEP_END, s->step, sizeof(*e));
		idle(s, WAIT_NS);
	} while (tries++ < TRIES);
	if (res->status)
		bench_die("a step of %u tokens is not granted: %s", to - from,
			  strerror(-res->status));
	*e = (struct kvmm_end_arg){ .seq = seq, .valid_len = to,
				    .nr_ids = to - from };
	memcpy(e + 1, ids + from, 4 * (to - from));
	submit(s, KVMM_OP_STEP_END, s->step,
	       (u32)sizeof(*e) + 4 * (to - from));
}

static void close_seq(struct shell *s, u64 seq)
{
	struct kvmm_seq_arg *a = (struct kvmm_seq_arg *)s->args;

	a->seq = seq;
	submit(s, KVMM_OP_SEQ_CLOSE, 0, sizeof(*a));
}

static u32 serve(struct shell *s, const struct ev_trace *t, u32 req,
		 u32 priority)
{
	static u32 path[EV_PATH_MAX], ids[TOKENS_MAX];
	u32 nr = ev_path(t, t->reqs[req].end, path);
	u32 prompt = t->depth[t->reqs[req].prompt] * EV_TOKENS + 1;
	u32 all = max(nr * EV_TOKENS, prompt), found, at;
	u64 seq = open_seq(s, prompt, all - prompt, 0, priority);

	tokens_of(path, nr, ids);
	found = match(s, seq, ids, prompt)->cached_len;
	for (at = found; at < all; at += s->chunk)
		compute(s, seq, at, min(at + s->chunk, all), ids);
	close_seq(s, seq);
	return found / EV_TOKENS;
}

/* Have memory made for all of the pool. */
static void warm(struct shell *s, u32 cap)
{
	u32 nr = cap / PER_EXTENT * PER_EXTENT * EV_TOKENS;
	u32 *ids = calloc(nr, sizeof(*ids));
	const struct kvmm_seq_status *st;
	u64 seq = open_seq(s, nr, 0, KVMM_OPEN_NO_MATCH | KVMM_OPEN_NO_INDEX,
			   NORMAL);
	u32 at, one;

	st = &s->seqs[KVMM_SEQ_INDEX(seq)];
	for (at = 0; at < nr; at += one) {
		one = min(nr - at, TOKENS_MAX);
		match_piece(s, seq, ids, at, one, at + one == nr);
	}
	while (st->state != KVMM_SEQ_READY)
		settle(s);
	close_seq(s, seq);
	free(ids);
}

/* ---- the shell ---- */

static void attach(struct shell *s, const struct ev_records *rec)
{
	struct kvmm_attach_req req = {
		.magic		= KVMM_ATTACH_MAGIC,
		.abi_version	= KVMM_ABI_VERSION,
		.layout_hash	= KVMM_LAYOUT_HASH,
		.domain		= "bench",
		.block_tokens	= EV_TOKENS,
		.nr_shards	= 1,
		.nr_groups	= 1,
		.max_steps	= 1,
		.group[0]	= { .layers = 1, .kv_heads = 1, .k_bytes = 32,
				    .v_bytes = 32 },
		.limits[0]	= { .max = KVMM_LIMIT_MAX },
		.weight		= 100,
	};
	u8 secret[CORE_SECRET_LEN] = { 1 };
	struct core_bind bind;

	if (rec) {
		req.block_tokens = rec->every;
		req.step_tokens = CHUNK;
		req.nr_groups = 2;
		req.group[1] = (struct kvmm_group){ .layers = rec->tokens / 1024, .kv_heads = 1024,
						    .k_bytes = BLOCK / EV_TOKENS,
						    .kind = KVMM_GROUP_STATE };
	}
	if (core_client_attach(s->core, s->now, 1, secret, &req, &s->info))
		bench_die("the core refuses its client: %s", s->info.text);
	s->seqs = calloc(s->info.max_seqs, sizeof(*s->seqs));
	s->tables = calloc(s->info.nr_tables, sizeof(*s->tables));
	s->extents = calloc(s->nr_extents, sizeof(*s->extents));
	bind = (struct core_bind){
		.ctl = &s->ctl, .seqs = s->seqs, .extents = s->extents,
		.tables = s->tables, .events = s->events,
		.nr_events = ARRAY_SIZE(s->events),
	};
	core_client_bind(s->core, 0, &bind);
}

static void shell_start(struct shell *s, u32 cap, u32 host, u32 area,
			const struct ev_records *rec)
{
	struct core_config cfg = {
		.pool_bytes	= cap / PER_EXTENT * EXTENT,
		.extent_size	= EXTENT,
		.min_token_bytes = BLOCK / EV_TOKENS,
		.max_tenants	= 1,
		.max_domains	= 1,
		.max_clients	= 1,
		.max_seqs	= 4,
		.nr_idpages	= cap * EV_TOKENS / 126 + 64,
		.max_steps	= 1,
		.step_deadline_ns = ~0ull,
		.quiet_deadline_ns = ~0ull,
		.starve_ns	= ~0ull,
		.watermark_scale_factor = 10,	/* the daemon's defaults */
		.cache_floor	= 5,
		.swappiness	= 100,
		.host_bytes	= (u64)host * SLOT,
		.area_bytes	= (u64)area * SLOT,
	};
	u64 bytes = core_arena_size(&cfg);
	u32 index;

	memset(s, 0, sizeof(*s));
	s->nr_extents = cap / PER_EXTENT;
	s->chunk = rec ? CHUNK : TOKENS_MAX;
	s->core = calloc(1, core_struct_size());
	s->arena = aligned_alloc(64, ALIGN_UP(bytes, 64ull));
	s->create = calloc(s->nr_extents, sizeof(u32));
	s->send = calloc(s->nr_extents, sizeof(u32));
	if (!bytes || !s->core || !s->arena || !s->create || !s->send)
		bench_die("no core of %u blocks", cap);
	memset(s->arena, 0, bytes);
	if (core_init(s->core, s->arena, bytes, &cfg, &shell_ops, s))
		bench_die("the core does not start");
	attach(s, rec);
	if (!rec)
		warm(s, cap);
	if (area && core_area_add(s->core, s->now, cfg.area_bytes, 0, &index))
		bench_die("no area of %u blocks", area);
}

static void shell_stop(struct shell *s)
{
	free(s->core);
	free(s->arena);
	free(s->create);
	free(s->send);
	free(s->seqs);
	free(s->tables);
	free(s->extents);
}

static void shell_check(const struct shell *s)
{
	struct core_report report;

	if (core_check(s->core, &report))
		bench_die("walkers: %s", report.text);
}

u64 ev_run_core(const struct ev_trace *t, u32 cap)
{
	u64 found, found_high;

	ev_run_core_high(t, cap, NORMAL, &found, &found_high);
	return found + found_high;
}

void ev_run_core_high(const struct ev_trace *t, u32 cap, u32 high, u64 *found,
		      u64 *found_high)
{
	static struct shell s;
	u32 i;

	*found = 0;
	*found_high = 0;
	shell_start(&s, cap, 0, 0, NULL);
	for (i = 0; i < t->nr_reqs; i++)
		if (t->reqs[i].high)
			*found_high += serve(&s, t, i, high);
		else
			*found += serve(&s, t, i, NORMAL);
	shell_check(&s);
	shell_stop(&s);
}

u64 ev_run_records(const struct ev_trace *t, u32 cap, const struct ev_records *rec)
{
	static struct shell s;
	u64 found = 0;
	u32 i;

	shell_start(&s, cap, 0, 0, rec);
	for (i = 0; i < t->nr_reqs; i++)
		found += serve(&s, t, i, NORMAL);
	shell_check(&s);
	shell_stop(&s);
	return found;
}

/* ---- with lower tiers ---- */

/*
 * Blocks found since @before, by the tier that had them.  A block of an area is read
 * into the host pool, and each block of the host pool is copied to the device.
 */
static void found_by_tier(struct ev_replay *r, const u64 *before, const u64 *after,
			  u32 found)
{
	u64 read = after[CORE_EV_pswpin] - before[CORE_EV_pswpin];
	u64 copied = after[CORE_EV_pgpromote] - before[CORE_EV_pgpromote];

	if (copied > found || read > copied)
		bench_die("%u blocks were found, %lu copied, %lu read", found,
			  copied, read);
	r->found[EV_AREA] += read;
	r->found[EV_HOST] += copied - read;
	r->found[EV_DEVICE] += found - copied;
}

void ev_run_tiers(const struct ev_trace *t, struct ev_replay *r)
{
	u64 counts[2][NR_CORE_EVENTS];
	static struct shell s;
	u32 i, found;

	r->blocks[EV_DEVICE] -= r->blocks[EV_DEVICE] % PER_EXTENT;
	for (i = EV_HOST; i < EV_NR_TIERS; i++)
		r->blocks[i] -= r->blocks[i] % (u32)(EXTENT / SLOT);
	memset(r->found, 0, sizeof(r->found));
	shell_start(&s, r->blocks[EV_DEVICE], r->blocks[EV_HOST], r->blocks[EV_AREA],
		    NULL);
	for (i = 0; i < t->nr_reqs; i++) {
		s.now = max(s.now, t->reqs[i].at);
		core_get_events(s.core, counts[0]);
		found = serve(&s, t, i, NORMAL);
		core_get_events(s.core, counts[1]);
		found_by_tier(r, counts[0], counts[1], found);
	}
	core_get_events(s.core, r->counts);
	shell_check(&s);
	shell_stop(&s);
}
