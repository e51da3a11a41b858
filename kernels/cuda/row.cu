// SPDX-License-Identifier: Apache-2.0
/*
 * row.cu - ops on single elements, and ops that move rows
 *
 * Threads take elements by quads (fmath.cuh) in strides of the whole grid; a block
 * moves a whole row.  There are no reductions, so an element's bits depend only on
 * the element.
 */
#include "kernels/cuda/fmath.cuh"

/* Quads of this thread: from quad_first() in steps of quad_step(). */
DEVICE u64 quad_first(void)
{
	return (u64)blockIdx.x * blockDim.x + threadIdx.x;
}

DEVICE u64 quad_step(void)
{
	return (u64)gridDim.x * blockDim.x;
}

/* Elements of quad @q of @n; @n may be larger than the longest row. */
DEVICE u32 quad_left(u64 q, u64 n)
{
	return n - 4 * q < 4 ? (u32)(n - 4 * q) : 4;
}

KERNEL(k_add, 256)(struct k_add_args a)
{
	u64 q;
	u32 i;

	for (q = quad_first(); 4 * q < a.n; q += quad_step()) {
		const u32 left = quad_left(q, a.n);
		four x = row_load(a.x + 4 * q, 0, left, a.vec);
		const four y = row_load(a.y + 4 * q, 0, left, a.vec);

#pragma unroll
		for (i = 0; i < 4; i++)
			x.v[i] = settled(add_rn(x.v[i], y.v[i]), a.settle);
		row_store(a.x + 4 * q, 0, left, a.vec, x);
	}
}

KERNEL(k_scale, 256)(struct k_map_args a)
{
	u64 q;
	u32 i;

	for (q = quad_first(); 4 * q < a.n; q += quad_step()) {
		const u32 left = quad_left(q, a.n);
		four x = row_load(a.x + 4 * q, 0, left, a.vec);

#pragma unroll
		for (i = 0; i < 4; i++)
			x.v[i] = settled(mul_rn(x.v[i], a.by), a.settle);
		row_store(a.x + 4 * q, 0, left, a.vec, x);
	}
}

KERNEL(k_softcap, 256)(struct k_map_args a)
{
	u64 q;
	u32 i;

	for (q = quad_first(); 4 * q < a.n; q += quad_step()) {
		const u32 left = quad_left(q, a.n);
		four x = row_load(a.x + 4 * q, 0, left, a.vec);

#pragma unroll
		for (i = 0; i < 4; i++)
			x.v[i] = settled(mul_rn(f_tanh(x.v[i] / a.by), a.by),
					 a.settle);
		row_store(a.x + 4 * q, 0, left, a.vec, x);
	}
}

KERNEL(k_settle, 256)(struct k_map_args a)
{
	u64 q;
	u32 i;

	for (q = quad_first(); 4 * q < a.n; q += quad_step()) {
		const u32 left = quad_left(q, a.n);
		four x = row_load(a.x + 4 * q, 0, left, a.vec);

#pragma unroll
		for (i = 0; i < 4; i++)
			x.v[i] = settled(x.v[i], true);
		row_store(a.x + 4 * q, 0, left, a.vec, x);
	}
}

/* Element @i of the table, widened. */
DEVICE float table_at(const struct k_take_args &a, u64 i)
{
	if (a.dtype == KERN_F32)
		return ((const float *)a.table)[i];
	if (a.dtype == KERN_F16)
		return f16_to_f32(((const u16 *)a.table)[i]);
	return bf16_to_f32(((const u16 *)a.table)[i]);
}

/* Take eight 16-bit elements at an aligned address. */
DEVICE void take_eight(const struct k_take_args &a, u64 from, float *to)
{
	const quad w = gl_load16((const u16 *)a.table + from);
	u32 i, h;

#pragma unroll
	for (h = 0; h < 2; h++) {
		four f;

#pragma unroll
		for (i = 0; i < 4; i++) {
			const u16 e = (u16)(w.w[2 * h + i / 2] >> 16 * (i % 2));

			f.v[i] = settled(a.dtype == KERN_F16 ? f16_to_f32(e) :
							       bf16_to_f32(e),
					 a.settle);
		}
		row_store(to, h, 8, true, f);
	}
}

/* One block for each row; with more rows than blocks a block takes several. */
KERNEL(k_take, 256)(struct k_take_args a)
{
	const u32 wide = a.dtype == KERN_F32 ? 4 : 8;
	u32 row, j, i;

	for (row = blockIdx.x; row < a.m; row += gridDim.x) {
		const u32 at = a.rows[row];
		const u64 from = (u64)(at < a.nr_rows ? at : 0) * a.d;
		float *to = a.x + (u64)row * a.d;

		for (j = wide * threadIdx.x; j < a.d; j += wide * blockDim.x) {
			if (a.vec && wide == 8) {
				take_eight(a, from + j, to + j);
				continue;
			}
			if (a.vec && !a.settle) {
				const float *f = (const float *)a.table;

				gl_store16(to + j, gl_load16(f + from + j));
				continue;
			}
			for (i = j; i < j + wide && i < a.d; i++)
				to[i] = settled(table_at(a, from + i),
						a.settle);
		}
	}
}

/* One warp for each head of a row. */
KERNEL(k_split_heads, 256)(struct k_split_heads_args a)
{
	const u64 warps = (u64)gridDim.x * (blockDim.x / WARP);
	const u32 hd = a.head_dim;
	u64 h;
	u32 q;

	for (h = (u64)blockIdx.x * (blockDim.x / WARP) + thread_warp();
	     h < a.heads; h += warps) {
		const float *from = a.from + 3 * h * hd;

		for (q = thread_lane(); 4 * q < hd; q += WARP) {
			row_store(a.q + h * hd, q, hd, a.vec,
				  row_load(from, q, hd, a.vec));
			row_store(a.k + h * hd, q, hd, a.vec,
				  row_load(from + hd, q, hd, a.vec));
			row_store(a.v + h * hd, q, hd, a.vec,
				  row_load(from + 2 * hd, q, hd, a.vec));
		}
	}
}
