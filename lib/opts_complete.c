// SPDX-License-Identifier: Apache-2.0
/*
 * opts_complete.c - completion for bash, from the tables
 *
 * One function for each program, in plain bash, without the package
 * bash-completion.  It finds the command from the words before the cursor.  After a
 * dash it offers the command's options, after an option the words of its choice.
 * Otherwise it offers the names of commands, or bash offers files.
 */
#include <ctype.h>
#include <stdio.h>

#include <kvmm/opts.h>

#define PATH_MAX_LEN	128	/* of the words of a command, as "bench serve" */

typedef void (*level_fn)(const struct kv_program *prog, const char *path,
			 FILE *out);

/* Call @fn for the program, and for each of its commands with its own options. */
static void each_level(const struct kv_program *prog, const char *path,
		       level_fn fn, FILE *out)
{
	char below[PATH_MAX_LEN];
	u32 i;

	fn(prog, path, out);
	for (i = 0; i < prog->nr_commands; i++) {
		if (!prog->commands[i].prog)
			continue;
		snprintf(below, sizeof(below), "%s %s", path,
			 prog->commands[i].name);
		each_level(prog->commands[i].prog, below, fn, out);
	}
}

/* Words before the cursor: commands with their own options, and without. */
static void put_way(const struct kv_program *prog, const char *path, FILE *out)
{
	u32 i;

	if (*path)
		fprintf(out, "\t\t'%s') at='%s' ;;\n", path, path);
	for (i = 0; i < prog->nr_commands; i++)
		if (!prog->commands[i].prog)
			fprintf(out, "\t\t'%s %s') said=1 ;;\n", path,
				prog->commands[i].name);
}

/* Print the literal words of "auto|NODE" (not NODE); returns how many. */
static u32 put_words(const struct kv_opt *o, FILE *out)
{
	const char *p = o->meta, *q;
	u32 nr = 0;
	size_t n;

	if (o->kind != KV_OPT_choice && (o->kind != KV_OPT_str || !strchr(p, '|')))
		return 0;
	for (; *p; p += n + (p[n] == '|')) {
		n = strcspn(p, "|");
		for (q = p; q < p + n && !isupper((unsigned char)*q); q++)
			;
		if (q < p + n)
			continue;
		if (out)
			fprintf(out, "%s%.*s", nr ? " " : "", (int)n, p);
		nr++;
	}
	return nr;
}

/* Values of options: words of a choice, files, or neither. */
static void put_values(const struct kv_program *prog, const char *path,
		       FILE *out)
{
	u32 i;

	for (i = 0; i < prog->nr_opts; i++) {
		const struct kv_opt *o = &prog->opts[i];

		if (o->kind == KV_OPT_flag)
			continue;
		fprintf(out, "\t'%s:--%s') ", path, o->name);
		if (put_words(o, NULL)) {
			fputs("words='", out);
			put_words(o, out);
			fputs("' ;;\n", out);
		} else if (o->kind == KV_OPT_str || o->kind == KV_OPT_list) {
			fputs("return ;;\n", out);
		} else {
			fputs("compopt +o default 2>/dev/null; return ;;\n", out);
		}
	}
}

static void put_options(const struct kv_program *prog, const char *path,
			FILE *out)
{
	u32 i;

	fprintf(out, "\t\t'%s') words='", path);
	for (i = 0; i < prog->nr_opts; i++)
		fprintf(out, "--%s ", prog->opts[i].name);
	fputs("--help --version' ;;\n", out);
}

static void put_commands(const struct kv_program *prog, const char *path,
			 FILE *out)
{
	u32 i;

	if (!prog->nr_commands)
		return;
	fprintf(out, "\t\t'%s') words='", path);
	for (i = 0; i < prog->nr_commands; i++)
		fprintf(out, "%s%s", i ? " " : "", prog->commands[i].name);
	fputs("' ;;\n", out);
}

void kv_opts_completion(const struct kv_program *prog, FILE *out)
{
	char fn[64], *p;

	snprintf(fn, sizeof(fn), "_%s", prog->name);
	for (p = fn; *p; p++)
		*p = *p == '-' ? '_' : *p;
	fprintf(out, "# bash completion of %s, made from its tables\n%s()\n{\n",
		prog->name, fn);
	fputs("\tlocal cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
	      "\tlocal at= said= words= i\n\n"
	      "\tCOMPREPLY=()\n"
	      "\t# bash takes --name=value apart.\n"
	      "\tif [ \"$cur\" = = ]; then\n\t\tcur=\n"
	      "\telif [ \"$prev\" = = ]; then\n\t\tprev=${COMP_WORDS[COMP_CWORD-2]}\n\tfi\n"
	      "\tfor ((i = 1; i < COMP_CWORD; i++)); do\n"
	      "\t\tcase \"$at ${COMP_WORDS[i]}\" in\n", out);
	each_level(prog, "", put_way, out);
	fputs("\t\tesac\n\tdone\n\tcase \"$at:$prev\" in\n", out);
	each_level(prog, "", put_values, out);
	fputs("\tesac\n\tif [ \"$words\" ]; then\n\t\t:\n"
	      "\telif [ \"${cur#-}\" != \"$cur\" ]; then\n"
	      "\t\tcase \"$at\" in\n", out);
	each_level(prog, "", put_options, out);
	fputs("\t\tesac\n\telif [ -z \"$said\" ]; then\n\t\tcase \"$at\" in\n", out);
	each_level(prog, "", put_commands, out);
	fputs("\t\tesac\n\tfi\n"
	      "\tCOMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n}\n", out);
	fprintf(out, "complete -o default -F %s %s\n", fn, prog->name);
}
