/* SPDX-License-Identifier: Apache-2.0 */
/*
 * armed.h - the folder of the daemons that a test starts
 *
 * The daemons of build/ are those that are installed.  Only those of build/faults have
 * the points of kvmm/fault.h and the disk faults of swapd/shim.h.  A test starts them
 * when it has set the variable that arms one.
 */
#ifndef TESTS_ARMED_H
#define TESTS_ARMED_H

#include <stdlib.h>
#include <string.h>

#include <kvmm/types.h>

/* The part of the path behind the build folder. @env: "NAME=VALUE" for the program, or NULL */
static inline const char *armed_folder(const char *env)
{
	if (getenv("KVMM_FAULT") || getenv("KVMM_DISK_FAULTS") ||
	    (env && (!strncmp(env, "KVMM_FAULT=", 11) ||
		     !strncmp(env, "KVMM_DISK_FAULTS=", 17))))
		return "/faults";
	return "";
}

#endif /* TESTS_ARMED_H */
