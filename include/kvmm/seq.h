/* SPDX-License-Identifier: Apache-2.0 */
/*
 * seq.h - growing text, which the files of /proc are printed into
 *
 * A record is kept whole or not at all.  Text that would pass the limit, or
 * for which there is no memory, sets an error that stays until seq_reset():
 * a caller that hands the text on asks seq_error() first, so that a file is never
 * cut silently.
 *
 * Context: one thread at a time; it may allocate, so never the mm thread.
 */
#ifndef KVMM_SEQ_H
#define KVMM_SEQ_H

#include <stdarg.h>

#include <kvmm/types.h>

/**
 * struct seq_file - text under construction
 * @buf:   @count bytes; always NUL-terminated, NULL while nothing was written
 * @count: bytes of text, without the NUL
 * @size:  bytes allocated
 * @limit: most bytes of text
 * @error: 0, -EOVERFLOW (past @limit) or -ENOMEM; the first one stays
 */
struct seq_file {
	char	*buf;
	size_t	count;
	size_t	size;
	size_t	limit;
	int	error;
};

/* seq_init() - empty text of at most @limit bytes; allocates nothing. */
void seq_init(struct seq_file *m, size_t limit);

/* seq_free() - give the buffer back; @m is as after seq_init(). */
void seq_free(struct seq_file *m);

/* seq_reset() - drop text and error, keep the buffer. */
void seq_reset(struct seq_file *m);

/* seq_text() - the text, NUL-terminated; never NULL. */
const char *seq_text(const struct seq_file *m);

/* seq_error() - 0, or the reason why the text is not complete. */
static inline int __must_check seq_error(const struct seq_file *m)
{
	return m->error;
}

/* seq_printf() - append a record: whole, or not at all and an error. */
void seq_printf(struct seq_file *m, const char *fmt, ...) __printf(2, 3);

/* seq_vprintf() - the same with a list of arguments; @ap is used up. */
void seq_vprintf(struct seq_file *m, const char *fmt, va_list ap)
	__printf(2, 0);

/* seq_puts() - append a string, without newline. */
void seq_puts(struct seq_file *m, const char *s);

/* seq_putc() - append one character. */
void seq_putc(struct seq_file *m, char c);

/* seq_write() - append @len bytes, of any value. */
void seq_write(struct seq_file *m, const void *data, size_t len);

/**
 * seq_escape() - print bytes from outside so that they stay one word
 * @m:    text
 * @s:    NUL-terminated
 * @also: characters to escape besides blanks, control characters, bytes
 *        above 126 and the backslash; may be ""
 *
 * An escaped byte is printed as a backslash and three octal digits, as the kernel
 * does in /proc/mounts.
 */
void seq_escape(struct seq_file *m, const char *s, const char *also);

#endif /* KVMM_SEQ_H */
