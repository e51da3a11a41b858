// SPDX-License-Identifier: Apache-2.0
/*
 * kvctl_groups.c - the layer groups of domains
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>

#include "kvmm/tools/kvctl.h"

static const struct column columns[] = {
	{ "domain", "DOMAIN", -12, UNIT_WORD }, { "group", "GROUP", 5, UNIT_WORD },
	{ "kind", "KIND", 5, UNIT_WORD }, { "layers", "LAYERS", 6, UNIT_WORD },
	{ "kv_heads", "HEADS", 5, UNIT_WORD }, { "window", "WINDOW", 6, UNIT_WORD },
	{ "tokens", "TOKENS", 6, UNIT_WORD }, { "block_bytes", "BYTES", 8, UNIT_WORD },
	{ "padding_bytes", "PADDING", 7, UNIT_WORD }, { "record", "REC", 3, UNIT_WORD },
	{ "blocks", "BLOCKS", 0, UNIT_WORD },
};

static_assert(ARRAY_SIZE(columns) <= COLUMNS_MAX, "room for widths");

/* Add the groups of a domain to @rows, with its name. */
static int groups_add(struct kvctl *k, json_t *rows, const char *domain)
{
	json_t *groups, *row;
	char path[1024];
	size_t i;
	int ret;

	snprintf(path, sizeof(path), "domain/%.900s/groups", domain);
	groups = kvctl_load(k, path, &ret);
	json_array_foreach(groups, i, row) {
		json_object_set_new(row, "domain", json_string(domain));
		json_array_append(rows, row);
	}
	json_decref(groups);
	return ret;
}

/* A domain that was removed meanwhile is no failure. */
static int groups_of_all(struct kvctl *k, json_t *rows)
{
	json_t *domains, *row;
	size_t i;
	int ret;

	domains = kvctl_load(k, "domains", &ret);
	json_array_foreach(domains, i, row) {
		k->may_fail = true;
		ret = groups_add(k, rows, json_string_value(json_object_get(row, "name")));
		k->may_fail = false;
		if (ret == EXIT_FAILURE)
			ret = EXIT_SUCCESS;
		if (ret)
			break;
	}
	json_decref(domains);
	return ret;
}

int cmd_groups(struct kvctl *k, char **argv)
{
	json_t *rows = json_array();
	int ret = *argv ? groups_add(k, rows, *argv) : groups_of_all(k, rows);

	if (!ret && k->opts.json)
		return kvctl_print_json(rows);
	if (!ret)
		ret = kvctl_print_table(rows, columns, ARRAY_SIZE(columns));
	json_decref(rows);
	return ret;
}
