// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_groups_adopt.c - layer groups: another core adopts the records
 */
#include <setjmp.h>

#include "tests/unit/groups_scene.h"

/* Two groups; the second has twice the tokens a block, and a window. */
static const struct shape shapes[] = { { 16, 0 }, { 32, 40 } };

static struct core_ops ops;
static jmp_buf ended;
static u32 end_at;

static void on_point(void *arg, u32 point)
{
	if (point == end_at)
		longjmp(ended, 1);
}

static void setup(void)
{
	setup_with(200, 2, shapes);
	end_at = NR_CORE_CRASH_POINTS;
	ops = *sh.core->ops;
	ops.crash = on_point;
	sh.core->ops = &ops;
}

static void teardown(void)
{
	sh_stop();
}

/* Another core adopts the arena, and the client resumes. */
static void adopt(int want)
{
	struct sh_client *k = &sh.cl[cl];
	struct core_bind bind = {
		.ctl = &k->ctl, .seqs = k->seqs, .extents = k->extents,
		.tables = k->tables, .events = k->events, .nr_events = SH_EVENTS,
	};
	struct core_attach_info info;
	struct core_report r;
	u64 seen = k->number, committed;
	int how;

	memset(sh.core, 0xa5, core_struct_size());
	memset(sh.creating, 0, sizeof(sh.creating));
	memset(&k->ctl, 0, sizeof(*k) - offsetof(struct sh_client, ctl));
	nr_copies = 0;
	how = core_adopt(sh.core, sh.arena, core_arena_size(&sh.cfg), &sh.cfg,
			 &sh_ops, NULL, sh.now, &r);
	ck_assert_msg(how == want, "adopted: %d, should be %d: %s", how, want, r.text);
	sh_check();
	ck_assert_int_eq(core_client_resume(sh.core, sh.now, cl, seen, &info,
					    &committed), 0);
	info.dropped_blocks = k->info.dropped_blocks;
	ck_assert(sh_same_attachment(&info, &k->info));
	k->number = committed;
	memset(k->pending, 0, sizeof(k->pending));
	core_client_bind(sh.core, cl, &bind);
	sh_tick(1);
}

/* The core ends inside an event: it has no effect, and content is salvaged. */
static void salvage(void)
{
	end_at = CORE_CRASH_executed;
	if (!setjmp(ended)) {
		(void)sh_open(cl, 40, 20);
		ck_abort_msg("it did not end");
	}
	sh.cl[cl].number--;
	end_at = NR_CORE_CRASH_POINTS;
	sh_in_core = false;
	adopt(CORE_ADOPT_SALVAGED);
}

START_TEST(test_adopted_whole)
{
	struct picture was[2], is;
	u64 seq = runs(140, 60, 1), kid, other;

	other = sh_ready(cl, 200, 0, 5000);
	sh_compute(cl, other, 0, 32, 5000);
	ck_assert_int_eq(sh_fork(cl, seq, 1, &kid), 0);
	ck_assert_int_eq(sh_begin(cl, kid, 140, 4), 0);
	was[0] = picture_of(seq);
	was[1] = picture_of(kid);
	adopt(CORE_ADOPT_WHOLE);
	is = picture_of(seq);
	ck_assert(!memcmp(&is, &was[0], sizeof(is)));
	is = picture_of(kid);
	ck_assert(!memcmp(&is, &was[1], sizeof(is)));
	ck_assert_uint_eq(sh.cl[cl].tables[sh_status(cl, kid)->table[1]].group, 1);
	ck_assert_uint_eq(domain()->group[1].window, 40);
	ck_assert_uint_eq(domain()->hit_tokens, 32);
	ck_assert_int_eq(sh_end(cl, kid, 140, 144, 1), 0);
	/* (40 + 128) / 32 rounded up, and 1: all 7 blocks of the prompt. */
	ck_assert_uint_eq(tab(other, 0)->reserved, 11);
	ck_assert_uint_eq(tab(other, 1)->reserved, 6);
	compute_by(other, 32, 200, 28, 5000);
	compute_by(kid, 144, 180, 6, 1);
	tab_has(kid, 1, 6, 4);
}
END_TEST

/* Content of all groups is found again. */
START_TEST(test_salvaged)
{
	u64 seq = runs(140, 60, 1);

	ck_assert_uint_eq(domain()->dev.nr[BLK_SEALED], 8 + 1);
	ck_assert_uint_eq(domain()->dev.nr[BLK_CACHED], 3);
	salvage();
	ck_assert_uint_eq(domain()->dev.nr[BLK_CACHED], 8 + 4);
	ck_assert_uint_eq(domain()->base_tokens, 16);
	ck_assert_uint_eq(domain()->hit_tokens, 32);
	ck_assert_uint_eq(domain()->step_tokens, 128);
	ck_assert_uint_eq(domain()->stride[1], 2048);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_RECOMPUTE);
	ck_assert_int_eq(sh_match(cl, seq, 140, 1), 0);
	ck_assert_uint_eq(sh_status(cl, seq)->valid_len, 128);
	tab_has(seq, 0, 8, 0);
	tab_has(seq, 1, 4, 2);
	ck_assert_uint_eq(c->blocks[block_at(seq, 1, 3)].group, 1);
	sh_compute(cl, seq, 128, 180, 1);
	tab_has(seq, 1, 6, 4);
}
END_TEST

/* Content of all groups in the host pool is found again. */
START_TEST(test_salvaged_from_the_host_pool)
{
	u64 seq;

	swap_prompt(&seq);
	salvage();
	ck_assert_int_eq(sh_match(cl, seq, 134, 1), 0);
	ck_assert_uint_eq(sh_status(cl, seq)->cached_len, 128);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_RESTORING);
	do_copies();
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
	tab_has(seq, 1, 4, 2);
	ck_assert_uint_eq(c->blocks[block_at(seq, 1, 3)].group, 1);
}
END_TEST

/* ---- records ---- */

enum damage {
	FRESH_LATE,	/* the record behind the shared one begins at a later token */
	FRESH_EVEN,	/* ... at the end of a record */
	TRIM_PENDING,	/* the core trims a part of a record */
	NR_DAMAGES
};

/* A fork writes the record behind the shared one; its facts are not believed. */
START_TEST(test_damaged_record)
{
	const struct shape with[] = { { 32, 0 }, { 32, 0 } };
	struct kvmm_attach_req req = groups_req("s", 64, 2, with);
	struct core_report r;
	u64 seq, kid;

	req.group[1] = (struct kvmm_group){
		.kind = KVMM_GROUP_STATE, .layers = 3, .kv_heads = 2, .k_bytes = 1000,
		.block_tokens = 32,
	};
	cl = (u32)sh_attach_as(1, &req);
	sh_settle();
	make_memory();
	seq = runs(40, 60, 1);
	ck_assert_int_eq(sh_fork(cl, seq, 1, &kid), 0);
	ck_assert_int_eq(sh_begin(cl, kid, 40, 4), 0);
	ck_assert_uint_eq(tab(kid, 1)->shift, 3);
	ck_assert_uint_eq(tab(kid, 1)->shift_at, 40);
	if (_i == FRESH_LATE)
		tab(kid, 1)->shift_at = 44;
	else if (_i == FRESH_EVEN)
		tab(kid, 1)->shift_at = 32;
	else
		tab(kid, 1)->trim_want++;
	ck_assert_int_eq(core_adopt(sh.core, sh.arena, core_arena_size(&sh.cfg), &sh.cfg,
				    &sh_ops, NULL, sh.now, &r), -EUCLEAN);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_groups_adopt");
	TCase *tc = tcase_create("adopt");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_adopted_whole);
	tcase_add_test(tc, test_salvaged);
	tcase_add_test(tc, test_salvaged_from_the_host_pool);
	tcase_add_loop_test(tc, test_damaged_record, 0, NR_DAMAGES);
	suite_add_tcase(s, tc);
	return sh_run(s);
}
