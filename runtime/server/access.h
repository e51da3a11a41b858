/* SPDX-License-Identifier: Apache-2.0 */
/*
 * access.h - the log line of one request
 */
#ifndef RUNTIME_SERVER_ACCESS_H
#define RUNTIME_SERVER_ACCESS_H

#include <kvmm/http.h>

struct sockaddr;

/**
 * struct access_peer - the address of a client
 * @family: AF_INET, AF_INET6, or AF_UNIX, which has no address
 * @port:   in the order of the network
 * @addr:   4 or 16 bytes, likewise
 */
struct access_peer {
	u16	family;
	u16	port;
	u8	addr[16];
};

/* access_peer_set() - take the address of an accepted connection */
void access_peer_set(struct access_peer *p, const struct sockaddr *sa);

#define ACCESS_PEER	64u

/*
 * access_peer_text() - 192.0.2.7:41234, [2001:db8::1]:41234 or unix
 * @text: ACCESS_PEER bytes; returned
 */
const char *access_peer_text(const struct access_peer *p, char *text);

/**
 * struct access - how a request ended
 * @peer:   its client
 * @head:   its head; without a path if it could not be read
 * @id:     id of its answer, else "": then @head's
 * @status: status at its end, 0: the client had gone, or was disconnected
 * @tokens: tokens generated for it
 * @key:    name of the API key, or NULL
 * @code:   word of the error that was answered, or NULL
 * @param:  field with the error, or NULL
 * @ns:     time from the whole request to the last byte given to the socket
 */
struct access {
	const struct access_peer *peer;
	const struct http_head	*head;
	const char		*id;
	int			status;
	u64			tokens;
	const char		*key;
	const char		*code;
	const char		*param;
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
