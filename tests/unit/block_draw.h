/* SPDX-License-Identifier: Apache-2.0 */
/*
 * block_draw.h - random blocks of quantized weights, for tests
 */
#ifndef BLOCK_DRAW_H
#define BLOCK_DRAW_H

#include "kernels/quant.h"

static u64 draw_state;

static inline u32 draw(void)
{
	draw_state = draw_state * 6364136223846793005ull + 1442695040888963407ull;
	return draw_state >> 33;
}

static inline float draw_float(void)
{
	return (float)(draw() % 20001) / 10000.0f - 1.0f;
}

/* Scales of a block: a type's places of f16, or of f32 at 0. */
static const struct {
	s32	f16[2];
	bool	f32;
} block_scales[NR_KERN_DTYPES] = {
	[KERN_Q4_0] = { { 0, -1 } }, [KERN_Q4_1] = { { 0, 2 } },
	[KERN_Q5_0] = { { 0, -1 } }, [KERN_Q5_1] = { { 0, 2 } },
	[KERN_Q8_0] = { { 0, -1 } }, [KERN_Q2_K] = { { 80, 82 } },
	[KERN_Q3_K] = { { 108, -1 } }, [KERN_Q4_K] = { { 0, 2 } },
	[KERN_Q5_K] = { { 0, 2 } }, [KERN_Q6_K] = { { 208, -1 } },
	[KERN_IQ4_NL] = { { 0, -1 } }, [KERN_IQ4_XS] = { { 0, -1 } },
	[KERN_MXFP4] = { { -1, -1 } },
	[KERN_W4_32] = { { -1, -1 }, true }, [KERN_W4_64] = { { -1, -1 }, true },
	[KERN_W4_128] = { { -1, -1 }, true }, [KERN_W8_32] = { { -1, -1 }, true },
	[KERN_W8_128] = { { -1, -1 }, true }, [KERN_F8_32] = { { -1, -1 }, true },
	[KERN_F8_128] = { { -1, -1 }, true },
};

/* Random bytes with scales that are numbers, and elements that are. */
static inline void block_draw(enum kern_dtype t, u8 *b)
{
	const u32 bytes = kern_block_bytes(t);
	const float f = draw_float();
	u16 h;
	u32 i;

	for (i = 0; i < bytes; i++)
		b[i] = draw();
	for (i = 0; i < 2; i++) {
		h = 0x1c00 + draw() % 0x1000 + (draw() % 2 << 15);
		if (block_scales[t].f16[i] >= 0)
			memcpy(b + block_scales[t].f16[i], &h, sizeof(h));
	}
	if (block_scales[t].f32)
		memcpy(b, &f, sizeof(f));
	if (t == KERN_MXFP4)
		b[0] = 120 + draw() % 6;
	for (i = 4; t >= KERN_F8_32 && i < bytes; i++)
		b[i] = (b[i] & 0x7f) == 0x7f ? 0 : b[i];
	if (t >= KERN_W4_32 && t <= KERN_W4_128)
		b[4] %= 16;
}

#endif /* BLOCK_DRAW_H */
