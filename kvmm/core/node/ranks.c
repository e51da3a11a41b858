// SPDX-License-Identifier: Apache-2.0
/*
 * ranks.c - clients that map shards of a domain for another client
 *
 * The processes of one model, a rank for each shard, work on the same sequences.  One
 * of them, the leader, opens sequences and steps, and maps one shard or more.  Each
 * other one attaches as a rank of the leader, for one shard.  It maps the extents of
 * that device pool, and sends no requests beside EXTENT_ACK, NOP and DETACH.  Table
 * entries are the same in each shard, so the leader passes on those that it is granted.
 *
 * A shard has one client of the group at most.  The leader is granted a block when each
 * part of it is mapped by the client of its shard.  So while a shard has no client, or a
 * new one that has not mapped all yet, the leader's sequences and steps wait.
 *
 * Ranks write the blocks of the leader's open steps.  When one client of a group dies,
 * the others are killed: a step of which a part is missing can only end without
 * progress.  The steps of a dead leader end when all processes of its group are quiet.
 * A client of the group that is away then is killed when it is back.  A rank that
 * detaches leaves its shard to another one.
 *
 * Owns kv_client.leader, shards, member and broken.
 */
#include "kvmm/core/node/node.h"

/* Is the client of that number one that ranks of this tenant and domain can join? */
static bool leads(const struct core *c, u32 client, u64 tenant_key,
		  const struct kvmm_attach_req *req)
{
	const struct kv_client *l = &c->clients[client];
	const struct kv_domain *d = &c->domains[l->domain];

	return l->state == CLI_ALIVE && !client_is_rank(c, client) && !l->broken &&
	       c->tenants[l->tenant].key == tenant_key && d->shards == req->nr_shards &&
	       !strncmp(d->name, req->domain, KVMM_NAME_LEN);
}

/**
 * rank_check() - may a client attach with this shard and this leader?
 * @text: gets the reason of a refusal, in one line
 *
 * Return: 0; -EINVAL: the shard is not one of the domain's, or a rank names none;
 * -ESRCH: there is no such leader; -EEXIST: the shard has a client.
 */
int rank_check(const struct core *c, u64 tenant_key, const struct kvmm_attach_req *req,
	       const char **text)
{
	if (req->shard > req->nr_shards || (req->leader && !req->shard)) {
		*text = "the shard that this client would map is not one of its domain";
		return -EINVAL;
	}
	if (!req->leader)
		return 0;
	if (req->leader > core_cfg(c)->max_clients ||
	    !leads(c, req->leader - 1, tenant_key, req)) {
		*text = "no client of that number opens sequences in this domain: attach the leader first";
		return -ESRCH;
	}
	if (c->clients[req->leader - 1].member[req->shard - 1] != CORE_NONE) {
		*text = "another client maps this shard";
		return -EEXIST;
	}
	return 0;
}

/*
 * Client @by maps the shards for its leader from now on, or no longer.  They are missing
 * until a rank has mapped its extents: else the leader would be granted blocks meanwhile.
 */
static void member_set(struct core *c, u32 by, bool set)
{
	const struct kv_client *cl = &c->clients[by];
	struct kv_client *l = &c->clients[cl->leader];
	u32 i;

	for (i = 0; i < c->domains[cl->domain].shards; i++) {
		if (!(cl->shards & BIT(i)))
			continue;
		KV_BUG_ON(l->member[i] != (set ? CORE_NONE : by));
		l->member[i] = set ? by : CORE_NONE;
		if (!cl->joining)
			extent_unacked(c, cl->leader, set ? -1 : 1);
	}
	domain_kick(&c->domains[cl->domain]);
}

/**
 * rank_join() - a client is new: note its shards and its leader
 * @req: rank_check() accepted it
 */
void rank_join(struct core *c, u32 client, const struct kvmm_attach_req *req)
{
	struct kv_client *cl = &c->clients[client];
	u32 nr = c->domains[cl->domain].shards, i;

	cl->leader = req->leader ? req->leader - 1 : client;
	cl->shards = req->shard ? BIT(req->shard - 1) : shards_all(nr);
	for (i = 0; i < CORE_MAX_ZONES; i++)
		cl->member[i] = CORE_NONE;
	/* No client maps the shards yet. */
	if (!req->leader)
		extent_unacked(c, client, (s32)nr);
	cl->joining = req->leader != 0;
	member_set(c, client, true);
}

/* A rank gives up its shard: extents that it has not mapped delay its leader no longer. */
void rank_leave(struct core *c, u32 client)
{
	struct kv_client *cl = &c->clients[client];

	if (!client_is_rank(c, client) || cl->leader == CORE_NONE ||
	    c->clients[cl->leader].state == CLI_FREE ||
	    c->clients[cl->leader].member[__builtin_ctz(cl->shards)] != client)
		return;
	extent_unacked(c, cl->leader, -(s32)cl->nr_unacked);
	member_set(c, client, false);
	cl->leader = CORE_NONE;
}

/* End a client whose group has lost a process. */
static void break_off(struct core *c, u32 client)
{
	struct kv_client *cl = &c->clients[client];

	if (cl->state != CLI_ALIVE)
		return;
	cl->broken = 1;
	(void)client_kill(c, client, -EPIPE);
}

static bool has_mapped(const struct core *c, u32 client)
{
	u32 e;

	for (e = 0; e < core_sizes(c)->nr_extents; e++)
		if (c->extents[e].mapped & BIT_ULL(client))
			return true;
	return false;
}

/**
 * rank_died() - a client died: the other clients of its group cannot go on
 *
 * They can go on if it was a new rank, which has mapped and written nothing.
 */
void rank_died(struct core *c, u32 client)
{
	const u32 leader = c->clients[client].leader;
	u32 i;

	if (leader == CORE_NONE ||
	    (c->clients[client].joining && !has_mapped(c, client)))
		return;
	if (leader != client)
		break_off(c, leader);
	for (i = 0; i < core_cfg(c)->max_clients; i++)
		if (i != client && i != leader && c->clients[i].leader == leader)
			break_off(c, i);
}

/**
 * rank_bound() - a client has segments, and was sent its extents
 *
 * The group of a client that is back may have ended meanwhile.
 */
void rank_bound(struct core *c, u32 client)
{
	rank_mapped(c, client);
	if (c->clients[client].broken)
		(void)client_kill(c, client, -EPIPE);
}

/* ranks_may_write() - may a rank of the client still write blocks of its open steps? */
bool ranks_may_write(const struct core *c, u32 client)
{
	u32 i;

	if (!c->clients[client].nr_steps)
		return false;
	for (i = 0; i < core_cfg(c)->max_clients; i++)
		if (i != client && c->clients[i].leader == client &&
		    (c->clients[i].state == CLI_ALIVE || c->clients[i].state == CLI_DEAD))
			return true;
	return false;
}

/* rank_forget() - the record of a client becomes free */
void rank_forget(struct core *c, u32 client)
{
	u32 i;

	rank_leave(c, client);
	for (i = 0; i < core_cfg(c)->max_clients; i++)
		if (i != client && c->clients[i].state != CLI_FREE &&
		    c->clients[i].leader == client)
			c->clients[i].leader = CORE_NONE;
}

/**
 * rank_may_ask() - may the client send a request with this verb?
 *
 * Return: 0; -EPIPE: a client of its group has died; -EPERM: it is a rank.
 */
int rank_may_ask(const struct core *c, u32 client, u32 op)
{
	if (op == KVMM_OP_NOP || op == KVMM_OP_EXTENT_ACK || op == KVMM_OP_DETACH)
		return 0;
	if (c->clients[client].broken)
		return -EPIPE;
	return client_is_rank(c, client) ? -EPERM : 0;
}

/* ---- salvage ---- */

/* Are all of the shards without a client so far? */
static bool shards_are_free(const struct core *c, u32 leader, u32 shards)
{
	u32 left;

	for (left = shards; left; left &= left - 1)
		if (c->clients[leader].member[__builtin_ctz(left)] != CORE_NONE)
			return false;
	return true;
}

/* Could these fields be of a client?  Its domain and state are right. */
bool rank_is_sane(const struct core *c, u32 client)
{
	const struct kv_client *cl = &c->clients[client];
	u32 all = shards_all(c->domains[cl->domain].shards);

	if (!cl->shards || (cl->shards & ~all) || cl->broken > 1 || cl->quiet > 1 ||
	    cl->joining > 1 || (cl->quiet && cl->state != CLI_DEAD))
		return false;
	if (!client_is_rank(c, client))
		return !cl->joining;
	return is_power_of_2(cl->shards) && !cl->quiet && (cl->leader == CORE_NONE ||
	       (cl->leader < core_cfg(c)->max_clients &&
		c->clients[cl->leader].state != CLI_FREE &&
		c->clients[cl->leader].leader == cl->leader &&
		c->clients[cl->leader].domain == cl->domain));
}

/**
 * ranks_restore() - salvage: leaders know the clients that map their shards
 *
 * Return: false: the fields of two clients contradict each other.
 */
bool ranks_restore(struct core *c)
{
	struct kv_client *cl;
	u32 i, n;

	for (i = 0; i < core_cfg(c)->max_clients; i++) {
		cl = &c->clients[i];
		for (n = 0; n < CORE_MAX_ZONES; n++)
			cl->member[n] = CORE_NONE;
		if (cl->state != CLI_FREE && !client_is_rank(c, i))
			extent_unacked(c, i, (s32)c->domains[cl->domain].shards);
	}
	for (i = 0; i < core_cfg(c)->max_clients; i++) {
		cl = &c->clients[i];
		if (cl->state == CLI_FREE)
			continue;
		if (!rank_is_sane(c, i) || (cl->leader != CORE_NONE &&
		    !shards_are_free(c, cl->leader, cl->shards)))
			return false;
		if (cl->leader != CORE_NONE)
			member_set(c, i, true);
	}
	return true;
}
