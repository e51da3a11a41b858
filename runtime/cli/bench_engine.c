// SPDX-License-Identifier: Apache-2.0
/*
 * bench_engine.c - the engine under measurement, without a server
 *
 * A model, an attachment to the daemon, and runs of a workload in which all
 * requests begin at once.  Answers have the requested length, tokens are the
 * likeliest ones, and no text is made.  Each run has its own salt, so it does
 * not find cached blocks of another.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

#include <kvmm/clock.h>

#include "runtime/cli/bench_engine.h"

#define STEP_NS		100000000ll

static volatile sig_atomic_t caught;

static void on_signal(int sig)
{
	caught = sig;
}

/* ---- set up ---- */

static int load(struct bench_engine *e, const char *dir)
{
	static const char * const kernels[] = { NULL, "cpu", "ref" };
	const struct bench_engine_opts *o = e->o;
	const u32 batch = max(o->max_batch, MODEL_MAX_ROWS);
	struct model_opts mo = {
		.mode = o->mode ? MODEL_EXACT : MODEL_FAST,
		.kernel = kernels[o->kernels],
		.nr_threads = o->threads,
		.max_len = o->max_model_len,
		.max_rows = max(o->chunk, batch),
		.window_group = !o->kv_groups,
		.dummy = o->load_format,
		.weights = o->weights,
		.quantization = o->quantization,
		.no_draws = o->draw,
	};
	struct model_error err;
	int ret;

	cli_types(o->dtype, o->kv_cache_dtype, &mo);
	ret = cli_model_find(&e->found, dir);
	if (ret)
		return ret;
	dir = e->found.dir;
	ret = cli_backend(o->backend, o->socket, &mo);
	if (ret)
		return ret;
	if (!o->quiet)
		mo.progress = progress_start(&e->progress, dir);
	ret = model_load(dir, &mo, &e->model, &err);
	if (!ret) {
		progress_made(e->model);
		return 0;
	}
	pr_err("%s", err.text);
	return ret == -EACCES ? EX_NOINPUT : cli_exit_of(ret);
}

static int attach(struct bench_engine *e)
{
	static const u32 block_tokens[] = { 0, 16, 32, 64 };
	const struct bench_engine_opts *o = e->o;
	const struct engine_opts eo = {
		.socket = o->socket,
		.domain = cli_model_domain(&e->found, o->domain),
		.block_tokens = block_tokens[o->block_tokens],
		.state_tokens = cli_state_tokens(o->state_tokens),
		.limits = CLI_LIMITS(o),
		.max_seqs = o->max_seqs,
		.max_batch = o->max_batch,
		.chunk = o->chunk,
	};
	struct engine_error err;
	int ret;

	ret = engine_create(e->model, &eo, &e->engine, &err);
	if (!ret)
		return 0;
	pr_err("%s", err.text);
	if (ret == -ENOENT || ret == -ECONNREFUSED || ret == -EINVAL)
		return EX_UNAVAILABLE;
	return cli_exit_of(ret);
}

int bench_engine_open(struct bench_engine *e, const struct bench_engine_opts *o,
		      const char *dir)
{
	struct sigaction sa = { .sa_handler = on_signal };
	int ret;

	memset(e, 0, sizeof(*e));
	e->o = o;
	ret = load(e, dir);
	if (ret)
		return ret;
	e->vocab = model_info(e->model)->nr_vocab;
	if (!o->warm && getrandom(&e->salt, sizeof(e->salt), 0) < 0)
		e->salt = (u64)time(NULL);
	sigemptyset(&sa.sa_mask);
	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	sigaction(SIGHUP, &sa, NULL);
	signal(SIGPIPE, SIG_IGN);
	return attach(e);
}

void bench_engine_close(struct bench_engine *e)
{
	engine_destroy(e->engine);
	model_free(e->model);
	series_free(&e->ends);
}

/* ---- a run ---- */

static void on_done(void *arg, const struct engine_done *done)
{
	struct bench_engine *e = arg;

	e->done++;
	e->tokens += done->tokens;
	e->cached += done->sample ? 0 : done->cached_tokens;
	if (done->reason == ENGINE_LENGTH) {
		series_add(&e->ends, kv_now_s() - e->begin);
		return;
	}
	if (!e->failed++ && done->reason == ENGINE_ERROR) {
		e->err = done->err;
		snprintf(e->why, sizeof(e->why), "%s", done->text);
	}
}

static int submit(struct bench_engine *e, const struct workload *w, u32 n)
{
	struct engine_error err;
	u32 *ids, i;
	int ret = 0;

	for (i = 0; !ret && i < w->nr; i++) {
		const struct bench_request *r = &w->list[i];
		struct engine_request req = {
			.nr = r->in, .max_new = r->out, .n = n,
			.sampling = SAMPLING_PARAMS_DEFAULT, .salt = e->salt,
			.on_done = on_done, .arg = e,
		};

		req.sampling.temperature = n > 1 ? 1 : 0;
		ids = calloc(r->in, sizeof(*ids));
		if (!ids) {
			pr_err("no memory for a prompt of %u tokens", r->in);
			return EX_OSERR;
		}
		workload_ids(w, r, e->vocab, ids);
		req.ids = ids;
		ret = engine_submit(e->engine, &req, NULL, &err);
		free(ids);
		if (ret) {
			pr_err("request %u: %s", i + 1, err.text);
			return cli_exit_of(ret);
		}
	}
	return 0;
}

int bench_engine_run(struct bench_engine *e, const struct workload *w, u32 n,
		     double *s)
{
	int ret;

	if (!e->o->warm)
		e->salt++;
	e->done = e->failed = 0;
	e->tokens = e->cached = 0;
	e->ends.nr = 0;
	e->begin = kv_now_s();
	ret = submit(e, w, n);
	if (ret)
		return ret;
	do {
		ret = engine_step(e->engine, STEP_NS);
	} while (ret > 0 && !caught);
	*s = kv_now_s() - e->begin;
	if (caught) {
		pr_err("interrupted: there are no results");
		return EX_TEMPFAIL;
	}
	if (ret < 0) {
		pr_err("%s: run this command again", engine_strerror(e->engine));
		return cli_exit_of(ret);
	}
	if (!e->failed)
		return 0;
	pr_err("%u of %u samples failed: %s", e->failed, e->done, e->why);
	return cli_exit_of(e->err);
}

void bench_say_experts(const struct bench_engine *e)
{
	char line[160];

	if (model_experts_line(e->model, line, sizeof(line)))
		printf("%s\n", line);
}

void bench_add_experts(const struct bench_engine *e, json_t *v)
{
	json_t *o = json_object();
	struct model_stats st;

	model_get_stats(e->model, &st);
#define x(type, name, text) json_object_set_new(o, #name, json_real((double)st.name));
	MODEL_STATS(x)
#undef x
	if (st.expert_layers)
		json_object_set(v, "experts", o);
	json_decref(o);
}

int bench_write_json(const char *file, json_t *v)
{
	FILE *f = strcmp(file, "-") ? fopen(file, "we") : stdout;
	int bad = !f || !v || json_dumpf(v, f, JSON_INDENT(2) |
					 JSON_REAL_PRECISION(9));

	if (f)
		fputc('\n', f);
	if (f && (f == stdout ? fflush(f) : fclose(f)))
		bad = 1;
	json_decref(v);
	if (!bad)
		return 0;
	pr_err("%s: the results cannot be written: %s", file, strerror(errno));
	return EX_IOERR;
}
