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
		n = snprintf(buf, len, KV_RUNDIR_SYSTEM);
	else
		n = snprintf(buf, len, "/tmp/kvmm-%u", (unsigned int)geteuid());
	return n < 0 || (size_t)n >= len ? -ENAMETOOLONG : 0;
}

static bool has_socket(const char *dir, const char *name)
{
	char path[256];
	struct stat st;
	const int n = snprintf(path, sizeof(path), "%s/%s", dir, name);

	return n > 0 && (size_t)n < sizeof(path) && !stat(path, &st) &&
	       S_ISSOCK(st.st_mode);
}

int kv_rundir_find(const char *system, const char *name, char *buf, size_t len)
{
	const char *env = getenv("KVMM_RUNDIR");
	int err = kv_rundir(buf, len), n;

	if (err || (env && *env) || has_socket(buf, name) || !has_socket(system, name))
		return err;
	n = snprintf(buf, len, "%s", system);
	return n < 0 || (size_t)n >= len ? -ENAMETOOLONG : 0;
}

/* Does @path name a socket of a daemon?  @len: takes the length of its directory. */
static bool socket_dir(const char *path, int *len)
{
	const char *slash = strrchr(path, '/');
	const char *name = slash ? slash + 1 : path;

	*len = (int)(name - path);
	return !strcmp(name, KV_ATTACH_SOCKET) || !strcmp(name, KV_VIEW_SOCKET) ||
	       !strcmp(name, KV_ADMIN_SOCKET);
}

int kv_rundir_socket(const char *where, const char *name, char *path, size_t len)
{
	char dir[KV_RUNDIR_MAX];
	struct stat st;
	int n, err;

	if (!where) {
		err = kv_rundir_find(KV_RUNDIR_SYSTEM, name, dir, sizeof(dir));
		if (!err)
			err = kv_rundir_trust(dir);
		if (err)
			return err;
		n = snprintf(path, len, "%s/%s", dir, name);
	} else if (!stat(where, &st) && S_ISDIR(st.st_mode)) {
		for (n = (int)strlen(where); n > 1 && where[n - 1] == '/'; n--)
			;
		n = snprintf(path, len, "%.*s/%s", n, where, name);
	} else if (socket_dir(where, &n)) {
		n = snprintf(path, len, "%.*s%s", n, where, name);
	} else {
		n = snprintf(path, len, "%s", where);
	}
	return n < 0 || (size_t)n >= len ? -ENAMETOOLONG : 0;
}

bool kv_rundir_is_system(const char *dir)
{
	const size_t n = strlen(KV_RUNDIR_SYSTEM);

	if (strncmp(dir, KV_RUNDIR_SYSTEM, n) != 0)
		return false;
	dir += n;
	return !*dir || (*dir == '-' && dir[1] &&
			 !dir[1 + strspn(dir + 1, "0123456789")]);
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
	mode_t mode = kv_rundir_is_system(dir) ? 0755 : 0700;
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
