// SPDX-License-Identifier: Apache-2.0
/*
 * rates.c - a line of the log about the work of the last seconds
 *
 * One line a model, and none for a model that did nothing, so that an idle server
 * writes nothing.
 */
#include <stdio.h>
#include <stdlib.h>

#include <event2/event.h>

#include <kvmm/clock.h>
#include <kvmm/log.h>
#include <kvmm/text.h>

#include "runtime/server/rates.h"

static double percent(u64 part, u64 whole)
{
	return whole ? 100.0 * (double)part / (double)whole : 0;
}

bool rates_text(const char *name, const struct backend_view *from,
		const struct backend_view *to, s64 ns, char *text, char *json)
{
	const u64 prompt = to->stats.prompt_tokens - from->stats.prompt_tokens;
	const u64 cached = to->stats.cached_tokens - from->stats.cached_tokens;
	const u64 made = to->stats.generated_tokens - from->stats.generated_tokens;
	const struct engine_load *l = &to->load;
	const double s = (double)max(ns, (s64)1) / 1e9;
	const double pool = percent(l->extents, l->all_extents);
	char hits[16] = "-";
	struct text id = { 0 };

	if (to->stats.steps == from->stats.steps && !prompt && !l->running &&
	    !l->waiting)
		return false;
	if (prompt)
		snprintf(hits, sizeof(hits), "%.1f", percent(cached, prompt));
	snprintf(text, RATES_TEXT,
		 "%.200s: %.1f prompt tokens/s, %.1f generated tokens/s, running %u, waiting %u, prefix cache hits %s %%, pool %.1f %%",
		 name, (double)prompt / s, (double)made / s, l->running,
		 l->waiting, hits, pool);
	text_jsons(&id, name);
	text_add(&id, "", 1);
	snprintf(json, RATES_TEXT,
		 "\"model\":%.250s,\"prompt_tokens_per_s\":%.1f,\"generated_tokens_per_s\":%.1f,\"running\":%u,\"waiting\":%u,\"prefix_cache_hits\":%s,\"pool\":%.1f",
		 id.failed || id.len > 250 ? "null" : id.p, (double)prompt / s,
		 (double)made / s, l->running, l->waiting,
		 prompt ? hits : "null", pool);
	text_free(&id);
	return true;
}

static void on_time(evutil_socket_t fd, short what, void *arg)
{
	char text[RATES_TEXT], json[RATES_TEXT];
	struct rates *r = arg;
	const s64 now = (s64)kv_now_ns();
	struct backend_view v;
	u32 i;

	for (i = 0; i < r->nr; i++) {
		backend_look(&r->backends[i], &v);
		if (rates_text(r->backends[i].o.name, &r->last[i], &v,
			       now - r->last_ns, text, json))
			kv_log_with(KV_LOG_INFO, json, "%s", text);
		r->last[i] = v;
	}
	r->last_ns = now;
}

int rates_start(struct rates *r, struct event_base *base,
		struct backend *backends, u32 nr, u32 every_s)
{
	const struct timeval tv = { every_s, 0 };

	*r = (struct rates){
		.backends = backends, .nr = nr, .last_ns = (s64)kv_now_ns(),
	};
	if (!every_s)
		return 0;
	r->last = calloc(nr, sizeof(*r->last));
	r->ev = event_new(base, -1, EV_PERSIST, on_time, r);
	return r->last && r->ev && !event_add(r->ev, &tv) ? 0 : -ENOMEM;
}

void rates_stop(struct rates *r)
{
	if (r->ev)
		event_free(r->ev);
	free(r->last);
	*r = (struct rates){ 0 };
}
