// SPDX-License-Identifier: Apache-2.0
/*
 * access.c - the log line of one request
 *
 *	ID METHOD PATH STATUS, N tokens, N ms, key NAME
 *
 * The client chose the id and the path, and http.c has checked both: they are
 * printable and without blanks.  A path is cut, so that the rest of the line is
 * always there.
 *
 * Clients cause these lines, so their number is bounded: a flood of refused
 * requests must not fill a disk.  Debug lines are only written on demand, and
 * are not bounded.
 */
#include <stdio.h>
#include <string.h>

#include <kvmm/log.h>

#include "runtime/server/access.h"

#define ACCESS_PATH	200	/* bytes shown of a path */

static const char *method_name(enum http_method m)
{
	static const char * const names[] = {
#define x(name) #name,
		HTTP_METHODS(x)
#undef x
	};

	return m < HTTP_NR_METHODS ? names[m] : "-";
}

static bool is_probe(const struct http_head *h)
{
	static const char ready[] = "/ready";

	return h->path_len == sizeof(ready) - 1 &&
	       !memcmp(h->path, ready, sizeof(ready) - 1);
}

/* A server that is not ready yet tells a probe so: that is no failure. */
static enum kv_log_level access_level(const struct access *a)
{
	if (a->status < 400 || (a->head->path && is_probe(a->head)))
		return KV_LOG_DEBUG;
	return a->status < 500 ? KV_LOG_INFO : KV_LOG_WARN;
}

void access_log(const struct access *a)
{
	static struct kv_log_budget budget[KV_LOG_DEBUG];
	const enum kv_log_level level = access_level(a);
	const struct http_head *h = a->head;
	char status[8] = "gone";

	if (!kv_log_wants(level) ||
	    (level < KV_LOG_DEBUG &&
	     !kv_log_spend(&budget[level], ACCESS_BURST, "requests")))
		return;
	if (a->status)
		snprintf(status, sizeof(status), "%d", a->status);
	kv_log(level, "%s %s %.*s %s, %llu tokens, %.1f ms%s%s",
	       *a->id ? a->id : *h->id ? h->id : "-",
	       h->path ? method_name(h->method) : "-",
	       h->path ? (int)min(h->path_len, (size_t)ACCESS_PATH) : 1,
	       h->path ? h->path : "-", status, (unsigned long long)a->tokens,
	       (double)a->ns / 1e6, a->key ? ", key " : "",
	       a->key ? a->key : "");
}
