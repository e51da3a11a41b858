/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slot.h - the header of a slot, which exposes a wrong block
 */
#ifndef SWAPD_SLOT_H
#define SWAPD_SLOT_H

#include <kvmm/swapd.h>

#define SLOT_MAGIC	0x31544f4c534d4d56ull
#define SLOT_VERSION	1

/**
 * struct slot_header - first SWAPD_HEADER_BYTES of a slot
 * @header_crc:  of all SWAPD_HEADER_BYTES, with this field 0
 * @payload_crc: of @payload_len bytes behind the header
 * @area_uuid:   of the area it was written to
 * @area_off:    where it was written
 *
 * Other fields are copies from the request that wrote the slot.  The rest of the
 * header is 0.  A slot never leaves the machine, so numbers have its byte order.
 */
struct slot_header {
	u64	magic;
	u32	version;
	u32	header_crc;
	u32	payload_crc;
	u32	payload_len;
	u32	domain;
	u32	resv;
	u64	hash[2];
	u64	generation;
	u64	area_off;
	u8	area_uuid[SWAPD_UUID_LEN];
	u64	resv2[4];
};

static_assert(sizeof(struct slot_header) == 112, "layout of a slot's header");

/**
 * slot_seal() - make the header of a slot that is to be written
 * @slot: header and payload; the payload is read, the header is overwritten
 */
void slot_seal(void *slot, const struct swapd_req *req,
	       const u8 uuid[SWAPD_UUID_LEN]);

/**
 * slot_blank() - clear the header of a slot that is to be read
 *
 * This exposes a transfer that moves nothing and reports success.
 */
void slot_blank(void *slot);

/**
 * slot_check() - is this the requested slot, with the bytes that were written?
 * @counter: set on failure to the counter of the fault
 *
 * Return: 0 or -EBADMSG.
 */
int __must_check slot_check(const void *slot, const struct swapd_req *req,
			    const u8 uuid[SWAPD_UUID_LEN],
			    enum swapd_counter *counter);

#endif /* SWAPD_SLOT_H */
