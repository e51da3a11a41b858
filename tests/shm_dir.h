/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shm_dir.h - a folder of shared memory for the groups of one test
 *
 * Open MPI makes files in /dev/shm, and their names do not tell the group.  Groups of
 * other tests run at the same time.  So a test gives its groups a folder of their own, and
 * each file that is left there is one that they have left.
 */
#ifndef TESTS_SHM_DIR_H
#define TESTS_SHM_DIR_H

#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char * const shm_dir_settings[] = {
	"OMPI_MCA_btl_vader_backing_directory",
	"OMPI_MCA_osc_sm_backing_directory",
	"OMPI_MCA_osc_rdma_backing_directory",
};

#define SHM_DIR_SETTINGS	(sizeof(shm_dir_settings) / sizeof(*shm_dir_settings))

static char shm_dir[64];

/* Groups that are started from now on use the folder. */
static inline void shm_dir_create(void)
{
	size_t i;

	strcpy(shm_dir, "/dev/shm/kvmm-it-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(shm_dir));
	for (i = 0; i < SHM_DIR_SETTINGS; i++)
		setenv(shm_dir_settings[i], shm_dir, 1);
}

/* Open MPI leaks memory until its end, and a report of it would be in the output of ranks. */
static inline void mpi_leaks_ignore(void)
{
	const char *has = getenv("ASAN_OPTIONS");
	char text[512];

	snprintf(text, sizeof(text), "%s%sdetect_leaks=0", has ? has : "", has ? ":" : "");
	setenv("ASAN_OPTIONS", text, 1);
}

/* The names of all files in it, one a line. */
static inline void shm_dir_list(char *text, size_t len)
{
	DIR *d = opendir(shm_dir);
	struct dirent *e;
	size_t n = 0;

	text[0] = '\0';
	while (d && (e = readdir(d)))
		if (e->d_name[0] != '.' && n < len)
			n += (size_t)snprintf(text + n, len - n, "%s\n", e->d_name);
	if (d)
		closedir(d);
}

/* Remove it with all files. */
static inline void shm_dir_remove(void)
{
	DIR *d = opendir(shm_dir);
	struct dirent *e;
	size_t i;

	while (d && (e = readdir(d)))
		unlinkat(dirfd(d), e->d_name, 0);
	if (d)
		closedir(d);
	rmdir(shm_dir);
	for (i = 0; i < SHM_DIR_SETTINGS; i++)
		unsetenv(shm_dir_settings[i]);
}

#endif /* TESTS_SHM_DIR_H */
