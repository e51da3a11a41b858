// SPDX-License-Identifier: Apache-2.0
/*
 * v_state.c - the ops of recurrent layers
 *
 * Both ops take the rows of a sequence one after the other, and threads share out the
 * heads of each sequence.  A register has neighbouring channels, which never meet: sums
 * run over taps and over d_state, in rising order, so there is no tree, and the number
 * of registers side by side changes no bit.  Head dimensions are multiples of 16, so
 * there is no remainder.
 *
 * conv keeps the last inputs of a register of channels in registers while it walks the
 * rows, and stores them where a record ends.  scan works in the record itself: 32 KiB of
 * a head stay in the first cache for all rows of a chunk.
 */
#include "kernels/cpu/vec.h"

static __inline_always vf silu(vf g)
{
	return g / (vf_set(1.0f) + vf_exp(-g));
}

/* The channels that have their inputs in one unit. */
struct run {
	u32	unit;
	u32	channel;	/* the first */
	u32	nr;
	u32	at;		/* floats before their inputs */
	u32	apart;		/* floats from an input to the next */
};

static struct run run_of(const struct kern_state *s, u32 i)
{
	const u32 own = s->heads * s->head_dim, shared = kern_state_shared(s);
	struct run r = { .unit = i };

	if (i < s->heads) {
		r.channel = i * s->head_dim;
		r.nr = r.apart = s->head_dim;
		r.at = s->d_state * s->head_dim;
		return r;
	}
	r.channel = own + (i - s->heads) * shared;
	r.nr = min(shared, kern_state_channels(s) - r.channel);
	r.apart = shared;
	return r;
}

/* A register of channels from @c on in run @r, with @taps taps. */
static __inline_always void conv_lanes(const struct kern_conv *a,
				       const struct kern_attn_seq *seq,
				       const struct run *r, u32 c, const u32 taps)
{
	const struct kern_state *s = a->state;
	const u32 all = kern_state_channels(s), at = r->at + c;
	const u32 ch = r->channel + c;
	const float *x = a->x + (u64)seq->first_row * all + ch;
	float *y = a->y + (u64)seq->first_row * all + ch, *rec;
	vf in[KERN_MAX_CONV] = { }, sum;
	u32 i, j, pos = seq->start_pos;

	if (pos) {
		rec = kern_state_at(s, seq->table, kern_state_before(s, pos),
				    a->layer, r->unit);
		for (j = 0; j + 1 < taps; j++)
			in[j] = vf_load(rec + at + j * r->apart);
	}
	for (i = 0; i < seq->nr_rows; i++, pos++, x += all, y += all) {
		sum = a->bias ? vf_load(a->bias + ch) : vf_set(0.0f);
		in[taps - 1] = vf_load(x);
		for (j = 0; j < taps; j++)
			sum = vf_fma(vf_load(a->w + (u64)j * all + ch), in[j], sum);
		vf_store(y, silu(sum));
		for (j = 0; j + 1 < taps; j++)
			in[j] = in[j + 1];
		if (i + 1 < seq->nr_rows && (pos + 1) % s->tokens)
			continue;
		rec = kern_state_at(s, seq->table, pos / s->tokens, a->layer,
				    r->unit);
		for (j = 0; j + 1 < taps; j++)
			vf_store(rec + at + j * r->apart, in[j]);
	}
}

static void conv_item(void *arg, u32 item)
{
	const struct kern_conv *a = arg;
	const u32 units = kern_state_units(a->state);
	const struct kern_attn_seq *seq = &a->seqs[item / units];
	const struct run r = run_of(a->state, item % units);
	u32 c;

	for (c = 0; c < r.nr; c += VW) {
		if (a->state->conv == 4)
			conv_lanes(a, seq, &r, c, 4);
		else
			conv_lanes(a, seq, &r, c, a->state->conv);
	}
}

static u64 rows_of(const struct kern_attn_seq *seqs, u32 nr)
{
	u64 rows = 0;
	u32 i;

	for (i = 0; i < nr; i++)
		rows += seqs[i].nr_rows;
	return rows;
}

void KERN_FN(conv)(struct kern_ctx *ctx, const struct kern_conv *a)
{
	const struct kern_state *s = a->state;

	if (rows_of(a->seqs, a->nr_seqs) * kern_state_channels(s) * s->conv <
	    KERN_PARALLEL_MIN / 2)
		ctx = NULL;
	kern_parallel(ctx, a->nr_seqs * kern_state_units(s), conv_item,
		      (void *)(uintptr_t)a);
}

/*
 * log(1 + u) for u in [0, 1], with a relative error below 2e-7: twice the area tangent
 * of u / (2 + u), which is at most 1 / 3.
 */
static __inline_always vf log1p_unit(vf u)
{
	const vf t = u / (u + 2.0f), z = t * t;
	vf p;

	p = vf_fma(vf_set(0x1.e1e1e2p-5f), z, vf_set(0x1.111112p-4f));
	p = vf_fma(p, z, vf_set(0x1.3b13b2p-4f));
	p = vf_fma(p, z, vf_set(0x1.745d18p-4f));
	p = vf_fma(p, z, vf_set(0x1.c71c72p-4f));
	p = vf_fma(p, z, vf_set(0x1.24924ap-3f));
	p = vf_fma(p, z, vf_set(0x1.99999ap-3f));
	p = vf_fma(p, z, vf_set(0x1.555556p-2f));
	p = vf_fma(p, z * t, t);
	return p + p;
}

/* log(1 + exp(x)) */
static __inline_always vf softplus(vf x)
{
	const vf a = (vf)((vi)x & 0x7fffffff);

	return vf_max(x, vf_set(0.0f)) + log1p_unit(vf_exp(-a));
}

/* One row of a head. */
struct scan_row {
	const float	*x;
	const float	*b;
	const float	*c;
	float		*y;
	float		dt;
	float		decay;
	float		skip;
};

/* @nr registers of dimensions from @p on. */
static __inline_always void scan_lanes(const struct kern_state *s, float *state,
				       const struct scan_row *r, u32 p, const u32 nr)
{
	const vf decay = vf_set(r->decay);
	vf x[4], y[4], v, by, c;
	u32 n, j;

	for (j = 0; j < nr; j++) {
		x[j] = vf_load(r->x + p + j * VW);
		y[j] = x[j] * r->skip;
	}
	for (n = 0, state += p; n < s->d_state; n++, state += s->head_dim) {
		by = vf_set(r->dt * r->b[n]);
		c = vf_set(r->c[n]);
		for (j = 0; j < nr; j++) {
			v = vf_fma(by, x[j], vf_load(state + j * VW) * decay);
			vf_store(state + j * VW, v);
			y[j] = vf_fma(c, v, y[j]);
		}
	}
	for (j = 0; j < nr; j++)
		vf_store(r->y + p + j * VW, y[j]);
}

/* The state that the token at @pos changes, in the record where it belongs. */
static float *state_enter(const struct kern_scan *a, const struct kern_attn_seq *seq,
			  u32 pos, u32 head)
{
	const struct kern_state *s = a->state;
	const size_t bytes = (size_t)s->d_state * s->head_dim * sizeof(float);
	float *to = kern_state_at(s, seq->table, pos / s->tokens, a->layer, head);

	if (!pos)
		memset(to, 0, bytes);
	else if (!(pos % s->tokens))
		memcpy(to, kern_state_at(s, seq->table, kern_state_before(s, pos),
					 a->layer, head), bytes);
	return to;
}

static struct scan_row scan_row(const struct kern_scan *a, u32 row, u32 h)
{
	const struct kern_state *s = a->state;
	const u32 p = s->head_dim, g = h / (s->heads / s->groups);
	const float *x = a->x + (u64)row * kern_state_channels(s);
	const vf dt = softplus(vf_set(a->dt[(u64)row * s->heads + h] +
				      a->dt_bias[h]));
	struct scan_row r = {
		.x = x + h * p, .b = x + s->heads * p + g * s->d_state,
		.y = a->y + ((u64)row * s->heads + h) * p, .dt = dt[0],
		.skip = a->d[h],
	};

	r.c = r.b + s->groups * s->d_state;
	r.decay = vf_exp(-(vf_exp(vf_set(a->a_log[h])) * dt))[0];
	return r;
}

static void scan_item(void *arg, u32 item)
{
	const struct kern_scan *a = arg;
	const struct kern_state *s = a->state;
	const u32 h = item % s->heads;
	const struct kern_attn_seq *seq = &a->seqs[item / s->heads];
	struct scan_row r;
	float *state = NULL;
	u32 i, p;

	for (i = 0; i < seq->nr_rows; i++) {
		if (!i || !((seq->start_pos + i) % s->tokens))
			state = state_enter(a, seq, seq->start_pos + i, h);
		r = scan_row(a, seq->first_row + i, h);
		for (p = 0; p + 4 * VW <= s->head_dim; p += 4 * VW)
			scan_lanes(s, state, &r, p, 4);
		for (; p < s->head_dim; p += VW)
			scan_lanes(s, state, &r, p, 1);
	}
}

void KERN_FN(scan)(struct kern_ctx *ctx, const struct kern_scan *a)
{
	const struct kern_state *s = a->state;

	if (rows_of(a->seqs, a->nr_seqs) * s->heads * s->head_dim * s->d_state <
	    KERN_PARALLEL_MIN / 2)
		ctx = NULL;
	kern_parallel(ctx, a->nr_seqs * s->heads, scan_item, (void *)(uintptr_t)a);
}

/* A part of a row.  What pads a remainder is 0, and adds nothing. */
static void gated_norm_part(const struct kern_gated_norm *a, u64 at, const float *w,
			    u32 d)
{
	const float *x = a->x + at, *z = a->z + at;
	float *y = a->y + at, inv;
	vf v, acc = { };
	u32 i;

	for (i = 0; i + VW <= d; i += VW) {
		v = vf_load(x + i) * silu(vf_load(z + i));
		vf_store(y + i, v);
		acc = vf_fma(v, v, acc);
	}
	if (i < d) {
		v = vf_load_part(x, i, d - i, KERN_F32) *
		    silu(vf_load_part(z, i, d - i, KERN_F32));
		vf_store_part(y + i, v, d - i);
		acc = vf_fma(v, v, acc);
	}
	inv = 1.0f / __builtin_sqrtf(vf_sum(acc) / d + a->eps);
	for (i = 0; i + VW <= d; i += VW)
		vf_store(y + i, vf_load(y + i) * inv * vf_load(w + i));
	for (; i < d; i++)
		y[i] = y[i] * inv * w[i];
}

static void gated_norm_item(void *arg, u32 row)
{
	const struct kern_gated_norm *a = arg;
	const u32 each = a->d / a->groups;
	u32 g;

	for (g = 0; g < a->groups; g++)
		gated_norm_part(a, (u64)row * a->d + g * each, a->w + g * each, each);
}

void KERN_FN(gated_norm)(struct kern_ctx *ctx, const struct kern_gated_norm *a)
{
	if ((u64)a->m * a->d < KERN_PARALLEL_MIN / 2)
		ctx = NULL;
	kern_parallel(ctx, a->m, gated_norm_item, (void *)(uintptr_t)a);
}
