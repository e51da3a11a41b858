/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inproc.h - the daemon's shell in this process, without its threads
 *
 * A struct daemon with a real core, its queues and tables; nothing runs but
 * what a target calls.  The linker gives calls of mm_call() to this file, which
 * runs the function at once; those of segment_create() get ordinary memory.
 *
 * As in shell.h the first inproc_begin() makes it all and keeps a copy, every
 * other one puts that back.  What a target keeps outside struct daemon and is to
 * be put back as well it names with inproc_keep().
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
/* Clients and domains that there is room for; set before the first input. */
extern u32 inproc_clients, inproc_domains;
/* segment_create() fails, as without memory. */
extern bool inproc_no_memory;

/* The same state for every input: @setup made it, from a fresh daemon. */
void inproc_begin(void (*setup)(void));
void inproc_keep(void *p, size_t bytes);
/* Make what the mm thread asked the mapper and the copier for. */
bool inproc_threads(int status);
/* One turn of the mm thread, without serving anybody. */
void inproc_turn(void);
/* The walkers find nothing. */
void inproc_check(void);
/* A connected pair that does not block; sockets and descriptors to close. */
void inproc_pair(int type, int sock[2]);
/* Read and close all that came to @sock.  Return: messages or chunks. */
u32 inproc_drain(int sock);
/* A descriptor of nothing in particular, to be sent. */
int inproc_some_fd(u32 kind);

/**
 * inproc_send() - one message of an input, with descriptors
 * @nr_fds: of inproc_some_fd(), at most 16
 */
void inproc_send(int sock, const void *buf, size_t len, u32 nr_fds);

#endif /* TESTS_FUZZ_INPROC_H */
