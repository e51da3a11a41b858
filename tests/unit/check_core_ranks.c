// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_ranks.c - clients that map shards of a domain for another client
 *
 * Two pools of four extents, a domain with two shards in tenant 1.
 */
#include "tests/unit/pools_scene.h"

static u32 lead, rank;	/* clients */

/* Attach a client of @tenant to domain "s", for @shard of @leader. */
static int attach_as(u64 tenant, u32 shard, u32 leader)
{
	struct kvmm_attach_req req = sh_attach_req("s");
	int cl;

	req.nr_shards = 2;
	req.shard = shard;
	req.leader = leader;
	cl = sh_attach_as(tenant, &req);
	sh_settle();
	return cl;
}

static u32 attached(u32 shard, u32 leader)
{
	int cl = attach_as(1, shard, leader);

	ck_assert_int_ge(cl, 0);
	return (u32)cl;
}

/* A leader of shard 1 and a rank for shard 2. */
static void setup(void)
{
	two_pools();
	lead = attached(1, 0);
	rank = attached(2, lead + 1);
}

static struct kv_client *rec(u32 cl)
{
	return &c->clients[cl];
}

/* ---- attach ---- */

START_TEST(test_attach)
{
	ck_assert_uint_eq(rec(lead)->leader, lead);
	ck_assert_uint_eq(rec(rank)->leader, lead);
	ck_assert_uint_eq(rec(lead)->member[0], lead);
	ck_assert_uint_eq(rec(lead)->member[1], rank);
	ck_assert_uint_eq(rec(lead)->nr_unacked, 0);
	/* Each shard has one client. */
	ck_assert_int_eq(attach_as(1, 2, lead + 1), -EEXIST);
	ck_assert_int_eq(attach_as(1, 1, lead + 1), -EEXIST);
	ck_assert_int_eq(attach_as(1, 3, lead + 1), -EINVAL);
	ck_assert_int_eq(attach_as(1, 0, lead + 1), -EINVAL);
	/* A rank is no leader, and the leader is a client of the same tenant. */
	ck_assert_int_eq(attach_as(1, 2, rank + 1), -ESRCH);
	ck_assert_int_eq(attach_as(2, 2, lead + 1), -ESRCH);
	ck_assert_int_eq(attach_as(1, 2, SH_CLIENTS), -ESRCH);
	ck_assert_int_eq(attach_as(1, 2, ~0u), -ESRCH);
	/* A second leader has shards of its own to be mapped. */
	ck_assert_uint_eq(rec(attached(1, 0))->nr_unacked, 1);
	ck_assert_uint_eq(rec(attached(0, 0))->nr_unacked, 0);
}
END_TEST

/* A rank sends no request of a sequence or a step. */
START_TEST(test_requests)
{
	struct kvmm_open_arg o = { .prompt_len = SH_BT };
	struct kvmm_begin_arg b = { .max_tokens = 1 };

	ck_assert_int_eq(sh_submit(rank, KVMM_OP_NOP, 0, 0, 0), 0);
	memcpy(sh.args, &o, sizeof(o));
	ck_assert_int_eq(sh_submit(rank, KVMM_OP_SEQ_OPEN, 1, 0, sizeof(o)), -EPERM);
	memcpy(sh.args, &b, sizeof(b));
	ck_assert_int_eq(sh_submit(rank, KVMM_OP_STEP_BEGIN, 1, 1, sizeof(b)), -EPERM);
	ck_assert_uint_eq(rec(rank)->nr_seqs, 0);
}
END_TEST

/* ---- extents ---- */

/* Each is sent the extents of its own shard. */
START_TEST(test_extents)
{
	u64 seq = sh_ready(lead, SH_BT, 0, 5);
	u32 e;

	sh_compute(lead, seq, 0, SH_BT, 5);
	for (e = 0; e < 2 * EACH; e++)
		ck_assert_uint_eq(c->extents[e].sent, !c->extents[e].backed ? 0 :
				  BIT_ULL(e < EACH ? lead : rank));
	ck_assert(c->extents[0].backed && c->extents[EACH].backed);
}
END_TEST

/* A block is granted when the rank has mapped its part, too. */
START_TEST(test_rank_is_slow)
{
	u64 seq;

	sh.cl[rank].mute = true;
	seq = sh_open(lead, SH_BT, 0);
	sh_match(lead, seq, SH_BT, 5);
	ck_assert_uint_eq(rec(lead)->nr_unacked, 1);
	ck_assert_int_eq(sh_state(lead, seq), KVMM_SEQ_WAITING);
	ck_assert_int_eq(sh_ack(rank, EACH), 0);
	sh_tick(1);
	ck_assert_uint_eq(rec(lead)->nr_unacked, 0);
	ck_assert_int_eq(sh_state(lead, seq), KVMM_SEQ_READY);
}
END_TEST

/* Without a client for each shard no sequence begins. */
START_TEST(test_rank_is_missing)
{
	u32 other = attached(1, 0);
	u64 seq = sh_open(other, SH_BT, 0);

	sh_match(other, seq, SH_BT, 5);
	ck_assert_int_eq(sh_state(other, seq), KVMM_SEQ_WAITING);
	(void)attached(2, other + 1);
	sh_tick(1);
	ck_assert_int_eq(sh_state(other, seq), KVMM_SEQ_READY);
}
END_TEST

/*
 * Between its attach and its segments a rank was sent no extent: those that the domain
 * has already are not granted meanwhile.
 */
START_TEST(test_rank_without_segments)
{
	struct kvmm_attach_req req = sh_attach_req("s");
	u32 other = attached(1, 0), made;
	u64 seq = sh_ready(lead, SH_BT, 0, 5), waits = sh_open(other, SH_BT, 0);
	struct core_attach_info info;
	u8 secret[CORE_SECRET_LEN] = { 0 };
	struct sh_client *cl;

	sh_compute(lead, seq, 0, SH_BT, 5);
	req.nr_shards = 2;
	req.shard = 2;
	req.leader = other + 1;
	SH_CORE(ck_assert_int_eq(core_client_attach(c, sh.now, 1, secret, &req, &info), 0));
	made = info.client;
	sh_match(other, waits, SH_BT, 7);
	sh_tick(1);
	ck_assert_uint_eq(rec(other)->nr_unacked, 1);
	ck_assert_int_eq(sh_state(other, waits), KVMM_SEQ_WAITING);
	cl = &sh.cl[made];
	SH_CORE(core_client_bind(c, made, &(struct core_bind){
		.ctl = &cl->ctl, .seqs = cl->seqs, .extents = cl->extents,
		.tables = cl->tables, .events = cl->events, .nr_events = SH_EVENTS }));
	ck_assert_uint_ge(rec(other)->nr_unacked, 1);
	sh_settle();
	sh_tick(1);
	ck_assert_uint_eq(rec(other)->nr_unacked, 0);
	ck_assert_int_eq(sh_state(other, waits), KVMM_SEQ_READY);
}
END_TEST

/* A rank that dies before it has segments leaves its shard to another one. */
START_TEST(test_rank_dies_without_segments)
{
	struct kvmm_attach_req req = sh_attach_req("s");
	u32 other = attached(1, 0);
	struct core_attach_info info;
	u8 secret[CORE_SECRET_LEN] = { 0 };

	req.nr_shards = 2;
	req.shard = 2;
	req.leader = other + 1;
	SH_CORE(ck_assert_int_eq(core_client_attach(c, sh.now, 1, secret, &req, &info), 0));
	sh_die(info.client);
	ck_assert_uint_eq(rec(other)->killed, 0);
	sh_quiet(info.client);
	ck_assert_uint_eq(rec(other)->nr_unacked, 1);
	(void)attached(2, other + 1);
	ck_assert_uint_eq(rec(other)->nr_unacked, 0);
}
END_TEST

/* Attach a rank for shard 2 of the leader that acknowledges nothing by itself. */
static u32 attached_mute(void)
{
	struct kvmm_attach_req req = sh_attach_req("s");
	int cl;

	req.nr_shards = 2;
	req.shard = 2;
	req.leader = lead + 1;
	cl = sh_attach_as(1, &req);
	ck_assert_int_ge(cl, 0);
	sh.cl[cl].mute = true;
	return (u32)cl;
}

/*
 * A step that needs no new block names those of its sequence: it waits until a client has
 * mapped them for each shard.
 */
START_TEST(test_step_in_place)
{
	u64 seq = sh_ready(lead, SH_BT, SH_BT, 5);

	sh_compute(lead, seq, 0, 1, 5);
	ck_assert_int_eq(sh_submit(rank, KVMM_OP_DETACH, 0, 0, 0), 0);
	ck_assert_int_eq(sh_begin(lead, seq, 1, 1), -EAGAIN);
	rank = attached_mute();
	ck_assert_uint_eq(rec(rank)->nr_unacked, 1);
	ck_assert_uint_eq(rec(lead)->nr_unacked, 2);
	ck_assert_int_eq(sh_begin(lead, seq, 1, 1), -EAGAIN);
	ck_assert_int_eq(sh_ack(rank, EACH), 0);
	ck_assert_uint_eq(rec(lead)->nr_unacked, 0);
	ck_assert_int_eq(sh_begin(lead, seq, 1, 1), 0);
}
END_TEST

/* A new rank dies: its group goes on if the rank had mapped nothing. */
START_TEST(test_new_rank_dies)
{
	u64 seq = sh_ready(lead, 5 * SH_BT, 0, 5);

	sh_compute(lead, seq, 0, 5 * SH_BT, 5);
	ck_assert_int_eq(sh_submit(rank, KVMM_OP_DETACH, 0, 0, 0), 0);
	rank = attached_mute();
	ck_assert_uint_eq(rec(rank)->nr_unacked, 2);
	if (_i)
		ck_assert_int_eq(sh_ack(rank, EACH), 0);
	sh_die(rank);
	ck_assert_uint_eq(rec(lead)->killed, (u32)_i);
	sh_quiet(rank);
	ck_assert_uint_eq(rec(lead)->nr_unacked, 1);
	sh_check();
}
END_TEST

/* ---- the end ---- */

/* A rank that detaches leaves its shard to another one; running sequences wait. */
START_TEST(test_rank_detaches)
{
	u64 seq = sh_ready(lead, SH_BT, SH_BT, 5);

	sh.cl[rank].mute = true;
	sh_compute(lead, seq, 0, SH_BT, 5);
	ck_assert_int_eq(sh_submit(rank, KVMM_OP_DETACH, 0, 0, 0), 0);
	ck_assert_uint_eq(rec(lead)->member[1], CORE_NONE);
	ck_assert_uint_eq(rec(lead)->nr_unacked, 1);
	ck_assert_int_eq(sh_begin(lead, seq, SH_BT, 1), -EAGAIN);
	ck_assert_uint_eq(rec(lead)->killed, 0);
	rank = attached(2, lead + 1);
	ck_assert_int_eq(sh_begin(lead, seq, SH_BT, 1), 0);
}
END_TEST

/* Extents that a rank has not mapped when it leaves delay its leader no longer. */
START_TEST(test_rank_detaches_unmapped)
{
	u64 seq;

	sh.cl[rank].mute = true;
	seq = sh_open(lead, SH_BT, 0);
	sh_match(lead, seq, SH_BT, 5);
	ck_assert_uint_eq(rec(lead)->nr_unacked, 1);
	ck_assert_int_eq(sh_submit(rank, KVMM_OP_DETACH, 0, 0, 0), 0);
	ck_assert_uint_eq(rec(lead)->nr_unacked, 1);	/* the shard itself */
	rank = attached(2, lead + 1);
	ck_assert_uint_eq(rec(lead)->nr_unacked, 0);
	sh_tick(1);
	ck_assert_int_eq(sh_state(lead, seq), KVMM_SEQ_READY);
}
END_TEST

/*
 * A process of the group dies: the other one is killed, its requests fail, and the blocks
 * of its steps are kept until both are quiet.
 */
START_TEST(test_death)
{
	u64 seq = sh_ready(lead, SH_BT, SH_BT, 5);
	u32 first = _i ? rank : lead, second = _i ? lead : rank, e;

	sh_compute(lead, seq, 0, SH_BT, 5);
	ck_assert_int_eq(sh_begin(lead, seq, SH_BT, 1), 0);
	sh_die(first);
	ck_assert_uint_eq(rec(second)->killed, 1);
	ck_assert_int_eq(sh.cl[second].kill_reason, -EPIPE);
	if (_i)
		ck_assert_int_eq(sh_end_empty(lead, sh.cl[lead].step), -EPIPE);
	sh_quiet(first);
	if (_i) {
		ck_assert_uint_eq(rec(rank)->state, CLI_FREE);
		sh_die(second);
	} else {
		ck_assert_uint_eq(rec(lead)->state, CLI_DEAD);
		ck_assert_uint_eq(sh_pool().quarantine, 2 * SH_BLOCK);	/* both parts */
		for (e = 0; e < 2 * EACH; e++)
			ck_assert(!(c->extents[e].sent & BIT_ULL(lead)));
		/* Its process is gone, so that it is not killed for being late. */
		sh_tick(1000);
		ck_assert_uint_eq(rec(lead)->killed, 0);
		sh_die(second);
		ck_assert_uint_eq(sh_pool().quarantine, 2 * SH_BLOCK);
	}
	sh_quiet(second);
	ck_assert_uint_eq(sh_pool().quarantine, 0);
	ck_assert_uint_eq(rec(lead)->state, CLI_FREE);
	ck_assert_uint_eq(rec(rank)->state, CLI_FREE);
	/* The prefix is there for the next group. */
	lead = attached(1, 0);
	rank = attached(2, lead + 1);
	seq = sh_open(lead, SH_BT + 1, 0);
	sh_match(lead, seq, SH_BT + 1, 5);
	ck_assert_uint_eq(sh_status(lead, seq)->valid_len, SH_BT);
}
END_TEST

/*
 * The rank sees the end of its leader and detaches before it is killed: the leader's
 * record and the blocks of its step are free when the rank has gone.
 */
START_TEST(test_rank_detaches_behind)
{
	u64 seq = sh_ready(lead, SH_BT, SH_BT, 5);

	sh_compute(lead, seq, 0, SH_BT, 5);
	ck_assert_int_eq(sh_begin(lead, seq, SH_BT, 1), 0);
	sh_die(lead);
	if (!_i)
		sh_quiet(lead);
	ck_assert_uint_eq(sh_pool().quarantine, 2 * SH_BLOCK);
	ck_assert_int_eq(sh_submit(rank, KVMM_OP_DETACH, 0, 0, 0), 0);
	if (_i)
		sh_quiet(lead);
	ck_assert_uint_eq(rec(lead)->state, CLI_FREE);
	ck_assert_uint_eq(sh_pool().quarantine, 0);
	sh_quiet(rank);
	ck_assert_uint_eq(rec(rank)->state, CLI_FREE);
	sh_check();
}
END_TEST

/* The leader detaches: its ranks lead nowhere, and leave when they want. */
START_TEST(test_leader_detaches)
{
	ck_assert_int_eq(sh_submit(lead, KVMM_OP_DETACH, 0, 0, 0), 0);
	sh_quiet(lead);
	ck_assert_uint_eq(rec(lead)->state, CLI_FREE);
	ck_assert_uint_eq(rec(rank)->leader, CORE_NONE);
	ck_assert_uint_eq(rec(rank)->killed, 0);
	ck_assert_int_eq(sh_submit(rank, KVMM_OP_DETACH, 0, 0, 0), 0);
	sh_quiet(rank);
	ck_assert_uint_eq(rec(rank)->state, CLI_FREE);
}
END_TEST

/* Another tenant takes an extent back that the rank never mapped. */
START_TEST(test_revoked_unmapped)
{
	u64 seq, in_t = 0;
	u32 i;
	u32 t = sh_attach(2, "t");

	sh.cl[rank].mute = true;
	seq = sh_open(lead, SH_BT, 0);
	sh_match(lead, seq, SH_BT, 5);
	ck_assert_uint_eq(rec(lead)->nr_unacked, 1);
	for (i = 0; i < EACH && !in_t; i++) {
		u64 next = sh_open(t, 4 * SH_BT, 0);

		sh_match(t, next, 4 * SH_BT, 100 * i);
		sh_tick(200);
		in_t = sh_state(t, next) == KVMM_SEQ_READY ? 0 : next;
	}
	for (i = 0; i < 20; i++)
		sh_tick(200);
	sh_check();
}
END_TEST

/* ---- adoption ---- */

static int adopt(struct core_report *r)
{
	memset(c, 0, core_struct_size());
	return core_adopt(c, sh.arena, core_arena_size(&sh.cfg), &sh.cfg, &sh_ops, NULL,
			  sh.now, r);
}

START_TEST(test_adopted)
{
	u64 seq = sh_ready(lead, SH_BT, 0, 5);
	struct core_attach_info info;
	struct core_report r;
	u64 committed;

	sh_compute(lead, seq, 0, SH_BT, 5);
	if (_i)
		c->head->event = 1;
	ck_assert_msg(adopt(&r) == (_i ? CORE_ADOPT_SALVAGED : CORE_ADOPT_WHOLE), "%s",
		      r.text);
	ck_assert_uint_eq(rec(lead)->member[0], lead);
	ck_assert_uint_eq(rec(lead)->member[1], rank);
	ck_assert_uint_eq(rec(lead)->nr_unacked, 0);
	/* The rank's process did not live on: the leader is killed when it is back. */
	SH_CORE(core_client_dead(c, sh.now, rank));
	SH_CORE(core_client_quiet(c, sh.now, rank));
	ck_assert_uint_eq(rec(lead)->broken, 1);
	ck_assert_uint_eq(rec(lead)->killed, 0);
	ck_assert_uint_eq(rec(lead)->member[1], CORE_NONE);
	sh_check();
	memset(&sh.cl[lead].ctl, 0, sizeof(sh.cl[lead].ctl));
	memset(sh.cl[lead].extents, 0, sizeof(sh.cl[lead].extents));
	SH_CORE(ck_assert_int_eq(core_client_resume(c, sh.now, lead, rec(lead)->last_number,
						    &info, &committed), 0));
	SH_CORE(core_client_bind(c, lead, &(struct core_bind){
		.ctl = &sh.cl[lead].ctl, .seqs = sh.cl[lead].seqs,
		.extents = sh.cl[lead].extents, .tables = sh.cl[lead].tables,
		.events = sh.cl[lead].events, .nr_events = SH_EVENTS }));
	ck_assert_uint_eq(rec(lead)->killed, 1);
}
END_TEST

START_TEST(test_lying_arena)
{
	struct core_report r;
	bool whole = _i & 1;

	switch (_i / 2) {
	case 0:
		rec(rank)->leader = SH_CLIENTS;
		break;
	case 1:
		rec(rank)->leader = rank;
		break;
	case 2:
		rec(rank)->shards = 3;
		break;
	case 3:
		rec(rank)->shards = 1;
		break;
	case 4:
		rec(lead)->shards = 4;
		break;
	case 5:
		rec(lead)->leader = rank;
		break;
	}
	c->head->event = !whole;
	/* Another leader of shard 2 is no contradiction, but it has no member of shard 1. */
	if (_i == 2)
		ck_assert_int_eq(adopt(&r), CORE_ADOPT_SALVAGED);
	else
		ck_assert_int_ne(adopt(&r), CORE_ADOPT_WHOLE);
}
END_TEST

/* A leader is no new rank, and waits for ranks only when it is dead; a rank never does. */
START_TEST(test_lying_flags)
{
	struct core_report r;

	switch (_i / 2) {
	case 0:
		rec(lead)->quiet = 1;
		break;
	case 1:
		rec(lead)->joining = 1;
		rec(lead)->nr_unacked++;
		break;
	case 2:
		sh_die(rank);
		rec(rank)->quiet = 1;
		break;
	}
	c->head->event = _i & 1;
	ck_assert_int_eq(adopt(&r), -EUCLEAN);
}
END_TEST

/* Facts of a client that ended: their use would end kvmm later. */
START_TEST(test_lying_end)
{
	u64 seq = sh_ready(lead, SH_BT, 0, 5);
	struct core_report r;

	sh_compute(lead, seq, 0, SH_BT, 5);
	switch (_i) {
	case 0:
		sh_die(rank);
		c->extents[EACH].mapped = 0;
		break;
	case 1:
		rec(lead)->state = CLI_DEAD;
		break;
	case 2:
		rec(rank)->state = CLI_DETACHED;
		break;
	}
	ck_assert_int_eq(adopt(&r), -EUCLEAN);
}
END_TEST

START_TEST(test_lying_member)
{
	struct core_report r;

	rec(lead)->member[1] = _i ? lead : SH_CLIENTS;
	ck_assert_int_ne(adopt(&r), CORE_ADOPT_WHOLE);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core-ranks");
	TCase *tc = tcase_create("ranks");

	tcase_set_tags(tc, "unit core");
	tcase_add_checked_fixture(tc, setup, sh_stop);
	tcase_add_test(tc, test_attach);
	tcase_add_test(tc, test_requests);
	tcase_add_test(tc, test_extents);
	tcase_add_test(tc, test_rank_is_slow);
	tcase_add_test(tc, test_rank_is_missing);
	tcase_add_test(tc, test_rank_without_segments);
	tcase_add_test(tc, test_rank_dies_without_segments);
	tcase_add_test(tc, test_step_in_place);
	tcase_add_loop_test(tc, test_new_rank_dies, 0, 2);
	tcase_add_test(tc, test_rank_detaches);
	tcase_add_test(tc, test_rank_detaches_unmapped);
	tcase_add_loop_test(tc, test_death, 0, 2);
	tcase_add_loop_test(tc, test_rank_detaches_behind, 0, 2);
	tcase_add_test(tc, test_leader_detaches);
	tcase_add_test(tc, test_revoked_unmapped);
	tcase_add_loop_test(tc, test_adopted, 0, 2);
	tcase_add_loop_test(tc, test_lying_arena, 0, 12);
	tcase_add_loop_test(tc, test_lying_flags, 0, 6);
	tcase_add_loop_test(tc, test_lying_end, 0, 3);
	tcase_add_loop_test(tc, test_lying_member, 0, 2);
	suite_add_tcase(s, tc);
	return sh_run(s);
}
