// SPDX-License-Identifier: Apache-2.0
/*
 * slot.c - seal a slot, and judge one that was read
 *
 * A disk may return other bytes than those written: damaged bits, an older write,
 * half a write, another place's data.  Sums find damage; the identity in the
 * header finds a slot that is whole but not the right one: the area and the place
 * (a misdirected access), the generation (a lost write leaves the older slot),
 * domain, hash and length (a mistake of kvmm).
 *
 * Fields are compared before the sum of the payload, so a stale block costs
 * no sum; but after the sum of the header, so that a flipped bit is counted as
 * damage and not as a strange identity.
 */
#include "swapd/crc32c.h"
#include "swapd/slot.h"

static u32 header_sum(const struct slot_header *h)
{
	const u8 *p = (const u8 *)h;
	const size_t at = offsetof(struct slot_header, header_crc);
	const u32 zero = 0;
	u32 crc;

	crc = crc32c(0, p, at);
	crc = crc32c(crc, &zero, sizeof(zero));
	return crc32c(crc, p + at + sizeof(zero),
		      SWAPD_HEADER_BYTES - at - sizeof(zero));
}

void slot_seal(void *slot, const struct swapd_req *req,
	       const u8 uuid[SWAPD_UUID_LEN])
{
	struct slot_header *h = slot;

	memset(slot, 0, SWAPD_HEADER_BYTES);
	h->magic = SLOT_MAGIC;
	h->version = SLOT_VERSION;
	h->payload_len = req->payload_len;
	h->payload_crc = crc32c(0, (u8 *)slot + SWAPD_HEADER_BYTES,
				req->payload_len);
	h->domain = req->domain;
	h->hash[0] = req->hash[0];
	h->hash[1] = req->hash[1];
	h->generation = req->generation;
	h->area_off = req->area_off;
	memcpy(h->area_uuid, uuid, SWAPD_UUID_LEN);
	h->header_crc = header_sum(h);
}

void slot_blank(void *slot)
{
	memset(slot, 0, sizeof(struct slot_header));
}

static int slot_compare(const struct slot_header *h,
			const struct swapd_req *req, const u8 *uuid)
{
	if (h->magic != SLOT_MAGIC)
		return SWAPD_CNT_bad_magic;
	if (h->header_crc != header_sum(h))
		return SWAPD_CNT_bad_header_crc;
	if (h->version != SLOT_VERSION)
		return SWAPD_CNT_bad_version;
	if (memcmp(h->area_uuid, uuid, SWAPD_UUID_LEN))
		return SWAPD_CNT_bad_area;
	if (h->area_off != req->area_off)
		return SWAPD_CNT_bad_offset;
	if (h->domain != req->domain)
		return SWAPD_CNT_bad_domain;
	if (h->generation != req->generation)
		return SWAPD_CNT_bad_generation;
	if (h->hash[0] != req->hash[0] || h->hash[1] != req->hash[1])
		return SWAPD_CNT_bad_hash;
	if (h->payload_len != req->payload_len)
		return SWAPD_CNT_bad_length;
	return -1;
}

int slot_check(const void *slot, const struct swapd_req *req,
	       const u8 uuid[SWAPD_UUID_LEN], enum swapd_counter *counter)
{
	const struct slot_header *h = slot;
	int wrong = slot_compare(h, req, uuid);

	if (wrong < 0 &&
	    h->payload_crc != crc32c(0, (const u8 *)slot + SWAPD_HEADER_BYTES,
				     req->payload_len))
		wrong = SWAPD_CNT_bad_payload_crc;
	if (wrong < 0)
		return 0;
	*counter = (enum swapd_counter)wrong;
	return -EBADMSG;
}
