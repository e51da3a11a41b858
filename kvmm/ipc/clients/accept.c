// SPDX-License-Identifier: Apache-2.0
/*
 * accept.c - connections come in, events and deadlines of clients
 *
 * Context: control thread, but for the function handed to mm_call().
 */
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <kvmm/log.h>

#include "kvmm/ipc/clients/clients.h"

#define RETRY_NS	(50 * NSEC_PER_MSEC)	/* to send extents again */
#define HELD_NS		(5 * NSEC_PER_MSEC)	/* to see whether some came */
#define CLIENT_SNDBUF	4096

struct life_call {
	struct mm	*mm;
	struct client	*c;
};

static void call_eproto(struct core *core, void *arg)
{
	struct life_call *l = arg;
	u64 bit = BIT_ULL(l->c->mm.id);

	if (l->mm->active & bit) {
		core_client_eproto(core, kv_now_ns(), l->c->mm.id);
		l->mm->wake |= bit;
	}
	mm_deactivate(l->mm, &l->c->mm);
}

/* ---- events ---- */

/* After ATTACH a client sends no message: it hangs up, or is expelled. */
static void client_listen(struct clients *cs, struct client *c)
{
	struct life_call l = { .mm = cs->mm, .c = c };
	char byte[8];
	ssize_t n = sock_recv(c->sock.fd, byte, sizeof(byte));

	if (n == -EAGAIN)
		return;
	if (n > 0 || n == -EBADMSG) {
		if (log_allowed())
			pr_warn("client %u (%s, pid %d) is expelled: it sent a message after ATTACH",
				c->mm.id, c->info.comm, (int)c->info.pid);
		if (mm_call(cs->mm, call_eproto, &l))
			return;
	}
	client_hang_up(cs, c);
}

void client_on_sock(void *arg, struct watch *w, u32 events)
{
	struct clients *cs = arg;
	struct client *c = container_of(w, struct client, sock);

	if (events & EPOLLOUT)
		extents_send(cs, c);
	if (!(events & ~(u32)EPOLLOUT))
		return;
	if (c->stage == CLIENT_GREETING)
		client_greet(cs, c);
	else
		client_listen(cs, c);
}

/* ---- connections ---- */

/* Take in a connection.  Return: NULL, or why not. */
static const char *client_admit(struct clients *cs, const struct watch *w,
				int sock)
{
	struct client *c = client_alloc(sock);
	int bytes = CLIENT_SNDBUF;
	const char *why = NULL;

	if (!c) {
		conn_close(cs->sockets, sock);
		return "no memory";
	}
	/* It bounds the descriptors under way to a client that does not read. */
	setsockopt(sock, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
	c->pidfd.fd = peer_identify(sock, &c->info);
	if (c->pidfd.fd < 0)
		why = "its process cannot be identified";
	if (why) {
		client_free(cs, c);
		return why;
	}
	c->mm.pidfd = c->pidfd.fd;
	c->uid = c->info.uid;
	c->key = tenant_key(cs->sockets, w, c->uid);
	greeting_make_room(cs, c->key);
	c->sock.fn = client_on_sock;
	c->sock.arg = cs;
	c->deadline = kv_now_ns() + GREETING_MS * NSEC_PER_MSEC;
	list_add_tail(&cs->greeting, &c->node);
	cs->nr_greeting++;
	if (watch_add(cs->loop, &c->sock, EPOLLIN | EPOLLRDHUP)) {
		client_drop(cs, c);
		return "epoll refuses it";
	}
	return NULL;
}

void client_accept(void *arg, struct watch *w, u32 events)
{
	struct clients *cs = arg;
	const char *why;
	int sock, i;

	/* A bounded number a round: other events wait too. */
	for (i = 0; i < 16; i++) {
		sock = conn_accept(cs->sockets, w);
		if (sock < 0)
			return;
		why = client_admit(cs, w, sock);
		if (why && log_allowed())
			pr_warn("a connection is closed: %s", why);
	}
}

/* client_send_extents() - the mm thread wants extents sent to clients of @mask */
void client_send_extents(struct clients *cs, u64 mask)
{
	for (; mask; mask &= mask - 1) {
		struct client *c = cs->by_id[__builtin_ctzll(mask)];

		if (c)
			extents_send(cs, c);
	}
}

/**
 * client_timers() - end connections that took too long, send extents again
 * Return: when to be called next, or UINT64_MAX.
 */
u64 client_timers(struct clients *cs, u64 now)
{
	struct list *l, *tmp;
	u64 next = UINT64_MAX;

	list_for_each(&cs->greeting, l, tmp) {
		struct client *c = list_entry(l, struct client, node);

		if (now < c->deadline) {
			next = min(next, c->deadline);
			continue;
		}
		if (log_allowed())
			pr_warn("%s (pid %d, uid %u) connected and did not attach: its connection is closed",
				c->info.comm, (int)c->info.pid, c->uid);
		client_drop(cs, c);
	}
	list_for_each(&cs->attached, l, tmp) {
		struct client *c = list_entry(l, struct client, node);

		if (c->todo_any && !c->want_out) {
			extents_send(cs, c);
			if (c->todo_any && !c->want_out)
				next = min(next, now + (c->held ? HELD_NS :
							RETRY_NS));
		}
		if (c->ended) {
			if (device_quiet(cs->setup, c->ended, now))
				client_over(cs, c);
			else
				next = min(next, now + QUIET_POLL_NS);
			continue;
		}
		if (!c->deadline)
			continue;
		if (now >= c->deadline && c->stage == CLIENT_LINGERING) {
			client_haunt(cs, c);
			continue;
		}
		if (now >= c->deadline && c->stage == CLIENT_AWAY)
			resume_give_up(cs, c);
		else if (now >= c->deadline)
			client_hang_up(cs, c);
		next = min(next, c->deadline);
	}
	return next;
}

/* clients_none() - the lists are empty */
void clients_none(struct clients *cs)
{
	list_init(&cs->greeting);
	list_init(&cs->attached);
	list_init(&cs->dead);
	list_init(&cs->ghosts);
	list_init(&cs->readers);
}

int clients_init(struct clients *cs)
{
	cs->tenants = calloc(cs->setup->cfg.max_tenants, sizeof(*cs->tenants));
	return cs->tenants ? 0 : -ENOMEM;
}

/* client_free_dead() - between two rounds */
void client_free_dead(struct clients *cs)
{
	struct list *l, *tmp;

	list_for_each(&cs->dead, l, tmp) {
		list_del(l);
		client_free(cs, list_entry(l, struct client, node));
	}
}

/* clients_exit() - at the end, when the mm thread has stopped */
void clients_exit(struct clients *cs)
{
	struct list *heads[] = { &cs->greeting, &cs->attached, &cs->dead };
	struct list *l, *tmp;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(heads); i++) {
		list_for_each(heads[i], l, tmp) {
			list_del(l);
			client_free(cs, list_entry(l, struct client, node));
		}
	}
	ghost_exit_all(cs);
	free(cs->tenants);
	cs->tenants = NULL;
}
