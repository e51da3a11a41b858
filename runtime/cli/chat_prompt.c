// SPDX-License-Identifier: Apache-2.0
/*
 * chat_prompt.c - lines from a terminal or another source
 *
 * On a terminal the line is drawn again after each key, over as many rows as it
 * takes; pasted line ends are shown as a sign.  The terminal stays raw from the
 * first line to the last: otherwise keys typed between two lines would get
 * their usual meaning, and Ctrl-D would mean end of file.  The terminal is
 * restored on every way out but SIGKILL.  Lines from another source are read as
 * they are.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "runtime/cli/chat.h"

#define PASTE_ON	"\033[?2004h"
#define PASTE_OFF	"\033[?2004l"
#define SIGN_LINE_END	"\xe2\x86\xb5"

/* ---- the terminal's mode ---- */

static struct termios *to_restore;
static struct sigaction before_term, before_hup;

/* Restore the terminal, then let the signal have the effect that it had before. */
static void on_end(int sig)
{
	if (to_restore)
		tcsetattr(STDIN_FILENO, TCSANOW, to_restore);
	sigaction(sig, sig == SIGHUP ? &before_hup : &before_term, NULL);
	raise(sig);
}

static void set_mode(struct chat_prompt *p, bool keys)
{
	struct termios t = p->saved;

	if (!p->tty)
		return;
	t.c_iflag &= (tcflag_t)~(ICRNL | IXON | BRKINT | INPCK | ISTRIP);
	t.c_lflag &= (tcflag_t)~(ECHO | ICANON | IEXTEN);
	if (keys)
		t.c_lflag &= (tcflag_t)~ISIG;
	t.c_cc[VMIN] = 1;
	t.c_cc[VTIME] = 0;
	tcsetattr(STDIN_FILENO, TCSADRAIN, &t);
	p->raw = true;
}

void prompt_pause(struct chat_prompt *p)
{
	set_mode(p, false);
}

void prompt_open(struct chat_prompt *p)
{
	const struct sigaction sa = { .sa_handler = on_end };

	memset(p, 0, sizeof(*p));
	p->tty = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) &&
		 !tcgetattr(STDIN_FILENO, &p->saved);
	if (!p->tty)
		return;
	to_restore = &p->saved;
	sigaction(SIGTERM, &sa, &before_term);
	sigaction(SIGHUP, &sa, &before_hup);
	prompt_pause(p);
}

void prompt_close(struct chat_prompt *p)
{
	if (p->raw)
		tcsetattr(STDIN_FILENO, TCSADRAIN, &p->saved);
	p->raw = false;
	to_restore = NULL;
	edit_free(&p->edit);
}

/* ---- drawing ---- */

static u32 columns(void)
{
	struct winsize ws;

	if (!ioctl(STDOUT_FILENO, TIOCGWINSZ, &ws) && ws.ws_col >= 8)
		return ws.ws_col;
	return 80;
}

static void put_line(struct text *out, const struct text *line)
{
	size_t i;

	for (i = 0; i < line->len; i++) {
		if (line->p[i] == '\n')
			text_puts(out, SIGN_LINE_END);
		else if (line->p[i] == '\t')
			text_puts(out, " ");
		else
			text_add(out, line->p + i, 1);
	}
}

static void put_out(struct text *out)
{
	size_t done = 0;
	ssize_t n;

	while (!out->failed && done < out->len) {
		n = write(STDOUT_FILENO, out->p + done, out->len - done);
		if (n < 0 && errno != EINTR)
			break;
		done += n > 0 ? (size_t)n : 0;
	}
	text_free(out);
}

/* Draw the whole line, with the cursor at its place, or after the end. */
static void draw(struct chat_prompt *p, const char *mark, bool behind)
{
	const struct edit *e = &p->edit;
	const u32 width = columns(), from = (u32)strlen(mark);
	const size_t at = behind ? e->text.len : e->at;
	u32 end, cursor;
	struct text out = { 0 };

	if (p->row)
		text_printf(&out, "\033[%uA", p->row);
	text_puts(&out, "\r\033[J\033[1m");
	text_puts(&out, mark);
	text_puts(&out, "\033[0m");
	put_line(&out, &e->text);
	end = edit_columns(e->text.p, e->text.len, from, width);
	cursor = edit_columns(e->text.p, at, from, width);
	/* After a full row the terminal waits at its edge: go on. */
	if (end % width == 0)
		text_puts(&out, " \r");
	if (end / width > cursor / width)
		text_printf(&out, "\033[%uA", end / width - cursor / width);
	text_puts(&out, "\r");
	if (cursor % width)
		text_printf(&out, "\033[%uC", cursor % width);
	p->row = cursor / width;
	put_out(&out);
}

/* ---- lines ---- */

static int read_keys(struct chat_prompt *p)
{
	ssize_t n;

	do {
		n = read(STDIN_FILENO, p->ahead, sizeof(p->ahead));
	} while (n < 0 && errno == EINTR);
	p->nr_ahead = n > 0 ? (u32)n : 0;
	return n > 0;
}

/* Handle keys until one ends the line. */
static enum edit_end edit_keys(struct chat_prompt *p, const char *mark)
{
	enum edit_end end = EDIT_MORE;
	u32 used;

	for (;;) {
		for (used = 0; used < p->nr_ahead && end == EDIT_MORE; used++)
			end = edit_byte(&p->edit, (u8)p->ahead[used]);
		p->nr_ahead -= used;
		memmove(p->ahead, p->ahead + used, p->nr_ahead);
		if (end == EDIT_CLEAR) {
			struct text out = { 0 };

			text_puts(&out, "\033[H\033[2J");
			put_out(&out);
			p->row = 0;
			end = EDIT_MORE;
		}
		if (end != EDIT_MORE)
			return end;
		if (p->nr_ahead)
			continue;
		draw(p, mark, false);
		if (!read_keys(p))
			return EDIT_OVER;
	}
}

static int line_of_keys(struct chat_prompt *p, const char *mark, char **line)
{
	struct text out = { 0 };
	enum edit_end end;

	edit_begin(&p->edit);
	p->row = 0;
	set_mode(p, true);
	text_puts(&out, PASTE_ON);
	put_out(&out);
	end = edit_keys(p, mark);
	draw(p, mark, true);
	text_puts(&out, PASTE_OFF);
	text_puts(&out, end == EDIT_ABANDONED ? "^C\r\n" : "\r\n");
	put_out(&out);
	prompt_pause(p);
	if (end == EDIT_ABANDONED)
		return -EINTR;
	if (end == EDIT_OVER)
		return 0;
	/* The text has no NUL at its end. */
	*line = calloc(1, p->edit.text.len + 1);
	if (!*line)
		return -ENOMEM;
	if (p->edit.text.len)
		memcpy(*line, p->edit.text.p, p->edit.text.len);
	edit_remember(&p->edit, *line);
	return 1;
}

int prompt_line(struct chat_prompt *p, const char *mark, char **line)
{
	size_t cap = 0;
	ssize_t n;

	*line = NULL;
	if (p->tty)
		return line_of_keys(p, mark, line);
	n = getline(line, &cap, stdin);
	if (n < 0) {
		free(*line);
		*line = NULL;
		return 0;
	}
	if (n && (*line)[n - 1] == '\n')
		(*line)[--n] = '\0';
	if (n && (*line)[n - 1] == '\r')
		(*line)[--n] = '\0';
	return 1;
}
