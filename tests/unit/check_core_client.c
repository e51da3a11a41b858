// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_client.c - attach, detach, death, deadlines
 */
#include "tests/unit/core_shell.h"

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

/* ---- attach ---- */

static struct kvmm_attach_req bad_req;

#define BAD(field, value)						\
	static void bad_##field(void) { bad_req.field = (value); }

BAD(max_steps, 0)
BAD(block_tokens, 8)
BAD(nr_groups, 2)
BAD(nr_shards, 2)
BAD(flags, KVMM_ATTACH_RESUME)

#define BAD_AT(name, place, value)					\
	static void bad_##name(void) { bad_req.place = (value); }

BAD(shard, 2)
BAD(leader, 1)
BAD(resv, 1)
BAD(pool, 2)
BAD_AT(domain_empty, domain[0], 0)
BAD_AT(domain_endless, domain[KVMM_NAME_LEN - 1], 'x')
BAD_AT(steps_many, max_steps, KVMM_MAX_STEPS + 1)
BAD_AT(tokens_zero, block_tokens, 0)
BAD_AT(tokens_odd, block_tokens, 17)
BAD_AT(tokens_65552, block_tokens, 65552)
BAD_AT(tokens_4112, block_tokens, 4112)
BAD_AT(groups_none, nr_groups, 0)
BAD_AT(shards_none, nr_shards, 0)
BAD_AT(shards_many, nr_shards, 9)
BAD_AT(layers_none, group[0].layers, 0)
BAD_AT(layers_many, group[0].layers, 4097)
BAD_AT(heads_none, group[0].kv_heads, 0)
BAD_AT(heads_many, group[0].kv_heads, 4097)
BAD_AT(k_none, group[0].k_bytes, 0)
BAD_AT(k_large, group[0].k_bytes, 65537)
BAD_AT(v_large, group[0].v_bytes, 65537)
BAD_AT(scale_large, group[0].scale_bytes, 1025)
BAD_AT(window, group[0].window, 1)
BAD_AT(group_kind, group[0].kind, 2)
BAD_AT(token_small, group[0].k_bytes, 31)
BAD_AT(block_large, group[0].layers, 64)
BAD_AT(max_none, limits[0].max, 0)
BAD_AT(max_small, limits[0].max, SH_BLOCK - 1)

static const struct {
	const char	*what;
	void		(*spoil)(void);
	int		error;
} bad_attach[] = {
	{ "shard 2 of 1", bad_shard, -EINVAL },
	{ "a rank without a shard", bad_leader, -EINVAL },
	{ "resv", bad_resv, -EINVAL },
	{ "a pool that is not there", bad_pool, -ENXIO },
	{ "no name", bad_domain_empty, -EINVAL },
	{ "a name without an end", bad_domain_endless, -EINVAL },
	{ "no steps", bad_max_steps, -EINVAL },
	{ "too many steps", bad_steps_many, -EINVAL },
	{ "block_tokens 8", bad_block_tokens, -EINVAL },
	{ "block_tokens 0", bad_tokens_zero, -EINVAL },
	{ "block_tokens 17", bad_tokens_odd, -EINVAL },
	{ "block_tokens 4112", bad_tokens_4112, -EINVAL },
	{ "block_tokens 65552", bad_tokens_65552, -EINVAL },
	{ "two groups, one without a shape", bad_nr_groups, -EINVAL },
	{ "no group", bad_groups_none, -EINVAL },
	{ "two shards in one pool", bad_nr_shards, -ENXIO },
	{ "nine shards", bad_shards_many, -EINVAL },
	{ "no shard", bad_shards_none, -EINVAL },
	{ "resume", bad_flags, -EOPNOTSUPP },
	{ "no layers", bad_layers_none, -EINVAL },
	{ "too many layers", bad_layers_many, -EINVAL },
	{ "no heads", bad_heads_none, -EINVAL },
	{ "too many heads", bad_heads_many, -EINVAL },
	{ "no K", bad_k_none, -EINVAL },
	{ "too much K", bad_k_large, -EINVAL },
	{ "too much V", bad_v_large, -EINVAL },
	{ "too much scale", bad_scale_large, -EINVAL },
	{ "a window in group 0", bad_window, -EINVAL },
	{ "group kind", bad_group_kind, -EINVAL },
	{ "a token too small", bad_token_small, -EINVAL },
	{ "a block too large", bad_block_large, -EINVAL },
	{ "max 0", bad_max_none, -EINVAL },
	{ "max below a block", bad_max_small, -EINVAL },
};

/* A refused attach makes no tenant and no domain, and drops no cache. */
START_TEST(test_attach_refused)
{
	struct core_attach_info info;
	u8 secret[CORE_SECRET_LEN] = { 1 };
	u64 held, attached, seq = sh_ready(cl, 32, 0, 0);
	u32 i;
	int err;

	sh_compute(cl, seq, 0, 32, 0);
	ck_assert_int_eq(sh_close(cl, seq), 0);
	sh_quiet(cl);
	/* Leave only idle domains, which could give way. */
	for (i = 1; i < sh.cfg.max_domains; i++) {
		char name[2] = { (char)('a' + i), 0 };

		sh_quiet(sh_attach(1, name));
	}
	held = sh_pool().cached;
	attached = sh_count(CORE_EV_client_attach);
	ck_assert_uint_eq(held, 2 * SH_BLOCK);

	/* First under a new name, then under a name that has cache. */
	for (i = 0; i < 2; i++) {
		bad_req = sh_attach_req(i ? "a" : "new");
		bad_req.identity[0] = (u8)i;
		bad_attach[_i].spoil();
		err = core_client_attach(sh.core, sh.now, 1 + !i, secret,
					 &bad_req, &info);
		ck_assert_msg(err == bad_attach[_i].error, "%s: %d",
			      bad_attach[_i].what, err);
		ck_assert_ptr_nonnull(info.text);
		ck_assert_uint_eq(sh_pool().cached, held);
	}
	ck_assert_uint_eq(sh_count(CORE_EV_client_attach), attached);
	sh_check();

	/* All other tenants still find a place: the refused attach made none. */
	for (i = 2; i < 2 + sh.cfg.max_tenants - 1; i++)
		(void)sh_attach(i, "t");
}
END_TEST

START_TEST(test_attach_geometry)
{
	const struct core_attach_info *info = &sh.cl[cl].info;

	ck_assert_uint_eq(info->unit, 64);
	ck_assert_uint_eq(info->block_bytes, SH_BLOCK);
	ck_assert_uint_eq(info->span_extents, 1);
	ck_assert_uint_eq(info->span_blocks, SH_PER);
	ck_assert_uint_eq(info->span_tail, 0);
	ck_assert_uint_eq(info->stride[0], SH_BLOCK);
	ck_assert_uint_eq(info->nr_extents, 4);
	ck_assert_uint_eq(info->max_seqs, SH_SEQS);
	ck_assert_uint_eq(info->max_steps, 4);
}
END_TEST

START_TEST(test_attach_one_client_too_many)
{
	struct kvmm_attach_req req = sh_attach_req("a");
	u32 i;

	for (i = 1; i < SH_CLIENTS; i++)
		ck_assert_uint_eq(sh_attach(1, "a"), i);
	ck_assert_int_eq(sh_attach_as(1, &req), -EUSERS);
	sh_quiet(3);
	ck_assert_uint_eq(sh_attach(1, "a"), 3);
}
END_TEST

START_TEST(test_attach_one_tenant_too_many)
{
	struct kvmm_attach_req req = sh_attach_req("a");
	u32 i;

	for (i = 2; i <= sh.cfg.max_tenants; i++)
		(void)sh_attach(i, "a");
	ck_assert_int_eq(sh_attach_as(99, &req), -ENOSPC);
}
END_TEST

/* A core with room for two domains. */
static void two_domains(void)
{
	sh_stop();
	sh_config(4);
	sh.cfg.max_domains = 2;
	sh_start();
}

START_TEST(test_attach_one_domain_too_many)
{
	struct kvmm_attach_req req = sh_attach_req("z");
	u32 i;

	two_domains();
	cl = sh_attach(1, "a");
	i = sh_attach(1, "b");
	ck_assert_int_eq(sh_attach_as(1, &req), -ENOSPC);
	/* A domain without clients gives way. */
	sh_quiet(i);
	ck_assert_int_ge(sh_attach_as(1, &req), 0);
}
END_TEST

/* Of idle domains one without cache gives way, though it was left later. */
START_TEST(test_attach_drops_an_empty_domain)
{
	struct kvmm_attach_req req = sh_attach_req("z");
	u64 seq;
	u32 i;

	two_domains();
	cl = sh_attach(1, "a");
	seq = sh_ready(cl, 32, 0, 0);
	sh_compute(cl, seq, 0, 32, 0);
	sh_quiet(cl);
	i = sh_attach(1, "b");
	sh_quiet(i);
	i = (u32)sh_attach_as(1, &req);
	ck_assert_str_eq(sh.cl[i].info.replaced, "");
	/* The other one is the only idle domain now. */
	i = sh_attach(1, "c");
	ck_assert_str_eq(sh.cl[i].info.replaced, "a");
}
END_TEST

/* A name belongs to one model at a time; another model takes it over when idle. */
START_TEST(test_attach_of_another_model)
{
	struct kvmm_attach_req req = sh_attach_req("a");
	u64 seq = sh_ready(cl, 32, 0, 0);

	sh_compute(cl, seq, 0, 32, 0);
	ck_assert_int_eq(sh_close(cl, seq), 0);
	req.identity[5] = 1;
	ck_assert_int_eq(sh_attach_as(1, &req), -EEXIST);
	ck_assert_uint_eq(sh_pool().cached, 2 * SH_BLOCK);
	sh_quiet(cl);
	cl = (u32)sh_attach_as(1, &req);
	sh_settle();
	ck_assert_uint_eq(sh_pool().cached, 0);
	/* The attach reports the dropped blocks once, for the operator. */
	ck_assert_uint_eq(sh.cl[cl].info.dropped_blocks, 2);
	ck_assert_uint_eq(sh.cl[sh_attach_as(1, &req)].info.dropped_blocks, 0);
	/* Prefixes that the other model computed are not found. */
	seq = sh_ready(cl, 32, 0, 0);
	ck_assert_uint_eq(sh_status(cl, seq)->cached_len, 0);
}
END_TEST

/* A new client of the same model finds the prefixes. */
START_TEST(test_prefixes_outlive_the_client)
{
	u64 seq = sh_ready(cl, 32, 4, 0);

	sh_compute(cl, seq, 0, 32, 0);
	sh_die(cl);
	sh_quiet(cl);
	cl = sh_attach(1, "a");
	seq = sh_ready(cl, 33, 0, 0);
	ck_assert_uint_eq(sh_status(cl, seq)->cached_len, 32);
}
END_TEST

/* Handles of a former client mean nothing to the next client in its place. */
START_TEST(test_handles_do_not_outlive_the_client)
{
	u64 seq = sh_ready(cl, 32, 4, 0);

	sh_quiet(cl);
	ck_assert_uint_eq(sh_attach(1, "a"), cl);
	ck_assert_uint_ne(sh_ready(cl, 32, 4, 0), seq);
	ck_assert_int_eq(sh_close(cl, seq), -ENOENT);
}
END_TEST

/* ---- death ---- */

/* Blocks that an open step could write are quarantined until quiet. */
START_TEST(test_quarantine)
{
	u64 a = sh_ready(cl, 40, 24, 0), b = sh_ready(cl, 20, 4, 500), c;
	u32 other = sh_attach(1, "a");

	sh_compute(cl, a, 0, 20, 0);
	sh_compute(cl, b, 0, 20, 500);
	ck_assert_int_eq(sh_begin(cl, a, 20, 30), 0);
	sh_die(cl);
	/* The tail of a and two more blocks may be written; b ended at once. */
	ck_assert_uint_eq(sh_pool().quarantine, 3 * SH_BLOCK);
	ck_assert_uint_eq(sh_count(CORE_EV_quarantine), 3);
	ck_assert_uint_eq(sh_pool().sealed, SH_BLOCK);
	ck_assert_uint_eq(sh_pool().cached, SH_BLOCK);
	/* No sequence gets these blocks, however many are wanted. */
	c = sh_open(other, 240, 0);
	ck_assert_int_eq(sh_match(other, c, 240, 900), 0);
	sh_tick(60);
	sh_tick(60);
	ck_assert_uint_eq(sh_state(other, c), KVMM_SEQ_WAITING);
	ck_assert_uint_eq(sh_pool().quarantine, 3 * SH_BLOCK);
	sh_quiet(cl);
	ck_assert_uint_eq(sh_pool().quarantine, 0);
	ck_assert_uint_eq(sh_state(other, c), KVMM_SEQ_READY);
}
END_TEST

/*
 * The target of a copy is written too; its source stays until the client is
 * quiet.
 */
START_TEST(test_quarantine_of_a_copy)
{
	u64 a = sh_ready(cl, 20, 24, 0), b;

	sh_compute(cl, a, 0, 20, 0);
	ck_assert_int_eq(sh_fork(cl, a, 1, &b), 0);
	ck_assert_int_eq(sh_begin(cl, b, 20, 1), 0);
	sh_die(cl);
	ck_assert_uint_eq(sh_pool().quarantine, SH_BLOCK);
	ck_assert_uint_eq(sh_pool().quiescing, SH_BLOCK);
	sh_quiet(cl);
	ck_assert_uint_eq(sh_pool().quarantine + sh_pool().quiescing, 0);
	ck_assert_uint_eq(sh_pool().free + sh_pool().free_extents +
			  sh_pool().cached, sh_pool().total);
}
END_TEST

START_TEST(test_death_twice_and_late)
{
	sh_die(cl);
	sh_die(cl);
	ck_assert_uint_eq(sh_count(CORE_EV_client_death), 1);
	sh_quiet(cl);
	sh_quiet(cl);
	sh_die(cl);
	ck_assert_uint_eq(sh_attach(1, "a"), cl);
}
END_TEST

/* The memory of one tenant wakes another when its last client is quiet. */
START_TEST(test_quiet_wakes_other_tenants)
{
	u32 other = sh_attach(2, "b");
	u64 seq = sh_open(other, 200, 0);

	ck_assert_int_eq(sh_match(other, seq, 200, 0), 0);
	ck_assert_uint_eq(sh_state(other, seq), KVMM_SEQ_WAITING);
	sh_die(cl);
	ck_assert_uint_eq(sh_state(other, seq), KVMM_SEQ_WAITING);
	sh_quiet(cl);
	ck_assert_uint_eq(sh_state(other, seq), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh.nr_releases, 4);
}
END_TEST

START_TEST(test_expelled)
{
	core_client_eproto(sh.core, sh.now, cl);
	ck_assert_uint_eq(sh.cl[cl].ctl.state, KVMM_CLIENT_EXPELLED);
	ck_assert_int_eq(sh.cl[cl].ctl.reason, -EPROTO);
	ck_assert_uint_eq(sh_count(CORE_EV_client_eproto), 1);
	ck_assert_uint_eq(sh_count(CORE_EV_client_death), 1);
	core_client_eproto(sh.core, sh.now, cl);
	ck_assert_uint_eq(sh_count(CORE_EV_client_eproto), 1);
	sh_check();
}
END_TEST

START_TEST(test_shutdown)
{
	const struct kvmm_event *ev;

	core_shutdown(sh.core, sh.now);
	ck_assert_uint_eq(sh.cl[cl].ctl.state, KVMM_CLIENT_SHUTDOWN);
	ev = &sh.cl[cl].events[(sh.cl[cl].ctl.event_tail - 1) % SH_EVENTS];
	ck_assert_uint_eq(ev->type, KVMM_EV_SHUTDOWN);
	ck_assert_uint_eq(ev->index, 0);
	ck_assert_uint_eq(ev->seq, 0);
}
END_TEST

/* ---- detach ---- */

START_TEST(test_detach)
{
	u64 seq = sh_ready(cl, 40, 24, 0);

	ck_assert_int_eq(sh_begin(cl, seq, 0, 4), 0);
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_DETACH, 0, 0, 0), -EBUSY);
	ck_assert_int_eq(sh_end_empty(cl, sh.cl[cl].step), 0);
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_DETACH, 0, 0, 0), 0);
	ck_assert_uint_eq(sh.cl[cl].ctl.state, KVMM_CLIENT_DETACHED);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_CLOSED);
	ck_assert_uint_eq(sh_pool().committed, 0);
	ck_assert_uint_eq(sh_count(CORE_EV_client_detach), 1);
}
END_TEST

/*
 * A detached client may live on with its mappings: other tenants get none of
 * its memory before its process has ended.
 */
START_TEST(test_detached_client_may_live_on)
{
	struct kvmm_open_arg a = { .prompt_len = 200,
				   .flags = KVMM_OPEN_NO_INDEX };
	u32 other;
	u64 seq;

	/* Leave extents in no span, and one span that is empty. */
	ck_assert_int_eq(sh_open_as(cl, &a, &seq), 0);
	ck_assert_int_eq(sh_match(cl, seq, 200, 0), 0);
	sh_compute(cl, seq, 0, 200, 0);
	ck_assert_int_eq(sh_close(cl, seq), 0);
	ck_assert_uint_eq(sh_pool().nr_free_extents, 3);
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_DETACH, 0, 0, 0), 0);
	other = sh_attach(2, "b");
	seq = sh_open(other, 20, 0);
	ck_assert_int_eq(sh_match(other, seq, 20, 0), 0);
	ck_assert_uint_eq(sh_state(other, seq), KVMM_SEQ_WAITING);
	if (_i) {
		/* The client hung up and lives on. */
		sh_quiet(cl);
		sh_tick(1000);
		ck_assert_uint_eq(sh_state(other, seq), KVMM_SEQ_WAITING);
		ck_assert_uint_eq(sh.nr_releases, 0);
		/* Then its process ends. */
		SH_CORE(core_ghost_gone(sh.core, sh.now,
					sh.cl[cl].info.tenant));
		sh_settle();
		ck_assert_uint_eq(sh_state(other, seq), KVMM_SEQ_READY);
	} else {
		sh_die(cl);
		sh_quiet(cl);
		ck_assert_uint_eq(sh_state(other, seq), KVMM_SEQ_READY);
	}
}
END_TEST

/* ---- deadlines ---- */

/* A step has no deadline while no sequence waits. */
START_TEST(test_step_deadline)
{
	u64 seq = sh_ready(cl, 200, 24, 0), wait;
	u32 other = sh_attach(1, "a");

	sh_compute(cl, seq, 0, 200, 0);
	ck_assert_int_eq(sh_begin(cl, seq, 200, 24), 0);
	sh_tick(500);
	ck_assert_uint_eq(sh.cl[cl].killed, 0);
	/* Waiting sequences of the same client do not count. */
	wait = sh_open(cl, 100, 0);
	ck_assert_int_eq(sh_match(cl, wait, 100, 700), 0);
	sh_tick(500);
	ck_assert_uint_eq(sh.cl[cl].killed, 0);
	wait = sh_open(other, 100, 0);
	ck_assert_int_eq(sh_match(other, wait, 100, 800), 0);
	sh_tick(1);
	ck_assert_uint_eq(sh.cl[cl].killed, 1);
	ck_assert_int_eq(sh.cl[cl].kill_reason, -ETIME);
	sh_tick(1000);
	ck_assert_uint_eq(sh.cl[cl].killed, 1);
	sh_die(cl);
	sh_quiet(cl);
	ck_assert_uint_eq(sh_state(other, wait), KVMM_SEQ_READY);
}
END_TEST

/* The client is not killed before the deadline, though a sequence waits. */
START_TEST(test_step_before_its_deadline)
{
	u64 seq = sh_ready(cl, 200, 24, 0), wait;
	u32 other = sh_attach(1, "a");

	sh_compute(cl, seq, 0, 200, 0);
	wait = sh_open(other, 100, 0);
	ck_assert_int_eq(sh_match(other, wait, 100, 800), 0);
	ck_assert_int_eq(sh_begin(cl, seq, 200, 24), 0);
	sh_tick(99);
	ck_assert_uint_eq(sh.cl[cl].killed, 0);
	sh_tick(2);
	ck_assert_uint_eq(sh.cl[cl].killed, 1);
}
END_TEST

/* A sequence that was refused growth counts as waiting. */
START_TEST(test_step_deadline_for_growth)
{
	u64 seq = sh_ready(cl, 200, 24, 0), mine;
	u32 other = sh_attach(1, "a");

	mine = sh_ready(other, 16, 200, 800);
	sh_compute(other, mine, 0, 16, 800);
	sh_compute(cl, seq, 0, 200, 0);
	ck_assert_int_eq(sh_begin(cl, seq, 200, 24), 0);
	sh_tick(200);
	ck_assert_int_eq(sh_begin(other, mine, 16, 200), -EAGAIN);
	sh_tick(1);
	ck_assert_uint_eq(sh.cl[cl].killed, 1);
}
END_TEST

/* A client that hung up and has not ended by the deadline is killed. */
START_TEST(test_quiet_deadline)
{
	sh_die(cl);
	sh_tick(199);
	ck_assert_uint_eq(sh.cl[cl].killed, 0);
	sh_tick(2);
	ck_assert_uint_eq(sh.cl[cl].killed, 1);
	ck_assert_int_eq(sh.cl[cl].kill_reason, -ETIMEDOUT);
	ck_assert_uint_eq(sh_count(CORE_EV_client_kill), 1);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_client");
	TCase *tc = tcase_create("client");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, test_attach_refused, 0,
			    ARRAY_SIZE(bad_attach));
	tcase_add_test(tc, test_attach_geometry);
	tcase_add_test(tc, test_attach_one_client_too_many);
	tcase_add_test(tc, test_attach_one_tenant_too_many);
	tcase_add_test(tc, test_attach_one_domain_too_many);
	tcase_add_test(tc, test_attach_drops_an_empty_domain);
	tcase_add_test(tc, test_attach_of_another_model);
	tcase_add_test(tc, test_prefixes_outlive_the_client);
	tcase_add_test(tc, test_handles_do_not_outlive_the_client);
	tcase_add_test(tc, test_quarantine);
	tcase_add_test(tc, test_quarantine_of_a_copy);
	tcase_add_test(tc, test_death_twice_and_late);
	tcase_add_test(tc, test_quiet_wakes_other_tenants);
	tcase_add_test(tc, test_expelled);
	tcase_add_test(tc, test_shutdown);
	tcase_add_test(tc, test_detach);
	tcase_add_loop_test(tc, test_detached_client_may_live_on, 0, 2);
	tcase_add_test(tc, test_step_deadline);
	tcase_add_test(tc, test_step_before_its_deadline);
	tcase_add_test(tc, test_step_deadline_for_growth);
	tcase_add_test(tc, test_quiet_deadline);
	suite_add_tcase(s, tc);
	return sh_run(s);
}
