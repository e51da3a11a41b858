// SPDX-License-Identifier: Apache-2.0
/*
 * act.cu - activations of gated and plain MLPs
 *
 * The erf form of GELU is written as x * h(|x|) or x * (1 - h(|x|)), with h the
 * small tail, computed directly; the tanh form as x / (1 + exp()).  So no digits
 * are lost where 1 + erf() or 1 + tanh() would cancel.
 */
#include "kernels/cuda/fmath.cuh"

DEVICE float act_silu(float x)
{
	return x / add_rn(1.0f, f_exp(-x));
}

DEVICE float act_gelu(float x)
{
	const float h = f_half_erfc(mul_rn(fabsf(x), 0x1.6a09e6p-1f));

	return mul_rn(x, x < 0.0f ? h : sub_rn(1.0f, h));
}

/* (1 + tanh(u)) / 2 is 1 / (1 + exp(-2u)). */
DEVICE float act_gelu_tanh(float x)
{
	const float u = mul_rn(x, fma_rn(mul_rn(x, x), 0x1.6e4e26p-5f, 1.0f));

	return x / add_rn(1.0f, f_exp(mul_rn(u, -0x1.988454p+0f)));
}

DEVICE float act_of(u32 act, float x)
{
	switch (act) {
	case KERN_SILU:
		return act_silu(x);
	case KERN_GELU:
		return act_gelu(x);
	case KERN_GELU_TANH:
		return act_gelu_tanh(x);
	}
	return x < 0.0f ? 0.0f : x;
}

/*
 * A block takes quads of rows blockIdx.y, blockIdx.y + gridDim.y, ...  Each thread
 * reads its own elements before it writes them, so y may be gate.
 */
KERNEL(k_act, 256)(struct k_act_args a)
{
	const u32 step = gridDim.x * blockDim.x;
	u32 row, q, i;

	for (row = blockIdx.y; row < a.m; row += gridDim.y) {
		const float *gate = a.gate + row * a.ld;
		const float *up = a.up ? a.up + row * a.ld : a.up;
		float *y = a.y + (u64)row * a.d;

		for (q = blockIdx.x * blockDim.x + threadIdx.x; 4 * q < a.d;
		     q += step) {
			four g = row_load(gate, q, a.d, a.vec), u;

			if (up)
				u = row_load(up, q, a.d, a.vec);
#pragma unroll
			for (i = 0; i < 4; i++) {
				float v = act_of(a.act, g.v[i]);

				if (up)
					v = mul_rn(v, u.v[i]);
				g.v[i] = settled(v, a.settle);
			}
			row_store(y, q, a.d, a.vec, g);
		}
	}
}

/* As act_silu(x * alpha) / alpha * (u + 1), with both clamped. */
DEVICE float swiglu_of(const struct k_swiglu_args &a, float g, float u)
{
	g = g > a.limit ? a.limit : g;
	u = u > a.limit ? a.limit : u < -a.limit ? -a.limit : u;
	g = g / add_rn(1.0f, f_exp(mul_rn(g, -a.alpha)));
	return settled(mul_rn(g, add_rn(u, 1.0f)), a.settle);
}

/* Rows and quads as in k_act. */
KERNEL(k_swiglu, 256)(struct k_swiglu_args a)
{
	const u32 step = gridDim.x * blockDim.x;
	u32 row, q, i;

	for (row = blockIdx.y; row < a.m; row += gridDim.y) {
		const float *gate = a.gate + row * a.ld;
		const float *up = a.up + row * a.ld;
		float *y = a.y + (u64)row * a.d;

		for (q = blockIdx.x * blockDim.x + threadIdx.x; 4 * q < a.d;
		     q += step) {
			four g = row_load(gate, q, a.d, a.vec);
			const four u = row_load(up, q, a.d, a.vec);

#pragma unroll
			for (i = 0; i < 4; i++)
				g.v[i] = swiglu_of(a, g.v[i], u.v[i]);
			row_store(y, q, a.d, a.vec, g);
		}
	}
}
