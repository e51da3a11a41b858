// SPDX-License-Identifier: Apache-2.0
/*
 * kvtop_screen.c - show a frame on a terminal, and read keys
 *
 * The only file that uses curses.  It waits for a key, a sample or a new size of
 * the terminal.  Then all is drawn into a new frame, and curses sends the
 * differences.  With NO_COLOR set, or on a terminal without colours, bold and
 * reverse text replaces colours.
 */
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>
#include <unistd.h>

#define NCURSES_NOMACROS
#include <curses.h>

#include <kvmm/log.h>

#include "kvmm/tools/ask.h"
#include "kvmm/tools/kvtop.h"

#define WAKE_MS		1000
#define ESCAPE_MS	25	/* an escape that no byte follows is the key */

static volatile sig_atomic_t ended;

static void on_end(int sig)
{
	ended = 1;
}

/* Colour, and attributes with and without colour. */
static const struct {
	short	colour;
	attr_t	with;
	attr_t	without;
} looks[NR_ATTRS] = {
	[AT_NORMAL]	= { -1, 0, 0 },
	[AT_TITLE]	= { -1, A_BOLD, A_BOLD },
	[AT_HEAD]	= { COLOR_CYAN, 0, A_BOLD },
	[AT_SORT]	= { COLOR_CYAN, A_REVERSE, A_REVERSE },
	[AT_MARK]	= { -1, A_REVERSE, A_REVERSE },
	[AT_GOOD]	= { COLOR_GREEN, 0, 0 },
	[AT_WARN]	= { COLOR_YELLOW, 0, A_BOLD },
	[AT_BAD]	= { COLOR_RED, A_BOLD, A_REVERSE },
	[AT_DIM]	= { -1, A_DIM, 0 },
	/* Blue is hard to read on black. */
	[AT_USED]	= { COLOR_CYAN, A_BOLD, 0 },
	[AT_CACHE]	= { COLOR_MAGENTA, 0, 0 },
};

static attr_t attrs[NR_ATTRS];
static bool unicode;		/* the terminal shows UTF-8 */

static void colours_init(void)
{
	const char *none = getenv("NO_COLOR");
	bool colour = (!none || !*none) && has_colors();
	short i;

	if (colour) {
		start_color();
		use_default_colors();
	}
	for (i = 0; i < NR_ATTRS; i++) {
		attrs[i] = colour ? looks[i].with : looks[i].without;
		if (!colour || looks[i].colour < 0)
			continue;
		init_pair((short)(i + 1), looks[i].colour, -1);
		attrs[i] |= (attr_t)COLOR_PAIR(i + 1);
	}
}

static void terminal_begin(void)
{
	set_escdelay(ESCAPE_MS);
	cbreak();
	noecho();
	nonl();
	keypad(stdscr, true);
	nodelay(stdscr, true);
	curs_set(0);
	colours_init();
}

/* A part of a bar, as a block of Unicode where the terminal has it. */
static void bar_show(int level, attr_t at)
{
	static const char * const block[FRAME_BAR_MAX + 1] = {
		" ", "\u2581", "\u2582", "\u2583", "\u2584", "\u2585", "\u2586",
		"\u2587", "\u2588",
	};

	if (!unicode) {
		waddch(stdscr, (chtype)" ..::||##"[level] | at);
		return;
	}
	wattrset(stdscr, (int)at);
	waddstr(stdscr, block[level]);
	wattrset(stdscr, A_NORMAL);
}

static void frame_show(const struct frame *f)
{
	int row, col;

	for (row = 0; row < f->rows; row++) {
		wmove(stdscr, row, 0);
		for (col = 0; col < f->cols; col++) {
			int i = row * f->cols + col;

			if (f->ch[i] >= 0 && f->ch[i] <= FRAME_BAR_MAX)
				bar_show(f->ch[i], attrs[f->at[i]]);
			else
				waddch(stdscr, (chtype)(unsigned char)f->ch[i] |
				       attrs[f->at[i]]);
		}
	}
	wrefresh(stdscr);
}

/* The two samples that are shown; rates are computed from both. */
struct shown {
	struct sample	*now;
	struct sample	*old;
};

/*
 * An early sample, taken for another view, replaces @now and not @old: the time
 * between both would be too short for rates.
 */
static void shown_add(struct shown *s, struct sample *fresh, double interval,
		      struct history *h)
{
	double since = s->now ? sample_seconds(fresh, s->now) : 0;

	if (since > 0 && since < interval / 2 && s->old) {
		sample_free(s->now);
	} else {
		sample_free(s->old);
		s->old = s->now;
		if (!fresh->err && !fresh->tenant)
			history_add(h, fresh, s->old);
	}
	s->now = fresh;
}

/* Send the typed line: a path and a value. */
static void send_line(struct ui *ui, struct poller *p)
{
	char req[KV_ADMIN_REQ], *value;
	int err;

	ui->send = false;
	while (*ui->line && ui->line[strlen(ui->line) - 1] == ' ')
		ui->line[strlen(ui->line) - 1] = '\0';
	value = strrchr(ui->line, ' ');
	ui->message_at = AT_BAD;
	if (!value) {
		snprintf(ui->message, sizeof(ui->message),
			 "nothing was set: give a path and a value");
		return;
	}
	*value++ = '\0';
	err = kv_admin_set_request(ui->line, value, req, sizeof(req));
	if (err == -EINVAL)
		snprintf(ui->message, sizeof(ui->message),
			 "%s: not a valid size: write " KV_SIZE_TEXT ", or max",
			 value);
	else if (err)
		snprintf(ui->message, sizeof(ui->message),
			 "%s: cannot be set: name domain/NAME/memory.max or the like, or pool/gpu0/size",
			 ui->line);
	else if (poller_send(p, req))
		snprintf(ui->message, sizeof(ui->message),
			 "the last change is not answered yet");
}

static void take_news(struct ui *ui, struct poller *p, struct shown *s)
{
	struct sample *fresh = poller_take(p);
	bool refused;

	if (fresh)
		shown_add(s, fresh, ui->interval, &ui->history);
	if (poller_answer(p, &refused, ui->message, sizeof(ui->message)))
		ui->message_at = refused ? AT_BAD : AT_GOOD;
}

static void show(struct ui *ui, const struct shown *s)
{
	int rows = getmaxy(stdscr), cols = getmaxx(stdscr);
	struct frame f;

	if (frame_init(&f, max(rows, 1), max(cols, 1)))
		return;
	draw_screen(&f, ui, s->now, s->old);
	frame_show(&f);
	frame_free(&f);
}

/* Handle all pressed keys.  After SIGWINCH curses returns a key for the new size. */
static void take_keys(struct ui *ui, struct poller *p, const struct shown *s)
{
	int code;

	while ((code = wgetch(stdscr)) != ERR) {
		if (code != KEY_RESIZE)
			ui_key(ui, code);
		if (ui->send)
			send_line(ui, p);
		/* Draw at once: the next key refers to this screen. */
		show(ui, s);
	}
}

/* Show another daemon: nothing of the last one stays. */
static void turn(struct ui *ui, struct poller *p, struct shown *s,
		 const char *tenant)
{
	char path[KV_VIEW_PATH_MAX];
	u32 i;

	if (tool_view_path(ui->dirs[ui->daemon], tenant, path))
		return;
	poller_turn(p, path);
	sample_free(s->now);
	sample_free(s->old);
	s->now = s->old = NULL;
	ui->history.nr = 0;
	for (i = 0; i < NR_VIEWS; i++)
		ui->key[i] = UINT64_MAX;
}

static void loop(struct ui *ui, struct poller *p, const char *tenant)
{
	u32 daemon = ui->daemon;
	struct shown s = { NULL, NULL };
	struct pollfd fds[] = {
		{ .fd = STDIN_FILENO, .events = POLLIN },
		{ .fd = poller_fd(p), .events = POLLIN },
	};

	while (!ui->quit && !ended) {
		poller_want(p, view_files(ui->view), ui->client, ui->interval,
			    ui->paused);
		show(ui, &s);
		/* A signal just before poll() is noticed after WAKE_MS. */
		if (poll(fds, ARRAY_SIZE(fds), WAKE_MS) < 0 && errno != EINTR)
			break;
		if (fds[0].revents & (POLLHUP | POLLERR))
			break;
		take_keys(ui, p, &s);
		if (ui->daemon != daemon)
			turn(ui, p, &s, tenant);
		daemon = ui->daemon;
		take_news(ui, p, &s);
	}
	sample_free(s.now);
	sample_free(s.old);
	rows_free(&ui->rows);
}

int kvtop_screen(struct ui *ui, const char *path, const struct kvtop_opts *o)
{
	struct sigaction sa = { .sa_handler = on_end };
	struct poller *p;
	SCREEN *screen;

	/* Before newterm(), which looks at the locale once. */
	setlocale(LC_CTYPE, "");
	unicode = !strcmp(nl_langinfo(CODESET), "UTF-8");
	screen = newterm(NULL, stdout, stdin);
	if (!screen) {
		pr_err("TERM=%s: is no terminal that can be drawn on: give --batch",
		       getenv("TERM") ? getenv("TERM") : "");
		return EX_USAGE;
	}
	sigaction(SIGTERM, &sa, NULL);
	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGHUP, &sa, NULL);
	p = poller_start(path, o->timeout * 1000, ui->interval);
	if (p) {
		terminal_begin();
		loop(ui, p, o->tenant);
		poller_stop(p);
	}
	endwin();
	if (!p)
		pr_err("no thread: %s", strerror(errno));
	return p ? EXIT_SUCCESS : EX_OSERR;
}
