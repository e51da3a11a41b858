// SPDX-License-Identifier: Apache-2.0
/*
 * bench_groups.c - costs and savings of layer groups, alone on one core
 *
 * The first part is the time of a step, begin and end, of 256 sequences.  Domains with
 * 1, 2 and 4 groups take turns.  Group 0 attends to all tokens, each other group to a
 * window.  A block has as many bytes in each domain, so the pools have as many blocks.
 * The goal is a cost that grows at most linearly with the groups.  A chunk of a prompt
 * is also beside one of one group that has as many blocks: more records than fit a
 * cache cost more each.
 *
 * The second part is the memory of a sequence of 8,192 tokens of a model of which one
 * layer in six attends to all tokens and the others to a window of 512.  The blocks that
 * the core has given to the sequence are counted, and the arithmetic stands beside.
 * Then such sequences are begun until one has to wait.  The peer is the same model with
 * one group, in which all layers keep all tokens.
 */
#include <string.h>

#include "tests/bench/bench.h"
#include "tests/bench/shell.h"

#define ROUNDS		9
#define WARM		5u		/* rounds until the pool is full of cached blocks */
#define EXTENT		(64ull << 20)
#define SEQS		256u

/* ---- time ---- */

#define STEP_POOL	(64ull << 30)
#define STEP_WINDOW	128u
#define CHUNK		128u
#define CHUNKS		2u
#define DECODES		256u

/* Domains.  The last two have one group, and chunks of as many blocks as two and four. */
static const struct arm {
	u32	groups;
	u32	chunk;		/* tokens of a prompt in a step */
} arms[] = { { 1, CHUNK }, { 2, CHUNK }, { 4, CHUNK }, { 1, 2 * CHUNK }, { 1, 4 * CHUNK } };

#define ARMS		ARRAY_SIZE(arms)
#define CONTROL		2u		/* from an arm to that with as many blocks */

/* Microseconds of a step of each domain, in each round. */
struct times {
	double	chunk[ARMS][ROUNDS];
	double	decode[ARMS][ROUNDS];
};

static struct shell *step_shell(const struct arm *arm)
{
	struct kvmm_group group[KVMM_MAX_GROUPS];
	u32 g;

	for (g = 0; g < arm->groups; g++)
		group[g] = (struct kvmm_group){
			.layers = 32, .kv_heads = 8, .k_bytes = 256, .v_bytes = 256,
			.window = g ? STEP_WINDOW : 0 };
	return shell_start(STEP_POOL, EXTENT, arm->groups, group, arm->chunk);
}

/* Microseconds of a step of all sequences that writes @tokens from @start of each. */
static double step_us(struct shell *sh, const u64 *seqs, u32 start, u32 tokens,
		      bool warm)
{
	u64 from = bench_ticks(), over;

	/* Rounds that warm up have memory made and mapped. */
	if (warm)
		shell_begin_mapped(sh, seqs, SEQS, start, tokens);
	else
		shell_begin(sh, seqs, SEQS, start, tokens);
	over = bench_ticks() - from;
	shell_settle(sh);
	from = bench_ticks();
	shell_end(sh, seqs, SEQS, start, tokens);
	over += bench_ticks() - from;
	return (double)over * bench_tick_ns() / 1000;
}

/* Do all sequences have so many tokens?  A step that was refused would be fast. */
static void step_check(const struct shell *sh, const u64 *seqs, u32 tokens)
{
	u32 i;

	for (i = 0; i < SEQS; i++)
		if (sh->statuses[KVMM_SEQ_INDEX(seqs[i])].valid_len != tokens)
			bench_die("a sequence has %u tokens instead of %u",
				  sh->statuses[KVMM_SEQ_INDEX(seqs[i])].valid_len,
				  tokens);
}

/* Prompts of all sequences in chunks, then decode steps.  @tokens: of a chunk. */
static void step_round(struct shell *sh, u32 tokens, u32 seed, bool warm,
		       double *chunk, double *decode)
{
	static u64 seqs[SEQS];
	u32 i, at = 0;

	*chunk = 0;
	*decode = 0;
	sh->salt = seed;
	for (i = 0; i < SEQS; i++)
		seqs[i] = shell_ready(sh, CHUNKS * tokens, DECODES,
				      seed + 100000 * i);
	for (i = 0; i < CHUNKS; i++, at += tokens)
		*chunk += step_us(sh, seqs, at, tokens, warm) / CHUNKS;
	for (i = 0; i < DECODES; i++, at++)
		*decode += step_us(sh, seqs, at, 1, warm) / DECODES;
	step_check(sh, seqs, at);
	shell_close(sh, seqs, SEQS);
}

/* Report the rounds of arm @a, beside those of arm @peer, if that is another one. */
static void step_report(const char *what, u32 a, u32 peer, const char *peer_name,
			double max_ratio, double rounds[ARMS][ROUNDS])
{
	double ratio[ROUNDS], lo, hi;
	char name[64];
	struct bench_figure f = {
		.name = name, .value = bench_median(rounds[a], ROUNDS), .unit = "us",
	};
	u32 r;

	snprintf(name, sizeof(name), "groups_%s_%u%s", what, arms[a].groups,
		 peer == 0 ? "" : "_to_blocks");
	for (r = 0; r < ROUNDS; r++)
		ratio[r] = rounds[a][r] / rounds[peer][r];
	if (a != peer) {
		f.peer = peer_name;
		f.peer_value = bench_median(rounds[peer], ROUNDS);
		f.max_ratio = max_ratio;
		f.ratio = bench_median(ratio, ROUNDS);
		bench_range(ratio, ROUNDS, &f.ratio_low, &f.ratio_high);
	}
	bench_report(&f);
	bench_range(rounds[a], ROUNDS, &lo, &hi);
	printf("| %s | %u | %.0f (%.0f to %.0f) | %s | %.0f | %.2f (%.2f to %.2f) |\n",
	       what, arms[a].groups, f.value, lo, hi, f.peer ? f.peer : "",
	       f.peer_value, f.ratio, f.ratio_low, f.ratio_high);
}

/* Rounds of all arms in turns.  Those that warm up are not kept. */
static void step_rounds(struct shell **sh, struct times *t)
{
	u32 a, r, at;

	for (r = 0; r < WARM + ROUNDS; r++)
		for (a = 0; a < ARMS; a++) {
			at = r < WARM ? 0 : r - WARM;
			step_round(sh[a], arms[a].chunk, 100000000 * r, r < WARM,
				   &t->chunk[a][at], &t->decode[a][at]);
		}
	for (a = 0; a < ARMS; a++)
		if (sh[a]->core->domains[sh[a]->dom].dev.nr[BLK_FREE] > SEQS)
			bench_die("the pool is not full of cached blocks");
}

static void bench_steps(void)
{
	static struct shell *sh[ARMS];
	static struct times t;
	u32 a;

	for (a = 0; a < ARMS; a++)
		sh[a] = step_shell(&arms[a]);
	step_rounds(sh, &t);
	printf("| step of 256 sequences | groups | us | beside | us | ratio |\n");
	printf("|---|---|---|---|---|---|\n");
	for (a = 0; arms[a].chunk == CHUNK; a++) {
		step_report("decode", a, 0, "one group", arms[a].groups, t.decode);
		step_report("chunk", a, 0, "one group", arms[a].groups, t.chunk);
		if (a)
			step_report("chunk", a, a + CONTROL, "as many blocks", 0,
				    t.chunk);
	}
	for (a = 0; a < ARMS; a++)
		shell_stop(sh[a]);
}

/* ---- memory ---- */

#define FIT_POOL	(64ull << 30)
#define TOKENS		8192u
#define PROMPT		6144u
#define PART		512u	/* tokens of a prompt in a step */
#define WINDOW		512u
#define LAYERS		48u
#define FULL		(LAYERS / 6)
#define HEADS		8u
#define HEAD_BYTES	256u
#define LAYER_TOKEN	(2ull * HEADS * HEAD_BYTES)	/* bytes of a token in a layer */
#define MIB		(1024.0 * 1024)

struct layout {
	const char		*name;
	u32			nr_groups;
	struct kvmm_group	group[KVMM_MAX_GROUPS];
};

#define LAYER_GROUP(nr, w, bt) { .layers = (nr), .window = (w), .block_tokens = (bt), \
	.kv_heads = HEADS, .k_bytes = HEAD_BYTES, .v_bytes = HEAD_BYTES }

static const struct layout layouts[] = {
	{ "one_group", 1, { LAYER_GROUP(LAYERS, 0, 16) } },
	/* Groups of as many layers each. */
	{ "six_groups", 6, { LAYER_GROUP(FULL, 0, 16),
			     LAYER_GROUP(FULL, WINDOW, 16),
			     LAYER_GROUP(FULL, WINDOW, 16),
			     LAYER_GROUP(FULL, WINDOW, 16),
			     LAYER_GROUP(FULL, WINDOW, 16),
			     LAYER_GROUP(FULL, WINDOW, 16) } },
	/* Blocks of five times as many tokens, of a fifth of the layers. */
	{ "two_groups", 2, { LAYER_GROUP(FULL, 0, 80),
			     LAYER_GROUP(LAYERS - FULL, WINDOW, 16) } },
};

struct holds {
	double	end, most;	/* bytes after the last step, and the most while one is open */
	u32	fit;		/* sequences */
};

static double held_bytes(const struct shell *sh, u64 seq)
{
	const struct core *c = sh->core;

	return (double)seq_live(c, &c->seqs[KVMM_SEQ_INDEX(seq)]) *
	       (double)c->domains[sh->dom].dev.block_bytes;
}

/* KV of all tokens that the next step attends to, and of no other. */
static double needed_bytes(const struct layout *l)
{
	double bytes = 0;
	u32 g;

	for (g = 0; g < l->nr_groups; g++) {
		u32 w = l->group[g].window;

		bytes += (double)(l->group[g].layers * LAYER_TOKEN) *
			 (w ? min(w - 1, TOKENS) : TOKENS);
	}
	return bytes;
}

/*
 * Compute a sequence to its end, or until it is refused: the prompt in parts, then a
 * token in a step.
 * Return: the most bytes that it held.
 */
static double seq_run(struct shell *sh, u64 seq)
{
	double most = 0;
	u32 at, nr;

	for (at = 0; at < TOKENS; at += nr) {
		nr = at < PROMPT ? min(PROMPT - at, PART) : 1;
		if (!shell_begin_mapped(sh, &seq, 1, at, nr))
			return most;
		most = max(most, held_bytes(sh, seq));
		shell_end(sh, &seq, 1, at, nr);
	}
	return most;
}

/* Was the sequence computed to its end? */
static bool seq_is_whole(const struct shell *sh, u64 seq)
{
	const struct kvmm_seq_status *st = &sh->statuses[KVMM_SEQ_INDEX(seq)];

	return st->state == KVMM_SEQ_READY && st->valid_len == TOKENS;
}

/* Begin and compute one sequence after the other, until one has no room. */
static struct holds fill(const struct layout *l)
{
	struct shell *sh = shell_start(FIT_POOL, EXTENT, l->nr_groups, l->group, PART);
	static u64 seqs[SHELL_SEQS];
	struct holds h = { .fit = 0 };
	u32 i, k;

	for (i = 0; i < SHELL_SEQS; i++) {
		sh->salt = i * 100000;
		seqs[i] = shell_open(sh, PROMPT, TOKENS - PROMPT, i * 100000);
		if (sh->statuses[KVMM_SEQ_INDEX(seqs[i])].state != KVMM_SEQ_READY)
			break;
		h.most = max(h.most, seq_run(sh, seqs[i]));
		if (!seq_is_whole(sh, seqs[i]))
			break;
		if (!i)
			h.end = held_bytes(sh, seqs[i]);
	}
	for (k = 0; k < i; k++)
		h.fit += seq_is_whole(sh, seqs[k]);
	shell_stop(sh);
	return h;
}

static void holds_report(const struct layout *l, const struct holds *h,
			 const struct holds *one)
{
	const double needs = needed_bytes(l);
	char name[64];
	struct bench_figure f = {
		.name = name, .value = h->end / MIB, .unit = "MiB",
		.peer = "arithmetic", .peer_value = needs / MIB,
	};

	snprintf(name, sizeof(name), "groups_8192_tokens_%s", l->name);
	bench_report(&f);
	snprintf(name, sizeof(name), "groups_sequences_that_fit_%s", l->name);
	f = (struct bench_figure){ .name = name, .value = h->fit,
				   .unit = "sequences" };
	if (h != one) {
		f.peer = "one group";
		f.peer_value = one->fit;
	}
	bench_report(&f);
	printf("| %s | %.1f | %.1f | %.3f | %.1f | %u | %.2f |\n", l->name,
	       needs / MIB, h->end / MIB, h->end / one->end, h->most / MIB, h->fit,
	       (double)h->fit / one->fit);
}

static void bench_memory(void)
{
	struct holds h[ARRAY_SIZE(layouts)];
	u32 i;

	printf("| layout | arithmetic, MiB | held at the end, MiB | to one group | most, MiB | sequences that fit | to one group |\n");
	printf("|---|---|---|---|---|---|---|\n");
	for (i = 0; i < ARRAY_SIZE(layouts); i++) {
		h[i] = fill(&layouts[i]);
		holds_report(&layouts[i], &h[i], &h[0]);
	}
}

int main(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	bench_memory();
	bench_steps();
	return 0;
}
