/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unrest.h - all other activities of a node beside working runtimes
 *
 * One after the other: clients attach and detach, or are killed inside a step,
 * in more domains than the node allows, so that idle domains are dropped; a
 * client of another tenant has a memory.min and takes extents for it; the pool
 * shrinks and grows; the swap area goes and comes; the cache is dropped.  The
 * daemon may die of any of it, so no failure fails a test: the next round does
 * it again.
 */
#ifndef TESTS_UNREST_H
#define TESTS_UNREST_H

#include "tests/integration/harness.h"

#define UNREST_TENANT	"blue"	/* as in UNREST_ARGS */

/* Arguments for starting the node. */
#define UNREST_ARGS							\
	"--tenant", UNREST_TENANT ",min=256K", "--max-domains", "4",	\
	"--revoke-deadline-ms", "20000"

/* Number of activities. */
extern const u32 nr_unrests;

/* Run the @n-th of them, from 0, round and round. */
void unrest(struct rig *r, u32 n);

/* One of them: drop all cached blocks. */
void unrest_caches_go(struct rig *r);

#endif /* TESTS_UNREST_H */
