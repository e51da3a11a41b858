/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tokens.h - /tokenize and /detokenize
 */
#ifndef RUNTIME_SERVER_TOKENS_H
#define RUNTIME_SERVER_TOKENS_H

#include "runtime/server/api.h"

/* Fields of /tokenize: name and meaning; fields.h has the readers. */
#define TOKENIZE_FIELDS(x)						\
	x(model, "name of the model; may be left out where there is one") \
	x(prompt, "a string: its tokens are those of a completion")	\
	x(messages, "a chat: its tokens are those of a chat completion") \
	x(add_special_tokens, "as with completions: true for a prompt, false for a chat") \
	x(add_generation_prompt, "as with chat completions; only with messages") \
	x(chat_template_kwargs, "likewise")				\
	x(return_token_strs, "true: the answer has the text of each token too")

/* tokens_doc() - write their table for the documentation, in Markdown */
void tokens_doc(struct text *t);

/**
 * tokens_read() - write the whole answer
 * @kind: API_TOKENIZE or API_DETOKENIZE
 * @root: JSON of the body, of any type
 * @t:    gets the answer
 *
 * Return: 0, or -1 with @err.  Context: any thread; the time grows with the
 * length of the text.
 */
int __must_check tokens_read(const struct api_model *m, enum api_kind kind,
			     const json_t *root, struct text *t,
			     struct api_error *err);

#endif /* RUNTIME_SERVER_TOKENS_H */
