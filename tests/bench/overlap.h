/* SPDX-License-Identifier: Apache-2.0 */
/*
 * overlap.h - steps of sequences beside promotions of another one, for bench_overlap
 *
 *	overlap_client.c	a client with a sequence that steps, and one that is
 *				sent out and promoted without a pause
 *	overlap_steps.c		the rounds and their figures
 */
#ifndef TESTS_BENCH_OVERLAP_H
#define TESTS_BENCH_OVERLAP_H

#include "tests/bench/bench.h"

#define OV_TOKENS	16u		/* of a block of 768 KiB */
#define OV_LAYERS	16u
#define OV_HEADS	12u
#define OV_HEAD_BYTES	128u
#define OV_BLOCK	((u64)OV_TOKENS * OV_LAYERS * OV_HEADS * OV_HEAD_BYTES * 2)
#define OV_BLOCKS	93u		/* of the promoted sequence */
#define OV_SAMPLES	20000u

/**
 * struct ov_client - an attachment
 * @seq:      that steps; 0: none yet
 * @promoted: that is sent out and promoted
 * @count:    of its promotions
 * @order_ns: of the requests that ordered them, until they were answered
 * @state:    the last one in which @promoted was found and sent on
 */
struct ov_client {
	struct kvmm	*k;
	u64		step;
	u64		seq;
	u64		promoted;
	u64		count;
	u64		order_ns;
	u32		state;
};

/**
 * struct ov_steps - times of steps in microseconds
 * @whole: a step, with its work
 * @wait:  the part in which it waited for the answers to STEP_BEGIN and STEP_END
 */
struct ov_steps {
	double	whole[2];	/* p50, p99 */
	double	wait[2];
	u32	nr;
};

void ov_attach(struct ov_client *c, const char *socket, const char *domain);
/* Make the sequence that is promoted, and send it out. */
void ov_promoted_open(struct ov_client *c);
/* Go on: send it out if it is there, promote it if it is out. */
void ov_promote(struct ov_client *c);
/* Step for @ns; with @promote, call ov_promote() between steps. */
void ov_steps(struct ov_client *c, u64 ns, bool promote, struct ov_steps *out);

/* overlap_steps.c: all of it, on a daemon of its own */
void ov_run(void);

#endif /* TESTS_BENCH_OVERLAP_H */
