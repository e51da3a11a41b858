// SPDX-License-Identifier: Apache-2.0
/*
 * attn_prefill_e4m3.cu - prefill over KV of e4m3
 *
 * Heads of another size take the next larger kernel; what lies behind the
 * head's last dim is zeros in shared memory and never read from the pool.
 */
#include "kernels/cuda/attn_prefill.h"

ATTN_PREFILL(k_attn_prefill_e4m3_128, KERN_E4M3, 128, 8, 64);
ATTN_PREFILL(k_attn_prefill_e4m3_256, KERN_E4M3, 256, 4, 32);
