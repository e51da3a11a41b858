/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log.h - one line on stderr per fact, with a level
 *
 * Messages for people: name the thing, then the remedy.  The program's name
 * and the level are put before the text, so neither belongs in it.
 */
#ifndef KVMM_LOG_H
#define KVMM_LOG_H

#include <kvmm/types.h>

enum kv_log_level {
	KV_LOG_ERR,
	KV_LOG_WARN,
	KV_LOG_INFO,
	KV_LOG_DEBUG,
};

/* Set once at start, before threads exist. */
void kv_log_init(const char *program, enum kv_log_level max_level);

/*
 * Formats of a line (lib/log_form.c).  The first four are the words of
 * KV_LOG_FORMAT_OPT, in their order.
 */
enum kv_log_format {
	KV_LOG_auto,		/* journal if stderr is the journal, else text */
	KV_LOG_text,
	KV_LOG_json,
	KV_LOG_journal,
	KV_LOG_plain,		/* text without the time: until another is set */
};

/* The option of every program that runs long, for its list of options. */
#define KV_LOG_FORMAT_OPT(x)						\
	x(choice, log_format, "log-format", "auto", 0, 0,		\
	  "auto|text|json|journal",					\
	  "lines on stderr: text has the time (UTC), json is an object a line, journal has the priorities of systemd; auto: journal if stderr is the journal, else text")

/* kv_log_format() - set the format, before threads exist */
void kv_log_format(enum kv_log_format format);

/* kv_log_format_name() - the word of the option */
const char *kv_log_format_name(u32 format);

/* kv_log_is_json() - does a line have the members of kv_log_with()? */
bool kv_log_is_json(void);

/*
 * For daemons: a reader of stderr that stopped reading (a paused terminal, a
 * pipe that is full) costs lines, not the program.  Set as above.
 */
void kv_log_never_wait(void);

/* kv_log_set() - set the level from now on; from any thread */
void kv_log_set(enum kv_log_level max_level);
enum kv_log_level kv_log_level(void);

/* kv_log_level_name() - "err", "warn", "info" or "debug" */
const char *kv_log_level_name(enum kv_log_level level);

/* kv_log_level_parse() - the level of a word: 0 or -EINVAL */
int __must_check kv_log_level_parse(const char *word,
				    enum kv_log_level *level);

/* Write one line; printf's format, without a newline. */
void kv_log(enum kv_log_level level, const char *fmt, ...) __printf(2, 3);

/**
 * kv_log_with() - write one line that has more members in JSON
 * @more: members as JSON, `"status":401,"path":"/"`, less than KV_LOG_LINE_MAX
 *        bytes; other formats leave them out
 */
void kv_log_with(enum kv_log_level level, const char *more, const char *fmt,
		 ...) __printf(3, 4);

/* kv_log_wants() - would a line of this level be written? */
bool kv_log_wants(enum kv_log_level level);

#define KV_LOG_LINE_MAX	1024

/**
 * struct kv_log_line - a kept line
 * @seq:   its number, from 0; numbers of lines that could not be kept are missing
 * @usec:  CLOCK_MONOTONIC
 * @level: enum kv_log_level
 * @text:  without the program's name, the level and a newline
 */
struct kv_log_line {
	u64	seq;
	u64	usec;
	u32	level;
	char	text[KV_LOG_LINE_MAX];
};

/**
 * kv_log_keep() - keep the last lines, also those for which stderr had no room
 * @nr: number of lines
 *
 * Context: once, before threads exist.
 * Return: 0 or -ENOMEM: then no line is kept.
 */
int __must_check kv_log_keep(u32 nr);

/**
 * kv_log_kept() - read a kept line
 * @seq:  number of the wanted line
 * @line: takes that line or the next kept one
 *
 * Context: any thread.  Return: false: there is no such line.
 */
bool kv_log_kept(u64 seq, struct kv_log_line *line);

/* Budget of lines that strangers may cause; all zero is its start. */
struct kv_log_budget {
	u64	period;
	u32	used;
};

/**
 * kv_log_spend() - may one more of these lines be written?
 * @b:     their budget
 * @burst: most of them in KV_LOG_PERIOD_S seconds
 * @what:  their subject, for the line that counts those left out
 *
 * Context: any thread; races let a line more or less through.
 */
bool kv_log_spend(struct kv_log_budget *b, u32 burst, const char *what);

#define KV_LOG_PERIOD_S	5u

#define pr_err(...)	kv_log(KV_LOG_ERR, __VA_ARGS__)
#define pr_warn(...)	kv_log(KV_LOG_WARN, __VA_ARGS__)
#define pr_info(...)	kv_log(KV_LOG_INFO, __VA_ARGS__)
#define pr_debug(...)	kv_log(KV_LOG_DEBUG, __VA_ARGS__)

#endif /* KVMM_LOG_H */
