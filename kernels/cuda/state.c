// SPDX-License-Identifier: Apache-2.0
/*
 * state.c - launch the ops of recurrent layers
 *
 * The batch on the device has the sequences and their tables, so a recorded launch
 * works on the states of the step in which it is replayed.
 */
#include "kernels/cuda/internal.h"

#define STATE_THREADS	256u

static struct dev_state dev_state(const struct kern_state *s, u32 layer)
{
	return (struct dev_state){
		.base = s->base, .unit = s->unit,
		.stride = kern_state_stride(s), .tokens = s->tokens,
		.layer = layer, .blocks = kern_state_blocks(s),
		.per = kern_state_per(s), .units = kern_state_units(s),
		.shared = kern_state_shared(s),
		.channels = kern_state_channels(s), .heads = s->heads,
		.head_dim = s->head_dim, .d_state = s->d_state,
		.groups = s->groups, .conv = s->conv,
	};
}

void cuda_conv(struct kern_ctx *ctx, const struct kern_conv *a)
{
	struct cuda_ctx *c = cuda_of(ctx);
	const struct kern_kv kv = kern_state_kv(a->state);
	const struct k_conv_args k = {
		.s = dev_state(a->state, a->layer),
		.batch = cuda_batch_of(c, a->seqs, a->nr_seqs, &kv),
		.x = a->x, .w = a->w, .bias = a->bias, .y = a->y,
		.settle = c->settle,
	};
	const struct cuda_grid g = {
		.x = DIV_ROUND_UP(k.s.channels, STATE_THREADS),
		.y = c->bound.nr_seqs, .z = 1, .threads = STATE_THREADS,
	};

	if (g.y)
		cuda_launch(c, CUDA_k_conv, g, &k);
}

void cuda_scan(struct kern_ctx *ctx, const struct kern_scan *a)
{
	struct cuda_ctx *c = cuda_of(ctx);
	const struct kern_kv kv = kern_state_kv(a->state);
	const struct k_scan_args k = {
		.s = dev_state(a->state, a->layer),
		.batch = cuda_batch_of(c, a->seqs, a->nr_seqs, &kv),
		.x = a->x, .dt = a->dt, .dt_bias = a->dt_bias,
		.a_log = a->a_log, .d = a->d, .y = a->y,
		.parts = STATE_THREADS / a->state->head_dim,
		.settle = c->settle,
	};
	const struct cuda_grid g = {
		.x = k.s.heads, .y = c->bound.nr_seqs, .z = 1,
		.threads = ALIGN_UP(k.parts * k.s.head_dim, 32u),
	};

	if (g.y)
		cuda_launch(c, CUDA_k_scan, g, &k);
}

void cuda_gated_norm(struct kern_ctx *ctx, const struct kern_gated_norm *a)
{
	struct cuda_ctx *c = cuda_of(ctx);
	const struct k_gated_norm_args k = {
		.x = a->x, .z = a->z, .w = a->w, .y = a->y, .d = a->d,
		.groups = a->groups, .eps = a->eps, .settle = c->settle,
	};
	const struct cuda_grid g = {
		.x = a->m, .y = a->groups, .z = 1, .threads = STATE_THREADS,
	};

	if (a->m)
		cuda_launch(c, CUDA_k_gated_norm, g, &k);
}
