// SPDX-License-Identifier: Apache-2.0
/*
 * throttle.c - a slow disk for a test
 *
 * Every resource ends with its test: a loop device is detached when its last
 * descriptor is closed, the FUSE file is unmounted as soon as the device has
 * it, and its server dies with its parent.  throttle_leave() removes a control
 * group, throttle_sweep() that of a failed test.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/integration/harness.h"
#include "tests/integration/throttle.h"

#define LEAVE_MS	20000	/* for the last transfers of a slow disk */

static const char * const group_root[] = {
	"/sys/fs/cgroup", "/sys/fs/cgroup/unified",
};

static pid_t run_id;	/* pid of the program, in the names of its tests' files */

__attribute__((constructor))
static void find_run_id(void)
{
	run_id = getpid();
}

__printf(2, 3)
static bool put_text(const char *path, const char *fmt, ...)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	char text[128];
	va_list ap;
	bool ok;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	ok = fd >= 0 && write(fd, text, (size_t)n) == n;
	if (fd >= 0)
		close(fd);
	return ok;
}

__printf(3, 4)
static bool group_put(const struct throttle *t, const char *file,
		      const char *fmt, ...)
{
	char path[256], text[128];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	snprintf(path, sizeof(path), "%s/%s", t->group, file);
	return put_text(path, "%s", text);
}

/* ---- control groups ---- */

/* Limits apply to whole disks: "MAJOR:MINOR" of the disk that has @dev. */
static bool whole_disk(dev_t dev, char *out, size_t len)
{
	static const char * const form[] = {
		"/sys/dev/block/%u:%u/../dev", "/sys/dev/block/%u:%u/dev",
	};
	char path[128];
	FILE *f = NULL;
	bool ok;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(form) && !f; i++) {
		snprintf(path, sizeof(path), form[i], major(dev), minor(dev));
		f = fopen(path, "re");
	}
	ok = f && fgets(out, (int)len, f);
	if (f)
		fclose(f);
	if (ok)
		out[strcspn(out, "\n")] = '\0';
	return ok;
}

static bool group_make(struct throttle *t, const char *parent)
{
	snprintf(t->parent, sizeof(t->parent), "%s", parent);
	snprintf(t->group, sizeof(t->group), "%s/kvt-%d", parent, run_id);
	if (!mkdir(t->group, 0755) || errno == EEXIST)
		return true;
	t->group[0] = '\0';
	return false;
}

/* Is @controller, or "" for v2, one of @list, "A,B"? */
static bool is_listed(const char *list, size_t len, const char *controller)
{
	const size_t want = strlen(controller);
	size_t at = 0, n;

	for (; at <= len; at += n + 1) {
		n = strcspn(list + at, ",:");
		if (n == want && !strncmp(list + at, controller, n))
			return true;
	}
	return false;
}

/*
 * Find the place of this process in the hierarchy mounted at @t->parent, by a
 * line "N:CONTROLLERS:PATH".  It is the root if the place is hidden or unknown.
 */
static void group_home(struct throttle *t, const char *controller)
{
	char line[512], *list, *path;
	FILE *f = fopen("/proc/self/cgroup", "re");

	snprintf(t->home, sizeof(t->home), "%s", t->parent);
	while (f && fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = '\0';
		list = strchr(line, ':');
		path = list ? strchr(list + 1, ':') : NULL;
		if (!path || !is_listed(list + 1, (size_t)(path - list - 1),
					controller))
			continue;
		snprintf(t->home, sizeof(t->home), "%s%.300s", t->parent,
			 strcmp(path + 1, "/") ? path + 1 : "");
		if (access(t->home, F_OK))
			snprintf(t->home, sizeof(t->home), "%s", t->parent);
	}
	if (f)
		fclose(f);
}

/* Remove the group, which has no process yet. */
static void group_undo(struct throttle *t)
{
	char path[192];

	rmdir(t->group);
	t->group[0] = '\0';
	snprintf(path, sizeof(path), "%s/cgroup.subtree_control", t->parent);
	if (t->enabled)
		(void)put_text(path, "-io");
	t->enabled = false;
}

static bool group_enter(struct throttle *t, const char *controller)
{
	group_home(t, controller);
	if (group_put(t, "cgroup.procs", "%d", getpid()))
		return true;
	group_undo(t);
	return false;
}

static bool limit_blkio(struct throttle *t, const char *disk, u32 mib)
{
	if (!group_make(t, "/sys/fs/cgroup/blkio"))
		return false;
	if (group_put(t, "blkio.throttle.read_bps_device", "%s %u", disk,
		      mib << 20) &&
	    group_put(t, "blkio.throttle.write_bps_device", "%s %u", disk,
		      mib << 20))
		return group_enter(t, "blkio");
	group_undo(t);
	return false;
}

static bool limit_io_max(struct throttle *t, const char *disk, u32 mib)
{
	char path[192];
	u32 i;

	for (i = 0; i < ARRAY_SIZE(group_root); i++) {
		snprintf(path, sizeof(path), "%s/cgroup.subtree_control",
			 group_root[i]);
		if (access(path, W_OK) || !group_make(t, group_root[i]))
			continue;
		snprintf(path, sizeof(path), "%s/io.max", t->group);
		if (access(path, F_OK)) {
			snprintf(path, sizeof(path),
				 "%s/cgroup.subtree_control", group_root[i]);
			t->enabled = put_text(path, "+io");
		}
		if (group_put(t, "io.max", "%s rbps=%u wbps=%u", disk,
			      mib << 20, mib << 20))
			return group_enter(t, "");
		group_undo(t);
	}
	return false;
}

static bool limit(struct throttle *t, dev_t dev, u32 mib, const char *only)
{
	char disk[32];

	if (!whole_disk(dev, disk, sizeof(disk)))
		return false;
	if ((!only || strcmp(only, "io.max")) && limit_blkio(t, disk, mib)) {
		t->how = "blkio";
		return true;
	}
	if ((!only || strcmp(only, "blkio")) && limit_io_max(t, disk, mib)) {
		t->how = "io.max";
		return true;
	}
	return false;
}

/* ---- loop devices ---- */

bool throttle_loop(struct throttle *t, const char *path)
{
	struct loop_config c = {
		.block_size = 4096,
		.info.lo_flags = LO_FLAGS_AUTOCLEAR,
	};
	int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC), n, i;
	int file = open(path, O_RDWR | O_CLOEXEC);

	t->loop = -1;
	c.fd = (u32)file;
	for (i = 0; i < 20 && control >= 0 && file >= 0 && t->loop < 0; i++) {
		n = ioctl(control, LOOP_CTL_GET_FREE);
		snprintf(t->device, sizeof(t->device), "/dev/loop%d", n);
		t->loop = n < 0 ? -1 : open(t->device, O_RDWR | O_CLOEXEC);
		if (t->loop < 0)
			break;
		/* Other processes look for a free device, too. */
		if (ioctl(t->loop, LOOP_CONFIGURE, &c)) {
			close(t->loop);
			t->loop = -1;
			if (errno != EBUSY)
				break;
		}
	}
	if (control >= 0)
		close(control);
	if (file >= 0)
		close(file);
	if (t->loop < 0)
		t->device[0] = '\0';
	return t->loop >= 0;
}

/* Make an empty file of @bytes; its name in @path. */
static bool file_make(const char *dir, u64 bytes, char *path, size_t len)
{
	int fd;
	bool ok;

	snprintf(path, len, "%.200s/slow-disk", dir);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	ok = fd >= 0 && !ftruncate(fd, (off_t)bytes);
	if (fd >= 0)
		close(fd);
	return ok;
}

static bool enter_loop(struct throttle *t, const char *dir, u32 mib, u64 bytes)
{
	char path[256];
	struct stat st;

	if (!file_make(dir, bytes, path, sizeof(path)) || !throttle_loop(t, path))
		return false;
	if (!fstat(t->loop, &st) && limit(t, st.st_rdev, mib, NULL)) {
		t->how = "loop";
		return true;
	}
	close(t->loop);
	t->loop = -1;
	t->device[0] = '\0';
	return false;
}

static bool enter_fuse(struct throttle *t, const char *dir, u32 mib, u64 bytes)
{
	char path[256];

	if (!file_make(dir, 0, path, sizeof(path)))
		return false;
	t->server = slow_file_serve(path, bytes, mib);
	if (!t->server)
		return false;
	if (throttle_loop(t, path))
		t->how = "fuse";
	/* The loop device keeps the file open. */
	umount2(path, MNT_DETACH);
	if (t->loop >= 0)
		return true;
	kill(t->server, SIGKILL);
	waitpid(t->server, NULL, 0);
	t->server = 0;
	return false;
}

/* ---- either way ---- */

bool throttle_enter(struct throttle *t, const char *dir, u32 mib, u64 bytes)
{
	const char *only = getenv("KVMM_THROTTLE");
	struct stat st;

	memset(t, 0, sizeof(*t));
	t->how = "";
	t->loop = -1;
	if (only && !*only)
		only = NULL;
	if (geteuid()) {
		printf("note: a slow disk is not tried: only root may have one\n");
		return false;
	}
	if ((!only || !strcmp(only, "blkio") || !strcmp(only, "io.max")) &&
	    !stat(dir, &st) && limit(t, st.st_dev, mib, only))
		return true;
	if ((!only || !strcmp(only, "loop")) &&
	    enter_loop(t, dir, mib, bytes))
		return true;
	if ((!only || !strcmp(only, "fuse")) &&
	    enter_fuse(t, dir, mib, bytes))
		return true;
	if (only)
		printf("note: a slow disk is not tried: KVMM_THROTTLE=%s cannot be had here\n",
		       only);
	else
		printf("note: a slow disk is not tried: here are neither control groups with I/O limits nor loop devices and FUSE\n");
	return false;
}

static void group_leave(struct throttle *t)
{
	const u64 end = now_ms() + LEAVE_MS;
	char path[sizeof(t->home) + 32];

	snprintf(path, sizeof(path), "%s/cgroup.procs", t->home);
	ck_assert_msg(put_text(path, "%d", getpid()), "%s: %s", path,
		      strerror(errno));
	/* A killed member leaves the group when its transfers are over. */
	while (rmdir(t->group)) {
		ck_assert_msg(errno == EBUSY && now_ms() < end, "%s is left: %s",
			      t->group, strerror(errno));
		nap_ms(20);
	}
	snprintf(path, sizeof(path), "%s/cgroup.subtree_control", t->parent);
	if (t->enabled)
		(void)put_text(path, "-io");
}

void throttle_leave(struct throttle *t)
{
	if (t->group[0])
		group_leave(t);
	if (t->loop >= 0)
		close(t->loop);
	if (t->server) {
		/* The server ends when the loop device has closed its file. */
		nap_ms(50);
		kill(t->server, SIGKILL);
		waitpid(t->server, NULL, 0);
	}
	t->how = "";
	t->loop = -1;
	t->server = 0;
	t->group[0] = '\0';
	t->device[0] = '\0';
}

void throttle_sweep(void)
{
	static const char * const parent[] = {
		"/sys/fs/cgroup/blkio", "/sys/fs/cgroup",
		"/sys/fs/cgroup/unified",
	};
	char path[128];
	u32 i, n;

	for (i = 0; i < ARRAY_SIZE(parent); i++) {
		snprintf(path, sizeof(path), "%s/kvt-%d", parent[i], run_id);
		for (n = 0; n < 100 && rmdir(path) && errno == EBUSY; n++)
			nap_ms(20);
	}
}
