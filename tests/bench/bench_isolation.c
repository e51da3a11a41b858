// SPDX-License-Identifier: Apache-2.0
/*
 * bench_isolation.c - does the time of an answer reveal cached prompts of others?
 *
 * The program of one user has cached prompts.  Another user's program asks for
 * these prompts, for as many that are cached nowhere, and for as many that it has
 * cached itself, thousands of times in random order.  It takes the time of the
 * whole question, from OPEN to CLOSE, and of MATCH alone until READY.  For two
 * kinds of questions the figure is how well a single time tells them apart: the
 * area under the ROC curve less 0.5, which is 0 when the time reveals nothing
 * and 0.5 when it reveals all.  The goal is four standard deviations for this
 * many samples: chance alone stays below.
 *
 * Prompts that the program has cached itself are the control: there the time
 * must differ, or the clock would be too coarse.
 *
 * All prompts of a round are asked for once, in a new random order, so that the
 * processor caches know all kinds equally well.
 */
#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bench/bench.h"
#include "tests/cache_probe.h"
#include "tests/other_user.h"

#define OTHER_UID	10001
#define PROMPTS		64u
#define ROUNDS		120u
#define SAMPLES		(PROMPTS * ROUNDS)

enum kind { OTHERS, NOBODYS, OWN, NR_KINDS };

/* Times of one kind, in ticks. */
static u64 match_ticks[NR_KINDS][SAMPLES], ask_ticks[NR_KINDS][SAMPLES];
static u32 nr_ticks[NR_KINDS];

static u32 draw(u32 n)
{
	static u64 state = 88172645463325252ull;

	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (u32)(state % n);
}

/* The other user: caches its prompts, reports that, and stays. */
static void __noreturn other_main(const char *socket, int up)
{
	struct kvmm *k;
	char way[64];
	u32 i;

	CP_MUST(other_user(OTHER_UID, socket, way, sizeof(way)));
	k = cp_attach(way);
	for (i = 0; i < PROMPTS; i++)
		cp_fill(k, OTHERS * PROMPTS + i, 0);
	for (i = 0; i < PROMPTS; i++)
		CP_MUST(cp_ask(k, OTHERS * PROMPTS + i, 0) == CP_LEN - 1);
	CP_MUST(write(up, "x", 1) == 1);
	for (;;)
		(void)!kvmm_wait(k, -1);
}

static pid_t other_start(const char *socket)
{
	int up[2];
	char byte;
	pid_t pid;

	CP_MUST(!pipe(up));
	fflush(stdout);
	pid = fork();
	CP_MUST(pid >= 0);
	if (!pid)
		other_main(socket, up[1]);
	close(up[1]);
	CP_MUST(read(up[0], &byte, 1) == 1);
	close(up[0]);
	return pid;
}

static void probe(struct kvmm *k, enum kind kind, u32 prompt)
{
	const u32 *ids = cp_prompt(kind * PROMPTS + prompt);
	u64 began, ready, open = bench_ticks(), seq = cp_open(k, 0);
	struct kvmm_seq_status st;
	u32 found;

	began = bench_ticks();
	found = cp_match(k, seq, ids, &st);
	ready = bench_ticks();
	CP_MUST(!kvmm_seq_close(k, &seq, 1));
	/* The answer itself must reveal no more than its time. */
	CP_MUST(found == (kind == OWN ? CP_LEN - 1 : 0));
	match_ticks[kind][nr_ticks[kind]] = ready - began;
	ask_ticks[kind][nr_ticks[kind]++] = bench_ticks() - open;
}

/* Ask for each prompt of each kind once. */
static void round_run(struct kvmm *k)
{
	u32 order[NR_KINDS * PROMPTS], i;

	for (i = 0; i < ARRAY_SIZE(order); i++) {
		u32 j = draw(i + 1);

		order[i] = order[j];
		order[j] = i;
	}
	for (i = 0; i < ARRAY_SIZE(order); i++)
		probe(k, order[i] / PROMPTS, order[i] % PROMPTS);
}

static int by_ticks(const void *a, const void *b)
{
	const u64 x = *(const u64 *)a, y = *(const u64 *)b;

	return x < y ? -1 : x > y;
}

/* Probability that a time of @a is below one of @b; equal times count half. */
static double auc(u64 *a, u64 *b, u32 nr)
{
	double below = 0;
	u32 i, lo = 0, hi = 0;

	qsort(a, nr, sizeof(*a), by_ticks);
	qsort(b, nr, sizeof(*b), by_ticks);
	for (i = 0; i < nr; i++) {
		while (lo < nr && b[lo] < a[i])
			lo++;
		while (hi < nr && b[hi] <= a[i])
			hi++;
		below += nr - hi + (hi - lo) / 2.0;
	}
	return below / nr / nr;
}

/* Chance alone stays within this. */
static double four_sigma(u32 nr)
{
	return 4 * sqrt((2.0 * nr + 1) / (12.0 * nr * nr));
}

static void report(const char *name, u64 *other, u64 *nobody, u64 *own, u32 nr)
{
	const double tells = fabs(auc(other, nobody, nr) - 0.5);
	const double control = fabs(auc(own, nobody, nr) - 0.5);
	const double us = bench_tick_ns() / 1000;
	char text[2][64];

	snprintf(text[0], sizeof(text[0]), "isolation_%s", name);
	snprintf(text[1], sizeof(text[1]), "isolation_%s_own", name);
	printf("note: %s: median %.2f us of what another tenant has, %.2f us of what nobody has, %.2f us of its own\n",
	       name, (double)other[nr / 2] * us, (double)nobody[nr / 2] * us,
	       (double)own[nr / 2] * us);
	bench_report(&(struct bench_figure){ .name = text[0], .value = tells,
		.unit = "AUC - 0.5", .max_value = four_sigma(nr) });
	bench_report(&(struct bench_figure){ .name = text[1], .value = control,
		.unit = "AUC - 0.5", .min_value = 3 * four_sigma(nr) });
}

int main(void)
{
	static const char * const args[] = {
		"--pool-size", "32M", "--extent-size", "64K",
		"--min-token-bytes", "64", "--socket-mode", "0666", NULL,
	};
	struct bench_daemon d;
	struct kvmm *k;
	pid_t other;
	u32 i;

	if (geteuid()) {
		printf("note: not measured: it takes root to be two users\n");
		return 0;
	}
	bench_daemon_start(&d, args);
	other = other_start(d.socket);
	k = cp_attach(d.socket);
	for (i = 0; i < PROMPTS; i++)
		cp_fill(k, OWN * PROMPTS + i, 0);
	/* Make and map all memory, fill the processor caches. */
	round_run(k);
	memset(nr_ticks, 0, sizeof(nr_ticks));
	for (i = 0; i < ROUNDS; i++)
		round_run(k);
	report("match", match_ticks[OTHERS], match_ticks[NOBODYS],
	       match_ticks[OWN], nr_ticks[OTHERS]);
	report("ask", ask_ticks[OTHERS], ask_ticks[NOBODYS], ask_ticks[OWN],
	       nr_ticks[OTHERS]);
	kvmm_detach(k);
	kill(other, SIGKILL);
	waitpid(other, NULL, 0);
	bench_daemon_stop(&d);
	return 0;
}
