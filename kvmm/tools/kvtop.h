/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtop.h - what the files of kvtop share
 *
 * A sample is the text of some files, parsed; two of them give rates.  Views
 * make rows of a sample, a frame takes what is to be seen, and whoever has a
 * frame shows it: a terminal (kvtop_screen.c) or a log (kvtop_batch.c).
 */
#ifndef KVMM_TOOLS_KVTOP_H
#define KVMM_TOOLS_KVTOP_H

#include <kvmm/admin.h>
#include <kvmm/opts.h>
#include <kvmm/seq.h>
#include <kvmm/view.h>

#define KVTOP_OPTIONS(x)						\
	x(str, socket, "socket", NULL, 0, 0, "PATH",			\
	  "view socket of the daemon, or the directory it lies in (default as of kvctl: view.sock in the run directory)") \
	x(str, tenant, "tenant", NULL, 0, 0, "NAME",			\
	  "show the view of a --tenant of the daemon: view.sock in the directory NAME beside the daemon's own") \
	x(str, interval, "interval", "1", 0, 0, "SECONDS",		\
	  "time between two looks, 0.05 to 3600")			\
	x(uint, timeout, "timeout", "5", 1, 3600, "SECONDS",		\
	  "longest silence of the daemon")				\
	x(choice, view, "view", "domains", 0, 0, "domains|clients|seqs|map|areas|vmstat|all", \
	  "the first view; all, with --batch: domains, clients and areas") \
	x(uint, client, "client", "0", 0, 0, "ID",			\
	  "the client of --view seqs")				\
	x(str, sort, "sort", NULL, 0, 0, "COLUMN",			\
	  "title of the column that the first view is sorted by")	\
	x(str, filter, "filter", NULL, 0, 0, "TEXT",			\
	  "show only lines that have this text, in capitals or not")	\
	x(flag, batch, "batch", NULL, 0, 0, NULL,			\
	  "print plain text, for logs and scripts; also -b")		\
	x(flag, once, "once", NULL, 0, 0, NULL,				\
	  "print one look, after the interval that rates need; is --batch --count 1") \
	x(uint, count, "count", "0", 0, 0, "N",				\
	  "with --batch: so many looks, 0: until it is stopped; also -n")

struct kvtop_opts {
#define x OPT_FIELD
	KVTOP_OPTIONS(x)
#undef x
};

/* ---- kvtop_text.c: the text of the files ---- */

/**
 * struct ktable - a file that is a table: a header line, then records
 * @text: a copy, cut into words; @cell point into it
 * @cell: @nr_rows + 1 times @nr_cols; the first row is the header
 */
struct ktable {
	char		*text;
	const char	**cell;
	u32		nr_cols;
	u32		nr_rows;
};

/* Lines with # are skipped; what a short line lacks is "". 0 or -ENOMEM */
int __must_check ktable_parse(struct ktable *t, const char *text);
void ktable_free(struct ktable *t);
/* Value of a column, NULL: no such column. @row from 0 */
const char *ktable_get(const struct ktable *t, u32 row, const char *column);
/* The same as a number; false: no column, or no number, as in `max` */
bool ktable_num(const struct ktable *t, u32 row, const char *column, u64 *v);
/* `Key:   12 kB`, `Key:\ttext` or `name 12`; NULL: it is not there */
const char *keyed_get(const char *text, const char *key);
bool keyed_num(const char *text, const char *key, u64 *v);
/* avg10 of a line `some avg10=1.23 ...`, or a negative number */
double pressure_avg10(const char *text, const char *kind);

/* At most 5 columns: 1023K, 9.99M, 80.0G; of kB */
char *format_kb(double kb, char *buf, size_t len);
/* At most 5 columns: 99999, 123k, 1.2M; decimal */
char *format_count(double n, char *buf, size_t len);
/* As before, with one place behind the point below 100 */
char *format_rate(double n, char *buf, size_t len);

/* ---- kvtop_sample.c: one look at the daemon ---- */

/* Name, path, is it a table; seqs: of a client. */
#define KVTOP_FILES(x)							\
	x(status,	"status",		false)			\
	x(meminfo,	"meminfo",		false)			\
	x(vmstat,	"vmstat",		false)			\
	x(pressure,	"pressure/memory",	false)			\
	x(tenants,	"tenants",		true)			\
	x(domains,	"domains",		true)			\
	x(clients,	"clients",		true)			\
	x(areas,	"swapareas",		true)			\
	x(extents,	"extentinfo",		true)			\
	x(seqs,		"client/%u/seqs",	true)

enum kvtop_file {
#define x(name, path, table) FILE_##name,
	KVTOP_FILES(x)
#undef x
	NR_FILES
};

/* What a look without a view of its own needs. */
#define FILES_ALWAYS	(BIT(FILE_status) | BIT(FILE_meminfo) | BIT(FILE_vmstat) | \
			 BIT(FILE_pressure) | BIT(FILE_domains) | BIT(FILE_clients))
/* What a tenant has of these, and what only a tenant is shown. */
#define FILES_TENANT	(BIT(FILE_status) | BIT(FILE_tenants) | BIT(FILE_domains) | \
			 BIT(FILE_clients) | BIT(FILE_extents) | BIT(FILE_seqs))

/**
 * struct sample - what the files said
 * @err:     of the connection, negative: nothing else is valid
 * @why:     in words
 * @when:    CLOCK_MONOTONIC, ns, when the counters were read
 * @took:    ns that all of it took
 * @tenant:  the socket is a tenant's
 * @client:  whose @text[FILE_seqs] is
 * @asked:   BIT(FILE_*) of those that were asked for
 * @missing: of these, those that the daemon refused
 * @text, @table: by FILE_*; "" and empty: not asked for
 */
struct sample {
	int		err;
	char		why[256];
	u64		when;
	u64		took;
	bool		tenant;
	u32		client;
	u32		asked;
	u32		missing;
	struct seq_file	text[NR_FILES];
	struct ktable	table[NR_FILES];
};

struct sample *sample_new(void);
void sample_free(struct sample *s);
/* Ask for BIT(FILE_*) in @files; failures are in @s */
void sample_take(struct sample *s, const char *path, u32 timeout_ms, u32 files,
		 u32 client);
/* Growth of a counter of vmstat a second; negative: not known */
double sample_rate(const struct sample *now, const struct sample *old,
		   const char *key);
/* Seconds between two samples of one daemon, or 0 */
double sample_seconds(const struct sample *now, const struct sample *old);
u64 kvtop_now_ns(void);

/* ---- kvtop_view.c: rows ---- */

enum kvtop_view {
	VIEW_domains,
	VIEW_clients,
	VIEW_seqs,
	VIEW_map,
	VIEW_areas,
	VIEW_vmstat,
	NR_VIEWS,
	VIEW_all = NR_VIEWS,	/* of --view */
};

enum col_kind {
	COL_text,		/* to the left, takes what room there is */
	COL_word,		/* to the left, fixed width */
	COL_num,		/* as it is printed by the daemon */
	COL_count,
	COL_kb,			/* of kB, or max */
	COL_percent,
	COL_rate,
};

/**
 * struct kvtop_col - a column of a view
 * @title: in capitals
 * @src:   column of the file; with * before it, of kvtop's own making
 * @width: least for COL_text
 * @shed:  order in which they go when there is no room, 0: never
 */
struct kvtop_col {
	const char	*title;
	const char	*src;
	enum col_kind	kind;
	u8		width;
	u8		shed;
	const char	*help;
};

#define ROW_COLS	14

struct kvtop_cell {
	double	num;		/* what it is sorted by */
	char	text[64];
};

struct kvtop_row {
	u64			key;	/* the same thing has the same */
	u32			order;
	struct kvtop_cell	cell[ROW_COLS];
};

struct kvtop_rows {
	u32			nr;
	struct kvtop_row	*row;
};

const char *view_title(enum kvtop_view view);
const struct kvtop_col *view_cols(enum kvtop_view view, u32 *nr);
u32 view_files(enum kvtop_view view);
/* Of what is in @now; @old: for rates, may be NULL.  0 or -ENOMEM */
int __must_check rows_make(struct kvtop_rows *r, enum kvtop_view view,
			   const struct sample *now, const struct sample *old);
void rows_free(struct kvtop_rows *r);
void rows_filter(struct kvtop_rows *r, u32 nr_cols, const char *filter);
void rows_sort(struct kvtop_rows *r, const struct kvtop_col *col, u32 i,
	       bool reverse);

/* ---- kvtop_frame.c: what is to be seen ---- */

enum frame_attr {
	AT_NORMAL, AT_TITLE, AT_HEAD, AT_SORT, AT_MARK, AT_GOOD, AT_WARN,
	AT_BAD, AT_DIM, AT_USED, AT_CACHE, NR_ATTRS
};

/* ASCII and AT_*, a byte a cell. */
struct frame {
	int	rows;
	int	cols;
	char	*ch;
	u8	*at;
};

int __must_check frame_init(struct frame *f, int rows, int cols);
void frame_free(struct frame *f);
/* Cut at the edge.  Return: the column behind it */
int frame_puts(struct frame *f, int row, int col, u8 at, const char *s);
int frame_printf(struct frame *f, int row, int col, u8 at, const char *fmt, ...)
	__printf(5, 6);
/* From @col to @end with @c */
void frame_fill(struct frame *f, int row, int col, int end, u8 at, char c);

/* ---- kvtop_draw.c, kvtop_map.c ---- */

/* What an extent is; the first that holds for one of its blocks. */
#define KVTOP_SYMBOLS(x)						\
	x(poison,	'X', AT_BAD,	"lost to an error of the device") \
	x(quarantine,	'q', AT_BAD,	"a dead client may still write it") \
	x(revoking,	'r', AT_WARN,	"asked back from clients")	\
	x(pinned,	'p', AT_WARN,	"held by a step, a copy or I/O") \
	x(mapped,	'#', AT_USED,	"mapped by sequences")		\
	x(cached,	'c', AT_CACHE,	"cached prefixes alone")	\
	x(free,		'.', AT_GOOD,	"free")				\
	x(offline,	'-', AT_DIM,	"taken out of use")

enum kvtop_symbol {
#define x(name, c, at, text) SYM_##name,
	KVTOP_SYMBOLS(x)
#undef x
	NR_SYMS
};

extern const char symbol_char[NR_SYMS];
extern const u8 symbol_attr[NR_SYMS];
extern const char * const symbol_name[NR_SYMS];
extern const char * const symbol_text[NR_SYMS];

enum ui_mode { MODE_VIEW, MODE_HELP, MODE_FILTER, MODE_SET };

/**
 * struct ui - where the operator is
 * @sort:    column, by view
 * @key:     of the marked row, by view; ~0: the first
 * @top:     first row shown, by view
 * @client:  whose sequences are shown
 * @batch:   for a log: no row is marked
 * @line:    being edited; @filter is in effect
 * @message: of the last command, until a key
 * @rows:    of the last drawing, for the keys
 */
struct ui {
	enum kvtop_view	view;
	enum ui_mode	mode;
	u32		sort[NR_VIEWS];
	bool		reverse[NR_VIEWS];
	u64		key[NR_VIEWS];
	int		top[NR_VIEWS];
	int		page;
	int		help_top;
	u32		client;
	bool		paused;
	bool		quit;
	bool		batch;
	double		interval;
	char		filter[64];
	char		line[320];
	char		message[512];
	u8		message_at;
	bool		send;		/* @line is to be sent */
	struct kvtop_rows rows;
};

void ui_init(struct ui *ui, const struct kvtop_opts *o);
/* Number of extents in one cell */
u32 map_draw(struct frame *f, int row, int end, const struct sample *s);
int map_height(const struct sample *s, int cols);
enum kvtop_symbol extent_symbol(const struct ktable *t, u32 row);
/* Lines that the header took */
int draw_header(struct frame *f, const struct ui *ui, const struct sample *now,
		const struct sample *old);
/* The view from @row on to before @end; scrolls so that the mark is seen */
void draw_view(struct frame *f, struct ui *ui, int row, int end,
	       const struct sample *now, const struct sample *old);
void draw_screen(struct frame *f, struct ui *ui, const struct sample *now,
		 const struct sample *old);
/* Of the help text, which is as long as it must be; returns its lines */
int draw_help(struct frame *f, int top, int end);

/* ---- kvtop_keys.c ---- */

struct kvtop_key {
	int		code;
	const char	*name;
	const char	*help;	/* NULL: as the key before */
	void		(*run)(struct ui *ui);
};

extern const struct kvtop_key kvtop_keys[];
extern const u32 nr_kvtop_keys;
void ui_key(struct ui *ui, int code);

/* ---- kvtop_poll.c: who asks the daemon, so that keys are never held up ---- */

struct poller;

/**
 * poller_start() - begin to look
 * @path: of the view socket; lives on
 *
 * Return: it, or NULL with errno set.
 */
struct poller *poller_start(const char *path, u32 timeout_ms, double interval);
void poller_stop(struct poller *p);
/* Becomes readable when there is something to take */
int poller_fd(const struct poller *p);
/* What the next looks are to ask for; if it is something else, at once */
void poller_want(struct poller *p, u32 files, u32 client, double interval,
		 bool paused);
/* The newest sample, which becomes the caller's, or NULL */
struct sample *poller_take(struct poller *p);
/* Send a request to the admin socket; one at a time.  -EBUSY */
int poller_send(struct poller *p, const char *req);
/* Its answer.  Return: false: there is none */
bool poller_answer(struct poller *p, bool *refused, char *text, size_t len);

/* ---- kvtop_screen.c, kvtop_batch.c: exit codes ---- */
int kvtop_screen(struct ui *ui, const char *path, const struct kvtop_opts *o);
int kvtop_batch(struct ui *ui, const char *path, const struct kvtop_opts *o);

#endif /* KVMM_TOOLS_KVTOP_H */
