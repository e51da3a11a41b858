// SPDX-License-Identifier: Apache-2.0
/*
 * bench.c - kvrt bench: measure speed
 *
 * Three kinds of measurement, each with its own options.
 */
#include <stdio.h>

#include "runtime/cli/bench.h"
#include "runtime/cli/cli.h"

/* Kinds: name, operands, the thing measured. */
#define BENCH_KINDS(x)							\
	x(serve, "URL", "a server: latencies and rates under a load of requests") \
	x(throughput, "MODEL", "the engine alone: tokens a second, all requests at once") \
	x(latency, "MODEL", "the engine alone: time of one batch, again and again")

static const struct kv_command kinds[] = {
#define x(_name, _operands, _text)					\
	{ .name = #_name, .operands = _operands, .help = _text,		\
	  .prog = &bench_##_name##_program },
	BENCH_KINDS(x)
#undef x
};

const struct kv_program cli_bench_program = {
	.name		= "kvrt bench",
	.operands	= "KIND [OPTION]... ARGUMENT",
	.about		= "Measures how fast a model is served.",
	.commands	= kinds,
	.nr_commands	= ARRAY_SIZE(kinds),
};

static void print_help(void)
{
	printf("Usage: kvrt bench KIND [OPTION]... ARGUMENT\n"
	       "Measures how fast a model is served.\n\nKinds:\n");
#define x(name, operands, text)						\
	printf("  %s %s\n      %s\n", #name, operands, text);
	BENCH_KINDS(x)
#undef x
	printf("\nkvrt bench KIND --help tells the options and exit codes of a kind.\n");
}

int cli_bench(int argc, char **argv)
{
	const char *kind = argc > 1 ? argv[1] : NULL;

	if (!kind) {
		pr_err("what to measure is missing: see kvrt bench --help");
		return EX_USAGE;
	}
	if (!strcmp(kind, "--help") || !strcmp(kind, "-h")) {
		print_help();
		return 0;
	}
#define x(name, operands, text)						\
	if (!strcmp(kind, #name))					\
		return bench_##name(argc - 1, argv + 1);
	BENCH_KINDS(x)
#undef x
	pr_err("'%.60s' is nothing to measure: see kvrt bench --help", kind);
	return EX_USAGE;
}
