// SPDX-License-Identifier: Apache-2.0
/*
 * resume.c - return of the clients of an adopted arena
 *
 * After an adoption a client is away.  It keeps its memory, its sequences go on
 * like those of an idle client, and nothing is published for it, since it has no
 * segments.  When it resumes the shell gives it new segments, and the state that
 * it missed is written there at once.  The shell ends a client that does not
 * resume in time.
 *
 * In a salvaged arena the client's last requests may have been executed in part.
 * A sequence that was opened by a request without an answer is closed.
 *
 * kv_client.away and .committed are written here and by adopt.c.
 */
#include "kvmm/core/node/node.h"

/* Close the sequences that were made by requests without an answer. */
static void drop_unseen(struct core *c, u32 client, u64 seen)
{
	struct kv_seq *s = &c->seqs[client * core_cfg(c)->max_seqs];
	u32 i;

	KV_BUG_ON(c->clients[client].nr_steps);
	for (i = 0; i < c->clients[client].max_seqs; i++)
		if (s[i].state != KVMM_SEQ_CLOSED && s[i].born > seen)
			seq_close_now(c, &s[i]);
}

/**
 * core_client_resume() - a client of an adopted arena is back
 * @seen:      number of the last request that it has an answer of
 * @info:      as for core_client_attach()
 * @committed: gets the number of the last request that was executed; later
 *             requests were not
 *
 * Its old segments are not used; core_client_bind() follows.
 * Return: 0; -ENOENT: there is no such client; -ESTALE: it is not away;
 * -EPROTO: it claims an answer that was never given.
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
	core_tell(c, client_resume, .client = client, .domain = cl->domain);
	was = cl->away;
	KV_BUG_ON(cl->committed > cl->last_number);
	cl->away = AWAY_NOT;
	/*
	 * The core may have ended after the answer and before it was recorded.
	 */
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
 * client_publish() - write the state of a client into new segments
 */
void client_publish(struct core *c, u32 client)
{
	const struct kv_client *cl = &c->clients[client];
	const struct kv_seq *s = &c->seqs[client * core_cfg(c)->max_seqs];
	struct kvmm_daemon_ctl *ctl = c->bind[client].ctl;
	const struct kv_tab *t;
	u32 i;

	for (i = 0; i < cl->max_seqs && cl->nr_seqs; i++) {
		if (s[i].state == KVMM_SEQ_CLOSED)
			continue;
		KV_BUG_ON(s[i].client != client || s[i].domain != cl->domain);
		for_each_tab(c, &s[i], t)
			table_publish(c, t);
		seq_show(c, &s[i]);
	}
	store_release(&ctl->committed, cl->committed);
	WRITE_ONCE(ctl->pressure, c->domains[cl->domain].psi.level);
}

/* ---- blocks that steps from before a salvage may write ---- */

/* May a device still run steps of the domain from before the adoption? */
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
 * salvage_release() - a client resumed or is quiet: release salvaged blocks
 *
 * When it was the last one, no step from before the adoption can write blocks
 * any more, and those with BLKF_SALVAGED are freed.
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
		/* Freeing its last block may release the span. */
		for (end = blk + c->spans[e].nr_blocks; blk < end; blk++)
			if (c->blocks[blk].flags & BLKF_SALVAGED) {
				d->salvaged--;
				c->blocks[blk].flags = 0;
				block_set_state(c, blk, BLK_FREE);
			}
	}
}
