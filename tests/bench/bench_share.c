// SPDX-License-Identifier: Apache-2.0
/*
 * bench_share.c - costs of sharing inside the core
 *
 * No daemon and no device: a core in this process, one client whose extents
 * are there, and requests as the shell hands them over.  Measured are
 *
 *	fork	8 children of a table of 4,096 blocks, a child
 *	walk	a look at each entry of a table of 4,096 blocks, by index
 *	remap	a beam step of width 8 in each of 64 requests (prompt 512,
 *		output up to 128, 16 tokens a block): one SEQ_REMAP of 512
 *		entries, a random choice of survivors in each family
 *
 * The peer of a child is a plain copy of as many bytes as its table has: a
 * child cannot cost less than that.
 */
#include <stdlib.h>
#include <string.h>

#include "kvmm/core/core.h"
#include "tests/bench/bench.h"

#define EXTENT		65536ull
#define NR_EXTENTS	256u
#define BT		16u
#define LONG_BLOCKS	4096u
#define CHILDREN	8u
#define FAMILIES	64u
#define WIDTH		8u
#define PROMPT		512u
#define OUTPUT		128u
#define ROUNDS		7
#define MAX_SEQS	1024u
#define NR_TABLES	4096u

static struct {
	struct core	*core;
	u64		now;
	u64		number;
	u64		step;
	u32		client;
	u32		created[NR_EXTENTS];
	u32		sent[NR_EXTENTS];
	struct kvmm_daemon_ctl ctl;
	struct kvmm_seq_status seqs[MAX_SEQS];
	struct kvmm_extent_status extents[NR_EXTENTS];
	struct kvmm_table_page tables[NR_TABLES];
	struct kvmm_event events[64];
	u64		args[80000];
	u64		results[8192];
	u64		beam[FAMILIES][WIDTH];
} b;

/* ---- the shell ---- */

static void on_create(void *arg, u32 extent, u32 generation)
{
	b.created[extent] = generation;
}

static void on_release(void *arg, u32 extent)
{
}

static void on_send(void *arg, u32 client, u32 extent, u32 generation)
{
	b.sent[extent] = generation;
}

static void on_wake(void *arg, u32 client)
{
}

static void on_kill(void *arg, u32 client, int reason)
{
	bench_die("the core kills its client: %d", reason);
}

static const struct core_ops ops = {
	.extent_create	= on_create,
	.extent_release	= on_release,
	.extent_send	= on_send,
	.wake		= on_wake,
	.kill		= on_kill,
};

/* Send a request.  Return: ticks of its check and its execution. */
static u64 request(u16 op, u32 nr, u64 step, u32 len)
{
	struct kvmm_sqe sqe = { .op = op, .nr = nr, .step = step,
				.number = ++b.number, .arg_len = len };
	struct core_req req;
	u64 start = bench_ticks();
	int err;

	err = core_req_check(b.core, b.client, &sqe, b.args, len, &req);
	if (!err)
		err = core_req_execute(b.core, b.now += 1000, b.client, &req,
				       b.results);
	start = bench_ticks() - start;
	if (err)
		bench_die("verb %u: %d", op, err);
	return start;
}

static bool settle_one(u32 extent)
{
	struct kvmm_ack_arg *a = (struct kvmm_ack_arg *)b.args;

	if (b.created[extent]) {
		b.created[extent] = 0;
		core_extent_created(b.core, b.now, extent, 0);
		return true;
	}
	if (!b.sent[extent])
		return false;
	*a = (struct kvmm_ack_arg){ .extent = extent, .what = KVMM_ACK_MAP,
				    .generation = b.sent[extent] };
	b.sent[extent] = 0;
	request(KVMM_OP_EXTENT_ACK, 1, 0, sizeof(*a));
	return true;
}

/* Make extents and acknowledge them, until the core asks for no more. */
static void settle(void)
{
	bool again = true;
	u32 i;

	while (again) {
		again = false;
		for (i = 0; i < NR_EXTENTS; i++)
			again |= settle_one(i);
	}
}

static const struct kvmm_attach_req attach = {
	.magic = KVMM_ATTACH_MAGIC, .abi_version = KVMM_ABI_VERSION,
	.layout_hash = KVMM_LAYOUT_HASH, .domain = "bench",
	.block_tokens = BT, .nr_shards = 1, .nr_groups = 1,
	.max_steps = 4, .weight = 100,
	.group[0] = { .layers = 1, .kv_heads = 1, .k_bytes = 32,
		      .v_bytes = 32 },
	.limits[0] = { .max = KVMM_LIMIT_MAX },
};

static void start(void)
{
	struct core_config cfg = {
		.pool_bytes = NR_EXTENTS * EXTENT, .extent_size = EXTENT,
		.min_token_bytes = 64, .max_tenants = 1, .max_domains = 1,
		.max_clients = 1, .max_seqs = MAX_SEQS, .nr_tables = NR_TABLES,
		.max_steps = 4, .step_deadline_ns = 1000000000000ull,
		.quiet_deadline_ns = 1000000000000ull,
		.starve_ns = 1000000000000ull,
	};
	struct core_bind bind = {
		.ctl = &b.ctl, .seqs = b.seqs, .extents = b.extents,
		.tables = b.tables, .events = b.events, .nr_events = 64,
	};
	u8 secret[CORE_SECRET_LEN];
	u64 bytes = core_arena_size(&cfg);
	struct core_attach_info info;
	void *arena = aligned_alloc(64, (bytes + 63) / 64 * 64);
	u32 i;

	for (i = 0; i < sizeof(secret); i++)
		secret[i] = (u8)rand();
	b.core = calloc(1, core_struct_size());
	if (!arena || !b.core)
		bench_die("out of memory");
	memset(arena, 0, bytes);
	if (core_init(b.core, arena, bytes, &cfg, &ops, NULL) ||
	    core_client_attach(b.core, b.now, 1, secret, &attach, &info))
		bench_die("the core does not start");
	b.client = info.client;
	core_client_bind(b.core, b.client, &bind);
	settle();
}

/* ---- sequences ---- */

static u64 seq_ready(u32 prompt, u32 more, u32 seed)
{
	struct kvmm_open_arg *o = (struct kvmm_open_arg *)b.args;
	struct kvmm_match_arg *m = (struct kvmm_match_arg *)b.args;
	u32 *ids = (u32 *)(m + 1), i;
	u64 seq;

	*o = (struct kvmm_open_arg){ .prompt_len = prompt,
				     .max_tokens = more,
				     .flags = KVMM_OPEN_NO_MATCH };
	request(KVMM_OP_SEQ_OPEN, 1, 0, sizeof(*o));
	seq = ((struct kvmm_open_res *)b.results)->seq;
	*m = (struct kvmm_match_arg){ .seq = seq, .nr_ids = prompt,
				      .flags = KVMM_MATCH_LAST };
	for (i = 0; i < prompt; i++)
		ids[i] = seed * 131071 + i;
	request(KVMM_OP_SEQ_MATCH, 1, 0, (u32)sizeof(*m) + 4 * prompt);
	settle();
	if (b.seqs[KVMM_SEQ_INDEX(seq)].state != KVMM_SEQ_READY)
		bench_die("a sequence of %u tokens is not READY", prompt);
	return seq;
}

/* Run a step in which each of @nr sequences goes on by @tokens. */
static void compute(const u64 *seqs, u32 nr, u32 from, u32 tokens)
{
	struct kvmm_begin_arg *a = (struct kvmm_begin_arg *)b.args;
	struct kvmm_end_arg *e = (struct kvmm_end_arg *)b.args;
	const struct kvmm_begin_res *res = (const void *)b.results;
	u32 *ids = (u32 *)(e + nr), i;

	for (i = 0; i < nr; i++)
		a[i] = (struct kvmm_begin_arg){ .seq = seqs[i], .start = from,
						.max_tokens = tokens };
	request(KVMM_OP_STEP_BEGIN, nr, ++b.step, nr * sizeof(*a));
	for (i = 0; i < nr; i++)
		if (res[i].status)
			bench_die("a grant is refused: %d", res[i].status);
	for (i = 0; i < nr; i++)
		e[i] = (struct kvmm_end_arg){ .seq = seqs[i],
					      .valid_len = from + tokens,
					      .nr_ids = tokens };
	for (i = 0; i < nr * tokens; i++)
		ids[i] = (u32)rand();
	request(KVMM_OP_STEP_END, nr, b.step,
		nr * (u32)sizeof(*e) + 4 * nr * tokens);
	settle();
}

static u64 fork_seq(u64 seq, u32 nr, u64 *children)
{
	struct kvmm_fork_arg *a = (struct kvmm_fork_arg *)b.args;
	const struct kvmm_open_res *res = (const void *)b.results;
	u64 ticks;
	u32 i;

	*a = (struct kvmm_fork_arg){ .seq = seq, .nr_children = nr };
	ticks = request(KVMM_OP_SEQ_FORK, 1, 0, sizeof(*a));
	for (i = 0; i < nr; i++) {
		if (res[i].status)
			bench_die("a fork is refused: %d", res[i].status);
		children[i] = res[i].seq;
	}
	return ticks;
}

static void close_seqs(const u64 *seqs, u32 nr)
{
	memcpy(b.args, seqs, nr * sizeof(*seqs));
	request(KVMM_OP_SEQ_CLOSE, nr, 0, nr * sizeof(*seqs));
}

/* ---- a long table ---- */

#define CHILD_BYTES	(LONG_BLOCKS * (sizeof(u64) + sizeof(u32)))

/* Copy as many bytes as the children's tables have. */
static u64 copy_plain(char *from)
{
	const size_t bytes = CHILDREN * CHILD_BYTES;
	u64 t = bench_ticks();

	memcpy(from + bytes, from, bytes);
	__asm__ volatile("" : : "r"(from) : "memory");
	return bench_ticks() - t;
}

static void long_report(const struct bench_series *forks,
			const struct bench_series *plain,
			const struct bench_series *walks)
{
	bench_report(&(struct bench_figure){
		.name = "core_fork_child_4096_blocks", .unit = "us",
		.value = bench_median(forks->p50, forks->rounds) / CHILDREN,
		.peer = "plain copy of its table", .max_value = 3,
		.peer_value = bench_median(plain->p50, plain->rounds) /
			      CHILDREN });
	bench_report(&(struct bench_figure){
		.name = "core_table_walk_4096_blocks", .unit = "us",
		.value = bench_median(walks->p50, walks->rounds),
		.series = walks });
}

static void long_table(void)
{
	struct bench_series forks = { .name = "fork" };
	struct bench_series walks = { .name = "walk" };
	struct bench_series plain = { .name = "copy" };
	u64 seq = seq_ready(LONG_BLOCKS * BT, 0, 1), children[CHILDREN], t;
	char *from = calloc(2 * CHILDREN, CHILD_BYTES);
	struct bench_samples f, w, p;
	struct core_seq_view view;
	u32 n, i, at;

	if (!from)
		bench_die("out of memory");
	bench_samples_init(&f, 100);
	bench_samples_init(&w, 100);
	bench_samples_init(&p, 100);
	for (at = 0; at < LONG_BLOCKS * BT; at += 64 * BT)
		compute(&seq, 1, at, 64 * BT);
	for (n = 0; n < ROUNDS; n++) {
		for (i = 0; i < 20; i++) {
			bench_add(&f, fork_seq(seq, CHILDREN, children));
			close_seqs(children, CHILDREN);
			bench_add(&p, copy_plain(from));
			t = bench_ticks();
			(void)!core_get_seq(b.core, KVMM_SEQ_INDEX(seq),
					    &view);
			bench_add(&w, bench_ticks() - t);
		}
		bench_round(&forks, &f);
		bench_round(&plain, &p);
		bench_round(&walks, &w);
	}
	long_report(&forks, &plain, &walks);
	close_seqs(&seq, 1);
	free(from);
}

/* ---- beams ---- */

/* Remap a random choice of survivors in each family. */
static u64 remap_all(void)
{
	struct kvmm_remap_arg *a = (struct kvmm_remap_arg *)b.args;
	const struct kvmm_seq_res *res = (const void *)b.results;
	u32 i, n, nr = 0;
	u64 ticks;

	for (i = 0; i < FAMILIES; i++)
		for (n = 0; n < WIDTH; n++)
			a[nr++] = (struct kvmm_remap_arg){
				.child = b.beam[i][n],
				.other = b.beam[i][(u32)rand() % WIDTH] };
	ticks = request(KVMM_OP_SEQ_REMAP, nr, 0, nr * sizeof(*a));
	for (i = 0; i < nr; i++)
		if (res[i].status)
			bench_die("a remap is refused: %d", res[i].status);
	return ticks;
}

static void beams(void)
{
	struct bench_series remaps = { .name = "remap" };
	struct bench_samples s;
	u32 i, n, at;

	bench_samples_init(&s, OUTPUT);
	for (n = 0; n < ROUNDS; n++) {
		for (i = 0; i < FAMILIES; i++) {
			b.beam[i][0] = seq_ready(PROMPT, OUTPUT,
						 100 + n * FAMILIES + i);
			compute(b.beam[i], 1, 0, PROMPT);
			fork_seq(b.beam[i][0], WIDTH - 1, b.beam[i] + 1);
		}
		for (at = PROMPT; at < PROMPT + OUTPUT; at++) {
			compute(b.beam[0], FAMILIES * WIDTH, at, 1);
			bench_add(&s, remap_all());
		}
		bench_round(&remaps, &s);
		close_seqs(b.beam[0], FAMILIES * WIDTH);
	}
	bench_report(&(struct bench_figure){
		.name = "core_remap_64_beams_of_8", .unit = "us",
		.value = bench_median(remaps.p50, remaps.rounds),
		.max_value = 200, .series = &remaps });
}

int main(void)
{
	start();
	long_table();
	beams();
	return 0;
}
