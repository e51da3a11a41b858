// SPDX-License-Identifier: Apache-2.0
/*
 * admin_set.c - an operator sets a mark of a domain, or the pool's size
 *
 * The marks are those of core.h's list, named as their files are.  A domain is
 * named as its directory is: by its name, with its id behind an @ where two
 * tenants use one name.  The change is made by the mm thread, between two
 * requests, and holds for whoever attaches later (limit.c).  The answer to a
 * new size comes when the pool begins to change: a smaller one may take as long
 * as whoever uses the end of it, and meminfo tells how far it is (resize.c).
 *
 * Context: control thread.
 */
#include <inttypes.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <kvmm/log.h>

#include "kvmm/ipc/admin.h"
#include "kvmm/ipc/daemon.h"

/* What the mm thread is asked, and answers. */
struct mark_set {
	const char	*name;
	u32		which;
	u64		value;
	u64		block_bytes;
	u32		nr_named;
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

/* NAME, or NAME@ID. */
static bool domain_is(const struct core_domain_view *v, const char *name)
{
	char exact[KVMM_NAME_LEN + 16];

	if (!strncmp(v->name, name, sizeof(v->name)))
		return true;
	snprintf(exact, sizeof(exact), "%.*s@%u", (int)sizeof(v->name), v->name,
		 v->id);
	return !strcmp(exact, name);
}

static void set_mark(struct core *core, void *arg)
{
	struct mark_set *ms = arg;
	struct core_domain_view v;
	u32 i, dom = 0;
	int err;

	for (i = 0; (err = core_get_domain(core, i, &v)) != -ERANGE; i++) {
		if (err || !domain_is(&v, ms->name))
			continue;
		ms->nr_named++;
		ms->block_bytes = v.block_bytes;
		dom = i;
	}
	if (ms->nr_named == 1)
		ms->err = core_domain_set(core, clock_ns(), dom, ms->which,
					  ms->value);
}

static void set_done(struct daemon *d, struct admin *adm,
		     const struct mark_set *ms)
{
	char text[ADMIN_TEXT], value[24] = "max";

	if (ms->value != KVMM_LIMIT_MAX)
		snprintf(value, sizeof(value), "%" PRIu64, ms->value);
	snprintf(text, sizeof(text), "%.64s: %s is set to %s", ms->name,
		 mark_names[ms->which], value);
	pr_info("%s, by an operator", text);
	admin_finish(d, adm, 0, text);
}

static void set_answer(struct daemon *d, struct admin *adm,
		       const struct mark_set *ms)
{
	char text[ADMIN_TEXT];

	if (!ms->nr_named) {
		snprintf(text, sizeof(text), "%.64s: no such domain: see kvctl ls domain",
			 ms->name);
		admin_finish(d, adm, -ENOENT, text);
	} else if (ms->nr_named > 1) {
		snprintf(text, sizeof(text), "%.64s: several tenants use this name: give NAME@ID, see kvctl ls domain",
			 ms->name);
		admin_finish(d, adm, -EINVAL, text);
	} else if (ms->err && ms->which == CORE_LIMIT_WEIGHT) {
		snprintf(text, sizeof(text), "%s: out of bounds: 1 to %u",
			 mark_names[ms->which], CORE_WEIGHT_MAX);
		admin_finish(d, adm, ms->err, text);
	} else if (ms->err) {
		snprintf(text, sizeof(text), "%s: out of bounds: give at least the %" PRIu64 " bytes of one block",
			 mark_names[ms->which], ms->block_bytes);
		admin_finish(d, adm, ms->err, text);
	} else {
		set_done(d, adm, ms);
	}
}

/* Digits and nothing else, as far as 64 bits go. */
static bool number_is(const char *text, u64 *value)
{
	char *end;

	errno = 0;
	*value = strtoull(text, &end, 10);
	return *text >= '0' && *text <= '9' && !*end && !errno;
}

/* admin_set() - `set MARK VALUE NAME`; the request is ours to cut */
void admin_set(struct daemon *d, struct admin *adm, char *req)
{
	struct mark_set ms = { .err = -EIO };
	char mark[32], value[32], text[ADMIN_TEXT];
	int used = 0;

	if (sscanf(req, "set %31s %31s %n", mark, value, &used) != 2 ||
	    !used || !req[used] || !number_is(value, &ms.value)) {
		admin_finish(d, adm, -EINVAL, "set: want MARK VALUE NAME");
		return;
	}
	ms.name = req + used;
	for (; ms.which < CORE_NR_LIMITS; ms.which++)
		if (!strcmp(mark, mark_names[ms.which]))
			break;
	if (ms.which == CORE_NR_LIMITS) {
		snprintf(text, sizeof(text), "%s: no such mark: give one of%s",
			 mark, all_marks);
		admin_finish(d, adm, -EINVAL, text);
		return;
	}
	if (mm_call(d, set_mark, &ms)) {
		admin_finish(d, adm, -EIO, "set: the daemon is ending");
		return;
	}
	set_answer(d, adm, &ms);
}

/* ---- the pool ---- */

struct pool_resize {
	u64	bytes;
	u64	extent_size;
	u64	most;
	int	err;
};

static void resize_pool(struct core *core, void *arg)
{
	struct pool_resize *pr = arg;

	pr->extent_size = core_get_config(core)->extent_size;
	pr->most = core_get_config(core)->pool_bytes;
	pr->err = core_pool_resize(core, clock_ns(), pr->bytes);
}

static void resize_answer(struct daemon *d, struct admin *adm,
			  const struct pool_resize *pr)
{
	u64 kb = pr->bytes / pr->extent_size * pr->extent_size >> 10;
	char text[ADMIN_TEXT], log[96];

	switch (pr->err) {
	case 0:
		snprintf(log, sizeof(log), "pool/gpu0: size is set to %" PRIu64 " kB of %" PRIu64 " kB",
			 kb, pr->most >> 10);
		pr_info("%s, by an operator", log);
		snprintf(text, sizeof(text), "%s: GpuOffline in meminfo says how much is out of use",
			 log);
		break;
	case -ERANGE:
		snprintf(text, sizeof(text), "pool/gpu0: at most the %" PRIu64 " kB of --pool-size: start the daemon with more",
			 pr->most >> 10);
		break;
	case -EBUSY:
		snprintf(text, sizeof(text), "pool/gpu0: less than one span of a domain that has clients: give more");
		break;
	default:
		snprintf(text, sizeof(text), "pool/gpu0: give at least the %" PRIu64 " kB of one extent",
			 pr->extent_size >> 10);
	}
	admin_finish(d, adm, pr->err, text);
}

/* admin_resize() - `resize BYTES POOL` */
void admin_resize(struct daemon *d, struct admin *adm, char *req)
{
	struct pool_resize pr = { .err = -EIO };
	int used = 0;

	if (sscanf(req, "resize %" SCNu64 " %n", &pr.bytes, &used) != 1 ||
	    !used || !req[used]) {
		admin_finish(d, adm, -EINVAL, "resize: want BYTES POOL");
		return;
	}
	if (strcmp(req + used, "gpu0")) {
		admin_finish(d, adm, -ENOENT, "resize: no such pool: gpu0");
		return;
	}
	if (mm_call(d, resize_pool, &pr)) {
		admin_finish(d, adm, -EIO, "resize: the daemon is ending");
		return;
	}
	resize_answer(d, adm, &pr);
}
