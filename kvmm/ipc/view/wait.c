// SPDX-License-Identifier: Apache-2.0
/*
 * wait.c - connections that wait for a pressure trigger
 *
 *	wait PATH some THRESHOLD WINDOW
 *
 * asks for a line, at most one each WINDOW, when at least one task was stalled
 * for THRESHOLD of it, in microseconds (full: all of them).  PATH is a pressure
 * file that the asker may read.  The answer is `ok 0`; then the connection
 * stays, and each time a line `fired N` is written to it.  When it is closed the
 * trigger is gone; when the daemon ends or the domain is gone it is closed.
 *
 * The core looks at its triggers in each tick, on the mm thread, and leaves a
 * bit in trigger_fired, however many fire.  This thread writes the lines.  A
 * connection that takes no line, since its reader does not read, is closed.
 *
 * Triggers are few: WAITS_USER of each tenant or user, half of all for all of
 * them, and the rest for root and the daemon's own user.
 *
 * Context: control thread, but for the functions handed to mm_call().
 */
#include <stdio.h>
#include <sys/socket.h>

#include <kvmm/log.h>

#include "kvmm/ipc/view/view.h"

#define WAITS_USER	4

/* Close it in the next round: an event of it may be in the batch of this one. */
static void view_drop(struct views *vs, struct view *v)
{
	watch_remove(vs->loop, &v->sock);
	v->deadline = 0;
}

static void view_tell(struct views *vs, struct view *v)
{
	char line[40];
	int n = snprintf(line, sizeof(line), "fired %llu\n",
			 (unsigned long long)++v->wait.fired);

	if (send(v->sock.fd, line, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL) == n)
		return;
	if (log_allowed())
		pr_info("one that waits for a trigger does not read: closed");
	view_drop(vs, v);
}

/*
 * Tell connections that wait.
 * @fired: triggers, a bit each
 * @gone:  triggers that the core has no more
 */
static void view_fired(struct views *vs, u64 fired, u64 gone)
{
	struct list *l, *tmp;

	list_for_each(&vs->clients->readers, l, tmp) {
		struct view *v = list_entry(l, struct view, reader.node);

		if (!v->reader.waits)
			continue;
		if (gone & BIT_ULL(v->wait.trigger)) {
			/* Another trigger may have the number by now. */
			v->wait.trigger = CORE_NONE;
			v->reader.waits = false;
			view_drop(vs, v);
		} else if ((fired & BIT_ULL(v->wait.trigger)) && v->sock.fn) {
			view_tell(vs, v);
		}
	}
}

/* Connections that wait, of user @key or, if @others, of all. */
static u32 view_count_waits(const struct views *vs, u64 key, bool others)
{
	const struct list *l;
	u32 nr = 0;

	for (l = vs->clients->readers.next; l != &vs->clients->readers; l = l->next) {
		const struct view *v = list_entry(l, struct view, reader.node);

		nr += v->reader.waits && (others || v->wait.payer == key);
	}
	return nr;
}

/* A question to the mm thread, and its answer. */
struct wait_call {
	struct mm		*mm;
	u64			key;
	struct proc_trigger	t;
	u32			trigger;
	int			ret;
};

/* Is the domain the one that was found, and may the asker see it? */
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
	wc->ret = core_trigger_add(core, kv_now_ns(), t->of_domain ?
				   t->domain.id : CORE_NONE, t->res, t->full,
				   t->threshold_ns, t->window_ns);
	if (wc->ret < 0)
		return;
	/* Events of the number's last owner are not for this one. */
	__atomic_fetch_and(&wc->mm->trigger_fired, ~BIT_ULL(wc->ret),
			   __ATOMIC_RELAXED);
	__atomic_fetch_and(&wc->mm->trigger_gone, ~BIT_ULL(wc->ret),
			   __ATOMIC_RELAXED);
}

static void wait_del(struct core *core, void *arg)
{
	core_trigger_del(core, ((struct wait_call *)arg)->trigger);
}

/* Return: 0, or -EUSERS: it has as many as it may. */
static int wait_room(const struct views *vs, u64 key)
{
	if (view_count_waits(vs, PROC_ALL, true) >= CORE_NR_TRIGGERS)
		return -EUSERS;
	if (key == PROC_ALL)
		return 0;
	return view_count_waits(vs, key, false) >= WAITS_USER ||
	       view_count_waits(vs, PROC_ALL, true) -
	       view_count_waits(vs, PROC_ALL, false) >= CORE_NR_TRIGGERS / 2 ?
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
 * @w:   takes the trigger
 * @out: after an error takes one line
 *
 * Return: 0 or a negative errno.
 */
int wait_begin(struct views *vs, const struct asker *a, const char *req,
	       struct view_wait *w, struct seq_file *out)
{
	struct wait_call wc = { .mm = vs->mm, .key = a->key };
	const char *blank = strchr(req, ' ');
	char path[PROC_REQ_MAX];
	int err = -EINVAL;

	snprintf(path, sizeof(path), "%.*s",
		 blank ? (int)(blank - req) : (int)strlen(req), req);
	if (blank)
		err = proc_trigger_parse(vs->proc, a->key, path, blank + 1,
					 &wc.t);
	if (!err)
		err = wait_room(vs, a->payer);
	if (!err)
		err = mm_call(vs->mm, wait_add, &wc);
	if (!err && wc.ret < 0)
		err = wc.ret;
	if (err)
		return wait_explain(err, path, out);
	/* The last owner of the number is closed, if its domain is gone since. */
	view_fired(vs, 0, BIT_ULL(wc.ret));
	w->trigger = (u32)wc.ret;
	w->payer = a->payer;
	seq_reset(out);
	return 0;
}

/* wait_end() - the connection ends */
void wait_end(struct views *vs, struct view_wait *w)
{
	struct wait_call wc = { .trigger = w->trigger };

	/* When the mm thread has stopped no trigger is looked at. */
	if (w->trigger != CORE_NONE)
		(void)!mm_call(vs->mm, wait_del, &wc);
	w->trigger = CORE_NONE;
}

/* wait_take() - the mm thread kicked: write lines for triggers that fired */
void wait_take(struct views *vs)
{
	/* Pair with the releases in ops_trigger() and ops_trigger_gone(). */
	u64 gone = __atomic_exchange_n(&vs->mm->trigger_gone, 0, __ATOMIC_ACQUIRE);
	u64 fired = __atomic_exchange_n(&vs->mm->trigger_fired, 0,
					__ATOMIC_ACQUIRE);

	if (fired | gone)
		view_fired(vs, fired, gone);
}
