/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attn.h - declarations shared by the parts of the paged attention
 *
 * v_attn.c defines the result and the order of its sums; v_attn_qk.c computes
 * the scores of a chunk, v_attn_pv.c adds its weighted V.  attn_narrow.h widens
 * KV that is neither f32 nor bf16 when it is loaded or, if many queries use it,
 * beforehand (v_attn_wide.c).  A tile belongs to the thread that runs it.
 *
 * Rows are dense, those of the tile, too, and a head may end in the middle of a register
 * of 16 floats.  Then the other half of the register is zeros in products, not the next
 * row.  A tile's rows are filled in order, by whole registers: the next row replaces what
 * was stored too much, and buffers have room for a row of KERN_MAX_HEAD_DIM.
 *
 * Decode is bound by memory bandwidth.  A block's K of all heads is one piece of
 * memory, and its V another.  So a tile takes as many KV heads as its queries
 * and the threads allow, and reads each piece from end to end, in units of
 * UNIT_KEYS keys of a head.  Blocks may lie at any address, and the hardware
 * cannot predict the next one.  So while a unit is used, the lines of the unit
 * some kilobytes ahead are prefetched in rising order, a few at a time.
 * (Prefetching all lines of a unit at once fills the miss buffers, which is
 * slower than no prefetch.)
 */
#ifndef KERNELS_CPU_ATTN_H
#define KERNELS_CPU_ATTN_H

#include "kernels/cpu/attn_narrow.h"

/* Queries of a tile, and of the steps inside it. */
#define TILE_Q		32
#define STEP_Q		4

/* Types of KV; the code is compiled for each. */
#define KV_TYPES(x)							\
	x(f32, KERN_F32) x(bf16, KERN_BF16) x(f16, KERN_F16)		\
	x(e4m3, KERN_E4M3) x(i8, KERN_I8)

/* Keys of a unit; a unit is never larger than a block. */
#define UNIT_KEYS	16
#define CHUNK_GROUPS	(KERN_CHUNK / UNIT_KEYS)
#define MAX_UNITS	(CHUNK_GROUPS * TILE_Q)

/* Distance of a prefetch from the unit in use, in bytes. */
#define AHEAD_BYTES	8192
#define LINE		64

/* Heads may end with half a register of 16 floats. */
#define HALF_ENDS	(VW > KERN_HEAD_ALIGN)

static_assert(HALF_ENDS ? VW == 2 * KERN_HEAD_ALIGN : !(KERN_HEAD_ALIGN % VW),
	      "head dims are whole registers, or have a half after them");
static_assert(KERN_MAX_HEAD_DIM % VW == 0, "the last row has room behind its half");
static_assert(KERN_CHUNK % VW == 0, "chunks are whole registers");

/* The keys of a chunk that a query sees: [lo, hi), from the chunk's start. */
struct keys {
	u32	lo;
	u32	hi;
};

/* K of the units of a chunk, in the order of memory: run, head, position. */
struct chunk {
	const u8	*k[MAX_UNITS];	/* NULL: no query sees the unit */
	const float	*by[MAX_UNITS];	/* scales of K, of types with scales */
};

struct tile {
	const struct kern_attn	*a;
	const u32		*table;
	u32			kv_head;	/* the first */
	u32			heads;		/* KV heads */
	u32			nr;		/* queries of each KV head */
	u32			hd;
	u32			group;		/* query heads of a KV head */
	u32			first_row;	/* of the batch, query 0's */
	u32			first_head;	/* in the group, query 0's */
	bool			bf16;		/* K and V are */
	enum kern_dtype		type;		/* as loaded */
	float			*wide;		/* K and V as f32, or NULL */
	bool			same;		/* all queries see the same keys */
	u32			row;		/* bytes of a row of K or V */
	u32			run_shift;	/* log2 of the tokens of a run */
	u32			ahead;		/* units */
	u64			to_v;		/* bytes from K to V in a block */
	u64			to_by;		/* from scales of K to those of V */
	struct chunk		chunks[2];
	struct chunk		*now;
	struct chunk		*next;
	u32			pos[TILE_Q];	/* of the queries of a KV head */
	struct keys		see[TILE_Q];	/* of the current chunk */
	/* By KV head, then query. */
	float			max[TILE_Q];
	float			sum[TILE_Q];
	union {
		float		q[TILE_Q * KERN_MAX_HEAD_DIM];
		u16		q_bf16[TILE_Q * KERN_MAX_HEAD_DIM];
	};
	float			acc[TILE_Q * KERN_MAX_HEAD_DIM];
	union {
		float		s[TILE_Q * KERN_CHUNK];
		u16		p_bf16[TILE_Q * KERN_CHUNK * 2]; /* row stride as s */
	};
};

/* Floats of a widened chunk of one KV head: for each unit its K, then its V. */
#define WIDE_FLOATS	(2 * KERN_CHUNK * KERN_MAX_HEAD_DIM)
/* With more queries of a KV head than this, a chunk is widened beforehand. */
#define WIDE_Q		8

/* Fast mode over bf16 KV: queries and weights are kept as bf16. */
static __inline_always bool tile_rounds(const struct tile *t)
{
#ifdef KERN_FAST
	return t->bf16;
#else
	return false;
#endif
}

/* Units of a chunk. */
static __inline_always u32 tile_units(const struct tile *t)
{
	return CHUNK_GROUPS * t->heads;
}

/*
 * The unit @u's KV head in the tile; its first key in @at.  A run is the part of a
 * chunk that is in one block wherever the chunk begins: its rows of a head follow one
 * another.
 */
static __inline_always u32 unit_place(const struct tile *t, u32 u, u32 *at)
{
	const u32 shift = t->run_shift - 4;	/* units of a run and head */
	const u32 run = (u >> shift) / t->heads;

	*at = (run << t->run_shift) + (u & ((1u << shift) - 1)) * UNIT_KEYS;
	return (u >> shift) - run * t->heads;
}

/*
 * The unit to prefetch while the unit @u of K or V is used, in the order of
 * reading: K of a chunk, its V, then K of the next chunk.  @u itself if no query
 * sees that unit.
 */
static __inline_always const u8 *unit_ahead(const struct tile *t, u32 u,
					    bool is_v)
{
	const u8 *k = NULL;
	u32 far = u + t->ahead;
	u64 to_v = is_v ? t->to_v : 0;

	if (far < tile_units(t)) {
		k = t->now->k[far];
	} else {
		k = (is_v ? t->next : t->now)->k[far - tile_units(t)];
		to_v = t->to_v - to_v;
	}
	return k ? k + to_v : t->now->k[u] + (is_v ? t->to_v : 0);
}

#if VW == 16
/* Lane 2i + 1 of 16 bits takes element @o + i. */
#define KV_WIDEN_1(o)		((u32)(o) << 16)
#define KV_WIDEN_4(o)		KV_WIDEN_1(o), KV_WIDEN_1((o) + 1),	\
				KV_WIDEN_1((o) + 2), KV_WIDEN_1((o) + 3)
#define KV_WIDEN(o)		((__m512i)(vu){				\
	KV_WIDEN_4(o), KV_WIDEN_4((o) + 4), KV_WIDEN_4((o) + 8),	\
	KV_WIDEN_4((o) + 12) })
#endif

/*
 * Is there a whole register of elements from @i on?  @half: rows may end in half a register.
 * Loops over rows that do not are compiled apart: another exit costs them up to 5 %.
 */
static __inline_always bool row_whole(u64 i, u64 hd, const bool half)
{
	return half ? i + VW <= hd : i < hd;
}

/* Do the rows of the tile end in half a register? */
static __inline_always bool tile_half(const struct tile *t)
{
	return HALF_ENDS && t->hd % VW;
}

/* VW elements of a row of K or V, times its scale, @by, if it has one. */
static __inline_always vf kv_load(const u8 *p, const float *by,
				  const enum kern_dtype type)
{
	if (type > KERN_BF16)
		return narrow_load(p, by, type);
	return vf_load_as(p, 0, type == KERN_BF16 ? KERN_BF16 : KERN_F32);
}

/* The last 8 of a row that ends in half a register, likewise, and zeros. */
static __inline_always vf kv_load_half(const u8 *p, const float *by,
				       const enum kern_dtype type)
{
#if VW == 16
	if (type > KERN_BF16)
		return narrow_load_half(p, by, type);
	if (type == KERN_F32)
		return (vf)_mm512_zextps256_ps512(
			_mm256_loadu_ps((const float *)(const void *)p));
	return (vf)_mm512_slli_epi32(_mm512_zextsi256_si512(
		_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p))), 16);
#else
	return (vf){ };
#endif
}

/* 2 * VW whole elements, likewise. */
static __inline_always void kv_load_two(const u8 *p, const float *by, vf *to,
					const enum kern_dtype type)
{
#if VW == 16
	__m512i h;

	if (type == KERN_BF16) {
		h = _mm512_loadu_si512(p);
		to[0] = (vf)_mm512_maskz_permutexvar_epi16(0xaaaaaaaa,
				KV_WIDEN(0), h);
		to[1] = (vf)_mm512_maskz_permutexvar_epi16(0xaaaaaaaa,
				KV_WIDEN(16), h);
		return;
	}
#endif
	to[0] = kv_load(p, by, type);
	to[1] = kv_load(p + VW * kern_dtype_size(type), by, type);
}

/* Prefetch @n bytes (a constant) from @p on. */
static __inline_always void line_prefetch(const u8 *p, const u32 n)
{
	u32 i;

#pragma GCC unroll 16
	for (i = 0; i < n; i += LINE)
		__builtin_prefetch(p + i);
}

/**
 * attn_widen() - widen the units of the current chunk to f32, in @t->wide
 * @t: the tile, of one KV head
 *
 * The chunk's units point there afterwards; @t->to_v and @t->row already have
 * the strides of @t->wide.
 */
void KERN_FN(attn_widen)(struct tile *t);

/**
 * attn_scores() - s = q . k of all queries, for the current chunk
 * @t: the tile
 *
 * Whole units are computed, also from positions that were never written.  The
 * softmax replaces the scores of positions that a query does not see.
 */
void KERN_FN(attn_scores)(struct tile *t);

/**
 * attn_mix() - acc += p * v over the keys of the current chunk that a query sees
 * @t: the tile; p is stored in place of s
 */
void KERN_FN(attn_mix)(struct tile *t);

#endif /* KERNELS_CPU_ATTN_H */
