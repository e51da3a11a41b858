// SPDX-License-Identifier: Apache-2.0
/*
 * log_form.c - the forms of a line of the log
 *
 *	plain	PROGRAM: LEVEL: MESSAGE		commands, and errors of options
 *	text	TIME PROGRAM: LEVEL: MESSAGE	programs that run long
 *	journal	<N>PROGRAM: MESSAGE		under systemd, which has the time
 *	json	{"time": ..., "level": ...}	collectors of logs
 *
 * The level info has no word in plain and text.  The date is computed here:
 * gmtime_r() of the C library reads a file, which a daemon in its sandbox may not
 * open.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <kvmm/text.h>

#include "lib/log_form.h"

/* Words before a message, and priorities of syslog. */
static const struct {
	const char	*word;
	u32		priority;
} levels[] = {
	[KV_LOG_ERR]	= { "error: ", 3 },
	[KV_LOG_WARN]	= { "warning: ", 4 },
	[KV_LOG_INFO]	= { "", 6 },
	[KV_LOG_DEBUG]	= { "debug: ", 7 },
};

enum kv_log_format log_form_choose(void)
{
	const char *stream = getenv("JOURNAL_STREAM");
	char name[64];
	struct stat st;

	if (!stream || fstat(STDERR_FILENO, &st))
		return KV_LOG_text;
	snprintf(name, sizeof(name), "%llu:%llu", (unsigned long long)st.st_dev,
		 (unsigned long long)st.st_ino);
	return strcmp(name, stream) ? KV_LOG_text : KV_LOG_journal;
}

/* ---- the time ---- */

/* Year, month and day of a day since 1970, as in the Gregorian calendar. */
static void date_of(u64 day, u32 *year, u32 *month, u32 *mday)
{
	/* Days since March of year 0; each era of 400 years has as many. */
	const u64 d = day + 719468, era = d / 146097, in_era = d % 146097;
	const u64 y = (in_era - in_era / 1460 + in_era / 36524 -
		       in_era / 146096) / 365;
	const u64 in_year = in_era - (365 * y + y / 4 - y / 100);
	const u64 m = (5 * in_year + 2) / 153;

	*mday = (u32)(in_year - (153 * m + 2) / 5 + 1);
	*month = (u32)(m < 10 ? m + 3 : m - 9);
	*year = (u32)(y + era * 400 + (*month <= 2));
}

int log_form_time(char *out, u64 seconds, u32 ms)
{
	const u32 s = (u32)(seconds % 86400);
	u32 year, month, mday;

	date_of(seconds / 86400, &year, &month, &mday);
	return snprintf(out, LOG_FORM_TIME, "%04u-%02u-%02uT%02u:%02u:%02u.%03uZ",
			year, month, mday, s / 3600, s / 60 % 60, s % 60, ms);
}

static int time_print(char *out)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return log_form_time(out, (u64)now.tv_sec, (u32)(now.tv_nsec / 1000000));
}

/* ---- JSON ---- */

/* Write as much of @s as fits before @end.  Return: the end of the text. */
static char *json_escape(char *p, const char *end, const char *s)
{
	const char *stop = s + strlen(s);
	char code[8];
	size_t n, len;

	for (; s < stop; s += n) {
		const char *from = s;

		n = text_utf8_len(s, (size_t)(stop - s));
		len = n;
		if (!n || (u8)*s < 0x20 || *s == 0x7f) {
			n = 1;
			len = (size_t)snprintf(code, sizeof(code), "\\u%04x",
					       (u8)*s < 0x80 ? (u8)*s : 0xfffd);
			from = code;
		} else if (*s == '"' || *s == '\\') {
			code[0] = '\\';
			code[1] = *s;
			len = 2;
			from = code;
		}
		if (p + len > end)
			break;
		memcpy(p, from, len);
		p += len;
	}
	return p;
}

static size_t json_print(char *out, enum kv_log_level level,
			 const char *program, const char *more, const char *text)
{
	const char *end = out + LOG_FORM_MAX - sizeof("\"}\n");
	char *p = out;

	p += sprintf(p, "{\"time\":\"");
	p += time_print(p);
	p += sprintf(p, "\",\"level\":\"%s\",\"program\":\"%.32s\"",
		     kv_log_level_name(level), program);
	if (*more && strlen(more) < KV_LOG_LINE_MAX)
		p += sprintf(p, ",%s", more);
	p += sprintf(p, ",\"message\":\"");
	p = json_escape(p, end, text);
	p += sprintf(p, "\"}\n");
	return (size_t)(p - out);
}

size_t log_form(char *out, enum kv_log_format form, enum kv_log_level level,
		const char *program, const char *more, const char *text)
{
	size_t n = 0, left;

	if (form == KV_LOG_json)
		return json_print(out, level, program, more, text);
	if (form == KV_LOG_text) {
		n = (size_t)time_print(out);
		out[n++] = ' ';
	}
	if (form == KV_LOG_journal)
		n = (size_t)sprintf(out, "<%u>%.32s: ", levels[level].priority,
				    program);
	else
		n += (size_t)sprintf(out + n, "%.32s: %s", program,
				     levels[level].word);
	left = min(strlen(text), LOG_FORM_MAX - 1 - n);
	memcpy(out + n, text, left);
	out[n + left] = '\n';
	return n + left + 1;
}
