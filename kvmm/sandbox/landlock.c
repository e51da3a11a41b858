// SPDX-License-Identifier: Apache-2.0
/*
 * landlock.c - no files but those of /proc and /sys
 *
 * Landlock restricts access by name to some directories, for any user and any
 * capabilities.  The process can read files below /proc and /sys, and remove files
 * of one directory; it can open, make, execute or remove nothing else by name.
 * Open descriptors, and those that come over a socket, work as before.  TCP and
 * abstract Unix sockets of other processes are out of reach.  Programs other than
 * kvmm cannot send signals to others.  With a CUDA driver, the files of its
 * devices can be opened, too.
 *
 * The kernel also keeps a process in a Landlock domain from tracing processes
 * outside, and so from reading their mappings.
 *
 * Kernels add rights version by version; headers of Debian 12 have the second, so
 * this file defines the constants of later ones.
 */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <linux/landlock.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <kvmm/sandbox.h>

#define FS_TRUNCATE	(1ull << 14)	/* from version 3 */
#define FS_IOCTL_DEV	(1ull << 15)	/* from version 5 */
#define NET_TCP		3ull		/* bind and connect, from version 4 */
#define SCOPE_ABSTRACT	1ull		/* from version 6 */
#define SCOPE_SIGNAL	2ull		/* the same */

/* The kernel's struct landlock_ruleset_attr, with the fields of version 6. */
struct ruleset {
	u64	fs;
	u64	net;
	u64	scoped;
};

static int rule_add(int set, int dir, u64 rights)
{
	const struct landlock_path_beneath_attr a = {
		.allowed_access = rights, .parent_fd = dir,
	};

	return syscall(SYS_landlock_add_rule, set, LANDLOCK_RULE_PATH_BENEATH,
		       &a, 0) ? -errno : 0;
}

static int rule_look(int set, const char *path)
{
	const int dir = open(path, O_PATH | O_CLOEXEC);
	int err;

	/* A container may lack the directory. */
	if (dir < 0)
		return errno == ENOENT ? 0 : -errno;
	err = rule_add(set, dir, LANDLOCK_ACCESS_FS_READ_FILE |
			    LANDLOCK_ACCESS_FS_READ_DIR);
	close(dir);
	return err;
}

/* Allow devices that exist now: later ones are out of reach. */
static int rule_devices(int set, int abi)
{
	static const char * const patterns[] = {
		"/dev/nvidia*", "/dev/nvidia-caps/*",
	};
	const u64 rights = LANDLOCK_ACCESS_FS_READ_FILE |
			   LANDLOCK_ACCESS_FS_WRITE_FILE |
			   (abi >= 5 ? FS_IOCTL_DEV : 0);
	glob_t g = { .gl_pathc = 0 };
	int err = 0, fd;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(patterns); i++)
		(void)glob(patterns[i], i ? GLOB_APPEND : 0, NULL, &g);
	for (i = 0; i < g.gl_pathc && !err; i++) {
		fd = open(g.gl_pathv[i], O_PATH | O_CLOEXEC);
		if (fd < 0)
			continue;
		/* A directory does not take rights of files. */
		err = rule_add(set, fd, rights);
		if (err == -EINVAL)
			err = 0;
		close(fd);
	}
	globfree(&g);
	return err;
}

static int ruleset_make(int abi, bool signals)
{
	struct ruleset r = {
		.fs = (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1,
	};
	size_t len = sizeof(r.fs);

	if (abi >= 2)
		r.fs |= LANDLOCK_ACCESS_FS_REFER;
	if (abi >= 3)
		r.fs |= FS_TRUNCATE;
	if (abi >= 4) {
		r.net = NET_TCP;
		len += sizeof(r.net);
	}
	if (abi >= 5)
		r.fs |= FS_IOCTL_DEV;
	if (abi >= 6) {
		r.scoped = SCOPE_ABSTRACT | (signals ? 0 : SCOPE_SIGNAL);
		len += sizeof(r.scoped);
	}
	return (int)syscall(SYS_landlock_create_ruleset, &r, len, 0);
}

int sandbox_landlock(int unlinks, bool signals, bool devices)
{
	int abi, set, err;

	abi = (int)syscall(SYS_landlock_create_ruleset, NULL, 0,
			   LANDLOCK_CREATE_RULESET_VERSION);
	if (abi < 1)
		return 0;
	set = ruleset_make(abi, signals);
	if (set < 0)
		return -errno;
	err = rule_look(set, "/proc");
	if (!err)
		err = rule_look(set, "/sys");
	if (!err && devices)
		err = rule_devices(set, abi);
	if (!err && unlinks >= 0)
		err = rule_add(set, unlinks, LANDLOCK_ACCESS_FS_REMOVE_FILE);
	if (!err && syscall(SYS_landlock_restrict_self, set, 0))
		err = -errno;
	close(set);
	return err ? err : abi;
}
