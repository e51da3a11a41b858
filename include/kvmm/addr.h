/* SPDX-License-Identifier: Apache-2.0 */
/* addr.h - addresses to listen on, as options give them */
#ifndef KVMM_ADDR_H
#define KVMM_ADDR_H

#include <netinet/in.h>

#include <kvmm/types.h>

#define KV_ADDR_TEXT	(INET6_ADDRSTRLEN + 16)

/**
 * struct kv_addr - an address to listen on
 * @len: bytes of the address; 0: listen nowhere
 */
struct kv_addr {
	socklen_t			len;
	union {
		struct sockaddr		sa;
		struct sockaddr_in	in;
		struct sockaddr_in6	in6;
	};
};

/**
 * kv_addr_parse() - `off`, `PORT`, `ADDR:PORT` or `[ADDR]:PORT`
 * @text: numbers alone: no names are looked up.  A port alone belongs to
 *        127.0.0.1; port 0 is any free one
 *
 * Return: 0 or -EINVAL.
 */
int __must_check kv_addr_parse(const char *text, struct kv_addr *a);

/* kv_addr_is_local() - only this machine can connect to it */
bool kv_addr_is_local(const struct kv_addr *a);

/* kv_addr_format() - as in a URL, `127.0.0.1:80` or `[::1]:80` */
const char *kv_addr_format(const struct kv_addr *a, char text[KV_ADDR_TEXT]);

#endif /* KVMM_ADDR_H */
