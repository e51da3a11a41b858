// SPDX-License-Identifier: Apache-2.0
/*
 * step_choice.c - choice of points in a trace
 *
 * Any number of points is spread over all points of a kind, and begins at
 * another one in each run.  When all of them were taken, the next round begins:
 * the same point is useful again, since the daemon's state differs.
 */
#include <stdlib.h>

#include "tests/integration/harness.h"
#include "tests/integration/step_choice.h"

static void choice_make(struct choice *c, const struct step_trace *t, u32 first,
			u32 last, u32 kinds, u32 of)
{
	u32 i;

	c->at = calloc(last - first + 1, sizeof(*c->at));
	ck_assert_ptr_nonnull(c->at);
	c->nr = 0;
	for (i = first; i < last; i++)
		if (kinds >> t->pt[i].kind & 1)
			c->at[c->nr++] = i;
	c->from = c->nr ? random_below(c->nr) : 0;
	c->turn = 0;
	c->of = max(of, 1u);
}

static u32 choice_take(struct choice *c)
{
	const u64 of = min(c->of, c->nr), turn = c->turn++ % of;

	/* The next round begins at another point: some points are never reached. */
	if (!turn && c->turn > 1)
		c->from = random_below(c->nr);
	return c->at[(c->from + turn * c->nr / of) % c->nr];
}

void campaign_make(struct campaign *c, const struct step_trace *t, u32 nr)
{
	u32 i;

	choice_make(&c->stores, t, 0, t->nr, 1u << STEP_STORE, nr * 2 / 5);
	choice_make(&c->calls, t, 0, t->nr, 1u << STEP_CALL, nr / 5);
	for (i = 0; i < STEP_NR; i++)
		choice_make(&c->others[i], t, t->first[i], t->first[i + 1],
			    1u << STEP_OTHER, nr * 2 / 5 / STEP_NR);
	c->phase = 0;
	c->t = t;
	c->hit = calloc(1, t->nr);
	ck_assert_ptr_nonnull(c->hit);
	ck_assert(c->stores.nr && c->calls.nr);
}

u32 campaign_end(struct campaign *c)
{
	u32 i, distinct = 0;

	for (i = 0; i < c->t->nr; i++)
		distinct += c->hit[i];
	free(c->stores.at);
	free(c->calls.at);
	for (i = 0; i < STEP_NR; i++)
		free(c->others[i].at);
	free(c->hit);
	return distinct;
}

u32 campaign_take(struct campaign *c, u32 turn)
{
	struct choice *of = &c->stores;
	u32 at;

	if (turn % 5 == 2)
		of = &c->calls;
	while (turn % 5 > 2) {
		of = &c->others[c->phase++ % STEP_NR];
		if (of->nr)
			break;
	}
	at = choice_take(of);
	c->hit[at] = 1;
	return at;
}

u32 campaign_take_of(struct campaign *c, u32 phase)
{
	u32 at = choice_take(&c->others[phase]);

	c->hit[at] = 1;
	return at;
}
