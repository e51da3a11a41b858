// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_lease_work.c - the work of one event on leases is bounded
 *
 * A batch has up to 64 entries, and each may concern a prompt of thousands of blocks.
 */
#include "tests/unit/lookup_scene.h"

#define BATCH	3u

static struct kvmm_lease_res made[BATCH];
static u32 work = ALL_WORK;	/* that an event on a batch of leases may do */

/* Lease the first @nr blocks of prompt 0 with each entry of a batch. */
static void lease_again(u32 nr)
{
	struct kvmm_lease_arg *a = (void *)sh.args, arg = { .len = nr * SH_BT, .ms = 1000 };
	u32 i;

	ck_assert_uint_eq(look(nr * SH_BT, 0), nr * SH_BT);
	memcpy(arg.cookie, res->cookie, sizeof(arg.cookie));
	for (i = 0; i < BATCH; i++)
		a[i] = arg;
	c->head->clean_after = 0;
	c->head->cfg.event_work = work;
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_SEQ_LEASE, BATCH, 0,
				   (u32)(BATCH * sizeof(*a))), 0);
	c->head->cfg.event_work = ALL_WORK;
	c->head->clean_after = ~0ull;
	memcpy(made, sh.results, sizeof(made));
	copies_done();
	sh_check();
}

static void lease_batch(u32 nr)
{
	cache(nr, 0);
	lease_again(nr);
}

/* Only the first entry is executed if it is a lot of work. */
START_TEST(test_batch)
{
	u32 i;

	cache(4, 0);
	work = _i ? 1 : ALL_WORK;
	lease_again(4);
	for (i = 0; i < BATCH; i++) {
		ck_assert_int_eq(made[i].status, _i && i ? -EAGAIN : 0);
		ck_assert_uint_eq(made[i].held, made[i].status ? 0 : 64);
		ck_assert_int_eq(!made[i].seq, !!made[i].status);
	}
	ck_assert_uint_eq(c->domains[0].leased, _i ? 4 : 12);
}
END_TEST

/* A lease that is refused has walked the prompt, too. */
START_TEST(test_refused)
{
	cache(4, 0);
	sh_unchecked = true;
	c->clients[cl].nr_free_pages = 1;
	work = 4 * 3;			/* a walk of 4 blocks */
	lease_again(4);
	ck_assert_int_eq(made[0].status, -ENOSPC);
	ck_assert_int_eq(made[1].status, -EAGAIN);
}
END_TEST

/* Advice that looks at each block; a new deadline does not. */
START_TEST(test_advice)
{
	static const u32 moves[] = { KVMM_ADV_PAGEOUT, KVMM_ADV_WILLNEED };
	struct kvmm_advise_arg *a = (void *)sh.args;
	const struct kvmm_seq_res *r = (const void *)sh.results;
	u32 i;

	lease_batch(4);
	c->head->cfg.event_work = 1;
	for (i = 0; i < BATCH; i++)
		a[i] = (struct kvmm_advise_arg){ .seq = made[i].seq, .advice = moves[_i] };
	a[2].advice = KVMM_ADV_KEEP_UNTIL;
	a[2].value = sh.now + 7 * MS;
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_SEQ_ADVISE, BATCH, 0,
				   (u32)(BATCH * sizeof(*a))), 0);
	ck_assert_int_eq(r[0].status, 0);
	ck_assert_int_eq(r[1].status, -EAGAIN);
	ck_assert_uint_eq(r[1].valid_len, 0);
	ck_assert_int_eq(r[2].status, 0);
	c->head->cfg.event_work = ALL_WORK;
}
END_TEST

/* Sequences that begin with a lease; others need no such work. */
START_TEST(test_open)
{
	struct kvmm_open_arg *a = (void *)sh.args;
	const struct kvmm_open_res *r = (const void *)sh.results;
	u32 i;

	lease_batch(4);
	c->head->cfg.event_work = 1;
	for (i = 0; i < BATCH; i++)
		a[i] = (struct kvmm_open_arg){ .prompt_len = 80, .max_tokens = 4,
					       .lease = i < 2 ? made[0].number : 0 };
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_SEQ_OPEN, BATCH, 0,
				   (u32)(BATCH * sizeof(*a))), 0);
	ck_assert_int_eq(r[0].status, 0);
	ck_assert_int_eq(r[1].status, -EAGAIN);
	ck_assert_uint_eq(r[1].seq, 0);
	ck_assert_uint_eq(r[1].limiting_pool, KVMM_NO_POOL);
	ck_assert_int_eq(r[2].status, 0);
	c->head->cfg.event_work = ALL_WORK;
}
END_TEST

/*
 * Promotion goes on with each tick, for one block at least.  It leaves nothing of its
 * work to the event that follows.
 */
START_TEST(test_promotion)
{
	struct kvmm_advise_arg *a = (void *)sh.args;
	u32 nr;

	lease_batch(6);
	(void)!core_drop_caches(c, sh.now, 0, 1000);
	*a = (struct kvmm_advise_arg){ .seq = made[0].seq, .advice = KVMM_ADV_WILLNEED };
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_SEQ_ADVISE, 1, 0, sizeof(*a)), 0);
	c->head->cfg.event_work = 1;
	for (nr = 1; nr <= 6; nr++) {
		sh_tick(1);
		ck_assert_uint_eq(sh_count(CORE_EV_lease_promote), nr);
		ck_assert_uint_eq(c->work, 0);
	}
	ck_assert_uint_eq(nr_copies, 6);
	c->head->cfg.event_work = ALL_WORK;
	copies_done();
	ck_assert_uint_eq(c->head->promote_head, CORE_NONE);
	ck_assert_uint_eq(look(96, 0), 96);
	ck_assert_uint_eq(res->tokens[KVMM_TIER_DEVICE], 96);
}
END_TEST

/* A lease that is promoted again waits for its turn again. */
START_TEST(test_turns)
{
	struct kvmm_advise_arg *a = (void *)sh.args;
	u32 i;

	lease_batch(4);
	c->head->cfg.event_work = ALL_WORK;
	for (i = 0; i < BATCH; i++)
		a[i] = (struct kvmm_advise_arg){ .seq = made[i % 2].seq,
						 .advice = KVMM_ADV_WILLNEED };
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_SEQ_ADVISE, BATCH, 0,
				   (u32)(BATCH * sizeof(*a))), 0);
	ck_assert_uint_eq(c->head->promote_head, KVMM_SEQ_INDEX(made[1].number));
	ck_assert_uint_eq(c->head->promote_tail, KVMM_SEQ_INDEX(made[0].number));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("lease-work");
	TCase *tc = tcase_create("work");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, test_batch, 0, 2);
	tcase_add_test(tc, test_refused);
	tcase_add_loop_test(tc, test_advice, 0, 2);
	tcase_add_test(tc, test_open);
	tcase_add_test(tc, test_promotion);
	tcase_add_test(tc, test_turns);
	suite_add_tcase(s, tc);
	return sh_run(s);
}
