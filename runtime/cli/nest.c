// SPDX-License-Identifier: Apache-2.0
/*
 * nest.c - a server, and if need be a daemon, of one command
 *
 * A second process, the keeper (nest_keep.c), is the parent of the programs.  It
 * lives until this process closes the socket between both, on purpose or because
 * it was killed.  Then the keeper ends the programs and removes the folder.  It
 * has a session of its own, so a Ctrl-C of the terminal does not reach it.
 *
 * If the keeper is killed, the kernel sends SIGTERM to the programs, and this
 * process removes the folder when the command ends, but not when a signal ends it.
 */
#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include <kvmm/log.h>

#include "runtime/cli/nest_keep.h"

#define PROGRESS_COLUMNS 59
#define GONE_WAIT_MS	200
#define LOG_SHOWN	8192	/* bytes of a log that a message shows */

/* For the signal handler; changed only while signals are blocked. */
static volatile sig_atomic_t line_fd = -1;
static volatile sig_atomic_t keeper_pid;
static const char *folder;

/* ---- signals ---- */

/* End the programs, then this process, as the signal would have. */
static void on_end(int sig)
{
	if (line_fd >= 0)
		close(line_fd);
	line_fd = -1;
	if (keeper_pid > 0)
		waitpid(keeper_pid, NULL, 0);
	else if (folder)
		rmdir(folder);	/* it is empty */
	signal(sig, SIG_DFL);
	raise(sig);
}

static void catch_signals(void)
{
	static const int signals[] = { SIGINT, SIGTERM, SIGHUP };
	struct sigaction sa = { .sa_handler = on_end }, was;
	u32 i;

	/* One at a time. */
	sigfillset(&sa.sa_mask);
	for (i = 0; i < ARRAY_SIZE(signals); i++)
		/* nohup ignores SIGHUP: it remains so. */
		if (!sigaction(signals[i], NULL, &was) &&
		    was.sa_handler != SIG_IGN)
			sigaction(signals[i], &sa, NULL);
}

static sigset_t block_signals(void)
{
	sigset_t all, old;

	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, &old);
	return old;
}

/* ---- the folder ---- */

static bool make_in(struct nest *n, const char *place)
{
	if (!place || *place != '/' ||
	    (size_t)snprintf(n->dir, sizeof(n->dir), "%s/kvrt-run.XXXXXX",
			     place) >= sizeof(n->dir))
		return false;
	return mkdtemp(n->dir);	/* its mode is 0700 */
}

int nest_make(struct nest *n)
{
	sigset_t old;

	n->line = -1;
	n->keeper = 0;
	catch_signals();
	old = block_signals();
	if (make_in(n, getenv("XDG_RUNTIME_DIR")) ||
	    make_in(n, getenv("TMPDIR")) || make_in(n, "/tmp"))
		folder = n->dir;
	sigprocmask(SIG_SETMASK, &old, NULL);
	if (folder)
		return 0;
	n->dir[0] = '\0';
	pr_err("no private folder can be made in $XDG_RUNTIME_DIR, $TMPDIR or /tmp: %s: set TMPDIR to a short path that you may write to",
	       strerror(errno));
	return EX_OSERR;
}

void nest_remove(const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *e;

	while (d && (e = readdir(d)))
		if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
			unlinkat(dirfd(d), e->d_name, 0);
	if (d)
		closedir(d);
	rmdir(dir);
}

/* ---- messages of the keeper ---- */

static void show_progress(struct nest *n, const char *text)
{
	const bool tty = isatty(STDERR_FILENO) == 1;
	const size_t len = strlen(text);

	if (n->quiet)
		return;
	/* A line that wraps cannot be drawn again: its end has the progress. */
	if (tty && len > PROGRESS_COLUMNS)
		fprintf(stderr, "\r\033[K...%s",
			text + len - (PROGRESS_COLUMNS - 3));
	else
		fprintf(stderr, tty ? "\r\033[K%s" : "kvrt: %s\n", text);
	n->shown = tty;
}

static void end_progress(struct nest *n)
{
	if (n->shown)
		fputs("\r\033[K", stderr);
	n->shown = false;
}

/* Print the messages of a program.  Return: their bytes. */
static size_t show_log(const struct nest *n, const char *name)
{
	char path[NEST_DIR_MAX + 16], text[LOG_SHOWN];
	size_t len = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", n->dir, name);
	f = fopen(path, "re");
	if (f) {
		len = fread(text, 1, sizeof(text), f);
		fclose(f);
		fwrite(text, 1, len, stderr);
	}
	return len;
}

static int program_ended(struct nest *n, const struct nest_word *w)
{
	const bool server = w->ward == NEST_SERVER;

	end_progress(n);
	if (!show_log(n, server ? NEST_SERVER_LOG : NEST_DAEMON_LOG) && !n->ready)
		pr_err("%s ended without a message, with status %d",
		       server ? "the server" : "kvmm-hold", w->code);
	if (n->ready) {
		pr_err("%s of this command ended, with status %d: run the command again",
		       server ? "the server" : "the daemon", w->code);
		return EX_UNAVAILABLE;
	}
	if (server)
		return w->code ? w->code : EX_SOFTWARE;
	pr_err("no daemon was there, and none could be started for this command: see the message above, or start one with kvmm-hold");
	return EX_UNAVAILABLE;
}

/* Wait until the server is ready.  Return: 0 or an exit code. */
static int await_ready(struct nest *n)
{
	struct nest_word w;
	ssize_t got;

	for (;;) {
		memset(&w, 0, sizeof(w));
		got = recv(n->line, &w, sizeof(w), 0);
		if (got < 0 && errno == EINTR)
			continue;
		if (got != sizeof(w))
			break;
		w.text[sizeof(w.text) - 1] = '\0';
		if (w.kind == NEST_STATUS)
			show_progress(n, w.text);
		if (w.kind == NEST_ENDED)
			return program_ended(n, &w);
		if (w.kind == NEST_READY) {
			n->ready = true;
			end_progress(n);
			if (!n->quiet)
				show_log(n, NEST_SERVER_LOG);
			return 0;
		}
	}
	end_progress(n);
	pr_err("the process that starts the server was ended: run this command again");
	return EX_OSERR;
}

int nest_gone(struct nest *n)
{
	struct pollfd p = { .fd = n->line, .events = POLLIN };
	struct nest_word w;
	ssize_t got;

	/* The keeper may learn of the death after the client of the server. */
	while (poll(&p, 1, GONE_WAIT_MS) > 0) {
		memset(&w, 0, sizeof(w));
		got = recv(n->line, &w, sizeof(w), MSG_DONTWAIT);
		if (got == sizeof(w) && w.kind == NEST_ENDED)
			return program_ended(n, &w);
		if (got == sizeof(w) || (got < 0 && errno == EINTR))
			continue;
		pr_err("the process that holds the server was ended: run the command again");
		return EX_UNAVAILABLE;
	}
	return 0;
}

/* ---- start and end ---- */

int nest_start(struct nest *n, char **hold, char **serve)
{
	sigset_t old;
	int sv[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv)) {
		pr_err("no socket for the server's process: %s: end other programs",
		       strerror(errno));
		return EX_OSERR;
	}
	/* Programs of a killed keeper become children of this process. */
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	old = block_signals();
	n->line = sv[0];
	n->keeper = fork();
	if (!n->keeper) {
		close(sv[0]);
		nest_keep(n->dir, sv[1], &old, hold, serve);
	}
	close(sv[1]);
	line_fd = sv[0];
	keeper_pid = n->keeper;
	sigprocmask(SIG_SETMASK, &old, NULL);
	if (n->keeper > 0)
		return await_ready(n);
	n->keeper = 0;
	pr_err("no process can be started: %s: end other programs",
	       strerror(errno));
	return EX_OSERR;
}

void nest_end(struct nest *n)
{
	/* A signal waits: its handler would wait for the same process. */
	const sigset_t old = block_signals();

	if (n->line >= 0)
		close(n->line);
	line_fd = -1;
	if (n->keeper > 0) {
		keeper_pid = 0;
		while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
			;
	}
	if (n->dir[0])
		nest_remove(n->dir);
	folder = NULL;
	n->line = -1;
	n->keeper = 0;
	sigprocmask(SIG_SETMASK, &old, NULL);
}
