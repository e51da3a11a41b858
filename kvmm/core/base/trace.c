// SPDX-License-Identifier: Apache-2.0
/*
 * trace.c - a bounded ring of decisions of the core
 *
 * The ring is memory of the shell.  It has records of one size, and the newest
 * overwrite the oldest.  A word of bits says which events are recorded.  An
 * event that is off costs a load and a predicted branch where it would be
 * recorded (core_tell() in tell.h).  No decision depends on the trace, so a
 * core does the same with and without it.
 *
 * The word is in the arena, so the next core records the same events; the ring
 * is not, and begins empty.  A reader gives the number of the first record that
 * it wants and gets copies, some at a time.  From the numbers it knows which
 * records were overwritten meanwhile.
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

/* core_trace_bytes() - bytes of a ring of @nr records */
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
 * core_trace_attach() - record the enabled events from now on
 * @mem: core_trace_bytes(@nr) zeroed bytes, for as long as the core lives
 * @nr:  records, a power of two
 *
 * Context: after core_init() or core_adopt(), before the first event.
 */
void core_trace_attach(struct core *c, u64 now, void *mem, u32 nr)
{
	KV_BUG_ON(!is_power_of_2(nr));
	c->trace = mem;
	c->trace->nr = nr;
	c->trace_on = c->head->trace_on & ALL_ON;
	if (c->again) {
		c->now = now;
		core_tell(c, adopt, .clients = clients_known(c));
	}
}

/**
 * core_trace_set() - switch an event on or off
 * @which: CORE_TRACE_*; CORE_TRACE_ALL: all events
 * @on:    1 or 0
 *
 * Return: 0; -EINVAL: no such event, or @on is neither 0 nor 1; -ENODEV: there
 * is no ring.
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

/* core_trace_enabled() - bit set of the events that are recorded */
u32 core_trace_enabled(const struct core *c)
{
	return c->trace_on;
}

/* The fields of each event, in their order; the others are 0, which is never reached. */
static const struct {
	u8 nr;
	u8 field[CORE_TRACE_ARGS];
} trace_fields[NR_CORE_TRACE] = {
#define f(name) CORE_TF_##name,
#define x(name, text, fields)						\
	[CORE_TRACE_##name] = { CORE_TRACE_NR_##name, { fields } },
	CORE_TRACE_EVENTS(x, f)
#undef x
#undef f
};

/* Write a record of an event that is switched on. */
void trace_record(struct core *c, u32 event, const struct core_said *said)
{
	struct core_trace *t = c->trace;
	struct core_trace_rec *r = &t->rec[t->written++ & (t->nr - 1)];
	u32 i;

	KV_BUG_ON(event >= NR_CORE_TRACE);
	r->ns = c->now;
	r->event = event;
	for (i = 0; i < trace_fields[event].nr; i++)
		r->arg[i] = said->field[trace_fields[event].field[i]];
}

/**
 * core_trace_read() - copy records
 * @at:      number of the first record to copy; raised if that one was
 *           overwritten
 * @written: gets the number of records written so far
 * @rec:     room for @nr records
 *
 * Return: number of records copied.
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
