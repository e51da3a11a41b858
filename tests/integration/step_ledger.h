/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step_ledger.h - is everything that a dead client had free again?
 *
 * Asked after every single death, so without starting a process.
 */
#ifndef TESTS_STEP_LEDGER_H
#define TESTS_STEP_LEDGER_H

#include <kvmm/view.h>

#include "tests/integration/census.h"

/**
 * struct ledger - a rig that is asked again and again
 * @kvmm:   its daemon
 * @fds:    descriptors that it has without victims, but for extents
 * @fds_alone: the same without anybody
 * @others: clients that are no victims and stay
 * @other_says: why one of them ended
 * @was:    all of the rig at the beginning
 */
struct ledger {
	struct rig	*rig;
	char		view[KV_VIEW_PATH_MAX];
	char		admin[KV_VIEW_PATH_MAX];
	struct seq_file	text;
	pid_t		kvmm;
	u32		fds;
	u32		fds_alone;
	u32		others;
	const char	*other_says;
	struct census	was;
};

/* Of a rig that nobody is attached to: what it has now is what it may have. */
void ledger_open(struct ledger *l, struct rig *r);
/* Nothing may be left of who came since: drops the caches and looks again. */
void ledger_close(struct ledger *l);

/* A number of the daemon's files; it must be there. */
s64 ledger_value(struct ledger *l, const char *file, const char *key);

/* Somebody who stays has attached, or gone. */
void ledger_admit(struct ledger *l, u32 others);

/*
 * Wait until the daemon knows that every victim is dead, then run the walkers.
 * @what: for a message: where the last one was ended
 */
void ledger_settle(struct ledger *l, const char *what);
/* Forget the cache: then all memory must be free. */
void ledger_drop(struct ledger *l);

#endif /* TESTS_STEP_LEDGER_H */
