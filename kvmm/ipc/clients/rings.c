// SPDX-License-Identifier: Apache-2.0
/*
 * rings.c - the shared memory of a client: layout, segments, rings
 *
 * Context: control thread, but for the function handed to mm_call().
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/random.h>

#include "kvmm/ipc/clients/clients.h"

#define PAGE		4096u
#define C_HEAD		256u	/* before the entries: struct kvmm_client_ctl */
#define EVENT_ENTRIES	1024u

struct bind_call {
	struct mm			*mm;
	struct client			*c;
	const struct kvmm_attach_rep	*rep;
};

static void layout_c(u32 sq_entries, struct kvmm_attach_rep *rep)
{
	rep->sq_entries = min(max(sq_entries, SQ_ENTRIES_MIN), SQ_ENTRIES_MAX);
	rep->sq_off = C_HEAD;
	rep->arg_off = rep->sq_off +
		rep->sq_entries * (u32)sizeof(struct kvmm_sqe);
	rep->arg_bytes = ARG_BYTES;
	rep->c_bytes = ALIGN_UP(rep->arg_off + rep->arg_bytes, PAGE);
}

static u32 place(u64 *at, u64 bytes)
{
	u64 off = ALIGN_UP(*at, 64);

	*at = off + bytes;
	return (u32)off;
}

/* Offsets are 32 bits: false when D would be larger than they can say. */
static bool layout_d(const struct core_attach_info *in,
		     struct kvmm_attach_rep *rep)
{
	u64 at = sizeof(struct kvmm_daemon_ctl);

	/* Twice the submissions: answers may wait while new requests come. */
	rep->cq_entries = 2 * rep->sq_entries;
	rep->cq_off = place(&at, (u64)rep->cq_entries *
			    sizeof(struct kvmm_cqe));
	rep->result_bytes = RESULT_BYTES;
	rep->result_off = place(&at, rep->result_bytes);
	rep->event_entries = EVENT_ENTRIES;
	rep->event_off = place(&at, EVENT_ENTRIES * sizeof(struct kvmm_event));
	rep->max_seqs = in->max_seqs;
	rep->seq_off = place(&at, (u64)in->max_seqs *
			     sizeof(struct kvmm_seq_status));
	rep->extent_off = place(&at, (u64)in->nr_extents *
				sizeof(struct kvmm_extent_status));
	rep->nr_tables = in->nr_tables;
	rep->table_off = place(&at, (u64)in->nr_tables *
			       sizeof(struct kvmm_table_page));
	rep->d_bytes = ALIGN_UP(at, PAGE);
	return rep->d_bytes <= UINT32_MAX;
}

static int segments_make(struct client *c, const struct kvmm_attach_rep *rep)
{
	char name[64];
	int err;

	snprintf(name, sizeof(name), "kvmm-client-%u-c", c->mm.id);
	err = segment_create(&c->c, rep->c_bytes, name, true);
	if (err)
		return err;
	name[strlen(name) - 1] = 'd';
	err = segment_create(&c->d, rep->d_bytes, name, false);
	if (err)
		return err;
	c->mm.bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (c->mm.bell < 0)
		return -errno;
	c->mm.ring.res_end = calloc(rep->cq_entries, sizeof(*c->mm.ring.res_end));
	return c->mm.ring.res_end ? 0 : -ENOMEM;
}

/* @first: index at which the rings begin */
static void ring_build(struct client *c, const struct kvmm_attach_rep *rep,
		       u32 first)
{
	struct client_ring *r = &c->mm.ring;

	r->ctl = (struct kvmm_client_ctl *)c->c.base;
	r->dctl = (struct kvmm_daemon_ctl *)c->d.base;
	r->sqes = (const struct kvmm_sqe *)(c->c.base + rep->sq_off);
	r->args = c->c.base + rep->arg_off;
	r->arg_bytes = rep->arg_bytes;
	r->cqes = (struct kvmm_cqe *)(c->d.base + rep->cq_off);
	r->results = c->d.base + rep->result_off;
	r->result_bytes = rep->result_bytes;
	r->guards[0] = c->c.guard;
	r->guards[1] = c->d.guard;
	c->extents = (const struct kvmm_extent_status *)
		     (c->d.base + rep->extent_off);
	r->dctl->sq_head = first;
	r->dctl->cq_tail = first;
	r->ctl->sq_tail = first;
	r->ctl->cq_head = first;
	r->res_seen = first;
	ring_cons_init(&r->sq, rep->sq_entries, first, &r->dctl->sq_head,
		       &r->ctl->sq_tail);
	ring_prod_init(&r->cq, rep->cq_entries, first, &r->dctl->cq_tail,
		       &r->ctl->cq_head);
}

static void reply_fill(const struct setup *s, const struct core_attach_info *in,
		       struct kvmm_attach_rep *rep)
{
	rep->memory = s->dev.tag ? KVMM_MEMORY_CUDA : KVMM_MEMORY_HOST;
	rep->device = s->dev.tag;
	rep->daemon_epoch = s->epoch;
	rep->client = in->client;
	rep->domain = in->domain;
	rep->pool = in->pool;
	rep->nr_pools = s->nr_pools;
	rep->nr_shards = in->shards;
	memcpy(rep->shard_off, in->shard_off, sizeof(rep->shard_off));
	rep->pool_bytes = s->cfg.pool_bytes;
	rep->extent_size = s->cfg.extent_size;
	rep->nr_extents = in->nr_extents;
	rep->pool_extents = in->pool_extents;
	rep->unit = in->unit;
	memcpy(rep->stride, in->stride, sizeof(rep->stride));
	rep->block_bytes = in->block_bytes;
	rep->span_extents = in->span_extents;
	rep->span_blocks = in->span_blocks;
	rep->span_tail = in->span_tail;
	rep->max_steps = in->max_steps;
	rep->max_batch = CORE_MAX_BATCH;
	rep->step_deadline_ms = s->opt.step_deadline_ms;
	if (getrandom(rep->token, sizeof(rep->token), GRND_NONBLOCK) < 0)
		memset(rep->token, 0, sizeof(rep->token));
}

static void call_bind(struct core *core, void *arg)
{
	struct bind_call *a = arg;
	const struct kvmm_attach_rep *rep = a->rep;
	char *base = a->c->d.base;
	struct core_bind bind = {
		.ctl		= a->c->mm.ring.dctl,
		.seqs		= (struct kvmm_seq_status *)
				  (base + rep->seq_off),
		.extents	= (struct kvmm_extent_status *)
				  (base + rep->extent_off),
		.tables		= (struct kvmm_table_page *)
				  (base + rep->table_off),
		.events		= (struct kvmm_event *)
				  (base + rep->event_off),
		.nr_events	= rep->event_entries,
	};

	core_client_bind(core, a->c->mm.id, &bind);
	mm_activate(a->mm, &a->c->mm);
}

/**
 * rings_make() - make segments and rings, and fill in their layout
 * @sq_entries: of the rings
 * @first:      index at which the rings begin
 * @in:         from the core
 * @rep:        takes the layout
 *
 * Return: 0 or a negative errno.
 */
int rings_make(struct clients *cs, struct client *c, u32 sq_entries, u32 first,
	       const struct core_attach_info *in, struct kvmm_attach_rep *rep)
{
	int err;

	reply_fill(cs->setup, in, rep);
	layout_c(sq_entries, rep);
	if (!layout_d(in, rep))
		return -E2BIG;
	err = segments_make(c, rep);
	if (err)
		return err;
	ring_build(c, rep, first);
	c->mm.ring.dctl->daemon_epoch = cs->setup->epoch;
	c->mm.ring.dctl->state = KVMM_CLIENT_ALIVE;
	return 0;
}

/* rings_start() - have the core publish in D and the mm thread serve the rings */
int rings_start(struct clients *cs, struct client *c,
		const struct kvmm_attach_rep *rep)
{
	struct bind_call a = { .mm = cs->mm, .c = c, .rep = rep };

	return mm_call(cs->mm, call_bind, &a);
}

/* rings_send() - answer with the layout and the descriptors */
int rings_send(struct client *c, const struct kvmm_attach_rep *rep)
{
	const int fds[] = { c->c.fd, c->d.fd, c->mm.bell };
	int err = sock_send(c->sock.fd, rep, sizeof(*rep), fds,
			    ARRAY_SIZE(fds));

	segment_close_fd(&c->c);
	segment_close_fd(&c->d);
	return err;
}
