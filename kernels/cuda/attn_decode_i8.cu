// SPDX-License-Identifier: Apache-2.0
/*
 * attn_decode_i8.cu - decoding over KV of i8 with scales
 *
 * Heads of another size take the next larger kernel.  The dims that they lack are
 * zeros in shared memory, and are never read from the pool.
 */
#include "kernels/cuda/attn_decode.h"

ATTN_DECODE(k_attn_decode_i8_64, KERN_I8, 64, 4, 4, u32);
ATTN_DECODE(k_attn_decode_i8_128, KERN_I8, 128, 4, 3, u32);
ATTN_DECODE(k_attn_decode_i8_256, KERN_I8, 256, 2, 3, u32);
