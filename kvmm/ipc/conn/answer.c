// SPDX-License-Identifier: Apache-2.0
/*
 * answer.c - an operator's connection until it is answered
 *
 * A connection carries one request and stays open until it is answered, which
 * may take as long as a disk takes.  A room that works on the request keeps the
 * struct admin and answers it; if the operator hangs up before, admin/admin.c
 * takes it back.
 *
 * A connection is freed after the round of the control thread in which it ends,
 * since an event for it may be in the same batch.
 *
 * Context: control thread.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include <kvmm/admin.h>
#include <kvmm/log.h>

#include "kvmm/ipc/conn/conn.h"

void admins_init(struct admins *all)
{
	list_init(&all->live);
	list_init(&all->dead);
}

/**
 * admin_new() - a connection that was accepted
 * @fn: called with @arg when there is anything to read
 * Return: NULL without memory; @sock is still the caller's then.
 */
struct admin *admin_new(struct admins *all, int sock, watch_fn *fn, void *arg)
{
	struct admin *adm = calloc(1, sizeof(*adm));

	if (!adm)
		return NULL;
	adm->all = all;
	adm->sock.fd = sock;
	adm->sock.fn = fn;
	adm->sock.arg = arg;
	list_add_tail(&all->live, &adm->node);
	all->nr++;
	if (watch_add(all->loop, &adm->sock, EPOLLIN))
		admin_end(adm);
	return adm;
}

static void admin_say(const struct admin *adm, const char *head,
		      const char *text)
{
	char buf[KV_ADMIN_TEXT];
	int n = snprintf(buf, sizeof(buf), "%s %s", head, text);
	int err = sock_send(adm->sock.fd, buf, min((size_t)n, sizeof(buf) - 1),
			    NULL, 0);

	if (err)
		pr_debug("an answer on the admin socket is lost: %s",
			 strerror(-err));
}

/* admin_progress() - a line before the answer; lost if the operator does not read */
void admin_progress(struct admin *adm, const char *text)
{
	admin_say(adm, "progress", text);
}

/* admin_end() - close the connection; no room may have @adm any more */
void admin_end(struct admin *adm)
{
	watch_close(adm->all->loop, &adm->sock);
	list_del(&adm->node);
	list_add_tail(&adm->all->dead, &adm->node);
	adm->all->nr--;
}

/**
 * admin_finish() - answer and close the connection
 * @err:  0 or a negative errno
 * @text: one line
 */
void admin_finish(struct admin *adm, int err, const char *text)
{
	char head[32] = "ok";

	if (err)
		snprintf(head, sizeof(head), "error %d", -err);
	admin_say(adm, head, text);
	admin_end(adm);
}

/* admin_free_dead() - between two rounds */
void admin_free_dead(struct admins *all)
{
	struct list *l, *tmp;

	list_for_each(&all->dead, l, tmp) {
		list_del(l);
		free(list_entry(l, struct admin, node));
	}
}
