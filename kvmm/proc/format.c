// SPDX-License-Identifier: Apache-2.0
/*
 * format.c - the kernel's ways to print a line
 *
 * A reader looks a keyed line up by its key, so a new line may appear anywhere.
 * Widths are those of fs/proc/meminfo.c: the number ends in column 24, also
 * behind a key that is longer than its column.
 */
#include <time.h>

#include <kvmm/clock.h>

#include "kvmm/proc/internal.h"

#define KEY_WIDTH	15
#define NUMBER_WIDTH	8

static void show_key(struct seq_file *m, const char *key, u64 value)
{
	int len = strlen(key) + 1;	/* with the colon */
	int width = NUMBER_WIDTH;

	if (len > KEY_WIDTH)
		width = max(NUMBER_WIDTH - (len - KEY_WIDTH), 1);
	seq_printf(m, "%s:%*s %*llu", key, max(KEY_WIDTH - len, 0), "",
		   width, (unsigned long long)value);
}

/* proc_show_kb() - `Key:   N kB`, rounded down. */
void proc_show_kb(struct seq_file *m, const char *key, u64 bytes)
{
	show_key(m, key, bytes >> 10);
	seq_puts(m, " kB\n");
}

/* proc_show_count() - `Key:   N`, a number without unit. */
void proc_show_count(struct seq_file *m, const char *key, u64 count)
{
	show_key(m, key, count);
	seq_putc(m, '\n');
}

/* The sum of all events depends on other tenants' requests: no tenant sees it. */
static void show_generation(const struct proc_ctx *ctx, const char *word,
			    const struct proc_slice *slice)
{
	if (ctx->proc->key == PROC_ALL)
		seq_printf(ctx->m, "# %s %llu\n", word,
			   (unsigned long long)slice->generation);
	else
		seq_printf(ctx->m, "# %s -\n", word);
}

/* Print the first line of a long table: see struct proc_slice. */
void proc_show_begin(const struct proc_ctx *ctx, const struct proc_slice *slice)
{
	show_generation(ctx, "begin", slice);
}

/* Print the last line.  If it is missing, the text was cut. */
void proc_show_end(const struct proc_ctx *ctx, const struct proc_slice *slice)
{
	show_generation(ctx, "end", slice);
}

/* proc_now() - time of the clock that the daemon uses for its times */
u64 proc_now(const struct proc *proc)
{
	return proc->src.now ? proc->src.now(proc->src.arg) : kv_now_ns();
}
