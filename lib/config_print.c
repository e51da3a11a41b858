// SPDX-License-Identifier: Apache-2.0
/*
 * config_print.c - print values with their sources, and a file of defaults
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <kvmm/config.h>

#define PRINT_COLUMN	40	/* of the source of a value */
#define PRINT_WIDTH	80

static void format_amount(const struct kv_amount *a, char *buf, size_t len)
{
	if (a->unit == KV_AMOUNT_UNSET)
		*buf = '\0';
	else if (a->unit == KV_AMOUNT_AUTO)
		snprintf(buf, len, "auto");
	else if (a->unit == KV_AMOUNT_PERCENT)
		snprintf(buf, len, "%" PRIu64 "%%", a->value);
	else
		kv_format_size(a->value, buf, len);
}

/* Word @nr of "a|b|c". */
static void format_word(const char *words, u32 nr, char *buf, size_t len)
{
	while (nr-- && *words)
		words = strchrnul(words, '|') + 1;
	snprintf(buf, len, "%.*s", (int)strcspn(words, "|"), words);
}

bool kv_opt_format(const struct kv_opt *o, const void *values, u32 nr,
		   char *buf, size_t len)
{
	const void *field = (const char *)values + o->offset;
	const char *s = NULL;

	switch (o->kind) {
	case KV_OPT_str:
		s = *(const char * const *)field;
		break;
	case KV_OPT_list:
		if (nr < ((const struct kv_list *)field)->nr)
			s = ((const struct kv_list *)field)->s[nr];
		snprintf(buf, len, "%s", s ? s : "");
		return s;
	case KV_OPT_size:
		s = kv_format_size(*(const u64 *)field, buf, len);
		break;
	case KV_OPT_amount:
		format_amount(field, buf, len);
		return !nr;
	case KV_OPT_uint:
		snprintf(buf, len, "%" PRIu32, *(const u32 *)field);
		return !nr;
	case KV_OPT_flag:
		s = *(const bool *)field ? "yes" : "no";
		break;
	case KV_OPT_choice:
		format_word(o->meta, *(const u32 *)field, buf, len);
		return !nr;
	}
	if (s != buf)
		snprintf(buf, len, "%s", s ? s : "");
	return s && !nr;
}

bool kv_opt_same(const struct kv_opt *o, const void *a, const void *b)
{
	char va[4096], vb[4096];
	bool is_a, is_b;
	u32 i = 0;

	do {
		is_a = kv_opt_format(o, a, i, va, sizeof(va));
		is_b = kv_opt_format(o, b, i, vb, sizeof(vb));
		if (is_a != is_b || strcmp(va, vb) != 0)
			return false;
		i++;
	} while (is_a);
	return true;
}

static int args_undo(char **argv, u32 n, int err)
{
	while (n)
		free(argv[--n]);
	return err;
}

int kv_config_args(const struct kv_section *s, char **argv, u32 max)
{
	char value[4096];
	u32 i, k, n = 0;

	for (i = 0; i < s->nr; i++) {
		const struct kv_opt *o = &s->opts[i];
		const bool flag = o->kind == KV_OPT_flag;

		if (s->from[i].source != KV_FROM_FILE &&
		    s->from[i].source != KV_FROM_ENV)
			continue;
		for (k = 0; kv_opt_format(o, s->values, k, value, sizeof(value)); k++) {
			if (flag && strcmp(value, "yes") != 0)
				break;
			if (n == max)
				return args_undo(argv, n, -E2BIG);
			if (asprintf(&argv[n], flag ? "--%s" : "--%s=%s",
				     o->name, value) < 0)
				return args_undo(argv, n, -ENOMEM);
			n++;
		}
	}
	return (int)n;
}

/* ---- values and their sources ---- */

static void print_source(const struct kv_config *cfg,
			 const struct kv_section *s, u32 i, int at, FILE *out)
{
	const struct kv_origin *f = &s->from[i];
	char name[96];

	fprintf(out, "%*s# ", max(PRINT_COLUMN - at, 1), "");
	switch (f->source) {
	case KV_FROM_FILE:
		/* A list may have several lines, and only the last number is kept. */
		if (s->opts[i].kind == KV_OPT_list)
			fprintf(out, "%s\n", cfg->path);
		else
			fprintf(out, "%s:%u\n", cfg->path, f->line);
		break;
	case KV_FROM_ENV:
		fprintf(out, "environment: %s\n",
			kv_config_env_name(s, &s->opts[i], name, sizeof(name)));
		break;
	case KV_FROM_LINE:
		fputs("command line\n", out);
		break;
	case KV_FROM_DEFAULT:
		fputs("default\n", out);
		break;
	}
}

/* A size of 0 without a default is unset; a file could not say it. */
static bool is_unset(const struct kv_section *s, u32 i, const char *value)
{
	return s->from[i].source == KV_FROM_DEFAULT && !s->opts[i].def &&
	       s->opts[i].kind != KV_OPT_flag &&
	       (!*value || !strcmp(value, "0"));
}

static void print_option(const struct kv_config *cfg,
			 const struct kv_section *s, u32 i, FILE *out)
{
	const struct kv_opt *o = &s->opts[i];
	char value[4096];
	u32 k = 0;
	int at;

	while (kv_opt_format(o, s->values, k, value, sizeof(value)) &&
	       !is_unset(s, i, value)) {
		at = fprintf(out, "%s = %s", o->name, value);
		print_source(cfg, s, i, at, out);
		k++;
	}
	if (!k) {
		at = fprintf(out, "# %s", o->name);
		print_source(cfg, s, i, at, out);
	}
}

void kv_config_print(const struct kv_config *cfg, FILE *out)
{
	u32 n, i;

	fprintf(out, "# file: %s\n", cfg->path[0] ? cfg->path : "none");
	for (n = 0; n < cfg->nr; n++) {
		const struct kv_section *s = &cfg->section[n];

		fprintf(out, "\n[%s]\n", s->name);
		for (i = 0; i < s->nr; i++)
			if (kv_config_has(s, &s->opts[i]))
				print_option(cfg, s, i, out);
	}
}

/* ---- a file of defaults ---- */

static void print_comment(const char *text, FILE *out)
{
	int at = fprintf(out, "#");

	while (*text) {
		const size_t n = strcspn(text, " ");

		if (at + 1 + (int)n > PRINT_WIDTH)
			at = fprintf(out, "\n#") - 1;
		at += fprintf(out, " %.*s", (int)n, text);
		text += n;
		text += strspn(text, " ");
	}
	fputc('\n', out);
}

static void print_default(const struct kv_opt *o, FILE *out)
{
	char lo[24], hi[24];

	fputc('\n', out);
	print_comment(o->help, out);
	if (o->hi && o->kind == KV_OPT_uint)
		fprintf(out, "# From %" PRIu64 " to %" PRIu64 ".\n", o->lo, o->hi);
	else if (o->hi)
		fprintf(out, "# From %s to %s.\n",
			kv_format_size(o->lo, lo, sizeof(lo)),
			kv_format_size(o->hi, hi, sizeof(hi)));
	if (o->kind == KV_OPT_choice)
		fprintf(out, "# One of %s.\n", o->meta);
	if (o->kind == KV_OPT_list)
		fputs("# Each on a line of its own.\n", out);
	fprintf(out, "#%s = %s\n", o->name, o->def ? o->def :
		o->kind == KV_OPT_flag ? "no" : o->meta);
}

void kv_config_print_default(const struct kv_config *cfg, FILE *out)
{
	u32 n, i;

	fprintf(out, "# %s - every key, with its default behind a #\n#\n",
		cfg->name);
	print_comment("One key = value a line; a # at the beginning of a line or behind a blank begins a comment. A value on the command line or in the environment overrides the value in this file. Sizes take K, M, G and T. A key without a default shows what kind of value it takes.", out);
	for (n = 0; n < cfg->nr; n++) {
		const struct kv_section *s = &cfg->section[n];

		fputc('\n', out);
		print_comment(s->about, out);
		fprintf(out, "[%s]\n", s->name);
		for (i = 0; i < s->nr; i++)
			if (kv_config_has(s, &s->opts[i]))
				print_default(&s->opts[i], out);
	}
}
