// SPDX-License-Identifier: Apache-2.0
/*
 * bench_gemm.c - matrix products beside reading, multiplying, and oneDNN
 *
 * Two layers of an 8B model, bf16 and f32 weights, batches from one row
 * (decode) to 512 (prefill), with one thread and with two.  Each row of the
 * table is measured in rounds, and a round runs, in turn: a read of memory,
 * multiply-adds in registers, ours in exact mode, ours in fast mode with
 * weights in place (on huge pages, and on the 4 KiB pages that a mapped file
 * has) and packed, oneDNN with the weights as a checkpoint has them and with
 * weights that it packed before.  Each product has its own operands, so none
 * finds those of another in the caches.  The table shows the median of the
 * rounds and the ratio of ours to the better one of oneDNN's: median and range.
 *
 * oneDNN gets x in bf16, ours round it themselves.  Without oneDNN its columns
 * stay empty.
 *
 * Usage: bench_gemm [M [THREADS]]
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/cpu/internal.h"
#include "tests/bench/bench.h"
#include "tests/bench/limits.h"
#include "tests/bench/onednn.h"

#define ROUNDS		5
/* Short products are repeated in a round, for about this many multiply-adds. */
#define ROUND_WORK	(1ull << 30)
/* oneDNN's threads spin for some time after their work. */
#define SPIN_US		20000
#define AIM_READ	0.7
#define AIM_ONEDNN	0.7

/* Measurements of a round; rates in GFLOP/s but for READ. */
enum {
	READ, PEAK_EXACT, PEAK_FAST, EXACT, FAST, FAST_SMALL, FAST_PACKED,
	PEER, PEER_PACKED, NR
};

struct bench {
	struct kern_ctx		*ctx;
	u32			m;
	u32			n;
	u32			k;
	enum kern_dtype		type;
	const void		*x;		/* f32, and for oneDNN */
	const void		*x_peer;
	float			*y;
	const void		*w[2];		/* ours, oneDNN's */
	const void		*small;		/* ours on small pages */
	struct kern_weight	packed;
	struct onednn_gemm	*peer[2];
	double			rate[NR][ROUNDS];
};

static const struct kern_ops *exact, *fast;
static const char *no_peer;

static double gflop(const struct bench *b)
{
	return 2e-9 * b->m * b->n * b->k;
}

/* A copy of @from on pages of 4 KiB. */
static void *small_copy(const void *from, u64 bytes)
{
	void *to = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (to == MAP_FAILED)
		bench_die("no memory for %llu MB",
			  (unsigned long long)(bytes >> 20));
	madvise(to, bytes, MADV_NOHUGEPAGE);
	return memcpy(to, from, bytes);
}

/* A packed copy on huge pages, if fast mode packs. */
static struct kern_weight packed_copy(struct kern_ctx *ctx,
				      const struct kern_weight *from)
{
	struct kern_weight w = *from;
	size_t bytes = fast->pack ? fast->pack_bytes(&w) : 0;

	if (bytes)
		fast->pack(ctx, &w, limit_filled(bytes / 4, KERN_F32));
	return w;
}

/* Rate of the product of @ops with @w or, without @ops, of @peer. */
static double rate_of(struct bench *b, const struct kern_ops *ops,
		      const struct kern_weight *w, struct onednn_gemm *peer)
{
	u32 times = max(1ull, ROUND_WORK / ((u64)b->m * b->n * b->k)), i;
	double t;

	if (!ops && !peer)
		return 0;
	t = limit_now(b->ctx);
	for (i = 0; i < times; i++) {
		if (ops)
			ops->gemm(b->ctx, b->x, 0, w, NULL, b->m, b->y, 0);
		else
			onednn_gemm_run(peer);
	}
	t = limit_now(b->ctx) - t;
	if (peer)
		usleep(SPIN_US);
	return times * gflop(b) / t;
}

static void round_run(struct bench *b, u32 r)
{
	struct kern_weight w = { .data = b->w[0], .dtype = b->type, .rows = b->n, .cols = b->k };
	struct kern_weight small = w;
	const bool bf16 = b->type == KERN_BF16;

	small.data = b->small;
	b->rate[READ][r] = limit_read(b->ctx);
	b->rate[PEAK_EXACT][r] = limit_peak(b->ctx, exact);
	b->rate[PEAK_FAST][r] = limit_peak(b->ctx, fast);
	b->rate[EXACT][r] = rate_of(b, exact, &w, NULL);
	b->rate[PEER][r] = rate_of(b, NULL, NULL, b->peer[0]);
	b->rate[FAST][r] = bf16 ? rate_of(b, fast, &w, NULL) : 0;
	b->rate[FAST_SMALL][r] = bf16 ? rate_of(b, fast, &small, NULL) : 0;
	if (b->packed.packed)
		b->rate[FAST_PACKED][r] = rate_of(b, fast, &b->packed, NULL);
	b->rate[PEER_PACKED][r] = rate_of(b, NULL, NULL, b->peer[1]);
}

/* A product reads mostly weights: GB/s of the weights alone. */
static double gbs(const struct bench *b, double rate)
{
	return rate / gflop(b) * b->n * b->k * kern_dtype_size(b->type) / 1e9;
}

/* Report a figure of ours beside @peer's. */
static void figure(const struct bench *b, const char *mode, double value,
		   const char *unit, const char *peer, double peer_value,
		   double aim)
{
	char name[96];
	struct bench_figure f = {
		.name = name, .value = value, .unit = unit, .peer = peer,
		.peer_value = peer_value, .min_ratio = aim,
	};

	snprintf(name, sizeof(name), "gemm %s %s %ux%ux%u, %u threads, of %s",
		 b->type == KERN_BF16 ? "bf16" : "f32", mode, b->m, b->n, b->k,
		 kern_ctx_nr_threads(b->ctx), peer);
	bench_report(&f);
}

static void show(const struct bench *b, const char *mode, u32 what, u32 peak)
{
	double rate = bench_median(b->rate[what], ROUNDS);
	double read = bench_median(b->rate[READ], ROUNDS);
	double of[ROUNDS], lo, hi, peer;
	u32 r;

	for (r = 0; r < ROUNDS; r++) {
		peer = max(b->rate[PEER][r], b->rate[PEER_PACKED][r]);
		of[r] = peer > 0 ? b->rate[what][r] / peer : 0;
	}
	bench_range(of, ROUNDS, &lo, &hi);
	peer = max(bench_median(b->rate[PEER], ROUNDS),
		   bench_median(b->rate[PEER_PACKED], ROUNDS));
	printf("%-5s %-6s %4u %6u %5u %2u | %6.1f GFLOP/s %4.2f of peak | %5.1f GB/s %4.2f of read",
	       b->type == KERN_BF16 ? "bf16" : "f32", mode, b->m, b->n, b->k,
	       kern_ctx_nr_threads(b->ctx), rate,
	       rate / bench_median(b->rate[peak], ROUNDS), gbs(b, rate),
	       gbs(b, rate) / read);
	if (peer > 0)
		printf(" | %4.2f (%4.2f-%4.2f) of oneDNN: %.1f, packed %.1f",
		       bench_median(of, ROUNDS), lo, hi,
		       bench_median(b->rate[PEER], ROUNDS),
		       bench_median(b->rate[PEER_PACKED], ROUNDS));
	putchar('\n');
	fflush(stdout);
	if (b->m <= 16)
		figure(b, mode, gbs(b, rate), "GB/s", "read", read,
		       what == FAST || what == FAST_PACKED ? AIM_READ : 0);
	if (peer > 0)
		figure(b, mode, rate, "GFLOP/s", "oneDNN", peer,
		       b->m == 512 ? AIM_ONEDNN : 0);
}

static void bench_shape(struct kern_ctx *ctx, u32 m, u32 n, u32 k,
			enum kern_dtype type)
{
	struct bench b = {
		.ctx = ctx, .m = m, .n = n, .k = k, .type = type,
		.x = limit_filled((u64)m * k, KERN_F32),
		.x_peer = limit_filled((u64)m * k, type),
		.y = limit_filled((u64)m * n, KERN_F32),
		.w = { limit_filled((u64)n * k, type),
		       limit_filled((u64)n * k, type) },
	};
	const u64 bytes = (u64)n * k * kern_dtype_size(type);
	struct kern_weight w = { .data = b.w[0], .dtype = type, .rows = n, .cols = k };
	u32 i;

	b.small = small_copy(b.w[0], bytes);
	b.packed = packed_copy(ctx, &w);
	for (i = 0; !no_peer && i < 2; i++)
		b.peer[i] = onednn_gemm_create(m, n, k, type == KERN_BF16, i,
					       b.x_peer, b.w[1], b.y);
	for (i = 0; i < ROUNDS; i++)
		round_run(&b, i);
	show(&b, "exact", EXACT, PEAK_EXACT);
	if (type == KERN_BF16 && fast != exact)
		show(&b, "fast", FAST, PEAK_FAST);
	if (type == KERN_BF16 && fast != exact)
		show(&b, "fast4k", FAST_SMALL, PEAK_FAST);
	if (b.packed.packed)
		show(&b, "packed", FAST_PACKED, PEAK_FAST);
	if (b.packed.packed)
		free((void *)b.packed.data);
	munmap((void *)b.small, bytes);
	for (i = 0; i < 2; i++) {
		onednn_gemm_destroy(b.peer[i]);
		free((void *)b.w[i]);
	}
	free((void *)b.x);
	free((void *)b.x_peer);
	free(b.y);
}

static void bench_threads(u32 threads, u32 only)
{
	static const u32 rows[] = { 1, 4, 8, 16, 64, 512 };
	struct kern_ctx *ctx;
	enum kern_dtype type;
	u32 i;

	if (kern_ctx_create(threads, &ctx))
		bench_die("cannot start %u threads", threads);
	if (!no_peer)
		onednn_threads(threads);
	for (type = KERN_F32; type <= KERN_BF16; type++) {
		for (i = 0; i < ARRAY_SIZE(rows); i++) {
			if (only && rows[i] != only)
				continue;
			bench_shape(ctx, rows[i], 4096, 4096, type);
			bench_shape(ctx, rows[i], 14336, 4096, type);
		}
	}
	printf("%u threads: read %.1f GB/s, peak exact %.0f, fast %.0f GFLOP/s\n",
	       threads, limit_read(ctx), limit_peak(ctx, exact),
	       limit_peak(ctx, fast));
	kern_ctx_destroy(ctx);
}

int main(int argc, char **argv)
{
	u32 only = argc > 1 ? strtoul(argv[1], NULL, 10) : 0;
	u32 threads = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;

	exact = kern_get("cpu");
	fast = kern_get("cpu-fast");
	no_peer = onednn_open();
	if (no_peer)
		printf("note: no oneDNN beside ours: %s\n", no_peer);
	if (fast == exact)
		printf("note: this processor has no variant of fast mode\n");
	if (threads) {
		bench_threads(threads, only);
		return EXIT_SUCCESS;
	}
	bench_threads(1, only);
	bench_threads(2, only);
	return EXIT_SUCCESS;
}
