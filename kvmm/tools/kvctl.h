/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvctl.h - interfaces of the files of kvctl
 */
#ifndef KVMM_TOOLS_KVCTL_H
#define KVMM_TOOLS_KVCTL_H

#include <stdio.h>

#include <jansson.h>

#include <kvmm/opts.h>
#include <kvmm/seq.h>
#include <kvmm/view.h>

#define KVCTL_OPTIONS(x)						\
	x(str, socket, "socket", NULL, 0, 0, "PATH",			\
	  "run directory of the daemon, or a socket in it (default $KVMM_RUNDIR, else $XDG_RUNTIME_DIR/kvmm, else /tmp/kvmm-UID; /run/kvmm for root, and for users without a daemon there); $KVMM_SOCKET, the attach socket of clients, is not looked at") \
	x(str, tenant, "tenant", NULL, 0, 0, "NAME",			\
	  "show the view of a --tenant of the daemon: view.sock in the directory NAME beside the daemon's own") \
	x(flag, all, "all", NULL, 0, 0, NULL,				\
	  "run the command at each daemon of the machine: those of the run directory and of others that have its name, a dash and a word, as /run/kvmm-0") \
	x(uint, timeout, "timeout", "10", 1, 86400, "SECONDS",		\
	  "longest silence of the daemon; for wait and swapoff, the longest wait") \
	x(size, size, "size", "0", 0, 1ull << 62, "SIZE",		\
	  "swapon: length that the file gets; 0: as it is")		\
	x(uint, priority, "priority", "0", 0, 32767, "N",		\
	  "swapon: areas of higher priority are filled first, equal ones in turn") \
	x(flag, force, "force", NULL, 0, 0, NULL,			\
	  "swapon: overwrite a file or device with other content than a swap area") \
	x(flag, off, "off", NULL, 0, 0, NULL,				\
	  "drain: end the drain")		\
	x(flag, print, "print", NULL, 0, 0, NULL,			\
	  "save: print the file of options that would be written")	\
	x(flag, whole, "long", NULL, 0, 0, NULL,			\
	  "explain: print all that is known of each sequence")		\
	x(flag, json, "json", NULL, 0, 0, NULL,				\
	  "print JSON on stdout; errors stay lines on stderr") \
	x(flag, cold, "cold", NULL, 0, 0, NULL,				\
	  "upgrade: also to a kvmm that cannot go on with the memory there is")

struct kvctl_opts {
#define x OPT_FIELD
	KVCTL_OPTIONS(x)
#undef x
};

/**
 * struct kvctl - one run
 * @opts: options of the command line
 * @path: path of the view socket
 * @text: the last answer
 * @title: title to print before an answer; NULL: none
 * @begun: an answer was printed
 * @may_fail: a file that is gone is no error: nothing is printed
 */
struct kvctl {
	struct kvctl_opts	opts;
	char			path[KV_VIEW_PATH_MAX];
	struct seq_file		text;
	const char		*title;
	bool			begun;
	bool			may_fail;
};

/* kvctl.c */
int kvctl_read(struct kvctl *k, const char *verb, const char *arg);
int kvctl_print_text(struct kvctl *k);
/* Print one line for a connection that failed.  Return: exit code. */
int kvctl_report(const struct kvctl *k, int err);

/* kvctl_wait.c: @argv is empty, or a path and a trigger.  Return: exit code. */
int cmd_wait(struct kvctl *k, char **argv);

/* kvctl_json.c */
json_t *kvctl_json_string(const char *s, size_t len);
json_t *kvctl_json(const char *path, const struct seq_file *m);
int kvctl_print_json(json_t *v);
/* Give all later values the run directory of their daemon. */
void kvctl_json_of(const char *rundir);

/* kvctl_shrink.c: @argv is a pool, a size, both or empty.  Return: exit code. */
int cmd_shrink_cost(struct kvctl *k, char **argv);

/* kvctl_groups.c: @argv is a domain, or empty.  Return: exit code. */
int cmd_groups(struct kvctl *k, char **argv);

/* Unit of a figure. */
enum unit { UNIT_WORD, UNIT_KB, UNIT_BYTES, UNIT_MS };

/**
 * struct column - one column of a table for people
 * @key:  name of the column in the file
 * @head: heading
 */
struct column {
	const char	*key;
	const char	*head;
	int		width;
	enum unit	unit;
};

#define COLUMNS_MAX	16	/* of a table for people */

void kvctl_format(const json_t *v, enum unit unit, char *buf, size_t len);
int kvctl_print_table(const json_t *rows, const struct column *col, u32 nr);

/* kvctl_show.c: commands that read.  Return: exit code. */
int cmd_status(struct kvctl *k, char **argv);
int cmd_clients(struct kvctl *k, char **argv);
int cmd_domains(struct kvctl *k, char **argv);
int cmd_pools(struct kvctl *k, char **argv);
int cmd_limits(struct kvctl *k, char **argv);
int cmd_tunables(struct kvctl *k, char **argv);
int cmd_leases(struct kvctl *k, char **argv);
json_t *kvctl_load(struct kvctl *k, const char *path, int *ret);

/* kvctl_explain.c: @argv names a client, a sequence or nothing.  Return: exit code. */
int cmd_explain(struct kvctl *k, char **argv);

/* kvctl_why.c: the table of explained sequences.  Return: exit code. */
void kvctl_format_ms(s64 ms, char *buf, size_t len);
int kvctl_explain_table(FILE *out, const json_t *all, u64 running, size_t room,
			int cols);

/**
 * kvctl_request_find() - kvctl_request.c: ask the servers for a request
 * @clients: rows of the file clients
 * @id:      of the request, as its server logs it, or its X-Request-Id
 * @text:    LOOKUP_MAX + 1 bytes; gets the lines of the answer (kvmm/lookup.h)
 *
 * Return: false: none of them works at it.
 */
bool kvctl_request_find(const json_t *clients, const char *id, char *text);

/* kvctl_act.c: commands that act.  Return: exit code. */
int cmd_evict(struct kvctl *k, char **argv);
int cmd_pin(struct kvctl *k, char **argv);
int cmd_unpin(struct kvctl *k, char **argv);
int cmd_drain(struct kvctl *k, char **argv);
int cmd_log_level(struct kvctl *k, char **argv);

/* kvctl_swap.c: @argv is the path of the area, or the domain.  Return: exit code. */
int cmd_swapon(struct kvctl *k, char **argv);
int cmd_swapoff(struct kvctl *k, char **argv);
int cmd_drop_caches(struct kvctl *k, char **argv);
int kvctl_ask_admin(const struct kvctl *k, const char *req, int fd,
		    bool *refused);

/* kvctl_save.c: writes the file of options.  Return: exit code. */
int cmd_save(struct kvctl *k, char **argv);

/* kvctl_upgrade.c: @argv is the program, or empty.  Return: exit code. */
int cmd_upgrade(struct kvctl *k, char **argv);

/* kvctl_set.c: @argv is a path and a value.  Return: exit code. */
int cmd_set(struct kvctl *k, char **argv);

#endif /* KVMM_TOOLS_KVCTL_H */
