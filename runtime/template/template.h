/* SPDX-License-Identifier: Apache-2.0 */
/*
 * template.h - chat templates: from the messages of a chat to a prompt
 *
 * The makers of a model ship a small program in the language of Jinja2 that
 * writes a chat in the form that the model was trained on.  This is an
 * interpreter for the part of that language that such programs use, with the
 * settings of transformers' apply_chat_template(); Documentation/template.md
 * lists that part.
 *
 * A template is untrusted: its size, its steps, its memory and its text are
 * limited.  It reads only the caller's variables and the time of day, and can
 * change neither.
 *
 * A compiled template never changes: threads may render the same one at the
 * same time.
 */
#ifndef RUNTIME_TEMPLATE_TEMPLATE_H
#define RUNTIME_TEMPLATE_TEMPLATE_H

#include <jansson.h>
#include <time.h>

#include <kvmm/types.h>

#define TMPL_TEXT	512

/**
 * enum tmpl_fault - cause of an error
 * @TMPL_OK:		no error
 * @TMPL_SYNTAX:	the template is invalid, or needs an unsupported
 *			feature: a fault of the model's folder
 * @TMPL_RAISED:	the template called raise_exception(): it does not
 *			accept these messages, a fault of the sender
 * @TMPL_FAILED:	an operation was invalid for its operands, most often
 *			because a message lacks a member that the template reads
 * @TMPL_LIMIT:		a limit was reached
 * @TMPL_NOMEM:		the machine has no memory
 */
enum tmpl_fault {
	TMPL_OK,
	TMPL_SYNTAX,
	TMPL_RAISED,
	TMPL_FAILED,
	TMPL_LIMIT,
	TMPL_NOMEM,
};

/**
 * struct tmpl_error - an error, in one line
 * @what: cause
 * @line: place in the template, from 1; 0: none
 * @col:  column, from 1, in bytes
 * @text: the error, without the place, valid UTF-8; with TMPL_RAISED the
 *        template's own words, which may have several lines
 */
struct tmpl_error {
	enum tmpl_fault	what;
	unsigned int	line;
	unsigned int	col;
	char		text[TMPL_TEXT];
};

/**
 * struct tmpl_limits - limits of one rendering; 0: the default
 * @steps:  units of work: a visited node, about 32 bytes read
 * @memory: bytes of values, the converted variables included
 * @output: bytes of the text
 * @depth:  nested nodes, macro calls and values
 */
struct tmpl_limits {
	u64	steps;
	size_t	memory;
	size_t	output;
	u32	depth;
};

#define TMPL_STEPS_DEFAULT	(10u * 1000 * 1000)
#define TMPL_MEMORY_DEFAULT	((size_t)128 << 20)
#define TMPL_OUTPUT_DEFAULT	((size_t)16 << 20)
#define TMPL_DEPTH_DEFAULT	600u
/* Limits of a template: bytes of source, nodes, nested blocks and brackets. */
#define TMPL_SOURCE_MAX		((size_t)1 << 20)
#define TMPL_NODES_MAX		100000u
#define TMPL_NEST_MAX		100u
/* Numbers of one range(), as in Jinja2's sandbox. */
#define TMPL_RANGE_MAX		100000

/**
 * struct tmpl_options - options of a rendering
 * @limits: see struct tmpl_limits
 * @now:    time for strftime_now(); 0: the clock
 */
struct tmpl_options {
	struct tmpl_limits	limits;
	time_t			now;
};

struct tmpl;

/**
 * tmpl_compile() - compile a template
 * @src:	@n bytes; not kept
 * @n:		their number
 * @err:	gets the error
 *
 * Return: the template, to be freed with tmpl_free(), or NULL with @err filled
 * in.
 */
struct tmpl *tmpl_compile(const char *src, size_t n, struct tmpl_error *err)
	__must_check;

void tmpl_free(struct tmpl *t);

/* Does the template read a variable of that name? */
bool tmpl_uses(const struct tmpl *t, const char *name);

/**
 * tmpl_render() - run a template
 * @t:	  a compiled template
 * @vars: an object with its variables; read only, no reference is kept
 * @o:		options, or NULL for the defaults
 * @len:	gets the bytes of the text
 * @err:	gets the error
 *
 * Return: the text, NUL terminated, to be freed with free(), or NULL with @err
 * filled in.
 */
char *tmpl_render(const struct tmpl *t, const json_t *vars,
		  const struct tmpl_options *o, size_t *len,
		  struct tmpl_error *err) __must_check;

#endif /* RUNTIME_TEMPLATE_TEMPLATE_H */
