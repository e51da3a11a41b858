/* SPDX-License-Identifier: Apache-2.0 */
/*
 * access.h - the log line of one request
 */
#ifndef RUNTIME_SERVER_ACCESS_H
#define RUNTIME_SERVER_ACCESS_H

#include <kvmm/http.h>

/**
 * struct access - how a request ended
 * @head:   its head; without a path if it could not be read
 * @id:     id of its answer, else "": then @head's
 * @status: status at its end, 0: the client had gone, or was disconnected
 * @tokens: tokens generated for it
 * @key:    name of the API key, or NULL
 * @ns:     time from the whole request to the last byte given to the socket
 */
struct access {
	const struct http_head	*head;
	const char		*id;
	int			status;
	u64			tokens;
	const char		*key;
	s64			ns;
};

/**
 * access_log() - write the line, if its level is wanted
 *
 * 5xx are warnings, 4xx information, the rest debug lines.  At most
 * ACCESS_BURST warnings and as many informations are written in one period of
 * the log.
 *
 * Context: any thread; the bound holds for all threads together.
 */
void access_log(const struct access *a);

#define ACCESS_BURST	40u

#endif /* RUNTIME_SERVER_ACCESS_H */
