// SPDX-License-Identifier: Apache-2.0
/*
 * crc32c.c - CRC-32C at the speed of memory
 *
 * The processor's instruction sums eight bytes in three cycles, but a new one, or
 * two, can begin in every cycle.  So six neighbouring pieces are summed at once
 * (three are half as fast on the machines with two) and joined: the sum of A
 * followed by B is the sum of A followed by |B| zero bytes, xor the sum of B with
 * a start of 0.  Appending a fixed number of zero bytes is linear over the bits
 * of the sum, hence four lookups in a table that is made at start.  Pieces have
 * two lengths: long ones for payloads, short ones for headers and rests.
 *
 * Bytes that a disk has just transferred lie in memory, not in a cache.  So lines
 * are prefetched; measured on memory, that and pieces short enough to stay within
 * few pages double the rate.
 *
 * Without the instruction, eight tables sum eight bytes at a time.
 *
 * Inside this file sums are not inverted; crc32c() does that at both ends.
 */
#include "swapd/crc32c.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#define HAVE_SSE42	1
#else
#define HAVE_SSE42	0
#endif

#define POLY		0x82f63b78u	/* bits reversed */
#define LANES		6
#define LONG_PIECE	512
#define SHORT_PIECE	64
#define AHEAD		8192

struct crc_shift {
	u32	t[4][256];
};

static u32 table[8][256];
static struct crc_shift shift_long, shift_short;
static u32 (*crc_run)(u32 crc, const u8 *p, size_t len);
static bool crc_is_hw;

static u64 load64(const u8 *p)
{
	u64 v;

	memcpy(&v, p, sizeof(v));
	return v;
}

/* ---- tables ---- */

static u32 crc_byte(u32 crc, u8 b)
{
	return table[0][(crc ^ b) & 0xff] ^ (crc >> 8);
}

static u32 run_table(u32 crc, const u8 *p, size_t len)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	u32 i;

	for (; len >= 8; p += 8, len -= 8) {
		u64 v = load64(p) ^ crc;

		crc = 0;
		for (i = 0; i < 8; i++)
			crc ^= table[7 - i][v >> (8 * i) & 0xff];
	}
#endif
	for (; len; p++, len--)
		crc = crc_byte(crc, *p);
	return crc;
}

static void table_init(void)
{
	u32 i, k, c;

	for (i = 0; i < 256; i++) {
		c = i;
		for (k = 0; k < 8; k++)
			c = c & 1 ? POLY ^ (c >> 1) : c >> 1;
		table[0][i] = c;
	}
	for (i = 0; i < 256; i++)
		for (k = 1; k < 8; k++)
			table[k][i] = crc_byte(table[k - 1][i], 0);
}

#if HAVE_SSE42

static u32 append_zeros(u32 crc, size_t zeros)
{
	while (zeros--)
		crc = crc_byte(crc, 0);
	return crc;
}

static void shift_init(struct crc_shift *s, size_t zeros)
{
	u32 bit[32], i, k, b;

	for (i = 0; i < 32; i++)
		bit[i] = append_zeros(1u << i, zeros);
	for (k = 0; k < 4; k++) {
		for (i = 0; i < 256; i++) {
			s->t[k][i] = 0;
			for (b = 0; b < 8; b++)
				if (i >> b & 1)
					s->t[k][i] ^= bit[8 * k + b];
		}
	}
}

static u32 shift_apply(const struct crc_shift *s, u32 crc)
{
	return s->t[0][crc & 0xff] ^ s->t[1][crc >> 8 & 0xff] ^
	       s->t[2][crc >> 16 & 0xff] ^ s->t[3][crc >> 24];
}

/* LANES pieces of @piece bytes. */
__attribute__((target("sse4.2")))
static u32 run_lanes(u32 crc, const u8 *p, size_t piece,
		     const struct crc_shift *s)
{
	u64 a = crc, b = 0, c = 0, d = 0, e = 0, f = 0;
	const u8 *end = p + piece;
	u32 i;

	for (; p < end; p += 8) {
		if (!((end - p) % 64)) {
#pragma GCC unroll 6
			for (i = 0; i < LANES; i++)
				__builtin_prefetch(p + i * piece + AHEAD);
		}
		a = _mm_crc32_u64(a, load64(p));
		b = _mm_crc32_u64(b, load64(p + piece));
		c = _mm_crc32_u64(c, load64(p + 2 * piece));
		d = _mm_crc32_u64(d, load64(p + 3 * piece));
		e = _mm_crc32_u64(e, load64(p + 4 * piece));
		f = _mm_crc32_u64(f, load64(p + 5 * piece));
	}
	crc = shift_apply(s, (u32)a) ^ (u32)b;
	crc = shift_apply(s, crc) ^ (u32)c;
	crc = shift_apply(s, crc) ^ (u32)d;
	crc = shift_apply(s, crc) ^ (u32)e;
	return shift_apply(s, crc) ^ (u32)f;
}

__attribute__((target("sse4.2")))
static u32 run_sse42(u32 crc, const u8 *p, size_t len)
{
	const size_t big = LANES * LONG_PIECE, small = LANES * SHORT_PIECE;
	u64 c;

	for (; len >= big; p += big, len -= big)
		crc = run_lanes(crc, p, LONG_PIECE, &shift_long);
	for (; len >= small; p += small, len -= small)
		crc = run_lanes(crc, p, SHORT_PIECE, &shift_short);
	for (c = crc; len >= 8; p += 8, len -= 8)
		c = _mm_crc32_u64(c, load64(p));
	for (crc = (u32)c; len; p++, len--)
		crc = _mm_crc32_u8(crc, *p);
	return crc;
}

static bool hw_init(void)
{
	__builtin_cpu_init();
	if (!__builtin_cpu_supports("sse4.2"))
		return false;
	shift_init(&shift_long, LONG_PIECE);
	shift_init(&shift_short, SHORT_PIECE);
	crc_run = run_sse42;
	return true;
}

#else

static bool hw_init(void)
{
	return false;
}

#endif

void crc32c_init(bool plain)
{
	table_init();
	crc_run = run_table;
	crc_is_hw = !plain && hw_init();
}

u32 crc32c(u32 crc, const void *buf, size_t len)
{
	return ~crc_run(~crc, buf, len);
}

const char *crc32c_name(void)
{
	return crc_is_hw ? "sse4.2" : "table";
}
