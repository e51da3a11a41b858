// SPDX-License-Identifier: Apache-2.0
/*
 * request.c - plausible requests, decoded from an input
 *
 * A fuzzer that draws 64 bytes at random gets -EINVAL for ever.  Here a byte
 * chooses a verb.  Every field has a byte that decides between the value of an
 * honest client (a handle that it was given, the epoch that its status record
 * shows, the position after the last) and another one.  At the end bytes of entry
 * and arguments change, if the input says so; so any request is within reach.
 */
#include "tests/fuzz/shell.h"

#define ENTRIES	24u	/* of a request, at most */

/* Source of the fields of a request, and the request. */
struct ask {
	struct fuzz			*f;
	const struct kvmm_seq_status	*seqs;
	u32				nr_seqs;
	const u64			*handles;
	u32				nr_handles;
	u64				*step;
	struct kvmm_sqe			*sqe;
	char				*args;
	u32				nr_ids;
};

static const struct kvmm_seq_status *status_of(const struct ask *a, u64 seq)
{
	static const struct kvmm_seq_status none;
	u32 i = KVMM_SEQ_INDEX(seq);

	return i < a->nr_seqs ? &a->seqs[i] : &none;
}

static u64 some_handle(const struct ask *a)
{
	u8 b = fuzz_u8(a->f);
	u32 n = min(a->nr_handles, SHELL_HANDLES);

	if (b < 208 && n)
		return a->handles[b % n];
	if (b < 232 && n)
		return a->handles[b % n] ^ 1ull << (fuzz_u8(a->f) % 64);
	if (b < 248)
		return KVMM_SEQ(fuzz_u8(a->f), fuzz_u8(a->f) % 8);
	return fuzz_u64(a->f);
}

/* @right, or a number close to it, or any number. */
static u32 about(struct fuzz *f, u32 right)
{
	u8 b = fuzz_u8(f);

	if (b < 192)
		return right;
	if (b < 224)
		return right + b - 208;
	return fuzz_number(f);
}

/* Rarely not 0, for reserved words. */
static u32 seldom(struct fuzz *f)
{
	u8 b = fuzz_u8(f);

	return b < 240 ? 0 : b < 248 ? b - 239u : fuzz_u32(f);
}

static void ask_open(struct ask *a, u32 i)
{
	struct kvmm_open_arg *arg = (struct kvmm_open_arg *)a->args + i;

	arg->prompt_len = fuzz_number(a->f);
	arg->max_tokens = fuzz_number(a->f);
	arg->flags = seldom(a->f);
	arg->priority = fuzz_u8(a->f);
	arg->salt = fuzz_u8(a->f) % 4;
	arg->lease = seldom(a->f);
}

static void ask_match(struct ask *a, u32 i)
{
	struct kvmm_match_arg *arg = (struct kvmm_match_arg *)a->args + i;

	arg->seq = some_handle(a);
	arg->start = about(a->f, 0);
	arg->nr_ids = about(a->f, fuzz_u8(a->f));
	arg->flags = about(a->f, KVMM_MATCH_LAST);
	arg->resv = seldom(a->f);
	a->nr_ids += arg->nr_ids;
}

static void ask_lookup(struct ask *a, u32 i)
{
	struct kvmm_lookup_arg *arg = (struct kvmm_lookup_arg *)a->args + i;

	arg->salt = fuzz_u8(a->f) % 4;
	arg->start = about(a->f, 0);
	arg->nr_ids = about(a->f, fuzz_u8(a->f));
	arg->flags = about(a->f, KVMM_LOOKUP_LAST);
	arg->resv0 = seldom(a->f);
	arg->resv[fuzz_u8(a->f) % 2] = seldom(a->f);
	if (arg->start)
		arg->cookie[fuzz_u8(a->f) % 2] = fuzz_u64(a->f);
	a->nr_ids += arg->nr_ids;
}

/* A cookie that is made up names nothing: check_core_lease has right ones. */
static void ask_lease(struct ask *a, u32 i)
{
	struct kvmm_lease_arg *arg = (struct kvmm_lease_arg *)a->args + i;

	arg->salt = fuzz_u8(a->f) % 4;
	arg->len = about(a->f, 16 * (fuzz_u8(a->f) % 4u));
	arg->ms = about(a->f, fuzz_u8(a->f));
	arg->flags = seldom(a->f);
	arg->resv0 = seldom(a->f);
	arg->label[fuzz_u8(a->f) % KVMM_LABEL_LEN] = (char)seldom(a->f);
	arg->cookie[0] = fuzz_u64(a->f);
	arg->cookie[1] = fuzz_u64(a->f);
}

static void ask_begin(struct ask *a, u32 i)
{
	struct kvmm_begin_arg *arg = (struct kvmm_begin_arg *)a->args + i;
	const struct kvmm_seq_status *st;

	arg->seq = some_handle(a);
	st = status_of(a, arg->seq);
	arg->seq_epoch = about(a->f, st->seq_epoch);
	arg->start = about(a->f, st->valid_len);
	arg->max_tokens = about(a->f, 1 + fuzz_u8(a->f) % 64);
	arg->resv = seldom(a->f);
}

static void ask_end(struct ask *a, u32 i)
{
	struct kvmm_end_arg *arg = (struct kvmm_end_arg *)a->args + i;
	u32 grow, was;

	arg->seq = some_handle(a);
	was = status_of(a, arg->seq)->valid_len;
	grow = fuzz_u8(a->f) % 64;
	arg->valid_len = about(a->f, was + grow);
	arg->nr_ids = about(a->f, grow);
	a->nr_ids += arg->nr_ids;
}

static void ask_fork(struct ask *a, u32 i)
{
	struct kvmm_fork_arg *arg = (struct kvmm_fork_arg *)a->args + i;

	arg->seq = some_handle(a);
	arg->nr_children = about(a->f, 1 + fuzz_u8(a->f) % 4);
	arg->resv = seldom(a->f);
}

static void ask_remap(struct ask *a, u32 i)
{
	struct kvmm_remap_arg *arg = (struct kvmm_remap_arg *)a->args + i;

	arg->child = some_handle(a);
	arg->other = some_handle(a);
}

static void ask_seq(struct ask *a, u32 i)
{
	((struct kvmm_seq_arg *)a->args)[i].seq = some_handle(a);
}

static void ask_len(struct ask *a, u32 i)
{
	struct kvmm_len_arg *arg = (struct kvmm_len_arg *)a->args + i;

	arg->seq = some_handle(a);
	arg->len = about(a->f, status_of(a, arg->seq)->valid_len / 2);
	arg->resv = seldom(a->f);
}

static void ask_advise(struct ask *a, u32 i)
{
	struct kvmm_advise_arg *arg = (struct kvmm_advise_arg *)a->args + i;

	arg->seq = some_handle(a);
	arg->advice = about(a->f, fuzz_u8(a->f) % 8);
	arg->retain = seldom(a->f);
	if (arg->advice == KVMM_ADV_RETAIN) {
		u32 from = fuzz_number(a->f);

		arg->retain = fuzz_u8(a->f) % 5;
		arg->value = KVMM_RANGE(from, fuzz_number(a->f));
	} else if (arg->advice == KVMM_ADV_KEEP_UNTIL) {
		arg->value = fuzz_u64(a->f);
	} else {
		arg->value = seldom(a->f);
	}
}

static void ask_prio(struct ask *a, u32 i)
{
	struct kvmm_prio_arg *arg = (struct kvmm_prio_arg *)a->args + i;

	arg->seq = some_handle(a);
	arg->priority = fuzz_number(a->f);
	arg->resv = seldom(a->f);
}

static void ask_ack(struct ask *a, u32 i)
{
	struct kvmm_ack_arg *arg = (struct kvmm_ack_arg *)a->args + i;

	arg->extent = fuzz_number(a->f) % (fuzz_u8(a->f) < 240 ?
					   SHELL_EXTENTS : UINT32_MAX);
	arg->generation = about(a->f, 1 + fuzz_u8(a->f) % 3);
	arg->what = about(a->f, 1 + fuzz_u8(a->f) % 2);
	arg->resv = seldom(a->f);
}

static const struct {
	void	(*entry)(struct ask *a, u32 i);
	u32	bytes;
} verbs[KVMM_NR_OPS] = {
	[KVMM_OP_SEQ_OPEN]	= { ask_open, sizeof(struct kvmm_open_arg) },
	[KVMM_OP_SEQ_MATCH]	= { ask_match, sizeof(struct kvmm_match_arg) },
	[KVMM_OP_STEP_BEGIN]	= { ask_begin, sizeof(struct kvmm_begin_arg) },
	[KVMM_OP_STEP_END]	= { ask_end, sizeof(struct kvmm_end_arg) },
	[KVMM_OP_SEQ_FORK]	= { ask_fork, sizeof(struct kvmm_fork_arg) },
	[KVMM_OP_SEQ_REMAP]	= { ask_remap, sizeof(struct kvmm_remap_arg) },
	[KVMM_OP_SEQ_CLOSE]	= { ask_seq, sizeof(struct kvmm_seq_arg) },
	[KVMM_OP_SEQ_TRUNCATE]	= { ask_len, sizeof(struct kvmm_len_arg) },
	[KVMM_OP_SEQ_TRIM]	= { ask_len, sizeof(struct kvmm_len_arg) },
	[KVMM_OP_SEQ_ADVISE]	= { ask_advise,
				    sizeof(struct kvmm_advise_arg) },
	[KVMM_OP_SEQ_SETPRIO]	= { ask_prio, sizeof(struct kvmm_prio_arg) },
	[KVMM_OP_EXTENT_ACK]	= { ask_ack, sizeof(struct kvmm_ack_arg) },
	[KVMM_OP_SEQ_LOOKUP]	= { ask_lookup,
				    sizeof(struct kvmm_lookup_arg) },
	[KVMM_OP_SEQ_LEASE]	= { ask_lease, sizeof(struct kvmm_lease_arg) },
};

/* Numbers of steps rise; a STEP_END names a step that was begun. */
static u64 ask_step(struct ask *a)
{
	u8 b = fuzz_u8(a->f);

	if (a->sqe->op == KVMM_OP_STEP_BEGIN)
		*a->step += b < 240 ? 1 : b - 239u;
	return b == 255 ? fuzz_u64(a->f) :
	       a->sqe->op == KVMM_OP_STEP_BEGIN ? *a->step :
	       *a->step - b % 4;
}

static void ask_ids(struct ask *a, u32 from)
{
	u32 i, base = fuzz_u8(a->f) % 4 * 1000, room;

	room = (SHELL_ARGS - from) / 4;
	for (i = 0; i < min(a->nr_ids, room); i++)
		((u32 *)(a->args + from))[i] = base + i;
	a->sqe->arg_len = from + 4 * min(a->nr_ids, room);
}

void fuzz_request(struct fuzz *f, const struct kvmm_seq_status *seqs,
		  u32 nr_seqs, const u64 *handles, u32 nr_handles, u64 *step,
		  struct kvmm_sqe *sqe, void *args)
{
	struct ask a = {
		.f = f, .seqs = seqs, .nr_seqs = nr_seqs, .handles = handles,
		.nr_handles = nr_handles, .step = step, .sqe = sqe,
		.args = args,
	};
	u8 verb = fuzz_u8(f), count = fuzz_u8(f);
	u32 i, bytes;

	memset(sqe, 0, sizeof(*sqe));
	memset(args, 0, SHELL_ARGS);
	/* DETACH ends a client, and invalid verbs find nothing new: both are rare. */
	sqe->op = verb < 234 ? verb % KVMM_OP_DETACH :
		  verb < 246 ? KVMM_OP_SEQ_LOOKUP :
		  verb < 252 ? KVMM_OP_SEQ_LEASE :
		  verb < 254 ? KVMM_OP_DETACH : verb;
	bytes = sqe->op < KVMM_NR_OPS ? verbs[sqe->op].bytes : 0;
	if (bytes)
		sqe->nr = count < 160 ? 1 : count % ENTRIES;
	for (i = 0; i < sqe->nr; i++)
		verbs[sqe->op].entry(&a, i);
	ask_ids(&a, sqe->nr * bytes);
	if (sqe->op == KVMM_OP_STEP_BEGIN || sqe->op == KVMM_OP_STEP_END)
		sqe->step = ask_step(&a);
	if (sqe->op == KVMM_OP_STEP_END) {
		sqe->param[0] = (u64)fuzz_number(f) << 8;
		sqe->param[1] = fuzz_number(f);
	}
	sqe->user_data = count;
	fuzz_scar(f, sqe, sizeof(*sqe));
	fuzz_scar(f, args, SHELL_ARGS);
}
