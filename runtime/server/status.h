/* SPDX-License-Identifier: Apache-2.0 */
/*
 * status.h - the state of the server, for a service manager
 */
#ifndef RUNTIME_SERVER_STATUS_H
#define RUNTIME_SERVER_STATUS_H

#include "runtime/server/backend.h"

/**
 * status_tell() - send the state as one line, and READY=1 if all can serve
 * @b:     @nr backends
 * @where: address that the server listens on
 *
 * Return: whether all can serve.
 */
bool status_tell(struct backend *b, u32 nr, const char *where);

#endif /* RUNTIME_SERVER_STATUS_H */
