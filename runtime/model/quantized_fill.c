// SPDX-License-Identifier: Apache-2.0
/*
 * quantized_fill.c - write blocks of the tensors of quantized folders
 *
 * Each element is read as a code without sign: codes of int8 are moved up by 128.  Its
 * number is (code - zero) * scale, or the e4m3 of that code times the scale.
 *
 *	AWQ	a word has the codes of 8 rows of one column.  The nibbles from the
 *		lowest on are those of rows 0, 2, 4, 6, 1, 3, 5, 7
 *	GPTQ	a word has the codes of 8 or 4 columns of one row, from the lowest bits
 *		on.  Words of zero points are those of rows
 *	packed	the same words, but those of a row follow one another.  Words of zero
 *		points are those of 8 or 4 rows
 *
 * Scales of AWQ and GPTQ are [groups][rows], others are [rows][groups].
 */
#include "runtime/model/quantized_internal.h"

static u32 word_at(const struct st_tensor *t, u64 i)
{
	u32 w;

	memcpy(&w, (const u8 *)t->data + i * 4, sizeof(w));
	return w;
}

/* Bits from which the nibble of row @i of 8 begins. */
static const u8 awq_shift[8] = { 0, 16, 4, 20, 8, 24, 12, 28 };

static void codes_awq(const struct quant_make *m, u64 row, u32 nr, u8 *to)
{
	const u64 words = m->rows / 8;
	u64 k;
	u32 i, j, w;

	for (k = 0; k < m->cols; k++) {
		for (i = 0; i < nr; i += 8) {
			w = word_at(m->codes, k * words + (row + i) / 8);
			for (j = 0; j < 8; j++)
				to[(i + j) * m->cols + k] =
					w >> awq_shift[j] & 15;
		}
	}
}

static void codes_of_word(u32 w, u32 bits, u64 nr, u8 *to)
{
	const u32 mask = (1u << bits) - 1;
	u64 j;

	for (j = 0; j < nr; j++, w >>= bits)
		to[j] = w & mask;
}

static void codes_gptq(const struct quant_make *m, u64 row, u32 nr, u8 *to)
{
	const u32 bits = m->s->bits, per = 32 / bits;
	u64 k;
	u32 i;

	for (k = 0; k < m->cols; k += per)
		for (i = 0; i < nr; i++)
			codes_of_word(word_at(m->codes, k / per * m->rows + row + i),
				      bits, per, to + i * m->cols + k);
}

static void codes_packed(const struct quant_make *m, u64 row, u32 nr, u8 *to)
{
	const u32 bits = m->s->bits, per = 32 / bits;
	const u64 words = DIV_ROUND_UP(m->cols, (u64)per);
	u64 k;
	u32 i;

	for (i = 0; i < nr; i++, to += m->cols)
		for (k = 0; k < m->cols; k += per)
			codes_of_word(word_at(m->codes, (row + i) * words + k / per),
				      bits, min((u64)per, m->cols - k), to + k);
}

static void codes_plain(const struct quant_make *m, u64 row, u32 nr, u8 *to)
{
	const u8 *from = (const u8 *)m->codes->data + row * m->cols;
	const u8 flip = m->s->is_float ? 0 : 0x80;
	u64 i;

	for (i = 0; i < nr * m->cols; i++)
		to[i] = from[i] ^ flip;
}

static void codes_read(const struct quant_make *m, u64 row, u32 nr, u8 *to)
{
	switch (m->s->how) {
	case QUANT_AWQ:
		return codes_awq(m, row, nr, to);
	case QUANT_GPTQ:
		return codes_gptq(m, row, nr, to);
	case QUANT_PACKED:
		return codes_packed(m, row, nr, to);
	default:
		return codes_plain(m, row, nr, to);
	}
}

static bool by_group(const struct quant_make *m)
{
	return m->s->how == QUANT_AWQ || m->s->how == QUANT_GPTQ;
}

static float scale_of(const struct quant_make *m, u64 row, u64 group)
{
	return st_number(m->scales, by_group(m) ? group * m->rows + row :
			 row / m->row_share * m->groups + group);
}

u32 quant_zero(const struct quant_make *m, u64 row, u64 group)
{
	const u32 bits = m->s->bits, per = 32 / bits;
	const u64 words = DIV_ROUND_UP(m->rows, (u64)per);
	u32 shift = row % per * bits, w;

	if (!m->zeros)
		return m->zero;
	if (m->s->how == QUANT_PLAIN)
		return ((const u8 *)m->zeros->data)[row / m->row_share *
						    m->groups + group] ^ 0x80;
	if (m->s->how == QUANT_AWQ)
		shift = awq_shift[row % 8];
	w = word_at(m->zeros, by_group(m) ? group * words + row / per :
					    row / per * m->groups + group);
	return (w >> shift & ((1u << bits) - 1)) + m->s->zero_less_one;
}

/* Group of column @c. */
static u64 group_of(const struct quant_make *m, u64 c)
{
	if (m->g_idx)
		return word_at(m->g_idx, c);
	return m->s->group ? c / m->s->group : 0;
}

static void block_put(const struct quant_make *m, const u8 *codes, u64 first,
		      u32 n, u32 zero, u8 *b)
{
	const u32 *order = m->t->order;
	u8 *to = b + (m->s->bits == 4 ? 5 : 4);
	u32 i, code;

	for (i = 0; i < n; i++) {
		code = codes[order ? order[first + i] : first + i];
		if (m->s->is_float)
			to[i] = code;
		else if (m->s->bits == 8)
			to[i] = code - zero;
		else if (i % 2)
			to[i / 2] |= code << 4;
		else
			to[i / 2] = code;
	}
}

/* The blocks of a row. */
static void row_blocks(const struct quant_make *m, const u8 *codes, u64 row,
		       u8 *b)
{
	const u32 n = kern_block_elems(m->t->blocks);
	const u32 bytes = kern_block_bytes(m->t->blocks);
	u64 k, group;
	float scale;
	u32 zero;

	for (k = 0; k < m->cols; k += n, b += bytes) {
		group = group_of(m, m->t->order ? m->t->order[k] : k);
		scale = scale_of(m, row, group);
		zero = quant_zero(m, row, group);
		memcpy(b, &scale, sizeof(scale));
		if (m->s->bits == 4)
			b[4] = zero;
		block_put(m, codes, k, n, zero, b);
	}
}

static float float_number(u8 code, float scale)
{
	u8 block[KERN_BLOCK_MAX_BYTES] = { 0 };
	float to[KERN_BLOCK_MAX_ELEMS];

	memcpy(block, &scale, sizeof(scale));
	block[4] = code;
	kern_dequant(KERN_F8_32, block, 32, to);
	return to[0];
}

/* The numbers of a row, for matrices that no type of blocks holds. */
static void row_numbers(const struct quant_make *m, const u8 *codes, u64 row,
			float *to)
{
	u64 c, group;
	float scale;

	for (c = 0; c < m->cols; c++) {
		group = group_of(m, c);
		scale = scale_of(m, row, group);
		to[c] = m->s->is_float ? float_number(codes[c], scale) :
			(float)((s32)codes[c] - (s32)quant_zero(m, row, group)) *
			scale;
	}
}

bool quant_fill_codes(const struct quant_make *m, u64 row, u32 nr, void *room)
{
	const u64 size = m->t->nr_bytes / m->rows;
	u8 *codes = room, *to = (u8 *)m->t->data + row * size;
	u32 i;

	codes_read(m, row, nr, codes);
	for (i = 0; i < nr; i++, codes += m->cols, to += size) {
		if (m->t->dtype == ST_F32)
			row_numbers(m, codes, row + i, (float *)to);
		else
			row_blocks(m, codes, row + i, to);
	}
	return true;
}

/* ---- MXFP4 ---- */

/*
 * A byte of the folder has elements 2i and 2i + 1 of a group; a byte of the block has
 * elements i and i + 16.
 */
static void mxfp4_block(const u8 *from, u8 scale, u8 *b)
{
	u32 i, low, high;

	b[0] = scale;
	for (i = 0; i < 16; i++) {
		low = from[i / 2] >> (i % 2 * 4) & 15;
		high = from[8 + i / 2] >> (i % 2 * 4) & 15;
		b[1 + i] = low | high << 4;
	}
}

u64 quant_source_row(const struct quant_make *m, u64 row)
{
	const u64 both = 2 * m->half, i = both ? row % both : 0;

	if (!both)
		return row;
	return row - i + (i < m->half ? 2 * i : 2 * (i - m->half) + 1);
}

bool quant_fill_mxfp4(const struct quant_make *m, u64 row, u32 nr, void *room)
{
	const u8 *codes = m->codes->data, *scales = m->scales->data;
	u8 *to = (u8 *)m->t->data + row * m->groups * 17;
	u64 from, g;
	u32 i;

	for (i = 0; i < nr; i++) {
		from = quant_source_row(m, row + i) * m->groups;
		for (g = 0; g < m->groups; g++, to += 17)
			mxfp4_block(codes + (from + g) * 16, scales[from + g], to);
	}
	return true;
}
