/* SPDX-License-Identifier: Apache-2.0 */
/*
 * census.h - resources that the processes of a rig hold
 *
 * Two censuses, taken at two quiet moments, show the remains of a dead process:
 * processes, descriptors, memory, mounts, files of the run directory.
 */
#ifndef TESTS_CENSUS_H
#define TESTS_CENSUS_H

#include "tests/integration/harness.h"

#define CENSUS_PROCS	16
#define CENSUS_MEMFDS	1024

/**
 * struct census - resources of a rig at one moment
 * @proc:        every process with the rig's KVMM_RUNDIR, by name and age
 * @proc.fds:    its open descriptors
 * @proc.threads: its threads, without the kernel's workers of its io_uring
 * @proc.shared: KiB of memfds that it maps, without kvmm's mappings for its copier
 * @proc.shmem:  KiB of these that it has touched
 * @proc.anon:   KiB of its private memory
 * @children:    of hold, with those that it has not waited for
 * @memfd:       inode numbers of all memfds that a process has open or mapped
 * @memfd_kib:   memory of those that a process has open
 * @mounts:      mounts of hold that name the rig or kvmm
 * @files:       names in the run directory except those of jobs
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
/* The process @pid of the census, which must be there. */
const struct census_proc *census_proc(const struct census *c, pid_t pid);
/*
 * Does @now hold more than @was?  @why gets the first difference in words, @len
 * bytes at most.  The private memory of a process may grow a little, by caches
 * of its allocator.
 */
bool census_grew(const struct census *was, const struct census *now, char *why,
		 size_t len);
/* The descriptors of a process, one a line; to be freed. */
char *census_fds(pid_t pid);

#endif /* TESTS_CENSUS_H */
