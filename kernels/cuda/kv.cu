// SPDX-License-Identifier: Apache-2.0
/*
 * kv.cu - append to paged KV, and copy blocks of it
 *
 * A warp writes K or V of one head of one row: lane l has the quads l and l + 32,
 * which is enough for the largest head.  With 8-bit types the head's largest
 * magnitude gives its scale.  Scales are stored after the layer's elements; struct
 * kern_kv defines their place, and the rounding to the bit.
 *
 * A row that belongs to no sequence writes nothing.  Every run reads the sequence
 * and the position of its rows from the batch.
 *
 * With a rank only K is stored, a vector of up to 576 numbers for each row: a warp
 * writes it by k_latent_write, quad by quad.
 *
 * k_rope_write is k_rope on q, k_rope on k, and k_kv_write in one kernel.  It calls
 * the same functions, so the bits are the same.
 */
#include "kernels/cuda/fmath.cuh"

#define KV_HEAD_MAX	256u
#define KV_LANE_QUADS	2u
#define KV_WRITE_WARPS	8u

/* A lane's elements of a head. */
struct lane_head {
	four f[KV_LANE_QUADS];
};

DEVICE u32 kv_size(const struct dev_kv &kv)
{
	return kv.dtype == KERN_F32 ? 4 :
	       kv.dtype == KERN_BF16 || kv.dtype == KERN_F16 ? 2 : 1;
}

DEVICE u8 *layer_at(const struct dev_kv &kv, u32 entry, u32 layer)
{
	return kv.base + kv.unit * entry + layer * kv.layer_stride;
}

/* Vectors of a token: K and V of each head, or only K. */
DEVICE u32 vectors_of(const struct dev_kv &kv)
{
	return kv.rank ? kv.kv_heads : 2 * kv.kv_heads;
}

/* Bytes from a layer's start to its scales. */
DEVICE u64 scales_at(const struct dev_kv &kv)
{
	return (u64)vectors_of(kv) * kv.block_tokens * kv.head_dim *
	       kv_size(kv);
}

DEVICE bool has_scales(const struct dev_kv &kv)
{
	return kv.dtype == KERN_E4M3 || kv.dtype == KERN_I8;
}

/* To nearest, ties to even; the largest number for all larger ones. */
DEVICE u32 f32_to_e4m3(float f)
{
	const float a = fabsf(f);
	const u32 sign = float_bits(f) >> 24 & 0x80;
	u32 b = float_bits(a);

	if (!(a == a))
		return sign | 0x7f;
	if (a < 0x1p-6f)	/* multiples of 2^-9 */
		return sign | (u32)sub_rn(add_rn(mul_rn(a, 512.0f), 0x1p23f),
					  0x1p23f);
	b = ((b + 0x7ffff + (b >> 20 & 1)) >> 20) - (120u << 3);
	return sign | (b > 0x7e ? 0x7e : b);
}

DEVICE u32 f32_to_i8(float f)
{
	const float magic = 0x1.8p23f;
	float r = sub_rn(add_rn(f, magic), magic);

	r = r > 127.0f ? 127.0f : r < -127.0f ? -127.0f : r;
	return (u32)(s32)r & 0xff;
}

DEVICE lane_head head_load(const float *head, u32 hd, bool vec)
{
	lane_head h;
	u32 i;

#pragma unroll
	for (i = 0; i < KV_LANE_QUADS; i++)
		h.f[i] = row_load(head, thread_lane() + i * WARP, hd, vec);
	return h;
}

/* The largest magnitude; infinity if a number is not finite. */
DEVICE float four_top(const four &f, float top)
{
	const float largest = bits_float(0x7f7fffff);
	u32 j;

#pragma unroll
	for (j = 0; j < 4; j++) {
		const float v = fabsf(f.v[j]);

		top = fmaxf(top, v <= largest ? v : INFINITY);
	}
	return top;
}

/* The scale for the largest magnitude of the lanes; NaN if a number is not finite. */
DEVICE float top_scale(const struct dev_kv &kv, float top)
{
	top = warp_max(top);
	return top <= bits_float(0x7f7fffff) ?
	       top / (kv.dtype == KERN_I8 ? 127.0f : 448.0f) :
	       bits_float(0x7fc00000);
}

/* The scale of a head, the same in all lanes. */
DEVICE float head_scale(const struct dev_kv &kv, const lane_head &h)
{
	float top = 0.0f;
	u32 i;

#pragma unroll
	for (i = 0; i < KV_LANE_QUADS; i++)
		top = four_top(h.f[i], top);
	return top_scale(kv, top);
}

/* Four elements of 8 bits. */
DEVICE u32 four_small(const struct dev_kv &kv, const four &f, float scale)
{
	u32 w = 0, j;

#pragma unroll
	for (j = 0; j < 4; j++) {
		const float e = scale > 0.0f ? f.v[j] / scale : 0.0f;

		w |= (kv.dtype == KERN_I8 ? f32_to_i8(e) : f32_to_e4m3(e)) <<
		     8 * j;
	}
	return w;
}

/* Store four elements as quad @q of the head at @to. */
DEVICE void four_store(const struct dev_kv &kv, u8 *to, u32 q, const four &f,
		       float scale, bool vec)
{
	u32 w[2], j;

	if (kv.dtype == KERN_F32) {
		row_store((float *)to, q, kv.head_dim, vec, f);
		return;
	}
	if (has_scales(kv)) {
		w[0] = four_small(kv, f, scale);
		if (vec)
			((u32 *)to)[q] = w[0];
		for (j = 0; !vec && j < 4; j++)
			to[4 * q + j] = (u8)(w[0] >> 8 * j);
		return;
	}
#pragma unroll
	for (j = 0; j < 2; j++)
		w[j] = kv.dtype == KERN_F16 ?
		       f16_pair(f.v[2 * j], f.v[2 * j + 1]) :
		       (u32)f32_to_bf16(f.v[2 * j]) |
		       (u32)f32_to_bf16(f.v[2 * j + 1]) << 16;
	if (vec) {
		((u64 *)to)[q] = (u64)w[1] << 32 | w[0];
		return;
	}
	for (j = 0; j < 4; j++)
		((u16 *)to)[4 * q + j] = (u16)(w[j / 2] >> 16 * (j % 2));
}

/* The layer of the block that takes @row, and the token; false: it has none. */
DEVICE bool slot_find(const struct k_kv_write_args &a, u32 row, u8 **layer,
		      u32 *token)
{
	const u32 seq = a.batch.row_seq[row];
	u32 pos;

	if (seq == ~0u || row >= a.batch.step->nr_rows)
		return false;
	pos = a.batch.row_pos[row];
	*token = pos % a.kv.block_tokens;
	*layer = layer_at(a.kv, a.batch.entries[a.batch.seqs[seq].table +
						pos / a.kv.block_tokens],
			  a.layer);
	return true;
}

/* Write K (@at < kv_heads) or V of a head to the slot of @row, if it has one. */
DEVICE void slot_write(const struct k_kv_write_args &a, u32 row, u32 at,
		       const lane_head &h)
{
	const struct dev_kv &kv = a.kv;
	float scale = 0.0f;
	u32 token, i;
	u64 slot;
	u8 *layer;

	if (!slot_find(a, row, &layer, &token))
		return;
	slot = (u64)at * kv.block_tokens + token;
	if (has_scales(kv)) {
		scale = head_scale(kv, h);
		if (!thread_lane())
			((float *)(layer + scales_at(kv)))[slot] = scale;
	}
#pragma unroll
	for (i = 0; i < KV_LANE_QUADS; i++) {
		const u32 q = thread_lane() + i * WARP;

		if (4 * q < kv.head_dim)
			four_store(kv, layer + slot * kv.head_dim * kv_size(kv),
				   q, h.f[i], scale, a.kv_vec);
	}
}

/* One block for each row, one warp for each head. */
KERNEL(k_kv_write, 256)(struct k_kv_write_args a)
{
	const u32 hd = a.kv.head_dim, heads = a.kv.kv_heads;
	const u32 row = blockIdx.x;
	u32 at;

	for (at = thread_warp(); at < 2 * heads; at += blockDim.x / WARP) {
		const float *from = at < heads ? a.k + row * a.k_ld :
						 a.v + row * a.v_ld;

		slot_write(a, row, at, head_load(from + (u64)(at % heads) * hd,
						 hd, a.vec));
	}
}

/* Quad @q of a vector: of the latent vector, or of the rest of the key. */
DEVICE four latent_load(const struct k_kv_write_args &a, u32 row, u32 q)
{
	const u32 rank = a.kv.rank, rest = a.kv.head_dim - rank;

	if (4 * q < rank)
		return row_load(a.k + row * a.k_ld, q, rank, a.vec);
	return row_load(a.v + row * a.v_ld, q - rank / 4, rest, a.vec);
}

/* One block of a single warp for each row. */
KERNEL(k_latent_write, 32)(struct k_kv_write_args a)
{
	const struct dev_kv &kv = a.kv;
	const u32 row = blockIdx.x, quads = kv.head_dim / 4;
	float scale = 0.0f;
	u32 token, q;
	u8 *layer;

	if (!slot_find(a, row, &layer, &token))
		return;
	if (has_scales(kv)) {
		for (q = thread_lane(); q < quads; q += WARP)
			scale = four_top(latent_load(a, row, q), scale);
		scale = top_scale(kv, scale);
		if (!thread_lane())
			((float *)(layer + scales_at(kv)))[token] = scale;
	}
	for (q = thread_lane(); q < quads; q += WARP)
		four_store(kv, layer + (u64)token * kv.head_dim * kv_size(kv),
			   q, latent_load(a, row, q), scale, a.kv_vec);
}

/* Element @e, rotated, of the head in @buf from @at on. */
DEVICE float turned(SHARED_PTR(float) buf, u32 at, u32 e, u32 half,
		    const float *cosine)
{
	const u32 j = e < half ? e : e - half;
	float v, w;

	if (e >= 2 * half)
		return buf[at + e];
	v = buf[at + j];
	w = buf[at + j + half];
	return e < half ? turn_first(v, w, cosine[j], cosine[half + j]) :
			  turn_second(v, w, cosine[j], cosine[half + j]);
}

/* Rotate the warp's head; lanes exchange elements through @buf. */
DEVICE lane_head head_turn(SHARED_PTR(float) buf,
			   const struct k_rope_write_args &a,
			   const lane_head &h, const float *cosine)
{
	const u32 at = thread_warp() * KV_HEAD_MAX, hd = a.w.kv.head_dim;
	lane_head r;
	u32 i, j;

#pragma unroll
	for (i = 0; i < KV_LANE_QUADS; i++)
#pragma unroll
		for (j = 0; j < 4; j++) {
			const u32 e = 4 * (thread_lane() + i * WARP) + j;

			r.f[i].v[j] = 0.0f;
			if (e < hd)
				buf[at + e] = h.f[i].v[j];
		}
	__syncwarp();
#pragma unroll
	for (i = 0; i < KV_LANE_QUADS; i++)
#pragma unroll
		for (j = 0; j < 4; j++) {
			const u32 e = 4 * (thread_lane() + i * WARP) + j;

			if (e < hd)
				r.f[i].v[j] = settled(turned(buf, at, e,
							     a.half, cosine),
						      a.settle &&
						      e < 2 * a.half);
		}
	__syncwarp();
	return r;
}

DEVICE void head_store(float *head, u32 hd, bool vec, const lane_head &h)
{
	u32 i;

#pragma unroll
	for (i = 0; i < KV_LANE_QUADS; i++)
		row_store(head, thread_lane() + i * WARP, hd, vec, h.f[i]);
}

/* One block for each row, one warp for each head: q, then k, then v. */
KERNEL(k_rope_write, 256)(struct k_rope_write_args a)
{
	SHARED(float, buf, KV_WRITE_WARPS * KV_HEAD_MAX);
	const u32 hd = a.w.kv.head_dim, heads = a.w.kv.kv_heads;
	const u32 row = blockIdx.x, all = a.heads + 2 * heads;
	const float *cosine = a.table + 2 * (u64)row * a.half;
	u32 at;

	for (at = thread_warp(); at < all; at += blockDim.x / WARP) {
		const bool is_q = at < a.heads, is_v = at >= a.heads + heads;
		const bool vec = is_q ? a.vec : a.w.vec;
		float *head = a.q + row * a.q_ld + (u64)at * hd;
		lane_head h;

		if (is_v) {
			h = head_load(a.w.v + row * a.w.v_ld +
				      (u64)(at - a.heads - heads) * hd, hd,
				      vec);
		} else {
			if (!is_q)
				head = a.k + row * a.w.k_ld +
				       (u64)(at - a.heads) * hd;
			h = head_turn(buf, a, head_load(head, hd, vec), cosine);
			head_store(head, hd, vec, h);
		}
		if (!is_q)
			slot_write(a.w, row, at - a.heads, h);
	}
}

/* Copy @bytes of each of @nr segments, which are @apart bytes apart. */
DEVICE void segments_copy(u8 *to, const u8 *from, u32 nr, u32 bytes, u32 apart,
			  bool vec)
{
	const u32 unit = vec ? 16 : 1, each = bytes / unit;
	const u32 step = gridDim.x * blockDim.x;
	u32 i;

	for (i = blockIdx.x * blockDim.x + threadIdx.x; i < nr * each;
	     i += step) {
		const u64 at = (u64)(i / each) * apart +
			       (u64)(i % each) * unit;

		if (vec)
			gl_store16(to + at, gl_load16(from + at));
		else
			to[at] = from[at];
	}
}

/* In the grid z is the descriptor, y the layer. */
KERNEL(k_kv_copy, 256)(struct k_kv_copy_args a)
{
	const struct dev_kv &kv = a.kv;
	const u32 tokens = a.c[blockIdx.z].tokens;
	const u8 *from = layer_at(kv, a.c[blockIdx.z].from, blockIdx.y);
	u8 *to = layer_at(kv, a.c[blockIdx.z].to, blockIdx.y);
	const u32 row = kv.head_dim * kv_size(kv);
	const u64 scales = scales_at(kv);

	segments_copy(to, from, vectors_of(kv), tokens * row,
		      kv.block_tokens * row, a.vec);
	if (has_scales(kv))
		segments_copy(to + scales, from + scales, vectors_of(kv),
			      tokens * 4, kv.block_tokens * 4, false);
}
