/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runs.h - a view of a sequence's table: rows of blocks that are alike
 */
#ifndef KVMM_CORE_RUNS_H
#define KVMM_CORE_RUNS_H

#include <kvmm/types.h>

struct core;

/**
 * struct core_run - consecutive entries of a table
 * @at:     index of the first entry in the table of its group
 * @nr:     number of entries
 * @block:  block of the first; the others follow it in the pool.  CORE_NONE:
 *          there is no block, the beginning was trimmed
 * @nr_map: sequences that map each of the blocks
 * @group:  layer group
 * @open:   the block is being written; blocks of other runs are sealed
 */
struct core_run {
	u32	at;
	u32	nr;
	u32	block;
	u32	nr_map;
	u32	group;
	bool	open;
};

/* Where a reader is in the tables of a sequence: the group, and the index in its table. */
#define CORE_RUN_SHIFT	29
#define CORE_RUN_MASK	((1u << CORE_RUN_SHIFT) - 1)

/**
 * core_get_runs() - the next runs of sequence record @seq
 * @at:     entry to begin at: index, and group << CORE_RUN_SHIFT; gets the entry to go
 *          on at, so that a table that changes meanwhile moves no other group
 * @budget: most entries to look at; a run is cut there
 * @run:    gets up to @nr runs
 *
 * Return: number of runs, 0 behind the last; -ERANGE, -ENOENT as core_get_seq().
 */
int core_get_runs(const struct core *c, u32 seq, u32 *at, u32 budget,
		  struct core_run *run, u32 nr);

#endif /* KVMM_CORE_RUNS_H */
