// SPDX-License-Identifier: Apache-2.0
/*
 * opts_man.c - pages of the manual, from the tables
 *
 * The macros are those of man(7), which every man(1) reads.  The tables' text is
 * escaped, so that a page shows the same text as --help.
 */
#include <stdio.h>
#include <stdlib.h>

#include <kvmm/config.h>

/* @fresh: @s begins a line, where a dot or a quote would be a request. */
static void put_text(const char *s, bool fresh, FILE *out)
{
	if (fresh && (*s == '.' || *s == '\''))
		fputs("\\&", out);
	for (; *s; s++)
		switch (*s) {
		case '\\':
			fputs("\\e", out);
			break;
		case '-':
			fputs("\\-", out);
			break;
		case '\'':
			fputs("\\(aq", out);
			break;
		case '|':
			fputs("|\\:", out);	/* a line may end here */
			break;
		case '^':
			fputs("\\(ha", out);
			break;
		case '~':
			fputs("\\(ti", out);
			break;
		default:
			fputc(*s, out);
		}
}

static void put_line(const char *s, FILE *out)
{
	put_text(s, true, out);
	fputc('\n', out);
}

/* Print @s in a font. */
static void put_font(char font, const char *s, FILE *out)
{
	fprintf(out, "\\f%c", font);
	put_text(s, false, out);
	fputs("\\fR", out);
}

static void put_head(const char *name, u32 section, const char *brief,
		     FILE *out)
{
	const char *p;

	fputs(".\\\" made from the program's tables\n.TH ", out);
	for (p = name; *p; p++)
		fputc(*p >= 'a' && *p <= 'z' ? *p - 'a' + 'A' : *p, out);
	fprintf(out, " %u \"\" \"kvmm " KVMM_VERSION "\" \"kvmm\"\n.SH NAME\n",
		section);
	put_text(name, true, out);
	fputs(" \\- ", out);
	put_text(brief, false, out);
	fputc('\n', out);
}

/* ---- a program, or a command of it ---- */

static void put_option(const char *name, const char *meta, const char *help,
		       const char *def, FILE *out)
{
	fputs(".TP\n\\fB\\-\\-", out);
	put_text(name, false, out);
	fputs("\\fR", out);
	if (meta) {
		fputc(' ', out);
		put_font('I', meta, out);
	}
	fputc('\n', out);
	put_text(help, true, out);
	if (def) {
		fputs(" (default ", out);
		put_text(def, false, out);
		fputc(')', out);
	}
	fputc('\n', out);
}

static void put_options(const struct kv_program *prog, FILE *out)
{
	u32 i;

	for (i = 0; i < prog->nr_opts; i++) {
		const struct kv_opt *o = &prog->opts[i];

		put_option(o->name, o->kind == KV_OPT_flag ? NULL : o->meta,
			   o->help, o->def, out);
	}
	put_option("help", NULL, "print help; also -h", NULL, out);
	put_option("version", NULL, "print the version", NULL, out);
}

static void put_usage(const struct kv_program *prog, FILE *out)
{
	put_font('B', prog->name, out);
	/* A program with only commands has no options of its own. */
	fputs(prog->nr_opts ? " [\\fIOPTION\\fR]..." : "", out);
	if (prog->operands) {
		fputc(' ', out);
		put_font('I', prog->operands, out);
	}
	fputc('\n', out);
}

static void put_exits(const struct kv_program *prog, FILE *out)
{
	u32 i;

	for (i = 0; i < prog->nr_exits; i++) {
		fprintf(out, ".TP\n%d\n", prog->exits[i].code);
		put_line(prog->exits[i].text, out);
	}
}

static void put_commands(const struct kv_program *prog, FILE *out)
{
	u32 i;

	fputs(".SH COMMANDS\n", out);
	for (i = 0; i < prog->nr_commands; i++) {
		const struct kv_command *c = &prog->commands[i];

		fputs(".TP\n", out);
		put_font('B', c->name, out);
		if (c->operands && *c->operands) {
			fputc(' ', out);
			put_font('I', c->operands, out);
		}
		fputc('\n', out);
		put_line(c->help, out);
	}
}

/* The section of a command with options, and of its own commands. */
static void put_command(const struct kv_program *prog, FILE *out)
{
	u32 i;

	fputs(".SH \"", out);
	put_text(prog->name, false, out);
	fputs("\"\n", out);
	put_usage(prog, out);
	fputs(".PP\n", out);
	put_line(prog->about, out);
	if (prog->nr_opts)
		put_options(prog, out);
	if (prog->nr_exits) {
		fputs(".SS \"Exit status of ", out);
		put_text(prog->name, false, out);
		fputs("\"\n", out);
	}
	put_exits(prog, out);
	for (i = 0; i < prog->nr_commands; i++)
		if (prog->commands[i].prog)
			put_command(prog->commands[i].prog, out);
}

/* The text of --help after the options, line by line, unchanged. */
static void put_more(const struct kv_program *prog, FILE *out)
{
	char *text = NULL, *line, *save = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);

	if (!f)
		return;
	prog->more(f);
	if (!fclose(f)) {
		fputs(".SH NOTES\n.nf\n", out);
		for (line = strtok_r(text, "\n", &save); line;
		     line = strtok_r(NULL, "\n", &save))
			put_line(line, out);
		fputs(".fi\n", out);
	}
	free(text);
}

void kv_opts_man(const struct kv_program *prog, FILE *out)
{
	u32 i;

	put_head(prog->name, prog->man ? prog->man : 1, prog->brief, out);
	fputs(".SH SYNOPSIS\n", out);
	put_usage(prog, out);
	fputs(".SH DESCRIPTION\n", out);
	put_line(prog->about, out);
	if (prog->nr_commands)
		put_commands(prog, out);
	if (prog->nr_opts) {
		fputs(".SH OPTIONS\n", out);
		put_options(prog, out);
	}
	for (i = 0; i < prog->nr_commands; i++)
		if (prog->commands[i].prog)
			put_command(prog->commands[i].prog, out);
	/* The list of commands is printed above. */
	if (prog->more && !prog->nr_commands)
		put_more(prog, out);
	if (prog->nr_exits) {
		fputs(".SH \"EXIT STATUS\"\n", out);
		put_exits(prog, out);
	}
	if (prog->file) {
		fputs(".SH ENVIRONMENT\nEvery option may also be set in the environment, and in a file: see ", out);
		put_font('B', prog->file()->name, out);
		fputs("(5).\n", out);
	}
	fputs(".SH \"SEE ALSO\"\n\\fBkvmm\\-hold\\fR(8), \\fBkvctl\\fR(1), \\fBkvrt\\fR(1)\n", out);
}

/* ---- a file of options ---- */

static void put_key(const struct kv_section *s, const struct kv_opt *o,
		    FILE *out)
{
	char name[96];

	fputs(".TP\n", out);
	put_font('B', o->name, out);
	fputs(" = ", out);
	put_font('I', o->kind == KV_OPT_flag ? "yes|no" : o->meta, out);
	fputc('\n', out);
	put_text(o->help, true, out);
	if (o->def || o->kind == KV_OPT_flag) {
		fputs(" (default ", out);
		put_text(o->def ? o->def : "no", false, out);
		fputc(')', out);
	}
	fputs("\n.br\nIn the environment: ", out);
	put_line(kv_config_env_name(s, o, name, sizeof(name)), out);
}

void kv_config_man(const struct kv_config *cfg, FILE *out)
{
	u32 n, i;

	put_head(cfg->name, 5, "file of options", out);
	fputs(".SH DESCRIPTION\n", out);
	put_line("An option has the value of the first of these that sets it: the command line, the environment, this file, the default. An option that may be given several times is replaced as a whole.", out);
	fputs(".PP\n", out);
	put_line("One key = value a line, below a section in brackets; keys before any section are those of the first. A # at the beginning of a line or behind a blank begins a comment. An unknown key, a key that is there twice and a wrong value are refused with their line. In the environment blanks separate the values of an option that may be given several times, and an empty variable counts as unset.", out);
	for (n = 0; n < cfg->nr; n++) {
		const struct kv_section *s = &cfg->section[n];

		fprintf(out, ".SH \"[%s]\"\n", s->name);
		put_line(s->about, out);
		for (i = 0; i < s->nr; i++)
			if (kv_config_has(s, &s->opts[i]))
				put_key(s, &s->opts[i], out);
	}
	fputs(".SH \"SEE ALSO\"\n\\fBkvmm\\fR(8), \\fBkvmm\\-hold\\fR(8)\n", out);
}

bool kv_opts_print(const struct kv_program *prog, const char *what, FILE *out)
{
	if (!strcmp(what, "man") && prog->brief)
		kv_opts_man(prog, out);
	else if (!strcmp(what, "completion") && prog->brief)
		kv_opts_completion(prog, out);
	else if (!strcmp(what, "config") && prog->file)
		kv_config_print_default(prog->file(), out);
	else if (!strcmp(what, "config-man") && prog->file)
		kv_config_man(prog->file(), out);
	else
		return false;
	return true;
}
