// SPDX-License-Identifier: Apache-2.0
/*
 * check_engine_cli.c - kvrt's options, prompts and output
 *
 * All of runtime/cli but the run itself: arguments and files that it reads, and
 * its output for a person or a program.  A reader that does not read the output
 * holds up no other prompt.  Texts go through the tokenizer of the demo model.
 */
#include <check.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/cli/cli.h"
#include "tests/tmp.h"
#include "tests/unit/page.h"

static struct tokenizer *tok;
static struct prompts prompts;
static struct printer printer;
static struct output out;
static int pipe_fd[2];
static char dir[128];
static char name[160];

static const char *top(const char *path)
{
	static char buf[512];
	const char *t = getenv("KVMM_TOP");

	snprintf(buf, sizeof(buf), "%s/%s", t ? t : ".", path);
	return buf;
}

static void setup(void)
{
	char err[TOKENIZER_ERR_MAX];
	int ret;

	ret = tokenizer_load(top("tests/data/demo-model"), &tok, err,
			     sizeof(err));
	ck_assert_msg(!ret, "%s", err);
	ck_assert_ptr_nonnull(mkdtemp(tmp_name(dir, sizeof(dir), "cli")));
	snprintf(name, sizeof(name), "%s/prompts", dir);
	ck_assert_int_eq(pipe(pipe_fd), 0);
	memset(&printer, 0, sizeof(printer));
	memset(&prompts, 0, sizeof(prompts));
	output_init(&out, pipe_fd[1]);
	/* These tests expect error messages. */
	ck_assert_int_eq(dup2(open("/dev/null", O_WRONLY), STDERR_FILENO),
			 STDERR_FILENO);
}

static void teardown(void)
{
	printer_destroy(&printer);
	output_close(&out);
	prompts_free(&prompts);
	tokenizer_free(tok);
	close(pipe_fd[0]);
	close(pipe_fd[1]);
	unlink(name);
	rmdir(dir);
}

/* ---- options ---- */

struct opts {
	u32		n;
	bool		flag;
	const char	*s;
};

static const struct kv_opt table[] = {
	{ .name = "num", .kind = KV_OPT_uint, .meta = "N", .help = "n",
	  .offset = offsetof(struct opts, n), .def = "3" },
	{ .name = "flag", .kind = KV_OPT_flag, .help = "f",
	  .offset = offsetof(struct opts, flag) },
	{ .name = "str", .kind = KV_OPT_str, .meta = "S", .help = "s",
	  .offset = offsetof(struct opts, s) },
};

static const struct kv_program prog = {
	.name = "prog", .operands = "X...", .about = "", .opts = table,
	.nr_opts = ARRAY_SIZE(table),
};

static const char * const shorts[] = { "-n", "--num", NULL };

static int parse(struct opts *o, char **argv, int *nr)
{
	int argc = 0;

	while (argv[argc])
		argc++;
	return cli_parse(&prog, shorts, o, argc, argv, nr);
}

START_TEST(test_short_names)
{
	char *argv[] = { (char[]){ "prog" }, (char[]){ "-n" }, (char[]){ "7" },
			 (char[]){ "a" }, (char[]){ "--str" },
			 (char[]){ "-n" }, (char[]){ "--" },
			 (char[]){ "-n" }, NULL };
	struct opts o;
	int nr;

	ck_assert_int_eq(parse(&o, argv, &nr), 0);
	ck_assert_uint_eq(o.n, 7);
	ck_assert_str_eq(o.s, "-n");		/* a value, not an option */
	ck_assert_int_eq(nr, 2);
	ck_assert_str_eq(argv[0], "a");
	ck_assert_str_eq(argv[1], "-n");
}
END_TEST

START_TEST(test_unknown_short_name)
{
	char *argv[] = { (char[]){ "prog" }, (char[]){ "-z" }, NULL };
	char *words[] = { (char[]){ "prog" }, (char[]){ "- a list" },
			  (char[]){ "-" }, NULL };
	char *help[] = { (char[]){ "prog" }, (char[]){ "-h" }, NULL };
	struct opts o;
	int nr;

	ck_assert_int_eq(parse(&o, argv, &nr), EX_USAGE);
	ck_assert_int_eq(parse(&o, words, &nr), 0);
	ck_assert_int_eq(nr, 2);
	ck_assert_int_eq(parse(&o, help, &nr), -1);
}
END_TEST

/* The types of a line of options, by the names of both programs. */
static const struct {
	const char		*dtype;
	const char		*kv;
	enum model_dtype	type;
	enum model_kv_type	kv_type;
} types[] = {
	{ NULL, NULL, MODEL_DTYPE_AUTO, MODEL_KV_AUTO },
	{ "auto", "fp8", MODEL_DTYPE_AUTO, MODEL_KV_FP8 },
	{ "f32", NULL, MODEL_F32, MODEL_KV_AUTO },
	{ "float32", NULL, MODEL_F32, MODEL_KV_AUTO },
	{ "float", "fp8_e4m3", MODEL_F32, MODEL_KV_FP8 },
	{ "bf16", "float32", MODEL_BF16, MODEL_KV_F32 },
	{ "bfloat16", "float16", MODEL_BF16, MODEL_KV_F16 },
	{ "float16", NULL, MODEL_F32, MODEL_KV_F16 },
	{ "half", "bfloat16", MODEL_F32, MODEL_KV_BF16 },
	{ "half", "int8", MODEL_F32, MODEL_KV_INT8 },
	{ "f32", "f32", MODEL_F32, MODEL_KV_F32 },
	{ "f32", "bf16", MODEL_F32, MODEL_KV_BF16 },
	{ "f32", "f16", MODEL_F32, MODEL_KV_F16 },
};

#define TYPE_OPTS(x)							\
	x(choice, dtype, "dtype", "auto", 0, 0, CLI_DTYPES, "")		\
	x(choice, kv, "kv-cache-dtype", "auto", 0, 0, CLI_KV_DTYPES, "")

struct type_opts {
#define x OPT_FIELD
	TYPE_OPTS(x)
#undef x
};

static const struct kv_opt type_table[] = {
#define x(...) OPT_ENTRY(struct type_opts, __VA_ARGS__)
	TYPE_OPTS(x)
#undef x
};

START_TEST(test_types)
{
	const struct kv_program p = {
		.name = "prog", .opts = type_table,
		.nr_opts = ARRAY_SIZE(type_table),
	};
	char dtype[40], kv[40], *argv[4] = { (char[]){ "prog" } };
	struct model_opts mo = { 0 };
	struct type_opts o;
	int n = 1, nr;

	snprintf(dtype, sizeof(dtype), "--dtype=%s", types[_i].dtype);
	snprintf(kv, sizeof(kv), "--kv-cache-dtype=%s", types[_i].kv);
	if (types[_i].dtype)
		argv[n++] = dtype;
	if (types[_i].kv)
		argv[n++] = kv;
	ck_assert_int_eq(cli_parse(&p, NULL, &o, n, argv, &nr), 0);
	cli_types(o.dtype, o.kv, &mo);
	ck_assert_int_eq(mo.dtype, types[_i].type);
	ck_assert_int_eq(mo.kv_type, types[_i].kv_type);
}
END_TEST

START_TEST(test_numbers)
{
	double v = 5;
	u64 w = 5;

	ck_assert_int_eq(cli_number("t", NULL, 0, 1, &v), 0);
	ck_assert_double_eq(v, 5);
	ck_assert_int_eq(cli_number("t", "0.25", 0, 1, &v), 0);
	ck_assert_double_eq(v, 0.25);
	ck_assert_int_eq(cli_number("t", "1.5", 0, 1, &v), EX_USAGE);
	ck_assert_int_eq(cli_number("t", "-0.1", 0, 1, &v), EX_USAGE);
	ck_assert_int_eq(cli_number("t", "nan", 0, 1, &v), EX_USAGE);
	ck_assert_int_eq(cli_number("t", "0.5x", 0, 1, &v), EX_USAGE);
	ck_assert_int_eq(cli_number("t", "", 0, 1, &v), EX_USAGE);
	ck_assert_double_eq(v, 0.25);
	ck_assert_int_eq(cli_whole("s", "18446744073709551616", UINT64_MAX,
				   &w), EX_USAGE);
	ck_assert_int_eq(cli_whole("s", "9", 8, &w), EX_USAGE);
	ck_assert_int_eq(cli_whole("s", "8", 8, &w), 0);
	ck_assert_uint_eq(w, 8);
}
END_TEST

START_TEST(test_exit_codes)
{
	ck_assert_int_eq(cli_exit_of(-E2BIG), EX_DATAERR);
	ck_assert_int_eq(cli_exit_of(-ENOENT), EX_NOINPUT);
	ck_assert_int_eq(cli_exit_of(-ELOOP), EX_NOINPUT);
	ck_assert_int_eq(cli_exit_of(-ENXIO), EX_NOINPUT);
	ck_assert_int_eq(cli_exit_of(-ECONNRESET), EX_TEMPFAIL);
	ck_assert_int_eq(cli_exit_of(-EPROTO), EX_SOFTWARE);
	ck_assert_int_eq(cli_exit_of(-ENOTRECOVERABLE), CLI_EX_DEVICE);
}
END_TEST

/* A prompt or a file in place of the model folder is refused. */
START_TEST(test_folder)
{
	struct cli_model m;
	char *said = NULL;
	size_t len = 0;
	FILE *f = fopen(name, "w+");

	ck_assert_ptr_nonnull(f);
	ck_assert_int_eq(cli_model_find(&m, dir), 0);
	ck_assert_int_eq(dup2(fileno(f), STDERR_FILENO), STDERR_FILENO);
	ck_assert_int_eq(cli_model_find(&m, "Hello\nthere"), EX_NOINPUT);
	ck_assert_int_eq(cli_model_find(&m, name), EX_NOINPUT);	/* a file */
	rewind(f);
	ck_assert_int_gt(getline(&said, &len, f), 0);
	ck_assert_str_eq(said, "kvmm: error: MODEL 'Hello?there' is no folder and no file: give a model folder, a GGUF file, or hf:ORG/NAME, before any prompt\n");
	ck_assert_int_gt(getline(&said, &len, f), 0);
	ck_assert_ptr_nonnull(strstr(said, "is a file, not a folder, and no GGUF file: give the model folder"));
	free(said);
	fclose(f);
}
END_TEST

/* Does the refusal of @folder have these words? */
static void expect_refused(const char *folder, const char *words)
{
	struct cli_model m;
	char *said = NULL;
	size_t len = 0;
	FILE *f = tmpfile();

	ck_assert_ptr_nonnull(f);
	ck_assert_int_eq(dup2(fileno(f), STDERR_FILENO), STDERR_FILENO);
	ck_assert_int_eq(cli_model_find(&m, folder), EX_NOINPUT);
	rewind(f);
	ck_assert_int_gt(getline(&said, &len, f), 0);
	ck_assert_msg(strstr(said, words) != NULL, "%s: %s", folder, said);
	free(said);
	fclose(f);
}

/* A GGUF file is a model; a file and a name of the Hub are told apart from a typing error. */
START_TEST(test_no_folder_says_why)
{
	FILE *f = fopen(name, "w");
	struct cli_model m;

	ck_assert_ptr_nonnull(f);
	fputs("GGUF\3", f);
	fclose(f);
	ck_assert_int_eq(cli_model_find(&m, name), 0);
	ck_assert_str_eq(m.dir, name);
	f = fopen(name, "w");
	ck_assert_ptr_nonnull(f);
	fclose(f);
	expect_refused(name, "is a file, not a folder, and no GGUF file: give the model folder");
	expect_refused("some-org/Model-1.5B", "download it with `hf download some-org/Model-1.5B`");
	expect_refused("/models/m-q4.gguf", "MODEL '/models/m-q4.gguf': no such file: check its path");
	expect_refused("models/m-q4.gguf", "MODEL 'models/m-q4.gguf': no such file: check its path");
	expect_refused("hf:models/m-q4.gguf", "download it with `hf download models/m-q4.gguf`");
	expect_refused("/some-org/Model", "is no folder and no file: give a model folder");
	expect_refused("./Model", "is no folder and no file: give a model folder");
	expect_refused("a/b/c", "is no folder and no file: give a model folder");
	expect_refused("Is it/So?", "is no folder and no file: give a model folder");
}
END_TEST

static void file_make(const char *base)
{
	char path[300];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, base);
	f = fopen(path, "w");
	ck_assert_ptr_nonnull(f);
	fclose(f);
}

/* A folder of GGUF files is told from a model folder, which may have such files, too. */
START_TEST(test_folder_of_gguf)
{
	static const char * const files[] = { "m-b.gguf", "a.txt", "m-a.GGUF", "config.json" };
	char path[300], words[600];
	struct cli_model m;
	u32 i;

	for (i = 0; i < 3; i++)
		file_make(files[i]);
	snprintf(words, sizeof(words), "MODEL '%s' is a folder of GGUF files: give one of them, such as %s/m-a.GGUF",
		 dir, dir);
	expect_refused(dir, words);
	file_make(files[3]);
	ck_assert_int_eq(cli_model_find(&m, dir), 0);
	for (i = 0; i < ARRAY_SIZE(files); i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, files[i]);
		ck_assert_int_eq(unlink(path), 0);
	}
}
END_TEST

/* The page has exactly the text that --help prints. */
static void expect_documented(const struct kv_program *program)
{
	char *help = NULL, *page = page_read("kvrt.md");
	size_t len = 0;
	FILE *f;

	f = open_memstream(&help, &len);
	kv_opts_help(program, f);
	fclose(f);
	ck_assert_msg(strstr(page, help),
		      "Documentation/kvrt.md wants this text:\n%s", help);
	free(page);
	free(help);
}

START_TEST(test_documented)
{
	expect_documented(&cli_generate_program);
	expect_documented(&cli_inspect_program);
	expect_documented(&cli_ask_program);
	expect_documented(&cli_chat_program);
	expect_documented(&cli_run_program);
}
END_TEST

/* ---- prompts ---- */

static void write_file(const char *text, size_t len)
{
	FILE *f = fopen(name, "w");

	ck_assert_ptr_nonnull(f);
	ck_assert_uint_eq(fwrite(text, 1, len, f), len);
	fclose(f);
}

START_TEST(test_prompts_from_everywhere)
{
	char *args[] = { (char[]){ "one" }, (char[]){ "two\nlines" } };
	static const char text[] = "three\r\nfo\0ur\nfive";

	write_file(text, sizeof(text) - 1);
	ck_assert_int_eq(prompts_read(&prompts, args, 2, name), 0);
	ck_assert_uint_eq(prompts.nr, 5);
	ck_assert_str_eq(prompts.list[1].text, "two\nlines");
	ck_assert_str_eq(prompts.list[2].text, "three");
	ck_assert_uint_eq(prompts.list[3].len, 5);
	ck_assert_str_eq(prompts.list[4].text, "five");
	ck_assert_int_eq(prompts_encode(&prompts, tok), 0);
	ck_assert_uint_gt(prompts.list[1].nr, 2);
	ck_assert_uint_eq(prompts.list[1].ids[0], 0);
}
END_TEST

/* Without arguments and a file, all of standard input is one prompt. */
START_TEST(test_prompt_from_stdin)
{
	int fd;

	write_file("a\nb\n", 4);
	fd = open(name, O_RDONLY);
	ck_assert_int_eq(dup2(fd, STDIN_FILENO), STDIN_FILENO);
	close(fd);
	ck_assert_int_eq(prompts_read(&prompts, NULL, 0, NULL), 0);
	ck_assert_uint_eq(prompts.nr, 1);
	ck_assert_str_eq(prompts.list[0].text, "a\nb");
}
END_TEST

START_TEST(test_bad_prompts)
{
	char *empty[] = { (char[]){ "" } };
	char *bytes[] = { (char[]){ "a\xff" } };

	ck_assert_int_eq(prompts_read(&prompts, empty, 1, NULL), EX_DATAERR);
	ck_assert_int_eq(prompts_read(&prompts, NULL, 0, name), EX_NOINPUT);
	ck_assert_int_eq(prompts_read(&prompts, NULL, 0, dir), EX_IOERR);
	write_file("", 0);
	ck_assert_int_eq(prompts_read(&prompts, NULL, 0, name), EX_DATAERR);
	write_file("a\n\nb\n", 5);
	ck_assert_int_eq(prompts_read(&prompts, NULL, 0, name), EX_DATAERR);
	prompts_free(&prompts);
	ck_assert_int_eq(prompts_read(&prompts, bytes, 1, NULL), 0);
	ck_assert_int_eq(prompts_encode(&prompts, tok), EX_DATAERR);
}
END_TEST

/* ---- output ---- */

static const char *drain(void)
{
	static char buf[1 << 17];
	ssize_t n;

	output_flush(&out);
	fcntl(pipe_fd[0], F_SETFL, O_NONBLOCK);
	n = read(pipe_fd[0], buf, sizeof(buf) - 1);
	buf[max(n, (ssize_t)0)] = '\0';
	return buf;
}

/* A pipe that has no reader takes 64 KiB; the rest waits here, and no write blocks. */
START_TEST(test_output_never_blocks)
{
	char piece[1000];
	size_t got = 0;
	int i;

	memset(piece, 'x', sizeof(piece));
	for (i = 0; i < 200; i++) {
		output_write(&out, piece, sizeof(piece));
		output_flush(&out);
	}
	ck_assert_uint_gt(out.len, 100000);
	while (out.len)
		got += strlen(drain());
	got += strlen(drain());
	ck_assert_uint_eq(got, 200000);
	ck_assert_int_eq(out.err, 0);
}
END_TEST

START_TEST(test_output_broken)
{
	signal(SIGPIPE, SIG_IGN);
	close(pipe_fd[0]);
	output_puts(&out, "x");
	output_flush(&out);
	ck_assert_int_eq(out.err, -EPIPE);
	output_puts(&out, "more");
	ck_assert_int_eq(output_close(&out), -EPIPE);
	out.err = 0;
}
END_TEST

/* ---- samples ---- */

static void begin(enum print_mode mode, u32 nr, u32 n)
{
	ck_assert_int_eq(printer_create(&printer, mode, &out, tok, nr, n, 200),
			 0);
}

/* Feed @text as tokens to a sample. */
static void feed(u32 prompt, u32 sample, const char *text)
{
	u32 ids[200];
	ssize_t n, i;

	n = tokenizer_encode(tok, text, strlen(text), TOKENIZER_PLAIN, ids, 200,
			     NULL);
	ck_assert_int_ge(n, 0);
	for (i = 0; i < n; i++)
		printer_token(printer_of(&printer, prompt), sample,
			      &(struct engine_token){ .id = ids[i] });
}

static void end(u32 prompt, u32 sample, enum engine_reason reason, int err)
{
	const struct engine_done done = {
		.sample = sample, .reason = reason, .err = err,
		.text = err ? "it broke" : "", .prompt_tokens = 9,
		.cached_tokens = 4,
	};

	printer_done(printer_of(&printer, prompt), &done);
}

START_TEST(test_stream_is_the_text)
{
	begin(PRINT_STREAM, 1, 1);
	feed(0, 0, " one");
	ck_assert_str_eq(drain(), " one");
	feed(0, 0, " two\nthr\u00e9e \U0001f600");
	end(0, 0, ENGINE_STOP, 0);
	ck_assert_str_eq(drain(), " two\nthr\u00e9e \U0001f600\n");
}
END_TEST

START_TEST(test_lines_have_labels)
{
	static const char words[] =
		" and the quick brown fox jumps over the lazy dog";

	begin(PRINT_LINES, 2, 2);
	feed(0, 0, " In the beginning");
	ck_assert_str_eq(drain(), "");
	feed(1, 1, "short\n\nnext");
	ck_assert_str_eq(drain(), "[2.2] short\n");
	feed(0, 0, words);
	feed(0, 0, words);
	ck_assert_str_eq(drain(),
			 "[1.1] In the beginning and the quick brown fox "
			 "jumps over the lazy dog and\n");
	end(0, 0, ENGINE_LENGTH, 0);
	end(1, 1, ENGINE_LENGTH, 0);
	ck_assert_str_eq(drain(),
			 "[1.1] the quick brown fox jumps over the lazy dog\n"
			 "[2.2] next\n");
	end(0, 1, ENGINE_STOP, 0);		/* it has no text */
	end(1, 0, ENGINE_ERROR, -E2BIG);
	ck_assert_str_eq(drain(), "[1.2] \n");
	ck_assert_int_eq(printer.failed, EX_DATAERR);
}
END_TEST

/* A word longer than a line is cut, not waited for. */
START_TEST(test_long_words)
{
	const char *text;
	u32 i;

	begin(PRINT_LINES, 1, 2);
	for (i = 0; i < 10; i++)
		feed(0, 0, "abcdefghijklmnopqrstuvwxyz");
	text = drain();
	ck_assert_uint_gt(strlen(text), 200);
	for (; *text; text = strchr(text, '\n') + 1)
		ck_assert_uint_le(strchr(text, '\n') - text, 80);
}
END_TEST

START_TEST(test_headings)
{
	struct prompt p = { .text = (char[]){ "a\nb" }, .len = 3 };

	begin(PRINT_LINES, 1, 2);
	printer_heading(&printer, 0, &p, false);
	ck_assert_str_eq(drain(), "[1] a b\n");
	printer_destroy(&printer);
	begin(PRINT_STREAM, 1, 1);
	printer_heading(&printer, 0, &p, false);
	ck_assert_str_eq(drain(), "");
	printer_heading(&printer, 0, &p, true);
	feed(0, 0, "c");
	end(0, 0, ENGINE_STOP, 0);
	ck_assert_str_eq(drain(), "a\nbc\n");
}
END_TEST

/* On a terminal, control characters are shown as replacements, so they command nothing. */
START_TEST(test_control_characters)
{
	out.tty = true;
	begin(PRINT_STREAM, 1, 1);
	printer.colour = false;
	feed(0, 0, "a\033[2Jb\tc\xc2\x9b" "d\x7f");
	end(0, 0, ENGINE_STOP, 0);
	ck_assert_str_eq(drain(), "a\uFFFD[2Jb\tc\uFFFDd\uFFFD\n");
}
END_TEST

START_TEST(test_json)
{
	json_t *o;

	begin(PRINT_JSON, 1, 2);
	printer.seed = 5;
	feed(0, 1, " say \"\u00e9\"\n");
	ck_assert_str_eq(drain(), "");
	end(0, 1, ENGINE_STOP, 0);
	o = json_loads(drain(), 0, NULL);
	ck_assert_ptr_nonnull(o);
	ck_assert_str_eq(json_string_value(json_object_get(o, "text")),
			 " say \"\u00e9\"\n");
	ck_assert_str_eq(json_string_value(json_object_get(o,
			 "finish_reason")), "stop");
	ck_assert_int_eq(json_integer_value(json_object_get(o, "sample")), 2);
	ck_assert_int_eq(json_integer_value(json_object_get(o,
			 "cached_tokens")), 4);
	ck_assert_uint_eq(json_array_size(json_object_get(o, "ids")),
			  printer.list[1].nr_ids);
	ck_assert_ptr_null(json_object_get(o, "error"));
	json_decref(o);
	end(0, 0, ENGINE_ERROR, -EDQUOT);
	o = json_loads(drain(), 0, NULL);
	ck_assert_str_eq(json_string_value(json_object_get(o, "error")),
			 "it broke");
	json_decref(o);
}
END_TEST

static Suite *cli_suite(void)
{
	Suite *s = suite_create("engine-cli");
	TCase *tc = tcase_create("options");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_short_names);
	tcase_add_test(tc, test_unknown_short_name);
	tcase_add_loop_test(tc, test_types, 0, ARRAY_SIZE(types));
	tcase_add_test(tc, test_numbers);
	tcase_add_test(tc, test_exit_codes);
	tcase_add_test(tc, test_folder);
	tcase_add_test(tc, test_no_folder_says_why);
	tcase_add_test(tc, test_folder_of_gguf);
	tcase_add_test(tc, test_documented);
	suite_add_tcase(s, tc);

	tc = tcase_create("prompts");
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_prompts_from_everywhere);
	tcase_add_test(tc, test_prompt_from_stdin);
	tcase_add_test(tc, test_bad_prompts);
	suite_add_tcase(s, tc);

	tc = tcase_create("output");
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_output_never_blocks);
	tcase_add_test(tc, test_output_broken);
	tcase_add_test(tc, test_stream_is_the_text);
	tcase_add_test(tc, test_lines_have_labels);
	tcase_add_test(tc, test_long_words);
	tcase_add_test(tc, test_headings);
	tcase_add_test(tc, test_control_characters);
	tcase_add_test(tc, test_json);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	SRunner *sr = srunner_create(cli_suite());
	int failed;

	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? 1 : 0;
}
