// SPDX-License-Identifier: Apache-2.0
/*
 * check_model_config.c - config.json and generation_config.json
 *
 * One sound configuration, and tables of changes to it: the setting that each
 * must turn on, or the errno and the words of its refusal.
 */
#include <check.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/model/config.h"
#include "runtime/tokenizer/utf8.h"
#include "tests/tmp.h"

static char dir[64];
static struct model_error err;
static struct model_config cfg;

static const char base[] =
	"{\"architectures\":[\"LlamaForCausalLM\"],\"vocab_size\":1000,"
	"\"hidden_size\":96,\"intermediate_size\":80,\"num_hidden_layers\":3,"
	"\"num_attention_heads\":6,\"num_key_value_heads\":2,"
	"\"max_position_embeddings\":512,\"rms_norm_eps\":1e-05,"
	"\"hidden_act\":\"silu\",\"rope_theta\":500000.0,"
	"\"tie_word_embeddings\":true,\"bos_token_id\":1,\"eos_token_id\":2}";

static void setup(void)
{
	ck_assert_ptr_nonnull(mkdtemp(tmp_name(dir, sizeof(dir), "config")));
	memset(&err, 0, sizeof(err));
}

static const char *path_of(const char *name)
{
	static char path[256];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return path;
}

static void teardown(void)
{
	unlink(path_of("config.json"));
	unlink(path_of("generation_config.json"));
	rmdir(dir);
}

static void write_text(const char *name, const char *text)
{
	FILE *f = fopen(path_of(name), "w");

	ck_assert_ptr_nonnull(f);
	fputs(text, f);
	ck_assert_int_eq(fclose(f), 0);
}

/* Write the base with @key set to the JSON text @value, or deleted if NULL. */
static void write_changed(const char *key, const char *value)
{
	json_t *o = json_loads(base, 0, NULL), *v;
	char *text;

	ck_assert_ptr_nonnull(o);
	if (value) {
		v = json_loads(value, JSON_DECODE_ANY, NULL);
		ck_assert_msg(v != NULL, "bad test: %s", value);
		json_object_set_new(o, key, v);
	} else {
		json_object_del(o, key);
	}
	text = json_dumps(o, 0);
	write_text("config.json", text);
	free(text);
	json_decref(o);
}

static void assert_message(const char *file, const char *words)
{
	ck_assert_msg(strstr(err.text, file) != NULL,
		      "\"%s\" does not name %s", err.text, file);
	ck_assert_msg(strstr(err.text, words) != NULL,
		      "\"%s\" does not say \"%s\"", err.text, words);
}

START_TEST(test_reads_base)
{
	write_text("config.json", base);
	ck_assert_int_eq(model_config_read(dir, &cfg, &err), 0);
	ck_assert_str_eq(cfg.arch, "LlamaForCausalLM");
	ck_assert_uint_eq(cfg.vocab, 1000);
	ck_assert_uint_eq(cfg.hidden, 96);
	ck_assert_uint_eq(cfg.inter, 80);
	ck_assert_uint_eq(cfg.layers, 3);
	ck_assert_uint_eq(cfg.heads, 6);
	ck_assert_uint_eq(cfg.kv_heads, 2);
	ck_assert_uint_eq(cfg.head_dim, 16);
	ck_assert_uint_eq(cfg.max_position, 512);
	ck_assert_float_eq(cfg.norm_eps, 1e-5f);
	ck_assert(cfg.tied);
	ck_assert(!cfg.qkv_bias);
	ck_assert(!cfg.qk_norm);
	ck_assert_uint_eq(cfg.window, 0);
	ck_assert_int_eq(cfg.rope.type, ROPE_DEFAULT);
	ck_assert_double_eq(cfg.rope.theta, 500000.0);
	ck_assert_int_eq(cfg.bos_id, 1);
	ck_assert_uint_eq(cfg.nr_eos, 1);
	ck_assert_uint_eq(cfg.eos_ids[0], 2);
}
END_TEST

/* Valid changes; the reader must accept them silently. */
static const struct {
	const char	*key;
	const char	*value;
} fine[] = {
	{ "hidden_act", "\"swish\"" },
	{ "hidden_act", NULL },
	{ "attention_bias", "false" },
	{ "attention_bias", "null" },
	{ "mlp_bias", "false" },
	{ "quantization_config", "null" },
	{ "sliding_window", "null" },
	{ "rope_scaling", "null" },
	{ "layer_types", "[\"full_attention\",\"full_attention\"]" },
	{ "partial_rotary_factor", "1.0" },
	{ "vocab_size", "1000.0" },
	{ "transformers_version", "\"9.9\"" },
	{ "some_new_key", "null" },
	{ "num_experts", "0" },
	{ "is_encoder_decoder", "false" },
	{ "pruned_heads", "{}" },
	{ "torch_dtype", "\"bfloat16\"" },
	{ "initializer_range", "0.02" },
	{ "hidden_act", "\"gelu\"" },
	{ "attention_bias", "true" },
	{ "mlp_bias", "true" },
	{ "rope_scaling", "{\"type\":\"yarn\",\"factor\":2.0,\"finetuned\":true}" },
	{ "rope_scaling", "{\"rope_type\":\"dynamic\",\"factor\":2.0}" },
	{ "bos_token_id", "null" },
	{ "eos_token_id", "null" },
	{ "rope_theta", NULL },
	/* Keys of GPT-2 from medium on, and of Dolly */
	{ "n_special", "0" },
	{ "predict_special_tokens", "true" },
	{ "custom_pipelines", "{\"text-generation\":{\"impl\":\"x.y\"}}" },
	{ "attn_implementation", "\"eager\"" },
};

START_TEST(test_takes)
{
	write_changed(fine[_i].key, fine[_i].value);
	ck_assert_msg(!model_config_read(dir, &cfg, &err), "%s", err.text);
}
END_TEST

static const struct {
	const char	*key;
	const char	*value;
	int		ret;
	const char	*words;
} bad[] = {
	/* Unknown features are refused by name */
	{ "architectures", NULL, -EINVAL, "architectures: is not a list" },
	{ "architectures", "[]", -EINVAL, "architectures: is not a list" },
	{ "architectures", "[7]", -EINVAL, "architectures: is not a list" },
	{ "architectures", "\"LlamaForCausalLM\"", -EINVAL,
	  "architectures: is not a list" },
	{ "architectures", "[\"LlamaForCausalLM\",\"X\"]", -EINVAL,
	  "architectures: is not a list" },
	{ "architectures", "[\"GPTJForCausalLM\"]", -EOPNOTSUPP,
	  "\"GPTJForCausalLM\" is not supported: use a model of Llama" },
	{ "hidden_act", "\"quick_gelu\"", -EOPNOTSUPP,
	  "hidden_act: \"quick_gelu\"" },
	{ "some_new_key", "{\"a\":[1,2]}", -EOPNOTSUPP,
	  "some_new_key: is not known for LlamaForCausalLM" },
	{ "some_new_key", "false", -EOPNOTSUPP, "some_new_key: is not known" },
	{ "use_sliding_window", "true", -EOPNOTSUPP,
	  "use_sliding_window: asks" },
	{ "use_bidirectional_attention", "true", -EOPNOTSUPP,
	  "use_bidirectional_attention: asks" },
	{ "do_layer_norm_before", "false", -EOPNOTSUPP,
	  "do_layer_norm_before: asks to leave out" },
	{ "hidden_act", "1", -EINVAL, "hidden_act: is no string" },
	{ "attention_bias", "1", -EINVAL, "attention_bias: is neither" },
	{ "num_local_experts", "8", -EOPNOTSUPP, "num_local_experts: asks" },
	{ "final_logit_softcapping", "30.0", -EOPNOTSUPP,
	  "final_logit_softcapping: asks" },
	{ "sliding_window", "128", -EOPNOTSUPP, "sliding_window: is not" },
	{ "layer_types", "[\"sliding_attention\"]", -EOPNOTSUPP,
	  "layer_types: \"sliding_attention\"" },
	{ "partial_rotary_factor", "0.5", -EOPNOTSUPP,
	  "partial_rotary_factor: 0.5" },
	/* Position encoding */
	{ "rope_scaling", "7", -EINVAL, "rope_scaling: is no object" },
	{ "rope_scaling", "{\"factor\":2.0}", -EINVAL,
	  "rope_scaling: has no \"rope_type\"" },
	{ "rope_scaling", "{\"type\":\"su\",\"factor\":2.0}",
	  -EOPNOTSUPP, "rope_scaling: type \"su\" is not supported" },
	{ "rope_scaling", "{\"type\":\"longrope\",\"factor\":2.0}",
	  -EINVAL, "short_factor: is no list of a number for each of 8 pairs" },
	{ "rope_scaling", "{\"rope_type\":\"dynamic\",\"factor\":2.0,"
	  "\"alpha\":1.0}", -EOPNOTSUPP, "\"alpha\" is not supported" },
	{ "rope_scaling", "{\"rope_type\":\"yarn\",\"factor\":2.0,"
	  "\"beta_fast\":0}", -EINVAL, "beta_fast: 0 is outside" },
	{ "rope_scaling", "{\"type\":\"linear\"}", -EINVAL,
	  "factor: is missing" },
	{ "rope_scaling", "{\"type\":\"linear\",\"factor\":0.5}", -EINVAL,
	  "factor: 0.5 is outside" },
	{ "rope_scaling", "{\"type\":\"linear\",\"factor\":2,\"mscale\":1}",
	  -EOPNOTSUPP, "\"mscale\" is not supported with type \"linear\"" },
	{ "rope_scaling", "{\"rope_type\":\"llama3\",\"factor\":8.0,"
	  "\"low_freq_factor\":1.0,\"high_freq_factor\":4.0}", -EINVAL,
	  "original_max_position_embeddings: is missing" },
	{ "rope_scaling", "{\"rope_type\":\"llama3\",\"factor\":8.0,"
	  "\"low_freq_factor\":4.0,\"high_freq_factor\":4.0,"
	  "\"original_max_position_embeddings\":8192}", -EINVAL,
	  "high_freq_factor: is not above" },
	{ "rope_parameters", "{\"full_attention\":{\"rope_type\":"
	  "\"default\"}}", -EINVAL, "rope_parameters: has no \"rope_type\"" },
	{ "rope_theta", "0", -EINVAL, "rope_theta: 0 is outside" },
	{ "rope_theta", "\"1e4\"", -EINVAL, "rope_theta: is no number" },
	/* Sizes */
	{ "vocab_size", NULL, -EINVAL, "vocab_size: is missing" },
	{ "vocab_size", "null", -EINVAL, "vocab_size: is missing" },
	{ "vocab_size", "0", -EINVAL, "vocab_size: 0 is outside" },
	{ "vocab_size", "-5", -EINVAL, "vocab_size: -5 is outside" },
	{ "vocab_size", "\"1000\"", -EINVAL, "vocab_size: is no whole" },
	{ "vocab_size", "10.5", -EINVAL, "vocab_size: is no whole" },
	{ "hidden_size", NULL, -EINVAL, "hidden_size: is missing" },
	{ "hidden_size", "1e30", -EINVAL, "hidden_size: 1e+30 is outside" },
	{ "hidden_size", "97", -EINVAL, "head_dim: is missing, and" },
	{ "hidden_size", "102", -EOPNOTSUPP, "head_dim: 17 is not" },
	{ "head_dim", "12", -EOPNOTSUPP, "head_dim: 12 is not supported: use "
	  "a model with a multiple of 8, at most 256" },
	{ "head_dim", "512", -EOPNOTSUPP, "head_dim: 512 is not" },
	{ "intermediate_size", NULL, -EINVAL, "intermediate_size: is" },
	{ "num_hidden_layers", NULL, -EINVAL, "num_hidden_layers: is" },
	{ "num_hidden_layers", "1000000", -EINVAL, "num_hidden_layers: 1000" },
	{ "num_attention_heads", NULL, -EINVAL, "num_attention_heads: is" },
	{ "num_key_value_heads", "4", -EINVAL, "num_key_value_heads: 4 does" },
	{ "num_key_value_heads", "0", -EINVAL, "num_key_value_heads: 0 is" },
	{ "max_position_embeddings", NULL, -EINVAL,
	  "max_position_embeddings: is missing" },
	{ "rms_norm_eps", NULL, -EINVAL, "rms_norm_eps: is missing" },
	{ "rms_norm_eps", "-1e-5", -EINVAL, "rms_norm_eps: -1e-05 is" },
	{ "tie_word_embeddings", "1", -EINVAL, "tie_word_embeddings: is" },
	/* Ids */
	{ "bos_token_id", "1000", -EINVAL, "bos_token_id: 1000 is outside" },
	{ "eos_token_id", "1000", -EINVAL, "eos_token_id: holds something" },
	{ "eos_token_id", "-1", -EINVAL, "eos_token_id: holds something" },
	{ "eos_token_id", "[1,\"x\"]", -EINVAL, "eos_token_id: holds" },
	{ "eos_token_id", "[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]",
	  -EOPNOTSUPP, "eos_token_id: has more than 16" },
};

START_TEST(test_refuses)
{
	write_changed(bad[_i].key, bad[_i].value);
	ck_assert_int_eq(model_config_read(dir, &cfg, &err), bad[_i].ret);
	assert_message("config.json", bad[_i].words);
}
END_TEST

/* Files that are no configuration. */
static const struct {
	const char	*text;
	const char	*words;
} bad_text[] = {
	{ "", "line " },
	{ "{", "line 1: " },
	{ "[]", "holds no JSON object" },
	{ "{\"a\":1,\"a\":2}", "duplicate" },
	{ "{\"a\":1}\n\n}", "line 3: " },
};

START_TEST(test_refuses_text)
{
	write_text("config.json", bad_text[_i].text);
	ck_assert_int_eq(model_config_read(dir, &cfg, &err), -EINVAL);
	assert_message("config.json", bad_text[_i].words);
}
END_TEST

/* Deep and wide texts are refused at once, and use up neither stack nor memory. */
START_TEST(test_refuses_heavy)
{
	const char *again = _i ? ",0" : "[";
	const u32 times = _i ? 5000000 : 100000, n = strlen(again);
	char *text = malloc((u64)n * times + 16), *p;
	u32 i;

	ck_assert_ptr_nonnull(text);
	strcpy(text, _i ? "{\"a\":[0" : "{\"a\":");
	for (p = text + strlen(text), i = 0; i < times; i++, p += n)
		memcpy(p, again, n + 1);
	write_text("config.json", text);
	free(text);
	ck_assert_int_eq(model_config_read(dir, &cfg, &err), -EINVAL);
	assert_message("config.json", _i ? "holds more than" :
		       "maximum parsing depth");
}
END_TEST

/* A pipe or an endless file in place of the configuration is refused, not read. */
START_TEST(test_refuses_no_file)
{
	const char *path = path_of("config.json");

	ck_assert_int_eq(mkfifo(path, 0600), 0);
	ck_assert_int_eq(model_config_read(dir, &cfg, &err), -EINVAL);
	assert_message("config.json", "not a regular file");
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(symlink("/dev/zero", path), 0);
	ck_assert_int_eq(model_config_read(dir, &cfg, &err), -EINVAL);
	assert_message("config.json", "not a regular file");
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(symlink("config.json", path), 0);
	ck_assert_int_eq(model_config_read(dir, &cfg, &err), -ELOOP);
	assert_message("config.json", "Too many levels");
}
END_TEST

/* Keys of a hostile file: cut inside a character, or terminal commands. */
START_TEST(test_refusal_is_a_line)
{
	static const char * const keys[] = { "a\xc3\xa9", "\x1b[2J", "a\nb",
					     "\xc2\x9b" "2J" };
	char key[400] = "";
	u32 i;

	while (strlen(key) < 300)
		strcat(key, keys[_i]);
	write_changed(key, "1");
	ck_assert_int_eq(model_config_read(dir, &cfg, &err), -EOPNOTSUPP);
	assert_message("config.json", "is not known for LlamaForCausalLM");
	ck_assert(utf8_is_valid(err.text, strlen(err.text)));
	ck_assert_ptr_null(strstr(err.text, "\xc2\x9b"));
	for (i = 0; err.text[i]; i++)
		ck_assert_int_ge((u8)err.text[i], 0x20);
}
END_TEST

START_TEST(test_refuses_missing_file)
{
	ck_assert_int_eq(model_config_read(dir, &cfg, &err), -ENOENT);
	assert_message("config.json", "No such file");
}
END_TEST

START_TEST(test_names_git_lfs_pointer)
{
	char path[256];
	FILE *f;

	snprintf(path, sizeof(path), "%s/config.json", dir);
	f = fopen(path, "w");
	ck_assert_ptr_nonnull(f);
	fputs("version https://git-lfs.github.com/spec/v1\noid sha256:00\n", f);
	fclose(f);
	ck_assert_int_eq(model_config_read(dir, &cfg, &err), -EINVAL);
	assert_message("config.json", "a Git LFS pointer");
}
END_TEST

START_TEST(test_survives_huge_integers)
{
	char text[1024];

	snprintf(text, sizeof(text), "%.*s,\"model_max_length\":"
		 "1000000000000000019884624838656}", (int)strlen(base) - 1,
		 base);
	write_text("config.json", text);
	ck_assert_int_eq(model_config_read(dir, &cfg, &err), 0);
}
END_TEST

START_TEST(test_eos_list)
{
	write_changed("eos_token_id", "[7, 9.0]");
	ck_assert_int_eq(model_config_read(dir, &cfg, &err), 0);
	ck_assert_uint_eq(cfg.nr_eos, 2);
	ck_assert_uint_eq(cfg.eos_ids[0], 7);
	ck_assert_uint_eq(cfg.eos_ids[1], 9);
}
END_TEST

START_TEST(test_defaults)
{
	write_changed("num_key_value_heads", "null");
	ck_assert_int_eq(model_config_read(dir, &cfg, &err), 0);
	ck_assert_uint_eq(cfg.kv_heads, 6);
	write_changed("tie_word_embeddings", NULL);
	ck_assert_int_eq(model_config_read(dir, &cfg, &err), 0);
	ck_assert(!cfg.tied);
	write_changed("bos_token_id", NULL);
	ck_assert_int_eq(model_config_read(dir, &cfg, &err), 0);
	ck_assert_int_eq(cfg.bos_id, -1);
	write_changed("head_dim", "64");
	ck_assert_int_eq(model_config_read(dir, &cfg, &err), 0);
	ck_assert_uint_eq(cfg.head_dim, 64);
}
END_TEST

/* Settings that a family's name implies. */
START_TEST(test_families)
{
	json_t *o;
	char *text;

	/* Llama shares no KV heads by default; Mistral's default is another. */
	write_changed("num_key_value_heads", NULL);
	ck_assert_int_eq(model_config_read(dir, &cfg, &err), 0);
	ck_assert_uint_eq(cfg.kv_heads, 6);
	o = json_loads(base, 0, NULL);
	json_object_del(o, "num_key_value_heads");
	json_object_set_new(o, "architectures",
			    json_pack("[s]", "MistralForCausalLM"));
	text = json_dumps(o, 0);
	write_text("config.json", text);
	free(text);
	json_decref(o);
	ck_assert_int_eq(model_config_read(dir, &cfg, &err), -EINVAL);
	assert_message("config.json", "num_key_value_heads: is missing");
	write_changed("architectures", "[\"Qwen2ForCausalLM\"]");
	ck_assert_int_eq(model_config_read(dir, &cfg, &err), 0);
	ck_assert(cfg.qkv_bias);
	ck_assert(!cfg.qk_norm);
	write_changed("architectures", "[\"Qwen3ForCausalLM\"]");
	ck_assert_int_eq(model_config_read(dir, &cfg, &err), 0);
	ck_assert(!cfg.qkv_bias);
	ck_assert(cfg.qk_norm);
	write_changed("architectures", "[\"MistralForCausalLM\"]");
	ck_assert_int_eq(model_config_read(dir, &cfg, &err), 0);
	ck_assert(!cfg.qkv_bias);
	ck_assert_uint_eq(cfg.window, 0);
}
END_TEST

/* Read the base as another family, with keys added. */
static int read_family(const char *arch, const char *more)
{
	char text[1024];
	const char *rest = strchr(base, ',');

	snprintf(text, sizeof(text), "{\"architectures\":[\"%s\"],%s%s", arch,
		 more, rest);
	write_text("config.json", text);
	return model_config_read(dir, &cfg, &err);
}

START_TEST(test_windows)
{
	ck_assert_int_eq(read_family("MistralForCausalLM",
				     "\"sliding_window\":100"), 0);
	ck_assert_uint_eq(cfg.window, 100);
	/* A window as long as the context limits nothing. */
	ck_assert_int_eq(read_family("MistralForCausalLM",
				     "\"sliding_window\":512"), 0);
	ck_assert_uint_eq(cfg.window, 0);
	ck_assert_int_eq(read_family("Qwen2ForCausalLM",
				     "\"sliding_window\":100,"
				     "\"use_sliding_window\":false"), 0);
	ck_assert_uint_eq(cfg.window, 0);
	ck_assert_int_eq(read_family("Qwen2ForCausalLM",
				     "\"sliding_window\":100,"
				     "\"use_sliding_window\":true,"
				     "\"max_window_layers\":2"), 0);
	ck_assert_uint_eq(cfg.window, 100);
	ck_assert_uint_eq(cfg.local[0], 1 << 2);
}
END_TEST

/* Layer types by name, and by the rules of families that do not name them. */
START_TEST(test_layer_types)
{
	ck_assert_int_eq(read_family("MistralForCausalLM",
		"\"sliding_window\":100"), 0);
	ck_assert_uint_eq(cfg.local[0], 7);
	ck_assert_int_eq(read_family("MistralForCausalLM",
		"\"sliding_window\":100,\"layer_types\":[\"full_attention\","
		"\"sliding_attention\",\"full_attention\"]"), 0);
	ck_assert_uint_eq(cfg.local[0], 2);
	ck_assert_int_eq(read_family("MistralForCausalLM",
		"\"sliding_window\":100,\"layer_types\":[\"full_attention\"]"),
			 -EINVAL);
	assert_message("config.json", "layer_types: has 1 names for 3");
	ck_assert_int_eq(read_family("MistralForCausalLM",
		"\"sliding_window\":100,\"layer_types\":[\"full_attention\","
		"\"linear_attention\",\"full_attention\"]"), -EOPNOTSUPP);
	assert_message("config.json", "layer_types: \"linear_attention\"");
	/* A layer type with a window, but no window is set or used. */
	ck_assert_int_eq(read_family("Qwen3ForCausalLM",
		"\"use_sliding_window\":true,\"sliding_window\":null,"
		"\"layer_types\":["
		"\"sliding_attention\",\"full_attention\","
		"\"full_attention\"]"), -EINVAL);
	assert_message("config.json", "layer_types: names");
	ck_assert_int_eq(read_family("Qwen3ForCausalLM",
		"\"use_sliding_window\":false,\"sliding_window\":64,"
		"\"layer_types\":[\"sliding_attention\",\"full_attention\","
		"\"full_attention\"]"), -EINVAL);
	assert_message("config.json", "layer_types: names");
	/* Where a family has a default, a missing key differs from null. */
	ck_assert_int_eq(read_family("MistralForCausalLM",
		"\"rope_scaling\":{\"type\":\"linear\",\"factor\":16.0}"), 0);
	ck_assert_uint_eq(cfg.window, 4096);
	ck_assert_int_eq(read_family("MistralForCausalLM",
		"\"rope_scaling\":{\"type\":\"linear\",\"factor\":16.0},"
		"\"sliding_window\":null"), 0);
	ck_assert_uint_eq(cfg.window, 0);
	ck_assert_int_eq(read_family("Gemma2ForCausalLM", "\"head_dim\":32,"
		"\"sliding_window\":null"), -EINVAL);
	assert_message("config.json", "sliding_window: is null");
	/* Gemma 2 9b and 27b have the window in two keys. */
	ck_assert_int_eq(read_family("Gemma2ForCausalLM", "\"head_dim\":32,"
		"\"sliding_window\":64,\"sliding_window_size\":64"), 0);
	ck_assert_uint_eq(cfg.window, 64);
	ck_assert_int_eq(read_family("Gemma2ForCausalLM", "\"head_dim\":32,"
		"\"sliding_window\":64,\"sliding_window_size\":32"), -EINVAL);
	assert_message("config.json", "sliding_window_size: 32 is not");
	/* Other families refuse this key, and another family's rule. */
	ck_assert_int_eq(read_family("MistralForCausalLM",
		"\"sliding_window\":64,\"sliding_window_size\":64"),
			 -EOPNOTSUPP);
	ck_assert_int_eq(read_family("MistralForCausalLM",
		"\"sliding_window\":64,\"sliding_window_pattern\":2"),
			 -EOPNOTSUPP);
	ck_assert_int_eq(read_family("Gemma2ForCausalLM", "\"head_dim\":32,"
		"\"sliding_window\":64"), 0);
	ck_assert_uint_eq(cfg.local[0], 5);
	ck_assert_int_eq(read_family("Gemma3ForCausalLM", "\"head_dim\":32,"
		"\"sliding_window_pattern\":3,\"sliding_window\":64"), 0);
	ck_assert_uint_eq(cfg.local[0], 3);
	/* A layer stays local even if its window limits nothing. */
	ck_assert_int_eq(read_family("Gemma3ForCausalLM",
		"\"head_dim\":32,\"sliding_window_pattern\":3"), 0);
	ck_assert_uint_eq(cfg.local[0], 3);
	ck_assert_uint_eq(cfg.window, 0);
}
END_TEST

/* Both spellings of two encodings, and types that other families refuse. */
START_TEST(test_two_ropes)
{
	ck_assert_int_eq(read_family("Gemma3ForCausalLM",
		"\"rope_local_base_freq\":20000.0,\"rope_scaling\":"
		"{\"rope_type\":\"linear\",\"factor\":8.0}"), 0);
	ck_assert(cfg.two_ropes);
	ck_assert_int_eq(cfg.rope.type, ROPE_LINEAR);
	ck_assert_double_eq(cfg.rope.theta, 500000.0);
	ck_assert_int_eq(cfg.rope_local.type, ROPE_DEFAULT);
	ck_assert_double_eq(cfg.rope_local.theta, 20000.0);
	ck_assert_uint_eq(cfg.max_position, 512);
	ck_assert_int_eq(read_family("Gemma3ForCausalLM",
		"\"rope_parameters\":{\"full_attention\":{\"rope_type\":"
		"\"linear\",\"factor\":8.0,\"rope_theta\":3e6},"
		"\"sliding_attention\":{\"rope_type\":\"default\","
		"\"rope_theta\":7e3}}"), 0);
	ck_assert_double_eq(cfg.rope.theta, 3e6);
	ck_assert_double_eq(cfg.rope.factor, 8);
	ck_assert_double_eq(cfg.rope_local.theta, 7e3);
	/* If a dictionary has no trained length, the model's counts. */
	ck_assert_int_eq(read_family("Gemma3ForCausalLM",
		"\"rope_parameters\":{\"sliding_attention\":{\"rope_type\":"
		"\"yarn\",\"factor\":4.0}}"), 0);
	ck_assert_int_eq(cfg.rope_local.type, ROPE_YARN);
	ck_assert_uint_eq(cfg.rope_local.original, 512);
	ck_assert_int_eq(read_family("Gemma3ForCausalLM",
		"\"rope_parameters\":{\"full_attention\":{\"rope_type\":"
		"\"default\"},\"other\":{}}"), -EOPNOTSUPP);
	assert_message("config.json", "rope_parameters: names kinds of layer");
	ck_assert_int_eq(read_family("Phi3ForCausalLM",
		"\"rope_scaling\":{\"type\":\"yarn\",\"factor\":2.0}"),
			 -EOPNOTSUPP);
	assert_message("config.json", "rope_scaling: type \"yarn\" is not");
	ck_assert_int_eq(read_family("Phi3ForCausalLM",
		"\"partial_rotary_factor\":0.75"), 0);
	ck_assert_uint_eq(config_rotary(&cfg), 12);
}
END_TEST

/* The longest context of a stretched encoding. */
START_TEST(test_stretched)
{
	ck_assert_int_eq(read_family("LlamaForCausalLM", "\"rope_scaling\":"
		"{\"type\":\"dynamic\",\"factor\":2.5}"), 0);
	ck_assert_uint_eq(cfg.max_position, 1280);
	ck_assert_uint_eq(cfg.rope.original, 512);
	ck_assert_int_eq(read_family("LlamaForCausalLM", "\"rope_scaling\":"
		"{\"type\":\"yarn\",\"factor\":4.0,"
		"\"original_max_position_embeddings\":256}"), 0);
	ck_assert_uint_eq(cfg.max_position, 1024);
	ck_assert_double_eq_tol(cfg.rope.gain, 1.13862943611, 1e-9);
	ck_assert_int_eq(read_family("LlamaForCausalLM", "\"rope_scaling\":"
		"{\"type\":\"linear\",\"factor\":2.0}"), 0);
	ck_assert_uint_eq(cfg.max_position, 1024);
}
END_TEST

/*
 * Frequencies against numbers that another program computed in double from the
 * published formulas: theta 500000, dimension 64.  Of the tested pairs, llama3
 * keeps the first, mixes the second and stretches the others.
 */
#define LLAMA3	"\"factor\":8.0,\"low_freq_factor\":1.0,"		\
		"\"high_freq_factor\":4.0,"				\
		"\"original_max_position_embeddings\":512"

static const struct {
	const char	*key;
	const char	*value;
	float		freq[4];	/* pairs 0, 8, 16, 31 */
} ropes[] = {
	{ "rope_scaling", "null",
	  { 1.0f, 0.0376060309f, 0.00141421356f, 3.01385815e-06f } },
	{ "rope_scaling", "{\"type\":\"linear\",\"factor\":4.0}",
	  { 0.25f, 0.00940150773f, 0.000353553391f, 7.53464538e-07f } },
	{ "rope_scaling", "{\"rope_type\":\"llama3\"," LLAMA3 "}",
	  { 1.0f, 0.0273441373f, 0.000176776695f, 3.76732269e-07f } },
	{ "rope_parameters", "{\"rope_type\":\"llama3\",\"rope_theta\":"
	  "500000.0," LLAMA3 "}",
	  { 1.0f, 0.0273441373f, 0.000176776695f, 3.76732269e-07f } },
	{ "rope_parameters", "{\"rope_type\":\"default\",\"rope_theta\":"
	  "10000.0}",
	  { 1.0f, 0.1f, 0.01f, 0.000133352143f } },
};

START_TEST(test_rope)
{
	static const u32 at[4] = { 0, 8, 16, 31 };
	float freq[32];
	u32 i;

	write_changed(ropes[_i].key, ropes[_i].value);
	ck_assert_msg(!model_config_read(dir, &cfg, &err), "%s", err.text);
	rope_inv_freq(&cfg.rope, 64, freq);
	for (i = 0; i < 4; i++)
		ck_assert_msg(fabsf(freq[at[i]] - ropes[_i].freq[i]) <=
			      1e-6f * ropes[_i].freq[i],
			      "pair %u is %.9g, not %.9g", at[i], freq[at[i]],
			      ropes[_i].freq[i]);
}
END_TEST

START_TEST(test_rope_refuses_two_truths)
{
	char more[256];

	snprintf(more, sizeof(more), "\"rope_scaling\":{\"rope_type\":"
		 "\"linear\",\"factor\":2.0},\"rope_parameters\":"
		 "{\"rope_type\":\"linear\",\"factor\":4.0}");
	ck_assert_int_eq(read_family("LlamaForCausalLM", more), -EINVAL);
	assert_message("config.json", "rope_parameters: and rope_scaling");
}
END_TEST

static int read_generation(const char *text, struct model_generation *gen)
{
	write_text("config.json", base);
	ck_assert_int_eq(model_config_read(dir, &cfg, &err), 0);
	if (text)
		write_text("generation_config.json", text);
	return model_config_generation(dir, &cfg, gen, &err);
}

START_TEST(test_generation)
{
	struct model_generation g;

	ck_assert_int_eq(read_generation("{\"do_sample\":true,\"temperature\":"
		"0.6,\"top_p\":0.9,\"top_k\":40,\"min_p\":0.05,"
		"\"repetition_penalty\":1.1,\"max_new_tokens\":77,"
		"\"bos_token_id\":5,\"eos_token_id\":[6,7]}", &g), 0);
	ck_assert_uint_eq(g.has, MODEL_GEN_DO_SAMPLE | MODEL_GEN_TEMPERATURE |
			  MODEL_GEN_TOP_P | MODEL_GEN_TOP_K |
			  MODEL_GEN_MIN_P | MODEL_GEN_REPETITION_PENALTY |
			  MODEL_GEN_MAX_NEW_TOKENS);
	ck_assert(g.do_sample);
	ck_assert_double_eq(g.temperature, 0.6);
	ck_assert_double_eq(g.top_p, 0.9);
	ck_assert_uint_eq(g.top_k, 40);
	ck_assert_double_eq(g.min_p, 0.05);
	ck_assert_double_eq(g.repetition_penalty, 1.1);
	ck_assert_uint_eq(g.max_new_tokens, 77);
	ck_assert_int_eq(cfg.bos_id, 5);
	ck_assert_uint_eq(cfg.nr_eos, 2);
	ck_assert_uint_eq(cfg.eos_ids[1], 7);
}
END_TEST

START_TEST(test_generation_absent)
{
	struct model_generation g;

	ck_assert_int_eq(read_generation(NULL, &g), 0);
	ck_assert_uint_eq(g.has, 0);
	ck_assert_str_eq(err.text, "");
	ck_assert_int_eq(cfg.bos_id, 1);
	ck_assert_uint_eq(cfg.eos_ids[0], 2);
	ck_assert_int_eq(read_generation("{\"temperature\":null}", &g), 0);
	ck_assert_uint_eq(g.has, 0);
	ck_assert_uint_eq(cfg.nr_eos, 1);
}
END_TEST

static const struct {
	const char	*text;
	const char	*words;
} bad_generation[] = {
	{ "{", "line 1" },
	{ "{\"temperature\":\"hot\"}", "temperature: is no number" },
	{ "{\"temperature\":-1}", "temperature: -1 is outside" },
	{ "{\"top_p\":1.5}", "top_p: 1.5 is outside" },
	{ "{\"top_k\":1.5}", "top_k: is no whole number" },
	{ "{\"do_sample\":\"yes\"}", "do_sample: is neither" },
	{ "{\"repetition_penalty\":0}", "repetition_penalty: 0 is outside" },
	{ "{\"eos_token_id\":1000}", "eos_token_id: holds something" },
};

START_TEST(test_generation_refuses)
{
	struct model_generation g;

	ck_assert_int_eq(read_generation(bad_generation[_i].text, &g),
			 -EINVAL);
	assert_message("generation_config.json", bad_generation[_i].words);
}
END_TEST

static Suite *config_suite(void)
{
	Suite *s = suite_create("model_config");
	TCase *tc = tcase_create("config");
	TCase *gen = tcase_create("generation");

	tcase_set_tags(tc, "unit model");
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_reads_base);
	tcase_add_loop_test(tc, test_takes, 0, ARRAY_SIZE(fine));
	tcase_add_loop_test(tc, test_refuses, 0, ARRAY_SIZE(bad));
	tcase_add_loop_test(tc, test_refuses_text, 0, ARRAY_SIZE(bad_text));
	tcase_add_loop_test(tc, test_refuses_heavy, 0, 2);
	tcase_add_test(tc, test_names_git_lfs_pointer);
	tcase_add_test(tc, test_refuses_missing_file);
	tcase_add_test(tc, test_refuses_no_file);
	tcase_add_loop_test(tc, test_refusal_is_a_line, 0, 4);
	tcase_add_test(tc, test_survives_huge_integers);
	tcase_add_test(tc, test_eos_list);
	tcase_add_test(tc, test_defaults);
	tcase_add_test(tc, test_families);
	tcase_add_test(tc, test_windows);
	tcase_add_test(tc, test_layer_types);
	tcase_add_test(tc, test_two_ropes);
	tcase_add_test(tc, test_stretched);
	tcase_add_loop_test(tc, test_rope, 0, ARRAY_SIZE(ropes));
	tcase_add_test(tc, test_rope_refuses_two_truths);
	suite_add_tcase(s, tc);

	tcase_set_tags(gen, "unit model");
	tcase_add_checked_fixture(gen, setup, teardown);
	tcase_add_test(gen, test_generation);
	tcase_add_test(gen, test_generation_absent);
	tcase_add_loop_test(gen, test_generation_refuses, 0,
			    ARRAY_SIZE(bad_generation));
	suite_add_tcase(s, gen);
	return s;
}

int main(void)
{
	SRunner *sr = srunner_create(config_suite());
	int failed;

	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
