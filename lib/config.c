// SPDX-License-Identifier: Apache-2.0
/*
 * config.c - options from a file and from the environment
 *
 * The table of options has the names, and opts.c checks the values.  This file reads
 * the sources of values in order: defaults, file, environment, command line.  Each
 * source overrides the values of earlier sources; it replaces their lists as a
 * whole.  All keys of a file are checked, so a wrong value is found even if the
 * command line overrides it.
 *
 * The file is read only once, by the process that starts first: kvmm-hold passes the
 * values to its kvmm as options.  So a restarted kvmm has the same options as the
 * kvmm before it, even if the file has changed.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <kvmm/near.h>

#include "lib/opts_set.h"

/**
 * struct reader - state of reading a file
 * @line: number of the current line
 * @now:  section of the current line
 */
struct reader {
	struct kv_config	*cfg;
	u32			line;
	struct kv_section	*now;
	char			*text;
	size_t			len;
};

char *kv_config_env_name(const struct kv_section *s, const struct kv_opt *o,
			 char *buf, size_t len)
{
	char *p;

	snprintf(buf, len, "%s%s", s->env, o->name);
	for (p = buf; *p; p++)
		*p = *p == '-' ? '_' : (char)toupper((unsigned char)*p);
	return buf;
}

bool kv_config_has(const struct kv_section *s, const struct kv_opt *o)
{
	char word[64];

	snprintf(word, sizeof(word), " %s ", o->name);
	return !s->line_only || !strstr(s->line_only, word);
}

/* ---- one value ---- */

/* A flag has a value only here; on the command line it has none. */
static int flag_set(const struct kv_opt *o, void *values, const char *s,
		    char *text, size_t len)
{
	if (strcmp(s, "yes") && strcmp(s, "no")) {
		snprintf(text, len, "--%s: '%.40s' is neither yes nor no",
			 o->name, s);
		return -EINVAL;
	}
	*(bool *)((char *)values + o->offset) = !strcmp(s, "yes");
	return 0;
}

static int one_set(const struct kv_opt *o, void *values, const char *s,
		   char *text, size_t len)
{
	return o->kind == KV_OPT_flag ? flag_set(o, values, s, text, len) :
					kv_opt_set(o, values, s, text, len);
}

/* Set a value, overriding those of other sources. */
static int layer_set(struct kv_section *s, const struct kv_opt *o,
		     enum kv_source source, const char *value, char *text,
		     size_t len)
{
	struct kv_origin *f = &s->from[o - s->opts];
	int err;

	if (f->source != source)
		kv_opt_clear(o, s->values);
	f->source = source;
	err = one_set(o, s->values, value, text, len);
	return err || !s->judge ? err : s->judge(o, value, text, len);
}

/* ---- the file ---- */

static int refuse(const struct reader *r, const char *what)
{
	snprintf(r->text, r->len, "%s:%u: %s", r->cfg->path, r->line, what);
	return -EBADMSG;
}

/* The key closest to the misspelt @key, or NULL. */
static const char *nearest(const struct kv_section *s, const char *key)
{
	struct kv_near n;
	u32 i;

	kv_near_init(&n, key, strlen(key));
	for (i = 0; i < s->nr; i++)
		if (kv_config_has(s, &s->opts[i]))
			kv_near_try(&n, s->opts[i].name);
	return n.best;
}

static int refuse_key(const struct reader *r, const char *key)
{
	const char *near = nearest(r->now, key);
	const struct kv_section *s;
	char what[256];
	u32 i;

	for (i = 0; i < r->cfg->nr; i++) {
		s = &r->cfg->section[i];
		if (s == r->now || !kv_opt_find(s->opts, s->nr, key, strlen(key)))
			continue;
		snprintf(what, sizeof(what), "%s is a key of [%s], not of [%s]: write it below that",
			 key, s->name, r->now->name);
		return refuse(r, what);
	}
	if (near)
		snprintf(what, sizeof(what), "'%.60s' is not a key of [%s]: did you mean %s?",
			 key, r->now->name, near);
	else
		snprintf(what, sizeof(what), "'%.60s' is not a key of [%s]: keys are the options that --help tells, without dashes before them",
			 key, r->now->name);
	return refuse(r, what);
}

static int take_section(struct reader *r, const char *line)
{
	const size_t n = strlen(line);
	char what[256];
	u32 i;
	int at;

	for (i = 0; i < r->cfg->nr && line[n - 1] == ']'; i++) {
		struct kv_section *s = &r->cfg->section[i];

		if (strlen(s->name) == n - 2 && !memcmp(s->name, line + 1, n - 2)) {
			r->now = s;
			return 0;
		}
	}
	at = snprintf(what, sizeof(what), "'%.40s' is no section: there is", line);
	for (i = 0; i < r->cfg->nr; i++)
		at += snprintf(what + at, sizeof(what) - (size_t)at, "%s [%s]",
			       i ? " and" : "", r->cfg->section[i].name);
	return refuse(r, what);
}

static int take_key(struct reader *r, const char *key, const char *value)
{
	struct kv_section *s = r->now;
	const struct kv_opt *o = kv_opt_find(s->opts, s->nr, key, strlen(key));
	char why[256], what[400];
	u32 *line;

	if (!o)
		return refuse_key(r, key);
	line = &s->from[o - s->opts].line;
	if (!kv_config_has(s, o))
		snprintf(what, sizeof(what), "%s is for the command line alone: leave it out",
			 key);
	else if (!*value)
		snprintf(what, sizeof(what), "%s has no value: write %s = %s, or leave the line out",
			 key, key, o->meta ? o->meta : "yes");
	else if (*value == '"' || *value == '\'')
		snprintf(what, sizeof(what), "%s: write the value without quotes",
			 key);
	else if (*line && o->kind != KV_OPT_list)
		snprintf(what, sizeof(what), "%s is in line %u already: leave one out",
			 key, *line);
	else if (layer_set(s, o, KV_FROM_FILE, value, why, sizeof(why)))
		snprintf(what, sizeof(what), "%s", why + 2);
	else {
		*line = r->line;
		return 0;
	}
	return refuse(r, what);
}

static char *trim(char *s)
{
	char *end = s + strlen(s);

	while (end > s && isspace((unsigned char)end[-1]))
		end--;
	*end = '\0';
	return s + strspn(s, " \t\r");
}

static int take_line(struct reader *r, char *line)
{
	char *p, *eq;

	for (p = line; *p; p++) {
		if (*p == '#' && (p == line || p[-1] == ' ' || p[-1] == '\t')) {
			*p = '\0';
			break;
		}
		if ((u8)*p < ' ' && *p != '\t' && *p != '\r')
			return refuse(r, "a control character: write plain text");
	}
	line = trim(line);
	if (!*line)
		return 0;
	if (*line == '[')
		return take_section(r, line);
	eq = strchr(line, '=');
	if (!eq)
		return refuse(r, "neither key = value nor [section]: a comment begins with #");
	*eq = '\0';
	return take_key(r, trim(line), trim(eq + 1));
}

/* Read the whole file into cfg->text.  Return: 0, or -EBADMSG with the reason. */
static int slurp(struct kv_config *cfg, int fd, char *text, size_t len)
{
	size_t have = 0;
	ssize_t n;

	cfg->text = malloc(KV_CONFIG_MAX + 1);
	do {
		n = cfg->text ? read(fd, cfg->text + have, KV_CONFIG_MAX + 1 - have) : -1;
		have += n > 0 ? (size_t)n : 0;
	} while (n > 0 || (n < 0 && errno == EINTR));
	if (n < 0 || have > KV_CONFIG_MAX) {
		snprintf(text, len, n < 0 ? "%s: cannot be read" :
			 "%s: too long for a file of options", cfg->path);
		return -EBADMSG;
	}
	cfg->text[have] = '\0';
	if (strlen(cfg->text) == have)
		return 0;
	snprintf(text, len, "%s: has bytes that are no text", cfg->path);
	return -EBADMSG;
}

static int file_read(struct kv_config *cfg, const char *path, bool must,
		     char *text, size_t len)
{
	struct reader r = {
		.cfg = cfg, .now = cfg->section, .text = text, .len = len,
	};
	char *line, *next;
	int fd, err;

	fd = kv_config_open(path, text, len);
	if (fd == -ENOENT && !must)
		return 0;
	if (fd < 0)
		return -EBADMSG;
	snprintf(cfg->path, sizeof(cfg->path), "%s", path);
	err = slurp(cfg, fd, text, len);
	close(fd);
	for (line = cfg->text; !err && line; line = next) {
		next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		r.line++;
		err = take_line(&r, line);
	}
	return err;
}

/* ---- the environment ---- */

/* Each word of @value is a value.  They point into a copy, which is kept. */
static int env_list(struct kv_section *s, const struct kv_opt *o,
		    const char *value, char *text, size_t len)
{
	char *copy = strdup(value), *save = NULL, *word;
	int err = 0;

	if (!copy) {
		snprintf(text, len, "--%s: no memory", o->name);
		return -EINVAL;
	}
	s->from[o - s->opts].words = copy;
	for (word = strtok_r(copy, " \t\n", &save); word && !err;
	     word = strtok_r(NULL, " \t\n", &save))
		err = layer_set(s, o, KV_FROM_ENV, word, text, len);
	return err;
}

static int env_read(struct kv_section *s, char *text, size_t len)
{
	char name[96], why[256];
	const char *value;
	u32 i;
	int err;

	for (i = 0; i < s->nr; i++) {
		const struct kv_opt *o = &s->opts[i];

		value = getenv(kv_config_env_name(s, o, name, sizeof(name)));
		/* Empty counts as unset: many ways to start a program cannot unset it. */
		if (!value || !*value || !kv_config_has(s, o))
			continue;
		if (o->kind == KV_OPT_list)
			err = env_list(s, o, value, why, sizeof(why));
		else
			err = layer_set(s, o, KV_FROM_ENV, value, why,
					sizeof(why));
		if (!err)
			continue;
		snprintf(text, len, "%s%s", name, why + 2 + strlen(o->name));
		return err;
	}
	return 0;
}

/* ---- all of it ---- */

/* Path of the file to read, or NULL for none; *@must: a missing file is an error. */
static const char *which_file(const struct kv_config *cfg, const char *asked,
			      const char *dflt, bool *must)
{
	const char *env = cfg->env_path ? getenv(cfg->env_path) : NULL;
	const char *path = asked ? asked : env && *env ? env : NULL;

	*must = path;
	if (!path)
		path = dflt;
	return path && *path && strcmp(path, KV_CONFIG_NONE) ? path : NULL;
}

int kv_config_parse(const struct kv_program *prog, struct kv_config *cfg,
		    const char *asked, const char *dflt, int argc, char **argv,
		    char *text, size_t len)
{
	struct kv_section *s;
	const char *path;
	int err = 0;
	bool must;
	u32 i, k;

	cfg->path[0] = '\0';
	cfg->sought[0] = '\0';
	for (i = 0; i < cfg->nr && !err; i++) {
		s = &cfg->section[i];
		/* A second call starts with empty lists. */
		for (k = 0; k < KV_CONFIG_OPTS; k++)
			free(s->from[k].words);
		memset(s->from, 0, sizeof(s->from));
		err = s->nr > KV_CONFIG_OPTS ? -EINVAL :
		      kv_opts_default(s->opts, s->nr, s->values, text, len);
	}
	path = which_file(cfg, asked, dflt, &must);
	if (path)
		snprintf(cfg->sought, sizeof(cfg->sought), "%s", path);
	if (!err && path)
		err = file_read(cfg, path, must, text, len);
	for (i = 0; i < cfg->nr && !err; i++)
		err = env_read(&cfg->section[i], text, len);
	return err ? err : kv_opts_line(prog, cfg->section[0].from,
					cfg->section[0].values, argc, argv,
					text, len);
}

void kv_config_free(struct kv_config *cfg)
{
	u32 i, k;

	for (i = 0; i < cfg->nr; i++)
		for (k = 0; k < KV_CONFIG_OPTS; k++)
			free(cfg->section[i].from[k].words);
	free(cfg->text);
	cfg->text = NULL;
}
