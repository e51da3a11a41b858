// SPDX-License-Identifier: Apache-2.0
/*
 * attn_prefill_bf16.cu - prefill over KV of bf16
 *
 * Heads of another size take the next larger kernel.  The dims that they lack are
 * zeros in shared memory, and are never read from the pool.
 */
#include "kernels/cuda/attn_prefill.h"

ATTN_PREFILL(k_attn_prefill_bf16_64, KERN_BF16, 64, 8, 64);
ATTN_PREFILL(k_attn_prefill_bf16_96, KERN_BF16, 96, 8, 64);
ATTN_PREFILL(k_attn_prefill_bf16_128, KERN_BF16, 128, 8, 64);
ATTN_PREFILL(k_attn_prefill_bf16_256, KERN_BF16, 256, 4, 32);
