/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tenant_opt.h - the values of --tenant and --user-quota
 *
 *	--tenant NAME[,KEY=VALUE]...	a tenant with sockets of its own
 *	--user-quota KEY=VALUE[,...]	quotas of each user that attaches at the
 *					daemon's own socket
 *
 * The structures, the parser, --help and the manual are made from these lists.
 */
#ifndef KVMM_TENANT_OPT_H
#define KVMM_TENANT_OPT_H

#include <kvmm/opts.h>

#define TENANT_NAME_LEN	32	/* with its NUL */
#define TENANT_SPEC_MAX	512

/* Quotas of a tenant. */
#define TENANT_QUOTAS(x)						\
	x(uint, clients, "clients", "0", 0, 64, "N",			\
	  "clients attached at once; 0: as --tenant-clients")		\
	x(uint, conns, "conns", "48", 1, 256, "N",			\
	  "connections at once: of clients, also before they attach, and of readers") \
	x(uint, domains, "domains", "32", 1, 4096, "N",			\
	  "domains, including those without clients") \
	x(uint, fds, "fds", "1024", 1, 1048576, "N",			\
	  "descriptors of extents that its clients were sent and have not acknowledged") \
	x(size, min, "min", "0", 0, 1ull << 50, "SIZE",			\
	  "memory.min that its clients may ask for, all domains together, and as much memory.low") \
	x(uint, weight, "weight", "100", 1, 10000, "N",			\
	  "largest weight that its clients may ask for")

/* Sockets of a tenant. */
#define TENANT_SOCKETS(x)						\
	x(str, dir, "dir", NULL, 0, 0, "PATH",				\
	  "directory of its attach.sock and view.sock, made if it is missing (default NAME beside the daemon's own)") \
	x(str, owner, "owner", NULL, 0, 0, "USER[:GROUP]",		\
	  "owner of the two sockets, by name or number (default the user who starts kvmm)") \
	x(str, mode, "mode", "0600", 0, 0, "MODE",			\
	  "permissions of the two sockets, in octal")

struct tenant_quota {
#define x OPT_FIELD
	TENANT_QUOTAS(x)
#undef x
};

/* Quotas and sockets of a tenant; begins as struct tenant_quota. */
struct tenant_keys {
	struct tenant_quota quota;
#define x OPT_FIELD
	TENANT_SOCKETS(x)
#undef x
};

/**
 * struct tenant_opt - one --tenant
 * @text: text that the strings of @keys point into
 */
struct tenant_opt {
	char			name[TENANT_NAME_LEN];
	struct tenant_keys	keys;
	char			text[TENANT_SPEC_MAX];
};

/**
 * tenant_opt_parse() - read the value of a --tenant
 * @why: @len bytes for one line that names the option and the remedy
 *
 * Return: 0, or -EINVAL with @why filled.
 */
int __must_check tenant_opt_parse(struct tenant_opt *t, const char *spec,
				  char *why, size_t len);

/* tenant_quota_parse() - the same for --user-quota; @spec may be NULL */
int __must_check tenant_quota_parse(struct tenant_quota *q, const char *spec,
				    char *why, size_t len);

/* tenant_opt_help() - the keys, for --help of kvmm and kvmm-hold */
void tenant_opt_help(FILE *out);

#endif /* KVMM_TENANT_OPT_H */
