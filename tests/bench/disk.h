/* SPDX-License-Identifier: Apache-2.0 */
/*
 * disk.h - what kind of disk a benchmark ran on
 */
#ifndef TESTS_BENCH_DISK_H
#define TESTS_BENCH_DISK_H

/*
 * Print, as notes, which device the directory lies on and what its kernel says
 * of it, how long a small write takes until the device says that it is on
 * stable storage, and what follows from that for figures of writes.
 */
void disk_tell(const char *dir);

#endif /* TESTS_BENCH_DISK_H */
