// SPDX-License-Identifier: Apache-2.0
/*
 * chat.c - the chat templates of a model's folder
 *
 * A model has one template, or several with names.  They are in a GGUF file, or in
 * tokenizer_config.json, or since 2025 in files of their own, which take
 * precedence.  A special token is a string or an object with the string as
 * `content`; a null or missing one stays undefined.
 */
#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/lib/folder.h"
#include "runtime/lib/gguf.h"
#include "runtime/template/chat.h"
#include "runtime/template/chat_gguf.h"
#include "runtime/tokenizer/utf8.h"

#define CHAT_TEMPLATES_MAX	16u

/* For tokenizer_config.json; with thousands of tokens it has 1 MB. */
#define CHAT_CONFIG_MAX		(64u << 20)
#define CHAT_VALUES_MAX		(4u << 20)

/**
 * struct chat - the templates of a model
 * @t:		[@n] compiled templates
 * @name:	[@n] their names
 * @tokens:	object with the special tokens
 */
struct chat {
	u32		n;
	struct tmpl	*t[CHAT_TEMPLATES_MAX];
	char		*name[CHAT_TEMPLATES_MAX];
	json_t		*tokens;
};

struct loading {
	struct chat	*chat;
	char		*why;
	size_t		len;
};

static __printf(3, 4) int refuse(struct loading *l, int code, const char *fmt,
				 ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(l->why, l->len, fmt, ap);
	va_end(ap);
	/* The text quotes names and sources of the folder. */
	if (l->len)
		utf8_clean_line(l->why);
	return code;
}

static const struct tmpl *find(const struct chat *c, const char *name)
{
	u32 i;

	for (i = 0; i < c->n; i++)
		if (!strcmp(c->name[i], name))
			return c->t[i];
	return NULL;
}

/* Add a template; the first one with a name counts. */
static int add(struct loading *l, const char *name, const char *source,
	       size_t n, const char *where)
{
	struct chat *c = l->chat;
	struct tmpl_error err;

	if (find(c, name))
		return 0;
	if (c->n == CHAT_TEMPLATES_MAX)
		return refuse(l, -EINVAL, "%s: more than %u chat templates",
			      where, CHAT_TEMPLATES_MAX);
	c->t[c->n] = tmpl_compile(source, n, &err);
	if (!c->t[c->n])
		return refuse(l, err.what == TMPL_NOMEM ? -ENOMEM : -EINVAL,
			      "%s: chat template '%.40s', line %u:%u: %s",
			      where, name, err.line, err.col, err.text);
	c->name[c->n] = strdup(name);
	if (!c->name[c->n]) {
		tmpl_free(c->t[c->n]);
		return refuse(l, -ENOMEM, "out of memory");
	}
	c->n++;
	return 0;
}

/* ---- tokenizer_config.json ---- */

static int add_named(struct loading *l, const json_t *list, const char *where)
{
	const json_t *v, *name, *source;
	int ret = 0;
	size_t i;

	json_array_foreach(list, i, v) {
		name = json_object_get(v, "name");
		source = json_object_get(v, "template");
		if (!json_is_string(name) || !json_is_string(source))
			return refuse(l, -EINVAL, "%s: chat_template[%zu] wants a name and a template",
				      where, i);
		ret = add(l, json_string_value(name), json_string_value(source),
			  json_string_length(source), where);
		if (ret)
			break;
	}
	return ret;
}

static int add_config(struct loading *l, const json_t *config,
		      const char *where)
{
	const json_t *v = json_object_get(config, "chat_template");

	if (!v || json_is_null(v))
		return 0;
	if (json_is_string(v))
		return add(l, "default", json_string_value(v),
			   json_string_length(v), where);
	if (json_is_array(v))
		return add_named(l, v, where);
	return refuse(l, -EINVAL, "%s: chat_template is neither a string nor a list",
		      where);
}

static int add_tokens(struct loading *l, const json_t *config)
{
	static const char * const names[] = {
		"bos_token", "eos_token", "unk_token", "sep_token",
		"pad_token", "cls_token", "mask_token",
	};
	json_t *v;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(names); i++) {
		v = json_object_get(config, names[i]);
		if (json_is_object(v))
			v = json_object_get(v, "content");
		if (json_is_string(v) &&
		    json_object_set(l->chat->tokens, names[i], v))
			return refuse(l, -ENOMEM, "out of memory");
	}
	return 0;
}

/* ---- files ---- */

/* -ENOENT is not reported: most files may be missing. */
static int file_read(struct loading *l, const char *path, u64 most,
		     char **text, size_t *n)
{
	const int ret = folder_read(path, most, text, n);

	if (!ret || ret == -ENOENT)
		return ret;
	if (ret == -ENOMEM)
		return refuse(l, ret, "out of memory");
	if (ret == -EINVAL || ret == -EFBIG)
		return refuse(l, -EINVAL, "%s: not a regular file of at most %llu bytes",
			      path, (unsigned long long)most);
	if (ret == -EUCLEAN)
		return refuse(l, -EINVAL, "%s: " FOLDER_POINTER, path);
	return refuse(l, -EINVAL, "%s: %s", path, strerror(-ret));
}

static int add_file(struct loading *l, const char *path, const char *name)
{
	char *source;
	size_t n;
	int ret = file_read(l, path, TMPL_SOURCE_MAX, &source, &n);

	if (ret)
		return ret == -ENOENT ? 0 : ret;
	ret = add(l, name, source, n, path);
	free(source);
	return ret;
}

static int is_template(const struct dirent *d)
{
	size_t n = strlen(d->d_name);

	return n > 6 && d->d_name[0] != '.' &&
	       !strcmp(d->d_name + n - 6, ".jinja");
}

static int add_folder(struct loading *l, const char *dir)
{
	struct dirent **found = NULL;
	char path[4096], name[256];
	int i, n, ret = 0;

	snprintf(path, sizeof(path), "%s/additional_chat_templates", dir);
	n = scandir(path, &found, is_template, alphasort);
	for (i = 0; i < n; i++) {
		snprintf(path, sizeof(path), "%s/additional_chat_templates/%s",
			 dir, found[i]->d_name);
		snprintf(name, sizeof(name), "%.*s",
			 (int)strlen(found[i]->d_name) - 6, found[i]->d_name);
		if (!ret)
			ret = add_file(l, path, name);
		free(found[i]);
	}
	free(found);
	return ret;
}

static int chat_new(struct loading *l)
{
	l->chat = calloc(1, sizeof(*l->chat));
	if (l->chat)
		l->chat->tokens = json_object();
	if (l->chat && l->chat->tokens)
		return 0;
	free(l->chat);
	return refuse(l, -ENOMEM, "out of memory");
}

static int chat_end(struct loading *l, int ret, struct chat **chat)
{
	if (!ret && !l->chat->n)
		ret = refuse(l, -ENOENT, "there is no chat template");
	if (ret)
		chat_free(l->chat);
	*chat = ret ? NULL : l->chat;
	return ret;
}

int chat_compile(const json_t *config, struct chat **chat, char *why,
		 size_t len)
{
	struct loading l = { .why = why, .len = len };
	int ret;

	*chat = NULL;
	ret = chat_new(&l);
	if (ret)
		return ret;
	ret = add_config(&l, config, "tokenizer_config.json");
	if (!ret)
		ret = add_tokens(&l, config);
	return chat_end(&l, ret, chat);
}

/* Add tokenizer_config.json, which may be missing */
static int add_config_file(struct loading *l, const char *path)
{
	json_t *config = NULL;
	json_error_t err = { .line = 0 };
	char *text;
	size_t n;
	int ret = file_read(l, path, CHAT_CONFIG_MAX, &text, &n);

	if (ret)
		return ret == -ENOENT ? 0 : ret;
	if (folder_json_too_many(text, n, CHAT_VALUES_MAX))
		ret = refuse(l, -EINVAL, "%s: more than %u values", path,
			     CHAT_VALUES_MAX);
	else
		config = json_loadb(text, n, JSON_DECODE_INT_AS_REAL, &err);
	free(text);
	if (!ret && !config)
		ret = refuse(l, -EINVAL, "%s: line %d: %s", path, err.line,
			     err.text);
	if (!ret)
		ret = add_config(l, config, path);
	if (!ret)
		ret = add_tokens(l, config);
	json_decref(config);
	return ret;
}

static int add_gguf(struct loading *l, const char *path)
{
	json_t *config;
	int ret = chat_gguf_config(path, &config, l->why, l->len);

	if (!ret)
		ret = add_config(l, config, path);
	if (!ret)
		ret = add_tokens(l, config);
	json_decref(config);
	return ret;
}

/* Add the templates of a model's folder. */
static int add_files(struct loading *l, const char *dir)
{
	char path[4096];
	int ret;

	snprintf(path, sizeof(path), "%s/chat_template.jinja", dir);
	ret = add_file(l, path, "default");
	if (!ret)
		ret = add_folder(l, dir);
	snprintf(path, sizeof(path), "%s/tokenizer_config.json", dir);
	return ret ? ret : add_config_file(l, path);
}

int chat_load(const char *dir, const char *first, struct chat **chat,
	      char *why, size_t len)
{
	struct loading l = { .why = why, .len = len };
	int ret;

	*chat = NULL;
	ret = chat_new(&l);
	if (ret)
		return ret;
	if (first)
		ret = add(&l, "default", first, strlen(first),
			  "--chat-template");
	if (!ret)
		ret = gguf_is_file(dir) ? add_gguf(&l, dir) :
					  add_files(&l, dir);
	return chat_end(&l, ret, chat);
}

void chat_free(struct chat *c)
{
	u32 i;

	if (!c)
		return;
	for (i = 0; i < c->n; i++) {
		tmpl_free(c->t[i]);
		free(c->name[i]);
	}
	json_decref(c->tokens);
	free(c);
}

/* ---- variables ---- */

/*
 * Set all names of a message's reasoning: templates read the first name and,
 * some of them, the second.
 */
static int alias_reasoning(json_t *m)
{
	static const char * const names[] = {
		"reasoning_content", "thinking", "reasoning",
	};
	json_t *v = NULL;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(names) && (!v || json_is_null(v)); i++)
		v = json_object_get(m, names[i]);
	if (!v || json_is_null(v))
		return 0;
	if (!json_object_get(m, "thinking") &&
	    json_object_set(m, "thinking", v))
		return -ENOMEM;
	return json_object_set(m, "reasoning_content", v) ? -ENOMEM : 0;
}

/* A copy of the call with its arguments as an object, or the call itself */
static json_t *call_parsed(json_t *call)
{
	json_t *f = json_object_get(call, "function"), *args, *copy;

	args = json_object_get(f, "arguments");
	if (!json_is_string(args))
		return json_incref(call);
	args = json_loadb(json_string_value(args), json_string_length(args),
			  JSON_ALLOW_NUL, NULL);
	if (!json_is_object(args)) {
		json_decref(args);
		return json_incref(call);
	}
	copy = json_copy(call);
	f = json_copy(f);
	if (json_object_set(f, "arguments", args) ||
	    json_object_set(copy, "function", f)) {
		json_decref(copy);
		copy = NULL;
	}
	json_decref(f);
	json_decref(args);
	return copy;
}

static int parse_calls(json_t *m)
{
	const json_t *calls = json_object_get(m, "tool_calls");
	json_t *list, *call;
	int ret = 0;
	size_t i;

	if (!json_is_array(calls))
		return 0;
	list = json_array();
	json_array_foreach(calls, i, call)
		if (!ret && json_array_append_new(list, call_parsed(call)))
			ret = -ENOMEM;
	if (!ret && json_object_set(m, "tool_calls", list))
		ret = -ENOMEM;
	json_decref(list);
	return ret;
}

static json_t *messages_prepared(const struct chat_input *in)
{
	json_t *list = json_array(), *m;
	size_t i;

	for (i = 0; list && i < json_array_size(in->messages); i++) {
		m = json_copy(json_array_get(in->messages, i));
		if (json_is_object(m) && (alias_reasoning(m) ||
		    (in->parse_arguments && parse_calls(m)))) {
			json_decref(m);
			m = NULL;
		}
		if (json_array_append_new(list, m)) {
			json_decref(list);
			list = NULL;
		}
	}
	return list;
}

static int set_or_null(json_t *vars, const char *name, const json_t *v)
{
	json_t *value = (json_t *)(uintptr_t)v;

	return value ? json_object_set(vars, name, value) :
	       json_object_set_new(vars, name, json_null());
}

static json_t *variables(const struct chat *c, const struct chat_input *in)
{
	json_t *vars = json_copy(c->tokens);
	json_t *messages = messages_prepared(in);
	int ret = !vars || !messages;

	if (!ret && in->more)
		ret = json_object_update(vars, (json_t *)(uintptr_t)in->more);
	if (!ret)
		ret = json_object_set(vars, "messages", messages) ||
		      set_or_null(vars, "tools", in->tools) ||
		      set_or_null(vars, "documents", in->documents) ||
		      json_object_set_new(vars, "add_generation_prompt",
				json_boolean(in->add_generation_prompt));
	json_decref(messages);
	if (ret) {
		json_decref(vars);
		return NULL;
	}
	return vars;
}

static const struct tmpl *choose(const struct chat *c,
				 const struct chat_input *in)
{
	const struct tmpl *t = NULL;

	if (in->name)
		return find(c, in->name);
	if (in->tools)
		t = find(c, "tool_use");
	return t ? t : find(c, "default");
}

char *chat_render(const struct chat *c, const struct chat_input *in,
		  const struct tmpl_options *o, size_t *len,
		  struct tmpl_error *err)
{
	const struct tmpl *t = choose(c, in);
	json_t *vars;
	char *text;

	memset(err, 0, sizeof(*err));
	if (!t) {
		err->what = TMPL_FAILED;
		snprintf(err->text, sizeof(err->text), "the model has no chat template '%.80s'",
			 in->name ? in->name : "default");
		return NULL;
	}
	vars = variables(c, in);
	if (!vars) {
		err->what = TMPL_NOMEM;
		strcpy(err->text, "out of memory");
		return NULL;
	}
	text = tmpl_render(t, vars, o, len, err);
	json_decref(vars);
	return text;
}
