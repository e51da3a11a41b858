// SPDX-License-Identifier: Apache-2.0
/*
 * kmsg.c - the daemon's own last log lines
 *
 * In the format of /dev/kmsg: priority, number, microseconds, a flag, and
 * behind a semicolon the text.  A number that is missing is of a line that was
 * overwritten, or could not be kept (lib/log_keep.c).
 */
#include <kvmm/log.h>

#include "kvmm/proc/internal.h"

/* As syslog has them. */
static const u32 priority[] = {
	[KV_LOG_ERR]	= 3,
	[KV_LOG_WARN]	= 4,
	[KV_LOG_INFO]	= 6,
	[KV_LOG_DEBUG]	= 7,
};

/* What cannot be printed, and what that is printed with, as the kernel does. */
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
