// SPDX-License-Identifier: Apache-2.0
/*
 * kvtop.c - the daemon's figures, live
 *
 * A poller asks for files over the view socket and parses their text into samples
 * (kvtop_sample.c, kvtop_text.c).  Views make rows of a sample, and rates of two
 * samples (kvtop_view.c).  Rows, bars and the map are drawn into a frame of plain
 * characters (kvtop_draw.c, kvtop_map.c, kvtop_frame.c).  A terminal shows the
 * frame (kvtop_screen.c), or it is printed (kvtop_batch.c).  Keys change only the
 * drawing (kvtop_keys.c).
 *
 * Invariants: all facts come from the text of files, so kvtop works with older and
 * newer daemons.  The view in front bounds the requests, and there is one
 * connection at a time.  A daemon that is away or stopped delays no key.  Requests
 * that change something go over the admin socket, as with kvctl set.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>
#include <unistd.h>

#include <kvmm/log.h>
#include <kvmm/rundir.h>

#include "kvmm/tools/ask.h"
#include "kvmm/tools/kvtop.h"

#define KVTOP_EXITS(x)							\
	x(EXIT_SUCCESS,	"ended by the operator, or printed what was asked for") \
	x(EX_USAGE,	"a wrong option, or no terminal to draw on")	\
	x(EX_UNAVAILABLE, "--batch: no daemon answered at the last look") \
	x(EX_OSERR,	"no memory or no thread")			\
	x(EX_IOERR,	"the output cannot be written")			\
	x(EX_PROTOCOL,	"--batch: the last answer was cut, or is none")	\
	x(EX_NOPERM,	"--batch: this user may not ask that")

static const struct kv_opt option_table[] = {
#define x(...) OPT_ENTRY(struct kvtop_opts, __VA_ARGS__)
	KVTOP_OPTIONS(x)
#undef x
};

static const struct kv_exit exit_table[] = {
#define x(code, text) { code, text },
	KVTOP_EXITS(x)
#undef x
};

static void print_more(FILE *out)
{
	const struct kvtop_col *c;
	u32 i, k, nr;

	fputs("\nKeys:\n", out);
	for (i = 0; i < nr_kvtop_keys; i++)
		if (kvtop_keys[i].help)
			kv_opts_help_entry("", kvtop_keys[i].name, "",
					   kvtop_keys[i].help, out);
	for (i = 0; i < NR_VIEWS; i++) {
		c = view_cols((enum kvtop_view)i, &nr);
		if (nr)
			fprintf(out, "\nColumns of %s:\n",
				view_title((enum kvtop_view)i));
		for (k = 0; k < nr; k++)
			kv_opts_help_entry("", c[k].title, "", c[k].help, out);
	}
	fputs("\nSymbols:\n", out);
	for (i = 0; i < NR_SYMS; i++) {
		char name[2] = { symbol_char[i], '\0' };

		kv_opts_help_entry("", name, symbol_name[i], symbol_text[i],
				   out);
	}
}

static const struct kv_program program = {
	.name		= "kvtop",
	.brief		= "the use of a kvmm's memory, live",
	.about		= "Shows live how the daemon's memory is used, which clients use it, and the cost of pressure.",
	.opts		= option_table,
	.nr_opts	= ARRAY_SIZE(option_table),
	.exits		= exit_table,
	.nr_exits	= ARRAY_SIZE(exit_table),
	.more		= print_more,
};

/* Turn -b and -n, which other tops have, into long options. */
static void long_names(int argc, char **argv)
{
	int i;

	for (i = 1; i < argc && strcmp(argv[i], "--"); i++) {
		if (!strcmp(argv[i], "-b"))
			argv[i] = (char *)"--batch";
		else if (!strcmp(argv[i], "-n"))
			argv[i] = (char *)"--count";
	}
}

/* Check values that the parser of options cannot check.  Return: false after a line. */
static bool judge(const struct kvtop_opts *o)
{
	char *end;
	double v = strtod(o->interval, &end);

	if (*end || end == o->interval || !(v >= 0.05 && v <= 3600)) {
		pr_err("--interval: '%.40s' is no time: give 0.05 to 3600 seconds",
		       o->interval);
		return false;
	}
	if (o->count && !o->batch) {
		pr_err("--count: goes with --batch");
		return false;
	}
	return true;
}

/* Sort the first view by the column of --sort. */
static bool sort_column(struct ui *ui, const char *title)
{
	const struct kvtop_col *c;
	u32 i, nr;

	c = view_cols(ui->view, &nr);
	for (i = 0; i < nr; i++) {
		if (!strcasecmp(c[i].title, title)) {
			ui->sort[ui->view] = i;
			ui->reverse[ui->view] = false;
			return true;
		}
	}
	pr_err("--sort: '%.40s' is no column of %s: see kvtop --help", title,
	       view_title(ui->view));
	return false;
}

/*
 * Find the daemons of this machine, for the key that shows the next one.  If the usual
 * directory has no socket, the first of the others is shown.  Return: exit code.
 */
static int find_daemons(struct ui *ui, const struct kvtop_opts *o, char *path)
{
	char other[KV_VIEW_PATH_MAX];
	int nr = tool_daemons(o->socket, &ui->dirs), i, err;

	for (i = 0; i < nr; i++) {
		err = tool_view_path(ui->dirs[i], o->tenant, other);
		if (err)
			return err;
		if (!strcmp(path, other))
			break;
	}
	if (nr <= 0 || (i == nr && (o->socket || !access(path, F_OK))))
		return 0;
	ui->nr_dirs = (u32)nr;
	ui->daemon = i < nr ? (u32)i : 0;
	return i < nr ? 0 : tool_view_path(ui->dirs[0], o->tenant, path);
}

int main(int argc, char **argv)
{
	char path[KV_VIEW_PATH_MAX], why[256];
	struct kvtop_opts o;
	struct ui ui;
	int err;

	kv_log_init("kvtop", KV_LOG_INFO);
	long_names(argc, argv);
	err = kv_opts_parse(&program, &o, argc, argv, why, sizeof(why));
	if (err == -ECANCELED)
		return EXIT_SUCCESS;
	if (err < 0) {
		pr_err("%s", why);
		return EX_USAGE;
	}
	o.batch |= o.once;
	if (!judge(&o))
		return EX_USAGE;
	err = tool_view_path(o.socket, o.tenant, path);
	if (err)
		return err;
	ui_init(&ui, &o);
	ui.batch = o.batch;
	if (o.sort && !sort_column(&ui, o.sort))
		return EX_USAGE;
	if (o.batch)
		return kvtop_batch(&ui, path, &o);
	if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO)) {
		pr_err("here is no terminal: give --batch or --once");
		return EX_USAGE;
	}
	err = find_daemons(&ui, &o, path);
	if (!err)
		err = kvtop_screen(&ui, path, &o);
	tool_daemons_free(ui.dirs);
	return err;
}
