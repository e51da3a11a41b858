// SPDX-License-Identifier: Apache-2.0
/*
 * bench_lookup.c - SEQ_LOOKUP while sequences wait for memory
 *
 * Running sequences hold the whole pool, and waiting ones want twice as much
 * again.  Another client of the domain, like a router or another engine, looks
 * up prompts of 2,000 tokens: those that run, which are found whole, and those
 * that wait, which are not found.  Lookups and NOPs take turns, one by one, so
 * that both see the same machine.  The aim is that a lookup takes at most ten
 * times as long as a NOP, at the 99th percentile, and that none waits: the
 * longest is told.  A match of such a prompt would wait for memory.
 *
 * The same for a prompt of 32,768 tokens, which is found whole, is for
 * information: it is hashed and sent in pieces.
 */
#include <string.h>

#include "tests/bench/bench.h"
#include "tests/cache_probe.h"

#define PROMPT		2000u
#define LONG		32768u
#define NR_RUN		32u		/* prompts that are held */
#define NR_WAIT		98u		/* and that wait: three times the pool in all */
#define ROUNDS		10u
#define PER_ROUND	1000u		/* lookups, and as many NOPs */

static struct bench_series series[] = {
	{ .name = "NOP" }, { .name = "lookup_2000" },
	{ .name = "NOP beside it" }, { .name = "lookup_32768" },
};
static u64 longest[2];
static u64 found_tokens, nr_lookups;

/* Prompts that run, the long one, and those that wait. */
static u32 prompts[NR_RUN][PROMPT], long_prompt[LONG], waiters[NR_WAIT][PROMPT];

static u32 *prompt(u32 number)
{
	return number < NR_RUN ? prompts[number] : number == NR_RUN ? long_prompt :
		waiters[number - NR_RUN - 1];
}

static void prompts_draw(void)
{
	u64 x = 1;
	u32 n, i;

	for (n = 0; n <= NR_RUN + NR_WAIT; n++)
		for (i = 0; i < (n == NR_RUN ? LONG : PROMPT); i++) {
			x = x * 6364136223846793005ull + 1442695040888963407ull;
			prompt(n)[i] = (u32)(x >> 40);
		}
}

/* ---- the load ---- */

/* The daemon keeps 131,040 ids of waiting sequences for a client. */
static u64 seq_begin(struct kvmm *k, u32 number, u32 len)
{
	const struct kvmm_open_arg arg = { .prompt_len = len };
	struct kvmm_open_res res;

	CP_MUST(!kvmm_seq_open(k, &arg, 1, &res) && !res.status);
	CP_MUST(!kvmm_seq_match(k, res.seq, prompt(number), len));
	return res.seq;
}

/* Compute a prompt and keep its sequence. */
static void hold(struct kvmm *k, u32 number, u32 len)
{
	static u64 step;
	struct kvmm_seq_status st;
	u64 seq = seq_begin(k, number, len);
	struct kvmm_begin_arg begin = { .seq = seq, .max_tokens = len };
	struct kvmm_end_arg end = { .seq = seq, .valid_len = len, .nr_ids = len };
	struct kvmm_begin_res bres;
	struct kvmm_end_res eres;

	for (;;) {
		CP_MUST(!kvmm_seq_status(k, seq, &st));
		if (st.state == KVMM_SEQ_READY)
			break;
		CP_MUST(kvmm_wait(k, 1000000) != -ECONNRESET);
	}
	begin.seq_epoch = st.seq_epoch;
	CP_MUST(!kvmm_step_begin(k, ++step, &begin, 1, &bres) && !bres.status);
	CP_MUST(!kvmm_step_end(k, step, 1000, len, &end, 1, prompt(number), &eres) &&
		!eres.status);
}

static u32 nr_waiting(struct kvmm *const *queue, const u64 *seqs)
{
	struct kvmm_seq_status st;
	u32 i, n = 0;

	for (i = 0; i < NR_WAIT; i++) {
		CP_MUST(!kvmm_seq_status(queue[i % 2], seqs[i], &st));
		n += st.state == KVMM_SEQ_WAITING;
	}
	return n;
}

/* ---- lookups ---- */

/* Ticks of one lookup; @len tokens are found, or none. */
static u64 lookup(struct kvmm *k, const u32 *ids, u32 len, u32 want)
{
	u64 began = bench_ticks(), ticks;
	struct kvmm_found found;

	CP_MUST(!kvmm_lookup(k, 0, ids, len, &found));
	ticks = bench_ticks() - began;
	CP_MUST(found.found == want && found.ready == want);
	found_tokens += found.found;
	nr_lookups++;
	return ticks;
}

static u64 nop(struct kvmm *k)
{
	u64 began = bench_ticks();

	CP_MUST(!kvmm_nop(k));
	return bench_ticks() - began;
}

/* Lookup @i of a round; three of four short prompts are found. */
static void lookup_turn(struct kvmm *k, u32 which, u32 i, struct bench_samples *s)
{
	const u32 number = i % 4 ? i % NR_RUN : NR_RUN + 1 + i % NR_WAIT;
	u64 ticks;

	ticks = which ? lookup(k, long_prompt, LONG, LONG) :
			lookup(k, prompt(number), PROMPT, i % 4 ? PROMPT : 0);
	bench_add(s, ticks);
	longest[which] = max(longest[which], ticks);
}

/*
 * Lookups and NOPs in turns; each goes first as often, since the daemon may sleep
 * before a pair.  @which: 0: short prompts, 1: the long one.
 */
static void round_run(struct kvmm *k, u32 which, struct bench_samples *s)
{
	u32 i;

	for (i = 0; i < PER_ROUND; i++) {
		if (i / 4 % 2)
			lookup_turn(k, which, i, &s[1]);
		bench_add(&s[0], nop(k));
		if (i / 4 % 2 == 0)
			lookup_turn(k, which, i, &s[1]);
	}
	bench_round(&series[2 * which], &s[0]);
	bench_round(&series[2 * which + 1], &s[1]);
}

static void report(u32 which)
{
	const struct bench_series *nops = &series[2 * which], *s = &series[2 * which + 1];
	const double p99 = bench_median(s->p99, s->rounds);
	const double nop_p99 = bench_median(nops->p99, nops->rounds);
	char name[64];

	printf("note: %s: p50 %.2f us, p99 %.2f us, longest %.2f us; NOP: p50 %.2f us, p99 %.2f us; p99 is %.1f times\n",
	       s->name, bench_median(s->p50, s->rounds), p99,
	       (double)longest[which] * bench_tick_ns() / 1000,
	       bench_median(nops->p50, nops->rounds), nop_p99, p99 / nop_p99);
	snprintf(name, sizeof(name), "%s_p99", s->name);
	bench_report(&(struct bench_figure){ .name = name, .value = p99, .unit = "us",
		.peer = "NOP in turns", .peer_value = nop_p99,
		.max_ratio = which ? 0 : 10, .series = s });
}

int main(void)
{
	/*
	 * 6,144 blocks: the held prompts take 2,048 and 32 times 125 of them.  The
	 * sequences that hold them run no step, and are not preempted for that.
	 */
	static const char * const args[] = {
		"--pool-size", "6M", "--extent-size", "64K",
		"--min-token-bytes", "64", "--host-size", "0",
		"--starve-ms", "3600000", NULL,
	};
	u64 waiting[NR_WAIT];
	struct bench_samples s[2];
	struct bench_daemon d;
	struct kvmm *k, *queue[2], *looker;
	u32 i;

	prompts_draw();
	bench_daemon_start(&d, args);
	k = cp_attach(d.socket);
	for (i = 0; i < 2; i++)
		queue[i] = cp_attach(d.socket);
	looker = cp_attach(d.socket);
	hold(k, NR_RUN, LONG);
	for (i = 0; i < NR_RUN; i++)
		hold(k, i, PROMPT);
	for (i = 0; i < NR_WAIT; i++)
		waiting[i] = seq_begin(queue[i % 2], NR_RUN + 1 + i, PROMPT);
	printf("note: %u sequences run, %u wait\n", NR_RUN + 1,
	       nr_waiting(queue, waiting));
	for (i = 0; i < 2; i++)
		bench_samples_init(&s[i], PER_ROUND);
	for (i = 0; i < ROUNDS; i++)
		round_run(looker, 0, s);
	for (i = 0; i < ROUNDS; i++)
		round_run(looker, 1, s);
	CP_MUST(nr_waiting(queue, waiting) == NR_WAIT);
	printf("note: %llu lookups, of %.0f tokens found on average\n",
	       (unsigned long long)nr_lookups, (double)found_tokens / (double)nr_lookups);
	report(0);
	report(1);
	for (i = 0; i < 2; i++)
		bench_samples_free(&s[i]);
	kvmm_detach(looker);
	for (i = 0; i < 2; i++)
		kvmm_detach(queue[i]);
	kvmm_detach(k);
	bench_daemon_stop(&d);
	return 0;
}
