// SPDX-License-Identifier: Apache-2.0
/*
 * gguf_config.c - metadata of a GGUF file as the keys of a config.json
 *
 * The result is read by config.c with all rules for such files, so there is one check
 * of each size.  A message names the key of the GGUF file.  Keys that only some
 * architectures have are in gguf_more.c.
 *
 * Rules.  Every key of the architecture must have been read here, or be known to
 * change nothing; any other is refused by name.  Keys of other kinds ("general.",
 * "tokenizer.", "quantize.") change no logit.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/model/gguf_conf.h"

#define KEY_MAX		128u

/* The whole name of a key. */
static const char *key_of(const struct gguf_conf *c, const char *key, char *buf)
{
	snprintf(buf, KEY_MAX, "%s.%s", c->arch->name, key);
	return buf;
}

void conf_fail(struct gguf_conf *c, int code, const char *key, const char *fmt, ...)
{
	char why[640], name[KEY_MAX];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	mj_fail(c->f, code, key_of(c, key, name), "%s", why);
}

/* Messages about @to name @key, also if the file has none. */
static void conf_rename(struct gguf_conf *c, const char *to, const char *key)
{
	char name[KEY_MAX];

	json_object_set_new(c->f->names, to, json_string(key_of(c, key, name)));
}

void conf_set(struct gguf_conf *c, const char *to, json_t *v, const char *key)
{
	if (key)
		conf_rename(c, to, key);
	if (json_object_set_new(c->f->root, to, v) && !c->f->ret)
		c->f->ret = model_fail_errno(c->f->err, -ENOMEM, c->f->path,
					     to);
}

bool conf_has(struct gguf_conf *c, const char *key)
{
	char name[KEY_MAX];

	json_object_set_new(c->read, key_of(c, key, name), json_true());
	return gguf_has(c->g, name);
}

bool conf_item(struct gguf_conf *c, const char *key, u32 i, u32 *out)
{
	char name[KEY_MAX];
	u64 v;

	if (!conf_has(c, key))
		return false;
	key_of(c, key, name);
	if ((!gguf_u64(c->g, name, &v) && !gguf_item_u64(c->g, name, i, &v)) ||
	    v > INT32_MAX) {
		conf_fail(c, -EINVAL, key, "is no whole number, or no list of "
			  "them: download or copy the file again");
		return false;
	}
	*out = (u32)v;
	return true;
}

/* A list stands for a number if all of its items are that number. */
bool conf_read_u32(struct gguf_conf *c, const char *key, u32 *out)
{
	char name[KEY_MAX];
	u32 first, v, i;
	u64 nr;

	if (!conf_item(c, key, 0, &first))
		return false;
	nr = gguf_nr_items(c->g, key_of(c, key, name));
	for (i = 1; i < nr && i < MODEL_MAX_LAYERS; i++) {
		if (!conf_item(c, key, i, &v))
			return false;
		if (v == first)
			continue;
		conf_fail(c, -EOPNOTSUPP, key, "differs between layers, which "
			  "is not supported: use a model with equal layers");
		return false;
	}
	*out = first;
	return true;
}

bool conf_read_real(struct gguf_conf *c, const char *key, double *out)
{
	char name[KEY_MAX];

	if (!conf_has(c, key))
		return false;
	if (gguf_real(c->g, key_of(c, key, name), out) &&
	    __builtin_isfinite(*out))
		return true;
	conf_fail(c, -EINVAL, key, "is no number: download or copy the file "
		  "again");
	return false;
}

bool conf_read_bool(struct gguf_conf *c, const char *key, bool *out)
{
	char name[KEY_MAX];

	if (!conf_has(c, key))
		return false;
	if (gguf_bool(c->g, key_of(c, key, name), out))
		return true;
	conf_fail(c, -EINVAL, key, "is neither true nor false: download or "
		  "copy the file again");
	return false;
}

bool conf_read_str(struct gguf_conf *c, const char *key, char *out, size_t size)
{
	char name[KEY_MAX];
	struct gguf_str s;

	if (!conf_has(c, key))
		return false;
	if (!gguf_str(c->g, key_of(c, key, name), &s) || s.len >= size) {
		conf_fail(c, -EINVAL, key, "is no text, or too long: download "
			  "or copy the file again");
		return false;
	}
	memcpy(out, s.at, s.len);
	out[s.len] = '\0';
	return true;
}

void conf_u32(struct gguf_conf *c, const char *key, const char *to)
{
	u32 v;

	conf_rename(c, to, key);
	if (conf_read_u32(c, key, &v))
		conf_set(c, to, json_integer(v), key);
}

void conf_real(struct gguf_conf *c, const char *key, const char *to)
{
	double v;

	conf_rename(c, to, key);
	if (conf_read_real(c, key, &v))
		conf_set(c, to, json_real(v), key);
}

u32 conf_got(const struct gguf_conf *c, const char *to, u32 none)
{
	const json_t *v = json_object_get(c->f->root, to);

	return json_is_integer(v) ? (u32)json_integer_value(v) : none;
}

u32 conf_layers(const struct gguf_conf *c)
{
	return min(conf_got(c, c->family->keys->layers, 0), MODEL_MAX_LAYERS);
}

bool conf_layer_has(const struct gguf_conf *c, u32 layer, const char *name)
{
	char full[KEY_MAX];

	snprintf(full, sizeof(full), "blk.%u.%s", layer, name);
	return gguf_has_tensor(c->g, full);
}

bool conf_any_has(const struct gguf_conf *c, const char *name)
{
	const u32 layers = conf_layers(c);
	u32 i;

	for (i = 0; i < layers; i++)
		if (conf_layer_has(c, i, name))
			return true;
	return false;
}

/* ---- all architectures ---- */

static void conf_sizes(struct gguf_conf *c)
{
	const struct config_keys *k = c->family->keys;
	const struct gguf_tensor *embed = gguf_tensor(c->g,
						      "token_embd.weight");

	if (!embed || embed->nr_dims != 2)
		mj_fail(c->f, -EINVAL, "token_embd.weight", "is missing, or no "
			"matrix: copy the whole model again");
	else
		conf_set(c, "vocab_size", json_integer((json_int_t)
						       embed->dims[1]), NULL);
	conf_u32(c, "embedding_length", k->hidden);
	conf_u32(c, "block_count", k->layers);
	conf_u32(c, "attention.head_count", k->heads);
	conf_u32(c, "context_length", k->max_position);
	if (!json_object_get(c->f->root, k->inter))
		conf_u32(c, "feed_forward_length", k->inter);
	if (k->kv_heads && !json_object_get(c->f->root, k->kv_heads))
		conf_u32(c, "attention.head_count_kv", k->kv_heads);
	conf_set(c, k->act, json_string(c->arch->act), NULL);
	if (k->eps && !strcmp(k->eps, "rms_norm_eps"))
		conf_real(c, "attention.layer_norm_rms_epsilon", k->eps);
	else if (k->eps)
		conf_real(c, "attention.layer_norm_epsilon", k->eps);
}

/* Heads of K and of V must have one size. */
static void conf_head_dim(struct gguf_conf *c)
{
	const struct config_keys *k = c->family->keys;
	const u32 heads = conf_got(c, k->heads, 0);
	u32 key, value;

	if (c->family->latent)
		return;
	key = heads ? conf_got(c, k->hidden, 0) / heads : 0;
	conf_read_u32(c, "attention.key_length", &key);
	c->head_dim = value = key;
	conf_read_u32(c, "attention.value_length", &value);
	if (!c->f->ret && value != key)
		conf_fail(c, -EOPNOTSUPP, "attention.value_length", "%u is not "
			  "supported beside keys of %u: use a model where they "
			  "are equal", value, key);
	if (c->family->has_head_dim)
		conf_set(c, "head_dim", json_integer(key),
			 "attention.key_length");
	else if (!c->f->ret && heads && key != conf_got(c, k->hidden, 0) / heads)
		conf_fail(c, -EOPNOTSUPP, "attention.key_length", "%u is not "
			  "supported: use a model where it is embedding_length "
			  "divided by head_count", key);
}

/* Switches that follow from the tensors of the file. */
static void conf_tensors(struct gguf_conf *c)
{
	conf_set(c, "tie_word_embeddings",
		 json_boolean(!gguf_has_tensor(c->g, "output.weight")), NULL);
	if (c->family->has_attn_bias)
		conf_set(c, "attention_bias",
			 json_boolean(conf_any_has(c, "attn_q.bias") ||
				      conf_any_has(c, "attn_qkv.bias")),
			 NULL);
	if (c->family->has_mlp_bias)
		conf_set(c, "mlp_bias",
			 json_boolean(conf_any_has(c, "ffn_up.bias")),
			 NULL);
}

/* Is it a key of the architecture that changes no logit? */
static bool key_is_harmless(const char *key)
{
	static const char * const harmless[] = {
		"vocab_size", "tensor_data_layout", "rope.scaling.finetuned",
		"feed_forward_length",
	};
	u32 i;

	for (i = 0; i < ARRAY_SIZE(harmless); i++)
		if (!strcmp(key, harmless[i]))
			return true;
	return false;
}

static void conf_refuse_rest(struct gguf_conf *c)
{
	const size_t len = strlen(c->arch->name);
	bool causal = true;
	const char *key;
	u32 i;

	if (conf_read_bool(c, "attention.causal", &causal) && !causal)
		conf_fail(c, -EOPNOTSUPP, "attention.causal", "false is not "
			  "supported: use a model that generates text");
	for (i = 0; i < gguf_nr_keys(c->g); i++) {
		key = gguf_key_at(c->g, i);
		if (strncmp(key, c->arch->name, len) || key[len] != '.' ||
		    json_object_get(c->read, key) ||
		    key_is_harmless(key + len + 1))
			continue;
		mj_fail(c->f, -EOPNOTSUPP, key, "is not known for %s, and may "
			"change what it computes: use a model without it",
			c->arch->name);
	}
}

/* ---- tokens ---- */

/* Texts of tokens that end a text, beside those that the metadata names. */
static const char * const ends[] = {
	"<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>",
	"<|endoftext|>", "<|end_of_text|>", "<|return|>", "<|call|>", "<EOT>",
	"<|END_OF_TURN_TOKEN|>", "<|eom_id|>",
};

static bool is_end(const struct gguf_str *s)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(ends); i++)
		if (strlen(ends[i]) == s->len && !memcmp(ends[i], s->at, s->len))
			return true;
	return false;
}

static void eos_add(json_t *list, u64 id)
{
	json_t *v;
	size_t i;

	json_array_foreach(list, i, v)
		if ((u64)json_integer_value(v) == id)
			return;
	if (json_array_size(list) < MODEL_MAX_EOS)
		json_array_append_new(list, json_integer((json_int_t)id));
}

static bool has_text(const struct gguf *g, const char *text, u64 nr)
{
	struct gguf_str s;
	u64 i;

	for (i = 0; i < nr; i++)
		if (gguf_item_str(g, "tokenizer.ggml.tokens", i, &s) &&
		    s.len == strlen(text) && !memcmp(s.at, text, s.len))
			return true;
	return false;
}

/*
 * Add special tokens with such a text; special ones have type 3 or 4.  In gpt-oss
 * <|end|> ends a message inside of an answer, and <|return|> the answer.  So a
 * vocabulary that has the second one does not end with the first.
 */
static void eos_by_text(struct gguf_conf *c, json_t *list, u64 vocab)
{
	const u64 nr = min(gguf_nr_items(c->g, "tokenizer.ggml.tokens"), vocab);
	const bool returns = has_text(c->g, "<|return|>", nr);
	struct gguf_str s;
	u64 i, type;

	for (i = 0; i < nr; i++) {
		if (!gguf_item_str(c->g, "tokenizer.ggml.tokens", i, &s) ||
		    !is_end(&s) || (returns && s.len == 7 &&
				    !memcmp(s.at, "<|end|>", 7)))
			continue;
		if (gguf_item_u64(c->g, "tokenizer.ggml.token_type", i, &type) &&
		    (type == 3 || type == 4))
			eos_add(list, i);
	}
}

static void conf_tokens(struct gguf_conf *c)
{
	static const char * const keys[] = {
		"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
		"tokenizer.ggml.eom_token_id",
	};
	const u32 vocab = conf_got(c, "vocab_size", 0);
	json_t *eos = json_array();
	u64 id;
	u32 i;

	if (gguf_u64(c->g, "tokenizer.ggml.bos_token_id", &id) && id < vocab)
		conf_set(c, "bos_token_id", json_integer((json_int_t)id), NULL);
	for (i = 0; i < ARRAY_SIZE(keys); i++)
		if (gguf_u64(c->g, keys[i], &id) && id < vocab)
			eos_add(eos, id);
	eos_by_text(c, eos, vocab);
	if (json_array_size(eos))
		conf_set(c, "eos_token_id", eos, NULL);
	else
		json_decref(eos);
}

/* ---- the whole ---- */

static void conf_all(struct gguf_conf *c)
{
	const char *name;

	c->family = config_family_find(c->arch->hf, &name);
	c->read = json_object();
	if (!c->family || !c->read) {
		c->f->ret = model_fail_errno(c->f->err, -ENOMEM, c->f->path,
					     "metadata");
		return;
	}
	conf_set(c, "architectures", json_pack("[s]", c->arch->hf), NULL);
	conf_u32(c, "block_count", c->family->keys->layers);
	if (c->arch->more)
		c->arch->more(c);
	conf_sizes(c);
	conf_head_dim(c);
	if (c->family->rope_keys != ROPE_KEYS_NONE)
		gguf_conf_rope(c);
	conf_tensors(c);
	conf_tokens(c);
	conf_refuse_rest(c);
	json_decref(c->read);
}

int gguf_config_open(const char *path, struct mj_file *f,
		     const struct gguf_arch **arch, struct gguf **out,
		     struct model_error *err)
{
	struct gguf_conf c = { .f = f };
	char why[GGUF_ERR_MAX] = "";

	*f = (struct mj_file){ .err = err, .path = strdup(path) };
	f->root = json_object();
	f->names = json_object();
	if (!f->path || !f->root || !f->names)
		return f->ret = model_fail_errno(err, -ENOMEM, path, "open");
	f->ret = gguf_open(path, out, why, sizeof(why));
	if (f->ret)
		return model_fail(err, f->ret, "%s", why);
	c.g = *out;
	*arch = c.arch = gguf_arch_of(*out, err);
	if (!c.arch)
		return f->ret = -EOPNOTSUPP;
	conf_all(&c);
	return f->ret;
}
