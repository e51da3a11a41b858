// SPDX-License-Identifier: Apache-2.0
/*
 * kvctl_show.c - status, clients, domains, limits, tunables, leases
 *
 * These commands read the daemon's files, each of which is of one instant.  Columns
 * and lines are found by their names there.  A figure that is missing, at a
 * tenant's socket or in an older daemon, is left out.  With --json the figures are
 * printed as they are, in bytes or kB as their names say.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>

#include <kvmm/log.h>

#include "kvmm/tools/kvctl.h"

static const struct column client_columns[] = {
	{ "id", "ID", 3, UNIT_WORD }, { "pid", "PID", 7, UNIT_WORD },
	{ "tenant", "TENANT", 6, UNIT_WORD },
	{ "domain_name", "DOMAIN", -10, UNIT_WORD },
	{ "state", "STATE", -8, UNIT_WORD },
	{ "running", "RUN", 4, UNIT_WORD }, { "waiting", "WAIT", 4, UNIT_WORD },
	{ "steps", "STEPS", 5, UNIT_WORD }, { "blocks", "BLOCKS", 6, UNIT_WORD },
	{ "draining", "DRAIN", 6, UNIT_WORD }, { "comm", "COMMAND", 0, UNIT_WORD },
};

static const struct column domain_columns[] = {
	{ "id", "ID", 3, UNIT_WORD }, { "tenant", "TENANT", 6, UNIT_WORD },
	{ "clients", "CLIENTS", 7, UNIT_WORD }, { "running", "RUN", 5, UNIT_WORD },
	{ "waiting", "WAIT", 5, UNIT_WORD },
	{ "used_kb", "USED", 7, UNIT_KB }, { "cached_kb", "CACHED", 7, UNIT_KB },
	{ "max_kb", "MAX", 7, UNIT_KB },
	{ "some_avg10", "SOME%", 6, UNIT_WORD }, { "pool", "POOL", 4, UNIT_WORD },
	{ "name", "NAME", 0, UNIT_WORD },
};

static const struct column pool_columns[] = {
	{ "pool", "POOL", -4, UNIT_WORD }, { "total_kb", "SIZE", 7, UNIT_KB },
	{ "online_kb", "ONLINE", 7, UNIT_KB }, { "used_kb", "USED", 7, UNIT_KB },
	{ "cached_kb", "CACHED", 7, UNIT_KB }, { "free_kb", "FREE", 7, UNIT_KB },
	{ "domains", "DOMAINS", 7, UNIT_WORD }, { "clients", "CLIENTS", 7, UNIT_WORD },
	{ "device", "DEVICE", 0, UNIT_WORD },
};

static const struct column limit_columns[] = {
	{ "min_kb", "MIN", 9, UNIT_KB }, { "low_kb", "LOW", 9, UNIT_KB },
	{ "high_kb", "HIGH", 9, UNIT_KB }, { "max_kb", "MAX", 9, UNIT_KB },
	{ "weight", "WEIGHT", 7, UNIT_WORD },
	{ "current_kb", "CURRENT", 9, UNIT_KB },
	{ "name", "NAME", 0, UNIT_WORD },
};

static const struct column tunable_columns[] = {
	{ "name", "NAME", -24, UNIT_WORD }, { "value", "VALUE", 14, UNIT_WORD },
	{ "mode", "MODE", 5, UNIT_WORD },
};

static const struct column lease_columns[] = {
	{ "client", "CLIENT", 6, UNIT_WORD }, { "label", "LABEL", -16, UNIT_WORD },
	{ "tokens", "TOKENS", 8, UNIT_WORD }, { "device", "DEVICE", 8, UNIT_WORD },
	{ "host", "HOST", 8, UNIT_WORD }, { "area", "AREA", 8, UNIT_WORD },
	{ "lost", "LOST", 6, UNIT_WORD }, { "ends_ms", "ENDS-IN", 0, UNIT_MS },
};

static_assert(ARRAY_SIZE(client_columns) <= COLUMNS_MAX, "room for widths");
static_assert(ARRAY_SIZE(domain_columns) <= COLUMNS_MAX, "room for widths");
static_assert(ARRAY_SIZE(tunable_columns) <= COLUMNS_MAX, "room for widths");
static_assert(ARRAY_SIZE(lease_columns) <= COLUMNS_MAX, "room for widths");

/* kvctl_format() - "1.5G" of a number of kB; `max` stays */
void kvctl_format(const json_t *v, enum unit unit, char *buf, size_t len)
{
	static const char units[] = "KMGT";
	double n;
	u32 i = 0;

	if (json_is_integer(v) && unit == UNIT_KB) {
		n = (double)json_integer_value(v);
		for (; n >= 1024 && i < 3; i++)
			n /= 1024;
		snprintf(buf, len, n < 10 && i ? "%.1f%c" : "%.0f%c", n,
			 units[i]);
	} else if (json_is_integer(v) && unit == UNIT_MS) {
		kvctl_format_ms(json_integer_value(v), buf, len);
	} else if (json_is_integer(v)) {
		snprintf(buf, len, "%" JSON_INTEGER_FORMAT,
			 json_integer_value(v));
	} else if (json_is_real(v)) {
		snprintf(buf, len, "%.2f", json_real_value(v));
	} else {
		snprintf(buf, len, "%s", json_is_string(v) ?
			 json_string_value(v) : "-");
	}
}

/* Width of a column with its longest word; negative: words stand to the left. */
static int column_width(const json_t *rows, const struct column *col)
{
	int width = abs(col->width);
	char buf[512];
	json_t *row;
	size_t i;

	json_array_foreach(rows, i, row) {
		kvctl_format(json_object_get(row, col->key), col->unit, buf,
			     sizeof(buf));
		width = max(width, (int)strlen(buf));
	}
	return col->width < 0 ? -width : width;
}

/* kvctl_print_table() - print rows below a line of headings; an exit code */
int kvctl_print_table(const json_t *rows, const struct column *col, u32 nr)
{
	int width[COLUMNS_MAX];
	char buf[512];
	json_t *row;
	size_t i;
	u32 n;

	/* The last column needs no width. */
	for (n = 0; n < nr; n++) {
		width[n] = n + 1 < nr ? column_width(rows, &col[n]) : 0;
		printf("%*s%c", width[n], col[n].head, n + 1 < nr ? ' ' : '\n');
	}
	json_array_foreach(rows, i, row) {
		for (n = 0; n < nr; n++) {
			kvctl_format(json_object_get(row, col[n].key),
				     col[n].unit, buf, sizeof(buf));
			printf("%*s%c", width[n], buf, n + 1 < nr ? ' ' : '\n');
		}
	}
	return fflush(stdout) ? EX_IOERR : EXIT_SUCCESS;
}

/* kvctl_load() - load a file as a value; NULL, with @ret set, when it cannot be read */
json_t *kvctl_load(struct kvctl *k, const char *path, int *ret)
{
	json_t *v;

	*ret = kvctl_read(k, "cat", path);
	if (*ret)
		return NULL;
	v = kvctl_json(path, &k->text);
	if (!v)
		*ret = EX_OSERR;
	return v;
}

static int show_table(struct kvctl *k, const char *path,
		      const struct column *col, u32 nr)
{
	json_t *rows;
	int ret;

	rows = kvctl_load(k, path, &ret);
	if (!rows)
		return ret;
	if (k->opts.json)
		return kvctl_print_json(rows);
	ret = kvctl_print_table(rows, col, nr);
	json_decref(rows);
	return ret;
}

/* Give each client the name of its domain, which is its model by default. */
static void name_domains(json_t *clients, const json_t *domains)
{
	json_t *client, *domain;
	size_t i, n;

	json_array_foreach(clients, i, client)
		json_array_foreach(domains, n, domain)
			if (json_equal(json_object_get(client, "domain"),
				       json_object_get(domain, "id")))
				json_object_set(client, "domain_name",
						json_object_get(domain, "name"));
}

int cmd_clients(struct kvctl *k, char **argv)
{
	json_t *clients, *domains;
	int ret;

	if (k->opts.json)
		return show_table(k, "clients", client_columns,
				  ARRAY_SIZE(client_columns));
	clients = kvctl_load(k, "clients", &ret);
	domains = clients ? kvctl_load(k, "domains", &ret) : NULL;
	name_domains(clients, domains);
	if (!ret)
		ret = kvctl_print_table(clients, client_columns,
					ARRAY_SIZE(client_columns));
	json_decref(domains);
	json_decref(clients);
	return ret;
}

/* Used memory is that of sequences, without the cache. */
static void domains_used(json_t *domains)
{
	json_t *row;
	size_t i;

	json_array_foreach(domains, i, row)
		json_object_set_new(row, "used_kb", json_integer(
			json_integer_value(json_object_get(row, "current_kb")) -
			json_integer_value(json_object_get(row, "cached_kb"))));
}

int cmd_domains(struct kvctl *k, char **argv)
{
	json_t *rows;
	int ret;

	rows = kvctl_load(k, "domains", &ret);
	if (!rows)
		return ret;
	if (k->opts.json)
		return kvctl_print_json(rows);
	domains_used(rows);
	ret = kvctl_print_table(rows, domain_columns, ARRAY_SIZE(domain_columns));
	json_decref(rows);
	return ret;
}

int cmd_pools(struct kvctl *k, char **argv)
{
	return show_table(k, "pools", pool_columns, ARRAY_SIZE(pool_columns));
}

/* Print the limits of each domain; with --json the figures stay as they are. */
int cmd_limits(struct kvctl *k, char **argv)
{
	json_t *rows, *row, *out;
	size_t i;
	u32 n;
	int ret;

	if (!k->opts.json)
		return show_table(k, "domains", limit_columns,
				  ARRAY_SIZE(limit_columns));
	rows = kvctl_load(k, "domains", &ret);
	if (!rows)
		return ret;
	out = json_array();
	json_array_foreach(rows, i, row) {
		json_t *o = json_object();

		for (n = 0; n < ARRAY_SIZE(limit_columns); n++)
			json_object_set(o, limit_columns[n].key,
					json_object_get(row, limit_columns[n].key));
		json_array_append_new(out, o);
	}
	json_decref(rows);
	return kvctl_print_json(out);
}

/* ---- tunables ---- */

static int tunable_add(struct kvctl *k, json_t *rows, const char *name)
{
	char path[128];
	json_t *row, *v;
	int ret;

	snprintf(path, sizeof(path), "sys/vm/%.60s", name);
	v = kvctl_load(k, path, &ret);
	if (!v)
		return ret;
	row = json_object();
	json_object_set_new(row, "name", json_string(name));
	json_object_set_new(row, "value", v);
	json_array_append_new(rows, row);
	ret = kvctl_read(k, "stat", path);
	if (!ret)
		json_object_set_new(row, "mode",
			json_string(strtoul(seq_text(&k->text), NULL, 8) & 0200 ?
				    "rw" : "r"));
	return ret;
}

int cmd_tunables(struct kvctl *k, char **argv)
{
	json_t *rows = json_array();
	char *names, *name, *save = NULL;
	int ret = kvctl_read(k, "ls", "sys/vm");

	names = ret ? NULL : strdup(seq_text(&k->text));
	for (name = names ? strtok_r(names, "\n", &save) : NULL; name && !ret;
	     name = strtok_r(NULL, "\n", &save))
		ret = tunable_add(k, rows, name);
	free(names);
	if (!ret && k->opts.json)
		return kvctl_print_json(rows);
	if (!ret)
		ret = kvctl_print_table(rows, tunable_columns,
					ARRAY_SIZE(tunable_columns));
	json_decref(rows);
	return ret;
}

/* ---- leases ---- */

/* Add the leases of a client to @rows, with its number. */
static int leases_add(struct kvctl *k, json_t *rows, u64 client)
{
	json_t *leases, *row;
	char path[64];
	size_t i;
	int ret;

	snprintf(path, sizeof(path), "client/%" PRIu64 "/leases", client);
	leases = kvctl_load(k, path, &ret);
	json_array_foreach(leases, i, row) {
		json_object_set_new(row, "client", json_integer((json_int_t)client));
		json_array_append(rows, row);
	}
	json_decref(leases);
	return ret;
}

/* A client that left meanwhile is no failure. */
static int leases_of_all(struct kvctl *k, json_t *rows)
{
	json_t *clients, *row;
	size_t i;
	int ret;

	clients = kvctl_load(k, "clients", &ret);
	json_array_foreach(clients, i, row) {
		if (!json_integer_value(json_object_get(row, "leases")))
			continue;
		k->may_fail = true;
		ret = leases_add(k, rows, (u64)json_integer_value(
				 json_object_get(row, "id")));
		k->may_fail = false;
		if (ret == EXIT_FAILURE)
			ret = EXIT_SUCCESS;
		if (ret)
			break;
	}
	json_decref(clients);
	return ret;
}

int cmd_leases(struct kvctl *k, char **argv)
{
	json_t *rows;
	u64 client;
	int ret;

	if (*argv && kv_parse_uint(*argv, &client)) {
		pr_err("%.60s: is no client: give its number, see kvctl clients",
		       *argv);
		return EX_USAGE;
	}
	rows = json_array();
	ret = *argv ? leases_add(k, rows, client) : leases_of_all(k, rows);
	if (!ret && k->opts.json)
		return kvctl_print_json(rows);
	if (!ret)
		ret = kvctl_print_table(rows, lease_columns, ARRAY_SIZE(lease_columns));
	json_decref(rows);
	return ret;
}

/* ---- status ---- */

/* Lines of status: file, key, label and unit. */
static const struct {
	const char	*file;
	const char	*key;
	const char	*label;
	enum unit	unit;
} status_lines[] = {
	{ "status", "Pid", "process", UNIT_WORD },
	{ "status", "Tenant", "tenant", UNIT_WORD },
	{ "status", "Backend", "backend", UNIT_WORD },
	{ "status", "Start", "start", UNIT_WORD },
	{ "status", "Draining", "draining", UNIT_WORD },
	{ "status", "LogLevel", "log level", UNIT_WORD },
	{ "status", "Domains", "domains", UNIT_WORD },
	{ "status", "Clients", "clients", UNIT_WORD },
	{ "meminfo", "GpuTotal_kb", "pool", UNIT_KB },
	{ "meminfo", "used_kb", "  used", UNIT_KB },
	{ "meminfo", "PrefixCached_kb", "  cached", UNIT_KB },
	{ "meminfo", "GpuFree_kb", "  free", UNIT_KB },
	{ "meminfo", "GpuOffline_kb", "  offline", UNIT_KB },
	{ "meminfo", "HostTotal_kb", "host pool", UNIT_KB },
	{ "meminfo", "HostFree_kb", "  free", UNIT_KB },
	{ "meminfo", "SwapTotal_kb", "swap", UNIT_KB },
	{ "meminfo", "SwapFree_kb", "  free", UNIT_KB },
	{ "vmstat", "nr_seqs_running", "running", UNIT_WORD },
	{ "vmstat", "nr_seqs_waiting", "waiting", UNIT_WORD },
};

/* A tenant's socket has the first file alone. */
static const char * const status_files[] = {
	"status", "meminfo", "vmstat", "pressure/memory",
};

/* Used memory is that of sequences, as in kvctl domains; the parts are in meminfo. */
static void pool_used(json_t *meminfo)
{
	static const char * const part[] = {
		"Open_kb", "Sealed_kb", "Quiescing_kb", "Quarantine_kb",
		"Limbo_kb",
	};
	json_int_t sum = 0;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(part); i++)
		sum += json_integer_value(json_object_get(meminfo, part[i]));
	json_object_set_new(meminfo, "used_kb", json_integer(sum));
}

static void print_status(const json_t *all)
{
	const json_t *v;
	char buf[512];
	u32 i;

	for (i = 0; i < ARRAY_SIZE(status_lines); i++) {
		v = json_object_get(json_object_get(all, status_lines[i].file),
				    status_lines[i].key);
		if (!v)
			continue;
		kvctl_format(v, status_lines[i].unit, buf, sizeof(buf));
		printf("%-12s %s\n", status_lines[i].label, buf);
	}
	v = json_object_get(json_object_get(all, "pressure/memory"), "some");
	v = json_object_get(v, "avg10");
	if (v) {
		kvctl_format(v, UNIT_WORD, buf, sizeof(buf));
		printf("%-12s %s %% of the last 10 s\n", "pressure", buf);
	}
}

int cmd_status(struct kvctl *k, char **argv)
{
	json_t *all = json_object(), *v;
	int ret = EXIT_SUCCESS;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(status_files) && !ret; i++) {
		if (i && json_object_get(json_object_get(all, "status"),
					 "Tenant"))
			break;
		v = kvctl_load(k, status_files[i], &ret);
		if (v)
			json_object_set_new(all, status_files[i], v);
	}
	if (!ret && k->opts.json)
		return kvctl_print_json(all);
	if (!ret) {
		pool_used(json_object_get(all, "meminfo"));
		print_status(all);
		ret = fflush(stdout) ? EX_IOERR : EXIT_SUCCESS;
	}
	json_decref(all);
	return ret;
}
