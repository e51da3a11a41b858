/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine_fake_ring.h - the functions of libkvmm.h over the fake daemon
 *
 * Only one file of a test program may include this header, which defines public
 * names.  Requests are executed late, some at a time, in ring order; the ring
 * is full at random, and the daemon may die at any request.
 */
#ifndef ENGINE_FAKE_RING_H
#define ENGINE_FAKE_RING_H

#include "tests/unit/engine_fake_lease.h"

static void fk_execute(struct fk_req *q)
{
	const u32 nr = q->sqe.op == KVMM_OP_SEQ_FORK ?
		((struct kvmm_fork_arg *)q->args)->nr_children :
		q->sqe.op == KVMM_OP_STEP_BEGIN ? q->sqe.nr * fk.nr_groups :
		q->sqe.nr;
	int status = 0;

	q->results = calloc(max(nr, 1u), sizeof(struct kvmm_lookup_res));
	q->cqe.nr = nr;
	switch (q->sqe.op) {
	case KVMM_OP_SEQ_OPEN:
		if (((struct kvmm_open_arg *)q->args)->lease)
			fk_open_leased((void *)q->args, q->results);
		else
			fk_open((void *)q->args, q->results);
		break;
	case KVMM_OP_SEQ_LOOKUP:
		if (fk.nr_groups > 1)
			fk_look_groups((void *)q->args, q->results);
		else
			fk_look((void *)q->args, q->results);
		break;
	case KVMM_OP_SEQ_LEASE:
		status = fk.no_leases ? -EINVAL : 0;
		if (status)
			q->cqe.nr = 0;
		else
			fk_lease((void *)q->args, q->results);
		break;
	case KVMM_OP_SEQ_ADVISE:
		fk_advise((void *)q->args, q->results);
		break;
	case KVMM_OP_SEQ_MATCH:
		((struct kvmm_seq_res *)q->results)->status =
			fk_match((void *)q->args);
		break;
	case KVMM_OP_SEQ_FORK:
		fk_fork((void *)q->args, q->results);
		break;
	case KVMM_OP_SEQ_CLOSE:
		((struct kvmm_seq_res *)q->results)->status =
			fk_close((void *)q->args);
		break;
	case KVMM_OP_SEQ_REMAP:
		status = fk_remap((void *)q->args, nr, q->results);
		break;
	case KVMM_OP_STEP_BEGIN:
		status = fk_begin(&q->sqe, (void *)q->args, q->results);
		break;
	case KVMM_OP_STEP_END:
		status = fk_end(&q->sqe, (void *)q->args, q->results);
		break;
	default:
		ck_abort_msg("verb %u was not expected", q->sqe.op);
	}
	q->cqe.status = status;
	fk_restore_all();
	fk_admit_all();
}

/* A full ring has room again when all its requests were executed and reaped. */
static void fk_run(u32 nr)
{
	if (fk.reaped == fk.prepared)
		fk.jam = false;
	for (; nr && fk.executed != fk.submitted && !fk.gone && !fk.away;
	     nr--) {
		struct fk_req *q = &fk.req[fk.executed % FK_RING];

		if (fk.die_at && q->sqe.number >= fk.die_at) {
			fk.gone = true;
			return;
		}
		fk_execute(q);
		fk.executed++;
	}
}

struct kvmm_sqe *kvmm_prep(struct kvmm *k, u16 op, u32 nr, u32 bytes,
			   void **args)
{
	struct fk_req *q = &fk.req[fk.prepared % FK_RING];

	ck_assert_uint_le(bytes, FK_ARGS);
	fk.jam |= fk_chance(fk.full);
	if (fk.gone || fk.prepared - fk.released >= FK_RING || fk.jam)
		return NULL;
	memset(&q->sqe, 0, sizeof(q->sqe));
	memset(q->args, 0xee, sizeof(q->args));
	q->sqe.op = op;
	q->sqe.nr = nr;
	q->sqe.number = ++fk.number;
	q->sqe.arg_len = bytes;
	*args = q->args;
	fk.prepared++;
	return &q->sqe;
}

/* A request may name a sequence after the client reaped the answer that made it. */
static void fk_check_known(const struct fk_req *q)
{
	static const u32 size[KVMM_NR_OPS] = {
		[KVMM_OP_SEQ_MATCH]	= sizeof(struct kvmm_match_arg),
		[KVMM_OP_STEP_BEGIN]	= sizeof(struct kvmm_begin_arg),
		[KVMM_OP_STEP_END]	= sizeof(struct kvmm_end_arg),
		[KVMM_OP_SEQ_FORK]	= sizeof(struct kvmm_fork_arg),
		[KVMM_OP_SEQ_REMAP]	= sizeof(struct kvmm_remap_arg),
		[KVMM_OP_SEQ_CLOSE]	= sizeof(struct kvmm_seq_arg),
	};
	u64 seq;
	u32 i;

	for (i = 0; size[q->sqe.op] && i < q->sqe.nr; i++) {
		memcpy(&seq, q->args + i * size[q->sqe.op], sizeof(seq));
		ck_assert_uint_lt(KVMM_SEQ_INDEX(seq), FK_SEQS);
		ck_assert(fk.s[KVMM_SEQ_INDEX(seq)].known);
	}
}

int kvmm_submit(struct kvmm *k)
{
	for (; fk.submitted != fk.prepared; fk.submitted++)
		fk_check_known(&fk.req[fk.submitted % FK_RING]);
	return fk.gone ? -ECONNRESET : 0;
}

static void fk_note_known(const struct fk_req *q)
{
	const struct kvmm_open_res *r = q->results;
	const struct kvmm_lease_res *lease = q->results;
	u32 i;

	if (q->cqe.status)
		return;
	if (q->sqe.op == KVMM_OP_SEQ_LEASE && !lease->status)
		fk.s[KVMM_SEQ_INDEX(lease->seq)].known = true;
	if (q->sqe.op != KVMM_OP_SEQ_OPEN && q->sqe.op != KVMM_OP_SEQ_FORK)
		return;
	for (i = 0; i < q->cqe.nr; i++)
		if (!r[i].status)
			fk.s[KVMM_SEQ_INDEX(r[i].seq)].known = true;
}

int kvmm_reap(struct kvmm *k, struct kvmm_done *done)
{
	struct fk_req *q = &fk.req[fk.reaped % FK_RING];

	fk_run(fk_rand(3));
	if (fk.reaped == fk.executed)
		return fk.gone ? -ECONNRESET : 0;
	fk_note_known(q);
	done->number = q->sqe.number;
	done->user_data = q->sqe.user_data;
	done->status = q->cqe.status;
	done->nr = q->cqe.nr;
	done->results = done->nr ? q->results : NULL;
	fk.reaped++;
	return 1;
}

void kvmm_release(struct kvmm *k)
{
	for (; fk.released != fk.reaped; fk.released++)
		free(fk.req[fk.released % FK_RING].results);
}

u32 kvmm_resumed(const struct kvmm *k, u32 *salvaged)
{
	*salvaged = fk.nr_salvaged;
	return fk.nr_salvaged;
}

static void fk_resume(void)
{
	fk.nr_salvaged += fk.away;
	fk.away = false;
}

int kvmm_confirm(struct kvmm *k)
{
	fk_resume();
	return fk.gone ? -ECONNRESET : 0;
}

int kvmm_wait(struct kvmm *k, s64 timeout_ns)
{
	fk.longest_wait = max(fk.longest_wait, timeout_ns);
	fk.idle_waits += fk.reaped == fk.submitted;
	fk_resume();
	fk_run(1 + fk_rand(4));
	fk_restore_all();
	fk_admit_all();
	if (fk.reaped != fk.executed)
		return 0;
	return fk.gone ? -ECONNRESET : -ETIMEDOUT;
}

int kvmm_poll_extents(struct kvmm *k)
{
	fk_resume();
	return fk.gone ? -ECONNRESET : 0;
}

int kvmm_next_event(struct kvmm *k, struct kvmm_event *ev)
{
	return 0;
}

int kvmm_seq_status(const struct kvmm *k, u64 seq, struct kvmm_seq_status *st)
{
	const struct fk_seq *s = fk_find(seq);

	fk.status_reads++;
	if (!s)
		return -ENOENT;
	*st = (struct kvmm_seq_status){
		.generation = s->gen, .state = s->state, .reason = s->reason,
		.valid_len = s->valid, .seq_epoch = s->epoch,
		.cached_len = s->cached,
	};
	return 0;
}

int kvmm_seq_table(const struct kvmm *k, u64 seq, u32 group, u32 first, u32 nr,
		   u32 *out)
{
	const struct fk_seq *s = fk_find(seq);
	u32 i;

	if (!s || s->state == KVMM_SEQ_SWAPPED || fk_chance(fk.lost))
		return -ENOENT;
	ck_assert_uint_lt(group, fk.nr_groups);
	if (first + nr > s->nr_blocks[group])
		return -ERANGE;
	/* Entries behind the window have no page any more. */
	if (nr && s->table[group][first] == KVMM_NO_INDEX)
		return -ERANGE;
	for (i = 0; i < nr; i++)
		out[i] = s->table[group][first + i] * FK_PER_BLOCK;
	return 0;
}

bool kvmm_draining(const struct kvmm *k)
{
	return false;
}

u32 kvmm_mapped(const struct kvmm *k)
{
	return 1;
}

const struct kvmm_attach_rep *kvmm_info(const struct kvmm *k)
{
	return &fk.info;
}

u32 kvmm_backend(const struct kvmm *k)
{
	return KVMM_MEMORY_HOST;
}

void *kvmm_pool(const struct kvmm *k)
{
	return fk.pool;
}

bool kvmm_device_failed(const struct kvmm *k)
{
	return fk.device_failed;
}

const char *kvmm_strerror_attach(const struct kvmm *k)
{
	return "killed by the test";
}

/* Take over the layer groups; a layer has a K and a V of 8 bytes for a token. */
static void fk_take_groups(const struct kvmm_params *p, u64 *stride)
{
	u32 g;

	fk.nr_groups = p->nr_groups;
	fk.step_tokens = p->step_tokens;
	fk.hit = p->block_tokens;
	for (g = 0; g < p->nr_groups; g++) {
		fk.bt[g] = g ? p->group[g].block_tokens : p->block_tokens;
		fk.window[g] = p->group[g].window;
		stride[g] = fk.bt[g] * 16;
		if (p->nr_groups > 1)
			stride[g] = ALIGN_UP(stride[g], 128);
		fk.block_bytes = max(fk.block_bytes,
				     (u32)(stride[g] * p->group[g].layers));
		fk.hit = max(fk.hit, fk.bt[g]);
	}
	for (g = 0; g < p->nr_groups; g++)
		ck_assert_uint_eq(fk.hit % fk.bt[g], 0);
	ck_assert(!p->group[0].window && !p->group[0].block_tokens);
	ck_assert(p->nr_groups == 1 ? fk.bt[0] == FK_BT && !p->step_tokens :
		  fk.bt[0] != fk.bt[1] && p->step_tokens);
}

int kvmm_attach(const struct kvmm_params *p, struct kvmm **out, char *text)
{
	u64 stride[KVMM_MAX_GROUPS] = { 0 };
	u32 i;

	if (fk.gone) {
		snprintf(text, 256, "no daemon here");
		return -ECONNREFUSED;
	}
	fk_take_groups(p, stride);
	memcpy(fk.identity, p->identity, sizeof(fk.identity));
	snprintf(fk.domain, sizeof(fk.domain), "%s", p->domain);
	fk.pool = malloc((size_t)fk.nr_blocks * FK_BLOCK_BYTES);
	for (i = 0; i < fk.nr_blocks; i++)
		fk_spoil(i);
	fk.info = (struct kvmm_attach_rep){
		.unit = FK_UNIT, .stride = { stride[0], stride[1] },
		.block_bytes = FK_BLOCK_BYTES, .max_seqs = FK_SEQS,
		.max_batch = FK_BATCH, .max_steps = fk.max_steps,
		.arg_bytes = 256, .step_deadline_ms = 10000,
		.nr_extents = fk.nr_blocks, .pool_extents = fk.nr_blocks,
		.span_extents = 1, .span_blocks = 1,
		.nr_shards = 1,
	};
	*out = (struct kvmm *)&fk;
	return 0;
}

/* The client must have given everything back. */
void kvmm_detach(struct kvmm *k)
{
	u32 i;

	if (!k)
		return;
	fk_run(FK_RING);
	for (; fk.released != fk.executed; fk.released++)
		free(fk.req[fk.released % FK_RING].results);
	if (!fk.gone && !fk.device_failed) {
		ck_assert_uint_eq(fk.nr_steps, 0);
		fk_end_leases();
		for (i = 0; i < FK_SEQS; i++)
			ck_assert_uint_eq(fk.s[i].state, KVMM_SEQ_CLOSED);
		for (i = 0; i < fk.nr_blocks; i++)
			ck_assert(!fk.b[i].maps && !fk.b[i].srcs);
	}
	for (i = 0; i < FK_SEQS; i++)
		fk_below_free(&fk.s[i]);
	free(fk.pool);
	fk.pool = NULL;
}

/* The digest is good enough for a test. */
void kvmm_identity_init(struct kvmm_identity *id)
{
	id->state[0] = 14695981039346656037ull;
}

void kvmm_identity_add(struct kvmm_identity *id, const char *tag,
		       const void *data, size_t len)
{
	const u8 *p = data;

	for (; *tag; tag++)
		id->state[0] = (id->state[0] ^ (u8)*tag) * 1099511628211ull;
	for (; len; len--)
		id->state[0] = (id->state[0] ^ *p++) * 1099511628211ull;
}

void kvmm_identity_final(struct kvmm_identity *id, u8 *out)
{
	memset(out, 0, KVMM_IDENTITY_LEN);
	memcpy(out, id->state, 8);
}

#endif /* ENGINE_FAKE_RING_H */
