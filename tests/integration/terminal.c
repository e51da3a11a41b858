// SPDX-License-Identifier: Apache-2.0
/*
 * terminal.c - a program on a pseudo terminal
 */
#include <poll.h>
#include <pty.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/integration/terminal.h"

void terminal_start(struct terminal *t, const char *program, char *const argv[])
{
	const struct winsize ws = { .ws_row = 30, .ws_col = 60 };
	const char *path = build_path(program);

	t->len = t->seen = 0;
	t->pid = forkpty(&t->fd, NULL, NULL, &ws);
	ck_assert_int_ge(t->pid, 0);
	if (!t->pid) {
		setenv("TERM", "xterm", 1);
		execv(path, argv);
		_exit(127);
	}
}

void terminal_stop(struct terminal *t)
{
	if (t->pid > 0) {
		kill(t->pid, SIGKILL);
		waitpid(t->pid, NULL, 0);
	}
	if (t->fd >= 0)
		close(t->fd);
	t->pid = 0;
	t->fd = -1;
}

void terminal_type(struct terminal *t, const char *keys)
{
	ck_assert_int_eq(write(t->fd, keys, strlen(keys)),
			 (ssize_t)strlen(keys));
}

bool terminal_take(struct terminal *t, u32 ms)
{
	struct pollfd p = { .fd = t->fd, .events = POLLIN };
	ssize_t n;

	if (poll(&p, 1, (int)ms) <= 0)
		return true;
	n = read(t->fd, t->screen + t->len, sizeof(t->screen) - 1 - t->len);
	if (n <= 0)
		return false;
	t->len += (size_t)n;
	t->screen[t->len] = '\0';
	return true;
}

void terminal_see(struct terminal *t, const char *what)
{
	const u64 end = now_ms() + 10000 * time_scale();
	const char *at;

	while (!(at = strstr(t->screen + t->seen, what))) {
		if (!terminal_take(t, 50) || now_ms() > end)
			ck_abort_msg("never seen: %s\nbut: %s", what,
				     t->screen + t->seen);
	}
	t->seen = (size_t)(at - t->screen) + strlen(what);
}

int terminal_wait(struct terminal *t)
{
	const u64 end = now_ms() + 10000 * time_scale();
	int status;

	while (!waitpid(t->pid, &status, WNOHANG)) {
		if (!terminal_take(t, 20))
			nap_ms(20);
		ck_assert_msg(now_ms() < end, "it does not end:\n%s",
			      t->screen);
	}
	t->pid = 0;
	return status;
}

void terminal_ended(struct terminal *t, int want)
{
	const int status = terminal_wait(t);

	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == want,
		      "status %x:\n%s", status, t->screen);
}
