// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_ids.c - pages of token ids of waiting sequences
 *
 * The clients share a pool of pages equally.  Ids come in pieces, which fill one
 * page after another, and the pages are free again when the sequence is admitted
 * or closed.
 */
#include "kvmm/core/node/node.h"
#include "tests/unit/core_shell.h"

#define SHARE	3u	/* pages of a client */

static struct core *c;
static u32 cl, other;

static void setup(void)
{
	sh_config(16);
	sh.cfg.nr_idpages = SHARE * SH_CLIENTS + 5;
	sh_start();
	c = sh.core;
	cl = sh_attach(1, "a");
	other = sh_attach(1, "a");
}

static void teardown(void)
{
	sh_stop();
}

static u32 pages(u32 client)
{
	return c->clients[client].nr_idpages;
}

static void expect_pages(u32 nr)
{
	u32 i, n = 0;

	for (i = c->head->free_idpage; i != CORE_NONE; i = c->idpages[i].next)
		n++;
	ck_assert_uint_eq(n, c->head->nr_free_idpages);
	ck_assert_uint_eq(pages(cl), nr);
	ck_assert_uint_eq(c->head->nr_free_idpages, c->head->cfg.nr_idpages - nr);
}

/* Small pieces share a page; the ids are in order. */
START_TEST(test_pieces_share_a_page)
{
	u64 seq = sh_open(cl, CORE_ID_PAGE + 20, 0);
	const struct kv_seq *s = seq_find(c, cl, seq);
	u32 i;

	for (i = 0; i < 4 * (CORE_ID_PAGE / 4); i += CORE_ID_PAGE / 4) {
		ck_assert_int_eq(sh_match_piece(cl, seq, i, CORE_ID_PAGE / 4, 0, 5), 0);
		expect_pages(1);
	}
	if (s->nr_ids < CORE_ID_PAGE)
		ck_assert_int_eq(sh_match_piece(cl, seq, s->nr_ids,
						CORE_ID_PAGE - s->nr_ids, 0, 5), 0);
	expect_pages(1);
	ck_assert_int_eq(sh_match_piece(cl, seq, CORE_ID_PAGE, 1, 0, 5), 0);
	expect_pages(2);
	ck_assert_uint_eq(s->nr_ids, CORE_ID_PAGE + 1);
	ck_assert_uint_eq(c->idpages[s->id_head].nr, CORE_ID_PAGE);
	ck_assert_uint_eq(c->idpages[s->id_head].next, s->id_tail);
	ck_assert_uint_eq(c->idpages[s->id_tail].nr, 1);
	ck_assert_uint_eq(c->idpages[s->id_tail].next, CORE_NONE);
	for (i = 0; i < CORE_ID_PAGE; i++)
		ck_assert_uint_eq(c->idpages[s->id_head].id[i], i + 5);
	ck_assert_uint_eq(c->idpages[s->id_tail].id[0], CORE_ID_PAGE + 5);
	ck_assert_int_eq(sh_close(cl, seq), 0);
	expect_pages(0);
}
END_TEST

/* A client has its share, whatever the others left; a refusal changes nothing. */
START_TEST(test_share_is_full)
{
	u64 seq = sh_open(cl, SHARE * CORE_ID_PAGE, 0), small = sh_open(cl, 8, 0), its;

	ck_assert_uint_eq(ids_share(c), SHARE);
	ck_assert_int_eq(sh_match_piece(cl, seq, 0, 2 * CORE_ID_PAGE + 1, 0, 5), 0);
	expect_pages(3);
	ck_assert_uint_eq(ids_left(c, cl), 0);
	ck_assert_int_eq(sh_match_piece(cl, small, 0, 8, 0, 5), -EAGAIN);
	ck_assert_uint_eq(seq_find(c, cl, small)->nr_ids, 0);
	/* The rest of the last page is its own. */
	ck_assert_int_eq(sh_match_piece(cl, seq, 2 * CORE_ID_PAGE + 1,
					CORE_ID_PAGE - 1, 0, 5), 0);
	expect_pages(3);
	its = sh_open(other, 8, 0);
	ck_assert_int_eq(sh_match_piece(other, its, 0, 8, 0, 5), 0);
	ck_assert_uint_eq(pages(other), 1);
	ck_assert_uint_eq(ids_left(c, other), SHARE - 1);
	/* New ids of the same sequence replace the old ones. */
	ck_assert_int_eq(sh_match_piece(cl, seq, 0, CORE_ID_PAGE, 0, 6), 0);
	ck_assert_uint_eq(pages(cl), 1);
	ck_assert_int_eq(sh_match_piece(cl, small, 0, 8, 0, 5), 0);
	ck_assert_uint_eq(pages(cl), 2);
}
END_TEST

/* Admission frees the pages. */
START_TEST(test_admission_frees_pages)
{
	u64 seq = sh_open(cl, CORE_ID_PAGE + 1, 0);

	ck_assert_int_eq(sh_match(cl, seq, CORE_ID_PAGE + 1, 5), 0);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
	expect_pages(0);
	ck_assert_uint_eq(seq_find(c, cl, seq)->id_head, CORE_NONE);
	ck_assert_uint_eq(seq_find(c, cl, seq)->id_tail, CORE_NONE);
	ck_assert_uint_eq(seq_find(c, cl, seq)->found, 0);
}
END_TEST

/* A prefix that was found is skipped: over whole pages, and into one. */
START_TEST(test_skip)
{
	u64 seq = sh_open(cl, 2 * CORE_ID_PAGE + 9, 0);
	const struct kv_seq *s = seq_find(c, cl, seq);
	struct id_cursor cur;
	u32 i, id[2];
	const u32 nr[] = { 0, 1, CORE_ID_PAGE - 1, CORE_ID_PAGE, CORE_ID_PAGE + 1,
			   2 * CORE_ID_PAGE - 1, 2 * CORE_ID_PAGE };

	ck_assert_int_eq(sh_match_piece(cl, seq, 0, 2 * CORE_ID_PAGE + 9, 0, 5), 0);
	for (i = 0; i < ARRAY_SIZE(nr); i++) {
		cur = (struct id_cursor){ .page = s->id_head };
		ids_skip(c, &cur, nr[i]);
		ids_next(c, &cur, id, 2);
		ck_assert_uint_eq(id[0], nr[i] + 5);
		ck_assert_uint_eq(id[1], nr[i] + 6);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_ids");
	TCase *tc = tcase_create("pages");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_pieces_share_a_page);
	tcase_add_test(tc, test_share_is_full);
	tcase_add_test(tc, test_admission_frees_pages);
	tcase_add_test(tc, test_skip);
	suite_add_tcase(s, tc);
	return sh_run(s);
}
