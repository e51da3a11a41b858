// SPDX-License-Identifier: Apache-2.0
/*
 * step_client.c - a client that uses every verb, and an honest one
 *
 * A victim is forked, runs the scene and is ended by its tracer at any
 * instruction.  Before a phase that the tracer chose it executes int3;
 * otherwise it behaves like an untraced client.
 *
 * An honest client works in the same domain with ids that victims have too, so
 * that it finds their blocks in the cache, and checks all its memory.
 */
#include <sys/mman.h>

#include "runtime/libkvmm/internal.h"
#include "tests/integration/harness.h"
#include "tests/integration/step_actor.h"

#define MAX_LEN		(ACTOR_PROMPT + 8u)

const char *const step_phase_name[STEP_NR] = {
#define x(name, words)	#name,
	STEP_PHASES(x)
#undef x
};

struct step_page *step_page_make(void)
{
	void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(p, MAP_FAILED);
	return p;
}

/* ---- phases ---- */

static bool do_start(struct actor *a)
{
	return true;
}

static bool do_attach(struct actor *a)
{
	static const u8 identity[KVMM_IDENTITY_LEN] = "step_client";
	const struct kvmm_params p = {
		.socket = a->socket,
		.domain = "step",
		.identity = identity,
		.block_tokens = ACTOR_TOKENS,
		.group[0] = { .layers = ACTOR_LAYERS, .kv_heads = 2, .k_bytes = 128,
			   .v_bytes = 128 },
		.max_bytes = KVMM_LIMIT_MAX,
		.max_seqs = 16,
	};
	char text[LK_TEXT_LEN];

	if (kvmm_attach(&p, &a->k, text))
		return actor_wrong(a, "%.150s", text);
	a->p->seg_c = a->k->seg_c;
	return true;
}

static bool do_nop(struct actor *a)
{
	return actor_good(a, "NOP", kvmm_nop(a->k));
}

static bool do_open(struct actor *a)
{
	const struct kvmm_open_arg arg = {
		.prompt_len = ACTOR_PROMPT, .max_tokens = MAX_LEN - ACTOR_PROMPT,
		.priority = KVMM_PRIO_NORMAL,
	};
	const struct kvmm_open_arg args[2] = { arg, arg };
	struct kvmm_open_res res[2];
	int ret = kvmm_seq_open(a->k, args, 2, res);

	if (ret || res[A].status || res[B].status)
		return actor_good(a, "SEQ_OPEN", ret ? ret : -EIO);
	a->seq[A] = res[A].seq;
	a->seq[B] = res[B].seq;
	return true;
}

static bool do_match(struct actor *a)
{
	u32 ids[ACTOR_PROMPT];
	int ret;

	actor_ids(ids, a->salt, 0, ACTOR_PROMPT);
	ret = kvmm_seq_match(a->k, a->seq[A], ids, ACTOR_PROMPT);
	if (!ret)
		ret = kvmm_seq_match(a->k, a->seq[B], ids, ACTOR_PROMPT);
	return actor_good(a, "SEQ_MATCH", ret);
}

static bool do_admit(struct actor *a)
{
	return actor_ready(a, A) && actor_ready(a, B);
}

static bool do_begin(struct actor *a)
{
	return actor_begin(a, A, B, 0, 0);
}

static bool do_kv(struct actor *a)
{
	return actor_write(a, A, a->len[A], ACTOR_PROMPT) &&
	       actor_write(a, B, a->len[B], ACTOR_PROMPT);
}

static bool do_end(struct actor *a)
{
	return actor_end(a, a->step, A, B, 0);
}

/* The second step begins while the first one is open, and continues it. */
static bool do_steps(struct actor *a)
{
	const u32 at = a->len[A];

	return actor_begin(a, A, B, 0, 1) && actor_begin(a, A, A, 1, 1) &&
	       actor_write(a, A, at, at + 2) && actor_write(a, B, at, at + 1) &&
	       actor_end(a, a->step - 1, A, B, 1) && actor_end(a, a->step, A, A, 1);
}

/* The full blocks of the prompt are there, and this client maps them. */
static bool do_lookup(struct actor *a)
{
	struct kvmm_found found;
	u32 ids[ACTOR_PROMPT];
	int ret;

	actor_ids(ids, a->salt, 0, ACTOR_PROMPT);
	ret = kvmm_lookup(a->k, 0, ids, ACTOR_PROMPT, &found);
	if (!ret && (found.found < ACTOR_PROMPT / ACTOR_TOKENS * ACTOR_TOKENS ||
		     found.ready != found.found))
		ret = -EIO;
	return actor_good(a, "SEQ_LOOKUP", ret);
}

/* Lease the prompt, open a sequence with the lease, and end both. */
static bool do_lease(struct actor *a)
{
	struct kvmm_open_arg open = { .prompt_len = ACTOR_PROMPT, .max_tokens = 1 };
	struct kvmm_open_res opened;
	struct kvmm_lease_res lease;
	struct kvmm_found found;
	u32 ids[ACTOR_PROMPT];
	int ret;

	actor_ids(ids, a->salt, 0, ACTOR_PROMPT);
	ret = kvmm_lookup(a->k, 0, ids, ACTOR_PROMPT, &found);
	if (!ret)
		ret = kvmm_lease(a->k, 0, &found, 1000, "scene", &lease);
	open.lease = ret ? 0 : lease.number;
	if (!ret)
		ret = kvmm_seq_open(a->k, &open, 1, &opened);
	if (!ret)
		ret = opened.status;
	if (!ret)
		ret = kvmm_seq_close(a->k, (u64[]){ opened.seq, lease.seq }, 2);
	return actor_good(a, "SEQ_LEASE", ret);
}

static bool do_fork(struct actor *a)
{
	struct kvmm_open_res res[2];
	int ret = kvmm_seq_fork(a->k, a->seq[A], 2, res);

	if (ret || res[0].status || res[1].status)
		return actor_good(a, "SEQ_FORK", ret ? ret : -EIO);
	a->seq[C] = res[0].seq;
	a->seq[D] = res[1].seq;
	a->len[C] = a->len[D] = a->len[A];
	return true;
}

static bool do_copy(struct actor *a)
{
	const u32 at = a->len[C];

	return actor_begin(a, C, D, 0, 1) && actor_write(a, C, at, at + 1) &&
	       actor_write(a, D, at, at + 1) && actor_end(a, a->step, C, D, 1);
}

static bool do_remap(struct actor *a)
{
	const struct kvmm_remap_arg arg = { .child = a->seq[C],
					    .other = a->seq[D] };
	struct kvmm_seq_res res;
	int ret = kvmm_seq_remap(a->k, &arg, 1, &res);

	return actor_good(a, "SEQ_REMAP", ret ? ret : res.status);
}

static bool do_truncate(struct actor *a)
{
	const struct kvmm_len_arg arg = { .seq = a->seq[C], .len = 20 };
	struct kvmm_seq_res res;
	int ret = kvmm_seq_truncate(a->k, &arg, 1, &res);

	a->len[C] = 20;
	return actor_good(a, "SEQ_TRUNCATE", ret ? ret : res.status);
}

static bool do_trim(struct actor *a)
{
	const struct kvmm_len_arg arg = { .seq = a->seq[D], .len = 32 };
	struct kvmm_seq_res res;
	int ret = kvmm_seq_trim(a->k, &arg, 1, &res);

	return actor_good(a, "SEQ_TRIM", ret ? ret : res.status);
}

static bool do_setprio(struct actor *a)
{
	const struct kvmm_prio_arg arg = { .seq = a->seq[B],
					   .priority = KVMM_PRIO_HIGH };

	return actor_good(a, "SEQ_SETPRIO", actor_ask(a, KVMM_OP_SEQ_SETPRIO, &arg,
					  sizeof(arg)));
}

static bool do_advise(struct actor *a)
{
	const u64 soon = (u64)lk_now() + 1000000000;
	int ret = actor_advise(a, A, KVMM_ADV_COLD, 0, 0);

	if (!ret)
		ret = actor_advise(a, B, KVMM_ADV_KEEP_UNTIL, 0, soon);
	if (!ret)
		ret = actor_advise(a, C, KVMM_ADV_DONTNEED, 0, 0);
	if (!ret)
		ret = actor_advise(a, B, KVMM_ADV_RETAIN, KVMM_RETAIN_HIGH,
			     KVMM_RANGE(0, 32));
	return actor_good(a, "SEQ_ADVISE", ret);
}

static bool do_pageout(struct actor *a)
{
	return actor_good(a, "PAGEOUT", actor_advise(a, B, KVMM_ADV_PAGEOUT, 0, 0));
}

static bool do_willneed(struct actor *a)
{
	return actor_good(a, "WILLNEED", actor_advise(a, B, KVMM_ADV_WILLNEED, 0, 0)) &&
	       actor_ready(a, B);
}

static bool do_close(struct actor *a)
{
	const u64 seqs[3] = { a->seq[A], a->seq[C], a->seq[D] };

	return actor_good(a, "SEQ_CLOSE", kvmm_seq_close(a->k, seqs, 3));
}

static bool do_detach(struct actor *a)
{
	if (!actor_begin(a, B, B, 0, 1))
		return false;
	kvmm_detach(a->k);
	a->p->seg_c = NULL;
	a->k = NULL;
	return true;
}

static bool do_over(struct actor *a)
{
	return true;
}

/* ---- the two clients ---- */

static void enter(struct step_page *p, u32 phase)
{
	if (READ_ONCE(p->stop_mask) & 1u << phase)
		__asm__ __volatile__("int3" ::: "memory");
	WRITE_ONCE(p->phase, phase);
}

void step_scene(struct step_page *p, const char *socket, u32 salt)
{
	static bool (*const run[STEP_NR])(struct actor *a) = {
#define x(name, words)	do_##name,
		STEP_PHASES(x)
#undef x
	};
	struct actor a = { .p = p, .socket = socket, .salt = salt };
	u32 i;

	for (i = 0; i < STEP_NR; i++) {
		enter(p, i);
		if (!run[i](&a))
			return;
		p->done_mask |= 1u << i;
	}
}

/* One sequence from beginning to end; all its bytes must be right. */
static bool honest_round(struct actor *a)
{
	const u64 seqs[2] = { a->seq[A], a->seq[B] };
	u32 found;

	if (!do_match(a) || !do_admit(a))
		return false;
	found = a->len[A];
	a->p->hits += found;
	if (!actor_check(a, A, found) || !do_begin(a) || !do_kv(a) || !do_end(a) ||
	    !do_steps(a) || !actor_check(a, A, ACTOR_PROMPT + 2) ||
	    !actor_check(a, B, ACTOR_PROMPT + 1))
		return false;
	return actor_good(a, "SEQ_CLOSE", kvmm_seq_close(a->k, seqs, 2));
}

bool step_honest(struct step_page *p, const char *socket, u32 nr_salts)
{
	struct actor a = { .p = p, .socket = socket };

	if (!do_attach(&a))
		return false;
	while (!READ_ONCE(p->quit)) {
		a.salt = p->rounds % nr_salts;
		if (!do_open(&a) || !honest_round(&a))
			return false;
		p->rounds++;
	}
	kvmm_detach(a.k);
	return true;
}
