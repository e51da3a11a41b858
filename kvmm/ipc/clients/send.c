// SPDX-License-Identifier: Apache-2.0
/*
 * send.c - send a client the extents that the core wants it to map
 *
 * Nothing here blocks.  Extents go out in batches.  The small send buffer of
 * the socket bounds how many descriptors are under way to a client that does
 * not read; the rest waits as bits until the socket can take more.  The table
 * of descriptors is locked while a message is sent: a number looked up and
 * closed by the mapper meanwhile could be another tenant's extent.
 *
 * Context: control thread.
 */
#include <sys/epoll.h>

#include <kvmm/fault.h>
#include <kvmm/log.h>

#include "kvmm/ipc/clients/clients.h"

/*
 * Which of the descriptors that were sent have come?  Those whose extent is no
 * longer to be mapped by the client, as its state in D says; the client cannot
 * write that.
 */
static void flying_look(struct clients *cs, struct client *c)
{
	u32 w;

	for (w = 0; w < DIV_ROUND_UP(cs->setup->nr_extents, 64) && c->nr_flying; w++) {
		u64 bits = c->flying[w];

		for (; bits; bits &= bits - 1) {
			u32 e = w * 64 + (u32)__builtin_ctzll(bits);

			if (READ_ONCE(c->extents[e].state) == KVMM_EXTENT_MAP)
				continue;
			c->flying[w] &= ~BIT_ULL(e % 64);
			c->nr_flying--;
		}
	}
}

static void flying_add(struct client *c, u32 e)
{
	if (c->flying[e / 64] & BIT_ULL(e % 64))
		return;
	c->flying[e / 64] |= BIT_ULL(e % 64);
	c->nr_flying++;
}

/* Descriptors that may be sent now: the rest of its tenant's quota. */
static u32 flying_room(struct clients *cs, struct client *c)
{
	u32 most = tenant_quota(cs->sockets, c->key)->fds, nr;
	char name[TENANT_TEXT];
	struct list *l, *tmp;

	list_for_each(&cs->attached, l, tmp) {
		struct client *o = list_entry(l, struct client, node);

		if (o->key == c->key && o->stage == CLIENT_ATTACHED)
			flying_look(cs, o);
	}
	nr = tenant_flying(cs, c->key);
	if (nr < most) {
		c->held = false;
		return min(most - nr, cs->send_batch);
	}
	if (!c->held && log_allowed())
		pr_info("tenant %s: %u descriptors of extents are not acknowledged, as many as it may have under way (fds): more wait",
			tenant_name(cs->sockets, c->key, name), nr);
	c->held = true;
	return 0;
}

/* Take the extents that the mm thread wants sent. */
static void extents_take(struct clients *cs, struct client *c)
{
	u32 w;

	for (w = 0; w < DIV_ROUND_UP(cs->setup->nr_extents, 64); w++) {
		/* Pairs with the release in ops_extent_send(). */
		u64 bits = __atomic_exchange_n(&c->mm.dirty[w], 0,
					       __ATOMIC_ACQUIRE);

		c->todo[w] |= bits;
		c->todo_any |= bits != 0;
	}
}

/* Next extent to be sent at or after @from, or nr_extents. */
static u32 extents_next(const struct clients *cs, const struct client *c,
			u32 from)
{
	u32 w = from / 64, nr = DIV_ROUND_UP(cs->setup->nr_extents, 64);
	u64 bits;

	for (bits = ~0ull << (from % 64); w < nr; w++, bits = ~0ull) {
		bits &= c->todo[w];
		if (bits)
			return w * 64 + (u32)__builtin_ctzll(bits);
	}
	return cs->setup->nr_extents;
}

/*
 * Send one batch.  Extents that were released since are skipped: their next
 * client gets a message of its own.  @at moves past the extents that were sent.
 * Return: descriptors sent, or a negative errno; -EDQUOT: too many are under
 * way.
 */
static int extents_send_batch(struct clients *cs, struct client *c, u32 *at)
{
	struct kvmm_map_msg msg = { .magic = KVMM_MAP_MAGIC };
	u32 most = flying_room(cs, c), e = *at, i;
	int fds[KVMM_MAP_BATCH];
	int err = 0;

	if (kv_fault(KV_FAULT_extent_send))
		return -EAGAIN;
	if (!most)
		return -EDQUOT;
	pthread_mutex_lock(&cs->extents->lock);
	while (msg.nr < most) {
		const struct extent_fd *x;
		u32 want;

		e = extents_next(cs, c, e);
		if (e >= cs->setup->nr_extents)
			break;
		x = &cs->extents->table[e];
		want = READ_ONCE(c->mm.want[e]);
		if (x->fd >= 0 && x->generation == want) {
			msg.entry[msg.nr].extent = e;
			msg.entry[msg.nr].generation = want;
			fds[msg.nr++] = x->fd;
		}
		e++;
	}
	if (msg.nr)
		err = sock_send(c->sock.fd, &msg,
				offsetof(struct kvmm_map_msg, entry) +
				msg.nr * sizeof(msg.entry[0]), fds, msg.nr);
	pthread_mutex_unlock(&cs->extents->lock);
	if (err)
		return err;
	for (i = 0; i < msg.nr; i++)
		flying_add(c, msg.entry[i].extent);
	for (; *at < e; (*at)++)
		c->todo[*at / 64] &= ~BIT_ULL(*at % 64);
	return (int)msg.nr;
}

/**
 * extents_send() - send a client the extents that it is to map
 *
 * Extents that its socket does not take now stay due: the control thread comes
 * back when the socket can take more, or after a while.
 */
void extents_send(struct clients *cs, struct client *c)
{
	bool full = false;
	u32 at = 0;
	int n;

	extents_take(cs, c);
	if (!c->todo_any || c->stage != CLIENT_ATTACHED)
		return;
	while (extents_next(cs, c, at) < cs->setup->nr_extents) {
		n = extents_send_batch(cs, c, &at);
		if (n >= 0) {
			c->nr_sent += (u32)n;
			continue;
		}
		full = n == -EAGAIN;
		if (!full && n != -ETOOMANYREFS && n != -ENOBUFS &&
		    n != -ENOMEM && n != -EDQUOT)
			/* The client is ending: its socket or pidfd will say so. */
			memset(c->todo, 0, DIV_ROUND_UP(cs->setup->nr_extents, 64) *
			       sizeof(*c->todo));
		break;
	}
	c->todo_any = extents_next(cs, c, 0) < cs->setup->nr_extents;
	if (full != c->want_out) {
		c->want_out = full;
		watch_events(cs->loop, &c->sock, EPOLLIN | EPOLLRDHUP |
			     (full ? EPOLLOUT : 0));
	}
}
