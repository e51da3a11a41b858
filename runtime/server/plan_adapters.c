// SPDX-License-Identifier: Apache-2.0
/*
 * plan_adapters.c - the adapters of the command line, their names and models
 */
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include <kvmm/log.h>

#include "runtime/server/plan.h"

/* Cut the model's name from MODEL:NAME=DIR; the longest one that fits counts. */
static const char *cut_model(const struct server_opts *o, const struct plan_model *plan,
			     const char *text, struct adapter_wish *w)
{
	const char *rest = text;
	u32 i;

	for (i = 0; i < o->nr_models; i++) {
		const size_t n = strlen(plan[i].name);

		if (strncmp(text, plan[i].name, n) || text[n] != ':' || text + n < rest)
			continue;
		w->model = i;
		rest = text + n + 1;
	}
	if (rest == text && o->nr_models > 1)
		return NULL;
	return rest;
}

static int read_wish(const struct server_opts *o, const struct plan_model *plan,
		     const char *text, struct adapter_wish *w)
{
	const char *name, *dir;

	*w = (struct adapter_wish){ .model = 0 };
	name = cut_model(o, plan, text, w);
	if (!name) {
		pr_err("--lora %.100s: this server has %u models: say which one, --lora MODEL:NAME=DIR",
		       text, o->nr_models);
		return -1;
	}
	dir = strchr(name, '=');
	if (!dir || !dir[1] || !served_is_name(name, (size_t)(dir - name))) {
		pr_err("--lora %.100s: give a name of 1 to %u bytes and a folder, NAME=DIR",
		       text, SERVED_NAME_MAX);
		return -1;
	}
	memcpy(w->name, name, (size_t)(dir - name));
	w->dir = dir + 1;
	return 0;
}

static int name_is_free(const struct server_opts *o, const struct plan_model *plan,
			const struct adapter_wish *wish, u32 nr)
{
	const char *name = wish[nr].name;
	u32 i, taken = 0;

	for (i = 0; i < o->nr_models; i++)
		taken |= !strcmp(plan[i].name, name);
	for (i = 0; i < nr; i++)
		taken |= !strcmp(wish[i].name, name);
	if (!taken)
		return 0;
	pr_err("--lora %.100s: a model or another adapter has this name: give it another", name);
	return -1;
}

/* A mistyped folder is reported before a port is taken. */
static int look_at_adapter(const struct adapter_wish *w, int *err)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/adapter_config.json", w->dir);
	if (!access(path, R_OK))
		return 0;
	*err = -errno;
	pr_err("%s: %s: name the folder of an adapter in the format of PEFT", path,
	       strerror(errno));
	return -1;
}

int plan_adapters(const struct server_opts *o, const struct plan_model *plan,
		  struct adapter_wish *wish, enum server_end *end, int *err)
{
	u32 i;

	*end = SERVER_BAD_OPTION;
	for (i = 0; i < o->nr_adapters; i++)
		if (read_wish(o, plan, o->adapters[i], &wish[i]) ||
		    name_is_free(o, plan, wish, i))
			return -1;
	*end = SERVER_NO_MODEL;
	for (i = 0; i < o->nr_adapters; i++)
		if (look_at_adapter(&wish[i], err))
			return -1;
	*end = SERVER_DONE;
	return 0;
}
