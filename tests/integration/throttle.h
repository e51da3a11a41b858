/* SPDX-License-Identifier: Apache-2.0 */
/*
 * throttle.h - a disk as slow as a test wants it
 *
 * The first of these that works here, unless KVMM_THROTTLE names one:
 *
 *   blkio   a control group (v1) with a limit on the disk below a directory
 *   io.max  the same with v2
 *   loop    either of them, on a loop device over a file of that directory,
 *           where that lies on no disk (tmpfs, overlay)
 *   fuse    a loop device over a file that a slow FUSE server in a child of
 *           the test keeps in memory: needs no control groups
 *
 * Limits hold for this process and for those that it starts, so a test slows
 * down itself, then starts what it tests.  What is slow is transfers that
 * bypass the page cache.  All of it needs root.
 */
#ifndef TESTS_THROTTLE_H
#define TESTS_THROTTLE_H

#include <sys/types.h>

#include <kvmm/types.h>

/**
 * struct throttle - a slow disk
 * @how:    which one it is; "" for none
 * @device: block device that is slow; "" where it is the disk of the directory
 * @group:  control group, "" for none
 * @parent: what it lies in
 * @home:   where this process was before, below @parent
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
 * device of at least @bytes, to @mib MiB/s.  False, and a line says why, where
 * none can be slow.
 */
bool throttle_enter(struct throttle *t, const char *dir, u32 mib, u64 bytes);
/* As it was before; whoever used the disk must have ended. */
void throttle_leave(struct throttle *t);
/* At the end of a program: what its tests that failed left. */
void throttle_sweep(void);

/*
 * A child that serves, over /dev/fuse, the file @path of @bytes, @mib MiB/s
 * slow.  Return: its pid, 0 where that cannot be done.
 */
pid_t slow_file_serve(const char *path, u64 bytes, u32 mib);

struct shim_tally;

/**
 * struct bad_file - how a file lies
 * @tally:    shared memory: what it did, and whether it is to be honest
 * @rate:     of 1000 transfers so many
 * @delay_ms: at most
 * @room:     bytes that it has room for; 0: for all
 */
struct bad_file {
	struct shim_tally	*tally;
	u32			rate;
	u32			delay_ms;
	u64			room;
};

/* The same over a file that lies. */
pid_t bad_file_serve(const char *path, u64 bytes, const struct bad_file *bad);

/* A loop device over @path, t->device and t->loop; it goes with the latter. */
bool throttle_loop(struct throttle *t, const char *path);

#endif /* TESTS_THROTTLE_H */
