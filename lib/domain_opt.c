// SPDX-License-Identifier: Apache-2.0
/*
 * domain_opt.c - the values of --domain
 *
 * A client may give its domain any name.  A name with a blank, a comma, a slash, a
 * quote or a # cannot be written here, since these end a value or a comment begins.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <kvmm/domain_opt.h>

#define WEIGHT_MOST	10000	/* CORE_WEIGHT_MAX */

struct domain_keys {
#define x(mark, key, ...) const char *key;
	DOMAIN_KEYS(x)
#undef x
};

static const struct kv_opt key_table[] = {
#define x(mark, key, unit, text)					\
	OPT_ENTRY(struct domain_keys, str, key, #key, NULL, 0, 0, unit, text)
	DOMAIN_KEYS(x)
#undef x
};

static bool name_is_good(const char *s, size_t len, size_t most)
{
	size_t i;

	for (i = 0; i < len; i++)
		if (s[i] <= ' ' || s[i] > '~' || strchr(",/#\"'", s[i]))
			return false;
	return len && len < most;
}

/* Take [TENANT/]NAME, @n bytes. */
static bool take_names(struct domain_opt *d, const char *spec, size_t n)
{
	const char *slash = memchr(spec, '/', n);
	const size_t at = slash ? (size_t)(slash - spec) + 1 : 0;

	if (!name_is_good(spec + at, n - at, sizeof(d->name)) ||
	    (slash && !name_is_good(spec, at - 1, sizeof(d->tenant))))
		return false;
	memcpy(d->tenant, spec, slash ? at - 1 : 0);
	memcpy(d->name, spec + at, n - at);
	return true;
}

static bool take_limit(struct domain_opt *d, u32 key, const char *value)
{
	u64 v;

	if (!value)
		return true;
	if (key == DOMAIN_KEY_WEIGHT) {
		if (kv_parse_uint(value, &v) || !v || v > WEIGHT_MOST)
			return false;
	} else if (key == DOMAIN_KEY_WRITETHROUGH) {
		if (kv_parse_uint(value, &v) || v > 1)
			return false;
	} else if (!strcmp(value, "max")) {
		v = KVMM_LIMIT_MAX;
	} else if (kv_parse_size(value, &v)) {
		return false;
	}
	d->given |= BIT(key);
	d->limit[key] = v;
	return true;
}

static int refuse_limit(const struct domain_opt *d, u32 key, const char *value,
			char *why, size_t len)
{
	snprintf(why, len, "--domain %s: %s: '%.40s' is %s", d->name,
		 key_table[key].name, value, key == DOMAIN_KEY_WEIGHT ?
		 "out of range: give 1 to 10000" : key == DOMAIN_KEY_WRITETHROUGH ?
		 "out of range: give 0 or 1" :
		 "not a valid size: write 64K, 256M, 80GiB, or max");
	return -EINVAL;
}

int domain_opt_parse(struct domain_opt *d, const char *spec, char *why,
		     size_t len)
{
	const size_t n = strcspn(spec, ",");
	char copy[512], text[192];
	struct domain_keys keys;
	u32 i;

	memset(d, 0, sizeof(*d));
	if (!take_names(d, spec, n)) {
		snprintf(why, len, "--domain: '%.*s' is no name of a domain: write NAME or TENANT/NAME without blanks, quotes and #, at most %u bytes",
			 (int)min(n, (size_t)80), spec, KVMM_NAME_LEN - 1);
		return -EINVAL;
	}
	if ((size_t)snprintf(copy, sizeof(copy), "%s",
			     spec[n] ? spec + n + 1 : "") >= sizeof(copy)) {
		snprintf(why, len, "--domain %s: more than %zu bytes of keys: give each once",
			 d->name, sizeof(copy) - 1);
		return -EINVAL;
	}
	if (kv_opts_parse_keys(key_table, ARRAY_SIZE(key_table), &keys, copy,
			       text, sizeof(text))) {
		snprintf(why, len, "--domain %s: %s; keys are min=, low=, high=, max=, weight=, writethrough=",
			 d->name, text);
		return -EINVAL;
	}
	for (i = 0; i < NR_DOMAIN_KEYS; i++) {
		const char *value = *(const char **)((char *)&keys + key_table[i].offset);

		if (!take_limit(d, i, value))
			return refuse_limit(d, i, value, why, len);
	}
	return 0;
}

char *domain_opt_format(const struct domain_opt *d, char *buf, size_t len)
{
	size_t at = 0;
	char value[24];
	u32 i;

	*buf = '\0';
	if (!name_is_good(d->name, strlen(d->name), sizeof(d->name)))
		return buf;
	at += (size_t)snprintf(buf, len, "%s%s%s", d->tenant,
			       *d->tenant ? "/" : "", d->name);
	for (i = 0; i < NR_DOMAIN_KEYS && at < len; i++) {
		if (!(d->given & BIT(i)))
			continue;
		if (i == DOMAIN_KEY_WEIGHT)
			snprintf(value, sizeof(value), "%" PRIu64, d->limit[i]);
		else if (d->limit[i] == KVMM_LIMIT_MAX)
			strcpy(value, "max");
		else
			kv_format_size(d->limit[i], value, sizeof(value));
		at += (size_t)snprintf(buf + at, len - at, ",%s=%s",
				       key_table[i].name, value);
	}
	if (at >= len)
		*buf = '\0';
	return buf;
}

void domain_opt_help(FILE *out)
{
	u32 i;

	fputs("\nKeys of --domain:\n", out);
	for (i = 0; i < ARRAY_SIZE(key_table); i++)
		kv_opts_help_entry("", key_table[i].name, key_table[i].meta,
				   key_table[i].help, out);
}
