/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inuse.h - does the system use a block device?
 */
#ifndef SWAPD_INUSE_H
#define SWAPD_INUSE_H

#include <kvmm/types.h>

/**
 * device_in_use() - mounted, swapped to, or below another device?
 * @rdev: number of the device; its partitions are checked, too
 * @who:  @len bytes for a text that names the user
 *
 * An exclusive open finds a user, too, but does not name it; and it is not
 * possible while the caller itself has the device open exclusively.
 */
bool device_in_use(dev_t rdev, char *who, size_t len);

#endif /* SWAPD_INUSE_H */
