// SPDX-License-Identifier: Apache-2.0
/*
 * inuse.c - find the users of a block device
 *
 * The kernel lists users in three places: /proc/self/mountinfo (by device
 * number), /proc/swaps (by path), and the device's holders directory (device
 * mapper, RAID).  The partitions of a whole disk are checked as well: writing to
 * the disk overwrites them.
 */
#include <dirent.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "swapd/inuse.h"

static bool is_mounted(dev_t rdev, char *who, size_t len)
{
	char line[4096], where[512];
	unsigned int maj, min_;
	bool found = false;
	FILE *f = fopen("/proc/self/mountinfo", "re");

	while (f && !found && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%*d %*d %u:%u %*s %511s", &maj, &min_,
			   where) != 3 || makedev(maj, min_) != rdev)
			continue;
		snprintf(who, len, "mounted on %.100s", where);
		found = true;
	}
	if (f)
		fclose(f);
	return found;
}

static bool is_swap(dev_t rdev, char *who, size_t len)
{
	char line[4096], path[1024];
	bool found = false;
	struct stat st;
	FILE *f = fopen("/proc/swaps", "re");

	while (f && !found && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%1023s", path) != 1 || stat(path, &st) ||
		    !S_ISBLK(st.st_mode) || st.st_rdev != rdev)
			continue;
		snprintf(who, len, "the system swaps to it");
		found = true;
	}
	if (f)
		fclose(f);
	return found;
}

static bool has_holders(const char *sys, char *who, size_t len)
{
	char path[512];
	struct dirent *e;
	bool found = false;
	DIR *d;

	snprintf(path, sizeof(path), "%s/holders", sys);
	d = opendir(path);
	while (d && !found && (e = readdir(d))) {
		if (e->d_name[0] == '.')
			continue;
		snprintf(who, len, "%.64s is made of it", e->d_name);
		found = true;
	}
	if (d)
		closedir(d);
	return found;
}

static bool one_in_use(dev_t rdev, const char *sys, char *who, size_t len)
{
	return is_mounted(rdev, who, len) || is_swap(rdev, who, len) ||
	       has_holders(sys, who, len);
}

/* A partition's directory lies in the disk's and has a file "partition". */
static bool partition_in_use(const char *sys, char *who, size_t len)
{
	char path[512], dir[400];
	unsigned int maj, min_;
	struct dirent *e;
	bool found = false;
	DIR *d = opendir(sys);
	FILE *f;

	while (d && !found && (e = readdir(d))) {
		snprintf(dir, sizeof(dir), "%.128s/%.200s", sys, e->d_name);
		snprintf(path, sizeof(path), "%s/partition", dir);
		if (e->d_name[0] == '.' || access(path, F_OK))
			continue;
		snprintf(path, sizeof(path), "%s/dev", dir);
		f = fopen(path, "re");
		if (f && fscanf(f, "%u:%u", &maj, &min_) == 2)
			found = one_in_use(makedev(maj, min_), dir, who, len);
		if (f)
			fclose(f);
	}
	if (d)
		closedir(d);
	return found;
}

bool device_in_use(dev_t rdev, char *who, size_t len)
{
	char sys[64];

	snprintf(sys, sizeof(sys), "/sys/dev/block/%u:%u", major(rdev),
		 minor(rdev));
	return one_in_use(rdev, sys, who, len) ||
	       partition_in_use(sys, who, len);
}
