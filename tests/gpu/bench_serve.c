// SPDX-License-Identifier: Apache-2.0
/*
 * bench_serve.c - the daemon and its runtimes, as an operator runs them
 *
 * oversub  96 requests of 4k tokens.  Their KV is more than twice the pool; the
 *          rest is on the host or computed again.  The peer runs as many
 *          requests as fit at once
 * two      two runtimes of one model each, at once, beside one alone
 *
 * tests/gpu/serve starts the programs and prints figures, one a line: name,
 * value, unit and a note.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "tests/gpu/bench.h"

/* "name value unit note.." */
static void figure_line(char *line)
{
	char name[96], unit[32];
	double value;
	int at = 0;

	line[strcspn(line, "\n")] = '\0';
	if (sscanf(line, "figure %95s %lf %31s %n", name, &value, unit, &at) == 3)
		gpu_fact(value, unit, at && line[at] ? line + at : NULL, "%s",
			 name);
	else if (sscanf(line, "skipped %95s %n", name, &at) == 1 && at)
		gpu_skipped(line + at, "%s", name);
	else
		puts(line);
}

static void serve(const char *what)
{
	const char *top = getenv("KVMM_TOP");
	char command[1024], line[1024];
	int status;
	FILE *f;

	snprintf(command, sizeof(command), "%s/tests/gpu/serve %s %s %s",
		 top && *top ? top : ".", what, bench_build(),
		 gpu_tiny ? "tiny" : "full");
	fflush(stdout);
	f = popen(command, "r");
	if (!f)
		gpu_die("%s: cannot be started", command);
	while (fgets(line, sizeof(line), f))
		figure_line(line);
	status = pclose(f);
	if (status)
		gpu_die("tests/gpu/serve %s: exit status %d", what,
			WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

void part_oversub(void)
{
	serve("oversub");
}

void part_two(void)
{
	serve("two");
}
