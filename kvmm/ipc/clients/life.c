// SPDX-License-Identifier: Apache-2.0
/*
 * life.c - a client ends
 *
 *   GREETING --attach--> ATTACHED --DETACH--> LEAVING --hangs up--> LINGERING
 *       |                   |                                          |
 *       | deadline,         | end of file, garbage,       the process  |
 *       | garbage           v expelled                    has ended,   |
 *       v                HUNG_UP                          or a second  |
 *     gone                  | the process has ended       has passed   |
 *                           +-------------> gone <---------------------+
 *
 * A client of the last daemon is AWAY until it resumes (resume.c): then it is
 * ATTACHED, or HUNG_UP when it takes too long.
 *
 * A connection that ends without DETACH is a dead client, though its process
 * may live on and write to the memory it has mapped: its blocks stay in
 * quarantine, its segments stay mapped here and its slot stays taken, until
 * the pidfd says that the process is gone.  The core kills a process that takes
 * too long.  A client that said DETACH claims to have unmapped everything.
 * Towards other tenants the core trusts that claim only when the process has
 * ended.  Most end at once, so the slot is held for a moment.
 *
 * A process that has ended may have left kernels on the device: it counts as
 * ended for the core when the device is quiet of it, too.
 *
 * A client is freed only when the core has forgotten it, and then after the
 * control thread's round, since an event for it may be in the same batch.
 *
 * Context: control thread, but for the functions handed to mm_call().
 */
#include <stdlib.h>

#include <kvmm/log.h>

#include "kvmm/ipc/clients/clients.h"

struct life_call {
	struct clients	*cs;
	struct client	*c;
};

/* ---- on the mm thread ---- */

static void call_last(struct core *core, void *arg)
{
	struct life_call *l = arg;

	(void)core;
	serve_last(l->cs->mm, &l->c->mm, kv_now_ns());
}

static void call_dead(struct core *core, void *arg)
{
	struct life_call *l = arg;

	mm_deactivate(l->cs->mm, &l->c->mm);
	core_client_dead(core, kv_now_ns(), l->c->mm.id);
}

static void call_quiet(struct core *core, void *arg)
{
	struct life_call *l = arg;

	core_client_quiet(core, kv_now_ns(), l->c->mm.id);
	mm_forget(l->cs->mm, &l->c->mm);
}

/* ---- the beginning ---- */

/* client_alloc() - a connection in stage GREETING */
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

/* client_tables() - a bit and a generation for each extent */
int client_tables(const struct clients *cs, struct client *c)
{
	u32 words = DIV_ROUND_UP(cs->setup->nr_extents, 64);

	c->mm.want = calloc(cs->setup->nr_extents, sizeof(*c->mm.want));
	c->mm.dirty = calloc(words, sizeof(*c->mm.dirty));
	c->todo = calloc(words, sizeof(*c->todo));
	c->flying = calloc(words, sizeof(*c->flying));
	return c->mm.want && c->mm.dirty && c->todo && c->flying ? 0 : -ENOMEM;
}

/* ---- the end ---- */

/* client_free() - nothing refers to @c any more */
void client_free(struct clients *cs, struct client *c)
{
	segment_destroy(&c->c);
	segment_destroy(&c->d);
	if (c->mm.bell >= 0)
		close(c->mm.bell);
	conn_close(cs->sockets, c->sock.fd);
	if (c->pidfd.fd >= 0)
		close(c->pidfd.fd);
	free(c->mm.ring.res_end);
	free(c->todo);
	free(c->flying);
	free(c->mm.want);
	free(c->mm.dirty);
	free(c);
}

/* Log that the mm thread expelled or killed @c. */
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
		else if ((notes & NOTE_KILLED) && READ_ONCE(c->mm.reason) == -EPIPE)
			why = "another process of its group has died";
		else if (notes & NOTE_KILLED)
			why = "it hung up and did not end";
	}
	if (what && log_allowed())
		pr_warn("client %u (%s, pid %d) %s: %s", c->mm.id, c->info.comm,
			(int)c->info.pid, what, why);
}

/*
 * Take the notes of the mm thread.  A client that said DETACH closes its socket
 * as soon as it has the answer, so the end of the socket may be seen before the
 * kick of the mm thread.
 */
static u32 client_note(struct client *c)
{
	/* Pairs with the release in mm_note(). */
	u32 notes = __atomic_exchange_n(&c->mm.notes, 0, __ATOMIC_ACQUIRE);

	if ((notes & NOTE_DETACHED) && c->stage == CLIENT_ATTACHED) {
		c->stage = CLIENT_LEAVING;
		c->deadline = kv_now_ns() + LEAVING_MS * NSEC_PER_MSEC;
	}
	client_log_notes(c, notes);
	return notes;
}

/* client_drop() - the core and hold forget @c; it is freed after this round */
void client_drop(struct clients *cs, struct client *c)
{
	watch_conn_close(cs->sockets, &c->sock);
	watch_close(cs->loop, &c->pidfd);
	/* The end of a process may be seen before the kick that explains it. */
	client_note(c);
	if (c->mm.id != CORE_NONE && cs->by_id[c->mm.id] == c) {
		cs->by_id[c->mm.id] = NULL;
		keep_client_drop(cs->deposit, c->mm.id);
		deposit_drop(cs->deposit, HOLD_CLIENT, c->mm.id);
	}
	if (c->stage == CLIENT_GREETING)
		cs->nr_greeting--;
	list_del(&c->node);
	list_add_tail(&cs->dead, &c->node);
}

/* The core frees the slot of @c. */
static void client_quiet(struct clients *cs, struct client *c)
{
	struct life_call l = { .cs = cs, .c = c };

	if (!mm_call(cs->mm, call_quiet, &l))
		client_drop(cs, c);
}

/**
 * client_hang_up() - the connection is over
 *
 * A client that never attached is gone with it.  Another is dead, or has
 * detached, and waits for the end of its process.
 */
void client_hang_up(struct clients *cs, struct client *c)
{
	struct life_call l = { .cs = cs, .c = c };
	bool detached;

	if (c->stage == CLIENT_GREETING) {
		client_drop(cs, c);
		return;
	}
	if (c->stage == CLIENT_ATTACHED && mm_call(cs->mm, call_last, &l))
		pr_debug("the mm thread has stopped");
	client_note(c);
	detached = c->stage == CLIENT_LEAVING;
	if (c->stage != CLIENT_ATTACHED && c->stage != CLIENT_AWAY && !detached)
		return;
	/* The end of a dead client is logged when its process has ended. */
	if (detached && log_life_allowed())
		pr_info("client %u detached: %s (pid %d)", c->mm.id, c->info.comm,
			(int)c->info.pid);
	pr_debug("client %u hung up, %llu extents were sent to it", c->mm.id,
		 (unsigned long long)c->nr_sent);
	watch_conn_close(cs->sockets, &c->sock);
	c->todo_any = false;
	c->stage = detached ? CLIENT_LINGERING : CLIENT_HUNG_UP;
	c->deadline = detached ? kv_now_ns() + LINGER_MS * NSEC_PER_MSEC : 0;
	if (!detached && mm_call(cs->mm, call_dead, &l))
		pr_debug("the mm thread has stopped");
}

/* client_haunt() - @c detached and its process lives on; free its slot */
void client_haunt(struct clients *cs, struct client *c)
{
	ghost_add(cs, c);
	client_quiet(cs, c);
}

/* client_over() - its process has ended, and the device is quiet of it */
void client_over(struct clients *cs, struct client *c)
{
	struct life_call l = { .cs = cs, .c = c };

	if (c->stage == CLIENT_LINGERING && mm_call(cs->mm, call_dead, &l))
		return;
	client_quiet(cs, c);
	if (c->ended && c->stage == CLIENT_HUNG_UP && log_life_allowed())
		pr_info("client %u died: %s (pid %d); its memory is back, its full blocks stay cached",
			c->mm.id, c->info.comm, (int)c->info.pid);
}

/* The process has ended: it can write its memory no more. */
static void client_ended(struct clients *cs, struct client *c)
{
	/* Stays open until the core forgot the client and kills it no more. */
	watch_remove(cs->loop, &c->pidfd);
	client_hang_up(cs, c);
	if (c->mm.id == CORE_NONE)
		return;
	c->ended = kv_now_ns();
	if (device_quiet(cs->setup, c->ended, c->ended))
		client_over(cs, c);
}

/* client_make_room() - if no slot is free, free that of the oldest that detached */
void client_make_room(struct clients *cs)
{
	struct list *l, *tmp;
	u32 i;

	for (i = 0; i < cs->setup->cfg.max_clients; i++)
		if (!cs->by_id[i])
			return;
	list_for_each(&cs->attached, l, tmp) {
		struct client *c = list_entry(l, struct client, node);

		if (c->stage == CLIENT_LINGERING && !c->ended) {
			client_haunt(cs, c);
			return;
		}
	}
}

/* client_abort() - the attach failed before the answer: @c uses no memory */
void client_abort(struct clients *cs, struct client *c)
{
	watch_remove(cs->loop, &c->pidfd);
	client_hang_up(cs, c);
	if (c->mm.id != CORE_NONE)
		client_over(cs, c);
}

void client_on_pidfd(void *arg, struct watch *w, u32 events)
{
	struct clients *cs = arg;

	client_ended(cs, container_of(w, struct client, pidfd));
}

/* client_take_notes() - the mm thread kicked */
void client_take_notes(struct clients *cs)
{
	/* Pairs with the release in mm_note(). */
	u64 mask = __atomic_exchange_n(&cs->mm->note_mask, 0, __ATOMIC_ACQUIRE);

	for (; mask; mask &= mask - 1) {
		struct client *c = cs->by_id[__builtin_ctzll(mask)];

		if (c && (client_note(c) & NOTE_EXPELLED))
			client_hang_up(cs, c);
	}
}
