// SPDX-License-Identifier: Apache-2.0
/*
 * draw.c - upload draws to the device, and fetch the tokens
 *
 * Parameters and lists of all draws are laid out in one piece of memory and
 * uploaded in one copy; results are fetched in one or two.  After the uploaded part
 * there is room for results, and for logits that edits change and logprobs need
 * unchanged:
 *
 *	draws | lists of each row | drawn | top | saved
 *
 * No graph contains the address of this memory, so it may grow: draws are never
 * recorded, but follow a step.  The stream runs the draws of a batch after its
 * logits, and the next step after the draws.
 *
 * Draws of one row have the same lists, so these are uploaded once a row, and the
 * row's first draw makes the edits.
 */
#include <stdlib.h>

#include "kernels/cuda/internal.h"

#define DRAW_ALIGN	16u
#define DRAW_BYTES_MIN	(64u << 10)

_Static_assert(sizeof(struct dev_drawn) == sizeof(struct kern_drawn) &&
	       sizeof(struct dev_top) == sizeof(struct kern_top) &&
	       sizeof(struct dev_sample_bias) == sizeof(struct kern_bias) &&
	       sizeof(struct dev_sample_count) == sizeof(struct kern_count) &&
	       SAMPLE_TOP_MAX == KERN_TOP_MAX,
	       "what the device and its callers call one thing");

/* The piece while it is laid out; without @host bytes are only counted. */
struct layout {
	u8	*host;
	u8	*dev;
	u64	at;
};

/* Reserve @bytes, and copy them from @from; returns their address on the device. */
static void *lay(struct layout *l, const void *from, u64 bytes)
{
	const u64 at = l->at;

	l->at = ALIGN_UP(at + bytes, (u64)DRAW_ALIGN);
	if (!l->host)
		return NULL;
	if (from && bytes)
		memcpy(l->host + at, from, bytes);
	return l->dev + at;
}

/* One bit for each token. */
static const u32 *lay_allowed(struct layout *l, const struct kern_draw *d,
			      u32 vocab)
{
	const u64 bytes = DIV_ROUND_UP(vocab, 32u) * sizeof(u32);
	u32 *bits, i;

	if (!d->allowed)
		return NULL;
	if (l->host) {
		bits = (void *)(l->host + l->at);
		memset(bits, 0, bytes);
		for (i = 0; i < d->nr_allowed; i++)
			bits[d->allowed[i] / 32] |= 1u << d->allowed[i] % 32;
	}
	return lay(l, NULL, bytes);
}

static struct dev_draw lay_draw(struct layout *l, const struct kern_sample *s,
				const struct kern_draw *d)
{
	return (struct dev_draw){
		.seed = d->seed, .position = d->position, .sample = d->sample,
		.row = d->row - s->first_row, .temperature = d->temperature,
		.top_p = d->top_p, .min_p = d->min_p, .top_k = d->top_k,
		.repetition = d->repetition, .presence = d->presence,
		.frequency = d->frequency, .logprobs = d->logprobs,
		.nr_top = d->logprobs ? d->nr_top : 0, .saved = ~0u,
		.adjusts = d->nr_masked || d->nr_biases || d->nr_counts,
		.nr_masked = d->nr_masked, .nr_biases = d->nr_biases,
		.nr_counts = d->nr_counts,
		.allowed = lay_allowed(l, d, s->vocab),
		.masked = lay(l, d->masked, d->nr_masked * sizeof(u32)),
		.biases = lay(l, d->biases,
			      d->nr_biases * sizeof(*d->biases)),
		.counts = lay(l, d->counts,
			      d->nr_counts * sizeof(*d->counts)),
	};
}

/*
 * Lay out all draws in @l; @a gets their address, and whether any of them adjusts
 * or wants logprobs.  Return: number of logits to save.
 */
static u32 lay_draws(struct layout *l, const struct kern_sample *s,
		     struct cuda_sample *a)
{
	struct dev_draw *to = l->host ? (void *)(l->host + l->at) : NULL;
	struct dev_draw d = { 0 };
	u32 i, saved = 0;

	a->draws = lay(l, NULL, s->nr * sizeof(d));
	for (i = 0; i < s->nr; i++) {
		const struct kern_draw *from = &s->draws[i];

		if (i && from->row == s->draws[i - 1].row) {
			d.adjusts = 0;
			d.sample = from->sample;
			d.seed = from->seed;
			d.position = from->position;
			d.logprobs = from->logprobs;
			d.nr_top = from->logprobs ? from->nr_top : 0;
		} else {
			d = lay_draw(l, s, from);
		}
		if (d.adjusts) {
			d.saved = saved;
			saved += d.nr_masked + d.nr_biases + d.nr_counts;
		}
		a->adjusts |= d.adjusts;
		a->logprobs |= d.logprobs;
		if (to)
			to[i] = d;
	}
	return saved;
}

/* Lay out the whole piece of l->at bytes; returns the bytes to upload. */
static u64 lay_all(struct layout *l, const struct kern_sample *s,
		   struct cuda_sample *a)
{
	const u64 tops = (u64)s->nr * s->top_stride;
	const u32 saved = lay_draws(l, s, a);
	const u64 up = l->at;

	a->drawn = lay(l, NULL, s->nr * sizeof(*a->drawn));
	a->top = lay(l, NULL, tops * sizeof(*a->top));
	a->saved = lay(l, NULL, saved * sizeof(*a->saved));
	if (!saved || !a->logprobs)
		a->saved = NULL;
	return up;
}

void cuda_draw_exit(struct cuda_ctx *c)
{
	if (c->draw_dev)
		(void)!c->cu->MemFree((CUdeviceptr)(uintptr_t)c->draw_dev);
	free(c->draw_host);
	c->draw_dev = NULL;
	c->draw_host = NULL;
	c->draw_bytes = 0;
}

static bool make_room(struct cuda_ctx *c, u64 bytes)
{
	struct kern_ctx *ctx = (struct kern_ctx *)(void *)c;

	if (bytes <= c->draw_bytes)
		return !c->err;
	cuda_mem_free(ctx, c->draw_dev);
	free(c->draw_host);
	bytes = roundup_pow_of_two(max(bytes, (u64)DRAW_BYTES_MIN));
	c->draw_dev = cuda_mem_alloc(ctx, bytes);
	c->draw_host = malloc(bytes);
	c->draw_bytes = c->draw_dev && c->draw_host ? bytes : 0;
	if (!c->draw_bytes)
		cuda_fail(c, "no memory for the draws of a step",
			  CUDA_ERROR_OUT_OF_MEMORY);
	return c->draw_bytes;
}

void cuda_draw(struct kern_ctx *ctx, const struct kern_sample *s)
{
	struct cuda_ctx *c = cuda_of(ctx);
	struct cuda_sample a = {
		.logits = s->logits, .vocab = s->vocab, .nr = s->nr,
		.top_stride = s->top_stride,
	};
	struct layout l = { 0 };
	u64 up;

	if (!s->nr || !cuda_enter(c))
		return;
	lay_all(&l, s, &a);
	if (!make_room(c, l.at))
		return;
	l = (struct layout){ .host = c->draw_host, .dev = c->draw_dev };
	up = lay_all(&l, s, &a);
	cuda_mem_put(ctx, c->draw_dev, c->draw_host, up);
	cuda_sample(ctx, &a);
	cuda_mem_fetch(ctx, s->drawn, a.drawn, s->nr * sizeof(*s->drawn));
	if (a.logprobs && s->top_stride)
		cuda_mem_fetch(ctx, s->top, a.top, (u64)s->nr * s->top_stride *
						   sizeof(*s->top));
}
