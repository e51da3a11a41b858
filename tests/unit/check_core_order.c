// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_order.c - order of waiting and of running sequences
 *
 * Sequences wait and change their priorities at random.  The wait list must be
 * sorted after each change, and the walkers check the trees.  No client can
 * degrade a tree to a list.
 */
#include "tests/unit/core_shell.h"
#include "kvmm/core/node/node.h"

#define WAITERS		30u
#define MANY		4096u

static void setup(void)
{
	sh_config(4);
	sh.cfg.starve_ns = 1ull << 60;
	sh.cfg.step_deadline_ns = 1ull << 60;
	sh_start();
}

static void teardown(void)
{
	sh_stop();
}

static u32 rnd(void)
{
	static u64 x = 88172645463325252ull;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return (u32)(x >> 16);
}

static void set_prio(u32 cl, u64 seq, u32 priority)
{
	struct kvmm_prio_arg *a = (void *)sh.args;

	*a = (struct kvmm_prio_arg){ .seq = seq, .priority = priority };
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_SEQ_SETPRIO, 1, 0, sizeof(*a)),
			 0);
	ck_assert_int_eq(sh_seq_res(0), 0);
}

/* Each sequence of the list comes after the one before it. */
static void list_is_sorted(u32 nr)
{
	const struct core *c = sh.core;
	u32 i = c->domains[0].wait_head, n = 0;

	for (; i != CORE_NONE; i = c->seqs[i].next, n++) {
		const struct kv_seq *s = &c->seqs[i];
		const struct kv_seq *p = s->prev == CORE_NONE ? NULL :
						      &c->seqs[s->prev];

		if (p)
			ck_assert(p->priority > s->priority ||
				  (p->priority == s->priority &&
				   p->arrival < s->arrival));
	}
	ck_assert_uint_eq(n, nr);
}

START_TEST(test_wait_list_is_sorted)
{
	u32 cl = sh_attach(1, "a"), i, nr = 0;
	u64 seq[WAITERS], first = sh_ready(cl, 200, 56, 0);

	for (i = 0; i < WAITERS; i++) {
		seq[i] = sh_open(cl, 120, 0);
		ck_assert_int_eq(sh_match(cl, seq[i], 120, 1000 * i), 0);
		list_is_sorted(++nr);
	}
	for (i = 0; i < 200; i++) {
		set_prio(cl, seq[rnd() % WAITERS], rnd() % 5);
		list_is_sorted(nr);
		sh_check();
	}
	for (i = 0; i < WAITERS; i += 2) {
		ck_assert_int_eq(sh_close(cl, seq[i]), 0);
		list_is_sorted(--nr);
		sh_check();
	}
	/* A running sequence's priority: it is in the trees of those. */
	set_prio(cl, first, 7);
	sh_check();
}
END_TEST

/* An event that has done enough leaves the other sequences to the next events. */
static void all_come_in(void)
{
	u32 cl = sh_attach(1, "a"), i, polls = 0;
	u64 seq[4], first = sh_ready(cl, 250, 0, 0);

	for (i = 0; i < ARRAY_SIZE(seq); i++) {
		seq[i] = sh_open(cl, 32, 0);
		ck_assert_int_eq(sh_match(cl, seq[i], 32, 1000 + 1000 * i), 0);
		ck_assert_uint_eq(sh_state(cl, seq[i]), KVMM_SEQ_WAITING);
	}
	ck_assert_int_eq(sh_close(cl, first), 0);
	/* The request admits one sequence, and each event that follows one more. */
	ck_assert_uint_eq(sh_state(cl, seq[0]), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_state(cl, seq[3]), KVMM_SEQ_WAITING);
	while (core_poll(sh.core, sh.now)) {
		sh_check();
		polls++;
	}
	ck_assert_uint_eq(polls, 4);	/* the last finds no sequence */
	for (i = 0; i < ARRAY_SIZE(seq); i++)
		ck_assert_uint_eq(sh_state(cl, seq[i]), KVMM_SEQ_READY);
}

START_TEST(test_an_event_leaves_some_to_the_next)
{
	sh_config(4);
	sh.cfg.starve_ns = 1ull << 60;
	sh.cfg.event_work = 1;
	sh_start();
	all_come_in();
	ck_assert(!core_poll(sh.core, sh.now));
	sh_stop();
}
END_TEST

/*
 * A sequence that was refused during another domain's turn is tried again when
 * that turn is over, if its chances have changed since: no event may follow for
 * long.
 */
START_TEST(test_who_was_refused_is_asked_again)
{
	struct kvmm_attach_req req = sh_attach_req("b");
	u64 full, held, last, seq[4];
	u32 a, b, i;

	sh_config(8);
	sh.cfg.starve_ns = 1ull << 60;
	sh.cfg.event_work = 1;
	sh_start();
	a = sh_attach(1, "a");
	req.limits[0].max = 4 * SH_BLOCK;
	req.weight = 10000;
	b = (u32)sh_attach_as(1, &req);
	sh_settle();
	held = sh_ready(b, 4 * SH_BT, 0, 1);
	full = sh_ready(a, 28 * SH_BT, 0, 2);
	for (i = 0; i < ARRAY_SIZE(seq); i++) {
		seq[i] = sh_open(a, 32, 0);
		ck_assert_int_eq(sh_match(a, seq[i], 32, 1000 + 1000 * i), 0);
	}
	ck_assert_int_eq(sh_close(a, full), 0);
	/* It is the turn of domain b, but all its memory is in use. */
	last = sh_open(b, 4 * SH_BT, 0);
	ck_assert_int_eq(sh_match(b, last, 4 * SH_BT, 9), 0);
	ck_assert_uint_eq(sh_state(a, seq[3]), KVMM_SEQ_WAITING);
	ck_assert_int_eq(sh_close(b, held), 0);
	ck_assert_uint_eq(sh_state(b, last), KVMM_SEQ_WAITING);
	for (i = 0; core_poll(sh.core, sh.now); i++)
		ck_assert_uint_lt(i, 20);
	sh_check();
	ck_assert_uint_eq(sh_state(a, seq[3]), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_state(b, last), KVMM_SEQ_READY);
	sh_stop();
}
END_TEST

static u32 depth(const struct core *c, u32 root)
{
	u32 low, high;

	if (root == CORE_NONE)
		return 0;
	low = depth(c, c->seqs[root].kid[NODE_ORDER][0]);
	high = depth(c, c->seqs[root].kid[NODE_ORDER][1]);
	return 1 + max(low, high);
}

/* Insert in the order of arrival, the usual one; the least possible depth is 12. */
START_TEST(test_tree_is_no_list)
{
	struct kv_seq *seqs = calloc(MANY, sizeof(*seqs));
	struct kv_tenant tenant = { .secret = { 7, 11, 13 } };
	struct kv_domain dom = { .used = 1 };
	struct core c = { .seqs = seqs, .domains = &dom, .tenants = &tenant };
	u32 root = CORE_NONE, i;

	ck_assert_ptr_nonnull(seqs);
	for (i = 0; i < MANY; i++) {
		seqs[i].arrival = i;
		seqs[i].rank = order_rank(&c, &seqs[i]);
		order_add(&c, &root, i, NODE_ORDER);
	}
	ck_assert_uint_lt(depth(&c, root), 48);
	for (i = 0; i < MANY; i += 2)
		order_del(&c, &root, i, NODE_ORDER);
	ck_assert_uint_eq(order_end(&c, root, NODE_ORDER, false), 1);
	ck_assert_uint_eq(order_end(&c, root, NODE_ORDER, true), MANY - 1);
	for (i = MANY - 1; i != CORE_NONE; i = order_prev(&c, root, &seqs[i],
							  NODE_ORDER))
		ck_assert_uint_eq(i % 2, 1);
	free(seqs);
}
END_TEST

/*
 * The last sequence before @before that is in the tree, and was by the time
 * @since.
 */
static u32 aged_plain(const struct kv_seq *seqs, u32 nr, u32 before, u64 since)
{
	while (before-- > 0)
		if (before < nr && seqs[before].family && seqs[before].since <= since)
			return before;
	return CORE_NONE;
}

/* Sequences enter and leave at random; the tree finds the one that a scan finds. */
START_TEST(test_aged_is_found)
{
	static struct kv_seq seqs[WAITERS];
	struct kv_tenant tenant = { .secret = { 7, 11, 13 } };
	struct kv_domain dom = { .used = 1 };
	struct core c = { .seqs = seqs, .domains = &dom, .tenants = &tenant };
	u32 root = CORE_NONE, i, n, at;
	u64 since;

	for (i = 0; i < WAITERS; i++) {
		seqs[i].arrival = i;
		seqs[i].rank = order_rank(&c, &seqs[i]);
	}
	for (n = 0; n < 20000; n++) {
		i = rnd() % WAITERS;
		seqs[i].family = !seqs[i].family;	/* it is in the tree */
		if (seqs[i].family) {
			seqs[i].since = rnd() % 64;
			order_add(&c, &root, i, NODE_ORDER);
		} else {
			order_del(&c, &root, i, NODE_ORDER);
		}
		since = rnd() % 64;
		at = rnd() % (WAITERS + 1);
		ck_assert_uint_eq(order_prev_aged(&c, root, at == WAITERS ?
						  NULL : &seqs[at], since),
				  aged_plain(seqs, WAITERS, at, since));
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("core_order");
	TCase *tc = tcase_create("order");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_wait_list_is_sorted);
	suite_add_tcase(suite, tc);

	tc = tcase_create("tree");
	tcase_add_test(tc, test_tree_is_no_list);
	tcase_add_test(tc, test_aged_is_found);
	tcase_add_test(tc, test_an_event_leaves_some_to_the_next);
	tcase_add_test(tc, test_who_was_refused_is_asked_again);
	suite_add_tcase(suite, tc);
	return sh_run(suite);
}
