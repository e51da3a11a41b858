/* SPDX-License-Identifier: Apache-2.0 */
/*
 * disk.h - the kind of disk that a benchmark ran on
 */
#ifndef TESTS_BENCH_DISK_H
#define TESTS_BENCH_DISK_H

/*
 * Print notes: the device that the directory lies on and its kernel attributes,
 * how long a small write takes until the device reports it on stable storage,
 * and the consequence for figures of writes.
 */
void disk_tell(const char *dir);

#endif /* TESTS_BENCH_DISK_H */
