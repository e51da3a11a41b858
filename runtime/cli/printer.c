// SPDX-License-Identifier: Apache-2.0
/*
 * printer.c - print samples as text
 *
 * One sample is printed as it comes, character by character.  Of several
 * samples whole lines are printed, each with a label, as soon as there are
 * enough words for a line or the text ends one:
 *
 *	[1] In the beginning
 *	[1.1] of the past year, in the first year of the reign of the
 *	[2.1] , and I will not be afraid
 *
 * so that all of them grow before the reader's eyes, on a terminal and in a
 * file, and `grep '^\[1.1\]'` selects one.  Empty lines are left out.  Prompts
 * and samples are counted from 1.  With JSON an object is printed for each
 * sample when it has ended.
 *
 * A model's text is not trusted on a terminal: control characters could move
 * the cursor or worse, so they are shown as U+FFFD.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>

#include "runtime/cli/cli.h"

#define PRINT_WIDTH		80u
#define PRINT_WIDTH_MIN		30u
#define PRINT_WIDTH_MAX		120u
#define PRINT_HEADING_MAX	1000u

#define COLOUR_LABEL		"\033[36m"
#define COLOUR_PROMPT		"\033[1m"
#define COLOUR_OFF		"\033[0m"

static u32 terminal_width(const struct output *out)
{
	struct winsize ws;
	u32 w = PRINT_WIDTH;

	if (out->tty && !ioctl(out->fd, TIOCGWINSZ, &ws) && ws.ws_col)
		w = ws.ws_col;
	w = max(w, PRINT_WIDTH_MIN);
	return min(w, PRINT_WIDTH_MAX);
}

int printer_create(struct printer *p, enum print_mode mode,
		   struct output *out, const struct tokenizer *tok,
		   u32 nr_prompts, u32 n, u32 max_new)
{
	const char *no_colour = getenv("NO_COLOR");
	u32 i;

	memset(p, 0, sizeof(*p));
	p->mode = mode;
	p->out = out;
	p->tok = tok;
	p->width = terminal_width(out);
	p->colour = out->tty && !(no_colour && *no_colour);
	p->per_prompt = n;
	p->piece_max = tok ? detok_out_max(tok) + 4 : 1;
	p->piece = malloc(p->piece_max);
	p->list = calloc((size_t)nr_prompts * n, sizeof(*p->list));
	if (!p->piece || !p->list)
		return -ENOMEM;
	p->nr = nr_prompts * n;
	for (i = 0; i < p->nr; i++) {
		struct printed *s = &p->list[i];

		s->printer = p;
		s->prompt = i / n;
		s->sample = i % n;
		s->newline = true;
		if (tok)
			detok_init(&s->detok, tok, true);
		if (mode != PRINT_JSON)
			continue;
		s->ids = calloc(max_new, sizeof(*s->ids));
		if (!s->ids)
			return -ENOMEM;
	}
	return 0;
}

void printer_destroy(struct printer *p)
{
	u32 i;

	for (i = 0; i < p->nr; i++) {
		free(p->list[i].line);
		free(p->list[i].text);
		free(p->list[i].ids);
	}
	free(p->list);
	free(p->piece);
}

struct printed *printer_of(struct printer *p, u32 i)
{
	return &p->list[i * p->per_prompt];
}

/* ---- bytes ---- */

static bool buf_add(char **buf, size_t *len, size_t *cap, const char *data,
		    size_t n)
{
	char *more;

	if (*len + n > *cap) {
		*cap = 2 * (*len + n);
		more = realloc(*buf, *cap);
		if (!more)
			return false;
		*buf = more;
	}
	memcpy(*buf + *len, data, n);
	*len += n;
	return true;
}

/* Bytes of the UTF-8 character at @s. */
static size_t char_len(const char *s, size_t left)
{
	const u8 c = (u8)*s;
	const size_t n = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;

	return min(n, left);
}

/* C0 except tab and newline, DEL, and C1, which some terminals obey too. */
static bool is_control(const char *s, size_t n)
{
	const u8 c = (u8)s[0];

	if (n == 1)
		return (c < 0x20 && c != '\n' && c != '\t') || c == 0x7f;
	return n == 2 && c == 0xc2 && (u8)s[1] < 0xa0;
}

static void put_char(struct printer *p, const char *s, size_t n)
{
	if (p->out->tty && is_control(s, n))
		output_puts(p->out, "\xef\xbf\xbd");
	else
		output_write(p->out, s, n);
}

static void put_text(struct printer *p, const char *text, size_t len)
{
	size_t i, n;

	for (i = 0; i < len; i += n) {
		n = char_len(text + i, len - i);
		put_char(p, text + i, n);
	}
}

/* ---- lines ---- */

static u32 put_label(const struct printed *s)
{
	struct printer *p = s->printer;
	char label[32];
	int n;

	n = snprintf(label, sizeof(label), "[%u.%u] ", s->prompt + 1,
		     s->sample + 1);
	if (p->colour)
		output_puts(p->out, COLOUR_LABEL);
	output_write(p->out, label, (size_t)n);
	if (p->colour)
		output_puts(p->out, COLOUR_OFF);
	return (u32)n;
}

/*
 * Print the first @n bytes of the line and keep the rest without leading
 * blanks.
 */
static void line_out(struct printed *s, size_t n)
{
	size_t i, step, from = n;

	put_label(s);
	put_text(s->printer, s->line, n);
	output_puts(s->printer->out, "\n");
	while (from < s->len && s->line[from] == ' ')
		from++;
	if (s->len > from)
		memmove(s->line, s->line + from, s->len - from);
	s->len -= from;
	s->cols = 0;
	for (i = 0; i < s->len; i += step, s->cols++)
		step = char_len(s->line + i, s->len - i);
}

/* The line is full: break it after the last word that fits. */
static void line_break(struct printed *s)
{
	size_t n = s->len;

	while (n && s->line[n - 1] != ' ')
		n--;
	while (n && s->line[n - 1] == ' ')
		n--;
	line_out(s, n ? n : s->len);
}

static void line_add(struct printed *s, const char *text, size_t len)
{
	const u32 room = s->printer->width - 12;	/* for the label */
	size_t i, n;

	for (i = 0; i < len; i += n) {
		n = char_len(text + i, len - i);
		if (text[i] == '\n') {
			if (s->len)
				line_out(s, s->len);
			continue;
		}
		if (text[i] == ' ' && !s->len)
			continue;
		if (!buf_add(&s->line, &s->len, &s->cap, text + i, n)) {
			s->printer->out->err = -ENOMEM;
			return;
		}
		if (++s->cols > room)
			line_break(s);
	}
}

/* ---- samples ---- */

void printer_text(struct printed *s, const char *text, size_t len)
{
	struct printer *p = s->printer;

	if (!len)
		return;
	s->began = true;
	switch (p->mode) {
	case PRINT_STREAM:
		put_text(p, text, len);
		s->newline = text[len - 1] == '\n';
		break;
	case PRINT_LINES:
		line_add(s, text, len);
		break;
	case PRINT_JSON:
		if (!buf_add(&s->text, &s->text_len, &s->text_cap, text, len))
			p->out->err = -ENOMEM;
		break;
	}
}

void printer_heading(struct printer *p, u32 i, const struct prompt *prompt,
		     bool echo)
{
	const size_t len = min(prompt->len, (size_t)PRINT_HEADING_MAX);
	char label[32];

	if (p->mode == PRINT_JSON || (p->mode == PRINT_STREAM && !echo))
		return;
	if (p->colour)
		output_puts(p->out, COLOUR_PROMPT);
	if (p->mode == PRINT_LINES) {
		size_t at = 0, n;

		snprintf(label, sizeof(label), "[%u] ", i + 1);
		output_puts(p->out, label);
		for (; at < len; at += n) {
			n = char_len(prompt->text + at, prompt->len - at);
			if (prompt->text[at] == '\n')
				output_puts(p->out, " ");
			else
				put_char(p, prompt->text + at, n);
		}
		output_puts(p->out, len < prompt->len ? "..." : "");
	} else {
		put_text(p, prompt->text, prompt->len);
		printer_of(p, i)->newline = false;
	}
	if (p->colour)
		output_puts(p->out, COLOUR_OFF);
	if (p->mode == PRINT_LINES)
		output_puts(p->out, "\n");
}

void printer_token(void *arg, u32 sample, const struct engine_token *t)
{
	struct printed *s = (struct printed *)arg + sample;
	struct printer *p = s->printer;
	ssize_t n;

	if (s->ids)
		s->ids[s->nr_ids++] = t->id;
	n = detok_push(&s->detok, t->id, p->piece, p->piece_max);
	if (n > 0)
		printer_text(s, p->piece, (size_t)n);
	output_flush(p->out);
}

static void json_out(struct printed *s, const struct engine_done *done)
{
	struct printer *p = s->printer;
	json_t *ids = json_array(), *o;
	char *text = NULL;
	u32 i;

	for (i = 0; i < s->nr_ids; i++)
		json_array_append_new(ids, json_integer(s->ids[i]));
	o = json_pack("{s:i, s:i, s:s, s:I, s:i, s:i, s:o, s:s%}",
		      "prompt", (int)s->prompt + 1,
		      "sample", (int)s->sample + 1,
		      "finish_reason", engine_reason_name(done->reason),
		      "seed", (json_int_t)p->seed,
		      "prompt_tokens", (int)done->prompt_tokens,
		      "cached_tokens", (int)done->cached_tokens,
		      "ids", ids,
		      "text", s->text ? s->text : "", s->text_len);
	if (o && p->logprob)
		json_object_set_new(o, "logprob", json_real(done->logprob));
	if (o && done->reason == ENGINE_ERROR)
		json_object_set_new(o, "error", json_string(done->text));
	if (o)
		text = json_dumps(o, JSON_COMPACT);
	if (text) {
		output_puts(p->out, text);
		output_puts(p->out, "\n");
	} else {
		p->out->err = -ENOMEM;
	}
	free(text);
	json_decref(o);
}

void printer_said(struct printer *p)
{
	if (p->nr_alike)
		pr_err("prompt %u: the same of %u more samples",
		       p->said_of + 1, p->nr_alike);
	p->nr_alike = 0;
}

/* Count an error that was just printed for another sample of the prompt. */
static bool is_said(struct printer *p, const struct printed *s,
		    const char *text)
{
	if (*p->said && p->said_of == s->prompt && !strcmp(p->said, text)) {
		p->nr_alike++;
		return true;
	}
	printer_said(p);
	p->said_of = s->prompt;
	snprintf(p->said, sizeof(p->said), "%s", text);
	return false;
}

/*
 * Print the error of a sample on stderr; an error that all have in common once.
 */
static void say_error(struct printed *s, const struct engine_done *done)
{
	struct printer *p = s->printer;

	/*
	 * These errors end all samples: run() or its caller prints them once.
	 */
	if (done->err == -ECONNRESET || done->err == -ENOTRECOVERABLE)
		return;
	if (!p->failed)
		p->failed = cli_exit_of(done->err);
	if (p->per_prompt == 1)
		pr_err("prompt %u: %s", s->prompt + 1, done->text);
	else if (!is_said(p, s, done->text))
		pr_err("prompt %u, sample %u: %s", s->prompt + 1,
		       s->sample + 1, done->text);
}

void printer_end(struct printed *s, bool whole)
{
	struct printer *p = s->printer;

	if (p->mode == PRINT_LINES && (s->len || (!s->began && whole)))
		line_out(s, s->len);
	else if (p->mode == PRINT_STREAM && !s->newline)
		output_puts(p->out, "\n");
}

void printer_done(void *arg, const struct engine_done *done)
{
	struct printed *s = (struct printed *)arg + done->sample;
	struct printer *p = s->printer;
	ssize_t n;

	n = p->tok ? detok_flush(&s->detok, p->piece, p->piece_max) : 0;
	if (n > 0)
		printer_text(s, p->piece, (size_t)n);
	if (p->mode == PRINT_JSON)
		json_out(s, done);
	else
		printer_end(s, done->reason < ENGINE_CANCELLED);
	output_flush(p->out);
	if (done->reason == ENGINE_ERROR)
		say_error(s, done);
}
