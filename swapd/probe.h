/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe.h - measure the speed of a disk with each kind of io_uring
 */
#ifndef SWAPD_PROBE_H
#define SWAPD_PROBE_H

#include <kvmm/types.h>

/**
 * probe_run() - measure each way to transfer, print a table
 * @path:  a directory, or a file or device that is only read
 * @depth: transfers at once
 *
 * Return: 0 or a negative errno, which was logged.
 */
int probe_run(const char *path, u32 depth);

#endif /* SWAPD_PROBE_H */
