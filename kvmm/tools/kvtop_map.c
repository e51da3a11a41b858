// SPDX-License-Identifier: Apache-2.0
/*
 * kvtop_map.c - the device pools by extent
 *
 * A cell is one extent, or several if the screen is too small.  A cell of several
 * shows trouble if one of them has it, else the symbol of most of them.  The extents
 * of a span share its blocks and look alike.  Symbols differ without colour too.  Each of
 * several device pools begins on a line of its own, behind its name.
 */
#include <stdio.h>

#include "kvmm/tools/kvtop.h"

#define x(name, c, at, text) [SYM_##name] = c,
const char symbol_char[NR_SYMS] = { KVTOP_SYMBOLS(x) };
#undef x
#define x(name, c, at, text) [SYM_##name] = at,
const u8 symbol_attr[NR_SYMS] = { KVTOP_SYMBOLS(x) };
#undef x
#define x(name, c, at, text) [SYM_##name] = #name,
const char * const symbol_name[NR_SYMS] = { KVTOP_SYMBOLS(x) };
#undef x
#define x(name, c, at, text) [SYM_##name] = text,
const char * const symbol_text[NR_SYMS] = { KVTOP_SYMBOLS(x) };
#undef x

#define LABEL		8	/* columns before the cells */

static u64 blocks_of(const struct ktable *t, u32 row, const char *column)
{
	u64 v;

	return ktable_num(t, row, column, &v) ? v : 0;
}

enum kvtop_symbol extent_symbol(const struct ktable *t, u32 row)
{
	const char *state = ktable_get(t, row, "state");
	u64 used = blocks_of(t, row, "blocks") - blocks_of(t, row, "free");

	if (blocks_of(t, row, "poison"))
		return SYM_poison;
	if (blocks_of(t, row, "quarantine"))
		return SYM_quarantine;
	if (state && !strcmp(state, "revoking"))
		return SYM_revoking;
	if (state && !strcmp(state, "offline"))
		return SYM_offline;
	if (blocks_of(t, row, "pinned"))
		return SYM_pinned;
	if (used > blocks_of(t, row, "cached"))
		return SYM_mapped;
	return used ? SYM_cached : SYM_free;
}

/* The symbol for @nr extents from @row on. */
static enum kvtop_symbol cell_symbol(const struct ktable *t, u32 row, u32 nr)
{
	u32 count[NR_SYMS] = { 0 }, i;
	enum kvtop_symbol most = SYM_free;

	for (i = row; i < row + nr && i < t->nr_rows; i++)
		count[extent_symbol(t, i)]++;
	for (i = SYM_poison; i <= SYM_revoking; i++)
		if (count[i])
			return (enum kvtop_symbol)i;
	for (i = SYM_pinned; i < NR_SYMS; i++)
		if (count[i] > count[most])
			most = (enum kvtop_symbol)i;
	return most;
}

static int cells_per_line(int cols)
{
	int n = cols - LABEL;

	/* Cells in a round number are easier to count. */
	return n > 64 ? n / 32 * 32 : n > 10 ? n / 10 * 10 : n > 1 ? n : 1;
}

/* Draw the meaning and the number of each symbol.  Return: the next line. */
static int legend_draw(struct frame *f, int row, int end, const struct ktable *t)
{
	u32 count[NR_SYMS] = { 0 }, i;
	int col = 0;

	for (i = 0; i < t->nr_rows; i++)
		count[extent_symbol(t, i)]++;
	for (i = 0; i < NR_SYMS && row < end; i++) {
		char text[48];
		int len = snprintf(text, sizeof(text), " %s %u", symbol_name[i],
				   count[i]);

		if (col && col + 1 + len > f->cols) {
			row++;
			col = 0;
		}
		if (row == end)
			break;
		frame_printf(f, row, col, symbol_attr[i], "%c", symbol_char[i]);
		col = frame_puts(f, row, col + 1, AT_NORMAL, text) + 2;
	}
	return row + 1;
}

/* The end of the extents of device pool @pool; all of them in the last, or only, one. */
static u32 pool_end(const struct sample *s, u32 pool)
{
	const u32 all = s->table[FILE_extents].nr_rows;
	const u64 extent = sample_kb(s, "Extentsize");
	u64 kb, end = 0;
	u32 i;

	if (pool + 1 >= s->table[FILE_pools].nr_rows || !extent)
		return all;
	for (i = 0; i <= pool; i++)
		end += ktable_num(&s->table[FILE_pools], i, "total_kb", &kb) ? kb : 0;
	return (u32)min(end / extent, (u64)all);
}

/* Lines of the cells of all pools, with a line for the name of each of several. */
static u32 map_lines(const struct sample *s, u32 line, u32 group)
{
	const u32 nr = max(s->table[FILE_pools].nr_rows, 1u);
	u32 lines = 0, from = 0, end, i;

	for (i = 0; i < nr; i++, from = end) {
		end = max(pool_end(s, i), from);
		lines += (nr > 1) + DIV_ROUND_UP(end - from, line * group);
	}
	return lines;
}

/* Extents of a cell, so that all pools fit @room lines. */
static u32 map_group(const struct sample *s, u32 line, u32 room)
{
	const u32 nr = s->table[FILE_pools].nr_rows;

	/* Each of several pools has its name, and a last line that may not be full. */
	if (nr > 1)
		room -= min(room - 1, 2 * nr);
	return max(DIV_ROUND_UP(s->table[FILE_extents].nr_rows, line * room), 1u);
}

/* map_height() - lines of a map that has one cell per extent */
int map_height(const struct sample *s, int cols)
{
	return 10 + (int)map_lines(s, (u32)cells_per_line(cols), 1);
}

/* Draw the extents of one pool.  Return: the next line. */
static int pool_draw(struct frame *f, int row, int end, const struct ktable *t,
		     u32 from, u32 to, u32 group)
{
	const u32 line = (u32)cells_per_line(f->cols);
	u32 i, k;

	for (i = from; i < to && row < end; row++) {
		frame_printf(f, row, 0, AT_DIM, "%6s",
			     ktable_get(t, i, "extent"));
		for (k = 0; k < line && i < to; k++, i += group) {
			enum kvtop_symbol sym = cell_symbol(t, i, min(group, to - i));

			frame_fill(f, row, LABEL + (int)k, LABEL + (int)k + 1,
				   symbol_attr[sym], symbol_char[sym]);
		}
	}
	return row;
}

/* Draw the map of each pool. */
static void pools_draw(struct frame *f, int row, int end, const struct sample *s,
		       u32 group)
{
	const u32 nr = max(s->table[FILE_pools].nr_rows, 1u);
	u32 from = 0, to, i;

	for (i = 0; i < nr; i++, from = to) {
		to = max(pool_end(s, i), from);
		if (nr > 1 && row < end)
			frame_puts(f, row++, 0, AT_HEAD,
				   ktable_get(&s->table[FILE_pools], i, "pool"));
		row = pool_draw(f, row, end, &s->table[FILE_extents], from, to, group);
	}
}

u32 map_draw(struct frame *f, int row, int end, const struct sample *s)
{
	const struct ktable *t = &s->table[FILE_extents];
	u32 line = (u32)cells_per_line(f->cols), group = 1;

	row = legend_draw(f, row, end, t);
	/* The first line gives the number of extents per cell. */
	if (row + 1 >= end || !t->nr_rows)
		return group;
	group = map_group(s, line, (u32)(end - row - 1));
	frame_printf(f, row++, 0, AT_DIM, "one cell: %u extent%s of %s", group,
		     group > 1 ? "s" : "", !sample_kb(s, "Extentsize") ? "this tenant" :
		     s->table[FILE_pools].nr_rows > 1 ? "a pool" : "the pool");
	pools_draw(f, row, end, s, group);
	return group;
}
