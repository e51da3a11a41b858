// SPDX-License-Identifier: Apache-2.0
/*
 * mpi.c - load the MPI plugin, and open a group of processes
 */
#include <dlfcn.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/ranks/internal.h"

/* Where the plugin may lie, seen from the folder of the program. */
static const char *const places[] = {
	"lib", "../lib", "../lib/kvmm", "../lib64/kvmm", "../lib/*/kvmm",
};

/* Length of the folder of this program in @path, or 0. */
static size_t own_folder(char *path, size_t len)
{
	const ssize_t n = readlink("/proc/self/exe", path, len - 1);
	char *end;

	path[n > 0 ? n : 0] = '\0';
	end = strrchr(path, '/');
	return end ? (size_t)(end - path) : 0;
}

static int find_plugin(char *path, size_t len)
{
	const char *set = getenv("KVRT_MPI_PLUGIN");
	char self[4096], pattern[4200];
	const size_t n = own_folder(self, sizeof(self));
	glob_t found;
	size_t i;

	if (set) {
		snprintf(path, len, "%s", set);
		return access(set, R_OK) ? -ENOENT : 0;
	}
	for (i = 0; n && i < ARRAY_SIZE(places); i++) {
		snprintf(pattern, sizeof(pattern), "%.*s/%s/kvrt-mpi.so", (int)n, self, places[i]);
		if (glob(pattern, 0, NULL, &found))
			continue;
		snprintf(path, len, "%s", found.gl_pathv[0]);
		globfree(&found);
		return 0;
	}
	return -ENOENT;
}

/*
 * Open MPI loads plugins of its own, which are linked to its libraries, so nothing of MPI
 * has to be visible to kvrt.
 */
static int load_plugin(const struct kvrt_mpi **out, char *why, size_t len)
{
	char path[4200];
	const struct kvrt_mpi *mpi;
	void *so;

	if (find_plugin(path, sizeof(path))) {
		snprintf(why, len, "kvrt-mpi.so is missing: install libopenmpi-dev (or another MPI "
			 "with mpicc) and build kvmm again");
		return -ENOENT;
	}
	so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	mpi = so ? dlsym(so, KVRT_MPI_SYMBOL) : NULL;
	if (!mpi) {
		snprintf(why, len, "cannot load the MPI plugin: %s", dlerror());
		return -ENOENT;
	}
	if (mpi->version != KVRT_MPI_VERSION) {
		snprintf(why, len, "%s is of another build of kvmm: build or install both again",
			 path);
		return -ENOENT;
	}
	*out = mpi;
	return 0;
}

static int check_world(const struct ranks_opts *o, const struct kvrt_mpi_world *w, char *why,
		       size_t len)
{
	if (w->size != o->nr) {
		snprintf(why, len, "%u ranks are wanted, and MPI started %u: use mpiexec -n %u, "
			 "or srun --mpi=pmix -n %u", o->nr, w->size, o->nr, o->nr);
		return -EINVAL;
	}
	if (w->on_node != w->size) {
		snprintf(why, len, "the %u ranks are on several nodes, and %u of them on this one: "
			 "all ranks of a group must be on one node", w->size, w->on_node);
		return -EXDEV;
	}
	return 0;
}

/* All ranks compare all options, so that they agree. */
static int check_opts(struct ranks *r, const struct ranks_opts *o, char *why, size_t len)
{
	u64 all[RANKS_MAX];
	u32 i;
	int ret = ranks_gather(r, &o->room, sizeof(o->room), all);

	if (ret) {
		snprintf(why, len, "%s", ranks_failure(r));
		return ret;
	}
	for (i = 1; i < r->nr; i++) {
		if (all[i] == all[0])
			continue;
		snprintf(why, len, "rank %u wants a room of %llu bytes, rank 0 of %llu", i,
			 (unsigned long long)all[i], (unsigned long long)all[0]);
		return -EINVAL;
	}
	return 0;
}

static int make_view(const struct kvrt_mpi *mpi, const struct ranks_opts *o, u32 self,
		     struct ranks **out, char *why, size_t len)
{
	struct ranks *r;
	void *base;
	int ret = mpi->window(ranks_window_bytes(o->nr, o->room) + RANKS_LINE, &base, why, len);

	if (ret)
		return ret;
	/* Pages begin at the same byte in all ranks, so the lines do too. */
	base = (void *)ALIGN_UP((uintptr_t)base, (uintptr_t)RANKS_LINE);
	if (!self)
		ranks_window_init(base, o->nr, o->room);
	mpi->barrier();
	r = ranks_view(base, self, o->timeout_ms);
	if (!r) {
		snprintf(why, len, "out of memory");
		return -ENOMEM;
	}
	r->mpi = mpi;
	ret = check_opts(r, o, why, len);
	if (ret) {
		ranks_view_free(r);
		return ret;
	}
	ranks_meet(r);
	*out = r;
	return 0;
}

int ranks_open(const struct ranks_opts *o, struct ranks **out, char *why, size_t len)
{
	struct kvrt_mpi_world world;
	const struct kvrt_mpi *mpi;
	int ret;

	if (o->nr < 2 || o->nr > RANKS_MAX || !o->timeout_ms || o->room > 1ull << 40) {
		snprintf(why, len, "a group has 2 to %u ranks, not %u", RANKS_MAX, o->nr);
		return -EINVAL;
	}
	parent_find();
	ret = load_plugin(&mpi, why, len);
	if (ret)
		return ret;
	if (!ranks_launched()) {
		snprintf(why, len, "no launcher started this process: use mpiexec -n %u", o->nr);
		return -ESRCH;
	}
	ret = mpi->start(&world, why, len);
	if (ret)
		return ret;
	ret = check_world(o, &world, why, len);
	if (!ret)
		parent_tell(world.rank);
	if (!ret)
		ret = make_view(mpi, o, world.rank, out, why, len);
	if (!ret)
		parent_joined();
	/* All ranks have found the same, and end MPI together. */
	if (ret == -EINVAL || ret == -EXDEV)
		mpi->finish();
	return ret;
}
