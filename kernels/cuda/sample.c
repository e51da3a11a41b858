// SPDX-License-Identifier: Apache-2.0
/*
 * sample.c - launch draws
 *
 * One block for each draw.  Its number of threads depends only on the vocabulary,
 * and changes no bit: sums are exact (sample.h).
 */
#include <errno.h>

#include "kernels/cuda/internal.h"

#define THREADS_LEAST	64u
#define THREADS_MOST	1024u

_Static_assert(SAMPLE_NAN == -EDOM && SAMPLE_INF == -ERANGE &&
	       SAMPLE_NOTHING == -ENODATA, "as sampler_sample() has them");

/* About eight tokens for each thread; a power of two. */
static u32 threads_of(u32 vocab)
{
	u32 threads = THREADS_LEAST;

	while (threads < THREADS_MOST && 8 * threads < vocab)
		threads *= 2;
	return threads;
}

void cuda_sample(struct kern_ctx *ctx, const struct cuda_sample *s)
{
	struct cuda_ctx *c = cuda_of(ctx);
	struct k_sample_args a = {
		.logits = s->logits, .draws = s->draws, .drawn = s->drawn,
		.top = s->top, .saved = s->saved,
		.ld = s->ld ? s->ld : s->vocab, .vocab = s->vocab,
		.nr = s->nr, .top_stride = s->top_stride,
	};
	const struct cuda_grid edit = {
		.x = s->nr, .y = 1, .z = 1, .threads = 256,
	};
	const struct cuda_grid row = {
		.x = s->nr, .y = 1, .z = 1, .threads = threads_of(s->vocab),
	};

	if (!s->nr || !s->vocab)
		return;
	if (s->adjusts)
		cuda_launch(c, CUDA_k_sample_adjust, edit, &a);
	cuda_launch(c, CUDA_k_sample_draw, row, &a);
	if (!s->logprobs)
		return;
	if (s->adjusts) {
		a.restore = 1;
		cuda_launch(c, CUDA_k_sample_adjust, edit, &a);
	}
	cuda_launch(c, CUDA_k_sample_logprobs, row, &a);
}
