/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ranked.h - an engine of a model that ranks share
 *
 * Rank 0 has the engine.  It tells the others the attachment to the daemon, the copies and
 * the batch of each step, and they do the same with their parts of the model and of the
 * blocks.
 */
#ifndef RUNTIME_ENGINE_RANKED_H
#define RUNTIME_ENGINE_RANKED_H

#include "runtime/engine/engine.h"

struct ranks;

#define ENGINE_DIGEST_LEN	32u

/**
 * struct engine_facts - facts that must be the same for all ranks
 * @version: digest of the program's version
 * @model:   of the model's configuration, and of its tensors without most of their content
 * @options: of the options that change the work of a rank
 */
struct engine_facts {
	u8	version[ENGINE_DIGEST_LEN];
	u8	model[ENGINE_DIGEST_LEN];
	u8	options[ENGINE_DIGEST_LEN];
};

/**
 * engine_ranks_agree() - compare the facts of all ranks, before weights are read
 * @err:   this rank has failed; then @facts does not count
 * @why:   the line of @err; gets the line of the group
 *
 * All ranks call it.
 *
 * Return: 0; -EINVAL, the same at all ranks, if facts differ; the error of the first rank
 * that has failed; or the error of the exchange.
 */
int __must_check engine_ranks_agree(struct ranks *r, int err,
				    const struct engine_facts *facts,
				    struct engine_error *why);

/**
 * engine_load() - load a model, or the part of this rank, and its identity
 * @dir:      as of model_load()
 * @opts:     likewise
 * @ranks:    ranks that share the model, which all call this; NULL: none
 * @model:    set on success
 * @identity: gets ENGINE_DIGEST_LEN bytes: the identity of all parts together
 * @why:      set on failure, the same at all ranks
 *
 * Return: 0, or the error of this rank or of the first one that has failed.
 */
int __must_check engine_load(const char *dir, const struct model_opts *opts,
			     struct ranks *ranks, struct model **model, u8 *identity,
			     struct engine_error *why);

/**
 * engine_follow() - do the work of a rank, until the leader ends
 * @model: the rank's part
 * @opts:  as the leader's, with @ranks, and with the identity of all parts
 * @err:   set on failure
 *
 * Return: 0 when the leader has ended as it should; -EPIPE or -ETIMEDOUT if a rank failed.
 */
int __must_check engine_follow(struct model *model, const struct engine_opts *opts,
			       struct engine_error *err);

/* Tell all ranks that the leader ends.  To be called when the engine is destroyed. */
void engine_ranks_end(struct ranks *r);

/* Fill in @link for a model that the ranks of @r share. */
void engine_ranks_link(struct ranks *r, u64 room, struct model_link *link);

#endif /* RUNTIME_ENGINE_RANKED_H */
