// SPDX-License-Identifier: Apache-2.0
/*
 * kvctl_set.c - change what can be changed while the daemon runs
 *
 * What is set is named as the file that shows it: domain/NAME/memory.min,
 * pool/gpu0/size.  Sizes may have a unit; `max` lifts a limit.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>

#include <kvmm/admin.h>
#include <kvmm/log.h>

#include "kvmm/tools/kvctl.h"

/* The two last parts of domain/NAME/MARK.  Return: false when it is none. */
static bool split_path(const char *path, char *name, size_t len,
		       const char **mark)
{
	static const char dir[] = "domain/";
	const char *end;

	path += *path == '/';
	if (strncmp(path, dir, strlen(dir)))
		return false;
	path += strlen(dir);
	end = strrchr(path, '/');
	if (!end || end == path || !end[1] || (size_t)(end - path) >= len)
		return false;
	memcpy(name, path, (size_t)(end - path));
	name[end - path] = '\0';
	*mark = end + 1;
	return true;
}

/* The pool of pool/NAME/size; NULL: it is none. */
static const char *split_pool(const char *path, char *name, size_t len)
{
	int end = 0;

	path += *path == '/';
	if (sscanf(path, "pool/%31[^/]/size%n", name, &end) != 1 || !end ||
	    path[end] || len < 32)
		return NULL;
	return name;
}

int cmd_set(struct kvctl *k, char **argv)
{
	char name[256], req[KV_ADMIN_REQ];
	const char *mark, *pool;
	bool refused;
	u64 value;

	pool = split_pool(argv[0], name, sizeof(name));
	if (!pool && !split_path(argv[0], name, sizeof(name), &mark)) {
		pr_err("%s: cannot be set: name a file like domain/NAME/memory.max, see kvctl ls domain, or pool/gpu0/size",
		       argv[0]);
		return EX_USAGE;
	}
	if (!pool && !strcmp(argv[1], "max")) {
		value = UINT64_MAX;
	} else if (kv_parse_size(argv[1], &value)) {
		pr_err("%s: is no size: give bytes, with K, M, G or T behind%s",
		       argv[1], pool ? "" : ", or max");
		return EX_USAGE;
	}
	if (pool)
		snprintf(req, sizeof(req), "resize %" PRIu64 " %s", value,
			 pool);
	else
		snprintf(req, sizeof(req), "set %s %" PRIu64 " %s", mark, value,
			 name);
	return kvctl_ask_admin(k, req, -1, &refused);
}
