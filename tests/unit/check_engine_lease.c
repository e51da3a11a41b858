// SPDX-License-Identifier: Apache-2.0
/*
 * check_engine_lease.c - hints about cached content, beside requests
 *
 * The daemon answers late, finds prompts in pieces, refuses copies for a while, ends
 * leases and dies; a hint ends exactly once, and requests get the same tokens.
 */
#include <unistd.h>

#include "runtime/engine/lease.h"
#include "tests/unit/engine_fixture.h"

#define NR	20u		/* tokens of the prompt, whole blocks */

/* A lease, and how often its hint has ended. */
struct held {
	struct engine_lease	l;
	u32			dones;
};

static struct held held[4];

static void on_hint(struct engine_lease *l)
{
	container_of(l, struct held, l)->dones++;
}

static void setup_leases(void)
{
	setup();
	memset(held, 0, sizeof(held));
}

/* Start an engine that may have @leases, and compute the prompt of request 0. */
static void start_cached(u32 leases)
{
	const struct engine_opts o = { .max_leases = leases, .max_seqs = FK_SEQS - leases };

	start(&o);
	submit(ask(0, 3, NR, 4, 1));
	run();
	check_ask(&asks[0]);
}

static struct engine_lease *lease_of(u32 i)
{
	struct engine_lease *l = &held[i].l;

	l->ids = asks[0].ids;
	l->nr = NR;
	l->on_done = on_hint;
	return l;
}

static void begin(u32 i, enum engine_hint hint, u32 ms)
{
	struct engine_lease *l = lease_of(i);

	l->hint = hint;
	l->ms = ms;
	held[i].dones = 0;
	ck_assert_int_eq(engine_hint(engine, l), 0);
}

/* Return: the hint's error. */
static int hint(u32 i, enum engine_hint hint, u32 ms)
{
	begin(i, hint, ms);
	run();
	ck_assert_uint_eq(held[i].dones, 1);
	return held[i].l.err;
}

/* Prompt tokens that a new request with the prompt finds cached. */
static u32 cached(u32 i)
{
	submit(ask(i, 3, NR + 3, 2, 1));
	run();
	check_ask(&asks[i]);
	return asks[i].got[0].done.cached_tokens;
}

/* ---- leases ---- */

START_TEST(test_retain)
{
	struct engine_lease *l = lease_of(0);

	start_cached(4);
	ck_assert_int_eq(hint(0, ENGINE_RETAIN, 5000), 0);
	ck_assert_uint_eq(l->held, NR);
	ck_assert_uint_eq(l->kept, 0);
	ck_assert_uint_eq(l->granted, 5000);
	ck_assert_int_ge(l->until, (s64)kv_now_ns() + 4000000000);
	ck_assert_uint_eq(fk.nr_leases, 1);
	/* The second time it is renewed. */
	ck_assert_int_eq(hint(0, ENGINE_RETAIN, 60000), 0);
	ck_assert_int_ge(l->until, (s64)kv_now_ns() + 59000000000);
	ck_assert_uint_eq(fk.nr_leases, 1);
	ck_assert_uint_eq(fk.nr_renews, 1);
	/* With other ids there is another, and the old one has ended. */
	l->stale = true;
	l->nr = NR - FK_BT;
	l->hint = ENGINE_RETAIN;
	ck_assert_int_eq(engine_hint(engine, l), 0);
	run();
	ck_assert_uint_eq(l->held, NR - FK_BT);
	ck_assert_uint_eq(fk.nr_leases, 2);
	ck_assert_uint_eq(fk_count_leases(), 1);
	ck_assert_int_eq(hint(0, ENGINE_FORGET, 0), 0);
	ck_assert_uint_eq(fk_count_leases(), 0);
	ck_assert(!l->seq && !l->held && !l->until);
}
END_TEST

START_TEST(test_too_long)
{
	start_cached(4);
	ck_assert_int_eq(hint(0, ENGINE_RETAIN, 3600000), 0);
	ck_assert_uint_gt(held[0].l.granted, 590000);
	ck_assert_uint_le(held[0].l.granted, 600000);
	/* Also when the lease is there already. */
	ck_assert_int_eq(hint(0, ENGINE_RETAIN, 1000000), 0);
	ck_assert_uint_gt(held[0].l.granted, 590000);
	ck_assert_uint_le(held[0].l.granted, 600000);
	ck_assert_uint_eq(fk_count_leases(), 1);
}
END_TEST

/* Copies cannot begin at times: the lease is made again until all is held. */
START_TEST(test_pieces)
{
	fk.seed += (u32)_i * 7919;
	start_cached(4);
	fk.lease_again = 500;
	fk.again = 100;
	fk.preempt = 30;
	fk.full = 100;
	submit(ask(1, 9, 30, 10, 2));
	submit(ask(2, 5, 11, 20, 1));
	ck_assert_int_eq(hint(0, ENGINE_RETAIN, 5000), 0);
	run();
	check_ask(&asks[1]);
	check_ask(&asks[2]);
	ck_assert_uint_eq(held[0].l.held, NR);
	ck_assert_int_eq(held[0].l.reason, 0);
	ck_assert_uint_eq(fk_count_leases(), 1);
}
END_TEST

/* A daemon that never begins a copy does not keep the hint for ever. */
START_TEST(test_no_copies)
{
	start_cached(4);
	fk.lease_again = 1000;
	ck_assert_int_eq(hint(0, ENGINE_RETAIN, 5000), -EAGAIN);
	ck_assert_uint_eq(held[0].l.kept, NR);
}
END_TEST

/* A daemon without leases refuses the request; it has no results then. */
START_TEST(test_no_leases)
{
	start_cached(4);
	fk.no_leases = true;
	ck_assert_int_eq(hint(0, ENGINE_RETAIN, 5000), -EINVAL);
	ck_assert_uint_eq(held[0].l.kept, 0);
	ck_assert_int_eq(hint(0, ENGINE_PIN, 5000), -EINVAL);
}
END_TEST

START_TEST(test_no_room)
{
	struct engine_lease *l = lease_of(0);

	start_cached(4);
	fk.lease_most = 3;
	ck_assert_int_eq(hint(0, ENGINE_RETAIN, 5000), 0);
	ck_assert_uint_eq(l->held, 3 * FK_BT);
	ck_assert_uint_eq(l->kept, NR - 3 * FK_BT);
	ck_assert_int_eq(l->reason, -EDQUOT);
	fk.no_tier = true;
	ck_assert_int_eq(hint(0, ENGINE_RETAIN, 5000), -ENOSPC);
	ck_assert_uint_eq(l->held, 0);
	ck_assert_uint_eq(l->kept, NR);
	ck_assert(l->until && !l->seq);
	/* A hint that must try again for a lease keeps it no shorter. */
	ck_assert_int_eq(hint(0, ENGINE_DEMOTE, 10), -ENOSPC);
	ck_assert_uint_ge(l->granted, 4000);
}
END_TEST

START_TEST(test_not_cached)
{
	start_cached(4);
	lease_of(0)->salt = 7;
	ck_assert_int_eq(hint(0, ENGINE_RETAIN, 5000), -ENOENT);
	asks[0].ids[0] ^= 1;
	ck_assert_int_eq(hint(1, ENGINE_DEMOTE, 5000), -ENOENT);
	asks[0].ids[0] ^= 1;
	asks[0].ids[NR - 1] ^= 1;
	ck_assert_int_eq(hint(1, ENGINE_RETAIN, 5000), 0);
	ck_assert_uint_eq(held[1].l.held, NR - FK_BT);
}
END_TEST

/* Content goes between the lookup and the lease: what is left is looked up again. */
START_TEST(test_gone_meanwhile)
{
	start_cached(4);
	fk.lease_gone = 2;
	ck_assert_int_eq(hint(0, ENGINE_RETAIN, 5000), 0);
	ck_assert_uint_eq(held[0].l.held, NR);
	ck_assert_uint_ge(held[0].l.granted, 5000);
	fk.lease_gone = UINT32_MAX;
	ck_assert_int_eq(hint(1, ENGINE_DEMOTE, 5000), -ENOENT);
}
END_TEST

START_TEST(test_move)
{
	start_cached(4);
	ck_assert_int_eq(hint(0, ENGINE_DEMOTE, 5000), 0);
	ck_assert_uint_eq(held[0].l.moved, NR);
	ck_assert_uint_eq(fk.nr_leases, 1);
	ck_assert_int_eq(hint(0, ENGINE_PREFETCH, 5000), 0);
	ck_assert_uint_eq(held[0].l.moved, NR);
	ck_assert_uint_eq(fk.nr_leases, 1);
	ck_assert_uint_eq(cached(1), NR);
}
END_TEST

/* The daemon has ended the lease: the next hint makes another, if there is content. */
START_TEST(test_ended)
{
	enum engine_hint h = (enum engine_hint)_i;

	start_cached(4);
	ck_assert_int_eq(hint(0, ENGINE_RETAIN, 5000), 0);
	fk_end_some(false);
	ck_assert_int_eq(hint(0, h, 5000), 0);
	ck_assert_uint_eq(fk_count_leases(), h < ENGINE_UNPIN);
	ck_assert_uint_eq(held[0].l.held, h == ENGINE_FORGET ? 0 : NR);
	fk_end_some(false);
	lease_of(0)->salt = 7;
	ck_assert_int_eq(hint(0, ENGINE_PREFETCH, 5000), -ENOENT);
}
END_TEST

/* ---- places ---- */

START_TEST(test_places)
{
	start_cached(2);
	ck_assert_int_eq(hint(0, ENGINE_RETAIN, 5000), 0);
	ck_assert_int_eq(hint(1, ENGINE_RETAIN, 1), 0);
	ck_assert_int_eq(hint(2, ENGINE_RETAIN, 5000), -EMFILE);
	ck_assert_int_eq(hint(0, ENGINE_PIN, 0), -EMFILE);
	ck_assert_uint_eq(held[0].l.held, NR);
	/* The second one is over, and no answer says so. */
	usleep(150000);
	fk_close_now(fk_find(held[1].l.seq));
	ck_assert_int_eq(hint(2, ENGINE_RETAIN, 5000), 0);
	ck_assert_uint_eq(held[1].l.seq, 0);
}
END_TEST

/* Hints at once get no more places than hints one after the other. */
START_TEST(test_places_at_once)
{
	u32 i, refused = 0;

	start_cached(2);
	for (i = 0; i < 4; i++)
		begin(i, ENGINE_RETAIN, 5000);
	run();
	for (i = 0; i < 4; i++)
		refused += held[i].l.err == -EMFILE;
	ck_assert_uint_eq(refused, 2);
	ck_assert_uint_eq(fk_count_leases(), 2);
	/* Places that were given back can be taken again. */
	for (i = 0; i < 4; i++)
		ck_assert_int_eq(hint(i, ENGINE_FORGET, 0), 0);
	ck_assert_int_eq(hint(0, ENGINE_PIN, 5000), 0);
}
END_TEST

/* Of few sequences, most are for requests. */
START_TEST(test_few_sequences)
{
	const struct engine_opts o = { .max_leases = 256, .max_seqs = 256 };
	u32 i;

	start(&o);
	submit(ask(0, 3, NR, 4, 1));
	run();
	for (i = 0; i < FK_SEQS / 8; i++)
		ck_assert_int_eq(hint(i, ENGINE_RETAIN, 5000), 0);
	ck_assert_int_eq(hint(i, ENGINE_RETAIN, 5000), -EMFILE);
}
END_TEST

/* ---- pins ---- */

START_TEST(test_pin)
{
	struct engine_lease *l = lease_of(0);
	u32 i;

	start_cached(4);
	ck_assert_int_eq(hint(0, ENGINE_PIN, 5000), 0);
	ck_assert_uint_eq(l->pinned, NR);
	while (!engine_pinned(engine, l))
		fk_restore_all();
	ck_assert_uint_eq(engine_pinned(engine, l), NR);
	ck_assert_uint_eq(fk.s[KVMM_SEQ_INDEX(l->pin)].priority, UINT32_MAX);
	ck_assert_int_eq(hint(0, ENGINE_PIN, 5000), 0);	/* no second one */
	ck_assert_uint_eq(fk_count_leases(), 1);
	fk.preempt = 100;
	fk.swap = 1000;
	for (i = 1; i < 6; i++)
		submit(ask(i, i * 11, 40, 15, 2));
	run();
	for (i = 1; i < 6; i++)
		check_ask(&asks[i]);
	ck_assert(!engine_pin_lost(engine, l));
	ck_assert_int_eq(hint(0, ENGINE_UNPIN, 0), 0);
	ck_assert(!l->pin && !l->pinned);
	ck_assert_uint_eq(l->held, NR);
	/* Other ids: the pin of the old ones is ended first. */
	ck_assert_int_eq(hint(0, ENGINE_PIN, 5000), 0);
	l->stale = true;
	ck_assert_int_eq(hint(0, ENGINE_PIN, 5000), 0);
	ck_assert_int_eq(hint(0, ENGINE_FORGET, 0), 0);
	for (i = 0; i < FK_SEQS; i++)
		ck_assert_uint_eq(fk.s[i].state, KVMM_SEQ_CLOSED);
}
END_TEST

/* The pin of other ids is ended first, also if the lease has followed the ids already. */
START_TEST(test_pin_follows)
{
	struct engine_lease *l = lease_of(0);

	start_cached(4);
	l->nr = NR - FK_BT;
	l->hint = ENGINE_PIN;
	l->ms = 5000;
	ck_assert_int_eq(engine_hint(engine, l), 0);
	run();
	ck_assert_uint_eq(l->pinned, NR - FK_BT);
	l->stale = true;
	ck_assert_int_eq(hint(0, ENGINE_RETAIN, 5000), 0);
	ck_assert_uint_eq(l->held, NR);
	ck_assert_uint_eq(l->pinned, NR - FK_BT);
	ck_assert_int_eq(hint(0, ENGINE_PIN, 5000), 0);
	ck_assert_uint_eq(l->pinned, NR);
	ck_assert_int_eq(hint(0, ENGINE_FORGET, 0), 0);
}
END_TEST

/* All pins together take a quarter of the pool. */
START_TEST(test_pin_share)
{
	fk.nr_blocks = 2 * 4 * NR / FK_BT;
	start_cached(6);
	ck_assert_int_eq(hint(0, ENGINE_PIN, 5000), 0);
	ck_assert_int_eq(hint(1, ENGINE_PIN, 5000), 0);
	ck_assert_int_eq(hint(2, ENGINE_PIN, 5000), -EFBIG);
	ck_assert_int_eq(hint(0, ENGINE_UNPIN, 0), 0);
	ck_assert_int_eq(hint(2, ENGINE_PIN, 5000), 0);
}
END_TEST

/* Pins at once take no more than pins one after the other. */
START_TEST(test_pin_share_at_once)
{
	u32 i, refused = 0;

	fk.nr_blocks = 2 * 4 * NR / FK_BT;
	start_cached(8);
	for (i = 0; i < 4; i++)
		begin(i, ENGINE_PIN, 5000);
	run();
	for (i = 0; i < 4; i++)
		refused += held[i].l.err == -EFBIG;
	ck_assert_uint_eq(refused, 2);
	for (i = 0; i < 4; i++)
		ck_assert_int_eq(hint(i, ENGINE_UNPIN, 0), 0);
	ck_assert_int_eq(hint(2, ENGINE_PIN, 5000), 0);
	ck_assert_int_eq(hint(3, ENGINE_PIN, 5000), 0);
}
END_TEST

START_TEST(test_pin_lost)
{
	struct engine_lease *l = lease_of(0);

	start_cached(4);
	ck_assert_int_eq(hint(0, ENGINE_PIN, 5000), 0);
	ck_assert(!engine_pin_lost(engine, l));
	fk_salvage();
	run();
	ck_assert(engine_pin_lost(engine, l));
	ck_assert_uint_eq(engine_pinned(engine, l), 0);
	ck_assert_int_eq(hint(0, ENGINE_UNPIN, 0), 0);
	/* The lease has gone too; half of the content is there. */
	ck_assert(hint(0, ENGINE_RETAIN, 5000) == 0 || l->err == -ENOENT);
}
END_TEST

/* ---- ends ---- */

/* The daemon dies at any request of a hint, and with it all handles. */
START_TEST(test_death)
{
	u32 i;

	start_cached(4);
	fk.die_at = fk.number + 1 + (u32)_i / 3;
	for (i = 0; i < 3; i++)
		begin(i, i == (u32)_i % 3 ? ENGINE_PIN : ENGINE_RETAIN, 5000);
	submit(ask(1, 9, 30, 40, 2));
	ck_assert_int_eq(run_status(), -ECONNRESET);
	for (i = 0; i < 3; i++) {
		ck_assert_uint_eq(held[i].dones, 1);
		ck_assert(!held[i].l.seq && !held[i].l.pin && !held[i].l.until);
	}
	ck_assert_int_eq(engine_hint(engine, &held[0].l), -ECONNRESET);
	ck_assert_uint_eq(held[0].dones, 1);
}
END_TEST

/* It salvages at any moment: every hint ends, and requests are right. */
START_TEST(test_salvage)
{
	u32 i, steps = (u32)_i % 7;

	fk.seed += (u32)_i;
	start_cached(4);
	for (i = 0; i < 3; i++)
		begin(i, i ? ENGINE_RETAIN : ENGINE_PIN, 5000);
	submit(ask(1, 9, 30, 10, 1));
	while (steps--)
		(void)!engine_step(engine, 20000);
	fk_salvage();
	run();
	for (i = 0; i < 3; i++) {
		ck_assert_uint_eq(held[i].dones, 1);
		ck_assert(!held[i].l.err || held[i].l.err == -ENOENT);
	}
	check_ask(&asks[1]);
}
END_TEST

START_TEST(test_destroy)
{
	u32 i;

	start_cached(4);
	for (i = 0; i < 3; i++)
		begin(i, ENGINE_PIN, 5000);
	for (i = 0; i < (u32)_i; i++)
		(void)!engine_step(engine, 20000);
	engine_destroy(engine);
	engine = NULL;
	for (i = 0; i < 3; i++) {
		ck_assert_uint_eq(held[i].dones, 1);
		ck_assert(!held[i].l.seq && !held[i].l.pin);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("engine-lease");
	TCase *tc = tcase_create("hints");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup_leases, teardown);
	tcase_add_test(tc, test_retain);
	tcase_add_test(tc, test_too_long);
	tcase_add_loop_test(tc, test_pieces, 0, 20);
	tcase_add_test(tc, test_no_copies);
	tcase_add_test(tc, test_no_leases);
	tcase_add_test(tc, test_no_room);
	tcase_add_test(tc, test_not_cached);
	tcase_add_test(tc, test_gone_meanwhile);
	tcase_add_test(tc, test_move);
	tcase_add_loop_test(tc, test_ended, 0, ENGINE_FORGET + 1);
	tcase_add_test(tc, test_places);
	tcase_add_test(tc, test_places_at_once);
	tcase_add_test(tc, test_few_sequences);
	tcase_add_test(tc, test_pin);
	tcase_add_test(tc, test_pin_follows);
	tcase_add_test(tc, test_pin_share);
	tcase_add_test(tc, test_pin_share_at_once);
	tcase_add_test(tc, test_pin_lost);
	tcase_add_loop_test(tc, test_death, 0, 30);
	tcase_add_loop_test(tc, test_salvage, 0, 40);
	tcase_add_loop_test(tc, test_destroy, 0, 12);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
