// SPDX-License-Identifier: Apache-2.0
/*
 * check_engine.c - the engine, one property a test
 *
 * The daemon and the model are fakes, see engine_fixture.h.
 */
#include <unistd.h>

#include "tests/unit/engine_fixture.h"

/* ---- one feature a test ---- */

START_TEST(test_one_request)
{
	struct engine_stats st;

	start(NULL);
	submit(ask(0, 3, 10, 20, 0));
	run();
	check_ask(&asks[0]);
	engine_get_stats(engine, &st);
	ck_assert_uint_eq(st.prompt_tokens, 10);
	ck_assert_uint_eq(st.prefilled_tokens, 10);
	ck_assert_uint_eq(st.decoded_tokens, 19);
	ck_assert_uint_eq(st.generated_tokens, 20);
	ck_assert_uint_eq(st.recomputed_tokens, 0);
	ck_assert_uint_eq(model.forwards, 20);
	ck_assert_str_eq(fk.domain, "tmp");
}
END_TEST

/* The domain of a GGUF file that is a link has the name of the link. */
START_TEST(test_domain_of_link)
{
	char path[300], name[32];

	snprintf(name, sizeof(name), "m%d.gguf", (int)getpid());
	snprintf(path, sizeof(path), "%s/%s", getenv("TMPDIR"), name);
	ck_assert_int_eq(symlink("/proc/self/exe", path), 0);
	model.info.dir = path;
	start(NULL);
	ck_assert_str_eq(fk.domain, name);
	unlink(path);
}
END_TEST

/*
 * A sequence may be READY when the answer to its ids comes.  Then no event will tell
 * of it, and the engine must not wait for one.
 */
START_TEST(test_ready_at_once)
{
	u32 i;

	start(NULL);
	for (i = 0; i < 5; i++) {
		submit(ask(i, i, 9, 3, 1));
		run();
		check_ask(&asks[i]);
		ck_assert_uint_eq(fk.idle_waits, 0);
	}
}
END_TEST

/* While a step runs, the next one is already submitted. */
START_TEST(test_one_step_ahead)
{
	start(NULL);
	submit(ask(0, 3, 10, 20, 1));
	while (model.forwards < 8)
		ck_assert_int_eq(engine_step(engine, 1000), 1);
	ck_assert_uint_eq(fk.open_at_forward, 2);
	run();
	check_ask(&asks[0]);
}
END_TEST

START_TEST(test_one_step_at_once)
{
	const struct engine_opts o = { .max_steps = 1 };

	start(&o);
	submit(ask(0, 3, 10, 20, 3));
	run();
	check_ask(&asks[0]);
	ck_assert_uint_eq(fk.open_at_forward, 1);
}
END_TEST

/* Running sequences go on while a long prompt is computed in chunks. */
START_TEST(test_chunks_mix_with_decodes)
{
	const struct engine_opts o = { .chunk = 4 };
	u32 before;

	fm_init(&model, 6);
	start(&o);
	submit(ask(0, 1, 5, 40, 1));
	while (asks[0].got[0].nr < 3)
		ck_assert_int_eq(engine_step(engine, 1000), 1);
	before = asks[0].got[0].nr;
	submit(ask(1, 2, 40, 5, 1));
	while (!asks[1].got[0].nr)
		ck_assert_int_eq(engine_step(engine, 1000), 1);
	ck_assert_uint_ge(asks[0].got[0].nr, before + 40 / 4);
	run();
	check_ask(&asks[0]);
	check_ask(&asks[1]);
	ck_assert_uint_le(model.max_rows_seen, 6);
}
END_TEST

/* More running sequences than rows: each has its turn. */
START_TEST(test_decodes_take_turns)
{
	u32 i;

	fm_init(&model, 3);
	start(NULL);
	for (i = 0; i < 4; i++)
		submit(ask(i, i, 1, 12, 1));
	while (!asks[3].got[0].nr)
		ck_assert_int_eq(engine_step(engine, 1000), 1);
	ck_assert_uint_eq(asks[0].got[0].dones, 0);
	run();
	for (i = 0; i < 4; i++)
		check_ask(&asks[i]);
}
END_TEST

/* Children share all blocks; all children but one copy the half-full block. */
START_TEST(test_fork_shares)
{
	struct engine_stats st;

	start(NULL);
	ask(0, 3, 10, 8, 4)->c.sampling.temperature = 1.0f;
	submit(&asks[0]);
	run();
	check_ask(&asks[0]);
	engine_get_stats(engine, &st);
	ck_assert_uint_eq(st.forks, 3);
	ck_assert_uint_eq(st.copies, 3);
	ck_assert_uint_eq(st.prefilled_tokens, 10);
	ck_assert_mem_ne(asks[0].got[0].ids, asks[0].got[1].ids, 32);
}
END_TEST

START_TEST(test_fork_on_a_block_edge_copies_nothing)
{
	struct engine_stats st;

	start(NULL);
	ask(0, 3, 8, 8, 4)->c.sampling.temperature = 1.0f;
	submit(&asks[0]);
	run();
	check_ask(&asks[0]);
	engine_get_stats(engine, &st);
	ck_assert_uint_eq(st.forks, 3);
	ck_assert_uint_eq(st.copies, 0);
}
END_TEST

/* Samples that end with their first token never become sequences. */
START_TEST(test_one_token_needs_no_fork)
{
	struct engine_stats st;

	start(NULL);
	ask(0, 3, 10, 1, 4)->c.sampling.temperature = 1.0f;
	submit(&asks[0]);
	run();
	check_ask(&asks[0]);
	engine_get_stats(engine, &st);
	ck_assert_uint_eq(st.forks, 0);
	ck_assert_uint_eq(st.decoded_tokens, 0);
}
END_TEST

/* A fork that finds no room ends the samples that need it, not the first one. */
START_TEST(test_fork_without_room)
{
	u32 k;

	fk.no_spc = true;
	start(NULL);
	submit(ask(0, 3, 10, 8, 3));
	run();
	ck_assert_int_eq(asks[0].got[0].done.reason, ENGINE_LENGTH);
	ck_assert_uint_eq(asks[0].got[0].nr, 8);
	for (k = 1; k < 3; k++) {
		ck_assert_uint_eq(asks[0].got[k].dones, 1);
		ck_assert_int_eq(asks[0].got[k].done.err, -ENOSPC);
		ck_assert_uint_gt(strlen(asks[0].got[k].text), 0);
	}
}
END_TEST

/* Two requests at once with a common beginning: it is computed once. */
START_TEST(test_prefix_is_computed_once)
{
	struct engine_stats st;

	fm_init(&model, 128);
	start(NULL);
	submit(ask(0, 3, 30, 5, 1));
	submit(ask(1, 3, 34, 5, 1));
	ask(2, 3, 34, 5, 1)->c.salt = 99;
	submit(&asks[2]);
	while (!model.forwards)
		ck_assert_int_eq(engine_step(engine, 1000), 1);
	ck_assert_uint_eq(model.last_batch, 2);	/* under another salt */
	run();
	check_ask(&asks[0]);
	check_ask(&asks[1]);
	check_ask(&asks[2]);
	ck_assert_uint_eq(asks[0].got[0].done.cached_tokens, 0);
	ck_assert_uint_eq(asks[1].got[0].done.cached_tokens, 28);
	ck_assert_uint_eq(asks[2].got[0].done.cached_tokens, 0);
	engine_get_stats(engine, &st);
	ck_assert_uint_eq(st.cached_tokens, 28);
	ck_assert_uint_eq(st.prefilled_tokens, 30 + 34 - 28 + 34);
}
END_TEST

/*
 * A preempted family whose blocks were evicted computes the prompt once again,
 * not once for each member.
 */
START_TEST(test_family_comes_back_as_one)
{
	struct engine_stats st;
	u32 i;

	start(NULL);
	ask(0, 3, 40, 12, 4)->c.sampling.temperature = 1.0f;
	submit(&asks[0]);
	while (asks[0].got[3].nr < 4)
		ck_assert_int_eq(engine_step(engine, 1000), 1);
	for (i = 0; i < FK_SEQS; i++)
		if (fk.s[i].state == KVMM_SEQ_READY)
			fk_mark(fk.s[i].family);
	for (i = 0; i < fk.nr_blocks; i++)
		fk.b[i].indexed = false;
	run();
	check_ask(&asks[0]);
	engine_get_stats(engine, &st);
	ck_assert_uint_eq(st.preemptions, 4);
	ck_assert_uint_ge(st.recomputed_tokens, 40);
	ck_assert_uint_le(st.recomputed_tokens, 40 + 4 * 12);
}
END_TEST

static void mark_all(void)
{
	u32 i;

	for (i = 0; i < FK_SEQS; i++)
		if (fk.s[i].state == KVMM_SEQ_READY)
			fk_mark(fk.s[i].family);
}

/* A family that was swapped and restored into other blocks computes nothing twice. */
START_TEST(test_swapped_comes_back)
{
	struct engine_stats st;
	u32 n;

	fk.swap = 1000;
	start(NULL);
	ask(0, 3, 10, 30, 3)->c.sampling.temperature = 1.0f;
	submit(&asks[0]);
	submit(ask(1, 9, 20, 25, 1));
	for (n = 0; n < 5; n++) {
		while (asks[0].got[2].nr < 4 * n + 4)
			ck_assert_int_eq(engine_step(engine, 1000), 1);
		mark_all();
	}
	run();
	check_ask(&asks[0]);
	check_ask(&asks[1]);
	engine_get_stats(engine, &st);
	ck_assert_uint_ge(fk.nr_restored, 5 * 4);
	ck_assert_uint_eq(st.restored, fk.nr_restored);
	ck_assert_uint_eq(st.recomputed_tokens, 0);
	ck_assert_uint_eq(st.readmitted_cached, 0);
	ck_assert_uint_eq(model.rows, 10 + 20 + 3 * 29 + 24);
}
END_TEST

/* A swapped sequence that was lost is matched and computed again. */
START_TEST(test_swapped_and_lost)
{
	struct engine_stats st;

	fk.swap = 1000;
	fk.swap_lost = 1000;
	start(NULL);
	submit(ask(0, 3, 10, 30, 3));
	while (asks[0].got[2].nr < 4)
		ck_assert_int_eq(engine_step(engine, 1000), 1);
	mark_all();
	run();
	check_ask(&asks[0]);
	engine_get_stats(engine, &st);
	ck_assert_uint_eq(fk.nr_restored, 0);
	ck_assert_uint_ge(fk.nr_swap_lost, 3);
	ck_assert_uint_eq(st.restored, 0);
	ck_assert_uint_gt(st.recomputed_tokens, 0);
}
END_TEST

/* A swap between the first tokens and the fork: the tokens are not drawn again. */
START_TEST(test_swapped_before_the_fork)
{
	struct engine_stats st;
	u32 i;

	fk.swap = 1000;
	fk.no_forks = true;
	start(NULL);
	ask(0, 3, 6, 12, 3)->c.sampling.temperature = 1.0f;
	submit(&asks[0]);
	while (!asks[0].got[2].nr)
		ck_assert_int_eq(engine_step(engine, 1000), 1);
	mark_all();
	for (i = 0; i < 20; i++)
		ck_assert_int_eq(engine_step(engine, 1000), 1);
	fk.no_forks = false;
	run();
	check_ask(&asks[0]);
	engine_get_stats(engine, &st);
	ck_assert_uint_gt(st.restored, 0);
	ck_assert_uint_eq(st.recomputed_tokens, 0);
}
END_TEST

/* A daemon that reports more positions than were computed is not believed. */
START_TEST(test_swapped_comes_back_with_more)
{
	fk.swap = 1000;
	fk.swap_more = 1;
	start(NULL);
	submit(ask(0, 3, 10, 30, 1));
	while (asks[0].got[0].nr < 4)
		ck_assert_int_eq(engine_step(engine, 1000), 1);
	mark_all();
	run();
	ck_assert_int_eq(asks[0].got[0].done.err, -EPROTO);
	ck_assert_uint_eq(asks[0].got[0].dones, 1);
}
END_TEST

/* With one sequence at a time, requests end in the order of the queue. */
START_TEST(test_queue_order)
{
	static const u32 want[] = { 1, 3, 0, 2 };
	const struct engine_opts o = { .max_batch = 1 };
	u32 i;

	start(&o);
	for (i = 0; i < 4; i++) {
		ask(i, i, 6, 6, 1)->c.priority = i & 1 ? 5 : 0;
		submit(&asks[i]);
	}
	run();
	for (i = 0; i < 4; i++) {
		check_ask(&asks[i]);
		ck_assert_uint_eq(order[i], want[i]);
	}
}
END_TEST

/* More requests than the daemon gives sequences: the others wait. */
START_TEST(test_more_requests_than_sequences)
{
	u32 i;

	start(NULL);
	for (i = 0; i < MAX_REQ; i++)
		submit(ask(i, i, 6, 9, 1 + i % MAX_N));
	run();
	for (i = 0; i < MAX_REQ; i++)
		check_ask(&asks[i]);
}
END_TEST

START_TEST(test_context_cuts)
{
	start(NULL);
	submit(ask(0, 3, FM_CONTEXT - 3, 50, 1));
	submit(ask(1, 4, FM_CONTEXT - 1, 50, 2));
	run();
	check_ask(&asks[0]);
	check_ask(&asks[1]);
	ck_assert_uint_eq(asks[0].got[0].nr, 3);
	ck_assert_uint_eq(asks[1].got[1].nr, 1);
}
END_TEST

/* ---- tokens of prompts ---- */

/* The whole prompt is scored, though its blocks are cached. */
START_TEST(test_scores_ignore_the_cache)
{
	struct ask *a;

	start(NULL);
	submit(ask(0, 3, 40, 5, 1));
	run();
	a = ask(1, 3, 40, 5, 3);
	a->c.prompt_logprobs = ENGINE_LOGPROBS(4);
	submit(a);
	submit(ask(2, 3, 40, 5, 1));
	run();
	check_ask(a);
	ck_assert_uint_eq(a->scored, 39);
	ck_assert_uint_eq(a->got[0].done.cached_tokens, 0);
	check_ask(&asks[2]);
	ck_assert_uint_gt(asks[2].got[0].done.cached_tokens, 0);
}
END_TEST

/* A step has a bounded number of rows of logits, however many prompts want them. */
START_TEST(test_scores_are_bounded)
{
	u32 i;

	fm_init(&model, 400);
	start(NULL);
	for (i = 0; i < 6; i++) {
		ask(i, 3 * i, 80, 5, 1)->c.prompt_logprobs = ENGINE_LOGPROBS(0);
		submit(&asks[i]);
	}
	run();
	for (i = 0; i < 6; i++) {
		check_ask(&asks[i]);
		ck_assert_uint_eq(asks[i].scored, 79);
	}
	ck_assert_uint_ge(model.max_logits_seen, 60);
	ck_assert_uint_le(model.max_logits_seen, 64 + 6);
}
END_TEST

/* ---- refusals ---- */

static int refused(struct ask *a, struct engine_error *err)
{
	err->text[0] = '\0';
	return engine_submit(engine, &a->c, NULL, err);
}

START_TEST(test_bad_requests)
{
	static const u32 far_id = FM_VOCAB;
	struct engine_error err;

	start(NULL);
	ck_assert_int_eq(refused(ask(0, 0, 0, 5, 1), &err), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.text, "empty"));
	ck_assert_int_eq(refused(ask(0, 0, 5, 0, 1), &err), -EINVAL);
	ask(0, 0, 5, 5, 1)->c.nr = FM_CONTEXT;
	ck_assert_int_eq(refused(&asks[0], &err), -E2BIG);
	ck_assert_ptr_nonnull(strstr(err.text, "96"));
	ck_assert_int_eq(refused(ask(0, 0, 5, 5, FK_SEQS + 1), &err), -EINVAL);
	ask(0, 0, 5, 5, 1)->ids[4] = FM_VOCAB;
	ck_assert_int_eq(refused(&asks[0], &err), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.text, "token 4"));
	ask(0, 0, 5, 5, 1)->c.sampling.temperature = -1.0f;
	ck_assert_int_eq(refused(&asks[0], &err), -EINVAL);
	ck_assert_uint_gt(strlen(err.text), 0);
	ask(0, 0, 5, 5, 1)->c.logprobs = ENGINE_LOGPROBS(ENGINE_TOP_MAX + 1);
	ck_assert_int_eq(refused(&asks[0], &err), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.text, "129"));
	ask(0, 0, 5, 5, 1)->c.logprobs = ENGINE_LOGPROBS(1);
	asks[0].c.logprob_ids = &far_id;
	ck_assert_int_eq(refused(&asks[0], &err), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.text, "61"));
	run();
}
END_TEST

/* An operator drains the engine: requests go on, a new one is refused. */
START_TEST(test_drained)
{
	start(NULL);
	submit(ask(0, 3, 6, 6, 1));
	ck_assert_int_eq(engine_step(engine, 1000), 1);
	ck_assert_int_eq(engine_step(engine, 1000), 1);
	fk.drained = true;
	submit(ask(1, 4, 6, 6, 1));
	run();
	check_ask(&asks[0]);
	ck_assert_int_eq(asks[1].got[0].done.reason, ENGINE_ERROR);
	ck_assert_int_eq(asks[1].got[0].done.err, -ESHUTDOWN);
	ck_assert_ptr_nonnull(strstr(asks[1].got[0].text, "being drained"));
}
END_TEST

START_TEST(test_never_fits)
{
	fk.nr_blocks = 5;
	start(NULL);
	submit(ask(0, 3, 30, 20, 2));
	submit(ask(1, 3, 6, 6, 1));
	run();
	ck_assert_int_eq(asks[0].got[0].done.reason, ENGINE_ERROR);
	ck_assert_int_eq(asks[0].got[1].done.err, -E2BIG);
	ck_assert_ptr_nonnull(strstr(asks[0].got[0].text, "never fit"));
	check_ask(&asks[1]);
}
END_TEST

START_TEST(test_no_daemon)
{
	struct engine_error err = { "" };

	fk.gone = true;
	ck_assert_int_eq(engine_create(&model, NULL, &engine, &err),
			 -ECONNREFUSED);
	ck_assert_str_eq(err.text, "no daemon here");
}
END_TEST

/* The daemon fails a running sequence: its request ends, others go on. */
START_TEST(test_failed_by_the_daemon)
{
	u32 i;

	start(NULL);
	submit(ask(0, 3, 6, 30, 1));
	submit(ask(1, 4, 6, 30, 1));
	while (asks[0].got[0].nr < 4)
		ck_assert_int_eq(engine_step(engine, 1000), 1);
	for (i = 0; i < FK_SEQS; i++)
		if (fk.s[i].state == KVMM_SEQ_READY && fk.s[i].family == 1) {
			fk.s[i].state = KVMM_SEQ_FAILED;
			fk.s[i].reason = -EDQUOT;
			fk.s[i].epoch++;
		}
	run();
	ck_assert_uint_eq(asks[0].got[0].dones, 1);
	ck_assert_int_eq(asks[0].got[0].done.err, -EDQUOT);
	check_ask(&asks[1]);
}
END_TEST

/* The same before the sequence could fork: all its samples end with it. */
START_TEST(test_failed_before_the_fork)
{
	u32 i, k;

	fk.no_forks = true;
	start(NULL);
	submit(ask(0, 3, 6, 30, 3));
	while (!asks[0].got[2].nr)
		ck_assert_int_eq(engine_step(engine, 1000), 1);
	for (i = 0; i < 20; i++)
		ck_assert_int_eq(engine_step(engine, 1000), 1);
	for (i = 0; i < FK_SEQS; i++) {
		if (fk.s[i].state != KVMM_SEQ_READY)
			continue;
		fk.s[i].state = KVMM_SEQ_FAILED;
		fk.s[i].reason = -EDQUOT;
	}
	run();
	for (k = 0; k < 3; k++) {
		ck_assert_uint_eq(asks[0].got[k].nr, 1);
		ck_assert_int_eq(asks[0].got[k].done.err, -EDQUOT);
	}
}
END_TEST

START_TEST(test_forward_fails)
{
	start(NULL);
	submit(ask(0, 3, 6, 30, 3));
	submit(ask(1, 9, 6, 30, 1));
	while (asks[0].got[0].nr < 4)
		ck_assert_int_eq(engine_step(engine, 1000), 1);
	model.fail = -EINVAL;
	submit(ask(2, 4, 6, 9, 1));
	run();
	ck_assert_int_eq(asks[0].got[2].done.reason, ENGINE_ERROR);
	ck_assert_int_eq(asks[1].got[0].done.err, -EINVAL);
	check_ask(&asks[2]);
}
END_TEST

/*
 * The device fails in the middle of a step, or at the copies before it.  All
 * running and waiting requests end with an error, and nothing goes on.
 */
START_TEST(test_device_fails)
{
	u32 i, k;

	fk.seed = 11;
	start(NULL);
	for (i = 0; i < 4; i++)
		submit(ask(i, i, 6 + i, 60, 1 + i % 3));
	while (asks[1].got[0].nr < 4)
		ck_assert_int_eq(engine_step(engine, 1000), 1);
	model.fail = _i ? -EIO : 0;
	model.failure = "attention: CUDA_ERROR_ILLEGAL_ADDRESS";
	ck_assert_int_eq(run_status(), -ENOTRECOVERABLE);
	for (i = 0; i < 4; i++) {
		for (k = 0; k < asks[i].c.n; k++) {
			const struct got *g = &asks[i].got[k];

			ck_assert_uint_eq(g->dones, 1);
			ck_assert_int_eq(g->done.reason, ENGINE_ERROR);
			ck_assert_int_eq(g->done.err, -ENOTRECOVERABLE);
			ck_assert_str_eq(g->text, "the GPU failed: attention: CUDA_ERROR_ILLEGAL_ADDRESS");
		}
	}
	ck_assert_int_eq(engine_step(engine, 0), -ENOTRECOVERABLE);
	ck_assert_int_eq(engine_submit(engine, &asks[0].c, NULL, NULL),
			 -ENOTRECOVERABLE);
	/* The library detaches like a dead client: it gives nothing back. */
	fk.device_failed = true;
}
END_TEST

/* The daemon reports that its device lost its content. */
START_TEST(test_daemon_lost_the_device)
{
	u32 i;

	start(NULL);
	submit(ask(0, 3, 6, 30, 1));
	while (asks[0].got[0].nr < 3)
		ck_assert_int_eq(engine_step(engine, 1000), 1);
	for (i = 0; i < FK_SEQS; i++) {
		if (fk.s[i].state != KVMM_SEQ_READY)
			continue;
		fk.s[i].state = KVMM_SEQ_FAILED;
		fk.s[i].reason = -ENODEV;
		fk.s[i].epoch++;
	}
	run();
	ck_assert_int_eq(asks[0].got[0].done.err, -ENODEV);
	ck_assert_ptr_nonnull(strstr(asks[0].got[0].text, "lost what the GPU"));
}
END_TEST

/* The library reports the failure: of a mapping, or of a revoked extent. */
START_TEST(test_device_fails_elsewhere)
{
	fk.seed = 5;
	fk.die_at = 40;
	fk.device_failed = true;
	start(NULL);
	submit(ask(0, 3, 6, 60, 2));
	ck_assert_int_eq(run_status(), -ENOTRECOVERABLE);
	ck_assert_int_eq(asks[0].got[1].done.err, -ENOTRECOVERABLE);
}
END_TEST

/* ---- requests that end early ---- */

START_TEST(test_cancel)
{
	start(NULL);
	submit(ask(0, 3, 6, 30, 3));
	submit(ask(1, 4, 6, 30, 1));
	asks[0].cancel_after = 5;
	run();
	ck_assert_uint_eq(asks[0].got[0].dones, 1);
	ck_assert_int_eq(asks[0].got[0].done.reason, ENGINE_CANCELLED);
	ck_assert_uint_eq(asks[0].got[2].dones, 1);
	ck_assert_int_eq(asks[0].got[2].done.reason, ENGINE_CANCELLED);
	check_ask(&asks[1]);
	ck_assert_int_eq(engine_cancel(engine, asks[0].id), -ENOENT);
}
END_TEST

/* In the callback of a first token, when only some samples exist. */
START_TEST(test_cancel_at_the_first_token)
{
	u32 k;

	start(NULL);
	submit(ask(0, 3, 6, 30, 4));
	asks[0].cancel_after = 1;
	asks[0].cancel_sample = (u32)_i;
	run();
	for (k = 0; k < 4; k++) {
		ck_assert_uint_eq(asks[0].got[k].nr, k <= (u32)_i);
		ck_assert_uint_eq(asks[0].got[k].dones, 1);
		ck_assert_int_eq(asks[0].got[k].done.reason, ENGINE_CANCELLED);
	}
}
END_TEST

/* After @_i steps: queued, opening, matching, forking, decoding. */
START_TEST(test_cancel_at_any_time)
{
	int i;

	fk.seed = 77 + (u32)_i;
	start(NULL);
	submit(ask(0, 3, 6, 30, 4));
	submit(ask(1, 4, 9, 20, 2));
	for (i = 0; i < _i; i++)
		(void)!engine_step(engine, 1000);
	ck_assert_int_eq(engine_cancel(engine, asks[0].id), 0);
	ck_assert_uint_eq(asks[0].got[3].dones, 1);
	run();
	check_ask(&asks[1]);
}
END_TEST

START_TEST(test_destroy_with_work_left)
{
	u32 k;
	int i;

	start(NULL);
	submit(ask(0, 3, 6, 30, 4));
	submit(ask(1, 4, 9, 20, 2));
	for (i = 0; i < _i; i++)
		(void)!engine_step(engine, 1000);
	engine_destroy(engine);
	engine = NULL;
	for (k = 0; k < 4; k++)
		ck_assert_uint_eq(asks[0].got[k].dones, 1);
}
END_TEST

/* The daemon dies at request number @_i. */
START_TEST(test_daemon_dies)
{
	u32 i, k;

	fk.seed = 5 + (u32)_i;
	fk.die_at = (u64)_i + 1;
	start(NULL);
	for (i = 0; i < 4; i++)
		submit(ask(i, i, 6 + i, 60, 1 + i % 3));
	ck_assert_int_eq(run_status(), -ECONNRESET);
	for (i = 0; i < 4; i++) {
		for (k = 0; k < asks[i].c.n; k++) {
			const struct got *g = &asks[i].got[k];

			ck_assert_uint_eq(g->dones, 1);
			ck_assert_int_eq(g->done.err, -ECONNRESET);
			ck_assert_str_eq(g->text,
				"killed by the test");
		}
	}
	ck_assert_str_eq(engine_strerror(engine), asks[0].got[0].text);
	ck_assert_int_eq(engine_step(engine, 0), -ECONNRESET);
	ck_assert_int_eq(engine_submit(engine, &asks[0].c, NULL, NULL),
			 -ECONNRESET);
}
END_TEST

static Suite *engine_suite(void)
{
	Suite *s = suite_create("engine");
	TCase *tc = tcase_create("one");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_one_request);
	tcase_add_test(tc, test_domain_of_link);
	tcase_add_test(tc, test_ready_at_once);
	tcase_add_test(tc, test_one_step_ahead);
	tcase_add_test(tc, test_one_step_at_once);
	tcase_add_test(tc, test_chunks_mix_with_decodes);
	tcase_add_test(tc, test_decodes_take_turns);
	tcase_add_test(tc, test_fork_shares);
	tcase_add_test(tc, test_fork_on_a_block_edge_copies_nothing);
	tcase_add_test(tc, test_one_token_needs_no_fork);
	tcase_add_test(tc, test_fork_without_room);
	tcase_add_test(tc, test_prefix_is_computed_once);
	tcase_add_test(tc, test_family_comes_back_as_one);
	tcase_add_test(tc, test_swapped_comes_back);
	tcase_add_test(tc, test_swapped_and_lost);
	tcase_add_test(tc, test_swapped_before_the_fork);
	tcase_add_test(tc, test_swapped_comes_back_with_more);
	tcase_add_test(tc, test_queue_order);
	tcase_add_test(tc, test_more_requests_than_sequences);
	tcase_add_test(tc, test_context_cuts);
	suite_add_tcase(s, tc);

	tc = tcase_create("refused");
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_scores_ignore_the_cache);
	tcase_add_test(tc, test_scores_are_bounded);
	tcase_add_test(tc, test_bad_requests);
	tcase_add_test(tc, test_drained);
	tcase_add_test(tc, test_never_fits);
	tcase_add_test(tc, test_no_daemon);
	tcase_add_test(tc, test_failed_by_the_daemon);
	tcase_add_test(tc, test_failed_before_the_fork);
	tcase_add_test(tc, test_forward_fails);
	tcase_add_loop_test(tc, test_device_fails, 0, 2);
	tcase_add_test(tc, test_device_fails_elsewhere);
	tcase_add_test(tc, test_daemon_lost_the_device);
	suite_add_tcase(s, tc);

	tc = tcase_create("early");
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_cancel);
	tcase_add_loop_test(tc, test_cancel_at_the_first_token, 0, 4);
	tcase_add_loop_test(tc, test_cancel_at_any_time, 0, 30);
	tcase_add_loop_test(tc, test_destroy_with_work_left, 0, 30);
	tcase_add_loop_test(tc, test_daemon_dies, 0, 60);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	SRunner *sr = srunner_create(engine_suite());
	int failed;

	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? 1 : 0;
}
