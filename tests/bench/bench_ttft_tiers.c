// SPDX-License-Identifier: Apache-2.0
/*
 * bench_ttft_tiers.c - time to the first token of a prompt that is found on a tier
 *
 * One kvrt serve with made-up weights of 116 M parameters.  Each round has a new
 * prompt of 125 whole blocks and one token, with a KV of 94 MiB, and asks for it four
 * times: it is computed, and found on the device, in the host pool and in the area; the
 * last token is computed in any case.  The prompt is sent down by a low memory.max and a
 * short request.  The host pool has room for one prompt, so the prompt of a round is sent
 * to the area by that of the next round.  The daemon's counters prove where the blocks
 * came from.
 *
 * The time that a lower tier adds to the time of a prompt on the device is the time of its
 * way up.  Beside it are the same bytes by one thread with memcpy(), and from the
 * disk by fio, of the same rounds.
 *
 * Aims: 90 % of the bytes a second of memcpy() and of fio.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/bench/disk.h"
#include "tests/bench/fio.h"
#include "tests/bench/ttft.h"

#define ROUNDS		11u
#define PROMPT		2001u		/* whole blocks, and one token */
#define BLOCK_TOKENS	TTFT_TOKENS
#define BLOCK		TTFT_BLOCK
#define SLOT		(BLOCK + SWAPD_HEADER_BYTES)
#define BLOCKS		(PROMPT / BLOCK_TOKENS)
#define POOL_BLOCKS	320u
#define HOST_SLOTS	170u
#define FEWEST		(BLOCKS - 2 * TTFT_LEFT)	/* that must come from a tier */
#define COPIES		4u		/* of the bytes: more than the CPU's caches hold */
#define FIO_BYTES	(256ull << 20)
#define FIO_DEPTH	16u
#define AIM		0.9

enum { COMPUTED, DEVICE, HOST, AREA, NR_PLACES };

static const char * const place_name[] = { "computed", "device", "host", "area" };

static struct ttft_node node;
static double ttft[NR_PLACES][ROUNDS];		/* seconds */
static double rate[NR_PLACES][ROUNDS];		/* bytes a second of the way up */
static double share[NR_PLACES][ROUNDS];		/* of its peer */
static double copy_rate[ROUNDS], disk_rate[ROUNDS];
static double busy[ROUNDS];			/* seconds of the copier, from the host pool */

/* ---- a request ---- */

/* Ask for a prompt that must be found at this place; @r: the round that measures. */
static void measure(u32 prompt, u32 place, u32 r)
{
	const u64 up = ttft_counter(&node, "pgpromote"), in = ttft_counter(&node, "pswpin");
	const u64 ns = bench_file_value(&node.hold, "swapstat", "copy_in_ns");
	struct keep_answer a;
	u64 copied, was_read, bytes;
	bool right;

	usleep(100000);
	ttft_ask(&node, prompt, PROMPT, &a);
	copied = ttft_counter(&node, "pgpromote") - up;
	was_read = ttft_counter(&node, "pswpin") - in;
	right = place == COMPUTED ? a.cached < BLOCK_TOKENS :
		a.cached == BLOCKS * BLOCK_TOKENS &&
		(place == DEVICE ? !copied : copied >= FEWEST) &&
		(place == AREA ? was_read >= FEWEST : !was_read);
	if (!right)
		bench_die("round %u, %s: %u tokens are found, %llu blocks are copied up, %llu read from the area",
			  r, place_name[place], a.cached,
			  (unsigned long long)copied,
			  (unsigned long long)was_read);
	ttft[place][r] = (double)a.first / 1e9;
	if (place == HOST)
		busy[r] = (double)(bench_file_value(&node.hold, "swapstat",
						    "copy_in_ns") - ns) / 1e9;
	bytes = copied * BLOCK;
	if (place >= HOST)
		rate[place][r] = (double)bytes /
			max(ttft[place][r] - ttft[DEVICE][r], 1e-6);
}

/* ---- peers ---- */

static char *copy_from, *copy_to;

/* memcpy() of a prompt's bytes that no cache of the CPU has. */
static double copy_round(u32 r)
{
	const size_t bytes = BLOCKS * BLOCK;
	u64 start;

	if (!copy_from) {
		copy_from = malloc(COPIES * bytes);
		copy_to = malloc(COPIES * bytes);
		if (!copy_from || !copy_to)
			bench_die("no memory for copies");
		memset(copy_from, 1, COPIES * bytes);
		memset(copy_to, 2, COPIES * bytes);
	}
	start = bench_now();
	memcpy(copy_to + r % COPIES * bytes, copy_from + r % COPIES * bytes,
	       bytes);
	return (double)bytes * 1e9 / (double)(bench_now() - start);
}

static double disk_round(const char *file)
{
	const struct fio_run run = { .dir = node.hold.dir, .size = FIO_BYTES,
				     .ramp_ms = 100, .ms = 400 };
	const struct fio_job job = { .file = file, .bs = SLOT,
				     .depth = FIO_DEPTH };
	struct fio_result res;

	fio_run(&run, &job, 1, &res);
	return (1 << 20) * 1e6 / res.us_mib;
}

/* ---- figures ---- */

static void report_times(void)
{
	double s[NR_PLACES], lo, hi;
	char name[64];
	u32 i;

	printf("| found | first token, ms | least, most | of computing |\n");
	printf("|---|---|---|---|\n");
	for (i = 0; i < NR_PLACES; i++) {
		s[i] = bench_median(ttft[i], ROUNDS);
		bench_range(ttft[i], ROUNDS, &lo, &hi);
		printf("| %s | %.1f | %.1f, %.1f | %.4f |\n", place_name[i],
		       s[i] * 1e3, lo * 1e3, hi * 1e3, s[i] / s[COMPUTED]);
		snprintf(name, sizeof(name), "ttft_tiers.%s", place_name[i]);
		bench_report(&(struct bench_figure){
			.name = name, .value = s[i] * 1e3, .unit = "ms",
			.peer = i ? "computed" : NULL,
			.peer_value = s[COMPUTED] * 1e3,
		});
	}
	fprintf(stderr, "note: first token of %u: computed %.0f ms; found on the device %.1f ms, %.4f of it; host pool %.1f ms, %.4f; area %.1f ms, %.4f\n",
		PROMPT, s[COMPUTED] * 1e3, s[DEVICE] * 1e3,
		s[DEVICE] / s[COMPUTED], s[HOST] * 1e3, s[HOST] / s[COMPUTED],
		s[AREA] * 1e3, s[AREA] / s[COMPUTED]);
}

static void report_rate(u32 place, const double *peer, const char *peer_name)
{
	double ratio, lo, hi;
	char name[64];
	u32 i;

	for (i = 0; i < ROUNDS; i++)
		share[place][i] = rate[place][i] / peer[i];
	/* The disk's noise is not that of the round: medians, and their ratio. */
	ratio = bench_median(rate[place], ROUNDS) / bench_median(peer, ROUNDS);
	bench_range(share[place], ROUNDS, &lo, &hi);
	snprintf(name, sizeof(name), "ttft_tiers.%s_rate", place_name[place]);
	bench_report(&(struct bench_figure){
		.name = name, .unit = "MB/s",
		.value = bench_median(rate[place], ROUNDS) / 1e6,
		.peer = peer_name,
		.peer_value = bench_median(peer, ROUNDS) / 1e6,
		.ratio = ratio, .ratio_low = lo, .ratio_high = hi,
		.min_ratio = AIM,
	});
	bench_verdict(ratio >= AIM,
		      "from the %s: %.0f MB/s, %s %.0f MB/s: %.2f of it (%.2f to %.2f), aim %.2f",
		      place_name[place], bench_median(rate[place], ROUNDS) / 1e6,
		      peer_name, bench_median(peer, ROUNDS) / 1e6, ratio, lo, hi,
		      AIM);
}

/* Where the way up from the host pool takes its time. */
static void note_host(void)
{
	double up[ROUNDS];
	u32 i;

	for (i = 0; i < ROUNDS; i++)
		up[i] = ttft[HOST][i] - ttft[DEVICE][i];
	fprintf(stderr, "note: from the host pool: %.1f ms longer than from the device, the copier busy for %.1f ms of it\n",
		bench_median(up, ROUNDS) * 1e3, bench_median(busy, ROUNDS) * 1e3);
}

static void run_round(u32 r)
{
	/* Round 0 only leaves a prompt for the area. */
	const u32 at = r ? r - 1 : 0;

	ttft_send_down(&node, r);
	measure(r, COMPUTED, at);
	measure(r, DEVICE, at);
	ttft_send_down(&node, ROUNDS + 1 + r);
	measure(r, HOST, at);
	if (r)
		measure(r - 1, AREA, at);
}

int main(void)
{
	const bool fio = fio_is_there();
	char file[160];
	u32 r;

	setvbuf(stdout, NULL, _IOLBF, 0);
	ttft_start(&node, POOL_BLOCKS, HOST_SLOTS);
	disk_tell(node.hold.dir);
	snprintf(file, sizeof(file), "%s/fio.data", node.hold.dir);
	if (fio)
		fio_fill(file, FIO_BYTES);
	for (r = 0; r <= ROUNDS; r++) {
		run_round(r);
		copy_rate[r ? r - 1 : 0] = copy_round(r);
		if (fio && r)
			disk_rate[r - 1] = disk_round(file);
	}
	report_times();
	report_rate(HOST, copy_rate, "memcpy");
	note_host();
	if (fio)
		report_rate(AREA, disk_rate, "fio");
	ttft_stop(&node);
	return 0;
}
