/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draw.h - what is asked of a row of logits, where a device has the row
 *
 * Words that the engine, the model and the kernels share, and nothing else.
 * The laws of a draw are those of runtime/sampler.
 */
#ifndef KERNELS_DRAW_H
#define KERNELS_DRAW_H

#include <kvmm/types.h>

/* Most of the likeliest tokens that a draw tells of. */
#define KERN_TOP_MAX	128u

/* What is added to the logit of a token. */
struct kern_bias {
	u32	id;
	float	bias;
};

/* A token of prompt or text, and how often the text has it. */
struct kern_count {
	u32	id;
	u32	count;
};

/* A token among the likeliest. */
struct kern_top {
	u32	id;
	float	logprob;
};

/**
 * struct kern_draw - one token that is wanted
 * @seed:        with @sample and @position what its random number depends on
 * @sample:      which of the request's
 * @position:    of the token in its sequence
 * @row:         of the logits
 * @temperature: 0 is greedy
 * @top_p, @min_p, @top_k: cuts, as in struct sampling_params
 * @repetition, @presence, @frequency: penalties, ditto
 * @logprobs:    logprob and rank of the token are wanted
 * @nr_top:      how many of the likeliest tokens, with @logprobs; at most
 *               KERN_TOP_MAX
 * @allowed:     no others are drawn; NULL: all may be
 * @masked:      are not drawn
 * @biases:      each token at most once
 * @counts:      what penalties are of, each token once
 *
 * Masks, then biases, then penalties; logprobs are of the row as it was.
 * Draws of one row follow one another, and have the same lists and penalties.
 */
struct kern_draw {
	u64				seed;
	u64				position;
	u32				sample;
	u32				row;
	float				temperature;
	float				top_p;
	float				min_p;
	u32				top_k;
	float				repetition;
	float				presence;
	float				frequency;
	bool				logprobs;
	u32				nr_top;
	u32				nr_allowed;
	u32				nr_masked;
	u32				nr_biases;
	u32				nr_counts;
	const u32			*allowed;
	const u32			*masked;
	const struct kern_bias		*biases;
	const struct kern_count		*counts;
};

/**
 * struct kern_drawn - what came of it
 * @id:      the token, or -EDOM, -ERANGE, -ENODATA as sampler_sample()
 * @rank:    its place among the likeliest, from 1; 0 unless asked for
 * @logprob: ditto
 * @nr_top:  of the likeliest tokens, how many there are
 */
struct kern_drawn {
	s32	id;
	u32	rank;
	float	logprob;
	u32	nr_top;
};

/**
 * struct kern_sample - tokens to be drawn from rows of logits on a device
 * @logits:     [rows][@vocab]; changed, where a draw has lists
 * @vocab:      1 to 2^30
 * @first_row:  number of the first of these rows, as draws count them
 * @draws:      [@nr], of the host like all that follows
 * @nr:         how many, may be 0
 * @drawn:      [@nr], has the results when wait() has returned
 * @top:        [@nr][@top_stride], the same
 * @top_stride: at least the largest nr_top
 *
 * @draws and their lists may be used again at once; @drawn and @top had best be
 * of host_alloc().
 */
struct kern_sample {
	float			*logits;
	u32			vocab;
	u32			first_row;
	const struct kern_draw	*draws;
	u32			nr;
	struct kern_drawn	*drawn;
	struct kern_top		*top;
	u32			top_stride;
};

#endif /* KERNELS_DRAW_H */
