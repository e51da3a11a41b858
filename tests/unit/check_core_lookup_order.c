// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_lookup_order.c - a lookup changes the order of eviction, and nothing else
 */
#include "tests/unit/lookup_scene.h"

/* ---- recency, and nothing else ---- */

/* Evict one block of the cache: the prompt that it was of. */
static u32 evicted(void)
{
	u32 blk = lru_next(c, 0), seed = block_ids(c, blk)[0];

	index_evict(c, blk);
	sh_check();
	return seed;
}

/* A lookup makes a block the last to go, as a use would. */
START_TEST(test_order)
{
	cache(1, 1000);
	cache(1, 2000);
	cache(1, 3000);
	ck_assert_uint_eq(look(16, 1000), 16);
	ck_assert_uint_eq(evicted(), 2000);
	ck_assert_uint_eq(look(16, 3000), 16);
	ck_assert_uint_eq(evicted(), 1000);
	ck_assert_uint_eq(evicted(), 3000);
}
END_TEST

/* A name that is old by the clock becomes young by a lookup. */
START_TEST(test_stamp)
{
	u32 node, i;

	cache(1, 1000);
	node = c->blocks[block_of(1000, 0)].node;
	for (i = 0; i < 8; i++)
		cache(2, 10000 + 1000 * i);
	ck_assert_uint_lt(c->nodes[node].stamp, lru_units(&c->lrus[0]));
	ck_assert_uint_eq(look(16, 1000), 16);
	ck_assert_uint_eq(c->nodes[node].stamp, lru_units(&c->lrus[0]));
}
END_TEST

/* The interval of a name that is used again after a while, looked up @times before. */
static u32 learned(u32 seed, u32 times)
{
	u32 i, node;
	u64 seq;

	cache(1, seed);
	node = c->blocks[block_of(seed, 0)].node;
	for (i = 0; i < 8; i++) {
		cache(1, seed + 10000 + 1000 * i);
		if (i % 3 == 2 && times)
			ck_assert_uint_eq(look(16, seed), 16);
	}
	seq = sh_open(cl, SH_BT + 1, 0);
	ck_assert_int_eq(sh_match(cl, seq, SH_BT + 1, seed), 0);
	ck_assert_uint_eq(sh_status(cl, seq)->cached_len, SH_BT);
	ck_assert_uint_eq(c->nodes[node].hits, 1);
	ck_assert_int_eq(sh_close(cl, seq), 0);
	return c->nodes[node].interval;
}

/* Lookups before a use do not hide how long ago the use before it was. */
START_TEST(test_age_goes_on)
{
	u32 plain = learned(1000, 0), asked = learned(501000, 2);

	ck_assert_uint_gt(plain, 0);
	/* The age at a lookup is kept as a bucket, so it loses less than one. */
	ck_assert_uint_le(asked, plain);
	ck_assert_uint_ge(asked + 8, plain);
}
END_TEST

START_TEST(test_order_of_host_slots)
{
	u32 e[3], i;

	for (i = 0; i < 3; i++) {
		cache(1, 1000 * (i + 1));
		e[i] = to_host(1000 * (i + 1), 0, true);
	}
	ck_assert_uint_eq(host_part(c, 0)->lru_head, e[0]);
	ck_assert_uint_eq(look(16, 1000), 16);
	ck_assert_uint_eq(host_part(c, 0)->lru_head, e[1]);
	ck_assert_uint_eq(host_part(c, 0)->lru_tail, e[0]);
}
END_TEST

static void advise(u64 seq, u32 advice, u64 value)
{
	struct kvmm_advise_arg *a = (struct kvmm_advise_arg *)sh.args;

	*a = (struct kvmm_advise_arg){ .seq = seq, .advice = advice,
				       .value = value };
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_SEQ_ADVISE, 1, 0, sizeof(*a)), 0);
	ck_assert_int_eq(sh_seq_res(0), 0);
}

/* @_i 0: a term stays; 1: a cold name stays cold, and is evicted first. */
START_TEST(test_advice_stays)
{
	u64 seq = sh_ready(cl, 16, 0, 1000);
	const struct kv_node *n;
	u32 term, hits, interval;

	sh_compute(cl, seq, 0, 16, 1000);
	advise(seq, _i ? KVMM_ADV_COLD : KVMM_ADV_KEEP_UNTIL,
	       _i ? 0 : sh.now + 5000 * MS);
	ck_assert_int_eq(sh_close(cl, seq), 0);
	cache(1, 2000);
	n = &c->nodes[c->blocks[block_of(1000, 0)].node];
	term = n->term;
	hits = n->hits;
	interval = n->interval;
	ck_assert_uint_ne(term, TERM_NONE);
	ck_assert_int_eq(term == TERM_COLD, _i);
	ck_assert_uint_eq(look(16, 1000), 16);
	ck_assert_uint_eq(n->term, term);
	ck_assert_uint_eq(n->hits, hits);
	ck_assert_uint_eq(n->interval, interval);
	ck_assert_uint_eq(evicted(), _i ? 1000 : 2000);
}
END_TEST

/* The copy of @p, a place in the arena, in an arena at @base. */
#define IN(base, p) ((void *)((char *)(base) + ((char *)(p) - (char *)sh.arena)))

/* Clear all that a lookup may change in a copy of the arena. */
static void scrub(void *base)
{
	struct kv_lru *l = IN(base, c->lrus);
	struct core_head *head = IN(base, c->head);
	struct kv_node *n = IN(base, c->nodes);
	struct kv_block *b = IN(base, c->blocks);
	struct kv_entry *e = IN(base, c->entries_low);
	struct kv_part *p = IN(base, host_part(c, 0));
	struct kv_client *client = IN(base, &c->clients[cl]);
	u32 i;

	for (i = 0; i < core_sizes(c)->nr_nodes; i++)
		n[i].stamp = n[i].asked = 0;
	for (i = 0; i < core_sizes(c)->nr_blocks; i++)
		if (b[i].state == BLK_CACHED)
			b[i].next = b[i].prev = 0;
	for (i = 0; i < core_sizes(c)->nr_entries; i++)
		if (e[i].flags & ENTF_LRU)
			e[i].next = e[i].prev = 0;
	memset(l->list, 0, sizeof(l->list));
	memset(l->used, 0, sizeof(l->used));
	memset(&l->inner, 0, sizeof(l->inner));
	for (i = 0; i < LRU_NR_TERMS; i++)
		memset(&l->term[i].list, 0, sizeof(l->term[i].list));
	p->lru_head = p->lru_tail = p->write_next = 0;
	client->last_number = 0;
	for (i = CORE_EV_lookup; i <= CORE_EV_lookup_moving_tokens; i++)
		head->events[i] = 0;
}

static void *snapshot(void)
{
	u64 bytes = core_arena_size(&sh.cfg);
	void *copy = malloc(bytes);

	ck_assert_ptr_nonnull(copy);
	memcpy(copy, sh.arena, bytes);
	scrub(copy);
	return copy;
}

/*
 * Look up the prompt @seed: nothing but the order may change.  Work that an event
 * left to the next is done by a NOP before it.
 */
static void look_quietly(u32 nr, u32 seed, u32 found)
{
	u32 wakes = sh.cl[cl].wakes, creates = sh.nr_creates;
	void *before, *after;

	ck_assert_int_eq(sh_submit(cl, KVMM_OP_NOP, 0, 0, 0), 0);
	before = snapshot();
	ck_assert_uint_eq(look(nr, seed), found);
	after = snapshot();
	ck_assert(!memcmp(before, after, core_arena_size(&sh.cfg)));
	ck_assert_uint_eq(sh.cl[cl].wakes, wakes);
	ck_assert_uint_eq(sh.nr_creates, creates);
	ck_assert_uint_eq(nr_copies + nr_ios, 0);
	free(before);
	free(after);
}

START_TEST(test_nothing_else_changes)
{
	u64 seq;

	cache(6, 0);
	cache(3, 1000);
	(void)to_area(0, 5);
	(void)to_host(0, 4, true);
	(void)to_host(0, 3, true);
	seq = sh_ready(cl, 40, 16, 1000);
	sh_compute(cl, seq, sh_status(cl, seq)->valid_len, 40, 1000);
	advise(seq, KVMM_ADV_KEEP_UNTIL, sh.now + 5000 * MS);
	look_quietly(100, 0, 96);
	look_quietly(48, 1000, 48);
	look_quietly(48, 5000, 0);
	ck_assert_int_eq(sh_close(cl, seq), 0);
	look_quietly(48, 1000, 48);
}
END_TEST

/* While sequences wait for memory a lookup is answered, and admits none. */
START_TEST(test_while_others_wait)
{
	u64 run, wait;

	cache(2, 0);
	run = sh_ready(cl, (POOL - 3) * SH_BT, SH_BT, 5000);
	wait = sh_open(cl, 10 * SH_BT, 0);
	ck_assert_int_eq(sh_match(cl, wait, 10 * SH_BT, 9000), 0);
	ck_assert_uint_eq(sh_state(cl, wait), KVMM_SEQ_WAITING);
	look_quietly(32, 0, 32);
	look_quietly(10 * SH_BT, 9000, 0);
	ck_assert_uint_eq(sh_state(cl, wait), KVMM_SEQ_WAITING);
	ck_assert_int_eq(sh_close(cl, run), 0);
	ck_assert_uint_eq(sh_state(cl, wait), KVMM_SEQ_READY);
}
END_TEST

/* A drained client may look up: it begins nothing by it. */
START_TEST(test_while_drained)
{
	struct kvmm_open_arg a = { .prompt_len = 16 };
	u64 seq;

	cache(2, 0);
	SH_CORE(ck_assert_int_eq(core_drain(c, sh.now, CORE_DRAIN_NODE, 0, true), 0));
	ck_assert_int_eq(sh_open_as(cl, &a, &seq), -ESHUTDOWN);
	look_quietly(32, 0, 32);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("lookup order");
	TCase *tc = tcase_create("lookup order");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_order);
	tcase_add_test(tc, test_stamp);
	tcase_add_test(tc, test_age_goes_on);
	tcase_add_test(tc, test_order_of_host_slots);
	tcase_add_loop_test(tc, test_advice_stays, 0, 2);
	tcase_add_test(tc, test_nothing_else_changes);
	tcase_add_test(tc, test_while_others_wait);
	tcase_add_test(tc, test_while_drained);
	suite_add_tcase(s, tc);
	return sh_run(s);
}
