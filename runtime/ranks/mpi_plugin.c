// SPDX-License-Identifier: Apache-2.0
/*
 * mpi_plugin.c - kvrt-mpi.so, the only file that calls MPI
 */
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>

#include "runtime/ranks/mpi_plugin.h"

static MPI_Comm node = MPI_COMM_NULL;	/* ranks that share memory */
static MPI_Win window = MPI_WIN_NULL;

/* 0, or -EIO with a line about the failed @call. */
static int judge(int ret, const char *call, char *why, size_t len)
{
	char text[MPI_MAX_ERROR_STRING] = "";
	int n = 0;

	if (ret == MPI_SUCCESS)
		return 0;
	MPI_Error_string(ret, text, &n);
	snprintf(why, len, "%s failed: %.160s", call, text);
	return -EIO;
}

static int plugin_start(struct kvrt_mpi_world *w, char *why, size_t len)
{
	int ret, rank, size, on_node, level;

	ret = judge(MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level),
		    "MPI_Init_thread", why, len);
	if (ret)
		return ret;
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	ret = judge(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank,
					MPI_INFO_NULL, &node),
		    "MPI_Comm_split_type", why, len);
	if (ret)
		return ret;
	MPI_Comm_set_errhandler(node, MPI_ERRORS_RETURN);
	MPI_Comm_size(node, &on_node);
	*w = (struct kvrt_mpi_world) { .rank = rank, .size = size, .on_node = on_node };
	return 0;
}

/* The whole window belongs to the first rank; the others give no memory. */
static int plugin_window(u64 bytes, void **base, char *why, size_t len)
{
	MPI_Aint size;
	int ret, rank, unit;
	char call[96];
	void *mine;

	MPI_Comm_rank(node, &rank);
	snprintf(call, sizeof(call), "no window of %llu MB: is /dev/shm full? "
		 "MPI_Win_allocate_shared", ((unsigned long long)bytes >> 20) + 1);
	ret = judge(MPI_Win_allocate_shared(rank ? 0 : (MPI_Aint)bytes, 1, MPI_INFO_NULL,
					    node, &mine, &window),
		    call, why, len);
	if (ret)
		return ret;
	ret = judge(MPI_Win_shared_query(window, 0, &size, &unit, base),
		    "MPI_Win_shared_query", why, len);
	if (ret || rank || (u64)size >= bytes)
		return ret;
	snprintf(why, len, "the window has %llu bytes, not %llu",
		 (unsigned long long)size, (unsigned long long)bytes);
	return -EIO;
}

/* A byte for each rank and from each, so that MPI maps the memory of all now. */
static void contact_all(void)
{
	int rank, size, i;
	char out = 0, in;

	MPI_Comm_rank(node, &rank);
	MPI_Comm_size(node, &size);
	for (i = 1; i < size; i++)
		MPI_Sendrecv(&out, 1, MPI_CHAR, (rank + i) % size, 0, &in, 1, MPI_CHAR,
			     (rank + size - i) % size, 0, node, MPI_STATUS_IGNORE);
	MPI_Barrier(node);
}

/*
 * Open MPI leaves the removal of its files of shared memory to mpiexec, and they stay if
 * mpiexec is killed.  All ranks have mapped them: they need no names any more.
 */
static void remove_names(void)
{
	FILE *f = fopen("/proc/self/maps", "re");
	char line[4300], *path;

	while (f && fgets(line, sizeof(line), f)) {
		path = strchr(line, '/');
		if (!path || (!strstr(path, "/vader_segment.") && !strstr(path, "/sm_segment.")))
			continue;
		path[strcspn(path, " \n")] = '\0';
		unlink(path);
	}
	if (f)
		fclose(f);
}

static void plugin_barrier(void)
{
	contact_all();
	remove_names();
}

static void plugin_finish(void)
{
	if (window != MPI_WIN_NULL)
		MPI_Win_free(&window);
	if (node != MPI_COMM_NULL)
		MPI_Comm_free(&node);
	MPI_Finalize();
}

static void plugin_abort(int status)
{
	MPI_Abort(MPI_COMM_WORLD, status);
}

extern const struct kvrt_mpi kvrt_mpi __attribute__((visibility("default")));
const struct kvrt_mpi kvrt_mpi = {
	.version	= KVRT_MPI_VERSION,
	.start		= plugin_start,
	.window		= plugin_window,
	.barrier	= plugin_barrier,
	.finish		= plugin_finish,
	.abort		= plugin_abort,
};
