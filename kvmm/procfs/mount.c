// SPDX-License-Identifier: Apache-2.0
/*
 * mount.c - making and removing the mount
 *
 * A mount outlives its server; each access to it fails with ENOTCONN then.  So a
 * left-over mount is removed before a new one is made, and when the daemon ends.
 * It is detached at once, even if a process has files of it open.  No function
 * opens the mount point itself, which might hang: /proc/self/mountinfo says
 * whether it is mounted.
 */
#define FUSE_USE_VERSION 31
#include <fuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kvmm/log.h>

#include "kvmm/procfs/procfs.h"

#define LAYERS_MAX	16	/* mounts on top of each other */

/* The kernel escapes these four bytes in mountinfo, and no other. */
static void mount_escape(struct seq_file *m, const char *path)
{
	for (; *path; path++) {
		if (strchr(" \t\n\\", *path))
			seq_printf(m, "\\%03o", (u8)*path);
		else
			seq_putc(m, *path);
	}
}

/*
 * Is a file system mounted at @path?
 * Return: 0: none; 1: one of kvmm-proc; -EBUSY: another one.
 */
static int mounted(const char *path)
{
	struct seq_file want;
	char *line = NULL, *type;
	char at[PF_PATH];
	size_t room = 0;
	int found = 0;
	FILE *f;

	f = fopen("/proc/self/mountinfo", "re");
	if (!f)
		return -errno;
	seq_init(&want, 4 * PF_PATH);
	mount_escape(&want, path);
	while (getline(&line, &room, f) > 0) {
		if (sscanf(line, "%*d %*d %*s %*s %4095s", at) != 1 ||
		    strcmp(at, seq_text(&want)))
			continue;
		/* The last mount in the list lies on top. */
		type = strstr(line, " - ");
		found = type && !strncmp(type + 3, PF_FSTYPE " ",
					 strlen(PF_FSTYPE) + 1) ? 1 : -EBUSY;
	}
	free(line);
	fclose(f);
	seq_free(&want);
	return found;
}

/* Unmount as a user that is not root.  Return: whether it worked. */
static bool by_fusermount(const char *path)
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		execlp("fusermount3", "fusermount3", "-u", "-z", "-q", path,
		       (char *)NULL);
		_exit(127);
	}
	return pid > 0 && waitpid(pid, &status, 0) == pid && !status;
}

int pf_clean(const struct procfs *pf)
{
	int is, i;

	for (i = 0; i < LAYERS_MAX; i++) {
		is = mounted(pf->mount);
		if (!is)
			return 0;
		if (is < 0) {
			pr_err("%s: %s", pf->mount, is == -EBUSY ?
			       "something else is mounted there: unmount it" :
			       strerror(-is));
			return is;
		}
		if (umount2(pf->mount, MNT_DETACH | UMOUNT_NOFOLLOW) &&
		    !(geteuid() && by_fusermount(pf->mount))) {
			pr_err("%s: an old mount stays: %s: umount -l it",
			       pf->mount, strerror(errno));
			return -EBUSY;
		}
	}
	return -EBUSY;
}

int pf_mount(const struct procfs *pf, struct fuse *fuse)
{
	struct stat st;

	if (access("/dev/fuse", F_OK)) {
		pr_info("no /dev/fuse here, so no files in %s: kvctl reads them, kvmm-proc --snapshot copies them",
			pf->mount);
		return -ENODEV;
	}
	if (mkdir(pf->mount, 0555) && errno != EEXIST) {
		pr_err("%s: cannot be made: %s", pf->mount, strerror(errno));
		return -EIO;
	}
	/* In a directory like /tmp another user may have made it first. */
	if (lstat(pf->mount, &st) || !S_ISDIR(st.st_mode) ||
	    st.st_uid != geteuid()) {
		pr_err("%s: is no directory of its own: remove it",
		       pf->mount);
		return -EPERM;
	}
	if (!fuse_mount(fuse, pf->mount))
		return 0;
	pr_warn("%s: cannot be mounted: kvctl reads the files, kvmm-proc --snapshot copies them; a container needs CAP_SYS_ADMIN and /dev/fuse, who is not root fusermount3",
		pf->mount);
	(void)rmdir(pf->mount);
	return -EPERM;
}

int pf_unmount(const struct procfs *pf)
{
	int err = pf_clean(pf);

	if (!err && rmdir(pf->mount) && errno != ENOENT)
		pr_debug("%s: stays: %s", pf->mount, strerror(errno));
	return err;
}
