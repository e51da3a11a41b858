// SPDX-License-Identifier: Apache-2.0
/*
 * orca.c - contiguous reservation as the PagedAttention paper describes Orca
 *
 * A request gets one piece of neighbouring slots for all of its life, from a
 * buddy allocator over the pool:
 *
 *	Max	2,048 tokens, the most that the model can have
 *	Pow2	the prompt, and the unknown length of the answer rounded up to a
 *		power of two
 *	Oracle	the prompt and the answer, as if its length were known
 *
 * The buddy rounds each up to a power of two.  Requests are admitted in order
 * while there is a piece for the next one; a step computes all of a prompt, or
 * one token.
 */
#include "tests/bench/bench.h"
#include "tests/bench/orca.h"

#include <stdlib.h>

#define ORCA_LONGEST	2048u
#define ORCA_RUNNING	8192u

const char * const orca_name[ORCA_NR] = { "orca-max", "orca-pow2",
					  "orca-oracle" };

/* ---- buddies: a tree of the largest free piece under each node ---- */

struct buddy {
	u32	*longest;
	u32	size;		/* a power of two */
};

static u32 round_up_pow2(u32 v)
{
	u32 p = 1;

	while (p < v)
		p *= 2;
	return p;
}

static u32 buddy_init_node(struct buddy *b, u32 node, u32 size, u32 from,
			   u32 slots)
{
	u32 left, right;

	if (size > 1) {
		left = buddy_init_node(b, 2 * node, size / 2, from, slots);
		right = buddy_init_node(b, 2 * node + 1, size / 2,
					from + size / 2, slots);
		b->longest[node] = from + size <= slots ? size :
							  max(left, right);
	} else {
		b->longest[node] = from < slots;
	}
	return b->longest[node];
}

static void buddy_init(struct buddy *b, u32 slots)
{
	b->size = round_up_pow2(slots);
	b->longest = calloc(2ull * b->size, sizeof(*b->longest));
	if (!b->longest)
		bench_die("no memory for a buddy allocator");
	buddy_init_node(b, 1, b->size, 0, slots);
}

/* @size: a power of two.  Return: the node, or 0. */
static u32 buddy_alloc(struct buddy *b, u32 size)
{
	u32 node = 1, at = b->size, up;

	if (b->longest[1] < size)
		return 0;
	for (; at != size; at /= 2)
		node = 2 * node + (b->longest[2 * node] < size);
	b->longest[node] = 0;
	for (up = node / 2; up; up /= 2)
		b->longest[up] = max(b->longest[2 * up],
				     b->longest[2 * up + 1]);
	return node;
}

static void buddy_free(struct buddy *b, u32 node, u32 size)
{
	u32 left, right;

	b->longest[node] = size;
	for (node /= 2; node; node /= 2) {
		left = b->longest[2 * node];
		right = b->longest[2 * node + 1];
		b->longest[node] = left == size && right == size ?
				   2 * size : max(left, right);
		size *= 2;
	}
}

/* ---- serving ---- */

struct running {
	u32	node;
	u32	piece;
	u32	wanted;
	u32	all;
	u32	now;
};

static u32 reservation(enum orca_policy policy, const struct nd_req *r)
{
	if (policy == ORCA_MAX)
		return ORCA_LONGEST;
	return r->prompt + (policy == ORCA_POW2 ? round_up_pow2(r->out) :
						  r->out);
}

static void count(const struct running *run, u32 nr, u32 slots,
		  struct orca_use *u)
{
	double live = 0, later = 0, internal = 0;
	u32 i;

	for (i = 0; i < nr; i++) {
		live += run[i].now;
		later += run[i].all - run[i].now;
		internal += run[i].wanted - run[i].all;
	}
	u->live += 100 * live / slots;
	u->later += 100 * later / slots;
	u->internal += 100 * internal / slots;
	u->external += 100 * (slots - live - later - internal) / slots;
	u->batch += nr;
}

void orca_run(enum orca_policy policy, const struct nd_req *reqs, u32 nr,
	      u32 slots, u32 steps, struct orca_use *use)
{
	static struct running run[ORCA_RUNNING];
	u32 i, next = 0, nr_run = 0, step, node, want;
	struct buddy b;

	buddy_init(&b, slots);
	memset(use, 0, sizeof(*use));
	for (step = 0; step < 2 * steps; step++) {
		for (; nr_run < ORCA_RUNNING; next++) {
			const struct nd_req *r = &reqs[next % nr];

			want = reservation(policy, r);
			node = buddy_alloc(&b, round_up_pow2(want));
			if (!node)
				break;
			run[nr_run++] = (struct running){
				.node = node, .piece = round_up_pow2(want),
				.wanted = want, .all = r->prompt + r->out,
				.now = r->prompt - 1 };
		}
		for (i = 0; i < nr_run; i++)
			run[i].now++;
		if (step >= steps)
			count(run, nr_run, slots, use);
		for (i = nr_run; i-- > 0;) {
			if (run[i].now < run[i].all)
				continue;
			buddy_free(&b, run[i].node, run[i].piece);
			run[i] = run[--nr_run];
		}
	}
	free(b.longest);
	use->live /= steps;
	use->later /= steps;
	use->internal /= steps;
	use->external /= steps;
	use->batch /= steps;
}
