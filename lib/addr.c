// SPDX-License-Identifier: Apache-2.0
/*
 * addr.c - addresses of options
 *
 * Only numeric addresses: the meaning of an option does not depend on a resolver,
 * and can be checked before the program starts anything.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <kvmm/addr.h>

/* Parse a port: one to five digits. */
static bool port_parse(const char *s, in_port_t *port)
{
	const size_t len = strlen(s);
	u32 n = 0;

	if (!len || len > 5 || strspn(s, "0123456789") != len)
		return false;
	for (; *s; s++)
		n = n * 10 + (u32)(*s - '0');
	*port = htons((u16)n);
	return n <= UINT16_MAX;
}

/* @host: NUL-terminated, without brackets */
static bool host_parse(const char *host, bool six, in_port_t port,
		       struct kv_addr *a)
{
	if (six) {
		a->len = sizeof(a->in6);
		a->in6.sin6_family = AF_INET6;
		a->in6.sin6_port = port;
		return inet_pton(AF_INET6, host, &a->in6.sin6_addr) == 1;
	}
	a->len = sizeof(a->in);
	a->in.sin_family = AF_INET;
	a->in.sin_port = port;
	return inet_pton(AF_INET, host, &a->in.sin_addr) == 1;
}

int kv_addr_parse(const char *text, struct kv_addr *a)
{
	const char *colon = strrchr(text, ':');
	char host[INET6_ADDRSTRLEN] = "127.0.0.1";
	const bool six = *text == '[';
	in_port_t port;
	size_t len;

	memset(a, 0, sizeof(*a));
	if (!strcmp(text, "off"))
		return 0;
	if (!port_parse(colon ? colon + 1 : text, &port))
		return -EINVAL;
	if (colon) {
		if (six && colon[-1] != ']')
			return -EINVAL;
		len = (size_t)(colon - text) - (six ? 2 : 0);
		if (len >= sizeof(host))
			return -EINVAL;
		memcpy(host, text + six, len);
		host[len] = '\0';
	}
	return host_parse(host, six, port, a) ? 0 : -EINVAL;
}

bool kv_addr_is_local(const struct kv_addr *a)
{
	if (a->sa.sa_family == AF_INET6)
		return IN6_IS_ADDR_LOOPBACK(&a->in6.sin6_addr);
	return ntohl(a->in.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
}

const char *kv_addr_format(const struct kv_addr *a, char text[KV_ADDR_TEXT])
{
	char host[INET6_ADDRSTRLEN] = "?";
	const bool six = a->sa.sa_family == AF_INET6;

	(void)inet_ntop(a->sa.sa_family, six ? (const void *)&a->in6.sin6_addr :
			(const void *)&a->in.sin_addr, host, sizeof(host));
	snprintf(text, KV_ADDR_TEXT, six ? "[%s]:%u" : "%s:%u", host,
		 ntohs(six ? a->in6.sin6_port : a->in.sin_port));
	return text;
}
