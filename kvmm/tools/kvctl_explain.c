// SPDX-License-Identifier: Apache-2.0
/*
 * kvctl_explain.c - why sequences wait, and how they lost memory
 *
 * The daemon has a file for each sequence.  A table has one line of each
 * (kvctl_why.c).  A terminal shows as many lines as it has, each cut at its edge; a
 * pipe gets all of them.  The whole files come with --long, or for one sequence.
 * With --json the files are printed in the daemon's order.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sysexits.h>
#include <unistd.h>

#include <kvmm/log.h>
#include <kvmm/lookup.h>

#include "kvmm/tools/kvctl.h"

#define ROWS_LEAST	5	/* lines that even a small terminal gets */
#define COLS_LEAST	40

/**
 * struct told - the explained sequences
 * @all:     their files, as JSON
 * @running: sequences with memory, also those that were not worth explaining
 */
struct told {
	json_t	*all;
	u64	running;
};

static const char *str(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "-";
}

static s64 num(const json_t *o, const char *key)
{
	return json_integer_value(json_object_get(o, key));
}

/* ---- reading ---- */

/* Explain one sequence: put it into @t, and print it if it is to be @whole. */
static int explain_one(struct kvctl *k, struct told *t, u64 client, u64 seq,
		       bool whole, bool title)
{
	char path[96];
	json_t *v;
	int ret;

	snprintf(path, sizeof(path), "client/%" PRIu64 "/seq/%" PRIu64 "/explain",
		 client, seq);
	v = kvctl_load(k, path, &ret);
	if (!v)
		return ret;
	json_array_append_new(t->all, v);
	if (k->opts.json || !whole)
		return EXIT_SUCCESS;
	k->title = title ? path : NULL;
	return kvctl_print_text(k);
}

/* Does the sequence that was explained last run? */
static bool last_runs(const json_t *all)
{
	return !strcmp(str(json_array_get(all, json_array_size(all) - 1), "State"),
		       "ready");
}

static bool has_memory(const json_t *row)
{
	return !strcmp(str(row, "state"), "ready");
}

/* A lease waits for nothing. */
static bool is_lease(const json_t *row)
{
	return !strcmp(str(row, "state"), "leased");
}

/* Explain all sequences of a client that wait, or lost their memory once. */
static int explain_client(struct kvctl *k, struct told *t, u64 client)
{
	json_t *rows, *row;
	char path[64];
	size_t i;
	int ret;

	snprintf(path, sizeof(path), "client/%" PRIu64 "/seqs", client);
	rows = kvctl_load(k, path, &ret);
	if (!rows)
		return ret;
	/* A sequence that was closed meanwhile is no failure. */
	k->may_fail = true;
	json_array_foreach(rows, i, row) {
		t->running += has_memory(row);
		if (is_lease(row) || (has_memory(row) && !num(row, "preempted")))
			continue;
		ret = explain_one(k, t, client, (u64)num(row, "seq"),
				  k->opts.whole, true);
		if (ret == EXIT_FAILURE)
			ret = EXIT_SUCCESS;
		if (ret)
			break;
	}
	json_decref(rows);
	k->may_fail = false;
	return ret;
}

static int explain_all(struct kvctl *k, struct told *t)
{
	json_t *clients, *row;
	size_t i;
	int ret;

	clients = kvctl_load(k, "clients", &ret);
	json_array_foreach(clients, i, row) {
		/* A client that left meanwhile is no failure. */
		k->may_fail = true;
		ret = explain_client(k, t, (u64)num(row, "id"));
		if (ret == EXIT_FAILURE)
			ret = EXIT_SUCCESS;
		if (ret)
			break;
	}
	k->may_fail = false;
	json_decref(clients);
	return ret;
}

/* Explain each sequence of a request that a server works at. */
static int explain_request(struct kvctl *k, struct told *t, const char *id)
{
	static char text[LOOKUP_MAX + 1];
	u64 client, seq;
	char *line, *end;
	json_t *rows;
	int ret;

	rows = kvctl_load(k, "clients", &ret);
	if (!rows)
		return ret;
	if (!kvctl_request_find(rows, id, text)) {
		pr_err("%.150s: no server here works at such a request: it has ended, or give the id of its answer or its X-Request-Id; CLIENT/SEQ explains a sequence",
		       id);
		ret = EXIT_FAILURE;
	}
	json_decref(rows);
	for (line = text; !ret && *line; line = end + 1) {
		end = line + strcspn(line, "\n");
		if (!*end)
			break;
		*end = '\0';
		if (sscanf(line, "%" SCNu64 " %" SCNu64, &client, &seq) != 2) {
			pr_info("%.150s: a prompt has no sequence yet: it waits in the server",
				id);
			continue;
		}
		/* A sequence that was closed meanwhile is no failure. */
		k->may_fail = true;
		ret = explain_one(k, t, client, seq, k->opts.whole, true);
		t->running += !ret && last_runs(t->all);
		if (ret == EXIT_FAILURE)
			ret = EXIT_SUCCESS;
		k->may_fail = false;
	}
	return ret;
}

/* ---- the command ---- */

/* Room for rows and columns; a pipe takes everything. */
static void room_of_terminal(size_t *rows, int *cols)
{
	struct winsize w;

	*rows = SIZE_MAX;
	*cols = 0;
	if (!isatty(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) ||
	    !w.ws_row || !w.ws_col)
		return;
	/* The sum, the titles, the number of lines left out, and the next prompt. */
	*rows = (size_t)max((int)w.ws_row - 4, ROWS_LEAST);
	*cols = max((int)w.ws_col, COLS_LEAST);
}

static int print_table(const struct told *t)
{
	size_t room;
	int cols;

	room_of_terminal(&room, &cols);
	return kvctl_explain_table(stdout, t->all, t->running, room, cols);
}

/**
 * struct which - the sequences to explain, from the operands
 * @clients: all of them, else @client alone
 * @one:     only the sequence @seq
 * @request: those of a request with this id; NULL: none
 */
struct which {
	u64	client;
	u64	seq;
	bool	clients;
	bool	one;
	const char *request;
};

/* Operands: none, CLIENT, CLIENT/SEQ, CLIENT SEQ or REQUEST. */
static int parse_which(char **argv, struct which *w)
{
	char client[24];
	const char *seq = NULL;

	memset(w, 0, sizeof(*w));
	w->clients = !argv[0];
	if (w->clients)
		return 0;
	snprintf(client, sizeof(client), "%.*s", (int)strcspn(argv[0], "/"),
		 argv[0]);
	if (strchr(argv[0], '/'))
		seq = strchr(argv[0], '/') + 1;
	if (seq && argv[1])
		return -EINVAL;
	if (argv[1])
		seq = argv[1];
	w->one = seq;
	if (kv_parse_uint(client, &w->client)) {
		w->one = false;
		w->request = argv[0];
		return argv[1] ? -EINVAL : 0;
	}
	return seq && kv_parse_uint(seq, &w->seq) ? -EINVAL : 0;
}

static int nothing_to_tell(const struct which *w)
{
	if (w->clients)
		pr_info("no sequence waits, and none has lost memory");
	else
		pr_info("client %" PRIu64 ": none of its sequences waits, and none has lost memory",
			w->client);
	return EXIT_SUCCESS;
}

int cmd_explain(struct kvctl *k, char **argv)
{
	struct told t = { .all = json_array() };
	struct which w;
	int ret;

	if (parse_which(argv, &w)) {
		pr_err("%.60s: is no sequence: give CLIENT/SEQ, as in client/CLIENT/seqs, CLIENT for all of it that wait, the id of a request, or nothing for all clients",
		       argv[0]);
		json_decref(t.all);
		return EX_USAGE;
	}
	ret = w.clients ? explain_all(k, &t) :
	      w.request ? explain_request(k, &t, w.request) :
	      w.one ? explain_one(k, &t, w.client, w.seq, true, false) :
		      explain_client(k, &t, w.client);
	if (!ret && k->opts.json)
		return kvctl_print_json(t.all);
	if (!ret && !json_array_size(t.all))
		ret = w.request ? EXIT_SUCCESS : nothing_to_tell(&w);
	else if (!ret && !w.one && !k->opts.whole)
		ret = print_table(&t);
	json_decref(t.all);
	return ret;
}
