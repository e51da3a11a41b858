/* SPDX-License-Identifier: Apache-2.0 */
/*
 * area_opt.h - the values of --area, and the file of a swap area
 *
 *	--area PATH[,KEY=VALUE]...	a swap area that kvmm-hold opens
 *
 * The structure, the parser and --help are made from this list.  kvctl swapon and
 * kvmm-hold open files of areas in one way.
 */
#ifndef KVMM_AREA_OPT_H
#define KVMM_AREA_OPT_H

#include <kvmm/opts.h>

#define AREA_PATH_MAX	4096	/* with its NUL */

#define AREA_KEYS(x)							\
	x(size, size, "size", "0", 0, 1ull << 62, "SIZE",		\
	  "length that the file gets, which is made if it is missing; 0: as it is") \
	x(uint, priority, "priority", "0", 0, 32767, "N",		\
	  "areas of higher priority are filled first, equal ones in turn")

struct area_keys {
#define x OPT_FIELD
	AREA_KEYS(x)
#undef x
};

/* struct area_opt - one --area */
struct area_opt {
	char			path[AREA_PATH_MAX];
	struct area_keys	keys;
};

/**
 * area_opt_parse() - read the value of an --area
 * @why: @len bytes for one line that names the option and the remedy
 *
 * Return: 0, or -EINVAL with @why filled.
 */
int __must_check area_opt_parse(struct area_opt *a, const char *spec, char *why,
				size_t len);

/* area_opt_help() - the keys, for --help of kvmm and kvmm-hold */
void area_opt_help(FILE *out);

/**
 * area_file_open() - open the file or block device of an area, for swapd
 * @size: length that it is to have; 0: as it is, so a missing file is not made
 * @made: takes whether the file was made
 * @why:  @len bytes for one line that names @path and the remedy
 *
 * Return: descriptor, or a negative errno with @why filled and no file made.
 */
int __must_check area_file_open(const char *path, u64 size, bool *made,
				char *why, size_t len);

#endif /* KVMM_AREA_OPT_H */
