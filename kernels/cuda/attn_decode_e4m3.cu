// SPDX-License-Identifier: Apache-2.0
/*
 * attn_decode_e4m3.cu - decoding over KV of e4m3 with scales
 *
 * Heads of another size take the next larger kernel.  The dims that they lack are
 * zeros in shared memory, and are never read from the pool.
 */
#include "kernels/cuda/attn_decode.h"

ATTN_DECODE(k_attn_decode_e4m3_64, KERN_E4M3, 64, 4, 4, u32);
ATTN_DECODE(k_attn_decode_e4m3_128, KERN_E4M3, 128, 4, 3, u32);
ATTN_DECODE(k_attn_decode_e4m3_256, KERN_E4M3, 256, 2, 3, u32);
