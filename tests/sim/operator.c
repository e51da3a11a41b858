// SPDX-License-Identifier: Apache-2.0
/*
 * operator.c - events that come from neither clients nor devices
 *
 * An operator drops caches, watches for stalls, asks for domains and sequences
 * that are not there, and sends attach messages that must be refused.  A
 * lingering client ends at last.  A refused request changes nothing (law 4).
 */
#include "kvmm/core/why.h"
#include "tests/sim/sim.h"

/* ---- attach messages and configurations that must be refused ---- */

static int attach_wrong(struct kvmm_attach_req *req, struct rng *r)
{
	switch (rng_below(r, 12)) {
	case 0:
		req->domain[0] = '\0';
		return -EINVAL;
	case 1:
		req->max_steps = 0;
		return -EINVAL;
	case 2:
		req->block_tokens = PICK(r, 0, 8, 17, 4104, 4112, 65536);
		return -EINVAL;
	case 3:
		req->weight = CORE_WEIGHT_MAX + 1;
		return -EINVAL;
	case 4:
		req->nr_groups = PICK(r, 0, 8, 9);
		return -EINVAL;
	case 5:
		req->flags |= KVMM_ATTACH_RESUME;
		return -EOPNOTSUPP;
	case 6:
		req->limits[2].min = 1;
		return -EOPNOTSUPP;
	case 7:
		req->group[0].kv_heads = 0;
		return -EINVAL;
	case 8:
		req->group[0].window = 1;
		return -EINVAL;
	case 9:			/* a new name, and too little for a block */
		req->domain[0] = '!';
		req->limits[0].max = 1;
		return -EINVAL;
	case 10:		/* a token is smaller than the daemon expects */
		req->domain[0] = '!';
		req->nr_groups = 1;
		req->group[0] = (struct kvmm_group){ .layers = 1,
			.kv_heads = 1, .k_bytes = 1 };
		return -EINVAL;
	}
	req->domain[0] = '!';	/* no span holds a block */
	req->group[0].layers = 4096;
	req->group[0].k_bytes = 65536;
	return -EINVAL;
}

static void attach_refused(struct sim *w)
{
	struct sim_domain *d = &w->dom[rng_below(&w->rng, w->plan.nr_domains)];
	struct kvmm_attach_req req = d->req;
	struct core_attach_info info;
	u8 secret[CORE_SECRET_LEN] = { 0 };
	int err, want;

	req.max_steps = 1;
	want = attach_wrong(&req, &w->rng);
	err = core_client_attach(w->core, w->now, 100 + d->tenant, secret,
				 &req, &info);
	LAW(w, err == want || err == -EUSERS || err == -ENOSPC,
	    "a wrong attach message: %d, should be %d", err, want);
	LAW(w, info.text, "attach refused without a word");
	cover_entry(KVMM_NR_OPS, err);
}

static void config_refused(struct sim *w)
{
	struct core_config cfg = w->cfg;

	switch (rng_below(&w->rng, 7)) {
	case 0:
		cfg.pool_bytes++;
		break;
	case 1:
		cfg.min_token_bytes = (u32)cfg.extent_size;
		break;
	case 2:
		cfg.max_clients = 65;
		break;
	case 3:
		cfg.swappiness = 201;
		break;
	case 4:			/* blocks have numbers of 31 bits */
		cfg.min_token_bytes = 1;
		cfg.pool_bytes = CORE_POOL_LIMIT - cfg.extent_size;
		break;
	case 5:			/* a mode of the kernel that kvmm does not have */
		cfg.overcommit = 1;
		break;
	default:		/* valid: the core derives the number of pages */
		cfg.nr_idpages = 0;
		LAW(w, core_arena_size(&cfg), "a configuration is refused");
		return;
	}
	LAW(w, !core_arena_size(&cfg), "a wrong configuration is taken");
}

/* ---- views of records that are not there ---- */

static void look_past_the_end(struct sim *w)
{
	struct core_pressure_view p;
	struct core_domain_view d;
	struct core_client_view c;
	struct core_extent_view x;
	struct core_lru_view l;
	struct core_seq_view s;
	struct core *core = w->core;
	u32 far = 0xffffff;

	LAW(w, core_get_domain(core, far, &d) == -ERANGE &&
	    core_get_client(core, far, &c) == -ERANGE &&
	    core_get_seq(core, far, &s) == -ERANGE &&
	    core_get_extent(core, far, &x) == -ERANGE &&
	    core_get_pressure(core, far, &p) == -ERANGE,
	    "a view of what is past the end");
	LAW(w, core_drop_caches(core, w->now, far, 1) == -ENOENT,
	    "caches of no domain are dropped");
	LAW(w, core_trigger_add(core, w->now, far, CORE_PSI_MEMORY, true,
				500 * SIM_MS, 500 * SIM_MS) == -ENOENT,
	    "a trigger of no domain");
	LAW(w, core_trigger_add(core, w->now, CORE_NONE, CORE_PSI_IO, true,
				1, 1) ==
	    -EINVAL, "a trigger of too short a window");
	LAW(w, !core_get_lru(core, 0, &l) == !core_get_domain(core, 0, &d),
	    "the order of a domain's cache: unlike its view");
	LAW(w, core_get_stalled(core) <= w->cfg.max_clients * w->cfg.max_seqs,
	    "%u stalled", core_get_stalled(core));
}

/* ---- changes ---- */

static void drop_caches(struct sim *w)
{
	u32 dom = rng_below(&w->rng, w->cfg.max_domains);
	u32 most = rng_chance(&w->rng, 500) ? CORE_NONE >> 1 :
					      rng_below(&w->rng, 20);
	struct core_domain_view v;
	bool there = !core_get_domain(w->core, dom, &v);
	int nr = core_drop_caches(w->core, w->now, dom, most);

	LOG(w, "operator: drop %u of the cache of domain %u: %d", most, dom, nr);
	LAW(w, there ? nr >= 0 && (u32)nr <= most : nr == -ENOENT,
	    "drop %u of domain %u: %d", most, dom, nr);
	if (nr > 0)
		cover_note("caches dropped");
	/* No other domain took it. */
	if (dom < SIM_DOMAINS)
		w->limit[dom].kept = 0;
}

/* Evict as many cached blocks as asked for; no sequence may lose memory. */
static void evict(struct sim *w)
{
	u32 dom = rng_below(&w->rng, w->cfg.max_domains);
	u32 most = rng_below(&w->rng, 20);
	u64 before[NR_CORE_EVENTS], after[NR_CORE_EVENTS];
	struct core_domain_view was, v;
	bool there = !core_get_domain(w->core, dom, &was);
	int nr;

	core_get_events(w->core, before);
	nr = core_evict(w->core, w->now, dom, most);

	LOG(w, "operator: evict %u of domain %u: %d", most, dom, nr);
	LAW(w, there ? nr >= 0 : nr == -ENOENT, "evict %u of domain %u: %d",
	    most, dom, nr);
	if (!there || core_get_domain(w->core, dom, &v))
		return;
	core_get_events(w->core, after);
	/*
	 * A sequence may have been admitted to the freed blocks, or with cached ones.
	 * A swapped one may have been tried in vain, and is recomputed: it has no memory.
	 * One that waits within its memory.min may be tried after any event, and take
	 * the memory of a sequence that the event before admitted.
	 */
	LAW(w, v.nr_preempted - was.nr_preempted <= after[CORE_EV_swap_lost] -
						    before[CORE_EV_swap_lost] ||
	    laws_promise_kept(w),
	    "evict preempts %u", v.nr_preempted - was.nr_preempted);
	LAW(w, !most == !nr || was.blocks[3] < most || nr >= (int)most,
	    "evict %u of %llu cached blocks: %d", most,
	    (unsigned long long)was.blocks[3], nr);
	if (nr > 0)
		cover_note("evicted because an operator asked");
	if (dom < SIM_DOMAINS)
		w->limit[dom].kept = 0;
}

/* The reason why a sequence waits can be asked at any moment. */
static void look_why(struct sim *w)
{
	u32 i = rng_below(&w->rng, w->cfg.max_clients * w->cfg.max_seqs);
	struct core_lease_view l;
	struct core_why_view v;
	struct core_seq_view s;
	bool there = !core_get_seq(w->core, i, &s);

	LAW(w, !core_get_why(w->core, i, w->now, &v) == there,
	    "sequence %u is %sthere", i, there ? "" : "not ");
	if (!there)
		return;
	LAW(w, v.wait < NR_CORE_WAITS && v.state == s.state &&
	    v.taken == s.nr_preempted && v.found <= v.len &&
	    (!v.taken || v.cause < NR_CORE_CAUSES), "why of sequence %u", i);
	LAW(w, (s.state == CORE_SEQ_LEASED) == (v.wait == CORE_WAIT_lease) &&
	    (s.state == CORE_SEQ_LEASED) == !core_get_lease(w->core, i, &l),
	    "sequence %u is %s and waits for %s", i, core_seq_state_name(s.state),
	    core_wait_name(v.wait));
	LAW(w, s.state != KVMM_SEQ_READY || v.wait == CORE_WAIT_nothing ||
	    v.wait == CORE_WAIT_more, "ready %u waits for %s", i,
	    core_wait_name(v.wait));
}

static void trigger_change(struct sim *w)
{
	u64 window = rng_range(&w->rng, 500, 2000) * SIM_MS;
	u32 dom = rng_below(&w->rng, w->cfg.max_domains);
	struct core_domain_view v;
	bool there = !core_get_domain(w->core, dom, &v);
	int t;

	if (rng_chance(&w->rng, 300)) {
		core_trigger_del(w->core, rng_below(&w->rng, 80));
		return;
	}
	t = core_trigger_add(w->core, w->now, dom,
			     rng_below(&w->rng, CORE_PSI_CPU),
			     rng_chance(&w->rng, 500),
			     window / rng_range(&w->rng, 2, 20), window);
	LAW(w, there ? t >= 0 || t == -ENOSPC : t == -ENOENT,
	    "a trigger of domain %u: %d", dom, t);
}

/* Set a tunable, now and then to a value out of bounds. */
static void tune(struct sim *w)
{
	static const u32 least[CORE_NR_TUNABLES] = {
#define x(type, name, opt, def, low, ...) [CORE_TUNE_##name] = low,
		KVMM_TUNABLES(x)
#undef x
	};
	static const u32 most[CORE_NR_TUNABLES] = {
#define x(type, name, opt, def, least, top, ...) [CORE_TUNE_##name] = top,
		KVMM_TUNABLES(x)
#undef x
	};
	u32 *const cfg[CORE_NR_TUNABLES] = {
#define x(type, name, ...) [CORE_TUNE_##name] = &w->cfg.name,
		KVMM_TUNABLES(x)
#undef x
	};
	u32 which = rng_below(&w->rng, CORE_NR_TUNABLES + 1);
	u32 value = rng_chance(&w->rng, 100) ? most[which % CORE_NR_TUNABLES] + 1 :
		    rng_below(&w->rng, most[which % CORE_NR_TUNABLES] + 1);
	bool fine = which < CORE_NR_TUNABLES && value <= most[which] &&
		    value >= least[which];

	if (which == CORE_TUNE_overcommit)
		fine = fine && value != 1;
	/* An open sequence must be able to fit for ever. */
	if (which == CORE_TUNE_overcommit_ratio)
		value = fine ? w->cfg.overcommit_ratio : 0;
	if (which == CORE_TUNE_overcommit && w->cfg.overcommit_ratio < 100)
		value = fine ? w->cfg.overcommit : 1;
	LOG(w, "operator: tunable %u is %u", which, value);
	LAW(w, core_tune(w->core, w->now, which, value) == (fine ? 0 : -EINVAL),
	    "tunable %u is set to %u", which, value);
	if (fine)
		*cfg[which] = value;
}

/**
 * operator_act() - one event of the operator
 */
void operator_act(struct sim *w)
{
	switch (rng_below(&w->rng, 13)) {
	case 0:
		attach_refused(w);
		break;
	case 1:
		config_refused(w);
		break;
	case 2:
		look_past_the_end(w);
		break;
	case 3:
		look_why(w);
		if (rng_chance(&w->rng, 300))
			evict(w);
		else
			drop_caches(w);
		break;
	case 4:
		trigger_change(w);
		break;
	case 5:
		ghost_ends(w, rng_below(&w->rng, SIM_TENANTS));
		break;
	case 6:
	case 7:
		move_act(w);
		break;
	case 8:
		tune(w);
		break;
	case 9:
	case 10:
		resize_act(w);
		break;
	default:
		limit_act(w);
		break;
	}
}

/**
 * operator_shutdown() - the daemon ends: every client is told
 */
void operator_shutdown(struct sim *w)
{
	u32 i;

	LOG(w, "shutdown");
	core_shutdown(w->core, w->now);
	for (i = 0; i < SIM_CLIENTS; i++)
		LAW(w, w->cl[i].state != SIM_ALIVE ||
		    (w->cl[i].ctl.state == KVMM_CLIENT_SHUTDOWN &&
		     w->cl[i].ctl.reason == -ESHUTDOWN),
		    "client %u was not told of the shutdown", i);
	cover_note("shutdowns");
}
