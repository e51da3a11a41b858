// SPDX-License-Identifier: Apache-2.0
/*
 * check_tokenizer_files.c - model folders that are refused, and the messages
 *
 * Each row of a table changes one thing in the demo model's files, and has the
 * errno and the words of the message.  The same for patterns.  Another table
 * has valid configs and their effects.
 */
#include <sys/stat.h>

#include "runtime/tokenizer/internal.h"
#include "runtime/tokenizer/utf8.h"
#include "tests/unit/tokenizer_fixture.h"

/* ---------------------------------------------------------------- patterns */

struct pattern_case {
	const char *pattern;
	int err;
	const char *words;
};

static const struct pattern_case pattern_cases[] = {
	{ "\\p{L}+|\\P{L}", 0, "" },
	{ "(?<=a)b(?>c+)(?!d)(?=e)(?<!f)", 0, "" },
	{ "a{2,3}?b*?c++d?+", 0, "" },
	{ "(a(b(c{1,2}+)+)){2}", 0, "" },
	{ "\\x{1F600}\\x41\\u0041\\.\\/\\-\\t", 0, "" },
	{ "{|}|x{|[{}]", 0, "" },
	{ "\\w+", 0, "" },
	{ "[\\w.]\\W", 0, "" },
	{ "[a\\W]", -EOPNOTSUPP, "\\W in a class" },
	{ "a\\b", -EOPNOTSUPP, "escape \\b" },
	{ "\\D", -EOPNOTSUPP, "escape \\D" },
	{ "a\\", -EOPNOTSUPP, "escape" },
	{ "\\1", -EOPNOTSUPP, "escape \\1" },
	{ "\\xe4", -EOPNOTSUPP, "half a character" },
	{ "\\x4", -EOPNOTSUPP, "escape" },
	{ "\\x{110000", -EOPNOTSUPP, "escape" },
	{ "\\u12g4", -EOPNOTSUPP, "escape" },
	{ "\\p{Han}", -EOPNOTSUPP, "property \\p{Han}" },
	{ "\\pL", -EOPNOTSUPP, "property" },
	{ "\\p{Lu", -EOPNOTSUPP, "property" },
	{ "\\p", -EOPNOTSUPP, "property" },
	{ "[^\\P{L}]", -EOPNOTSUPP, "negated property" },
	{ "[a[b]]", -EOPNOTSUPP, "class inside of a class" },
	{ "[[:alpha:]]", -EOPNOTSUPP, "class inside of a class" },
	{ "[a&&b]", -EOPNOTSUPP, "&&" },
	{ "[]a]", -EOPNOTSUPP, "begins with ]" },
	{ "[abc", -EINVAL, "does not end" },
	{ "(?i)a", -EOPNOTSUPP, "group (?i)" },
	{ "(?<n>a)", -EOPNOTSUPP, "group (?<n" },
	{ "(*FAIL)", -EOPNOTSUPP, "group (*FA" },
	{ "(a", -EINVAL, "unmatched (" },
	{ "a)", -EINVAL, "unmatched )" },
	{ "a{,3}", -EOPNOTSUPP, "{,n}" },
	{ "a{3}?", -EOPNOTSUPP, "{n}?" },
	{ "*a", -EOPNOTSUPP, "repeats nothing" },
	{ "a|+", -EOPNOTSUPP, "repeats nothing" },
	{ "a{2}{3}", -EOPNOTSUPP, "repeats nothing" },
	{ "a{3,2}", -EINVAL, "numbers out of order" },
	{ "a*", -EINVAL, "match nothing" },
	{ "", -EINVAL, "match nothing" },
};

START_TEST(test_pattern)
{
	const struct pattern_case *c = &pattern_cases[_i];
	pcre2_code *code = NULL;
	char why[160] = "";

	ck_assert_msg(pattern_compile(c->pattern, &code, why, sizeof(why)) ==
		      c->err, "%s: %s", c->pattern, why);
	ck_assert_msg(strstr(why, c->words), "%s: %s", c->pattern, why);
	ck_assert_int_eq(!code, !!c->err);
	pcre2_code_free(code);
}
END_TEST

/* Deep nesting is refused. */
START_TEST(test_pattern_depth)
{
	pcre2_code *code = NULL;
	char deep[256], why[160];

	memset(deep, '(', 100);
	deep[100] = 'a';
	memset(deep + 101, ')', 100);
	deep[201] = '\0';
	ck_assert_int_eq(pattern_compile(deep, &code, why, sizeof(why)),
			 -EOPNOTSUPP);
}
END_TEST

/* ---------------------------------------------------------- refusals */

struct bad_file {
	const char *path;	/* key to change */
	const char *value;	/* JSON; NULL removes it */
	int err;
	const char *words;
};

#define ADDED(id, content, more)					\
	"{\"id\":" id ",\"content\":" content more "}"
#define TEMPLATE(single)						\
	"{\"type\":\"TemplateProcessing\",\"single\":[" single "]}"
#define NORMS(list)							\
	"{\"type\":\"Sequence\",\"normalizers\":[" list "]}"
#define PRES(list)							\
	"{\"type\":\"Sequence\",\"pretokenizers\":[" list "]}"
#define DECODERS(list)							\
	"{\"type\":\"Sequence\",\"decoders\":[" list "]}"
#define META(replacement, scheme)					\
	"{\"type\":\"Metaspace\",\"replacement\":" replacement ","	\
	"\"prepend_scheme\":\"" scheme "\"}"
#define SPLIT(pattern, behavior, invert)				\
	"{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\","	\
	"\"pattern\":" pattern ",\"behavior\":\"" behavior "\","	\
	"\"invert\":" invert "},{\"type\":\"ByteLevel\","		\
	"\"use_regex\":false}]}"

static const struct bad_file bad_files[] = {
	{ "model.type", "\"Unigram\"", -EOPNOTSUPP, "model of type Unigram" },
	{ "model.type", "7", -EOPNOTSUPP, "model of type ?" },
	{ "model", "null", -EOPNOTSUPP, "model of type null" },
	{ "model.type", "\"BPE \"", -EOPNOTSUPP, "model of type BPE " },
	{ "model.dropout", "0.1", -EOPNOTSUPP, "model (BPE): dropout" },
	{ "model.end_of_word_suffix", "\"</w>\"", -EOPNOTSUPP,
	  "end_of_word_suffix" },
	{ "model.fuse_unk", "1", -EINVAL, "fuse_unk is neither" },
	{ "model.unk_token", "\"<unk>\"", -EINVAL, "unk_token \"<unk>\"" },
	{ "model.unk_token", "7", -EINVAL, "unk_token \"?\"" },
	{ "model.flavour", "1", -EOPNOTSUPP, "model (BPE): key \"flavour\"" },
	{ "version2", "1", -EOPNOTSUPP, "key \"version2\" is not known" },
	{ "normalizer", "{\"type\":\"Nmt\"}", -EOPNOTSUPP,
	  "normalizer of type Nmt" },
	{ "normalizer", "{\"type\":\"NFC\",\"a\":1}", -EOPNOTSUPP,
	  "normalizer (NFC): key \"a\"" },
	{ "normalizer", NORMS("{\"type\":\"NFC\"},{\"type\":\"Bert\"}"),
	  -EOPNOTSUPP, "normalizer.normalizers[1] of type Bert" },
	{ "normalizer", NORMS("7"), -EOPNOTSUPP, "normalizers[0] of type ?" },
	{ "normalizer", "{\"type\":\"Sequence\"}", -EINVAL, "is no list" },
	{ "normalizer", "{\"type\":\"Prepend\"}", -EINVAL,
	  "prepend is no string" },
	{ "normalizer", "{\"type\":\"Replace\",\"content\":\"\"}", -EINVAL,
	  "pattern is neither" },
	{ "normalizer", "{\"type\":\"Replace\",\"pattern\":{\"String\":\"\"},"
	  "\"content\":\"\"}", -EINVAL, "pattern is empty" },
	{ "normalizer", "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},"
	  "\"content\":\"0123456789012345678901234567890123456789012345678"
	  "9012345678901234\"}", -EOPNOTSUPP, "content is longer than 64" },
	{ "normalizer", "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"(\"},"
	  "\"content\":\"\"}", -EINVAL, "pattern: unmatched (" },
	{ "normalizer", "{\"type\":\"Strip\",\"strip_left\":7}", -EINVAL,
	  "strip_left is neither" },
	{ "decoder", "{\"type\":\"Fuse\"}", -EOPNOTSUPP,
	  "decoder of type Fuse is not supported with a pre_tokenizer" },
	{ "decoder", "null", -EOPNOTSUPP, "decoder of type null" },
	{ "decoder", "{\"type\":\"WordPiece\"}", -EOPNOTSUPP,
	  "decoder of type WordPiece" },
	{ "decoder", "{\"type\":\"Metaspace\"}", -EINVAL,
	  "replacement is no string" },
	{ "decoder", DECODERS("{\"type\":\"Fuse\"},"
	  "{\"type\":\"ByteFallback\"}"), -EOPNOTSUPP,
	  "decoder.decoders[1] (ByteFallback): is not supported at this" },
	{ "decoder", DECODERS("{\"type\":\"Strip\",\"content\":\" \","
	  "\"start\":1,\"stop\":0}"), -EOPNOTSUPP, "at this place" },
	{ "decoder", DECODERS("{\"type\":\"Fuse\"},{\"type\":\"Strip\","
	  "\"content\":\" \",\"start\":1,\"stop\":1}"), -EOPNOTSUPP,
	  "stop is not 0" },
	{ "decoder", DECODERS("{\"type\":\"Fuse\"},{\"type\":\"Strip\","
	  "\"content\":\"ab\",\"start\":1,\"stop\":0}"), -EINVAL,
	  "content is not one character" },
	{ "decoder", DECODERS("{\"type\":\"ByteFallback\"},"
	  "{\"type\":\"Metaspace\",\"replacement\":\"_\"}"), -EOPNOTSUPP,
	  "at this place" },
	{ "pre_tokenizer", "null", -EOPNOTSUPP, "without a pre_tokenizer" },
	{ "pre_tokenizer.type", "\"Bert\"", -EOPNOTSUPP,
	  "pre_tokenizer of type Bert" },
	{ "pre_tokenizer.add_prefix_space", "\"yes\"", -EINVAL,
	  "add_prefix_space is neither" },
	{ "pre_tokenizer", SPLIT("{\"Regex\":\"\\\\b\"}", "Isolated", "false"),
	  -EOPNOTSUPP, "pretokenizers[0] (Split): pattern: escape \\b" },
	{ "pre_tokenizer", SPLIT("{\"Regex\":\"(a\"}", "Isolated", "false"),
	  -EINVAL, "pattern: unmatched (" },
	{ "pre_tokenizer", SPLIT("{\"Regex\":\"a\"}", "Remove", "false"),
	  -EOPNOTSUPP, "behavior Remove is not known" },
	{ "pre_tokenizer", SPLIT("{\"Regex\":\"a\"}", "Isolated", "1"),
	  -EINVAL, "invert is neither" },
	{ "pre_tokenizer", SPLIT("{\"Regexp\":\"a\"}", "Isolated", "false"),
	  -EINVAL, "pattern is neither" },
	{ "pre_tokenizer", SPLIT("\"a\"", "Isolated", "false"), -EINVAL,
	  "pattern is neither" },
	{ "pre_tokenizer", PRES("{\"type\":\"ByteLevel\"},"
	  "{\"type\":\"Digits\"}"), -EOPNOTSUPP,
	  "pretokenizers[1] (Digits): comes behind ByteLevel" },
	{ "pre_tokenizer", PRES(META("\"\"", "always")), -EINVAL,
	  "replacement is not one" },
	{ "pre_tokenizer", PRES(META("\"_\"", "often")), -EOPNOTSUPP,
	  "prepend_scheme often is not known" },
	{ "pre_tokenizer", PRES("{\"type\":\"Metaspace\",\"replacement\":"
	  "\"_\",\"prepend_scheme\":\"first\",\"add_prefix_space\":false}"),
	  -EINVAL, "add_prefix_space is not what" },
	{ "post_processor", "{\"type\":\"BertProcessing\"}", -EINVAL,
	  "cls is no pair" },
	{ "post_processor", "{\"type\":\"RobertaProcessing\",\"cls\":"
	  "[\"x\",99999]}", -EINVAL, "special token x is no token" },
	{ "post_processor", "{\"type\":\"Nothing\"}", -EOPNOTSUPP,
	  "post_processor of type Nothing" },
	{ "post_processor", TEMPLATE("{\"Sequence\":{\"id\":\"A\"}},"
	  "{\"Sequence\":{\"id\":\"A\"}}"), -EOPNOTSUPP, "one Sequence" },
	{ "post_processor", TEMPLATE(""), -EOPNOTSUPP, "one Sequence" },
	{ "post_processor", TEMPLATE("{\"SpecialToken\":{\"id\":\"x\"}},"
	  "{\"Sequence\":{\"id\":\"A\"}}"), -EINVAL, "special token x" },
	{ "model.vocab", NULL, -EINVAL, "no vocab" },
	{ "model.vocab", "{}", -EINVAL, "vocab is empty" },
	{ "model.vocab.!", "\"x\"", -EINVAL, "id of \"!\"" },
	{ "model.vocab.!", "1.5", -EINVAL, "id of \"!\"" },
	{ "model.vocab.!", "-1", -EINVAL, "id of \"!\"" },
	{ "model.vocab.!", "16777216", -EINVAL, "id of \"!\"" },
	{ "model.vocab.!", "1e30", -EINVAL, "id of \"!\"" },
	{ "model.vocab.!", "4", -EINVAL, "id 4 is both" },
	{ "model.vocab.!", NULL, -EINVAL, "lacks a token for the byte 0x21" },
	{ "model.merges", NULL, -EINVAL, "no merges" },
	{ "model.merges.3", "\"zq\xc3\xa9 a\"", -EINVAL,
	  "merge 3 names \"zq\xc3\xa9\"" },
	{ "model.merges.3", "[\"a\",\"zq\"]", -EINVAL, "merge 3 names \"zq\"" },
	{ "model.merges.3", "\"z q\"", -EINVAL, "merge 3 names \"zq\"" },
	{ "model.merges.3", "\"a\"", -EINVAL, "merge 3 is no pair" },
	{ "model.merges.3", "\"a b c\"", -EINVAL, "merge 3 is no pair" },
	{ "model.merges.3", "[\"a\"]", -EINVAL, "merge 3 is no pair" },
	{ "model.merges.3", "[\"\",\"a\"]", -EINVAL, "merge 3 is no pair" },
	{ "added_tokens", "7", -EINVAL, "added_tokens is no list" },
	{ "added_tokens.+", "{}", -EINVAL, "lacks content or id" },
	{ "added_tokens.+", ADDED("0", "\"<new>\"", ""), -EINVAL,
	  "\"<new>\": id 0 is taken" },
	{ "added_tokens.+", ADDED("300", "\"<new>\"", ""), -EINVAL,
	  "\"<new>\": id 300 is taken" },
	{ "added_tokens.+", ADDED("1", "\"<|im_end|>\"", ""), -EINVAL,
	  "\"<|im_end|>\" is listed twice" },
	{ "added_tokens.+", ADDED("4096", "\"the\"", ""), -EINVAL,
	  "\"the\" has id 4096, but" },
	{ "added_tokens.+", ADDED("4096", "\"\"", ""), -EINVAL,
	  "lacks content or id" },
	{ "added_tokens.+", ADDED("4096", "\"<n>\"", ",\"lstrip\":1"),
	  -EINVAL, "lstrip is neither" },
	{ "added_tokens.+", ADDED("4096", "\"<n>\"", ",\"weight\":1"),
	  -EOPNOTSUPP, "key \"weight\"" },
};

/* One line that names the file, or with no @name the folder, and @words. */
static void expect_refusal(int want, const char *name, const char *words)
{
	char path[256];
	int got;

	snprintf(path, sizeof(path), "%s%s%s: ", dir, name ? "/" : "",
		 name ? name : "");
	memset(err, 'x', sizeof(err));
	got = tokenizer_load(dir, &tok, err, sizeof(err));
	ck_assert_msg(got == want, "%d: %s", got, got ? err : "");
	ck_assert_msg(!strncmp(err, path, strlen(path)), "%s", err);
	ck_assert_msg(strstr(err, words), "%s", err);
	ck_assert_msg(!strpbrk(err, "\n\r\t"), "%s", err);
	ck_assert(utf8_is_valid(err, strlen(err)));
	ck_assert_ptr_null(tok);
}

START_TEST(test_refuses_tokenizer)
{
	const struct bad_file *b = &bad_files[_i];
	json_t *root = data_read("demo-model/tokenizer.json");
	json_t *value;
	json_error_t e;
	char parent[64], *dot;

	if (b->value) {
		value = json_loads(b->value, JSON_DECODE_ANY, &e);
		ck_assert_msg(value, "%s: %s", b->value, e.text);
		json_change(root, b->path, value);
	} else {
		strcpy(parent, b->path);
		dot = strrchr(parent, '.');
		*dot = '\0';
		value = json_object_get(root, "model");
		if (strchr(parent, '.'))
			value = json_object_get(value,
						strchr(parent, '.') + 1);
		ck_assert_int_eq(json_object_del(value, dot + 1), 0);
	}
	json_write("tokenizer.json", root);
	expect_refusal(b->err, "tokenizer.json", b->words);
	json_decref(root);
}
END_TEST

static const struct bad_file bad_configs[] = {
	{ "bos_token", "\"<none>\"", -EINVAL, "bos_token \"<none>\"" },
	{ "bos_token", "{\"content\":7}", -EINVAL, "bos_token \"?\"" },
	{ "eos_token", "[]", -EINVAL, "eos_token \"?\"" },
	{ "eos_token", "\"bad\\nname\\u0001\xc3\xa9\"", -EINVAL,
	  "eos_token \"bad?name?\xc3\xa9\"" },
	{ "add_eos_token", "true", -EINVAL, "add_eos_token is set, but there "
	  "is no eos_token" },
	{ "added_tokens_decoder", "{\"x\":{\"content\":\"<n>\"}}", -EINVAL,
	  "added_tokens_decoder.x is no id" },
	{ "added_tokens_decoder", "{\"7\":{\"content\":\"<n>\"}}", -EINVAL,
	  "\"<n>\": id 7 is taken" },
};

START_TEST(test_refuses_config)
{
	const struct bad_file *b = &bad_configs[_i];
	json_t *root = data_read("demo-model/tokenizer.json");
	json_t *config = json_object();

	json_write("tokenizer.json", root);
	json_object_set_new(config, b->path,
			    json_loads(b->value, JSON_DECODE_ANY, NULL));
	json_write("tokenizer_config.json", config);
	expect_refusal(b->err, "tokenizer_config.json", b->words);
	json_decref(config);
	json_decref(root);
}
END_TEST

static void copy_demo(void)
{
	json_t *root = data_read("demo-model/tokenizer.json");

	json_write("tokenizer.json", root);
	json_decref(root);
}

static void write_str(const char *name, const char *text)
{
	file_write(name, text, strlen(text));
}

START_TEST(test_refuses_files)
{
	json_t *root = data_read("demo-model/tokenizer.json");
	char *text = json_dumps(root, 0);
	size_t len = strlen(text), cut;

	expect_refusal(-ENOENT, NULL, "tokenizer.json: no such file, nor ");
	write_str("tokenizer.model", "");
	expect_refusal(-EOPNOTSUPP, NULL, "tokenizer.model alone is not");
	write_str("tokenizer.json", "");
	expect_refusal(-EINVAL, "tokenizer.json", "line 1");
	write_str("tokenizer.json", "version https://git-lfs.github.com/spec/v1\noid\n");
	expect_refusal(-EINVAL, "tokenizer.json", "a Git LFS pointer");
	write_str("tokenizer.json", "[]");
	expect_refusal(-EINVAL, "tokenizer.json", "no JSON object");
	write_str("tokenizer.json", "{\"a\":1,\n\"a\":2}");
	expect_refusal(-EINVAL, "tokenizer.json", "line 2");
	for (cut = 1; cut < len; cut += len / 16) {
		file_write("tokenizer.json", text, cut);
		expect_refusal(-EINVAL, "tokenizer.json",
			       "copy the file again");
	}
	file_write("tokenizer.json", text, len);
	write_str("tokenizer_config.json", "{");
	expect_refusal(-EINVAL, "tokenizer_config.json",
		       "copy the file again");
	free(text);
	json_decref(root);
}
END_TEST

/* The name in a refusal that concerns both files. */
#define PAIR	"vocab.json and merges.txt"

/* Many programs read these two files, each in its own way. */
START_TEST(test_refuses_pair)
{
	static const char model[] = "{\"model_type\":\"gpt2\"}";
	json_t *vocab = data_read("tokenizers/pair/vocab.json");

	json_write("vocab.json", vocab);
	expect_refusal(-EOPNOTSUPP, NULL, "a model that is not named");
	write_str("config.json", "{\"model_type\":\"qwen2\"}");
	expect_refusal(-EOPNOTSUPP, NULL, "of qwen2 are not supported");
	write_str("tokenizer_config.json",
		  "{\"tokenizer_class\":\"Qwen2Tokenizer\"}");
	write_str("config.json", model);
	expect_refusal(-EOPNOTSUPP, NULL, "of Qwen2Tokenizer are not");
	write_str("tokenizer_config.json", "{}");
	expect_refusal(-ENOENT, "merges.txt", "no such file");
	write_str("merges.txt", "#version: 0.2\na b c\n");
	expect_refusal(-EINVAL, PAIR, "merge 0 is no pair");
	write_str("merges.txt", "= =\n~ ~\n");
	expect_refusal(-EINVAL, PAIR, "merge 1 names \"~~\"");
	write_str("merges.txt", "= \xff\n");
	expect_refusal(-EINVAL, "merges.txt", "no UTF-8");
	write_str("merges.txt", "= =");
	ck_assert_msg(!tokenizer_load(dir, &tok, err, sizeof(err)), "%s", err);
	ck_assert_int_eq(tokenizer_encode(tok, "==", 2, 0, ids, IDS_MAX, NULL),
			 1);
	json_decref(vocab);
}
END_TEST

/* Encode @text with the pair of files, and compare the ids. */
static void expect_ids(const char *text, u32 flags, const u32 *want, int nr)
{
	int i;

	ck_assert_msg(!tokenizer_load(dir, &tok, err, sizeof(err)), "%s", err);
	ck_assert_int_eq(tokenizer_encode(tok, text, strlen(text), flags, ids,
					  IDS_MAX, NULL), nr);
	for (i = 0; i < nr; i++)
		ck_assert_uint_eq(ids[i], want[i]);
	tokenizer_free(tok);
	tok = NULL;
}

/* Tokens that old and new files add to such a folder. */
START_TEST(test_pair_added)
{
	static const u32 added[] = { 9000, 9001 }, lstrip[] = { 9001 };
	json_t *vocab = data_read("tokenizers/pair/vocab.json");

	json_write("vocab.json", vocab);
	json_decref(vocab);
	write_str("merges.txt", "");
	write_str("config.json", "{\"model_type\":\"gpt2\"}");
	write_str("added_tokens.json", "{\"<new>\":9000,\"[MASK]\":9001}");
	write_str("special_tokens_map.json", "{\"mask_token\":{\"__type\":"
		  "\"AddedToken\",\"content\":\"[MASK]\",\"lstrip\":true}}");
	expect_ids("<new>[MASK]", 0, added, 2);
	expect_ids("  [MASK]", 0, lstrip, 1);
	ck_assert_msg(!tokenizer_load(dir, &tok, err, sizeof(err)), "%s", err);
	ck_assert(!tokenizer_is_special(tok, 9000));
	ck_assert(tokenizer_is_special(tok, 9001));
	tokenizer_free(tok);
	tok = NULL;
	/* The newer map replaces the older files. */
	write_str("tokenizer_config.json", "{\"added_tokens_decoder\":{"
		  "\"9001\":{\"content\":\"[MASK]\"}}}");
	expect_ids("[MASK]", 0, lstrip, 1);
	ck_assert_msg(!tokenizer_load(dir, &tok, err, sizeof(err)), "%s", err);
	ck_assert_uint_eq(tokenizer_find(tok, "<new>", 5), TOKENIZER_NO_ID);
	tokenizer_free(tok);
	tok = NULL;
	write_str("tokenizer_config.json", "{\"added_tokens_decoder\":{"
		  "\"nan\":{\"content\":\"x\"}}}");
	expect_refusal(-EINVAL, "tokenizer_config.json", "is no id with a");
	write_str("tokenizer_config.json", "{}");
	write_str("added_tokens.json", "{\"<new>\":\"x\"}");
	expect_refusal(-EINVAL, PAIR, "lacks content or id");
}
END_TEST

/* An error line that does not fit is cut, never overrun. */
START_TEST(test_short_error_room)
{
	char small[8];
	int n;

	memset(small, 'x', sizeof(small));
	for (n = 0; n < 7; n++) {
		ck_assert_int_eq(tokenizer_load(dir, &tok, small, n), -ENOENT);
		ck_assert_int_eq(small[n], 'x');
		ck_assert_uint_eq(n ? strlen(small) : 0, n ? n - 1 : 0);
	}
}
END_TEST

/* ------------------------------------------------- malicious files */

/* Write @head, @nr times @unit, and @tail to tokenizer.json. */
static void write_repeated(const char *head, const char *unit, size_t nr,
			   const char *tail)
{
	const size_t len = strlen(unit);
	size_t at = strlen(head), i;
	char *text = malloc(at + len * nr + strlen(tail) + 1);

	ck_assert_ptr_nonnull(text);
	strcpy(text, head);
	for (i = 0; i < nr; i++, at += len)
		memcpy(text + at, unit, len);
	strcpy(text + at, tail);
	file_write("tokenizer.json", text, at + strlen(tail));
	free(text);
}

static const struct {
	const char *head;
	const char *unit;
	size_t nr;
	const char *tail;
	int err;
	const char *words;
} liars[] = {
	{ "{\"model\":", "[", 100000, "", -EINVAL, "maximum parsing depth" },
	{ "{\"normalizer\":", "{\"type\":\"Sequence\",\"normalizers\":[",
	  100000, "", -EINVAL, "maximum parsing depth" },
	{ "{\"normalizer\":", "{\"type\":\"Sequence\",\"normalizers\":[", 900,
	  "", -EINVAL, "line 1" },
	{ "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[",
	  "{\"type\":\"NFC\"},", 100000, "{\"type\":\"NFC\"}]}}", -EOPNOTSUPP,
	  "more than 16 normalizers" },
	{ "{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[",
	  "{\"type\":\"Digits\"},", 100000, "{\"type\":\"Digits\"}]}}",
	  -EOPNOTSUPP, "more than 16 pretokenizers" },
	{ "{\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Isolated\","
	  "\"pattern\":{\"Regex\":\"", "(", 1000000, "\"}}}", -EOPNOTSUPP,
	  "group (((( is not understood" },
	{ "{\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Isolated\","
	  "\"pattern\":{\"Regex\":\"", "(?:ab){1,60000}", 1000, "\"}}}", -EINVAL,
	  "pattern" },
	{ "{\"normalizer\":{\"type\":\"", "NFC", 100000, "\"}}", -EOPNOTSUPP,
	  "normalizer of type NFCNFC" },
	{ "{\"", "key", 100000, "\":1}", -EOPNOTSUPP, "key \"keykey" },
	{ "{\"a\":\"", "\\u0000", 10, "\"}", -EINVAL, "line 1" },
	{ "{\"a\":", "9", 100000, "}", -EINVAL, "real number overflow" },
	{ "", "\xff", 100000, "", -EINVAL, "line 1" },
	{ "{\"a\":[", "0,", 17u << 20, "0]}", -EINVAL, "more than 16777216 values" },
};

START_TEST(test_liars)
{
	write_repeated(liars[_i].head, liars[_i].unit, liars[_i].nr,
		       liars[_i].tail);
	expect_refusal(liars[_i].err, "tokenizer.json", liars[_i].words);
}
END_TEST

/* A pipe or an endless file in place of tokenizer.json is refused, not read. */
START_TEST(test_no_file)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/tokenizer.json", dir);
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	expect_refusal(-EINVAL, "tokenizer.json", "not a regular file");
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(symlink("/dev/zero", path), 0);
	expect_refusal(-EINVAL, "tokenizer.json", "not a regular file");
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(symlink("tokenizer.json", path), 0);
	expect_refusal(-ELOOP, "tokenizer.json", "Too many levels");
}
END_TEST

/* The hash key is random, so that no file can make its ids share a slot. */
START_TEST(test_hash_is_drawn)
{
	struct tokenizer *other;

	copy_demo();
	ck_assert_msg(!tokenizer_load(dir, &tok, err, sizeof(err)), "%s", err);
	ck_assert_msg(!tokenizer_load(dir, &other, err, sizeof(err)), "%s",
		      err);
	ck_assert_uint_ne(tok->hash_key, other->hash_key);
	ck_assert_uint_eq(tok->hash_key & other->hash_key & 1, 1);
	tokenizer_free(other);
}
END_TEST

/* Each added token is short enough, but there are too many. */
START_TEST(test_many_added)
{
	json_t *root = data_read("demo-model/tokenizer.json");
	json_t *list = json_object_get(root, "added_tokens");
	char text[1001];
	u32 i;

	for (i = 0; i < 4500; i++) {
		snprintf(text, sizeof(text), "%01000u", i);
		json_array_append_new(list, json_pack("{si ss sb}", "id",
				      10000 + i, "content", text, "special", 1));
	}
	json_write("tokenizer.json", root);
	expect_refusal(-EOPNOTSUPP, "tokenizer.json",
		       "more than 4194304 bytes of text");
	json_decref(root);
}
END_TEST

/* A chain of nested Sequences has a limit. */
START_TEST(test_nested_sequences)
{
	json_t *root = data_read("demo-model/tokenizer.json");
	json_t *v = json_pack("{s:s}", "type", "NFC");
	int i;

	for (i = 0; i < 100; i++)
		v = json_pack("{s:s,s:[o]}", "type", "Sequence", "normalizers",
			      v);
	json_change(root, "normalizer", v);
	json_write("tokenizer.json", root);
	expect_refusal(-EOPNOTSUPP, "tokenizer.json",
		       "of type Sequence is not supported");
	json_decref(root);
}
END_TEST

/* Normalizers that turn a word into a gigabyte are stopped. */
START_TEST(test_growing_text)
{
	json_t *root = data_read("demo-model/tokenizer.json");
	json_t *list = json_array();
	int i;

	for (i = 0; i < 16; i++)
		json_array_append_new(list, json_pack(
			"{s:s,s:{s:s},s:s}", "type", "Replace", "pattern",
			"String", "a", "content", "aaaaaaaaaaaaaaaaaaaaaaaa"));
	json_change(root, "normalizer", json_pack(
		    "{s:s,s:o}", "type", "Sequence", "normalizers", list));
	json_write("tokenizer.json", root);
	json_decref(root);
	ck_assert_msg(!tokenizer_load(dir, &tok, err, sizeof(err)), "%s", err);
	ck_assert_int_eq(tokenizer_encode(tok, "banana", 6, 0, ids, IDS_MAX,
					  NULL), -EFBIG);
	ck_assert_int_ge(tokenizer_encode(tok, "no", 2, 0, ids, IDS_MAX,
					  NULL), 1);
}
END_TEST

/* StarCoder's vocabulary lacks the byte 0xf1, which is left out of texts. */
START_TEST(test_byte_left_out)
{
	json_t *root = data_read("demo-model/tokenizer.json");
	json_t *model = json_object_get(root, "model");
	static u32 want[16];
	ssize_t n, m;

	json_write("tokenizer.json", root);
	ck_assert_msg(!tokenizer_load(dir, &tok, err, sizeof(err)), "%s", err);
	n = tokenizer_encode(tok, "a\xf1\x90\x80\x80", 5, 0, want, 16, NULL);
	ck_assert_int_eq(n, 5);
	tokenizer_free(tok);

	json_object_del(json_object_get(model, "vocab"), "\xc3\xb1");
	json_write("tokenizer.json", root);
	ck_assert_msg(!tokenizer_load(dir, &tok, err, sizeof(err)), "%s", err);
	m = tokenizer_encode(tok, "a\xf1\x90\x80\x80", 5, 0, ids, IDS_MAX,
			     NULL);
	ck_assert_int_eq(m, 4);
	ck_assert_uint_eq(ids[0], want[0]);
	ck_assert_mem_eq(ids + 1, want + 2, 3 * sizeof(*ids));
	tokenizer_free(tok);
	tok = NULL;

	json_object_set_new(model, "unk_token", json_string("a"));
	json_write("tokenizer.json", root);
	expect_refusal(-EINVAL, "tokenizer.json", "for the byte 0xf1");
	json_decref(root);
}
END_TEST

/* Tokens that are in the config but not in tokenizer.json. */
START_TEST(test_added_by_config)
{
	static const char config[] =
		"{\"added_tokens_decoder\":{\"0\":{\"content\":"
		"\"<|endoftext|>\",\"special\":true},\"5000\":{\"content\":"
		"\"<|new|>\",\"special\":true,\"normalized\":false}},"
		"\"eos_token\":\"<|new|>\",\"add_eos_token\":true}";
	json_t *root = data_read("demo-model/tokenizer.json");
	ssize_t n;

	json_write("tokenizer.json", root);
	json_decref(root);
	file_write("tokenizer_config.json", config, strlen(config));
	ck_assert_msg(!tokenizer_load(dir, &tok, err, sizeof(err)), "%s", err);
	ck_assert_uint_eq(tokenizer_vocab_size(tok), 5001);
	ck_assert_uint_eq(tokenizer_eos_id(tok), 5000);
	ck_assert(tokenizer_is_special(tok, 5000));
	n = tokenizer_encode(tok, "a<|new|>", 8, TOKENIZER_ADD_BOS |
			     TOKENIZER_ADD_EOS, ids, IDS_MAX, NULL);
	ck_assert_int_eq(n, 4);
	ck_assert_uint_eq(ids[0], 0);
	ck_assert_uint_eq(ids[2], 5000);
	ck_assert_uint_eq(ids[3], 5000);
}
END_TEST

/* ------------------------------------------------------------------ configs */

struct config_case {
	const char *config;	/* NULL: no file */
	u32 bos;
	u32 eos;
	bool adds;
};

static const struct config_case config_cases[] = {
	{ NULL, 0, TOKENIZER_NO_ID, true },
	{ "{}", 0, TOKENIZER_NO_ID, true },
	{ "{\"add_bos_token\":false}", 0, TOKENIZER_NO_ID, false },
	{ "{\"add_bos_token\":true,\"bos_token\":\"<|im_start|>\"}", 1,
	  TOKENIZER_NO_ID, true },
	{ "{\"bos_token\":\"<|im_start|>\"}", 0, TOKENIZER_NO_ID, true },
	{ "{\"bos_token\":null,\"eos_token\":{\"content\":\"<|im_end|>\"}}",
	  0, 2, true },
	{ "{\"model_max_length\":1000000000000000019884624838656,"
	  "\"eos_token\":\"<|im_end|>\"}", 0, 2, true },
};

START_TEST(test_config)
{
	const struct config_case *c = &config_cases[_i];

	copy_demo();
	if (c->config)
		write_str("tokenizer_config.json", c->config);
	ck_assert_msg(!tokenizer_load(dir, &tok, err, sizeof(err)), "%s", err);
	ck_assert_uint_eq(tokenizer_bos_id(tok), c->bos);
	ck_assert_uint_eq(tokenizer_eos_id(tok), c->eos);
	ck_assert_int_eq(tokenizer_adds_bos(tok), c->adds);
	ck_assert_int_eq(tokenizer_encode(tok, "", 0, TOKENIZER_ADD_BOS, ids,
					  IDS_MAX, NULL), c->adds);
	if (c->adds)
		ck_assert_uint_eq(ids[0], c->bos);
}
END_TEST

/* The form of Llama 3: without a template, only the config can add BOS. */
START_TEST(test_config_without_template)
{
	json_t *root = data_read("demo-model/tokenizer.json");

	json_change(root, "post_processor",
		    json_pack("{ss}", "type", "ByteLevel"));
	json_write("tokenizer.json", root);
	json_decref(root);
	ck_assert_int_eq(tokenizer_load(dir, &tok, err, sizeof(err)), 0);
	ck_assert(!tokenizer_adds_bos(tok));
	ck_assert_uint_eq(tokenizer_bos_id(tok), TOKENIZER_NO_ID);
	tokenizer_free(tok);

	write_str("tokenizer_config.json", "{\"bos_token\":\"<|im_start|>\"}");
	ck_assert_int_eq(tokenizer_load(dir, &tok, err, sizeof(err)), 0);
	ck_assert(!tokenizer_adds_bos(tok));
	ck_assert_uint_eq(tokenizer_bos_id(tok), 1);
	tokenizer_free(tok);

	tok = NULL;
	write_str("tokenizer_config.json", "{\"add_bos_token\":true}");
	expect_refusal(-EINVAL, "tokenizer_config.json", "no bos_token");
}
END_TEST

static Suite *files_suite(void)
{
	Suite *s = suite_create("tokenizer-files");
	TCase *tc;

	tc = case_new(s, "patterns", setup);
	tcase_add_loop_test(tc, test_pattern, 0, ARRAY_SIZE(pattern_cases));
	tcase_add_test(tc, test_pattern_depth);

	tc = case_new(s, "files", setup);
	tcase_add_loop_test(tc, test_refuses_tokenizer, 0,
			    ARRAY_SIZE(bad_files));
	tcase_add_loop_test(tc, test_refuses_config, 0,
			    ARRAY_SIZE(bad_configs));
	tcase_add_test(tc, test_refuses_files);
	tcase_add_test(tc, test_refuses_pair);
	tcase_add_test(tc, test_short_error_room);
	tcase_add_loop_test(tc, test_liars, 0, ARRAY_SIZE(liars));
	tcase_add_test(tc, test_no_file);
	tcase_add_test(tc, test_hash_is_drawn);
	tcase_add_test(tc, test_byte_left_out);
	tcase_add_test(tc, test_many_added);
	tcase_add_test(tc, test_pair_added);
	tcase_add_test(tc, test_nested_sequences);
	tcase_add_test(tc, test_growing_text);
	tcase_add_test(tc, test_added_by_config);
	tcase_add_loop_test(tc, test_config, 0, ARRAY_SIZE(config_cases));
	tcase_add_test(tc, test_config_without_template);
	return s;
}

int main(void)
{
	return suite_run(files_suite());
}
