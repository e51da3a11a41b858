// SPDX-License-Identifier: Apache-2.0
/*
 * kvctl_wait.c - wait for the daemon, or for pressure
 *
 * Waiting for pressure is poll() of a pressure file, for places without a mount:
 * the trigger is set over the view socket, and the daemon writes a line to that
 * connection when the trigger fires.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

#include <kvmm/clock.h>
#include <kvmm/log.h>

#include "kvmm/tools/kvctl.h"

#define REQ_MAX		4096
#define WAIT_STEP_MS	20

static int wait_daemon(struct kvctl *k, u64 end)
{
	const struct timespec step = { .tv_nsec = WAIT_STEP_MS * 1000000l };
	int status, err;
	u64 now;

	for (;;) {
		now = kv_now_ms();
		if (now >= end)
			break;
		err = kv_view_ask(k->path, "cat version", end - now, &status,
				  &k->text);
		if (!err && !status)
			return EXIT_SUCCESS;
		if (!err && status == EACCES) {
			pr_err("%s", seq_text(&k->text));
			return EX_NOPERM;
		}
		if (err == -EPROTOTYPE || err == -EPROTO || err == -EACCES ||
		    err == -ENAMETOOLONG)
			return kvctl_report(k, err);
		nanosleep(&step, NULL);
	}
	pr_err("%s: no daemon answered within %u s: see its log, or start kvmm-hold",
	       k->path, k->opts.timeout);
	return EX_UNAVAILABLE;
}

/* Return: exit code. */
static int wait_line(struct kvctl *k, int fd, u64 end)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	int nr = 0;
	u64 now;

	while (!nr) {
		now = kv_now_ms();
		if (now >= end || !poll(&p, 1, (int)(end - now))) {
			pr_err("the trigger did not fire within %u s",
			       k->opts.timeout);
			return EX_TEMPFAIL;
		}
		nr = kv_view_fired(fd);
	}
	if (nr > 0)
		return EXIT_SUCCESS;
	pr_err("%s: the daemon, or the domain, went away: see kvctl ls, and wait again",
	       k->path);
	return EX_UNAVAILABLE;
}

static int wait_trigger(struct kvctl *k, char **argv, u64 end)
{
	int fd = -1, status = 0, code, err;
	char req[REQ_MAX];

	if (strchr(argv[0], ' ') || strchr(argv[0], '\n') ||
	    strchr(argv[1], '\n') ||
	    (size_t)snprintf(req, sizeof(req), "wait %s %s", argv[0],
			     argv[1]) >= sizeof(req)) {
		pr_err("want PATH TRIGGER, like pressure/memory 'some 150000 1000000'");
		return EX_USAGE;
	}
	err = kv_view_wait(k->path, req, k->opts.timeout * 1000, &status,
			   &k->text, &fd);
	if (err)
		return kvctl_report(k, err);
	if (status) {
		pr_err("%s", seq_text(&k->text));
		return status == EACCES ? EX_NOPERM : EXIT_FAILURE;
	}
	code = wait_line(k, fd, end);
	close(fd);
	return code;
}

int cmd_wait(struct kvctl *k, char **argv)
{
	const u64 end = kv_now_ms() + (u64)k->opts.timeout * 1000;

	if (!argv[0])
		return wait_daemon(k, end);
	if (argv[1])
		return wait_trigger(k, argv, end);
	pr_err("wait: which trigger? kvctl wait %.60s 'some 150000 1000000'",
	       argv[0]);
	return EX_USAGE;
}
