// SPDX-License-Identifier: Apache-2.0
/*
 * resume.c - clients of an adopted core come back
 *
 * An adopted client is away: it holds what it holds, its sequences go on as
 * those of a client that does nothing, and nothing is published for it, since
 * there is nowhere.  When it is back the shell gives it new segments, and all
 * that it would have been told meanwhile is written there in one go.  One that
 * does not come back in time dies, and that is the shell's business.
 *
 * Where the arena was salvaged the client's last requests may have done half
 * of what they were to do.  What was made for one whose answer it never saw is
 * nobody's, and goes.
 *
 * kv_client.away and .committed are written here and by adopt.c.
 */
#include "kvmm/core/node/node.h"

/* Sequences of requests that were never answered. */
static void drop_unseen(struct core *c, u32 client, u64 seen)
{
	struct kv_seq *s = &c->seqs[client * core_cfg(c)->max_seqs];
	u32 i;

	for (i = 0; i < c->clients[client].max_seqs; i++)
		if (s[i].state != KVMM_SEQ_CLOSED && s[i].born > seen)
			seq_close_now(c, &s[i]);
}

/**
 * core_client_resume() - a client of an adopted core is back
 * @seen:      number of the last request whose answer it has
 * @info:      as for core_client_attach()
 * @committed: number of the last request that is done; the others never were
 *
 * Its old segments are nobody's; core_client_bind() follows.
 * Return: 0; -ENOENT: there is no such client; -ESTALE: it is not away;
 * -EPROTO: it has seen an answer that was never given.
 */
int core_client_resume(struct core *c, u64 now, u32 client, u64 seen,
		       struct core_attach_info *info, u64 *committed)
{
	struct kv_client *cl;
	u32 was;
	core_event(c);

	if (client >= core_cfg(c)->max_clients)
		return -ENOENT;
	cl = &c->clients[client];
	if (cl->state == CLI_FREE)
		return -ENOENT;
	if (cl->state != CLI_ALIVE || !cl->away)
		return -ESTALE;
	if (seen > cl->last_number)
		return -EPROTO;
	c->now = now;
	core_trace(c, client_resume, client, cl->domain);
	was = cl->away;
	cl->away = AWAY_NOT;
	/* The end may have come between an answer and the note of it. */
	cl->committed = max(cl->committed, seen);
	cl->last_number = cl->committed;
	cl->event_tail = 0;
	cl->again = 0;
	if (was == AWAY_SALVAGED)
		drop_unseen(c, client, seen);
	cl->back = now;
	salvage_release(c, cl->domain);
	*info = (struct core_attach_info){ 0 };
	client_describe(c, client, info);
	*committed = cl->committed;
	return 0;
}

/**
 * client_publish() - write what a client has into segments that are new
 */
void client_publish(struct core *c, u32 client)
{
	const struct kv_client *cl = &c->clients[client];
	const struct kv_seq *s = &c->seqs[client * core_cfg(c)->max_seqs];
	struct kvmm_daemon_ctl *ctl = c->bind[client].ctl;
	u32 i;

	for (i = 0; i < cl->max_seqs && cl->nr_seqs; i++) {
		if (s[i].state == KVMM_SEQ_CLOSED)
			continue;
		table_publish(c, &s[i]);
		seq_show(c, &s[i]);
	}
	store_release(&ctl->committed, cl->committed);
	WRITE_ONCE(ctl->pressure, c->domains[cl->domain].psi.level);
}

/* ---- blocks that steps from before a salvage may write ---- */

/* May a device still run steps that began before the adoption? */
static bool steps_may_run(const struct core *c, u32 dom)
{
	u32 i;

	for (i = 0; i < core_cfg(c)->max_clients; i++) {
		const struct kv_client *cl = &c->clients[i];

		if (cl->domain == dom && (cl->state == CLI_DEAD ||
		    (cl->state == CLI_ALIVE && cl->away == AWAY_SALVAGED)))
			return true;
	}
	return false;
}

/**
 * salvage_release() - a client came back, or is quiet: is that the last one?
 *
 * Then what steps from before the adoption might have written is free.
 */
void salvage_release(struct core *c, u32 dom)
{
	struct kv_domain *d = &c->domains[dom];
	u32 e, blk, end;

	if (!d->salvaged || steps_may_run(c, dom))
		return;
	for (e = 0; e < core_sizes(c)->nr_extents && d->salvaged; e++) {
		if (!c->spans[e].nr_extents || c->spans[e].domain != dom)
			continue;
		blk = e * core_sizes(c)->blocks_per_extent;
		/* The last one may take the span along. */
		for (end = blk + c->spans[e].nr_blocks; blk < end; blk++)
			if (c->blocks[blk].flags & BLKF_SALVAGED) {
				d->salvaged--;
				c->blocks[blk].flags = 0;
				block_set_state(c, blk, BLK_FREE);
			}
	}
}
