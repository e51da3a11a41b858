/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chat.h - from the messages of a chat to the text of a prompt
 */
#ifndef RUNTIME_SERVER_CHAT_H
#define RUNTIME_SERVER_CHAT_H

#include <jansson.h>

#include "runtime/server/guard.h"

struct field_ctx;

/**
 * struct chat_text - a chat as text
 * @p:      @len bytes
 * @guards: special tokens in it that a user spelt out: treat them as plain text
 */
struct chat_text {
	char			*p;
	size_t			len;
	struct tokenizer_guard	*guards;
	size_t			nr_guards;
};

/**
 * chat_text_make() - check messages and turn them into text
 * @messages: the request's messages
 * @t:       call chat_text_free() in both cases
 *
 * Return: 0, or -1 with @c->err.
 */
int __must_check chat_text_make(struct field_ctx *c, const json_t *messages,
				struct chat_text *t);
void chat_text_free(struct chat_text *t);

#endif /* RUNTIME_SERVER_CHAT_H */
