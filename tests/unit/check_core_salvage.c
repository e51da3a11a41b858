// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_salvage.c - content and records that a salvage keeps
 *
 * A core ends inside an event, and the next one makes the arena anew.  Content
 * with a name stays in the index: on the device, in the host pool, in an area.
 * Sequences keep the fields that were set when they were made.
 */
#include "kvmm/core/node/node.h"
#include "tests/unit/core_shell.h"

#define POOL	16u	/* blocks */
#define SLOT	(2 * SH_EXTENT)
#define MOST	64u	/* requests in flight */
#define HOST	CORE_POOL_HOST
#define AREA	CORE_POOL_AREA

static struct core *c;
static u32 cl;
static struct core_copy copies[MOST];
static struct core_io ios[MOST];
static u32 nr_copies, nr_ios;

static void on_copy(const struct core_copy *cp)
{
	ck_assert_uint_lt(nr_copies, MOST);
	copies[nr_copies++] = *cp;
}

static void on_io(const struct core_io *io)
{
	ck_assert_uint_lt(nr_ios, MOST);
	ios[nr_ios++] = *io;
}

/* Answer all requests, the newest first. */
static void answers(void)
{
	while (nr_copies || nr_ios) {
		if (nr_copies)
			SH_CORE(core_copy_done(c, sh.now, copies[--nr_copies].id, 0));
		else
			SH_CORE(core_io_done(c, sh.now, ios[--nr_ios].id, 0));
		sh_settle();
	}
}

static void setup(void)
{
	u32 area;

	sh_on_copy = on_copy;
	sh_on_io = on_io;
	nr_copies = 0;
	nr_ios = 0;
	sh_config(POOL / SH_PER);
	sh.cfg.host_bytes = 4 * SLOT;
	sh.cfg.area_bytes = 16 * SLOT;
	sh.cfg.swappiness = 200;
	sh_start();
	c = sh.core;
	cl = sh_attach(1, "a");
	ck_assert_int_eq(core_area_add(c, sh.now, sh.cfg.area_bytes, 0, &area), 0);
}

static void teardown(void)
{
	sh_stop();
}

/* The core ends inside an event, and another one salvages the arena. */
static void salvaged(void)
{
	struct sh_client *k = &sh.cl[cl];
	struct core_bind bind = {
		.ctl = &k->ctl, .seqs = k->seqs, .extents = k->extents,
		.tables = k->tables, .events = k->events,
		.nr_events = SH_EVENTS,
	};
	struct core_attach_info info;
	struct core_report r;
	u64 committed;
	int how;

	core_commit_begin(c);
	core_commit_end(c, cl);
	c->head->event = 1;
	memset(c, 0xa5, core_struct_size());
	nr_copies = 0;
	nr_ios = 0;
	memset(&k->ctl, 0, sizeof(*k) - offsetof(struct sh_client, ctl));
	how = core_adopt(c, sh.arena, core_arena_size(&sh.cfg), &sh.cfg, &sh_ops,
			 NULL, sh.now, &r);
	ck_assert_msg(how == CORE_ADOPT_SALVAGED, "%d: %s", how, r.text);
	ck_assert_int_eq(core_client_resume(c, sh.now, cl, k->number, &info,
					    &committed), 0);
	core_client_bind(c, cl, &bind);
	sh_tick(1);
}

static void advise(u64 seq, u32 advice)
{
	struct kvmm_advise_arg *a = (struct kvmm_advise_arg *)sh.args;

	*a = (struct kvmm_advise_arg){ .seq = seq, .advice = advice };
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_SEQ_ADVISE, 1, 0, sizeof(*a)), 0);
	ck_assert_int_eq(sh_seq_res(0), 0);
	sh_settle();
}

/* Cache of 4 blocks, with copies in the host pool. */
static void copied(void)
{
	u64 seq = sh_ready(cl, 4 * SH_BT, 0, 1);

	sh_compute(cl, seq, 0, 4 * SH_BT, 1);
	advise(seq, KVMM_ADV_PAGEOUT);
	while (nr_copies) {
		SH_CORE(core_copy_done(c, sh.now, copies[--nr_copies].id, 0));
		sh_settle();
	}
	ck_assert_int_eq(sh_close(cl, seq), 0);
}

static u64 slots(u32 pool)
{
	struct core_tier_view v;

	ck_assert_int_eq(core_get_tier(c, pool, &v), 0);
	ck_assert_uint_eq(v.limbo + v.poison, 0);
	return v.used / SLOT;
}

/* Tokens of the prompt that a new sequence finds. */
static u32 found(void)
{
	u64 seq = sh_open(cl, 4 * SH_BT + 1, 0);

	ck_assert_int_eq(sh_match(cl, seq, 4 * SH_BT + 1, 1), 0);
	answers();
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
	return sh_status(cl, seq)->cached_len;
}

/* Clean copies stay beside their blocks, and have the names after an eviction. */
START_TEST(test_clean_copies_stay)
{
	copied();
	ck_assert_uint_eq(slots(HOST), 4);
	salvaged();
	ck_assert_uint_eq(sh_domain(cl).blocks[BLK_CACHED], 4);
	ck_assert_uint_eq(slots(HOST), 4);
	ck_assert_int_eq(core_evict(c, sh.now, 0, POOL), 4);
	ck_assert_uint_eq(slots(HOST), 4);
	ck_assert_uint_eq(found(), 4 * SH_BT);
}
END_TEST

/* Content that only the host pool has keeps its names. */
START_TEST(test_names_of_host_slots_stay)
{
	copied();
	ck_assert_int_eq(core_evict(c, sh.now, 0, POOL), 4);
	salvaged();
	ck_assert_uint_eq(sh_domain(cl).blocks[BLK_CACHED], 0);
	ck_assert_uint_eq(slots(HOST), 4);
	ck_assert_uint_eq(found(), 4 * SH_BT);
	ck_assert_uint_eq(sh_domain(cl).blocks[BLK_SEALED], 4);
}
END_TEST

/* Host slots stay, and slots of the area that were written. */
START_TEST(test_slots_of_areas_stay)
{
	copied();
	ck_assert_int_eq(core_evict(c, sh.now, 0, POOL), 4);
	sh_tick(1);
	ck_assert_uint_eq(nr_ios, 4);
	if (_i)
		answers();
	salvaged();
	nr_ios = 0;
	ck_assert_uint_eq(slots(HOST), 4);
	ck_assert_uint_eq(found(), 4 * SH_BT);
	if (_i)
		ck_assert_uint_eq(slots(AREA), 4);
}
END_TEST

/* A copy that was under way is no copy, and its slot is free. */
START_TEST(test_copies_in_flight_are_dropped)
{
	u64 seq = sh_ready(cl, 4 * SH_BT, 0, 1);

	sh_compute(cl, seq, 0, 4 * SH_BT, 1);
	advise(seq, KVMM_ADV_PAGEOUT);
	ck_assert_uint_eq(nr_copies, 4);
	salvaged();
	nr_copies = 0;
	ck_assert_uint_eq(sh_domain(cl).blocks[BLK_CACHED], 4);
	ck_assert_uint_eq(slots(HOST), 0);
	ck_assert_uint_eq(core_sizes(c)->nr_entries, c->head->nr_free_entries);
	ck_assert_uint_eq(found(), 4 * SH_BT);
}
END_TEST

/* A name whose parent does not lead to it is dropped, with those below it. */
START_TEST(test_wrong_parent_is_dropped)
{
	u64 seq = sh_ready(cl, 4 * SH_BT, 0, 1);
	u32 blk, i;

	sh_compute(cl, seq, 0, 4 * SH_BT, 1);
	blk = table_get(c, &seq_find(c, cl, seq)->tab, 2);
	if (_i)
		c->blocks[blk].hash[_i - 1] ^= 1;
	else
		block_ids(c, blk)[3] ^= 1;
	salvaged();
	ck_assert_uint_eq(sh_domain(cl).blocks[BLK_CACHED], 2);
	ck_assert_uint_eq(found(), 2 * SH_BT);
	for (i = 0; i < core_sizes(c)->nr_nodes; i++)
		ck_assert_uint_eq(c->nodes[i].flags & 1, 0);
}
END_TEST

/* ---- sequences ---- */

/* A sequence keeps its fields of SEQ_OPEN; its table and its steps are void. */
START_TEST(test_sequence_keeps_its_identity)
{
	struct kvmm_open_arg a = {
		.prompt_len = 40, .max_tokens = 24, .priority = 9, .salt = 77,
		.flags = KVMM_OPEN_NO_INDEX,
	};
	u64 seq, kid, arrival;
	struct core_seq_view v;
	u32 family;

	ck_assert_int_eq(sh_open_as(cl, &a, &seq), 0);
	ck_assert_int_eq(sh_match(cl, seq, 40, 1), 0);
	sh_compute(cl, seq, 0, 40, 1);
	ck_assert_int_eq(sh_fork(cl, seq, 1, &kid), 0);
	ck_assert_int_eq(core_get_seq(c, KVMM_SEQ_INDEX(kid), &v), 0);
	arrival = v.arrival;
	family = v.family;
	salvaged();
	ck_assert_int_eq(core_get_seq(c, KVMM_SEQ_INDEX(kid), &v), 0);
	ck_assert_uint_eq(v.seq, kid);
	ck_assert_uint_eq(v.state, KVMM_SEQ_RECOMPUTE);
	ck_assert_uint_eq(v.priority, 9);
	ck_assert_uint_eq(v.prompt_len, 40);
	ck_assert_uint_eq(v.max_tokens, 24);
	ck_assert_uint_eq(v.valid_len, 0);
	ck_assert_uint_eq(v.nr_blocks, 0);
	ck_assert_uint_eq(v.seq_epoch, 1);
	ck_assert_uint_eq(v.nr_preempted, 1);
	ck_assert_uint_eq(v.arrival, arrival);
	ck_assert_uint_eq(v.family, family);
	ck_assert_uint_eq(seq_find(c, cl, kid)->lost_len, 40);
	ck_assert_uint_eq(seq_find(c, cl, kid)->salt, 77);
	ck_assert_uint_eq(seq_find(c, cl, kid)->fam_next, KVMM_SEQ_INDEX(seq));
	ck_assert_uint_eq(seq_find(c, cl, kid)->fam_prev, KVMM_SEQ_INDEX(seq));
	/* A new sequence comes after it, in another family. */
	(void)sh_open(cl, 4, 0);
	ck_assert_int_eq(core_get_seq(c, 2, &v), 0);
	ck_assert_uint_eq(v.arrival, arrival + 1);
	ck_assert_uint_eq(v.family, family + 1);
}
END_TEST

/* The blocks of a sequence are counted as freed, and its steps as ended. */
START_TEST(test_counters_are_balanced)
{
	u64 seq = sh_ready(cl, 4 * SH_BT, 8, 1), before[NR_CORE_EVENTS];
	u64 ev[NR_CORE_EVENTS];

	sh_compute(cl, seq, 0, 3 * SH_BT, 1);
	ck_assert_int_eq(sh_begin(cl, seq, 3 * SH_BT, SH_BT), 0);
	core_get_events(c, before);
	ck_assert_uint_eq(before[CORE_EV_pgalloc] - before[CORE_EV_pgfree], 4);
	ck_assert_uint_eq(before[CORE_EV_step_begin] - before[CORE_EV_step_end], 1);
	salvaged();
	/* The block that the step could write was freed when the client came back. */
	core_get_events(c, ev);
	ck_assert_uint_eq(ev[CORE_EV_pgalloc], before[CORE_EV_pgalloc]);
	ck_assert_uint_eq(ev[CORE_EV_pgfree], before[CORE_EV_pgfree] + 1);
	ck_assert_uint_eq(ev[CORE_EV_step_begin], before[CORE_EV_step_begin]);
	ck_assert_uint_eq(ev[CORE_EV_step_end], ev[CORE_EV_step_begin]);
	ck_assert_uint_eq(ev[CORE_EV_seq_open], before[CORE_EV_seq_open]);
	ck_assert_uint_eq(ev[CORE_EV_seq_close], before[CORE_EV_seq_close]);
	ck_assert_uint_eq(ev[CORE_EV_admit], before[CORE_EV_admit]);
}
END_TEST

/* Handles and stamps go on behind those of the sequences that stay. */
START_TEST(test_stamps_go_on)
{
	u64 seq = sh_open(cl, 40, 24), gone = sh_open(cl, 40, 24);
	u32 at = KVMM_SEQ_INDEX(gone), was;
	u64 *ev = c->head->events;

	ck_assert_int_eq(sh_close(cl, gone), 0);
	was = c->seqs[at].generation;
	seq_find(c, cl, seq)->family = 50;
	seq_find(c, cl, seq)->arrival = 60;
	c->head->family = 50;
	c->head->arrival = 60;
	ev[CORE_EV_seq_open] = 0;
	ev[CORE_EV_pgfree] = 5;
	ev[CORE_EV_pgalloc] = 0;
	ev[CORE_EV_step_begin] = 9;
	ev[CORE_EV_step_end] = 7;
	salvaged();
	ck_assert_uint_eq(c->seqs[at].generation, was + 1);
	ck_assert_uint_eq(c->head->family, 51);
	ck_assert_uint_eq(c->head->arrival, 61);
	ck_assert_uint_eq(c->clients[cl].nr_seqs, 1);
	ck_assert_uint_eq(c->clients[cl].free_seq, at);
	ck_assert_uint_eq(ev[CORE_EV_seq_open], 2);
	ck_assert_uint_eq(ev[CORE_EV_seq_close], 1);
	ck_assert_uint_eq(ev[CORE_EV_pgalloc], 5);
	ck_assert_uint_eq(ev[CORE_EV_step_begin], 9);
	ck_assert_uint_eq(ev[CORE_EV_step_end], 9);
}
END_TEST

/* Many families: each fork finds its kin again, in whichever order. */
START_TEST(test_families_are_linked)
{
	u64 seq[9], kid[9][2];
	u32 i, n;

	for (i = 0; i < 9; i++) {
		seq[i] = sh_ready(cl, SH_BT, 0, 100 * i);
		sh_compute(cl, seq[i], 0, SH_BT, 100 * i);
		ck_assert_int_eq(sh_fork(cl, seq[i], 2, kid[i]), 0);
	}
	salvaged();
	for (i = 0; i < 9; i++) {
		const struct kv_seq *s = seq_find(c, cl, seq[i]);

		for (n = 0; n < 3; n++) {
			ck_assert_uint_eq(s->family, seq_find(c, cl, kid[i][0])->family);
			ck_assert_uint_eq(c->seqs[s->fam_next].fam_prev,
					  (u32)(s - c->seqs));
			s = &c->seqs[s->fam_next];
		}
		ck_assert_ptr_eq(s, seq_find(c, cl, seq[i]));
		ck_assert_uint_ne(s->fam_next, s->fam_prev);
	}
}
END_TEST

/* All records of ids and of holds are free, and no evicted name is remembered. */
START_TEST(test_free_lists)
{
	const struct core_sizes *s = core_sizes(c);
	u64 seq = sh_open(cl, 40, 24);
	u32 i, n;

	ck_assert_int_eq(sh_match_piece(cl, seq, 0, 20, 0, 1), 0);
	ck_assert_uint_eq(c->head->free_idpage, 1);
	for (i = 0; i < s->nr_ghosts; i++)
		c->ghosts[i].domain = 4;
	salvaged();
	for (i = c->head->free_hold, n = 0; i != CORE_NONE; i = c->holds[i].next)
		ck_assert_uint_eq(i, n++);
	ck_assert_uint_eq(n, s->nr_holds);
	for (i = c->head->free_idpage, n = 0; i != CORE_NONE; i = c->idpages[i].next)
		ck_assert_uint_eq(i, n++);
	ck_assert_uint_eq(n, s->nr_idpages);
	ck_assert_uint_eq(c->head->nr_free_idpages, n);
	for (i = 0; i < s->nr_ghosts; i++)
		ck_assert_uint_eq(c->ghosts[i].domain, GHOST_UNUSED);
	ck_assert_uint_eq(c->clients[cl].nr_idpages, 0);
}
END_TEST

/* Only clients that exist, of the tenant, can have an extent mapped. */
START_TEST(test_holders_of_extents)
{
	u64 seq = sh_ready(cl, SH_BT, 0, 1);
	struct kv_extent *x = c->extents;

	sh_compute(cl, seq, 0, SH_BT, 1);
	ck_assert_int_eq(sh_close(cl, seq), 0);
	while (x->state != EXT_SPAN)
		x++;
	ck_assert_uint_eq(x->sent, BIT_ULL(cl));
	x->sent |= BIT_ULL(3);
	x->mapped |= BIT_ULL(3);
	x->owed |= BIT_ULL(3);
	salvaged();
	ck_assert_uint_eq(x->sent, BIT_ULL(cl));
	ck_assert_uint_eq(x->mapped, BIT_ULL(cl));
	ck_assert_uint_eq(x->owed, 0);
	ck_assert_uint_eq(c->clients[cl].nr_unacked, 0);
}
END_TEST

/* ---- damage ---- */

/* Salvage a copy of the arena; @text: the report must have it, NULL: no fault. */
static void try(const char *text, const char *what)
{
	u64 bytes = core_arena_size(&sh.cfg);
	void *copy = aligned_alloc(64, ALIGN_UP(bytes, 64ull));
	struct core *next = calloc(1, core_struct_size());
	struct core_report r;
	int how;

	memcpy(copy, sh.arena, bytes);
	((struct core_head *)copy)->event = 1;
	how = core_adopt(next, copy, bytes, &sh.cfg, &sh_ops, NULL, sh.now, &r);
	if (!text)
		ck_assert_msg(how == CORE_ADOPT_SALVAGED, "%s: %d: %s", what, how,
			      r.text);
	else
		ck_assert_msg(how == -EUCLEAN && strstr(r.text, text), "%s: %d: %s",
			      what, how, r.text);
	/* No extent leaves the pool; a tick would find that, too. */
	if (!text)
		ck_assert_uint_eq(next->head->zones[0].resizing, 0);
	free(copy);
	free(next);
}

#define refused(text, field, value)					\
do {									\
	u64 was_ = field;						\
									\
	field = value;							\
	try(text, #field " = " #value);					\
	field = was_;							\
} while (0)
#define accepted(field, value)	refused(NULL, field, value)

START_TEST(test_damaged_head_and_domain)
{
	struct kv_domain *d = c->domains;

	refused("extents in use", c->head->zones[0].nr_online, 0);
	refused("extents in use", c->head->zones[0].nr_online, POOL / SH_PER + 1);
	refused("extents of pool", core_pool(c, AREA)->nr_extents, 64);
	refused("use of tenant", c->tenants[0].used, 2);
	refused("use of domain", d->used, 2);
	refused("domain", d->tenant, sh.cfg.max_tenants);
	refused("domain", d->tenant, 1);
	refused("domain", d->group[0].block_tokens, 40);
	refused("domain", d->group[0].block_tokens, 4112);
	refused("domain", d->name[0], 0);
	refused("domain", d->name[KVMM_NAME_LEN - 1], 'x');
	refused("domain", d->weight, 0);
	try(NULL, "as it was");
}
END_TEST

START_TEST(test_damaged_clients)
{
	struct kv_client *k = &c->clients[cl];
	struct kv_seq *s;
	u64 seq = sh_open(cl, 40, 24);

	s = seq_find(c, cl, seq);
	refused("facts of client", k->state, CLI_DEAD + 1);
	refused("facts of client", k->domain, sh.cfg.max_domains);
	refused("facts of client", k->domain, 1);
	refused("facts of client", k->tenant, 1);
	refused("facts of client", k->max_steps, 0);
	refused("facts of client", k->max_steps, sh.cfg.max_steps + 1);
	refused("facts of client", k->max_seqs, 0);
	refused("facts of client", k->max_seqs, SH_SEQS + 1);
	accepted(k->committed, k->last_number + 1);
	refused("facts of seq", s->client, 1);
	refused("facts of seq", s->domain, 1);
	refused("facts of seq", s->prompt_len, 0);
	refused("facts of seq", s->state, KVMM_NR_SEQ_STATES);
	refused("facts of seq", s->nr_retains, SEQ_RETAINS + 1);
	accepted(s->nr_retains, SEQ_RETAINS);
	refused("facts of seq", s->open_flags, 16);
	accepted(s->open_flags, 15);
	refused("facts of seq", s->max_tokens,
		core_cfg(c)->nr_tables * KVMM_TABLE_ENTRIES * SH_BT - 39);
	accepted(s->max_tokens, core_cfg(c)->nr_tables * KVMM_TABLE_ENTRIES * SH_BT - 40);
}
END_TEST

START_TEST(test_damaged_extents)
{
	u64 seq = sh_ready(cl, SH_BT, 0, 1);
	struct kv_extent *x = c->extents;

	sh_compute(cl, seq, 0, SH_BT, 1);
	ck_assert_int_eq(sh_close(cl, seq), 0);
	while (x->state != EXT_SPAN)
		x++;
	x->state = EXT_BACKED;
	refused("memory of extent", x->backed, 2);
	refused("tenant of extent", x->tenant, sh.cfg.max_tenants);
	refused("tenant of extent", x->tenant, 1);
	accepted(x->backed, 0);
}
END_TEST

/* Counts of unfinished work are reset, and parts of unused domains cleared. */
START_TEST(test_work_is_reset)
{
	struct core_head *h = c->head;
	const u8 zero[sizeof(struct kv_part)] = { 0 };

	h->zones[0].resizing = 1;
	h->more = 1;
	h->bar_pass = 5;
	h->zones[0].evac_after = ~0ull;
	h->clean_after = ~0ull;
	h->zones[0].create_after = ~0ull;
	h->nr_copies = 7;
	try(NULL, "work that was not done");
	salvaged();
	ck_assert_uint_eq(h->more, 0);
	ck_assert_uint_eq(h->bar_pass, 0);
	ck_assert_uint_eq(h->zones[0].evac_after, 0);
	ck_assert_uint_eq(h->clean_after, 0);
	ck_assert_uint_eq(h->zones[0].create_after, 0);
	ck_assert_uint_eq(h->nr_copies, 0);
	ck_assert_mem_eq(part_at(c, part_index(c, 5, HOST)), zero, sizeof(zero));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_salvage");
	TCase *tc = tcase_create("content");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_clean_copies_stay);
	tcase_add_test(tc, test_names_of_host_slots_stay);
	tcase_add_loop_test(tc, test_slots_of_areas_stay, 0, 2);
	tcase_add_test(tc, test_copies_in_flight_are_dropped);
	tcase_add_loop_test(tc, test_wrong_parent_is_dropped, 0, 3);
	suite_add_tcase(s, tc);
	tc = tcase_create("sequences");
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_sequence_keeps_its_identity);
	tcase_add_test(tc, test_counters_are_balanced);
	tcase_add_test(tc, test_stamps_go_on);
	tcase_add_test(tc, test_families_are_linked);
	tcase_add_test(tc, test_free_lists);
	tcase_add_test(tc, test_holders_of_extents);
	suite_add_tcase(s, tc);
	tc = tcase_create("damage");
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_damaged_head_and_domain);
	tcase_add_test(tc, test_damaged_clients);
	tcase_add_test(tc, test_damaged_extents);
	tcase_add_test(tc, test_work_is_reset);
	suite_add_tcase(s, tc);
	return sh_run(s);
}
