// SPDX-License-Identifier: Apache-2.0
/*
 * limits.c - the file of options gives a domain other limits than before
 *
 * kvmm-hold asks when a line `domain` has changed.  Keys that are new or have another
 * value are set, if the domain is there.  The other keys keep their values: an
 * operator may have changed them since.
 *
 * Context: control thread, but for the function handed to mm_call().
 */
#include <stdio.h>

#include <kvmm/log.h>

#include "kvmm/ipc/admin/admin.h"

struct limits_call {
	const struct domain_opt	*opt;
	u64			key;
	u32			marks;
	u32			dom;
	u32			refused;
};

static void limits_set(struct core *core, void *arg)
{
	struct limits_call *c = arg;

	c->dom = domains_known(core, c->key, c->opt->name);
	if (c->dom != CORE_NONE)
		c->refused = domains_set(core, c->dom, c->opt, c->marks,
					 false);
}

/* Keys of @new that are not in @old with the same value. */
static u32 changed_marks(const struct domain_opt *old,
			 const struct domain_opt *new)
{
	u32 i, marks = new->given;

	for (i = 0; old && i < NR_DOMAIN_KEYS; i++)
		if ((old->given & BIT(i)) && old->limit[i] == new->limit[i])
			marks &= ~BIT(i);
	return marks;
}

static int limits_answer(const struct limits_call *c, const char *spec, char *text)
{
	if (c->refused) {
		snprintf(text, ADMIN_TEXT, "domain = %s: max is less than one block: give more",
			 spec);
		return -EINVAL;
	}
	snprintf(text, ADMIN_TEXT, "domain = %s: %s", spec,
		 !c->opt->given ? "has no line any more: a domain that is made later gets no limits, one that exists keeps its limits" :
		 c->dom == CORE_NONE ? "will have these limits when it is made" :
		 "has these limits");
	pr_info("%s", text);
	return 0;
}

/**
 * admin_limits() - `domain SPEC`; see kvmm/domain_opt.h
 * @text: ADMIN_TEXT bytes; takes one line, the result or the reason
 *
 * Return: 0 or a negative errno.
 */
int admin_limits(struct operators *o, const char *req, char *text)
{
	const char *spec = req + strlen("domain ");
	struct limits_call c = { .dom = CORE_NONE };
	struct domain_opt opt;
	int err;

	if (domain_opt_parse(&opt, spec, text, ADMIN_TEXT))
		return -EINVAL;
	if (!domains_key(o->clients, &opt, &c.key) && !opt.given) {
		snprintf(text, ADMIN_TEXT, "domain = %s: has no limits", spec);
		return 0;
	}
	if (!domains_key(o->clients, &opt, &c.key)) {
		snprintf(text, ADMIN_TEXT, "domain = %s: there is no tenant %s: give one of kvctl cat tenants, or the number of a user",
			 spec, opt.tenant);
		return -ENOENT;
	}
	c.opt = &opt;
	c.marks = changed_marks(domains_find(o->clients, c.key, opt.name), &opt);
	err = domains_put(o->clients, c.key, &opt);
	if (!err)
		err = mm_call(o->mm, limits_set, &c);
	if (!err)
		return limits_answer(&c, spec, text);
	snprintf(text, ADMIN_TEXT, "domain = %s: %s", spec, err == -ENOSPC ?
		 "there are as many such lines as can be: leave one out" :
		 "the daemon is ending");
	return err;
}
