// SPDX-License-Identifier: Apache-2.0
/*
 * state.cu - the ops of recurrent layers
 *
 * Rows of a sequence come one after the other.  In conv a thread has one channel.  In
 * scan a block of threads has one head of one sequence: thread p + q * head_dim has
 * dimension p and every parts-th row of the state from q on, and only it reads and
 * writes these elements of the record, which stay in the caches.  The sums of the parts
 * are added in their order.  How many parts there are depends on head_dim alone.  In
 * gated_norm a block of threads has a part of a row.
 *
 * Blocks for sequences that a recorded step does not have do nothing.
 */
#include "kernels/cuda/fmath.cuh"

#define SCAN_THREADS	256u

/* Unit @u of a layer in record @r. */
DEVICE float *state_at(const struct dev_state &s, const struct dev_batch &b,
		       const struct dev_seq &seq, u32 r, u32 u)
{
	const u32 at = s.layer * s.units + u;

	return (float *)(s.base + s.unit * b.entries[seq.table + r * s.blocks +
						     at / s.per] +
			 (u64)(at % s.per) * s.stride);
}

DEVICE float f_silu(float x)
{
	return x / add_rn(1.0f, f_exp(-x));
}

/*
 * log(1 + u) for u in [0, 1], with a relative error below 2e-7: twice the area tangent
 * of u / (2 + u), which is at most 1 / 3.
 */
DEVICE float f_log1p_unit(float u)
{
	const float t = u / add_rn(u, 2.0f), z = mul_rn(t, t);
	float p;

	p = fma_rn(0x1.e1e1e2p-5f, z, 0x1.111112p-4f);
	p = fma_rn(p, z, 0x1.3b13b2p-4f);
	p = fma_rn(p, z, 0x1.745d18p-4f);
	p = fma_rn(p, z, 0x1.c71c72p-4f);
	p = fma_rn(p, z, 0x1.24924ap-3f);
	p = fma_rn(p, z, 0x1.99999ap-3f);
	p = fma_rn(p, z, 0x1.555556p-2f);
	p = fma_rn(p, mul_rn(z, t), t);
	return add_rn(p, p);
}

DEVICE float f_softplus(float x)
{
	return add_rn(x > 0.0f ? x : 0.0f, f_log1p_unit(f_exp(-fabsf(x))));
}

/* In the grid y is the sequence. */
KERNEL(k_conv, 256)(struct k_conv_args a)
{
	const struct dev_state &s = a.s;
	const u32 c = blockIdx.x * blockDim.x + threadIdx.x;
	const u32 own = s.heads * s.head_dim, past = s.conv - 1;
	u32 unit, at, apart, i, j;
	float in[STATE_MAX_CONV], *rec;

	if (blockIdx.y >= a.batch.step->nr_seqs || c >= s.channels)
		return;
	const struct dev_seq seq = a.batch.seqs[blockIdx.y];

	unit = c < own ? c / s.head_dim : s.heads + (c - own) / s.shared;
	apart = c < own ? s.head_dim : s.shared;
	at = c < own ? s.d_state * s.head_dim + c % s.head_dim :
		       (c - own) % s.shared;
	for (j = 0; j < past; j++)
		in[j] = 0.0f;
	if (seq.start_pos && seq.nr_rows) {
		rec = state_at(s, a.batch, seq, (seq.start_pos - 1) / s.tokens,
			       unit);
		for (j = 0; j < past; j++)
			in[j] = rec[at + j * apart];
	}
	for (i = 0; i < seq.nr_rows; i++) {
		const u64 row = (u64)(seq.first_row + i) * s.channels + c;
		const u32 pos = seq.start_pos + i;
		float sum = a.bias ? a.bias[c] : 0.0f;

		in[past] = a.x[row];
		for (j = 0; j <= past; j++)
			sum = fma_rn(a.w[(u64)j * s.channels + c], in[j], sum);
		a.y[row] = settled(f_silu(sum), a.settle);
		for (j = 0; j < past; j++)
			in[j] = in[j + 1];
		if (i + 1 < seq.nr_rows && (pos + 1) % s.tokens)
			continue;
		rec = state_at(s, a.batch, seq, pos / s.tokens, unit);
		for (j = 0; j < past; j++)
			rec[at + j * apart] = in[j];
	}
}

/* The part of one thread of a row: its elements of the state, and their sum. */
DEVICE float scan_part(const struct k_scan_args &a, u32 row, u32 head, u32 p,
		       u32 q, const float *from, float *to)
{
	const struct dev_state &s = a.s;
	const u32 group = head / (s.heads / s.groups);
	const float *x = a.x + (u64)row * s.channels;
	const float *b = x + s.heads * s.head_dim + group * s.d_state;
	const float *c = b + s.groups * s.d_state;
	const float dt = f_softplus(add_rn(a.dt[(u64)row * s.heads + head],
					   a.dt_bias[head]));
	const float decay = f_exp(-mul_rn(f_exp(a.a_log[head]), dt));
	const float v = x[head * s.head_dim + p];
	float sum = 0.0f;
	u32 n;

	for (n = q; n < s.d_state; n += a.parts) {
		const u32 e = n * s.head_dim + p;
		const float old = from ? from[e] : 0.0f;
		const float st = fma_rn(mul_rn(dt, b[n]), v, mul_rn(old, decay));

		to[e] = st;
		sum = fma_rn(c[n], st, sum);
	}
	return sum;
}

/* In the grid x is the head, y the sequence. */
KERNEL(k_scan, 256)(struct k_scan_args a)
{
	SHARED(float, part, SCAN_THREADS);
	const struct dev_state &s = a.s;
	const u32 head = blockIdx.x, p = threadIdx.x % s.head_dim;
	const u32 q = threadIdx.x / s.head_dim;
	u32 i, j;

	if (blockIdx.y >= a.batch.step->nr_seqs)
		return;
	const struct dev_seq seq = a.batch.seqs[blockIdx.y];

	for (i = 0; i < seq.nr_rows; i++) {
		const u32 row = seq.first_row + i, pos = seq.start_pos + i;
		float *to = state_at(s, a.batch, seq, pos / s.tokens, head);
		const float *from = pos % s.tokens ? to :
			pos ? state_at(s, a.batch, seq, pos / s.tokens - 1, head) :
			NULL;

		if (q < a.parts)
			part[threadIdx.x] = scan_part(a, row, head, p, q, from, to);
		__syncthreads();
		if (!q) {
			const float x = a.x[(u64)row * s.channels +
					    head * s.head_dim + p];
			float sum = mul_rn(a.d[head], x);

			for (j = 0; j < a.parts; j++)
				sum = add_rn(sum, part[p + j * s.head_dim]);
			a.y[((u64)row * s.heads + head) * s.head_dim + p] =
				settled(sum, a.settle);
		}
		__syncthreads();
	}
}

/* In the grid x is the row, y the part of it that is normalised apart. */
KERNEL(k_gated_norm, 256)(struct k_gated_norm_args a)
{
	SHARED(float, part, SCAN_THREADS / WARP);
	const u32 each = a.d / a.groups, first = blockIdx.y * each;
	const float *x = a.x + (u64)blockIdx.x * a.d + first;
	const float *z = a.z + (u64)blockIdx.x * a.d + first;
	float *y = a.y + (u64)blockIdx.x * a.d + first;
	float sum = 0.0f, inv;
	u32 i;

	for (i = threadIdx.x; i < each; i += blockDim.x) {
		const float g = mul_rn(x[i], f_silu(z[i]));

		y[i] = g;
		sum = fma_rn(g, g, sum);
	}
	sum = warp_sum(sum);
	if (!thread_lane())
		part[thread_warp()] = sum;
	__syncthreads();
	sum = 0.0f;
	for (i = 0; i < blockDim.x / WARP; i++)
		sum = add_rn(sum, part[i]);
	inv = 1.0f / sqrtf(add_rn(sum / each, a.eps));
	for (i = threadIdx.x; i < each; i += blockDim.x)
		y[i] = settled(mul_rn(mul_rn(y[i], inv), a.w[first + i]), a.settle);
}
