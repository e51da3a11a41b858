// SPDX-License-Identifier: Apache-2.0
/*
 * pack_ints.c - reorder weights in blocks as ints.h defines
 *
 * It only moves bits, so one compilation serves all variants.  An item is a panel.  Each
 * block of its rows becomes codes, one a byte, and scales; then the codes of INT_ROWS rows
 * are put side by side and cut into planes.
 */
#include "kernels/block_bits.h"
#include "kernels/cpu/ints.h"

struct pack_job {
	const struct kern_weight	*w;
	struct int_form			form;
	u8				*to;
};

/* One block of each row of a panel. */
struct chunk {
	u8	codes[INT_ROWS][KERN_BLOCK_MAX_ELEMS];
	u8	scales[INT_ROWS][4];		/* of a block */
	u8	mins[INT_ROWS][4];
	u8	by[INT_ROWS][16];		/* of its groups */
	u8	less[INT_ROWS][16];
};

/* The low, then the high half of each byte, for each @n bytes. */
static void codes_of_halves(const u8 *q, u32 bytes, u32 n, u8 *to)
{
	u32 i, j;

	for (i = 0; i < bytes; i += n, q += n, to += 2 * n) {
		for (j = 0; j < n; j++)
			to[j] = q[j] & 15;
		for (j = 0; j < n; j++)
			to[n + j] = q[j] >> 4;
	}
}

/* Add a fifth bit: bit i of the word. */
static void codes_add_fifth(const u8 *high, u8 *to)
{
	const u32 word = u32_at(high);
	u32 i;

	for (i = 0; i < 32; i++)
		to[i] |= (word >> i & 1) << 4;
}

/* Two bits of each byte, 32 bytes at a time, times 1 << @up. */
static void codes_add_pairs(const u8 *q, u32 up, u8 *to)
{
	u32 g, i;

	for (g = 0; g < 8; g++, to += 32)
		for (i = 0; i < 32; i++)
			to[i] |= (q[g / 4 * 32 + i] >> (g % 4 * 2) & 3) << up;
}

/* Bit g of 32 bytes, for group g of 32, times 1 << @up. */
static void codes_add_bits(const u8 *q, u32 up, u8 *to)
{
	u32 g, i;

	for (g = 0; g < 8; g++, to += 32)
		for (i = 0; i < 32; i++)
			to[i] |= (q[i] >> g & 1) << up;
}

/* Scales and minima of the groups of Q4_K and Q5_K. */
static void scales_of_k(const u8 *s, u8 *by, u8 *less)
{
	u32 g;

	for (g = 0; g < 8; g++) {
		by[g] = q4_scale(s, g);
		less[g] = q4_min(s, g);
	}
}

static void block_q2_k(const u8 *b, u8 *codes, u8 *by, u8 *less)
{
	u32 i;

	memset(codes, 0, 256);
	codes_add_pairs(b + 16, 0, codes);
	for (i = 0; i < 16; i++) {
		by[i] = b[i] & 15;
		less[i] = b[i] >> 4;
	}
}

static void block_q3_k(const u8 *b, u8 *codes, u8 *by)
{
	u32 g;

	memset(codes, 0, 256);
	codes_add_pairs(b + 32, 0, codes);
	codes_add_bits(b, 2, codes);
	for (g = 0; g < 16; g++)
		by[g] = q3_scale(b + 96, g);
}

static void block_q6_k(const u8 *b, u8 *codes, u8 *by)
{
	codes_of_halves(b, 64, 64, codes);
	codes_of_halves(b + 64, 64, 64, codes + 128);
	codes_add_pairs(b + 128, 4, codes);
	memcpy(by, b + 192, 16);
}

static void block_iq4_xs(const u8 *b, u8 *codes, u8 *by)
{
	u32 g;

	codes_of_halves(b + 8, 128, 16, codes);
	for (g = 0; g < 8; g++)
		by[g] = iq4_scale(b, g);
}

static void block_w4(const u8 *b, u32 elems, u8 *codes)
{
	u32 i;

	for (i = 0; i < elems / 2; i++) {
		codes[2 * i] = b[5 + i] & 15;
		codes[2 * i + 1] = b[5 + i] >> 4;
	}
}

/* Signed bytes, plus 128. */
static void block_bytes(const u8 *b, u32 elems, u8 *codes)
{
	u32 i;

	for (i = 0; i < elems; i++)
		codes[i] = b[i] ^ 0x80;
}

/* The codes and groups of a block. */
static void block_codes(enum kern_dtype t, const u8 *b, u8 *codes, u8 *by,
			u8 *less)
{
	switch (t) {
	case KERN_Q5_0:
		codes_of_halves(b + 6, 16, 16, codes);
		return codes_add_fifth(b + 2, codes);
	case KERN_Q5_1:
		codes_of_halves(b + 8, 16, 16, codes);
		return codes_add_fifth(b + 4, codes);
	case KERN_Q2_K:
		return block_q2_k(b, codes, by, less);
	case KERN_Q3_K:
		return block_q3_k(b, codes, by);
	case KERN_Q4_K:
		scales_of_k(b + 4, by, less);
		return codes_of_halves(b + 16, 128, 32, codes);
	case KERN_Q5_K:
		scales_of_k(b + 4, by, less);
		codes_of_halves(b + 48, 128, 32, codes);
		return codes_add_bits(b + 16, 4, codes);
	case KERN_Q6_K:
		return block_q6_k(b, codes, by);
	case KERN_IQ4_XS:
		return block_iq4_xs(b, codes, by);
	case KERN_W4_32:
	case KERN_W4_64:
	case KERN_W4_128:
		return block_w4(b, kern_block_elems(t), codes);
	case KERN_Q8_0:
		return block_bytes(b + 2, 32, codes);
	case KERN_W8_32:
	case KERN_W8_128:
		return block_bytes(b + 4, kern_block_elems(t), codes);
	case KERN_Q4_1:
		return codes_of_halves(b + 4, 16, 16, codes);
	case KERN_MXFP4:
		return codes_of_halves(b + 1, 16, 16, codes);
	default:	/* Q4_0, IQ4_NL */
		return codes_of_halves(b + 2, 16, 16, codes);
	}
}

/* Where a block has its scale; its min follows. */
static u32 scale_place(enum kern_dtype t)
{
	return t == KERN_Q2_K ? 80 : t == KERN_Q3_K ? 108 :
	       t == KERN_Q6_K ? 208 : 0;
}

static void chunk_read(const struct pack_job *j, const u8 *block, u32 r,
		       struct chunk *c)
{
	const enum kern_dtype t = j->w->dtype;
	const u32 size = int_scale_bytes(&j->form);
	const u8 *scale = block + scale_place(t);

	block_codes(t, block, c->codes[r], c->by[r], c->less[r]);
	memcpy(c->scales[r], scale, size);
	if (j->form.min)
		memcpy(c->mins[r], scale + size, size);
	if (j->form.is_zero)
		c->mins[r][0] = block[size];
}

/* The bytes of one unit, vector by vector. */
static void unit_vectors(const struct chunk *c, u32 col, u8 *v)
{
	u32 i, r;

	for (i = 0; i < INT_VECS; i++)
		for (r = 0; r < INT_ROWS; r++, v += 4)
			memcpy(v, c->codes[r] + col + 4 * i, 4);
}

/* Bits @low to @low + 3 of all vectors. */
static u8 *plane_of_4(const u8 *v, u32 low, u8 *to)
{
	u32 i;

	for (i = 0; i < 256; i++)
		to[i] = (v[i] >> low & 15) | v[i + 256] >> low << 4;
	return to + 256;
}

static u8 *plane_of_2(const u8 *v, u32 low, u8 *to)
{
	u32 i;

	for (i = 0; i < 128; i++)
		to[i] = (v[i] >> low & 3) | (v[i + 128] >> low & 3) << 2 |
			(v[i + 256] >> low & 3) << 4 |
			(v[i + 384] >> low & 3) << 6;
	return to + 128;
}

static u8 *plane_of_1(const u8 *v, u32 low, u8 *to)
{
	u32 i, n;

	for (i = 0; i < 64; i++) {
		to[i] = 0;
		for (n = 0; n < INT_VECS; n++)
			to[i] |= (v[64 * n + i] >> low & 1) << n;
	}
	return to + 64;
}

static u8 *unit_write(const struct int_form *f, const u8 *v, u8 *to)
{
	switch (f->bits) {
	case 2:
		return plane_of_2(v, 0, to);
	case 3:
		return plane_of_1(v, 2, plane_of_2(v, 0, to));
	case 4:
		return plane_of_4(v, 0, to);
	case 5:
		return plane_of_1(v, 4, plane_of_4(v, 0, to));
	case 6:
		return plane_of_2(v, 4, plane_of_4(v, 0, to));
	default:
		memcpy(to, v, 512);
		return to + 512;
	}
}

/* @size bytes of each row, side by side. */
static u8 *rows_write(const u8 *from, u32 step, u32 size, u8 *to)
{
	u32 r;

	for (r = 0; r < INT_ROWS; r++)
		memcpy(to + r * size, from + r * step, size);
	return to + INT_ROWS * size;
}

static u8 *scales_write(const struct int_form *f, const struct chunk *c, u8 *to)
{
	const u32 size = int_scale_bytes(f);
	u32 g;

	to = rows_write(c->scales[0], 4, size, to);
	if (f->min)
		to = rows_write(c->mins[0], 4, size, to);
	if (f->is_zero)
		to = rows_write(c->mins[0], 4, 1, to);
	for (g = 0; g < f->groups; g++) {
		to = rows_write(c->by[0] + g, 16, 1, to);
		if (f->min)
			to = rows_write(c->less[0] + g, 16, 1, to);
	}
	return to;
}

static void pack_panel(void *arg, u32 p)
{
	const struct pack_job *j = arg;
	const struct kern_weight *w = j->w;
	const u32 elems = kern_block_elems(w->dtype);
	const u32 bytes = kern_block_bytes(w->dtype);
	const u64 row = kern_row_bytes(w->dtype, w->cols);
	const u32 rows = min(w->rows - p * INT_ROWS, INT_ROWS);
	u8 *codes = j->to + p * int_panel_bytes(&j->form, w->cols, elems);
	u8 *scales = codes + w->cols / INT_COLS * int_unit_bytes(&j->form);
	const u8 *from = (const u8 *)w->data + p * INT_ROWS * row;
	u8 v[INT_VECS * 64];
	struct chunk c;
	u32 k, r, u;

	memset(&c, 0, sizeof(c));
	for (k = 0; k < w->cols; k += elems, from += bytes) {
		for (r = 0; r < rows; r++)
			chunk_read(j, from + r * row, r, &c);
		for (u = 0; u < elems; u += INT_COLS) {
			unit_vectors(&c, u, v);
			codes = unit_write(&j->form, v, codes);
		}
		scales = scales_write(&j->form, &c, scales);
	}
}

size_t kern_int_pack_bytes(const struct kern_weight *w)
{
	const struct int_form f = int_form_of(w->dtype);

	if (!f.bits || w->packed || w->cols > INT_MAX_COLS)
		return 0;
	return DIV_ROUND_UP(w->rows, INT_ROWS) *
	       int_panel_bytes(&f, w->cols, kern_block_elems(w->dtype));
}

void kern_int_pack(struct kern_ctx *ctx, struct kern_weight *w, void *to)
{
	struct pack_job job = {
		.w = w, .form = int_form_of(w->dtype), .to = to,
	};

	kern_parallel(ctx, DIV_ROUND_UP(w->rows, INT_ROWS), pack_panel, &job);
	w->data = to;
	w->packed = true;
}
