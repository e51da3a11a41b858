// SPDX-License-Identifier: Apache-2.0
/*
 * kmsg.c - the daemon's own last log lines
 *
 * The format is that of /dev/kmsg: priority, number, microseconds, a flag, and
 * the text behind a semicolon.  A missing number belongs to a line that was
 * overwritten, or that could not be kept (lib/log_keep.c).
 */
#include <kvmm/log.h>

#include "kvmm/proc/internal.h"

/* syslog's numbers of the levels */
static const u32 priority[] = {
	[KV_LOG_ERR]	= 3,
	[KV_LOG_WARN]	= 4,
	[KV_LOG_INFO]	= 6,
	[KV_LOG_DEBUG]	= 7,
};

/* Escape characters that cannot be printed, and the backslash, as the kernel does. */
static void show_text(struct seq_file *m, const char *s)
{
	const unsigned char *p;

	for (p = (const unsigned char *)s; *p; p++) {
		if (*p < ' ' || *p > '~' || *p == '\\')
			seq_printf(m, "\\x%02x", *p);
		else
			seq_putc(m, (char)*p);
	}
}

int show_kmsg(const struct proc_ctx *ctx)
{
	struct kv_log_line line;
	u64 seq = 0;

	while (kv_log_kept(seq, &line) && !seq_error(ctx->m)) {
		seq_printf(ctx->m, "%u,%llu,%llu,-;", priority[line.level],
			   (unsigned long long)line.seq,
			   (unsigned long long)line.usec);
		show_text(ctx->m, line.text);
		seq_putc(ctx->m, '\n');
		seq = line.seq + 1;
	}
	return 0;
}
