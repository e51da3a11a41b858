// SPDX-License-Identifier: Apache-2.0
/*
 * bench_scale.c - cost of one event of the core with very many sequences
 *
 * The thread that owns the core serves all clients: during an event every other
 * client waits.  So the longest event counts, among ten thousands of sequences
 * under pressure.  The pool has two blocks for each sequence, which comes to
 * want four, and a host pool as large to swap to.  About a third of the
 * sequences waits at any time; the rest runs, is swapped out or comes back.
 *
 * The load is the same for each number of sequences: all clients open as many
 * as they may, compute them in steps of 256, close finished ones and open the
 * next.  Then come requests that no honest client sends: 1,024 changed
 * priorities at once, a step that names a refused handle 1,024 times, bulk
 * forks and closes.
 *
 * Time is the thread's CPU time, so a busy machine affects a figure only through
 * the caches.  Copies and memory are there at once.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "kvmm/core/core.h"
#include "tests/bench/bench.h"

#define EXTENT		(8ull << 20)
#define EXT_BLOCKS	4u		/* of 2 MiB */
#define BT		16u
#define PROMPT		40u
#define MORE		24u
#define BATCH		256u
#define BULK		1024u
#define CLIENTS		32u
#define DOMAINS		8u
#define COPIES		(1u << 17)
#define TICK_NS		10000000ull
#define GOAL_US		1000.0		/* of one event */

#define KINDS(x)							\
	x(OPEN,		"SEQ_OPEN of up to 1,024")			\
	x(MATCH,	"SEQ_MATCH of up to 64")			\
	x(BEGIN,	"STEP_BEGIN of up to 256")			\
	x(END,		"STEP_END of up to 256")			\
	x(CLOSE,	"SEQ_CLOSE of one")				\
	x(COPY,		"a copy is over")				\
	x(MADE,		"an extent is made")				\
	x(ACK,		"EXTENT_ACK of up to 1,024")			\
	x(TICK,		"tick")						\
	x(MORE,		"what an event left undone")						\
	x(PRIO,		"SEQ_SETPRIO of up to 1,024")			\
	x(REFUSED,	"STEP_BEGIN, one refused 1,024 times")		\
	x(FORK,		"SEQ_FORK of up to 512")			\
	x(BULK_CLOSE,	"SEQ_CLOSE of up to 1,024")

enum kind {
#define x(name, text) K_##name,
	KINDS(x)
#undef x
	NR_KINDS
};

static const char * const kind_text[] = {
#define x(name, text) text,
	KINDS(x)
#undef x
};

struct bseq {
	u64	handle;
	u32	valid;
	u32	to;		/* end in the open step, 0: not in it */
};

struct bclient {
	struct core_attach_info		info;
	struct kvmm_daemon_ctl		ctl;
	struct kvmm_seq_status		*status;
	struct kvmm_extent_status	*extents;
	struct kvmm_table_page		*tables;
	struct kvmm_event		events[64];
	u64				number, step, ended;
	struct bseq			*seqs;
	u32				cursor;
	u32				*acks;
	u32				nr_acks;
	u64				refused;	/* handle of a refused sequence, or 0 */
	u32				refused_at;
	bool				open;	/* is a step open? */
	bool				extra;	/* is a second step open? */
};

/* ---- one node ---- */

static struct core *core;
static void *arena;
static u64 arena_bytes;
static struct bclient *cl;
static u32 nr_clients, nr_seqs;		/* of the node; sequences of each client */
static u32 *made, nr_made;
static u64 *copies;
static u32 nr_copies;
static u64 now, args[1 << 16], results[1 << 13];
static u64 *took[NR_KINDS];
static u32 nr_took[NR_KINDS], max_took[NR_KINDS];
static u32 prompt_id;

static void op_create(void *arg, u32 extent, u32 generation)
{
	made[nr_made++] = extent;
}

static void op_release(void *arg, u32 extent)
{
}

static void op_send(void *arg, u32 client, u32 extent, u32 generation)
{
	cl[client].acks[cl[client].nr_acks++] = extent;
}

static void op_wake(void *arg, u32 client)
{
}

static void op_kill(void *arg, u32 client, int reason)
{
	bench_die("the core killed client %u: %d", client, reason);
}

static void op_copy(void *arg, const struct core_copy *cp)
{
	if (nr_copies == COPIES)
		bench_die("too many copies at once");
	copies[nr_copies++] = cp->id;
}

static const struct core_ops ops = {
	.extent_create = op_create, .extent_release = op_release,
	.extent_send = op_send, .wake = op_wake, .kill = op_kill,
	.copy = op_copy,
};

/* ---- events, each timed ---- */

static u64 cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (u64)ts.tv_sec * 1000000000 + (u64)ts.tv_nsec;
}

static void note(enum kind kind, u64 ns)
{
	if (nr_took[kind] == max_took[kind]) {
		max_took[kind] = max(2 * max_took[kind], 1024u);
		took[kind] = realloc(took[kind], 8ull * max_took[kind]);
		if (!took[kind])
			bench_die("no memory for samples");
	}
	took[kind][nr_took[kind]++] = ns;
}

static int request(enum kind kind, u32 client, u16 op, u32 nr, u32 len)
{
	struct kvmm_sqe sqe = { .op = op, .nr = nr, .arg_len = len,
				.number = ++cl[client].number };
	struct core_req req;
	u64 from;
	int err;

	if (op == KVMM_OP_STEP_BEGIN)
		sqe.step = cl[client].step;
	if (op == KVMM_OP_STEP_END)
		sqe.step = ++cl[client].ended;
	now += 1000;
	from = cpu_ns();
	err = core_req_check(core, client, &sqe, args, len, &req);
	if (!err)
		err = core_req_execute(core, now, client, &req, results);
	note(kind, cpu_ns() - from);
	return err;
}

static void must(int err, const char *what)
{
	if (err)
		bench_die("%s: %s", what, strerror(-err));
}

static void acknowledge(u32 client)
{
	struct bclient *b = &cl[client];

	while (b->nr_acks) {
		struct kvmm_ack_arg *a = (void *)args;
		u32 n;

		for (n = 0; n < BULK && b->nr_acks; n++) {
			u32 e = b->acks[--b->nr_acks];

			a[n] = (struct kvmm_ack_arg){ .extent = e,
				.what = KVMM_ACK_MAP,
				.generation = b->extents[e].generation };
		}
		must(request(K_ACK, client, KVMM_OP_EXTENT_ACK, n,
			     n * (u32)sizeof(*a)), "EXTENT_ACK");
	}
}

/* Go on with work that an event left.  Return: was there any? */
static bool poll_once(void)
{
	u64 from = cpu_ns();

	now += 1000;
	if (!core_poll(core, now))
		return false;
	note(K_MORE, cpu_ns() - from);
	return true;
}

/* Make, map and copy memory, until the core asks for no more. */
static void settle(void)
{
	u64 from;
	u32 i;

	while (nr_made || nr_copies || poll_once()) {
		now += 1000;
		from = cpu_ns();
		if (!nr_made && !nr_copies)
			continue;
		if (nr_made) {
			core_extent_created(core, now, made[--nr_made], 0);
			note(K_MADE, cpu_ns() - from);
		} else {
			core_copy_done(core, now, copies[--nr_copies], 0);
			note(K_COPY, cpu_ns() - from);
		}
		for (i = 0; i < nr_clients && !nr_made; i++)
			acknowledge(i);
	}
}

static void tick(void)
{
	u64 from;

	now += TICK_NS;
	from = cpu_ns();
	core_tick(core, now);
	note(K_TICK, cpu_ns() - from);
	settle();
}

/* ---- start and stop ---- */

static void *zeroes(u64 bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		bench_die("no memory for %llu bytes", (unsigned long long)bytes);
	return p;
}

static void attach(u32 client, u32 domains)
{
	struct kvmm_attach_req req = {
		.magic = KVMM_ATTACH_MAGIC, .abi_version = KVMM_ABI_VERSION,
		.layout_hash = KVMM_LAYOUT_HASH,
		.block_tokens = BT, .nr_shards = 1, .nr_groups = 1,
		.max_steps = 4, .weight = 100,
		.group[0] = { .layers = 32, .kv_heads = 8, .k_bytes = 256,
			      .v_bytes = 256 },
		.limits[0] = { .max = KVMM_LIMIT_MAX },
	};
	struct bclient *b = &cl[client];
	u8 secret[CORE_SECRET_LEN] = { 1 };
	struct core_bind bind;
	u32 nr_extents;

	snprintf(req.domain, sizeof(req.domain), "d%u", client % domains);
	must(core_client_attach(core, now, 0, secret, &req, &b->info),
	     "attach");
	nr_extents = b->info.nr_extents;
	b->status = zeroes(sizeof(*b->status) * nr_seqs);
	b->extents = zeroes(sizeof(*b->extents) * nr_extents);
	b->tables = zeroes(sizeof(*b->tables) * b->info.nr_tables);
	b->seqs = zeroes(sizeof(*b->seqs) * nr_seqs);
	b->acks = zeroes(sizeof(*b->acks) * nr_extents);
	bind = (struct core_bind){
		.ctl = &b->ctl, .seqs = b->status, .extents = b->extents,
		.tables = b->tables, .events = b->events,
		.nr_events = ARRAY_SIZE(b->events),
	};
	core_client_bind(core, b->info.client, &bind);
}

static void start(u32 domains)
{
	const u64 pool = 2ull * nr_clients * nr_seqs / EXT_BLOCKS * EXTENT;
	struct core_config cfg = {
		.pool_bytes = pool, .host_bytes = pool, .extent_size = EXTENT,
		.min_token_bytes = 131072, .max_tenants = 1,
		.max_domains = DOMAINS, .max_clients = CLIENTS,
		.max_seqs = nr_seqs, .max_steps = 4,
		.step_deadline_ns = 1ull << 62, .quiet_deadline_ns = 1ull << 62,
		.starve_ns = 10 * TICK_NS, .swappiness = 100,
		.watermark_scale_factor = 10,
	};
	u32 i;

	arena_bytes = core_arena_size(&cfg);
	arena = zeroes(arena_bytes);
	core = calloc(1, core_struct_size());
	cl = calloc(nr_clients, sizeof(*cl));
	made = calloc(pool / EXTENT, sizeof(*made));
	copies = calloc(COPIES, sizeof(*copies));
	if (!core || !cl || !made || !copies)
		bench_die("no memory");
	now = 1000000000;
	must(core_init(core, arena, arena_bytes, &cfg, &ops, NULL),
	     "core_init");
	for (i = 0; i < nr_clients; i++)
		attach(i, domains);
	settle();
}

static void stop(void)
{
	struct core_report report;
	u32 i;

	if (core_check(core, &report))
		bench_die("%s", report.text);
	for (i = 0; i < nr_clients; i++) {
		struct bclient *b = &cl[i];

		munmap(b->status, sizeof(*b->status) * nr_seqs);
		munmap(b->extents, sizeof(*b->extents) * b->info.nr_extents);
		munmap(b->tables, sizeof(*b->tables) * b->info.nr_tables);
		munmap(b->seqs, sizeof(*b->seqs) * nr_seqs);
		munmap(b->acks, sizeof(*b->acks) * b->info.nr_extents);
	}
	munmap(arena, arena_bytes);
	free(core);
	free(cl);
	free(made);
	free(copies);
}

/* ---- the load ---- */

static const struct kvmm_seq_status *status_of(u32 client, u32 i)
{
	return &cl[client].status[KVMM_SEQ_INDEX(cl[client].seqs[i].handle)];
}

/* Open the sequences that are missing, BULK at once. */
static void open_missing(u32 client)
{
	struct bclient *b = &cl[client];
	struct kvmm_open_arg *a = (void *)args;
	const struct kvmm_open_res *r = (void *)results;
	u32 i, n = 0;

	for (i = 0; i < nr_seqs; i++)
		if (!b->seqs[i].handle)
			a[n++] = (struct kvmm_open_arg){ .prompt_len = PROMPT,
							 .max_tokens = MORE };
	if (!n)
		return;
	must(request(K_OPEN, client, KVMM_OP_SEQ_OPEN, n,
		     n * (u32)sizeof(*a)), "SEQ_OPEN");
	for (i = 0, n = 0; i < nr_seqs; i++)
		if (!b->seqs[i].handle && !r[n++].status)
			b->seqs[i] = (struct bseq){ .handle = r[n - 1].seq };
}

/* Match sequences that have no ids yet, 64 at once. */
static void match_some(u32 client, u32 *from)
{
	struct kvmm_match_arg *a = (void *)args;
	u32 who[64], n = 0, i, k, *ids;

	for (; *from < nr_seqs && n < ARRAY_SIZE(who); ++*from) {
		u32 state = status_of(client, *from)->state;

		if (state == KVMM_SEQ_RECOMPUTE ||
		    (state == KVMM_SEQ_WAITING && !cl[client].seqs[*from].valid))
			who[n++] = *from;
	}
	ids = (u32 *)(a + n);
	for (i = 0; i < n; i++) {
		a[i] = (struct kvmm_match_arg){
			.seq = cl[client].seqs[who[i]].handle,
			.nr_ids = PROMPT, .flags = KVMM_MATCH_LAST };
		/* They have one block in common, as with a system prompt. */
		for (k = 0; k < PROMPT; k++)
			*ids++ = k < BT ? k : ++prompt_id;
		cl[client].seqs[who[i]].valid = 1;
	}
	if (n)
		must(request(K_MATCH, client, KVMM_OP_SEQ_MATCH, n, n *
			     ((u32)sizeof(*a) + 4 * PROMPT)), "SEQ_MATCH");
	settle();
}

/* Begin a step of READY sequences, from where the last step ended. */
static u32 begin(u32 client, u32 *who)
{
	struct bclient *b = &cl[client];
	struct kvmm_begin_arg *a = (void *)args;
	const struct kvmm_begin_res *r = (void *)results;
	u32 n = 0, i, k = 0;

	for (i = 0; i < nr_seqs && n < BATCH; i++) {
		u32 s = (b->cursor + i) % nr_seqs;
		const struct kvmm_seq_status *st = status_of(client, s);

		if (!b->seqs[s].handle || st->state != KVMM_SEQ_READY)
			continue;
		who[n] = s;
		a[n++] = (struct kvmm_begin_arg){ .seq = b->seqs[s].handle,
			.seq_epoch = st->seq_epoch, .start = st->valid_len,
			.max_tokens = st->valid_len < PROMPT ?
				      PROMPT - st->valid_len : 4 };
	}
	b->cursor = (b->cursor + i) % nr_seqs;
	if (!n)
		return 0;
	b->step++;
	b->open = true;
	must(request(K_BEGIN, client, KVMM_OP_STEP_BEGIN, n,
		     n * (u32)sizeof(*a)), "STEP_BEGIN");
	for (i = 0; i < n; i++) {
		if (r[i].status == -EAGAIN) {
			b->refused = b->seqs[who[i]].handle;
			b->refused_at = who[i];
		}
		if (!r[i].status) {
			b->seqs[who[i]].to = a[i].start + a[i].max_tokens;
			who[k++] = who[i];
		}
	}
	settle();
	return k;
}

/* Open a second step that names one refused sequence many times. */
static void name_refused(u32 client)
{
	struct bclient *b = &cl[client];
	struct kvmm_begin_arg *a = (void *)args;
	u32 i;

	if (!b->refused || status_of(client, b->refused_at)->state !=
	    KVMM_SEQ_READY)
		return;
	for (i = 0; i < BULK; i++) {
		const struct kvmm_seq_status *st =
			status_of(client, b->refused_at);

		a[i] = (struct kvmm_begin_arg){ .seq = b->refused,
			.seq_epoch = st->seq_epoch, .start = st->valid_len,
			.max_tokens = 4 };
	}
	b->step++;
	must(request(K_REFUSED, client, KVMM_OP_STEP_BEGIN, BULK,
		     BULK * (u32)sizeof(*a)), "STEP_BEGIN");
	b->refused = 0;
	settle();
	b->extra = true;
}

static void end(u32 client, const u32 *who, u32 nr)
{
	struct kvmm_end_arg *a = (void *)args;
	u32 i, k, total = 0, *ids = (u32 *)(a + nr);

	cl[client].open = false;
	for (i = 0; i < nr; i++) {
		struct bseq *s = &cl[client].seqs[who[i]];
		u32 from = status_of(client, who[i])->valid_len;

		a[i] = (struct kvmm_end_arg){ .seq = s->handle,
			.valid_len = s->to, .nr_ids = s->to - from };
		for (k = from; k < s->to; k++, total++)
			*ids++ = k < BT ? k : ++prompt_id;
	}
	must(request(K_END, client, KVMM_OP_STEP_END, nr,
		     nr * (u32)sizeof(*a) + 4 * total), "STEP_END");
	settle();
}

static void close_done(u32 client)
{
	u32 i;

	for (i = 0; i < nr_seqs; i++) {
		struct bseq *s = &cl[client].seqs[i];

		if (!s->handle || status_of(client, i)->valid_len <
		    PROMPT + MORE)
			continue;
		args[0] = s->handle;
		must(request(K_CLOSE, client, KVMM_OP_SEQ_CLOSE, 1, 8),
		     "SEQ_CLOSE");
		s->handle = 0;
		settle();
	}
}

static void work(u32 client)
{
	u32 who[BATCH], nr, from = 0;

	open_missing(client);
	while (from < nr_seqs)
		match_some(client, &from);
	nr = begin(client, who);
	name_refused(client);
	if (cl[client].open)
		end(client, who, nr);
	if (cl[client].extra)
		end(client, NULL, 0);
	cl[client].extra = false;
	close_done(client);
	tick();
}

/* ---- requests that no honest client sends ---- */

static void reverse_priorities(u32 client, u32 round)
{
	struct kvmm_prio_arg *a = (void *)args;
	u32 i, n = 0;

	for (i = 0; i < nr_seqs && n < BULK; i++)
		if (status_of(client, i)->state == KVMM_SEQ_WAITING ||
		    status_of(client, i)->state == KVMM_SEQ_SWAPPED)
			a[n++] = (struct kvmm_prio_arg){
				.seq = cl[client].seqs[i].handle,
				.priority = round % 2 ? 0 : 1 + i };
	if (n)
		must(request(K_PRIO, client, KVMM_OP_SEQ_SETPRIO, n,
			     n * (u32)sizeof(*a)), "SEQ_SETPRIO");
	settle();
}

/* Close the client's sequences, and fork the first one that is READY. */
static void fork_and_close(u32 client)
{
	struct bclient *b = &cl[client];
	struct kvmm_fork_arg *f = (void *)args;
	u32 i, n = 0, keep = CORE_NONE;
	u64 handle;

	for (i = 0; i < nr_seqs; i++) {
		if (keep == CORE_NONE && b->seqs[i].handle &&
		    status_of(client, i)->state == KVMM_SEQ_READY) {
			keep = i;
			continue;
		}
		if (b->seqs[i].handle)
			args[n++] = b->seqs[i].handle;
		b->seqs[i].handle = 0;
	}
	if (n)
		must(request(K_BULK_CLOSE, client, KVMM_OP_SEQ_CLOSE, n, 8 * n),
		     "SEQ_CLOSE");
	settle();
	if (keep == CORE_NONE)
		return;
	*f = (struct kvmm_fork_arg){ .seq = b->seqs[keep].handle,
				     .nr_children = min(nr_seqs / 2, 512u) };
	handle = f->seq;
	n = f->nr_children;
	must(request(K_FORK, client, KVMM_OP_SEQ_FORK, 1, sizeof(*f)),
	     "SEQ_FORK");
	for (i = 0; i < n; i++)
		args[i] = ((struct kvmm_open_res *)results)[i].seq;
	args[n++] = handle;
	b->seqs[keep].handle = 0;
	settle();
	must(request(K_BULK_CLOSE, client, KVMM_OP_SEQ_CLOSE, n, 8 * n),
	     "SEQ_CLOSE");
	settle();
}

/* ---- the report ---- */

static int cmp_u64(const void *a, const void *b)
{
	const u64 x = *(const u64 *)a, y = *(const u64 *)b;

	return (x > y) - (x < y);
}

static void report(u32 domains)
{
	const u32 seqs = nr_clients * nr_seqs;
	double worst = 0;
	char name[64];
	u32 k;

	printf("note: %u sequences, %u clients, %u domain%s: median, p99, max in us\n",
	       seqs, nr_clients, domains, domains == 1 ? "" : "s");
	for (k = 0; k < NR_KINDS; k++) {
		u32 n = nr_took[k];

		if (!n)
			continue;
		qsort(took[k], n, sizeof(**took), cmp_u64);
		printf("note:   %-38s %9.1f %9.1f %9.1f  (%u)\n", kind_text[k],
		       (double)took[k][n / 2] / 1000,
		       (double)took[k][(u64)n * 99 / 100] / 1000,
		       (double)took[k][n - 1] / 1000, n);
		worst = max(worst, (double)took[k][n - 1] / 1000);
		nr_took[k] = 0;
	}
	fflush(stdout);
	snprintf(name, sizeof(name), "longest event, %u sequences in %u domains",
		 seqs, domains);
	bench_report(&(struct bench_figure){ .name = name, .value = worst,
					     .unit = "us",
					     .max_value = GOAL_US });
}

static void run(u32 clients, u32 seqs, u32 domains)
{
	u32 round, i;

	nr_clients = clients;
	nr_seqs = seqs;
	start(domains);
	for (round = 0; round < 128 / clients + 4; round++) {
		for (i = 0; i < clients; i++)
			work(i);
		reverse_priorities(round % clients, round);
	}
	for (i = 0; i < min(clients, 4u); i++)
		fork_and_close(i);
	stop();
	report(domains);
}

/* With three numbers (clients, sequences of each, domains) run that load alone. */
int main(int argc, char **argv)
{
	if (argc == 4) {
		run((u32)atoi(argv[1]), (u32)atoi(argv[2]), (u32)atoi(argv[3]));
		return 0;
	}
	run(4, 64, 1);
	run(8, 256, 1);
	run(16, 1024, 1);
	run(32, 1024, 1);
	run(32, 1024, DOMAINS);
	return 0;
}
