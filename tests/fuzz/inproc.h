/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inproc.h - the daemon's shell in this process, without its threads
 *
 * A struct daemon with a real core, its queues and tables; only calls of the
 * target run.  The linker gives calls of mm_call() to this file, which runs the
 * function at once; those of segment_create() get ordinary memory.
 *
 * As in shell.h the first inproc_begin() makes all state and keeps a copy; later
 * ones put the copy back.  A target names further state of its own with
 * inproc_keep().
 */
#ifndef TESTS_FUZZ_INPROC_H
#define TESTS_FUZZ_INPROC_H

#include "kvmm/ipc/daemon.h"
#include "tests/fuzz/fuzz.h"

#define INPROC_EXTENT	4096ull
#define INPROC_EXTENTS	24u
#define INPROC_SEQS	16u
#define INPROC_UIDS	3u	/* users whose secrets are drawn before */

extern struct daemon *inproc;
/* Room for clients and domains; set before the first input. */
extern u32 inproc_clients, inproc_domains;
/* segment_create() fails, as if memory lacked. */
extern bool inproc_no_memory;

/* Begin an input in the state that @setup made from a fresh daemon. */
void inproc_begin(void (*setup)(void));
void inproc_keep(void *p, size_t bytes);
/* Do the work that the mm thread ordered from the mapper and the copier. */
bool inproc_threads(int status);
/* Run one turn of the mm thread, without serving clients. */
void inproc_turn(void);
/* Run the walkers; they must find no fault. */
void inproc_check(void);
/* Make a connected pair of sockets that do not block; the caller closes both. */
void inproc_pair(int type, int sock[2]);
/* Read all messages of @sock, close their descriptors.  Return: messages or chunks. */
u32 inproc_drain(int sock);
/* A descriptor to be sent; @kind is any number. */
int inproc_some_fd(u32 kind);

/**
 * inproc_send() - one message of an input, with descriptors
 * @nr_fds: of inproc_some_fd(), at most 16
 */
void inproc_send(int sock, const void *buf, size_t len, u32 nr_fds);

#endif /* TESTS_FUZZ_INPROC_H */
