// SPDX-License-Identifier: Apache-2.0
/*
 * service.c - state shared by the calls of a loop, and their admission
 *
 * The first check of a request, before its body is read: is the server shutting
 * down, is there a model that could answer, is there a place?  Places are
 * counted for all loops together.  A call takes one here and gives it back when
 * it leaves the list.
 */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/server/call.h"
#include "runtime/server/models.h"

int service_admit(struct service *svc, bool tokens, struct api_error *err)
{
	struct site *site = svc->site;
	u32 nr, i;

	if (READ_ONCE(site->draining))
		return api_fail(err, 503, "", "shutting_down",
				"the server is shutting down");
	for (i = 0; i < site->nr_backends; i++)
		if (!(tokens ? backend_is_loaded(&site->backends[i], err) :
			       backend_admits(&site->backends[i], err)))
			break;
	if (i == site->nr_backends)
		return -1;
	nr = __atomic_fetch_add(&site->nr_calls, 1, __ATOMIC_RELAXED);
	if (nr < site->max_calls)
		return 0;
	service_leave(svc);
	return api_fail(err, 429, "", "queue_full",
			"%u requests are being worked at, as many as this server takes: try again in a moment",
			nr);
}

void service_leave(struct service *svc)
{
	__atomic_sub_fetch(&svc->site->nr_calls, 1, __ATOMIC_RELAXED);
}

void service_refuse(const struct service *svc, struct conn *c,
		    const struct api_error *err)
{
	const bool later = err->status == 429 || err->status == 503;
	const struct site *site = svc->site;
	struct text t = { 0 };
	char header[32];

	/* Assume that calls of the other loops end as fast. */
	snprintf(header, sizeof(header), "Retry-After: %u\r\n",
		 err->status == 429 ?
		 retry_after_s(&svc->retry, READ_ONCE(site->nr_calls) /
			       site->nr_services) : 1);
	api_error_json(&t, err);
	text_puts(&t, "\n");
	conn_tell_error(c, err->code, err->param);
	conn_reply(c, err->status, "application/json", later ? header : NULL,
		   t.p, t.len);
	text_free(&t);
}

void service_cancel(struct service *svc)
{
	struct call *call, *next;
	struct api_error err;

	api_fail(&err, 503, "", "shutting_down", "the server is shutting down");
	for (call = svc->list; call; call = next) {
		next = call->next;
		call_stop(call, &err);
	}
}

static void on_cancel(struct mail *m)
{
	service_cancel(container_of(m, struct service, to_cancel));
}

int service_init(struct service *svc, struct site *site)
{
	memset(svc, 0, sizeof(*svc));
	svc->site = site;
	svc->to_cancel.fn = on_cancel;
	svc->metrics = calloc(site->nr_backends, sizeof(*svc->metrics));
	return svc->metrics ? 0 : -ENOMEM;
}

void service_free(struct service *svc)
{
	free(svc->metrics);
}
