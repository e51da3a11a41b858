// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_extent.c - extents, spans, block tables
 *
 * The tests make memory, acknowledge it, and move it between domains and
 * tenants.
 */
#include "tests/unit/core_shell.h"
#include "kvmm/core/node/node.h"

static u32 cl;

static void setup(void)
{
	sh_config(8);
	sh_start();
	cl = sh_attach(1, "a");
}

static void teardown(void)
{
	sh_stop();
}

/* A domain of @tenant with blocks of @layers KiB. */
static u32 attach_layers(u64 tenant, const char *name, u32 layers)
{
	struct kvmm_attach_req req = sh_attach_req(name);
	int id;

	req.group[0].layers = layers;
	id = sh_attach_as(tenant, &req);
	ck_assert_int_ge(id, 0);
	sh_settle();
	return (u32)id;
}

/* ---- acknowledging ---- */

START_TEST(test_ready_only_after_ack)
{
	u64 seq = sh_open(cl, 20, 4);
	u32 e;

	sh.cl[cl].mute = true;
	ck_assert_int_eq(sh_match(cl, seq, 20, 0), 0);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_WAITING);
	ck_assert_uint_ge(sh.cl[cl].sent, 1);
	for (e = 0; !sh.cl[cl].pending[e]; e++)
		;
	ck_assert_uint_eq(sh.cl[cl].extents[e].state, KVMM_EXTENT_MAP);
	ck_assert_int_eq(sh_ack(cl, e), 0);
	ck_assert_uint_eq(sh.cl[cl].extents[e].state, KVMM_EXTENT_MAPPED);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
}
END_TEST

/* A client that does not acknowledge delays only itself. */
START_TEST(test_mute_client_holds_up_nobody)
{
	u32 mute = sh_attach(1, "a"), i;
	u64 first, seq;

	sh.cl[mute].mute = true;
	first = sh_open(mute, 20, 4);
	ck_assert_int_eq(sh_match(mute, first, 20, 0), 0);
	ck_assert_uint_eq(sh_state(mute, first), KVMM_SEQ_WAITING);
	for (i = 0; i < 4; i++) {
		seq = sh_ready(cl, 40, 4, 100 * i);
		sh_compute(cl, seq, 0, 40, 100 * i);
		ck_assert_int_eq(sh_close(cl, seq), 0);
	}
	ck_assert_uint_eq(sh_state(mute, first), KVMM_SEQ_WAITING);
}
END_TEST

/* A grant names only blocks of extents that this client has mapped. */
START_TEST(test_grants_come_from_mapped_extents)
{
	u64 seq = sh_ready(cl, 20, 200, 0);
	u32 e, nr = 0;

	sh_compute(cl, seq, 0, 20, 0);
	sh.cl[cl].mute = true;
	ck_assert_int_eq(sh_begin(cl, seq, 20, 40), 0);
	ck_assert_int_eq(sh_end(cl, seq, 20, 60, 0), 0);
	/* The next block lies in an extent that is not mapped yet. */
	ck_assert_int_eq(sh_begin(cl, seq, 60, 30), -EAGAIN);
	ck_assert_int_eq(sh_begin(cl, seq, 60, 30), -EAGAIN);
	for (e = 0; e < SH_EXTENTS; e++)
		if (sh.cl[cl].pending[e]) {
			ck_assert_int_eq(sh_ack(cl, e), 0);
			nr++;
		}
	ck_assert_uint_ge(nr, 1);
	ck_assert_int_eq(sh_begin(cl, seq, 60, 30), 0);
}
END_TEST

static const struct {
	const char	*what;
	struct kvmm_ack_arg arg;
	int		error;
} bad_ack[] = {
	{ "extent", { .extent = 8, .what = KVMM_ACK_MAP }, -EINVAL },
	{ "what", { .what = 0 }, -EINVAL },
	{ "a revocation that was not sent", { .what = KVMM_ACK_REVOKE },
	  -ESTALE },
	{ "resv", { .what = KVMM_ACK_MAP, .resv = 1 }, -EINVAL },
	{ "generation", { .what = KVMM_ACK_MAP, .generation = 1 }, -ESTALE },
	{ "again", { .what = KVMM_ACK_MAP }, -EALREADY },
	{ "not sent", { .extent = 7, .what = KVMM_ACK_MAP }, -ESTALE },
};

START_TEST(test_ack_refused)
{
	struct kvmm_ack_arg *a = (struct kvmm_ack_arg *)sh.args;
	u64 seq = sh_ready(cl, 20, 4, 0);

	ck_assert_uint_eq(sh.cl[cl].extents[0].state, KVMM_EXTENT_MAPPED);
	*a = bad_ack[_i].arg;
	a->generation += sh.cl[cl].extents[0].generation;
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_EXTENT_ACK, 1, 0, sizeof(*a)),
			 0);
	ck_assert_msg(sh_seq_res(0) == bad_ack[_i].error, "%s: %d",
		      bad_ack[_i].what, sh_seq_res(0));
	sh_check();
	sh_compute(cl, seq, 0, 20, 0);
}
END_TEST

/* A new client is sent all extents of its tenant, and has to map them first. */
START_TEST(test_newcomer_maps_all_first)
{
	struct kvmm_attach_req req = sh_attach_req("b");
	u32 other;
	u64 seq;

	sh_warm(cl);
	other = (u32)sh_attach_as(1, &req);
	ck_assert_uint_eq(sh.cl[other].sent, 8);
	sh.cl[other].mute = true;
	seq = sh_open(other, 20, 0);
	ck_assert_int_eq(sh_match(other, seq, 20, 0), 0);
	ck_assert_uint_eq(sh_state(other, seq), KVMM_SEQ_WAITING);
	sh.cl[other].mute = false;
	sh_settle();
	ck_assert_uint_eq(sh_state(other, seq), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh.nr_creates, 8);
}
END_TEST

/* ---- making extents ---- */

/* Each extent that is made counts once, and one that cannot be made does not. */
START_TEST(test_made_extents_count)
{
	u64 seq;

	sh_manual_make = true;
	seq = sh_open(cl, 20, 4);
	ck_assert_int_eq(sh_match(cl, seq, 20, 0), 0);
	ck_assert_uint_ge(sh.nr_creates, 1);
	ck_assert_uint_eq(sh_count(CORE_EV_extent_create), 0);
	sh_made(0, -ENOMEM);
	ck_assert_uint_eq(sh_count(CORE_EV_extent_create), 0);
	sh_tick(1001);
	ck_assert_uint_ne(sh.creating[0], 0);
	sh_made(0, 0);
	ck_assert_uint_eq(sh_count(CORE_EV_extent_create), 1);
	sh_manual_make = false;
	sh_settle();
	ck_assert_uint_eq(sh_count(CORE_EV_extent_create), sh.nr_creates - 1);
}
END_TEST

START_TEST(test_making_takes_time)
{
	u64 seq = sh_open(cl, 20, 4);

	sh_manual_make = true;
	ck_assert_int_eq(sh_match(cl, seq, 20, 0), 0);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_WAITING);
	ck_assert_uint_ne(sh.creating[0], 0);
	sh_tick(10);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_WAITING);
	sh_made(0, 0);
	sh_settle();
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
}
END_TEST

/* After a failure the core waits for a second, then asks again by itself. */
START_TEST(test_making_fails)
{
	u64 seq = sh_open(cl, 20, 4);
	u32 creates;

	sh_manual_make = true;
	ck_assert_int_eq(sh_match(cl, seq, 20, 0), 0);
	sh_made(0, -ENOMEM);
	sh_settle();
	creates = sh.nr_creates;
	sh_tick(900);
	ck_assert_uint_eq(sh.nr_creates, creates);
	sh_tick(101);
	ck_assert_uint_gt(sh.nr_creates, creates);
	sh_manual_make = false;
	sh_settle();
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
}
END_TEST

/* One of three extents of a span fails: the others stay with the tenant. */
START_TEST(test_making_part_of_a_span_fails)
{
	u32 big = attach_layers(1, "big", 3);
	u64 seq = sh_open(big, 16, 0);

	ck_assert_uint_eq(sh.cl[big].info.span_extents, 3);
	ck_assert_uint_eq(sh.cl[big].info.span_blocks, 4);
	sh_manual_make = true;
	ck_assert_int_eq(sh_match(big, seq, 16, 0), 0);
	sh_made(1, 0);
	sh_made(0, -ENOMEM);
	sh_check();
	sh_made(2, 0);
	sh_settle();
	ck_assert_uint_eq(sh_state(big, seq), KVMM_SEQ_WAITING);
	sh_manual_make = false;
	sh_tick(1001);
	ck_assert_uint_eq(sh_state(big, seq), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh.nr_creates, 4);
}
END_TEST

/* Memory that comes too late for its domain wakes a sequence that can use it. */
START_TEST(test_late_memory_wakes_others)
{
	u32 big = attach_layers(2, "big", 3);
	u64 theirs = sh_open(big, 16, 0), seq;

	sh_manual_make = true;
	ck_assert_int_eq(sh_match(big, theirs, 16, 0), 0);
	ck_assert_int_eq(sh_match_piece(big, theirs, 0, 1, 0, 0), -ESTALE);
	sh_die(big);
	sh_quiet(big);
	seq = sh_open(cl, 500, 0);
	ck_assert_int_eq(sh_match(cl, seq, 500, 0), 0);
	sh_made(0, 0);
	sh_made(1, 0);
	sh_made(2, 0);
	sh_manual_make = false;
	sh_settle();
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
}
END_TEST

/* ---- tenants ---- */

/* Memory that changes hands between tenants is released and made anew. */
START_TEST(test_tenants_get_new_memory)
{
	u32 other = sh_attach(2, "a");
	u64 seq = sh_ready(cl, 100, 0, 0), theirs;
	u32 generation, i;

	sh_compute(cl, seq, 0, 100, 0);
	sh.cl[cl].stubborn = true;
	generation = sh.cl[cl].extents[0].generation;
	ck_assert_int_eq(sh_close(cl, seq), 0);
	theirs = sh_open(other, 500, 0);
	ck_assert_int_eq(sh_match(other, theirs, 500, 0), 0);
	sh_tick(200);
	/*
	 * While a client of the first tenant has it mapped, no other tenant
	 * gets it.
	 */
	ck_assert_uint_eq(sh_state(other, theirs), KVMM_SEQ_WAITING);
	ck_assert_uint_eq(sh.nr_releases, 0);
	sh_quiet(cl);
	ck_assert_uint_eq(sh_state(other, theirs), KVMM_SEQ_READY);
	ck_assert_uint_ge(sh.nr_releases, 2);
	ck_assert_uint_gt(sh.cl[other].extents[0].generation, generation);
	for (i = 0; i < 8; i++)
		ck_assert_uint_eq(sh.cl[other].extents[i].state,
				  KVMM_EXTENT_MAPPED);
}
END_TEST

/* Inside a tenant the move is a record: no memory is made or sent. */
START_TEST(test_domains_lend)
{
	u32 other, sent, creates;
	u64 seq;

	sh_warm(cl);
	other = attach_layers(1, "b", 3);
	sent = sh.cl[cl].sent;
	creates = sh.nr_creates;
	seq = sh_ready(other, 100, 0, 0);
	sh_compute(other, seq, 0, 100, 0);
	ck_assert_uint_eq(sh.nr_creates, creates);
	ck_assert_uint_eq(sh.cl[cl].sent, sent);
	ck_assert_uint_eq(sh.nr_releases, 0);
}
END_TEST

/* ---- spans ---- */

/* A domain that is alone gets all the spans that its capacity names. */
START_TEST(test_capacity_can_be_had)
{
	u32 small = sh_attach(1, "small"), big;
	u64 one[3], seq;
	u32 i;

	/* Leave single extents here and there. */
	for (i = 0; i < 3; i++)
		one[i] = sh_ready(i & 1 ? small : cl, 40, 0, 100 * i);
	big = attach_layers(1, "big", 3);
	seq = sh_open(big, 8 * 16, 0);
	ck_assert_int_eq(sh_match(big, seq, 8 * 16, 0), 0);
	for (i = 0; i < 3; i++)
		ck_assert_int_eq(sh_close(i & 1 ? small : cl, one[i]), 0);
	ck_assert_uint_eq(sh_state(big, seq), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_domain(big).nr_spans, 2);
}
END_TEST

/* A block comes from the fullest span, so that others fall empty. */
START_TEST(test_fullest_span_first)
{
	u64 a, b, c;
	u32 first, second;

	sh_warm(cl);
	a = sh_ready(cl, 48, 16, 0);
	sh_compute(cl, a, 0, 48, 0);
	b = sh_ready(cl, 32, 16, 100);
	sh_compute(cl, b, 0, 32, 100);
	first = sh_table(cl, a, 0) / 64;
	ck_assert_uint_eq(sh_table(cl, b, 0) / 64, first);
	second = sh_table(cl, b, 1) / 64;
	ck_assert_uint_ne(second, first);
	c = sh_ready(cl, 16, 16, 200);
	sh_compute(cl, c, 0, 16, 200);
	ck_assert_uint_eq(sh_table(cl, c, 0) / 64, second);
}
END_TEST

/* One empty span stays with its domain, further ones go back. */
START_TEST(test_empty_spans_go_back)
{
	struct kvmm_open_arg a = { .prompt_len = 200,
				   .flags = KVMM_OPEN_NO_INDEX };
	u64 seq;

	ck_assert_int_eq(sh_open_as(cl, &a, &seq), 0);
	ck_assert_int_eq(sh_match(cl, seq, 200, 0), 0);
	sh_compute(cl, seq, 0, 200, 0);
	ck_assert_uint_ge(sh_domain(cl).nr_spans, 4);
	ck_assert_int_eq(sh_close(cl, seq), 0);
	ck_assert_uint_eq(sh_domain(cl).nr_spans, 1);
	ck_assert_uint_eq(sh_pool().nr_free_extents, 7);
}
END_TEST

/* A domain keeps a sixteenth of the pool, until another domain needs all of it. */
START_TEST(test_kept_spans_can_be_had)
{
	struct kvmm_open_arg a = { .prompt_len = 60 * 64,
				   .flags = KVMM_OPEN_NO_INDEX };
	u32 other;
	u64 seq;

	sh_stop();
	sh_config(60);
	sh_start();
	cl = sh_attach(1, "a");
	other = sh_attach(1, "b");
	ck_assert_int_eq(sh_open_as(cl, &a, &seq), 0);
	ck_assert_int_eq(sh_match(cl, seq, 60 * 64, 0), 0);
	sh_compute(cl, seq, 0, 60 * 64, 0);
	ck_assert_int_eq(sh_close(cl, seq), 0);
	ck_assert_uint_eq(sh_domain(cl).nr_spans, 3);
	ck_assert_int_eq(sh_open_as(other, &a, &seq), 0);
	ck_assert_int_eq(sh_match(other, seq, 60 * 64, 0), 0);
	ck_assert_uint_eq(sh_state(other, seq), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_domain(cl).nr_spans, 0);
}
END_TEST

/* The smallest span with a tail of less than one per cent. */
static const struct {
	u32	layers;
	u32	k;
	u32	extents;
	u32	blocks;
	u64	tail;
} shapes[] = {
	{ 1, 32, 1, 4, 0 },
	{ 1, 128, 5, 8, 0 },		/* 2560 bytes */
	{ 3, 32, 3, 4, 0 },		/* 3 KiB */
	{ 5, 32, 5, 4, 0 },		/* 5 KiB */
	{ 7, 32, 7, 4, 0 },
};

START_TEST(test_shape_of_spans)
{
	struct kvmm_attach_req req = sh_attach_req("s");
	const struct core_attach_info *info;
	int id;

	req.group[0].layers = shapes[_i].layers;
	req.group[0].k_bytes = shapes[_i].k;
	id = sh_attach_as(1, &req);
	ck_assert_int_ge(id, 0);
	info = &sh.cl[id].info;
	ck_assert_uint_eq(info->span_extents, shapes[_i].extents);
	ck_assert_uint_eq(info->span_blocks, shapes[_i].blocks);
	ck_assert_uint_eq(info->span_tail, shapes[_i].tail);
	ck_assert_uint_eq(info->stride[0] % 128, 0);
	ck_assert_uint_eq(info->block_bytes,
			  info->stride[0] * shapes[_i].layers);
}
END_TEST

/* Tails of spans are counted (the walkers check law 1 after every event). */
START_TEST(test_tails)
{
	struct kvmm_attach_req req = sh_attach_req("t");
	u32 t;

	req.group[0] = (struct kvmm_group){ .layers = 3, .kv_heads = 1,
					    .k_bytes = 16, .v_bytes = 16,
					    .scale_bytes = 2 };
	t = (u32)sh_attach_as(1, &req);
	sh_settle();
	ck_assert_uint_eq(sh.cl[t].info.block_bytes, 1920);
	ck_assert_uint_gt(sh.cl[t].info.span_tail, 0);
	(void)sh_ready(t, 16, 0, 0);
	ck_assert_uint_eq(sh_pool().tails, sh.cl[t].info.span_tail);
}
END_TEST

/* ---- tables ---- */

/* The entries behind the last one are empty, on a new page too. */
START_TEST(test_table_ends)
{
	u64 seq = sh_ready(cl, 40, 0, 0);
	u32 i;

	sh_compute(cl, seq, 0, 40, 0);
	for (i = 3; i < KVMM_TABLE_ENTRIES; i++)
		ck_assert_uint_eq(sh_table(cl, seq, i), KVMM_NO_INDEX);
	ck_assert_int_eq(sh_begin(cl, seq, 40, 1), -EINVAL);
}
END_TEST

/* Tables of several pages grow, are forked and shrink. */
START_TEST(test_table_of_several_pages)
{
	u64 seq, kid;
	u32 i, page;

	sh_stop();
	sh_config(64);
	sh_start();
	cl = sh_attach(1, "a");
	sh_warm(cl);
	seq = sh_ready(cl, 250 * SH_BT, 0, 0);
	for (i = 0; i < 250; i += 10)
		sh_compute(cl, seq, i * SH_BT, (i + 10) * SH_BT, 0);
	page = sh_status(cl, seq)->table[0];
	for (i = 0; page != KVMM_NO_INDEX; i++) {
		const struct kvmm_table_page *t = &sh.cl[cl].tables[page];

		ck_assert_uint_eq(t->seq, seq);
		ck_assert_uint_eq(t->first, i * KVMM_TABLE_ENTRIES);
		page = t->next;
	}
	ck_assert_uint_eq(i, 3);
	ck_assert_int_eq(sh_fork(cl, seq, 1, &kid), 0);
	for (i = 0; i < 250; i++)
		ck_assert_uint_eq(sh_table(cl, kid, i), sh_table(cl, seq, i));
	ck_assert_int_eq(sh_close(cl, seq), 0);
	ck_assert_uint_eq(sh_pool().sealed, 250 * SH_BLOCK);
	ck_assert_int_eq(sh_close(cl, kid), 0);
	ck_assert_uint_eq(sh_pool().sealed, 0);
}
END_TEST

/* A fork that finds too few pages changes nothing. */
START_TEST(test_fork_without_pages)
{
	u64 seq, kids[4];

	sh_stop();
	sh_config(4);
	sh.cfg.nr_tables = 3;
	sh_start();
	cl = sh_attach(1, "a");
	sh_warm(cl);
	seq = sh_ready(cl, 20, 20, 0);
	sh_compute(cl, seq, 0, 20, 0);
	ck_assert_int_eq(sh_fork(cl, seq, 3, kids), -ENOSPC);
	ck_assert_uint_eq(sh_pool().shared, 0);
	ck_assert_int_eq(sh_fork(cl, seq, 2, kids), 0);
	ck_assert_uint_eq(sh_pool().shared, 2 * SH_BLOCK);
}
END_TEST

/*
 * Two sequences that each need one page more do not wait for each other for
 * ever.
 */
START_TEST(test_growth_without_pages)
{
	u64 a, b;

	sh_stop();
	sh_config(64);
	sh.cfg.nr_tables = 2;
	sh_start();
	cl = sh_attach(1, "a");
	a = sh_ready(cl, 120 * SH_BT, 80, 0);
	b = sh_ready(cl, 120 * SH_BT, 80, 9000);
	sh_compute(cl, a, 0, 120 * SH_BT, 0);
	sh_compute(cl, b, 0, 120 * SH_BT, 9000);
	ck_assert_int_eq(sh_begin(cl, b, 120 * SH_BT, 40), -EAGAIN);
	ck_assert_uint_eq(sh_state(cl, b), KVMM_SEQ_RECOMPUTE);
	ck_assert_int_eq(sh_begin(cl, a, 120 * SH_BT, 40), 0);
	ck_assert_int_eq(sh_end_empty(cl, sh.cl[cl].step - 1), 0);
	ck_assert_int_eq(sh_end(cl, a, 120 * SH_BT, 120 * SH_BT + 40, 0), 0);
	/* The sequence comes back when there are pages for all of it. */
	ck_assert_int_eq(sh_match(cl, b, 120 * SH_BT + 40, 9000), 0);
	ck_assert_uint_eq(sh_state(cl, b), KVMM_SEQ_WAITING);
	ck_assert_int_eq(sh_close(cl, a), 0);
	ck_assert_uint_eq(sh_state(cl, b), KVMM_SEQ_READY);
}
END_TEST

/* ---- bytes of a block ---- */

/* The default, and a pool where few blocks share an extent. */
static const struct {
	u64 extent_size;
	u32 min_token_bytes;
} pools[] = {
	{ 8ull << 20, 1024 },
	{ 64ull << 20, 131072 },
};

/*
 * Twice the pool takes that many bytes more for its blocks, with 4 bytes a
 * token.
 */
START_TEST(test_bytes_a_block)
{
	struct core_config cfg = {
		.extent_size = pools[_i].extent_size,
		.min_token_bytes = pools[_i].min_token_bytes,
		.pool_bytes = 300 * pools[_i].extent_size,
		.max_tenants = 8, .max_domains = 64, .max_clients = 64,
		.max_seqs = 1024, .nr_tables = 4096, .max_steps = 4,
	};
	u64 once = core_arena_size(&cfg), twice, blocks;

	blocks = cfg.pool_bytes / (16 * cfg.min_token_bytes);
	cfg.pool_bytes *= 2;
	twice = core_arena_size(&cfg);
	ck_assert_uint_gt(once, 0);
	ck_assert_uint_gt(twice, once);
	ck_assert_uint_le(twice - once, blocks * (CORE_BLOCK_BYTES + 4 * 16));
	ck_assert_uint_gt(twice - once, blocks * (80 + 4 * 16));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_extent");
	TCase *tc = tcase_create("extents");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_ready_only_after_ack);
	tcase_add_test(tc, test_mute_client_holds_up_nobody);
	tcase_add_test(tc, test_grants_come_from_mapped_extents);
	tcase_add_loop_test(tc, test_ack_refused, 0, ARRAY_SIZE(bad_ack));
	tcase_add_test(tc, test_newcomer_maps_all_first);
	tcase_add_test(tc, test_making_takes_time);
	tcase_add_test(tc, test_made_extents_count);
	tcase_add_test(tc, test_making_fails);
	tcase_add_test(tc, test_making_part_of_a_span_fails);
	tcase_add_test(tc, test_late_memory_wakes_others);
	tcase_add_test(tc, test_tenants_get_new_memory);
	tcase_add_test(tc, test_domains_lend);
	suite_add_tcase(s, tc);

	tc = tcase_create("spans");
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_capacity_can_be_had);
	tcase_add_test(tc, test_fullest_span_first);
	tcase_add_test(tc, test_empty_spans_go_back);
	tcase_add_test(tc, test_kept_spans_can_be_had);
	tcase_add_loop_test(tc, test_shape_of_spans, 0, ARRAY_SIZE(shapes));
	tcase_add_test(tc, test_tails);
	suite_add_tcase(s, tc);

	tc = tcase_create("tables");
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_table_ends);
	tcase_add_test(tc, test_table_of_several_pages);
	tcase_add_test(tc, test_fork_without_pages);
	tcase_add_test(tc, test_growth_without_pages);
	tcase_add_loop_test(tc, test_bytes_a_block, 0,
			    ARRAY_SIZE(pools));
	suite_add_tcase(s, tc);
	return sh_run(s);
}
