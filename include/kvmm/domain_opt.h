/* SPDX-License-Identifier: Apache-2.0 */
/*
 * domain_opt.h - the values of --domain
 *
 *	--domain [TENANT/]NAME[,KEY=VALUE]...	limits that an operator gives a
 *						domain, also one that is made later
 *
 * The structure, the parser and --help are made from this list.
 */
#ifndef KVMM_DOMAIN_OPT_H
#define KVMM_DOMAIN_OPT_H

#include <kvmm/opts.h>
#include <kvmm/tenant_opt.h>
#include <uapi/kvmm.h>

/* x(MARK, key, unit, text), in the order of the core's limits. */
#define DOMAIN_KEYS(x)							\
	x(MIN, min, "SIZE", "memory.min: bytes that other domains never take") \
	x(LOW, low, "SIZE", "memory.low: bytes that other domains take last") \
	x(HIGH, high, "SIZE", "memory.high: bytes above which new sequences wait, or max") \
	x(MAX, max, "SIZE", "memory.max: bytes that are never exceeded, or max") \
	x(WEIGHT, weight, "N", "memory.weight: share of the surplus, 1 to 10000") \
	x(WRITETHROUGH, writethrough, "N", "memory.writethrough: 0, or 1: full blocks are copied to the host pool at once")

enum domain_key {
#define x(mark, ...) DOMAIN_KEY_##mark,
	DOMAIN_KEYS(x)
#undef x
	NR_DOMAIN_KEYS
};

/**
 * struct domain_opt - one --domain
 * @tenant: name of a --tenant, or the number of a user; "": the user who started
 *          the daemon
 * @given:  bit set of the keys that are given
 * @limit:  by DOMAIN_KEY_*; KVMM_LIMIT_MAX: none
 */
struct domain_opt {
	char	tenant[TENANT_NAME_LEN];
	char	name[KVMM_NAME_LEN];
	u32	given;
	u64	limit[NR_DOMAIN_KEYS];
};

/**
 * domain_opt_parse() - read the value of a --domain
 * @why: @len bytes for one line that names the option and the remedy
 *
 * Return: 0, or -EINVAL with @why filled.
 */
int __must_check domain_opt_parse(struct domain_opt *d, const char *spec,
				  char *why, size_t len);

/**
 * domain_opt_format() - the value that domain_opt_parse() reads back
 * Return: @buf; "" if a name has a character that no value can have.
 */
char *domain_opt_format(const struct domain_opt *d, char *buf, size_t len);

/* domain_opt_help() - the keys, for --help of kvmm and kvmm-hold */
void domain_opt_help(FILE *out);

#endif /* KVMM_DOMAIN_OPT_H */
