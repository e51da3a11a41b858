// SPDX-License-Identifier: Apache-2.0
/*
 * attn_decode_bf16.cu - decoding over KV of bf16
 *
 * Heads of another size take the next larger kernel.  The dims that they lack are
 * zeros in shared memory, and are never read from the pool.
 */
#include "kernels/cuda/attn_decode.h"

ATTN_DECODE(k_attn_decode_bf16_64, KERN_BF16, 64, 4, 3, u16);
ATTN_DECODE(k_attn_decode_bf16_80, KERN_BF16, 80, 4, 3, u16);
ATTN_DECODE(k_attn_decode_bf16_96, KERN_BF16, 96, 4, 2, u16);
ATTN_DECODE(k_attn_decode_bf16_128, KERN_BF16, 128, 4, 2, u16);
ATTN_DECODE(k_attn_decode_bf16_256, KERN_BF16, 256, 2, 2, u16);
