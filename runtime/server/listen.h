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
 * listen_tcp() - take a port
 * @host: address or name
 * @port: 0: any free one
 * @url:  LISTEN_URL bytes, gets "http://ADDRESS:PORT"
 *
 * Return: a descriptor; -EINVAL: @host is none; another negative errno: it
 * cannot be had.  What was wrong was said in one line.
 */
int __must_check listen_tcp(const char *host, u32 port, char *url);

/**
 * struct listen_path - a socket in the file system
 * @path: NULL: there is none
 * @st:   of it, so that nobody else's is removed
 */
struct listen_path {
	const char	*path;
	struct stat	st;
};

/**
 * listen_unix() - make a socket in the file system
 * @mode: its permissions: who may write there may ask
 *
 * One that is left over, since nobody listens there any more, is replaced.
 *
 * Return: a descriptor; -EINVAL: @path cannot be one; -EADDRINUSE: somebody
 * listens there; another negative errno.  What was wrong was said.
 */
int __must_check listen_unix(struct listen_path *l, const char *path, u32 mode);

/* listen_unix_end() - remove it, if it is still the one */
void listen_unix_end(struct listen_path *l);

#endif /* RUNTIME_SERVER_LISTEN_H */
