/* SPDX-License-Identifier: Apache-2.0 */
/*
 * access.h - one line in the log about one request
 */
#ifndef RUNTIME_SERVER_ACCESS_H
#define RUNTIME_SERVER_ACCESS_H

#include <kvmm/http.h>

/**
 * struct access - how a request ended
 * @head:   of it; without a path when it was not understood
 * @id:     of its answer, else "": then @head's
 * @status: of its end, 0: the client was gone, or given up
 * @tokens: generated for it
 * @key:    name of the API key, or NULL
 * @ns:     from the whole request to the last byte given to the socket
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
 * 5xx are warnings, 4xx information, the rest is for debugging; of the first
 * two no more than ACCESS_BURST each are written in a period of the log's.
 *
 * Context: one thread of a process at a time writes most of them; the bound
 * holds for all together.
 */
void access_log(const struct access *a);

#define ACCESS_BURST	40u

#endif /* RUNTIME_SERVER_ACCESS_H */
