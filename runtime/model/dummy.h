/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dummy.h - a checkpoint of made-up weights
 */
#ifndef RUNTIME_MODEL_DUMMY_H
#define RUNTIME_MODEL_DUMMY_H

#include "runtime/model/checkpoint.h"
#include "runtime/model/config.h"

/**
 * dummy_open() - make up every tensor of a configuration
 * @dir:	for messages
 * @cfg:	the configuration; all tensors have its file_type
 * @progress:	may be NULL
 * @judge:	only count them; their addresses have no memory
 * @out:	the checkpoint
 * @err:	set on failure
 *
 * Return: 0 or -ENOMEM.
 */
int __must_check dummy_open(const char *dir, const struct model_config *cfg,
			    const struct model_progress *progress, bool judge,
			    struct ckpt **out, struct model_error *err);

#endif /* RUNTIME_MODEL_DUMMY_H */
