// SPDX-License-Identifier: Apache-2.0
/*
 * fuzz_tokenizer.c - tokenizer files of any bytes
 *
 * The input is the files of a folder, each up to a NUL, and then the text to
 * encode.  The files are tokenizer.json and tokenizer_config.json; or, behind a
 * first 'P', which begins no JSON, vocab.json and merges.txt and the files that
 * may stand beside them.  An empty file is missing.  Two bytes that JSON does not
 * use stand for long pieces of it, so that whole vocabularies are short inputs: 1
 * for the tokens of all bytes as ByteLevel spells them, with ids from 0 on, 2 as
 * ByteFallback does, from 3 on.
 *
 * Behind a first 'G' the input is the metadata of a GGUF file (gguf_put()): digits for
 * the kind, the flags and tokenizer.ggml.pre, then lines, up to a NUL.  A line is a
 * token, behind the digit of its type; after an empty line, each is a merge.  1 and 2
 * stand for the tokens of all bytes here, too.
 *
 * A refusal of a file must be one line that names it.  An accepted tokenizer must
 * encode the text to ids of its vocabulary, or refuse it with an error number it
 * is allowed to use, and must decode any ids to whole characters.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/tokenizer/tokenizer.h"
#include "runtime/tokenizer/utf8.h"
#include "tests/fuzz/fuzz.h"

#define IDS_MAX		4096
#define TEXT_MAX	2048
#define FILE_ROOM	(1u << 17)
#define GGUF_NAME	"model.gguf"
#define LIST_MAX	1024u

/* The files of both forms, in the order of the input. */
static const char * const whole[] = {
	"tokenizer.json", "tokenizer_config.json",
};
static const char * const pair[] = {
	"vocab.json", "merges.txt", "tokenizer_config.json",
	"special_tokens_map.json", "added_tokens.json", "config.json",
};

static char dir[64];
static u64 nr_taken;

static void file_path(char path[128], const char *name)
{
	snprintf(path, 128, "%s/%s", dir, name);
}

static void dir_clear(void)
{
	char path[128];
	size_t i;

	file_path(path, whole[0]);
	unlink(path);
	file_path(path, GGUF_NAME);
	unlink(path);
	for (i = 0; i < ARRAY_SIZE(pair); i++) {
		file_path(path, pair[i]);
		unlink(path);
	}
}

static void dir_remove(void)
{
	dir_clear();
	rmdir(dir);
}

static void dir_make(void)
{
	snprintf(dir, sizeof(dir), "%s/fuzz_tokenizer.XXXXXX",
		 access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
	if (!mkdtemp(dir))
		abort();
	atexit(dir_remove);
}

/* The token of a byte as ByteLevel spells it, in JSON. */
static size_t put_level(char *to, u32 byte)
{
	static u16 spelt[256];
	u32 b, n = 256, c;

	for (b = 0; !spelt[255] && b < 256; b++)
		spelt[b] = (b > 32 && b < 127) || (b > 160 && b != 173) ?
			   (u16)b : (u16)n++;
	c = spelt[byte];
	if (c < 128)
		return (size_t)sprintf(to, "\"%s%c\":%u",
				       c == '"' || c == '\\' ? "\\" : "",
				       (int)c, byte);
	return (size_t)sprintf(to, "\"%c%c\":%u", (int)(0xc0 | c >> 6),
			       (int)(0x80 | (c & 0x3f)), byte);
}

static size_t put_bytes(char *to, bool level)
{
	size_t len = 0;
	u32 b;

	for (b = 0; b < 256; b++) {
		if (b)
			to[len++] = ',';
		if (level)
			len += put_level(to + len, b);
		else
			len += (size_t)sprintf(to + len, "\"<0x%02X>\":%u", b,
					       b + 3);
	}
	return len;
}

/* Expand a file of the input; a file that is too long is cut. */
static size_t file_expand(char to[FILE_ROOM], const u8 *data, size_t size)
{
	size_t len = 0, i;

	for (i = 0; i < size && len < FILE_ROOM - 8192; i++) {
		if (data[i] == 1 || data[i] == 2)
			len += put_bytes(to + len, data[i] == 1);
		else
			to[len++] = (char)data[i];
	}
	return len;
}

static void bytes_put(const char *name, const char *text, size_t len)
{
	char path[128];
	int fd;

	file_path(path, name);
	fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, text, len) != (ssize_t)len || close(fd))
		abort();
}

static void file_put(const char *name, const u8 *data, size_t size)
{
	static char text[FILE_ROOM];

	if (size)
		bytes_put(name, text, file_expand(text, data, size));
}

/* ---- GGUF files ---- */

struct line {
	const char	*at;
	size_t		len;
	u32		type;
};

/* A file while it is written; what does not fit is left out. */
struct room {
	char		p[FILE_ROOM];
	size_t		len;
	struct line	tokens[LIST_MAX];
	struct line	merges[LIST_MAX];
	u32		nr_tokens;
	u32		nr_merges;
};

static void put_number(struct room *r, u64 v, size_t bytes)
{
	if (bytes <= sizeof(r->p) - r->len)
		memcpy(r->p + r->len, &v, bytes);
	r->len = min(r->len + bytes, sizeof(r->p));
}

static void put_string(struct room *r, const char *at, size_t len)
{
	put_number(r, len, 8);
	len = min(len, sizeof(r->p) - r->len);
	memcpy(r->p + r->len, at, len);
	r->len += len;
}

/* A key, and the kind of its value. */
static void put_key(struct room *r, const char *key, u32 kind)
{
	put_string(r, key, strlen(key));
	put_number(r, kind, 4);
}

static void put_list(struct room *r, const char *key, u32 kind, u64 nr)
{
	put_key(r, key, 9);
	put_number(r, kind, 4);
	put_number(r, nr, 8);
}

/* The tokens of all bytes. */
static void lines_of_bytes(struct room *r, bool level)
{
	static char text[256][40];
	char *quote;
	size_t n;
	u32 b;

	for (b = 0; b < 256 && r->nr_tokens < LIST_MAX; b++) {
		if (level)
			n = put_level(text[b], b);
		else
			n = (size_t)sprintf(text[b], "\"<0x%02X>\":", b);
		text[b][n] = 0;
		quote = strrchr(text[b], '"');
		/* JSON has a \ before these. */
		n = text[b][1] == '\\' ? 2 : 1;
		r->tokens[r->nr_tokens++] = (struct line){ text[b] + n,
			(size_t)(quote - text[b]) - n, level ? 1 : 6 };
	}
}

static void line_take(struct room *r, const char *at, size_t len, bool merges)
{
	if (merges && r->nr_merges < LIST_MAX)
		r->merges[r->nr_merges++] = (struct line){ at, len, 0 };
	else if (len == 1 && (*at == 1 || *at == 2))
		lines_of_bytes(r, *at == 1);
	else if (len && !merges && r->nr_tokens < LIST_MAX)
		r->tokens[r->nr_tokens++] = (struct line){ at + 1, len - 1,
							   (u32)*at - '0' };
}

static void lines_take(struct room *r, const char *at, const char *end)
{
	bool merges = false;
	const char *stop;

	for (; at < end; at = stop + 1) {
		stop = memchr(at, '\n', (size_t)(end - at));
		stop = stop ? stop : end;
		if (stop == at)
			merges = true;
		else
			line_take(r, at, (size_t)(stop - at), merges);
	}
}

static void put_lists(struct room *r)
{
	u32 i;

	put_list(r, "tokenizer.ggml.tokens", 8, r->nr_tokens);
	for (i = 0; i < r->nr_tokens; i++)
		put_string(r, r->tokens[i].at, r->tokens[i].len);
	put_list(r, "tokenizer.ggml.token_type", 5, r->nr_tokens);
	for (i = 0; i < r->nr_tokens; i++)
		put_number(r, r->tokens[i].type, 4);
	put_list(r, "tokenizer.ggml.scores", 5, r->nr_tokens);
	for (i = 0; i < r->nr_tokens; i++)
		put_number(r, i * 7 % 5, 4);
	put_list(r, "tokenizer.ggml.merges", 8, r->nr_merges);
	for (i = 0; i < r->nr_merges; i++)
		put_string(r, r->merges[i].at, r->merges[i].len);
}

static void put_choice(struct room *r, const char *key,
		       const char * const *from, u32 nr, u8 digit)
{
	const char *s = from[digit % nr];

	put_key(r, key, 8);
	put_string(r, s, strlen(s));
}

/* Write the GGUF file of an input of three digits and lines. */
static void gguf_put(const u8 *data, const u8 *end)
{
	static const char * const kinds[] = { "gpt2", "llama", "gemma4", "t5" };
	static const char * const pres[] = {
		"gpt-2", "qwen2", "llama-bpe", "deepseek-llm", "deepseek-v3",
		"tekken", "gpt-4o", "command-r", "default", "mpt",
	};
	static const char * const archs[] = { "llama", "gemma3", "phi3" };
	static struct room r;
	const u8 flags = end - data > 1 ? data[1] : 0;

	r.len = 0;
	r.nr_tokens = 0;
	r.nr_merges = 0;
	if (end - data > 3)
		lines_take(&r, (const char *)data + 3, (const char *)end);
	memcpy(r.p, "GGUF", 4);
	r.len = 4;
	put_number(&r, 3, 4);
	put_number(&r, 0, 8);
	put_number(&r, 12, 8);
	put_choice(&r, "tokenizer.ggml.model", kinds, 4, end > data ? *data : 0);
	put_choice(&r, "tokenizer.ggml.pre", pres, ARRAY_SIZE(pres),
		   end - data > 2 ? data[2] : 0);
	put_choice(&r, "general.architecture", archs, 3, flags >> 3);
	put_lists(&r);
	put_key(&r, "tokenizer.ggml.bos_token_id", 4);
	put_number(&r, flags >> 4, 4);
	put_key(&r, "tokenizer.ggml.eos_token_id", 4);
	put_number(&r, 2, 4);
	put_key(&r, "tokenizer.ggml.add_bos_token", 7);
	put_number(&r, flags & 1, 1);
	put_key(&r, "tokenizer.ggml.add_eos_token", 7);
	put_number(&r, flags >> 1 & 1, 1);
	put_key(&r, "tokenizer.ggml.add_space_prefix", 7);
	put_number(&r, flags >> 2 & 1, 1);
	bytes_put(GGUF_NAME, r.p, r.len);
}

/* Write the files of an input.  Return: the rest of the input, the text. */
static const u8 *files_put(const u8 *data, const u8 *end)
{
	const bool is_pair = data < end && *data == 'P';
	const char * const *names = is_pair ? pair : whole;
	u32 n = is_pair ? ARRAY_SIZE(pair) : ARRAY_SIZE(whole);
	const u8 *nul;

	if (!dir[0])
		dir_make();
	dir_clear();
	if (data < end && *data == 'G') {
		nul = memchr(data, 0, (size_t)(end - data));
		gguf_put(data + 1, nul ? nul : end);
		return nul ? nul + 1 : end;
	}
	for (data += is_pair; n--; names++) {
		nul = data < end ? memchr(data, 0, (size_t)(end - data)) : NULL;
		file_put(*names, data, (size_t)((nul ? nul : end) - data));
		data = nul ? nul + 1 : end;
	}
	return data;
}

static void decode(const struct tokenizer *tok, const u32 *ids, size_t nr)
{
	const size_t room = detok_out_max(tok);
	char *out = malloc(room);
	struct detok d;
	ssize_t n;
	size_t i;

	if (!out)
		abort();
	detok_init(&d, tok, nr & 1);
	for (i = 0; i <= nr; i++) {
		n = i < nr ? detok_push(&d, ids[i], out, room) :
			     detok_flush(&d, out, room);
		FUZZ_LAW(n >= 0 && utf8_is_valid(out, (size_t)n), "%zd", n);
	}
	free(out);
}

static void encode(const struct tokenizer *tok, const char *text, size_t len)
{
	static const u32 flags[] = {
		0, TOKENIZER_PLAIN, TOKENIZER_ADD_BOS | TOKENIZER_ADD_EOS,
	};
	static u32 ids[IDS_MAX];
	size_t i, k, needed;
	ssize_t n;

	for (i = 0; i < ARRAY_SIZE(flags); i++) {
		n = tokenizer_encode(tok, text, len, flags[i], ids, IDS_MAX,
				     &needed);
		FUZZ_LAW(n != -EILSEQ || !utf8_is_valid(text, len),
			 "a text of %zu bytes", len);
		FUZZ_LAW(n >= 0 || n == -EILSEQ || n == -E2BIG ||
			 n == -EFBIG || n == -EOVERFLOW, "%zd", n);
		for (k = 0; n > 0 && k < (size_t)n; k++)
			FUZZ_LAW(ids[k] < tokenizer_vocab_size(tok), "id %u",
				 ids[k]);
		if (n > 0)
			decode(tok, ids, (size_t)n);
	}
	/* Ids that no encoding made. */
	for (k = 0; k < 64; k++)
		ids[k] = (u32)k * 7 % (tokenizer_vocab_size(tok) + 2);
	decode(tok, ids, k);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	static const char text[] =
		"Hello w\xc3\xb6rld  12345 \xf0\x9f\x98\x80<s> e\xcc\x81\n";
	const bool gguf = size && *data == 'G';
	const u8 *end = data + size;
	char err[TOKENIZER_ERR_MAX], path[128];
	struct tokenizer *tok;
	int ret;

	data = files_put(data, end);
	memset(err, 'x', sizeof(err));
	file_path(path, GGUF_NAME);
	ret = tokenizer_load(gguf ? path : dir, &tok, err, sizeof(err));
	if (ret) {
		FUZZ_LAW(!strncmp(err, dir, strlen(dir)) &&
			 !strchr(err, '\n') && utf8_is_valid(err, strlen(err)),
			 "%d: %s", ret, err);
		return 0;
	}
	encode(tok, text, sizeof(text) - 1);
	if (data < end)
		encode(tok, (const char *)data,
		       min((size_t)(end - data), (size_t)TEXT_MAX));
	tokenizer_free(tok);
	nr_taken++;
	return 0;
}

#ifndef FUZZ_LIB
/* ---- own mutations ---- */

/* Pieces of these files */
static const char * const words[] = {
	"{", "}", "[", "]", ",", ":", "\"", "null", "true", "false", "0", "1",
	"-1", "1e30", "16777215", "\"type\":", "\"BPE\"", "\"Sequence\"",
	"\"ByteLevel\"", "\"Split\"", "\"Regex\":", "\"String\":", "\"(a+)+b\"",
	"\"\\\\p{L}+\"", "\"Isolated\"", "\"Removed\"", "\"MergedWithNext\"",
	"\"MergedWithPrevious\"", "\"Contiguous\"", "\"Metaspace\"", "\"first\"",
	"\"never\"", "\"always\"", "\"Replace\"", "\"Prepend\"", "\"NFKC\"",
	"\"NFD\"", "\"Strip\"", "\"Lowercase\"", "\"StripAccents\"", "\"Fuse\"",
	"\"ByteFallback\"", "\"Digits\"", "\"Punctuation\"", "\"Whitespace\"",
	"\"content\":", "\"id\":", "\"<0xE4>\"", "\"\\u2581\"", "\" \"", "\"\"",
	"\"normalized\":true", "\"single_word\":true", "\"lstrip\":true",
	"\"TemplateProcessing\"", "\"RobertaProcessing\"", "\"unk_token\":\"a\"",
	"\"byte_fallback\":true", "\"ignore_merges\":true", "\xc3\xa9", "\xff",
	"\1", "\2", "\"added_tokens\":[", "\"merges\":[", "\"vocab\":{",
	"\"post_processor\":{", "\"decoder\":{", "\"normalizer\":{",
	"\"pre_tokenizer\":{", "\"normalizers\":[", "\"pretokenizers\":[",
	"\"decoders\":[", "\"pattern\":{", "\"behavior\":", "\"invert\":true",
	"\"add_prefix_space\":true", "\"use_regex\":false", "\"split\":true",
	"\"prepend_scheme\":", "\"replacement\":", "\"single\":[",
	"{\"SpecialToken\":{\"id\":\"a\"}}", "{\"Sequence\":{\"id\":\"A\"}}",
	"\"special_tokens\":{", "\"add_bos_token\":true", "\"bos_token\":",
	"\"add_eos_token\":true", "\"eos_token\":", "\"special\":true",
	"\"added_tokens_decoder\":{", "\"tokenizer_class\":\"GPT2Tokenizer\"",
	"\"additional_special_tokens\":[", "\"start\":1", "\"stop\":1",
	"\"individual_digits\":true", "\"rstrip\":true", "(?=", "(?!", "(?<=",
	"[^", "{2,3}", "\\\\s+",
	/* of GGUF files */
	"G06", "G14", "G26", "G10", "\n1ab", "\n3<s>", "\n4  ", "\n5[PAD7]", "\n6<0x41>",
	"\n2<unk>", "\n1\t\t", "\n\na b", "\na b",
};

static size_t mutate(u8 *buf, size_t len, size_t max)
{
	const char *p = words[fuzz_draw(ARRAY_SIZE(words))];
	/* The parts are at the beginning and the end, tokens between. */
	size_t at = fuzz_draw((u32)(fuzz_draw(3) ? min(len, (size_t)1500) :
						   len) + 1);
	size_t n, from;
	const u8 *data;
	u8 byte;

	if (!fuzz_draw(3))
		at = len - at;
	switch (fuzz_draw(6)) {
	case 0:
		return fuzz_put(buf, len, max, at, fuzz_draw(8), "", 0);
	case 1:
		byte = (u8)fuzz_draw(256);
		return fuzz_put(buf, len, max, at, 1, &byte, 1);
	case 2:
		data = fuzz_input(&n);
		from = fuzz_draw((u32)n);
		return fuzz_put(buf, len, max, at, fuzz_draw(64), data + from,
				min(n - from, (size_t)fuzz_draw(64)));
	default:
		return fuzz_put(buf, len, max, at, fuzz_draw(12), p, strlen(p));
	}
}

const struct fuzz_own fuzz_own = {
	.max = 16384, .pack = 384 << 10, .words = words,
	.nr_words = ARRAY_SIZE(words), .mutate = mutate, .changes = 5,
	.taken = &nr_taken,
};
#endif
