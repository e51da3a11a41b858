// SPDX-License-Identifier: Apache-2.0
/*
 * upgrade.c - an operator wants another program to take over
 *
 * kvctl opens the program and passes its file; kvmm-hold asks it for the layout
 * of its arena (hold/upgrade.c).  When that is this daemon's layout, or the
 * operator accepts a cold start, this daemon stops its threads, the mm thread
 * between two events, and ends with HOLD_EXIT_UPGRADE (leave() in main.c).  No
 * name is unlinked and no client is told: hold starts the other program, which
 * adopts the memory.  An arena left like that is always whole.
 *
 * Context: control thread.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <kvmm/log.h>

#include "kvmm/ipc/admin/admin.h"

/* @fd: taken over; -1: none came */
static void upgrade_ask(struct operators *o, struct admin *adm, bool cold,
			const char *path, int fd)
{
	const struct hold_record r = {
		.magic = HOLD_MAGIC, .op = HOLD_ASK, .kind = HOLD_UPGRADE,
		.index = cold, .generation = ++o->upgrade.nr,
		.value = keep_layout(),
	};
	char text[ADMIN_TEXT];
	int err = deposit_try(o->deposit, &r, fd);

	if (!err) {
		o->upgrade.waiter = adm;
		snprintf(o->upgrade.path, sizeof(o->upgrade.path), "%s", path);
		return;
	}
	snprintf(text, sizeof(text), "%s: kvmm-hold takes no request: %s", path,
		 strerror(-err));
	admin_finish(adm, err, text);
}

/**
 * upgrade_request() - an operator wants another program
 * @req: "upgrade COLD PATH"
 * @fd:  of the program, taken over
 */
void upgrade_request(struct operators *o, struct admin *adm, const char *req,
		     int fd)
{
	u32 cold;
	int used = 0;

	if (sscanf(req, "upgrade %" SCNu32 " %n", &cold, &used) != 1 || !used ||
	    !req[used] || cold > 1)
		admin_finish(adm, -EINVAL, "upgrade: want COLD PATH");
	else if (fd < 0)
		admin_finish(adm, -EBADF,
			     "upgrade: want the program with the request");
	else if (o->deposit->fd < 0)
		admin_finish(adm, -EOPNOTSUPP,
			     "upgrade: needs kvmm-hold: start that instead of kvmm");
	else if (o->setup->opt.adopt && !cold)
		admin_finish(adm, -EOPNOTSUPP,
			     "upgrade: --adopt is off, so all clients would begin anew: give --cold if they may");
	else if (o->upgrade.waiter)
		admin_finish(adm, -EBUSY,
			     "upgrade: another one is under way");
	else
		upgrade_ask(o, adm, cold, req + used, fd);
	if (fd >= 0)
		close(fd);
}

static const char *why_not(u32 err)
{
	switch (err) {
	case EPERM:
		return "is no program that root or the user of kvmm-hold owns, nobody else may write, and kvmm-hold sees by that name: install it so";
	case EACCES:
		return "cannot be executed by the user that kvmm becomes, as whom it is asked for its layout: chmod a+rx";
	case ENOEXEC:
		return "is no kvmm: it prints no layout when asked for --arena-layout";
	case EXDEV:
		return "has another layout of memory, so all clients would begin anew: give --cold if they may";
	default:
		return strerror((int)err);
	}
}

/* upgrade_told() - the answer of kvmm-hold about the program */
void upgrade_told(struct operators *o, const struct hold_record *r)
{
	struct admin *adm = o->upgrade.waiter;
	char text[ADMIN_TEXT];

	/* The operator hung up; another that waits now asked another question. */
	if (!adm || r->generation != o->upgrade.nr)
		return;
	o->upgrade.waiter = NULL;
	if (r->index) {
		snprintf(text, sizeof(text), "%s: %s", o->upgrade.path,
			 why_not(r->index));
		admin_finish(adm, -(int)r->index, text);
		return;
	}
	pr_info("makes room for %s, by an operator", o->upgrade.path);
	snprintf(text, sizeof(text), "%s takes over", o->upgrade.path);
	admin_finish(adm, 0, text);
	o->upgrade.granted = true;
	o->loop->stop = true;
}

/* upgrade_forget_waiter() - the operator hung up */
void upgrade_forget_waiter(struct operators *o, const struct admin *adm)
{
	if (o->upgrade.waiter == adm)
		o->upgrade.waiter = NULL;
}
