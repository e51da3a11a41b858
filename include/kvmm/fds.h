/* SPDX-License-Identifier: Apache-2.0 */
/* fds.h - descriptors that came with a message */
#ifndef KVMM_FDS_H
#define KVMM_FDS_H

#include <sys/socket.h>

#include <kvmm/types.h>

/**
 * kv_fds_first() - the first descriptor of a message; all others are closed
 * @msg: as recvmsg() left it
 *
 * A buffer for one descriptor has, by its padding, room for two.  A sender of two
 * must not fill the descriptor table of a receiver that asked for one.
 *
 * Return: the descriptor, -1: none came.
 */
int kv_fds_first(struct msghdr *msg);

#endif /* KVMM_FDS_H */
