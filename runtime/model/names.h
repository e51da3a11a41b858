/* SPDX-License-Identifier: Apache-2.0 */
/*
 * names.h - names of tensors and of architectures
 */
#ifndef RUNTIME_MODEL_NAMES_H
#define RUNTIME_MODEL_NAMES_H

#include <kvmm/types.h>

static inline bool name_ends(const char *name, const char *end)
{
	const size_t len = strlen(name), elen = strlen(end);

	return len >= elen && !strcmp(name + len - elen, end);
}

#endif /* RUNTIME_MODEL_NAMES_H */
