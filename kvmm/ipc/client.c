// SPDX-License-Identifier: Apache-2.0
/*
 * client.c - the life of a connection to the attach socket
 *
 *   GREETING --attach--> ATTACHED --DETACH--> LEAVING --hangs up--> LINGERING
 *       |                   |                                          |
 *       | deadline,         | end of file, garbage,       the process  |
 *       | garbage           v expelled                    has ended,   |
 *       v                HUNG_UP                          or a second  |
 *     gone                  | the process has ended       has passed   |
 *                           +-------------> gone <---------------------+
 *
 * A client of the daemon before this one is AWAY until it resumes (resume.c):
 * then it is ATTACHED, or HUNG_UP when it takes too long.
 *
 * A connection that ends without DETACH is a dead client, though its process
 * may live on and write to the memory it has mapped: its blocks stay in
 * quarantine, its segments stay mapped here and its slot stays taken, until
 * the pidfd says that the process is gone.  The core kills one that takes too
 * long.  One that said DETACH claims to have unmapped everything; it is waited
 * for a moment, since most end then, because the core trusts the claim towards
 * other tenants only when the process has ended.
 *
 * A process that has ended may have left kernels on the device: it counts as
 * ended for the core when the device is quiet of it, too.
 *
 * Only when the core has forgotten a client is anything of it freed,
 * and then at the end of the control thread's round, since an event for it
 * may still wait in the same batch.
 *
 * Context: control thread, but for the functions handed to mm_call().
 */
#include <sys/epoll.h>
#include <sys/socket.h>

#include <kvmm/fault.h>
#include <kvmm/log.h>

#include "kvmm/ipc/daemon.h"

#define RETRY_NS	(50 * NSEC_PER_MSEC)	/* to send extents again */
#define HELD_NS		(5 * NSEC_PER_MSEC)	/* to see whether some came */
#define CLIENT_SNDBUF	4096

struct life_call {
	struct daemon	*d;
	struct client	*c;
};

/* ---- on the mm thread ---- */

static void call_dead(struct core *core, void *arg)
{
	struct life_call *l = arg;

	mm_deactivate(&l->d->mm, &l->c->mm);
	core_client_dead(core, clock_ns(), l->c->mm.id);
}

static void call_quiet(struct core *core, void *arg)
{
	struct life_call *l = arg;

	core_client_quiet(core, clock_ns(), l->c->mm.id);
	mm_forget(&l->d->mm, &l->c->mm);
}

static void call_eproto(struct core *core, void *arg)
{
	struct life_call *l = arg;
	u64 bit = BIT_ULL(l->c->mm.id);

	if (l->d->mm.active & bit) {
		core_client_eproto(core, clock_ns(), l->c->mm.id);
		l->d->mm.wake |= bit;
	}
	mm_deactivate(&l->d->mm, &l->c->mm);
}

/* ---- the end ---- */

/* Give back what @c holds; nothing refers to it any more. */
void client_free(struct daemon *d, struct client *c)
{
	segment_destroy(&c->c);
	segment_destroy(&c->d);
	if (c->mm.bell >= 0)
		close(c->mm.bell);
	conn_close(&d->sockets, c->sock.fd);
	if (c->pidfd.fd >= 0)
		close(c->pidfd.fd);
	free(c->mm.ring.res_end);
	free(c->todo);
	free(c->flying);
	free(c->mm.want);
	free(c->mm.dirty);
	free(c);
}

/* Say what the mm thread did to @c. */
static void client_log_notes(const struct client *c, u32 notes)
{
	const char *what = NULL, *why = NULL;

	if (notes & NOTE_EXPELLED) {
		what = "is expelled";
		why = READ_ONCE(c->mm.why);
	} else if (notes & (NOTE_KILLED | NOTE_UNKILLABLE)) {
		what = notes & NOTE_KILLED ? "is killed" : "cannot be killed";
		why = strerror(-READ_ONCE(c->mm.reason));
		if ((notes & NOTE_KILLED) && READ_ONCE(c->mm.reason) == -ETIME)
			why = "it kept a step open past the deadline";
		else if ((notes & NOTE_KILLED) && READ_ONCE(c->mm.reason) == -EBUSY)
			why = "it kept memory that was asked back past the deadline (--revoke-deadline-ms)";
		else if (notes & NOTE_KILLED)
			why = "it hung up and did not end";
	}
	if (what && log_allowed())
		pr_warn("client %u (%s, pid %d) %s: %s", c->mm.id, c->info.comm,
			(int)c->info.pid, what, why);
}

/*
 * Take over what the mm thread noted.  A client that said DETACH closes its
 * socket as soon as it has the answer, so the end of the socket may be seen
 * before the kick of the mm thread.
 */
static u32 client_note(struct client *c)
{
	/* Pairs with the release in mm_note(). */
	u32 notes = __atomic_exchange_n(&c->mm.notes, 0, __ATOMIC_ACQUIRE);

	if ((notes & NOTE_DETACHED) && c->stage == CLIENT_ATTACHED) {
		c->stage = CLIENT_LEAVING;
		c->deadline = clock_ns() + LEAVING_MS * NSEC_PER_MSEC;
	}
	client_log_notes(c, notes);
	return notes;
}

/* Nobody knows @c any more: free it when this round is over. */
void client_drop(struct daemon *d, struct client *c)
{
	watch_conn_close(&d->sockets, &c->sock);
	watch_close(&d->loop, &c->pidfd);
	/* The end of a process may be seen before the kick that tells why. */
	client_note(c);
	if (c->mm.id != CORE_NONE && d->clients[c->mm.id] == c) {
		d->clients[c->mm.id] = NULL;
		keep_client_drop(&d->deposit, c->mm.id);
		deposit_drop(&d->deposit, HOLD_CLIENT, c->mm.id);
	}
	if (c->stage == CLIENT_GREETING)
		d->nr_greeting--;
	list_del(&c->node);
	list_add_tail(&d->dead, &c->node);
}

/* The core knows no more of @c than that its slot is free. */
static void client_quiet(struct daemon *d, struct client *c)
{
	struct life_call l = { .d = d, .c = c };

	if (!mm_call(&d->mm, call_quiet, &l))
		client_drop(d, c);
}

/**
 * client_hang_up() - the connection is over, whoever ended it
 *
 * One that never attached is gone with it; another is dead, or has detached,
 * and waits for the end of its process.
 */
void client_hang_up(struct daemon *d, struct client *c)
{
	struct life_call l = { .d = d, .c = c };
	bool detached;

	if (c->stage == CLIENT_GREETING) {
		client_drop(d, c);
		return;
	}
	client_note(c);
	detached = c->stage == CLIENT_LEAVING;
	if (c->stage != CLIENT_ATTACHED && c->stage != CLIENT_AWAY && !detached)
		return;
	/* How the others ended is told when their process has. */
	if (detached && log_life_allowed())
		pr_info("client %u detached: %s (pid %d)", c->mm.id, c->info.comm,
			(int)c->info.pid);
	pr_debug("client %u hung up, %llu extents were sent to it", c->mm.id,
		 (unsigned long long)c->nr_sent);
	watch_conn_close(&d->sockets, &c->sock);
	c->todo_any = false;
	c->stage = detached ? CLIENT_LINGERING : CLIENT_HUNG_UP;
	c->deadline = detached ? clock_ns() + LINGER_MS * NSEC_PER_MSEC : 0;
	if (!detached && mm_call(&d->mm, call_dead, &l))
		pr_debug("the mm thread has stopped");
}

/* @c detached and lives on; its slot is wanted. */
static void client_haunt(struct daemon *d, struct client *c)
{
	ghost_add(d, c);
	client_quiet(d, c);
}

/* Its process has ended, and the device is quiet of it. */
static void client_over(struct daemon *d, struct client *c)
{
	struct life_call l = { .d = d, .c = c };

	if (c->stage == CLIENT_LINGERING && mm_call(&d->mm, call_dead, &l))
		return;
	client_quiet(d, c);
	if (c->ended && c->stage == CLIENT_HUNG_UP && log_life_allowed())
		pr_info("client %u died: %s (pid %d); its memory is back, its full blocks stay cached",
			c->mm.id, c->info.comm, (int)c->info.pid);
}

/* The process has ended: it can write its memory no more. */
static void client_ended(struct daemon *d, struct client *c)
{
	/* Stays open until the core forgot the client and kills it no more. */
	watch_remove(&d->loop, &c->pidfd);
	client_hang_up(d, c);
	if (c->mm.id == CORE_NONE)
		return;
	c->ended = clock_ns();
	if (device_quiet(&d->setup, c->ended, c->ended))
		client_over(d, c);
}

/* Room for a new client: the oldest that detached need not be waited for. */
void client_make_room(struct daemon *d)
{
	struct list *l, *tmp;
	u32 i;

	for (i = 0; i < d->setup.cfg.max_clients; i++)
		if (!d->clients[i])
			return;
	list_for_each(&d->attached, l, tmp) {
		struct client *c = list_entry(l, struct client, node);

		if (c->stage == CLIENT_LINGERING && !c->ended) {
			client_haunt(d, c);
			return;
		}
	}
}

/* An attach failed before anything was sent: nothing of @c can be in use. */
void client_abort(struct daemon *d, struct client *c)
{
	watch_remove(&d->loop, &c->pidfd);
	client_hang_up(d, c);
	if (c->mm.id != CORE_NONE)
		client_over(d, c);
}

void client_on_pidfd(void *arg, struct watch *w, u32 events)
{
	struct daemon *d = arg;
	client_ended(d, container_of(w, struct client, pidfd));
}

/* ---- what comes in on the socket ---- */

/* What a connection that has not attached says. */
void client_greet(struct daemon *d, struct client *c)
{
	struct kvmm_attach_req req;
	ssize_t n = sock_recv(c->sock.fd, &req, sizeof(req));

	if (n == -EAGAIN)
		return;
	if (n != sizeof(req) || req.magic != KVMM_ATTACH_MAGIC) {
		if (n && n != -ECONNRESET && log_allowed())
			pr_warn("%s (pid %d, uid %u) sent no attach request: its connection is closed",
				c->info.comm, (int)c->info.pid, c->uid);
		client_drop(d, c);
		return;
	}
	if (req.flags & KVMM_ATTACH_RESUME)
		resume_request(d, c, &req);
	else if (req.flags == KVMM_ATTACH_ASK)
		attach_answer(d, c, &req);
	else
		attach_request(d, c, &req);
}

/* After ATTACH a client has nothing to say here: it hangs up, or lies. */
static void client_listen(struct daemon *d, struct client *c)
{
	struct life_call l = { .d = d, .c = c };
	char byte[8];
	ssize_t n = sock_recv(c->sock.fd, byte, sizeof(byte));

	if (n == -EAGAIN)
		return;
	if (n > 0 || n == -EBADMSG) {
		if (log_allowed())
			pr_warn("client %u (%s, pid %d) is expelled: it sent a message after ATTACH",
				c->mm.id, c->info.comm, (int)c->info.pid);
		if (mm_call(&d->mm, call_eproto, &l))
			return;
	}
	client_hang_up(d, c);
}

void client_on_sock(void *arg, struct watch *w, u32 events)
{
	struct daemon *d = arg;
	struct client *c = container_of(w, struct client, sock);

	if (events & EPOLLOUT)
		extents_send(d, c);
	if (!(events & ~(u32)EPOLLOUT))
		return;
	if (c->stage == CLIENT_GREETING)
		client_greet(d, c);
	else
		client_listen(d, c);
}

/* ---- the beginning ---- */

struct client *client_alloc(int sock)
{
	struct client *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	list_init(&c->node);
	c->sock.fd = sock;
	c->pidfd.fd = -1;
	c->mm.pidfd = -1;
	c->mm.bell = -1;
	c->c.fd = -1;
	c->d.fd = -1;
	c->mm.id = CORE_NONE;
	c->stage = CLIENT_GREETING;
	return c;
}

/* Take in a connection, or say in one word why not. */
static const char *client_admit(struct daemon *d, const struct watch *w,
				int sock)
{
	struct client *c = client_alloc(sock);
	int bytes = CLIENT_SNDBUF;
	const char *why = NULL;

	if (!c) {
		conn_close(&d->sockets, sock);
		return "no memory";
	}
	/* Bounds the descriptors under way to a client that does not read. */
	setsockopt(sock, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
	c->pidfd.fd = peer_identify(sock, &c->info);
	if (c->pidfd.fd < 0)
		why = "its process cannot be identified";
	if (why) {
		client_free(d, c);
		return why;
	}
	c->mm.pidfd = c->pidfd.fd;
	c->uid = c->info.uid;
	c->key = tenant_key(&d->sockets, w, c->uid);
	greeting_make_room(d, c->key);
	c->sock.fn = client_on_sock;
	c->sock.arg = d;
	c->deadline = clock_ns() + GREETING_MS * NSEC_PER_MSEC;
	list_add_tail(&d->greeting, &c->node);
	d->nr_greeting++;
	if (watch_add(&d->loop, &c->sock, EPOLLIN | EPOLLRDHUP)) {
		client_drop(d, c);
		return "epoll refuses it";
	}
	return NULL;
}

void client_accept(void *arg, struct watch *w, u32 events)
{
	struct daemon *d = arg;
	const char *why;
	int sock, i;

	/* A bounded number a round: others wait too. */
	for (i = 0; i < 16; i++) {
		sock = conn_accept(&d->sockets, w);
		if (sock < 0)
			return;
		why = client_admit(d, w, sock);
		if (why && log_allowed())
			pr_warn("a connection is closed: %s", why);
	}
}

/* ---- what the mm thread tells ---- */

void client_take_notes(struct daemon *d)
{
	/* Pairs with the release in mm_note(). */
	u64 mask = __atomic_exchange_n(&d->mm.note_mask, 0, __ATOMIC_ACQUIRE);

	for (; mask; mask &= mask - 1) {
		struct client *c = d->clients[__builtin_ctzll(mask)];

		if (c && (client_note(c) & NOTE_EXPELLED))
			client_hang_up(d, c);
	}
}

void client_send_extents(struct daemon *d, u64 mask)
{
	for (; mask; mask &= mask - 1) {
		struct client *c = d->clients[__builtin_ctzll(mask)];

		if (c)
			extents_send(d, c);
	}
}

/**
 * client_timers() - end what took too long
 * Return: when to be called next, or UINT64_MAX.
 */
u64 client_timers(struct daemon *d, u64 now)
{
	struct list *l, *tmp;
	u64 next = UINT64_MAX;

	list_for_each(&d->greeting, l, tmp) {
		struct client *c = list_entry(l, struct client, node);

		if (now < c->deadline) {
			next = min(next, c->deadline);
			continue;
		}
		if (log_allowed())
			pr_warn("%s (pid %d, uid %u) connected and did not attach: its connection is closed",
				c->info.comm, (int)c->info.pid, c->uid);
		client_drop(d, c);
	}
	list_for_each(&d->attached, l, tmp) {
		struct client *c = list_entry(l, struct client, node);

		if (c->todo_any && !c->want_out) {
			extents_send(d, c);
			if (c->todo_any && !c->want_out)
				next = min(next, now + (c->held ? HELD_NS :
							RETRY_NS));
		}
		if (c->ended) {
			if (device_quiet(&d->setup, c->ended, now))
				client_over(d, c);
			else
				next = min(next, now + QUIET_POLL_NS);
			continue;
		}
		if (!c->deadline)
			continue;
		if (now >= c->deadline && c->stage == CLIENT_LINGERING) {
			client_haunt(d, c);
			continue;
		}
		if (now >= c->deadline && c->stage == CLIENT_AWAY)
			resume_give_up(d, c);
		else if (now >= c->deadline)
			client_hang_up(d, c);
		next = min(next, c->deadline);
	}
	return next;
}

/* At the end, when the mm thread has stopped. */
void client_exit_all(struct daemon *d)
{
	struct list *heads[] = { &d->greeting, &d->attached, &d->dead };
	struct list *l, *tmp;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(heads); i++) {
		list_for_each(heads[i], l, tmp) {
			list_del(l);
			client_free(d, list_entry(l, struct client, node));
		}
	}
	ghost_exit_all(d);
}
