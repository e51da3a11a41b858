// SPDX-License-Identifier: Apache-2.0
/*
 * bench_keep_serve.c - prefixes that kvrt finds again, and the cost of keeping them
 *
 * Two kvrt serve with the demo model share one kvmm, each with its own domain.
 * Prompts take turns between the two.  A round stores prompts that are new, asks
 * for all of them again in the same order, and then draws as many by Zipf's law.
 * An ideal LRU cache of the same total size gets the same requests.  The same
 * requests go to two kvrt on a kvmm without lower tiers, in turns of 16 requests: the
 * texts must be the same, and tokens a second at most 3 % fewer.  A row is
 *
 *	POOL/HOST/AREA:SET:PAUSE:CLIENTS
 *
 * with the tiers in blocks, the prompts as a multiple of all tiers, the pause after a
 * store in ms, and the requests that run at once.  Rows with the set "20" store 20
 * prompts of 161 tokens; all others prompts of 161 to 401 tokens.
 *
 * Arguments, or words in $ROWS, are globs that choose rows; ROUNDS=n is another
 * number of rounds; AREA_DIR is a folder for the area on another disk, or in memory.
 *
 * The daemon copies a block down only where that costs less than computing it, and the
 * demo model computes the 32 KiB of a block in about 1 ms.  So where the note of a row
 * has a high evict_dear, or an area that is written at less than 50 MB/s, the daemon
 * kept less because it held that computing is cheaper.
 *
 * Aims: 95 % of the blocks that the LRU finds, 99 % where it finds all; and in each of
 * the passes 97 % of the tokens a second without lower tiers, as the median of the
 * turns.
 */
#include <fnmatch.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/bench/keep.h"
#include "tests/bench/keep_http.h"
#include "tests/bench/kvrt.h"
#include "tests/bench/serve_profile.h"

#define AIM		0.95
#define AIM_FITS	0.99
#define AIM_SPEED	0.97
#define SEED		19u
#define CLIENTS_MAX	4u
#define PROMPTS_MAX	200u
#define ROUNDS_MAX	16u
#define ANSWER		8u		/* tokens */
#define SHORTEST	10u		/* blocks of a prompt */
#define LENGTHS		16u
#define TURN		16u		/* requests */
#define TURNS_MAX	(ROUNDS_MAX * (PROMPTS_MAX / TURN + 1))

enum { STORE, SAME, ZIPF, NR_PASSES };

static const char * const pass_name[] = { "store", "same", "zipf" };

struct row {
	struct keep_tiers	tiers;
	double			set;		/* FIXED: 20 short prompts */
	u32			pause;
	u32			clients;
};

#define FIXED	20

static const struct row rows[] = {
	{ { 128, 896, 0 }, FIXED, 0, 1 },
	{ { 128, 896, 0 }, FIXED, 50, 1 },
	{ { 128, 256, 640 }, 0.5, 0, 1 },
	{ { 128, 256, 640 }, 0.9, 0, 1 },
	{ { 128, 256, 640 }, 1.5, 0, 1 },
	{ { 128, 256, 640 }, 2, 0, 1 },
	{ { 128, 256, 640 }, 0.5, 0, 4 },
	{ { 128, 256, 640 }, 0.9, 0, 4 },
	{ { 128, 256, 640 }, 1.5, 0, 4 },
	{ { 128, 256, 640 }, 2, 0, 4 },
	{ { 128, 256, 640 }, 0.8, 0, 1 },
	{ { 128, 256, 2048 }, 0.9, 0, 1 },
	{ { 128, 256, 2048 }, 0.9, 0, 4 },
};

/* Without arguments: two minutes of them. */
#define DEFAULT_ROWS	"128/896/0:* 128/256/640:0.[59]:* 128/256/640:1.5:* 128/256/640:2:*"

/* The results of the passes of one kind. */
struct pass {
	u32	found;
	u32	lru;
	u32	blocks;				/* asked for */
	u64	tokens[2];			/* without, with tiers */
	u64	ns[2];
	u64	waits_ns;			/* of requests for copies, of ns[1] */
	u64	cpu_ns[2];			/* of kvmm and swapd */
	double	ratio[TURNS_MAX];		/* of tokens a second */
	u32	turns;
};

struct play {
	const struct row	*row;
	char			name[64];
	struct keep_pair		node[2];	/* without, with tiers */
	struct keep_lru		*lru;
	u32			total;		/* blocks of all tiers */
	u32			prompts;	/* of a round */
	u32			rounds;
	u32			round;
	u32			blocks[PROMPTS_MAX];
	u64			text[PROMPTS_MAX];
	u32			other_texts;
	struct pass		pass[NR_PASSES];
};

/* A pass in progress; its clients share it. */
struct run {
	struct play	*p;
	struct keep_pair	*n;
	u32		which;
	const u32	*order;
	u32		nr;
	u32		next;
	bool		busy[PROMPTS_MAX];
	u64		tokens;
	u64		paused;
	pthread_mutex_t	lock;
	pthread_cond_t	idle;
};

static u32 nr_rounds;			/* as asked for; 0: by the row */

/* ---- a pass ---- */

static u64 seed_of(const struct play *p, u32 prompt)
{
	return ((u64)p->round << 32) + prompt + SEED;
}

/* Take the next request whose prompt no other client asks for.  Return: ~0u: none. */
static u32 take_next(struct run *r)
{
	struct play *p = r->p;
	u32 i = ~0u, blocks, lru;

	pthread_mutex_lock(&r->lock);
	while (r->next < r->nr && r->busy[r->order[r->next]])
		pthread_cond_wait(&r->idle, &r->lock);
	if (r->next < r->nr) {
		i = r->order[r->next++];
		r->busy[i] = true;
	}
	if (i != ~0u && r->n->tiers) {
		blocks = p->blocks[i];
		lru = keep_lru_serve(p->lru, p->round * p->prompts + i,
				     blocks + 1, 0);
		p->pass[r->which].lru += min(lru, blocks);
		p->pass[r->which].blocks += blocks;
	}
	pthread_mutex_unlock(&r->lock);
	return i;
}

static void ended(struct run *r, u32 i, const struct keep_answer *a)
{
	struct play *p = r->p;

	pthread_mutex_lock(&r->lock);
	if (r->n->tiers)
		p->pass[r->which].found += min(a->cached / KEEP_TOKENS, p->blocks[i]);
	if (!p->text[i])
		p->text[i] = a->text;
	p->other_texts += p->text[i] != a->text;
	r->tokens += p->blocks[i] * KEEP_TOKENS + 1 + ANSWER;
	r->busy[i] = false;
	pthread_cond_broadcast(&r->idle);
	pthread_mutex_unlock(&r->lock);
}

static void *client(void *arg)
{
	struct run *r = arg;
	struct play *p = r->p;
	struct keep_answer a;
	u64 since;
	u32 i;

	while ((i = take_next(r)) != ~0u) {
		const struct keep_ask q = {
			.port = r->n->kvrt[i % KEEP_MODELS].port,
			.model = keep_model[i % KEEP_MODELS],
			.seed = seed_of(p, i), .answer = ANSWER,
			.nr = p->blocks[i] * KEEP_TOKENS + 1,
		};

		keep_ask(&q, &a);
		ended(r, i, &a);
		if (r->which == STORE && p->row->pause) {
			since = bench_now();
			usleep(p->row->pause * 1000);
			r->paused += bench_now() - since;
		}
	}
	return NULL;
}

/* Some requests of a pass.  Return: tokens a second. */
static double run_turn(struct play *p, struct keep_pair *n, u32 which,
		       const u32 *order, u32 nr)
{
	struct run r = {
		.p = p, .n = n, .which = which, .order = order, .nr = nr,
		.lock = PTHREAD_MUTEX_INITIALIZER,
		.idle = PTHREAD_COND_INITIALIZER,
	};
	const u64 waits = bench_file_value(&n->d, "vmstat", "demote_wait_ns");
	struct pass *s = &p->pass[which];
	pthread_t thread[CLIENTS_MAX];
	const u64 cpu = profile_tree_ns(n->d.pid), start = bench_now();
	u64 ns;
	u32 i;

	for (i = 0; i < p->row->clients; i++)
		if (pthread_create(&thread[i], NULL, client, &r))
			bench_die("no thread for a client");
	for (i = 0; i < p->row->clients; i++)
		pthread_join(thread[i], NULL);
	ns = bench_now() - start - r.paused;
	s->tokens[n->tiers] += r.tokens;
	s->ns[n->tiers] += ns;
	s->cpu_ns[n->tiers] += profile_tree_ns(n->d.pid) - cpu;
	if (n->tiers)
		s->waits_ns += bench_file_value(&n->d, "vmstat",
						"demote_wait_ns") - waits;
	return (double)r.tokens * 1e9 / (double)ns;
}

static void run_pass(struct play *p, u32 which)
{
	u32 order[PROMPTS_MAX], at, nr, k, n;
	struct pass *s = &p->pass[which];
	double rate[2];

	for (at = 0; at < p->prompts; at++)
		order[at] = at;
	if (which == ZIPF)
		keep_draw_zipf(order, p->prompts, p->prompts, SEED + p->round);
	for (at = 0; at < p->prompts; at += nr) {
		nr = min(TURN, p->prompts - at);
		for (k = 0; k < 2; k++) {
			n = (s->turns + k) % 2;
			rate[n] = run_turn(p, &p->node[n], which, order + at,
					   nr);
		}
		s->ratio[s->turns++] = rate[1] / rate[0];
	}
}

/* ---- rows ---- */

static void choose_prompts(struct play *p)
{
	const double want = p->row->set * p->total;
	u32 i, sum = 0;

	for (i = 0; i < PROMPTS_MAX; i++) {
		const bool fixed = p->row->set >= FIXED;

		if (fixed ? i == FIXED : sum >= want && !(i % KEEP_MODELS))
			break;
		p->blocks[i] = SHORTEST + (fixed ? 0 : keep_mix(i) % LENGTHS);
		sum += p->blocks[i] + 1;
	}
	p->prompts = i;
}

/* Counters of evictions and copies. */
static void print_counters(const struct keep_pair *n)
{
	static const char * const key[] = {
		"pgclean", "pgdemote", "pgpromote", "pswpout", "pswpin",
		"demote_free", "evict_no_copy", "evict_dear", "demote_wait",
		"demote_wait_ns", "host_drop", "area_drop", "preempt",
		"prefix_evict", "prefix_drop", "swap_fallback",
	};
	char *text = bench_file(&n->d, "vmstat");
	u32 i;

	printf("  counters:");
	for (i = 0; i < ARRAY_SIZE(key); i++)
		if (bench_key_value(text, key[i]))
			printf(" %s %llu", key[i], (unsigned long long)
			       bench_key_value(text, key[i]));
	printf("\n");
	free(text);
}

/* Causes of lost content: the daemon's judgement, and its figures. */
static void note_losses(const struct keep_pair *n, const char *name)
{
	char *areas = bench_file(&n->d, "swapareas");
	char *text = bench_file(&n->d, "vmstat");
	const char *line = areas ? strchr(areas, '\n') : NULL;
	unsigned long long rd = 0, wr = 0;

	if (line)
		(void)sscanf(line, "%*u %*s %*d %*u %*u %*u %*u %*u %*u %llu %llu",
			     &rd, &wr);
	fprintf(stderr, "note: %s: evict_dear %llu, host_drop %llu, of these area_drop %llu",
		name, (unsigned long long)bench_key_value(text, "evict_dear"),
		(unsigned long long)bench_key_value(text, "host_drop"),
		(unsigned long long)bench_key_value(text, "area_drop"));
	if (rd || wr)
		fprintf(stderr, "; the area is read at %llu MB/s, written at %llu MB/s",
			rd / 1000, wr / 1000);
	fprintf(stderr, "\n");
	free(areas);
	free(text);
}

static void report_found(const struct play *p)
{
	u32 found = 0, lru = 0, blocks = 0, i;
	char name[96];
	double part, aim;

	for (i = SAME; i < NR_PASSES; i++) {
		found += p->pass[i].found;
		lru += p->pass[i].lru;
		blocks += p->pass[i].blocks;
	}
	part = lru ? (double)found / lru : 1;
	aim = lru == blocks ? AIM_FITS : AIM;
	snprintf(name, sizeof(name), "keep_serve_%s.found", p->name);
	bench_report(&(struct bench_figure){
		.name = name, .unit = "blocks", .value = found,
		.peer = "ideal LRU", .peer_value = lru, .min_ratio = aim,
	});
	bench_verdict(part >= aim && !p->other_texts,
		      "%s: %u blocks found of %u, the LRU %u: %.3f of it, aim %.2f; %u other texts",
		      p->name, found, blocks, lru, part, aim, p->other_texts);
}

static void report_speed(const struct play *p)
{
	double with, without, ratio, least = 1e9, lo, hi;
	char name[96], text[200];
	u32 i, n = 0;

	for (i = 0; i < NR_PASSES; i++) {
		const struct pass *s = &p->pass[i];

		without = (double)s->tokens[0] * 1e9 / (double)s->ns[0];
		with = (double)s->tokens[1] * 1e9 / (double)s->ns[1];
		ratio = bench_median(s->ratio, s->turns);
		bench_range(s->ratio, s->turns, &lo, &hi);
		least = min(least, ratio);
		snprintf(name, sizeof(name), "keep_serve_%s.%s", p->name,
			 pass_name[i]);
		bench_report(&(struct bench_figure){
			.name = name, .unit = "tokens/s", .value = with,
			.peer = "without lower tiers", .peer_value = without,
			.ratio = ratio, .ratio_low = lo, .ratio_high = hi,
			.min_ratio = AIM_SPEED,
		});
		printf("| %s | %s | %u | %u | %u | %.0f | %.0f | %.3f | %.3f to %.3f | %.1f %% | %.0f %%, %.0f %% |\n",
		       p->name, pass_name[i], p->prompts, s->found, s->lru,
		       with, without, ratio, lo, hi,
		       100.0 * (double)s->waits_ns / (double)s->ns[1] / KEEP_MODELS,
		       100.0 * (double)s->cpu_ns[1] / (double)s->ns[1],
		       100.0 * (double)s->cpu_ns[0] / (double)s->ns[0]);
		n += (u32)snprintf(text + n, sizeof(text) - n, " %s %.2f",
				   pass_name[i], ratio);
	}
	bench_verdict(least >= AIM_SPEED,
		      "%s: tokens a second beside no lower tiers:%s; aim %.2f",
		      p->name, text, AIM_SPEED);
}

static void run_round(struct play *p)
{
	u32 i;

	memset(p->text, 0, sizeof(p->text));
	for (i = 0; i < NR_PASSES; i++)
		run_pass(p, i);
}

static void play_row(const struct row *row, const char *row_name)
{
	struct play p = { .row = row };
	u32 i;

	snprintf(p.name, sizeof(p.name), "%s", row_name);
	for (i = 0; i < 2; i++)
		keep_pair_start(&p.node[i], &row->tiers, i == 1);
	p.total = row->tiers.dev + keep_pair_slots(&p.node[1], "HostTotal") +
		  keep_pair_slots(&p.node[1], "SwapTotal");
	choose_prompts(&p);
	/* Few prompts have few turns. */
	p.rounds = nr_rounds ? nr_rounds : p.prompts > 4 * TURN ? 2 : 3;
	p.lru = keep_lru_new(p.total, p.rounds * p.prompts);
	for (p.round = 0; p.round < p.rounds; p.round++)
		run_round(&p);
	if (p.pass[STORE].found)
		bench_die("%u blocks are found before they were stored",
			  p.pass[STORE].found);
	report_speed(&p);
	report_found(&p);
	print_counters(&p.node[1]);
	note_losses(&p.node[1], p.name);
	free(p.lru);
	for (i = 0; i < 2; i++)
		keep_pair_stop(&p.node[i]);
}

static bool chosen(const char *name, char **globs)
{
	u32 i;

	for (i = 0; globs[i]; i++)
		if (!fnmatch(globs[i], name, 0))
			return true;
	return false;
}

int main(int argc, char **argv)
{
	const char *want = getenv("ROWS"), *rounds = getenv("ROUNDS");
	char *text = strdup(want ? want : DEFAULT_ROWS), *globs[64], *save, name[64];
	u32 nr, i;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (rounds)
		nr_rounds = min(max((u32)atoi(rounds), 1u), ROUNDS_MAX);
	for (nr = 0; nr < ARRAY_SIZE(globs) - 1; nr++) {
		globs[nr] = strtok_r(nr ? NULL : text, " ", &save);
		if (!globs[nr])
			break;
	}
	globs[nr] = NULL;
	printf("| row | pass | prompts | found | LRU | tokens/s | without tiers | ratio | of the turns | waits for copies | CPU of the daemon, of that without tiers |\n");
	printf("|---|---|---|---|---|---|---|---|---|---|---|\n");
	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct row *r = &rows[i];

		snprintf(name, sizeof(name), "%u/%u/%u:%g:%u:%u", r->tiers.dev,
			 r->tiers.host, r->tiers.area, r->set, r->pause,
			 r->clients);
		if (chosen(name, argc > 1 ? argv + 1 : globs))
			play_row(r, name);
	}
	free(text);
	return 0;
}
