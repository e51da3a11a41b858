/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chat.h - the parts of kvrt chat
 *
 * The editor turns keys into a line and knows no terminal; the prompt reads
 * keys, draws the line and remembers lines; a turn asks the server; chat.c has
 * the history of what was said, and the commands.
 */
#ifndef RUNTIME_CLI_CHAT_H
#define RUNTIME_CLI_CHAT_H

#include <termios.h>

#include "runtime/cli/cli.h"
#include "runtime/cli/web.h"

#define EDIT_LINE_MAX	(1u << 20)
#define EDIT_HISTORY	500u

/* ---- chat_edit.c: keys into a line ---- */

enum edit_end {
	EDIT_MORE,		/* it goes on */
	EDIT_LINE,		/* Enter */
	EDIT_ABANDONED,		/* Ctrl-C */
	EDIT_OVER,		/* Ctrl-D on an empty line */
	EDIT_CLEAR,		/* Ctrl-L: draw everything anew */
};

/**
 * struct edit - a line being written; all zero but @lines is a new one
 * @text:  UTF-8; the cursor is at byte @at
 * @lines: that were entered before; edit_remember()
 * @old:   which of them is shown; @lines.nr: none
 * @draft: what was written before one was
 * @state: of a sequence of bytes that is not over, kept in @seq
 * @paste: between the marks that a terminal puts around what is pasted
 */
struct edit {
	struct text	text;
	size_t		at;
	struct {
		char	**list;
		u32	nr;
	} lines;
	u32		old;
	struct text	draft;
	u32		state;
	char		seq[16];
	u32		nr_seq;
	bool		paste;
};

/* edit_begin() - a new, empty line */
void edit_begin(struct edit *e);
/* edit_byte() - one byte from the terminal */
enum edit_end edit_byte(struct edit *e, u8 byte);
/* edit_remember() - keep a line for the arrow keys */
void edit_remember(struct edit *e, const char *line);
void edit_free(struct edit *e);
/* edit_columns() - columns that @n bytes take, at column @col of @width */
u32 edit_columns(const char *p, size_t n, u32 col, u32 width);

/* ---- chat_prompt.c: the terminal ---- */

/**
 * struct chat_prompt - where lines come from
 * @tty:    a person writes them
 * @row:    of the cursor, below the first of what is drawn
 * @ahead:  bytes that were read and not used, @nr_ahead of them
 */
struct chat_prompt {
	struct edit	edit;
	bool		tty;
	bool		raw;
	struct termios	saved;
	u32		row;
	char		ahead[256];
	u32		nr_ahead;
};

void prompt_open(struct chat_prompt *p);
void prompt_close(struct chat_prompt *p);

/**
 * prompt_line() - a line from the user
 * @mark: shown in front of it on a terminal
 * @line: the line, to be freed
 *
 * Return: 1: a line; 0: the end; -EINTR: the user wants none of it; -ENOMEM.
 */
int prompt_line(struct chat_prompt *p, const char *mark, char **line);

/* While an answer comes: keys show nowhere, Ctrl-C is a signal. */
void prompt_pause(struct chat_prompt *p);

/* ---- chat_turn.c: one answer ---- */

/**
 * struct turn - what is asked and what came
 * @messages:  the chat so far, a list for the server
 * @text:      of the answer, as far as it came
 * @stopped:   the user wanted no more
 * @first, @took: seconds to the first token, and in all
 */
struct turn {
	const struct web_server	*server;
	const char		*key;
	const char		*model;
	u32			timeout_s;
	u32			max_tokens;
	double			temperature;	/* < 0: the server's */
	u64			seed;		/* UINT64_MAX: the server's */
	const json_t		*messages;
	struct text		text;
	bool			stopped;
	bool			ended;
	bool			length;		/* it was cut off there */
	u32			events;
	u64			prompt_tokens;
	u64			cached_tokens;
	u64			tokens;
	double			begin;
	double			first;
	double			took;
	int			status;		/* with @why: the server says no */
	char			why[200];
};

/**
 * turn_run() - ask, and print the answer as it comes
 *
 * Return: 0, or an exit code after a line on stderr; @t->text is what came
 * until then.
 */
int turn_run(struct turn *t, struct output *out);

/* turn_interrupt() - end the answer that is coming; for a signal's handler */
void turn_interrupt(void);

#endif /* RUNTIME_CLI_CHAT_H */
