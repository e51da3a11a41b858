// SPDX-License-Identifier: Apache-2.0
/*
 * check_swap_mm.c - requests to swapd through its deaths
 *
 * The test plays both swapd and hold: it reads the request ring, writes the
 * completion ring, dies, and reports how transfers ended.  The table shows the
 * answers to the core: a finished request has left it.
 */
#include "tests/unit/tiers_fixture.h"

#define SW	(td->swap)

static struct ring_cons taken;	/* swapd's ends */
static struct ring_prod done;
static u32 life;

static void join(void)
{
	swap_join(&td->swap, ++life);
	ring_cons_init(&taken, SWAP_ENTRIES, 0, &SW.ctl->req_head,
		       &SW.ctl->req_tail);
	ring_prod_init(&done, SWAP_ENTRIES, 0, &SW.ctl->cpl_tail,
		       &SW.ctl->cpl_head);
	SW.up = true;
}

static void setup(void)
{
	tf_setup();
	ck_assert_int_eq(swap_init(&td->swap, td->mm_epoll, &td_shm), 0);
	SW.area[0].live = true;
	SW.area[0].index = 3;
	SW.area[0].off = SWAPD_RESERVED_BYTES;
	life = 0;
	join();
}

static void order(u64 id, bool write)
{
	const struct core_io io = {
		.id = id, .write = write, .host_off = 8192 * id,
		.area_off = 65536 * id, .len = 8192, .payload = 4000,
		.domain = 1, .hash = { id, ~id }, .generation = id + 7,
	};

	swap_push(&td->swap, &io);
}

/* The next request for swapd; false if there is none. */
static bool take(struct swapd_req *r)
{
	int nr = ring_cons_look(&taken);

	ck_assert_int_ge(nr, 0);
	if (!nr)
		return false;
	*r = SW.reqs[ring_cons_slot(&taken)];
	ring_cons_advance(&taken);
	ring_cons_publish(&taken);
	return true;
}

/* The record that swapd writes before it gives a transfer to the kernel. */
static void carry(u64 id, u64 transfer, u32 off, u32 nr)
{
	SW.carriers[SWAPD_ID_TAG(id)] = (struct swapd_carrier){
		.id = id, .transfer = transfer, .off = off, .nr = nr,
	};
}

/* Order a request, and take it as swapd. */
static u64 issue(u64 id, bool write)
{
	struct swapd_req r;

	order(id, write);
	ck_assert(swap_pump(&td->swap, 1));
	ck_assert(take(&r));
	carry(r.id, r.id, 0, 1);
	return r.id;
}

static void complete(u64 id, int status)
{
	const struct swapd_cpl cpl = { .id = id, .status = status };

	SW.cpls[ring_prod_slot(&done)] = cpl;
	ring_prod_advance(&done);
	ring_prod_publish(&done);
}

static void die(void)
{
	swap_leave(&td->swap, 1, life);
}

static void old_cqe(u64 id, s32 res)
{
	const struct swap_tale t = {
		.kind = HOLD_SWAP_OLD_CQE, .generation = life, .res = res,
		.id = id,
	};

	swap_hear(&td->swap, 1, &t);
}

static void drained(u32 generation)
{
	const struct swap_tale t = {
		.kind = HOLD_SWAP_DRAINED, .generation = generation,
	};

	swap_hear(&td->swap, 1, &t);
}

START_TEST(test_request_is_what_was_ordered)
{
	struct swapd_req r;

	order(5, true);
	ck_assert(swap_waits(&td->swap));
	ck_assert(swap_pump(&td->swap, 1));
	ck_assert(!swap_waits(&td->swap));
	ck_assert(take(&r));
	ck_assert_uint_eq(r.op, SWAPD_WRITE);
	ck_assert_uint_eq(r.area, 3);
	ck_assert_uint_eq(r.host_off, 8192 * 5);
	ck_assert_uint_eq(r.area_off, SWAPD_RESERVED_BYTES + 65536 * 5);
	ck_assert_uint_eq(r.len, 8192);
	ck_assert_uint_eq(r.payload_len, 4000);
	ck_assert_uint_eq(r.domain, 1);
	ck_assert_uint_eq(r.hash[0], 5);
	ck_assert_uint_eq(r.hash[1], ~5ull);
	ck_assert_uint_eq(r.generation, 12);
	ck_assert_uint_eq(r.resv | r.resv2[0] | r.resv2[1] | r.resv2[2], 0);
	complete(r.id, 0);
	ck_assert(swap_waits(&td->swap));
	ck_assert(swap_collect(&td->swap, 2));
	ck_assert_uint_eq(SW.nr_open, 0);
	ck_assert_uint_eq(SW.works, 1);
	ck_assert(!swap_pump(&td->swap, 2));
}
END_TEST

/* An area is busy while any request is unfinished; a death ends that. */
START_TEST(test_busy)
{
	struct swapd_req r[2];

	ck_assert_uint_eq(busy_ns(&SW, 0, 50), 0);
	order(1, true);
	ck_assert(swap_pump(&td->swap, 100));
	order(2, false);
	ck_assert(swap_pump(&td->swap, 110));
	ck_assert(take(&r[0]));
	ck_assert(take(&r[1]));
	ck_assert_uint_eq(busy_ns(&SW, 0, 115), 15);
	complete(r[0].id, 0);
	ck_assert(swap_collect(&td->swap, 130));
	ck_assert_uint_eq(busy_ns(&SW, 0, 140), 40);
	complete(r[1].id, -EIO);
	ck_assert(swap_collect(&td->swap, 150));
	ck_assert_uint_eq(busy_ns(&SW, 0, 900), 50);
	order(3, true);
	ck_assert(swap_pump(&td->swap, 1000));
	swap_leave(&td->swap, 1007, life);
	ck_assert_uint_eq(busy_ns(&SW, 0, 2000), 57);
	drained(life);
	ck_assert_uint_eq(SW.nr_orphans, 0);
	ck_assert_uint_eq(SW.area[0].nr, 0);
}
END_TEST

/* More requests than the table holds: the others wait, in order, and none is lost. */
START_TEST(test_more_than_the_table)
{
	const u32 all = 64;
	struct swapd_req r;
	u64 n, seen = 0;
	u32 i;

	/* Leave only eight free tags. */
	for (i = 0; i < SWAP_ENTRIES - 8; i++) {
		u32 tag = SW.free;

		SW.free = SW.io[tag].next;
	}
	for (n = 0; n < all; n++)
		order(n, n & 1);
	while (seen < all) {
		swap_pump(&td->swap, 1);
		ck_assert_uint_le(SW.nr_open, 8);
		while (take(&r)) {
			ck_assert_uint_eq(r.hash[0], seen++);
			complete(r.id, 0);
		}
		ck_assert(swap_collect(&td->swap, 1));
	}
	ck_assert_uint_eq(SW.nr_open, 0);
	ck_assert(queue_empty(&SW.backlog));
}
END_TEST

START_TEST(test_completed_before_the_death)
{
	u64 id = issue(1, false);

	complete(id, -EBADMSG);
	die();
	ck_assert_uint_eq(SW.nr_open, 0);
	/* Hold may report it nevertheless. */
	old_cqe(id, 8192);
	drained(life);
	ck_assert_uint_eq(SW.nr_open, 0);
	ck_assert_uint_eq(SW.count.again, 0);
	ck_assert_uint_eq(SW.count.deaths, 1);
}
END_TEST

/* The end of an orphaned request, by the result of its transfer. */
static const struct {
	bool	write;
	s32	res;
	bool	again;
} ending[] = {
	{ true,	 8192,		false },
	{ true,	 4096,		true },
	{ true,	 0,		true },
	{ true,	 -ENOSPC,	false },
	{ true,	 -ECANCELED,	true },
	{ true,	 -EINTR,	true },
	{ false, 8192,		true },
	{ false, 0,		true },
	{ false, -EIO,		false },
	{ false, -ECANCELED,	true },
};

START_TEST(test_orphan_ends)
{
	u64 id = issue(1, ending[_i].write);
	struct swapd_req r;

	die();
	ck_assert_uint_eq(SW.nr_open, 1);
	ck_assert_uint_eq(SW.nr_orphans, 1);
	join();
	/* Until hold reports its end, no swapd gets the request. */
	ck_assert(!swap_pump(&td->swap, 1));
	ck_assert(!take(&r));
	life--;
	old_cqe(id, ending[_i].res);
	life++;
	ck_assert_uint_eq(SW.nr_orphans, 0);
	ck_assert_uint_eq(SW.nr_open, ending[_i].again);
	ck_assert_uint_eq(SW.count.again, ending[_i].again);
	ck_assert(swap_pump(&td->swap, 1) == ending[_i].again);
	if (!ending[_i].again)
		return;
	ck_assert(take(&r));
	ck_assert_uint_ne(r.id, id);
	ck_assert_uint_eq(r.hash[0], 1);
	ck_assert_uint_eq(r.op, ending[_i].write ? SWAPD_WRITE : SWAPD_READ);
	/* A late completion of the old id matches no request. */
	complete(id, 0);
	swap_collect(&td->swap, 1);
	ck_assert_uint_eq(SW.nr_open, 1);
	ck_assert_uint_eq(SW.count.strays, 1);
	complete(r.id, 0);
	swap_collect(&td->swap, 1);
	ck_assert_uint_eq(SW.nr_open, 0);
}
END_TEST

/* Three requests share a transfer: number of finished ones, by the bytes that it moved. */
static const struct {
	s32	res;
	u32	done;
} shared[] = {
	{ 3 * 8192,	3 },
	{ 2 * 8192,	2 },
	{ 3 * 8192 - 1,	2 },
	{ 8191,		0 },
	{ 0,		0 },
	/* Any of them may have caused the fault: all are tried again. */
	{ -EIO,		0 },
	{ -ECANCELED,	0 },
};

START_TEST(test_shared_transfer)
{
	u64 id[3];
	u32 i;

	for (i = 0; i < 3; i++)
		id[i] = issue(10 + i, true);
	/* The transfer has the id of any of them. */
	for (i = 0; i < 3; i++)
		carry(id[i], id[1], i * 8192, 3);
	die();
	ck_assert_uint_eq(SW.nr_orphans, 3);
	/* The next swapd may overwrite the carriers: they were read at the death. */
	memset(SW.carriers, 0, SWAP_ENTRIES * sizeof(*SW.carriers));
	join();
	life--;
	old_cqe(id[0], 3 * 8192);
	ck_assert_uint_eq(SW.nr_orphans, 3);
	old_cqe(id[1], shared[_i].res);
	ck_assert_uint_eq(SW.nr_orphans, 0);
	ck_assert_uint_eq(SW.nr_open, 3 - shared[_i].done);
	ck_assert_uint_eq(SW.count.orphans_done, shared[_i].done);
	ck_assert_uint_eq(SW.count.again, 3 - shared[_i].done);
	drained(life);
	ck_assert_uint_eq(SW.count.again, 3 - shared[_i].done);
}
END_TEST

/*
 * A request whose carrier was not written, or is an older one's at the same
 * place, is in no transfer; a request that was tried again alone is not in the
 * first transfer.
 */
START_TEST(test_no_carrier)
{
	u64 first = issue(1, true), second = issue(2, true);

	if (_i == 0)
		SW.carriers[SWAPD_ID_TAG(first)].id = 0;
	else if (_i == 1)
		SW.carriers[SWAPD_ID_TAG(first)].id ^= SWAPD_ID(1, 0);
	else
		carry(first, first | SWAPD_ALONE, 0, 1);
	die();
	old_cqe(second, 8192);
	ck_assert_uint_eq(SW.nr_orphans, 1);
	old_cqe(first, 8192);
	ck_assert_uint_eq(SW.nr_orphans, 1);
	drained(life);
	ck_assert_uint_eq(SW.nr_orphans, 0);
	ck_assert_uint_eq(SW.count.again, 1);
	ck_assert_uint_eq(SW.count.orphans_done, 1);
}
END_TEST

/* A request that hold never names was never issued.  Each life drains by itself. */
START_TEST(test_drained)
{
	struct swapd_req r;

	issue(1, true);
	die();
	join();
	issue(2, false);
	die();
	join();
	ck_assert_uint_eq(SW.nr_orphans, 2);
	drained(2);
	ck_assert_uint_eq(SW.nr_orphans, 1);
	ck_assert(swap_pump(&td->swap, 1));
	ck_assert(take(&r));
	ck_assert_uint_eq(r.hash[0], 2);
	ck_assert(!take(&r));
	drained(1);
	ck_assert(swap_pump(&td->swap, 1));
	ck_assert(take(&r));
	ck_assert_uint_eq(r.hash[0], 1);
	/* Reports about lives that have no requests left. */
	drained(1);
	drained(77);
	ck_assert_uint_eq(SW.nr_open, 2);
}
END_TEST

/* Requests of a swapd that died go alone, and are given up in the end. */
START_TEST(test_killer)
{
	struct swapd_req r;
	u32 n, i;

	issue(1, true);
	issue(2, true);
	for (n = 1; n < SWAP_TRIES; n++) {
		die();
		drained(life);
		join();
		order(100 + n, false);
		swap_pump(&td->swap, 1);
		for (i = 0; take(&r); i++)
			;
		/* At first they go together, with later requests. */
		ck_assert_uint_eq(i, n < SWAP_CAREFUL ? 3 : 1);
		if (n < SWAP_CAREFUL)
			continue;
		/* The first of them does not kill swapd: the others go on. */
		if (n == SWAP_CAREFUL) {
			complete(r.id, 0);
			swap_collect(&td->swap, 1);
			swap_pump(&td->swap, 1);
			ck_assert(take(&r));
			ck_assert(!take(&r));
		}
	}
	ck_assert_uint_eq(SW.count.given_up, 0);
	for (n = 0; n < 2 * SWAP_TRIES; n++) {
		die();
		drained(life);
		join();
		swap_pump(&td->swap, 1);
		while (take(&r))
			;
	}
	ck_assert_uint_gt(SW.count.given_up, 0);
}
END_TEST

/* swapd is gone for good: no request waits for ever. */
START_TEST(test_gone)
{
	issue(1, true);
	order(2, false);
	die();
	drained(life);
	SW.gone = true;
	ck_assert(swap_waits(&td->swap));
	ck_assert(swap_pump(&td->swap, 1));
	ck_assert_uint_eq(SW.nr_open, 0);
	ck_assert(queue_empty(&SW.backlog));
	ck_assert_uint_eq(SW.count.given_up, 2);
	order(3, true);
	ck_assert(swap_pump(&td->swap, 1));
	ck_assert_uint_eq(SW.count.given_up, 3);
}
END_TEST

/* The area does not exist: its requests fail, those of other areas go. */
START_TEST(test_lost_area)
{
	struct core_io io = { .id = 9, .area = 1, .len = 8192, .payload = 1 };
	struct swapd_req r;

	swap_push(&td->swap, &io);
	order(2, true);
	ck_assert(swap_pump(&td->swap, 1));
	ck_assert_uint_eq(SW.nr_open, 1);
	ck_assert(take(&r));
	ck_assert_uint_eq(r.hash[0], 2);
	ck_assert_uint_eq(SW.count.given_up, 1);
}
END_TEST

/* After a swapd forges an index, its completions are ignored. */
START_TEST(test_forged_index)
{
	u64 id = issue(1, true);

	if (_i)
		WRITE_ONCE(SW.ctl->cpl_tail, SWAP_ENTRIES + 1);
	else
		WRITE_ONCE(SW.ctl->cpl_tail, -1u);
	ck_assert(!swap_collect(&td->swap, 1));
	ck_assert_uint_eq(SW.broken, 1);
	ck_assert(SW.kick);
	ck_assert(!swap_waits(&td->swap));
	die();
	ck_assert_uint_eq(SW.nr_orphans, 1);
	old_cqe(id, 8192);
	join();
	ck_assert_uint_eq(SW.broken, 0);
	ck_assert_uint_eq(SW.nr_open, 0);
}
END_TEST

/* Completions that match no request. */
START_TEST(test_strays)
{
	u64 id = issue(1, true);

	complete(id ^ SWAPD_ID(1, 0), 0);
	complete(SWAPD_ID(1, SWAP_ENTRIES), 0);
	complete(0, 0);
	complete(~0ull, 0);
	swap_collect(&td->swap, 1);
	ck_assert_uint_eq(SW.nr_open, 1);
	ck_assert_uint_eq(SW.count.strays, 4);
	complete(id, 0);
	complete(id, 0);
	swap_collect(&td->swap, 1);
	ck_assert_uint_eq(SW.nr_open, 0);
	ck_assert_uint_eq(SW.count.strays, 5);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("swap-mm");
	TCase *tc = tcase_create("requests");
	SRunner *sr;
	int failed;

	tcase_add_checked_fixture(tc, setup, tf_teardown);
	tcase_add_test(tc, test_request_is_what_was_ordered);
	tcase_add_test(tc, test_busy);
	tcase_add_test(tc, test_more_than_the_table);
	tcase_add_test(tc, test_completed_before_the_death);
	tcase_add_loop_test(tc, test_orphan_ends, 0, ARRAY_SIZE(ending));
	tcase_add_loop_test(tc, test_shared_transfer, 0, ARRAY_SIZE(shared));
	tcase_add_loop_test(tc, test_no_carrier, 0, 3);
	tcase_add_test(tc, test_drained);
	tcase_add_test(tc, test_killer);
	tcase_add_test(tc, test_gone);
	tcase_add_test(tc, test_lost_area);
	tcase_add_loop_test(tc, test_forged_index, 0, 2);
	tcase_add_test(tc, test_strays);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
