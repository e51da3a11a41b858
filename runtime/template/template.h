/* SPDX-License-Identifier: Apache-2.0 */
/*
 * template.h - chat templates: from the messages of a chat to a prompt
 *
 * The makers of a model ship a small program in the language of Jinja2 that
 * writes a chat down as the model was trained to read it.  This is an
 * interpreter of the part of that language which such programs use, with the
 * settings of transformers' apply_chat_template(); Documentation/template.md
 * says which part.
 *
 * A template is untrusted: it runs with limits on its size, on its steps, on
 * the memory and on the text it makes, reads nothing but the variables handed
 * in and the time of day, and can change none of them.
 *
 * A compiled template is never written to again: threads may render the same
 * one at the same time.
 */
#ifndef RUNTIME_TEMPLATE_TEMPLATE_H
#define RUNTIME_TEMPLATE_TEMPLATE_H

#include <jansson.h>
#include <time.h>

#include <kvmm/types.h>

#define TMPL_TEXT	512

/**
 * enum tmpl_fault - whose fault it is that there is no text
 * @TMPL_OK:	  there is one
 * @TMPL_SYNTAX:  the template is not in the language, or needs more of it
 *		  than there is here: the fault of the model's folder
 * @TMPL_RAISED:  the template itself called raise_exception(): it does not
 *		  take these messages, the fault of who sent them
 * @TMPL_FAILED:  an operation made no sense for its operands, most often
 *		  because a message lacks what the template reads
 * @TMPL_LIMIT:	  a limit was reached
 * @TMPL_NOMEM:	  the machine has no memory
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
 * struct tmpl_error - why there is none, in one line
 * @what: whose fault
 * @line: place in the template, from 1; 0 if it has none
 * @col:  column, from 1, in bytes
 * @text: what was wrong, without the place, valid UTF-8; of TMPL_RAISED the
 *	  template's own words, and these may have several lines
 */
struct tmpl_error {
	enum tmpl_fault	what;
	unsigned int	line;
	unsigned int	col;
	char		text[TMPL_TEXT];
};

/**
 * struct tmpl_limits - what one rendering may use; 0 means the default
 * @steps:  pieces of work: a node visited, some 32 bytes looked at
 * @memory: bytes of values, the converted variables included
 * @output: bytes of the text
 * @depth:  nodes, calls of macros and nested values inside of each other
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
/* Of a template: bytes of source, nodes, blocks and brackets in each other. */
#define TMPL_SOURCE_MAX		((size_t)1 << 20)
#define TMPL_NODES_MAX		100000u
#define TMPL_NEST_MAX		100u
/* Numbers of one range(), as in Jinja2's sandbox. */
#define TMPL_RANGE_MAX		100000

/**
 * struct tmpl_options - how to render
 * @limits: see there
 * @now:    what strftime_now() shows; 0 means the clock
 */
struct tmpl_options {
	struct tmpl_limits	limits;
	time_t			now;
};

struct tmpl;

/**
 * tmpl_compile() - read a template
 * @src: @n bytes; kept by nobody
 * @n:	 their number
 * @err: gets the reason if there is none
 *
 * Return: the template, for tmpl_free(), or NULL with @err filled in.
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
 * @o:	  options, or NULL for the defaults
 * @len:  gets the bytes of the text
 * @err:  gets the reason if there is none
 *
 * Return: the text, NUL terminated, for free(), or NULL with @err filled in.
 */
char *tmpl_render(const struct tmpl *t, const json_t *vars,
		  const struct tmpl_options *o, size_t *len,
		  struct tmpl_error *err) __must_check;

#endif /* RUNTIME_TEMPLATE_TEMPLATE_H */
