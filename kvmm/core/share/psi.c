// SPDX-License-Identifier: Apache-2.0
/*
 * psi.c - pressure: the time lost for lack of memory, I/O and CPU
 *
 * The model is the kernel's pressure stall information.  There a task is delayed
 * or not.  Here the task is a sequence that could run.  It is
 *
 *	stalled      it waits for memory: to be admitted, to grow, to come back
 *	restoring    it has memory again, and waits until its content is read
 *	             from a swap area or copied from the host pool
 *	redoing      an open step names it, but computes tokens again that
 *	             preemption took
 *	productive   an open step names it and computes new tokens
 *
 * Else it is idle and does not count: its ids are not sent yet, its client does
 * not run it, or it was paged out by advice.  A group (each domain, and the node)
 * counts the sequences of each class.  It loses time in one of two ways:
 *
 *	memory  some = stalled + restoring + redoing > 0
 *	        full = some, and no sequence is productive
 *	io      some = restoring > 0
 *	        full = some, and no sequence is productive or redoing: no step is
 *	               open
 *
 * So a sequence that waits for I/O also waits for memory, as a task of the
 * kernel does that has a page read from swap.  Writes do not count as I/O: what
 * they delay is memory that is not free yet.
 *
 * The CPU account is of the mm thread, which serves all clients in turn.  The
 * task is a request in a ring.  The shell sees the rings, and reports how long
 * some requests waited while the thread worked for other clients, and how long
 * while it worked for no client (core_cpu_waited()).  Only the node has this
 * account.
 *
 * A sequence may wait only because of its domain's own memory.max.  More memory
 * for the node would not help it, so it counts for the domain only.
 *
 * Time is added up whenever a count changes while a sequence is stalled.  So the
 * totals are exact at any rate of ticks.  Averages are made of them every two
 * seconds, with the decay of the kernel's load averages: over a window of W
 * seconds avg = avg * e + sample * (1 - e) with e = exp(-2 / W), in fixed point
 * with 11 bits.  A period without a tick decays as an idle one; stall time of
 * more than one period is left for the next sample.
 *
 * Only this file writes struct kv_psi and kv_seq.psi_*.  Call psi_task() after
 * each change of a fact that psi_class_of() reads; check.c computes the counts
 * again.
 */
#include "kvmm/core/share/share.h"

#define PSI_PERIOD_NS	2000000000ull
#define PSI_SHIFT	11
#define PSI_ONE		(1u << PSI_SHIFT)
#define PSI_LEVEL_NS	1000000000ull	/* time that ctl->pressure looks back */
#define PSI_LEVEL_MIN	(PSI_LEVEL_NS / 10)	/* stall in this time that sets a level */

/* 2^11 * exp(-2 / W) for W of 10, 60 and 300 s. */
static const u32 psi_decay[PSI_NR_AVGS] = { 1677, 1981, 2034 };

/* ---- classes ---- */

/* Does the sequence compute tokens again that preemption took? */
static bool seq_redoes(const struct kv_seq *s)
{
	return (s->flags & SEQF_PREEMPTED) && s->valid_len < s->lost_len;
}

/*
 * Does memory.max, set below the capacity of the pool, stop @nr blocks?  A domain
 * that fills the pool has reached a limit, too, but not its own.
 */
static bool limits_itself(const struct core *c, const struct kv_domain *d,
			  u32 nr)
{
	u64 spans = domain_online(c, d) / d->dev.span_extents;

	return domain_limited(d, nr) && d->dev.max_blocks < spans * d->dev.span_blocks;
}

/* limits_itself() for a waiting sequence.  It stands apart, since steps never need it. */
static __attribute__((noinline)) bool waits_for_itself(const struct core *c,
						       const struct kv_seq *s)
{
	const struct kv_domain *d = seq_domain(c, s);

	return limits_itself(c, d, domain_most(d, s->nr_ids));
}

/**
 * psi_class_of() - the class of a sequence in the accounts
 * @own: set when only its own domain's memory.max keeps it waiting
 *
 * Return: PSI_*.
 */
u32 psi_class_of(const struct core *c, const struct kv_seq *s, bool *own)
{
	const struct kv_domain *d = seq_domain(c, s);

	*own = false;
	if (s->flags & SEQF_CLOSING)
		return PSI_IDLE;
	switch (s->state) {
	case KVMM_SEQ_WAITING:
		if (!(s->flags & SEQF_QUEUED))
			return PSI_IDLE;
		*own = waits_for_itself(c, s);
		return PSI_STALLED;
	case KVMM_SEQ_SWAPPED:
	case KVMM_SEQ_RESTORING:
		if (s->flags & SEQF_PAGEDOUT)
			return PSI_IDLE;
		return s->state == KVMM_SEQ_SWAPPED ? PSI_STALLED :
						      PSI_RESTORING;
	case KVMM_SEQ_RECOMPUTE:
		return PSI_STALLED;
	case KVMM_SEQ_READY:
	case KVMM_SEQ_MARKED:
		if (s->nr_steps)
			return seq_redoes(s) ? PSI_REDOING : PSI_PRODUCTIVE;
		if (!(s->flags & SEQF_REFUSED))
			return PSI_IDLE;
		*own = limits_itself(c, d, 1);
		return PSI_STALLED;
	}
	return PSI_IDLE;
}

/* ---- groups ---- */

static u32 group_stalled(const struct kv_psi *g)
{
	return g->nr[PSI_STALLED] + g->nr[PSI_RESTORING] + g->nr[PSI_REDOING];
}

/* For @ns some sequences were stalled for @res; @full: and no other ran. */
static void account(struct kv_psi *g, u32 res, u64 ns, bool full)
{
	g->total[res][PSI_SOME] += ns;
	if (full)
		g->total[res][PSI_FULL] += ns;
}

/* Bring the totals up to now. */
static void group_advance(struct kv_psi *g, u64 now)
{
	const u64 ns = now - g->since;
	const bool runs = g->nr[PSI_PRODUCTIVE];

	if (group_stalled(g))
		account(g, CORE_PSI_MEMORY, ns, !runs);
	if (g->nr[PSI_RESTORING])
		account(g, CORE_PSI_IO, ns, !runs && !g->nr[PSI_REDOING]);
	g->since = now;
}

static inline void group_move(struct kv_psi *g, u64 now, u32 from, u32 to)
{
	KV_BUG_ON(from >= PSI_NR_CLASSES || (from != PSI_IDLE && !g->nr[from]));
	if (from == to)
		return;
	group_advance(g, now);
	g->nr[from]--;
	g->nr[to]++;
}

/* psi_task() - the state of a sequence changed, or it was refused or granted */
void psi_task(struct core *c, struct kv_seq *s)
{
	struct kv_domain *d = seq_domain(c, s);
	bool own;
	u32 class = psi_class_of(c, s, &own);
	u32 node = own ? PSI_IDLE : class;

	KV_BUG_ON(s->psi_node != PSI_IDLE && s->psi_node != s->psi_domain);
	KV_BUG_ON(own && class != PSI_STALLED);
	KV_BUG_ON(!d->used);
	group_move(&d->psi, c->now, s->psi_domain, class);
	group_move(&c->head->psi, c->now, s->psi_node, node);
	s->psi_domain = (u8)class;
	s->psi_node = (u8)node;
}

/* ---- averages ---- */

static u32 decay_once(u32 avg, u32 e, u32 sample)
{
	u64 next = (u64)avg * e + (u64)sample * (PSI_ONE - e);

	/* Round towards the sample, else a small one is never reached. */
	if (sample >= avg)
		next += PSI_ONE - 1;
	return (u32)(next >> PSI_SHIFT);
}

/* @avg after @periods idle ones: multiply by e^periods, by squaring. */
static u32 decay_idle(u32 avg, u32 e, u64 periods)
{
	u64 power = e, result = PSI_ONE;

	for (; periods; periods >>= 1) {
		if (periods & 1)
			result = (result * power + PSI_ONE / 2) >> PSI_SHIFT;
		power = (power * power + PSI_ONE / 2) >> PSI_SHIFT;
	}
	return (u32)((avg * result) >> PSI_SHIFT);
}

/* Add a total to its averages: @missed idle periods, then @period ns. */
static void total_average(u64 total, u64 *averaged, u32 *avg, u64 period,
			  u64 missed)
{
	u64 sample = min(total - *averaged, period);
	u32 i;

	*averaged += sample;
	sample = sample * 100 * PSI_ONE / period;
	for (i = 0; i < PSI_NR_AVGS; i++) {
		if (missed)
			avg[i] = decay_idle(avg[i], psi_decay[i], missed);
		avg[i] = decay_once(avg[i], psi_decay[i], (u32)sample);
	}
}

static void group_average(struct kv_psi *g, u64 now)
{
	u64 missed, period;
	u32 res, kind;

	if (now < g->next_avg)
		return;
	missed = (now - g->next_avg) / PSI_PERIOD_NS;
	g->next_avg += (missed + 1) * PSI_PERIOD_NS;
	period = max(now - g->last_avg - missed * PSI_PERIOD_NS, 1ull);
	g->last_avg = now;
	for (res = 0; res < PSI_NR_RES; res++)
		for (kind = 0; kind < PSI_NR_KINDS; kind++)
			total_average(g->total[res][kind],
				      &g->averaged[res][kind],
				      g->avg[res][kind], period, missed);
}

static void group_init(struct kv_psi *g, u64 now)
{
	g->since = now;
	g->last_avg = now;
	g->next_avg = now + PSI_PERIOD_NS;
	g->level_since = now;
}

/* Begin the record of a domain, which has no sequences yet. */
void psi_init(const struct core *c, struct kv_psi *g)
{
	memset(g, 0, sizeof(*g));
	group_init(g, c->now);
}

/* ---- levels: published to clients ---- */

/* Once a second: 2: full, 1: some, for a tenth of the time at least; else 0. */
static bool group_level(struct kv_psi *g, u64 now)
{
	const u64 *total = g->total[CORE_PSI_MEMORY];
	u32 level = 0, was = g->level;

	if (now - g->level_since < PSI_LEVEL_NS)
		return false;
	if (total[PSI_FULL] - g->level_total[PSI_FULL] >= PSI_LEVEL_MIN)
		level = 2;
	else if (total[PSI_SOME] - g->level_total[PSI_SOME] >= PSI_LEVEL_MIN)
		level = 1;
	g->level_since = now;
	memcpy(g->level_total, total, sizeof(g->level_total));
	g->level = level;
	return level != was;
}

static void level_publish(struct core *c, u32 dom)
{
	u32 i;

	for (i = 0; i < core_cfg(c)->max_clients; i++) {
		if (c->clients[i].state != CLI_ALIVE ||
		    c->clients[i].domain != dom || !c->bind[i].ctl)
			continue;
		WRITE_ONCE(c->bind[i].ctl->pressure, c->domains[dom].psi.level);
		event_post(c, i, KVMM_EV_PRESSURE, 0, 0);
	}
}

/* ---- triggers ---- */

/*
 * An estimate of the stall in the window that ends now.  The part before @t->start is
 * interpolated from the last window.
 */
static u64 trigger_growth(struct kv_trigger *t, u64 now, u64 total)
{
	u64 elapsed = now - t->start, growth = total - t->start_total;

	KV_BUG_ON(total < t->start_total);
	if (elapsed > t->window_ns) {
		t->start = now;
		t->start_total = total;
		t->last_growth = growth;
		return growth;
	}
	/* The missing part of the window is taken from the window before. */
	return growth + t->last_growth * (t->window_ns - elapsed) /
			t->window_ns;
}

static struct kv_psi *trigger_group(struct core *c, const struct kv_trigger *t)
{
	KV_BUG_ON(t->domain != CORE_NONE && !c->domains[t->domain].used);
	return t->domain == CORE_NONE ? &c->head->psi :
					&c->domains[t->domain].psi;
}

static void trigger_look(struct core *c, struct kv_trigger *t)
{
	struct kv_psi *g = trigger_group(c, t);

	KV_BUG_ON(t->res >= PSI_NR_RES || t->kind >= PSI_NR_KINDS);
	KV_BUG_ON(t->threshold_ns > t->window_ns);
	group_advance(g, c->now);
	if (trigger_growth(t, c->now, g->total[t->res][t->kind]) <
	    t->threshold_ns)
		return;
	/* At most once a window. */
	if (t->fired && c->now - t->fired_at < t->window_ns)
		return;
	t->fired++;
	t->fired_at = c->now;
	core_count(c, CORE_EV_psi_trigger, 1);
	if (c->ops->trigger)
		c->ops->trigger(c->ops_arg, (u32)(t - c->head->triggers));
}

/**
 * core_trigger_add() - report when a stall lasts
 * @domain:       index of a domain, or CORE_NONE for the node
 * @res:          CORE_PSI_MEMORY, _IO or, of the node, _CPU
 * @full:         full, else some
 * @threshold_ns: stall that fires the trigger, within
 * @window_ns:    a window of 500 ms to 10 s
 *
 * The report is ops->trigger(), at most once a window, from core_tick().  The
 * trigger ends with its domain, and ops->trigger_gone() says so.
 * Return: the trigger, >= 0; -EINVAL; -ENOENT: no such domain; -ENOSPC.
 */
int core_trigger_add(struct core *c, u64 now, u32 domain, u32 res, bool full,
		     u64 threshold_ns, u64 window_ns)
{
	struct kv_trigger *t;
	u32 i;
	core_event(c);

	if (window_ns < PSI_WINDOW_MIN_NS || window_ns > PSI_WINDOW_MAX_NS ||
	    !threshold_ns || threshold_ns > window_ns || res >= PSI_NR_RES ||
	    (domain != CORE_NONE && res == CORE_PSI_CPU))
		return -EINVAL;
	if (domain != CORE_NONE && (domain >= core_cfg(c)->max_domains ||
				    !c->domains[domain].used))
		return -ENOENT;
	for (i = 0; i < PSI_NR_TRIGGERS; i++)
		if (!c->head->triggers[i].window_ns)
			break;
	if (i == PSI_NR_TRIGGERS)
		return -ENOSPC;
	t = &c->head->triggers[i];
	*t = (struct kv_trigger){
		.domain = domain, .res = (u16)res,
		.kind = full ? PSI_FULL : PSI_SOME,
		.threshold_ns = threshold_ns, .window_ns = window_ns,
		.start = now,
	};
	c->now = max(c->now, now);
	group_advance(trigger_group(c, t), c->now);
	t->start_total = trigger_group(c, t)->total[t->res][t->kind];
	return (int)i;
}

/* Remove a trigger: its reader is gone. */
void core_trigger_del(struct core *c, u32 trigger)
{
	core_event(c);

	if (trigger < PSI_NR_TRIGGERS)
		c->head->triggers[trigger].window_ns = 0;
}

/* Remove the triggers of a domain, whose record may become another domain's. */
void psi_forget_domain(struct core *c, u32 dom)
{
	u32 i;

	for (i = 0; i < PSI_NR_TRIGGERS; i++) {
		if (c->head->triggers[i].domain != dom ||
		    !c->head->triggers[i].window_ns)
			continue;
		core_trigger_del(c, i);
		if (c->ops->trigger_gone)
			c->ops->trigger_gone(c->ops_arg, i);
	}
}

/**
 * core_cpu_waited() - requests waited while the mm thread did other work
 * @some_ns: time in which requests waited of clients that it did not work for
 * @full_ns: part of it in which it worked for no client
 */
void core_cpu_waited(struct core *c, u64 some_ns, u64 full_ns)
{
	u64 *total = c->head->psi.total[CORE_PSI_CPU];

	total[PSI_SOME] += some_ns;
	total[PSI_FULL] += min(full_ns, some_ns);
}

/* On a tick: averages, levels, triggers. */
void psi_tick(struct core *c)
{
	u32 i;

	group_advance(&c->head->psi, c->now);
	group_average(&c->head->psi, c->now);
	for_each_domain(c, i) {
		struct kv_psi *g = &c->domains[i].psi;

		group_advance(g, c->now);
		group_average(g, c->now);
		if (group_level(g, c->now))
			level_publish(c, i);
	}
	for (i = 0; i < PSI_NR_TRIGGERS; i++)
		if (c->head->triggers[i].window_ns)
			trigger_look(c, &c->head->triggers[i]);
}

/**
 * core_get_pressure() - the accounts of a domain or of the node
 * @domain: index, or CORE_NONE for the node
 *
 * Return: 0; -ERANGE past the last domain; -ENOENT for an unused record.
 */
int core_get_pressure(const struct core *c, u32 domain,
		      struct core_pressure_view *v)
{
	const struct kv_psi *g = &c->head->psi;
	struct kv_psi now;
	u32 res, kind, i;

	if (domain != CORE_NONE) {
		if (domain >= core_cfg(c)->max_domains)
			return -ERANGE;
		if (!c->domains[domain].used)
			return -ENOENT;
		g = &c->domains[domain].psi;
	}
	now = *g;
	group_advance(&now, c->now);
	memcpy(v->total_ns, now.total, sizeof(v->total_ns));
	for (res = 0; res < PSI_NR_RES; res++)
		for (kind = 0; kind < PSI_NR_KINDS; kind++)
			for (i = 0; i < PSI_NR_AVGS; i++)
				v->avg[res][kind][i] = (u32)
					((u64)now.avg[res][kind][i] * 100 >>
					 PSI_SHIFT);
	v->nr_stalled = group_stalled(&now);
	v->nr_restoring = now.nr[PSI_RESTORING];
	v->nr_productive = now.nr[PSI_PRODUCTIVE];
	v->level = now.level;
	return 0;
}
