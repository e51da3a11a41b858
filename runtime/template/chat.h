/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chat.h - the chat templates of a model's folder
 *
 * Finding the templates in a folder, choosing one, and setting its variables:
 * as in transformers' apply_chat_template().
 */
#ifndef RUNTIME_TEMPLATE_CHAT_H
#define RUNTIME_TEMPLATE_CHAT_H

#include "runtime/template/template.h"

struct chat;

/**
 * struct chat_input - a chat to render
 * @messages:	list of objects
 * @tools:	list, or NULL
 * @documents:	list, or NULL
 * @more:	object of more variables (chat_template_kwargs), or NULL; it
 *		cannot replace the variables above
 * @name:	the template's name, or NULL: `tool_use` if there are tools and
 *		such a template, else `default`
 * @add_generation_prompt: end at the beginning of the model's answer
 * @parse_arguments: parse a tool call's arguments if they are text: templates
 *		need an object, OpenAI's API has text
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
 * chat_load() - read and compile the chat templates of a model
 * @first: text of the template `default`, which takes precedence over the
 *       folder's, or NULL
 * @dir: folder with tokenizer_config.json (chat_template: a string, or a list
 *       of named ones; the special tokens), chat_template.jinja and
 *       additional_chat_templates/NAME.jinja, which take precedence; or a GGUF
 *       file
 * @chat: the templates, to be freed with chat_free()
 * @why: gets one line with the file and the place of an error
 * @len: bytes at @why
 *
 * Return: 0; -ENOENT if the folder has no chat template; -EINVAL if one is
 * wrong or needs an unsupported feature, or a file is no JSON; -ENOMEM.
 */
int __must_check chat_load(const char *dir, const char *first,
			   struct chat **chat, char *why, size_t len);

/**
 * chat_compile() - compile chat templates from their source
 * @config: an object as in tokenizer_config.json
 *
 * The other parameters are those of chat_load().
 */
int __must_check chat_compile(const json_t *config, struct chat **chat,
			      char *why, size_t len);

void chat_free(struct chat *c);

/**
 * chat_render() - render a chat
 * @c:		several threads may use it at the same time
 * @in:		the chat
 * @o:		limits and time, or NULL
 * @len:	gets the bytes of the text
 * @err:	gets the error
 *
 * Return: the text, to be freed with free(), or NULL.
 */
char *chat_render(const struct chat *c, const struct chat_input *in,
		  const struct tmpl_options *o, size_t *len,
		  struct tmpl_error *err) __must_check;

#endif /* RUNTIME_TEMPLATE_CHAT_H */
