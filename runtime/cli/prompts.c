// SPDX-License-Identifier: Apache-2.0
/*
 * prompts.c - read the prompts
 *
 * Arguments are prompts, a file has one on each line, and without either the
 * whole standard input is one, so that `kvrt generate DIR <story.txt` completes
 * a text of many lines.  An empty prompt is refused by its number or line: the
 * numbers in the labels of the output must be those that the reader counts.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/cli/cli.h"

#define PROMPT_MAX_BYTES	((size_t)256 << 20)

/* Read all of @fd.  Return: 0, or an exit code. */
static int read_all(int fd, const char *name, char **out, size_t *len)
{
	size_t cap = 0, n = 0;
	char *buf = NULL, *more;
	ssize_t got;

	for (;;) {
		if (n == cap) {
			cap = cap ? 2 * cap : 65536;
			more = cap <= PROMPT_MAX_BYTES ? realloc(buf, cap) :
							 NULL;
			if (!more) {
				pr_err("%s: no memory for what it holds: give prompts of less than %zu MiB",
				       name, PROMPT_MAX_BYTES >> 20);
				free(buf);
				return EX_DATAERR;
			}
			buf = more;
		}
		got = read(fd, buf + n, cap - n);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0) {
			pr_err("%s: cannot be read: %s", name,
			       strerror(errno));
			free(buf);
			return EX_IOERR;
		}
		if (!got)
			break;
		n += (size_t)got;
	}
	*out = buf;
	*len = n;
	return 0;
}

static int prompts_add(struct prompts *p, const char *text, size_t len)
{
	struct prompt *list, *q;

	list = reallocarray(p->list, p->nr + 1, sizeof(*list));
	if (!list)
		goto no_memory;
	p->list = list;
	q = &list[p->nr];
	memset(q, 0, sizeof(*q));
	q->text = malloc(len + 1);
	if (!q->text)
		goto no_memory;
	memcpy(q->text, text, len);
	q->text[len] = '\0';
	q->len = len;
	p->nr++;
	return 0;

no_memory:
	pr_err("no memory for the prompts");
	return EX_OSERR;
}

static int add_lines(struct prompts *p, const char *name, const char *text,
		     size_t len)
{
	const char *end = text + len, *nl;
	u32 line = 1;
	int err;

	if (!len) {
		pr_err("%s: holds no prompt: write one on each line", name);
		return EX_DATAERR;
	}
	for (; text < end; text = nl + 1, line++) {
		size_t n;

		nl = memchr(text, '\n', (size_t)(end - text));
		if (!nl)
			nl = end;
		n = (size_t)(nl - text);
		if (n && text[n - 1] == '\r')
			n--;
		if (!n) {
			pr_err("%s:%u: the prompt is empty: write some text or remove the line",
			       name, line);
			return EX_DATAERR;
		}
		err = prompts_add(p, text, n);
		if (err)
			return err;
	}
	return 0;
}

static int add_file(struct prompts *p, const char *file)
{
	const bool is_stdin = !strcmp(file, "-");
	const char *name = is_stdin ? "standard input" : file;
	char *text = NULL;
	size_t len;
	int fd, err;

	fd = is_stdin ? STDIN_FILENO : open(file, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		pr_err("%s: cannot be opened: %s: name a file with one prompt on each line",
		       file, strerror(errno));
		return EX_NOINPUT;
	}
	err = read_all(fd, name, &text, &len);
	if (!err)
		err = add_lines(p, name, text, len);
	free(text);
	if (!is_stdin)
		close(fd);
	return err;
}

static int add_stdin(struct prompts *p)
{
	char *text = NULL;
	size_t len;
	int err;

	if (isatty(STDIN_FILENO))
		fprintf(stderr, "Type the prompt; Ctrl-D on an empty line ends it.\n");
	err = read_all(STDIN_FILENO, "standard input", &text, &len);
	if (err)
		return err;
	if (len && text[len - 1] == '\n')
		len--;
	if (!len) {
		pr_err("standard input: the prompt is empty: write some text, or give prompts as arguments");
		err = EX_DATAERR;
	} else {
		err = prompts_add(p, text, len);
	}
	free(text);
	return err;
}

int prompts_read(struct prompts *p, char **args, int nr_args, const char *file)
{
	int i, err = 0;

	memset(p, 0, sizeof(*p));
	for (i = 0; !err && i < nr_args; i++) {
		if (!*args[i]) {
			pr_err("prompt %d is empty: write some text", i + 1);
			return EX_DATAERR;
		}
		err = prompts_add(p, args[i], strlen(args[i]));
	}
	if (!err && file)
		err = add_file(p, file);
	if (!err && !p->nr)
		err = add_stdin(p);
	return err;
}

static int encode_failed(u32 number, int err)
{
	switch (err) {
	case -EILSEQ:
		pr_err("prompt %u is not UTF-8: convert it, for instance with iconv",
		       number);
		break;
	case -ENOMEM:
		pr_err("prompt %u: no memory for its tokens", number);
		break;
	default:
		pr_err("prompt %u cannot be turned into tokens: %s: shorten it",
		       number, strerror(-err));
	}
	return cli_exit_of(err);
}

int prompts_encode(struct prompts *p, const struct tokenizer *tok)
{
	size_t needed;
	ssize_t n;
	u32 i;

	for (i = 0; i < p->nr; i++) {
		struct prompt *q = &p->list[i];

		n = tokenizer_encode(tok, q->text, q->len, TOKENIZER_ADD_BOS,
				     NULL, 0, &needed);
		if (n < 0 && n != -E2BIG)
			return encode_failed(i + 1, (int)n);
		q->ids = malloc((needed + 1) * sizeof(*q->ids));
		if (!q->ids)
			return encode_failed(i + 1, -ENOMEM);
		n = tokenizer_encode(tok, q->text, q->len, TOKENIZER_ADD_BOS,
				     q->ids, needed, NULL);
		if (n < 0)
			return encode_failed(i + 1, (int)n);
		q->nr = (u32)n;
	}
	return 0;
}

void prompts_free(struct prompts *p)
{
	u32 i;

	for (i = 0; i < p->nr; i++) {
		free(p->list[i].text);
		free(p->list[i].ids);
	}
	free(p->list);
}
