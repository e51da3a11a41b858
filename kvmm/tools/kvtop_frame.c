// SPDX-License-Identifier: Apache-2.0
/*
 * kvtop_frame.c - a rectangle of characters and their attributes
 *
 * All drawing goes to a frame first.  So it can be printed, compared by tests and
 * shown on a terminal.  No function writes outside of the frame: longer text is
 * cut, so a terminal of any size is safe.  Only ASCII is needed: the daemon escaped
 * the names.  A cell from 1 to FRAME_BAR_MAX is a part of a bar, which a terminal
 * shows in its own way.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "kvmm/tools/kvtop.h"

int frame_init(struct frame *f, int rows, int cols)
{
	size_t n = (size_t)rows * (size_t)cols;

	f->rows = rows;
	f->cols = cols;
	f->ch = malloc(n + 1);
	f->at = calloc(n + 1, 1);
	if (!f->ch || !f->at) {
		frame_free(f);
		return -ENOMEM;
	}
	memset(f->ch, ' ', n);
	f->ch[n] = '\0';
	return 0;
}

void frame_free(struct frame *f)
{
	free(f->ch);
	free(f->at);
	memset(f, 0, sizeof(*f));
}

static void frame_put(struct frame *f, int row, int col, u8 at, char c)
{
	if (row < 0 || row >= f->rows || col < 0 || col >= f->cols)
		return;
	f->ch[row * f->cols + col] = c >= ' ' && c <= '~' ? c : '?';
	f->at[row * f->cols + col] = at;
}

void frame_bar(struct frame *f, int row, int col, u8 at, int level)
{
	if (row < 0 || row >= f->rows || col < 0 || col >= f->cols)
		return;
	f->ch[row * f->cols + col] = level > 0 ?
		(char)min(level, FRAME_BAR_MAX) : ' ';
	f->at[row * f->cols + col] = at;
}

int frame_puts(struct frame *f, int row, int col, u8 at, const char *s)
{
	for (; *s; s++)
		frame_put(f, row, col++, at, *s);
	return col;
}

int frame_printf(struct frame *f, int row, int col, u8 at, const char *fmt, ...)
{
	char buf[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(buf, sizeof(buf), fmt, ap);
	va_end(ap);
	return frame_puts(f, row, col, at, buf);
}

void frame_fill(struct frame *f, int row, int col, int end, u8 at, char c)
{
	for (; col < end; col++)
		frame_put(f, row, col, at, c);
}
