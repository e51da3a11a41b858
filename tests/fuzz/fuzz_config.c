// SPDX-License-Identifier: Apache-2.0
/*
 * fuzz_config.c - config.json and generation_config.json of any bytes
 *
 * The input is written as both files of a folder.  A refusal of a configuration
 * must be one line that names the file.  A configuration that is accepted must
 * have sizes that the rest of the loader may rely on, frequencies that can be
 * computed, and tensors that can be counted.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/model/config.h"
#include "runtime/model/weights.h"
#include "tests/fuzz/fuzz.h"

static char dir[64];
static u64 nr_taken;

static void dir_remove(void)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/config.json", dir);
	unlink(path);
	snprintf(path, sizeof(path), "%s/generation_config.json", dir);
	unlink(path);
	rmdir(dir);
}

/* Write one file under both names. */
static void file_write(const u8 *data, size_t size)
{
	static int fd = -1;
	char path[128], link_path[128];

	if (fd < 0) {
		strcpy(dir, "/dev/shm/fuzz_config.XXXXXX");
		if (!mkdtemp(dir))
			abort();
		atexit(dir_remove);
		snprintf(path, sizeof(path), "%s/config.json", dir);
		snprintf(link_path, sizeof(link_path),
			 "%s/generation_config.json", dir);
		fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
		if (fd < 0 || link(path, link_path))
			abort();
	}
	if (ftruncate(fd, 0) || pwrite(fd, data, size, 0) != (ssize_t)size)
		abort();
}

static int count(void *arg, const struct weight_place *p)
{
	u64 *bytes = arg, n;

	FUZZ_LAW(p->rows && !__builtin_mul_overflow(p->rows,
		 p->cols ? p->cols : p->taps ? p->taps : 1, &n) &&
		 !__builtin_mul_overflow(n, p->stack ? p->stack : 1, &n) &&
		 !__builtin_add_overflow(*bytes, n, bytes),
		 "%llu x %llu", (unsigned long long)p->rows,
		 (unsigned long long)p->cols);
	return 0;
}

/* Recurrent layers have a shape that kernels take, and not all layers are recurrent. */
static void check_states(const struct model_config *c)
{
	struct kern_state s = config_states(c);
	u32 i, layers = 0;

	for (i = 0; i < c->layers; i++)
		layers += config_is_recurrent(c, i);
	FUZZ_LAW(layers == s.nr_layers && layers < c->layers, "%u of %u, %u",
		 layers, c->layers, s.nr_layers);
	if (!layers)
		return;
	FUZZ_LAW(s.groups && s.heads && s.heads % s.groups == 0, "%u of %u",
		 s.groups, s.heads);
	FUZZ_LAW(s.head_dim && s.head_dim % KERN_DIM_ALIGN == 0 &&
		 s.head_dim <= KERN_MAX_HEAD_DIM, "%u", s.head_dim);
	FUZZ_LAW(s.d_state && s.d_state % KERN_DIM_ALIGN == 0 &&
		 s.d_state <= KERN_MAX_HEAD_DIM, "%u", s.d_state);
	FUZZ_LAW(s.conv >= 2 && s.conv <= KERN_MAX_CONV, "%u taps", s.conv);
	s.block_bytes = kern_state_stride(&s);
	FUZZ_LAW(kern_state_blocks(&s) == (u64)layers * kern_state_units(&s),
		 "%u blocks", kern_state_blocks(&s));
}

/* Check the properties that the rest of the loader relies on. */
static void check_taken(const struct model_config *c)
{
	float freq[KERN_MAX_HEAD_DIM / 2];
	u64 bytes = 0;

	FUZZ_LAW(c->vocab && c->hidden && c->inter && c->layers, "a size of 0");
	FUZZ_LAW(c->heads && c->kv_heads && c->heads % c->kv_heads == 0,
		 "%u heads, %u of keys", c->heads, c->kv_heads);
	FUZZ_LAW(c->layers <= MODEL_MAX_LAYERS && c->nr_eos <= MODEL_MAX_EOS,
		 "%u layers, %u eos", c->layers, c->nr_eos);
	FUZZ_LAW(c->max_position && c->max_position <= INT32_MAX, "%u",
		 c->max_position);
	FUZZ_LAW(c->head_dim && c->head_dim % KERN_HEAD_ALIGN == 0, "%u",
		 c->head_dim);
	FUZZ_LAW(config_kv_dim(c) <= (c->latent.rank ? KERN_MAX_LATENT_DIM :
						       KERN_MAX_HEAD_DIM) &&
		 config_kv_dim(c) % (c->latent.rank ? KERN_DIM_ALIGN :
						      KERN_HEAD_ALIGN) == 0,
		 "%u", config_kv_dim(c));
	FUZZ_LAW(!c->latent.rank || (c->kv_heads == 1 && c->latent.value &&
				     c->latent.rank <= KERN_MAX_RANK &&
				     c->latent.nope && c->latent.rope),
		 "%u of %u", c->latent.rank, c->latent.value);
	FUZZ_LAW(config_rotary(c) <= c->head_dim && config_rotary(c) % 2 == 0,
		 "%u of %u", config_rotary(c), c->head_dim);
	FUZZ_LAW(c->learned || c->unplaced || config_rotary(c),
		 "no positions at all");
	check_states(c);
	FUZZ_LAW(c->moe.experts <= KERN_MAX_EXPERTS &&
		 c->moe.chosen <= min(c->moe.experts, KERN_MAX_CHOSEN) &&
		 !c->moe.experts == !c->moe.chosen &&
		 !c->moe.experts == !c->moe.groups, "%u experts, %u chosen",
		 c->moe.experts, c->moe.chosen);
	rope_inv_freq(&c->rope, config_rotary(c), freq);
	rope_inv_freq_at(&c->rope_local, config_rotary(c), c->max_position,
			 freq);
	weights_each(c, count, &bytes);
	nr_taken++;
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	struct model_generation gen;
	struct model_error err = { "" };
	struct model_config cfg;
	int ret;

	file_write(data, size);
	ret = model_config_read(dir, &cfg, &err);
	if (!ret)
		check_taken(&cfg);
	else
		FUZZ_LAW((ret == -EINVAL || ret == -EOPNOTSUPP) &&
			 strstr(err.text, "/config.json: ") &&
			 !strchr(err.text, '\n'), "%d: %s", ret, err.text);
	if (ret)
		cfg = (struct model_config){ .vocab = 1000 };
	err.text[0] = '\0';
	ret = model_config_generation(dir, &cfg, &gen, &err);
	FUZZ_LAW(!ret || (strstr(err.text, "/generation_config.json: ") &&
			  !strchr(err.text, '\n')), "%d: %s", ret, err.text);
	return 0;
}

#ifndef FUZZ_LIB
/* ---- own mutations ---- */

static const char * const words[] = {
	"0", "1", "-1", "2", "16", "64", "1e30", "4294967296", "0.5", "null",
	"true", "false", "\"\"", "\"silu\"", "\"yarn\"", "\"dynamic\"",
	"\"linear\"", "\"llama3\"", "\"sliding_attention\"", "[]", "{}", "{",
	"}", "[", "]", ",", ":", "\"", "\"factor\":2,", "\"type\":\"yarn\",",
	"\"head_dim\":48,", "\"layer_types\":[\"full_attention\"],",
	"\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2},",
	"\"attention_bias\":true,", "\"eos_token_id\":[1,2],",
	"\"GptOssForCausalLM\"", "\"num_local_experts\":4,",
	"\"Qwen3MoeForCausalLM\"", "\"moe_intermediate_size\":24,",
	"\"num_experts\":4,\"num_experts_per_tok\":2,",
	"\"DeepseekV2ForCausalLM\"", "\"kv_lora_rank\":32,\"v_head_dim\":16,"
	"\"qk_nope_head_dim\":16,\"qk_rope_head_dim\":16,",
	"\"first_k_dense_replace\":1,\"n_routed_experts\":4,"
	"\"n_shared_experts\":1,", "\"q_lora_rank\":32,",
	"\"layer_types\":[\"mamba\",\"attention\"],", "\"mamba_n_heads\":8,",
	"\"OPTForCausalLM\"", "\"BambaForCausalLM\"", "\"Gemma3ForCausalLM\"",
	"\"Qwen3ForCausalLM\"", "\"Phi3ForCausalLM\"",
	"\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1,2],"
	"\"long_factor\":[3,4]},", "\"original_max_position_embeddings\":64,",
	"\"SmolLM3ForCausalLM\"", "\"no_rope_layers\":[1,0],",
	"\"Cohere2ForCausalLM\"", "\"CohereForCausalLM\"", "\"use_qk_norm\":true,",
	"\"StableLmForCausalLM\"", "\"qk_layernorm\":true,",
	"\"use_parallel_residual\":true,", "\"PhiForCausalLM\"",
	"\"word_embed_proj_dim\":48,", "\"do_layer_norm_before\":false,",
	"\"Olmo2ForCausalLM\"", "\"vision_config\":{},",
};

/* The end of the value that begins at @at. */
static size_t value_end(const u8 *buf, size_t len, size_t at)
{
	while (at < len && !strchr(",}\n", buf[at]))
		at++;
	return at;
}

/* Put a word in place of a value, or anywhere. */
static size_t mutate(u8 *buf, size_t len, size_t max)
{
	const char *w = words[fuzz_draw(ARRAY_SIZE(words))];
	size_t at = fuzz_draw((u32)len + 1), end;
	const u8 *colon = memchr(buf + at, ':', len - at);

	if (colon && fuzz_draw(3)) {
		at = (size_t)(colon - buf) + 1;
		end = value_end(buf, len, at);
	} else {
		end = min(at + fuzz_draw(4), len);
	}
	return fuzz_put(buf, len, max, at, end - at, w, strlen(w));
}

const struct fuzz_own fuzz_own = {
	.pack = 128 << 10, .words = words, .nr_words = ARRAY_SIZE(words),
	.mutate = mutate, .changes = 3, .taken = &nr_taken,
};
#endif
