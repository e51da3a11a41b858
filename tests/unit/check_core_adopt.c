// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_adopt.c - a core adopts the arena of one that ended
 *
 * The first core ends between two events, or inside one: its struct is cleared,
 * and another one adopts the arena.  Clients resume with segments that are
 * zero, and must find their whole state there.
 */
#include <setjmp.h>

#include "tests/unit/core_shell.h"
#include "kvmm/core/node/node.h"

#define MAX_IO		64
#define SLOT		(2 * SH_EXTENT)

static struct core_copy copies[MAX_IO];
static struct core_io ios[MAX_IO];
static u32 nr_copies, nr_ios, cl, other;
static struct core_ops ops;
static jmp_buf ended;
static u32 end_at, end_after;	/* crash point of the end, and its pass */

static void on_copy(const struct core_copy *cp)
{
	ck_assert_uint_lt(nr_copies, MAX_IO);
	copies[nr_copies++] = *cp;
}

static void on_io(const struct core_io *io)
{
	ck_assert_uint_lt(nr_ios, MAX_IO);
	ios[nr_ios++] = *io;
}

static void on_point(void *arg, u32 point)
{
	if (point == end_at && !--end_after)
		longjmp(ended, 1);
}

static void do_copies(void)
{
	while (nr_copies) {
		u64 id = copies[--nr_copies].id;

		SH_CORE(core_copy_done(sh.core, sh.now, id, 0));
		sh_settle();
	}
}

static void setup(void)
{
	sh_on_copy = on_copy;
	sh_on_io = on_io;
	nr_copies = 0;
	nr_ios = 0;
	sh_config(16);
	sh.cfg.host_bytes = 64 * SLOT;
	sh.cfg.swappiness = 200;
	end_at = NR_CORE_CRASH_POINTS;
	sh_start();
	ops = *sh.core->ops;
	ops.crash = on_point;
	sh.core->ops = &ops;
	cl = sh_attach(1, "d");
	other = sh_attach(2, "e");
}

static void teardown(void)
{
	sh_stop();
}

/* ---- the other core ---- */

/* Adopt the arena; the rest of the daemon's memory is lost. */
static int adopt_as(const struct core_config *cfg, struct core_report *r)
{
	u32 i;

	memset(sh.core, 0xa5, core_struct_size());
	memset(sh.creating, 0, sizeof(sh.creating));
	nr_copies = 0;
	nr_ios = 0;
	for (i = 0; i < SH_CLIENTS; i++)
		memset(&sh.cl[i].ctl, 0, sizeof(sh.cl[i]) -
		       offsetof(struct sh_client, ctl));
	return core_adopt(sh.core, sh.arena, core_arena_size(cfg), cfg,
			  &sh_ops, NULL, sh.now, r);
}

static void adopt(int want)
{
	struct core_report r;
	int how = adopt_as(&sh.cfg, &r);

	ck_assert_msg(how == want, "adopted: %d, should be %d: %s", how, want,
		      r.text);
	sh_check();
}

static void resume(u32 id, u64 seen)
{
	struct sh_client *k = &sh.cl[id];
	struct core_bind bind = {
		.ctl = &k->ctl, .seqs = k->seqs, .extents = k->extents,
		.tables = k->tables, .events = k->events,
		.nr_events = SH_EVENTS,
	};
	struct core_attach_info info;
	u64 committed;

	ck_assert_int_eq(core_client_resume(sh.core, sh.now, id, seen, &info,
					    &committed), 0);
	ck_assert_uint_eq(committed, seen);
	info.dropped_blocks = k->info.dropped_blocks;
	ck_assert(sh_same_attachment(&info, &k->info));
	k->number = committed;
	memset(k->pending, 0, sizeof(k->pending));
	core_client_bind(sh.core, id, &bind);
	sh_check();
}

static void resume_all(void)
{
	resume(cl, sh.cl[cl].number);
	resume(other, sh.cl[other].number);
	sh_tick(1);
}

/* ---- adopted whole ---- */

START_TEST(test_nothing_is_lost)
{
	u64 a = sh_ready(cl, 40, 200, 1), b = sh_ready(cl, 40, 200, 1), kids[2];
	u32 entry[3], i;

	sh_compute(cl, a, 0, 40, 1);
	ck_assert_int_eq(sh_fork(cl, a, 2, kids), 0);
	ck_assert_int_eq(sh_begin(cl, kids[0], 40, 4), 0);
	for (i = 0; i < 3; i++)
		entry[i] = sh_table(cl, kids[0], i);
	adopt(CORE_ADOPT_WHOLE);
	resume_all();
	ck_assert_uint_eq(sh_state(cl, a), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_state(cl, b), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_status(cl, kids[0])->valid_len, 40);
	for (i = 0; i < 3; i++)
		ck_assert_uint_eq(sh_table(cl, kids[0], i), entry[i]);
	/* The open step ends as if there had been no adoption. */
	ck_assert_int_eq(sh_end(cl, kids[0], 40, 44, 1), 0);
	ck_assert_uint_eq(sh_status(cl, kids[0])->valid_len, 44);
	ck_assert_int_eq(sh_close(cl, a), 0);
}
END_TEST

START_TEST(test_sequences_go_on_while_away)
{
	u64 all = sh_ready(cl, 16 * SH_PER * SH_BT, 0, 5), next;

	next = sh_open(cl, 32, 16);
	ck_assert_int_eq(sh_match(cl, next, 32, 9), 0);
	ck_assert_uint_eq(sh_state(cl, next), KVMM_SEQ_WAITING);
	adopt(CORE_ADOPT_WHOLE);
	resume(cl, sh.cl[cl].number);
	sh_tick(1);
	ck_assert_uint_eq(sh_state(cl, next), KVMM_SEQ_WAITING);
	ck_assert_int_eq(sh_close(cl, all), 0);
	ck_assert_uint_eq(sh_state(cl, next), KVMM_SEQ_READY);
}
END_TEST

/* A client that does not resume and dies is freed as any other. */
START_TEST(test_away_and_dead)
{
	struct core_client_view v;

	(void)sh_ready(cl, 40, 20, 1);
	adopt(CORE_ADOPT_WHOLE);
	ck_assert_int_eq(core_get_client(sh.core, cl, &v), 0);
	ck_assert_uint_eq(v.away, 1);
	resume(other, sh.cl[other].number);
	sh_die(cl);
	sh_quiet(cl);
	ck_assert_int_eq(core_get_client(sh.core, cl, &v), -ENOENT);
	sh_tick(1);
}
END_TEST

START_TEST(test_memory_in_the_making)
{
	u64 seq;

	sh_manual_make = true;
	seq = sh_open(cl, 40, 20);
	ck_assert_int_eq(sh_match(cl, seq, 40, 1), 0);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_WAITING);
	adopt(CORE_ADOPT_WHOLE);
	sh_manual_make = false;
	resume_all();
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
}
END_TEST

static void pageout(u64 seq)
{
	struct kvmm_advise_arg *a = (struct kvmm_advise_arg *)sh.args;

	*a = (struct kvmm_advise_arg){ .seq = seq, .advice = KVMM_ADV_PAGEOUT };
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_SEQ_ADVISE, 1, 0, sizeof(*a)),
			 0);
	ck_assert_int_eq(sh_seq_res(0), 0);
}

/* Copies out of the device are ordered again, and no content is lost. */
START_TEST(test_copies_are_ordered_again)
{
	u64 seq = sh_ready(cl, 40, 20, 1), was[MAX_IO];
	u32 nr, i;

	sh_compute(cl, seq, 0, 40, 1);
	pageout(seq);
	nr = nr_copies;
	ck_assert_uint_eq(nr, 3);
	for (i = 0; i < nr; i++)
		was[i] = copies[i].dev_off;
	adopt(CORE_ADOPT_WHOLE);
	ck_assert_uint_eq(nr_copies, 0);
	resume_all();
	ck_assert_uint_eq(nr_copies, nr);
	for (i = 0; i < nr; i++)
		ck_assert(copies[i].dev_off == was[0] ||
			  copies[i].dev_off == was[1] ||
			  copies[i].dev_off == was[2]);
	do_copies();
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_SWAPPED);
	ck_assert_uint_eq(sh_status(cl, seq)->valid_len, 40);
}
END_TEST

START_TEST(test_answers_that_were_not_given)
{
	struct core_attach_info info;
	u64 committed;

	adopt(CORE_ADOPT_WHOLE);
	ck_assert_int_eq(core_client_resume(sh.core, sh.now, cl, 1000, &info,
					    &committed), -EPROTO);
	ck_assert_int_eq(core_client_resume(sh.core, sh.now, SH_CLIENTS, 0,
					    &info, &committed), -ENOENT);
	ck_assert_int_eq(core_client_resume(sh.core, sh.now, 4, 0, &info,
					    &committed), -ENOENT);
	resume(cl, sh.cl[cl].number);
	ck_assert_int_eq(core_client_resume(sh.core, sh.now, cl, 0, &info,
					    &committed), -ESTALE);
}
END_TEST

/* ---- salvaged ---- */

/* Run @call; the core ends when it passes the point the @nr-th time. */
#define ENDS_AT(point, nr, call)					\
do {									\
	end_at = CORE_CRASH_##point;					\
	end_after = nr;							\
	if (!setjmp(ended)) {						\
		call;							\
		ck_abort_msg("it did not pass " #point);		\
	}								\
	end_at = NR_CORE_CRASH_POINTS;					\
	sh_in_core = false;						\
} while (0)

/* Submit a request as the daemon serves it. */
static void ask(u32 id, u16 op, u32 nr, u32 len)
{
	core_commit_begin(sh.core);
	ck_assert_int_eq(sh_submit(id, op, nr, 0, len), 0);
	core_commit_end(sh.core, id);
}

START_TEST(test_content_is_kept)
{
	u64 a = sh_ready(cl, 64, 20, 1), b;
	u32 epoch = sh_status(cl, a)->seq_epoch;
	u64 seen;

	sh_compute(cl, a, 0, 64, 1);
	ck_assert_uint_eq(sh_domain(cl).blocks[BLK_SEALED], 4);
	seen = sh.cl[cl].number;
	ENDS_AT(executed, 1, sh_open(cl, 40, 20));
	adopt(CORE_ADOPT_SALVAGED);
	ck_assert_uint_eq(sh_domain(cl).blocks[BLK_CACHED], 4);
	resume(cl, seen);
	resume(other, sh.cl[other].number);
	sh_tick(1);
	ck_assert_uint_eq(sh_state(cl, a), KVMM_SEQ_RECOMPUTE);
	ck_assert_uint_gt(sh_status(cl, a)->seq_epoch, epoch);
	/* Its content is found again, except for the last token. */
	ck_assert_int_eq(sh_match(cl, a, 64, 1), 0);
	ck_assert_uint_eq(sh_state(cl, a), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_status(cl, a)->valid_len, 63);
	b = sh_ready(cl, 65, 4, 1);
	ck_assert_uint_eq(sh_status(cl, b)->valid_len, 64);
}
END_TEST

/* A request without an answer has no effect; an answered one has. */
START_TEST(test_births)
{
	struct kvmm_open_arg *a = (struct kvmm_open_arg *)sh.args;
	struct core_client_view v;
	u64 seen = sh.cl[cl].number;

	*a = (struct kvmm_open_arg){ .prompt_len = 40 };
	if (_i)
		ENDS_AT(answered, 1, ask(cl, KVMM_OP_SEQ_OPEN, 1, sizeof(*a)));
	else
		ENDS_AT(executed, 1, ask(cl, KVMM_OP_SEQ_OPEN, 1, sizeof(*a)));
	adopt(CORE_ADOPT_SALVAGED);
	resume(cl, seen + (u32)_i);
	ck_assert_int_eq(core_get_client(sh.core, cl, &v), 0);
	ck_assert_uint_eq(v.nr_seqs, (u32)_i);
	sh_tick(1);
	(void)sh_ready(cl, 40, 0, 1);
}
END_TEST

/* A closed sequence that only a step names is gone when the step is void. */
START_TEST(test_closed_in_a_step)
{
	u64 a = sh_ready(cl, 40, 20, 1), seen;
	struct core_client_view v;

	ck_assert_int_eq(sh_begin(cl, a, 0, 40), 0);
	ck_assert_int_eq(sh_close(cl, a), 0);
	ck_assert_int_eq(core_get_client(sh.core, cl, &v), 0);
	ck_assert_uint_eq(v.nr_seqs, 1);
	seen = sh.cl[cl].number;
	ENDS_AT(executed, 1, ask(cl, KVMM_OP_NOP, 0, 0));
	adopt(CORE_ADOPT_SALVAGED);
	resume(cl, seen);
	ck_assert_int_eq(core_get_client(sh.core, cl, &v), 0);
	ck_assert_uint_eq(v.nr_seqs, 0);
	sh_tick(1);
}
END_TEST

static u64 quarantined(void)
{
	return sh_domain(cl).blocks[BLK_QUARANTINE];
}

/*
 * Blocks that open steps may write are granted to no sequence until all clients
 * have resumed or are gone.
 */
START_TEST(test_steps_of_the_living)
{
	u64 a = sh_ready(cl, 40, 20, 1), seen;
	u32 kin = sh_attach(1, "d");

	ck_assert_int_eq(sh_begin(cl, a, 0, 40), 0);
	seen = sh.cl[cl].number;
	ENDS_AT(executed, 1, sh_open(cl, 40, 20));
	adopt(CORE_ADOPT_SALVAGED);
	ck_assert_uint_eq(quarantined(), 3);
	resume(cl, seen);
	ck_assert_uint_eq(quarantined(), 3);
	if (_i) {
		resume(kin, sh.cl[kin].number);
	} else {
		SH_CORE(core_tick(sh.core, sh.now));
		SH_CORE(core_client_dead(sh.core, sh.now, kin));
		ck_assert_uint_eq(quarantined(), 3);
		SH_CORE(core_client_quiet(sh.core, sh.now, kin));
	}
	ck_assert_uint_eq(quarantined(), 0);
	sh_tick(1);
}
END_TEST

/* Forks are again in one family after the adoption. */
START_TEST(test_kin)
{
	u64 a = sh_ready(cl, 40, 200, 1), kids[2], seen;
	struct kv_seq *s;

	sh_compute(cl, a, 0, 40, 1);
	ck_assert_int_eq(sh_fork(cl, a, 2, kids), 0);
	seen = sh.cl[cl].number;
	ENDS_AT(executed, 1, sh_open(cl, 40, 20));
	adopt(CORE_ADOPT_SALVAGED);
	resume(cl, seen);
	s = &sh.core->seqs[KVMM_SEQ_INDEX(a)];
	ck_assert_uint_ne(s->fam_next, KVMM_SEQ_INDEX(a));
	s = &sh.core->seqs[s->fam_next];
	s = &sh.core->seqs[s->fam_next];
	ck_assert_uint_eq(s->fam_next, KVMM_SEQ_INDEX(a));
}
END_TEST

static u32 asked_for(u32 id)
{
	u32 e, nr = 0;

	for (e = 0; e < 16; e++)
		nr += sh.cl[id].extents[e].state == KVMM_EXTENT_REVOKE;
	return nr;
}

/* A client that was asked for memory may have unmapped it: it is asked again. */
START_TEST(test_asked_back)
{
	static u32 nr;	/* static, so that it outlives longjmp() */
	u64 seq, seen;

	sh_warm(cl);
	sh_tick(60);
	sh.cl[cl].stubborn = true;
	seq = sh_open(other, 8 * SH_PER * SH_BT, 0);
	ck_assert_int_eq(sh_match(other, seq, 8 * SH_PER * SH_BT, 3), 0);
	nr = asked_for(cl);
	ck_assert_uint_gt(nr, 0);
	seen = sh.cl[cl].number;
	ENDS_AT(executed, 1, sh_open(cl, 40, 20));
	adopt(CORE_ADOPT_SALVAGED);
	resume(cl, seen);
	ck_assert_uint_eq(asked_for(cl), nr);
}
END_TEST

/*
 * Memory was made while a client was away, and asked back for another tenant before
 * it returned: it was never sent that memory, so the revocation does not wait for it.
 */
START_TEST(test_asked_back_while_away)
{
	u32 mate = sh_attach(1, "f"), i;
	u64 seq;

	adopt(CORE_ADOPT_WHOLE);
	resume(mate, sh.cl[mate].number);
	resume(other, sh.cl[other].number);
	sh_warm(mate);
	sh_tick(60);
	seq = sh_open(other, 6 * SH_BT, 0);
	ck_assert_int_eq(sh_match(other, seq, 6 * SH_BT, 7), 0);
	sh_settle();
	ck_assert_uint_eq(sh_state(other, seq), KVMM_SEQ_READY);
	resume(cl, sh.cl[cl].number);
	for (i = 0; i < SH_EXTENTS; i++)
		ck_assert_uint_ne(sh.cl[cl].extents[i].state, KVMM_EXTENT_REVOKE);
}
END_TEST

/* An arena whose core died while it salvaged is refused. */
START_TEST(test_once)
{
	struct core_head *h = sh.arena;
	struct core_report r;

	h->event = 8;
	ck_assert_int_eq(adopt_as(&sh.cfg, &r), -EUCLEAN);
	h->event = 1;
	adopt(CORE_ADOPT_SALVAGED);
}
END_TEST

/* ---- refused ---- */

START_TEST(test_foreign)
{
	struct core_config cfg = sh.cfg;
	struct core_head *h = sh.arena;
	struct core_report r;

	cfg.boot[0] = 1;
	ck_assert_int_eq(adopt_as(&cfg, &r), -ESTALE);
	ck_assert_ptr_nonnull(strstr(r.text, "boot"));
	cfg = sh.cfg;
	cfg.pool_bytes /= 2;
	ck_assert_int_eq(adopt_as(&cfg, &r), -ESTALE);
	h->layout ^= 1;
	ck_assert_int_eq(adopt_as(&sh.cfg, &r), -ESTALE);
	h->layout ^= 1;
	h->magic++;
	ck_assert_int_eq(adopt_as(&sh.cfg, &r), -ESTALE);
	h->magic--;
	h->sizes.nr_blocks++;
	ck_assert_int_eq(adopt_as(&sh.cfg, &r), -EUCLEAN);
	h->sizes.nr_blocks--;
	adopt(CORE_ADOPT_WHOLE);
}
END_TEST

static Suite *adopt_suite(void)
{
	Suite *s = suite_create("core_adopt");
	TCase *tc = tcase_create("whole");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_nothing_is_lost);
	tcase_add_test(tc, test_sequences_go_on_while_away);
	tcase_add_test(tc, test_away_and_dead);
	tcase_add_test(tc, test_memory_in_the_making);
	tcase_add_test(tc, test_copies_are_ordered_again);
	tcase_add_test(tc, test_answers_that_were_not_given);
	suite_add_tcase(s, tc);

	tc = tcase_create("salvaged");
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_content_is_kept);
	tcase_add_loop_test(tc, test_births, 0, 2);
	tcase_add_test(tc, test_closed_in_a_step);
	tcase_add_loop_test(tc, test_steps_of_the_living, 0, 2);
	tcase_add_test(tc, test_kin);
	tcase_add_test(tc, test_asked_back);
	tcase_add_test(tc, test_asked_back_while_away);
	tcase_add_test(tc, test_once);
	suite_add_tcase(s, tc);

	tc = tcase_create("refused");
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_foreign);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	return sh_run(adopt_suite());
}
