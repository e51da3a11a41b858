/* SPDX-License-Identifier: Apache-2.0 */
/*
 * state.h - recurrent layers (Mamba-2): their states in paged memory, and their ops
 *
 * A recurrent layer has no K and V.  Each sequence has one state in it, and each token
 * changes that state.  The states of all recurrent layers of a sequence, after some
 * token, are a record.  A record lies in whole blocks of the pool.
 *
 * Records.  Record r has the state after the first (r + 1) * tokens tokens of the
 * sequence, or after all of them if there are fewer.  So a token at position p reads
 * zeros if p is 0, record p / tokens - 1 if p is a multiple of @tokens, else record
 * p / tokens; and its state is written to record p / tokens.  A complete record is not
 * written again.  Records before the first one that is read need no block.
 *
 * Units.  A layer has kern_state_units() units of the same size: one for each head, and
 * some for the convolution's channels that heads share.  Unit u of layer l has the
 * number l * units + u in its record; kern_state_at() is its place.  All elements are
 * f32.  The unit of a head is
 *	[d_state][head_dim]	the state S
 *	[conv - 1][head_dim]	the last inputs of the head's channels, oldest first
 * and a shared unit, with as many channels as kern_state_shared() says, is
 *	[conv - 1][channels]	the last inputs of these channels, oldest first
 * The last shared unit may have fewer channels in use; their place does not change.
 *
 * Channels of the convolution are, in order, x [heads][head_dim], B [groups][d_state]
 * and C [groups][d_state]; head h reads B and C of group h / (heads / groups).
 *
 * Exactness.  An op takes the tokens of a sequence one after the other, and rounds the
 * state to f32 after each.  So in exact mode its bits do not depend on the cuts of the
 * sequence into chunks, nor on @tokens.
 */
#ifndef KERNELS_STATE_H
#define KERNELS_STATE_H

#include <kvmm/types.h>

#define KERN_STATE_ALIGN	128u	/* of units */
#define KERN_MAX_CONV		8u	/* taps of a convolution */

struct kern_attn_seq;

/**
 * struct kern_state - places of the states of recurrent layers
 * @base:        the pool's base in this process
 * @unit:        bytes per unit of a table entry
 * @block_bytes: bytes of a block; at least one unit of state
 * @tokens:      tokens between two records, a multiple of 16
 * @nr_layers:   recurrent layers
 * @group:       number of the layer group
 * @heads:       H, a multiple of @groups
 * @head_dim:    P, a multiple of 16, at most 256
 * @d_state:     N, a multiple of 16, at most 256
 * @groups:      G
 * @conv:        taps of the convolution, 2 to KERN_MAX_CONV
 */
struct kern_state {
	u8	*base;
	u64	unit;
	u64	block_bytes;
	u32	tokens;
	u32	nr_layers;
	u32	group;
	u32	heads;
	u32	head_dim;
	u32	d_state;
	u32	groups;
	u32	conv;
};

/* Floats of a unit. */
static inline u32 kern_state_floats(const struct kern_state *s)
{
	return s->head_dim * (s->d_state + s->conv - 1);
}

/* Channels of the convolution. */
static inline u32 kern_state_channels(const struct kern_state *s)
{
	return s->heads * s->head_dim + 2 * s->groups * s->d_state;
}

/* Channels of a shared unit. */
static inline u32 kern_state_shared(const struct kern_state *s)
{
	return kern_state_floats(s) / (s->conv - 1) / 16 * 16;
}

/* Units of a layer. */
static inline u32 kern_state_units(const struct kern_state *s)
{
	return s->heads + DIV_ROUND_UP(2 * s->groups * s->d_state,
				       kern_state_shared(s));
}

/* Bytes from a unit to the next in its block. */
static inline u64 kern_state_stride(const struct kern_state *s)
{
	return ALIGN_UP((u64)kern_state_floats(s) * sizeof(float),
			(u64)KERN_STATE_ALIGN);
}

/* Units of a block. */
static inline u32 kern_state_per(const struct kern_state *s)
{
	return (u32)(s->block_bytes / kern_state_stride(s));
}

/* Blocks of a record. */
static inline u32 kern_state_blocks(const struct kern_state *s)
{
	return DIV_ROUND_UP(s->nr_layers * kern_state_units(s),
			    kern_state_per(s));
}

/* Place of unit @u of @layer in record @r of the sequence with @table. */
static inline float *kern_state_at(const struct kern_state *s, const u32 *table,
				   u32 r, u32 layer, u32 u)
{
	const u32 per = kern_state_per(s);
	const u32 at = layer * kern_state_units(s) + u;

	return (float *)(void *)(s->base + s->unit *
				 table[(u64)r * kern_state_blocks(s) + at / per] +
				 at % per * kern_state_stride(s));
}

/* The record that a token at position @pos > 0 reads. */
static inline u32 kern_state_before(const struct kern_state *s, u32 pos)
{
	return (pos - 1) / s->tokens;
}

/**
 * struct kern_conv - arguments of one conv call (one layer)
 * @state:   geometry of the states
 * @layer:   number among the recurrent layers
 * @nr_seqs: length of @seqs
 * @seqs:    rows, and tables of the group of states
 * @x:       [M][channels]
 * @w:       [conv][channels], the tap of the oldest input first
 * @bias:    [channels]; may be NULL
 * @y:       [M][channels]; may not overlap @x
 */
struct kern_conv {
	const struct kern_state		*state;
	u32				layer;
	u32				nr_seqs;
	const struct kern_attn_seq	*seqs;
	const float			*x;
	const float			*w;
	const float			*bias;
	float				*y;
};

/**
 * struct kern_scan - arguments of one scan call (one layer)
 * @state:   geometry of the states
 * @layer:   number among the recurrent layers
 * @nr_seqs: length of @seqs
 * @seqs:    rows, and tables of the group of states
 * @x:       [M][channels], the result of conv
 * @dt:      [M][H]
 * @dt_bias: [H]
 * @a_log:   [H]
 * @d:       [H]
 * @y:       [M][H][P]
 */
struct kern_scan {
	const struct kern_state		*state;
	u32				layer;
	u32				nr_seqs;
	const struct kern_attn_seq	*seqs;
	const float			*x;
	const float			*dt;
	const float			*dt_bias;
	const float			*a_log;
	const float			*d;
	float				*y;
};

/**
 * struct kern_gated_norm - arguments of gated_norm
 * @x:      [@m][@d]
 * @z:      [@m][@d], the gate
 * @w:      [@d]
 * @y:      [@m][@d]; may be @x
 * @groups: parts of a row that are normalised apart; divides @d
 */
struct kern_gated_norm {
	const float	*x;
	const float	*z;
	const float	*w;
	float		*y;
	u32		m;
	u32		d;
	u32		groups;
	float		eps;
};

#endif /* KERNELS_STATE_H */
