// SPDX-License-Identifier: Apache-2.0
/*
 * ref_state.c - the ops of recurrent layers by their definition
 *
 * One token after the other, each element in double.  A state is rounded to f32 after
 * each token, since that is what the next chunk finds.
 */
#include <math.h>

#include "kernels/ref/internal.h"

/*
 * Floats before the inputs of channel @c in its unit.  *@unit: the unit; *@apart: the
 * floats between two inputs.
 */
static u32 channel_at(const struct kern_state *s, u32 c, u32 *unit, u32 *apart)
{
	const u32 own = s->heads * s->head_dim, shared = kern_state_shared(s);

	if (c < own) {
		*unit = c / s->head_dim;
		*apart = s->head_dim;
		return s->d_state * s->head_dim + c % s->head_dim;
	}
	*unit = s->heads + (c - own) / shared;
	*apart = shared;
	return (c - own) % shared;
}

/* The input @back positions before row @i, from the call's rows or from @before. */
static double input_at(const struct kern_conv *a, const struct kern_attn_seq *seq,
		       const float *before, u32 c, u32 i, u32 back)
{
	const u32 past = a->state->conv - 1;

	if (back <= i)
		return a->x[(u64)(seq->first_row + i - back) *
			    kern_state_channels(a->state) + c];
	if (back > seq->start_pos + i)
		return 0;
	return before[past - (back - i)];
}

/* One channel of one sequence. */
static void conv_channel(const struct kern_conv *a, const struct kern_attn_seq *seq,
			 u32 c)
{
	const struct kern_state *s = a->state;
	const u32 all = kern_state_channels(s), past = s->conv - 1;
	float before[KERN_MAX_CONV], *to;
	u32 unit, apart, i, j, pos;
	const u32 at = channel_at(s, c, &unit, &apart);
	double sum;

	for (j = 0; seq->start_pos && j < past; j++)
		before[j] = kern_state_at(s, seq->table,
					  kern_state_before(s, seq->start_pos),
					  a->layer, unit)[at + j * apart];
	for (i = 0; i < seq->nr_rows; i++) {
		sum = a->bias ? a->bias[c] : 0;
		for (j = 0; j <= past; j++)
			sum += a->w[(u64)j * all + c] *
			       input_at(a, seq, before, c, i, past - j);
		a->y[(u64)(seq->first_row + i) * all + c] = sum / (1 + exp(-sum));
		pos = seq->start_pos + i;
		if (i + 1 < seq->nr_rows && (pos + 1) % s->tokens)
			continue;
		to = kern_state_at(s, seq->table, pos / s->tokens, a->layer, unit);
		for (j = 0; j < past; j++)
			to[at + j * apart] = input_at(a, seq, before, c, i,
						      past - 1 - j);
	}
}

void kern_ref_conv(struct kern_ctx *ctx, const struct kern_conv *a)
{
	u32 i, c;

	for (i = 0; i < a->nr_seqs; i++)
		for (c = 0; c < kern_state_channels(a->state); c++)
			conv_channel(a, &a->seqs[i], c);
}

/* The state that the token at @pos changes, in the record where it belongs. */
static float *state_enter(const struct kern_scan *a, const struct kern_attn_seq *seq,
			  u32 pos, u32 head)
{
	const struct kern_state *s = a->state;
	const u32 n = s->d_state * s->head_dim;
	float *to = kern_state_at(s, seq->table, pos / s->tokens, a->layer, head);
	u32 i;

	for (i = 0; !pos && i < n; i++)
		to[i] = 0;
	if (pos && pos % s->tokens == 0)
		memcpy(to, kern_state_at(s, seq->table, kern_state_before(s, pos),
					 a->layer, head), n * sizeof(*to));
	return to;
}

static double softplus(double x)
{
	return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

/* One head of one row. */
static void scan_head(const struct kern_scan *a, u32 row, u32 h, float *state)
{
	const struct kern_state *s = a->state;
	const u32 p_all = s->head_dim, group = h / (s->heads / s->groups);
	const float *x = a->x + (u64)row * kern_state_channels(s);
	const float *b = x + s->heads * p_all + group * s->d_state;
	const float *c = b + s->groups * s->d_state;
	const double dt = softplus((double)a->dt[(u64)row * s->heads + h] +
				   a->dt_bias[h]);
	const double decay = exp(-exp(a->a_log[h]) * dt);
	double sum;
	u32 n, p;

	x += h * p_all;
	for (p = 0; p < p_all; p++) {
		sum = (double)a->d[h] * x[p];
		for (n = 0; n < s->d_state; n++) {
			state[n * p_all + p] = decay * state[n * p_all + p] +
					       dt * b[n] * x[p];
			sum += (double)c[n] * state[n * p_all + p];
		}
		a->y[((u64)row * s->heads + h) * p_all + p] = sum;
	}
}

void kern_ref_scan(struct kern_ctx *ctx, const struct kern_scan *a)
{
	const struct kern_attn_seq *seq;
	u32 i, h, r;

	for (seq = a->seqs; seq < a->seqs + a->nr_seqs; seq++)
		for (h = 0; h < a->state->heads; h++)
			for (r = 0; r < seq->nr_rows; r++) {
				i = seq->first_row + r;
				scan_head(a, i, h,
					  state_enter(a, seq, seq->start_pos + r, h));
			}
}

void kern_ref_gated_norm(struct kern_ctx *ctx, const struct kern_gated_norm *a)
{
	const u32 each = a->d / a->groups;
	double sum, inv, g;
	u64 part, at;
	u32 i;

	for (part = 0; part < (u64)a->m * a->groups; part++) {
		at = part * each;
		sum = 0;
		for (i = 0; i < each; i++) {
			g = a->x[at + i] * (a->z[at + i] / (1 + exp(-(double)a->z[at + i])));
			sum += g * g;
		}
		inv = 1 / sqrt(sum / each + a->eps);
		for (i = 0; i < each; i++) {
			g = a->x[at + i] * (a->z[at + i] / (1 + exp(-(double)a->z[at + i])));
			a->y[at + i] = g * inv * a->w[part % a->groups * each + i];
		}
	}
}
