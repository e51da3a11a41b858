/* SPDX-License-Identifier: Apache-2.0 */
/*
 * throttle.h - a slow disk for a test
 *
 * The first of these ways that works here, unless KVMM_THROTTLE names one:
 *
 *   blkio   a control group (v1) with a limit on the disk below a directory
 *   io.max  the same with v2
 *   loop    either of them, on a loop device over a file of that directory,
 *           if the directory is not on a disk (tmpfs, overlay)
 *   fuse    a loop device over a file that a slow FUSE server in a child of
 *           the test keeps in memory: needs no control groups
 *
 * Limits apply to this process and to its later children, so a test slows
 * itself down, then starts the programs.  Only transfers that bypass the page
 * cache are slow.  All of it needs root.
 */
#ifndef TESTS_THROTTLE_H
#define TESTS_THROTTLE_H

#include <sys/types.h>

#include <kvmm/types.h>

/**
 * struct throttle - a slow disk
 * @how:    the way in use; "" for none
 * @device: slow block device; "" for the disk of the directory
 * @group:  control group, "" for none
 * @parent: directory of the group
 * @home:   earlier group of this process, below @parent
 * @enabled: io was switched on in @parent for it
 * @loop:   keeps the loop device; -1 for none
 * @server: of FUSE; 0 for none
 */
struct throttle {
	const char	*how;
	char		device[64];
	char		group[128];
	char		parent[64];
	char		home[384];
	bool		enabled;
	int		loop;
	pid_t		server;
};

/*
 * Slow down transfers of this process from and to the disk below @dir, or of a
 * device of at least @bytes, to @mib MiB/s.  Return: false, after a line with
 * the reason, if none can be slow.
 */
bool throttle_enter(struct throttle *t, const char *dir, u32 mib, u64 bytes);
/* Undo it; all programs that used the disk must have ended. */
void throttle_leave(struct throttle *t);
/* At the end of a program: remove the groups of its failed tests. */
void throttle_sweep(void);

/*
 * Start a child that serves, over /dev/fuse, the file @path of @bytes with @mib
 * MiB/s.  Return: its pid, 0 if that is impossible.
 */
pid_t slow_file_serve(const char *path, u64 bytes, u32 mib);

struct shim_tally;

/**
 * struct bad_file - ways in which a file lies
 * @tally:    shared memory: faults made, and whether to be honest
 * @rate:     transfers of 1000 with a fault
 * @delay_ms: longest delay
 * @room:     bytes that fit; 0: all
 */
struct bad_file {
	struct shim_tally	*tally;
	u32			rate;
	u32			delay_ms;
	u64			room;
};

/* The same with a file that lies. */
pid_t bad_file_serve(const char *path, u64 bytes, const struct bad_file *bad);

/* Make a loop device over @path: t->device and t->loop; it ends with the latter. */
bool throttle_loop(struct throttle *t, const char *path);

#endif /* TESTS_THROTTLE_H */
