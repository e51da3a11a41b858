// SPDX-License-Identifier: Apache-2.0
/*
 * load.c - two runtimes of one model at work on one daemon
 *
 * The prompts of a rig are written once; their files stay for the next round.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/integration/load.h"
#include "tests/integration/prompts.h"

#define LOAD_WAIT_S	120

static u32 nr_single(void)
{
	return rig_on_gpu() ? LOAD_SINGLE_GPU : LOAD_SINGLE;
}

static u32 nr_forked(void)
{
	return rig_on_gpu() ? LOAD_FORKED_GPU : LOAD_FORKED;
}

static struct job generate(struct rig *r, const char *prompts, const char *n,
			   const char *tokens, const char *dtype)
{
	return job_start(r, KVRT_GENERATE, demo_model(), "--prompt-file",
			 prompts, "-n", n, "--temperature", "0", "--seed", "7",
			 "--max-tokens", tokens, "--threads", "1",
			 "--ignore-eos", "--mode", "exact", "--dtype", dtype,
			 "--json", NULL);
}

void load_start(struct load *l, struct rig *r, const char *tokens,
		const char *dtype)
{
	char single[RIG_PATH + 32], forked[RIG_PATH + 32];

	snprintf(single, sizeof(single), "%s/single.txt", r->dir);
	snprintf(forked, sizeof(forked), "%s/forked.txt", r->dir);
	if (rig_on_gpu())
		tokens = LOAD_TOKENS_GPU;
	if (access(forked, F_OK)) {
		prompts_write(single, 0, nr_single(), "");
		prompts_write(forked, LOAD_SINGLE, nr_forked(), "");
	}
	l->rig = r;
	l->single = generate(r, single, "1", tokens, dtype);
	l->forked = generate(r, forked, "4", tokens, dtype);
}

static bool still_runs(const struct job *j)
{
	siginfo_t si = { .si_pid = 0 };

	return !waitid(P_PID, (id_t)j->pid, &si, WEXITED | WNOHANG | WNOWAIT) &&
	       !si.si_pid;
}

bool load_ended(struct load *l)
{
	return !still_runs(&l->single) && !still_runs(&l->forked);
}

static void take(struct job *j, struct samples *s, u32 nr)
{
	int code = job_wait(j, rig_on_gpu() ? 4 * LOAD_WAIT_S : LOAD_WAIT_S);

	if (code)
		ck_abort_msg("kvrt ended with %d:\n%s", code, slurp(j->err));
	samples_read(s, j->out);
	ck_assert_uint_eq(s->nr, nr);
	unlink(j->out);
	unlink(j->err);
}

void load_finish(struct load *l, struct load_text *text)
{
	take(&l->single, &text->single, nr_single());
	take(&l->forked, &text->forked, 4 * nr_forked());
}

void load_judge(struct load *l, const struct load_text *want)
{
	struct load_text have;

	load_finish(l, &have);
	samples_equal(&want->single, &have.single);
	samples_equal(&want->forked, &have.forked);
	load_text_free(&have);
}

void load_text_free(struct load_text *text)
{
	samples_free(&text->single);
	samples_free(&text->forked);
}
