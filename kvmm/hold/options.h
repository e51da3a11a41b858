/* SPDX-License-Identifier: Apache-2.0 */
/*
 * options.h - the options of kvmm-hold and its children, and their change
 */
#ifndef KVMM_HOLD_OPTIONS_H
#define KVMM_HOLD_OPTIONS_H

#include <kvmm/kvmm_options.h>

#include "kvmm/hold/apply.h"

#define OPTIONS_ARGS	1024	/* of a child, at most */

/**
 * struct options - the options in force
 * @path:    of the file, absolute, whether it is there or not; "none"
 * @args:    of kvmm: those of file and environment, then the command line
 * @nr_made: of @args, from the second on, that belong to this structure
 * @swapd:   of swapd
 * @texts:   @nr_texts of files that values point into
 */
struct options {
	const struct kv_program	*program;
	struct kvmm_config	config;
	struct kvmm_options	opt;
	int			argc;
	char			**argv;
	char			path[4096];
	char			*args[OPTIONS_ARGS];
	u32			nr_made;
	char			*swapd[OPTIONS_ARGS];
	char			**texts;
	u32			nr_texts;
};

/**
 * options_read() - read the options of all places
 * Return: as kvmm_config_read().
 */
int __must_check options_read(struct options *op,
			      const struct kv_program *program, int argc,
			      char **argv, char *text, size_t len);

/* Make the arguments of kvmm and swapd.  Return: 0 or an exit code. */
int __must_check options_args(struct options *op);

/* Have the areas opened: the first kvmm serves. */
void options_first(const struct options *op, struct apply *a);

/**
 * options_reload() - SIGHUP: read the options again
 *
 * Options that can change take effect, also for the next kvmm.  A changed option that
 * needs a restart is one line of the log, and stays.  If a place has a mistake, all
 * options stay.
 */
void options_reload(struct options *op, struct apply *a);

#endif /* KVMM_HOLD_OPTIONS_H */
