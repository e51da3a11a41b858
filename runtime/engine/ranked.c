// SPDX-License-Identifier: Apache-2.0
/*
 * ranked.c - reports of ranks, and their way to exchange numbers
 *
 * At each stage of a start all ranks report to all, and each finds the same result: the
 * error of the first rank that has failed.  So the leader alone prints it.
 */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/engine/internal.h"
#include "runtime/engine/ranked.h"
#include "runtime/ranks/ranks.h"

const char *ranks_why(struct ranks *r)
{
	const char *why = ranks_failure(r);

	return why ? why : "the ranks have lost each other";
}

/* The report of a rank about one stage of its start. */
struct report {
	s32			err;
	struct engine_error	why;
	struct engine_facts	facts;
};

/* Get the reports of all ranks; NULL: none, and @why has a line. */
static struct report *reports_get(struct ranks *r, const struct report *mine,
				  struct engine_error *why, int *err)
{
	struct report *all = calloc(ranks_nr(r), sizeof(*all));

	*err = all ? ranks_gather(r, mine, sizeof(*mine), all) : -ENOMEM;
	if (!*err)
		return all;
	engine_refuse(why, *err, "%s", all ? ranks_why(r) : "no memory for the reports of ranks");
	free(all);
	return NULL;
}

/* The first rank that has failed, or 0. */
static int reports_failed(const struct report *all, u32 nr, struct engine_error *why)
{
	u32 i;

	for (i = 0; i < nr; i++) {
		if (!all[i].err)
			continue;
		if (i)
			return engine_refuse(why, all[i].err, "rank %u: %.490s", i,
					     all[i].why.text);
		*why = all[i].why;
		return all[i].err;
	}
	return 0;
}

static struct report report_of(int err, const struct engine_error *why,
			       const struct engine_facts *facts)
{
	struct report mine = { .err = err };

	if (err)
		mine.why = *why;
	else
		mine.facts = *facts;
	return mine;
}

int ranks_report(struct ranks *r, int err, const char *text, struct engine_error *why)
{
	struct report mine = { .err = err }, *all;

	if (err)
		engine_refuse(&mine.why, err, "%s", text);
	all = reports_get(r, &mine, why, &err);
	if (!all)
		return err;
	err = reports_failed(all, ranks_nr(r), why);
	free(all);
	return err;
}

int engine_ranks_agree(struct ranks *r, int err, const struct engine_facts *facts,
		       struct engine_error *why)
{
	const struct report mine = report_of(err, why, facts);
	const struct engine_facts *a, *b;
	const char *what = NULL;
	struct report *all;
	u32 i;

	all = reports_get(r, &mine, why, &err);
	if (!all)
		return err;
	err = reports_failed(all, ranks_nr(r), why);
	for (i = 1; i < ranks_nr(r) && !err && !what; i++) {
		a = &all[0].facts;
		b = &all[i].facts;
		if (memcmp(a->version, b->version, sizeof(a->version)))
			what = "is another version of kvrt: start all ranks with the same kvrt";
		else if (memcmp(a->model, b->model, sizeof(a->model)))
			what = "has other model files: give all ranks the same model";
		else if (memcmp(a->options, b->options, sizeof(a->options)))
			what = "has other options: start all ranks with the same";
		if (what)
			err = engine_refuse(why, -EINVAL, "rank %u %s as rank 0", i, what);
	}
	free(all);
	return err;
}

int ranks_loaded(struct ranks *r, int err, struct engine_error *why, u8 *identity)
{
	struct engine_facts facts = { 0 };
	struct kvmm_identity *digest = malloc(sizeof(*digest));
	struct report mine, *all;
	u32 i;

	if (!err && !digest)
		err = engine_refuse(why, -ENOMEM, "no memory for the model's identity");
	if (!err)
		memcpy(facts.model, identity, sizeof(facts.model));
	mine = report_of(err, why, &facts);
	all = reports_get(r, &mine, why, &err);
	if (!all)
		goto out_free;
	err = reports_failed(all, ranks_nr(r), why);
	if (err)
		goto out_free;
	kvmm_identity_init(digest);
	for (i = 0; i < ranks_nr(r); i++)
		kvmm_identity_add(digest, "rank", all[i].facts.model,
				  sizeof(all[i].facts.model));
	kvmm_identity_final(digest, identity);
out_free:
	free(all);
	free(digest);
	return err;
}

static void *link_room(void *arg)
{
	return ranks_room(arg);
}

static int link_share(void *arg)
{
	return ranks_share(arg);
}

static const void *link_of(void *arg, u32 rank)
{
	return ranks_of(arg, rank);
}

static const char *link_failure(void *arg)
{
	return ranks_why(arg);
}

void engine_ranks_link(struct ranks *r, u64 room, struct model_link *link)
{
	*link = (struct model_link){
		.rank = ranks_number(r), .nr = ranks_nr(r), .bytes = room,
		.room = link_room, .share = link_share, .of = link_of,
		.failure = link_failure, .arg = r,
	};
}
