/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store.h - the records that kvmm-hold keeps from one kvmm to the next
 */
#ifndef KVMM_HOLD_STORE_H
#define KVMM_HOLD_STORE_H

#include <kvmm/opts.h>

#include "kvmm/hold/hold.h"

#define HOLD_LISTENERS	(3 + 2 * KV_LIST_MAX)	/* hold.h, HOLD_LISTEN */
#define HOLD_NAME	109	/* a sun_path, and a NUL */

/* One record; hold owns @fd, which is -1 if the kind has none. */
struct kept {
	struct hold_record	rec;
	int			fd;
};

/* Memory of an extent; @fd -1: none. */
struct kept_extent {
	int	fd;
	u32	generation;
};

/**
 * struct store - the kept records
 * @kept:       @nr records
 * @extent:     by number, @room entries; they may be many
 * @nr_extents: entries with memory; at most @most, if that is not 0
 * @lock:       path of the first lock that was put; "": none was
 * @sock:       likewise, of each listening socket
 * @door:       likewise, directory of the sockets of each --tenant; 0: none
 * @serves:     this kvmm has clients: hold takes only records that change with
 *              them, and those for swapd.  So a compromised kvmm cannot replace
 *              sockets, lock, arena or host pool of the next one
 * @ready:      this kvmm answers its clients, which hold has not reported yet
 * @ask:        called with each question of kvmm; takes @fd over
 */
struct store {
	struct kept		kept[HOLD_RECORDS];
	u32			nr;
	struct kept_extent	*extent;
	u32			room;
	u32			nr_extents;
	u32			most;
	char			lock[4096];
	char			sock[HOLD_LISTENERS][HOLD_NAME];
	int			door[KV_LIST_MAX];
	bool			serves;
	bool			ready;
	void			(*ask)(struct store *st,
				       const struct hold_record *rec, int fd);
};

#define STORE_TURN	64u	/* records taken at once; a question ends a turn */

/**
 * store_receive() - take the records that kvmm deposits
 * @sock: hold's end of the socketpair, non-blocking
 *
 * At most STORE_TURN records: a kvmm that never stops must not keep hold from its
 * other work.
 *
 * Return: 0: no record is left; 1: there may be more; -EPIPE: kvmm's end is
 * closed.
 */
int store_receive(struct store *st, int sock);

/**
 * store_receive_rest() - take all that a dead kvmm deposited
 *
 * Another process that has its end of the socket cannot add records.  Questions
 * are dropped.
 */
void store_receive_rest(struct store *st, int sock);

/**
 * store_send() - hand all records over to a new kvmm
 * @life: HOLD_LIFE_*
 *
 * Return: 0 or a negative errno.
 */
int __must_check store_send(const struct store *st, int sock, u32 life);

/*
 * store_unlink() - remove the sockets and the lock of a kvmm that cannot
 *
 * Does nothing when the lock was removed: then the sockets were, too.  Only the
 * names that were put first are removed, up to that of the attach socket: they
 * came before the first client.  A compromised kvmm may later put any file, also
 * under a free index.
 */
void store_unlink(struct store *st);

/* store_find() - the record of that kind and index, or NULL */
struct kept *store_find(struct store *st, u32 kind, u32 index);

/* store_forget() - drop all records of a kind */
void store_forget(struct store *st, u32 kind);

/**
 * store_send_record() - one message to kvmm
 * @fd:    goes with it; -1: none
 * @flags: MSG_DONTWAIT or 0
 *
 * Return: 0 or a negative errno.
 */
int __must_check store_send_record(int sock, const struct hold_record *rec,
				   int fd, int flags);

/* For tests: close everything. */
void store_clear(struct store *st);

/* For tests: apply one message, with its descriptor or -1. */
void store_apply(struct store *st, const struct hold_record *rec, int fd);

#endif /* KVMM_HOLD_STORE_H */
