/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mpi_plugin.h - the calls of MPI that kvrt needs
 *
 * MPI has no common ABI.  So the calls of MPI are in kvrt-mpi.so, which mpicc compiles, and
 * kvrt loads it only for a group.  kvrt and the plugin are of one build.
 */
#ifndef RUNTIME_RANKS_MPI_PLUGIN_H
#define RUNTIME_RANKS_MPI_PLUGIN_H

#include <kvmm/types.h>

#define KVRT_MPI_VERSION	1u
#define KVRT_MPI_SYMBOL		"kvrt_mpi"

/**
 * struct kvrt_mpi_world - the processes that MPI started
 * @rank:	number of this process
 * @size:	number of all
 * @on_node:	number of those that can share memory with this one
 */
struct kvrt_mpi_world {
	u32	rank;
	u32	size;
	u32	on_node;
};

/**
 * struct kvrt_mpi - calls of the plugin; each is called by the thread that called @start
 * @version:	KVRT_MPI_VERSION
 * @start:	starts MPI
 * @window:	makes a window of @bytes that all ranks share; all call it
 * @barrier:	waits for all ranks, without a bound
 * @finish:	frees the window and ends MPI; all call it
 * @abort:	ends all ranks; does not return
 *
 * Those with @why return 0, or -EIO with one line.
 */
struct kvrt_mpi {
	u32	version;
	int	(*start)(struct kvrt_mpi_world *w, char *why, size_t len);
	int	(*window)(u64 bytes, void **base, char *why, size_t len);
	void	(*barrier)(void);
	void	(*finish)(void);
	void	(*abort)(int status);
};

#endif /* RUNTIME_RANKS_MPI_PLUGIN_H */
