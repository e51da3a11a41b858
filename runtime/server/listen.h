/* SPDX-License-Identifier: Apache-2.0 */
/*
 * listen.h - the addresses that a server listens on
 */
#ifndef RUNTIME_SERVER_LISTEN_H
#define RUNTIME_SERVER_LISTEN_H

#include <netdb.h>
#include <sys/stat.h>

#include <kvmm/types.h>

#define LISTEN_URL	(NI_MAXHOST + 32)

/**
 * listen_tcp() - listen on a port
 * @host: address or name
 * @port: 0: any free one
 * @url:  LISTEN_URL bytes, gets "http://ADDRESS:PORT"
 *
 * Return: a descriptor; -EINVAL: @host is no address; another negative errno:
 * it cannot be listened on.  The error has been logged in one line.
 */
int __must_check listen_tcp(const char *host, u32 port, char *url);

/**
 * struct listen_path - a socket in the file system
 * @path: NULL: there is none
 * @st:   its stat, so that no other program's socket is removed
 */
struct listen_path {
	const char	*path;
	struct stat	st;
};

/**
 * listen_unix() - listen on a socket in the file system
 * @mode: its permissions: clients that may write to it may connect
 *
 * A socket on which no program listens any more is replaced.
 *
 * Return: a descriptor; -EINVAL: @path is no valid path; -EADDRINUSE: a program
 * listens there; another negative errno.  The error has been logged.
 */
int __must_check listen_unix(struct listen_path *l, const char *path, u32 mode);

/* listen_unix_end() - remove the socket, unless another has replaced it */
void listen_unix_end(struct listen_path *l);

#endif /* RUNTIME_SERVER_LISTEN_H */
