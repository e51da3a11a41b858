/* SPDX-License-Identifier: Apache-2.0 */
/*
 * notify.h - telling a service manager how it goes
 *
 * The protocol of systemd's Type=notify: a datagram of lines NAME=VALUE to the
 * socket that $NOTIFY_SOCKET names.
 */
#ifndef KVMM_NOTIFY_H
#define KVMM_NOTIFY_H

#include <kvmm/types.h>

/**
 * kv_notify_init() - remember the socket, and hide it from children
 *
 * Context: before there are threads.
 */
void kv_notify_init(void);

/**
 * kv_notify() - tell it, if there is somebody who listens
 * @state: "READY=1", "STOPPING=1", "STATUS=text"; several on lines of their own
 *
 * Nobody waits, and what cannot be told is not told.
 *
 * Return: 0, also when nobody listens, or a negative errno.
 */
int kv_notify(const char *state);

#endif /* KVMM_NOTIFY_H */
