// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_match.c - ids, the wait list, admission, the prefix index
 */
#include "tests/unit/core_shell.h"
#include "kvmm/core/node/node.h"

static u32 cl;

static void setup(void)
{
	sh_config(4);
	sh_start();
	cl = sh_attach(1, "a");
	sh_warm(cl);
}

static void teardown(void)
{
	sh_stop();
}

/* Compute @len tokens and close, so that full blocks are cached. */
static void cache(u32 client, u32 len, u32 seed)
{
	u64 seq = sh_ready(client, len, 0, seed);
	u32 from = sh_status(client, seq)->valid_len;

	sh_compute(client, seq, from, len, seed);
	ck_assert_int_eq(sh_close(client, seq), 0);
}

static u32 cached_len(u32 client, const struct kvmm_open_arg *a, u32 seed)
{
	u32 len;
	u64 seq;

	ck_assert_int_eq(sh_open_as(client, a, &seq), 0);
	ck_assert_int_eq(sh_match(client, seq, a->prompt_len, seed), 0);
	ck_assert_uint_eq(sh_state(client, seq), KVMM_SEQ_READY);
	len = sh_status(client, seq)->cached_len;
	ck_assert_uint_eq(sh_status(client, seq)->valid_len, len);
	ck_assert_int_eq(sh_close(client, seq), 0);
	return len;
}

static u32 found(u32 client, u32 len, u32 seed)
{
	struct kvmm_open_arg a = { .prompt_len = len };

	return cached_len(client, &a, seed);
}

/* ---- the index ---- */

/* The longest prefix that full blocks have, but never the last token. */
START_TEST(test_longest_prefix)
{
	cache(cl, 64, 0);
	ck_assert_uint_eq(found(cl, 16, 0), 15);
	ck_assert_uint_eq(found(cl, 17, 0), 16);
	ck_assert_uint_eq(found(cl, 64, 0), 63);
	ck_assert_uint_eq(found(cl, 65, 0), 64);
	ck_assert_uint_eq(found(cl, 100, 0), 64);
}
END_TEST

/* The same ids after another beginning are another block. */
START_TEST(test_chain)
{
	struct kvmm_match_arg *m = (struct kvmm_match_arg *)sh.args;
	u32 *ids = (u32 *)(m + 1), i;
	u64 seq;

	/* The first prompt has the wrong block, the second the right prefix. */
	cache(cl, 48, 100 * _i);
	cache(cl, 16, 100 * _i + 7);
	seq = sh_open(cl, 49, 0);
	*m = (struct kvmm_match_arg){ .seq = seq, .nr_ids = 49,
				      .flags = KVMM_MATCH_LAST };
	for (i = 0; i < 49; i++)
		ids[i] = 100 * _i + i + (i < 16 ? 7 : 0);
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_SEQ_MATCH, 1, 0,
				   (u32)sizeof(*m) + 4 * 49), 0);
	ck_assert_int_eq(sh_seq_res(0), 0);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_status(cl, seq)->cached_len, 16);
}
END_TEST

/* A long prompt is matched in slices, with other requests between them. */
START_TEST(test_long_prompt_in_slices)
{
	u64 busy, seq;
	u32 polls = 0;

	cache(cl, 80, 0);
	busy = sh_ready(cl, 16, 16, 5000);
	sh.core->head->cfg.event_work = 52;
	seq = sh_open(cl, 81, 0);
	ck_assert_int_eq(sh_match(cl, seq, 81, 0), 0);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_WAITING);
	sh_compute(cl, busy, 0, 16, 5000);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_WAITING);
	while (core_poll(sh.core, sh.now)) {
		sh_check();
		polls++;
	}
	ck_assert_uint_ge(polls, 1);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_status(cl, seq)->cached_len, 80);
}
END_TEST

START_TEST(test_salt_separates)
{
	struct kvmm_open_arg a = { .prompt_len = 33, .salt = 1 };

	cache(cl, 32, 0);
	ck_assert_uint_eq(found(cl, 33, 0), 32);
	ck_assert_uint_eq(cached_len(cl, &a, 0), 0);
}
END_TEST

START_TEST(test_domains_separate)
{
	u32 other = sh_attach(1, "b");

	cache(cl, 32, 0);
	ck_assert_uint_eq(found(other, 33, 0), 0);
}
END_TEST

START_TEST(test_clients_of_a_domain_share)
{
	u32 other = sh_attach(1, "a");

	cache(cl, 32, 0);
	ck_assert_uint_eq(found(other, 33, 0), 32);
}
END_TEST

/* A tenant's names depend on the secret of its first client. */
START_TEST(test_first_secret_stays)
{
	u32 other;

	cache(cl, 48, 0);
	other = sh_attach(1, "a");
	ck_assert_uint_eq(found(other, 49, 0), 48);
	sh_quiet(cl);
	sh_quiet(other);
	other = sh_attach(1, "a");
	ck_assert_uint_eq(found(other, 49, 0), 48);
}
END_TEST

START_TEST(test_no_match)
{
	struct kvmm_open_arg a = { .prompt_len = 33,
				   .flags = KVMM_OPEN_NO_MATCH };
	u64 lookups;

	cache(cl, 32, 0);
	lookups = sh_count(CORE_EV_prefix_lookup);
	ck_assert_uint_eq(cached_len(cl, &a, 0), 0);
	ck_assert_uint_eq(sh_count(CORE_EV_prefix_lookup), lookups);
}
END_TEST

START_TEST(test_no_index)
{
	struct kvmm_open_arg a = { .prompt_len = 32,
				   .flags = KVMM_OPEN_NO_INDEX };
	u64 seq;

	ck_assert_int_eq(sh_open_as(cl, &a, &seq), 0);
	ck_assert_int_eq(sh_match(cl, seq, 32, 0), 0);
	sh_compute(cl, seq, 0, 32, 0);
	ck_assert_uint_eq(sh_pool().sealed, 2 * SH_BLOCK);
	ck_assert_uint_eq(sh_pool().indexed, 0);
	ck_assert_int_eq(sh_close(cl, seq), 0);
	ck_assert_uint_eq(sh_pool().cached, 0);
	ck_assert_uint_eq(found(cl, 33, 0), 0);
}
END_TEST

/* Two sequences compute the same: the second one's blocks are freed at once. */
START_TEST(test_duplicates)
{
	u64 a = sh_ready(cl, 32, 0, 0), b = sh_ready(cl, 32, 0, 0);

	sh_compute(cl, a, 0, 32, 0);
	sh_compute(cl, b, 0, 32, 0);
	ck_assert_uint_eq(sh_count(CORE_EV_prefix_duplicate), 2);
	ck_assert_uint_eq(sh_count(CORE_EV_pgmerge), 2);
	ck_assert_uint_eq(sh_pool().sealed, 2 * SH_BLOCK);
	ck_assert_uint_eq(sh_pool().indexed, 2 * SH_BLOCK);
	ck_assert_int_eq(sh_close(cl, b), 0);
	ck_assert_uint_eq(sh_pool().cached, 0);
	ck_assert_int_eq(sh_close(cl, a), 0);
	ck_assert_uint_eq(sh_pool().cached, 2 * SH_BLOCK);
}
END_TEST

/* A prefix that other sequences still use is mapped, not copied. */
START_TEST(test_sharing)
{
	u64 a = sh_ready(cl, 40, 0, 0), b;

	sh_compute(cl, a, 0, 40, 0);
	b = sh_ready(cl, 40, 0, 0);
	ck_assert_uint_eq(sh_status(cl, b)->valid_len, 32);
	ck_assert_uint_eq(sh_table(cl, b, 0), sh_table(cl, a, 0));
	ck_assert_uint_eq(sh_table(cl, b, 1), sh_table(cl, a, 1));
	ck_assert_uint_eq(sh_pool().shared, 2 * SH_BLOCK);
	ck_assert_int_eq(sh_close(cl, a), 0);
	ck_assert_uint_eq(sh_pool().shared, 0);
	ck_assert_uint_eq(sh_pool().sealed, 2 * SH_BLOCK);
}
END_TEST

START_TEST(test_counters)
{
	u64 hits = sh_count(CORE_EV_prefix_hit_tokens);
	u64 misses = sh_count(CORE_EV_prefix_miss_tokens);

	cache(cl, 40, 0);
	ck_assert_uint_eq(sh_count(CORE_EV_prefix_miss_tokens), misses + 40);
	(void)found(cl, 40, 0);
	ck_assert_uint_eq(sh_count(CORE_EV_prefix_hit_tokens), hits + 32);
	ck_assert_uint_eq(sh_count(CORE_EV_prefix_miss_tokens), misses + 48);
	ck_assert_uint_eq(sh_count(CORE_EV_prefix_hit), 1);
	/* No sequence was preempted. */
	ck_assert_uint_eq(sh_count(CORE_EV_restore_hit_tokens), 0);
	ck_assert_uint_eq(sh_count(CORE_EV_restore_miss_tokens), 0);
}
END_TEST

/* ---- ids in pieces ---- */

START_TEST(test_pieces)
{
	u64 seq = sh_open(cl, 225, 20);
	u32 at;

	cache(cl, 225, 0);
	for (at = 0; at < 210; at += 70)
		ck_assert_int_eq(sh_match_piece(cl, seq, at, 70, 0, 0), 0);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_WAITING);
	ck_assert_int_eq(sh_match_piece(cl, seq, 209, 1, 0, 0), -EINVAL);
	ck_assert_int_eq(sh_match_piece(cl, seq, 210, 15, KVMM_MATCH_LAST, 0),
			 0);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_status(cl, seq)->cached_len, 224);
}
END_TEST

START_TEST(test_pieces_from_the_start_again)
{
	u64 seq = sh_open(cl, 33, 0);

	cache(cl, 32, 0);
	ck_assert_int_eq(sh_match_piece(cl, seq, 0, 20, 0, 555), 0);
	ck_assert_int_eq(sh_match_piece(cl, seq, 0, 20, 0, 0), 0);
	ck_assert_int_eq(sh_match_piece(cl, seq, 20, 13, KVMM_MATCH_LAST, 0),
			 0);
	ck_assert_uint_eq(sh_status(cl, seq)->cached_len, 32);
}
END_TEST

/* Without a page for ids the request is refused and changes nothing. */
START_TEST(test_no_page_for_ids)
{
	u64 a, b;

	sh_stop();
	sh_config(16);
	sh.cfg.nr_idpages = 3 * SH_CLIENTS;
	sh_start();
	cl = sh_attach(1, "a");
	a = sh_open(cl, 200, 0);
	b = sh_open(cl, 300, 0);
	ck_assert_int_eq(sh_match_piece(cl, b, 0, 100, 0, 0), 0);
	ck_assert_int_eq(sh_match_piece(cl, a, 0, 200, 0, 0), 0);
	ck_assert_int_eq(sh_match_piece(cl, b, 100, 200, KVMM_MATCH_LAST, 0),
			 -EAGAIN);
	ck_assert_int_eq(sh_match_piece(cl, b, 0, 300, KVMM_MATCH_LAST, 0),
			 -EAGAIN);
	/* The first piece is still there; one freed page is enough. */
	ck_assert_int_eq(sh_close(cl, a), 0);
	ck_assert_int_eq(sh_match_piece(cl, b, 100, 200, KVMM_MATCH_LAST, 0),
			 0);
	ck_assert_uint_eq(sh_state(cl, b), KVMM_SEQ_READY);
}
END_TEST

/* A client that never completes its ids leaves others their share of pages. */
START_TEST(test_ids_of_another_client)
{
	u32 other;
	u64 a, b;

	sh_stop();
	sh_config(16);
	sh.cfg.nr_idpages = 2 * SH_CLIENTS;
	sh_start();
	cl = sh_attach(1, "a");
	other = sh_attach(2, "b");
	a = sh_open(cl, 200, 0);
	ck_assert_int_eq(sh_match_piece(cl, a, 0, 190, 0, 0), 0);
	ck_assert_int_eq(sh_match_piece(cl, sh_open(cl, 200, 0), 0, 100, 0, 0),
			 -EAGAIN);
	b = sh_open(other, 200, 0);
	ck_assert_int_eq(sh_match_piece(other, b, 0, 200, KVMM_MATCH_LAST, 0),
			 0);
}
END_TEST

/* OPEN refuses a prompt that all pages together could not hold. */
START_TEST(test_more_than_all_pages)
{
	struct kvmm_open_arg a = { .prompt_len = 253 };
	u64 seq;

	sh_stop();
	sh_config(16);
	sh.cfg.nr_idpages = 2 * SH_CLIENTS;
	sh_start();
	cl = sh_attach(1, "a");
	ck_assert_int_eq(sh_open_as(cl, &a, &seq), -E2BIG);
	a.prompt_len = 252;
	ck_assert_int_eq(sh_open_as(cl, &a, &seq), 0);
}
END_TEST

/* ---- admission ---- */

/* The unmatched rest of a prompt is reserved, and the reservation holds. */
START_TEST(test_reservation)
{
	u64 a = sh_ready(cl, 100, 28, 0), b;

	ck_assert_uint_eq(sh_pool().committed, 7 * SH_BLOCK);
	b = sh_ready(cl, 100, 28, 500);
	ck_assert_uint_eq(sh_pool().committed, 14 * SH_BLOCK);
	/* Two blocks are left, which is not enough for the watermark of two. */
	ck_assert_int_eq(sh_begin(cl, b, 0, 100), 0);
	ck_assert_int_eq(sh_end(cl, b, 0, 100, 500), 0);
	ck_assert_int_eq(sh_begin(cl, b, 100, 28), 0);
	ck_assert_int_eq(sh_end(cl, b, 100, 128, 500), 0);
	ck_assert_uint_eq(sh_pool().committed, 7 * SH_BLOCK);
	ck_assert_int_eq(sh_begin(cl, a, 0, 100), 0);
	ck_assert_int_eq(sh_end(cl, a, 0, 100, 0), 0);
	ck_assert_uint_eq(sh_pool().committed, 0);
}
END_TEST

/* A matched prefix needs no reservation, and is not evicted to make room. */
START_TEST(test_reservation_of_a_hit)
{
	u64 seq;

	cache(cl, 128, 0);
	cache(cl, 112, 9000);
	seq = sh_ready(cl, 200, 0, 0);
	ck_assert_uint_eq(sh_status(cl, seq)->cached_len, 128);
	ck_assert_uint_eq(sh_pool().committed, 5 * SH_BLOCK);
	ck_assert_uint_eq(sh_pool().sealed, 8 * SH_BLOCK);
}
END_TEST

START_TEST(test_reservation_goes_with_its_sequence)
{
	u64 a = sh_ready(cl, 100, 28, 0);

	ck_assert_int_eq(sh_close(cl, a), 0);
	ck_assert_uint_eq(sh_pool().committed, 0);
}
END_TEST

/* Beside a reservation one block for each running sequence must remain. */
START_TEST(test_admission_leaves_room_for_growth)
{
	u64 a = sh_ready(cl, 16, 64, 0), b;

	b = sh_open(cl, 240, 0);
	ck_assert_int_eq(sh_match(cl, b, 240, 500), 0);
	ck_assert_uint_eq(sh_state(cl, b), KVMM_SEQ_WAITING);
	ck_assert_int_eq(sh_close(cl, a), 0);
	ck_assert_uint_eq(sh_state(cl, b), KVMM_SEQ_READY);
}
END_TEST

/* Sequences come by priority, then by arrival; the first one holds up the rest. */
START_TEST(test_wait_order)
{
	struct kvmm_open_arg arg = { .prompt_len = 200 };
	u64 big = sh_ready(cl, 250, 0, 0), seq[4];
	u32 i;

	for (i = 0; i < 4; i++) {
		arg.priority = i == 2 ? 1 : 0;
		arg.prompt_len = i == 3 ? 16 : 200;
		ck_assert_int_eq(sh_open_as(cl, &arg, &seq[i]), 0);
	}
	/* Matched in another order than opened. */
	for (i = 4; i--; )
		ck_assert_int_eq(sh_match(cl, seq[i], i == 3 ? 16 : 200,
					  1000 * i), 0);
	ck_assert_int_eq(sh_close(cl, big), 0);
	ck_assert_uint_eq(sh_state(cl, seq[2]), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_state(cl, seq[0]), KVMM_SEQ_WAITING);
	ck_assert_uint_eq(sh_state(cl, seq[3]), KVMM_SEQ_WAITING);
	ck_assert_int_eq(sh_close(cl, seq[2]), 0);
	ck_assert_uint_eq(sh_state(cl, seq[0]), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_state(cl, seq[1]), KVMM_SEQ_WAITING);
	ck_assert_int_eq(sh_close(cl, seq[0]), 0);
	ck_assert_uint_eq(sh_state(cl, seq[1]), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_state(cl, seq[3]), KVMM_SEQ_READY);
}
END_TEST

START_TEST(test_setprio_moves_in_the_list)
{
	struct kvmm_prio_arg *a = (struct kvmm_prio_arg *)sh.args;
	u64 big = sh_ready(cl, 250, 0, 0);
	u64 first = sh_open(cl, 200, 0), second = sh_open(cl, 200, 0);

	ck_assert_int_eq(sh_match(cl, first, 200, 1000), 0);
	ck_assert_int_eq(sh_match(cl, second, 200, 2000), 0);
	*a = (struct kvmm_prio_arg){ .seq = second, .priority = 3 };
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_SEQ_SETPRIO, 1, 0, sizeof(*a)),
			 0);
	ck_assert_int_eq(sh_close(cl, big), 0);
	ck_assert_uint_eq(sh_state(cl, second), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_state(cl, first), KVMM_SEQ_WAITING);
}
END_TEST

/* memory.max limits reservations and growth; the domain's cache makes room. */
START_TEST(test_memory_max)
{
	struct kvmm_attach_req req = sh_attach_req("m");
	u32 m;
	u64 a, b;

	req.limits[0].max = 6 * SH_BLOCK + 100;
	m = (u32)sh_attach_as(1, &req);
	sh_settle();
	a = sh_ready(m, 60, 36, 0);
	b = sh_open(m, 30, 0);
	ck_assert_int_eq(sh_match(m, b, 30, 500), 0);
	ck_assert_uint_eq(sh_state(m, b), KVMM_SEQ_WAITING);
	sh_compute(m, a, 0, 60, 0);
	ck_assert_int_eq(sh_begin(m, a, 60, 36), 0);
	ck_assert_int_eq(sh_end(m, a, 60, 96, 0), 0);
	ck_assert_uint_eq(sh_domain(m).current_bytes, 6 * SH_BLOCK);
	ck_assert_int_eq(sh_close(m, a), 0);
	ck_assert_uint_eq(sh_state(m, b), KVMM_SEQ_READY);
	sh_compute(m, b, 0, 30, 500);
	ck_assert_uint_le(sh_domain(m).current_bytes, 6 * SH_BLOCK);
	ck_assert_uint_eq(sh_domain(m).peak_bytes, 6 * SH_BLOCK);
}
END_TEST

/* READY is published before it is announced. */
START_TEST(test_ready_event)
{
	u64 seq = sh_ready(cl, 16, 0, 0);
	const struct sh_client *c = &sh.cl[cl];
	const struct kvmm_event *ev =
		&c->events[(c->ctl.event_tail - 1) % SH_EVENTS];

	ck_assert_uint_eq(ev->type, KVMM_EV_READY);
	ck_assert_uint_eq(ev->seq, seq);
	ck_assert_uint_eq(ev->index, KVMM_SEQ_INDEX(seq));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_match");
	TCase *tc = tcase_create("index");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_longest_prefix);
	tcase_add_loop_test(tc, test_chain, 0, 16);
	tcase_add_test(tc, test_long_prompt_in_slices);
	tcase_add_test(tc, test_salt_separates);
	tcase_add_test(tc, test_domains_separate);
	tcase_add_test(tc, test_clients_of_a_domain_share);
	tcase_add_test(tc, test_first_secret_stays);
	tcase_add_test(tc, test_no_match);
	tcase_add_test(tc, test_no_index);
	tcase_add_test(tc, test_duplicates);
	tcase_add_test(tc, test_sharing);
	tcase_add_test(tc, test_counters);
	suite_add_tcase(s, tc);

	tc = tcase_create("admission");
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_pieces);
	tcase_add_test(tc, test_pieces_from_the_start_again);
	tcase_add_test(tc, test_no_page_for_ids);
	tcase_add_test(tc, test_ids_of_another_client);
	tcase_add_test(tc, test_more_than_all_pages);
	tcase_add_test(tc, test_reservation);
	tcase_add_test(tc, test_reservation_of_a_hit);
	tcase_add_test(tc, test_reservation_goes_with_its_sequence);
	tcase_add_test(tc, test_admission_leaves_room_for_growth);
	tcase_add_test(tc, test_wait_order);
	tcase_add_test(tc, test_setprio_moves_in_the_list);
	tcase_add_test(tc, test_memory_max);
	tcase_add_test(tc, test_ready_event);
	suite_add_tcase(s, tc);
	return sh_run(s);
}
