// SPDX-License-Identifier: Apache-2.0
/*
 * it_pressure.c - everything at once, with a fifth of the memory it wants
 *
 * budget: 60 s, full 200 s, soak 900 s
 * from: full
 *
 * 600 requests (full: 3,000, soak: 10,000) with four samples and with one,
 * priorities, flows, cancellations and deadlines.  The first run has memory for
 * all: it shows their working set and the right tokens.  Then they get a fifth
 * of that memory, a host pool and a swap area, so that blocks are copied on
 * write, evicted, swapped and recomputed.
 *
 * In exact mode every token must be the same, greedy or from a seed, and a text
 * that was cut short must be the beginning of the right one.  In fast mode a
 * token may differ only where the two best tokens of the reference, exact mode
 * alone in private memory, are closer together than MODEL_FAST_TOL.  This is
 * judged at the first difference of each sample, behind which texts may part.
 *
 * Each request ends; the longest wait is printed.  In the end all memory is
 * free.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/integration/pressure_load.h"

#define ROUNDS_MAX	4u
#define SHARE		5	/* one part of so many of the working set */
#define EXTENT		(256u << 10)
#define HOST		"512K"
#define AREA		"256M"
#define SWAPPINESS	"200"	/* swap while there is room, whatever the cost */

static struct model *exact, *fast;
static struct load_run truth;
static struct rig rig;

/* ---- the reference ---- */

/* Memory for one sequence, private to this test. */
static struct model_kv alone;
static u32 alone_table[(LOAD_PROMPT + LOAD_NEW) / LOAD_BLOCK + 1];

static void alone_create(void)
{
	const struct model_info *i = model_info(exact);
	const size_t layer = LOAD_BLOCK * model_layer_bytes(i);
	const size_t block = layer * i->nr_layers;
	u32 b;

	alone = (struct model_kv){
		.base = aligned_alloc(128, block * ARRAY_SIZE(alone_table)),
		.unit = 64, .layer_stride[0] = layer,
		.block_tokens[0] = LOAD_BLOCK,
	};
	ck_assert_ptr_nonnull(alone.base);
	for (b = 0; b < ARRAY_SIZE(alone_table); b++)
		alone_table[b] = (u32)(b * block / alone.unit);
}

/*
 * Distance between the reference's two best tokens after @nr tokens of the
 * sample, as a share of the largest logit; @id must be the best one.
 */
static double gap_at(const struct load_req *q, const u32 *ids, u32 nr, u32 id)
{
	const u32 vocab = model_info(exact)->nr_vocab;
	u32 all[LOAD_PROMPT + LOAD_NEW], i, best = 0, next;
	const struct model_seq_in in = {
		.tokens = all, .nr_tokens = q->c.nr + nr,
		.table[0] = alone_table, .want_logits = 1,
	};
	float *logits = malloc(vocab * sizeof(*logits)), scale = 0;
	double gap;

	ck_assert_ptr_nonnull(logits);
	memcpy(all, q->ids, q->c.nr * sizeof(*all));
	memcpy(all + q->c.nr, ids, nr * sizeof(*all));
	ck_assert_int_eq(model_forward(exact, &alone, &in, 1, logits), 0);
	for (i = 0; i < vocab; i++) {
		best = logits[i] > logits[best] ? i : best;
		scale = max(scale, logits[i] < 0 ? -logits[i] : logits[i]);
	}
	ck_assert_uint_eq(best, id);
	next = !best;
	for (i = 0; i < vocab; i++)
		if (i != best && logits[i] > logits[next])
			next = i;
	gap = (double)(logits[best] - logits[next]) / (double)scale;
	free(logits);
	return gap;
}

/* ---- judging ---- */

struct verdict {
	u32	whole;
	u32	cancelled;
	u32	late;
	u32	parted;		/* samples with some different token */
	double	widest;		/* largest gap at a first difference */
};

static void judge_end(const struct load_req *q, const struct load_sample *s,
		      struct verdict *v)
{
	ck_assert_uint_eq(s->dones, 1);
	switch (s->reason) {
	case ENGINE_LENGTH:
		ck_assert_uint_eq(s->nr, q->c.max_new);
		v->whole++;
		break;
	case ENGINE_CANCELLED:
		ck_assert_uint_gt(q->cancel_at, 0);
		v->cancelled++;
		break;
	case ENGINE_TIMEOUT:
		ck_assert_int_gt(q->c.deadline_ns, 0);
		v->late++;
		break;
	default:
		ck_abort_msg("a sample ended by %s",
			     engine_reason_name(s->reason));
	}
}

static void judge_sample(const struct load_req *q, u32 k, bool may_part,
			 struct verdict *v)
{
	const struct load_req *t = &truth.r[q - q->run->r];
	const struct load_sample *s = &q->s[k], *want = &t->s[k];
	double gap;
	u32 i;

	judge_end(q, s, v);
	for (i = 0; i < s->nr && s->ids[i] == want->ids[i]; i++)
		;
	if (i == s->nr)
		return;
	ck_assert_msg(may_part, "request %u sample %u token %u: %u, not %u",
		      (u32)(t - truth.r), k, i, s->ids[i], want->ids[i]);
	gap = gap_at(q, want->ids, i, want->ids[i]);
	ck_assert_msg(gap <= MODEL_FAST_TOL,
		      "request %u sample %u token %u: %u, not %u, which is better by %.4f",
		      (u32)(t - truth.r), k, i, s->ids[i], want->ids[i], gap);
	v->parted++;
	v->widest = max(v->widest, gap);
}

/* Only greedy requests can be compared with those of another mode. */
static bool same_shape(const struct engine_request *a,
		       const struct engine_request *b)
{
	return a->sampling.temperature == b->sampling.temperature &&
	       a->beam_width == b->beam_width;
}

static void judge(const struct load_run *run, bool may_part, struct verdict *v)
{
	u32 i, k;

	memset(v, 0, sizeof(*v));
	for (i = 0; i < run->nr; i++) {
		const struct load_req *q = &run->r[i];

		if (!same_shape(&truth.r[i].c, &q->c))
			continue;
		for (k = 0; k < q->c.n; k++)
			judge_sample(q, k, may_part, v);
	}
}

/* ---- the daemon ---- */

static s64 value(const char *file, const char *key)
{
	const s64 v = rig_value(&rig, file, key);

	ck_assert_msg(v >= 0, "%s has no %s", file, key);
	return v;
}

static void kvctl(const char *a, const char *b, const char *c, const char *d)
{
	struct job j = job_start(&rig, "kvctl", a, b, c, d, NULL);

	if (job_wait(&j, 60))
		ck_abort_msg("kvctl %s: %s", a, slurp(j.err));
}

/* No client is attached and no block cached: all memory must be free. */
static void expect_empty(void)
{
	static const char * const key[] = {
		"Open", "Sealed", "PrefixCached", "Quiescing", "Quarantine",
		"Limbo", "Revoking", "HostUsed", "HostLimbo", "SwapUsed",
		"SwapLimbo",
	};
	const u64 end = now_ms() + 20000 * time_scale();
	u32 i = 0;

	kvctl("drop_caches", NULL, NULL, NULL);
	while (i < ARRAY_SIZE(key)) {
		if (!value("meminfo", key[i])) {
			i++;
			continue;
		}
		ck_assert_msg(now_ms() < end, "%lld kB of %s stay",
			      (long long)value("meminfo", key[i]), key[i]);
		nap_ms(20);
	}
	rig_walk(&rig);
	ck_assert_int_eq(value("vmstat", "nr_seqs"), 0);
}

static void small_start(u64 pool)
{
	char size[24], area[RIG_PATH + 16];

	snprintf(size, sizeof(size), "%llu", (unsigned long long)pool);
	rig_start(&rig, "--pool-size", size, "--extent-size", "256K",
		  "--host-size", HOST, "--area-max", AREA,
		  "--swappiness", SWAPPINESS, NULL);
	snprintf(area, sizeof(area), "%s/area", rig.dir);
	kvctl("swapon", area, "--size", AREA);
}

/* Counters of actions against a lack of memory; each must have happened. */
static const char * const proof[] = {
	"pgcow", "prefix_evict", "preempt_swap", "swap_restore",
	"preempt_recompute", "recompute_tokens", "pswpout", "pswpin",
};

static s64 proofs[ARRAY_SIZE(proof)];	/* of all runs */

static void proofs_add(void)
{
	s64 v;
	u32 i;

	printf(" ");
	for (i = 0; i < ARRAY_SIZE(proof); i++) {
		v = value("vmstat", proof[i]);
		proofs[i] += v;
		printf(" %s %lld", proof[i], (long long)v);
	}
	printf("\n");
	fflush(stdout);
}

/* An action that never happened; NULL: all did. */
static const char *proof_missing(void)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(proof); i++)
		if (!proofs[i])
			return proof[i];
	return NULL;
}

/* ---- runs ---- */

static u64 set_bytes;	/* the working set */

static struct model *load_model(enum model_mode mode)
{
	const struct model_opts o = { .mode = mode, .nr_threads = 2 };
	struct model_error err;
	struct model *m;

	ck_assert_msg(!model_load(demo_model(), &o, &m, &err), "%s", err.text);
	return m;
}

static void with_enough(void)
{
	const struct model_info *i = model_info(exact);

	rig_start(&rig, "--pool-size", "512M", "--extent-size", "1M", NULL);
	truth = (struct load_run){ .nr = by_level(100, 3000, 10000) };
	load_play(&truth, &rig, exact);
	ck_assert_uint_eq(truth.stats.preemptions, 0);
	set_bytes = truth.want * LOAD_BLOCK * i->nr_layers *
		    model_layer_bytes(i);
	printf("  ample: %u requests in %llu ms, at once up to %u blocks, %llu kB\n",
	       truth.nr, (unsigned long long)truth.ms, truth.want,
	       (unsigned long long)set_bytes >> 10);
	expect_empty();
	rig_stop(&rig);
}

static void under_pressure(const char *mode, struct model *model, bool greedy)
{
	const u64 pool = set_bytes / SHARE / EXTENT * EXTENT;
	struct load_run run = { .nr = truth.nr, .greedy = greedy, .cut = true };
	struct verdict v;
	u32 p;

	small_start(pool);
	load_play(&run, &rig, model);
	proofs_add();
	expect_empty();
	rig_stop(&rig);
	judge(&run, greedy, &v);
	ck_assert_uint_gt(v.whole, run.nr / 2);
	ck_assert_uint_gt(v.cancelled, 0);
	ck_assert_uint_gt(v.late, 0);
	printf("total: pressure, %s: %u requests with %llu of %llu kB, in %llu ms (%llu ms with enough): %u samples whole, %u cancelled, %u past their deadline; %llu preemptions, %llu tokens computed again, %llu restored; ",
	       mode, run.nr, (unsigned long long)pool >> 10,
	       (unsigned long long)set_bytes >> 10,
	       (unsigned long long)run.ms, (unsigned long long)truth.ms,
	       v.whole, v.cancelled, v.late,
	       (unsigned long long)run.stats.preemptions,
	       (unsigned long long)run.stats.recomputed_tokens,
	       (unsigned long long)run.stats.restored);
	if (greedy)
		printf("%u samples parted, none where the two best are %.4f or more apart (widest %.4f); ",
		       v.parted, MODEL_FAST_TOL, v.widest);
	else
		printf("all tokens as with enough; ");
	printf("longest wait by priority, in ms and other requests:");
	for (p = LOAD_PRIORITIES; p--;)
		printf(" %u: %llu or %u,", p,
		       (unsigned long long)run.longest_ms[p],
		       run.longest_ended[p]);
	printf(" nothing left\n");
	fflush(stdout);
	load_free(&run);
}

/*
 * The daemon chooses between swap and recompute by measurement: run again if
 * one of them never happened.
 */
START_TEST(test_everything_at_once)
{
	u32 n;

	exact = load_model(MODEL_EXACT);
	fast = load_model(MODEL_FAST);
	alone_create();
	with_enough();
	for (n = 0; n < ROUNDS_MAX && proof_missing(); n++) {
		under_pressure("exact", exact, false);
		under_pressure("fast", fast, true);
	}
	ck_assert_msg(!proof_missing(), "no %s", proof_missing());
	load_free(&truth);
	model_free(exact);
	model_free(fast);
	free(alone.base);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("pressure");
	TCase *tc = tcase_create("all-at-once");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 3600);
	tcase_add_test(tc, test_everything_at_once);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
