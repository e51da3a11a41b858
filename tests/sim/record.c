// SPDX-License-Identifier: Apache-2.0
/*
 * record.c - the core is traced, or not
 *
 * If a seed is run twice, one run records every event and the other none: both
 * must do the same.  Records are in order, and name events that exist.  The
 * report of the last shortage names rows that exist.
 */
#include <stdlib.h>

#include "kvmm/core/trace.h"
#include "tests/sim/sim.h"

#define RECORDS	256u

static struct core_trace *ring;
static struct core_oom_view oom;

/* record_start() - lend a ring to a core that has just begun, if this run records */
void record_start(struct sim *w)
{
	if (!w->recording)
		return;
	if (!ring)
		ring = malloc(core_trace_bytes(RECORDS));
	LAW(w, ring != NULL, "no memory for a ring");
	memset(ring, 0, core_trace_bytes(RECORDS));
	core_trace_attach(w->core, w->now, ring, RECORDS);
	LAW(w, !core_trace_set(w->core, CORE_TRACE_ALL, 1),
	    "events cannot be switched on");
}

void record_check(struct sim *w)
{
	static struct core_trace_rec rec[RECORDS];
	u64 at = 0, written, before = 0, ev[NR_CORE_EVENTS];
	u32 nr, i;

	if (!w->recording)
		return;
	nr = core_trace_read(w->core, &at, &written, rec, RECORDS);
	LAW(w, nr == min(written, (u64)RECORDS) && at + nr == written,
	    "%u records of %llu, from %llu on", nr,
	    (unsigned long long)written, (unsigned long long)at);
	/* A world in which no client can attach has nothing to record. */
	core_get_events(w->core, ev);
	LAW(w, written || !ev[CORE_EV_admit],
	    "%llu admissions and no record",
	    (unsigned long long)ev[CORE_EV_admit]);
	for (i = 0; i < nr; i++) {
		LAW(w, rec[i].event < NR_CORE_TRACE && rec[i].ns >= before &&
		    rec[i].ns <= w->now, "record %u of event %u at %llu", i,
		    rec[i].event, (unsigned long long)rec[i].ns);
		before = rec[i].ns;
	}
	if (core_get_oom(w->core, &oom))
		return;
	LAW(w, oom.ns <= w->now && oom.nr_rows && oom.nr_rows <= CORE_OOM_ROWS &&
	    oom.outcome < NR_CORE_OOM_OUTCOMES && oom.nr_free <= oom.nr_extents &&
	    (oom.outcome == CORE_OOM_victim) == (oom.victim != CORE_NONE),
	    "a shortage of %u rows, outcome %u, victim %u, %u of %u extents free",
	    oom.nr_rows, oom.outcome, oom.victim, oom.nr_free, oom.nr_extents);
	for (i = 0; i < oom.nr_rows; i++)
		LAW(w, (oom.row[i].why == CORE_OOM_WHY_taken) ==
		    (i == oom.victim), "row %u of the shortage: %u", i,
		    oom.row[i].why);
}
