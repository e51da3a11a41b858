// SPDX-License-Identifier: Apache-2.0
/*
 * kvtop_view.c - columns, rows and order of the views
 *
 * Columns stand in lists; --help and the documentation are checked against them.  A
 * column is one of the daemon's file, or computed: rates, names in place of
 * numbers.  A row keeps its sort keys apart from its text.  An unknown value is
 * shown as a dash and sorted last.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "kvmm/tools/kvtop.h"

/* Title, source, kind, width, order of leaving out, help. */
#define DOMAIN_COLS(x)							\
	x("NAME", "name", text, 12, 0, "as in paths")			\
	x("TENANT", "tenant", word, 7, 1, "its tenant")		\
	x("POOL", "pool", word, 4, 10, "its device pools; not shown if there is only one") \
	x("USED", "*used", kb, 5, 0, "memory of its sequences")		\
	x("CACHE", "cached_kb", kb, 5, 9, "cached blocks beside it; max covers both") \
	x("PEAK", "peak_kb", kb, 5, 2, "the most memory and cache ever charged") \
	x("MIN", "min_kb", kb, 5, 4, "memory.min")			\
	x("LOW", "low_kb", kb, 5, 5, "memory.low")			\
	x("HIGH", "high_kb", kb, 5, 6, "memory.high")			\
	x("MAX", "max_kb", kb, 5, 12, "memory.max")			\
	x("WGHT", "weight", num, 4, 7, "memory.weight")			\
	x("CLI", "clients", count, 3, 3, "clients")			\
	x("RUN", "running", count, 4, 11, "sequences with memory")	\
	x("WAIT", "waiting", count, 4, 11, "sequences without")		\
	x("TOK/S", "*output_tokens", rate, 5, 10, "tokens computed behind prompts a second") \
	x("TTFT", "*first", count, 5, 10, "time to first token: ms from the opening of a sequence to the end of its prompt, since the last look") \
	x("SOME%", "some_avg10", percent, 6, 9, "of 10 s, at least one was stalled") \
	x("FULL%", "full_avg10", percent, 6, 8, "of 10 s, none was productive")

#define CLIENT_COLS(x)							\
	x("ID", "id", num, 3, 0, "number of the client")		\
	x("PID", "pid", num, 7, 7, "its process")			\
	x("COMM", "comm", word, 15, 0, "its name")			\
	x("DOMAIN", "*domain", text, 6, 5, "its domain")		\
	x("STATE", "state", word, 8, 8, "alive, detached or dead")	\
	x("BLOCKS", "blocks", count, 6, 0, "held by its sequences, a shared one once for each") \
	x("SEQS", "seqs", count, 5, 2, "sequences")			\
	x("RUN", "running", count, 5, 6, "of these, with memory")	\
	x("WAIT", "waiting", count, 5, 9, "of these, without")		\
	x("STEP/S", "*steps", rate, 6, 10, "steps begun a second")	\
	x("OPEN", "steps", count, 4, 3, "steps open")			\
	x("PIN-MS", "pinned_ms", count, 6, 1, "age of the oldest open step")

#define SEQ_COLS(x)							\
	x("SEQ", "seq", num, 5, 0, "index of its handle")		\
	x("GEN", "gen", num, 6, 1, "generation of its handle")		\
	x("FAMILY", "family", num, 7, 5, "shared by forks of one request") \
	x("STATE", "state", word, 9, 0, "as in client/ID/seqs")		\
	x("PRIO", "prio", num, 4, 4, "0 is the first to lose its memory") \
	x("TOKENS", "tokens", count, 6, 0, "tokens with valid KV")		\
	x("PROMPT", "prompt", count, 6, 7, "tokens of the prompt")	\
	x("MAX", "max", count, 6, 6, "tokens that may follow")		\
	x("BLOCKS", "blocks", count, 6, 0, "mapped")			\
	x("SHARED", "shared", count, 6, 8, "of these, by others too")	\
	x("EPOCH", "epoch", num, 5, 2, "raised at every preemption")	\
	x("LOST", "preempted", count, 5, 9, "times that it lost its memory") \
	x("ARRIVAL", "arrival", num, 9, 3, "the lower was first")

#define AREA_COLS(x)							\
	x("AREA", "area", num, 4, 0, "number of the area")		\
	x("STATE", "state", word, 8, 0, "live, deleted, readonly, stalled, lost") \
	x("PRIO", "prio", num, 5, 4, "higher ones are filled first")	\
	x("SIZE", "total_kb", kb, 5, 0, "that slots may use")		\
	x("USED", "used_kb", kb, 5, 0, "that slots use")		\
	x("BAD", "bad_kb", kb, 5, 3, "slots that failed")		\
	x("RD/S", "*rd_bytes", kb, 5, 6, "bytes read a second")		\
	x("WR/S", "*wr_bytes", kb, 5, 6, "bytes written a second")	\
	x("BUSY%", "*busy_ns", percent, 6, 5, "of the time, with a request under way") \
	x("IOS", "ios", count, 4, 2, "requests not over")		\
	x("FAILED", "failed", count, 6, 1, "requests that failed")	\
	x("NAME", "name", text, 8, 7, "as in swaps")

#define VMSTAT_COLS(x)							\
	x("COUNTER", "name", word, 22, 0, "as in vmstat")		\
	x("VALUE", "value", count, 7, 0, "count of now, or since the start") \
	x("PER-S", "*rate", rate, 6, 0, "growth a second")

#define x(title, src, kind, width, shed, help)				\
	{ title, src, COL_##kind, width, shed, help },
static const struct kvtop_col domain_cols[] = { DOMAIN_COLS(x) };
static const struct kvtop_col client_cols[] = { CLIENT_COLS(x) };
static const struct kvtop_col seq_cols[] = { SEQ_COLS(x) };
static const struct kvtop_col area_cols[] = { AREA_COLS(x) };
static const struct kvtop_col vmstat_cols[] = { VMSTAT_COLS(x) };
#undef x
static_assert(ARRAY_SIZE(domain_cols) <= ROW_COLS, "room in a row");

static const struct {
	const char		*title;
	const struct kvtop_col	*cols;
	u32			nr_cols;
	u32			file;	/* FILE_*, file of the view, beside FILES_ALWAYS */
	const char		*key;	/* column that tells rows apart */
} views[NR_VIEWS] = {
#define x(name) name, ARRAY_SIZE(name)
	[VIEW_domains]	= { "domains", x(domain_cols), FILE_domains, "id" },
	[VIEW_clients]	= { "clients", x(client_cols), FILE_clients, "id" },
	[VIEW_seqs]	= { "seqs", x(seq_cols), FILE_seqs, "seq" },
	[VIEW_map]	= { "map", NULL, 0, FILE_extents, NULL },
	[VIEW_areas]	= { "areas", x(area_cols), FILE_areas, "area" },
	[VIEW_vmstat]	= { "vmstat", x(vmstat_cols), FILE_vmstat, NULL },
#undef x
};

const char *view_title(enum kvtop_view view)
{
	return views[view].title;
}

const struct kvtop_col *view_cols(enum kvtop_view view, u32 *nr)
{
	*nr = views[view].nr_cols;
	return views[view].cols;
}

u32 view_files(enum kvtop_view view)
{
	return (u32)(FILES_ALWAYS | BIT(views[view].file));
}

/* The row of @t with the same @column as @row of @now; -1: none. */
static int same_row(const struct ktable *now, u32 row,
		    const struct ktable *t, const char *column)
{
	const char *want = ktable_get(now, row, column), *have;
	u32 i;

	/* It usually has the same number. */
	have = want ? ktable_get(t, row, column) : NULL;
	if (have && !strcmp(have, want))
		return (int)row;
	for (i = 0; want && i < t->nr_rows; i++) {
		have = ktable_get(t, i, column);
		if (have && !strcmp(have, want))
			return (int)i;
	}
	return -1;
}

/* Growth of a column per second; negative: not known. */
static double row_rate(enum kvtop_view view, const struct sample *now,
		       const struct sample *old, u32 row, const char *column)
{
	double seconds = sample_seconds(now, old);
	const struct ktable *a, *b;
	u64 x, y;
	int i;

	if (seconds <= 0)
		return -1;
	a = &now->table[views[view].file];
	b = &old->table[views[view].file];
	i = same_row(a, row, b, views[view].key);
	if (i < 0 || !ktable_num(a, row, column, &x) ||
	    !ktable_num(b, (u32)i, column, &y))
		return -1;
	/* The client's number belongs to another process now: no rate. */
	if (view == VIEW_clients && same_row(a, row, b, "pid") < 0)
		return -1;
	/* Only the counter of a client wraps, at 32 bits. */
	if (view == VIEW_clients)
		return (double)(u32)(x - y) / seconds;
	return x < y ? -1 : (double)(x - y) / seconds;
}

/* The name of a client's domain, from the table of domains. */
static const char *domain_of(const struct sample *now, u32 row)
{
	const struct ktable *d = &now->table[FILE_domains];
	const char *id = ktable_get(&now->table[FILE_clients], row, "domain");
	const char *name = NULL, *other;
	u32 i;

	for (i = 0; id && i < d->nr_rows && !name; i++) {
		other = ktable_get(d, i, "id");
		if (other && !strcmp(other, id))
			name = ktable_get(d, i, "name");
	}
	return name ? name : id;
}

/* Memory charged to a domain without its cache, in kB; negative: not known. */
static double used_of(const struct sample *now, u32 row)
{
	const struct ktable *t = &now->table[FILE_domains];
	u64 all, cached = 0;

	if (!ktable_num(t, row, "current_kb", &all))
		return -1;
	/* An older daemon does not know the cache of a domain. */
	ktable_num(t, row, "cached_kb", &cached);
	return (double)(all - min(all, cached));
}

/* Milliseconds to the end of the prompt, of those that ended since @old. */
static double first_of(const struct sample *now, const struct sample *old,
		       u32 row)
{
	double nr = row_rate(VIEW_domains, now, old, row, "first_tokens");
	double ms = row_rate(VIEW_domains, now, old, row, "first_ms");

	return nr > 0 && ms >= 0 ? ms / nr : -1;
}

double domains_rate(const struct sample *now, const struct sample *old,
		    const char *column)
{
	double sum = -1, v;
	u32 i;

	for (i = 0; i < now->table[FILE_domains].nr_rows; i++) {
		v = row_rate(VIEW_domains, now, old, i, column);
		if (v >= 0)
			sum = max(sum, 0.0) + v;
	}
	return sum;
}

static void cell_none(struct kvtop_cell *c)
{
	c->num = -1;
	strcpy(c->text, "-");
}

static void cell_num(struct kvtop_cell *c, enum col_kind kind, double v)
{
	if (v < 0) {
		cell_none(c);
		return;
	}
	c->num = v;
	switch (kind) {
	case COL_kb:
		format_kb(v, c->text, sizeof(c->text));
		break;
	case COL_rate:
		format_rate(v, c->text, sizeof(c->text));
		break;
	case COL_percent:
		snprintf(c->text, sizeof(c->text), "%.2f", v);
		break;
	case COL_count:
		format_count(v, c->text, sizeof(c->text));
		break;
	default:
		snprintf(c->text, sizeof(c->text), "%.0f", v);
		break;
	}
}

static void cell_text(struct kvtop_cell *c, enum col_kind kind, const char *s)
{
	char *end;

	c->num = 0;
	if (!s || !*s) {
		cell_none(c);
	} else if (kind == COL_text || kind == COL_word) {
		snprintf(c->text, sizeof(c->text), "%s", s);
	} else if (!strcmp(s, "max")) {
		c->num = HUGE_VAL;
		strcpy(c->text, s);
	} else {
		double v = strtod(s, &end);

		cell_num(c, kind, *end ? -1 : v);
	}
}

/* Fill a column that kvtop computes. */
static void cell_own(struct kvtop_cell *c, const struct kvtop_col *col,
		     enum kvtop_view view, const struct sample *now,
		     const struct sample *old, u32 row)
{
	double v;

	if (!strcmp(col->src, "*domain")) {
		cell_text(c, col->kind, domain_of(now, row));
		return;
	}
	if (!strcmp(col->src, "*used") || !strcmp(col->src, "*first")) {
		cell_num(c, col->kind, col->src[1] == 'u' ? used_of(now, row) :
			 first_of(now, old, row));
		return;
	}
	v = row_rate(view, now, old, row, !strcmp(col->src, "*steps") ?
		     "begun" : col->src + 1);
	if (col->kind == COL_kb && v > 0)
		v = floor(v / 1024);
	/* Convert nanoseconds per second to per cent. */
	if (col->kind == COL_percent && v > 0)
		v /= 1e7;
	cell_num(c, col->kind, v);
}

/* Each line of vmstat is a row. */
static int rows_vmstat(struct kvtop_rows *r, const struct sample *now,
		       const struct sample *old)
{
	const char *p = seq_text(&now->text[FILE_vmstat]);
	u32 lines = 0;
	const char *q;
	char name[64];

	for (q = p; *q; q++)
		lines += *q == '\n';
	r->row = calloc(lines + 1, sizeof(*r->row));
	if (!r->row)
		return -ENOMEM;
	for (; *p && r->nr < lines; p = strchrnul(p, '\n') + 1) {
		struct kvtop_row *row = &r->row[r->nr];
		u64 v;

		if (sscanf(p, "%63s %lu", name, &v) != 2)
			break;
		row->key = row->order = r->nr++;
		cell_text(&row->cell[0], COL_word, name);
		cell_num(&row->cell[1], COL_count, (double)v);
		cell_num(&row->cell[2], COL_rate, strncmp(name, "nr_", 3) ?
			 sample_rate(now, old, name) : -1);
	}
	return 0;
}

int rows_make(struct kvtop_rows *r, enum kvtop_view view,
	      const struct sample *now, const struct sample *old)
{
	const struct ktable *t = &now->table[views[view].file];
	u32 i, k;

	rows_free(r);
	if (view == VIEW_vmstat)
		return rows_vmstat(r, now, old);
	r->row = calloc(t->nr_rows + 1, sizeof(*r->row));
	if (!r->row)
		return -ENOMEM;
	r->nr = views[view].nr_cols ? t->nr_rows : 0;
	for (i = 0; i < r->nr; i++) {
		struct kvtop_row *row = &r->row[i];

		row->order = i;
		if (!ktable_num(t, i, views[view].key, &row->key))
			row->key = i;
		for (k = 0; k < views[view].nr_cols; k++) {
			const struct kvtop_col *c = &views[view].cols[k];

			if (*c->src == '*')
				cell_own(&row->cell[k], c, view, now, old, i);
			else
				cell_text(&row->cell[k], c->kind,
					  ktable_get(t, i, c->src));
		}
	}
	return 0;
}

void rows_free(struct kvtop_rows *r)
{
	free(r->row);
	r->row = NULL;
	r->nr = 0;
}

void rows_filter(struct kvtop_rows *r, u32 nr_cols, const char *filter)
{
	u32 i, k, nr = 0;

	if (!*filter)
		return;
	for (i = 0; i < r->nr; i++) {
		for (k = 0; k < nr_cols; k++)
			if (strcasestr(r->row[i].cell[k].text, filter))
				break;
		if (k < nr_cols)
			r->row[nr++] = r->row[i];
	}
	r->nr = nr;
}

/* Sort order: by column @i, as text or as number. */
struct order {
	u32	i;
	bool	text;
	bool	reverse;
};

static int row_cmp(const void *a, const void *b, void *arg)
{
	const struct kvtop_row *x = a, *y = b;
	const struct order *o = arg;
	double p = x->cell[o->i].num, q = y->cell[o->i].num;
	int cmp = o->text ? strcmp(x->cell[o->i].text, y->cell[o->i].text) :
		  (p < q) - (p > q);

	/* Unknown values come last in both directions. */
	if (!o->text && (p < 0) != (q < 0))
		return cmp;
	if (o->reverse)
		cmp = -cmp;
	return cmp ? cmp : x->order < y->order ? -1 : 1;
}

void rows_sort(struct kvtop_rows *r, const struct kvtop_col *col, u32 i,
	       bool reverse)
{
	struct order o = {
		.i = i,
		.text = col->kind == COL_text || col->kind == COL_word,
		.reverse = reverse,
	};

	qsort_r(r->row, r->nr, sizeof(*r->row), row_cmp, &o);
}
