/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chat.h - the chat templates of a model's folder
 *
 * Where a model keeps them, which one is for what, and the variables that they
 * are given: the same as transformers' apply_chat_template().
 */
#ifndef RUNTIME_TEMPLATE_CHAT_H
#define RUNTIME_TEMPLATE_CHAT_H

#include "runtime/template/template.h"

struct chat;

/**
 * struct chat_input - one chat to be written down
 * @messages:	list of objects
 * @tools:	list, or NULL
 * @documents:	list, or NULL
 * @more:	object of more variables (chat_template_kwargs), or NULL; it
 *		cannot replace those above
 * @name:	the template's name, or NULL: `tool_use` if there are tools and
 *		such a template, else `default`
 * @add_generation_prompt: end where the model's answer begins
 * @parse_arguments: a tool call's arguments that are text become the object
 *		that the text is, as templates want it and OpenAI's API has not
 */
struct chat_input {
	const json_t	*messages;
	const json_t	*tools;
	const json_t	*documents;
	const json_t	*more;
	const char	*name;
	bool		add_generation_prompt;
	bool		parse_arguments;
};

/**
 * chat_load() - read and compile the chat templates of a folder
 * @first: text of the template `default`, which goes before the folder's, or
 *	   NULL
 * @dir: with tokenizer_config.json (chat_template: a string, or a list of
 *	 named ones; the special tokens), chat_template.jinja and
 *	 additional_chat_templates/NAME.jinja, which go before it
 * @chat: gets what chat_free() takes back
 * @why: gets one line if there is none, with the file and the place in it
 * @len: bytes at @why
 *
 * Return: 0; -ENOENT if the folder has no chat template; -EINVAL if one is
 * wrong or needs what is not supported, or a file is no JSON; -ENOMEM.
 */
int __must_check chat_load(const char *dir, const char *first,
			   struct chat **chat, char *why, size_t len);

/**
 * chat_compile() - chat templates from their source
 * @config: an object as in tokenizer_config.json
 *
 * The rest is as with chat_load().
 */
int __must_check chat_compile(const json_t *config, struct chat **chat,
			      char *why, size_t len);

void chat_free(struct chat *c);

/**
 * chat_render() - write a chat down
 * @c:	 may be used by several threads at the same time
 * @in:	 the chat
 * @o:	 limits and time, or NULL
 * @len: gets the bytes of the text
 * @err: gets the reason if there is none
 *
 * Return: the text, for free(), or NULL.
 */
char *chat_render(const struct chat *c, const struct chat_input *in,
		  const struct tmpl_options *o, size_t *len,
		  struct tmpl_error *err) __must_check;

#endif /* RUNTIME_TEMPLATE_CHAT_H */
