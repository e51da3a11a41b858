// SPDX-License-Identifier: Apache-2.0
/*
 * check_kernels_quantize.c - numbers as quantized weights
 *
 * tests/data/quantize.txt has numbers, the q8_0 blocks that the package "gguf" makes of
 * them, and the error of the q4_k blocks of llama.cpp (tests/data/make_quantize.py).
 * Other types are checked against the largest error that their formulas allow.
 */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/quantize.h"

#define NR	512u

static float numbers[NR];
static u8 want[NR / 32 * 34];
static double most;

static u32 unhex(const char *text, u8 *to)
{
	u32 n = 0, byte;

	while (sscanf(text + 2 * n, "%2x", &byte) == 1)
		to[n++] = byte;
	return n;
}

/* Call @fn for each line. */
static void each_line(void (*fn)(const char *name))
{
	static char line[16384];
	const char *top = getenv("KVMM_TOP"), *name;
	char path[512];
	u32 nr = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/tests/data/quantize.txt",
		 top ? top : ".");
	f = fopen(path, "re");
	ck_assert_ptr_nonnull(f);
	while (fgets(line, sizeof(line), f)) {
		name = strtok(line, " ");
		ck_assert_uint_eq(unhex(strtok(NULL, " "), (u8 *)numbers),
				  sizeof(numbers));
		ck_assert_uint_eq(unhex(strtok(NULL, " "), want), sizeof(want));
		most = strtod(strtok(NULL, " "), NULL);
		fn(name);
		nr++;
	}
	fclose(f);
	ck_assert_uint_eq(nr, 9);
}

static void q8_0_line(const char *name)
{
	u8 got[sizeof(want)];

	kern_quantize(KERN_Q8_0, numbers, NR, got);
	ck_assert_msg(!memcmp(got, want, sizeof(want)), "%s: other blocks", name);
}

START_TEST(test_q8_0)
{
	each_line(q8_0_line);
}
END_TEST

/* The root of the mean squared error of a type. */
static double error_of(enum kern_dtype t)
{
	static u8 blocks[NR * 2];
	static float back[NR];
	double sum = 0;
	u32 i;

	kern_quantize(t, numbers, NR, blocks);
	kern_dequant(t, blocks, NR, back);
	for (i = 0; i < NR; i++)
		sum += (double)(back[i] - numbers[i]) * (back[i] - numbers[i]);
	return sqrt(sum / NR);
}

static void q4_k_line(const char *name)
{
	const double error = error_of(KERN_Q4_K);

	ck_assert_msg(error <= most, "%s: error %g, llama.cpp has %g", name, error,
		      most);
}

START_TEST(test_q4_k)
{
	each_line(q4_k_line);
}
END_TEST

/* No number is off by more than half of a step, in parts of the largest one. */
static void bytes_line(const char *name)
{
	static const struct {
		enum kern_dtype	type;
		double		step;
	} types[] = {
		{ KERN_W8_32, 1.0 / 127 }, { KERN_W8_128, 1.0 / 127 },
		{ KERN_F8_32, 32.0 / 448 }, { KERN_F8_128, 32.0 / 448 },
	};
	static u8 blocks[NR * 2];
	static float back[NR];
	double largest, off;
	u32 i, j, k, n;

	for (i = 0; i < ARRAY_SIZE(types); i++) {
		n = kern_block_elems(types[i].type);
		kern_quantize(types[i].type, numbers, NR, blocks);
		kern_dequant(types[i].type, blocks, NR, back);
		for (j = 0; j < NR; j += n) {
			for (largest = 0, k = 0; k < n; k++)
				largest = fmax(largest, fabs(numbers[j + k]));
			for (k = 0; k < n; k++) {
				off = fabs(back[j + k] - numbers[j + k]);
				ck_assert_msg(off <= largest * types[i].step * 0.501,
					      "%s, %s: %g is %g", name,
					      kern_dtype_name(types[i].type),
					      numbers[j + k], back[j + k]);
			}
		}
	}
}

START_TEST(test_bytes)
{
	each_line(bytes_line);
}
END_TEST

/* Each e4m3 that is a number comes back as it was. */
START_TEST(test_e4m3)
{
	float x[128] = { 0 }, back[128];
	u8 block[132], again[132];
	const float one = 1;
	u32 i;

	memcpy(block, &one, sizeof(one));
	for (i = 0; i < 128; i++)
		block[4 + i] = (i & 0x7f) == 0x7f ? 0x7e : i % 2 ? i | 0x80 : i;
	kern_dequant(KERN_F8_128, block, 128, x);
	kern_quantize(KERN_F8_128, x, 128, again);
	kern_dequant(KERN_F8_128, again, 128, back);
	ck_assert_int_eq(memcmp(x, back, sizeof(x)), 0);
	ck_assert_int_eq(memcmp(block + 4, again + 4, 128), 0);
}
END_TEST

START_TEST(test_types)
{
	ck_assert(kern_can_quantize(KERN_Q8_0));
	ck_assert(kern_can_quantize(KERN_Q4_K));
	ck_assert(kern_can_quantize(KERN_F8_128));
	ck_assert(!kern_can_quantize(KERN_Q6_K));
	ck_assert(!kern_can_quantize(KERN_BF16));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("kernels_quantize");
	TCase *tc = tcase_create("quantize");
	SRunner *sr = srunner_create(s);
	int failed;

	tcase_add_test(tc, test_q8_0);
	tcase_add_test(tc, test_q4_k);
	tcase_add_test(tc, test_bytes);
	tcase_add_test(tc, test_e4m3);
	tcase_add_test(tc, test_types);
	suite_add_tcase(s, tc);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
