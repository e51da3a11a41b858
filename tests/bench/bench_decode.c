// SPDX-License-Identifier: Apache-2.0
/*
 * bench_decode.c - whole steps of a decoder as a share of the machine's limits
 *
 * Models of 1B and of 0.2B, as kernels see them: all ops of a step in order.
 * Decode steps of 1, 4 and 16 sequences have contexts of 512 and 4096.  Their
 * figure is the bytes that must be read (all weights once, the KV of every
 * sequence) per second, beside the read bandwidth.  The prefill of 512 tokens
 * is shown as multiply-adds per second, beside multiply-adds in registers.  Each
 * repeat measures its limit right before its step, with the same threads; the
 * median of these ratios is printed, with the smallest and the largest.
 *
 * The last figures are the time of a small op while its threads are awake,
 * asleep, and pinned.
 *
 * Weights and KV are pseudo-random; weights are packed if the variant packs, as
 * with --weights packed.  Layers take turns in copies of a layer that together
 * are several times larger than the caches.
 *
 * Usage: bench_decode [NAME [THREADS]], as kern_get() and kern_ctx_create()
 * take them; without arguments exact and fast mode, with one thread and all.
 */
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/bench/kern_bench.h"

#include "kernels/cpu/internal.h"

#define REPEATS		5
#define PREFILL_REPEATS	3
#define PREFILL_ROWS	512
#define WEIGHTS_BYTES	(160ull << 20)	/* of all copies of a layer */
#define MAX_COPIES	16

struct shape {
	const char	*name;
	u32		layers;
	u32		dim;
	u32		heads;
	u32		kv_heads;
	u32		hd;
	u32		ff;
	u32		vocab;
};

static const struct shape shapes[] = {
	{ "0.2B", 12, 1024, 16, 4, 64, 2816, 32000 },
	{ "1B", 16, 2048, 32, 8, 64, 8192, 128256 },
};

struct layer {
	struct kern_weight	qkv, o, gate_up, down;
};

struct model {
	const struct shape	*s;
	struct layer		layers[MAX_COPIES];
	u32			copies;
	struct kern_weight	head;
	float			*norm;
	double			bytes;		/* of weights, read in a step */
};

struct step {
	const struct model	*model;
	u32			m;
	u32			wanted;		/* rows of logits */
	struct attn_bench	attn;
	float			*x, *h, *big, *wide, *table;
};

static struct kern_weight weight(u32 rows, u32 cols)
{
	return (struct kern_weight){
		.data = limit_filled((u64)rows * cols, KERN_BF16),
		.dtype = KERN_BF16, .rows = rows, .cols = cols,
	};
}

/* The same as the runtime has it: packed, if this variant packs. */
static struct kern_weight model_weight(u32 rows, u32 cols)
{
	struct kern_weight w = weight(rows, cols);
	const void *mapped = w.data;
	size_t bytes = kb.ops->pack ? kb.ops->pack_bytes(&w) : 0;

	if (!bytes)
		return w;
	kb.ops->pack(kb.ctx, &w, limit_filled(bytes / 4, KERN_F32));
	free((void *)mapped);
	return w;
}

static u64 weight_size(const struct kern_weight *w)
{
	return (u64)w->rows * w->cols;
}

static void model_setup(struct model *mo, const struct shape *s)
{
	u32 qkv = (s->heads + 2 * s->kv_heads) * s->hd, i;
	struct layer *l = mo->layers;
	u64 size = 0;

	mo->s = s;
	for (i = 0; i < MAX_COPIES && 2 * size * i < WEIGHTS_BYTES; i++, l++) {
		l->qkv = model_weight(qkv, s->dim);
		l->o = model_weight(s->dim, s->heads * s->hd);
		l->gate_up = model_weight(2 * s->ff, s->dim);
		l->down = model_weight(s->dim, s->ff);
		size = weight_size(&l->qkv) + weight_size(&l->o) +
		       weight_size(&l->gate_up) + weight_size(&l->down);
	}
	mo->copies = i;
	mo->head = model_weight(s->vocab, s->dim);
	mo->norm = limit_filled(s->dim, KERN_F32);
	mo->bytes = 2.0 * (size * s->layers + weight_size(&mo->head));
}

static void model_free(struct model *mo)
{
	struct layer *l = mo->layers;

	for (; mo->copies; mo->copies--, l++) {
		free((void *)l->qkv.data);
		free((void *)l->o.data);
		free((void *)l->gate_up.data);
		free((void *)l->down.data);
	}
	free((void *)mo->head.data);
	free(mo->norm);
}

/* @nr sequences, the last @rows of @len positions each. */
static void step_setup(struct step *st, const struct model *mo, u32 nr,
		       u32 rows, u32 len)
{
	const struct shape *s = mo->s;
	u32 qkv = (s->heads + 2 * s->kv_heads) * s->hd, i, *pos;
	u32 widest = max(max(qkv, 2 * s->ff), s->vocab), m = nr * rows;
	float *inv = limit_filled(s->hd / 2, KERN_F32);

	*st = (struct step){ .model = mo, .m = m, .wanted = nr };
	attn_bench_setup(&st->attn, nr, rows, len, s->heads, s->kv_heads,
			 s->hd, KERN_BF16);
	st->x = limit_filled((u64)m * s->dim, KERN_F32);
	st->h = limit_filled((u64)m * s->dim, KERN_F32);
	st->big = limit_filled((u64)m * widest, KERN_F32);
	st->wide = limit_filled((u64)m * s->ff, KERN_F32);
	st->table = limit_filled((u64)m * s->hd, KERN_F32);
	pos = calloc(m, sizeof(*pos));
	for (i = 0; i < m; i++)
		pos[i] = len - rows + i % rows;
	kb.ops->rope_table(kb.ctx, inv, s->hd / 2, pos, m, st->table);
	free(pos);
	free(inv);
}

static void step_free(struct step *st)
{
	attn_bench_free(&st->attn);
	free(st->x);
	free(st->h);
	free(st->big);
	free(st->wide);
	free(st->table);
}

static void step_layer(struct step *st, const struct layer *l)
{
	const struct shape *s = st->model->s;
	u32 m = st->m, q = s->heads * s->hd, kv = s->kv_heads * s->hd;
	const float *norm = st->model->norm;
	const struct kern_ops *ops = kb.ops;
	struct kern_ctx *ctx = kb.ctx;
	u64 ld = q + 2 * kv;
	struct kern_attn a = st->attn.a;
	struct kern_kv_append app = {
		.kv = &st->attn.kv, .nr_seqs = a.nr_seqs, .seqs = a.seqs,
		.k = st->big + q, .k_ld = ld, .v = st->big + q + kv, .v_ld = ld,
	};

	ops->rmsnorm(ctx, st->x, norm, m, s->dim, 1e-5f, st->h);
	ops->gemm(ctx, st->h, 0, &l->qkv, NULL, m, st->big, 0);
	ops->rope(ctx, st->big, ld, m, s->heads + s->kv_heads, s->hd,
		  s->hd / 2, st->table);
	ops->kv_write(ctx, &app);
	a.q = st->big;
	a.q_ld = ld;
	ops->attention(ctx, &a);
	ops->gemm(ctx, a.out, 0, &l->o, NULL, m, st->h, 0);
	ops->add(ctx, st->x, st->h, (u64)m * s->dim);
	ops->rmsnorm(ctx, st->x, norm, m, s->dim, 1e-5f, st->h);
	ops->gemm(ctx, st->h, 0, &l->gate_up, NULL, m, st->big, 0);
	ops->silu_mul(ctx, st->big, st->big + s->ff, 2ull * s->ff, m, s->ff,
		      st->wide);
	ops->gemm(ctx, st->wide, 0, &l->down, NULL, m, st->h, 0);
	ops->add(ctx, st->x, st->h, (u64)m * s->dim);
}

/* Seconds of one step; logits of one row a sequence. */
static double step_run(struct step *st)
{
	const struct model *mo = st->model;
	double t = kb_now();
	u32 i;

	for (i = 0; i < mo->s->layers; i++)
		step_layer(st, &mo->layers[i % mo->copies]);
	kb.ops->gemm(kb.ctx, st->x, 0, &mo->head, NULL, st->wanted, st->big,
		     0);
	kern_ctx_rest(kb.ctx);
	return kb_now() - t;
}

static int compare(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

/* Sort @v.  Return: the middle one of @n. */
static double median(double *v, u32 n)
{
	qsort(v, n, sizeof(*v), compare);
	return v[n / 2];
}

/* A step has @work units of the limit: print a median ratio and its spread. */
static void measure(const char *name, struct step *st, double work,
		    double (*limit)(void), const char *unit, const char *peer,
		    u32 repeats)
{
	double rate[REPEATS], peak[REPEATS], ratio[REPEATS], mid;
	u32 r;

	step_run(st);
	for (r = 0; r < repeats; r++) {
		peak[r] = limit();
		rate[r] = work / step_run(st) / 1e9;
		ratio[r] = rate[r] / peak[r];
	}
	mid = median(ratio, repeats);
	median(rate, repeats);
	median(peak, repeats);
	printf("  %-30s %7.1f %-7s %4.2f of %s (%.2f to %.2f)  %8.1f tokens/s\n",
	       name, rate[repeats / 2], unit, mid, peer, ratio[0],
	       ratio[repeats - 1], rate[repeats / 2] * 1e9 / work * st->m);
	fflush(stdout);
	if (kb.figures)
		fprintf(kb.figures,
			"{\"name\": \"%s %s, %u threads\", \"value\": %.6g, "
			"\"unit\": \"%s\", \"peer\": \"%s\", "
			"\"peer_value\": %.6g, \"ratio\": %.4f}\n", name,
			kb.ops->variant, kern_ctx_nr_threads(kb.ctx),
			rate[repeats / 2], unit, peer, peak[repeats / 2], mid);
}

static void bench_decode(const struct model *mo, u32 nr, u32 len)
{
	struct step st;
	char name[64];

	step_setup(&st, mo, nr, 1, len);
	snprintf(name, sizeof(name), "decode %s batch %u ctx %u", mo->s->name,
		 nr, len);
	measure(name, &st,
		mo->bytes + (double)st.attn.kv_bytes * mo->s->layers, kb_read,
		"GB/s", "read", REPEATS);
	step_free(&st);
}

static void bench_prefill(const struct model *mo)
{
	const struct shape *s = mo->s;
	const u32 m = PREFILL_ROWS;
	double head = 2.0 * s->vocab * s->dim, flops;
	struct step st;
	char name[64];

	step_setup(&st, mo, 1, m, m);
	flops = (mo->bytes - head) * m + head +
		4.0 * s->heads * s->hd * s->layers * m * (m / 2.0);
	snprintf(name, sizeof(name), "prefill %s %u tokens", s->name, m);
	measure(name, &st, flops, kb_peak, "GFLOP/s", "peak",
		PREFILL_REPEATS);
	step_free(&st);
}

/* --------------------------------------------------------------- threads */

#define OP_ROUNDS	200

static const char *const op_states[] = {
	"threads awake", "threads asleep", "pinned, awake", "pinned, asleep",
};

/* A product of a small model, of some tens of microseconds. */
static void bench_op(u32 state)
{
	struct kern_weight w = weight(1024, 1024);
	float *x = limit_filled(1024, KERN_F32), *y = limit_filled(1024, KERN_F32);
	double us[OP_ROUNDS], t;
	u32 r;

	for (r = 0; r < OP_ROUNDS; r++) {
		if (state & 1) {
			kern_ctx_rest(kb.ctx);
			usleep(2000);
		}
		/* Bring it into the caches, with this thread alone. */
		kb.ops->gemm(NULL, x, 0, &w, NULL, 1, y, 0);
		t = kb_now();
		kb.ops->gemm(kb.ctx, x, 0, &w, NULL, 1, y, 0);
		us[r] = 1e6 * (kb_now() - t);
	}
	median(us, OP_ROUNDS);
	printf("  gemm 1x1024x1024, %-15s %6.1f us (nine in ten within %.1f)\n",
	       op_states[state], us[OP_ROUNDS / 2], us[OP_ROUNDS * 9 / 10]);
	free((void *)w.data);
	free(x);
	free(y);
}

static int bench_one(const char *kernel, u32 threads)
{
	static const u32 batches[] = { 1, 4, 16 };
	struct model mo;
	cpu_set_t set;
	u32 i, b;

	if (kb_open(kernel, threads))
		return -1;
	printf("%s:%s, %u threads: read %.1f GB/s, peak %.0f GFLOP/s\n",
	       kb.ops->name, kb.ops->variant, kern_ctx_nr_threads(kb.ctx),
	       kb_read(), kb_peak());
	for (i = 0; i < ARRAY_SIZE(shapes); i++) {
		model_setup(&mo, &shapes[i]);
		for (b = 0; b < ARRAY_SIZE(batches); b++) {
			bench_decode(&mo, batches[b], 512);
			bench_decode(&mo, batches[b], 4096);
		}
		bench_prefill(&mo);
		model_free(&mo);
	}
	bench_op(0);
	bench_op(1);
	sched_getaffinity(0, sizeof(set), &set);
	if (kern_ctx_nr_threads(kb.ctx) > 1 && !kern_ctx_pin(kb.ctx)) {
		bench_op(2);
		bench_op(3);
	}
	sched_setaffinity(0, sizeof(set), &set);
	kb_close();
	return 0;
}

int main(int argc, char **argv)
{
	bool fast = kern_get("cpu-fast") != kern_get("cpu");

	if (argc > 1)
		return bench_one(argv[1], argc > 2 ? atoi(argv[2]) : 0) ?
		       EXIT_FAILURE : EXIT_SUCCESS;
	if (!fast)
		printf("no kernels of fast mode run here: exact ones only\n");
	if (bench_one("cpu", 1) || (fast && bench_one("cpu-fast", 1)) ||
	    bench_one("cpu", 0))
		return EXIT_FAILURE;
	return fast && bench_one("cpu-fast", 0) ? EXIT_FAILURE : EXIT_SUCCESS;
}
