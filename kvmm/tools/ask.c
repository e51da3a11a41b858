// SPDX-License-Identifier: Apache-2.0
/*
 * ask.c - find the daemon's view socket, for the operator's programs
 */
#include <stdio.h>
#include <sysexits.h>
#include <unistd.h>

#include <kvmm/log.h>
#include <kvmm/rundir.h>

#include "kvmm/tools/ask.h"

/* Turn the path of the daemon's view socket into that of a tenant's. */
static int tenant_path(const char *tenant, char *path)
{
	char all[KV_VIEW_PATH_MAX];
	const char *slash = strrchr(path, '/');
	int n;

	memcpy(all, path, sizeof(all));
	n = snprintf(path, sizeof(all), "%.*s%s/%s",
		     slash ? (int)(slash + 1 - path) : 0, all, tenant,
		     KV_VIEW_SOCKET);
	return n < 0 || (size_t)n >= sizeof(all) ? -ENAMETOOLONG : 0;
}

int tool_view_path(const char *socket, const char *tenant,
		   char path[KV_VIEW_PATH_MAX])
{
	int err = kv_view_path(socket, path);

	if (!err && tenant)
		err = tenant_path(tenant, path);
	if (err == -EPERM) {
		pr_err("/tmp/kvmm-%u belongs to another user or is open to others: remove it, or set KVMM_RUNDIR",
		       (unsigned int)geteuid());
		return EX_NOPERM;
	}
	if (err) {
		pr_err("the path of the socket is longer than %d bytes: name a shorter one with --socket",
		       KV_VIEW_PATH_MAX - 1);
		return EX_USAGE;
	}
	return 0;
}
