/* SPDX-License-Identifier: Apache-2.0 */
/*
 * terminal.h - a program on a pseudo terminal
 */
#ifndef TESTS_TERMINAL_H
#define TESTS_TERMINAL_H

#include "tests/integration/harness.h"

/**
 * struct terminal - one program and its terminal
 * @fd:     the terminal's other end, -1: none
 * @pid:    the program, 0: it has ended
 * @screen: all text that was printed
 * @seen:   length of the part that the test has waited for
 */
struct terminal {
	int	fd;
	pid_t	pid;
	char	screen[1 << 18];
	size_t	len;
	size_t	seen;
};

/* Start a program of the build, with a NULL-terminated list of arguments. */
void terminal_start(struct terminal *t, const char *program, char *const argv[]);
/* End it, if it still runs. */
void terminal_stop(struct terminal *t);
void terminal_type(struct terminal *t, const char *keys);
/* Take output for up to @ms.  Return: false when there will be no more. */
bool terminal_take(struct terminal *t, u32 ms);
/* Wait until the text is printed, behind the text of the last call. */
void terminal_see(struct terminal *t, const char *what);
/* Wait for the end of the program.  Return: its wait status. */
int terminal_wait(struct terminal *t);
/* It must end without a signal from the test, with this code. */
void terminal_ended(struct terminal *t, int want);

#endif /* TESTS_TERMINAL_H */
