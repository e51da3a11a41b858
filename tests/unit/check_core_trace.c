// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_trace.c - trace records of decisions, and the last shortage
 *
 * Each scene provokes some events.  It is played with all events on, with all
 * off, and with each of its events on alone: only events that are on are
 * recorded, and the core does the same in every case.
 */
#include "tests/unit/core_shell.h"
#include "kvmm/core/node/node.h"

#define RING	1024u
#define STARVE	50u	/* ms, as in sh_config() */
#define ALL	((u32)(BIT_ULL(NR_CORE_TRACE) - 1))
#define EV(name) BIT(CORE_TRACE_##name)

static struct core_copy copies[64];
static u32 nr_copies, cl, on;
static struct core_trace *ring;
static struct core_trace_rec rec[RING];

static void on_copy(const struct core_copy *cp)
{
	ck_assert_uint_lt(nr_copies, ARRAY_SIZE(copies));
	copies[nr_copies++] = *cp;
}

static void do_copies(void)
{
	while (nr_copies) {
		u64 id = copies[--nr_copies].id;

		SH_CORE(core_copy_done(sh.core, sh.now, id, 0));
		sh_settle();
	}
}

static void ring_lend(u32 nr)
{
	free(ring);
	ring = calloc(1, core_trace_bytes(nr));
	core_trace_attach(sh.core, sh.now, ring, nr);
}

static void switch_all(void)
{
	u32 i;

	for (i = 0; i < NR_CORE_TRACE; i++)
		ck_assert_int_eq(core_trace_set(sh.core, i, on >> i & 1), 0);
	ck_assert_uint_eq(core_trace_enabled(sh.core), on);
}

/* Start with a pool of @extents, and a host pool if there are @slots. */
static void start(u32 extents, u32 slots)
{
	sh_on_copy = on_copy;
	nr_copies = 0;
	sh_config(extents);
	sh.cfg.host_bytes = slots * 2 * SH_EXTENT;
	sh.cfg.swappiness = 200;
	sh_start();
	ring_lend(RING);
	switch_all();
	cl = sh_attach(1, "a");
}

static u64 wait_for(u32 client, u32 tokens, u32 seed)
{
	u64 seq = sh_open(client, tokens, 0);

	ck_assert_int_eq(sh_match(client, seq, tokens, seed), 0);
	return seq;
}

/* The pool of 8 blocks is full: @old has 2 of them, @new 6. */
static void fill(u64 *old, u64 *new)
{
	sh_warm(cl);
	*old = sh_ready(cl, 32, 64, 1000);
	sh_compute(cl, *old, 0, 32, 1000);
	*new = sh_ready(cl, 64, 64, 2000);
	sh_compute(cl, *new, 0, 64, 2000);
	sh_compute(cl, *new, 64, 96, 2000);
}

/* ---- scenes ---- */

static void growth(void)
{
	u64 old, new;

	start(2, 0);
	fill(&old, &new);
	ck_assert_int_eq(sh_begin(cl, old, 32, 1), 0);
	ck_assert_uint_eq(sh_state(cl, new), KVMM_SEQ_RECOMPUTE);
}

static void refusal(void)
{
	u64 old, new;

	start(2, 0);
	fill(&old, &new);
	ck_assert_int_eq(sh_begin(cl, new, 96, 1), -EAGAIN);
	ck_assert_uint_eq(sh_state(cl, new), KVMM_SEQ_RECOMPUTE);
	ck_assert_int_eq(sh_match(cl, sh_open(cl, 112, 0), 112, 3000), 0);
}

static void swapped(void)
{
	u64 old, new;

	start(2, 20);
	fill(&old, &new);
	ck_assert_int_eq(sh_begin(cl, old, 32, 1), -EAGAIN);
	do_copies();
	ck_assert_uint_eq(sh_state(cl, new), KVMM_SEQ_SWAPPED);
	ck_assert_int_eq(sh_end_empty(cl, sh.cl[cl].step), 0);
	ck_assert_int_eq(sh_close(cl, old), 0);
	do_copies();		/* of the cache that it leaves, too */
	sh_tick(1);
	do_copies();
	ck_assert_uint_eq(sh_state(cl, new), KVMM_SEQ_READY);
}

/* Cache above a new limit is evicted, and a waiting sequence no longer fits. */
static void limited(void)
{
	u32 dom, seen;
	u64 seq, waits;

	start(4, 0);
	dom = sh.cl[cl].info.domain;
	seq = sh_ready(cl, 128, 0, 0);
	sh_compute(cl, seq, 0, 128, 0);
	ck_assert_int_eq(sh_close(cl, seq), 0);
	SH_CORE(ck_assert_int_eq(core_domain_set(sh.core, sh.now, dom,
						 CORE_LIMIT_MAX,
						 6 * SH_BLOCK), 0));
	seen = (u32)(sh_pool().cached / SH_BLOCK);
	ck_assert_uint_eq(seen, 6);
	seq = sh_ready(cl, 64, 0, 1000);
	waits = wait_for(cl, 64, 2000);
	ck_assert_uint_eq(sh_state(cl, waits), KVMM_SEQ_WAITING);
	SH_CORE(ck_assert_int_eq(core_pool_resize(sh.core, sh.now, 0, SH_EXTENT),
				 0));
	SH_CORE(ck_assert_int_eq(core_domain_set(sh.core, sh.now, dom,
						 CORE_LIMIT_MAX,
						 2 * SH_BLOCK), 0));
	sh_settle();
	ck_assert_uint_eq(sh_state(cl, waits), KVMM_SEQ_FAILED);
}

static void stolen(void)
{
	u32 other;
	u64 seq;

	start(2, 0);
	other = sh_attach(1, "b");
	sh_warm(cl);
	seq = sh_ready(cl, 128, 0, 0);
	sh_compute(cl, seq, 0, 128, 0);
	ck_assert_int_eq(sh_close(cl, seq), 0);
	seq = sh_ready(other, 64, 0, 1000);
	ck_assert_uint_eq(sh_state(other, seq), KVMM_SEQ_READY);
}

static void asked_back(void)
{
	u32 other;

	start(8, 0);
	other = sh_attach(2, "b");
	sh_warm(cl);
	sh_tick(STARVE);
	ck_assert_uint_eq(sh_state(other, wait_for(other, 64, 7)),
			  KVMM_SEQ_READY);
	ck_assert_uint_gt(sh_count(CORE_EV_extent_revoke), 0);
}

static void ends(void)
{
	struct kvmm_attach_req req = sh_attach_req("a");
	u32 other;

	start(4, 0);
	other = sh_attach(1, "b");
	ck_assert_int_eq(sh_submit(other, KVMM_OP_DETACH, 0, 0, 0), 0);
	sh_die(cl);
	sh_quiet(cl);
	req.identity[5] = 1;	/* replaces the former domain */
	cl = (u32)sh_attach_as(1, &req);
	SH_CORE(core_device_failed(sh.core, sh.now, 0, CORE_DEVICE_CUT));
}

/* A client sits in a step while another one's sequence waits. */
static void killed(void)
{
	u32 other;
	u64 seq;

	start(4, 0);
	other = sh_attach(1, "a");
	seq = sh_ready(cl, 200, 24, 0);
	sh_compute(cl, seq, 0, 200, 0);
	ck_assert_int_eq(sh_begin(cl, seq, 200, 24), 0);
	(void)wait_for(other, 100, 700);
	sh_tick(500);
	sh_tick(1);
	ck_assert_uint_eq(sh.cl[cl].killed, 1);
}

static void adopted(void)
{
	struct core_attach_info info;
	struct core_report r;
	u64 committed;

	start(4, 0);
	memset(sh.core, 0xa5, core_struct_size());
	ck_assert_int_eq(core_adopt(sh.core, sh.arena,
				    core_arena_size(&sh.cfg), &sh.cfg, &sh_ops,
				    NULL, sh.now, &r), CORE_ADOPT_WHOLE);
	/* Events that were on are on in the new ring, which is empty. */
	ck_assert_uint_eq(core_trace_enabled(sh.core), 0);
	ring_lend(RING);
	ck_assert_uint_eq(core_trace_enabled(sh.core), on);
	ck_assert_int_eq(core_client_resume(sh.core, sh.now, cl,
					    sh.cl[cl].number, &info,
					    &committed), 0);
}

static const struct {
	void	(*play)(void);
	u32	events;		/* at least these */
} scenes[] = {
	{ growth, EV(client_attach) | EV(domain_create) | EV(admit) |
		  EV(grant) | EV(oom) | EV(preempt) | EV(recompute) },
	{ refusal, EV(refuse) | EV(oom) | EV(preempt) | EV(recompute) |
		   EV(admit_stall) },
	{ swapped, EV(preempt) | EV(swap_out) | EV(swap_in) },
	{ limited, EV(limit_set) | EV(limit_reclaim) | EV(evict) |
		   EV(admit_stall) | EV(pool_resize) | EV(seq_fail) | EV(oom) },
	{ stolen, EV(steal) | EV(evict) },
	{ asked_back, EV(revoke) },
	{ ends, EV(client_detach) | EV(client_dead) | EV(domain_drop) |
		EV(domain_create) | EV(device_fail) },
	{ killed, EV(client_kill) },
	{ adopted, EV(adopt) | EV(client_resume) },
};

/* ---- reading ---- */

static u32 records(void)
{
	u64 at = 0, written;
	u32 nr = core_trace_read(sh.core, &at, &written, rec, RING);

	ck_assert_uint_eq(at, written - nr);
	return nr;
}

/* Events that have records. */
static u32 recorded(void)
{
	u32 nr = records(), seen = 0, i;

	for (i = 0; i < nr; i++) {
		ck_assert_uint_lt(rec[i].event, NR_CORE_TRACE);
		ck_assert_uint_le(rec[i].ns, sh.now);
		seen |= BIT(rec[i].event);
	}
	return seen;
}

/* The first record of an event; there must be one. */
static const struct core_trace_rec *first(u32 event)
{
	u32 nr = records(), i;

	for (i = 0; i < nr; i++)
		if (rec[i].event == event)
			return &rec[i];
	ck_abort_msg("no record of event %u", event);
}

static u32 play(u32 scene, u32 events, u64 *counts)
{
	u32 seen;

	on = events;
	scenes[scene].play();
	seen = recorded();
	core_get_events(sh.core, counts);
	sh_stop();
	return seen;
}

START_TEST(test_every_event)
{
	u64 counts[NR_CORE_EVENTS], same[NR_CORE_EVENTS];
	u32 all = 0, i, e;

	for (i = 0; i < ARRAY_SIZE(scenes); i++) {
		u32 seen = play(i, ALL, counts);

		ck_assert_msg((seen & scenes[i].events) == scenes[i].events,
			      "scene %u: %#x is not there", i,
			      scenes[i].events & ~seen);
		all |= scenes[i].events;
		ck_assert_uint_eq(play(i, 0, same), 0);
		ck_assert_int_eq(memcmp(counts, same, sizeof(same)), 0);
		for (e = 0; e < NR_CORE_TRACE; e++)
			if (scenes[i].events & BIT(e))
				ck_assert_uint_eq(play(i, BIT(e), same),
						  BIT(e));
	}
	ck_assert_uint_eq(all, ALL);
}
END_TEST

/* The fields of a record describe the event. */
START_TEST(test_fields)
{
	const struct core_trace_rec *r;
	u32 dom;

	on = ALL;
	growth();
	dom = sh.cl[cl].info.domain;
	r = first(CORE_TRACE_preempt);
	ck_assert_uint_eq(r->arg[0], cl);
	ck_assert_uint_eq(r->arg[1], dom);
	ck_assert_uint_eq(r->arg[3], CORE_CAUSE_grow);
	ck_assert_uint_eq(r->arg[4], 96);	/* tokens */
	ck_assert_uint_eq(r->arg[5], 6);	/* blocks */
	r = first(CORE_TRACE_oom);
	ck_assert_uint_eq(r->arg[3], 1);
	ck_assert_uint_eq(r->arg[4], CORE_OOM_victim);
	ck_assert_uint_eq(r->arg[5], CORE_CAUSE_grow);
	sh_stop();
	limited();
	r = first(CORE_TRACE_limit_set);
	ck_assert_uint_eq(r->arg[1], CORE_LIMIT_MAX);
	ck_assert_uint_eq(r->arg[2], 6 * SH_BLOCK);
	r = first(CORE_TRACE_limit_reclaim);
	ck_assert_uint_eq(r->arg[1], 2);
	r = first(CORE_TRACE_seq_fail);
	ck_assert_int_eq((s64)r->arg[4], -EDQUOT);
	sh_stop();
}
END_TEST

/* Every evicted block is recorded, also one evicted with the block before it. */
START_TEST(test_all_that_went)
{
	u32 nr, i, told = 0;

	on = EV(evict);
	stolen();
	nr = records();
	for (i = 0; i < nr; i++)
		told += rec[i].event == CORE_TRACE_evict;
	ck_assert_uint_gt(told, 1);
	ck_assert_uint_eq(told, sh_count(CORE_EV_prefix_evict));
	sh_stop();
}
END_TEST

/* The newest records stay; their numbers tell how many are missing. */
START_TEST(test_wraps)
{
	u64 at = 0, written;
	u32 dom, i, nr;

	on = 0;
	start(2, 0);
	ring_lend(8);
	dom = sh.cl[cl].info.domain;
	ck_assert_int_eq(core_trace_set(sh.core, CORE_TRACE_limit_set, 1), 0);
	for (i = 0; i < 20; i++)
		SH_CORE(ck_assert_int_eq(core_domain_set(sh.core, sh.now, dom,
							 CORE_LIMIT_WEIGHT,
							 1 + i), 0));
	nr = core_trace_read(sh.core, &at, &written, rec, 3);
	ck_assert_uint_eq(nr, 3);
	ck_assert_uint_eq(written, 20);
	ck_assert_uint_eq(at, 12);
	for (i = 0; i < nr; i++)
		ck_assert_uint_eq(rec[i].arg[2], 13 + i);
	/* Four more: one of the records that were not read yet is gone. */
	for (i = 0; i < 4; i++)
		SH_CORE(ck_assert_int_eq(core_domain_set(sh.core, sh.now, dom,
							 CORE_LIMIT_WEIGHT,
							 100 + i), 0));
	at = 15;
	nr = core_trace_read(sh.core, &at, &written, rec, RING);
	ck_assert_uint_eq(nr, 8);
	ck_assert_uint_eq(at, 16);
	ck_assert_uint_eq(rec[7].arg[2], 103);
	at = 24;
	ck_assert_uint_eq(core_trace_read(sh.core, &at, &written, rec, RING),
			  0);
	sh_stop();
}
END_TEST

START_TEST(test_switches)
{
	on = 0;
	start(2, 0);
	ck_assert_int_eq(core_trace_set(sh.core, CORE_TRACE_ALL + 1, 1),
			 -EINVAL);
	ck_assert_int_eq(core_trace_set(sh.core, CORE_TRACE_grant, 2), -EINVAL);
	ck_assert_int_eq(core_trace_set(sh.core, CORE_TRACE_ALL, 2), -EINVAL);
	ck_assert_uint_eq(core_trace_enabled(sh.core), 0);
	ck_assert_int_eq(core_trace_set(sh.core, CORE_TRACE_ALL, 1), 0);
	ck_assert_uint_eq(core_trace_enabled(sh.core), ALL);
	ck_assert_int_eq(core_trace_set(sh.core, CORE_TRACE_oom, 0), 0);
	ck_assert_uint_eq(core_trace_enabled(sh.core), ALL & ~EV(oom));
	ck_assert_int_eq(core_trace_set(sh.core, CORE_TRACE_ALL, 0), 0);
	ck_assert_uint_eq(core_trace_enabled(sh.core), 0);
	sh_stop();
}
END_TEST

/* Without memory of the shell no event is on, and none can be switched on. */
START_TEST(test_without_a_ring)
{
	struct core_oom_view o;
	u64 at = 0, written = 1;
	u64 old, new;

	sh_config(2);
	sh_start();
	ck_assert_int_eq(core_trace_set(sh.core, CORE_TRACE_grant, 1),
			 -ENODEV);
	cl = sh_attach(1, "a");
	fill(&old, &new);
	ck_assert_int_eq(sh_begin(cl, old, 32, 1), 0);
	ck_assert_uint_eq(core_trace_read(sh.core, &at, &written, rec, RING),
			  0);
	ck_assert_uint_eq(written, 0);
	ck_assert_int_eq(core_get_oom(sh.core, &o), -ENOENT);
	sh_stop();
}
END_TEST

/* ---- the last shortage ---- */

static struct core_oom_view oom;

static const struct core_oom_row *row_of(u32 client)
{
	u32 i;

	for (i = 0; i < oom.nr_rows; i++)
		if (oom.row[i].domain == sh.cl[client].info.domain)
			return &oom.row[i];
	ck_abort_msg("no row of client %u's domain", client);
}

START_TEST(test_oom_victim)
{
	u64 old, new;

	on = 0;
	start(2, 0);
	fill(&old, &new);
	ck_assert_int_eq(core_get_oom(sh.core, &oom), -ENOENT);
	ck_assert_int_eq(sh_begin(cl, old, 32, 1), 0);
	ck_assert_int_eq(core_get_oom(sh.core, &oom), 0);
	ck_assert_uint_eq(oom.nr, 1);
	ck_assert_uint_eq(oom.ns, sh.now);
	ck_assert_uint_eq(oom.client, cl);
	ck_assert_uint_eq(oom.seq, KVMM_SEQ_INDEX(old));
	ck_assert_uint_eq(oom.want, 1);
	ck_assert_uint_eq(oom.outcome, CORE_OOM_victim);
	ck_assert_uint_eq(oom.cause, CORE_CAUSE_grow);
	ck_assert_uint_eq(oom.victim, 0);
	ck_assert_uint_eq(oom.nr_free, 0);
	/* The state before any sequence lost memory. */
	ck_assert_uint_eq(oom.nr_rows, 1);
	ck_assert_uint_eq(oom.row[0].seq, KVMM_SEQ_INDEX(new));
	ck_assert_uint_eq(oom.row[0].seq_blocks, 6);
	ck_assert_uint_eq(oom.row[0].tokens, 96);
	ck_assert_uint_eq(oom.row[0].blocks[BLK_SEALED], 8);
	ck_assert_uint_eq(oom.row[0].why, CORE_OOM_WHY_taken);
	sh_stop();
}
END_TEST

/*
 * A report is no work of its event: else a core with a ring would leave an admission
 * to the next event that a core without one does at once.
 */
START_TEST(test_report_is_no_work)
{
	u64 old, new;
	u32 before;

	on = 0;
	start(2, 0);
	fill(&old, &new);
	before = sh.core->work;
	oom_note(sh.core, &sh.core->seqs[KVMM_SEQ_INDEX(old)], 1, CORE_OOM_refused,
		 CORE_CAUSE_grow, NULL);
	ck_assert_int_eq(core_get_oom(sh.core, &oom), 0);
	ck_assert_uint_eq(oom.nr_rows, 1);
	ck_assert_uint_eq(sh.core->work, before);
	sh_stop();
}
END_TEST

/* A row says for its domain why none of its sequences was taken. */
START_TEST(test_oom_whys)
{
	struct kvmm_open_arg high = { .prompt_len = 64, .priority = 9 };
	u32 prior, guarded, empty, other;
	u64 seq, top, mine, safe;

	on = 0;
	start(5, 0);
	prior = sh_attach(1, "prior");
	guarded = sh_attach(1, "guarded");
	empty = sh_attach(1, "empty");
	other = sh_attach(2, "other");
	/* The other tenant has a span more than it needs, made ahead. */
	seq = sh_ready(other, 64, 0, 1);
	ck_assert_int_eq(sh_open_as(prior, &high, &top), 0);
	ck_assert_int_eq(sh_match(prior, top, 64, 2), 0);
	mine = sh_ready(cl, 64, 64, 3);
	safe = sh_ready(guarded, 64, 0, 4);
	sh_compute(other, seq, 0, 64, 1);
	sh_compute(prior, top, 0, 64, 2);
	sh_compute(cl, mine, 0, 64, 3);
	sh_compute(guarded, safe, 0, 64, 4);
	SH_CORE(ck_assert_int_eq(core_domain_set(sh.core, sh.now,
						 sh.cl[guarded].info.domain,
						 CORE_LIMIT_MIN, 4 * SH_BLOCK),
				 0));
	ck_assert_int_eq(sh_begin(cl, mine, 64, 1), -EAGAIN);
	ck_assert_int_eq(core_get_oom(sh.core, &oom), 0);
	ck_assert_uint_eq(oom.nr_domains, 5);
	ck_assert_uint_eq(oom.nr_rows, 5);
	ck_assert_uint_eq(oom.outcome, CORE_OOM_refused);
	ck_assert_uint_eq(oom.row[0].domain, sh.cl[cl].info.domain);
	ck_assert_uint_eq(row_of(cl)->why, CORE_OOM_WHY_asks);
	ck_assert_uint_eq(row_of(prior)->why, CORE_OOM_WHY_before);
	ck_assert_uint_eq(row_of(guarded)->why, CORE_OOM_WHY_protected);
	ck_assert_uint_eq(row_of(empty)->why, CORE_OOM_WHY_none);
	ck_assert_uint_eq(row_of(empty)->client, CORE_NONE);
	ck_assert_uint_eq(row_of(other)->why, CORE_OOM_WHY_foreign);

	/* Further shortages of the same instant are counted, not described. */
	ck_assert_int_eq(sh_end_empty(cl, sh.cl[cl].step), 0);
	ck_assert_int_eq(sh_begin(cl, mine, 64, 17), -EAGAIN);
	ck_assert_int_eq(core_get_oom(sh.core, &oom), 0);
	ck_assert_uint_eq(oom.nr, 2);
	ck_assert_uint_eq(oom.same, 1);
	ck_assert_uint_eq(oom.want, 1);

	/* For a request that can never be met no domain could help. */
	sh_tick(1);
	ck_assert_int_eq(sh_end_empty(cl, sh.cl[cl].step), 0);
	SH_CORE(ck_assert_int_eq(core_domain_set(sh.core, sh.now,
						 sh.cl[cl].info.domain,
						 CORE_LIMIT_MAX, 5 * SH_BLOCK),
				 0));
	ck_assert_int_eq(sh_begin(cl, mine, 64, 20), -EDQUOT);
	ck_assert_int_eq(core_get_oom(sh.core, &oom), 0);
	ck_assert_uint_eq(oom.same, 0);
	ck_assert_uint_eq(oom.want, 2);
	ck_assert_uint_eq(oom.outcome, CORE_OOM_failed);
	ck_assert_uint_eq(row_of(cl)->why, CORE_OOM_WHY_asks);
	ck_assert_uint_eq(row_of(prior)->why, CORE_OOM_WHY_size);
	sh_stop();
}
END_TEST

/*
 * The longest-waiting sequence takes its turn, and not from one that has just
 * come.
 */
START_TEST(test_oom_wait)
{
	u64 aged, waits;

	on = 0;
	start(2, 0);
	sh_warm(cl);
	aged = sh_ready(cl, 128, 0, 1);
	sh_compute(cl, aged, 0, 128, 1);
	waits = wait_for(cl, 64, 2);
	sh_tick(STARVE + 1);
	ck_assert_uint_eq(sh_state(cl, aged), KVMM_SEQ_RECOMPUTE);
	ck_assert_uint_eq(sh_state(cl, waits), KVMM_SEQ_READY);
	ck_assert_int_eq(core_get_oom(sh.core, &oom), 0);
	ck_assert_uint_eq(oom.outcome, CORE_OOM_victim);
	ck_assert_uint_eq(oom.cause, CORE_CAUSE_wait);
	ck_assert_uint_eq(oom.seq, KVMM_SEQ_INDEX(waits));
	ck_assert_uint_eq(oom.row[oom.victim].seq, KVMM_SEQ_INDEX(aged));
	sh_stop();
}
END_TEST

static void teardown(void)
{
	free(ring);
	ring = NULL;
}

int main(void)
{
	Suite *s = suite_create("core-trace");
	TCase *tc = tcase_create("trace");

	tcase_set_tags(tc, "unit core trace");
	tcase_add_checked_fixture(tc, NULL, teardown);
	tcase_add_test(tc, test_every_event);
	tcase_add_test(tc, test_fields);
	tcase_add_test(tc, test_all_that_went);
	tcase_add_test(tc, test_wraps);
	tcase_add_test(tc, test_switches);
	tcase_add_test(tc, test_without_a_ring);
	tcase_add_test(tc, test_report_is_no_work);
	tcase_add_test(tc, test_oom_victim);
	tcase_add_test(tc, test_oom_whys);
	tcase_add_test(tc, test_oom_wait);
	suite_add_tcase(s, tc);
	return sh_run(s);
}
