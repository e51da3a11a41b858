/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crc32c.h - CRC-32C (Castagnoli), as in iSCSI
 */
#ifndef SWAPD_CRC32C_H
#define SWAPD_CRC32C_H

#include <kvmm/types.h>

/**
 * crc32c_init() - make the tables, choose the instructions
 * @plain: use the tables even where the processor has an instruction
 *
 * Context: once, before threads exist.
 */
void crc32c_init(bool plain);

/**
 * crc32c() - sum of @len bytes
 * @crc: 0, or the sum of the bytes before @buf
 */
u32 crc32c(u32 crc, const void *buf, size_t len);

/* The method that crc32c_init() chose, for the log. */
const char *crc32c_name(void);

#endif /* SWAPD_CRC32C_H */
