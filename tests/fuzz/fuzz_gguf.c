// SPDX-License-Identifier: Apache-2.0
/*
 * fuzz_gguf.c - GGUF files of any bytes
 *
 * The input is a file.  A refusal must be one line that names the file.  A file that
 * is accepted must keep the promises of gguf_open(): every value, item and byte of
 * tensors lies in the file, sizes fit, names are in order.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/quant.h"
#include "runtime/lib/gguf.h"
#include "runtime/template/chat.h"
#include "runtime/tokenizer/tokenizer.h"
#include "tests/fuzz/fuzz.h"

static int fd = -1;
static u64 nr_taken;
static volatile u8 sum;

static void file_write(const u8 *data, size_t size)
{
	if (fd < 0)
		fd = memfd_create("fuzz", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, 0) ||
	    pwrite(fd, data, size, 0) != (ssize_t)size)
		abort();
}

static void read_str(const struct gguf_str *s, size_t size)
{
	FUZZ_LAW(s->len <= size, "%llu bytes", (unsigned long long)s->len);
	if (s->len)
		sum += (u8)s->at[0] + (u8)s->at[s->len - 1];
}

/* Ask for the value of a key in every way. */
static void check_value(const struct gguf *g, const char *key, size_t size)
{
	const u64 nr = gguf_nr_items(g, key);
	struct gguf_str s;
	double d;
	bool b;
	u64 v, i;
	s64 n;

	FUZZ_LAW(gguf_has(g, key), "%s is not found", key);
	FUZZ_LAW(nr <= size, "%llu items", (unsigned long long)nr);
	if (gguf_str(g, key, &s))
		read_str(&s, size);
	FUZZ_LAW(!gguf_u64(g, key, &v) || gguf_real(g, key, &d),
		 "%s is no number", key);
	gguf_bool(g, key, &b);
	for (i = 0; i < nr; i++) {
		if (gguf_item_str(g, key, i, &s))
			read_str(&s, size);
		FUZZ_LAW(!gguf_item_u64(g, key, i, &v) ||
			 gguf_item_real(g, key, i, &d), "no number");
		gguf_item_s64(g, key, i, &n);
		gguf_item_bool(g, key, i, &b);
	}
	FUZZ_LAW(!gguf_item_s64(g, key, nr, &n), "an item behind the last");
}

static void check_tensors(const struct gguf *g, size_t size)
{
	const struct gguf_tensor *t;
	const char *last = "";
	u64 total = 0;
	u32 i;

	for (i = 0; i < gguf_nr_tensors(g); i++) {
		t = gguf_tensor_at(g, i);
		total += t->nr_bytes;
		FUZZ_LAW(strcmp(last, t->name) < 0, "%s is not in order",
			 t->name);
		last = t->name;
		FUZZ_LAW(t->nr_bytes && t->nr_dims && t->nr_dims <= GGUF_MAX_DIMS,
			 "%u dimensions", t->nr_dims);
		sum += *(u8 *)t->data + ((u8 *)t->data)[t->nr_bytes - 1];
	}
	FUZZ_LAW(total <= size, "%llu bytes", (unsigned long long)total);
}

/* The readers of the metadata refuse it in one line, too, or take it. */
static void check_readers(const char *path)
{
	char err[TOKENIZER_ERR_MAX] = "";
	struct tokenizer *tok;
	struct chat *chat;
	int ret;

	ret = tokenizer_load(path, &tok, err, sizeof(err));
	FUZZ_LAW(!ret || (!strncmp(err, path, strlen(path)) &&
			  !strchr(err, '\n')), "%d: %s", ret, err);
	if (!ret)
		tokenizer_free(tok);
	ret = chat_load(path, NULL, &chat, err, sizeof(err));
	FUZZ_LAW(!ret || (*err && !strchr(err, '\n')), "%d: %s", ret, err);
	chat_free(chat);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	char err[GGUF_ERR_MAX] = "", path[40];
	struct gguf *g = NULL;
	u32 i;
	int ret;

	file_write(data, size);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	ret = gguf_open(path, &g, err, sizeof(err));
	if (ret) {
		FUZZ_LAW(!g && (ret == -EINVAL || ret == -EOPNOTSUPP) &&
			 strstr(err, path) && !strchr(err, '\n'), "%d: %s",
			 ret, err);
		return 0;
	}
	for (i = 0; i < gguf_nr_keys(g); i++)
		check_value(g, gguf_key_at(g, i), size);
	check_tensors(g, size);
	check_readers(path);
	gguf_close(g);
	nr_taken++;
	return 0;
}

#ifndef FUZZ_LIB
/* ---- own mutations ---- */

static const char * const words[] = {
	"GGUF", "general.alignment", "split.no", "split.count",
	"split.tensors.count", "a", "b", "llama", "gemma4",
	"tokenizer.ggml.model", "tokenizer.ggml.tokens",
	"tokenizer.ggml.token_type", "tokenizer.ggml.scores",
	"tokenizer.ggml.merges", "tokenizer.chat_template", "{{bos_token}}",
	"tokenizer.ggml.bos_token_id",
};

/* Append @bytes bytes of a number. */
static size_t put(u8 *buf, size_t len, u64 v, u32 bytes)
{
	memcpy(buf + len, &v, bytes);
	return len + bytes;
}

static size_t put_name(u8 *buf, size_t len, char first, u32 i)
{
	len = put(buf, len, 2, 8);
	buf[len++] = (u8)first;
	buf[len++] = (u8)('a' + i);
	return len;
}

/* A value of any kind, mostly a sound one. */
static size_t put_value(u8 *buf, size_t len)
{
	const u32 sizes[] = { 1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8, 0 };
	u32 kind = fuzz_draw(fuzz_draw(20) ? 13 : 14), nr = 1;

	len = put(buf, len, kind, 4);
	if (kind == GGUF_ARRAY) {
		kind = fuzz_draw(13);
		nr = fuzz_draw(5);
		len = put(buf, len, kind, 4);
		len = put(buf, len, nr, 8);
	}
	for (; nr; nr--)
		len = kind == GGUF_STRING ? put_name(buf, len, 's', nr) :
		      put(buf, len, fuzz_draw(2), sizes[kind]);
	return len;
}

/* A type, mostly one without blocks. */
static u32 draw_type(void)
{
	static const u32 types[] = { 0, 1, 30, 8, 2, 12, 39, 19, 77 };

	return types[fuzz_draw(fuzz_draw(4) ? 3 : ARRAY_SIZE(types))];
}

/* Write a file with some keys and tensors, mostly valid. */
static size_t whole(u8 *buf)
{
	const u32 keys = fuzz_draw(5), tensors = fuzz_draw(5);
	size_t len = 0;
	u32 i, type;

	memcpy(buf, "GGUF", 4);
	len = put(buf, 4, 3, 4);
	len = put(buf, len, tensors, 8);
	len = put(buf, len, keys, 8);
	for (i = 0; i < keys; i++)
		len = put_value(buf, put_name(buf, len, 'k', i));
	for (i = 0; i < tensors; i++) {
		type = draw_type();
		len = put_name(buf, len, 't', i);
		len = put(buf, len, 2, 4);
		len = put(buf, len, type == 12 ? 256 : type > 1 ? 32 : 8, 8);
		len = put(buf, len, 1, 8);
		len = put(buf, len, type, 4);
		len = put(buf, len, (u64)i * 160, 8);
	}
	while (len % 32)
		buf[len++] = 0;
	memset(buf + len, 7, 160 * tensors);
	return len + 160 * tensors;
}

/* An input that was read, or a new one. */
static size_t begin(u8 *buf, size_t max)
{
	const u8 *data;
	size_t len;

	if (fuzz_draw(3))
		return whole(buf);
	data = fuzz_input(&len);
	len = min(len, max);
	memcpy(buf, data, len);
	return len;
}

/* Change a number, a byte or a name. */
static size_t mutate(u8 *buf, size_t len, size_t max)
{
	static const u64 odd[] = {
		0, 1, 2, 3, 4, 8, 9, 12, 13, 31, 32, 64, 255, 1u << 20,
		UINT32_MAX, 1ull << 40, INT64_MAX, UINT64_MAX,
	};
	const char *w = words[fuzz_draw(ARRAY_SIZE(words))];
	const size_t at = fuzz_draw((u32)len + 1);
	u64 v = odd[fuzz_draw(ARRAY_SIZE(odd))];
	u32 bytes = 1u << fuzz_draw(4);

	if (!fuzz_draw(4)) {
		v = strlen(w);
		len = fuzz_put(buf, len, max, at, 8, &v, 8);
		return fuzz_put(buf, len, max, min(at + 8, len), 2, w,
				strlen(w));
	}
	if (!fuzz_draw(10))
		return at;
	bytes = (u32)min((size_t)bytes, len - at);
	return fuzz_put(buf, len, max, at, bytes, &v, bytes);
}

const struct fuzz_own fuzz_own = {
	.words = words, .nr_words = ARRAY_SIZE(words), .begin = begin,
	.mutate = mutate, .changes = 3, .taken = &nr_taken,
};
#endif
