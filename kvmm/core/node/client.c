// SPDX-License-Identifier: Apache-2.0
/*
 * client.c - attach, detach and death of clients
 *
 *	FREE -> ALIVE -> DETACHED -> FREE
 *	          |
 *	          +----> DEAD ----> FREE
 *
 * A client dies in two stages.  Dead: it sends nothing any more.  Its idle
 * sequences end at once.  Blocks that its open steps could write (appends and
 * targets of copies) become QUARANTINE, and blocks that they read stay mapped.
 * Quiet: its device can do nothing more.  The steps end without progress, the
 * rest of its sequences end, and its record is free.  Sealed blocks stay in the
 * index throughout, for other clients and for its successor.
 *
 * With DETACH a client claims that it has unmapped everything.  Inside the
 * tenant that is enough.  Other tenants do not rely on it: if the process may
 * live on, the extents that it was sent stay with its tenant
 * (kv_extent.haunted), until it ends or is killed because another tenant needs
 * them.
 *
 * A client may map memory for another one: ranks.c.
 *
 * A client is killed when it keeps a step open past its deadline while another
 * client waits for memory, when it hung up but does not end, and when it keeps a
 * revoked extent (revoke.c).
 */
#include "kvmm/core/node/node.h"

static void client_init_lists(struct core *c, u32 client)
{
	const struct core_config *cfg = core_cfg(c);
	struct kv_client *cl = &c->clients[client];
	struct kv_seq *s = &c->seqs[client * cfg->max_seqs];
	u32 i;

	KV_BUG_ON(!cl->max_seqs || cl->max_seqs > cfg->max_seqs);
	for (i = 0; i < cl->max_seqs; i++) {
		if (!s[i].generation)
			s[i].generation = 1;
		s[i].state = KVMM_SEQ_CLOSED;
		s[i].next = i + 1 < cl->max_seqs ? i + 1 : CORE_NONE;
	}
	cl->free_seq = 0;
	/* Pages are cut from the share as they are first needed. */
	cl->free_page = CORE_NONE;
	cl->unused_page = 0;
	cl->nr_free_pages = cfg->nr_tables;
}

static u32 client_slot(const struct core *c)
{
	u32 i;

	for (i = 0; i < core_cfg(c)->max_clients; i++)
		if (c->clients[i].state == CLI_FREE)
			return i;
	return CORE_NONE;
}

/* Describe the attachment, so that the shell can build the segments. */
void client_describe(const struct core *c, u32 client,
		     struct core_attach_info *info)
{
	const struct kv_client *cl = &c->clients[client];
	const struct kv_domain *d = &c->domains[cl->domain];
	struct core_copy cp = { 0 };
	char replaced[KVMM_NAME_LEN];

	memcpy(replaced, info->replaced, sizeof(replaced));
	*info = (struct core_attach_info){
		.dropped_blocks	= info->dropped_blocks,
		.moved		= info->moved,
		.old_pool	= info->old_pool,
		.old_shards	= info->old_shards,
		.cut		= info->cut,
		.client		= client,
		.domain		= cl->domain,
		.pool		= d->zone,
		.shards		= d->shards,
		.tenant		= cl->tenant,
		.unit		= (u32)entry_unit(c),
		.max_seqs	= cl->max_seqs,
		.nr_tables	= core_cfg(c)->nr_tables,
		.max_steps	= cl->max_steps,
		.nr_extents	= core_sizes(c)->nr_extents,
		.pool_extents	= domain_extents(c, d),
		.span_extents	= d->dev.span_extents,
		.span_blocks	= d->dev.span_blocks,
		.span_tail	= d->dev.span_tail,
		.block_bytes	= d->dev.block_bytes,
	};
	memcpy(info->replaced, replaced, sizeof(replaced));
	memcpy(info->stride, d->stride, sizeof(info->stride));
	block_shards(c, d, &cp);
	memcpy(info->shard_off, cp.shard_off, sizeof(info->shard_off));
}

/**
 * core_client_attach_within() - check an attach message and make a client
 * @tenant_key: identity of the peer, from the shell
 * @secret:     CORE_SECRET_LEN bytes, used when the tenant is new
 * @quota:      quota of the tenant, from now on
 * @req:        the shell's own copy; the shell checks magic and versions
 * @info:       gets the geometry, or on error .text
 *
 * The client may send requests after core_client_bind().
 * Return: 0 or a negative errno with @info->text set.
 */
int core_client_attach_within(struct core *c, u64 now, u64 tenant_key,
			      const u8 *secret, const struct core_quota *quota,
			      const struct kvmm_attach_req *req,
			      struct core_attach_info *info)
{
	const struct tenant_who who = {
		.key = tenant_key, .secret = secret, .quota = quota,
	};
	struct kv_client *cl;
	u32 client, dom;
	int err;
	core_event(c);

	c->now = now;
	info->text = NULL;
	info->small_token = 0;
	info->dropped_blocks = 0;
	info->replaced[0] = '\0';
	info->moved = false;
	info->elsewhere = false;
	info->cut = false;
	if (drain_of_tenant(c, core_find_tenant(c, tenant_key))) {
		info->text = "kvmm is being drained: no client may attach until kvctl drain --off";
		return -ESHUTDOWN;
	}
	client = client_slot(c);
	if (client == CORE_NONE) {
		info->text = "as many clients as --max-clients allows are attached";
		return -EUSERS;
	}
	err = rank_check(c, tenant_key, req, &info->text);
	if (!err)
		err = domain_attach(c, &who, req, &dom, info);
	if (err)
		return err;

	cl = &c->clients[client];
	KV_BUG_ON(req->leader && dom != c->clients[req->leader - 1].domain);
	KV_BUG_ON(!c->domains[dom].used || !c->domains[dom].nr_clients);
	KV_BUG_ON(!c->tenants[c->domains[dom].tenant].nr_clients);
	memset(cl, 0, sizeof(*cl));
	cl->domain = dom;
	cl->tenant = c->domains[dom].tenant;
	cl->max_steps = min(req->max_steps, core_cfg(c)->max_steps);
	cl->max_seqs = req->max_seqs ? min(req->max_seqs, core_cfg(c)->max_seqs)
				     : core_cfg(c)->max_seqs;
	client_init_lists(c, client);
	core_crash(c, CORE_CRASH_client_attach);
	cl->state = CLI_ALIVE;
	rank_join(c, client, req);
	memset(&c->bind[client], 0, sizeof(c->bind[client]));
	client_describe(c, client, info);
	core_tell(c, client_attach, .client = client, .domain = dom,
		  .tenant = cl->tenant);
	return 0;
}

/* core_client_attach() - attach a client of a tenant without quotas */
int core_client_attach(struct core *c, u64 now, u64 tenant_key,
		       const u8 *secret, const struct kvmm_attach_req *req,
		       struct core_attach_info *info)
{
	static const struct core_quota all = {
		.max_domains = CORE_NONE, .max_min = KVMM_LIMIT_MAX,
		.max_weight = CORE_WEIGHT_MAX,
	};

	return core_client_attach_within(c, now, tenant_key, secret, &all, req,
					 info);
}

/**
 * core_client_bind() - say where the client's segments are
 *
 * Publishes the state of the client there, and sends it the extents of its
 * tenant.  A new client has little of both; a client of
 * core_client_resume() has all that it had.  The segments are zeroed; they must
 * stay until core_client_quiet() returned.
 */
void core_client_bind(struct core *c, u32 client, const struct core_bind *bind)
{
	core_event(c);

	KV_BUG_ON(c->clients[client].state == CLI_FREE);
	KV_BUG_ON(c->clients[client].away != AWAY_NOT);
	c->bind[client] = *bind;
	client_publish(c, client);
	drain_publish(c, client);
	WRITE_ONCE(bind->ctl->state, (u32)KVMM_CLIENT_ALIVE);
	extent_publish(c, client);
	rank_bound(c, client);
}

static void client_say(struct core *c, u32 client, u32 state, int reason)
{
	struct kvmm_daemon_ctl *ctl = c->bind[client].ctl;
	u32 count;

	if (!ctl)
		return;
	count = ctl->seqcount;
	WRITE_ONCE(ctl->seqcount, count + 1);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	WRITE_ONCE(ctl->state, state);
	WRITE_ONCE(ctl->reason, reason);
	/* Pairs with the acquire load of seqcount in the client. */
	store_release(&ctl->seqcount, count + 2);
	c->ops->wake(c->ops_arg, client);
}

/* Close idle sequences now; sequences in steps close when their steps end. */
static void client_close_seqs(struct core *c, u32 client)
{
	struct kv_client *cl = &c->clients[client];
	struct kv_seq *s = &c->seqs[client * core_cfg(c)->max_seqs];
	u32 i;

	for (i = 0; i < cl->max_seqs; i++)
		if (s[i].state != KVMM_SEQ_CLOSED)
			(void)!seq_close(c, &s[i]);
}

/* A dead client may still write the blocks of the positions from @start to before @end. */
static void tab_quarantine(struct core *c, const struct kv_tab *t, u32 start, u32 end)
{
	u32 idx;

	if (start == end)	/* the step only reads */
		return;
	for (idx = tab_at(c, t, start);
	     idx < t->nr_blocks && tab_pos(c, t, idx) < end; idx++) {
		u32 blk = table_get(c, t, idx);

		if (c->blocks[blk].state != BLK_OPEN)
			continue;
		KV_BUG_ON(c->blocks[blk].domain != tab_seq(c, t)->domain);
		block_set_state(c, blk, BLK_QUARANTINE);
		core_count(c, CORE_EV_quarantine, 1);
	}
}

/* Blocks that an open step of a dead client could write become QUARANTINE. */
static void client_quarantine(struct core *c, u32 client)
{
	const struct kv_tab *t;
	u32 i, n;

	for (i = 0; i < c->clients[client].nr_steps; i++) {
		struct kv_step_entry *e;
		const struct kv_step *st = step_at(c, client, i, &e);

		for (n = 0; n < st->nr; n++) {
			const struct kv_seq *s = &c->seqs[e[n].seq];

			KV_BUG_ON(s->client != client || !s->nr_steps);
			for_each_tab(c, s, t)
				tab_quarantine(c, t, e[n].start, e[n].end);
		}
	}
}

/* No process can write for the client any more: end its steps, free its record. */
static void client_free(struct core *c, u32 client)
{
	struct kv_client *cl = &c->clients[client];

	step_drop_all(c, client);
	KV_BUG_ON(cl->state == CLI_ALIVE || cl->nr_marked);
	KV_BUG_ON(cl->promised || cl->nr_idpages);
	KV_BUG_ON(cl->nr_seqs);
	if (cl->state == CLI_DETACHED)
		revoke_haunt(c, client);
	extent_forget_client(c, client);
	rank_forget(c, client);
	core_crash(c, CORE_CRASH_client_quiet);
	cl->state = CLI_FREE;
	memset(&c->bind[client], 0, sizeof(c->bind[client]));
	domain_detach(c, cl->domain);
	salvage_release(c, cl->domain);
	/* Extents that only it had mapped may go to other tenants now. */
	core_kick(c);
}

/* A rank has gone: its leader is free if it is quiet, and this was the last one. */
static void leader_free(struct core *c, u32 leader)
{
	if (leader != CORE_NONE && c->clients[leader].quiet && !ranks_may_write(c, leader))
		client_free(c, leader);
}

/* DETACH was accepted: no step is open. */
void client_detach(struct core *c, u32 client)
{
	struct kv_client *cl = &c->clients[client];
	const u32 leader = cl->leader;

	KV_BUG_ON(cl->state != CLI_ALIVE || cl->nr_steps);
	client_close_seqs(c, client);
	KV_BUG_ON(cl->nr_seqs || cl->nr_marked);
	core_crash(c, CORE_CRASH_client_detach);
	cl->state = CLI_DETACHED;
	rank_leave(c, client);
	c->tenants[cl->tenant].ghosts++;
	client_say(c, client, KVMM_CLIENT_DETACHED, 0);
	core_tell(c, client_detach, .client = client, .domain = cl->domain,
		  .tenant = cl->tenant);
	if (leader != client)
		leader_free(c, leader);
}

static void ghost_ended(struct core *c, u32 tenant)
{
	KV_BUG_ON(!c->tenants[tenant].used);
	KV_BUG_ON(!c->tenants[tenant].ghosts);
	if (!--c->tenants[tenant].ghosts)
		revoke_exorcise(c, tenant);
	core_kick(c);
}

/**
 * core_client_dead() - a client hung up, or is cut off
 *
 * Its process may live on; core_client_quiet() says when it can no longer write.
 * For a client that detached: its process has ended.
 */
void core_client_dead(struct core *c, u64 now, u32 client)
{
	struct kv_client *cl = &c->clients[client];
	core_event(c);

	c->now = now;
	if (cl->state == CLI_DETACHED)
		ghost_ended(c, cl->tenant);
	if (cl->state == CLI_ALIVE) {
		KV_BUG_ON(cl->nr_steps > cl->max_steps);
		client_quarantine(c, client);
		core_crash(c, CORE_CRASH_client_dead);
		client_close_seqs(c, client);
		KV_BUG_ON(!cl->nr_steps && cl->nr_seqs);
		core_tell(c, client_dead, .client = client, .domain = cl->domain,
			  .tenant = cl->tenant);
		rank_died(c, client);
	}
	if (cl->state == CLI_ALIVE || cl->state == CLI_DETACHED) {
		cl->state = CLI_DEAD;
		cl->dead_since = now;
	}
	admit_all(c);
}

/**
 * core_ghost_gone() - a lingering process has ended
 * @tenant: of core_attach_info
 *
 * Call this once for each core_client_quiet() of a detached client without a
 * core_client_dead() before it.
 */
void core_ghost_gone(struct core *c, u64 now, u32 tenant)
{
	core_event(c);

	c->now = now;
	ghost_ended(c, tenant);
	admit_all(c);
}

/**
 * core_client_quiet() - the client's process and device can do nothing more
 *
 * Also for a detached client that hung up and lives on.  Afterwards the segments of
 * its bind may be unmapped, and its record is free, or will be when its ranks are
 * quiet, too, or have detached.
 */
void core_client_quiet(struct core *c, u64 now, u32 client)
{
	struct kv_client *cl = &c->clients[client];
	u32 leader;
	core_event(c);

	c->now = now;
	if (cl->state == CLI_FREE)
		return;
	if (cl->state == CLI_ALIVE)
		core_client_dead(c, now, client);
	leader = cl->leader;
	if (ranks_may_write(c, client)) {
		cl->quiet = 1;
		memset(&c->bind[client], 0, sizeof(c->bind[client]));
		/* It has nothing mapped any more; its ranks may have. */
		extent_forget_client(c, client);
		core_kick(c);
		admit_all(c);
		return;
	}
	client_free(c, client);
	if (leader != client)
		leader_free(c, leader);
	admit_all(c);
}

/**
 * core_client_eproto() - a client forged an index: it is expelled
 *
 * It counts as dead; the quiet deadline runs.
 */
void core_client_eproto(struct core *c, u64 now, u32 client)
{
	core_event(c);

	if (c->clients[client].state != CLI_ALIVE)
		return;
	core_count(c, CORE_EV_client_eproto, 1);
	client_say(c, client, KVMM_CLIENT_EXPELLED, -EPROTO);
	core_client_dead(c, now, client);
}

/* Tell every client that the daemon ends. */
void core_shutdown(struct core *c, u64 now)
{
	u32 i;
	core_event(c);

	c->now = now;
	for (i = 0; i < core_cfg(c)->max_clients; i++)
		if (c->clients[i].state == CLI_ALIVE) {
			event_post(c, i, KVMM_EV_SHUTDOWN, 0, 0);
			client_say(c, i, KVMM_CLIENT_SHUTDOWN, -ESHUTDOWN);
		}
}

/* Could memory that @client holds help a sequence of the domain? */
static bool could_help(const struct core *c, u32 client, u32 dom)
{
	const struct kv_domain *d = &c->domains[dom];
	const struct kv_client *cl = &c->clients[client];

	/* No other domain can help against its own memory.max. */
	if (d->used && dom != cl->domain && domain_limited(d, 1))
		return false;
	return d->used;
}

/* Does another client wait for memory that @client could free? */
static bool somebody_waits(const struct core *c, u32 client)
{
	const u64 recent = 1000000000ull;
	u32 i, n;

	for (i = 0; i < core_cfg(c)->max_clients; i++)
		if (i != client && c->clients[i].state == CLI_ALIVE &&
		    c->clients[i].again &&
		    c->now - c->clients[i].again < recent &&
		    could_help(c, client, c->clients[i].domain))
			return true;
	for (i = 0; i < core_cfg(c)->max_domains; i++) {
		const struct kv_domain *d = &c->domains[i];

		if (!could_help(c, client, i))
			continue;
		for (n = d->wait_head; n != CORE_NONE; n = c->seqs[n].next)
			if (c->seqs[n].client != client &&
			    !c->clients[c->seqs[n].client].nr_unacked)
				return true;
	}
	return false;
}

static bool step_overdue(const struct core *c, u32 client)
{
	struct kv_step_entry *e;
	const struct kv_step *st = step_at(c, client, 0, &e);

	return c->clients[client].nr_steps &&
	       c->now - max(st->begun, c->clients[client].back) > core_cfg(c)->step_deadline_ns;
}

/* Kill the clients that are past a deadline. */
void client_deadlines(struct core *c)
{
	u32 i;

	for (i = 0; i < core_cfg(c)->max_clients; i++) {
		const struct kv_client *cl = &c->clients[i];
		int reason = 0;

		if (cl->state == CLI_ALIVE && !cl->away && step_overdue(c, i) &&
		    somebody_waits(c, i))
			reason = -ETIME;
		if (cl->state == CLI_DEAD && !cl->quiet && c->now - cl->dead_since >
		    core_cfg(c)->quiet_deadline_ns)
			reason = -ETIMEDOUT;
		if (reason)
			(void)client_kill(c, i, reason);
	}
}
