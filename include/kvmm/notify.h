/* SPDX-License-Identifier: Apache-2.0 */
/*
 * notify.h - messages to a service manager about the state of a program
 *
 * The protocol of systemd's Type=notify: a datagram of lines NAME=VALUE to the
 * socket that $NOTIFY_SOCKET names.
 */
#ifndef KVMM_NOTIFY_H
#define KVMM_NOTIFY_H

#include <kvmm/types.h>

/*
 * A start that gets on asks for three more minutes from now.  A unit must give
 * as many for the start (TimeoutStartSec=).
 */
#define KV_NOTIFY_MORE	"EXTEND_TIMEOUT_USEC=180000000"

/**
 * kv_notify_init() - remember the socket, and hide it from children
 *
 * Context: before there are threads.
 */
void kv_notify_init(void);

/**
 * kv_notify() - send a message to the service manager, if there is one
 * @state: "READY=1", "STOPPING=1", "STATUS=text", KV_NOTIFY_MORE; several on
 *         lines of their own
 *
 * Does not wait: a message that cannot be sent at once is dropped.
 *
 * Return: 0, also without a service manager, or a negative errno.
 */
int kv_notify(const char *state);

#endif /* KVMM_NOTIFY_H */
