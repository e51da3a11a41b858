// SPDX-License-Identifier: Apache-2.0
/*
 * load_pair.c - vocab.json and merges.txt, as GPT-2 and OPT are published
 *
 * Folders from before tokenizer.json hold only the vocabulary and the merges.
 * All other facts (how a text is cut, which tokens are special) are in the
 * program that reads them.  Here they are written down: the equivalent
 * tokenizer.json is built in memory and read like any other, so the same rules
 * hold.  Other programs cut texts in other ways from the same two files
 * (Qwen2Tokenizer, RobertaTokenizer).  So a folder with another class than
 * GPT2Tokenizer, by tokenizer_config.json or else by the model's type, is
 * refused by name.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/tokenizer/internal.h"

/* Files of a folder; all but @vocab may be missing. */
struct pair {
	json_t	*vocab;
	json_t	*config;	/* tokenizer_config.json */
	json_t	*special;	/* special_tokens_map.json */
	json_t	*more;		/* added_tokens.json, from before 2023 */
	json_t	*model;		/* config.json */
};

/*
 * Check the class of the tokenizer, or the one that the model's type implies.
 */
static int pair_check_class(const struct load_ctx *ctx, const struct pair *p)
{
	const char *class, *type;

	class = json_string_value(json_object_get(p->config,
						  "tokenizer_class"));
	type = json_string_value(json_object_get(p->model, "model_type"));
	if (class ? !strcmp(class, "GPT2Tokenizer") ||
		    !strcmp(class, "GPT2TokenizerFast") :
		    type && (!strcmp(type, "gpt2") || !strcmp(type, "opt")))
		return 0;
	return load_fail(ctx, -EOPNOTSUPP, "vocab.json and merges.txt of %.40s "
			 "are not supported: save the model's tokenizer as "
			 "tokenizer.json", class ? class : type ? type :
			 "a model that is not named");
}

/*
 * The added tokens while they are collected.  A special token is given by its
 * text alone; its id is that of the vocabulary or of added_tokens.json.
 */
struct gathered {
	json_t		*list;
	json_t		*names;		/* texts in @list */
	const json_t	*vocab;
	const json_t	*more;		/* added_tokens.json, or NULL */
};

/* Append @entry, which the list then owns. */
static int added_append(struct gathered *g, json_t *entry, const char *text)
{
	int err = json_object_set_new(g->names, text, json_true());

	return json_array_append_new(g->list, entry) || err ? -ENOMEM : 0;
}

static json_t *added_entry(const char *text, const json_t *id, bool special)
{
	return json_pack("{ss sO sb sb}", "content", text, "id", id,
			 "special", special, "normalized", !special);
}

/* Add a special token: its text, or an object with text and flags. */
static int added_put(struct gathered *g, const json_t *v)
{
	static const char * const flags[] = {
		"normalized", "lstrip", "rstrip", "single_word",
	};
	const json_t *content = json_object_get(v, "content"), *id;
	const char *s = json_string_value(content ? content : v);
	json_t *entry, *flag;
	size_t i;
	int err = 0;

	if (!s || !*s || json_object_get(g->names, s))
		return 0;
	id = json_object_get(g->vocab, s);
	if (!id)
		id = json_object_get(g->more, s);
	if (!id)
		return 0;
	entry = added_entry(s, id, true);
	for (i = 0; i < ARRAY_SIZE(flags) && !err; i++) {
		flag = json_object_get(v, flags[i]);
		if (flag)
			err = json_object_set(entry, flags[i], flag);
	}
	return added_append(g, entry, s) || err ? -ENOMEM : 0;
}

/* Add the special tokens that a file names by their roles. */
static int added_put_roles(struct gathered *g, const json_t *file)
{
	static const char * const roles[] = {
		"bos_token", "eos_token", "unk_token", "sep_token",
		"pad_token", "cls_token", "mask_token",
	};
	const json_t *list = json_object_get(file, "additional_special_tokens");
	const json_t *v;
	size_t i;
	int err = 0;

	for (i = 0; i < ARRAY_SIZE(roles) && !err; i++)
		err = added_put(g, json_object_get(file, roles[i]));
	json_array_foreach((json_t *)list, i, v)
		if (!err)
			err = added_put(g, v);
	return err;
}

/* Add the entries of the config's map, which are complete. */
static int added_put_map(struct gathered *g, const json_t *map)
{
	const char *key, *text;
	json_t *v, *copy;
	char *end;
	u64 id;
	int err = 0;

	json_object_foreach((json_t *)map, key, v) {
		text = json_string_value(json_object_get(v, "content"));
		id = strtoull(key, &end, 10);
		if (!text || !*text || *end || end == key)
			continue;	/* added_load_map() reports the error */
		copy = json_copy(v);
		err = json_object_set_new(copy, "id", json_real((double)id));
		if (added_append(g, copy, text) || err)
			return -ENOMEM;
	}
	return 0;
}

/* Add the tokens of added_tokens.json that are not special. */
static int added_put_more(struct gathered *g)
{
	const char *text;
	json_t *id;

	json_object_foreach((json_t *)g->more, text, id)
		if (*text && !json_object_get(g->names, text) &&
		    added_append(g, added_entry(text, id, false), text))
			return -ENOMEM;
	return 0;
}

static json_t *pair_added(const struct pair *p)
{
	const json_t *map = json_object_get(p->config, "added_tokens_decoder");
	struct gathered g = {
		.list = json_array(), .names = json_object(),
		.vocab = p->vocab, .more = map ? NULL : p->more,
	};

	if (!g.list || !g.names || added_put_map(&g, map) ||
	    added_put_roles(&g, p->config) || added_put_roles(&g, p->special) ||
	    added_put_more(&g)) {
		json_decref(g.list);
		g.list = NULL;
	}
	json_decref(g.names);
	return g.list;
}

/* One merge a line; the first line may be the version of the format. */
static json_t *merges_parse(const char *text, size_t len)
{
	const char *line = text, *end = text + len, *stop;
	json_t *list = json_array();
	bool ok = list;

	/* If there are more lines, merges_load() reports too many merges. */
	for (; ok && line < end && json_array_size(list) < TOKENIZER_ID_LIMIT;
	     line = stop + 1) {
		stop = memchr(line, '\n', (size_t)(end - line));
		stop = stop ? stop : end;
		if (stop > line && (line > text || strncmp(line, "#version", 8)))
			ok = !json_array_append_new(list, json_stringn(line,
						    (size_t)(stop - line)));
	}
	if (!ok) {
		json_decref(list);
		return NULL;
	}
	return list;
}

static int pair_merges(struct load_ctx *ctx, const char *dir, json_t **merges)
{
	char *text;
	size_t len;
	int err;

	err = load_file(ctx, dir, "merges.txt", &text, &len);
	if (err)
		return err;
	*merges = merges_parse(text, len);
	free(text);
	if (!*merges)
		return load_fail(ctx, -EINVAL, "a line is no UTF-8: copy the "
				 "file again");
	return 0;
}

/* Build the equivalent tokenizer.json; takes over @merges. */
static json_t *pair_build(const struct pair *p, json_t *merges)
{
	const int prefix = json_is_true(json_object_get(p->config,
							"add_prefix_space"));

	return json_pack("{so s{ss sb sb} s{ss} s{ss sO so}}",
			 "added_tokens", pair_added(p),
			 "pre_tokenizer", "type", "ByteLevel",
			 "add_prefix_space", prefix, "use_regex", 1,
			 "decoder", "type", "ByteLevel",
			 "model", "type", "BPE", "vocab", p->vocab,
			 "merges", merges);
}

static int pair_load(struct load_ctx *ctx, const char *dir, struct pair *p)
{
	json_t *merges, *root;
	int err;

	err = pair_merges(ctx, dir, &merges);
	if (err)
		return err;
	snprintf(ctx->path_buf, sizeof(ctx->path_buf),
		 "%s/vocab.json and merges.txt", dir);
	root = pair_build(p, merges);
	err = root ? load_parts(ctx, root) : load_no_memory(ctx);
	json_decref(root);
	return err;
}

/* Report that there is neither tokenizer.json nor a substitute. */
static int pair_missing(const struct load_ctx *ctx, const char *dir)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/tokenizer.model", dir);
	if (!access(path, F_OK))
		return load_fail(ctx, -EOPNOTSUPP, "tokenizer.model alone is "
				 "not supported: save the model's tokenizer as "
				 "tokenizer.json");
	return load_fail(ctx, -ENOENT, "tokenizer.json: no such file, nor "
			 "vocab.json and merges.txt: name a model folder in "
			 "Hugging Face's format");
}

int load_vocab_merges(struct load_ctx *ctx, const char *dir)
{
	struct pair p = { 0 };
	int err;

	err = load_file_json(ctx, dir, "vocab.json", &p.vocab);
	if (!err)
		err = load_file_json(ctx, dir, "tokenizer_config.json",
				     &p.config);
	if (!err)
		err = load_file_json(ctx, dir, "special_tokens_map.json",
				     &p.special);
	if (!err)
		err = load_file_json(ctx, dir, "added_tokens.json", &p.more);
	if (!err)
		err = load_file_json(ctx, dir, "config.json", &p.model);
	if (!err) {
		ctx->path = dir;
		err = p.vocab ? pair_check_class(ctx, &p) :
				pair_missing(ctx, dir);
	}
	if (!err)
		err = pair_load(ctx, dir, &p);
	json_decref(p.vocab);
	json_decref(p.config);
	json_decref(p.special);
	json_decref(p.more);
	json_decref(p.model);
	return err;
}
