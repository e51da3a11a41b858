// SPDX-License-Identifier: Apache-2.0
/*
 * kvrt.c - the runtime: one process a model
 *
 * kvrt loads a model, attaches to the kvmm daemon, which owns the memory of the
 * KV, and generates text.  It is an ordinary unprivileged program: it may be
 * killed at any instruction.  The daemon then takes its memory back, and its
 * computed KV stays cached for the next process.
 *
 * The layers, each ignorant of those above it:
 *
 *	runtime/cli		commands, options, prompts, output
 *	runtime/engine		batches, chunks, forks, preemption
 *	runtime/model		checkpoints, the decoder
 *	runtime/libkvmm		the daemon's client library
 *	kernels			arithmetic
 *
 * and beside them runtime/tokenizer and runtime/sampler.  This file only knows
 * the names of the commands.
 */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <kvmm/near.h>

#include "runtime/cli/cli.h"
#include "runtime/lib/mapped.h"

static int (* const runs[])(int argc, char **argv) = {
#define x(_name, _operands, _text) cli_##_name,
	CLI_COMMANDS(x)
#undef x
};

static const struct kv_command commands[] = {
#define x(_name, _operands, _text)					\
	{ .name = #_name, .operands = _operands, .help = _text,		\
	  .prog = &cli_##_name##_program },
	CLI_COMMANDS(x)
#undef x
};

static const struct kv_program program = {
	.name		= "kvrt",
	.brief		= "run language models in the memory of kvmm",
	.operands	= "COMMAND [ARGUMENT]...",
	.about		= "Runs a language model whose KV memory the kvmm daemon owns.",
	.commands	= commands,
	.nr_commands	= ARRAY_SIZE(commands),
};

static void print_help(void)
{
	u32 i;

	printf("Usage: kvrt COMMAND [OPTION]... [ARGUMENT]...\n"
	       "Runs a language model whose KV memory the kvmm daemon owns.\n"
	       "\nCommands:\n");
	for (i = 0; i < ARRAY_SIZE(commands); i++)
		printf("  %s %s\n      %s\n", commands[i].name,
		       commands[i].operands, commands[i].help);
	printf("\nkvrt COMMAND --help tells the options and exit codes of a command.\n");
}

/*
 * If the caller has closed a standard descriptor, the next socket or file would
 * get its number, and output would land in it.  /dev/null takes its place:
 * reading gives nothing, writing fails.
 */
static void fill_standard_fds(void)
{
	int fd;

	for (fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDONLY) < 0)
			return;
}

static int no_command(const char *name)
{
	struct kv_near near;
	u32 i;

	kv_near_init(&near, name, strlen(name));
	for (i = 0; i < ARRAY_SIZE(commands); i++)
		kv_near_try(&near, commands[i].name);
	if (near.best)
		pr_err("'%.60s' is no command: did you mean kvrt %s?", name,
		       near.best);
	else
		pr_err("'%.60s' is no command: see kvrt --help", name);
	return EX_USAGE;
}

int main(int argc, char **argv)
{
	static char help[] = "--help";
	const char *name = argc > 1 ? argv[1] : NULL;
	u32 i;

	fill_standard_fds();
	kv_log_init("kvrt", KV_LOG_INFO);
	mapped_guard_init();
	if (!name) {
		pr_err("a command is missing: try kvrt --help");
		return EX_USAGE;
	}
	if (!strcmp(name, "help") && argc > 2) {
		/* kvrt help bench serve: as kvrt bench serve --help */
		memmove(&argv[1], &argv[2], (size_t)(argc - 2) * sizeof(*argv));
		argv[argc - 1] = help;
		name = argv[1];
	}
	if (!strcmp(name, "--help") || !strcmp(name, "-h") ||
	    !strcmp(name, "help")) {
		print_help();
		return 0;
	}
	if (!strcmp(name, "--version") || !strcmp(name, "version")) {
		printf("kvrt %s\n", KVMM_VERSION);
		return 0;
	}
	if (!strncmp(name, "--print-", 8) &&
	    kv_opts_print(&program, name + 8, stdout))
		return 0;
	for (i = 0; i < ARRAY_SIZE(commands); i++)
		if (!strcmp(name, commands[i].name))
			return runs[i](argc - 1, argv + 1);
	return no_command(name);
}
