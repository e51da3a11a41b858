// SPDX-License-Identifier: Apache-2.0
/*
 * ask.c - files and commands of a daemon under a benchmark
 */
#include <stdlib.h>
#include <unistd.h>

#include <kvmm/view.h>

#include "tests/bench/bench.h"

#define ANSWER_MS	10000u
#define LIMIT_NS	60000000000ull

char *bench_file(const struct bench_daemon *d, const char *file)
{
	const u64 end = bench_now() + LIMIT_NS;
	char req[96], view[108], *text;
	struct seq_file m;
	int status, err;

	if (kv_view_path(d->dir, view))
		bench_die("%s: too long for a socket", d->dir);
	snprintf(req, sizeof(req), "cat %s", file);
	for (;;) {
		seq_init(&m, 1 << 20);
		status = 0;
		err = kv_view_ask(view, req, ANSWER_MS, &status, &m);
		text = err || status ? NULL : strdup(m.buf);
		seq_free(&m);
		if (!err)
			return text;
		if (bench_now() > end)
			bench_die("%s cannot be read: %s", file, strerror(-err));
		usleep(10000);
	}
}

u64 bench_file_value(const struct bench_daemon *d, const char *file,
		     const char *key)
{
	char *text = bench_file(d, file);
	const u64 v = text ? bench_key_value(text, key) : 0;

	free(text);
	return v;
}

int bench_kvctl(const struct bench_daemon *d, const char *command)
{
	const char *build = getenv("KVMM_BUILD");
	char cmd[600];

	snprintf(cmd, sizeof(cmd), "'%s/kvctl' --socket '%s' %s >/dev/null",
		 build ? build : "build", d->dir, command);
	return system(cmd);
}
