/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step_ledger.h - check that all resources of a dead client are free again
 *
 * It runs after every single death, so it starts no process.
 */
#ifndef TESTS_STEP_LEDGER_H
#define TESTS_STEP_LEDGER_H

#include <kvmm/view.h>

#include "tests/integration/census.h"

/**
 * struct ledger - a rig that is checked again and again
 * @kvmm:   its daemon
 * @fds:    its descriptors without victims and without extents
 * @fds_alone: the same without any client
 * @others: clients that stay, other than victims
 * @other_says: reason why one of them ended
 * @was:    census of the rig at the beginning
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

/* Open a rig without clients: its current resources are the limit later on. */
void ledger_open(struct ledger *l, struct rig *r);
/* Drop the caches: no resource of the clients since ledger_open() may be left. */
void ledger_close(struct ledger *l);

/* A number of the daemon's files; it must be there. */
s64 ledger_value(struct ledger *l, const char *file, const char *key);

/* Note that a client that stays has attached or ended. */
void ledger_admit(struct ledger *l, u32 others);

/*
 * Wait until the daemon has handled the death of every victim, then run the
 * walkers.
 * @what: place where the last one was ended, for a message
 */
void ledger_settle(struct ledger *l, const char *what);
/* Drop the cache: then all memory must be free. */
void ledger_drop(struct ledger *l);

#endif /* TESTS_STEP_LEDGER_H */
