// SPDX-License-Identifier: Apache-2.0
/*
 * attn_prefill_e4m3.cu - prefill over KV of e4m3
 *
 * Heads of another size take the next larger kernel.  The dims that they lack are
 * zeros in shared memory, and are never read from the pool.
 */
#include "kernels/cuda/attn_prefill.h"

ATTN_PREFILL(k_attn_prefill_e4m3_128, KERN_E4M3, 128, 8, 64);
ATTN_PREFILL(k_attn_prefill_e4m3_256, KERN_E4M3, 256, 4, 32);
