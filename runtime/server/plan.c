// SPDX-License-Identifier: Apache-2.0
/*
 * plan.c - the models to serve and their names
 *
 * All errors of a command line that can be found without loading a model are
 * reported here, before a port is taken.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <kvmm/log.h>

#include "runtime/lib/gguf.h"
#include "runtime/server/plan.h"

/* Copy a name that fits and can be printed; otherwise write "". */
static void name_copy(char *out, const char *name)
{
	const size_t n = strlen(name);
	size_t i;

	for (i = 0; i < n; i++)
		if ((u8)name[i] < 0x20 || name[i] == 0x7f)
			break;
	*out = '\0';
	if (i == n && n < PLAN_NAME_MAX)
		memcpy(out, name, n + 1);
}

static int choose_names(const struct server_model *m, struct plan_model *p)
{
	/* A link to a file may lead to a blob of a cache, whose name is a hash. */
	char *path = gguf_is_file(m->dir) ? NULL : realpath(m->dir, NULL);
	const char *name = path ? path : m->dir, *base;

	base = strrchr(name, '/');
	if (base && base[1])
		name = base + 1;
	name_copy(p->base, m->domain ? m->domain : name);
	name_copy(p->name, m->name ? m->name : name);
	free(path);
	if (*p->name)
		return 0;
	pr_err("the name of the model is empty, too long, or has control characters: give one with --served-model-name or --model NAME=MODEL");
	return -1;
}

/* A mistyped folder is reported before a port is taken. */
static int look_at_model(const struct server_model *m, int *err)
{
	char path[PATH_MAX];

	if (gguf_is_file(m->dir))
		snprintf(path, sizeof(path), "%s", m->dir);
	else
		snprintf(path, sizeof(path), "%s/config.json", m->dir);
	if (!access(path, R_OK))
		return 0;
	*err = -errno;
	pr_err("%s: %s: name a model folder in Hugging Face's format, or a GGUF file", path,
	       strerror(errno));
	return -1;
}

int plan_models(const struct server_opts *o, struct plan_model *plan,
		enum server_end *end, int *err)
{
	u32 i, k;

	for (i = 0; i < o->nr_models; i++) {
		*end = SERVER_BAD_OPTION;
		if (choose_names(&o->models[i], &plan[i]))
			return -1;
		name_copy(plan[i].domain, o->models[i].domain &&
			  !o->engine.domain ? o->models[i].domain : "");
		for (k = 0; k < i; k++) {
			if (!strcmp(plan[k].name, plan[i].name)) {
				pr_err("two models have the name %.100s: give them others with --model NAME=MODEL",
				       plan[i].name);
				return -1;
			}
			if (strcmp(plan[k].base, plan[i].base))
				continue;
			strcpy(plan[k].domain, plan[k].name);
			strcpy(plan[i].domain, plan[i].name);
		}
	}
	for (i = 0; i < o->nr_models; i++) {
		*end = SERVER_NO_MODEL;
		if (look_at_model(&o->models[i], err))
			return -1;
	}
	*end = SERVER_DONE;
	return 0;
}
