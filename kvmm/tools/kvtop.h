/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtop.h - interfaces of the files of kvtop
 *
 * A sample is the text of some files, parsed; two samples give rates.  Views make
 * rows of a sample.  Rows are drawn into a frame, which is shown on a terminal
 * (kvtop_screen.c) or printed to a log (kvtop_batch.c).
 */
#ifndef KVMM_TOOLS_KVTOP_H
#define KVMM_TOOLS_KVTOP_H

#include <kvmm/admin.h>
#include <kvmm/opts.h>
#include <kvmm/seq.h>
#include <kvmm/view.h>

#define KVTOP_OPTIONS(x)						\
	x(str, socket, "socket", NULL, 0, 0, "PATH",			\
	  "run directory of the daemon, or a socket in it (default as of kvctl)") \
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
 * @text: a copy of the file, cut into words; @cell points into it
 * @cell: @nr_rows + 1 times @nr_cols words; the first row is the header
 */
struct ktable {
	char		*text;
	const char	**cell;
	u32		nr_cols;
	u32		nr_rows;
};

/* Skips lines with #; missing words of a short line are "".  0 or -ENOMEM */
int __must_check ktable_parse(struct ktable *t, const char *text);
void ktable_free(struct ktable *t);
/* Value of a column; NULL: there is no such column. @row counts from 0 */
const char *ktable_get(const struct ktable *t, u32 row, const char *column);
/* The same as a number; false: no column, or no number but a word like `max` */
bool ktable_num(const struct ktable *t, u32 row, const char *column, u64 *v);
/* Value in `Key:   12 kB`, `Key:\ttext` or `name 12`; NULL: there is no such key */
const char *keyed_get(const char *text, const char *key);
bool keyed_num(const char *text, const char *key, u64 *v);
/* avg10 of a line `some avg10=1.23 ...`, or a negative number */
double pressure_avg10(const char *text, const char *kind);

/* Format kB in at most 5 columns: 1023K, 9.99M, 80.0G */
char *format_kb(double kb, char *buf, size_t len);
/* Format a decimal number in at most 5 columns: 99999, 123k, 1.2M */
char *format_count(double n, char *buf, size_t len);
/* As format_count(), with one digit behind the point below 100 */
char *format_rate(double n, char *buf, size_t len);

/* ---- kvtop_sample.c: sampling the daemon ---- */

/* Name, path, whether it is a table; the path of seqs takes a client's id. */
#define KVTOP_FILES(x)							\
	x(status,	"status",		false)			\
	x(meminfo,	"meminfo",		false)			\
	x(vmstat,	"vmstat",		false)			\
	x(pressure,	"pressure/memory",	false)			\
	x(pools,	"pools",		true)			\
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

/* Files of each sample, beside those of the view. */
#define FILES_ALWAYS	(BIT(FILE_status) | BIT(FILE_meminfo) | BIT(FILE_vmstat) | \
			 BIT(FILE_pressure) | BIT(FILE_pools) | BIT(FILE_domains) | \
			 BIT(FILE_clients))
/* Files that a tenant sees; FILE_tenants is for a tenant's header. */
#define FILES_TENANT	(BIT(FILE_status) | BIT(FILE_tenants) | BIT(FILE_domains) | \
			 BIT(FILE_clients) | BIT(FILE_extents) | BIT(FILE_seqs))

/**
 * struct sample - text of the files at one time
 * @err:     error of the connection, negative: no other member is valid
 * @why:     the error in words
 * @when:    CLOCK_MONOTONIC, ns, when the counters were read
 * @took:    ns that taking the sample took
 * @tenant:  the socket is a tenant's
 * @client:  client of @text[FILE_seqs]
 * @asked:   BIT(FILE_*) of the files that were asked for
 * @missing: those of them that the daemon refused
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
/* Growth per second of a counter of vmstat; negative: not known */
double sample_rate(const struct sample *now, const struct sample *old,
		   const char *key);
/* A value of meminfo, in kB; 0: it is not there */
u64 sample_kb(const struct sample *s, const char *key);
/* Memory of the device that sequences use, without the cache, in kB */
u64 sample_used_kb(const struct sample *s);
/* Are there several device pools?  A tenant sees those of its own domains. */
bool sample_has_pools(const struct sample *s);
/* Seconds between two samples of the same start of a daemon, or 0 */
double sample_seconds(const struct sample *now, const struct sample *old);

/* ---- kvtop_view.c: rows ---- */

enum kvtop_view {
	VIEW_domains,
	VIEW_clients,
	VIEW_seqs,
	VIEW_map,
	VIEW_areas,
	VIEW_vmstat,
	NR_VIEWS,
	VIEW_all = NR_VIEWS,	/* for --view */
};

enum col_kind {
	COL_text,		/* left-aligned, takes the room that is left */
	COL_word,		/* left-aligned, fixed width */
	COL_num,		/* as the daemon prints it */
	COL_count,
	COL_kb,			/* kB, or max */
	COL_percent,
	COL_rate,
};

/**
 * struct kvtop_col - a column of a view
 * @title: in capitals
 * @src:   column of the file; with * before it, a column that kvtop computes
 * @width: columns; of COL_text the least
 * @shed:  order in which columns are left out when there is no room; 0: never
 */
struct kvtop_col {
	const char	*title;
	const char	*src;
	enum col_kind	kind;
	u8		width;
	u8		shed;
	const char	*help;
};

#define ROW_COLS	18

struct kvtop_cell {
	double	num;		/* sort key of the row */
	char	text[64];
};

struct kvtop_row {
	u64			key;	/* id of the record: equal in later samples */
	u32			order;
	struct kvtop_cell	cell[ROW_COLS];
};

struct kvtop_rows {
	u32			nr;
	struct kvtop_row	*row;
};

/* Growth per second of a column of domains, of all of them; negative: not known */
double domains_rate(const struct sample *now, const struct sample *old,
		    const char *column);
const char *view_title(enum kvtop_view view);
const struct kvtop_col *view_cols(enum kvtop_view view, u32 *nr);
u32 view_files(enum kvtop_view view);
/* Make rows of @now; @old gives rates and may be NULL.  0 or -ENOMEM */
int __must_check rows_make(struct kvtop_rows *r, enum kvtop_view view,
			   const struct sample *now, const struct sample *old);
void rows_free(struct kvtop_rows *r);
void rows_filter(struct kvtop_rows *r, u32 nr_cols, const char *filter);
void rows_sort(struct kvtop_rows *r, const struct kvtop_col *col, u32 i,
	       bool reverse);

/* ---- kvtop_frame.c: a picture of characters ---- */

enum frame_attr {
	AT_NORMAL, AT_TITLE, AT_HEAD, AT_SORT, AT_MARK, AT_GOOD, AT_WARN,
	AT_BAD, AT_DIM, AT_USED, AT_CACHE, NR_ATTRS
};

#define FRAME_BAR_MAX	8	/* a full cell of frame_bar() */

/* ASCII characters or levels of bars, and AT_*, one byte a cell. */
struct frame {
	int	rows;
	int	cols;
	char	*ch;
	u8	*at;
};

int __must_check frame_init(struct frame *f, int rows, int cols);
void frame_free(struct frame *f);
/* Text is cut at the edge.  Return: the column behind the text */
int frame_puts(struct frame *f, int row, int col, u8 at, const char *s);
int frame_printf(struct frame *f, int row, int col, u8 at, const char *fmt, ...)
	__printf(5, 6);
/* Fill @level eighths of a cell from below; 0: none */
void frame_bar(struct frame *f, int row, int col, u8 at, int level);
/* Fill the columns from @col to before @end with @c */
void frame_fill(struct frame *f, int row, int col, int end, u8 at, char c);

/* ---- kvtop_draw.c, kvtop_map.c ---- */

/* Symbols of an extent; the first that one of its blocks has stands for the extent. */
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

/* ---- kvtop_history.c ---- */

/* Value, title, its greatest value (0: of those on the screen), attribute. */
#define KVTOP_HISTORY(x)						\
	x(pool,		"Used",		100, AT_USED)			\
	x(running,	"Running",	0,   AT_GOOD)			\
	x(waiting,	"Waiting",	0,   AT_WARN)			\
	x(tokens,	"Tok/s",	0,   AT_NORMAL)			\
	x(hits,		"Hits",		100, AT_CACHE)

enum kvtop_hist {
#define x(name, title, top, attr) HIST_##name,
	KVTOP_HISTORY(x)
#undef x
	NR_HISTS
};

#define HISTORY_MAX	512u

/**
 * struct history - values of the last samples
 * @nr:    samples ever added
 * @value: by sample, modulo HISTORY_MAX; negative: not known
 */
struct history {
	u32	nr;
	float	value[HISTORY_MAX][NR_HISTS];
};

void history_add(struct history *h, const struct sample *now,
		 const struct sample *old);
int history_draw(struct frame *f, int row, const struct history *h);

enum ui_mode { MODE_VIEW, MODE_HELP, MODE_FILTER, MODE_SET };

/**
 * struct ui - state of the user interface
 * @sort:    column to sort by, by view
 * @key:     key of the marked row, by view; ~0: the first row
 * @top:     first row shown, by view
 * @client:  client of the view of sequences
 * @pools:   there are several device pools
 * @pool:    first device pool of the marked domain
 * @batch:   for a log: no row is marked
 * @line:    line that is being typed; @filter is in effect
 * @message: result of the last command, until a key is pressed
 * @rows:    rows of the last drawing, for the keys
 * @dirs:    run directories of the daemons of the machine
 * @daemon:  the one that is shown
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
	bool		pools;
	char		pool[16];
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
	struct history	history;
	char		**dirs;
	u32		nr_dirs;
	u32		daemon;
};

void ui_init(struct ui *ui, const struct kvtop_opts *o);
/* Return: number of extents in one cell */
u32 map_draw(struct frame *f, int row, int end, const struct sample *s);
int map_height(const struct sample *s, int cols);
enum kvtop_symbol extent_symbol(const struct ktable *t, u32 row);
/* Return: lines of the header */
int draw_header(struct frame *f, const struct ui *ui, const struct sample *now,
		const struct sample *old);
/* Draw the view from @row on to before @end; scrolls until the mark is visible */
void draw_view(struct frame *f, struct ui *ui, int row, int end,
	       const struct sample *now, const struct sample *old);
void draw_screen(struct frame *f, struct ui *ui, const struct sample *now,
		 const struct sample *old);
/* Draw the part of the help text from line @top on.  Return: lines of the text */
int draw_help(struct frame *f, int top, int end);

/* ---- kvtop_keys.c ---- */

struct kvtop_key {
	int		code;
	const char	*name;
	const char	*help;	/* NULL: the same as the key before */
	void		(*run)(struct ui *ui);
};

extern const struct kvtop_key kvtop_keys[];
extern const u32 nr_kvtop_keys;
void ui_key(struct ui *ui, int code);

/* ---- kvtop_poll.c: the thread that asks the daemon, so no key waits ---- */

struct poller;

/**
 * poller_start() - start the thread
 * @path: path of the view socket
 *
 * Return: the poller, or NULL with errno set.
 */
struct poller *poller_start(const char *path, u32 timeout_ms, double interval);
void poller_stop(struct poller *p);
/* Becomes readable when there is a sample or an answer to take */
int poller_fd(const struct poller *p);
/* Set the files to ask for; a change takes a sample at once */
void poller_want(struct poller *p, u32 files, u32 client, double interval,
		 bool paused);
/* Ask the daemon at @path from now on; no sample of another one is handed over */
void poller_turn(struct poller *p, const char *path);
/* Return: the newest sample, which the caller must free, or NULL */
struct sample *poller_take(struct poller *p);
/* Send a request to the admin socket, one at a time.  -EBUSY */
int poller_send(struct poller *p, const char *req);
/* Take the answer to it.  Return: false: there is none */
bool poller_answer(struct poller *p, bool *refused, char *text, size_t len);

/* ---- kvtop_screen.c, kvtop_batch.c: exit codes ---- */
int kvtop_screen(struct ui *ui, const char *path, const struct kvtop_opts *o);
int kvtop_batch(struct ui *ui, const char *path, const struct kvtop_opts *o);

#endif /* KVMM_TOOLS_KVTOP_H */
