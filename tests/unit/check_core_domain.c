// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_domain.c - the shape of a domain, bounds of attach messages, salvage
 *
 * Extents have 4 KiB.  A layer of a block is a multiple of 128 bytes.
 */
#include "tests/unit/core_shell.h"
#include "kvmm/core/node/node.h"

#define POOL	16u			/* extents */

static struct core_copy copies[64];
static u32 nr_copies;
static struct core_attach_info info;

static void on_copy(const struct core_copy *cp)
{
	ck_assert_uint_lt(nr_copies, 64);
	copies[nr_copies++] = *cp;
}

static void do_copies(void)
{
	while (nr_copies) {
		SH_CORE(core_copy_done(sh.core, sh.now, copies[--nr_copies].id,
				       0));
		sh_settle();
	}
}

static void start(u32 host_extents)
{
	nr_copies = 0;
	sh_on_copy = on_copy;
	sh_config(POOL);
	sh.cfg.host_bytes = host_extents * SH_EXTENT;
	sh.cfg.swappiness = 200;
	sh_start();
}

static void setup(void)
{
	start(8);
}

/* Attach as tenant 1; @info gets the answer.  The client has no segments. */
static int attach(const struct kvmm_attach_req *req)
{
	u8 secret[CORE_SECRET_LEN] = { 1 };
	int err;

	SH_CORE(err = core_client_attach(sh.core, sh.now, 1, secret, req, &info));
	ck_assert(err || !info.text);
	sh_check();
	return err;
}

static const struct kv_domain *domain(void)
{
	return &sh.core->domains[info.domain];
}

/* ---- shape ---- */

static const struct shape {
	u32	layers, heads, k, v, scale, tokens;
	u32	stride, block;		/* bytes */
	u32	extents, blocks, tail;	/* of a span */
} shapes[] = {
	{ 1, 1, 32, 32, 0, 16,	1024, 1024, 1, 4, 0 },
	{ 1, 1, 32, 32, 0, 32,	2048, 2048, 1, 2, 0 },
	{ 1, 1, 32, 32, 0, 64,	4096, 4096, 1, 1, 0 },
	{ 1, 2, 16, 16, 0, 16,	1024, 1024, 1, 4, 0 },
	{ 1, 1, 30, 30, 2, 16,	1024, 1024, 1, 4, 0 },
	{ 1, 1, 62, 0, 2, 16,	1024, 1024, 1, 4, 0 },
	{ 2, 1, 32, 32, 0, 16,	1024, 2048, 1, 2, 0 },
	{ 3, 1, 32, 32, 0, 16,	1024, 3072, 3, 4, 0 },
	{ 4, 1, 32, 32, 0, 16,	1024, 4096, 1, 1, 0 },
	{ 5, 1, 32, 32, 0, 16,	1024, 5120, 5, 4, 0 },
	{ 7, 1, 32, 32, 0, 16,	1024, 7168, 7, 4, 0 },
	/* No span has a tail below 1 %: the smallest tail counts. */
	{ 9, 1, 32, 32, 0, 16,	1024, 9216, 7, 3, 1024 },
	/* Of equal tails the shorter span; 65 * 16 bytes are rounded up. */
	{ 1, 1, 33, 32, 0, 16,	1152, 1152, 2, 7, 128 },
	{ 1, 1, 43, 42, 0, 16,	1408, 1408, 8, 23, 384 },
	{ 32, 1, 32, 32, 0, 16,	1024, 32768, 8, 1, 0 },
};

static struct kvmm_attach_req req_of(const struct shape *s)
{
	struct kvmm_attach_req req = sh_attach_req("a");

	req.block_tokens = s->tokens;
	req.group[0] = (struct kvmm_group){
		.layers = s->layers, .kv_heads = s->heads, .k_bytes = s->k,
		.v_bytes = s->v, .scale_bytes = s->scale,
	};
	return req;
}

START_TEST(test_shape)
{
	const struct shape *s = &shapes[_i];
	struct kvmm_attach_req req = req_of(s);

	ck_assert_int_eq(attach(&req), 0);
	ck_assert_uint_eq(info.stride[0], s->stride);
	ck_assert_uint_eq(info.block_bytes, s->block);
	ck_assert_uint_eq(info.span_extents, s->extents);
	ck_assert_uint_eq(info.span_blocks, s->blocks);
	ck_assert_uint_eq(info.span_tail, s->tail);
}
END_TEST

/*
 * The first span with a tail below 1 % counts, though a longer one has a smaller
 * tail: blocks of so many layers of 128 bytes in extents of 64 KiB.
 */
static const struct {
	u32	layers, extents, blocks, tail;
} enough[] = {
	{ 26, 2, 39, 1280 }, { 40, 4, 51, 1024 }, { 117, 3, 13, 1920 },
	{ 273, 7, 13, 4480 },
};

START_TEST(test_small_tail_is_enough)
{
	struct kvmm_attach_req req = sh_attach_req("a");

	sh_stop();
	sh_config(POOL);
	sh.cfg.extent_size = 65536;
	sh.cfg.pool_bytes = POOL * 65536;
	sh_start();
	req.group[0].layers = enough[_i].layers;
	req.group[0].k_bytes = 8;
	req.group[0].v_bytes = 0;
	ck_assert_int_eq(attach(&req), 0);
	ck_assert_uint_eq(info.stride[0], 128);
	ck_assert_uint_eq(info.span_extents, enough[_i].extents);
	ck_assert_uint_eq(info.span_blocks, enough[_i].blocks);
	ck_assert_uint_eq(info.span_tail, enough[_i].tail);
}
END_TEST

/* A span is no longer than the pool: 5120 bytes in a pool of @_i extents. */
START_TEST(test_shape_in_a_small_pool)
{
	static const struct { u32 extents, blocks, tail; } span[] = {
		{ 0, 0, 0 }, { 0, 0, 0 }, { 2, 1, 3072 }, { 3, 2, 2048 },
		{ 4, 3, 1024 }, { 5, 4, 0 }, { 5, 4, 0 },
	};
	struct kvmm_attach_req req = req_of(&shapes[9]);

	sh_stop();
	sh_config((u32)_i);
	sh_start();
	if (!span[_i].extents) {
		ck_assert_int_eq(attach(&req), -EINVAL);
		ck_assert_ptr_nonnull(strstr(info.text, "does not fit"));
		return;
	}
	ck_assert_int_eq(attach(&req), 0);
	ck_assert_uint_eq(info.span_extents, span[_i].extents);
	ck_assert_uint_eq(info.span_blocks, span[_i].blocks);
	ck_assert_uint_eq(info.span_tail, span[_i].tail);
}
END_TEST

/*
 * In the host pool a slot has a header of a page and whole pages, and a span is 1,
 * 2, 4 or 8 extents; 12 KiB in a host pool of so many extents.
 */
static const struct {
	u32	pool, extents, blocks;
} hosts[] = {
	{ 2, 0, 0 }, { 3, 0, 0 }, { 4, 4, 1 }, { 7, 4, 1 }, { 8, 4, 1 },
};

START_TEST(test_host_part)
{
	struct kvmm_attach_req req = req_of(&shapes[9]);
	const struct kv_part *p;

	sh_stop();
	start(hosts[_i].pool);
	ck_assert_int_eq(attach(&req), 0);
	p = host_part(sh.core, info.domain);
	ck_assert_uint_eq(p->block_bytes, 12288);
	ck_assert_uint_eq(p->used, hosts[_i].extents != 0);
	if (!p->used)
		return;
	ck_assert_uint_eq(p->span_extents, hosts[_i].extents);
	ck_assert_uint_eq(p->span_blocks, hosts[_i].blocks);
	ck_assert_uint_eq(p->max_blocks, CORE_NONE);
}
END_TEST

/* ---- attach messages ---- */

/* The largest values of a layer group are none that is out of bounds. */
START_TEST(test_largest_group)
{
	struct kvmm_attach_req req = sh_attach_req("a");
	u32 *const field[] = {
		&req.group[0].layers, &req.group[0].kv_heads,
		&req.group[0].k_bytes, &req.group[0].v_bytes,
	};
	static const u32 most[] = { 4096, 4096, 65536, 65536 };

	*field[_i] = most[_i];
	ck_assert_int_eq(attach(&req), -EINVAL);
	ck_assert_ptr_nonnull(strstr(info.text, "does not fit"));
	*field[_i] = most[_i] + 1;
	ck_assert_int_eq(attach(&req), -EINVAL);
	ck_assert_ptr_nonnull(strstr(info.text, "out of bounds"));
}
END_TEST

START_TEST(test_largest_values)
{
	struct kvmm_attach_req req = sh_attach_req("a");

	req.max_steps = KVMM_MAX_STEPS;
	req.weight = CORE_WEIGHT_MAX;
	req.group[0].scale_bytes = 1024;
	req.group[0].k_bytes = 1;
	req.group[0].v_bytes = 0;
	ck_assert_int_eq(attach(&req), 0);
	ck_assert_uint_eq(domain()->weight, CORE_WEIGHT_MAX);
	ck_assert_uint_eq(info.stride[0], ALIGN_UP(1025 * 16, 128));
	req = sh_attach_req("b");
	req.weight = CORE_WEIGHT_MAX + 1;
	ck_assert_int_eq(attach(&req), -EINVAL);
	ck_assert_ptr_nonnull(strstr(info.text, "weight"));
	req.weight = 0;
	ck_assert_int_eq(attach(&req), 0);
	ck_assert_uint_eq(domain()->weight, CORE_WEIGHT_DEFAULT);
	req = sh_attach_req("c");
	req.max_steps = 1;
	ck_assert_int_eq(attach(&req), 0);
}
END_TEST

/* Every refusal has its reason, and a success has none. */
START_TEST(test_reasons)
{
	static const struct {
		u32		tokens, groups, flags, scale;
		const char	*text;
	} bad[] = {
		{ 0, 1, 0, 0, "a multiple of 16" },
		{ 8, 1, 0, 0, "a multiple of 16" },
		{ 17, 1, 0, 0, "a multiple of 16" },
		{ 4104, 1, 0, 0, "at most 4096" },
		{ 4112, 1, 0, 0, "at most 4096" },
		{ 65536, 1, 0, 0, "at most 4096" },
		{ 48, 1, 0, 0, NULL },
		{ 496, 1, 0, 0, NULL },
		{ 16, 2, 0, 0, "group of the layout is out of bounds" },
		{ 16, 0, 0, 0, "1 to 8 layer groups" },
		{ 16, 9, 0, 0, "1 to 8 layer groups" },
		{ 16, 1, KVMM_ATTACH_RESUME, 0, "does not resume" },
		{ 16, 1, 0, 1025, "is out of bounds" },
		{ 16, 1, 0, 16, NULL },
	};
	struct kvmm_attach_req req = sh_attach_req("a");

	req.block_tokens = bad[_i].tokens;
	req.nr_groups = bad[_i].groups;
	req.flags = bad[_i].flags;
	req.group[0].scale_bytes = bad[_i].scale;
	ck_assert_int_eq(!attach(&req), !bad[_i].text);
	if (bad[_i].text)
		ck_assert_ptr_nonnull(strstr(info.text, bad[_i].text));
	else
		ck_assert_ptr_null(info.text);
}
END_TEST

/* A token may be as small as the daemon's --min-token-bytes. */
START_TEST(test_smallest_token)
{
	struct kvmm_attach_req req = sh_attach_req("a");

	req.group[0].k_bytes = 31;
	ck_assert_int_eq(attach(&req), -EINVAL);
	ck_assert_ptr_nonnull(strstr(info.text, "min-token-bytes"));
	/* All layers of a token count. */
	req.group[0].layers = 2;
	ck_assert_int_eq(attach(&req), 0);
}
END_TEST

/* Lower tiers have no min, low and high. */
START_TEST(test_limits_of_lower_tiers)
{
	struct kvmm_attach_req req;
	u32 tier;

	for (tier = 1; tier < KVMM_MAX_TIERS; tier++) {
		req = sh_attach_req("a");
		req.limits[tier].min = 1;
		ck_assert_int_eq(attach(&req), -EOPNOTSUPP);
		req = sh_attach_req("a");
		req.limits[tier].low = 1;
		ck_assert_int_eq(attach(&req), -EOPNOTSUPP);
		req = sh_attach_req("a");
		req.limits[tier].high = 1;
		ck_assert_int_eq(attach(&req), -EOPNOTSUPP);
		ck_assert_ptr_nonnull(strstr(info.text, "lower tiers"));
	}
	req = sh_attach_req("a");
	for (tier = 1; tier < KVMM_MAX_TIERS; tier++)
		req.limits[tier].high = KVMM_LIMIT_MAX;
	req.limits[0].low = SH_BLOCK;
	req.limits[0].high = 2 * SH_BLOCK;
	ck_assert_int_eq(attach(&req), 0);
	ck_assert_uint_eq(domain()->high_blocks, 2);
}
END_TEST

/* The limits count that the first client of a domain asks for. */
START_TEST(test_first_client_sets_limits)
{
	struct kvmm_attach_req req = sh_attach_req("a");
	u32 first;

	req.limits[0].max = 5 * SH_BLOCK;
	req.limits[1].max = 2 * 8192;
	ck_assert_int_eq(attach(&req), 0);
	first = info.client;
	req.limits[0].max = 9 * SH_BLOCK;
	req.limits[1].max = 3 * 8192;
	ck_assert_int_eq(attach(&req), 0);
	ck_assert_uint_eq(domain()->nr_clients, 2);
	ck_assert_uint_eq(domain()->dev.max_blocks, 5);
	ck_assert_uint_eq(host_part(sh.core, 0)->max_blocks, 2);
	sh_quiet(info.client);
	sh_quiet(first);
	ck_assert_uint_eq(domain()->nr_clients, 0);
	/* A refusal leaves the domain as it is. */
	req.limits[0].max = SH_BLOCK - 1;
	ck_assert_int_eq(attach(&req), -EINVAL);
	ck_assert_ptr_nonnull(strstr(info.text, "memory.max"));
	ck_assert_uint_eq(domain()->nr_clients, 0);
	ck_assert_uint_eq(sh.core->tenants[0].nr_clients, 0);
	req.limits[0].max = SH_BLOCK;
	ck_assert_int_eq(attach(&req), 0);
	ck_assert_uint_eq(domain()->dev.max_blocks, 1);
	ck_assert_uint_eq(host_part(sh.core, 0)->max_blocks, 3);
	ck_assert_uint_eq(sh.core->tenants[0].nr_clients, 1);
}
END_TEST

/* Another model is another domain: each field of the layout makes a difference. */
START_TEST(test_other_models)
{
	struct kvmm_attach_req req = sh_attach_req("a");

	ck_assert_int_eq(attach(&req), 0);
	ck_assert_int_eq(attach(&req), 0);
	ck_assert_uint_eq(domain()->nr_clients, 2);
	req.identity[sizeof(req.identity) - 1] ^= 1;
	ck_assert_int_eq(attach(&req), -EEXIST);
	req = sh_attach_req("a");
	req.group[0].kv_heads = 2;
	ck_assert_int_eq(attach(&req), -EEXIST);
	req = sh_attach_req("a");
	req.block_tokens = 32;
	ck_assert_int_eq(attach(&req), -EEXIST);
	ck_assert_ptr_nonnull(strstr(info.text, "another model"));
	req = sh_attach_req("a1");
	ck_assert_int_eq(attach(&req), 0);
	ck_assert_uint_eq(info.domain, 1);
}
END_TEST

/* ---- domains that are dropped ---- */

/* The name of a model whose copy is in flight cannot be taken over yet. */
START_TEST(test_copy_in_flight)
{
	struct kvmm_advise_arg *a = (struct kvmm_advise_arg *)sh.args;
	struct kvmm_attach_req req = sh_attach_req("a");
	struct core_tier_view v;
	u32 cl = sh_attach(1, "a");
	u64 seq = sh_ready(cl, 3 * SH_BT, 0, 0);

	sh_compute(cl, seq, 0, 3 * SH_BT, 0);
	*a = (struct kvmm_advise_arg){ .seq = seq,
				       .advice = KVMM_ADV_PAGEOUT };
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_SEQ_ADVISE, 1, 0, sizeof(*a)),
			 0);
	sh_settle();
	ck_assert_uint_eq(nr_copies, 3);
	sh_quiet(cl);
	req.identity[0] = 1;
	ck_assert_int_eq(attach(&req), -EEXIST);
	do_copies();
	ck_assert_int_eq(core_get_tier(sh.core, CORE_POOL_HOST, &v), 0);
	ck_assert_uint_gt(v.used, 0);
	ck_assert_int_eq(attach(&req), 0);
	ck_assert_uint_eq(info.dropped_blocks, 3);
	/* Its slots are gone, too, and the serial is another one. */
	ck_assert_int_eq(core_get_tier(sh.core, CORE_POOL_HOST, &v), 0);
	ck_assert_uint_eq(v.used, 0);
	ck_assert_uint_eq(domain()->serial, 2);
	ck_assert_uint_eq(sh.core->tenants[0].nr_domains, 1);
}
END_TEST

/* A domain with cache in the host pool alone is not taken for one without. */
START_TEST(test_host_cache_is_kept)
{
	struct kvmm_advise_arg *a = (struct kvmm_advise_arg *)sh.args;
	struct kvmm_attach_req req = sh_attach_req("z");
	u32 cl;
	u64 seq;

	sh_stop();
	sh_config(POOL);
	sh.cfg.host_bytes = 8 * SH_EXTENT;
	sh.cfg.swappiness = 200;
	sh.cfg.max_domains = 2;
	sh_start();
	cl = sh_attach(1, "a");
	seq = sh_ready(cl, 3 * SH_BT, 0, 0);
	sh_compute(cl, seq, 0, 3 * SH_BT, 0);
	*a = (struct kvmm_advise_arg){ .seq = seq,
				       .advice = KVMM_ADV_PAGEOUT };
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_SEQ_ADVISE, 1, 0, sizeof(*a)),
			 0);
	sh_settle();
	do_copies();
	sh_quiet(cl);
	SH_CORE(ck_assert_int_ge(core_evict(sh.core, sh.now, 0, POOL), 0));
	ck_assert_uint_eq(sh.core->domains[0].nr_indexed, 0);
	sh_quiet(sh_attach(1, "b"));
	ck_assert_int_eq(attach(&req), 0);
	ck_assert_str_eq(info.replaced, "");
	ck_assert_uint_eq(info.domain, 1);
	req = sh_attach_req("c");
	ck_assert_int_eq(attach(&req), 0);
	ck_assert_str_eq(info.replaced, "a");
}
END_TEST

/* ---- salvage ---- */

/* The record of a domain with other values in all primary fields. */
static struct kv_domain record(void)
{
	struct kvmm_attach_req req = sh_attach_req("a");
	struct kv_domain d;
	u32 i;

	req.identity[3] = 9;
	ck_assert_int_eq(attach(&req), 0);
	d = *domain();
	d.tenant = 2;
	d.serial = 77;
	d.left = 5;
	d.min_bytes = 11;
	d.low_bytes = 12;
	d.high_bytes = 13;
	d.dev.max_bytes = 14;
	d.weight = 15;
	d.prefill_ns_token = 16;
	d.nr_max_events = 17;
	d.nr_high_events = 18;
	d.nr_low_events = 19;
	d.nr_preempted = 20;
	for (i = 0; i < CORE_NR_LIMITS; i++) {
		d.operator_limit[i] = 30 + i;
		d.asked_limit[i] = 40 + i;
	}
	d.by_operator = BIT(CORE_LIMIT_WEIGHT);
	return d;
}

START_TEST(test_restored_fields)
{
	struct kv_domain was = record(), d = was;

	memset(&d.dev.nr, 1, sizeof(d.dev.nr));
	d.nr_waiting = 3;
	d.wait_head = 1;
	d.roots = 1;
	d.used = 0;
	ck_assert_int_eq(domain_restore(sh.core, &d), 0);
	ck_assert_uint_eq(d.used, 1);
	ck_assert_uint_eq(d.dev.used, 1);
	ck_assert_str_eq(d.name, "a");
	ck_assert_mem_eq(d.identity, was.identity, sizeof(d.identity));
	ck_assert_mem_eq(d.operator_limit, was.operator_limit,
			 sizeof(d.operator_limit));
	ck_assert_mem_eq(d.asked_limit, was.asked_limit, sizeof(d.asked_limit));
	ck_assert_uint_eq(d.tenant, 2);
	ck_assert_uint_eq(d.serial, 77);
	ck_assert_uint_eq(d.left, 5);
	ck_assert_uint_eq(d.min_bytes, 11);
	ck_assert_uint_eq(d.low_bytes, 12);
	ck_assert_uint_eq(d.high_bytes, 13);
	ck_assert_uint_eq(d.dev.max_bytes, 14);
	ck_assert_uint_eq(d.weight, 15);
	ck_assert_uint_eq(d.by_operator, BIT(CORE_LIMIT_WEIGHT));
	ck_assert_uint_eq(d.prefill_ns_token, 16);
	ck_assert_uint_eq(d.nr_max_events, 17);
	ck_assert_uint_eq(d.nr_high_events, 18);
	ck_assert_uint_eq(d.nr_low_events, 19);
	ck_assert_uint_eq(d.nr_preempted, 20);
	/* The shape is computed; lists and counts are those of no sequence. */
	ck_assert_uint_eq(d.dev.span_blocks, SH_PER);
	ck_assert_uint_eq(d.dev.nr[BLK_CACHED], 0);
	ck_assert_uint_eq(d.nr_waiting, 0);
	ck_assert_uint_eq(d.wait_head, CORE_NONE);
	ck_assert_uint_eq(d.run_tail, CORE_NONE);
	ck_assert_uint_eq(d.refused_root, CORE_NONE);
	ck_assert_uint_eq(d.roots, CORE_NONE);
}
END_TEST

static struct kv_domain broken;

#define BREAK(nr, statement)						\
	static void break_##nr(void) { statement; }

BREAK(0, broken.group[0].block_tokens = 0)
BREAK(1, broken.group[0].block_tokens = 17)
BREAK(2, broken.group[0].block_tokens = 4112)
BREAK(3, broken.name[0] = 0)
BREAK(4, broken.name[KVMM_NAME_LEN - 1] = 'x')
BREAK(5, broken.group[0].layers = 0)
BREAK(6, broken.group[0].window = 1)
BREAK(7, broken.group[0].layers = 33)
BREAK(8, broken.weight = 0)
BREAK(9, broken.weight = CORE_WEIGHT_MAX + 1)
BREAK(10, broken.operator_limit[CORE_LIMIT_WEIGHT] = 0)
BREAK(11, broken.operator_limit[CORE_LIMIT_WEIGHT] = CORE_WEIGHT_MAX + 1)
BREAK(12, broken.group[0].k_bytes = 31)
BREAK(13, broken.group[0].block_tokens = 16)
BREAK(14, broken.group[0].block_tokens = 32)
BREAK(15, broken.group[0].block_tokens = 64)
BREAK(16, broken.weight = 1)
BREAK(17, broken.weight = CORE_WEIGHT_MAX)
BREAK(18, broken.operator_limit[CORE_LIMIT_WEIGHT] = 1)
BREAK(19, broken.operator_limit[CORE_LIMIT_WEIGHT] = CORE_WEIGHT_MAX)
BREAK(20, broken.by_operator = 0; broken.operator_limit[CORE_LIMIT_WEIGHT] = 0)
BREAK(21, broken.group[0].layers = 32)
BREAK(22, broken.group[0].block_tokens = 48)

static void (*const breaks[])(void) = {
	break_0, break_1, break_2, break_3, break_4, break_5, break_6, break_7,
	break_8, break_9, break_10, break_11, break_12, break_13, break_14,
	break_15, break_16, break_17, break_18, break_19, break_20, break_21,
	break_22,
};

#define NR_BROKEN	13		/* the others are right */

/* A record that no attach message can have made is refused. */
START_TEST(test_restore_refused)
{
	broken = record();
	breaks[_i]();
	ck_assert_int_eq(domain_restore(sh.core, &broken),
			 _i < NR_BROKEN ? -EINVAL : 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_domain");
	TCase *tc = tcase_create("domain");

	tcase_add_checked_fixture(tc, setup, sh_stop);
	tcase_add_loop_test(tc, test_shape, 0, ARRAY_SIZE(shapes));
	tcase_add_loop_test(tc, test_small_tail_is_enough, 0,
			    ARRAY_SIZE(enough));
	tcase_add_loop_test(tc, test_shape_in_a_small_pool, 1, 7);
	tcase_add_loop_test(tc, test_host_part, 0, ARRAY_SIZE(hosts));
	tcase_add_loop_test(tc, test_largest_group, 0, 4);
	tcase_add_test(tc, test_largest_values);
	tcase_add_loop_test(tc, test_reasons, 0, 12);
	tcase_add_test(tc, test_smallest_token);
	tcase_add_test(tc, test_limits_of_lower_tiers);
	tcase_add_test(tc, test_first_client_sets_limits);
	tcase_add_test(tc, test_other_models);
	tcase_add_test(tc, test_copy_in_flight);
	tcase_add_test(tc, test_host_cache_is_kept);
	tcase_add_test(tc, test_restored_fields);
	tcase_add_loop_test(tc, test_restore_refused, 0, ARRAY_SIZE(breaks));
	suite_add_tcase(s, tc);
	return sh_run(s);
}
