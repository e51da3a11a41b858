/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tell.h - events of the core: one list, and one call where an event happens
 *
 * An event may add 1 to a counter of stat.h, write a record of trace.h, and fire a
 * probe of kvmm/probes.h.  The list below says which of them it does, and
 * core_tell() does them.  The values of an event are named: the record takes those
 * that are its fields, the probe those of tell.c.
 *
 * An event that is not watched costs its counter, a load for its record and one for
 * its probe; its values are not evaluated.  why.c is not told here: its state decides
 * the text of `explain`, and depends on the order of a sequence's changes.
 */
#ifndef KVMM_CORE_TELL_H
#define KVMM_CORE_TELL_H

#include <kvmm/probes.h>

#include "kvmm/core/base/records.h"

/* No counter, or no record. */
#define TELL_NO	UINT32_MAX

/* Event, counter, record, p(probe) or 0 */
#define CORE_TELLS(x, p)						\
	x(step_begin,	CORE_EV_step_begin,	TELL_NO,		p(step_begin)) \
	x(grant,	CORE_EV_grant,		CORE_TRACE_grant,	p(grant)) \
	x(refuse,	CORE_EV_grant_again,	CORE_TRACE_refuse,	p(refuse)) \
	x(refuse_stale,	CORE_EV_grant_stale,	TELL_NO,		p(refuse)) \
	x(refuse_bad,	TELL_NO,		TELL_NO,		p(refuse)) \
	x(step_end,	CORE_EV_step_end,	TELL_NO,		p(step_end)) \
	x(admit,	CORE_EV_admit,		CORE_TRACE_admit,	p(admit)) \
	x(admit_stall,	CORE_EV_admit_stall,	CORE_TRACE_admit_stall,	0) \
	x(wait,		TELL_NO,		TELL_NO,		p(wait)) \
	x(limit,	TELL_NO,		TELL_NO,		p(limit)) \
	x(limit_reclaim, TELL_NO,		CORE_TRACE_limit_reclaim, p(limit_reclaim)) \
	x(evict,	TELL_NO,		CORE_TRACE_evict,	p(evict)) \
	x(steal,	TELL_NO,		CORE_TRACE_steal,	0)	\
	x(steal_span,	TELL_NO,		TELL_NO,		p(steal)) \
	x(revoke,	TELL_NO,		CORE_TRACE_revoke,	0)	\
	x(preempt,	CORE_EV_preempt_mark,	CORE_TRACE_preempt,	p(mark)) \
	x(swap_out,	CORE_EV_preempt_swap,	CORE_TRACE_swap_out,	p(preempt)) \
	x(recompute,	CORE_EV_preempt_recompute, CORE_TRACE_recompute, p(preempt)) \
	x(swap_in,	CORE_EV_swap_restore,	CORE_TRACE_swap_in,	p(restore)) \
	x(oom,		TELL_NO,		CORE_TRACE_oom,		0)	\
	x(seq_fail,	TELL_NO,		CORE_TRACE_seq_fail,	0)	\
	x(limit_set,	TELL_NO,		CORE_TRACE_limit_set,	0)	\
	x(pool_grow,	CORE_EV_pool_grow,	CORE_TRACE_pool_resize,	0)	\
	x(pool_shrink,	CORE_EV_pool_shrink,	CORE_TRACE_pool_resize,	0)	\
	x(domain_create, TELL_NO,		CORE_TRACE_domain_create, 0)	\
	x(domain_drop,	TELL_NO,		CORE_TRACE_domain_drop,	0)	\
	x(client_attach, CORE_EV_client_attach,	CORE_TRACE_client_attach, 0)	\
	x(client_detach, CORE_EV_client_detach,	CORE_TRACE_client_detach, 0)	\
	x(client_dead,	CORE_EV_client_death,	CORE_TRACE_client_dead,	0)	\
	x(client_kill,	CORE_EV_client_kill,	CORE_TRACE_client_kill,	p(kill)) \
	x(client_resume, TELL_NO,		CORE_TRACE_client_resume, 0)	\
	x(adopt,	TELL_NO,		CORE_TRACE_adopt,	0)	\
	x(device_fail,	CORE_EV_device_fail,	CORE_TRACE_device_fail,	0)

/**
 * struct core_said - the values of an event
 * @field:   those that a record may have, by CORE_TF_*: the members after it
 * @taker:   domain that the memory is taken for
 * @step:    number of the client's step
 * @entries: of the step
 * @granted: of its entries
 * @copied:  tokens of a tail that the client is to copy
 * @us:      microseconds that the sequence waited, or the step was open
 * @used:    blocks of the domain in use before
 * @held:    blocks used and reserved
 * @allowed: blocks that the limit allows
 * @swapped: 1: the content went to a lower tier
 */
struct core_said {
	union {
		u64	field[NR_CORE_TF];
		struct {
#define x(name, kind, text) u64 name;
			CORE_TRACE_FIELDS(x)
#undef x
		};
	};
	u64	taker, step, entries, granted, copied, us, used, held, allowed, swapped;
};

/* The members that each event of a sequence has. */
#define SAID_SEQ(c, s)							\
	.client = (s)->client, .domain = (s)->domain, .seq = seq_number(c, s)

/* An index as a field of a record. */
#define trace_id(index)	((index) == CORE_NONE ? ~0ull : (u64)(index))

/* trace.c: a ring of records */
void trace_record(struct core *c, u32 event, const struct core_said *said);

static inline bool trace_wants(const struct core *c, u32 event)
{
	return event != TELL_NO && __builtin_expect(c->trace_on & (1u << (event & 31)), 0);
}

/*
 * Three functions for each event: count it; test whether it is watched; record its
 * values and fire its probe (tell.c).
 */
#define p(probe) KV_PROBE_ON(kvmm, probe)
#define x(name, ev, record, on_probe)					\
static inline void tell_count_##name(struct core *c)			\
{									\
	if ((u32)(ev) != TELL_NO)					\
		c->head->events[(u32)(ev)]++;				\
}									\
static inline bool tell_watched_##name(const struct core *c)		\
{									\
	return trace_wants(c, (u32)(record)) || (on_probe);		\
}									\
void tell_##name(struct core *c, const struct core_said *said);
CORE_TELLS(x, p)
#undef x
#undef p

/**
 * core_tell() - tell an event of CORE_TELLS
 * @event: its name; the values follow, as members of struct core_said
 */
#define core_tell(c, event, ...)					\
do {									\
	tell_count_##event(c);						\
	if (tell_watched_##event(c))					\
		tell_##event(c, &(const struct core_said){ __VA_ARGS__ }); \
} while (0)

#endif /* KVMM_CORE_TELL_H */
