// SPDX-License-Identifier: Apache-2.0
/*
 * cors.c - which pages of other servers may use this one from a browser
 *
 * A browser sends the origin of a page with its requests, and shows the page an
 * answer only if a header of the answer admits this origin.  Before a request
 * with a key or with JSON it asks by OPTIONS whether that will be admitted.  The
 * server itself refuses no origin: other clients can write any.
 *
 * An answer that depends on the origin says so in Vary, so that no cache gives
 * it to another page.
 */
#include <string.h>

#include "runtime/server/cors.h"

#define CORS_ASKED_MAX	1024u	/* bytes of names of headers that are repeated */

/* Browsers ask again after this time; Chromium takes no longer one. */
#define CORS_MAX_AGE	"Access-Control-Max-Age: 7200\r\n"

bool cors_is_origin(const char *s)
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789+-.:[]_";
	const char *host = strstr(s, "://");

	if (!strcmp(s, "*"))
		return true;
	if (!host || host == s)
		return false;
	host += strlen("://");
	return *host && !host[strspn(host, allowed)] &&
	       strspn(s, allowed) == strcspn(s, "/");
}

void cors_init(struct cors *cors, const char * const *list, u32 nr)
{
	u32 i;

	*cors = (struct cors){ .list = list, .nr = nr };
	for (i = 0; i < nr; i++)
		cors->any |= !strcmp(list[i], "*");
}

static bool is_admitted(const struct cors *cors, const struct http_head *h)
{
	u32 i;

	if (!h->origin)
		return false;
	for (i = 0; i < cors->nr && !cors->any; i++)
		if (strlen(cors->list[i]) == h->origin_len &&
		    !memcmp(cors->list[i], h->origin, h->origin_len))
			return true;
	return cors->any;
}

void cors_headers(const struct cors *cors, const struct http_head *h,
		  struct text *t)
{
	if (!cors->nr)
		return;
	if (!cors->any)
		text_puts(t, "Vary: Origin\r\n");
	if (!is_admitted(cors, h))
		return;
	text_puts(t, "Access-Control-Allow-Origin: ");
	if (cors->any)
		text_puts(t, "*");
	else
		text_add(t, h->origin, h->origin_len);
	text_puts(t, "\r\nAccess-Control-Expose-Headers: X-Request-Id, Retry-After\r\n");
}

/* May these names of headers be repeated in an answer? */
static bool is_names(const char *p, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_, ", p[i]))
			return false;
	return n && n <= CORS_ASKED_MAX;
}

void cors_preflight(const struct cors *cors, const struct http_head *h,
		    const char *methods, struct text *t)
{
	if (!cors->nr)
		return;
	text_puts(t, "Vary: Access-Control-Request-Headers\r\n");
	if (!is_admitted(cors, h))
		return;
	text_printf(t, "Access-Control-Allow-Methods: %s\r\nAccess-Control-Allow-Headers: ",
		    methods);
	/* Clients of OpenAI's API have headers of their own. */
	if (h->asked && is_names(h->asked, h->asked_len))
		text_add(t, h->asked, h->asked_len);
	else
		text_puts(t, "Authorization, Content-Type, X-Request-Id");
	text_puts(t, "\r\n" CORS_MAX_AGE);
}
