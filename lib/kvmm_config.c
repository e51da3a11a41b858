// SPDX-License-Identifier: Apache-2.0
/*
 * kvmm_config.c - read the options of kvmm and kvmm-hold
 *
 * Both have the same table and the same sources, so kvmm without kvmm-hold has the
 * same options as under it.  Under kvmm-hold, kvmm reads only its command line:
 * kvmm-hold has read the other sources once, so a restarted kvmm has the options of
 * the first one.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <kvmm/addr.h>
#include <kvmm/area_opt.h>
#include <kvmm/domain_opt.h>
#include <kvmm/kvmm_options.h>
#include <kvmm/tenant_opt.h>

const struct kv_opt kvmm_opts[KVMM_NR_OPTS] = {
#define x(...) OPT_ENTRY(struct kvmm_options, __VA_ARGS__)
	KVMM_OPTIONS(x)
#undef x
};

const struct kv_exit kvmm_exits[KVMM_NR_EXITS] = {
#define x(_code, _text) { .code = _code, .text = _text },
	KVMM_EXITS(x)
#undef x
};

static const struct kv_opt swapd_table[] = {
#define x(...) OPT_ENTRY(struct swapd_own_options, __VA_ARGS__)
	SWAPD_OWN_OPTIONS(x)
#undef x
};

static int judge_mode(const char *s, char *text, size_t len)
{
	if (*s && strlen(s) <= 4 && strspn(s, "01234567") == strlen(s) &&
	    (strlen(s) < 4 || *s == '0'))
		return 0;
	snprintf(text, len, "--socket-mode: '%.40s' is no mode: write octal digits, as 0600",
		 s);
	return -EINVAL;
}

/* Accept the values of hostpool_numa_parse(). */
static int judge_numa(const char *s, char *text, size_t len)
{
	u64 node;

	if (!strcmp(s, "auto") || !strcmp(s, "local") ||
	    !strcmp(s, "interleave") ||
	    (!kv_parse_uint(s, &node) && node < KVMM_NUMA_NODES))
		return 0;
	snprintf(text, len, "--host-numa: '%.40s' is not one of auto, local, interleave: give one of these, or the number of a memory node",
		 s);
	return -EINVAL;
}

static int judge_metrics(const char *s, char *text, size_t len)
{
	struct kv_addr addr;

	if (!kv_addr_parse(s, &addr))
		return 0;
	snprintf(text, len, "--metrics: '%.80s' is no address: give off, a port, 127.0.0.1:PORT or [::1]:PORT, in numbers",
		 s);
	return -EINVAL;
}

/* Check values that the daemon would refuse later, without the number of the line. */
static int judge(const struct kv_opt *o, const char *s, char *text, size_t len)
{
	struct tenant_quota quota;
	struct tenant_opt tenant;
	struct domain_opt domain;
	struct area_opt area;

	if (!strcmp(o->name, "tenant"))
		return tenant_opt_parse(&tenant, s, text, len);
	if (!strcmp(o->name, "area"))
		return area_opt_parse(&area, s, text, len);
	if (!strcmp(o->name, "domain"))
		return domain_opt_parse(&domain, s, text, len);
	if (!strcmp(o->name, "user-quota"))
		return tenant_quota_parse(&quota, s, text, len);
	if (!strcmp(o->name, "host-numa"))
		return judge_numa(s, text, len);
	if (!strcmp(o->name, "metrics"))
		return judge_metrics(s, text, len);
	return strcmp(o->name, "socket-mode") ? 0 : judge_mode(s, text, len);
}

const char *kvmm_config_path(const struct kvmm_config *c, bool held, char *buf,
			     size_t len)
{
	const char *path = held ? getenv(KVMM_CONFIG_ENV) : c->file.sought;
	char *dir;

	if (!path || !*path)
		path = KV_CONFIG_NONE;
	dir = *path != '/' && strcmp(path, KV_CONFIG_NONE) != 0 ?
	      getcwd(NULL, 0) : NULL;
	snprintf(buf, len, "%s%s%s", dir ? dir : "", dir ? "/" : "", path);
	free(dir);
	return buf;
}

bool kvmm_config_live(const struct kv_opt *o)
{
	static const char * const names[] = {
#define x(type, name, opt, ...) opt,
		KVMM_TUNABLES(x)
#undef x
		"log-level", "area", "domain",
	};
	u32 i;

	for (i = 0; i < ARRAY_SIZE(names); i++)
		if (!strcmp(o->name, names[i]))
			return true;
	return false;
}

void kvmm_keys_help(FILE *out)
{
	tenant_opt_help(out);
	area_opt_help(out);
	domain_opt_help(out);
}

void kvmm_config_init(struct kvmm_config *c, struct kvmm_options *o)
{
	memset(c, 0, sizeof(*c));
	c->opt = o;
	c->section[0] = (struct kv_section){
		.name		= "kvmm",
		.about		= "The daemon.",
		.env		= "KVMM_",
		.line_only	= " config check-config arena-layout ",
		.opts		= kvmm_opts,
		.nr		= KVMM_NR_OPTS,
		.values		= o,
		.judge		= judge,
	};
	c->section[1] = (struct kv_section){
		.name		= "swapd",
		.about		= "swapd, which kvmm-hold starts. Most of these are for measuring.",
		.env		= "KVMM_SWAPD_",
		.opts		= swapd_table,
		.nr		= ARRAY_SIZE(swapd_table),
		.values		= &c->swapd,
	};
	c->file.name = KVMM_CONFIG_NAME;
	c->file.section = c->section;
	c->file.nr = ARRAY_SIZE(c->section);
	c->file.env_path = KVMM_CONFIG_ENV;
}

/* The parser reorders its arguments, so it gets a copy. */
static char **copy_of(int argc, char **argv)
{
	char **copy = calloc((size_t)argc + 1, sizeof(*copy));

	if (copy)
		memcpy(copy, argv, (size_t)argc * sizeof(*copy));
	return copy;
}

/* Read only the command line: it may name the file, or end the program. */
static int line_read(const struct kv_program *prog, struct kvmm_config *c,
		     int argc, char **argv, char *text, size_t len)
{
	struct kvmm_options *o = c->opt;
	int nr = kv_opts_parse(prog, o, argc, argv, text, len);

	if (nr < 0)
		return nr;
	if (nr > o->check_config) {
		snprintf(text, len, "'%.60s' is one argument too many: see %s --help",
			 argv[o->check_config], prog->name);
		return -EINVAL;
	}
	if (nr && o->config) {
		snprintf(text, len, "--check-config: name the file once");
		return -EINVAL;
	}
	if (nr)
		o->config = argv[0];
	return 0;
}

/* Is the part before the first comma, which is a name or a path, there twice? */
static int judge_twice(const char *name, const struct kv_list *l, char *text,
		       size_t len)
{
	u32 i, k;

	for (i = 0; i < l->nr; i++)
		for (k = 0; k < i; k++) {
			const size_t n = strcspn(l->s[i], ",");

			if (n != strcspn(l->s[k], ",") ||
			    strncmp(l->s[i], l->s[k], n))
				continue;
			snprintf(text, len, "%s: %.*s is given twice: keep one of them, with all of its keys",
				 name, (int)min(n, (size_t)80), l->s[i]);
			return -EINVAL;
		}
	return 0;
}

static int judge_lists(const struct kvmm_options *o, char *text, size_t len)
{
	int err = judge_twice("tenant", &o->tenants, text, len);

	if (!err)
		err = judge_twice("area", &o->areas, text, len);
	return err ? err : judge_twice("domain", &o->domains, text, len);
}

int kvmm_config_read(const struct kv_program *prog, struct kvmm_config *c,
		     bool held, int argc, char **argv, char *text, size_t len)
{
	struct kvmm_options *o = c->opt;
	char **copy = copy_of(argc, argv), path[4096];
	const char *asked;
	int err = copy ? 0 : -EINVAL;

	snprintf(text, len, "no memory for the options");
	if (!err)
		err = line_read(prog, c, argc, copy, text, len);
	if (!err)
		err = judge_lists(o, text, len);
	asked = err ? NULL : o->config;
	if (!err && !held && !o->arena_layout) {
		memcpy(copy, argv, (size_t)argc * sizeof(*copy));
		err = kv_config_parse(prog, &c->file, asked,
				      kv_config_default_path(KVMM_CONFIG_NAME,
							     path, sizeof(path)),
				      argc, copy, text, len);
		/* line_read() has checked the command line: the error is elsewhere. */
		err = err == -EINVAL ? -EDOM : min(err, 0);
		o->config = asked;
		/* The command line has none twice: the file or the environment has. */
		if (!err && judge_lists(o, text, len))
			err = -EBADMSG;
	}
	free(copy);
	return err;
}

const struct kv_config *kvmm_config_file(void)
{
	static struct kvmm_options o;
	static struct kvmm_config c;

	kvmm_config_init(&c, &o);
	return &c.file;
}
