// SPDX-License-Identifier: Apache-2.0
/*
 * chat.c - kvrt chat: talk with the model of an OpenAI server
 *
 * Options and exit codes; the talk is in chat_talk.c.  In place of a URL there may
 * be a model: then run.c starts a server for it.
 */
#include <sys/stat.h>

#include "runtime/cli/chat.h"

#define CHAT_CLI_OPTS(x)						\
	x(str, model, "model", NULL, 0, 0, "NAME",			\
	  "model that is asked (default the first one of /v1/models)")	\
	CHAT_OPTS(x)							\
	x(str, api_key, "api-key", NULL, 0, 0, "KEY",			\
	  "key of the API (default $KVRT_API_KEY, else none)")

struct chat_cli_opts {
#define x OPT_FIELD
	CHAT_CLI_OPTS(x)
#undef x
};

static const struct kv_opt option_table[] = {
#define x(...) OPT_ENTRY(struct chat_cli_opts, __VA_ARGS__)
	CHAT_CLI_OPTS(x)
#undef x
};

static const struct kv_exit exits[] = {
	{ 0, "the user ended it; also --help and --version" },
	{ EX_USAGE, "a wrong option or argument" },
	{ EX_DATAERR, "the server refused a turn; model files with wrong contents" },
	{ EX_NOINPUT, "a model folder or a file of it is missing" },
	{ EX_UNAVAILABLE, "no server answers at URL, or none can be started" },
	{ EX_OSERR, "the system refused memory" },
	{ EX_IOERR, "the output cannot be written" },
	{ EX_TEMPFAIL, "the server is busy, fell silent or went away: try again" },
	{ EX_PROTOCOL, "the server at URL is no OpenAI server" },
	{ EX_NOPERM, "the server wants another key" },
};

const struct kv_program cli_chat_program = {
	.name		= "kvrt chat",
	.operands	= "URL|MODEL",
	.about		= "Talks with the model of the OpenAI server at URL, http://HOST[:PORT] or unix:PATH, or with MODEL, as kvrt run does. Lines come from the terminal, where they can be edited, or from standard input, one turn a line. Lines that begin with a slash are commands: /help lists them. Ctrl-C stops an answer, Ctrl-D ends.",
	.opts		= option_table,
	.nr_opts	= ARRAY_SIZE(option_table),
	.exits		= exits,
	.nr_exits	= ARRAY_SIZE(exits),
};

/*
 * Is the operand a model?  HOST:PORT is none, so a URL without http:// is told so.  A path
 * that leads nowhere is a model: its refusal says so.
 */
static bool is_model(const char *text)
{
	const size_t len = strlen(text);
	char name[HUB_NAME_MAX];
	struct stat st;

	return hub_name(text, name) || *text == '/' || *text == '.' ||
	       (len > 5 && !strcasecmp(text + len - 5, ".gguf")) ||
	       !stat(text, &st);
}

static int chat(const struct chat_cli_opts *o, const char *text)
{
	struct chat_opts talk = CHAT_OPTS_OF(o);
	struct web_server server;
	const char *key;
	int ret;

	ret = chat_numbers(&talk, o->temperature, o->seed);
	if (ret)
		return ret;
	if (is_model(text))
		return run_talk(&talk, text);
	talk.model = o->model;
	if (web_parse_url(&server, text))
		return EX_USAGE;
	ret = web_key(o->api_key, &key);
	return ret ? ret : chat_talk(&talk, &server, key, NULL);
}

int cli_chat(int argc, char **argv)
{
	struct chat_cli_opts o;
	int nr, ret;

	ret = cli_parse(&cli_chat_program, NULL, &o, argc, argv, &nr);
	if (ret)
		return max(ret, 0);
	if (nr == 1)
		return chat(&o, argv[0]);
	pr_err("%s: kvrt chat URL, or kvrt chat MODEL", nr ?
	       "more than one URL or model" :
	       "the URL of the server, or the model, is missing");
	return EX_USAGE;
}
