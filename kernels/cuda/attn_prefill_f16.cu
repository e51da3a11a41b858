// SPDX-License-Identifier: Apache-2.0
/*
 * attn_prefill_f16.cu - prefill over KV of f16
 *
 * Heads of another size take the next larger kernel.  The dims that they lack are
 * zeros in shared memory, and are never read from the pool.
 */
#include "kernels/cuda/attn_prefill.h"

ATTN_PREFILL(k_attn_prefill_f16_128, KERN_F16, 128, 8, 64);
ATTN_PREFILL(k_attn_prefill_f16_256, KERN_F16, 256, 4, 32);
