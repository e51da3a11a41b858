// SPDX-License-Identifier: Apache-2.0
/*
 * upgrade.c - this daemon makes room for another one
 *
 * kvctl opens the program and passes its file; kvmm-hold asks it for the layout
 * of its arena (hold/upgrade.c).  When that is ours, or the operator does not
 * mind, this daemon stops its threads, the mm thread between two events, and
 * ends with HOLD_EXIT_UPGRADE.  Nothing is unlinked and nobody is told: hold
 * starts the other one, which adopts what we leave.  An arena left like that is
 * always whole.
 *
 * Context: control thread.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <kvmm/log.h>

#include "kvmm/ipc/admin.h"
#include "kvmm/ipc/daemon.h"

/* @fd: taken over; -1: none came */
static void upgrade_ask(struct daemon *d, struct admin *adm, bool cold,
			const char *path, int fd)
{
	const struct hold_record r = {
		.magic = HOLD_MAGIC, .op = HOLD_ASK, .kind = HOLD_UPGRADE,
		.index = cold, .generation = ++d->upgrade_nr,
		.value = keep_layout(),
	};
	char text[ADMIN_TEXT];
	int err = deposit_try(&d->deposit, &r, fd);

	if (!err) {
		d->upgrade_waiter = adm;
		snprintf(d->upgrade_path, sizeof(d->upgrade_path), "%s", path);
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
void upgrade_request(struct daemon *d, struct admin *adm, const char *req,
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
	else if (d->deposit.fd < 0)
		admin_finish(adm, -EOPNOTSUPP,
			     "upgrade: needs kvmm-hold: start that instead of kvmm");
	else if (d->setup.opt.adopt && !cold)
		admin_finish(adm, -EOPNOTSUPP,
			     "upgrade: --adopt is off, so all clients would begin anew: give --cold if they may");
	else if (d->upgrade_waiter)
		admin_finish(adm, -EBUSY,
			     "upgrade: another one is under way");
	else
		upgrade_ask(d, adm, cold, req + used, fd);
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

/* upgrade_told() - what kvmm-hold says of the program */
void upgrade_told(struct daemon *d, const struct hold_record *r)
{
	struct admin *adm = d->upgrade_waiter;
	char text[ADMIN_TEXT];

	/* Who asked went away: then nothing was asked, whoever waits now. */
	if (!adm || r->generation != d->upgrade_nr)
		return;
	d->upgrade_waiter = NULL;
	if (r->index) {
		snprintf(text, sizeof(text), "%s: %s", d->upgrade_path,
			 why_not(r->index));
		admin_finish(adm, -(int)r->index, text);
		return;
	}
	pr_info("makes room for %s, by an operator", d->upgrade_path);
	snprintf(text, sizeof(text), "%s takes over", d->upgrade_path);
	admin_finish(adm, 0, text);
	d->upgrading = true;
	d->loop.stop = true;
}

/* Its connection is closing. */
void upgrade_forget_waiter(struct daemon *d, const struct admin *adm)
{
	if (d->upgrade_waiter == adm)
		d->upgrade_waiter = NULL;
}

/* upgrade_leave() - end between two events; all that there is stays */
void upgrade_leave(struct daemon *d)
{
	mm_stop(&d->mm);
	/* It is no death. */
	d->deposit.keep->tries = 0;
	deposit_late_flush(&d->deposit);
	/* What hangs in the kernel is over when this process is. */
	(void)!mapper_stop(&d->mapper);
	(void)!copier_stop(&d->copier);
	_exit(HOLD_EXIT_UPGRADE);
}
