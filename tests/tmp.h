/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tmp.h - names of temporary files and folders of a test
 *
 * They lie in TMPDIR, which tests/run makes for each suite and removes after it, also
 * when the suite was killed.
 */
#ifndef TESTS_TMP_H
#define TESTS_TMP_H

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

/* The folder for temporary files. */
static inline const char *tmp_dir(void)
{
	const char *dir = getenv("TMPDIR");

	return dir && *dir ? dir : "/tmp";
}

/*
 * A name for mkdtemp() or mkstemp() in that folder, which begins with @name.  They refuse
 * a name that was too long for @path.
 */
static inline char *tmp_name(char *path, size_t len, const char *name)
{
	snprintf(path, len, "%s/%s.XXXXXX", tmp_dir(), name);
	return path;
}

/* Let other users pass through the folder; only the owner can list it. */
static inline void tmp_open_to_others(void)
{
	const char *dir = getenv("TMPDIR");

	if (dir && chmod(dir, 0711))
		perror(dir);
}

#endif /* TESTS_TMP_H */
