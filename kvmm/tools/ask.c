// SPDX-License-Identifier: Apache-2.0
/*
 * ask.c - find the daemon's view socket, for the operator's programs
 */
#include <grp.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include <kvmm/log.h>
#include <kvmm/rundir.h>

#include "kvmm/tools/ask.h"

/* The name or the number of group @gid. */
static const char *group_name(gid_t gid, char *buf, size_t len)
{
	const struct group *gr = getgrgid(gid);

	snprintf(buf, len, "%u", (unsigned int)gid);
	if (gr)
		snprintf(buf, len, "%s", gr->gr_name);
	return buf;
}

void tool_refused(const char *path, bool changes, char *text, size_t len)
{
	struct stat st;
	char group[64];

	if (stat(path, &st))
		snprintf(text, len, "%s: only the owner of the directory may enter it: name another directory with --socket",
			 path);
	else if (changes && (st.st_mode & 0020))
		snprintf(text, len, "%s: a daemon runs here; you may not change it: join group %s",
			 path, group_name(st.st_gid, group, sizeof(group)));
	else
		snprintf(text, len, "%s: a daemon runs here; only root and the daemon's own user may %s it: its option --%s-group gives a group the right",
			 path, changes ? "change" : "ask", changes ? "admin" : "read");
}

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
