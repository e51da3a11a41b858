// SPDX-License-Identifier: Apache-2.0
/*
 * revoke.c - clients that are asked for memory back, and how they answer
 *
 * An honest client unmaps the extent and acknowledges, at once or late.  A
 * stubborn client does nothing until it is killed.  A liar acknowledges and
 * keeps the mapping, so it keeps the old memory.  The memory made anew for
 * another tenant must have a newer generation than any mapping that a client of
 * the old tenant still has.  Lingering clients end when they are told to.
 */
#include "tests/sim/sim.h"

/* Drop a MAP that the client has not answered yet: it need not any more. */
static void forget_map(struct sim_client *cl, u32 extent)
{
	u32 i;

	for (i = 0; i < cl->nr_acks; i++)
		if (cl->acks[i].extent == extent) {
			cl->acks[i] = cl->acks[--cl->nr_acks];
			return;
		}
}

/* List extents that were revoked and that the client has not answered for. */
static u32 asked_for(const struct sim *w, const struct sim_client *cl,
		     u32 *list, u32 most)
{
	u32 e, nr = 0;

	for (e = 0; e < w->nr_extents && nr < most; e++)
		if (cl->extents[e].state == KVMM_EXTENT_REVOKE)
			list[nr++] = e;
	return nr;
}

/**
 * client_act_unmap() - give back the revoked extents, and acknowledge
 * Return: false when none was revoked, or the client is stubborn.
 */
bool client_act_unmap(struct sim *w, struct sim_client *cl)
{
	struct kvmm_ack_arg *a = (struct kvmm_ack_arg *)w->args;
	const struct kvmm_seq_res *res = (const void *)w->results;
	u32 list[SIM_BATCH], nr, i;
	int err;

	if (cl->stubborn)
		return false;
	nr = asked_for(w, cl, list, SIM_BATCH);
	if (!nr)
		return false;
	for (i = 0; i < nr; i++) {
		u32 e = list[i];

		forget_map(cl, e);
		a[i] = (struct kvmm_ack_arg){
			.extent = e, .what = KVMM_ACK_REVOKE,
			.generation = cl->extents[e].generation,
		};
		w->ext[e].holders &= ~BIT_ULL(cl->id);
		if (!cl->liar)
			cl->mapped[e] = 0;
		else
			cover_note("extents kept by liars");
	}
	LOG(w, "client %u: %s %u, first extent %u", cl->id,
	    cl->liar ? "LIES about" : "UNMAPS", nr, list[0]);
	err = shell_submit(w, cl, KVMM_OP_EXTENT_ACK, nr, 0, nr * sizeof(*a));
	LAW(w, !err, "client %u: EXTENT_ACK: %d", cl->id, err);
	for (i = 0; i < nr; i++) {
		cover_entry(KVMM_OP_EXTENT_ACK, res[i].status);
		LAW(w, !res[i].status, "client %u: EXTENT_ACK: revoked extent %u: %d",
		    cl->id, list[i], res[i].status);
	}
	return true;
}

/**
 * revoke_check_send() - a client is to map memory that its tenant owns alone
 *
 * A client that kept an older mapping of the extent has other memory.
 */
void revoke_check_send(struct sim *w, const struct sim_client *to, u32 extent,
		       u32 generation)
{
	u32 tenant = w->dom[to->dom].tenant, i;

	for (i = 0; i < SIM_CLIENTS; i++) {
		const struct sim_client *cl = &w->cl[i];

		LAW(w, cl->state == SIM_NONE ||
		    w->dom[cl->dom].tenant == tenant ||
		    cl->mapped[extent] != generation,
		    "law 2: extent %u generation %u of client %u goes to client %u of tenant %u",
		    extent, generation, i, to->id, tenant);
	}
}

/**
 * revoke_check_kill() - a client is killed only if it kept an extent too long
 */
void revoke_check_kill(struct sim *w, const struct sim_client *cl)
{
	u32 e;

	if (cl->unbound)
		return;		/* its records are gone, so the world cannot see the revocation */
	for (e = 0; e < w->nr_extents; e++)
		if ((w->ext[e].holders & BIT_ULL(cl->id)) &&
		    cl->extents[e].state == KVMM_EXTENT_REVOKE &&
		    w->now - cl->revoked_at[e] >= w->cfg.revoke_deadline_ns)
			return;
	sim_fail(w, "client %u is killed though it keeps nothing past a deadline",
		 cl->id);
}

/* A lingering client ends. */
void ghost_ends(struct sim *w, u32 t)
{
	u32 e;

	if (!w->haunted[t])
		return;
	LOG(w, "a ghost of tenant %u is gone, %u left", t, w->haunted[t] - 1);
	if (!--w->haunted[t])
		for (e = 0; e < w->nr_extents; e++)
			if (w->ext[e].tenant == t)
				w->ext[e].ghosts = false;
	cover_note("detached clients that ended late");
	core_ghost_gone(w->core, w->now, w->haunts[t]);
}

/* All lingering clients end.  Return: whether there was any. */
bool ghosts_end(struct sim *w)
{
	bool any = false;
	u32 t;

	for (t = 0; t < SIM_TENANTS; t++)
		for (; w->haunted[t]; any = true)
			ghost_ends(w, t);
	return any;
}

/* A lingering client that was told to end ends.  Return: whether there was any. */
bool ghost_dies(struct sim *w)
{
	u32 t;

	for (t = 0; t < SIM_TENANTS; t++) {
		if (!w->haunted[t])
			w->exorcised[t] = false;
		if (!w->exorcised[t])
			continue;
		cover_note("detached clients killed for an extent");
		ghost_ends(w, t);
		return true;
	}
	return false;
}

/* The core orders the lingering clients of its tenant @tenant to end. */
void op_kill_ghosts(void *arg, u32 tenant)
{
	struct sim *w = arg;
	u32 t, nr = 0;

	LOG(w, "  kill ghosts of tenant %u", tenant);
	for (t = 0; t < SIM_TENANTS; t++) {
		if (!w->haunted[t] || w->haunts[t] != tenant)
			continue;
		w->exorcised[t] = true;
		nr++;
	}
	/* Haunted extents stay so until clients that detached by now have ended too. */
	for (t = 0; t < SIM_CLIENTS; t++)
		nr += w->cl[t].state == SIM_DETACHED &&
		      w->cl[t].info.tenant == tenant;
	LAW(w, nr, "ghosts of tenant %u are killed, there are none", tenant);
	sim_trace(w, mix2(9, tenant));
}
