// SPDX-License-Identifier: Apache-2.0
/*
 * bench_ttft_tiers.c - time to the first token of a prompt that is found on a tier
 *
 * One kvrt serve with made-up weights of 116 M parameters.  Each round has a new
 * prompt of 2,000 tokens, with a KV of 94 MiB, and asks for it four times: it is
 * computed, and found on the device, in the host pool and in the area.  The prompt is
 * sent down by a low memory.max and a short request.  The host pool has room for
 * one prompt, so the prompt of a round is sent to the area by that of the next round.
 * The daemon's counters prove where the blocks came from.
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

#include <kvmm/swapd.h>

#include "tests/bench/disk.h"
#include "tests/bench/fio.h"
#include "tests/bench/keep_http.h"
#include "tests/bench/kvrt.h"

#define ROUNDS		7u
#define PROMPT		2000u
#define BLOCK_TOKENS	16u
#define LAYERS		16u
#define HEADS		12u
#define HEAD_BYTES	128u		/* 64 numbers in bf16 */
#define BLOCK		((u64)BLOCK_TOKENS * LAYERS * HEADS * HEAD_BYTES * 2)
#define SLOT		(BLOCK + SWAPD_HEADER_BYTES)
#define EXTENT		(1ull << 20)
#define BLOCKS		(PROMPT / BLOCK_TOKENS)
#define POOL_BLOCKS	320u
#define HOST_SLOTS	170u
#define AREA_BYTES	(1ull << 30)
#define LEFT_BLOCKS	4u		/* on the device, of a prompt that was sent down */
#define FEWEST		(BLOCKS - 2 * LEFT_BLOCKS)	/* that must come from a tier */
#define COPIES		4u		/* of the bytes: more than the CPU's caches hold */
#define FIO_BYTES	(256ull << 20)
#define FIO_DEPTH	16u
#define AIM		0.9

enum { COMPUTED, DEVICE, HOST, AREA, NR_PLACES };

static const char * const place_name[] = { "computed", "device", "host", "area" };

static struct bench_daemon hold;
static struct bench_kvrt server;
static double ttft[NR_PLACES][ROUNDS];		/* seconds */
static double rate[NR_PLACES][ROUNDS];		/* bytes a second of the way up */
static double share[NR_PLACES][ROUNDS];		/* of its peer */
static double copy_rate[ROUNDS], disk_rate[ROUNDS];
static double busy[ROUNDS];			/* seconds of the copier, from the host pool */
static double new_rate[ROUNDS], old_rate[ROUNDS];	/* of pwrite(), see there */

/* ---- the node ---- */

static void make_model(const char *dir)
{
	const char *top = getenv("KVMM_TOP");
	char cmd[600], path[200];
	FILE *f;

	snprintf(cmd, sizeof(cmd),
		 "mkdir '%s' && cp '%s'/tests/data/demo-model/tokenizer*.json '%s'",
		 dir, top ? top : ".", dir);
	if (system(cmd))
		bench_die("%s cannot be made", dir);
	snprintf(path, sizeof(path), "%s/config.json", dir);
	f = fopen(path, "w");
	if (!f)
		bench_die("%s: %s", path, strerror(errno));
	fprintf(f, "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", "
		"\"hidden_size\": 768, \"num_hidden_layers\": %u, "
		"\"intermediate_size\": 2048, \"num_attention_heads\": %u, "
		"\"num_key_value_heads\": %u, \"head_dim\": 64, "
		"\"vocab_size\": 4096, \"max_position_embeddings\": 4096, "
		"\"rms_norm_eps\": 1e-05, \"rope_theta\": 500000.0, "
		"\"hidden_act\": \"silu\", \"tie_word_embeddings\": true, "
		"\"attention_bias\": false, \"mlp_bias\": false, "
		"\"initializer_range\": 0.02, \"torch_dtype\": \"bfloat16\", "
		"\"bos_token_id\": 0, \"eos_token_id\": 0}\n",
		LAYERS, HEADS, HEADS);
	fclose(f);
}

/* Bytes in whole extents. */
static u64 extents(u64 bytes)
{
	return ALIGN_UP(bytes, EXTENT);
}

static void start(void)
{
	char pool[32], host[32], area[32], dir[160], cmd[256];
	const char *const args[] = {
		"--backend", "host", "--pool-size", pool, "--extent-size", "1M",
		"--host-size", host, "--area-max", area,
		"--min-token-bytes", "32768", "--max-clients", "4", NULL,
	};
	const char *const options[] = {
		"--dtype", "bf16", "--load-format", "dummy", "--domain", "ttft",
		"--served-model-name", "ttft", NULL,
	};

	snprintf(pool, sizeof(pool), "%llu",
		 (unsigned long long)extents(POOL_BLOCKS * BLOCK));
	snprintf(host, sizeof(host), "%llu",
		 (unsigned long long)extents(HOST_SLOTS * SLOT));
	snprintf(area, sizeof(area), "%llu", (unsigned long long)AREA_BYTES);
	bench_hold_start(&hold, args);
	snprintf(cmd, sizeof(cmd), "swapon '%s/area' --size %llu", hold.dir,
		 (unsigned long long)AREA_BYTES);
	if (bench_kvctl(&hold, cmd))
		bench_die("no area: room in %s?", hold.dir);
	snprintf(dir, sizeof(dir), "%s/model", hold.dir);
	make_model(dir);
	bench_kvrt_start_model(&server, &hold, "ttft", dir, options);
}

static void ask(u32 prompt, u32 nr, struct keep_answer *a)
{
	const struct keep_ask q = { .port = server.port, .model = "ttft",
				    .seed = prompt, .nr = nr, .answer = 1 };

	keep_stream(&q, a);
}

static void set_max(const char *value)
{
	char cmd[128];

	snprintf(cmd, sizeof(cmd), "set domain/ttft/memory.max %s", value);
	if (bench_kvctl(&hold, cmd))
		bench_die("memory.max cannot be set to %s", value);
}

/* Send all that is on the device down. */
static void send_down(u32 round)
{
	struct keep_answer a;
	char value[32];

	snprintf(value, sizeof(value), "%llu",
		 (unsigned long long)(LEFT_BLOCKS * BLOCK));
	set_max(value);
	ask(1000000 + round, BLOCK_TOKENS / 2, &a);
	set_max("max");
	usleep(100000);
}

/* ---- a request ---- */

static u64 counter(const char *key)
{
	return bench_file_value(&hold, "vmstat", key);
}

/* Ask for a prompt that must be found at this place; @r: the round that measures. */
static void measure(u32 prompt, u32 place, u32 r)
{
	const u64 up = counter("pgpromote"), in = counter("pswpin");
	const u64 ns = bench_file_value(&hold, "swapstat", "copy_in_ns");
	struct keep_answer a;
	u64 copied, was_read, bytes;
	bool right;

	ask(prompt, PROMPT, &a);
	copied = counter("pgpromote") - up;
	was_read = counter("pswpin") - in;
	right = place == COMPUTED ? a.cached < BLOCK_TOKENS :
		a.cached >= (BLOCKS - 1) * BLOCK_TOKENS &&
		(place == DEVICE ? !copied : copied >= FEWEST) &&
		(place == AREA ? was_read >= FEWEST : !was_read);
	if (!right)
		bench_die("round %u, %s: %u tokens are found, %llu blocks are copied up, %llu read from the area",
			  r, place_name[place], a.cached,
			  (unsigned long long)copied,
			  (unsigned long long)was_read);
	ttft[place][r] = (double)a.first / 1e9;
	if (place == HOST)
		busy[r] = (double)(bench_file_value(&hold, "swapstat",
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

/*
 * The same bytes by pwrite() in pieces of a block into a memfd, as the copier writes
 * the pool of this backend: into memory that the kernel must first clear, then
 * into the same memory again.
 */
static void pwrite_round(u32 r)
{
	const size_t bytes = BLOCKS * BLOCK;
	const int fd = memfd_create("ttft", MFD_CLOEXEC);
	const char *from = copy_from + (r + 1) % COPIES * bytes;
	double *to[] = { new_rate, old_rate };
	u64 start, at;
	u32 i;

	if (fd < 0 || ftruncate(fd, (off_t)bytes))
		bench_die("memfd: %s", strerror(errno));
	for (i = 0; i < 2; i++) {
		start = bench_now();
		for (at = 0; at < bytes; at += BLOCK)
			if (pwrite(fd, from + at, BLOCK, (off_t)at) !=
			    (ssize_t)BLOCK)
				bench_die("pwrite: %s", strerror(errno));
		to[i][r] = (double)bytes * 1e9 / (double)(bench_now() - start);
	}
	close(fd);
}

static double disk_round(const char *file)
{
	const struct fio_run run = { .dir = hold.dir, .size = FIO_BYTES,
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
	fprintf(stderr, "note: from the host pool: %.1f ms longer than from the device, the copier busy for %.1f ms of it; pwrite() of the bytes into a memfd: %.0f MB/s where the kernel clears the memory first, else %.0f MB/s\n",
		bench_median(up, ROUNDS) * 1e3, bench_median(busy, ROUNDS) * 1e3,
		bench_median(new_rate, ROUNDS) / 1e6,
		bench_median(old_rate, ROUNDS) / 1e6);
}

static void run_round(u32 r)
{
	/* Round 0 only leaves a prompt for the area. */
	const u32 at = r ? r - 1 : 0;

	send_down(r);
	measure(r, COMPUTED, at);
	measure(r, DEVICE, at);
	send_down(ROUNDS + 1 + r);
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
	start();
	disk_tell(hold.dir);
	snprintf(file, sizeof(file), "%s/fio.data", hold.dir);
	if (fio)
		fio_fill(file, FIO_BYTES);
	for (r = 0; r <= ROUNDS; r++) {
		run_round(r);
		copy_rate[r ? r - 1 : 0] = copy_round(r);
		pwrite_round(r ? r - 1 : 0);
		if (fio && r)
			disk_rate[r - 1] = disk_round(file);
	}
	report_times();
	report_rate(HOST, copy_rate, "memcpy");
	note_host();
	if (fio)
		report_rate(AREA, disk_rate, "fio");
	bench_kvrt_stop(&server);
	bench_daemon_stop(&hold);
	return 0;
}
