/* SPDX-License-Identifier: Apache-2.0 */
/*
 * latent.h - declarations shared by the parts of latent attention
 */
#ifndef KERNELS_CPU_LATENT_H
#define KERNELS_CPU_LATENT_H

#include "kernels/cpu/attn_bf16.h"

/* Most queries of a tile. */
#define TILE_L		16u

static_assert(TILE_L % STEP_Q == 0, "tiles are whole steps");

struct latent {
	const struct kern_attn	*a;
	const u32		*table;
	u32			nr;
	u32			hd;
	u32			rank;
	bool			bf16;		/* KV is */
	u32			first_row;	/* of the batch, query 0's */
	u32			first_head;	/* query 0's */
	u32			pos[TILE_L];
	u32			see[TILE_L];	/* keys of the chunk, from its start */
	const u8		*unit[CHUNK_GROUPS];	/* of the current chunk */
	float			max[TILE_L];
	float			sum[TILE_L];
	union {
		float		q[TILE_L * KERN_MAX_LATENT_DIM];
		u16		q_bf16[TILE_L * KERN_MAX_LATENT_DIM];
	};
	float			acc[TILE_L * KERN_MAX_RANK];
	float			s[TILE_L * KERN_CHUNK];
	union {
		float		wide[KERN_CHUNK * KERN_MAX_LATENT_DIM];
		u16		p_bf16[TILE_L * KERN_CHUNK];
	};
};

/* Fast mode over bf16 KV: queries and weights are kept as bf16. */
static __inline_always bool latent_rounds(const struct latent *l)
{
#ifdef KERN_FAST
	return l->bf16;
#else
	return false;
#endif
}

#ifdef KERN_FAST

/* s = q . k of all queries with the first @keys keys, whole units, of the chunk. */
void KERN_FN(latent_scores)(struct latent *l, u32 keys);

/* acc += p * k over the keys that each query sees, its first rank numbers. */
void KERN_FN(latent_mix)(struct latent *l);

#endif

#endif /* KERNELS_CPU_LATENT_H */
