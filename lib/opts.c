// SPDX-License-Identifier: Apache-2.0
/*
 * opts.c - command-line options from one list
 *
 * The table has all that is special to a program.  Parsing keeps no state and
 * allocates no memory: strings point into argv.  A wrong value never terminates the
 * program: the caller gets one line that names the option, and decides.
 */
#include <inttypes.h>
#include <stdlib.h>

#include <kvmm/near.h>
#include <kvmm/opts.h>

#include "lib/opts_set.h"

/* Index of @word in "a|b|c", or -1. */
static int choice_index(const char *words, const char *word)
{
	size_t len = strlen(word);
	int i;

	for (i = 0; words; i++) {
		const char *end = strchrnul(words, '|');

		if (len && (size_t)(end - words) == len &&
		    !memcmp(words, word, len))
			return i;
		words = *end ? end + 1 : NULL;
	}
	return -1;
}

/* Describe the values of a kind. */
static const char *kind_text(enum kv_opt_kind kind)
{
	switch (kind) {
	case KV_OPT_size:
		return "size: write " KV_SIZE_TEXT;
	case KV_OPT_amount:
		return "size: write " KV_SIZE_TEXT ", a share of memory as 25%, or auto";
	default:
		return "number: write decimal digits";
	}
}

static int number_check(const struct kv_opt *o, int err, u64 v, const char *s,
			char *text, size_t len)
{
	char lo[24], hi[24];

	if (err == -EINVAL) {
		snprintf(text, len, "--%s: '%.40s' is not a valid %s", o->name, s,
			 kind_text(o->kind));
		return -EINVAL;
	}
	if (!err && v >= o->lo && (!o->hi || v <= o->hi))
		return 0;
	if (o->kind == KV_OPT_uint) {
		snprintf(lo, sizeof(lo), "%" PRIu64, o->lo);
		snprintf(hi, sizeof(hi), "%" PRIu64, o->hi);
	} else {
		kv_format_size(o->lo, lo, sizeof(lo));
		kv_format_size(o->hi, hi, sizeof(hi));
	}
	snprintf(text, len, "--%s: %.40s is out of range: give %s to %s%s",
		 o->name, s, lo, o->hi ? hi : "any",
		 o->kind == KV_OPT_amount ? ", or 1% to 100%" : "");
	return -EINVAL;
}

static int amount_set(const struct kv_opt *o, struct kv_amount *field,
		      const char *s, char *text, size_t len)
{
	struct kv_amount a = { .value = 0 };
	int err = kv_parse_amount(s, &a);

	if (err || a.unit == KV_AMOUNT_BYTES)
		err = number_check(o, err, a.value, s, text, len);
	if (!err)
		*field = a;
	return err;
}

static int number_set(const struct kv_opt *o, void *field, const char *s,
		      char *text, size_t len)
{
	u64 v = 0;
	int err = o->kind == KV_OPT_size ? kv_parse_size(s, &v) :
					   kv_parse_uint(s, &v);

	if (!err && o->kind == KV_OPT_uint && v > UINT32_MAX)
		err = -ERANGE;
	err = number_check(o, err, v, s, text, len);
	if (err)
		return err;
	if (o->kind == KV_OPT_size)
		*(u64 *)field = v;
	else
		*(u32 *)field = (u32)v;
	return 0;
}

static int list_add(const struct kv_opt *o, struct kv_list *list, const char *s,
		    char *text, size_t len)
{
	if (list->nr == KV_LIST_MAX) {
		snprintf(text, len, "--%s: given more than %u times", o->name,
			 KV_LIST_MAX);
		return -EINVAL;
	}
	list->s[list->nr++] = s;
	return 0;
}

int kv_opt_set(const struct kv_opt *o, void *values, const char *s, char *text,
	       size_t len)
{
	void *field = (char *)values + o->offset;
	int i;

	switch (o->kind) {
	case KV_OPT_str:
		*(const char **)field = s;
		return 0;
	case KV_OPT_amount:
		return amount_set(o, field, s, text, len);
	case KV_OPT_size:
	case KV_OPT_uint:
		return number_set(o, field, s, text, len);
	case KV_OPT_flag:
		*(bool *)field = true;
		return 0;
	case KV_OPT_list:
		return list_add(o, field, s, text, len);
	case KV_OPT_choice:
		i = choice_index(o->meta, s);
		if (i < 0) {
			snprintf(text, len, "--%s: '%.40s' is not one of %s",
				 o->name, s, o->meta);
			return -EINVAL;
		}
		*(u32 *)field = (u32)i;
		return 0;
	}
	return -EINVAL;
}

void kv_opt_clear(const struct kv_opt *o, void *values)
{
	void *field = (char *)values + o->offset;

	switch (o->kind) {
	case KV_OPT_str:
		*(const char **)field = NULL;
		break;
	case KV_OPT_size:
		*(u64 *)field = 0;
		break;
	case KV_OPT_amount:
		*(struct kv_amount *)field = (struct kv_amount){ .value = 0 };
		break;
	case KV_OPT_uint:
	case KV_OPT_choice:
		*(u32 *)field = 0;
		break;
	case KV_OPT_flag:
		*(bool *)field = false;
		break;
	case KV_OPT_list:
		((struct kv_list *)field)->nr = 0;
		break;
	}
}

static size_t kind_size(enum kv_opt_kind kind)
{
	switch (kind) {
#define x(kind) case KV_OPT_##kind: return sizeof(OPT_CTYPE_##kind)
	x(str);
	x(size);
	x(amount);
	x(uint);
	x(flag);
	x(choice);
	x(list);
#undef x
	}
	return 0;
}

void kv_opt_copy(const struct kv_opt *o, void *to, const void *from)
{
	memcpy((char *)to + o->offset, (const char *)from + o->offset,
	       kind_size(o->kind));
}

const struct kv_opt *kv_opt_find(const struct kv_opt *opts, u32 nr,
				 const char *name, size_t len)
{
	u32 i;

	for (i = 0; i < nr; i++)
		if (strlen(opts[i].name) == len &&
		    !memcmp(opts[i].name, name, len))
			return &opts[i];
	return NULL;
}

void kv_opt_unknown(const struct kv_program *prog, const char *arg, char *text,
		    size_t len)
{
	const int dashes = (int)strspn(arg, "-");
	const int n = (int)min(strcspn(arg, "="), (size_t)60);
	const char *name = arg + dashes;
	struct kv_near near;
	u32 i;

	for (i = 0; i < prog->nr_foreign; i++) {
		if (strlen(prog->foreign[i].name) != (size_t)(n - dashes) ||
		    strncmp(prog->foreign[i].name, name, (size_t)(n - dashes)))
			continue;
		snprintf(text, len, "unknown option %.*s: %s", n, arg,
			 prog->foreign[i].here);
		return;
	}
	kv_near_init(&near, name, (size_t)(n - dashes));
	for (i = 0; i < prog->nr_opts; i++)
		kv_near_try(&near, prog->opts[i].name);
	kv_near_try(&near, "help");
	kv_near_try(&near, "version");
	if (near.best)
		snprintf(text, len, "unknown option %.*s: did you mean --%s?",
			 n, arg, near.best);
	else
		snprintf(text, len, "unknown option %.*s: see %s --help", n,
			 arg, prog->name);
}

/* Set a value of the command line; it replaces those of other sources. */
static int line_set(const struct kv_program *prog, struct kv_origin *from,
		    void *values, const struct kv_opt *o, const char *s,
		    char *text, size_t len)
{
	struct kv_origin *f = from ? &from[o - prog->opts] : NULL;

	if (f && f->source != KV_FROM_LINE)
		kv_opt_clear(o, values);
	if (f)
		f->source = KV_FROM_LINE;
	return kv_opt_set(o, values, s, text, len);
}

/* Take "-h" or an option with two dashes; moves *@i past its value. */
static int opt_take(const struct kv_program *prog, struct kv_origin *from,
		    void *values, int argc, char **argv, int *i, char *text,
		    size_t len)
{
	const char *name = argv[*i] + 2;
	const char *eq = strchrnul(name, '=');
	const struct kv_opt *o;

	if (!strcmp(name, "help") || !strcmp(argv[*i], "-h")) {
		kv_opts_help(prog, stdout);
		return -ECANCELED;
	}
	if (!strcmp(name, "version")) {
		printf("%s %s\n", prog->name, KVMM_VERSION);
		return -ECANCELED;
	}
	if (!strncmp(name, "print-", 6) && kv_opts_print(prog, name + 6, stdout))
		return -ECANCELED;
	o = kv_opt_find(prog->opts, prog->nr_opts, name, (size_t)(eq - name));
	if (!o) {
		kv_opt_unknown(prog, argv[*i], text, len);
		return -EINVAL;
	}
	if (o->kind == KV_OPT_flag) {
		if (*eq) {
			snprintf(text, len, "--%s takes no value", o->name);
			return -EINVAL;
		}
		return line_set(prog, from, values, o, NULL, text, len);
	}
	if (*eq)
		return line_set(prog, from, values, o, eq + 1, text, len);
	if (*i + 1 >= argc) {
		snprintf(text, len, "--%s wants a value: --%s %s", o->name,
			 o->name, o->meta);
		return -EINVAL;
	}
	return line_set(prog, from, values, o, argv[++*i], text, len);
}

/* Set all options to their defaults. */
int kv_opts_default(const struct kv_opt *opts, u32 nr, void *values, char *text,
		    size_t len)
{
	u32 i;
	int err;

	for (i = 0; i < nr; i++) {
		kv_opt_clear(&opts[i], values);
		if (!opts[i].def)
			continue;
		err = kv_opt_set(&opts[i], values, opts[i].def, text, len);
		if (err)
			return err;
	}
	return 0;
}

/* Name the key that the unknown @word may mean. */
static void key_unknown(const struct kv_opt *opts, u32 nr, const char *word,
			char *text, size_t len)
{
	struct kv_near near;
	u32 i;

	kv_near_init(&near, word, strlen(word));
	for (i = 0; i < nr; i++)
		kv_near_try(&near, opts[i].name);
	if (near.best)
		snprintf(text, len, "unknown key '%.40s': did you mean %s?",
			 word, near.best);
	else
		snprintf(text, len, "unknown key '%.40s': see --help", word);
}

static int key_set(const struct kv_opt *opts, u32 nr, void *values, char *word,
		   char *text, size_t len)
{
	char *eq = strchr(word, '=');
	u32 i;
	int err;

	if (eq)
		*eq = '\0';
	for (i = 0; i < nr && strcmp(opts[i].name, word); i++)
		;
	if (i == nr) {
		key_unknown(opts, nr, word, text, len);
		return -EINVAL;
	}
	if (!eq) {
		snprintf(text, len, "%.40s wants a value: write KEY=VALUE",
			 word);
		return -EINVAL;
	}
	err = kv_opt_set(&opts[i], values, eq + 1, text, len);
	/* Remove the dashes from the message: it is a key, not an option. */
	if (err)
		memmove(text, text + 2, strlen(text + 2) + 1);
	return err;
}

int kv_opts_parse_keys(const struct kv_opt *opts, u32 nr, void *values,
		       char *spec, char *text, size_t len)
{
	char *save = NULL, *word;
	int err = kv_opts_default(opts, nr, values, text, len);

	for (word = strtok_r(spec, ",", &save); word && !err;
	     word = strtok_r(NULL, ",", &save))
		err = key_set(opts, nr, values, word, text, len);
	return err;
}

int kv_opts_line(const struct kv_program *prog, struct kv_origin *from,
		 void *values, int argc, char **argv, char *text, size_t len)
{
	int i, err, nr = 0;

	for (i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--")) {
			while (++i < argc)
				argv[nr++] = argv[i];
			break;
		}
		if (strncmp(argv[i], "--", 2) && strcmp(argv[i], "-h")) {
			argv[nr++] = argv[i];
			continue;
		}
		err = opt_take(prog, from, values, argc, argv, &i, text, len);
		if (err)
			return err;
	}
	if (nr && !prog->operands) {
		snprintf(text, len, "'%.60s' is one argument too many: see %s --help",
			 argv[0], prog->name);
		return -EINVAL;
	}
	argv[nr] = NULL;
	return nr;
}

int kv_opts_parse(const struct kv_program *prog, void *values, int argc,
		  char **argv, char *text, size_t len)
{
	int err = kv_opts_default(prog->opts, prog->nr_opts, values, text, len);

	return err ? err : kv_opts_line(prog, NULL, values, argc, argv, text,
					len);
}
