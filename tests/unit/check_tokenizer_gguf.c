// SPDX-License-Identifier: Apache-2.0
/*
 * check_tokenizer_gguf.c - tokenizers of GGUF files and of folders
 *
 * The tokenizers of tests/data/tokenizers are written as GGUF files, as a converter
 * writes them.  Folder and file must give the same ids and texts, for the texts of
 * golden.bin and for random ones.  Flags of added tokens that a GGUF file does not
 * have are removed from the folder first.  The two folders gguf-* need no change, so
 * there the ids are those of Hugging Face's library, too.
 *
 * KVMM_GGUF_GOLDEN names a folder of more models (tests/peers/gguf_tokens.py): each
 * has model.gguf, and some of tokenizer.json, golden.bin and published.bin.
 */
#include <dirent.h>

#include "tests/level.h"
#include "tests/unit/gguf_token_fixture.h"

static u32 more[IDS_MAX];
static u32 nr_texts, nr_published;
static const char *model = "";

/* ---- a GGUF file of a tokenizer.json ---- */

/* How a folder is written. */
struct shape {
	const char	*folder;
	const char	*model;
	const char	*pre;
	const char	*bos;
	bool		scores;		/* the merges are those of the scores */
	bool		exact;		/* golden.bin holds for the file, too */
};

#define NAMES_MAX	2048

struct name {
	const char	*text;
	u32		type;
};

static struct name names[NAMES_MAX];

static u32 names_collect(json_t *root)
{
	json_t *vocab = json_object_get(json_object_get(root, "model"), "vocab");
	json_t *v;
	const char *text;
	u32 id, nr = 0;
	size_t i;

	memset(names, 0, sizeof(names));
	json_object_foreach(vocab, text, v) {
		id = (u32)json_integer_value(v);
		ck_assert_uint_lt(id, NAMES_MAX);
		names[id] = (struct name){ text, strncmp(text, "<0x", 3) ||
					   strlen(text) != 6 ? 1 : 6 };
		nr = max(nr, id + 1);
	}
	json_array_foreach(json_object_get(root, "added_tokens"), i, v) {
		id = (u32)json_integer_value(json_object_get(v, "id"));
		ck_assert_uint_lt(id, NAMES_MAX);
		names[id].text = json_string_value(json_object_get(v, "content"));
		names[id].type = json_is_true(json_object_get(v, "special")) ?
				 3 : 4;
		nr = max(nr, id + 1);
	}
	return nr;
}

static void put_names(FILE *f, u32 nr, bool chars)
{
	char filler[24];
	u32 i;
	float score;
	u32 bits;

	put_list(f, "tokenizer.ggml.tokens", 8, nr);
	for (i = 0; i < nr; i++) {
		snprintf(filler, sizeof(filler), "[PAD%u]", i);
		put_text(f, names[i].text ? names[i].text : filler);
	}
	put_list(f, "tokenizer.ggml.token_type", 5, nr);
	for (i = 0; i < nr; i++)
		gt_number(f, names[i].text ? names[i].type : 5, 4);
	if (!chars)
		return;
	put_list(f, "tokenizer.ggml.scores", 6, nr);
	for (i = 0; i < nr; i++) {
		/* As in make_tokenizers.py; that of an added token is lost. */
		score = names[i].type == 1 ? -(float)(i / 3) : -1000;
		memcpy(&bits, &score, 4);
		gt_number(f, bits, 4);
	}
}

static void put_merges(FILE *f, const json_t *merges)
{
	const json_t *v;
	char text[512];
	size_t i;

	put_list(f, "tokenizer.ggml.merges", 8, json_array_size(merges));
	json_array_foreach(merges, i, v) {
		if (json_is_array(v))
			snprintf(text, sizeof(text), "%s %s",
				 json_string_value(json_array_get(v, 0)),
				 json_string_value(json_array_get(v, 1)));
		put_text(f, json_is_array(v) ? text : json_string_value(v));
	}
}

static void gguf_write(const struct shape *s, json_t *root)
{
	const bool chars = strcmp(s->model, "gpt2");
	const u32 nr = names_collect(root);
	FILE *f = fopen(model_path(), "w");
	u32 bos = 0;

	ck_assert_ptr_nonnull(f);
	fputs("GGUF", f);
	gt_number(f, 3, 4);
	gt_number(f, 0, 8);
	gt_number(f, 5u + !!s->pre + chars + !s->scores + !!s->bos, 8);
	put_key(f, "tokenizer.ggml.model", 8);
	put_text(f, s->model);
	if (s->pre) {
		put_key(f, "tokenizer.ggml.pre", 8);
		put_text(f, s->pre);
	}
	put_names(f, nr, chars);
	if (!s->scores)
		put_merges(f, json_object_get(json_object_get(root, "model"),
					      "merges"));
	put_key(f, "tokenizer.ggml.unknown_token_id", 4);
	gt_number(f, 0, 4);
	if (s->bos) {
		while (!names[bos].text || strcmp(names[bos].text, s->bos))
			bos++;
		put_key(f, "tokenizer.ggml.bos_token_id", 4);
		gt_number(f, bos, 4);
	}
	put_key(f, "tokenizer.ggml.add_bos_token", 7);
	gt_number(f, !!s->bos, 1);
	ck_assert_int_eq(fclose(f), 0);
}

/* ---- comparing ---- */

static const u32 all_flags[] = {
	0, TOKENIZER_PLAIN, TOKENIZER_ADD_BOS | TOKENIZER_ADD_EOS,
	TOKENIZER_PLAIN | TOKENIZER_ADD_BOS,
};

static void expect_same_text(const u32 *list, size_t nr)
{
	const size_t room = max(detok_out_max(tok), detok_out_max(other));
	char *a = malloc(room), *b = malloc(room);
	struct detok da, db;
	ssize_t na, nb;
	size_t i;

	detok_init(&da, tok, nr & 1);
	detok_init(&db, other, nr & 1);
	for (i = 0; i <= nr; i++) {
		na = i < nr ? detok_push(&da, list[i], a, room) :
			      detok_flush(&da, a, room);
		nb = i < nr ? detok_push(&db, list[i], b, room) :
			      detok_flush(&db, b, room);
		ck_assert_msg(na == nb && na >= 0 && !memcmp(a, b, (size_t)na),
			      "id %u: \"%.*s\" and \"%.*s\"", i < nr ? list[i] :
			      0, (int)na, a, (int)nb, b);
	}
	free(a);
	free(b);
}

static void expect_same(const char *text, size_t len)
{
	ssize_t n, m;
	size_t k, i;

	for (k = 0; k < ARRAY_SIZE(all_flags); k++) {
		n = tokenizer_encode(tok, text, len, all_flags[k], ids,
				     IDS_MAX, NULL);
		m = tokenizer_encode(other, text, len, all_flags[k], more,
				     IDS_MAX, NULL);
		if (n == -E2BIG && m == -E2BIG)
			continue;
		ck_assert_msg(n == m && n >= 0, "%s: \"%.*s\": %zd and %zd "
			      "ids", model, (int)len, text, n, m);
		for (i = 0; i < (size_t)n; i++)
			ck_assert_msg(ids[i] == more[i], "%s: \"%.*s\": id %zu "
				      "is %u and %u", model, (int)len, text, i,
				      ids[i], more[i]);
		expect_same_text(ids, (size_t)n);
	}
	nr_texts++;
}

/* The file gives the ids @want. */
static void expect_given(const char *text, size_t len, u32 flags,
			 const u8 *want, u32 nr)
{
	ssize_t n = tokenizer_encode(other, text, len, flags, more, IDS_MAX,
				     NULL);
	u32 i, id;

	if (n == -E2BIG)
		return;
	ck_assert_msg(n == (ssize_t)nr, "%s: \"%.*s\": %zd ids, not %u",
		      model, (int)len, text, n, nr);
	for (i = 0; i < nr; i++) {
		memcpy(&id, want + 4 * i, 4);
		ck_assert_msg(more[i] == id, "%s: \"%.*s\": id %u is %u, not "
			      "%u", model, (int)len, text, i, more[i], id);
	}
	nr_published++;
}

static u8 *golden_read(const char *path, size_t *len)
{
	FILE *f = fopen(path, "re");
	u8 *p;

	ck_assert_msg(f, "%s", path);
	fseek(f, 0, SEEK_END);
	*len = (size_t)ftell(f);
	rewind(f);
	p = malloc(*len + 1);
	ck_assert_uint_eq(fread(p, 1, *len, f), *len);
	fclose(f);
	return p;
}

static u32 golden_u32(const u8 *p, size_t len, size_t *at)
{
	u32 v;

	ck_assert_uint_le(*at + 4, len);
	memcpy(&v, p + *at, 4);
	*at += 4;
	return v;
}

/*
 * Encode the texts of a golden.bin.  @exact: its ids hold for the file; those of
 * kind 2 have the tokens around.
 */
static void golden_run(const char *path, bool both, bool exact)
{
	static const u32 flags[] = {
		0, TOKENIZER_PLAIN, TOKENIZER_ADD_BOS | TOKENIZER_ADD_EOS,
	};
	size_t len, at = 0, text;
	u8 *p = golden_read(path, &len);
	u32 kind, n, nr;

	while (at < len) {
		kind = golden_u32(p, len, &at);
		n = golden_u32(p, len, &at);
		text = at;
		at += n;
		nr = golden_u32(p, len, &at);
		ck_assert_uint_le(at + 4ul * nr, len);
		if (kind < 3 && both)
			expect_same((char *)p + text, n);
		if (kind < 3 && exact)
			expect_given((char *)p + text, n, flags[kind], p + at,
				     nr);
		at += 4ul * nr;
	}
	free(p);
}

static u64 seed = 1;

static u32 draw(u32 n)
{
	seed = seed * 6364136223846793005ull + 1442695040888963407ull;
	return (u32)(seed >> 33) % n;
}

static size_t put_point(char *to, u32 cp)
{
	return cp < 0x80 ? (size_t)sprintf(to, "%c", (int)cp) :
	       cp < 0x800 ? (size_t)sprintf(to, "%c%c", (int)(0xc0 | cp >> 6),
					    (int)(0x80 | (cp & 0x3f))) :
	       cp < 0x10000 ? (size_t)sprintf(to, "%c%c%c", (int)(0xe0 | cp >> 12),
			(int)(0x80 | (cp >> 6 & 0x3f)), (int)(0x80 | (cp & 0x3f))) :
	       (size_t)sprintf(to, "%c%c%c%c", (int)(0xf0 | cp >> 18),
			(int)(0x80 | (cp >> 12 & 0x3f)),
			(int)(0x80 | (cp >> 6 & 0x3f)), (int)(0x80 | (cp & 0x3f)));
}

/* A piece of a text: a token, spaces, digits, ends of words, any character. */
static size_t put_piece(char *to)
{
	static const char * const odd[] = {
		" ", "  ", "\n", "\r\n", "\t", "'s", "'LL", "<s>", "<|l|>", "</s>",
		"<|l|", "\u2581", "word", "[PAD700]", "\u4f60\u597d", "\u0301",
		"\U0001f600", "\u200d", "\u00a0", "\x7f", "<0x41>", "12345", "3.14",
		"\u00e9", "e\u0301", "\u0663\u00bd", "naive", "   x", "...",
	};
	const char *name;
	u32 cp;

	switch (draw(4)) {
	case 0:
		name = names[draw(700)].text;
		if (!name)
			return 0;
		strcpy(to, name);
		return strlen(to);
	case 1:
		cp = draw(3) ? draw(0x3000) : draw(0x110000);
		/* Not a half of a pair, and no NUL, which ends sprintf()'s text. */
		return cp && (cp < 0xd800 || cp > 0xdfff) ? put_point(to, cp) : 0;
	case 2:
		name = odd[draw(ARRAY_SIZE(odd))];
		strcpy(to, name);
		return strlen(name);
	default:
		*to = (char)(' ' + draw(95));
		return 1;
	}
}

static void random_run(u32 nr)
{
	char text[4096];
	size_t len;
	u32 pieces;

	while (nr--) {
		len = 0;
		for (pieces = draw(24); pieces; pieces--)
			len += put_piece(text + len);
		expect_same(text, len);
	}
}

static void load_both(void)
{
	ck_assert_msg(!tokenizer_load(dir, &tok, err, sizeof(err)), "%s", err);
	load_other();
	ck_assert_uint_eq(tokenizer_vocab_size(tok),
			  tokenizer_vocab_size(other));
}

static const struct shape shapes[] = {
	{ .folder = "gguf-bytes", .model = "gpt2", .pre = "qwen2",
	  .bos = "<|l|>", .exact = true },
	{ .folder = "gguf-chars", .model = "llama", .pre = "default",
	  .bos = "<s>", .scores = true, .exact = true },
	{ .folder = "gpt2", .model = "gpt2", .pre = "gpt-2" },
	{ .folder = "opt", .model = "gpt2", .pre = "phi-2", .bos = "<|l|>" },
	{ .folder = "gpt-neox", .model = "gpt2", .pre = "mpt" },
	{ .folder = "llama3", .model = "gpt2", .pre = "llama-bpe", .bos = "<|l|>" },
	{ .folder = "qwen2", .model = "gpt2", .pre = "qwen2" },
	{ .folder = "smollm", .model = "gpt2", .pre = "smollm" },
	{ .folder = "yi", .model = "gemma4", .bos = "<s>" },
	{ .folder = "gemma", .model = "gemma4", .bos = "<s>" },
};

/*
 * Remove what a GGUF file cannot say.  A user-defined token of spaces stands for one
 * of marks there, so that of the folders becomes a special one.
 */
static void flags_remove(json_t *root)
{
	json_t *v;
	size_t i;

	json_array_foreach(json_object_get(root, "added_tokens"), i, v) {
		json_object_set_new(v, "lstrip", json_false());
		json_object_set_new(v, "rstrip", json_false());
		json_object_set_new(v, "single_word", json_false());
		json_object_set_new(v, "normalized", json_false());
		if (!strcmp(json_string_value(json_object_get(v, "content")),
			    "  "))
			json_object_set_new(v, "special", json_true());
	}
}

START_TEST(test_shapes)
{
	const struct shape *s = &shapes[_i];
	char name[128];
	json_t *root;

	snprintf(name, sizeof(name), "tokenizers/%s/tokenizer.json", s->folder);
	root = data_read(name);
	if (!s->exact)
		flags_remove(root);
	json_write("tokenizer.json", root);
	gguf_write(s, root);
	load_both();
	snprintf(name, sizeof(name), "tokenizers/%s/golden.bin", s->folder);
	golden_run(data_path(name), true, s->exact);
	random_run(level_is_check() ? 400 : 20000);
	json_decref(root);
}
END_TEST

/* ---- real vocabularies ---- */

static void model_run(const char *folder, const char *name)
{
	char path[700];
	bool both;

	model = name;
	nr_texts = nr_published = 0;
	snprintf(path, sizeof(path), "%s/%s/model.gguf", folder, name);
	ck_assert_msg(!tokenizer_load(path, &other, err, sizeof(err)), "%s",
		      err);
	snprintf(path, sizeof(path), "%s/%s/tokenizer.json", folder, name);
	both = !access(path, R_OK);
	snprintf(path, sizeof(path), "%s/%s", folder, name);
	if (both)
		ck_assert_msg(!tokenizer_load(path, &tok, err, sizeof(err)),
			      "%s", err);
	snprintf(path, sizeof(path), "%s/%s/golden.bin", folder, name);
	if (!access(path, R_OK))
		golden_run(path, both, true);
	printf("%s: %u texts as from the folder, %u as from the library",
	       name, nr_texts, nr_published);
	nr_published = 0;
	snprintf(path, sizeof(path), "%s/%s/published.bin", folder, name);
	if (!access(path, R_OK))
		golden_run(path, false, true);
	printf(", %u as published\n", nr_published);
	fflush(stdout);
	tokenizer_free(tok);
	tokenizer_free(other);
	tok = other = NULL;
}

START_TEST(test_named)
{
	const char *folder = getenv("KVMM_GGUF_GOLDEN");
	struct dirent **list;
	int n, i;

	if (!folder)
		return;
	n = scandir(folder, &list, NULL, alphasort);
	ck_assert_msg(n > 2, "%s", folder);
	for (i = 0; i < n; i++) {
		if (list[i]->d_name[0] != '.')
			model_run(folder, list[i]->d_name);
		free(list[i]);
	}
	free(list);
}
END_TEST

static Suite *gguf_suite(void)
{
	Suite *s = suite_create("tokenizer-gguf");
	TCase *tc;

	tc = gguf_case(s, "folders");
	tcase_add_loop_test(tc, test_shapes, 0, ARRAY_SIZE(shapes));
	tc = gguf_case(s, "named");
	tcase_set_timeout(tc, 7200);
	tcase_add_test(tc, test_named);
	return s;
}

int main(void)
{
	return suite_run(gguf_suite());
}
