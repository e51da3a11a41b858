// SPDX-License-Identifier: Apache-2.0
/*
 * salvage.c - salvage of an arena after an end inside an event
 *
 * Lists, counts, trees and tables may be half changed.  Some facts are valid in
 * any case.  Each of these is a single store, made after the fields that it
 * vouches for, so it holds after any last store:
 *
 *	kv_tenant	used: key, secret
 *	kv_domain	used: name, identity, shape, limits
 *	kv_pool		online; prio
 *	kv_extent	state, backed: tenant, domain, span; sent, mapped
 *	kv_span		nr_extents, if all those extents agree
 *	kv_block	SEALED or CACHED: domain, ids, name
 *	kv_entry	ENTF_HOST, ENTF_AREA and a SEALED slot: ids, name
 *	kv_node		ref, if the content names the node: parent
 *	kv_client	state: tenant, domain; last_number, committed
 *	kv_seq		state: all fields that were set at open, arrival
 *
 * These facts are read, and everything else is made anew:
 *
 *  - Content that has a name is cache, in the index (salvage_index.c).  A name
 *    follows from its parent's, so a wrong parent is detected.
 *  - Sequences have no table and no ids.  They become RECOMPUTE at a new epoch,
 *    and their clients match them again, which finds cached blocks.  Leases are
 *    closed: they would hold nothing.
 *  - Open steps are void.  They may still write blocks.  So every block that is
 *    neither free nor proven is QUARANTINE, until no client of the domain is
 *    away, and the device of none that is dead may go on (salvage_release() in
 *    resume.c).
 *  - Extents that were asked back are asked back further, as if the pool were
 *    smaller: clients may have unmapped them.
 *
 * This file has the order of these steps, domains, clients and sequences.  Facts
 * that contradict each other, or that no core would have written, are damage,
 * and the arena is refused.
 */
#include "kvmm/core/adopt/adopt.h"

/* Balance two counters: @came = @went + @there, raising the one that is low. */
static void event_balance(u64 *came, u64 *went, u64 there)
{
	if (*came < *went + there)
		*came = *went + there;
	else
		*went = *came - there;
	KV_BUG_ON(*came != *went + there);
}

/* Counters go on as if all that is lost had ended. */
static void events_balance(const struct core *c, u64 *ev)
{
	u64 used = 0, seqs = 0;
	u32 i;

	for_each_domain(c, i)
		used += domain_used(&c->domains[i]);
	for (i = 0; i < core_cfg(c)->max_clients; i++)
		seqs += c->clients[i].nr_seqs;
	event_balance(&ev[CORE_EV_pgalloc], &ev[CORE_EV_pgfree], used);
	event_balance(&ev[CORE_EV_step_begin], &ev[CORE_EV_step_end], 0);
	if (ev[CORE_EV_seq_open] + ev[CORE_EV_seq_fork] <
	    ev[CORE_EV_seq_close] + seqs)
		ev[CORE_EV_seq_open] = ev[CORE_EV_seq_close] + seqs -
				       ev[CORE_EV_seq_fork];
	else
		ev[CORE_EV_seq_close] = ev[CORE_EV_seq_open] +
					ev[CORE_EV_seq_fork] - seqs;
	KV_BUG_ON(ev[CORE_EV_seq_open] + ev[CORE_EV_seq_fork] !=
		  ev[CORE_EV_seq_close] + seqs);
}

/* ---- the head ---- */

static void free_lists(struct core *c)
{
	const struct core_sizes *s = core_sizes(c);
	struct core_head *h = c->head;
	u32 i;

	for (i = 0; i < s->nr_holds; i++)
		c->holds[i].next = i + 1 < s->nr_holds ? i + 1 : CORE_NONE;
	h->free_hold = 0;
	for (i = 0; i < s->nr_idpages; i++)
		c->idpages[i].next = i + 1 < s->nr_idpages ? i + 1 : CORE_NONE;
	h->free_idpage = 0;
	h->nr_free_idpages = s->nr_idpages;
	for (i = 0; i < s->nr_buckets; i++)
		c->buckets[i] = CORE_NONE;
	for (i = 0; i < s->nr_ghosts; i++)
		c->ghosts[i].domain = GHOST_UNUSED;
}

static void zones_reset(struct core *c)
{
	u32 i;

	for (i = 0; i < c->head->nr_zones; i++) {
		struct kv_zone *z = &c->head->zones[i];

		*z = (struct kv_zone){
			.first = z->first, .nr_extents = z->nr_extents,
			.nr_online = z->nr_online, .device = z->device,
			.touched = z->touched, .resized = c->now,
		};
	}
}

static void head_reset(struct core *c, struct walk *w)
{
	struct core_head *h = c->head;
	u32 i;

	memset(h->revokes, 0, sizeof(h->revokes));
	memset(h->evacs, 0, sizeof(h->evacs));
	life_reset(c);
	for (i = 0; i < CORE_MAX_EVACS; i++)
		h->evacs[i].span = CORE_NONE;
	for (i = 0; i < CORE_MAX_MOVES; i++)
		h->moves[i] = (struct kv_move){
			.generation = h->moves[i].generation };
	psi_init(c, &h->psi);
	h->nr_revokes = 0;
	h->bar_pass = 0;
	h->more = 0;
	zones_reset(c);
	h->ticked = c->now;
	h->nr_copies = 0;
	h->nr_ios = 0;
	h->nr_overdue = 0;
	h->stalled = 0;
	h->nr_moves = 0;
	h->nr_leases = 0;
	h->promote_head = CORE_NONE;
	h->promote_tail = CORE_NONE;
	h->evac_look = 0;
	h->clean_after = 0;
	free_lists(c);
}

static void pool_reset(struct core *c, struct walk *w, u32 i)
{
	const struct core_config *cfg = core_cfg(c);
	u64 bytes = i == CORE_POOL_DEV ? cfg->pool_bytes :
		    i == CORE_POOL_HOST ? cfg->host_bytes : cfg->area_bytes;
	struct kv_pool *p = core_pool(c, i), was = *p;
	u32 most = (u32)(bytes / cfg->extent_size);

	*p = (struct kv_pool){
		.nr_extents = i < CORE_POOL_AREA ? most : was.nr_extents,
		.online = i < CORE_POOL_AREA ? bytes != 0 : was.online == 1,
		.prio = was.prio, .errors = was.errors,
		.readonly = !!was.readonly, .leaving = !!was.leaving,
		.moved = c->now, .io_head = CORE_NONE, .io_tail = CORE_NONE,
	};
	if (!p->online)
		p->nr_extents = 0;
	expect(w, "adopt", "extents of pool", i, p->nr_extents > most, 0);
	if (i)
		p->first = core_pool(c, i - 1)->first + (i == CORE_POOL_HOST ||
			   i == CORE_POOL_AREA ? core_pool(c, i - 1)->nr_extents :
			   (u32)(cfg->area_bytes / cfg->extent_size));
	KV_BUG_ON(!w->r->nr_faults && (u64)p->first + p->nr_extents >
		  core_sizes(c)->all_extents);
}

/* ---- tenants and domains ---- */

static void tenants_reset(struct core *c, struct walk *w)
{
	u32 i;

	c->head->nr_tenants = 0;
	for (i = 0; i < core_cfg(c)->max_tenants; i++) {
		struct kv_tenant *t = &c->tenants[i];

		expect(w, "adopt", "use of tenant", i, t->used > 1, 0);
		if (!t->used)
			memset(t, 0, sizeof(*t));
		c->head->nr_tenants += t->used;
		t->nr_clients = 0;
		t->nr_domains = 0;
	}
	KV_BUG_ON(!w->r->nr_faults &&
		  c->head->nr_tenants > core_cfg(c)->max_tenants);
}

/* Empty the parts in the lower pools, but keep their limits. */
static void parts_reset(struct core *c, u32 dom)
{
	u32 i;

	for (i = CORE_POOL_HOST; i < CORE_NR_POOLS; i++) {
		u64 most = part_at(c, part_index(c, dom, i))->max_bytes;

		if (c->domains[dom].used) {
			domain_part_init(c, dom, i);
			limit_set_part(c, dom, i, most);
		} else {
			memset(part_at(c, part_index(c, dom, i)), 0,
			       sizeof(struct kv_part));
		}
	}
}

static void domain_reset(struct core *c, struct walk *w, u32 dom)
{
	struct kv_domain *d = &c->domains[dom];

	expect(w, "adopt", "use of domain", dom, d->used > 1, 0);
	if (!d->used || w->r->nr_faults) {
		memset(d, 0, sizeof(*d));
		return;
	}
	if (d->tenant >= core_cfg(c)->max_tenants ||
	    !c->tenants[d->tenant].used || domain_restore(c, d)) {
		walk_fault(w, "adopt", "facts of domain", dom, 0, 1);
		memset(d, 0, sizeof(*d));
		return;
	}
	limit_restore(d);
	KV_BUG_ON(d->nr_clients || d->nr_running || d->nr_waiting);
	KV_BUG_ON(d->dev.nr_spans || d->dev.reserved || d->dev.pending_spans);
	KV_BUG_ON(!d->group[0].block_tokens || !d->dev.span_extents);
	c->tenants[d->tenant].nr_domains++;
	KV_BUG_ON(c->tenants[d->tenant].nr_domains > core_cfg(c)->max_domains);
	lru_init(c, dom);
	life_domain(c, dom);
}

/* ---- clients and sequences ---- */

static void client_reset(struct core *c, struct walk *w, u32 i)
{
	struct kv_client *cl = &c->clients[i], was = *cl;
	const struct core_config *cfg = core_cfg(c);

	memset(cl, 0, sizeof(*cl));
	if (was.state == CLI_FREE)
		return;
	if (was.state > CLI_DEAD || was.domain >= cfg->max_domains ||
	    !c->domains[was.domain].used ||
	    was.tenant != c->domains[was.domain].tenant || !was.max_steps ||
	    was.max_steps > cfg->max_steps || !was.max_seqs ||
	    was.max_seqs > cfg->max_seqs) {
		walk_fault(w, "adopt", "facts of client", i, 0, 1);
		return;
	}
	*cl = (struct kv_client){
		.state = was.state, .tenant = was.tenant, .domain = was.domain,
		.max_steps = was.max_steps, .max_seqs = was.max_seqs,
		.last_number = was.last_number, .away = was.away,
		.committed = min(was.committed, was.last_number),
		.free_page = CORE_NONE, .nr_free_pages = cfg->nr_tables,
		.unacked_since = c->now, .draining = was.draining,
		.leader = was.leader, .shards = was.shards, .broken = was.broken,
		.quiet = was.quiet, .joining = was.joining,
	};
	c->domains[cl->domain].nr_clients++;
	KV_BUG_ON(c->domains[cl->domain].nr_clients > cfg->max_clients);
	c->tenants[cl->tenant].nr_clients++;
}

/* Could a client have opened this sequence?  Else its fields are damaged. */
static bool seq_is_sane(const struct core *c, const struct kv_seq *s)
{
	u64 tokens = (u64)s->prompt_len + s->max_tokens;

	return s->prompt_len && s->state < KVMM_NR_SEQ_STATES &&
	       tokens <= (u64)core_cfg(c)->nr_tables * KVMM_TABLE_ENTRIES *
			 c->domains[s->domain].group[0].block_tokens &&
	       s->nr_retains <= SEQ_RETAINS &&
	       !(s->open_flags & ~CORE_OPEN_FLAGS);
}

/* Keep the fields that were set at open, and the number of lost tokens. */
static void seq_reset(struct core *c, u32 i)
{
	struct kv_seq *s = &c->seqs[i], was = *s;
	u32 keep = SEQF_COLD | SEQF_DONTNEED | SEQF_DROPFOUND | SEQF_RETAIN;

	*s = (struct kv_seq){
		.generation = was.generation, .open_flags = was.open_flags,
		.state = was.state == KVMM_SEQ_FAILED ? was.state :
							KVMM_SEQ_RECOMPUTE,
		.reason = was.state == KVMM_SEQ_FAILED ? was.reason : 0,
		.flags = (was.flags & keep) | SEQF_PREEMPTED,
		.client = was.client, .domain = was.domain,
		.priority = was.priority, .salt = was.salt,
		.prompt_len = was.prompt_len, .max_tokens = was.max_tokens,
		.family = was.family, .arrival = was.arrival,
		.fam_prev = i, .fam_next = i, .since = c->now,
		.epoch = was.epoch + 1, .born = was.born,
		.lost_len = min(was.valid_len,
				was.prompt_len + was.max_tokens),
		.nr_preempted = was.nr_preempted + 1,
		.keep_until = was.keep_until, .nr_retains = was.nr_retains,
		.id_head = CORE_NONE, .id_tail = CORE_NONE,
		.prev = CORE_NONE, .next = CORE_NONE,
		.limiting_pool = KVMM_NO_POOL, .fill_on = CORE_NONE,
	};
	seq_tabs_init(c, s);
	memcpy(s->retains, was.retains, sizeof(s->retains));
	s->rank = order_rank(c, s);
	c->head->arrival = max(c->head->arrival, s->arrival + 1);
	if ((s32)(s->family - c->head->family) >= 0)
		c->head->family = s->family + 1;
	c->clients[s->client].nr_seqs++;
	KV_BUG_ON(c->clients[s->client].nr_seqs >
		  c->clients[s->client].max_seqs);
	psi_task(c, s);
}

/* Close the record; its old handle becomes invalid. */
static void seq_clear(struct core *c, u32 i)
{
	struct kv_seq *s = &c->seqs[i];
	u32 generation = s->generation + 1;

	memset(s, 0, sizeof(*s));
	s->generation = generation ? generation : 1;
	s->state = KVMM_SEQ_CLOSED;
}

static bool seq_join(struct core *c, u32 i, u32 kin)
{
	struct kv_seq *s = &c->seqs[i], *k = &c->seqs[kin];

	if (k->state == KVMM_SEQ_CLOSED || k->family != s->family ||
	    k->client != s->client)
		return false;
	KV_BUG_ON(s->fam_next != i || s->fam_prev != i);
	KV_BUG_ON(c->seqs[k->fam_next].fam_prev != kin);
	s->fam_next = k->fam_next;
	s->fam_prev = kin;
	c->seqs[k->fam_next].fam_prev = i;
	k->fam_next = i;
	KV_BUG_ON(c->seqs[s->fam_next].fam_prev != i);
	return true;
}

/*
 * Link forks of one family again.  The scratch array is a hash table of families.
 * Where it is too full, as in tiny pools, all sequences of the client are tried.
 */
static void seq_find_kin(struct core *c, u32 i)
{
	u32 nr = core_sizes(c)->nr_blocks, n, at;

	for (n = 0; n < 8; n++) {
		at = (c->seqs[i].family + n) % nr;
		if (!c->scratch[at]) {
			c->scratch[at] = i + 1;
			return;
		}
		KV_BUG_ON(c->scratch[at] > i);
		if (seq_join(c, i, c->scratch[at] - 1))
			return;
	}
	for (n = i - i % core_cfg(c)->max_seqs; n < i; n++)
		if (seq_join(c, i, n))
			return;
}

static void client_seqs(struct core *c, struct walk *w, u32 client)
{
	struct kv_client *cl = &c->clients[client];
	u32 first = client * core_cfg(c)->max_seqs, i, *free = &cl->free_seq;

	for (i = first; i < first + core_cfg(c)->max_seqs; i++) {
		struct kv_seq *s = &c->seqs[i];
		bool kept = cl->state == CLI_ALIVE && i - first < cl->max_seqs &&
			    s->state != KVMM_SEQ_CLOSED &&
			    !(s->flags & (SEQF_CLOSING | SEQF_LEASE));

		if (kept && (s->client != client || s->domain != cl->domain ||
			     !seq_is_sane(c, s))) {
			walk_fault(w, "adopt", "facts of seq", i, 0, 1);
			kept = false;
		}
		if (kept) {
			seq_reset(c, i);
			seq_find_kin(c, i);
			continue;
		}
		seq_clear(c, i);
		if (i - first >= cl->max_seqs)
			continue;
		KV_BUG_ON(s->state != KVMM_SEQ_CLOSED || s->tab.nr_blocks);
		*free = i - first;
		free = &s->next;
	}
	*free = CORE_NONE;
	KV_BUG_ON(cl->nr_seqs > cl->max_seqs);
}

/* ---- all steps of a salvage ---- */

static void clients_reset(struct core *c, struct walk *w)
{
	u32 i, ghosts;

	memset(c->scratch, 0, sizeof(*c->scratch) *
	       (u64)core_sizes(c)->nr_blocks);
	for (i = 0; i < core_cfg(c)->max_clients; i++)
		client_reset(c, w, i);
	if (!w->r->nr_faults && !ranks_restore(c))
		walk_fault(w, "adopt", "ranks of clients", 0, 0, 1);
	for (i = 0; i < core_cfg(c)->max_clients; i++)
		client_seqs(c, w, i);
	for (i = 0; i < core_cfg(c)->max_tenants; i++) {
		u32 n;

		for (n = 0, ghosts = 0; n < core_cfg(c)->max_clients; n++)
			ghosts += c->clients[n].state == CLI_DETACHED &&
				  c->clients[n].tenant == i;
		c->tenants[i].ghosts = max(c->tenants[i].ghosts, ghosts);
	}
}

/**
 * salvage() - make an arena anew from its primary facts
 *
 * Return: 0; -EUCLEAN: facts contradict each other, as @w describes.
 */
int salvage(struct core *c, struct walk *w)
{
	u64 ev[NR_CORE_EVENTS];
	u32 i;

	memcpy(ev, c->head->events, sizeof(ev));
	head_reset(c, w);
	for (i = 0; i < CORE_NR_POOLS; i++)
		pool_reset(c, w, i);
	tenants_reset(c, w);
	for (i = 0; i < core_cfg(c)->max_domains; i++) {
		domain_reset(c, w, i);
		parts_reset(c, i);
	}
	clients_reset(c, w);
	if (w->r->nr_faults)
		return -EUCLEAN;
	salvage_extents(c, w);
	if (w->r->nr_faults)
		return -EUCLEAN;
	salvage_index(c);
	salvage_blocks(c);
	salvage_cache(c);
	KV_BUG_ON(c->head->nr_copies || c->head->nr_ios || c->head->nr_moves);
	KV_BUG_ON(c->head->nr_free_nodes > core_sizes(c)->nr_nodes);
	KV_BUG_ON(c->head->nr_free_entries > core_sizes(c)->nr_entries);
	limit_settle(c);
	events_balance(c, ev);
	memcpy(c->head->events, ev, sizeof(ev));
	return 0;
}
