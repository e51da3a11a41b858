// SPDX-License-Identifier: Apache-2.0
/*
 * wait.c - connections that wait for a pressure trigger
 *
 *	wait PATH some THRESHOLD WINDOW
 *
 * asks to be told, at most once each WINDOW, when at least one task was stalled
 * for THRESHOLD of it, in microseconds (full: all of them).  PATH is a pressure
 * file that the asker may read.  The answer is `ok 0`; then the connection
 * stays, and each time a line `fired N` is written to it.  When it is closed the
 * trigger is gone; when the daemon ends or the domain is gone it is closed.
 *
 * The core looks at its triggers in each tick, on the mm thread, and leaves a
 * bit in trigger_fired: no more, however many fire.  This thread writes the
 * lines.  A socket that takes none, since its reader does not read, is closed.
 *
 * Triggers are few: WAITS_USER of each tenant or user, half of all for all of
 * them, and the rest for root and the daemon's own user.
 *
 * Context: control thread.
 */
#include <stdio.h>
#include <sys/socket.h>

#include <kvmm/log.h>

#include "kvmm/ipc/daemon.h"

#define WAITS_USER	4

/* What the mm thread is asked, and answers. */
struct wait_call {
	struct daemon		*d;
	u64			key;
	struct proc_trigger	t;
	u32			trigger;
	int			ret;
};

/* Is the domain the one that was found, and may be seen? */
static bool wait_domain_is(struct core *core, const struct wait_call *wc)
{
	const struct core_domain_view *shown = &wc->t.domain;
	struct core_domain_view v;

	return !core_get_domain(core, shown->id, &v) &&
	       v.tenant == shown->tenant &&
	       !strncmp(v.name, shown->name, sizeof(v.name)) &&
	       (wc->key == PROC_ALL ||
		v.tenant == core_find_tenant(core, wc->key));
}

static void wait_add(struct core *core, void *arg)
{
	struct wait_call *wc = arg;
	const struct proc_trigger *t = &wc->t;

	wc->ret = -ENOENT;
	if (t->of_domain && !wait_domain_is(core, wc))
		return;
	wc->ret = core_trigger_add(core, clock_ns(), t->of_domain ?
				   t->domain.id : CORE_NONE, t->res, t->full,
				   t->threshold_ns, t->window_ns);
	if (wc->ret < 0)
		return;
	/* What the number's last owner was to be told is not for this one. */
	__atomic_fetch_and(&wc->d->mm.trigger_fired, ~BIT_ULL(wc->ret),
			   __ATOMIC_RELAXED);
	__atomic_fetch_and(&wc->d->mm.trigger_gone, ~BIT_ULL(wc->ret),
			   __ATOMIC_RELAXED);
}

static void wait_del(struct core *core, void *arg)
{
	core_trigger_del(core, ((struct wait_call *)arg)->trigger);
}

/* Return: 0, or -EUSERS: it has as many as it may. */
static int wait_room(const struct daemon *d, u64 key)
{
	if (view_count_waits(d, PROC_ALL, true) >= CORE_NR_TRIGGERS)
		return -EUSERS;
	if (key == PROC_ALL)
		return 0;
	return view_count_waits(d, key, false) >= WAITS_USER ||
	       view_count_waits(d, PROC_ALL, true) -
	       view_count_waits(d, PROC_ALL, false) >= CORE_NR_TRIGGERS / 2 ?
	       -EUSERS : 0;
}

static int wait_explain(int err, const char *path, struct seq_file *out)
{
	seq_reset(out);
	if (err == -EINVAL)
		seq_printf(out, "wait: want PATH some|full THRESHOLD WINDOW, in microseconds: a window of 500000 to 10000000, a threshold of at most as much");
	else if (err == -EUSERS || err == -ENOSPC)
		seq_printf(out, "%.128s: as many triggers as there may be: close one",
			   path);
	else if (err == -EOPNOTSUPP)
		seq_printf(out, "%.128s: takes no triggers: pressure files do",
			   path);
	else
		seq_printf(out, "%.128s: %s", path, strerror(-err));
	return err == -ENOSPC ? -EUSERS : err;
}

/**
 * wait_begin() - set the trigger that a connection asks for
 * @req: `PATH some THRESHOLD WINDOW`, printable
 * @w:   takes the trigger; @w->key says whose it is
 * @out: after an error takes one line
 *
 * Return: 0 or a negative errno.
 */
int wait_begin(struct daemon *d, const char *req, struct view_wait *w,
	       struct seq_file *out)
{
	struct wait_call wc = { .d = d, .key = w->key };
	const char *blank = strchr(req, ' ');
	char path[PROC_REQ_MAX];
	int err = -EINVAL;

	snprintf(path, sizeof(path), "%.*s",
		 blank ? (int)(blank - req) : (int)strlen(req), req);
	if (blank)
		err = proc_trigger_parse(d->proc, w->key, path, blank + 1,
					 &wc.t);
	if (!err)
		err = wait_room(d, w->key);
	if (!err)
		err = mm_call(&d->mm, wait_add, &wc);
	if (!err && wc.ret < 0)
		err = wc.ret;
	if (err)
		return wait_explain(err, path, out);
	/* That owner goes, if its domain went just now. */
	view_fired(d, 0, BIT_ULL(wc.ret));
	w->trigger = (u32)wc.ret;
	seq_reset(out);
	return 0;
}

/* wait_end() - nobody waits for it any more */
void wait_end(struct daemon *d, struct view_wait *w)
{
	struct wait_call wc = { .trigger = w->trigger };

	/* A thread that runs no longer looks at none. */
	if (w->trigger != CORE_NONE)
		(void)!mm_call(&d->mm, wait_del, &wc);
	w->trigger = CORE_NONE;
}

/* wait_take() - the mm thread has left word of what fired */
void wait_take(struct daemon *d)
{
	/* Pair with the releases in ops_trigger() and ops_trigger_gone(). */
	u64 gone = __atomic_exchange_n(&d->mm.trigger_gone, 0, __ATOMIC_ACQUIRE);
	u64 fired = __atomic_exchange_n(&d->mm.trigger_fired, 0,
					__ATOMIC_ACQUIRE);

	if (fired | gone)
		view_fired(d, fired, gone);
}
