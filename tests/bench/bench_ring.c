// SPDX-License-Identifier: Apache-2.0
/*
 * bench_ring.c - cost of a request, from submission to its result
 *
 * A real daemon answers on one side of the rings, this process asks on the
 * other: NOP, and pairs of STEP_BEGIN and STEP_END in which 1 to 1024
 * sequences decode one token each, as an engine does all day.  There are two
 * daemons: one spins and its client too; the other sleeps when it is idle, and
 * its client too.
 *
 * No request can be faster than the peers: two processes that bounce a word of
 * shared memory, spinning; and two that wake each other by eventfds.  All of
 * them take turns in rounds of the same run.
 *
 * Sequences are staggered, so that every step seals some blocks, and closed at
 * the end of each round.  Their cached blocks fill the pool in the first rounds.
 * Later rounds evict a block for each that they take, as a busy daemon does.  KV
 * is 64 bytes a token, to keep the pool small; all memory is made and mapped
 * before the first round.
 */
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kvmm/ring.h>

#include "tests/bench/bench.h"

#define ROUNDS		7
#define MAX_SEQS	1024
#define BLOCK_TOKENS	16
#define TOKEN_BYTES	64
#define PROMPT		32		/* and up to BLOCK_TOKENS - 1 more */
#define MAX_TOKENS	4096
#define SAMPLES_MAX	50000
#define SETTLE_US	20000		/* for a spinning daemon to fall asleep */

/* ---- peers ---- */

struct pingpong {
	u32	ping __attribute__((aligned(64)));
	u32	pong __attribute__((aligned(64)));
};

struct peers {
	struct pingpong	*word;
	int		ping_fd;
	int		pong_fd;
	pid_t		spinner;
	pid_t		sleeper;
};

/* Answers in memory; between rounds it stops itself and is continued. */
static void __noreturn spinner_main(struct pingpong *w)
{
	u32 last = 0, now;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;) {
		while ((now = load_acquire(&w->ping)) == last)
			cpu_relax();
		last = now;
		store_release(&w->pong, now);
		if (!now)
			raise(SIGSTOP);
	}
}

static void __noreturn sleeper_main(const struct peers *p)
{
	u64 v;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (read(p->ping_fd, &v, sizeof(v)) == sizeof(v) &&
	       write(p->pong_fd, &v, sizeof(v)) == sizeof(v))
		;
	_exit(0);
}

static void peers_start(struct peers *p)
{
	p->word = mmap(NULL, sizeof(*p->word), PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	p->ping_fd = eventfd(0, EFD_CLOEXEC);
	p->pong_fd = eventfd(0, EFD_CLOEXEC);
	if (p->word == MAP_FAILED || p->ping_fd < 0 || p->pong_fd < 0)
		bench_die("peers: %s", strerror(errno));
	p->spinner = fork();
	if (!p->spinner)
		spinner_main(p->word);
	p->sleeper = fork();
	if (!p->sleeper)
		sleeper_main(p);
	if (p->spinner < 0 || p->sleeper < 0)
		bench_die("fork: %s", strerror(errno));
	kill(p->spinner, SIGSTOP);
}

static void peers_stop(struct peers *p)
{
	kill(p->spinner, SIGKILL);
	kill(p->sleeper, SIGKILL);
	waitpid(p->spinner, NULL, 0);
	waitpid(p->sleeper, NULL, 0);
	close(p->ping_fd);
	close(p->pong_fd);
	munmap(p->word, sizeof(*p->word));
}

static void bounce(struct pingpong *w, u32 i)
{
	store_release(&w->ping, i);
	while (load_acquire(&w->pong) != i)
		cpu_relax();
}

static void run_spin_peer(struct peers *p, struct bench_samples *s, u32 n)
{
	u64 start;
	u32 i;

	kill(p->spinner, SIGCONT);
	for (i = 1; i <= n + n / 10; i++) {
		start = bench_ticks();
		bounce(p->word, i);
		if (i > n / 10)
			bench_add(s, bench_ticks() - start);
	}
	/* Zero makes the spinner stop; wait until it has. */
	bounce(p->word, 0);
	waitpid(p->spinner, NULL, WUNTRACED);
}

static void run_eventfd_peer(struct peers *p, struct bench_samples *s, u32 n)
{
	u64 start, v;
	u32 i;

	for (i = 0; i < n + n / 10; i++) {
		v = 1;
		start = bench_ticks();
		if (write(p->ping_fd, &v, sizeof(v)) != sizeof(v) ||
		    read(p->pong_fd, &v, sizeof(v)) != sizeof(v))
			bench_die("eventfd: %s", strerror(errno));
		if (i >= n / 10)
			bench_add(s, bench_ticks() - start);
	}
}

/* ---- a client ---- */

struct client {
	struct kvmm	*k;
	u64		step;
	u64		seq[MAX_SEQS];
	u32		epoch[MAX_SEQS];
	u32		len[MAX_SEQS];
	u32		who[MAX_SEQS];
	u32		late;	/* steps in which a sequence found no memory */
	struct kvmm_begin_arg begin[MAX_SEQS];
	struct kvmm_begin_res begin_res[MAX_SEQS];
	struct kvmm_end_arg end[MAX_SEQS];
	struct kvmm_end_res end_res[MAX_SEQS];
	u32		ids[MAX_SEQS * (PROMPT + BLOCK_TOKENS)];
};

static void must(struct client *c, int ret, const char *what)
{
	if (ret == -ECONNRESET)
		bench_die("%s: %s", what, kvmm_strerror_attach(c->k));
	if (ret)
		bench_die("%s: %s", what, strerror(-ret));
}

static void client_attach(struct client *c, const struct bench_daemon *d,
			  u32 spin)
{
	const u8 identity[KVMM_IDENTITY_LEN] = "bench_ring";
	const struct kvmm_params p = {
		.socket = d->socket,
		.domain = "bench",
		.identity = identity,
		.block_tokens = BLOCK_TOKENS,
		.group[0] = { .layers = 1, .kv_heads = 1, .k_bytes = TOKEN_BYTES / 2,
			   .v_bytes = TOKEN_BYTES / 2 },
		.max_bytes = KVMM_LIMIT_MAX,
		.max_seqs = MAX_SEQS,
		.spin = spin,
	};
	char text[256];

	if (kvmm_attach(&p, &c->k, text))
		bench_die("%s", text);
	if (kvmm_info(c->k)->max_seqs < MAX_SEQS ||
	    kvmm_info(c->k)->max_batch < MAX_SEQS)
		bench_die("the daemon grants fewer than %u sequences", MAX_SEQS);
}

static u32 prompt_len(u32 i)
{
	return PROMPT + i % BLOCK_TOKENS;
}

/* Wait until sequence @i may run. */
static void await_ready(struct client *c, u32 i)
{
	struct kvmm_seq_status st;

	for (;;) {
		must(c, kvmm_seq_status(c->k, c->seq[i], &st), "status");
		if (st.state == KVMM_SEQ_READY)
			break;
		if (st.state != KVMM_SEQ_WAITING)
			bench_die("sequence %u is in state %u: %s", i, st.state,
				  strerror(-st.reason));
		if (kvmm_wait(c->k, 10000000) == -ECONNRESET)
			must(c, -ECONNRESET, "wait");
	}
	c->epoch[i] = st.seq_epoch;
	c->len[i] = st.valid_len;
}

static void open_seqs(struct client *c, u32 n, u32 round)
{
	static struct kvmm_open_arg arg[MAX_SEQS];
	static struct kvmm_open_res res[MAX_SEQS];
	u32 i, j;

	for (i = 0; i < n; i++)
		arg[i] = (struct kvmm_open_arg) {
			.prompt_len = prompt_len(i),
			.max_tokens = MAX_TOKENS,
			.salt = round * MAX_SEQS + i + 1,
		};
	must(c, kvmm_seq_open(c->k, arg, n, res), "SEQ_OPEN");
	for (i = 0; i < n; i++) {
		must(c, res[i].status, "SEQ_OPEN entry");
		c->seq[i] = res[i].seq;
		for (j = 0; j < prompt_len(i); j++)
			c->ids[j] = i * 1000 + j;
		must(c, kvmm_seq_match(c->k, c->seq[i], c->ids, prompt_len(i)),
		     "SEQ_MATCH");
	}
	for (i = 0; i < n; i++)
		await_ready(c, i);
}

/* Fill the entries of a step: @each tokens a sequence, or the rest of its prompt. */
static u32 fill_step(struct client *c, u32 n, u32 each)
{
	u32 i, nr = 0, tokens;

	for (i = 0; i < n; i++) {
		tokens = each ? each : prompt_len(i) - c->len[i];
		if (!tokens)
			continue;
		c->who[nr] = i;
		c->begin[nr++] = (struct kvmm_begin_arg) {
			.seq = c->seq[i],
			.seq_epoch = c->epoch[i],
			.start = c->len[i],
			.max_tokens = tokens,
		};
	}
	return nr;
}

/*
 * Run one step.  A sequence that finds no memory yet, because an extent is still
 * being made, is left for the next one.  Return: number of these sequences.
 */
static u32 run_step(struct client *c, u32 n, u32 each)
{
	const u32 nr = fill_step(c, n, each);
	u32 i, nr_end = 0, *len;

	c->step++;
	must(c, kvmm_step_begin(c->k, c->step, c->begin, nr, c->begin_res),
	     "STEP_BEGIN");
	for (i = 0; i < nr; i++) {
		if (c->begin_res[i].status == -EAGAIN)
			continue;
		must(c, c->begin_res[i].status, "STEP_BEGIN entry");
		len = &c->len[c->who[i]];
		*len += c->begin[i].max_tokens;
		c->end[nr_end++] = (struct kvmm_end_arg) {
			.seq = c->begin[i].seq,
			.valid_len = *len,
			.nr_ids = c->begin[i].max_tokens,
		};
	}
	must(c, kvmm_step_end(c->k, c->step, 0, 0, c->end, nr_end, c->ids,
			      c->end_res), "STEP_END");
	for (i = 0; i < nr_end; i++)
		must(c, c->end_res[i].status, "STEP_END entry");
	return nr - nr_end;
}

static void run_nops(struct client *c, struct bench_samples *s, u32 n)
{
	u64 start;
	u32 i;

	for (i = 0; i < n + n / 10; i++) {
		start = bench_ticks();
		must(c, kvmm_nop(c->k), "NOP");
		if (i >= n / 10)
			bench_add(s, bench_ticks() - start);
	}
}

/* Let the daemon's slower threads work, and map the extents they made. */
static void breathe(struct client *c)
{
	if (kvmm_wait(c->k, 1000000) == -ECONNRESET)
		must(c, -ECONNRESET, "wait");
	usleep(1000);
}

/* Fill half of the pool; after two calls no extent has to be made or mapped. */
static void warm_up(struct client *c, u32 round)
{
	const u64 tokens = kvmm_info(c->k)->pool_bytes / TOKEN_BYTES;
	u32 i;

	open_seqs(c, MAX_SEQS, round);
	for (i = 0; i < tokens / MAX_SEQS / 2; i++) {
		while (run_step(c, MAX_SEQS, i ? 1 : 0))
			breathe(c);
	}
	must(c, kvmm_seq_close(c->k, c->seq, MAX_SEQS), "SEQ_CLOSE");
}

/* Run @steps decode steps of @n sequences; CPU of the daemon goes to @cpu_ns. */
static void run_pairs(struct client *c, const struct bench_daemon *d,
		      struct bench_samples *s, u32 n, u32 steps, u32 round,
		      u64 *cpu_ns)
{
	u64 start, cpu;
	u32 i;

	open_seqs(c, n, round);
	while (run_step(c, n, 0))
		breathe(c);
	for (i = 0; i < steps / 10; i++)
		run_step(c, n, 1);
	cpu = bench_daemon_cpu_ns(d);
	for (i = 0; i < steps; i++) {
		start = bench_ticks();
		if (run_step(c, n, 1))
			c->late++;
		else
			bench_add(s, bench_ticks() - start);
	}
	*cpu_ns += bench_daemon_cpu_ns(d) - cpu;
	must(c, kvmm_seq_close(c->k, c->seq, n), "SEQ_CLOSE");
}

/* ---- the run ---- */

static const struct {
	u32	seqs;
	u32	spin_steps;
	u32	sleep_steps;
} loads[] = {
	{ 1,	3000,	1000 },
	{ 64,	2000,	500 },
	{ 256,	1000,	300 },
	{ 1024,	300,	100 },
};

#define NR_LOADS	ARRAY_SIZE(loads)

static struct {
	struct bench_series	bare;
	struct bench_series	eventfd;
	struct bench_series	nop[2];
	struct bench_series	pair[2][NR_LOADS];
	u64			cpu_ns[2][NR_LOADS];
} all = {
	.bare = { .name = "shared memory ping-pong, spinning" },
	.eventfd = { .name = "eventfd ping-pong" },
	.nop = { { .name = "ring_nop_spin" }, { .name = "ring_nop_sleep" } },
	.pair = {
		{ { .name = "ring_step_1_spin" }, { .name = "ring_step_64_spin" },
		  { .name = "ring_step_256_spin" },
		  { .name = "ring_step_1024_spin" } },
		{ { .name = "ring_step_1_sleep" },
		  { .name = "ring_step_64_sleep" },
		  { .name = "ring_step_256_sleep" },
		  { .name = "ring_step_1024_sleep" } },
	},
};

static void run_round(struct peers *p, struct client c[2],
		      const struct bench_daemon d[2], struct bench_samples *s,
		      u32 round)
{
	u32 i;

	run_spin_peer(p, s, 20000);
	bench_round(&all.bare, s);
	run_nops(&c[0], s, 20000);
	bench_round(&all.nop[0], s);
	for (i = 0; i < NR_LOADS; i++) {
		run_pairs(&c[0], &d[0], s, loads[i].seqs, loads[i].spin_steps,
			  round, &all.cpu_ns[0][i]);
		bench_round(&all.pair[0][i], s);
	}

	usleep(SETTLE_US);
	run_eventfd_peer(p, s, 2000);
	bench_round(&all.eventfd, s);
	run_nops(&c[1], s, 2000);
	bench_round(&all.nop[1], s);
	for (i = 0; i < NR_LOADS; i++) {
		run_pairs(&c[1], &d[1], s, loads[i].seqs, loads[i].sleep_steps,
			  round, &all.cpu_ns[1][i]);
		bench_round(&all.pair[1][i], s);
	}
}

static void print_row(const struct bench_series *s)
{
	double lo, hi;

	bench_range(s->p50, s->rounds, &lo, &hi);
	printf("%-36s p50 %9.3f us (%9.3f to %9.3f)  p99 %9.3f us\n", s->name,
	       bench_median(s->p50, s->rounds), lo, hi,
	       bench_median(s->p99, s->rounds));
}

static double p50(const struct bench_series *s)
{
	return bench_median(s->p50, s->rounds);
}

static void report_series(const struct bench_series *s, const char *peer,
			  double peer_us, double max_ratio, double max_us)
{
	const struct bench_figure f = {
		.name = s->name,
		.value = p50(s),
		.unit = "us",
		.peer = peer,
		.peer_value = peer_us,
		.max_ratio = max_ratio,
		.max_value = max_us,
		.series = s,
	};

	print_row(s);
	bench_report(&f);
}

static void report_daemon(u32 load)
{
	char name[64];
	const struct bench_figure f = {
		.name = name,
		.value = (double)all.cpu_ns[1][load] / 1000 /
			 (ROUNDS * loads[load].sleep_steps),
		.unit = "us",
	};

	if (!all.cpu_ns[1][load])
		return;
	snprintf(name, sizeof(name), "ring_step_%u_daemon_cpu",
		 loads[load].seqs);
	printf("%-36s     %9.3f us a pair, while sleeping between\n", name,
	       f.value);
	bench_report(&f);
}

static void report_all(void)
{
	u32 i;

	print_row(&all.bare);
	print_row(&all.eventfd);
	report_series(&all.nop[0], all.bare.name, p50(&all.bare), 3, 0);
	report_series(&all.nop[1], all.eventfd.name, p50(&all.eventfd), 0, 0);
	for (i = 0; i < NR_LOADS; i++)
		report_series(&all.pair[0][i], "two such ping-pongs, spinning",
			      2 * p50(&all.bare), 0,
			      loads[i].seqs == 256 ? 50 : 0);
	for (i = 0; i < NR_LOADS; i++)
		report_series(&all.pair[1][i], "two eventfd ping-pongs",
			      2 * p50(&all.eventfd), 0, 0);
	for (i = 0; i < NR_LOADS; i++)
		report_daemon(i);
}

int main(void)
{
	static const char *const spins[] = { "20000", "0" };
	static struct client clients[2];
	struct bench_daemon daemons[2];
	struct bench_samples samples;
	struct peers peers;
	u32 i;

	bench_samples_init(&samples, SAMPLES_MAX);
	peers_start(&peers);
	for (i = 0; i < 2; i++) {
		const char *const args[] = {
			"--pool-size", "64M", "--extent-size", "1M",
			"--min-token-bytes", "64", "--spin", spins[i], NULL,
		};

		bench_daemon_start(&daemons[i], args);
		client_attach(&clients[i], &daemons[i],
			      i ? 0 : KVMM_SPIN_FOREVER);
		warm_up(&clients[i], ROUNDS);
		warm_up(&clients[i], ROUNDS + 1);
	}
	for (i = 0; i < ROUNDS; i++)
		run_round(&peers, clients, daemons, &samples, i);
	report_all();
	for (i = 0; i < 2; i++) {
		kvmm_detach(clients[i].k);
		bench_daemon_stop(&daemons[i]);
	}
	if (clients[0].late || clients[1].late)
		printf("%u steps are not counted: somebody waited for an extent\n",
		       clients[0].late + clients[1].late);
	peers_stop(&peers);
	bench_samples_free(&samples);
	return 0;
}
