// SPDX-License-Identifier: Apache-2.0
/*
 * kvrt.c - a kvrt serve of this build
 *
 * Its output is in a file beside the daemon's socket; its port is read there.
 */
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bench/kvrt.h"
#include "tests/bench/streams.h"

#define START_TRIES	1000u	/* of 10 ms */

static void __noreturn run_kvrt(const struct bench_kvrt *k, const char *socket,
				const char *model, const char *const *args)
{
	const char *build = getenv("KVMM_BUILD");
	char path[512];
	const char *argv[32] = {
		path, "serve", model, "--dtype", "f32", "--port", "0", "--socket",
		socket,
	};
	u32 n = 9;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(path, sizeof(path), "%s/kvrt", build ? build : "build");
	while (*args && n < ARRAY_SIZE(argv) - 1)
		argv[n++] = *args++;
	if (!freopen(k->log, "w", stderr))
		_exit(127);
	execv(path, (char *const *)argv);
	fprintf(stderr, "%s: %s\n", path, strerror(errno));
	_exit(127);
}

/* Text behind @words in the output so far, or NULL. */
static const char *said(const struct bench_kvrt *k, const char *words)
{
	static char text[8192];
	FILE *f = fopen(k->log, "r");
	size_t n = f ? fread(text, 1, sizeof(text) - 1, f) : 0;
	const char *at;

	if (f)
		fclose(f);
	text[n] = '\0';
	at = strstr(text, words);
	return at ? at + strlen(words) : NULL;
}

void bench_kvrt_start_model(struct bench_kvrt *k,
			    const struct bench_daemon *hold, const char *name,
			    const char *dir, const char *const *args)
{
	const char *port;
	u32 tries;

	snprintf(k->log, sizeof(k->log), "%s/%s.log", hold->dir, name);
	k->pid = fork();
	if (k->pid < 0)
		bench_die("fork: %s", strerror(errno));
	if (!k->pid)
		run_kvrt(k, hold->socket, dir, args);
	for (tries = 0; !said(k, "ready: "); tries++) {
		if (tries == START_TRIES ||
		    waitpid(k->pid, NULL, WNOHANG) == k->pid)
			bench_die("kvrt serve is not ready: %s", said(k, ""));
		usleep(10000);
	}
	port = said(k, "listening on http://127.0.0.1:");
	k->port = port ? (u32)strtoul(port, NULL, 10) : 0;
}

void bench_kvrt_start(struct bench_kvrt *k, const struct bench_daemon *hold,
		      const char *const *args)
{
	const char *top = getenv("KVMM_TOP");
	char model[512];

	snprintf(model, sizeof(model), "%s/tests/data/demo-model",
		 top ? top : ".");
	bench_kvrt_start_model(k, hold, "kvrt", model, args);
}

void bench_kvrt_stop(struct bench_kvrt *k)
{
	int status;

	kill(k->pid, SIGTERM);
	if (waitpid(k->pid, &status, 0) != k->pid || status)
		bench_die("kvrt ended with status 0x%x: %s", status,
			  said(k, ""));
}

double bench_kvrt_figure(const struct bench_kvrt *k, const char *name)
{
	static char text[1 << 17];
	const size_t len = strlen(name);
	const char *at = text;
	double sum = 0;
	u32 nr = 0;

	streams_get(k->port, "/metrics", text, sizeof(text));
	while ((at = strchr(at, '\n')) && *++at) {
		if (strncmp(at, name, len) || (at[len] != '{' && at[len] != ' '))
			continue;
		at += len + strcspn(at + len, "} ");
		sum += strtod(at + (*at == '}'), NULL);
		nr++;
	}
	if (!nr)
		bench_die("/metrics has no %s: %.400s", name, text);
	return sum;
}

u64 bench_kvrt_tokens(const struct bench_kvrt *k)
{
	return (u64)bench_kvrt_figure(k, "kvrt_generation_tokens_total");
}
