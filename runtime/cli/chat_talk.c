// SPDX-License-Identifier: Apache-2.0
/*
 * chat_talk.c - turns and commands of a chat
 *
 * The program keeps the history and sends it whole with every turn, as the API
 * requires.  A server that caches prefixes reads only the new part, and the
 * line after each answer says how much that saved.  A stopped answer stays in
 * the history as far as it came, so that the next turn goes on from there; a
 * failed turn leaves nothing.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/cli/chat.h"

/* State of one chat; the sums are over all turns. */
struct chat {
	const struct chat_opts	*o;
	const struct web_server	*server;
	const char		*key;
	char			*model;
	json_t			*messages;
	struct chat_prompt	prompt;
	struct output		out;
	bool			dim;
	bool			over;
	u32			turns;
	u64			tokens;
	u64			prompt_tokens;
	u64			cached_tokens;
	double			seconds;
};

/* ---- the history ---- */

static json_t *message(const char *role, const char *text, size_t len)
{
	return json_pack("{s:s, s:s%}", "role", role, "content", text, len);
}

static const char *role_of(const struct chat *c, size_t i)
{
	return json_string_value(json_object_get(
		json_array_get(c->messages, i), "role"));
}

static bool has_system(const struct chat *c)
{
	return json_array_size(c->messages) && !strcmp(role_of(c, 0), "system");
}

/* Drop the last turn, complete or not.  Return: false when there is none. */
static bool drop_turn(struct chat *c)
{
	const size_t first = has_system(c);
	size_t n = json_array_size(c->messages);
	bool user = false;

	if (n <= first)
		return false;
	while (n > first && !user) {
		user = !strcmp(role_of(c, --n), "user");
		json_array_remove(c->messages, n);
	}
	return true;
}

static void set_system(struct chat *c, const char *text)
{
	json_t *m = *text ? message("system", text, strlen(text)) : NULL;

	if (has_system(c))
		json_array_remove(c->messages, 0);
	if (m)
		json_array_insert_new(c->messages, 0, m);
	if (*text && !m)
		pr_err("that is no UTF-8: write it anew");
}

/* ---- commands ---- */

#define COMMANDS(x)							\
	x(help, "", "list the commands")				\
	x(reset, "", "forget all messages but that of /system")		\
	x(undo, "", "forget the last turn")				\
	x(system, "TEXT", "tell the model this first; without TEXT: nothing") \
	x(save, "FILE", "write the chat there, as JSON")		\
	x(stats, "", "tokens so far, and tokens that the cache saved")		\
	x(quit, "", "end; also Ctrl-D")

static void do_help(struct chat *c, const char *arg)
{
#define x(name, meta, text) printf("  /%-8s %-5s %s\n", #name, meta, text);
	COMMANDS(x)
#undef x
	printf("A line that begins with two slashes is sent with one.\n");
}

static void do_reset(struct chat *c, const char *arg)
{
	while (drop_turn(c))
		;
	printf("Forgotten.\n");
}

static void do_undo(struct chat *c, const char *arg)
{
	printf(drop_turn(c) ? "The last turn is forgotten.\n" :
	       "Nothing was said yet.\n");
}

static void do_system(struct chat *c, const char *arg)
{
	set_system(c, arg);
	printf(*arg ? "The model is told so from the next turn on.\n" :
	       "The model is told nothing first.\n");
}

static void do_save(struct chat *c, const char *arg)
{
	json_t *v;
	int bad;
	FILE *f;

	if (!*arg) {
		pr_err("/save: the file is missing: /save FILE");
		return;
	}
	f = fopen(arg, "we");
	if (!f) {
		pr_err("/save: %s: %s", arg, strerror(errno));
		return;
	}
	v = json_pack("{s:s, s:O}", "model", c->model, "messages", c->messages);
	bad = !v || json_dumpf(v, f, JSON_INDENT(2));
	fputc('\n', f);
	json_decref(v);
	if (fclose(f) || bad)
		pr_err("/save: %s: %s", arg, strerror(errno));
	else
		printf("%zu messages are in %s\n",
		       json_array_size(c->messages), arg);
}

static double percent(u64 part, u64 all)
{
	return all ? 100.0 * (double)part / (double)all : 0;
}

static void do_stats(struct chat *c, const char *arg)
{
	printf("%u turn%s, %llu tokens in %.1f s; cached %llu of %llu prompt tokens (%.0f %%)\n",
	       c->turns, c->turns == 1 ? "" : "s",
	       (unsigned long long)c->tokens, c->seconds,
	       (unsigned long long)c->cached_tokens,
	       (unsigned long long)c->prompt_tokens,
	       percent(c->cached_tokens, c->prompt_tokens));
}

static void do_quit(struct chat *c, const char *arg)
{
	c->over = true;
}

static void command(struct chat *c, const char *line)
{
	const size_t n = strcspn(line, " ");
	const char *arg = line + n + strspn(line + n, " ");
	static const struct {
		const char	*name;
		void		(*run)(struct chat *c, const char *arg);
	} table[] = {
#define x(name, meta, text) { "/" #name, do_##name },
		COMMANDS(x)
#undef x
	};
	u32 i;

	for (i = 0; i < ARRAY_SIZE(table); i++)
		if (strlen(table[i].name) == n &&
		    !strncmp(table[i].name, line, n))
			break;
	if (i == ARRAY_SIZE(table))
		pr_err("%.*s is no command: /help lists them",
		       (int)min(n, (size_t)40), line);
	else
		table[i].run(c, arg);
	fflush(stdout);
}

/* ---- turns ---- */

static void say_turn(const struct chat *c, const struct turn *t)
{
	/*
	 * A stopped answer has no usage, and an event may hold several tokens.
	 */
	const bool few = !t->tokens && t->events;
	const u64 nr = few ? t->events : t->tokens;

	if (c->o->quiet)
		return;
	fprintf(stderr, "%s%s%s%llu tokens", c->dim ? "\033[2m" : "",
		t->stopped ? "stopped; " : t->length ? "cut off; " : "",
		few ? "at least " : "", (unsigned long long)nr);
	if (nr && !few && t->took > 0)
		fprintf(stderr, ", %.0f/s", (double)nr / t->took);
	if (t->events)
		fprintf(stderr, ", first %.0f ms", t->first * 1e3);
	if (t->prompt_tokens)
		fprintf(stderr, "; cached %llu of %llu (%.0f %%)",
			(unsigned long long)t->cached_tokens,
			(unsigned long long)t->prompt_tokens,
			percent(t->cached_tokens, t->prompt_tokens));
	fprintf(stderr, "%s\n", c->dim ? "\033[0m" : "");
}

/* Keep in the history as much of a turn as is valid. */
static void keep_turn(struct chat *c, struct turn *t, int ret)
{
	json_t *m = NULL;

	if (!ret && t->text.len)
		m = message("assistant", t->text.p, t->text.len);
	if (m)
		json_array_append_new(c->messages, m);
	else if (ret || t->stopped)
		drop_turn(c);
	if (ret)
		return;
	c->turns++;
	c->tokens += t->tokens ? t->tokens : t->events;
	c->prompt_tokens += t->prompt_tokens;
	c->cached_tokens += t->cached_tokens;
	c->seconds += t->took;
}

static int say(struct chat *c, const char *line)
{
	struct turn t = {
		.server = c->server, .key = c->key, .model = c->model,
		.timeout_s = c->o->timeout, .max_tokens = c->o->max_tokens,
		.temperature = c->o->temperature, .seed = c->o->seed,
	};
	json_t *m = message("user", line, strlen(line));
	int ret;

	if (!m) {
		pr_err("that is no UTF-8: write it anew");
		return EX_DATAERR;
	}
	json_array_append_new(c->messages, m);
	t.messages = c->messages;
	prompt_pause(&c->prompt);
	ret = turn_run(&t, &c->out);
	keep_turn(c, &t, ret);
	if (!ret)
		say_turn(c, &t);
	text_free(&t.text);
	return ret;
}

/* After a turn: the exit code if the server is gone for good, else 0. */
static int server_gone(const struct chat *c, int ret)
{
	return ret && c->o->gone ? c->o->gone(c->o->arg) : 0;
}

/*
 * Run turns until the user ends it; on a terminal a failed turn is not the end.
 */
static int talk(struct chat *c)
{
	int got, gone, ret = 0;
	char *line;

	while (!c->over && !c->out.err) {
		got = prompt_line(&c->prompt, "> ", &line);
		if (got == -EINTR)
			continue;
		if (got <= 0)
			break;
		if (line[0] == '/' && line[1] != '/')
			command(c, line);
		else if (line[strspn(line, " \t\n")])
			ret = say(c, line + (line[0] == '/'));
		free(line);
		gone = server_gone(c, ret);
		if (gone || (ret && !c->prompt.tty))
			return gone ? gone : ret;
		ret = 0;
	}
	return c->out.err ? EX_IOERR : 0;
}

/* ---- the start ---- */

int chat_numbers(struct chat_opts *o, const char *temperature, const char *seed)
{
	int err;

	o->temperature = -1;
	o->seed = UINT64_MAX;
	err = cli_number("temperature", temperature, 0, 1e6, &o->temperature);
	return err ? err : cli_whole("seed", seed, INT64_MAX, &o->seed);
}

static void on_interrupt(int sig)
{
	turn_interrupt();
}

static int choose_model(struct chat *c)
{
	json_t *v;
	int ret;

	ret = web_models(c->server, c->key, c->o->timeout, &v);
	if (ret)
		return ret;
	c->model = strdup(c->o->model ? c->o->model : json_string_value(
		json_object_get(json_array_get(json_object_get(v, "data"), 0),
				"id")));
	json_decref(v);
	c->messages = json_array();
	if (c->model && c->messages)
		return 0;
	pr_err("no memory for a chat: end other programs");
	return EX_OSERR;
}

/* Talk until the user ends it. */
static int talk_lines(struct chat *c)
{
	const struct sigaction sa = { .sa_handler = on_interrupt };
	int ret;

	prompt_open(&c->prompt);
	if (c->prompt.tty)
		sigaction(SIGINT, &sa, NULL);
	if (c->prompt.tty && !c->o->quiet)
		printf("%s at %s; try /help, end with Ctrl-D\n", c->model,
		       c->server->shown);
	fflush(stdout);
	ret = talk(c);
	prompt_close(&c->prompt);
	return ret;
}

int chat_talk(const struct chat_opts *o, const struct web_server *server,
	      const char *key, const char *question)
{
	const char *no_colour = getenv("NO_COLOR");
	struct chat c = { .o = o, .server = server, .key = key };
	int ret, gone;

	ret = choose_model(&c);
	if (!ret) {
		if (o->system)
			set_system(&c, o->system);
		output_init(&c.out, STDOUT_FILENO);
		c.dim = isatty(STDERR_FILENO) == 1 &&
			!(no_colour && *no_colour);
		signal(SIGPIPE, SIG_IGN);
		ret = question ? say(&c, question) : talk_lines(&c);
		gone = question ? server_gone(&c, ret) : 0;
		if (gone)
			ret = gone;
		if (!ret && c.out.err)
			ret = EX_IOERR;
	}
	output_close(&c.out);
	json_decref(c.messages);
	free(c.model);
	return ret;
}
