// SPDX-License-Identifier: Apache-2.0
/*
 * events_sub.c - a subscriber of --kv-events, with a mirror of the daemon's cache
 */
#include <endian.h>
#include <stdlib.h>
#include <zmq.h>

#include "tests/integration/events_sub.h"
#include "tests/integration/harness.h"
#include "tests/kv_read.h"

#define SLOTS	(1u << 16)
#define ANSWER_MS	20000

static const char * const media[SUB_MEDIA] = { "GPU", "CPU", "STORAGE" };

/* ---- the mirror ---- */

static struct sub_block *find(const struct sub *s, u64 hash)
{
	u32 i = (u32)(hash % s->nr_slots);

	while (s->slot[i].hash && s->slot[i].hash != hash)
		i = (i + 1) % s->nr_slots;
	return &s->slot[i];
}

/* Removed blocks keep their slots until the table is half full. */
static void mirror_again(struct sub *s)
{
	struct sub_block *old = s->slot;
	u32 i;

	s->slot = calloc(s->nr_slots, sizeof(*s->slot));
	ck_assert_ptr_nonnull(s->slot);
	s->used = 0;
	for (i = 0; i < s->nr_slots; i++)
		if (old[i].on) {
			*find(s, old[i].hash) = old[i];
			s->used++;
		}
	free(old);
	ck_assert_uint_lt(s->used, s->nr_slots / 2);
}

static u32 medium_of(const struct kv_event *e)
{
	u32 m;

	for (m = 0; m < SUB_MEDIA; m++)
		if (!strcmp(e->medium, media[m]))
			return m;
	ck_abort_msg("medium '%s'", e->medium);
	return 0;
}

static void stored(struct sub *s, const struct kv_event *e)
{
	const u32 m = medium_of(e);
	u64 parent = e->parent;
	struct sub_block *b;
	u32 i;

	ck_assert_uint_eq(e->nr_ids, e->nr_hashes * e->block_size);
	if (parent)
		ck_assert_msg(find(s, parent)->on, "a block before its parent");
	for (i = 0; i < e->nr_hashes; i++, parent = b->hash) {
		if (s->used >= s->nr_slots / 2)
			mirror_again(s);
		b = find(s, e->hash[i]);
		s->used += !b->hash;
		s->nr += !b->on;
		s->moved[m] += !!b->on;
		ck_assert_msg(!b->hash || !b->on || (b->parent == parent && !(b->on & BIT(m))),
			      "a block is stored twice, or under two parents");
		*b = (struct sub_block){
			.hash = e->hash[i], .parent = parent, .on = b->on | BIT(m),
			.nr_ids = (u32)e->block_size, .first_id = (u32)e->id[i * e->block_size],
			.salted = e->nr_extra > 0,
		};
	}
}

static void removed(struct sub *s, const struct kv_event *e)
{
	const u32 m = medium_of(e);
	struct sub_block *b;
	u32 i;

	for (i = 0; i < e->nr_hashes; i++) {
		b = find(s, e->hash[i]);
		ck_assert_msg(b->hash && (b->on & BIT(m)), "a block is removed from %s, where it is not",
			      media[m]);
		b->on &= ~(u32)BIT(m);
		s->nr -= !b->on;
	}
}

static void take_event(const struct kv_event *e, void *arg)
{
	struct sub *s = arg;

	s->events++;
	if (s->lacks && strcmp(e->type, "AllBlocksCleared"))
		return;
	s->lacks = false;
	if (!strcmp(e->type, "BlockStored")) {
		stored(s, e);
	} else if (!strcmp(e->type, "BlockRemoved")) {
		removed(s, e);
	} else {
		s->first = s->next;
		memset(s->slot, 0, s->nr_slots * sizeof(*s->slot));
		s->used = 0;
		s->nr = 0;
		s->cleared++;
	}
}

static u32 child_at(const struct sub *s, u64 parent, u32 first_id)
{
	return (u32)((parent ^ first_id * 0x9e3779b97f4a7c15ull) % s->nr_slots);
}

static void index_children(struct sub *s)
{
	u32 i, at;

	memset(s->child, 0xff, s->nr_slots * sizeof(*s->child));
	for (i = 0; i < s->nr_slots; i++) {
		if (!s->slot[i].on)
			continue;
		at = child_at(s, s->slot[i].parent, s->slot[i].first_id);
		while (s->child[at] != ~0u)
			at = (at + 1) % s->nr_slots;
		s->child[at] = i;
	}
	s->indexed = s->events;
}

/* The block without salt that follows @parent and begins with @first_id, or NULL. */
const struct sub_block *sub_child(struct sub *s, u64 parent, u32 first_id)
{
	const struct sub_block *b;
	u32 at = child_at(s, parent, first_id);

	if (s->indexed != s->events)
		index_children(s);
	for (; s->child[at] != ~0u; at = (at + 1) % s->nr_slots) {
		b = &s->slot[s->child[at]];
		if (b->parent == parent && b->first_id == first_id && !b->salted)
			return b;
	}
	return NULL;
}

/* ---- messages ---- */

struct message {
	u8	*data[8];
	size_t	len[8];
	u32	nr;
};

static void message_free(struct message *m)
{
	while (m->nr)
		free(m->data[--m->nr]);
}

/* Return: false: none came in time. */
static bool message_take(void *sock, struct message *m, int ms)
{
	zmq_pollitem_t item = { .socket = sock, .events = ZMQ_POLLIN };
	zmq_msg_t msg;
	int more = 1;

	m->nr = 0;
	if (zmq_poll(&item, 1, ms) <= 0)
		return false;
	while (more) {
		ck_assert_uint_lt(m->nr, ARRAY_SIZE(m->data));
		zmq_msg_init(&msg);
		ck_assert_int_ge(zmq_msg_recv(&msg, sock, 0), 0);
		m->len[m->nr] = zmq_msg_size(&msg);
		m->data[m->nr] = malloc(m->len[m->nr] + 1);
		memcpy(m->data[m->nr], zmq_msg_data(&msg), m->len[m->nr]);
		more = zmq_msg_more(&msg);
		zmq_msg_close(&msg);
		m->nr++;
	}
	return true;
}

static u64 number_of(const struct message *m, u32 frame)
{
	u64 be;

	ck_assert_uint_eq(m->len[frame], sizeof(be));
	memcpy(&be, m->data[frame], sizeof(be));
	return be64toh(be);
}

/* The topic if there is one, number, payload, from frame @at on. */
static void take_batch(struct sub *s, const struct message *m, u32 at, bool topic)
{
	ck_assert_uint_eq(m->nr, at + topic + 2);
	if (topic)
		ck_assert(m->len[at] == strlen(s->topic) &&
			  !memcmp(m->data[at], s->topic, m->len[at]));
	ck_assert_msg(kv_read_batch(m->data[m->nr - 1], m->len[m->nr - 1], take_event, s) > 0,
		      "batch %llu is not as it should be", (unsigned long long)s->next);
	s->next++;
	s->batches++;
}

/* One answer of the old batches.  Return: false: it was the last one. */
static bool take_answer(struct sub *s, const struct message *m, u64 *from)
{
	u64 seq;

	ck_assert_uint_eq(m->nr, s->arrays ? 3 : 4);
	ck_assert_uint_eq(m->len[0], 0);
	seq = number_of(m, m->nr - 2);
	if (seq == ~0ull) {
		ck_assert(!m->len[1] || s->arrays);
		ck_assert_uint_eq(m->len[m->nr - 1], 0);
		return false;
	}
	ck_assert_uint_ge(seq, *from);
	/* Older ones are not kept any more: wait for the next snapshot. */
	if (seq != s->next)
		s->lacks = true;
	s->next = seq;
	take_batch(s, m, 1, !s->arrays);
	*from = seq + 1;
	return true;
}

/*
 * sub_ask() - ask for the batches from @from on
 * Return: true: all were there; false: some are not kept any more.
 */
bool sub_ask(struct sub *s, u64 from)
{
	const u64 be = htobe64(from);
	void *sock = zmq_socket(s->ctx, ZMQ_DEALER);
	struct message m;
	const int none = 0;
	bool more = true;

	zmq_setsockopt(sock, ZMQ_LINGER, &none, sizeof(none));
	zmq_setsockopt(sock, ZMQ_RCVHWM, &none, sizeof(none));
	ck_assert_int_eq(zmq_connect(sock, s->old), 0);
	ck_assert_int_eq(zmq_send(sock, "", 0, ZMQ_SNDMORE), 0);
	ck_assert_int_eq(zmq_send(sock, &be, sizeof(be), 0), sizeof(be));
	s->next = from;
	s->asked++;
	while (more) {
		ck_assert_msg(message_take(sock, &m, ANSWER_MS * (int)time_scale()),
			      "no answer from %s", s->old);
		more = take_answer(s, &m, &from);
		message_free(&m);
	}
	zmq_close(sock);
	return !s->lacks;
}

/* A batch with another number than the next. */
static void take_gap(struct sub *s, const struct message *m, u64 seq)
{
	if (seq < s->next)
		return;		/* it came as an answer before */
	(void)sub_ask(s, s->next);
	if (seq == s->next)
		take_batch(s, m, 0, true);
}

/**
 * sub_hear() - take the batches that come, until none comes for @ms
 * Return: their number.
 */
u32 sub_hear(struct sub *s, int ms)
{
	struct message m;
	u64 before = s->batches;

	while (message_take(s->sock, &m, ms)) {
		u64 seq;

		ck_assert_uint_eq(m.nr, 3);
		seq = number_of(&m, 1);
		if (seq == s->next)
			take_batch(s, &m, 0, true);
		else
			take_gap(s, &m, seq);
		message_free(&m);
	}
	return (u32)(s->batches - before);
}

/* ---- begin and end ---- */

void sub_connect(struct sub *s)
{
	const int none = 0;

	s->sock = zmq_socket(s->ctx, ZMQ_SUB);
	ck_assert_ptr_nonnull(s->sock);
	zmq_setsockopt(s->sock, ZMQ_LINGER, &none, sizeof(none));
	zmq_setsockopt(s->sock, ZMQ_RCVHWM, &none, sizeof(none));
	zmq_setsockopt(s->sock, ZMQ_SUBSCRIBE, s->topic, strlen(s->topic));
	ck_assert_int_eq(zmq_connect(s->sock, s->live), 0);
}

/* sub_leave() - hear nothing until sub_connect() */
void sub_leave(struct sub *s)
{
	zmq_close(s->sock);
	s->sock = NULL;
}

void sub_open(struct sub *s, const char *live, const char *old, const char *topic)
{
	memset(s, 0, sizeof(*s));
	snprintf(s->live, sizeof(s->live), "%s", live);
	snprintf(s->old, sizeof(s->old), "%s", old);
	s->topic = topic;
	s->nr_slots = SLOTS;
	s->slot = calloc(SLOTS, sizeof(*s->slot));
	s->child = calloc(SLOTS, sizeof(*s->child));
	s->indexed = ~0ull;
	s->ctx = zmq_ctx_new();
	ck_assert(s->slot && s->child && s->ctx);
	sub_connect(s);
}

void sub_close(struct sub *s)
{
	if (s->sock)
		sub_leave(s);
	zmq_ctx_term(s->ctx);
	free(s->child);
	free(s->slot);
}
