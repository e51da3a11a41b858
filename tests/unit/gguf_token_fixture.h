/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gguf_token_fixture.h - a GGUF file in a folder of its own, for the tests of tokenizers
 */
#ifndef TESTS_UNIT_GGUF_TOKEN_FIXTURE_H
#define TESTS_UNIT_GGUF_TOKEN_FIXTURE_H

#include "tests/unit/gguf_text.h"
#include "tests/unit/tokenizer_fixture.h"

static struct tokenizer *other;		/* of the GGUF file; @tok is a folder's */

static inline void gguf_teardown(void)
{
	tokenizer_free(other);
	other = NULL;
	teardown();
}

static inline const char *model_path(void)
{
	static char path[256];

	snprintf(path, sizeof(path), "%s/model.gguf", dir);
	return path;
}

static inline void load_other(void)
{
	ck_assert_msg(!tokenizer_load(model_path(), &other, err, sizeof(err)),
		      "%s", err);
}

static inline void put_text(FILE *f, const char *text)
{
	gt_number(f, strlen(text), 8);
	fputs(text, f);
}

static inline void put_key(FILE *f, const char *key, u32 kind)
{
	put_text(f, key);
	gt_number(f, kind, 4);
}

static inline void put_list(FILE *f, const char *key, u32 kind, u64 nr)
{
	put_key(f, key, 9);
	gt_number(f, kind, 4);
	gt_number(f, nr, 8);
}

static inline TCase *gguf_case(Suite *s, const char *name)
{
	TCase *tc = tcase_create(name);

	tcase_set_tags(tc, "unit tokenizer");
	tcase_set_timeout(tc, 20);
	tcase_add_checked_fixture(tc, setup, gguf_teardown);
	suite_add_tcase(s, tc);
	return tc;
}

#endif /* TESTS_UNIT_GGUF_TOKEN_FIXTURE_H */
