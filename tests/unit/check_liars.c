// SPDX-License-Identifier: Apache-2.0
/*
 * check_liars.c - malicious files in a model's folder
 *
 * Each row is a folder with one file that claims, nests, repeats or holds more
 * than any model needs.  Its reader must refuse it in one line that has its
 * name and the reason, within check's time limit, and with no more memory than
 * a row allows: LIAR_ROOM and the file's own text. check_safetensors,
 * check_model_config and check_tokenizer_files have files that are only wrong;
 * check_template has the limits of a template.
 */
#include <check.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/model/checkpoint.h"
#include "runtime/model/config.h"
#include "runtime/template/chat.h"
#include "runtime/tokenizer/tokenizer.h"

/* MiB that a reader may use beside the text: parsers stop early. */
#define LIAR_ROOM	48

static char dir[128], why[1024];

static void setup(void)
{
	const char *tmp = getenv("TMPDIR");

	snprintf(dir, sizeof(dir), "%s/check_liars.XXXXXX", tmp ? tmp : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(dir));
}

static void teardown(void)
{
	char command[200];

	snprintf(command, sizeof(command), "rm -rf '%s'", dir);
	ck_assert_int_eq(system(command), 0);
}

static FILE *file_open(const char *name)
{
	char path[256];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "w");
	ck_assert_ptr_nonnull(f);
	return f;
}

static void file_write(const char *name, const char *text)
{
	FILE *f = file_open(name);

	ck_assert_int_ge(fputs(text, f), 0);
	ck_assert_int_eq(fclose(f), 0);
}

/* ---- readers ---- */

static int read_config(void)
{
	struct model_error err = { "" };
	struct model_config cfg;
	int ret = model_config_read(dir, &cfg, &err);

	snprintf(why, sizeof(why), "%s", err.text);
	return ret;
}

static int read_generation(void)
{
	struct model_config cfg = { .vocab = 1000 };
	struct model_error err = { "" };
	struct model_generation gen;
	int ret = model_config_generation(dir, &cfg, &gen, &err);

	snprintf(why, sizeof(why), "%s", err.text);
	return ret;
}

static int read_checkpoint(void)
{
	struct model_error err = { "" };
	struct ckpt *c;
	int ret = ckpt_open(dir, &c, &err);

	snprintf(why, sizeof(why), "%s", err.text);
	return ret;
}

static int read_tokenizer(void)
{
	struct tokenizer *tok;

	return tokenizer_load(dir, &tok, why, sizeof(why));
}

/* Like above, of vocab.json and merges.txt; a missing one is replaced by a sound one. */
static int read_pair(void)
{
	const char *top = getenv("KVMM_TOP");
	char path[256], data[4096], *whole;

	snprintf(data, sizeof(data), "%s/tests/data/tokenizers/pair/vocab.json",
		 top ? top : ".");
	whole = realpath(data, NULL);
	ck_assert_msg(whole, "%s", data);
	snprintf(path, sizeof(path), "%s/vocab.json", dir);
	if (access(path, F_OK))
		ck_assert_int_eq(symlink(whole, path), 0);
	free(whole);
	snprintf(path, sizeof(path), "%s/tokenizer_config.json", dir);
	if (access(path, F_OK))
		file_write("tokenizer_config.json",
			   "{\"tokenizer_class\":\"GPT2Tokenizer\"}");
	return read_tokenizer();
}

static int read_chat(void)
{
	struct chat *chat;

	return chat_load(dir, NULL, &chat, why, sizeof(why));
}

/* ---- the liars ---- */

#define SHARD	"\":\"x.safetensors\","

static const struct {
	int		(*read)(void);
	const char	*file;
	const char	*head;
	const char	*unit;		/* @times times; %u is the number */
	u32		times;
	const char	*tail;
	const char	*words;
} liars[] = {
	/* Deep */
	{ read_config, "config.json", "{\"a\":", "[", 100000, "",
	  "maximum parsing depth" },
	{ read_config, "config.json", "{\"rope_scaling\":", "{\"a\":", 100000,
	  "", "maximum parsing depth" },
	{ read_generation, "generation_config.json", "{\"eos_token_id\":", "[",
	  100000, "", "maximum parsing depth" },
	{ read_checkpoint, "model.safetensors.index.json", "{\"weight_map\":",
	  "{\"a\":", 100000, "", "maximum parsing depth" },
	{ read_tokenizer, "tokenizer.json", "{\"model\":", "{\"a\":", 100000,
	  "", "maximum parsing depth" },
	{ read_pair, "tokenizer_config.json", "{\"added_tokens_decoder\":",
	  "{\"a\":", 100000, "", "maximum parsing depth" },
	{ read_pair, "vocab.json", "{\"a\":", "[", 100000, "",
	  "maximum parsing depth" },
	{ read_pair, "special_tokens_map.json", "", "{\"a\":", 100000, "",
	  "maximum parsing depth" },
	{ read_pair, "added_tokens.json", "{\"a\":", "[", 100000, "",
	  "maximum parsing depth" },
	{ read_chat, "tokenizer_config.json", "{\"chat_template\":", "[",
	  100000, "", "maximum parsing depth" },
	{ read_chat, "chat_template.jinja", "{{ ", "(", 100000, "",
	  "inside of each other" },
	{ read_chat, "chat_template.jinja", "", "{% for a in x %}", 50000, "",
	  "inside of each other" },
	/* Wide: more values than a parser takes */
	{ read_config, "config.json", "{\"eos_token_id\":[0", ",0", 5000000,
	  "]}", "more than 4194304 values" },
	{ read_generation, "generation_config.json", "{\"eos_token_id\":[0",
	  ",0", 5000000, "]}", "more than 4194304 values" },
	{ read_checkpoint, "model.safetensors.index.json",
	  "{\"weight_map\":{", "\"t%u" SHARD, 3000000, "\"a\":\"b\"}}",
	  "more than 4194304 values" },
	{ read_pair, "vocab.json", "{\"a\":[0", ",0", 17000000, "]}",
	  "more than 16777216 values" },
	{ read_chat, "tokenizer_config.json", "{\"chat_template\":[0", ",0",
	  5000000, "]}", "more than 4194304 values" },
	{ read_chat, "chat_template.jinja", "", "{{ 1 }}", 60000, "",
	  "nodes" },
	/* Long: a key, a name, a number */
	{ read_config, "config.json", "{\"architectures\":[\"", "Llama",
	  1000000, "\"]}", "LlamaLlamaLlama" },
	{ read_config, "config.json", "{\"vocab_size\":1", "0", 100000, "}",
	  "real number overflow" },
	{ read_checkpoint, "model.safetensors.index.json",
	  "{\"weight_map\":{\"a\":\"", "shard", 100000, "\"}}",
	  "a: names a file with more than 255 bytes" },
	/* Merges of unknown tokens, and lines that are no pair */
	{ read_pair, "merges.txt", "", "a b%u\n", 200000, "", "merge 0 names" },
	{ read_pair, "merges.txt", "a", " a", 1000000, "", "is no pair" },
};

static u64 peak_mib(void)
{
	struct rusage ru;

	ck_assert_int_eq(getrusage(RUSAGE_SELF, &ru), 0);
	return (u64)ru.ru_maxrss >> 10;
}

/* Return: MiB of the file. */
static u64 write_liar(int i)
{
	FILE *f = file_open(liars[i].file);
	long len;
	u32 n;

	fputs(liars[i].head, f);
	for (n = 0; n < liars[i].times; n++)
		if (strchr(liars[i].unit, '%') && strstr(liars[i].unit, "%u"))
			fprintf(f, liars[i].unit, n);
		else
			fputs(liars[i].unit, f);
	fputs(liars[i].tail, f);
	len = ftell(f);
	ck_assert_int_eq(fclose(f), 0);
	return (u64)len >> 20;
}

static void expect_line(const char *file, const char *words)
{
	ck_assert_msg(!strncmp(why, dir, strlen(dir)), "%s", why);
	ck_assert_msg(strstr(why, file) && strstr(why, words), "%s", why);
	ck_assert_ptr_null(strchr(why, '\n'));
	ck_assert_uint_lt(strlen(why), 600);
}

START_TEST(test_liar)
{
	u64 room = write_liar(_i) + LIAR_ROOM, before = peak_mib(), took;

	ck_assert_int_lt(liars[_i].read(), 0);
	expect_line(liars[_i].file, liars[_i].words);
	took = peak_mib() - before;
	/* Sanitizers keep freed memory and have their own, too. */
	if (getenv("KVMM_SANITIZER") && *getenv("KVMM_SANITIZER"))
		room = 4 * room + 256;
	ck_assert_msg(took <= room, "%llu MiB", (unsigned long long)took);
}
END_TEST

/* Sparse files that claim to have a terabyte. */
static const struct {
	int		(*read)(void);
	const char	*file;
	const char	*words;
} endless[] = {
	{ read_config, "config.json", "at most" },
	{ read_generation, "generation_config.json", "at most" },
	{ read_checkpoint, "model.safetensors.index.json", "at most" },
	{ read_checkpoint, "model.safetensors", "does not start with '{'" },
	{ read_tokenizer, "tokenizer.json", "at most" },
	{ read_pair, "vocab.json", "at most" },
	{ read_pair, "merges.txt", "at most" },
	{ read_pair, "tokenizer_config.json", "at most" },
	{ read_chat, "tokenizer_config.json", "at most" },
	{ read_chat, "chat_template.jinja", "at most" },
};

START_TEST(test_endless)
{
	FILE *f = file_open(endless[_i].file);
	u64 before = peak_mib();

	ck_assert_int_eq(ftruncate(fileno(f), 1ll << 40), 0);
	fclose(f);
	ck_assert_int_lt(endless[_i].read(), 0);
	expect_line(endless[_i].file, endless[_i].words);
	ck_assert_uint_le(peak_mib() - before, LIAR_ROOM);
}
END_TEST

/* Templates that would run for ever, under the limits of a server. */
static const char * const loops[] = {
	"{% for a in range(99999) %}{% for b in range(99999) %}"
	"{% for c in range(99999) %}{% endfor %}{% endfor %}{% endfor %}",
	"{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}",
	"{% macro a() %}{{ b() }}{% endmacro %}"
	"{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}",
	"{% set n = namespace(l=[1]) %}{% for a in range(99999) %}"
	"{% set n.l = n.l + n.l %}{% endfor %}",
	"{% set n = namespace(s='x') %}{% for a in range(99999) %}"
	"{% set n.s = n.s ~ n.s %}{% endfor %}{{ n.s }}",
	"{% for a in range(99999) %}{% for b in range(99999) %}x"
	"{% endfor %}{% endfor %}",
};

START_TEST(test_loop)
{
	json_t *messages = json_pack("[{s:s,s:s}]", "role", "user", "content",
				     "x");
	struct chat_input in = { .messages = messages };
	struct tmpl_error err;
	struct chat *chat;
	u64 before;
	size_t len;

	file_write("chat_template.jinja", loops[_i]);
	ck_assert_int_eq(chat_load(dir, NULL, &chat, why, sizeof(why)), 0);
	before = peak_mib();
	ck_assert_ptr_null(chat_render(chat, &in, NULL, &len, &err));
	ck_assert_int_eq(err.what, TMPL_LIMIT);
	ck_assert(err.text[0] && !strchr(err.text, '\n'));
	ck_assert_uint_le(peak_mib() - before, 16 * LIAR_ROOM);
	chat_free(chat);
	json_decref(messages);
}
END_TEST

static Suite *liars_suite(void)
{
	Suite *s = suite_create("liars");
	TCase *tc = tcase_create("all");

	tcase_set_tags(tc, "unit model tokenizer template");
	tcase_set_timeout(tc, 10);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, test_liar, 0, ARRAY_SIZE(liars));
	tcase_add_loop_test(tc, test_endless, 0, ARRAY_SIZE(endless));
	tcase_add_loop_test(tc, test_loop, 0, ARRAY_SIZE(loops));
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	SRunner *sr = srunner_create(liars_suite());
	int failed;

	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
