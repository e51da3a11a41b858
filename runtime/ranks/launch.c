// SPDX-License-Identifier: Apache-2.0
/*
 * launch.c - start the ranks of a group
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/ranks/internal.h"

/* Variables of launchers that have the number of ranks. */
static const char *const sizes[] = { "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS" };
/* Others, that are set for a rank alone. */
static const char *const marks[] = { "PMIX_RANK", "PMI_RANK" };

/*
 * For a rank of Open MPI: root may start it, and a machine with fewer cores than ranks.
 * Other MPIs ignore these.  A variable that is set stays as it is.
 */
static const char *const settings[][2] = {
	{ "OMPI_ALLOW_RUN_AS_ROOT", "1" },
	{ "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1" },
	{ "OMPI_MCA_rmaps_base_oversubscribe", "1" },
	{ "OMPI_MCA_hwloc_base_binding_policy", "none" },
	{ "PRTE_ALLOW_RUN_AS_ROOT", "1" },
	{ "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM", "1" },
	{ "PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe" },
	{ "PRTE_MCA_hwloc_default_binding_policy", "none" },
	/* The line of kvrt says why a group ends; mpiexec adds a page to it. */
	{ "OMPI_MCA_orte_execute_quiet", "1" },
	/* Ranks end by themselves, and say why. */
	{ "OMPI_MCA_orte_enable_recovery", "1" },
};

static u32 number(const char *name)
{
	const char *text = getenv(name);
	const unsigned long n = text ? strtoul(text, NULL, 10) : 0;

	return n > UINT32_MAX ? UINT32_MAX : (u32)n;
}

u32 ranks_launched(void)
{
	u32 n;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		n = number(sizes[i]);
		if (n)
			return n;
	}
	for (i = 0; i < ARRAY_SIZE(marks); i++)
		if (getenv(marks[i]))
			return 1;
	/* A shell that srun --pty started is a step of one task, and no rank. */
	n = getenv("SLURM_PROCID") ? number("SLURM_STEP_NUM_TASKS") : 0;
	return n > 1 ? n : 0;
}

bool ranks_launched_first(void)
{
	static const char *const names[] = {
		"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID",
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(names); i++)
		if (getenv(names[i]))
			return !number(names[i]);
	return true;
}

static u32 count_args(char **argv)
{
	u32 n = 0;

	while (argv[n])
		n++;
	return n;
}

/* Returns only a failure. */
static int run_mpiexec(u32 nr, char *self, char **argv)
{
	const u32 args = count_args(argv);
	char **line = calloc(args + 5, sizeof(*line)), count[12];
	int ret;
	u32 i;

	if (!line)
		return -ENOMEM;
	snprintf(count, sizeof(count), "%u", nr);
	line[0] = (char *)"mpiexec";
	line[1] = (char *)"-n";
	line[2] = count;
	line[3] = self;
	for (i = 1; i < args; i++)
		line[3 + i] = argv[i];
	ret = parent_run(nr, line);
	free(line);
	return ret;
}

int ranks_launch(u32 nr, char **argv, char *why, size_t len)
{
	char self[4096];
	ssize_t n;
	size_t i;
	int ret;

	if (nr < 2 || ranks_launched())
		return 0;
	n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	if (n < 0) {
		ret = -errno;
		snprintf(why, len, "/proc/self/exe: %s", strerror(-ret));
		return ret;
	}
	self[n] = '\0';
	for (i = 0; i < ARRAY_SIZE(settings); i++)
		setenv(settings[i][0], settings[i][1], 0);
	ret = run_mpiexec(nr, self, argv);
	if (ret == -ENOENT)
		snprintf(why, len, "no mpiexec in PATH: install openmpi-bin, or another MPI");
	else
		snprintf(why, len, "mpiexec: %s", strerror(-ret));
	return ret;
}
