// SPDX-License-Identifier: Apache-2.0
/*
 * fuzz_tokenizer.c - tokenizer.json of any bytes
 *
 * The input is a tokenizer.json, and behind a NUL, if there is one, the text to
 * encode.  A file that is refused must be so in one line that names it; one
 * that is taken must encode the text to ids of its vocabulary or refuse it
 * with a number it is allowed to, and must decode any ids to whole characters.
 *
 * With -DFUZZ_LIB it is a libFuzzer target for clang:
 *	clang -g -O1 -fsanitize=fuzzer,address,undefined -DFUZZ_LIB -Iinclude -I. \
 *		-D_GNU_SOURCE= -o build/fuzz_tokenizer tests/fuzz/fuzz_tokenizer.c \
 *		runtime/tokenizer/?*.c -ljansson -lpcre2-8 -lutf8proc -lm
 *
 * Without, it is a program that mutates FILE.. by itself:
 *	fuzz_tokenizer ROUNDS SEED FILE..
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/tokenizer/tokenizer.h"
#include "runtime/tokenizer/utf8.h"

#define IDS_MAX		4096
#define TEXT_MAX	2048

int LLVMFuzzerTestOneInput(const u8 *data, size_t size);

static char dir[64];

static void dir_remove(void)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/tokenizer.json", dir);
	unlink(path);
	rmdir(dir);
}

static void file_put(const u8 *data, size_t size)
{
	char path[128];
	FILE *f;

	if (!dir[0]) {
		snprintf(dir, sizeof(dir), "%s/fuzz_tokenizer.XXXXXX",
			 access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
		if (!mkdtemp(dir))
			abort();
		atexit(dir_remove);
	}
	snprintf(path, sizeof(path), "%s/tokenizer.json", dir);
	f = fopen(path, "we");
	if (!f || fwrite(data, 1, size, f) != size || fclose(f))
		abort();
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
		if (n < 0 || !utf8_is_valid(out, (size_t)n))
			abort();
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
		if (n == -EILSEQ && utf8_is_valid(text, len))
			abort();
		if (n < 0 && n != -EILSEQ && n != -E2BIG && n != -EFBIG &&
		    n != -EOVERFLOW)
			abort();
		for (k = 0; n > 0 && k < (size_t)n; k++)
			if (ids[k] >= tokenizer_vocab_size(tok))
				abort();
		if (n > 0)
			decode(tok, ids, (size_t)n);
	}
	/* Ids as they come. */
	for (k = 0; k < 64; k++)
		ids[k] = (u32)k * 7 % (tokenizer_vocab_size(tok) + 2);
	decode(tok, ids, k);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	static const char text[] =
		"Hello w\xc3\xb6rld  12345 \xf0\x9f\x98\x80<s> e\xcc\x81\n";
	const u8 *nul = memchr(data, 0, size);
	char err[TOKENIZER_ERR_MAX];
	struct tokenizer *tok;
	size_t len;
	int ret;

	file_put(data, nul ? (size_t)(nul - data) : size);
	memset(err, 'x', sizeof(err));
	ret = tokenizer_load(dir, &tok, err, sizeof(err));
	if (ret) {
		if (strncmp(err, dir, strlen(dir)) || strchr(err, '\n') ||
		    !utf8_is_valid(err, strlen(err)))
			abort();
		return 0;
	}
	encode(tok, text, sizeof(text) - 1);
	if (nul) {
		len = min(size - (size_t)(nul + 1 - data), (size_t)TEXT_MAX);
		encode(tok, (const char *)nul + 1, len);
	}
	tokenizer_free(tok);
	return 0;
}

#ifndef FUZZ_LIB
/* ---- by itself ---- */

#include "tests/fuzz/blind.h"

#define INPUT_MAX	65536
#define FILES_MAX	64

static u8 *files[FILES_MAX];
static size_t sizes[FILES_MAX];
static u32 nr_files;
/* Pieces that such files are made of */
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
};

static size_t mutate(u8 *buf, size_t len)
{
	const char *p = words[draw(ARRAY_SIZE(words))];
	/* The parts are at the begin and the end, tokens between. */
	size_t at = draw(3) ? draw((u32)min(len, (size_t)1500) + 1) :
			      draw((u32)len + 1);
	u32 from, other;
	u8 byte;

	if (!draw(3))
		at = len - min(at, len);
	switch (draw(6)) {
	case 0:
		return put_piece(buf, len, INPUT_MAX, at, draw(8), "", 0);
	case 1:
		byte = (u8)draw(256);
		return put_piece(buf, len, INPUT_MAX, at, 1, &byte, 1);
	case 2:
		other = draw(nr_files);
		from = draw((u32)sizes[other]);
		return put_piece(buf, len, INPUT_MAX, at, draw(64), files[other] + from,
			      min(sizes[other] - from, (size_t)draw(64)));
	default:
		return put_piece(buf, len, INPUT_MAX, at, draw(12), p, strlen(p));
	}
}

static void file_read(const char *path)
{
	files[nr_files] = malloc(INPUT_MAX);
	if (!files[nr_files])
		abort();
	sizes[nr_files] = blind_read(path, files[nr_files], INPUT_MAX);
	nr_files += !!sizes[nr_files];
}

int main(int argc, char **argv)
{
	static u8 buf[INPUT_MAX];
	u64 rounds, i;
	size_t len;
	u32 n;
	int k;

	rounds = blind_begin(argc, argv, "fuzz_tokenizer", 1);
	for (k = 3; k < argc && nr_files < FILES_MAX; k++)
		file_read(argv[k]);
	for (n = 0; n < nr_files; n++)
		LLVMFuzzerTestOneInput(files[n], sizes[n]);
	for (i = 0; i < rounds && nr_files; i++) {
		n = draw(nr_files);
		len = put_piece(buf, 0, INPUT_MAX, 0, 0, files[n], sizes[n]);
		for (n = 1 + draw(6); n--; )
			len = mutate(buf, len);
		LLVMFuzzerTestOneInput(buf, len);
	}
	for (n = 0; n < nr_files; n++)
		free(files[n]);
	printf("total: %llu files\n", (unsigned long long)rounds);
	return 0;
}
#endif
