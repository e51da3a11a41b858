/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mapped.h - model files that are mapped, and the end of a process that loses one
 */
#ifndef RUNTIME_LIB_MAPPED_H
#define RUNTIME_LIB_MAPPED_H

#include <kvmm/types.h>

/**
 * mapped_guard_init() - end the process with a line if a mapped file is lost
 *
 * Touching a page behind the end of a file that was cut, or a page that its disk
 * cannot read, sends SIGBUS.  The handler names the file on stderr and exits with
 * EX_IOERR.  A SIGBUS at any other address ends the process as before.
 */
void mapped_guard_init(void);

/**
 * mapped_add() - note that @bytes at @map are the file @path
 * @path:	stays valid until mapped_remove()
 *
 * If too many files are noted, this one is not, and has no line.
 */
void mapped_add(const void *map, u64 bytes, const char *path);

/* Before munmap().  A map that was not noted is allowed. */
void mapped_remove(const void *map);

#endif /* RUNTIME_LIB_MAPPED_H */
