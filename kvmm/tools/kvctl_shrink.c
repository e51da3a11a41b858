// SPDX-License-Identifier: Apache-2.0
/*
 * kvctl_shrink.c - the cost of a smaller device pool, before it is set
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>

#include <kvmm/log.h>

#include "kvmm/tools/kvctl.h"

static const struct column columns[] = {
	{ "size_kb", "SIZE", 6, UNIT_KB },
	{ "lost_kb", "LOST", 6, UNIT_KB },
	{ "lost_tokens", "TOKENS", 7, UNIT_WORD },
	{ "host_kb", "TO-HOST", 7, UNIT_KB },
	{ "areas_kb", "TO-AREAS", 8, UNIT_KB },
	{ "moved_kb", "MOVED", 6, UNIT_KB },
	{ "swapped", "SWAPPED", 7, UNIT_WORD },
	{ "recomputed", "RECOMPUTED", 10, UNIT_WORD },
	{ "recompute_tokens", "TOKENS", 7, UNIT_WORD },
	{ "too_large", "FAIL", 4, UNIT_WORD },
	{ "name", "DOMAIN", 0, UNIT_WORD },
};

static_assert(ARRAY_SIZE(columns) <= COLUMNS_MAX, "room for widths");

/* Sentences about the node's row of a size; each is printed if its figure is not 0. */
static const struct {
	const char	*key;
	const char	*text;
} notes[] = {
	{ "too_large", "of the open sequences are larger than the pool then, and fail when their turn comes" },
	{ "bound", "figures are bounds: at least so much is lost, at most so many sequences are preempted" },
};

static const struct {
	const char	*answer;
	const char	*why;
} refusals[] = {
	{ "extent", "less than one extent, see sys/vm/extent_size: give more" },
	{ "most", "more than the whole pool, see kvctl pools: give less" },
	{ "span", "less than one span of a domain that has clients: give more" },
};

static s64 number(const json_t *row, const char *key)
{
	return json_integer_value(json_object_get(row, key));
}

static bool is_node(const json_t *row)
{
	return json_is_null(json_object_get(row, "domain"));
}

/* Why the size of a row is refused; NULL: it is not. */
static const char *refusal(const json_t *row)
{
	const char *answer = json_string_value(json_object_get(row, "answer"));
	u32 i;

	for (i = 0; answer && i < ARRAY_SIZE(refusals); i++)
		if (!strcmp(answer, refusals[i].answer))
			return refusals[i].why;
	return NULL;
}

/* Add the rows of one size of a pool to @all. */
static int load(struct kvctl *k, const char *pool, const char *size, json_t *all)
{
	json_t *rows, *row;
	char path[128];
	size_t i;
	int ret;

	snprintf(path, sizeof(path), "pool/%.30s/shrink/%.60s", pool, size);
	rows = kvctl_load(k, path, &ret);
	json_array_foreach(rows, i, row)
		json_object_set_new(row, "pool", json_string(pool));
	json_array_extend(all, rows);
	json_decref(rows);
	return ret;
}

/* Add the rows of the sizes that the daemon names. */
static int load_all(struct kvctl *k, const char *pool, json_t *all)
{
	char *names, *name, *save = NULL, path[64];
	int ret;

	snprintf(path, sizeof(path), "pool/%.30s/shrink", pool);
	ret = kvctl_read(k, "ls", path);
	names = ret ? NULL : strdup(seq_text(&k->text));
	for (name = names ? strtok_r(names, "\n", &save) : NULL; name && !ret;
	     name = strtok_r(NULL, "\n", &save))
		ret = load(k, pool, name, all);
	free(names);
	return ret;
}

static void print_notes(const json_t *row)
{
	char size[32], min[32];
	const char *why = refusal(row);
	u32 i;

	kvctl_format(json_object_get(row, "size_kb"), UNIT_KB, size, sizeof(size));
	if (why)
		printf("%s: refused: %s\n", size, why);
	if (number(row, "min_kb") > number(row, "size_kb")) {
		kvctl_format(json_object_get(row, "min_kb"), UNIT_KB, min, sizeof(min));
		printf("%s: memory.min of all domains is %s: each protects its part of the smaller pool; that forbids no size\n",
		       size, min);
	}
	for (i = 0; i < ARRAY_SIZE(notes); i++)
		if (number(row, notes[i].key) && !strcmp(notes[i].key, "bound"))
			printf("%s: %s\n", size, notes[i].text);
		else if (number(row, notes[i].key))
			printf("%s: %" PRId64 " %s\n", size, number(row, notes[i].key),
			       notes[i].text);
}

/* Print the table; the row of a domain that is the only one would say nothing new. */
static int print_costs(json_t *rows)
{
	size_t i = 0, nr, domains = 0, sizes = 0;
	json_t *row;
	int ret;

	json_array_foreach(rows, nr, row) {
		domains += !is_node(row);
		sizes += is_node(row);
	}
	while (i < json_array_size(rows)) {
		row = json_array_get(rows, i);
		if (is_node(row))
			json_object_set_new(row, "name", json_string("(all)"));
		if (!is_node(row) && domains <= sizes)
			json_array_remove(rows, i);
		else
			i++;
	}
	ret = kvctl_print_table(rows, columns, ARRAY_SIZE(columns));
	json_array_foreach(rows, i, row)
		if (is_node(row))
			print_notes(row);
	return fflush(stdout) ? EX_IOERR : ret;
}

static int load_pool(struct kvctl *k, const char *pool, const char *size, json_t *all)
{
	return size ? load(k, pool, size, all) : load_all(k, pool, all);
}

static int load_pools(struct kvctl *k, const char *size, json_t *all)
{
	json_t *pools, *row;
	size_t i;
	int ret;

	pools = kvctl_load(k, "pools", &ret);
	json_array_foreach(pools, i, row) {
		ret = load_pool(k, json_string_value(json_object_get(row, "pool")),
				size, all);
		if (ret)
			break;
	}
	json_decref(pools);
	return ret;
}

/* Print a table for each pool, below its name. */
static int print_pools(const json_t *all)
{
	size_t i = 0, nr = json_array_size(all);
	int ret = 0;

	while (i < nr && !ret) {
		const json_t *pool = json_object_get(json_array_get(all, i), "pool");
		json_t *rows = json_array();

		printf("%spool %s:\n", i ? "\n" : "", json_string_value(pool));
		for (; i < nr; i++) {
			json_t *row = json_array_get(all, i);

			if (!json_equal(json_object_get(row, "pool"), pool))
				break;
			json_array_append(rows, row);
		}
		ret = print_costs(rows);
		json_decref(rows);
	}
	return ret;
}

/* Why all pools refuse the size; NULL: one does not. */
static const char *refused_by_all(const json_t *all)
{
	const char *why = NULL;
	size_t i;

	for (i = 0; i < json_array_size(all); i++) {
		why = refusal(json_array_get(all, i));
		if (!why)
			break;
	}
	return why;
}

int cmd_shrink_cost(struct kvctl *k, char **argv)
{
	const char *pool = *argv && !strncmp(*argv, "gpu", 3) ? *argv++ : NULL;
	const char *size = *argv, *why;
	json_t *rows;
	u64 bytes;
	int ret;

	if (size && (kv_parse_size(size, &bytes) || !bytes || argv[1])) {
		pr_err("%s: not a valid size: write " KV_SIZE_TEXT ", behind the pool if you name one",
		       size);
		return EX_USAGE;
	}
	rows = json_array();
	ret = pool ? load_pool(k, pool, size, rows) : load_pools(k, size, rows);
	why = size && !ret ? refused_by_all(rows) : NULL;
	if (why) {
		pr_err("%s: %s", size, why);
		ret = EXIT_FAILURE;
	} else if (!ret && k->opts.json) {
		return kvctl_print_json(rows);
	} else if (!ret) {
		ret = print_pools(rows);
	}
	json_decref(rows);
	return ret;
}
