// SPDX-License-Identifier: Apache-2.0
/*
 * opts_help.c - print the text of --help from the table of options
 */
#include <kvmm/opts.h>

#define HELP_COLUMN	28
#define HELP_WIDTH	80

/* Print @text from @column on, broken between words. */
static void print_wrapped(FILE *out, const char *text, int at, int column)
{
	while (*text) {
		size_t word = strcspn(text, " ");

		if (at > column && at + 1 + (int)word >= HELP_WIDTH) {
			fprintf(out, "\n%*s", column, "");
			at = column;
		} else if (at > column) {
			fputc(' ', out);
			at++;
		}
		fwrite(text, 1, word, out);
		at += (int)word;
		text += word;
		text += strspn(text, " ");
	}
	fputc('\n', out);
}

void kv_opts_help_entry(const char *mark, const char *name, const char *meta,
			const char *text, FILE *out)
{
	int at = fprintf(out, "  %s%s%s%s", mark, name, *meta ? " " : "", meta);

	if (at >= HELP_COLUMN - 1) {
		fputc('\n', out);
		at = 0;
	}
	fprintf(out, "%*s", HELP_COLUMN - at, "");
	print_wrapped(out, text, HELP_COLUMN, HELP_COLUMN);
}

static void help_option(const char *name, const char *meta, const char *help,
			const char *def, FILE *out)
{
	char line[512];

	if (def)
		snprintf(line, sizeof(line), "%s (default %s)", help, def);
	else
		snprintf(line, sizeof(line), "%s", help);
	kv_opts_help_entry("--", name, meta ? meta : "", line, out);
}

void kv_opts_help(const struct kv_program *prog, FILE *out)
{
	u32 i;

	fprintf(out, "Usage: %s [OPTION]...%s%s\n", prog->name,
		prog->operands ? " " : "", prog->operands ? prog->operands : "");
	print_wrapped(out, prog->about, 0, 0);
	fputs("\nOptions:\n", out);
	for (i = 0; i < prog->nr_opts; i++) {
		const struct kv_opt *o = &prog->opts[i];

		help_option(o->name, o->kind == KV_OPT_flag ? NULL : o->meta,
			    o->help, o->def, out);
	}
	help_option("help", NULL, "print this text; also -h", NULL, out);
	help_option("version", NULL, "print the version", NULL, out);
	if (prog->nr_exits)
		fputs("\nExit codes:\n", out);
	for (i = 0; i < prog->nr_exits; i++) {
		int at = fprintf(out, "  %3d  ", prog->exits[i].code);

		print_wrapped(out, prog->exits[i].text, at, at);
	}
	if (prog->more)
		prog->more(out);
}
