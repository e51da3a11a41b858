// SPDX-License-Identifier: Apache-2.0
/*
 * rundir.c - the default directory of the sockets
 *
 * The daemon and its clients must find the same directory in the same environment,
 * so all of them call these functions.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <kvmm/rundir.h>

int kv_rundir(char *buf, size_t len)
{
	const char *env = getenv("KVMM_RUNDIR");
	int n;

	if (env && *env)
		n = snprintf(buf, len, "%s", env);
	else if ((env = getenv("XDG_RUNTIME_DIR")) && *env)
		n = snprintf(buf, len, "%s/kvmm", env);
	else if (!geteuid())
		n = snprintf(buf, len, "/run/kvmm");
	else
		n = snprintf(buf, len, "/tmp/kvmm-%u", (unsigned int)geteuid());
	return n < 0 || (size_t)n >= len ? -ENAMETOOLONG : 0;
}

/* Check a directory in /tmp: another user may have made one of that name. */
static int judge_shared(const char *dir)
{
	struct stat st;

	if (lstat(dir, &st))
		return -errno;
	if (!S_ISDIR(st.st_mode))
		return -ENOTDIR;
	return st.st_uid != geteuid() || (st.st_mode & 0077) ? -EPERM : 0;
}

int kv_rundir_make(const char *dir)
{
	bool shared = !strncmp(dir, "/tmp/kvmm-", 10);
	mode_t mode = !strcmp(dir, "/run/kvmm") ? 0755 : 0700;
	struct stat st;

	if (mkdir(dir, 0700) == 0)
		return chmod(dir, mode) ? -errno : 0;
	if (errno != EEXIST)
		return -errno;
	if (shared)
		return judge_shared(dir);
	return stat(dir, &st) ? -errno : S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
}

int kv_rundir_trust(const char *dir)
{
	char ours[32];
	int err;

	snprintf(ours, sizeof(ours), "/tmp/kvmm-%u", (unsigned int)geteuid());
	if (strcmp(dir, ours))
		return 0;
	err = judge_shared(dir);
	return err && err != -ENOENT ? -EPERM : 0;
}
