// SPDX-License-Identifier: Apache-2.0
/*
 * control.c - messages of the leader to the other ranks
 *
 * The window holds one piece.  The leader counts pieces that it sent, every other rank
 * counts those that it took.  The leader writes a piece when all have taken the one before.
 */
#include "runtime/ranks/internal.h"

int ranks_send(struct ranks *r, const void *data, u64 bytes)
{
	struct ranks_piece *p = &r->w->piece;
	u64 at = 0;
	int ret;

	if (r->self)
		return -EINVAL;
	do {
		ret = ranks_failed(r);
		if (!ret)
			ret = ranks_await_all(r, RANKS_W_TAKEN, r->pieces);
		if (ret)
			return ret;
		p->total = bytes;
		p->offset = at;
		p->bytes = (u32)min(bytes - at, (u64)RANKS_PIECE);
		if (p->bytes)
			memcpy(p->data, (const u8 *)data + at, p->bytes);
		at += p->bytes;
		ranks_raise(r, RANKS_W_SENT, ++r->pieces);
	} while (at < bytes);
	return 0;
}

/* Take the piece that is in the window into @buf.  Return: bytes of it. */
static u32 take_piece(struct ranks *r, u8 *buf)
{
	const struct ranks_piece *p = &r->w->piece;
	const u32 bytes = p->bytes;

	if (bytes)
		memcpy(buf + p->offset, p->data, bytes);
	ranks_raise(r, RANKS_W_TAKEN, ++r->pieces);
	return bytes;
}

/* Wait for the first piece of a message. */
static int await_message(struct ranks *r, u32 wait_ms)
{
	u32 ms = wait_ms;
	int ret = ranks_failed(r);

	if (!ret)
		ret = ranks_await(r, 0, RANKS_W_SENT, r->pieces + 1, &ms);
	if (ret == -ETIME)
		return -EAGAIN;
	/* The leader has closed the group in order. */
	return ret == -ESHUTDOWN ? -EPIPE : ret;
}

int ranks_recv(struct ranks *r, void *buf, u64 size, u64 *bytes, u32 wait_ms)
{
	u64 total, at;
	u32 ms;
	int ret;

	if (!r->self)
		return -EINVAL;
	ret = await_message(r, wait_ms);
	if (ret)
		return ret;
	total = r->w->piece.total;
	*bytes = total;
	if (total > size)
		return -EMSGSIZE;
	for (at = take_piece(r, buf); at < total; at += take_piece(r, buf)) {
		ms = r->timeout_ms;
		ret = ranks_await(r, 0, RANKS_W_SENT, r->pieces + 1, &ms);
		if (ret)
			return ranks_fail_wait(r, 0, ret);
	}
	return 0;
}
