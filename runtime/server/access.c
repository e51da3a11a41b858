// SPDX-License-Identifier: Apache-2.0
/*
 * access.c - the log line of one request
 *
 *	CLIENT "METHOD PATH" STATUS, N tokens, N ms, id ID, key NAME, code CODE, param FIELD
 *
 * CLIENT is the address of the connection, and never one that a header names.  It
 * comes first, so that programs that ban addresses find it in one place.  The
 * client chose the id and the path, and http.c has checked both: they are
 * printable and without blanks.  A path is cut, so that the rest of the line is
 * always there.
 *
 * Clients cause these lines, so their number is bounded: a flood of refused
 * requests must not fill a disk.  Debug lines are only written on demand, and
 * are not bounded.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include <kvmm/log.h>
#include <kvmm/text.h>

#include "runtime/server/access.h"

#define ACCESS_PATH	200	/* bytes shown of a path */

void access_peer_set(struct access_peer *p, const struct sockaddr *sa)
{
	const struct sockaddr_in6 *six = (const void *)sa;
	const struct sockaddr_in *four = (const void *)sa;

	*p = (struct access_peer){ .family = sa->sa_family };
	if (sa->sa_family == AF_INET) {
		p->port = four->sin_port;
		memcpy(p->addr, &four->sin_addr, 4);
	} else if (sa->sa_family == AF_INET6) {
		p->port = six->sin6_port;
		memcpy(p->addr, &six->sin6_addr, 16);
	}
	/* A socket of :: has clients of IPv4, too. */
	if (p->family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&six->sin6_addr)) {
		p->family = AF_INET;
		memcpy(p->addr, &six->sin6_addr.s6_addr[12], 4);
	}
}

const char *access_peer_text(const struct access_peer *p, char *text)
{
	char host[INET6_ADDRSTRLEN];

	if (p->family == AF_UNIX || !inet_ntop(p->family, p->addr, host,
					       sizeof(host)))
		return strcpy(text, "unix");
	snprintf(text, ACCESS_PEER, p->family == AF_INET6 ? "[%s]:%u" : "%s:%u",
		 host, ntohs(p->port));
	return text;
}

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

static const char *access_id(const struct access *a)
{
	return *a->id ? a->id : *a->head->id ? a->head->id : "-";
}

/* A client may have chosen the name of the field: one of other bytes is left out. */
static const char *param_shown(const struct access *a)
{
	const char *p = a->param;

	while (p && ((*p >= '0' && *p <= '9') || (*p >= 'a' && *p <= 'z') ||
		     (*p >= 'A' && *p <= 'Z') || (*p && strchr("_-.[]", *p))))
		p++;
	return p && p != a->param && !*p ? a->param : NULL;
}

/* The reason of a refusal: ", code CODE, param FIELD", or "". */
static const char *reason(const struct access *a, char *buf, size_t len)
{
	const char *param = param_shown(a);

	snprintf(buf, len, "%s%s%s%s", a->code ? ", code " : "",
		 a->code ? a->code : "", param ? ", param " : "",
		 param ? param : "");
	return buf;
}

/* Members of a line in JSON; a status of null is a client that had gone. */
static void access_json(const struct access *a, const char *peer, struct text *t)
{
	const struct http_head *h = a->head;

	text_puts(t, "\"client\":");
	text_jsons(t, peer);
	text_puts(t, ",\"id\":");
	text_jsons(t, access_id(a));
	text_puts(t, ",\"method\":");
	text_jsons(t, h->path ? method_name(h->method) : NULL);
	text_puts(t, ",\"path\":");
	if (h->path)
		text_json(t, h->path, min(h->path_len, (size_t)ACCESS_PATH));
	else
		text_puts(t, "null");
	text_puts(t, ",\"status\":");
	if (a->status)
		text_printf(t, "%d", a->status);
	else
		text_puts(t, "null");
	text_printf(t, ",\"tokens\":%llu,\"ms\":%.1f,\"key\":",
		    (unsigned long long)a->tokens, (double)a->ns / 1e6);
	text_jsons(t, a->key);
	text_puts(t, ",\"code\":");
	text_jsons(t, a->code);
	text_puts(t, ",\"param\":");
	text_jsons(t, param_shown(a));
	text_add(t, "", 1);
}

void access_log(const struct access *a)
{
	static struct kv_log_budget budget[KV_LOG_DEBUG];
	const enum kv_log_level level = access_level(a);
	const struct http_head *h = a->head;
	char status[8] = "gone", peer[ACCESS_PEER], why[160];
	struct text more = { 0 };

	if (!kv_log_wants(level) ||
	    (level < KV_LOG_DEBUG &&
	     !kv_log_spend(&budget[level], ACCESS_BURST, "requests")))
		return;
	if (a->status)
		snprintf(status, sizeof(status), "%d", a->status);
	access_peer_text(a->peer, peer);
	if (kv_log_is_json())
		access_json(a, peer, &more);
	kv_log_with(level, more.len && !more.failed ? more.p : "",
		    "%s \"%s%s%.*s\" %s, %llu tokens, %.1f ms, id %s%s%s%s", peer,
		    h->path ? method_name(h->method) : "-", h->path ? " " : "",
		    h->path ? (int)min(h->path_len, (size_t)ACCESS_PATH) : 0,
		    h->path ? h->path : "", status,
		    (unsigned long long)a->tokens, (double)a->ns / 1e6,
		    access_id(a), a->key ? ", key " : "", a->key ? a->key : "",
		    reason(a, why, sizeof(why)));
	text_free(&more);
}
