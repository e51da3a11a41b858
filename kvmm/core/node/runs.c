// SPDX-License-Identifier: Apache-2.0
/*
 * runs.c - a view of a sequence's table
 *
 * Only reads.  Tables have as many entries as their sequence has blocks.  A reader
 * takes them in pieces, and other clients are served between these.
 */
#include "kvmm/core/node/node.h"
#include "kvmm/core/runs.h"

/* The run of entry @at of a table. */
static struct core_run run_of(const struct core *c, const struct kv_tab *t, u32 at)
{
	struct core_run r;
	kv_pte_t pte;

	pte = table_pte(c, t, at);
	r = (struct core_run){ .at = at, .nr = 1, .block = CORE_NONE,
			       .group = t->group };
	if (pte_is_present(pte)) {
		const struct kv_block *b = &c->blocks[pte_block(pte)];

		KV_BUG_ON(!b->nr_map || b->domain != tab_seq(c, t)->domain);
		r.block = pte_block(pte);
		r.nr_map = b->nr_map;
		r.open = b->state == BLK_OPEN;
	}
	return r;
}

/* Does @next continue @r? */
static bool run_follows(const struct core_run *r, const struct core_run *next)
{
	if (r->group != next->group)
		return false;
	if (r->block == CORE_NONE || next->block == CORE_NONE)
		return r->block == next->block;
	return next->block == r->block + r->nr && next->nr_map == r->nr_map &&
	       next->open == r->open;
}

/* The table that @at is in, or the next one that has entries from @at on; or NULL. */
static const struct kv_tab *runs_tab(const struct core *c, const struct kv_seq *s,
				     u32 *at)
{
	const struct kv_tab *t;
	u32 g = *at >> CORE_RUN_SHIFT;

	for (; g < seq_groups(c, s); g++) {
		t = seq_tab(c, s, g);
		KV_BUG_ON(t->nr_blocks > CORE_RUN_MASK);
		if ((*at & CORE_RUN_MASK) < t->nr_blocks)
			return t;
		if (g + 1 < seq_groups(c, s))
			*at = (g + 1) << CORE_RUN_SHIFT;
	}
	return NULL;
}

int core_get_runs(const struct core *c, u32 seq, u32 *at, u32 budget,
		  struct core_run *run, u32 nr)
{
	const struct kv_seq *s;
	const struct kv_tab *t;
	struct core_run next;
	u32 n = 0;

	if (seq >= core_sizes(c)->nr_seqs)
		return -ERANGE;
	s = &c->seqs[seq];
	if (s->state == KVMM_SEQ_CLOSED)
		return -ENOENT;
	for (; budget && (t = runs_tab(c, s, at)); budget--, (*at)++) {
		next = run_of(c, t, *at & CORE_RUN_MASK);
		if (n && run_follows(&run[n - 1], &next))
			run[n - 1].nr++;
		else if (n < nr)
			run[n++] = next;
		else
			break;
	}
	return (int)n;
}
