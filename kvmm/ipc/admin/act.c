// SPDX-License-Identifier: Apache-2.0
/*
 * act.c - evict, pin, drain, log
 *
 * Eviction runs in turns of the mm thread, between which clients are served,
 * until enough is free, or no block may be evicted any more, or as many blocks
 * were evicted as the domain had; then it is answered.
 *
 * A pin is memory.min: other domains leave the domain its memory, or as much as
 * the operator says.  There is no other kind of pin: the domain itself takes
 * from its own cache, pinned or not, or it could stall beside unused memory.
 *
 * Context: control thread.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <kvmm/log.h>

#include "kvmm/ipc/admin/admin.h"

#define EVICT_BATCH	256u	/* blocks, between two turns of the mm thread */

static const char daemon_ends[] = "the daemon is ending";

/* A question to the mm thread, and its answer. */
struct act {
	struct admin_name	name;
	u64			bytes;	/* 0: all there is */
	u64			most;	/* blocks that may go; known once @begun */
	u64			done;	/* blocks */
	u64			value;
	u64			key;	/* of a tenant */
	u32			what;	/* CORE_DRAIN_* */
	u32			id;
	bool			begun;
	bool			on;
	int			err;
};

/* `VERB NUMBER NAME`.  Return: NAME, or NULL. */
static const char *number_and_name(const char *req, u64 *number)
{
	const char *p = strchr(req, ' ');
	char *end;

	if (!p || p[1] < '0' || p[1] > '9')
		return NULL;
	errno = 0;
	*number = strtoull(p + 1, &end, 10);
	return !errno && *end == ' ' && end[1] ? end + 1 : NULL;
}

/* ---- evict ---- */

/*
 * At most the blocks that the domain has at the beginning: a client that fills its
 * cache as fast as it is evicted would keep this thread busy for ever.
 */
static void evict_begin(struct act *a)
{
	const struct core_domain_view *v = &a->name.view;

	a->begun = true;
	a->most = v->current_bytes / v->block_bytes;
	if (a->bytes)
		a->most = min(a->most, (a->bytes - 1) / v->block_bytes + 1);
}

static void evict_some(struct core *core, void *arg)
{
	struct act *a = arg;
	u64 nr;

	a->err = -ENOENT;
	a->value = false;
	if (!admin_name_find(core, &a->name))
		return;
	if (!a->begun)
		evict_begin(a);
	nr = min((u64)EVICT_BATCH, a->most - min(a->most, a->done));
	a->err = core_evict(core, kv_now_ns(), a->name.dom, (u32)nr);
	if (a->err > 0)
		a->done += (u32)a->err;
	/* Fewer than asked for: no more may be evicted. */
	a->value = nr && a->err >= (int)nr;
}

/* `evict BYTES NAME` */
static int evict_run(struct operators *o, const char *req, char *text)
{
	struct act a = { 0 };
	const char *name = number_and_name(req, &a.bytes);
	u64 bytes;
	int err;

	if (!name) {
		snprintf(text, ADMIN_TEXT, "evict: want BYTES NAME");
		return -EINVAL;
	}
	admin_name_init(o->proc, &a.name, name);
	do {
		if (mm_call(o->mm, evict_some, &a)) {
			snprintf(text, ADMIN_TEXT, "evict: %s", daemon_ends);
			return -EIO;
		}
		err = admin_name_refuse(&a.name, text);
	} while (!err && a.value);
	if (err)
		return err;
	bytes = a.done * a.name.view.block_bytes;
	snprintf(text, ADMIN_TEXT, "%.64s: %" PRIu64 " bytes evicted, %" PRIu64 " blocks",
		 name, bytes, a.done);
	pr_info("%s, by an operator", text);
	if (bytes >= a.bytes)
		return 0;
	snprintf(text, ADMIN_TEXT, "%.64s: %" PRIu64 " bytes evicted and no more: the rest is in use",
		 name, bytes);
	return -EAGAIN;
}

/* ---- pin ---- */

static void pin_mark(struct core *core, void *arg)
{
	struct act *a = arg;

	if (!admin_name_find(core, &a->name))
		return;
	a->value = a->bytes ? a->bytes : a->name.view.current_bytes;
	a->err = core_domain_set(core, kv_now_ns(), a->name.dom, CORE_LIMIT_MIN,
				 a->value);
}

static void unpin_mark(struct core *core, void *arg)
{
	struct act *a = arg;

	if (!admin_name_find(core, &a->name))
		return;
	a->err = core_domain_unset(core, kv_now_ns(), a->name.dom,
				   CORE_LIMIT_MIN);
	if (!a->err && admin_name_find(core, &a->name))
		a->value = a->name.view.limit[CORE_LIMIT_MIN];
}

static int pin_answer(const struct act *a, bool on, char *text)
{
	if (a->err == -EALREADY) {
		snprintf(text, ADMIN_TEXT, "%.64s: is not pinned: its memory.min is what its clients asked for",
			 a->name.name);
		return a->err;
	}
	if (a->err) {
		snprintf(text, ADMIN_TEXT, "%.64s: %s", a->name.name,
			 strerror(-a->err));
		return a->err;
	}
	snprintf(text, ADMIN_TEXT, "%.64s: memory.min is %s%" PRIu64 " bytes",
		 a->name.name, on ? "" : "again ", a->value);
	pr_info("%s, by an operator", text);
	return 0;
}

/* `pin BYTES NAME`, `unpin 0 NAME` */
static int pin_run(struct operators *o, const char *req, bool on, char *text)
{
	struct act a = { .err = -EIO };
	const char *name = number_and_name(req, &a.bytes);
	int err;

	if (!name) {
		snprintf(text, ADMIN_TEXT, "%s", on ? "pin: want BYTES NAME" :
			 "unpin: want 0 NAME");
		return -EINVAL;
	}
	admin_name_init(o->proc, &a.name, name);
	if (mm_call(o->mm, on ? pin_mark : unpin_mark, &a)) {
		snprintf(text, ADMIN_TEXT, "pin: %s", daemon_ends);
		return -EIO;
	}
	err = admin_name_refuse(&a.name, text);
	return err ? err : pin_answer(&a, on, text);
}

/* ---- drain ---- */

static void drain_some(struct core *core, void *arg)
{
	struct act *a = arg;

	if (a->what == CORE_DRAIN_TENANT)
		a->id = core_find_tenant(core, a->key);
	a->err = core_drain(core, kv_now_ns(), a->what, a->id, a->on);
}

static int drain_parse(const struct operators *o, struct act *a, const char *what)
{
	u64 number;

	if (!strcmp(what, "node")) {
		a->what = CORE_DRAIN_NODE;
		return 0;
	}
	if (!strncmp(what, "tenant/", 7) && what[7]) {
		a->what = CORE_DRAIN_TENANT;
		return tenant_by_name(o->sockets, what + 7, &a->key) ? 0 : -ENOENT;
	}
	if (strncmp(what, "client/", 7) || what[7] < '0' || what[7] > '9')
		return -EINVAL;
	a->what = CORE_DRAIN_CLIENT;
	number = strtoull(what + 7, NULL, 10);
	a->id = (u32)min(number, (u64)CORE_NONE);
	return what[7 + strspn(what + 7, "0123456789")] ? -EINVAL : 0;
}

/* `drain 1 WHAT`: node, tenant/NAME, client/ID; `drain 0 WHAT`: no more */
static int drain_run(struct operators *o, const char *req, char *text)
{
	struct act a = { 0 };
	u64 on = 0;
	const char *what = number_and_name(req, &on);

	a.on = on;
	a.err = what ? drain_parse(o, &a, what) : -EINVAL;
	if (a.err == -EINVAL) {
		snprintf(text, ADMIN_TEXT, "drain: want node, tenant/NAME or client/ID");
		return a.err;
	}
	if (!a.err && mm_call(o->mm, drain_some, &a)) {
		snprintf(text, ADMIN_TEXT, "drain: %s", daemon_ends);
		return -EIO;
	}
	if (a.err) {
		snprintf(text, ADMIN_TEXT, "%.64s: is not attached: see kvctl cat %s",
			 what, a.what == CORE_DRAIN_TENANT ? "tenants" :
			 "clients");
		return a.err;
	}
	snprintf(text, ADMIN_TEXT, a.on ? "%.64s: is drained: what there is goes on, nothing new begins" :
		 "%.64s: is drained no more", what);
	pr_info("%s, by an operator", text);
	return 0;
}

/* ---- log ---- */

/* `log LEVEL` */
static int log_run(struct operators *o, const char *req, char *text)
{
	enum kv_log_level level;

	if (kv_log_level_parse(req + strlen("log "), &level)) {
		snprintf(text, ADMIN_TEXT, "%.64s: is no level: give err, warn, info or debug",
			 req + strlen("log "));
		return -EINVAL;
	}
	kv_log_set(level);
	link_log(o->link);
	snprintf(text, ADMIN_TEXT, "the log level of kvmm and swapd is %s",
		 kv_log_level_name(level));
	pr_info("%s, by an operator", text);
	return 0;
}

/* ---- all of them ---- */

static const struct {
	const char	*verb;
	u32		len;
} acts[] = {
	{ "evict ", 6 }, { "pin ", 4 }, { "unpin ", 6 }, { "drain ", 6 },
	{ "log ", 4 },
};

/* admin_acts() - is the request one for admin_act()? */
bool admin_acts(const char *req)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(acts); i++)
		if (!strncmp(req, acts[i].verb, acts[i].len))
			return true;
	return false;
}

/**
 * admin_act() - do it
 * @req:  for which admin_acts() returned true
 * @text: ADMIN_TEXT bytes; takes one line, the result or the reason
 *
 * Return: 0 or a negative errno; evict may have done a part of it then.
 */
int admin_act(struct operators *o, const char *req, char *text)
{
	switch (*req) {
	case 'e':
		return evict_run(o, req, text);
	case 'p':
		return pin_run(o, req, true, text);
	case 'u':
		return pin_run(o, req, false, text);
	case 'd':
		return drain_run(o, req, text);
	default:
		return log_run(o, req, text);
	}
}
