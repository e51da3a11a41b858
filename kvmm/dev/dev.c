// SPDX-License-Identifier: Apache-2.0
/*
 * dev.c - which backend, and how much memory there is
 *
 * Which backend was taken, and why, is one line in the log.  There is one so
 * far, so there is nothing to look for.
 *
 * The memory that can still be had is the least of what the kernel calls
 * available and what each memory cgroup above this process leaves.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <kvmm/kvmm_options.h>

#include "kvmm/dev/dev.h"

#define CGROUP_ROOT	"/sys/fs/cgroup"
#define PATH_LEN	512

const struct kvmm_dev_ops *dev_select(u32 backend, char *why, size_t len)
{
	snprintf(why, len, "host backend: blocks in host memory%s",
		 backend == KVMM_BACKEND_HOST ? "" :
		 " (this version has no CUDA backend)");
	return &host_dev_ops;
}

/* The number after @key at the start of a line, or false. */
static bool file_number(const char *path, const char *key, u64 *value)
{
	char line[256];
	FILE *f = fopen(path, "re");
	bool found = false;

	if (!f)
		return false;
	while (!found && fgets(line, sizeof(line), f)) {
		if (strncmp(line, key, strlen(key)))
			continue;
		found = sscanf(line + strlen(key), " %" SCNu64, value) == 1;
		if (!found)
			break;
	}
	fclose(f);
	return found;
}

/**
 * struct cgroup_files - how one version of cgroups spells it
 * @inactive: key in memory.stat of file pages that go when memory is needed
 */
struct cgroup_files {
	const char *root;
	const char *max;
	const char *used;
	const char *inactive;
};

static const struct cgroup_files cgroup_v2 = {
	.root		= CGROUP_ROOT,
	.max		= "memory.max",
	.used		= "memory.current",
	.inactive	= "inactive_file",
};

static const struct cgroup_files cgroup_v1 = {
	.root		= CGROUP_ROOT "/memory",
	.max		= "memory.limit_in_bytes",
	.used		= "memory.usage_in_bytes",
	.inactive	= "total_inactive_file",
};

static bool cgroup_number(const char *dir, const char *name, const char *key,
			  u64 *value)
{
	char path[PATH_LEN + 64];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return file_number(path, key, value);
}

/* What the cgroup in @dir leaves; UINT64_MAX when it sets no limit. */
static u64 cgroup_room(const struct cgroup_files *f, const char *dir)
{
	u64 limit, used, inactive;

	if (!cgroup_number(dir, f->max, "", &limit) ||
	    !cgroup_number(dir, f->used, "", &used))
		return UINT64_MAX;
	if (cgroup_number(dir, "memory.stat", f->inactive, &inactive))
		used -= min(used, inactive);
	return limit > used ? limit - used : 0;
}

/* The least that the cgroup @path and those above it leave. */
static u64 cgroup_walk(const struct cgroup_files *f, const char *path)
{
	char dir[PATH_LEN];
	u64 room = UINT64_MAX;
	char *slash;

	snprintf(dir, sizeof(dir), "%s%s", f->root, path);
	while (strlen(dir) >= strlen(f->root)) {
		room = min(room, cgroup_room(f, dir));
		slash = strrchr(dir, '/');
		*slash = '\0';
	}
	return room;
}

static u64 cgroup_available(void)
{
	char line[PATH_LEN / 2];
	u64 room = UINT64_MAX;
	FILE *f = fopen("/proc/self/cgroup", "re");

	if (!f)
		return room;
	while (fgets(line, sizeof(line), f)) {
		const char *path = strstr(line, ":memory:");

		line[strcspn(line, "\n")] = '\0';
		if (!strncmp(line, "0::", 3))
			room = min(room, cgroup_walk(&cgroup_v2, line + 3));
		else if (path)
			room = min(room, cgroup_walk(&cgroup_v1, path + 8));
	}
	fclose(f);
	return room;
}

u64 dev_memory_available(void)
{
	u64 kb, avail = UINT64_MAX;

	if (file_number("/proc/meminfo", "MemAvailable:", &kb))
		avail = kb << 10;
	return min(avail, cgroup_available());
}

int dev_memory_admit(u64 bytes)
{
	u64 avail = dev_memory_available();

	return avail < DEV_SPARE_BYTES || avail - DEV_SPARE_BYTES < bytes ?
	       -ENOMEM : 0;
}
