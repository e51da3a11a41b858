// SPDX-License-Identifier: Apache-2.0
/*
 * bench_overlap.c - what could be won if a sequence computed while its prefix is promoted?
 *
 * First: prompts of 2,000 tokens of which the first 1,500 are found on the device, in the
 * host pool or in an area; the last 500 are computed.  A sequence runs when all that was
 * found is promoted, so a lower tier adds the time of the promotion to that of computing.
 * If both were done at once, and cost no more, the smaller of the two times would be won:
 * that is the most.  The share of the time to the first token is the figure.
 *
 * A token needs the KV of all tokens before it in each layer.  So whole tokens can be
 * computed meanwhile only from the front of the prefix, in place of reading them.  The gain
 * of the best number of such tokens follows from the same times.
 *
 * Second: overlap_steps.c.
 */
#include <string.h>

#include "tests/bench/overlap.h"
#include "tests/bench/ttft.h"

#define ROUNDS		7u
#define PROMPT		2000u
#define FOUND		1500u
#define BLOCKS		(FOUND / TTFT_TOKENS)
#define FEWEST		(BLOCKS - 2 * TTFT_LEFT)
#define POOL_BLOCKS	320u
#define HOST_SLOTS	170u

enum { DEVICE, HOST, AREA, NR_PLACES };

static const char * const place_name[] = { "device", "host", "area" };

static struct ttft_node node;
static double ttft[NR_PLACES][ROUNDS];

/* Ask for the whole prompt; its first part must be found at this place. */
static void measure(u32 prompt, u32 place, u32 r)
{
	const u64 up = ttft_counter(&node, "pgpromote"), in = ttft_counter(&node, "pswpin");
	struct keep_answer a;
	u64 copied, was_read;

	ttft_ask(&node, prompt, PROMPT, &a);
	copied = ttft_counter(&node, "pgpromote") - up;
	was_read = ttft_counter(&node, "pswpin") - in;
	if (a.cached < BLOCKS * TTFT_TOKENS || a.cached > FOUND ||
	    (place == DEVICE ? copied : copied < FEWEST) ||
	    (place == AREA ? was_read < FEWEST : was_read))
		bench_die("round %u, %s: %u tokens are found, %llu blocks are copied up, %llu read from the area",
			  r, place_name[place], a.cached, (unsigned long long)copied,
			  (unsigned long long)was_read);
	ttft[place][r] = (double)a.first / 1e6;
}

/* The first part of a prompt becomes known, and is sent down. */
static void prepare(u32 prompt)
{
	struct keep_answer a;

	ttft_ask(&node, prompt, FOUND, &a);
}

static void run_round(u32 r)
{
	const u32 prompt = 3 * r;

	prepare(prompt + AREA);
	ttft_send_down(&node, 3 * r);
	prepare(prompt + DEVICE);
	measure(prompt + DEVICE, DEVICE, r);
	ttft_send_down(&node, 3 * r + 1);
	prepare(prompt + HOST);
	ttft_send_down(&node, 3 * r + 2);
	measure(prompt + HOST, HOST, r);
	measure(prompt + AREA, AREA, r);
}

/*
 * Tokens of the prefix that are computed in the time in which the others are promoted:
 * @up and @computing are milliseconds of the whole prefix and of the rest of the prompt.
 */
static double split(double up, double computing)
{
	return up / (computing / (PROMPT - FOUND) + up / FOUND);
}

static void note(u32 place, double first, double up, double share, double lo, double hi)
{
	const double computing = bench_median(ttft[DEVICE], ROUNDS);
	const double tokens = split(up, computing);

	fprintf(stderr, "note: %u of %u tokens are found in the %s: first token after %.0f ms, %.1f of them promotion, %.0f computing: overlap could win %.3f of it at most (%.3f to %.3f)\n",
		FOUND, PROMPT, place_name[place], first, up, computing, share, lo, hi);
	fprintf(stderr, "note: computing the first %.0f tokens while the others come from the %s would win %.1f ms\n",
		tokens, place_name[place], tokens * up / FOUND);
}

static void report(u32 place)
{
	double up[ROUNDS], most[ROUNDS], lo, hi;
	char name[64];
	u32 r;

	for (r = 0; r < ROUNDS; r++) {
		up[r] = max(ttft[place][r] - ttft[DEVICE][r], 0.0);
		most[r] = min(up[r], ttft[DEVICE][r]) / ttft[place][r];
	}
	bench_range(most, ROUNDS, &lo, &hi);
	note(place, bench_median(ttft[place], ROUNDS), bench_median(up, ROUNDS),
	     bench_median(most, ROUNDS), lo, hi);
	snprintf(name, sizeof(name), "overlap.%s_share", place_name[place]);
	bench_report(&(struct bench_figure){
		.name = name, .value = bench_median(most, ROUNDS), .unit = "of first token",
	});
	snprintf(name, sizeof(name), "overlap.%s_promotion", place_name[place]);
	bench_report(&(struct bench_figure){
		.name = name, .value = bench_median(up, ROUNDS), .unit = "ms",
		.peer = "computing", .peer_value = bench_median(ttft[DEVICE], ROUNDS),
	});
}

int main(void)
{
	u32 r;

	setvbuf(stdout, NULL, _IOLBF, 0);
	ov_run();
	ttft_start(&node, POOL_BLOCKS, HOST_SLOTS);
	for (r = 0; r < ROUNDS; r++)
		run_round(r);
	report(HOST);
	report(AREA);
	ttft_stop(&node);
	return 0;
}
