// SPDX-License-Identifier: Apache-2.0
/*
 * fuzz_config.c - config.json and generation_config.json of any bytes
 *
 * The input is written as both files of a folder.  A configuration that is
 * refused must say so in one line that names the file; one that is taken must
 * have sizes that the rest of the loader may rely on, frequencies that can be
 * computed, and tensors that can be counted.
 *
 * With -DFUZZ_LIB it is a libFuzzer target for clang:
 *	clang -g -O1 -fsanitize=fuzzer,address,undefined -DFUZZ_LIB -Iinclude -I. \
 *		-D_GNU_SOURCE= -o build/fuzz_config tests/fuzz/fuzz_config.c \
 *		runtime/model/{config,config_rope,config_window,families}.c \
 *		runtime/model/{rope,json,error,layout,weights}.c \
 *		runtime/model/{checkpoint,safetensors}.c -ljansson -lm
 *
 * Without, it is a program that mutates the files that it is given:
 *	fuzz_config ROUNDS SEED FILE..
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/model/config.h"
#include "runtime/model/weights.h"

int LLVMFuzzerTestOneInput(const u8 *data, size_t size);

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

/* One file under both names. */
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

	if (!p->rows || __builtin_mul_overflow(p->rows, p->cols ? p->cols : 1,
					       &n) ||
	    __builtin_add_overflow(*bytes, n, bytes))
		abort();
	return 0;
}

/* What the rest of the loader relies on. */
static void check_taken(const struct model_config *c)
{
	float freq[KERN_MAX_HEAD_DIM / 2];
	u64 bytes = 0;

	if (!c->vocab || !c->hidden || !c->inter || !c->layers || !c->heads ||
	    !c->kv_heads || !c->max_position || c->heads % c->kv_heads ||
	    c->layers > MODEL_MAX_LAYERS || c->nr_eos > MODEL_MAX_EOS ||
	    c->max_position > INT32_MAX)
		abort();
	if (!c->head_dim || c->head_dim % KERN_DIM_ALIGN ||
	    c->head_dim > KERN_MAX_HEAD_DIM ||
	    config_rotary(c) > c->head_dim || config_rotary(c) % 2 ||
	    (!c->learned && !config_rotary(c)))
		abort();
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
	else if ((ret != -EINVAL && ret != -EOPNOTSUPP) ||
		 !strstr(err.text, "/config.json: ") ||
		 strchr(err.text, '\n'))
		abort();
	if (ret)
		cfg = (struct model_config){ .vocab = 1000 };
	err.text[0] = '\0';
	ret = model_config_generation(dir, &cfg, &gen, &err);
	if (ret && (!strstr(err.text, "/generation_config.json: ") ||
		    strchr(err.text, '\n')))
		abort();
	return 0;
}

#ifndef FUZZ_LIB
/* ---- by itself ---- */

#include "tests/fuzz/blind.h"

#define INPUT_MAX	4096
#define FILES_MAX	64

static char *files[FILES_MAX];
static u32 nr_files;
static const char * const words[] = {
	"0", "1", "-1", "2", "16", "64", "1e30", "4294967296", "0.5", "null",
	"true", "false", "\"\"", "\"silu\"", "\"yarn\"", "\"dynamic\"",
	"\"linear\"", "\"llama3\"", "\"sliding_attention\"", "[]", "{}", "{",
	"}", "[", "]", ",", ":", "\"", "\"factor\":2,", "\"type\":\"yarn\",",
	"\"head_dim\":48,", "\"layer_types\":[\"full_attention\"],",
	"\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2},",
	"\"attention_bias\":true,", "\"eos_token_id\":[1,2],",
	"\"OPTForCausalLM\"", "\"Gemma3ForCausalLM\"", "\"Qwen3ForCausalLM\"",
};

/* The end of the value that begins at @at. */
static size_t value_end(const char *buf, size_t len, size_t at)
{
	while (at < len && !strchr(",}\n", buf[at]))
		at++;
	return at;
}

/* Another word in place of a value, or anywhere. */
static size_t mutate(char *buf, size_t len)
{
	const char *w = words[draw(ARRAY_SIZE(words))];
	const size_t n = strlen(w);
	size_t at = draw((u32)len + 1), end;
	const char *colon = memchr(buf + at, ':', len - at);

	if (colon && draw(3)) {
		at = (size_t)(colon - buf) + 1;
		end = value_end(buf, len, at);
	} else {
		end = min(at + draw(4), len);
	}
	return put_piece(buf, len, INPUT_MAX, at, end - at, w, n);
}

static void file_read(const char *path)
{
	char *text = calloc(1, INPUT_MAX + 1);

	if (!text)
		abort();
	(void)blind_read(path, text, INPUT_MAX);
	files[nr_files++] = text;
}

int main(int argc, char **argv)
{
	char buf[INPUT_MAX];
	u64 rounds, i;
	size_t len;
	u32 n;
	int k;

	rounds = blind_begin(argc, argv, "fuzz_config", 1);
	for (k = 3; k < argc && nr_files < FILES_MAX; k++)
		file_read(argv[k]);
	for (i = 0; i < rounds; i++) {
		const char *from = files[draw(nr_files)];

		len = strlen(from);
		memcpy(buf, from, len);
		for (n = draw(4); n--; )
			len = mutate(buf, len);
		LLVMFuzzerTestOneInput((u8 *)buf, len);
	}
	for (n = 0; n < nr_files; n++)
		free(files[n]);
	printf("total: %llu files, %llu taken\n", (unsigned long long)rounds,
	       (unsigned long long)nr_taken);
	return 0;
}
#endif
