/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shard_client.h - a client with a part of each block in each of two device pools
 */
#ifndef TESTS_SHARD_CLIENT_H
#define TESTS_SHARD_CLIENT_H

#include <libkvmm.h>

#include "tests/integration/harness.h"

#define SHARD_PARTS	2u
#define SHARD_BLOCKS	6u	/* of a full sequence, 8 KiB in each pool */
#define SHARD_LEN	(SHARD_BLOCKS * 16 - 3)

/**
 * struct shard_seq - a sequence
 * @seq:  its handle; 0: closed
 * @seed: determines its ids and words
 * @len:  tokens that the client has written
 */
struct shard_seq {
	u64	seq;
	u32	seed;
	u32	len;
};

extern struct rig shard_rig;
extern struct kvmm *shard_kv;	/* of shard_attach_both() */
extern bool shard_child;	/* a fault ends this process with one line, and with 1 */
extern u32 shard_mine;		/* the next attachment's part, and its leader; as in */
extern u32 shard_leader;	/* struct kvmm_params */
extern int shard_rank_sock;	/* a leader's, to the rank that has the second part */

/* A fault of the client. */
_Noreturn void shard_give_up(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Attach as kvmm_attach() does; @pool and @shards as in struct kvmm_params. */
int shard_attach(u32 pool, u32 shards, struct kvmm **to, char *text);
void shard_attach_both(void);
/* Of a rank: do the leader's orders, until shard_dismiss(). */
void shard_serve(int sock);
void shard_dismiss(void);
/* Wait for an event of the daemon, for 2 ms at most. */
void shard_sleep(void);

/* Open and match a sequence; each number has other tokens. */
struct shard_seq shard_open(u32 number, u32 flags);
void shard_close(struct shard_seq *it);
void shard_await(const struct shard_seq *it, u32 state);
/* Compute it to its full length. */
void shard_fill(struct shard_seq *it);
/* Write, or compare, the words of tokens @from to @to - 1 in all parts of their blocks. */
void shard_words(const struct shard_seq *it, u32 from, u32 to, bool write);
void shard_page_out(const struct shard_seq *it);
/* Have it back, and compare its words. */
void shard_page_in(const struct shard_seq *it);
/* Run 16 sequences to their end that need more than a pool of 512K; not twice a @round. */
void shard_pressure(u32 round);

#endif /* TESTS_SHARD_CLIENT_H */
