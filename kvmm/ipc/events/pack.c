// SPDX-License-Identifier: Apache-2.0
/*
 * pack.c - MessagePack: the few forms that events need
 *
 * The shortest form of each value, but for the arrays of pack_array_later().
 */
#include <endian.h>

#include "kvmm/ipc/events/events.h"

static void put(struct pack *p, const void *data, u32 len)
{
	if (p->full || p->size - p->len < len) {
		p->full = true;
		return;
	}
	memcpy(p->buf + p->len, data, len);
	p->len += len;
}

/* A byte, then @n in @bytes bytes, the highest first. */
static void put_tagged(struct pack *p, u8 tag, u64 n, u32 bytes)
{
	const u64 be = htobe64(n);
	u8 out[9] = { tag };

	memcpy(out + 1, (const u8 *)&be + 8 - bytes, bytes);
	put(p, out, 1 + bytes);
}

void pack_nil(struct pack *p)
{
	put_tagged(p, 0xc0, 0, 0);
}

void pack_uint(struct pack *p, u64 n)
{
	if (n < 0x80)
		put_tagged(p, (u8)n, 0, 0);
	else if (n <= UINT8_MAX)
		put_tagged(p, 0xcc, n, 1);
	else if (n <= UINT16_MAX)
		put_tagged(p, 0xcd, n, 2);
	else if (n <= UINT32_MAX)
		put_tagged(p, 0xce, n, 4);
	else
		put_tagged(p, 0xcf, n, 8);
}

void pack_double(struct pack *p, double d)
{
	u64 bits;

	memcpy(&bits, &d, sizeof(bits));
	put_tagged(p, 0xcb, bits, 8);
}

/* pack_str() - @s has less than 256 bytes */
void pack_str(struct pack *p, const char *s)
{
	const u32 len = (u32)strlen(s);

	if (len < 32)
		put_tagged(p, (u8)(0xa0 | len), 0, 0);
	else
		put_tagged(p, 0xd9, len, 1);
	put(p, s, len);
}

void pack_array(struct pack *p, u32 nr)
{
	if (nr < 16)
		put_tagged(p, (u8)(0x90 | nr), 0, 0);
	else
		put_tagged(p, 0xdc, nr, 2);
}

/* pack_map() - @nr is less than 16 */
void pack_map(struct pack *p, u32 nr)
{
	put_tagged(p, (u8)(0x80 | nr), 0, 0);
}

/* pack_array_later() - an array whose length follows.  Return: for pack_array_now() */
u32 pack_array_later(struct pack *p)
{
	put_tagged(p, 0xdc, 0, 2);
	return p->len - 2;
}

/* pack_array_now() - its length: less than 65536 */
void pack_array_now(struct pack *p, u32 at, u32 nr)
{
	const u16 be = htobe16((u16)nr);

	if (!p->full)
		memcpy(p->buf + at, &be, sizeof(be));
}
