// SPDX-License-Identifier: Apache-2.0
/*
 * load_gguf_pre.c - how texts are cut, by tokenizer.ggml.pre
 *
 * A GGUF file does not say how a text is cut before merges.  It has a name, and a
 * program must know what the tokenizer.json of the models with this name says.  Names
 * that are not in the table are refused: with the cut of another family most ids
 * would be right.  So is "default", which no model's tokenizer.json has.
 */
#include <stdio.h>

#include "runtime/tokenizer/load_gguf.h"

#define ENGLISH	"(?i:'s|'t|'re|'ve|'m|'ll|'d)"

/* Behind the letters and digits of the patterns that begin with GPT-4's. */
#define OTHERS	"| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

#define LLAMA3	ENGLISH "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}" OTHERS
#define QWEN2	ENGLISH "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" OTHERS

/* Marks belong to the letters before them. */
#define QWEN35								\
	ENGLISH "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}"		\
	"| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/* Words that begin with capitals, or have none; @end follows a word. */
#define UPPER	"[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER	"[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASES(end)							\
	"[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" end			\
	"|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" end
#define CASES_OTHERS							\
	"| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define GPT4O	CASES(ENGLISH "?") "|\\p{N}{1,3}" CASES_OTHERS
#define TEKKEN	CASES("") "|\\p{N}" CASES_OTHERS

/* Letters of scripts that have capitals. */
#define CASED_LETTERS							\
	"A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba"	\
	"\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376"	\
	"\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c"	\
	"\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f"	\
	"\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd"	\
	"\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77"	\
	"\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45"	\
	"\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d"	\
	"\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc"	\
	"\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4"	\
	"\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d"	\
	"\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139"	\
	"\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b"	\
	"\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d"	\
	"\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e"	\
	"\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a"	\
	"\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3"	\
	"\U000104d8-\U000104fb\U00010c80-\U00010cb2"	\
	"\U00010cc0-\U00010cf2\U000118a0-\U000118df"	\
	"\U0001e900-\U0001e943"

#define EAST_ASIAN	"[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
#define HAN_KANA	"[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"

static const struct gguf_pre pres[] = {
	{ .names = "gpt-2 phi-2" },
	{ .names = "mpt olmo", .nfc = true },
	{ .names = "starcoder refact smollm", .digits = true },
	{ .names = "command-r", .digits = true, .nfc = true },
	{ .names = "llama-bpe llama-v3 llama3", .patterns = { LLAMA3 },
	  .whole = true, .bos = true },
	{ .names = "smaug-bpe", .patterns = { LLAMA3 }, .whole = true },
	{ .names = "dbrx", .patterns = { LLAMA3 } },
	{ .names = "qwen2 deepseek-r1-qwen stablelm2", .patterns = { QWEN2 },
	  .nfc = true },
	{ .names = "qwen35", .patterns = { QWEN35 }, .nfc = true },
	{ .names = "gpt-4o", .patterns = { GPT4O } },
	{ .names = "tekken", .patterns = { TEKKEN }, .whole = true,
	  .bos = true },
	{ .names = "deepseek-llm", .digits = true,
	  .patterns = { "[\r\n]", "\\s?[" CASED_LETTERS "]+",
			"\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f"
			"\u3000-\u3002]+", "\\s+$", EAST_ASIAN } },
	{ .names = "deepseek-coder", .digits = true,
	  .patterns = { "[\r\n]", "\\s?\\p{L}+", "\\s?\\p{P}+",
			EAST_ASIAN } },
	{ .names = "deepseek-v3",
	  .patterns = { "\\p{N}{1,3}", HAN_KANA,
			"[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~]"
			"[A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?"
			"[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*"
			"|\\s*[\r\n]+|\\s+(?!\\S)|\\s+" } },
};

static bool is_named(const char *names, const struct gguf_str *s)
{
	size_t len;

	for (; *names; names += len + !!names[len]) {
		len = strcspn(names, " ");
		if (len == s->len && !memcmp(names, s->at, len))
			return true;
	}
	return false;
}

/* Refuse @s, with all names of the table. */
static int refuse_name(const struct load_ctx *ctx, const struct gguf_str *s)
{
	char known[384] = "";
	size_t i, at = 0;

	for (i = 0; i < ARRAY_SIZE(pres) && at < sizeof(known); i++)
		at += (size_t)snprintf(known + at, sizeof(known) - at, " %s",
				       pres[i].names);
	return load_fail(ctx, -EOPNOTSUPP, GGUF_KEY("pre") " \"%.*s\" is not "
			 "supported; known are%s", (int)min(s->len, (u64)40),
			 s->at, known);
}

int gguf_pre_find(const struct load_ctx *ctx, const struct gguf *g,
		  const struct gguf_pre **out)
{
	struct gguf_str s;
	size_t i;

	if (!gguf_str(g, GGUF_KEY("pre"), &s))
		return load_fail(ctx, -EOPNOTSUPP, GGUF_KEY("pre") " is missing: "
				 "it names the way to cut texts: convert the "
				 "model again");
	for (i = 0; i < ARRAY_SIZE(pres); i++) {
		if (!is_named(pres[i].names, &s))
			continue;
		*out = &pres[i];
		return 0;
	}
	return refuse_name(ctx, &s);
}

json_t *gguf_pre_json(const struct gguf_pre *pre)
{
	json_t *list = json_array();
	int err = 0;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(pre->patterns) && pre->patterns[i]; i++)
		err |= json_array_append_new(list,
			json_pack("{ss s{ss} ss sb}", "type", "Split",
				  "pattern", "Regex", pre->patterns[i],
				  "behavior", "Isolated", "invert", 0));
	if (pre->digits)
		err |= json_array_append_new(list,
			json_pack("{ss sb}", "type", "Digits",
				  "individual_digits", 1));
	err |= json_array_append_new(list,
		json_pack("{ss sb sb}", "type", "ByteLevel", "add_prefix_space",
			  0, "use_regex", !pre->patterns[0]));
	if (err) {
		json_decref(list);
		return NULL;
	}
	return json_pack("{ss so}", "type", "Sequence", "pretokenizers", list);
}
