// SPDX-License-Identifier: Apache-2.0
/*
 * check_beams.c - recorded beam searches: their file, and checks of it
 */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/beams.h"

#define NR(a)	(sizeof(a) / sizeof((a)[0]))

static struct beams beams;

static void free_all(void)
{
	beams_free(&beams);
	ck_assert_uint_eq(beams.nr, 0);
}

static void path_of(char *path, size_t size, const char *name)
{
	const char *top = getenv("KVMM_TOP");

	snprintf(path, size, "%s/%s", top ? top : ".", name);
}

START_TEST(test_good)
{
	static const u8 steps[] = { 0, 0, 1, 0, 1, 2, 2, 1, 0 };
	u32 line;

	ck_assert_int_eq(beams_parse(&beams, "# head\n\nsearch 3 7 24 3 # a\n"
				     "001 .\n\t210\r\nsearch 1 0 1 1\n0", &line), 0);
	ck_assert_uint_eq(line, 7);
	ck_assert_uint_eq(beams.nr, 2);
	ck_assert_uint_eq(beams.search[0].width, 3);
	ck_assert_uint_eq(beams.search[0].prompt, 7);
	ck_assert_uint_eq(beams.search[0].length, 24);
	ck_assert_uint_eq(beams.search[0].nr, 3);
	ck_assert_mem_eq(beams.search[0].parents, steps, sizeof(steps));
	/* A search that is over begins again. */
	ck_assert_mem_eq(beams_step(&beams.search[0], 2), steps + 6, 3);
	ck_assert_mem_eq(beams_step(&beams.search[0], 3), steps, 3);
	ck_assert_uint_eq(beams.search[1].nr, 1);
}
END_TEST

static const struct {
	const char *text;
	int err;
	u32 line;
} bad[] = {
	{ "seek 2 0 24 1\n.", -EINVAL, 1 },
	{ "search 2 0 24 1\n. .", -EINVAL, 2 },
	/* truncated */
	{ "search 2 0 24", -ENODATA, 1 },
	{ "search 2 0 24 2\n", -ENODATA, 2 },
	{ "search 2 0 24 2\n. # .\n", -ENODATA, 3 },
	{ "search 2 0 24 2\n. 1", -EINVAL, 2 },
	{ "search 2 0 24 2\n00\nsearch 2 0 24 1\n.", -EINVAL, 3 },
	/* parents out of range */
	{ "search 2 0 24 2\n01\n02", -EINVAL, 3 },
	{ "search 2 0 24 1\n20", -EINVAL, 2 },
	{ "search 2 0 24 1\n0/", -EINVAL, 2 },
	{ "search 2 0 24 1\n0:", -EINVAL, 2 },
	{ "search 2 0 24 1\n001", -EINVAL, 2 },
	{ "search 2 0 24 1\n..", -EINVAL, 2 },
	/* numbers */
	{ "search 0 0 24 1\n.", -EINVAL, 1 },
	{ "search 9 0 24 1\n.", -E2BIG, 1 },
	{ "search 2 0 0 1\n.", -EINVAL, 1 },
	{ "search 2 0 24 0\n", -EINVAL, 1 },
	{ "search 2 0 24 4097\n.", -E2BIG, 1 },
	{ "search 2 0 24 4294967297\n.", -E2BIG, 1 },
	{ "search 2 -1 24 1\n.", -EINVAL, 1 },
};

START_TEST(test_bad)
{
	u32 line;

	ck_assert_int_eq(beams_parse(&beams, bad[_i].text, &line), bad[_i].err);
	ck_assert_uint_eq(line, bad[_i].line);
}
END_TEST

START_TEST(test_too_many)
{
	static char text[(BEAMS_SEARCHES + 1) * 18 + 1];
	u32 i, line;

	for (i = 0; i <= BEAMS_SEARCHES; i++)
		strcat(text, "search 2 0 24 1 .\n");
	ck_assert_int_eq(beams_parse(&beams, text, &line), -E2BIG);
	ck_assert_uint_eq(line, BEAMS_SEARCHES + 1);
	beams_free(&beams);
	text[BEAMS_SEARCHES * 18] = '\0';
	ck_assert_int_eq(beams_parse(&beams, text, &line), 0);
	ck_assert_uint_eq(beams.nr, BEAMS_SEARCHES);
}
END_TEST

/* First search: beams are apart since the prompt.  Second: all have one parent. */
START_TEST(test_ancestor)
{
	u32 line;

	ck_assert_int_eq(beams_parse(&beams, "search 3 0 1 4 . . . .\n"
				     "search 3 0 1 4 000 222 111 000\n"
				     "search 3 0 1 4 . 001 . 110\n", &line), 0);
	ck_assert_double_eq(beams_ancestor(&beams.search[0], 4), 2.5);
	ck_assert_double_eq(beams_ancestor(&beams.search[0], 8), 4.5);
	ck_assert_double_eq(beams_ancestor(&beams.search[1], 4), 0);
	/*
	 * At steps 1, 2 and 3 the beams are apart since step 0.  At step 4 two
	 * beams have the same parent, which parted from the parent of the third
	 * at step 2: 4 - 2 tokens ago.
	 */
	ck_assert_double_eq(beams_ancestor(&beams.search[2], 4),
			    (1 + 2 + 3 + 2) / 4.0);
	ck_assert_double_eq(beams_ancestor(&beams.search[2], 0), 0);
}
END_TEST

/*
 * Two beams that part at the prompt's end, 3 of the 4 tokens of a block:
 *
 *	step	tokens	each has	in common
 *	prompt	3	1 (of one)
 *	1	4	1		-
 *	2	5	2		the block, as both came of one at 4
 *	3	6	2		the block
 *	4	7	2		the block
 *	5	8	2		the block
 *	6	9	3		the block; they parted at 8 - 2
 */
START_TEST(test_blocks)
{
	struct beam_blocks sum = { .mapped = 100, .distinct = 1000 };
	u32 line;

	ck_assert_int_eq(beams_parse(&beams, "search 2 0 1 6\n"
				     "11 . 00 . 10 .", &line), 0);
	beams_blocks(&beams.search[0], 3, 0, 6, 4, &sum);
	ck_assert_uint_eq(sum.mapped, 100 + 1 + 2 * (1 + 2 + 2 + 2 + 2 + 3));
	ck_assert_uint_eq(sum.distinct, 1000 + 1 + 2 + 3 + 3 + 3 + 3 + 5);
	sum = (struct beam_blocks){ 0 };
	beams_blocks(&beams.search[0], 3, 1, 2, 4, &sum);
	ck_assert_uint_eq(sum.mapped, 2 * (1 + 2));
	ck_assert_uint_eq(sum.distinct, 2 + 3);
}
END_TEST

/* The file in the tree has searches of all widths that the bench replays. */
START_TEST(test_recorded)
{
	static const u32 widths[] = { 2, 4, 6 }, lengths[] = { 24, 160 };
	u32 line, i, w, l, nr;
	char path[512];

	path_of(path, sizeof(path), BEAMS_FILE);
	ck_assert_int_eq(beams_read(&beams, path, &line), 0);
	for (w = 0; w < NR(widths); w++)
		for (l = 0; l < NR(lengths); l++) {
			for (nr = 0, i = 0; i < beams.nr; i++)
				nr += beams.search[i].width == widths[w] &&
				      beams.search[i].length == lengths[l];
			ck_assert_uint_ge(nr, 8);
		}
}
END_TEST

START_TEST(test_no_file)
{
	char path[512];
	u32 line;

	path_of(path, sizeof(path), "tests/data/beams/none.txt");
	ck_assert_int_eq(beams_read(&beams, path, &line), -ENOENT);
	path_of(path, sizeof(path), "tests/data/beams");
	ck_assert_int_eq(beams_read(&beams, path, &line), -EIO);
	path_of(path, sizeof(path), "tests/data/demo-model/model.safetensors");
	ck_assert_int_eq(beams_read(&beams, path, &line), -EFBIG);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("beams");
	TCase *t = tcase_create("beams");
	SRunner *r;
	int nr;

	tcase_add_checked_fixture(t, NULL, free_all);
	tcase_add_test(t, test_good);
	tcase_add_loop_test(t, test_bad, 0, (int)NR(bad));
	tcase_add_test(t, test_too_many);
	tcase_add_test(t, test_ancestor);
	tcase_add_test(t, test_blocks);
	tcase_add_test(t, test_recorded);
	tcase_add_test(t, test_no_file);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	nr = srunner_ntests_failed(r);
	srunner_free(r);
	return nr != 0;
}
