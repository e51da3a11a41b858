/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inuse.h - does the system use a block device?
 */
#ifndef SWAPD_INUSE_H
#define SWAPD_INUSE_H

#include <kvmm/types.h>

/**
 * device_in_use() - mounted, swapped to, or below another device?
 * @rdev: its number; partitions of it are looked at, too
 * @who:  @len bytes for who uses it
 *
 * An exclusive open says the same, but not who; and it cannot be made of a
 * device that the caller has opened exclusively itself.
 */
bool device_in_use(dev_t rdev, char *who, size_t len);

#endif /* SWAPD_INUSE_H */
