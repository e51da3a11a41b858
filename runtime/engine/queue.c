// SPDX-License-Identifier: Apache-2.0
/*
 * queue.c - requests without a sequence, and their order
 *
 * A lane holds the requests of one flow and one priority in order of arrival.
 * The highest priority goes first.  Among the lanes of a priority the flow that
 * was served least goes first, and equal flows take turns.  A flow is charged
 * for each prompt that it opens, except for the cached part, and for every
 * generated token.  A flow that comes back to the queue starts at the level of
 * the least served flow in the queue; when the queue was empty, it starts at
 * the level of the most served flow.  So no flow saves up service that it did
 * not use.  In a lane the first request is next or, with ENGINE_PREFIX, the one
 * with the longest recently computed prefix.  At most QUEUE_PATIENCE younger
 * requests overtake a request that way.
 *
 * The daemon admits opened sequences by priority and arrival, without regard to
 * flows.  So the engine opens no more than are useful: enough to fill a batch
 * and to hide the time that an opening takes and, when memory is short, hardly
 * any that wait for it (QUEUE_AHEAD).  The other requests wait here, where a
 * request that comes late may still be next.  The number of sequences that may
 * wait in the daemon grows with each one admitted at once, and falls to
 * QUEUE_AHEAD when one has to wait.
 *
 * A request whose n handles are not yet free waits for them before all others,
 * so no request overtakes it for ever.  A request also waits, and lets others
 * go first, while a prompt that begins with the same blocks is being read:
 * waiting for these blocks is cheaper than computing them again.
 *
 * A choice looks at each lane of the highest priority and at QUEUE_LOOK
 * requests, no matter how many there are.
 */
#include <stdlib.h>

#include "runtime/engine/internal.h"

#define QUEUE_LOOK	64u	/* requests looked at by one queue_open() */
#define QUEUE_WINDOW	32u	/* prefixes of a lane that are compared */
#define QUEUE_PATIENCE	16u	/* younger requests that may overtake one */
#define QUEUE_AHEAD	2u	/* sequences that wait in the daemon when memory is short */
#define QUEUE_POLLS	2u	/* times seen waiting that mean: memory is short */
#define QUEUE_START	8u	/* sequences that may wait in the beginning */
#define QUEUE_SPARE	8u	/* a step's batch / this: sequences opened beside it */
#define QUEUE_LATENCY	8u	/* steps until an ended sequence is replaced */
#define QUEUE_RATE_ONE	256u

/**
 * struct lane - requests of one flow and one priority
 * @list:  link in queue.lanes, highest priority first
 * @reqs:  the requests in order of arrival; never empty
 * @round: round of queue_open() in which none of them could be opened
 */
struct lane {
	struct list	list;
	struct flow	*flow;
	u32		priority;
	struct list	reqs;
	u64		round;
};

/* ---- flows ---- */

/* Tokens served to the least served flow in the queue; ~0: there is none. */
static u64 flows_least(const struct queue *q)
{
	const struct flow *f;
	u64 least = UINT64_MAX;

	for (f = q->flows; f; f = f->next)
		if (f->nr_queued)
			least = min(least, f->served);
	return least;
}

static u64 flows_most(const struct queue *q)
{
	const struct flow *f;
	u64 most = 0;

	for (f = q->flows; f; f = f->next)
		most = max(most, f->served);
	return most;
}

/* Free flows that have no request and were not served more than others. */
static void flows_prune(struct queue *q)
{
	struct flow **pos = &q->flows, *f;

	while ((f = *pos)) {
		if (f->nr_reqs || f->served > q->clock) {
			pos = &f->next;
			continue;
		}
		*pos = f->next;
		free(f);
	}
}

static struct flow *flow_get(struct queue *q, u32 id)
{
	struct flow *f;

	for (f = q->flows; f; f = f->next)
		if (f->id == id)
			return f;
	flows_prune(q);
	f = calloc(1, sizeof(*f));
	if (!f)
		return NULL;
	f->id = id;
	f->next = q->flows;
	q->flows = f;
	return f;
}

/* @f is in the queue again: raise it to the level of the others. */
static void flow_wakes(struct queue *q, struct flow *f)
{
	const u64 now = q->nr ? flows_least(q) : flows_most(q);

	q->clock = max(q->clock, now);
	f->served = max(f->served, q->clock);
}

/* flow_charge() - charge the flow of @r for generated tokens */
void flow_charge(struct request *r, u32 tokens)
{
	r->flow->served += tokens;
}

/*
 * flow_admitted() - the prompt of @r is admitted; @cached tokens are not
 * charged
 */
void flow_admitted(struct engine *e, struct request *r, u32 cached)
{
	struct queue *q = &e->queue;
	struct flow *f = r->flow;

	if (f->served > q->clock)
		f->served -= min((u64)cached, f->served - q->clock);
	if (r->root->waits < QUEUE_POLLS)
		q->ahead = min(q->ahead + 1, e->max_seqs);
}

/* flow_put() - @r leaves its flow */
void flow_put(struct request *r)
{
	if (r->flow)
		r->flow->nr_reqs--;
}

/* ---- lanes ---- */

static struct lane *lane_get(struct queue *q, struct flow *f, u32 priority)
{
	struct list *it, *tmp;
	struct lane *l;

	list_for_each(&q->lanes, it, tmp) {
		l = list_entry(it, struct lane, list);
		if (l->priority == priority && l->flow == f)
			return l;
		if (l->priority < priority)
			break;
	}
	l = calloc(1, sizeof(*l));
	if (!l)
		return NULL;
	l->flow = f;
	l->priority = priority;
	list_init(&l->reqs);
	list_add_tail(it, &l->list);	/* before the first lane of lower priority */
	return l;
}

static struct request *lane_first(struct lane *l)
{
	return list_entry(l->reqs.next, struct request, queue);
}

/* queue_init() - 0 or -ENOMEM; call queue_free() in both cases */
int queue_init(struct engine *e, const struct engine_opts *o)
{
	struct queue *q = &e->queue;

	list_init(&q->lanes);
	q->by_prefix = o->schedule == ENGINE_PREFIX;
	q->max_flow = o->max_flow;
	q->ahead = QUEUE_START;
	q->asked = calloc(e->max_seqs, sizeof(struct seq *));
	q->making = calloc(e->max_seqs, sizeof(struct seq *));
	if (!q->asked || !q->making)
		return -ENOMEM;
	return prefix_init(e);
}

void queue_free(struct engine *e)
{
	struct flow *f;

	free(e->queue.asked);
	free(e->queue.making);
	free(e->queue.known);
	while ((f = e->queue.flows)) {
		e->queue.flows = f->next;
		free(f);
	}
}

/**
 * queue_add() - put a new request into the queue
 *
 * Return: 0, -ENOMEM, or -EBUSY when its flow has as many requests as allowed.
 */
int queue_add(struct engine *e, struct request *r)
{
	struct queue *q = &e->queue;
	struct flow *f = flow_get(q, r->c.flow);
	struct lane *l;

	if (!f)
		return -ENOMEM;
	if (q->max_flow && r->c.flow && f->nr_reqs >= q->max_flow)
		return -EBUSY;
	l = lane_get(q, f, r->c.priority);
	if (!l)
		return -ENOMEM;
	if (!f->nr_queued)
		flow_wakes(q, f);
	list_add_tail(&l->reqs, &r->queue);
	r->flow = f;
	r->lane = l;
	f->nr_reqs++;
	f->nr_queued++;
	q->nr++;
	q->waiting += r->c.n;
	return 0;
}

/* queue_remove() - @r has ended, or has a sequence */
void queue_remove(struct engine *e, struct request *r)
{
	struct lane *l = r->lane;

	list_del(&r->queue);
	r->lane = NULL;
	r->flow->nr_queued--;
	e->queue.nr--;
	e->queue.waiting -= r->c.n - r->nr_over;
	if (!list_empty(&l->reqs))
		return;
	list_del(&l->list);
	free(l);
}

/* queue_first() - any request of the queue, NULL when it is empty */
struct request *queue_first(struct engine *e)
{
	struct list *first = e->queue.lanes.next;

	if (list_empty(&e->queue.lanes))
		return NULL;
	return lane_first(list_entry(first, struct lane, list));
}

/* ---- the choice ---- */

/* The lane that is next, of those that were not tried in this round. */
static struct lane *queue_turn(struct queue *q)
{
	struct lane *best = NULL;
	struct list *it, *tmp;

	list_for_each(&q->lanes, it, tmp) {
		struct lane *l = list_entry(it, struct lane, list);

		if (l->round == q->round)
			continue;
		if (best && l->priority < best->priority)
			break;
		if (!best || l->flow->served < best->flow->served ||
		    (l->flow->served == best->flow->served &&
		     l->flow->turn < best->flow->turn))
			best = l;
	}
	return best;
}

/* @r is opened before requests that wait for their adapters. */
static void lane_count_passed(struct lane *l, const struct request *r)
{
	struct list *it, *tmp;

	list_for_each(&l->reqs, it, tmp) {
		struct request *o = list_entry(it, struct request, queue);

		if (o == r)
			break;
		o->passed += !adapters_hold(o);
	}
}

/*
 * Is memory short?  Then requests with adapters that are held go before those with adapters
 * that would displace KV or other adapters.
 */
static bool queue_is_short(const struct engine *e)
{
	return e->queue.ahead < QUEUE_START || adapters_wait(e);
}

/*
 * The first request of a lane that need not wait for another's prompt or for its adapter.  Of
 * those that wait for their adapters the first is asked for if memory is short, else all.
 */
static struct request *lane_next(struct engine *e, struct lane *l, u32 *looks)
{
	const bool is_short = queue_is_short(e);
	struct request *r, *late = NULL;
	struct list *it, *tmp;

	list_for_each(&l->reqs, it, tmp) {
		r = list_entry(it, struct request, queue);
		if (!*looks)
			break;
		--*looks;
		if (!adapters_hold(r)) {
			late = late ? late : r;
			if (!is_short)
				adapters_want(r);
			/* Enough have overtaken it. */
			if (r->passed >= QUEUE_PATIENCE)
				break;
		} else if (!prefix_in_the_making(e, r)) {
			return r;
		}
	}
	if (late)
		adapters_want(late);
	return NULL;
}

/*
 * The same, but prefer the request with the longest recently computed prefix.
 */
static struct request *lane_next_by_prefix(struct engine *e, struct lane *l,
					   u32 *looks)
{
	struct request *best = lane_next(e, l, looks);
	struct list *it, *tmp;
	u32 n, most, nr = 0;

	if (!best || best->passed >= QUEUE_PATIENCE)
		return best;
	most = prefix_known(e, best);
	list_for_each(&l->reqs, it, tmp) {
		struct request *r = list_entry(it, struct request, queue);

		if (++nr > QUEUE_WINDOW)
			break;
		n = prefix_known(e, r);
		if (n > most && adapters_hold(r) && !prefix_in_the_making(e, r)) {
			best = r;
			most = n;
		}
	}
	list_for_each(&l->reqs, it, tmp) {
		struct request *r = list_entry(it, struct request, queue);

		if (r == best)
			break;
		/* lane_count_passed() counts the others. */
		r->passed += adapters_hold(r);
	}
	return best;
}

/* Do enough sequences wait in the daemon, seen from @priority? */
static bool queue_is_ahead(const struct engine *e, u32 priority)
{
	u32 i, nr = 0;

	for (i = 0; i < e->queue.nr_asked; i++)
		nr += e->queue.asked[i]->req->c.priority >= priority;
	return nr >= e->queue.ahead;
}

/* Measure how many handles become free a step. */
static void queue_measure(struct engine *e)
{
	struct queue *q = &e->queue;
	const u64 steps = e->last_step - q->step;

	if (!steps)
		return;
	q->rate = (u32)((7 * q->rate + QUEUE_RATE_ONE * q->freed / steps) / 8);
	q->freed = 0;
	q->step = e->last_step;
}

/* Handles that live requests may hold before no other request is opened. */
static u32 queue_window(const struct engine *e)
{
	const u32 soon = e->queue.rate * QUEUE_LATENCY / QUEUE_RATE_ONE;
	const u32 spare = max(e->max_batch / QUEUE_SPARE + 1, soon);

	return min(e->max_batch + spare, e->max_seqs);
}

/*
 * List sequences that wait for memory from the daemon: new and preempted ones.
 */
static void queue_look(struct engine *e)
{
	struct queue *q = &e->queue;
	u32 i;

	q->nr_asked = 0;
	q->round++;
	for (i = 0; i < e->nr_live; i++) {
		struct seq *s = e->live[i];

		if (seq_is_done(s) ||
		    (!s->lost && (s != s->req->root || s->req->admitted)))
			continue;
		q->asked[q->nr_asked++] = s;
		if (s->lost || s->waits >= QUEUE_POLLS)
			q->ahead = QUEUE_AHEAD;
	}
}

/* Return: false when no other request can be opened now. */
static bool queue_open_one(struct engine *e, struct lane *l, struct request *r)
{
	struct queue *q = &e->queue;
	struct flow *f = l->flow;

	if (e->reserved + r->width > e->max_seqs)
		return false;
	r->root = seq_create(e, r);
	if (!r->root)
		return false;		/* no memory: try later */
	lane_count_passed(l, r);
	queue_remove(e, r);
	adapters_opened(r);
	q->asked[q->nr_asked++] = r->root;
	e->reserved += r->width;
	f->served += r->c.nr;
	f->turn = ++q->turn;
	prefix_is_made(e, r->root);
	KV_PROBE(kvrt, request_opened, r->id, request_us(r), q->nr);
	link_open(e, r->root);
	return true;
}

/* queue_open() - open sequences for queued requests, in their order */
void queue_open(struct engine *e)
{
	struct queue *q = &e->queue;
	u32 looks = QUEUE_LOOK, window;
	struct request *r;
	struct lane *l;

	queue_measure(e);
	window = queue_window(e);
	if (!q->nr || e->reserved >= window)
		return;
	queue_look(e);
	prefix_look(e);
	adapters_look(e);
	while (looks && e->reserved < window && (l = queue_turn(q))) {
		if (queue_is_ahead(e, l->priority))
			return;
		r = q->by_prefix ? lane_next_by_prefix(e, l, &looks) :
				   lane_next(e, l, &looks);
		if (!r) {
			l->round = q->round;
			continue;
		}
		if (!queue_open_one(e, l, r))
			return;
	}
}
