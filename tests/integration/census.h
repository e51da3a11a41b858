/* SPDX-License-Identifier: Apache-2.0 */
/*
 * census.h - what the processes of a rig hold
 *
 * Taken at two quiet moments and compared, it shows what a death left behind:
 * processes, descriptors, memory, mounts, files of the run directory.
 */
#ifndef TESTS_CENSUS_H
#define TESTS_CENSUS_H

#include "tests/integration/harness.h"

#define CENSUS_PROCS	16
#define CENSUS_MEMFDS	1024

/**
 * struct census - what is there
 * @proc:        every process with the rig's KVMM_RUNDIR, by name and age
 * @proc.fds:    descriptors it has open
 * @proc.threads: of it, without those that the kernel lends it for io_uring
 * @proc.shared: KiB of memfds that it maps
 * @proc.shmem:  KiB of these that it has touched
 * @proc.anon:   KiB of its own memory
 * @children:    of hold, those that it did not wait for too
 * @memfd:       inode numbers of all memfds that one has open or mapped
 * @memfd_kib:   memory of those that one has open
 * @mounts:      mounts of hold that name the rig or kvmm
 * @files:       names in the run directory but for those of jobs
 */
struct census {
	u32	nr_procs;
	struct census_proc {
		pid_t	pid;
		char	comm[16];
		u32	fds;
		u32	threads;
		u64	shared;
		u64	shmem;
		u64	anon;
	} proc[CENSUS_PROCS];
	u32	children;
	u32	nr_memfds;
	u64	memfd[CENSUS_MEMFDS];
	u64	memfd_kib;
	u32	mounts;
	char	files[1024];
};

void census_take(struct census *c, struct rig *r);
/* One process of it, which must be there. */
const struct census_proc *census_proc(const struct census *c, pid_t pid);
/*
 * Is there more in @now than there was in @was?  @why gets @len bytes of what,
 * in words.  Memory may grow by what a process may have cached meanwhile.
 */
bool census_grew(const struct census *was, const struct census *now, char *why,
		 size_t len);
/* The descriptors of a process, a line each, to be freed. */
char *census_fds(pid_t pid);

#endif /* TESTS_CENSUS_H */
