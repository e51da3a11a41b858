/* SPDX-License-Identifier: Apache-2.0 */
/*
 * admin.h - requests that change a daemon
 *
 * The admin socket is a Unix seqpacket socket beside the view socket, for
 * root and the daemon's own user.  One connection carries one request and its
 * answer.  A request is one message of text, the path last:
 *
 *	swapon BYTES PRIORITY FORCE PATH	and the file as SCM_RIGHTS;
 *						BYTES 0: as it is
 *	swapoff TIMEOUT_MS DEV INODE PATH	DEV 0: only the path is known
 *	set MARK VALUE DOMAIN			memory.min, low, high, max,
 *						weight; in bytes
 *	domain SPEC				value of a --domain that has changed in
 *						the file of options
 *	resize BYTES POOL			a device pool, such as gpu0
 *	tune VALUE NAME				a file of mode 0644 in sys/vm
 *	trace VALUE [NAME]			0 or 1; all events when none is
 *						named
 *	drop_caches [DOMAIN]			of all domains when none is named
 *	evict BYTES DOMAIN			device memory of its cache; BYTES 0:
 *						all of it
 *	pin BYTES DOMAIN			BYTES 0: the memory it has now
 *	unpin 0 DOMAIN
 *	drain ON TARGET				node, tenant/NAME or client/ID;
 *						ON 0: undo it
 *	log LEVEL				of kvmm and swapd
 *	upgrade COLD PATH			and the program as SCM_RIGHTS;
 *						COLD 1: its layout may differ
 *
 * The answer is any number of `progress TEXT`, then `ok TEXT` or
 * `error ERRNO TEXT`, each a message; then the daemon closes.
 */
#ifndef KVMM_ADMIN_H
#define KVMM_ADMIN_H

#include <kvmm/types.h>

#define KV_ADMIN_REQ	4352	/* bytes of a request */
#define KV_ADMIN_TEXT	4608	/* bytes of an answer, with its NUL */

/**
 * struct kv_admin - one request
 * @path:       of the socket
 * @timeout_ms: longest silence of the daemon
 * @fd:         goes with the request, -1: none
 * @progress:   called with the text of each progress; may be NULL
 * @status:     takes 0, or the errno (positive) that the daemon answered
 * @text:       takes the text of the answer
 */
struct kv_admin {
	const char	*path;
	u32		timeout_ms;
	int		fd;
	void		(*progress)(const char *text);
	int		status;
	char		text[KV_ADMIN_TEXT];
};

/**
 * kv_admin_path() - the admin socket beside a view socket
 * @view: of kv_view_path()
 * @path: @len bytes
 *
 * Return: 0 or -ENAMETOOLONG.
 */
int __must_check kv_admin_path(const char *view, char *path, size_t len);

/**
 * kv_admin_set_request() - the request that changes a file of mode 0644
 * @path:  name of the file: domain/NAME/memory.max, pool/gpu0/size,
 *         sys/vm/NAME, events/NAME/enable, events/enable
 * @value: bytes, with K, M, G or T behind, or max for a domain's; of sys/vm and
 *         events a number
 * @req:   takes the request, @len bytes
 *
 * Return: 0; -ENOENT: no such file can be set; -EINVAL: the value is wrong;
 * -ENAMETOOLONG.
 */
int __must_check kv_admin_set_request(const char *path, const char *value,
				      char *req, size_t len);

/**
 * kv_pool_parse() - the number of a device pool with a name such as gpu0
 * @name: @len bytes, without a NUL
 * @pool: takes the number
 *
 * Return: false: no pool can have that name.
 */
bool __must_check kv_pool_parse(const char *name, size_t len, u32 *pool);

/**
 * kv_admin_ask() - one request, one answer
 * Return: 0 when a whole answer came; -errno of connecting; -ECONNABORTED
 * when the daemon went away, -EPROTO for a malformed answer, -ETIMEDOUT.
 */
int __must_check kv_admin_ask(struct kv_admin *a, const char *req);

#endif /* KVMM_ADMIN_H */
