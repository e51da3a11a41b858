// SPDX-License-Identifier: Apache-2.0
/*
 * tiers_node.c - a daemon with all tiers, and a client that uses them
 *
 * The device pool has room for one sequence and a little more, the host pool
 * for one, the area for two.  So the second sequence that goes out takes the host
 * slots of the first, and each that comes in is read from the area.
 *
 * The daemon's files tell when a stage was done.  They are read once a
 * millisecond; the times of copying and of the way out are no more exact.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kvmm/view.h>

#include "tests/bench/tiers.h"

#define POLL_US		1000
#define LIMIT_NS	60000000000ull
#define CHUNK		1024u		/* tokens of one step */
/* 31 slots with their headers lie in 8 extents of 8 MiB. */
#define HOST_BYTES	(DIV_ROUND_UP(TIERS_BLOCKS, 31u) * (64ull << 20))
/* Blocks that may still be in their host slots, and so are not read. */
#define HELD_MAX	31u
#define NR_TOKENS	(TIERS_BLOCKS * TIERS_TOKENS)

static void must(struct tiers_node *n, int err, const char *what)
{
	if (err)
		bench_die("%s: %s: %s (%s)", n->name, what, strerror(-err),
			  n->k ? kvmm_strerror_attach(n->k) : "");
}

/* ---- the daemon's files ---- */

/* Text of a file; free it with seq_free(). */
static void ask(struct tiers_node *n, const char *file, struct seq_file *m)
{
	char req[64];
	int status, err;

	seq_init(m, 1 << 20);
	snprintf(req, sizeof(req), "cat %s", file);
	err = kv_view_ask(n->view, req, 10000, &status, m);
	if (err || status)
		bench_die("%s: %s cannot be read: %s", n->name, file,
			  strerror(err ? -err : status));
}

/* Value of a column in the second line of a table. */
static u64 column_value(const char *text, const char *column)
{
	char line[2][1024], *save[2], *head, *cell;
	const char *end = strchr(text, '\n');

	if (!end || sscanf(text, "%1023[^\n]\n%1023[^\n]", line[0],
			   line[1]) != 2)
		return 0;
	head = strtok_r(line[0], " ", &save[0]);
	cell = strtok_r(line[1], " ", &save[1]);
	while (head && cell && strcmp(head, column)) {
		head = strtok_r(NULL, " ", &save[0]);
		cell = strtok_r(NULL, " ", &save[1]);
	}
	return head && cell ? strtoull(cell, NULL, 10) : 0;
}

static void look_stat(struct tiers_node *n, struct tiers_stats *s)
{
	struct seq_file m;

	ask(n, "swapstat", &m);
#define x(name) s->name = bench_key_value(m.buf, #name);
	TIERS_STATS(x)
#undef x
	seq_free(&m);
}

static void look(struct tiers_node *n, struct tiers_stats *s)
{
	struct seq_file m;

	look_stat(n, s);
	ask(n, "swapareas", &m);
	s->busy_ns = column_value(m.buf, "busy_ns");
	s->io_ns = column_value(m.buf, "rd_ns") +
		   column_value(m.buf, "wr_ns");
	seq_free(&m);
	s->cpu_ns = bench_cpu_ns(n->pid) + bench_cpu_ns((pid_t)s->pid);
}

static void phase_end(struct tiers_node *n, const struct tiers_stats *from,
		      struct tiers_phase *p)
{
	struct tiers_stats to;

	look(n, &to);
	p->copy_ns = to.copy_out_ns + to.copy_in_ns - from->copy_out_ns -
		     from->copy_in_ns;
	p->busy_ns = to.busy_ns - from->busy_ns;
	p->io_ns = to.io_ns - from->io_ns;
	p->cpu_ns = to.cpu_ns - from->cpu_ns;
}

/* ---- the daemon ---- */

static void area_add(struct tiers_node *n)
{
	const char *build = getenv("KVMM_BUILD");
	char cmd[600];

	snprintf(cmd, sizeof(cmd),
		 "'%s/kvctl' --socket '%s' swapon '%s/area' --size %llu >/dev/null",
		 build ? build : "build", n->d.dir, n->d.dir,
		 (unsigned long long)(TIERS_BYTES * 9 / 4));
	if (system(cmd))
		bench_die("%s: no area: room in %s?", n->name, n->d.dir);
}

static void attach(struct tiers_node *n)
{
	static const u8 identity[KVMM_IDENTITY_LEN] = { 1, 2, 3 };
	const struct kvmm_params p = {
		.socket = n->d.socket,
		.domain = "bench",
		.identity = identity,
		.block_tokens = TIERS_TOKENS,
		.group[0] = { .layers = TIERS_LAYERS, .kv_heads = 8,
			   .k_bytes = 256, .v_bytes = 256 },
		.max_bytes = KVMM_LIMIT_MAX,
		.max_seqs = 8,
	};
	char text[256];

	if (kvmm_attach(&p, &n->k, text))
		bench_die("%s: %s", n->name, text);
	if (kvmm_info(n->k)->block_bytes != TIERS_BLOCK)
		bench_die("a block has %llu bytes", (unsigned long long)
			  kvmm_info(n->k)->block_bytes);
}

static void look_pages(struct tiers_node *n)
{
	struct seq_file m;
	u64 huge, thp;

	ask(n, "meminfo", &m);
	huge = bench_key_value(m.buf, "HostHugetlb");
	thp = bench_key_value(m.buf, "HostShmemHuge");
	seq_free(&m);
	snprintf(n->pages, sizeof(n->pages), "%llu MiB of it on huge pages",
		 (unsigned long long)(huge + thp) >> 10);
}

void tiers_start(struct tiers_node *n, const char *name, const char *fault)
{
	char pool[32], host[32], area[32], token[32];
	const char *const args[] = {
		"--pool-size", pool, "--host-size", host, "--area-max", area,
		"--min-token-bytes", token, "--swappiness", "200",
		"--max-clients", "4", NULL,
	};
	int err;

	memset(n, 0, sizeof(*n));
	n->name = name;
	snprintf(pool, sizeof(pool), "%llu",
		 (unsigned long long)(TIERS_BYTES + (96 << 20)));
	snprintf(host, sizeof(host), "%llu",
		 (unsigned long long)HOST_BYTES);
	snprintf(area, sizeof(area), "%llu",
		 (unsigned long long)(TIERS_BYTES * 9 / 4));
	snprintf(token, sizeof(token), "%llu",
		 (unsigned long long)(TIERS_BLOCK / TIERS_TOKENS));
	if (fault)
		setenv("KVMM_FAULT", fault, 1);
	bench_hold_start(&n->d, args);
	unsetenv("KVMM_FAULT");
	err = kv_view_path(n->d.dir, n->view);
	must(n, err, "view socket");
	n->pid = bench_child(n->d.pid, "kvmm");
	area_add(n);
	look_pages(n);
	attach(n);
}

void tiers_stop(struct tiers_node *n)
{
	kvmm_detach(n->k);
	bench_daemon_stop(&n->d);
}

/* ---- the client ---- */

static u32 seq_state(struct tiers_node *n, u64 seq)
{
	struct kvmm_seq_status st;

	must(n, kvmm_seq_status(n->k, seq, &st), "status");
	if (st.state == KVMM_SEQ_FAILED || st.state == KVMM_SEQ_RECOMPUTE)
		bench_die("%s: a sequence lost its memory", n->name);
	return st.state;
}

static void await_ready(struct tiers_node *n, u64 seq)
{
	const u64 end = bench_now() + LIMIT_NS;

	while (seq_state(n, seq) != KVMM_SEQ_READY) {
		if (kvmm_wait(n->k, 10000000) == -ECONNRESET)
			must(n, -ECONNRESET, "wait");
		if (bench_now() > end)
			bench_die("%s: a sequence is not READY", n->name);
	}
}

/* One step of the prompt: report it as computed, without computing. */
static void prefill(struct tiers_node *n, u64 seq, u32 at, const u32 *ids)
{
	struct kvmm_seq_status st;
	struct kvmm_begin_arg b = { .seq = seq, .start = at,
				    .max_tokens = CHUNK };
	struct kvmm_end_arg e = { .seq = seq, .valid_len = at + CHUNK,
				  .nr_ids = CHUNK };
	struct kvmm_begin_res br;
	struct kvmm_end_res er;

	must(n, kvmm_seq_status(n->k, seq, &st), "status");
	b.seq_epoch = st.seq_epoch;
	must(n, kvmm_step_begin(n->k, ++n->step, &b, 1, &br), "STEP_BEGIN");
	must(n, br.status, "grant");
	kvmm_release(n->k);
	must(n, kvmm_step_end(n->k, n->step, 1000, CHUNK, &e, 1, ids + at,
			      &er), "STEP_END");
	must(n, er.status, "end of a step");
	kvmm_release(n->k);
}

/* Where block @i of a sequence lies. */
static u64 *block_at(struct tiers_node *n, const u32 *table, u32 i)
{
	return (u64 *)((char *)kvmm_pool(n->k) +
		       (u64)table[i] * kvmm_info(n->k)->unit);
}

static void get_table(struct tiers_node *n, u64 seq, u32 *table)
{
	int err = kvmm_seq_table(n->k, seq, 0, 0, TIERS_BLOCKS, table);

	must(n, err, "table");
}

u64 tiers_open(struct tiers_node *n, u64 seed)
{
	static u32 ids[NR_TOKENS], table[TIERS_BLOCKS];
	const struct kvmm_open_arg arg = {
		.prompt_len = NR_TOKENS, .max_tokens = 1,
		.flags = KVMM_OPEN_NO_MATCH | KVMM_OPEN_NO_INDEX,
	};
	struct kvmm_open_res res;
	u32 i;

	for (i = 0; i < NR_TOKENS; i++)
		ids[i] = (u32)seed * NR_TOKENS + i;
	must(n, kvmm_seq_open(n->k, &arg, 1, &res), "SEQ_OPEN");
	must(n, res.status, "open");
	kvmm_release(n->k);
	must(n, kvmm_seq_match(n->k, res.seq, ids, NR_TOKENS), "SEQ_MATCH");
	kvmm_release(n->k);
	await_ready(n, res.seq);
	for (i = 0; i < NR_TOKENS; i += CHUNK)
		prefill(n, res.seq, i, ids);
	get_table(n, res.seq, table);
	for (i = 0; i < TIERS_BLOCKS; i++)
		tiers_fill(block_at(n, table, i), seed, i);
	return res.seq;
}

static int advise(struct tiers_node *n, u64 seq, u32 advice)
{
	struct kvmm_done done;
	struct kvmm_advise_arg *arg;
	void *args;
	int got, status;

	if (!kvmm_prep(n->k, KVMM_OP_SEQ_ADVISE, 1, sizeof(*arg), &args))
		bench_die("%s: the ring is full", n->name);
	arg = args;
	*arg = (struct kvmm_advise_arg){ .seq = seq, .advice = advice };
	kvmm_submit(n->k);
	while (!(got = kvmm_reap(n->k, &done)))
		(void)kvmm_wait(n->k, 10000000);
	must(n, got < 0 ? got : done.status, "ADVISE");
	status = ((const struct kvmm_seq_res *)done.results)->status;
	kvmm_release(n->k);
	return status;
}

/* Wait until the copier has copied, and swapd written, one sequence more. */
static void await_out(struct tiers_node *n, const struct tiers_stats *from,
		      u64 start, struct tiers_phase *p)
{
	struct tiers_stats s;

	p->copied = 0;
	do {
		usleep(POLL_US);
		look_stat(n, &s);
		p->ns = bench_now() - start;
		if (!p->copied &&
		    s.copy_out_bytes - from->copy_out_bytes >= TIERS_BYTES)
			p->copied = p->ns;
		if (p->ns > LIMIT_NS)
			bench_die("%s: %llu of %u blocks are in the area after 60 s",
				  n->name, (unsigned long long)
				  (s.swapd_writes - from->swapd_writes),
				  TIERS_BLOCKS);
	} while (s.swapd_writes - from->swapd_writes < TIERS_BLOCKS);
}

void tiers_out(struct tiers_node *n, u64 seq, struct tiers_phase *p)
{
	struct tiers_stats from;
	u64 start;

	look(n, &from);
	start = bench_now();
	must(n, advise(n, seq, KVMM_ADV_PAGEOUT), "PAGEOUT");
	await_out(n, &from, start, p);
	phase_end(n, &from, p);
}

void tiers_in(struct tiers_node *n, u64 seq, struct tiers_phase *p)
{
	struct tiers_stats from, to;
	u64 start;

	look(n, &from);
	start = bench_now();
	must(n, advise(n, seq, KVMM_ADV_WILLNEED), "WILLNEED");
	await_ready(n, seq);
	p->ns = bench_now() - start;
	p->copied = p->ns;
	phase_end(n, &from, p);
	look_stat(n, &to);
	if (to.swapd_reads - from.swapd_reads < TIERS_BLOCKS - HELD_MAX)
		bench_die("%s: only %llu blocks of %u were read from the area",
			  n->name, (unsigned long long)
			  (to.swapd_reads - from.swapd_reads), TIERS_BLOCKS);
}

void tiers_close(struct tiers_node *n, u64 seq, u64 seed)
{
	static u32 table[TIERS_BLOCKS];
	u32 i;

	get_table(n, seq, table);
	for (i = 0; i < TIERS_BLOCKS; i++)
		tiers_verify(block_at(n, table, i), seed, i, n->name);
	must(n, kvmm_seq_close(n->k, &seq, 1), "SEQ_CLOSE");
	kvmm_release(n->k);
}
