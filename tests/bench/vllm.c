// SPDX-License-Identifier: Apache-2.0
/*
 * vllm.c - vLLM's block pool as a peer, if it is available
 *
 * A Python process runs vllm_pool.py, which describes the protocol.  It measures
 * by its own clock, so that the cost of the pipe is in no figure.  It works only
 * when it is asked, so that it can take turns with others.  It ends when its
 * input ends, with this process.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "tests/bench/bench.h"
#include "tests/bench/vllm.h"

static FILE *to, *from;
static char name[96];

static void child_run(const int *in, const int *out, u32 nr_blocks)
{
	const char *top = getenv("KVMM_TOP");
	char path[512], blocks[16];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	dup2(in[0], STDIN_FILENO);
	dup2(out[1], STDOUT_FILENO);
	closefrom(3);
	snprintf(path, sizeof(path), "%s/tests/bench/vllm_pool.py",
		 top ? top : ".");
	snprintf(blocks, sizeof(blocks), "%u", nr_blocks);
	execlp("python3", "python3", path, blocks, NULL);
	printf("none python3 is not installed\n");
	fflush(stdout);
	_exit(0);
}

static void child_start(u32 nr_blocks)
{
	int in[2], out[2];
	pid_t pid;

	fflush(stdout);
	if (pipe(in) || pipe(out))
		bench_die("no pipe");
	pid = fork();
	if (pid < 0)
		bench_die("no process");
	if (!pid)
		child_run(in, out, nr_blocks);
	close(in[0]);
	close(out[1]);
	to = fdopen(in[1], "w");
	from = fdopen(out[0], "r");
	if (!to || !from)
		bench_die("out of memory");
}

const char *vllm_start(u32 nr_blocks)
{
	char line[512] = "none it ended at once";

	child_start(nr_blocks);
	if (!fgets(line, sizeof(line), from))
		clearerr(from);
	line[strcspn(line, "\n")] = '\0';
	if (strncmp(line, "vllm ", 5)) {
		printf("note: not beside vLLM's block pool: %s\n",
		       strncmp(line, "none ", 5) ? line : line + 5);
		return NULL;
	}
	snprintf(name, sizeof(name), "vLLM %.60s, Python", line + 5);
	printf("note: the peer is vLLM's block pool, version %s\n", line + 5);
	return name;
}

static double ask(u32 rounds, const char *what)
{
	char line[64];

	fprintf(to, "%u %s\n", rounds, what);
	fflush(to);
	if (!fgets(line, sizeof(line), from))
		bench_die("vllm_pool.py ended");
	return atof(line);
}

double vllm_pairs(u32 rounds, u32 batch)
{
	char what[16];

	snprintf(what, sizeof(what), "%u", batch);
	return ask(rounds, what);
}

double vllm_hits(u32 rounds)
{
	return ask(rounds, "hit");
}
