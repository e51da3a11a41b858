// SPDX-License-Identifier: Apache-2.0
/*
 * bench_offline.c - kvrt bench throughput, kvrt bench latency
 *
 * The engine without a server: all requests of a workload at once, or one batch
 * again and again.  Keys of the results are those of `vllm bench throughput`
 * and `vllm bench latency`.
 */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/cli/bench_engine.h"

static const struct kv_exit exits[] = { BENCH_ENGINE_EXITS };

static int one_folder(const struct kv_program *prog, void *o, int argc,
		      char **argv)
{
	static const char * const shorts[] = { "-n", "--n", NULL };
	int nr, err;

	err = cli_parse(prog, shorts, o, argc, argv, &nr);
	if (err || nr == 1)
		return err;
	pr_err("%s: %s MODEL", nr ? "more than one model folder" :
	       "the model folder is missing", prog->name);
	return EX_USAGE;
}

/* ---- throughput ---- */

#define THROUGHPUT_OPTS(x)						\
	BENCH_DATA_OPTS(x)						\
	x(uint, samples, "n", "1", 1, 256, "N",				\
	  "samples of each prompt, which share its blocks; also -n N")	\
	BENCH_ENGINE_OPTS(x)

struct throughput_opts {
#define x OPT_FIELD
	THROUGHPUT_OPTS(x)
#undef x
};

static const struct kv_opt throughput_table[] = {
#define x(...) OPT_ENTRY(struct throughput_opts, __VA_ARGS__)
	THROUGHPUT_OPTS(x)
#undef x
};

const struct kv_program bench_throughput_program = {
	.name		= "kvrt bench throughput",
	.operands	= "MODEL",
	.about		= "Runs a workload with MODEL, all requests at once, and prints tokens a second. Prompts are made up. The KV lies in the memory of the kvmm daemon, which must be running.",
	.opts		= throughput_table,
	.nr_opts	= ARRAY_SIZE(throughput_table),
	.exits		= exits,
	.nr_exits	= ARRAY_SIZE(exits),
};

static int show_throughput(const struct bench_engine *e,
			   const struct workload *w,
			   const struct throughput_opts *o, double s)
{
	u64 in = 0, all;
	json_t *v;
	u32 i;

	for (i = 0; i < w->nr; i++)
		in += w->list[i].in;
	all = in + e->tokens;
	if (!o->json || strcmp(o->json, "-")) {
		printf("%u requests, %llu prompt tokens (%llu cached), %llu output tokens in %.2f s\n"
		       "Throughput: %.2f requests/s, %.2f total tokens/s, %.2f output tokens/s\n",
		       w->nr, (unsigned long long)in,
		       (unsigned long long)e->cached,
		       (unsigned long long)e->tokens, s, w->nr / s,
		       (double)all / s, (double)e->tokens / s);
		bench_say_experts(e);
	}
	if (!o->json)
		return fflush(stdout) ? EX_IOERR : 0;
	v = json_pack(
		"{s:f, s:i, s:I, s:I, s:I, s:I, s:f, s:f, s:f}",
		"elapsed_time", s, "num_requests", (int)w->nr,
		"total_num_tokens", (json_int_t)all,
		"total_input_tokens", (json_int_t)in,
		"total_cached_tokens", (json_int_t)e->cached,
		"total_output_tokens", (json_int_t)e->tokens,
		"requests_per_second", w->nr / s,
		"tokens_per_second", (double)all / s,
		"output_tokens_per_second", (double)e->tokens / s);
	bench_add_experts(e, v);
	return bench_write_json(o->json, v);
}

static void split_throughput(const struct throughput_opts *o,
			     struct bench_data_opts *data,
			     struct bench_engine_opts *eng)
{
#define x(kind, field, ...) data->field = o->field;
	BENCH_DATA_OPTS(x)
#undef x
#define x(kind, field, ...) eng->field = o->field;
	BENCH_ENGINE_OPTS(x)
#undef x
}

int bench_throughput(int argc, char **argv)
{
	struct bench_engine_opts eng = { 0 };
	struct bench_data_opts data = { 0 };
	struct bench_engine e = { 0 };
	struct throughput_opts o;
	struct workload w;
	double s;
	int ret;

	ret = one_folder(&bench_throughput_program, &o, argc, argv);
	if (ret)
		return max(ret, 0);
	split_throughput(&o, &data, &eng);
	workload_init(&w);
	ret = bench_engine_open(&e, &eng, argv[0]);
	if (!ret)
		ret = workload_make(&w, &data, model_info(e.model)->max_len);
	if (!ret)
		ret = workload_judge(&w, &data, model_info(e.model)->max_len, o.quiet);
	if (!ret)
		ret = bench_engine_run(&e, &w, o.samples, &s);
	if (!ret)
		ret = show_throughput(&e, &w, &o, s);
	bench_engine_close(&e);
	workload_free(&w);
	return ret;
}

/* ---- latency ---- */

#define LATENCY_OPTS(x)							\
	x(uint, input_len, "input-len", "32", 1, 1 << 24, "N",		\
	  "tokens of a prompt")						\
	x(uint, output_len, "output-len", "128", 1, 1 << 24, "N",	\
	  "tokens to generate")						\
	x(uint, batch, "batch-size", "8", 1, 65536, "N",		\
	  "requests of a batch")					\
	x(uint, samples, "n", "1", 1, 256, "N",				\
	  "samples of each prompt, which share its blocks; also -n N")	\
	x(uint, warmups, "num-iters-warmup", "10", 0, 1 << 20, "N",	\
	  "batches before those that are measured")			\
	x(uint, iters, "num-iters", "30", 1, 1 << 20, "N",		\
	  "batches that are measured")					\
	x(str, percentiles, "metric-percentiles", "10,25,50,75,90,99", 0, 0, "LIST", \
	  "percentiles to print")					\
	x(str, seed, "seed", "0", 0, 0, "N",				\
	  "same seed, same prompts")					\
	BENCH_ENGINE_OPTS(x)

struct latency_opts {
#define x OPT_FIELD
	LATENCY_OPTS(x)
#undef x
};

static const struct kv_opt latency_table[] = {
#define x(...) OPT_ENTRY(struct latency_opts, __VA_ARGS__)
	LATENCY_OPTS(x)
#undef x
};

const struct kv_program bench_latency_program = {
	.name		= "kvrt bench latency",
	.operands	= "MODEL",
	.about		= "Runs one batch of requests with the model MODEL again and again, and prints how long it takes. Prompts are made up. The KV lies in the memory of the kvmm daemon, which must be running.",
	.opts		= latency_table,
	.nr_opts	= ARRAY_SIZE(latency_table),
	.exits		= exits,
	.nr_exits	= ARRAY_SIZE(exits),
};

static json_t *latency_json(const struct series *runs, const double *order,
			    const struct percentiles *p)
{
	json_t *all = json_array(), *per = json_object();
	char name[16];
	size_t i;

	for (i = 0; i < runs->nr; i++)
		json_array_append_new(all, json_real(order[i]));
	for (i = 0; i < p->nr; i++)
		json_object_set_new(per, percentile_name(p->p[i], name,
							 sizeof(name)) + 1,
				    json_real(series_percentile(runs, p->p[i])));
	return json_pack("{s:f, s:f, s:o, s:o}", "avg_latency",
			 series_mean(runs), "std_latency", series_std(runs),
			 "latencies", all, "percentiles", per);
}

static int show_latency(const struct bench_engine *e, struct series *runs,
			const struct percentiles *p, const struct latency_opts *o)
{
	double *order = malloc(runs->nr * sizeof(*order));
	char name[16];
	int ret = 0;
	json_t *v;
	u32 i;

	if (!order || runs->failed) {
		free(order);
		pr_err("no memory for the results: give a smaller --num-iters");
		return EX_OSERR;
	}
	memcpy(order, runs->v, runs->nr * sizeof(*order));
	series_sort(runs);
	if (!o->json || strcmp(o->json, "-")) {
		printf("Batch of %u, %u tokens in, %u out, %zu times\n"
		       "  mean  %10.2f ms\n  std   %10.2f ms\n", o->batch,
		       o->input_len, o->output_len, runs->nr,
		       series_mean(runs) * 1e3, series_std(runs) * 1e3);
		for (i = 0; i < p->nr; i++)
			printf("  %-5s %10.2f ms\n",
			       percentile_name(p->p[i], name, sizeof(name)),
			       series_percentile(runs, p->p[i]) * 1e3);
		bench_say_experts(e);
	}
	if (o->json) {
		v = latency_json(runs, order, p);
		bench_add_experts(e, v);
		ret = bench_write_json(o->json, v);
	}
	free(order);
	return ret;
}

static int run_latency(struct bench_engine *e, const struct latency_opts *o,
		       const struct percentiles *p)
{
	const struct bench_data_opts data = {
		.num_prompts = o->batch, .input_len = o->input_len,
		.output_len = o->output_len, .seed = o->seed,
	};
	const u32 most = model_info(e->model)->max_len;
	struct series runs = { 0 };
	struct workload w;
	double s;
	int ret;
	u32 i;

	workload_init(&w);
	ret = workload_make(&w, &data, most);
	if (!ret && w.cut && !o->quiet)
		pr_warn("requests are cut to the %u tokens of the model's context",
			most);
	for (i = 0; !ret && i < o->warmups + o->iters; i++) {
		ret = bench_engine_run(e, &w, o->samples, &s);
		if (i >= o->warmups)
			series_add(&runs, s);
	}
	if (!ret)
		ret = show_latency(e, &runs, p, o);
	series_free(&runs);
	workload_free(&w);
	return ret;
}

int bench_latency(int argc, char **argv)
{
	struct bench_engine_opts eng = { 0 };
	struct bench_engine e = { 0 };
	struct percentiles p;
	struct latency_opts o;
	int ret;

	ret = one_folder(&bench_latency_program, &o, argc, argv);
	if (!ret)
		ret = percentiles_parse(&p, o.percentiles);
	if (ret)
		return max(ret, 0);
#define x(kind, field, ...) eng.field = o.field;
	BENCH_ENGINE_OPTS(x)
#undef x
	ret = bench_engine_open(&e, &eng, argv[0]);
	if (!ret)
		ret = run_latency(&e, &o, &p);
	bench_engine_close(&e);
	return ret;
}
