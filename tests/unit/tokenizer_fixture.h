/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tokenizer_fixture.h - folder and JSON for the tests of the tokenizer
 *
 * A temporary folder, the demo model's files, changes to JSON by a dotted path,
 * and a tokenizer that is freed after the test.
 */
#ifndef TESTS_UNIT_TOKENIZER_FIXTURE_H
#define TESTS_UNIT_TOKENIZER_FIXTURE_H

#include <check.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/tokenizer/tokenizer.h"

#define IDS_MAX		4096

static char dir[128];
static char err[TOKENIZER_ERR_MAX];
static struct tokenizer *tok;
static u32 ids[IDS_MAX];

static inline const char *data_path(const char *name)
{
	static char path[512];
	const char *top = getenv("KVMM_TOP");

	snprintf(path, sizeof(path), "%s/tests/data/%s", top ? top : ".",
		 name);
	return path;
}

static inline json_t *data_read(const char *name)
{
	json_error_t e;
	json_t *root = json_load_file(data_path(name), JSON_ALLOW_NUL, &e);

	ck_assert_msg(root, "%s: %s", data_path(name), e.text);
	return root;
}

static inline void file_write(const char *name, const char *text, size_t len)
{
	char path[256];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "w");
	ck_assert_ptr_nonnull(f);
	ck_assert_uint_eq(fwrite(text, 1, len, f), len);
	ck_assert_int_eq(fclose(f), 0);
}

static inline void json_write(const char *name, json_t *root)
{
	char *text = json_dumps(root, JSON_ENCODE_ANY);

	file_write(name, text, strlen(text));
	free(text);
}

static inline void setup(void)
{
	const char *tmp = getenv("TMPDIR");

	snprintf(dir, sizeof(dir), "%s/check_tokenizer.XXXXXX",
		 tmp ? tmp : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(dir));
}

static inline void teardown(void)
{
	static const char * const names[] = {
		"tokenizer.json", "tokenizer_config.json", "vocab.json",
		"merges.txt", "config.json", "added_tokens.json",
		"special_tokens_map.json", "tokenizer.model", "model.gguf",
	};
	char path[256];
	size_t i;

	for (i = 0; i < ARRAY_SIZE(names); i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
		unlink(path);
	}
	rmdir(dir);
	tokenizer_free(tok);
	tok = NULL;
}

static inline void setup_demo(void)
{
	setup();
	ck_assert_msg(!tokenizer_load(data_path("demo-model"), &tok, err,
				      sizeof(err)), "%s", err);
}

/* Set the dotted @path of @root to @value (stolen); "+" appends. */
static inline void json_change(json_t *root, const char *path, json_t *value)
{
	const char *dot;
	char key[64];

	while ((dot = strchr(path, '.'))) {
		snprintf(key, sizeof(key), "%.*s", (int)(dot - path), path);
		root = json_is_array(root) ?
			json_array_get(root, strtoul(key, NULL, 10)) :
			json_object_get(root, key);
		ck_assert_msg(root, "no %s", key);
		path = dot + 1;
	}
	if (!strcmp(path, "+"))
		ck_assert_int_eq(json_array_append_new(root, value), 0);
	else if (json_is_array(root))
		ck_assert_int_eq(json_array_set_new(root, strtoul(path, NULL,
								  10), value),
				 0);
	else
		ck_assert_int_eq(json_object_set_new(root, path, value), 0);
}

static inline TCase *case_new(Suite *s, const char *name, void (*before)(void))
{
	TCase *tc = tcase_create(name);

	tcase_set_tags(tc, "unit tokenizer");
	tcase_set_timeout(tc, 20);
	tcase_add_checked_fixture(tc, before, teardown);
	suite_add_tcase(s, tc);
	return tc;
}

static inline int suite_run(Suite *s)
{
	SRunner *sr = srunner_create(s);
	int failed;

	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

#endif /* TESTS_UNIT_TOKENIZER_FIXTURE_H */
