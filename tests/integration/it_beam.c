// SPDX-License-Identifier: Apache-2.0
/*
 * it_beam.c - beam search on a real node, compared with other searches
 *
 * budget: 60 s, full 200 s
 *
 * The engine runs in this program, with the demo model in exact mode and a new
 * daemon.  Its texts must equal those of Hugging Face transformers
 * (tests/data/beam-search), and those of a plain search that runs the model
 * from the first token on at every step, in private memory.  They must stay the
 * same in a pool so small that families are preempted, by recompute and by swap
 * (the daemon's counters have to prove it), beside samples by fork; and while
 * kvmm is killed and adopted.  After each test the daemon must be empty.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/engine/engine.h"
#include "tests/beam_reference.h"
#include "tests/integration/harness.h"
#include "tests/integration/serve.h"

#define MAX_JOBS	80u
#define MAX_TEXTS	8u
#define MAX_TOKENS	128u

struct found {
	u32			ids[MAX_TOKENS];
	u32			nr;
	u32			dones;
	struct engine_done	done;
};

struct search_job {
	struct engine_request	c;
	struct found		text[MAX_TEXTS];
};

static struct model *model;
static struct rig rig;
static struct engine *engine;
static struct search_job jobs[MAX_JOBS];
static u32 nr_jobs;
static json_t *golden, *prompts;
static const u32 stops[] = { 0, 16 };	/* the end of a text, and "." */

/* ---- the engine ---- */

static void on_token(void *arg, u32 k, const struct engine_token *t)
{
	struct found *f = &((struct search_job *)arg)->text[k];

	ck_assert_uint_lt(f->nr, MAX_TOKENS);
	f->ids[f->nr++] = t->id;
}

static void on_done(void *arg, const struct engine_done *done)
{
	struct found *f = &((struct search_job *)arg)->text[done->sample];

	ck_assert_msg(done->reason != ENGINE_ERROR, "%s", done->text);
	f->done = *done;
	f->dones++;
}

static u32 *ids_of(const json_t *list, u32 *nr)
{
	u32 i, *ids;

	*nr = (u32)json_array_size(list);
	ids = calloc(*nr + 1, sizeof(*ids));
	for (i = 0; i < *nr; i++)
		ids[i] = (u32)json_integer_value(json_array_get(list, i));
	return ids;
}

static struct search_job *job_add(const json_t *prompt, u32 width, u32 n,
				  u32 max_new)
{
	struct search_job *j = &jobs[nr_jobs++];

	ck_assert_uint_le(nr_jobs, MAX_JOBS);
	ck_assert_uint_le(n, MAX_TEXTS);
	memset(j, 0, sizeof(*j));
	j->c = (struct engine_request){
		.max_new = max_new, .n = n, .beam_width = width,
		.stops = stops, .nr_stops = 2,
		.sampling = { .top_p = 1, .seed = 40 + nr_jobs },
		.on_token = on_token, .on_done = on_done, .arg = j,
	};
	if (width)
		j->c.length_penalty = 1;
	else
		j->c.sampling.temperature = 0.9f;
	j->c.ids = ids_of(prompt, &j->c.nr);
	return j;
}

static void engine_begin(void)
{
	char path[RIG_PATH + 16];
	const struct engine_opts o = { .socket = path };
	struct engine_error err;

	snprintf(path, sizeof(path), "%s/attach.sock", rig.dir);
	ck_assert_msg(!engine_create(model, &o, &engine, &err), "%s", err.text);
}

static void jobs_submit(void)
{
	struct engine_error err;
	u32 i;

	for (i = 0; i < nr_jobs; i++)
		ck_assert_msg(!engine_submit(engine, &jobs[i].c, NULL, &err),
			      "%s", err.text);
}

static void jobs_done(void)
{
	u32 i, k;

	for (i = 0; i < nr_jobs; i++)
		for (k = 0; k < jobs[i].c.n; k++)
			ck_assert_uint_eq(jobs[i].text[k].dones, 1);
}

/* The client is gone: all memory must be free, or cache without users. */
static void expect_nothing_left(void)
{
	const u64 end = now_ms() + 10000u * time_scale();
	static const char * const key[] = {
		"Open", "Sealed", "PrefixCached", "Committed", "Limbo",
		"Quarantine", "HostUsed", "HostLimbo",
	};
	struct job j;
	u32 i;

	engine_destroy(engine);
	engine = NULL;
	rig_walk(&rig);
	ck_assert_int_eq(rig_value(&rig, "vmstat", "nr_seqs"), 0);
	j = job_start(&rig, "kvctl", "drop_caches", NULL);
	ck_assert_int_eq(job_wait(&j, 30), 0);
	for (i = 0; i < ARRAY_SIZE(key); i++) {
		while (rig_value(&rig, "meminfo", key[i])) {
			ck_assert_msg(now_ms() < end, "%s is %lld kB", key[i],
				      (long long)rig_value(&rig, "meminfo",
							   key[i]));
			nap_ms(20);
		}
	}
	rig_walk(&rig);
}

static void jobs_run(void)
{
	engine_begin();
	jobs_submit();
	ck_assert_int_eq(engine_run_until_idle(engine, NULL), 0);
	jobs_done();
}

static void jobs_free(void)
{
	while (nr_jobs)
		free((void *)(uintptr_t)jobs[--nr_jobs].c.ids);
}

/* ---- transformers ---- */

static void expect_text(const struct search_job *j, u32 k, const json_t *want)
{
	const json_t *stop = json_object_get(want, "stop");
	const double score = json_real_value(json_object_get(want, "score"));
	const struct found *f = &j->text[k];
	u32 nr, *ids = ids_of(json_object_get(want, "ids"), &nr);
	const bool stopped = !json_is_null(stop);

	ck_assert_uint_eq(f->nr, nr);
	ck_assert_mem_eq(f->ids, ids, nr * sizeof(*ids));
	ck_assert_int_eq(f->done.reason, stopped ? ENGINE_STOP : ENGINE_LENGTH);
	if (stopped)
		ck_assert_uint_eq(f->done.stop_id, json_integer_value(stop));
	ck_assert_double_eq_tol(f->done.logprob /
				pow(nr + stopped, (double)j->c.length_penalty),
				score, 1e-4 * fmax(1, fabs(score)));
	free(ids);
}

static u32 early_of(const json_t *v)
{
	return json_is_string(v) ? 2 : json_is_true(v);
}

/* All searches at once. */
START_TEST(test_transformers)
{
	u32 i, k, n, *ends[MAX_JOBS];
	json_t *o;

	rig_start(&rig, "--pool-size", "64M", NULL);
	json_array_foreach(golden, i, o) {
		struct search_job *j;

		n = (u32)json_integer_value(json_object_get(o, "beams"));
		j = job_add(json_object_get(o, "prompt"), n, n,
			    (u32)json_integer_value(
				json_object_get(o, "max_tokens")));
		j->c.length_penalty = (float)json_real_value(
				json_object_get(o, "length_penalty"));
		j->c.early_stopping = early_of(
				json_object_get(o, "early_stopping"));
		ends[i] = ids_of(json_object_get(o, "stops"), &j->c.nr_stops);
		j->c.stops = ends[i];
	}
	ck_assert_uint_ge(nr_jobs, 80);
	jobs_run();
	json_array_foreach(golden, i, o) {
		for (k = 0; k < jobs[i].c.n; k++)
			expect_text(&jobs[i], k, json_array_get(
				    json_object_get(o, "texts"), k));
		free(ends[i]);
	}
	expect_nothing_left();
	jobs_free();
	rig_stop(&rig);
}
END_TEST

/* ---- a plain search ---- */

/* Run all positions at once, in private memory. */
static void row_of(void *arg, const u32 *ids, u32 nr, float *lp)
{
	const struct model_info *mi = model_info(model);
	const u64 layer = 16 * model_layer_bytes(mi);
	u32 table[16], i;
	struct model_kv kv = {
		.unit = 64, .layer_stride[0] = layer, .block_tokens[0] = 16,
	};
	const struct model_seq_in in = {
		.tokens = ids, .nr_tokens = nr, .table[0] = table, .want_logits = 1,
	};

	ck_assert_uint_le(nr, 256);
	for (i = 0; i < ARRAY_SIZE(table); i++)
		table[i] = (u32)(i * layer * mi->nr_layers / kv.unit);
	kv.base = aligned_alloc(64, layer * mi->nr_layers * ARRAY_SIZE(table));
	memset(kv.base, 0xff, layer * mi->nr_layers * ARRAY_SIZE(table));
	ck_assert_int_eq(model_forward(model, &kv, &in, 1, lp), 0);
	ref_log_softmax(lp, mi->nr_vocab);
	free(kv.base);
}

static void expect_reference(const struct search_job *j)
{
	static struct ref_text want[MAX_TEXTS];
	struct ref_search ref = {
		.vocab = model_info(model)->nr_vocab,
		.width = j->c.beam_width, .max_new = j->c.max_new,
		.stops = j->c.stops, .nr_stops = j->c.nr_stops,
		.penalty = (double)j->c.length_penalty,
		.early = j->c.early_stopping, .row = row_of,
	};
	u32 k;

	ck_assert_uint_eq(ref_run(&ref, j->c.ids, j->c.nr, want),
			  j->c.beam_width);
	ck_assert(!ref.doubt);
	for (k = 0; k < j->c.n; k++) {
		const u32 nr = want[k].nr - want[k].stopped;

		ck_assert_uint_eq(j->text[k].nr, nr);
		ck_assert_mem_eq(j->text[k].ids, want[k].ids, nr * sizeof(u32));
		ck_assert_double_eq_tol(j->text[k].done.logprob, want[k].sum,
					1e-4);
	}
}

START_TEST(test_plain_search)
{
	static const u32 width[] = { 2, 4, 8 };
	u32 i;

	rig_start(&rig, "--pool-size", "16M", NULL);
	for (i = 0; i < 6; i++) {
		struct search_job *j;

		j = job_add(json_array_get(prompts, i), width[i % 3],
			    width[i % 3], by_level(9, 24, 24));
		j->c.early_stopping = i % 2;
	}
	jobs_run();
	for (i = 0; i < nr_jobs; i++)
		expect_reference(&jobs[i]);
	expect_nothing_left();
	jobs_free();
	rig_stop(&rig);
}
END_TEST

/* ---- under pressure ---- */

/* Beams of three widths, and samples by fork between them. */
static void jobs_mixed(void)
{
	static const u32 width[] = { 4, 8, 0, 2 };
	u32 i;

	for (i = 0; i < 16; i++) {
		const u32 w = width[i % 4];
		struct search_job *j;

		j = job_add(json_array_get(prompts, i % 8), w, w ? w : 4, 64);
		j->c.early_stopping = i % 3;
		if (i % 2)
			j->c.nr_stops = 0;	/* all of them are long */
		if (!w)
			j->c.early_stopping = 0;
	}
}

static struct search_job ample[MAX_JOBS];

static void want_make(void)
{
	rig_start(&rig, "--pool-size", "128M", NULL);
	jobs_mixed();
	jobs_run();
	ck_assert_int_eq(rig_value(&rig, "vmstat", "preempt_recompute"), 0);
	ck_assert_int_gt(rig_value(&rig, "vmstat", "seq_remap"), 0);
	expect_nothing_left();
	memcpy(ample, jobs, sizeof(ample));
	jobs_free();
	rig_stop(&rig);
}

static void expect_wanted(void)
{
	u32 i, k;

	for (i = 0; i < nr_jobs; i++) {
		for (k = 0; k < jobs[i].c.n; k++) {
			const struct found *a = &jobs[i].text[k];
			const struct found *b = &ample[i].text[k];

			ck_assert_msg(a->nr == b->nr && !memcmp(a->ids, b->ids,
					a->nr * sizeof(u32)),
				      "search %u, text %u: %u tokens, %u wanted",
				      i, k, a->nr, b->nr);
			ck_assert_int_eq(a->done.reason, b->done.reason);
			ck_assert(a->done.logprob == b->done.logprob);
		}
	}
}

static void show(const char *what)
{
	static const char * const key[] = { "seq_remap", "seq_fork", "pgcow",
					    "preempt_recompute",
					    "preempt_swap" };
	struct engine_stats st;
	u32 i;

	engine_get_stats(engine, &st);
	printf("  %s:", what);
	for (i = 0; i < ARRAY_SIZE(key); i++)
		printf(" %s %lld", key[i],
		       (long long)rig_value(&rig, "vmstat", key[i]));
	printf("; %llu steps, %llu retries, %llu tokens recomputed\n",
	       (unsigned long long)st.steps, (unsigned long long)st.retries,
	       (unsigned long long)st.recomputed_tokens);
	fflush(stdout);
}

/* Preemption depends on timing: play until a family was preempted. */
static void play_until(const char *name, const char *preempt)
{
	u32 n;

	for (n = 0; n < 8 && !rig_value(&rig, "vmstat", preempt); n++) {
		jobs_mixed();
		jobs_run();
		show(name);
		expect_wanted();
		expect_nothing_left();
		jobs_free();
	}
	ck_assert_int_gt(rig_value(&rig, "vmstat", preempt), 0);
}

/* The largest family alone just fits: 8 beams of up to 7 blocks. */
START_TEST(test_recompute)
{
	want_make();
	rig_start(&rig, "--pool-size", "4M", "--extent-size", "256K",
		  "--starve-ms", "200", NULL);
	play_until("recompute", "preempt_recompute");
	rig_stop(&rig);
}
END_TEST

START_TEST(test_swap)
{
	want_make();
	rig_start(&rig, "--pool-size", "4M", "--extent-size", "256K",
		  "--host-size", "8M", "--swappiness", "200", "--starve-ms",
		  "200", NULL);
	play_until("swap", "preempt_swap");
	rig_stop(&rig);
}
END_TEST

/*
 * kvmm reports that it works 150 ms after its start with all clients back.  If
 * it dies earlier, the adoption was in vain; after two such deaths the next
 * start is cold.
 */
#define LIFE_MS		400

/* Kill the daemon if it has lived for long enough. */
static bool daemon_dies(pid_t *daemon, u64 *since, u64 steps)
{
	const pid_t now = rig_daemon(&rig);
	struct engine_stats st;

	engine_get_stats(engine, &st);
	if (now <= 0 || now != *daemon) {
		*daemon = now;
		*since = now_ms();
		return false;
	}
	if (now_ms() < *since + LIFE_MS * time_scale() || st.steps < steps)
		return false;
	*since = UINT64_MAX / 2;
	return !kill(now, SIGKILL);
}

/* kvmm is killed during the searches, and adopted by the next one. */
START_TEST(test_adopt)
{
	const u32 kills = by_level(1, 12, 40);
	struct engine_stats st = { 0 };
	u64 since = 0, steps = 0;
	pid_t daemon = 0;
	u32 n = 0;
	int ret;

	want_make();
	rig_start(&rig, "--pool-size", "4M", "--extent-size", "256K",
		  "--host-size", "2M", "--starve-ms", "200", "--resume-ms",
		  "60000", NULL);
	engine_begin();
	do {
		jobs_mixed();
		jobs_submit();
		while ((ret = engine_step(engine, 100000000)) > 0) {
			if (n < kills && daemon_dies(&daemon, &since, steps)) {
				n++;
				engine_get_stats(engine, &st);
				steps = st.steps + 20 + 7 * n;
			}
		}
		ck_assert_msg(!ret, "%s", engine_strerror(engine));
		jobs_done();
		expect_wanted();
		if (n < kills)
			jobs_free();
	} while (n < kills);
	show("adopted");
	expect_nothing_left();
	jobs_free();
	rig_stop(&rig);
}
END_TEST

/* ---- the server ---- */

/* Ask for a completion of @prompt, with more fields. */
static json_t *ask(struct served *s, const json_t *prompt, const char *more)
{
	char *ids = json_dumps(prompt, JSON_COMPACT), *body;
	json_t *answer;

	ck_assert_int_gt(asprintf(&body, "{\"prompt\":%s,\"return_token_ids\":true,%s}",
				  ids, more), 0);
	answer = complete(s, body);
	free(body);
	free(ids);
	return answer;
}

static void expect_choice(json_t *answer, u32 k, const json_t *want, u32 n,
			  u32 *tokens)
{
	const json_t *stop = json_object_get(want, "stop");
	const json_t *ids = json_object_get(want, "ids");
	json_t *c = choice(answer, k);

	ck_assert(json_equal(json_object_get(c, "token_ids"), ids));
	ck_assert_str_eq(json_string_value(json_object_get(c, "finish_reason")),
			 json_is_null(stop) ? "length" : "stop");
	/* The end token of the model is no stop_reason. */
	if (json_integer_value(stop))
		ck_assert(json_equal(json_object_get(c, "stop_reason"), stop));
	ck_assert_uint_eq(json_array_size(json_object_get(answer, "choices")),
			  n);
	*tokens += (u32)json_array_size(ids);
}

/* Searches of the golden file that the API can express. */
static const struct {
	u32		at;		/* first of eight */
	u32		n;
	const char	*more;
} asked[] = {
	{ 0, 2, "\"use_beam_search\":true,\"n\":2,\"max_tokens\":32" },
	{ 8, 3, "\"use_beam_search\":true,\"n\":3,\"best_of\":4,\"max_tokens\":40,\"stop_token_ids\":[16]" },
	{ 24, 4, "\"use_beam_search\":true,\"n\":4,\"max_tokens\":40,\"stop_token_ids\":[14,16],\"early_stopping\":true,\"temperature\":0" },
	{ 40, 1, "\"use_beam_search\":true,\"best_of\":4,\"max_tokens\":32,\"stop_token_ids\":[16],\"early_stopping\":\"never\",\"length_penalty\":2" },
};

START_TEST(test_server)
{
	struct served s;
	u32 i, k, n, p;

	rig_start(&rig, "--pool-size", "16M", NULL);
	serve_start(&s, &rig, "--mode", "exact", "--threads", "1", NULL);
	serve_await(&s, 200, 30);
	for (i = 0; i < ARRAY_SIZE(asked); i++) {
		for (p = 0; p < 8; p += 3) {
			json_t *o = json_array_get(golden, asked[i].at + p);
			json_t *a = ask(&s, json_object_get(o, "prompt"),
					asked[i].more);

			for (k = 0, n = 0; k < asked[i].n; k++)
				expect_choice(a, k, json_array_get(
					      json_object_get(o, "texts"), k),
					      asked[i].n, &n);
			ck_assert_int_eq(usage(a, "completion_tokens"), n);
			json_decref(a);
		}
	}
	serve_await_idle(&s, 2000);
	serve_stop(&s);
	rig_walk(&rig);
	rig_stop(&rig);
}
END_TEST

/* ---- best_of ---- */

/* The mean logprob of a text's tokens, by the model. */
static double mean_of(const json_t *prompt, const json_t *ids)
{
	float *lp = calloc(model_info(model)->nr_vocab, sizeof(*lp));
	const u32 nr = (u32)json_array_size(ids);
	json_t *all = json_copy((json_t *)(uintptr_t)prompt);
	u32 i, len, *have;
	double sum = 0;

	json_array_extend(all, (json_t *)(uintptr_t)ids);
	have = ids_of(all, &len);
	for (i = 0; i < nr; i++) {
		row_of(NULL, have, len - nr + i, lp);
		sum += (double)lp[have[len - nr + i]];
	}
	free(have);
	json_decref(all);
	free(lp);
	return nr ? sum / nr : -INFINITY;
}

static json_t *ids_at(json_t *answer, u32 k)
{
	return json_object_get(choice(answer, k), "token_ids");
}

/* The server must return the two of five samples that have the highest mean. */
static void expect_best(struct served *s, const json_t *prompt, u32 seed)
{
	double mean[5], swap;
	u32 i, k, tokens = 0, order[5];
	json_t *all, *best;
	char more[160];

	snprintf(more, sizeof(more), "\"n\":5,\"seed\":%u,\"temperature\":1.2,\"max_tokens\":12,\"stop\":\".\"",
		 seed);
	all = ask(s, prompt, more);
	for (i = 0; i < 5; i++) {
		mean[i] = mean_of(prompt, ids_at(all, i));
		tokens += (u32)json_array_size(ids_at(all, i));
		order[i] = i;
		for (k = i; k && mean[k] > mean[k - 1]; k--) {
			swap = mean[k];
			mean[k] = mean[k - 1];
			mean[k - 1] = swap;
			order[k] = order[k - 1];
			order[k - 1] = i;
		}
	}
	snprintf(more, sizeof(more), "\"n\":2,\"best_of\":5,\"seed\":%u,\"temperature\":1.2,\"max_tokens\":12,\"stop\":\".\"",
		 seed);
	best = ask(s, prompt, more);
	ck_assert_uint_eq(json_array_size(json_object_get(best, "choices")), 2);
	for (k = 0; k < 2; k++) {
		ck_assert(json_equal(ids_at(best, k), ids_at(all, order[k])));
		ck_assert_str_eq(choice_text(best, k),
				 choice_text(all, order[k]));
		ck_assert_int_eq(json_integer_value(json_object_get(
				 choice(best, k), "index")), k);
	}
	/* The usage counts the tokens of all samples. */
	ck_assert_int_eq(usage(best, "completion_tokens"), tokens);
	json_decref(best);
	json_decref(all);
}

START_TEST(test_best_of)
{
	struct served s;
	u32 i;

	rig_start(&rig, "--pool-size", "16M", NULL);
	serve_start(&s, &rig, "--mode", "exact", "--threads", "1", NULL);
	serve_await(&s, 200, 30);
	for (i = 0; i < 6; i++)
		expect_best(&s, json_array_get(prompts, i), 7 + i);
	serve_await_idle(&s, 2000);
	serve_stop(&s);
	rig_stop(&rig);
}
END_TEST

/* ---- main ---- */

static void load_all(void)
{
	const struct model_opts o = { .mode = MODEL_EXACT, .nr_threads = 1 };
	const char *top = getenv("KVMM_TOP");
	struct model_error err;
	char path[512];
	json_t *all, *list, *c;
	u32 i;

	if (model_load(demo_model(), &o, &model, &err)) {
		fprintf(stderr, "%s\n", err.text);
		exit(1);
	}
	snprintf(path, sizeof(path), "%s/tests/data/beam-search/golden.json",
		 top ? top : ".");
	golden = json_load_file(path, 0, NULL);
	snprintf(path, sizeof(path), "%s/golden.json", demo_model());
	all = json_load_file(path, 0, NULL);
	list = json_object_get(all, "continuations");
	prompts = json_array();
	json_array_foreach(list, i, c)
		json_array_append(prompts, json_object_get(c, "prompt_ids"));
	json_decref(all);
	if (!golden || json_array_size(prompts) < 8) {
		fprintf(stderr, "%s cannot be read\n", path);
		exit(1);
	}
}

int main(void)
{
	Suite *s = suite_create("beam");
	TCase *tc = tcase_create("searches");
	SRunner *sr;
	int failed;

	load_all();
	tcase_set_timeout(tc, 300);
	tcase_add_test(tc, test_transformers);
	tcase_add_test(tc, test_plain_search);
	tcase_add_test(tc, test_recompute);
	tcase_add_test(tc, test_swap);
	tcase_add_test(tc, test_adopt);
	tcase_add_test(tc, test_server);
	tcase_add_test(tc, test_best_of);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	model_free(model);
	json_decref(prompts);
	json_decref(golden);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
