// SPDX-License-Identifier: Apache-2.0
/*
 * load.c - a model, or the part of a rank, with its identity
 *
 * It is apart from the rest of the engine, which runs without a loader in tests.
 */
#include "runtime/engine/internal.h"
#include "runtime/engine/ranked.h"

int engine_load(const char *dir, const struct model_opts *opts, struct ranks *ranks,
		struct model **model, u8 *identity, struct engine_error *why)
{
	struct model_error err;
	struct model *m = NULL;
	int ret;

	ret = model_load(dir, opts, &m, &err);
	if (ret)
		engine_refuse(why, ret, "%.*s", (int)sizeof(why->text) - 1, err.text);
	else if (engine_identity(m, identity))
		ret = engine_refuse(why, -ENOMEM, "no memory for the model's identity");
	if (ranks)
		ret = ranks_loaded(ranks, ret, why, identity);
	if (ret)
		model_free(m);
	else
		*model = m;
	return ret;
}
