// SPDX-License-Identifier: Apache-2.0
/*
 * kvctl.c - the operator's command line
 *
 * kvctl asks the daemon over its view socket and prints the answer.  It has no
 * list of files or figures: the daemon makes the text, so an old kvctl reads a new
 * daemon.  An answer that did not arrive whole is not printed.  Requests that
 * change something go over the admin socket, see kvctl_swap.c.
 *
 * Commands stand in one table, options in another; help is made from both.  A
 * failure is one line on stderr that names the object and the remedy, and an exit
 * code of sysexits.h by which scripts tell failures apart.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>
#include <unistd.h>

#include <kvmm/log.h>
#include <kvmm/near.h>
#include <kvmm/rundir.h>
#include <kvmm/version.h>
#include <uapi/kvmm.h>

#include "kvmm/tools/ask.h"
#include "kvmm/tools/kvctl.h"

#define REQ_MAX		4096
#define GUESS_MS	1000	/* longest wait when a misspelled command may be a path */

#define KVCTL_COMMANDS(x)						\
	x(status, "", 0, 0, "the daemon, its memory and its clients, at a glance") \
	x(clients, "", 0, 0, "one line per attached process")		\
	x(domains, "", 0, 0, "one line per domain: memory, sequences, pressure") \
	x(pools, "", 0, 0, "one line per device pool: its size and use, its domains, its device") \
	x(limits, "", 0, 0, "one line per domain: its limits and protection") \
	x(groups, "[DOMAIN]", 0, 1, "one line per layer group of a domain, or of all: its window, and the blocks that sequences map") \
	x(tunables, "", 0, 0, "the values of sys/vm; set changes those that are rw") \
	x(leases, "[CLIENT]", 0, 1, "one line per lease, of a client or of all: the tokens that it holds by tier, and when it ends") \
	x(explain, "[CLIENT[/SEQ]|REQUEST]", 0, 2, "why sequences wait: a table of those that wait or lost memory, of a client, of a request of kvrt serve by its id, or of all; --long has the cause and cost of each last preemption, as for one sequence") \
	x(cat, "PATH...", 1, REQ_MAX, "print files; of several, each behind ==> PATH <==") \
	x(ls, "[PATH]", 0, 1, "list a directory; names of directories end in a slash") \
	x(check, "", 0, 0, "run the daemon's walkers; prints ok, or the first fault and exits 1") \
	x(wait, "[PATH TRIGGER]", 0, 2, "wait until the daemon answers; or until a pressure trigger fires, like pressure/memory 'some 150000 1000000': stalls of 150000 us in 1000000") \
	x(swapon, "PATH", 1, 1, "make a file or block device a swap area; with --size a file is made") \
	x(swapoff, "PATH", 1, 1, "empty a swap area and give it back")	\
	x(set, "PATH VALUE", 2, 2, "change a limit of a domain, like domain/NAME/memory.max (max: none), pool/gpu0/size, or a tunable, like sys/vm/swappiness") \
	x(shrink_cost, "[POOL] [SIZE]", 0, 2, "the cost of making the device pool POOL, or each one, as small as SIZE now, or of four sizes: cache lost and kept, blocks that move, sequences preempted; changes nothing") \
	x(drop_caches, "[DOMAIN]", 0, 1, "drop cached prefixes that no sequence uses, of all domains or one") \
	x(evict, "DOMAIN [SIZE]", 1, 2, "free device memory of a domain's cache: SIZE, or all that no sequence uses; preempts no sequence") \
	x(pin, "DOMAIN [SIZE]", 1, 2, "set a domain's memory.min to SIZE, or to the memory that it has now") \
	x(unpin, "DOMAIN", 1, 1, "set the domain's memory.min back to the one that its clients asked for") \
	x(drain, "[WHAT]", 0, 1, "refuse new clients and sequences, while open ones go on: of the node (the default), tenant/NAME or client/ID; --off ends it") \
	x(log_level, "LEVEL", 1, 1, "set the level of the messages of kvmm and swapd: err, warn, info or debug") \
	x(save, "", 0, 0, "write swap areas, limits of domains and tunables, as they are now, into the daemon's file of options; --print shows the text instead") \
	x(upgrade, "[PROGRAM]", 0, 1, "another kvmm takes over, this one's clients with it; without a name the one beside kvctl") \
	x(version, "", 0, 0, "print the version of kvctl and of the daemon") \
	x(help, "", 0, 0, "print this text")

#define KVCTL_EXITS(x)							\
	x(EXIT_SUCCESS,	"done")						\
	x(EXIT_FAILURE,	"no such file, the walkers found a fault, or the daemon refused") \
	x(EX_USAGE,	"a wrong command or option")			\
	x(EX_DATAERR,	"save: the path of the file has a blank or the like") \
	x(EX_NOINPUT,	"save: the file of options is not there") \
	x(EX_UNAVAILABLE, "no daemon answers at the socket")		\
	x(EX_IOERR,	"the output cannot be written")			\
	x(EX_TEMPFAIL,	"wait: the trigger did not fire in time")	\
	x(EX_PROTOCOL,	"the answer was cut, or is none") \
	x(EX_NOPERM,	"this user may not ask that, or not change that")

static const struct kv_opt option_table[] = {
#define x(...) OPT_ENTRY(struct kvctl_opts, __VA_ARGS__)
	KVCTL_OPTIONS(x)
#undef x
};

static const struct kv_exit exit_table[] = {
#define x(code, text) { code, text },
	KVCTL_EXITS(x)
#undef x
};

static const struct kv_command command_list[] = {
#define x(_name, _args, _min, _max, _help)				\
	{ .name = #_name, .operands = _args, .help = _help },
	KVCTL_COMMANDS(x)
#undef x
};

static void print_commands(FILE *out);

static const struct kv_program program = {
	.name		= "kvctl",
	.brief		= "look inside a kvmm, and change its limits and tunables",
	.operands	= "COMMAND [ARGUMENT]...",
	.about		= "Reads the daemon's files, and changes limits, tunables and swap areas while it runs.",
	.opts		= option_table,
	.nr_opts	= ARRAY_SIZE(option_table),
	.exits		= exit_table,
	.nr_exits	= ARRAY_SIZE(exit_table),
	.commands	= command_list,
	.nr_commands	= ARRAY_SIZE(command_list),
	.more		= print_commands,
};

/* No daemon is at the usual place: are there others beside it? */
static void no_daemon(const struct kvctl *k)
{
	char **dirs = NULL, **d;
	size_t len;

	if (k->opts.all || tool_daemons(k->opts.socket, &dirs) < 0)
		dirs = NULL;
	/* The directory itself may have the socket of a daemon that was killed. */
	for (d = dirs; d && *d; d++) {
		len = strlen(*d);
		if (strncmp(*d, k->path, len) || k->path[len] != '/')
			break;
	}
	if (d && *d)
		pr_err("%s: no daemon is here; directories of daemons are beside it: give --all, or one of them, like --socket %s",
		       k->path, *d);
	else
		pr_err("%s: no daemon is here: start kvmm-hold, or name its directory with --socket",
		       k->path);
	tool_daemons_free(dirs);
}

int kvctl_report(const struct kvctl *k, int err)
{
	char why[KV_VIEW_PATH_MAX + 160];

	switch (err) {
	case -ENOENT:
	case -ECONNREFUSED:
	case -ENOTDIR:
		if (k->opts.tenant)
			pr_err("%s: no tenant %s is here: give it to kvmm-hold with --tenant; one that has a dir= is found by --socket and that directory",
			       k->path, k->opts.tenant);
		else
			no_daemon(k);
		return EX_UNAVAILABLE;
	case -EACCES:
	case -EPERM:
		if (k->opts.tenant)
			snprintf(why, sizeof(why), "%s: only root and the socket's owner may ask",
				 k->path);
		else
			tool_refused(k->path, false, why, sizeof(why));
		pr_err("%s", why);
		return EX_NOPERM;
	case -ETIMEDOUT:
		pr_err("%s: no answer for %u s: see the daemon's log, or give --timeout",
		       k->path, k->opts.timeout);
		return EX_UNAVAILABLE;
	case -ECONNABORTED:
		pr_err("%s: the answer was cut: the daemon went away, see its log and ask again",
		       k->path);
		return EX_PROTOCOL;
	case -EPROTO:
	case -EPROTOTYPE:
	case -EOVERFLOW:
		pr_err("%s: this is no view socket of kvmm: name %s or its directory with --socket",
		       k->path, KV_VIEW_SOCKET);
		return EX_PROTOCOL;
	default:
		pr_err("%s: %s: cannot ask the daemon", k->path,
		       strerror(-err));
		return EX_UNAVAILABLE;
	}
}

/* kvctl_print_text() - print the last answer, below its title; an exit code */
int kvctl_print_text(struct kvctl *k)
{
	if (k->title)
		printf("%s==> %s <==\n", k->begun ? "\n" : "", k->title);
	k->begun = true;
	if (fwrite(seq_text(&k->text), 1, k->text.count, stdout) ==
	    k->text.count && !fflush(stdout))
		return EXIT_SUCCESS;
	pr_err("stdout: %s: the text was not written", strerror(errno));
	return EX_IOERR;
}

/**
 * kvctl_read() - send one request to the view socket
 *
 * Return: an exit code; after success @k->text is the whole answer, else the error
 * was printed.
 */
int kvctl_read(struct kvctl *k, const char *verb, const char *arg)
{
	char req[REQ_MAX];
	int status, err;

	err = snprintf(req, sizeof(req), *arg ? "%s %s" : "%s", verb, arg);
	if ((size_t)err >= sizeof(req)) {
		pr_err("%.60s...: the path is longer than %d bytes: see kvctl ls",
		       arg, REQ_MAX);
		return EXIT_FAILURE;
	}
	if (strchr(req, '\n')) {
		pr_err("a path has no newline: see kvctl ls");
		return EXIT_FAILURE;
	}
	err = kv_view_ask(k->path, req, k->opts.timeout * 1000, &status,
			  &k->text);
	if (err)
		return kvctl_report(k, err);
	if (!status)
		return EXIT_SUCCESS;
	if (!k->may_fail)
		pr_err("%s", seq_text(&k->text));
	/* This user may ask nothing here. */
	return status == EACCES ? EX_NOPERM : EXIT_FAILURE;
}

/* Ask for one file or list, and print it or, with --json, add it to @all. */
static int ask(struct kvctl *k, const char *verb, const char *arg, json_t *all)
{
	int err = kvctl_read(k, verb, arg);
	json_t *one;

	if (err)
		return err;
	if (!all)
		return kvctl_print_text(k);
	one = json_object();
	json_object_set_new(one, "path", kvctl_json_string(arg, strlen(arg)));
	json_object_set_new(one, "data", kvctl_json(arg, &k->text));
	json_array_append_new(all, one);
	return EXIT_SUCCESS;
}

/* Read all paths, as cat does; the exit code is that of the first failure. */
static int cmd_cat(struct kvctl *k, char **argv)
{
	json_t *all = k->opts.json ? json_array() : NULL;
	const bool several = argv[1];
	int ret = EXIT_SUCCESS, err;

	for (; *argv; argv++) {
		k->title = several ? *argv : NULL;
		if (!**argv) {
			pr_err("an empty path names no file: see kvctl ls");
			err = EXIT_FAILURE;
		} else {
			err = ask(k, "cat", *argv, all);
		}
		if (!ret)
			ret = err;
		if (err == EX_UNAVAILABLE || err == EX_IOERR)
			break;
	}
	/* Print the files that were read, as without --json; nothing if there are none. */
	err = json_array_size(all) ? kvctl_print_json(all) : EXIT_SUCCESS;
	return ret ? ret : err;
}

static int cmd_ls(struct kvctl *k, char **argv)
{
	int err = kvctl_read(k, "ls", *argv ? *argv : "");
	char *name, *save = NULL, *text;
	json_t *names;

	if (err || !k->opts.json)
		return err ? err : kvctl_print_text(k);
	names = json_array();
	text = strdup(seq_text(&k->text));
	for (name = text ? strtok_r(text, "\n", &save) : NULL; name;
	     name = strtok_r(NULL, "\n", &save))
		json_array_append_new(names, kvctl_json_string(name,
							       strlen(name)));
	free(text);
	return kvctl_print_json(names);
}

static int cmd_check(struct kvctl *k, char **argv)
{
	int err = kvctl_read(k, "check", "");
	const bool ok = !err && !strcmp(seq_text(&k->text), "ok\n");

	if (err)
		return err;
	if (k->opts.json)
		err = kvctl_print_json(json_pack("{s:b, s:o}", "ok", ok, "text",
				kvctl_json_string(seq_text(&k->text),
				strcspn(seq_text(&k->text), "\n"))));
	else
		err = kvctl_print_text(k);
	return !err && !ok ? EXIT_FAILURE : err;
}

static int cmd_version(struct kvctl *k, char **argv)
{
	int err;

	if (!k->opts.json) {
		printf("kvctl version %s uapi %u\n", KVMM_VERSION,
		       KVMM_ABI_VERSION);
		fflush(stdout);
	}
	err = kvctl_read(k, "cat", "version");
	if (err || !k->opts.json)
		return err ? err : kvctl_print_text(k);
	return kvctl_print_json(json_pack("{s:s, s:i, s:o}", "kvctl",
			KVMM_VERSION, "uapi", KVMM_ABI_VERSION, "daemon",
			kvctl_json_string(seq_text(&k->text),
					  strcspn(seq_text(&k->text), "\n"))));
}

static int cmd_help(struct kvctl *k, char **argv);

struct command {
	const char	*name;
	const char	*args;
	int		min_args;
	int		max_args;
	const char	*help;
	int		(*run)(struct kvctl *k, char **argv);
};

static const struct command commands[] = {
#define x(name, args, min, max, help)					\
	{ #name, args, min, max, help, cmd_##name },
	KVCTL_COMMANDS(x)
#undef x
};

static void print_commands(FILE *out)
{
	u32 i;

	fputs("\nCommands:\n", out);
	for (i = 0; i < ARRAY_SIZE(commands); i++) {
		const struct command *c = &commands[i];

		kv_opts_help_entry("", c->name, c->args, c->help, out);
	}
}

static int cmd_help(struct kvctl *k, char **argv)
{
	kv_opts_help(&program, stdout);
	return fflush(stdout) ? EX_IOERR : EXIT_SUCCESS;
}

/*
 * Was the command left out?  If @name is a path, return its verb; the daemon knows
 * paths.  If it does not answer, a name with a slash counts as a path.
 */
static const char *verb_of_path(struct kvctl *k, const char *name)
{
	char req[REQ_MAX];
	int status, len;

	len = snprintf(req, sizeof(req), "cat %s", name);
	if ((size_t)len >= sizeof(req) || strchr(name, '\n'))
		return NULL;
	if (kv_view_ask(k->path, req, GUESS_MS, &status, &k->text))
		return strchr(name, '/') ? "cat" : NULL;
	return !status ? "cat" : status == EISDIR ? "ls" : NULL;
}

static int no_command(struct kvctl *k, const char *name)
{
	const char *verb = verb_of_path(k, name);
	struct kv_near near;
	u32 i;

	kv_near_init(&near, name, strlen(name));
	for (i = 0; i < ARRAY_SIZE(commands); i++)
		kv_near_try(&near, commands[i].name);
	if (verb)
		pr_err("'%.60s' is no command: did you mean kvctl %s %.60s?",
		       name, verb, name);
	else if (near.best)
		pr_err("'%.60s' is no command: did you mean kvctl %s?", name,
		       near.best);
	else
		pr_err("'%.60s' is no command: see kvctl help", name);
	return EX_USAGE;
}

/* Run the command at one of several daemons, below the name of its directory. */
static int run_at(struct kvctl *k, const struct command *c, char **argv,
		  const char *dir, bool first)
{
	int err = tool_view_path(dir, k->opts.tenant, k->path);

	if (err)
		return err;
	kvctl_json_of(dir);
	if (!k->opts.json)
		printf("%s==> %s <==\n", first ? "" : "\n", dir);
	fflush(stdout);
	k->begun = false;
	return c->run(k, argv);
}

/* Run the command at all daemons; the exit code is that of the first failure. */
static int run_all(struct kvctl *k, const struct command *c, char **argv)
{
	char **dirs;
	int nr = tool_daemons(k->opts.socket, &dirs), ret = 0, err, i;

	if (nr <= 0) {
		pr_err("%s: no daemon is here, nor in a directory beside it with a dash and a word behind its name: start kvmm-hold, or name one of them with --socket",
		       k->path);
		tool_daemons_free(dirs);
		return EX_UNAVAILABLE;
	}
	for (i = 0; i < nr; i++) {
		err = run_at(k, c, argv, dirs[i], !i);
		ret = ret ? ret : err;
	}
	tool_daemons_free(dirs);
	return ret;
}

static int run(struct kvctl *k, int argc, char **argv)
{
	const struct command *c;
	int err;

	err = tool_view_path(k->opts.socket, k->opts.tenant, k->path);
	if (err)
		return err;
	for (c = commands; c < commands + ARRAY_SIZE(commands); c++) {
		if (!strcmp(c->name, argv[0]))
			break;
	}
	if (c == commands + ARRAY_SIZE(commands))
		return no_command(k, argv[0]);
	if (argc - 1 < c->min_args || argc - 1 > c->max_args) {
		pr_err("%s: wrong number of arguments: kvctl %s%s%s", c->name,
		       c->name, *c->args ? " " : "", c->args);
		return EX_USAGE;
	}
	return k->opts.all ? run_all(k, c, argv + 1) : c->run(k, argv + 1);
}

int main(int argc, char **argv)
{
	struct kvctl k = { 0 };
	char why[256];
	int nr, ret;

	kv_log_init("kvctl", KV_LOG_INFO);
	nr = kv_opts_parse(&program, &k.opts, argc, argv, why, sizeof(why));
	if (nr == -ECANCELED)
		return EXIT_SUCCESS;
	if (nr < 0) {
		pr_err("%s", why);
		return EX_USAGE;
	}
	if (!nr) {
		pr_err("what to do? see kvctl help");
		return EX_USAGE;
	}
	seq_init(&k.text, KV_VIEW_TEXT_MAX);
	ret = run(&k, nr, argv);
	seq_free(&k.text);
	return ret;
}
