/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runs.h - a sequence's table, for people: stretches of blocks that are alike
 */
#ifndef KVMM_CORE_RUNS_H
#define KVMM_CORE_RUNS_H

#include <kvmm/types.h>

struct core;

/**
 * struct core_run - entries of a table, one after the other
 * @at:     the first
 * @nr:     how many
 * @block:  of the first; those of the others follow it.  CORE_NONE: no block is
 *          there, the beginning was trimmed
 * @nr_map: sequences that map each of them
 * @open:   being written; the others are sealed
 */
struct core_run {
	u32	at;
	u32	nr;
	u32	block;
	u32	nr_map;
	bool	open;
};

/**
 * core_get_runs() - the next runs of sequence record @seq
 * @at:     where to begin; takes where to go on
 * @budget: entries looked at, at most; a run is cut there
 * @run:    takes up to @nr of them
 *
 * Return: how many, 0 behind the last; -ERANGE, -ENOENT as core_get_seq().
 */
int core_get_runs(const struct core *c, u32 seq, u32 *at, u32 budget,
		  struct core_run *run, u32 nr);

#endif /* KVMM_CORE_RUNS_H */
