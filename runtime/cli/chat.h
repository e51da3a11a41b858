/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chat.h - the parts of kvrt chat
 *
 * The editor turns keys into a line and knows no terminal; the prompt reads
 * keys, draws the line and remembers lines; a turn asks the server; the talk has
 * the history of the chat and the commands.  run.c and chat.c begin a talk.
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
	EDIT_MORE,		/* the line goes on */
	EDIT_LINE,		/* Enter */
	EDIT_ABANDONED,		/* Ctrl-C */
	EDIT_OVER,		/* Ctrl-D on an empty line */
	EDIT_CLEAR,		/* Ctrl-L: draw everything anew */
};

/**
 * struct edit - a line being written; zero all but @lines for a new one
 * @text:  UTF-8; the cursor is at byte @at
 * @lines: lines entered before; see edit_remember()
 * @old:   which of them is shown; @lines.nr: none
 * @draft: the line being written before an old one was shown
 * @state: state of an incomplete sequence of bytes, kept in @seq
 * @paste: inside the marks that a terminal puts around pasted text
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

/* edit_begin() - start a new, empty line */
void edit_begin(struct edit *e);
/* edit_byte() - handle one byte from the terminal */
enum edit_end edit_byte(struct edit *e, u8 byte);
/* edit_remember() - keep a line for the arrow keys */
void edit_remember(struct edit *e, const char *line);
void edit_free(struct edit *e);
/* edit_columns() - columns that @n bytes take, at column @col of @width */
u32 edit_columns(const char *p, size_t n, u32 col, u32 width);

/* ---- chat_prompt.c: the terminal ---- */

/**
 * struct chat_prompt - source of lines
 * @tty:    the source is a terminal
 * @row:    row of the cursor, relative to the first row drawn
 * @ahead:  bytes that were read but not used, @nr_ahead of them
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
 * prompt_line() - read a line from the user
 * @mark: shown before it on a terminal
 * @line: the line, to be freed
 *
 * Return: 1: a line; 0: the end; -EINTR: the user abandoned it; -ENOMEM.
 */
int prompt_line(struct chat_prompt *p, const char *mark, char **line);

/* While an answer comes: keys are not shown, Ctrl-C is a signal. */
void prompt_pause(struct chat_prompt *p);

/* ---- chat_turn.c: one answer ---- */

/**
 * struct turn - a request and its answer
 * @messages:  the chat so far, a list for the server
 * @text:      text of the answer so far
 * @stopped:   the user stopped it @first, @took: seconds to the first token,
 *             and in all
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
	bool			length;		/* cut off at the longest length */
	u32			events;
	u64			prompt_tokens;
	u64			cached_tokens;
	u64			tokens;
	double			begin;
	double			first;
	double			took;
	int			status;		/* with @why: the server's refusal */
	char			why[200];
};

/**
 * turn_run() - ask, and print the answer as it comes
 *
 * Return: 0, or an exit code after a line on stderr; @t->text is the text until
 * then.
 */
int turn_run(struct turn *t, struct output *out);

/* turn_interrupt() - end the current answer; for a signal handler */
void turn_interrupt(void);

/* ---- chat_talk.c: the talk ---- */

/* Options of a talk, for the tables of kvrt chat and kvrt run. */
#define CHAT_OPTS(x)							\
	x(str, system, "system", NULL, 0, 0, "TEXT",			\
	  "system message; as /system")					\
	x(uint, max_tokens, "max-tokens", NULL, 1, 1 << 24, "N",	\
	  "most tokens of an answer (default: the server's)")		\
	x(str, temperature, "temperature", NULL, 0, 0, "T",		\
	  "0 takes the likeliest token, above 1 is wilder (default: the server's)") \
	x(str, seed, "seed", NULL, 0, 0, "N",				\
	  "same seed, same text (default: the server's choice)")	\
	x(flag, quiet, "quiet", NULL, 0, 0, NULL,			\
	  "print no more on stderr than errors")			\
	x(uint, timeout, "timeout", "600", 1, 86400, "SECONDS",		\
	  "longest silence of the server")

/**
 * struct chat_opts - options of a talk
 * @model:       NULL: the first one of /v1/models
 * @system:      system message, or NULL
 * @temperature: < 0: the server's
 * @seed:        UINT64_MAX: the server's
 * @gone:        asked after a failed turn: is the server @arg gone for good?  Returns
 *               the exit code after a line on stderr, or 0; NULL: it is not known
 */
struct chat_opts {
	const char	*model;
	const char	*system;
	u32		max_tokens;
	double		temperature;
	u64		seed;
	bool		quiet;
	u32		timeout;
	int		(*gone)(void *arg);
	void		*arg;
};

/* struct chat_opts of a structure with CHAT_OPTS(), but for its numbers. */
#define CHAT_OPTS_OF(o) {						\
	.system = (o)->system, .max_tokens = (o)->max_tokens,		\
	.quiet = (o)->quiet, .timeout = (o)->timeout,			\
}

/**
 * chat_numbers() - fill in the numbers of a talk
 * @temperature: text of the option, NULL: not given
 * @seed:        likewise
 *
 * Return: 0, or EX_USAGE after one line on stderr.
 */
int chat_numbers(struct chat_opts *o, const char *temperature, const char *seed);

/**
 * chat_talk() - talk with a model
 * @key:      API key, or NULL
 * @question: the only message; NULL: messages come from standard input
 *
 * Return: 0, or an exit code after a line on stderr.
 */
int chat_talk(const struct chat_opts *o, const struct web_server *server,
	      const char *key, const char *question);

/* ---- run.c: a talk with a server of its own ---- */

/**
 * run_talk() - start a server for model @text, talk with it, and end it
 *
 * Uses the daemon that is there, or else a private one.
 *
 * Return: 0, or an exit code after a line on stderr.
 */
int run_talk(const struct chat_opts *o, const char *text);

#endif /* RUNTIME_CLI_CHAT_H */
