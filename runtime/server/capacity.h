/* SPDX-License-Identifier: Apache-2.0 */
/* capacity.h - does the daemon's pool hold the sequences of a model? */
#ifndef RUNTIME_SERVER_CAPACITY_H
#define RUNTIME_SERVER_CAPACITY_H

#include "runtime/engine/engine.h"

/**
 * capacity_tell() - log the types of the model, and the requests that the pool holds
 * @rep:   the daemon's answer to the attachment
 * @model: the model
 * @o:     options of the engine
 * @name:  of the model, for the log
 * @why:   @len bytes, filled only on failure
 *
 * Memory that other models have now counts too: they give it back under pressure.
 *
 * Return: 0; -EDQUOT: the longest sequence does not fit, and @why has the remedy; the
 * error of engine_groups().
 */
int __must_check capacity_tell(const struct kvmm_attach_rep *rep,
			       const struct model *model,
			       const struct engine_opts *o, const char *name,
			       char *why, size_t len);

#endif /* RUNTIME_SERVER_CAPACITY_H */
