/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jobs.h - the seeds of a run, shared out over processes
 */
#ifndef SIM_JOBS_H
#define SIM_JOBS_H

#include "tests/sim/sim.h"

#define JOBS_MAX		1024u	/* processes */
#define JOBS_BLOCK		16u	/* seeds that a process takes at once */
#define JOBS_MAX_FAILURES	3u	/* broken seeds after which the run ends */

/* Totals of all processes; changed by jobs_count(). */
struct sim_totals {
	u64	next;		/* the first seed that no process took yet */
	u64	seeds;
	u64	events;
	u32	failures;
};

u32 jobs_default(void);
const struct sim_totals *jobs_run(u64 nr, u32 jobs,
				  void (*run)(u64 from, u64 to));
struct sim_totals jobs_count(u64 seeds, u64 events, u32 failures);
void jobs_report_begin(void);
void jobs_report_end(void);

#endif /* SIM_JOBS_H */
