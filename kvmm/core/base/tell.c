// SPDX-License-Identifier: Apache-2.0
/*
 * tell.c - records and probes of the events of tell.h
 *
 * Called only for an event that is watched.  Each function named fire_*() has the
 * arguments of a probe in the order of kvmm/probes.h.
 */
#include "kvmm/core/base/base.h"

static void fire_step_begin(const struct core_said *s)
{
	KV_PROBE(kvmm, step_begin, s->client, s->step, s->entries, s->granted);
}

static void fire_step_end(const struct core_said *s)
{
	KV_PROBE(kvmm, step_end, s->client, s->step, s->entries, s->us);
}

static void fire_grant(const struct core_said *s)
{
	KV_PROBE(kvmm, grant, s->client, s->seq, s->domain, s->step, s->blocks,
		 s->copied);
}

static void fire_refuse(const struct core_said *s)
{
	KV_PROBE(kvmm, refuse, s->client, s->seq, s->domain, s->step, -s->error,
		 s->blocks);
}

static void fire_admit(const struct core_said *s)
{
	KV_PROBE(kvmm, admit, s->client, s->seq, s->domain, s->tokens, s->cached,
		 s->us);
}

static void fire_wait(const struct core_said *s)
{
	KV_PROBE(kvmm, wait, s->client, s->seq, s->domain, -s->error, s->blocks);
}

static void fire_limit(const struct core_said *s)
{
	KV_PROBE(kvmm, limit, s->domain, s->mark, s->held, s->blocks);
}

static void fire_limit_reclaim(const struct core_said *s)
{
	KV_PROBE(kvmm, limit_reclaim, s->domain, s->blocks, s->used, s->allowed);
}

static void fire_evict(const struct core_said *s)
{
	KV_PROBE(kvmm, evict, s->domain, s->taker, s->block, s->kept, s->used);
}

static void fire_steal(const struct core_said *s)
{
	KV_PROBE(kvmm, steal, s->domain, s->taker, s->extent, s->cached);
}

static void fire_mark(const struct core_said *s)
{
	KV_PROBE(kvmm, mark, s->client, s->seq, s->domain, s->cause, s->taker);
}

static void fire_preempt(const struct core_said *s)
{
	KV_PROBE(kvmm, preempt, s->client, s->seq, s->domain, s->cause,
		 s->swapped, s->tokens);
}

static void fire_restore(const struct core_said *s)
{
	KV_PROBE(kvmm, restore, s->client, s->seq, s->domain, s->blocks, s->us);
}

static void fire_kill(const struct core_said *s)
{
	KV_PROBE(kvmm, kill, s->client, -s->error);
}

#define p(probe) fire_##probe
#define x(name, ev, record, fire)					\
void tell_##name(struct core *c, const struct core_said *said)		\
{									\
	void (*const probe)(const struct core_said *s) = fire;		\
									\
	if (trace_wants(c, (u32)(record)))				\
		trace_record(c, (u32)(record), said);			\
	if (probe)							\
		probe(said);						\
}
CORE_TELLS(x, p)
#undef x
#undef p
