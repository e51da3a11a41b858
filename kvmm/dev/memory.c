// SPDX-License-Identifier: Apache-2.0
/*
 * memory.c - how much memory there is, and how much of it is left
 *
 * Available memory is the least of the kernel's MemAvailable and the room in each
 * memory cgroup above this process, of either version.  Total memory is the least
 * of the machine's memory and of their limits; options that take a share of the
 * memory mean this total.  Pages set aside as huge ones are separate: neither
 * available nor charged to a memory cgroup.
 *
 * The files are read at start and when an extent is made; no value is kept.  All
 * paths begin with one root, so that a test can make files of its own.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "kvmm/dev/memory.h"

#define PATH_LEN	512
#define HUGE_BYTES	(2ull << 20)
#define HUGE_DIR	"/sys/kernel/mm/hugepages/hugepages-2048kB/"

/* The number after @key at the start of a line, or false. */
static bool file_number(const char *root, const char *path, const char *key,
			u64 *value)
{
	char full[2 * PATH_LEN], line[256];
	bool found = false;
	FILE *f;

	snprintf(full, sizeof(full), "%s%s", root, path);
	f = fopen(full, "re");
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
 * struct cgroup_files - file names of one version of cgroups
 * @inactive: key in memory.stat of file pages that the kernel can reclaim
 */
struct cgroup_files {
	const char *mount;
	const char *max;
	const char *used;
	const char *inactive;
};

static const struct cgroup_files cgroup_v2 = {
	.mount		= "/sys/fs/cgroup",
	.max		= "memory.max",
	.used		= "memory.current",
	.inactive	= "inactive_file",
};

static const struct cgroup_files cgroup_v1 = {
	.mount		= "/sys/fs/cgroup/memory",
	.max		= "memory.limit_in_bytes",
	.used		= "memory.usage_in_bytes",
	.inactive	= "total_inactive_file",
};

static bool cgroup_number(const char *root, const char *dir, const char *name,
			  const char *key, u64 *value)
{
	char path[PATH_LEN + 64];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return file_number(root, path, key, value);
}

/* Take into account the limit and the room of the cgroup in @dir. */
static void cgroup_room(struct memory_room *m, const char *root,
			const struct cgroup_files *f, const char *dir)
{
	u64 limit, used, inactive, room;

	if (!cgroup_number(root, dir, f->max, "", &limit) ||
	    !cgroup_number(root, dir, f->used, "", &used))
		return;
	if (cgroup_number(root, dir, "memory.stat", f->inactive, &inactive))
		used -= min(used, inactive);
	room = limit > used ? limit - used : 0;
	m->total = min(m->total, limit);
	if (room >= m->available)
		return;
	m->available = room;
	snprintf(m->group, sizeof(m->group), "%s", dir);
}

/* The cgroup @path and those above it. */
static void cgroup_walk(struct memory_room *m, const char *root,
			const struct cgroup_files *f, const char *path)
{
	char dir[PATH_LEN];
	char *slash;

	snprintf(dir, sizeof(dir), "%s%s", f->mount, path);
	while (strlen(dir) >= strlen(f->mount)) {
		cgroup_room(m, root, f, dir);
		slash = strrchr(dir, '/');
		*slash = '\0';
	}
}

static void cgroup_look(struct memory_room *m, const char *root)
{
	char line[PATH_LEN / 2];
	FILE *f;

	snprintf(line, sizeof(line), "%s/proc/self/cgroup", root);
	f = fopen(line, "re");
	if (!f)
		return;
	while (fgets(line, sizeof(line), f)) {
		const char *path = strstr(line, ":memory:");

		line[strcspn(line, "\n")] = '\0';
		if (!strncmp(line, "0::", 3))
			cgroup_walk(m, root, &cgroup_v2, line + 3);
		else if (path)
			cgroup_walk(m, root, &cgroup_v1, path + 8);
	}
	fclose(f);
}

void memory_look(struct memory_room *m, const char *root)
{
	u64 kb, nr, promised = 0;

	memset(m, 0, sizeof(*m));
	m->total = UINT64_MAX;
	m->available = UINT64_MAX;
	if (file_number(root, "/proc/meminfo", "MemTotal:", &kb))
		m->total = kb << 10;
	if (file_number(root, "/proc/meminfo", "MemAvailable:", &kb))
		m->available = kb << 10;
	cgroup_look(m, root);
	if (!file_number(root, HUGE_DIR "nr_hugepages", "", &nr))
		return;
	m->huge_total = nr * HUGE_BYTES;
	if (!file_number(root, HUGE_DIR "free_hugepages", "", &nr))
		return;
	(void)file_number(root, HUGE_DIR "resv_hugepages", "", &promised);
	m->huge_free = nr > promised ? (nr - promised) * HUGE_BYTES : 0;
}

u64 dev_memory_available(void)
{
	struct memory_room m;

	memory_look(&m, "");
	return m.available;
}

int dev_memory_admit(u64 bytes)
{
	u64 avail = dev_memory_available();

	return avail < DEV_SPARE_BYTES || avail - DEV_SPARE_BYTES < bytes ?
	       -ENOMEM : 0;
}

bool dev_memory_is_ours(int fd, u64 bytes)
{
	const int seals = fcntl(fd, F_GET_SEALS);
	struct stat st;

	return seals >= 0 && (seals & DEV_SEALS) == DEV_SEALS &&
	       !fstat(fd, &st) && (u64)st.st_size == bytes;
}
