// SPDX-License-Identifier: Apache-2.0
/*
 * set.c - marks of a domain, the size of the pool, tunables, events of the trace
 *
 * The marks are those of core.h's list, named as their files are.  The mm
 * thread makes the change between two requests; it holds for clients that
 * attach later too.  A new size is answered when the pool begins to change: a
 * smaller one may take until clients end or blocks are moved, and meminfo shows
 * the progress.
 *
 * Context: control thread.
 */
#include <inttypes.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <kvmm/admin.h>
#include <kvmm/log.h>

#include "kvmm/core/trace.h"
#include "kvmm/ipc/admin/admin.h"

/* A question to the mm thread, and its answer. */
struct mark_set {
	struct admin_name name;
	u32		which;
	u64		value;
	int		err;
};

static const char * const mark_names[CORE_NR_LIMITS] = {
#define x(mark, file, text) [CORE_LIMIT_##mark] = file,
	CORE_LIMITS(x)
#undef x
};

static const char all_marks[] =
#define x(mark, file, text) " " file
	CORE_LIMITS(x);
#undef x

static void set_mark(struct core *core, void *arg)
{
	struct mark_set *ms = arg;

	if (admin_name_find(core, &ms->name))
		ms->err = core_domain_set(core, kv_now_ns(), ms->name.dom,
					  ms->which, ms->value);
}

static int set_done(const struct mark_set *ms, char *text)
{
	char value[24] = "max";

	if (ms->value != KVMM_LIMIT_MAX)
		snprintf(value, sizeof(value), "%" PRIu64, ms->value);
	snprintf(text, ADMIN_TEXT, "%.64s: %s is set to %s", ms->name.name,
		 mark_names[ms->which], value);
	pr_info("%s, by an operator", text);
	return 0;
}

static int set_answer(const struct mark_set *ms, char *text)
{
	int err = admin_name_refuse(&ms->name, text);

	if (err)
		return err;
	if (!ms->err)
		return set_done(ms, text);
	if (ms->which == CORE_LIMIT_WEIGHT)
		snprintf(text, ADMIN_TEXT, "%s: out of bounds: 1 to %u",
			 mark_names[ms->which], CORE_WEIGHT_MAX);
	else if (ms->which == CORE_LIMIT_WRITETHROUGH)
		snprintf(text, ADMIN_TEXT, "%s: out of bounds: 0 or 1",
			 mark_names[ms->which]);
	else
		snprintf(text, ADMIN_TEXT, "%s: out of bounds: give at least the %" PRIu64 " bytes of one block",
			 mark_names[ms->which], ms->name.view.block_bytes);
	return ms->err;
}

/* Digits and nothing else, as far as 64 bits go. */
static bool number_is(const char *text, u64 *value)
{
	char *end;

	errno = 0;
	*value = strtoull(text, &end, 10);
	return *text >= '0' && *text <= '9' && !*end && !errno;
}

/* `set MARK VALUE NAME` */
static int set_run(struct operators *o, const char *req, char *text)
{
	struct mark_set ms = { .err = -EIO };
	char mark[32], value[32];
	int used = 0;

	/* One blank: the name may begin with blanks. */
	if (sscanf(req, "set %31s %31s%n", mark, value, &used) != 2 ||
	    req[used] != ' ' || !req[used + 1] || !number_is(value, &ms.value)) {
		snprintf(text, ADMIN_TEXT, "set: want MARK VALUE NAME");
		return -EINVAL;
	}
	admin_name_init(o->proc, &ms.name, req + used + 1);
	for (; ms.which < CORE_NR_LIMITS; ms.which++)
		if (!strcmp(mark, mark_names[ms.which]))
			break;
	if (ms.which == CORE_NR_LIMITS) {
		snprintf(text, ADMIN_TEXT, "domain/%.64s/%s: cannot be set: give one of%s",
			 req + used + 1, mark, all_marks);
		return -EINVAL;
	}
	if (mm_call(o->mm, set_mark, &ms)) {
		snprintf(text, ADMIN_TEXT, "set: the daemon is ending");
		return -EIO;
	}
	return set_answer(&ms, text);
}

/* ---- the pool ---- */

struct pool_resize {
	u32	pool;
	u64	bytes;
	u64	extent_size;
	u64	most;
	int	err;
};

static void resize_pool(struct core *core, void *arg)
{
	struct pool_resize *pr = arg;
	struct core_pool_view v;

	pr->extent_size = core_get_config(core)->extent_size;
	pr->err = core_get_zone(core, pr->pool, &v);
	if (pr->err)
		return;
	pr->most = v.total;
	pr->err = core_pool_resize(core, kv_now_ns(), pr->pool, pr->bytes);
	if (pr->err == -ERANGE)
		pr->err = -EFBIG;
}

static int resize_answer(const struct pool_resize *pr, char *text)
{
	u64 kb = pr->bytes / pr->extent_size * pr->extent_size >> 10;
	char log[96];

	switch (pr->err) {
	case 0:
		snprintf(log, sizeof(log), "pool/gpu%u: size is set to %" PRIu64 " kB of %" PRIu64 " kB",
			 pr->pool, kb, pr->most >> 10);
		pr_info("%s, by an operator", log);
		snprintf(text, ADMIN_TEXT, "%s: GpuOffline in meminfo says how much is out of use",
			 log);
		break;
	case -EFBIG:
		snprintf(text, ADMIN_TEXT, "pool/gpu%u: at most the %" PRIu64 " kB of the pool: start the daemon with more",
			 pr->pool, pr->most >> 10);
		return -ERANGE;
		break;
	case -ERANGE:
		snprintf(text, ADMIN_TEXT, "pool/gpu%u: no such pool: see kvctl ls pool", pr->pool);
		return -ENOENT;
	case -EBUSY:
		snprintf(text, ADMIN_TEXT, "pool/gpu%u: less than one span of a domain that has clients: give more",
			 pr->pool);
		break;
	default:
		snprintf(text, ADMIN_TEXT, "pool/gpu%u: give at least the %" PRIu64 " kB of one extent",
			 pr->pool, pr->extent_size >> 10);
	}
	return pr->err;
}

/* `resize BYTES POOL` */
static int resize_run(struct operators *o, const char *req, char *text)
{
	struct pool_resize pr = { .err = -EIO };
	int used = 0;

	if (sscanf(req, "resize %" SCNu64 " %n", &pr.bytes, &used) != 1 ||
	    !used || !req[used]) {
		snprintf(text, ADMIN_TEXT, "resize: want BYTES POOL");
		return -EINVAL;
	}
	if (!kv_pool_parse(req + used, strlen(req + used), &pr.pool)) {
		snprintf(text, ADMIN_TEXT, "pool/%.64s: no such pool: see kvctl ls pool",
			 req + used);
		return -ENOENT;
	}
	if (mm_call(o->mm, resize_pool, &pr)) {
		snprintf(text, ADMIN_TEXT, "resize: the daemon is ending");
		return -EIO;
	}
	return resize_answer(&pr, text);
}

/* ---- tunables ---- */

struct tune {
	u32	which;
	u64	value;
	int	err;
};

static const char * const tunables[CORE_NR_TUNABLES] = {
#define x(type, name, ...) [CORE_TUNE_##name] = #name,
	KVMM_TUNABLES(x)
#undef x
};

static const struct {
	u32 least, most;
} bounds[CORE_NR_TUNABLES] = {
#define x(type, name, opt, def, least, most, ...) [CORE_TUNE_##name] = { least, most },
	KVMM_TUNABLES(x)
#undef x
};

static void tune(struct core *core, void *arg)
{
	struct tune *t = arg;

	t->err = core_tune(core, kv_now_ns(), t->which, t->value);
}

/* `tune VALUE NAME` */
static int tune_run(struct operators *o, const char *req, char *text)
{
	struct tune t = { .err = -EIO };
	int used = 0;

	if (sscanf(req, "tune %" SCNu64 " %n", &t.value, &used) != 1 || !used ||
	    !req[used]) {
		snprintf(text, ADMIN_TEXT, "tune: want VALUE NAME");
		return -EINVAL;
	}
	while (t.which < CORE_NR_TUNABLES && strcmp(req + used, tunables[t.which]))
		t.which++;
	if (t.which == CORE_NR_TUNABLES) {
		snprintf(text, ADMIN_TEXT, "sys/vm/%.64s: cannot be set: there is none, or it is fixed at start: see kvctl tunables",
			 req + used);
		return -EPERM;
	}
	if (mm_call(o->mm, tune, &t)) {
		snprintf(text, ADMIN_TEXT, "tune: the daemon is ending");
		return -EIO;
	}
	if (t.err) {
		snprintf(text, ADMIN_TEXT, "sys/vm/%s: out of bounds: %u to %u%s",
			 tunables[t.which], bounds[t.which].least,
			 bounds[t.which].most,
			 t.which == CORE_TUNE_overcommit ? ", and not 1" : "");
		return t.err;
	}
	snprintf(text, ADMIN_TEXT, "sys/vm/%s: is set to %" PRIu64,
		 tunables[t.which], t.value);
	pr_info("%s, by an operator", text);
	return 0;
}

/* ---- events of the trace ---- */

struct event_switch {
	u32	which;
	u64	on;
	int	err;
};

static const char * const event_names[NR_CORE_TRACE + 1] = {
#define f(name)
#define x(name, text, fields) [CORE_TRACE_##name] = #name,
	CORE_TRACE_EVENTS(x, f)
#undef x
#undef f
	[CORE_TRACE_ALL] = "",
};

static void switch_event(struct core *core, void *arg)
{
	struct event_switch *es = arg;

	es->err = core_trace_set(core, es->which, es->on);
}

/* `trace VALUE [NAME]` */
static int trace_run(struct operators *o, const char *req, char *text)
{
	struct event_switch es = { .err = -EIO };
	const char *name;
	int used = 0;

	if (sscanf(req, "trace %" SCNu64 "%n", &es.on, &used) != 1 || !used ||
	    (req[used] && req[used] != ' ')) {
		snprintf(text, ADMIN_TEXT, "trace: want VALUE [NAME]");
		return -EINVAL;
	}
	name = req + used + (req[used] == ' ');
	while (es.which <= CORE_TRACE_ALL && strcmp(name, event_names[es.which]))
		es.which++;
	if (es.which > CORE_TRACE_ALL) {
		snprintf(text, ADMIN_TEXT, "events/%.64s: no such event: see kvctl ls events",
			 name);
		return -ENOENT;
	}
	if (mm_call(o->mm, switch_event, &es)) {
		snprintf(text, ADMIN_TEXT, "trace: the daemon is ending");
		return -EIO;
	}
	snprintf(text, ADMIN_TEXT, "events/%s%senable: %s", name,
		 *name ? "/" : "", !es.err ? es.on ? "is set to 1" :
		 "is set to 0" : es.err == -EINVAL ? "out of bounds: 0 or 1" :
		 "there is no memory to record in");
	if (!es.err)
		pr_info("%s, by an operator", text);
	return es.err;
}

/**
 * admin_change() - `set`, `resize`, `tune` or `trace`, of an operator or kvmm-proc
 * @req:  the request
 * @text: ADMIN_TEXT bytes; takes one line, the result or the reason
 *
 * Return: 0, or a negative errno with nothing changed.
 */
int admin_change(struct operators *o, const char *req, char *text)
{
	if (!strncmp(req, "set ", 4))
		return set_run(o, req, text);
	if (!strncmp(req, "trace ", 6))
		return trace_run(o, req, text);
	return strncmp(req, "tune ", 5) ? resize_run(o, req, text) :
					  tune_run(o, req, text);
}
