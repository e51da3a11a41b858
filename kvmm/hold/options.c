// SPDX-License-Identifier: Apache-2.0
/*
 * options.c - the options of kvmm-hold and its children, and their change
 *
 * At start kvmm-hold reads all options once.  On SIGHUP it reads them again and
 * compares them with those in force.  An option counts as changed if its value
 * differs; so a value that an operator set at run time stays until its line of the file
 * changes.
 *
 * kvmm gets a changed tunable, log level or domain as a request, and the next kvmm gets
 * it as an option.  A new line `area` is opened.  An area whose line is gone stays
 * in use, because only an operator can decide how long its content may move.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>

#include <kvmm/log.h>

#include "kvmm/hold/options.h"

int options_read(struct options *op, const struct kv_program *program, int argc,
		 char **argv, char *text, size_t len)
{
	int err;

	op->program = program;
	op->argc = argc;
	op->argv = argv;
	kvmm_config_init(&op->config, &op->opt);
	err = kvmm_config_read(program, &op->config, false, argc, argv, text, len);
	kvmm_config_path(&op->config, false, op->path, sizeof(op->path));
	return err;
}

/* The arguments of kvmm.  Return: 0, or -ENOMEM or -E2BIG with the old ones left. */
static int args_make(struct options *op)
{
	static char *made[OPTIONS_ARGS];
	int n = kv_config_args(&op->config.section[0], made, OPTIONS_ARGS);
	int i;

	if (n >= 0 && n + op->argc + 1 > OPTIONS_ARGS) {
		while (n)
			free(made[--n]);
		n = -E2BIG;
	}
	if (n < 0)
		return n;
	while (op->nr_made)
		free(op->args[op->nr_made--]);
	op->nr_made = (u32)n;
	memcpy(op->args + 1, made, (u32)n * sizeof(*made));
	/* The command line comes last, with its operands. */
	for (i = 1; i <= op->argc; i++)
		op->args[n + i] = i < op->argc ? op->argv[i] : NULL;
	return 0;
}

int options_args(struct options *op)
{
	if (kv_config_args(&op->config.section[1], op->swapd,
			   OPTIONS_ARGS - 1) < 0 || args_make(op)) {
		pr_err("too many options, or no memory for them");
		return EX_USAGE;
	}
	if (op->config.file.path[0])
		pr_info("options: %s", op->config.file.path);
	return 0;
}

void options_first(const struct options *op, struct apply *a)
{
	u32 i;

	for (i = 0; i < op->opt.areas.nr; i++)
		apply_add(a, "area", op->opt.areas.s[i]);
}

/* ---- changes ---- */

/* Is @s in the list, by its name before the first comma or, with @whole, as it is? */
static bool list_has(const struct kv_list *list, const char *s, bool whole)
{
	const size_t n = whole ? strlen(s) + 1 : strcspn(s, ",");
	u32 i;

	for (i = 0; i < list->nr; i++)
		if (!strncmp(list->s[i], s, n) &&
		    (whole || !list->s[i][n] || list->s[i][n] == ','))
			return true;
	return false;
}

static void change_areas(const struct kv_list *old, const struct kv_list *new,
			 struct apply *a)
{
	u32 i;

	for (i = 0; i < new->nr; i++) {
		if (list_has(old, new->s[i], true))
			continue;
		if (!list_has(old, new->s[i], false))
			apply_add(a, "area", new->s[i]);
		else
			pr_warn("area = %s: a changed size or priority takes kvctl swapoff and swapon, or a restart",
				new->s[i]);
	}
	for (i = 0; i < old->nr; i++)
		if (!list_has(new, old->s[i], false))
			pr_warn("area = %s: the line is gone; if the area is in use it stays so: kvctl swapoff takes it away",
				old->s[i]);
}

static void change_domains(const struct kv_list *old, const struct kv_list *new,
			   struct apply *a)
{
	char name[256];
	u32 i;

	for (i = 0; i < new->nr; i++)
		if (!list_has(old, new->s[i], true))
			apply_add(a, "domain", new->s[i]);
	for (i = 0; i < old->nr; i++) {
		if (list_has(new, old->s[i], false))
			continue;
		snprintf(name, sizeof(name), "%.*s",
			 (int)strcspn(old->s[i], ","), old->s[i]);
		apply_add(a, "domain", name);
	}
}

/* kvctl set has the name of the file in sys/vm, with _ for -. */
static void change_tunable(const struct kv_opt *o, const char *value,
			   struct apply *a)
{
	char rest[128], *p;
	int n = snprintf(rest, sizeof(rest), "%s ", value);

	snprintf(rest + n, sizeof(rest) - (size_t)n, "%s", o->name);
	for (p = rest + n; *p; p++)
		if (*p == '-')
			*p = '_';
	apply_add(a, "tune", rest);
}

static void change(struct options *op, const struct kv_opt *o,
		   const struct kvmm_options *new, struct apply *a)
{
	char value[4096];

	if (!strcmp(o->name, "area")) {
		change_areas(&op->opt.areas, &new->areas, a);
	} else if (!strcmp(o->name, "domain")) {
		change_domains(&op->opt.domains, &new->domains, a);
	} else {
		(void)kv_opt_format(o, new, 0, value, sizeof(value));
		if (!strcmp(o->name, "log-level"))
			apply_add(a, "log", value);
		else
			change_tunable(o, value, a);
	}
}

static void refuse_change(const struct kv_section *s, const struct kv_opt *o,
			  const struct kv_section *new)
{
	char was[4096], is[4096];
	const bool some = kv_opt_format(o, s->values, 0, was, sizeof(was));
	const bool any = kv_opt_format(o, new->values, 0, is, sizeof(is));

	if (o->kind == KV_OPT_list)
		pr_warn("%s: has changed, which takes a restart: the old lines stay",
			o->name);
	else
		pr_warn("%s = %s: takes a restart: %s stays", o->name,
			any && *is ? is : "(default)",
			some && *was ? was : "the default");
}

/* One option of both; @list: takes whether a list has changed. */
static bool compare_one(struct options *op, struct kv_section *s,
			const struct kvmm_config *new, u32 i, struct apply *a,
			bool *list)
{
	const struct kv_opt *o = &s->opts[i];
	const struct kv_section *t = &new->section[s - op->config.section];

	if (!kv_config_has(s, o) || kv_opt_same(o, s->values, t->values))
		return false;
	if (s->values != &op->opt || !kvmm_config_live(o)) {
		refuse_change(s, o, t);
		return false;
	}
	change(op, o, new->opt, a);
	kv_opt_copy(o, s->values, t->values);
	s->from[i].source = t->from[i].source;
	*list |= o->kind == KV_OPT_list;
	return true;
}

/* The values of lists point into the text of the file: keep it. */
static void keep_text(struct options *op, struct kv_config *file)
{
	char **more = realloc(op->texts, (op->nr_texts + 1) * sizeof(*more));

	if (more) {
		op->texts = more;
		op->texts[op->nr_texts++] = file->text;
	}
	file->text = NULL;
}

static void take_over(struct options *op, struct kvmm_config *new,
		      struct apply *a)
{
	bool any = false, list = false;
	u32 n, i;

	for (n = 0; n < op->config.file.nr; n++)
		for (i = 0; i < op->config.section[n].nr; i++)
			any |= compare_one(op, &op->config.section[n], new, i, a,
					   &list);
	if (list)
		keep_text(op, &new->file);
	if (any && args_make(op))
		pr_err("too many options, or no memory: the next kvmm begins with the old ones");
}

void options_reload(struct options *op, struct apply *a)
{
	struct kvmm_config *new = calloc(1, sizeof(*new));
	struct kvmm_options *opt = calloc(1, sizeof(*opt));
	char text[512] = "no memory";
	int err = -ENOMEM;

	if (new && opt) {
		kvmm_config_init(new, opt);
		err = kvmm_config_read(op->program, new, false, op->argc,
				       op->argv, text, sizeof(text));
	}
	if (err) {
		pr_err("%s: nothing is changed", text);
	} else {
		pr_info("SIGHUP: options read again: %s",
			new->file.path[0] ? new->file.path : "no file");
		take_over(op, new, a);
	}
	if (new && opt)
		kv_config_free(&new->file);
	free(new);
	free(opt);
}
