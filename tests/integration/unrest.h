/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unrest.h - whatever else can happen to a node while runtimes work on it
 *
 * One thing after the other: clients come and detach, or are killed inside a
 * step, in domains of which there are more than the node may have, so that idle
 * ones are dropped; one of another tenant has a promise and takes extents for
 * it; the pool shrinks and grows; the swap area goes and comes; the cache is
 * dropped.  The daemon may die of any of it, so nothing here fails a test: what
 * was not done is done with the next round.
 */
#ifndef TESTS_UNREST_H
#define TESTS_UNREST_H

#include "tests/integration/harness.h"

#define UNREST_TENANT	"blue"	/* as in UNREST_ARGS */

/* What the node is to be started with. */
#define UNREST_ARGS							\
	"--tenant", UNREST_TENANT ",min=256K", "--max-domains", "4",	\
	"--revoke-deadline-ms", "20000"

/* Things that can happen, one after the other. */
extern const u32 nr_unrests;

/* The @n-th of them, from 0, round and round. */
void unrest(struct rig *r, u32 n);

/* One of them: cached prefixes that nobody uses are forgotten. */
void unrest_caches_go(struct rig *r);

#endif /* TESTS_UNREST_H */
