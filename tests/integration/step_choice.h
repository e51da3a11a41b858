/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step_choice.h - choice of points in a trace
 */
#ifndef TESTS_STEP_CHOICE_H
#define TESTS_STEP_CHOICE_H

#include "tests/integration/step_trace.h"

/**
 * struct choice - points in an order that spreads any number of them
 * @at:   their indices in the trace
 * @turn: points taken so far
 * @of:   points to be taken
 */
struct choice {
	u32	*at;
	u32	nr;
	u32	from;
	u32	turn;
	u32	of;
};

/**
 * struct campaign - @nr points of the trace
 *
 * Two of five are at stores, one is at a system call, and two are anywhere, one
 * phase after the other.
 *
 * @hit: by point: it was taken
 */
struct campaign {
	const struct step_trace	*t;
	struct choice		stores;
	struct choice		calls;
	struct choice		others[STEP_NR];
	u32			phase;
	u8			*hit;
};

void campaign_make(struct campaign *c, const struct step_trace *t, u32 nr);
/* The point of turn @turn. */
u32 campaign_take(struct campaign *c, u32 turn);
/* A point of phase @phase. */
u32 campaign_take_of(struct campaign *c, u32 phase);
/* Return: number of different points taken. */
u32 campaign_end(struct campaign *c);

#endif /* TESTS_STEP_CHOICE_H */
