// SPDX-License-Identifier: Apache-2.0
/*
 * check_gguf.c - GGUF files, sound and unsound
 *
 * The unsound files are tables: each row is a file with one lie (gguf_text.h says how
 * to read it), the errno and words of the message, which must have the file's name.
 */
#include <check.h>
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/quant.h"
#include "runtime/lib/gguf.h"
#include "tests/tmp.h"
#include "tests/unit/gguf_text.h"

static char dir[128];
static char err[GGUF_ERR_MAX];

static void setup(void)
{
	ck_assert_ptr_nonnull(mkdtemp(tmp_name(dir, sizeof(dir), "gguf")));
	memset(err, 0, sizeof(err));
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

static struct gguf *open_sound(const char *name)
{
	struct gguf *g = NULL;

	ck_assert_msg(!gguf_open(path_of(name), &g, err, sizeof(err)),
		      "refused: %s", err);
	return g;
}

static void assert_refused(const char *name, int ret, const char *in,
			   const char *words)
{
	struct gguf *g = NULL;
	const int got = gguf_open(path_of(name), &g, err, sizeof(err));

	ck_assert_msg(got == ret, "%d, want %d: %s", got, ret, err);
	ck_assert_ptr_null(g);
	ck_assert_msg(strstr(err, in) != NULL, "\"%s\" does not name %s", err,
		      in);
	ck_assert_msg(strstr(err, words) != NULL,
		      "\"%s\" does not say \"%s\"", err, words);
	ck_assert_msg(!strpbrk(err, "\n\r\t\033"), "\"%s\" is not one line",
		      err);
}

/* ---- sound files ---- */

#define KEYS_OF_ALL_KINDS						\
	"$u8 w0 b255 $s8 w1 b255 $u16 w2 h65535 $s16 w3 h65535 "	\
	"$u32 w4 w4294967295 $s32 w5 w4294967295 $f32 w6 w0x3fc00000 "	\
	"$yes w7 b1 $text w8 $hello $u64 w10 q18446744073709551615 "	\
	"$s64 w11 q18446744073709551615 $f64 w12 q0x4004000000000000 "	\
	"$list w9 w5 q2 w7 w4294967295 $words w9 w8 q3 $a $ $bcd "	\
	"$reals w9 w6 q1 w0x3f000000 $flags w9 w7 q2 b1 b0 $none w9 w4 q0 "

START_TEST(test_reads_scalars)
{
	struct gguf_str s;
	struct gguf *g;
	double d;
	bool b;
	u64 v;

	gt_write(path_of("m.gguf"), GT_HEAD(0, 17) KEYS_OF_ALL_KINDS);
	g = open_sound("m.gguf");
	ck_assert_uint_eq(gguf_nr_keys(g), 17);
	ck_assert(gguf_u64(g, "u8", &v) && v == 255);
	ck_assert(gguf_u64(g, "u16", &v) && v == 65535);
	ck_assert(gguf_u64(g, "u32", &v) && v == UINT32_MAX);
	ck_assert(gguf_u64(g, "u64", &v) && v == UINT64_MAX);
	ck_assert(!gguf_u64(g, "s8", &v) && !gguf_u64(g, "s64", &v));
	ck_assert(!gguf_u64(g, "f32", &v) && !gguf_u64(g, "yes", &v));
	ck_assert(!gguf_u64(g, "list", &v) && !gguf_u64(g, "absent", &v));
	ck_assert(gguf_real(g, "f32", &d) && d == 1.5);
	ck_assert(gguf_real(g, "f64", &d) && d == 2.5);
	ck_assert(gguf_real(g, "s8", &d) && d == -1);
	ck_assert(gguf_real(g, "s16", &d) && d == -1);
	ck_assert(gguf_real(g, "s32", &d) && d == -1);
	ck_assert(gguf_real(g, "s64", &d) && d == -1);
	ck_assert(gguf_real(g, "u32", &d) && d == UINT32_MAX);
	ck_assert(!gguf_real(g, "text", &d) && !gguf_real(g, "yes", &d));
	ck_assert(gguf_bool(g, "yes", &b) && b && !gguf_bool(g, "u8", &b));
	ck_assert(gguf_str(g, "text", &s) && s.len == 5 &&
		  !memcmp(s.at, "hello", 5));
	ck_assert(!gguf_str(g, "words", &s) && gguf_has(g, "words"));
	ck_assert(!gguf_has(g, "word"));
	gguf_close(g);
}
END_TEST

START_TEST(test_reads_lists)
{
	struct gguf_str s;
	struct gguf *g;
	double d;
	bool b;
	u64 v;
	s64 n;

	gt_write(path_of("m.gguf"), GT_HEAD(0, 17) KEYS_OF_ALL_KINDS);
	g = open_sound("m.gguf");
	ck_assert_uint_eq(gguf_nr_items(g, "list"), 2);
	ck_assert_uint_eq(gguf_nr_items(g, "none"), 0);
	ck_assert_uint_eq(gguf_nr_items(g, "text"), 0);
	ck_assert_uint_eq(gguf_nr_items(g, "absent"), 0);
	ck_assert(gguf_item_u64(g, "list", 0, &v) && v == 7);
	ck_assert(!gguf_item_u64(g, "list", 1, &v));
	ck_assert(gguf_item_s64(g, "list", 1, &n) && n == -1);
	ck_assert(!gguf_item_s64(g, "list", 2, &n));
	ck_assert(gguf_item_real(g, "list", 1, &d) && d == -1);
	ck_assert(gguf_item_real(g, "reals", 0, &d) && d == 0.5);
	ck_assert(gguf_item_bool(g, "flags", 0, &b) && b);
	ck_assert(gguf_item_bool(g, "flags", 1, &b) && !b);
	ck_assert(gguf_item_str(g, "words", 0, &s) && s.len == 1);
	ck_assert(gguf_item_str(g, "words", 1, &s) && s.len == 0);
	ck_assert(gguf_item_str(g, "words", 2, &s) && s.len == 3 &&
		  !memcmp(s.at, "bcd", 3));
	ck_assert(!gguf_item_str(g, "words", 3, &s));
	ck_assert(!gguf_item_str(g, "list", 0, &s));
	ck_assert(!gguf_item_u64(g, "words", 0, &v));
	ck_assert(!gguf_item_u64(g, "u8", 0, &v));
	gguf_close(g);
}
END_TEST

START_TEST(test_reads_tensors)
{
	const struct gguf_tensor *t;
	struct gguf *g;

	/* Out of order, with another alignment and bytes behind the last one. */
	gt_write(path_of("m.gguf"), GT_HEAD(3, 1)
		 "$general.alignment w4 w8 $c w2 q3 q2 w1 q16 "
		 GT_VEC(a, 1, 0, 8) GT_VEC(b, 2, 30, 0)
		 "/8 b1 b2 b3 b4 /8 b5 b6 b7 b8 /8 b9 z11 z5");
	g = open_sound("m.gguf");
	ck_assert_uint_eq(gguf_nr_tensors(g), 3);
	ck_assert_uint_eq(gguf_nr_files(g), 1);
	ck_assert_str_eq(gguf_path(g), path_of("m.gguf"));
	t = gguf_tensor_at(g, 0);
	ck_assert_str_eq(t->name, "a");
	ck_assert_uint_eq(((const u8 *)t->data)[0], 5);
	t = gguf_tensor_at(g, 1);
	ck_assert_str_eq(t->name, "b");
	ck_assert_uint_eq(((const u8 *)t->data)[3], 4);
	t = gguf_tensor_at(g, 2);
	ck_assert_str_eq(t->name, "c");
	ck_assert_str_eq(t->path, path_of("m.gguf"));
	ck_assert_uint_eq(t->nr_dims, 2);
	ck_assert_uint_eq(t->dims[0], 3);
	ck_assert_uint_eq(t->dims[1], 2);
	ck_assert_uint_eq(t->nr_elems, 6);
	ck_assert_uint_eq(t->nr_bytes, 12);
	ck_assert_uint_eq(t->type, 1);
	ck_assert_uint_eq(((const u8 *)t->data)[0], 9);
	gguf_close(g);
}
END_TEST

static const struct {
	u32	number;
	u32	elems;
	u32	bytes;
} types[] = {
	{ 0, 256, 1024 }, { 1, 256, 512 }, { 30, 256, 512 },
#define x(id, name, elems, bytes, number)	{ number, elems, bytes },
	KERN_BLOCK_TYPES(x)
#undef x
};

START_TEST(test_reads_type)
{
	struct gguf *g;
	char text[256];

	if (types[_i].number == KERN_NO_GGUF)
		return;
	snprintf(text, sizeof(text), GT_HEAD(1, 0) "$a w2 q%u q3 w%u q0 /32 "
		 "z%u", types[_i].elems, types[_i].number,
		 3 * types[_i].bytes);
	gt_write(path_of("m.gguf"), text);
	g = open_sound("m.gguf");
	ck_assert_uint_eq(gguf_tensor_at(g, 0)->nr_bytes, 3 * types[_i].bytes);
	ck_assert_uint_eq(gguf_tensor_at(g, 0)->type, types[_i].number);
	gguf_close(g);
}
END_TEST

START_TEST(test_knows_files)
{
	gt_write(path_of("m.bin"), GT_HEAD(0, 0));
	gt_write(path_of("n.gguf"), "'text");
	gt_write(path_of("o.bin"), "'GGU");
	ck_assert(gguf_is_file(path_of("m.bin")));
	ck_assert(gguf_is_file(path_of("n.gguf")));
	ck_assert(gguf_is_file(path_of("absent.gguf")));
	ck_assert(!gguf_is_file(path_of("o.bin")));
	ck_assert(!gguf_is_file(path_of("absent")));
	ck_assert(!gguf_is_file(dir));
	ck_assert_int_eq(mkdir(path_of("d.gguf"), 0700), 0);
	ck_assert(!gguf_is_file(path_of("d.gguf")));
	ck_assert_int_eq(rmdir(path_of("d.gguf")), 0);
	ck_assert_int_eq(mkfifo(path_of("fifo"), 0600), 0);
	ck_assert(!gguf_is_file(path_of("fifo")));
}
END_TEST

/* ---- lies ---- */

static const struct {
	const char	*text;
	int		ret;
	const char	*words;
} bad[] = {
	/* The header */
	{ "", -EINVAL, "the file is empty" },
	{ "'GGU", -EINVAL, "does not begin with" },
	{ "'GGML w3", -EINVAL, "does not begin with" },
	{ "G", -EINVAL, "the file ends in its header" },
	{ "G w1 w0 w0", -EOPNOTSUPP, "version 1 of GGUF" },
	{ "G w2 q0 q0", -EOPNOTSUPP, "version 2 of GGUF" },
	{ "G w4 q0 q0", -EOPNOTSUPP, "version 4 of GGUF" },
	{ "G w0x03000000 q0 q0", -EOPNOTSUPP, "a big-endian file" },
	{ "G w3 q0 w0", -EINVAL, "the file ends in its header" },
	{ GT_HEAD(0, 1), -EINVAL, "a key lies outside" },
	{ GT_HEAD(1, 0), -EINVAL, "the name of a tensor lies outside" },
	{ GT_HEAD(0, 1048577), -EINVAL, "more than a million" },
	{ GT_HEAD(1048577, 0), -EINVAL, "more than a million" },
	{ GT_HEAD(0, 0xffffffffffffffff), -EINVAL, "more than a million" },
	/* Keys */
	{ GT_HEAD(0, 1) "$ w4 w1", -EINVAL, "a key is empty" },
	{ GT_HEAD(0, 1) "q65536 z65536 w4 w1", -EINVAL, "a key is too long" },
	{ GT_HEAD(0, 1) "q3 'a b0 'b w4 w1", -EINVAL, "a key has a zero byte" },
	{ GT_HEAD(0, 1) "q0xffffffffffffffff 'a", -EINVAL,
	  "a key lies outside" },
	{ GT_HEAD(0, 2) "$a w4 w1 $a w4 w1", -EINVAL,
	  "a: the key is there twice" },
	{ GT_HEAD(0, 3) "$a w4 w1 $b w4 w1 $a w8 $c", -EINVAL,
	  "a: the key is there twice" },
	{ GT_HEAD(0, 1) "$a", -EINVAL, "a: the file ends in the value" },
	{ GT_HEAD(0, 1) "$a w4 h1", -EINVAL, "a: the file ends in the value" },
	{ GT_HEAD(0, 1) "$a w12 w1", -EINVAL, "a: the file ends in the value" },
	{ GT_HEAD(0, 1) "$a w13 q1", -EINVAL,
	  "a: the kind of its value is unknown" },
	{ GT_HEAD(0, 1) "$a w0xffffffff q1", -EINVAL, "kind of its value" },
	{ GT_HEAD(0, 1) "$a w7 b2", -EINVAL, "a: is neither true nor false" },
	{ GT_HEAD(0, 1) "$a w8 q5 'four", -EINVAL, "a: the text ends outside" },
	{ GT_HEAD(0, 1) "$a w8 q0xfffffffffffffff0 'four", -EINVAL,
	  "a: the text ends outside" },
	/* Lists */
	{ GT_HEAD(0, 1) "$a w9 w4", -EINVAL, "a: the file ends in the list" },
	{ GT_HEAD(0, 1) "$a w9 w9 q1 w4 q1 w1", -EOPNOTSUPP,
	  "a: a list of lists" },
	{ GT_HEAD(0, 1) "$a w9 w13 q1 w1", -EINVAL,
	  "a: the kind of its items is unknown" },
	{ GT_HEAD(0, 1) "$a w9 w4 q2 w1", -EINVAL, "a: the list ends outside" },
	{ GT_HEAD(0, 1) "$a w9 w4 q0x4000000000000001 w1", -EINVAL,
	  "a: the list ends outside" },
	{ GT_HEAD(0, 1) "$a w9 w10 q0xffffffffffffffff w1", -EINVAL,
	  "a: the list ends outside" },
	{ GT_HEAD(0, 1) "$a w9 w8 q0xffffffffffffffff $a $b", -EINVAL,
	  "a: the list ends outside" },
	{ GT_HEAD(0, 1) "$a w9 w8 q2 $a q9 'b", -EINVAL,
	  "a: the list ends outside" },
	{ GT_HEAD(0, 1) "$a w9 w7 q3 b1 b0 b9", -EINVAL,
	  "a: is neither true nor false" },
	/* The alignment */
	{ GT_HEAD(0, 1) "$general.alignment w4 w0", -EINVAL,
	  "general.alignment: is no power of two" },
	{ GT_HEAD(0, 1) "$general.alignment w4 w48", -EINVAL, "power of two" },
	{ GT_HEAD(0, 1) "$general.alignment w10 q0x8000000000000000", -EINVAL,
	  "power of two" },
	{ GT_HEAD(0, 1) "$general.alignment w8 $32", -EINVAL, "power of two" },
	/* Records of tensors */
	{ GT_HEAD(1, 0) "$ w1 q1 w0 q0 /32 z4", -EINVAL, "tensor is empty" },
	{ GT_HEAD(1, 0) "q65 z65 w1 q1 w0 q0 /32 z4", -EINVAL,
	  "the name of a tensor is too long" },
	{ GT_HEAD(1, 0) "q2 'a b0 w1 q1 w0 q0 /32 z4", -EINVAL,
	  "the name of a tensor has a zero byte" },
	{ GT_HEAD(1, 0) "$a", -EINVAL, "tensor a: the file ends" },
	{ GT_HEAD(1, 0) "$a w1", -EINVAL, "tensor a: the file ends" },
	{ GT_HEAD(1, 0) "$a w1 q1 w0 w0", -EINVAL, "tensor a: the file ends" },
	{ GT_HEAD(1, 0) "$a w0 w0 q0 /32 z4", -EINVAL, "it has no dimension" },
	{ GT_HEAD(1, 0) "$a w5 q1 q1 q1 q1 q1 w0 q0 /32 z4", -EINVAL,
	  "or more than 4" },
	{ GT_HEAD(1, 0) "$a w2 q0 q7 w0 q0 /32 z4", -EINVAL,
	  "a dimension is 0" },
	{ GT_HEAD(1, 0) "$a w2 q4294967296 q4294967296 w0 q0 /32 z4", -EINVAL,
	  "overflows" },
	{ GT_HEAD(1, 0) "$a w1 q0x4000000000000000 w0 q0 /32 z4", -EINVAL,
	  "overflows" },
	{ GT_HEAD(1, 0) "$a w4 q0xffffffffffffffff q2 q1 q1 w0 q0 /32 z4",
	  -EINVAL, "overflows" },
	{ GT_HEAD(1, 0) GT_VEC(a, 33, 8, 0) "/32 z99", -EINVAL,
	  "tensor a: a row is no whole number of blocks" },
	{ GT_HEAD(1, 0) "$a w2 q16 q2 w8 q0 /32 z99", -EINVAL,
	  "no whole number of blocks" },
	{ GT_HEAD(1, 0) GT_VEC(a, 256, 19, 0) "/32 z99", -EOPNOTSUPP,
	  "tensor a: type IQ1_S is not supported" },
	{ GT_HEAD(1, 0) GT_VEC(a, 256, 34, 0) "/32 z99", -EOPNOTSUPP, "TQ1_0" },
	{ GT_HEAD(1, 0) GT_VEC(a, 256, 16, 0) "/32 z99", -EOPNOTSUPP,
	  "IQ2_XXS" },
	{ GT_HEAD(1, 0) GT_VEC(a, 4, 24, 0) "/32 z99", -EOPNOTSUPP, "type I8" },
	{ GT_HEAD(1, 0) GT_VEC(a, 256, 99, 0) "/32 z99", -EOPNOTSUPP,
	  "type number 99 is not known" },
	{ GT_HEAD(1, 0) GT_VEC(a, 256, 0xffffffff, 0) "/32 z99", -EOPNOTSUPP,
	  "type number 4294967295 is not known" },
	{ GT_HEAD(2, 0) GT_VEC(a, 1, 0, 0) GT_VEC(a, 1, 0, 32) "/32 z36",
	  -EINVAL, "tensor a: is there twice" },
	/* Data */
	{ GT_HEAD(1, 0) GT_VEC(a, 1, 0, 0), -EINVAL, "ends outside of the" },
	{ GT_HEAD(1, 0) GT_VEC(a, 2, 0, 0) "/32 z7", -EINVAL,
	  "tensor a: its data ends outside of the file" },
	{ GT_HEAD(1, 0) GT_VEC(a, 1, 0, 32) "/32 z32", -EINVAL,
	  "its data ends outside" },
	{ GT_HEAD(1, 0) GT_VEC(a, 1, 0, 0xffffffffffffffe0) "/32 z32", -EINVAL,
	  "its data ends outside" },
	{ GT_HEAD(1, 0) GT_VEC(a, 1, 0, 4) "/32 z32", -EINVAL,
	  "tensor a: its offset is no multiple of general.alignment" },
	{ GT_HEAD(2, 0) GT_VEC(a, 9, 0, 0) GT_VEC(b, 1, 0, 32) "/32 z64",
	  -EINVAL, "tensor b: it overlaps" },
	{ GT_HEAD(2, 0) GT_VEC(b, 1, 0, 0) GT_VEC(a, 1, 0, 0) "/32 z64",
	  -EINVAL, "tensor b: it overlaps" },
	{ GT_HEAD(0, 1) "$split.count w2 h3", -EINVAL, "split.no or" },
	{ GT_HEAD(0, 1) "$split.count w4 w65536", -EINVAL,
	  "split.count: is no number of parts" },
	{ GT_HEAD(0, 1) "$split.count w8 $3", -EINVAL, "is no number of parts" },
};

START_TEST(test_refuses)
{
	gt_write(path_of("m.gguf"), bad[_i].text);
	assert_refused("m.gguf", bad[_i].ret, "m.gguf", bad[_i].words);
}
END_TEST

START_TEST(test_refuses_missing_and_odd_files)
{
	assert_refused("none.gguf", -ENOENT, "none.gguf", "No such file");
	ck_assert_int_eq(mkfifo(path_of("fifo"), 0600), 0);
	assert_refused("fifo", -EINVAL, "fifo", "not a regular file");
	assert_refused(".", -EINVAL, dir, "not a regular file");
	gt_write(path_of("lfs.gguf"),
		 "'version b32 'https://git-lfs.github.com/spec/v1 b10");
	assert_refused("lfs.gguf", -EINVAL, "lfs.gguf", "a Git LFS pointer");
}
END_TEST

/* A key may have any bytes but zero; a message is one line all the same. */
START_TEST(test_cleans_messages)
{
	gt_write(path_of("m.gguf"), GT_HEAD(0, 1) "q3 b27 b255 b10 w77");
	assert_refused("m.gguf", -EINVAL, "m.gguf", "???: the kind of");
	ck_assert_int_eq(gguf_open(path_of("m.gguf"), &(struct gguf *){ NULL },
				   NULL, 0), -EINVAL);
}
END_TEST

START_TEST(test_refuses_every_truncation)
{
	struct stat st;
	off_t len;

	gt_write(path_of("m.gguf"), GT_HEAD(2, 17) KEYS_OF_ALL_KINDS
		 GT_VEC(a, 2, 0, 0) "$b w2 q32 q2 w8 q32 /32 z8 /32 z68");
	gguf_close(open_sound("m.gguf"));
	ck_assert_int_eq(stat(path_of("m.gguf"), &st), 0);
	for (len = st.st_size - 1; len >= 0; len--) {
		ck_assert_int_eq(truncate(path_of("m.gguf"), len), 0);
		assert_refused("m.gguf", -EINVAL, "m.gguf", "again");
	}
}
END_TEST

/*
 * A file of a terabyte, all of it a hole.  Its header claims a million keys or a list of
 * many strings.  With 256 MiB of memory it is refused all the same.
 */
static const struct {
	const char	*text;
	const char	*words;
} heavy[] = {
	{ GT_HEAD(1048576, 0) "$a w1 q1 w0 q0", "the name of a tensor is empty" },
	{ GT_HEAD(0, 1048576) "$a w4 w0", "a key is empty" },
	{ GT_HEAD(0, 1) "$a w9 w8 q0x1000000000000 q0x2000000000000",
	  "the list ends outside" },
	{ GT_HEAD(0, 1) "$a w9 w10 q0x1000000000000", "the list ends outside" },
	{ GT_HEAD(1, 0) GT_VEC(a, 0x1000000000000, 0, 0),
	  "its data ends outside" },
};

START_TEST(test_refuses_heavy)
{
	struct rlimit lim, few;

	gt_write(path_of("m.gguf"), heavy[_i].text);
	if (truncate(path_of("m.gguf"), 1ll << 40))
		return;
	ck_assert_int_eq(getrlimit(RLIMIT_DATA, &lim), 0);
	few = lim;
	few.rlim_cur = 256 << 20;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	few = lim;
	printf("note: no limit of memory: a sanitizer maps more\n");
#endif
	ck_assert_int_eq(setrlimit(RLIMIT_DATA, &few), 0);
	assert_refused("m.gguf", -EINVAL, "m.gguf", heavy[_i].words);
	ck_assert_int_eq(setrlimit(RLIMIT_DATA, &lim), 0);
}
END_TEST

/* ---- parts ---- */

#define PART(t, k, no, count, total)					\
	GT_HEAD(t, k) "$split.no w2 h" #no " $split.count w2 h" #count	\
	" $split.tensors.count w5 w" #total " "

#define PART_1	"m-00001-of-00002.gguf"
#define PART_2	"m-00002-of-00002.gguf"

static void write_parts(const char *first, const char *second)
{
	gt_write(path_of(PART_1), first ? first :
		 PART(1, 4, 0, 2, 2) "$k w4 w7 " GT_VEC(b, 1, 0, 0) "/32 w1");
	gt_write(path_of(PART_2), second ? second :
		 PART(1, 3, 1, 2, 2) GT_VEC(a, 1, 0, 0) "/32 w2");
}

START_TEST(test_opens_parts)
{
	static const char * const named[] = { PART_1, PART_2 };
	struct gguf *g;
	u64 v = 0;
	u32 i;

	write_parts(NULL, NULL);
	for (i = 0; i < 2; i++) {
		g = open_sound(named[i]);
		ck_assert_uint_eq(gguf_nr_files(g), 2);
		ck_assert_uint_eq(gguf_nr_tensors(g), 2);
		ck_assert_str_eq(gguf_path(g), path_of(PART_1));
		ck_assert_str_eq(gguf_tensor_at(g, 0)->name, "a");
		ck_assert_str_eq(gguf_tensor_at(g, 0)->path, path_of(PART_2));
		ck_assert_uint_eq(*(const u8 *)gguf_tensor_at(g, 0)->data, 2);
		ck_assert_uint_eq(*(const u8 *)gguf_tensor_at(g, 1)->data, 1);
		ck_assert(gguf_u64(g, "k", &v) && v == 7);
		gguf_close(g);
	}
}
END_TEST

/* A part alone may have any name, and a later part may repeat metadata. */
START_TEST(test_opens_odd_parts)
{
	gt_write(path_of("m.gguf"), PART(1, 3, 0, 1, 1) GT_VEC(a, 1, 0, 0)
		 "/32 w2");
	gguf_close(open_sound("m.gguf"));
	write_parts(NULL, PART(1, 5, 1, 2, 2) "$k w4 w7 $general.alignment w4 "
		    "w8 " GT_VEC(a, 1, 0, 0) "/8 w2");
	gguf_close(open_sound(PART_1));
}
END_TEST

static const struct {
	const char	*first;
	const char	*second;
	int		ret;
	const char	*in;
	const char	*words;
} bad_parts[] = {
	{ NULL, "", -EINVAL, PART_2, "the file is empty" },
	{ NULL, "'x", -EINVAL, PART_2, "does not begin with" },
	{ NULL, PART(1, 3, 0, 2, 2) GT_VEC(a, 1, 0, 0) "/32 w2", -EINVAL,
	  PART_2, "split.no: is not 1" },
	{ NULL, PART(1, 3, 1, 3, 2) GT_VEC(a, 1, 0, 0) "/32 w2", -EINVAL,
	  PART_2, "split.count: is not 2" },
	{ NULL, GT_HEAD(1, 0) GT_VEC(a, 1, 0, 0) "/32 w2", -EINVAL, PART_2,
	  "split.count: is not 2" },
	{ NULL, PART(1, 3, 1, 2, 3) GT_VEC(a, 1, 0, 0) "/32 w2", -EINVAL,
	  PART_2, "split.tensors.count: the first part says something else" },
	{ NULL, PART(1, 4, 1, 2, 2) "$k w4 w8 " GT_VEC(a, 1, 0, 0) "/32 w2",
	  -EINVAL, PART_2, "k: the first part says something else" },
	{ NULL, PART(1, 4, 1, 2, 2) "$l w4 w7 " GT_VEC(a, 1, 0, 0) "/32 w2",
	  -EINVAL, PART_2, "l: the first part says something else" },
	{ NULL, PART(1, 3, 1, 2, 2) GT_VEC(b, 1, 0, 0) "/32 w2", -EINVAL,
	  "m-0000", "tensor b: is there twice" },
	{ PART(1, 4, 0, 2, 3) "$k w4 w7 " GT_VEC(b, 1, 0, 0) "/32 w1",
	  PART(1, 3, 1, 2, 3) GT_VEC(a, 1, 0, 0) "/32 w2", -EINVAL, PART_1,
	  "split.tensors.count: says 3, the parts have 2" },
	{ PART(1, 3, 1, 2, 2) GT_VEC(b, 1, 0, 0) "/32 w1", NULL, -EINVAL,
	  PART_1, "has another name: call it NAME-00002-of-00002.gguf" },
	{ PART(1, 3, 2, 2, 2) GT_VEC(b, 1, 0, 0) "/32 w1", NULL, -EINVAL,
	  PART_1, "split.no or" },
	{ PART(1, 3, 0, 3, 2) GT_VEC(b, 1, 0, 0) "/32 w1", NULL, -EINVAL,
	  PART_1, "has another name: call it NAME-00001-of-00003.gguf" },
};

START_TEST(test_refuses_parts)
{
	write_parts(bad_parts[_i].first, bad_parts[_i].second);
	assert_refused(PART_1, bad_parts[_i].ret, bad_parts[_i].in,
		       bad_parts[_i].words);
}
END_TEST

START_TEST(test_refuses_missing_part)
{
	write_parts(NULL, NULL);
	ck_assert_int_eq(unlink(path_of(PART_1)), 0);
	assert_refused(PART_2, -ENOENT, PART_1, "copy the whole model");
}
END_TEST

static Suite *gguf_suite(void)
{
	Suite *s = suite_create("gguf");
	TCase *good = tcase_create("sound");
	TCase *lies = tcase_create("unsound");

	tcase_set_tags(good, "unit model");
	tcase_add_checked_fixture(good, setup, teardown);
	tcase_add_test(good, test_reads_scalars);
	tcase_add_test(good, test_reads_lists);
	tcase_add_test(good, test_reads_tensors);
	tcase_add_loop_test(good, test_reads_type, 0, ARRAY_SIZE(types));
	tcase_add_test(good, test_knows_files);
	tcase_add_test(good, test_opens_parts);
	tcase_add_test(good, test_opens_odd_parts);
	suite_add_tcase(s, good);

	tcase_set_tags(lies, "unit model");
	tcase_add_checked_fixture(lies, setup, teardown);
	tcase_add_loop_test(lies, test_refuses, 0, ARRAY_SIZE(bad));
	tcase_add_test(lies, test_refuses_missing_and_odd_files);
	tcase_add_test(lies, test_cleans_messages);
	tcase_add_test(lies, test_refuses_every_truncation);
	tcase_add_loop_test(lies, test_refuses_heavy, 0, ARRAY_SIZE(heavy));
	tcase_add_loop_test(lies, test_refuses_parts, 0,
			    ARRAY_SIZE(bad_parts));
	tcase_add_test(lies, test_refuses_missing_part);
	suite_add_tcase(s, lies);
	return s;
}

int main(void)
{
	SRunner *sr = srunner_create(gguf_suite());
	int failed;

	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
