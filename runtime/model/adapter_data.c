// SPDX-License-Identifier: Apache-2.0
/*
 * adapter_data.c - the numbers of adapters
 *
 * Numbers are read from the file again each time they are written into blocks, so an
 * adapter that does not run takes no memory.  The file is read with pread(), in pieces that
 * stay in the cache: another program that cuts the file gives an error and no SIGBUS.  A
 * hash of the converted numbers tells if the file has others than those that were checked.
 */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <unistd.h>

#include "runtime/model/adapter_internal.h"

#define PIECE		4096u	/* numbers */

/* The piece of a matrix that is worked on. */
struct piece {
	union {
		u8	raw[PIECE * 4];
		float	f32[PIECE];
		u16	half[PIECE];
	};
	union {
		float	numbers[PIECE];
		u32	words[PIECE];
	};
	u16	bf16[PIECE];
};

static int read_exact(int fd, u8 *to, size_t len, u64 at)
{
	ssize_t n;

	for (; len; len -= n, to += n, at += n) {
		n = pread(fd, to, len, (off_t)at);
		if (n < 0 && errno == EINTR)
			n = 0;
		else if (n <= 0)
			return n ? -errno : -EIO;
	}
	return 0;
}

/* The @n numbers of @p->raw as f32. */
static void piece_widen(struct piece *p, enum st_dtype dtype, u32 n)
{
	u32 i;

	if (dtype == ST_F32)
		memcpy(p->numbers, p->f32, n * sizeof(float));
	else if (dtype == ST_BF16)
		for (i = 0; i < n; i++)
			p->words[i] = (u32)p->half[i] << 16;
	else
		for (i = 0; i < n; i++)
			p->numbers[i] = kern_f16(p->half[i]);
}

/* Round to bf16, to the nearest, of two the even one; only for finite numbers. */
static void piece_round(struct piece *p, u32 n)
{
	u32 i, w;

	for (i = 0; i < n; i++) {
		w = p->words[i];
		p->bf16[i] = (u16)((w + 0x7fff + (w >> 16 & 1)) >> 16);
	}
}

/* The first of @n numbers that is not finite, also after rounding; @n: none. */
static u32 piece_check(const struct piece *p, bool rounded, u32 n)
{
	const u32 most = rounded ? 0x7f7f7fffu : 0x7f7fffffu;
	u32 i, bad = 0;

	for (i = 0; i < n; i++)
		bad |= (p->words[i] & 0x7fffffffu) > most;
	if (!bad)
		return n;
	for (i = 0; (p->words[i] & 0x7fffffffu) <= most; i++)
		;
	return i;
}

#define TURN(type, from)						\
do {									\
	const type *_in = (from);					\
	type *_out = to;						\
									\
	for (c = 0; c < m->cols; c++)					\
		for (r = 0; r < rows; r++)				\
			_out[c * m->rows + row + r] = _in[r * m->cols + c]; \
} while (0)

/* Write @rows whole rows, from @row on, as columns. */
static void piece_turn(const struct piece *p, const struct adapter_matrix *m, bool bf16,
		       u64 row, u32 rows, void *to)
{
	u64 r, c;

	if (bf16)
		TURN(u16, p->bf16);
	else
		TURN(u32, p->words);
}

/* Numbers that a piece has: whole rows if they are turned. */
static u64 piece_size(const struct adapter_matrix *m)
{
	return m->turn ? max(PIECE / m->cols, (u64)1) * m->cols : PIECE;
}

int adapter_matrix_read(const struct adapter *a, const struct adapter_matrix *m, void *to,
			struct kvmm_identity *id, u64 *sum, u64 *bad)
{
	const u64 total = m->rows * m->cols, step = piece_size(m);
	const u32 size = m->dtype == ST_F32 ? 4 : 2;
	const bool bf16 = a->type == KERN_BF16;
	const u32 width = bf16 ? 2 : 4;
	const void *done;
	struct piece p;
	u64 at;
	u32 n, i;
	int ret;

	*sum = 0;
	*bad = ADAPTER_ALL_FINITE;
	for (at = 0; at < total; at += n) {
		n = (u32)min(step, total - at);
		ret = read_exact(a->fd, p.raw, (size_t)n * size, m->at + at * size);
		if (ret)
			return ret;
		piece_widen(&p, m->dtype, n);
		i = piece_check(&p, bf16, n);
		if (i < n && *bad == ADAPTER_ALL_FINITE)
			*bad = at + i;
		if (bf16)
			piece_round(&p, n);
		done = bf16 ? (const void *)p.bf16 : p.numbers;
		*sum = XXH3_64bits_withSeed(done, (size_t)n * width, *sum);
		if (id)
			kvmm_identity_add(id, "numbers", done, (size_t)n * width);
		if (to && m->turn)
			piece_turn(&p, m, bf16, at / m->cols, (u32)(n / m->cols), to);
		else if (to)
			memcpy((u8 *)to + at * width, done, (size_t)n * width);
	}
	return 0;
}
