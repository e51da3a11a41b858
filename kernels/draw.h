/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draw.h - draws from a row of logits on a device
 *
 * Only types that the engine, the model and the kernels share.  The rules of a
 * draw are those of runtime/sampler.
 */
#ifndef KERNELS_DRAW_H
#define KERNELS_DRAW_H

#include <kvmm/types.h>

/* Most of the likeliest tokens that a draw can report. */
#define KERN_TOP_MAX	128u

/* A number that is added to the logit of a token. */
struct kern_bias {
	u32	id;
	float	bias;
};

/* A token of prompt or text, and how often the text has it. */
struct kern_count {
	u32	id;
	u32	count;
};

/* One of the likeliest tokens. */
struct kern_top {
	u32	id;
	float	logprob;
};

/**
 * struct kern_draw - one token to draw
 * @seed:        with @sample and @position the key of its random number
 * @sample:      index of the request's sample
 * @position:    position of the token in its sequence
 * @row:         row of the logits
 * @temperature: 0 is greedy
 * @top_p, @min_p, @top_k: cuts, as in struct sampling_params
 * @repetition, @presence, @frequency: penalties, ditto
 * @logprobs:    report logprob and rank of the token
 * @nr_top:      report this many of the likeliest tokens, with @logprobs; at
 *               most KERN_TOP_MAX
 * @allowed:     only these tokens are drawn; NULL: all may be
 * @masked:      these tokens are not drawn
 * @biases:      each token at most once
 * @counts:      the tokens that penalties apply to, each token once
 *
 * Masks come first, then biases, then penalties; logprobs are those of the
 * row without them.  Draws of one row follow one another, and have the same lists
 * and penalties.
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
 * struct kern_drawn - result of a draw
 * @id:      the token, or -EDOM, -ERANGE, -ENODATA as sampler_sample()
 * @rank:    its rank among the likeliest, from 1; 0 without @logprobs
 * @logprob: its logprob, likewise
 * @nr_top:  how many of the likeliest tokens there are
 */
struct kern_drawn {
	s32	id;
	u32	rank;
	float	logprob;
	u32	nr_top;
};

/**
 * struct kern_sample - tokens to draw from rows of logits on a device
 * @logits:     [rows][@vocab]; changed if a draw has lists
 * @vocab:      1 to 2^30
 * @first_row:  number of the first of these rows, as counted by @draws
 * @draws:      [@nr], in host memory like all members below
 * @nr:         how many, may be 0
 * @drawn:      [@nr], has the results when wait() has returned
 * @top:        [@nr][@top_stride], the same
 * @top_stride: at least the largest nr_top
 *
 * @draws and their lists may be used again at once; @drawn and @top are best
 * allocated with host_alloc().
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
