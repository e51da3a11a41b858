// SPDX-License-Identifier: Apache-2.0
/*
 * kvtop_batch.c - the same figures as plain text, for logs and scripts
 *
 * The frame is as long as the text needs.  It is as wide as the terminal, and in a
 * pipe or a file as wide as the text needs.  It is printed line by line,
 * without blanks at the ends and without a mark.  The first sample is not printed,
 * since rates need two.  After a daemon went away, the first sample of the next one
 * is printed, without rates.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

#include <kvmm/log.h>

#include "kvmm/tools/kvtop.h"

#define BATCH_COLS	160	/* in a pipe or a file */
#define COLS_LEAST	40
#define HEADER_ROWS	32	/* tall enough for all of it, with eight device pools */

/* Columns of the frame: those of the terminal, as the live view takes them. */
static int batch_cols(void)
{
	const char *env = getenv("COLUMNS");
	struct winsize w = { 0 };
	int cols;

	if (!isatty(STDOUT_FILENO))
		return BATCH_COLS;
	cols = env ? atoi(env) : 0;
	if (cols <= 0 && !ioctl(STDOUT_FILENO, TIOCGWINSZ, &w))
		cols = w.ws_col;
	return cols > 0 ? max(min(cols, 1000), COLS_LEAST) : BATCH_COLS;
}

static int line_length(const struct frame *f, int row)
{
	int len = f->cols;

	while (len && f->ch[row * f->cols + len - 1] == ' ')
		len--;
	return len;
}

static void print_frame(const struct frame *f)
{
	int rows = f->rows, row;

	while (rows && !line_length(f, rows - 1))
		rows--;
	for (row = 0; row < rows; row++)
		printf("%.*s\n", line_length(f, row), f->ch + row * f->cols);
}

/* Upper bound of the lines of a view. */
static int view_height(const struct sample *s, enum kvtop_view view, int cols)
{
	u32 i, lines = 0;
	const char *p;

	if (view == VIEW_map)
		return map_height(s, cols);
	for (p = seq_text(&s->text[FILE_vmstat]); *p; p++)
		lines += *p == '\n';
	for (i = 0; i < NR_FILES; i++)
		lines = max(lines, s->table[i].nr_rows);
	return (int)lines + 2;
}

static int print_header(const struct ui *ui, const struct sample *now,
			const struct sample *old)
{
	char stamp[32];
	time_t t = time(NULL);
	struct tm tm;
	struct frame f;

	if (frame_init(&f, HEADER_ROWS, batch_cols()))
		return -ENOMEM;
	localtime_r(&t, &tm);
	strftime(stamp, sizeof(stamp), "%Y-%m-%d %H:%M:%S", &tm);
	draw_header(&f, ui, now, old);
	if (line_length(&f, 0) + 2 + (int)strlen(stamp) <= f.cols)
		frame_printf(&f, 0, line_length(&f, 0) + 2, AT_NORMAL, "%s", stamp);
	print_frame(&f);
	frame_free(&f);
	return 0;
}

static int print_view(struct ui *ui, enum kvtop_view view,
		      const struct sample *now, const struct sample *old)
{
	const int cols = batch_cols(), rows = view_height(now, view, cols);
	struct frame f;

	if (frame_init(&f, rows, cols))
		return -ENOMEM;
	ui->view = view;
	printf("\n%s:\n", view_title(view));
	draw_view(&f, ui, 0, rows, now, old);
	print_frame(&f);
	frame_free(&f);
	return 0;
}

/* The view of --view; for `all` the views that are useful in a log. */
static u32 batch_views(const struct kvtop_opts *o)
{
	return o->view == VIEW_all ? BIT(VIEW_domains) | BIT(VIEW_clients) |
				     BIT(VIEW_areas) : BIT(o->view);
}

static int print_look(struct ui *ui, const struct kvtop_opts *o,
		      const struct sample *now, const struct sample *old,
		      bool first)
{
	u32 i;

	if (!first)
		printf("\n");
	if (print_header(ui, now, old))
		return EX_OSERR;
	for (i = 0; i < NR_VIEWS; i++) {
		/* Without swap areas `all` leaves their view out. */
		if (!(batch_views(o) & BIT(i)) ||
		    (o->view == VIEW_all && i == VIEW_areas &&
		     !now->table[FILE_areas].nr_rows))
			continue;
		if (print_view(ui, (enum kvtop_view)i, now, old))
			return EX_OSERR;
	}
	return fflush(stdout) ? EX_IOERR : EXIT_SUCCESS;
}

static int failure(const struct sample *s)
{
	pr_err("%s", s->why);
	if (s->err == -EACCES || s->err == -EPERM)
		return EX_NOPERM;
	return s->err == -EPROTO || s->err == -EPROTOTYPE ||
	       s->err == -EOVERFLOW || s->err == -ECONNABORTED ?
	       EX_PROTOCOL : EX_UNAVAILABLE;
}

static void wait_interval(double interval)
{
	struct timespec ts = {
		.tv_sec = (time_t)interval,
		.tv_nsec = (long)((interval - (double)(time_t)interval) * 1e9),
	};

	nanosleep(&ts, NULL);
}

int kvtop_batch(struct ui *ui, const char *path, const struct kvtop_opts *o)
{
	u32 count = o->once ? 1 : o->count, printed = 0, files = 0, i;
	struct sample *now = NULL, *old = NULL;
	int ret = EXIT_SUCCESS;

	for (i = 0; i < NR_VIEWS; i++)
		if (batch_views(o) & BIT(i))
			files |= view_files((enum kvtop_view)i);
	for (i = 0; !count || printed < count; i++) {
		if (i)
			wait_interval(ui->interval);
		sample_free(old);
		old = now;
		now = sample_new();
		if (!now) {
			ret = EX_OSERR;
			break;
		}
		sample_take(now, path, o->timeout * 1000, files, ui->client);
		if (!now->err && !i)
			continue;
		ret = now->err ? failure(now) :
		      print_look(ui, o, now, old, !printed);
		/* If the first sample failed, do not wait for a daemon. */
		if (ret && (!i || !now->err))
			break;
		printed++;
	}
	sample_free(now);
	sample_free(old);
	rows_free(&ui->rows);
	return ret;
}
