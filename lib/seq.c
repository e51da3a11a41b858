// SPDX-License-Identifier: Apache-2.0
/*
 * seq.c - a bounded buffer for printed text
 *
 * The buffer doubles until it holds the record.  The limit bounds the text, not the
 * allocation, which is the next power of two.  An error is sticky, and later records
 * are dropped too: text with a gap would be worse than text that ends.  Callers
 * check seq_error() and refuse both.
 */
#include <stdio.h>
#include <stdlib.h>

#include <kvmm/seq.h>

#define SEQ_SIZE_MIN	4096

void seq_init(struct seq_file *m, size_t limit)
{
	memset(m, 0, sizeof(*m));
	m->limit = limit;
}

void seq_free(struct seq_file *m)
{
	free(m->buf);
	seq_init(m, m->limit);
}

void seq_reset(struct seq_file *m)
{
	m->count = 0;
	m->error = 0;
	if (m->buf)
		m->buf[0] = '\0';
}

const char *seq_text(const struct seq_file *m)
{
	return m->buf ? m->buf : "";
}

/* Make room for @len more bytes and a NUL; false: the error is set. */
static bool seq_reserve(struct seq_file *m, size_t len)
{
	size_t size;
	char *buf;

	if (m->error)
		return false;
	if (len > m->limit - m->count) {
		m->error = -EOVERFLOW;
		return false;
	}
	if (m->count + len < m->size)
		return true;

	size = max(roundup_pow_of_two(m->count + len + 1),
		   (u64)SEQ_SIZE_MIN);
	buf = realloc(m->buf, size);
	if (!buf) {
		m->error = -ENOMEM;
		return false;
	}
	m->buf = buf;
	m->size = size;
	return true;
}

void seq_write(struct seq_file *m, const void *data, size_t len)
{
	if (!seq_reserve(m, len))
		return;
	memcpy(m->buf + m->count, data, len);
	m->count += len;
	m->buf[m->count] = '\0';
}

void seq_puts(struct seq_file *m, const char *s)
{
	seq_write(m, s, strlen(s));
}

void seq_putc(struct seq_file *m, char c)
{
	seq_write(m, &c, 1);
}

void seq_vprintf(struct seq_file *m, const char *fmt, va_list ap)
{
	size_t room = m->size - m->count;
	va_list again;
	int len;

	if (m->error)
		return;

	va_copy(again, ap);
	len = vsnprintf(m->buf ? m->buf + m->count : NULL, room, fmt, ap);
	if (len < 0) {
		m->error = -EINVAL;
	} else if (seq_reserve(m, len)) {
		if ((size_t)len >= room)
			vsnprintf(m->buf + m->count, (size_t)len + 1, fmt,
				  again);
		m->count += len;
	}
	va_end(again);
	if (m->error && m->buf)
		m->buf[m->count] = '\0';
}

void seq_printf(struct seq_file *m, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	seq_vprintf(m, fmt, ap);
	va_end(ap);
}

void seq_escape(struct seq_file *m, const char *s, const char *also)
{
	const unsigned char *p;

	for (p = (const unsigned char *)s; *p; p++) {
		if (*p <= ' ' || *p > '~' || *p == '\\' || strchr(also, *p))
			seq_printf(m, "\\%03o", *p);
		else
			seq_putc(m, (char)*p);
	}
}
