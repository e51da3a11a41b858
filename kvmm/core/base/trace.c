// SPDX-License-Identifier: Apache-2.0
/*
 * trace.c - a bounded ring of what the core decided
 *
 * The ring is the shell's memory, of records of one size, and the newest
 * overwrite the oldest.  Which events are recorded is a word of bits: where an
 * event is off its place in the code costs a load and a branch that is
 * predicted (core_trace() in internal.h).  Nothing here decides anything, so a
 * core does the same whether it is traced or not.
 *
 * The word is in the arena, so that who goes on there goes on recording; the
 * ring is not, and begins empty.  A reader asks from a number on and is given
 * copies, some at a time: what was overwritten meanwhile it knows by the
 * numbers.
 */
#include "kvmm/core/base/base.h"

_Static_assert(NR_CORE_TRACE <= 32, "a bit each in core.trace_on");
#define f(name)
#define x(name, text, fields)						\
	_Static_assert(CORE_TRACE_NR_##name <= CORE_TRACE_ARGS, #name);
CORE_TRACE_EVENTS(x, f)
#undef x
#undef f

#define ALL_ON	((u32)(BIT_ULL(NR_CORE_TRACE) - 1))

/* core_trace_bytes() - of memory for a ring of @nr records */
u64 core_trace_bytes(u32 nr)
{
	return sizeof(struct core_trace) +
	       (u64)nr * sizeof(struct core_trace_rec);
}

static u32 clients_known(const struct core *c)
{
	u32 i, nr = 0;

	for (i = 0; i < core_cfg(c)->max_clients; i++)
		nr += c->clients[i].state != CLI_FREE;
	return nr;
}

/**
 * core_trace_attach() - record from now on what is switched on
 * @mem: core_trace_bytes(@nr) zeroed bytes, for as long as the core lives
 * @nr:  records, a power of two
 *
 * After core_init() or core_adopt(), before the first event.
 */
void core_trace_attach(struct core *c, u64 now, void *mem, u32 nr)
{
	KV_BUG_ON(!is_power_of_2(nr));
	c->trace = mem;
	c->trace->nr = nr;
	c->trace_on = c->head->trace_on & ALL_ON;
	if (c->again) {
		c->now = now;
		core_trace(c, adopt, clients_known(c));
	}
}

/**
 * core_trace_set() - switch an event on or off
 * @which: CORE_TRACE_*; CORE_TRACE_ALL: all of them
 * @on:    1 or 0
 *
 * Return: 0; -EINVAL: no such event, or neither 0 nor 1; -ENODEV: there is no
 * ring.
 */
int core_trace_set(struct core *c, u32 which, u64 on)
{
	u32 bits = which == CORE_TRACE_ALL ? ALL_ON : 1u << (which & 31);
	core_event(c);

	if (which > CORE_TRACE_ALL || on > 1)
		return -EINVAL;
	if (!c->trace)
		return -ENODEV;
	c->head->trace_on = on ? c->trace_on | bits : c->trace_on & ~bits;
	c->trace_on = c->head->trace_on;
	return 0;
}

/* core_trace_enabled() - which events are recorded, a bit each */
u32 core_trace_enabled(const struct core *c)
{
	return c->trace_on;
}

/* One record; core_trace() has found that it is wanted. */
void trace_record(struct core *c, u32 event, const u64 *arg, u32 nr)
{
	struct core_trace *t = c->trace;
	struct core_trace_rec *r = &t->rec[t->written++ & (t->nr - 1)];

	r->ns = c->now;
	r->event = event;
	memcpy(r->arg, arg, nr * sizeof(*arg));
}

/**
 * core_trace_read() - copy records
 * @at:      number of the first that is wanted; becomes that of the first that
 *           is given, which is higher when it was overwritten
 * @written: takes how many there have been
 * @rec:     room for @nr
 *
 * Return: how many were copied.
 */
u32 core_trace_read(const struct core *c, u64 *at, u64 *written,
		    struct core_trace_rec *rec, u32 nr)
{
	const struct core_trace *t = c->trace;
	u32 i;

	*written = t ? t->written : 0;
	if (*at >= *written)
		return 0;
	if (*written - *at > t->nr)
		*at = *written - t->nr;
	nr = (u32)min((u64)nr, *written - *at);
	for (i = 0; i < nr; i++)
		rec[i] = t->rec[(*at + i) & (t->nr - 1)];
	return nr;
}
