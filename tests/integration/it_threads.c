// SPDX-License-Identifier: Apache-2.0
/*
 * it_threads.c - libkvmm in several threads of a process
 *
 * Threads attach, work and detach at the same time, each with attachments of its own.  Two
 * threads share one attachment under a lock.  tsan runs it.  budget: 60 s
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include <libkvmm.h>

#include "tests/integration/census.h"

#define TOKENS	16u
#define NR_IDS	100u
#define THREADS	4u
#define CYCLES	8u

static struct rig rig;
static u8 identity[KVMM_IDENTITY_LEN] = "it_threads";

struct worker {
	pthread_t	thread;
	pthread_mutex_t	*lock;		/* of a shared attachment, else NULL */
	struct kvmm	*kv;		/* the shared attachment */
	u64		*step;		/* its last step */
	u32		seed;
	int		err;		/* the first failure */
	char		text[256];
};

static int attach(struct worker *w, struct kvmm **out)
{
	char path[RIG_PATH + 32];
	const struct kvmm_params p = {
		.socket = path, .domain = "threads", .identity = identity,
		.block_tokens = TOKENS, .max_bytes = KVMM_LIMIT_MAX,
		.group[0] = { .layers = 2, .kv_heads = 2, .k_bytes = 128, .v_bytes = 128 },
		.attach_timeout_ms = 20000,
	};

	snprintf(path, sizeof(path), "%s/attach.sock", rig.dir);
	return kvmm_attach(&p, out, w->text);
}

static void lock(struct worker *w)
{
	if (w->lock)
		pthread_mutex_lock(w->lock);
}

static void unlock(struct worker *w)
{
	if (w->lock)
		pthread_mutex_unlock(w->lock);
}

/* Wait until the sequence has memory.  Another thread may use the attachment meanwhile. */
static int ready(struct worker *w, struct kvmm *kv, u64 seq, struct kvmm_seq_status *st)
{
	u32 tries;
	int err = 0;

	for (tries = 0; !err && tries < 2000; tries++) {
		err = kvmm_seq_status(kv, seq, st);
		if (err || st->state == KVMM_SEQ_READY)
			return err;
		err = kvmm_wait(kv, 10000000);
		if (err == -ETIMEDOUT)
			err = 0;
		unlock(w);
		lock(w);
	}
	return err ? err : -ETIMEDOUT;
}

/* One sequence: prompt, step, close. */
static int one(struct worker *w, struct kvmm *kv, u64 *step)
{
	const struct kvmm_open_arg open = { .prompt_len = NR_IDS, .max_tokens = 16 };
	struct kvmm_begin_arg b = { .max_tokens = 0 };
	struct kvmm_end_arg e = { .valid_len = NR_IDS };
	struct kvmm_seq_status st;
	struct kvmm_open_res res;
	struct kvmm_begin_res br;
	struct kvmm_end_res er;
	u32 ids[NR_IDS], i;
	u64 seq;
	int err;

	for (i = 0; i < NR_IDS; i++)
		ids[i] = w->seed * 1000 + i;
	err = kvmm_seq_open(kv, &open, 1, &res);
	err = err ? err : res.status;
	if (err)
		return err;
	seq = res.seq;
	err = kvmm_seq_match(kv, seq, ids, NR_IDS);
	err = err ? err : ready(w, kv, seq, &st);
	if (err)
		return err;
	b = (struct kvmm_begin_arg){ .seq = seq, .seq_epoch = st.seq_epoch,
				     .start = st.valid_len, .max_tokens = NR_IDS - st.valid_len };
	e.seq = seq;
	e.nr_ids = NR_IDS - st.valid_len;
	err = kvmm_step_begin(kv, ++*step, &b, 1, &br);
	err = err ? err : kvmm_step_end(kv, *step, 0, 0, &e, br.status ? 0 : 1,
					ids + st.valid_len, &er);
	return err ? err : kvmm_seq_close(kv, &seq, 1);
}

static void *work(void *arg)
{
	struct worker *w = arg;
	struct kvmm *kv = w->kv;
	u64 step = 0;
	u32 i;

	for (i = 0; i < CYCLES && !w->err; i++) {
		if (!w->lock)
			w->err = attach(w, &kv);
		lock(w);
		w->err = w->err ? w->err : one(w, kv, w->step ? w->step : &step);
		unlock(w);
		if (!w->lock && kv)
			kvmm_detach(kv);
		step = w->lock ? step : 0;
	}
	return NULL;
}

START_TEST(test_threads)
{
	static pthread_mutex_t shared = PTHREAD_MUTEX_INITIALIZER;
	struct worker w[THREADS + 2] = { 0 };
	struct kvmm *kv = NULL;
	u64 step = 0;
	u32 i;

	rig_start(&rig, "--pool-size", "16M", "--extent-size", "1M", NULL);
	ck_assert_msg(!attach(&w[0], &kv), "%s", w[0].text);
	for (i = 0; i < ARRAY_SIZE(w); i++) {
		w[i].seed = i;
		if (i >= THREADS) {
			w[i].lock = &shared;
			w[i].kv = kv;
			w[i].step = &step;
		}
		ck_assert_int_eq(pthread_create(&w[i].thread, NULL, work, &w[i]), 0);
	}
	for (i = 0; i < ARRAY_SIZE(w); i++) {
		pthread_join(w[i].thread, NULL);
		ck_assert_msg(!w[i].err, "thread %u: %d %s", i, w[i].err, w[i].text);
	}
	kvmm_detach(kv);
	rig_walk(&rig);
	rig_stop(&rig);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("it_threads");
	TCase *tc = tcase_create("threads");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, test_threads);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
