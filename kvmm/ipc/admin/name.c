// SPDX-License-Identifier: Apache-2.0
/*
 * name.c - the domain that an operator names
 *
 * A domain is named as its directory is: escaped, with its id behind an @ where
 * two tenants use one name, so that no client can give its domain the shown
 * name of another.  A name that no directory has is searched among the names as
 * clients gave them.
 *
 * Context: control thread; admin_name_find() the mm thread.
 */
#include <stdio.h>

#include "kvmm/ipc/admin/admin.h"

/* admin_name_init() - @name as it was written; it is not copied */
void admin_name_init(struct proc *proc, struct admin_name *n, const char *name)
{
	*n = (struct admin_name){ .name = name };
	n->is_shown = !proc_find_domain(proc, name, &n->shown);
}

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

/* Is it the domain that was shown, and not its successor? */
static bool domain_same(const struct core_domain_view *v,
			const struct core_domain_view *shown)
{
	return v->id == shown->id && v->tenant == shown->tenant &&
	       !strncmp(v->name, shown->name, sizeof(v->name));
}

/**
 * admin_name_find() - look the name up in the core; on the mm thread
 *
 * Return: whether it names one domain, in @n->dom and @n->view.
 */
bool admin_name_find(struct core *core, struct admin_name *n)
{
	struct core_domain_view v;
	u32 i;
	int err;

	n->nr_named = 0;
	for (i = 0; (err = core_get_domain(core, i, &v)) != -ERANGE; i++) {
		if (err || !(n->is_shown ? domain_same(&v, &n->shown) :
					   domain_is(&v, n->name)))
			continue;
		n->nr_named++;
		n->view = v;
		n->dom = i;
	}
	return n->nr_named == 1;
}

/* admin_name_refuse() - 0 when it names one domain, else -errno and the reason in @text */
int admin_name_refuse(const struct admin_name *n, char *text)
{
	if (n->nr_named == 1)
		return 0;
	if (n->nr_named) {
		snprintf(text, ADMIN_TEXT, "%.64s: several tenants use this name: give NAME@ID, see kvctl ls domain",
			 n->name);
		return -EINVAL;
	}
	snprintf(text, ADMIN_TEXT, "%.64s: no such domain: see kvctl ls domain",
		 n->name);
	return -ENOENT;
}
