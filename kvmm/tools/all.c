// SPDX-License-Identifier: Apache-2.0
/*
 * all.c - find the daemons of a machine that has several, one for each GPU
 *
 * Their run directories stand beside each other: the usual one, /run/kvmm, and others
 * whose names have a dash and a word behind it, like /run/kvmm-3 of kvmm@3.service.
 * In a folder that all users may write, like /tmp, only directories of this user count.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <kvmm/rundir.h>

#include "kvmm/tools/ask.h"

/* Is @name the usual directory @base, or @base-WORD? */
static bool name_fits(const char *name, const char *base)
{
	const size_t len = strlen(base);

	return !strncmp(name, base, len) &&
	       (!name[len] || (name[len] == '-' && name[len + 1]));
}

/* Does the directory have a view socket, or may this user not look? */
static bool has_daemon(const char *dir, bool shared)
{
	char path[KV_VIEW_PATH_MAX];
	struct stat st;

	if ((size_t)snprintf(path, sizeof(path), "%s/%s", dir,
			     KV_VIEW_SOCKET) >= sizeof(path))
		return false;
	if (shared && (lstat(dir, &st) || st.st_uid != geteuid()))
		return false;
	return !lstat(path, &st) ? S_ISSOCK(st.st_mode) : errno == EACCES;
}

/* Cut the name off a path.  Return: the name; @dir becomes its folder. */
static const char *split_path(char *dir)
{
	char *slash;

	while ((slash = strrchr(dir, '/')) && slash > dir && !slash[1])
		*slash = '\0';
	if (!slash)
		return NULL;
	*slash = '\0';
	return slash + 1;
}

/**
 * tool_daemons() - the run directories of daemons beside the usual one
 * @where: value of --socket: the usual one; NULL: as of all programs
 * @dirs:  takes an array of paths in the order of their numbers, to be freed with
 *         tool_daemons_free()
 *
 * Return: their number, or a negative errno.
 */
int tool_daemons(const char *where, char ***dirs)
{
	char dir[KV_VIEW_PATH_MAX], path[2 * KV_VIEW_PATH_MAX + 2];
	struct dirent **list;
	const char *base;
	struct stat st;
	int n, i, nr = 0;
	bool shared, failed = false;

	*dirs = NULL;
	if (where ? (size_t)snprintf(dir, sizeof(dir), "%s", where) >= sizeof(dir) :
		    kv_rundir_find(KV_RUNDIR_SYSTEM, KV_VIEW_SOCKET, dir,
				   sizeof(dir)))
		return -ENAMETOOLONG;
	base = split_path(dir);
	/* A socket itself was named. */
	if (base && (!strcmp(base, KV_VIEW_SOCKET) || !strcmp(base, KV_ADMIN_SOCKET) ||
		     !strcmp(base, KV_ATTACH_SOCKET)))
		base = split_path(dir);
	if (!base)
		return -EINVAL;
	n = scandir(*dir ? dir : "/", &list, NULL, versionsort);
	if (n < 0)
		return -errno;
	shared = !stat(*dir ? dir : "/", &st) && (st.st_mode & 0002);
	*dirs = calloc((size_t)n + 1, sizeof(**dirs));
	for (i = 0; i < n; i++) {
		snprintf(path, sizeof(path), "%s/%.*s", dir, KV_VIEW_PATH_MAX,
			 list[i]->d_name);
		if (*dirs && name_fits(list[i]->d_name, base) &&
		    has_daemon(path, shared))
			failed |= !((*dirs)[nr++] = strdup(path));
		free(list[i]);
	}
	free(list);
	if (*dirs && !failed)
		return nr;
	tool_daemons_free(*dirs);
	*dirs = NULL;
	return -ENOMEM;
}

void tool_daemons_free(char **dirs)
{
	char **d;

	for (d = dirs; d && *d; d++)
		free(*d);
	free(dirs);
}
