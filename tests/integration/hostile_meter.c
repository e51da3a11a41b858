// SPDX-License-Identifier: Apache-2.0
/*
 * hostile_meter.c - cost of a step for an honest program meanwhile
 *
 * A separate process attaches, opens one sequence after the other and decodes
 * token by token: a step is begun, granted, ended and answered.  Then it sleeps
 * for a millisecond, in which an engine would compute.  The time of a step runs
 * from its first word to its last answer, without the pause.  Times go into a
 * histogram in shared memory, one for each phase that the test announces.  A
 * step during which the phase changes is not counted.
 *
 * A refused step (memory was asked back for another domain) has its own count:
 * the sequence is closed and another one opened.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/integration/hostile.h"

#define PROMPT		40u
#define DECODED		15u	/* wire_seq() asks for 16 more */
#define ANSWER_MS	2000u
#define GONE_MS		60000u	/* longest time without any sequence */
#define OCTAVE		32u	/* buckets of a doubling: 2.2 % wide */

static u64 meter_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (u64)ts.tv_sec * 1000000000 + (u64)ts.tv_nsec;
}

/* The octave, and the linear part of it. */
static u32 bucket_of(u64 ns)
{
	u32 top;

	if (ns < OCTAVE)
		return (u32)ns;
	top = 63 - (u32)__builtin_clzll(ns);
	return min((top - 4) * OCTAVE + (u32)(ns >> (top - 5)) % OCTAVE,
		   METER_BUCKETS - 1);
}

static u64 bucket_ns(u32 b)
{
	if (b < OCTAVE)
		return b;
	return (u64)(OCTAVE + b % OCTAVE + 1) << (b / OCTAVE - 1);
}

/* ---- the process ---- */

static int step_end(struct wire *w, u64 seq, u32 len)
{
	struct {
		struct kvmm_end_arg	arg;
		u32			id[2];
	} e = { .arg = { .seq = seq, .valid_len = len, .nr_ids = 1 },
		.id = { len * 13 } };
	const struct kvmm_end_res *res;
	struct kvmm_sqe *q;
	int status;

	q = wire_put(w, KVMM_OP_STEP_END, 1, &e, sizeof(e.arg) + 4);
	q->step = w->step;
	wire_publish(w);
	res = wire_take(w, ANSWER_MS, &status);
	if (res && !status)
		status = res->status;
	store_release(&w->ctl->cq_head, w->taken);
	return status;
}

static void meter_count(struct meter_counts *m, u32 phase, u64 ns)
{
	if (phase == METER_PHASES || phase != load_acquire(&m->phase))
		return;
	m->nr[phase]++;
	m->bucket[phase][bucket_of(ns)]++;
	m->most[phase] = max(m->most[phase], ns);
}

/* Decode one sequence from prompt to end.  Return: 0, or the error of a step. */
static int meter_decode(struct meter_counts *m, struct wire *w, u64 seq)
{
	u32 i, len = 0, phase;
	int err = 0;
	u64 start;

	for (i = 0; i < DECODED && !err; i++) {
		const struct kvmm_seq_status *st =
			(const struct kvmm_seq_status *)(w->d +
							 w->rep.seq_off) +
			KVMM_SEQ_INDEX(seq);

		len = READ_ONCE(st->valid_len) + 1;
		phase = load_acquire(&m->phase);
		start = meter_ns();
		err = wire_step(w, seq);
		if (!err)
			err = step_end(w, seq, len);
		if (!err)
			meter_count(m, phase, meter_ns() - start);
		wire_extents(w, true);
		nap_ms(1);
	}
	return err;
}

/* Close all sequences of the client, whatever their state. */
static void meter_close_all(struct wire *w)
{
	const struct kvmm_seq_status *st =
		(const struct kvmm_seq_status *)(w->d + w->rep.seq_off);
	struct kvmm_seq_arg close;
	u32 i;

	for (i = 0; i < w->rep.max_seqs; i++) {
		if (READ_ONCE(st[i].state) == KVMM_SEQ_CLOSED)
			continue;
		close.seq = KVMM_SEQ(i, READ_ONCE(st[i].generation));
		wire_call(w, KVMM_OP_SEQ_CLOSE, 1, &close, sizeof(close), NULL,
			  0);
	}
}

static void __noreturn meter_main(struct meter_counts *m, const char *path)
{
	struct kvmm_attach_req req;
	struct kvmm_seq_arg close;
	u64 last = now_ms();
	struct wire w;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	wire_request(&req, "meter");
	if (wire_attach(&w, path, &req))
		_exit(2);
	while (!load_acquire(&m->stop)) {
		close.seq = wire_seq(&w, PROMPT, 1 + m->nr[0] % 7);
		if (!wire_alive(&w))
			_exit(3);
		if (!close.seq) {
			/*
			 * Sequences that did not become ready still wait: close
			 * them.
			 */
			m->waited++;
			if (now_ms() > last + GONE_MS * time_scale())
				_exit(4);
			meter_close_all(&w);
			continue;
		}
		last = now_ms();
		if (meter_decode(m, &w, close.seq))
			m->refused++;
		wire_call(&w, KVMM_OP_SEQ_CLOSE, 1, &close, sizeof(close),
			  NULL, 0);
	}
	wire_call(&w, KVMM_OP_DETACH, 0, NULL, 0, NULL, 0);
	_exit(0);
}

/* ---- for the test ---- */

void meter_start(struct meter *m, struct rig *r)
{
	char path[RIG_PATH + 32];

	m->counts = mmap(NULL, sizeof(*m->counts), PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(m->counts, MAP_FAILED);
	m->counts->phase = METER_PHASES;
	snprintf(path, sizeof(path), "%s/attach.sock", r->dir);
	fflush(stdout);
	m->pid = fork();
	ck_assert_int_ge(m->pid, 0);
	if (!m->pid)
		meter_main(m->counts, path);
}

void meter_phase(struct meter *m, enum meter_phase phase)
{
	store_release(&m->counts->phase, (u32)phase);
}

int meter_stop(struct meter *m)
{
	struct job j = { .pid = m->pid };

	store_release(&m->counts->stop, 1u);
	snprintf(j.err, sizeof(j.err), "/dev/null");
	return job_wait(&j, 60 * time_scale());
}

u64 meter_quantile(const struct meter *m, enum meter_phase phase, u32 permille)
{
	u64 want = m->counts->nr[phase] * permille / 1000, sum = 0;
	u32 b;

	for (b = 0; b < METER_BUCKETS; b++) {
		sum += m->counts->bucket[phase][b];
		if (sum > want)
			return bucket_ns(b);
	}
	return 0;
}

void meter_print(const struct meter *m)
{
	static const char * const words[METER_PHASES] = {
		[METER_ALONE] = "alone", [METER_BUSY] = "beside busy ones",
		[METER_BESIDE] = "beside hostile ones",
		[METER_FIRST_ALONE] = "alone, first in line",
		[METER_FIRST_BESIDE] = "beside hostile ones, first in line",
	};
	u32 i;

	printf("  the one that measures: %llu sequences waited for in vain, %llu refused a step\n",
	       (unsigned long long)m->counts->waited,
	       (unsigned long long)m->counts->refused);
	for (i = 0; i < METER_PHASES; i++) {
		if (!m->counts->nr[i])
			continue;
		printf("  a step %s: p50 %.1f us, p99 %.1f us, p99.9 %.1f us, most %.1f us (%llu steps)\n",
		       words[i], (double)meter_quantile(m, i, 500) / 1e3,
		       (double)meter_quantile(m, i, 990) / 1e3,
		       (double)meter_quantile(m, i, 999) / 1e3,
		       (double)m->counts->most[i] / 1e3,
		       (unsigned long long)m->counts->nr[i]);
	}
}

void meter_free(struct meter *m)
{
	munmap(m->counts, sizeof(*m->counts));
}
