// SPDX-License-Identifier: Apache-2.0
/*
 * kvctl_upgrade.c - replace the daemon by another program
 *
 * kvctl opens the program and sends its descriptor to the daemon, which asks
 * kvmm-hold whether the program is acceptable.  After the answer the daemon ends;
 * kvctl waits until another process answers on the view socket.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

#include <kvmm/admin.h>
#include <kvmm/clock.h>
#include <kvmm/log.h>

#include "kvmm/tools/kvctl.h"

#define LOOK_NS		2000000l

/* The kvmm beside this program, or in sbin if make install put this one in bin. */
static int path_beside(char *path, size_t len)
{
	ssize_t n = readlink("/proc/self/exe", path, len - 1);
	char *slash;

	path[max(n, (ssize_t)0)] = '\0';
	slash = strrchr(path, '/');
	if (!slash || (size_t)(slash - path) + sizeof("/../sbin/kvmm") > len)
		return -ENAMETOOLONG;
	strcpy(slash, "/kvmm");
	if (access(path, F_OK))
		strcpy(slash, "/../sbin/kvmm");
	return 0;
}

/* Read @key from the file status; "": the daemon does not answer. */
static void status_value(struct kvctl *k, u64 until, const char *key,
			 char *value, size_t len)
{
	const u64 now = kv_now_us();
	int status = 0, n;
	char *at;

	value[0] = '\0';
	if (now >= until ||
	    kv_view_ask(k->path, "cat status", (u32)((until - now) / 1000) + 1,
			&status, &k->text) || status)
		return;
	at = strstr(seq_text(&k->text), key);
	if (!at)
		return;
	at += strlen(key);
	n = (int)strcspn(at, "\n");
	snprintf(value, len, "%.*s", n, at);
}

/* Wait until another process answers.  Return: exit code. */
static int await_next(struct kvctl *k, const char *old)
{
	const struct timespec look = { .tv_nsec = LOOK_NS };
	const u64 began = kv_now_us();
	const u64 until = began + (u64)k->opts.timeout * 1000000;
	char pid[32], start[64];

	do {
		nanosleep(&look, NULL);
		status_value(k, until, "Pid:\t", pid, sizeof(pid));
	} while ((!pid[0] || !strcmp(pid, old)) && kv_now_us() < until);
	if (!pid[0] || !strcmp(pid, old)) {
		pr_err("no other kvmm answers within %u s: see its log",
		       k->opts.timeout);
		return EX_UNAVAILABLE;
	}
	printf("kvmm %s answers after %.1f ms", pid,
	       (double)(kv_now_us() - began) / 1000);
	status_value(k, until, "Start:\t", start, sizeof(start));
	printf("%s%s\n", start[0] ? ": " : "", start);
	return fflush(stdout) ? EX_IOERR : EXIT_SUCCESS;
}

int cmd_upgrade(struct kvctl *k, char **argv)
{
	char req[KV_ADMIN_REQ], beside[4096], old[32], *full;
	const char *path = argv[0];
	bool refused;
	int fd, ret;

	if (!path && !path_beside(beside, sizeof(beside)))
		path = beside;
	/* A path that is no regular file is opened too: kvmm-hold refuses it. */
	fd = path ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
	full = fd < 0 ? NULL : realpath(path, NULL);
	if (!full) {
		pr_err("%s: cannot be opened: %s: name a kvmm program",
		       path ? path : "kvmm", strerror(errno));
		return EXIT_FAILURE;
	}
	status_value(k, kv_now_us() + (u64)k->opts.timeout * 1000000, "Pid:\t",
		     old, sizeof(old));
	snprintf(req, sizeof(req), "upgrade %u %s", k->opts.cold, full);
	free(full);
	ret = kvctl_ask_admin(k, req, fd, &refused);
	close(fd);
	return ret ? ret : await_next(k, old);
}
