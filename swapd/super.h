/* SPDX-License-Identifier: Apache-2.0 */
/*
 * super.h - the first page of an area
 */
#ifndef SWAPD_SUPER_H
#define SWAPD_SUPER_H

#include <kvmm/swapd.h>

#define SUPER_MAGIC	0x315041575356564bull
#define SUPER_VERSION	1
#define SUPER_BYTES	4096u

/**
 * struct sd_super - the superblock of an area
 * @crc:      of SUPER_BYTES with this field 0
 * @uuid:     new each time the area is added afresh; every slot repeats it
 * @bytes:    of the area, this page included
 * @data_off: first byte that slots may use
 * @epoch:    of the daemon that added it
 */
struct sd_super {
	u64	magic;
	u32	version;
	u32	crc;
	u8	uuid[SWAPD_UUID_LEN];
	u64	bytes;
	u64	data_off;
	u64	epoch;
	u8	zero[SUPER_BYTES - 56];
};

static_assert(sizeof(struct sd_super) == SUPER_BYTES, "a superblock is a page");

/* super_make() - make a superblock with a new uuid: 0 or a negative errno */
int __must_check super_make(struct sd_super *sb, u64 bytes, u64 epoch);

/**
 * super_check() - is it a superblock, and whole?
 *
 * Return: 0; -ENOENT: it is no superblock; -EBADMSG: it is damaged;
 * -EPROTONOSUPPORT: another version made it.
 */
int __must_check super_check(const struct sd_super *sb);

#endif /* SWAPD_SUPER_H */
