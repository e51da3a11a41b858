/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nest_keep.h - the keeper of a nest, and its messages
 */
#ifndef RUNTIME_CLI_NEST_KEEP_H
#define RUNTIME_CLI_NEST_KEEP_H

#include <signal.h>

#include "runtime/cli/nest.h"

#define NEST_DAEMON_LOG	"daemon.log"
#define NEST_SERVER_LOG	"server.log"

enum { NEST_DAEMON, NEST_SERVER, NEST_WARDS };

enum nest_kind {
	NEST_STATUS,		/* a program tells its state, in @text */
	NEST_READY,		/* the server is ready */
	NEST_ENDED,		/* a program ended */
};

/**
 * struct nest_word - message of the keeper, one packet
 * @ward: NEST_DAEMON or NEST_SERVER
 * @code: of NEST_ENDED: exit code, or 128 and the signal
 */
struct nest_word {
	u32	kind;
	u32	ward;
	int	code;
	char	text[200];
};

/*
 * nest_keep() - be the keeper: start the programs one after the other, end them
 * when @line closes, remove @dir, and exit; @mask is the signal mask of all
 */
void __noreturn nest_keep(const char *dir, int line, const sigset_t *mask,
			  char **hold, char **serve);

/* nest_remove() - remove @dir and all files in it */
void nest_remove(const char *dir);

#endif /* RUNTIME_CLI_NEST_KEEP_H */
