// SPDX-License-Identifier: Apache-2.0
/*
 * bench_keep.c - how much of the cache that left the device pool is found again
 *
 * A client stores N prompts of 12 blocks each, then looks all of them up again:
 * in the same order, in reverse order, and in 2N draws by Zipf's law.  It checks
 * every word that is found and computes the rest.  An ideal LRU cache of the
 * same total size gets the same lookups.  A row is
 *
 *	POOL/HOST/AREA:SET:PAUSE:POLICY
 *
 * with the tiers in blocks, the prompts as a multiple of all tiers, and the pause
 * between two stores in ms.  The policies:
 *
 *	none	the defaults of a domain
 *	write	memory.writethrough; its value is in $WRITETHROUGH, else 1
 *	cheap	none, but to compute a block costs less than to copy it: no aim
 *
 * Arguments, or words in $ROWS, are globs that choose among all rows.  All rows, '*',
 * take ten minutes, more than `make bench` gives.  With COMPUTE=1 a step takes the
 * time that the client reports for it, else none.  With KILLS=n each row runs twice
 * more: kvmm is killed n times at random moments of the passes; and with the waits
 * before the kills alone, in which kvmm can copy.
 *
 * Aims: 95 % of the blocks that the LRU finds, over the three passes of a row; 99 % where all
 * prompts fit.
 */
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/bench/keep.h"

#define AIM		0.95
#define AIM_FITS	0.99
#define SEED		19u
#define NS_TOKEN	500000.0		/* of prefill, as the client reports it */
#define NS_CHEAP	10.0
#define STORE_MAX_MS	20000u		/* rows with longer pauses in all are left out */
#define KILL_LATE_US	3000u

enum { SAME, REVERSE, ZIPF, NR_PASSES };
enum { NONE, WRITE, CHEAP, NR_POLICIES };

static const char * const pass_name[] = { "same", "reverse", "zipf" };
static const char * const policy_name[] = { "none", "write", "cheap" };

static const struct keep_tiers all_tiers[] = {
	{ 32, 256, 0 }, { 128, 512, 0 }, { 64, 64, 0 }, { 64, 128, 512 },
	{ 128, 16, 1024 },	/* an area needs a host pool: the smallest of use */
	{ 256, 1024, 4096 },
};
static const double all_sets[] = { 0.5, 0.9, 1.0, 1.5, 2, 3 };
static const u32 all_pauses[] = { 0, 20, 200 };

/* Without arguments: the effect of the set, the pauses and the tiers. */
#define DEFAULT_ROWS							\
	"32/256/0:*:0:none 32/256/0:0.9:*:none 64/64/0:*:20:none "	\
	"*:[0-9].[59]:0:none *:0.9:0:write *:1.5:0:write 32/256/0:0.9:0:cheap"

struct row {
	const struct keep_tiers	*tiers;
	double			set;
	u32			pause;
	u32			policy;
	char			name[64];
};

struct pass {
	u32	found;
	u32	lru;
	u32	from_host;
	u32	from_area;
	double	s;
};

/* The results of a row. */
struct result {
	struct pass	pass[NR_PASSES];
	u32		prompts;
	u32		lookups;	/* blocks looked up, all passes */
	bool		fits;
	u32		redone;
	u32		killed;
};

/* Moments of a row at which kvmm is killed; not @armed: waits that kills need. */
struct kills {
	u32	left;
	u32	lookups;	/* that are still to come */
	bool	armed;
	u64	rng;
};

static u32 nr_kills;
static u32 nr_short, nr_rows, nr_left_out;

/* ---- lookups ---- */

static u32 make_order(u32 pass, u32 prompts, u32 *order)
{
	const u32 nr = pass == ZIPF ? 2 * prompts : prompts;
	u32 i;

	if (pass == ZIPF)
		keep_draw_zipf(order, nr, prompts, SEED);
	else
		for (i = 0; i < nr; i++)
			order[i] = pass == REVERSE ? prompts - 1 - i : i;
	return nr;
}

/*
 * Before some of the lookups that follow, chosen at random: wait for the kvmm that
 * may still be starting, and kill it soon.
 */
static void maybe_kill(struct keep_node *n, struct kills *k)
{
	if (!k->left || keep_uniform(&k->rng) * k->lookups-- >= k->left)
		return;
	k->left--;
	keep_await_resumed(n);
	if (k->armed)
		keep_kill(n, (u32)(keep_uniform(&k->rng) * KILL_LATE_US));
}

static void run_pass(struct keep_node *n, struct keep_lru *lru, u32 which,
		     struct result *r, struct kills *kills)
{
	u32 *order = calloc(2 * r->prompts, sizeof(*order)), i;
	const u32 nr = order ? make_order(which, r->prompts, order) : 0;
	char *before = keep_vmstat(n), *after;
	struct pass *p = &r->pass[which];
	const u64 start = bench_now();

	for (i = 0; i < nr; i++) {
		maybe_kill(n, kills);
		p->found += keep_serve(n, order[i]);
		p->lru += keep_lru_serve(lru, order[i], KEEP_BLOCKS, 1);
	}
	p->s = (double)(bench_now() - start) / 1e9;
	after = keep_vmstat(n);
	p->from_host = (u32)(bench_key_value(after, "pgpromote") -
			     bench_key_value(before, "pgpromote"));
	p->from_area = (u32)(bench_key_value(after, "pswpin") -
			     bench_key_value(before, "pswpin"));
	r->lookups += nr * KEEP_BLOCKS;
	free(before);
	free(after);
	free(order);
}

static void store(struct keep_node *n, struct keep_lru *lru,
		  const struct row *row, const struct result *r)
{
	u32 i;

	for (i = 0; i < r->prompts; i++) {
		if (keep_serve(n, i))
			bench_die("prompt %u is found before it was stored", i);
		keep_lru_serve(lru, i, KEEP_BLOCKS, 1);
		if (row->pause)
			usleep(row->pause * 1000);
	}
}

/* ---- rows ---- */

/* Counters of evictions and copies that changed. */
static void print_counters(struct keep_node *n)
{
	static const char * const kind[] = {
		"prefix_evict", "prefix_drop", "reclaim", "demote", "pgdemote",
		"pgpromote", "pgclean", "pswp", "host_", "area_", "writethrough",
		"swap_", "preempt",
	};
	char *text = keep_vmstat(n), *line, *save;
	u32 i;

	printf("  counters:");
	for (line = strtok_r(text, "\n", &save); line;
	     line = strtok_r(NULL, "\n", &save))
		for (i = 0; i < ARRAY_SIZE(kind); i++)
			if (!strncmp(line, kind[i], strlen(kind[i])) &&
			    strcmp(strchr(line, ' ') ? : "", " 0"))
				printf(" %s", line);
	printf("\n");
	free(text);
}

static double share(const struct result *r, u32 *found, u32 *lru)
{
	u32 i;

	for (*found = 0, *lru = 0, i = 0; i < NR_PASSES; i++) {
		*found += r->pass[i].found;
		*lru += r->pass[i].lru;
	}
	return *lru ? (double)*found / *lru : 1;
}

static void print_result(const struct row *row, const struct result *r,
			 const struct keep_node *n)
{
	const struct pass *p;
	u32 i;

	for (i = 0; i < NR_PASSES; i++) {
		p = &r->pass[i];
		printf("| %s | %u | %-7s | %u | %u | %.2f | %u | %u | %.1f |",
		       row->name, r->prompts, pass_name[i], p->found, p->lru,
		       p->lru ? (double)p->found / p->lru : 1, p->from_host,
		       p->from_area, p->s);
		if (n->killed)
			printf(" %u kills, %u lookups again |", n->killed,
			       n->redone);
		printf("\n");
	}
}

/* @kills: in the passes.  Return: false: the daemon lacks the policy. */
static bool play(const struct row *row, struct result *r, u32 kills, bool armed)
{
	struct kills k = { .left = kills, .armed = armed, .rng = SEED };
	struct keep_node n;
	struct keep_lru *lru;
	u32 total, i;

	memset(r, 0, sizeof(*r));
	keep_start(&n, row->tiers, SEED,
		   row->policy == CHEAP ? NS_CHEAP : NS_TOKEN);
	if (row->policy == WRITE && !keep_writethrough(&n)) {
		keep_stop(&n);
		return false;
	}
	total = n.has.dev + n.has.host + n.has.area;
	if (n.has.dev != row->tiers->dev || n.has.host != row->tiers->host ||
	    n.has.area != row->tiers->area)
		printf("  the daemon has %u/%u/%u blocks\n", n.has.dev,
		       n.has.host, n.has.area);
	r->prompts = (u32)(row->set * total / KEEP_BLOCKS);
	r->fits = r->prompts * KEEP_BLOCKS + 1 <= total;
	lru = keep_lru_new(total, r->prompts);
	k.lookups = 4 * r->prompts;
	store(&n, lru, row, r);
	for (i = 0; i < NR_PASSES; i++)
		run_pass(&n, lru, i, r, &k);
	if (armed)
		keep_await_resumed(&n);
	r->redone = n.redone;
	r->killed = n.killed;
	print_result(row, r, &n);
	print_counters(&n);
	free(lru);
	keep_stop(&n);
	return true;
}

static void report(const struct row *row, const struct result *r)
{
	const double aim = r->fits ? AIM_FITS : AIM;
	char name[80];
	u32 found, lru, i;
	const double part = share(r, &found, &lru);
	double least = part;
	struct bench_figure f = {
		.name = name, .unit = "blocks", .value = found,
		.peer = "ideal LRU", .peer_value = lru, .ratio = part,
		.min_ratio = row->policy == CHEAP ? 0 : aim,
	};

	for (i = 0; i < NR_PASSES; i++)
		if (r->pass[i].lru)
			least = min(least, (double)r->pass[i].found /
					   r->pass[i].lru);
	f.ratio_low = least;
	f.ratio_high = part;
	snprintf(name, sizeof(name), "keep_%s", row->name);
	bench_report(&f);
	if (row->policy == CHEAP)
		return;
	nr_rows++;
	nr_short += part < aim;
	bench_verdict(part >= aim,
		      "%s: %u blocks found of %u, the LRU %u: %.3f of it, worst pass %.3f; aim %.2f%s",
		      row->name, found, r->lookups, lru, part, least, aim,
		      r->fits ? ", all fits" : "");
}

static void run_row(const struct row *row)
{
	struct result r, killed;
	u32 found, lru;
	double part;

	if (!play(row, &r, 0, false)) {
		fprintf(stderr, "note: %s: skipped: this daemon has no memory.writethrough\n",
			row->name);
		return;
	}
	report(row, &r);
	if (!nr_kills || !play(row, &r, nr_kills, false) ||
	    !play(row, &killed, nr_kills, true))
		return;
	part = share(&r, &found, &lru);
	fprintf(stderr, "note: %s: with the same waits %.3f of the LRU",
		row->name, part);
	part = share(&killed, &found, &lru);
	fprintf(stderr, ", with %u kills %.3f; no word was wrong; %u lookups again\n",
		killed.killed, part, killed.redone);
}

static bool chosen(const char *name, char **globs)
{
	u32 i;

	for (i = 0; globs[i]; i++)
		if (!strcmp(globs[i], "all") || !fnmatch(globs[i], name, 0))
			return true;
	return false;
}

static void row_if_chosen(struct row *row, char **globs)
{
	const struct keep_tiers *t = row->tiers;
	const double blocks = row->set * (t->dev + t->host + t->area);

	snprintf(row->name, sizeof(row->name), "%u/%u/%u:%g:%u:%s", t->dev,
		 t->host, t->area, row->set, row->pause,
		 policy_name[row->policy]);
	if (!chosen(row->name, globs) || (row->policy == CHEAP && row->pause))
		return;
	if (blocks / KEEP_BLOCKS * row->pause > STORE_MAX_MS)
		nr_left_out++;
	else
		run_row(row);
}

static void run_rows(char **globs)
{
	struct row row;
	u32 t, s, p;

	printf("| row | prompts | pass | found | LRU | ratio | copied from host | read from area | s |\n");
	printf("|---|---|---|---|---|---|---|---|---|\n");
	for (t = 0; t < ARRAY_SIZE(all_tiers); t++)
		for (s = 0; s < ARRAY_SIZE(all_sets); s++)
			for (p = 0; p < ARRAY_SIZE(all_pauses); p++)
				for (row.policy = 0; row.policy < NR_POLICIES;
				     row.policy++) {
					row.tiers = &all_tiers[t];
					row.set = all_sets[s];
					row.pause = all_pauses[p];
					row_if_chosen(&row, globs);
				}
}

int main(int argc, char **argv)
{
	const char *rows = getenv("ROWS"), *kills = getenv("KILLS");
	char *text = strdup(rows ? rows : DEFAULT_ROWS), *globs[64], *save;
	u32 nr;

	setvbuf(stdout, NULL, _IOLBF, 0);
	nr_kills = kills ? (u32)atoi(kills) : 0;
	for (nr = 0; nr < ARRAY_SIZE(globs) - 1; nr++) {
		globs[nr] = strtok_r(nr ? NULL : text, " ", &save);
		if (!globs[nr])
			break;
	}
	globs[nr] = NULL;
	run_rows(argc > 1 ? argv + 1 : globs);
	fprintf(stderr, "note: %u of %u rows are short", nr_short, nr_rows);
	if (nr_left_out)
		fprintf(stderr, "; %u left out, with pauses of more than %u s in all",
			nr_left_out, STORE_MAX_MS / 1000);
	fprintf(stderr, "\n");
	free(text);
	return 0;
}
