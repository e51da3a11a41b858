// SPDX-License-Identifier: Apache-2.0
/*
 * check_kernels_types.c - the narrow types of KV
 *
 * The reference is the oracle of the other implementations.  So this file
 * checks it against other sources: all codes of e4m3 and f16 against their own
 * order and the compiler's half, quantization against its definition in
 * kernels.h, attention over quantized KV against attention over the same
 * numbers in f32, and copies and the layout against bytes at known places.
 * Then the other implementations must store the same bytes as the reference.
 */
#include "check_kernels.h"

#include <errno.h>

#include "kernels/ref/internal.h"

static const struct kern_ops *ref;
static struct rng rng;

static void setup(void)
{
	ref = kern_get("ref");
	rng.s = 11;
}

static double e4m3(u8 code)
{
	return kern_ref_load(&code, KERN_E4M3, 0);
}

static u8 to_e4m3(float x)
{
	u8 code;

	kern_ref_store(&code, KERN_E4M3, 0, x);
	return code;
}

/* Known codes; codes rise in order; each is its own nearest; ties go to even. */
START_TEST(test_e4m3)
{
	u32 i;

	ck_assert(e4m3(0x00) == 0 && e4m3(0x01) == 0x1p-9);
	ck_assert(e4m3(0x08) == 0x1p-6 && e4m3(0x38) == 1);
	ck_assert(e4m3(0x7e) == 448 && e4m3(0xfe) == -448);
	ck_assert(isnan(e4m3(0x7f)) && isnan(e4m3(0xff)));
	for (i = 0; i < 0x7e; i++) {
		double a = e4m3(i), b = e4m3(i + 1), mid = (a + b) / 2;

		ck_assert(a < b);
		ck_assert_uint_eq(to_e4m3(a), i);
		ck_assert_uint_eq(to_e4m3(-a), i | 0x80);
		ck_assert_uint_eq(to_e4m3(mid), i + (i & 1));
		ck_assert_uint_eq(to_e4m3(nextafterf(mid, 0)), i);
		ck_assert_uint_eq(to_e4m3(nextafterf(mid, 999)), i + 1);
	}
	ck_assert_uint_eq(to_e4m3(460), 0x7e);
	ck_assert_uint_eq(to_e4m3(-1e9f), 0xfe);
	ck_assert_uint_eq(to_e4m3(NAN) & 0x7f, 0x7f);
}
END_TEST

/* The compiler's own half is an independent implementation. */
START_TEST(test_f16)
{
	u32 i, bits;
	_Float16 h;
	u16 got;
	float f;

	for (i = 0; i < 0x10000; i++) {
		got = i;
		memcpy(&h, &got, sizeof(h));
		f = kern_ref_load(&got, KERN_F16, 0);
		ck_assert(f == (float)h || (isnan(f) && isnan((float)h)));
	}
	for (i = 0; i < 200000; i++) {
		bits = rng_next(&rng);
		if (i & 1)	/* mostly in the range of f16 */
			bits = (bits & 0x807fffff) |
			       rng_range(&rng, 100, 145) << 23;
		memcpy(&f, &bits, sizeof(f));
		if (isnan(f))
			continue;
		h = (_Float16)f;
		kern_ref_store(&got, KERN_F16, 0, f);
		ck_assert_msg(!memcmp(&got, &h, sizeof(h)), "%a: %#x", f, got);
	}
}
END_TEST

static const enum kern_dtype scaled[] = { KERN_E4M3, KERN_I8 };

static struct kern_kv geometry(enum kern_dtype type, u32 bt)
{
	return (struct kern_kv){
		.block_tokens = bt, .nr_layers = 2, .kv_heads = 3,
		.head_dim = 48, .dtype = type,
	};
}

/* The scales of a layer follow all its elements, [K|V][head][token]. */
START_TEST(test_layout)
{
	struct pool p = pool_create(&rng, geometry(scaled[_i], 16), 3,
				    BLOCK_MAJOR);
	u64 data = 2 * 3 * 16 * 48, layer = data + 2 * 3 * 16 * 4;
	u8 *at = p.kv.base + 64ull * p.entries[1] + p.kv.layer_stride;

	ck_assert_uint_eq(kern_kv_data_bytes(&p.kv), data);
	ck_assert_uint_eq(kern_kv_layer_bytes(&p.kv), layer);
	ck_assert_uint_eq(layer % 128, 0);
	ck_assert_ptr_eq(kern_kv_addr(&p.kv, p.entries[1], 1, 1, 2, 5),
			 at + ((3 + 2) * 16 + 5) * 48);
	ck_assert_ptr_eq(kern_kv_scale_addr(&p.kv, p.entries[1], 1, 1, 2, 5),
			 at + data + 4 * ((3 + 2) * 16 + 5));
	pool_destroy(&p);
}
END_TEST

/* One head, checked against the definition in kernels.h. */
static void expect_head(const struct kern_kv *kv, const u8 *elems,
			float scale, const float *x)
{
	float limit = kv->dtype == KERN_I8 ? 127 : 448, amax = 0, y;
	bool finite = true;
	u8 want;
	u32 d;

	for (d = 0; d < kv->head_dim; d++) {
		finite = finite && isfinite(x[d]);
		amax = fmaxf(amax, fabsf(x[d]));
	}
	if (finite)
		ck_assert_msg(scale == amax / limit, "scale %a", scale);
	else
		ck_assert(isnan(scale));
	for (d = 0; d < kv->head_dim; d++) {
		y = finite && scale ? x[d] / scale : 0;
		want = kv->dtype == KERN_I8 ?
		       (u8)(s8)lrintf(fminf(127, fmaxf(-127, y))) : to_e4m3(y);
		ck_assert_msg(elems[d] == want, "%a / %a: %#x, not %#x", x[d],
			      scale, elems[d], want);
	}
}

START_TEST(test_kv_write)
{
	struct pool p = pool_create(&rng, geometry(scaled[_i], 32), 3,
				    LAYER_MAJOR);
	struct kern_attn_seq seq = { p.entries, 40, 0, 7 };
	float *x = rng_floats(&rng, 40 * 3 * 48);
	struct kern_kv_append a = { .kv = &p.kv, .layer = 1, .nr_seqs = 1,
				    .seqs = &seq, .k = x, .v = x };
	u32 row, h, is_v, pos, e;

	memset(x, 0, 48 * sizeof(*x));		/* row 0: a head of zeros, */
	x[48] = INFINITY;			/* one with an infinity, */
	x[96 + 47] = NAN;			/* and one with a NaN */
	for (h = 0; h < 48; h++)		/* row 1: denormal numbers */
		x[144 + h] *= 0x1p-140f;
	for (h = 0; h < 48; h++)		/* and ties of int8 */
		x[192 + h] = h ? h + 0.5f : 127;
	ref->kv_write(NULL, &a);
	for (row = 0; row < 40; row++) {
		pos = 7 + row;
		e = p.entries[pos / 32];
		for (is_v = 0; is_v < 2; is_v++)
			for (h = 0; h < 3; h++)
				expect_head(&p.kv,
					    kern_kv_addr(&p.kv, e, 1, is_v, h,
							 pos % 32),
					    *kern_kv_scale_addr(&p.kv, e, 1,
							is_v, h, pos % 32),
					    x + (row * 3 + h) * 48);
	}
	pool_destroy(&p);
	free(x);
}
END_TEST

/* A copy includes the scales, and nothing of the tokens after the last one. */
START_TEST(test_kv_copy)
{
	struct pool p = pool_create(&rng, geometry(scaled[_i], 16), 2,
				    BLOCK_MAJOR);
	struct kern_kv_copy c = { p.entries[0], p.entries[1], 9 };
	u8 *before = malloc(p.bytes);
	u32 layer, is_v, h, t;
	u64 i;

	for (i = 0; i < p.bytes; i++)
		before[i] = p.kv.base[i] = rng_next(&rng);
	ref->kv_copy(NULL, &p.kv, &c, 1);
	for (layer = 0; layer < 2; layer++)
		for (is_v = 0; is_v < 2; is_v++)
			for (h = 0; h < 3; h++)
				for (t = 0; t < 16; t++) {
		const u8 *to = kern_kv_addr(&p.kv, c.to, layer, is_v, h, t);
		const void *to_s = kern_kv_scale_addr(&p.kv, c.to, layer, is_v,
						      h, t);
		u32 from = t < 9 ? c.from : c.to;
		u64 at = kern_kv_addr(&p.kv, from, layer, is_v, h, t) -
			 p.kv.base;
		u64 at_s = (u8 *)kern_kv_scale_addr(&p.kv, from, layer, is_v,
						    h, t) - p.kv.base;

		ck_assert(!memcmp(to, before + at, 48));
		ck_assert(!memcmp(to_s, before + at_s, 4));
	}
	pool_destroy(&p);
	free(before);
}
END_TEST

/* The numbers of a pool's K or V as f32, [pos][head][dim]. */
static float *numbers(const struct pool *p, u32 is_v, u32 len)
{
	const struct kern_kv *kv = &p->kv;
	u32 pos, h, d, row = kv->kv_heads * kv->head_dim;
	float *x = malloc((u64)len * row * sizeof(*x)), s = 1;

	for (pos = 0; pos < len; pos++)
		for (h = 0; h < kv->kv_heads; h++) {
			u32 e = p->entries[pos / kv->block_tokens];
			u32 t = pos % kv->block_tokens;

			if (kern_dtype_scaled(kv->dtype))
				s = *kern_kv_scale_addr(kv, e, 0, is_v, h, t);
			for (d = 0; d < kv->head_dim; d++)
				x[(u64)pos * row + h * kv->head_dim + d] = s *
					kern_ref_load(kern_kv_addr(kv, e, 0,
								   is_v, h, t),
						      kv->dtype, d);
		}
	return x;
}

static const enum kern_dtype narrow[] = { KERN_F16, KERN_E4M3, KERN_I8 };

START_TEST(test_attention)
{
	const u32 len = 50, heads = 6, hd = 48;
	struct pool p = pool_create(&rng, geometry(narrow[_i], 16), 4,
				    BLOCK_MAJOR);
	struct pool wide = pool_create(&rng, geometry(KERN_F32, 16), 4,
				       BLOCK_MAJOR);
	struct kern_attn_seq seq = { p.entries, 50, 0, 0 };
	float *k = rng_floats(&rng, len * 3 * hd), *v, *q, *got, *want;
	struct kern_kv_append app = { .kv = &p.kv, .nr_seqs = 1, .seqs = &seq,
				      .k = k, .v = k };
	struct kern_attn a = { .kv = &p.kv, .nr_seqs = 1, .seqs = &seq,
			       .heads = heads, .scale = 0.3f, .window = 33,
			       .softcap = _i == 1 ? 2.0f : 0 };
	u32 i;

	ref->kv_write(NULL, &app);
	app.k = numbers(&p, 0, len);
	app.v = v = numbers(&p, 1, len);
	for (i = 0; i < len * 3 * hd; i++)	/* at most half a step off */
		ck_assert(fabs(app.k[i] - k[i]) <= 1.0 / 16);
	a.q = q = rng_floats(&rng, len * heads * hd);
	a.out = got = poisoned(len * heads * hd);
	ref->attention(NULL, &a);
	seq.table = wide.entries;
	app.kv = a.kv = &wide.kv;
	a.out = want = poisoned(len * heads * hd);
	ref->kv_write(NULL, &app);
	ref->attention(NULL, &a);
	for (i = 0; i < len * heads * hd; i++)
		ck_assert(fabs(got[i] - want[i]) <= 1e-6);
	pool_destroy(&p);
	pool_destroy(&wide);
	free((void *)app.k);
	free(k);
	free(v);
	free(q);
	free(got);
	free(want);
}
END_TEST

/* A number of @type, halfway to the next one, or close to that. */
static float near_tie(enum kern_dtype type)
{
	u16 code[2] = { rng_next(&rng) % 0x7bff, 0 };
	double a, b, mid;

	if (kern_dtype_size(type) == 1)
		code[0] %= 0x7e;
	code[1] = code[0] + 1;
	a = kern_ref_load(&code[0], type, 0);
	b = kern_ref_load(&code[1], type, 0);
	mid = rng_next(&rng) & 1 ? (a + b) / 2 : a;
	switch (rng_next(&rng) % 3) {
	case 0:
		return mid;
	case 1:
		return -nextafterf(mid, 0);
	default:
		return nextafterf(mid, 1e9f);
	}
}

/* All implementations store the same bytes as the reference, ties included. */
START_TEST(test_ties)
{
	const enum kern_dtype type = narrow[_i];
	struct pool p = pool_create(&rng, geometry(type, 16), 3, BLOCK_MAJOR);
	struct kern_attn_seq seq = { p.entries, 40, 0, 3 };
	float *x = rng_floats(&rng, 40 * 3 * 48);
	struct kern_kv_append a = { .kv = &p.kv, .layer = 1, .nr_seqs = 1,
				    .seqs = &seq, .k = x, .v = x };
	u8 *want = malloc(p.bytes);
	const struct kern_ops *ops;
	u32 round, i;

	for (round = 0; round < 20; round++) {
		/* Heads whose scale is 1; for f16 also its largest numbers. */
		for (i = 0; i < 40 * 3 * 48; i++)
			x[i] = i % 48 ? near_tie(type) :
			       type == KERN_F16 ? -65500.0f - 2 * round :
			       type == KERN_I8 ? 127 : -448;
		ref->kv_write(NULL, &a);
		memcpy(want, p.kv.base, p.bytes);
		for (i = 1; (ops = kern_at(i)); i++) {
			memset(p.kv.base, 0xff, p.bytes);
			ops->kv_write(NULL, &a);
			ck_assert_bits_eq(p.kv.base, want, p.bytes);
		}
	}
	pool_destroy(&p);
	free(want);
	free(x);
}
END_TEST

/* Types that an implementation lacks, and geometries that are invalid. */
START_TEST(test_refused)
{
	struct kern_kv kv = geometry(KERN_F32, 16);
	struct kern_ops few = *ref;
	const struct kern_ops *ops;
	u32 i, t;

	few.kv_types = KERN_TYPE_BIT(KERN_F32) | KERN_TYPE_BIT(KERN_BF16);

	kv.unit = 64;
	kv.layer_stride = 1 << 20;
	for (t = KERN_F32; t <= KERN_I8; t++) {
		kv.dtype = t;
		for (i = 0; (ops = kern_at(i)); i++)
			ck_assert_int_eq(kern_kv_check_ops(ops, &kv), 0);
		ck_assert_int_eq(kern_kv_check_ops(&few, &kv),
				 t > KERN_BF16 ? -EOPNOTSUPP : 0);
	}
	kv.dtype = KERN_I8 + 1;
	ck_assert_int_eq(kern_kv_check_ops(ref, &kv), -EINVAL);
	/* Kernels of a GPU copy pieces of 16 bytes: half a piece ends 24 or 120 bytes. */
	for (t = KERN_F32; t <= KERN_I8; t++) {
		kv.dtype = t;
		kv.head_dim = t % 2 ? 24 : 120;
		ck_assert_int_eq(kern_kv_check_ops(kern_get(NULL), &kv), 0);
		ck_assert_int_eq(kern_kv_check_ops(kern_get("cuda"), &kv),
				 t > KERN_F16 ? -EOPNOTSUPP : 0);
		ck_assert_int_eq(kern_kv_check_ops(kern_get("cuda-fast"), &kv),
				 t > KERN_F16 ? -EOPNOTSUPP : 0);
		kv.head_dim += 8;
		ck_assert_int_eq(kern_kv_check_ops(kern_get("cuda"), &kv), 0);
	}
	kv.dtype = KERN_I8;
	kv.layer_stride = kern_kv_data_bytes(&kv);	/* scales overlap */
	ck_assert_int_eq(kern_kv_check(&kv), -EINVAL);
	kv.layer_stride = kern_kv_layer_bytes(&kv);
	ck_assert_int_eq(kern_kv_check(&kv), 0);
	kv.unit = 2;
	ck_assert_int_eq(kern_kv_check(&kv), -EINVAL);
}
END_TEST

static Suite *kernels_types_suite(void)
{
	Suite *s = suite_create("kernels-types");
	TCase *tc = tcase_create("reference");

	tcase_set_tags(tc, "unit kernels");
	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_test(tc, test_e4m3);
	tcase_add_test(tc, test_f16);
	tcase_add_loop_test(tc, test_layout, 0, 2);
	tcase_add_loop_test(tc, test_kv_write, 0, 2);
	tcase_add_loop_test(tc, test_kv_copy, 0, 2);
	tcase_add_loop_test(tc, test_attention, 0, 3);
	tcase_add_loop_test(tc, test_ties, 0, 3);
	tcase_add_test(tc, test_refused);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	SRunner *sr = srunner_create(kernels_types_suite());
	int failed;

	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
