// SPDX-License-Identifier: Apache-2.0
/*
 * log.c - lines of the log, under a fuzzer: judged and dropped
 *
 * Strangers choose parts of some: names, paths, numbers.
 */
#include <stdarg.h>

#include <kvmm/log.h>

#include "tests/fuzz/fuzz.h"

void __wrap_kv_log(enum kv_log_level level, const char *fmt, ...);
bool __wrap_kv_log_spend(struct kv_log_budget *b, u32 burst, const char *what);

/* A line is one line, whatever a stranger put into it. */
void __wrap_kv_log(enum kv_log_level level, const char *fmt, ...)
{
	char line[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	FUZZ_LAW(!strchr(line, '\n'), "a line of the log is two: %s", line);
	FUZZ_LAW(level != KV_LOG_ERR || !strstr(line, " full: "), "%s", line);
}

/* All are judged, however many there are. */
bool __wrap_kv_log_spend(struct kv_log_budget *b, u32 burst, const char *what)
{
	return true;
}
