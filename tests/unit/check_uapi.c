// SPDX-License-Identifier: Apache-2.0
/*
 * check_uapi.c - the layout of the ABI has not changed
 *
 * Prints every structure, field, offset, size and number of uapi/kvmm.h and
 * compares the text with tests/data/uapi-layout.txt, whose FNV-1a is
 * KVMM_LAYOUT_HASH.  The ABI changes on purpose or not at all: edit the header
 * and uapi_layout.h, run this with UPDATE=1, which writes the list and prints
 * the hash for the header, and raise KVMM_ABI_VERSION if a release has the old
 * one.
 */
#include <check.h>
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <uapi/kvmm.h>
#include <kvmm/types.h>

#include "tests/unit/uapi_layout.h"

#define TEXT_MAX	65536
#define NR_CONSTS	ARRAY_SIZE(consts)

struct field {
	const char	*name;
	size_t		off;
	size_t		size;
};

#define FIELD(s, f)	{ #f, offsetof(struct s, f), sizeof(((struct s *)0)->f) },
#define FIELDS(s, list)							\
	static const struct field fields_##s[] = { list(FIELD, s) };
UAPI_STRUCTS(FIELDS)

struct layout {
	const char		*name;
	size_t			size;
	const struct field	*field;
	u32			nr;
};

#define LAYOUT(s, list)							\
	{ #s, sizeof(struct s), fields_##s, ARRAY_SIZE(fields_##s) },
static const struct layout layouts[] = { UAPI_STRUCTS(LAYOUT) };

#define CONST(c)	{ #c, (u64)(c) },
static const struct {
	const char	*name;
	u64		value;
} consts[] = { UAPI_CONSTS(CONST) };

static char text[TEXT_MAX];
static char file[TEXT_MAX];

static void __printf(1, 2) add(const char *fmt, ...)
{
	size_t len = strlen(text);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text + len, sizeof(text) - len, fmt, ap);
	va_end(ap);
}

static void print_layout(void)
{
	const struct layout *l;
	u32 i;

	text[0] = '\0';
	for (l = layouts; l < layouts + ARRAY_SIZE(layouts); l++) {
		add("struct %s: %zu\n", l->name, l->size);
		for (i = 0; i < l->nr; i++)
			add("%6zu %4zu %s\n", l->field[i].off,
			    l->field[i].size, l->field[i].name);
	}
	for (i = 0; i < NR_CONSTS; i++)
		add("%s = 0x%llx\n", consts[i].name,
		    (unsigned long long)consts[i].value);
	ck_assert_uint_lt(strlen(text), sizeof(text) - 1);
}

static void path_of(char *path, size_t size, const char *name)
{
	const char *top = getenv("KVMM_TOP");

	snprintf(path, size, "%s/%s", top ? top : ".", name);
}

static void read_file(const char *name)
{
	char path[512];
	size_t n;
	FILE *f;

	path_of(path, sizeof(path), name);
	f = fopen(path, "r");
	ck_assert_msg(f, "%s: %s: run from the top of the tree or set KVMM_TOP",
		      path, strerror(errno));
	n = fread(file, 1, sizeof(file) - 1, f);
	ck_assert_uint_lt(n, sizeof(file) - 1);
	file[n] = '\0';
	fclose(f);
}

static u64 fnv1a(const char *s)
{
	u64 h = 0xcbf29ce484222325ull;

	for (; *s; s++)
		h = (h ^ (u8)*s) * 0x100000001b3ull;
	return h;
}

static void update_file(void)
{
	char path[512];
	FILE *f;

	path_of(path, sizeof(path), "tests/data/uapi-layout.txt");
	f = fopen(path, "w");
	ck_assert_msg(f, "%s: %s", path, strerror(errno));
	ck_assert_int_ge(fputs(text, f), 0);
	ck_assert_int_eq(fclose(f), 0);
	printf("KVMM_LAYOUT_HASH\t0x%016llxull\n",
	       (unsigned long long)fnv1a(text));
}

START_TEST(test_no_holes)
{
	const struct layout *l = &layouts[_i];
	size_t end = 0;
	u32 i;

	for (i = 0; i < l->nr; i++) {
		ck_assert_msg(l->field[i].off == end,
			      "struct %s: a hole before %s, or a field that is not listed",
			      l->name, l->field[i].name);
		end += l->field[i].size;
	}
	ck_assert_msg(end == l->size, "struct %s: ends at %zu, its fields at %zu",
		      l->name, l->size, end);
	ck_assert_msg(l->size % 8 == 0, "struct %s: %zu is no multiple of 8",
		      l->name, l->size);
}
END_TEST

static bool struct_known(const char *name, size_t len)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(layouts); i++) {
		if (strlen(layouts[i].name) == len &&
		    !strncmp(layouts[i].name, name, len))
			return true;
	}
	return false;
}

static bool const_known(const char *name, size_t len)
{
	static const char * const other[] = {
		"KVMM_STATIC_ASSERT", "KVMM_ASSERT_SIZE", "KVMM_ASSERT_OFFSET",
		"KVMM_LAYOUT_HASH", "KVMM_SEQ", "KVMM_SEQ_INDEX", "KVMM_SEQ_GEN",
		"KVMM_RANGE",
	};
	u32 i;

	for (i = 0; i < NR_CONSTS; i++) {
		if (strlen(consts[i].name) == len &&
		    !strncmp(consts[i].name, name, len))
			return true;
	}
	for (i = 0; i < ARRAY_SIZE(other); i++) {
		if (strlen(other[i]) == len && !strncmp(other[i], name, len))
			return true;
	}
	return false;
}

static size_t word_len(const char *s)
{
	size_t n = 0;

	while (isalnum((unsigned char)s[n]) || s[n] == '_')
		n++;
	return n;
}

/* The list has everything that the header has. */
START_TEST(test_list_is_complete)
{
	const char *p, *name;
	u32 nr = 0;
	size_t len;

	read_file("include/uapi/kvmm.h");
	for (p = file; p; p = strchr(p, '\n'), p = p ? p + 1 : NULL) {
		if (!strncmp(p, "struct ", 7)) {
			name = p + 7;
			len = word_len(name);
			nr++;
			ck_assert_msg(struct_known(name, len),
				      "struct %.*s is not in uapi_layout.h",
				      (int)len, name);
		} else if (!strncmp(p, "#define KVMM_", 13)) {
			name = p + 8;
			len = word_len(name);
			ck_assert_msg(const_known(name, len),
				      "%.*s is not in uapi_layout.h",
				      (int)len, name);
		}
	}
	ck_assert_uint_eq(nr, ARRAY_SIZE(layouts));
}
END_TEST

START_TEST(test_layout_is_the_committed_one)
{
	print_layout();
	if (getenv("UPDATE"))
		update_file();
	read_file("tests/data/uapi-layout.txt");
	ck_assert_msg(!strcmp(text, file),
		      "the layout differs from tests/data/uapi-layout.txt: if that is meant, run with UPDATE=1");
}
END_TEST

START_TEST(test_hash_is_of_the_list)
{
	read_file("tests/data/uapi-layout.txt");
	ck_assert_msg(fnv1a(file) == KVMM_LAYOUT_HASH,
		      "KVMM_LAYOUT_HASH must be 0x%016llx",
		      (unsigned long long)fnv1a(file));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("uapi");
	TCase *tc = tcase_create("layout");
	SRunner *sr;
	int failed;

	tcase_add_loop_test(tc, test_no_holes, 0, ARRAY_SIZE(layouts));
	tcase_add_test(tc, test_list_is_complete);
	tcase_add_test(tc, test_layout_is_the_committed_one);
	tcase_add_test(tc, test_hash_is_of_the_list);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
