// SPDX-License-Identifier: Apache-2.0
/*
 * check_ring.c - the rings with honest and with lying peers
 *
 * Indices start near 2^32 wherever they can, so that every test crosses the
 * wrap-around.  The stress tests run both ends as threads of one process, where
 * ThreadSanitizer can check them.  A lost wake-up is a hang, and the time limit
 * of the test turns it into a failure.  budget: 30 s
 */
#include <check.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <uapi/kvmm.h>
#include <kvmm/ring.h>

#define NR		8u		/* entries of the small ring */
#define START		0xfffffffbu	/* five before the wrap */
/* Is this a longer run than `make check`, which has only two busy cores? */
static bool thorough(void)
{
	const char *level = getenv("KVMM_TEST_LEVEL");

	return level && strcmp(level, "check");
}

#define STRESS_OPS	(thorough() ? 1000000u : 100000u)
#define SLEEP_OPS	100000u
#define TURN_NS		2000000000ll	/* a longer sleep is a lost wake-up */

static u32 tail, head;
static struct ring_prod prod;
static struct ring_cons cons;

static void setup(void)
{
	tail = START;
	head = START;
	ring_prod_init(&prod, NR, START, &tail, &head);
	ring_cons_init(&cons, NR, START, &head, &tail);
}

static void produce(u32 n)
{
	while (n--)
		ring_prod_advance(&prod);
	ring_prod_publish(&prod);
}

static void consume(u32 n)
{
	while (n--)
		ring_cons_advance(&cons);
	ring_cons_publish(&cons);
}

START_TEST(test_empty_and_full)
{
	ck_assert_int_eq(ring_cons_look(&cons), 0);
	ck_assert_uint_eq(ring_prod_room(&prod), NR);
	produce(NR);
	ck_assert_uint_eq(tail, START + NR);
	ck_assert_uint_eq(ring_prod_room(&prod), 0);
	ck_assert_int_eq(ring_cons_look(&cons), NR);
	consume(NR);
	ck_assert_int_eq(ring_cons_look(&cons), 0);
	ck_assert_uint_eq(ring_prod_room(&prod), 0);
	ck_assert_int_eq(ring_prod_look(&prod), NR);
	ck_assert_uint_eq(ring_prod_room(&prod), NR);
}
END_TEST

START_TEST(test_unpublished_is_unseen)
{
	ring_prod_advance(&prod);
	ck_assert_int_eq(ring_cons_look(&cons), 0);
	ring_prod_publish(&prod);
	ck_assert_int_eq(ring_cons_look(&cons), 1);
	ring_cons_advance(&cons);
	ck_assert_int_eq(ring_prod_look(&prod), 0);
	ring_cons_publish(&cons);
	ck_assert_int_eq(ring_prod_look(&prod), 1);
}
END_TEST

START_TEST(test_slots_cross_the_wrap)
{
	u32 i;

	for (i = 0; i < 3 * NR; i++) {
		ck_assert_uint_eq(ring_prod_slot(&prod), (START + i) % NR);
		produce(1);
		ck_assert_int_eq(ring_cons_look(&cons), 1);
		ck_assert_uint_eq(ring_cons_slot(&cons), (START + i) % NR);
		consume(1);
		ck_assert_int_eq(ring_prod_look(&prod), 1);
	}
	ck_assert_uint_eq(tail, START + 3 * NR);
	ck_assert_uint_lt(tail, START);
}
END_TEST

/* Tails that no honest producer has: too far, far behind, one behind. */
static const u32 forged_tail[] = { NR + 1, 0x80000000u, 0xffffffffu, 2 * NR };

START_TEST(test_forged_tail)
{
	tail = START + forged_tail[_i];
	ck_assert_int_eq(ring_cons_look(&cons), -EPROTO);
	ck_assert_uint_eq(cons.head, START);
	ck_assert_uint_eq(ring_cons_avail(&cons), 0);
}
END_TEST

START_TEST(test_tail_goes_back)
{
	produce(5);
	ck_assert_int_eq(ring_cons_look(&cons), 5);
	consume(2);
	tail -= 1;
	ck_assert_int_eq(ring_cons_look(&cons), -EPROTO);
	tail += 1;
	ck_assert_int_eq(ring_cons_look(&cons), 3);
}
END_TEST

/* Heads that no honest consumer has, with three entries produced. */
static const u32 forged_head[] = { 4, NR, 0x80000000u, 0xffffffffu };

START_TEST(test_forged_head)
{
	produce(3);
	head = START + forged_head[_i];
	ck_assert_int_eq(ring_prod_look(&prod), -EPROTO);
	ck_assert_uint_eq(ring_prod_room(&prod), NR - 3);
}
END_TEST

START_TEST(test_copies_round_up)
{
	u64 from[3] = { 1, 2, 3 }, to[3] = { 0 };

	shared_copy_in(to, from, 9);
	ck_assert_uint_eq(to[0], 1);
	ck_assert_uint_eq(to[1], 2);
	ck_assert_uint_eq(to[2], 0);
	to[2] = 7;
	shared_copy_out(from, to, 24);
	ck_assert_uint_eq(from[2], 7);
	shared_copy_in(to, from, 0);
}
END_TEST

/* ------------------------------------------------------------------ */

static struct kvmm_event events[NR];
static u32 event_tail;

static void put_event(u32 index)
{
	struct kvmm_event ev = {
		.type = KVMM_EV_READY,
		.index = index,
		.seq = ~(u64)index,
	};

	ring_event_put(events, NR, &event_tail, &ev);
}

START_TEST(test_events_in_order)
{
	struct kvmm_event ev;
	u32 at = START, i;

	event_tail = START;
	ck_assert_int_eq(ring_event_get(events, NR, &event_tail, &at, &ev), 0);
	for (i = 0; i < NR - 1; i++)
		put_event(i);
	for (i = 0; i < NR - 1; i++) {
		ck_assert_int_eq(ring_event_get(events, NR, &event_tail, &at,
						&ev), 1);
		ck_assert_uint_eq(ev.index, i);
		ck_assert(ev.seq == ~(u64)i);
	}
	ck_assert_int_eq(ring_event_get(events, NR, &event_tail, &at, &ev), 0);
}
END_TEST

START_TEST(test_events_are_lapped)
{
	struct kvmm_event ev;
	u32 at = START, i;

	event_tail = START;
	for (i = 0; i < 3 * NR; i++)
		put_event(i);
	ck_assert_int_eq(ring_event_get(events, NR, &event_tail, &at, &ev),
			 -EOVERFLOW);
	for (i = 2 * NR + 1; i < 3 * NR; i++) {
		ck_assert_int_eq(ring_event_get(events, NR, &event_tail, &at,
						&ev), 1);
		ck_assert_uint_eq(ev.index, i);
	}
	ck_assert_int_eq(ring_event_get(events, NR, &event_tail, &at, &ev), 0);
}
END_TEST

/* The oldest slot of a full ring is the next one that is written. */
START_TEST(test_event_that_may_be_torn)
{
	struct kvmm_event ev;
	u32 at = START, i;

	event_tail = START;
	for (i = 0; i < NR; i++)
		put_event(i);
	ck_assert_int_eq(ring_event_get(events, NR, &event_tail, &at, &ev),
			 -EOVERFLOW);
	ck_assert_int_eq(ring_event_get(events, NR, &event_tail, &at, &ev), 1);
	ck_assert_uint_eq(ev.index, 1);
}
END_TEST

static void *event_writer(void *arg)
{
	u32 i;

	for (i = 0; i < STRESS_OPS; i++)
		put_event(i);
	return NULL;
}

/* Every delivered event is whole and in order; the last one arrives. */
START_TEST(test_events_are_never_torn)
{
	struct kvmm_event ev;
	u32 at, next = 0;
	pthread_t thread;
	int ret;

	event_tail = START;
	at = START;
	ck_assert_int_eq(pthread_create(&thread, NULL, event_writer, NULL), 0);
	while (next < STRESS_OPS) {
		ret = ring_event_get(events, NR, &event_tail, &at, &ev);
		if (ret <= 0) {
			sched_yield();
			continue;
		}
		ck_assert(ev.seq == ~(u64)ev.index);
		ck_assert_uint_ge(ev.index, next);
		next = ev.index + 1;
	}
	pthread_join(thread, NULL);
	ck_assert_uint_eq(next, STRESS_OPS);
}
END_TEST

/* ------------------------------------------------------------------ */

static struct {
	u32			seqcount __attribute__((aligned(8)));
	u32			pad;
	u64			a;
	u64			b;
} record;
static u32 record_stop;

static void *record_writer(void *arg)
{
	u64 v[2];
	u64 i;

	for (i = 1; !READ_ONCE(record_stop); i++) {
		v[0] = i;
		v[1] = ~i;
		ring_write_begin(&record.seqcount);
		shared_copy_out(&record.a, v, sizeof(v));
		ring_write_end(&record.seqcount);
	}
	return NULL;
}

START_TEST(test_records_are_never_torn)
{
	u32 begin, i;
	u64 v[2];
	pthread_t thread;

	record.a = 0;
	record.b = ~0ull;
	record_stop = 0;
	ck_assert_int_eq(pthread_create(&thread, NULL, record_writer, NULL), 0);
	for (i = 0; i < STRESS_OPS / 10; i++) {
		do {
			begin = ring_read_begin(&record.seqcount);
			shared_copy_in(v, &record.a, sizeof(v));
		} while (ring_read_retry(&record.seqcount, begin));
		ck_assert(v[1] == ~v[0]);
	}
	WRITE_ONCE(record_stop, 1);
	pthread_join(thread, NULL);
}
END_TEST

START_TEST(test_odd_count_is_retried)
{
	u32 count = 6;

	ck_assert(!ring_read_retry(&count, ring_read_begin(&count)));
	ring_write_begin(&count);
	ck_assert(ring_read_retry(&count, ring_read_begin(&count)));
	ring_write_end(&count);
	ck_assert_uint_eq(count, 8);
	ck_assert(ring_read_retry(&count, 6));
}
END_TEST

/* ------------------------------------------------------------------ */

/*
 * A pair of rings of u64 for requests and answers, and the words that both
 * sides sleep on.
 */
struct channel {
	u32	sq_tail __attribute__((aligned(64)));
	u32	sq_head __attribute__((aligned(64)));
	u32	cq_tail __attribute__((aligned(64)));
	u32	cq_head __attribute__((aligned(64)));
	u32	need_wake __attribute__((aligned(64)));
	u32	wake;
	u32	need_bell __attribute__((aligned(64)));
	u32	bell;
	u64	sq[NR];
	u64	cq[NR];
	u32	ops;
	bool	sleeps;
	u32	lost;
};

static struct channel ch;

/* Wait for an entry in @c; count lost wake-ups. */
static void ring_wait(struct ring_cons *c, u32 *flag, u32 *word)
{
	u32 seen;
	int n;

	while (!(n = ring_cons_look(c))) {
		if (!ch.sleeps) {
			sched_yield();
			continue;
		}
		seen = ring_wake_read(word);
		ring_sleep_prepare(flag);
		if (!ring_cons_look(c) &&
		    ring_futex_wait(word, seen, TURN_NS) == -ETIMEDOUT)
			ch.lost++;
		ring_sleep_finish(flag);
	}
	ck_assert_int_gt(n, 0);
}

/* The daemon's side: answers each request with its complement. */
static void *answerer(void *arg)
{
	struct ring_cons sq;
	struct ring_prod cq;
	u64 v;
	u32 done;

	ring_cons_init(&sq, NR, START, &ch.sq_head, &ch.sq_tail);
	ring_prod_init(&cq, NR, START, &ch.cq_tail, &ch.cq_head);
	for (done = 0; done < ch.ops; done++) {
		ring_wait(&sq, &ch.need_bell, &ch.bell);
		shared_copy_in(&v, &ch.sq[ring_cons_slot(&sq)], sizeof(v));
		ring_cons_advance(&sq);
		ring_cons_publish(&sq);
		while (!ring_prod_room(&cq)) {
			ck_assert_int_ge(ring_prod_look(&cq), 0);
			sched_yield();
		}
		ch.cq[ring_prod_slot(&cq)] = ~v;
		ring_prod_advance(&cq);
		ring_prod_publish(&cq);
		ring_wake_client(&ch.wake, &ch.need_wake);
	}
	return NULL;
}

/* Bursts of 1 to NR requests, then all their answers. */
static void run_channel(u32 ops, bool sleeps)
{
	struct ring_prod sq;
	struct ring_cons cq;
	u32 sent = 0, got = 0, burst, rnd = 1;
	pthread_t thread;
	u64 v;

	memset(&ch, 0, sizeof(ch));
	ch.sq_tail = ch.sq_head = ch.cq_tail = ch.cq_head = START;
	ch.ops = ops;
	ch.sleeps = sleeps;
	ring_prod_init(&sq, NR, START, &ch.sq_tail, &ch.sq_head);
	ring_cons_init(&cq, NR, START, &ch.cq_head, &ch.cq_tail);
	ck_assert_int_eq(pthread_create(&thread, NULL, answerer, NULL), 0);
	while (got < ops) {
		rnd = rnd * 1664525 + 1013904223;
		burst = min(1 + rnd % (NR * 65536) / 65536, ops - sent);
		ck_assert_int_ge(ring_prod_look(&sq), 0);
		for (; burst; burst--, sent++) {
			ck_assert_uint_gt(ring_prod_room(&sq), 0);
			v = sent * 3ull;
			shared_copy_out(&ch.sq[ring_prod_slot(&sq)], &v,
					sizeof(v));
			ring_prod_advance(&sq);
		}
		ring_prod_publish(&sq);
		ring_wake_client(&ch.bell, &ch.need_bell);
		for (; got < sent; got++) {
			ring_wait(&cq, &ch.need_wake, &ch.wake);
			ck_assert(ch.cq[ring_cons_slot(&cq)] == ~(got * 3ull));
			ring_cons_advance(&cq);
			ring_cons_publish(&cq);
		}
	}
	pthread_join(thread, NULL);
	ck_assert_uint_eq(ch.lost, 0);
}

START_TEST(test_stress_yielding)
{
	run_channel(STRESS_OPS, false);
}
END_TEST

START_TEST(test_stress_no_wake_is_lost)
{
	run_channel(SLEEP_OPS, true);
}
END_TEST

/* ------------------------------------------------------------------ */

/*
 * The protocol of sleeping, without the system calls that would hide a missing
 * fence.  In each round one side sets the flag and reads the index, the other
 * moves the index and reads the flag.  At least one must see the change of the
 * other.
 */
#define ROUNDS_MAX	300000u
#define ROUNDS		(thorough() ? ROUNDS_MAX : 30000u)

static struct {
	u32	index __attribute__((aligned(64)));
	u32	flag __attribute__((aligned(64)));
	u32	ready[2] __attribute__((aligned(64)));
	u8	saw_index[ROUNDS_MAX];
	u8	saw_flag[ROUNDS_MAX];
} dekker;

/* A barrier: both sides leave it at about the same time. */
static void meet(u32 me, u32 round)
{
	u32 spins = 0;

	store_release(&dekker.ready[me], round);
	while (load_acquire(&dekker.ready[!me]) < round) {
		cpu_relax();
		if (!(++spins % 1000))
			sched_yield();
	}
}

static void *dekker_waker(void *arg)
{
	u32 i;

	for (i = 0; i < ROUNDS; i++) {
		meet(1, 2 * i + 1);
		WRITE_ONCE(dekker.index, i + 1);
		dekker.saw_flag[i] = ring_sleeper_waits(&dekker.flag);
		meet(1, 2 * i + 2);
	}
	return NULL;
}

START_TEST(test_nobody_is_missed)
{
	pthread_t thread;
	u32 i;

	memset(&dekker, 0, sizeof(dekker));
	ck_assert_int_eq(pthread_create(&thread, NULL, dekker_waker, NULL), 0);
	for (i = 0; i < ROUNDS; i++) {
		meet(0, 2 * i + 1);
		ring_sleep_prepare(&dekker.flag);
		dekker.saw_index[i] = READ_ONCE(dekker.index) == i + 1;
		meet(0, 2 * i + 2);
		ring_sleep_finish(&dekker.flag);
	}
	pthread_join(thread, NULL);
	for (i = 0; i < ROUNDS; i++)
		ck_assert_msg(dekker.saw_index[i] || dekker.saw_flag[i],
			      "round %u: both missed each other", i);
}
END_TEST

/* A client waits on segment D, which it cannot write: through both kinds of mapping. */
START_TEST(test_futex_on_a_read_only_mapping)
{
	const u32 *ro;
	u32 *rw;
	int fd, status;
	pid_t pid;

	fd = memfd_create("segment-d", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, 4096), 0);
	rw = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(rw, MAP_FAILED);
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW |
			       F_SEAL_FUTURE_WRITE | F_SEAL_SEAL), 0);
	ro = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(ro, MAP_FAILED);
	ck_assert_int_eq(ring_futex_wait(ro, 0, 1000000), -ETIMEDOUT);
	ck_assert_int_eq(ring_futex_wait(ro, 1, TURN_NS), 0);

	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid) {
		munmap(rw, 4096);
		_exit(ring_futex_wait(ro, 0, TURN_NS) ? 1 : 0);
	}
	while (!waitpid(pid, &status, WNOHANG)) {
		usleep(10000);
		WRITE_ONCE(*rw, 1);
		ring_futex_wake(rw);
	}
	ck_assert(WIFEXITED(status));
	ck_assert_int_eq(WEXITSTATUS(status), 0);
	munmap((void *)ro, 4096);
	munmap(rw, 4096);
	close(fd);
}
END_TEST

static Suite *ring_suite(void)
{
	Suite *s = suite_create("ring");
	TCase *tc = tcase_create("indices");

	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_test(tc, test_empty_and_full);
	tcase_add_test(tc, test_unpublished_is_unseen);
	tcase_add_test(tc, test_slots_cross_the_wrap);
	tcase_add_loop_test(tc, test_forged_tail, 0, ARRAY_SIZE(forged_tail));
	tcase_add_test(tc, test_tail_goes_back);
	tcase_add_loop_test(tc, test_forged_head, 0, ARRAY_SIZE(forged_head));
	tcase_add_test(tc, test_copies_round_up);
	suite_add_tcase(s, tc);

	tc = tcase_create("hints");
	tcase_set_timeout(tc, 100);
	tcase_add_test(tc, test_events_in_order);
	tcase_add_test(tc, test_events_are_lapped);
	tcase_add_test(tc, test_event_that_may_be_torn);
	tcase_add_test(tc, test_events_are_never_torn);
	tcase_add_test(tc, test_records_are_never_torn);
	tcase_add_test(tc, test_odd_count_is_retried);
	suite_add_tcase(s, tc);

	tc = tcase_create("sleeping");
	tcase_set_timeout(tc, 150);
	tcase_add_test(tc, test_stress_yielding);
	tcase_add_test(tc, test_stress_no_wake_is_lost);
	tcase_add_test(tc, test_nobody_is_missed);
	tcase_add_test(tc, test_futex_on_a_read_only_mapping);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	SRunner *sr = srunner_create(ring_suite());
	int failed;

	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
