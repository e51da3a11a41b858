// SPDX-License-Identifier: Apache-2.0
/*
 * chat_edit.c - keys into a line
 *
 * Bytes of a terminal go in one by one, and a line of UTF-8 comes out.  The
 * cursor moves over characters as a reader sees them, which may be several code
 * points.  Pasted text comes between marks and is always text: line ends in it
 * do not send the line, and are kept.  Unknown key sequences are dropped as a
 * whole, and so are bytes that are no UTF-8.
 */
#include <stdlib.h>
#include <utf8proc.h>

#include "runtime/cli/chat.h"

enum { PLAIN, ESCAPE, SEQUENCE, SINGLE, LETTER };

#define KEY(c)	((c) - '@')	/* Ctrl and a letter */

void edit_begin(struct edit *e)
{
	text_clear(&e->text);
	text_clear(&e->draft);
	e->at = 0;
	e->old = e->lines.nr;
	e->state = PLAIN;
	e->paste = false;
}

void edit_free(struct edit *e)
{
	u32 i;

	for (i = 0; i < e->lines.nr; i++)
		free(e->lines.list[i]);
	free(e->lines.list);
	text_free(&e->text);
	text_free(&e->draft);
	memset(e, 0, sizeof(*e));
}

void edit_remember(struct edit *e, const char *line)
{
	char **list = e->lines.list;

	if (!*line || (e->lines.nr && !strcmp(list[e->lines.nr - 1], line)))
		return;
	if (!list)
		list = e->lines.list = calloc(EDIT_HISTORY, sizeof(*list));
	if (!list)
		return;
	if (e->lines.nr == EDIT_HISTORY) {
		free(list[0]);
		memmove(list, list + 1, --e->lines.nr * sizeof(*list));
	}
	list[e->lines.nr] = strdup(line);
	e->lines.nr += !!list[e->lines.nr];
}

/* ---- characters ---- */

/* The end of the character that begins at @i. */
static size_t char_end(const char *p, size_t n, size_t i)
{
	utf8proc_int32_t last = -1, c, state = 0;
	utf8proc_ssize_t k;

	while (i < n) {
		k = utf8proc_iterate((const utf8proc_uint8_t *)p + i,
				     (utf8proc_ssize_t)(n - i), &c);
		if (k <= 0)
			return last < 0 ? i + 1 : i;
		if (last >= 0 && utf8proc_grapheme_break_stateful(last, c,
								  &state))
			return i;
		last = c;
		i += (size_t)k;
	}
	return i;
}

static size_t char_begin(const char *p, size_t n, size_t at)
{
	size_t i = 0, next;

	while ((next = char_end(p, n, i)) < at)
		i = next;
	return i;
}

/* Columns of one character. */
static u32 char_columns(const char *p, size_t n)
{
	utf8proc_int32_t c;
	size_t i = 0;
	int w = 0;
	utf8proc_ssize_t k;

	if (n == 1 && (u8)*p < ' ')
		return 1;	/* shown as one sign */
	while (i < n) {
		k = utf8proc_iterate((const utf8proc_uint8_t *)p + i,
				     (utf8proc_ssize_t)(n - i), &c);
		if (k <= 0)
			return 1;
		w = max(w, utf8proc_charwidth(c));
		i += (size_t)k;
	}
	return (u32)w;
}

u32 edit_columns(const char *p, size_t n, u32 col, u32 width)
{
	size_t i, next;
	u32 w;

	for (i = 0; i < n; i = next) {
		next = char_end(p, n, i);
		w = char_columns(p + i, next - i);
		/* A wide character does not cross the edge. */
		if (w > 1 && col % width + w > width)
			col += width - col % width;
		col += w;
	}
	return col;
}

/* ---- changes ---- */

static void insert(struct edit *e, const char *p, size_t n)
{
	struct text *t = &e->text;

	if (t->len + n > EDIT_LINE_MAX)
		return;
	text_add(t, p, n);
	if (t->failed) {
		t->failed = false;
		return;
	}
	memmove(t->p + e->at + n, t->p + e->at, t->len - n - e->at);
	memcpy(t->p + e->at, p, n);
	e->at += n;
}

/* Remove the text between two places; the cursor goes there. */
static void take_away(struct edit *e, size_t from, size_t to)
{
	struct text *t = &e->text;

	if (to <= from)
		return;
	memmove(t->p + from, t->p + to, t->len - to);
	t->len -= to - from;
	e->at = from;
}

static size_t before(const struct edit *e)
{
	return e->at ? char_begin(e->text.p, e->text.len, e->at) : 0;
}

static size_t behind(const struct edit *e)
{
	return e->at < e->text.len ?
	       char_end(e->text.p, e->text.len, e->at) : e->at;
}

static size_t word_before(const struct edit *e)
{
	const char *p = e->text.p;
	size_t i = e->at;

	while (i && (p[i - 1] == ' ' || p[i - 1] == '\n'))
		i--;
	while (i && p[i - 1] != ' ' && p[i - 1] != '\n')
		i--;
	return i;
}

/* Show entered line @i, or the draft. */
static void show_old(struct edit *e, u32 i)
{
	if (e->old == e->lines.nr) {
		text_clear(&e->draft);
		text_add(&e->draft, e->text.p, e->text.len);
	}
	text_clear(&e->text);
	if (i == e->lines.nr)
		text_add(&e->text, e->draft.p, e->draft.len);
	else
		text_puts(&e->text, e->lines.list[i]);
	e->old = i;
	e->at = e->text.len;
}

static void older(struct edit *e)
{
	if (e->old)
		show_old(e, e->old - 1);
}

static void newer(struct edit *e)
{
	if (e->old < e->lines.nr)
		show_old(e, e->old + 1);
}

/* ---- keys ---- */

/* Handle a sequence after ESC [, up to its last letter. */
static void sequence(struct edit *e, char last)
{
	const char *s = e->seq;

	if (last == '~' && !strcmp(s, "200"))
		e->paste = true;
	else if (last == '~' && !strcmp(s, "201"))
		e->paste = false;
	else if (e->paste)
		return;
	else if (last == 'A')
		older(e);
	else if (last == 'B')
		newer(e);
	else if (last == 'C')
		e->at = behind(e);
	else if (last == 'D')
		e->at = before(e);
	else if (last == 'H' || (last == '~' && (!strcmp(s, "1") ||
						 !strcmp(s, "7"))))
		e->at = 0;
	else if (last == 'F' || (last == '~' && (!strcmp(s, "4") ||
						 !strcmp(s, "8"))))
		e->at = e->text.len;
	else if (last == '~' && !strcmp(s, "3"))
		take_away(e, e->at, behind(e));
}

static enum edit_end control(struct edit *e, u8 c)
{
	switch (c) {
	case '\r':
	case '\n':
		return EDIT_LINE;
	case KEY('C'):
		return EDIT_ABANDONED;
	case KEY('D'):
		if (!e->text.len)
			return EDIT_OVER;
		take_away(e, e->at, behind(e));
		break;
	case KEY('H'):
	case 0x7f:
		take_away(e, before(e), e->at);
		break;
	case KEY('A'):
		e->at = 0;
		break;
	case KEY('E'):
		e->at = e->text.len;
		break;
	case KEY('B'):
		e->at = before(e);
		break;
	case KEY('F'):
		e->at = behind(e);
		break;
	case KEY('P'):
		older(e);
		break;
	case KEY('N'):
		newer(e);
		break;
	case KEY('U'):
		take_away(e, 0, e->at);
		break;
	case KEY('K'):
		take_away(e, e->at, e->text.len);
		e->at = e->text.len;
		break;
	case KEY('W'):
		take_away(e, word_before(e), e->at);
		break;
	case KEY('L'):
		return EDIT_CLEAR;
	}
	return EDIT_MORE;
}

/* Take one more byte of a character that has several. */
static void letter(struct edit *e, u8 c)
{
	size_t n;

	e->seq[e->nr_seq++] = (char)c;
	n = text_utf8_len(e->seq, e->nr_seq);
	if (n) {
		insert(e, e->seq, n);
		e->state = PLAIN;
	} else if (e->nr_seq >= 4) {
		e->state = PLAIN;
	}
}

static enum edit_end plain(struct edit *e, u8 c)
{
	char text = (char)c;

	e->nr_seq = 0;
	e->seq[0] = '\0';
	if (c == 0x1b) {
		e->state = ESCAPE;
	} else if (c >= 0x80) {
		e->state = LETTER;
		letter(e, c);
	} else if (e->paste && (c == '\r' || c == '\n' || c == '\t')) {
		text = c == '\r' ? '\n' : text;
		insert(e, &text, 1);
	} else if (e->paste && (c < ' ' || c == 0x7f)) {
		return EDIT_MORE;
	} else if (c < ' ' || c == 0x7f) {
		return control(e, c);
	} else {
		insert(e, &text, 1);
	}
	return EDIT_MORE;
}

enum edit_end edit_byte(struct edit *e, u8 c)
{
	switch (e->state) {
	case ESCAPE:
		e->state = c == '[' ? SEQUENCE : c == 'O' ? SINGLE : PLAIN;
		break;
	case SEQUENCE:
		if (c < '@' || c > '~') {
			if (e->nr_seq < sizeof(e->seq) - 1)
				e->seq[e->nr_seq++] = (char)c;
			break;
		}
		/* fall through */
	case SINGLE:
		e->seq[e->nr_seq] = '\0';
		e->state = PLAIN;
		sequence(e, (char)c);
		break;
	case LETTER:
		if ((c & 0xc0) == 0x80) {
			letter(e, c);
			break;
		}
		e->state = PLAIN;	/* an incomplete character is dropped */
		/* fall through */
	default:
		return plain(e, c);
	}
	return EDIT_MORE;
}
