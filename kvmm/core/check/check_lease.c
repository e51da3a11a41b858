// SPDX-License-Identifier: Apache-2.0
/*
 * check_lease.c - leases: the heap, the list of those to be promoted, the sums
 */
#include "kvmm/core/check/check.h"

static void walk_lease(struct walk *w, u32 i)
{
	const struct core *c = w->c;
	const struct kv_seq *s = &c->seqs[i];
	const struct kv_tab *t;
	u32 at = s->lease_at, n;

	expect(w, "lease", "place of seq", i,
	       at < c->head->nr_leases && c->leases[at] == i, 1);
	expect(w, "lease", "deadline before that of seq", i, at &&
	       at < c->head->nr_leases &&
	       s->until < c->seqs[c->leases[(at - 1) / 2]].until, 0);
	expect(w, "lease", "flags of seq", i,
	       (s->flags & (SEQF_SWAPPED | SEQF_PAGEDOUT | SEQF_QUEUED | SEQF_RUNNING)),
	       SEQF_SWAPPED | SEQF_PAGEDOUT);
	expect(w, "lease", "place of the promotion of seq", i,
	       s->promote_at <= seq_live(c, s), 1);
	for_each_pte(c, s, t, n)
		expect(w, "lease", "content on a lower tier of seq", i,
		       pte_is_entry(table_pte(c, t, n)), 1);
	for_each_tab(c, s, t) {
		expect(w, "lease", "blocks of seq", i, t->nr_blocks,
		       tab_blocks(c, t, s->valid_len));
		expect(w, "lease", "blocks before the window of seq", i, t->trimmed,
		       group_first(seq_domain(c, s), t->group, s->valid_len));
	}
}

/* Leases that are promoted: the list has each of them once. */
static void walk_promoted(struct walk *w, u32 nr)
{
	const struct core *c = w->c;
	u32 i = c->head->promote_head, prev = CORE_NONE, n;

	for (n = 0; i != CORE_NONE && n <= nr; n++, i = c->seqs[i].next) {
		expect(w, "lease", "promotion of seq", i,
		       !!(c->seqs[i].flags & SEQF_PROMOTE), 1);
		expect(w, "lease", "back link of seq", i, c->seqs[i].prev, prev);
		prev = i;
	}
	expect(w, "lease", "list of those that are promoted", 0, n, nr);
	expect(w, "lease", "end of that list", 0, c->head->promote_tail, prev);
}

/* check_leases() - compare the heap, the list and the sums with all sequences */
void check_leases(struct walk *w)
{
	const struct core *c = w->c;
	u32 i, dom, nr = 0, promoted = 0;

	for (i = 0; i < core_sizes(c)->nr_seqs; i++) {
		if (c->seqs[i].state == KVMM_SEQ_CLOSED ||
		    !(c->seqs[i].flags & SEQF_LEASE))
			continue;
		walk_lease(w, i);
		nr++;
		promoted += !!(c->seqs[i].flags & SEQF_PROMOTE);
	}
	expect(w, "lease", "heap", 0, c->head->nr_leases, nr);
	walk_promoted(w, promoted);
	for_each_domain(c, dom) {
		u32 blocks = 0, leases = 0;

		for (i = 0; i < core_sizes(c)->nr_seqs; i++) {
			const struct kv_seq *s = &c->seqs[i];

			if (s->state == KVMM_SEQ_CLOSED || s->domain != dom ||
			    !(s->flags & SEQF_LEASE))
				continue;
			blocks += seq_live(c, s);
			leases++;
		}
		expect(w, "lease", "blocks of domain", dom, c->domains[dom].leased, blocks);
		expect(w, "lease", "leases of domain", dom, c->domains[dom].nr_leases,
		       leases);
	}
}
