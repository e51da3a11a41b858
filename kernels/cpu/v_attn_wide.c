// SPDX-License-Identifier: Apache-2.0
/*
 * v_attn_wide.c - widen KV in f16, e4m3 and int8 to f32, a chunk at a time
 *
 * If many queries use a chunk, it is widened once for all of them, to the same
 * numbers as by the loads of attn_narrow.h.
 */
#include "kernels/cpu/attn.h"

/*
 * Widen the rows of a unit's K or V; @scale points to the first row's scale.  The next row
 * replaces the zeros behind one that ends in half a register.
 */
static __inline_always void rows_widen(const u8 *row, const float *scale,
				       u32 hd, float *to,
				       const enum kern_dtype type)
{
	const u32 elem = kern_dtype_size(type);
	u32 key, i;

	for (key = 0; key < UNIT_KEYS; key++, row += hd * elem) {
		for (i = 0; row_whole(i, hd, HALF_ENDS); i += VW, to += VW)
			vf_store(to, narrow_load(row + i * elem, scale + key,
						 type));
		if (HALF_ENDS && i < hd) {
			vf_store(to, kv_load_half(row + i * elem, scale + key,
						  type));
			to += VW / 2;
		}
	}
}

static __inline_always void units_widen(struct tile *t,
					const enum kern_dtype type)
{
	const struct kern_kv *kv = t->a->kv;
	const u64 half = (u64)UNIT_KEYS * t->hd;
	const u64 to_v = (u64)kv->kv_heads * kv->block_tokens * t->hd *
			 kern_dtype_size(type);
	float *to = t->wide;
	const u8 *k;
	u32 u;

	for (u = 0; u < CHUNK_GROUPS; u++, to += 2 * half) {
		k = t->now->k[u];
		if (!k)
			continue;
		rows_widen(k, t->now->by[u], t->hd, to, type);
		rows_widen(k + to_v, t->now->by[u] + t->to_by, t->hd,
			   to + half, type);
		t->now->k[u] = (const u8 *)to;
	}
}

void KERN_FN(attn_widen)(struct tile *t)
{
	switch (t->a->kv->dtype) {
	case KERN_F16:
		units_widen(t, KERN_F16);
		break;
	case KERN_E4M3:
		units_widen(t, KERN_E4M3);
		break;
	default:
		units_widen(t, KERN_I8);
	}
}
