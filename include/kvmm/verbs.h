/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbs.h - requests at the daemon's own sockets, and the right that each needs
 *
 * The only list of them: the daemon refuses by it, and the table in
 * Documentation/security.md is checked against it.  Root and the user that started
 * the daemon have all rights; a member of --read-group may read, one of
 * --admin-group may read and change; kvmm-proc asks for other users, with the
 * rights of these.
 */
#ifndef KVMM_VERBS_H
#define KVMM_VERBS_H

#include <kvmm/types.h>

/* Rights, as bits: x(name, text). */
#define KV_RIGHTS(x)							\
	x(read,		"see the files of all tenants")			\
	x(change,	"change limits, tunables, areas, and the program")	\
	x(others,	"ask for another user, with the rights of that user")

/* Verbs: x(socket, verb, right, text). */
#define KV_VERBS(x)							\
	x(view, cat, read, "a file")					\
	x(view, ls, read, "the names in a directory")			\
	x(view, stat, read, "the mode of a file")			\
	x(view, check, change, "the daemon's walkers, for which clients wait")			\
	x(view, wait, read, "a pressure trigger")			\
	x(view, set, change, "a value that is written to a file")	\
	x(view, as, others, "a request of another user")		\
	x(admin, swapon, change, "a swap area more")			\
	x(admin, swapoff, change, "a swap area less")			\
	x(admin, set, change, "a limit of a domain")			\
	x(admin, domain, change, "limits that the options give a domain")	\
	x(admin, resize, change, "the size of the pool")		\
	x(admin, tune, change, "a tunable")				\
	x(admin, trace, change, "an event of the trace")		\
	x(admin, drop_caches, change, "cached prefixes")		\
	x(admin, evict, change, "a domain's cache on the device")	\
	x(admin, pin, change, "a domain's memory.min")			\
	x(admin, unpin, change, "a domain's memory.min, back to its clients' own")	\
	x(admin, drain, change, "new clients and sequences")		\
	x(admin, log, change, "the level of messages")			\
	x(admin, upgrade, change, "the program")

enum kv_right_nr {
#define x(name, text) KV_RIGHT_NR_##name,
	KV_RIGHTS(x)
#undef x
	NR_KV_RIGHTS
};

enum kv_right {
#define x(name, text) KV_RIGHT_##name = BIT(KV_RIGHT_NR_##name),
	KV_RIGHTS(x)
#undef x
	KV_RIGHT_all = BIT(NR_KV_RIGHTS) - 1,
};

enum kv_socket {
	KV_SOCKET_view,
	KV_SOCKET_admin,
};

/**
 * struct kv_verb - a row of KV_VERBS
 * @right: KV_RIGHT_*
 */
struct kv_verb {
	enum kv_socket	socket;
	const char	*name;
	u32		right;
	const char	*text;
};

extern const struct kv_verb kv_verbs[];
extern const u32 kv_nr_verbs;

/**
 * kv_verb_find() - the verb that a request begins with
 * @req: the verb, and after a blank its arguments
 *
 * Return: NULL: there is no such verb at this socket.
 */
const struct kv_verb *kv_verb_find(enum kv_socket socket, const char *req);

#endif /* KVMM_VERBS_H */
