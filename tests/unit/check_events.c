// SPDX-License-Identifier: Apache-2.0
/*
 * check_events.c - ring, encoder, batches and kept batches of --kv-events
 *
 * No thread of the daemon and no ZeroMQ: the functions that lie below them.
 * budget: 10 s
 */
#include <check.h>
#include <pthread.h>
#include <stdlib.h>

#include "kvmm/ipc/events/events.h"
#include "tests/kv_read.h"

/* ---- the ring ---- */

#define RING	65536u

/* The ids of record @n: its length and its words follow from its number. */
static u32 ids_of(u64 n)
{
	return (u32)(n * 2654435761u >> 7) % (n % 64 ? 40 : KVMM_MAX_BLOCK_TOKENS);
}

static bool ring_put(struct ev_ring *r, u64 n)
{
	u32 i, nr = ids_of(n);
	struct ev_rec *rec = ev_ring_reserve(r, (u32)sizeof(*rec) + 4 * nr);

	if (!rec)
		return false;
	rec->kind = EV_NAME;
	rec->hash = n;
	rec->nr_ids = nr;
	for (i = 0; i < nr; i++)
		rec->ids[i] = (u32)n + i;
	ev_ring_commit(r);
	return true;
}

/* Is the record the one that ring_put() made? */
static void ring_want(const struct ev_rec *rec, u64 n)
{
	u32 i;

	ck_assert_uint_eq(rec->hash, n);
	ck_assert_uint_eq(rec->nr_ids, ids_of(n));
	for (i = 0; i < rec->nr_ids; i++)
		ck_assert_uint_eq(rec->ids[i], (u32)n + i);
}

START_TEST(test_ring_is_full_and_goes_on)
{
	struct ev_ring r;
	const struct ev_rec *rec;
	u64 put = 0, got = 0, turns;

	ck_assert_int_eq(ev_ring_init(&r, 1), 0);
	ck_assert_uint_eq(r.size, RING);
	ck_assert_ptr_null(ev_ring_next(&r));
	for (turns = 0; turns < 2000; turns++) {
		while (ring_put(&r, put))
			put++;
		/* Full: the largest record has no room, and a part of it was not written. */
		ck_assert_uint_gt(ev_ring_used(&r), RING / 2);
		ck_assert_uint_le(ev_ring_used(&r), RING);
		for (; got < put - turns % 7 && (rec = ev_ring_next(&r)); got++) {
			ring_want(rec, got);
			ev_ring_done(&r, rec);
		}
	}
	for (; (rec = ev_ring_next(&r)); got++) {
		ring_want(rec, got);
		ev_ring_done(&r, rec);
	}
	ck_assert_uint_eq(got, put);
	ck_assert_uint_eq(ev_ring_used(&r), 0);
	ev_ring_exit(&r);
}
END_TEST

#define THREADED	200000u

static void *put_all(void *arg)
{
	u64 n;

	for (n = 0; n < THREADED; n++)
		while (!ring_put(arg, n))
			sched_yield();
	return NULL;
}

START_TEST(test_ring_between_threads)
{
	struct ev_ring r;
	const struct ev_rec *rec;
	pthread_t other;
	u64 n;

	ck_assert_int_eq(ev_ring_init(&r, RING), 0);
	ck_assert_int_eq(pthread_create(&other, NULL, put_all, &r), 0);
	for (n = 0; n < THREADED; n++) {
		while (!(rec = ev_ring_next(&r)))
			sched_yield();
		ring_want(rec, n);
		ev_ring_done(&r, rec);
	}
	pthread_join(other, NULL);
	ck_assert_ptr_null(ev_ring_next(&r));
	ev_ring_exit(&r);
}
END_TEST

/* ---- MessagePack ---- */

static u8 bytes[1024];

static void want_bytes(const struct pack *p, const char *hex)
{
	char text[512] = "";
	u32 i;

	ck_assert(!p->full);
	for (i = 0; i < p->len; i++)
		sprintf(text + 2 * i, "%02x", p->buf[i]);
	ck_assert_str_eq(text, hex);
}

/* Each line: a call, and its bytes by the specification of MessagePack. */
#define PACKS(call, hex)						\
do {									\
	struct pack p = { .buf = bytes, .size = sizeof(bytes) };	\
	call;								\
	want_bytes(&p, hex);						\
} while (0)

START_TEST(test_pack)
{
	PACKS(pack_nil(&p), "c0");
	PACKS(pack_uint(&p, 0), "00");
	PACKS(pack_uint(&p, 127), "7f");
	PACKS(pack_uint(&p, 128), "cc80");
	PACKS(pack_uint(&p, 255), "ccff");
	PACKS(pack_uint(&p, 256), "cd0100");
	PACKS(pack_uint(&p, 65535), "cdffff");
	PACKS(pack_uint(&p, 65536), "ce00010000");
	PACKS(pack_uint(&p, UINT32_MAX), "ceffffffff");
	PACKS(pack_uint(&p, 1ull << 32), "cf0000000100000000");
	PACKS(pack_uint(&p, ~0ull), "cfffffffffffffffff");
	PACKS(pack_double(&p, 1.5), "cb3ff8000000000000");
	PACKS(pack_str(&p, ""), "a0");
	PACKS(pack_str(&p, "GPU"), "a3475055");
	PACKS(pack_str(&p, "0123456789012345678901234567890"),
	      "bf30313233343536373839303132333435363738393031323334353637383930");
	PACKS(pack_str(&p, "01234567890123456789012345678901"),
	      "d9203031323334353637383930313233343536373839303132333435363738393031");
	PACKS(pack_array(&p, 15), "9f");
	PACKS(pack_array(&p, 16), "dc0010");
	PACKS(pack_map(&p, 12), "8c");
	PACKS(pack_array_now(&p, pack_array_later(&p), 258), "dc0102");
}
END_TEST

START_TEST(test_pack_is_full)
{
	struct pack p = { .buf = bytes, .size = 4 };

	memset(bytes, 0x5a, sizeof(bytes));
	pack_uint(&p, 65536);
	ck_assert(p.full && !p.len);
	pack_nil(&p);
	ck_assert(p.full && !p.len && bytes[0] == 0x5a);
}
END_TEST

/* ---- batches ---- */

static struct ev_batch batch;
static struct kv_event seen[64];
static u32 nr_seen;

static void note(const struct kv_event *e, void *arg)
{
	ck_assert_uint_lt(nr_seen, ARRAY_SIZE(seen));
	seen[nr_seen++] = *e;
}

static union {
	struct ev_rec	rec;
	u8		room[sizeof(struct ev_rec) + 4 * KVMM_MAX_BLOCK_TOKENS];
} made;

/* A record of a block of @nr ids, which begin with its hash. */
static struct ev_rec *name(u64 hash, u64 parent, u32 from, u32 to, u32 nr)
{
	u32 i;

	made.rec = (struct ev_rec){
		.kind = EV_NAME, .from = (u8)from, .to = (u8)to, .hash = hash,
		.parent = to ? parent : 0, .nr_ids = to ? nr : 0,
	};
	for (i = 0; i < made.rec.nr_ids; i++)
		made.rec.ids[i] = (u32)hash + i;
	return &made.rec;
}

static void read_batch(int nr)
{
	nr_seen = 0;
	ck_assert_int_eq(ev_batch_end(&batch), nr > 0);
	ck_assert(!batch.pack.full);
	ck_assert_int_eq(kv_read_batch(batch.buf, batch.pack.len, note, NULL), nr);
}

#define DEV	CORE_PLACE_DEVICE
#define HOST	CORE_PLACE_HOST
#define AREA	CORE_PLACE_AREA

static void want_event(u32 i, const char *type, const char *medium, u32 hashes, u64 first,
		       u64 parent, u32 ids)
{
	const struct kv_event *e = &seen[i];
	u32 n;

	ck_assert_uint_lt(i, nr_seen);
	ck_assert_str_eq(e->type, type);
	ck_assert_str_eq(e->medium, medium);
	ck_assert_uint_eq(e->nr_hashes, hashes);
	ck_assert(!hashes || e->hash[0] == first);
	ck_assert_uint_eq(e->parent, parent);
	ck_assert_uint_eq(e->nr_ids, ids);
	for (n = 0; n < ids; n++)
		ck_assert_uint_eq(e->id[n], (u32)(e->hash[n / e->block_size] +
						  n % e->block_size));
}

START_TEST(test_batch)
{
	batch.arrays = _i;
	ev_batch_begin(&batch, 1.7e9);
	ck_assert(ev_batch_add(&batch, &(struct ev_rec){ .kind = EV_CLEAR }));
	/* A chain is one event; a block of another chain begins the next. */
	ck_assert(ev_batch_add(&batch, name(~0ull, 0, 0, DEV, 16)));
	ck_assert(ev_batch_add(&batch, name(200000, ~0ull, 0, DEV, 16)));
	ck_assert(ev_batch_add(&batch, name(3, 0, 0, DEV, 16)));
	/* Removed blocks are one event, whatever their chains. */
	ck_assert(ev_batch_add(&batch, name(7, 0, HOST, 0, 0)));
	ck_assert(ev_batch_add(&batch, name(9, 0, HOST, 0, 0)));
	ck_assert(ev_batch_add(&batch, name(11, 0, AREA, 0, 0)));
	/* A block that moves is stored, then removed. */
	ck_assert(ev_batch_add(&batch, name(13, 12, DEV, AREA, 32)));
	read_batch(7);
	want_event(0, "AllBlocksCleared", "", 0, 0, 0, 0);
	want_event(1, "BlockStored", "GPU", 2, ~0ull, 0, 32);
	want_event(2, "BlockStored", "GPU", 1, 3, 0, 16);
	want_event(3, "BlockRemoved", "CPU", 2, 7, 0, 0);
	want_event(4, "BlockRemoved", "STORAGE", 1, 11, 0, 0);
	want_event(5, "BlockStored", "STORAGE", 1, 13, 12, 32);
	want_event(6, "BlockRemoved", "GPU", 1, 13, 0, 0);
	ck_assert_uint_eq(seen[1].block_size, 16);
	ck_assert_uint_eq(seen[5].block_size, 32);
	ck_assert_str_eq(seen[1].kind, "full_attention");
	/* The next one is empty. */
	ev_batch_begin(&batch, 1.7e9);
	read_batch(0);
}
END_TEST

/* Groups, windows and salts do not share an event. */
START_TEST(test_batch_groups)
{
	struct ev_rec *r;

	batch.arrays = _i;
	ev_batch_begin(&batch, 1.7e9);
	ck_assert(ev_batch_add(&batch, name(1, 0, 0, DEV, 16)));
	r = name(2, 1, 0, DEV, 16);
	r->salted = 1;
	ck_assert(ev_batch_add(&batch, r));
	r = name(3, 2, 0, DEV, 16);
	r->group = 1;
	r->window = 4096;
	ck_assert(ev_batch_add(&batch, r));
	r = name(4, 3, 0, DEV, 16);
	r->group = 2;
	r->group_kind = KVMM_GROUP_STATE;
	ck_assert(ev_batch_add(&batch, r));
	r = name(5, 4, 0, DEV, 16);
	r->group = 2;
	r->domain = 1;
	ck_assert(ev_batch_add(&batch, r));
	read_batch(5);
	ck_assert_uint_eq(seen[0].nr_extra, 0);
	ck_assert_uint_eq(seen[1].nr_extra, 1);
	ck_assert_uint_eq(seen[2].group, 1);
	ck_assert_uint_eq(seen[2].window, 4096);
	ck_assert_str_eq(seen[2].kind, "sliding_window");
	ck_assert_uint_eq(seen[3].group, 2);
	ck_assert_str_eq(seen[3].kind, "mamba");
	ck_assert_str_eq(seen[4].kind, "full_attention");
}
END_TEST

/* A batch is full at about 16 KiB, and its buffer has room for the largest event. */
START_TEST(test_batch_is_full)
{
	const u32 nr = _i ? KVMM_MAX_BLOCK_TOKENS : 16;
	u64 n = 0, hash = 1ull << 60;
	bool more = true;

	batch.arrays = false;
	ev_batch_begin(&batch, 1.7e9);
	for (; more && n < 10000; n++)
		more = ev_batch_add(&batch, name(hash + n, n ? hash + n - 1 : 0, _i ? DEV : 0,
						 _i ? HOST : DEV, nr));
	ck_assert(!more);
	ck_assert(ev_batch_end(&batch));
	ck_assert(!batch.pack.full);
	ck_assert_uint_gt(batch.pack.len, EV_BATCH_BYTES / 2);
	nr_seen = 0;
	ck_assert_int_gt(kv_read_batch(batch.buf, batch.pack.len, note, NULL), 0);
}
END_TEST

/* ---- kept batches ---- */

START_TEST(test_keep)
{
	const u64 base = (u64)_i * 1000;
	struct ev_keep k;
	u64 n, i;

	ck_assert_int_eq(ev_keep_init(&k, 5, base), 0);
	ck_assert_ptr_null(ev_keep_get(&k, base));
	for (n = base; n < base + 23; n++) {
		ck_assert_int_eq(ev_keep_add(&k, n % 2 ? "odd" : "", &n, sizeof(n)), 0);
		for (i = 0; i < n + 3; i++) {
			const struct ev_kept *s = ev_keep_get(&k, i);

			ck_assert_int_eq(!!s, i <= n && i + 5 > n && i >= base);
			ck_assert(!s || !strcmp(s->topic, i % 2 ? "odd" : ""));
			ck_assert(!s || (s->len == sizeof(n) && !memcmp(s->data, &i, sizeof(i))));
		}
	}
	ck_assert_uint_eq(k.first, base + 18);
	ck_assert_uint_eq(k.next, base + 23);
	ev_keep_exit(&k);
}
END_TEST

/* ---- endpoints ---- */

START_TEST(test_endpoints)
{
	static const char * const good[] = {
		"tcp://*:5557", "tcp://127.0.0.1:0", "tcp://[::1]:5557", "tcp://0.0.0.0:1",
		"ipc:///tmp/a",
	};
	static const char * const bad[] = {
		"", "5557", "tcp://", "tcp://5557", "tcp://*", "tcp://*:", "tcp://*:65536",
		"tcp://localhost:5557", "tcp://eth0:5557", "ipc://", "ipc://a", "ipc://@a",
		"inproc://a", "udp://127.0.0.1:1", "tcp://off", "tcp:/127.0.0.1:1",
	};
	struct ev_listen l;
	char path[200] = "ipc:///";
	u32 i;

	for (i = 0; i < ARRAY_SIZE(good); i++)
		ck_assert_msg(!ev_listen_parse(good[i], &l), "%s", good[i]);
	for (i = 0; i < ARRAY_SIZE(bad); i++)
		ck_assert_msg(ev_listen_parse(bad[i], &l) == -EINVAL, "%s", bad[i]);
	memset(path + 7, 'a', 107);
	ck_assert_int_eq(ev_listen_parse(path, &l), -EINVAL);
	path[6 + 107] = '\0';
	ck_assert_int_eq(ev_listen_parse(path, &l), 0);
}
END_TEST

START_TEST(test_listen)
{
	struct ev_listen a, b;

	ck_assert_int_eq(ev_listen_parse("tcp://127.0.0.1:0", &a), 0);
	ck_assert_int_eq(ev_listen_open(&a), 0);
	ck_assert_int_ge(a.fd, 0);
	ck_assert(strncmp(a.url, "tcp://127.0.0.1:", 16) == 0 && atoi(a.url + 16) > 0);
	ck_assert_int_eq(ev_listen_parse(a.url, &b), 0);
	ck_assert_int_eq(ev_listen_open(&b), -EADDRINUSE);
	ck_assert_int_eq(b.fd, -1);
	ev_listen_close(&a);
	ck_assert_int_eq(ev_listen_open(&b), 0);
	ev_listen_close(&b);
}
END_TEST

static Suite *events_suite(void)
{
	Suite *s = suite_create("events");
	TCase *t = tcase_create("events");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, test_ring_is_full_and_goes_on);
	tcase_add_test(t, test_ring_between_threads);
	tcase_add_test(t, test_pack);
	tcase_add_test(t, test_pack_is_full);
	tcase_add_loop_test(t, test_batch, 0, 2);
	tcase_add_loop_test(t, test_batch_groups, 0, 2);
	tcase_add_loop_test(t, test_batch_is_full, 0, 2);
	tcase_add_loop_test(t, test_keep, 0, 2);
	tcase_add_test(t, test_endpoints);
	tcase_add_test(t, test_listen);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	SRunner *r = srunner_create(events_suite());
	int failed;

	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
