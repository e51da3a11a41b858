// SPDX-License-Identifier: Apache-2.0
/*
 * pattern.c - split patterns, from Oniguruma's dialect to PCRE2's
 *
 * The pattern in a tokenizer.json is written for the engine of Hugging Face's
 * library, Oniguruma in its Ruby syntax.  PCRE2 reads most of it alike, and is
 * packaged and fast.  Where the two differ, the pieces would silently differ.
 * So the pattern is parsed here, construct by construct, and written anew:
 *
 *   {n,m}+    "one or more of {n,m}", not possessive: (?:X{n,m})+
 *   \s \S     25 code points; PCRE2 counts U+180E too: a class of our own
 *   \v \uHHHH one code point each: \x0b, \x{HHHH}
 *   \p{L} \d  PCRE2's Unicode is two years older: a class with the newer
 *             code points of unicode_newer.h
 *   \w \W     letters, marks, digits, connectors, other alphabetic characters,
 *             and six of Latin-1 that are none of these
 *   ^ $       at every line: PCRE2_MULTILINE, line feed alone ends a line
 *   {         a plain brace unless it begins an interval
 *
 *   Constructs that would have another meaning and are not translated are
 *   refused by name: \b, \D, nested classes, && in classes, {,n}, {n}?, options
 *   other than (?i:, properties other than general categories (PCRE2 matches
 *   scripts by their extensions), negated properties inside of a class.  A
 *   pattern that can match an empty string is refused as well.
 *
 *   The rest of the dialects agrees: possessive ++ *+ ?+, lazy quantifiers,
 *   groups and lookarounds, general categories.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/tokenizer/internal.h"
#include "runtime/tokenizer/unicode_forms.h"
#include "runtime/tokenizer/unicode_newer.h"
#include "runtime/tokenizer/utf8.h"

#define PATTERN_DEPTH	32
#define NO_ATOM		SIZE_MAX

/* Code points that are missing in PCRE2's tables of categories. */
static const struct {
	u32 first;
	u32 last;
	char cat[3];
} newer[] = {
#define x(first, last, cat)	{ first, last, cat },
	UNICODE_NEWER(x)
#undef x
};

/* White_Space of Unicode: \s inside of a class. */
#define SPACE_RANGES							\
	"\\x09-\\x0d\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}"	\
	"\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"

/* Alphabetic characters outside of the categories of word characters. */
#define x(first, last)	"\\x{" #first "}-\\x{" #last "}"
#define WORD_MORE	UNICODE_WORD(x)

/* Superscripts and fractions of Latin-1: word characters only in Oniguruma. */
#define WORD_ODD	"\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}"

/*
 * No word characters in Oniguruma's \w, but in the other engine of the library.
 */
#define JOINERS	"\\x{200c}\\x{200d}"

const char pattern_gpt2[] =
	"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+"
	"|\\s+(?!\\S)|\\s+";

/* A translation in progress; @err is the first error. */
struct pattern {
	const char *src;
	size_t at;			/* place in @src */
	char *out;
	size_t len;
	size_t cap;
	size_t atom;			/* beginning of the last atom in @out */
	size_t group[PATTERN_DEPTH];	/* and of the open groups */
	u32 depth;
	int err;
	char *why;
	size_t why_size;
};

static void __printf(3, 4) pattern_fail(struct pattern *p, int err,
					const char *fmt, ...)
{
	va_list ap;

	if (p->err)
		return;
	p->err = err;
	va_start(ap, fmt);
	vsnprintf(p->why, p->why_size, fmt, ap);
	va_end(ap);
}

static void put(struct pattern *p, const char *bytes, size_t len)
{
	size_t cap = p->cap;
	char *out;

	while (cap < p->len + len + 1)
		cap = cap ? cap * 2 : 256;
	if (cap != p->cap) {
		out = realloc(p->out, cap);
		if (!out) {
			pattern_fail(p, -ENOMEM, "out of memory");
			return;
		}
		p->out = out;
		p->cap = cap;
	}
	memcpy(p->out + p->len, bytes, len);
	p->len += len;
	p->out[p->len] = '\0';
}

static void put_str(struct pattern *p, const char *s)
{
	put(p, s, strlen(s));
}

static void put_code_point(struct pattern *p, unsigned long cp)
{
	char buf[24];

	snprintf(buf, sizeof(buf), "\\x{%lx}", cp);
	put_str(p, buf);
}

/* Copy @n bytes of the source. */
static void copy(struct pattern *p, size_t n)
{
	put(p, p->src + p->at, n);
	p->at += n;
}

/* Bytes of the character at @s, which is valid UTF-8. */
static size_t char_len(const char *s)
{
	size_t len;

	utf8_step((const u8 *)s, strlen(s), &len);
	return len;
}

/* Put the code points of category @cat that PCRE2 does not know. */
static void put_newer(struct pattern *p, const char *cat, size_t n)
{
	char buf[40];
	size_t i;

	for (i = 0; i < ARRAY_SIZE(newer); i++) {
		if (memcmp(newer[i].cat, cat, n))
			continue;
		snprintf(buf, sizeof(buf), "\\x{%x}-\\x{%x}", newer[i].first,
			 newer[i].last);
		put_str(p, buf);
	}
}

/* Put a class of category @cat, of one or two letters, or its complement. */
static void put_category(struct pattern *p, const char *cat, size_t n,
			 bool negated, bool in_class)
{
	if (!in_class)
		put_str(p, negated ? "[^" : "[");
	put_str(p, "\\p{");
	put(p, cat, n);
	put_str(p, "}");
	put_newer(p, cat, n);
	if (!in_class)
		put_str(p, "]");
}

/* Put the word characters, for the inside of a class. */
static void put_word(struct pattern *p)
{
	static const char * const cats[] = { "L", "M", "Nd", "Nl", "Pc" };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(cats); i++)
		put_category(p, cats[i], strlen(cats[i]), false, true);
	put_str(p, WORD_MORE);
}

/* \w and \W of Oniguruma */
static void word(struct pattern *p, bool in_class)
{
	const bool negated = p->src[p->at + 1] == 'W';

	if (negated && in_class) {
		pattern_fail(p, -EOPNOTSUPP, "\\W in a class");
		return;
	}
	if (!in_class)
		put_str(p, negated ? "[^" : "[");
	put_word(p);
	put_str(p, WORD_ODD);
	if (!in_class)
		put_str(p, "]");
	p->at += 2;
}

/* \p{Lu}, \P{L}, \p{^N}: general categories. */
static void property(struct pattern *p, bool in_class)
{
	const char *s = p->src + p->at + 2;
	bool caret = s[0] == '{' && s[1] == '^';
	bool negated = caret != (s[-1] == 'P');
	const char *name = s + 1 + caret;
	size_t n = s[0] == '{' ? strcspn(name, "}") : 0;

	if (n < 1 || n > 2 || name[n] != '}' || !strchr("LMNPSZ", name[0]))
		pattern_fail(p, -EOPNOTSUPP, "property %.20s is not supported",
			     s - 2);
	else if (negated && in_class)
		pattern_fail(p, -EOPNOTSUPP, "negated property in a class");
	if (p->err)
		return;
	put_category(p, name, n, negated, in_class);
	p->at = name + n + 1 - p->src;
}

/* \xHH below 0x80, \x{H...}, \uHHHH: one code point. */
static void code_point(struct pattern *p)
{
	const char *s = p->src + p->at + 2;
	bool is_u = s[-1] == 'u', braced = !is_u && s[0] == '{';
	size_t n = strspn(s + braced, "0123456789abcdefABCDEF");
	size_t want = is_u ? 4 : braced ? n : 2;
	char digits[8] = { 0 };
	unsigned long cp;

	if (n < want || want < 1 || want > 6 || (braced && s[1 + n] != '}')) {
		pattern_fail(p, -EOPNOTSUPP, "escape %.6s is not understood",
			     s - 2);
		return;
	}
	memcpy(digits, s + braced, want);
	cp = strtoul(digits, NULL, 16);
	if (!is_u && !braced && cp >= 0x80) {
		pattern_fail(p, -EOPNOTSUPP, "escape %.4s is half a character",
			     s - 2);
		return;
	}
	put_code_point(p, cp);
	p->at += 2 + want + 2 * braced;
}

/* Translate the escape at the cursor, inside of a class or not. */
static void escape(struct pattern *p, bool in_class)
{
	char c = p->src[p->at + 1];

	switch (c) {
	case 's':
		put_str(p, in_class ? SPACE_RANGES : "[" SPACE_RANGES "]");
		p->at += 2;
		break;
	case 'S':
		put_str(p, in_class ? "\\S\\x{180e}" : "[^" SPACE_RANGES "]");
		p->at += 2;
		break;
	case 'v':
		put_str(p, "\\x0b");
		p->at += 2;
		break;
	case 'p':
	case 'P':
		property(p, in_class);
		break;
	case 'd':
		put_category(p, "Nd", 2, false, in_class);
		p->at += 2;
		break;
	case 'w':
	case 'W':
		word(p, in_class);
		break;
	case 'x':
	case 'u':
		code_point(p);
		break;
	case 'r': case 'n': case 't': case 'f':
		copy(p, 2);
		break;
	default:
		if (c > ' ' && c < 0x7f && !strchr("0123456789"
		    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", c))
			copy(p, 2);
		else
			pattern_fail(p, -EOPNOTSUPP, "escape %.2s is not "
				     "understood", p->src + p->at);
	}
}

static void class(struct pattern *p)
{
	copy(p, 1);
	if (p->src[p->at] == '^')
		copy(p, 1);
	if (p->src[p->at] == ']')
		pattern_fail(p, -EOPNOTSUPP, "class begins with ]");

	while (!p->err && p->src[p->at] != ']') {
		const char *s = p->src + p->at;

		if (!s[0])
			pattern_fail(p, -EINVAL, "class does not end");
		else if (s[0] == '[')
			pattern_fail(p, -EOPNOTSUPP, "class inside of a class");
		else if (s[0] == '&' && s[1] == '&')
			pattern_fail(p, -EOPNOTSUPP, "&& inside of a class");
		else if (s[0] == '\\')
			escape(p, true);
		else
			copy(p, char_len(s));
	}
	if (!p->err)
		copy(p, 1);
}

static void group_open(struct pattern *p)
{
	static const char * const known[] = {
		"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!", "(?i:",
	};
	const char *s = p->src + p->at;
	size_t n = 1, i;

	if (s[1] == '?' || s[1] == '*') {
		n = 0;
		for (i = 0; i < ARRAY_SIZE(known); i++)
			if (!strncmp(s, known[i], strlen(known[i])))
				n = strlen(known[i]);
	}
	if (!n || p->depth == PATTERN_DEPTH) {
		pattern_fail(p, -EOPNOTSUPP, "group %.4s is not understood",
			     s);
		return;
	}
	p->group[p->depth++] = p->len;
	p->atom = NO_ATOM;
	copy(p, n);
}

static void group_close(struct pattern *p)
{
	if (!p->depth) {
		pattern_fail(p, -EINVAL, "unmatched )");
		return;
	}
	copy(p, 1);
	p->atom = p->group[--p->depth];
}

/* Length of {n}, {n,} or {n,m} at @s, 0: it is none of these. */
static size_t interval_len(const char *s)
{
	size_t n = strspn(s + 1, "0123456789"), m = 0;

	if (!n)
		return 0;
	if (s[1 + n] == ',')
		m = 1 + strspn(s + 2 + n, "0123456789");
	return s[1 + n + m] == '}' ? n + m + 2 : 0;
}

/* Put the last atom and its quantifiers into a group: (?:...) */
static void atom_wrap(struct pattern *p)
{
	size_t from = p->atom, n = p->len - from;

	put_str(p, "(?:)");
	if (p->err)
		return;
	memmove(p->out + from + 3, p->out + from, n);
	memcpy(p->out + from, "(?:", 3);
	p->out[p->len - 1] = ')';
}

static void interval(struct pattern *p, size_t n)
{
	bool exact = !memchr(p->src + p->at, ',', n);

	copy(p, n);
	if (p->src[p->at] == '+')
		atom_wrap(p);
	if (p->src[p->at] == '?' && exact)
		pattern_fail(p, -EOPNOTSUPP, "{n}? is not understood");
	if (p->src[p->at] == '+' || p->src[p->at] == '?')
		copy(p, 1);
}

static void brace(struct pattern *p)
{
	size_t n = interval_len(p->src + p->at);

	if (p->src[p->at + 1] == ',') {
		pattern_fail(p, -EOPNOTSUPP, "{,n} is not understood");
	} else if (!n) {
		p->atom = p->len;
		put_str(p, "\\{");
		p->at++;
	} else if (p->atom == NO_ATOM) {
		pattern_fail(p, -EOPNOTSUPP, "%.4s repeats nothing",
			     p->src + p->at);
	} else {
		interval(p, n);
		p->atom = NO_ATOM;
	}
}

static void quantifier(struct pattern *p)
{
	if (p->atom == NO_ATOM) {
		pattern_fail(p, -EOPNOTSUPP, "%c repeats nothing",
			     p->src[p->at]);
		return;
	}
	copy(p, 1);
	if (p->src[p->at] == '+' || p->src[p->at] == '?')
		copy(p, 1);
	p->atom = NO_ATOM;
}

/* Translate an atom: a character, a class or an escape. */
static void atom(struct pattern *p)
{
	p->atom = p->len;
	if (p->src[p->at] == '[')
		class(p);
	else if (p->src[p->at] == '\\')
		escape(p, false);
	else
		copy(p, char_len(p->src + p->at));
}

static void pattern_translate(struct pattern *p)
{
	p->atom = NO_ATOM;
	while (!p->err && p->src[p->at]) {
		switch (p->src[p->at]) {
		case '(':
			group_open(p);
			break;
		case ')':
			group_close(p);
			break;
		case '*': case '+': case '?':
			quantifier(p);
			break;
		case '{':
			brace(p);
			break;
		case '|': case '^': case '$':
			copy(p, 1);
			p->atom = NO_ATOM;
			break;
		default:
			atom(p);
		}
	}
	if (p->depth)
		pattern_fail(p, -EINVAL, "unmatched (");
}

/* Compile the translation; PCRE2 finds the remaining syntax errors. */
static pcre2_code *translation_compile(struct pattern *p)
{
	pcre2_compile_context *cc = pcre2_compile_context_create(NULL);
	pcre2_code *code;
	PCRE2_SIZE where;
	PCRE2_UCHAR text[128];
	int num;

	if (!cc) {
		pattern_fail(p, -ENOMEM, "out of memory");
		return NULL;
	}
	pcre2_set_newline(cc, PCRE2_NEWLINE_LF);
	code = pcre2_compile((PCRE2_SPTR)p->out, p->len, PCRE2_UTF | PCRE2_UCP |
			     PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &num,
			     &where, cc);
	pcre2_compile_context_free(cc);
	if (!code) {
		pcre2_get_error_message(num, text, sizeof(text));
		pattern_fail(p, -EINVAL, "%s", (const char *)text);
	}
	return code;
}

int pattern_compile(const char *src, pcre2_code **out, char *why,
		    size_t why_size)
{
	struct pattern p = { .src = src, .why = why, .why_size = why_size };
	pcre2_code *code = NULL;
	u32 can_be_empty;

	put_str(&p, "");
	pattern_translate(&p);
	if (!p.err)
		code = translation_compile(&p);
	if (code) {
		pcre2_pattern_info(code, PCRE2_INFO_MATCHEMPTY, &can_be_empty);
		if (can_be_empty)
			pattern_fail(&p, -EINVAL, "it can match nothing");
	}
	free(p.out);
	if (p.err) {
		pcre2_code_free(code);
		return p.err;
	}
	/*
	 * Without JIT (no such CPU, no executable memory) PCRE2 interprets the
	 * pattern.
	 */
	(void)pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
	*out = code;
	return 0;
}

/* ---- character sets of the library's parts ---- */

static void put_set(struct pattern *p, enum pattern_set set)
{
	switch (set) {
	case SET_DIGIT:
		put_str(p, "[");
		put_category(p, "N", 1, false, true);
		put_str(p, UNICODE_DIGITS(x) "]");
		break;
	case SET_PUNCTUATION:
		put_str(p, "(?![" UNICODE_NOT_PUNCTUATION(x) "])[");
		put_category(p, "P", 1, false, true);
		put_str(p, UNICODE_PUNCTUATION(x) "]");
		break;
	case SET_SPACE:
		put_str(p, "[" SPACE_RANGES "]");
		break;
	case SET_WORDS:
		put_str(p, "[");
		put_word(p);
		put_str(p, JOINERS "]+|[^" SPACE_RANGES);
		put_word(p);
		put_str(p, JOINERS "]+");
		break;
	case SET_WORD_FIRST:
		put_str(p, "^[");
		put_word(p);
		put_str(p, JOINERS "]");
		break;
	}
}

int pattern_compile_set(enum pattern_set set, pcre2_code **out)
{
	char why[160];
	struct pattern p = { .src = "", .why = why, .why_size = sizeof(why) };

	put_set(&p, set);
	*out = p.err ? NULL : translation_compile(&p);
	free(p.out);
	if (!*out)
		return p.err;
	(void)pcre2_jit_compile(*out, PCRE2_JIT_COMPLETE);
	return 0;
}
