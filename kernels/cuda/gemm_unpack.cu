// SPDX-License-Identifier: Apache-2.0
/*
 * gemm_unpack.cu - packed weights as bf16, for products by cuBLASLt
 *
 * A warp takes a unit, as it does to multiply it.
 */
#include "kernels/cuda/packed.cuh"

/* Two neighbours of bf16, from two codes of it. */
DEVICE u32 scaled_pair(u32 codes, const struct packed_scales &s)
{
	return bf16_pair(add_rn(mul_rn(s.by, bits_float(codes << 16)), -s.less),
			 add_rn(mul_rn(s.by, bits_float(codes & 0xffff0000u)),
				-s.less));
}

template <int CODES>
DEVICE void unpack(const struct k_gemm_unpack_args &a, u64 panel, u32 k)
{
	const u32 zero = 0x43004300u + a.p.zero * 0x00010001u;
	const u32 g = thread_lane() / 4, t = thread_lane() % 4;
	struct unit<CODES> u;
	u32 j, r;

	unit_load<CODES>(u, a.p, a.w + panel * a.p.panel +
				 (u64)(k / PACKED_COLS) * a.p.unit);
#pragma unroll
	for (j = 0; j < 4; j++) {
		u32 w[4];

		unit_codes<CODES>(u, j, zero, w);
#pragma unroll
		for (r = 0; r < 4; r++) {
			const u64 n = panel * PACKED_ROWS + g + 8 * (r % 2);
			const u32 col = k + 16 * j + 4 * t + r / 2 * 2;

			if (n < a.n && col < a.k)
				a.to[(n * a.k + col) / 2] = scaled_pair(w[r],
					unit_scale<CODES>(u, a.p, j * 16 /
							  a.p.group, r % 2));
		}
	}
}

KERNEL(k_gemm_unpack, 256)(struct k_gemm_unpack_args a)
{
	const u32 units = (a.k + PACKED_COLS - 1) / PACKED_COLS;
	const u64 all = (u64)(a.n + PACKED_ROWS - 1) / PACKED_ROWS * units;
	u64 i;

	for (i = (u64)blockIdx.x * (blockDim.x / WARP) + thread_warp(); i < all;
	     i += (u64)gridDim.x * (blockDim.x / WARP)) {
		const u32 k = (u32)(i % units) * PACKED_COLS;

		if (a.p.codes == PACKED_U4)
			unpack<PACKED_U4>(a, i / units, k);
		else if (a.p.codes == PACKED_FP4)
			unpack<PACKED_FP4>(a, i / units, k);
		else if (a.p.codes == PACKED_S8)
			unpack<PACKED_S8>(a, i / units, k);
		else
			unpack<PACKED_E4M3>(a, i / units, k);
	}
}
