// SPDX-License-Identifier: Apache-2.0
/*
 * kvtop_draw.c - draw samples into a frame
 *
 * From top to bottom: one line of the node, one bar per pool (device pools have one
 * together where there is no room for more), pressure, rates; on
 * tall screens the last samples (kvtop_history.c); the names of the views; a view; a
 * line of help or the line that is being typed.  On a screen of fewer than TALL lines
 * the header has three lines.  If the columns of a view do not all fit, the least
 * important ones are left out.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "kvmm/tools/kvtop.h"

#define TALL		20	/* lines of a screen with the whole header */
#define WIDE		60
#define LABEL		8

static u64 vmstat(const struct sample *s, const char *key)
{
	u64 v;

	return keyed_num(seq_text(&s->text[FILE_vmstat]), key, &v) ? v : 0;
}

/* The value of `Key:\ttext`, as a string. */
static const char *status_of(const struct sample *s, const char *key, char *buf,
			     size_t len)
{
	const char *v = keyed_get(seq_text(&s->text[FILE_status]), key);

	snprintf(buf, len, "%.*s", v ? (int)strcspn(v, "\n") : 1, v ? v : "?");
	return buf;
}

/* Parts of a bar, each with the symbol that it has in the map. */
struct bar_part {
	enum kvtop_symbol	sym;
	u64			kb;
};

static void draw_bar(struct frame *f, int row, int col, int end,
		     const struct bar_part *part, u32 nr, u64 total)
{
	int at = col + 1, room = end - col - 2;
	u64 sum = 0;
	u32 i;

	if (room < 4 || !total)
		return;
	frame_fill(f, row, col, col + 1, AT_NORMAL, '[');
	frame_fill(f, row, end - 1, end, AT_NORMAL, ']');
	for (i = 0; i < nr; i++) {
		int to;

		sum += part[i].kb;
		to = col + 1 + (int)((double)room * (double)min(sum, total) /
				     (double)total + 0.5);
		/* A part that is not empty gets at least one cell. */
		if (part[i].kb && to == at && at < end - 1)
			to++;
		frame_fill(f, row, at, to, symbol_attr[part[i].sym],
			   symbol_char[part[i].sym]);
		at = max(at, to);
	}
}

/* One pool: its name, a bar, used and total size; @cached: cache is not in @used. */
static void draw_pool(struct frame *f, int row, const char *name,
		      const struct bar_part *part, u32 nr, u64 used, u64 total,
		      bool cached, const char *tail)
{
	/* Used memory belongs to sequences; lower tiers hold their blocks and cache. */
	const char *word = f->cols < WIDE ? "" : cached ? "used " : "held ";
	char a[16], b[16], text[80];
	int len, col;

	len = snprintf(text, sizeof(text), " %5s %sof %5s%s%s",
		       format_kb((double)used, a, sizeof(a)), word,
		       format_kb((double)total, b, sizeof(b)),
		       f->cols >= WIDE ? "  " : "", f->cols >= WIDE ? tail : "");
	col = max(min(f->cols, 100) -
		  (f->cols >= WIDE ? max(len, 47) : len), LABEL - 1);
	frame_puts(f, row, 0, AT_HEAD, name);
	draw_bar(f, row, LABEL - 1, col, part, nr, total);
	frame_puts(f, row, col, AT_NORMAL, text);
}

static int draw_device(struct frame *f, int row, const struct sample *s)
{
	const struct bar_part part[] = {
		{ SYM_poison, sample_kb(s, "HardwareCorrupted") },
		{ SYM_quarantine, sample_kb(s, "Quarantine") },
		{ SYM_revoking, sample_kb(s, "Revoking") },
		{ SYM_pinned, sample_kb(s, "Quiescing") + sample_kb(s, "Limbo") },
		{ SYM_mapped, sample_kb(s, "Open") + sample_kb(s, "Sealed") },
		{ SYM_cached, sample_kb(s, "PrefixCached") },
		{ SYM_offline, sample_kb(s, "GpuOffline") },
	};
	u64 total = sample_kb(s, "GpuTotal");
	char a[16], b[16], tail[64];

	snprintf(tail, sizeof(tail), "cached %s free %s",
		 format_kb((double)sample_kb(s, "PrefixCached"), a, sizeof(a)),
		 format_kb((double)sample_kb(s, "GpuFree"), b, sizeof(b)));
	draw_pool(f, row, "Device", part, ARRAY_SIZE(part), sample_used_kb(s),
		  total, true, tail);
	return row + 1;
}

static u64 pool_kb(const struct sample *s, u32 pool, const char *column)
{
	u64 v;

	return ktable_num(&s->table[FILE_pools], pool, column, &v) ? v : 0;
}

/* One of several device pools. */
static void draw_one_device(struct frame *f, int row, const struct sample *s, u32 pool)
{
	const u64 total = pool_kb(s, pool, "total_kb");
	const u64 used = pool_kb(s, pool, "used_kb");
	const u64 cached = pool_kb(s, pool, "cached_kb");
	const struct bar_part part[] = {
		{ SYM_mapped, used },
		{ SYM_cached, cached },
		{ SYM_offline, total - min(total, pool_kb(s, pool, "online_kb")) },
	};
	char a[16], b[16], tail[64];

	snprintf(tail, sizeof(tail), "cached %s free %s",
		 format_kb((double)cached, a, sizeof(a)),
		 format_kb((double)pool_kb(s, pool, "free_kb"), b, sizeof(b)));
	draw_pool(f, row, ktable_get(&s->table[FILE_pools], pool, "pool"), part,
		  ARRAY_SIZE(part), used, total, true, tail);
}

/* A bar for each device pool, or one for all of them on a screen that is not tall. */
static int draw_devices(struct frame *f, int row, const struct sample *s)
{
	const u32 nr = s->table[FILE_pools].nr_rows;
	u32 i;

	if (nr < 2 || f->rows < TALL + (int)nr - 1)
		return draw_device(f, row, s);
	for (i = 0; i < nr; i++)
		draw_one_device(f, row++, s, i);
	return row;
}

/* The host pool, or all swap areas; no line if there are none. */
static int draw_tier(struct frame *f, int row, const struct sample *s,
		     const char *name, const char *key)
{
	char k[4][32];
	const char *part_name[4] = { "Total", "Used", "Limbo", "Bad" };
	char a[16], tail[32];
	u32 i;

	for (i = 0; i < 4; i++)
		snprintf(k[i], sizeof(k[i]), "%s%s", key, part_name[i]);
	if (!sample_kb(s, k[0]))
		return row;
	{
		const struct bar_part part[] = {
			{ SYM_poison, sample_kb(s, k[3]) },
			{ SYM_pinned, sample_kb(s, k[2]) },
			{ SYM_mapped, sample_kb(s, k[1]) },
		};

		snprintf(tail, sizeof(tail), "in flight %s",
			 format_kb((double)sample_kb(s, k[2]), a, sizeof(a)));
		draw_pool(f, row, name, part, ARRAY_SIZE(part),
			  sample_kb(s, k[1]), sample_kb(s, k[0]), false, tail);
	}
	return row + 1;
}

static u8 stall_attr(double v)
{
	return v >= 10 ? AT_BAD : v > 0 ? AT_WARN : AT_GOOD;
}

static int draw_pressure(struct frame *f, int row, const struct sample *s)
{
	const char *text = seq_text(&s->text[FILE_pressure]);
	double some = pressure_avg10(text, "some");
	double full = pressure_avg10(text, "full");
	int col = LABEL;

	if (some < 0 || full < 0)
		return row;
	frame_puts(f, row, 0, AT_HEAD, "Stall");
	col = frame_puts(f, row, col, AT_NORMAL, "some ");
	col = frame_printf(f, row, col, stall_attr(some), "%6.2f%%", some);
	col = frame_puts(f, row, col, AT_NORMAL, "  full ");
	col = frame_printf(f, row, col, stall_attr(full), "%6.2f%%", full);
	if (f->cols >= WIDE)
		frame_puts(f, row, col, AT_DIM, "  of the last 10 s");
	return row + 1;
}

/* Per cent of the looked-up tokens that were found, between two samples. */
static double hit_percent(const struct sample *now, const struct sample *old)
{
	double hit = sample_rate(now, old, "prefix_hit_tokens");
	double miss = sample_rate(now, old, "prefix_miss_tokens");

	return hit < 0 || miss < 0 || hit + miss <= 0 ? -1 :
	       100 * hit / (hit + miss);
}

/* Name on the screen, counter of vmstat. */
#define KVTOP_RATES(x)							\
	x("grants",	"grant")					\
	x("evictions",	"prefix_evict")					\
	x("swapped",	"preempt_swap")					\
	x("recomputed",	"preempt_recompute")				\
	x("pswpin",	"pswpin")					\
	x("pswpout",	"pswpout")

static int draw_rates(struct frame *f, int row, const struct sample *now,
		      const struct sample *old)
{
	static const char * const rates[][2] = {
#define x(name, key) { name, key },
		KVTOP_RATES(x)
#undef x
	};
	char num[16], item[64];
	int col = LABEL;
	double v;
	u32 i;

	frame_puts(f, row, 0, AT_HEAD, "Per s");
	for (i = 0; i <= ARRAY_SIZE(rates); i++) {
		if (i < ARRAY_SIZE(rates)) {
			v = sample_rate(now, old, rates[i][1]);
			snprintf(item, sizeof(item), "%s %s", rates[i][0],
				 v < 0 ? "-" : format_rate(v, num, sizeof(num)));
		} else {
			v = hit_percent(now, old);
			snprintf(num, sizeof(num), "%.1f%%", v);
			snprintf(item, sizeof(item), "prefix hits %s",
				 v < 0 ? "-" : num);
		}
		if (col > LABEL && col + (int)strlen(item) > f->cols) {
			row++;
			col = LABEL;
		}
		frame_puts(f, row, col, v > 0 ? AT_NORMAL : AT_DIM, item);
		/* Columns of fixed steps: they stay in place when figures grow. */
		col += ((int)strlen(item) + 2 + 17) / 18 * 18;
	}
	return row + 1;
}

/* Which of several daemons is shown: "kvmm-3 (4 of 8) ", in place of its process. */
static int draw_which(struct frame *f, int col, const struct ui *ui)
{
	const char *slash = strrchr(ui->dirs[ui->daemon], '/');

	if (f->cols < WIDE)
		return frame_printf(f, 0, col, AT_TITLE, "%u/%u ",
				    ui->daemon + 1, ui->nr_dirs);
	return frame_printf(f, 0, col, AT_TITLE, "%s (%u of %u) ",
			    slash ? slash + 1 : ui->dirs[ui->daemon],
			    ui->daemon + 1, ui->nr_dirs);
}

static int draw_title(struct frame *f, const struct ui *ui,
		      const struct sample *s)
{
	const bool wide = f->cols >= WIDE;
	char a[64];
	int col;

	col = frame_puts(f, 0, 0, AT_TITLE, "kvmm ");
	if (s->tenant)
		col = frame_printf(f, 0, col, AT_TITLE, "tenant %s ",
				   status_of(s, "Tenant", a, sizeof(a)));
	else if (ui->nr_dirs > 1)
		col = draw_which(f, col, ui);
	else if (wide)
		col = frame_printf(f, 0, col, AT_TITLE, "%s pid %s ",
				   status_of(s, "Backend", a, 32),
				   status_of(s, "Pid", a + 32, 32));
	col = frame_printf(f, 0, col, AT_NORMAL, " %s %u  %s %u",
			   wide ? "domains" : "dom", s->table[FILE_domains].nr_rows,
			   wide ? "clients" : "cli", s->table[FILE_clients].nr_rows);
	if (!s->tenant)
		col = frame_printf(f, 0, col, AT_NORMAL, "  %s %lu  %s %lu",
				   wide ? "running" : "run",
				   vmstat(s, "nr_seqs_running"),
				   wide ? "waiting" : "wait",
				   vmstat(s, "nr_seqs_waiting"));
	frame_printf(f, 0, col, AT_DIM, "  every %gs", ui->interval);
	return 1;
}

/* A tenant's own figures, in place of the pools. */
static int draw_tenant(struct frame *f, int row, const struct sample *s)
{
	const struct ktable *t = &s->table[FILE_tenants];
	char a[16], b[16];
	u64 cur, backed;

	if (!ktable_num(t, 0, "current_kb", &cur) ||
	    !ktable_num(t, 0, "backed_kb", &backed))
		return row;
	frame_printf(f, row, 0, AT_HEAD, "Memory");
	frame_printf(f, row++, LABEL, AT_NORMAL, "charged %s  backed %s",
		     format_kb((double)cur, a, sizeof(a)),
		     format_kb((double)backed, b, sizeof(b)));
	frame_printf(f, row, 0, AT_HEAD, "Quota");
	frame_printf(f, row++, LABEL, AT_NORMAL,
		     "clients %s of %s  domains %s of %s  refused %s",
		     ktable_get(t, 0, "clients"), ktable_get(t, 0, "max_clients"),
		     ktable_get(t, 0, "domains"), ktable_get(t, 0, "max_domains"),
		     ktable_get(t, 0, "refused"));
	return row;
}

int draw_header(struct frame *f, const struct ui *ui, const struct sample *now,
		const struct sample *old)
{
	bool tall = f->rows >= TALL;
	int row = draw_title(f, ui, now);

	if (now->tenant)
		return draw_tenant(f, row, now);
	row = draw_devices(f, row, now);
	if (tall) {
		row = draw_tier(f, row, now, "Host", "Host");
		row = draw_tier(f, row, now, "Swap", "Swap");
	}
	row = draw_pressure(f, row, now);
	return tall ? draw_rates(f, row, now, old) : row;
}

/* ---- a view ---- */

/* Widths of the columns that fit into @cols; 0: left out, as POOL is without @pools. */
static void fit_columns(const struct kvtop_col *c, u32 nr, int cols, bool pools, int *width)
{
	int sum = 1, flex = -1;
	u32 i;
	u8 shed;

	for (i = 0; i < nr; i++) {
		width[i] = c[i].width;
		if (!pools && !strcmp(c[i].title, "POOL"))
			width[i] = 0;
		if (width[i])
			sum += width[i] + 1;
		if (c[i].kind == COL_text)
			flex = (int)i;
	}
	for (shed = 1; shed <= 12 && sum - 1 > cols; shed++) {
		for (i = 0; i < nr; i++) {
			if (c[i].shed != shed || !width[i])
				continue;
			sum -= width[i] + 1;
			width[i] = 0;
		}
	}
	if (flex >= 0 && width[flex] && sum - 1 < cols)
		width[flex] += min(cols - sum + 1, 40);
}

static bool to_the_left(const struct kvtop_col *c)
{
	return c->kind == COL_text || c->kind == COL_word;
}

/* One cell; a name that is cut ends in a plus sign. */
static void draw_cell(struct frame *f, int row, int col, int width, u8 at,
		      bool left, const char *text)
{
	char buf[80];
	int len = (int)strlen(text);

	width = min(width, (int)sizeof(buf) - 1);
	snprintf(buf, sizeof(buf), left ? "%-*.*s" : "%*.*s", width, width, text);
	if (len > width)
		buf[width - 1] = '+';
	frame_puts(f, row, col, at, buf);
}

static u8 cell_attr(const struct kvtop_col *c, const struct kvtop_cell *cell)
{
	if (c->kind == COL_percent && cell->num > 0)
		return stall_attr(cell->num);
	if (c->kind == COL_word && !strcmp(c->title, "STATE") &&
	    (!strcmp(cell->text, "dead") || !strcmp(cell->text, "failed") ||
	     !strcmp(cell->text, "lost") || !strcmp(cell->text, "stalled")))
		return AT_BAD;
	return AT_NORMAL;
}

/* Find the marked row; the mark stays with its record when rows move. */
static int marked_row(struct ui *ui)
{
	u32 i;

	for (i = 0; i < ui->rows.nr; i++)
		if (ui->rows.row[i].key == ui->key[ui->view])
			return (int)i;
	if (ui->rows.nr)
		ui->key[ui->view] = ui->rows.row[0].key;
	return 0;
}

/* `s` begins with the pool of the marked domain. */
static void note_pool(struct ui *ui, const struct kvtop_col *c, u32 nr)
{
	const int mark = marked_row(ui);
	u32 i;

	for (i = 0; i < nr && ui->view == VIEW_domains && ui->rows.nr; i++)
		if (!strcmp(c[i].title, "POOL"))
			snprintf(ui->pool, sizeof(ui->pool), "%.*s",
				 (int)min(strcspn(ui->rows.row[mark].cell[i].text, "-"),
					  sizeof(ui->pool) - 1),
				 ui->rows.row[mark].cell[i].text);
}

static void draw_rows(struct frame *f, struct ui *ui, int row, int end,
		      const struct kvtop_col *c, u32 nr, const int *width)
{
	int mark = marked_row(ui), *top = &ui->top[ui->view];
	int i, room = max(end - row, 1), col;
	u32 k;

	ui->page = room;
	*top = max(min(*top, mark), mark - room + 1);
	*top = max(min(*top, (int)ui->rows.nr - room), 0);
	for (i = *top; i < (int)ui->rows.nr && row < end; i++, row++) {
		const struct kvtop_row *r = &ui->rows.row[i];
		bool marked = i == mark && !ui->batch;

		/* The mark has no holes between the columns. */
		frame_fill(f, row, 0, f->cols, marked ? AT_MARK : AT_NORMAL, ' ');
		if (marked)
			frame_puts(f, row, 0, AT_MARK, ">");
		for (k = 0, col = 1; k < nr; k++) {
			if (!width[k])
				continue;
			draw_cell(f, row, col, width[k], marked ? AT_MARK :
				  cell_attr(&c[k], &r->cell[k]),
				  to_the_left(&c[k]), r->cell[k].text);
			col += width[k] + 1;
		}
	}
}

static void draw_titles(struct frame *f, const struct ui *ui, int row,
			const struct kvtop_col *c, u32 nr, const int *width)
{
	int col = 1;
	u32 k;

	frame_fill(f, row, 0, f->cols, AT_HEAD, ' ');
	for (k = 0; k < nr; k++) {
		if (!width[k])
			continue;
		draw_cell(f, row, col, width[k], k == ui->sort[ui->view] ?
			  AT_SORT : AT_HEAD, to_the_left(&c[k]), c[k].title);
		col += width[k] + 1;
	}
}

/* Has the sample the file of the view, for the chosen client? */
static bool view_ready(const struct ui *ui, const struct sample *now)
{
	u32 want = view_files(ui->view) & ~FILES_ALWAYS;

	/* A file that tenants do not see counts as answered. */
	if (now->tenant)
		want &= FILES_TENANT;
	return (now->asked & want) == want &&
	       (ui->view != VIEW_seqs || now->client == ui->client);
}

static const char *nothing_text(const struct ui *ui, const struct sample *now)
{
	if (!view_ready(ui, now))
		return "...";
	if (*ui->filter)
		return "nothing here has the text of the filter: / changes it";
	if (ui->view == VIEW_seqs)
		return now->missing & BIT(FILE_seqs) ?
		       "no such client: choose one in the view of clients" :
		       "this client has no sequences";
	return "nothing here";
}

void draw_view(struct frame *f, struct ui *ui, int row, int end,
	       const struct sample *now, const struct sample *old)
{
	int width[ROW_COLS] = { 0 };
	const struct kvtop_col *c;
	u32 nr;

	if (ui->view == VIEW_map) {
		if (view_ready(ui, now))
			map_draw(f, row, end, now);
		return;
	}
	ui->pools = sample_has_pools(now);
	c = view_cols(ui->view, &nr);
	if (rows_make(&ui->rows, ui->view, now, old))
		return;
	if (!view_ready(ui, now))
		ui->rows.nr = 0;
	rows_filter(&ui->rows, nr, ui->filter);
	/* Rows of vmstat keep the daemon's order until a column is chosen. */
	if (ui->sort[ui->view] < nr)
		rows_sort(&ui->rows, &c[ui->sort[ui->view]], ui->sort[ui->view],
			  ui->reverse[ui->view]);
	fit_columns(c, nr, f->cols, ui->pools, width);
	draw_titles(f, ui, row++, c, nr, width);
	if (!ui->rows.nr && row < end)
		frame_puts(f, row, 1, AT_DIM, nothing_text(ui, now));
	note_pool(ui, c, nr);
	draw_rows(f, ui, row, end, c, nr, width);
}

/* The numbers and names of the views; the view that is shown is marked. */
static void draw_tabs(struct frame *f, const struct ui *ui, int row)
{
	char sort[48] = "";
	const struct kvtop_col *c;
	int col = 0;
	u32 i, nr;

	for (i = 0; i < NR_VIEWS; i++) {
		bool here = i == ui->view;
		char client[16] = "";

		if (here && i == VIEW_seqs)
			snprintf(client, sizeof(client), " of %u", ui->client);
		col = frame_printf(f, row, col, here ? AT_SORT : AT_DIM,
				   f->cols >= WIDE || here ? "%s%u %s%s%s" :
				   "%s%u%.0s%s%s", here ? "[" : " ", i + 1,
				   view_title((enum kvtop_view)i), client,
				   here ? "]" : " ");
	}
	c = view_cols(ui->view, &nr);
	if (ui->sort[ui->view] < nr)
		snprintf(sort, sizeof(sort), "by %s %s ",
			 c[ui->sort[ui->view]].title,
			 to_the_left(&c[ui->sort[ui->view]]) ==
			 ui->reverse[ui->view] ? "down" : "up");
	if (*ui->filter)
		col = frame_printf(f, row, col, AT_WARN, " /%s", ui->filter);
	if (f->cols >= WIDE)
		frame_puts(f, row, max(f->cols - (int)strlen(sort), col + 1),
			   AT_DIM, sort);
}

/* A message in as many lines as it needs, at most @most; the last line is @last. */
static void draw_message(struct frame *f, int last, int most, u8 at,
			 const char *text)
{
	int len = (int)strlen(text), lines, i;

	lines = min(DIV_ROUND_UP(len, f->cols), min(last + 1, most));
	for (i = 0; i < lines; i++) {
		const int row = last + 1 - lines + i;
		const int n = min(len - i * f->cols, f->cols);

		frame_fill(f, row, 0, f->cols, AT_NORMAL, ' ');
		frame_printf(f, row, 0, at, "%.*s", n, text + i * f->cols);
	}
}

static void draw_footer(struct frame *f, const struct ui *ui,
			const struct sample *now)
{
	const int row = f->rows - 1, room = max(f->cols - 10, 1);
	int skip, col;

	frame_fill(f, row, 0, f->cols, AT_NORMAL, ' ');
	if (ui->mode == MODE_FILTER || ui->mode == MODE_SET) {
		/* If the line is too long, its end is shown. */
		skip = max((int)strlen(ui->line) - room, 0);
		col = frame_puts(f, row, 0, AT_TITLE, ui->mode == MODE_SET ?
				 "set: " : "filter: ");
		col = frame_puts(f, row, col, AT_NORMAL, ui->line + skip);
		frame_fill(f, row, col, col + 1, AT_MARK, '_');
	} else if (*ui->message) {
		draw_message(f, row, 3, ui->message_at, ui->message);
	} else if (now && now->err) {
		frame_puts(f, row, 0, AT_BAD, "trying again  q quit");
	} else {
		frame_puts(f, row, 0, AT_DIM, f->cols >= WIDE ?
			   "h help  q quit  / filter  < > sort  r reverse  s set a limit  Enter look inside" :
			   "h help  q quit  / filter  < > sort");
	}
	if (ui->paused && ui->mode == MODE_VIEW)
		frame_puts(f, row, max(f->cols - 9, 0), AT_WARN, " [paused]");
}

void draw_screen(struct frame *f, struct ui *ui, const struct sample *now,
		 const struct sample *old)
{
	const int end = f->rows - 1;
	int row;

	if (ui->mode == MODE_HELP) {
		ui->help_top = max(min(ui->help_top, draw_help(NULL, 0, 0) - end),
				   0);
		draw_help(f, ui->help_top, end);
		frame_puts(f, end, 0, AT_DIM, "Up and Down scroll, other keys go back");
		return;
	}
	if (!now) {
		frame_puts(f, 0, 0, AT_TITLE, "kvmm ");
		frame_puts(f, 1, 0, AT_DIM, "waiting for the first answer");
	} else if (now->err) {
		frame_puts(f, 0, 0, AT_TITLE, "kvmm ");
		frame_puts(f, 0, 6, AT_BAD, "no daemon answers");
		draw_message(f, min(5, end - 1), 4, AT_NORMAL, now->why);
	} else {
		row = draw_header(f, ui, now, old);
		if (!now->tenant)
			row = history_draw(f, row, &ui->history);
		draw_tabs(f, ui, row++);
		draw_view(f, ui, row, end, now, old);
	}
	draw_footer(f, ui, now);
}
