// SPDX-License-Identifier: Apache-2.0
/*
 * check_safetensors.c - checkpoint files, sound and unsound
 *
 * The unsound files are a table: each row is a file with one lie, and words of
 * the message, which must have the file's name.  Files are made in a temporary
 * directory.
 */
#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/model/checkpoint.h"
#include "tests/tmp.h"

static char dir[128];
static struct model_error err;

static void setup(void)
{
	ck_assert_ptr_nonnull(mkdtemp(tmp_name(dir, sizeof(dir), "safetensors")));
	memset(&err, 0, sizeof(err));
}

static void teardown(void)
{
	struct dirent *e;
	DIR *d = opendir(dir);

	while ((e = readdir(d)))
		unlinkat(dirfd(d), e->d_name, 0);
	closedir(d);
	rmdir(dir);
}

static const char *path_of(const char *name)
{
	static char path[256];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return path;
}

static void write_text(const char *name, const char *text)
{
	FILE *f = fopen(path_of(name), "w");

	ck_assert_ptr_nonnull(f);
	fputs(text, f);
	ck_assert_int_eq(fclose(f), 0);
}

/* Write a file: the claimed length of its header (-1: the true one), header, data. */
static void write_st(const char *name, s64 claim, const char *header,
		     size_t data)
{
	const u64 len = claim < 0 ? strlen(header) : (u64)claim;
	FILE *f = fopen(path_of(name), "w");
	size_t i;

	ck_assert_ptr_nonnull(f);
	fwrite(&len, sizeof(len), 1, f);
	fputs(header, f);
	for (i = 0; i < data; i++)
		fputc(i & 0xff, f);
	ck_assert_int_eq(fclose(f), 0);
}

static void assert_message(const char *file, const char *words)
{
	ck_assert_msg(strstr(err.text, file) != NULL,
		      "\"%s\" does not name %s", err.text, file);
	ck_assert_msg(strstr(err.text, words) != NULL,
		      "\"%s\" does not say \"%s\"", err.text, words);
	ck_assert_msg(!strpbrk(err.text, "\n\r\t\033"),
		      "\"%s\" is not one line", err.text);
}

#define T(name, dtype, shape, from, to)					\
	"\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape	\
	",\"data_offsets\":[" #from "," #to "]}"

START_TEST(test_reads_tensors)
{
	const struct st_tensor *t;
	struct st_file *f;

	/* Tensors out of order, padding, metadata, a scalar and an empty tensor. */
	write_st("m.safetensors", -1, "{\"__metadata__\":{\"format\":\"pt\"},"
		 T("b", "BF16", "[2,3]", 4, 16) "," T("s", "F32", "[]", 0, 4)
		 "," T("none", "I64", "[0,7]", 16, 16) "}   ", 16);
	ck_assert_int_eq(st_open(path_of("m.safetensors"), &f, &err), 0);
	ck_assert_uint_eq(f->nr_tensors, 3);
	t = st_find(f, "b");
	ck_assert_ptr_nonnull(t);
	ck_assert_int_eq(t->dtype, ST_BF16);
	ck_assert_uint_eq(t->nr_dims, 2);
	ck_assert_uint_eq(t->shape[0], 2);
	ck_assert_uint_eq(t->shape[1], 3);
	ck_assert_uint_eq(t->nr_elems, 6);
	ck_assert_uint_eq(t->nr_bytes, 12);
	ck_assert_uint_eq(((const u8 *)t->data)[0], 4);
	ck_assert_uint_eq(((const u8 *)t->data)[11], 15);
	t = st_find(f, "s");
	ck_assert_ptr_nonnull(t);
	ck_assert_uint_eq(t->nr_dims, 0);
	ck_assert_uint_eq(t->nr_elems, 1);
	ck_assert_uint_eq(((const u8 *)t->data)[3], 3);
	t = st_find(f, "none");
	ck_assert_ptr_nonnull(t);
	ck_assert_uint_eq(t->nr_elems, 0);
	ck_assert_ptr_null(st_find(f, "absent"));
	st_close(f);
}
END_TEST

START_TEST(test_reads_odd_header)
{
	struct st_file *f;

	/* Old writers did not pad, so data may start at an odd address. */
	write_st("m.safetensors", -1, "{" T("a", "F32", "[1]", 0, 4) "} ", 4);
	ck_assert_int_eq(st_open(path_of("m.safetensors"), &f, &err), 0);
	ck_assert_uint_eq(((const u8 *)st_find(f, "a")->data)[1], 1);
	st_close(f);
}
END_TEST

START_TEST(test_reads_empty)
{
	struct st_file *f;

	write_st("m.safetensors", -1, "{}", 0);
	ck_assert_int_eq(st_open(path_of("m.safetensors"), &f, &err), 0);
	ck_assert_uint_eq(f->nr_tensors, 0);
	ck_assert_ptr_null(st_find(f, "a"));
	st_close(f);
}
END_TEST

/* One type a row; all types of the format must be known, with their sizes. */
static const struct {
	const char	*name;
	u32		bytes_of_8;
} dtypes[] = {
	{ "BOOL", 8 }, { "F4", 4 }, { "F6_E2M3", 6 }, { "F6_E3M2", 6 },
	{ "U8", 8 }, { "I8", 8 }, { "F8_E5M2", 8 }, { "F8_E4M3", 8 },
	{ "F8_E8M0", 8 }, { "I16", 16 }, { "U16", 16 }, { "F16", 16 },
	{ "BF16", 16 }, { "I32", 32 }, { "U32", 32 }, { "F32", 32 },
	{ "C64", 64 }, { "F64", 64 }, { "I64", 64 }, { "U64", 64 },
};

START_TEST(test_reads_dtype)
{
	struct st_file *f;
	char header[128];

	snprintf(header, sizeof(header), "{\"a\":{\"dtype\":\"%s\",\"shape\":"
		 "[8],\"data_offsets\":[0,%u]}}", dtypes[_i].name,
		 dtypes[_i].bytes_of_8);
	write_st("m.safetensors", -1, header, dtypes[_i].bytes_of_8);
	ck_assert_int_eq(st_open(path_of("m.safetensors"), &f, &err), 0);
	ck_assert_str_eq(st_dtype_name(st_find(f, "a")->dtype),
			 dtypes[_i].name);
	st_close(f);
}
END_TEST

static const struct {
	s64		claim;
	const char	*header;
	size_t		data;
	const char	*words;
} bad[] = {
	/* The length of the header */
	{ 0, "", 0, "does not start with '{'" },
	{ 0, "{}", 0, "does not start with '{'" },
	{ 3, "{}", 0, "header says it has 3 bytes, file has 10" },
	{ 100000000, "{}", 0, "header says it has 100000000 bytes" },
	{ 100000001, "{}", 0, "above the format's limit" },
	{ INT64_MAX, "{}", 0, "above the format's limit" },
	{ 1, "{}", 0, "header: " },
	/* JSON */
	{ -1, "[]", 0, "does not start with '{'" },
	{ -1, " {}", 0, "does not start with '{'" },
	{ -1, "{\"a\":}", 0, "header: " },
	{ -1, "{} x", 0, "header: end of file expected" },
	{ -1, "{\"a\\u0000b\":{}}", 0, "header: " },
	{ -1, "{\"\xff\":{}}", 0, "header: " },
	{ -1, "{" T("a", "U8", "[1]", 0, 1) "," T("a", "U8", "[1]", 1, 2) "}",
	  2, "duplicate" },
	{ -1, "{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],"
	      "\"data_offsets\":[0,1]}}", 1, "duplicate" },
	/* Entries */
	{ -1, "{\"a\":1}", 0, "tensor a: the entry is no object" },
	{ -1, "{\"a\\nb\":1}", 0, "tensor a?b: the entry is no object" },
	{ -1, "{\"__metadata__\":[]}", 0, "__metadata__ is no object" },
	{ -1, "{\"__metadata__\":{\"k\":1}}", 0, "\"k\" is no string" },
	{ -1, "{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
	  "tensor a: \"dtype\" is missing" },
	{ -1, "{\"a\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
	  "tensor a: \"dtype\" is missing" },
	{ -1, "{" T("a", "F7", "[1]", 0, 1) "}", 1,
	  "tensor a: dtype \"F7\" is not one" },
	{ -1, "{" T("a", "u8", "[1]", 0, 1) "}", 1,
	  "tensor a: dtype \"u8\" is not one" },
	{ -1, "{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1,
	  "tensor a: \"shape\" is missing" },
	{ -1, "{" T("a", "U8", "[-1]", 0, 1) "}", 1, "not a size" },
	{ -1, "{" T("a", "U8", "[1.0]", 0, 1) "}", 1, "not a size" },
	{ -1, "{" T("a", "U8", "[\"1\"]", 0, 1) "}", 1, "not a size" },
	{ -1, "{" T("a", "U8", "[1,1,1,1,1,1,1,1,1]", 0, 1) "}", 1,
	  "more than 8 dimensions" },
	{ -1, "{" T("a", "U8", "[18446744073709551616]", 0, 1) "}", 1,
	  "header: " },
	{ -1, "{" T("a", "U8", "[4294967296,4294967296,2]", 0, 0) "}", 0,
	  "\"shape\" overflows" },
	{ -1, "{" T("a", "F32", "[4294967296,2147483648]", 0, 0) "}", 0,
	  "\"shape\" overflows" },
	{ -1, "{" T("a", "F4", "[3]", 0, 1) "}", 1, "ends inside a byte" },
	/* Ranges */
	{ -1, "{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1,
	  "\"data_offsets\" is missing" },
	{ -1, "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":"
	      "[0,1,2]}}", 1, "not two offsets" },
	{ -1, "{" T("a", "U8", "[1]", -1, 0) "}", 1, "not two offsets" },
	{ -1, "{" T("a", "U8", "[1]", 1, 0) "}", 1, "ends before it begins" },
	{ -1, "{" T("a", "F32", "[2]", 0, 4) "}", 4,
	  "shape needs 8 bytes, data_offsets has 4" },
	{ -1, "{" T("a", "F32", "[1]", 0, 8) "}", 8,
	  "shape needs 4 bytes, data_offsets has 8" },
	{ -1, "{" T("a", "U8", "[1]", 1, 2) "}", 2, "hole before it" },
	{ -1, "{" T("a", "U8", "[2]", 0, 2) "," T("b", "U8", "[1]", 3, 4) "}",
	  4, "tensor b: there is a hole before it" },
	{ -1, "{" T("a", "U8", "[2]", 0, 2) "," T("b", "U8", "[2]", 1, 3) "}",
	  3, "tensor b: it overlaps" },
	{ -1, "{" T("a", "U8", "[2]", 0, 2) "," T("b", "U8", "[2]", 0, 2) "}",
	  2, "it overlaps" },
	{ -1, "{" T("a", "U8", "[4]", 0, 4) "}", 3,
	  "header says 4 bytes of tensors, file has 3" },
	{ -1, "{" T("a", "U8", "[4]", 0, 4) "}", 5,
	  "header says 4 bytes of tensors, file has 5" },
	{ -1, "{}", 1, "header says 0 bytes of tensors, file has 1" },
	{ -1, "{" T("a", "U8", "[9223372036854775807]", 0, 9223372036854775807)
	      "}", 3, "overflows" },
	{ -1, "{" T("a", "BOOL", "[0]", 9223372036854775807,
		    9223372036854775807) "}", 0, "hole before it" },
};

START_TEST(test_refuses)
{
	struct st_file *f = NULL;

	write_st("m.safetensors", bad[_i].claim, bad[_i].header,
		 bad[_i].data);
	ck_assert_int_eq(st_open(path_of("m.safetensors"), &f, &err),
			 -EINVAL);
	ck_assert_ptr_null(f);
	assert_message("m.safetensors", bad[_i].words);
}
END_TEST

START_TEST(test_refuses_short_file)
{
	struct st_file *f = NULL;

	write_text("m.safetensors", "1234567");
	ck_assert_int_eq(st_open(path_of("m.safetensors"), &f, &err),
			 -EINVAL);
	assert_message("m.safetensors", "7 bytes are too few");
	write_text("m.safetensors", "");
	ck_assert_int_eq(st_open(path_of("m.safetensors"), &f, &err),
			 -EINVAL);
	assert_message("m.safetensors", "0 bytes are too few");
}
END_TEST

START_TEST(test_refuses_missing_and_odd_files)
{
	struct st_file *f = NULL;

	ck_assert_int_eq(st_open(path_of("none"), &f, &err), -ENOENT);
	assert_message("none", "No such file");
	ck_assert_int_eq(st_open(dir, &f, &err), -EINVAL);
	assert_message(dir, "not a regular file");
	/* A pipe without a writer is refused, not waited for. */
	ck_assert_int_eq(mkfifo(path_of("fifo"), 0600), 0);
	ck_assert_int_eq(st_open(path_of("fifo"), &f, &err), -EINVAL);
	assert_message("fifo", "not a regular file");
}
END_TEST

/* A clone without Git LFS has a text of three lines in place of the weights. */
START_TEST(test_names_git_lfs_pointer)
{
	struct st_file *f = NULL;

	write_text("m.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n");
	ck_assert_int_eq(st_open(path_of("m.safetensors"), &f, &err), -EINVAL);
	assert_message("m.safetensors", "a Git LFS pointer");
	assert_message("m.safetensors", "git lfs pull");
}
END_TEST

/* A truncated file is refused, wherever it ends. */
START_TEST(test_refuses_every_truncation)
{
	struct st_file *f = NULL;
	struct stat st;
	off_t len;

	write_st("m.safetensors", -1, "{" T("a", "BF16", "[2,2]", 0, 8) ","
		 T("b", "U8", "[5]", 8, 13) "}", 13);
	ck_assert_int_eq(stat(path_of("m.safetensors"), &st), 0);
	for (len = st.st_size - 1; len >= 0; len--) {
		ck_assert_int_eq(truncate(path_of("m.safetensors"), len), 0);
		ck_assert_int_eq(st_open(path_of("m.safetensors"), &f, &err),
				 -EINVAL);
	}
}
END_TEST

/* Two sound shards, a (3 bytes) and b (2 bytes). */
static void write_shards(void)
{
	write_st("s1.safetensors", -1, "{" T("a", "U8", "[3]", 0, 3) "}", 3);
	write_st("s2.safetensors", -1, "{" T("b", "U8", "[2]", 0, 2) "}", 2);
}

static void write_index(const char *map)
{
	char text[512];

	snprintf(text, sizeof(text), "{\"metadata\":{\"total_size\":"
		 "1000000000000000019884624838656},\"weight_map\":%s}", map);
	write_text("model.safetensors.index.json", text);
}

START_TEST(test_opens_single)
{
	struct ckpt *c;

	write_st("model.safetensors", -1, "{" T("z", "U8", "[1]", 0, 1) ","
		 T("a", "U8", "[1]", 1, 2) "}", 2);
	ck_assert_int_eq(ckpt_open(dir, &c, &err), 0);
	ck_assert_uint_eq(c->nr_tensors, 2);
	ck_assert_ptr_nonnull(ckpt_take(c, "z"));
	ck_assert_ptr_null(ckpt_take(c, "y"));
	ck_assert_str_eq(ckpt_unused(c)->name, "a");
	ck_assert_ptr_nonnull(ckpt_take(c, "a"));
	ck_assert_ptr_null(ckpt_unused(c));
	ckpt_close(c);
}
END_TEST

START_TEST(test_opens_shards)
{
	const struct st_tensor *t;
	struct ckpt *c;

	write_shards();
	write_index("{\"b\":\"s2.safetensors\",\"a\":\"s1.safetensors\"}");
	ck_assert_int_eq(ckpt_open(dir, &c, &err), 0);
	ck_assert_uint_eq(c->nr_files, 2);
	ck_assert_uint_eq(c->nr_tensors, 2);
	t = ckpt_take(c, "b");
	ck_assert_ptr_nonnull(t);
	ck_assert_uint_eq(t->nr_bytes, 2);
	ck_assert_ptr_nonnull(strstr(t->path, "s2.safetensors"));
	ckpt_close(c);
}
END_TEST

static const struct {
	const char	*map;
	int		ret;
	const char	*file;
	const char	*words;
} bad_index[] = {
	{ "7", -EINVAL, "index.json", "weight_map: is missing" },
	{ "{}", -EINVAL, "index.json", "weight_map: is missing" },
	{ "{\"a\":7}", -EINVAL, "index.json", "a: names no file" },
	{ "{\"a\":\"\"}", -EINVAL, "index.json", "leads out of the folder" },
	{ "{\"a\":\"../s1.safetensors\"}", -EINVAL, "index.json",
	  "leads out of the folder" },
	{ "{\"a\":\"/etc/passwd\"}", -EINVAL, "index.json",
	  "leads out of the folder" },
	{ "{\"a\":\"s1.safetensors\",\"a\":\"s1.safetensors\"}", -EINVAL,
	  "index.json", "duplicate" },
	{ "{\"a\":\"s1.safetensors\",\"b\":\"s3.safetensors\"}", -ENOENT,
	  "s3.safetensors", "No such file" },
	{ "{\"a\":\"s1.safetensors\",\"b\":\"s1.safetensors\"}", -EINVAL,
	  "index.json", "b: is not in s1.safetensors" },
	{ "{\"a\":\"s2.safetensors\",\"b\":\"s1.safetensors\"}", -EINVAL,
	  "index.json", "a: is not in s2.safetensors" },
	{ "{\"a\":\"s1.safetensors\",\"b\":\"s2.safetensors\","
	  "\"c\":\"s2.safetensors\"}", -EINVAL, "index.json",
	  "c: is not in s2.safetensors" },
	{ "{\"b\":\"s4.safetensors\"}", -EINVAL, "index.json",
	  "c: is in s4.safetensors but not in the index" },
	{ "{\"b\":\"s2.safetensors\",\"c\":\"s4.safetensors\"}", -EINVAL,
	  "safetensors", "tensor b: is also in" },
};

START_TEST(test_refuses_index)
{
	struct ckpt *c = NULL;

	write_shards();
	write_st("s4.safetensors", -1, "{" T("b", "U8", "[1]", 0, 1) ","
		 T("c", "U8", "[1]", 1, 2) "}", 2);
	write_index(bad_index[_i].map);
	ck_assert_int_eq(ckpt_open(dir, &c, &err), bad_index[_i].ret);
	ck_assert_ptr_null(c);
	assert_message(bad_index[_i].file, bad_index[_i].words);
}
END_TEST

START_TEST(test_refuses_empty_folder)
{
	struct ckpt *c = NULL;

	ck_assert_int_eq(ckpt_open(dir, &c, &err), -ENOENT);
	assert_message(dir, "neither model.safetensors nor");
	ck_assert_int_eq(mknod(path_of("pytorch_model.bin"), S_IFREG | 0600,
			       0), 0);
	ck_assert_int_eq(ckpt_open(dir, &c, &err), -EOPNOTSUPP);
	assert_message(dir, "pytorch_model.bin is not supported");
}
END_TEST

START_TEST(test_error_may_be_null)
{
	struct ckpt *c = NULL;

	ck_assert_int_eq(ckpt_open(dir, &c, NULL), -ENOENT);
}
END_TEST

/* Headers that would choke a parser: deep, wide, and with endless tensors. */
static const struct {
	const char	*begin;
	const char	*again;		/* @times times */
	u32		times;
	const char	*words;
} heavy[] = {
	{ "{\"a\":", "[", 100000, "header: maximum parsing depth" },
	{ "{\"a\":", "{\"a\":", 100000, "header: maximum parsing depth" },
	{ "{\"a\":[0", ",0", 5000000, "header holds more than" },
	{ "{\"a\":{}", ",\"a\":{}", 1000000, "duplicate object key" },
	{ "{\"a\":[[]", ",[]", 3000000, "header holds more than" },
};

START_TEST(test_refuses_heavy)
{
	const size_t n = strlen(heavy[_i].again);
	const size_t from = strlen(heavy[_i].begin);
	char *text = malloc(from + n * heavy[_i].times + 1), *p;
	struct st_file *f = NULL;
	u32 i;

	ck_assert_ptr_nonnull(text);
	strcpy(text, heavy[_i].begin);
	for (p = text + from, i = 0; i < heavy[_i].times; i++, p += n)
		memcpy(p, heavy[_i].again, n + 1);
	write_st("m.safetensors", -1, text, 0);
	ck_assert_int_eq(st_open(path_of("m.safetensors"), &f, &err), -EINVAL);
	ck_assert_ptr_null(f);
	assert_message("m.safetensors", heavy[_i].words);
	free(text);
}
END_TEST

/* 10^9 tensors do not fit a header of the greatest length, and its claim is refused. */
START_TEST(test_refuses_billion_tensors)
{
	struct st_file *f = NULL;

	write_st("m.safetensors", 60000000000, "{" T("a", "F32", "[1]", 0, 4)
		 "}", 4);
	ck_assert_int_eq(st_open(path_of("m.safetensors"), &f, &err), -EINVAL);
	assert_message("m.safetensors", "above the format's limit");
	write_st("m.safetensors", -1, "{" T("a", "F32",
		 "[1000000000,100000000]", 0, 400000000000000000) "}", 4);
	ck_assert_int_eq(st_open(path_of("m.safetensors"), &f, &err), -EINVAL);
	assert_message("m.safetensors", "header says 400000000000000000 bytes");
}
END_TEST

static Suite *safetensors_suite(void)
{
	Suite *s = suite_create("safetensors");
	TCase *good = tcase_create("sound");
	TCase *lies = tcase_create("unsound");

	tcase_set_tags(good, "unit model");
	tcase_add_checked_fixture(good, setup, teardown);
	tcase_add_test(good, test_reads_tensors);
	tcase_add_test(good, test_reads_odd_header);
	tcase_add_test(good, test_reads_empty);
	tcase_add_loop_test(good, test_reads_dtype, 0, ARRAY_SIZE(dtypes));
	tcase_add_test(good, test_opens_single);
	tcase_add_test(good, test_opens_shards);
	suite_add_tcase(s, good);

	tcase_set_tags(lies, "unit model");
	tcase_add_checked_fixture(lies, setup, teardown);
	tcase_add_loop_test(lies, test_refuses, 0, ARRAY_SIZE(bad));
	tcase_add_test(lies, test_refuses_short_file);
	tcase_add_test(lies, test_names_git_lfs_pointer);
	tcase_add_test(lies, test_refuses_missing_and_odd_files);
	tcase_add_test(lies, test_refuses_every_truncation);
	tcase_add_loop_test(lies, test_refuses_index, 0,
			    ARRAY_SIZE(bad_index));
	tcase_add_loop_test(lies, test_refuses_heavy, 0, ARRAY_SIZE(heavy));
	tcase_add_test(lies, test_refuses_billion_tensors);
	tcase_add_test(lies, test_refuses_empty_folder);
	tcase_add_test(lies, test_error_may_be_null);
	suite_add_tcase(s, lies);
	return s;
}

int main(void)
{
	SRunner *sr = srunner_create(safetensors_suite());
	int failed;

	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
