// SPDX-License-Identifier: Apache-2.0
/*
 * trace.c - trace and its switches
 *
 * The format is that of the kernel's ftrace: a few lines about the ring, then one
 * line per event with seconds and microseconds of the core's clock, the event's
 * name, and its fields by name.  Reading removes no record.  The text ends with
 * the last record that was written when reading began, so a storm of events does
 * not make it endless.  Where records were overwritten meanwhile, a line gives
 * their number.
 */
#include "kvmm/proc/internal.h"

#define NSEC_PER_USEC	1000u
#define USEC_PER_SEC	1000000u

static const char * const event_names[NR_CORE_TRACE] = {
#define f(name)
#define x(name, text, fields) [CORE_TRACE_##name] = #name,
	CORE_TRACE_EVENTS(x, f)
#undef x
#undef f
};

static const u8 event_fields[NR_CORE_TRACE][CORE_TRACE_ARGS] = {
#define f(name) CORE_TF_##name,
#define x(name, text, fields) [CORE_TRACE_##name] = { fields },
	CORE_TRACE_EVENTS(x, f)
#undef x
#undef f
};

static const u8 event_nr[NR_CORE_TRACE] = {
#define f(name)
#define x(name, text, fields) [CORE_TRACE_##name] = CORE_TRACE_NR_##name,
	CORE_TRACE_EVENTS(x, f)
#undef x
#undef f
};

static const char * const field_names[NR_CORE_TF] = {
#define x(name, kind, text) [CORE_TF_##name] = #name,
	CORE_TRACE_FIELDS(x)
#undef x
};

static const u8 field_kinds[NR_CORE_TF] = {
#define x(name, kind, text) [CORE_TF_##name] = CORE_TRACE_##kind,
	CORE_TRACE_FIELDS(x)
#undef x
};

static const char * const outcomes[NR_CORE_OOM_OUTCOMES] = {
#define x(name, text) #name,
	CORE_OOM_OUTCOMES(x)
#undef x
};

static const char * const limits[CORE_NR_LIMITS] = {
#define x(mark, file, text) file,
	CORE_LIMITS(x)
#undef x
};

/* proc_event_by_name() - CORE_TRACE_* of a name, or -ENOENT */
int proc_event_by_name(const char *name, size_t len)
{
	int i;

	for (i = 0; i < NR_CORE_TRACE; i++)
		if (strlen(event_names[i]) == len &&
		    !memcmp(event_names[i], name, len))
			return i;
	return -ENOENT;
}

const char *proc_event_name(u32 event)
{
	return event_names[event];
}

static void show_name(struct seq_file *m, const char * const *names, u64 nr,
		      u64 value)
{
	if (value < nr)
		seq_puts(m, names[value]);
	else
		seq_printf(m, "%llu", (unsigned long long)value);
}

static void show_value(struct seq_file *m, u32 kind, u64 value)
{
	if (kind == CORE_TRACE_CAUSE)
		seq_puts(m, core_cause_name((u32)value));
	else if (kind == CORE_TRACE_OUTCOME)
		show_name(m, outcomes, NR_CORE_OOM_OUTCOMES, value);
	else if (kind == CORE_TRACE_LIMIT)
		show_name(m, limits, CORE_NR_LIMITS, value);
	else if (kind == CORE_TRACE_INT)
		seq_printf(m, "%lld", (long long)value);
	else if (kind == CORE_TRACE_ID && value == ~0ull)
		seq_putc(m, '-');
	else if (kind == CORE_TRACE_SIZE && value == KVMM_LIMIT_MAX)
		seq_puts(m, "max");
	else
		seq_printf(m, "%llu", (unsigned long long)value);
}

static void show_record(struct seq_file *m, const struct core_trace_rec *r)
{
	u64 usec = r->ns / NSEC_PER_USEC;
	u32 i;

	seq_printf(m, "%5llu.%06llu: %s:",
		   (unsigned long long)(usec / USEC_PER_SEC),
		   (unsigned long long)(usec % USEC_PER_SEC),
		   event_names[r->event]);
	for (i = 0; i < event_nr[r->event]; i++) {
		u32 field = event_fields[r->event][i];

		seq_printf(m, " %s=", field_names[field]);
		show_value(m, field_kinds[field], r->arg[i]);
	}
	seq_putc(m, '\n');
}

static void show_trace_head(struct seq_file *m, const struct proc_trace *t)
{
	seq_printf(m, "# entries-in-buffer/entries-written: %llu/%llu\n",
		   (unsigned long long)(t->written - t->lost),
		   (unsigned long long)t->written);
	seq_printf(m, "# lost %llu\n", (unsigned long long)t->lost);
	seq_puts(m, "#\n#     TIMESTAMP  EVENT\n");
}

int show_trace(const struct proc_ctx *ctx)
{
	struct proc *proc = ctx->proc;
	struct proc_trace t = { 0 };
	u64 end = ~0ull, first;
	int err;
	u32 i;

	do {
		err = proc_fetch_trace(proc, &t);
		if (err)
			return err;
		first = t.at - t.nr;
		if (end == ~0ull) {
			end = t.written;
			show_trace_head(ctx->m, &t);
		} else if (t.lost) {
			seq_printf(ctx->m, "# lost %llu\n", (unsigned long long)
				   min(t.lost, end - (first - t.lost)));
		}
		for (i = 0; i < t.nr && first + i < end; i++)
			show_record(ctx->m, &proc->trace[i]);
	} while (t.at < end && !seq_error(ctx->m));
	return 0;
}

int show_event_enable(const struct proc_ctx *ctx)
{
	u32 events;
	int err = proc_fetch_enabled(ctx->proc, &events);

	if (err)
		return err;
	seq_printf(ctx->m, "%u\n", events >> ctx->event & 1);
	return 0;
}

int show_events_enable(const struct proc_ctx *ctx)
{
	u32 events;
	int err = proc_fetch_enabled(ctx->proc, &events);

	if (err)
		return err;
	if (!events)
		seq_puts(ctx->m, "0\n");
	else
		seq_puts(ctx->m, events == BIT_ULL(NR_CORE_TRACE) - 1 ?
			 "1\n" : "X\n");
	return 0;
}
