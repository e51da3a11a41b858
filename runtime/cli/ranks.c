// SPDX-License-Identifier: Apache-2.0
/*
 * ranks.c - kvrt serve as one of the ranks that share a model
 *
 * All ranks are the same program with the same arguments.  They compare their model files
 * and options before they read weights.  Rank 0 then serves, and the others follow it.  An
 * error that all ranks know is printed by rank 0 alone.
 */
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <kvmm/version.h>
#include <libkvmm.h>

#include "runtime/cli/cli.h"
#include "runtime/cli/ranks.h"
#include "runtime/engine/ranked.h"
#include "runtime/ranks/ranks.h"
#include "runtime/server/server.h"

static_assert(RANKS_LOST_CODE == CLI_EX_DEVICE, "a lost rank ends kvrt as a lost device does");

#define LOAD_MS		3600000u	/* that one rank may load longer than another */
#define ROOM_BYTES	(16ull << 20)	/* a rank has three, in shared memory */

/* Is this rank one that prints errors of the group? */
static bool prints(const struct cli_ranks *cr)
{
	return !ranks_number(cr->ranks);
}

static int refuse_launcher(u32 nr, u32 launched)
{
	if (launched < 2 || nr > 1)
		return 0;
	if (ranks_launched_first())
		pr_err("mpiexec started %u processes, which would serve the same model each: give --tensor-parallel %u, or start one process",
	       launched, launched);
	return EX_USAGE;
}

int cli_ranks_open(u32 nr, char **argv, struct cli_ranks *cr)
{
	const struct ranks_opts o = {
		.nr = nr, .room = ROOM_BYTES, .timeout_ms = LOAD_MS,
	};
	sigset_t set;
	char why[512];
	int ret;

	*cr = (struct cli_ranks){ 0 };
	ret = refuse_launcher(nr, ranks_launched());
	if (ret || nr < 2)
		return ret;
	ret = ranks_launch(nr, argv, why, sizeof(why));
	/* No thread of MPI may take them. */
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	if (!ret)
		ret = ranks_open(&o, &cr->ranks, why, sizeof(why));
	if (ret) {
		if (ranks_launched_first())
			pr_err("--tensor-parallel %u: %s", nr, why);
		return ret == -EINVAL ? EX_USAGE : EX_UNAVAILABLE;
	}
	engine_ranks_link(cr->ranks, ROOM_BYTES, &cr->link);
	return 0;
}

u32 cli_ranks_threads(u32 nr)
{
	const long cores = sysconf(_SC_NPROCESSORS_ONLN);
	cpu_set_t mine;

	if (nr < 2 || sched_getaffinity(0, sizeof(mine), &mine) || CPU_COUNT(&mine) < cores)
		return 0;
	return max((u32)cores / nr, 1u);
}

bool cli_ranks_follows(const struct cli_ranks *cr)
{
	return cr->ranks && ranks_number(cr->ranks);
}

static void digest_add(void *arg, const char *tag, const void *data, size_t len)
{
	kvmm_identity_add(arg, tag, data, len);
}

static void digest_text(struct kvmm_identity *d, const char *text, u8 *out)
{
	kvmm_identity_init(d);
	kvmm_identity_add(d, "text", text, strlen(text));
	kvmm_identity_final(d, out);
}

/* The options that ranks must have alike. */
static void options_text(const struct model_opts *m, const struct engine_opts *e,
			 char *text, size_t len)
{
	snprintf(text, len, "%u %u %u %s %u %u %u %u %u %u %u %s %u %u %u %u %u %u", m->dtype,
		 m->kv_type, m->mode, m->kernel ? m->kernel : "", m->weights,
		 m->quantization, m->max_len, m->max_rows, m->max_seqs, m->window_group,
		 m->dummy, e->domain ? e->domain : "", e->block_tokens, e->state_tokens,
		 e->max_seqs, e->max_batch, e->chunk, e->rank_timeout_ms);
}

/* Open the model's files and read their heads; @link: judge this rank's part. */
static int judge(const char *dir, const struct model_opts *mo, const struct model_link *link,
		 struct model **model, struct engine_error *why)
{
	struct model_opts o = *mo;
	struct model_error err;
	int ret;

	o.judge = true;
	o.link = link;
	o.progress = (struct model_progress){ 0 };
	ret = model_load(dir, &o, model, &err);
	if (ret)
		snprintf(why->text, sizeof(why->text), "%.500s", err.text);
	return ret;
}

/* The facts of this rank, and whether it can have its part. */
static int facts_get(const struct cli_ranks *cr, const char *dir, const struct model_opts *mo,
		     const struct engine_opts *eo, struct engine_facts *facts,
		     struct engine_error *why)
{
	struct kvmm_identity *d = malloc(sizeof(*d));
	struct model *model;
	char text[512];
	int ret;

	if (!d)
		return -ENOMEM;
	ret = judge(dir, mo, NULL, &model, why);
	if (!ret) {
		kvmm_identity_init(d);
		model_fingerprint(model, digest_add, d);
		kvmm_identity_final(d, facts->model);
		model_free(model);
		ret = judge(dir, mo, &cr->link, &model, why);
	}
	if (ret)
		goto out_free;
	model_free(model);
	digest_text(d, KVMM_VERSION, facts->version);
	options_text(mo, eo, text, sizeof(text));
	digest_text(d, text, facts->options);
out_free:
	free(d);
	return ret;
}

int cli_ranks_agree(struct cli_ranks *cr, const char *dir, const struct model_opts *mo,
		    const struct engine_opts *eo)
{
	struct engine_facts facts = { 0 };
	struct engine_error why;
	int ret;

	snprintf(why.text, sizeof(why.text), "no memory");
	ret = facts_get(cr, dir, mo, eo, &facts, &why);
	ret = engine_ranks_agree(cr->ranks, ret, &facts, &why);
	if (!ret)
		return 0;
	if (prints(cr))
		pr_err("%s", why.text);
	return cli_exit_of(ret);
}

int cli_ranks_follow(struct cli_ranks *cr, const char *dir, const struct model_opts *mo,
		     const struct engine_opts *eo)
{
	u8 identity[ENGINE_DIGEST_LEN];
	struct engine_opts o = *eo;
	struct engine_error why;
	struct model *model;
	int ret;

	/* Rank 0 takes these, and ends the others. */
	signal(SIGINT, SIG_IGN);
	signal(SIGTERM, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	ret = engine_load(dir, mo, cr->ranks, &model, identity, &why);
	if (ret)
		return cli_exit_of(ret);
	o.identity = identity;
	o.ranks = cr->ranks;
	ret = engine_follow(model, &o, &why);
	model_free(model);
	if (!ret)
		return 0;
	/* The others do not know an error of this rank. */
	if (!ranks_failure(cr->ranks))
		ranks_abort(cr->ranks, why.text);
	/* Rank 0 says why, unless it is the one that has failed. */
	if (!strncmp(why.text, "rank 0 ", 7))
		pr_err("%s", why.text);
	return CLI_EX_DEVICE;
}

int cli_ranks_close(struct cli_ranks *cr, int code)
{
	const bool leads = cr->ranks && prints(cr);
	int own;

	if (!cr->ranks)
		return ranks_exit_code(code);
	if (leads && !server_is_stuck)
		engine_ranks_end(cr->ranks);
	own = ranks_exit_code(code);
	/* A rank that stands still, or loads, does not end by itself. */
	if (leads && (ranks_failure(cr->ranks) || server_is_stuck))
		ranks_kill(cr->ranks);
	ranks_close(cr->ranks);
	cr->ranks = NULL;
	return own;
}
