// SPDX-License-Identifier: Apache-2.0
/*
 * bench_streams.c - how evenly very many streams flow
 *
 * kvrt serve with the demo model, all cores, and 1,000 clients that read
 * streams and ask again when one has ended, beside 10,000 idle connections.  A
 * step takes all sequences, so the time between two events of a client is the
 * time of a step.  Prompts of other clients and other processes of the machine
 * disturb it.  The aim: of a hundred gaps one at most is longer than three times
 * the middle one.
 */
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/bench/kvrt.h"
#include "tests/bench/streams.h"

#define STREAMS		1000u
#define IDLE		10000u
#define TOKENS		100u		/* of an answer, in the mean */
#define ROUNDS		5u
#define WARM_MS		3000u
#define ROUND_MS	5000u
#define GAPS_MAX	4000000u
#define SPARE_FDS	200u
#define AIM		3.0

static struct bench_daemon hold;
static struct bench_kvrt server;

/* Idle connections that the limit of descriptors allows. */
static u32 idle_allowed(void)
{
	const rlim_t want = STREAMS + IDLE + SPARE_FDS;
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r))
		bench_die("getrlimit: %s", strerror(errno));
	r.rlim_cur = r.rlim_max < want ? r.rlim_max : want;
	if (setrlimit(RLIMIT_NOFILE, &r) || r.rlim_cur < STREAMS + SPARE_FDS)
		bench_die("%u streams want more than %llu descriptors: raise them with ulimit -n",
			  STREAMS, (unsigned long long)r.rlim_cur);
	return (u32)r.rlim_cur - STREAMS - SPARE_FDS;
}

int main(void)
{
	static const char *const args[] = {
		"--pool-size", "1G", "--extent-size", "4M", NULL,
	};
	static const char *const options[] = {
		"--dtype", "bf16", "--max-requests", "2048", "--max-seqs",
		"1024", "--max-batch", "1024", "--head-timeout", "3600", NULL,
	};
	const u32 nr_idle = idle_allowed();
	struct bench_series gaps = { .name = "stream_gap" };
	struct streams *idle, *busy;
	struct bench_samples s;
	double p50, p99, ratio;
	u32 i;

	bench_samples_init(&s, GAPS_MAX);
	bench_hold_start(&hold, args);
	bench_kvrt_start(&server, &hold, options);
	idle = streams_open(server.port, nr_idle, 0);
	busy = streams_open(server.port, STREAMS, TOKENS);
	streams_await(busy, 60000);
	streams_run(busy, WARM_MS);
	streams_watch(busy, &s);
	for (i = 0; i < ROUNDS; i++) {
		streams_run(busy, ROUND_MS);
		bench_round(&gaps, &s);
	}
	streams_close(busy);
	streams_close(idle);
	bench_kvrt_stop(&server);
	bench_daemon_stop(&hold);

	p50 = bench_median(gaps.p50, ROUNDS);
	p99 = bench_median(gaps.p99, ROUNDS);
	ratio = p99 / p50;
	bench_report(&(struct bench_figure){
		.name = "stream_gap_p99", .value = p99, .unit = "us",
		.peer = "the median gap", .peer_value = p50, .max_ratio = AIM,
	});
	fprintf(stderr, "note: %u streams beside %u idle connections: gaps of %.0f us, 99%% within %.0f us\n",
		STREAMS, nr_idle, p50, p99);
	bench_verdict(ratio <= AIM, "99%% of the gaps within %.2f times the median, aim %.0f",
		      ratio, AIM);
	return 0;
}
