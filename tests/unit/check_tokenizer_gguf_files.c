// SPDX-License-Identifier: Apache-2.0
/*
 * check_tokenizer_gguf_files.c - GGUF files that are unsound, or written oddly
 *
 * The unsound files are tables: each row has one lie (gguf_text.h says how to read
 * it), the errno and words of the message, which must be one line that begins with
 * the file's name.
 */
#include <sys/resource.h>

#include "runtime/template/chat.h"
#include "runtime/tokenizer/utf8.h"
#include "tests/unit/gguf_token_fixture.h"

/* ---- unsound files ---- */

#define KEY(name)	"$tokenizer.ggml." name " "
#define MODEL(name)	KEY("model") "w8 $" name " "
#define TOKENS(n, list)	KEY("tokens") "w9 w8 q" #n " " list " "
#define TYPES(n, list)	KEY("token_type") "w9 w5 q" #n " " list " "
#define SCORES(n, list)	KEY("scores") "w9 w6 q" #n " " list " "
#define MERGE(a, b)	"q3 '" a "b32 '" b " "
#define ABC		TOKENS(3, "$a $b $ab") TYPES(3, "w1 w1 w1")
#define LLAMA		MODEL("llama") ABC SCORES(3, "w0 w0 w0")

static const struct {
	const char	*file;
	int		err;
	const char	*words;
} unsound[] = {
	{ GT_HEAD(0, 0), -EINVAL, "model is missing: the file has no tokenizer" },
	{ GT_HEAD(0, 1) KEY("model") "w4 w7", -EINVAL, "model is missing" },
	{ GT_HEAD(0, 1) MODEL("bert"), -EOPNOTSUPP, "\"bert\" (WordPiece) is" },
	{ GT_HEAD(0, 1) MODEL("t5"), -EOPNOTSUPP, "\"t5\" (Unigram) is not" },
	{ GT_HEAD(0, 1) MODEL("none"), -EOPNOTSUPP, "the file has no tokenizer" },
	{ GT_HEAD(0, 1) MODEL("no_vocab"), -EOPNOTSUPP, "has no tokenizer" },
	{ GT_HEAD(0, 1) MODEL("x\n\xff"), -EOPNOTSUPP, "only gpt2, llama and" },
	{ GT_HEAD(0, 1) MODEL("gpt2"), -EOPNOTSUPP, "pre is missing" },
	{ GT_HEAD(0, 2) MODEL("gpt2") KEY("pre") "w8 $default", -EOPNOTSUPP,
	  "pre \"default\" is not supported; known are gpt-2 phi-2" },
	{ GT_HEAD(0, 2) MODEL("gpt2") KEY("pre") "w8 $qwen", -EOPNOTSUPP,
	  "tekken deepseek-llm deepseek-coder deepseek-v3" },
	{ GT_HEAD(0, 2) MODEL("gpt2") KEY("pre") "w8 $", -EOPNOTSUPP, "pre \"\"" },
	{ GT_HEAD(0, 2) MODEL("gpt2") KEY("pre") "w8 $gpt-2", -EINVAL,
	  "tokens is no list, or empty" },
	{ GT_HEAD(0, 2) MODEL("llama") TOKENS(0, ""), -EINVAL, "or empty" },
	{ GT_HEAD(0, 2) MODEL("llama") KEY("tokens") "w8 $a", -EINVAL, "no list" },
	{ GT_HEAD(0, 2) MODEL("llama") KEY("tokens") "w9 w8 q1099511627776 $a",
	  -EINVAL, "model.gguf" },
	{ GT_HEAD(0, 2) MODEL("llama") KEY("tokens") "w9 w0 q3000000 z3000000",
	  -EOPNOTSUPP, "3000000 tokens, more than 2097152" },
	{ GT_HEAD(0, 3) MODEL("llama") KEY("tokens") "w9 w5 q1 w1 "
	  TYPES(1, "w1"), -EINVAL, "tokens is no list of strings" },
	{ GT_HEAD(0, 2) MODEL("llama") TOKENS(2, "$a $b"), -EINVAL,
	  "token_type does not have the 2 entries" },
	{ GT_HEAD(0, 3) MODEL("llama") TOKENS(2, "$a $b") TYPES(1, "w1"), -EINVAL,
	  "token_type does not have the 2 entries" },
	{ GT_HEAD(0, 3) MODEL("llama") TOKENS(2, "$a $b")
	  KEY("token_type") "w9 w8 q2 $1 $1", -EINVAL, "no list of whole numbers" },
	{ GT_HEAD(0, 3) MODEL("llama") TOKENS(2, "$a $b") TYPES(2, "w1 w7"),
	  -EINVAL, "token_type[1] is 7, which is no type" },
	{ GT_HEAD(0, 3) MODEL("llama") TOKENS(1, "$a") TYPES(1, "w4294967295"),
	  -EINVAL, "token_type[0] is -1, which is no type" },
	{ GT_HEAD(0, 3) MODEL("llama") TOKENS(2, "$a $a") TYPES(2, "w1 w1"),
	  -EINVAL, "tokens[0] and [1] are both \"a\"" },
	{ GT_HEAD(0, 3) MODEL("llama") TOKENS(2, "$a $\xff") TYPES(2, "w1 w1"),
	  -EINVAL, "tokens[1] is no UTF-8" },
	{ GT_HEAD(0, 3) MODEL("llama") TOKENS(2, "$a q1 b0") TYPES(2, "w1 w1"),
	  -EINVAL, "tokens[1] holds a NUL" },
	{ GT_HEAD(0, 3) MODEL("llama") TOKENS(2, "$a q3000 z3000")
	  TYPES(2, "w1 w1"), -EOPNOTSUPP, "tokens[1] is longer than 2048 bytes" },
	{ GT_HEAD(0, 3) MODEL("llama") TOKENS(2, "$a $byte") TYPES(2, "w1 w6"),
	  -EINVAL, "tokens[1] is a byte, but is not written as <0x41>" },
	{ GT_HEAD(0, 3) MODEL("llama") ABC, -EINVAL,
	  "scores does not have the 3 entries" },
	{ GT_HEAD(0, 4) MODEL("llama") ABC SCORES(2, "w0 w0"), -EINVAL,
	  "scores does not have the 3 entries" },
	{ GT_HEAD(0, 4) MODEL("llama") ABC SCORES(3, "w0 w0 w0x7fc00000"),
	  -EINVAL, "scores[2] is no number" },
	{ GT_HEAD(0, 4) MODEL("llama") ABC KEY("scores") "w9 w8 q3 $a $a $a",
	  -EINVAL, "scores[0] is no number" },
	{ GT_HEAD(0, 3) MODEL("gemma4") ABC, -EINVAL, "merges is no list" },
	{ GT_HEAD(0, 4) MODEL("gemma4") ABC KEY("merges") "w9 w5 q1 w1", -EINVAL,
	  "merges[0] is no text" },
	{ GT_HEAD(0, 4) MODEL("gemma4") ABC KEY("merges") "w9 w8 q1 $\xff",
	  -EINVAL, "merges[0] is no text" },
	{ GT_HEAD(0, 4) MODEL("gemma4") ABC KEY("merges") "w9 w8 q1 q3 'a b32 'c",
	  -EINVAL, "merge 0 names \"c\", which the vocab lacks" },
	{ GT_HEAD(0, 4) MODEL("gemma4") ABC KEY("merges") "w9 w8 q1 q3 'b b32 'a",
	  -EINVAL, "merge 0 names \"ba\", which the vocab lacks" },
	{ GT_HEAD(0, 4) MODEL("gemma4") ABC KEY("merges") "w9 w8 q1 $ab",
	  -EINVAL, "merge 0 is no pair of tokens" },
	{ GT_HEAD(0, 4) MODEL("gemma4") ABC
	  KEY("merges") "w9 w0 q3000000 z3000000", -EOPNOTSUPP,
	  "3000000 merges, more than 2097152" },
	{ GT_HEAD(0, 5) LLAMA KEY("bos_token_id") "w4 w3", -EINVAL,
	  "bos_token_id is no id of a token" },
	{ GT_HEAD(0, 5) LLAMA KEY("eos_token_id") "w8 $a", -EINVAL,
	  "eos_token_id is no id of a token" },
	{ GT_HEAD(0, 5) LLAMA KEY("eot_token_id") "w4 w3", -EINVAL,
	  "eot_token_id is no id of a token" },
	{ GT_HEAD(0, 5) LLAMA KEY("eom_token_id") "w4 w3", -EINVAL,
	  "eom_token_id is no id of a token" },
	{ GT_HEAD(0, 5) LLAMA KEY("unknown_token_id") "w10 q1099511627776",
	  -EINVAL, "unknown_token_id is no id of a token" },
	{ GT_HEAD(0, 5) LLAMA KEY("add_bos_token") "w7 b1", -EINVAL,
	  "add_bos_token is set, but there is no such token" },
	{ GT_HEAD(0, 5) LLAMA KEY("add_eos_token") "w7 b1", -EINVAL,
	  "add_eos_token is set, but there is no such token" },
	{ GT_HEAD(0, 5) LLAMA KEY("add_space_prefix") "w4 w1", -EINVAL,
	  "add_space_prefix is neither true nor false" },
	{ GT_HEAD(0, 5) LLAMA KEY("remove_extra_whitespaces") "w7 b1",
	  -EOPNOTSUPP, "remove_extra_whitespaces is not supported" },
	{ GT_HEAD(0, 5) LLAMA KEY("precompiled_charsmap") "w9 w0 q4 w0",
	  -EOPNOTSUPP, "precompiled_charsmap is not supported" },
	{ GT_HEAD(0, 4) MODEL("gpt2") KEY("pre") "w8 $gpt-2 " ABC, -EINVAL,
	  "merges is no list" },
	{ "G w2 q0 q0", -EOPNOTSUPP, "version 2" },
};

static void expect_refused(int code, const char *words)
{
	int got;

	memset(err, 0, sizeof(err));
	got = tokenizer_load(model_path(), &other, err, sizeof(err));
	ck_assert_msg(got == code && strstr(err, words) &&
		      !strncmp(err, dir, strlen(dir)) && !strchr(err, '\n') &&
		      utf8_is_valid(err, strlen(err)),
		      "%d, not %d: \"%s\" does not say \"%s\"", got, code, err,
		      words);
}

START_TEST(test_unsound)
{
	gt_write(model_path(), unsound[_i].file);
	expect_refused(unsound[_i].err, unsound[_i].words);
}
END_TEST

START_TEST(test_sound)
{
	gt_write(model_path(), GT_HEAD(0, 4) LLAMA);
	load_other();
	ck_assert_uint_eq(tokenizer_vocab_size(other), 3);
	ck_assert(!tokenizer_adds_bos(other));
	ck_assert_uint_eq(tokenizer_bos_id(other), TOKENIZER_NO_ID);
}
END_TEST

static u64 most_mib(void)
{
	struct rusage ru;

	ck_assert_int_eq(getrusage(RUSAGE_SELF, &ru), 0);
	return (u64)ru.ru_maxrss >> 10;
}

/*
 * Tokens of 40 MB that can be split in 40 million ways are refused before that is
 * done, with a few times as much memory.
 */
START_TEST(test_long_tokens)
{
	FILE *f = fopen(model_path(), "w");
	const u64 before = most_mib();
	u32 i, k, nr = 20000;

	fputs("GGUF", f);
	gt_number(f, 3, 4);
	gt_number(f, 0, 8);
	gt_number(f, 4, 8);
	put_key(f, "tokenizer.ggml.model", 8);
	put_text(f, "llama");
	put_list(f, "tokenizer.ggml.tokens", 8, nr);
	for (i = 0; i < nr; i++) {
		gt_number(f, 2005, 8);
		fprintf(f, "%05u", i);
		for (k = 0; k < 2000; k++)
			fputc('a', f);
	}
	put_list(f, "tokenizer.ggml.token_type", 5, nr);
	for (i = 0; i < nr; i++)
		gt_number(f, 1, 4);
	put_list(f, "tokenizer.ggml.scores", 6, nr);
	gt_zeros(f, 4ul * nr);
	ck_assert_int_eq(fclose(f), 0);
	expect_refused(-EOPNOTSUPP, "too long to be split in all ways");
	ck_assert_uint_lt(most_mib() - before, 300);
}
END_TEST

/* ---- what converters change, and is changed back ---- */

/* Ids without a token; @type is one of those that mark them. */
START_TEST(test_fillers)
{
	static const u32 types[] = { 2, 4, 5 };
	char file[512];

	snprintf(file, sizeof(file), GT_HEAD(0, 4) MODEL("llama")
		 TOKENS(4, "$a $b $ab $[PAD3]") KEY("token_type")
		 "w9 w5 q4 w1 w1 w1 w%u " SCORES(4, "w0 w0 w0 w0"), types[_i]);
	gt_write(model_path(), file);
	load_other();
	ck_assert_uint_eq(tokenizer_vocab_size(other), 3);
	ck_assert_uint_eq(tokenizer_find(other, "[PAD3]", 6), TOKENIZER_NO_ID);
}
END_TEST

static void expect_ids_of(const char *text, const u32 *want, size_t nr)
{
	ssize_t n = tokenizer_encode(other, text, strlen(text), 0, ids, IDS_MAX,
				     NULL);

	ck_assert_msg(n == (ssize_t)nr && !memcmp(ids, want, 4 * nr),
		      "\"%s\": %zd ids, %u first", text, n, ids[0]);
}

/*
 * Gemma: two marks are a user-defined token, written as two spaces, and the byte of
 * the tab is the tab.
 */
START_TEST(test_gemma)
{
	static const u32 spaces[] = { 0, 2, 0 }, tabs[] = { 5 };
	char text[] = "a  a";

	gt_write(model_path(), GT_HEAD(0, 6) MODEL("llama")
		 KEY("add_space_prefix") "w7 b0 $general.architecture w8 $gemma2 "
		 TOKENS(6, "$a $\xe2\x96\x81 q2 h0x2020 $\xe2\x96\x81\x61 $<0x09> $\t\t")
		 TYPES(6, "w1 w1 w4 w1 w6 w1")
		 SCORES(6, "w0 w0 w0xc47a0000 w0xbf800000 w0 w0"));
	load_other();
	expect_ids_of(text, spaces, 3);
	expect_ids_of("\t\t", tabs, 1);
	expect_ids_of("\xe2\x96\x81\xe2\x96\x81", &spaces[1], 1);
}
END_TEST

/* Phi-3: tokens take the white space behind them, but for three of them. */
START_TEST(test_phi3)
{
	static const u32 taken[] = { 1, 0 }, kept[] = { 2, 3, 0 };

	gt_write(model_path(), GT_HEAD(0, 6) MODEL("llama")
		 KEY("add_space_prefix") "w7 b0 $general.architecture w8 $phi3 "
		 TOKENS(4, "$a $<|user|> $<s> $\xe2\x96\x81")
		 TYPES(4, "w1 w3 w3 w1") SCORES(4, "w0 w0 w0 w0"));
	load_other();
	expect_ids_of("<|user|> \n a", taken, 2);
	expect_ids_of("<s> a", kept, 3);
}
END_TEST

/*
 * A mark comes before each part of the text, or only before the first where token 3 is
 * [INST].
 */
START_TEST(test_prefix)
{
	static const char * const names[] = { "[INS]", "[INST]" };
	static const u32 want[2][5] = { { 5, 3, 6, 5, 3 }, { 5, 3, 5, 3, 4 } };
	static const char * const texts[] = { "a[INS] a[INS]", "a[INST] a[INST]a" };
	char file[512];

	snprintf(file, sizeof(file), GT_HEAD(0, 4) MODEL("llama")
		 TOKENS(7, "$<unk> $<s> $</s> $%s $a $\xe2\x96\x81\x61 $\xe2\x96\x81")
		 TYPES(7, "w2 w3 w3 w3 w1 w1 w1")
		 SCORES(7, "w0 w0 w0 w0 w0 w0 w0"), names[_i]);
	gt_write(model_path(), file);
	load_other();
	expect_ids_of(texts[_i], want[_i], 5);
}
END_TEST

/*
 * Of equal scores, the longer left side comes first, then the lower id.  Characters
 * without a token are one unknown token.
 */
START_TEST(test_ties)
{
	static const u32 left[] = { 1, 4 }, id[] = { 1, 5 }, unknown[] = { 0 };

	gt_write(model_path(), GT_HEAD(0, 5) MODEL("llama")
		 KEY("add_space_prefix") "w7 b0 "
		 TOKENS(8, "$<unk> $a $bb $abb $bba $ba $ab $b")
		 TYPES(8, "w2 w1 w1 w1 w1 w1 w1 w1")
		 SCORES(8, "w0 w0 w0x3f800000 w0 w0 w0xbf800000 w0xbf800000 w0"));
	load_other();
	expect_ids_of("abba", left, 2);
	expect_ids_of("aba", id, 2);
	expect_ids_of("zz", unknown, 1);
}
END_TEST

/* No merges make a control token of a user's text. */
START_TEST(test_control_is_not_merged)
{
	static const u32 apart[] = { 0, 1 }, whole[] = { 2 };
	ssize_t n;

	gt_write(model_path(), GT_HEAD(0, 5) MODEL("llama")
		 KEY("add_space_prefix") "w7 b0 "
		 TOKENS(5, "$< $s> $<s> $s $>") TYPES(5, "w1 w1 w3 w1 w1")
		 SCORES(5, "w0 w0 w0 w0 w0"));
	load_other();
	n = tokenizer_encode(other, "<s>", 3, TOKENIZER_PLAIN, ids, IDS_MAX,
			     NULL);
	ck_assert_int_eq(n, 2);
	ck_assert_mem_eq(ids, apart, sizeof(apart));
	expect_ids_of("<s>", whole, 1);
}
END_TEST

/* ---- chat templates ---- */

static void expect_chat(const struct chat *chat, const char *name,
			const char *want)
{
	struct chat_input in = { .messages = json_array(), .name = name };
	struct tmpl_error e;
	size_t len;
	char *text = chat_render(chat, &in, NULL, &len, &e);

	ck_assert_msg(text && !strcmp(text, want), "%s: \"%s\"", name ? name :
		      "default", text ? text : e.text);
	free(text);
	json_decref((json_t *)(uintptr_t)in.messages);
}

START_TEST(test_chat)
{
	struct chat *chat;

	gt_write(model_path(), GT_HEAD(0, 6) LLAMA
		 "$tokenizer.chat_template w8 ${{bos_token}}-{{eos_token}} "
		 KEY("bos_token_id") "w4 w2");
	ck_assert_msg(!chat_load(model_path(), NULL, &chat, err, sizeof(err)),
		      "%s", err);
	expect_chat(chat, NULL, "ab-");
	chat_free(chat);

	gt_write(model_path(), GT_HEAD(0, 7) LLAMA
		 "$tokenizer.chat_template w8 $a "
		 "$tokenizer.chat_template.rag w8 ${{sep_token}} "
		 KEY("seperator_token_id") "w4 w1");
	ck_assert_msg(!chat_load(model_path(), NULL, &chat, err, sizeof(err)),
		      "%s", err);
	expect_chat(chat, NULL, "a");
	expect_chat(chat, "rag", "b");
	chat_free(chat);
	ck_assert_msg(!chat_load(model_path(), "own", &chat, err, sizeof(err)),
		      "%s", err);
	expect_chat(chat, NULL, "own");
	expect_chat(chat, "rag", "b");
	chat_free(chat);
}
END_TEST

static const struct {
	const char	*file;
	int		err;
	const char	*words;
} bad_chats[] = {
	{ GT_HEAD(0, 4) LLAMA, -ENOENT, "there is no chat template" },
	{ GT_HEAD(0, 5) LLAMA "$tokenizer.chat_template w4 w1", -EINVAL,
	  "tokenizer.chat_template is no text" },
	{ GT_HEAD(0, 5) LLAMA "$tokenizer.chat_template w8 $\xff", -EINVAL,
	  "tokenizer.chat_template is no UTF-8" },
	{ GT_HEAD(0, 5) LLAMA "$tokenizer.chat_template w8 ${%x%}", -EINVAL,
	  "chat template 'default', line 1" },
	{ GT_HEAD(0, 6) LLAMA "$tokenizer.chat_template w8 $a "
	  KEY("bos_token_id") "w4 w3", -EINVAL, "bos_token_id is no id" },
	{ GT_HEAD(0, 1) "$tokenizer.chat_template w8 q9 'a", -EINVAL,
	  "model.gguf" },
};

START_TEST(test_bad_chat)
{
	struct chat *chat;
	int got;

	gt_write(model_path(), bad_chats[_i].file);
	got = chat_load(model_path(), NULL, &chat, err, sizeof(err));
	ck_assert_msg(got == bad_chats[_i].err &&
		      strstr(err, bad_chats[_i].words), "%d: %s", got, err);
	ck_assert_ptr_null(chat);
}
END_TEST

static Suite *gguf_suite(void)
{
	Suite *s = suite_create("tokenizer-gguf-files");
	TCase *tc;

	tc = gguf_case(s, "files");
	tcase_add_loop_test(tc, test_unsound, 0, ARRAY_SIZE(unsound));
	tcase_add_test(tc, test_sound);
	tcase_add_test(tc, test_long_tokens);
	tcase_add_loop_test(tc, test_fillers, 0, 3);
	tcase_add_test(tc, test_gemma);
	tcase_add_test(tc, test_phi3);
	tcase_add_loop_test(tc, test_prefix, 0, 2);
	tcase_add_test(tc, test_ties);
	tcase_add_test(tc, test_control_is_not_merged);
	tc = gguf_case(s, "chat");
	tcase_add_test(tc, test_chat);
	tcase_add_loop_test(tc, test_bad_chat, 0, ARRAY_SIZE(bad_chats));
	return s;
}

int main(void)
{
	return suite_run(gguf_suite());
}
