// SPDX-License-Identifier: Apache-2.0
/*
 * check_kvtop.c - kvtop without a daemon and without a terminal
 *
 * Samples are made from text, also from text that no daemon would write;
 * screens of all sizes are drawn from them while keys are pressed.
 */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "kvmm/tools/kvtop.h"

#define SECOND		1000000000ull

static struct sample *now, *old;
static struct kvtop_rows rows;
static const struct kvtop_opts plain = { .interval = "1", .view = VIEW_domains };

static void say(struct sample *s, enum kvtop_file file, const char *text)
{
	s->asked |= BIT(file);
	seq_reset(&s->text[file]);
	seq_puts(&s->text[file], text);
	ck_assert_int_eq(ktable_parse(&s->table[file], text), 0);
}

static const char meminfo[] =
	"GpuTotal: 4096 kB\nGpuFree: 1024 kB\nOpen: 64 kB\nSealed: 1984 kB\n"
	"PrefixCached: 960 kB\nQuarantine: 64 kB\nExtentsize: 256 kB\n"
	"HostTotal: 2048 kB\nHostUsed: 1 kB\nHostLimbo: 0 kB\n";
static const char domains[] =
	"id tenant weight name current_kb max_kb frob\n"
	"0 7 100 chat 1024 max 1\n1 blue 50 code\\040x 99999 2048 2\n2 7 9\n";
static const char clients[] =
	"# begin 1\nid pid begun domain state blocks comm\n"
	"0 100 4294967290 0 alive 12 kvrt\n1 200 50 9 dead 7 my\\040engine\n";

static void setup(void)
{
	now = sample_new();
	old = sample_new();
	old->when = SECOND;
	now->when = 3 * SECOND;
	say(old, FILE_status, "Name:\tkvmm\nPid:\t1\nEpoch:\tabc\n");
	say(now, FILE_status, "Name:\tkvmm\nPid:\t1\nEpoch:\tabc\n");
	say(old, FILE_vmstat, "nr_seqs 4\ngrant 100\nprefix_hit_tokens 5\nprefix_miss_tokens 5\n");
	say(now, FILE_vmstat, "nr_seqs 5\ngrant 300\nprefix_hit_tokens 35\nprefix_miss_tokens 15\n");
	say(now, FILE_meminfo, meminfo);
	say(now, FILE_pressure, "some avg10=3.25 avg60=0.00\nfull avg10=0.50 avg60=0.00\n");
	say(now, FILE_domains, domains);
	say(old, FILE_clients, clients);
	say(now, FILE_clients, "id pid begun domain state blocks comm\n"
	    "0 100 4 0 alive 12 kvrt\n1 201 60 9 dead 7 my\\040engine\n");
}

static void teardown(void)
{
	sample_free(now);
	sample_free(old);
	rows_free(&rows);
}

/* ---- text ---- */

START_TEST(test_table)
{
	struct ktable t = { 0 };
	u64 v = 5;

	ck_assert_int_eq(ktable_parse(&t, "# begin 1\n  a   bb\tc\n1 2 3\n4 x\n# end 1\n"), 0);
	ck_assert_uint_eq(t.nr_cols, 3);
	ck_assert_uint_eq(t.nr_rows, 2);
	ck_assert_str_eq(ktable_get(&t, 0, "bb"), "2");
	ck_assert_str_eq(ktable_get(&t, 1, "c"), "");
	ck_assert_ptr_null(ktable_get(&t, 0, "d"));
	ck_assert_ptr_null(ktable_get(&t, 2, "a"));
	ck_assert(ktable_num(&t, 1, "a", &v) && v == 4);
	ck_assert(!ktable_num(&t, 1, "bb", &v));
	ck_assert(!ktable_num(&t, 1, "c", &v));
	ktable_free(&t);
}
END_TEST

static const char * const odd[] = { "", "\n", "#", "# a\n", "# a", "\n\n\n", "a", "a\n",
	" \n", "a b\n\n1\n", "#\n#\n", "\t\na\n" };

START_TEST(test_odd_tables)
{
	struct ktable t = { 0 };

	ck_assert_int_eq(ktable_parse(&t, odd[_i]), 0);
	ck_assert_ptr_null(ktable_get(&t, 1, "a"));
	ktable_free(&t);
}
END_TEST

START_TEST(test_keys)
{
	static const char text[] = "GpuFree:  12 kB\nGpuFreeX: 13 kB\nname 7\nState:\tlive\n";
	u64 v;

	ck_assert(keyed_num(text, "GpuFree", &v) && v == 12);
	ck_assert(keyed_num(text, "name", &v) && v == 7);
	ck_assert(!keyed_num(text, "State", &v));
	ck_assert(!keyed_num(text, "Free", &v));
	ck_assert_int_eq(strncmp(keyed_get(text, "State"), "live\n", 5), 0);
	ck_assert_double_eq(pressure_avg10("some avg10=1.25 avg60=9\n", "some"), 1.25);
	ck_assert_double_lt(pressure_avg10("some avg10=1.25 avg60=9\n", "full"), 0);
}
END_TEST

static const struct {
	double v;
	const char *kb;
	const char *count;
	const char *rate;
} figures[] = {
	{ 0, "0", "0", "0.0" },
	{ 1, "1K", "1", "1.0" },
	{ 99.94, "99.9K", "100", "99.9" },
	{ 1023, "1023K", "1023", "1023" },
	{ 1024, "1.00M", "1024", "1024" },
	{ 10240, "10.0M", "10240", "10240" },
	{ 99999, "97.7M", "99999", "99999" },
	{ 100000, "97.7M", "100k", "100k" },
	{ 1048575, "1.00G", "1.05M", "1.05M" },
	{ 83886080, "80.0G", "83.9M", "83.9M" },
	{ 1e12, "931T", "1.00T", "1.00T" },
};

START_TEST(test_figures)
{
	char buf[32];

	ck_assert_str_eq(format_kb(figures[_i].v, buf, sizeof(buf)), figures[_i].kb);
	ck_assert_str_eq(format_count(figures[_i].v, buf, sizeof(buf)), figures[_i].count);
	ck_assert_str_eq(format_rate(figures[_i].v, buf, sizeof(buf)), figures[_i].rate);
}
END_TEST

/* A figure has at most five columns, so columns stay aligned. */
START_TEST(test_figures_are_short)
{
	char buf[32];
	double v;

	for (v = 0.001; v < 1e15; v *= 1.0037) {
		ck_assert_uint_le(strlen(format_kb(v, buf, sizeof(buf))), 5);
		ck_assert_uint_le(strlen(format_kb(floor(v), buf, sizeof(buf))), 5);
		ck_assert_uint_le(strlen(format_count(v, buf, sizeof(buf))), 5);
		ck_assert_uint_le(strlen(format_rate(v, buf, sizeof(buf))), 5);
	}
}
END_TEST

/* ---- rates ---- */

START_TEST(test_rates)
{
	ck_assert_double_eq(sample_seconds(now, old), 2);
	ck_assert_double_eq(sample_rate(now, old, "grant"), 100);
	ck_assert_double_lt(sample_rate(now, old, "no_such"), 0);
	ck_assert_double_lt(sample_rate(now, NULL, "grant"), 0);
	ck_assert_double_lt(sample_rate(old, now, "grant"), 0);
	/* Another daemon, whose counters began at 0. */
	say(now, FILE_status, "Epoch:\tabd\n");
	ck_assert_double_lt(sample_rate(now, old, "grant"), 0);
	say(now, FILE_status, "Epoch:\tabcd\n");
	ck_assert_double_lt(sample_rate(now, old, "grant"), 0);
}
END_TEST

/* The cell under @title in a row, in the daemon's order of rows. */
static const struct kvtop_cell *cell(enum kvtop_view view, u32 row, const char *title)
{
	const struct kvtop_col *c;
	u32 i, nr;

	ck_assert_int_eq(rows_make(&rows, view, now, old), 0);
	ck_assert_uint_lt(row, rows.nr);
	c = view_cols(view, &nr);
	for (i = 0; i < nr; i++)
		if (!strcmp(c[i].title, title))
			return &rows.row[row].cell[i];
	ck_abort_msg("no column %s", title);
	return NULL;
}

START_TEST(test_rows)
{
	ck_assert_str_eq(cell(VIEW_domains, 0, "NAME")->text, "chat");
	ck_assert_str_eq(cell(VIEW_domains, 0, "USED")->text, "1.00M");
	ck_assert_str_eq(cell(VIEW_domains, 0, "MAX")->text, "max");
	ck_assert_str_eq(cell(VIEW_domains, 1, "MAX")->text, "2.00M");
	/* A column that this daemon does not have, and a line that was cut. */
	ck_assert_str_eq(cell(VIEW_domains, 0, "MIN")->text, "-");
	ck_assert_str_eq(cell(VIEW_domains, 2, "USED")->text, "-");
	/* 10 steps in two seconds: the counter wrapped. */
	ck_assert_str_eq(cell(VIEW_clients, 0, "STEP/S")->text, "5.0");
	ck_assert_str_eq(cell(VIEW_clients, 0, "DOMAIN")->text, "chat");
	/* Another process with the number of an earlier client. */
	ck_assert_str_eq(cell(VIEW_clients, 1, "STEP/S")->text, "-");
	ck_assert_str_eq(cell(VIEW_clients, 1, "DOMAIN")->text, "9");
	ck_assert_str_eq(cell(VIEW_vmstat, 1, "PER-S")->text, "100");
	ck_assert_str_eq(cell(VIEW_vmstat, 0, "PER-S")->text, "-");
}
END_TEST

/* Used is the memory of sequences; the cache stands beside it, on every line. */
START_TEST(test_used_is_without_cache)
{
	struct frame f;
	struct ui ui;

	say(now, FILE_domains, "id name current_kb cached_kb\n0 chat 3072 960\n1 old 99 -\n");
	ck_assert_str_eq(cell(VIEW_domains, 0, "USED")->text, "2.06M");
	ck_assert_str_eq(cell(VIEW_domains, 0, "CACHE")->text, "960K");
	/* A daemon that does not tell. */
	ck_assert_str_eq(cell(VIEW_domains, 1, "USED")->text, "99K");
	ck_assert_str_eq(cell(VIEW_domains, 1, "CACHE")->text, "-");
	ui_init(&ui, &plain);
	ck_assert_int_eq(frame_init(&f, 24, 80), 0);
	draw_screen(&f, &ui, now, old);
	ck_assert_ptr_nonnull(strstr(f.ch, "2.06M used of 4.00M  cached 960K free 1.00M"));
	frame_free(&f);
	rows_free(&ui.rows);
}
END_TEST

/* Output tokens of two seconds, and the mean time of the four prompts that ended. */
START_TEST(test_tokens)
{
	say(old, FILE_domains, "id name output_tokens first_tokens first_ms\n0 chat 100 10 900\n1 code 5 3 7\n");
	say(now, FILE_domains, "id name output_tokens first_tokens first_ms\n0 chat 300 14 1700\n1 code 25 3 7\n");
	ck_assert_str_eq(cell(VIEW_domains, 0, "TOK/S")->text, "100");
	ck_assert_str_eq(cell(VIEW_domains, 0, "TTFT")->text, "200");
	ck_assert_str_eq(cell(VIEW_domains, 1, "TOK/S")->text, "10.0");
	ck_assert_str_eq(cell(VIEW_domains, 1, "TTFT")->text, "-");
	ck_assert_double_eq(domains_rate(now, old, "output_tokens"), 110);
	ck_assert_double_lt(domains_rate(now, NULL, "output_tokens"), 0);
}
END_TEST

/* 3 MiB in two seconds; busy for a quarter of the time. */
START_TEST(test_areas)
{
	say(old, FILE_areas, "area state total_kb rd_bytes wr_bytes busy_ns name\n"
	    "0 live 1024 0 5 7 /a\n");
	say(now, FILE_areas, "area state total_kb rd_bytes wr_bytes busy_ns name\n"
	    "1 lost 2048 9 9 9 /b\n0 live 1024 3145728 5 500000007 /a\n");
	ck_assert_str_eq(cell(VIEW_areas, 1, "RD/S")->text, "1.50M");
	ck_assert_str_eq(cell(VIEW_areas, 1, "WR/S")->text, "0");
	ck_assert_str_eq(cell(VIEW_areas, 1, "BUSY%")->text, "25.00");
	/* An area that came since the last sample. */
	ck_assert_str_eq(cell(VIEW_areas, 0, "RD/S")->text, "-");
	ck_assert_str_eq(cell(VIEW_areas, 0, "STATE")->text, "lost");
}
END_TEST

/* The names of the rows in order, as "a b c". */
static const char *order(u32 by, bool reverse, const char *filter)
{
	static char text[256];
	const struct kvtop_col *c;
	u32 i, nr;

	c = view_cols(VIEW_domains, &nr);
	ck_assert_int_eq(rows_make(&rows, VIEW_domains, now, old), 0);
	rows_filter(&rows, nr, filter);
	rows_sort(&rows, &c[by], by, reverse);
	*text = '\0';
	for (i = 0; i < rows.nr; i++)
		sprintf(text + strlen(text), "%s ", rows.row[i].cell[0].text);
	return text;
}

START_TEST(test_order_and_filter)
{
	const u32 name = 0, used = 3, limit = 9;

	ck_assert_str_eq(order(name, false, ""), "- chat code\\040x ");
	ck_assert_str_eq(order(name, true, ""), "code\\040x chat - ");
	ck_assert_str_eq(order(used, false, ""), "code\\040x chat - ");
	/* Rows with an unknown value stay behind the others. */
	ck_assert_str_eq(order(used, true, ""), "chat code\\040x - ");
	ck_assert_str_eq(order(limit, false, ""), "chat code\\040x - ");
	ck_assert_str_eq(order(name, false, "BLUE"), "code\\040x ");
	ck_assert_str_eq(order(name, false, "1.00m"), "chat ");
	ck_assert_str_eq(order(name, false, "zzz"), "");
}
END_TEST

/* ---- the map ---- */

static const char extents[] =
	"extent state blocks free open cached pinned quarantine poison\n"
	"0 absent 0 0 0 0 0 0 0\n"
	"1 span 10 10 0 0 0 0 0\n"
	"2 span 10 4 0 6 0 0 0\n"
	"3 span 10 4 1 5 0 0 0\n"
	"4 span 10 4 0 5 1 0 0\n"
	"5 span 10 4 0 4 1 1 0\n"
	"6 span 10 4 0 3 1 1 1\n"
	"7 revoking 10 4 0 3 1 0 0\n"
	"8 offline 0 0 0 0 0 0 0\n"
	"9 backed 0 0 0 0 0 0 0\n";

START_TEST(test_map)
{
	static const char want[] = "..c#pqXr-.";
	struct frame f;
	u32 i;

	say(now, FILE_extents, extents);
	for (i = 0; i < 10; i++)
		ck_assert_int_eq(symbol_char[extent_symbol(&now->table[FILE_extents], i)], want[i]);
	ck_assert_int_eq(frame_init(&f, 20, 80), 0);
	ck_assert_uint_eq(map_draw(&f, 0, 20, now), 1);
	ck_assert_ptr_nonnull(strstr(f.ch, "     0  ..c#pqXr-. "));
	ck_assert_ptr_nonnull(strstr(f.ch, ". free 3 "));
	frame_free(&f);
}
END_TEST

/* Four extents a cell: trouble shows, else the most frequent state. */
START_TEST(test_map_of_many)
{
	struct seq_file m;
	struct frame f;
	u32 i;

	seq_init(&m, 1 << 20);
	seq_puts(&m, "extent state blocks free cached quarantine\n");
	for (i = 0; i < 1000; i++)
		seq_printf(&m, "%u span 2 %u 0 %u\n", i, i % 10 ? 0 : 2, i == 999);
	say(now, FILE_extents, seq_text(&m));
	seq_free(&m);
	ck_assert_int_eq(frame_init(&f, 8, 80), 0);
	ck_assert_uint_eq(map_draw(&f, 0, 8, now), 4);
	ck_assert_ptr_nonnull(strstr(f.ch, "one cell: 4 extents"));
	ck_assert_ptr_nonnull(strstr(f.ch, "     0  ####"));
	ck_assert_ptr_nonnull(strstr(f.ch, "#q "));
	frame_free(&f);
}
END_TEST

/* ---- several device pools ---- */

static const char pools[] =
	"pool total_kb online_kb free_kb cached_kb used_kb committed_kb limit_kb domains clients device\n"
	"gpu0 1024 1024 512 128 384 0 0 1 1 works\n"
	"gpu1 1536 1024 512 0 512 0 0 1 1 works\n";

static void say_pools(void)
{
	say(now, FILE_pools, pools);
	say(now, FILE_domains, "id tenant weight pool name current_kb max_kb\n"
	    "0 7 100 gpu0 chat 1024 max\n1 7 100 gpu1-gpu2 code 512 2048\n");
	say(now, FILE_extents, extents);
}

/* The map begins a line for each pool: four extents of gpu0, the rest of gpu1. */
START_TEST(test_map_of_pools)
{
	struct frame f;

	say_pools();
	ck_assert_int_eq(frame_init(&f, 20, 80), 0);
	ck_assert_uint_eq(map_draw(&f, 0, 20, now), 1);
	ck_assert_ptr_nonnull(strstr(f.ch, "one cell: 1 extent of a pool"));
	ck_assert_ptr_nonnull(strstr(f.ch, "gpu0 "));
	ck_assert_ptr_nonnull(strstr(f.ch, "     0  ..c# "));
	ck_assert_ptr_nonnull(strstr(f.ch, "     4  pqXr-. "));
	ck_assert(strstr(f.ch, "     0  ..c#") < strstr(f.ch, "gpu1 "));
	ck_assert(strstr(f.ch, "gpu1 ") < strstr(f.ch, "     4  pq"));
	frame_free(&f);
	/* A cell never has extents of two pools. */
	ck_assert_int_eq(frame_init(&f, 9, 10), 0);
	ck_assert_uint_eq(map_draw(&f, 0, 9, now), 1);
	frame_free(&f);
}
END_TEST

/* A bar and a name for each pool, and the column of pools; `s` takes that of the mark. */
START_TEST(test_pools)
{
	struct frame f;
	struct ui ui;

	say_pools();
	ui_init(&ui, &plain);
	ck_assert_int_eq(frame_init(&f, 24, 100), 0);
	draw_screen(&f, &ui, now, old);
	ck_assert_ptr_nonnull(strstr(f.ch, "gpu0   [##"));
	ck_assert_ptr_nonnull(strstr(f.ch, " 384K used of 1.00M  cached 128K free 512K"));
	ck_assert_ptr_nonnull(strstr(f.ch, "gpu1   [##"));
	ck_assert_ptr_nonnull(strstr(f.ch, " 512K used of 1.50M"));
	ck_assert_ptr_null(strstr(f.ch, "Device"));
	ck_assert_ptr_nonnull(strstr(f.ch, " POOL "));
	ck_assert_ptr_nonnull(strstr(f.ch, " gpu0 "));
	frame_free(&f);
	/* The second line is that of code, in gpu1. */
	ui_key(&ui, 'j');
	ck_assert_int_eq(frame_init(&f, 12, 80), 0);
	draw_screen(&f, &ui, now, old);
	ck_assert_ptr_nonnull(strstr(f.ch, "Device "));
	ui_key(&ui, '4');
	ui_key(&ui, 's');
	ck_assert_str_eq(ui.line, "pool/gpu1/size ");
	frame_free(&f);
	rows_free(&ui.rows);
}
END_TEST

/* One pool alone has neither. */
START_TEST(test_one_pool)
{
	struct frame f;
	struct ui ui;

	ui_init(&ui, &plain);
	ck_assert_int_eq(frame_init(&f, 24, 200), 0);
	draw_screen(&f, &ui, now, old);
	ck_assert_ptr_nonnull(strstr(f.ch, "Device "));
	ck_assert_ptr_null(strstr(f.ch, " POOL "));
	ui_key(&ui, '<');
	ck_assert_uint_eq(ui.sort[VIEW_domains], 1);
	frame_free(&f);
	rows_free(&ui.rows);
}
END_TEST

/* ---- the screen ---- */

static void draw(struct ui *ui, int lines, int cols, const struct sample *s)
{
	struct frame f;
	int i, bad = 0;

	ck_assert_int_eq(frame_init(&f, lines, cols), 0);
	draw_screen(&f, ui, s, old);
	for (i = 0; i < lines * cols; i++)
		bad += ((f.ch[i] < ' ' || f.ch[i] > '~') &&
			(f.ch[i] < 1 || f.ch[i] > FRAME_BAR_MAX)) ||
		       f.at[i] >= NR_ATTRS;
	ck_assert_int_eq(bad, 0);
	frame_free(&f);
}

/* The whole line of the mark is marked, and no other cell. */
START_TEST(test_mark_has_no_holes)
{
	int row, col, marked[24] = { 0 };
	struct frame f;
	struct ui ui;

	ui_init(&ui, &plain);
	ck_assert_int_eq(frame_init(&f, 24, 80), 0);
	draw_screen(&f, &ui, now, old);
	for (row = 0; row < 24; row++)
		for (col = 0; col < 80; col++)
			marked[row] += f.at[row * 80 + col] == AT_MARK;
	for (row = 0; row < 24; row++)
		ck_assert_int_eq(marked[row], f.ch[row * 80] == '>' ? 80 : 0);
	frame_free(&f);
	rows_free(&ui.rows);
}
END_TEST

/* The key of the next daemon goes around; the title says which one is shown. */
START_TEST(test_daemons)
{
	static char *dirs[] = { (char *)"/run/kvmm-0", (char *)"/run/kvmm-1", NULL };
	struct frame f;
	struct ui ui;

	ui_init(&ui, &plain);
	ui_key(&ui, 'n');
	ck_assert_uint_eq(ui.daemon, 0);
	ui.dirs = dirs;
	ui.nr_dirs = 2;
	ui_key(&ui, 'n');
	ck_assert_uint_eq(ui.daemon, 1);
	ck_assert_int_eq(frame_init(&f, 24, 100), 0);
	draw_screen(&f, &ui, now, old);
	ck_assert_ptr_nonnull(strstr(f.ch, "kvmm kvmm-1 (2 of 2)  domains "));
	frame_free(&f);
	ui_key(&ui, 'n');
	ck_assert_uint_eq(ui.daemon, 0);
	rows_free(&ui.rows);
}
END_TEST

/* The lines of history: their place on the screen, and the levels of their bars. */
START_TEST(test_history)
{
	struct frame f;
	struct ui ui;
	u32 i;

	say(old, FILE_domains, "id output_tokens\n0 100\n");
	say(now, FILE_domains, "id output_tokens\n0 300\n");
	say(now, FILE_vmstat, "nr_seqs_running 3\nnr_seqs_waiting 0\nprefix_hit_tokens 35\nprefix_miss_tokens 15\n");
	ui_init(&ui, &plain);
	for (i = 0; i < 2 * HISTORY_MAX + 1; i++)
		history_add(&ui.history, now, old);
	say(now, FILE_vmstat, "nr_seqs_running 6\nnr_seqs_waiting 0\nprefix_hit_tokens 5\nprefix_miss_tokens 5\n");
	history_add(&ui.history, now, old);
	ck_assert_int_eq(frame_init(&f, 40, 30), 0);
	ck_assert_int_eq(history_draw(&f, 2, &ui.history), 2 + NR_HISTS);
	/* 2112K of 4096K are used; 3 of the most, 6, run. */
	ck_assert_int_eq(strncmp(f.ch + 2 * 30, "Used     51.6%", 14), 0);
	ck_assert_int_eq(f.ch[2 * 30 + 29], 4);
	ck_assert_int_eq(strncmp(f.ch + 3 * 30, "Running   6.0 ", 14), 0);
	ck_assert_int_eq(f.ch[3 * 30 + 29], 8);
	ck_assert_int_eq(f.ch[3 * 30 + 28], 4);
	ck_assert_int_eq(f.ch[3 * 30 + 15], 4);
	ck_assert_int_eq(strncmp(f.ch + 4 * 30, "Waiting   0.0 ", 14), 0);
	ck_assert_int_eq(f.ch[4 * 30 + 29], ' ');
	ck_assert_int_eq(strncmp(f.ch + 5 * 30, "Tok/s     100 ", 14), 0);
	/* No lookup in this sample; 3 of 4 tokens were found in those before it. */
	ck_assert_int_eq(strncmp(f.ch + 6 * 30, "Hits        - ", 14), 0);
	ck_assert_int_eq(f.ch[6 * 30 + 29], ' ');
	ck_assert_int_eq(f.ch[6 * 30 + 28], 6);
	frame_free(&f);
	/* Three lines each; and none where there is no room. */
	ck_assert_int_eq(frame_init(&f, 50, 30), 0);
	ck_assert_int_eq(history_draw(&f, 0, &ui.history), 3 * NR_HISTS);
	ck_assert_int_eq(f.ch[2 * 30 + 29], 8);
	ck_assert_int_eq(f.ch[1 * 30 + 29], 4);
	ck_assert_int_eq(f.ch[29], ' ');
	frame_free(&f);
	ck_assert_int_eq(frame_init(&f, 24, 30), 0);
	ck_assert_int_eq(history_draw(&f, 7, &ui.history), 7);
	frame_free(&f);
}
END_TEST

/* Any key at any size, also without an answer: nothing is written outside the frame. */
START_TEST(test_any_key_at_any_size)
{
	static const int sizes[][2] = { { 1, 1 }, { 2, 7 }, { 3, 12 }, { 10, 40 }, { 24, 80 },
					{ 50, 200 }, { 1, 300 }, { 200, 3 } };
	struct sample *gone = sample_new();
	u32 seed = (u32)_i * 7919 + 1, i;
	struct ui ui;

	gone->err = -ENOENT;
	strcpy(gone->why, "no daemon is at /run/kvmm/view.sock");
	say(now, FILE_extents, extents);
	say(now, FILE_seqs, "seq state\n1 ready\n2 swapped\n");
	ui_init(&ui, &plain);
	for (i = 0; i < 1000; i++) {
		seed = seed * 1103515245 + 12345;
		if (seed >> 24 < 200)
			ui_key(&ui, kvtop_keys[(seed >> 8) % nr_kvtop_keys].code);
		else
			ui_key(&ui, (int)(seed >> 8 & 0x1ff));
		ui.quit = ui.send = false;
		now->tenant = i % 32 == 0;
		draw(&ui, sizes[i % 8][0], sizes[i % 8][1],
		     i % 16 == 0 ? NULL : i % 16 == 1 ? gone : now);
	}
	rows_free(&ui.rows);
	sample_free(gone);
}
END_TEST

static void type(struct ui *ui, const char *keys)
{
	for (; *keys; keys++)
		ui_key(ui, *keys);
}

/* The mark stays on an object, not on a line. */
START_TEST(test_mark_and_line)
{
	struct ui ui;

	ui_init(&ui, &plain);
	draw(&ui, 24, 80, now);
	ck_assert_uint_eq(ui.key[VIEW_domains], 1);
	type(&ui, "j");
	ck_assert_uint_eq(ui.key[VIEW_domains], 0);
	type(&ui, "r");
	draw(&ui, 24, 80, now);
	ck_assert_uint_eq(ui.key[VIEW_domains], 0);
	type(&ui, "s");
	ck_assert_str_eq(ui.line, "domain/chat/memory.max ");
	type(&ui, "\x15" "abc\x7f" "d\n");
	ck_assert_str_eq(ui.line, "abd");
	ck_assert(ui.send);
	ui.send = false;
	/* The limit of the column that lines are sorted by. */
	type(&ui, ">>>s");
	ck_assert_str_eq(ui.line, "domain/chat/memory.min ");
	type(&ui, "\x1b" "/ch");
	ck_assert_str_eq(ui.filter, "ch");
	type(&ui, "\x1b");
	ck_assert_str_eq(ui.filter, "");
	type(&ui, "2");
	draw(&ui, 24, 80, now);
	type(&ui, "j");
	type(&ui, "\n");
	ck_assert_int_eq(ui.view, VIEW_seqs);
	ck_assert_uint_eq(ui.client, 1);
	/* Sequences of another client are not shown as those of this one. */
	say(now, FILE_seqs, "seq state\n1 ready\n2 swapped\n");
	draw(&ui, 24, 80, now);
	ck_assert_uint_eq(ui.rows.nr, 0);
	now->client = 1;
	draw(&ui, 24, 80, now);
	ck_assert_uint_eq(ui.rows.nr, 2);
	rows_free(&ui.rows);
}
END_TEST

static Suite *kvtop_suite(void)
{
	Suite *s = suite_create("kvtop");
	TCase *tc = tcase_create("kvtop");

	tcase_set_tags(tc, "unit tools");
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_table);
	tcase_add_loop_test(tc, test_odd_tables, 0, ARRAY_SIZE(odd));
	tcase_add_test(tc, test_keys);
	tcase_add_loop_test(tc, test_figures, 0, ARRAY_SIZE(figures));
	tcase_add_test(tc, test_figures_are_short);
	tcase_add_test(tc, test_rates);
	tcase_add_test(tc, test_rows);
	tcase_add_test(tc, test_used_is_without_cache);
	tcase_add_test(tc, test_tokens);
	tcase_add_test(tc, test_areas);
	tcase_add_test(tc, test_order_and_filter);
	tcase_add_test(tc, test_map);
	tcase_add_test(tc, test_map_of_many);
	tcase_add_test(tc, test_map_of_pools);
	tcase_add_test(tc, test_pools);
	tcase_add_test(tc, test_one_pool);
	tcase_add_test(tc, test_mark_has_no_holes);
	tcase_add_test(tc, test_daemons);
	tcase_add_test(tc, test_history);
	tcase_add_loop_test(tc, test_any_key_at_any_size, 0, 4);
	tcase_add_test(tc, test_mark_and_line);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	SRunner *sr = srunner_create(kvtop_suite());
	int failed;

	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
