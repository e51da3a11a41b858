/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config_change.h - the configuration of a golden case with one key changed
 */
#ifndef CONFIG_CHANGE_H
#define CONFIG_CHANGE_H

#include <jansson.h>

#include "runtime/model/config.h"
#include "tests/unit/golden_fixture.h"

static struct model_config cfg;
static struct model_error err;

/* A change of one key of a case; NULL removes it. */
struct change {
	const char	*of;
	const char	*key;
	const char	*value;
	int		ret;
	const char	*words;
};

/* Write the changed configuration into fixture_dir. */
static void write_change(const struct change *c)
{
	char path[320];
	json_t *o;

	golden_read(c->of);
	snprintf(path, sizeof(path), "%s/config.json", case_dir);
	o = json_load_file(path, 0, NULL);
	ck_assert_ptr_nonnull(o);
	if (c->value)
		json_object_set_new(o, c->key,
				    json_loads(c->value, JSON_DECODE_ANY, NULL));
	else if (c->key)
		json_object_del(o, c->key);
	snprintf(path, sizeof(path), "%s/config.json", fixture_dir);
	ck_assert_int_eq(json_dump_file(o, path, 0), 0);
	json_decref(o);
}

#endif /* CONFIG_CHANGE_H */
