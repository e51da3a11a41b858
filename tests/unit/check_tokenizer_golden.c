// SPDX-License-Identifier: Apache-2.0
/*
 * check_tokenizer_golden.c - many tokenizers against the library's own answers
 *
 * Every folder below tests/data/tokenizers, and below the one that
 * KVMM_TOKENIZER_GOLDEN names, holds a tokenizer.json and a golden.bin of
 * tests/peers/vocabularies.py: records of texts and ids.  All must agree, and
 * decoding must give whole characters.  Texts of a megabyte must take linear
 * time.
 */
#include <dirent.h>
#include <sys/stat.h>
#include <time.h>

#include "runtime/tokenizer/utf8.h"
#include "tests/level.h"
#include "tests/unit/tokenizer_fixture.h"

/* Kinds of records, as in vocabularies.py. */
enum golden_kind {
	GOLDEN_ENCODE,
	GOLDEN_PLAIN,
	GOLDEN_AROUND,
	GOLDEN_DECODE,
	GOLDEN_SKIPPED,
	NR_GOLDEN_KINDS,
};

struct golden {
	u8 *p;
	size_t len;
	size_t at;
	const char *name;
	u32 nr[NR_GOLDEN_KINDS];
};

static u32 *got = ids;
static size_t got_max = IDS_MAX;
static char *text_out;
static size_t text_max;

static u32 golden_u32(struct golden *g)
{
	u32 v;

	ck_assert_uint_le(g->at + 4, g->len);
	memcpy(&v, g->p + g->at, 4);
	g->at += 4;
	return v;
}

/* The next @n bytes; the test fails if there are fewer. */
static const u8 *golden_bytes(struct golden *g, size_t n)
{
	const u8 *p = g->p + g->at;

	if (n > g->len - g->at)
		ck_abort_msg("%s: golden.bin ends early", g->name);
	g->at += n;
	return p;
}

static void expect_encoded(struct golden *g, u32 kind, const char *text,
			   size_t len, const u8 *want, u32 nr)
{
	static const u32 flags[] = {
		[GOLDEN_PLAIN] = TOKENIZER_PLAIN,
		[GOLDEN_AROUND] = TOKENIZER_ADD_BOS | TOKENIZER_ADD_EOS,
	};
	ssize_t n;
	u32 i, id;

	if (nr + 1 > got_max) {
		got_max = 2 * (size_t)nr + 1024;
		got = realloc(got == ids ? NULL : got,
			      got_max * sizeof(*got));
	}
	n = tokenizer_encode(tok, text, len, flags[kind], got, got_max, NULL);
	for (i = 0; n >= 0 && i < (u32)n && i < nr; i++) {
		memcpy(&id, want + 4 * i, 4);
		if (got[i] != id)
			ck_abort_msg("%s: record %u of kind %u: \"%.*s\": id "
				     "%u is %u, not %u", g->name, g->nr[kind],
				     kind, (int)len, text, i, got[i], id);
	}
	if (n != (ssize_t)nr)
		ck_abort_msg("%s: record %u of kind %u: \"%.*s\": %zd ids, "
			     "not %u", g->name, g->nr[kind], kind, (int)len,
			     text, n, nr);
}

static void expect_decoded(struct golden *g, u32 kind, const char *text,
			   size_t len, const u8 *want, u32 nr)
{
	const size_t room = detok_out_max(tok);
	struct detok d;
	size_t at = 0;
	ssize_t n;
	u32 i, id;

	detok_init(&d, tok, kind == GOLDEN_SKIPPED);
	for (i = 0; i <= nr; i++) {
		if (at + room > text_max) {
			text_max = 2 * (at + room);
			text_out = realloc(text_out, text_max);
		}
		if (i < nr)
			memcpy(&id, want + 4 * i, 4);
		n = i < nr ? detok_push(&d, id, text_out + at, room) :
			     detok_flush(&d, text_out + at, room);
		if (n < 0 || !utf8_is_valid(text_out + at, (size_t)n))
			ck_abort_msg("%s: id %u puts out %zd bytes", g->name,
				     id, n);
		at += (size_t)n;
	}
	if (at != len || memcmp(text_out, text, len))
		ck_abort_msg("%s: record %u of kind %u: \"%.*s\", not "
			     "\"%.*s\"", g->name, g->nr[kind], kind, (int)at,
			     text_out, (int)len, text);
}

static void golden_run(struct golden *g)
{
	const u8 *text, *want;
	u32 kind, len, nr;

	while (g->at < g->len) {
		kind = golden_u32(g);
		ck_assert_uint_lt(kind, NR_GOLDEN_KINDS);
		len = golden_u32(g);
		text = golden_bytes(g, len);
		nr = golden_u32(g);
		want = golden_bytes(g, 4ul * nr);
		if (kind < GOLDEN_DECODE)
			expect_encoded(g, kind, (const char *)text, len, want,
				       nr);
		else
			expect_decoded(g, kind, (const char *)text, len, want,
				       nr);
		g->nr[kind]++;
	}
}

static void golden_read(struct golden *g, const char *path)
{
	struct stat st;
	FILE *f = fopen(path, "re");

	ck_assert_msg(f && !fstat(fileno(f), &st), "%s", path);
	g->len = (size_t)st.st_size;
	g->p = malloc(g->len + 1);
	ck_assert_uint_eq(fread(g->p, 1, g->len, f), g->len);
	fclose(f);
}

static void model_run(const char *folder, const char *name)
{
	struct golden g = { .name = name };
	char path[600];

	snprintf(path, sizeof(path), "%s/%s/golden.bin", folder, name);
	if (access(path, R_OK))
		return;
	golden_read(&g, path);
	snprintf(path, sizeof(path), "%s/%s", folder, name);
	ck_assert_msg(!tokenizer_load(path, &tok, err, sizeof(err)), "%s",
		      err);
	golden_run(&g);
	printf("%s: %u encoded, %u plain, %u with what is around, %u decoded, "
	       "%u without special tokens\n", name, g.nr[0], g.nr[1], g.nr[2],
	       g.nr[3], g.nr[4]);
	tokenizer_free(tok);
	tok = NULL;
	free(g.p);
}

/* Run all models of a folder; returns their number. */
static u32 folder_run(const char *folder)
{
	struct dirent **list;
	int n = scandir(folder, &list, NULL, alphasort), i;
	u32 nr = 0;

	ck_assert_msg(n >= 0, "%s", folder);
	for (i = 0; i < n; i++) {
		if (list[i]->d_name[0] != '.') {
			model_run(folder, list[i]->d_name);
			nr++;
		}
		free(list[i]);
	}
	free(list);
	return nr;
}

START_TEST(test_committed)
{
	char folder[512];

	snprintf(folder, sizeof(folder), "%s", data_path("tokenizers"));
	ck_assert_uint_ge(folder_run(folder), 12);
}
END_TEST

START_TEST(test_named)
{
	const char *folder = getenv("KVMM_TOKENIZER_GOLDEN");

	if (folder)
		ck_assert_uint_ge(folder_run(folder), 1);
}
END_TEST

/* ---- texts of a megabyte ---- */

#define LONG_BYTES	(1u << 20)

static const char * const long_units[] = {
	"a", " ", "1", "\n", "e\u0301\u0323", "\u0323\u0301", "\u4f60",
	"the ", "\u2581", "<|l|", "\U0001f600",
};

/* CPU seconds to encode @len bytes of @text. */
static double encode_seconds(const char *text, size_t len)
{
	struct timespec from, to;
	ssize_t n;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);
	n = tokenizer_encode(tok, text, len, 0, NULL, 0, NULL);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &to);
	ck_assert_msg(n == -E2BIG || n == 0, "%zd", n);
	return (double)(to.tv_sec - from.tv_sec) +
	       (double)(to.tv_nsec - from.tv_nsec) / 1e9;
}

#define LONG_TRIES	4	/* page faults may slow a try */

/*
 * Eight times the text may take twenty times as long, not sixty-four, and a
 * fixed time more: a heap of a megabyte fits no cache, and its pages are new.
 */
static void long_run(const char *name, const char *unit, char *text)
{
	const size_t len = level_is_check() ? LONG_BYTES / 4 : LONG_BYTES;
	const size_t n = strlen(unit);
	size_t at;
	const char *scale = getenv("KVMM_TIME_SCALE");
	const double more = 0.25 * (scale ? max(atoi(scale), 1) : 1);
	double some = 0, all = 0;
	u32 i;

	for (at = 0; at + n <= len; at += n)
		memcpy(text + at, unit, n);
	for (i = 0; i < LONG_TRIES; i++) {
		some = encode_seconds(text, at / 8 / n * n);
		all = encode_seconds(text, at);
		if (all <= 20 * some + more)
			return;
	}
	ck_abort_msg("%s: \"%s\": %g s, an eighth of it %g s", name, unit, all,
		     some);
}

START_TEST(test_long_texts)
{
	static const char * const shapes[] = {
		"gpt-neox", "llama2", "llama3", "mistral", "gemma", "legacy",
	};
	char path[600], *text = malloc(LONG_BYTES);
	size_t i, k;

	ck_assert_ptr_nonnull(text);
	for (i = 0; i < ARRAY_SIZE(shapes); i++) {
		snprintf(path, sizeof(path), "%s/%s", data_path("tokenizers"),
			 shapes[i]);
		ck_assert_msg(!tokenizer_load(path, &tok, err, sizeof(err)),
			      "%s", err);
		for (k = 0; k < ARRAY_SIZE(long_units); k++)
			long_run(shapes[i], long_units[k], text);
		tokenizer_free(tok);
	}
	tok = NULL;
	free(text);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("tokenizer golden");
	TCase *tc = tcase_create("golden");

	setvbuf(stdout, NULL, _IOLBF, 0);
	tcase_set_tags(tc, "unit tokenizer");
	tcase_set_timeout(tc, 900);
	if (!getenv("KVMM_TOKENIZER_GOLDEN")) {
		tcase_add_test(tc, test_committed);
		tcase_add_test(tc, test_long_texts);
	}
	tcase_add_test(tc, test_named);
	suite_add_tcase(s, tc);
	return suite_run(s);
}
