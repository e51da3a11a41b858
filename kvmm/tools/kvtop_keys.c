// SPDX-License-Identifier: Apache-2.0
/*
 * kvtop_keys.c - the keys, and their help
 *
 * One table has the keys, their names, their help and their functions.  A key
 * without help does the same as the key before it.  No function here asks the
 * daemon or uses a terminal: a request is left in ui.line, and the caller sends it.
 */
#include <stdio.h>
#include <stdlib.h>

#define NCURSES_NOMACROS
#include <curses.h>

#include "kvmm/tools/kvtop.h"

#define KEY_ESCAPE	27
#define CTRL(c)		((c) & 0x1f)
#define INTERVAL_MIN	0.05
#define INTERVAL_MAX	3600.0

#define KVTOP_KEYS(x)							\
	x(KEY_UP,	"Up",	"one line up; also k",	do_up)		\
	x('k',		"k",	NULL,			do_up)		\
	x(KEY_DOWN,	"Down",	"one line down; also j", do_down)	\
	x('j',		"j",	NULL,			do_down)	\
	x(KEY_PPAGE,	"PgUp",	"a screen up",		do_page_up)	\
	x(KEY_NPAGE,	"PgDn",	"a screen down",	do_page_down)	\
	x(KEY_HOME,	"Home",	"the first line; also g", do_home)	\
	x('g',		"g",	NULL,			do_home)	\
	x(KEY_END,	"End",	"the last line; also G", do_end)	\
	x('G',		"G",	NULL,			do_end)		\
	x('1',		"1-6",	"a view by its number",	do_domains)	\
	x('2',		"2",	NULL,			do_clients)	\
	x('3',		"3",	NULL,			do_seqs)	\
	x('4',		"4",	NULL,			do_map)		\
	x('5',		"5",	NULL,			do_areas)	\
	x('6',		"6",	NULL,			do_vmstat)	\
	x('\t',		"Tab",	"the next view; Left and Right too", do_next) \
	x(KEY_RIGHT,	"Right", NULL,			do_next)	\
	x(KEY_LEFT,	"Left",	NULL,			do_previous)	\
	x(KEY_BTAB,	"S-Tab", NULL,			do_previous)	\
	x('\n',		"Enter", "the sequences of the client, the clients of the domain", do_enter) \
	x('\r',		"Enter", NULL,			do_enter)	\
	x(KEY_ENTER,	"Enter", NULL,			do_enter)	\
	x('<',		"<",	"sort by the column to the left", do_sort_left) \
	x('>',		">",	"sort by the column to the right", do_sort_right) \
	x('r',		"r",	"sort the other way round", do_reverse)	\
	x('/',		"/",	"show only lines that have a text", do_filter) \
	x(KEY_ESCAPE,	"Esc",	"show all lines again", do_escape)	\
	x('s',		"s",	"change a limit, as kvctl set does: edit PATH VALUE, then Enter", do_set) \
	x('n',		"n",	"the next daemon, if the machine has several", do_daemon) \
	x(' ',		"Space", "stop looking, and go on", do_pause)	\
	x('+',		"+",	"look half as often",	do_slower)	\
	x('-',		"-",	"look twice as often",	do_faster)	\
	x('h',		"h",	"this text; also ? and F1", do_help)	\
	x('?',		"?",	NULL,			do_help)	\
	x(KEY_F(1),	"F1",	NULL,			do_help)	\
	x('q',		"q",	"quit",			do_quit)

static int marked(const struct ui *ui)
{
	u32 i;

	for (i = 0; i < ui->rows.nr; i++)
		if (ui->rows.row[i].key == ui->key[ui->view])
			return (int)i;
	return 0;
}

static void mark(struct ui *ui, int i)
{
	i = max(min(i, (int)ui->rows.nr - 1), 0);
	if (ui->rows.nr)
		ui->key[ui->view] = ui->rows.row[i].key;
}

static void do_up(struct ui *ui)	{ mark(ui, marked(ui) - 1); }
static void do_down(struct ui *ui)	{ mark(ui, marked(ui) + 1); }
static void do_page_up(struct ui *ui)	{ mark(ui, marked(ui) - ui->page); }
static void do_page_down(struct ui *ui)	{ mark(ui, marked(ui) + ui->page); }
static void do_home(struct ui *ui)	{ mark(ui, 0); }
static void do_end(struct ui *ui)	{ mark(ui, (int)ui->rows.nr - 1); }

static void show_view(struct ui *ui, enum kvtop_view view)
{
	ui->view = view;
	rows_free(&ui->rows);
}

static void do_domains(struct ui *ui)	{ show_view(ui, VIEW_domains); }
static void do_clients(struct ui *ui)	{ show_view(ui, VIEW_clients); }
static void do_seqs(struct ui *ui)	{ show_view(ui, VIEW_seqs); }
static void do_map(struct ui *ui)	{ show_view(ui, VIEW_map); }
static void do_areas(struct ui *ui)	{ show_view(ui, VIEW_areas); }
static void do_vmstat(struct ui *ui)	{ show_view(ui, VIEW_vmstat); }

static void do_next(struct ui *ui)
{
	show_view(ui, (ui->view + 1) % NR_VIEWS);
}

static void do_previous(struct ui *ui)
{
	show_view(ui, (ui->view + NR_VIEWS - 1) % NR_VIEWS);
}

static void do_enter(struct ui *ui)
{
	const struct kvtop_row *row;

	if (!ui->rows.nr)
		return;
	row = &ui->rows.row[marked(ui)];
	if (ui->view == VIEW_clients) {
		ui->client = (u32)row->key;
		*ui->filter = '\0';
		show_view(ui, VIEW_seqs);
	} else if (ui->view == VIEW_domains) {
		snprintf(ui->filter, sizeof(ui->filter), "%s",
			 row->cell[0].text);
		show_view(ui, VIEW_clients);
	}
}

static void sort_by(struct ui *ui, int step)
{
	const struct kvtop_col *c;
	u32 nr, *sort = &ui->sort[ui->view];

	c = view_cols(ui->view, &nr);
	if (!nr)
		return;
	/* A single pool has no column. */
	do {
		if (*sort >= nr)
			*sort = step > 0 ? 0 : nr - 1;
		else
			*sort = (*sort + nr + (u32)step) % nr;
	} while (!ui->pools && !strcmp(c[*sort].title, "POOL"));
}

static void do_sort_left(struct ui *ui)		{ sort_by(ui, -1); }
static void do_sort_right(struct ui *ui)	{ sort_by(ui, 1); }

static void do_reverse(struct ui *ui)
{
	ui->reverse[ui->view] = !ui->reverse[ui->view];
}

static void do_filter(struct ui *ui)
{
	ui->mode = MODE_FILTER;
	strcpy(ui->line, ui->filter);
}

static void do_escape(struct ui *ui)
{
	*ui->filter = '\0';
}

/* The limit of the sort column, else memory.max. */
static const char *limit_of(const struct ui *ui)
{
	static const char * const limits[][2] = {
		{ "min_kb", "min" }, { "low_kb", "low" },
		{ "high_kb", "high" }, { "weight", "weight" },
	};
	const struct kvtop_col *c;
	u32 i, nr;

	c = view_cols(VIEW_domains, &nr);
	for (i = 0; i < ARRAY_SIZE(limits); i++)
		if (ui->sort[VIEW_domains] < nr &&
		    !strcmp(c[ui->sort[VIEW_domains]].src, limits[i][0]))
			return limits[i][1];
	return "max";
}

static void do_set(struct ui *ui)
{
	ui->mode = MODE_SET;
	if (ui->view == VIEW_domains && ui->rows.nr)
		snprintf(ui->line, sizeof(ui->line), "domain/%s/memory.%s ",
			 ui->rows.row[marked(ui)].cell[0].text, limit_of(ui));
	else
		snprintf(ui->line, sizeof(ui->line), "pool/%s/size ",
			 *ui->pool ? ui->pool : "gpu0");
}

static void do_pause(struct ui *ui)	{ ui->paused = !ui->paused; }

static void do_slower(struct ui *ui)
{
	ui->interval = min(ui->interval * 2, INTERVAL_MAX);
}

static void do_faster(struct ui *ui)
{
	ui->interval = max(ui->interval / 2, INTERVAL_MIN);
}

static void do_help(struct ui *ui)
{
	ui->mode = MODE_HELP;
	ui->help_top = 0;
}

static void do_quit(struct ui *ui)	{ ui->quit = true; }

static void do_daemon(struct ui *ui)
{
	if (ui->nr_dirs)
		ui->daemon = (ui->daemon + 1) % ui->nr_dirs;
}

const struct kvtop_key kvtop_keys[] = {
#define x(code, name, help, run) { code, name, help, run },
	KVTOP_KEYS(x)
#undef x
};
const u32 nr_kvtop_keys = ARRAY_SIZE(kvtop_keys);

static bool is_enter(int code)
{
	return code == '\n' || code == '\r' || code == KEY_ENTER;
}

/* Handle a key while a line is being typed. */
static void edit_key(struct ui *ui, int code)
{
	size_t len = strlen(ui->line), most;

	most = ui->mode == MODE_FILTER ? sizeof(ui->filter) : sizeof(ui->line);
	if (code == KEY_ESCAPE) {
		if (ui->mode == MODE_FILTER)
			*ui->filter = '\0';
		ui->mode = MODE_VIEW;
		return;
	}
	if (is_enter(code)) {
		ui->send = ui->mode == MODE_SET;
		ui->mode = MODE_VIEW;
	} else if (code == CTRL('u')) {
		*ui->line = '\0';
	} else if (code == KEY_BACKSPACE || code == 127 || code == CTRL('h')) {
		if (len)
			ui->line[len - 1] = '\0';
	} else if (code >= ' ' && code <= '~' && len + 1 < most) {
		ui->line[len] = (char)code;
		ui->line[len + 1] = '\0';
	}
	if (!ui->send && (ui->mode == MODE_FILTER || is_enter(code)))
		snprintf(ui->filter, sizeof(ui->filter), "%.63s", ui->line);
}

static void help_key(struct ui *ui, int code)
{
	if (code == KEY_UP || code == 'k')
		ui->help_top--;
	else if (code == KEY_DOWN || code == 'j')
		ui->help_top++;
	else if (code == KEY_PPAGE)
		ui->help_top -= 8;
	else if (code == KEY_NPAGE)
		ui->help_top += 8;
	else
		ui->mode = MODE_VIEW;
}

/* ui_key() - handle a key, as a code of curses */
void ui_key(struct ui *ui, int code)
{
	u32 i;

	*ui->message = '\0';
	if (ui->mode == MODE_FILTER || ui->mode == MODE_SET) {
		edit_key(ui, code);
		return;
	}
	if (ui->mode == MODE_HELP) {
		help_key(ui, code);
		return;
	}
	for (i = 0; i < nr_kvtop_keys; i++) {
		if (kvtop_keys[i].code == code) {
			kvtop_keys[i].run(ui);
			return;
		}
	}
}

/* Draw a line of the help if it is on the screen. */
static int help_line(struct frame *f, int line, int top, int end, u8 at,
		     const char *name, const char *text)
{
	if (f && line >= top && line - top < end) {
		frame_puts(f, line - top, 0, at, name);
		frame_puts(f, line - top, 8, AT_NORMAL, text);
	}
	return line + 1;
}

int draw_help(struct frame *f, int top, int end)
{
	char name[2] = "";
	int line = 0;
	u32 i;

	line = help_line(f, line, top, end, AT_TITLE, "Keys", "");
	for (i = 0; i < nr_kvtop_keys; i++)
		if (kvtop_keys[i].help)
			line = help_line(f, line, top, end, AT_HEAD,
					 kvtop_keys[i].name, kvtop_keys[i].help);
	line = help_line(f, line, top, end, AT_TITLE, "", "");
	line = help_line(f, line, top, end, AT_TITLE, "Symbols",
			 "in bars and in the map: an extent, and its blocks");
	for (i = 0; i < NR_SYMS; i++) {
		name[0] = symbol_char[i];
		line = help_line(f, line, top, end, symbol_attr[i], name,
				 symbol_text[i]);
	}
	return line;
}

void ui_init(struct ui *ui, const struct kvtop_opts *o)
{
	static const struct {
		enum kvtop_view	view;
		const char	*title;
	} usual[] = {
		{ VIEW_domains, "USED" }, { VIEW_clients, "BLOCKS" },
		{ VIEW_seqs, "BLOCKS" }, { VIEW_areas, "AREA" },
	};
	const struct kvtop_col *c;
	u32 i, k, nr;

	memset(ui, 0, sizeof(*ui));
	ui->view = o->view < NR_VIEWS ? (enum kvtop_view)o->view : VIEW_domains;
	ui->client = o->client;
	ui->interval = strtod(o->interval, NULL);
	snprintf(ui->filter, sizeof(ui->filter), "%s",
		 o->filter ? o->filter : "");
	for (i = 0; i < NR_VIEWS; i++) {
		ui->sort[i] = UINT32_MAX;
		ui->key[i] = UINT64_MAX;
	}
	for (i = 0; i < ARRAY_SIZE(usual); i++) {
		c = view_cols(usual[i].view, &nr);
		for (k = 0; k < nr; k++)
			if (!strcmp(c[k].title, usual[i].title))
				ui->sort[usual[i].view] = k;
	}
	/* In the view of areas the least number comes first. */
	ui->reverse[VIEW_areas] = true;
}
