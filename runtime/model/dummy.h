/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dummy.h - a checkpoint of made-up weights
 */
#ifndef RUNTIME_MODEL_DUMMY_H
#define RUNTIME_MODEL_DUMMY_H

#include "runtime/model/checkpoint.h"
#include "runtime/model/config.h"

/**
 * dummy_open() - make up every tensor that a configuration asks for
 * @dir:	for messages
 * @cfg:	the configuration; its file_type is that of all tensors
 * @progress:	may be NULL
 * @judge:	count them only; there is nothing behind their addresses
 * @out:	the checkpoint
 * @err:	set on failure
 *
 * Return: 0 or -ENOMEM.
 */
int __must_check dummy_open(const char *dir, const struct model_config *cfg,
			    const struct model_progress *progress, bool judge,
			    struct ckpt **out, struct model_error *err);

#endif /* RUNTIME_MODEL_DUMMY_H */
