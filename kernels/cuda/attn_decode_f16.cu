// SPDX-License-Identifier: Apache-2.0
/*
 * attn_decode_f16.cu - decoding over KV of f16
 *
 * Heads of another size take the next larger kernel.  The dims that they lack are
 * zeros in shared memory, and are never read from the pool.
 */
#include "kernels/cuda/attn_decode.h"

ATTN_DECODE(k_attn_decode_f16_64, KERN_F16, 64, 4, 3, u16);
ATTN_DECODE(k_attn_decode_f16_128, KERN_F16, 128, 4, 2, u16);
ATTN_DECODE(k_attn_decode_f16_256, KERN_F16, 256, 2, 2, u16);
