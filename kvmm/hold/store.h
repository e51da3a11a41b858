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

/* One record; @fd is ours, -1 where the kind has none. */
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
 * struct store - all that is kept
 * @kept:       @nr records
 * @extent:     by number, @room of them; they may be many
 * @nr_extents: of these, kept; never more than @most, if that is not 0
 * @lock:       path of the first lock that was put; "": none was
 * @sock:       likewise, of each listening socket
 * @door:       likewise, directory of the sockets of each --tenant; 0: none
 * @serves:     this kvmm has clients: of it only what comes and goes with them, and
 *              swapd's, is taken.  Who took it over exchanges no socket, lock or
 *              memory for the next one
 * @ready:      this kvmm answers its clients, and nobody was told yet
 * @ask:        called with what kvmm asks; takes @fd over
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

#define STORE_TURN	64u	/* records taken at once; one if it is a question */

/**
 * store_receive() - take what kvmm deposits
 * @sock: hold's end of the socketpair, non-blocking
 *
 * No more than STORE_TURN records: a kvmm that never stops must not keep hold
 * from all else.
 *
 * Return: 0: nothing more is there; 1: there may be; -EPIPE: kvmm's end is
 * closed.
 */
int store_receive(struct store *st, int sock);

/**
 * store_receive_rest() - take all that a dead kvmm deposited
 *
 * Somebody else who has its end of the socket adds nothing to that.  Questions
 * are dropped.
 */
void store_receive_rest(struct store *st, int sock);

/**
 * store_send() - hand everything over to a new kvmm
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
 * came before the first client did, and what a kvmm that was taken over puts
 * later, also in a place that is free, may be anybody's file.
 */
void store_unlink(struct store *st);

/* store_find() - the record of that name, or NULL */
struct kept *store_find(struct store *st, u32 kind, u32 index);

/* store_forget() - all records of a kind */
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

/* For tests: one message as it came, with its descriptor or -1. */
void store_apply(struct store *st, const struct hold_record *rec, int fd);

#endif /* KVMM_HOLD_STORE_H */
