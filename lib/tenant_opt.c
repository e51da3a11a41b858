// SPDX-License-Identifier: Apache-2.0
/*
 * tenant_opt.c - the values of --tenant and --user-quota
 *
 * A value of --tenant is a name, then keys, which are parsed like options.  A name may
 * not be a number, since a tenant without a name is shown by the number of its user.
 * It must also serve as the name of a directory.
 */
#include <stdio.h>
#include <string.h>

#include <kvmm/tenant_opt.h>

static const struct kv_opt quota_table[] = {
#define x(...) OPT_ENTRY(struct tenant_quota, __VA_ARGS__)
	TENANT_QUOTAS(x)
#undef x
};

static const struct kv_opt key_table[] = {
#define x(...) OPT_ENTRY(struct tenant_quota, __VA_ARGS__)
	TENANT_QUOTAS(x)
#undef x
#define x(...) OPT_ENTRY(struct tenant_keys, __VA_ARGS__)
	TENANT_SOCKETS(x)
#undef x
};

static_assert(!offsetof(struct tenant_keys, quota), "one table for both");

static bool is_letter(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool name_is_good(const char *s, size_t len)
{
	size_t i;

	if (!len || len >= TENANT_NAME_LEN || !is_letter(s[0]))
		return false;
	for (i = 0; i < len; i++)
		if (!is_letter(s[i]) && !(s[i] >= '0' && s[i] <= '9') &&
		    s[i] != '-' && s[i] != '_')
			return false;
	return true;
}

int tenant_opt_parse(struct tenant_opt *t, const char *spec, char *why,
		     size_t len)
{
	size_t n = strcspn(spec, ",");
	char text[192], none[] = "";
	int err;

	if (!name_is_good(spec, n)) {
		snprintf(why, len, "--tenant: '%.*s' is no name: write a letter, then letters, digits, - and _, at most %u",
			 (int)min(n, (size_t)40), spec, TENANT_NAME_LEN - 1);
		return -EINVAL;
	}
	if (strlen(spec) >= sizeof(t->text)) {
		snprintf(why, len, "--tenant %.*s: longer than %u bytes",
			 (int)n, spec, TENANT_SPEC_MAX - 1);
		return -EINVAL;
	}
	memcpy(t->name, spec, n);
	t->name[n] = '\0';
	strcpy(t->text, spec);
	err = kv_opts_parse_keys(key_table, ARRAY_SIZE(key_table), &t->keys,
				 spec[n] ? t->text + n + 1 : none, text,
				 sizeof(text));
	if (err)
		snprintf(why, len, "--tenant %s: %s", t->name, text);
	return err;
}

int tenant_quota_parse(struct tenant_quota *q, const char *spec, char *why,
		       size_t len)
{
	char copy[TENANT_SPEC_MAX], text[192];
	int err;

	snprintf(copy, sizeof(copy), "%s", spec ? spec : "");
	err = kv_opts_parse_keys(quota_table, ARRAY_SIZE(quota_table), q, copy,
				 text, sizeof(text));
	if (err)
		snprintf(why, len, "--user-quota: %s", text);
	return err;
}

void tenant_opt_help(FILE *out)
{
	char line[512];
	u32 i;

	fputs("\nKeys of --tenant; from clients on also of --user-quota:\n", out);
	for (i = 0; i < ARRAY_SIZE(key_table); i++) {
		/* The keys of sockets first, in the order in which they are written. */
		u32 at = (i + ARRAY_SIZE(quota_table)) % ARRAY_SIZE(key_table);
		const struct kv_opt *o = &key_table[at];

		snprintf(line, sizeof(line), o->def ? "%s (default %s)" : "%s",
			 o->help, o->def);
		kv_opts_help_entry("", o->name, o->meta, line, out);
	}
}
