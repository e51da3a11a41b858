/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hub.h - models of the Hugging Face cache, by name
 */
#ifndef RUNTIME_LIB_HUB_H
#define RUNTIME_LIB_HUB_H

#include <kvmm/types.h>

#define HUB_NAME_MAX	160	/* bytes of a name, with its NUL */

/**
 * hub_name() - is this the name of a model, and not a path?
 * @text:	"hf:ORG/NAME", "hf:NAME" or "ORG/NAME"
 * @name:	HUB_NAME_MAX bytes, gets the name without "hf:"
 *
 * Each part has letters, digits, dots, dashes and underscores and begins with
 * a letter or a digit, so a name cannot lead out of the cache.
 */
bool hub_name(const char *text, char *name);

/**
 * hub_cache() - the folder of the cache
 * @dir:	gets it: $HF_HUB_CACHE, else $HF_HOME/hub, else huggingface/hub in
 *		$XDG_CACHE_HOME or ~/.cache
 *
 * Return: 0; -ENOENT: none of the variables is set; -ENAMETOOLONG.
 */
int __must_check hub_cache(char *dir, size_t size);

/**
 * hub_find() - the folder of a model in the cache, as its branch main has it
 * @name:	from hub_name()
 * @dir:	gets the folder
 *
 * Return: 0; -ENOENT: the cache does not have the model; -EINVAL: the file
 * that names the revision holds something else; another negative errno.
 */
int __must_check hub_find(const char *name, char *dir, size_t size);

#endif /* RUNTIME_LIB_HUB_H */
