// SPDX-License-Identifier: Apache-2.0
/*
 * publish.c - the thread that sends batches and answers requests for old ones
 *
 * A batch is three frames of a PUB socket: topic, number, payload.  Numbers are of 64
 * bits, the highest byte first.  The first one is the time of the start in microseconds,
 * so that a number of the last daemon is never used again.  The first batch of a daemon
 * begins with AllBlocksCleared, and so does a snapshot.
 *
 * The ROUTER socket takes requests of three frames: the peer's name, nothing, the number
 * of the first batch that it wants.  The answers are those batches that are kept, then
 * one without topic and payload, with the number -1.  With events as arrays the answers
 * have no frame for the topic.  A peer that reads slowly gets them slowly; a few are
 * answered at once, and more wait in their sockets.  One that takes nothing for a while
 * is given up, so that it does not keep others waiting.  If the oldest wanted batch is not
 * kept any more, a new snapshot is published, so that the peer can begin anew.
 *
 * ZeroMQ's threads have no rights and take no signals.  All its calls but those of
 * events_start() and events_exit() are made here.
 */
#if __has_include(<zmq.h>)
#include <zmq.h>
#define WITH_ZMQ	1
#else
#define WITH_ZMQ	0
#endif

#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include <kvmm/fault.h>
#include <kvmm/log.h>
#include <kvmm/ring.h>

#include "kvmm/ipc/events/events.h"

/* events_built() - was kvmm built with libzmq? */
bool events_built(void)
{
	return WITH_ZMQ;
}

#if WITH_ZMQ

#define LINGER_MS	2	/* between two looks at the ring while records come */
#define AWAKE		50u	/* looks without a record until the thread sleeps */
#define SLEEP_MS	1000
#define REPLAY_ROUND	32u	/* batches for one peer before the next has its turn */
#define REPLAY_HWM	256	/* batches that wait in a socket for a peer that is slow */
#define PEER_MOST	512	/* bytes of a message from a peer */
#define AGAIN_NS	(5 * NSEC_PER_SEC)	/* between two snapshots that peers cause */
#define SLOW_NS		(10 * NSEC_PER_SEC)	/* until a peer that takes nothing is given up */
#define TAKE_MOST	4096u	/* records taken before requests are looked at */

#define TOPIC_ROOM	512u

/* The topic of a batch of the domain; CORE_NONE: of no domain in particular. */
static void topic_of(const struct events *e, u32 domain, char topic[TOPIC_ROOM])
{
	const char *s = e->setup->opt.kv_events_topic ?: "";
	const char *word = strstr(s, EV_TOPIC_DOMAIN);

	if (!word)
		snprintf(topic, TOPIC_ROOM, "%s", s);
	else
		snprintf(topic, TOPIC_ROOM, "%.*s%.*s%s", (int)(word - s), s, KVMM_NAME_LEN,
			 domain == CORE_NONE ? "" : e->domains[domain],
			 word + strlen(EV_TOPIC_DOMAIN));
}

static double seconds_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* ---- batches ---- */

static int send_frame(void *sock, const void *data, size_t len, int flags)
{
	return zmq_send(sock, data, len, ZMQ_DONTWAIT | flags) < 0 ? -errno : 0;
}

/*
 * Topic, number and payload.  A PUB socket never refuses: it drops for slow peers.
 * @topic: NULL: without this frame
 */
static int send_batch(void *sock, const char *topic, u64 seq, const void *data, u32 len)
{
	const u64 be = htobe64(seq);
	int err = topic ? send_frame(sock, topic, strlen(topic), ZMQ_SNDMORE) : 0;

	if (!err)
		err = send_frame(sock, &be, sizeof(be), ZMQ_SNDMORE);
	return err ? err : send_frame(sock, data, len, 0);
}

static void batch_out(struct events *e)
{
	struct ev_batch *b = e->batch;
	const u64 seq = e->keep.next;
	char topic[TOPIC_ROOM];

	if (!ev_batch_end(b))
		return;
	/* Never sent in part: the buffer has room for the largest batch. */
	if (b->pack.full)
		pr_err("a batch of events is too large for its buffer: it is cut");
	topic_of(e, e->domain, topic);
	if (ev_keep_add(&e->keep, topic, b->buf, b->pack.len))
		pr_debug("no memory to keep a batch of events");
	(void)send_batch(e->pub, topic, seq, b->buf, b->pack.len);
}

/* Where topics have names of domains: all blocks of each are void. */
static void clear_domains(struct events *e, const struct ev_rec *r)
{
	u32 i;

	for (i = 0; i < e->setup->cfg.max_domains; i++) {
		if (!e->domains[i][0])
			continue;
		e->domain = i;
		ev_batch_begin(e->batch, seconds_now());
		(void)ev_batch_add(e->batch, r);
		batch_out(e);
	}
	e->domain = CORE_NONE;
	ev_batch_begin(e->batch, seconds_now());
}

/* A record of another domain, where topics have their names: begin a batch. */
static void batch_of_domain(struct events *e, const struct ev_rec *r)
{
	if (r->kind == EV_NAME && r->domain == e->domain)
		return;
	batch_out(e);
	ev_batch_begin(e->batch, seconds_now());
	if (r->kind == EV_DOMAIN)
		memcpy(e->domains[r->domain], r->ids, KVMM_NAME_LEN);
	else if (r->kind == EV_CLEAR)
		clear_domains(e, r);
	if (r->kind == EV_NAME)
		e->domain = r->domain;
}

/* Send the records of the ring.  Return: were there any? */
static bool records_out(struct events *e)
{
	const struct ev_rec *r = ev_ring_next(&e->ring);
	u32 nr = 0;

	if (!r || kv_fault(KV_FAULT_events_stall))
		return false;
	ev_batch_begin(e->batch, seconds_now());
	for (; r && nr < TAKE_MOST; r = ev_ring_next(&e->ring), nr++) {
		bool more = true;

		if (e->domains)
			batch_of_domain(e, r);
		if (r->kind != EV_DOMAIN)
			more = ev_batch_add(e->batch, r);
		ev_ring_done(&e->ring, r);
		if (more)
			continue;
		batch_out(e);
		ev_batch_begin(e->batch, seconds_now());
	}
	batch_out(e);
	if (READ_ONCE(e->waits))
		sleeper_wake(e->mm);
	return true;
}

/* ---- requests for old batches ---- */

/* A frame of a peer.  Return: its bytes, -EMSGSIZE: longer than @size; -EAGAIN: none. */
static int take_frame(void *sock, void *buf, int size, bool *more)
{
	size_t len = sizeof(int);
	int left = 0, n = zmq_recv(sock, buf, (size_t)size, ZMQ_DONTWAIT);

	*more = false;
	if (n < 0)
		return -errno;
	if (!zmq_getsockopt(sock, ZMQ_RCVMORE, &left, &len))
		*more = left;
	return n > size ? -EMSGSIZE : n;
}

/*
 * Take one request: a name, an empty frame, eight bytes.  Return: 0; -EAGAIN: there is
 * none; -EBADMSG: it was wrong and is over.
 */
static int take_request(void *sock, struct ev_replay *p, u64 *seq)
{
	u8 buf[PEER_MOST];
	bool more;
	u64 be;
	int id, empty, nr;

	id = take_frame(sock, p->id, sizeof(p->id), &more);
	if (id < 0 && id != -EMSGSIZE)
		return -EAGAIN;
	empty = more ? take_frame(sock, buf, sizeof(buf), &more) : -1;
	nr = empty >= 0 && more ? take_frame(sock, buf, sizeof(buf), &more) : -1;
	memcpy(&be, buf, sizeof(be));
	if (id > 0 && !empty && nr == (int)sizeof(be) && !more) {
		p->len = (u32)id;
		*seq = be64toh(be);
		return 0;
	}
	while (more && take_frame(sock, buf, sizeof(buf), &more) != -EAGAIN)
		;
	return -EBADMSG;
}

/* Batches that are not kept are wanted: have all told anew, not too often. */
static void ask_again(struct events *e)
{
	const u64 now = kv_now_ns();

	/* The first batch is kept: it begins with the first snapshot. */
	if (e->keep.first == e->first || (e->asked && now - e->asked < AGAIN_NS))
		return;
	e->asked = now;
	/* Pairs with the exchange in events_turn(). */
	store_release(&e->again, 1u);
	sleeper_wake(e->mm);
}

static void take_requests(struct events *e)
{
	u32 i;

	for (i = 0; i < EV_REPLAYS; i++) {
		struct ev_replay *p = &e->replays[i];
		u64 seq;
		int err;

		if (p->len)
			continue;
		err = take_request(e->router, p, &seq);
		if (err == -EAGAIN)
			return;
		if (err)
			continue;
		if (seq < e->keep.first)
			ask_again(e);
		p->seq = max(seq, e->keep.first);
		p->moved = kv_now_ns();
	}
}

/* One batch, or the end, to a peer.  Return: 0; -EAGAIN: it reads slowly; or it is gone. */
static int answer_one(struct events *e, struct ev_replay *p)
{
	/* Without topics as in vLLM with events of this form. */
	const bool topics = !e->batch->arrays;
	const struct ev_kept *k;
	int err;

	/* A peer that was too slow for the batches kept gets the next ones. */
	p->seq = max(p->seq, e->keep.first);
	k = ev_keep_get(&e->keep, p->seq);
	err = send_frame(e->router, p->id, p->len, ZMQ_SNDMORE);
	if (!err)
		err = send_frame(e->router, "", 0, ZMQ_SNDMORE);
	if (!err && k)
		err = send_batch(e->router, topics ? k->topic : NULL, p->seq, k->data, k->len);
	else if (!err)
		err = send_batch(e->router, topics ? "" : NULL, ~0ull, "", 0);
	if (!err && k) {
		p->seq++;
		p->moved = kv_now_ns();
	} else if (err != -EAGAIN || kv_now_ns() - p->moved > SLOW_NS) {
		p->len = 0;
	}
	return err;
}

/* Return: does a peer wait for more? */
static bool answer_requests(struct events *e)
{
	bool waits = false;
	u32 i, n;

	if (!e->router)
		return false;
	take_requests(e);
	for (i = 0; i < EV_REPLAYS; i++) {
		struct ev_replay *p = &e->replays[i];

		for (n = 0; p->len && n < REPLAY_ROUND; n++)
			if (answer_one(e, p))
				break;
		waits |= p->len;
	}
	return waits;
}

/* ---- the thread ---- */

/* Can another request for old batches be taken?  One that waits must not end the sleep. */
static bool takes_request(const struct events *e)
{
	u32 i;

	for (i = 0; e->router && i < EV_REPLAYS; i++)
		if (!e->replays[i].len)
			return true;
	return false;
}

static void wait_for_work(struct events *e, int ms)
{
	zmq_pollitem_t item[2] = {
		{ .fd = e->sleeper.bell, .events = ZMQ_POLLIN },
		{ .socket = e->router, .events = ZMQ_POLLIN },
	};
	u64 count;

	(void)zmq_poll(item, takes_request(e) ? 2 : 1, ms);
	if ((item[0].revents & ZMQ_POLLIN) &&
	    read(e->sleeper.bell, &count, sizeof(count)) < 0)
		return;
}

static void sleep_long(struct events *e)
{
	ring_sleep_prepare(&e->sleeper.asleep);
	if (!ev_ring_next(&e->ring) && !READ_ONCE(e->stop))
		wait_for_work(e, SLEEP_MS);
	ring_sleep_finish(&e->sleeper.asleep);
}

static void *publish_main(void *arg)
{
	struct events *e = arg;
	u32 idle = 0;

	pthread_setname_np(pthread_self(), "kvmm-events");
	while (!READ_ONCE(e->stop)) {
		bool any = records_out(e), peers = answer_requests(e);

		idle = any || peers ? 0 : idle + 1;
		if (peers && any)
			continue;
		if (idle < AWAKE)
			wait_for_work(e, ev_ring_used(&e->ring) > e->ring.size / 4 ?
				      0 : LINGER_MS);
		else
			sleep_long(e);
	}
	(void)records_out(e);
	return NULL;
}

/* ---- start and end ---- */

static int set_int(void *sock, int option, int value)
{
	return zmq_setsockopt(sock, option, &value, sizeof(value)) ? -errno : 0;
}

/* A socket of ZeroMQ that accepts at the listening socket, which is its own then. */
static int socket_over(struct events *e, struct ev_listen *l, int type, void **sock)
{
	int err;

	*sock = zmq_socket(e->context, type);
	if (!*sock)
		return -errno;
	err = set_int(*sock, ZMQ_LINGER, 0);
	if (!err)
		err = set_int(*sock, ZMQ_IPV6, !l->ipc && l->addr.sa.sa_family == AF_INET6);
	if (!err)
		err = zmq_setsockopt(*sock, ZMQ_MAXMSGSIZE, &(int64_t){ PEER_MOST },
				     sizeof(int64_t)) ? -errno : 0;
	if (!err && type == ZMQ_ROUTER)
		err = set_int(*sock, ZMQ_ROUTER_MANDATORY, 1);
	if (!err && type == ZMQ_ROUTER)
		err = set_int(*sock, ZMQ_SNDHWM, REPLAY_HWM);
	if (!err)
		err = set_int(*sock, ZMQ_USE_FD, l->fd);
	if (!err && zmq_bind(*sock, l->url))
		err = -errno;
	if (!err)
		l->fd = -1;
	return err;
}

static int sockets_make(struct events *e)
{
	int err;

	e->context = zmq_ctx_new();
	if (!e->context)
		return -ENOMEM;
	err = socket_over(e, &e->listen, ZMQ_PUB, &e->pub);
	if (!err && e->replay.fd >= 0)
		err = socket_over(e, &e->replay, ZMQ_ROUTER, &e->router);
	return err;
}

static void tell_start(const struct events *e)
{
	pr_info("events of cached blocks: %s%s%s", e->listen.url, e->router ? ", old ones: " : "",
		e->router ? e->replay.url : "");
}

/**
 * events_start() - the sockets of ZeroMQ, and the thread
 *
 * Context: rights are given up, and system calls are not filtered yet.
 * Return: 0 or a negative errno.
 */
int events_start(struct events *e)
{
	const u64 first = (u64)(seconds_now() * 1e6);
	int err;

	if (!events_wanted(e))
		return 0;
	e->batch = calloc(1, sizeof(*e->batch));
	e->sleeper.bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (!e->batch || e->sleeper.bell < 0 ||
	    ev_keep_init(&e->keep, e->setup->opt.kv_events_keep, first))
		return -ENOMEM;
	e->first = first;
	e->domain = CORE_NONE;
	e->batch->arrays = e->setup->opt.kv_events_format;
	err = sockets_make(e);
	if (err)
		return err;
	tell_start(e);
	err = -pthread_create(&e->thread, NULL, publish_main, e);
	e->runs = !err;
	return err;
}

static void sockets_close(struct events *e)
{
	if (e->pub)
		zmq_close(e->pub);
	if (e->router)
		zmq_close(e->router);
	if (e->context)
		zmq_ctx_term(e->context);
	e->pub = NULL;
	e->router = NULL;
	e->context = NULL;
}

#else

int events_start(struct events *e)
{
	return events_wanted(e) ? -ENOSYS : 0;
}

static void sockets_close(struct events *e)
{
}

#endif

/* events_stop() - end the thread; the mm thread has ended */
void events_stop(struct events *e)
{
	if (!e->runs)
		return;
	WRITE_ONCE(e->stop, 1);
	bell_ring(e->sleeper.bell);
	pthread_join(e->thread, NULL);
	e->runs = false;
}

/* events_exit() - the core is not used any more */
void events_exit(struct events *e)
{
	sockets_close(e);
	ev_listen_close(&e->listen);
	ev_listen_close(&e->replay);
	if (e->sleeper.bell >= 0)
		close(e->sleeper.bell);
	e->sleeper.bell = -1;
	ev_keep_exit(&e->keep);
	free(e->batch);
	free(e->serials);
	free(e->domains);
	e->batch = NULL;
	ev_ring_exit(&e->ring);
	if (e->names)
		munmap(e->names, e->names_bytes);
	e->names = NULL;
}
