// SPDX-License-Identifier: Apache-2.0
/*
 * kvtop_history.c - the last samples as lines of bars
 *
 * A sample is one column, the newest at the right edge.  Shares of a whole are drawn
 * against 100 %, other values against the greatest of them that is on the screen.
 * Only a screen with room has these lines.  They keep their place when rows of the
 * view come and go.
 */
#include <stdio.h>

#include "kvmm/tools/kvtop.h"

#define LABEL		8
#define VALUE		7	/* columns of the newest value */
#define ROOM_LOW	28	/* lines of a screen with one line for each value */
#define ROOM_HIGH	44	/* with three lines */

#define x(name, title, top, attr) title,
static const char * const titles[NR_HISTS] = { KVTOP_HISTORY(x) };
#undef x
#define x(name, title, top, attr) top,
static const double tops[NR_HISTS] = { KVTOP_HISTORY(x) };
#undef x
#define x(name, title, top, attr) attr,
static const u8 hist_attrs[NR_HISTS] = { KVTOP_HISTORY(x) };
#undef x

static double part_of(double part, double whole)
{
	return whole > 0 ? 100 * part / whole : -1;
}

static double vmstat_of(const struct sample *s, const char *key)
{
	u64 v;

	return keyed_num(seq_text(&s->text[FILE_vmstat]), key, &v) ?
	       (double)v : -1;
}

/**
 * history_add() - add the values of a sample
 * @old: the sample before it, for rates; may be NULL
 */
void history_add(struct history *h, const struct sample *now,
		 const struct sample *old)
{
	float *v = h->value[h->nr++ % HISTORY_MAX];
	double hit, miss;

	hit = sample_rate(now, old, "prefix_hit_tokens");
	miss = sample_rate(now, old, "prefix_miss_tokens");
	v[HIST_pool] = (float)part_of((double)sample_used_kb(now),
				      (double)sample_kb(now, "GpuTotal"));
	v[HIST_running] = (float)vmstat_of(now, "nr_seqs_running");
	v[HIST_waiting] = (float)vmstat_of(now, "nr_seqs_waiting");
	v[HIST_tokens] = (float)domains_rate(now, old, "output_tokens");
	v[HIST_hits] = hit < 0 || miss < 0 ? -1 : (float)part_of(hit, hit + miss);
}

/* The value of @back samples ago; negative: not known. */
static double value_at(const struct history *h, u32 line, u32 back)
{
	if (back >= min(h->nr, HISTORY_MAX))
		return -1;
	return h->value[(h->nr - 1 - back) % HISTORY_MAX][line];
}

static double top_of(const struct history *h, u32 line, u32 width)
{
	double top = tops[line];
	u32 i;

	for (i = 0; !tops[line] && i < width; i++)
		top = max(top, value_at(h, line, i));
	return top;
}

/* One value: its name, its newest figure, and @high lines of bars. */
static void draw_line(struct frame *f, int row, int high,
		      const struct history *h, u32 line)
{
	const int width = f->cols - LABEL - VALUE;
	const double top = top_of(h, line, (u32)max(width, 0));
	double v = value_at(h, line, 0);
	char num[16];
	int i, k, level;

	frame_puts(f, row + high - 1, 0, AT_HEAD, titles[line]);
	frame_printf(f, row + high - 1, LABEL, v > 0 ? AT_NORMAL : AT_DIM,
		     "%5s%s", v < 0 ? "-" : format_rate(v, num, sizeof(num)),
		     tops[line] > 0 && v >= 0 ? "%" : "");
	if (high > 1 && !tops[line] && top > 0)
		frame_printf(f, row, LABEL, AT_DIM, "%5s",
			     format_rate(top, num, sizeof(num)));
	for (i = 0; i < width; i++) {
		v = value_at(h, line, (u32)i);
		if (v < 0)
			continue;
		level = top > 0 ? (int)(v / top * 8 * high + 0.5) : 0;
		/* A value above zero has a mark. */
		level = min(max(level, v > 0 ? 1 : 0), 8 * high);
		for (k = 0; k < high; k++)
			frame_bar(f, row + high - 1 - k, f->cols - 1 - i,
				  hist_attrs[line], level - 8 * k);
	}
}

/**
 * history_draw() - draw the lines from @row on, if the screen has room for them
 * Return: the next row.
 */
int history_draw(struct frame *f, int row, const struct history *h)
{
	const int high = f->rows >= ROOM_HIGH ? 3 : 1;
	u32 i;

	if (f->rows < ROOM_LOW)
		return row;
	for (i = 0; i < NR_HISTS; i++, row += high)
		draw_line(f, row, high, h, i);
	return row;
}
