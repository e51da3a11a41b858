/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chat_gguf.h - the chat templates of a GGUF file
 */
#ifndef RUNTIME_TEMPLATE_CHAT_GGUF_H
#define RUNTIME_TEMPLATE_CHAT_GGUF_H

#include <jansson.h>

#include <kvmm/types.h>

/**
 * chat_gguf_config() - what a GGUF file says, as tokenizer_config.json says it
 * @path:	the file, or any part of it
 * @config:	gets an object with chat_template and the names of special tokens
 * @why:	gets one line on failure
 * @len:	bytes at @why
 *
 * Return: 0; the error of gguf_open(); -EINVAL: a template or a token is no text;
 * -ENOMEM.
 */
int __must_check chat_gguf_config(const char *path, json_t **config, char *why,
				  size_t len);

#endif /* RUNTIME_TEMPLATE_CHAT_GGUF_H */
