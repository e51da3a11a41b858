// SPDX-License-Identifier: Apache-2.0
/*
 * super.c - make and judge the first page of an area
 *
 * The superblock answers two questions: is this file ours to overwrite, and is
 * it still the area that this daemon filled?  The second needs the uuid, which
 * is drawn anew whenever an area is added afresh: slots of an earlier life do
 * not match it and are never served.
 */
#include <sys/random.h>

#include "swapd/crc32c.h"
#include "swapd/super.h"

static u32 super_sum(const struct sd_super *sb)
{
	const u8 *p = (const u8 *)sb;
	const size_t at = offsetof(struct sd_super, crc);
	const u32 zero = 0;
	u32 crc;

	crc = crc32c(0, p, at);
	crc = crc32c(crc, &zero, sizeof(zero));
	return crc32c(crc, p + at + sizeof(zero),
		      SUPER_BYTES - at - sizeof(zero));
}

int super_make(struct sd_super *sb, u64 bytes, u64 epoch)
{
	memset(sb, 0, sizeof(*sb));
	sb->magic = SUPER_MAGIC;
	sb->version = SUPER_VERSION;
	sb->bytes = bytes;
	sb->data_off = SWAPD_RESERVED_BYTES;
	sb->epoch = epoch;
	if (getrandom(sb->uuid, sizeof(sb->uuid), 0) != sizeof(sb->uuid))
		return -errno;
	sb->crc = super_sum(sb);
	return 0;
}

int super_check(const struct sd_super *sb)
{
	if (sb->magic != SUPER_MAGIC)
		return -ENOENT;
	if (sb->crc != super_sum(sb))
		return -EBADMSG;
	return sb->version == SUPER_VERSION ? 0 : -EPROTONOSUPPORT;
}
