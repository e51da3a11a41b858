// SPDX-License-Identifier: Apache-2.0
/*
 * log.c - lines on stderr
 *
 * One write(2) a line, so that lines of several processes and threads that
 * share a terminal or a file do not mix.  Nothing is allocated: the line is
 * cut at the size of the buffer.
 *
 * A daemon does not wait for the reader of its stderr.  If there is no room within
 * LOG_PATIENCE_MS, the line is lost and counted, and so are the next ones, without
 * waiting, until there is room again.  Then a line reports how many were lost.
 * poll() reports room in a pipe if a page of it is free, which is enough for the few
 * writers of one pipe.  Every line is first kept for readers of the daemon's own
 * files (log_keep.c).
 */
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include <kvmm/clock.h>
#include <kvmm/log.h>

#include "lib/log_form.h"
#include "lib/log_keep.h"

#define LOG_PATIENCE_MS	50	/* for a reader that is only busy */

static const char *log_program = "kvmm";
static enum kv_log_level log_max = KV_LOG_INFO;
static enum kv_log_format log_as = KV_LOG_plain;
static bool log_nowait;
static u32 log_lost;

static const char * const log_words[] = {
	[KV_LOG_ERR]	= "err",
	[KV_LOG_WARN]	= "warn",
	[KV_LOG_INFO]	= "info",
	[KV_LOG_DEBUG]	= "debug",
};

void kv_log_init(const char *program, enum kv_log_level max_level)
{
	log_program = program;
	log_max = max_level;
}

void kv_log_format(enum kv_log_format format)
{
	log_as = format == KV_LOG_auto ? log_form_choose() : format;
}

bool kv_log_is_json(void)
{
	return log_as == KV_LOG_json;
}

const char *kv_log_format_name(u32 format)
{
	static const char * const words[] = { "auto", "text", "json", "journal" };

	return format < ARRAY_SIZE(words) ? words[format] : words[0];
}

void kv_log_set(enum kv_log_level max_level)
{
	WRITE_ONCE(log_max, max_level);
}

enum kv_log_level kv_log_level(void)
{
	return READ_ONCE(log_max);
}

const char *kv_log_level_name(enum kv_log_level level)
{
	return level < ARRAY_SIZE(log_words) ? log_words[level] : "?";
}

int kv_log_level_parse(const char *word, enum kv_log_level *level)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(log_words); i++) {
		if (strcmp(word, log_words[i]))
			continue;
		*level = (enum kv_log_level)i;
		return 0;
	}
	return -EINVAL;
}

void kv_log_never_wait(void)
{
	log_nowait = true;
}

/* Is there room for a line?  If not, count it as lost. */
static bool log_room(void)
{
	struct pollfd p = { .fd = STDERR_FILENO, .events = POLLOUT };
	char line[LOG_FORM_MAX], text[64];
	u32 lost;
	size_t len;

	if (!log_nowait)
		return true;
	lost = __atomic_load_n(&log_lost, __ATOMIC_RELAXED);
	/* Without a reader poll() returns at once, and the write fails. */
	if (poll(&p, 1, lost ? 0 : LOG_PATIENCE_MS) <= 0) {
		__atomic_fetch_add(&log_lost, 1, __ATOMIC_RELAXED);
		return false;
	}
	lost = lost ? __atomic_exchange_n(&log_lost, 0, __ATOMIC_RELAXED) : 0;
	if (!lost)
		return true;
	snprintf(text, sizeof(text), "%u lines were lost: stderr was not read",
		 lost);
	len = log_form(line, log_as, KV_LOG_WARN, log_program, "", text);
	return write(STDERR_FILENO, line, len) == (ssize_t)len;
}

static __printf(3, 0) void log_write(enum kv_log_level level, const char *more,
				     const char *fmt, va_list ap)
{
	char text[KV_LOG_LINE_MAX], line[LOG_FORM_MAX];
	size_t len;

	if (vsnprintf(text, sizeof(text), fmt, ap) < 0)
		text[0] = '\0';
	log_keep(level, text);
	if (!log_room())
		return;
	len = log_form(line, log_as, level, log_program, more, text);
	if (write(STDERR_FILENO, line, len) < 0)
		return;		/* there is no way to report it */
}

void kv_log(enum kv_log_level level, const char *fmt, ...)
{
	va_list ap;

	if (!kv_log_wants(level))
		return;
	va_start(ap, fmt);
	log_write(level, "", fmt, ap);
	va_end(ap);
}

void kv_log_with(enum kv_log_level level, const char *more, const char *fmt, ...)
{
	va_list ap;

	if (!kv_log_wants(level))
		return;
	va_start(ap, fmt);
	log_write(level, more, fmt, ap);
	va_end(ap);
}

bool kv_log_wants(enum kv_log_level level)
{
	return level <= READ_ONCE(log_max);
}

bool kv_log_spend(struct kv_log_budget *b, u32 burst, const char *what)
{
	const u64 now = kv_now_ms() / (KV_LOG_PERIOD_S * 1000);
	u32 used;

	if (READ_ONCE(b->period) != now) {
		WRITE_ONCE(b->period, now);
		used = __atomic_exchange_n(&b->used, 0, __ATOMIC_RELAXED);
		if (used > burst)
			pr_info("%u lines about %s were left out",
				used - burst, what);
	}
	return __atomic_add_fetch(&b->used, 1, __ATOMIC_RELAXED) <= burst;
}
