/* SPDX-License-Identifier: Apache-2.0 */
/*
 * waste.h - the parts that the pool of a simulated node has
 *
 * After a step all bytes of the pool are parted into
 *
 *	live	the KV of a token of a sequence, or its place while an open step
 *		writes it; in a group with a window only if the next step attends to it
 *	tails	ends of blocks that are not full yet
 *	behind	tokens behind the window, in blocks that have tokens of the window too
 *	spans	ends of spans, and extents too few for one more span
 *	held	reserved for prompts that were admitted, or leaving
 *	cache	only the prefix index holds it: any sequence may have it
 *	free	the same
 */
#ifndef TESTS_BENCH_WASTE_H
#define TESTS_BENCH_WASTE_H

#include "tests/bench/node.h"

enum part { LIVE, TAILS, BEHIND, SPANS, HELD, CACHE, FREE, NR_PARTS };

/**
 * struct use - the parts, summed over steps
 * @part:     bytes
 * @total:    bytes of the pool
 * @in_spans: bytes of @part[FREE] that are free blocks in the span of a domain
 * @mapped, @distinct: blocks in the tables of sequences, and without repetition
 * @spans:    steps that were measured, of each request; NULL: they are not noted
 */
struct use {
	double	part[NR_PARTS];
	double	total;
	double	in_spans;
	double	mapped, distinct;
	u64	seqs;
	u64	steps;
	u32	preempted;
	struct span {
		u32	from, to;	/* tokens of the answer, steps */
		bool	seen;
	} *spans;
};

/* nd_node.on_step; nd_node.arg is a struct use. */
void use_measure(struct nd_node *n, u32 engine);

/* A part in percent of the pool. */
double use_percent(const struct use *u, enum part p);

/* Live in percent of all but free and cache. */
double use_live_of_held(const struct use *u);

#endif /* TESTS_BENCH_WASTE_H */
