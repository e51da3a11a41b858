// SPDX-License-Identifier: Apache-2.0
/*
 * notify.c - tell waiting sequences, clients and the shell
 *
 * A waiting sequence that was refused memory is not asked again until its
 * domain is kicked: domain_kick() for one domain, core_kick() for all.  The
 * next admission (admit_all()) then tries its first waiter once more.  A kick
 * too many costs one attempt; a kick too few leaves a sequence waiting.
 *
 * client_kill() has the shell end a client that missed a deadline.
 *
 * A client learns of a change by an event.  Events are hints and may be lost:
 * the status records in segment D say the truth.
 */
#include "kvmm/core/base/base.h"

/* core_kick() - the change may help waiting sequences of any domain */
void core_kick(struct core *c)
{
	u32 i;

	for (i = 0; i < core_cfg(c)->max_domains; i++)
		domain_kick(&c->domains[i]);
}

/**
 * core_kick_promised() - domain @dom has one more sequence that may be preempted
 *
 * It may be preempted for a sequence that waits within the memory.min of another
 * domain.  Other waiting sequences gain nothing and are not asked again.
 */
void core_kick_promised(struct core *c, u32 dom)
{
	u32 i;

	KV_BUG_ON(!c->domains[dom].used);
	if (c->tenants[c->domains[dom].tenant].nr_domains < 2 &&
	    c->head->nr_tenants < 2)
		return;
	for_each_domain(c, i)
		if (i != dom && c->domains[i].stalled &&
		    c->domains[i].promised)
			domain_kick(&c->domains[i]);
}

/**
 * event_post() - post an event to a client and wake it
 * @type:  KVMM_EV_*
 * @index: of the sequence or extent that changed
 * @seq:   handle of the sequence, 0 for other events
 *
 * A client that has not resumed after an adoption gets none (resume.c).
 */
void event_post(struct core *c, u32 client, u32 type, u32 index, u64 seq)
{
	struct core_bind *bind = &c->bind[client];
	struct kvmm_event *ev;
	u32 tail;

	if (!bind->events)
		return;
	KV_BUG_ON(c->clients[client].state == CLI_FREE || c->clients[client].away);
	KV_BUG_ON(!bind->ctl || !is_power_of_2(bind->nr_events));
	tail = c->clients[client].event_tail++;
	ev = &bind->events[tail & (bind->nr_events - 1)];
	WRITE_ONCE(ev->type, type);
	WRITE_ONCE(ev->index, index);
	WRITE_ONCE(ev->seq, seq);
	/* Pairs with the acquire load of event_tail in the client. */
	store_release(&bind->ctl->event_tail, tail + 1);
	c->ops->wake(c->ops_arg, client);
}

/**
 * client_kill() - have the shell end the process of a client
 * @reason: negative errno, for the trace
 *
 * Return: false: that was ordered before, or the client is away.
 */
bool client_kill(struct core *c, u32 client, int reason)
{
	struct kv_client *cl = &c->clients[client];

	/* The shell ends a client that does not resume in time. */
	if (cl->killed || cl->away)
		return false;
	KV_BUG_ON(cl->state == CLI_FREE);
	cl->killed = 1;
	core_tell(c, client_kill, .client = client, .domain = cl->domain,
		  .error = (u64)reason);
	c->ops->kill(c->ops_arg, client, reason);
	return true;
}
