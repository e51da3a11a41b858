/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ranks.h - kvrt serve as one of the ranks that share a model
 */
#ifndef RUNTIME_CLI_RANKS_H
#define RUNTIME_CLI_RANKS_H

#include "runtime/engine/engine.h"

/**
 * struct cli_ranks - the group of this process
 * @ranks: NULL: the model is whole
 * @link:  for struct model_opts
 */
struct cli_ranks {
	struct ranks		*ranks;
	struct model_link	link;
};

/**
 * cli_ranks_open() - start the other ranks, or join them
 * @nr:        ranks; 0 or 1: none
 * @argv:      arguments of this program, unchanged
 * @cr:        filled in; cr->ranks is NULL without ranks
 *
 * If no launcher has started this process, it runs mpiexec, passes signals to rank 0, and
 * ends with its exit code.
 *
 * Return: 0, or an exit code after one line on stderr.
 */
int cli_ranks_open(u32 nr, char **argv, struct cli_ranks *cr);

/**
 * cli_ranks_threads() - compute threads of a rank, if the user gave none
 * @nr: ranks
 *
 * Return: 0, as many as there are cores, if a launcher gave this rank cores of its own, or
 * without ranks; else the rank's share of all cores.
 */
u32 cli_ranks_threads(u32 nr);

/* Does this process follow another rank? */
bool cli_ranks_follows(const struct cli_ranks *cr);

/* Compare model files and options of all ranks; 0 or an exit code, as above. */
int cli_ranks_agree(struct cli_ranks *cr, const char *dir, const struct model_opts *mo,
		    const struct engine_opts *eo);

/* Load the rank's part, and work until the leader ends; an exit code. */
int cli_ranks_follow(struct cli_ranks *cr, const char *dir, const struct model_opts *mo,
		     const struct engine_opts *eo);

/* Tell @code, or that of the group, to the parent.  Return: exit code of this process. */
int cli_ranks_close(struct cli_ranks *cr, int code);

#endif /* RUNTIME_CLI_RANKS_H */
