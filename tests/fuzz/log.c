// SPDX-License-Identifier: Apache-2.0
/*
 * log.c - lines of the log, under a fuzzer: judged and dropped
 *
 * Untrusted peers choose parts of some lines: names, paths, numbers.
 */
#include <stdarg.h>

#include <kvmm/log.h>

#include "tests/fuzz/fuzz.h"

void __wrap_kv_log(enum kv_log_level level, const char *fmt, ...);
bool __wrap_kv_log_spend(struct kv_log_budget *b, u32 burst, const char *what);

/* A message must be one line, whatever a peer put into it. */
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

/* Judge all messages: no budget. */
bool __wrap_kv_log_spend(struct kv_log_budget *b, u32 burst, const char *what)
{
	return true;
}
