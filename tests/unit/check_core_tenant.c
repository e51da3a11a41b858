// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_tenant.c - limits of a tenant, and when it is forgotten
 */
#include "tests/unit/core_shell.h"
#include "kvmm/core/node/node.h"

#define POOL	16u			/* extents */
#define ALL	(POOL * SH_PER)		/* blocks */

static struct core_quota quota;

static void setup(void)
{
	sh_config(POOL);
	sh.cfg.starve_ns = 1ull << 60;
	sh.cfg.step_deadline_ns = 1ull << 60;
	sh_start();
	quota = (struct core_quota){
		.max_domains = CORE_NONE, .max_min = KVMM_LIMIT_MAX,
		.max_weight = CORE_WEIGHT_MAX,
	};
}

static void teardown(void)
{
	sh_stop();
}

/* Attach within @quota.  Return: the client, or the error of the core. */
static int try_as(u64 tenant, const struct kvmm_attach_req *req,
		  struct core_attach_info *info)
{
	u8 secret[CORE_SECRET_LEN];
	struct sh_client *cl;
	struct core_bind bind;
	int err;

	memset(secret, (int)tenant + 1, sizeof(secret));
	SH_CORE(err = core_client_attach_within(sh.core, sh.now, tenant, secret,
						&quota, req, info));
	if (err)
		return err;
	cl = &sh.cl[info->client];
	memset(cl, 0, sizeof(*cl));
	cl->info = *info;
	bind = (struct core_bind){
		.ctl = &cl->ctl, .seqs = cl->seqs, .extents = cl->extents,
		.tables = cl->tables, .events = cl->events,
		.nr_events = SH_EVENTS,
	};
	SH_CORE(core_client_bind(sh.core, info->client, &bind));
	sh_settle();
	return (int)info->client;
}

/* Attach with limits in blocks. */
static int try_marks(u64 tenant, const char *name, u32 min, u32 low,
		     u32 weight)
{
	struct kvmm_attach_req req = sh_attach_req(name);
	struct core_attach_info info;
	int id;

	req.limits[0].min = min * SH_BLOCK;
	req.limits[0].low = low * SH_BLOCK;
	req.weight = weight;
	id = try_as(tenant, &req, &info);
	if (id < 0)
		ck_assert_ptr_nonnull(info.text);
	return id;
}

static u32 attach(u64 tenant, const char *name)
{
	int id = try_marks(tenant, name, 0, 0, 100);

	ck_assert_int_ge(id, 0);
	return (u32)id;
}

static void set_min(u32 cl, u32 blocks)
{
	SH_CORE(ck_assert_int_eq(core_domain_set(sh.core, sh.now,
			sh.cl[cl].info.domain, CORE_LIMIT_MIN,
			blocks * SH_BLOCK), 0));
}

static u32 emin(u32 cl)
{
	return (u32)(sh_domain(cl).emin_bytes / SH_BLOCK);
}

static u32 elow(u32 cl)
{
	return (u32)(sh_domain(cl).elow_bytes / SH_BLOCK);
}

/* Fill the cache of a domain with full blocks. */
static void fill_cache(u32 cl, u32 blocks, u32 seed)
{
	u64 seq = sh_ready(cl, blocks * SH_BT, 0, seed);

	sh_compute(cl, seq, 0, blocks * SH_BT, seed);
	ck_assert_int_eq(sh_close(cl, seq), 0);
}

static bool known(u64 tenant)
{
	return core_find_tenant(sh.core, tenant) != CORE_NONE;
}

/* ---- limits that clients ask for ---- */

/* Without a grant a domain has no protection, and no higher weight. */
START_TEST(test_no_grant)
{
	struct kvmm_attach_req req = sh_attach_req("a");
	struct core_attach_info info;
	u32 a;

	quota.max_min = 0;
	quota.max_weight = 100;
	req.limits[0].min = 8 * SH_BLOCK;
	req.limits[0].low = 16 * SH_BLOCK;
	req.weight = 5000;
	a = (u32)try_as(1, &req, &info);
	ck_assert(info.cut);
	ck_assert_uint_eq(emin(a), 0);
	ck_assert_uint_eq(elow(a), 0);
	ck_assert_uint_eq(sh_domain(a).limit[CORE_LIMIT_MIN], 0);
	ck_assert_uint_eq(sh_domain(a).limit[CORE_LIMIT_WEIGHT], 100);
	/* An operator may set any limit. */
	set_min(a, 8);
	ck_assert_uint_eq(emin(a), 8);
	sh_quiet(a);
	a = (u32)try_as(1, &req, &info);
	ck_assert_uint_eq(emin(a), 8);

	quota.max_min = KVMM_LIMIT_MAX;
	ck_assert_int_ge(try_marks(2, "b", 1, 1, 100), 0);
	ck_assert(!sh.cl[1].info.cut);
}
END_TEST

/* The grant is for all domains of the tenant together. */
START_TEST(test_grant_is_shared)
{
	u32 a, b, c;

	quota.max_min = 8 * SH_BLOCK;
	a = (u32)try_marks(1, "a", 8, 0, 100);
	ck_assert_uint_eq(emin(a), 8);
	b = (u32)try_marks(1, "b", 24, 8, 100);
	ck_assert_uint_eq(emin(a), 4);
	ck_assert_uint_eq(emin(b), 4);
	ck_assert_uint_eq(elow(b), 8);
	/* Another tenant has its own grant. */
	c = (u32)try_marks(2, "a", 8, 0, 100);
	ck_assert_uint_eq(emin(c), 8);
	ck_assert_uint_eq(emin(a), 4);
	sh_quiet(b);
	ck_assert_uint_eq(emin(a), 8);
}
END_TEST

/* Limits that operators set come first; limits asked for share the rest. */
START_TEST(test_set_before_asked)
{
	u32 a = attach(1, "a"), b = attach(2, "b"), c, d;

	set_min(a, ALL / 2);
	c = (u32)try_marks(3, "c", ALL, 0, 100);
	d = (u32)try_marks(4, "d", ALL, 0, 100);
	ck_assert_uint_eq(emin(a), ALL / 2);
	ck_assert_uint_eq(emin(c), ALL / 4);
	ck_assert_uint_eq(emin(d), ALL / 4);
	/* More is set than the pool has: nothing is left for limits asked for. */
	set_min(b, ALL);
	ck_assert_uint_eq(emin(a), ALL / 3);
	ck_assert_uint_eq(emin(b), ALL * 2 / 3);
	ck_assert_uint_eq(emin(c), 0);
	ck_assert_uint_eq(emin(d), 0);
}
END_TEST

/* ---- domains ---- */

START_TEST(test_domains)
{
	u32 a, b, id;

	quota.max_domains = 2;
	a = attach(1, "a");
	b = attach(1, "b");
	ck_assert_int_eq(try_marks(1, "c", 0, 0, 100), -EDQUOT);
	/* Other tenants are not concerned; a known name can be attached to. */
	(void)attach(2, "a");
	id = attach(1, "a");
	ck_assert_uint_eq(sh.cl[id].info.domain, sh.cl[a].info.domain);
	sh_quiet(id);
	fill_cache(b, 4, 7);
	sh_quiet(b);
	ck_assert_uint_eq(sh_pool().cached, 4 * SH_BLOCK);
	(void)attach(1, "c");
	ck_assert_uint_eq(sh_pool().cached, 0);
	ck_assert_int_eq(try_marks(1, "b", 0, 0, 100), -EDQUOT);
}
END_TEST

/*
 * Records run out: an idle domain of the same tenant goes, then one of the
 * tenant with most domains.
 */
START_TEST(test_whose_idle_domain_goes)
{
	u32 victim, i, id;
	char name[2] = "a";

	victim = attach(2, "x");
	fill_cache(victim, 4, 7);
	sh_quiet(victim);
	for (i = 1; i < sh.cfg.max_domains; i++, name[0]++) {
		sh_tick(1);
		sh_quiet(attach(1, name));
	}
	ck_assert_uint_eq(sh_pool().cached, 4 * SH_BLOCK);
	/* A tenant may replace any number of its own domains. */
	for (i = 0; i < 2 * sh.cfg.max_domains; i++, name[0]++)
		sh_quiet(attach(1, name));
	ck_assert_uint_eq(sh_pool().cached, 4 * SH_BLOCK);
	/* A third tenant replaces a domain of the tenant with most. */
	(void)attach(3, "t");
	ck_assert_uint_eq(sh_pool().cached, 4 * SH_BLOCK);
	id = attach(2, "x");
	ck_assert_uint_eq(sh_status(id, sh_ready(id, 4 * SH_BT + 1, 0, 7))->cached_len,
			  4 * SH_BT);
}
END_TEST

/* ---- records ---- */

/* Users may come and go for ever. */
START_TEST(test_tenants_are_forgotten)
{
	u64 t;
	u32 id, n;

	for (t = 1; t < 20; t++) {
		sh_tick(1);
		id = attach(t, "a");
		fill_cache(id, 2, (u32)t);
		sh_quiet(id);
		for (n = 0, id = 0; id < 20; id++)
			n += known(id);
		ck_assert_uint_le(n, sh.cfg.max_tenants);
	}
	/* The last tenants are still known, and their cache is warm. */
	ck_assert(known(19) && known(18) && !known(1));
	id = attach(19, "a");
	ck_assert_uint_eq(sh_status(id, sh_ready(id, 2 * SH_BT + 1, 0, 19))->cached_len,
			  2 * SH_BT);
}
END_TEST

/* A tenant with clients, or processes with mappings, is not forgotten. */
START_TEST(test_tenants_in_use)
{
	u32 id[8], i;

	for (i = 0; i < sh.cfg.max_tenants; i++)
		id[i] = attach(1 + i, "a");
	ck_assert_int_eq(try_marks(99, "a", 0, 0, 100), -ENOSPC);
	/* The client detached, and lives on. */
	fill_cache(id[0], 2, 1);
	ck_assert_int_eq(sh_submit(id[0], KVMM_OP_DETACH, 0, 0, 0), 0);
	sh_quiet(id[0]);
	ck_assert_int_eq(try_marks(99, "a", 0, 0, 100), -ENOSPC);
	SH_CORE(core_ghost_gone(sh.core, sh.now, sh.cl[id[0]].info.tenant));
	sh_settle();
	ck_assert(known(1));
	(void)attach(99, "a");
	ck_assert(!known(1));
	ck_assert_uint_eq(sh_pool().cached, 0);
	ck_assert_uint_eq(sh_pool().free_extents, sh_pool().total);
	/* Nor is a tenant that never had memory: its process is waited for. */
	ck_assert_int_eq(sh_submit(id[1], KVMM_OP_DETACH, 0, 0, 0), 0);
	sh_quiet(id[1]);
	ck_assert_int_eq(try_marks(98, "a", 0, 0, 100), -ENOSPC);
	SH_CORE(core_ghost_gone(sh.core, sh.now, sh.cl[id[1]].info.tenant));
	(void)attach(98, "a");
}
END_TEST

/* Tenants that an operator named find a record beside any number of other users. */
START_TEST(test_named_have_records)
{
	u32 i;

	sh_stop();
	sh_config(POOL);
	sh.cfg.max_tenants = 4;
	sh.cfg.named_tenants = 2;
	sh_start();
	for (i = 0; i < 2; i++)
		(void)attach(1 + i, "a");
	ck_assert_int_eq(try_marks(99, "a", 0, 0, 100), -ENOSPC);
	quota.named = true;
	(void)attach(1ull << 32, "a");
	(void)attach(1ull << 33, "a");
	quota.named = false;
	ck_assert_int_eq(try_marks(99, "a", 0, 0, 100), -ENOSPC);
}
END_TEST

START_TEST(test_view)
{
	struct core_tenant_view v;
	u32 a = (u32)try_marks(7, "a", 4, 0, 100);

	fill_cache(a, 3, 1);
	ck_assert_int_eq(core_get_tenant(sh.core, 99, &v), -ERANGE);
	ck_assert_int_eq(core_get_tenant(sh.core, 1, &v), -ENOENT);
	ck_assert_int_eq(core_get_tenant(sh.core, 0, &v), 0);
	ck_assert_uint_eq(v.key, 7);
	ck_assert_uint_eq(v.nr_clients, 1);
	ck_assert_uint_eq(v.nr_domains, 1);
	ck_assert_uint_eq(v.current_bytes, 3 * SH_BLOCK);
	ck_assert_uint_eq(v.min_bytes, 4 * SH_BLOCK);
	ck_assert_uint_ge(v.backed_bytes, v.current_bytes);
	ck_assert_uint_eq(core_find_tenant(sh.core, 7), 0);
	ck_assert_uint_eq(core_find_tenant(sh.core, 8), CORE_NONE);
}
END_TEST

/* The view of one tenant among two: its own extents and domains only. */
START_TEST(test_view_of_two)
{
	struct core_tenant_view v;
	u32 a = attach(7, "a"), b = attach(7, "b"), other = attach(8, "a");

	fill_cache(other, 6, 1);
	fill_cache(a, 3, 1);
	fill_cache(b, 5, 1);
	ck_assert_int_eq(core_get_tenant(sh.core, 0, &v), 0);
	ck_assert_uint_eq(v.id, 0);
	ck_assert_uint_eq(v.key, 7);
	ck_assert_uint_eq(v.nr_clients, 2);
	ck_assert_uint_eq(v.nr_domains, 2);
	ck_assert_uint_eq(v.nr_ghosts, 0);
	ck_assert_uint_eq(v.current_bytes, 8 * SH_BLOCK);
	ck_assert_uint_eq(v.backed_bytes, 4 * SH_EXTENT);
	ck_assert_uint_eq(v.min_bytes, 0);
	ck_assert_int_eq(core_get_tenant(sh.core, 1, &v), 0);
	ck_assert_uint_eq(v.id, 1);
	ck_assert_uint_eq(v.key, 8);
	ck_assert_uint_eq(v.nr_clients, 1);
	ck_assert_uint_eq(v.nr_domains, 1);
	ck_assert_uint_eq(v.current_bytes, 6 * SH_BLOCK);
	/* Its first extent is the first of the pool. */
	ck_assert_uint_eq(v.backed_bytes, 2 * SH_EXTENT);
	ck_assert_int_eq(core_get_tenant(sh.core, sh.cfg.max_tenants - 1, &v),
			 -ENOENT);
	ck_assert_int_eq(core_get_tenant(sh.core, sh.cfg.max_tenants, &v),
			 -ERANGE);
	/* A client that detached, with a process that lives on. */
	ck_assert_int_eq(sh_submit(b, KVMM_OP_DETACH, 0, 0, 0), 0);
	sh_quiet(b);
	ck_assert_int_eq(core_get_tenant(sh.core, 0, &v), 0);
	ck_assert_uint_eq(v.nr_clients, 1);
	ck_assert_uint_eq(v.nr_domains, 2);
	ck_assert_uint_eq(v.nr_ghosts, 1);
}
END_TEST

/* The last attach says the quota, also beside a client that attached before. */
START_TEST(test_quota_of_the_last_attach)
{
	struct core_tenant_view v;
	u32 a = (u32)try_marks(1, "a", 8, 0, 100);

	ck_assert_uint_eq(emin(a), 8);
	quota.max_min = 3 * SH_BLOCK;
	(void)attach(1, "a");
	ck_assert_uint_eq(emin(a), 3);
	ck_assert_int_eq(core_get_tenant(sh.core, 0, &v), 0);
	ck_assert_uint_eq(v.min_bytes, 3 * SH_BLOCK);
	quota.max_min = KVMM_LIMIT_MAX;
	(void)attach(1, "b");
	ck_assert_uint_eq(emin(a), 8);
}
END_TEST

/* Of several idle tenants the longest unused goes, with its extents and domains. */
START_TEST(test_longest_unused_tenant_goes)
{
	static const u32 order[] = { 2, 0, 3, 1 };
	u32 id[4], i;

	for (i = 0; i < 4; i++) {
		id[i] = attach(1 + i, "a");
		fill_cache(id[i], 4, i);
		ck_assert_uint_eq(sh.core->head->nr_tenants, i + 1);
	}
	for (i = 0; i < 4; i++) {
		sh_tick(1);
		sh_quiet(id[order[i]]);
	}
	for (i = 0; i < 4; i++) {
		ck_assert(known(1 + order[i]));
		id[i] = attach(10 + i, "a");
		ck_assert(!known(1 + order[i]));
		ck_assert_uint_eq(core_find_tenant(sh.core, 10 + i), order[i]);
		ck_assert_uint_eq(sh.core->head->nr_tenants, 4);
		ck_assert_uint_eq(sh.nr_releases, 2 * (i + 1));
		ck_assert_uint_eq(sh_pool().cached, (12 - 4 * i) * SH_BLOCK);
	}
}
END_TEST

/* Of several idle domains of one tenant the longest unused goes. */
START_TEST(test_longest_unused_domain_goes)
{
	static const u32 order[] = { 3, 1, 5, 0, 4, 2 };
	char name[2] = "a";
	u32 id[6], i;

	for (i = 0; i < 6; i++, name[0]++)
		id[i] = attach(1, name);
	for (i = 0; i < 6; i++) {
		sh_tick(1);
		sh_quiet(id[order[i]]);
	}
	for (i = 0; i < 6; i++) {
		name[0] = (char)('m' + i);
		ck_assert_uint_eq(sh.cl[attach(1, name)].info.domain, order[i]);
	}
}
END_TEST

/* A tenant whose memory is in the making is not idle. */
START_TEST(test_memory_in_the_making)
{
	u64 seq;
	u32 id[4], i;

	for (i = 0; i < 4; i++)
		id[i] = attach(1 + i, "a");
	sh_manual_make = true;
	seq = sh_open(id[0], SH_BT, 0);
	ck_assert_int_eq(sh_match(id[0], seq, SH_BT, 0), 0);
	ck_assert_uint_eq(sh.nr_creates, 1);
	sh_quiet(id[0]);
	ck_assert_int_eq(try_marks(9, "a", 0, 0, 100), -ENOSPC);
	sh_manual_make = false;
	sh_settle();
	ck_assert(known(1));
	(void)attach(9, "a");
	ck_assert(!known(1));
}
END_TEST

/*
 * The quota counts the domains that a tenant has, and a domain in use of another
 * tenant is no place for a new one.
 */
START_TEST(test_number_of_domains)
{
	struct core_attach_info info;
	struct kvmm_attach_req req = sh_attach_req("c");
	u32 a, b;

	quota.max_domains = 2;
	a = attach(1, "a");
	b = attach(1, "b");
	ck_assert_int_eq(try_as(1, &req, &info), -EDQUOT);
	ck_assert_ptr_nonnull(strstr(info.text, "as it may"));
	ck_assert_uint_eq(sh.core->tenants[0].nr_domains, 2);
	/* An idle one of its own gives way, though records are free. */
	sh_quiet(b);
	ck_assert_int_eq(try_as(1, &req, &info), (int)b);
	ck_assert_uint_eq(info.domain, 1);
	ck_assert_uint_eq(sh.core->tenants[0].nr_domains, 2);
	quota.max_domains = 3;
	req = sh_attach_req("d");
	ck_assert_int_ge(try_as(1, &req, &info), 0);
	ck_assert_uint_eq(info.domain, 2);
	(void)a;
}
END_TEST

/* A tenant is not dropped while an extent of it is on its way out of the pool. */
START_TEST(test_extent_that_leaves)
{
	u32 id[4], i;

	for (i = 0; i < 4; i++)
		id[i] = attach(1 + i, "a");
	fill_cache(id[0], ALL, 0);
	sh.cl[id[0]].stubborn = true;
	SH_CORE(ck_assert_int_eq(core_pool_resize(sh.core, sh.now, 0,
			(POOL - 1) * SH_EXTENT), 0));
	ck_assert_uint_eq(sh.core->extents[POOL - 1].want, EXT_WANT_SIZE);
	sh_quiet(id[0]);
	ck_assert_int_eq(try_marks(9, "a", 0, 0, 100), -ENOSPC);
	sh_tick(1);
	ck_assert_uint_eq(sh_pool().offline, SH_EXTENT);
	(void)attach(9, "a");
	ck_assert(!known(1));
}
END_TEST

/* Of tenants and domains that are unused for the same time the first goes. */
START_TEST(test_unused_for_the_same_time)
{
	u32 id[4], i;

	for (i = 0; i < 4; i++)
		id[i] = attach(1 + i, "a");
	for (i = 4; i--;)
		sh_quiet(id[i]);
	for (i = 0; i < 4; i++) {
		id[i] = attach(10 + i, "a");
		ck_assert_uint_eq(sh.cl[id[i]].info.tenant, i);
	}
	id[1] = attach(10, "b");
	id[2] = attach(10, "c");
	sh_quiet(id[2]);
	sh_quiet(id[1]);
	ck_assert_uint_eq(sh.cl[id[1]].info.domain, 4);
	ck_assert_uint_eq(sh.cl[attach(10, "d")].info.domain, 4);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_tenant");
	TCase *tc = tcase_create("tenants");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_no_grant);
	tcase_add_test(tc, test_grant_is_shared);
	tcase_add_test(tc, test_set_before_asked);
	tcase_add_test(tc, test_domains);
	tcase_add_test(tc, test_whose_idle_domain_goes);
	tcase_add_test(tc, test_tenants_are_forgotten);
	tcase_add_test(tc, test_tenants_in_use);
	tcase_add_test(tc, test_named_have_records);
	tcase_add_test(tc, test_view);
	tcase_add_test(tc, test_view_of_two);
	tcase_add_test(tc, test_quota_of_the_last_attach);
	tcase_add_test(tc, test_longest_unused_tenant_goes);
	tcase_add_test(tc, test_longest_unused_domain_goes);
	tcase_add_test(tc, test_memory_in_the_making);
	tcase_add_test(tc, test_number_of_domains);
	tcase_add_test(tc, test_extent_that_leaves);
	tcase_add_test(tc, test_unused_for_the_same_time);
	suite_add_tcase(s, tc);
	return sh_run(s);
}
