// SPDX-License-Identifier: Apache-2.0
/*
 * check_tokenizer.c - the ids of the library that models are trained with
 *
 * Two sources of truth: golden.json beside the demo model, and
 * tokenizer-golden.json, which Hugging Face's own library made for 300 texts,
 * for the demo model's tokenizer and for variants of it with the patterns and
 * flags of other models.  A variant is a list of changes to tokenizer.json,
 * which the test makes.
 *
 * Check writes every assertion to a file, so loops that run often have an if
 * and ck_abort_msg() instead.
 */
#include <pthread.h>
#include <time.h>

#include "runtime/tokenizer/utf8.h"
#include "tests/unit/tokenizer_fixture.h"

#define NR_VARIANTS	7

/* ---------------------------------------------------------- known answers */

static void expect_ids(const struct tokenizer *t, const json_t *text,
		       const json_t *want, u32 flags)
{
	size_t i, needed;
	ssize_t n;

	n = tokenizer_encode(t, json_string_value(text),
			     json_string_length(text), flags, ids, IDS_MAX,
			     &needed);
	ck_assert_msg(n == (ssize_t)json_array_size(want),
		      "\"%s\": %zd ids, not %zu", json_string_value(text), n,
		      json_array_size(want));
	ck_assert_uint_eq(needed, n);
	for (i = 0; i < (size_t)n; i++)
		if (ids[i] != json_integer_value(json_array_get(want, i)))
			ck_abort_msg("\"%s\": id %zu is %u",
				     json_string_value(text), i, ids[i]);
}

/* Decode @want_ids one by one and compare with @text. */
static void expect_text(const struct tokenizer *t, const json_t *want_ids,
			const json_t *text, bool skip_special)
{
	static char out[65536];
	size_t i, at = 0;
	struct detok d;
	ssize_t n;

	detok_init(&d, t, skip_special);
	for (i = 0; i < json_array_size(want_ids); i++) {
		n = detok_push(&d, (u32)json_integer_value(json_array_get(
			       want_ids, i)), out + at, sizeof(out) - at);
		if (n < 0 || (size_t)n > detok_out_max(t) ||
		    !utf8_is_valid(out + at, n))
			ck_abort_msg("id %zu puts out %zd bytes", i, n);
		at += n;
	}
	n = detok_flush(&d, out + at, sizeof(out) - at);
	ck_assert_int_ge(n, 0);
	ck_assert_uint_eq(at + n, json_string_length(text));
	ck_assert_mem_eq(out, json_string_value(text), at + n);
}

START_TEST(test_demo_golden)
{
	json_t *root = data_read("demo-model/golden.json");
	json_t *v;
	size_t i;

	json_array_foreach(json_object_get(root, "tokenization"), i, v)
		expect_ids(tok, json_object_get(v, "text"),
			   json_object_get(v, "ids"), 0);
	json_array_foreach(json_object_get(root, "continuations"), i, v) {
		expect_ids(tok, json_object_get(v, "prompt"),
			   json_object_get(v, "prompt_ids"),
			   TOKENIZER_ADD_BOS);
		expect_text(tok, json_object_get(v, "greedy_ids"),
			    json_object_get(v, "greedy_text"), true);
		expect_text(tok, json_object_get(v, "prompt_ids"),
			    json_object_get(v, "prompt"), true);
	}
	ck_assert_uint_eq(i, 8);
	json_decref(root);
}
END_TEST

static void json_change_all(json_t *root, const json_t *changes)
{
	json_t *v;
	size_t i;

	json_array_foreach(changes, i, v)
		json_change(root, json_string_value(json_array_get(v, 0)),
			    json_incref(json_array_get(v, 1)));
}

START_TEST(test_golden_variant)
{
	json_t *root = data_read("tokenizer-golden.json");
	json_t *base = data_read("demo-model/tokenizer.json");
	json_t *texts = json_object_get(root, "texts");
	json_t *variants = json_object_get(root, "variants");
	json_t *variant = json_array_get(variants, _i), *v;
	size_t i;

	ck_assert_uint_eq(json_array_size(variants), NR_VARIANTS);
	if (_i)
		json_change_all(base, json_object_get(root, "borders"));
	json_change_all(base, json_object_get(variant, "changes"));
	json_write("tokenizer.json", base);
	ck_assert_msg(!tokenizer_load(dir, &tok, err, sizeof(err)), "%s", err);

	json_array_foreach(json_object_get(variant, "ids"), i, v)
		expect_ids(tok, json_array_get(texts, i), v, 0);
	ck_assert_uint_ge(i, _i ? 80 : 300);
	json_array_foreach(json_object_get(variant, "plain"), i, v)
		expect_ids(tok, json_array_get(texts, i), v, TOKENIZER_PLAIN);
	ck_assert_uint_ge(i, 80);
	json_decref(base);
	json_decref(root);
}
END_TEST

START_TEST(test_golden_decode)
{
	json_t *root = data_read("tokenizer-golden.json");
	json_t *v;
	size_t i;

	json_array_foreach(json_object_get(root, "decodes"), i, v) {
		const json_t *list = json_object_get(v, "ids");

		expect_text(tok, list, json_object_get(v, "text"), false);
		expect_text(tok, list, json_object_get(v, "skipped"), true);
	}
	ck_assert_uint_ge(i, 60);
	json_decref(root);
}
END_TEST

/* Merges in the other spelling, as strings instead of pairs, mean the same. */
START_TEST(test_merges_of_the_other_spelling)
{
	json_t *root = data_read("tokenizer-golden.json");
	json_t *base = data_read("demo-model/tokenizer.json");
	json_t *merges = json_object_get(json_object_get(base, "model"),
					 "merges");
	json_t *texts = json_object_get(root, "texts"), *m, *v;
	bool were_strings = json_is_string(json_array_get(merges, 0));
	char buf[256];
	size_t i;

	json_array_foreach(merges, i, m) {
		const char *s = json_string_value(m), *space;

		if (were_strings) {
			space = strchr(s, ' ');
			v = json_pack("[s%s]", s, (int)(space - s), space + 1);
		} else {
			snprintf(buf, sizeof(buf), "%s %s",
				 json_string_value(json_array_get(m, 0)),
				 json_string_value(json_array_get(m, 1)));
			v = json_string(buf);
		}
		json_array_set_new(merges, i, v);
	}
	json_write("tokenizer.json", base);
	ck_assert_msg(!tokenizer_load(dir, &tok, err, sizeof(err)), "%s", err);
	json_array_foreach(json_object_get(json_array_get(json_object_get(
			   root, "variants"), 0), "ids"), i, v)
		expect_ids(tok, json_array_get(texts, i), v, 0);
	json_decref(base);
	json_decref(root);
}
END_TEST

/* ----------------------------------------------------------- the interface */

START_TEST(test_encode_results)
{
	static const char text[] = "Hello, world!";
	u32 all[16], some[16];
	size_t needed = 99;
	ssize_t n;

	n = tokenizer_encode(tok, text, strlen(text), 0, all, 16, NULL);
	ck_assert_int_gt(n, 2);

	memset(some, 0xee, sizeof(some));
	ck_assert_int_eq(tokenizer_encode(tok, text, strlen(text), 0, some, 2,
					  &needed), -E2BIG);
	ck_assert_uint_eq(needed, n);
	ck_assert_mem_eq(some, all, 2 * sizeof(u32));
	ck_assert_uint_eq(some[2], 0xeeeeeeee);
	ck_assert_int_eq(tokenizer_encode(tok, text, strlen(text), 0, NULL, 0,
					  &needed), -E2BIG);
	ck_assert_uint_eq(needed, n);

	ck_assert_int_eq(tokenizer_encode(tok, "", 0, 0, NULL, 0, &needed), 0);
	ck_assert_uint_eq(needed, 0);
	ck_assert_int_eq(tokenizer_encode(tok, "", 0, TOKENIZER_ADD_BOS, some,
					  1, NULL), 1);
	ck_assert_uint_eq(some[0], 0);
	ck_assert_int_eq(tokenizer_encode(tok, text, 1ul << 30, 0, all, 16,
					  &needed), -EFBIG);
	ck_assert_uint_eq(needed, 0);
	/* A NUL is an ordinary character. */
	ck_assert_int_eq(tokenizer_encode(tok, "a\0b", 3, 0, all, 16, NULL),
			 3);
}
END_TEST

static const char * const not_utf8[] = {
	"\x80", "a\xff", "\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf",
	"\xed\xa0\x80", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80",
	"\xf5\x80\x80\x80",
	"ab\xe4\xbd", "\xc3", "\xe4\xbdz", "\xf0\x9f\x98", "\xf0\x9f\x98z",
};

START_TEST(test_encode_refuses_not_utf8)
{
	const char *s = not_utf8[_i];

	ck_assert_int_eq(tokenizer_encode(tok, s, strlen(s), 0, ids, IDS_MAX,
					  NULL), -EILSEQ);
}
END_TEST

/* White_Space of Unicode: 25 code points, U+180E not among them. */
START_TEST(test_white_space)
{
	u32 cp, nr = 0;

	for (cp = 0; cp < 0x110000; cp++)
		nr += utf8_is_space(cp);
	ck_assert_uint_eq(nr, 25);
	ck_assert(utf8_is_space(0x3000) && utf8_is_space(0x2028));
	ck_assert(utf8_is_space(0x0b) && utf8_is_space(0x85));
	ck_assert(!utf8_is_space(0x180e) && !utf8_is_space(0x200b));
}
END_TEST

START_TEST(test_lookups)
{
	const char *bytes;

	ck_assert_uint_eq(tokenizer_vocab_size(tok), 4096);
	ck_assert_uint_eq(tokenizer_bos_id(tok), 0);
	ck_assert_uint_eq(tokenizer_eos_id(tok), 0);
	ck_assert(tokenizer_adds_bos(tok));
	ck_assert(tokenizer_is_special(tok, 2));
	ck_assert(!tokenizer_is_special(tok, 3));
	ck_assert(!tokenizer_is_special(tok, 4096));
	ck_assert(!tokenizer_is_special(tok, UINT32_MAX));

	ck_assert_int_eq(tokenizer_decode(tok, 1, &bytes), 12);
	ck_assert_mem_eq(bytes, "<|im_start|>", 12);
	ck_assert_int_eq(tokenizer_decode(tok, 262, &bytes), 4);
	ck_assert_mem_eq(bytes, " the", 4);
	ck_assert_int_eq(tokenizer_decode(tok, 4096, &bytes), -ENOENT);
	ck_assert_int_eq(tokenizer_decode(tok, UINT32_MAX, &bytes), -ENOENT);

	ck_assert_uint_eq(tokenizer_find(tok, "<|im_end|>", 10), 2);
	ck_assert_uint_eq(tokenizer_find(tok, " the", 4), 262);
	ck_assert_uint_eq(tokenizer_find(tok, " the", 0), TOKENIZER_NO_ID);
	ck_assert_uint_eq(tokenizer_find(tok, "<|im_en", 7), TOKENIZER_NO_ID);
	ck_assert_uint_eq(tokenizer_find(tok, "\n", 1), 201);
}
END_TEST

/* The id that stands for a single byte. */
static u32 byte_token(u8 b)
{
	return tokenizer_find(tok, (const char *)&b, 1);
}

START_TEST(test_detok_holds_characters_back)
{
	static const u8 smile[] = { 0xf0, 0x9f, 0x98, 0x80 };
	struct detok d, fork;
	char out[64];
	size_t i;

	detok_init(&d, tok, false);
	for (i = 0; i < 3; i++)
		ck_assert_int_eq(detok_push(&d, byte_token(smile[i]), out,
					    sizeof(out)), 0);
	fork = d;
	ck_assert_int_eq(detok_push(&d, byte_token(smile[3]), out,
				    sizeof(out)), 4);
	ck_assert_mem_eq(out, smile, 4);
	ck_assert_int_eq(detok_flush(&d, out, sizeof(out)), 0);

	/* The other branch goes on with a token that cannot complete it. */
	ck_assert_int_eq(detok_push(&fork, byte_token('a'), out, 3), -E2BIG);
	ck_assert_int_eq(detok_push(&fork, byte_token('a'), out, 4), 4);
	ck_assert_mem_eq(out, "\xef\xbf\xbd" "a", 4);

	/* The stream ends after the first byte of a character. */
	ck_assert_int_eq(detok_push(&d, byte_token(0xe4), out, 0), 0);
	ck_assert_int_eq(detok_push(&d, 70000, out, 0), 0);
	ck_assert_int_eq(detok_flush(&d, out, 2), -E2BIG);
	ck_assert_int_eq(detok_flush(&d, out, 3), 3);
	ck_assert_mem_eq(out, "\xef\xbf\xbd", 3);
	ck_assert_int_eq(detok_flush(&d, out, 3), 0);
}
END_TEST

/* Decode all of @p at once into @out; returns the length. */
static size_t decode_at_once(const u8 *p, size_t n, char *out)
{
	size_t at, len, nr = 0;

	for (at = 0; at < n; at += len) {
		if (utf8_step(p + at, n - at, &len) == UTF8_CHAR) {
			memcpy(out + nr, p + at, len);
			nr += len;
		} else {
			memcpy(out + nr, "\xef\xbf\xbd", 3);
			nr += 3;
		}
	}
	return nr;
}

/* Every sequence of @length of these tokens is compared with decoding at once. */
static void try_all_sequences(const u32 *list, u32 nr_list, u32 length)
{
	char got[128], want[128];
	size_t n_got, n_want, nr;
	u32 seq, rest, i, total = 1;
	const char *bytes;
	struct detok d;
	ssize_t len;
	u8 all[64];

	for (i = 0; i < length; i++)
		total *= nr_list;
	for (seq = 0; seq < total; seq++) {
		detok_init(&d, tok, false);
		n_got = nr = 0;
		for (i = 0, rest = seq; i < length; i++, rest /= nr_list) {
			u32 id = list[rest % nr_list];

			len = tokenizer_decode(tok, id, &bytes);
			memcpy(all + nr, bytes, len);
			nr += len;
			n_got += detok_push(&d, id, got + n_got,
					    sizeof(got) - n_got);
		}
		n_got += detok_flush(&d, got + n_got, sizeof(got) - n_got);
		n_want = decode_at_once(all, nr, want);
		if (n_got != n_want || memcmp(got, want, n_want))
			ck_abort_msg("sequence %u", seq);
	}
}

START_TEST(test_detok_all_byte_sequences)
{
	static const u8 kinds[] = {
		'a', 0x80, 0xbf, 0xc2, 0xe0, 0xed, 0xf0, 0xf4, 0xff,
	};
	u32 list[ARRAY_SIZE(kinds)];
	size_t i;

	for (i = 0; i < ARRAY_SIZE(kinds); i++)
		list[i] = byte_token(kinds[i]);
	try_all_sequences(list, ARRAY_SIZE(list), 5);
}
END_TEST

/* Tokens that end one character and begin the next, or do neither. */
START_TEST(test_detok_all_token_sequences)
{
	static const char * const parts[] = {
		"\x9f\x98\x80", "\x9f\x98", "\x80\xf0\x9f", "\x98\x80" "a",
		"\x80\x80\x80\x80\x80", "\xe4\xbd",
	};
	/* The same in the byte alphabet of tokenizer.json. */
	static const char * const names[] = {
		"\u0141\u013a\u0122", "\u0141\u013a", "\u0122\u00f0\u0141",
		"\u013a\u0122a", "\u0122\u0122\u0122\u0122\u0122",
		"\u00e4\u00bd",
	};
	u32 list[ARRAY_SIZE(parts) + 2];
	json_t *root = data_read("demo-model/tokenizer.json");
	json_t *model = json_object_get(root, "model");
	size_t i;

	for (i = 0; i < ARRAY_SIZE(parts); i++)
		json_object_set_new(json_object_get(model, "vocab"), names[i],
				    json_integer(4096 + i));
	json_write("tokenizer.json", root);
	json_decref(root);
	tokenizer_free(tok);
	ck_assert_msg(!tokenizer_load(dir, &tok, err, sizeof(err)), "%s", err);

	for (i = 0; i < ARRAY_SIZE(parts); i++) {
		list[i] = tokenizer_find(tok, parts[i], strlen(parts[i]));
		ck_assert_uint_eq(list[i], 4096 + i);
	}
	list[i++] = byte_token(0xf0);
	list[i++] = byte_token('a');
	try_all_sequences(list, i, 5);
}
END_TEST

/* --------------------------------------------------------------- long input */

struct long_text {
	const char *unit;
	const char *end;
};

static const struct long_text long_texts[] = {
	{ "a", "" }, { " ", "x" }, { "\n", "" }, { "1", "" }, { "A", "" },
	{ "ab", "" }, { "the", "" }, { "<|im_", "" }, { "\xe4\xbd\xa0", "" },
	{ "the quick brown fox jumps over the lazy dog. ", "" },
};

static double cpu_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return ts.tv_sec + ts.tv_nsec * 1e-9;
}

/* CPU seconds to encode @len bytes of @t; the text must come back. */
static double encode_long(const struct long_text *t, size_t len)
{
	size_t unit = strlen(t->unit), nr = len / unit, i, at = 0;
	char *text = malloc(len + 2);
	u32 *out = malloc((len + 2) * sizeof(*out));
	const char *bytes;
	double took;
	ssize_t n, k;

	for (i = 0; i < nr; i++)
		memcpy(text + i * unit, t->unit, unit);
	strcpy(text + nr * unit, t->end);
	len = nr * unit + strlen(t->end);

	took = cpu_s();
	n = tokenizer_encode(tok, text, len, 0, out, len + 2, NULL);
	took = cpu_s() - took;
	ck_assert_int_gt(n, 0);
	for (i = 0; i < (size_t)n; i++) {
		k = tokenizer_decode(tok, out[i], &bytes);
		if (k <= 0 || at + k > len || memcmp(text + at, bytes, k))
			ck_abort_msg("id %zu is not what the text says", i);
		at += k;
	}
	ck_assert_uint_eq(at, len);
	free(out);
	free(text);
	return took;
}

/*
 * Sixteen times the text takes not much more than sixteen times the time, far
 * from the 256 times of a quadratic algorithm.
 */
START_TEST(test_long_runs_are_linear)
{
	const struct long_text *t = &long_texts[_i];
	double small = encode_long(t, 64 << 10);
	double large = encode_long(t, 1 << 20);

	ck_assert_msg(large < 80 * small + 0.05, "%s: %g s, then %g s",
		      t->unit, small, large);
}
END_TEST

/* ------------------------------------------------------------------ threads */

static void *encode_often(void *arg)
{
	static const char text[] = "Mr. Speaker, <|im_end|> don't panic!\n\n ok";
	u32 mine[64], first[64];
	ssize_t n, again;
	int i;

	n = tokenizer_encode(tok, text, strlen(text), 0, first, 64, NULL);
	for (i = 0; i < 200; i++) {
		again = tokenizer_encode(tok, text, strlen(text), 0, mine, 64,
					 NULL);
		if (n <= 0 || again != n ||
		    memcmp(mine, first, n * sizeof(*mine)))
			return (void *)1;
	}
	return NULL;
}

START_TEST(test_threads_share_a_tokenizer)
{
	pthread_t t[4];
	void *failed;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(t); i++)
		ck_assert_int_eq(pthread_create(&t[i], NULL, encode_often,
						NULL), 0);
	for (i = 0; i < ARRAY_SIZE(t); i++) {
		pthread_join(t[i], &failed);
		ck_assert_ptr_null(failed);
	}
}
END_TEST

static Suite *tokenizer_suite(void)
{
	Suite *s = suite_create("tokenizer");
	TCase *tc;

	tc = case_new(s, "golden", setup_demo);
	tcase_add_test(tc, test_demo_golden);
	tcase_add_test(tc, test_golden_decode);
	tc = case_new(s, "golden-variants", setup);
	tcase_add_loop_test(tc, test_golden_variant, 0, NR_VARIANTS);
	tcase_add_test(tc, test_merges_of_the_other_spelling);

	tc = case_new(s, "interface", setup_demo);
	tcase_add_test(tc, test_encode_results);
	tcase_add_loop_test(tc, test_encode_refuses_not_utf8, 0,
			    ARRAY_SIZE(not_utf8));
	tcase_add_test(tc, test_white_space);
	tcase_add_test(tc, test_lookups);
	tcase_add_test(tc, test_detok_holds_characters_back);
	tcase_add_test(tc, test_detok_all_byte_sequences);
	tcase_add_test(tc, test_detok_all_token_sequences);
	tcase_add_loop_test(tc, test_long_runs_are_linear, 0,
			    ARRAY_SIZE(long_texts));
	tcase_add_test(tc, test_threads_share_a_tokenizer);
	return s;
}

int main(void)
{
	return suite_run(tokenizer_suite());
}
