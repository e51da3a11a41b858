/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nest.h - a server, and if need be a daemon, of one command
 */
#ifndef RUNTIME_CLI_NEST_H
#define RUNTIME_CLI_NEST_H

#include <sys/types.h>

#include <kvmm/types.h>

#define NEST_DIR_MAX	80u	/* leaves room for names of sockets in it */

/**
 * struct nest - a private folder, and the keeper of the programs that use it
 * @dir:    the folder; only its user may look in
 * @keeper: pid of the keeper, 0: none
 * @line:   socket to the keeper; it ends everything when this is closed
 * @quiet:  no progress
 * @shown:  a line of progress is on the terminal
 * @ready:  the server was ready
 */
struct nest {
	char	dir[NEST_DIR_MAX];
	pid_t	keeper;
	int	line;
	bool	quiet;
	bool	shown;
	bool	ready;
};

/**
 * nest_make() - make the folder
 *
 * From here on SIGINT, SIGTERM and SIGHUP first end the programs and remove the
 * folder, and then end this process.
 *
 * Return: 0, or an exit code after a line on stderr.
 */
int __must_check nest_make(struct nest *n);

/**
 * nest_start() - start the programs, and wait until the server is ready
 * @hold:  arguments of kvmm-hold, NULL: a daemon is there
 * @serve: arguments of kvrt
 *
 * Return: 0, or an exit code after lines on stderr: call nest_end().
 */
int __must_check nest_start(struct nest *n, char **hold, char **serve);

/*
 * nest_gone() - has a program of the nest ended since it was ready?
 *
 * Return: 0, or an exit code after lines on stderr.
 */
int nest_gone(struct nest *n);

/* nest_end() - end the programs, and remove the folder */
void nest_end(struct nest *n);

#endif /* RUNTIME_CLI_NEST_H */
