// SPDX-License-Identifier: Apache-2.0
/*
 * check_kernels_quant.c - types of quantized weights as numbers
 *
 * tests/data/quants.txt has blocks of each type of GGUF, and the numbers that the
 * package "gguf" makes of them (tests/data/make_quants.py).  The other types are
 * checked against their formulas in kernels/quant.h.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/quant.h"

#define LINE_MAX_BYTES	32768u

/* Bytes of hexadecimal text; returns how many. */
static u32 unhex(const char *text, u8 *to)
{
	u32 n = 0, byte;

	while (sscanf(text + 2 * n, "%2x", &byte) == 1)
		to[n++] = byte;
	return n;
}

static enum kern_dtype type_named(const char *name)
{
	u32 t;

	for (t = KERN_FIRST_BLOCKS; t < NR_KERN_DTYPES; t++)
		if (!strcmp(kern_dtype_name(t), name))
			return t;
	ck_abort_msg("no type %s", name);
}

static void check_line(char *line)
{
	static u8 blocks[LINE_MAX_BYTES], bits[LINE_MAX_BYTES];
	static float got[LINE_MAX_BYTES / 4];
	const char *name = strtok(line, " ");
	const enum kern_dtype t = type_named(name);
	const u32 nr = unhex(strtok(NULL, " "), blocks) / kern_block_bytes(t);
	const u32 n = nr * kern_block_elems(t);

	ck_assert_uint_ge(nr, 2);
	ck_assert_uint_eq(unhex(strtok(NULL, " "), bits), n * 4);
	kern_dequant(t, blocks, n, got);
	ck_assert_msg(!memcmp(got, bits, n * 4), "%s: other numbers", name);
}

START_TEST(test_golden)
{
	static char line[LINE_MAX_BYTES];
	const char *top = getenv("KVMM_TOP");
	char path[512];
	u32 nr = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/tests/data/quants.txt",
		 top ? top : ".");
	f = fopen(path, "re");
	ck_assert_ptr_nonnull(f);
	while (fgets(line, sizeof(line), f)) {
		check_line(line);
		nr++;
	}
	fclose(f);
	ck_assert_uint_eq(nr, KERN_W4_32 - KERN_FIRST_BLOCKS);
}
END_TEST

/* The types of other checkpoints: element @i of a block with scale 0.5, zero 3. */
static float folder_number(enum kern_dtype t, u32 i)
{
	const float e4m3[] = { 0.0f, 0x1p-9f, 0x1p-6f, 448.0f, -1.125f };

	if (t >= KERN_F8_32)
		return 0.5f * e4m3[i % 5];
	if (t >= KERN_W8_32)
		return 0.5f * (float)((s32)(i * 37 % 256) - 128);
	return 0.5f * (float)((s32)(i * 7 % 16) - 3);
}

static void folder_put(enum kern_dtype t, u32 i, u8 *b)
{
	const u8 e4m3[] = { 0, 1, 8, 0x7e, 0xb9 };

	if (t >= KERN_F8_32)
		b[4 + i] = e4m3[i % 5];
	else if (t >= KERN_W8_32)
		b[4 + i] = i * 37 % 256 - 128;
	else
		b[5 + i / 2] |= i * 7 % 16 << (i % 2 * 4);
}

START_TEST(test_folders)
{
	const float scale = 0.5f;
	u8 block[KERN_BLOCK_MAX_BYTES];
	float got[KERN_BLOCK_MAX_ELEMS];
	u32 t, i, n;

	for (t = KERN_W4_32; t < NR_KERN_DTYPES; t++) {
		n = kern_block_elems(t);
		memset(block, 0, sizeof(block));
		memcpy(block, &scale, sizeof(scale));
		if (t < KERN_W8_32)
			block[4] = 3;
		for (i = 0; i < n; i++)
			folder_put(t, i, block);
		kern_dequant(t, block, n, got);
		for (i = 0; i < n; i++)
			ck_assert_msg(got[i] == folder_number(t, i),
				      "%s: element %u is %g",
				      kern_dtype_name(t), i, (double)got[i]);
	}
}
END_TEST

START_TEST(test_table)
{
	u32 t;

	for (t = KERN_FIRST_BLOCKS; t < NR_KERN_DTYPES; t++) {
		ck_assert(kern_is_blocks(t));
		ck_assert_uint_le(kern_block_elems(t), KERN_BLOCK_MAX_ELEMS);
		ck_assert_uint_le(kern_block_bytes(t), KERN_BLOCK_MAX_BYTES);
	}
	ck_assert(!kern_is_blocks(KERN_BF16));
	ck_assert_uint_eq(kern_dtype_of_gguf(12), KERN_Q4_K);
	ck_assert_uint_eq(kern_dtype_of_gguf(16), NR_KERN_DTYPES);
	ck_assert_uint_eq(kern_dtype_of_gguf(KERN_NO_GGUF), NR_KERN_DTYPES);
	ck_assert_uint_eq(kern_row_bytes(KERN_Q6_K, 512), 420);
	ck_assert_uint_eq(kern_row_bytes(KERN_BF16, 512), 1024);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("kernels_quant");
	TCase *tc = tcase_create("quant");
	SRunner *sr = srunner_create(s);
	int failed;

	tcase_add_test(tc, test_golden);
	tcase_add_test(tc, test_folders);
	tcase_add_test(tc, test_table);
	suite_add_tcase(s, tc);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
