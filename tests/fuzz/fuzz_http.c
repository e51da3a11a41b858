// SPDX-License-Identifier: Apache-2.0
/*
 * fuzz_http.c - bytes of an untrusted client to the server, up to where work begins
 *
 * The first byte of an input says how the others are used: as the bytes of a
 * connection, or as a body for one of the paths that take one.  A connection is a
 * head, a body by its length or in chunks, and then the work of its path on the
 * body.  Chunks are decoded twice, at once and in pieces of a size that the second
 * byte says: the results must be equal.
 *
 * Laws: a refusal has a status that the server knows, a phrase, and as an error
 * in JSON that can be parsed; an accepted request keeps every limit that the
 * engine and the answers rely on; an answer about tokens counts right.
 *
 * For a fuzzer: make fuzz T=http, or, without the rest of the tree,
 *	clang -g -O1 -fsanitize=fuzzer,address,undefined -DFUZZ_LIB -Iinclude -I. \
 *		-D_GNU_SOURCE= -o build/fuzz_http tests/fuzz/{fuzz_http,engine}.c \
 *		runtime/server/{http,text,fields,params,prompt,chat}.c \
 *		runtime/server/{guard,stop,tokens}.c runtime/libkvmm/identity.c \
 *		runtime/{template,tokenizer,sampler,lib}/?*.c \
 *		-ljansson -lpcre2-8 -lutf8proc -lxxhash -lm
 */
#include <jansson.h>

#include <kvmm/http.h>

#include "runtime/server/api.h"
#include "runtime/server/tokens.h"
#include "runtime/template/chat.h"
#include "tests/fuzz/fuzz.h"

#define VOCAB		4096u
#define MAX_LEN		256u
#define MAX_SAMPLES	64u
#define MAX_BODY	2048u

static struct model_info info = {
	.nr_vocab = VOCAB, .max_len = MAX_LEN, .nr_eos = 1, .eos_ids = { 2 },
};
static struct api_model m = {
	.name = "demo", .info = &info, .priority = 100,
	.max_samples = MAX_SAMPLES,
};

static void model_load_once(void)
{
	const char *top = getenv("KVMM_TOP");
	char path[512], why[TOKENIZER_ERR_MAX];
	struct tokenizer *tok;
	struct chat *chat;

	if (m.tok)
		return;
	snprintf(path, sizeof(path), "%s/tests/data/demo-model", top ? top : ".");
	if (tokenizer_load(path, &tok, why, sizeof(why)) ||
	    chat_load(path, NULL, &chat, why, sizeof(why))) {
		fprintf(stderr, "%s: set KVMM_TOP to the tree\n", why);
		exit(1);
	}
	m.tok = tok;
	m.chat = chat;
}

/* ---- laws ---- */

static void check_error(const struct api_error *err)
{
	struct text t = { 0 };
	json_t *v, *e;

	FUZZ_LAW(strcmp(http_status_text(err->status), "Unknown"), "%d",
		 err->status);
	FUZZ_LAW(err->status >= 400 && err->status < 500, "%d %s", err->status,
		 err->message);
	FUZZ_LAW(*err->message && *err->code, "%d", err->status);
	api_error_json(&t, err);
	v = json_loadb(t.p, t.len, JSON_REJECT_DUPLICATES, NULL);
	e = json_object_get(v, "error");
	FUZZ_LAW(json_object_size(e) == 4, "%.*s", (int)t.len, t.p);
	json_decref(v);
	text_free(&t);
}

static void check_prompts(const struct api_params *p)
{
	u32 i, k;

	FUZZ_LAW(p->nr_prompts && p->n && p->n <= API_N_MAX &&
		 (u64)p->nr_prompts * p->n <= MAX_SAMPLES, "%u * %u",
		 p->nr_prompts, p->n);
	for (i = 0; i < p->nr_prompts; i++) {
		const struct api_prompt *q = &p->prompts[i];

		FUZZ_LAW(q->nr && q->nr + (u64)p->max_new <= MAX_LEN, "%u + %u",
			 q->nr, p->max_new);
		for (k = 0; k < q->nr; k++)
			FUZZ_LAW(q->ids[k] < VOCAB, "%u", q->ids[k]);
		FUZZ_LAW(!p->echo || q->text, "prompt %u has no text", i);
	}
}

static void check_params(const struct api_params *p)
{
	const char *why = "";
	u32 i;

	check_prompts(p);
	FUZZ_LAW(p->max_new, "%u", p->max_new);
	FUZZ_LAW(!sampling_params_check(&p->sampling, &why), "%s", why);
	FUZZ_LAW(p->nr_stop_ids <= ARRAY_SIZE(p->stop_ids) &&
		 p->nr_own_ids <= API_STOP_IDS_MAX &&
		 p->nr_own_ids <= p->nr_stop_ids, "%u", p->nr_stop_ids);
	for (i = 0; i < p->nr_stop_ids; i++)
		FUZZ_LAW(p->stop_ids[i] < VOCAB, "%u", p->stop_ids[i]);
	FUZZ_LAW(strlen(p->id) <= API_ID_MAX, "%s", p->id);
}

/* ---- bodies ---- */

static void body_work(enum api_kind kind, const char *body, size_t len)
{
	struct api_error err = { 0 };
	struct api_params p;

	if (api_prepare(&m, kind, body, len, &p, &err))
		check_error(&err);
	else
		check_params(&p);
	api_params_free(&p);
}

static void check_answer(enum api_kind kind, const struct text *t)
{
	json_t *v = json_loadb(t->p, t->len, JSON_REJECT_DUPLICATES |
			       JSON_ALLOW_NUL, NULL);
	json_t *tokens = json_object_get(v, "tokens");
	json_t *strs = json_object_get(v, "token_strs");

	FUZZ_LAW(v != NULL, "%.*s", (int)t->len, t->p);
	if (kind == API_DETOKENIZE) {
		FUZZ_LAW(json_is_string(json_object_get(v, "prompt")), "%.*s",
			 (int)t->len, t->p);
	} else {
		FUZZ_LAW(json_integer_value(json_object_get(v, "count")) ==
			 (json_int_t)json_array_size(tokens), "%.*s",
			 (int)t->len, t->p);
		FUZZ_LAW(json_is_null(strs) ||
			 json_array_size(strs) == json_array_size(tokens),
			 "%.*s", (int)t->len, t->p);
	}
	json_decref(v);
}

static void body_tokens(enum api_kind kind, const char *body, size_t len)
{
	struct api_error err = { 0 };
	struct text t = { 0 };
	json_t *root = api_parse(body, len, &err);

	if (!root || tokens_read(&m, kind, root, &t, &err))
		check_error(&err);
	else
		check_answer(kind, &t);
	json_decref(root);
	text_free(&t);
}

static void body_read(u32 which, const u8 *data, size_t size)
{
	static const enum api_kind kinds[] = {
		API_COMPLETION, API_CHAT, API_TOKENIZE, API_DETOKENIZE,
	};
	const enum api_kind kind = kinds[which % ARRAY_SIZE(kinds)];
	/* In a heap block of this size, so that the sanitizers see reads outside. */
	char *body = malloc(size ? size : 1);

	if (!body)
		abort();
	memcpy(body, data, size);
	if (kind & API_TOKENS)
		body_tokens(kind, body, size);
	else
		body_work(kind, body, size);
	free(body);
}

/* ---- a connection ---- */

/* Decode @n bytes in pieces of @step.  Return: as http_chunks_push(). */
static int chunks_take(const char *p, size_t n, size_t step, size_t *used,
		       struct text *out)
{
	struct http_chunks c = { 0 };
	size_t at = 0, took = 0;
	int ret = 0;

	while (!ret && at < n) {
		const size_t piece = min(step, n - at);

		ret = http_chunks_push(&c, p + at, piece, &took, out, MAX_BODY);
		FUZZ_LAW(took <= piece, "%zu of %zu", took, piece);
		FUZZ_LAW(ret || took == piece, "%zu of %zu", took, piece);
		at += took;
	}
	*used = at;
	return ret;
}

static void path_read(const struct http_head *h, const char *body, size_t len)
{
	static const char * const paths[] = {
		"/v1/completions", "/v1/chat/completions", "/tokenize",
		"/detokenize",
	};
	u32 i;

	for (i = 0; i < ARRAY_SIZE(paths); i++)
		if (h->path_len == strlen(paths[i]) &&
		    !memcmp(h->path, paths[i], h->path_len))
			body_read(i, (const u8 *)body, len);
}

static void chunked_read(const struct http_head *h, const char *p, size_t n,
			 u32 step)
{
	struct text all = { 0 }, parts = { 0 };
	size_t used, used_parts;
	int ret = chunks_take(p, n, n, &used, &all);
	int ret_parts = chunks_take(p, n, step + 1, &used_parts, &parts);

	FUZZ_LAW(ret == ret_parts, "%d %d", ret, ret_parts);
	FUZZ_LAW(ret < 0 || (used == used_parts && all.len == parts.len &&
			     (!all.len || !memcmp(all.p, parts.p, all.len))),
		 "%zu %zu", used, used_parts);
	FUZZ_LAW(ret == 0 || ret == 1 || ret == -400 || ret == -413, "%d", ret);
	FUZZ_LAW(all.len <= MAX_BODY, "%zu", all.len);
	if (ret == 1)
		path_read(h, all.len ? all.p : "", all.len);
	text_free(&all);
	text_free(&parts);
}

static void check_head(const struct http_head *h, const char *p, size_t n)
{
	const struct http_answer a = {
		.status = 404, .type = "text/plain", .id = h->id,
		.http10 = h->http10, .close = !h->keep_alive,
	};
	struct text t = { 0 };

	FUZZ_LAW(h->path >= p && h->path_len && h->path + h->path_len <= p + n,
		 "%zu", h->path_len);
	FUZZ_LAW(!h->bearer || (h->bearer >= p &&
				h->bearer + h->bearer_len <= p + n), "%zu",
		 h->bearer_len);
	FUZZ_LAW(!h->chunked || !h->length, "%llu", (unsigned long long)h->length);
	FUZZ_LAW(h->method < HTTP_NR_METHODS, "%d", h->method);
	/* Parts of the request that are repeated must leave the answer's head whole. */
	http_write_head(&t, &a);
	FUZZ_LAW(http_find_head(t.p, t.len) == t.len, "%.*s", (int)t.len, t.p);
	text_free(&t);
}

static void connection_read(struct fuzz *f)
{
	const u32 step = fuzz_u8(f) % 32;
	const char *p = (const char *)f->p, *why = "";
	const size_t n = http_find_head(p, f->left);
	struct http_head h;
	char *head;
	int ret;

	if (!n)
		return;
	head = malloc(n);
	if (!head)
		abort();
	memcpy(head, p, n);
	ret = http_parse_head(head, n, &h, &why);
	FUZZ_LAW(!ret || (ret >= 400 && *why &&
			  strcmp(http_status_text(ret), "Unknown")), "%d", ret);
	if (!ret) {
		check_head(&h, head, n);
		if (h.chunked)
			chunked_read(&h, p + n, f->left - n, step);
		else if (h.length <= f->left - n && h.length <= MAX_BODY)
			path_read(&h, p + n, (size_t)h.length);
	}
	free(head);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	struct fuzz f = { data, size };
	u32 what;

	model_load_once();
	what = fuzz_of(&f, 5);
	if (what)
		body_read(what - 1, f.p, f.left);
	else
		connection_read(&f);
	return 0;
}
