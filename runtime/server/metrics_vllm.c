// SPDX-License-Identifier: Apache-2.0
/*
 * metrics_vllm.c - the metrics that routers read, under the names of vLLM
 *
 * The endpoint picker of the Gateway API inference extension, and others, ask each
 * server for its queue, the use of its KV cache, the size of that and its adapters.
 * They know the names of vLLM.
 */
#include <stdio.h>
#include <time.h>

#include "runtime/server/metrics.h"

/* A page; @labels: [@v->nr_models], model_name="..." */
struct vllm_page {
	struct text			*t;
	const struct metrics_view	*v;
	const struct text		*labels;
};

static void family(const struct vllm_page *p, const char *name, const char *help)
{
	text_printf(p->t, "# HELP vllm:%s %s\n# TYPE vllm:%s gauge\n", name, help, name);
}

static void value(const struct vllm_page *p, u32 i, const char *name, double v)
{
	text_printf(p->t, "vllm:%s{", name);
	text_add(p->t, p->labels[i].p, p->labels[i].len);
	text_printf(p->t, "} %.17g\n", v);
}

/* The part of the pool that sequences hold, 0 to 1. */
static double usage(const struct backend_kv *kv)
{
	const double all = (double)kv->blocks * kv->block_tokens;

	return all > 0 ? min((double)kv->tokens / all, 1.0) : 0;
}

static void write_cache(const struct vllm_page *p)
{
	u32 i;

	family(p, "kv_cache_usage_perc",
	       "tokens of sequences that have begun to answer, as a part of the pool: 1 is all of it");
	for (i = 0; i < p->v->nr_models; i++)
		value(p, i, "kv_cache_usage_perc", usage(&p->v->models[i].b.kv));
	family(p, "cache_config_info", "blocks of the pool, and their tokens");
	for (i = 0; i < p->v->nr_models; i++) {
		const struct backend_kv *kv = &p->v->models[i].b.kv;

		text_puts(p->t, "vllm:cache_config_info{");
		text_add(p->t, p->labels[i].p, p->labels[i].len);
		text_printf(p->t, ",block_size=\"%u\",num_gpu_blocks=\"%llu\"} 1\n",
			    kv->block_tokens, (unsigned long long)kv->blocks);
	}
}

static void list_adapter(void *arg, const struct served_adapter *a)
{
	struct text *list = arg;

	if (!a->adapter)
		return;
	if (list->len)
		text_puts(list, ",");
	text_puts(list, a->name);
}

/* The time is the value: a reader takes the newest. */
static void write_adapters(const struct vllm_page *p)
{
	struct timespec now;
	u32 i;

	clock_gettime(CLOCK_REALTIME, &now);
	family(p, "lora_requests_info", "adapters that can serve; the value is the time");
	for (i = 0; i < p->v->nr_models; i++) {
		struct text list = { 0 };

		if (p->v->models[i].adapters)
			served_each(p->v->models[i].adapters, list_adapter, &list);
		text_add(&list, "", 1);
		if (!list.failed && *list.p) {
			text_puts(p->t, "vllm:lora_requests_info{");
			text_add(p->t, p->labels[i].p, p->labels[i].len);
			text_printf(p->t, ",max_lora=\"%u\",running_lora_adapters=", SERVED_MAX);
			text_jsons(p->t, list.p);
			text_printf(p->t, ",waiting_lora_adapters=\"\"} %.17g\n",
				    (double)now.tv_sec + (double)now.tv_nsec / 1e9);
		}
		p->t->failed |= list.failed;
		text_free(&list);
	}
}

void metrics_write_vllm(struct text *t, const struct metrics_view *v, const struct text *labels)
{
	const struct vllm_page p = { .t = t, .v = v, .labels = labels };
	u32 i;

	family(&p, "num_requests_running", "as kvrt_num_requests_running");
	for (i = 0; i < v->nr_models; i++)
		value(&p, i, "num_requests_running", v->models[i].b.load.running);
	family(&p, "num_requests_waiting", "as kvrt_num_requests_waiting");
	for (i = 0; i < v->nr_models; i++)
		value(&p, i, "num_requests_waiting", v->models[i].b.load.waiting);
	write_cache(&p);
	write_adapters(&p);
}
